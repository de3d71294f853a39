"""The nodes of a graph as bindings of a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from ...core.checkpoints import checkpoint
from ...dtypes import as_dtype
from ...ir import (
    BlockBuilder,
    Constant,
    Expr,
    PrimType,
    ShapeExpr,
    ShapeType,
    TensorType,
    Var,
    int_imm,
)
from ...ir.arith import free_vars
from ...messages import readable
from ...op.registry import CONSTRUCTORS
from ..common.emitter import Emitter, Problem, Session
from ..common.values import TensorKind, Value, as_expr, normalized
from . import messages
from .aliases import Tensor
from .archive import dtype_of
from .kept import key_of, put_in_place
from .pairs import (
    BY_PARTS,
    COMPLEX,
    COMPLEX_BACK,
    call_complex,
    has_complex,
    is_complex,
    parts_of,
    put_complex,
)
from .places import Places
from .registry import OPERATORS, REQUIRED, AtenOperator, find, full_name, own_operator
from .strides import REPEATING, SAME, is_in_order, shares_memory
from .symbols import number, parsed

__all__ = ["Context", "Graph", "base_name", "operator_name", "operator_of"]

MEMORY_FORMATS: Final = {
    1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format",
}  # fmt: skip
"""The numbers of memory formats in a file, and their names."""
LAYOUTS: Final = {
    1: "sparse_coo", 2: "sparse_csr", 3: "sparse_csc", 4: "sparse_bsr", 5: "sparse_bsc",
    6: "mkldnn", 7: "strided",
}  # fmt: skip
"""The numbers of layouts in a file, and their names."""


_RESHAPING: Final = frozenset({
    "squeeze_", "unsqueeze_", "transpose_", "t_", "swapaxes_", "swapdims_", "detach_",
})  # fmt: skip
"""In-place operators that change shapes alone."""
_MOST_NODES: Final = 100_000
"""Nodes of graphs within graphs, which count each time they are imported."""


class Context(Session):
    """What all graphs of a program share.

    Attributes:
        own: full name -> operators that the user gave.
        places: the user's lines.
        known: names of the symbols that have a value.
        operators: what `operator_of` has found.
        nodes: how many of graphs within the graph were imported.
    """

    def __init__(
        self, builder: BlockBuilder, name: str, own: Mapping[str, Callable[..., Any]]
    ) -> None:
        super().__init__(builder, name)
        self.own = {full_name(key): own_operator(function) for key, function in own.items()}
        self.places = Places(name)
        self.known: set[str] = set()
        self.nodes = 0
        self.operators: dict[str, tuple[AtenOperator, str | None] | None] = {}
        self._parsed: dict[str, Any] = {}

    def parsed(self, text: str) -> Any:
        """The number or expression that a text means; see `relaxvm.frontend.torch.symbols`."""
        found = self._parsed.get(text)
        if found is None:
            found = self._parsed[text] = parsed(text, self.symbol)
        return found

    def define(self, symbol: str, var: Var) -> None:
        """Let a variable stand for a symbol from now on."""
        self.symbols[symbol] = var
        self.known.add(var.name)
        self._parsed.clear()

    def know(self, kind: TensorKind) -> None:
        """Remember that the symbols in the dimensions of a tensor have values."""
        for dim in kind.dims or ():
            if dim is not None:
                self.known.update(var.name for var in free_vars(dim))


def operator_name(target: str) -> str:
    """The name of an operator in the table: ``torch.ops.aten.add.Tensor`` is aten::add.Tensor."""
    parts = target.split(".")
    if parts[:2] == ["torch", "ops"] and len(parts) >= 4:
        return full_name(f"{parts[2]}::{'.'.join(parts[3:])}")
    return target


def base_name(target: str) -> str:
    """The name of an operator of ATen without namespace and overload; "" for others."""
    space, _, name = operator_name(target).partition("::")
    return name.partition(".")[0] if space == "aten" else ""


def operator_of(context: Context, name: str) -> tuple[AtenOperator, str | None] | None:
    """The record of an operator, and the parameter that an in-place or `out` form writes to; None
    if it is not supported."""
    if name not in context.operators:
        context.operators[name] = _operator_of(context, name)
    return context.operators[name]


def _operator_of(context: Context, name: str) -> tuple[AtenOperator, str | None] | None:
    found = _found(context, name)
    if found is not None:
        return found, None
    space, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    written = None
    if base.endswith("_") and not base.endswith("__"):
        base, written = base[:-1], "self"
    elif overload == "out" or overload.endswith("_out"):
        overload, written = overload.removesuffix("out").rstrip("_") or "default", "out"
    if written is None:
        return None
    found = _found(context, f"{space}::{base}.{overload}")
    if found is None:
        for each in _overloads(space, base):
            return each, written
        return None
    return found, written


def _found(context: Context, name: str) -> AtenOperator | None:
    """The user's operator of a name, else that of the table."""
    return context.own.get(name) or find(name)


