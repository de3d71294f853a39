"""VMExecutable: function table, constant pool and code, as plain data."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import isa
from .isa import FuncKind, Instruction
from .source import DebugInfo
from .values import Shape, readable

if TYPE_CHECKING:
    from .module import ExecutableModule

__all__ = ["FunctionInfo", "Located", "StoredKernels", "VMExecutable"]


@dataclass(frozen=True, slots=True)
class FunctionInfo:
    """An entry of the function table.

    Attributes:
        kind: packed, bytecode or compiled.
        name: unique in the table.
        start_instr, end_instr: half-open range of instructions (bytecode functions).
        num_args: number of parameters, `isa.NO_ARITY` where unknown.
        register_file_size: registers of a frame.
        param_names: one per parameter.
    """

    kind: FuncKind
    name: str
    start_instr: int = 0
    end_instr: int = 0
    num_args: int = isa.NO_ARITY
    register_file_size: int = 0
    param_names: tuple[str, ...] = ()


class Located(NamedTuple):
    """An instruction and its place: `pc` counts instructions from the start of the executable."""

    pc: int
    instruction: Instruction


class StoredKernels(Mapping[str, Callable[..., Any]]):
    """The kernels of a file that `VMExecutable.export_library` wrote, not loaded: there are none to
    call.

    Attributes:
        parts: what the file holds of them, see `relaxvm.library`.
        source: the file's name, for messages.
    """

    __slots__ = ("parts", "source")

    def __init__(self, parts: Mapping[str, bytes], source: str) -> None:
        self.parts = dict(parts)
        self.source = source

    @property
    def names(self) -> frozenset[str]:
        """What the kernels are called, as far as that can be read without loading them."""
        import json

        names: set[str] = set()
        for part, key in (("kernels", "functions"), ("tvm_library", "names")):
            with contextlib.suppress(KeyError, TypeError, ValueError, RecursionError):
                names.update(json.loads(self.parts[part])[key])
        return frozenset(names)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredKernels, (self.parts, self.source)

    def __repr__(self) -> str:
        return f"<StoredKernels of {readable(self.source)}: {', '.join(map(readable, self.parts))}>"


class VMExecutable:
    """What a virtual machine runs.  Immutable; compares and hashes by content, in which debug
    information does not count: an executable equals its stripped copy.

    Args:
        functions: the function table.
        constants: the pool: arrays, `Shape`, str, int, float, bool, None, dtypes.
        instr_offset: int64[n], the word at which each instruction starts.
        instr_data: int64[words], the code.
        memory_scopes: constant index -> memory scope, for constants that have one.
        debug: where the instructions come from; None, or empty, where nothing is known.
        kernels: functions that were compiled with the program, by name; a VM finds them before all
            that are registered.  They are no content: equality, hash and bytes leave them out, a
            pickle takes them along.

    The parts are kept as given: `relaxvm.verify` says whether they make sense.  Constant arrays are
    handed out read-only.
    """

    __slots__ = ("__weakref__", "_hash", "constants", "debug", "functions", "instr_data",
                 "instr_offset", "kernels", "memory_scopes")  # fmt: skip

    functions: tuple[FunctionInfo, ...]
    constants: tuple[Any, ...]
    instr_offset: NDArray[np.int64]
    instr_data: NDArray[np.int64]
    memory_scopes: Mapping[int, str]
    debug: DebugInfo | None
    kernels: Mapping[str, Callable[..., Any]]

    def __init__(
        self,
        functions: Sequence[FunctionInfo],
        constants: Sequence[Any],
        instr_offset: Sequence[int] | NDArray[np.int64],
        instr_data: Sequence[int] | NDArray[np.int64],
        memory_scopes: Mapping[int, str] | None = None,
        debug: DebugInfo | None = None,
        kernels: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "functions", tuple(functions))
        put(self, "constants", tuple(map(_frozen, constants)))
        put(self, "instr_offset", _words(instr_offset))
        put(self, "instr_data", _words(instr_data))
        put(self, "memory_scopes", dict(memory_scopes or {}))
        put(self, "debug", debug or None)
        put(self, "kernels", {} if kernels is None else kernels)
        put(self, "_hash", None)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"VMExecutable.{name}: an executable is immutable")

    __delattr__ = None  # type: ignore[assignment]

    # Looking inside

    def function(self, name: str) -> FunctionInfo:
        """The table entry of a name.

        Raises:
            KeyError: no such function.
        """
        for info in self.functions:
            if info.name == name:
                return info
        raise KeyError(f"executable has no function {name!r}")

    def has_function(self, name: str) -> bool:
        """Whether `name` is a function of this executable's own, not one that it only calls."""
        return any(info.name == name and info.kind != FuncKind.PACKED for info in self.functions)

    def get_function_arity(self, name: str) -> int:
        """Number of parameters of a function of this executable.

        Raises:
            KeyError: no such function.
        """
        return self.function(name).num_args

    def get_function_param_name(self, name: str, index: int) -> str:
        """Name of a parameter.

        Raises:
            KeyError: no such function.
            ValueError: `index` is out of range.
        """
        info = self.function(name)
        if not 0 <= index < len(info.param_names):
            raise ValueError(f"{name}: expected a parameter index below {len(info.param_names)}, "
                             f"got {index}")
        return info.param_names[index]

    def __len__(self) -> int:
        """Number of instructions."""
        return len(self.instr_offset)

    def __iter__(self) -> Iterator[FunctionInfo]:
        return iter(self.functions)

    def instruction(self, pc: int) -> Instruction:
        """Decode the instruction at `pc`."""
        return isa.decode(self.instr_data, int(self.instr_offset[pc]))

    def instructions(self, function: str | FunctionInfo | None = None) -> Iterator[Located]:
        """The instructions of a function, or of the whole executable, in order."""
        if function is None:
            start, end = 0, len(self)
        else:
            info = self.function(function) if isinstance(function, str) else function
            start, end = info.start_instr, info.end_instr
        for pc in range(start, end):
            yield Located(pc, self.instruction(pc))

    def strip(self) -> VMExecutable:
        """This executable without debug information."""
        return self if self.debug is None else self.with_debug(None)

    def with_debug(self, debug: DebugInfo | None) -> VMExecutable:
        """This executable with other debug information."""
        return VMExecutable(
            self.functions,
            self.constants,
            self.instr_offset,
            self.instr_data,
            self.memory_scopes,
            debug,
            self.kernels,
        )

    def with_kernels(self, kernels: Mapping[str, Callable[..., Any]]) -> VMExecutable:
        """This executable with other compiled functions beside it."""
        return VMExecutable(
            self.functions,
            self.constants,
            self.instr_offset,
            self.instr_data,
            self.memory_scopes,
            self.debug,
            kernels,
        )

    # Text forms.  The design document of the Relax VM spells two of them without an underscore.

    def stats(self) -> str:
        """Constants and globals in a few lines, as TVM prints them."""
        from .formats import text

        return text.stats(self)

    def as_text(self, complete: bool = False) -> str:
        """The listing as TVM prints it; if `complete`, one that `relaxvm.parse_text` reads back."""
        from .formats import text

        return text.as_text(self, complete=complete)

    def as_python(self, **options: Any) -> str:
        """A Python program that rebuilds an equal executable; see `formats.pysource.as_python`."""
        from .formats import pysource

        return pysource.as_python(self, **options)

    astext = as_text
    aspython = as_python

    def __repr__(self) -> str:
        own = [f.name for f in self.functions if f.kind != FuncKind.PACKED]
        names = ", ".join(map(readable, own[:4])) + (", ..." if len(own) > 4 else "")
        packed = len(self.functions) - len(own)
        return (f"<VMExecutable [{names}]: {len(self)} instructions, "
                f"{len(self.constants)} constants, {packed} packed functions>")

    def _repr_html_(self) -> str:
        from .formats import html

        return html.as_html(self)

    # Bytes

    def to_bytes(self, *, debug: bool = True) -> bytes:
        """TVM's binary stream, followed by the debug information, if there is any: readers of
        TVM's stop before it.  With ``debug=False`` it is left out."""
        from .formats import binary

        return binary.dumps(self, debug=debug)

    def save(self, path: str | PathLike[str] | IO[bytes], *, debug: bool = True) -> None:
        """Write `to_bytes` to a path or file; at a path it appears whole or not at all."""
        from .formats import binary

        binary.save(self, path, debug=debug)

    def export_library(
        self,
        path: str | PathLike[str],
        *,
        debug: bool = True,
        native: bool = True,
        for_tvm: bool | Iterable[str] = False,
    ) -> None:
        """Write the executable together with its kernels to one file.

        `relaxvm.load` reads it as any other, ``relaxvm.load(path, native=True)`` loads the kernels,
        too.  They are stored as text of C and Python, and as machine code of this platform, which
        saves the compiler.

        On Linux and the BSDs, a path that ends in ``.so`` gets a shared library, which is linked by
        the C compiler.  TVM loads it (``tvm.runtime.load_module``) and, where it has all functions
        that the program calls, runs it: see `for_tvm`.  Any other path gets the binary form with
        one more section behind it, and so does a program whose kernels are machine code of TVM.

        Args:
            path: the file.
            debug: whether debug information is written.
            native: whether machine code is; without it there is no shared library.
            for_tvm: whether to refuse what TVM cannot run; names of functions, if its process
                registers these.  Programs for TVM are built with ``relax_pipeline="tvm"``.

        Raises:
            FormatError: the stream cannot hold something; nothing has been written.
            TypeError: there is a kernel that is not made of text.
            LinkError: TVM would lack functions; has their names, the message why.
            NoCompilerError: a shared library, and no C compiler.
            CompilerError: the compiler fails.
            ValueError: `for_tvm`, and no shared library is asked for, or the kernels are machine
                code of TVM; or two kernels whose names are too alike.
            OSError: the file cannot be written.
        """
        from .library import export_library

        export_library(self, path, debug=debug, native=native, for_tvm=for_tvm)

    @property
    def mod(self) -> ExecutableModule:
        """The executable behind TVM's module interface."""
        from .module import ExecutableModule

        return ExecutableModule(self)

    def jit(self) -> ExecutableModule:
        """The same as `mod`: kernels are compiled when a program is built."""
        return self.mod

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """A function of `mod`, for example ``executable["as_text"]()``.

        Raises:
            AttributeError: there is none.
        """
        return self.mod[name]

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _from_pickle, (self.to_bytes(), self.kernels)

    def __copy__(self) -> VMExecutable:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> VMExecutable:
        return self

    # Content

    def _content(self) -> tuple[Any, ...]:
        return (
            self.functions,
            tuple(map(constant_key, self.constants)),
            tuple(sorted(self.memory_scopes.items())),
            self.instr_offset.tobytes(),
            self.instr_data.tobytes(),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, VMExecutable):
            return NotImplemented
        if self is other:
            return True
        return hash(self) == hash(other) and self._content() == other._content()

    def __hash__(self) -> int:
        if self._hash is None:
            object.__setattr__(self, "_hash", hash(self._content()))
        return self._hash  # type: ignore[return-value]

    _hash: int | None


