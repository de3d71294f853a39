from collections.abc import Callable, Sequence
from typing import Any, Final

from numpy.typing import NDArray

def host_function(name: str) -> int | None: ...
def write_word(place: int, value: int, read_only: bool) -> None: ...

class LoadedLibrary:
    handle: Final[int]
    def __init__(self, handle: int) -> None: ...

class TensorSequence:
    def __init__(self, arrays: Sequence[NDArray[Any]], callee: int) -> None: ...
    @property
    def address(self) -> int: ...
    @property
    def function(self) -> int: ...

class HostContext:
    source: Final[str]
    def __init__(
        self,
        find: Callable[[str], Callable[..., Any] | None],
        source: str,
        own: dict[str, Callable[..., Any]] | None = None,
    ) -> None: ...
    @property
    def address(self) -> int: ...
