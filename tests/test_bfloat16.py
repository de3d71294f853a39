"""Products and convolutions with weights in bfloat16: every method of every set, and models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.errors import RelaxVMError
from relaxvm.kernels import PREFIX, _table, bfloat16, blocks, record_of
from relaxvm.kernels.bfloat16 import bits_of, widened
from relaxvm.kernels.cpu import SETS

from .test_integers import FLOAT, by_method, methods, model, node
from .test_kernel_sets import Case, Layer, reference

pytestmark = pytest.mark.skipif(not SETS, reason="no kernels for this processor")

LINEAR = methods("nn.linear_bfloat16")
FLOAT16 = methods("nn.linear_float16")
CONV2D = methods("nn.conv2d_bfloat16")
IN_PLACE = 3
"""So many rows are not rounded."""


def rounded(x: np.ndarray) -> np.ndarray:
    return widened(bits_of(x))


def rounds(method: str) -> bool:
    """Whether a method rounds the operands that are not constant."""
    return "widened" not in method


def bound_of(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Of the error of sums in float32, in any order: Higham, "Accuracy and Stability of Numerical
    Algorithms", 3.1; and of numbers below the least normal one, which count as 0."""
    terms = x.shape[-1] + 2
    sizes = np.abs(x).astype(np.float64) @ np.abs(weight)
    tiny = terms * 2.0**-126 * (1 + np.abs(x).max(initial=0) + np.abs(weight).max(initial=0))
    return terms * 2.0**-24 * sizes + tiny


def or_skip(which: str, method: str) -> Any:
    run = by_method(which, method)

    def call(*args: Any) -> None:
        if not run(*args):
            pytest.skip("this processor lacks the instructions")

    return call


def kernel(name: str) -> Any:
    record = record_of(PREFIX + name)
    assert record is not None
    return record.run


def run_linear(run: Any, x: np.ndarray, weight: np.ndarray, flag: int = 1) -> np.ndarray:
    out = np.full((len(x), weight.shape[1]), np.nan, np.float32)
    run(x, bfloat16.pack_matrix(weight), None, None, None, flag, out)
    return out


