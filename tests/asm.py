"""A concise layer over `ExecBuilder` for programs written by hand or by a generator.

Registers are ``r0, r1, ...``, ``op(dst, name, *args)`` emits a call whose arguments are registers,
Python values, `Func`, `VM` or `VOID`.  A name that starts with a dot is a ``vm.builtin.*``; the
prefix ``test.`` of `tests.kernels` may be omitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from relaxvm.executable.exec_builder import ExecBuilder
from relaxvm.isa import FuncKind
from relaxvm.values import Shape

from .kernels import KERNELS


@dataclass(frozen=True, slots=True)
class Reg:
    """A register operand."""

    index: int


@dataclass(frozen=True, slots=True)
class Func:
    """A function operand: an entry of the function table."""

    name: str


class _Special:
    pass


VM: Final = _Special()
VOID: Final = _Special()
r0, r1, r2, r3, r4, r5, r6, r7, r8, r9 = map(Reg, range(10))


class Asm(ExecBuilder):
    """`ExecBuilder` with Python values as operands."""

    def func(
        self, name: str, num_inputs: int = 0, params: Sequence[str] | None = None
    ) -> AbstractContextManager[Any]:
        names = list(params) if params is not None else [f"p{i}" for i in range(num_inputs)]
        return self.function(name, num_inputs=len(names), param_names=names)

    def word(self, operand: Any) -> int:
        if isinstance(operand, Reg):
            return self.r(operand.index)
        if isinstance(operand, Func):
            if operand.name in KERNELS:
                self.declare_function(operand.name)
            return self.f(operand.name)
        if operand is VM:
            return self.vm_state()
        if operand is VOID:
            return self.void_arg()
        return self.convert_constant(operand)

    def op(self, dst: Reg | None, name: str, *args: Any) -> None:
        if name.startswith("."):
            name = "vm.builtin" + name
        elif f"test.{name}" in KERNELS:
            name = f"test.{name}"
        words = [self.word(arg) for arg in args]
        self.emit_call(name, words, self.void_arg() if dst is None else self.r(dst.index))

    def ret(self, result: Any) -> None:
        self.emit_ret(self.word(result))

    def go(self, target: Any) -> None:
        self.emit_goto(target)

    def iff(self, cond: Reg, otherwise: Any) -> None:
        self.emit_if(self.r(cond.index), otherwise)

    def forward(self, *names: str) -> None:
        """Declare functions that are called before they are defined."""
        for name in names:
            self.declare_function(name, FuncKind.BYTECODE)

    def alloc(self, dst: Reg, storage: Reg, shape: tuple[int, ...], dtype: str = "float32",
              kill: bool = True) -> None:
        """Emit the three instructions that allocate a tensor of constant shape."""
        nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        self.op(storage, ".alloc_storage", VM, Shape([nbytes]), 0, np.dtype("uint8"), "global")
        self.op(dst, ".alloc_tensor", storage, 0, Shape(shape), np.dtype(dtype), "global")
        if kill:
            self.op(storage, ".null_value")
