"""Functions that are computed element by element: the table of their kernels and operators.

One row is the kernel ``relaxvm.kernel.NAME`` (`relaxvm.kernels.elementwise`, or
`relaxvm.kernels.composite` if the row has no ufunc), the operator ``relax.NAME``
(`relaxvm.op.elementwise`), and the rows of both in the documentation.  Its formula for loops is the
function of the same name in `relaxvm.te.operators` or `relaxvm.tir`, unless the row says why there
is none.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np

__all__ = ["FUNCTIONS", "Accepts", "ElementwiseFunction"]

Accepts: TypeAlias = Literal["any", "bits", "floats", "integers", "numbers"]
"""Data types that an operator accepts: any, integers and bools, floats, integers, or all but
bools."""


class ElementwiseFunction(NamedTuple):
    """A function of one or two tensors.

    Attributes:
        name: of kernel and operator, without their prefixes.
        ufunc: the numpy ufunc that computes it; None if it is made of several.
        accepts: the data types that the operator accepts.  The kernel accepts what the ufunc does.
        doc: what it computes; ``{a}`` and ``{b}`` stand for the names of the operands, which are
            not the same for kernel and operator.
        result: data type of the result if it is not that of the operands.
        is_exact: see `relaxvm.kernels.ChainStep`.
        keeps: see `relaxvm.kernels.ChainStep`.
        alias: a second name of the kernel.
        no_loops: why there is no formula for loops, in one sentence; empty if there is one.
    """

    name: str
    ufunc: np.ufunc | None
    accepts: Accepts
    doc: str
    result: str = ""
    is_exact: bool = False
    keeps: str = ""
    alias: str = ""
    no_loops: str = ""

    @property
    def arity(self) -> int:
        """Number of operands."""
        return 1 if self.ufunc is None else int(self.ufunc.nin)

    def doc_for(self, *names: str) -> str:
        """The documentation with the names of the operands."""
        return self.doc.format(**dict(zip("ab", names, strict=False)))

    def sentence_for(self, *names: str) -> str:
        """The same, with a full stop, so that more can follow."""
        return self.doc_for(*names).removesuffix(".") + "."


_Row = ElementwiseFunction
_ROUNDED: Final = "iub"
_KEPT: Final = "Integers and bools stay as they are."

_ROWS: Final = (
    # Arithmetic
    _Row("abs", np.absolute, "any", "``|{a}|``", is_exact=True),
    _Row("negative", np.negative, "numbers", "``-{a}``", is_exact=True),
    _Row("sign", np.sign, "numbers", "-1, 0 or 1 for {a} negative, zero or positive; NaN for NaN."),
    _Row("square", np.square, "numbers", "``{a} * {a}``", is_exact=True),
    _Row("add", np.add, "any", "``{a} + {b}``", is_exact=True),
    _Row("subtract", np.subtract, "numbers", "``{a} - {b}``", is_exact=True),
    _Row("multiply", np.multiply, "any", "``{a} * {b}``", is_exact=True),
    _Row("divide", np.true_divide, "numbers", "``{a} / {b}``; integers are rounded towards zero.",
         is_exact=True, keeps="iu"),
    _Row("floor_divide", np.floor_divide, "numbers", "``{a} // {b}``, rounded down."),
    _Row("floor_mod", np.remainder, "numbers",
         "The remainder of `floor_divide`, with the sign of {b}.", alias="remainder"),
    _Row("mod", np.fmod, "numbers",
         "The remainder of the division rounded towards zero, with the sign of {a}."),
    _Row("power", np.power, "numbers", "``{a} ** {b}``"),
    _Row("maximum", np.maximum, "any", "The greater of {a} and {b}; NaN if either is NaN.",
         is_exact=True),
    _Row("minimum", np.minimum, "any", "The lesser of {a} and {b}; NaN if either is NaN.",
         is_exact=True),
    # Rounding
    _Row("ceil", np.ceil, "any", f"The least integer that is not below {{a}}.  {_KEPT}",
         keeps=_ROUNDED),
    _Row("floor", np.floor, "any", f"The greatest integer that is not above {{a}}.  {_KEPT}",
         keeps=_ROUNDED),
    _Row("round", np.rint, "any",
         f"The integer nearest to {{a}}; halves are rounded to the even one.  {_KEPT}",
         keeps=_ROUNDED),
    _Row("trunc", np.trunc, "any", f"{{a}} without its fraction.  {_KEPT}", keeps=_ROUNDED),
    # Powers, exponentials and logarithms
    _Row("sqrt", np.sqrt, "floats", "The square root of {a}.", is_exact=True),
    _Row("rsqrt", None, "floats", "1 / the square root of {a}."),
    _Row("exp", np.exp, "floats", "e to the power of {a}."),
    _Row("expm1", np.expm1, "floats", "``exp({a}) - 1``, accurate for {a} near 0."),
    _Row("log", np.log, "floats", "The natural logarithm of {a}."),
    _Row("log1p", np.log1p, "floats", "``log(1 + {a})``, accurate for {a} near 0."),
    _Row("log_add_exp", np.logaddexp, "floats", "``log(exp({a}) + exp({b}))``"),
    _Row("sigmoid", None, "floats", "``1 / (1 + exp(-{a}))``"),
    _Row("erf", None, "floats",
         "The error function of {a}: 2 / sqrt(pi) * the integral of exp(-t * t) from 0 to {a}."),
    # Angles
    _Row("acos", np.arccos, "floats", "The angle whose cosine is {a}."),
    _Row("acosh", np.arccosh, "floats", "The inverse hyperbolic cosine of {a}."),
    _Row("asin", np.arcsin, "floats", "The angle whose sine is {a}."),
    _Row("asinh", np.arcsinh, "floats", "The inverse hyperbolic sine of {a}."),
    _Row("atan", np.arctan, "floats", "The angle whose tangent is {a}."),
    _Row("atan2", np.arctan2, "floats", "The angle of the point ({b}, {a})."),
    _Row("atanh", np.arctanh, "floats", "The inverse hyperbolic tangent of {a}."),
    _Row("cos", np.cos, "floats", "The cosine of {a}."),
    _Row("cosh", np.cosh, "floats", "The hyperbolic cosine of {a}."),
    _Row("sin", np.sin, "floats", "The sine of {a}."),
    _Row("sinh", np.sinh, "floats", "The hyperbolic sine of {a}."),
    _Row("tan", np.tan, "floats", "The tangent of {a}."),
    _Row("tanh", np.tanh, "floats", "The hyperbolic tangent of {a}."),
    # Bits
    _Row("bitwise_and", np.bitwise_and, "bits", "``{a} & {b}``", is_exact=True),
    _Row("bitwise_not", np.invert, "bits", "``~{a}``: the inverted bits; of bools, the negation.",
         is_exact=True),
    _Row("bitwise_or", np.bitwise_or, "bits", "``{a} | {b}``", is_exact=True),
    _Row("bitwise_xor", np.bitwise_xor, "bits", "``{a} ^ {b}``", is_exact=True),
    _Row("left_shift", np.left_shift, "integers", "``{a} << {b}``"),
    _Row("right_shift", np.right_shift, "integers", "``{a} >> {b}``"),
    # Comparisons and tests
    _Row("equal", np.equal, "any", "Whether ``{a} == {b}``.", "bool", is_exact=True),
    _Row("greater", np.greater, "any", "Whether ``{a} > {b}``.", "bool", is_exact=True),
    _Row("greater_equal", np.greater_equal, "any", "Whether ``{a} >= {b}``.", "bool",
         is_exact=True),
    _Row("less", np.less, "any", "Whether ``{a} < {b}``.", "bool", is_exact=True),
    _Row("less_equal", np.less_equal, "any", "Whether ``{a} <= {b}``.", "bool", is_exact=True),
    _Row("not_equal", np.not_equal, "any", "Whether ``{a} != {b}``.", "bool", is_exact=True),
    _Row("isfinite", np.isfinite, "any", "Whether {a} is neither infinite nor NaN.", "bool"),
    _Row("isinf", np.isinf, "any", "Whether {a} is infinite.", "bool"),
    _Row("isnan", np.isnan, "any", "Whether {a} is NaN.", "bool"),
    # Logic; a number is true if it is not 0
    _Row("logical_and", np.logical_and, "any", "Whether {a} and {b} are both true.", "bool",
         is_exact=True),
    _Row("logical_not", np.logical_not, "any", "Whether {a} is false.", "bool", is_exact=True),
    _Row("logical_or", np.logical_or, "any", "Whether {a} or {b} is true, or both are.", "bool",
         is_exact=True),
    _Row("logical_xor", np.logical_xor, "any", "Whether exactly one of {a} and {b} is true.",
         "bool", is_exact=True),
    # Activations
    _Row("nn.silu", None, "floats", "``{a} * sigmoid({a})``"),
    _Row("nn.gelu", None, "floats", "``{a} * (1 + erf({a} / sqrt(2))) / 2``"),
    _Row("nn.gelu_tanh", None, "floats",
         "``{a} * (1 + tanh(sqrt(2 / pi) * ({a} + 0.044715 * {a}**3))) / 2``"),
)  # fmt: skip

FUNCTIONS: Final = {row.name: row for row in _ROWS}
"""The functions by name."""
