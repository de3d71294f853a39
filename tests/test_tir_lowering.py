"""PrimFuncs as C and as Python, compared with a plain evaluator and numpy."""

from __future__ import annotations

import math
import pickle
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxvm import ir, tir
from relaxvm.native.c_support import HEAD, pieces_of
from relaxvm.native.kernel_library import KernelLibrary
from relaxvm.native.toolchain import compiler
from relaxvm.script import tir as T
from relaxvm.tir import PrimFunc
from relaxvm.tir.build import build_prim_funcs, compile_prim_func
from relaxvm.versions import get_include

from . import children, tir_kernels
from .tir_evaluator import run_prim_func

FUNCS: dict[str, PrimFunc] = {
    name: value for name, value in vars(tir_kernels).items() if isinstance(value, PrimFunc)
}

BACKENDS = [
    pytest.param("c", marks=pytest.mark.skipif(compiler() is None, reason="needs a C compiler")),
    "python",
]


@pytest.fixture(scope="module", params=BACKENDS)
def library(request: pytest.FixtureRequest) -> KernelLibrary:
    return build_prim_funcs(FUNCS, prefer=request.param)


def _random(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    rng = np.random.default_rng([seed, *shape])
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if np.dtype(dtype).kind in "iu":
        return rng.integers(-100 if dtype[0] == "i" else 0, 100, shape, dtype)
    return (rng.standard_normal(shape) * 4).astype(dtype)


def _zeros(*shape: int, dtype: str = "float32") -> Any:
    return np.zeros(shape, dtype)


SPECIAL = np.array(
    [
        0.0,
        -0.0,
        1.5,
        -2.5,
        0.5,
        -0.5,
        2.5,
        np.inf,
        -np.inf,
        np.nan,
        1e30,
        -1e30,
        1e-40,
        3.0,
        -3.0,
        7.25,
    ],
    "float32",
)
FLOATS = np.concatenate([SPECIAL, _random(48)])
OTHERS = np.concatenate([SPECIAL[::-1], _random(48, seed=1)])
INT32 = np.array([2**31 - 1, -(2**31), -(2**31), 7, -7, 100, 0], "int32")
DIVISORS = np.array([2, -1, 3, -3, 3, 7, -5], "int32")
INT64 = np.array([1, -1, 2**62, -(2**63), 5], "int64")
UINT64 = np.array([2**64 - 1, 2**63, 5, 0, 17], "uint64")

EXACT: dict[str, tuple[Any, ...]] = {
    "matmul": (_random(5, 7), _random(7, 6), _zeros(5, 6)),
    "transposed_matmul": (_random(5, 7), _random(6, 7), _zeros(5, 6)),
    "conv2d": (_random(1, 3, 9, 8), _random(4, 3, 3, 3), _zeros(1, 4, 4, 8)),
    "concat": (_random(3, dtype="int32"), _random(5, dtype="int32"), _zeros(8, dtype="int32")),
    "gather": (_random(4, 3), np.array([3, 0, 0, 2, 1]), _zeros(5, 3)),
    "scatter": (np.array([1, 1, 0, 3, 1], "int32"), _random(4, dtype="int32")),
    "reversed_rows": (_random(3, 4, dtype="uint8"), _zeros(3, 4, dtype="uint8")),
    "running_sum": (_random(9, dtype="float64"), _zeros(9, dtype="float64")),
    "total": (_random(33), _zeros()),
    "integer_arithmetic": (INT32, DIVISORS, _zeros(14, 7, dtype="int32")),
    "small_integers": (
        np.array([127, -128, 5, -5, 100, -1], "int8"),
        np.array([127, -128, -7, 7, 100, 1], "int8"),
        _zeros(6, 6, dtype="int8"),
    ),
    "unsigned": (UINT64, np.array([2, 3, 7, 1, 16], "uint64"), _zeros(6, 5, dtype="uint64")),
    "half_precision": (
        _random(64, dtype="float16"),
        _random(64, dtype="float16", seed=1),
        _zeros(5, 64, dtype="float16"),
    ),
    "control": (_random(12), 6.0, 4, _zeros(12)),
    "loops": (_zeros(40, dtype="int32"), 5, 9),
    "matched": (_random(4, 6, 5),),
    "predicated": (_zeros(10, dtype="int32"),),
    "blocked_sum": (_random(4, 8, dtype="int64"), _zeros(4, dtype="int64")),
    "big_local": (_random(64, 64, dtype="float64"), _zeros(64, 64, dtype="float64")),
    "answer": (5,),
}
"""Arguments; results are the same bit for bit everywhere."""


def _copied(args: tuple[Any, ...]) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in args]


