from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ._code import Image
from ._memory import Allocator
from .executable import VMExecutable

QUICKENED: Final[frozenset[str]]

def translate(
    machine: object,
    executable: VMExecutable,
    callables: list[Callable[..., Any] | None],
    quick: list[str | np.ufunc | None],
    allocators: tuple[Allocator, ...],
    *,
    optimize: bool,
    hooked: bool,
    fueled: bool,
    keep_arrays: bool,
) -> Image: ...
