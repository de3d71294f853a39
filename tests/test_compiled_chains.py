"""Chains of elementwise kernels as one loop of native code: equal to bytecode to the last bit."""

from __future__ import annotations

import itertools
import pickle
import random
import threading
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import Limits, VirtualMachine
from relaxvm.executable import VMExecutable
from relaxvm.native.vm_code.chains import find_chains
from relaxvm.native.vm_code.code import FunctionCode
from relaxvm.script import from_source

from .asm import Asm, Reg, r0, r1, r2, r3

HEADER = "from relaxvm.script import ir as I, relax as R\n\n@I.ir_module\nclass Module:\n"
F32 = np.float32

ARITHMETIC = ("add", "subtract", "multiply")
COMPARISONS = ("greater", "greater_equal", "less", "less_equal", "equal", "not_equal")
BINARY = {
    "float32": (*ARITHMETIC, "divide", "maximum", "minimum"),
    "float64": (*ARITHMETIC, "divide"),
    **dict.fromkeys(
        ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        (*ARITHMETIC, "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor"),
    ),
    "bool": ("logical_and", "logical_or"),
}
UNARY = {
    "float32": ("negative", "abs", "sqrt", "square", "exp"),
    "float64": ("negative", "abs", "sqrt", "square", "tanh"),
    "int32": ("negative", "bitwise_not"), "int64": ("negative", "square"),
    "bool": ("logical_not",),
}  # fmt: skip
SHAPES: tuple[tuple[int, ...], ...] = ((8,), (1,), (2, 3), (37,), (), (4, 1, 5))


def function(name: str, seed: int) -> tuple[str, list[tuple[str, tuple[int, ...]]]]:
    """A random function of arrays; returns its text, and the types of its arguments."""
    choice = random.Random(seed)
    shape = choice.choice(SHAPES)
    dtype = choice.choice([*BINARY])
    params = [(dtype, shape)] * choice.randint(2, 3)
    values = [(f"p{i}", dtype) for i in range(len(params))]
    lines = []
    for number in range(choice.randint(2, 14)):
        kind = choice.choice([dtype, dtype, "bool"])
        new = f"v{number}"
        of_kind = [v for v, d in values if d == kind]
        if kind == "bool" and dtype != "bool" and (not of_kind or choice.random() < 0.5):
            a, b = (choice.choice([v for v, d in values if d == dtype]) for _ in "ab")
            text = f"R.{choice.choice(COMPARISONS)}({a}, {b})"
        elif kind in UNARY and choice.random() < 0.3:
            text = f"R.{choice.choice(UNARY[kind])}({choice.choice(of_kind)})"
        else:
            b = choice.choice(of_kind)
            if kind == dtype and dtype != "bool" and choice.random() < 0.2:
                b = f"R.const({choice.randint(0, 3)}, {dtype!r})"
            text = f"R.{choice.choice(BINARY[kind])}({choice.choice(of_kind)}, {b})"
        values.append((new, kind))
        lines.append(f"        {new} = {text}")
    results = choice.sample([v for v, _ in values[len(params) :]], choice.randint(1, 2))
    types = ", ".join(f"p{i}: R.Tensor({s}, {d!r})" for i, (d, s) in enumerate(params))
    body = "\n".join([f"    @R.function\n    def {name}({types}):", *lines])
    return f"{body}\n        return ({', '.join(results)},)\n", params


