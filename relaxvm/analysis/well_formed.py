"""The rules that every well-formed program obeys.

A program is checked in one walk; at each node the rules in `RULES` for this kind of node are
checked.  A rule is a function of the walk and the node.  It returns None, or a description of the
problem, or a pair of that and a hint.  The docstring of the function states the rule.

Rules about types are not checked in functions whose dimensions have been moved to a shape heap.

Source: WellFormedChecker of apache-tvm 0.27, and what the passes here rely on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from ..core import checkpoints
from ..dtypes import dtype_name
from ..errors import ExprSizeError, RelaxVMError
from ..executable.debug_info import Span
from ..ir.adt import (
    Constructor,
    GlobalTypeVar,
    Match,
    NeverType,
    RefType,
    TypeCall,
    pattern_vars,
)
from ..ir.arith import free_vars
from ..ir.block_builder import BlockBuilder
from ..ir.equality import structural_equal
from ..ir.expr import (
    AnyType,
    BaseFunc,
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    FuncType,
    GlobalVar,
    If,
    IntImm,
    MatchCast,
    PrimType,
    SeqExpr,
    ShapeExpr,
    ShapeType,
    StringImm,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    TypeVar,
    Var,
)
from ..ir.infer import (
    BaseCheckResult,
    base_check,
    bind_pattern,
    bind_type,
    check_exhaustive,
    is_base_of,
    is_condition,
    type_free_vars,
    type_of_call,
)
from ..ir.module import IRModule
from ..ir.nesting import with_headroom
from ..ir.node import class_table
from ..ir.op import Op
from ..ir.sharing import check_sharing
from ..tir import Buffer, PrimFunc
from ..tir.function import parameter_type
from .purity import is_impure_call
from .variables import definable_tir_vars_in_type

__all__ = [
    "RULES",
    "IllFormedError",
    "Rule",
    "Violation",
    "check_well_formed",
    "violations",
    "well_formed",
]


class Violation(NamedTuple):
    """A violation of a rule.

    Attributes:
        rule: the name of the rule, such as "defined_once".
        function: the name of the function in the module.
        problem: what is wrong.
        binding: the binding as text; empty if the problem is not in a binding.
        span: the source location, if known.
        hint: how to fix it, or empty.
    """

    rule: str
    function: str
    problem: str
    binding: str = ""
    span: Span | None = None
    hint: str = ""

    def __str__(self) -> str:
        place = f" ({self.span})" if self.span else ""
        binding = f"\n    in: {_indented(self.binding)}" if self.binding else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.function}{place}: {self.problem}{hint} [{self.rule}]{binding}"


class IllFormedError(RelaxVMError, ValueError):
    """A program is not well-formed.

    Attributes:
        violations: all violations, in program order.
    """

    def __init__(self, violations: Iterable[Violation]) -> None:
        self.violations = tuple(violations)
        count = len(self.violations)
        lines = [str(violation) for violation in self.violations[:_MOST_SHOWN]]
        if count > _MOST_SHOWN:
            lines.append(f"and {count - _MOST_SHOWN} more")
        rules = "a rule" if count == 1 else f"rules at {count} places"
        super().__init__("\n".join([f"the program breaks {rules}:", *lines]))


_MOST_SHOWN: Final = 50
_MOST_TEXT: Final = 300


def well_formed(
    obj: IRModule | BaseFunc, check_ty: bool = True, *, check_effects: bool = True
) -> bool:
    """Check that a module or function is well-formed.

    Args:
        check_ty: whether to check the rules about types.
        check_effects: whether to check that side effects occur only where they are declared.
            With neither, types may also mention symbolic variables that are not defined.

    Returns:
        True.

    Raises:
        IllFormedError: it is not well-formed; lists the violations.
    """
    found = violations(obj, check_ty, check_effects=check_effects)
    if found:
        raise IllFormedError(found)
    return True


def check_well_formed(obj: IRModule | BaseFunc, check_ty: bool = True) -> bool:
    """Return whether a module or function is well-formed; `well_formed` says why not."""
    return not violations(obj, check_ty)


@with_headroom("well_formed")
def violations(
    obj: IRModule | BaseFunc, check_ty: bool = True, *, check_effects: bool = True
) -> list[Violation]:
    """Return all violations of rules in a module or function; see `well_formed`.

    Raises:
        ExprSizeError: parts are shared so often that a walk would not end.
    """
    check_sharing(obj, "well_formed")
    is_module = isinstance(obj, IRModule)
    module = obj if isinstance(obj, IRModule) else IRModule.from_expr(obj)
    walk = _Walk(module, check_ty, check_effects, is_module)
    walk.module_()
    return walk.found


# Rules

_Answer = str | tuple[str, str] | None
_Check = Callable[["_Walk", Any], _Answer]


class Rule(NamedTuple):
    """A rule: `check` is called for the nodes of an `event` of the walk."""

    event: str
    check: _Check
    about_types: bool
    about_effects: bool

    @property
    def name(self) -> str:
        """The name of the rule."""
        return self.check.__name__

    @property
    def text(self) -> str:
        """The statement of the rule."""
        return self.check.__doc__ or ""


RULES: Final[list[Rule]] = []
"""All rules, in the order in which they are checked."""


def rule(
    event: str, *, about_types: bool = False, about_effects: bool = False
) -> Callable[[_Check], _Check]:
    """Decorator: add a function to the rules.

    Args:
        event: "function", "parameter", "definition" and "use" of a variable, "symbol" (a symbolic
            variable in a type that is not in scope), "leaf" (an operand), "value" of a binding,
            "dataflow" (a value in a dataflow block), "binding", "if", "call", "constant",
            "global" (a function that is not in the module), "match", "type" (a data type) and
            "type_parameter" in a type.
        about_types: whether the rule is skipped if types are not checked.
        about_effects: whether the rule is skipped if side effects are not checked.
    """

    def add(check: _Check) -> _Check:
        RULES.append(Rule(event, check, about_types, about_effects))
        return check

    return add


@rule("function")
def symbol_is_name(walk: _Walk, func: Any) -> _Answer:
    """The attribute global_symbol of a function is its name in the module."""
    symbol = func.attrs.get("global_symbol")
    if symbol is not None and isinstance(func, Function) and symbol != walk.function:
        return f"its global_symbol is {symbol!r}", "private functions have none"
    return None


@rule("function")
def symbol_is_unique(walk: _Walk, func: Any) -> _Answer:
    """No two functions have the same global_symbol."""
    symbol = func.attrs.get("global_symbol")
    if symbol is None:
        return None
    other = walk.symbols.setdefault(symbol, walk.function)
    return f"{other} also has the global_symbol {symbol!r}" if other != walk.function else None


@rule("function", about_types=True)
def function_has_type(walk: _Walk, func: Any) -> _Answer:
    """The type of a global variable is that of its function, or says less about it."""
    if walk.variable is None or not isinstance(func, Function):
        return None
    ty = walk.variable.ty
    if type(ty) is not FuncType:
        return f"its GlobalVar has the type {ty}, expected a function type"
    if (
        ty is func.ty
        or structural_equal(ty, func.ty, map_free_vars=True)
        or (base_check(ty, func.ty) is BaseCheckResult.PASS)
    ):
        return None
    return f"its GlobalVar has the type {ty}, but the function has {func.ty}"


@rule("function", about_types=True)
def prim_func_has_type(walk: _Walk, func: Any) -> _Answer:
    """The type of a PrimFunc is that of its parameters."""
    if not isinstance(func, PrimFunc):
        return None
    ty, expected = func.ty, [parameter_type(param) for param in func.params]
    params = ty.params if type(ty) is FuncType else None
    if params is not None and len(params) == len(expected) and (
        all(map(structural_equal, params, expected))
    ):
        return None
    return f"its type is {ty}, but the types of its parameters are {', '.join(map(str, expected))}"


@rule("function", about_types=True)
def result_has_type(walk: _Walk, func: Any) -> _Answer:
    """The type of a function's body does not contradict the return type."""
    if not isinstance(func, Function):
        return None
    if func.ret_ty is None:
        return "the return type is missing", "infer_type or BlockBuilder.normalize infers types"
    body = func.body.ty
    if body is not None and base_check(func.ret_ty, body) is BaseCheckResult.FAIL_L0:
        return f"the return type is {func.ret_ty}, but the body is of type {func.body.ty}"
    return None


