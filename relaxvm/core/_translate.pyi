from collections.abc import Callable, Collection
from typing import Any, Final

import numpy as np

from ..executable import VMExecutable
from ._code import Image
from ._storage import Allocator

QUICKENED: Final[frozenset[str]]

def translate(
    machine: object,
    executable: VMExecutable,
    callables: list[Callable[..., Any] | None],
    quick: list[str | np.ufunc | None],
    allocators: tuple[Allocator, ...],
    *,
    rewritings: Collection[str],
    hooked: bool,
    fueled: bool,
    keep_arrays: bool,
) -> Image: ...

