"""LowerDataTypes: values of data types and matches in terms of builtins and `If`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..core.checkpoints import checkpoint
from ..errors import ExprSizeError
from ..ir import (
    ANY,
    Binding,
    BindingBlock,
    BlockBuilder,
    Call,
    Clause,
    Constructor,
    Expr,
    ExprMutator,
    ExprVisitor,
    ExternFunc,
    Function,
    FuncType,
    GlobalVar,
    If,
    IRModule,
    Match,
    MatchCast,
    NeverType,
    Op,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    RefType,
    SeqExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
    Var,
    VarBinding,
    base_check,
    field_types,
    infer_type,
    int_imm,
    is_leaf,
    joined_blocks,
    missing_patterns,
    note_binding,
    pattern_text,
)
from ..ir.field_types import SIGNATURE_ATTR, signature_of
from ..ir.infer import BaseCheckResult
from ..ir.node import KINDS
from ..op import base
from ._renaming import Renamer
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["LowerDataTypes"]


OWN_PREFIX: Final = "relaxvm.builtin."


def _pure_builtin(name: str, args: Sequence[Expr], ty: Type, span: Any = None) -> Expr:
    call: Call = base.call_pure_packed(OWN_PREFIX + name, *args, ty_args=ty)
    call.span = span
    return infer_type(call)  # type: ignore[no-any-return]


# Types


def _erase(ty: Any) -> Any:
    """Return a type without data types, type parameters and references: `AnyType` stands for them.
    A function type that mentions one is that of a function of unknown parameters."""
    kind = type(ty)
    if kind is TypeCall or kind is TypeVar or kind is RefType or kind is NeverType:
        return ANY
    if kind is TupleType:
        fields = [_erase(field) for field in ty.fields]
        same = all(a is b for a, b in zip(fields, ty.fields, strict=True))
        return ty if same else TupleType(fields, ty.span)
    if kind is FuncType:
        ret = _erase(ty.ret)  # once, or nested functions would take exponential time
        same = ret is ty.ret and not (ty.params is not None and ty.type_params)
        if same and all(_erase(param) is param for param in ty.params or ()):
            return ty
        return FuncType.opaque_func(ret=ret, purity=ty.purity)
    return ty


def _needs_cast(wanted: Any, found: Any) -> bool:
    return base_check(wanted, found) <= BaseCheckResult.FAIL_L1


# What a match looks at


class _Place:
    """A value that a match looks at: the matched one, or a part of another place.

    Attributes:
        ty: its type, before types are erased.
        parent, index: the place that it is a part of, and the position there; None and 0 for the
            matched value.
        is_element: whether the parent is a tuple, not a value of a data type.
        name: that of a pattern variable for it, if there is one.
    """

    __slots__ = ("_parts", "index", "is_element", "name", "parent", "ty")

    def __init__(
        self, ty: Any, parent: _Place | None = None, index: int = 0, is_element: bool = False
    ) -> None:
        self.ty = ty
        self.parent = parent
        self.index = index
        self.is_element = is_element
        self.name = "field"
        self._parts: dict[int | None, list[_Place]] = {}

    def fields(self, constructor: Constructor) -> list[_Place]:
        """The places of the fields, if the value is made by a constructor."""
        found = self._parts.get(constructor.tag)
        if found is None:
            found = self._parts[constructor.tag] = [
                _Place(ty, self, index)
                for index, ty in enumerate(field_types(constructor, self.ty))
            ]
        return found

    def elements(self, count: int) -> list[_Place]:
        """The places of the elements of a tuple."""
        found = self._parts.get(None)
        if found is None:
            types = self.ty.fields if type(self.ty) is TupleType else (self.ty,) * count
            found = self._parts[None] = [
                _Place(ty, self, index, True) for index, ty in enumerate(types)
            ]
        return found


class _Row:
    """A clause, as far as it is not decided yet.

    Attributes:
        number: of the clause.
        tests: patterns of constructors that are left, by the place that they look at.
        bound: pattern variables with the places that they stand for.
    """

    __slots__ = ("bound", "number", "tests")

    def __init__(
        self, number: int, tests: dict[_Place, PatternConstructor], bound: dict[Var, _Place]
    ) -> None:
        self.number = number
        self.tests = tests
        self.bound = bound

    @classmethod
    def of(cls, number: int, place: _Place, pattern: Pattern) -> _Row:
        row = cls(number, {}, {})
        row.add(place, pattern)
        return row

    def add(self, place: _Place, pattern: Pattern) -> None:
        """Require that the value at a place matches a pattern."""
        if isinstance(pattern, PatternVar):
            self.bound[pattern.var] = place
            place.name = pattern.var.name
        elif isinstance(pattern, PatternTuple):  # its length is known by its type
            elements = place.elements(len(pattern.patterns))
            for element, inner in zip(elements, pattern.patterns, strict=True):
                self.add(element, inner)
        elif isinstance(pattern, PatternConstructor):
            self.tests[place] = pattern

    def where(self, place: _Place, constructor: Constructor) -> _Row | None:
        """The row for values that have a constructor at a place; None if it does not match them."""
        pattern = self.tests.get(place)
        if pattern is None:
            return self
        if pattern.constructor.tag != constructor.tag:
            return None
        row = _Row(self.number, dict(self.tests), dict(self.bound))
        del row.tests[place]
        for field, inner in zip(place.fields(constructor), pattern.patterns, strict=True):
            row.add(field, inner)
        return row


_Values = dict[_Place, Expr]
"""The values of the places that a path through the decision tree has read."""


class _Uses(ExprVisitor):
    """Collects the variables that a clause uses."""

    def __init__(self) -> None:
        self.found: set[Var] = set()

    def visit_var(self, var: Var) -> None:
        self.found.add(var)


_MOST_STEPS: Final = 50_000


class _Steps:
    """Counts the rows and the copied bindings of a decision tree, which may have a branch for each
    combination of what clauses look at."""

    def __init__(self) -> None:
        self._left = _MOST_STEPS

    def take(self, count: int) -> None:
        checkpoint()
        self._left -= count
        if self._left < 0:
            raise ExprSizeError(
                "the clauses of a match look at so many parts of the value that its decision tree "
                f"would have more than {_MOST_STEPS} steps; divide it into several matches"
            )


class _Copier(Renamer):
    """Copies an expression, with new variables for those that it defines."""

    def __init__(self, steps: _Steps) -> None:
        super().__init__()
        self._steps = steps

    def visit_var_def(self, var: Var) -> Var:
        self._steps.take(1)
        new: Var = KINDS[type(var)](var.name, self.visit_type(var.ty), var.span)
        self.rename(var, new)
        return new


# The pass


class _Lowerer(ExprMutator):
    """Rewrites a function."""

    def __init__(self, replaced: dict[GlobalVar, GlobalVar], constructors: _Constructors) -> None:
        super().__init__()
        self._replaced = replaced
        self._constructors = constructors
        self._before: list[BindingBlock] = []
        """Blocks that are to stand before the current binding."""
        self._tuples: dict[Var, Tuple] = {}

    # Types and leaves

    def visit_type(self, ty: Any) -> Any:
        return _erase(ty)

    def visit_var_def(self, var: Var) -> Var:
        ty = _erase(var.ty)
        return var if ty is var.ty else KINDS[type(var)](var.name, ty, var.span)

    def visit_global_var(self, var: GlobalVar) -> Expr:
        return self._replaced.get(var, var)

    def visit_constructor(self, constructor: Constructor) -> Expr:
        return self._constructors.function(constructor)

    def visit_function(self, func: Function) -> Expr:
        params = []
        for param in func.params:
            new = self.visit_var_def(param)
            if new is not param:
                self.var_map[param] = new
            params.append(new)
        body = self.visit(func.body)
        ret_ty = _erase(func.ret_ty)
        if (
            body is func.body
            and ret_ty is func.ret_ty
            and not func.type_params
            and all(a is b for a, b in zip(params, func.params, strict=True))
        ):
            return func
        return Function(params, body, ret_ty, func.is_pure, func.attrs, func.span)

    # Bindings

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        blocks: list[BindingBlock] = []
        for block in seq.blocks:
            kind = KINDS[type(block)]
            bindings: list[Binding] = []
            for binding in block.bindings:
                checkpoint()
                try:
                    new = self.visit_binding(binding)
                except Exception as error:
                    note_binding(error, binding)
                    raise
                if self._before:
                    blocks += [kind(bindings, block.span), *self._before]
                    self._before, bindings = [], []
                bindings += [new] if isinstance(new, Binding) else new
            blocks.append(kind(bindings, block.span))
        body = self.visit(seq.body)
        return SeqExpr(joined_blocks(blocks), body, span=seq.span)

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        value = binding.value
        if isinstance(value, Function) or isinstance(binding, MatchCast):
            return super().visit_binding(binding)
        new = self.visit(value)
        var = self.visit_var_def(binding.var)
        if isinstance(new, Tuple):
            self._tuples[var] = new
        if new is value and var is binding.var:
            return binding
        if var is not binding.var:
            self.var_map[binding.var] = var
        return _bind(var, new, binding.span)

    def visit_call(self, call: Call) -> Expr:
        op = call.op
        if isinstance(op, Constructor):
            return _made(op, self.visit_all(call.args), call.span)
        if isinstance(op, Op) and op.name in _REFERENCES:
            args = self.visit_all(call.args)
            name = OWN_PREFIX + _REFERENCES[op.name]
            ty = ANY if op.name == "relax.ref_read" else _erase(call.ty)
            return Call(ExternFunc(name), args, None, [ty], ret_ty=ty, span=call.span)
        new = super().visit_call(call)
        if isinstance(new, Call) and new.ty_args and not isinstance(new.op, Op) and (
            type(new.op.ty) is FuncType and new.op.ty.params is not None
        ):  # fmt: skip
            new = infer_type(Call(new.op, new.args, new.attrs, span=new.span))
        return new

    # Matches

    def visit_match(self, expr: Match) -> Expr:
        root = _Place(expr.data.ty)
        data = self.visit(expr.data)
        rows = [_Row.of(i, root, clause.lhs) for i, clause in enumerate(expr.clauses)]
        out: list[BindingBlock] = []
        if _copied_bindings(expr.clauses, rows) > _MOST_COPIED:
            value = _two_steps(self, expr, data, root, rows, out)
        else:
            value = _Tree(self, expr, data, _erase(expr.ty)).decide(rows, {root: data}, out)
        self._before += out
        return value

    def guard(self, clause: Clause, values: dict[Var, Expr]) -> SeqExpr | None:
        """The guard of a clause whose pattern variables have values, in normal form; None if it has
        none."""
        self.var_map.update(values)
        if clause.guard is None:
            return None
        builder = BlockBuilder()
        builder.begin_scope()
        return builder.end_scope(self.visit(clause.guard))

    def result(self, clause: Clause, copier: _Copier | None) -> SeqExpr:
        """The result of a clause whose guard has been asked for with the same values; copied if the
        clause has been used before."""
        rhs: SeqExpr = self.visit(clause.rhs)
        return rhs if copier is None else copier.visit(rhs)

    def element(self, value: Expr, index: int) -> Expr:
        """An element of a tuple: what it was made of if that is known."""
        known = self._tuples.get(value) if isinstance(value, Var) else value
        if isinstance(known, Tuple):
            return known.fields[index]
        return TupleGetItem(value, index)


class _Tree:
    """The decision tree of a match.  On each path, the tag of a place is read once."""

    def __init__(self, lowerer: _Lowerer, match: Match, data: Expr, ty: Any) -> None:
        self._lowerer = lowerer
        self._match = match
        self._data = data
        self._ty = ty
        self._used = [self.variables_of(clause) for clause in match.clauses]
        self._emitted = [False] * len(match.clauses)
        self._steps = _Steps()
        self._missing: str | None = None

    def variables_of(self, clause: Clause) -> set[Var]:
        """The pattern variables whose values a leaf needs, and perhaps other variables."""
        return _used(clause.rhs, clause.guard)

    def decide(self, rows: list[_Row], values: _Values, out: list[BindingBlock]) -> Expr:
        """Return the value of the match for what the rows are left for; `out` receives the blocks
        before it.

        Raises:
            ExprSizeError: the tree is too large.
        """
        self._steps.take(1 + len(rows))
        if not rows:
            return self._failure()
        place = next(iter(rows[0].tests), None)
        if place is None:
            return self._result(rows, values, out)
        value = self._value(place, values, out)
        tag = Var("tag", ANY)
        constructors = rows[0].tests[place].constructor.belong_to.definition.constructors
        known: list[Expr] = []
        for constructor in constructors:
            known += StringImm(constructor.qualified_name), int_imm(len(constructor.inputs))
        _emit(out, VarBinding(tag, _pure_builtin("match_tag", [value, *known], ANY)))
        heads = {row.tests[place].constructor.tag for row in rows if place in row.tests}
        chosen = [constructor for constructor in constructors if constructor.tag in heads]
        # The last constructor needs no test where the others are excluded.
        if len(chosen) == len(constructors):
            otherwise = self._branch(_where(rows, place, chosen.pop()), values)
        else:
            otherwise = self._branch([row for row in rows if place not in row.tests], values)
        while chosen:
            constructor = chosen.pop()
            then = self._branch(_where(rows, place, constructor), values)
            test = Var(f"is_{constructor.name_hint}", ANY)
            call = _pure_builtin("tag_is", [tag, int_imm(constructor.tag)], ANY)
            expr: Expr = infer_type(If(test, then, otherwise, span=self._match.span))
            blocks = out if not chosen else []
            _emit(blocks, VarBinding(test, call))
            if not chosen:
                return expr
            otherwise = _sequence(blocks, expr, self._ty)
        out += otherwise.blocks
        return otherwise.body

    def choose(
        self, chosen: Var, rows: list[_Row], root: _Place, out: list[BindingBlock]
    ) -> Expr:
        """Return the value of the match where the number of the clause is known."""
        otherwise: SeqExpr | None = None
        for row in reversed(rows):
            blocks: list[BindingBlock] = []
            value = self._known(row, {root: self._data}, blocks)
            branch = _sequence(blocks, value, self._ty)
            if otherwise is None:
                otherwise = branch
                continue
            test = Var(f"is_clause{row.number}", ANY)
            call = _pure_builtin("tag_is", [chosen, int_imm(row.number)], ANY)
            expr = infer_type(If(test, branch, otherwise, span=self._match.span))
            blocks = []
            _emit(blocks, VarBinding(test, call))
            otherwise = _sequence(blocks, expr, self._ty)
        assert otherwise is not None
        out += otherwise.blocks
        return otherwise.body

    def _known(self, row: _Row, values: _Values, out: list[BindingBlock]) -> Expr:
        """The result of a clause that matches."""
        while row.tests:
            place, pattern = next(iter(row.tests.items()))
            found = row.where(place, pattern.constructor)
            assert found is not None
            row = found
        used = _used(self._match.clauses[row.number].rhs)
        bound = {
            var: self._value(place, values, out) for var, place in row.bound.items() if var in used
        }
        self._lowerer.var_map.update(bound)
        rhs = self._clause(row.number)
        out += rhs.blocks
        return rhs.body

    def _branch(self, rows: list[_Row], values: _Values) -> SeqExpr:
        out: list[BindingBlock] = []
        value = self.decide(rows, dict(values), out)
        return _sequence(out, value, self._ty)

    def _result(self, rows: list[_Row], values: _Values, out: list[BindingBlock]) -> Expr:
        """The result of the first row, which matches unless its guard does not hold."""
        row, *rest = rows
        clause = self._match.clauses[row.number]
        bound = {
            var: self._value(place, values, out)
            for var, place in row.bound.items()
            if var in self._used[row.number]
        }
        guard = self._lowerer.guard(clause, bound)
        rhs = self._clause(row.number)
        if guard is None:
            out += rhs.blocks
            return rhs.body
        out += guard.blocks
        otherwise = self._branch(rest, values)
        expr: Expr = infer_type(If(guard.body, rhs, otherwise, span=self._match.span))
        return expr

    def _clause(self, number: int) -> SeqExpr:
        """The result of a clause; its pattern variables have their values."""
        copier = _Copier(self._steps) if self._emitted[number] else None
        self._emitted[number] = True
        return self._lowerer.result(self._match.clauses[number], copier)

    def _value(self, place: _Place, values: _Values, out: list[BindingBlock]) -> Expr:
        """The value at a place, read if it has not been read on this path."""
        found = values.get(place)
        if found is not None:
            return found
        assert place.parent is not None
        parent = self._value(place.parent, values, out)
        if place.is_element:
            value = self._lowerer.element(parent, place.index)
        else:
            value = _pure_builtin("adt_field", [parent, int_imm(place.index)], ANY)
        if not is_leaf(value):
            var = Var(place.name, _erase(place.ty))
            _emit(out, *_bind(var, value, None))
            value = var
        values[place] = value
        return value

    def _failure(self) -> Expr:
        """What happens to a value that no clause matches."""
        if self._missing is None:
            try:
                missing = missing_patterns(self._match.clauses)
            except ExprSizeError:
                missing = []
            self._missing = ", ".join(map(pattern_text, missing)) or "its constructor"
        args = [self._data, StringImm(self._missing)]
        return _pure_builtin("match_failure", args, self._ty, self._match.span)


def _where(rows: list[_Row], place: _Place, constructor: Constructor) -> list[_Row]:
    found = [row.where(place, constructor) for row in rows]
    return [row for row in found if row is not None]


def _emit(out: list[BindingBlock], *bindings: Binding) -> None:
    out.append(BindingBlock(bindings))


def _bind(var: Var, value: Expr, span: Any) -> list[Binding]:
    """Bind a variable to a value, whose type is checked at run time unless it is known to be that
    of the variable."""
    if not _needs_cast(var.ty, value.ty):
        return [VarBinding(var, value, span)]
    unchecked = KINDS[type(var)](var.name, value.ty, var.span)
    return [VarBinding(unchecked, value, span), MatchCast(var, unchecked, var.ty, span)]


def _sequence(blocks: list[BindingBlock], value: Expr, ty: Any) -> SeqExpr:
    """A sequence with a value, which gets a variable unless it is a leaf."""
    if not is_leaf(value):
        var = Var("result", ty if _needs_cast(ty, value.ty) else value.ty)
        _emit(blocks, *_bind(var, value, value.span))
        value = var
    return SeqExpr(joined_blocks(blocks), value)


def _used(*exprs: Expr | None) -> set[Var]:
    """The variables that expressions use."""
    uses = _Uses()
    for expr in exprs:
        if expr is not None:
            uses.visit(expr)
    return uses.found


# Results that stand at many leaves

_MOST_COPIED: Final = 64


class _Bindings(ExprVisitor):
    """Counts the bindings of an expression."""

    count = 0

    def visit_binding(self, binding: Binding) -> None:
        self.count += 1
        super().visit_binding(binding)


def _copied_bindings(clauses: Sequence[Clause], rows: list[_Row]) -> int:
    """How many bindings are copies, if the result of a clause stands at each leaf of the decision
    tree that has it."""
    leaves = _leaves(clauses, rows, [0] * len(clauses), _Steps())
    total = 0
    for clause, count in zip(clauses, leaves, strict=True):
        if count > 1:
            bindings = _Bindings()
            bindings.visit(clause.rhs)
            total += (count - 1) * bindings.count
    return total


def _leaves(
    clauses: Sequence[Clause], rows: list[_Row], counts: list[int], steps: _Steps
) -> list[int]:
    """Per clause, at how many leaves of the decision tree it stands; see `_Tree.decide`."""
    steps.take(1 + len(rows))
    if not rows:
        return counts
    place = next(iter(rows[0].tests), None)
    if place is None:
        counts[rows[0].number] += 1
        if clauses[rows[0].number].guard is not None:
            _leaves(clauses, rows[1:], counts, steps)
        return counts
    constructors = rows[0].tests[place].constructor.belong_to.definition.constructors
    heads = {row.tests[place].constructor.tag for row in rows if place in row.tests}
    for constructor in constructors:
        if constructor.tag in heads:
            _leaves(clauses, _where(rows, place, constructor), counts, steps)
    if len(heads) < len(constructors):
        _leaves(clauses, [row for row in rows if place not in row.tests], counts, steps)
    return counts


class _ClauseNumbers(_Tree):
    """A decision tree whose value is the number of a clause."""

    def variables_of(self, clause: Clause) -> set[Var]:
        return _used(clause.guard)

    def _clause(self, number: int) -> SeqExpr:
        self._emitted[number] = True
        return SeqExpr([], int_imm(number))

    def reached(self, rows: list[_Row]) -> list[_Row]:
        """The rows whose numbers are at a leaf."""
        return [row for row in rows if self._emitted[row.number]]


def _two_steps(
    lowerer: _Lowerer, match: Match, data: Expr, root: _Place, rows: list[_Row],
    out: list[BindingBlock],
) -> Expr:  # fmt: skip
    """Return the value of a match by a decision tree that finds the number of the clause, and then
    a choice between the clauses, each of which stands there once."""
    numbers = _ClauseNumbers(lowerer, match, data, ANY)
    chosen = Var("clause", ANY)
    tree = numbers.decide(rows, {root: data}, out)
    _emit(out, VarBinding(chosen, tree))
    return _Tree(lowerer, match, data, _erase(match.ty)).choose(
        chosen, numbers.reached(rows), root, out
    )


class _Constructors:
    """The functions of constructors that are used as values."""

    def __init__(self, mod: IRModule) -> None:
        self._mod = mod
        self._made: dict[str, GlobalVar] = {}

    def function(self, constructor: Constructor) -> GlobalVar:
        """The function of a constructor, which is added to the module."""
        name = constructor.qualified_name
        found = self._made.get(name)
        if found is None:
            params = [Var(f"field{i}", ANY) for i in range(len(constructor.inputs))]
            result = Var("result", ANY)
            block = BindingBlock([VarBinding(result, _made(constructor, params))])
            func = Function(params, SeqExpr([block], result), ANY)
            found = GlobalVar(self._mod.unique_name(name.replace(".", "_")), func.ty)
            self._mod[found] = func
            self._made[name] = found
        return found


def _made(constructor: Constructor, fields: Sequence[Expr], span: Any = None) -> Expr:
    """The call that makes a value of a data type."""
    name = StringImm(constructor.qualified_name)
    return _pure_builtin("make_adt", [name, int_imm(constructor.tag), *fields], ANY, span)


_REFERENCES: Final = {"relax.ref": "ref", "relax.ref_read": "ref_read",
                      "relax.ref_write": "ref_write"}  # fmt: skip


def LowerDataTypes() -> Pass:
    """Replace constructors and references by calls of builtins, and matches by decision trees that
    read each tag once.  Types are erased: `AnyType` stands for data types, type parameters and
    references.  Where a tensor, a shape or another value of known type is taken out of a value of a
    data type, or returned by a function with type parameters, a match_cast checks it.

    Why: the code of a function with type parameters is shared by all its uses, and later passes
    need not know data types.  The attribute "relaxvm.signature" keeps the type that a function had,
    as text for the executable.
    """

    @module_pass(name="LowerDataTypes")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        if not _has_data_types(mod):
            return mod
        result = IRModule(None, mod.attrs, mod.global_infos, mod.type_definitions)
        result.sources, result.span = mod.sources, mod.span
        replaced = {}
        for var, func in mod.functions.items():
            ty = func.ty
            if isinstance(func, Function):
                types = [_erase(param.ty) for param in func.params]
                ty = FuncType(types, _erase(func.ret_ty), func.is_pure)
            replaced[var] = GlobalVar(var.name_hint, ty, var.span)
            result[replaced[var]] = func  # for unique names
        constructors = _Constructors(result)
        for var, func in mod.functions.items():
            if isinstance(func, Function):
                lowered = _Lowerer(replaced, constructors).visit(func)
                signature = signature_of(func.ty, mod.type_definitions)
                if signature is not None:
                    lowered = lowered.with_attr(SIGNATURE_ATTR, str(signature))
                result[replaced[var]] = lowered
        return result

    return run


class _Finder(ExprVisitor):
    """Looks for what the pass replaces."""

    found = False

    def visit_match(self, expr: Match) -> None:
        self.found = True

    def visit_constructor(self, constructor: Constructor) -> None:
        self.found = True

    def visit_var_def(self, var: Var) -> None:
        self.visit_type(var.ty)

    def visit_type(self, ty: Type) -> None:
        self.found = self.found or _erase(ty) is not ty

    def visit_call(self, call: Call) -> None:
        self.found = self.found or (isinstance(call.op, Op) and call.op.name in _REFERENCES)
        super().visit_call(call)


def _has_data_types(mod: IRModule) -> bool:
    finder = _Finder()
    for func in mod.functions.values():
        finder.visit(func)
        if finder.found:
            return True
    return False
