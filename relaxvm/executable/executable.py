"""VMExecutable: function table, constant pool and code, as plain data."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from os import PathLike
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, SupportsIndex

import numpy as np
from numpy.typing import NDArray

import relaxvm

from .. import isa
from ..dtypes import dtype_name
from ..isa import FuncKind, Instruction
from ..messages import readable
from ..values import Shape, is_adt
from ._pool import frozen_pool
from .debug_info import DebugInfo
from .model_info import ModelInfo
from .model_names import NO_NAMES, FunctionNames, ModelNames
from .prim_funcs import SavedPrimFuncs

if TYPE_CHECKING:
    from pickle import PickleBuffer

    from ..adt import DataTypes
    from ..core._code import Image
    from ..native.vm_code import NativeProgram

__all__ = [
    "LIBRARY_PART", "MAKE_ADT", "FunctionInfo", "Located", "StoredKernels", "VMExecutable",
    "constant_key", "prim_funcs_of",
]  # fmt: skip


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


MAKE_ADT: Final = "relaxvm.builtin.make_adt"
"""The builtin that a program with constants of data types names, even if it does not call it: TVM,
which reads other constants in their place, does not have it and so refuses the program."""

LIBRARY_PART: Final = "tvm_library"
"""Key of a shared library among the parts of `StoredKernels`; its pieces follow as
``tvm_library/OFFSET``."""


class StoredKernels(Mapping[str, Callable[..., Any]]):
    """The kernels stored in a file by `VMExecutable.export_library`, before they are loaded.  As a
    mapping it has the PrimFuncs that the file contains, too; of the rest nothing can be called yet.

    Attributes:
        parts: the stored parts by name, see `relaxvm.native.export`.
        source: the file's name, for messages.
        saved: the PrimFuncs in the file, if any.
    """

    __slots__ = ("parts", "saved", "source")

    def __init__(
        self, parts: Mapping[str, bytes], source: str, saved: SavedPrimFuncs | None = None
    ) -> None:
        self.parts = dict(parts)
        self.source = source
        self.saved = saved

    @property
    def names(self) -> frozenset[str]:
        """The names of the kernels, as far as they can be read without loading them."""
        import json

        names: set[str] = set()
        for part, key in (("kernels", "functions"), (LIBRARY_PART, "names")):
            with contextlib.suppress(KeyError, TypeError, ValueError, RecursionError):
                names.update(json.loads(self.parts[part])[key])
        return frozenset(names)

    @property
    def is_of_tvm(self) -> bool:
        """Whether the kernels are only machine code of TVM, without source text by relaxvm:
        PrimFuncs or functions of the compiled mode."""
        return LIBRARY_PART in self.parts and self.parts.keys().isdisjoint(("kernels", "functions"))

    @property
    def prim_funcs(self) -> Mapping[str, str]:
        """The IR of the PrimFuncs in the file, by name."""
        return {} if self.saved is None else self.saved.prim_funcs

    @property
    def backends(self) -> dict[str, str]:
        """Name -> "c" or "python", of the PrimFuncs of which kernels have been made."""
        return {} if self.saved is None else self.saved.backends

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if self.saved is None:
            raise KeyError(name)
        return self.saved[name]

    def __contains__(self, name: object) -> bool:
        return self.saved is not None and name in self.saved

    def __iter__(self) -> Iterator[str]:
        return iter(() if self.saved is None else self.saved)

    def __len__(self) -> int:
        return 0 if self.saved is None else len(self.saved)

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredKernels, (self.parts, self.source, self.saved)

    def __repr__(self) -> str:
        return f"<StoredKernels of {readable(self.source)}: {', '.join(map(readable, self.parts))}>"


def prim_funcs_of(kernels: Mapping[str, Callable[..., Any]]) -> Mapping[str, str]:
    """Return the IR of the kernels of an executable, by name; without those that have none."""
    found: Mapping[str, str] = getattr(kernels, "prim_funcs", {})
    return found


class VMExecutable:
    """A program that a virtual machine runs.  Immutable; compares and hashes by content, leaving
    out debug information: an executable equals its stripped copy.

    Args:
        functions: the function table.
        constants: the pool: arrays, `Shape`, str, int, float, bool, None, dtypes, and values of
            data types made of these.
        instr_offset: int64[n], the word at which each instruction starts.
        instr_data: int64[words], the code.
        memory_scopes: constant index -> memory scope, for constants that have one.
        debug: source locations of the instructions; None or empty if nothing is known.
        kernels: functions that were compiled with the program, by name; a VM finds them before
            registered functions.  They do not count as content: equality, hash and bytes leave
            them out, but a pickle includes them.
        sections: what a file says beyond TVM's stream, by the names of
            `relaxvm.executable.formats.sections.SECTIONS`: immutable values with equality and hash.
            They count as content.

    The arguments are kept unchecked: `relaxvm.verify` checks them.  Constant arrays are read-only.
    """

    __slots__ = ("__weakref__", "_hash", "constants", "debug", "functions", "instr_data",
                 "instr_offset", "kernels", "memory_scopes", "sections")  # fmt: skip

    functions: tuple[FunctionInfo, ...]
    constants: tuple[Any, ...]
    instr_offset: NDArray[np.int64]
    instr_data: NDArray[np.int64]
    memory_scopes: Mapping[int, str]
    debug: DebugInfo | None
    kernels: Mapping[str, Callable[..., Any]]
    sections: Mapping[str, Any]

    def __init__(
        self,
        functions: Sequence[FunctionInfo],
        constants: Sequence[Any],
        instr_offset: Sequence[int] | NDArray[np.int64],
        instr_data: Sequence[int] | NDArray[np.int64],
        memory_scopes: Mapping[int, str] | None = None,
        debug: DebugInfo | None = None,
        kernels: Mapping[str, Callable[..., Any]] | None = None,
        sections: Mapping[str, Any] | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "functions", tuple(functions))
        put(self, "constants", frozen_pool(constants, _frozen))
        put(self, "instr_offset", _words(instr_offset))
        put(self, "instr_data", _words(instr_data))
        put(self, "memory_scopes", dict(memory_scopes or {}))
        put(self, "debug", debug or None)
        put(self, "kernels", {} if kernels is None else kernels)
        put(self, "sections", dict(sections or {}))
        put(self, "_hash", None)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"VMExecutable.{name}: an executable is immutable")

    __delattr__ = None  # type: ignore[assignment]

    # Looking inside

    def function(self, name: str) -> FunctionInfo:
        """Return the table entry of a name.

        Raises:
            KeyError: there is no such function.
        """
        for info in self.functions:
            if info.name == name:
                return info
        raise KeyError(f"executable has no function {name!r}")

    def has_function(self, name: str) -> bool:
        """Return whether this executable defines the function `name`, rather than only calls it."""
        return any(info.name == name and info.kind != FuncKind.PACKED for info in self.functions)

    def get_function_arity(self, name: str) -> int:
        """Return the number of parameters of a function of this executable.

        Raises:
            KeyError: there is no such function.
        """
        return self.function(name).num_args

    def get_function_param_name(self, name: str, index: int) -> str:
        """Return the name of a parameter.

        Raises:
            KeyError: there is no such function.
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

    @property
    def prim_funcs(self) -> dict[str, str]:
        """The IR of the kernels that the program calls, by name: what `save` writes of them.  It is
        JSON of `relaxvm.ir.save_json`."""
        packed = {info.name for info in self.functions if info.kind == FuncKind.PACKED}
        found = prim_funcs_of(self.kernels)
        return {name: text for name, text in found.items() if name in packed}

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

    def but(self, **changes: Any) -> VMExecutable:
        """Return a copy with other values of some of the arguments."""
        parts = (
            "functions", "constants", "instr_offset", "instr_data", "memory_scopes", "debug",
            "kernels", "sections",
        )  # fmt: skip
        return VMExecutable(**{name: getattr(self, name) for name in parts} | changes)

    def strip(self) -> VMExecutable:
        """Return this executable without debug information."""
        return self if self.debug is None else self.with_debug(None)

    def with_debug(self, debug: DebugInfo | None) -> VMExecutable:
        """Return this executable with its debug information replaced."""
        return self.but(debug=debug)

    def with_kernels(self, kernels: Mapping[str, Callable[..., Any]]) -> VMExecutable:
        """Return this executable with its compiled functions replaced."""
        return self.but(kernels=kernels)

    def with_section(self, name: str, content: Any) -> VMExecutable:
        """Return this executable with the content of a section replaced; None removes it."""
        rest = {key: value for key, value in self.sections.items() if key != name}
        return self.but(sections=rest if content is None else {**rest, name: content})

    # What else is in a file

    @property
    def exec_mode(self) -> str:
        """How its functions run: "bytecode", or "compiled" to native code."""
        mode: str = self.sections.get("exec_mode", "bytecode")
        return mode

    @property
    def data_types(self) -> dict[str, relaxvm.adt.DataType]:
        """The data types of the program by name; their constructors are functions for Python."""
        return dict(self._data_types.types)

    @property
    def signatures(self) -> dict[str, relaxvm.adt.FunctionField]:
        """The types that functions have in the program, of those that mention data types."""
        return dict(self._data_types.signatures)

    def names_of(self, function: str) -> FunctionNames:
        """The names of inputs and outputs of a function in the model that it was made of; empty
        ones if none are known."""
        names: ModelNames | None = self.sections.get("names")
        return NO_NAMES if names is None else names.find(function)

    @property
    def model(self) -> ModelInfo | None:
        """What the model that the program was made of says of itself; None if nothing is known."""
        found: ModelInfo | None = self.sections.get("model")
        return found

    @property
    def _data_types(self) -> DataTypes:
        from ..adt import NO_DATA_TYPES  # here, since most programs have no data types

        found: DataTypes = self.sections.get("data_types", NO_DATA_TYPES)
        return found

    def _native_program(
        self, image: Image, indices: Iterable[int] | None = None, *, timeout: float = 60.0
    ) -> NativeProgram | None:
        """Compile functions to native code, see `relaxvm.native.vm_code`; None if there are none to
        compile.

        Args:
            image: the translated program.
            indices: of functions in the function table; None for all.  Those that gain by it are
                compiled, with those that they call.
            timeout: seconds for the compiler to run.

        Raises:
            NoCompilerError: there is no C compiler.
            CompilerError: the compiler fails, or takes too long.
        """
        from ..native.vm_code import compile_program

        return compile_program(image, indices, all_of_them=False, timeout=timeout)

    # Text forms.  The design document of the Relax VM spells two of them without an underscore.

    def stats(self) -> str:
        """Return a summary of constants and globals, as TVM prints it."""
        from .formats import text

        return text.stats(self)

    def as_text(self, complete: bool = False) -> str:
        """Return the listing as TVM prints it; if `complete`, one that `relaxvm.parse_text` reads
        back."""
        from .formats import text

        return text.as_text(self, complete=complete)

    def as_python(self, **options: Any) -> str:
        """Return a Python program that rebuilds an equal executable; see
        `formats.pysource.as_python`."""
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

    def to_bytes(self, *, debug: bool = True, kernels: bool = True) -> bytes:
        """Return TVM's binary stream, followed by the debug information and the IR of the kernels,
        if there are any; TVM's reader stops before them.

        Args:
            debug: whether debug information is included.
            kernels: whether the PrimFuncs of the kernels are included.
        """
        from .formats import binary

        return binary.dumps(self, debug=debug, prim_funcs=kernels)

    def save(
        self, path: str | PathLike[str] | IO[bytes], *, debug: bool = True, kernels: bool = True
    ) -> None:
        """Write `to_bytes` to a path or file.  A file at a path is replaced atomically.

        Another process can run the file if it has the functions that the program calls: builtins
        and kernels of relaxvm, and the program's PrimFuncs, which are in the file.  For functions
        that are registered in this process only, or are not made of PrimFuncs, there is a
        `RelaxVMWarning` with their names.

        Args:
            path: the file.
            debug: whether debug information is written.
            kernels: whether the PrimFuncs of the kernels are written.

        Raises:
            FormatError: a constant or name has no binary form; nothing has been written.
            OSError: the file cannot be written; an old file at the path is unchanged.
        """
        from .formats import binary

        binary.save(self, path, debug=debug, prim_funcs=kernels)
        from .portability import warn_of_missing

        warn_of_missing(self, path, self.prim_funcs if kernels else ())

    def export_library(
        self,
        file_name: str | PathLike[str],
        *,
        debug: bool = True,
        native: bool = True,
        for_tvm: bool | Iterable[str] = False,
        aligned: bool = False,
        workspace_dir: str | PathLike[str] | None = None,
    ) -> None:
        """Write the executable together with its kernels to one file.

        `relaxvm.load` reads it like a file of `save`, which it is, too: its PrimFuncs are there as
        IR.  ``relaxvm.load(path, native=True)`` loads the kernels instead.  They are stored as C
        and Python source, and as machine code of this platform, so that loading them needs no
        compiler.

        On Linux and the BSDs, a path that ends in ``.so`` makes a shared library, which the C
        compiler links.  TVM loads it (``tvm.runtime.load_module``), and runs it if it has all
        functions that the program calls: see `for_tvm`.  With any other path the file is the binary
        form followed by one more section; so is a program whose kernels are machine code of TVM.

        Args:
            file_name: the file.
            debug: whether debug information is written.
            native: whether machine code is written; a shared library needs it.
            for_tvm: whether to refuse a program that TVM cannot run; or names of functions that its
                process will register.  Programs for TVM are built with ``relax_pipeline="tvm"``.
            aligned: whether tensors are stored at multiples of 64 bytes, so that
                ``load(path, mmap=True)`` uses them where they are.  TVM does not read such a file.
            workspace_dir: a folder, made if needed, for the C source of the kernels of PrimFuncs,
                to be looked at: ``kernels0.c`` and so on.

        Raises:
            FormatError: a constant or name has no binary form; nothing has been written.
            TypeError: a kernel has no source text.
            LinkError: TVM lacks functions; the error has their names, the message the reasons.
            NoCompilerError: a shared library is asked for, and there is no C compiler.
            CompilerError: the compiler fails.
            ValueError: `for_tvm` without a shared library, or with kernels that are machine code of
                TVM; or two kernels have names that cannot be told apart in C.
            OSError: the file cannot be written.
        """
        from ..native.export import export_library

        export_library(self, file_name, debug=debug, native=native, for_tvm=for_tvm,
                       aligned=aligned, workspace_dir=workspace_dir)  # fmt: skip

    @property
    def mod(self) -> relaxvm.contrib.tvm.module.ExecutableModule:
        """Return a wrapper with the interface of TVM's module."""
        from ..contrib.tvm.module import ExecutableModule

        return ExecutableModule(self)

    def jit(self) -> relaxvm.contrib.tvm.module.ExecutableModule:
        """Return the same as `mod`: kernels are compiled when a program is built."""
        return self.mod

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """Return a function of `mod`, for example ``executable["as_text"]()``.

        Raises:
            AttributeError: there is no such function.
        """
        return self.mod[name]

    def __call__(self, *args: Any) -> Any:
        """Call the kernel "main" of `mod`, or the only one: a PrimFunc that was compiled by itself.

        Raises:
            AttributeError: there are several kernels, or none.  A `VirtualMachine` runs programs.
        """
        return self.mod(*args)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _from_pickle, (self.to_bytes(kernels=False), self.kernels)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, tuple[Any, ...]]:
        """From protocol 5 on, the content is one buffer, which may be out of band (PEP 574): where
        the other side has it in shared memory, tensors are views of that memory."""
        if int(protocol) < 5:
            return self.__reduce__()
        from pickle import PickleBuffer  # here, since running a program does not need it

        from .formats import binary

        content = binary.dumps(self, prim_funcs=False, aligned=True)
        return _from_pickle, (PickleBuffer(content), self.kernels)

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
            tuple(sorted(self.sections.items(), key=itemgetter(0))),
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
    """Return a hashable key that is equal exactly for constants with the same content.

    Different kinds have different keys (True, 1 and 1.0).  Floats are compared by their bits,
    arrays by dtype, shape and bytes; large arrays by a 256-bit digest of these.
    """
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return "object", id(value)
        # .str gives records and byte order; the name tells the types of ml_dtypes apart.
        of_records = "" if value.dtype.names is None else str(value.dtype.descr)
        dtype = (dtype_name(value.dtype), value.dtype.str, of_records)
        data = np.ascontiguousarray(value)
        raw = data.tobytes() if data.nbytes <= 1024 else _digest(data)
        return "tensor", dtype, value.shape, data.nbytes, raw
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    if isinstance(value, np.dtype):
        return "dtype", value.name, value.str
    if is_adt(value):
        from .flat_values import FlatValues  # here, since most programs have none

        flat = FlatValues()
        flat.add(value)
        return "adt", *flat.key()
    return type(value).__name__, value


