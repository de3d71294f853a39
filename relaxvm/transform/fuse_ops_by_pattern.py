"""FuseOpsByPattern: make functions of what patterns match, for an external code generator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..analysis.variables import get_var2val, udchain
from ..dpl.matcher import Matcher
from ..dpl.pattern import CallPattern, DFPattern, TupleGetItemPattern, TuplePattern
from ..ir import (
    BindingBlock,
    Call,
    DataflowBlock,
    Expr,
    ExprMutator,
    ExprVisitor,
    Function,
    GlobalVar,
    IntImm,
    IRModule,
    SeqExpr,
    ShapeExpr,
    Var,
    VarBinding,
    copy_with_new_vars,
)
from ..messages import describe
from ._grouping import Functions, Group, grouped_block
from .pass_infra import Pass, PassContext, module_pass

__all__ = [
    "FuseOpsByPattern",
    "FusionPattern",
    "PatternCheckContext",
    "get_pattern",
    "get_patterns_with_prefix",
    "register_patterns",
]


class PatternCheckContext:
    """What the check of a pattern gets.

    Attributes:
        matched_expr: the expression that matched.
        annotated_expr: name of an annotation -> what its pattern matched.
        matched_bindings: variable -> the matched value that it is bound to.
        var_usages: variable of the dataflow block -> the variables whose values use it.
        value_to_bound_var: matched value -> the variable that it is bound to.
    """

    def __init__(
        self,
        matched_expr: Expr,
        annotated_expr: dict[str, Expr],
        matched_bindings: dict[Var, Expr],
        var_usages: dict[Var, list[Var]],
        value_to_bound_var: dict[Expr, Var],
    ) -> None:
        self.matched_expr = matched_expr
        self.annotated_expr = annotated_expr
        self.matched_bindings = matched_bindings
        self.var_usages = var_usages
        self.value_to_bound_var = value_to_bound_var


Check = Callable[[PatternCheckContext], bool]


class FusionPattern:
    """A pattern with a name, such as "library.operation", whose part before the dot names a code
    generator.

    Attributes:
        annotation_patterns: name -> a part of the pattern, for the check.
        check: called for every match; false declines it.
    """

    def __init__(
        self,
        name: str,
        pattern: DFPattern,
        annotation_patterns: Mapping[str, DFPattern] | None = None,
        check: Check | None = None,
        attrs_getter: Callable[[Mapping[str, Expr]], Mapping[str, Any]] | None = None,
    ) -> None:
        self.name = name
        self.pattern = pattern
        self.annotation_patterns = dict(annotation_patterns or {})
        self.check = check
        self.attrs_getter = attrs_getter


def _as_pattern(given: Any) -> FusionPattern:
    if isinstance(given, FusionPattern):
        return given
    if isinstance(given, (tuple, list)) and 2 <= len(given) <= 5:
        return FusionPattern(*given)
    raise TypeError(
        "a fusion pattern is a FusionPattern, or a tuple of a name, a pattern, and, if wanted, "
        f"annotations and a check; got {describe(given)}"
    )


_REGISTERED: dict[str, FusionPattern] = {}


def register_patterns(patterns: Iterable[Any]) -> None:
    """Register patterns for `get_patterns_with_prefix`; one of a name that is taken replaces it."""
    for given in patterns:
        pattern = _as_pattern(given)
        _REGISTERED[pattern.name] = pattern


def get_patterns_with_prefix(prefix: str) -> list[FusionPattern]:
    """Return the registered patterns whose names begin with a prefix, the last one first: it has
    the highest priority."""
    return [p for name, p in reversed(_REGISTERED.items()) if name.startswith(prefix)]


def get_pattern(name: str) -> FusionPattern | None:
    """Return the registered pattern of a name, or None."""
    return _REGISTERED.get(name)


class _Fuser(ExprMutator):
    """Fuses what one pattern matches in the dataflow blocks of one function."""

    def __init__(
        self, func: Function, pattern: FusionPattern, functions: Functions, bind_constants: bool
    ) -> None:
        super().__init__()
        self._pattern = pattern
        self._functions = functions
        self._bind_constants = bind_constants
        values = get_var2val(func)
        # A variable that renames another stays a variable: it is no part of a group.
        self._values = {var: value for var, value in values.items() if not isinstance(value, Var)}
        self._leaves = {
            var: value
            for var, value in values.items()
            if isinstance(value, ShapeExpr) and all(isinstance(d, IntImm) for d in value.values)
        }
        self._matcher = Matcher(self._values)

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        visited = super().visit_block(block)
        if not isinstance(visited, DataflowBlock):
            return visited
        groups = self._groups(visited)
        if not groups:
            return visited
        return grouped_block(visited, groups, self._functions, self._leaves, self._bind_constants)

    def _groups(self, block: DataflowBlock) -> list[Group]:
        variables = {id(b.value): b.var for b in block.bindings if isinstance(b, VarBinding)}
        position = {binding.var: i for i, binding in enumerate(block.bindings)}
        uses = udchain(block)
        taken: set[Var] = set()
        groups = []
        # From the end, so that the longest of several alternatives is found first.
        for binding in reversed(block.bindings):
            value = binding.value
            if binding.var in taken or not isinstance(value, Call):
                continue
            if not isinstance(binding, VarBinding):
                continue
            matched = self._matcher.extract(self._pattern.pattern, value)
            if matched is None:
                continue
            members = {binding.var}
            for part, expr in matched.items():
                if isinstance(part, (CallPattern, TupleGetItemPattern, TuplePattern)):
                    var = variables.get(id(expr))
                    if var is not None:
                        members.add(var)
            if members & taken:
                continue
            context = self._context(value, matched, uses)
            if self._pattern.check is not None and not self._pattern.check(context):
                continue
            group = Group(self._attrs(context))
            group.bindings = [block.bindings[i] for i in sorted(position[var] for var in members)]
            taken |= members
            groups.append(group)
        return groups

    def _attrs(self, context: PatternCheckContext) -> dict[str, Any]:
        attrs: dict[str, Any] = {"Composite": self._pattern.name, "Primitive": True}
        if self._pattern.attrs_getter is not None:
            attrs.update(self._pattern.attrs_getter(context.annotated_expr))
        return attrs

    def _context(
        self, expr: Expr, matched: Mapping[DFPattern, Expr], uses: dict[Var, list[Var]]
    ) -> PatternCheckContext:
        annotated = {
            name: matched[part]
            for name, part in self._pattern.annotation_patterns.items()
            if part in matched
        }
        ids = {id(value) for value in matched.values()}
        bindings = {var: value for var, value in self._values.items() if id(value) in ids}
        bound = {value: var for var, value in bindings.items()}
        return PatternCheckContext(expr, annotated, bindings, uses, bound)


def _check_definitions(mod: IRModule) -> None:
    """Check that no variable is defined in two functions, since groups are known by variables.

    Raises:
        ValueError: one is.
    """

    seen: dict[Var, GlobalVar] = {}
    for owner, func in mod.items():
        if not isinstance(func, Function):
            continue
        definitions = _Definitions()
        definitions.visit(func)
        for var in definitions.found:
            if var in seen:
                raise ValueError(
                    f"FuseOpsByPattern: variable {var.name!r} is defined in the functions "
                    f"{seen[var].name_hint!r} and {owner.name_hint!r}; ir.copy_with_new_vars "
                    "returns a copy of a function with variables of its own"
                )
            seen[var] = owner


class _Definitions(ExprVisitor):
    def __init__(self) -> None:
        self.found: dict[Var, None] = {}

    def visit_var_def(self, var: Var) -> None:
        self.found[var] = None


def FuseOpsByPattern(
    patterns: Sequence[Any],
    bind_constants: bool = True,
    annotate_codegen: bool = False,
    entry_functions: Sequence[str] | None = None,
) -> Pass:
    """Make a private function of what a pattern matches in a dataflow block, with the attribute
    "Composite", which is the name of the pattern.  Where the parts of a pattern are used elsewhere,
    too, the function returns them as well.

    Args:
        patterns: `FusionPattern`, or tuples of its arguments, in order of priority.
        bind_constants: whether functions contain the constants that they use; else they are
            arguments.
        annotate_codegen: whether to put each function into another one, with the attribute
            "Codegen", which is the part of the name before the dot.
        entry_functions: names of the functions in which patterns are sought; None: all.

    Raises:
        RuntimeError: what a pattern matches depends on itself by way of something that it leaves
            out.
        ValueError: two functions define the same variable.
    """
    chosen = [_as_pattern(given) for given in patterns]
    entries = None if entry_functions is None else set(entry_functions)

    @module_pass(name="FuseOpsByPattern")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        if chosen:
            _check_definitions(mod)
        functions = Functions(mod)
        for pattern in chosen:
            for var in list(functions.mod):
                func = functions.mod[var]
                if not isinstance(func, Function) or is_grouped(func):
                    continue
                if entries is not None and var.name_hint not in entries:
                    continue
                new = _Fuser(func, pattern, functions, bind_constants).visit(func)
                if new is not func:
                    functions.mod[var] = new
        return annotated(functions.mod) if annotate_codegen else functions.mod

    return run


def is_grouped(func: Function) -> bool:
    """Whether a function has been made of a group of bindings."""
    return any(name in func.attrs for name in ("Composite", "Codegen", "Primitive"))


def codegen_of(func: Function) -> str:
    """The name of the code generator of a composite function."""
    return str(func.attrs["Composite"]).partition(".")[0]


class _Renamer(ExprMutator):
    def __init__(self, names: Mapping[GlobalVar, GlobalVar]) -> None:
        super().__init__()
        self._names = names

    def visit_global_var(self, var: GlobalVar) -> Expr:
        return self._names.get(var, var)


def annotated(mod: IRModule) -> IRModule:
    """Put every composite function into a function with the attribute "Codegen"."""
    names: dict[GlobalVar, GlobalVar] = {}
    made: dict[GlobalVar, Function] = {}
    for var, func in mod.items():
        if isinstance(func, Function) and "Composite" in func.attrs:
            name = mod.unique_name(f"{var.name_hint}_{codegen_of(func)}")
            new = GlobalVar(name, func.ty)
            inner = func.without_attr("Primitive").without_attr("global_symbol")
            names[var] = new
            made[new] = external_function([inner], codegen_of(func), name)
    if not names:
        return mod
    result = IRModule(None, mod.attrs, mod.global_infos, mod.type_definitions)
    for var, func in mod.items():
        if var in names:
            result[names[var]] = made[names[var]]
        else:
            result[var] = _Renamer(names).visit(func) if isinstance(func, Function) else func
    return result


def external_function(inner: Sequence[Function], codegen: str, name: str) -> Function:
    """A function for a code generator that calls one local function."""
    (local,) = inner
    params = [Var(param.name, param.ty, param.span) for param in local.params]
    callee = Var("local", local.ty)
    out = Var("output", local.ret_ty)
    bindings = [
        VarBinding(callee, local),
        VarBinding(out, Call(callee, params, ret_ty=local.ret_ty)),
    ]
    attrs = {"Codegen": codegen, "global_symbol": name}
    body = SeqExpr([BindingBlock(bindings)], out)
    return copy_with_new_vars(Function(params, body, local.ret_ty, attrs=attrs))
