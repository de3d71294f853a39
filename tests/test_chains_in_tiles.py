"""Chains of elementwise kernels that C runs tile by tile."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.core._fused import FusedKernel
from relaxvm.kernels import _tiles, fused
from relaxvm.kernels._functions import FUNCTIONS
from relaxvm.kernels.cpu import SETS
from relaxvm.registry import get_func

from .test_integers import FLOAT, model, node
from .test_kernel_sets import of_set, reference

pytestmark = pytest.mark.skipif(not SETS, reason="no kernels for this processor")

SPECIAL = [0.0, -0.0, 1, -1, 0.5, 2.5, -2.5, math.inf, -math.inf, math.nan, 1e-40, 3e38, -3e38, 90]


def drawn(seed: int, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(shape) * 4).astype(np.float32)
    odd = rng.choice(np.array(SPECIAL, np.float32), shape)
    return np.where(rng.random(shape) < 0.2, odd, x)


def run(call: Any, *args: Any) -> list[str]:
    """Call a kernel; return what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*args)
    return [str(each.message) for each in caught]


def chain_of(step: str) -> str:
    """A chain whose steps are one of the interpreter and what makes a float of its result."""
    if step in FUNCTIONS:
        return f"nn.apply($0, {step}) -> %0"
    if step == "where":
        return "less($0, $1); where(%0, $0, $1) -> %1"
    if step == "copy":
        return "less($0, $1); cast(%0, float32) -> %1"
    if step == "reciprocal":
        return "rsqrt($0) -> %0"
    if step == "logical_not":
        return "less($0, $1); logical_not(%0); where(%1, $0, $1) -> %2"
    if step.startswith("logical"):
        return f"less($0, $1); less($0, 0.5); {step}(%0, %1); where(%2, $0, $1) -> %3"
    if "equal" in step or step in ("less", "greater"):
        return f"{step}($0, $1); where(%0, $0, $1) -> %1"
    binary = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
    return f"{step}($0, $1) -> %0" if step in binary else f"{step}($0) -> %0"


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("step", [*_tiles.STEPS, *FUNCTIONS])
def test_each_step_is_its_kernel(step: str, which: str) -> None:
    """The same bits and warnings; functions of `nn.apply` are those of the set."""
    text = chain_of(step)
    program = fused.parse(text)
    _tiles.offer(text)
    for size in (4100, 5120):
        inputs = [drawn(i, size) for i in range(program.num_inputs)]
        got, want = np.zeros(size, np.float32), np.zeros(size, np.float32)
        said = run(of_set("fused", which), *inputs, text, got)
        if step in FUNCTIONS:
            run(of_set("nn.apply", which), inputs[0], step, want)
            assert said == []
        else:
            expected = run(reference("fused"), *inputs, text, want)
            assert said == expected
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize(
    ("shape", "other"),
    [
        ((3, 40, 50), (40, 1)), ((3, 40, 50), (50,)), ((3, 40, 50), (1,)), ((3, 40, 50), ()),
        ((3, 40, 50), (3, 1, 1)), ((3, 40, 50), (3, 1, 50)), ((3, 40, 50), (1, 40, 1)),
        ((2, 3, 1500), (2, 1, 1500)), ((2, 3, 1500), (3, 1)), ((5000, 3), (3,)),
        ((1, 9000), (1, 1)),
    ],
)  # fmt: skip
def test_operands_are_laid_over_the_result(
    shape: tuple[int, ...], other: tuple[int, ...], which: str
) -> None:
    text = "multiply($0, $1); add(%0, $1); nn.apply(%1, relu); subtract($1, %2) -> %3"
    _tiles.offer(text)
    x, y = drawn(0, *shape), drawn(1, *other)
    with np.errstate(all="ignore"):
        want = y - np.maximum(x * y + y, np.float32(0)) - np.float32(0)
    transposed = np.ascontiguousarray(x.T).T
    reversed_ = np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    for given in (x, transposed, reversed_):
        got = np.zeros(shape, np.float32)
        run(of_set("fused", which), given, y, text, got)
        np.testing.assert_array_equal(got, want)
    in_place = x.copy()
    run(of_set("fused", which), in_place, y, text, in_place)
    np.testing.assert_array_equal(in_place, want)


@pytest.mark.parametrize("which", SETS)
def test_conditions_may_be_tensors(which: str) -> None:
    text = "where($0, $1, 2.0); add(%0, $2) -> %1"
    _tiles.offer(text)
    x, y = drawn(0, 70, 60), drawn(1, 60)
    for cond in (drawn(2, 70, 60) > 0, drawn(3, 70, 1) > 0, np.array(True)):
        got = np.zeros_like(x)
        run(of_set("fused", which), cond, x, y, text, got)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, np.where(cond, x, np.float32(2)) + y)


