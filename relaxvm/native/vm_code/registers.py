"""Native code of one function: where the values of its registers are, and the C that moves them.

A value is in the frame, in a local variable, or known by its parts, see
`relaxvm.native.vm_code.states`.  The methods here move it from one place to another, write a new
one, and make the object of one that has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from .chains import find_chains
from .code import FunctionCode, Op, block_starts, live_registers
from .local_tensors import LocalTensor, find_local_tensors
from .states import EMPTY, MEMORY, Group, Heap, Item, ItemKind, Place, Scalar, State

__all__ = [
    "C_TYPES", "MANY_REGISTERS", "Exits", "Paths", "RegisterWriter", "Signature", "array",
    "borrowed", "may_fail",
]  # fmt: skip

MANY_REGISTERS: Final = 16
"""More are cleared by a loop."""
MAX_LEAVES: Final = 4
"""A group of more items is not part of another one: its text may be repeated for each use."""
_SCALAR_ITEMS: Final = {
    Scalar.INT: ItemKind.INT, Scalar.BOOL: ItemKind.BOOL, Scalar.ANY: ItemKind.ANY,
}  # fmt: skip
_OF_ITEM: Final = {kind: scalar for scalar, kind in _SCALAR_ITEMS.items()}

C_TYPES: Final = {Scalar.INT: "int64_t", Scalar.BOOL: "int", Scalar.ANY: "RvmScalar"}

Paths = list[tuple[int, State]]
"""The blocks that an operation leads to, with the state on each of these paths."""


@dataclass(slots=True)
class Signature:
    """How native code calls a function.

    Attributes:
        code: the function.
        numbers: the parameters that are passed as int64_t.
        result: `Scalar.INT` if all results are, else `MEMORY`: a reference.
    """

    code: FunctionCode
    numbers: tuple[int, ...] = ()
    result: Place = Scalar.INT


@dataclass(slots=True)
class Exits:
    """The exits of a function under construction: label by position, kind and state."""

    labels: dict[tuple[int, str, tuple[tuple[int, Place], ...]], str] = field(default_factory=dict)

    def label(self, position: int, kind: str, state: State) -> str:
        kept = tuple((r, state[r]) for r in sorted(state.outside))
        key = (position, kind, kept)
        return self.labels.setdefault(key, f"{kind}{position}_{len(self.labels)}")


class RegisterWriter:
    """Writes the C that reads and writes registers; the base of `FunctionWriter`.

    Args:
        code: the function.
        signatures: those of all functions of the program that are compiled, by index.
        function_at: the index of the function that a word points to.
        groups: whether tuples may do without an object; not if the program changes tuples in place.

    Attributes:
        results: the places of its results.
        successors: the functions that it calls in its last place.
        merged: the C functions of its chains of elementwise kernels, by position.
    """

    def __init__(
        self,
        code: FunctionCode,
        signatures: Mapping[int, Signature],
        function_at: Callable[[int], int | None],
        *,
        groups: bool = True,
    ) -> None:
        self.code = code
        self.signatures = signatures
        self.signature = signatures[code.index]
        self.function_at = function_at
        self.groups = groups
        self.ops = {op.position: op for op in code.ops}
        self.results: set[Place] = set()
        self.successors: set[int] = set()
        self._starts = block_starts(code)
        self._is_loop = any(op.target("distance") == 0 for op in code.ops if op.name == "goto_back")
        self._live = live_registers(code)
        self._chains = find_chains(code)
        self._local_tensors = find_local_tensors(code)
        self._into: dict[int, State] = {}
        self._lines: list[str] = []
        self._locals: dict[str, str] = {}
        self._exits = Exits()
        self.merged: dict[int, str] = {}

    # Text

    def _drop_dead(self, op: Op, state: State) -> None:
        """Forget what is not in the frame and nobody reads any more."""
        live = self._live[op.position]
        for register in [r for r in state.outside if not live >> r & 1]:
            self._release(state[register])
            state[register] = EMPTY

    def _release(self, place: Place) -> None:
        """Release the references that belong to a group."""
        if isinstance(place, Group):
            for name in place.owned():
                self._emit(f"rvm_clear(s, &{name});")

    def _emit(self, line: str) -> None:
        self._lines.append(f"    {line}")

    def _local(self, name: str, kind: str) -> str:
        self._locals[name] = kind
        return name

    def _scalar(self, register: int, kind: Scalar) -> str:
        return self._local(f"{kind.value}{register}", C_TYPES[kind])

    def _slot(self, register: int, slot: int) -> str:
        return self._local(f"h{register}_{slot}", "int64_t")

    def _leave(self, op: Op, kind: str, state: State) -> str:
        """A jump to an exit: "X" continues in the loop at the operation, "E" has an exception
        raised there, "Y" goes on with the status of a function that was called."""
        return f"goto {self._exits.label(op.position, kind, state)};"

    def _poll(self, op: Op, state: State) -> None:
        """After ticks were taken: poll if it is time."""
        self._emit(f"if (RARE(a->ticks < 0) && (a->ip = code + {op.position}, s->poll(a) < 0)) "
                   f"{self._leave(op, 'E', state)}")

    def _fallback(self, op: Op, state: State) -> str:
        """What an operation with a fallback does where it cannot make its result."""
        return f"{{ s->clear_error(); {self._leave(op, 'X', state)} }}"

    def _unknown(self, op: Op, state: State) -> Paths:
        """Left to the loop."""
        self._emit(self._leave(op, "X", state))
        return []

    # Registers

    def _stored(self, register: int, place: Place, bad: str) -> Iterable[str]:
        """C that puts a register into the frame; `bad` is what to do without memory."""
        cell = f"fp[{register}]"
        if place is Scalar.INT:
            yield f"if (!({cell} = s->from_int({self._scalar(register, place)}))) {bad}"
        elif place is Scalar.BOOL:
            yield f"{cell} = rvm_bool(s, {self._scalar(register, place)});"
        elif place is Scalar.ANY:
            name = self._scalar(register, place)
            yield f"if (!({cell} = s->from_scalar(&{name})) && {name}.type) {bad}"
        elif isinstance(place, Heap):
            slots = ", ".join(self._slot(register, i) for i in range(place.slots)) or "0"
            yield (f"{{ const int64_t slots[] = {{{slots}}}; "
                   f"if (!({cell} = s->heap_from(code[{place.site}], slots, {place.slots}))) "
                   f"{bad} }}")
        elif isinstance(place, LocalTensor):
            yield place.stored(cell, bad)
        elif isinstance(place, Group):
            yield f"if (!({cell} = {self._object_of(place)})) {bad}"
            for name in place.owned():
                yield f"rvm_clear(s, &{name});"

    def _object_of(self, group: Group) -> str:
        """An expression that makes the object of a group."""
        items = array("RvmRef", [self._new_item(item) for item in group.items])
        made = array("const int8_t", [str(int(may_fail(item))) for item in group.items])
        count = len(group.items)
        if group.function is None:
            return f"rvm_tuple(s, {items}, {made}, {count})"
        return f"rvm_closure(a, {group.function}, {items}, {made}, {count})"

    def _new_item(self, item: Item | Group) -> str:
        """A new reference to an item; NULL is None, or an error if it cannot be made."""
        if isinstance(item, Group):
            return self._object_of(item)
        kind = item.kind
        if kind is ItemKind.REGISTER:
            return f"rvm_new(s, fp[{item.at}])"
        if kind is ItemKind.OWNED:
            return f"rvm_new(s, {item.name})"
        if kind is ItemKind.CONSTANT:
            return f"rvm_new(s, a->pool_end[{item.at}])"
        if kind is ItemKind.NONE:
            return "rvm_new(s, s->none)"
        if kind is ItemKind.INT:
            return f"s->from_int({item.name})"
        if kind is ItemKind.BOOL:
            return f"rvm_bool(s, {item.name})"
        return f"rvm_box(s, &{item.name})"

    def _to_memory(self, op: Op, state: State, register: int) -> None:
        place = state[register]
        if place is MEMORY or place is EMPTY:
            state[register] = MEMORY
            return
        for line in self._stored(register, place, self._leave(op, "E", state)):
            self._emit(line)
        state[register] = MEMORY

    def _in_memory(self, op: Op, state: State, words: Iterable[int]) -> None:
        """Put the registers among operands into the frame."""
        for word in words:
            if word >= 0 and state[word] is not EMPTY:
                self._to_memory(op, state, word)

    def _ref(self, op: Op, state: State, word: int) -> str:
        """A borrowed reference to an operand, never NULL."""
        if word < 0:
            return f"a->pool_end[{word}]"
        if state[word] is EMPTY:
            return "s->none"
        self._to_memory(op, state, word)
        return f"rvm_ref(s, fp[{word}])"

    def _before_write(self, op: Op, state: State, register: int) -> None:
        """Before another value becomes that of a register: release the old one, and keep what
        groups have of it."""
        users = [r for r, group in state.groups() if r != register and group.refers_to(register)]
        if users:
            uses = [leaf for r in users for leaf in self._group_at(state, r).leaves()
                    if leaf.kind is ItemKind.REGISTER and leaf.at == register]  # fmt: skip
            if len(uses) == 1:
                name = self._local(f"k{op.position}_{register}", "RvmRef")
                self._emit(f"{name} = fp[{register}]; fp[{register}] = 0;")
                state[users[0]] = self._group_at(state, users[0]).replaced(
                    register, Item(ItemKind.OWNED, name=name)
                )
                state[register] = EMPTY
            else:
                for user in users:
                    self._to_memory(op, state, user)
        if state[register] is not MEMORY:
            self._release(state[register])
            state[register] = EMPTY

    def _set_ref(self, op: Op, state: State, register: int, value: str) -> None:
        """Store a new reference."""
        if state[register] is MEMORY or state.groups():
            name = self._local("made", "RvmRef")
            self._emit(f"{name} = {value};")
            value = name
        self._before_write(op, state, register)
        if state[register] is MEMORY:
            self._emit(f"rvm_store(s, fp + {register}, {value});")
        else:
            self._emit(f"fp[{register}] = {value};")
        state[register] = MEMORY

    def _set_made(self, op: Op, state: State, register: int, value: str, failed: str) -> None:
        """Store a new reference, or leave if it is NULL."""
        name = self._local("made", "RvmRef")
        self._emit(f"{name} = {value};")
        self._emit(f"if (RARE({name} == 0)) {failed}")
        self._before_write(op, state, register)
        if state[register] is MEMORY:
            self._emit(f"rvm_store(s, fp + {register}, {name});")
        else:
            self._emit(f"fp[{register}] = {name};")
        state[register] = MEMORY

    def _clear_frame(self, state: State) -> None:
        """Release all registers, at the end of the function."""
        used = [register for register, place in state.items() if place is MEMORY]
        if len(used) > MANY_REGISTERS:
            self._emit(f"for (int64_t i = {used[0]}; i <= {used[-1]}; i++) rvm_clear(s, fp + i);")
        else:
            for register in used:
                self._emit(f"rvm_clear(s, fp + {register});")
        for _, group in state.groups():
            self._release(group)

    def _set_scalar(
        self, op: Op, state: State, register: int, kind: Scalar, value: str
    ) -> None:
        """Make a local variable of a register."""
        name = self._scalar(register, kind)
        kept = self._local(f"{kind.value}_new", C_TYPES[kind])
        self._emit(f"{kept} = {value};")
        self._empty(op, state, register)
        self._emit(f"{name} = {kept};")
        state[register] = kind

    def _empty(self, op: Op, state: State, register: int) -> None:
        self._before_write(op, state, register)
        if state[register] is MEMORY:
            self._emit(f"rvm_clear(s, fp + {register});")
        state[register] = EMPTY

    def _set_group(self, op: Op, state: State, register: int, group: Group) -> None:
        """Make a group the value of a register that it may itself refer to."""
        if group.refers_to(register):
            self._set_made(op, state, register, self._object_of(group),
                           self._leave(op, "E", state))  # fmt: skip
            return
        self._empty(op, state, register)
        state[register] = group

    def _lives_on(self, op: Op, register: int) -> bool:
        """Whether the value of a register is read after an operation that writes ``dst``.  A group
        has one place only, so that it becomes one object: others get the object."""
        return register != op["dst"] and bool(self._live[op.end] >> register & 1)

    def _item_of(self, op: Op, state: State, word: int, number: int) -> Item | Group:
        """An operand as an item of a group."""
        if word < 0:
            return Item(ItemKind.CONSTANT, word)
        place = state[word]
        if place is EMPTY:
            return Item(ItemKind.NONE)
        if isinstance(place, Scalar):
            name = self._local(f"{place.value}{op.position}_{number}", C_TYPES[place])
            self._emit(f"{name} = {self._scalar(word, place)};")
            return Item(_SCALAR_ITEMS[place], name=name)
        if (isinstance(place, Group) and not place.owned() and not self._lives_on(op, word)
                and len([*place.leaves()]) < MAX_LEAVES):  # fmt: skip
            state[word] = EMPTY
            return place
        self._to_memory(op, state, word)
        return Item(ItemKind.REGISTER, word)

    def _group_of(
        self, op: Op, state: State, function: int | None, words: Sequence[int]
    ) -> Group:
        for word in words:
            if words.count(word) > 1:
                self._in_memory(op, state, [word])
        return Group(function, tuple(
            self._item_of(op, state, word, i) for i, word in enumerate(words)
        ))  # fmt: skip

    def _set_item(self, op: Op, state: State, register: int, item: Item | Group) -> None:
        """Make an item of a group the value of a register."""
        if isinstance(item, Group):
            self._set_group(op, state, register, item)
        elif item.kind in _OF_ITEM:
            self._set_scalar(op, state, register, _OF_ITEM[item.kind], item.name)
        elif item.kind is ItemKind.NONE:
            self._empty(op, state, register)
        elif item.kind is ItemKind.REGISTER and item.at == register:
            pass
        else:
            self._set_ref(op, state, register, self._new_item(item))

    def _number(self, op: Op, state: State, word: int) -> str:
        """An operand as an int64_t; leaves if it is no int, or too large."""
        place: Place = MEMORY if word < 0 else state[word]
        if place is Scalar.INT:
            return self._scalar(word, place)
        leave = self._leave(op, "X", state)
        if place is Scalar.ANY:
            name = self._scalar(word, place)
            self._emit(f"if (RARE({name}.type != RVM_SCALAR_INT)) {leave}")
            return f"{name}.as_int"
        if place is Scalar.BOOL or place is EMPTY:
            self._emit(f"{leave}")
            return "0"
        name = self._local("number", "int64_t")
        self._emit(f"if (RARE(!s->as_int({self._ref(op, state, word)}, &{name}))) "
                   f"{self._leave(op, 'X', state)}")
        return name

    def _group_at(self, state: State, register: int) -> Group:
        place = state[register]
        assert isinstance(place, Group)
        return place


def borrowed(item: Item) -> str:
    if item.kind is ItemKind.REGISTER:
        return f"fp[{item.at}]"
    return item.name if item.kind is ItemKind.OWNED else f"a->pool_end[{item.at}]"


def may_fail(item: int | Item | Group) -> bool:
    """Whether making a reference to an item may fail."""
    if isinstance(item, Group):
        return True
    return isinstance(item, Item) and item.kind in (ItemKind.INT, ItemKind.ANY)


def array(kind: str, items: Sequence[str]) -> str:
    return f"({kind}[]){{{', '.join(items) or '0'}}}"
