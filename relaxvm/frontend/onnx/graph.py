"""Graphs as bindings of a function: names, constants, and calls of operators."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...core.checkpoints import checkpoint
from ...errors import FormatError
from ...ir import (
    BlockBuilder,
    Expr,
    Op,
    TensorType,
    int_imm,
)
from ...messages import readable
from ...support import Unsupported
from ..common.control import decided
from ..common.emitter import UNSUPPORTED, Emitter, Problem, Session
from ..common.values import (
    MOST_FOLDED,
    Kind,
    MapKind,
    OptionalKind,
    SequenceKind,
    TensorKind,
    Value,
    normalized,
)
from . import messages
from .messages import AttributeType
from .order import in_order
from .places import Places
from .registry import REQUIRED, OnnxOperator, find, own_operator
from .strings import MEASURING, MOVING, TAKING, moved, packed, table_of, unpacked
from .tensors import ExternalData, dtype_of, to_array, to_dense

__all__ = ["Context", "Graph", "Problem", "Undecided", "kind_of_type", "number_of"]

BUILTIN_PREFIX: Final = "relaxvm.builtin."
_PURE_PACKED: Final = Op.get("relax.call_pure_packed")
_NONE: Final[Mapping[str, NDArray[Any]]] = {}
_MOST_DEPTH: Final = 64
"""Graphs within graphs, and calls of functions within functions."""
_MOST_NODES: Final = 100_000
"""Nodes of graphs within graphs and of functions, which count each time they are imported."""


def _check_replaced(tensor: messages.Tensor, array: NDArray[Any]) -> None:
    """Check that a value fits the constant that it replaces."""
    name = readable(tensor.name)
    dtype = dtype_of(tensor.data_type, name)
    got = "str" if array.dtype.kind in "OUS" else array.dtype.name
    if got != dtype or array.shape != tuple(tensor.dims):
        raise Problem(f"constants: {name!r}: expected {dtype}{[int(dim) for dim in tensor.dims]}, "
                      f"got {got}{list(array.shape)}")  # fmt: skip


class Undecided(Problem):
    """An operator needs to know something of an operand that only the run knows, such as its rank.
    The graph makes a branch for each of the types that the operand may have.

    Attributes:
        value: the operand.
        types: what it may be, the last one for all that is none of the others: an error of the run.
    """

    def __init__(self, value: Value, types: Sequence[TensorType], what: str) -> None:
        super().__init__(f"{what}: expected a tensor of known rank, got {value.type}")
        self.value = value
        self.types = types


class Context(Session):
    """What all graphs of a model share.

    Attributes:
        versions: domain -> version of its operators.
        functions: (domain, name, overload) -> the model's own operators.
        own: (domain, name) -> operators that the user gave.
        external: files with constants.
        places: the nodes as lines of a text, for errors and profiles.
        calls: the functions whose bodies are being imported, the outermost first.
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
        super().__init__(builder, name)
        self.versions = dict(versions)
        self.functions = {(_domain(f.domain), f.name, f.overload): f for f in model.functions}
        self.own = {_key(each): own_operator(function) for each, function in own.items()}
        self.external = external
        self.places = Places(name)
        self.calls: list[tuple[str, str, str]] = []
        self.depth = 0
        self.nodes = 0


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _key(given: Any) -> tuple[str, str]:
    """The domain and name of an operator of the user's."""
    is_pair = isinstance(given, tuple) and len(given) == 2
    if not is_pair or not all(isinstance(each, str) for each in given):
        raise TypeError(f"operators: expected keys (domain, name) of two strings, got {given!r}")
    return _domain(given[0]), given[1]


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
    if ty.map is not None:
        values = kind_of_type(ty.map.value_type, number_of, subject)
        if not isinstance(values, TensorKind) or values.dtype is None:
            raise Problem(f"{subject}: expected a map of numbers or strings")
        return MapKind(dtype_of(ty.map.key_type, subject), values.dtype)
    raise Problem(f"{subject}: sparse tensors are not supported")


def number_of(dimension: messages.Dimension, place: int) -> Expr | None:
    """A dimension that is a number; None for others."""
    is_number = dimension.has("value") and dimension.value >= 0 and not dimension.name
    return int_imm(dimension.value) if is_number else None