REFUSED = {
    "a data type": ([np.ones(4000)], np.zeros(4000, np.float32)),
    "integers": ([np.ones(4000, np.int32)], np.zeros(4000, np.float32)),
    "a result of another type": ([np.ones(4000, np.float32)], np.zeros(4000)),
    "a longer result": ([np.ones(4000, np.float32)], np.zeros((2, 4000), np.float32)),
    "a shorter result": ([np.ones(4000, np.float32)], np.zeros(3999, np.float32)),
    "gaps in the result": ([np.ones(4000, np.float32)], np.zeros(8000, np.float32)[::2]),
}


@pytest.mark.parametrize("case", [*REFUSED, "overlap"])
def test_what_is_left_to_the_reference(case: str) -> None:
    text = "nn.apply($0, relu); add(%0, 1.0) -> %1"
    _tiles.offer(text)
    if case == "overlap":
        memory = np.ones(4001, np.float32)
        inputs, out = [memory[1:]], memory[:-1]
    else:
        inputs, out = REFUSED[case]
    with pytest.raises(RuntimeError, match="refused"):
        of_set("fused", next(iter(SETS)))(*inputs, text, out)


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.bool_])
def test_bytes_are_converted_as_they_are_read(dtype: Any, which: str) -> None:
    text = ("cast($0, float32); subtract(%0, 3.0); multiply(%1, $1); cast($2, float32); "
            "add(%2, %3) -> %4")  # fmt: skip
    _tiles.offer(text)
    rng = np.random.default_rng(1)
    byte = rng.integers(0, 256, (5, 7, 130)).astype(np.uint8)
    byte = byte > 99 if dtype is np.bool_ else byte.view(dtype)
    scale = drawn(2, 5, 7, 130)
    for other in (byte[::-1].copy(), byte[:1, :, :1].copy(), byte[2, 3, 4:5].copy()):
        got, want = np.zeros((2, 5, 7, 130), np.float32)
        said = run(of_set("fused", which), byte, scale, other, text, got)
        assert said == run(reference("fused"), byte, scale, other, text, want)
        assert got.tobytes() == want.tobytes()
        with np.errstate(all="ignore"):
            exact = (byte.astype("f4") - np.float32(3)) * scale + other.astype("f4")
        assert np.array_equal(got, exact, equal_nan=True)


def test_bytes_that_are_not_converted_are_left_to_the_reference() -> None:
    """An input that is also asked for truth is bool."""
    text = "cast($0, float32); logical_not($0); where(%1, %0, 2.0) -> %2"
    _tiles.offer(text)
    out = np.zeros(5000, np.float32)
    of_set("fused", SETS[0])(out > 0, text, out.copy())
    with pytest.raises(RuntimeError, match="refused"):
        of_set("fused", SETS[0])(np.ones(5000, np.uint8), text, out)


def test_chains_without_a_program() -> None:
    many = "; ".join(["add($0, 0.5)", *[f"add(%{i}, {i}.25)" for i in range(30)]]) + " -> %30"
    for text in (
        "tan($0) -> %0",  # not a step
        "less($0, 0.5) -> %0",  # bools
        "add($0, 1.0); exp($0) -> %0",  # not the last step
        "add($0, 1.0); exp($0) -> %0, %1",
        "where($0, $0, 1.0) -> %0",  # a float and a bool
        "cast($0, int32); add(%0, %0) -> %1",
        many,  # numbers
    ):
        assert _tiles.program_of(fused.parse(text)) is None


def test_an_unknown_function_is_named() -> None:
    message = "step 0: nn.apply: expected one of relu, gelu, .*hard_swish, got 'cube'"
    with pytest.raises(ValueError, match=message):
        get_func("relaxvm.kernel.fused")(np.ones(2), "nn.apply($0, cube) -> %0", np.ones(2))


def test_floats_of_64_bits_take_the_functions_too() -> None:
    x, out = np.linspace(-3, 3, 5000), np.zeros(5000)
    get_func("relaxvm.kernel.fused")(x, "nn.apply($0, tanh); multiply(%0, 2.0) -> %1", out)
    np.testing.assert_allclose(out, [2 * math.tanh(each) for each in x], rtol=1e-12)


# Models


def chains_in(executable: Any) -> list[str]:
    lines = executable.as_text().splitlines()
    return [line for line in lines if "call  relaxvm.kernel.fused" in line]


def test_a_model_whose_functions_are_in_chains(tmp_path: Path) -> None:
    nodes = [node("Tanh", "x", "a"), node("Add", "a b", "c"), node("Sigmoid", "c", "d"),
             node("Mul", "d x", "e"), node("Clip", "e low high", "y")]  # fmt: skip
    constants = {name: np.array(value, np.float32) for name, value in
                 {"b": 0.25, "low": -0.5, "high": 0.5}.items()}  # fmt: skip
    program = model(nodes, constants, ["n", 300], FLOAT)
    executable = relaxvm.compile(program, cache=False)
    assert len(chains_in(executable)) == 1
    vm = relaxvm.VirtualMachine(executable)
    for rows in (0, 1, 7, 100):
        x = np.random.default_rng(rows).standard_normal((rows, 300)).astype(np.float32)
        want = [min(max(each / (1 + math.exp(-math.tanh(each) - 0.25)), -0.5), 0.5)
                for each in x.ravel().tolist()]  # fmt: skip
        np.testing.assert_allclose(vm.main(x).ravel(), want, rtol=2e-6, atol=1e-7)


