"""Native code of one function: shapes, shape heaps and numbers computed from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ...executable import shape_program
from ...executable.shape_codes import MakeShapeCode, MatchShapeCode
from .code import Op
from .registers import RegisterWriter
from .states import Heap, Scalar, State

__all__ = ["ShapeWriter"]

MAX_HEAP_SLOTS: Final = 64
"""Larger shape heaps are arrays from the beginning."""
_LOWEST: Final = -(1 << 63)

_FITS: Final = {"add": "add", "sub": "sub", "mul": "mul"}
_COMPARED: Final = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


class ShapeWriter(RegisterWriter):
    """Writes the operations on shapes and shape heaps."""

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
