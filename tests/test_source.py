"""Spans, debug information, and how both get into an executable."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from relaxvm import DebugInfo, ExecBuilder, Span, VMExecutable
from relaxvm.errors import InternalError
from relaxvm.executable.debug_info import MAX_LINE, Location
from relaxvm.executable.underline import underlined

TEXT = "def main(x):\n    y = f(x)\n    z = g(\n        y)\n    return z\n"
Y = Span("m.py", 2, 5, 2, 13)
Z = Span("m.py", 3, 5, 4, 11)


def program(*, debug: bool = True, source: bool = True) -> VMExecutable:
    """Two bindings and a return; then a function without locations."""
    ib = ExecBuilder()
    if source:
        ib.add_source("m.py", TEXT)
    with ib.function("main", 1):
        if debug:
            ib.at(Y, "y")
        ib.emit_call("f", [ib.r(0)], ib.r(1))
        if debug:
            ib.at(Z, "z")
        ib.emit_call("g", [ib.r(1)], ib.r(2))
        ib.emit_ret(ib.r(2))
    with ib.function("other"):
        ib.emit_ret(ib.void_arg())
    return ib.get()


def debug_of(executable: VMExecutable) -> DebugInfo:
    assert executable.debug is not None
    return executable.debug


class TestSpan:
    def test_is_a_value(self) -> None:
        assert Span("a", 1, 2) == Span("a", 1, 2, 1, 3)
        assert Span("a", 1, 2) != Span("a", 1, 2, 1, 4)
        assert Span("a", 1, 2) != Span("b", 1, 2)
        assert Span("a", 1, 2) != "a:1:2"
        assert len({Span("a", 1, 2), Span("a", 1, 2), Span("a", 2, 2)}) == 2

    def test_text(self) -> None:
        assert str(Y) == "m.py:2:5"
        assert repr(Y) == "Span('m.py', 2, 5, 2, 13)"
        assert eval(repr(Y)) == Y

    def test_goes_on_to_another(self) -> None:
        assert Y.to(Z) == Span("m.py", 2, 5, 4, 11)

    def test_copies(self) -> None:
        assert pickle.loads(pickle.dumps(Y)) == copy.deepcopy(Y) == Y


class TestBuilder:
    def test_records_locations_of_at(self) -> None:
        debug = debug_of(program())
        assert [(debug.span(pc), debug.variable(pc)) for pc in range(4)] == [
            (Y, "y"),
            (Z, "z"),
            (Z, "z"),
            (None, None),
        ]

    def test_keeps_the_lines_that_spans_touch(self) -> None:
        debug = debug_of(program())
        assert debug.sources == {"m.py": {2: "    y = f(x)", 3: "    z = g(", 4: "        y)"}}
        assert list(debug.lines(Z)) == [(3, "    z = g("), (4, "        y)")]
        assert debug.line("m.py", 2) == "    y = f(x)"
        assert debug.line("m.py", 5) is None
        assert debug.line("n.py", 2) is None
        assert list(debug.lines(Span("n.py", 2, 1))) == []

    def test_nothing_recorded(self) -> None:
        assert program(debug=False).debug is None

    def test_nothing_known(self) -> None:
        ib = ExecBuilder()
        with ib.function("main"):
            ib.at()
            ib.emit_ret(ib.void_arg())
            ib.at(Y, "y")  # not of an instruction
        assert ib.get().debug is None

    def test_code_is_the_same_with_and_without(self) -> None:
        assert program() == program(debug=False)
        assert hash(program()) == hash(program(debug=False))

    def test_the_last_location_counts(self) -> None:
        ib = ExecBuilder()
        with ib.function("main"):
            ib.at(Y, "y")
            ib.at(Z)
            ib.emit_ret(ib.void_arg())
        assert list(debug_of(ib.get())) == [Location(0, Z)]

    def test_branches_of_a_label_belong_to_their_jump(self) -> None:
        ib = ExecBuilder()
        with ib.function("main", 1):
            back = ib.label()
            ib.bind(back)
            ib.at(Y, "y")
            ib.emit_if(ib.r(0), back)  # three instructions
            ib.at(Z)
            ib.emit_ret(ib.r(0))
        debug = debug_of(ib.get())
        assert [location.pc for location in debug] == [0, 3]

    def test_a_dropped_function_leaves_nothing(self) -> None:
        ib = ExecBuilder()
        with pytest.raises(KeyError), ib.function("main"):
            ib.at(Y, "y")
            ib.emit_ret(ib.void_arg())
            raise KeyError
        with ib.function("main"):
            ib.emit_ret(ib.void_arg())
        assert ib.get().debug is None

    def test_get_twice(self) -> None:
        ib = ExecBuilder()
        for name in ("f", "g"):
            with ib.function(name):
                ib.at(Y, name)
                ib.emit_ret(ib.void_arg())
            first, second = ib.get(), ib.get()
            assert first.debug == second.debug
        assert list(debug_of(ib.get())) == [Location(0, Y, "f"), Location(1, Y, "g")]

    def test_mistakes(self) -> None:
        ib = ExecBuilder()
        with pytest.raises(ValueError, match="at: expected an open function, got none"):
            ib.at(Y)
        with pytest.raises(InternalError, match="source file: expected a name, got an empty"):
            ib.add_source("", "x")

    @pytest.mark.parametrize(
        ("span", "var", "error", "message"),
        [
            ("y", None, TypeError, "at: expected a Span, got str 'y'"),
            (Y, 3, TypeError, "at: variable: expected a name, got int 3"),
            (Y, "", InternalError, "at: variable: expected a name, got an empty string"),
        ],
    )
    def test_wrong_spans(self, span: Any, var: Any, error: type[Exception], message: str) -> None:
        ib = ExecBuilder()
        with pytest.raises(error, match=f"^function 'main', pc 0: {message}"), ib.function("main"):
            ib.at(span, var)


class TestExecutable:
    def test_strip(self) -> None:
        executable = program()
        stripped = executable.strip()
        assert stripped.debug is None
        assert stripped == executable
        assert stripped.strip() is stripped
        assert stripped.with_debug(executable.debug).debug is executable.debug

    def test_empty_is_none(self) -> None:
        assert program().with_debug(DebugInfo.of([])).debug is None


class TestDebugInfo:
    def test_merges_equal_neighbours(self) -> None:
        locations = [(0, None, None), (1, Y, "y"), (2, Y, "y"), (3, None, "y"), (5, Y, None)]
        one = DebugInfo.of(locations)
        assert list(one) == [Location(1, Y, "y"), Location(3, None, "y"), Location(5, Y, None)]
        assert one.location(0) == Location(0)
        assert one.location(4) == Location(3, None, "y")
        assert one.location(1000) == Location(5, Y)

    def test_overwritten_locations_leave_no_trace(self) -> None:
        assert DebugInfo.of([(0, Z, "z"), (0, Y, "y")]) == DebugInfo.of([(0, Y, "y")])
        assert DebugInfo.of([(0, Y, "y"), (1, Z, None), (1, Y, "y")]) == DebugInfo.of([(0, Y, "y")])

    def test_equal_by_content(self) -> None:
        sources = {"m.py": TEXT}
        one, two = (DebugInfo.of([(0, Y, "y"), (3, Z, "z")], sources) for _ in range(2))
        assert one == two
        assert hash(one) == hash(two)
        assert one != DebugInfo.of([(0, Y, "y"), (3, Z, "z")])
        assert one != DebugInfo.of([(0, Y, "y"), (4, Z, "z")], sources)
        assert one != 1

    def test_is_immutable(self) -> None:
        debug = debug_of(program())
        with pytest.raises(
            AttributeError, match=r"DebugInfo\.files: debug information is immutable"
        ):
            debug.files = ()
        for array in (debug.runs, debug.spans, debug.line_numbers):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0
            with pytest.raises(ValueError, match="cannot set WRITEABLE"):
                array.flags.writeable = True
        assert copy.copy(debug) is copy.deepcopy(debug) is debug
        assert pickle.loads(pickle.dumps(debug)) == debug

    def test_keeps_nothing_twice(self) -> None:
        debug = DebugInfo.of([(pc, (Y, Z)[pc % 2], "yz"[pc % 2]) for pc in range(1000)])
        assert len(debug) == 1000
        assert len(debug.spans) == 2
        assert debug.variables == ("y", "z")
        assert repr(debug) == ("<DebugInfo: 1000 locations, 2 spans, 1 file, 2 variables, "
                               "0 lines of source>")  # fmt: skip
        assert "1 line of source>" in repr(DebugInfo.of([(0, Y, None)], {"m.py": TEXT}))

    def test_lines_of_overlapping_spans(self) -> None:
        spans = [Span("m.py", 4, 1, 5, 2), Span("m.py", 1, 1, 2, 1), Span("m.py", 4, 1, 4, 3)]
        debug = DebugInfo.of(((pc, span, None) for pc, span in enumerate(spans)), {"m.py": TEXT})
        assert list(debug.sources["m.py"]) == [1, 2, 4, 5]

    def test_lines_as_other_programs_end_them(self) -> None:
        debug = DebugInfo.of([(0, Span("m", 1, 1, 9, 1), None)], {"m": "a\r\nb\rc\nd\x0ce\u2028f"})
        assert debug.sources == {"m": {1: "a", 2: "b", 3: "c", 4: "d\x0ce\u2028f"}}

    def test_generated_lines_are_not_kept(self) -> None:
        source = "x" * MAX_LINE + "\n" + "y" * (MAX_LINE + 1)
        debug = DebugInfo.of([(0, Span("m", 1, 1, 2, 1), None)], {"m": source})
        assert list(debug.sources["m"]) == [1]

    def test_lines_given_one_by_one_are_kept(self) -> None:
        debug = DebugInfo.of([(0, Y, None)], {"m.py": {9: "nine", 2: "two"}, "other": {1: "one"}})
        assert debug.sources == {"m.py": {2: "two", 9: "nine"}}

    def test_pcs_must_not_decrease(self) -> None:
        with pytest.raises(ValueError, match="expected pcs that do not decrease, got 1 after 2"):
            DebugInfo.of([(2, Y, None), (1, Z, None)])

    @pytest.mark.parametrize(
        ("span", "message"),
        [
            (Span("m", 0, 1), "lines and columns from 1 on"),
            (Span("m", 1, 0), "lines and columns from 1 on"),
            (Span("m", 2, 1, 1, 1), "to end where it begins or after that"),
            (Span("m", 2, 3, 2, 2), "to end where it begins or after that"),
            (Span("m", 1 << 31, 1), "expected numbers from -1 to 2147483647"),
            (Span("m", 1 << 64, 1), "expected numbers up to 2147483647"),
            (Span("", 1, 1), "files: expected distinct names, none of them empty"),
        ],
    )
    def test_invalid_spans(self, span: Span, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            DebugInfo.of([(0, span, None)])

    RUNS = ((0, 0, 0), (2, 1, 1))
    SPANS = ((0, 1, 1, 1, 2), (0, 2, 1, 2, 2))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"runs": ((0, 0, 0), (0, 1, 1))}, "pcs that increase from 0 on"),
            ({"runs": ((-1, 0, 0), (2, 1, 1))}, "pcs that increase from 0 on"),
            ({"runs": ((0, -1, -1), (1, 0, 0), (2, 1, 1))}, "a first one of something"),
            ({"runs": ((0, 0, 0), (1, 0, 0), (2, 1, 1))}, "each to differ from the one before"),
            ({"runs": ((0, 0, 0), (2, 2, 1))}, "runs: span: expected indices below 2, each used"),
            ({"runs": ((0, 1, 0), (2, 0, 1))}, "runs: span: .* in order of their first use"),
            ({"runs": ((0, 0, 0), (2, -1, 1))}, "runs: span: expected indices below 2, each used"),
            ({"runs": ((0, 0, 1), (2, 1, 0))}, "runs: variable: .* in order of their first use"),
            ({"runs": ((0, 0, 0), (2, 1, -2))}, "runs: expected numbers from -1"),
            ({"runs": ((0, 0), (2, 1))}, r"runs: expected integers \[n, 3\], got int64\(2, 2\)"),
            ({"runs": ((0.0, 0, 0), (2, 1, 1))}, "runs: expected integers"),
            ({"spans": ((0, 1, 1, 1, 2), (0, 1, 1, 1, 2))}, "spans: expected distinct ones"),
            ({"spans": ((0, 1, 1, 1, 2), (2, 2, 1, 2, 2))}, "spans: file: expected indices below"),
            ({"spans": ((0, 1, 1, 1, 2), (0, 2, 1, 1, 2))}, "to end where it begins or after that"),
            ({"files": ("m", "n")}, "spans: file: expected indices below 2, each used"),
            ({"files": ()}, "spans: file: expected indices below 0"),
            ({"variables": ("x", "x")}, "variables: expected distinct names"),
            ({"variables": ("x", "")}, "variables: expected distinct names, none of them empty"),
            ({"line_numbers": ((1, 1),)}, "line_numbers: expected files below 1"),
            ({"line_numbers": ((0, 0),)}, "line_numbers: .* lines from 1 on"),
            ({"line_numbers": ((0, 2), (0, 2))}, "line_numbers: expected increasing ones"),
            ({"line_texts": ("a",)}, "line_texts: expected 0, one per line number, got 1"),
        ],
    )  # fmt: skip
    def test_invalid_columns(self, changes: dict[str, object], message: str) -> None:
        columns = {"runs": self.RUNS, "spans": self.SPANS, "files": ("m",),
                   "variables": ("x", "y"), **changes}  # fmt: skip
        with pytest.raises(ValueError, match=message):
            DebugInfo(**columns)  # type: ignore[arg-type]

    def test_columns_as_described(self) -> None:
        debug = DebugInfo(np.array(self.RUNS), self.SPANS, ("m",), ("x", "y"))
        assert list(debug) == [
            Location(0, Span("m", 1, 1), "x"),
            Location(2, Span("m", 2, 1), "y"),
        ]


class TestUnderlined:
    @pytest.mark.parametrize(
        ("line", "column", "end", "shown", "carets"),
        [
            ("y = f(x)", 1, 9, "y = f(x)", "^^^^^^^^"),
            ("y = f(x)", 5, 9, "y = f(x)", "    ^^^^"),
            ("\ty = 1", 2, 3, " y = 1", " ^"),
            ("y\x1b[31m", 2, 3, "y?[31m", " ^"),
            ("y = 漢字 + z", 5, 7, "y = 漢字 + z", "    ^^^^"),
            ("y = 漢字 + z", 10, 11, "y = 漢字 + z", "           ^"),
            ("e\u0301 = z", 6, 7, "e\u0301 = z", "    ^"),
            ("y", 1, 1, "y", "^"),
            ("y", 9, 12, "y", " ^"),
            ("", 1, 9, "", "^"),
            ("y = 1   ", 1, 99, "y = 1", "^^^^^"),
        ],
    )
    def test_carets(self, line: str, column: int, end: int, shown: str, carets: str) -> None:
        assert underlined(line, column, end) == (shown, carets)

    def test_a_part_of_a_long_line(self) -> None:
        line = "".join(f"{i:<5}" for i in range(200))
        for i in range(200):
            shown, carets = underlined(line, 5 * i + 1, 5 * i + 1 + len(str(i)))
            assert len(shown) <= 100
            assert shown[carets.index("^") : len(carets)] == str(i)
