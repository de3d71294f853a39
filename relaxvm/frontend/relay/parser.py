"""Relay text to its syntax tree.  docs/relay.md has the grammar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeGuard, TypeVar

import numpy as np

from ...core.checkpoints import checkpoint
from ...dtypes import as_dtype
from ...errors import NestingError
from ...ir.nesting import headroom
from . import syntax
from .lexer import Token, tokens_of
from .metadata import ATTRS, read_metadata
from .source import MOST_LEVELS, Place, Source

__all__ = ["INFIX", "VERSIONS", "parse_text"]

VERSIONS: Final = ("0.0.4", "0.0.5")

INFIX: Final[dict[str, tuple[int, str]]] = {
    "*": (4, "multiply"),
    "/": (4, "divide"),
    "+": (3, "add"),
    "-": (3, "subtract"),
    "<": (2, "less"),
    ">": (2, "greater"),
    "<=": (2, "less_equal"),
    ">=": (2, "greater_equal"),
    "==": (1, "equal"),
    "!=": (1, "not_equal"),
}
"""Sign -> its precedence, the operator.  All are left-associative."""

_SCALAR: Final = re.compile(r"(?:u?int|float|bfloat)\d+|bool|u?int|float")
_TENSOR_DTYPE: Final = re.compile(
    r"u?int(8|16|32|64)|float(16|32|64)|bool|bfloat16|float8_\w{1,12}"
)
_DTYPES: Final = {"uint1": "bool", "int": "int32", "uint": "uint32", "float": "float32"}
_NUMBER: Final = re.compile(r"([\d.]+(?:[eE][+-]?\d+)?|inf|nan)(?:(f|i|u|bf)(\d*))?")
_KINDS: Final = {"i": "int", "u": "uint", "f": "float", "bf": "bfloat"}
_MOST_DIGITS: Final = 800
"""Of a number; Python takes quadratic time for integers."""

T = TypeVar("T")


def parse_text(source: Source) -> syntax.Module:
    """Return the syntax tree of a text: definitions, or one expression.

    Raises:
        ParseError: the text is wrong; the message has file, line, column and the line.
        NestingError: it is nested too deeply.
    """
    tokens, origins = tokens_of(source)
    with headroom("parsing Relay text"):
        return _Parser(source, tokens, origins).module()


class _Parser:
    def __init__(self, source: Source, tokens: list[Token], origins: dict[int, Any]) -> None:
        self._source = source
        self._tokens = tokens
        self._origins = origins
        self._at = 0
        self._level = 0

    # Tokens

    @property
    def _kind(self) -> str:
        return self._tokens[self._at].kind

    def _peek(self, ahead: int = 1) -> str:
        at = self._at + ahead
        return self._tokens[at].kind if at < len(self._tokens) else "end"

    def _next(self) -> Token:
        token = self._tokens[self._at]
        if token.kind != "end":
            self._at += 1
        return token

    def _take(self, kind: str, wanted: str = "") -> Token:
        if self._kind != kind:
            self._unexpected(wanted or _SHOWN.get(kind, repr(kind)))
        return self._next()

    def _accept(self, kind: str) -> bool:
        if self._kind != kind:
            return False
        self._at += 1
        return True

    def _unexpected(self, wanted: str) -> NoReturn:
        token = self._tokens[self._at]
        found = "the end of the text" if token.kind == "end" else repr(
            self._source.text[token.start : min(token.end, token.start + 40)]
        )  # fmt: skip
        self._fail(token, f"expected {wanted}, got {found}")

    def _fail(self, token: Token, message: str) -> NoReturn:
        self._source.fail(token.start, token.end, message)

    def _here(self) -> int:
        return self._tokens[self._at].start

    def _place(self, start: int) -> Place:
        """The piece from an offset to the end of the last token."""
        end = self._tokens[self._at - 1].end
        return Place(self._source, start, max(end, start), self._origins.get(end))

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._level += 1
        if self._level > MOST_LEVELS:
            token = self._tokens[self._at]
            self._source.fail(token.start, token.end, f"nested too deeply: expected at most "
                              f"{MOST_LEVELS} levels; bind parts to variables",
                              NestingError)  # fmt: skip
        yield
        self._level -= 1

    def _long(self, start: int, links: int) -> None:
        """Check the length of a chain such as ``a + b + c``, which is nested in the tree."""
        if self._level + links > MOST_LEVELS:
            self._source.fail(start, self._tokens[self._at].end, f"an expression of more than "
                              f"{MOST_LEVELS} operators; bind parts to variables",
                              NestingError)  # fmt: skip

    def _listed(self, opening: str, closing: str, item: Callable[[], T]) -> list[T]:
        """Items between brackets, separated by commas; the last one may have a comma, too."""
        self._take(opening)
        items: list[T] = []
        while not self._accept(closing):
            checkpoint()
            items.append(item())
            if self._kind != closing:
                self._take(",", f"',' or {closing!r}")
        return items

    # Modules

    def module(self) -> syntax.Module:
        version = self._version()
        imports: list[syntax.Import] = []
        types: list[syntax.TypeDef] = []
        functions: list[syntax.FunctionDef] = []
        expression = None
        constants: dict[str, list[Any]] = {}
        start = self._here()
        while self._kind not in ("end", "metadata"):
            checkpoint()
            first = self._here()
            if self._accept("def"):
                name = self._take("global").text
                function = self._function(first)
                functions.append(syntax.FunctionDef(function.place, name, function))
            elif self._kind in ("type", "extern"):
                types.append(self._type_def(self._accept("extern"), first))
            elif self._accept("import"):
                name = self._take("string").text
                self._accept(";")
                imports.append(syntax.Import(self._place(first), name))
            elif self._kind == "version":
                self._unexpected("a definition; the version is at the start")
            elif functions or expression is not None:
                self._unexpected("'def', 'type', 'extern', 'import' or the end of the text")
            else:
                expression = self._content()
        if not (imports or types or functions or expression):
            self._unexpected("a definition or an expression")
        if self._kind == "metadata":
            token = self._next()
            constants = read_metadata(self._tokens[self._at].text, Place(self._source, token.start,
                                                                         token.end))  # fmt: skip
        return syntax.Module(
            self._place(start), version, imports, types, functions, expression, constants
        )

    def _version(self) -> str | None:
        if self._kind != "version":
            return None
        token = self._next()
        found = re.search(r"\d+\.\d+\.\d+", token.text)
        if found is None or found[0] not in VERSIONS:
            self._fail(token, f"version of the text: expected {' or '.join(VERSIONS)}, "
                       f"got {token.text}")  # fmt: skip
        return found[0]

    def _type_def(self, is_extern: bool, start: int) -> syntax.TypeDef:
        self._take("type")
        name = self._take("name", "the name of a type").text
        place = self._place(start)
        params = self._type_params()
        constructors: list[syntax.ConstructorDef] = []
        if self._kind == "{":
            def constructor() -> syntax.ConstructorDef:
                first = self._here()
                name = self._take("name", "the name of a constructor").text
                fields = self._listed("(", ")", self._type) if self._kind == "(" else []
                return syntax.ConstructorDef(self._place(first), name, fields, len(constructors))

            def add() -> None:
                constructors.append(constructor())

            at = self._tokens[self._at]
            self._listed("{", "}", add)
            if is_extern and constructors:
                self._fail(at, f"an extern type has no constructors, type {name} has "
                           f"{len(constructors)}")  # fmt: skip
        elif not is_extern:
            self._unexpected("'{' and the constructors of the type")
        made = syntax.TypeDef(place, name, params, constructors, is_extern)
        for each in constructors:
            each.owner = made
        return made

    def _type_params(self) -> list[str]:
        if self._kind != "[":
            return []
        names: dict[str, None] = {}

        def param() -> None:
            token = self._take("name", "the name of a type parameter")
            if token.text in names:
                self._fail(token, f"type parameter {token.text} is defined twice")
            names[token.text] = None

        self._listed("[", "]", param)
        return list(names)

    # Types

    def _type(self) -> syntax.Type:
        with self._deeper():
            start, kind = self._here(), self._kind
            if kind == "(":
                fields, comma = self._tuple_of(self._type)
                if len(fields) == 1 and not comma:
                    return fields[0]
                return syntax.TypeTuple(self._place(start), fields)
            if self._accept("fn"):
                params = self._listed("(", ")", self._type)
                self._take("->")
                return syntax.TypeFunction(self._place(start), params, self._type())
            if self._accept("ref"):
                self._take("(")
                value = self._type()
                self._take(")")
                return syntax.TypeRef(self._place(start), value)
            token = self._take("name", "a type")
            if token.text == "_":
                return syntax.TypeHole(self._place(start))
            if token.text == "Tensor":
                self._take("[")
                shape = self._shape()
                self._take(",")
                dtype = self._dtype(self._take("name", "a data type"))
                self._take("]")
                return syntax.TypeTensor(self._place(start), shape, dtype)
            if _SCALAR.match(token.text):
                return syntax.TypeTensor(self._place(start), (), self._dtype(token))
            args = self._listed("[", "]", self._type) if self._kind == "[" else []
            return syntax.TypeName(self._place(start), token.text, args)

    def _dtype(self, token: Token) -> str:
        name = _DTYPES.get(token.text, token.text)
        try:
            return str(_dtype_of(name))
        except (TypeError, ValueError, ImportError) as error:
            reason = f" ({error})" if isinstance(error, ImportError) else ""
            self._fail(token, f"expected a data type such as float32, got "
                       f"{token.text[:40]}{reason}")  # fmt: skip

    def _shape(self) -> tuple[int | None, ...]:
        def dim() -> int | None:
            if self._accept("?"):
                return None
            token = self._next()
            if token.kind == "meta":  # the text form of a symbolic dimension
                return None
            if token.kind != "number" or not token.text.isdigit():
                self._at -= token.kind != "end"
                self._unexpected("a dimension: a number or ?")
            number = int(token.text) if len(token.text) < 20 else 1 << 63
            if number >= 1 << 63:
                self._fail(token, f"dimension {token.text[:40]} does not fit int64")
            return number

        return tuple(self._listed("(", ")", dim))

    def _tuple_of(self, item: Callable[[], T]) -> tuple[list[T], bool]:
        """Items in parentheses, and whether the last one has a comma."""
        self._take("(")
        items: list[T] = []
        comma = False
        while not self._accept(")"):
            checkpoint()
            items.append(item())
            comma = self._accept(",")
            if not comma and self._kind != ")":
                self._unexpected("',' or ')'")
        return items, comma

    # Blocks

    def _content(self) -> syntax.Block:
        """Statements and a result, up to what cannot be part of them."""
        with self._deeper():
            start = self._here()
            statements: list[syntax.Statement] = []
            free_vars: list[syntax.Binder] = []
            while True:
                checkpoint()
                first = self._here()
                if self._accept("free_var"):
                    free_vars.append(self._binder())
                    self._take(";")
                elif self._accept("let"):
                    var = self._binder()
                    self._take("=")
                    value = self._expr()
                    self._take(";")
                    statements.append(syntax.Let(self._place(first), value, var))
                elif self._kind == "graph" and self._peek() == "=":
                    number = self._graph_number()
                    self._take("=")
                    value = self._expr()
                    self._take(";")
                    statements.append(syntax.Bind(self._place(first), value, number))
                else:
                    value = self._expr()
                    if not self._accept(";"):
                        break
                    statements.append(syntax.Do(self._place(first), value))
            return syntax.Block(self._place(start), statements, value, free_vars)

    def _graph_number(self) -> int:
        token = self._take("graph")
        if len(token.text) > 18:
            self._fail(token, "expected a graph variable with at most 18 digits")
        return int(token.text)

    def _block(self) -> syntax.Block:
        self._take("{")
        body = self._content()
        self._take("}")
        return body

    def _binder(self) -> syntax.Binder:
        start = self._here()
        name = self._take("local").text
        if self._kind == "{":  # the device of a parameter
            self._take("{")
            self._attrs("}")
        annotation = self._type() if self._accept(":") else None
        return syntax.Binder(self._place(start), name, annotation)

    # Expressions

    def _expr(self) -> syntax.Expr:
        """Operands with infix operators between them."""
        start = self._here()
        operands = [self._prefix()]
        signs: list[Token] = []
        links = 0

        def reduce() -> None:
            right, left = operands.pop(), operands.pop()
            sign = signs.pop()
            place = left.place.to(right.place)
            name = syntax.Name(Place(self._source, sign.start, sign.end), INFIX[sign.kind][1])
            operands.append(syntax.Call(place, name, [left, right], {}))

        while self._kind in INFIX:
            precedence = INFIX[self._kind][0]
            while signs and INFIX[signs[-1].kind][0] >= precedence:
                reduce()
            signs.append(self._next())
            operands.append(self._prefix())
            links += 1
            self._long(start, links)
        while signs:
            reduce()
        return operands[0]

    def _prefix(self) -> syntax.Expr:
        start, negated = self._here(), 0
        while self._accept("-"):
            negated += 1
        if self._kind == "number":
            number = self._number(self._next(), negated % 2 == 1, start)
            return self._postfix(number)
        value = self._postfix(self._atom())
        if negated % 2:
            name = syntax.Name(Place(self._source, start, start + 1), "negative")
            value = syntax.Call(self._place(start), name, [value], {})
        return value

    def _postfix(self, value: syntax.Expr) -> syntax.Expr:
        """Calls and projections of a value."""
        links, start = 0, value.place.start
        while True:
            if self._kind == "(":
                args, attrs = self._args()
                meta = None
                if args and _is_attrs(args[-1]):
                    meta = args[-1]
                    args = args[:-1]
                value = syntax.Call(self._place(start), value, args, attrs, meta)
            elif self._accept("."):
                token = self._take("number", "the index of an element of a tuple")
                if not token.text.isdigit() or len(token.text) > 9:
                    self._fail(token, f"index of a tuple: expected a number, got {token.text[:40]}")
                value = syntax.Project(self._place(start), value, int(token.text))
            else:
                value.place = self._with_origin(value.place)
                return value
            links += 1
            self._long(start, links)

    def _with_origin(self, place: Place) -> Place:
        origin = self._origins.get(self._tokens[self._at - 1].end)
        return place if origin is None else place._replace(origin=origin)

    def _atom(self) -> syntax.Expr:
        kind, start = self._kind, self._here()
        if kind == "local":
            name = self._next().text
            return syntax.LocalName(self._place(start), name)
        if kind == "graph":
            number = self._graph_number()
            return syntax.GraphName(self._place(start), number)
        if kind == "global":
            name = self._next().text
            return syntax.GlobalName(self._place(start), name)
        if kind == "name":
            name = self._dotted()
            return syntax.Name(self._place(start), name)
        if kind in ("True", "False"):
            self._next()
            return syntax.Constant(self._place(start), np.array(kind == "True"))
        if kind == "(":
            fields, comma = self._tuple_of(self._unblocked)
            if len(fields) == 1 and not comma:
                return fields[0]
            return syntax.Tuple(self._place(start), fields)
        if kind == "{":
            return self._block()
        if kind == "fn":
            self._next()
            return self._function(start)
        if kind == "if":
            return self._if()
        if kind in ("match", "match?"):
            return self._match()
        if kind in _REFS:
            return self._ref()
        if kind == "meta":
            return self._meta_ref()
        self._unexpected("an expression")

    def _unblocked(self) -> syntax.Expr:
        """An expression that may have statements before it; without any, no block around it."""
        block = self._content()
        return block if block.statements or block.free_vars else block.result

    def _dotted(self) -> str:
        name = self._take("name").text
        while self._kind == "." and self._peek() == "name":
            self._next()
            name += f".{self._next().text}"
        return name

    def _meta_ref(self) -> syntax.MetaRef:
        start, token = self._here(), self._next()
        kind, index = re.findall(r"\[\s*([\w.]+)\s*\]", token.text)
        if len(index) > 9:
            self._fail(token, f"index into the metadata: expected a number, got {index[:40]}")
        return syntax.MetaRef(self._place(start), kind, int(index))

    def _if(self) -> syntax.If:
        start = self._here()
        self._take("if")
        self._take("(")
        cond = self._unblocked()
        self._take(")")
        then = self._block()
        self._take("else")
        orelse = self._block()
        return syntax.If(self._place(start), cond, then, orelse)

    def _ref(self) -> syntax.RefOp:
        start, token = self._here(), self._next()
        args, count = self._listed("(", ")", self._unblocked), _REFS[token.kind]
        if len(args) != count:
            self._fail(token, f"{token.kind}: expected {count} argument{'s' * (count != 1)}, "
                       f"got {len(args)}")  # fmt: skip
        return syntax.RefOp(self._place(start), token.kind, args)

    def _match(self) -> syntax.Match:
        start = self._here()
        complete = self._next().kind == "match"
        value = self._expr()
        clauses = self._listed("{", "}", self._clause)
        return syntax.Match(self._place(start), value, clauses, complete)

    def _clause(self) -> syntax.Clause:
        start = self._here()
        pattern = self._pattern()
        self._take("=>")
        body = self._content()
        return syntax.Clause(self._place(start), pattern, body)

    def _pattern(self) -> syntax.Pattern:
        with self._deeper():
            start = self._here()
            if self._kind == "local":
                var = self._binder()
                return syntax.VarPattern(var.place, var)
            if self._kind == "name":
                name = self._next().text
                if name == "_":
                    return syntax.Wildcard(self._place(start))
                fields = self._listed("(", ")", self._pattern) if self._kind == "(" else []
                return syntax.ConstructorPattern(self._place(start), name, fields)
            if self._kind != "(":
                self._unexpected("a pattern: a constructor, %name, _ or a tuple")
            fields, comma = self._tuple_of(self._pattern)
            if len(fields) == 1 and not comma:
                return fields[0]
            return syntax.TuplePattern(self._place(start), fields)

    def _function(self, start: int) -> syntax.Function:
        """A function from its type parameters on."""
        type_params = self._type_params()
        params: list[syntax.Binder] = []
        attrs: dict[str, Any] = {}
        self._take("(")
        while not self._accept(")"):
            if self._is_attr():
                attrs = self._attrs(")")
                break
            params.append(self._binder())
            if self._kind != ")":
                self._take(",", "',' or ')'")
        ret = self._type() if self._accept("->") else None
        body = self._block()
        return syntax.Function(self._place(start), type_params, params, ret, body, attrs)

    # Attributes

    def _is_attr(self) -> bool:
        if self._kind != "name":
            return False
        ahead = 1
        while self._peek(ahead) == "." and self._peek(ahead + 1) == "name":
            ahead += 2
        return self._peek(ahead) == "="

    def _args(self) -> tuple[list[syntax.Expr], dict[str, Any]]:
        args: list[syntax.Expr] = []
        self._take("(")
        while not self._accept(")"):
            if self._is_attr():
                return args, self._attrs(")")
            args.append(self._unblocked())
            if self._kind != ")":
                self._take(",", "',' or ')'")
        return args, {}

    def _attrs(self, closing: str) -> dict[str, Any]:
        """Attributes up to the closing bracket."""
        attrs: dict[str, Any] = {}
        while not self._accept(closing):
            checkpoint()
            token = self._tokens[self._at]
            if not self._is_attr():
                self._unexpected("an attribute, name=value")
            name = self._dotted()
            if name in attrs:
                self._fail(token, f"attribute {name} is given twice")
            self._take("=")
            attrs[name] = self._attr_value()
            if self._kind != closing:
                self._take(",", f"',' or {closing!r}")
        return attrs

    def _attr_value(self) -> Any:
        """A number, string, bool, None, a list or tuple of these, or a `MetaRef`."""
        with self._deeper():
            kind = self._kind
            if kind == "[":
                return self._listed("[", "]", self._attr_value)
            if kind == "(":
                items, comma = self._tuple_of(self._attr_value)
                return items[0] if len(items) == 1 and not comma else items
            if kind == "string":
                return self._next().text
            if kind in ("True", "False"):
                return self._next().kind == "True"
            if kind == "meta":
                return self._meta_ref()
            if kind == "name" and self._tokens[self._at].text in ("None", "nullptr"):
                self._next()
                return None
            start, sign = self._here(), 1
            while self._accept("-"):
                sign = -sign
            if self._kind == "name" and self._tokens[self._at].text in ("inf", "nan"):
                return sign * float(self._next().text)
            token = self._take("number", "a value: a number, a string, True, False, None or [...]")
            found = _NUMBER.fullmatch(token.text)
            assert found is not None
            is_float = found[2] in ("f", "bf") or (found[2] is None and not found[1].isdigit())
            if is_float and len(found[1]) <= _MOST_DIGITS:
                return sign * float(found[1])  # as written: not rounded to float32
            return self._number(token, sign < 0, start).data.item()

    # Numbers

    def _number(self, token: Token, negated: bool, start: int) -> syntax.Constant:
        found = _NUMBER.fullmatch(token.text)
        assert found is not None
        digits, kind, width = found[1], found[2], found[3] or "32"
        place = self._place(start)
        shown = token.text if len(token.text) <= 40 else f"{token.text[:37]}..."
        if len(digits) > _MOST_DIGITS:
            place.fail(f"number {shown}: expected at most {_MOST_DIGITS} digits")
        dtype = f"{_KINDS[kind or 'i']}{width}"
        try:
            wanted = _dtype_of(dtype)
        except (TypeError, ValueError, ImportError) as error:
            place.fail(f"number {shown}: there is no data type {dtype} ({error})")
        if kind in ("f", "bf"):
            return syntax.Constant(place, _as_float(digits, negated, wanted, place, shown))
        if not digits.isdigit():
            place.fail(f"number {shown}: expected an integer, or a suffix as in 1.5f")
        value = -int(digits) if negated else int(digits)
        if kind is None and not -(2**31) <= value < 2**31:
            wanted = np.dtype(np.int64)  # as Relay's parser
        bounds = np.iinfo(wanted)
        if not bounds.min <= value <= bounds.max:
            place.fail(f"number {'-' * negated}{shown} does not fit {wanted}: expected "
                       f"{bounds.min} to {bounds.max}")  # fmt: skip
        return syntax.Constant(place, np.array(value, wanted))


def _dtype_of(name: str) -> np.dtype[Any]:
    """The data type of a name.

    Raises:
        TypeError: tensors have no such data type.
        ImportError: it needs ml_dtypes.
    """
    if not _TENSOR_DTYPE.fullmatch(name):
        raise TypeError(f"{name!r} is not a data type of tensors")
    return as_dtype(name)


def _is_attrs(expr: syntax.Expr) -> TypeGuard[syntax.MetaRef]:
    """Whether an argument is an object with attributes: ``meta[relay.attrs.Conv2DAttrs][0]``."""
    return isinstance(expr, syntax.MetaRef) and ATTRS in expr.kind.split(".")


def _as_float(digits: str, negated: bool, dtype: Any, place: Place, shown: str) -> Any:
    value = -float(digits) if negated else float(digits)
    with np.errstate(over="ignore"):
        array = np.array(value).astype(dtype)
    infinite = not np.isfinite(array.astype(np.float64)) and digits not in ("inf", "nan")
    if infinite:
        place.fail(f"number {'-' * negated}{shown} does not fit {dtype}")
    return array


_REFS: Final = {"ref": 1, "ref_read": 1, "ref_write": 2}

_SHOWN: Final = {
    "local": "a variable, %name",
    "global": "a function, @name",
    "name": "a name",
    "string": "a string",
    "graph": "a graph variable such as %0",
    "number": "a number",
}
