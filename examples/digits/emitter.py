"""A thin layer over `relaxvm.ExecBuilder` for functions on tensors.

The builder knows registers, constants and calls.  A function on tensors combines them in a few
patterns: check an argument, make a shape, allocate a tensor, call a kernel that writes into it.
Each pattern is a method here, which emits what TVM's compiler would emit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

import relaxvm

# Codes that tell `match_shape` and `make_shape` how to use the number after the code.
EQUALS_NUMBER = MAKE_FROM_NUMBER = 0
STORE_TO_SLOT = MAKE_FROM_SLOT = 1
EQUALS_SLOT = 3


@dataclass(frozen=True)
class Dim:
    """A dimension that is known only at run time; a slot of the shape heap holds its size."""

    name: str
    slot: int


Dims = Sequence[int | Dim]


class Emitter:
    """Emits the body of the function that is open in `ib`.

    Args:
        ib: the builder.
        name: name of the function, for the error messages of its checks.
        params: names of its parameters; their registers are in `inputs`.
        slots: number of dimensions that the shape heap holds.
    """

    def __init__(
        self, ib: relaxvm.ExecBuilder, name: str, params: Sequence[str], slots: int
    ) -> None:
        self.ib = ib
        self.inputs = [ib.r(i) for i in range(len(params))]
        self._name = name
        self._params = params
        # Every value gets a new register; the builder renumbers the registers of a function.
        self._unused = count(len(params))
        self._known: set[Dim] = set()
        self._heap = self.call("vm.builtin.alloc_shape_heap", ib.vm_state(), ib.imm(slots))

    def call(self, name: str, *args: int) -> int:
        """Call a function and return the register of its result."""
        result = self.ib.r(next(self._unused))
        self.ib.emit_call(name, args, dst=result)
        return result

    # Checks

    def check_tensor(self, param: int, dtype: str, dims: Dims) -> None:
        """Check that a parameter is a tensor of a data type and shape.

        The first use of a `Dim` stores its size; later uses must have an equal size.
        """
        ib, x, rank = self.ib, self.inputs[param], self.ib.imm(len(dims))
        context = self._context(param, dtype, dims)
        ib.emit_call("vm.builtin.check_tensor_info", [x, rank, np.dtype(dtype), context])
        codes = [ib.imm(number) for dim in dims for number in self._match_code(dim)]
        ib.emit_call("vm.builtin.match_shape", [x, self._heap, rank, *codes, context])

    def unpack(self, param: int, size: int) -> list[int]:
        """Check that a parameter is a tuple, and return the registers of its items."""
        x, context = self.inputs[param], f"{self._name}, {self._params[param]}: "
        check = [x, self.ib.imm(size), self.ib.convert_constant(context)]
        self.ib.emit_call("vm.builtin.check_tuple_info", check)
        return [self.item(x, i) for i in range(size)]

    def item(self, values: int, index: int) -> int:
        """Return the register of an item of a tuple."""
        return self.call("vm.builtin.tuple_getitem", values, self.ib.imm(index))

    def _match_code(self, dim: int | Dim) -> tuple[int, int]:
        if isinstance(dim, int):
            return EQUALS_NUMBER, dim
        if dim in self._known:
            return EQUALS_SLOT, dim.slot
        self._known.add(dim)
        return STORE_TO_SLOT, dim.slot

    def _context(self, param: int, dtype: str, dims: Dims) -> int:
        """Return the prefix of a check's error; `relaxvm run` reads names of dimensions from it."""
        names = ", ".join(dim.name if isinstance(dim, Dim) else str(dim) for dim in dims)
        return self.ib.convert_constant(
            f"ErrorContext(fn={self._name}, loc=param[{param}], param={self._params[param]}, "
            f'annotation=R.Tensor(({names}), dtype="{dtype}")) '
        )

    # Tensors

    def size(self, dim: Dim) -> int:
        """Return the register that holds the size of a dimension, an int."""
        make = self.ib.imm(MAKE_FROM_SLOT)
        return self.call("vm.builtin.make_prim_value", self._heap, make, self.ib.imm(dim.slot))

    def tensor(self, *dims: int | Dim, dtype: str = "float32") -> int:
        """Allocate a tensor, with undefined elements, and return its register."""
        ib, shape = self.ib, self._shape(dims)
        element, scope = ib.convert_constant(np.dtype(dtype)), ib.convert_constant("global")
        device, offset = ib.imm(0), ib.imm(0)
        room = (ib.vm_state(), shape, device, element, scope)
        storage = self.call("vm.builtin.alloc_storage", *room)
        return self.call("vm.builtin.alloc_tensor", storage, offset, shape, element)

    def _shape(self, dims: Dims) -> int:
        if all(isinstance(dim, int) for dim in dims):
            return self.ib.convert_constant(dims)
        codes = [self.ib.imm(number) for dim in dims for number in self._make_code(dim)]
        return self.call("vm.builtin.make_shape", self._heap, self.ib.imm(len(dims)), *codes)

    def _make_code(self, dim: int | Dim) -> tuple[int, int]:
        return (MAKE_FROM_SLOT, dim.slot) if isinstance(dim, Dim) else (MAKE_FROM_NUMBER, dim)

    def kernel(self, name: str, *args: int) -> int:
        """Call a kernel, which writes into its last argument, and return that argument."""
        self.ib.emit_call(f"relaxvm.kernel.{name}", args)
        return args[-1]
