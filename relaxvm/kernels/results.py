"""Kernels that return their results: ``relaxvm.result.*``.

A kernel writes to tensors that its caller has allocated.  Where the shape of a result is known only
when the program runs, the compiler calls the result form of the kernel: it finds data type and
shape with the kernel's own checks, allocates the tensors, and calls the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..dtypes import as_dtype
from ..messages import describe
from ..registry import Param, Signature
from .checks import Found, Wanted, WrongType, WrongValue, named
from .kinds import Parameter, is_output, to_ints

__all__ = ["Results", "result_form", "result_signature"]

_ARGUMENTS: Final = (
    Param("shape", frozenset({"shape", "none"})),
    Param("results", frozenset({"str"})),
)
"""What a result form takes after the inputs of its kernel."""


class Results(NamedTuple):
    """What is known of the results before the call.

    Its text is the last argument of a result form: the data types, separated by commas, "?" for one
    that the kernel decides; then " keepdims", where a reduction keeps the axes.
    """

    dtypes: tuple[str, ...]
    keepdims: bool = False

    def __str__(self) -> str:
        return ",".join(self.dtypes) + " keepdims" * self.keepdims

    @classmethod
    def parse(cls, text: str) -> Results:
        """The inverse of `str`."""
        dtypes, _, suffix = text.partition(" ")
        if suffix not in ("", "keepdims") or not all(names := dtypes.split(",")):
            raise WrongValue(
                f"results: expected data types separated by commas, got {describe(text)}"
            )
        return cls(tuple(names), bool(suffix))


@lru_cache(maxsize=1024)
def _parsed(text: str) -> tuple[tuple[np.dtype[Any] | None, ...], bool]:
    results = Results.parse(text)
    return tuple([None if d == "?" else as_dtype(d) for d in results.dtypes]), results.keepdims


def result_signature(signature: Signature, parameters: Sequence[Parameter]) -> Signature | None:
    """What the verifier knows of the result form of a kernel; None if there is no such form, since
    the kernel has no parameter for an output."""
    if parameters[-1].name == "outs" and parameters[-1].is_variadic:
        return Signature((*signature.params, *_ARGUMENTS))
    is_out = [each.name == "out" or is_output(each.kind) for each in parameters]
    count = len(is_out) if all(is_out) else is_out[::-1].index(False)
    if not count:
        return None
    if signature.variadic is None:
        return Signature((*signature.params[:-count], *_ARGUMENTS))
    last = (*signature.last[:-count], *_ARGUMENTS)
    return Signature(signature.params, signature.variadic, last)


def result_form(
    name: str, run: Callable[..., None], check: Callable[..., None], *, is_of_shapes: bool = False
) -> Callable[..., Any]:
    """The function that returns the results of a kernel.

    Args:
        name: of the kernel, with which messages begin.
        run: the kernel.
        check: the same without implementations that skip its checks.
        is_of_shapes: whether data types and shapes of the results depend on those of the inputs,
            and not on their elements: what was found is kept for the next inputs like them.
    """
    found_before: dict[Any, list[tuple[tuple[int, ...], np.dtype[Any]]]] = {}

    def compute(*args: Any) -> Any:
        """The results of a kernel: takes its inputs, then the shape of the result or None, and a
        text about the results (see `Results`).  Returns a tensor, or a tuple of several."""
        if len(args) < 2:
            raise TypeError(
                f"{name}: expected inputs, shape and results, got {len(args)} arguments"
            )
        *inputs, shape, text = args
        key = _alike(inputs, text) if is_of_shapes and shape is None else None
        kept = None if key is None else found_before.get(key)
        if kept is not None:
            new = [np.empty(dims, dtype) for dims, dtype in kept]
            run(*inputs, *new)
            return new[0] if len(new) == 1 else tuple(new)
        with named(name):
            dtypes, keepdims = _known(text)
            outs: list[NDArray[Any]] = [
                Wanted.of(dtype, keepdims) if shape is None else _allocated(shape, dtype)
                for dtype in dtypes
            ]
        for _ in outs if shape is None else ():
            try:
                check(*inputs, *outs)
                break  # the kernel has no check of this output
            except Found as error:
                found = error
            with named(name):
                at = next(i for i, out in enumerate(outs) if out is found.out)
                if dtypes[at] is not None and dtypes[at] != found.dtype:
                    raise WrongValue(
                        f"results: expected {found.dtype} at place {at}, got {dtypes[at]}"
                    )
                outs[at] = _allocated(found.shape, found.dtype)
        with named(name):
            for out in outs:
                if isinstance(out, Wanted):
                    raise WrongValue("shape: expected a shape, since the inputs have none")
        run(*inputs, *outs)
        if key is not None:
            if len(found_before) >= _MOST_KEPT:
                found_before.clear()
            found_before[key] = [(out.shape, out.dtype) for out in outs]
        return outs[0] if len(outs) == 1 else tuple(outs)

    compute.__name__ = compute.__qualname__ = run.__name__
    return compute


_MOST_KEPT: Final = 256
"""Combinations of inputs of a kernel whose results are kept in mind."""


def _alike(inputs: Sequence[Any], text: Any) -> Any:
    """What inputs have in common for which results have the same data types and shapes."""
    key: list[Any] = [text]
    for value in inputs:
        if type(value) is np.ndarray:
            key.append((value.shape, value.dtype))
        elif value is None or type(value) in (int, float, str):
            key.append((type(value), value))
        else:
            return None
    return tuple(key)


def _known(text: Any) -> tuple[tuple[np.dtype[Any] | None, ...], bool]:
    if type(text) is not str:
        raise WrongType(f"results: expected a string, got {describe(text)}")
    try:
        return _parsed(text)
    except TypeError as error:
        raise WrongValue(f"results: {error}") from None


def _allocated(shape: Any, dtype: np.dtype[Any] | None) -> NDArray[Any]:
    if dtype is None:
        raise WrongValue("results: expected a data type, since the inputs do not determine it")
    if dtype.hasobject or not dtype.itemsize:
        raise WrongValue(f"results: expected a data type of numbers, got {dtype}")
    return np.empty(to_ints("shape", shape, least=0), dtype)
