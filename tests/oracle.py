"""The oracle: a second, slow interpreter, and the comparison of outcomes.

`Oracle` defines the semantics of a program.  It decodes the words with `relaxvm.isa` as it goes and
calls the plain Python builtins; nothing is predecoded, fused or cached, and VM-to-VM calls push a
frame on a Python list.  The core must agree with it: results, exception classes and messages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxvm import isa
from relaxvm._core import Closure
from relaxvm.errors import LimitError
from relaxvm.executable import FunctionInfo, VMExecutable
from relaxvm.isa import ArgKind, FuncKind
from relaxvm.limits import Limits
from relaxvm.registry import Registry
from relaxvm.values import Shape, cpu, to_value
from relaxvm.vm.allocators import Storage, make_allocators
from relaxvm.vm.calling import Parameters
from relaxvm.vm.entry_checks import tensors_of, with_tensors


class OutOfFuel(Exception):
    """The program exceeds the oracle's limit on instructions."""


@dataclass
class Frame:
    """A running function; registers that were never written hold None."""

    info: FunctionInfo
    registers: list[Any]
    pc: int
    dst: int = isa.VOID_REGISTER


@dataclass(frozen=True)
class OracleFunction:
    """A bytecode function as a value; calling it starts a new run.

    Arguments from Python and results of packed functions are converted to run-time values; inside,
    registers hold these without further conversion.
    """

    oracle: Oracle
    info: FunctionInfo

    @property
    def name(self) -> str:
        return self.info.name

    def __call__(self, *args: Any) -> Any:
        tensors = tensors_of(self.oracle.executable, self.info)
        if len(tensors) == len(args):  # numpy scalars are tensors where tensors are expected
            args = tuple(map(with_tensors, args, tensors))
        return self.oracle.run(self.info, [to_value(arg) for arg in args])


@dataclass
class Oracle:
    """Runs an executable: ``Oracle(executable, registry)["main"](x)``.

    It stands in for the virtual machine as the context of builtins.
    """

    executable: VMExecutable
    functions: Registry
    fuel: int = 10_000_000
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self.devices = (cpu(0),)
        self.allocators = make_allocators(self.devices, "naive", self.limits)
        self.table = [
            OracleFunction(self, info)
            if info.kind == FuncKind.BYTECODE
            else self.functions.get(info.name)
            for info in self.executable.functions
        ]

    def __getitem__(self, name: str) -> OracleFunction:
        return OracleFunction(self, self.executable.function(name))

    def run(self, info: FunctionInfo, args: Sequence[Any]) -> Any:
        frames = [self._frame(info, args)]
        while True:
            frame = frames[-1]
            instr = self.executable.instruction(frame.pc)
            self.fuel -= 1
            if self.fuel < 0:
                raise OutOfFuel
            if instr.op.code == isa.Opcode.CALL:
                callee = self.table[instr["func_idx"]]
                values = [self._operand(frame, arg) for arg in instr.args]
                frame.dst = instr["dst"]
                if isinstance(callee, OracleFunction):
                    if len(frames) >= self.limits.call_depth:
                        raise LimitError(f"{callee.name}: call depth", "call_depth")
                    frames.append(self._frame(callee.info, values))
                else:
                    self._finish(frame, to_value(callee(*values)))
            elif instr.op.code == isa.Opcode.RET:
                result = self._read(frame, instr["result"])
                frames.pop()
                if not frames:
                    return result
                self._finish(frames[-1], result)
            elif instr.op.code == isa.Opcode.GOTO:
                frame.pc += instr["pc_offset"]
            elif instr.op.code == isa.Opcode.IF:
                taken = truth(self._read(frame, instr["cond"]))
                frame.pc += 1 if taken else instr["false_offset"]

    def _frame(self, info: FunctionInfo, args: Sequence[Any]) -> Frame:
        if len(args) != info.num_args:
            raise Parameters(info.name, info.num_args, info.param_names).wrong_count(len(args))
        unwritten = [None] * (info.register_file_size - len(args))
        return Frame(info, [*args, *unwritten], info.start_instr)

    def _finish(self, frame: Frame, result: Any) -> None:
        """Store the result of the call that `frame` is waiting for."""
        if frame.dst != isa.VOID_REGISTER:
            frame.registers[frame.dst] = result
        frame.pc += 1

    def _operand(self, frame: Frame, arg: isa.Arg) -> Any:
        if arg.kind == ArgKind.REGISTER:
            return self._read(frame, arg.value)
        if arg.kind == ArgKind.IMMEDIATE:
            return arg.value
        if arg.kind == ArgKind.CONSTANT:
            return self.executable.constants[arg.value]
        return self.table[arg.value]

    def _read(self, frame: Frame, register: int) -> Any:
        if register == isa.VOID_REGISTER:
            return None
        if register == isa.VM_REGISTER:
            return self
        return frame.registers[register]


def truth(value: Any) -> bool:
    """The condition of If: an integer or a bool, numpy scalars included; true unless it is 0."""
    if not isinstance(value, (int, np.integer, np.bool_)):
        raise TypeError(
            f"if: expected an int or bool condition, got {type(value).__name__}; "
            "turn a tensor into a condition with vm.builtin.read_if_cond"
        )
    return bool(value)


# Outcomes


