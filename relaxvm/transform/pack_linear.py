"""PackLinear: products with constant matrices by the C kernel, with what follows them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .. import op
from ..executable.debug_info import FusedSpan, Part, Span
from ..ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExprMutator,
    Function,
    IntImm,
    IRModule,
    Op,
    TensorType,
    TupleType,
    Var,
    VarBinding,
    structural_equal,
)
from ..ir.node import KINDS
from ..op.lowering import kernel_call
from ._integers import IntegerProduct, centered, op_name, packed_weight
from ._placing import placed
from ._uses import uses_of
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["PackLinear"]

_FUNCTIONS: Final = {
    "relax.nn.relu": "relu",
    "relax.nn.gelu": "gelu",
    "relax.nn.gelu_tanh": "gelu_tanh",
    "relax.nn.silu": "silu",
    "relax.sigmoid": "sigmoid",
    "relax.tanh": "tanh",
    "relax.erf": "erf",
}
"""Functions of elements that the kernels have.  Exponentials are left to chains of elementwise
operators, where numpy's are as fast."""

_LEAST_WORK: Final = 1 << 12
"""A product of fewer multiplications for a row that nothing follows stays as it is."""

_LEAST_COLUMNS: Final = 4
"""A product of fewer columns stays as it is: columns are computed by 16."""

_MOST_SHORT: Final = 128
"""Elements of a tensor whose hyperbolic tangents stay a ufunc."""

_LEAST_WORK_OF_BYTES: Final = 1 << 8
"""The same for products of bytes, where conversion of the bytes to floats is saved, too."""


_LEAST_HALVED: Final = 1 << 14
"""A matrix of so many numbers is kept in 16 bits, if they are the same there."""


@dataclass(frozen=True)
class _Linear:
    """A product whose result a variable has, with what has become part of it."""

    x: Expr
    weight: Constant
    columns: int
    bias: NDArray[Any] | None = None
    residual: Expr | None = None
    function: str | None = None
    kernel: str = "nn.linear_blocks"
    """The one that the weight is packed for."""
    is_small: bool = False
    """Whether the kernel gains nothing unless something follows."""


