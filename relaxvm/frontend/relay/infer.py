"""Type inference of Relay programs.

Types of parameters, results and variables may be left out.  The call of an operator has a type as
soon as those of its operands are known, by the rules of relaxvm's operators; until then it waits.
A function of the program is inferred before those that use it; functions that use each other are
inferred together, with one type for all uses unless it is written down.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ...core.checkpoints import checkpoint
from ...dtypes import dtype_name
from ...errors import TypeSizeError, did_you_mean
from ...ir import (
    MOST_TYPE_PARTS,
    Constant,
    Expr,
    IntImm,
    TensorType,
    Tuple,
    TupleType,
    Var,
    infer_type,
)
from . import syntax
from .operators import OPERATORS, apply
from .scopes import Definitions
from .source import Place
from .types import (
    BOOL,
    UNIT,
    DataTy,
    FuncTy,
    Mismatch,
    Param,
    RefTy,
    TensorTy,
    TupleTy,
    Ty,
    Unifier,
    Variable,
    resolved,
    show,
)

__all__ = ["Annotations", "infer_types"]

_MOST_LISTED: Final = 20


def infer_types(definitions: Definitions) -> None:
    """Infer the types of all expressions and variables of a program whose names are resolved.

    Raises:
        ParseError: an expression has not the type that it must have, a type is not known, or there
            are operators without a counterpart, all of which the message lists.
        TypeSizeError: types are too large.
    """
    uses = {f.name: list(_names_in(f.function)) for f in definitions.functions.values()}
    _check_operators(itertools.chain.from_iterable(uses.values()))
    constructors = {c.name: _constructor_type(c, definitions)
                    for c in definitions.constructors.values()}  # fmt: skip
    inference = _Inference(definitions, constructors)
    for func in definitions.functions.values():
        inference.declare(func)
    for group in _groups(definitions, uses):
        inference.group(group)
    inference.finish()


def _constructor_type(constructor: syntax.ConstructorDef, definitions: Definitions) -> FuncTy:
    """The type of a constructor: a function of its fields."""
    owner = constructor.owner
    assert owner is not None
    params = {name: Param(name) for name in owner.params}
    reader = Annotations(definitions, params, holes=False)
    fields = [reader.read(field) for field in constructor.fields]
    return FuncTy(fields, DataTy(owner, tuple(params.values())), tuple(params.values()))


# Names


def _names_in(function: syntax.Function) -> Iterable[syntax.Name | syntax.GlobalName]:
    """The operators, constructors and functions that a function uses."""
    work: list[Any] = [function]
    while work:
        node = work.pop()
        if isinstance(node, (syntax.Name, syntax.GlobalName)):
            yield node
        work += syntax.parts_of(node)


def _check_operators(names: Iterable[syntax.Name | syntax.GlobalName]) -> None:
    unknown: dict[str, list[Place]] = {}
    for node in names:
        if isinstance(node, syntax.Name) and node.target is None and node.name not in OPERATORS:
            unknown.setdefault(node.name, []).append(node.place)
    if not unknown:
        return
    listed = []
    for name, places in list(unknown.items())[:_MOST_LISTED]:
        first = places[0]
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        listed.append(f"{name} ({first.source.span(first.start, first.end)}{more})"
                      f"{did_you_mean(name, OPERATORS)}")  # fmt: skip
    if len(unknown) > _MOST_LISTED:
        listed.append(f"and {len(unknown) - _MOST_LISTED} more")
    word = "names" if len(unknown) > 1 else "name"
    next(iter(unknown.values()))[0].fail(
        f"{len(unknown)} {word} that {'are' if len(unknown) > 1 else 'is'} neither a constructor "
        f"nor an operator with a counterpart in relaxvm: {'; '.join(listed)}"
    )


def _groups(
    definitions: Definitions, uses: Mapping[str, Sequence[syntax.Name | syntax.GlobalName]]
) -> Iterable[list[syntax.FunctionDef]]:
    """The functions in groups that use each other, each group after those that it uses.

    A use of a function with a complete signature needs no order.  (Tarjan's algorithm.)
    """
    edges = {
        name: list(dict.fromkeys(
            u.name for u in names
            if isinstance(u, syntax.GlobalName) and u.target and not _is_complete(u.target)
        ))
        for name, names in uses.items()
    }  # fmt: skip
    numbers: dict[str, int] = {}
    lows: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in edges:
        if root in numbers:
            continue
        work = [(root, iter(edges[root]))]
        while work:
            name, rest = work[-1]
            if name not in numbers:
                numbers[name] = lows[name] = len(numbers)
                stack.append(name)
                on_stack.add(name)
            for other in rest:
                if other not in numbers:
                    work.append((other, iter(edges[other])))
                    break
                if other in on_stack:
                    lows[name] = min(lows[name], numbers[other])
            else:
                work.pop()
                if work:
                    outer = work[-1][0]
                    lows[outer] = min(lows[outer], lows[name])
                if lows[name] == numbers[name]:
                    at = stack.index(name) if stack[-1] != name else len(stack) - 1
                    group = stack[at:]
                    del stack[at:]
                    on_stack.difference_update(group)
                    yield [definitions.functions[each] for each in group]


def _is_complete(func: syntax.FunctionDef) -> bool:
    """Whether the signature of a function is written down."""
    function = func.function
    types = [*(p.annotation for p in function.params), function.ret]
    return all(ty is not None and not _has_hole(ty) for ty in types)


def _has_hole(ty: syntax.Type) -> bool:
    if isinstance(ty, syntax.TypeTuple):
        return any(map(_has_hole, ty.fields))
    if isinstance(ty, syntax.TypeFunction):
        return any(map(_has_hole, ty.params)) or _has_hole(ty.ret)
    if isinstance(ty, syntax.TypeName):
        return any(map(_has_hole, ty.args))
    if isinstance(ty, syntax.TypeRef):
        return _has_hole(ty.value)
    return isinstance(ty, syntax.TypeHole)


class Annotations:
    """Types as written to types."""

    def __init__(
        self, definitions: Definitions, params: Mapping[str, Param], holes: bool = True
    ) -> None:
        self._definitions = definitions
        self._params = params
        self._holes = holes

    def read(self, ty: syntax.Type | None) -> Ty:
        """The type that an annotation denotes; one that is not known yet for none and for ``_``."""
        if ty is None:
            return Variable()
        if isinstance(ty, syntax.TypeHole):
            if not self._holes:
                ty.place.fail("expected a type: _ is not a type of a field")
            return Variable()
        if isinstance(ty, syntax.TypeTensor):
            return TensorTy(ty.shape, ty.dtype)
        if isinstance(ty, syntax.TypeTuple):
            return TupleTy([self.read(field) for field in ty.fields])
        if isinstance(ty, syntax.TypeFunction):
            return FuncTy([self.read(p) for p in ty.params], self.read(ty.ret))
        if isinstance(ty, syntax.TypeRef):
            return RefTy(self.read(ty.value))
        assert isinstance(ty, syntax.TypeName)
        param = self._params.get(ty.name)
        if param is not None:
            if ty.args:
                ty.place.fail(f"type parameter {ty.name} has no arguments, got {len(ty.args)}")
            return param
        types = self._definitions.types
        found = types.get(ty.name)
        if found is None:
            ty.place.fail(f"unknown type {ty.name}{did_you_mean(ty.name, [*types, *self._params])}")
        if len(ty.args) != len(found.params):
            wanted = len(found.params)
            ty.place.fail(f"type {ty.name}: expected {wanted} type argument{'s' * (wanted != 1)}, "
                          f"got {len(ty.args)}")  # fmt: skip
        return DataTy(found, [self.read(arg) for arg in ty.args])


# Inference


class _Inference:
    def __init__(self, definitions: Definitions, constructors: Mapping[str, FuncTy]) -> None:
        self._definitions = definitions
        self._constructors = constructors
        self._types = Unifier()
        self._params: dict[str, Param] = {}
        self._open: dict[str, syntax.FunctionDef] = {}
        """Functions that have one type for all uses, so far."""
        self._uses: list[syntax.GlobalName] = []
        """Their uses."""
        self._pending: dict[_Operation, None] = {}
        self._known_calls: dict[Any, Any] = {}

    # Functions of the program

    def declare(self, func: syntax.FunctionDef) -> None:
        """Set the type of a function as far as it is written down."""
        self._params = {name: Param(name) for name in func.function.type_params}
        func.ty = self._signature(func.function)
        self._params = {}

    def group(self, group: Sequence[syntax.FunctionDef]) -> None:
        """Infer functions that use each other.  If an operator in one of them waits for a type
        that only its uses tell, they keep one type for all uses."""
        self._open.update((func.name, func) for func in group if not _is_complete(func))
        for func in group:
            self._params = {p.name: p for p in func.ty.type_params}
            self._body(func.function, func.ty)
            self._types.run()
        if not self._pending:
            self._close()

    def finish(self) -> None:
        """Check that all types are known."""
        for operation in self._pending:
            operation.fail()
        self._close()

    def _close(self) -> None:
        names = (f"T{i}" for i in itertools.count())
        for func in self._open.values():
            self._generalize(func, names)
        for use in self._uses:
            assert use.target is not None
            use.instance = use.target.ty.type_params
        self._open, self._uses = {}, []

    def _generalize(self, func: syntax.FunctionDef, names: Iterator[str]) -> None:
        """Make type parameters of the types in a signature that could be any type."""
        new: list[Param] = []
        for unknown in self._types.all_unknown(func.ty):
            unknown.link = param = Param(next(names))
            new.append(param)
        if new:
            func.ty = FuncTy(func.ty.params, func.ty.ret, (*func.ty.type_params, *new))
            func.function.ty = func.ty

    def _signature(self, func: syntax.Function) -> FuncTy:
        """The type of a function as far as it is written down; its parameters get theirs."""
        reader = Annotations(self._definitions, self._params)
        for param in func.params:
            param.ty = reader.read(param.annotation)
        params = [self._params[name] for name in func.type_params]
        return FuncTy([p.ty for p in func.params], reader.read(func.ret), params)

    def _body(self, func: syntax.Function, ty: FuncTy) -> None:
        found = self.expr(func.body)
        self._equal(ty.ret, found, func.body.result.place, "the result of the function")
        func.ty = ty

    # Expressions

    def expr(self, expr: syntax.Expr) -> Ty:
        """Infer an expression."""
        expr.ty = _RULES[type(expr)](self, expr)
        return expr.ty  # type: ignore[no-any-return]

    def _equal(self, wanted: Ty, got: Ty, place: Place, what: str) -> Ty:
        try:
            merged = self._types.unify(wanted, got)
        except Mismatch as error:
            a, b = error.args
            hint = ""
            if type(resolved(a)) is Variable or type(resolved(b)) is Variable:
                hint = "; a type cannot contain itself"
            elif a is not resolved(wanted) and b is not resolved(wanted):
                hint = f"; {show(a)} is not {show(b)}"
            place.fail(f"{what}: expected {show(wanted)}, got {show(got)}{hint}")
        self._types.run()
        return merged

    def _constant(self, expr: syntax.Constant | syntax.MetaRef) -> Ty:
        assert expr.data is not None
        return TensorTy(expr.data.shape, dtype_name(expr.data.dtype))

    def _local(self, expr: syntax.LocalName) -> Ty:
        assert expr.target is not None
        return self._instance(expr, expr.target.ty)

    def _graph(self, expr: syntax.GraphName) -> Ty:
        assert expr.target is not None
        ty: Ty = expr.target.value.ty
        return ty

    def _global(self, expr: syntax.GlobalName) -> Ty:
        assert expr.target is not None
        if expr.name in self._open:
            self._uses.append(expr)
            return FuncTy(expr.target.ty.params, expr.target.ty.ret)
        return self._instance(expr, expr.target.ty)

    def _instance(
        self, expr: syntax.LocalName | syntax.GlobalName | syntax.Name, ty: Ty
    ) -> Ty:
        """The type of one use of a function with type parameters."""
        found = resolved(ty)
        if not isinstance(found, FuncTy) or not found.type_params:
            return ty
        values = {param: Variable() for param in found.type_params}
        expr.instance = tuple(values.values())
        new = self._types.instantiate(FuncTy(found.params, found.ret), values)
        return new

    def _name(self, expr: syntax.Name) -> Ty:
        if expr.target is not None:
            found = resolved(self._instance(expr, self._constructors[expr.name]))
            assert isinstance(found, FuncTy)
            return found if found.params else found.ret  # Nil is a value, not a function
        # An operator as a value is a function of its operands.
        params = [Variable() for _ in range(OPERATORS[expr.name].arity)]
        ret = Variable()
        self._operation(expr.name, expr.place, params, {}, [None] * len(params), ret)
        return FuncTy(params, ret)

    def _tuple(self, expr: syntax.Tuple) -> Ty:
        return TupleTy([self.expr(field) for field in expr.fields])

    def _project(self, expr: syntax.Project) -> Ty:
        value, result = self.expr(expr.value), Variable()
        _Operation(self, expr.place, [value], result, lambda: self._element(expr)).start()
        return result

    def _element(self, expr: syntax.Project) -> Ty:
        ty = resolved(expr.value.ty)
        if not isinstance(ty, TupleTy):
            expr.place.fail(f"expected a tuple before .{expr.index}, got {show(ty)}")
        if expr.index >= len(ty.fields):
            expr.place.fail(f"expected an index below {len(ty.fields)}, got {expr.index}: the "
                            f"tuple is of type {show(ty)}")  # fmt: skip
        return ty.fields[expr.index]

    def _call(self, expr: syntax.Call) -> Ty:
        callee = expr.callee
        if isinstance(callee, syntax.Name) and callee.target is None:
            args = [self.expr(arg) for arg in expr.args]
            constants = [_constant_of(arg) for arg in expr.args]
            result = Variable()
            self._operation(callee.name, expr.place, args, expr.attrs, constants, result)
            return result
        ty = resolved(self.expr(callee))
        if isinstance(callee, syntax.Name) and not isinstance(ty, FuncTy) and not expr.args:
            return ty
        args = [self.expr(arg) for arg in expr.args]
        ret: Ty = Variable()
        ty = resolved(ty)
        if isinstance(ty, FuncTy):
            if len(ty.params) != len(args):
                self._arity(callee, len(ty.params), len(args), expr.place)
            for i, (param, arg) in enumerate(zip(ty.params, args, strict=True), 1):
                self._equal(param, arg, expr.args[i - 1].place, f"argument {i}")
            return ty.ret
        if type(ty) is not Variable:
            callee.place.fail(f"expected a function, got {show(ty)}")
        self._equal(ty, FuncTy(args, ret), callee.place, "the function")
        return ret

    def _arity(self, callee: syntax.Expr, wanted: int, got: int, place: Place) -> None:
        name = "the function"
        if isinstance(callee, syntax.Name):
            name = f"constructor {callee.name}"
            if not wanted:
                name += f", which is written without (): {callee.name}"
        elif isinstance(callee, syntax.GlobalName):
            name = f"@{callee.name}"
        elif isinstance(callee, syntax.LocalName):
            name = f"%{callee.name}"
        place.fail(f"{name}: expected {wanted} argument{'s' * (wanted != 1)}, got {got}")

    def _function(self, expr: syntax.Function) -> Ty:
        found = self._function_type(expr)
        if found.type_params:
            values = {param: Variable() for param in found.type_params}
            return self._types.instantiate(FuncTy(found.params, found.ret), values)
        return found

    def _function_type(self, expr: syntax.Function, var: syntax.Binder | None = None) -> FuncTy:
        """The type of a local function, with its type parameters; `var` is bound to it."""
        outer = self._params
        if expr.type_params:
            self._types.step(len(outer) + len(expr.type_params))
            self._params = {**outer, **{name: Param(name) for name in expr.type_params}}
        ty = self._signature(expr)
        if var is not None:
            self._annotated(var, ty if expr.type_params else FuncTy(ty.params, ty.ret))
        self._body(expr, ty)
        self._params = outer
        return ty

    def _annotated(self, var: syntax.Binder, ty: Ty) -> None:
        """Set the type of a variable that is bound to a value."""
        if var.annotation is None:
            var.ty = ty
            return
        reader = Annotations(self._definitions, self._params)
        declared = reader.read(var.annotation)
        if isinstance(ty, FuncTy) and ty.type_params:
            var.ty = ty
            return
        self._equal(declared, ty, var.place, f"%{var.name}")
        var.ty = declared

    def _if(self, expr: syntax.If) -> Ty:
        self._equal(BOOL, self.expr(expr.cond), expr.cond.place, "the condition")
        then, orelse = self.expr(expr.then), self.expr(expr.orelse)
        return self._equal(then, orelse, expr.orelse.result.place, "the other branch")

    def _match(self, expr: syntax.Match) -> Ty:
        value = self.expr(expr.value)
        result: Ty = Variable()
        if not expr.clauses:
            expr.place.fail("match: expected at least one clause")
        for clause in expr.clauses:
            self._pattern(clause.pattern, value)
            found = self.expr(clause.body)
            merged = self._equal(result, found, clause.body.result.place, "the clause")
            result = merged
        return result

    def _pattern(self, pattern: syntax.Pattern, ty: Ty) -> None:
        if isinstance(pattern, syntax.VarPattern):
            self._annotated(pattern.var, ty)
        elif isinstance(pattern, syntax.TuplePattern):
            fields = [Variable() for _ in pattern.fields]
            pattern.ty = self._equal(ty, TupleTy(fields), pattern.place, "the pattern")
            for inner, field in zip(pattern.fields, fields, strict=True):
                self._pattern(inner, field)
        elif isinstance(pattern, syntax.ConstructorPattern):
            assert pattern.target is not None
            known = self._constructors[pattern.name]
            values = {param: Variable() for param in known.type_params}
            found = self._types.instantiate(FuncTy(known.params, known.ret), values)
            assert isinstance(found, FuncTy)
            pattern.ty = self._equal(ty, found.ret, pattern.place, f"pattern {pattern.name}")
            for inner, param in zip(pattern.fields, found.params, strict=True):
                self._pattern(inner, param)

    def _ref_op(self, expr: syntax.RefOp) -> Ty:
        first = self.expr(expr.args[0])
        if expr.name == "ref":
            return RefTy(first)
        value = Variable()
        self._equal(first, RefTy(value), expr.args[0].place, expr.name)
        if expr.name == "ref_read":
            return value
        self._equal(value, self.expr(expr.args[1]), expr.args[1].place, "the value in the ref")
        return UNIT

    def _block(self, block: syntax.Block) -> Ty:
        for statement in block.statements:
            checkpoint()
            value = statement.value
            if not isinstance(statement, syntax.Let):
                self.expr(value)
            elif isinstance(value, syntax.Function):
                value.ty = self._function_type(value, statement.var)
            else:
                self._annotated(statement.var, self.expr(value))
        return self.expr(block.result)

    # Operators

    def _operation(
        self,
        name: str,
        place: Place,
        args: Sequence[Ty],
        attrs: Mapping[str, Any],
        constants: Sequence[Constant | None],
        result: Variable,
    ) -> None:
        def find() -> Ty:
            return self._type_of(name, place, args, attrs, constants)

        _Operation(self, place, args, result, find, name).start()

    def _type_of(
        self,
        name: str,
        place: Place,
        args: Sequence[Ty],
        attrs: Mapping[str, Any],
        constants: Sequence[Constant | None],
    ) -> Ty:
        key = None
        operand_types = _keys_of(args)
        if operand_types is not None and not any(constants):
            key = name, operand_types, repr(attrs)
            if key in self._known_calls:
                return self._known_calls[key]  # type: ignore[no-any-return]
        try:
            parts = itertools.count(1)
            operands = [
                const if const is not None else _operand(arg, i, parts)
                for i, (arg, const) in enumerate(zip(args, constants, strict=True), 1)
            ]
            found = _type_from(infer_type(apply(name, operands, attrs, _cast)).ty)
        except (TypeError, ValueError, IndexError, OverflowError) as error:
            given = f"; the operands are: {', '.join(map(show, args))}" if args else ""
            place.fail(f"operator {name}: {error}{given}")
        if key is not None and len(self._known_calls) < 4096:
            self._known_calls[key] = found
        return found


class _Operation:
    """An operation whose result has a type as soon as those of its operands are known."""

    __slots__ = ("args", "find", "inference", "name", "place", "result")

    def __init__(
        self,
        inference: _Inference,
        place: Place,
        args: Sequence[Ty],
        result: Variable,
        find: Callable[[], Ty],
        name: str = "",
    ) -> None:
        self.inference = inference
        self.place = place
        self.args = args
        self.result = result
        self.find = find
        self.name = name

    def start(self) -> None:
        """Find the type of the result, now or later."""
        self.inference._pending[self] = None
        self._try()

    def _try(self) -> None:
        types = self.inference._types
        for arg in self.args:
            # A projection needs no more than to know that it is a tuple.
            unknown = types.unknown(arg) if self.name else _head(arg)
            if unknown is not None:
                unknown.waiting.append(self._try)
                return
        self.inference._pending.pop(self, None)
        self.inference._equal(self.result, self.find(), self.place, self.name or "the element")

    def fail(self) -> None:
        """Report that the type is not known in the end."""
        for i, arg in enumerate(self.args, 1):
            if self.inference._types.unknown(arg) is not None:
                what = f"operator {self.name}: the type of argument {i}" if self.name else (
                    "the type of the tuple")  # fmt: skip
                self.place.fail(f"{what} cannot be inferred, got {show(arg)}; annotate the "
                                "parameter or variable that it comes from")  # fmt: skip


def _head(ty: Ty) -> Variable | None:
    found = resolved(ty)
    return found if type(found) is Variable else None


def _constant_of(expr: syntax.Expr) -> Constant | None:
    """A number that an operand is, where an operator's type may depend on it."""
    while isinstance(expr, syntax.GraphName) and expr.target is not None:
        expr = expr.target.value
    if isinstance(expr, syntax.Constant) or (isinstance(expr, syntax.MetaRef) and
                                             expr.data is not None and expr.data.ndim == 0):
        assert expr.data is not None
        return Constant(expr.data)
    return None


def _keys_of(types: Sequence[Ty]) -> tuple[Any, ...] | None:
    """Tensors, and tuples of tensors, as keys that are equal for equal types; None for others."""
    found: list[Any] = []
    for ty in map(resolved, types):
        parts = list(map(resolved, ty.fields)) if isinstance(ty, TupleTy) else [ty]
        keys = [(p.dtype, p.shape) for p in parts if isinstance(p, TensorTy)]
        if len(keys) < len(parts):
            return None
        found.append((isinstance(ty, TupleTy), *keys))
    return tuple(found)


def _cast(x: Expr, ty: TensorType) -> Expr:
    return Var("x", ty)


def _operand(ty: Ty, position: int, parts: Iterator[int]) -> Expr:
    """A variable of the type of an operand, for the rules of relaxvm's operators.

    Raises:
        TypeSizeError: it has too many parts, which `parts` counts.
    """
    if next(parts) > MOST_TYPE_PARTS:
        raise TypeSizeError(f"the operands have types of more than {MOST_TYPE_PARTS} parts, where "
                            "shared parts count once per use")  # fmt: skip
    found = resolved(ty)
    if isinstance(found, TensorTy):
        dims = [Var("n", "int64") if dim is None else dim for dim in found.shape]
        return Var(f"x{position}", TensorType(dims, found.dtype))
    if isinstance(found, TupleTy):
        return Tuple([_operand(field, position, parts) for field in found.fields])
    raise TypeError(f"argument {position}: expected a tensor, got {show(found)}")


def _type_from(ty: Any) -> Ty:
    if isinstance(ty, TupleType):
        return TupleTy([_type_from(field) for field in ty.fields])
    if not isinstance(ty, TensorType) or ty.ndim < 0 or ty.dtype is None:
        raise TypeError(f"the rank or data type of the result is not known: it is {ty}")
    if ty.dims is None:
        return TensorTy((None,) * ty.ndim, ty.dtype)
    dims = [dim.value if isinstance(dim, IntImm) else None for dim in ty.dims]
    return TensorTy(tuple(dims), ty.dtype)


_RULES: Final[Mapping[type, Callable[[_Inference, Any], Ty]]] = {
    syntax.Constant: _Inference._constant,
    syntax.MetaRef: _Inference._constant,
    syntax.LocalName: _Inference._local,
    syntax.GraphName: _Inference._graph,
    syntax.GlobalName: _Inference._global,
    syntax.Name: _Inference._name,
    syntax.Tuple: _Inference._tuple,
    syntax.Project: _Inference._project,
    syntax.Call: _Inference._call,
    syntax.Function: _Inference._function,
    syntax.If: _Inference._if,
    syntax.Match: _Inference._match,
    syntax.RefOp: _Inference._ref_op,
    syntax.Block: _Inference._block,
}