@rule("function", about_effects=True)
def forced_purity(walk: _Walk, func: Any) -> _Answer:
    """Only functions that are declared pure have relax.force_pure."""
    if isinstance(func, Function) and func.attrs.get("relax.force_pure") and not func.is_pure:
        return "relax.force_pure is set, but the function is declared impure"
    return None


@rule("parameter")
def parameter_is_var(walk: _Walk, param: Var) -> _Answer:
    """Parameters are not DataflowVars, since they are visible in the whole function."""
    return f"parameter {param.name} is a DataflowVar" if isinstance(param, DataflowVar) else None


@rule("parameter", about_types=True)
def parameter_has_type(walk: _Walk, param: Var) -> _Answer:
    """Parameters have types."""
    return f"parameter {param.name} has no type" if param.ty is None else None


@rule("definition")
def defined_once(walk: _Walk, var: Var) -> _Answer:
    """A variable is defined once in a module."""
    owner = walk.owners.get(var)
    if owner is None:
        return None
    where = "" if owner == walk.function else f", first in {owner}"
    return f"{var.name} is defined twice{where}", "make a new Var for each definition"


@rule("definition")
def dataflow_var_in_dataflow(walk: _Walk, var: Var) -> _Answer:
    """DataflowVars are defined in dataflow blocks."""
    if isinstance(var, DataflowVar) and not walk.in_dataflow:
        return f"the DataflowVar {var.name} is defined outside of a dataflow block"
    return None


