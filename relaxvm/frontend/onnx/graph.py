"""Graphs as bindings of a function: names, constants, and calls of operators."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...core.checkpoints import checkpoint
from ...dtypes import as_dtype
from ...errors import FormatError
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
    Type,
    Var,
    int_imm,
)
from ...ir.infer import is_base_of
from ...messages import readable
from ...op.registry import CONSTRUCTORS
from ...registry import RESULT_PREFIX
from ...support import Unsupported
from . import messages
from .messages import AttributeType
from .places import Places
from .registry import REQUIRED, OnnxOperator, find, own_operator
from .strings import MEASURING, MOVING, TAKING, moved, packed, table_of, unpacked
from .tensors import ExternalData, dtype_of, to_array, to_dense
from .values import (
    MOST_FOLDED,
    Kind,
    OptionalKind,
    SequenceKind,
    TensorKind,
    Value,
    as_expr,
    is_symbolic,
    normalized,
)

__all__ = ["Context", "Graph", "Problem", "kind_of_type", "number_of"]

BUILTIN_PREFIX: Final = "relaxvm.builtin."
_PURE_PACKED: Final = Op.get("relax.call_pure_packed")
_MOST_DEPTH: Final = 64
"""Graphs within graphs, and calls of functions within functions."""
_MOST_NODES: Final = 100_000
"""Nodes of graphs within graphs and of functions, which count each time they are imported."""


UNSUPPORTED: Final = frozenset({"complex64", "complex128"})
"""Data types of tensors that programs do not have."""


class Problem(Exception):
    """A node that cannot be imported, with the reason."""


class Context:
    """What all graphs of a model share.

    Attributes:
        builder: makes the program.
        name: of the file.
        versions: domain -> version of its operators.
        functions: (domain, name, overload) -> the model's own operators.
        own: (domain, name) -> operators that the user gave.
        external: files with constants.
        symbols: name of a dimension -> its variable.
        places: the nodes as lines of a text, for errors and profiles.
    """

    def __init__(
        self,
        builder: BlockBuilder,
        name: str,
        model: messages.Model,
        versions: Mapping[str, int],
        external: ExternalData,
        own: Mapping[tuple[str, str], Callable[..., Any]],
    ) -> None:
        self.builder = builder
        self.name = name
        self.versions = dict(versions)
        self.functions = {(_domain(f.domain), f.name, f.overload): f for f in model.functions}
        self.own = {key: own_operator(function) for key, function in own.items()}
        self.external = external
        self.symbols: dict[str, Var] = {}
        self.places = Places(name)
        self.depth = 0
        self.nodes = 0
        self._changes: list[tuple[Value, Expr | None]] = []

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


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def identifier(name: str) -> str:
    """A name that a program may have, made from any text."""
    name = re.sub(r"\W+", "_", name).strip("_") or "v"
    return f"v{name}" if name[0].isdigit() else name


def kind_of_type(
    ty: messages.TypeOf | None, dim: Callable[[messages.Dimension, int], Expr | None], subject: str
) -> Kind:
    """What a file states of a value.

    Args:
        ty: the type.
        dim: returns the expression of a dimension, given its place.
        subject: begins messages of errors.
    """
    if ty is None:
        return TensorKind()
    if ty.tensor is not None:
        name = dtype_of(ty.tensor.elem_type, subject) if ty.tensor.elem_type else None
        if name in UNSUPPORTED:
            raise Problem(f"{subject}: tensors of {name} are not supported")
        if ty.tensor.shape is None:
            return TensorKind(name)
        dims = tuple([dim(each, i) for i, each in enumerate(ty.tensor.shape.dims)])
        return TensorKind(name, len(dims), dims)
    for kind, inner in ((SequenceKind, ty.sequence), (OptionalKind, ty.optional)):
        if inner is not None:
            return kind(kind_of_type(inner.elem_type, number_of, subject))
    raise Problem(f"{subject}: maps and sparse tensors are not supported")


def number_of(dimension: messages.Dimension, place: int) -> Expr | None:
    """A dimension that is a number; None for others."""
    is_number = dimension.has("value") and dimension.value >= 0 and not dimension.name
    return int_imm(dimension.value) if is_number else None


class Graph:
    """A graph, or the body of a function of the model: the values of its names.

    Attributes:
        context: what all graphs share.
        outer: the graph that this one is inside of, whose names it may use.
        values: name -> value; None for an input that a call of a function leaves out.
        attributes: of the call of the function that this is the body of.
        version: of the operators of ai.onnx.
    """

    def __init__(
        self,
        context: Context,
        outer: Graph | None = None,
        versions: Mapping[str, int] | None = None,
        attributes: Mapping[str, messages.Attribute] | None = None,
    ) -> None:
        self.context = context
        self.outer = outer
        self.values: dict[str, Value | None] = {}
        self.versions = context.versions if versions is None else dict(versions)
        self.attributes: dict[str, messages.Attribute] = dict(attributes or {})
        if outer is not None:
            self.versions, self.attributes = outer.versions, outer.attributes
        self.node: messages.Node | None = None
        self.hint = ""
        self.span: Span | None = None

    @property
    def version(self) -> int:
        return self.versions.get("", 1)

    # Names

    def __getitem__(self, name: str) -> Value:
        found = self.find(name)
        if found is None:
            raise Problem(f"the value {readable(name)!r} was left out by the call of the function")
        return found

    def find(self, name: str) -> Value | None:
        """The value of a name; None for an input that a call of a function leaves out.

        Raises:
            Problem: there is none.
        """
        graph: Graph | None = self
        while graph is not None:
            if name in graph.values:
                return graph.values[name]
            graph = graph.outer
        raise Problem(f"there is no value {readable(name)!r}")

    def __setitem__(self, name: str, value: Value) -> None:
        if name in self.values:
            raise Problem(f"the value {readable(name)!r} is defined twice")
        self.values[name] = value

    # Expressions

    def emit(self, expr: Expr, hint: str = "") -> Var:
        """Bind an expression to a variable, named after the output of the node."""
        return self.context.builder.emit(expr, identifier(hint or self.hint), self.span)

    def expr(self, value: Value | Expr | NDArray[Any]) -> Expr:
        """The value as an argument: a variable or constant."""
        if isinstance(value, np.ndarray):
            value = Value(known=value)
        if isinstance(value, Expr):
            return value if isinstance(value, (Var, Constant)) else self.emit(value)
        if value.expr is None and value.dtype == "str":
            expr = packed(self, value)
            self.context.bind(value, expr)
            return expr
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

    def op(self, name: str, *args: Any, **attrs: Any) -> Var:
        """Bind a call of one of relaxvm's operators; arguments may be values."""
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
        return self.emit(Call(_PURE_PACKED, args, None, [ty], ty))

    def reshaped(self, x: Value, dims: Sequence[Any]) -> Var:
        """x with exactly these dimensions: 0 stands for no elements, unlike in ``R.reshape``."""
        if not any(isinstance(dim, (int, IntImm)) and int(dim) == 0 for dim in dims):
            return self.op("reshape", x, list(dims))
        return self.run("reshape", [x, list(dims), 1], TensorType(list(dims), x.dtype))

    def _runtime(self, value: Any) -> Expr:
        from ...ir import convert_to_expr

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
        the tensor does not have this rank."""
        if value.dims is not None or value.ndim not in (-1, rank):
            return value.dims if len(value.dims or ()) == rank else None
        dims = [Var(f"{identifier(self.hint)}_{i}", "int64") for i in range(rank)]
        ty = TensorType(dims, value.dtype)
        self.context.bind(value, self.context.builder.match_cast(self.expr(value), ty))
        return value.dims

    def typed(self, expr: Expr, kind: Kind, hint: str = "") -> Value:
        """A value of a kind, which the program checks where the type of the expression does not say
        it; dimensions that are not known become symbolic ones."""
        if not isinstance(kind, TensorKind):
            return Value(expr, compound=kind)
        if kind.dtype == "str":
            return unpacked(self, expr, kind)
        name = identifier(hint or self.hint)
        dims = kind.dims
        if dims is not None:
            dims = tuple([
                Var(f"{name}_{i}", "int64") if dim is None else dim for i, dim in enumerate(dims)
            ])  # fmt: skip
        ty = TensorType(dims, kind.dtype, ndim=kind.ndim)
        if expr.ty is not None and is_base_of(ty, expr.ty):
            return Value(expr)
        return Value(self.context.builder.match_cast(expr, ty, name))

    def none(self) -> Var:
        """A variable that is None."""
        return self.emit(CONSTRUCTORS["null_value"](), "none")

    def builtin(self, name: str, args: Sequence[Any], ty: Type = ANY) -> Var:
        """Bind a call of one of relaxvm's builtins; see `run` for the arguments."""
        operands = [ExternFunc(BUILTIN_PREFIX + name), *map(self._runtime, args)]
        return self.emit(Call(_PURE_PACKED, operands, None, [ty], ty))

    def sized(self, value: Value, what: str) -> list[Any]:
        """The elements of an integer tensor, which have to be known when the model is imported.

        Raises:
            Problem: they are not.
        """
        ints = value.ints()
        if ints is None:
            raise Problem(f"{what}: expected values that are known before the model runs")
        return ints

    # Nodes

    def add_constants(self, graph: messages.Graph) -> None:
        """Define the constants of a graph."""
        for tensor in graph.initializer:
            subject = f"{self.context.name}: constant {readable(tensor.name)!r}"
            array = to_array(tensor, self.context.external, subject)
            is_text = tensor.data_type == messages.DataType.STRING
            self[tensor.name] = Value(known=array, dtype="str" if is_text else None)
        for sparse in graph.sparse_initializer:
            name = sparse.values.name if sparse.values is not None else ""
            subject = f"{self.context.name}: constant {readable(name)!r}"
            self[name] = Value(known=to_dense(sparse, self.context.external, subject))

    def add_node(self, node: messages.Node) -> None:
        """Import a node.

        Raises:
            Problem: it cannot be imported.
        """
        self.node = node
        self.hint = next(filter(None, node.output), node.name)
        self.span = self.context.builder.place = self.context.places.of(node)
        inputs = [self.find(name) if name else None for name in node.input]
        while inputs and inputs[-1] is None:
            inputs.pop()
        results = self.call(node, inputs)
        if len(results) < sum(map(bool, node.output)):
            raise Problem(f"expected {len(node.output)} outputs, the operator has {len(results)}")
        for name, value in zip(node.output, results, strict=False):
            if name and value is not None:
                self[name] = value

    def call(self, node: messages.Node, inputs: Sequence[Value | None]) -> list[Value | None]:
        """The results of a node."""
        domain = _domain(node.domain)
        function = self.context.functions.get((domain, node.op_type, node.overload))
        if (domain, node.op_type) in self.context.own:
            operator: OnnxOperator | Unsupported = self.context.own[domain, node.op_type]
        elif function is not None:
            return self.inlined(function, node, inputs)
        else:
            version = self.versions.get(domain, 1)
            operator = find(domain, node.op_type, version)
        if isinstance(operator, Unsupported):
            raise Problem(operator.reason)
        least, most = operator.min_inputs, operator.max_inputs
        if len(inputs) < least or (most is not None and len(inputs) > most):
            expected = f"at least {least}" if most is None else f"{least} to {most}"
            raise Problem(f"expected {expected} inputs, got {len(inputs)}")
        required = operator.required
        for i, each in enumerate(inputs):
            if each is None and required[min(i, len(required) - 1)]:
                raise Problem(f"input {i} is missing")
        attrs = self.attributes_of(node, operator)
        if not domain and node.op_type not in TAKING and "str" in [v.dtype for v in inputs if v]:
            if node.op_type in MEASURING:
                places = [table_of(self, v)[1] if v else None for v in inputs]
                return self.converted(operator, places, attrs)
            if node.op_type not in MOVING:
                raise Problem("strings are not supported")
            return moved(self, inputs, lambda given: self.converted(operator, given, attrs))
        if operator.fold is not None:
            folded = _folded(operator.fold, inputs, attrs)
            if folded is not None:
                return [Value(known=folded)]
        return self.converted(operator, inputs, attrs)

    def converted(
        self, operator: OnnxOperator, inputs: Sequence[Value | None], attrs: Mapping[str, Any]
    ) -> list[Value | None]:
        """The results of an operator's function."""
        result = operator.convert(self, *inputs, **attrs)
        results = result if isinstance(result, tuple) else (result,)
        return [self.value(each) for each in results]

    def value(self, result: Any) -> Value | None:
        """What an operator returned as a value."""
        if result is None or isinstance(result, Value):
            return result
        if isinstance(result, np.ndarray):
            return Value(known=normalized(result))
        if isinstance(result, (Var, Constant)):
            return Value(result)
        return Value(self.emit(result))

    def attributes_of(self, node: messages.Node, operator: OnnxOperator) -> dict[str, Any]:
        """The attributes of a node, with the defaults of the operator."""
        found: dict[str, Any] = {}
        for attribute in node.attribute:
            name = attribute.name
            given: messages.Attribute | None = attribute
            if attribute.ref_attr_name:
                given = self.attributes.get(attribute.ref_attr_name)
                if given is None:
                    continue
            if name not in operator.attributes:
                raise Problem(f"attribute {readable(name)!r} is not supported")
            assert given is not None
            value = self.attribute(given, name)
            kinds = operator.kinds.get(name)
            if kinds is not None and not isinstance(value, kinds):
                raise Problem(
                    f"attribute {name!r}: expected {kinds[0].__name__}, got {type(value).__name__}"
                )
            found[name] = value
        for name, default in operator.attributes.items():
            if name not in found:
                if default is REQUIRED:
                    raise Problem(f"attribute {name!r} is missing")
                found[name] = default
        return found

    def attribute(self, attribute: messages.Attribute, name: str) -> Any:
        """The value of an attribute; graphs stay messages."""
        kind = attribute.type or _guess(attribute)
        subject = f"{self.context.name}: attribute {readable(name)!r}"
        external = self.context.external
        if kind == AttributeType.FLOAT:
            return attribute.f
        if kind == AttributeType.INT:
            return attribute.i
        if kind == AttributeType.STRING:
            return _text(attribute.s)
        if kind == AttributeType.TENSOR:
            if attribute.t is None:
                raise FormatError(f"{subject}: expected a tensor")
            return to_array(attribute.t, external, subject)
        if kind == AttributeType.GRAPH:
            if attribute.g is None:
                raise FormatError(f"{subject}: expected a graph")
            return attribute.g
        if kind == AttributeType.FLOATS:
            return attribute.floats.tolist()
        if kind == AttributeType.INTS:
            return attribute.ints.tolist()
        if kind == AttributeType.STRINGS:
            return [_text(each) for each in attribute.strings]
        if kind == AttributeType.SPARSE_TENSOR and attribute.sparse_tensor is not None:
            return to_dense(attribute.sparse_tensor, external, subject)
        if kind == AttributeType.TYPE_PROTO:
            return attribute.tp
        raise Problem(f"attribute {readable(name)!r} has a type that is not supported: {kind}")

    def inlined(
        self, function: messages.Function, node: messages.Node, inputs: Sequence[Value | None]
    ) -> list[Value | None]:
        """The results of a call of one of the model's own operators: its body is imported here."""
        context = self.context
        if context.depth >= _MOST_DEPTH:
            raise Problem(f"functions are nested deeper than {_MOST_DEPTH}, or call themselves")
        if len(inputs) > len(function.input):
            raise Problem(f"expected {len(function.input)} inputs, got {len(inputs)}")
        given = {a.name: a for a in function.attribute_proto}
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                referred = self.attributes.get(attribute.ref_attr_name)
                if referred is not None:
                    given[attribute.name] = referred
            else:
                given[attribute.name] = attribute
        versions = {_domain(each.domain): each.version for each in function.opset_import}
        body = Graph(context, None, versions or self.versions, given)
        for name, value in itertools.zip_longest(function.input, inputs):
            body.values[name] = value
        context.depth += 1
        try:
            body.add_nodes(function.node)
        finally:
            context.depth -= 1
        return [body.values.get(name) for name in function.output]

    def add_nodes(self, nodes: Iterable[messages.Node]) -> None:
        """Import nodes in order."""
        for node in nodes:
            checkpoint()
            self.context.nodes += self.context.depth > 0
            if self.context.nodes > _MOST_NODES:
                raise Problem(
                    f"more than {_MOST_NODES} nodes within functions and graphs, each time they "
                    f"are called"
                )
            try:
                self.add_node(node)
            except Problem as problem:
                raise Problem(f"{_node_text(node)}: {problem}") from None
            except (TypeError, ValueError, ArithmeticError, IndexError, KeyError) as error:
                raise Problem(f"{_node_text(node)}: {error}") from error

    def subgraph(
        self, graph: messages.Graph, inputs: Sequence[Value] = ()
    ) -> list[Value]:
        """Import the nodes of a graph within this one into the current scope; its results."""
        context = self.context
        if context.depth >= _MOST_DEPTH:
            raise Problem(f"graphs are nested deeper than {_MOST_DEPTH}")
        inner = Graph(context, self)
        inner.add_constants(graph)
        if len(inputs) > len(graph.input):
            raise Problem(f"the graph has {len(graph.input)} inputs, expected {len(inputs)}")
        for parameter, value in zip(graph.input, inputs, strict=False):
            inner.values[parameter.name] = value
        context.depth += 1
        try:
            inner.add_nodes(graph.node)
        finally:
            context.depth -= 1
        return [inner[output.name] for output in graph.output]


