"""The printer of script, the text that `relaxvm.script.from_source` parses.

The text depends only on the structure of the program and the names of its variables.  For a
well-formed program p, ``from_source(p.script())`` is structurally equal to p and prints as the same
text, except that private functions whose names are not Python identifiers are renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from ..core.checkpoints import checkpoint
from ..errors import ExprSizeError
from ..ir.adt import (
    Clause,
    Constructor,
    GlobalTypeVar,
    Match,
    NeverType,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    RefType,
    TypeCall,
    TypeData,
)
from ..ir.arith import free_vars
from ..ir.block_builder import is_leaf
from ..ir.equality import structural_equal
from ..ir.expr import (
    EXTERN_TYPE,
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
    FloatImm,
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
    VarBinding,
)
from ..ir.index_map import IndexMap
from ..ir.infer import type_free_vars
from ..ir.json import save_json
from ..ir.module import DummyGlobalInfo, IRModule, VDevice
from ..ir.nesting import with_headroom
from ..ir.node import Node, class_table
from ..ir.op import Op
from ..ir.sharing import check_sharing
from ..ir.visitor import ExprVisitor
from .calls import CALLS, operator_arguments
from .constants import LEFT_OUT, constant_text
from .names import Names, function_names, identifier, is_throwaway, quoted
from .scalars import ScalarText, float_text

__all__ = ["Printer", "as_script"]

HEADER: Final = "from relaxvm.script import ir as I, relax as R, tir as T"

WIDTH: Final = 100
"""Longer signatures are written with one parameter per line."""

_INDENT: Final = "    "


@with_headroom("printing")
def as_script(
    node: Node, complete: bool = True, *, declare_free: bool = False, all_types: bool = True
) -> str:
    """Return any node as script.

    The text of a module begins with the imports that it needs.  In the text of a single function,
    variables of outer scopes appear as plain names.

    Args:
        complete: if false, the contents of large constants are left out, and the text cannot be
            parsed.
        declare_free: whether the text of bindings begins with declarations of the variables that
            they use and do not define.
        all_types: if false, types of tensors are left out where the parser infers them.

    Raises:
        ExprSizeError: `complete` is true, and calls are shared so often that the text would not
            end.
    """
    try:
        check_sharing(node, "printing")
    except ExprSizeError:
        if complete:
            raise
        return f"<{type(node).__name__} with so much sharing that its text would not end>"
    printer = Printer(complete=complete, all_types=all_types)
    if declare_free and isinstance(node, (BindingBlock, Binding, SeqExpr, If, Match)):
        printer.free = []
    if isinstance(node, IRModule):
        printer.module(node)
    elif isinstance(node, BaseFunc):
        printer.any_function(node, _name_of(node), decorator=_decorator(node, _name_of(node)))
    elif isinstance(node, BindingBlock):
        printer.block(node)
    elif isinstance(node, Binding):
        printer.binding(node)
    elif isinstance(node, SeqExpr):
        printer.seq(node)
    elif isinstance(node, If):
        printer.if_statement(Var("result", node.ty), node)
    elif isinstance(node, Match):
        printer.match_statement(Var("result", node.ty), node)
    elif isinstance(node, TypeData):
        printer.data_type(node)
    else:
        return printer.fragment(node)
    return "\n".join([*(printer.free or ()), *printer.lines])


def _name_of(func: BaseFunc) -> str:
    return identifier(str(func.attrs.get("global_symbol", "main")))


def _is_of_data(ty: Any) -> bool:
    """Whether a type mentions data types or type parameters."""
    work = [ty]
    while work:
        found = work.pop()
        kind = type(found)
        if kind is TypeCall or kind is TypeVar:
            return True
        if kind is TupleType:
            work += found.fields
        elif kind is RefType:
            work.append(found.value)
        elif kind is FuncType:
            work += [found.ret, *(found.params or ())]
    return False


def _mentioned(func: Function) -> list[TypeVar]:
    """The type parameters of a function in the order in which its signature mentions them."""
    found: dict[TypeVar, None] = {}
    work: list[Any] = [func.ret_ty, *[param.ty for param in reversed(func.params)]]
    while work:
        ty = work.pop()
        kind = type(ty)
        if kind is TypeVar and ty in func.type_params:
            found[ty] = None
        elif kind is TypeCall:
            work += reversed(ty.args)
        elif kind is TupleType:
            work += reversed(ty.fields)
        elif kind is RefType:
            work.append(ty.value)
        elif kind is FuncType:
            work += [ty.ret, *reversed(ty.params or ())]
    return list(found)


def _decorator(func: BaseFunc | ExternFunc, name: str) -> str:
    options = []
    if func.attrs.get("global_symbol") != name:
        options.append("private=True")
    if not getattr(func, "is_pure", True):
        options.append("pure=False")
    options += _type_params_option(func)
    return f"@R.function({', '.join(options)})" if options else "@R.function"


def _has_plain_type(func: ExternFunc) -> bool:
    """Whether the type of a packed function is that of one of which nothing else is known."""
    return func.ty is EXTERN_TYPE or structural_equal(func.ty, EXTERN_TYPE)


def _type_params_option(func: BaseFunc | ExternFunc) -> list[str]:
    if not isinstance(func, Function) or _mentioned(func) == list(func.type_params):
        return []
    names = ", ".join(quoted(identifier(v.name_hint)) for v in func.type_params)
    return [f"type_params=({names},)"]


class Printer:
    """Writes lines.  One printer prints one module, function or fragment.

    Attributes:
        free: declarations of the variables that a fragment does not define; None if they are not
            declared.
    """

    def __init__(
        self, names: Names | None = None, *, complete: bool = True, all_types: bool = True
    ) -> None:
        self.lines: list[str] = []
        self.free: list[str] | None = None
        self._all_types = all_types
        self.names = Names() if names is None else names
        self.scalar = ScalarText(self._scalar_var, self._other_scalar)
        self._complete = complete
        self._indent = ""
        self._module: IRModule | None = None
        self._functions: dict[str, str] = {}
        self._types: dict[int, str] = {}
        self._used: set[Var] | None = None
        self._root: Function | None = None
        self._uses_module = False
        # Symbolic variables of the signature that have not occurred in the body yet; declarations
        # to write before the next statement; declarations at the start of the body.
        self._of_signature: set[Var] = set()
        self._params: frozenset[Var] = frozenset()
        self._pending: list[str] = []
        self._prelude: list[str] = []
        self._in_signature = False
        self._declares = False

    # Modules

    def module(self, module: IRModule) -> None:
        """``@I.ir_module class Module``"""
        self._module = module
        self._functions = function_names([var.name_hint for var in module])
        self.lines += [HEADER, "", "", "@I.ir_module", "class Module:"]
        self._indent = _INDENT
        parts = []
        if module.attrs:
            parts.append([f"I.module_attrs({self.value(module.attrs)})"])
        if module.global_infos:
            parts.append([f"I.module_global_infos({self.value(module.global_infos)})"])
        heading = [self._indent + line for part in parts for line in part]
        self.lines += heading
        first = not heading
        for data in module.type_definitions.values():
            self.names.define_fixed(data.name)
        for data in module.type_definitions.values():
            if not first:
                self.lines.append("")
            first = False
            self.data_type(data)
        for var, func in module.items():
            if not first:
                self.lines.append("")
            first = False
            name = self._functions[var.name_hint]
            self.any_function(func, name, decorator=_decorator(func, var.name_hint))
        if first:
            self._line("pass")

    def any_function(self, func: BaseFunc | ExternFunc, name: str, decorator: str) -> None:
        """Print a function of a module, or a single one."""
        if isinstance(func, ExternFunc):
            self._line(f"{name} = {self.expr(func)}")
            return
        if isinstance(func, Function):
            self._root, self._used = func, None
            self.function(func, name, decorator)
            return
        from .tir_printer import prim_func_lines

        self.lines += [self._indent + line for line in prim_func_lines(func, self.names, name)]

    def data_type(self, data: TypeData) -> None:
        """Print the definition of a data type."""
        self.names.push()
        self._types.clear()
        params = ", ".join(quoted(self.names.define(v, v.name_hint)) for v in data.type_vars)
        self._line(f"class {identifier(data.name)}(R.Data{f'[{params}]' if params else ''}):")
        self._indent += _INDENT
        for constructor in data.constructors:
            fields = ", ".join(map(self._field, constructor.inputs))
            self._line(f"{identifier(constructor.name_hint)} = R.Constructor({fields})")
        if not data.constructors:
            self._line("pass")
        self._indent = self._indent[: -len(_INDENT)]
        self.names.pop()
        self._types.clear()

    def _field(self, ty: Type) -> str:
        text = self.type(ty)
        return quoted(text) if _is_of_data(ty) else text

    # Functions

    def function(self, func: Function, name: str, decorator: str) -> None:
        """Print the definition of a Relax function."""
        names = self.names
        names.push()
        self._types.clear()
        outer = (self._of_signature, self._prelude, self._uses_module, self._declares)
        self._of_signature, self._prelude = set(), []
        is_nested = self._declares
        if not is_nested:
            self._uses_module = False
        self._declares = True
        self._line(decorator)
        self._signature(func, name)
        self._indent += _INDENT
        attrs = {key: value for key, value in func.attrs.items()
                 if is_nested or key != "global_symbol" or value != name}  # fmt: skip
        if attrs:
            self._line(f"R.func_attr({self.value(attrs)})")
        start = len(self.lines)
        self._declare_signature_if_not_int64()
        for block in func.body.blocks:
            self.block(block)
        self._statement(f"return {self.expr(func.body.body)}")
        prelude = [self._indent + line for line in self._prelude]
        if self._uses_module and not is_nested:
            prelude.insert(0, f"{self._indent}cls = Module")
        self.lines[start:start] = prelude
        self._indent = self._indent[: -len(_INDENT)]
        used_module = self._uses_module
        self._of_signature, self._prelude, self._uses_module, self._declares = outer
        self._uses_module = self._uses_module or used_module
        names.pop()
        self._types.clear()

    def _signature(self, func: Function, name: str) -> None:
        self._in_signature = True
        self._params = frozenset(func.params)
        for var in func.type_params:
            self.names.define(var, var.name_hint)
        for param in func.params:
            self.names.define(param, param.name)
        params = [f"{self.names.get(p)}: {self.type(p.ty)}" for p in func.params]
        ret = "" if func.ret_ty is None else f" -> {self.type(func.ret_ty)}"
        self._in_signature = False
        self._types.clear()
        line = f"def {name}({', '.join(params)}){ret}:"
        if len(self._indent) + len(line) <= WIDTH or not params:
            self._line(line)
            return
        self._line(f"def {name}(")
        for text in params:
            self._line(f"{_INDENT}{text},")
        self._line(f"){ret}:")

    def _declare_signature_if_not_int64(self) -> None:
        """Names in a signature are parsed as int64; declare those of other types in the body."""
        for var in [v for v in self._of_signature if v.ty.dtype != "int64"]:
            self._declare_in_prelude(var)

    def _declare_in_prelude(self, var: Var) -> None:
        self._of_signature.discard(var)
        self._prelude.append(f"{self.names.get(var)} = T.{var.ty.dtype}()")

    # Statements

    def _line(self, text: str) -> None:
        self.lines.append(self._indent + text)

    def _statement(self, text: str) -> None:
        checkpoint()
        if self._pending:
            for line in self._pending:
                self._line(line)
            self._pending.clear()
        self.lines.append(self._indent + text)

    def block(self, block: BindingBlock) -> None:
        """Print the bindings of a block, under ``with R.dataflow()`` for a dataflow block."""
        if not isinstance(block, DataflowBlock):
            for binding in block.bindings:
                self.binding(binding)
            return
        self._statement("with R.dataflow():")
        self._indent += _INDENT
        outputs = []
        for binding in block.bindings:
            var = binding.var
            if not isinstance(var, DataflowVar):
                outputs.append(self.names.define(var, var.name))
        for binding in block.bindings:
            self.binding(binding)
        self._line(f"R.output({', '.join(outputs)})")
        self._indent = self._indent[: -len(_INDENT)]

    def seq(self, seq: SeqExpr) -> None:
        """Print the blocks of a sequence, then its value as a statement."""
        for block in seq.blocks:
            self.block(block)
        self._statement(self.expr(seq.body))

    def binding(self, binding: Binding, name: str | None = None) -> None:
        """Print a binding, with `name` in place of the variable's own name if given."""
        var: Var = binding.var
        value: Any = binding.value
        if isinstance(binding, MatchCast):
            text = f"R.match_cast({self.expr(value)}, {self.type(binding.ty)})"
            self._statement(f"{name or self._defined(var)} = {text}")
            return
        if isinstance(value, If):
            self.if_statement(var, value, name)
            return
        if isinstance(value, Match):
            self.match_statement(var, value, name)
            return
        if isinstance(value, Function):
            self._flush_pending()
            if self.lines and not self.lines[-1].endswith(":"):
                self.lines.append("")
            name = name or self._defined(var)
            options = ([] if value.is_pure else ["pure=False"]) + _type_params_option(value)
            text = f"({', '.join(options)})" if options else ""
            self.function(value, name, f"@R.function{text}")
            self.lines.append("")
            return
        ends_branch = name is not None
        name = name or self._defined(var)
        ty = var.ty
        if type(ty) is PrimType and name != "_" and ty.dtype in _SCALARS:
            self._statement(f"{name}: T.{ty.dtype} = {self._scalar_value(value)}")
            return
        text = self.bound(value)
        if name == "_" and isinstance(value, Call) and type(ty) is TupleType and not ty.fields:
            self._statement(text)
        elif (
            ty is None
            or (name == "_" and ends_branch)
            or self._is_evident(value, ty)
            or not (self._all_types or type(ty) is PrimType or self.type(value.ty) != self.type(ty))
        ):
            self._statement(f"{name} = {text}")
        else:
            self._statement(f"{name}: {self.type(ty)} = {text}")

    def _flush_pending(self) -> None:
        for line in self._pending:
            self._line(line)
        self._pending.clear()

    def _scalar_value(self, value: Any) -> str:
        """The text of a scalar after its type, with which the parser reads plain numbers as scalars
        of it."""
        if type(value) is IntImm:
            return str(bool(value.value) if value.ty.dtype == "bool" else value.value)
        return self.expr(value)

    def bound(self, value: Expr) -> str:
        """The text of an expression where a plain number would be parsed as a tensor, such as on
        the right side of an assignment."""
        if type(value) is IntImm and value.ty.dtype in ("int64", "bool"):
            return f"R.prim_value({self.scalar(value)})"
        return self.expr(value)

    def _is_evident(self, value: Any, ty: Type) -> bool:
        """Whether the type is evident from the text of the value."""
        if isinstance(value, Call):
            return len(value.ty_args) == 1 and self.type(value.ty_args[0]) == self.type(ty)
        return type(value) in _EVIDENT and self.type(value.ty) == self.type(ty)

    def _define(self, var: Var) -> str:
        if is_throwaway(var.name) and var not in self._uses():
            return "_"
        return self.names.define(var, var.name)

    def _defined(self, var: Var) -> str:
        return self.names.get(var) or self._define(var)

    def _uses(self) -> set[Var]:
        """Variables that are used although their names are those of unused values."""
        if self._used is None:
            self._used = set()
            if self._root is not None:
                visitor = _Uses(self._used)
                visitor.visit(self._root)
        return self._used

    def match_statement(self, var: Var, value: Match, name: str | None = None) -> None:
        """``match x: case ...:``, where each case ends with an assignment to the variable."""
        if name is None:
            name = self._defined(var)
        if None not in (value.ty, var.ty) and self.type(var.ty) != self.type(value.ty):
            self._statement(f"{name}: {self.type(var.ty)}")
        data = self.expr(value.data)
        self._statement(f"match {data if value.complete else f'R.incomplete({data})'}:")
        self._indent += _INDENT
        for clause in value.clauses:
            self.names.push()
            pattern = self._pattern(clause.lhs)
            guard = "" if clause.guard is None else f" if {self.expr(clause.guard)}"
            self._line(f"case {pattern}{guard}:")
            self._branch(name, clause.rhs)
            self.names.pop()
        self._indent = self._indent[: -len(_INDENT)]

    def _pattern(self, pattern: Pattern) -> str:
        if isinstance(pattern, PatternVar):
            return self.names.define(pattern.var, pattern.var.name)
        if isinstance(pattern, PatternConstructor):
            inner = ", ".join(map(self._pattern, pattern.patterns))
            return f"{self._constructor(pattern.constructor)}({inner})"
        if isinstance(pattern, PatternTuple):
            inner = ", ".join(map(self._pattern, pattern.patterns))
            return f"({inner}{',' * (len(pattern.patterns) == 1)})"
        return "_"

    def if_statement(self, var: Var, value: If, name: str | None = None) -> None:
        """``if cond: ... else: ...``, where each branch ends with an assignment to the variable."""
        if name is None:
            name = self._defined(var)
        if None not in (value.ty, var.ty) and self.type(var.ty) != self.type(value.ty):
            self._statement(f"{name}: {self.type(var.ty)}")
        self._statement(f"if {self.expr(value.cond)}:")
        self._branch(name, value.true_branch)
        self._line("else:")
        self._branch(name, value.false_branch)

    def _branch(self, name: str, seq: SeqExpr) -> None:
        self._indent += _INDENT
        self.names.push()
        self._types.clear()
        last = _last_binding(seq)
        for block in seq.blocks:
            if last is not None and block is seq.blocks[-1]:
                for binding in block.bindings[:-1]:
                    self.binding(binding)
                break
            self.block(block)
        if last is not None:
            self.binding(last, name)
        else:
            ty = seq.body.ty
            if type(ty) is PrimType and name != "_" and ty.dtype in _SCALARS:
                self._statement(f"{name}: T.{ty.dtype} = {self._scalar_value(seq.body)}")
            else:
                self._statement(f"{name} = {self.bound(seq.body)}")
        self.names.pop()
        self._types.clear()
        self._indent = self._indent[: -len(_INDENT)]

    # Expressions

    def fragment(self, node: Node) -> str:
        """The text of a single expression, type or global info."""
        if isinstance(node, Type):
            return self.type(node)
        if isinstance(node, Pattern):
            return self._pattern(node)
        if isinstance(node, GlobalTypeVar):
            return node.name_hint
        if isinstance(node, Clause):
            guard = "" if node.guard is None else f" if {self.expr(node.guard)}"
            return f"case {self._pattern(node.lhs)}{guard}: {self.expr(node.rhs.body)}"
        if type(node).__module__.startswith("relaxvm.tir."):
            return self._of_tir(node)
        return self.expr(node) if isinstance(node, Expr) else self.value(node)

    def expr(self, expr: Any) -> str:
        """The text of an expression."""
        method = _EXPR.get(type(expr))
        if method is not None:
            return method(self, expr)
        if isinstance(expr, Expr) and type(expr.ty) is PrimType:
            return self.scalar(expr)
        return f"<{type(expr).__name__}>"

    def exprs(self, exprs: Iterable[Expr]) -> str:
        """The texts of several expressions, separated by commas."""
        return ", ".join([self.expr(e) for e in exprs])

    def _var(self, var: Var) -> str:
        if type(var.ty) is PrimType:
            return self._scalar_var(var)
        name = self.names.get(var)
        if name is None:
            name = self._define(var)
            if self.free is not None and var.ty is not None:
                self.free.append(f"{name}: {self.type(var.ty)}")
        return name

    def _scalar_var(self, var: Var) -> str:
        name = self.names.get(var)
        if name is None:
            name = self.names.define(var, var.name)
            if self._in_signature:
                self._of_signature.add(var)
            elif self.free is not None:
                self.free.append(f"{name} = T.{var.ty.dtype}()")
            elif self._declares:
                self._pending.append(f"{name} = T.{var.ty.dtype}()")
        elif var in self._of_signature and not self._in_signature:
            self._declare_in_prelude(var)
        return name

    def _other_scalar(self, expr: Expr) -> str:
        method = _EXPR.get(type(expr))
        return self._of_tir(expr) if method is None else method(self, expr)

    def _of_tir(self, node: Node) -> str:
        from .tir_printer import tir_text

        return tir_text(node, self.names)

    def _global_var(self, var: GlobalVar) -> str:
        if self.is_of_module(var):
            self._uses_module = True
            return f"cls.{self._functions[var.name_hint]}"
        # The parser needs the type for calls; in text for a reader it would be too long.
        return self.foreign_global_var(var, is_typed=self._complete and self._declares)

    def is_of_module(self, var: GlobalVar) -> bool:
        """Whether a function is defined in the module that is printed."""
        return self._module is not None and var.name_hint in self._module

    def foreign_global_var(self, var: GlobalVar, *, is_typed: bool) -> str:
        """The text of a function that is not defined in the module that is printed."""
        ty = f", {self.type(var.ty)}" if is_typed and type(var.ty) is FuncType else ""
        return f"I.GlobalVar({quoted(var.name_hint)}{ty})"

    def _extern_func(self, func: ExternFunc) -> str:
        name = quoted(func.global_symbol)
        return f"R.ExternFunc({name})" if _has_plain_type(func) else (
            f"R.ExternFunc({name}, {self.type(func.ty)})")  # fmt: skip

    def _constructor(self, constructor: Constructor) -> str:
        owner = identifier(constructor.belong_to.name_hint)
        return f"{owner}.{identifier(constructor.name_hint)}"

    def _op(self, op: Op) -> str:
        return f"I.Op({quoted(op.name)})"

    def _constant(self, constant: Constant) -> str:
        return constant_text(constant.data, complete=self._complete)

    def _shape(self, shape: ShapeExpr) -> str:
        return f"R.shape([{', '.join(map(self.scalar, shape.values))}])"

    def _string(self, string: StringImm) -> str:
        return f"R.str({quoted(string.value)})"

    def _data_type(self, dtype: DataTypeImm) -> str:
        return f'R.dtype("{dtype.value}")'

    def _tuple(self, expr: Tuple) -> str:
        return self.group(expr.fields) if expr.fields else "R.tuple()"

    def group(self, exprs: tuple[Expr, ...]) -> str:
        """The text of several expressions in parentheses, as a Python tuple."""
        return f"({self.bare(exprs)}{',' * (len(exprs) == 1)})"

    def bare(self, exprs: Iterable[Expr]) -> str:
        """The texts of several expressions, where a string literal is accepted as an expression."""
        texts = [quoted(e.value) if isinstance(e, StringImm) else self.expr(e) for e in exprs]
        return ", ".join(texts)

    def _tuple_getitem(self, expr: TupleGetItem) -> str:
        if isinstance(expr.tuple_value, Var):
            return f"{self._var(expr.tuple_value)}[{expr.index}]"
        return f"R.TupleGetItem({self.expr(expr.tuple_value)}, {expr.index})"

    def _call(self, call: Call) -> str:
        op = call.op
        if isinstance(op, Op):
            return self._op_call(op, call)
        if isinstance(op, ExternFunc) and (call.attrs or _has_plain_type(op)):
            options = self.keywords(call.attrs) + self.types_option("ty_args", call.ty_args)
            args = [self.bare((e,)) for e in call.args]
            return f"R.call_packed({', '.join([quoted(op.global_symbol), *args, *options])})"
        args = [self.bare(call.args)] if call.args else []
        options = self.types_option("ty_args", call.ty_args)
        return f"{self.expr(op)}({', '.join(args + options)})"

    def _op_call(self, op: Op, call: Call) -> str:
        special = CALLS.get(op.name)
        if special is not None:
            return special(self, call)
        family, _, name = op.name.partition(".")
        if family == "tirx":
            return f"T.{name}({self.exprs(call.args)})"
        arguments = operator_arguments(self, op, call)
        if arguments is not None:
            return f"R.{name}({', '.join(arguments)})"
        options = self.types_option("ty_args", call.ty_args)
        if call.attrs:
            options.append(f"attrs={self.value(call.attrs)}")
        return f"R.emit_with_ty({', '.join([quoted(op.name), self.group(call.args), *options])})"

    # Parts of calls

    def types_option(self, keyword: str, types: tuple[Type, ...]) -> list[str]:
        """``keyword=type``, or ``keyword=(type, type)`` for several types."""
        if not types:
            return []
        if len(types) == 1:
            return [f"{keyword}={self.type(types[0])}"]
        return [f"{keyword}=({', '.join(map(self.type, types))})"]

    def keywords(self, attrs: Mapping[str, Any]) -> list[str]:
        """``name=value`` for each attribute."""
        return [f"{name}={self.value(value)}" for name, value in attrs.items()]

    # Types

    def type(self, ty: Any) -> str:
        """The text of a type."""
        text = self._types.get(id(ty))
        if text is None:
            method = _TYPE.get(type(ty))
            if method is None:
                return "None" if ty is None else f"<{type(ty).__name__}>"
            text = self._types[id(ty)] = method(self, ty)
        return text

    def _dim(self, dim: Expr) -> str:
        if type(dim) is IntImm:
            return self.scalar(dim)
        text = self.scalar(dim)
        if not self._in_signature:
            return text
        variables = (dim,) if isinstance(dim, Var) else free_vars(dim)
        own = any(v in self._of_signature or v in self._params for v in variables)
        return quoted(text) if own else text

    def _dims(self, dims: Iterable[Expr]) -> str:
        return ", ".join([self._dim(dim) for dim in dims])

    def _tensor_type(self, ty: TensorType) -> str:
        parts = []
        dims = ty.dims if isinstance(ty.shape, ShapeExpr) else None
        if dims is not None:
            parts.append(f"({self._dims(dims)}{',' * (len(dims) == 1)})")
        elif ty.shape is not None:
            parts.append(self.expr(ty.shape))
        if ty.dtype is not None:
            parts.append(f'dtype="{ty.dtype}"')
        if ty.shape is None and ty.ndim != -1:
            parts.append(f"ndim={ty.ndim}")
        if ty.vdevice is not None:
            parts.append(f"vdevice={self.vdevice(ty.vdevice)}")
        return f"R.Tensor({', '.join(parts)})" if parts else "R.Tensor"

    def vdevice(self, device: VDevice) -> str:
        """A device as its index among the module's devices of the same target, ``"llvm:1"``."""
        devices = self._module.global_infos.get("vdevice", []) if self._module is not None else []
        candidates = [d for d in devices if isinstance(d, VDevice) and d.target == device.target]
        for place, other in enumerate(candidates):
            if self.value(other) == self.value(device):
                return quoted(f"{device.target}:{place}")
        return self.value(device)

    def _shape_type(self, ty: ShapeType) -> str:
        if ty.values is not None:
            return f"R.Shape([{self._dims(ty.values)}])"
        return "R.Shape" if ty.ndim == -1 else f"R.Shape(ndim={ty.ndim})"

    def _tuple_type(self, ty: TupleType) -> str:
        return f"R.Tuple({', '.join(map(self.type, ty.fields))})" if ty.fields else "R.Tuple"

    def _func_type(self, ty: FuncType) -> str:
        if ty.params is None:
            if ty.derive_func is not None:
                name = quoted(ty.derive_func.name)
                return f"R.Callable(derive_func={name}, purity={ty.purity})"
            if type(ty.ret) is AnyType and not ty.purity:
                return "R.Callable"
            return f"R.Callable(ret={self.type(ty.ret)}, purity={ty.purity})"
        if ty.type_params:
            return self._generic_func_type(ty)
        params = ", ".join(map(self.type, ty.params)) + "," * (len(ty.params) == 1)
        return f"R.Callable(({params}), {self.type(ty.ret)}, {ty.purity})"

    def _prim_type(self, ty: PrimType) -> str:
        return f'R.Prim("{ty.dtype}")'

    def _generic_func_type(self, ty: FuncType) -> str:
        """The type of a function with type parameters, whose names are in quotes."""
        self.names.push()
        outer, self._types = self._types, {}
        own = [self.names.define(v, v.name_hint) for v in ty.type_params]
        params = ", ".join(map(self.type, ty.params or ()))
        text = f"R.Callable(({params},), {self.type(ty.ret)}, {ty.purity}"
        self._types = outer
        self.names.pop()
        return f"{text}, type_params=({', '.join(map(quoted, own))},))"

    def _type_var(self, ty: TypeVar) -> str:
        name = self.names.get(ty) or identifier(ty.name_hint)
        return quoted(name) if self._in_signature else name

    def _type_call(self, ty: TypeCall) -> str:
        name = identifier(ty.func.name_hint)
        return f"{name}[{', '.join(map(self.type, ty.args))}]" if ty.args else name

    def _ref_type(self, ty: RefType) -> str:
        return f"R.Ref({self.type(ty.value)})"

    def _never_type(self, ty: NeverType) -> str:
        return "R.Never"

    def _any_type(self, ty: AnyType) -> str:
        return "R.Any"

    # Values of attributes

    def value(self, value: Any) -> str:
        """The text of an attribute value."""
        if isinstance(value, str):
            return quoted(value)
        if isinstance(value, float):
            text = float_text(value)
            return f"float({text})" if text[0] == '"' else text
        if value is None or isinstance(value, (bool, bytes)):
            return repr(value)
        if isinstance(value, int):
            return repr(int(value))
        if isinstance(value, np.generic):
            return self.value(value.item())
        if isinstance(value, Mapping):
            pairs = [f"{self.value(key)}: {self.value(item)}" for key, item in value.items()]
            return f"{{{', '.join(pairs)}}}"
        if isinstance(value, (list, tuple)):
            items = ", ".join(map(self.value, value))
            if isinstance(value, list):
                return f"[{items}]"
            return f"({items}{',' * (len(value) == 1)})"
        if isinstance(value, VDevice):
            scope = "" if value.memory_scope == "global" else f", {quoted(value.memory_scope)}"
            return f"I.vdevice({quoted(value.target)}, {value.vdevice_id}{scope})"
        if isinstance(value, DummyGlobalInfo):
            return "I.dummy_global_info()"
        if isinstance(value, IndexMap):
            return self._index_map(value)
        if isinstance(value, IntImm):
            return f"T.{value.ty.dtype}({value.value})"
        if isinstance(value, Type):
            return self.type(value)
        if isinstance(value, Expr) and (type(value) in _EXPR or type(value.ty) is PrimType):
            return self.expr(value)
        if isinstance(value, np.ndarray):
            return f"{constant_text(value, complete=self._complete)}.data"
        try:
            text = save_json(value, spans=False)
        except TypeError:
            return f"I.unwritten({quoted(type(value).__qualname__)})"
        return f"I.from_json({(text if self._complete else LEFT_OUT)!r})"

    def _index_map(self, value: IndexMap) -> str:
        inverse = value.inverse_index_map
        self.names.push()
        names = [self.names.define(var, var.name) for var in value.initial_indices]
        places = ", ".join(map(self.expr, value.final_indices))
        self.names.pop()
        places += "," * (len(value.final_indices) == 1)
        back = "" if inverse is None else f", inverse_index_map={self._index_map(inverse)}"
        return f"T.index_map(lambda {', '.join(names)}: ({places}){back})"


