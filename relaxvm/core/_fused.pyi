from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

def find_loop(ufunc: np.ufunc, dtypes: Sequence[np.dtype[Any]]) -> int: ...
def has_cast(from_dtype: np.dtype[Any], to_dtype: np.dtype[Any]) -> bool: ...
def mode_of(x: NDArray[Any], out: NDArray[Any]) -> int | None: ...
@final
class FusedPlan:
    def __new__(
        cls,
        inputs: list[tuple[np.dtype[Any], int]],
        numbers: list[bytes],
        steps: list[Any],
        results: list[int],
        below: int = 0,
    ) -> FusedPlan: ...

def run_plan(plan: FusedPlan, operands: tuple[Any, ...]) -> bool: ...
@final
class FusedKernel:
    __name__: str
    __wrapped__: Callable[..., None]
    @property
    def reference(self) -> Callable[..., None]: ...
    @property
    def implementations(self) -> tuple[str, ...]: ...
    def may_write(self, dtype: np.dtype[Any], nbytes: int) -> bool: ...
    def __new__(
        cls, general: Callable[..., None], plans: dict[str, tuple[FusedPlan, ...]]
    ) -> FusedKernel: ...
    def __call__(self, *args: Any) -> None: ...
@final
class ChainKernel:
    __name__: str
    __wrapped__: Callable[..., None]
    def __new__(
        cls, general: Callable[..., None], make_plans: Callable[[], Sequence[FusedPlan]]
    ) -> ChainKernel: ...
    def __call__(self, *args: Any) -> None: ...