def _digest(data: NDArray[Any]) -> bytes:
    import hashlib  # here, since it is slow to import and running a program does not need it

    return hashlib.blake2b(data.reshape(-1).view(np.uint8).data, digest_size=32).digest()


def _frozen(value: Any) -> Any:
    """Return a constant in the form that the pool keeps: arrays as read-only views."""
    if isinstance(value, np.ndarray):
        if type(value) is np.ndarray and not value.flags.writeable:
            return value
        view = value.view(np.ndarray)
        view.flags.writeable = False
        return view
    if isinstance(value, tuple) and not isinstance(value, Shape):
        return Shape(value)
    if is_adt(value):
        from .flat_values import convert_leaves

        return convert_leaves(value, _frozen)
    return value


def _words(values: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    array = np.ascontiguousarray(values, dtype=np.int64)
    if array.ndim != 1:
        raise ValueError(f"code words: expected one dimension, got {array.ndim}")
    base: object = array.base
    if isinstance(base, bytes):
        return array
    # An array over bytes cannot be made writable, so verified code cannot change afterwards.
    return np.frombuffer(array.tobytes(), np.int64)


def _from_pickle(
    data: bytes | memoryview | PickleBuffer,
    kernels: Mapping[str, Callable[..., Any]] | None = None,
) -> VMExecutable:
    from ..verify import verify
    from .formats import binary
    from .formats._tensor_section import ALIGNMENT

    # Tensors are views of memory that others cannot write, if they are aligned there.
    view = memoryview(data)
    address = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    executable = binary.loads(view, mmap=view.readonly and address % ALIGNMENT == 0)
    verify(executable).check()
    return executable if kernels is None else executable.with_kernels(kernels)
