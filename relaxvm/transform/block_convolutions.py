"""BlockConvolutions: convolutions of images in blocks of channels, with what follows them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .. import op
from ..analysis import free_vars
from ..executable.debug_info import FusedSpan
from ..ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExprMutator,
    ExternFunc,
    FloatImm,
    Function,
    If,
    IntImm,
    IRModule,
    Match,
    Op,
    SeqExpr,
    StringImm,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    VarBinding,
    int_imm,
    post_order_visit,
    structural_equal,
)
from ..ir.arith import simplify
from ..ir.node import KINDS
from ..op.lowering import KERNEL_PREFIX, kernel_call
from ._integers import IntegerProduct, centered, op_name, packed_weight
from ._placing import placed
from ._uses import count_uses, uses_of
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["BlockConvolutions"]

BLOCK: Final = 16
_MOST_PLANES: Final = 8
"""An image of so many channels is not brought into blocks: most of a block would be empty."""
_FEWEST_OUTPUTS: Final = 8
"""Fewer outputs would leave most of a block empty: products with windows of one pixel are better
left to BLAS, which needs no copy of the image for them."""
_FEW_CHANNELS: Final = 4
"""An image of fewer channels is in blocks only if a convolution has it there."""
_MOST_TAPS: Final = 16
"""Of the window of a transposed convolution."""
_MOST_BYTE_TAPS: Final = 256
"""Of the window of a convolution of bytes of each channel by itself."""
_MOST_FRAMES: Final = 16
"""Of the window of a convolution along three axes: images of their channels are copies."""
_FRAMES_FIRST: Final = (0, 2, 1, 3, 4)
"""Between [batch, channels, frames, height, width] and [batch, frames, channels, height, width]."""
_IN_BLOCKS: Final = 6
"""Dimensions of the weights of a convolution of an image in blocks."""
_SMALLEST_WINOGRAD: Final = 7
"""Results along an axis from which on the transforms of Winograd's method pay."""

_FEWEST_PIXELS: Final = 64
"""Results of a batch from which on it pays to read Winograd's weights, which are four times as
many: with fewer, a run takes as long as they come from memory."""

_ANYWHERE: Final = frozenset(
    f"relax.{name}"
    for name in (
        "abs", "add", "clip", "maximum", "minimum", "multiply", "negative", "nn.gelu",
        "nn.gelu_tanh", "nn.leakyrelu", "nn.relu", "nn.silu", "sigmoid", "subtract", "tanh",
    )
)  # fmt: skip
"""Elementwise operators whose results are finite for finite operands of usual size: the channels
that fill the last block stay harmless."""


