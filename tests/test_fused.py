"""The fused kernel has the same results, bit for bit, as its steps run separately."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxvm import ExecBuilder, VirtualMachine, get_func
from relaxvm.core._fused import FusedPlan
from relaxvm.errors import VerifyError
from relaxvm.kernels import fused as module
from relaxvm.kernels import ufunc_of
from relaxvm.kernels.fused import Fused, Ref, Step, parse, step_of

FUSED = get_func("relaxvm.kernel.fused")
IN_BLOCKS = getattr(FUSED, "reference", FUSED)
"""The same without the kernel in C, which runs chains tile by tile."""
SIZES = (0, 1, 2, 5, 100, 1023, 1024, 1025, 2047, 2049, 2560, 2561, 5120, 5121, 9000)
"""Around the sizes of a block and of what is one block, and some blocks."""


def kernel(name: str) -> Any:
    return get_func(f"relaxvm.kernel.{name}")


def one_by_one(text: str, *inputs: np.ndarray) -> list[np.ndarray]:
    """Return the results of a chain, computed by its kernels one by one."""
    values: list[np.ndarray] = []
    program = parse(text)
    for step in program.steps:
        args = [(inputs if x.kind == "$" else values)[x.number] if isinstance(x, Ref) else x
                for x in step.operands]  # fmt: skip
        tensors = [x for x in args if isinstance(x, np.ndarray)]
        shape = np.broadcast_shapes(*[x.shape for x in tensors])
        if step.name == "cast":
            out = np.empty(shape, args.pop())
        else:
            dtype = tensors[step.name == "where"].dtype
            ufunc = ufunc_of(f"relaxvm.kernel.{step.name}")
            if ufunc is not None and not (step.name == "divide" and dtype.kind in "iu"):
                dtype = ufunc(*[np.empty(0, dtype)] * ufunc.nin).dtype
            out = np.empty(shape, dtype)
        kernel(step.name)(*args, out)
        values.append(out)
    return [values[i] for i in program.results]


def outcome(call: Any) -> tuple[Any, list[Any]]:
    """Return the result or error of a call, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = call()
        except (FloatingPointError, TypeError, ValueError) as error:
            result = type(error), str(error)
    return result, [(w.category, str(w.message)) for w in caught]


def assert_same(text: str, *inputs: np.ndarray, planned: bool | None = None) -> None:
    """Check bits and warnings, twice; `planned`: whether the fused kernel runs in blocks."""
    want, said = outcome(lambda: one_by_one(text, *[x.copy() for x in inputs]))
    assert isinstance(want, list), want
    module._plans.pop(text, None)
    text = text.encode().decode()  # plans are also found by the string object
    for run in (FUSED, FUSED, IN_BLOCKS, IN_BLOCKS):
        outs = [np.full(x.shape, 77, x.dtype) for x in want]
        got, got_said = outcome(lambda outs=outs, run=run: run(*inputs, text, *outs))
        assert got is None, got
        assert [x.tobytes() for x in outs] == [x.tobytes() for x in want]
        assert got_said == said
    if planned is not None:
        assert (text in module._plans) == planned


