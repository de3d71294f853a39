"""Parsing of signatures: parameters, and the symbolic variables that their types declare."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from ..executable.debug_info import Span
from ..ir.expr import Expr, FuncType, PrimType, Type, Var, int_imm
from ..ir.expr import TypeVar as TypeParam
from .evaluate import Evaluator
from .scope import MISSING
from .type_forms import DTypeMaker, PendingType, annotation, type_of

__all__ = ["Signature", "read_signature", "type_parameters", "type_text"]


class Signature:
    """The signature of a function.

    Attributes:
        params: the parameters.
        ret: the declared type of the result, or None.
        names: parameters, symbolic variables and type parameters by name.
        type_params: the type parameters.
    """

    __slots__ = ("names", "params", "ret", "type_params")

    def __init__(
        self,
        params: list[Var],
        ret: Type | None,
        names: dict[str, Var | TypeParam],
        type_params: list[TypeParam],
    ) -> None:
        self.params = params
        self.ret = ret
        self.names = names
        self.type_params = type_params

    def func_type(self, ret: Type, is_pure: bool) -> FuncType:
        """The type of the function."""
        types = [param.ty for param in self.params]
        return FuncType(types, ret, is_pure, type_params=self.type_params)


def read_signature(
    evaluator: Evaluator, node: ast.FunctionDef, type_params: Sequence[str] = ()
) -> Signature:
    """Parse the parameters and the result type of a function.

    A dimension that is a name in quotes declares a symbolic variable for the whole signature; the
    body may declare it as well, by ``n = T.int64()``, and other types are refused.  Other strings
    are expressions over the declared variables.  ``def f[n]`` declares variables too.  A type that
    is a name in quotes, ``x: "A"``, declares a type parameter; `type_params` are declared before
    those.
    """
    scope = evaluator.scope
    _check_parameters(evaluator, node.args)
    scope.push()
    was_in_signature, scope.in_signature = scope.in_signature, True
    try:
        return _Reader(evaluator, node).read(type_params)
    finally:
        scope.in_signature = was_in_signature
        scope.pop()


def type_parameters(evaluator: Evaluator, node: ast.FunctionDef) -> Iterator[tuple[str, Any]]:
    """Yield names and nodes of the type parameters of a function, which Python has since 3.12:
    ``def f[n](...)`` declares the symbolic variable n, as a dimension in quotes does."""
    for parameter in getattr(node, "type_params", ()):
        bound, default = (getattr(parameter, name, None) for name in ("bound", "default_value"))
        if type(parameter).__name__ != "TypeVar" or bound is not None or default is not None:
            evaluator.source.error(parameter, "expected the name of a symbolic variable alone")
        yield parameter.name, parameter


def _check_parameters(evaluator: Evaluator, args: ast.arguments) -> None:
    source = evaluator.source
    for other in (args.vararg, args.kwarg, *args.kwonlyargs):
        if other is not None:
            source.error(other, "a Relax function has only positional parameters")
    for default in args.defaults:
        source.error(default, "a parameter of a Relax function cannot have a default")
    seen: set[str] = set()
    for arg in [*args.posonlyargs, *args.args]:
        if arg.arg in seen:
            source.error(arg, f"parameter {arg.arg!r} is given twice")
        seen.add(arg.arg)
        if arg.annotation is None:
            source.error(
                arg,
                f"parameter {arg.arg!r} has no type; expected as in "
                f'{arg.arg}: R.Tensor(("n", 4), "float32")',
            )


class _Reader:
    def __init__(self, evaluator: Evaluator, node: ast.FunctionDef) -> None:
        self._evaluator = evaluator
        self._node = node
        self._args = [*node.args.posonlyargs, *node.args.args]
        self._names: dict[str, Var | TypeParam] = {}
        self._type_params: list[TypeParam] = []
        self._declared = _declarations(evaluator, node)

    def read(self, type_params: Sequence[str]) -> Signature:
        for name in type_params:
            self._define_type(name)
        for name, node in type_parameters(self._evaluator, self._node):
            dtype = self._declared.get(name, "int64")
            self._define(name, Var(name, dtype, self._evaluator.source.span(node)))
        annotations: list[Type | PendingType] = []
        for arg in self._args:
            ty = self._annotation(arg.annotation)
            annotations.append(ty)
            if isinstance(ty, PrimType):  # later types may mention it without quotes
                self._define(arg.arg, Var(arg.arg, ty, self._evaluator.source.span(arg)))
        returns = None if self._node.returns is None else self._annotation(self._node.returns)
        nodes = [*(arg.annotation for arg in self._args), self._node.returns]
        for node, found in zip(nodes, (*annotations, returns), strict=True):
            if isinstance(found, PendingType):
                self._declare(found, self._evaluator.source.span(node))
        params = [self._param(arg, ty) for arg, ty in zip(self._args, annotations, strict=True)]
        ret = None if returns is None else self._resolve(self._node.returns, returns)
        scope = self._evaluator.scope
        names = {**self._names}
        for name in {n.id for n in _names_in(self._node)}:
            value = scope.vars.get(name)
            if isinstance(value, Var) and type(scope.outside.get(name)) is TypeVar:
                names.setdefault(name, value)
        return Signature(params, ret, names, self._type_params)

    def _annotation(self, node: Any) -> Type | PendingType:
        value = self._evaluator.eval(node)
        try:
            return annotation(value)
        except TypeError as error:
            self._evaluator.failed(node, error)

    def _define_type(self, name: str) -> None:
        var = TypeParam(name)
        self._type_params.append(var)
        self._define(name, var)

    def _define(self, name: str, var: Var | TypeParam) -> None:
        self._names[name] = var
        self._evaluator.scope.define(name, var)

    def _declare(self, ty: PendingType, span: Span) -> None:
        for text in ty.strings:
            if text.isidentifier() and text not in self._names:
                self._define(text, Var(text, self._declared.get(text, "int64"), span))
        for text in ty.texts:
            for name in type_names(self._evaluator, text):
                self._define_type(name)
        for text in ty.strings:
            if not text.isidentifier():
                for name in _identifiers(text):
                    if name in self._declared and name not in self._names:
                        self._define(name, Var(name, self._declared[name], span))

    def _param(self, arg: ast.arg, ty: Type | PendingType) -> Var:
        if isinstance(ty, PrimType):
            scalar = self._names[arg.arg]
            assert isinstance(scalar, Var)
            return scalar
        final = self._resolve(arg.annotation, ty)
        param = Var(arg.arg, final, self._evaluator.source.span(arg))
        self._define(arg.arg, param)
        return param

    def _resolve(self, node: Any, ty: Type | PendingType) -> Type:
        if isinstance(ty, Type):
            return ty
        try:
            return ty.resolve(lambda text: dimension(self._evaluator, text))
        except (TypeError, ValueError) as error:
            self._evaluator.failed(node, error)


def _names_in(node: ast.FunctionDef) -> Iterator[ast.Name]:
    for part in [*[arg.annotation for arg in node.args.args], node.returns]:
        if part is not None:
            for inner in ast.walk(part):
                if isinstance(inner, ast.Name):
                    yield inner


def _declarations(evaluator: Evaluator, node: ast.FunctionDef) -> dict[str, str]:
    """``name = T.dtype()`` among the statements of a body: name -> data type."""
    found: dict[str, str] = {}
    for statement in node.body:
        if type(statement) is ast.Assign and len(statement.targets) == 1:
            for target, value in _pairs(statement.targets[0], statement.value):
                dtype = _declared_dtype(evaluator, value)
                if dtype is not None and isinstance(target, ast.Name):
                    found.setdefault(target.id, dtype)
    return found


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
        return list(zip(target.elts, value.elts, strict=False))
    return [(target, value)]


def _declared_dtype(evaluator: Evaluator, value: ast.expr) -> str | None:
    if type(value) is not ast.Call or value.args or value.keywords:
        return None
    func = value.func
    if not isinstance(func, ast.Attribute) or not isinstance(func.value, ast.Name):
        return None
    namespace = evaluator.scope.get(func.value.id)
    maker = None if namespace is MISSING else getattr(namespace, func.attr, None)
    return maker.dtype if isinstance(maker, DTypeMaker) else None


_PARSED: Final[dict[str, ast.expr]] = {}


def _parsed(text: str) -> ast.expr:
    found = _PARSED.get(text)
    if found is None:
        try:
            found = ast.parse(text.strip(), mode="eval").body
        except SyntaxError:
            raise ValueError(f"dimension {text!r} is not an expression") from None
        if len(_PARSED) > 1000:
            _PARSED.clear()
        _PARSED[text] = found
    return found


def _identifiers(text: str) -> list[str]:
    try:
        return [node.id for node in ast.walk(_parsed(text)) if isinstance(node, ast.Name)]
    except ValueError:
        return []


def type_names(evaluator: Evaluator, text: str) -> list[str]:
    """Return the names in a type in quotes that are not defined: they declare type parameters."""
    scope = evaluator.scope
    if text.isidentifier():
        return [] if text in scope.vars else [text]
    return [
        name for name in dict.fromkeys(_identifiers(text)) if scope.get(name) is MISSING
    ]


def type_text(evaluator: Evaluator, text: str) -> Type:
    """Return a type in quotes.

    Raises:
        ValueError, TypeError: it is not an expression, or not a type.
    """
    value = evaluator.scope.vars.get(text, MISSING)
    if value is MISSING:
        try:
            value = evaluator.eval(_parsed(text))
        except RuntimeError as error:
            reason = str(error).splitlines()[0].split(": ", 1)[-1]
            raise ValueError(f"type {text!r}: {reason}") from None
    return type_of(value)


def dimension(evaluator: Evaluator, text: str) -> Expr:
    """Return the scalar for a dimension in quotes.

    Raises:
        ValueError: it is not an expression, or a name in it is not defined.
        TypeError: it is not an integer scalar.
    """
    value = evaluator.scope.get(text)
    if value is MISSING:
        tree = _parsed(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and evaluator.scope.get(node.id) is MISSING:
                raise ValueError(
                    f"dimension {text!r}: {node.id!r} is not defined; declare it by a dimension "
                    f'of a parameter that is "{node.id}" alone, or by {node.id} = T.int64() in '
                    "the body"
                )
        try:
            value = evaluator.eval(tree)
        except RuntimeError as error:
            reason = str(error).splitlines()[0].split(": ", 1)[-1]
            raise ValueError(f"dimension {text!r}: {reason}") from None
    if isinstance(value, Expr):
        if type(value.ty) is not PrimType:
            raise TypeError(f"dimension {text!r} is of type {value.ty}, expected an integer scalar")
        return value
    try:
        return int_imm(value)
    except (TypeError, AttributeError):
        raise TypeError(
            f"dimension {text!r}: expected an integer scalar, got {type(value).__name__}"
        ) from None
