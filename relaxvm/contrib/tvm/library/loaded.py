"""The kernels of a library of TVM as callables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from numpy.typing import NDArray

from ....core._host import TensorSequence
from ....core._native import NativeFunction
from ....errors import LinkError
from ....executable import StoredKernels
from ....executable.formats.const_loader import load_constants
from ....limits import Limits
from .compiled import CompiledFunction, Programs
from .image import CONSTANTS, VM_TIR

__all__ = ["LibraryKernels"]

_INITIALIZER: Final = "__init_"
"""The prefix of the function that receives the constants of another function."""


class LibraryKernels(Mapping[str, Callable[..., Any]]):
    """The kernels of a library of TVM, loaded: name -> `NativeFunction`; a function of the program
    in machine code is a `CompiledFunction`.

    The code is unloaded when the last of the functions is deleted.

    Args:
        stored: the library, as returned by `LibraryImage.parts`.

    Raises:
        LinkError: the library cannot run here; the message has all reasons.
        FormatError: the library is not well-formed.
    """

    def __init__(self, stored: StoredKernels) -> None:
        if sys.platform != "linux":
            raise LinkError(
                f"{stored.source}: libraries of TVM are loaded on Linux, this is {sys.platform}"
            )
        from .process import Code  # here, since its imports only exist on Linux

        self.stored = stored
        code = Code(stored)
        natives = {
            name: NativeFunction(
                address, name, code.keepalive, writes=None, alignment=code.alignment
            )
            for name, address in code.kernels.items()
        }
        for function, tensors in self._constants().items():
            initialize = natives.pop(_INITIALIZER + function, None)
            if initialize is not None:
                sequence = TensorSequence(tensors, initialize.address)
                code.given.append(sequence)  # the library may keep them
                call = NativeFunction(
                    sequence.function, initialize.name, code.keepalive,
                    self_address=sequence.address, writes=(),
                )  # fmt: skip
                if call() not in (0, None):
                    raise LinkError(f"{stored.source}: {function} does not accept its constants")
        programs = Programs({name: f for name, f in natives.items() if name.startswith(VM_TIR)})
        self._kernels: dict[str, Callable[..., Any]] = {
            name: CompiledFunction(name.removeprefix(VM_TIR), programs)
            if name.startswith(VM_TIR)
            else native
            for name, native in natives.items()
        }

    def _constants(self) -> dict[str, list[NDArray[Any]]]:
        """Return the constants of const_loader modules, by the function that uses them."""
        constants: dict[str, list[NDArray[Any]]] = {}
        for part, content in self.stored.parts.items():
            if part.startswith(CONSTANTS + "/"):
                found = load_constants(content, Limits(), self.stored.source)
                for function, tensors in found.items():
                    # A loader that contains another one lists its functions without constants.
                    if function not in constants or tensors:
                        constants[function] = tensors
        return constants

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._kernels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def __reduce__(self) -> tuple[Any, ...]:
        return LibraryKernels, (self.stored,)

    def __repr__(self) -> str:
        return f"<LibraryKernels of {self.stored.source}: {len(self)} functions>"