@rule("use")
def defined_before_use(walk: _Walk, var: Var) -> _Answer:
    """A variable is used only after its definition and in its scope."""
    if var in walk.visible:
        return None
    if isinstance(var, DataflowVar) and var in walk.owners:
        return f"the DataflowVar {var.name} is used outside of its dataflow block", (
            "bind it to a Var as an output of the block"
        )
    if var not in walk.owners:
        return f"{var.name} is not defined"
    if walk.owners[var] != walk.function:
        return f"{var.name} is defined in another function, {walk.owners[var]}"
    return f"{var.name} is not in scope here; it is defined in another branch or function"


@rule("symbol")
def symbol_defined_before_use(walk: _Walk, var: Var) -> _Answer:
    """A symbolic variable is defined by a parameter or match_cast before a type mentions it."""
    if var in walk.visible:
        return None
    owner = walk.owners.get(var)
    if owner is not None and owner != walk.function:
        return f"the symbolic variable {var.name} is of another function, {owner}"
    return f"the symbolic variable {var.name} is not defined here", (
        "a dimension of a parameter or of R.match_cast that is the variable alone defines it"
    )


@rule("leaf")
def administrative_normal_form(walk: _Walk, expr: Any) -> _Answer:
    """Operands are variables, constants, or tuples of these; other expressions have a binding."""
    if type(expr) in _LEAVES or _is_scalar(expr) or walk.in_operand:
        return None
    return f"the operand {_text(expr)} is a {type(expr).__name__}", (
        "bind it to a variable; relaxvm.transform.Normalize does"
    )


def _is_scalar(expr: Any) -> bool:
    """Whether an expression is a scalar that is computed without a binding, as dimensions are."""
    if isinstance(expr, Call):
        return isinstance(expr.op, Op) and expr.op.name.startswith("tirx.")
    return type(expr.ty) is PrimType and not isinstance(expr, (If, Match, TupleGetItem, SeqExpr))


_LEAVES: Final = class_table(dict.fromkeys(
    (Var, DataflowVar, GlobalVar, Constant, ShapeExpr, ExternFunc, Op, Tuple, StringImm,
     DataTypeImm, Constructor)
))  # fmt: skip


@rule("value")
def value_is_not_sequence(walk: _Walk, value: Any) -> _Answer:
    """Bindings do not nest: the value of a binding is not a SeqExpr."""
    if isinstance(value, SeqExpr):
        return "the value is a SeqExpr", "put its blocks before the binding"
    return None


@rule("value", about_types=True)
def value_has_type(walk: _Walk, value: Any) -> _Answer:
    """Values of bindings have types."""
    if value.ty is None and not isinstance(value, Op):  # reported by another rule
        return f"{_text(value)} has no type", "infer_type or BlockBuilder.normalize infers types"
    return None


@rule("operator")
def operator_is_called(walk: _Walk, op: Op) -> _Answer:
    """Operators are called.  They are not values."""
    return f"the operator {op.name} is used as a value", "wrap it into a function"


@rule("binding", about_types=True)
def variable_has_type(walk: _Walk, binding: Binding) -> _Answer:
    """The variable of a binding has a type, and the value has that type."""
    var, value = binding.var, binding.value
    if var.ty is None:
        return f"{var.name} has no type"
    if isinstance(binding, MatchCast):
        if var.ty is not binding.ty and not structural_equal(var.ty, binding.ty):
            return f"{var.name} is of type {var.ty}, but is cast to {binding.ty}"
        return None
    if value.ty is not None and value.ty is not var.ty and _contradicts(var.ty, value.ty):
        return f"{var.name} is of type {var.ty}, but its value is of type {value.ty}", (
            "R.match_cast narrows a type by a check at run time"
        )
    return None


@rule("binding", about_types=True)
def cast_is_possible(walk: _Walk, binding: Binding) -> _Answer:
    """The type of a match_cast is one that the value may have."""
    if not isinstance(binding, MatchCast) or binding.value.ty is None:
        return None
    if base_check(binding.ty, binding.value.ty) is BaseCheckResult.FAIL_L0:
        return f"{_text(binding.value)} of type {binding.value.ty} can never be {binding.ty}"
    return None


@rule("dataflow")
def no_control_flow_in_dataflow(walk: _Walk, value: Any) -> _Answer:
    """Dataflow blocks have no control flow."""
    if not isinstance(value, (If, Match)):
        return None
    return f"there is {'an If' if isinstance(value, If) else 'a Match'} in a dataflow block"


@rule("dataflow", about_effects=True)
def no_impure_call_in_dataflow(walk: _Walk, value: Any) -> _Answer:
    """Dataflow blocks have no calls with side effects."""
    if isinstance(value, Call) and is_impure_call(value):
        return f"there is an impure call of {_text(value.op)} in a dataflow block", (
            "move it out of the block, or use R.call_pure_packed for a packed function that is pure"
        )
    return None