def constant_key(value: Any) -> tuple[Any, ...]:
    """A hashable key that is equal exactly for constants with the same content.

    Kinds are kept apart (True, 1 and 1.0 differ), floats go by their bits, arrays by dtype, shape
    and bytes; large arrays by a 256-bit digest of these.
    """
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return "object", id(value)
        # .str gives records and byte order; the name tells the types of ml_dtypes apart.
        dtype = (value.dtype.name, value.dtype.str, str(value.dtype.descr))
        data = np.ascontiguousarray(value)
        raw = data.tobytes() if data.nbytes <= 1024 else _digest(data)
        return "tensor", dtype, value.shape, data.nbytes, raw
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    if isinstance(value, np.dtype):
        return "dtype", value.name, value.str
    return type(value).__name__, value


def _digest(data: NDArray[Any]) -> bytes:
    import hashlib  # here, since running a program does without, and it is slow to import

    return hashlib.blake2b(data.reshape(-1).view(np.uint8).data, digest_size=32).digest()


def _frozen(value: Any) -> Any:
    """A constant as the pool keeps it: arrays read-only, behind a view of their own."""
    if isinstance(value, np.ndarray):
        if type(value) is np.ndarray and not value.flags.writeable:
            return value
        view = value.view(np.ndarray)
        view.flags.writeable = False
        return view
    if isinstance(value, tuple) and not isinstance(value, Shape):
        return Shape(value)
    return value


def _words(values: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    array = np.ascontiguousarray(values, dtype=np.int64)
    if array.ndim != 1:
        raise ValueError(f"code words: expected one dimension, got {array.ndim}")
    base: object = array.base
    if isinstance(base, bytes):
        return array
    # Over bytes, an array cannot be made writable: what was verified stays as it was.
    return np.frombuffer(array.tobytes(), np.int64)


def _from_pickle(
    data: bytes, kernels: Mapping[str, Callable[..., Any]] | None = None
) -> VMExecutable:
    from .formats import binary
    from .verify import verify

    executable = binary.loads(data)
    verify(executable).check()
    return executable if kernels is None else executable.with_kernels(kernels)
