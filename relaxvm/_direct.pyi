from collections.abc import Callable
from typing import Any, final

import numpy as np

@final
class DirectKernel:
    __name__: str
    __wrapped__: Callable[..., None]
    ufunc: np.ufunc | None
    def __new__(
        cls, name: str, general: Callable[..., None], ufunc: np.ufunc | None = None
    ) -> DirectKernel: ...
    def __call__(self, *args: Any) -> None: ...