def _overloads(space: str, base: str) -> list[AtenOperator]:
    start = f"{space}::{base}."
    return [record for name, record in OPERATORS.items() if name.startswith(start)]


class Graph(Emitter):
    """A graph: the values of its names.

    Attributes:
        values: name -> `Tensor` for a tensor, else the value itself.
        graph: its message.
        autocast: the data type that operators may choose for float32; None where they do not.
        bounded: indices and the length that they are for -> the same indices, checked.
        ranges: what the results of the current operator take of its argument, as keys of views;
            empty if it does not say so.
        watched: names of tensors that are kept here as their nodes left them; None before that.
    """

    def __init__(self, context: Context, graph: messages.Graph) -> None:
        super().__init__(context)
        self.context: Context = context
        self.values: dict[str, Any] = {}
        self.graph = graph
        self.autocast: str | None = None
        self.node: messages.Node | None = None
        self.ranges: list[tuple[Any, ...]] = []
        self.bounded: dict[tuple[Expr, Any], Expr] = {}
        self.watched: dict[str, Value | None] = {}
        self._rewritten: dict[str, Any] = {}

    # Names

    def __getitem__(self, name: str) -> Any:
        """The value of a name; of a tensor its current content."""
        found = self.named(name)
        return found.read() if isinstance(found, Tensor) else found

    def named(self, name: str) -> Any:
        """What a name stands for."""
        try:
            return self.values[name]
        except KeyError:
            raise Problem(f"there is no value {readable(name)!r}") from None

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self.values:
            raise Problem(f"the value {readable(name)!r} is defined twice")
        self.values[name] = Tensor(value) if isinstance(value, Value) else value

    # Types

    def kind(self, name: str) -> TensorKind | None:
        """What the graph states of a tensor; None if it states nothing."""
        meta = self.graph.tensor_values.get(name)
        if meta is None:
            return None
        subject = f"{self.context.name}: {readable(name)}"
        if meta.layout != 7:
            layout = LAYOUTS.get(meta.layout, str(meta.layout))
            raise Problem(f"{readable(name)!r}: {layout} tensors are not supported")
        dims = tuple([self.size(each) for each in meta.sizes])
        dtype = dtype_of(meta.dtype, subject)
        if dtype.startswith("complex"):
            dims, dtype = (*dims, int_imm(2)), parts_of(dtype)
        return TensorKind(dtype, len(dims), dims)

    def size(self, size: messages.Sized) -> Expr:
        """A dimension as an expression."""
        return as_expr(self.sized_number(size))

    def sized_number(self, size: messages.Sized) -> Any:
        """A number or expression of symbols."""
        if size.kind == "as_expr":
            return self.context.parsed(size.value.expr_str)
        if size.kind == "as_name":
            return self[size.value]
        return size.value

    def dims(self, value: Value) -> tuple[Expr, ...]:
        """The dimensions of a tensor, as the graph states them."""
        dims = value.dims
        if dims is None:
            raise Problem("expected a tensor whose rank is known")
        return dims

    def scalar(self, number: Any, dtype: str) -> Value:
        """A number, or an expression of symbols, as a tensor without dimensions."""
        if not isinstance(number, Expr):
            return Value(known=np.asarray(number).astype(as_dtype(dtype)))
        found = self.op("reshape", self.op("shape_to_tensor", ShapeExpr([number])), ())
        return Value(found if dtype == "int64" else self.op("astype", found, dtype))

    # Nodes

    def add_nodes(self, nodes: Iterable[messages.Node]) -> None:
        """Import nodes in order."""
        for node in nodes:
            checkpoint()
            self.node = node
            self.hint = node.name or "v"
            self.span = self.context.builder.place = self.context.places.of(node)
            try:
                self.add_node(node)
            except Problem as problem:
                raise Problem(self._at_node(node, problem)) from problem.__cause__
            except (
                TypeError, ValueError, ArithmeticError, IndexError, KeyError, AttributeError
            ) as error:  # fmt: skip
                raise Problem(self._at_node(node, error)) from error
            for name in self.watched.keys() & node.tensors() if self.watched else ():
                self.watched[name] = self[name]

    def _at_node(self, node: messages.Node, error: Exception) -> str:
        place = self.context.places.text_of(node)
        name = f" {readable(node.name)!r}" if node.name else ""
        at = f", {place}" if place else ""
        return f"node{name} ({readable(operator_name(node.target))}{at}): {error}"

    def add_node(self, node: messages.Node) -> None:
        """Import a node.

        Raises:
            Problem: it cannot be imported.
        """
        if self._is_computed(node):
            return
        name = operator_name(node.target)
        found = operator_of(self.context, name)
        if has_complex(self.graph, node):
            self._add_complex(node, None if found is None else found[0])
            return
        if found is None:
            raise Problem("the operator is not supported")
        operator, written = found
        if written == "self" and base_name(node.target) in _RESHAPING:
            written = None  # the result is a view of the same memory
        if base_name(node.target).startswith("as_strided"):
            given = node.inputs[0].arg
            if given.kind != "as_tensor" or not is_in_order(
                self.graph.tensor_values.get(given.value.name)
            ):
                raise Problem("strides of a tensor that is not contiguous are not supported")
        names = self._arguments(node, operator, written)
        if written is not None:
            self._write(node, operator, written, names)
            return
        if self.autocast is not None and written is None:
            names = self._cast_by_output(node, names)
        result = self.call(operator, names)
        for name in list(self._rewritten):
            target, new = names.get(name), self.value(self._rewritten.pop(name))
            if isinstance(target, Tensor) and isinstance(new, Value):
                self.write(target, new)
        self._define(node, operator, names, result)

    def _add_complex(self, node: messages.Node, operator: AtenOperator | None) -> None:
        """Import a node with complex numbers."""
        name = base_name(node.target)
        record = COMPLEX.get(name)
        if record is None and name not in BY_PARTS:
            raise Problem("the operator is not supported for complex numbers")
        own = operator if record is None else own_operator(record)
        assert own is not None
        positional = list(own.parameters)
        arguments = {
            each.name or positional[i]: self.argument(each.arg)
            for i, each in enumerate(node.inputs) if each.arg.kind not in ("as_device", "as_layout")
        }  # fmt: skip
        pairs = frozenset(
            id(self.named(each)) for each in node.operands() if is_complex(self.graph, each)
        )
        result = call_complex(self, name, operator, arguments, pairs)
        results = result if isinstance(result, list) else [result]
        for i, (output, value) in enumerate(zip(node.tensors(), results, strict=False)):
            self[output] = self._checked(output, value)
            back = COMPLEX_BACK.get(name) if record is not None else own.back
            base = next(iter(arguments.values()), None)
            if back is None and name not in SAME:
                continue
            before, after = [
                self.graph.tensor_values.get(each) for each in (node.operands()[0], output)
            ]
            if not isinstance(base, Tensor) or (base.is_lazy and name.startswith("resolve_")):
                continue
            if shares_memory(name, back is not None, before, after):
                part = i if isinstance(result, list) else None
                self.values[output] = base if name in SAME else self._complex_view(
                    name, operator, arguments, self[output], part, output
                )

    def _complex_view(
        self,
        name: str,
        operator: AtenOperator | None,
        arguments: Mapping[str, Any],
        content: Value,
        part: int | None,
        output: str,
    ) -> Tensor:
        """A result that shares the memory of the first argument, where one of them is complex."""
        (first, base), *others = arguments.items()
        rest = dict(others)
        extra = {} if part is None else {"part": part}
        assert self.node is not None
        is_pair = is_complex(self.graph, self.node.operands()[0])
        is_result_pair = is_complex(self.graph, output)

        def take(old: Value) -> Value:
            given = Tensor(old)
            pairs = frozenset({id(given)} if is_pair else ())
            found = call_complex(self, name, operator, {first: given, **rest}, pairs)
            found = found if part is None else found[part]
            assert isinstance(found, Value)
            return found

        def put(old: Value, new: Value) -> Value:
            found = put_complex(
                self, name, operator, (old, is_pair), (new, is_result_pair), {**rest, **extra}
            )
            return self.typed(self.expr(found), TensorKind(old.dtype, old.ndim, old.dims))

        view = Tensor(content, base, take, put)
        view.is_lazy = base.is_lazy != (name in ("conj", "_conj"))
        view.repeats = name in REPEATING
        return view

    def _is_computed(self, node: messages.Node) -> bool:
        """Define the results of a node that are numbers of known symbols."""
        values: list[tuple[str, Any]] = []
        for output in node.outputs:
            tables = {
                "as_sym_int": self.graph.sym_int_values,
                "as_sym_bool": self.graph.sym_bool_values,
                "as_sym_float": self.graph.sym_float_values,
            }
            if output.kind not in tables or output.value.kind != "as_name":
                return False
            size = tables[output.kind].get(output.value.value)
            if size is None:
                return False
            value = self.sized_number(size)
            if isinstance(value, Expr) and any(
                var.name not in self.context.known for var in free_vars(value)
            ):
                return False
            values.append((output.value.value, value))
        for name, value in values:
            self[name] = value
        return bool(values)

    def _arguments(
        self, node: messages.Node, operator: AtenOperator, written: str | None
    ) -> dict[str, Any]:
        """The arguments of a node by name; tensors as they are named."""
        found: dict[str, Any] = {}
        positional = list(operator.parameters)
        rest: list[Any] = []
        for i, each in enumerate(node.inputs):
            name = each.name or (positional[i] if i < len(positional) else f"argument {i}")
            name = "from_" if name == "from" else name  # a word of Python
            is_rest = operator.is_variadic and not each.name
            if name not in operator.parameters and name != written and not is_rest:
                if _is_left_out(each.arg):
                    continue
                raise Problem(f"the argument {readable(name)!r} is not supported")
            if operator.is_variadic and not each.name and i >= len(positional) - 1:
                rest.append(self.argument(each.arg))
                continue
            found[name] = self.argument(each.arg)
        if operator.is_variadic:
            found[positional[-1]] = rest
        for name, default in operator.parameters.items():
            if name not in found and default is REQUIRED:
                raise Problem(f"the argument {name!r} is missing")
        return found

    def argument(self, argument: messages.Argument) -> Any:
        """An argument: a `Tensor`, or a plain value, or a list of these."""
        kind, value = argument
        if kind == "as_tensor":
            return self.named(value.name)
        if kind in ("as_tensors", "as_nested_tensors"):
            return _mapped(lambda each: self.named(each.name), value)
        if kind == "as_optional_tensor":
            return self.argument(value)
        if kind == "as_optional_tensors":
            return [self.argument(each) for each in value]
        if kind in ("as_sym_int", "as_sym_float", "as_sym_bool"):
            return self.sized_number(value)
        if kind in ("as_sym_ints", "as_sym_floats", "as_sym_bools"):
            return [self.sized_number(each) for each in value]
        if kind == "as_none":
            return None
        if kind == "as_scalar_type":
            return dtype_of(value, self.context.name)
        if kind == "as_memory_format":
            return MEMORY_FORMATS.get(value, str(value))
        if kind == "as_layout":
            return LAYOUTS.get(value, str(value))
        if kind == "as_device":
            return value.type
        if kind == "as_complex":
            return complex(value.real, value.imag)
        if kind == "as_graph":
            return value.graph
        if kind == "as_string_to_argument":
            return {name: self.argument(each) for name, each in value.items()}
        if kind == "as_custom_obj":
            raise Problem(f"objects of {readable(value.class_fqn)} are not supported")
        return value

    def call(self, operator: AtenOperator, arguments: Mapping[str, Any]) -> Any:
        """What an operator's function returns, as values."""
        self.ranges = []
        if operator.back is None:  # what a view takes is taken again after a change
            for value in arguments.values():
                _mapped(_use, value)
        given = {
            name: _mapped(lambda each: each.read() if isinstance(each, Tensor) else each, value)
            for name, value in arguments.items()
        }
        for name, value in given.items():
            _check_kind(name, value, operator.kinds.get(name))
        if operator.is_raw:
            return operator.convert(self, **arguments)
        return _mapped(self.value, operator.convert(self, **given))

    def value(self, result: Any) -> Any:
        """What an operator returned as a value."""
        if isinstance(result, np.ndarray):
            return Value(known=normalized(result))
        if isinstance(result, (Var, Constant)) and isinstance(result.ty, TensorType):
            return Value(result)
        if isinstance(result, Expr) and not isinstance(number(result), Expr):
            return number(result)
        if isinstance(result, Expr) and isinstance(result.ty, TensorType):
            return Value(self.emit(result))
        return result

    def _write(
        self,
        node: messages.Node,
        operator: AtenOperator,
        written: str,
        arguments: dict[str, Any],
    ) -> None:
        """Import an in-place operator, or one that writes its result to `out`."""
        target = arguments[written] if written == "self" else arguments.pop(written)
        if not isinstance(target, Tensor):
            raise Problem(f"expected a tensor to write to, got {readable(str(target))}")
        if put_in_place(self, base_name(node.target), target, arguments):
            for output in node.outputs:
                if output.kind == "as_tensor":
                    self.values[output.value.name] = target
            return
        result = self.call(operator, arguments)
        if not isinstance(result, Value):
            raise Problem("operators with several results that are written are not supported")
        self.write(target, result)
        for output in node.outputs:
            if output.kind == "as_tensor":
                self.values[output.value.name] = target

    def rewrite(self, name: str, new: Any) -> None:
        """Let the tensor that the current operator has as an argument have another content."""
        self._rewritten[name] = new

    def write(self, target: Tensor, new: Value) -> None:
        """Let a tensor have another content, with its own data type and shape."""
        old = target.read()
        if new.dtype != old.dtype:
            new = Value(self.op("astype", new, old.dtype))
        kind = TensorKind(old.dtype, old.ndim, old.dims)
        target.write(self.typed(self.expr(new), kind))

    def _cast_by_output(
        self, node: messages.Node, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        """The arguments of a node in a region with autocast: where the graph states that the result
        has another data type of floats than they, they are cast to it first."""
        both = {self.autocast, "float32"}
        kind = None
        for output in node.outputs:
            if output.kind == "as_tensor":
                kind = kind or self.kind(output.value.name)
        if kind is None or kind.dtype not in both or "dtype" in arguments:
            return arguments
        dtype = kind.dtype

        def cast(value: Any) -> Any:
            if not isinstance(value, Tensor) or value.read().dtype not in both - {dtype}:
                return value
            return Tensor(Value(self.op("astype", value.read(), dtype)))

        return {name: _mapped(cast, value) for name, value in arguments.items()}

    def _define(
        self,
        node: messages.Node,
        operator: AtenOperator,
        arguments: Mapping[str, Any],
        result: Any,
    ) -> None:
        """Let the outputs of a node stand for the results."""
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        outputs: list[messages.Argument] = []
        for output in node.outputs:
            if output.kind == "as_tensors":
                outputs += [messages.Argument("as_tensor", name) for name in output.value]
            else:
                outputs.append(output)
        if len(results) < len(outputs):
            raise Problem(f"expected {len(outputs)} results, the operator has {len(results)}")
        is_list = isinstance(result, (tuple, list))
        ranges = self.ranges
        for i, (output, each) in enumerate(zip(outputs, results, strict=False)):
            if output.kind == "as_tensor":
                name = output.value.name
                if isinstance(each, Tensor):
                    self.values[name] = each
                    continue
                if each is None and not self._is_read(name):
                    continue
                self[name] = self._checked(name, each)
                base = next(iter(arguments.values()), None)
                if isinstance(base, list) and is_list and operator.back is not None:
                    view = self._view_of_one(operator, arguments, self[name], i)
                    view.repeats = base_name(node.target) in REPEATING
                    self.values[name] = view
                    continue
                if not isinstance(base, Tensor) or not self._shares(node, operator, name):
                    continue
                if base_name(node.target) in SAME and each is not base.read():
                    continue  # such as dropout in training
                if operator.back is None or base_name(node.target) in SAME:
                    self.values[name] = base
                else:
                    view = self._view(operator, arguments, self[name], i if is_list else None)
                    view.repeats = base_name(node.target) in REPEATING
                    view.key = ranges[i] if ranges else key_of(base_name(node.target), arguments)
                    self.values[name] = view
            elif output.kind in ("as_sym_int", "as_sym_float", "as_sym_bool"):
                self._define_number(output, each)
            elif output.kind != "as_none":
                raise Problem(f"results of the kind {output.kind} are not supported")

    def _is_read(self, name: str) -> bool:
        """Whether a node or an output of the graph has a tensor."""
        return any(name in node.operands() for node in self.graph.nodes) or any(
            each.kind == "as_tensor" and each.value.name == name for each in self.graph.outputs
        )

    def _shares(self, node: messages.Node, operator: AtenOperator, name: str) -> bool:
        """Whether a result shares the memory of the first argument."""
        given = node.inputs[0].arg
        before = self.graph.tensor_values.get(given.value.name) if (
            given.kind == "as_tensor") else None  # fmt: skip
        after = self.graph.tensor_values.get(name)
        return shares_memory(
            base_name(node.target), operator.back is not None, before, after
        )

    def _checked(self, name: str, value: Any) -> Value:
        """A result with the type that the graph states."""
        kind = self.kind(name)
        if not isinstance(value, Value):
            raise Problem(f"expected a tensor as result {readable(name)!r}, got {value!r}")
        if kind is None:
            return value
        if value.dtype != kind.dtype:
            raise Problem(f"result {readable(name)!r}: expected {kind.dtype}, got {value.dtype}")
        if value.known is not None:
            return value
        checked = self.typed(self.expr(value), kind, name)
        self.context.know(kind)
        return checked

    def _view(
        self,
        operator: AtenOperator,
        arguments: Mapping[str, Any],
        content: Value,
        part: int | None,
    ) -> Tensor:
        """A result that shares the memory of the first argument."""
        (first, base), *others = arguments.items()
        rest = dict(others)
        if not isinstance(base, Tensor):
            return Tensor(content)
        back = operator.back
        assert back is not None
        extra = {} if part is None else {"part": part}
        node = self.node

        def take(old: Value) -> Value:
            current, self.node = self.node, node
            found = self.call(operator, {first: old, **rest})
            self.node = current
            found = found if part is None else found[part]
            assert isinstance(found, Value)
            return found

        def put(old: Value, new: Value) -> Value:
            given = {name: value.read() if isinstance(value, Tensor) else value
                     for name, value in rest.items()}  # fmt: skip
            found = self.value(back(self, old, new, **given, **extra))
            assert isinstance(found, Value)
            # A tensor keeps its shape.  Without this its lengths would be those of the joined
            # parts, and grow with each write.
            return self.typed(self.expr(found), TensorKind(old.dtype, old.ndim, old.dims))

        return Tensor(content, base, take, put)

    def _view_of_one(
        self, operator: AtenOperator, arguments: Mapping[str, Any], content: Value, part: int
    ) -> Tensor:
        """A result that shares the memory of one tensor of a list, the first argument."""
        (first, tensors), *others = arguments.items()
        rest = dict(others)
        back = operator.back
        assert back is not None

        def given(old: Value) -> list[Value]:
            found = [each.read() for each in tensors]
            found[part] = old
            return found

        def take(old: Value) -> Value:
            found = self.call(operator, {first: given(old), **rest})[part]
            assert isinstance(found, Value)
            return found

        def put(old: Value, new: Value) -> Value:
            found = self.value(back(self, given(old), new, **rest, part=part))
            return self.typed(self.expr(found), TensorKind(old.dtype, old.ndim, old.dims))

        return Tensor(content, tensors[part], take, put)

    def _define_number(self, output: messages.Argument, value: Any) -> None:
        """Let a name stand for a number that an operator computes when the program runs; it is a
        tensor of one element."""
        name = output.value.value
        if not isinstance(value, Value):
            self.values[name] = value
            return
        tables = {
            "as_sym_int": self.graph.sym_int_values,
            "as_sym_bool": self.graph.sym_bool_values,
            "as_sym_float": self.graph.sym_float_values,
        }
        size = tables[output.kind].get(name)
        if size is None:
            raise Problem(f"nothing is known of the number {readable(name)!r}")
        found = self.sized_number(size)
        unknown = [var for var in free_vars(found) if var.name not in self.context.known] if (
            isinstance(found, Expr)) else []  # fmt: skip
        if len(unknown) != 1:
            raise Problem(f"the number {readable(name)!r} is not one symbol")
        symbol = unknown[0]
        self.context.known.add(symbol.name)
        if output.kind == "as_sym_float":
            number_var = self.builtin("number_from", [value], PrimType("float64"))
            self.context.define(symbol.name, number_var)
            self.values[name] = self.sized_number(size)
            return
        flat = Value(self.op("reshape", value, (1,)))
        if flat.dtype != "int64":
            flat = Value(self.op("astype", flat, "int64"))
        shape = self.emit(CONSTRUCTORS["tensor_to_shape"](self.expr(flat)), "shape")
        self.context.builder.match_cast(shape, ShapeType([symbol]))
        self.values[name] = found

    # Graphs within this one

    @contextmanager
    def inner_scope(self) -> Iterator[None]:
        """The body of a branch: variables and symbols that it binds are not visible outside."""
        known = set(self.context.known)
        with self.context.scope():
            yield
        self.context.known = known

    def subgraph(self, graph: messages.Graph, arguments: Sequence[Any]) -> list[Any]:
        """Import the nodes of a graph into the current scope; its results, tensors as values."""
        found = self.inlined(graph, [Tensor(v) if isinstance(v, Value) else v for v in arguments])
        return [each.read() if isinstance(each, Tensor) else each for each in found]

    def inlined(
        self, graph: messages.Graph, arguments: Sequence[Any], autocast: str | None = None
    ) -> list[Any]:
        """As `subgraph`, with tensors as they are named.

        Args:
            autocast: the data type that operators of the graph may choose.
        """
        if len(arguments) != len(graph.inputs):
            raise Problem(f"the graph has {len(graph.inputs)} inputs, expected {len(arguments)}")
        self.context.nodes += len(graph.nodes)
        if self.context.nodes > _MOST_NODES:
            raise Problem(
                f"more than {_MOST_NODES} nodes within graphs, each time they are imported"
            )
        inner = Graph(self.context, graph)
        inner.autocast = autocast
        for parameter, value in zip(graph.inputs, arguments, strict=True):
            if parameter.kind == "as_tensor":
                inner.values[parameter.value.name] = value
            elif parameter.kind.startswith("as_sym") and parameter.value.kind == "as_name":
                inner.values[parameter.value.value] = value
        inner.add_nodes(graph.nodes)
        self.span = self.context.builder.place = (
            None if self.node is None else self.context.places.of(self.node)
        )
        return [inner.argument(output) for output in graph.outputs]


def _check_kind(name: str, value: Any, expected: str | None) -> None:
    """Check an argument; None passes, since a function says itself whether it may be left out."""
    if isinstance(value, Value):
        kind = "a tensor"
    elif isinstance(value, messages.Graph):
        kind = "a graph"
    elif isinstance(value, (list, dict)):
        kind = "a list"
    elif isinstance(value, str):
        kind = "a text"
    else:
        kind = "a number"
    if (value is not None and kind != (expected or kind)) or (
        kind == "a graph" and expected is None
    ):  # fmt: skip
        raise Problem(f"the argument {name!r}: expected {expected or 'a value'}, got {kind}")


def _use(value: Any) -> None:
    if isinstance(value, Tensor):
        value.storage.is_used = True


def _is_left_out(argument: messages.Argument) -> bool:
    """Whether an argument that the function does not have means nothing."""
    return argument.kind == "as_none" or argument.kind in ("as_device", "as_layout") or (
        argument.kind == "as_bool" and not argument.value
    )  # fmt: skip


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_mapped(function, each) for each in value]
    return function(value)
