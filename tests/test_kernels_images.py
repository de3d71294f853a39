"""Convolutions and pooling, compared with plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.kernels import PREFIX
from relaxvm.kernels.convolution import _COLUMNS
from relaxvm.values import Shape

from .kernel_examples import bools, counts, normal, reference, seeded  # noqa: F401


def run(name: str, *args: Any) -> None:
    assert relaxvm.get_func(PREFIX + name)(*args) is None


def check(name: str, *args: Any, want: np.ndarray, rtol: float = 1e-12) -> None:
    out = np.full(want.shape, 77).astype(want.dtype)
    run(name, *args, out)
    np.testing.assert_allclose(out, want, rtol=rtol, atol=rtol)


def refuses(name: str, *args: Any, error: type[Exception], message: str) -> None:
    """`args` include the output."""
    with pytest.raises(error, match=f"^{name}: {message}"):
        run(name, *args)


SEEDS = pytest.mark.parametrize("seed", range(25))


class Draw:
    """Draws random consistent attributes."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.size = rng.integers(1, 4, 2).tolist()
        self.strides = rng.integers(1, 4, 2).tolist()
        self.padding = rng.integers(0, 3, 4).tolist()
        self.dilation = rng.integers(1, 4, 2).tolist()
        self.groups, inputs, outputs = rng.integers(1, 4, 3).tolist()
        if seed % 5 == 0:
            inputs = 1  # depthwise, if outputs is 1 too
            outputs = 1 + seed % 2
        height, width = (
            d * (k - 1) + 1 + int(rng.integers(0, 6))
            for d, k in zip(self.dilation, self.size, strict=True)
        )
        self.image = (2, self.groups * inputs, height, width)
        self.weight = (self.groups * outputs, inputs, *self.size)
        self.flags = rng.integers(0, 2, 2).tolist()


# Convolutions


@SEEDS
@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_conv2d(seed: int, dtype: Any) -> None:
    draw = Draw(seed)
    x, weight = (counts(*shape, dtype=dtype) for shape in (draw.image, draw.weight))
    attributes = Shape(draw.strides), Shape(draw.padding), Shape(draw.dilation), draw.groups
    want = reference("nn.conv2d", x, weight, *attributes)
    check("nn.conv2d", x, weight, *attributes, want=want)
    strided = np.empty((*want.shape, 2), dtype)[..., 0]
    run("nn.conv2d", x[:, :, ::-1], weight[::-1], *attributes, strided)
    again = reference("nn.conv2d", x[:, :, ::-1], weight[::-1], *attributes)
    np.testing.assert_allclose(strided, again)


@SEEDS
def test_conv1d(seed: int) -> None:
    draw = Draw(seed)
    x, weight = normal(*draw.image[:2], draw.image[3]), normal(*draw.weight[:2], draw.weight[3])
    attributes = (
        Shape(draw.strides[1:]), Shape(draw.padding[:2]), Shape(draw.dilation[1:]), draw.groups
    )  # fmt: skip
    check("nn.conv1d", x, weight, *attributes, want=reference("nn.conv1d", x, weight, *attributes))


ONES, NO_PAD = Shape([1, 1]), Shape([0, 0, 0, 0])


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize(("dtype", "out"), [("int8", "int32"), ("float16", "float32"),
                                            ("uint8", "float64")])  # fmt: skip
