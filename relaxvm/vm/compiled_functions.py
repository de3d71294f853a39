"""Functions compiled to VM-TIR, TVM's compiled mode: their code is a packed function.

For the core, each of them is a bytecode function of two instructions, a call of that packed
function and a return: functions, closures and everything around a run are the same.
"""

from __future__ import annotations

import numpy as np

from ..executable import FunctionInfo, VMExecutable
from ..isa import KIND_SHIFT, VM_REGISTER, ArgKind, FuncKind, Opcode
from ..registry import COMPILED_PREFIX

__all__ = ["with_entries"]


def with_entries(executable: VMExecutable) -> VMExecutable:
    """Replace each compiled function of an executable by a bytecode function that calls the packed
    function with its code; return the executable itself if it has none.
    """
    table = list(executable.functions)
    compiled = [i for i, f in enumerate(table) if f.kind == FuncKind.COMPILED]
    if not compiled:
        return executable
    words: list[int] = []
    offsets: list[int] = []
    for index in compiled:
        info, callee = table[index], len(table)
        table.append(FunctionInfo(FuncKind.PACKED, COMPILED_PREFIX + info.name))
        pc, count = len(executable) + len(offsets), info.num_args
        base = len(executable.instr_data)
        offsets.append(base + len(words))
        words += [Opcode.CALL, count, callee, count + 1, VM_REGISTER]
        words += [(ArgKind.REGISTER << KIND_SHIFT) + i for i in range(count)]
        offsets.append(base + len(words))
        words += [Opcode.RET, count]
        table[index] = FunctionInfo(
            FuncKind.BYTECODE, info.name, pc, pc + 2, count, count + 1, info.param_names
        )
    return executable.but(
        functions=table,
        instr_offset=np.concatenate([executable.instr_offset, np.array(offsets, np.int64)]),
        instr_data=np.concatenate([executable.instr_data, np.array(words, np.int64)]),
    )