def test_rounding() -> None:
    """To the nearest even number, as ml_dtypes does it, for all kinds of numbers."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 100_000, dtype=np.uint32)
    bits[:4096] = np.arange(4096) << 16 | 0x8000  # halfway
    x = bits.view(np.float32)
    with np.errstate(all="ignore"):
        want = x.astype(ml_dtypes.bfloat16)
    finite = ~np.isnan(x)
    np.testing.assert_array_equal(bits_of(x)[finite], want.view(np.uint16)[finite])
    assert np.isnan(widened(bits_of(x))[~finite]).all()


@pytest.mark.parametrize(("which", "method"), LINEAR)
def test_products_are_within_the_bound(which: str, method: str) -> None:
    """Of products of operands that are rounded before, in float64; sizes up to three lines and
    blocks, and those beside the largest tiles."""
    run = or_skip(which, method)
    for seed in range(150):
        rng = np.random.default_rng(seed)
        rows, inputs, outputs = (int(n) for n in rng.integers(1, (100, 100, 70)))
        x = rng.standard_normal((rows, inputs)).astype(np.float32)
        x *= np.float32(10.0) ** rng.integers(-3, 4, (rows, 1))
        weight = rng.standard_normal((inputs, outputs)).astype(np.float32)
        got = run_linear(run, x, weight)
        exact_x = rounded(x) if rounds(method) and rows > IN_PLACE else x
        want = exact_x.astype(np.float64) @ rounded(weight)
        error = np.abs(got - want)
        assert (error <= bound_of(exact_x, rounded(weight))).all(), f"seed {seed}"


@pytest.mark.parametrize(("which", "method"), [*LINEAR, (SETS[0] if SETS else "", "reference")])
def test_what_follows_products(which: str, method: str) -> None:
    name = "nn.linear_bfloat16"
    run = reference(name) if method == "reference" else or_skip(which, method)
    for seed in range(80):
        layer = Layer(seed)
        packed = bfloat16.pack_matrix(layer.weight)
        layer.weight = rounded(layer.weight)  # which stays the same when it is packed
        if rounds(method) and layer.rows > IN_PLACE and method != "reference":
            layer.x = rounded(layer.x)
        out = layer.got(run, bfloat16.pack_matrix, 1)
        np.testing.assert_allclose(out, layer.want(), atol=5e-6, err_msg=str(seed))
        if layer.residual is not None:  # in its place
            in_place = layer.residual.copy()
            bias = None if layer.bias is None else blocks.pack_bias(layer.bias)
            run(layer.x, packed, bias, in_place, layer.function, 1, in_place)
            np.testing.assert_array_equal(in_place, out)


@pytest.mark.parametrize(("which", "method"), [*FLOAT16, (SETS[0] if SETS else "", "reference")])
def test_products_with_float16(which: str, method: str) -> None:
    """Exact weights, so within the usual bound; what follows is the same."""
    name = "nn.linear_float16"
    run = reference(name) if method == "reference" else or_skip(which, method)
    for seed in range(120):
        layer = Layer(seed)
        layer.weight = layer.weight.astype(np.float16).astype(np.float32)
        got = layer.got(run, bfloat16.pack_halves)
        np.testing.assert_allclose(got, layer.want(), atol=5e-6, err_msg=str(seed))


@pytest.mark.parametrize(("which", "method"), FLOAT16)
def test_every_number_of_float16_becomes_that_of_float32(which: str, method: str) -> None:
    """Products with a diagonal are the numbers themselves, in tiles and by row; those that are not
    finite are in a row of their own."""
    run = or_skip(which, method)
    numbers = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    special = numbers[~np.isfinite(numbers)]
    weight = np.where(np.isfinite(numbers), numbers, 0).reshape(64, 1024).astype(np.float16)
    packed, each = bfloat16.pack_halves(weight), np.eye(64, dtype=np.float32)
    out = np.empty((64, 1024), np.float32)
    run(each, packed, None, None, None, out)
    np.testing.assert_array_equal(out, weight)
    for row in range(64):
        run(each[row : row + 1], packed, None, None, None, out[:1])
        np.testing.assert_array_equal(out[0], weight[row])
    for rows in (1, 5):
        out = np.empty((rows, len(special)), np.float32)
        packed = bfloat16.pack_halves(special[None])
        run(np.ones((rows, 1), np.float32), packed, None, None, None, out)
        np.testing.assert_array_equal(out[-1], special.astype(np.float32))


@pytest.mark.parametrize("which", SETS)
def test_operands_that_may_not_be_rounded(which: str) -> None:
    """The methods that round refuse, and there is one that does not."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((50, 70)).astype(np.float32)
    weight = rng.standard_normal((70, 40)).astype(np.float32)

    def refuse(*args: Any) -> None:
        raise RuntimeError("refused")

    names = tuple(method for of_set, method in LINEAR if of_set == which)
    got = run_linear(_table.DispatchedKernel(refuse, names, None, which), x, weight, 0)
    want = x.astype(np.float64) @ rounded(weight)
    assert (np.abs(got - want) <= bound_of(x, rounded(weight))).all()
    for method in filter(rounds, names):
        with pytest.raises(RuntimeError, match="refused"):
            run_linear(_table.DispatchedKernel(refuse, (method,), None, which), x, weight, 0)


@pytest.mark.parametrize(("which", "method"), LINEAR)
def test_a_row_does_not_depend_on_the_others(which: str, method: str) -> None:
    """Of more than those that are read in place: the same bits in each tile."""
    run = or_skip(which, method)
    rng = np.random.default_rng(2)
    x = rng.standard_normal((90, 75)).astype(np.float32)
    weight = rng.standard_normal((75, 50)).astype(np.float32)
    whole = run_linear(run, x, weight)
    for rows in (4, 5, 13, 15, 16, 17, 31, 32, 33, 57):
        np.testing.assert_array_equal(run_linear(run, x[:rows], weight), whole[:rows])


@pytest.mark.parametrize(("which", "method"), LINEAR)
def test_numbers_that_are_not_usual(which: str, method: str) -> None:
    """A NaN and infinities stay in their rows; numbers below the least normal one count as
    themselves or as 0; the greatest one becomes infinite where it is rounded."""
    run = or_skip(which, method)
    for rows in (2, 40):
        x = np.ones((rows, 33), np.float32)
        x[0, 32], x[1, 0] = np.nan, np.inf
        if rows > 2:
            x[2], x[3, 5] = 1e-39, np.finfo(np.float32).max
        got = run_linear(run, x, np.ones((33, 20), np.float32))
        assert np.isnan(got[0]).all()
        assert (got[1] == np.inf).all()
        if rows > 2:
            assert (np.abs(got[2]) < 1e-37).all()
            assert (got[3] == (np.inf if rounds(method) else np.finfo(np.float32).max)).all()
            assert (got[4:] == 33).all()


