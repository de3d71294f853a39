"""Every limit against every operator: a program with its call is built, loaded and run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Set
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.compiler.vm_build import build
from relaxvm.core.operations import REWRITINGS
from relaxvm.errors import LimitError
from relaxvm.executable import VMExecutable
from relaxvm.limits import Limits
from relaxvm.op import OPERATORS as RECORDS
from relaxvm.script import from_source

from .notation import evaluate
from .oracle import leaves, operands_of
from .programs import module_of
from .table import OPERATORS

OF_FILES = ("file_bytes", "functions", "instructions", "registers", "call_args", "constants",
            "name_bytes", "rank", "shape_dims")  # fmt: skip
OF_RUNS = ("fuel", "call_depth", "live_bytes", "alloc_bytes")
OTHERS = {
    "wall_time": "test_deadlines",
    "unproved_accesses": "test_saved_prim_funcs",
    "data_parts": "test_data_types_in_files",
}

WIDE = Limits(fuel=1_000_000, alloc_bytes=1 << 24, live_bytes=1 << 24)

KEEPING_FRAMES = frozenset(rewriting.name for rewriting in REWRITINGS) - {"tail_calls"}

SCRIPTS = {
    "call_tir": 'R.call_tir(Module.double, (x,), out_ty=R.Tensor((64, 8), "float32"))',
    "call_tir_inplace": """R.call_tir_inplace(
            Module.double, (x, R.zeros((64, 8), "float32")), [1], R.Tensor((64, 8), "float32"))""",
    "call_dps_packed": """R.call_dps_packed(
            "relaxvm.kernel.exp", (x,), out_ty=R.Tensor((64, 8), "float32"))""",
    "call_pure_packed": 'R.call_pure_packed("relax.run.nonzero", x, ty_args=R.Tensor(ndim=2))',
    "make_closure": "R.make_closure(Module.other, (x,))",
    "invoke_closure": """R.invoke_closure(
            R.make_closure(Module.other, (x,)), (x,), ty_args=R.Tensor((64, 8), "float32"))""",
    "invoke_pure_closure": """R.invoke_pure_closure(
            R.make_closure(Module.other, (x,)), (x,), ty_args=R.Tensor((64, 8), "float32"))""",
    "shape_of": "R.shape_of(x)",
    "shape_to_tensor": "R.shape_to_tensor(R.shape_of(x))",
    "size": "R.size(x)",
    "null_value": "R.null_value()",
    "ref": "R.ref_read(R.ref(x))",
    "ref_read": "R.ref_read(R.ref(R.add(x, x)))",
    "ref_write": "R.ref_write(R.ref(x), R.add(x, x))",
    "assert_op": 'R.assert_op(R.const(True), x, format="{}")',
    **{
        f"inspect.tensor_{name}": f"R.inspect.tensor_{name}(x)"
        for name in ("ndim", "dtype_code", "dtype_bits", "dtype_lanes", "byte_offset",
                     "elem_offset")
    },
    "inspect.tensor_shape_i": "R.inspect.tensor_shape_i(x, 1)",
    "inspect.tensor_stride_i": "R.inspect.tensor_stride_i(x, 1)",
}  # fmt: skip
"""Operator -> a call in a program with a tensor `x`, where the operator's cases have none."""

SCRIPT = '''
@I.ir_module
class Module:
    @T.prim_func
    def double(a: T.Buffer((64, 8), "float32"), b: T.Buffer((64, 8), "float32")):
        for i, k in T.grid(64, 8):
            b[i, k] = a[i, k] * T.float32(2)

    @R.function
    def other(a: R.Tensor((64, 8), "float32"), b: R.Tensor((64, 8), "float32")):
        return R.add(a, b)

    @R.function(pure=False)
    def main(x: R.Tensor((64, 8), "float32")):
        result = {call}
        return result
'''

WITHOUT = {
    "made by the lowering of every program": (
        "builtin.alloc_tensor", "memory.alloc_storage", "memory.alloc_tensor",
        "memory.kill_storage", "memory.kill_tensor", "vm.alloc_storage", "vm.alloc_tensor",
        "vm.kill_object", "vm.call_tir_dyn", "call_builtin_with_ctx", "tensor_to_shape"),
    "allowed by name only, for trusted programs": ("call_py_func", "print"),
    "calls a function that the user has registered": ("call_inplace_packed", "call_packed"),
}  # fmt: skip
"""Reason -> operators without a program."""

WITHOUT_MEMORY = {
    "make_closure", "shape_of", "null_value", "assert_op", "reshape", "expand_dims", "squeeze",
    "flatten", "nn.batch_flatten", "memory.view", "memory.ensure_zero_offset", "hint_on_device",
    "builtin.stop_lift_params", "ref", "ref_write",
    *(name for name in SCRIPTS if name.startswith("inspect.")),
}  # fmt: skip
"""Operators whose results have no tensors, or only views of the operands."""

