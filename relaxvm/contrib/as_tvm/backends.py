"""Patterns of two backends of TVM that programs partition for: the example of an accelerator, by
which TVM's tutorial shows how a code generator is added, and TensorRT, a library for GPUs.

Importing ``tvm.relax.backend.contrib.example_npu`` or ``.tensorrt`` registers their patterns.  As
TVM's own wheel, relaxvm has no code generator of these names: a program may register one, as a
packed function ``relax.ext.NAME``, for `relax.transform.RunCodegen`.

Source: ``tvm.relax.backend.contrib`` of apache-tvm 0.27.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...dpl import is_op, wildcard
from ...ir import Call, IRModule
from ...transform import (
    FuseOpsByPattern,
    MergeCompositeFunctions,
    get_patterns_with_prefix,
    register_patterns,
)
from ...transform.fuse_ops_by_pattern import Check, FusionPattern, PatternCheckContext

__all__ = ["NPU", "TENSORRT", "partition_for_tensorrt"]


def _of_one_operator(name: str, operator: str, count: int, check: Check | None) -> FusionPattern:
    root = is_op(f"relax.{operator}")(*[wildcard() for _ in range(count)])
    return FusionPattern(name, root, {"root": root}, check)


def _then_relu(name: str, operator: str) -> FusionPattern:
    inner = is_op(f"relax.{operator}")(wildcard(), wildcard())
    return FusionPattern(name, is_op("relax.nn.relu")(inner))


def _is_in_groups(context: PatternCheckContext) -> bool:
    call = context.annotated_expr["root"]
    return isinstance(call, Call) and call.attrs["groups"] > 1


_NPU_OPERATORS: Final[Mapping[int, str]] = {
    1: "nn.relu nn.gelu nn.softmax nn.max_pool2d nn.avg_pool2d",
    2: "add multiply subtract divide matmul nn.conv1d nn.conv2d",
    5: "nn.batch_norm",
}
"""Number of arguments -> operators."""

_TENSORRT_OPERATORS: Final[Mapping[int, str]] = {
    1: "nn.relu sigmoid nn.silu tanh exp log sqrt abs negative sin cos atan ceil floor erf "
    "nn.softmax nn.batch_flatten expand_dims squeeze permute_dims layout_transform nn.max_pool2d "
    "nn.avg_pool2d nn.max_pool3d nn.avg_pool3d nn.adaptive_avg_pool2d sum prod max min mean concat "
    "split",
    2: "add subtract multiply divide power maximum minimum nn.conv1d nn.conv2d nn.conv3d "
    "nn.conv2d_transpose nn.conv3d_transpose matmul reshape",
    3: "nn.layer_norm clip",
}
_TENSORRT_NAMES: Final = {
    "permute_dims": "transpose", "concat": "concatenate", "matmul": "nn.batch_matmul",
}  # fmt: skip
"""Operator -> TensorRT's name, where that is another one."""

NPU: Final = "example_npu"
TENSORRT: Final = "tensorrt"

register_patterns(
    [
        *(
            _of_one_operator(f"{NPU}.{name.removeprefix('nn.')}", name, count, None)
            for count, names in _NPU_OPERATORS.items()
            for name in names.split()
        ),
        _of_one_operator(f"{NPU}.depthwise_conv2d", "nn.conv2d", 2, _is_in_groups),
        _then_relu(f"{NPU}.matmul_relu_fused", "matmul"),
        _then_relu(f"{NPU}.conv2d_relu_fused", "nn.conv2d"),
    ]
)
register_patterns(
    _of_one_operator(f"{TENSORRT}.{_TENSORRT_NAMES.get(name, name)}", name, count, None)
    for count, names in _TENSORRT_OPERATORS.items()
    for name in names.split()
)
_SLICE: Final = is_op("relax.strided_slice")
_FOUR, _FIVE = ([wildcard() for _ in range(count)] for count in (4, 5))
register_patterns([(f"{TENSORRT}.strided_slice", _SLICE(*_FOUR) | _SLICE(*_FIVE))])


def partition_for_tensorrt(mod: IRModule) -> IRModule:
    """Move what TensorRT computes into functions for a code generator of this name.

    Resizing stays in the program.  Weights that are bound become constants of these functions.
    """
    patterns = get_patterns_with_prefix(TENSORRT)
    return MergeCompositeFunctions()(FuseOpsByPattern(patterns, bind_constants=True)(mod))