def _same(a: Any, b: Any) -> None:
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
        if a.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(a), np.signbit(b), "signs of zeros")
    else:
        assert a == b


@pytest.mark.parametrize("name", EXACT)
def test_results_are_those_of_the_evaluator(library: KernelLibrary, name: str) -> None:
    expected, got = _copied(EXACT[name]), _copied(EXACT[name])
    result = run_prim_func(FUNCS[name], expected)
    with np.errstate(all="ignore"):
        assert library[name](*got) == result
    for a, b in zip(got, expected, strict=True):
        _same(a, b)


def test_every_kernel_is_run_by_some_test() -> None:
    others = {"logic", "float_arithmetic", "softmax", "casts", "functions", "shifts", "bits"}
    others.add("checked")
    assert set(EXACT) | others == set(FUNCS)


def test_matmul_is_numpys(library: KernelLibrary) -> None:
    a, b, c = _random(33, 17), _random(17, 29), _zeros(33, 29)
    library["matmul"](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_softmax(library: KernelLibrary) -> None:
    a, b = _random(6, 11), _zeros(6, 11)
    library["softmax"](a, b)
    e = np.exp(a - a.max(1, keepdims=True))
    np.testing.assert_allclose(b, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_functions_agree_with_double_precision(library: KernelLibrary) -> None:
    a = np.linspace(0.05, 3.0, 64, dtype="float32")
    c = _zeros(18, 64)
    library["functions"](a, c)
    x = a.astype("float64")
    expected = [
        np.exp(x), np.log(x), np.tanh(x), 1 / (1 + np.exp(-x)), [math.erf(v) for v in x], np.sin(x),
        np.cos(x), np.tan(x), x**1.5, np.log2(x), np.log10(x), np.log1p(x), np.exp2(x),
        np.arctan(x), np.sinh(x), np.cosh(x), np.arctan2(x, 2), np.arcsinh(x),
    ]  # fmt: skip
    for row, exact in zip(c, expected, strict=True):
        np.testing.assert_array_max_ulp(row, np.asarray(exact, "float32"), 4)


def test_arithmetic_of_floats_is_numpys(library: KernelLibrary) -> None:
    a, b, c = FLOATS, OTHERS, _zeros(16, 64)
    library["float_arithmetic"](a, b, c)
    with np.errstate(all="ignore"):
        expected = [
            a + b * a, a - b, a / b, np.where(a > b, a, b), np.where(a < b, a, b), np.floor(a),
            np.ceil(a), np.trunc(a), np.rint(a), np.abs(a), np.sqrt(np.abs(a)),
            np.float32(1) / np.sqrt(np.abs(a)), np.fmod(a, b), np.copysign(a, b),
            np.where(np.isnan(a), np.float32(1), np.floor(a / b)), a - np.floor(a / b) * b,
        ]  # fmt: skip
    for row, exact in zip(c, expected, strict=True):
        assert exact.dtype == "float32"
        np.testing.assert_array_equal(row, exact)


def test_casts_stay_in_range(library: KernelLibrary) -> None:
    values = np.array([0.0, 1.9, -1.9, 1e10, -1e10, np.inf, -np.inf, np.nan, 65519.0], "float32")
    dtypes = ("int8", "int32", "int64", "uint16", "float16", "float64", "bool", "float32")
    outs = [_zeros(9, dtype=t) for t in dtypes]
    library["casts"](values, *outs)
    to8, to32, to64, unsigned, half, double, truth, back = outs
    assert to8.tolist() == [0, 1, -1, 127, -128, 127, -128, 0, 127]
    assert to32.tolist() == [0, 1, -1, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 0, 65519]
    assert to64.tolist() == [0, 1, -1, 10**10, -(10**10), 2**63 - 1, -(2**63), 0, 65519]
    assert unsigned.tolist() == [0, 1, 0, 65535, 0, 65535, 0, 0, 65519]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(half, values.astype("float16"))
    np.testing.assert_array_equal(double, values.astype("float64"))
    assert truth.tolist() == [False, *[True] * 8]
    expected = half.astype("float32") + truth.astype("float32") + np.arange(9, dtype="float32")
    np.testing.assert_array_equal(back, expected)


def test_every_half_goes_through_float_and_back(library: KernelLibrary) -> None:
    halves = np.arange(2**16, dtype="uint16").view("float16")
    one = np.ones(64, "float16")
    with np.errstate(all="ignore"):
        for chunk in halves.reshape(-1, 64):
            c = _zeros(5, 64, dtype="float16")
            library["half_precision"](chunk.copy(), one, c)
            np.testing.assert_array_equal(c[2], chunk)
            np.testing.assert_array_equal(c[0], chunk + one)


def test_shifts_beyond_the_width(library: KernelLibrary) -> None:
    a = np.array([5, -5, 5, -5, 1], "int64")
    b = np.array([2, 2, 64, 70, -1], "int64")
    c = _zeros(4, 5, dtype="int64")
    library["shifts"](a, b, c)
    assert c[0].tolist() == [20, -20, 0, 0, 0]
    assert c[1].tolist() == [1, -2, 0, -1, 0]
    assert c[2].tolist() == [2, 63, 2, 63, 1]
    assert c[3].tolist() == [61, 0, 61, 0, 63]


def test_logic_short_circuits(library: KernelLibrary) -> None:
    a, b, c = _random(8, dtype="bool"), _random(8, dtype="bool", seed=2), _zeros(6, 8, dtype="bool")
    library["logic"](a, b, c)
    shifted = np.concatenate([np.zeros(3, bool), a[:5]])
    np.testing.assert_array_equal(c, [a & b, a | b, ~a, a == b, np.where(a, b, True), shifted])


def test_bits(library: KernelLibrary) -> None:
    a, b, c = _random(6), _zeros(6, dtype="int32"), _zeros(6)
    library["bits"](a, b, c)
    np.testing.assert_array_equal(b, a.view("int32") ^ 1)
    np.testing.assert_array_equal(c, (a.view("int32") ^ 1).view("float32") ** 2)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0), (1, 1, 1)])