class _Packer(ExprMutator):
    def __init__(self, func: Function, *, precise: bool, bfloat16: bool) -> None:
        super().__init__()
        self._precise = precise
        self._bfloat16 = bfloat16
        self._uses = uses_of(func)
        self._linear: dict[Var, _Linear] = {}
        self._integers: dict[Var, IntegerProduct] = {}
        self._values: dict[Var, Expr] = {}
        self._packed: dict[tuple[int, bool], tuple[str, Constant]] = {}
        self._kept: list[Constant] = []
        """Constants that are packed: their identity is a key."""
        self._emitted: list[Binding] = []
        self._kind: type[Var] = Var
        self._spans: dict[Var, Span | None] = {}
        self._parts: list[Part] = []
        """What the call that replaces the binding is made of besides."""

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        outer = self._kind, self._emitted
        self._kind = DataflowVar if isinstance(block, DataflowBlock) else Var
        bindings: list[Binding] = []
        for binding in block.bindings:
            emitted: list[Binding] = []
            self._emitted, self._parts = emitted, []
            if isinstance(binding, VarBinding):
                self._values[binding.var] = binding.value
                call = self._replaced(binding.var, binding.value)
                if call is not None:
                    bindings += emitted
                    span = FusedSpan.of(binding.span, self._parts)
                    self._spans[binding.var] = span
                    bindings.append(VarBinding(binding.var, call, span))
                    continue
                if binding.var in self._linear:
                    self._spans[binding.var] = binding.span
            new = super().visit_binding(binding)
            bindings += new if isinstance(new, list) else [new]
        self._kind, self._emitted = outer
        packed: BindingBlock = KINDS[type(block)](bindings, block.span)
        return packed

    def _replaced(self, var: Var, value: Expr) -> Call | None:
        if not isinstance(value, Call) or not isinstance(value.op, Op):
            return None
        name = value.op.name
        if name in ("relax.nn.lstm", "relax.nn.gru"):
            return self._lstm(var, value) if name.endswith("lstm") else self._gru(var, value)
        integers = self._integer_product(var, value)
        if integers is not None:
            return integers
        if not _is_tensor(var.ty):
            return None
        linear = None
        if name in _ROWS:
            return None if self._precise else _ROWS[name](self, var, value)
        if name == "relax.matmul":
            linear = self._product(var, value)
        elif name == "relax.add":
            linear = self._sum(var, value)
        elif name in _FUNCTIONS and (name == "relax.nn.relu" or not self._precise):
            linear = self._function(value, _FUNCTIONS[name])
            if linear is None and name != "relax.nn.relu":
                x = value.args[0]
                if _is_tensor(x.ty) and not (name == "relax.tanh" and _is_short(x.ty)):
                    return kernel_call("nn.apply", (self.visit(x), _FUNCTIONS[name]), var.ty)
        if linear is None:
            return None
        self._linear[var] = linear
        if name == "relax.matmul" and linear.is_small:
            return None  # until something follows
        bias = None if linear.bias is None else Constant(linear.bias)
        inputs: list[Any] = [linear.x, linear.weight]
        for each in (bias, linear.residual):
            inputs.append(self._none() if each is None else each)
        function = linear.function
        inputs.append(self._none() if function is None else function)
        if linear.kernel == "nn.linear_bfloat16":
            inputs.append(int(self._bfloat16))
        return kernel_call(linear.kernel, inputs, var.ty)

    def _integer_product(self, var: Var, call: Call) -> Call | None:
        """A product of bytes and constant integers, or what follows one."""
        product = None
        if op_name(call) == "relax.matmul":
            product = self._product_of_bytes(call)
        else:
            for arg in call.args:
                if not isinstance(arg, Var) or arg not in self._integers:
                    continue
                if self._uses[arg] != 1 or not _has_dims_of(arg, var):
                    continue
                waiting = self._integers[arg]
                product = waiting.followed_by(self._values, arg, call, precise=self._precise)
                if product is not None:
                    self._absorb(arg)
                    break
        if product is None:
            return None
        self._integers[var] = product
        if not product.is_final:
            self._spans[var] = None
            return None
        inputs = [self.visit(each) if isinstance(each, Expr) else each
                  for each in product.inputs(product.x, self._none)]  # fmt: skip
        return kernel_call("nn.integer_linear_blocks", inputs, var.ty)

    def _product_of_bytes(self, call: Call) -> IntegerProduct | None:
        x, matrix = call.args
        found = centered(self._values, x)
        weight, is_transposed = self._matrix(matrix, ("float32", "float64"))
        if found is None or weight is None or call.ty.dtype != weight.data.dtype:
            return None
        source, zero = found
        data = weight.data.T if is_transposed else weight.data
        last = source.ty.dims[-1] if source.ty.dims else None
        if not isinstance(last, IntImm) or last.value != len(data):
            return None
        if data.size < _LEAST_WORK_OF_BYTES:
            return None
        packed = packed_weight(data.T[:, :, None, None], zero, source.ty.dtype)
        if packed is None:
            return None
        weights, greatest = packed
        self._kept.append(weight)
        return IntegerProduct(
            source, zero, Constant(placed(weights.weight[:, :, 0, 0].copy())),
            Constant(placed(weights.sums)), weights.shift, data.shape[1], -1, greatest,
            dtype=str(call.ty.dtype),
        )  # fmt: skip

    def _none(self) -> Var:
        value = op.null_value()
        var = self._kind("none", value.ty)
        self._emitted.append(VarBinding(var, value))
        return var

    def _weights_of_layer(
        self, var: Var, call: Call, states: int, functions: str
    ) -> list[NDArray[Any]] | None:
        """Those of a recurrent layer, if they are constants: with the usual functions, and with
        nothing but lengths behind its states."""
        attrs: Any = call.attrs
        directions = 2 if attrs["direction"] == "bidirectional" else 1
        weights = [arg.data for arg in call.args[1:4] if isinstance(arg, Constant)]
        fits = (
            not self._precise
            and len(call.args) <= 5 + states
            and len(weights) == 3
            and all(weight.dtype == np.float32 and weight.size for weight in weights)
            and attrs["activations"] == ";".join([functions] * directions)
            and attrs["clip"] is None
            and isinstance(var.ty, TupleType)
            and all(map(_is_tensor, var.ty.fields))
        )
        return weights if fits else None

    def _lengths(self, call: Call, place: int) -> Expr:
        """The lengths of the sequences of a recurrent layer."""
        return self.visit(call.args[place]) if len(call.args) > place else self._none()

    def _gru(self, var: Var, call: Call) -> Call | None:
        weights = self._weights_of_layer(var, call, 1, "Sigmoid;Tanh")
        if weights is None:
            return None
        from ..kernels.linear import GRU_GATES, pack_gates

        weight, recurrence, bias = weights
        is_linear = bool(call.attrs["linear_before_reset"])
        parts = bias.reshape(len(bias), 2, GRU_GATES, -1).astype(np.float64)
        hidden = np.zeros_like(parts[:, 0, 2])
        if is_linear:  # the reset gate multiplies this one
            hidden, parts[:, 1, 2] = parts[:, 1, 2].copy(), 0
        total = parts.sum(1).reshape(len(bias), -1, 1).astype(np.float32)
        packed = [Constant(placed(pack_gates(each, GRU_GATES))) for each in (weight, recurrence)]
        packed.append(Constant(pack_gates(total, GRU_GATES).reshape(len(bias), -1)))
        alone = pack_gates(hidden[:, :, None].astype(np.float32), 1).reshape(len(bias), -1)
        x, initial_h = (self.visit(call.args[i]) for i in (0, 4))
        inputs = [x, *packed, Constant(alone), initial_h, self._lengths(call, 5)]
        inputs += [call.attrs["direction"], is_linear]
        return kernel_call("nn.gru_blocks", inputs, var.ty)

    def _lstm(self, var: Var, call: Call) -> Call | None:
        attrs: Any = call.attrs
        weights = self._weights_of_layer(var, call, 2, "Sigmoid;Tanh;Tanh")
        if weights is None or attrs["input_forget"] or attrs["quantized"]:
            return None
        from ..kernels.linear import GATES, pack_gates

        weight, recurrence, bias = weights
        total = bias.reshape(len(bias), 2, -1).astype(np.float64).sum(1).astype(np.float32)
        packed = [Constant(placed(pack_gates(each, GATES))) for each in (weight, recurrence)]
        in_blocks = pack_gates(total[:, :, None], GATES)
        packed.append(Constant(in_blocks.reshape(len(bias), -1)))
        x, initial_h, initial_c = (self.visit(call.args[i]) for i in (0, 4, 5))
        inputs = [x, *packed, initial_h, initial_c, self._lengths(call, 6), attrs["direction"]]
        return kernel_call("nn.lstm_blocks", inputs, var.ty)

    def _softmax(self, var: Var, call: Call) -> Call | None:
        """Along the last axis, of a product with a number."""
        x = call.args[0]
        if not _is_last(call.attrs["axis"], x.ty):
            return None
        scale = 1.0
        before = self._values.get(x) if isinstance(x, Var) and self._uses[x] == 1 else None
        if isinstance(before, Call) and isinstance(before.op, Op) and _is_tensor(before.ty):
            factor = _number(before.args[-1])
            source = before.args[0]
            is_same = _is_tensor(source.ty) and _same_dims(source.ty, x.ty)
            if is_same and factor and before.op.name in ("relax.multiply", "relax.divide"):
                scale = factor if before.op.name == "relax.multiply" else 1 / factor
                if _TINY < abs(scale) < 1 / _TINY:
                    x = source
                else:
                    scale = 1.0
        return kernel_call("nn.softmax_rows", (self.visit(x), scale), var.ty)

    def _layer_norm(self, var: Var, call: Call) -> Call | None:
        """Along the last axis."""
        x, gamma, beta = call.args
        attrs: Any = call.attrs
        axes = attrs["axes"]
        if len(axes) != 1 or not _is_last(axes[0], x.ty) or not attrs["scale"]:
            return None
        shift = self.visit(beta) if attrs["center"] else self._none()
        inputs = (self.visit(x), self.visit(gamma), shift, float(attrs["epsilon"]))
        return kernel_call("nn.layer_norm_rows", inputs, var.ty)

    def _attention(self, var: Var, call: Call) -> Call | None:
        """Operands that are exchanged axes of others are taken as those."""
        attrs: Any = call.attrs
        tensors = call.args[:3]
        if attrs["window_size"] is not None or not all(_is_tensor(each.ty) for each in call.args):
            return None
        query, key, value = map(self._before_exchange, tensors)
        by_head = key is not None and value is not None
        if key is None or value is None:
            inputs = [self.visit(each) for each in tensors]
        else:
            if query is None:
                exchanged = op.permute_dims(self.visit(tensors[0]), _EXCHANGED)
                query = self._kind("query", exchanged.ty)
                self._emitted.append(VarBinding(query, exchanged))
            else:
                query = self.visit(query)
            inputs = [query, self.visit(key), self.visit(value)]
        bias = self.visit(call.args[3]) if len(call.args) > 3 else self._none()
        settings = [attrs["scale"], attrs["causal_mask"]]
        rest = [self._none() if each is None else each for each in settings]
        return kernel_call("nn.attention_tiles", (*inputs, bias, *rest, int(by_head)), var.ty)

    def _before_exchange(self, expr: Expr) -> Expr | None:
        """What an operand is with the second and third axis exchanged, if it was made so."""
        value = self._values.get(expr) if isinstance(expr, Var) else None
        if (
            isinstance(value, Call)
            and isinstance(value.op, Op)
            and value.op.name == "relax.permute_dims"
            and value.attrs["axes"] is not None
            and [int(axis) % 4 for axis in value.attrs["axes"]] == _EXCHANGED
        ):
            return value.args[0]
        return None

    def _product(self, var: Var, call: Call) -> _Linear | None:
        x, matrix = call.args
        weight, is_transposed = self._matrix(matrix)
        if weight is None or not _is_tensor(x.ty) or call.attrs.get("out_dtype") not in (
            None, "", "void", "float32"
        ):  # fmt: skip
            return None
        inputs, outputs = weight.data.shape[::-1] if is_transposed else weight.data.shape
        last = x.ty.dims[-1] if x.ty.dims else None
        if not isinstance(last, IntImm) or last.value != inputs:
            return None
        if not inputs or outputs < _LEAST_COLUMNS:
            return None
        key = id(weight), is_transposed
        if key not in self._packed:
            data = weight.data.T if is_transposed else weight.data
            kernel, packed = self._pack(data)
            self._packed[key] = kernel, Constant(placed(packed))
            self._kept.append(weight)
        kernel, constant = self._packed[key]
        is_small = inputs * outputs < _LEAST_WORK
        return _Linear(self.visit(x), constant, outputs, kernel=kernel, is_small=is_small)

    def _pack(self, matrix: NDArray[Any]) -> tuple[str, NDArray[Any]]:
        """A weight for a kernel: in 16 bits where that changes nothing, or is asked for."""
        from ..kernels.cpu import CPU

        if self._bfloat16 or _are_bfloat16(matrix):
            from ..kernels.bfloat16 import pack_matrix

            return "nn.linear_bfloat16", pack_matrix(matrix)
        if CPU != "sse2" and _are_float16(matrix):  # which has no instruction to widen them
            from ..kernels.bfloat16 import pack_halves

            return "nn.linear_float16", pack_halves(matrix.astype(np.float16))
        from ..kernels.linear import pack_linear

        return "nn.linear_blocks", pack_linear(matrix)

    def _matrix(
        self, expr: Expr, dtypes: Collection[str] = ("float32",)
    ) -> tuple[Constant | None, bool]:
        """The constant matrix that an operand is, and whether it is that one transposed."""
        is_transposed = False
        value = self._values.get(expr, expr) if isinstance(expr, Var) else expr
        if (
            isinstance(value, Call)
            and isinstance(value.op, Op)
            and value.op.name == "relax.permute_dims"
            and isinstance(value.ty, TensorType)
            and value.ty.ndim == 2
        ):
            axes = value.attrs["axes"]
            is_transposed = axes is None or [int(axis) % 2 for axis in axes] == [1, 0]
            value = value.args[0]
        if isinstance(value, Constant) and value.data.ndim == 2 and value.data.dtype.name in dtypes:
            return value, is_transposed
        return None, False

    def _taken(self, expr: Expr) -> _Linear | None:
        """The product whose result has this operand as its only use."""
        if isinstance(expr, Var) and self._uses[expr] == 1:
            return self._linear.get(expr)
        return None

    def _sum(self, var: Var, call: Call) -> _Linear | None:
        for one, other in (call.args, call.args[::-1]):
            linear = self._taken(one)
            if linear is None or linear.function is not None or not _same_dims(one.ty, var.ty):
                continue
            if isinstance(other, Constant) and other.data.dtype == np.float32:
                vector = _vector(other.data, linear.columns, len(var.ty.dims))
                if vector is not None and linear.bias is None and linear.residual is None:
                    from ..kernels.blocks import pack_bias

                    self._absorb(one)
                    return replace(linear, bias=pack_bias(vector))
            elif (
                linear.residual is None
                and isinstance(other, Var)
                and _is_tensor(other.ty)
                and _same_dims(other.ty, var.ty)
            ):
                self._absorb(one)
                return replace(linear, residual=self.visit(other))
        return None

    def _function(self, call: Call, function: str) -> _Linear | None:
        linear = self._taken(call.args[0])
        if linear is None or linear.function is not None:
            return None
        self._absorb(call.args[0])
        return replace(linear, function=function)

    def _absorb(self, var: Expr) -> None:
        assert isinstance(var, Var)
        self._parts.append((self._spans[var], var.name))


