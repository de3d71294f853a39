"""Passes, which lower a program to a form that the VM can run, or optimize it.

Each pass is a function of this package that returns a `Pass`, a map from IRModule to IRModule.
`relaxvm.transform.pipelines` defines their order.
"""

# ruff: noqa: F403
from typing import Any as _Any

from ..script.earlier import today as _today
from .adjust_matmul_order import *
from .alter_op_impl import *
from .annotate_tir_op_pattern import *
from .attach_global_symbol import *
from .attach_layout_free_buffers import *
from .bind_params import *
from .block_convolutions import *
from .block_rewrite import *
from .bundle_model_params import *
from .call_tir_rewrite import *
from .canonicalize_bindings import *
from .combine_parallel_matmul import *
from .compile_shape_functions import *
from .compute_in_float32 import *
from .compute_prim_value import *
from .concat_in_place import *
from .config import *
from .convert_layout import *
from .convert_to_dataflow import *
from .dead_code_elimination import *
from .decompose_ops import *
from .eliminate_common_subexpr import *
from .expand_matmul_of_sum import *
from .expand_tuple_arguments import *
from .flush_subnormals import *
from .fold_batchnorm_to_conv2d import *
from .fold_constant import *
from .fold_quantization import *
from .fold_scale_to_conv import *
from .fuse_ops import *
from .fuse_ops_by_pattern import *
from .fuse_tir import *
from .fuse_transpose_matmul import *
from .inline_private_functions import *
from .instruments import *
from .kill_after_last_use import *
from .lambda_lift import *
from .lazy_params import *
from .legalize_ops import *
from .legalize_to_loops import *
from .lift_transform_params import *
from .lower_alloc_tensor import *
from .lower_data_types import *
from .lower_runtime_builtin import *
from .merge_composite_functions import *
from .move_permutations import *
from .normalize import *
from .normalize_global_var import *
from .optimize_layout_transform import *
from .pack_linear import *
from .pass_infra import *
from .plan_memory import *
from .realize_vdevice import *
from .recognize_attention import *
from .recognize_ops import *
from .remove_purity_checking import *
from .remove_redundant_reshape import *
from .remove_unused_outputs import *
from .remove_unused_parameters import *
from .reorder_permute_dims_after_concat import *
from .reorder_take_after_matmul import *
from .return_results import *
from .reuse_shapes import *
from .rewrite_dataflow_reshape import *
from .run_codegen import *
from .static_plan_block_memory import *
from .to_mixed_precision import *
from .to_non_dataflow import *
from .topological_sort import *
from .update_param_type import *
from .update_vdevice import *
from .vm_shape_lower import *
from .write_in_place import *


def __getattr__(name: str) -> _Any:
    message = f"module {__name__!r} has no attribute {name!r}{_today('transform', name)}"
    raise AttributeError(message, name=name)