def test_empty_dimensions(library: KernelLibrary, shape: tuple[int, int, int]) -> None:
    n, k, m = shape
    a, b, c = _random(n, k), _random(k, m), np.full((n, m), 7, "float32")
    library["matmul"](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-6)


# Errors


@pytest.mark.parametrize(
    ("name", "args", "error", "message"),
    [
        ("matmul", (1, 2), TypeError, r"matmul: expected 3 arguments \(A, B, C\), got 2"),
        ("matmul", (_zeros(2, 2), 3, _zeros(2, 2)), TypeError,
         r"matmul: argument 1 \(B\): expected a tensor, got an int"),
        ("matmul", (_zeros(2, 2), _zeros(2, 2, dtype="float64"), _zeros(2, 2)), TypeError,
         r"matmul: argument 1 \(B\): expected data type float32, got float64"),
        ("matmul", (_zeros(2, 2), _zeros(2), _zeros(2, 2)), ValueError,
         r"matmul: argument 1 \(B\): expected 2 dimensions, got 1"),
        ("matmul", (_zeros(2, 2), _zeros(3, 2), _zeros(2, 2)), ValueError,
         r"matmul: argument 1 \(B\): dimension 0: expected k = 2, got 3"),
        ("conv2d", (_zeros(1, 3, 9, 7), _zeros(4, 3, 3, 3), _zeros(1, 4, 4, 8)), ValueError,
         r"conv2d: argument 0 \(X\): dimension 3: expected 8, got 7"),
        ("concat", (_zeros(2, dtype="int32"), _zeros(3, dtype="int32"), _zeros(4, dtype="int32")),
         ValueError, r"concat: argument 2 \(C\): dimension 0: expected 5, got 4"),
        ("checked", (2**31, _zeros(4, dtype="int32")), ValueError,
         r"checked: argument 0 \(n\): 2147483648 does not fit int32"),
        ("checked", (1.5, _zeros(4, dtype="int32")), TypeError,
         r"checked: argument 0 \(n\): expected int32, got a float"),
        ("checked", (0, _zeros(4, dtype="int32")), ValueError, "checked: n has to be positive"),
        ("checked", (4, _zeros(4, dtype="int32")), IndexError,
         "checked: buffer B, dimension 0: index 4 is out of bounds for length 4"),
        ("gather", (_zeros(4, 3), np.array([0, 4]), _zeros(2, 3)), IndexError,
         "gather: buffer A, dimension 0: index 4 is out of bounds for length 4"),
        ("gather", (_zeros(4, 3), np.array([0, -1]), _zeros(2, 3)), IndexError,
         "gather: buffer A, dimension 0: index -1 is out of bounds for length 4"),
        ("scatter", (np.array([9], "int32"), _zeros(2, dtype="int32")), IndexError,
         "scatter: buffer B, dimension 0: index 9 is out of bounds for length 2"),
        ("loops", (_zeros(40, dtype="int32"), 38, 42), IndexError,
         "loops: buffer A, dimension 0: index 40 is out of bounds for length 40"),
        ("integer_arithmetic", (INT32, DIVISORS * 0, _zeros(14, 7, dtype="int32")),
         ZeroDivisionError, "integer_arithmetic: integer division by zero"),
    ],
)  # fmt: skip
def test_mistakes(
    library: KernelLibrary, name: str, args: tuple[Any, ...], error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        library[name](*_copied(args))


def test_arrays_that_are_only_to_be_read(library: KernelLibrary) -> None:
    c = _zeros(2, 2)
    c.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        library["matmul"](_zeros(2, 2), _zeros(2, 2), c)


def test_arrays_of_any_strides(library: KernelLibrary) -> None:
    a, b, c = _random(7, 5).T, _random(14, 6)[::2], np.zeros((6, 5), "float32").T
    library["matmul"](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)


def test_an_input_that_overlaps_the_output_is_read_before_writing(library: KernelLibrary) -> None:
    a = _random(4, 4)
    expected = _zeros(4, 4)
    library["matmul"](a, a, expected)
    library["matmul"](a, a, a)
    _same(a, expected)


def test_outputs_that_overlap_are_refused(library: KernelLibrary) -> None:
    values = _random(9)
    outs = [_zeros(9, dtype=t) for t in
            ("int8", "int32", "int64", "uint16", "float16", "float64", "bool",
             "float32")]  # fmt: skip
    outs[1] = outs[7].view("int32")
    with pytest.raises(ValueError, match=r"overlaps argument 8 \(back\), and both are written"):
        library["casts"](values, *outs)


# Building


def test_without_a_compiler_kernels_run_as_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.warns(UserWarning, match="no C compiler: CC is 'no-such-compiler', .*; total "
                      "will run as Python"):
        function = compile_prim_func(FUNCS["total"])
    s = _zeros()
    function(np.ones(5, "float32"), s)
    assert s == 5


def test_a_library_is_restored_from_its_state(library: KernelLibrary) -> None:
    import json

    again = KernelLibrary(json.loads(json.dumps(library.state())))
    assert list(again) == list(library)
    s = _zeros()
    again["total"](np.ones(5, "float32"), s)
    assert s == 5


needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs a C compiler")


@needs_compiler
def test_every_function_is_a_piece_of_its_text(tmp_path: Path) -> None:
    for source in build_prim_funcs(FUNCS).state()["sources"]:
        pieces = pieces_of(source["text"])
        assert "".join([HEAD, "\n", *pieces]) == source["text"]
        for name, piece in zip(source["names"], pieces, strict=True):
            assert piece.startswith(f"/* ---- {name} ---- */\n")
            (tmp_path / f"{name}.c").write_text(HEAD + piece, "utf-8")
    # No function needs another one.
    command = [*shlex.split(compiler() or ""), "-fsyntax-only", "-DSUPPORT=0", "-Werror",
               f"-I{get_include()}", *map(str, tmp_path.iterdir())]  # fmt: skip
    children.run(command, check=True)


@needs_compiler
def test_a_change_compiles_what_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path))
    names = ["total", "matmul", "conv2d", "logic"]
    build_prim_funcs({name: FUNCS[name] for name in names})
    before = set(tmp_path.glob("*/kernels.c"))
    library = build_prim_funcs({"new": FUNCS["total"], **{n: FUNCS[n] for n in reversed(names)}})
    (text,) = set(tmp_path.glob("*/kernels.c")) - before
    assert re.findall("^RVM_KERNEL.*", text.read_text("utf-8"), re.MULTILINE) == [
        "RVM_KERNEL(new) { return call(&new_function, args, num_args, ret); }"
    ]
    for name in ("new", "total"):
        s = _zeros()
        library[name](np.ones(5, "float32"), s)
        assert s == 5
    build_prim_funcs({name: FUNCS[name] for name in names})
    assert set(tmp_path.glob("*/kernels.c")) == before | {text}