@rule("if")
def branches_are_sequences(walk: _Walk, expr: If) -> _Answer:
    """The branches of an If are sequences of bindings."""
    branches: tuple[Expr, ...] = (expr.true_branch, expr.false_branch)
    for branch in branches:
        if not isinstance(branch, SeqExpr):
            return f"a branch is a {type(branch).__name__}"
    return None


@rule("if", about_types=True)
def condition_is_bool(walk: _Walk, expr: If) -> _Answer:
    """The condition of an If is a bool."""
    ty = expr.cond.ty
    if ty is None or is_condition(ty):
        return None
    return f"the condition {_text(expr.cond)} is of type {ty}, expected a bool"


@rule("if", about_types=True)
def branch_types_match(walk: _Walk, expr: If) -> _Answer:
    """Both branches of an If have its type."""
    for branch in (expr.true_branch, expr.false_branch):
        if None not in (expr.ty, branch.ty) and _contradicts(expr.ty, branch.ty):
            return f"the If is of type {expr.ty}, but a branch is of type {branch.ty}"
    return None


@rule("match", about_types=True)
def match_is_exhaustive(walk: _Walk, expr: Match) -> _Answer:
    """The clauses of a Match cover every value, unless it is declared incomplete."""
    if not expr.complete:
        return None
    try:
        check_exhaustive(expr)
    except (TypeError, ExprSizeError) as error:
        return str(error)
    return None


@rule("match", about_types=True)
def patterns_fit(walk: _Walk, expr: Match) -> _Answer:
    """The patterns of a Match are of the type of its value, and its variables have types."""
    for clause in expr.clauses:
        for var in pattern_vars(clause.lhs):
            if var.ty is None:
                return f"the pattern variable {var.name} has no type"
        try:
            bind_pattern(clause.lhs, expr.data.ty)
        except TypeError as error:
            return str(error)
    return None


@rule("match", about_types=True)
def clause_types_match(walk: _Walk, expr: Match) -> _Answer:
    """Every clause of a Match has its type, and guards are bools."""
    for clause in expr.clauses:
        if None not in (expr.ty, clause.rhs.ty) and _contradicts(expr.ty, clause.rhs.ty):
            return f"the Match is of type {expr.ty}, but a clause is of type {clause.rhs.ty}"
        guard = clause.guard
        if guard is not None and guard.ty is not None and not is_condition(guard.ty):
            return f"the guard {_text(guard)} is of type {guard.ty}, expected a bool"
    return None


@rule("type", about_types=True)
def data_type_is_defined(walk: _Walk, header: GlobalTypeVar) -> _Answer:
    """Every data type that is mentioned is in the module."""
    if not walk.is_module:
        return None
    for known in walk.module.type_definitions:
        if known.name_hint == header.name_hint:
            if known is header or known.definition is getattr(header, "_definition", None):
                return None
            return f"{known.name_hint} is not the data type that the module has for this name"
    return f"the module has no data type {header.name_hint}", "IRModule.add_type adds one"


@rule("type_parameter", about_types=True)
def type_parameter_is_declared(walk: _Walk, var: TypeVar) -> _Answer:
    """Every type parameter that is mentioned is one of an enclosing function."""
    if var in walk.type_params:
        return None
    return f"the type parameter {var.name_hint} is not declared by an enclosing function"


@rule("call")
def callee_is_known(walk: _Walk, call: Call) -> _Answer:
    """A callee is an operator, a packed function, or an expression of a function type."""
    op = call.op
    if isinstance(op, (Op, ExternFunc, GlobalVar)):
        return None
    if op.ty is None or type(op.ty) in (FuncType, AnyType, NeverType):
        return None
    return f"{_text(op)} is called, but is of type {op.ty}"


@rule("call")
def call_has_attributes(walk: _Walk, call: Call) -> _Answer:
    """A call of an operator has the attributes of the operator."""
    record = call.op.record if isinstance(call.op, Op) else None
    if record is None or record.attribute_names <= call.attrs.keys():
        return None
    missing = sorted(record.attribute_names - call.attrs.keys())
    return f"{_text(call.op)} is called without {', '.join(missing)}", (
        f"make the call with {record.op.name.removeprefix('relax.')} of relaxvm.op"
    )


@rule("call", about_types=True)
def call_has_own_form(walk: _Walk, call: Call) -> _Answer:
    """A call is in the normal form that its operator has of its own."""
    op = call.op
    if not isinstance(op, Op) or op.normalizer is None:
        return None
    if call.ty is None or any(arg.ty is None and type(arg) not in _UNTYPED for arg in call.args):
        return None  # reported by another rule
    builder = BlockBuilder()  # knows no variable's value
    builder.begin_scope()
    try:
        new = op.normalized(builder, call)
    except (TypeError, ValueError, IndexError) as error:
        return f"{_text(call)} has no normal form: {error}"
    if new is call or structural_equal(new, call):
        return None
    return f"the normal form of {_text(call)} is {_text(new)}", (
        "relaxvm.transform.Normalize converts it"
    )