@pytest.mark.parametrize(("which", "method"), CONV2D)
@pytest.mark.parametrize("kind", ["direct", "groups"])
def test_convolutions(kind: str, which: str, method: str) -> None:
    """Beside the definition in float64, of operands that are rounded before."""
    run = or_skip(which, method)
    for seed in range(60):
        case = Case(kind, seed)
        packed = bfloat16.pack_convolution(case.weight)
        np.testing.assert_array_equal(packed, bfloat16.narrowed_blocks(case.packed))
        x = rounded(case.x) if rounds(method) else case.x
        case.sums, case.packed = case.sums_of(x, rounded(case.weight)), packed
        error = np.abs(case.got(run) - case.want())
        assert error.max(initial=0) < 1e-5, f"seed {seed}"


@pytest.mark.parametrize(("which", "method"), CONV2D)
def test_nan_stays_in_its_windows(which: str, method: str) -> None:
    x = np.ones((1, 1, 9, 9, 16), np.float32)
    x[0, 0, 4, 4, 3] = np.nan
    weight = bfloat16.pack_convolution(np.ones((16, 16, 3, 3), np.float32))
    out = np.empty((1, 1, 9, 9, 16), np.float32)
    or_skip(which, method)(
        x, weight, None, None, (1, 1), (1,) * 4, (1, 1), 1, 0.0, 6.0, *[None] * 4, out
    )
    found = np.isnan(out[0, 0, :, :, 0])
    assert found[3:6, 3:6].all()
    assert found.sum() == 9


