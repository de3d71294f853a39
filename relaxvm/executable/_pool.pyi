from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

def read_tensors(
    data: memoryview,
    position: int,
    count: int,
    prefix: bytes,
    most_rank: int,
    dtype_of: Callable[[int, int, int], np.dtype[Any] | None],
    memory: memoryview | None,
) -> tuple[list[NDArray[Any]], int, int]: ...
def frozen_pool(values: Iterable[Any], freeze: Callable[[Any], Any]) -> tuple[Any, ...]: ...
def odd_constants(constants: tuple[Any, ...]) -> tuple[list[int], int]: ...
