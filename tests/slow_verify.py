"""A second implementation of the verifier's rules: simple, and one instruction at a time.

`accepts` is written from the design, not from `relaxvm.verify`; the tests compare the two.
"""

from __future__ import annotations

from relaxvm import isa
from relaxvm.executable import FunctionInfo, VMExecutable
from relaxvm.isa import VM_REGISTER, VOID_REGISTER, Arg, ArgKind, FuncKind, Instruction
from relaxvm.registry import Registry
from relaxvm.values import kind_of

__all__ = ["accepts", "unreachable"]


class _Refused(Exception):
    pass


def _need(condition: bool) -> None:
    if not condition:
        raise _Refused


def accepts(ex: VMExecutable, registry: Registry) -> bool:
    """Return whether an executable may run; its parts must have the right types."""
    try:
        _functions(ex)
        code = _decode(ex)
        for info in ex.functions:
            if info.kind == FuncKind.BYTECODE:
                for pc in range(info.start_instr, info.end_instr):
                    _instruction(ex, info, pc, code[pc], registry)
                _need(code[info.end_instr - 1].op.name in ("ret", "goto"))
    except _Refused:
        return False
    return True


def _functions(ex: VMExecutable) -> None:
    names = [f.name for f in ex.functions]
    _need(len(set(names)) == len(names) and all(names))
    owners = [0] * len(ex)
    for f in ex.functions:
        for name in (f.name, *f.param_names):
            _need("\0" not in name and not any("\ud800" <= c <= "\udfff" for c in name))
        if f.kind == FuncKind.PACKED:
            _need(f == FunctionInfo(FuncKind.PACKED, f.name))
            continue
        _need(0 <= f.num_args <= f.register_file_size < 2**31)
        _need(len(f.param_names) in (0, f.num_args))
        if f.kind == FuncKind.COMPILED:
            _need(f.start_instr == f.end_instr == 0)
            continue
        _need(0 <= f.start_instr < f.end_instr <= len(ex))
        for pc in range(f.start_instr, f.end_instr):
            owners[pc] += 1
    _need(all(count == 1 for count in owners))


def _decode(ex: VMExecutable) -> list[Instruction]:
    words, at, code = ex.instr_data.tolist(), 0, []
    for offset in ex.instr_offset.tolist():
        _need(offset == at)
        try:
            instruction = isa.decode(words, at)
        except ValueError:
            raise _Refused from None
        code.append(instruction)
        at += instruction.num_words
    _need(at == len(words))
    return code


def _instruction(
    ex: VMExecutable, info: FunctionInfo, pc: int, instruction: Instruction, registry: Registry
) -> None:
    def register(number: int, *special: int) -> None:
        _need(0 <= number < info.register_file_size or number in special)

    name = instruction.op.name
    if name == "ret":
        register(instruction["result"], VOID_REGISTER)
    elif name == "goto":
        distance = instruction["pc_offset"]
        _need(distance != 0 and info.start_instr <= pc + distance < info.end_instr)
    elif name == "if":
        register(instruction["cond"])
        distance = instruction["false_offset"]
        _need(distance >= 2 and info.start_instr <= pc + distance < info.end_instr)
    else:
        register(instruction["dst"], VOID_REGISTER)
        _need(0 <= instruction["func_idx"] < len(ex.functions))
        for arg in instruction.args:
            if arg.kind == ArgKind.REGISTER:
                register(arg.value, VOID_REGISTER, VM_REGISTER)
            elif arg.kind == ArgKind.IMMEDIATE:
                _need(abs(arg.value) < 2**55)
            else:
                pool = ex.constants if arg.kind == ArgKind.CONSTANT else ex.functions
                _need(0 <= arg.value < len(pool))
        _call(ex, ex.functions[instruction["func_idx"]], instruction.args, registry)


def _call(
    ex: VMExecutable, callee: FunctionInfo, args: tuple[Arg, ...], registry: Registry
) -> None:
    if callee.kind != FuncKind.PACKED:
        _need(len(args) == callee.num_args)
        return
    record = registry.lookup(callee.name)
    if record is None or record.signature is None:
        return
    params = record.signature.bind(len(args))
    _need(params is not None)
    static = [_static(ex, arg) for arg in args]
    for param, (kind, _) in zip(params or (), static, strict=True):
        _need(param.accepts(kind))
    if record.signature.check is not None:
        _need(not list(record.signature.check(static)))


def _static(ex: VMExecutable, arg: Arg) -> tuple[str, object]:
    if arg.kind == ArgKind.IMMEDIATE:
        return "int", arg.value
    if arg.kind == ArgKind.CONSTANT:
        return kind_of(ex.constants[arg.value]), ex.constants[arg.value]
    if arg.kind == ArgKind.FUNCTION:
        return "func", ex.functions[arg.value].name
    special = {VOID_REGISTER: "none", VM_REGISTER: "vm"}
    return special.get(arg.value, "any"), None


def unreachable(ex: VMExecutable) -> set[int]:
    """Return the pcs that cannot be reached from the start of their function."""
    seen: set[int] = set()
    work = [f.start_instr for f in ex.functions if f.kind == FuncKind.BYTECODE]
    while work:
        pc = work.pop()
        if pc in seen:
            continue
        seen.add(pc)
        instruction = ex.instruction(pc)
        if instruction.op.falls_through:
            work.append(pc + 1)
        if instruction.op.name == "goto":
            work.append(pc + instruction["pc_offset"])
        if instruction.op.name == "if":
            work.append(pc + instruction["false_offset"])
    return set(range(len(ex))) - seen
