"""The parser of Relax functions and modules.

Each statement is converted to bindings as it is read.  `BlockBuilder` normalizes the values and
infers their types, so that a type error is reported at its source location.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import numpy as np

from ..errors import (
    AnnotationWarning,
    DiagnosticError,
    NestingError,
    UnreachableClauseWarning,
    did_you_mean,
)
from ..executable.debug_info import Span
from ..ir.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
    pattern_vars,
)
from ..ir.arith import Analyzer
from ..ir.block_builder import BlockBuilder, is_leaf
from ..ir.coverage import pattern_text, unreachable_clauses
from ..ir.equality import structural_equal
from ..ir.expr import (
    ANY,
    BaseFunc,
    Call,
    DataflowVar,
    Expr,
    ExternFunc,
    Function,
    GlobalVar,
    If,
    MatchCast,
    PrimType,
    SeqExpr,
    TensorType,
    Tuple,
    TupleType,
    Type,
    Var,
    VarBinding,
    const,
    convert_to_expr,
)
from ..ir.infer import (
    BaseCheckResult,
    base_check,
    bind_pattern,
    declared_ret_type,
    dimensions,
    function_ret_type,
    is_base_of,
    is_condition,
    type_free_vars,
)
from ..ir.module import IRModule
from ..ir.nesting import headroom
from ..ir.node import Attrs
from ..ir.prim import immediate, maximum
from ..op.base import call_pure_packed
from .data_types import define_data_types, is_data_class, read_data_types
from .evaluate import Evaluator
from .macros import Macro
from .markers import (
    Annotations,
    Dataflow,
    FunctionAttrs,
    Incomplete,
    MatchCastPair,
    MetaVar,
    ModuleAttrs,
    ModuleGlobalInfos,
    Output,
)
from .names import is_function_name
from .patterns import alternatives, comparison, literal_of
from .scope import CURRENT, MISSING, Scope
from .signature import Signature, dimension, read_signature, type_text
from .source import Source
from .type_forms import DTypeMaker, type_of

__all__ = ["parse_function", "parse_module"]

_FUNCTION_OPTIONS: Final = ("private", "pure", "check_well_formed", "type_params")
_MATCH_CAST_ALONE: Final = "assign the result of R.match_cast to a variable"


def parse_module(
    source: Source,
    node: ast.ClassDef,
    outside: Mapping[str, Any],
    annotations: Annotations = Annotations.PROVED,
) -> IRModule:
    """Parse a class as a module.

    Args:
        annotations: what is done with types that are written and not proved.
    """
    parser = _ModuleParser(source, node, outside)
    parser.annotations = annotations
    with _reading(parser, node):
        return parser.parse()


def parse_function(
    source: Source,
    node: ast.FunctionDef,
    outside: Mapping[str, Any],
    annotations: Annotations = Annotations.PROVED,
) -> BaseFunc:
    """Parse a decorated function as a Relax function or a PrimFunc; see `parse_module`."""
    parser = _Parser(source, Scope(outside))
    parser.annotations = annotations
    with _reading(parser, node):
        return parser.top_function(node)


@contextmanager
def _reading(parser: _Parser, node: ast.AST) -> Iterator[None]:
    """Context manager: make a parser the current one while it parses a syntax tree."""
    token = CURRENT.set(parser)
    try:
        with headroom("parsing", node):
            yield
    except NestingError as error:
        parser.source.too_deep(node, error)
    finally:
        CURRENT.reset(token)


class _Decoration:
    """The kind and the options of a function, from its decorator."""

    __slots__ = ("is_private", "is_pure", "kind", "type_params")

    def __init__(
        self,
        kind: str,
        is_private: bool = False,
        is_pure: bool = True,
        type_params: Sequence[str] = (),
    ) -> None:
        self.kind = kind
        self.is_private = is_private
        self.is_pure = is_pure
        self.type_params = tuple(type_params)


class _Parser:
    """Base of the parsers of modules and of single functions; the value of `CURRENT`."""

    def __init__(self, source: Source, scope: Scope) -> None:
        self.source = source
        self.scope = scope
        self.annotations = Annotations.PROVED
        self.body: _BodyParser | None = None
        self.foreign_global_vars: dict[str, GlobalVar] = {}
        self.evaluator = Evaluator(source, scope)

    def foreign_global_var(self, name: str, ty: Type | None) -> GlobalVar:
        """Return the GlobalVar of a function that is not in the text; the same for each name."""
        var = self.foreign_global_vars.setdefault(name, GlobalVar(name))
        var.ty = var.ty or ty
        return var

    def add_prim_func(self, func: BaseFunc, name: str) -> GlobalVar:
        """Add a function that the script makes (`R.emit_te`) to the module.

        Raises:
            TypeError: there is no module.
        """
        raise TypeError("R.emit_te: a function alone has no place for the loops that it makes; "
                        "write it in a module")

    def prim_funcs(self) -> Iterable[tuple[GlobalVar, BaseFunc]]:
        """The functions of the module that are known already."""
        return ()

    def dimension(self, text: str) -> Expr:
        """Return the scalar for a dimension in quotes."""
        return dimension(self.evaluator, text)

    def type_text(self, text: str) -> Type:
        """Return the type for a type in quotes."""
        return type_text(self.evaluator, text)

    def error(self, node: Any, message: str) -> NoReturn:
        """Refuse the script."""
        self.source.error(node, message)

    def decoration(self, node: ast.FunctionDef) -> _Decoration:
        """Read the decorator of a function."""
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            kind = getattr(self.evaluator.eval(called), "script_kind", None)
            if kind == "relax":
                return self._relax_decoration(decorator)
            if kind == "tir":
                return _Decoration("tir")
        what = node.decorator_list[-1] if node.decorator_list else node
        self.error(
            what, f"function {node.name!r}: expected the decorator @R.function or @T.prim_func"
        )

    def _relax_decoration(self, decorator: ast.expr) -> _Decoration:
        options: dict[str, Any] = {"private": False, "pure": True, "type_params": ()}
        if isinstance(decorator, ast.Call):
            for argument in decorator.args:
                self.error(argument, "R.function: expected options by keyword, as private=True")
            for keyword in decorator.keywords:
                if keyword.arg not in _FUNCTION_OPTIONS:
                    known = did_you_mean(str(keyword.arg), _FUNCTION_OPTIONS)
                    self.error(keyword.value, f"R.function: unknown option {keyword.arg!r}{known}")
                options[keyword.arg] = self.evaluator.eval(keyword.value)
        is_private, is_pure = bool(options["private"]), bool(options["pure"])
        return _Decoration("relax", is_private, is_pure, options["type_params"])

    def top_function(self, node: ast.FunctionDef) -> BaseFunc:
        """Parse a function outside of a module."""
        decoration = self.decoration(node)
        if decoration.kind == "tir":
            return self.prim_func(node)
        signature = read_signature(self.evaluator, node, decoration.type_params)
        return self.function(node, signature, decoration)

    def prim_func(self, node: ast.FunctionDef) -> BaseFunc:
        """Parse a PrimFunc."""
        from .tir_parser import parse_prim_func

        func: BaseFunc = parse_prim_func(node, self.source, self.evaluator)
        return func

    def function(
        self, node: ast.FunctionDef, signature: Signature, decoration: _Decoration
    ) -> Function:
        """Parse a Relax function, of a module or alone."""
        # A program that need not be well-formed is kept as it is written.
        as_written = self.annotations is Annotations.TRUSTED
        body = _BodyParser(self, BlockBuilder(applies_normalizers=not as_written))
        name = None if decoration.is_private else node.name
        return body.function(node, signature, name, decoration.is_pure)


class _Module:
    """The value of the name of the class and of ``cls`` inside it; functions are attributes."""

    __slots__ = ("_parser",)

    def __init__(self, parser: _ModuleParser) -> None:
        self._parser = parser

    def __getattr__(self, name: str) -> GlobalVar:
        return self._parser.global_var(name)


class _ModuleParser(_Parser):
    """Parses a class: first attributes, global infos and signatures, then the bodies.

    A use of a function needs the type of its result.  If that is not declared, the body of the
    function is parsed at the first use.
    """

    def __init__(self, source: Source, node: ast.ClassDef, outside: Mapping[str, Any]) -> None:
        super().__init__(source, Scope(outside))
        self._node = node
        self._attrs: dict[str, Any] = {}
        self._infos: dict[str, list[Any]] = {}
        self._vars: dict[str, GlobalVar] = {}
        self._open: dict[str, tuple[ast.FunctionDef, Signature, _Decoration]] = {}
        self._done: dict[str, Any] = {}
        self._types: list[TypeData] = []
        self.scope.define(node.name, _Module(self))

    def parse(self) -> IRModule:
        functions: list[ast.FunctionDef] = []
        classes: list[ast.ClassDef] = []
        for statement in self._node.body:
            if isinstance(statement, ast.FunctionDef):
                functions.append(statement)
            elif isinstance(statement, ast.ClassDef) and is_data_class(self.evaluator, statement):
                classes.append(statement)
            else:
                self._statement(statement)
        self._types = read_data_types(self.evaluator, classes)
        for node in functions:
            self._declare(node)
        for name in list(self._open):
            self._read(name)
        types = {data.header: data for data in self._types}
        module = IRModule(None, self._attrs, self._infos, types)
        for name, var in self._vars.items():
            var.ty = self._done[name].ty
            module[var] = self._done[name]
        module.span = self.source.span(self._node)
        return module

    def add_prim_func(self, func: BaseFunc, name: str) -> GlobalVar:
        taken = {var.name_hint for var in self._vars.values()}.union(self._vars)
        unique, number = name, 0
        while unique in taken:
            number += 1
            unique = f"{name}{number}"
        var = self._vars[unique] = GlobalVar(unique, func.ty)
        self._done[unique] = func
        return var

    def prim_funcs(self) -> Iterable[tuple[GlobalVar, BaseFunc]]:
        return [(self._vars[name], func) for name, func in self._done.items()]

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Pass):
            return
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            value = self.evaluator.eval(node.value)
            target = node.targets[0]
            if isinstance(value, (BaseFunc, ExternFunc)) and isinstance(target, ast.Name):
                self._add(target, target.id, value.ty)
                self._done[target.id] = value
                return
        if isinstance(node, ast.Expr):
            value = self.evaluator.eval(node.value)
            if isinstance(value, ModuleAttrs):
                self._attrs.update(value.attrs)
                return
            if isinstance(value, ModuleGlobalInfos):
                self._infos.update(value.infos)
                self.scope.vdevices = self._infos.get("vdevice", [])
                return
            if isinstance(value, str):
                return
        self.error(
            node,
            "expected a function, a data type, I.module_attrs(...) or I.module_global_infos(...) "
            "in a module",
        )

    def _add(self, node: Any, name: str, ty: Type | None) -> None:
        hint = name
        known: Iterable[str] = self._vars
        symbol = _symbol(node) if isinstance(node, ast.FunctionDef) else None
        if symbol and not is_function_name(symbol):
            hint = symbol
            known = [var.name_hint for var in self._vars.values()]
        if name in self._vars or hint in known:
            self.error(node, f"the module already has a function {hint!r}")
        self._vars[name] = GlobalVar(hint, ty, self.source.span(node))

    def _declare(self, node: ast.FunctionDef) -> None:
        decoration = self.decoration(node)
        if decoration.kind == "tir":
            func = self.prim_func(node)
            self._add(node, node.name, func.ty)
            self._done[node.name] = func
            return
        signature = read_signature(self.evaluator, node, decoration.type_params)
        ty = None if signature.ret is None else signature.func_type(
            signature.ret, decoration.is_pure)  # fmt: skip
        self._add(node, node.name, ty)
        self._open[node.name] = (node, signature, decoration)

    def _read(self, name: str) -> None:
        """Read the body of a function, unless it was or is being read."""
        found = self._open.pop(name, None)
        if found is None:
            return
        node, signature, decoration = found
        var = self._vars[name]
        if var.ty is None:
            var.ty = signature.func_type(ANY, decoration.is_pure)  # for recursive calls
        func = self._done[name] = self.function(node, signature, decoration)
        var.ty = func.ty

    def global_var(self, name: str) -> GlobalVar:
        """Return a function by name.

        Raises:
            AttributeError: there is no such function.
        """
        var = self._vars.get(name)
        if var is None:
            raise AttributeError(
                f"the module has no function {name!r}{did_you_mean(name, self._vars)}"
            )
        if var.ty is None:
            self._read_nested(name)
        return var

    def _read_nested(self, name: str) -> None:
        """Read the body of a function while reading another one, in a separate scope."""
        outer = self.scope, self.evaluator
        self.scope = Scope(outer[0].outside)
        self.scope.vdevices = outer[0].vdevices
        self.scope.define(self._node.name, _Module(self))
        define_data_types(self.scope, self._types)
        self.evaluator = Evaluator(self.source, self.scope)
        try:
            self._read(name)
        finally:
            self.scope, self.evaluator = outer


def _symbol(node: ast.FunctionDef) -> str | None:
    """The "global_symbol" in the ``R.func_attr`` of a function, if any."""
    for statement in node.body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr == "func_attr" and call.args and isinstance(call.args[0], ast.Dict):
            attrs = call.args[0]
            for key, value in zip(attrs.keys, attrs.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "global_symbol":
                    symbol = getattr(value, "value", None)
                    return symbol if isinstance(symbol, str) else None
    return None


class _BodyParser:
    """Parses the body of a function, including its local functions."""

    def __init__(self, parser: _Parser, builder: BlockBuilder) -> None:
        self._builder = builder
        self._source = parser.source
        self._scope = parser.scope
        self._evaluator = parser.evaluator
        self._parser = parser
        self._outputs: set[int] | None = None
        self._attrs: dict[str, Any] = {}
        self._declared: tuple[str, Type, ast.stmt] | None = None
        self._compared: list[tuple[Var, Any]] = []
        """Values in the pattern that is being parsed, with the variables that stand for them."""
        self._statement: ast.stmt = ast.Pass()
        self._expanding: list[Macro] = []
        self._dimensions: dict[Var, None] = {}
        """Variables that are dimensions of tensors, and so not negative."""

    def error(self, node: Any, message: str) -> NoReturn:
        """Refuse the script."""
        self._source.error(node, message)

    # Functions

    def function(
        self, node: ast.FunctionDef, signature: Signature, name: str | None, is_pure: bool
    ) -> Function:
        """Parse a function; the parameters are in scope in its body."""
        outer = (self._attrs, self._declared, self._outputs)
        outer_body, self._parser.body = self._parser.body, self
        self._attrs, self._declared, self._outputs = {}, None, None
        self._scope.push()
        for symbol, var in signature.names.items():
            self._scope.define(symbol, var)
        self._builder.begin_scope(signature.params)
        known = len(self._dimensions)
        self._add_dimensions(param.ty for param in signature.params)
        body = self._function_body(node)
        ret = self._ret_type(node, signature, body)
        self._forget_dimensions(known)
        self._scope.pop(f"in function {node.name!r}")
        if name is None and "global_symbol" in self._attrs:
            self.error(node, f"function {node.name!r} is private, or local: it cannot have the "
                             "attribute global_symbol")  # fmt: skip
        attrs = {} if name is None else {"global_symbol": name}
        attrs.update(self._attrs)
        self._attrs, self._declared, self._outputs = outer
        self._parser.body = outer_body
        span = self._source.span(node)
        return Function(signature.params, body, ret, is_pure, Attrs(attrs), span,
                        type_params=signature.type_params)  # fmt: skip

    def _function_body(self, node: ast.FunctionDef) -> SeqExpr:
        statements = _return_after_block(node.body)
        last = statements[-1]
        if not isinstance(last, ast.Return):
            for inner in _returns(statements):
                self._return(inner)
            self.error(last, f"function {node.name!r} does not end with a return")
        self._statements(statements[:-1])
        self._no_declaration()
        self._statement = last
        value = None if last.value is None else self._value(last.value)
        if value is None:
            self.error(last, "expected a value after return; an empty tuple is R.tuple()")
        if type(value) is MatchCastPair:
            self.error(last, _MATCH_CAST_ALONE)
        try:
            return self._builder.end_scope(convert_to_expr(value))
        except (TypeError, ValueError) as error:
            self._evaluator.failed(last, error)

    def _ret_type(self, node: ast.FunctionDef, signature: Signature, body: SeqExpr) -> Type:
        written = signature.ret
        inferred: Type
        if written is None:
            inferred = function_ret_type(signature.params, body)
            return inferred
        if isinstance(written, TupleType) and not written.fields and isinstance(body.ty, TupleType):
            # ``-> R.Tuple`` is how programs for TVM say "a tuple".
            inferred = function_ret_type(signature.params, body)
            return inferred
        mode = self._parser.annotations
        if mode is Annotations.TRUSTED:
            return written
        if base_check(written, body.ty) is BaseCheckResult.FAIL_L0:
            problem = (f"function {node.name!r} is declared to return {written}, but its body is "
                       f"of type {body.ty}")  # fmt: skip
            if mode is Annotations.PROVED:
                self.error(node.returns, problem)
            self._warn(node.returns, f"{problem}; that type is used", AnnotationWarning)
            inferred = function_ret_type(signature.params, body)
            return inferred
        declared: Type = declared_ret_type(written, signature.params, body)
        if base_check(declared, body.ty) is BaseCheckResult.FAIL_L2:
            inferred = function_ret_type(signature.params, body)
            return self._type_by_bounds(written, inferred) or written
        return declared

    def _local_function(self, node: ast.FunctionDef) -> None:
        """A local function is a binding of its name."""
        decoration = self._parser.decoration(node)
        if decoration.kind == "tir":
            self.error(node, "a PrimFunc cannot be inside of a function; move it to the module")
        signature = read_signature(self._evaluator, node, decoration.type_params)
        ret = ANY if signature.ret is None else signature.ret
        ty = signature.func_type(ret, decoration.is_pure)
        var = self._var(node.name, ty, node)
        self._scope.define(node.name, var)
        func = self.function(node, signature, None, decoration.is_pure)
        var.ty = func.ty
        self._builder.emit_normalized(VarBinding(var, func, self._source.span(node)))

    # Macros

    def expand(self, macro: Macro, arguments: Mapping[str, Any]) -> Any:
        """Parse the statements of a macro here, and return the value that it returns.

        Raises:
            DiagnosticError: a statement is wrong, or the macro uses itself.
        """
        node = macro.node
        if macro in self._expanding:
            raise ValueError(f"macro {node.name!r} uses itself; write a function for recursion")
        parser, used = self._parser, self._statement
        outer = self._source, self._scope, self._evaluator
        scope = Scope(macro.names) if macro.hygienic else outer[1]
        scope.vdevices = outer[1].vdevices
        self._source = parser.source = macro.source
        self._scope = parser.scope = scope
        self._evaluator = parser.evaluator = Evaluator(macro.source, scope)
        self._expanding.append(macro)
        scope.push()
        try:
            for name, value in arguments.items():
                scope.define(name, value)
            *body, last = node.body
            if not isinstance(last, ast.Return):
                body.append(last)
            self._statements(body)
            self._no_declaration()
            if isinstance(last, ast.Return) and last.value is not None:
                return self._value(last.value)
            return None
        except DiagnosticError as error:
            error.add_note(f"in macro {node.name!r}, used at {outer[0].span(used)}")
            raise
        finally:
            scope.pop(f"in macro {node.name!r}")
            self._expanding.pop()
            self._source, self._scope, self._evaluator = outer
            parser.source, parser.scope, parser.evaluator = outer

    # Statements

    def _statements(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            method = _STATEMENTS.get(type(statement))
            if method is None:
                self._unsupported(statement)
            if self._declared is not None and type(statement) not in (ast.If, ast.Match):
                self._no_declaration()
            self._statement = statement
            method(self, statement)

    def _unsupported(self, node: ast.stmt) -> NoReturn:
        name = type(node).__name__
        self.error(node, _HINTS.get(type(node), f"statement {name} is not part of the language"))

    def _no_declaration(self) -> None:
        if self._declared is not None:
            name, _, node = self._declared
            self.error(
                node,
                f"{name!r} has a type but no value; that is allowed only before an if that defines "
                "it",
            )

    def _value(self, node: ast.expr) -> Any:
        return self._evaluator.eval(node)

    def _assign(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            self.error(node, "assign to one variable at a time; a = b = c is not supported")
        self._bind(node.targets[0], self._value(node.value), None, node)

    def _annotated(self, node: ast.AnnAssign) -> None:
        ty = self._type(node.annotation)
        if node.value is None:
            if not isinstance(node.target, ast.Name):
                self.error(node, "expected a variable before the type")
            self._declared = (node.target.id, ty, node)
            return
        self._bind(node.target, self._value(node.value), ty, node)

    def _augmented(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            self.error(node.target, "only variables can be assigned to")
        operation = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        ast.copy_location(operation, node)
        ast.copy_location(operation.left, node.target)
        self._bind(node.target, self._value(operation), None, node)

    def _type(self, node: ast.expr) -> Type:
        value = self._value(node)
        try:
            return type_of(value)
        except (TypeError, ValueError) as error:
            self._evaluator.failed(node, error)

    def _bind(self, target: ast.expr, value: Any, ty: Type | None, node: Any) -> None:
        if isinstance(target, ast.Name):
            self._bind_name(target, value, ty, node)
        elif isinstance(target, (ast.Tuple, ast.List)):
            if ty is not None:
                self.error(target, "several variables cannot be annotated at once")
            self._bind_each(target, value, node)
        else:
            self.error(target, "only variables can be assigned to")

    def _bind_each(self, target: ast.Tuple | ast.List, value: Any, node: Any) -> None:
        targets = target.elts
        if isinstance(value, Expr):
            if type(value.ty) is not TupleType:
                self.error(node.value, f"cannot unpack a value of type {value.ty}")
            if not isinstance(value, Tuple):
                value = self._leaf(value, node.value)
            values = list(value)
        else:
            try:
                values = list(value)
            except TypeError as error:
                self._evaluator.failed(node.value, error)
        if len(values) != len(targets):
            self.error(target, f"{len(targets)} variables for {len(values)} values")
        for one, item in zip(targets, values, strict=True):
            if isinstance(one, ast.Starred):
                self.error(one, "a starred variable is not supported")
            self._bind(one, item, None, node)

    def _bind_name(self, target: ast.Name, value: Any, ty: Type | None, node: Any) -> None:
        name = target.id
        if isinstance(value, Expr):
            if isinstance(value, Var) and not value.name:
                self._declare_symbol(target, value)
                return
        elif type(value) is MatchCastPair:
            self._match_cast(name, target, value, ty, node)
            return
        elif isinstance(value, tuple):
            value = self._converted(node.value, value)
        elif isinstance(value, (bool, int, float, np.number, np.bool_)):
            value = self._number(node.value, value, ty)
        elif isinstance(value, np.ndarray):
            value = const(value)
        else:
            self._scope.define(name, value.value if type(value) is MetaVar else value)
            return
        self._scope.define(name, self._emit(name, target, value, ty, node))

    def _converted(self, node: Any, value: Any) -> Expr:
        try:
            return convert_to_expr(value)
        except (TypeError, ValueError) as error:
            self._evaluator.failed(node, error)

    def _number(self, node: Any, value: Any, ty: Type | None) -> Expr:
        """A plain number is a tensor, unless the annotation is a scalar type."""
        try:
            if type(ty) is PrimType:
                return immediate(ty.dtype, value.item() if isinstance(value, np.generic) else value)
            return const(value)
        except (TypeError, OverflowError) as error:
            self._evaluator.failed(node, error)

    def _declare_symbol(self, target: ast.Name, symbol: Var) -> None:
        """``n = T.int64()``: declare the variable of that name, unless it exists already."""
        name = target.id
        known = self._scope.vars.get(name, MISSING)
        if known is MISSING:
            self._scope.define(name, Var(name, symbol.ty, self._source.span(target)))
            return
        if not isinstance(known, Var) or type(known.ty) is not PrimType:
            what = f"of type {known.ty}" if isinstance(known, Expr) else type(known).__name__
            self.error(target, f"{name!r} is {what}; a symbolic variable needs another name")
        if known.ty.dtype != symbol.ty.dtype:
            self.error(
                target,
                f"symbolic variable {name!r} is of type {known.ty}; it cannot also be {symbol.ty}",
            )

    # Bindings

    def _var(self, name: str, ty: Type | None, target: Any) -> Var:
        outputs = self._outputs
        cls = Var if outputs is None or id(target) in outputs else DataflowVar
        return cls(name, ty, self._source.span(target))

    def _normal(self, value: Expr, node: Any) -> Expr:
        try:
            return self._builder.normalize(value)
        except DiagnosticError:
            raise
        except (TypeError, ValueError, IndexError) as error:
            self._evaluator.failed(node, error)

    def _emit(self, name: str, target: Any, value: Expr, ty: Type | None, node: Any) -> Var:
        value = self._normal(value, node.value)
        return self._bind_as(name, target, value, ty, getattr(node, "annotation", None), node)

    def _bind_as(
        self, name: str, target: Any, value: Expr, ty: Type | None, annotation: Any, node: Any
    ) -> Var:
        """Bind a normalized value to a new variable, of type `ty` if that is written."""
        span = self._source.span(node)
        known = value.ty if ty is None else self._annotate(annotation, ty, value)
        if known is not None:
            var = self._var(name, known, target)
            self._builder.emit_normalized(VarBinding(var, value, span))
            return var
        if not is_leaf(value):
            unchecked = (Var if self._outputs is None else DataflowVar)(name, value.ty, span)
            self._builder.emit_normalized(VarBinding(unchecked, value, span))
            value = unchecked
        assert ty is not None
        var = self._var(name, ty, target)
        self._add_dimensions([ty])
        self._builder.emit_normalized(MatchCast(var, value, ty, span))
        return var

    def _annotate(self, node: Any, written: Type, value: Expr) -> Type | None:
        """The type of an annotated variable; None if it is to be checked at run time."""
        inferred: Any = value.ty
        mode = self._parser.annotations
        if mode is Annotations.CHECKED and isinstance(value, Var) and is_base_of(written, inferred):
            written = inferred  # TVM ignores a wider type of a second name, too
        if mode is Annotations.TRUSTED or is_base_of(written, inferred):
            return written
        if structural_equal(written, inferred):
            return written
        operands = value.args if isinstance(value, Call) else ()
        found = self._type_by_bounds(written, inferred, [operand.ty for operand in operands])
        if found is not None:
            return found
        if base_check(written, inferred) is BaseCheckResult.FAIL_L0:
            self.error(node, f"the value is of type {inferred}, which is never {written}")
        if mode is Annotations.CHECKED:
            return None
        self.error(
            node,
            f"the value is only known to be {inferred}; write R.match_cast(value, {written}) to "
            "check it at run time",
        )

    def _type_by_bounds(
        self, written: Type, inferred: Any, operands: Iterable[Any] = ()
    ) -> Type | None:
        """The type of an annotated variable, if the annotation is provable when dimensions,
        including those of operands, are not negative; else None.

        TVM prints the length of a slice as ``end - begin``, without a maximum with 0; in that case
        the result is the inferred type, which is more precise."""
        own = set(dimensions(operands))
        analyzer = Analyzer()
        for var in (*type_free_vars(written), *type_free_vars(inferred)):
            if var in own or var in self._dimensions:
                analyzer.bind(var, 0)
        if base_check(written, inferred, analyzer.prove_equal) is BaseCheckResult.PASS:
            return written

        def prove(a: Expr, b: Expr) -> bool:
            return analyzer.prove_equal(maximum(a, 0), b)

        fits = base_check(written, inferred, prove) is BaseCheckResult.PASS
        return inferred if fits else None

    def _add_dimensions(self, types: Iterable[Type]) -> None:
        self._dimensions.update(dict.fromkeys(dimensions(types)))

    def _forget_dimensions(self, known: int) -> None:
        """Remove the variables that were added after the first `known` ones."""
        while len(self._dimensions) > known:
            self._dimensions.popitem()

    def _match_cast(
        self, name: str, target: Any, pair: MatchCastPair, ty: Type | None, node: Any
    ) -> Var:
        if ty is not None and not (is_base_of(ty, pair.ty) and is_base_of(pair.ty, ty)):
            self.error(node.annotation, f"the match_cast returns {pair.ty}, not {ty}")
        value = self._leaf(pair.value, node.value)
        never = BaseCheckResult.FAIL_L0
        if base_check(pair.ty, value.ty) is never and base_check(value.ty, pair.ty) is never:
            self.error(node.value, f"R.match_cast: a value of type {value.ty} is never {pair.ty}")
        var = self._var(name, pair.ty, target)
        self._add_dimensions([pair.ty])
        self._builder.emit_normalized(MatchCast(var, value, pair.ty, self._source.span(node)))
        self._scope.define(name, var)
        return var

    def _leaf(self, value: Expr, node: Any) -> Any:
        """Return the value if it is a leaf, else a variable bound to it."""
        normal = self._normal(value, node)
        if is_leaf(normal):
            return normal
        hint = "gv" if self._outputs is None else "lv"
        return self._builder.emit(normal, hint, self._source.span(node))

    def _expression(self, node: ast.Expr) -> None:
        value = self._value(node.value)
        if isinstance(value, Expr):
            self._check_void(self._emit("_", node, value, None, node), node)
        elif isinstance(value, FunctionAttrs) and not isinstance(value, ModuleAttrs):
            self._attrs.update(value.attrs)
        elif isinstance(value, Output):
            self.error(node, "R.output must be the last statement of a dataflow block")
        elif isinstance(value, MatchCastPair):
            self.error(node, _MATCH_CAST_ALONE)
        elif isinstance(value, DTypeMaker) or (value is not None and not isinstance(value, str)):
            self.error(node, f"the value of the statement, {type(value).__name__}, has no effect")

    def _check_void(self, var: Var, node: ast.Expr) -> None:
        if type(var.ty) is not TupleType or var.ty.fields:
            self.error(
                node, f"a value of type {var.ty} is not used; assign it to a variable, or to _"
            )

    def _pass(self, node: ast.Pass) -> None:
        pass

    def _return(self, node: ast.Return) -> None:
        self.error(
            node,
            "return must be the last statement of a function; to choose a result, assign it to one "
            "variable in both branches and return that after the if",
        )

    # Dataflow blocks

    def _with(self, node: ast.With) -> None:
        if len(node.items) != 1 or node.items[0].optional_vars is not None:
            self.error(node.items[0].context_expr, "expected: with R.dataflow():")
        context = node.items[0].context_expr
        if not isinstance(self._value(context), Dataflow):
            self.error(context, "expected: with R.dataflow():")
        if self._outputs is not None:
            self.error(node, "a dataflow block cannot be inside of another")
        self._dataflow(node)

    def _dataflow(self, node: ast.With) -> list[str]:
        """Parse a dataflow block; returns the names of its outputs."""
        body, names = self._output_names(node.body)
        returned: list[str] = getattr(node, "returned", [])
        names += [name for name in _last_targets(body, returned) if name not in names]
        outputs = _last_targets(body, names)
        self._outputs = set(map(id, outputs.values()))
        scope = self._scope
        scope.push()
        with self._builder.dataflow():
            self._statements(body)
        self._no_declaration()
        for name in names:
            if name not in outputs:
                self.error(node.body[-1], f"R.output: {name!r} is not defined in this block")
        found = [scope.vars[name] for name in names]
        scope.pop(f"in the dataflow block at line {node.lineno}, which does not output it",
                  keep_symbols=True)  # fmt: skip
        self._outputs = None
        for name, var in zip(names, found, strict=True):
            scope.define(name, var)
        return names

    def _output_names(self, body: list[ast.stmt]) -> tuple[list[ast.stmt], list[str]]:
        """The statements before ``R.output(...)``, and the names of its arguments."""
        last = body[-1] if body else None
        if not isinstance(last, ast.Expr) or not isinstance(last.value, ast.Call):
            return body, []
        func = last.value.func
        is_output = isinstance(func, (ast.Name, ast.Attribute)) and getattr(
            self._value(func), "script_kind", None
        ) == "output"  # fmt: skip
        if not is_output:
            return body, []
        names: list[str] = []
        for argument in last.value.args:
            if not isinstance(argument, ast.Name):
                self.error(argument, "R.output: expected variables of the dataflow block")
            if argument.id not in names:
                names.append(argument.id)
        return body[:-1], names

    # Branches

    def _if(self, node: ast.If | ast.Match) -> None:
        declared, self._declared = self._declared, None
        name, value = self._choice(node)
        ty = annotation = None
        if declared is not None:
            if declared[0] != name:
                self._declared = declared
                self._no_declaration()
            ty = declared[1]
            annotation = declared[2]
        var = self._bind_as(name, node, value, ty, annotation, node)
        if name != "_":
            self._scope.define(name, var)

    def _choice(self, node: ast.If | ast.Match) -> tuple[str, If | Match]:
        """Parse an if or a match; returns the name that it defines and the value."""
        return self._if_value(node) if isinstance(node, ast.If) else self._match_value(node)

    def _if_value(self, node: ast.If) -> tuple[str, If]:
        if self._outputs is not None:
            self.error(node, "an if cannot be in a dataflow block")
        if not node.orelse:
            self.error(node, "an if needs an else: both branches define what is used after it")
        condition = self._leaf(self._converted(node.test, self._value(node.test)), node.test)
        condition = self._checked_condition(condition, node.test)
        then_name, then = self._branch(node.body, "then", node)
        else_name, orelse = self._branch(node.orelse, "else", node)
        if then_name != else_name:
            self.error(
                node.orelse[-1],
                "both branches must end with an assignment of the same variable; the first defines "
                f"{then_name!r}, this one {else_name!r}",
            )
        expr = If(condition, then, orelse, span=self._source.span(node))
        try:
            self._builder.infer(expr)
        except (TypeError, ValueError) as error:
            self._evaluator.failed(node.test, error)
        return then_name, expr

    def _checked_condition(self, condition: Any, node: ast.expr) -> Any:
        """A tensor that is no condition by its type is read when the program runs, if types are
        checked then."""
        if self._parser.annotations is not Annotations.CHECKED:
            return condition
        if is_condition(condition.ty) or type(condition.ty) is not TensorType:
            return condition
        read = call_pure_packed("vm.builtin.read_if_cond", condition, ty_args=PrimType("bool"))
        return self._leaf(read, node)

    # Matches

    def _match_value(self, node: ast.Match) -> tuple[str, Match]:
        if self._outputs is not None:
            self.error(node, "a match cannot be in a dataflow block")
        subject = self._value(node.subject)
        complete = not isinstance(subject, Incomplete)
        value = subject.value if isinstance(subject, Incomplete) else subject
        data = self._leaf(self._converted(node.subject, value), node.subject)
        name = ""
        clauses: list[Clause] = []
        cases = [
            (written, case)
            for case in node.cases
            for written in alternatives(self._source, case.pattern)
        ]
        for number, (written, case) in enumerate(cases):
            self._scope.push()
            self._compared = []
            pattern = self._pattern(written, data)
            guard = None
            try:
                bind_pattern(pattern, data.ty)
                if self._compared:
                    guard = comparison(self._compared)
            except TypeError as error:
                self._evaluator.failed(written, error)
            if case.guard is not None:
                if guard is not None:
                    self.error(case.guard, "a case with values in its pattern has no other guard; "
                                           "match variables, and compare them in the guard")
                guard = self._converted(case.guard, self._value(case.guard))
            bound = pattern_vars(pattern)
            found, rhs = self._branch(case.body, f"case{number}", node, bound)
            self._scope.pop(f"in a case of the match at line {node.lineno}")
            if clauses and found != name:
                self.error(
                    case.body[-1],
                    "all cases must end with an assignment of the same variable; the first defines "
                    f"{name!r}, this one {found!r}",
                )
            name = found
            clauses.append(Clause(pattern, rhs, guard, self._source.span(written)))
        expr = Match(data, clauses, complete, span=self._source.span(node))
        try:
            self._builder.infer(expr)
        except (TypeError, ValueError) as error:
            self._evaluator.failed(node.subject, error)
        self._warn_unreachable(clauses)
        return name, expr

    def _warn_unreachable(self, clauses: list[Clause]) -> None:
        for position in unreachable_clauses(clauses):
            self._warn(
                clauses[position].span,
                f"the case {pattern_text(clauses[position].lhs)} is never reached: the cases "
                "before it match all that it does",
                UnreachableClauseWarning,
            )

    def _warn(self, node: Any, message: str, category: type[Warning]) -> None:
        """Warn about a node of the syntax tree, or a `Span`."""
        span = node if isinstance(node, Span) else self._source.span(node)
        warnings.warn_explicit(message, category, span.file, span.line)

    def _pattern(self, node: ast.pattern, data: Expr | None = None) -> Pattern:
        """Convert a pattern; its variables are in scope afterwards.  `data` is the value that it is
        matched with, if that is a variable."""
        span = self._source.span(node)
        if isinstance(node, ast.MatchAs):
            if node.pattern is not None:
                if not isinstance(data, Var):
                    self.error(node, "as: expected around the whole pattern of a case, for a match "
                                     "of a variable")
                inner = self._pattern(node.pattern)
                assert node.name is not None
                self._scope.define(node.name, data)
                return inner
            if node.name is None:
                return PatternWildcard(span)
            var = Var(node.name, None, span)
            self._scope.define(node.name, var)
            return PatternVar(var, span)
        if isinstance(node, ast.MatchSequence):
            return PatternTuple([self._pattern(inner) for inner in node.patterns], span)
        if isinstance(node, ast.MatchClass):
            constructor = self._value(node.cls)
            if not isinstance(constructor, Constructor):
                self.error(node.cls, "expected a constructor of a data type, as in List.Cons(x, _)")
            if node.kwd_patterns:
                self.error(node, "the fields of a constructor have no names: match by position")
            patterns = [self._pattern(inner) for inner in node.patterns]
            try:
                return PatternConstructor(constructor, patterns, span)
            except TypeError as error:
                self._evaluator.failed(node, error)
        value = literal_of(node)
        if value is not None:
            var = Var("value", None, span)
            self._compared.append((var, value))
            return PatternVar(var, span)
        expected = "expected a constructor, a tuple, a number, a variable or _ as a pattern"
        self.error(node, _PATTERN_HINTS.get(type(node), expected))

    def _branch(
        self, body: list[ast.stmt], suffix: str, node: ast.If | ast.Match,
        bound: Sequence[Var] = (),
    ) -> tuple[str, SeqExpr]:  # fmt: skip
        self._builder.begin_scope(bound)
        self._scope.push()
        known = len(self._dimensions)
        self._statements(body[:-1])
        self._check_declared(body[-1])
        name, value = self._last(body[-1], suffix)
        self._forget_dimensions(known)
        self._scope.pop(
            f"in a branch of the {'if' if isinstance(node, ast.If) else 'match'} at line "
            f"{node.lineno}, which defines {name!r} alone"
        )
        return name, self._builder.end_scope(value)

    def _check_declared(self, node: ast.stmt) -> None:
        if not isinstance(node, (ast.If, ast.Match)):
            self._no_declaration()

    def _last(self, node: ast.stmt, suffix: str) -> tuple[str, Expr]:
        """Parse the last statement of a branch; returns the name that it defines and the value."""
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and len(getattr(node, "targets", (0,))) == 1:
                ty = self._type(node.annotation) if isinstance(node, ast.AnnAssign) else None
                return target.id, self._last_value(target, ty, node, suffix)
        elif isinstance(node, ast.AugAssign):
            self._augmented(node)
            assert isinstance(node.target, ast.Name)
            return node.target.id, self._scope.vars[node.target.id]
        elif isinstance(node, ast.Expr):
            value = self._value(node.value)
            if isinstance(value, Expr):
                var = self._emit(f"_{suffix}", node, value, None, node)
                self._check_void(var, node)
                return "_", var
        elif isinstance(node, (ast.If, ast.Match)):
            declared, self._declared = self._declared, None
            name, value = self._choice(node)
            _, ty, annotation = (None, None, None) if declared is None else declared
            return name, self._bind_as(f"{name}_{suffix}", node, value, ty, annotation, node)
        elif isinstance(node, ast.With):
            names = self._with_outputs(node)
            if len(names) == 1:
                return names[0], self._scope.vars[names[0]]
            self.error(
                node, f"a branch must end with one variable, but this block outputs {len(names)}"
            )
        elif isinstance(node, ast.FunctionDef):
            self._local_function(node)
            return node.name, self._scope.vars[node.name]
        elif isinstance(node, ast.Return):
            self._return(node)
        elif type(node) not in _STATEMENTS:
            self._unsupported(node)
        self.error(node, "a branch must end with an assignment to the variable used after the if")

    def _with_outputs(self, node: ast.With) -> list[str]:
        before = dict.fromkeys(self._output_names(node.body)[1])
        self._with(node)
        return list(before)

    def _last_value(self, target: ast.Name, ty: Type | None, node: Any, suffix: str) -> Expr:
        value = self._value(node.value)
        hint = f"{target.id}_{suffix}"
        if type(value) is MatchCastPair:
            return self._match_cast(hint, target, value, ty, node)
        if isinstance(value, (bool, int, float, np.number, np.bool_)):
            value = self._number(node.value, value, ty)
        value = self._normal(self._converted(node.value, value), node.value)
        plain = is_leaf(value) or isinstance(value, Tuple)
        if plain and (ty is None or (is_base_of(ty, value.ty) and is_base_of(value.ty, ty))):
            return value
        return self._emit(hint, target, value, ty, node)


def _return_after_block(statements: list[ast.stmt]) -> list[ast.stmt]:
    """A return at the end of the last dataflow block is one after it: what it mentions is an output
    of the block."""
    last = statements[-1]
    if not isinstance(last, ast.With) or not isinstance(last.body[-1], ast.Return):
        return statements
    returned = last.body[-1]
    block = ast.With(last.items, last.body[:-1])
    ast.copy_location(block, last)
    names = [node.id for node in ast.walk(returned) if isinstance(node, ast.Name)]
    block.returned = list(dict.fromkeys(names))  # type: ignore[attr-defined]
    return [*statements[:-1], block, returned]


def _returns(statements: Sequence[ast.stmt]) -> Iterator[ast.Return]:
    """All return statements, including those in branches and blocks."""
    for statement in statements:
        if isinstance(statement, ast.Return):
            yield statement
        elif isinstance(statement, (ast.If, ast.With)):
            yield from _returns(statement.body)
            yield from _returns(getattr(statement, "orelse", ()))
        elif isinstance(statement, ast.Match):
            for case in statement.cases:
                yield from _returns(case.body)


def _last_targets(body: Sequence[ast.stmt], names: Sequence[str]) -> dict[str, ast.AST]:
    """The target node of the last assignment to each name; that one defines the output."""
    open_names = set(names)
    found: dict[str, ast.AST] = {}
    for statement in reversed(body):
        if not open_names:
            break
        for target in _targets(statement):
            name = target.name if isinstance(target, ast.FunctionDef) else target.id
            if name in open_names:
                open_names.discard(name)
                found[name] = target
    return found


def _targets(statement: ast.stmt) -> list[Any]:
    if isinstance(statement, ast.Assign):
        return [n for n in ast.walk(statement.targets[0]) if isinstance(n, ast.Name)][::-1]
    if isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        return [statement.target] if isinstance(statement.target, ast.Name) else []
    return [statement] if isinstance(statement, ast.FunctionDef) else []


_STATEMENTS: Final[dict[type, Callable[[_BodyParser, Any], None]]] = {
    ast.Assign: _BodyParser._assign,
    ast.AnnAssign: _BodyParser._annotated,
    ast.AugAssign: _BodyParser._augmented,
    ast.Expr: _BodyParser._expression,
    ast.If: _BodyParser._if,
    ast.Match: _BodyParser._if,
    ast.With: _BodyParser._with,
    ast.FunctionDef: _BodyParser._local_function,
    ast.Return: _BodyParser._return,
    ast.Pass: _BodyParser._pass,
}

_PATTERN_HINTS: Final[dict[type, str]] = {
    ast.MatchValue: "of values, only numbers are patterns; match a variable and compare it in a "
                    "guard, case x if R.equal(x, y)",
    ast.MatchSingleton: "None is not a pattern",
    ast.MatchStar: "a starred pattern is not supported",
    ast.MatchMapping: "mappings are not patterns",
}  # fmt: skip

_LOOP: Final = "a loop is not part of the language; write a function that calls itself"

_HINTS: Final[dict[type, str]] = {
    ast.For: _LOOP,
    ast.While: _LOOP,
    ast.Delete: "variables are not deleted; memory is freed after the last use",
    ast.Import: "import outside of the script",
    ast.ImportFrom: "import outside of the script",
    ast.Try: "errors cannot be caught in a script",
    ast.Raise: "errors are raised by R.assert_op in a script",
    ast.Assert: "write R.assert_op(condition, format=message)",
    ast.AsyncFunctionDef: "a Relax function is defined with def",
    ast.ClassDef: "a class cannot be inside of a function",
}