def elements(choice: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Any:
    """Random elements, with those among them that are special."""
    kind = np.dtype(dtype)
    if dtype == "bool":
        return choice.integers(0, 2, shape).astype(bool)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        found = choice.integers(-9, 9, shape).astype(kind)
        special: Sequence[Any] = (info.min, info.max, 0)
    else:
        found = choice.standard_normal(shape).astype(kind)
        tiny = np.finfo(kind).tiny
        special = (0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, tiny, tiny / 2, np.finfo(kind).max)
    if choice.random() < 0.5:
        flat = np.asarray(found).reshape(-1)
        flat[choice.integers(0, flat.size)] = special[choice.integers(0, len(special))]
    return found


def outcome(vm: VirtualMachine, name: str, args: Sequence[Any]) -> Any:
    """The bits of the results, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = vm[name](*args)
    bits = [(a.dtype, a.shape, a.tobytes()) for a in results]
    after = [a.tobytes() for a in args if isinstance(a, np.ndarray)]
    return bits, [(str(w.message), w.category) for w in caught], after


def both(executable: VMExecutable, **options: Any) -> tuple[VirtualMachine, VirtualMachine]:
    native = executable.with_section("exec_mode", "compiled")
    return VirtualMachine(executable, **options), VirtualMachine(native, **options)


def chains_of(vm: VirtualMachine, name: str) -> int:
    """The number of chains in the code of a function."""
    image = vm._translated_for_entries()
    index = [f.name for f in vm.executable.functions].index(name)
    return len(find_chains(FunctionCode(image, index)))


@pytest.mark.parametrize(
    ("number", "limits"), [(60, Limits()), (15, Limits(fuel=10**9))], ids=["", "limited"]
)
def test_random_chains(number: int, limits: Limits) -> None:
    texts, params = zip(*(function(f"f{i}", i) for i in range(number)), strict=True)
    one, other = both(relaxvm.build(from_source(HEADER + "\n".join(texts))), limits=limits)
    assert other.native_code is not None
    assert sum(chains_of(other, f"f{i}") for i in range(number)) > number / 3
    choice = np.random.default_rng(0)
    for i, kinds in enumerate(params):
        for _ in range(12):
            args = [elements(choice, *kind) for kind in kinds]
            assert outcome(other, f"f{i}", args) == outcome(one, f"f{i}", args), texts[i]


def test_a_floating_point_error_is_reported_where_it_happens() -> None:
    text = """
    @R.function
    def main(x: R.Tensor((8,), "float32"), y: R.Tensor((8,), "float32")):
        a = R.add(x, y)
        b = R.divide(a, y)
        c = R.multiply(b, b)
        return (R.subtract(c, x),)
"""
    vms = both(relaxvm.build(from_source(HEADER + text)))
    assert chains_of(vms[1], "main") == 1
    x, y = np.ones((2, 8), F32)
    y[3] = 0
    notes = []
    for vm in vms:
        with np.errstate(divide="raise"), pytest.raises(FloatingPointError) as caught:
            vm["main"](x, y)
        notes.append((str(caught.value), caught.value.__notes__))
        y[3] = 1
        np.testing.assert_array_equal(vm["main"](x, y)[0], 3)
        y[3] = 0
    assert notes[0] == notes[1]
    assert "R.divide" in str(notes[0]) or "divide" in str(notes[0])


# Arrays that the caller gives for the results


def in_place() -> VMExecutable:
    asm = Asm()
    with asm.func("main", 4):
        for param in (r0, r1, r2, r3):
            asm.op(None, ".check_tensor_info", param, 1, np.dtype(F32), "main: ")
            asm.op(None, ".match_shape", param, None, 1, 0, 8, "main: ")
        add, multiply, subtract = (
            f"relaxvm.kernel.{name}" for name in ("add", "multiply", "subtract")
        )
        asm.op(None, add, r0, r1, r2)
        asm.op(None, multiply, r2, r0, r2)
        asm.op(None, subtract, r2, r3, r3)
        asm.op(None, add, r3, r2, r2)
        asm.op(Reg(4), ".make_tuple", r2, r3)
        asm.ret(Reg(4))
    return asm.get()


def views() -> list[list[np.ndarray]]:
    """Arguments that share memory, and others for which a loop of C is wrong."""

    def fresh() -> np.ndarray:
        return np.linspace(-2, 3, 24, dtype=F32)

    a = fresh()
    made = [[a[:8], a[8:16], a[16:], np.ones(8, F32)]]
    for first, second, out in ((0, 8, 0), (0, 8, 4), (0, 0, 0), (3, 8, 1), (2, 2, 10), (0, 9, 9)):
        b = fresh()
        made.append([b[first:][:8], b[second:][:8], b[out:][:8], np.ones(8, F32)])
    c = fresh()
    made.append([c[:8], np.ones(8, F32), c[8:16], c[:8]])
    d = fresh()
    made.append([d[:16:2], d[16:], d[:8], np.ones(8, F32)])
    same = np.arange(8, dtype=F32)
    made.append([same, same, same, same])
    return made


def test_arguments_that_share_memory() -> None:
    vms = both(in_place())
    assert chains_of(vms[1], "main") == 1
    for number in range(len(views())):
        one, other = (outcome(vm, "main", views()[number]) for vm in vms)
        assert one == other, number


def test_an_array_that_cannot_be_written() -> None:
    outcomes = []
    for vm in both(in_place()):
        args = [np.ones(8, F32) for _ in range(4)]
        args[2].flags.writeable = False
        with pytest.raises(ValueError, match="read-only") as caught:
            vm["main"](*args)
        outcomes.append((str(caught.value), caught.value.__notes__))
    assert outcomes[0] == outcomes[1]


def test_too_many_arrays_for_a_chain() -> None:
    """Their elements would not have room on the stack of a thread."""
    number = 60
    asm = Asm()
    params = [Reg(i) for i in range(number)]
    with asm.func("main", number):
        for param in params:
            asm.op(None, ".check_tensor_info", param, 1, np.dtype(F32), "main: ")
            asm.op(None, ".match_shape", param, None, 1, 0, 1024, "main: ")
        for one, other in itertools.pairwise(params):
            asm.op(None, "relaxvm.kernel.add", one, other, one)
        asm.op(Reg(number), ".make_tuple", *params)
        asm.ret(Reg(number))
    vms = both(asm.get())
    assert chains_of(vms[1], "main") == 0
    results: list[Any] = []

    def run() -> None:
        for vm in vms:
            args = [np.full(1024, i, F32) for i in range(number)]
            results.append(outcome(vm, "main", args))

    before = threading.stack_size(128 << 10)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert results[0] == results[1]


def test_results_outlive_the_next_run() -> None:
    """Only temporaries do without memory of their own."""
    text = """
    @R.function
    def main(x: R.Tensor((8,), "float32")):
        a = R.add(x, x)
        b = R.multiply(a, x)
        return (a, b)
"""
    _, vm = both(relaxvm.build(from_source(HEADER + text)))
    x = np.arange(8, dtype=F32)
    kept = [vm["main"](x + i) for i in range(4)]
    for i, (a, b) in enumerate(kept):
        np.testing.assert_array_equal(a, 2 * (x + i))
        np.testing.assert_array_equal(b, 2 * (x + i) * (x + i))
    assert len({a.ctypes.data for pair in kept for a in pair}) == 8


def test_a_chain_in_a_function_of_numbers() -> None:
    """The names of its variables are not those of others."""
    text = """
    @R.function
    def main(x: R.Tensor((8,), "float32"), n: R.Prim("int64")) -> R.Tuple(
        R.Tensor((8,), "float32"), R.Prim("int64")
    ):
        if n > 0:
            a = R.multiply(x, x)
            b = R.add(a, x)
            c = R.subtract(b, x)
            r = Module.main(c, n - 1)
        else:
            r = (x, n)
        return r

    @R.function
    def turned(n: R.Prim("int64"), x: R.Tensor((8,), "float32")) -> R.Any:
        if n > 0:
            s: R.Any = Module.turned(n - 1, x)
            r: R.Any = (s,)
        else:
            a = R.multiply(x, x)
            b = R.add(a, x)
            c = R.add(b, x)
            r: R.Any = (a, b, c)
        return r
"""
    one, other = both(relaxvm.build(from_source(HEADER + text)))
    assert other.native_code is not None
    assert other.native_code.functions == ("main", "turned")
    x = np.linspace(0, 0.5, 8, dtype=F32)
    for n in (0, 1, 5):
        got, expected = (vm["main"](x, n) for vm in (other, one))
        assert got[0].tobytes() == expected[0].tobytes()
        assert got[1] == expected[1]
        got, expected = (vm["turned"](n, x) for vm in (other, one))
        assert pickle.dumps(got) == pickle.dumps(expected)


def test_a_loop_over_a_chain() -> None:
    """Other values of the frame, polls and the loop's own arrays."""
    text = """
    @R.function
    def main(x: R.Tensor((8,), "float32"), n: R.Tensor((), "int64")) -> R.Any:
        more = R.greater(n, R.const(0, "int64"))
        if more:
            a = R.multiply(x, R.const(0.5, "float32"))
            b = R.add(a, R.const(1.0, "float32"))
            m = R.subtract(n, R.const(1, "int64"))
            r: R.Any = Module.main(b, m)
        else:
            r: R.Any = (x, n)
        return r
"""
    vms = both(relaxvm.build(from_source(HEADER + text)))
    assert chains_of(vms[1], "main") == 1
    x = np.arange(8, dtype=F32)
    one, other = (outcome(vm, "main", (x, np.array(1000))) for vm in vms)
    assert one == other
