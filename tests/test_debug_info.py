"""Debug information, end to end: in every file format, malformed sections, and wherever it is
shown."""

from __future__ import annotations

import copy
import csv
import io
import json
import pickle
import re
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relaxvm
from relaxvm import DebugInfo, ExecBuilder, Limits, Span, VirtualMachine, VMExecutable, cli
from relaxvm.errors import FormatError, LimitError, RelaxVMWarning
from relaxvm.executable.debug_info import MAX_NUMBER, Location
from relaxvm.executable.formats import binary
from relaxvm.executable.formats.places import place_text, span_text

from .format_strategies import by_hand, debug_infos, with_places

SOURCE = """\
@R.function
def main(x):
    y = t.double(x)
    z = t.fail(
        y)
    return z
"""
Y = Span("model.py", 3, 9, 3, 20)
Z = Span("model.py", 4, 9, 5, 11)


def program(*, source: str | None = SOURCE) -> VMExecutable:
    """``main(x)`` doubles and then fails; the location of its `ret` is unknown."""
    ib = ExecBuilder()
    if source is not None:
        ib.add_source("model.py", source)
    with ib.function("main", 1, ["x"]):
        ib.at(Y, "y")
        ib.emit_call("t.double", [ib.r(0)], ib.r(1))
        ib.at(Z, "z")
        ib.emit_call("t.fail", [ib.r(1)], ib.r(2))
        ib.at()
        ib.emit_ret(ib.r(2))
    return ib.get()


def double(x: Any) -> Any:
    return x + x


def fail(x: Any) -> Any:
    raise ZeroDivisionError("kernel")


def machine(executable: VMExecutable) -> VirtualMachine:
    return VirtualMachine(executable, functions={"t.double": double, "t.fail": fail})


# File forms


@pytest.mark.parametrize("form", ["bin", "complete.txt", "py.txt"])
def test_golden_forms(form: str, golden: Callable[[str, str | bytes], None]) -> None:
    forms: dict[str, Callable[[], str | bytes]] = {
        "bin": with_places().to_bytes,
        "complete.txt": lambda: with_places().as_text(complete=True),
        "py.txt": with_places().as_python,
    }
    golden(f"places.{form}", forms[form]())


def test_tvms_stream_does_not_change() -> None:
    data = with_places().to_bytes()
    assert data.startswith(by_hand().to_bytes())
    assert with_places().to_bytes(debug=False) == by_hand().to_bytes()
    assert with_places().strip().to_bytes() == by_hand().to_bytes()
    assert by_hand().to_bytes(debug=True) == by_hand().to_bytes()


def test_saving_with_and_without_debug_information(tmp_path: Path) -> None:
    ex = program()
    ex.save(tmp_path / "with")
    ex.save(tmp_path / "without", debug=False)
    for share in (False, True):
        assert relaxvm.load(tmp_path / "with", mmap=share).debug == ex.debug
        assert relaxvm.load(tmp_path / "without", mmap=share).debug is None


def test_read_from_files_and_pipes_of_any_kind(tmp_path: Path) -> None:
    ex = program()
    path = tmp_path / "two"
    path.write_bytes(b"head" + ex.to_bytes())
    with open(path, "rb") as file:
        file.seek(4)
        assert binary.load(file).debug == ex.debug
        assert file.read() == b""
    assert binary.load(io.BytesIO(ex.to_bytes())).debug == ex.debug


def test_a_file_without_debug_information_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "it"
    path.write_bytes(by_hand().to_bytes() + b"rvmdebu, but not quite")
    with open(path, "rb") as file:
        with pytest.warns(RelaxVMWarning, match="22 bytes follow"):
            assert binary.load(file, strict=False) == by_hand()
        assert file.read() == b"rvmdebu, but not quite"


def test_bytes_after_the_section(tmp_path: Path) -> None:
    data = program().to_bytes()
    with pytest.raises(FormatError, match=rf"end: 3 bytes follow at byte {len(data)}"):
        binary.loads(data + b"abc")
    with pytest.warns(RelaxVMWarning, match="3 bytes follow"):
        assert binary.loads(data + b"abc", strict=False).debug == program().debug


