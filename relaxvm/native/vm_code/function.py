"""Native code of one function of a program: its operations as C.

`FunctionWriter.states` follows the places of registers along all paths first; then `write` makes
the text.  Both call the same method for an operation, which writes its C and returns where it
leads.

An operation that cannot go on natively leaves by an *exit*: all registers are put into the frame,
and the loop continues at the operation.  So no operation may change anything before its last exit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ...executable import shape_program
from ...executable.shape_codes import MakeShapeCode, MatchShapeCode
from .code import ENDING, FunctionCode, Op, live_registers
from .states import EMPTY, MEMORY, Group, Heap, Item, ItemKind, Place, Scalar, State, join

__all__ = ["FunctionWriter", "Signature"]

MAX_HEAP_SLOTS: Final = 64
"""Larger shape heaps are arrays from the beginning."""
MAX_ITEMS: Final = 16
"""Larger tuples and closures are objects from the beginning."""
MANY_REGISTERS: Final = 16
"""More are cleared by a loop."""
MAX_LEAVES: Final = 4
"""A group of more items is not part of another one: its text may be repeated for each use."""
MAX_SCALARS: Final = 16
_HEADER: Final = 4
"""Words of a frame before its registers."""

_SCALAR_ITEMS: Final = {
    Scalar.INT: ItemKind.INT, Scalar.BOOL: ItemKind.BOOL, Scalar.ANY: ItemKind.ANY,
}  # fmt: skip
_OF_ITEM: Final = {kind: scalar for scalar, kind in _SCALAR_ITEMS.items()}


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
class _Exits:
    """The exits of a function under construction: label by position, kind and state."""

    labels: dict[tuple[int, str, tuple[tuple[int, Place], ...]], str] = field(default_factory=dict)

    def label(self, position: int, kind: str, state: State) -> str:
        kept = tuple((r, state[r]) for r in sorted(state.outside))
        key = (position, kind, kept)
        return self.labels.setdefault(key, f"{kind}{position}_{len(self.labels)}")


class FunctionWriter:
    """Writes one function.

    Args:
        code: the function.
        signatures: those of all functions of the program that are compiled, by index.
        constant: the constant that a negative word stands for.
        function_at: the index of the function that a word points to.
        groups: whether tuples may do without an object; not if the program changes tuples in place.
    """

    def __init__(
        self,
        code: FunctionCode,
        signatures: Mapping[int, Signature],
        constant: Callable[[int], object],
        function_at: Callable[[int], int | None],
        *,
        groups: bool = True,
    ) -> None:
        self.code = code
        self.signatures = signatures
        self.signature = signatures[code.index]
        self.constant = constant
        self.function_at = function_at
        self.groups = groups
        self.ops = {op.position: op for op in code.ops}
        self.results: set[Place] = set()
        self._starts = self._block_starts()
        self._is_loop = any(op.target("distance") == 0 for op in code.ops if op.name == "goto_back")
        self._live = live_registers(code)
        self._into: dict[int, State] = {}
        self._lines: list[str] = []
        self._locals: dict[str, str] = {}
        self._exits = _Exits()

    # The two passes

    def states(self) -> None:
        """Find the places of registers at the start of each block, and those of results."""
        self.results = set()
        self._into = {}
        waiting = [0]
        self._enter_block(0, self._first_state())
        while waiting:
            start = waiting.pop()
            for target, state in self._block(start):
                if self._enter_block(target, state):
                    waiting.append(target)

    def write(self) -> str:
        """The C of the function."""
        self._lines, self._locals, self._exits = [], {}, _Exits()
        blocks = sorted(self._into)
        for start in blocks:
            self._emit(f"L{start}:;")
            for target, state in self._block(start):
                assert not self._enter_block(target, state)
        body, self._lines = self._lines, []
        entries = [at for at in blocks if at and self.ops[at].name == "enter"]
        for at in entries:
            self._entry(at)
        first = self._first_state()
        heads, self._lines = self._lines, []
        self._jump(0, first, self.code.ops[0])
        enter, self._lines = self._lines, []
        for (position, kind, kept), label in list(self._exits.labels.items()):
            self._exit(position, kind, State(kept), label)
        exits, self._lines = self._lines, []
        index = self.code.index
        numbers = "".join(f", int64_t n{p}" for p in self.signature.numbers)
        names = sorted(self._locals.items())
        declared = [f"    {kind} {name}{_zero(kind)};" for name, kind in names]
        cases = [f"        case {at}: goto R{at};" for at in entries]
        return "\n".join([
            f"/* {_comment(self.code.name)} */",
            f"static int f{index}(RvmActivation *const a, RvmRef *const fp, "
            f"const int64_t *const code, int64_t at{numbers}) {{",
            "    const RvmServices *const s = a->services;",
            *declared,
            "    int status;",
            *(f"    i{p} = n{p};" for p in self.signature.numbers),
            "    switch (at) {",
            "        case 0: break;",
            *cases,
            f"        default: a->ip = code + at + {self._after_enter()}; a->fp = fp; "
            "return RVM_EXITED;",
            "    }",
            *enter,
            *body,
            *heads,
            *exits,
            "}",
            self._wrappers(),
        ])  # fmt: skip

    def _after_enter(self) -> int:
        return self.code.ops[0].end

    def _first_state(self) -> State:
        state = State((r, EMPTY) for r in range(self.code.num_registers))
        for param in range(self.code.num_params):
            state[param] = MEMORY
        for param in self.signature.numbers:
            state[param] = Scalar.INT
            self._local(f"i{param}", "int64_t")
        return state

    def _block_starts(self) -> dict[int, int]:
        """Position at which a block starts -> the number of paths that lead there."""
        starts = {0: 1}
        for op in self.code.ops:
            for name in ("distance", "otherwise"):
                if name in op.words and op.target(name) in self.ops:
                    target = op.target(name)
                    starts[target] = starts.get(target, 0) + 1
            if op.name in ("if", "read_if"):
                starts[op.end] = starts.get(op.end, 0) + 1
        for op in self.code.ops:
            if op.end in starts and op.name not in ENDING and op.name not in ("if", "read_if"):
                starts[op.end] += 1
            if op.name == "enter":  # the loop may enter here
                starts[op.position] = starts.get(op.position, 0) + 2
        return starts

    def _enter_block(self, start: int, state: State) -> bool:
        """Note the state of a path that leads to a block; returns whether it changes its state."""
        old = self._into.get(start)
        if self._starts[start] == 1:
            new = State(state)
        else:
            new = join(old, state, self._live[start])
        if self.ops[start].name == "enter":
            self._take_any(start, new)
        self._into[start] = new
        return new != old

    def _take_any(self, head: int, state: State) -> None:
        """Where the loop enters, a register that is empty on all paths of native code may hold a
        value: that of an operation which is left to the loop."""
        if head == 0 and not self._is_loop:  # only calls enter here
            return
        for register, place in state.items():
            if place is EMPTY and self._live[head] >> register & 1:
                state[register] = MEMORY

    def _block(self, start: int) -> list[tuple[int, State]]:
        """Write the operations of a block; returns the blocks that it leads to, with their states
        on these paths."""
        state = State(self._into[start])
        at = start
        while True:
            op = self.ops[at]
            self._drop_dead(op, state)
            done = getattr(self, f"_op_{op.name}", self._unknown)(op, state)
            if done is not None:
                return list(done)
            at = op.end
            if at in self._starts:
                self._jump(at, state, op)
                return [(at, state)]

    def _drop_dead(self, op: Op, state: State) -> None:
        """Forget what is not in the frame and nobody reads any more."""
        live = self._live[op.position]
        for register in [r for r in state.outside if not live >> r & 1]:
            self._release(state[register])
            state[register] = EMPTY

    def _release(self, place: Place) -> None:
        """Release the references that belong to a group."""
        if isinstance(place, Group):
            for name in _owned(place):
                self._emit(f"rvm_clear(s, &{name});")

    # Writing

    def _emit(self, line: str) -> None:
        self._lines.append(f"    {line}")

    def _local(self, name: str, kind: str) -> str:
        self._locals[name] = kind
        return name

    def _scalar(self, register: int, kind: Scalar) -> str:
        return self._local(f"{kind.value}{register}", _C_TYPES[kind])

    def _slot(self, register: int, slot: int) -> str:
        return self._local(f"h{register}_{slot}", "int64_t")

    def _leave(self, op: Op, kind: str, state: State) -> str:
        """A jump to an exit: "X" continues in the loop at the operation, "E" has an exception
        raised there, "Y" goes on with the status of a function that was called."""
        return f"goto {self._exits.label(op.position, kind, state)};"

    def _exit(self, position: int, kind: str, state: State, label: str) -> None:
        emit = self._emit
        emit(f"{label}: {{ int bad = 0; (void)bad;")
        failed = {"X": "0", "E": "1", "Y": "status < 0"}[kind]
        if state and kind != "X":
            emit(f"if ({failed}) s->hold_error(a);")
        for register, place in state.items():
            for line in self._stored(register, place, "bad = 1;"):
                emit(line)
        if state and kind != "X":
            emit(f"if ({failed}) {{ s->release_error(a); bad = 0; }}")
        if kind == "Y":
            emit("return bad ? RVM_FAILED_AT : status; }")
        else:
            emit(f"a->ip = code + {position}; a->fp = fp;")
            emit("return bad ? RVM_FAILED_AT : RVM_EXITED; }" if kind == "X"
                 else "return RVM_FAILED_AT; }")  # fmt: skip

    def _entry(self, at: int) -> None:
        """Where the loop enters at the head of a loop: take the registers from the frame."""
        state = self._into[at]
        emit = self._emit
        leave = f"{{ a->ip = code + {self.ops[at].end}; a->fp = fp; return RVM_EXITED; }}"
        emit(f"R{at}:;")
        moved = []
        for register, place in state.items():
            if isinstance(place, Scalar):
                name = self._scalar(register, place)
                moved.append(register)
                if place is Scalar.INT:
                    emit(f"if (!s->as_int(fp[{register}], &{name}_in)) {leave}")
                    self._local(f"{name}_in", "int64_t")
                    emit(f"{name} = {name}_in;")
                else:
                    self._local("scalar_in", "RvmScalar")
                    emit(f"if (!s->as_scalar(fp[{register}], &scalar_in)) {leave}")
                    if place is Scalar.BOOL:
                        emit(f"if (scalar_in.type != RVM_SCALAR_BOOL) {leave}")
                        emit(f"{name} = scalar_in.as_int != 0;")
                    else:
                        emit(f"{name} = scalar_in;")
            elif isinstance(place, Heap):
                moved.append(register)
                emit(f"{{ int64_t slots[{max(place.slots, 1)}]; if (!s->load_heap("
                     f"code[{place.site}], fp[{register}], slots, {place.slots})) {leave}")
                for i in range(place.slots):
                    emit(f"{self._slot(register, i)} = slots[{i}];")
                emit("}")
            elif place is EMPTY:  # nobody reads it, see `_take_any`
                moved.append(register)
        for register in moved:
            emit(f"rvm_clear(s, fp + {register});")
        emit(f"goto L{at};")

    def _wrappers(self) -> str:
        """How the loop enters the function, and how a call of one of its closures does."""
        index, code = self.code.index, self.code
        lines = [f"int rvm_call_{index}(RvmActivation *a, RvmRef *fp, int64_t position) {{",
                 "    const RvmServices *const s = a->services;",
                 "    const int64_t *const code = a->ip - position;",
                 "    int status;", "    (void)s;"]  # fmt: skip
        passed = "".join(f", n{p}" for p in self.signature.numbers)
        for p in self.signature.numbers:
            lines.append(f"    int64_t n{p} = 0;")
        if self.signature.numbers:
            lines.append("    if (position == 0) {")
            lines += [
                f"        if (!s->as_int(fp[{p}], &n{p})) {{ a->ip = code + {self._after_enter()}; "
                "a->fp = fp; return RVM_EXITED; }"
                for p in self.signature.numbers
            ]
            lines += [f"        rvm_clear(s, fp + {p});" for p in self.signature.numbers]
            lines.append("    }")
        lines.append(f"    status = f{index}(a, fp, code, position{passed});")
        if self.signature.result is Scalar.INT:
            lines += ["    if (status == RVM_DONE) {",
                      "        a->value = s->from_int(a->number);",
                      f"        if (a->value == 0) {{ a->ip = code + {code.ops[-1].position}; "
                      "a->fp = fp; return RVM_FAILED_AT; }",
                      "    }"]  # fmt: skip
        lines += ["    return status;", "}"]
        last = code.num_registers  # the word after the registers, which calls from C may use
        lines += [f"int rvm_enter_{index}(RvmActivation *a, RvmRef *fp, int64_t position) {{",
                  f"    static const int64_t ret[] = {{RVM_OP_RET, {last}}};",
                  "    const RvmServices *const s = a->services;",
                  "    (void)s;",
                  *self._cleared_at_start(),
                  f"    const int status = rvm_call_{index}(a, fp, position);",
                  "    if (status != RVM_DONE) return status;",
                  f"    fp[{last}] = a->value;",
                  "    a->ip = ret;",
                  "    a->fp = fp;",
                  "    return RVM_EXITED;",
                  "}", ""]  # fmt: skip
        return "\n".join(lines)

    def _cleared_at_start(self) -> Iterable[str]:
        """Where the loop jumps back to the start, the frame may have values that nobody reads."""
        if not self._is_loop:
            return
        yield "    if (position == 0) {"
        for register, place in self._into[0].items():
            if place is EMPTY:
                yield f"        rvm_clear(s, fp + {register});"
        yield "    }"

    # Paths

    def _jump(self, target: int, state: State, op: Op) -> None:
        """Continue at a block, with registers where it expects them.  In the first pass the block's
        state may be unknown yet."""
        into = self._into.get(target)
        if target not in self.ops:  # in a fallback, where only the loop can go
            self._emit(f"goto {self._exits.label(target, 'X', state)};")
            return
        if into is not None and self._starts[target] > 1:
            live = self._live[target]
            for register, place in list(state.items()):
                if live >> register & 1:
                    if into[register] is MEMORY and place is not MEMORY:
                        self._to_memory(op, state, register)
                elif place is not MEMORY:
                    self._release(place)
                    state[register] = EMPTY
        self._emit(f"goto L{target};")

    def _poll(self, op: Op, state: State) -> None:
        """After ticks were taken: poll if it is time."""
        self._emit(f"if (RARE(a->ticks < 0) && s->poll(a) < 0) {self._leave(op, 'E', state)}")

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
        elif isinstance(place, Group):
            yield f"if (!({cell} = {self._object_of(place)})) {bad}"
            for name in _owned(place):
                yield f"rvm_clear(s, &{name});"

    def _object_of(self, group: Group) -> str:
        """An expression that makes the object of a group."""
        items = _array("RvmRef", [self._new_item(item) for item in group.items])
        made = _array("const int8_t", [str(int(_may_fail(item))) for item in group.items])
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
        users = [r for r, group in state.groups() if r != register and _refers_to(group, register)]
        if users:
            uses = [leaf for r in users for leaf in _group(state[r]).leaves()
                    if leaf.kind is ItemKind.REGISTER and leaf.at == register]  # fmt: skip
            if len(uses) == 1:
                name = self._local(f"k{op.position}_{register}", "RvmRef")
                self._emit(f"{name} = fp[{register}]; fp[{register}] = 0;")
                state[users[0]] = _replaced(_group(state[users[0]]), register,
                                            Item(ItemKind.OWNED, name=name))  # fmt: skip
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

    def _fallback(self, op: Op, state: State) -> str:
        """What an operation with a fallback does where it cannot make its result."""
        return f"{{ s->clear_error(); {self._leave(op, 'X', state)} }}"

    def _set_scalar(
        self, op: Op, state: State, register: int, kind: Scalar, value: str
    ) -> None:
        """Make a local variable of a register."""
        name = self._scalar(register, kind)
        kept = self._local(f"{kind.value}_new", _C_TYPES[kind])
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
        if _refers_to(group, register):
            self._set_made(op, state, register, self._object_of(group),
                           self._leave(op, "E", state))  # fmt: skip
            return
        self._empty(op, state, register)
        state[register] = group

    def _item_of(self, op: Op, state: State, word: int, number: int) -> Item | Group:
        """An operand as an item of a group."""
        if word < 0:
            return Item(ItemKind.CONSTANT, word)
        place = state[word]
        if place is EMPTY:
            return Item(ItemKind.NONE)
        if isinstance(place, Scalar):
            name = self._local(f"{place.value}{op.position}_{number}", _C_TYPES[place])
            self._emit(f"{name} = {self._scalar(word, place)};")
            return Item(_SCALAR_ITEMS[place], name=name)
        if isinstance(place, Group) and not _owned(place) and len([*place.leaves()]) < MAX_LEAVES:
            return place
        self._to_memory(op, state, word)
        return Item(ItemKind.REGISTER, word)

    def _group_of(
        self, op: Op, state: State, function: int | None, words: Sequence[int]
    ) -> Group:
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

    # Operations

    def _unknown(self, op: Op, state: State) -> list[tuple[int, State]]:
        """Left to the loop."""
        self._emit(self._leave(op, "X", state))
        return []

    def _op_enter(self, op: Op, state: State) -> None:
        return None

    def _op_ret(self, op: Op, state: State) -> list[tuple[int, State]]:
        word = op["result"]
        place: Place = MEMORY if word < 0 else state[word]
        self.results.add(place if place is Scalar.INT else MEMORY)
        if self.signature.result is Scalar.INT and place is Scalar.INT:
            self._emit(f"a->number = {self._scalar(word, Scalar.INT)};")
        elif word < 0 or place is EMPTY:
            self._emit(f"a->value = rvm_new(s, {self._ref(op, state, word)});")
        else:
            self._to_memory(op, state, word)
            self._emit(f"a->value = fp[{word}]; fp[{word}] = 0;")
            self._emit("if (a->value == 0) a->value = rvm_new(s, s->none);")
            state[word] = EMPTY
        used = [register for register, other in state.items() if other is MEMORY]
        if len(used) > MANY_REGISTERS:
            self._emit(f"for (int64_t i = {used[0]}; i <= {used[-1]}; i++) rvm_clear(s, fp + i);")
        else:
            for register in used:
                self._emit(f"rvm_clear(s, fp + {register});")
        for _, group in state.groups():
            self._release(group)
        self._emit("return RVM_DONE;")
        return []

    def _op_goto(self, op: Op, state: State) -> list[tuple[int, State]]:
        self._jump(op.target("distance"), state, op)
        return self._inside([(op.target("distance"), state)])

    def _inside(self, paths: list[tuple[int, State]]) -> list[tuple[int, State]]:
        return [path for path in paths if path[0] in self.ops]

    def _op_goto_back(self, op: Op, state: State) -> list[tuple[int, State]]:
        self._emit("a->ticks--;")
        self._poll(op, state)
        return self._op_goto(op, state)

    def _branch(self, op: Op, state: State, condition: str) -> list[tuple[int, State]]:
        other = State(state)
        self._emit(f"if (!({condition})) {{")
        self._jump(op.target("otherwise"), other, op)
        self._emit("}")
        self._jump(op.end, state, op)
        return self._inside([(op.target("otherwise"), other), (op.end, state)])

    def _condition(self, op: Op, state: State, word: int, service: str) -> str:
        """The truth of a scalar operand; other operands leave."""
        place = state[word] if word >= 0 else MEMORY
        if isinstance(place, Scalar):
            name = self._scalar(word, place)
            if place is not Scalar.ANY:
                return f"{name} != 0"
            self._emit(f"if (RARE({name}.type != RVM_SCALAR_INT && {name}.type != RVM_SCALAR_BOOL))"
                       f" {self._leave(op, 'X', state)}")
            return f"{name}.as_int != 0"
        truth = self._local("truth", "int")
        self._emit(f"truth = s->{service}({self._ref(op, state, word)});")
        self._emit(f"if (RARE(truth < 0)) {self._leave(op, 'X', state)}")
        return f"{truth} != 0"

    def _op_if(self, op: Op, state: State) -> list[tuple[int, State]]:
        return self._branch(op, state, self._condition(op, state, op["cond"], "truth"))

    def _op_read_if(self, op: Op, state: State) -> list[tuple[int, State]]:
        condition = self._condition(op, state, op["x"], "read_cond")
        self._set_scalar(op, state, op["dst"], Scalar.BOOL, condition)
        return self._branch(op, state, self._scalar(op["dst"], Scalar.BOOL))

    def _op_read_cond(self, op: Op, state: State) -> None:
        condition = self._condition(op, state, op["x"], "read_cond")
        self._set_scalar(op, state, op["dst"], Scalar.BOOL, condition)

    def _op_copy(self, op: Op, state: State) -> None:
        word, dst = op["value"], op["dst"]
        if word == dst:
            return
        place: Place = MEMORY if word < 0 else state[word]
        if isinstance(place, Scalar):
            self._set_scalar(op, state, dst, place, self._scalar(word, place))
        elif place is EMPTY:
            self._empty(op, state, dst)
        elif isinstance(place, Group) and not _owned(place):
            self._set_group(op, state, dst, place)
        else:
            self._set_ref(op, state, dst, f"rvm_new(s, {self._ref(op, state, word)})")

    def _op_null(self, op: Op, state: State) -> None:
        self._empty(op, state, op["dst"])

    def _op_make_tuple(self, op: Op, state: State) -> None:
        dst = op["dst"]
        if self.groups and len(op.items) <= MAX_ITEMS:
            self._set_group(op, state, dst, self._group_of(op, state, None, op.items))
            return
        self._in_memory(op, state, op.items)
        items = _array("RvmRef", [self._ref(op, state, word) for word in op.items])
        made = f"s->tuple_of({items}, {len(op.items)})"
        self._set_made(op, state, dst, made, self._leave(op, "E", state))

    def _op_tuple_getitem(self, op: Op, state: State) -> None:
        word, index, dst = op["tuple"], op["index"], op["dst"]
        place: Place = MEMORY if word < 0 else state[word]
        if isinstance(place, Group) and place.function is None and index < len(place.items):
            self._set_item(op, state, dst, place.items[index])
            return
        made = f"s->item({self._ref(op, state, word)}, {index})"
        self._set_made(op, state, dst, made, self._leave(op, "X", state))

    def _op_make_closure_of(self, op: Op, state: State) -> list[tuple[int, State]] | None:
        function = self.function_at(op["function"])
        if function is None or len(op.items) > MAX_ITEMS:
            return self._unknown(op, state)
        group = self._group_of(op, state, function, op.items)
        self._set_group(op, state, op["dst"], group)
        return None

    def _op_load_function(self, op: Op, state: State) -> list[tuple[int, State]] | None:
        function = self.function_at(op["function"])
        if function is None:
            return self._unknown(op, state)
        made = f"s->load_function(a, {function})"
        self._set_made(op, state, op["dst"], made, self._leave(op, "E", state))
        return None

    # Shapes and scalars

    def _heap(self, state: State, word: int) -> Heap | None:
        place = state[word] if word >= 0 else None
        return place if isinstance(place, Heap) else None

    def _op_alloc_heap(self, op: Op, state: State) -> None:
        dst, slots = op["dst"], op["slots"]
        if slots > MAX_HEAP_SLOTS:
            made = f"s->alloc_heap(code[{op.at('site')}], {slots})"
            self._set_made(op, state, dst, made, self._leave(op, "E", state))
            return
        self._empty(op, state, dst)
        for i in range(slots):
            self._emit(f"{self._slot(dst, i)} = 0;")
        state[dst] = Heap(op.at("site"), slots)

    def _slots_copied(self, word: int, heap: Heap) -> str:
        slots = ", ".join(self._slot(word, i) for i in range(heap.slots)) or "0"
        return f"int64_t slots[] = {{{slots}}};"

    def _op_match_shape(self, op: Op, state: State) -> None:
        word, count = op["heap"], len(op.items) // 2
        x = self._ref(op, state, op["x"])
        heap = self._heap(state, word)  # not before, since x may be the heap
        leave = self._leave(op, "X", state)
        pattern = f"code + {op.tail}"
        if heap is None or op["last_slot"] >= heap.slots:
            checked = (f"s->match_shape({x}, {self._ref(op, state, word)}, {op['last_slot']}, "
                       f"{count}, {pattern})")
            leave = self._leave(op, "X", state)
            self._emit(f"if (RARE(!{checked})) {leave}")
            return
        self._emit(f"{{ {self._slots_copied(word, heap)} "
                   f"if (RARE(!s->match_slots({x}, slots, {count}, {pattern}))) {leave}")
        for code, slot in zip(op.items[::2], op.items[1::2], strict=True):
            if code == MatchShapeCode.STORE_TO_HEAP:
                self._emit(f"{self._slot(word, slot)} = slots[{slot}];")
        self._emit("}")

    def _op_check_match(self, op: Op, state: State) -> None:
        self._op_check_tensor(op, state)
        self._op_match_shape(op, state)

    def _op_make_shape(self, op: Op, state: State) -> None:
        word, count = op["heap"], len(op.items) // 2
        heap = self._heap(state, word)
        site = f"code[{op.at('site')}]"
        if heap is None or op["last_slot"] >= heap.slots:
            made = (f"s->make_shape({site}, {self._ref(op, state, word)}, {op['last_slot']}, "
                    f"{count}, code + {op.tail})")
        else:
            dims = ", ".join(
                f"INT64_C({value})" if code == MakeShapeCode.USE_IMM else self._slot(word, value)
                for code, value in zip(op.items[::2], op.items[1::2], strict=True)
            )
            made = f"s->shape_from({site}, {count}, (const int64_t[]){{{dims or '0'}}})"
        self._set_made(op, state, op["dst"], made, self._fallback(op, state))

    def _op_shape_of(self, op: Op, state: State) -> None:
        made = f"s->shape_of(code[{op.at('site')}], {self._ref(op, state, op['tensor'])})"
        self._set_made(op, state, op["dst"], made, self._fallback(op, state))

    def _op_match_prim(self, op: Op, state: State) -> None:
        x, word, code, value = op["x"], op["heap"], op["code"], op["value"]
        heap = self._heap(state, word)
        uses_heap = code not in (MatchShapeCode.ASSERT_EQUAL_TO_IMM, MatchShapeCode.NO_OP)
        if heap is None or (uses_heap and value >= heap.slots):
            checked = (f"s->match_prim({self._ref(op, state, x)}, {self._ref(op, state, word)}, "
                       f"{code}, INT64_C({value}))")
            self._emit(f"if (RARE(!{checked})) {self._leave(op, 'X', state)}")
            return
        number = self._number(op, state, x)
        if code == MatchShapeCode.STORE_TO_HEAP:
            self._emit(f"{self._slot(word, value)} = {number};")
        elif uses_heap:
            self._emit(f"if (RARE({number} != {self._slot(word, value)})) "
                       f"{self._leave(op, 'X', state)}")
        elif code == MatchShapeCode.ASSERT_EQUAL_TO_IMM:
            self._emit(f"if (RARE({number} != INT64_C({value}))) {self._leave(op, 'X', state)}")

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

    def _op_make_prim(self, op: Op, state: State) -> None:
        word, code, value = op["heap"], op["code"], op["value"]
        heap = self._heap(state, word)
        if heap is None or (code != MakeShapeCode.USE_IMM and value >= heap.slots):
            made = f"s->make_prim({self._ref(op, state, word)}, {code}, INT64_C({value}))"
            self._set_made(op, state, op["dst"], made, self._fallback(op, state))
            return
        text = f"INT64_C({value})" if code == MakeShapeCode.USE_IMM else self._slot(word, value)
        self._set_scalar(op, state, op["dst"], Scalar.INT, text)

    def _op_compute_shape(self, op: Op, state: State) -> None:
        word = op["heap"]
        heap = self._heap(state, word)
        leave = self._leave(op, "X", state)
        if heap is None or op["last_slot"] >= heap.slots:
            checked = (f"s->compute_shape({self._ref(op, state, word)}, {op['last_slot']}, "
                       f"code + {op.tail})")
            self._emit(f"if (RARE(!{checked})) {self._leave(op, 'X', state)}")
            return
        stored: dict[int, str] = {}
        stack: list[str] = []
        self._emit("{")
        for number, step in enumerate(shape_program.decode(op.items[:-1])):
            name, operand = (step, 0) if isinstance(step, str) else step
            if name == "const":
                stack.append(f"INT64_C({operand})" if operand != _LOWEST else "INT64_MIN")
            elif name == "load":
                stack.append(stored.get(operand) or self._slot(word, operand))
            elif name == "store":
                stored[operand] = stack.pop()
            else:
                result = f"t{number}"
                size = shape_program.BY_NAME[name].pops
                values, stack = stack[len(stack) - size :], stack[: len(stack) - size]
                for line in _computed(name, result, values, leave):
                    self._emit(line)
                stack.append(result)
        for slot, value in stored.items():  # slots that a later one is computed from are in `value`
            self._emit(f"const int64_t u{slot} = {value};")
        for slot in stored:
            self._emit(f"{self._slot(word, slot)} = u{slot};")
        self._emit("}")

    # Checks

    def _check(self, op: Op, state: State, check: str) -> None:
        self._emit(f"if (RARE(!{check})) {self._leave(op, 'X', state)}")

    def _op_check_tensor(self, op: Op, state: State) -> None:
        x = self._ref(op, state, op["x"])
        self._check(op, state, f"s->check_tensor({x}, {op['ndim']}, code[{op.at('dtype')}])")

    def _op_check_shape(self, op: Op, state: State) -> None:
        self._check(op, state, f"s->check_shape({self._ref(op, state, op['x'])}, {op['ndim']})")

    def _op_check_tuple(self, op: Op, state: State) -> None:
        place = state[op["x"]] if op["x"] >= 0 else MEMORY
        if isinstance(place, Group) and place.function is None and len(place.items) == op["size"]:
            return
        self._check(op, state, f"s->check_tuple({self._ref(op, state, op['x'])}, {op['size']})")

    def _op_check_func(self, op: Op, state: State) -> None:
        place = state[op["x"]] if op["x"] >= 0 else MEMORY
        if isinstance(place, Group) and place.function is not None:
            return
        self._check(op, state, f"s->check_func({self._ref(op, state, op['x'])})")

    def _op_check_prim(self, op: Op, state: State) -> None:
        place = state[op["x"]] if op["x"] >= 0 else MEMORY
        if place in (Scalar.INT, Scalar.BOOL):
            return
        if place is Scalar.ANY:
            kind = f"{self._scalar(op['x'], Scalar.ANY)}.type"
            real = f" || {kind} == RVM_SCALAR_REAL" if op["floats"] else ""
            self._check(op, state, f"({kind} == RVM_SCALAR_INT || {kind} == RVM_SCALAR_BOOL{real})")
            return
        self._check(op, state, f"s->check_prim({self._ref(op, state, op['x'])}, {op['floats']})")

    # Memory

    def _op_alloc_storage(self, op: Op, state: State) -> None:
        made = f"s->alloc_storage(code[{op.at('allocator')}], INT64_C({op['nbytes']}))"
        self._set_made(op, state, op["dst"], made, self._fallback(op, state))

    def _op_alloc_storage_dyn(self, op: Op, state: State) -> None:
        made = (f"s->alloc_storage_dyn(code[{op.at('allocator')}], "
                f"{self._ref(op, state, op['shape'])}, {op['itemsize']})")
        self._set_made(op, state, op["dst"], made, self._fallback(op, state))

    def _op_alloc_tensor(self, op: Op, state: State) -> None:
        made = (f"s->alloc_tensor({self._ref(op, state, op['storage'])}, {op['offset']}, "
                f"{self._ref(op, state, op['shape'])}, code[{op.at('dtype')}])")
        self._set_made(op, state, op["dst"], made, self._fallback(op, state))

    def _op_alloc_tensor_of(self, op: Op, state: State) -> None:
        made = (f"s->alloc_tensor_of({self._ref(op, state, op['storage'])}, {op['offset']}, "
                f"{op['end']}, code[{op.at('dtype')}], {len(op.items)}, code + {op.tail})")
        self._set_made(op, state, op["dst"], made, self._fallback(op, state))

    def _op_alloc_static(self, op: Op, state: State) -> None:
        self._empty(op, state, op["storage"])
        made = f"s->alloc_static(code + {op.position})"
        self._set_made(op, state, op["dst"], made, self._fallback(op, state))

    def _op_reshape(self, op: Op, state: State) -> None:
        made = (f"s->reshape({self._ref(op, state, op['tensor'])}, "
                f"{self._ref(op, state, op['shape'])})")
        self._set_made(op, state, op["dst"], made, self._fallback(op, state))

    def _op_fuel(self, op: Op, state: State) -> None:
        self._emit(f"if (RARE(*a->fuel < {op['instructions']} || "
                   f"*a->objects + {op['bytes']} > *a->census_at)) {self._leave(op, 'X', state)}")
        self._emit(f"*a->fuel -= {op['instructions']}; *a->objects += {op['bytes']};")

    def _op_deadline(self, op: Op, state: State) -> None:
        self._emit(f"if (RARE(s->check_deadline(a) < 0)) {self._leave(op, 'E', state)}")

    # Calls

    def _arguments(self, op: Op, state: State, area: int) -> str:
        """Lay out the arguments of a packed function; returns where they are."""
        self._in_memory(op, state, op.items)
        for i, word in enumerate(op.items):
            self._emit(f"fp[{area + i}] = {self._ref(op, state, word)};")
        return f"fp + {area}, {len(op.items)}"

    def _op_call(self, op: Op, state: State) -> None:
        args = self._arguments(op, state, op["area"])
        callee = self._ref(op, state, op["callee"])
        made = f"s->call(a, {callee}, {args})"
        self._set_made(op, state, op["dst"], made, self._leave(op, "E", state))
        self._poll(op, state)

    def _op_call_void(self, op: Op, state: State) -> None:
        args = self._arguments(op, state, op["area"])
        callee = self._ref(op, state, op["callee"])
        self._emit(f"if (RARE(s->call_void(a, {callee}, {args}) < 0)) "
                   f"{self._leave(op, 'E', state)}")
        self._poll(op, state)

    def _op_call_native(self, op: Op, state: State) -> None:
        dst = op["dst"]
        scalars = [self._as_scalar(state, word) for word in op.items]
        if 0 < len(scalars) <= MAX_SCALARS and None not in scalars:
            self._call_scalars(op, state, [text for text in scalars if text is not None])
            return
        self._in_memory(op, state, op.items)
        if state[dst] is not MEMORY:
            self._empty(op, state, dst)
        for register, group in state.groups():
            if _refers_to(group, dst):
                self._to_memory(op, state, register)
        self._emit(f"if (RARE(s->call_native(a, fp, code + {op.position}) < 0)) "
                   f"{self._leave(op, 'E', state)}")
        state[dst] = MEMORY
        self._poll(op, state)

    def _as_scalar(self, state: State, word: int) -> str | None:
        """An operand as the fields of an RvmScalar; None if it is not known to be one."""
        if word < 0:
            value = self.constant(word)
            if type(value) is int and -(1 << 63) < value < 1 << 63:
                return f"{{RVM_SCALAR_INT, 0, {{.as_int = INT64_C({value})}}}}"
            return None
        place = state[word]
        if not isinstance(place, Scalar):
            return None
        name = self._scalar(word, place)
        if place is Scalar.ANY:
            return name
        kind = "INT" if place is Scalar.INT else "BOOL"
        return f"{{RVM_SCALAR_{kind}, 0, {{.as_int = {name}}}}}"

    def _call_scalars(self, op: Op, state: State, args: Sequence[str]) -> None:
        dst, callee = op["dst"], self._ref(op, state, op["callee"])
        answer, result = self._local("answer", "int"), self._local("result", "RvmScalar")
        self._emit(f"{{ const RvmScalar args[] = {{{', '.join(args)}}};")
        self._emit(f"{answer} = s->call_scalars(a, {callee}, args, {len(args)}, &{result}); }}")
        self._emit(f"if (RARE({answer} < 0)) {self._leave(op, 'E', state)}")
        # Any other result is stored, and the loop continues after the call.
        other = State(state)
        self._emit(f"if (RARE({answer} == 0)) {{")
        self._set_ref(op, other, dst, "a->value")
        self._poll(op, other)
        self._emit(self._leave(self.ops[op.end], "X", other))
        self._emit("}")
        self._set_scalar(op, state, dst, Scalar.ANY, result)
        self._poll(op, state)

    def _op_ufunc_1(self, op: Op, state: State) -> None:
        self._ufunc(op, state, ("x", "out"))

    def _op_ufunc_2(self, op: Op, state: State) -> None:
        self._ufunc(op, state, ("a", "b", "out"))

    def _ufunc(self, op: Op, state: State, names: Sequence[str]) -> None:
        refs = ", ".join(self._ref(op, state, op[name]) for name in names)
        answer = self._local("answer", "int")
        self._emit(f"{answer} = s->{op.name}(a, code + {op.at('ufunc')}, {refs});")
        self._emit(f"if (RARE({answer} == 0)) {self._leave(op, 'X', state)}")
        self._emit(f"if (RARE({answer} < 0)) {self._leave(op, 'E', state)}")
        self._poll(op, state)

    def _room(self, op: Op, state: State, words: str) -> str:
        """Check that a frame of so many words can be pushed; returns where its registers are."""
        self._emit(f"{{ RvmRef *const callee = fp + {op['frame'] + _HEADER};")
        self._emit(f"if (RARE(*a->calls_left <= 0 || {words} > a->end - callee || "
                   f"(uintptr_t)__builtin_frame_address(0) < a->stack)) "
                   f"{self._leave(op, 'X', state)}")
        self._emit("a->ticks--;")
        self._poll(op, state)
        return "callee"

    def _op_call_vm(self, op: Op, state: State) -> list[tuple[int, State]] | None:
        index = self.function_at(op["callee"])
        if index is None or index not in self.signatures:
            return self._unknown(op, state)
        self._call(op, state, index, op.items, "const int64_t function = "
                   f"code[{op.at('callee')}];")  # fmt: skip
        return None

    def _call(
        self, op: Op, state: State, index: int, args: Sequence[int | Item | Group], function: str
    ) -> None:
        """A call of a function of the program."""
        signature = self.signatures[index]
        numbers = self._passed_numbers(op, state, signature, args)
        for i, arg in enumerate(args):
            if i not in numbers and isinstance(arg, int):
                self._ref(op, state, arg)
        self._room(op, state, str(signature.code.frame_words))
        self._emit(function)
        for i, arg in enumerate(args):
            value = "0" if i in numbers else self._argument(state, arg)
            self._emit(f"callee[{i}] = {value};")
        empty = range(len(args), signature.code.num_registers)
        if len(empty) > MANY_REGISTERS:
            self._emit(f"for (int64_t i = {empty[0]}; i <= {empty[-1]}; i++) callee[i] = 0;")
        else:
            for i in empty:
                self._emit(f"callee[{i}] = 0;")
        made = [i for i, arg in enumerate(args) if i not in numbers and not isinstance(arg, int)
                and _may_fail(arg)]  # fmt: skip
        for i in made:
            others = " ".join(f"rvm_clear(s, callee + {j});" for j in range(len(args)))
            self._emit(f"if (RARE(callee[{i}] == 0)) {{ {others} {self._leave(op, 'E', state)} }}")
        passed = "".join(f", {numbers[p]}" for p in signature.numbers)
        self._emit("--*a->calls_left;")
        self._emit(f"status = f{index}(a, callee, *(const int64_t *const *)function, 0{passed});")
        self._returned(op, state)
        self._emit("}")
        if signature.result is Scalar.INT:
            self._set_scalar(op, state, op["dst"], Scalar.INT, "a->number")
        else:
            self._set_ref(op, state, op["dst"], "a->value")

    def _returned(self, op: Op, state: State) -> None:
        """After a call: complete the frames if the callee has not returned."""
        self._emit(f"if (RARE(status != RVM_DONE)) {{ rvm_header(callee, code + {op.end}, fp, "
                   f"function, {op['dst']}); {self._leave(op, 'Y', state)} }}")
        self._emit("++*a->calls_left;")

    def _passed_numbers(
        self, op: Op, state: State, signature: Signature, args: Sequence[int | Item | Group]
    ) -> dict[int, str]:
        """The arguments that are passed as int64_t, as C."""
        found: dict[int, str] = {}
        for p in signature.numbers:
            arg = args[p]
            if isinstance(arg, int):
                number = self._number(op, state, arg)
            elif isinstance(arg, Item) and arg.kind is ItemKind.INT:
                number = arg.name
            else:
                number = self._number_of_item(op, state, arg)
            name = self._local(f"p{op.position}_{p}", "int64_t")
            self._emit(f"{name} = {number};")
            found[p] = name
        return found

    def _number_of_item(self, op: Op, state: State, arg: Item | Group) -> str:
        name = self._local("number", "int64_t")
        leave = self._leave(op, "X", state)
        if isinstance(arg, Item) and arg.kind in (ItemKind.REGISTER, ItemKind.OWNED,
                                                  ItemKind.CONSTANT):  # fmt: skip
            self._emit(f"if (RARE(!s->as_int({_borrowed(arg)}, &{name}))) {leave}")
        elif isinstance(arg, Item) and arg.kind is ItemKind.ANY:
            self._emit(f"if (RARE({arg.name}.type != RVM_SCALAR_INT)) {leave}")
            return f"{arg.name}.as_int"
        else:
            self._emit(leave)
            self._emit(f"{name} = 0;")
        return name

    def _argument(self, state: State, arg: int | Item | Group) -> str:
        """A new reference to an argument, or NULL for None."""
        if not isinstance(arg, int):
            return self._new_item(arg)
        if arg < 0:
            return f"rvm_new(s, a->pool_end[{arg}])"
        return "0" if state[arg] is EMPTY else f"rvm_new(s, fp[{arg}])"

    def _op_invoke_closure(self, op: Op, state: State) -> list[tuple[int, State]] | None:
        word = op["closure"]
        place: Place = MEMORY if word < 0 else state[word]
        if isinstance(place, Group) and place.function in self.signatures and (
            place.function is not None
        ):
            args: list[int | Item | Group] = [*op.items, *place.items]
            if len(args) != self.signatures[place.function].code.num_params:
                return self._unknown(op, state)
            function = f"const int64_t function = s->func_address(a, {place.function});"
            self._call(op, state, place.function, args, function)
            return None
        self._in_memory(op, state, (*op.items, word))
        count, closure = len(op.items), self._ref(op, state, word)
        self._emit("{ int64_t index, words, registers;")
        self._emit(f"const RvmCompiled target = s->target(a, {closure}, {count}, &index, &words, "
                   "&registers);")
        self._emit(f"if (RARE(target == 0)) {self._leave(op, 'X', state)}")
        self._room(op, state, "words")
        self._emit("const int64_t function = s->func_address(a, index);")
        self._emit("const int64_t params = ((const int64_t *)function)[1];")
        for i, arg in enumerate(op.items):
            self._emit(f"callee[{i}] = {self._argument(state, arg)};")
        self._emit(f"for (int64_t i = {count}; i < params; i++) "
                   f"callee[i] = rvm_new(s, s->captured({closure}, i - {count}));")
        self._emit("for (int64_t i = params; i < registers; i++) callee[i] = 0;")
        self._emit("--*a->calls_left;")
        self._emit("a->ip = *(const int64_t *const *)function;")
        self._emit("status = target(a, callee, 0);")
        self._returned(op, state)
        self._emit("} }")
        self._set_ref(op, state, op["dst"], "a->value")
        return None


def _group(place: Place) -> Group:
    assert isinstance(place, Group)
    return place


def _refers_to(group: Group, register: int) -> bool:
    return any(leaf.kind is ItemKind.REGISTER and leaf.at == register for leaf in group.leaves())


def _owned(group: Group) -> list[str]:
    return [leaf.name for leaf in group.leaves() if leaf.kind is ItemKind.OWNED]


def _replaced(group: Group, register: int, by: Item) -> Group:
    """A group with another item in the place of a register's value."""

    def replaced(item: Item | Group) -> Item | Group:
        if isinstance(item, Group):
            return _replaced(item, register, by)
        return by if item.kind is ItemKind.REGISTER and item.at == register else item

    return Group(group.function, tuple(map(replaced, group.items)))


