"""Static analyses of programs.

`well_formed` checks the rules that every program must obey; the other functions are for passes.
Names are those of ``tvm.relax.analysis``.
"""

from ..ir.visitor import post_order_visit
from .compile_time import computable_at_compile_time
from .layouts import suggest_layout_transforms
from .memory_use import (
    FunctionMemory,
    MemoryReport,
    estimate_memory_usage,
    memory_report,
)
from .overwritten import overwritten_vars
from .purity import contains_impure_call, is_impure_call
from .reshape import has_reshape_pattern
from .structure import detect_recursion, remove_all_unused
from .types import (
    BaseCheckResult,
    TypeBaseCheckResult,
    collect_non_negative_expressions,
    derive_call_ret_type,
    erase_to_well_defined,
    get_static_type,
    type_base_check,
    type_lca,
)
from .variables import (
    all_global_vars,
    all_vars,
    bound_vars,
    called_global_vars,
    definable_tir_vars_in_type,
    defined_symbolic_vars,
    free_symbolic_vars,
    free_vars,
    get_var2val,
    name_to_binding,
    tir_vars_in_type,
    udchain,
    used_vars,
)
from .well_formed import (
    RULES,
    IllFormedError,
    Violation,
    check_well_formed,
    violations,
    well_formed,
)

__all__ = [
    "RULES",
    "BaseCheckResult",
    "FunctionMemory",
    "IllFormedError",
    "MemoryReport",
    "TypeBaseCheckResult",
    "Violation",
    "all_global_vars",
    "all_vars",
    "bound_vars",
    "called_global_vars",
    "check_well_formed",
    "collect_non_negative_expressions",
    "computable_at_compile_time",
    "contains_impure_call",
    "definable_tir_vars_in_type",
    "defined_symbolic_vars",
    "derive_call_ret_type",
    "detect_recursion",
    "erase_to_well_defined",
    "estimate_memory_usage",
    "free_symbolic_vars",
    "free_vars",
    "get_static_type",
    "get_var2val",
    "has_reshape_pattern",
    "is_impure_call",
    "memory_report",
    "name_to_binding",
    "overwritten_vars",
    "post_order_visit",
    "remove_all_unused",
    "suggest_layout_transforms",
    "tir_vars_in_type",
    "type_base_check",
    "type_lca",
    "udchain",
    "used_vars",
    "violations",
    "well_formed",
]
