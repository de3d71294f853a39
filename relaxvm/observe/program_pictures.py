"""Pictures of executables: the data flow of a function, and its memory plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..executable import FunctionInfo, VMExecutable
from ..executable.formats.places import place_text
from ..executable.formats.text import format_instruction
from ..executable.variables import written_register
from ..isa import VM_REGISTER, VOID_REGISTER, ArgKind, Instruction
from ..values import Shape
from .pictures import Edge, Graph, MemoryPlan, Node, Storage

__all__ = ["graph_of_function", "memory_plan_of"]

_HOUSEKEEPING: Final = frozenset(
    f"vm.builtin.{name}" for name in (
        "alloc_storage", "alloc_tensor", "alloc_shape_heap", "null_value", "check_tensor_info",
        "check_shape_info", "check_tuple_info", "check_func_info", "check_prim_value_info",
        "match_shape", "match_prim_value", "make_shape", "make_prim_value", "copy",
    )
) | {"relaxvm.builtin.compute_shape"}  # fmt: skip
"""Calls that are no nodes: what they make belongs to the node that needs it."""


def graph_of_function(
    executable: VMExecutable, function: str, times: Mapping[int, float] | None = None
) -> Graph:
    """The data flow of a bytecode function: calls, and the values that go from one to another.

    Args:
        times: nanoseconds by pc, from a profile.

    Raises:
        KeyError: there is no such function.
    """
    info = executable.function(function)
    graph = Graph(f"{function} of {len(executable)} instructions")
    holder: dict[int, int] = {}
    names = info.param_names or [f"arg{i}" for i in range(info.num_args)]
    for register, name in enumerate(names):
        holder[register] = len(graph.nodes)
        graph.nodes.append(Node(name, "", f"parameter {name}", 0.0, "param"))
    for pc in range(info.start_instr, info.end_instr):
        instruction = executable.instruction(pc)
        if instruction.op.name == "ret":
            source = holder.get(instruction["result"])
            if source is not None:
                graph.edges.append(Edge(source, len(graph.nodes), "result"))
            graph.nodes.append(Node("return", "", f"pc {pc}: return", 0.0, "result"))
        elif instruction.op.name == "call":
            _add_call(graph, holder, executable, pc, instruction, (times or {}).get(pc, 0.0))
    return graph


def _add_call(
    graph: Graph, holder: dict[int, int], executable: VMExecutable, pc: int,
    instruction: Instruction, time: float,
) -> None:  # fmt: skip
    callee = executable.functions[instruction["func_idx"]].name
    written = written_register(executable, instruction)
    if callee in _HOUSEKEEPING:
        if callee == "vm.builtin.copy" and instruction.args[0].kind == ArgKind.REGISTER:
            source = holder.get(instruction.args[0].value)
            if source is not None and written is not None:
                holder[written] = source
        elif written is not None:
            holder.pop(written, None)
        return
    debug = executable.debug
    location = None if debug is None else debug.location(pc)
    name = (location.variable if location is not None else None) or f"%{written}"
    text = " ".join(format_instruction(executable, pc).split())
    lines = [f"pc {pc}: {text}"]
    if location is not None:
        lines.append(place_text(location))
    if time:
        lines.append(f"{time / 1000:.1f} us in all")
    node = len(graph.nodes)
    seen = set()
    for register in _read(instruction, written):
        source = holder.get(register)
        if source is not None and source not in seen:
            seen.add(source)
            graph.edges.append(Edge(source, node, graph.nodes[source].label))
    detail = callee.removeprefix("relaxvm.kernel.").removeprefix("vm.builtin.")
    graph.nodes.append(Node(name, detail, "\n".join(filter(None, lines)), time))
    if written is not None:
        holder[written] = node


def _read(instruction: Instruction, written: int | None) -> Iterator[int]:
    """The registers whose values a call takes; not the one that it only writes into."""
    registers = [arg.value for arg in instruction.args if arg.kind == ArgKind.REGISTER
                 and arg.value not in (VOID_REGISTER, VM_REGISTER)]  # fmt: skip
    void = instruction["dst"] == VOID_REGISTER and written is not None
    if void and [i for i, r in enumerate(registers) if r == written] == [len(registers) - 1]:
        registers.pop()
    yield from registers


def memory_plan_of(
    executable: VMExecutable, function: str, sizes: Mapping[int, int] | None = None
) -> MemoryPlan:
    """The storages of a function.

    Args:
        sizes: bytes of storages by the pc of their allocation, where the size is not constant.

    Raises:
        KeyError: there is no such function.
    """
    info = executable.function(function)
    ends = _last_uses(executable, info)
    debug = executable.debug
    owner: dict[int, int] = {}
    found: list[tuple[str, int, int, list[tuple[str, int, int, str]]]] = []
    for pc in range(info.start_instr, info.end_instr):
        instruction = executable.instruction(pc)
        if instruction.op.name != "call" or instruction["dst"] == VOID_REGISTER:
            continue
        callee = executable.functions[instruction["func_idx"]].name
        dst = instruction["dst"]
        if callee == "vm.builtin.alloc_storage":
            nbytes = (sizes or {}).get(pc, _constant_bytes(executable, instruction))
            owner[dst] = len(found)
            found.append((f"%{dst}", nbytes, pc, []))
        elif callee == "vm.builtin.alloc_tensor":
            storage = owner.get(instruction.args[0].value)
            if storage is None:
                continue
            name = (None if debug is None else debug.variable(pc)) or f"%{dst}"
            last = ends.get((dst, pc), pc)
            text = " ".join(format_instruction(executable, pc).split())
            found[storage][3].append((name, pc, last, f"{name}: pc {pc} to {last}\n{text}"))
    storages = [
        Storage(name, nbytes, first, max((t[2] for t in tenants), default=first), tuple(tenants))
        for name, nbytes, first, tenants in found
    ]
    return MemoryPlan(f"memory of {function}", storages, info.start_instr, info.end_instr - 1)


def _last_uses(executable: VMExecutable, info: FunctionInfo) -> dict[tuple[int, int], int]:
    """(register, pc that writes it) -> the last instruction that reads the value, in the order of
    the code; a register that is returned is read there."""
    written: dict[int, int] = {}
    last: dict[tuple[int, int], int] = {}
    for pc in range(info.start_instr, info.end_instr):
        instruction = executable.instruction(pc)
        read = [arg.value for arg in instruction.args if arg.kind == ArgKind.REGISTER]
        if instruction.op.name == "ret":
            read.append(instruction["result"])
        elif instruction.op.name == "if":
            read.append(instruction["cond"])
        for register in read:
            if register in written:
                last[register, written[register]] = pc
        if instruction.op.name == "call" and instruction["dst"] != VOID_REGISTER:
            written[instruction["dst"]] = pc
    return last


def _constant_bytes(executable: VMExecutable, instruction: Instruction) -> int:
    """The size of a storage whose shape is a constant, else 0."""
    for arg in instruction.args:
        if arg.kind == ArgKind.CONSTANT:
            value: Any = executable.constants[arg.value]
            if isinstance(value, Shape) and len(value) == 1:
                return int(value[0])
    return 0


def storage_sizes(run: Any) -> dict[int, int]:
    """Run to the end, and find out the sizes of the storages that its first function allocates."""
    executable = run.vm.executable
    sizes: dict[int, int] = {}
    stops = bytearray(len(executable))
    pcs = set()
    for pc in range(len(executable)):
        instruction = executable.instruction(pc)
        if instruction.op.name == "call" and executable.functions[
                instruction["func_idx"]].name == "vm.builtin.alloc_storage":  # fmt: skip
            stops[pc] = 1
            pcs.add(pc)
    while run.resume_at(bytes(stops)):
        pc = run.frame.pc
        register = executable.instruction(pc)["dst"]
        frame = run.step()
        if frame is not None and pc in pcs:
            storage = frame.registers[register]
            sizes[pc] = max(sizes.get(pc, 0), getattr(storage, "nbytes", 0))
    return sizes