BY_NUMPY = {
    "call_pure_packed", "dynamic_strided_slice", "nonzero", "shape_to_tensor", "to_vdevice",
    "unique",
}  # fmt: skip
"""Operators whose small results numpy allocates: 64 KiB of such arrays do not count together, but
each counts for `alloc_bytes`."""


@cache
def program(name: str) -> tuple[VMExecutable, list[Any]]:
    """Return an executable that calls an operator, and arguments of its ``main``."""
    if name in SCRIPTS:
        module = from_source(SCRIPT.replace("{call}", SCRIPTS[name]))
        return build(module), [np.ones((64, 8), "f4")]
    found = OPERATORS[name]
    call = found.calls()[name == "zeros"]  # whose first case is empty
    operands = operands_of(call, evaluate(call)[1], found)
    return build(module_of({"main": call})), list(operands.values())


NAMES = sorted(
    {name for name, found in OPERATORS.items() if found.values} | set(SCRIPTS)
)


def outcome(name: str, limits: Limits, optimize: bool | Set[str] = True) -> Any:
    """Return the result of a run, or the name of the limit that it exceeds."""
    executable, args = program(name)
    machine = relaxvm.VirtualMachine(executable, limits=limits, optimize=optimize)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return machine["main"](*args)
        except LimitError as error:
            return error.limit


def least(field: str, refuses: Callable[[Limits], str | None], most: int) -> int:
    """Return the least value of a limit that does not refuse."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        refused = refuses(WIDE.but(**{field: middle}))
        assert refused in (None, field)
        low, high = (middle + 1, high) if refused else (low, middle)
    assert refuses(WIDE.but(**{field: low})) is None
    return low


def test_every_operator_has_a_program_or_a_reason() -> None:
    reasons = [name for names in WITHOUT.values() for name in names]
    assert len(reasons) == len(set(reasons))
    assert set(NAMES).isdisjoint(reasons)
    assert set(OPERATORS) - set(NAMES) == set(reasons)
    assert set(RECORDS) <= set(OPERATORS)


def test_every_limit_has_a_test() -> None:
    assert {field.name for field in fields(Limits)} == {*OF_FILES, *OF_RUNS, *OTHERS}


@pytest.mark.parametrize("name", NAMES)
def test_limits_of_files(name: str) -> None:
    executable, _ = program(name)
    data = executable.to_bytes()

    def refuses(limits: Limits) -> str | None:
        try:
            relaxvm.loads(data, limits=limits)
        except LimitError as error:
            return error.limit
        return None

    arrays = [each for each in executable.constants if isinstance(each, np.ndarray)]
    shapes = [each for each in executable.constants if isinstance(each, relaxvm.Shape)]
    needs = {
        "file_bytes": len(data),
        "functions": len(executable.functions),
        "instructions": len(executable.instr_offset),
        "registers": max(each.register_file_size for each in executable.functions),
        "call_args": least("call_args", refuses, 63),
        "constants": len(executable.constants),
        "name_bytes": least("name_bytes", refuses, 255),
        "rank": max((each.ndim for each in arrays), default=0),
        "shape_dims": max(map(len, shapes), default=0),
    }
    assert tuple(needs) == OF_FILES
    assert needs["call_args"] >= 1
    assert needs["name_bytes"] >= max(len(each.name.encode()) for each in executable.functions)
    for field, need in needs.items():
        assert refuses(Limits().but(**{field: need})) is None
        if need:
            assert refuses(Limits().but(**{field: need - 1})) == field


@pytest.mark.parametrize("name", NAMES)
def test_steps_and_depth(name: str) -> None:
    """Both are exact, and the same with and without the core's fast paths."""
    for field in ("fuel", "call_depth"):
        needs = []
        for optimize in (KEEPING_FRAMES, frozenset()):

            def refuses(limits: Limits, optimize: Set[str] = optimize) -> str | None:
                result = outcome(name, limits, optimize)
                return result if isinstance(result, str) else None

            needs.append(least(field, refuses, 127))
        assert needs[0] == needs[1], field
        assert needs[0] > 1 if field == "fuel" else needs[0] == 1 + name.startswith("invoke_")


@pytest.mark.parametrize("name", NAMES)
def test_memory(name: str) -> None:
    result = outcome(name, WIDE)
    assert not isinstance(result, str)
    tensors = [each for each in leaves(result) if isinstance(each, np.ndarray)]
    operands = [each for each in program(name)[1] if isinstance(each, np.ndarray)]
    made = [
        x.nbytes for x in tensors if not any(np.may_share_memory(x, each) for each in operands)
    ]
    assert bool(made) == (name not in WITHOUT_MEMORY)
    if not made:
        return
    refused = outcome(name, WIDE.but(alloc_bytes=max(made) - 1))
    assert isinstance(refused, str)
    assert refused == "alloc_bytes"
    refused = outcome(name, WIDE.but(live_bytes=sum(made) - 1))
    assert isinstance(refused, str) == (name not in BY_NUMPY)
    assert name in BY_NUMPY or refused == "live_bytes"