class _Uses(ExprVisitor):
    """Collects used variables whose names are those of unused values."""

    def __init__(self, found: set[Var]) -> None:
        self._found = found

    def visit_var(self, var: Var) -> None:
        if is_throwaway(var.name):
            self._found.add(var)

    def visit_var_def(self, var: Var) -> None:
        self.visit_type(var.ty)

    def visit_scalar(self, scalar: Expr) -> None:
        for var in free_vars(scalar):
            self.visit_var(var)

    def visit_type(self, ty: Any) -> None:
        for var in type_free_vars(ty):
            self.visit_var(var)


def _last_binding(seq: SeqExpr) -> Binding | None:
    """The last binding of a branch if its variable is the value of the branch, so that it can be
    written as an assignment to the variable that the branch defines; else None."""
    if not seq.blocks or isinstance(seq.blocks[-1], DataflowBlock) or not seq.blocks[-1].bindings:
        return None
    last = seq.blocks[-1].bindings[-1]
    if last.var is not seq.body:
        return None
    if isinstance(last, MatchCast):
        return last
    assert isinstance(last, VarBinding)
    value = last.value
    if isinstance(value, (Tuple, Function)) or is_leaf(value):
        return None
    return last


_EVIDENT: Final = class_table(
    dict.fromkeys((Constant, ShapeExpr, StringImm, DataTypeImm, IntImm, FloatImm))
)