def samples(dtype: str, shape: Any, seed: int = 0) -> np.ndarray:
    """Ordinary values and some special ones."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    values = np.asarray(rng.standard_normal(shape) * 3).astype(dtype)
    odd = np.array([0, -0.0, 1, np.inf, -np.inf, np.nan, 100, -100, 1e-4], dtype)
    where = rng.random(shape) < 0.1
    values[where] = rng.choice(odd, shape)[where]
    return values


# Chains as text


@pytest.mark.parametrize(
    "text",
    [
        "exp($0) -> %0",
        "exp($0); add(%0, $1); where($2, %1, 0.5); cast(%2, float16) -> %3",
        "add($0, 1); add($0, -2.5); add(%0, inf); equal($0, nan) -> %1, %0, %3",
        "logical_and($0, true); nn.relu($1) -> %0, %1",
    ],
)
def test_text_round_trips(text: str) -> None:
    assert str(parse(text)) == text
    assert parse(str(parse(text))) == parse(text)


def test_parts() -> None:
    program = parse(" add( $0,2 ) ;cast(%0 ,int32)->%1 ")
    cast = Step("cast", (Ref("%", 0), "int32"))
    assert program == Fused((Step("add", (Ref("$", 0), 2)), cast), (1,))
    assert program.num_inputs == 1
    assert str(program) == "add($0, 2); cast(%0, int32) -> %1"


BAD = {
    "exp($0)": "expected '-> %RESULT' at the end",
    "exp $0 -> %0": r"step 0: expected NAME\(OPERANDS\), got 'exp \$0 '",
    "exp($0); -> %0": "step 1: expected NAME",
    "matmul($0, $1) -> %0": "step 0: 'matmul' is not a kernel that can be a step",
    "exp!($0) -> %0": "step 0: 'exp!' is not a kernel that can be a step",
    "reciprocal($0) -> %0": "step 0: 'reciprocal' is not a kernel",
    "exp($0, $1) -> %0": "step 0: exp takes 1 operands, got 2",
    "add($0) -> %0": "step 0: add takes 2 operands, got 1",
    "add(1, 2) -> %0": "step 0: add: expected a tensor among '1, 2'",
    "where($0, 1, 2) -> %0": "step 0: where: expected a tensor among",
    "exp(%0) -> %0": "step 0: %0: expected the result of an earlier step",
    "exp($0); exp(%1) -> %1": "step 1: %1: expected the result of an earlier step",
    "exp(x) -> %0": r"step 0: expected \$INPUT, %STEP or a number, got 'x'",
    "exp($00) -> %0": r"step 0: expected \$INPUT, %STEP or a number, got '\$00'",
    "exp($1) -> %0": r"expected inputs \$0 to \$63 at most, without gaps, got \$1",
    "cast($0, floaty) -> %0": "step 0: .*floaty",
    "exp($0) -> %1": "expected results %0 to %0, got '%1'",
    "exp($0) -> $0": "expected results %0 to %0",
    "exp($0) -> %0" + " " * (1 << 14): "expected at most 16384 characters, got 16397",
    "; ".join(["exp($0)"] * 33) + " -> %0": "expected at most 32 steps and 16 results, got 33",
}


def call_of(text: str, inputs: int, outs: int = 1) -> ExecBuilder:
    b = ExecBuilder()
    with b.function("main", num_inputs=inputs + outs):
        args = [b.r(i) for i in range(inputs + outs)]
        args.insert(inputs, b.convert_constant(text))
        b.emit_call("relaxvm.kernel.fused", args)
        b.emit_ret(b.r(inputs))
    return b


@pytest.mark.parametrize("text", BAD)
def test_malformed_chains(text: str) -> None:
    with pytest.raises(ValueError, match=f"^fused: {BAD[text]}"):
        FUSED(np.ones(2), text, np.ones(2))
    with pytest.raises(VerifyError, match=BAD[text]):
        VirtualMachine(call_of(text, 1).get())


@pytest.mark.parametrize(("inputs", "outs"), [(1, 1), (3, 1), (2, 2)])
def test_the_number_of_arguments(inputs: int, outs: int) -> None:
    text = "add($0, $1) -> %0"
    message = f"expected 2 inputs, the chain and 1 outputs, got {inputs} before it and {outs} after"
    with pytest.raises(ValueError, match=message):
        FUSED(*[np.ones(2)] * inputs, text, *[np.ones(2)] * outs)
    with pytest.raises(VerifyError, match=message):
        VirtualMachine(call_of(text, inputs, outs).get())


def test_the_chain_is_a_string() -> None:
    with pytest.raises(TypeError, match="fused: chain: expected a string among the arguments"):
        FUSED(np.ones(2), np.ones(2))
    b = ExecBuilder()
    with b.function("main", num_inputs=2):
        text = b.convert_constant("exp($0) -> %0")
        b.emit_call("relaxvm.kernel.fused", [b.r(0), text, text, b.r(1)])
        b.emit_ret(b.r(1))
    with pytest.raises(VerifyError, match="expected one string among the arguments"):
        VirtualMachine(b.get())


def test_kernels_that_can_be_steps() -> None:
    assert all(map(step_of, ["add", "exp", "where", "cast", "sigmoid", "less", "remainder"]))
    assert not any(map(step_of, ["matmul", "sum", "fused", "nothing", "take"]))


# The same bits

PLANNED = [
    "exp($0) -> %0",
    "exp($0); add(%0, $1); multiply(%1, 0.5); maximum(%2, $0) -> %3",
    "add($0, $1); add(%0, $0); add(%0, %1); add(%1, %2) -> %3",
    "subtract(1.0, $0); divide(%0, $1) -> %1",
    "greater($0, $1); where(%0, $0, $1); where(%0, %1, -1.5); where(%0, 2.0, $1) -> %2, %3, %1",
    "less($0, 0.5); logical_not(%0); logical_and(%0, %1); cast(%1, int32); cast(%3, float64) "
    "-> %2, %4",
    "add($0, $1); multiply(%0, $0) -> %1, %0, %1",
    "relu($0); rsqrt($1); sigmoid($0); nn.silu(%2); nn.relu(%3) -> %0, %1, %2, %4",
    "sin($0); cos(%0); tan(%1); tanh(%2); log(%3); sqrt(%4); power(%5, $1) -> %6",
    "floor($0); round($1); sign(%0); isnan(%1); mod($0, %1) -> %2, %3, %4",
    # Intermediate results that may use the memory of an output.
    "multiply($0, $1); add(%0, $0); exp(%1); subtract(%2, %0); maximum(%3, $1); add(%4, %3) -> %5",
    "add($0, $1); square(%0); subtract(%1, $0); abs(%2); add(%3, %2); less(%4, $1); "
    "where(%5, %4, $1) -> %4, %6, %2",
    "less($0, $1); greater($0, 0.0); logical_and(%0, %1); logical_or(%2, %0); add($0, 1.0) "
    "-> %3, %4",
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("text", PLANNED)
def test_floats(text: str, dtype: str, size: int) -> None:
    count = parse(text).num_inputs
    assert_same(text, *[samples(dtype, size, i) for i in range(count)], planned=True)


@pytest.mark.parametrize(("count", "planned"), [(7, True), (30, False)])
def test_chains_of_long_composites(count: int, planned: bool) -> None:
    """A kernel of many steps: a chain with too many steps runs as separate kernels."""
    steps = [f"nn.gelu(%{i})" for i in range(count - 1)]
    text = f"{'; '.join(['erf($0)', 'nn.gelu($0)', *steps[1:]])} -> %{count - 1}, %0"
    for dtype in ("f4", "f8"):
        assert_same(text, samples(dtype, 3000), planned=planned)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_integers(dtype: str) -> None:
    x, y = samples(dtype, 3000), samples(dtype, 3000, 1)
    text = ("add($0, $1); bitwise_xor(%0, $0); left_shift(%1, 1); maximum(%2, 7); less(%3, $1); "
            "where(%4, %3, 0); floor_divide(%5, 3); relu(%6) -> %5, %6, %4, %7")  # fmt: skip
    assert_same(text, x, y, planned=True)


@pytest.mark.parametrize("text", ["divide($0, $1) -> %0", "power($0, $1) -> %0",
                                  "floor($0); add(%0, $1) -> %1"])  # fmt: skip
def test_integers_that_kernels_convert(text: str) -> None:
    if "floor" in text and np.floor(np.arange(2)).dtype.kind == "f":
        pytest.skip("before numpy 2.1 the floor of an integer is a float")
    assert_same(text, np.arange(1, 200), np.arange(200)[1:] % 5 + 1)


@pytest.mark.parametrize("dtype", ["i1", "f2", "f4", "f8", "D"])
def test_inputs_that_repeat_by_different_lengths(dtype: str) -> None:
    """Blocks end where an element that repeats long does; the others are copied out."""
    shapes = (3, 5, 7, 900), (3, 1, 1, 1), (5, 1, 1), (7, 900), (900,), (1, 7, 1)
    text = "add($0, $1); add(%0, $2); add(%1, $3); add(%2, $4); add(%3, $5); add(%4, $1) -> %1, %5"
    operands = [samples(dtype, shape, i) for i, shape in enumerate(shapes)]
    assert_same(text, *operands, planned=True)


@pytest.mark.parametrize("to", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32",
                                "int64", "uint64", "float16", "float32", "float64"])  # fmt: skip
@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4",
                                   "f8", "l", "L", "q", "Q"])  # fmt: skip
def test_casts(dtype: str, to: str) -> None:
    x = samples(dtype, 3000)
    from_float = x.dtype.kind == "f"
    planned = "f2" not in (x.dtype.str[1:], np.dtype(to).str[1:]) and not (
        from_float and np.dtype(to).kind in "iu"
    )
    assert_same(f"cast($0, {to}); equal(%0, %0) -> %0, %1", x, planned=planned)


def test_half_floats_and_complex_numbers() -> None:
    text = "add($0, $1); multiply(%0, $0); exp(%1); equal(%2, $0) -> %2, %3"
    for dtype in ("f2", "F", "D"):
        assert_same(text, samples(dtype, 3000), samples(dtype, 3000, 1), planned=True)
    assert_same("sigmoid($0) -> %0", samples("f2", 100), planned=False)


MODES = {
    "one of no dimensions": ((40, 50), ()),
    "one of some dimensions": ((40, 50), (1, 1)),
    "one of one dimension": ((40, 50), (1,)),
    "rows": ((40, 50), (50,)),
    "rows of two dimensions": ((40, 50), (1, 50)),
    "columns": ((40, 50), (40, 1)),
    "channels": ((3, 5, 7, 11), (5, 1, 1)),
    "batch": ((3, 5, 7, 11), (3, 1, 1, 1)),
    "planes": ((3, 5, 7, 11), (7, 11)),
    "middle": ((3, 5, 7, 11), (1, 5, 7, 1)),
    "long rows": ((3, 5000), (5000,)),
    "long columns": ((5000, 3), (5000, 1)),
    "elements that fill blocks": ((3, 5, 700), (5, 1)),
    "elements that fill many blocks": ((2, 3, 9000), (3, 1)),
    "elements that fill blocks of one result": ((2, 3, 600), (2, 1, 1)),
}


@pytest.mark.parametrize("mode", MODES)
def test_inputs_that_repeat(mode: str) -> None:
    shape, other = MODES[mode]
    x, y = samples("f4", shape), samples("f4", other, 1)
    text = "multiply($0, $1); add($1, %0); exp(%1); less(%2, $1) -> %2, %3"
    assert_same(text, x, y, planned=True)


@pytest.mark.parametrize("to", ["bool", "int8", "uint8", "int64", "float32", "float64"])
def test_casts_of_bools_with_other_bytes(to: str) -> None:
    bools = np.array([2, 1, 0, 255, 128] * 40, "uint8").view("bool")
    assert_same(f"cast($0, {to}) -> %0", bools, planned=True)


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("add($0, $1); exp(%0) -> %1", [(3, 1), (1, 4)]),
        ("add($0, $1); exp(%0) -> %1", [(3, 1, 5), (3, 4, 5)]),
        ("exp($1); add(%0, $0) -> %1", [(3, 4), (4,)]),
        ("exp($1); add(%0, $0) -> %1", [(3, 4), ()]),
        ("power($0, $1); add(%0, $0) -> %1", [(30, 40), (40,)]),
        ("add($0, $1); add($1, 1.0) -> %0, %1", [(3, 4), (4,)]),
    ],
)
def test_chains_that_are_left_to_their_kernels(text: str, shapes: Any) -> None:
    assert_same(text, *[samples("f8", shape, i) for i, shape in enumerate(shapes)], planned=False)


@pytest.mark.parametrize("shapes", [[(), ()], [(1, 1), ()], [(0, 3), (3,)], [(0, 3), (0, 1)]])
def test_one_element_and_none(shapes: Any) -> None:
    text = "add($0, $1); exp(%0); multiply(%1, 0.5) -> %2"
    assert_same(text, *[samples("f8", shape, i) for i, shape in enumerate(shapes)], planned=True)


def test_layouts() -> None:
    text = "add($0, $1); negative(%0) -> %1"
    y = samples("f4", (40, 50), 1)
    assert_same(text, samples("f4", (40, 100))[:, ::2], y, planned=False)
    assert_same(text, samples("f4", (50, 40)).T, y, planned=False)
    assert_same(text, samples(">f4", (40, 50)).astype(">f4"), y.astype(">f4"), planned=False)
    for out in (np.zeros((50, 40), "f4").T, np.zeros((40, 100), "f4")[:, ::2]):
        FUSED(y, y, text, out)
        assert out.tobytes() == (-(y + y)).tobytes()


@pytest.mark.parametrize("offset", [0, 1, -1, 700, -700])
@pytest.mark.parametrize(
    "text",
    ["add($0, $1); multiply(%0, $0) -> %1", "add($0, $1); multiply(%0, $0); add(%1, $0) -> %1, %2"],
)
def test_outputs_over_inputs(text: str, offset: int) -> None:
    """As if all inputs had been read before outputs are written."""

    def parts() -> tuple[np.ndarray, ...]:
        memory = np.linspace(0, 1, 8000, dtype="f4")
        return memory[1000:4000], memory[1000 + offset : 4000 + offset], memory[5000:8000]

    x, out, y = parts()
    want = one_by_one(text, x.copy(), y.copy())
    others = [np.empty_like(w) for w in want[1:]]
    for _ in range(2):
        x, out, y = parts()
        FUSED(x, y, text, out, *others)
        got = [out, *others]
        assert [g.tobytes() for g in got] == [w.tobytes() for w in want]


def test_plans_for_several_data_types() -> None:
    text = "add($0, $1); negative(%0) -> %1"
    module._plans.pop(text, None)
    for dtype in ("f4", "f8", "i4", "f4", "i8", "f8"):
        for shape in ((100,), (10, 10)):
            x = samples(dtype, shape)
            out = np.zeros_like(x)
            FUSED(x, x, text, out)
            assert out.tobytes() == (-(x + x)).tobytes()
    assert len(module._plans[text]) == 4


@pytest.mark.parametrize("size", [100, 5000, 200_000])
def test_floating_point_errors(size: int) -> None:
    """Reported once per step, in the order of the steps, as errstate says."""
    x = np.linspace(-1, 1000, size)
    text = "log($0); exp($0); divide(%0, 0.0); subtract(%1, %1); sigmoid(%1) -> %2, %3, %4"
    assert_same(text, x, planned=True)
    assert_same(text, x.astype("f4"), planned=True)
    for setting in ("ignore", "raise"):
        with np.errstate(all=setting):
            want = outcome(lambda: one_by_one(text, x) and None)
            outs = [np.empty_like(x) for _ in range(3)]
            assert outcome(lambda outs=outs: FUSED(x, text, *outs)) == want


@pytest.mark.parametrize("size", [1, 300, 3000, 9000])
def test_an_earlier_floating_point_status_is_not_reported(size: int) -> None:
    """Earlier computations of Python set bits of the status too."""
    text = "multiply($0, $0); add(%0, $0) -> %1"
    huge = float(size) * 1e300
    x = np.ones(size)
    for value, messages in ((1.0, []), (1e300, ["overflow encountered in multiply"])):
        x[-1] = value
        for _ in range(3):
            assert huge * huge == np.inf  # an overflow that Python does not report
            _, said = outcome(lambda: FUSED(x, text, np.empty(size)))
            assert [message for _, message in said] == messages


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda a: [a[0], None, *a[2:]], TypeError, r"fused: inputs\[1\]: expected a tensor"),
        (lambda a: [*a[:3], 1], TypeError, r"fused: outs\[0\]: expected a tensor, got"),
        (lambda a: [*a[:3], a[3][:2]], ValueError, r"fused: out: expected float64\[3\]"),
        (lambda a: [*a[:3], a[3].astype("f4")], ValueError, r"fused: out: expected float64\[3\]"),
        (lambda a: [a[0].astype("f4"), *a[1:]], TypeError, "add: expected equal data types"),
        (lambda a: [a[0][:2], *a[1:]], ValueError, "add: expected shapes that broadcast"),
    ],
)
def test_errors(change: Any, error: type[Exception], message: str) -> None:
    text = "add($0, $1); exp(%0) -> %1"
    with pytest.raises(error, match=message):
        FUSED(*change([np.ones(3), np.ones(3), text, np.ones(3)]))


def test_an_output_that_is_read_only() -> None:
    out = np.ones(3)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="fused: out: expected a tensor that can be written to"):
        FUSED(np.ones(3), "exp($0) -> %0", out)


def test_plans_are_complete() -> None:
    with pytest.raises(TypeError):
        FusedPlan.__new__(FusedPlan)


def test_threads() -> None:
    text = "exp($0); add(%0, $0); tanh(%1) -> %2"
    x = samples("f4", 1 << 18)
    with np.errstate(all="ignore"):
        (want,) = one_by_one(text, x)
    outs = [np.zeros_like(x) for _ in range(4)]

    def run(out: np.ndarray) -> None:
        with np.errstate(all="ignore"):
            for _ in range(5):
                FUSED(x, text, out)

    threads = [threading.Thread(target=run, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(out.tobytes() == want.tobytes() for out in outs)


def test_in_a_program() -> None:
    text = "multiply($0, $1); maximum(%0, 0.25) -> %1"
    vm = VirtualMachine(call_of(text, 2).get())
    x = np.linspace(0, 1, 10)
    assert np.array_equal(vm.main(x, x, np.zeros(10)), np.maximum(x * x, 0.25))


# Any chain

UNARY = ("exp", "negative", "abs", "sqrt", "tanh", "sigmoid", "relu", "floor", "square", "rsqrt")
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")


@st.composite
def chains(draw: st.DrawFn) -> str:
    """Chains of floats, with conditions and conversions and back."""
    steps: list[str] = []
    floats = ["$0", "$1", "$2"]
    for _ in range(draw(st.integers(1, 8))):
        a, b = draw(st.sampled_from(floats)), draw(st.sampled_from([*floats, "0.5", "-2", "nan"]))
        kind = draw(st.integers(0, 4))
        if kind == 0:
            steps.append(f"{draw(st.sampled_from(UNARY))}({a})")
        elif kind in (1, 2):
            steps.append(f"{draw(st.sampled_from(BINARY))}({a}, {b})")
        elif kind == 3:
            steps.append(f"less_equal({a}, {b})")
            steps.append(f"where(%{len(steps) - 1}, {a}, {b})")
        else:
            steps.append(f"cast({a}, float32)")
            steps.append(f"cast(%{len(steps) - 1}, float64)")
        floats.append(f"%{len(steps) - 1}")
    steps += [f"add($0, {x})" for x in ("$1", "$2")]  # all inputs are used
    results = draw(st.lists(st.integers(0, len(steps) - 1), min_size=1, max_size=3))
    return f"{'; '.join(steps)} -> {', '.join(f'%{i}' for i in results)}"


@settings(max_examples=150)
@given(chains(), st.sampled_from([(7,), (600,), (30, 41)]), st.integers(0, 9))
def test_any_chain(text: str, shape: tuple[int, ...], seed: int) -> None:
    shapes = [shape, ((), shape[-1:], shape)[seed % 3], (shape, (1,), shape)[seed % 2]]
    assert_same(text, *[samples("f8", each, seed + i) for i, each in enumerate(shapes)])