_UNTYPED: Final = frozenset({GlobalVar, ExternFunc, Op})


@rule("call", about_effects=True)
def pure_function_has_no_effect(walk: _Walk, call: Call) -> _Answer:
    """Pure functions do not call impure ones."""
    if walk.pure and is_impure_call(call):
        return f"a pure function makes the impure call of {_text(call.op)}", (
            "declare the function impure (pure=False)"
        )
    return None


@rule("call", about_types=True)
def call_is_well_typed(walk: _Walk, call: Call) -> _Answer:
    """The type of a call is the inferred type."""
    if isinstance(call.op, GlobalVar) and call.op.ty is None:
        return f"the function {call.op.name_hint} has no type"
    for arg in call.args:
        if isinstance(arg, Tuple) and arg.ty is None:
            return f"the argument {_text(arg)} has no type", (
                "infer_type or BlockBuilder.normalize infers types"
            )
    if any(arg.ty is None for arg in call.args):
        return None  # reported by another rule
    try:
        ty = type_of_call(call)
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        return f"ill-typed: {error}"
    if call.ty is not None and ty is not call.ty and _contradicts(call.ty, ty):
        ty = _type_of_own_form(walk, call, ty)
    if call.ty is not None and ty is not call.ty and _contradicts(call.ty, ty):
        return f"the call is of type {call.ty}, but the inferred type is {ty}"
    return None


def _type_of_own_form(walk: _Walk, call: Call, ty: Any) -> Any:
    """The type of the normal form of a call of this type, which depends on values of variables."""
    op = call.op
    if not isinstance(op, Op) or op.normalizer is None:
        return ty
    inferred = Call(op, call.args, call.attrs, call.ty_args, ret_ty=ty, span=call.span)
    try:
        return op.normalized(walk.known, inferred).ty
    except (TypeError, ValueError, IndexError):
        return ty  # reported by another rule


@rule("call")
def prim_func_arguments_match(walk: _Walk, call: Call) -> _Answer:
    """A call_tir passes the tensors and scalars that the PrimFunc takes."""
    op = call.op
    if not isinstance(op, Op) or op.name not in _CALLS_OF_PRIM_FUNCS or len(call.args) < 2:
        return None
    callee = call.args[0]
    if not isinstance(callee, GlobalVar):
        return f"call_tir calls {_text(callee)}, expected a function of the module"
    func = walk.module.functions.get(callee)
    if func is None:
        return None
    if not isinstance(func, PrimFunc):
        return f"call_tir calls {callee.name_hint}, which is not a PrimFunc"
    return _mismatch(call, func)


_CALLS_OF_PRIM_FUNCS: Final = frozenset({"relax.call_tir", "relax.call_tir_inplace"})


def _mismatch(call: Call, func: PrimFunc) -> _Answer:
    """Compare the operands and results of a call_tir with the parameters of a PrimFunc."""
    given = list(_leaf_types(call.args[1].ty))
    outputs = list(_leaf_types(call.ty_args[0])) if call.ty_args else []
    in_place = call.attrs.get("inplace_indices", ())
    for position, (index, output) in enumerate(zip(in_place, outputs, strict=False)):
        if 0 <= index < len(given) and not is_base_of(output, given[index]):
            return (
                f"result {position} is of type {output}, and cannot be written into argument "
                f"{index} of type {given[index]}"
            )
    given += [ty for i, ty in enumerate(outputs) if i >= len(in_place) or in_place[i] < 0]
    for scalars in call.args[2:]:
        given += [value.ty for value in getattr(scalars, "values", ())]
    if len(given) != len(func.params):
        return f"the PrimFunc takes {len(func.params)} arguments, got {len(given)}", (
            "counting operands, results and tir_vars"
        )
    dims: dict[Var, Expr] = {}
    for position, (ty, param) in enumerate(zip(given, func.params, strict=True)):
        if not _takes(param, ty) or not _fits(parameter_type(param), ty, dims):
            return f"parameter {position} of the PrimFunc is {_parameter(param)}, got {ty}"
    return None


def _fits(param: Type, ty: Any, dims: dict[Var, Expr]) -> bool:
    """Whether the dimensions of an argument may be those of a parameter; `dims` has the values of
    the variables in the shapes of the parameters before it."""
    if type(param) is not TensorType or type(ty) is not TensorType:
        return True
    try:
        return bind_type(param, ty, dims) is not BaseCheckResult.FAIL_L0
    except TypeError:
        return True  # dimensions of different data types, which cannot be compared


def _leaf_types(ty: Any) -> Iterable[Any]:
    if type(ty) is TupleType:
        for field in ty.fields:
            yield from _leaf_types(field)
    else:
        yield ty


