"""What the generators in this folder share.

A generator has a dict ``FILES``, from the path of each file, below the root of the repository, to
the function that returns its text.  Run as a script, it writes the files that have changed; with
``--check`` it writes nothing, and fails if a file is stale.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if "relaxvm" not in sys.modules:  # run as a script: import the package of this checkout
    sys.path.insert(0, str(ROOT))

Files = Mapping[str, Callable[[], str]]


def stale(files: Files, root: Path = ROOT) -> dict[str, str]:
    """Return path -> new text of the files that are out of date."""
    made = {path: make() for path, make in files.items()}
    return {
        path: text
        for path, text in made.items()
        if not (root / path).is_file() or (root / path).read_text(encoding="utf-8") != text
    }


def main(files: Files, argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write or check files; returns the exit status."""
    parser = argparse.ArgumentParser(description=f"Generate {', '.join(files)}.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if stale")
    check = parser.parse_args(argv).check
    changed = stale(files, root)
    for path, text in changed.items():
        if check:
            print(f"{path}: stale; run make docs", file=sys.stderr)
        else:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8", newline="\n")
            print(f"{path}: written")
    return 1 if check and changed else 0


def with_tables(page: str, tables: Mapping[str, Callable[[], Iterable[str]]]) -> str:
    """Return the text of a page with up-to-date tables, each between ``<!-- NAME -->`` and
    ``<!-- end of NAME -->``."""
    for name, lines in tables.items():
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, found, rest = page.partition(start)
        if not found or end not in rest:
            raise SystemExit(f"the markers of {name} are missing")
        after = rest[rest.index(end) :]
        page = before + start + "\n" + "\n".join(lines()) + "\n\n" + after
    return page


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """The lines of a table in Markdown."""
    lines = [head, tuple("---" for _ in head), *rows]
    return ["| " + " | ".join(line).replace("\n", " ") + " |" for line in lines]
