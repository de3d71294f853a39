"""Native code of one function: copies, tuples, closures and values of data types."""

from __future__ import annotations

from typing import Final

from .code import Op
from .registers import Paths, RegisterWriter, array
from .states import EMPTY, MEMORY, Group, Place, Scalar, State

__all__ = ["ObjectWriter"]

MAX_ITEMS: Final = 16
"""Larger tuples and closures are objects from the beginning."""


class ObjectWriter(RegisterWriter):
    """Writes the operations that make and take apart Python objects."""

    def _op_copy(self, op: Op, state: State) -> None:
        word, dst = op["value"], op["dst"]
        if word == dst:
            return
        place: Place = MEMORY if word < 0 else state[word]
        if isinstance(place, Scalar):
            self._set_scalar(op, state, dst, place, self._scalar(word, place))
        elif place is EMPTY:
            self._empty(op, state, dst)
        elif isinstance(place, Group) and not place.owned() and not self._lives_on(op, word):
            state[word] = EMPTY
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
        items = array("RvmRef", [self._ref(op, state, word) for word in op.items])
        made = f"s->tuple_of({items}, {len(op.items)})"
        self._set_made(op, state, dst, made, self._leave(op, "E", state))

    def _op_tuple_getitem(self, op: Op, state: State) -> None:
        word, index, dst = op["tuple"], op["index"], op["dst"]
        place: Place = MEMORY if word < 0 else state[word]
        if isinstance(place, Group) and place.function is None and index < len(place.items):
            item = place.items[index]
            if not isinstance(item, Group) or not self._lives_on(op, word):
                self._set_item(op, state, dst, item)
                return
        made = f"s->item({self._ref(op, state, word)}, {index})"
        self._set_made(op, state, dst, made, self._leave(op, "X", state))

    def _op_make_adt(self, op: Op, state: State) -> Paths | None:
        if len(op.items) > MAX_ITEMS:
            return self._unknown(op, state)
        self._in_memory(op, state, op.items)
        fields = array("RvmRef", [self._ref(op, state, word) for word in op.items])
        dst = op["dst"]
        may_renew = state[dst] is MEMORY and not any(g.refers_to(dst) for _, g in state.groups())
        old = f"fp[{dst}]" if may_renew else "0"
        made = (f"s->make_adt({old}, a->pool_end[{op['constructor']}], {op['tag']}, {fields}, "
                f"{len(op.items)})")
        leave = self._leave(op, "E", state)
        if not may_renew:
            self._set_made(op, state, dst, made, leave)
            return None
        name = self._local("made", "RvmRef")
        self._emit(f"{name} = {made};")
        self._emit(f"if (RARE({name} == 0)) {leave}")
        self._emit(f"if ({name} != {old}) rvm_store(s, fp + {dst}, {name});")
        return None

    def _op_match_tag(self, op: Op, state: State) -> None:
        tag, x = self._local("number", "int64_t"), self._ref(op, state, op["x"])
        self._check_tag(op, state, f"s->match_tag({x}, a->pool_end, code + {op.tail}, "
                                   f"{len(op.items) // 2}, &{tag})")

    def _check_tag(self, op: Op, state: State, check: str) -> None:
        self._emit(f"if (RARE(!{check})) {self._leave(op, 'X', state)}")
        self._set_scalar(op, state, op["dst"], Scalar.INT, self._local("number", "int64_t"))

    def _op_adt_tag(self, op: Op, state: State) -> None:
        tag, x = self._local("number", "int64_t"), self._ref(op, state, op["x"])
        self._check_tag(op, state, f"s->adt_tag({x}, &{tag})")

    def _op_adt_field(self, op: Op, state: State) -> None:
        made = f"s->adt_field({self._ref(op, state, op['x'])}, {op['index']})"
        self._set_made(op, state, op["dst"], made, self._leave(op, "X", state))

    def _op_make_closure_of(self, op: Op, state: State) -> Paths | None:
        function = self.function_at(op["function"])
        if function is None or len(op.items) > MAX_ITEMS:
            return self._unknown(op, state)
        group = self._group_of(op, state, function, op.items)
        self._set_group(op, state, op["dst"], group)
        return None

    def _op_load_function(self, op: Op, state: State) -> Paths | None:
        function = self.function_at(op["function"])
        if function is None:
            return self._unknown(op, state)
        made = f"s->load_function(a, {function})"
        self._set_made(op, state, op["dst"], made, self._leave(op, "E", state))
        return None
