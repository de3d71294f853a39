"""Conversion of cases to programs, and to the kernel calls that they are lowered to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

import relaxvm
from relaxvm import ir
from relaxvm.op.lowering import KERNEL_PREFIX
from relaxvm.transform import LegalizeOps

from .notation import evaluate
from .oracle import operands_of, value_of
from .table import Cases

__all__ = ["KernelCall", "kernel_calls", "module_of", "module_of_results"]


def module_of(calls: Mapping[str, str], symbolic: bool = False) -> ir.IRModule:
    """Return a module with a function for each call."""
    return module_of_results({name: evaluate(call, symbolic) for name, call in calls.items()})


def module_of_results(functions: Mapping[str, tuple[ir.Expr, list[ir.Var]]]) -> ir.IRModule:
    """Return a module of functions, given name -> result and parameters."""
    builder = ir.BlockBuilder()
    for name, (result, params) in functions.items():
        with builder.function(name, params):
            with builder.dataflow():
                out = builder.emit_output(result)
            builder.emit_func_output(out)
    return builder.get()


class KernelCall(NamedTuple):
    """A call of a kernel that a case is lowered to.

    Attributes:
        kernel: its name, without the prefix.
        args: all arguments except the outputs.
        outputs: shape and data type of each.
    """

    kernel: str
    args: list[Any]
    outputs: list[tuple[tuple[int, ...], np.dtype[Any]]]


def kernel_calls(case: str, found: Cases) -> tuple[list[KernelCall], dict[ir.Var, Any]]:
    """Return the kernel calls that a case is lowered to, in order, and its operands."""
    _, made = evaluate(case)
    operands = operands_of(case, made, found)
    main = LegalizeOps()(module_of({"main": case}))["main"]
    env: dict[Any, Any] = dict(zip(main.params, operands.values(), strict=True))
    calls = []
    for block in main.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, ir.Call) and getattr(value.op, "name", "").endswith(
                "call_dps_packed"
            ):
                name = value.args[0].global_symbol.removeprefix(KERNEL_PREFIX)
                args = [_value(arg, env) for arg in value.args[1].fields]
                types = getattr(value.ty, "fields", (value.ty,))
                outputs = [(tuple(int(d) for d in ty.dims), np.dtype(ty.dtype)) for ty in types]
                outs = tuple(np.empty(*output) for output in outputs)
                calls.append(KernelCall(name, args, outputs))
                with np.errstate(all="ignore"):
                    relaxvm.get_func(KERNEL_PREFIX + name)(*args, *outs)
                env[binding.var] = outs if isinstance(value.ty, ir.TupleType) else outs[0]
            else:
                env[binding.var] = _value(value, env)
    return calls, operands


def _value(expr: Any, env: dict[Any, Any]) -> Any:
    def compute(call: ir.Call) -> Any:
        if getattr(call.op, "name", "") != "relax.reshape":
            return None
        return _value(call.args[0], env).reshape(_value(call.args[1], env))

    return value_of(expr, env, compute)