_EXCHANGED: Final = [0, 2, 1, 3]
"""Axes: from by position to by head, and back."""

_ROWS: Final = {
    "relax.nn.attention": _Packer._attention,
    "relax.nn.attention_bias": _Packer._attention,
    "relax.nn.softmax": _Packer._softmax,
    "relax.nn.layer_norm": _Packer._layer_norm,
}
"""What is computed row by row."""

_TINY: Final = 1e-30
"""A factor is of usual size from here on."""


def _is_last(axis: Any, ty: Any) -> bool:
    return _is_tensor(ty) and int(axis) % len(ty.dims) == len(ty.dims) - 1


def _number(expr: Expr) -> float | None:
    """The value of a constant with one element, as float32."""
    if isinstance(expr, Constant) and expr.data.size == 1 and expr.data.dtype == np.float32:
        return float(expr.data.reshape(-1)[0])
    return None


def _is_tensor(ty: Any) -> bool:
    """float32 of a known shape, with at least one axis."""
    return isinstance(ty, TensorType) and ty.dtype == "float32" and bool(ty.dims)


def _is_short(ty: TensorType) -> bool:
    """Whether a tensor has so few elements that numpy's loop takes less time than the call of a
    kernel."""
    dims = [dim.value for dim in ty.dims or () if isinstance(dim, IntImm)]
    return len(dims) == ty.ndim and math.prod(dims) <= _MOST_SHORT


