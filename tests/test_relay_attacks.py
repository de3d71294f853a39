"""Relay programs, listings and files of unknown origin that would take too long or too much memory.

Sizes are such that work which grows with their square, or faster, would not end.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import io
import itertools
import json
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import Limits, cli
from relaxvm.cli.exits import Exit
from relaxvm.errors import (
    FormatError,
    LimitError,
    NestingError,
    ParseError,
    RelaxVMError,
    TypeSizeError,
    VerifyError,
    did_you_mean,
)
from relaxvm.executable.formats.stored_tensors import tensor_bytes
from relaxvm.frontend.relay import from_text, read_params, save_params
from relaxvm.relay_isa import assemble, translate, verify

from . import children
from .test_relay_operators import CASES

MANY = 30_000
UNTRUSTED = Limits.untrusted().but(wall_time=900.0, live_bytes=256 << 20, alloc_bytes=64 << 20)
SMALL = Limits(live_bytes=16 << 20, alloc_bytes=4 << 20)


def joined(make: Callable[[int], str], count: int = MANY, between: str = "") -> str:
    return between.join(map(make, range(count)))


def metadata(document: Any) -> str:
    return "meta[relay.Constant][0]\n#[metadata]\n" + (
        document if isinstance(document, str) else json.dumps(document)
    )


def lists_of_lists(count: int) -> str:
    """Many keys of metadata with the same long list."""
    nodes = [
        {"keys": [str(i) for i in range(count)], "data": [1] * count},
        {"data": [2] * count},
        {"type_key": "runtime.String", "attrs": {}},
    ]
    return metadata({"root": 0, "nodes": nodes})


# Time

LONG: dict[str, str] = {
    "type parameters": f"def @main[{joined('A{}'.format, between=',')}](%x: int32) {{ %x }}",
    "parameters without names": f"fn ({', '.join(['%_'] * MANY)}) {{ 1 }}",
    "names that become equal": "fn (" + joined(
        lambda i: "%a" + "".join(("_a", "/a")[i >> k & 1] for k in range(15)), between=","
    ) + ") { 1 }",
    "parameters without types": f"def @main({joined('%x{}'.format, between=',')}) {{ 1 }}",
    "local functions in a function with type parameters":
        f"def @main[{joined('A{}'.format, 5000, ',')}](%x: int32) {{"
        + joined("let %y{} = fn (%z) {{ %z }};".format, 5000) + "%x }",
    "constructors": f"type T {{ {joined('C{}'.format, 5000, ',')} }} "
        "def @main(%x: T) { match (%x) { C0 => 1, _ => 2 } }",
    "a tuple with many fields": f"let %t = ({', '.join(['1'] * MANY)}); %t.{MANY - 1}",
    "bindings of one name": "let %x = 1;" * MANY + "%x",
    "imports": 'import "prelude.rly"\n' * MANY + "def @main() { 1 }",
    "functions that use each other":
        joined(lambda i: f"def @f{i}(%x) {{ @f{(i + 1) % 2000}(%x) }}\n", 2000),
    "operations that wait": "let %f = fn (%x) { let %y0 = add(%x, %x);"
        + joined(lambda i: f"let %y{i + 1} = add(%y{i}, %y{i});", 2000) + "%y2000 }; %f(1f)",
}  # fmt: skip
"""What a text has many of -> the text."""


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_long_texts_are_read(text: str) -> None:
    assert isinstance(from_text(text, limits=UNTRUSTED), relaxvm.IRModule)


REFUSED: dict[str, tuple[str, type[Exception], str]] = {
    "many known names": (
        joined("let %abcdefghijklmnopqrstuvwxyz{} = 1;".format) + "%abcdefghijklmnopqrstuvwxyq",
        ParseError, "unknown variable %abcdefghijklmnopqrstuvwxyq; did you mean",
    ),
    "long names": (f"let %{'ab' * 200_000} = 1; %{'ba' * 200_000}", ParseError, "unknown variable"),
    "types that double": (
        "def @p0(%x) { (%x, %x) }"
        + joined(lambda i: f"def @p{i + 1}(%x) {{ @p{i}(@p{i}(%x)) }}", 20)
        + "def @main(%x: int32) { @p20(%x) }",
        NestingError, "its types are nested too deeply",
    ),
    "an operand that doubles": (
        "let %a0 = 1f;" + joined(lambda i: f"let %a{i + 1} = (%a{i}, %a{i});", 60)
        + "concatenate(%a60)", ParseError, "types of more than 65535 parts",
    ),
    "parts of a tensor": (
        "def @main(%x: Tensor[(1000000000,), float32]) "
        "{ split(%x, indices_or_sections=1000000000) }",
        ParseError, "indices_or_sections: expected at most 65535 parts, got 1000000000",
    ),
    "new axes": (
        "def @main(%x: Tensor[(2,), float32]) { expand_dims(%x, axis=0, num_newaxis=1000000000) }",
        ParseError, "num_newaxis: expected 0 to 65535, got 1000000000",
    ),
    "lists of metadata": (lists_of_lists(20_000), ParseError, "has no objects of this kind"),
    "an infinite number": (metadata('{"root": Infinity, "nodes": []}'), ParseError,
                           "expected a graph of nodes as TVM writes it"),
    "digits in metadata": (metadata(f'{{"root": {"9" * 100_000}, "nodes": []}}'), ParseError,
                           "metadata: expected"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_texts_that_are_refused(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        from_text(text)
    assert message in str(caught.value)


def test_dimensions_whose_product_is_too_large(tmp_path: Path, capsys: Any) -> None:
    dims = ", ".join(["9223372036854775807"] * 3)
    text = f"def @main(%x: Tensor[({dims}), float32]) {{ add(%x, %x) }}"
    with pytest.raises(OverflowError, match=r"tensors of less than 2\*\*63 bytes"):
        relaxvm.build(from_text(text))
    path = tmp_path / "main.relay"
    path.write_text(text)
    assert cli.main(["compile", str(path), "-o", str(tmp_path / "main.rvm")]) != Exit.OK
    assert "tensors of less than 2**63 bytes" in capsys.readouterr().err


def test_hints_for_names_take_bounded_time() -> None:
    assert did_you_mean("adb", ["add", "sub"]) == "; did you mean 'add'?"
    assert did_you_mean("x" * 100_000, ["y" * 100_000]) == ""
    assert "did you mean 'name_17'" in did_you_mean("name-17", map("name_{}".format, range(5000)))
    assert did_you_mean("other", map("name_{}".format, range(1_000_000))) == ""


def test_the_types_of_long_tuples_are_told_apart() -> None:
    """Operations on tuples whose types begin alike have types of their own."""
    params = [f"%x{i}: Tensor[(2, 3), float32]" for i in range(12)]
    fields = ", ".join(f"%x{i}" for i in range(12))
    module = from_text(f"""
        def @main({', '.join(params)}, %y: Tensor[(5, 3), float32], %z: Tensor[(7, 3), float32]) {{
          (concatenate(({fields}, %y), axis=0), concatenate(({fields}, %z), axis=0))
        }}""")
    arrays = [np.ones((rows, 3), np.float32) for rows in [2] * 12 + [5, 7]]
    found = relaxvm.VirtualMachine(relaxvm.build(module))["main"](*arrays)
    assert [x.shape for x in found] == [(29, 3), (31, 3)]


# Attributes

VALUES = ("1000000000", str(2**62), "9" * 20, "-1", "None", "1e30f", "(" + "1," * 3000 + "1)")
_VALUE = re.compile(
    r"""(?<![%\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?\w*|"[^"]*"|True|False|\[[^\[\]]*\]"""
)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_operators_with_other_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number, text or list in the calls of the tests of operators becomes another one."""
    monkeypatch.setenv("CC", "no-compiler")
    limits = UNTRUSTED.but(fuel=100_000)
    refused = ran = 0
    for text, arrays, _ in CASES:
        free = "".join(
            f"free_var %x{i}: Tensor[({''.join(f'{d},' for d in a.shape)}), {a.dtype}];"
            for i, a in enumerate(arrays)
        )
        for found, value in itertools.product(_VALUE.finditer(text), VALUES):
            changed = f"{free}{text[: found.start()]}{value}{text[found.end() :]}"
            try:
                executable = relaxvm.build(from_text(changed, limits=limits), limits=limits)
            except (RelaxVMError, OverflowError):
                refused += 1
                continue
            with contextlib.suppress(RelaxVMError, TypeError, ValueError, OverflowError):
                machine = relaxvm.VirtualMachine(executable, limits=limits, functions={})
                machine["main"](*arrays)
                ran += 1
    assert refused > 500
    assert ran > 50


# Types

NESTED: dict[str, tuple[str, str]] = {
    "results": ("fn () -> ", ""),
    "parameters": ("fn (", ") -> int32"),
    "tuples": ("(", ",)"),
    "references": ("ref(", ")"),
    "lists": ("L[", "]"),
    "lists of functions": ("L[fn () -> ", "]"),
    "references and lists": ("ref(L[(", ",)])"),
}
BODIES = (
    "%x", "(%x, %x)", "C(%x, N)", "@id(%x)", "if (True) { %x } else { %x }",
    "match (C(%x, N)) { C(%y, N) => %y, _ => %x }", "let %f = fn (%z) { %z }; %f(%x)",
    "let %f = fn () { %x }; %f()", "let %r = ref(%x); ref_write(%r, %x); ref_read(%r)",
)  # fmt: skip


def of_type(ty: str, body: str) -> str:
    return ("type L[A] { N, C(A, L[A]) } def @id[A](%a: A) -> A { %a } "
            f"def @main(%x: {ty}) {{ {body} }}")  # fmt: skip


@pytest.mark.parametrize("kind", NESTED)
def test_nested_types_take_linear_time(kind: str) -> None:
    """What looks at each level twice would take 2^60 steps."""
    before, after = NESTED[kind]
    for body in BODIES:
        module = from_text(of_type(before * 60 + "int32" + after * 60, body))
        assert not relaxvm.analysis.violations(module)
        again = relaxvm.ir.load_json(relaxvm.ir.save_json(module))
        assert relaxvm.ir.structural_equal(module, again)
        assert relaxvm.ir.structural_hash(module) == relaxvm.ir.structural_hash(again)
        assert isinstance(relaxvm.build(module), relaxvm.VMExecutable)


@pytest.mark.parametrize(("before", "after"), [("ref(fn () -> ", ")"), ("ref(fn (", ") -> int32)")])
def test_references_to_functions_of_references_are_bounded(before: str, after: str) -> None:
    body = "let %r = ref(%x); ref_write(%r, %x); ref_read(%r)"
    few = from_text(of_type(before * 5 + "int32" + after * 5, body))
    assert isinstance(relaxvm.build(few), relaxvm.VMExecutable)
    with pytest.raises(TypeSizeError, match="expected at most 10 functions in each other"):
        from_text(of_type(before * 60 + "int32" + after * 60, body))


# Limits

PIECES = {
    "uses of a function with type parameters":
        f"def @f[{joined('A{}'.format, 5000, ',')}](%x: A0) -> A0 {{ %x }}"
        "def @main(%x: int32) {" + joined("let %y{} = @f(%x);".format, 10_000) + "%x }",
    "tokens": "1;" * 300_000 + "1",
    "bindings": "let %x0 = 1;" + joined(lambda i: f"let %x{i + 1} = add(%x{i}, 1);") + "%x1",
    "metadata": metadata("[" + ",".join(["{}"] * 300_000) + "]"),
    "types": "def @main(%x: (" + ", ".join(["Tensor[(2, 3), int8]"] * 100_000) + ")) { %x }",
}  # fmt: skip


@pytest.mark.parametrize("text", PIECES.values(), ids=PIECES)
def test_reading_ends_with_its_limits(text: str) -> None:
    for limits, name in ((Limits(wall_time=0.0), "wall_time"), (SMALL, "live_bytes")):
        with pytest.raises(LimitError) as caught:
            from_text(text, limits=limits)
        assert caught.value.limit == name
        assert str(caught.value).startswith("from_text: ")
    assert isinstance(from_text("1", limits=SMALL), relaxvm.IRModule)


def test_a_comment_ends_with_its_limits() -> None:
    with pytest.raises(LimitError, match="wall_time"):
        from_text("/*" * 300_000 + "*/" * 300_000 + "1", limits=Limits(wall_time=0.0))


def test_constants_of_metadata_count() -> None:
    tensor = tensor_bytes(np.zeros(8 << 20, np.uint8))
    nodes = [{"keys": ["relay.Constant"], "data": [1]}, {"data": [2]},
             {"type_key": "relay.Constant", "attrs": {"data": "0"}}]  # fmt: skip
    text = metadata({"root": 0, "nodes": nodes,
                     "b64ndarrays": [base64.b64encode(tensor).decode()]})  # fmt: skip
    assert isinstance(from_text(text), relaxvm.IRModule)
    with pytest.raises(LimitError, match="alloc_bytes"):
        from_text(text, limits=Limits(alloc_bytes=4 << 20))


# Files of parameters


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


USES_W = "def @main(%w: Tensor[(4,), float32]) { %w }"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected arrays by name"),
        (b"PK\x03\x04" + bytes(40), "expected arrays by name"),
        (npz(w=np.ones(4, np.float32))[:-30], "expected arrays by name"),
        (npz(w=np.array([object()], object)), "expected arrays by name"),
    ],
)
def test_wrong_archives_of_parameters(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "w.npz"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=message):
        from_text(USES_W, path)


def test_one_array_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    with path.open("wb") as file:
        np.save(file, np.ones(4, np.float32))
    with pytest.raises(FormatError, match="one array, without a name"):
        from_text(USES_W, path)


def test_archives_that_expand_count(tmp_path: Path) -> None:
    """A small file of zeros."""
    path = tmp_path / "w.npz"
    path.write_bytes(npz(w=np.zeros(64 << 20, np.uint8)))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(LimitError, match="file_bytes"):
        from_text(USES_W, path, limits=Limits(file_bytes=1 << 20))
    with pytest.raises(LimitError, match="alloc_bytes"):
        from_text(USES_W, path, limits=SMALL)


def test_archives_with_a_false_size(tmp_path: Path) -> None:
    """The header of an array names more elements than there are."""
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }"
    head += b" " * (117 - len(head)) + b"\n"
    path = tmp_path / "w.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("w.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
    with pytest.raises(LimitError, match="alloc_bytes"):
        from_text(USES_W, path, limits=UNTRUSTED)


def test_limits_of_files_of_parameters(tmp_path: Path) -> None:
    data = save_params({f"p{i}": np.ones(2, np.float32) for i in range(20)})
    assert len(read_params(data)) == 20
    with pytest.raises(LimitError, match="constants"):
        read_params(data, limits=Limits(constants=10))
    path = tmp_path / "w.params"
    path.write_bytes(save_params({"w": np.ones(4 << 20, np.float32)}))
    with pytest.raises(LimitError, match="alloc_bytes"):
        from_text(USES_W, path, limits=SMALL)


# The register instruction set

DIAMOND = (
    " If $0, 1, 3\n Mov ${a}, $0\n Goto 2\n Mov ${b}, $0\n Phi ${c}, ${a}, ${b}\n"
)
LISTINGS = {
    "calls by name": ".function main(x)\n"
        + joined(lambda i: f" Invoke ${i + 1}, @main, 1, $0\n") + " Ret $1",
    "functions": joined(".function f{}(x)\n Ret $0\n".format, 9000),
    "packed functions": joined(".packed p{}\n".format, 9000) + ".function main(x)\n"
        + " InvokePacked p8999, 1, 0, $0\n" * MANY + " Ret $0",
    "registers and branches": ".dialect final\n.function main(x)\n"
        + joined(lambda i: f" If $0, $0, 1, 1\n Move ${i + 1}, $0\n", 10_000) + " Ret $0",
    "loops": ".dialect final\n.function main(x)\n"
        + joined(lambda i: f" Move ${i + 1}, $0\n If $0, $0, 1, -{2 * i + 1}\n", 500) + " Ret $0",
    "phis": ".function main(x)\n" + joined(
        lambda i: DIAMOND.format(a=3 * i + 1, b=3 * i + 2, c=3 * i + 3), 1000) + " Ret $0",
}  # fmt: skip


@pytest.mark.parametrize("text", LISTINGS.values(), ids=LISTINGS)
def test_long_listings_are_translated(text: str) -> None:
    program = assemble(text, limits=UNTRUSTED)
    assert len(translate(program, limits=UNTRUSTED)) > 1000


def test_paths_that_are_too_many_are_refused() -> None:
    """Each of 40,000 jumps has a state of 60,000 registers: 300 MB, and as much again."""
    lines = joined(lambda i: f" If $0, $0, 1, 1\n Move ${i + 1}, $0\n", 40_000)
    program = assemble(f".dialect final\n.function main(x) registers=120000\n{lines} Ret $0")
    (problem,) = verify(program)
    assert "too many to be checked: 40001 targets of jumps, 120000 registers" in str(problem)
    with pytest.raises(VerifyError, match="too many to be checked"):
        translate(program)
    smaller = assemble(f".dialect final\n.function main(x) registers=60000\n{lines} Ret $0")
    with pytest.raises(LimitError, match="its paths: "):
        translate(smaller, limits=SMALL)


@pytest.mark.parametrize(
    ("constant", "message"),
    [
        ("float32 (99999999999999999999) 1", "expected dimensions below 10^18"),
        ("float32 (1 2) 1 2", "expected dimensions below 10^18 with commas between them"),
        ("float32 (,) 1", "expected dimensions below 10^18 with commas between them, got ''"),
        ("float32 (1000000, 1000000) 1", "expected 1000000000000 elements"),
        ("float32 (999999999999999999, 999999999999999999, 0)", "expected elements of float32"),
        (f"int32 () {'9' * 10_000}", "expected elements of int32: got '9999"),
        ("uint8 () 1_0", "expected elements of uint8: got '1_0'"),
        ("float32 () 1_0", "expected elements of float32: got '1_0'"),
        ("bool () 2", "expected elements of bool: got '2'"),
        ("bool () -1", "expected elements of bool: got '-1'"),
        ("float16 () 1e6", "expected elements of float16: got '1e6'"),
        ("object () 1", "expected bool, an integer or a float, got 'object'"),
        ("str () 1", "expected bool, an integer or a float, got 'str'"),
    ],
)
def test_wrong_constants_of_listings(constant: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        assemble(f".constant {constant}\n.function main(x)\n Ret $0")
    assert message in str(caught.value)


def test_listings_have_no_tensors_of_objects() -> None:
    """The elements of a new tensor are undefined; those of objects would be addresses."""
    with pytest.raises(ParseError, match="expected dtype, a data type, such as float32"):
        assemble(".function main(x)\n AllocTensor $1, 1, 4, object\n Ret $1")


def test_ranks_of_constants_are_bounded() -> None:
    text = f".constant float32 ({', '.join(['1'] * 65)}) 1\n.function main(x)\n Ret $0"
    with pytest.raises(LimitError, match="rank"):
        assemble(text)


def test_listings_end_with_their_limits() -> None:
    text = LISTINGS["calls by name"]
    gc.collect()  # the memory of objects counts in the whole process, so none may become free
    for limits, name in ((Limits(wall_time=0.0), "wall_time"), (SMALL, "live_bytes")):
        with pytest.raises(LimitError) as caught:
            assemble(text, limits=limits)
        assert caught.value.limit == name
    program = assemble(text)
    for limits, name in ((Limits(wall_time=0.0), "wall_time"),
                         (Limits(live_bytes=1 << 20), "live_bytes")):  # fmt: skip
        with pytest.raises(LimitError) as caught:
            translate(program, limits=limits)
        assert caught.value.limit == name


# Patterns

@pytest.mark.skipif(sys.platform == "win32", reason="measures the memory of a process")
@pytest.mark.parametrize(
    ("read", "text"),
    [
        ("relaxvm.frontend.relay.from_text", "'add(1, 1, a=\"' + 'x' * 2_000_000 + '\")'"),
        ("relaxvm.frontend.relay.from_text", "'%x' + '/x' * 1_000_000"),
        ("relaxvm.parse_text", "'relaxvm text 1\\nc[0] = string \"' + 'x' * 2_000_000 + '\"'"),
    ],
)
def test_a_long_token_takes_little_memory(read: str, text: str) -> None:
    """A pattern that keeps a way back for each character of a token takes 400 bytes for each."""
    code = f"""if True:
        import resource, sys
        import relaxvm.frontend.relay
        from relaxvm.errors import RelaxVMError

        def peak():
            size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return size if sys.platform == "darwin" else size * 1024

        text = {text}
        before = peak()
        try:
            {read}(text)
        except RelaxVMError:
            pass
        print(peak() - before)
    """
    done = children.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100 << 20