@needs_compiler
def test_a_text_of_another_version_is_compiled_as_it_is(library: KernelLibrary) -> None:
    state = build_prim_funcs({"total": FUNCS["total"]}).state()
    (source,) = state["sources"]
    source["text"] = "/* as it was */\n" + source["text"]
    for again in (other := KernelLibrary(state), KernelLibrary(state, other.binaries)):
        s = _zeros()
        again["total"](np.ones(5, "float32"), s)
        assert s == 5


def test_names_of_any_kind(library: KernelLibrary) -> None:
    prefer: Any = "c" if library.c_sources else "python"
    names = ["<lambda>", 'a"b\\c??/', "a b", "a_x20_b", "1d", "int", "größe"]
    built = build_prim_funcs(dict.fromkeys(names, FUNCS["total"]), prefer=prefer)
    assert list(built) == names
    for function in built.values():
        s = _zeros()
        function(np.ones(5, "float32"), s)
        assert s == 5
    with pytest.raises(TypeError, match="<lambda>: expected 2 arguments"):
        built["<lambda>"]()


def test_functions_without_c_run_as_python_with_a_warning() -> None:
    pytest.importorskip("ml_dtypes")
    A = tir.decl_buffer((3,), "float8_e4m3fn", "A")
    i = ir.Var("i", "int32")
    func = tir.PrimFunc([A], tir.For(i, 0, 3, 0, tir.BufferStore(A, A[0], [i])))
    if compiler() is None:
        pytest.skip("needs a C compiler")
    with pytest.warns(UserWarning, match="C cannot express data type float8_e4m3fn; it runs as"):
        library = build_prim_funcs({"small": func, "total": FUNCS["total"]})
    import ml_dtypes

    values = np.array([1, 2, 3], ml_dtypes.float8_e4m3fn)
    library["small"](values)
    assert values.tolist() == [1, 1, 1]


