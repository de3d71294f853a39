"""Element by element: numpy's ufuncs, selection and bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..core.floating import reporting
from ..elementwise import FUNCTIONS, ElementwiseFunction
from ..messages import describe
from ..pieces.cut import pieces
from ..support import Unsupported
from ._arrays import assign, copy_if_overlapping, share_float_type
from ._blocks import blockwise, piecewise
from ._kernel import ChainStep, kernel
from .checks import WrongType, WrongValue, broadcast, check_out, native, result_dtype
from .kinds import Bools, Operand, Out, OutLike, Tensor, operand_like, passed, taken_by

__all__: list[str] = []


def _register_unary(function: ElementwiseFunction) -> None:
    ufunc, keeps = function.ufunc, function.keeps
    assert ufunc is not None
    keeps_dtype = _keeps_dtype(ufunc)

    def run(x: Tensor, out: Out) -> None:
        if keeps and x.dtype.kind in keeps:
            check_out(out, x.dtype, x.shape)
            assign(out, x)
        else:
            check_out(out, result_dtype(ufunc, x=x), x.shape)
            if keeps_dtype or out.flags.c_contiguous:
                piecewise(ufunc, out, x)
            else:  # numpy 2.4 writes the wrong bools of isnan and the like where there are gaps
                for written, read in pieces(out, copy_if_overlapping(x, out)):
                    np.copyto(written, ufunc(read))

    def at_once(general: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any, **keywords: Any) -> None:
            if len(args) == 2 and share_float_type(args[1], args[0]):
                x, out = args
                if x.shape == out.shape:
                    try:
                        piecewise(ufunc, out, x)
                        return
                    except ValueError:
                        pass  # the message of the checks is better
            general(*args, **keywords)

        return run

    _register(function, run, function.sentence_for("x"), at_once)


def _register_binary(function: ElementwiseFunction) -> None:
    ufunc, keeps = function.ufunc, function.keeps
    assert ufunc is not None

    def run(a: Operand, b: Operand, out: Out) -> None:
        truncates = a.dtype.kind in keeps and a.dtype == b.dtype
        dtype = native(a.dtype) if truncates else result_dtype(ufunc, a=a, b=b)
        check_out(out, dtype, broadcast(a=a, b=b))
        if truncates:
            blockwise(_truncating_divide, out, a, b)
        else:
            piecewise(ufunc, out, a, b)

    def at_once(general: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any, **keywords: Any) -> None:
            if len(args) == 3 and share_float_type(args[2], args[0], args[1]):
                a, b, out = args
                if a.shape == out.shape:
                    try:
                        piecewise(ufunc, out, a, b)
                        return
                    except ValueError:
                        pass  # the message of the checks is better
            general(*args, **keywords)

        return run

    doc = f"{function.sentence_for('a', 'b')}  One of a and b may be a number."
    _register(function, run, doc, at_once)


def _register(
    function: ElementwiseFunction,
    run: Callable[..., None],
    doc: str,
    at_once: Callable[[Callable[..., None]], Callable[..., None]],
) -> None:
    def wrap(general: Callable[..., None]) -> Callable[..., None]:
        assert function.ufunc is not None
        return reporting(at_once(general), function.ufunc.__name__)

    run.__name__ = run.__qualname__ = function.name
    run.__doc__ = doc
    kernel(
        function.name,
        *filter(None, [function.alias]),
        wrap=wrap if _keeps_dtype(function.ufunc) else None,
        ufunc=function.ufunc,
        step=ChainStep(function.arity, is_exact=function.is_exact, keeps=function.keeps),
    )(run)


def _truncating_divide(out: NDArray[Any], a: NDArray[Any], b: NDArray[Any]) -> None:
    multiple = np.fmod(a, b)
    np.subtract(a, multiple, out=multiple)
    np.floor_divide(multiple, b, out=out)


def _keeps_dtype(ufunc: Any) -> bool:
    """Whether floats give floats of the same type."""
    return "f" * ufunc.nin + "->f" in ufunc.types


for _function in FUNCTIONS.values():
    if _function.ufunc is not None:
        (_register_unary if _function.arity == 1 else _register_binary)(_function)


Maximal: TypeAlias = Annotated[NDArray[Any], taken_by(np.maximum, "zero")]
Minimal: TypeAlias = Annotated[NDArray[Any], taken_by(np.minimum, "bound")]
Selected: TypeAlias = Annotated[Any, operand_like("out")]
Bound: TypeAlias = Annotated[Any, passed("int|float")]


@kernel(
    "relu",
    "nn.relu",
    step=ChainStep(chain=lambda dtype: "maximum($0, 0) -> %0"),
    in_place=True,
)
def relu(x: Maximal, out: OutLike) -> None:
    """The greater of x and 0; NaN stays NaN."""
    piecewise(np.maximum, out, x, x.dtype.type(0))


@kernel(
    "where",
    step=ChainStep(3, is_exact=True),
    in_place=Unsupported("An operand that is not contiguous and overlaps the output is copied."),
)
def where(cond: Bools, a: Selected, b: Selected, out: Out) -> None:
    """a where cond is true, else b.  cond: bool tensor; a and b, of which one or both may be
    numbers, have the data type of out."""
    for operand in (a, b):
        check_out(out, operand.dtype, broadcast(cond=cond, a=a, b=b))
    # A chain selects block by block without branches: an unpredictable condition costs no more.
    from .fused import run_chain  # here, since most programs do not need it

    if run_chain("where($0, $1, $2) -> %0", [cond, np.asarray(a), np.asarray(b)], out):
        return
    a, cond = copy_if_overlapping(a, out), copy_if_overlapping(cond, out)
    assign(out, b)
    for written, taken, where in pieces(
        out, np.broadcast_to(a, out.shape), np.broadcast_to(cond, out.shape)
    ):
        np.copyto(written, taken, where=where)


@kernel(
    "clip",
    step=Unsupported(
        "Its bounds are clamped to the range of the data type; a number in a chain must fit it."
    ),
    in_place=True,
)
def clip(x: Minimal, min: Bound, max: Bound, out: OutLike) -> None:  # noqa: A002
    """The greater of min and the lesser of x and max; NaN stays NaN.  Bounds outside the range of
    x's data type are clamped to it; for integers their fraction is dropped."""
    low, high = _bound("min", min, x.dtype), _bound("max", max, x.dtype)

    def step(out: NDArray[Any], x: NDArray[Any]) -> None:
        np.minimum(x, high, out=out)
        np.maximum(out, low, out=out)

    blockwise(step, out, x)


def _bound(parameter: str, value: Any, dtype: np.dtype[Any]) -> Any:
    if not isinstance(value, (int, float)) or dtype.kind not in "iufV":
        raise WrongType(
            f"{parameter}: expected a number that goes with {dtype}, got {describe(value)}"
        )
    if dtype.kind in "iu":
        if value != value:
            raise WrongValue(f"{parameter}: expected a number within {dtype}, got nan")
        limits = np.iinfo(dtype)
        return dtype.type(int(max(limits.min, min(limits.max, value))))
    try:
        with np.errstate(over="ignore"):  # to infinity
            return dtype.type(value)
    except (OverflowError, TypeError):  # an int beyond float64, or 64 bits for ml_dtypes
        return dtype.type(math.inf if value > 0 else -math.inf)
