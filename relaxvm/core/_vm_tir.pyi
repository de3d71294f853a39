from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

from ..executable import FunctionInfo
from ._native import NativeFunction
from ._storage import Allocator

MAX_DEPTH: Final[int]
FORMS: Final[tuple[str, ...]]

class VMTIRCode:
    info: Final[FunctionInfo]
    num_args: Final[int]
    num_registers: Final[int]
    def __init__(self, native: NativeFunction, info: FunctionInfo) -> None: ...

class VMTIRProgram:
    def __init__(
        self,
        constants: Sequence[Any],
        alignment: int,
        num_functions: int,
        codes: Mapping[int, VMTIRCode],
        packed: Mapping[str, Callable[..., Any]],
        invoke: Callable[..., Any] | None,
        function_class: type,
        max_depth: int,
        allocators: tuple[Allocator, ...],
        ours: Container[str],
    ) -> None: ...

class FunctionByName:
    name: Final[str]
    def __init__(
        self, name: str, elsewhere: Callable[[str], Callable[..., Any] | None]
    ) -> None: ...
    def __call__(self, *args: Any) -> Any: ...

def run_vm_tir(
    program: VMTIRProgram,
    code: VMTIRCode,
    machine: Any,
    function: Callable[[Any, int], Any],
    args: tuple[Any, ...],
) -> Any: ...