def test_a_wider_result(groups: int, dtype: str, out: str) -> None:
    x, weight = counts(2, 8, 4, 4, dtype=dtype) * 9, counts(8, 8 // groups, 3, 3, dtype=dtype) * 9
    attributes = ONES, Shape([1, 1, 1, 1]), ONES, groups
    want = reference("nn.conv2d", x.astype(np.int64), weight.astype(np.int64), *attributes)
    check("nn.conv2d", x, weight, *attributes, want=want.astype(out))


@pytest.mark.parametrize("groups", [1, 64])
def test_float16_is_added_up_in_float32(groups: int) -> None:
    x = np.full((1, 64, 9, 9), 0.5, np.float16)
    weight = np.full((64, 64 // groups, 9, 9), 0.5, np.float16)
    want = np.full((1, 64, 1, 1), 64 // groups * 81 / 4, np.float16)
    check("nn.conv2d", x, weight, ONES, NO_PAD, ONES, groups, want=want, rtol=0)


@pytest.mark.parametrize("strides", [ONES, Shape([2, 2])])
@pytest.mark.parametrize("padding", [NO_PAD, Shape([1, 0, 0, 1])])
def test_windows_of_one_element(strides: Shape, padding: Shape) -> None:
    x, weight = normal(2, 6, 5, 4), normal(4, 3, 1, 1)
    want = reference("nn.conv2d", x, weight, strides, padding, ONES, 2)
    check("nn.conv2d", x, weight, strides, padding, ONES, 2, want=want)
    check(
        "nn.conv2d",
        x.transpose(0, 1, 3, 2),
        weight,
        strides,
        NO_PAD,
        ONES,
        2,
        want=reference("nn.conv2d", x.transpose(0, 1, 3, 2), weight, strides, NO_PAD, ONES, 2),
    )


def test_images_in_several_blocks_of_rows() -> None:
    width = 64
    rows = _COLUMNS // (2 * 9 * width)
    x, weight = normal(1, 2, 2 * rows + 5, width + 2), normal(3, 2, 3, 3)
    want = sum(
        np.einsum("nchw,oc->nohw", x[:, :, i : i + 2 * rows + 3, j : j + width], weight[..., i, j])
        for i in range(3)
        for j in range(3)
    )
    assert want.shape[2] > 2 * rows
    check("nn.conv2d", x, weight, ONES, NO_PAD, ONES, 1, want=want)


def test_a_row_larger_than_a_block() -> None:
    x, weight = normal(1, 1, 2, _COLUMNS), normal(2, 1, 1, 2)
    want = x[..., :-1] * weight[:, :, :, :1][:, 0] + x[..., 1:] * weight[:, :, :, 1:][:, 0]
    check("nn.conv2d", x, weight, ONES, NO_PAD, ONES, 1, want=want)


def test_convolutions_of_empty_tensors() -> None:
    weight = normal(3, 2, 2, 2)
    for shape in ((0, 2, 4, 4), (2, 2, 1, 4)):
        x = np.empty(shape)
        padding = Shape([1, 0, 0, 0])
        check(
            "nn.conv2d",
            x,
            weight,
            ONES,
            padding,
            ONES,
            1,
            want=reference("nn.conv2d", x, weight, ONES, padding, ONES, 1),
        )
    check(
        "nn.conv2d",
        np.empty((1, 0, 3, 3)),
        np.empty((2, 0, 2, 2)),
        ONES,
        NO_PAD,
        ONES,
        1,
        want=np.zeros((1, 2, 2, 2)),
    )


def test_convolution_over_its_input() -> None:
    x, weight = normal(2, 3, 4, 4), normal(3, 3, 3, 3)
    padding = Shape([1, 1, 1, 1])
    want = reference("nn.conv2d", x, weight, ONES, padding, ONES, 1)
    run("nn.conv2d", x, weight, ONES, padding, ONES, 1, x)
    np.testing.assert_allclose(x, want)


def test_convolutions_refuse() -> None:
    x, weight, out = normal(2, 4, 5, 5), normal(6, 2, 3, 3), normal(2, 6, 3, 3)
    name = "nn.conv2d"

    def refused(*args: Any, message: str, error: type[Exception] = ValueError) -> None:
        refuses(name, *args, out, error=error, message=message)

    refused(x[0], weight, ONES, NO_PAD, ONES, 2, message="expected tensors of 4 dimensions, got x")
    refused(x, weight, ONES, NO_PAD, ONES, 1, message=r"expected x\[batch, inputs, .*, groups 1$")
    refused(x, weight[:5], ONES, NO_PAD, ONES, 2, message=r"expected x\[batch.* multiple of groups")
    refused(x, weight, ONES, NO_PAD, ONES, 0, message="groups: expected at least 1, got 0")
    refused(x, weight[:, :, :0], ONES, NO_PAD, ONES, 2, message="weight: expected a window, got")
    refused(x, weight, Shape([1]), NO_PAD, ONES, 2, message=r"strides: expected 2 ints, got \[1\]")
    refused(x, weight, Shape([0, 1]), NO_PAD, ONES, 2, message="strides: .* at least 1")
    refused(x, weight, ONES, ONES, ONES, 2, message="padding: expected 4 ints")
    refused(x, weight, ONES, Shape([0, -1, 0, 0]), ONES, 2, message="padding: .* at least 0")
    refused(
        x,
        weight,
        ONES,
        NO_PAD,
        Shape([3, 1]),
        2,
        message="expected windows that fit the padded image, got a window of 7 for 5",
    )
    refused(x, weight, Shape([2, 1]), NO_PAD, ONES, 2, message=r"out: .*float64\[2, 6, 2, 3\]")
    refused(
        x,
        weight.astype(np.float32),
        ONES,
        NO_PAD,
        ONES,
        2,
        error=TypeError,
        message="expected equal data types that numpy.subtract takes",
    )
    refused(
        bools(2, 4, 5, 5),
        bools(6, 2, 3, 3),
        ONES,
        NO_PAD,
        ONES,
        2,
        error=TypeError,
        message="expected equal data types",
    )
    refuses(
        "nn.conv1d",
        x,
        weight,
        Shape([1]),
        Shape([0, 0]),
        Shape([1]),
        2,
        out,
        error=ValueError,
        message="expected tensors of 3 dimensions, got x",
    )
    refuses(
        "nn.conv1d",
        x[:, :2, 0],
        weight[:4, :, 0],
        ONES,
        Shape([0, 0]),
        Shape([1]),
        1,
        out,
        error=ValueError,
        message="strides: expected 1 int,",
    )


# Pools


@SEEDS
def test_pools(seed: int) -> None:
    draw = Draw(seed)
    x = normal(*draw.image)
    padding = Shape(min(p, k - 1) for p, k in zip(draw.padding, draw.size * 2, strict=True))
    ceil_mode, count_include_pad = draw.flags
    args = (x, Shape(draw.size), Shape(draw.strides), padding, Shape(draw.dilation), ceil_mode)
    check("nn.max_pool2d", *args, want=reference("nn.max_pool2d", *args))
    args = (*args, count_include_pad)
    check("nn.avg_pool2d", *args, want=reference("nn.avg_pool2d", *args))


TWO = Shape([2, 2])


def test_a_last_window_begins_on_the_image_or_before_it() -> None:
    x = np.arange(5.0).reshape(1, 1, 1, 5)
    size, strides = Shape([1, 2]), Shape([1, 3])
    for ceil_mode, want in ((False, [0, 3]), (True, [0, 3])):
        args = (x, size, strides, Shape([0, 1, 0, 1]), ONES, ceil_mode)
        check("nn.max_pool2d", *args, want=np.array([[[want]]], float))
    args = (x, size, Shape([1, 2]), NO_PAD, ONES)
    check("nn.max_pool2d", *args, False, want=np.array([[[[1, 3]]]], float))
    check("nn.max_pool2d", *args, True, want=np.array([[[[1, 3, 4]]]], float))
    check("nn.avg_pool2d", *args, True, True, want=np.array([[[[0.5, 2.5, 4]]]]))


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.float16, np.float32, np.bool_])
def test_max_pool2d_of_types(dtype: Any) -> None:
    x = (counts(1, 2, 4, 4) - 5).astype(dtype)
    args = (TWO, TWO, Shape([1, 1, 1, 1]), ONES, False)
    check("nn.max_pool2d", x, *args, want=reference("nn.max_pool2d", x, *args))


def test_max_pool2d_keeps_nan_and_gives_the_least_value_for_empty_windows() -> None:
    x = np.array([[[[np.nan, 1], [2, 3]]]])
    check("nn.max_pool2d", x, TWO, TWO, NO_PAD, ONES, False, want=np.full((1, 1, 1, 1), np.nan))
    padding = Shape([1, 0, 0, 0])
    want = np.array([[[[-np.inf] * 2, [np.nan, 1], [2, 3]]]])
    check("nn.max_pool2d", x, ONES, ONES, padding, ONES, False, want=want)
    x = np.array([[[[5]]]], np.int8)
    check(
        "nn.max_pool2d",
        x,
        ONES,
        ONES,
        padding,
        ONES,
        False,
        want=np.array([[[[-128], [5]]]], np.int8),
    )


def test_avg_pool2d_of_float16_is_added_up_in_float32() -> None:
    x = np.full((1, 3, 64, 64), 1001, np.float16)
    check(
        "nn.avg_pool2d",
        x,
        Shape([64, 64]),
        ONES,
        NO_PAD,
        ONES,
        False,
        True,
        want=np.full((1, 3, 1, 1), 1001, np.float16),
        rtol=0,
    )


def test_avg_pool2d_without_elements_is_zero() -> None:
    x = np.ones((1, 1, 1, 1))
    want = np.array([[[[0.0], [1.0]]]])
    for include in (False, True):
        check("nn.avg_pool2d", x, ONES, ONES, Shape([1, 0, 0, 0]), ONES, False, include, want=want)


def test_pools_of_many_channels() -> None:
    x = normal(3, 50, 20, 20)
    args = (x, TWO, TWO, NO_PAD, ONES, False)
    parts = x.reshape(3, 50, 10, 2, 10, 2)
    check("nn.max_pool2d", *args, want=parts.max((3, 5)))
    check("nn.avg_pool2d", *args, False, want=parts.mean((3, 5)))
    check("nn.max_pool2d", x[:0], *args[1:], want=np.empty((0, 50, 10, 10)))


def test_pools_refuse() -> None:
    x, out = normal(1, 1, 4, 4), np.empty((1, 1, 2, 2))
    for name, more in (("nn.max_pool2d", ()), ("nn.avg_pool2d", (False,))):

        def refused(
            *args: Any,
            message: str,
            error: type[Exception] = ValueError,
            name: str = name,
            more: Any = more,
        ) -> None:
            refuses(name, *args, *more, out, error=error, message=message)

        refused(x[0], TWO, TWO, NO_PAD, ONES, False, message=r"x: expected a tensor \[batch, chan")
        refused(x, Shape([2]), TWO, NO_PAD, ONES, False, message="pool_size: expected 2 ints")
        refused(x, Shape([0, 2]), TWO, NO_PAD, ONES, False, message="pool_size: .* at least 1")
        refused(x, Shape([5, 2]), TWO, NO_PAD, ONES, False, message="expected windows that fit")
        refused(x, TWO, TWO, NO_PAD, ONES, 3, message="ceil_mode: expected a bool, got int 3")
        refused(x, TWO, ONES, NO_PAD, ONES, False, message=r"out: expected float64\[1, 1, 3, 3\]")
    refuses(
        "nn.avg_pool2d",
        counts(1, 1, 4, 4),
        TWO,
        TWO,
        NO_PAD,
        ONES,
        False,
        False,
        out,
        error=TypeError,
        message="expected floats, got x int64",
    )
    refuses(
        "nn.avg_pool2d",
        x,
        TWO,
        TWO,
        NO_PAD,
        ONES,
        False,
        2,
        out,
        error=ValueError,
        message="count_include_pad: expected a bool",
    )


def test_regions_do_not_see_what_is_elsewhere() -> None:
    """An infinity or NaN in an image is in the regions that have it alone."""
    x = np.arange(2 * 6 * 5, dtype=np.float32).reshape(1, 2, 6, 5)
    rois = np.array([[0, 0, 0, 1.5, 1.5], [0, 2, 3, 4, 5]], np.float32)
    for mode in ("avg", "max"):
        settings = [(2, 2), 1.0, 2, 0, 0.0, mode, 0]
        clean, odd = np.empty((2, 2, 2, 2, 2), np.float32)
        run("vision.roi_align", x, rois, *settings, clean)
        other = x.copy()
        other[0, :, 4, 3] = np.nan
        other[0, 0, 5, 0] = np.inf
        run("vision.roi_align", other, rois, *settings, odd)
        np.testing.assert_allclose(odd[0], clean[0], rtol=1e-6)
        assert np.isnan(odd[1]).any()
    far = np.array([[0, 50, 50, 60, 60]], np.float32)
    out = np.empty((1, 2, 2, 2), np.float32)
    run("vision.roi_align", np.full_like(x, np.inf), far, (2, 2), 1.0, 2, 0, 0.0, "avg", 0, out)
    assert not out.any()


def test_a_cubic_curve_takes_its_neighbours_from_the_border_one_by_one() -> None:
    x = np.array([[[[1, 5, 2, 4]]]], np.float32)
    out = np.empty((1, 1, 1, 2), np.float32)
    # The coordinates of places 4 and -0.5.
    grid = np.array([[[[1.25, 0], [-1, 0]]]], np.float32)
    run("image.grid_sample", x, grid, "bicubic", "border", 0, 0, 0, out)
    curve = [0.5 ** 3 * 1.25 - 0.5 ** 2 * 2.25 + 1]  # the weight of the two inner neighbours
    inner, outer = curve[0], (1 - 2 * curve[0]) / 2
    np.testing.assert_allclose(out[0, 0, 0], [4, 1 * (outer + 2 * inner) + 5 * outer], rtol=1e-6)
