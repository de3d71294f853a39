from collections.abc import Sequence
from typing import Any, Never, final

import numpy as np
from numpy.typing import NDArray

from ..values import Device

class Allocator:
    device: Device
    def __init__(
        self,
        device: Device | None = None,
        *,
        live_bytes: int | None = None,
        alloc_bytes: int | None = None,
    ) -> None: ...
    def alloc(self, nbytes: int, scope: str = "global") -> Storage: ...
    def stats(self) -> dict[str, int]: ...
    def reset_peak(self) -> None: ...
    def trim(self) -> int: ...

@final
class NaiveAllocator(Allocator): ...

@final
class PooledAllocator(Allocator):
    def __init__(
        self,
        device: Device | None = None,
        *,
        live_bytes: int | None = None,
        alloc_bytes: int | None = None,
        cached_bytes: int | None = None,
    ) -> None: ...

@final
class Storage:
    def __init__(self, /) -> Never: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def device(self) -> Device: ...
    @property
    def scope(self) -> str: ...
    def view(
        self, offset: int, shape: Sequence[int], dtype: np.dtype[Any]
    ) -> NDArray[Any]: ...
