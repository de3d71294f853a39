"""Native code of one function: returns, jumps, conditions, and what limits ask for."""

from __future__ import annotations

from .code import Op
from .registers import Paths, RegisterWriter
from .states import EMPTY, MEMORY, Scalar, State

__all__ = ["ControlWriter"]


class ControlWriter(RegisterWriter):
    """Writes the operations that decide where code continues."""

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

    def _inside(self, paths: Paths) -> Paths:
        return [path for path in paths if path[0] in self.ops]

    def _op_enter(self, op: Op, state: State) -> None:
        return None

    def _op_ret(self, op: Op, state: State) -> Paths:
        word = op["result"]
        place = state[word]
        self.results.add(place if place is Scalar.INT else MEMORY)
        if self.signature.result is Scalar.INT and place is Scalar.INT:
            self._emit(f"a->number = {self._scalar(word, Scalar.INT)};")
        elif place is EMPTY:
            self._emit("a->value = rvm_new(s, s->none);")
        else:
            self._to_memory(op, state, word)
            self._emit(f"a->value = fp[{word}]; fp[{word}] = 0;")
            self._emit("if (a->value == 0) a->value = rvm_new(s, s->none);")
            state[word] = EMPTY
        self._clear_frame(state)
        self._emit("return RVM_DONE;")
        return []

    def _op_goto(self, op: Op, state: State) -> Paths:
        self._jump(op.target("distance"), state, op)
        return self._inside([(op.target("distance"), state)])

    def _op_goto_back(self, op: Op, state: State) -> Paths:
        self._emit("a->ticks--;")
        self._poll(op, state)
        return self._op_goto(op, state)

    def _branch(self, op: Op, state: State, condition: str) -> Paths:
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

    def _op_if(self, op: Op, state: State) -> Paths:
        return self._branch(op, state, self._condition(op, state, op["cond"], "truth"))

    def _op_read_if(self, op: Op, state: State) -> Paths:
        condition = self._condition(op, state, op["x"], "read_cond")
        self._set_scalar(op, state, op["dst"], Scalar.BOOL, condition)
        return self._branch(op, state, self._scalar(op["dst"], Scalar.BOOL))

    def _op_tag_is(self, op: Op, state: State) -> None:
        word, number = op["tag"], op["number"]
        if word >= 0 and state[word] is Scalar.INT:
            condition = f"{self._scalar(word, Scalar.INT)} == {number}"
        else:
            truth = self._local("truth", "int")
            self._emit(f"{truth} = s->tag_is({self._ref(op, state, word)}, {number});")
            self._emit(f"if (RARE({truth} < 0)) {self._leave(op, 'X', state)}")
            condition = f"{truth} != 0"
        self._set_scalar(op, state, op["dst"], Scalar.BOOL, condition)

    def _op_if_tag(self, op: Op, state: State) -> Paths:
        self._op_tag_is(op, state)
        return self._branch(op, state, self._scalar(op["dst"], Scalar.BOOL))

    def _op_read_cond(self, op: Op, state: State) -> None:
        condition = self._condition(op, state, op["x"], "read_cond")
        self._set_scalar(op, state, op["dst"], Scalar.BOOL, condition)

    def _op_fuel(self, op: Op, state: State) -> None:
        self._emit(f"if (RARE(*a->fuel < {op['instructions']} || "
                   f"*a->objects + {op['bytes']} > *a->census_at)) {self._leave(op, 'X', state)}")
        self._emit(f"*a->fuel -= {op['instructions']}; *a->objects += {op['bytes']};")

    def _op_deadline(self, op: Op, state: State) -> None:
        self._emit(f"if (RARE(s->check_deadline(a) < 0)) {self._leave(op, 'E', state)}")