def _has_dims_of(arg: Var, var: Var) -> bool:
    a, b = arg.ty, var.ty
    return (
        isinstance(a, TensorType)
        and isinstance(b, TensorType)
        and a.dims is not None
        and b.dims is not None
        and _same_dims(a, b)
    )


def _same_dims(a: Any, b: Any) -> bool:
    return len(a.dims) == len(b.dims) and all(map(structural_equal, a.dims, b.dims))


def _are_bfloat16(matrix: NDArray[Any]) -> bool:
    """Whether all numbers of a large matrix are of bfloat16, as those of a model that is stored
    so."""
    return _halved(matrix, lambda part: not (part.view(np.uint32) & 0xFFFF).any())


def _are_float16(matrix: NDArray[Any]) -> bool:
    with np.errstate(all="ignore"):
        return _halved(matrix, lambda part: bool((part.astype(np.float16) == part).all()))


def _halved(matrix: NDArray[Any], are_short: Callable[[NDArray[Any]], bool]) -> bool:
    """Whether all rows of a large matrix are of a kind; mostly the first one is not."""
    if matrix.size < _LEAST_HALVED:
        return False
    rows = matrix if matrix.flags.c_contiguous else matrix.T
    if not rows.flags.c_contiguous:
        rows = np.ascontiguousarray(rows)
    step = max(1, _LEAST_HALVED // max(1, rows.shape[1]))
    return all(are_short(rows[i : i + step]) for i in range(0, len(rows), step))


def _vector(data: NDArray[Any], columns: int, ndim: int) -> NDArray[Any] | None:
    """A constant with a number for each column, or one for all, as a vector."""
    if data.ndim > ndim or data.size not in (1, columns) or data.shape[-1:] not in (
        (columns,), (1,), ()
    ):  # fmt: skip
        return None
    return np.broadcast_to(data.reshape(-1), (columns,))


def PackLinear(*, precise: bool = False, bfloat16: bool = False) -> Pass:
    """Compute products with constant matrices of float32 by the C kernel ``nn.linear_blocks``,
    whose weights are packed when this pass runs.

    A bias, a residual and a function of elements (relu, gelu, silu, sigmoid, tanh, erf) that follow
    become part of the call.  Other calls of these functions, but relu, become ``nn.apply``, layers
    of long short-term memory and gated recurrent units ``nn.lstm_blocks`` and ``nn.gru_blocks``,
    softmax and layer normalization along the last axis ``nn.softmax_rows`` and
    ``nn.layer_norm_rows``, and attention ``nn.attention_tiles``.

    Products of bytes, less a zero point, and constant integers become ``nn.integer_linear_blocks``,
    which is exact, with what follows them up to a quantization.

    Matrices whose numbers all are of bfloat16 or float16, as those of a model that is stored so,
    take 16 bits for each: ``nn.linear_bfloat16`` and ``nn.linear_float16``.

    Sums have another order than in numpy; functions are within some units in the last place.

    Args:
        precise: take products with bias, residual and relu alone.
        bfloat16: weights of products become bfloat16, by the kernel ``nn.linear_bfloat16``, and
            operands are rounded to it where the processor multiplies such numbers.
    """

    @function_pass(name="PackLinear")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        if func.attrs.get("Primitive"):
            return func
        return _Packer(func, precise=precise, bfloat16=bfloat16).visit(func)

    return run
