"""Native code of one function of a program: its operations as C.

`FunctionWriter.states` follows the places of registers along all paths first; then `write` makes
the text.  Both call the same method for an operation, which writes its C and returns where it
leads.

An operation that cannot go on natively leaves by an *exit*: all registers are put into the frame,
and the loop continues at the operation.  So no operation may change anything before its last exit.
"""

from __future__ import annotations

from collections.abc import Iterable

from .calls import CallWriter
from .control import ControlWriter
from .elementwise import ElementwiseWriter
from .objects import ObjectWriter
from .registers import Exits, Paths
from .states import EMPTY, MEMORY, Heap, Place, Scalar, State, join
from .tensors import CheckWriter, MemoryWriter

__all__ = ["FunctionWriter"]


class FunctionWriter(
    ControlWriter, ObjectWriter, CheckWriter, MemoryWriter, ElementwiseWriter, CallWriter
):
    """Writes one function; the arguments are those of `RegisterWriter`."""

    # The two passes

    def states(self) -> None:
        """Find the places of registers at the start of each block, and those of results."""
        self.results = set()
        self.successors = set()
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
        self._lines, self._locals, self._exits = [], {}, Exits()
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
        self._write_exits()
        exits, self._lines = self._lines, []
        index = self.code.index
        numbers = "".join(f", int64_t n{p}" for p in self.signature.numbers)
        names = sorted(self._locals.items())
        declared = [f"    {kind} {name}{_zero(kind)};" for name, kind in names]
        cases = [f"        case {at}: goto R{at};" for at in entries]
        return "\n".join([
            *(self.merged[start] for start in sorted(self.merged)),
            f"/* {_comment(self.code.name)} */",
            f"static int f{index}(RvmActivation *const a, RvmRef *const fp, "
            f"const int64_t *const code, int64_t at{numbers}) {{",
            "    const RvmServices *const s = a->services;",
            *declared,
            *(f"    {tensor.declaration}" for tensor in self._local_tensors.values()),
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

    def _block(self, start: int) -> Paths:
        """Write the operations of a block; returns the blocks that it leads to, with their states
        on these paths."""
        state = State(self._into[start])
        at = start
        while True:
            op = self.ops[at]
            self._drop_dead(op, state)
            chain = self._chains.get(at)
            if chain is not None and self._can_merge(chain, state):
                op = self._merged(chain, op, state)
            else:
                done = getattr(self, f"_op_{op.name}", self._unknown)(op, state)
                if done is not None:
                    return list(done)
            at = op.end
            if at in self._starts:
                self._jump(at, state, op)
                return [(at, state)]

    # Ways in and out

    def _write_exits(self) -> None:
        """The exits, of which those with the same state share the code that fills the frame."""
        shared: dict[tuple[str, tuple[tuple[int, Place], ...]], str] = {}
        for (position, kind, kept), label in self._exits.labels.items():
            body = shared.setdefault((kind, kept), f"S{len(shared)}")
            self._emit(f"{label}: at = {position}; goto {body};")
        for (kind, kept), body in shared.items():
            self._write_exit(kind, State(kept), body)

    def _write_exit(self, kind: str, state: State, label: str) -> None:
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
            emit("a->ip = code + at; a->fp = fp;")
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
            lines += ["    while (status == RVM_TAIL) status = a->target(a, fp, 0);",
                      "    if (status == RVM_DONE) {",
                      "        a->value = s->from_int(a->number);",
                      "        if (a->value == 0) {",
                      f"            fp[-2] = (RvmRef)s->func_address(a, {index});",
                      f"            a->ip = code + {code.ops[-1].position};",
                      "            a->fp = fp;",
                      "            return RVM_FAILED_AT;",
                      "        }",
                      "    }"]  # fmt: skip
        lines += ["    return status;", "}"]
        numbers = "".join(f", a->numbers[{i}]" for i in range(len(self.signature.numbers)))
        lines += [f"static int rvm_tail_{index}(RvmActivation *a, RvmRef *fp, int64_t position) {{",
                  f"    return f{index}(a, fp, a->ip - position, position{numbers});",
                  "}"]  # fmt: skip
        last = code.num_registers  # the word after the registers, which calls from C may use
        lines += [f"int rvm_enter_{index}(RvmActivation *a, RvmRef *fp, int64_t position) {{",
                  f"    static const int64_t ret[] = {{RVM_OP_RET, {last}, 0}};",
                  "    const RvmServices *const s = a->services;",
                  "    (void)s;",
                  *self._cleared_at_start(),
                  f"    int status = rvm_call_{index}(a, fp, position);",
                  "    while (status == RVM_TAIL) status = a->target(a, fp, 0);",
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


def _zero(kind: str) -> str:
    return " = {0}" if kind == "RvmScalar" else " = 0"


def _comment(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._" else "?" for c in name[:200])