def test_a_chain_without_a_program_is_not_fused() -> None:
    """Its functions would have memory of their own for each result."""
    nodes = [node("Tanh", "x", "a"), node("Tan", "a", "b"), node("Sigmoid", "b", "y")]
    executable = relaxvm.compile(model(nodes, {}, ["n", 300], FLOAT), cache=False)
    assert chains_in(executable) == []
    x = np.linspace(-1, 1, 300, dtype=np.float32)[None]
    want = [1 / (1 + math.exp(-math.tan(math.tanh(each)))) for each in x.ravel().tolist()]
    got = relaxvm.VirtualMachine(executable).main(x)
    np.testing.assert_allclose(got.ravel(), want, rtol=1e-5)


def test_conversions_stay_out_of_chains_in_tiles() -> None:
    """A step of another data type would keep its chain from running in tiles."""
    nodes = [node("Cast", "x", "h", to=10), node("Cast", "h", "f", to=1), node("Add", "f b", "s"),
             node("Relu", "s", "r"), node("Mul", "r b", "y")]  # fmt: skip
    program = model(nodes, {"b": np.array(0.75, np.float32)}, ["n", 300], FLOAT)
    executable = relaxvm.compile(program, cache=False)
    texts = [c for c in executable.constants if isinstance(c, str)]
    assert "add($0, $1); nn.relu(%0); multiply(%1, $1) -> %2" in texts
    assert not any("cast" in text for text in texts)
    x = np.linspace(-2, 2, 600, dtype=np.float32).reshape(2, 300)
    want = np.maximum(x.astype(np.float16).astype(np.float32) + 0.75, 0) * 0.75
    np.testing.assert_array_equal(relaxvm.VirtualMachine(executable).main(x), want)


@pytest.mark.parametrize(("steps", "least"), [(2, 4096), (4, 1024)])
def test_the_plan_of_numpy_s_loops_is_asked_first(steps: int, least: int) -> None:
    """Short results do not reach the implementations in C, whose look at the arguments takes longer
    than the chain; results from some length on do."""
    text = "; ".join(["negative($0)", *(f"negative(%{i})" for i in range(steps - 1))])
    text += f" -> %{steps - 1}"
    fused_kernel = get_func("relaxvm.kernel.fused")
    for size in (7, least - 1, least, 2 * least):
        x, out = drawn(size, size), np.zeros(size, np.float32)
        fused_kernel(x, text, out)
        assert out.tobytes() == (x.tobytes() if steps % 2 == 0 else (-x).tobytes())
    reached: list[int] = []

    def general(*args: Any) -> None:
        reached.append(args[-1].size)

    asked_first = FusedKernel(general, fused._plans)
    for size in (7, least - 1, least, 2 * least):
        asked_first(drawn(size, size), text, np.zeros(size, np.float32))
    assert reached == [least, 2 * least]
    # Of other data types, chains have plans for results of all sizes.
    double = np.arange(2.0 * least)
    fused_kernel(double, text, np.zeros_like(double))
    reached.clear()
    asked_first(double, text, np.zeros_like(double))
    assert reached == []


def test_the_kernel_of_chains_has_its_parts() -> None:
    kernel = get_func("relaxvm.kernel.fused")
    assert kernel.reference is fused.fused
    assert kernel.implementations == ("chain.tiles",)
    assert kernel.may_write(np.dtype(np.int64), 8)
    alone = FusedKernel(print, {})
    assert alone.reference is print
    assert alone.implementations == ()


@pytest.mark.parametrize("dims", [[1, 64, 32, 32], ["n", 64, 32, 32]])
def test_one_operator_alone_runs_in_tiles(dims: list[Any]) -> None:
    """Of a model without anything else, and of a size that is large whatever the rest is."""
    b = np.zeros((64, 1, 1), np.float32)
    nodes = [node("Max", "x b", "y")]
    executable = relaxvm.compile(model(nodes, {"b": b}, dims, FLOAT), cache=False)
    assert "relaxvm.kernel.fused" in executable.as_text()
    x = drawn(3, 1, 64, 32, 32)
    got = relaxvm.VirtualMachine(executable).main(x)
    np.testing.assert_array_equal(got, np.maximum(x, b))


def test_relu_of_an_unknown_size_is_a_chain() -> None:
    program = model([node("Relu", "x", "y")], {}, ["n", "m"], FLOAT)
    executable = relaxvm.compile(program, cache=False)
    assert len(chains_in(executable)) == 1
    vm = relaxvm.VirtualMachine(executable)
    for size in (0, 1, 7, 40, 5000):
        x = drawn(size, 1, size)
        np.testing.assert_array_equal(vm.main(x), np.maximum(x, 0))
