"""What a program takes and returns, and the state that it keeps.

The function "main" has the parameters of the user's model, and returns what that returns.  A
parameter that is no tensor is taken apart where the program begins; buffers that the model changes
are read there, and written where it ends.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from ...ir import (
    ANY,
    Constant,
    Expr,
    IntImm,
    ShapeExpr,
    ShapeType,
    StringImm,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    int_imm,
    prim,
)
from ...ir.arith import free_vars, prove_equal, simplify
from ...ir.substitution import substitute_vars
from ...messages import describe, readable
from ...op.registry import CONSTRUCTORS
from ..common.emitter import BUILTIN_PREFIX, Problem, identifier
from ..common.values import TensorKind, Value
from . import messages
from .aliases import Tensor
from .graph import Graph, base_name, operator_name, operator_of
from .pairs import is_complex, parts_of
from .strides import may_share
from .symbols import parsed
from .trees import LEAF, Tree, parameters_of, read_tree

__all__ = ["Interface"]

_MOST: Final = (1 << 63) - 1
_LEAST_CHECKED: Final = 2
"""A bound up to this is not checked, as in torch: programs for 2 and more also take 0 and 1."""

_LABELS: Final = {
    "parameter": "parameter_name",
    "buffer": "buffer_name",
    "tensor_constant": "tensor_constant_name",
}


class _Leaf(NamedTuple):
    """A leaf of an argument.

    Attributes:
        name: of the value in the graph.
        argument: the argument of the graph; None for a constant.
        constant: the value that the program was exported for.
    """

    name: str
    argument: messages.Argument | None
    constant: Any = None


def _of_any_number(place: str) -> str:
    """The place of an argument in ``*args`` or ``**kwargs``, which is a parameter here."""
    found = re.match(r"L\['(\w+)'\]\[(?:(\d+)|'(\w+)')\]", place)
    if found is None:
        return place
    label = f"{found[1]}_{found[2]}" if found[3] is None else found[3]
    return f"L[{label!r}]{place[found.end() :]}"


class Interface:
    """The inputs and outputs of a program.

    Args:
        top: its graph.
        program: its message.
        tensors: name -> parameters, buffers and constants.
        keeps_params: whether parameters become parameters of the function, after the inputs.
        is_functional: whether what the program changes are parameters and results, and nothing is
            kept.
        is_flat: whether inputs and outputs are those of the graph, without the user's structures.

    Attributes:
        params: of the function.
        attrs: of the function.
        is_pure: whether running the function changes nothing.
    """

    def __init__(
        self,
        top: Graph,
        program: messages.ExportedProgram,
        tensors: Mapping[str, NDArray[Any]],
        *,
        keeps_params: bool = False,
        is_functional: bool = False,
        is_flat: bool = False,
    ) -> None:
        self._top = top
        self._program = program
        self._tensors = tensors
        self._is_functional = is_functional
        self.params: list[Var] = []
        self._names: set[str] = set()
        self._nested: list[tuple[Var, Tree, list[_Leaf]]] = []
        self._casts: list[tuple[str, TensorKind]] = []
        self._solved: list[tuple[Var, Expr]] = []
        self._paths: dict[str, str] = {}
        self._defined: set[str] = set()
        self._guards: list[tuple[str, Expr]] = []
        self._checked: list[tuple[str, Expr, int, int]] = []
        self._states: dict[str, tuple[str, NDArray[Any]]] = {}
        self._open: dict[str, Tensor] = {}
        self._kept: list[Any] = []
        self._inputs: dict[str, Expr] = {}
        signature = program.graph_module.signature
        self._written = _written(top, signature)
        calls = [c.signature for c in program.graph_module.module_call_graph if c.fqn == ""]
        if not calls or calls[0] is None:
            raise FormatError(f"{top.context.name}: the program does not say how it is called")
        self._call = calls[0]
        self._named = program.graph_module.treespec_namedtuple_fields
        self._is_flat = is_flat
        self._add_inputs(signature, keeps_params)
        changes = self._states or self._written_inputs()
        self.is_pure = is_functional or not changes
        self.is_pure = self.is_pure and not self._checked and not self._guards
        self.attrs: dict[str, Any] = {"num_input": self._count}
        if self._kept:
            self.attrs["params"] = self._kept

    # Inputs

    def _add_inputs(self, signature: messages.Signature, keeps_params: bool) -> None:
        user: list[_Leaf] = []
        own: list[tuple[str, str, str]] = []
        for kind, content in signature.input_specs:
            if kind in _LABELS:
                own.append((kind, content.arg.name, getattr(content, _LABELS[kind])))
            elif kind == "user_input":
                name = _name_of(content.arg)
                if content.arg.kind not in ("as_tensor", "as_sym_int"):
                    user.append(_Leaf(name, None, content.arg.value))
                else:
                    user.append(_Leaf(name, content.arg))
            elif kind == "constant_input":
                user.append(_Leaf(content.name, None, content.value.value))
                if content.value.kind == "as_none":
                    user[-1] = user[-1]._replace(constant=None)
            elif kind == "custom_obj":
                raise Problem(
                    f"the input {readable(content.custom_obj_name)!r} is an object of "
                    f"{readable(content.arg.class_fqn)}, which is not supported"
                )
            else:
                raise Problem(f"inputs of the kind {kind} are not supported")
        self._name_symbols(user)
        self._add_user_inputs(user)
        self._count = len(self.params)
        for kind, name, label in own:
            self._add_own(kind, name, label, keeps_params)
        self._add_ranges(user)
        self._add_guards()

    def _name_symbols(self, user: Sequence[_Leaf]) -> None:
        """Let the symbols that are inputs themselves have the names of the inputs."""
        for leaf in user:
            if leaf.argument is not None and leaf.argument.kind == "as_sym_int":
                size = self._top.graph.sym_int_values.get(leaf.name)
                if size is None:
                    raise Problem(f"nothing is known of the input {readable(leaf.name)!r}")
                if size.kind == "as_expr":
                    self._name_symbol(size.value.expr_str, leaf.name)

    def _know(self, leaves: Sequence[_Leaf]) -> None:
        """Remember the symbols that inputs define: numbers, and lengths that are one symbol."""
        for leaf in leaves:
            found: Sequence[Any] = ()
            if leaf.argument is not None and leaf.argument.kind == "as_sym_int":
                found = [self._top.sized_number(self._top.graph.sym_int_values[leaf.name])]
            elif leaf.argument is not None:
                kind = self._top.kind(leaf.name)
                found = (kind.dims if kind is not None else None) or ()
            self._top.context.known.update(each.name for each in found if isinstance(each, Var))

    def _name_symbol(self, text: str, name: str) -> None:
        """Let the variable of a symbol have the name of the input that it is."""
        found: list[str] = []

        def seen(symbol: str) -> Any:
            found.append(symbol)
            return int_imm(1)

        parsed(text, seen)
        symbols = self._top.context.symbols
        is_alone = text.isidentifier() or (text.startswith("Symbol(") and text.count("(") == 1)
        if len(found) == 1 and is_alone and found[0] not in symbols:
            symbols[found[0]] = Var(self._unique(name), "int64")

    def _add_user_inputs(self, user: list[_Leaf]) -> None:
        subject = f"{self._top.context.name}: inputs"
        if self._is_flat:
            parameters = [(leaf.name, LEAF) for leaf in user]
        else:
            tree = read_tree(self._call.in_spec, self._named, subject)
            parameters = parameters_of(tree, self._call.forward_arg_names, subject)
        count = sum(tree.leaves() for _, tree in parameters)
        if count != len(user):
            raise FormatError(f"{subject}: expected {count} values, the graph has {len(user)}")
        rest = iter(user)
        given = [[next(rest) for _ in range(tree.leaves())] for _, tree in parameters]
        # Parameters are defined where the function is entered, what is within them after that.
        for leaf in user:
            if leaf.argument is not None and is_complex(self._top.graph, leaf.name):
                raise Problem(
                    f"the input {readable(leaf.name)!r} is a tensor of complex numbers: let the "
                    "model take real numbers, and call torch.view_as_complex"
                )
        for (_, tree), leaves in zip(parameters, given, strict=True):
            if tree.kind == "leaf":
                self._know(leaves)
        for (label, tree), leaves in zip(parameters, given, strict=True):
            self._paths |= zip(
                tree.paths(f"L[{label!r}]"), [leaf.name for leaf in leaves], strict=True
            )
            if tree.kind == "leaf" and leaves[0].argument is not None:
                self._add_leaf(label, leaves[0])
            else:
                param = Var(self._unique(label), ANY)
                self.params.append(param)
                self._nested.append((param, tree, leaves))

    def _unique(self, label: str) -> str:
        wanted = found = identifier(label)
        number = 0
        while found in self._names:
            number += 1
            found = f"{wanted}_{number}"
        self._names.add(found)
        return found

    def _add_leaf(self, label: str, leaf: _Leaf) -> None:
        assert leaf.argument is not None
        if leaf.argument.kind == "as_sym_int":
            value = self._top.sized_number(self._top.graph.sym_int_values[leaf.name])
            if isinstance(value, Var) and value not in self.params:
                self.params.append(value)
            else:
                self.params.append(Var(self._unique(label), "int64"))
            self._top[leaf.name] = value
            return
        kind = self._kind_of_input(leaf.name)
        param = Var(self._unique(label), TensorType(kind.dims, kind.dtype))
        self.params.append(param)
        self._top[leaf.name] = Value(param)

    def _kind_of_input(self, name: str) -> TensorKind:
        """What is known of an input; a dimension that defines a symbol by an expression gets a
        variable of its own, and the symbol is found from it."""
        kind = self._top.kind(name)
        if kind is None:
            raise Problem(f"there is no type of the input {readable(name)!r}")
        dims: list[Expr] = []
        for i, dim in enumerate(kind.dims or ()):
            assert dim is not None
            unknown = [v for v in free_vars(dim) if v.name not in self._top.context.known]
            if not unknown or isinstance(dim, Var):
                dims.append(dim)
                continue
            own = Var(f"{identifier(name)}_{i}", "int64")
            dims.append(own)
            if len(unknown) == 1:
                self._solved.append((unknown[0], _solution(dim, unknown[0], own, name)))
                self._top.context.known.add(unknown[0].name)
                self._casts.append((name, kind))
        return kind._replace(dims=tuple(dims))

    def _add_own(self, kind: str, name: str, label: str, keeps_params: bool) -> None:
        if label not in self._tensors:
            raise FormatError(
                f"{self._top.context.name}: the archive has no tensor {readable(label)!r}"
            )
        array = np.asarray(self._tensors[label])
        if array.dtype.kind == "c":
            part = np.dtype(parts_of(array.dtype.name))
            array = np.ascontiguousarray(array).view(part).reshape(*array.shape, 2)
        stated = self._top.kind(name)
        if stated is not None and (
            stated.dtype != array.dtype.name
            or [getattr(dim, "value", None) for dim in stated.dims or ()] != list(array.shape)
        ):
            dims = ", ".join(map(str, stated.dims or ()))
            raise FormatError(
                f"{self._top.context.name}: tensor {readable(label)!r}: the graph states "
                f"{stated.dtype}[{dims}], got {describe(array)}"
            )
        is_state = name in self._written
        as_param = (self._is_functional and is_state) or (
            keeps_params and kind == "parameter" and not is_state
        )
        if as_param:
            param = Var(self._unique(name), TensorType(array.shape, array.dtype.name))
            self.params.append(param)
            self._kept.append(array)
            self._top[name] = Value(param)
        else:
            self._top[name] = Value(Constant(array))
        if is_state:
            self._states[name] = (label, array)

    def _add_ranges(self, user: Sequence[_Leaf]) -> None:
        """Remember the bounds of the dimensions of inputs, for the checks at the entry."""
        ranges = self._program.range_constraints
        seen: set[str] = set()
        symbols = {var: name for name, var in self._top.context.symbols.items()}
        for leaf in user:
            kind = self._top.kind(leaf.name) if leaf.argument is not None else None
            dims: Sequence[Any] = (kind.dims or ()) if kind is not None else ()
            where = [f"{leaf.name}: axis {i}" for i, _ in enumerate(dims)]
            if leaf.argument is not None and leaf.argument.kind == "as_sym_int":
                size = self._top.graph.sym_int_values[leaf.name]
                dims, where = [self._top.sized_number(size)], [leaf.name]
            for place, dim in zip(where, dims, strict=True):
                for var in free_vars(dim) if isinstance(dim, Expr) else ():
                    bounds = ranges.get(symbols.get(var, ""))
                    if bounds is None or var.name in seen:
                        continue
                    seen.add(var.name)
                    least, most = bounds.min_val, bounds.max_val
                    low = least if least is not None and least > _LEAST_CHECKED else -_MOST
                    high = most if most is not None and most < _MOST else _MOST
                    if low > -_MOST or high < _MOST:
                        text = place if isinstance(dim, Var) else f"{place}: {var.name}"
                        self._checked.append((text, var, low, high))

    def _add_guards(self) -> None:
        """Remember what the program was specialized for, for the checks at the entry."""
        for text in self._program.guards_code:
            try:
                found = self._guard(text)
            except Problem as problem:
                warnings.warn(
                    f"{self._top.context.name}: a guard of the program is not checked: {problem}",
                    stacklevel=2,
                )
                continue
            if found is not True:
                condition = found if isinstance(found, Expr) else prim.immediate("bool", False)
                self._guards.append((text, condition))

    def _guard(self, text: str) -> Any:
        """A guard as a bool or an expression of symbols that are known."""
        found = parsed(text, self._top.context.symbol, self._place)
        if isinstance(found, Expr):
            unknown = [v for v in free_vars(found) if v.name not in self._symbols_of_inputs()]
            if unknown:
                raise Problem(f"{readable(text)}: {unknown[0].name} is not known")
        if not isinstance(found, bool) and getattr(
            getattr(found, "ty", None), "dtype", ""
        ) != "bool":
            raise Problem(f"{readable(text)}: expected a condition")
        return found

    def _symbols_of_inputs(self) -> set[str]:
        """The names of the symbols that the inputs define."""
        if not self._defined:
            self._defined = set(self._top.context.known)
            for _, _, leaves in self._nested:
                for leaf in leaves:
                    kind = self._top.kind(leaf.name) if leaf.argument is not None else None
                    for dim in (kind.dims or ()) if kind is not None else ():
                        if isinstance(dim, Var):
                            self._defined.add(dim.name)
                    if leaf.argument is not None and leaf.argument.kind == "as_sym_int":
                        size = self._top.graph.sym_int_values[leaf.name]
                        found = self._top.sized_number(size)
                        self._defined.update([found.name] if isinstance(found, Var) else [])
        return self._defined

    def _place(self, path: str) -> Any:
        """The number at a place of the inputs."""
        tensor, size, axis = path.rpartition(".size()")
        place = tensor if size else path
        name = self._paths.get(place) or self._paths.get(_of_any_number(place))
        if name is None:
            raise ValueError(f"there is no input {readable(path)}")
        if not size:
            return self._top.sized_number(self._top.graph.sym_int_values[name])
        kind = self._top.kind(name)
        dims = (kind.dims or ()) if kind is not None else ()
        at = int(axis.strip("[]"))
        if not 0 <= at < len(dims):
            raise ValueError(f"there is no axis {readable(path)}")
        return dims[at]

    def begin(self) -> None:
        """Emit what comes before the nodes."""
        top = self._top
        for param, tree, leaves in self._nested:
            self._take_apart(param, tree, leaves)
        builder = top.context.builder
        for var, value in self._solved:
            builder.match_cast(ShapeExpr([value]), ShapeType([var]))
        for name, kind in self._casts:
            expr = top.expr(top[name])
            cast = builder.match_cast(expr, TensorType(kind.dims, kind.dtype))
            top.values.pop(name)
            top[name] = Value(cast)
        for place, number, least, most in self._checked:
            _impure(top, "within", [number, int_imm(least), int_imm(most), StringImm(place)])
        for text, condition in self._guards:
            message = f"the program was exported for {text.replace('L[', '[')}"
            self._top.context.effects += 1
            escaped = message.replace("{", "{{").replace("}", "}}")
            top.emit(CONSTRUCTORS["assert_op"](condition, [], escaped))
        if self._is_functional:
            return
        self._inputs = {name: top.expr(top[name]) for name in self._written_inputs()}
        for name, (label, array) in self._states.items():
            call = CONSTRUCTORS["call_builtin_with_ctx"](
                f"{BUILTIN_PREFIX}state_open", [StringImm(label), Constant(array)],
                ty_args=TensorType(array.shape, array.dtype.name),
            )  # fmt: skip
            top.values.pop(name)
            top[name] = Value(top.emit(call, name))
            kept = top.named(name)
            kept.is_kept = True
            self._open[name] = kept

    def _take_apart(self, param: Var, tree: Tree, leaves: Sequence[_Leaf]) -> None:
        top = self._top
        forms: list[Any] = []
        given: list[tuple[_Leaf, Any]] = []
        for leaf in leaves:
            if leaf.argument is None:
                forms.append(["constant", leaf.constant])
                top.values[leaf.name] = leaf.constant
            else:
                is_int = leaf.argument.kind == "as_sym_int"
                forms.append(["int"] if is_int else None)
                given.append((leaf, is_int))
        text = json.dumps(tree.data(iter(forms)))
        ty = TupleType([ANY] * len(given))
        found = top.builtin("tree_leaves", [StringImm(text), param, StringImm(param.name)], ty)
        for i, (leaf, is_int) in enumerate(given):
            item = top.emit(TupleGetItem(found, i), leaf.name)
            if is_int:
                value = top.sized_number(top.graph.sym_int_values[leaf.name])
                top.context.builder.match_cast(item, ShapeType([value]))
                self._know([leaf])
                top[leaf.name] = value
            else:
                self._know([leaf])
                kind = self._kind_of_input(leaf.name)
                top[leaf.name] = top.typed(item, kind, leaf.name)

    # Outputs

    def _written_inputs(self) -> list[str]:
        found = []
        for kind, content in self._program.graph_module.signature.input_specs:
            if kind == "user_input" and content.arg.kind == "as_tensor" and (
                content.arg.value.name in self._written
            ):  # fmt: skip
                found.append(content.arg.value.name)
        return found

    def end(self) -> Expr:
        """Emit what comes after the nodes; the result of the function."""
        top = self._top
        outputs: list[messages.Argument] = []
        changed: dict[str, Value] = {}
        by_label = {label: name for name, (label, _) in self._states.items()}
        for kind, content in self._program.graph_module.signature.output_specs:
            if kind == "user_output":
                outputs.append(content.arg)
            elif kind == "loss_output":
                outputs.append(messages.Argument("as_tensor", content.arg))
            elif kind in ("buffer_mutation", "parameter_mutation"):
                label = getattr(content, kind.replace("mutation", "name"))
                changed[by_label[label]] = top[content.arg.name]
            elif kind == "user_input_mutation":
                changed[content.user_input_name] = top[content.arg.name]
            else:
                raise Problem(f"outputs of the kind {kind} are not supported")
        for name in [*self._states, *self._written_inputs()]:
            if name not in changed:
                changed[name] = top[name]
        placed = [top.expr(each.placed) for each in self._open.values() if each.placed is not None]
        result = self._result(outputs, placed)
        if self._is_functional:
            news = [top.expr(value) for value in changed.values()]
            return Tuple([result, Tuple(news)]) if news else result
        if changed and not isinstance(result, (Var, Constant)):
            result = Tuple([*result.fields]) if isinstance(result, Tuple) else top.emit(result)
        for name, value in changed.items():
            if name in self._states:
                if value is self._open[name].placed:
                    continue  # it is there already
                call = CONSTRUCTORS["call_builtin_with_ctx"](
                    f"{BUILTIN_PREFIX}state_write",
                    [StringImm(self._states[name][0]), top.expr(value)], ty_args=ANY,
                )  # fmt: skip
                top.emit(call)
            else:
                _impure(top, "assign", [self._inputs[name], top.expr(value), StringImm(name)])
        return result

    def _result(self, outputs: Sequence[messages.Argument], placed: Sequence[Expr]) -> Expr:
        """What the program returns; no result is memory of `placed`, which later calls change."""
        top = self._top
        subject = f"{top.context.name}: outputs"
        tree = read_tree(self._call.out_spec, self._named, subject)
        if self._is_flat:
            tree = Tree("tuple", (LEAF,) * len(outputs))
        if tree.leaves() != len(outputs):
            raise FormatError(
                f"{subject}: expected {tree.leaves()} values, the graph has {len(outputs)}"
            )
        forms: list[Any] = []
        values: list[Expr] = []
        for output in outputs:
            value = top.argument(output)
            value = value.read() if hasattr(value, "read") else value
            if isinstance(value, (Value, Expr)):
                forms.append(None if isinstance(value, Value) else ["int"])
                expr = top.expr(value) if isinstance(value, Value) else value
                if output.kind == "as_tensor" and is_complex(top.graph, output.value.name):
                    expr = top.builtin("complex_from", [expr])
                if placed and isinstance(value, Value) and value.known is None:
                    expr = top.emit(CONSTRUCTORS["call_packed"](
                        f"{BUILTIN_PREFIX}unshared", expr, Tuple(placed), ty_args=value.type,
                    ))  # fmt: skip
                values.append(expr)
            else:
                forms.append(["constant", value])
        if (None not in forms and values) or any(form is not None for form in forms) or (
            not _is_plain(tree)
        ):  # fmt: skip
            text = json.dumps(tree.data(iter(forms)))
            return top.builtin("tree_from", [StringImm(text), *values])
        return _nested_tuple(tree, iter(values))


def _is_plain(tree: Tree) -> bool:
    return tree.kind == "leaf" or (tree.kind == "tuple" and all(map(_is_plain, tree.parts)))


def _nested_tuple(tree: Tree, values: Iterator[Expr]) -> Expr:
    if tree.kind == "leaf":
        return next(values)
    return Tuple([_nested_tuple(part, values) for part in tree.parts])


def _name_of(argument: messages.Argument) -> str:
    if argument.kind == "as_tensor":
        return str(argument.value.name)
    if argument.kind.startswith("as_sym") and argument.value.kind == "as_name":
        return str(argument.value.value)
    return ""


def _impure(top: Graph, name: str, args: Sequence[Expr]) -> None:
    """Bind a call of a builtin that has an effect."""
    top.emit(CONSTRUCTORS["call_packed"](BUILTIN_PREFIX + name, *args, ty_args=ANY))


def _solution(dim: Expr, symbol: Var, value: Var, name: str) -> Expr:
    """The symbol for which a dimension, a linear expression of it, has a value."""
    at_0, at_1, at_2 = [simplify(substitute_vars(dim, {symbol: int_imm(i)})) for i in range(3)]
    step, next_step = simplify(at_1 - at_0), simplify(at_2 - at_1)
    if not isinstance(step, IntImm) or step.value == 0 or not prove_equal(step, next_step):
        raise Problem(f"the dimension {dim} of the input {readable(name)!r} is not supported")
    return simplify((value - at_0) // step)


def _written(top: Graph, signature: messages.Signature) -> set[str]:
    """The names of graph inputs that a program changes."""
    roots: dict[str, str] = {}
    labels: dict[str, str] = {}
    for kind, content in signature.input_specs:
        if kind in _LABELS:
            roots[content.arg.name] = content.arg.name
            labels[getattr(content, _LABELS[kind])] = content.arg.name
        elif kind == "user_input" and content.arg.kind == "as_tensor":
            roots[content.arg.value.name] = content.arg.value.name
    found: set[str] = set()
    for kind, content in signature.output_specs:
        if kind in ("buffer_mutation", "parameter_mutation"):
            label = getattr(content, kind.replace("mutation", "name"))
            if label not in labels:
                raise Problem(f"the program changes {readable(label)!r}, which it does not have")
            found.add(labels[label])
        elif kind == "user_input_mutation":
            found.add(content.user_input_name)
    _follow(top, top.graph, roots, found)
    return found


def _follow(top: Graph, graph: messages.Graph, roots: dict[str, str], found: set[str]) -> None:
    """Follow views and writes through the nodes of a graph."""
    for node in graph.nodes:
        operator = operator_of(top.context, operator_name(node.target))
        if operator is None:
            continue
        record, written = operator
        given = {each.name: each.arg for each in node.inputs}
        graphs = [each.arg.value.graph for each in node.inputs if each.arg.kind == "as_graph"]
        if graphs:
            _follow_into(top, node, graphs, roots, found, record.is_raw)
            continue
        if record.writes and (flag := given.get(record.writes[0])) and flag.value is True:
            for name in record.writes[1:]:
                tensor = given.get(name)
                if tensor is not None and tensor.kind == "as_tensor":
                    found.add(roots.get(tensor.value.name, ""))
        target = given.get(written) if written else None
        if target is not None and target.kind == "as_tensor":
            root = roots.get(target.value.name)
            if root is not None:
                found.add(root)
                for output in node.outputs:
                    if output.kind == "as_tensor":
                        roots[output.value.name] = root
        elif may_share(base_name(node.target), record.back is not None) and node.inputs:
            first = node.inputs[0].arg
            root = roots.get(first.value.name) if first.kind == "as_tensor" else None
            if root is not None:
                for output in node.outputs:
                    names = output.value if output.kind == "as_tensors" else [output.value]
                    for name in names if output.kind in ("as_tensor", "as_tensors") else ():
                        roots[name.name] = root


def _follow_into(
    top: Graph,
    node: messages.Node,
    graphs: Sequence[messages.Graph],
    roots: dict[str, str],
    found: set[str],
    is_inlined: bool,
) -> None:
    """Follow views and writes through graphs within a node, whose inputs are the last operands."""
    operands: list[str] = []
    for each in node.inputs:
        if each.arg.kind == "as_tensor":
            operands.append(each.arg.value.name)
        elif each.arg.kind == "as_tensors":
            operands += [name.name for name in each.arg.value]
    for graph in graphs:
        names = [each.value.name for each in graph.inputs if each.kind == "as_tensor"]
        given = operands[max(0, len(operands) - len(names)) :]
        inner = {
            name: roots[operand]
            for name, operand in zip(names, given, strict=False)
            if operand in roots
        }
        _follow(top, graph, inner, found)
        if not is_inlined:
            continue
        for output, result in zip(node.outputs, graph.outputs, strict=False):
            if output.kind == result.kind == "as_tensor" and result.value.name in inner:
                roots[output.value.name] = inner[result.value.name]
