"""Windows of pools that are mostly padding: only their taps on the image count."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxvm.kernels import _windows
from relaxvm.kernels._windows import Windows, taps
from relaxvm.registry import GLOBAL

LONG = 1 << 54

AXIS = st.tuples(
    st.integers(0, 6),  # length of the image
    st.sampled_from((1, 2, 3, 9, 20)),  # taps
    st.sampled_from((1, 2, 3, 8, 11)),  # stride
    st.sampled_from((0, 1, 4, 10)),  # padding before
    st.sampled_from((0, 1, 4, 10)),  # padding after
    st.sampled_from((1, 2, 5)),  # dilation
)


@settings(max_examples=300, deadline=None)
@given(st.lists(AXIS, min_size=1, max_size=2), st.booleans(), st.sampled_from((0, 4, 4096)))
def test_taps_are_those_on_the_image(
    axes: list[tuple[int, ...]], ceil_mode: bool, most_listed: int
) -> None:
    lengths, size, strides, before, after, dilation = zip(*axes, strict=True)
    try:
        windows = Windows(
            lengths, size, strides, before + after, dilation, ceil_mode=ceil_mode
        )
    except ValueError:
        return  # no window fits
    image = np.arange(np.prod(lengths), dtype=int).reshape(1, *lengths) + 1
    want, got = np.zeros((2, 1, *windows.count), int)
    for tap in itertools.product(*map(range, size)):
        inside = [windows.inside(i, *each) for i, each in enumerate(zip(tap, lengths, strict=True))]
        at, read_at = zip(*inside, strict=True)
        want[(..., *at)] += image[(..., *read_at)] * (1 + sum(tap))
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_windows, "_MOST_LISTED", most_listed)
        for tap, elements, results in taps(windows, image, got):
            results += elements * (1 + sum(tap))
            seen.append(tap)
    assert (got == want).all()
    assert seen == sorted(set(seen))


@settings(max_examples=300, deadline=None)
@given(AXIS, st.booleans(), st.booleans())
def test_counts_of_taps(axis: tuple[int, ...], ceil_mode: bool, padded: bool) -> None:
    length, size, stride, before, after, dilation = axis
    try:
        windows = Windows(
            (length,), (size,), (stride,), (before, after), (dilation,), ceil_mode=ceil_mode
        )
    except ValueError:
        return  # no window fits
    low, high = (-before, length + after) if padded else (0, length)
    places = [[at * stride - before + tap * dilation for tap in range(size)]
              for at in range(windows.count[0])]  # fmt: skip
    want = [sum(low <= place < high for place in window) for window in places]
    assert windows.taps_inside(0, length, padded=padded).tolist() == want


def test_counts_of_taps_of_any_size() -> None:
    windows = Windows((5,), (1 << 62,), (1,), ((1 << 62) - 1, 0), (1,), ceil_mode=False)
    assert windows.taps_inside(0, 5, padded=False).tolist() == [1, 2, 3, 4, 5]
    assert windows.taps_inside(0, 5, padded=True).tolist() == [1 << 62] * 5


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_windows_of_any_size(axes: int) -> None:
    """Neither memory nor time is in proportion to the padding."""
    x = np.random.default_rng(axes).normal(size=(1, 2, *(5, 4, 3)[:axes])).astype("f4")
    size, padding = (LONG,) + (1,) * (axes - 1), (LONG // 2,) + (0,) * (axes - 1)
    count = x.shape[2] + 1
    out = np.empty((1, 2, count, *x.shape[3:]), "f4")
    pool = GLOBAL.get(f"relaxvm.kernel.nn.max_pool{axes}d")
    pool(x, size, (1,) * axes, padding + padding, (1,) * axes, 0, out)
    np.testing.assert_array_equal(out, np.broadcast_to(x.max(2, keepdims=True), out.shape))
    mean = GLOBAL.get(f"relaxvm.kernel.nn.avg_pool{axes}d")
    mean(x, size, (1,) * axes, padding + padding, (1,) * axes, 0, 0, out)
    np.testing.assert_allclose(
        out, np.broadcast_to(x.mean(2, keepdims=True), out.shape), rtol=1e-5
    )
    # Windows that are farther apart than the image is long: between them lie 2^54 taps.
    steps = (LONG,) + (1,) * (axes - 1)
    out = np.empty((1, 2, 2, *x.shape[3:]), "f4")
    after = (LONG + LONG // 2, *padding[1:])
    pool(x, size, steps, padding + after, (1,) * axes, 0, out)
    np.testing.assert_array_equal(out[:, :, 0], x.max(2))
    assert (out[:, :, 1] == -np.inf).all()