@dataclass
class Outcome:
    """The outcome of a call: its result or exception, and its arguments afterwards."""

    args: tuple[Any, ...]
    result: Any = None
    error: BaseException | None = None

    @classmethod
    def of(cls, function: Callable[..., Any], args: tuple[Any, ...]) -> Outcome:
        try:
            return cls(args, result=function(*args))
        except (OutOfFuel, KeyboardInterrupt):
            raise
        except BaseException as error:
            return cls(args, error=error.with_traceback(None))

    def describe(self) -> str:
        if self.error is not None:
            return f"{type(self.error).__name__}: {self.error}"
        return repr(self.result)


def assert_same_outcome(got: Outcome, want: Outcome, messages: bool = True) -> None:
    """Check that outcomes are equal: values in the result and in the arguments, exceptions, and
    which pairs of arrays are identical or share memory."""
    if want.error is not None or got.error is not None:
        assert type(got.error) is type(want.error), (
            f"got {got.describe()}, expected {want.describe()}"
        )
        if messages:
            assert str(got.error) == str(want.error)
    else:
        difference = compare(got.result, want.result)
        assert not difference, f"result{difference}"
    difference = compare(got.args, want.args)
    assert not difference, f"arguments afterwards: {difference}"
    assert aliases(got) == aliases(want), "different arrays are identical or share memory"


def compare(got: Any, want: Any, path: str = "") -> str:
    """Return the first difference between two run-time values, or an empty string.

    Kinds must agree (True, 1 and 1.0 differ, as do a shape and a tuple); floats and tensors compare
    by bits, functions by name, closures by function and captured values.  A virtual machine equals
    the oracle that replaces it.
    """
    if isinstance(want, (Oracle, OracleFunction)):
        kind = type(got).__name__
        if isinstance(want, Oracle):
            return "" if hasattr(got, "allocators") else f"{path}: {kind} for the VM"
        same = getattr(got, "name", None) == want.name
        return "" if same else f"{path}: {kind} for the VM function {want.name}"
    if type(got) is not type(want):
        return f"{path}: {type(got).__name__} {got!r} for {type(want).__name__} {want!r}"
    if isinstance(want, np.ndarray):
        return _compare_tensors(got, want, path)
    if isinstance(want, (tuple, list)):
        if len(got) != len(want):
            return f"{path}: {len(got)} items for {len(want)}"
        pairs = enumerate(zip(got, want, strict=True))
        return next(filter(None, (compare(g, w, f"{path}[{i}]") for i, (g, w) in pairs)), "")
    if isinstance(want, Closure):
        return compare(got.func, want.func, f"{path}.func") or compare(
            got.captured, want.captured, f"{path}.captured"
        )
    if isinstance(want, Storage):
        return "" if got.nbytes == want.nbytes else f"{path}: {got.nbytes} bytes for {want.nbytes}"
    if isinstance(want, float):
        same = struct.pack("<d", got) == struct.pack("<d", want)
        return "" if same else f"{path}: {got!r} for {want!r}"
    return "" if got == want else f"{path}: {got!r} for {want!r}"


def _compare_tensors(got: np.ndarray, want: np.ndarray, path: str) -> str:
    for what in ("dtype", "shape", "flags.writeable"):
        g, w = (_attribute(array, what) for array in (got, want))
        if g != w:
            return f"{path}: {what} {g} for {w}"
    if got.tobytes() != want.tobytes():
        return f"{path}: {got!r} for {want!r}"
    return ""


def _attribute(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = getattr(value, name)
    return value


def aliases(outcome: Outcome) -> set[tuple[int, int, str]]:
    """Pairs of arrays, among arguments and result, that are identical or share memory."""
    arrays = [*leaves(outcome.args), *leaves(outcome.result)]
    found = set()
    for i, a in enumerate(arrays):
        for j, b in enumerate(arrays[:i]):
            if a is b:
                found.add((j, i, "same object"))
            elif np.may_share_memory(a, b):
                found.add((j, i, "shared memory"))
    return found


def leaves(value: Any) -> Iterator[np.ndarray]:
    """The arrays in a value, those captured by closures included."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, Closure):
        yield from leaves(value.captured)


def meets(got: Any, expected: Any) -> str:
    """Return the first difference between a result and an expectation of the corpus, or "".

    Looser than `compare`: a tuple may stand for a shape and a list for a tuple, and tensors of
    floats may differ by rounding.
    """
    if isinstance(expected, np.ndarray):
        if not isinstance(got, np.ndarray):
            return f"{got!r} is not a tensor"
        if (got.dtype, got.shape) != (expected.dtype, expected.shape):
            return f"{got.dtype}{got.shape} for {expected.dtype}{expected.shape}"
        if expected.dtype.kind in "fc":
            close = np.allclose(got, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
        else:
            close = got.tobytes() == expected.tobytes()
        return "" if close else f"{got!r} for {expected!r}"
    if isinstance(expected, (tuple, list)):
        if not isinstance(got, tuple) or len(got) != len(expected):
            return f"{got!r} for {expected!r}"
        if isinstance(expected, Shape) != isinstance(got, Shape) and not expected:
            return f"{type(got).__name__} for {type(expected).__name__}"
        return next(filter(None, map(meets, got, expected)), "")
    return compare(got, expected)
