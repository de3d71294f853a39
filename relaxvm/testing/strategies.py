"""Hypothesis strategies: programs, executables, and inputs that fit.

    @given(programs(), st.data())
    def test_my_pass(mod, data):
        inputs = data.draw(inputs_of(relaxvm.build(mod)))
        assert_same(mod, MyPass()(mod), inputs)
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..compiler.build import build
from ..errors import MissingExtraError
from ..executable import VMExecutable
from ..ir import BlockBuilder, Expr, IRModule, TensorType, Var, const
from ..op import base as _base  # noqa: F401  (registers the operators)
from ..values import Shape
from ..vm.entry_checks import ParamSpec, Symbol, params_of

try:
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp
except ImportError as error:
    raise MissingExtraError("relaxvm.testing.strategies needs hypothesis: pip install "
                            "'relaxvm[test]'") from error

__all__ = ["executables", "inputs_of", "programs"]

_UNARY: Final = ("abs", "negative", "floor", "sign", "square", "tanh", "sigmoid")
_BINARY: Final = ("add", "subtract", "multiply", "maximum", "minimum")
_MOST_DIM: Final = 4


@st.composite
def programs(draw: st.DrawFn, *, max_bindings: int = 8) -> IRModule:
    """Modules with a function "main" of one to three float32 tensors of shape (n, m) or (m,), whose
    dimensions may be symbolic.

    Elementwise operators, sums, products of matrices, tuples, a function that is called, and
    constants are drawn.  The result is finite on the inputs of `inputs_of`.

    Args:
        max_bindings: the most operations of main.
    """
    from .. import op
    from ..tir import Var as Dimension

    n: Any = Dimension("n", "int64") if draw(st.booleans()) else draw(st.integers(1, _MOST_DIM))
    m = draw(st.integers(1, _MOST_DIM))
    builder = BlockBuilder()
    helper = None
    if draw(st.booleans()):
        x = Var("x", TensorType((n, m), "float32"))
        with builder.function("helper", [x]):
            name = draw(st.sampled_from(_UNARY))
            builder.emit_func_output(builder.emit(getattr(op, name)(x)))
        helper = builder.get().get_global_var("helper")
    kinds = draw(st.lists(st.booleans(), min_size=1, max_size=3))
    params = [Var(f"p{i}", TensorType((n, m) if wide else (m,), "float32"))
              for i, wide in enumerate(kinds)]  # fmt: skip
    with builder.function("main", params):
        values: list[Any] = list(params)
        for _ in range(draw(st.integers(1, max_bindings))):
            values.append(builder.emit(_operation(draw, op, values, helper, m)))
        results: list[Expr] = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
        builder.emit_func_output(results[0] if len(results) == 1 else tuple(results))
    return builder.get()


def _operation(draw: st.DrawFn, op: Any, values: list[Any], helper: Any, m: int) -> Any:
    value = draw(st.sampled_from(values))
    rank = value.ty.ndim
    kind = draw(st.sampled_from(("unary", "binary", "binary", "constant", "sum", "matmul", "call")))
    if kind == "binary" or (kind == "call" and (helper is None or rank != 2)):
        other = draw(st.sampled_from([v for v in values if v.ty.ndim <= 2]))
        return getattr(op, draw(st.sampled_from(_BINARY)))(value, other)
    if kind == "call":
        from ..ir import Call

        return Call(helper, [value])
    if kind == "constant":
        number = draw(st.integers(-3, 3))
        return op.multiply(value, const(float(number), "float32"))
    if kind == "sum" and rank == 2:
        return op.sum(value, axis=0)
    if kind == "matmul" and rank >= 1:
        weight = draw(hnp.arrays(np.float32, (m, m), elements=st.integers(-2, 2)))
        return op.matmul(value, const(weight))
    return getattr(op, draw(st.sampled_from(_UNARY)))(value)


def executables(**options: Any) -> st.SearchStrategy[VMExecutable]:
    """Executables of `programs`, whose options these are."""
    return programs(**options).map(build)


@st.composite
def inputs_of(draw: st.DrawFn, executable: VMExecutable, function: str = "main") -> list[Any]:
    """Arguments that a function takes, from what its code checks: tensors of small numbers with the
    same size for a symbolic dimension everywhere, scalars, shapes and tuples.

    Raises:
        ValueError: the code does not tell what a parameter is.
    """
    specs = params_of(executable, executable.function(function))
    sizes: dict[int, int] = {}
    return [_input(draw, spec, sizes) for spec in specs]


def _input(draw: st.DrawFn, spec: ParamSpec, sizes: dict[int, int]) -> Any:
    if spec.kind == "tuple":
        return tuple([_input(draw, item, sizes) for item in spec.items])
    if spec.kind == "scalar":
        return draw(st.integers(0, _MOST_DIM))
    if spec.kind not in ("tensor", "shape") or spec.dims is None:
        raise ValueError(f"{spec.name}: the code does not tell what it is ({spec})")
    shape = tuple(_size(draw, dim, sizes) for dim in spec.dims)
    if spec.kind == "shape":
        return Shape(shape)
    dtype = np.dtype(np.float32) if spec.dtype is None else spec.dtype
    numbers: Any = st.integers(-4, 4)
    if dtype.kind == "b":
        numbers = st.booleans()
    elif dtype.kind == "u":
        numbers = st.integers(0, 4)
    return draw(hnp.arrays(dtype, shape, elements=numbers))


def _size(draw: st.DrawFn, dim: Any, sizes: dict[int, int]) -> int:
    if isinstance(dim, Symbol):
        if dim.slot not in sizes:
            sizes[dim.slot] = draw(st.integers(1, _MOST_DIM))
        return sizes[dim.slot]
    return draw(st.integers(1, _MOST_DIM)) if dim is None else int(dim)
