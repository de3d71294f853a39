"""The table of cases: for each operator, and for each kernel that no operator is lowered to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["KERNELS", "OPERATORS", "Cases", "KernelCase", "cases", "kernel", "lines",
           "pairs", "rounded"]  # fmt: skip

Reference = Callable[..., Any]

ROUNDED: Final = 0.501
"""Bound in ulps of what is rounded once; the rest is for the rounding of the reference."""


def rounded(wide: float) -> dict[str, float]:
    """Error bounds in ulps: `wide` for float32 and float64; float16 is computed in float32 and
    rounded once."""
    return {"float16": ROUNDED, "float32": wide, "float64": wide}


@dataclass(frozen=True)
class Cases:
    """The cases of an operator.

    Attributes:
        types: lines ``call | type``: results of the type rule.
        errors: lines ``call | Error: beginning of the message``: calls that it rejects.
        values: calls, one per line, whose results are compared with the reference.
        reference: takes wide operands (see `oracle.wide`), and attributes by name; returns the
            exact result, or a tuple of results.
        ulps: error bound of floats in units in the last place; by data type, if it is not the same
            for all.
        of_largest: whether these are units of the largest element of the result, and at least of 1,
            for sums of terms that cancel; otherwise of each element.
        within: minimum and maximum of the numbers of operands in `values`; a sequence has them for
            each operand.
        special: whether to test infinities, NaN and the ends of the range too.
        odd: calls, one per line, to test with infinities and NaN in a row of the first operand,
            which must be a float.
        failures: lines ``call | operands | Error: beginning of the message``: calls that raise at
            run time.
        large: a call with large operands that its kernel computes without temporary memory; empty
            for a kernel that needs some.
        dtypes: letters of the data types that ``x`` stands for in `values`, one after the other.
        raw: whether the reference takes operands without conversion.
        free: properties of the outputs that the kernel does not prescribe: "shape", "dtype".
        in_tvm: whether TVM has the operator too.
        elsewhere: the test module that tests values, if `values` is empty.
    """

    name: str
    types: str
    errors: str
    values: str = ""
    reference: Reference | None = None
    ulps: float | Mapping[str, float] = ROUNDED
    of_largest: bool = False
    within: Any = (-9, 9)
    special: bool = False
    odd: str = ""
    failures: str = ""
    large: str = ""
    dtypes: str = "f"
    raw: bool = False
    free: tuple[str, ...] = ()
    in_tvm: bool = True
    elsewhere: str = ""

    def calls(self) -> list[str]:
        """The calls of `values`, in each data type."""
        found = []
        for line in lines(self.values):
            anys = "x" if re.search(r"\bx\(", line) else ""
            found += [re.sub(r"\bx\(", f"{c}(", line) for c in (self.dtypes if anys else "-")]
        return found

    def bound(self, dtype: str) -> float:
        """Return the error bound of a data type, in ulps."""
        return self.ulps[dtype] if isinstance(self.ulps, Mapping) else self.ulps


@dataclass(frozen=True)
class KernelCase:
    """A call of a kernel that no operator is lowered to.

    Attributes:
        args: returns all arguments except the outputs; called with a function that makes random
            float64 tensors of a shape.
        reference: takes wide arguments, returns the exact result, or a tuple of them.
        dtype: data type of the results; or one for each, separated by commas.

    The others are those of `Cases`.
    """

    name: str
    args: Callable[[Any], tuple[Any, ...]]
    reference: Reference
    dtype: str = "float64"
    ulps: float = ROUNDED
    of_largest: bool = False
    free: tuple[str, ...] = ()

    def bound(self, dtype: str) -> float:
        """As of `Cases`."""
        return self.ulps


OPERATORS: dict[str, Cases] = {}
"""Cases by the operator's name, without "relax."."""

KERNELS: dict[str, KernelCase] = {}
"""Cases by the kernel's name, without "relaxvm.kernel."."""


def cases(name: str, types: str = "", errors: str = "", values: str = "", **rest: Any) -> None:
    """Add the cases of an operator to the table."""
    assert name not in OPERATORS, name
    OPERATORS[name] = Cases(name, types, errors, values, **rest)


def kernel(name: str, args: Callable[[Any], tuple[Any, ...]], reference: Reference,
           **rest: Any) -> None:  # fmt: skip
    """Add the case of a kernel to the table."""
    assert name not in KERNELS, name
    KERNELS[name] = KernelCase(name, args, reference, **rest)


def pairs(table: str) -> list[tuple[str, str]]:
    """Lines ``call | rest`` as pairs."""
    return [(call, rest) for call, _, rest in (line.partition(" | ") for line in lines(table))]


def lines(table: str) -> Iterator[str]:
    """The lines of a table; a line indented by four more spaces continues the previous one."""
    for line in table.strip().replace("\n    ", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            yield line.strip()
