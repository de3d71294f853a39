"""Graphs of any frontend as bindings of a function: values, constants, and calls of operators."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...dtypes import as_dtype
from ...executable.debug_info import Span
from ...ir import (
    ANY,
    BlockBuilder,
    Call,
    Constant,
    Expr,
    ExternFunc,
    IntImm,
    Op,
    ShapeExpr,
    ShapeType,
    TensorType,
    Tuple,
    Type,
    Var,
    convert_to_expr,
    int_imm,
)
from ...ir.infer import infer_type, is_base_of
from ...ir.parts import MOST_DIM_PARTS, parts_of
from ...op.evaluate import evaluated
from ...op.registry import CONSTRUCTORS
from ...op.rules import broadcast_dim
from ...registry import RESULT_PREFIX
from .values import MOST_FOLDED, Kind, TensorKind, Value, as_expr, is_symbolic, normalized

__all__ = ["UNSUPPORTED", "Emitter", "Problem", "Session", "identifier"]

BUILTIN_PREFIX: Final = "relaxvm.builtin."
_PURE_PACKED: Final = Op.get("relax.call_pure_packed")

UNSUPPORTED: Final = frozenset({"complex64", "complex128"})
"""Data types of tensors that programs do not have."""


class Problem(Exception):
    """A node that cannot be imported, with the reason."""


class Session:
    """What all graphs of a model share while it is imported.

    Attributes:
        builder: makes the program.
        name: of the file.
        symbols: name of a dimension -> its variable.
        generators: random generators, which the program makes first: variable and call.
        effects: how many calls that are not pure were bound so far.
    """

    def __init__(self, builder: BlockBuilder, name: str) -> None:
        self.builder = builder
        self.name = name
        self.symbols: dict[str, Var] = {}
        self.generators: list[tuple[Var, Call]] = []
        self.effects = 0
        self._changes: list[tuple[Value, Expr | None]] = []
        self._generator_of: dict[int | None, Var] = {}

    def generator(self, node: object, seed: float | None) -> Var:
        """The random generator of a node with a seed, or the one of all nodes without.  The
        program makes it when it begins, so that the steps of a loop continue its numbers."""
        key = None if seed is None else id(node)
        found = self._generator_of.get(key)
        if found is None:
            found = self._generator_of[key] = Var(f"generator_{len(self.generators)}", ANY)
            given = [] if seed is None else [convert_to_expr(seed)]
            function = ExternFunc(f"{BUILTIN_PREFIX}random_generator")
            call = Call(function, given, None, [ANY], ret_ty=ANY)
            self.generators.append((found, call))
        return found

    def bind(self, value: Value, expr: Expr) -> None:
        """Let an expression of the current scope stand for a value, until the scope ends."""
        self._changes.append((value, value.expr))
        value.expr = expr

    @contextmanager
    def scope(self, params: Sequence[Var] = ()) -> Iterator[None]:
        """The body of a function, or a branch: variables that are bound in it are not visible
        outside.  Its value is what `BlockBuilder.end_scope` is called with within it."""
        self.builder.begin_scope(params)
        count = len(self._changes)
        try:
            yield
        finally:
            while len(self._changes) > count:
                value, before = self._changes.pop()
                value.expr = before

    def symbol(self, name: str) -> Var:
        """The variable of a named dimension."""
        found = self.symbols.get(name)
        if found is None:
            found = self.symbols[name] = Var(identifier(name), "int64")
        return found


def identifier(name: str) -> str:
    """A name that a program may have, made from any text."""
    name = re.sub(r"\W+", "_", name).strip("_") or "v"
    return f"v{name}" if name[0].isdigit() else name


class Emitter:
    """Writes the bindings of a graph's nodes.

    Attributes:
        context: what all graphs share.
        hint: name for the variables of the current node.
        span: place of the current node.
    """

    def __init__(self, context: Session) -> None:
        self.context = context
        self.hint = ""
        self.span: Span | None = None

    def emit(self, expr: Expr, hint: str = "") -> Var:
        """Bind an expression to a variable, named after the output of the node."""
        return self.context.builder.emit(expr, identifier(hint or self.hint), self.span)

    def expr(self, value: Value | Expr | NDArray[Any]) -> Expr:
        """The value as an argument: a variable or constant."""
        if isinstance(value, np.ndarray):
            value = Value(known=value)
        if isinstance(value, Expr):
            return value if isinstance(value, (Var, Constant)) else self.emit(value)
        if value.expr is None:
            assert value.known is not None
            if value.dtype in UNSUPPORTED:
                raise Problem(f"tensors of {value.dtype} are not supported here")
            if is_symbolic(value.known):
                shape = ShapeExpr([as_expr(each) for each in value.known.reshape(-1).tolist()])
                flat = self.emit(CONSTRUCTORS["shape_to_tensor"](shape))
                if value.dtype != "int64":
                    flat = self.emit(CONSTRUCTORS["astype"](flat, value.dtype))
                if value.known.ndim != 1:
                    flat = self.emit(CONSTRUCTORS["reshape"](flat, value.known.shape))
                self.context.bind(value, flat)
                return flat
            value.expr = Constant(np.asarray(value.known, as_dtype(value.dtype)))
        return value.expr

    def op(self, name: str, *args: Any, **attrs: Any) -> Var | Constant:
        """Bind a call of one of relaxvm's operators; arguments may be values.  Returns the
        variable, or a constant where the operands are a few known numbers, as in the arithmetic of
        shapes."""
        constructor = CONSTRUCTORS.get(name)
        if constructor is None:
            raise ValueError(f"there is no operator {name!r}")
        call = constructor(*map(self._argument, args), **attrs)
        return _evaluated(call) or self.emit(call)

    def op_of_constants(self, name: str, *args: Any, **attrs: Any) -> Var:
        """As `op`, but a variable also where all operands are known: passes look at them."""
        return self.emit(CONSTRUCTORS[name](*map(self._argument, args), **attrs))

    def _argument(self, arg: Any) -> Any:
        if isinstance(arg, (Value, np.ndarray)):
            return self.expr(arg)
        if isinstance(arg, (list, tuple)) and any(isinstance(a, Value) for a in arg):
            return [self.expr(a) for a in arg]
        return arg

    def run(self, name: str, inputs: Iterable[Any], ty: Type, results: str = "") -> Var:
        """Bind a call of a kernel's result form, for arguments that are known only at run time.

        Args:
            name: of the kernel.
            inputs: its arguments before the outputs; None for no value, tuples of ints as shapes.
            ty: type of the result.
            results: the text about results of `relaxvm.kernels.results`; without it the function
                gets just the inputs.
        """
        args: list[Expr] = [ExternFunc(RESULT_PREFIX + name)]
        given: list[Any] = [*inputs, *([None, results] if results else [])]
        for each in given:
            args.append(self._runtime(each))
        return self.emit(Call(_PURE_PACKED, args, None, [ty], ret_ty=ty))

    def reshaped(self, x: Value, dims: Sequence[Any]) -> Var | Constant:
        """x with exactly these dimensions: 0 stands for no elements, unlike in ``R.reshape``."""
        if not any(isinstance(dim, (int, IntImm)) and int(dim) == 0 for dim in dims):
            return self.op("reshape", x, list(dims))
        return self.run("reshape", [x, list(dims), 1], TensorType(list(dims), x.dtype))

    def _runtime(self, value: Any) -> Expr:
        if value is None:
            return self.none()
        if isinstance(value, (Value, Var, np.ndarray)):
            return self.expr(value)
        if isinstance(value, (list, tuple)):
            return ShapeExpr([as_expr(each) for each in value])
        if isinstance(value, bool):
            value = int(value)
        if isinstance(value, Expr):
            return value
        result: Expr = convert_to_expr(value)
        return result

    def shape_in(self, value: Value) -> Any:
        """The elements of an integer vector as a shape: a list if they are known, else a variable
        that has them at run time."""
        ints = value.ints()
        if ints is not None:
            return ints
        ty = value.type
        expr = self.expr(value)
        if type(ty) is TensorType and ty.ndim != 1:
            expr = self.op("reshape", expr, (-1,)) if ty.dims is not None else self.run(
                "flatten", [value, None], TensorType(None, ty.dtype, ndim=1)
            )  # fmt: skip
        if value.dtype not in ("int64", "int32", "int16"):
            expr = self.op("astype", expr, "int64")
        return self.emit(CONSTRUCTORS["tensor_to_shape"](expr), "shape")

    def elements(self, value: Value, count: int, what: str) -> list[Any]:
        """The elements of an integer vector of `count` elements: ints and expressions; those that
        only the run knows become symbolic variables.

        Raises:
            Problem: it has another number of elements, or they are no integers.
        """
        if value.dtype is not None and not value.dtype.startswith(("int", "uint")):
            raise Problem(f"{what}: expected integers, got a tensor of {value.dtype}")
        ints = value.ints()
        length = value.length if ints is None else len(ints)
        if length is not None and length != count and value.ndim >= 0:
            raise Problem(f"{what}: expected {count} elements, got {length}")
        if ints is not None:
            return ints
        variables = [Var(f"{identifier(self.hint)}_{what}_{i}", "int64") for i in range(count)]
        self.context.builder.match_cast(self.shape_in(value), ShapeType(variables))
        return list(variables)

    def number(self, value: Value) -> Any:
        """The element of a tensor that has one: an int or float, or a variable that has it at run
        time."""
        known = value.constant()
        if known is not None and known.size == 1:
            return known.reshape(-1)[0].item()
        if value.known is not None and value.known.size == 1:
            return value.known.reshape(-1)[0]
        return self.builtin("number_from", [value])

    def named_dims(self, value: Value, rank: int) -> tuple[Expr, ...] | None:
        """The dimensions of a tensor; those that only the run knows become symbolic ones.  None if
        the tensor does not have this rank.

        Raises:
            Problem: it is no tensor.
        """
        if value.compound is not None:
            kind = type(value.compound).__name__.removesuffix("Kind").lower()
            raise Problem(f"expected a tensor, got a value of the kind {kind!r}")
        if value.dims is not None or value.ndim not in (-1, rank):
            return value.dims if len(value.dims or ()) == rank else None
        dims = [Var(f"{identifier(self.hint)}_{i}", "int64") for i in range(rank)]
        ty = TensorType(dims, value.dtype)
        self.context.bind(value, self.context.builder.match_cast(self.expr(value), ty))
        return value.dims

    def state_dims(self, value: Value, lengths: Sequence[int | None]) -> None:
        """Let a tensor have these dimensions, as the operands beside it say: what is not known
        before is checked at run time, and None is any length.  Nothing happens if it has another
        rank, whose refusal is the operator's.

        Layers of known sizes are computed by faster kernels than others."""
        dims = value.dims
        if value.dtype is None or value.ndim not in (-1, len(lengths)):
            return
        known: list[Any] = list(dims or [None] * len(lengths))
        for i, (dim, length) in enumerate(zip(known, lengths, strict=True)):
            if dim is None or not (length is None or isinstance(dim, IntImm)):
                name = f"{identifier(self.hint)}_{i}"
                known[i] = Var(name, "int64") if length is None else int_imm(length)
        if dims is None or any(a is not b for a, b in zip(dims, known, strict=True)):
            ty = TensorType(known, value.dtype)
            self.context.bind(value, self.context.builder.match_cast(self.expr(value), ty))

    def with_known_dims(self, found: Var | Constant, *operands: Value) -> Var | Constant:
        """The result of an elementwise operator whose shape is not known, as a value of the
        dimensions that are, and symbolic variables for the others: of images, the number of
        channels decides how what follows is computed."""
        ty = found.ty
        if not isinstance(ty, TensorType) or ty.dims is not None or ty.ndim < 3:
            return found
        shapes = [value.dims for value in operands]
        if None in shapes or ty.dtype is None:
            return found
        dims: list[Any] = [int_imm(1)] * ty.ndim
        for shape in shapes:
            for i, dim in enumerate(reversed(shape or ()), 1):
                dims[-i] = None if dims[-i] is None else broadcast_dim(dims[-i], dim)
        if not any(isinstance(dim, IntImm) and dim.value != 1 for dim in dims):
            return found
        name = identifier(self.hint)
        dims = [Var(f"{name}_{i}", "int64") if d is None else d for i, d in enumerate(dims)]
        known: Var = self.context.builder.match_cast(found, TensorType(dims, ty.dtype), name)
        return known

    def with_short_dims(self, value: Value) -> Value:
        """The value, with new symbolic variables for dimensions whose expressions are long: where a
        length is computed from a length, again and again, expressions grow with every step."""
        dims = value.dims if value.known is None else None
        if dims is None or all(parts_of(dim) <= MOST_DIM_PARTS for dim in dims):
            return value
        name = identifier(self.hint)
        short = [
            Var(f"{name}_{i}", "int64") if parts_of(dim) > MOST_DIM_PARTS else dim
            for i, dim in enumerate(dims)
        ]
        ty = TensorType(short, value.dtype)
        return Value(self.context.builder.match_cast(self.expr(value), ty, name))

    def typed(self, expr: Expr, kind: Kind, hint: str = "") -> Value:
        """A value of a kind, which the program checks where the type of the expression does not say
        it; dimensions that are not known become symbolic ones."""
        if not isinstance(kind, TensorKind):
            return Value(expr, compound=kind)
        name = identifier(hint or self.hint)
        dims = kind.dims
        if dims is not None:
            dims = tuple([
                Var(f"{name}_{i}", "int64") if dim is None else dim for i, dim in enumerate(dims)
            ])  # fmt: skip
        ty = TensorType.of(dims, kind.dtype, ndim=kind.ndim)
        if expr.ty is not None and is_base_of(ty, expr.ty):
            return Value(expr)
        return Value(self.context.builder.match_cast(expr, ty, name))

    def none(self) -> Var:
        """A variable that is None."""
        return self.emit(CONSTRUCTORS["null_value"](), "none")

    def builtin(self, name: str, args: Sequence[Any], ty: Type = ANY) -> Var:
        """Bind a call of one of relaxvm's builtins; see `run` for the arguments."""
        operands = [ExternFunc(BUILTIN_PREFIX + name), *map(self._runtime, args)]
        return self.emit(Call(_PURE_PACKED, operands, None, [ty], ret_ty=ty))

    def random(
        self, name: str, node: object, seed: float | None, args: Sequence[Any], ty: Type
    ) -> Var:
        """Bind a call of one of relaxvm's builtins that takes numbers from a generator.

        Args:
            name: of the builtin, after "random_".
            node: whose numbers they are.
            seed: of the node; None for one of the operating system.
            args: its arguments after the generator; see `run`.
            ty: type of the result.
        """
        self.context.effects += 1
        generator = self.context.generator(node, seed)
        operands = [generator, *map(self._runtime, args)]
        function = ExternFunc(f"{BUILTIN_PREFIX}random_{name}")
        return self.emit(Call(function, operands, None, [ty], ret_ty=ty))

    def sized(self, value: Value, what: str) -> list[Any]:
        """The elements of an integer tensor, which have to be known when the model is imported.

        Raises:
            Problem: they are not.
        """
        ints = value.ints()
        if ints is None:
            raise Problem(f"{what}: expected values that are known before the model runs")
        return ints

    def value(self, result: Any) -> Value | None:
        """What an operator returned as a value."""
        if result is None or isinstance(result, Value):
            return result
        if isinstance(result, np.ndarray):
            return Value(known=normalized(result))
        if isinstance(result, Constant) and result.data.size <= MOST_FOLDED:
            return Value(result, normalized(result.data))
        if isinstance(result, (Var, Constant)):
            return Value(result)
        return Value(self.emit(result))


def _evaluated(call: Expr) -> Constant | None:
    """The value of a call of an operator whose operands are few known numbers."""
    if not isinstance(call, Call) or not call.args:
        return None
    for arg in call.args:
        for each in arg.fields if isinstance(arg, Tuple) else (arg,):
            if isinstance(each, Constant):
                if each.data.size > MOST_FOLDED:
                    return None
            elif isinstance(each, Var):
                return None
    if call.ty is None:
        infer_type(call)
    ty = call.ty
    if type(ty) is not TensorType or ty.dims is None:
        return None
    if math.prod([dim.value if isinstance(dim, IntImm) else -1 for dim in ty.dims]) > MOST_FOLDED:
        return None
    found = evaluated(call)
    return found if isinstance(found, Constant) else None