def test_bfloat16_rounds_after_every_operation(library: KernelLibrary) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    n = ir.Var("n", "int64")
    A, B, C = (tir.decl_buffer((n,), "bfloat16", name) for name in "ABC")
    i = ir.Var("i", "int64")
    body = tir.BufferStore(C, A[i] * B[i] + tir.Cast("bfloat16", tir.Cast("float32", A[i])), [i])
    prefer: Any = "c" if library.c_sources else "python"
    function = compile_prim_func(tir.PrimFunc([A, B, C], tir.For(i, 0, n, 0, body)), prefer=prefer)
    a, b = (_random(50, seed=s).astype(ml_dtypes.bfloat16) for s in (1, 2))
    c = np.zeros(50, ml_dtypes.bfloat16)
    function(a, b, c)
    np.testing.assert_array_equal(c, a * b + a)


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        (lambda A, n: tir.Evaluate(tir.call_extern("int32", "puts", "x")), NotImplementedError,
         "f: tirx.call_extern cannot be lowered"),
        (lambda A, n: tir.BufferStore(A, A[n], [0]), ValueError,
         "f: variable n has no value where it is used"),
        (lambda A, n: tir.BufferStore(tir.decl_buffer((2,), "float32", "B"), A[0], [0]), ValueError,
         "f: buffer B is neither a parameter nor allocated"),
        (lambda A, n: tir.AllocBuffer(tir.decl_buffer((n,), "float32", "B")), ValueError,
         "f: the shape of buffer B has n, which is neither a parameter nor"),
    ],
)  # fmt: skip
def test_functions_that_cannot_be_lowered(statement: Any, error: type, message: str) -> None:
    A, n = tir.decl_buffer((2,), "float32", "A"), ir.Var("n", "int32")
    with pytest.raises(error, match=message):
        build_prim_funcs({"f": tir.PrimFunc([A], statement(A, n))})