def _takes(param: Var, ty: Any) -> bool:
    if not isinstance(param, Buffer):
        if type(ty) is PrimType:
            return bool(ty.dtype == param.ty.dtype)
        return type(ty) is not TensorType or param.ty.dtype == "handle"
    if type(ty) is not TensorType:
        return type(ty) is AnyType
    return ty.dtype in (None, param.dtype) and ty.ndim in (-1, len(param.shape))


def _parameter(param: Var) -> str:
    if isinstance(param, Buffer):
        sizes = [dim.value if type(dim) is IntImm else dim for dim in param.shape]
        shape = ", ".join(map(str, sizes))
        return f"the buffer {param.name} of shape [{shape}] and dtype {param.dtype}"
    return f"the scalar {param.name}: {param.ty.dtype}"


@rule("constant", about_types=True)
def constant_has_its_type(walk: _Walk, constant: Constant) -> _Answer:
    """The type of a constant is that of its data."""
    ty, data = constant.ty, constant.data
    if type(ty) is not TensorType or ty.dtype != dtype_name(data.dtype) or ty.ndim != data.ndim:
        return f"a constant of {dtype_name(data.dtype)}{list(data.shape)} is of type {ty}"
    for dim, size in zip(ty.dims or (), data.shape, strict=bool(ty.dims)):
        if type(dim) is IntImm and dim.value != size:
            return f"a constant of shape {list(data.shape)} is of type {ty}"
    return None


@rule("global")
def function_is_in_module(walk: _Walk, var: GlobalVar) -> _Answer:
    """Every function that is mentioned is in the module."""
    if not walk.is_module:
        return None
    if var.name_hint in walk.module:
        return f"{var.name_hint} is not the GlobalVar that the module has for this name", (
            "take it from module.get_global_var"
        )
    return f"the module has no function {var.name_hint}"


def _contradicts(claimed: Any, found: Any) -> bool:
    """Whether a value of type `found` certainly does not have type `claimed`.  Dimensions count as
    equal unless they are provably different."""
    return base_check(claimed, found) <= BaseCheckResult.FAIL_L1


# The walk


