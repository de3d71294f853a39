"""Native functions from shared libraries.

A library contains kernels with the calling convention of ``relaxvm/kernel.h``::

    kernels = relaxvm.load_kernels("./libkernels.so", ["scale", "dot"])
    vm = relaxvm.VirtualMachine(executable, functions=kernels)

Loading a library runs its code with all rights of the process: only load libraries you trust.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from _ctypes import CFuncPtr
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final, Literal, TypedDict, Unpack

from ..core import ffi
from ..core._native import NativeFunction, host_address
from ..errors import LinkError
from ..messages import describe

__all__ = [
    "KernelOptions", "NativeFunction", "addresses_of", "load_function", "load_kernels",
    "native_function",
]  # fmt: skip


class KernelOptions(TypedDict, total=False):
    """The options of a kernel: see `NativeFunction`."""

    release_gil: bool | Literal["auto"]
    writes: Sequence[int] | None
    strided: bool
    alignment: int


PREFIX: Final = "__tvm_ffi_"
"""The prefix that ``RVM_KERNEL(name)`` adds to a kernel's name, which is also TVM's prefix."""


def load_function(
    path: str | os.PathLike[str],
    symbol: str,
    *,
    name: str | None = None,
    **options: Unpack[KernelOptions],
) -> NativeFunction:
    """Load a function from a shared library, which stays loaded as long as the function exists.

    Args:
        path: the library.
        symbol: the argument of ``RVM_KERNEL``, or the plain symbol of a C function.
        name: for messages; the symbol by default.
        options: ``release_gil``, ``writes``, ``strided``, ``alignment`` of `NativeFunction`.

    Raises:
        LinkError: the library cannot be loaded or does not have the symbol.
    """
    library = _open(path)
    address = _find(library, symbol)
    if address is None:
        raise LinkError(f"{os.fspath(path)}: has no kernel {symbol!r}", (symbol,))
    return NativeFunction(address, name or symbol, library, **options)


def load_kernels(
    path: str | os.PathLike[str],
    names: Iterable[str] | None = None,
    **options: Unpack[KernelOptions],
) -> dict[str, NativeFunction]:
    """Load kernels of a shared library by name, for ``VirtualMachine(..., functions=...)``.

    Args:
        path: the library.
        names: the kernels; by default those that the library lists with ``RVM_KERNEL_NAMES``.
        options: as in `load_function`, for all of them.

    Raises:
        LinkError: the library cannot be loaded, or kernels are missing (the message names all), or
            `names` is None and the library has no list.
        TypeError: `names` is a str.
    """
    if isinstance(names, str):
        raise TypeError(f"load_kernels: expected names of kernels, got a str; pass [{names!r}]")
    library = _open(path)
    names = _listed(library, path) if names is None else list(names)
    addresses = {name: _find(library, name) for name in names}
    missing = tuple(name for name, address in addresses.items() if address is None)
    if missing:
        listed = ", ".join(map(repr, missing))
        raise LinkError(f"{os.fspath(path)}: has no kernel {listed}", missing)
    return {
        name: NativeFunction(address, name, library, **options)
        for name, address in addresses.items()
        if address is not None
    }


def addresses_of(path: str | os.PathLike[str], symbols: Iterable[str]) -> dict[str, int]:
    """Return the addresses of functions of a shared library, which stays loaded.

    Raises:
        LinkError: the library cannot be loaded, or does not have one of them.
    """
    library = _open(path)
    found: dict[str, int] = {}
    for symbol in symbols:
        address = _find(library, symbol)
        if address is None:
            raise LinkError(f"{os.fspath(path)}: has no function {symbol!r}", (symbol,))
        found[symbol] = address
    return found


def native_function(
    function: Any, name: str | None = None, **options: Unpack[KernelOptions]
) -> NativeFunction:
    """Return a native function for a function pointer of another package.

    ==========================  ====================================================================
    `function`                  what it is
    ==========================  ====================================================================
    of ``ctypes``               a function of a library, or an instance of a ``CFUNCTYPE``
    of ``cffi``                 a pointer to a function, or a ``void *``
    ``numba.cfunc``             compiled by Numba
    ``tvm_ffi.Function``        compiled code that TVM has loaded; not one defined in Python
    ==========================  ====================================================================

    It must have the signature of a kernel, ``int f(void *, const RvmAny *, int32_t, RvmAny *)``.
    This cannot be checked: calling a function with another signature may crash the process.  The
    result keeps `function` alive.

    Args:
        function: see above.
        name: for messages; by default the name of the function, if it has one.
        options: as in `load_function`.  By default functions of TVM may write any argument and get
            tensors aligned to 64 bytes, and functions of ``ctypes`` that run with the interpreter
            lock keep it.

    Raises:
        TypeError: `function` is something else, or a ``tvm_ffi.Function`` defined in Python.
        ValueError: `function` is a null pointer.
    """
    address, context = 0, 0
    preset: KernelOptions = {}
    cffi = sys.modules.get("_cffi_backend")
    if ffi.is_function(function):
        address, context = ffi.address_of(function)
        preset = {"writes": None, "alignment": ffi.ALIGNMENT}
    elif isinstance(function, CFuncPtr):
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
        if function._flags_ & _PYTHON_API:
            preset = {"release_gil": False}
    elif cffi is not None and isinstance(function, cffi.FFI.CData):
        address = _cffi_address(cffi.FFI(), function)
    elif _is_of_numba(function):
        address = function.address
    else:
        raise TypeError(f"native_function: expected a function of ctypes, cffi, numba.cfunc or "
                        f"tvm_ffi, got {describe(function)}")
    if not address:
        raise ValueError(f"native_function: {describe(function)} is a null pointer")
    if not context:
        _attach_owner(address)
    name = name or getattr(function, "__name__", None) or type(function).__name__
    settings: KernelOptions = {**preset, **options}
    return NativeFunction(address, name, function, self_address=context, **settings)


_PYTHON_API: Final = 4
"""The flag of ctypes functions that are called with the interpreter lock held."""


def _cffi_address(cffi: Any, pointer: Any) -> int:
    kind = cffi.typeof(pointer)
    if kind.kind != "function" and kind.cname != "void *":
        raise TypeError(f"native_function: expected a pointer to a function, got {kind.cname}")
    return int(cffi.cast("uintptr_t", pointer))


def _is_of_numba(function: Any) -> bool:
    return type(function).__module__.startswith("numba.") and hasattr(function, "address")


class _Place(ctypes.Structure):
    """The result of ``dladdr``: ``Dl_info``."""

    _fields_: ClassVar = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p),
                          ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)]  # fmt: skip


def _attach_owner(address: int) -> None:
    """If a library contains the function, set the host that receives the errors of its kernels."""
    dladdr = getattr(ctypes.pythonapi, "dladdr", None)  # not on Windows
    place = _Place()
    if dladdr is None or not dladdr(ctypes.c_void_p(address), ctypes.byref(place)):
        return  # code that was generated in memory
    with contextlib.suppress(OSError):  # the program itself
        _attach(ctypes.CDLL(os.fsdecode(place.file), mode=os.RTLD_NOLOAD))


def _attach(library: ctypes.CDLL) -> None:
    attach = getattr(library, "relaxvm_attach", None)
    if attach is not None:
        attach.argtypes, attach.restype = [ctypes.c_void_p], None
        attach(host_address())


def _open(path: str | os.PathLike[str]) -> ctypes.CDLL:
    # An absolute path: a name without a slash would be searched on the system's library path.
    file = os.path.join(os.getcwd(), os.fsdecode(path))
    try:
        library = ctypes.CDLL(file)
    except OSError as error:
        raise LinkError(f"cannot load {os.fsdecode(path)}: {error}") from None
    _attach(library)
    return library


def _find(library: ctypes.CDLL, name: str) -> int | None:
    """Return the address of a kernel, or None."""
    for symbol in (PREFIX + name, name):
        try:
            function = library[symbol]
        except AttributeError:
            continue
        return ctypes.cast(function, ctypes.c_void_p).value
    return None


def _listed(library: ctypes.CDLL, path: str | os.PathLike[str]) -> list[str]:
    try:
        address = ctypes.addressof(ctypes.c_char_p.in_dll(library, "relaxvm_kernel_names"))
    except ValueError:
        raise LinkError(f"{os.fspath(path)}: does not list its kernels; pass `names`, or add "
                        f"RVM_KERNEL_NAMES(...) to the library") from None
    texts = ctypes.cast(address, ctypes.POINTER(ctypes.c_char_p))
    names: list[str] = []
    while (text := texts[len(names)]) is not None:
        names.append(text.decode())
    return names
