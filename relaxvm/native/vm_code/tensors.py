"""Native code of one function: checks of values, and memory for tensors."""

from __future__ import annotations

from .code import Op
from .registers import RegisterWriter
from .shapes import ShapeWriter
from .states import MEMORY, Group, Scalar, State

__all__ = ["CheckWriter", "MemoryWriter"]


class CheckWriter(ShapeWriter):
    """Writes the operations that compare values with their types."""

    def _check(self, op: Op, state: State, check: str) -> None:
        self._emit(f"if (RARE(!{check})) {self._leave(op, 'X', state)}")

    def _op_check_tensor(self, op: Op, state: State) -> None:
        x = self._ref(op, state, op["x"])
        self._check(op, state, f"s->check_tensor({x}, {op['ndim']}, code[{op.at('dtype')}])")

    def _op_check_match(self, op: Op, state: State) -> None:
        self._op_check_tensor(op, state)
        self._op_match_shape(op, state)

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


class MemoryWriter(RegisterWriter):
    """Writes the operations that make storages and arrays."""

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
        tensor = self._local_tensors.get(op.position)
        if tensor is not None:
            self._empty(op, state, op["dst"])
            self._emit(tensor.made)
            state[op["dst"]] = tensor
            return
        made = f"s->alloc_static(code + {op.position})"
        self._set_made(op, state, op["dst"], made, self._fallback(op, state))

    def _op_reshape(self, op: Op, state: State) -> None:
        made = (f"s->reshape({self._ref(op, state, op['tensor'])}, "
                f"{self._ref(op, state, op['shape'])})")
        self._set_made(op, state, op["dst"], made, self._fallback(op, state))
