"""Kernels in C have the results of the Python kernels, bit for bit, their errors and warnings."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import pickle
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.kernels import PREFIX, record_of
from relaxvm.kernels._table import DispatchedKernel
from relaxvm.kernels.cpu import CPU, SETS
from relaxvm.kernels.implementations import IMPLEMENTATIONS as ALL
from relaxvm.kernels.implementations import Impl, implementations_of
from relaxvm.registry import GLOBAL
from relaxvm.values import Shape

from . import children
from .operators.programs import kernel_calls
from .operators.table import OPERATORS
from .operators.test_kernels import examples

PACKAGE = Path(relaxvm.__file__).parent
KERNELS: dict[str, DispatchedKernel] = {
    name.removeprefix(PREFIX): GLOBAL.get(name)
    for name in relaxvm.registry.list_funcs()
    if name.startswith(PREFIX) and isinstance(GLOBAL.get(name), DispatchedKernel)
}
IMPLEMENTATIONS = [impl for impl in ALL if impl.of_set is None]
"""The others are in test_kernel_sets.py."""
DTYPES = ["f4", "f4", "f4", "f8", "f8", "f8", "f2", "i8", "i4", "u1", "?", "F", ">f4"]
SHAPES = [
    (), (1,), (2,), (7,), (64,), (1, 1), (1, 5), (3, 1), (3, 5), (0, 3), (4, 0), (2, 3, 4),
    (1, 1, 8), (2, 1, 3), (3, 40), (2, 9, 17), (5, 130), (2, 3, 2, 5), (2, 1, 1, 2, 3, 2),
]  # fmt: skip


class Draw:
    """Draws random arguments."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def pick(self, choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def tensor(self, shape: tuple[int, ...], dtype: Any, *, odd: bool | None = None) -> np.ndarray:
        """A tensor in one of many layouts, sometimes with NaN, infinities and -0."""
        dtype = np.dtype(dtype)
        values = self.rng.standard_normal(shape) * 10.0 ** self.rng.integers(-1, 3)
        x = np.asarray(values).astype(dtype.newbyteorder("="))
        if dtype.kind in "fF" and (self.chance(0.2) if odd is None else odd) and x.size:
            flat = x.reshape(-1)
            flat[self.rng.integers(x.size, size=2)] = self.rng.choice(
                [np.nan, np.inf, -np.inf, -0.0, 1e38, 1e-42], 2)  # fmt: skip
        if dtype.kind in "iu":
            x = np.asarray(self.rng.integers(0, 100, shape), dtype)
        return self.laid_out(x.astype(dtype))

    def laid_out(self, x: np.ndarray) -> np.ndarray:
        layout = self.rng.integers(30)
        if layout == 0:
            return np.asfortranarray(x)
        if layout == 1 and x.ndim:
            return np.repeat(x, 2, -1)[..., ::2]
        if layout == 2 and x.ndim:
            return x[..., ::-1].copy()[..., ::-1]
        if layout == 3 and x.ndim:
            return np.concatenate([x, x], -1)[..., : x.shape[-1]]
        if layout == 4:
            memory = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype)  # not aligned
            memory[...] = x.reshape(-1)
            return memory.reshape(x.shape)
        return x

    def out(self, shape: tuple[int, ...], dtype: Any, *inputs: Any) -> np.ndarray:
        """An output: sometimes of a wrong shape or data type, read-only, or one of the inputs."""
        fault = self.rng.integers(40)
        dtype = np.dtype(dtype)
        if fault == 0:
            shape = (*shape, 2) if self.chance(0.5) else (1, *shape)
        elif fault == 1:
            dtype = np.dtype(self.pick(DTYPES))
        out = self.laid_out(np.full(shape, 7).astype(dtype))
        if fault == 2:
            out.flags.writeable = False
        alike = [x for x in inputs if isinstance(x, np.ndarray) and x.shape == shape]
        if fault in (3, 4) and alike:
            return alike[0]
        tall = [x for x in inputs if isinstance(x, np.ndarray) and x.size > out.size > 0]
        if fault == 5 and tall and tall[0].flags.c_contiguous:
            return tall[0].reshape(-1)[-out.size :].view(tall[0].dtype).reshape(shape)
        return out

    def axes(self, ndim: int) -> tuple[int, ...]:
        count = int(self.rng.integers(0, ndim + 1))
        start = int(self.rng.integers(0, ndim - count + 1))
        axes = list(range(start, start + count))
        if self.chance(0.2):
            self.rng.shuffle(axes)
        return tuple(int(a) - (ndim if self.chance(0.3) else 0) for a in axes)

    def axis(self, ndim: int) -> int:
        return int(self.rng.integers(-ndim - 1, ndim + 1)) if self.chance(0.1) else (
            int(self.rng.integers(-ndim, ndim)) if ndim and self.chance(0.6) else -1)  # fmt: skip


def _elementwise(draw: Draw) -> Iterator[Any]:
    x = draw.tensor(draw.pick(SHAPES), draw.pick(DTYPES[:7]))
    yield from (x, draw.out(x.shape, x.dtype, x))


def _binary(draw: Draw) -> Iterator[Any]:
    shape = draw.pick(SHAPES)
    dtype = draw.pick(DTYPES)
    other = tuple(1 if draw.chance(0.3) else dim for dim in shape)[int(draw.rng.integers(3)) :]
    a, b = draw.tensor(shape, dtype), draw.tensor(other, dtype)
    if draw.chance(0.1):
        b = draw.pick([0, 2, -1, 0.5, True, draw.tensor(other, "f4")])
    operands = [a, b] if draw.chance(0.5) else [b, a]
    yield from operands
    yield draw.out(shape, draw.pick([dtype, "?"]), *operands)


