"""Generated from relaxvm/core/operations.py by scripts/gen_operations.py - do not edit."""

from __future__ import annotations

from typing import Final

__all__ = ["BUILTINS"]

BUILTINS: Final = (
    "vm.builtin.copy",
    "vm.builtin.null_value",
    "vm.builtin.make_tuple",
    "vm.builtin.tuple_getitem",
    "relaxvm.builtin.make_adt",
    "relaxvm.builtin.adt_tag",
    "relaxvm.builtin.match_tag",
    "relaxvm.builtin.adt_field",
    "relaxvm.builtin.tag_is",
    "vm.builtin.shape_of",
    "vm.builtin.make_shape",
    "vm.builtin.match_shape",
    "vm.builtin.check_tensor_info",
    "vm.builtin.check_shape_info",
    "vm.builtin.check_tuple_info",
    "vm.builtin.check_func_info",
    "vm.builtin.check_prim_value_info",
    "vm.builtin.match_prim_value",
    "vm.builtin.make_prim_value",
    "vm.builtin.read_if_cond",
    "relaxvm.builtin.compute_shape",
    "vm.builtin.alloc_shape_heap",
    "vm.builtin.alloc_storage",
    "vm.builtin.alloc_tensor",
    "vm.builtin.reshape",
    "vm.builtin.make_closure",
    "vm.builtin.invoke_closure",
)
"""`operations.BUILTINS`: the translator takes them from here, without the table."""