def _folded(
    fold: Callable[..., Any], inputs: Sequence[Value | None], attrs: Mapping[str, Any]
) -> NDArray[Any] | None:
    """The elements of a result, if those of all inputs are known and few."""
    arrays: list[NDArray[Any] | None] = []
    for value in inputs:
        if value is None:
            arrays.append(None)
            continue
        known = value.known
        if known is None or known.size > MOST_FOLDED or value.dtype == "str":
            return None
        arrays.append(known)
    result = fold(*arrays, **attrs)
    if result is None:
        return None
    array = normalized(np.asarray(result))
    return array if array.size <= MOST_FOLDED else None


def _text(data: memoryview | bytes) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise Problem("an attribute is not UTF-8") from None


def _guess(attribute: messages.Attribute) -> int:
    """The type of an attribute of an old file that does not state it."""
    for name, kind in _BY_FIELD.items():
        if attribute.has(name):
            return kind
    return AttributeType.INTS


_BY_FIELD: Final = {
    "f": AttributeType.FLOAT,
    "i": AttributeType.INT,
    "s": AttributeType.STRING,
    "t": AttributeType.TENSOR,
    "g": AttributeType.GRAPH,
    "floats": AttributeType.FLOATS,
    "ints": AttributeType.INTS,
    "strings": AttributeType.STRINGS,
}


def _node_text(node: messages.Node) -> str:
    name = f" {readable(node.name)!r}" if node.name else ""
    domain = f"{node.domain}." if node.domain else ""
    return f"node{name} ({domain}{node.op_type})"