def test_a_bound_that_changes_proves_nothing(library: KernelLibrary) -> None:
    @T.prim_func
    def changing(N: T.Buffer((1,), "int64"), A: T.Buffer((8,), "int32")):
        for _ in range(8):
            for i in range(N[0]):
                N[0] = N[0] - T.int64(5)
                A[T.min(N[0] - T.int64(1) - i, T.int64(7))] = 1

    prefer: Any = "c" if library.c_sources else "python"
    function = compile_prim_func(changing, prefer=prefer)
    with pytest.raises(IndexError, match="buffer A, dimension 0: index -4 is out of bounds"):
        function(np.array([8]), _zeros(8, dtype="int32"))


def test_a_function_without_parameters(library: KernelLibrary) -> None:
    prefer: Any = "c" if library.c_sources else "python"
    function = compile_prim_func(tir.PrimFunc([], tir.Evaluate(0)), prefer=prefer)
    assert function() is None
    with pytest.raises(TypeError, match=r"main: expected 0 arguments \(\), got 1"):
        function(1)


def test_a_dimension_that_cannot_be_inferred() -> None:
    n = ir.Var("n", "int64")
    A = tir.decl_buffer((n * 2,), "float32", "A")
    with pytest.raises(ValueError, match="f: n has no value"):
        build_prim_funcs({"f": tir.PrimFunc([A], tir.Evaluate(0))})


def test_local_memory_that_cannot_be_allocated(library: KernelLibrary) -> None:
    n = ir.Var("n", "int64")
    A, B = tir.decl_buffer((2,), "float64", "A"), tir.decl_buffer((n, n), "float64", "B")
    body = tir.SeqStmt([tir.AllocBuffer(B), tir.BufferStore(A, A[1], [0])])
    prefer: Any = "c" if library.c_sources else "python"
    function = compile_prim_func(tir.PrimFunc([A, n], body), "f", prefer=prefer)
    with pytest.raises(MemoryError, match="f: buffer B: no memory"):
        function(_zeros(2, dtype="float64"), 2**40)
    with pytest.raises(ValueError, match="f: buffer B: dimension 0 is -1"):
        function(_zeros(2, dtype="float64"), -1)


def test_libraries_are_pickled_as_texts(library: KernelLibrary) -> None:
    again = pickle.loads(pickle.dumps(library))
    assert again.state() == library.state()
    s = _zeros()
    again["total"](np.ones(5, "float32"), s)
    assert s == 5


@T.prim_func
def _moved_index(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    for i in range(4):
        with T.sblock("block"):
            vi = T.axis.spatial(4, A[i])
            A[vi] = (vi + 1) % 4
            B[vi] = B[vi] + 10 + vi


@T.prim_func
def _moved_region(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    for i in range(4):
        with T.sblock("block"):
            vi = T.axis.spatial(4, i)
            C = T.match_buffer(B[A[vi] : A[vi] + 1], (1,), "int32", offset_factor=1)
            A[vi] = 0
            C[0] = C[0] + 7


@T.prim_func
def _moved_reduction(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    for i, k in T.grid(4, 3):
        with T.sblock("block"):
            vi, vk = T.axis.spatial(4, A[i]), T.axis.reduce(3, k)
            with T.init():
                B[vi] = 1
            B[vi] = B[vi] * 2 + vk
            A[i] = (A[i] + 1) % 4


@pytest.mark.parametrize("prefer", ["python"] if compiler() is None else ["c", "python"])
@pytest.mark.parametrize("func", [_moved_index, _moved_region, _moved_reduction])
def test_values_that_a_block_begins_with_stay(func: Any, prefer: Any) -> None:
    """The block writes to the elements that its variables and regions were read from."""
    values = [np.array([0, 1, 3, 2], "int32"), np.arange(4, dtype="int32")]
    expected = [each.copy() for each in values]
    run_prim_func(func, expected)
    compile_prim_func(func, prefer=prefer)(*values)
    for got, wanted in zip(values, expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
