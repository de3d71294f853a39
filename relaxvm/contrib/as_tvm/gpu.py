"""Functions of TVM that partition a program for the libraries of a GPU: programs may import them; a
call says that relaxvm does without."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["partition_for_cublas", "partition_for_cudnn", "partition_for_cutlass"]


def _declined(library: str) -> NoReturn:
    raise NotImplementedError(
        f"partition_for_{library} is declined: relaxvm runs on the CPU; "
        "relax.transform.FuseOpsByPattern partitions for patterns of your own"
    )


def partition_for_cublas(mod: Any, bind_constants: bool = False) -> NoReturn:
    """Declined.

    Raises:
        NotImplementedError: always.
    """
    _declined("cublas")


def partition_for_cudnn(mod: Any) -> NoReturn:
    """Declined.

    Raises:
        NotImplementedError: always.
    """
    _declined("cudnn")


def partition_for_cutlass(mod: Any, annotate_codegen: bool = True) -> NoReturn:
    """Declined.

    Raises:
        NotImplementedError: always.
    """
    _declined("cutlass")
