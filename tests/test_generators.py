"""Generated files: all are current, and the generators notice those that are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from .generators import ROOT, load

GENERATORS = sorted(path.stem for path in (ROOT / "scripts").glob("gen_*.py"))
FILES = {path: name for name in GENERATORS for path in load(name).FILES}


@pytest.mark.parametrize("path", FILES)
def test_a_generated_file_is_current(path: str) -> None:
    text = load(FILES[path]).FILES[path]()
    hint = f"{path} is stale: run python scripts/{FILES[path]}.py"
    assert (ROOT / path).read_text(encoding="utf-8") == text, hint


def test_every_file_has_one_generator() -> None:
    assert len(FILES) == sum(len(load(name).FILES) for name in GENERATORS)


def test_a_stale_file_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generated = load("generated")
    files = {"docs/page.md": lambda: "text\n", "other.h": lambda: "int x;\n"}

    def run(*argv: str) -> int:
        status: int = generated.main(files, argv, root=tmp_path)
        return status

    assert run("--check") == 1
    assert not list(tmp_path.iterdir())
    assert run() == 0
    assert (tmp_path / "docs/page.md").read_text() == "text\n"
    assert run("--check") == 0
    (tmp_path / "other.h").write_text("int y;\n")
    assert run("--check") == 1
    out, err = capsys.readouterr()
    assert out == "docs/page.md: written\nother.h: written\n"
    assert err == (
        "docs/page.md: stale; run make docs\nother.h: stale; run make docs\n"
        "other.h: stale; run make docs\n"
    )
