from typing import Any

import numpy as np
from numpy.typing import NDArray

def extended(
    state: dict[str, NDArray[Any]],
    rooms: dict[str, Any],
    name: object,
    added: object,
    axis: object,
) -> np.ndarray[Any, Any] | None: ...
def is_put(x: object, value: object, indices: object) -> bool: ...
