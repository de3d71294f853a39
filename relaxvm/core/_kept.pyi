from typing import Any

import numpy as np
from numpy.typing import NDArray

def opened(
    state: dict[str, NDArray[Any]], name: object, initial: object, axis: object
) -> np.ndarray[Any, Any] | None: ...
def extended(
    state: dict[str, NDArray[Any]],
    rooms: dict[str, Any],
    name: object,
    added: object,
    axis: object,
) -> np.ndarray[Any, Any] | None: ...
def is_put(x: object, value: object, indices: object) -> bool: ...
