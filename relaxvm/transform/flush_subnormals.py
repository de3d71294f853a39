"""FlushSubnormals: weights that are too small to matter do not make products slow."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..ir import Call, Constant, Expr, ExprMutator, Function, IRModule, Op
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["FlushSubnormals"]

_OPERATORS: Final = frozenset(
    f"relax.{name}"
    for name in (
        "matmul", "nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.conv1d_transpose",
        "nn.conv2d_transpose", "nn.conv3d_transpose", "nn.gru", "nn.lstm", "nn.rnn",
        "add", "multiply", "nn.batch_norm", "nn.layer_norm",
    )
)  # fmt: skip
"""Operators that add up products of their operands, and those whose results they multiply: the bias
of a channel without weights is what the next product gets."""

_CHUNK: Final = 1 << 15
"""Elements that are looked at at once, so that they stay in the cache."""


class _Flusher(ExprMutator):
    def __init__(self) -> None:
        super().__init__()
        self._flushed: dict[int, Constant] = {}
        self._kept: list[Constant] = []
        """Constants that were looked at: their identity is a key."""

    def visit_call(self, call: Call) -> Expr:
        if isinstance(call.op, Op) and call.op.name in _OPERATORS:
            args = [self._without(arg) for arg in call.args]
            if any(new is not old for new, old in zip(args, call.args, strict=True)):
                call = Call(call.op, args, call.attrs, call.ty_args, call.span, ret_ty=call.ty)
        return super().visit_call(call)

    def _without(self, arg: Expr) -> Expr:
        if not isinstance(arg, Constant) or arg.data.dtype != np.float32:
            return arg
        if id(arg) not in self._flushed:
            self._kept.append(arg)
            data = _flushed(arg.data)
            self._flushed[id(arg)] = arg if data is arg.data else Constant(data, arg.ty, arg.span)
        return self._flushed[id(arg)]


def _flushed(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """The weight with zeros for subnormal numbers; itself if it has none."""
    if not weight.flags.c_contiguous:
        return np.where(_are_subnormal(weight), np.float32(0), weight)
    flat, found = weight.reshape(-1), weight
    for start in range(0, flat.size, _CHUNK):
        chunk = slice(start, start + _CHUNK)
        are_subnormal = _are_subnormal(flat[chunk])
        if are_subnormal.any():
            if found is weight:
                found = weight.copy()
            found.reshape(-1)[chunk][are_subnormal] = 0
    return found


def _are_subnormal(x: NDArray[np.float32]) -> NDArray[np.bool_]:
    # Twice the bits, which drops the sign, less one: zero becomes the greatest number.
    bits = np.left_shift(x.view(np.uint32), np.uint32(1))
    return np.subtract(bits, np.uint32(1), out=bits) < np.uint32((1 << 24) - 1)


def FlushSubnormals() -> Pass:
    """Replace subnormal numbers, below 2**-126, by zeros in weights and biases: in constant float32
    operands of `matmul`, convolutions, recurrent layers, `add`, `multiply` and normalizations.

    A product with a subnormal number takes processors some 100 times as long as another one, and
    trained weights that have decayed towards zero hold many.  A product or sum changes by less than
    the sum of the other operand's elements times 2**-126.
    """

    @function_pass(name="FlushSubnormals")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return _Flusher().visit(func)

    return run