@dataclass(frozen=True)
class _Convolution:
    """A convolution whose call is not emitted yet, since what follows may become part of it."""

    kernel: str
    x: Expr
    weight: Constant
    bias: NDArray[Any] | None
    settings: tuple[Any, ...]
    ty: TensorType
    """The type of the result in blocks."""
    channels: int
    span: Any = None
    """Of the last operation that has become part of it."""
    inputs: Constant | None = None
    """The channels of each block of outputs, of `nn.conv2d_gathered_blocks`."""
    residual: Expr | None = None
    low: float | None = None
    high: float | None = None
    slope: NDArray[Any] | None = None
    function: str | None = None
    scale: float | None = None
    shift: float | None = None
    taps: tuple[int, int] | None = None
    """Of a transposed convolution, whose windows do not overlap: the results of each tap are blocks
    of outputs of their own, which are then put at their places in the image."""
    places: TensorType | None = None
    """With taps, the type of the image in blocks; None for few outputs, of which all taps are in
    the same blocks."""

    @property
    def is_bounded(self) -> bool:
        return self.low is not None or self.high is not None

    @property
    def is_curved(self) -> bool:
        """Whether there is a function, or what comes after it."""
        return not (self.slope is None and self.function is None and not self.is_scaled)

    @property
    def is_scaled(self) -> bool:
        return self.scale is not None or self.shift is not None

    def lines(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """A number for each channel, in blocks, for all taps."""
        taps = math.prod(self.taps or ())
        if self.taps and self.places is None:
            return _padded(np.repeat(numbers, taps))
        return np.tile(_padded(numbers), taps)


class _Blocker(ExprMutator):
    """Rewrites a function from its beginning to its end.  A value may be there as the program has
    it, in blocks of channels, or both; the other form is made where it is needed."""

    def __init__(
        self, func: Function, *, precise: bool, winograd: bool, bfloat16: bool
    ) -> None:
        super().__init__()
        self._precise = precise
        self._winograd = winograd and not precise
        self._bfloat16 = bfloat16
        self._uses = uses_of(func)
        self._only_first = _only_first(func, self._uses)
        self._blocks: dict[Var, Expr] = {}
        """Variables of the program whose values are there in blocks."""
        self._missing: set[Var] = set()
        """Of these, the ones that are not there as the program has them."""
        self._pending: dict[Var, _Convolution] = {}
        self._integers: dict[Var, tuple[IntegerProduct, Any]] = {}
        """Convolutions of bytes, and where they are from: emitted where they are needed, if at
        all."""
        self._shuffled: dict[Var, tuple[Var, NDArray[Any]]] = {}
        """Variables whose channels are those of another one's blocks in another order: their
        places there."""
        self._gates: dict[Var, tuple[Expr, Expr, Any]] = {}
        """Products of an image and a number for each channel that are not emitted yet."""
        self._norms: dict[Var, tuple[Expr, NDArray[Any], NDArray[Any]]] = {}
        self._values: dict[Expr, Expr] = {}
        self._emitted: list[Binding] = []
        self._kind: type[Var] = Var
        self._null: Var | None = None
        self._span: Any = None

    # Bindings

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        outer = self._blocks
        self._blocks = dict(outer)  # what a branch brings into blocks is not there in others
        new = super().visit_seq(seq)
        self._blocks = outer
        return new

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        outer = self._kind, self._emitted, self._span, self._null
        self._null = None
        self._kind = DataflowVar if isinstance(block, DataflowBlock) else Var
        bindings: list[Binding] = []
        inside: Counter[Var] = Counter()
        for binding in block.bindings:
            count_uses(binding.value, inside)
            self._emitted, self._span = [], binding.span
            new = self._rewritten(binding)
            bindings += self._emitted
            bindings += new
        self._emitted = []
        for binding in block.bindings:
            var = binding.var
            if not isinstance(var, DataflowVar) and self._uses[var] > inside[var]:
                self._unblock(var)
        bindings += self._emitted
        self._kind, self._emitted, self._span, self._null = outer
        blocked: BindingBlock = KINDS[type(block)](bindings, block.span)
        return blocked

    def _rewritten(self, binding: Binding) -> list[Binding]:
        """The bindings that replace one, besides those that were emitted."""
        if isinstance(binding, VarBinding) and self._block(binding.var, binding.value):
            return []
        nested = isinstance(binding.value, (If, Match, SeqExpr, Function))
        if nested or not isinstance(binding.value, (Call, Tuple, TupleGetItem, Var)):
            # Values that are used inside are there before.
            for var in list(self._missing):
                if var in free_vars(binding.value):
                    self._unblock(var)
            if nested:
                self._flush()  # so that no branch or local function emits them
        elif isinstance(binding.value, Call) and not isinstance(binding.value.op, Op):
            self._flush()  # it may write to what the convolutions read
        emitted = self._emitted
        new = super().visit_binding(binding)
        self._emitted = emitted
        return new if isinstance(new, list) else [new]

    def visit_var(self, var: Var) -> Expr:
        if var in self._missing:
            self._unblock(var)
        return self.var_map.get(var, var)

    def _emit(self, name: str, value: Expr) -> Var:
        var = self._kind(name, value.ty)
        self._emitted.append(VarBinding(var, value, self._span))
        return var

    def _call(self, c: _Convolution) -> Call:
        bias = None if c.bias is None else Constant(c.bias)
        slope = None if c.slope is None else Constant(c.slope)
        name, weight = c.kernel, c.weight
        if self._bfloat16 and name == "nn.conv2d_blocks" and weight.data.ndim == _IN_BLOCKS:
            from ..kernels.bfloat16 import narrowed_blocks

            name, weight = "nn.conv2d_bfloat16", Constant(placed(narrowed_blocks(weight.data)))
        inputs: list[Any] = [c.x, weight]
        gathered = [] if c.inputs is None else [c.inputs]
        rest = (c.low, c.high, slope, c.function, c.scale, c.shift)
        for value in (bias, c.residual, *gathered, *c.settings, *rest):
            inputs.append(self._none() if value is None else value)
        return kernel_call(name, inputs, c.ty)

    def _none(self) -> Var:
        """A variable of this block that is None."""
        if self._null is None:
            self._null = self._emit("none", op.null_value())
        return self._null

    def _flush(self) -> None:
        waiting = [var for var in self._missing if self._is_integer_result(var)]
        for var in [*self._pending, *self._gates, *waiting]:
            self._in_blocks(var)

    def _unblock(self, var: Var) -> None:
        """Bind a variable of the program to its value as the program has it."""
        if var not in self._missing:
            return
        self._missing.remove(var)
        waiting = self._pending.get(var)
        if waiting is not None and waiting.taps and waiting.places is None:
            self._emitted.append(VarBinding(var, self._gathered(var, waiting), self._span))
            return
        source, places = self._shuffled.get(var, (var, None))
        planes = TensorType(_four_dims(var.ty), var.ty.dtype, var.ty.vdevice)
        call: Expr = kernel_call("nn.from_blocks", (self._in_blocks(source),), planes)
        if places is not None:
            plain = self._emit(var.name, call)
            call = self.infer(op.take(plain, Constant(places), axis=1))
        if var.ty.ndim == 3:
            call = self.infer(op.reshape(self._emit(var.name, call), var.ty.shape))
        elif var.ty.ndim == 5:
            batch, channels, *rest = var.ty.dims
            frames = op.reshape(self._emit(var.name, call), [batch, rest[0], channels, *rest[1:]])
            found = self._emit(var.name, self.infer(frames))
            call = self.infer(op.permute_dims(found, _FRAMES_FIRST))
        self._emitted.append(VarBinding(var, call, self._span))

    def _in_blocks(self, var: Var) -> Expr:
        """The value of a variable in blocks: an image with a known number of channels."""
        if var in self._pending and self._pending[var].places is None and self._pending[var].taps:
            self._unblock(var)
        if var in self._shuffled and var not in self._blocks:
            self._unblock(var)  # of an operator that has no order of channels, such as a pool
        gate = self._gates.pop(var, None)
        if gate is not None:
            self._blocks[var] = self._gated(var, gate, self._none())
        waiting = self._pending.pop(var, None)
        if waiting is not None:
            outer, self._span = self._span, waiting.span
            found = self._emit(var.name, self._call(waiting))
            self._blocks[var] = found if waiting.taps is None else self._spread(found, waiting)
            self._span = outer
        elif var not in self._blocks and self._is_integer_result(var):
            self._blocks[var] = self._integer_call(var)
        elif var not in self._blocks:
            planes = self._in_planes(var.name, self.var_map.get(var, var))
            value = kernel_call("nn.to_blocks", (planes,), _blocked(var.ty))
            self._blocks[var] = self._emit(var.name, value)
        return self._blocks[var]

    def _spread(self, found: Var, c: _Convolution) -> Expr:
        """The results of the taps of a transposed convolution, each at its place."""
        assert c.taps is not None
        assert c.places is not None
        assert found.ty.dims is not None
        assert c.places.dims is not None
        batch, _, height, width, _ = found.ty.dims
        split = [batch, *map(int_imm, c.taps), c.places.dims[1], height, width, int_imm(BLOCK)]
        by_tap = self._emit(found.name, self.infer(op.reshape(found, split)))
        axes = [0, 3, 4, 1, 5, 2, 6]
        moved = self._emit(found.name, self.infer(op.permute_dims(by_tap, axes)))
        return self._emit(found.name, self.infer(op.reshape(moved, list(c.places.dims))))

    def _gathered(self, var: Var, c: _Convolution) -> Expr:
        """The same of few outputs, as the program has the image: the taps of an output are
        channels that follow each other."""
        outer, self._span = self._span, self._pending.pop(var).span
        found = self._emit(var.name, self._call(c))
        assert c.taps is not None
        assert found.ty.dims is not None
        batch, _, height, width, _ = found.ty.dims
        outputs = int_imm(c.channels)
        dims = [batch, int_imm(c.channels * math.prod(c.taps)), height, width]
        planes = TensorType(dims, var.ty.dtype, var.ty.vdevice)
        plain = self._emit(var.name, kernel_call("nn.from_blocks", (found,), planes))
        split = [batch, outputs, *map(int_imm, c.taps), height, width]
        by_tap = self._emit(var.name, self.infer(op.reshape(plain, split)))
        axes = [0, 1, 4, 2, 5, 3]
        moved = self._emit(var.name, self.infer(op.permute_dims(by_tap, axes)))
        self._span = outer
        return self.infer(op.reshape(moved, list(var.ty.dims)))

    def _in_planes(self, name: str, x: Expr) -> Expr:
        """x[batch, channels, width], [batch, channels, height, width] or [batch, channels, frames,
        height, width] with 4 dimensions."""
        if x.ty.ndim == 4:
            return x
        if x.ty.ndim == 5:
            dims = _four_dims(x.ty)
            x = self._emit(name, self.infer(op.permute_dims(x, _FRAMES_FIRST)))
            return self._emit(name, self.infer(op.reshape(x, dims)))
        return self._emit(name, self.infer(op.reshape(x, _four_dims(x.ty))))

    def _is_in_blocks(self, expr: Expr) -> bool:
        """Whether a value is there in blocks, with its channels in order."""
        if expr in self._blocks or expr in self._pending or expr in self._gates:
            return True
        return isinstance(expr, Var) and self._is_integer_result(expr)

    def _may_be_in_blocks(self, x: Expr) -> bool:
        """Whether an image is in blocks, or has enough channels for its way there and back to take
        less time than numpy's loops over windows do."""
        if self._is_in_blocks(x):
            return True
        return isinstance(x, Var) and _is_image(x.ty) and _channels(x.ty) >= _FEW_CHANNELS

    def _gated(self, var: Var, gate: tuple[Expr, Expr, Any], residual: Expr) -> Var:
        x, numbers, span = gate
        outer, self._span = self._span, span
        found = self._emit(var.name, kernel_call("nn.gate_blocks", (x, numbers, residual), x.ty))
        self._span = outer
        return found

    def _gate(self, var: Var, call: Call) -> bool:
        """An image times a number for each channel that is computed: squeeze and excitation."""
        for one, other in (call.args, call.args[::-1]):
            if not (_is_image(other.ty) and isinstance(one, Var) and isinstance(other, Var)):
                continue
            if var.ty.ndim != 4 or not _same_dims(one.ty, var.ty) or not self._is_in_blocks(one):
                continue
            pixel = [*var.ty.dims[:2], int_imm(1), int_imm(1)]
            if not all(map(structural_equal, other.ty.dims, pixel)) or self._precise:
                continue
            gate = self._in_blocks(one), self._in_blocks(other), self._span
            if self._uses[var] == 1:
                self._gates[var] = gate
                self._missing.add(var)
                return True
            self._blocks[var] = self._gated(var, gate, self._none())
            self._missing.add(var)
            return True
        return False

    def _add_to_gated(self, var: Var, call: Call) -> bool:
        for one, other in (call.args, call.args[::-1]):
            if not isinstance(one, Var) or one not in self._gates or not isinstance(other, Var):
                continue
            if _same_dims(one.ty, var.ty) and _same_dims(other.ty, var.ty):
                residual = self._in_blocks(other)
                gate = self._gates.pop(one)
                self._missing.discard(one)
                span = FusedSpan.of(self._span, [(gate[2], one.name)])
                self._blocks[var] = self._gated(var, (*gate[:2], span), residual)
                self._missing.add(var)
                return True
        return False

    def _define(self, var: Var, value: Expr) -> bool:
        self._blocks[var] = self._emit(var.name, value)
        self._missing.add(var)
        return True

    def _wait(self, var: Var, convolution: _Convolution) -> bool:
        self._pending[var] = replace(convolution, span=self._span)
        self._missing.add(var)
        return True

    def _take(self, expr: Expr) -> _Convolution | None:
        """The convolution whose result has this operand as its only use."""
        if isinstance(expr, Var) and self._uses[expr] == 1:
            return self._pending.get(expr)
        return None

    def _extend(self, old: Expr, var: Var, convolution: _Convolution) -> bool:
        assert isinstance(old, Var)
        part = self._pending.pop(old).span, old.name
        self._missing.discard(old)
        self._span = FusedSpan.of(self._span, [part])
        return self._wait(var, convolution)

    # Operators

    def _block(self, var: Var, value: Expr) -> bool:
        """Whether a binding was replaced: its value is in blocks, or will be."""
        self._values[var] = value
        if isinstance(value, TupleGetItem) and value.index == 0:
            norm = self._norms.get(value.tuple_value)  # type: ignore[call-overload]
            return norm is not None and self._norm(var, *norm)
        if not isinstance(value, Call) or not isinstance(value.op, Op):
            return False
        if self._integer_step(var, value):
            return True
        if value.op.name == "relax.call_dps_packed":
            if isinstance(var.ty, TupleType):
                return self._range(var, value)
            return _has_channels(var.ty) and self._apply(var, value)
        if value.op.name == "relax.nn.batch_norm":
            return self._remember_norm(var, value)
        if not _has_channels(var.ty) and value.op.name != "relax.mean":
            return False
        if _is_video(var.ty) and value.op.name not in _OF_VIDEOS:
            return False
        if value.op.name in _KEEP_CHANNELS and value.args[0] in self._shuffled:
            return self._of_shuffled(var, value)
        rule = _RULES.get(value.op.name)
        if rule is not None and rule(self, var, value):
            return True
        return value.op.name in _ELEMENTWISE and self._elementwise(var, value)

    def _is_usual_conv(self, call: Call) -> bool:
        weight, attrs = call.args[1], call.attrs
        axes = {"relax.nn.conv1d": "W", "relax.nn.conv3d": "DHW"}.get(_name(call), "HW")
        return (
            isinstance(weight, Constant)
            and weight.data.dtype == np.float32
            and attrs["data_layout"] == "NC" + axes
            and attrs["kernel_layout"] == "OI" + axes
            and attrs["out_layout"] in (None, "", "NC" + axes)
            and attrs["out_dtype"] in (None, "", "void", "float32")
        )

    def _conv(self, var: Var, call: Call) -> bool:
        x = call.args[0]
        if not isinstance(x, Var) or not _is_image(x.ty) or not self._is_usual_conv(call):
            return False
        return self._conv_of(var, call, x, None)

    def _conv_of(self, var: Var, call: Call, x: Var, places: NDArray[Any] | None) -> bool:
        """A convolution of an image, or of one whose channels are at other places of it."""
        attrs: Any = call.attrs
        assert isinstance(call.args[1], Constant)
        weight = call.args[1].data
        groups = attrs["groups"]
        steps = attrs["strides"], attrs["padding"], attrs["dilation"]
        if weight.ndim == 3:
            weight, steps = weight[:, :, None], _of_rows(*steps)
        outputs, inputs, *window = weight.shape
        channels = inputs * groups
        if not weight.size or max(window) > 1 << 10 or not _has_area(var.ty):
            return False
        from ..kernels import blocks

        kernel, data, listed = "nn.conv2d_blocks", None, None
        is_blocked = self._is_in_blocks(x)
        is_depthwise = groups > 1 and inputs == 1 and outputs == groups
        are_whole = groups == 1 or not (inputs % BLOCK or outputs // groups % BLOCK)
        if places is not None or not (is_depthwise or are_whole):
            if places is None:
                places = np.arange(channels)
            kernel = "nn.conv2d_gathered_blocks"
            packed, table = blocks.pack_gathered(weight, groups, places)
            groups, listed = 1, Constant(table)
        elif is_depthwise:
            kernel, packed = "nn.conv2d_depthwise_blocks", blocks.pack_depthwise(weight)
            groups = 1
        elif not is_blocked and groups == 1 and channels <= _MOST_PLANES:
            if outputs < _FEWEST_OUTPUTS and window == [1, 1]:
                return False
            data = self._in_planes(var.name, self.visit(x))
            packed = blocks.pack_planes(weight)
        elif outputs < _FEWEST_OUTPUTS and not is_blocked and window == [1, 1]:
            return False
        else:
            kernel, packed = self._packed(weight, groups, var.ty, steps, channels)
        if data is None:
            data = self._in_blocks(x)
        settings = (*steps, groups)
        return self._wait(
            var,
            _Convolution(
                kernel, data, Constant(placed(packed)), None, settings, _blocked(var.ty), outputs,
                inputs=listed,
            ),
        )  # fmt: skip

    def _conv_of_frames(self, var: Var, call: Call) -> bool:
        """A convolution along three axes: one along two, of images whose channels are those of all
        the frames that a result is computed from."""
        x, weight = call.args
        attrs: Any = call.attrs
        if (
            not _is_video(var.ty)
            or not isinstance(x, Var)
            or not _is_video(x.ty)
            or not self._is_usual_conv(call)
            or attrs["groups"] != 1
            or not (_has_area(x.ty) and _has_area(var.ty))
        ):
            return False
        assert isinstance(weight, Constant)
        outputs, inputs, deep, tall, wide = weight.data.shape
        depth, results = x.ty.dims[2], var.ty.dims[2]
        if not isinstance(depth, IntImm) or not isinstance(results, IntImm):
            return False
        if not weight.data.size or max(tall, wide) > 1 << 10 or deep > _MOST_FRAMES:
            return False
        from ..kernels import blocks

        front, top, left, back, bottom, right = attrs["padding"]
        (step, *strides), (between, *dilation) = attrs["strides"], attrs["dilation"]
        steps = tuple(strides), (top, left, bottom, right), tuple(dilation)
        by_frame = weight.data.transpose(0, 2, 1, 3, 4)
        is_planes = not self._is_in_blocks(x) and inputs <= _MOST_PLANES
        if is_planes:
            source: Expr = self._in_planes(var.name, self.visit(x))
        else:
            source = self._in_blocks(x)
            by_frame = blocks.whole_blocks(by_frame, 2)
        flat = by_frame.reshape(outputs, -1, tall, wide)
        if (deep, step, front, back) != (1, 1, 0, 0):
            # The frames of each result follow each other: their channels are those of one image.
            taken = step * np.arange(results.value)[:, None] + between * np.arange(deep)
            videos = [x.ty.dims[0], depth]
            source = self._frames(var.name, videos, source, (front, back), taken)
        if is_planes:
            kernel, packed = "nn.conv2d_blocks", blocks.pack_planes(flat)
        else:
            kernel, packed = self._packed(flat, 1, var.ty, steps, inputs)
        return self._wait(
            var,
            _Convolution(
                kernel, source, Constant(placed(packed)), None, (*steps, 1), _blocked(var.ty),
                outputs,
            ),
        )  # fmt: skip

    def _packed(
        self, weight: NDArray[Any], groups: int, ty: Any, steps: Any, channels: int
    ) -> tuple[str, NDArray[Any]]:
        """The kernel for images in blocks, and its weights: by Winograd's method where it suits."""
        from ..kernels import blocks

        outputs, _, *window = weight.shape
        if (
            self._winograd
            and (groups, window) == (1, [3, 3])
            and not _are_whole(weight)
            and _suits_winograd(ty, steps, outputs, channels)
        ):
            return "nn.conv2d_winograd_blocks", blocks.pack_winograd(weight)
        return "nn.conv2d_blocks", blocks.pack_direct(weight)

    def _frames(
        self, name: str, videos: list[Any], x: Expr, padding: tuple[int, int], taken: NDArray[Any]
    ) -> Var:
        """Images of the channels of several frames each, from x[batch * frames, channels, ...],
        after frames of zeros at both ends; `videos` is [batch, frames]."""
        _, channels, *rest = x.ty.dims
        results, deep = taken.shape
        found = self._emit(name, self.infer(op.reshape(x, [*videos, channels, *rest])))
        if any(padding):
            widths = [0, 0, *padding, *[0] * (2 * (found.ty.ndim - 2))]
            found = self._emit(name, self.infer(op.nn.pad(found, widths)))
        places = taken.reshape(-1)
        if not np.array_equal(places, np.arange(videos[1].value + sum(padding))):
            found = self._emit(name, self.infer(op.take(found, Constant(places), axis=1)))
        count = simplify(videos[0] * int_imm(results))
        dims = [count, int_imm(channels.value * deep), *rest]
        return self._emit(name, self.infer(op.reshape(found, dims)))

    # Convolutions of bytes

    def _integer_step(self, var: Var, call: Call) -> bool:
        """A convolution of bytes, what follows one, or a quantized image.  What no kernel has as a
        result is remembered, and stays as it is, too."""
        name = op_name(call)
        product, old = None, None
        if name in ("relax.nn.conv1d", "relax.nn.conv2d"):
            product = self._conv_of_bytes(call)
        else:
            for arg in call.args:
                if not isinstance(arg, Var) or arg not in self._integers or self._uses[arg] != 1:
                    continue
                if not _have_same_dims(arg.ty, var.ty):
                    continue
                product = self._integers[arg][0].followed_by(
                    self._values, arg, call, precise=self._precise
                )  # fmt: skip
                if product is not None:
                    old = arg
                    break
        if product is None:
            rule = _OF_BYTES.get(name)
            return rule is not None and rule(self, var, call)
        span = self._span
        if old is not None and self._integers[old][0].is_final and product.is_final:
            span = FusedSpan.of(span, [(self._integers.pop(old)[1], old.name)])
            self._missing.discard(old)
        self._integers[var] = product, span
        if product.is_final:
            self._missing.add(var)
        return product.is_final

    def _is_integer_result(self, var: Var) -> bool:
        """Whether a variable is the result of a convolution of bytes, which is not emitted as the
        program has it."""
        return var in self._integers and self._integers[var][0].is_final

    def _conv_of_bytes(self, call: Call) -> IntegerProduct | None:
        x, weight = call.args
        attrs: Any = call.attrs
        axes = "W" if _name(call) == "relax.nn.conv1d" else "HW"
        found = centered(self._values, x)
        if (
            found is None
            or not isinstance(found[0], Var)
            or not isinstance(weight, Constant)
            or weight.data.dtype.name not in ("float32", "float64")
            or call.ty.dtype != weight.data.dtype
            or call.ty.dims is None
            or (attrs["data_layout"], attrs["kernel_layout"]) != ("NC" + axes, "OI" + axes)
            or attrs["out_layout"] not in (None, "", "NC" + axes)
        ):
            return None
        source, zero = found
        data = weight.data
        steps = attrs["strides"], attrs["padding"], attrs["dilation"]
        if data.ndim == 3:
            data, steps = data[:, :, None], _of_rows(*steps)
        if source.ty.ndim != weight.data.ndim or max(data.shape[2:]) > 1 << 10:
            return None
        channels = source.ty.dims[1]
        groups, inputs = attrs["groups"], data.shape[1]
        if not isinstance(channels, IntImm) or channels.value != groups * inputs:
            return None
        is_depthwise = groups > 1 and inputs == 1 and len(data) == groups
        if groups > 1 and not (is_depthwise and math.prod(data.shape[2:]) <= _MOST_BYTE_TAPS):
            return None
        packed = packed_weight(data, zero, source.ty.dtype, is_depthwise=is_depthwise)
        if packed is None or not (_has_area(call.ty) and _has_area(source.ty)):
            return None
        weights, greatest = packed
        return IntegerProduct(
            source, zero, Constant(placed(weights.weight)), Constant(placed(weights.sums)),
            weights.shift, len(data), 1 - weight.data.ndim, greatest, steps,
            dtype=str(call.ty.dtype),
        )  # fmt: skip

    def _integer_call(self, var: Var) -> Var:
        product, span = self._integers[var]
        outer, self._span = self._span, span
        assert isinstance(product.x, Var)
        x = self._bytes_in_blocks(product.x)
        inputs = [self.visit(each) if isinstance(each, Expr) and each is not x else each
                  for each in product.inputs(x, self._none)]  # fmt: skip
        call = kernel_call("nn.integer_conv2d_blocks", inputs, _blocked(var.ty))
        found = self._emit(var.name, call)
        self._span = outer
        return found

    def _bytes_in_blocks(self, var: Var) -> Expr:
        """Bytes in blocks; an image that is not is quantized before it is brought into blocks."""
        call = self._values.get(var)
        if not self._is_in_blocks(var) and op_name(call) == "relax.quantize":
            assert isinstance(call, Call)
            x, scale, zero = call.args
            if isinstance(x, Var) and _is_image(x.ty) and _quantizes_all_alike(call):
                inputs = self.visit(x), self.visit(scale), self.visit(zero)
                plain = self._emit(var.name, kernel_call("quantize_bytes", inputs, var.ty))
                planes = self._in_planes(var.name, plain)
                in_blocks = kernel_call("nn.to_blocks", (planes,), _blocked(var.ty))
                self._blocks[var] = self._emit(var.name, in_blocks)
        return self._in_blocks(var)

    def _quantized(self, var: Var, call: Call) -> Call:
        x, scale, zero = call.args
        assert isinstance(x, Var)
        inputs = (self._in_blocks(x), self.visit(scale), self.visit(zero))
        return kernel_call("quantize_bytes", inputs, _blocked(var.ty))

    def _quantize(self, var: Var, call: Call) -> bool:
        x = call.args[0]
        if not isinstance(x, Var) or not _is_image(x.ty) or not self._is_in_blocks(x):
            return False
        return _quantizes_all_alike(call) and self._define(var, self._quantized(var, call))

    def _dequantize(self, var: Var, call: Call) -> bool:
        """Bytes as floats."""
        (x,) = call.args
        if not isinstance(x, Var) or not _is_image(x.ty, _BYTES) or not _is_image(var.ty):
            return False
        if not self._is_in_blocks(x):
            return False
        return self._define(var, self.infer(op.astype(self._in_blocks(x), "float32")))

    def _pool_of_bytes(self, var: Var, call: Call) -> bool:
        """The greatest of each window, by way of floats."""
        x = call.args[0]
        if not isinstance(x, Var) or not _is_image(x.ty, _BYTES) or not self._is_in_blocks(x):
            return False
        wide = self._emit(var.name, self.infer(op.astype(self._in_blocks(x), "float32")))
        image = Var(x.name, TensorType(list(x.ty.dims), "float32", x.ty.vdevice))
        pooled = Var(var.name, TensorType(list(var.ty.dims), "float32", var.ty.vdevice))
        self._blocks[image] = wide
        if not self._pool(pooled, Call(call.op, [image], call.attrs, call.ty_args)):
            return False
        found = op.astype(self._in_blocks(pooled), str(var.ty.dtype))
        self._missing.discard(pooled)
        return self._define(var, self.infer(found))

    def _range(self, var: Var, call: Call) -> bool:
        """A call of `quantization_range` of an image."""
        name, inputs = call.args[:2]
        if (
            not isinstance(name, ExternFunc)
            or name.global_symbol != KERNEL_PREFIX + "quantization_range"
            or not isinstance(inputs, Tuple)
        ):
            return False
        x = inputs.fields[0]
        if not isinstance(x, Var) or not _is_image(x.ty) or not self._is_in_blocks(x):
            return False
        new = kernel_call("quantization_range", (self._in_blocks(x), _channels(x.ty)), var.ty)
        self._emitted.append(VarBinding(var, new, self._span))
        return True

    # Shuffled channels

    def _shuffle(self, var: Var, call: Call) -> bool:
        """An image whose channels, seen as a matrix, were transposed."""
        permute = self._only_use(call.args[0], "relax.permute_dims")
        reshape = None if permute is None else self._only_use(permute.args[0], "relax.reshape")
        if permute is None or reshape is None:
            return False
        axes, x = permute.attrs["axes"], reshape.args[0]
        split: Any = reshape.ty
        if (
            axes is None
            or [int(axis) for axis in axes] != [0, 2, 1, 3, 4]
            or not isinstance(x, Var)
            or not self._is_in_blocks(x)
            or not _same_dims(x.ty, var.ty)
            or split.dims is None
            or not all(isinstance(dim, IntImm) for dim in split.dims[1:3])
            or not all(map(structural_equal, [*split.dims[:1], *split.dims[3:]],
                           [*x.ty.dims[:1], *x.ty.dims[2:]]))
        ):  # fmt: skip
            return False
        rows, columns = (int(dim.value) for dim in split.dims[1:3])
        places = np.arange(rows * columns).reshape(rows, columns).T.reshape(-1)
        return self._set_shuffled(var, x, places)

    def _only_use(self, expr: Expr, name: str) -> Call | None:
        """The call of an operator whose result has this operand as its only use."""
        value = self._values.get(expr)
        if not isinstance(value, Call) or not isinstance(value.op, Op) or value.op.name != name:
            return None
        return value if isinstance(expr, Var) and self._uses[expr] == 1 else None

    def _set_shuffled(self, var: Var, source: Var, places: NDArray[Any]) -> bool:
        self._shuffled[var] = source, places
        self._missing.add(var)
        return True

    def _of_shuffled(self, var: Var, call: Call) -> bool:
        """An operator that takes each channel by itself, or a convolution, of shuffled channels."""
        x = call.args[0]
        assert isinstance(x, Var)
        source, places = self._shuffled[x]
        if not _is_image(var.ty):
            return False
        if _name(call) == "relax.nn.conv2d":
            weight, groups = call.args[1], call.attrs["groups"]
            if not self._is_usual_conv(call):
                return False
            assert isinstance(weight, Constant)
            if groups > 1 and weight.data.shape[:2] == (groups, 1):
                ordered = np.empty_like(weight.data)
                ordered[places] = weight.data
                call = Call(call.op, [source, Constant(ordered)], call.attrs)
                hidden = Var(var.name, var.ty)
                self._uses[hidden] = self._uses[var]
                if not self._conv_of(hidden, call, source, None):
                    return False
                return self._set_shuffled(var, hidden, places)
            return self._conv_of(var, call, source, places)
        # A number for each channel
        numbers = _of_channels(call.args[1], len(places), 4)
        if numbers is None or self._uses[x] != 1 or not _same_dims(x.ty, var.ty):
            return False
        ordered = np.empty((1, len(places), 1, 1), np.float32)
        ordered[0, places, 0, 0] = numbers
        hidden = Var(var.name, var.ty)
        self._uses[hidden] = self._uses[var]
        if not self._add(hidden, Call(call.op, [source, Constant(ordered)], call.attrs)):
            return False
        self._missing.discard(x)
        del self._shuffled[x]
        return self._set_shuffled(var, hidden, places)

    def _add(self, var: Var, call: Call) -> bool:
        """Addition of a number for each channel, or of another image, to a convolution."""
        for one, other in (call.args, call.args[::-1]):
            waiting = self._take(one)
            if waiting is None or not _same_dims(one.ty, var.ty):
                continue
            number = _number(other) if isinstance(other, Constant) else None
            if (waiting.is_bounded or waiting.is_curved) and number is not None:
                shift = np.float32((waiting.shift or 0) + number)
                return self._extend(one, var, replace(waiting, shift=float(shift)))
            if waiting.is_bounded or waiting.is_curved or waiting.residual is not None:
                continue
            numbers = _of_channels(other, waiting.channels, var.ty.ndim)
            if numbers is not None:
                bias = waiting.lines(numbers)
                if waiting.bias is not None:
                    bias = bias + waiting.bias
                return self._extend(one, var, replace(waiting, bias=bias))
            if isinstance(other, Var) and _same_dims(other.ty, var.ty) and waiting.taps is None:
                return self._extend(one, var, replace(waiting, residual=self._in_blocks(other)))
        return self._add_to_gated(var, call)

    def _multiply(self, var: Var, call: Call) -> bool:
        """Multiplication of a convolution by a number for each channel."""
        for one, other in (call.args, call.args[::-1]):
            waiting = self._take(one)
            if self._precise or waiting is None:
                continue
            number = _number(other) if isinstance(other, Constant) else None
            if (waiting.is_bounded or waiting.is_curved) and number is not None:
                return self._scale(one, var, waiting, number)
            if waiting.is_bounded or waiting.is_curved or waiting.residual is not None:
                continue
            numbers = _of_channels(other, waiting.channels, var.ty.ndim)
            if numbers is None or not _same_dims(one.ty, var.ty):
                continue
            from ..kernels import blocks

            factors = waiting.lines(numbers)
            with np.errstate(all="ignore"):
                weight = blocks.scale_outputs(waiting.weight.data, factors, waiting.kernel)
                bias = None if waiting.bias is None else waiting.bias * factors
            if not np.isfinite(weight).all() or not (bias is None or np.isfinite(bias).all()):
                return False
            return self._extend(one, var, replace(
                waiting, weight=Constant(placed(weight)), bias=bias
            ))  # fmt: skip
        return self._gate(var, call)

    def _scale(self, one: Expr, var: Var, waiting: _Convolution, number: float) -> bool:
        """Multiplication of what a function gives by a number."""
        if not _same_dims(one.ty, var.ty):
            return False
        with np.errstate(all="ignore"):
            scale = np.float32((1 if waiting.scale is None else waiting.scale) * number)
            shift = None if waiting.shift is None else np.float32(waiting.shift * number)
        if not np.isfinite(scale) or not (shift is None or np.isfinite(shift)):
            return False
        new = replace(waiting, scale=float(scale), shift=None if shift is None else float(shift))
        return self._extend(one, var, new)

    def _divide(self, var: Var, call: Call) -> bool:
        """Division of what a function gives by a number."""
        one, other = call.args
        waiting = self._take(one)
        number = _number(other) if isinstance(other, Constant) else None
        if self._precise or waiting is None or not number or not math.isfinite(1 / number):
            return False
        if not (waiting.is_bounded or waiting.is_curved):
            return False
        return self._scale(one, var, waiting, 1 / number)

    def _function(self, var: Var, call: Call) -> bool:
        """A function of the sums that the kernels compute while these are in the cache."""
        return self._follow(var, call.args[0], _FUNCTIONS[_name(call)])

    def _follow(self, var: Var, x: Expr, function: str) -> bool:
        waiting = self._take(x)
        if self._precise or waiting is None or not _same_dims(x.ty, var.ty):
            return False
        if waiting.function is not None or waiting.is_scaled:
            return False
        return self._extend(x, var, replace(waiting, function=function))

    def _apply(self, var: Var, call: Call) -> bool:
        """A call of `nn.apply`."""
        name, inputs = call.args[:2]
        if (
            not isinstance(name, ExternFunc)
            or name.global_symbol != KERNEL_PREFIX + "nn.apply"
            or not isinstance(inputs, Tuple)
        ):
            return False
        x, function = inputs.fields
        if not isinstance(function, StringImm) or not isinstance(x, Var):
            return False
        if self._follow(var, x, function.value):
            return True
        if not self._is_in_blocks(x) or function.value == "exp":
            return False
        value = kernel_call("nn.apply", (self._in_blocks(x), function), _blocked(var.ty))
        return self._define(var, value)

    def _leak(self, var: Var, call: Call) -> bool:
        """Negative numbers times a slope: leaky relu, and prelu of constant slopes."""
        x = call.args[0]
        waiting = self._take(x)
        if waiting is None or not _same_dims(x.ty, var.ty):
            return False
        if waiting.is_bounded or waiting.is_curved:
            return False
        if _name(call) == "relax.nn.leakyrelu":
            slopes = np.full(waiting.channels, call.attrs["alpha"], np.float32)
        else:
            alpha = call.args[1]
            if not isinstance(alpha, Constant) or call.attrs["axis"] % var.ty.ndim != 1:
                return False
            slopes = np.broadcast_to(alpha.data, (waiting.channels,))
        if not np.isfinite(slopes).all():
            return False
        return self._extend(x, var, replace(waiting, slope=waiting.lines(slopes)))

    def _bound(self, var: Var, call: Call) -> bool:
        """At least and at most a number: relu, clip, maximum and minimum."""
        name = _name(call)
        low: float | None = None
        high: float | None = None
        x = call.args[0]
        if name == "relax.nn.relu":
            low = 0.0
        elif name == "relax.clip":
            low, high = map(_number, call.args[1:])
            if low is None or high is None:
                return False
        else:
            other = call.args[1]
            if _number(other) is None:
                x, other = other, x
            if (number := _number(other)) is None:
                return False
            low, high = (number, None) if name == "relax.maximum" else (None, number)
        waiting = self._take(x)
        if waiting is None or waiting.is_curved or not _same_dims(x.ty, var.ty):
            return False
        if not all(bound is None or _is_float32(bound) for bound in (low, high)):
            return False
        # The kernel takes the upper bound last: after one, there is no lower bound.
        if waiting.high is not None or (low is not None and waiting.low is not None):
            return False
        low = waiting.low if low is None else low
        if low is not None and high is not None and low > high:
            return False
        return self._extend(x, var, replace(waiting, low=low, high=high))

    def _remember_norm(self, var: Var, call: Call) -> bool:
        x, *rest = call.args
        vectors = [arg.data for arg in rest if isinstance(arg, Constant)]
        if (
            var not in self._only_first
            or len(vectors) != 4
            or not _has_channels(x.ty)
            or not self._is_in_blocks(x)
            or call.attrs["axis"] % x.ty.ndim != 1
            or not _has_area(x.ty)
        ):
            return False
        gamma, beta, mean, variance = (v.astype(np.float64) for v in vectors)
        scale = 1 / np.sqrt(variance + call.attrs["epsilon"])
        if call.attrs["scale"]:
            scale = scale * gamma
        shift = -mean * scale
        if call.attrs["center"]:
            shift = shift + beta
        if not (np.isfinite(scale).all() and np.isfinite(shift).all()):
            return False
        self._norms[var] = x, scale.astype(np.float32), shift.astype(np.float32)
        return True

    def _norm(self, var: Var, x: Expr, scale: NDArray[Any], shift: NDArray[Any]) -> bool:
        """A factor and a number to add for each channel: a window of one pixel."""
        from ..kernels import blocks

        packed = blocks.pack_depthwise(scale.reshape(-1, 1, 1, 1))
        settings = ((1, 1), (0, 0, 0, 0), (1, 1), 1)
        assert isinstance(x, Var)
        return self._wait(
            var,
            _Convolution(
                "nn.conv2d_depthwise_blocks", self._in_blocks(x), Constant(packed), _padded(shift),
                settings, _blocked(var.ty), len(scale),
            ),
        )  # fmt: skip

    def _pool(self, var: Var, call: Call) -> bool:
        (x,) = call.args
        attrs = call.attrs
        layout = "NCHW" if var.ty.ndim == 4 else "NCW"
        if not self._may_be_in_blocks(x) or {attrs["layout"], attrs["out_layout"]} != {layout}:
            return False
        is_mean = "avg" in _name(call)
        steps = attrs["strides"], attrs["padding"], attrs["dilation"]
        size = attrs["pool_size"]
        if var.ty.ndim == 3:
            size, steps = (1, *size), _of_rows(*steps)
        settings = [size, *steps, attrs["ceil_mode"]] + [attrs["count_include_pad"]] * is_mean
        name = "nn.avg_pool2d_blocks" if is_mean else "nn.max_pool2d_blocks"
        assert isinstance(x, Var)
        inputs = (self._in_blocks(x), *settings)
        return self._define(var, kernel_call(name, inputs, _blocked(var.ty)))

    def _transposed(self, var: Var, call: Call) -> bool:
        """A transposed convolution whose windows do not overlap: each tap of the window is a
        convolution of one pixel, whose results belong to pixels of their own."""
        x, weight = call.args
        attrs: Any = call.attrs
        if (
            not isinstance(x, Var)
            or not _is_image(x.ty)
            or not self._may_be_in_blocks(x)
            or not isinstance(weight, Constant)
            or weight.data.dtype != np.float32
            or not weight.data.size
            or not _has_area(x.ty)
            or attrs["groups"] != 1
            or any(attrs["padding"])
            or any(attrs["output_padding"])
            or tuple(attrs["strides"]) != weight.data.shape[2:]
            or set(attrs["dilation"]) != {1}
            or (attrs["data_layout"], attrs["kernel_layout"]) != ("NCHW", "IOHW")
            or attrs["out_layout"] not in (None, "", "NCHW")
            or attrs["out_dtype"] not in (None, "", "void", "float32")
        ):
            return False
        from ..kernels import blocks

        inputs, outputs, tall, wide = weight.data.shape
        if tall * wide > _MOST_TAPS:
            return False
        are_few = outputs * tall * wide <= 2 * BLOCK
        if are_few:
            by_output = weight.data.transpose(1, 2, 3, 0).reshape(-1, inputs, 1, 1)
            packed = blocks.pack_direct(by_output)
        else:
            by_tap = weight.data.transpose(2, 3, 1, 0).reshape(tall * wide, outputs, inputs, 1, 1)
            packed = np.concatenate([blocks.pack_direct(tap) for tap in by_tap])
        source = self._in_blocks(x)
        assert source.ty.dims is not None
        dims = [source.ty.dims[0], int_imm(len(packed)), *source.ty.dims[2:]]
        settings = ((1, 1), (0, 0, 0, 0), (1, 1), 1)
        return self._wait(
            var,
            _Convolution(
                "nn.conv2d_blocks", source, Constant(placed(packed)), None, settings,
                TensorType(dims, var.ty.dtype, var.ty.vdevice), outputs, taps=(tall, wide),
                places=None if are_few else _blocked(var.ty),
            ),
        )  # fmt: skip

    def _resize(self, var: Var, call: Call) -> bool:
        """Along height and width."""
        x, size = call.args
        axes = [int(axis) % var.ty.ndim for axis in call.attrs["axes"]]
        if var.ty.ndim != 4 or not set(axes) <= {2, 3} or not self._is_in_blocks(x):
            return False
        if _channels(x.ty) != _channels(var.ty):
            return False
        attrs = {**call.attrs, "axes": tuple(axes)}
        assert isinstance(x, Var)
        resized = Call(call.op, [self._in_blocks(x), size], attrs, call.ty_args, span=call.span)
        return self._define(var, self.infer(resized))

    def _concat(self, var: Var, call: Call) -> bool:
        """Of whole blocks, but for the last ones."""
        (images,) = call.args
        axis = call.attrs["axis"]
        if not isinstance(images, Tuple) or axis is None or axis % var.ty.ndim != 1:
            return False
        fields = images.fields
        if not all(_is_image(field.ty) and isinstance(field, Var) for field in fields):
            return False
        if not any(map(self._is_in_blocks, fields)) or any(
            _channels(field.ty) % BLOCK for field in fields[:-1]
        ):
            return False
        parts = [self._in_blocks(field) for field in fields if isinstance(field, Var)]
        return self._define(var, self.infer(op.concat(Tuple(parts), 1)))

    def _mean(self, var: Var, call: Call) -> bool:
        """Over the pixels of an image."""
        (x,) = call.args
        axes = call.attrs["axis"]
        if not _is_image(x.ty) or not self._is_in_blocks(x) or axes is None:
            return False
        rank = x.ty.ndim
        if sorted(int(axis) % rank for axis in axes) != [2, 3][: rank - 2]:
            return False
        keeps = bool(call.attrs["keepdims"])
        if _channels(x.ty) % BLOCK and not (keeps and rank == 4):
            return False
        assert isinstance(x, Var)
        if not self._precise:
            source = self._in_blocks(x)
            dims = [*source.ty.dims[:2], int_imm(1), int_imm(1), int_imm(BLOCK)]
            pixel = TensorType(dims, var.ty.dtype, var.ty.vdevice)
            mean: Expr = kernel_call("nn.mean_blocks", (source,), pixel)
        else:
            mean = self.infer(op.mean(self._in_blocks(x), [2, 3], True))
        if keeps and rank == 4:
            return self._define(var, mean)
        flat = op.reshape(self._emit(var.name, mean), var.ty.shape)
        self._emitted.append(VarBinding(var, self.infer(flat), self._span))
        return True

    def _elementwise(self, var: Var, call: Call) -> bool:
        channels = _channels(var.ty)
        if channels % BLOCK and _name(call) not in _ANYWHERE:
            return False
        if not any(map(self._is_in_blocks, call.args)):
            return False
        args: list[Expr] = []
        images: list[int] = []
        for arg in call.args:
            if not isinstance(arg.ty, TensorType):
                args.append(arg)
            elif (
                isinstance(arg, Var)
                and _has_channels(arg.ty)
                and (arg.ty.ndim, _channels(arg.ty)) == (var.ty.ndim, channels)
            ):
                if not self._is_in_blocks(arg) and not _same_dims(arg.ty, var.ty):
                    return False
                images.append(len(args))
                args.append(arg)
            elif isinstance(arg, Var) and arg.ty.ndim == 0 and arg.ty.dtype == "float32":
                args.append(self.visit(arg))
            else:
                constant = _blocked_constant(arg, channels, var.ty.ndim)
                if constant is None:
                    return False
                args.append(constant)
        for i in images:
            arg = args[i]
            assert isinstance(arg, Var)
            args[i] = self._in_blocks(arg)
        return self._define(
            var, self.infer(Call(call.op, args, call.attrs, call.ty_args, span=call.span))
        )


_BYTES: Final = ("int8", "uint8")

_OF_BYTES: Final[dict[str, Callable[[_Blocker, Var, Call], bool]]] = {
    "relax.quantize": _Blocker._quantize,
    "relax.astype": _Blocker._dequantize,
    "relax.nn.max_pool1d": _Blocker._pool_of_bytes,
    "relax.nn.max_pool2d": _Blocker._pool_of_bytes,
}
"""What takes or gives images of bytes."""

_KEEP_CHANNELS: Final = frozenset({"relax.nn.conv2d", "relax.add"})
"""What takes images whose channels are shuffled, as its first operand."""

_RULES: Final[dict[str, Callable[[_Blocker, Var, Call], bool]]] = {
    "relax.reshape": _Blocker._shuffle,
    "relax.nn.conv1d": _Blocker._conv,
    "relax.nn.conv2d": _Blocker._conv,
    "relax.nn.conv3d": _Blocker._conv_of_frames,
    "relax.add": _Blocker._add,
    "relax.nn.relu": _Blocker._bound,
    "relax.clip": _Blocker._bound,
    "relax.maximum": _Blocker._bound,
    "relax.minimum": _Blocker._bound,
    "relax.multiply": _Blocker._multiply,
    "relax.nn.max_pool1d": _Blocker._pool,
    "relax.nn.max_pool2d": _Blocker._pool,
    "relax.nn.avg_pool1d": _Blocker._pool,
    "relax.nn.avg_pool2d": _Blocker._pool,
    "relax.concat": _Blocker._concat,
    "relax.mean": _Blocker._mean,
    "relax.divide": _Blocker._divide,
    "relax.nn.leakyrelu": _Blocker._leak,
    "relax.nn.prelu": _Blocker._leak,
    "relax.nn.conv2d_transpose": _Blocker._transposed,
    "relax.image.resize": _Blocker._resize,
}

_FUNCTIONS: Final = {
    "relax.nn.gelu": "gelu",
    "relax.nn.gelu_tanh": "gelu_tanh",
    "relax.nn.silu": "silu",
    "relax.sigmoid": "sigmoid",
    "relax.tanh": "tanh",
}
"""Functions that follow a convolution: operators, and their names in the kernels."""

_RULES.update(dict.fromkeys(_FUNCTIONS, _Blocker._function))

_ELEMENTWISE: Final = _ANYWHERE | {
    f"relax.{name}" for name in ("divide", "exp", "log", "power", "sqrt", "square", "rsqrt", "erf")
}


_OF_VIDEOS: Final = _ELEMENTWISE | {
    "relax.nn.conv3d", "relax.nn.prelu", *_FUNCTIONS,
}  # fmt: skip
"""Operators whose results may be videos in blocks: each frame is an image of its own."""


def _only_first(func: Function, uses: Counter[Var]) -> set[Var]:
    """The variables of which only the first element is used."""
    first: Counter[Var] = Counter()

    def visit(expr: Expr) -> None:
        if isinstance(expr, TupleGetItem) and expr.index == 0 and isinstance(expr.tuple_value, Var):
            first[expr.tuple_value] += 1

    post_order_visit(func, visit)
    return {var for var, count in first.items() if uses[var] == count}


def _name(call: Call) -> str:
    assert isinstance(call.op, Op)
    return call.op.name


def _is_image(
    ty: Any, dtypes: Collection[str] = ("float32",), ranks: Collection[int] = (3, 4)
) -> bool:
    """float32, or of other data types, [batch, channels, height, width] or [batch, channels,
    width], an image of one row, with a known number of channels."""
    return (
        isinstance(ty, TensorType)
        and ty.dtype in dtypes
        and ty.dims is not None
        and len(ty.dims) in ranks
        and isinstance(ty.dims[1], IntImm)
        and ty.dims[1].value > 0
    )


def _is_video(ty: Any) -> bool:
    """float32[batch, channels, frames, height, width] with a known number of channels: in blocks,
    the frames are images."""
    return _is_image(ty, ranks=(5,))


def _has_channels(ty: Any) -> bool:
    return _is_image(ty, ranks=(3, 4, 5))


def _quantizes_all_alike(call: Call) -> bool:
    """Whether R.quantize makes bytes, with numbers for all."""
    _, scale, zero = call.args
    target = call.attrs["out_dtype"]
    return target in ("int8", "uint8") and all(
        isinstance(p.ty, TensorType) and p.ty.ndim == 0 and p.ty.dtype == dtype
        for p, dtype in ((scale, "float32"), (zero, target))
    )


def _have_same_dims(a: Any, b: Any) -> bool:
    """Whether tensors of any data type have the same known dimensions."""
    return (
        isinstance(a, TensorType)
        and isinstance(b, TensorType)
        and a.dims is not None
        and b.dims is not None
        and len(a.dims) == len(b.dims)
        and all(map(structural_equal, a.dims, b.dims))
    )


def _has_area(ty: Any) -> bool:
    return not any(isinstance(dim, IntImm) and dim.value == 0 for dim in ty.dims)


def _channels(ty: Any) -> int:
    count: int = ty.dims[1].value
    return count


def _same_dims(a: Any, b: Any) -> bool:
    if not _has_channels(a) or not _has_channels(b) or len(a.dims) != len(b.dims):
        return False
    return all(map(structural_equal, a.dims, b.dims))


def _four_dims(ty: Any) -> list[Any]:
    """The dimensions of an image; one of 3 dimensions has one row, and the frames of one of 5 are
    images."""
    dims = list(ty.dims)
    if len(dims) == 5:
        return [simplify(dims[0] * dims[2]), dims[1], *dims[3:]]
    return dims if len(dims) == 4 else [*dims[:2], int_imm(1), dims[2]]


def _of_rows(strides: Any, padding: Any, dilation: Any) -> tuple[Any, Any, Any]:
    """Strides, padding and dilation along one axis for an image of one row."""
    left, right = padding
    return (1, *strides), (0, left, 0, right), (1, *dilation)


def _blocked(ty: Any) -> TensorType:
    batch, channels, height, width = _four_dims(ty)
    dims = [batch, -(-channels.value // BLOCK), height, width, BLOCK]
    return TensorType(dims, ty.dtype, ty.vdevice)


def _are_whole(weight: NDArray[Any]) -> bool:
    """Whether all weights are whole numbers, as those of integer convolutions, whose results are
    exact; Winograd's algorithm multiplies by fractions."""
    return bool((weight == np.rint(weight)).all())


def _suits_winograd(ty: Any, steps: Any, outputs: int, channels: int) -> bool:
    strides, padding, dilation = steps
    if {*strides, *dilation} != {1} or max(padding) > 2 or min(outputs, channels) < BLOCK:
        return False
    batch, _, height, width = _four_dims(ty)
    if any(isinstance(dim, IntImm) and dim.value < _SMALLEST_WINOGRAD for dim in (height, width)):
        return False
    dims = [dim.value for dim in (batch, height, width) if isinstance(dim, IntImm)]
    return len(dims) < 3 or math.prod(dims) >= _FEWEST_PIXELS


def _padded(vector: NDArray[Any]) -> NDArray[Any]:
    from ..kernels import blocks

    return blocks.pack_bias(vector)


def _of_channels(expr: Expr, channels: int, ndim: int) -> NDArray[Any] | None:
    """A constant with a number for each channel of images of a rank, or with one for all, as a
    vector."""
    if not isinstance(expr, Constant) or expr.data.dtype != np.float32 or expr.data.ndim > ndim:
        return None
    shape = (1,) * (ndim - expr.data.ndim) + expr.data.shape
    if shape not in ((1, channels, *[1] * (ndim - 2)), (1,) * ndim):
        return None
    return np.broadcast_to(expr.data.reshape(-1), (channels,))


def _blocked_constant(expr: Expr, channels: int, ndim: int) -> Constant | None:
    numbers = _of_channels(expr, channels, ndim)
    if numbers is None:
        return None
    if isinstance(expr, Constant) and expr.data.size == 1:
        return Constant(expr.data.reshape(()))
    return Constant(_padded(numbers).reshape(1, -1, 1, 1, BLOCK))


def _number(expr: Expr) -> float | None:
    if isinstance(expr, (IntImm, FloatImm)):
        return float(expr.value)
    if isinstance(expr, Constant) and expr.data.size == 1 and expr.data.dtype == np.float32:
        return float(expr.data.reshape(-1)[0])
    return None


def _is_float32(number: float) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.isfinite(np.float32(number)) and (
            number == 0 or abs(number) >= np.finfo(np.float32).tiny
        ))  # fmt: skip


def BlockConvolutions(
    *, precise: bool = False, winograd: bool = True, bfloat16: bool = False
) -> Pass:
    """Compute convolutions of constant weights, along one to three axes, on images in blocks of
    16 channels, by the C kernels
    ``nn.conv2d_blocks``, ``nn.conv2d_depthwise_blocks`` and ``nn.conv2d_winograd_blocks``.

    Factors and numbers to add for each channel, a residual, bounds (relu, clip, maximum, minimum),
    slopes of negative numbers (leaky relu, prelu), then a function (gelu, silu, hard swish,
    sigmoid, tanh), a factor and a number to add, that follow a convolution become part of its call.
    Normalizations of a batch with constant parameters become windows of one pixel; transposed
    convolutions whose windows do not overlap, convolutions of one pixel.  Elementwise operators,
    pools, resizing, means over the pixels, products with them, and concatenations of channels keep
    the layout; before and after all others, images are reordered.

    Convolutions along three axes are those of images whose channels are the ones of all the frames
    that a result is computed from; elementwise operators keep the frames in blocks.

    Convolutions of bytes, less a zero point, and constant integers become
    ``nn.integer_conv2d_blocks``, which is exact, with what follows them up to a quantization.

    Weights are packed when this pass runs; those of 3 x 3 windows at stride 1 take four times the
    memory (Winograd's method).  Results are not the same bits as without the pass.

    Args:
        precise: leave out Winograd's method, whose results differ from sums of products by some
            1e-5 of their root mean square, factors in weights, and functions that are not those of
            numpy.
        winograd: whether Winograd's method may be taken.
        bfloat16: weights of the other convolutions of images in blocks, but those of each channel
            by itself, become bfloat16, by the kernel ``nn.conv2d_bfloat16``, and images are rounded
            to it where the processor multiplies such numbers.
    """

    @function_pass(name="BlockConvolutions")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        if func.attrs.get("Primitive"):
            return func
        return _Blocker(func, precise=precise, winograd=winograd, bfloat16=bfloat16).visit(func)

    return run