def test_pickle_and_copy_keep_it() -> None:
    ex = program()
    assert pickle.loads(pickle.dumps(ex)).debug == ex.debug
    assert copy.deepcopy(ex).debug is ex.debug


def test_the_plain_listing_has_none() -> None:
    assert with_places().as_text() == by_hand().as_text()


def test_code_outside_of_what_the_builder_makes_keeps_it_in_python() -> None:
    text = with_places().as_python()
    assert "VMExecutable(" in text  # written as words, because of the memory scope
    assert '(5, None, "gv"),' in text
    text = program().as_python()
    assert "    ib.at(rx.Span(\"model.py\", 3, 9, 3, 20), \"y\")\n" in text
    assert "    ib.at()\n" in text


def test_names_without_a_place_in_the_stream() -> None:
    for name, message in (("a\0b", "contains a NUL character"), ("\ud800", "has no UTF-8 form")):
        for debug in (
            DebugInfo.of([(0, None, name)]),
            DebugInfo.of([(0, Span(name, 1, 1), None)]),
            DebugInfo.of([(0, Y, None)], {"model.py": {1: name}}),
        ):
            with pytest.raises(FormatError, match=rf"cannot save .*debug section: .*{message}"):
                by_hand().with_debug(debug).to_bytes()


# Broken sections


