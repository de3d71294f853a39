"""FoldBatchnormToConv2D: scale the weight of a convolution instead of its result."""

from __future__ import annotations

from typing import Any

from .. import dpl, op
from ..dpl.pattern import DFPattern, TupleGetItemPattern, is_const, is_op, wildcard
from ..ir import Call, Expr, FloatImm, Function, IRModule, prim_value
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["FoldBatchnormToConv2D"]

def FoldBatchnormToConv2D() -> Pass:
    """Replace a convolution of a constant weight and the batch normalization of its result, with
    constant parameters, by a convolution with a scaled weight and an addition.  `FoldConstant`
    then computes the weight.

    The normalization is that of inference, with the moving mean and variance, whether its attribute
    ``training`` is set or not.  It applies to convolutions in the layout NCHW, with weights in OIHW
    or IOHW, and normalizations over the channels.
    """
    data, weight = wildcard(), is_const()
    conv = is_op("relax.nn.conv2d")(data, weight)
    gamma, beta, mean, variance = is_const(), is_const(), is_const(), is_const()
    norm = is_op("relax.nn.batch_norm")(conv, gamma, beta, mean, variance)
    pattern = TupleGetItemPattern(norm, 0)

    def fold(expr: Expr, matches: dict[DFPattern, Expr]) -> Any:
        before: Any = matches[conv]
        after: Any = matches[norm]
        kernel = before.attrs["kernel_layout"]
        axis = after.attrs["axis"] % 4
        if (
            kernel not in ("OIHW", "IOHW")
            or before.attrs["out_layout"] not in ("", None, "NCHW")
            or before.attrs["data_layout"] != "NCHW"
            or axis != 1
        ):
            return expr
        scale_of: Any = matches[gamma] if after.attrs["scale"] else None
        deviation = op.sqrt(
            op.add(matches[variance], prim_value(FloatImm("float32", after.attrs["epsilon"])))
        )
        if scale_of is None:
            scale_of = op.ones_like(matches[gamma])
        scale = op.divide(scale_of, deviation)
        shift = op.multiply(matches[mean], scale)
        shift = op.subtract(matches[beta], shift) if after.attrs["center"] else op.negative(shift)
        channels: Any = matches[gamma].ty
        (count,) = channels.dims
        shape = (count, 1, 1, 1) if kernel == "OIHW" else (1, count, 1, 1)
        scaled = op.multiply(matches[weight], op.reshape(scale, shape))
        new = Call(before.op, (matches[data], scaled), before.attrs)
        return op.add(new, op.reshape(shift, (1, count, 1, 1)))

    @function_pass(name="FoldBatchnormToConv2D")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        if func.attrs.get("Primitive"):
            return func
        return dpl.rewrite_call(pattern, fold, func)

    return run