def _cast(draw: Draw) -> Iterator[Any]:
    x = draw.tensor(draw.pick(SHAPES), draw.pick(DTYPES))
    lead = (2,) if draw.chance(0.2) else ()
    yield from (x, draw.out((*lead, *x.shape), draw.pick(DTYPES), x))


def _reshape(draw: Draw) -> Iterator[Any]:
    x = draw.tensor(draw.pick(SHAPES), draw.pick(DTYPES))
    shape = draw.pick([x.shape, (x.size,), (1, x.size, 1), (2, x.size // 2), x.shape[::-1]])
    yield from (x, draw.out(shape, x.dtype, x))


def _broadcast_to(draw: Draw) -> Iterator[Any]:
    x = draw.tensor(draw.pick(SHAPES), draw.pick(DTYPES))
    shape = tuple(3 if dim == 1 and draw.chance(0.5) else dim for dim in x.shape)
    yield from (x, draw.out((2, *shape) if draw.chance(0.3) else shape, x.dtype, x))


def _permute_dims(draw: Draw) -> Iterator[Any]:
    x = draw.tensor(draw.pick(SHAPES), draw.pick(DTYPES))
    axes = tuple(int(axis) for axis in draw.rng.permutation(x.ndim))
    given = draw.pick([(Shape(axes),), axes, (None,), ()]) if axes else ()
    order = axes if given and given != (None,) else tuple(range(x.ndim))[::-1]
    if draw.chance(0.05):
        given = (Shape([*axes, 0]),)
    yield from (x, *given, draw.out(tuple(x.shape[axis] for axis in order), x.dtype, x))


def _flip(draw: Draw) -> Iterator[Any]:
    x = draw.tensor(draw.pick(SHAPES), draw.pick(DTYPES))
    yield from (x, draw.axis(x.ndim), draw.out(x.shape, x.dtype, x))


def _strided_slice(draw: Draw) -> Iterator[Any]:
    x = draw.tensor(draw.pick(SHAPES[1:]), draw.pick(DTYPES))
    axes = tuple(sorted({int(a) for a in draw.rng.integers(0, x.ndim, 2)}))
    begin, end = (tuple(int(i) for i in draw.rng.integers(-6, 7, len(axes))) for _ in "ab")
    strides = tuple(int(draw.pick([-3, -1, 1, 1, 2, 2**62])) for _ in axes)
    if draw.chance(0.5):
        strides = (1,) * len(axes)
    index = [slice(None)] * x.ndim
    for axis, *bounds in zip(axes, begin, end, strides, strict=True):
        index[axis] = slice(*bounds)
    given = None if set(strides) == {1} and draw.chance(0.5) else Shape(strides)
    shape = x[tuple(index)].shape
    yield from (x, Shape(axes), Shape(begin), Shape(end), given, draw.out(shape, x.dtype, x))


def _concat(draw: Draw) -> Iterator[Any]:
    shape, dtype = draw.pick(SHAPES[1:]), draw.pick(DTYPES)
    axis = draw.axis(len(shape))
    at = axis % len(shape)
    lengths = [int(n) for n in draw.rng.integers(0, 4, draw.rng.integers(1, 4))]
    parts = [draw.tensor((*shape[:at], n, *shape[at + 1 :]), dtype) for n in lengths]
    yield from (*parts, axis)
    yield draw.out((*shape[:at], sum(lengths), *shape[at + 1 :]), dtype, *parts)


def _stack(draw: Draw) -> Iterator[Any]:
    shape, dtype = draw.pick(SHAPES), draw.pick(DTYPES)
    axis = draw.axis(len(shape) + 1)
    at = axis % (len(shape) + 1)
    parts = [draw.tensor(shape, dtype) for _ in range(int(draw.rng.integers(1, 4)))]
    yield from (*parts, axis)
    yield draw.out((*shape[:at], len(parts), *shape[at:]), dtype, *parts)


NUMBERS = [0, 1, 2, -1, 0.5, -3.25, 1e300, 1e-42, 300, math.nan, math.inf, True, 1 << 60]


def _fill(draw: Draw) -> Iterator[Any]:
    yield draw.pick(NUMBERS)
    yield draw.out(draw.pick(SHAPES), draw.pick(DTYPES))


def _full(draw: Draw) -> Iterator[Any]:
    dtype = draw.pick(DTYPES)
    scalar = draw.tensor(draw.pick([(), (), (), (1,)]), draw.pick([dtype, dtype, "f4"]))
    yield draw.pick([scalar, draw.pick(NUMBERS)])
    yield draw.out(draw.pick(SHAPES), dtype, scalar)


def _same(draw: Draw) -> Iterator[Any]:
    yield draw.out(draw.pick(SHAPES), draw.pick(DTYPES))


def _where(draw: Draw) -> Iterator[Any]:
    shape, dtype = draw.pick(SHAPES), draw.pick(DTYPES)

    def part() -> tuple[int, ...]:
        dims = tuple(1 if draw.chance(0.2) else dim for dim in shape)
        return dims[int(draw.rng.integers(3)) :] if draw.chance(0.3) else dims

    cond = draw.tensor(part(), draw.pick(["?"] * 9 + ["u1"]))
    cond = draw.laid_out(cond ^ draw.tensor(cond.shape, cond.dtype))
    a, b = (draw.pick([draw.tensor(part(), dtype)] * 3 + [draw.pick(NUMBERS)]) for _ in range(2))
    yield from (cond, a, b, draw.out(shape, dtype, a, b, cond))


def _clip(draw: Draw) -> Iterator[Any]:
    x = draw.tensor(draw.pick(SHAPES), draw.pick(DTYPES))
    yield from (x, draw.pick(NUMBERS), draw.pick(NUMBERS), draw.out(x.shape, x.dtype, x))


def _split(draw: Draw) -> Iterator[Any]:
    x = draw.tensor(draw.pick(SHAPES[1:]), draw.pick(DTYPES))
    axis = draw.axis(x.ndim)
    length = x.shape[axis % x.ndim]
    if draw.chance(0.5):
        count = int(draw.rng.integers(1, 5))
        sections: Any = count
        bounds = [min(i * -(-length // count), length) for i in range(count + 1)]
    else:
        inner = sorted(int(i) for i in draw.rng.integers(0, length + 2, draw.rng.integers(0, 3)))
        sections = Shape(inner[::-1] if draw.chance(0.1) else inner)
        bounds = [0, *[min(i, length) for i in inner], length]
    yield from (x, sections, axis)
    at = axis % x.ndim
    for begin, end in itertools.pairwise(bounds):
        yield draw.out((*x.shape[:at], end - begin, *x.shape[at + 1 :]), x.dtype, x)


def _arange(draw: Draw) -> Iterator[Any]:
    start, end = (int(draw.pick([0, 1, -7, 9, 2**31 - 3, -(2**62), 2**63 - 1])) for _ in range(2))
    if draw.chance(0.8):
        end = start + int(draw.rng.integers(-9, 40))
    step = draw.pick([1, 1, 1, 2, -1, -3, 7, 2**62])
    length = max(0, -((start - end) // step)) + int(draw.chance(0.1))
    dtype = draw.pick(["i8", "i8", "i4", "i4", "i2", "f4"])
    yield from (start, end, step, draw.out((min(length, 100),), np.dtype(dtype)))


OTHER_MODES = "wrap", "clip", "nan", "slow", "python"


def _take(draw: Draw) -> Iterator[Any]:
    x = draw.tensor(draw.pick(SHAPES[1:]), draw.pick(DTYPES))
    axis = draw.pick([None, draw.axis(x.ndim)])
    at = (axis or 0) % x.ndim
    high = x.shape[at] + int(draw.chance(0.1))
    count = draw.pick([(), (2,), (1, 3), (0,)])
    drawn = draw.rng.integers(-int(draw.chance(0.1)), max(1, high), count)
    dtype = draw.pick(["i8", "i8", "i8", "i4", "i4", "i4", "u4", "i2", "f4"])
    indices = draw.laid_out(np.asarray(drawn, dtype))
    mode = draw.pick([()] * 5 + [("fast",)] * 4 + [(m,) for m in OTHER_MODES])
    shape = (*x.shape[:at], *indices.shape, *x.shape[at + 1 :])
    yield from (x, indices, axis, *mode, draw.out(shape, x.dtype, x, indices))


def _reduced(shape: tuple[int, ...], gone: Any, keeps: bool) -> tuple[int, ...]:
    return tuple(1 if i in gone else n for i, n in enumerate(shape) if keeps or i not in gone)


def _reduction(draw: Draw) -> Iterator[Any]:
    x = draw.tensor(draw.pick(SHAPES), draw.pick(DTYPES))
    axes = draw.axes(x.ndim)
    given = draw.pick([(Shape(axes),), axes or (Shape(),), (None,)])
    gone = {axis % x.ndim for axis in axes} if given != (None,) else set(range(x.ndim))
    keeps = draw.chance(0.5)
    shape = _reduced(x.shape, gone, keeps)
    yield from (x, *given, draw.out(shape, x.dtype, x))


def _arg_reduction(draw: Draw) -> Iterator[Any]:
    x = draw.tensor(draw.pick(SHAPES), draw.pick(DTYPES))
    axis = draw.pick([None, draw.axis(x.ndim)])
    gone = range(x.ndim) if axis is None else {axis % x.ndim} if x.ndim else set()
    keeps = draw.chance(0.5)
    shape = _reduced(x.shape, gone, keeps)
    yield from (x, axis, draw.out(shape, "i8", x))


def _cumsum(draw: Draw) -> Iterator[Any]:
    x = draw.tensor(draw.pick(SHAPES), draw.pick(DTYPES))
    axis = draw.pick([None, draw.axis(x.ndim)])
    exclusive = draw.pick([0, 0, 0, False, False, 1, 2])
    yield from (x, axis, exclusive, draw.out((x.size,) if axis is None else x.shape, x.dtype, x))


def _softmax(draw: Draw) -> Iterator[Any]:
    x = draw.tensor(draw.pick(SHAPES), draw.pick(DTYPES[:7]))
    yield from (x, draw.axis(x.ndim), draw.out(x.shape, x.dtype, x))


def _norm(draw: Draw, factors: int) -> Iterator[Any]:
    x = draw.tensor(draw.pick(SHAPES[1:]), draw.pick(DTYPES[:7]))
    count = int(draw.rng.integers(not draw.chance(0.1), x.ndim + 1))
    axes = tuple(range(x.ndim - count, x.ndim)) if draw.chance(0.9) else draw.axes(x.ndim)
    shape = tuple(x.shape[axis] for axis in axes)
    epsilon = draw.pick([1e-5] * 9 + [0, 1, math.nan, math.inf, 1e300])
    choices = [0, 1, True, False, 1, 1, True, 2]
    flags = [draw.pick(choices) for _ in range(2)] if factors == 2 else []
    weights = [draw.tensor(shape, x.dtype) for _ in range(factors)]
    yield from (x, *weights, Shape([a % x.ndim for a in axes]), epsilon, *flags)
    yield draw.out(x.shape, x.dtype, x, *weights)


def _attention(draw: Draw) -> Iterator[Any]:
    b, s, t, n, h, d = (int(i) for i in draw.rng.integers(1, 6, 6))
    t = draw.pick([t, t, 33, 0])
    dtype = draw.pick(DTYPES[:7])
    shared, n = n, n * draw.pick([1, 1, 1, 2])
    shapes = (b, s, n, h), (b, t, shared, h), (b, t, shared, d)
    q, k, v = (draw.tensor(shape, dtype) for shape in shapes)
    bias = None
    if draw.chance(0.6):
        bias = draw.tensor(tuple(draw.pick([1, dim]) for dim in (b, n, s, t)), dtype)
        if draw.chance(0.2) and dtype != "f2":
            bias[...] = -np.inf
    scale = draw.pick([None, None, None, 0.5, 2, 2, math.nan])
    mask = draw.pick([None, None, None, "TopLeft", "BottomRight", "TopLeft", "Left"])
    yield from (q, k, v, bias, scale, mask, draw.out((b, s, n, d), dtype, q, k, v))


def _product(draw: Draw, transpose: str) -> Iterator[Any]:
    n, k, m = (int(i) for i in draw.rng.integers(0, 20, 3))
    a_shape = {"a": (k, n)}.get(transpose, (n, k))
    b_shape = {"b": (m, k)}.get(transpose, (k, m))
    lead = draw.pick([(), (), (2,), (1, 3), (2, 3), (2, 2, 2)])
    a_lead, b_lead = draw.pick([(lead, lead), (lead, ()), ((), lead), (lead, lead[1:])])
    if draw.chance(0.3):
        a_lead = (1,) * len(a_lead)
    dtype = draw.pick(DTYPES)
    a, b = draw.tensor((*a_lead, *a_shape), dtype), draw.tensor((*b_lead, *b_shape), dtype)
    if draw.chance(0.05):
        b = draw.tensor((k,), dtype)
    batch = np.broadcast_shapes(a_lead, b_lead)
    yield from (a, b, draw.out((*batch, n, m), draw.pick([dtype, dtype, "f8"]), a, b))


def _linear(draw: Draw) -> Iterator[Any]:
    k, m = (int(i) for i in draw.rng.integers(1, 20, 2))
    dtype = draw.pick(DTYPES)
    lead = draw.pick([(), (1,), (3,), (2, 3), (0,)])
    x, weight = draw.tensor((*lead, k), dtype), draw.tensor((m, k), dtype)
    bias = draw.pick([None, draw.tensor((m,), dtype), draw.tensor((m,), dtype),
                      draw.tensor((1,), dtype), draw.tensor((1, m), dtype)])  # fmt: skip
    yield from (x, weight, bias, draw.out((*lead, m), dtype, x, weight, bias))


def _from_cases(name: str, draw: Draw) -> Iterator[Any]:
    """A call of the table of cases, with its tensors in other layouts."""
    example = draw.pick(examples()[name])
    args = [draw.laid_out(a.copy()) if isinstance(a, np.ndarray) else a for a in example.args]
    yield from args
    for want in example.wants:
        yield draw.out(want.shape, want.dtype, *args)


def _pad(draw: Draw) -> Iterator[Any]:
    shape = [int(i) for i in draw.rng.integers(0, 6, draw.pick([1, 1, 2, 3, 4, 5]))]
    mode = draw.pick(["constant", "reflect", "replicate", "circular"])
    most = 2 if draw.chance(0.6) else 7
    least = -2 if draw.chance(0.1) else 0
    widths = [int(i) for i in draw.rng.integers(least, most, 2 * len(shape))]
    dims = [max(0, dim + sum(widths[2 * i : 2 * i + 2])) for i, dim in enumerate(shape)]
    x = draw.tensor(tuple(shape), draw.pick(DTYPES))
    value = draw.pick([0, 2, 1.0, -1.5, math.inf])
    yield from (x, Shape(widths), mode, value, draw.out(tuple(dims), x.dtype, x))


def _points(draw: Draw, axes: int) -> Iterator[Any]:
    """Convolutions with windows of one element, for the most part."""
    batch, inputs, outputs = (int(i) for i in draw.rng.integers(1, 5, 3))
    places = tuple(int(i) for i in draw.rng.integers(0, 7, axes))
    dtype = draw.pick(["f4", "f8"])
    window = (draw.pick([1, 1, 1, 1, 2]),) * axes
    x = draw.tensor((batch, inputs, *places), dtype)
    weight = draw.tensor((outputs, inputs, *window), dtype)
    stride, pad, groups = (draw.pick([usual] * 6 + [usual + 1]) for usual in (1, 0, 1))
    count = tuple(max(0, dim + 2 * pad - window[0]) // stride + 1 for dim in places)
    out = draw.out((batch, outputs, *count), dtype, x, weight)
    settings = Shape([stride] * axes), Shape([pad] * 2 * axes), Shape([1] * axes)
    yield from (x, weight, *settings, groups, out)


MAKERS: dict[str, Callable[[Draw], Iterator[Any]]] = {
    "nn.pad": _pad,
    "nn.conv1d": lambda draw: _points(draw, 1),
    "nn.conv2d": lambda draw: _points(draw, 2),
    "cast": _cast,
    "reshape": _reshape,
    "broadcast_to": _broadcast_to,
    "permute_dims": _permute_dims,
    "flip": _flip,
    "strided_slice": _strided_slice,
    "concat": _concat,
    "stack": _stack,
    "split": _split,
    "fill": _fill,
    "full": _full,
    "zeros": _same,
    "ones": _same,
    "where": _where,
    "clip": _clip,
    "take": _take,
    "arange": _arange,
    "cumsum": _cumsum,
    "nn.softmax": _softmax,
    "nn.log_softmax": _softmax,
    "nn.rms_norm": lambda draw: _norm(draw, 1),
    "nn.layer_norm": lambda draw: _norm(draw, 2),
    "nn.attention": _attention,
    "matmul": lambda draw: _product(draw, ""),
    "matmul_nt": lambda draw: _product(draw, "b"),
    "matmul_tn": lambda draw: _product(draw, "a"),
    "linear": _linear,
    **dict.fromkeys(["sum", "prod", "mean", "max", "min"], _reduction),
    **dict.fromkeys(["argmax", "argmin"], _arg_reduction),
    "relu": _elementwise,
}
ALIASES = {
    "astype", "expand_dims", "squeeze", "flatten", "nn.relu", "nn.attention_bias", "remainder",
}  # fmt: skip
BINARY = sorted(name for name, kernel in KERNELS.items() if kernel.ufunc and name not in ALIASES)
MAKERS |= dict.fromkeys(BINARY, _binary)


def maker_of(name: str) -> Callable[[Draw], Iterator[Any]]:
    """What draws arguments of a kernel: its own maker, or else the table of cases."""
    return MAKERS.get(name) or functools.partial(_from_cases, name)


def outcome(call: Callable[..., Any], args: list[Any]) -> tuple[Any, ...]:
    """Return the error, or the warnings and the bytes of all arrays afterwards."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            assert call(*args) is None
        except Exception as raised:
            return type(raised), str(raised)
    said = [(w.category, str(w.message)) for w in caught]
    return said, [a.tobytes() for a in args if isinstance(a, np.ndarray)]


class Copies:
    """Makes copies of arguments with the same layouts and overlaps."""

    def __init__(self, args: list[Any]) -> None:
        self._args = args
        arrays = [a for a in args if isinstance(a, np.ndarray)]
        self._bases = {id(base): base.copy(order="K") for base in map(_owner, arrays)}

    def restored(self) -> list[Any]:
        for array in self._args:
            if isinstance(array, np.ndarray):
                base = _owner(array)
                writeable = base.flags.writeable
                base.flags.writeable = True
                np.copyto(base, self._bases[id(base)])
                base.flags.writeable = writeable
        return self._args


def _owner(array: np.ndarray) -> np.ndarray:
    return array if not isinstance(array.base, np.ndarray) else _owner(array.base)


def alone(impl: Impl, reference: Callable[..., None]) -> DispatchedKernel:
    """A kernel with only one implementation."""
    return DispatchedKernel(reference, (impl.name,), KERNELS[impl.kernel].ufunc)


def same(got: tuple[Any, ...], want: tuple[Any, ...], args: list[Any], ulp: float) -> bool:
    """Return whether outcomes are equal bit for bit, or floats within a number of ulps."""
    if ulp == 0 or got[0] != want[0] or isinstance(want[0], type):
        return got == want
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    for x, y, like in zip(got[1], want[1], arrays, strict=True):
        ours, theirs = (np.frombuffer(part, like.dtype) for part in (x, y))
        if like.dtype.kind != "f":
            if x != y:
                return False
        elif not np.all(within(ours, theirs, ulp)):
            return False
    return True


def within(a: np.ndarray, b: np.ndarray, ulp: float) -> np.ndarray:
    """Return which elements differ by at most a number of ulps, or are both NaN."""
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= ulp * np.spacing(np.maximum(np.abs(a), np.abs(b)))
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)) | near)


def test_within() -> None:
    one = np.float32(1)
    a = np.array([1, 1, np.nan, np.inf, 0, np.inf], "f4")
    b = np.array([one + np.spacing(one), one + 4 * np.spacing(one), np.nan, np.inf, -0.0, 1], "f4")
    assert within(a, b, 1).tolist() == [True, False, True, True, True, False]


@pytest.mark.parametrize("impl", IMPLEMENTATIONS, ids=lambda impl: impl.name)
def test_same_as_the_reference(impl: Impl) -> None:
    reference = KERNELS[impl.kernel].__wrapped__
    make = maker_of(impl.kernel)
    done = 0
    asked = 0

    def counted(*args: Any) -> None:
        nonlocal asked
        asked += 1
        reference(*args)

    kernel = alone(impl, counted)
    for seed in range(300):
        with np.errstate(all="ignore"):
            args = list(make(Draw(seed)))
        copies = Copies(args)
        with np.errstate(all=["warn", "raise", "ignore"][seed % 3]):
            want = outcome(reference, copies.restored())
            before = asked
            got = outcome(kernel, copies.restored())
        assert same(got, want, args, impl.ulp), f"seed {seed}: {args}"
        done += asked == before
    assert done > 20  # enough of them in C, ...
    assert asked > 5  # ... and the guard rejects some


SIZES = [0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 255, 257, 1023, 1025]
"""Lengths at and around the edges of the blocks that vector loops and numpy's sums have."""


@pytest.mark.parametrize("value", [None, np.nan, np.inf, -np.inf, -0.0, 1e-42])
@pytest.mark.parametrize("impl", IMPLEMENTATIONS, ids=lambda impl: impl.name)
def test_lengths_and_values(impl: Impl, value: float | None) -> None:
    """Vectors of all lengths with a special value at either end, of the record's data types."""
    reference = KERNELS[impl.kernel].__wrapped__
    for dtype in ("f4", "f8"):
        if np.dtype(dtype) not in impl.dtypes and impl.kernel not in ("argmax", "argmin"):
            continue
        for n in SIZES:
            x = np.sin(np.arange(n)).astype(dtype)
            if value is not None and n:
                x[[0, -1]] = value
            args = vector_arguments(impl.kernel, x)
            if args is None:
                return  # covered by the random arguments
            copies = Copies(args)
            with np.errstate(all="ignore"):
                want = outcome(reference, copies.restored())
                got = outcome(alone(impl, reference), copies.restored())
            assert same(got, want, args, impl.ulp), f"{dtype} {n}"


def vector_arguments(name: str, x: np.ndarray) -> list[Any] | None:
    """Arguments of a kernel for a vector, and for the same vector as a row if possible."""
    row, out = x.reshape(1, -1), np.empty_like(x)
    weight = np.cos(np.arange(x.size)).astype(x.dtype)
    by_name: dict[str, list[Any]] = {
        "nn.rms_norm": [row, weight, Shape([1]), 1e-5, np.empty_like(row)],
        "nn.layer_norm": [row, weight, weight, Shape([1]), 1e-5, 1, 1, np.empty_like(row)],
        "matmul": [row, weight.reshape(-1, 1), np.empty((1, 1), x.dtype)],
        "matmul_nt": [row, weight.reshape(1, -1), np.empty((1, 1), x.dtype)],
        "linear": [row, np.array([x, weight]), weight[:2], np.empty((1, 2), x.dtype)],
        "where": [x > 0, x, 0.5, out],
        "clip": [x, -0.5, 0.5, out],
        "cumsum": [x, 0, 0, out],
        "flip": [x, 0, out],
        "concat": [x, weight, 0, np.empty(2 * x.size, x.dtype)],
        "stack": [x, weight, 1, np.empty((x.size, 2), x.dtype)],
        "split": [x, 2, 0, np.empty((x.size + 1) // 2, x.dtype), np.empty(x.size // 2, x.dtype)],
        "take": [x, np.arange(x.size)[::-1].copy(), 0, out],
    }
    if name in by_name:
        return by_name[name]
    if name in ("argmax", "argmin"):
        return [x, 0, np.empty((), "i8")]
    if name in ("sum", "prod", "mean", "max", "min"):
        return [x, 0, np.empty((), x.dtype)]
    if name in ("nn.softmax", "nn.log_softmax"):
        return [x, 0, out]
    if name in ("relu", "cast", "reshape", "broadcast_to", "permute_dims"):
        return [x, out]
    if name in BINARY:
        return [x, weight, out]
    return None


def test_the_table_is_consistent() -> None:
    names = [impl.name for impl in ALL]
    assert len(set(names)) == len(names)
    for impl in ALL:
        kernel = GLOBAL.get(PREFIX + impl.kernel)
        assert impl.name in kernel.implementations
        assert impl in implementations_of(impl.kernel)
        folder = PACKAGE / "kernels" / "c" / ("sets" if impl.of_set else "")
        assert not SOURCES or folder / f"{impl.family}.c" in SOURCES
        assert impl.dtypes
        assert impl.most_bytes > 0
        assert impl.ulp >= 0
    record = record_of(PREFIX + "squeeze")
    assert record is not None
    assert record.implementations == implementations_of("reshape") != ()
    assert implementations_of("tril") == ()


SOURCES = sorted((PACKAGE / "kernels" / "c").rglob("*.[ch]"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_sources_stand_alone(path: Path) -> None:
    """They know neither Python nor numpy, and share nothing but the tables."""
    text = path.read_text(encoding="utf-8")
    included = set(re.findall(r'^ *#include ["<](?:\.\./)?(.*)[">]', text, re.MULTILINE))
    own = {source.name for source in SOURCES}
    standard = {"fenv.h", "float.h", "math.h", "stddef.h", "stdint.h", "string.h"}
    standard |= {"arm_neon.h", "emmintrin.h", "immintrin.h", "cpuid.h"}
    standard |= {"sys/syscall.h", "unistd.h"}  # to ask Linux for AMX
    assert included <= own | standard
    local = "static ", "typedef ", "enum ", "extern ", "const RvmImplementation ", "const RvmSet "
    assert not [line for line in re.findall(r"^\w.*", text, re.MULTILINE)
                if not line.startswith(local) and not re.match(r"[A-Z_]+\(", line)]  # fmt: skip


LIMITED = [impl for impl in IMPLEMENTATIONS if impl.most_bytes < sys.maxsize]


@pytest.mark.parametrize("impl", LIMITED, ids=lambda impl: impl.name)
def test_large_results_are_left_to_the_reference(impl: Impl) -> None:
    """By the limit of the record."""
    dtype = next(d for d in (*map(np.dtype, ("f4", "f8", "i8")), None) if d in impl.dtypes)
    assert dtype is not None
    asked = []
    kernel = alone(impl, lambda *args: asked.append(args))
    n = impl.most_bytes // dtype.itemsize
    args = large_arguments(impl.kernel, n, dtype)
    kernel(*args)
    assert len(asked) == 1


def large_arguments(name: str, n: int, dtype: np.dtype[Any]) -> list[Any]:
    """Arguments with a result of n elements, or ones that are rejected before it matters."""
    x, out = np.ones(n, dtype), np.ones(n, dtype)
    if name in ("zeros", "ones"):
        return [out]
    if name in ("fill", "full"):
        return [1, out]
    if name in ("relu", "cast", "reshape", "broadcast_to", "permute_dims"):
        return [x, out]
    if name in BINARY:
        return [x, x, out]
    if name == "where":
        return [x > 0, x, x, out]
    if name == "clip":
        return [x, 0, 2, out]
    if name in ("flip", "nn.softmax", "nn.log_softmax"):
        return [x, 0, out]
    if name == "cumsum":
        return [x, 0, 0, out]
    if name == "nn.pad":
        return [x, Shape([0, 0]), "constant", 0, out]
    if name in ("nn.conv1d", "nn.conv2d"):
        axes = int(name[-2])
        shape = (1, 1, n, 1)[: 2 + axes]
        settings = [Shape([1] * axes), Shape([0] * 2 * axes), Shape([1] * axes), 1]
        return [x.reshape(shape), np.ones((1,) * len(shape), dtype), *settings, out.reshape(shape)]
    if name in ("concat", "stack"):
        return [x.reshape(n, 1), -1, out.reshape((n, 1) if name == "concat" else (n, 1, 1))]
    if name == "split":
        return [x, 1, 0, out]
    if name == "take":
        return [x, np.zeros(n, "i8"), 0, out]
    if name == "strided_slice":
        return [x, Shape([0]), Shape([0]), Shape([n]), None, out]
    if name in ("sum", "prod", "mean", "max", "min"):
        return [x.reshape(n, 1), 1, out]
    if name in ("argmax", "argmin"):
        return [np.ones((n, 1), "f4"), 1, out]
    if name == "nn.rms_norm":
        return [x.reshape(-1, 8), x[:8], Shape([1]), 1e-5, out.reshape(-1, 8)]
    if name == "nn.layer_norm":
        return [x.reshape(-1, 8), x[:8], x[:8], Shape([1]), 1e-5, 1, 1, out.reshape(-1, 8)]
    if name == "nn.attention":
        return [*[x.reshape(1, -1, 1, 8)] * 3, None, None, None, out.reshape(1, -1, 1, 8)]
    if name not in ("matmul", "matmul_nt", "matmul_tn", "linear"):
        cases = OPERATORS[name]
        assert cases.large, f"{name}: write a call with large operands in its cases"
        call = next(c for c in kernel_calls(cases.large, cases)[0] if c.kernel == name)
        return [*call.args, *(np.empty(*output) for output in call.outputs)]
    row, one = x.reshape(-1, 1), np.ones((1, 1), dtype)
    if name == "matmul_tn":
        return [row.T, one, out.reshape(-1, 1)]
    return [row, one, *([None] if name == "linear" else []), out.reshape(-1, 1)]


EXAMPLES: dict[str, tuple[Any, ...]] = {
    "nn.softmax": (np.ones((2, 8), "f4"), -1, np.empty((2, 8), "f4")),
    "nn.rms_norm": (np.ones((2, 8)), np.ones(8), Shape([1]), 1e-5, np.empty((2, 8))),
    "matmul": (np.ones((1, 1, 64), "f4"), np.ones((64, 96), "f4"), np.empty((1, 1, 96), "f4")),
    "add": (np.ones((2, 8), "f4"), np.ones(8, "f4"), np.empty((2, 8), "f4")),
    "take": (np.ones((9, 4)), np.array([[3]]), 0, np.empty((1, 1, 4))),
    "relu": (np.ones(3), np.empty(3)),
    "where": (np.ones((2, 1), "?"), np.ones((2, 4), "f4"), 0.0, np.empty((2, 4), "f4")),
    "clip": (np.ones((2, 4), "f4"), 0, 6.0, np.empty((2, 4), "f4")),
    "stack": (np.ones(3), np.ones(3), -1, np.empty((3, 2))),
    "full": (np.ones((), "f4"), np.empty((2, 4), "f4")),
    "zeros": (np.empty((2, 4), "?"),),
    "prod": (np.ones((2, 4), "i8"), 1, np.empty(2, "i8")),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_small_calls_run_in_c(name: str) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError("asked Python")

    kernel = DispatchedKernel(refuse, KERNELS[name].implementations, KERNELS[name].ufunc)
    assert kernel(*EXAMPLES[name]) is None


def test_much_work_is_left_to_python() -> None:
    """Because Python lets other threads run meanwhile."""

    def refuse(*args: Any) -> None:
        raise KeyError("asked Python")

    for name, args in {
        "nn.softmax": (np.ones((16, 1024), "f4"), -1, np.empty((16, 1024), "f4")),
        "matmul": (np.ones((96, 96)), np.ones((96, 96)), np.empty((96, 96))),
        "sum": (np.ones((1 << 18) + 1), None, np.empty(())),
        "add": (np.ones((1 << 18, 2)), np.ones(1), np.empty((1 << 18, 2))),
    }.items():
        with pytest.raises(KeyError, match="asked Python"):
            DispatchedKernel(refuse, KERNELS[name].implementations, KERNELS[name].ufunc)(*args)


def _never(*args: Any) -> None:
    raise KeyError("asked Python")


def test_a_pass_over_less_than_a_mebibyte_needs_no_reference() -> None:
    """Programs with such tensors import no references when they start."""
    x = np.random.default_rng(3).normal(0, 2, (1, 500, 256)).astype("f4")
    row = x[:, :1] + 1
    sums = np.empty((1, 256), "f4")
    for name, args, expected in (
        ("subtract", (x, row, np.empty_like(x)), x - row),
        ("multiply", (row, x[:, :, :1].copy(), np.empty_like(x)), row * x[:, :, :1]),
        ("equal", (x, row, np.empty(x.shape, "?")), x == row),
        ("cast", (x > 0, np.empty_like(x)), (x > 0).astype("f4")),
        ("sum", (x, (1,), sums), x.sum(1)),
        ("max", (x, (2,), np.empty((1, 500), "f4")), x.max(2)),
    ):
        record = KERNELS[name]
        of_set = CPU if CPU in SETS else None
        DispatchedKernel(_never, record.implementations, record.ufunc, of_set)(*args)
        np.testing.assert_array_equal(args[-1], expected)
    again = x.copy()
    record = KERNELS["subtract"]
    DispatchedKernel(_never, record.implementations, record.ufunc)(again, row, again)
    np.testing.assert_array_equal(again, x - row)


def test_long_sums_of_rows_are_left_to_python() -> None:
    """Python adds them in groups, so that the error does not grow with their number."""
    x, out = np.ones((2048, 64), "f4"), np.empty(64, "f4")
    with pytest.raises(KeyError, match="asked Python"):
        DispatchedKernel(_never, KERNELS["sum"].implementations)(x, (0,), out)
    DispatchedKernel(_never, KERNELS["max"].implementations)(x, (0,), out)


@pytest.mark.parametrize("step", [0, 4, 1 << 40, -12])
@pytest.mark.parametrize("name", ["matmul", "matmul_nt"])
@pytest.mark.parametrize("shape", [(3, 1, 5), (1, 3, 5), (3, 1, 1), (2, 3, 1)])
def test_strides_of_axes_of_length_1_are_ignored(
    shape: tuple[int, ...], name: str, step: int
) -> None:
    """An array can be contiguous whatever the strides of such axes are."""

    def odd(x: np.ndarray) -> np.ndarray:
        strides = [step if dim == 1 else old for dim, old in zip(x.shape, x.strides, strict=True)]
        x = np.lib.stride_tricks.as_strided(x, strides=strides)
        assert x.flags.c_contiguous
        return x

    a = np.arange(math.prod(shape), dtype="f4").reshape(shape) + 1
    b = np.arange(4 * shape[-1], dtype="f4").reshape(shape[-1], 4) + 1
    out = np.zeros((*shape[:-1], 4), "f4")
    KERNELS[name](odd(a), odd(b if name == "matmul" else b.T.copy()), odd(out))
    assert np.array_equal(out, a @ b)


@pytest.mark.parametrize("keys", [1 << 60, 1 << 58])
@pytest.mark.parametrize("queries", [1, 16])
def test_keys_that_repeat_may_be_any_number(queries: int, keys: int) -> None:
    def refuse(*args: Any) -> None:
        raise KeyError("asked Python")

    query, out = np.zeros((2, 1, queries, 1, 1), "f4")
    key = np.broadcast_to(np.float32(0), (1, keys, 1, 1))
    with pytest.raises(KeyError, match="asked Python"):
        DispatchedKernel(refuse, ("attention.by_batch",))(query, key, key, None, None, None, out)


RACE = """
import sys, threading, time
import numpy as np
import relaxvm

take = relaxvm.get_func("relaxvm.kernel.take")
x = np.arange(200, dtype="u1")
indices = np.zeros(60000, sys.argv[1])
out = np.zeros(60000, "u1")
inside = np.tile(np.arange(200), 300).astype(indices.dtype)
outside = np.full(60000, np.iinfo(indices.dtype).max // 2)
over = False


def write():
    while not over:
        np.copyto(indices, outside)
        np.copyto(indices, inside)


writer = threading.Thread(target=write, daemon=True)
writer.start()
sys.setswitchinterval(1e-5)
end = time.monotonic() + 3
taken = refused = 0
while time.monotonic() < end:
    try:
        take(x, indices, 0, out)
        taken += 1
    except IndexError:
        refused += 1
    assert out.max() < 200
over = True
writer.join()
print(taken, refused)
"""
"""Calls while another thread writes the indices; numpy copies without Python's lock."""


@pytest.mark.parametrize("dtype", ["i8", "i4"])
def test_indices_that_another_thread_writes(dtype: str) -> None:
    run = children.run(
        [sys.executable, "-c", RACE, dtype], cwd=PACKAGE.parent, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    taken, refused = map(int, run.stdout.split())
    assert taken + refused > 0


@pytest.mark.parametrize("name", sorted({"add", "where", "stack", "flip", "concat", "relu"}))
def test_tensors_without_axes(name: str) -> None:
    """Tensors of rank 0, which have no dimensions to compare or copy."""
    x = np.full((), 2, "f4")
    flag = np.ones((), "?")
    args, want = {
        "add": ([x, x, np.empty((), "f4")], 4),
        "where": ([flag, x, 0.0, np.empty((), "f4")], 2),
        "stack": ([x, x, 0, np.empty(2, "f4")], 2),
        "relu": ([x, np.empty((), "f4")], 2),
        "flip": ([x.reshape(1), 0, np.empty(1, "f4")], 2),
        "concat": ([x.reshape(1), 0, np.empty(1, "f4")], 2),
    }[name]
    KERNELS[name](*args)
    assert np.all(args[-1] == want)


def test_keywords_go_to_python() -> None:
    out = np.empty(2)
    KERNELS["cast"](np.ones(2, "f4"), out=out)
    assert out.tolist() == [1.0, 1.0]
    with pytest.raises(TypeError, match=r"cast\(\) got an unexpected keyword argument 'to'"):
        KERNELS["cast"](np.ones(2), to=out)


def test_an_implementation_has_the_attributes_of_its_kernel() -> None:
    kernel = KERNELS["matmul"]
    assert kernel.__name__ == "matmul"
    assert repr(kernel) == "<DispatchedKernel matmul>"
    assert (kernel.__doc__ or "").startswith("out = a @ b.")
    with pytest.raises(KeyError, match="nothing"):
        DispatchedKernel(len, ("nothing",))
    for refused in (copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot pickle a kernel; programs refer to kernels by"):
            refused(kernel)
