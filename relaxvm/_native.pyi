from collections.abc import Iterable
from typing import Any, Final, Literal, final

BIG_CALL: Final[int]

def host_address() -> int: ...
@final
class NativeFunction:
    def __init__(
        self,
        address: int,
        name: str,
        keepalive: object = None,
        *,
        self_address: int = 0,
        release_gil: bool | Literal["auto"] = "auto",
        writes: Iterable[int] = (-1,),
        strided: bool = False,
        alignment: int = 1,
    ) -> None: ...
    @property
    def address(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def __name__(self) -> str: ...
    @property
    def release_gil(self) -> bool | Literal["auto"]: ...
    @property
    def writes(self) -> tuple[int, ...]: ...
    @property
    def strided(self) -> bool: ...
    @property
    def alignment(self) -> int: ...
    def __call__(self, *args: Any) -> Any: ...
