from collections.abc import Callable
from typing import Any, final

import numpy as np

def sets() -> list[tuple[str, int, bool]]: ...
def rows(
    of_set: str | None = None,
) -> list[tuple[str, str, tuple[np.dtype[Any] | None, ...], int, bool, float]]: ...
def offer_steps(names: tuple[str, ...]) -> None: ...
def offer_program(text: str, program: bytes | None) -> bool: ...
@final
class DispatchedKernel:
    __name__: str
    __wrapped__: Callable[..., None]
    implementations: tuple[str, ...]
    ufunc: np.ufunc | None
    @property
    def reference(self) -> Callable[..., None]: ...
    def may_write(self, dtype: np.dtype[Any], nbytes: int) -> bool: ...
    def __new__(
        cls,
        reference: Callable[..., None],
        implementations: tuple[str, ...],
        ufunc: np.ufunc | None = None,
        of_set: str | None = None,
    ) -> DispatchedKernel: ...
    def __call__(self, *args: Any) -> None: ...
