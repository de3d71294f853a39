from collections.abc import Callable
from typing import Any

def attach(
    library: Callable[[str], int],
    functions: tuple[type, ...],
    new_array: Any,
    new_shape: Any,
    known: bool,
) -> bool: ...
def new_function(function: Callable[..., Any]) -> int: ...
def release_handle(handle: int) -> None: ...
