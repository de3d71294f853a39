"""Lint, types, and the code and links of the documentation."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import relaxvm
from relaxvm.native import toolchain

from . import children

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<language>\w*)")
SKIP = re.compile(r"<!-- skip: \S.* -->")
"""Put on the line before a block of Python that is not to be run, with the reason."""


def run(command: list[str], cwd: Path, **env: str) -> None:
    done = children.run(
        command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("tool", ["ruff check --no-cache .", "mypy"])
def test_tool_has_no_complaint(tool: str) -> None:
    name, *arguments = tool.split()
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    if name == "mypy" and (sys.version_info[:2] > (3, 11) or np.__version__.startswith("1.")):
        pytest.skip("types are those of the latest numpy for Python 3.11")
    run([sys.executable, "-m", name, *arguments], ROOT)


def test_names_of_tests_are_the_same_in_every_process(request: pytest.FixtureRequest) -> None:
    """Otherwise the processes of pytest-xdist do not agree on what there is to run."""
    names = [item.nodeid for item in request.session.items]
    assert not [name for name in names if re.search(r" at 0x[0-9a-f]+", name)]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def python_of(text: str) -> str:
    """Yield the Python blocks of a page, each with its line numbers in the page."""
    lines = text.splitlines()
    out = [""] * len(lines)
    at = 0
    while at < len(lines):
        match = FENCE.match(lines[at])
        if match is None:
            at += 1
            continue
        close = match["indent"] + match["ticks"]
        end = next((i for i in range(at + 1, len(lines)) if lines[i].rstrip() == close), None)
        assert end is not None, f"line {at + 1}: the block does not end"
        skipped = at > 0 and SKIP.search(lines[at - 1])
        if match["language"] == "python" and not skipped:
            out[at + 1 : end] = textwrap.dedent("\n".join(lines[at + 1 : end])).split("\n")
        at = end + 1
    return "\n".join(out) + "\n"


def test_python_of_a_page() -> None:
    page = "a\n```python\nx = 1\n\n```\n- b\n  ```python\n  y = 2\n  ```\n```sh\nls\n```\n"
    skipped = "<!-- skip: needs a GPU -->\n```python\nz = 3\n```\n"
    assert python_of(page + skipped).split("\n")[:9] == ["", "", "x = 1", *[""] * 4, "y = 2", ""]
    assert "z" not in python_of(page + skipped)
    assert "z" in python_of(page + skipped.replace(": needs a GPU", ""))  # without a reason
    with pytest.raises(AssertionError, match="line 2: the block does not end"):
        python_of("a\n```python\nx")


WITH_CODE = [page for page in PAGES if python_of(read(page)).strip()]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_code_runs(page: Path, tmp_path: Path) -> None:
    """All blocks of a page run in order, in an empty directory."""
    if "compile_c" in read(page) and toolchain.compiler() is None:
        pytest.skip("there is no C compiler")
    (tmp_path / "code").mkdir()
    code = tmp_path / "code.py"
    code.write_text(python_of(read(page)), encoding="utf-8")
    # Compiled under the name of the page: a traceback quotes its lines, and the source of Relax
    # scripts is read from linecache under that name.
    program = (
        "import linecache\n"
        f"page = {str(page)!r}\n"
        f"with open({str(code)!r}, encoding='utf-8') as file:\n"
        "    source = file.read()\n"
        "linecache.cache[page] = (len(source), None, source.splitlines(True), page)\n"
        "exec(compile(source, page, 'exec'), {'__name__': '__main__'})"
    )
    package = str(Path(relaxvm.__file__).parent.parent)
    run([sys.executable, "-P", "-W", "error", "-c", program], tmp_path / "code", PYTHONPATH=package)


def test_readme_has_an_example() -> None:
    assert ROOT / "README.md" in WITH_CODE


def heading_ids(text: str) -> set[str]:
    """Anchors of the headings of a page, as renderers form them."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", read(page), flags=re.MULTILINE | re.DOTALL)
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and anchor not in heading_ids(read(path))):
            wrong.append(target)
    assert not wrong, wrong


def test_readme_has_two_commands() -> None:
    """CI runs the first two shell blocks exactly as written."""
    text = read(ROOT / "README.md")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    assert all(block.startswith("python3 -m venv .venv\n") for block in blocks)
    assert "examples/models" in blocks[0]
    assert "pytest" in blocks[1]


def test_readme_names_the_make_targets() -> None:
    makefile = read(ROOT / "Makefile")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    named = re.findall(r"`make (\w+)`", read(ROOT / "README.md"))
    assert named == phony.split()
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in named)