def u64(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def table(*rows: tuple[int, ...]) -> bytes:
    return u64(len(rows)) + b"".join(struct.pack(f"<{len(row)}i", *row) for row in rows)


def strings(data: bytes) -> bytes:
    return u64(len(data)) + data


RUNS = table((0, 0, 0), (2, -1, 1))
SPANS = table((0, 3, 9, 3, 20))
LINES = table((0, 3), (0, 5))
FILES = strings(b"m.py\0")
VARIABLES = strings(b"x\0y\0")
TEXTS = strings(b"a\0\0")


def section(
    runs: bytes = RUNS,
    spans: bytes = SPANS,
    lines: bytes = LINES,
    files: bytes = FILES,
    variables: bytes = VARIABLES,
    texts: bytes = TEXTS,
    parts: bytes = b"",
    *,
    version: int = 1,
    size: int | None = None,
) -> bytes:
    content = runs + spans + lines + files + variables + texts + parts
    size = len(content) if size is None else size
    return b"rvmdebug" + u64(version, size) + content


_TWO = r"strings at byte \d+: expected 2, each ended by a NUL"

MALFORMED: dict[str, tuple[bytes, str]] = {
    "version": (section(version=2), "expected version 1, got 2; strict=False leaves it out"),
    "flags": (section(version=1 + (1 << 33)), "expected flags 0, got 2"),
    "size too large": (section(size=10_000), r"truncated at byte \d+: 10000 bytes needed"),
    "size of everything": (section(size=2**64 - 1), "truncated at byte"),
    "size too small": (section(size=30), r"truncated at byte \d+: 24 bytes needed, 22 left"),
    "size with a rest": (section(size=len(section()) - 24 + 3) + b"abc", "truncated at byte"),
    "size with another rest": (section(parts=table((0, 0, 0)) + b"abc"),
                               r"expected its end at byte \d+, got it at \d+"),
    "no parts": (section(parts=table()), "expected at least one part of an operation"),
    "part of nothing": (section(parts=table((2, 0, 0))), "parts: expected rows of runs below 2"),
    "part before all": (section(parts=table((-1, 0, 0))), "parts: expected rows of runs below 2"),
    "order of parts": (section(parts=table((1, 0, 0), (0, 0, 0))), "parts: .* do not decrease"),
    "empty part": (section(parts=table((0, -1, -1))), "parts: expected each to have a place"),
    "span of a part": (section(parts=table((0, 1, 0))), "runs: span: expected indices below 1"),
    "variable of a part": (section(parts=table((0, 0, 2))), "runs: variable: expected indices"),
    "number of runs": (section(runs=u64(2**60)), "truncated at byte"),
    "number of spans": (section(spans=u64(2**63)), "truncated at byte"),
    "number of lines": (section(lines=u64(2**64 - 1)), "truncated at byte"),
    "no runs": (section(runs=table()), "expected at least one location"),
    "pc": (section(runs=table((-1, 0, 0), (2, -1, 1))), "runs: expected pcs that increase"),
    "pcs": (section(runs=table((2, 0, 0), (2, -1, 1))), "runs: expected pcs that increase"),
    "first run": (section(runs=table((0, -1, -1), (1, 0, 0), (2, -1, 1))),
                  "runs: expected a first one of something"),
    "same run": (section(runs=table((0, 0, 0), (1, 0, 0), (2, -1, 1))), "runs: expected each to"),
    "span": (section(runs=table((0, 1, 0), (2, -1, 1))), "runs: span: expected indices below 1"),
    "negative span": (section(runs=table((0, -2, 0), (2, 0, 1))), "runs: expected numbers from -1"),
    "unused span": (section(runs=table((0, -1, 0), (2, -1, 1))), "runs: span: expected indices"),
    "variable": (section(runs=table((0, 0, 0), (2, -1, 9))),
                 "runs: variable: expected indices below 2"),
    "greatest variable": (section(runs=table((0, 0, 0), (2, -1, MAX_NUMBER))),
                         "runs: variable: expected indices below 2"),
    "order of variables": (section(runs=table((0, 0, 1), (2, -1, 0))), "runs: variable: expected"),
    "file": (section(spans=table((1, 3, 9, 3, 20))), r"strings at byte \d+: expected 2"),
    "negative file": (section(spans=table((-1, 3, 9, 3, 20)), files=strings(b""), lines=table(),
                              texts=strings(b"")), "spans: expected a file"),
    "line 0": (section(spans=table((0, 0, 9, 3, 20))), "spans: expected .* from 1 on"),
    "end": (section(spans=table((0, 3, 9, 3, 8))), "spans: expected each to end"),
    "line of no file": (section(lines=table((0, 3), (1, 5))), "line_numbers: expected files below"),
    "order of lines": (section(lines=table((0, 5), (0, 3))), "line_numbers: expected increasing"),
    "number of texts": (section(texts=strings(b"a\0")), _TWO),
    "end of texts": (section(texts=strings(b"a\0\0b")), _TWO),
    "texts of no lines": (section(lines=table(), texts=strings(b"a")),
                          r"strings at byte \d+: expected 0,"),
    "size of texts": (section(texts=u64(2**63) + b"a\0\0"), "truncated at byte"),
    "empty variable": (section(variables=strings(b"x\0\0")), "variables: .* none of them empty"),
    "same variables": (section(variables=strings(b"x\0x\0")), "variables: expected distinct"),
    "empty file": (section(files=strings(b"\0")), "files: .* none of them empty"),
    "not UTF-8": (section(files=strings(b"\xff\0")), r"string at byte \d+: not UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_sections_are_refused(name: str, tmp_path: Path) -> None:
    tail, message = MALFORMED[name]
    data = by_hand().to_bytes() + tail
    path = tmp_path / "model.vmexec"
    path.write_bytes(data)
    pattern = rf"bad executable \(debug section: {message}"
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=pattern):
            binary.loads(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    for share in (False, True):
        with pytest.raises(FormatError, match=pattern):
            binary.load(path, mmap=share)


def test_the_sections_above_have_only_one_defect() -> None:
    debug = binary.loads(by_hand().to_bytes() + section()).debug
    assert debug is not None
    assert list(debug) == [Location(0, Span("m.py", 3, 9, 3, 20), "x"), Location(2, None, "y")]
    assert debug.sources == {"m.py": {3: "a", 5: ""}}
    assert binary.dumps(by_hand().with_debug(debug)) == by_hand().to_bytes() + section()


def test_another_version_can_be_left_out() -> None:
    data = by_hand().to_bytes() + section(version=7)
    with pytest.warns(RelaxVMWarning, match="debug section left out: expected version 1, got 7"):
        assert binary.loads(data, strict=False).debug is None


def test_every_truncated_prefix_is_refused(tmp_path: Path) -> None:
    data, stream = with_places().to_bytes(), by_hand().to_bytes()
    path = tmp_path / "cut"
    for size in range(len(stream) + 1, len(data)):
        expected = r"truncated at byte \d+" if size >= len(stream) + 8 else "end: . bytes follow"
        with pytest.raises(FormatError, match=expected):
            binary.loads(data[:size])
        if size % 7 == 0:
            path.write_bytes(data[:size])
            with pytest.raises(FormatError, match=expected):
                binary.load(path)
    assert binary.loads(data[: len(stream)]).debug is None


def test_mutants_are_read_or_refused() -> None:
    """Every byte of a section is changed; a section that is read is written back equal."""
    data = with_places().to_bytes()
    read = 0
    for at in range(len(by_hand().to_bytes()), len(data)):
        for value in {0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1, (data[at] + 1) & 0xFF}:
            mutant = data[:at] + bytes([value]) + data[at + 1 :]
            try:
                ex = binary.loads(mutant)
            except FormatError:
                continue
            assert binary.dumps(ex) == mutant
            read += 1
    assert read > 100


@given(debug_infos(8), st.data())
def test_equal_content_has_equal_bytes(debug: DebugInfo, data: st.DataObject) -> None:
    """Equal content is written the same, in whatever order and however often it was added."""
    again = DebugInfo.of(list(debug), dict(reversed(debug.sources.items())))
    assert again == debug
    assert hash(again) == hash(debug)
    noisy = [place for place in debug for _ in range(data.draw(st.integers(1, 2)))]
    assert DebugInfo.of(noisy, debug.sources) == debug


def test_limits() -> None:
    for place in ((None, "v" * 20), (Span("f" * 20, 1, 1), None)):
        ex = by_hand().with_debug(DebugInfo.of([(0, *place)]))
        assert binary.loads(ex.to_bytes(), limits=Limits().but(name_bytes=20)).debug == ex.debug
        with pytest.raises(LimitError, match="debug section: bytes of a name: 20 is above the"):
            binary.loads(ex.to_bytes(), limits=Limits().but(name_bytes=19))
    many = by_hand().to_bytes() + section(runs=table(*((i, 0, i % 2) for i in range(20))))
    with pytest.raises(LimitError, match="debug section: count: 20 is above the limit instr"):
        binary.loads(many, limits=Limits().but(instructions=19))


def test_large_sections_take_linear_time() -> None:
    count = 200_000
    ib = ExecBuilder()
    ib.add_source("model.py", "\n".join(f"    lv{i} = f(x)" for i in range(count)))
    with ib.function("main", 1):
        for i in range(count):
            ib.at(Span("model.py", i + 1, 5, i + 1, 20), f"lv{i}")
            ib.emit_call("f", [ib.r(0)], ib.r(1))
        ib.emit_ret(ib.r(1))
    ex = ib.get()
    again = binary.loads(ex.to_bytes())
    assert again.debug == ex.debug
    assert again.debug is not None
    assert again.debug.location(count // 2).variable == f"lv{count // 2}"
    assert again.debug.line("model.py", 7) == "    lv6 = f(x)"


# TVM


def test_tvm_reads_files_with_a_section(tmp_path: Path) -> None:
    tvm = pytest.importorskip("tvm")
    pytest.importorskip("tvm.relax")
    read = tvm.get_global_func("ffi.Module.load_from_bytes.relax.VMExecutable")
    module = read(with_places().to_bytes())
    assert module["as_text"]() == by_hand().as_text()
    path = tmp_path / "by_tvm"
    module.write_to_file(str(path), "")
    assert path.read_bytes() == by_hand().to_bytes()


# Where it is shown


def test_error_notes() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        machine(program()).main(np.ones(2))
    assert caught.value.__notes__ == [
        "in main, pc 1: call t.fail in: %1 dst: %2\n"
        "  with float64[2]\n"
        "  binding z at model.py:4:9\n"
        "        z = t.fail(\n"
        "            ^^^^^^^"
    ]


@pytest.mark.parametrize("optimize", [True, False])
def test_error_notes_of_builtins(optimize: bool) -> None:
    ib = ExecBuilder()
    with ib.function("main", 1):
        ib.at(Y)
        ib.emit_call("vm.builtin.tuple_getitem", [ib.r(0), ib.imm(3)], ib.r(1))
        ib.emit_ret(ib.r(1))
    vm = VirtualMachine(ib.get(), functions=[], optimize=optimize)
    with pytest.raises(IndexError) as caught:
        vm.main((1, 2))
    assert caught.value.__notes__[0].endswith("\n  at model.py:3:9")


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ((Z, None), "\n  at model.py:4:9"),
        ((Z, "z"), "\n  binding z at model.py:4:9"),
        ((None, "z"), "\n  binding z"),
        ((None, None), "with float64[2]"),
        ((Z, "\x1b[31m"), "\n  binding \\x1b[31m at model.py:4:9"),
        ((Span("a\nb", 1, 1), None), "\n  at a\\nb:1:1"),
        ((Span("/" + "d" * 200 + "/model.py", 1, 1), None), "d/model.py:1:1"),
    ],
)
def test_error_notes_say_what_is_known(place: Any, expected: str) -> None:
    ex = program(source=None).with_debug(DebugInfo.of([(0, Y, "y"), (1, *place)]))
    with pytest.raises(ZeroDivisionError) as caught:
        machine(ex).main(np.ones(2))
    (note,) = caught.value.__notes__
    assert note.endswith(expected)
    assert len(note) < 300
    assert all(line.isprintable() for line in note.split("\n"))


def test_error_notes_after_saving_and_loading(tmp_path: Path) -> None:
    program().save(tmp_path / "it.vmexec")
    ex = relaxvm.load(tmp_path / "it.vmexec")
    with pytest.raises(ZeroDivisionError) as caught:
        machine(ex).main(np.ones(2))
    assert "        z = t.fail(\n            ^^^^^^^" in caught.value.__notes__[0]


def test_hostile_lines_in_notes_are_short_and_printable() -> None:
    line = "\x1b]0;title\x07\u202e" + "x" * 900
    debug = DebugInfo.of([(0, Span("m", 1, 1, 1, 10**9), "y")], {"m": {1: line}})
    ex = program(source=None).with_debug(debug)
    with pytest.raises(ZeroDivisionError) as caught:
        machine(ex).main(np.ones(2))
    (note,) = caught.value.__notes__
    assert len(note) < 400
    assert "    ?]0;title??xxx" in note
    assert all(text.isprintable() for text in note.split("\n"))


def test_profile() -> None:
    ib = ExecBuilder()
    with ib.function("main", 1, ["x"]):
        ib.at(Y, "y")
        ib.emit_call("t.double", [ib.r(0)], ib.r(1))
        ib.at()
        ib.emit_call("t.double", [ib.r(1)], ib.r(2))
        ib.emit_ret(ib.r(2))
    vm = machine(ib.get())
    with relaxvm.profile(vm) as p:
        vm.main(np.ones(2))
    assert [(row.pc, row.source, row.variable) for row in p.sites] == [
        (-1, "", ""),
        (0, "model.py:3:9", "y"),
        (1, "", ""),
    ]
    rows = list(csv.DictReader(io.StringIO(p.to_csv(by="site"))))
    assert [(row["source"], row["variable"]) for row in rows] == [
        ("", ""),
        ("model.py:3:9", "y"),
        ("", ""),
    ]
    sites = json.loads(p.to_json())["sites"]
    assert [(row["source"], row["variable"]) for row in sites][1] == ("model.py:3:9", "y")
    assert re.search(r"main:0 call t\.double .*  \[y at model\.py:3:9\]$", p.table(by="site"), re.M)
    args = [e["args"] for e in p.chrome_trace()["traceEvents"] if e.get("cat") == "kernel"]
    assert [(a["pc"], a.get("source"), a.get("variable")) for a in args] == [
        (0, "model.py:3:9", "y"),
        (1, None, None),
    ]


def test_html() -> None:
    page = program()._repr_html_()
    summary = "debug information: 3 locations, 2 spans, 1 file, 2 variables, 3 lines of source"
    assert summary in page
    assert "      # z at model.py:4:9<br>      #   4 |     z = t.fail(<br>" in page
    assert "debug information" not in program().strip()._repr_html_()


def test_html_escapes_what_it_shows() -> None:
    ex = program(source="\n\n<script>alert(1)</script>\n")
    assert "<script>" not in ex._repr_html_()
    assert "&lt;script&gt;" in ex._repr_html_()


class TestCommandLine:
    @pytest.fixture
    def file(self, tmp_path: Path) -> str:
        path = tmp_path / "it.vmexec"
        program().save(path)
        return str(path)

    def test_dis_source(self, file: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["dis", "--source", file]) == 0
        assert capsys.readouterr().out == (
            "@main:\n"
            "# y at model.py:3:9\n"
            "#   3 |     y = t.double(x)\n"
            "0  call  t.double         in: %0           dst: %1\n"
            "# z at model.py:4:9\n"
            "#   4 |     z = t.fail(\n"
            "#   5 |         y)\n"
            "1  call  t.fail           in: %1           dst: %2\n"
            "# of unknown origin\n"
            "2  ret   %2\n"
            "@t.double packed\n"
            "@t.fail packed\n"
        )

    def test_dis_json(self, file: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["dis", "--json", "--function", "main", file]) == 0
        rows = json.loads(capsys.readouterr().out)["instructions"]
        source = {"file": "model.py", "line": 3, "column": 9, "end_line": 3, "end_column": 20}
        assert (rows[0]["source"], rows[0]["variable"]) == (source, "y")
        assert (rows[2]["source"], rows[2]["variable"]) == (None, None)

    def test_dis_without(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "it.vmexec"
        program().save(path, debug=False)
        assert cli.main(["dis", "--source", str(path)]) == 0
        out, err = capsys.readouterr()
        assert out.startswith("@main:\n0  call")
        assert "it.vmexec: has no debug information" in err
        assert cli.main(["dis", "--json", str(path)]) == 0
        assert "source" not in json.loads(capsys.readouterr().out)["instructions"][0]

    @pytest.mark.parametrize("other", ["--complete", "--python"])
    def test_dis_source_with_another_form(
        self, file: str, other: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(["dis", "--source", other, file]) == 2
        assert "--source: not allowed with" in capsys.readouterr().err

    def test_inspect(self, file: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["inspect", file]) == 0
        assert "\ndebug information: 3 locations, 2 spans, 1 file," in capsys.readouterr().out
        assert cli.main(["inspect", "--json", file]) == 0
        assert json.loads(capsys.readouterr().out)["debug"] == {
            "locations": 3,
            "spans": 2,
            "files": ["model.py"],
            "variables": 2,
            "lines": 3,
            "summary": "3 locations, 2 spans, 1 file, 2 variables, 3 lines of source",
        }

    def test_asm(self, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["dis", "--complete", file]) == 0
        listing, output = tmp_path / "it.txt", tmp_path / "again.vmexec"
        listing.write_text(capsys.readouterr().out, encoding="utf-8")
        assert cli.main(["asm", str(listing), "-o", str(output)]) == 0
        assert output.read_bytes() == Path(file).read_bytes()
        assert cli.main(["asm", "--strip", str(listing), "-o", str(output)]) == 0
        assert output.read_bytes() == program().to_bytes(debug=False)

    def test_long_spans_are_cut(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        debug = DebugInfo.of([(0, Span("m", 1, 1, 99, 1), None)], {"m": "line\n" * 99})
        program().with_debug(debug).save(tmp_path / "it")
        assert cli.main(["dis", "--source", str(tmp_path / "it")]) == 0
        lines = capsys.readouterr().out.split("\n")
        assert lines[8:11] == ["#   7 | line", "#   8 | line", "#     | ..."]


def test_places_as_text() -> None:
    assert place_text(Location(0, Y, "y")) == "y at model.py:3:9"
    assert place_text(Location(0, None, "y")) == "y"
    assert place_text(Location(0, Y)) == "model.py:3:9"
    assert place_text(Location(0)) == ""
    assert len(span_text(Span("x" * 1000, 1, 1))) <= 90