class _Walk:
    """Walks a module in order and keeps the state that rules need.

    Attributes:
        function, variable: name and GlobalVar of the current function of the module.
        visible: variables in scope.
        owners: every variable defined so far -> name of the function that defines it.
        in_dataflow: whether the current binding is in a dataflow block.
        in_operand: whether the walk is inside an operand that should have its own binding.
        pure: whether the innermost function is declared pure.
        forced: whether it has relax.force_pure.
        symbols: global_symbol -> name of the function that has it.
        type_params: the type parameters in scope.
        checks_symbols: whether symbolic variables in types must be defined.
        is_module: true for a module; false for a single function, whose module is not known.
        known: finds the values of the variables that were defined so far.
    """

    def __init__(
        self, module: IRModule, check_ty: bool, check_effects: bool, is_module: bool
    ) -> None:
        self.module = module
        self.found: list[Violation] = []
        self.function = ""
        self.variable: GlobalVar | None = None
        self.visible: set[Var] = set()
        self.owners: dict[Var, str] = {}
        self.in_dataflow = False
        self.in_operand = False
        self.pure = False
        self.forced = False
        self.symbols: dict[str, str] = {}
        self.type_params: frozenset[TypeVar] = frozenset()
        self.is_module = is_module
        self.known = BlockBuilder()
        self.binding: Binding | None = None
        self.binding_text: tuple[Binding | None, str] = None, ""
        self.scope: list[Var] = []
        self.check_ty = check_ty
        self.typed = check_ty
        self.checks_symbols = True
        self.check_effects = check_effects
        self.rules = _TABLES[check_ty, check_effects]

    def ask(self, event: str, node: Any) -> None:
        """Check the rules of an event."""
        for r in self.rules[event]:
            answer = r.check(self, node)
            if answer is not None:
                self.report(r, node, answer)

    def report(self, broken: Rule, node: Any, answer: str | tuple[str, str]) -> None:
        problem, hint = (answer, "") if isinstance(answer, str) else answer
        binding = self.binding
        span = getattr(node, "span", None)
        if binding is not None:
            span = binding.span or span
            if self.binding_text[0] is not binding:
                self.binding_text = binding, _text(binding)
        text = "" if binding is None else self.binding_text[1]
        self.found.append(Violation(broken.name, self.function, problem, text, span, hint))

    def expect_types(self, expected: bool) -> None:
        """Turn the rules about types on or off for the following nodes."""
        self.typed = self.check_ty and expected
        self.rules = _TABLES[self.typed, self.check_effects]

    # Scopes

    def define(self, var: Var) -> None:
        self.ask("definition", var)
        self.owners.setdefault(var, self.function)
        self.show(var)

    def show(self, var: Var) -> None:
        """Make a variable visible until the scope ends."""
        if var not in self.visible:
            self.visible.add(var)
            self.scope.append(var)

    def close(self, start: int) -> None:
        """End the scope that began when `start` variables were visible."""
        self.visible.difference_update(self.scope[start:])
        del self.scope[start:]

    def define_symbols(self, ty: Any) -> None:
        for var in definable_tir_vars_in_type(ty):
            if var not in self.visible and self.owners.setdefault(var, self.function) == (
                self.function
            ):
                self.show(var)

    def use(self, var: Var) -> None:
        if var not in self.visible:
            self.ask("use", var)

    def type_(self, ty: Any) -> None:
        """Check that the symbolic variables of a type are defined."""
        if not self.checks_symbols:
            return
        kind = type(ty)
        if kind is TensorType:
            shape = ty.shape
            if shape is None:
                return
            if not isinstance(shape, ShapeExpr):
                self.expression(shape)
                return
            dims = shape.values
        elif kind is ShapeType:
            dims = ty.values or ()
        else:
            if kind in _COMPOUND_TYPES:
                for var in type_free_vars(ty):
                    self.symbol(var)
                self.data_types(ty)
            return
        for dim in dims:
            if type(dim) is not IntImm:
                self.scalar(dim)

    def data_types(self, ty: Any, own: frozenset[TypeVar] = frozenset()) -> None:
        """Check the data types and the type parameters that a type mentions."""
        work: list[tuple[Any, frozenset[TypeVar]]] = [(ty, own)]
        while work:
            found, own = work.pop()
            kind = type(found)
            if kind is TypeVar:
                if found not in own:
                    self.ask("type_parameter", found)
            elif kind is TypeCall:
                self.ask("type", found.func)
                work += [(arg, own) for arg in found.args]
            elif kind is RefType:
                work.append((found.value, own))
            elif kind is TupleType:
                work += [(field, own) for field in found.fields]
            elif kind is FuncType:
                own = own.union(found.type_params)
                work += [(part, own) for part in (found.ret, *(found.params or ()))]

    def scalar(self, dim: Expr) -> None:
        for var in (dim,) if isinstance(dim, Var) else free_vars(dim):
            self.symbol(var)

    def symbol(self, var: Var) -> None:
        if var not in self.visible:
            self.ask("symbol", var)

    # Nodes

    def module_(self) -> None:
        for var, func in self.module.functions.items():
            self.function, self.variable, self.binding = var.name_hint, var, None
            has_heap = _has_shape_heap(func)
            self.checks_symbols = not has_heap and (self.check_ty or self.check_effects)
            self.expect_types(not has_heap)
            self.ask("function", func)
            if isinstance(func, Function):
                self.function_(func)

    def function_(self, func: Function) -> None:
        outer = self.pure, self.forced, self.in_dataflow, self.binding
        outer_params = self.type_params
        self.type_params = outer_params.union(func.type_params)
        self.forced = bool(func.attrs.get("relax.force_pure"))
        self.pure = func.is_pure and not self.forced
        self.in_dataflow = False
        start = len(self.scope)
        for param in func.params:
            self.ask("parameter", param)
            self.define(param)
        for param in func.params:
            self.define_symbols(param.ty)
        for param in func.params:
            self.type_(param.ty)
        self.seq(func.body, close=False)
        self.type_(func.ret_ty)
        self.close(start)
        self.pure, self.forced, self.in_dataflow, self.binding = outer
        self.type_params = outer_params

    def seq(self, seq: Any, close: bool = True) -> None:
        start = len(self.scope)
        if not isinstance(seq, SeqExpr):
            self.expression(seq)
            return
        outer = self.binding
        for block in seq.blocks:
            self.block(block)
        self.binding = outer
        self.leaf(seq.body)
        if close:
            self.close(start)

    def block(self, block: BindingBlock) -> None:
        outer = self.in_dataflow
        self.in_dataflow = isinstance(block, DataflowBlock)
        for binding in block.bindings:
            self.binding = binding
            self.bind(binding)
        if self.in_dataflow:
            self.visible.difference_update(
                b.var for b in block.bindings if isinstance(b.var, DataflowVar)
            )
        self.in_dataflow = outer

    def bind(self, binding: Binding) -> None:
        var, value = binding.var, binding.value
        is_function = isinstance(value, Function)
        if is_function:
            self.define(var)  # a local function may call itself
        self.ask("value", value)
        if self.in_dataflow:
            self.ask("dataflow", value)
        if isinstance(binding, MatchCast):
            self.leaf(value)
            self.define_symbols(binding.ty)
            self.type_(binding.ty)
        else:
            self.expression(value)
        self.ask("binding", binding)
        self.known.know_binding(binding)
        if not is_function:
            self.define(var)
        self.type_(var.ty)

    def expression(self, expr: Any) -> None:
        """Walk the value of a binding, or an expression in it."""
        if checkpoints.running:
            checkpoints.checkpoint()
        visit = _VISIT.get(type(expr))
        if visit is not None:
            visit(self, expr)
        elif _is_scalar(expr):
            self.scalar(expr)

    def leaf(self, expr: Any) -> None:
        """Walk an operand."""
        if type(expr) in _LEAVES or self.in_operand:
            visit = _VISIT.get(type(expr))
            if visit is not None:
                visit(self, expr)
            elif _is_scalar(expr):
                self.scalar(expr)
            return
        self.ask("leaf", expr)
        self.in_operand = True
        self.expression(expr)
        self.in_operand = False

    def call(self, call: Call) -> None:
        if _is_scalar(call):
            self.scalar(call)
            return
        if not isinstance(call.op, Op):
            self.leaf(call.op)
        for arg in call.args:
            self.leaf(arg)
        for ty in call.ty_args:
            self.type_(ty)
        self.ask("call", call)

    def tuple_(self, expr: Tuple) -> None:
        for field in expr.fields:
            self.leaf(field)

    def element(self, expr: TupleGetItem) -> None:
        self.leaf(expr.tuple_value)

    def shape(self, expr: ShapeExpr) -> None:
        for value in expr.values:
            if type(value) is not IntImm:
                self.scalar(value)

    def if_(self, expr: If) -> None:
        self.leaf(expr.cond)
        self.ask("if", expr)
        self.seq(expr.true_branch)
        self.seq(expr.false_branch)

    def match(self, expr: Match) -> None:
        self.leaf(expr.data)
        self.ask("match", expr)
        for clause in expr.clauses:
            start = len(self.scope)
            for var in pattern_vars(clause.lhs):
                self.define(var)
                self.type_(var.ty)
            if clause.guard is not None:
                outer, self.in_operand = self.in_operand, True  # guards are not in normal form
                self.expression(clause.guard)
                self.in_operand = outer
            self.seq(clause.rhs)
            self.close(start)

    def constructor(self, constructor: Constructor) -> None:
        self.ask("type", constructor.belong_to)

    def constant(self, constant: Constant) -> None:
        self.ask("constant", constant)

    def operator(self, op: Op) -> None:
        self.ask("operator", op)

    def global_var(self, var: GlobalVar) -> None:
        if var not in self.module.functions:
            self.ask("global", var)


