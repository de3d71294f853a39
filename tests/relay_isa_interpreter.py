"""A slow interpreter of the register instruction set of Relay, in plain Python: the oracle.

It runs a program as the documents describe it: a register file for each call, where a register
that was not written is invalid; free variables first in closures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from relaxvm.dtypes import as_dtype
from relaxvm.relay_isa import Program

__all__ = ["Closure", "Datatype", "FatalError", "interpret"]

INVALID = object()


class FatalError(Exception):
    """The instruction Fatal."""


class Datatype:
    """A value of a data type."""

    def __init__(self, tag: int, fields: Sequence[Any]) -> None:
        self.tag = tag
        self.fields = list(fields)


class Closure:
    """A function with its first arguments."""

    def __init__(self, function: int, free: Sequence[Any]) -> None:
        self.function = function
        self.free = list(free)


def interpret(
    program: Program,
    packed: Mapping[str, Callable[..., Any]],
    args: Sequence[Any],
    function: int = 0,
    fuel: int = 100_000,
) -> Any:
    """Call a function of a program."""
    dialect = program.dialect
    steps = [fuel]

    def call(number: int, given: Sequence[Any]) -> Any:
        func = program.functions[number]
        registers: list[Any] = [*given, *[INVALID] * (func.registers - len(given))]
        assert len(given) == len(func.params)

        def read(register: int) -> Any:
            assert registers[register] is not INVALID, f"${register} is invalid"
            return registers[register]

        pc = 0
        while True:
            steps[0] -= 1
            assert steps[0] > 0, "the program does not end"
            instruction = func.code[pc]
            o = {operand.name: value for operand, value in instruction.operands(dialect)}
            step, value = 1, INVALID
            match instruction.spec.name:
                case "Move" | "DeviceCopy":
                    value = read(o["src"])
                case "Ret":
                    return read(o["result"])
                case "Fatal":
                    raise FatalError
                case "InvokePacked":
                    regs = o["regs"] if dialect == "proposal" else o["packed_args"]
                    packed[program.packed[o["packed_index"]]](*[read(r) for r in regs])
                case "AllocTensor" if "shape" in o:
                    value = np.zeros(o["shape"], as_dtype(o["dtype"]))
                case "AllocTensor" | "AllocTensorReg":
                    value = np.zeros(read(o["shape_register"]), as_dtype(o["dtype"]))
                case "AllocDatatype":
                    value = Datatype(o["tag"], [read(r) for r in o["fields"]])
                case "AllocClosure":
                    value = Closure(o["func_index"], [read(r) for r in o["free_vars"]])
                case "GetField":
                    value = read(o["object"]).fields[o["field_index"]]
                case "GetTag":
                    value = read(o["object"]).tag
                case "If":
                    test = read(o["test"])
                    holds = bool(test) if dialect == "proposal" else test == read(o["target"])
                    step = o["true_offset"] if holds else o["false_offset"]
                case "Phi":
                    left, right = registers[o["left"]], registers[o["right"]]
                    assert (left is INVALID) != (right is INVALID)
                    value = right if left is INVALID else left
                case "Goto":
                    step = o["pc_offset"]
                case "Invoke":
                    value = call(o["func_index"], [read(r) for r in o["args"]])
                case "InvokeClosure":
                    closure = read(o["closure"])
                    value = call(closure.function, [*closure.free, *map(read, o["args"])])
                case "LoadConst":
                    value = program.constants[o["const_index"]]
                case "LoadConsti":
                    value = np.array(o["val"], np.int64)
                case "AllocStorage":
                    value = np.zeros(int(read(o["allocation_size"])), np.uint8)
                case "ShapeOf":
                    value = np.array(read(o["tensor"]).shape, np.int64)
                case "ReshapeTensor":
                    value = read(o["tensor"]).reshape(read(o["newshape"]))
                case "KillRegister":
                    registers[o["dst"]] = INVALID
            if value is not INVALID:
                registers[o["dst"]] = value
            pc += step

    return call(function, args)