def _borrowed(item: Item) -> str:
    if item.kind is ItemKind.REGISTER:
        return f"fp[{item.at}]"
    return item.name if item.kind is ItemKind.OWNED else f"a->pool_end[{item.at}]"


def _may_fail(item: int | Item | Group) -> bool:
    """Whether making a reference to an item may fail."""
    if isinstance(item, Group):
        return True
    return isinstance(item, Item) and item.kind in (ItemKind.INT, ItemKind.ANY)


def _array(kind: str, items: Sequence[str]) -> str:
    return f"({kind}[]){{{', '.join(items) or '0'}}}"


def _zero(kind: str) -> str:
    return " = {0}" if kind == "RvmScalar" else " = 0"


def _comment(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._" else "?" for c in name[:200])


_C_TYPES: Final = {Scalar.INT: "int64_t", Scalar.BOOL: "int", Scalar.ANY: "RvmScalar"}
_LOWEST: Final = -(1 << 63)

_FITS: Final = {"add": "add", "sub": "sub", "mul": "mul"}
_COMPARED: Final = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _computed(name: str, result: str, values: Sequence[str], leave: str) -> Iterable[str]:
    """C that computes an operation of a shape program."""
    a, b = values[0], values[-1]
    if name in _FITS:
        yield f"int64_t {result};"
        yield f"if (RARE(__builtin_{name}_overflow({a}, {b}, &{result}))) {leave}"
    elif name == "floordiv":
        yield f"if (RARE({b} == 0 || ({b} == -1 && {a} == INT64_MIN))) {leave}"
        yield f"const int64_t {result} = rvm_floordiv({a}, {b});"
    elif name == "floormod":
        yield f"if (RARE({b} == 0)) {leave}"
        yield f"const int64_t {result} = rvm_floormod({a}, {b});"
    elif name in _COMPARED:
        yield f"const int64_t {result} = {a} {_COMPARED[name]} {b};"
    elif name in ("min", "max"):
        yield f"const int64_t {result} = {a} {'<' if name == 'min' else '>'} {b} ? {a} : {b};"
    elif name in ("and", "or"):
        yield f"const int64_t {result} = {a} != 0 {'&&' if name == 'and' else '||'} {b} != 0;"
    elif name == "not":
        yield f"const int64_t {result} = {a} == 0;"
    else:
        assert name == "select", name
        yield f"const int64_t {result} = {values[0]} != 0 ? {values[1]} : {values[2]};"