_SCALARS: Final = frozenset((
    "bool", "float16", "float32", "float64", "int16", "int32", "int64", "int8", "uint16", "uint32",
    "uint64", "uint8",
))  # fmt: skip
"""Data types of scalars that the namespace ``T`` has."""

_Method = Callable[[Printer, Any], str]

_EXPR: Final[dict[type, _Method]] = class_table({
    Var: Printer._var,
    DataflowVar: Printer._var,
    GlobalVar: Printer._global_var,
    ExternFunc: Printer._extern_func,
    Op: Printer._op,
    Constant: Printer._constant,
    ShapeExpr: Printer._shape,
    StringImm: Printer._string,
    DataTypeImm: Printer._data_type,
    Tuple: Printer._tuple,
    TupleGetItem: Printer._tuple_getitem,
    Call: Printer._call,
    Constructor: Printer._constructor,
})  # fmt: skip

_TYPE: Final[dict[type, _Method]] = {
    TensorType: Printer._tensor_type,
    ShapeType: Printer._shape_type,
    PrimType: Printer._prim_type,
    TupleType: Printer._tuple_type,
    FuncType: Printer._func_type,
    AnyType: Printer._any_type,
    TypeVar: Printer._type_var,
    TypeCall: Printer._type_call,
    RefType: Printer._ref_type,
    NeverType: Printer._never_type,
}