class Graph(Emitter):
    """A graph, or the body of a function of the model: the values of its names.

    Attributes:
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
        super().__init__(context)
        self.context: Context = context
        self.outer = outer
        self.values: dict[str, Value | None] = {}
        self.versions = context.versions if versions is None else dict(versions)
        self.attributes: dict[str, messages.Attribute] = dict(attributes or {})
        if outer is not None:
            self.versions, self.attributes = outer.versions, outer.attributes
        self.node: messages.Node | None = None

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

    # Strings

    def expr(self, value: Value | Expr | NDArray[Any]) -> Expr:
        """The value as an argument: a variable or constant."""
        if isinstance(value, Value) and value.expr is None and value.dtype == "str":
            self.context.bind(value, packed(self, value))
        return super().expr(value)

    def typed(self, expr: Expr, kind: Kind, hint: str = "") -> Value:
        """A value of a kind, which the program checks where the type of the expression does not say
        it; dimensions that are not known become symbolic ones."""
        if isinstance(kind, TensorKind) and kind.dtype == "str":
            return unpacked(self, expr, kind)
        return super().typed(expr, kind, hint)

    # Nodes

    def add_constants(
        self, graph: messages.Graph, replaced: Mapping[str, NDArray[Any]] = _NONE
    ) -> None:
        """Define the constants of a graph, some of them with other values than the model's.

        Raises:
            Problem: a value does not have the data type and the shape of the constant.
        """
        for tensor in graph.initializer:
            subject = f"{self.context.name}: constant {readable(tensor.name)!r}"
            array = replaced.get(tensor.name)
            if array is None:
                array = to_array(tensor, self.context.external, subject)
            else:
                _check_replaced(tensor, array)
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
        is_own = (_domain(node.domain), node.op_type) in self.context.own
        for name, value in zip(node.output, results, strict=False):
            if name and value is not None:
                self[name] = self.with_short_dims(value)
            elif name and is_own:
                raise Problem(f"its function returned None for the output {readable(name)!r}")

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
        key = f"{domain}.{node.op_type}" if domain else node.op_type
        is_unaware = key in MOVING if domain else key not in TAKING
        if is_unaware and "str" in [v.dtype for v in inputs if v]:
            if key in MEASURING:
                places = [table_of(self, v)[1] if v else None for v in inputs]
                return self.converted(operator, places, attrs)
            if key not in MOVING:
                raise Problem("strings are not supported")
            return moved(self, inputs, lambda given: self.converted(operator, given, attrs))
        if operator.fold is not None:
            folded = _folded(operator.fold, inputs, attrs)
            if folded is not None:
                return [folded]
        return self.converted(operator, inputs, attrs)

    def converted(
        self, operator: OnnxOperator, inputs: Sequence[Value | None], attrs: Mapping[str, Any]
    ) -> list[Value | None]:
        """The results of an operator's function; branches of the program, if that depends on
        something that only the run knows."""
        try:
            result = operator.convert(self, *inputs, **attrs)
        except Undecided as choice:
            if not any(choice.value is each for each in inputs):
                raise
            return decided(self, choice.value, choice.types,
                           lambda: self.converted(operator, inputs, attrs))  # fmt: skip
        results = result if isinstance(result, tuple) else (result,)
        for each in results:
            if not (each is None or isinstance(each, (Value, Expr, np.ndarray))):
                raise TypeError(
                    f"its function returned {each!r}, expected an expression, a Value or an array"
                )
        return [self.value(each) for each in results]

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
        key = _domain(function.domain), function.name, function.overload
        if key in context.calls:
            cycle = [*context.calls[context.calls.index(key) :], key]
            names = " -> ".join(".".join(filter(None, each[:2])) for each in cycle)
            raise Problem(f"functions of a model cannot call themselves: {readable(names)}")
        if context.depth >= _MOST_DEPTH:
            raise Problem(f"functions are nested deeper than {_MOST_DEPTH}")
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
        context.calls.append(key)
        try:
            body.add_nodes(function.node)
        finally:
            context.depth -= 1
            context.calls.pop()
        for name, output in zip(function.output, node.output, strict=False):
            if output and name not in body.values:
                raise Problem(f"the function has no value {readable(name)!r}, which is its output")
        return [body.values.get(name) for name in function.output]

    def add_nodes(self, nodes: Sequence[messages.Node]) -> None:
        """Import nodes, each after those whose results it uses."""
        for node in in_order(nodes):
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
) -> Value | None:
    """A result that is known by its elements, if those of all inputs are known and few."""
    arrays: list[NDArray[Any] | None] = []
    symbolic: str | None = None
    for value in inputs:
        if value is None:
            arrays.append(None)
            continue
        known = value.known
        if known is None or known.size > MOST_FOLDED or value.dtype == "str":
            return None
        arrays.append(known)
        if symbolic is None and known.dtype == object:
            symbolic = value.dtype
    result = fold(*arrays, **attrs)
    if result is None or isinstance(result, Value):
        return result
    array = np.asarray(result)
    is_of_inputs = array.dtype == object
    array = normalized(array)
    if array.size > MOST_FOLDED:
        return None
    if is_of_inputs and symbolic == "int32":  # expressions of dimensions do not say their type
        return Value(known=array if array.dtype == object else array.astype(np.int32),
                     dtype=symbolic)  # fmt: skip
    return Value(known=array)


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