FAULTS: dict[str, tuple[Callable[[list[Any]], Any], str]] = {
    "weights in float32": (
        lambda a: a.__setitem__(1, np.ones((2, 1, 16, 16, 2), "i2")),
        "weight: expected bits of bfloat16 in uint16",
    ),
    "weights of another layout": (
        lambda a: a.__setitem__(1, np.ones((2, 1, 16, 2, 16), "u2")),
        r"weight: expected 5 dimensions, the last of them \[16, 16, 2\]",
    ),
    "other inputs": (
        lambda a: a.__setitem__(0, np.ones((5, 33), "f4")), "weight: expected lines for 33 inputs"
    ),
    "more columns": (lambda a: a.__setitem__(-1, np.ones((5, 33), "f4")), "out: expected columns"),
    "a short bias": (lambda a: a.__setitem__(2, np.ones(30, "f4")), "bias: expected 32 elements"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_products_that_do_not_fit(fault: str) -> None:
    """No method takes them, and the reference says why."""
    args: list[Any] = [np.ones((5, 20), "f4"), np.ones((2, 1, 16, 16, 2), "u2"), None, None, None,
                       1, np.ones((5, 30), "f4")]  # fmt: skip
    change, message = FAULTS[fault]
    change(args)
    args[-1][...] = 7
    with pytest.raises((RelaxVMError, ValueError, TypeError), match=message):
        kernel("nn.linear_bfloat16")(*args)
    assert {*args[-1].flat} == {7}


def test_a_convolution_that_does_not_fit() -> None:
    image = np.ones((1, 3, 5, 5, 16), "f4")
    weight = np.ones((2, 1, 1, 1, 16, 16, 2), "u2")
    out = np.zeros((1, 2, 5, 5, 16), "f4")
    with pytest.raises((RelaxVMError, ValueError), match="expected pairs of blocks for 3 blocks"):
        kernel("nn.conv2d_bfloat16")(
            image, weight, None, None, (1, 1), (0,) * 4, (1, 1), 1, *[None] * 6, out
        )


# Models

rng = np.random.default_rng(7)


def drawn(*shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def network() -> Any:
    """Convolutions of three kinds, and two products."""
    weights = {
        "stem": drawn(32, 3, 3, 3), "three": drawn(32, 32, 3, 3), "one": drawn(64, 32, 1, 1),
        "each": drawn(64, 1, 3, 3), "w": drawn(64, 80), "bias": drawn(80), "last": drawn(80, 70),
    }  # fmt: skip
    nodes = [
        node("Conv", "x stem", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "b"),
        node("Conv", "b three", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "d"),
        node("Conv", "d one", "e"), node("Conv", "e each", "f", pads=[1, 1, 1, 1], group=64),
        node("GlobalAveragePool", "f", "g"), node("Flatten", "g", "h"),
        node("Gemm", "h w bias", "i"), node("Relu", "i", "j"), node("MatMul", "j last", "y"),
    ]  # fmt: skip
    return model(nodes, weights, [5, 3, 14, 14], FLOAT)


def kernels_of(executable: Any) -> set[str]:
    return {info.name.removeprefix("relaxvm.kernel.") for info in executable.functions}


def test_models() -> None:
    """What takes bfloat16, and how far results are from those in float32: not much, but not
    nothing."""
    program = network()
    x = rng.standard_normal((5, 3, 14, 14)).astype(np.float32)
    plain = relaxvm.compile(program, cache=False)
    half = relaxvm.compile(program, cache=False, precision="bfloat16")
    assert {"nn.linear_bfloat16", "nn.conv2d_bfloat16", "nn.conv2d_depthwise_blocks"} <= kernels_of(
        half
    )
    assert "nn.linear_blocks" not in kernels_of(half)
    assert not any("bfloat16" in name for name in kernels_of(plain))
    want, got = (relaxvm.VirtualMachine(each)["main"](x) for each in (plain, half))
    error = np.abs(np.asarray(got) - np.asarray(want)).max() / np.abs(np.asarray(want)).max()
    assert 1e-5 < error < 2e-2
    low = relaxvm.compile(program, cache=False, precision="bfloat16", memory="low")
    assert "nn.conv2d_winograd_blocks" not in kernels_of(low)


def test_weights_take_half_the_memory() -> None:
    weight = drawn(512, 512)
    program = model([node("MatMul", "x w", "y")], {"w": weight}, [4, 512], FLOAT)
    sizes = [len(relaxvm.compile(program, cache=False, precision=precision).to_bytes())
             for precision in ("default", "bfloat16")]  # fmt: skip
    assert sizes[0] > weight.nbytes
    assert weight.nbytes / 2 < sizes[1] < weight.nbytes / 2 + 20_000


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_stored_weights_of_16_bits_stay_so(dtype: str) -> None:
    """As a model has them that casts its weights to float32: nothing is rounded."""
    weight = drawn(256, 256)
    if dtype == "bfloat16":
        weight = rounded(weight)
    else:
        weight = weight.astype(np.float16).astype(np.float32)
    kept = weight.astype(dtype) if dtype == "float16" else weight
    nodes = [node("MatMul", "x w", "y")]
    if dtype == "float16":
        nodes = [node("Cast", "w", "wide", to=1), node("MatMul", "x wide", "y")]
    program = model(nodes, {"w": kept}, [5, 256], FLOAT)
    for precise in (False, True):
        executable = relaxvm.compile(program, cache=False, precise=precise)
        assert f"nn.linear_{dtype}" in kernels_of(executable)
        assert len(executable.to_bytes()) < 2 * weight.size + 20_000
        x = rng.standard_normal((5, 256)).astype(np.float32)
        got = np.asarray(relaxvm.VirtualMachine(executable)["main"](x))
        want = x.astype(np.float64) @ weight
        assert (np.abs(got - want) <= bound_of(x, weight)).all()


def test_results_do_not_depend_on_threads_or_runs() -> None:
    vm = relaxvm.VirtualMachine(relaxvm.compile(network(), cache=False, precision="bfloat16"))
    x = rng.standard_normal((5, 3, 14, 14)).astype(np.float32)
    before = relaxvm.get_num_threads()
    try:
        found = []
        for count in (1, 2, 3, 8, 1):
            relaxvm.set_num_threads(count)
            found.append(np.asarray(vm["main"](x)).copy())
    finally:
        relaxvm.set_num_threads(before)
    for each in found[1:]:
        np.testing.assert_array_equal(each, found[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "float16"}, "precision: expected one of default, bfloat16, got 'float16'"),
        ({"precision": "bfloat16", "precise": True},
         "precise=True and precision='bfloat16' exclude each other"),
        ({"precision": "bfloat16", "relax_pipeline": "zero"},
         "precise, memory and precision are for the pipelines default and dataflow, got 'zero'"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        relaxvm.compile(network(), cache=False, **settings)
    with pytest.raises(ValueError, match=message):
        relaxvm.build(network(), **settings)