_EVENTS: Final = (
    "function", "parameter", "definition", "use", "symbol", "leaf", "value", "binding", "dataflow",
    "if", "call", "constant", "global", "match", "operator", "type", "type_parameter",
)  # fmt: skip

_VISIT: Final[dict[type, Callable[[_Walk, Any], None]]] = class_table({
    Var: _Walk.use,
    DataflowVar: _Walk.use,
    Call: _Walk.call,
    Tuple: _Walk.tuple_,
    TupleGetItem: _Walk.element,
    ShapeExpr: _Walk.shape,
    If: _Walk.if_,
    Match: _Walk.match,
    Constructor: _Walk.constructor,
    Constant: _Walk.constant,
    GlobalVar: _Walk.global_var,
    Op: _Walk.operator,
    Function: _Walk.function_,
    SeqExpr: _Walk.seq,
})  # fmt: skip


_TABLES: Final = {
    (typed, effects): {
        event: [
            r
            for r in RULES
            if r.event == event and typed >= r.about_types and effects >= r.about_effects
        ]
        for event in _EVENTS
    }
    for typed in (False, True)
    for effects in (False, True)
}
"""(whether types are checked, whether side effects are checked) -> event -> rules."""


def _has_shape_heap(func: Any) -> bool:
    """Whether a function computes its dimensions on a shape heap (after `VMShapeLower`).  Then they
    are no longer variables, and the types in it are only informative."""
    if not isinstance(func, Function) or not func.body.blocks or not func.body.blocks[0].bindings:
        return False
    value = func.body.blocks[0].bindings[0].value
    return (
        isinstance(value, Call)
        and len(value.args) == 2
        and isinstance(value.args[0], ExternFunc)
        and value.args[0].global_symbol == "vm.builtin.alloc_shape_heap"
    )


_NESTED: Final = class_table(dict.fromkeys((If, Match, SeqExpr, Function)))

_COMPOUND_TYPES: Final = frozenset({TupleType, FuncType, TypeCall, RefType, TypeVar})


def _text(node: Any) -> str:
    """A node as text, without the contents of branches and functions, which may be long; its class
    if it is too broken to be printed."""
    if type(node) in _NESTED:
        return f"<{type(node).__name__}>"
    if isinstance(node, Binding) and type(node.value) in _NESTED:
        return f"{node.var.name} = {_text(node.value)}"
    try:
        text = str(node).strip()
    except Exception as error:
        return f"<{type(node).__name__}, which cannot be printed: {type(error).__name__}>"
    return text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + " ..."


def _indented(text: str) -> str:
    return text.replace("\n", "\n        ")
