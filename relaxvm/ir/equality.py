"""Structural equality and structural hash of nodes.

Two nodes are equal if they have the same class and their `FIELDS` are equal.  Variables that both
sides define at the same place are equal, whatever their names: parameters, bindings, loop
variables, and symbolic dimensions that first appear in the type of a parameter or of a match_cast.
A free variable is equal only to itself.  Global variables and the functions of a module are matched
by name.  The order of functions and attributes does not matter, nor do spans.  Types of defined
variables and of constants do matter, and whether a block is a dataflow block.

Floats are equal if their bits are, constants if data type, shape and bytes are; so NaN equals
itself, and 0.0 is not -0.0.

The walks recurse only into nested nodes, so a block may have any length.  A node that is used in
several places is walked once, so the time is linear in the number of nodes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ..core.checkpoints import checkpoint
from ..dtypes import dtype_name
from .adt import Constructor, GlobalTypeVar, Match, TypeCall, TypeData
from .expr import (
    BaseFunc,
    Binding,
    Call,
    Constant,
    DataflowVar,
    FloatImm,
    Function,
    FuncType,
    If,
    IntImm,
    PrimType,
    SeqExpr,
    ShapeExpr,
    ShapeType,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    TypeVar,
    Var,
)
from .module import IRModule
from .nesting import headroom, with_headroom
from .node import KINDS, Node
from .prim import BinaryOpExpr, Let, same

__all__ = ["assert_structural_equal", "structural_equal", "structural_hash"]

_MAX_TEXT: Final = 600
"""Characters of each side in the description of a difference."""


def structural_equal(
    lhs: Any, rhs: Any, map_free_vars: bool = False, skip_tensor_content: bool = False
) -> bool:
    """Check whether two nodes, or attribute values, are structurally equal.

    Args:
        map_free_vars: match free variables of the two sides with each other, consistently, if
            their types are equal; by default a free variable is equal only to itself.
        skip_tensor_content: of constant tensors compare only the data types and shapes.
    """
    if lhs is rhs:
        return True
    if not map_free_vars and isinstance(lhs, Type):
        quick = _quick_types(lhs, rhs)
        if quick is not None:
            return quick
    with headroom("structural_equal", lhs, rhs):
        return _Comparer(map_free_vars, skip_tensor_content).same(lhs, rhs, False)


@with_headroom("assert_structural_equal")
def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Check that two nodes are structurally equal.

    Raises:
        ValueError: they are not; the message shows where they first differ, and both sides.
    """
    comparer = _Comparer(map_free_vars)
    if lhs is not rhs and not comparer.same(lhs, rhs, False):
        raise ValueError(comparer.description())


@with_headroom("structural_hash")
def structural_hash(
    value: Any, map_free_vars: bool = False, skip_tensor_content: bool = False
) -> int:
    """Return a 64-bit hash; nodes that are equal, as `structural_equal` says with the same options,
    have equal hashes.  The hash of a node without free variables is the same in every process."""
    hasher = _Hasher(map_free_vars, skip_tensor_content)
    hasher.add(value, False)
    return hasher.value()


# Types without variables to match


def _quick_types(a: Any, b: Any) -> bool | None:
    """Whether two types are equal, or None if that takes a full comparison."""
    kind = _kind_of(a)
    if kind is not _kind_of(b):
        return False
    if kind is TensorType:
        if a.dtype != b.dtype or a.ndim != b.ndim:
            return False
        if a.vdevice is not b.vdevice:
            return None
        x, y = a.shape, b.shape
        if x is y:
            return True
        if not isinstance(x, ShapeExpr) or not isinstance(y, ShapeExpr):
            return False if x is None or y is None else None
        return _quick_dims(x.values, y.values)
    if kind is ShapeType:
        if a.ndim != b.ndim or (a.values is None) != (b.values is None):
            return False
        return True if a.values is None else _quick_dims(a.values, b.values)
    if kind is PrimType:
        return bool(a.dtype == b.dtype)
    if kind is TupleType:
        if len(a.fields) != len(b.fields):
            return False
        found: bool | None = True
        for x, y in zip(a.fields, b.fields, strict=True):
            quick = True if x is y else _quick_types(x, y)
            if quick is False:
                return False
            if quick is None:
                found = None
        return found
    return None


def _quick_dims(a: Sequence[Any], b: Sequence[Any]) -> bool | None:
    found: bool | None = True
    for x, y in zip(a, b, strict=True):
        if x is y:
            continue
        kind = KINDS[type(x)]
        if kind is not KINDS[type(y)] or kind is Var:
            return False
        if kind is not IntImm:
            if not same(x, y):
                found = None
        elif x.value != y.value or (x.ty is not y.ty and x.ty != y.ty):
            return False
    return found


# Comparing

_INTERCHANGEABLE: Final[tuple[Any, ...]] = ((tuple, list), Mapping)
"""Classes of attribute values that may be equal to each other."""

_LAYOUTS: Final[dict[type, tuple[tuple[str, bool], ...]]] = {}


def _layout(kind: type[Node]) -> tuple[tuple[str, bool], ...]:
    """Fields of a class, each with whether it defines variables."""
    found = _LAYOUTS.get(kind)
    if found is None:
        found = _LAYOUTS[kind] = tuple((f, f in kind.DEFS) for f in kind.FIELDS)
    return found


def _kind_of(x: object) -> type:
    cls = type(x)
    plain = int if isinstance(x, int) and cls is not bool else cls  # subclasses compare as ints
    return KINDS.get(cls, plain)


def _are_comparable(a: object, b: object) -> bool:
    """Whether two values may be equal, as far as their classes tell."""
    return _kind_of(a) is _kind_of(b) or any(
        isinstance(a, general) and isinstance(b, general) for general in _INTERCHANGEABLE
    )


class _Comparer:
    """Walks two nodes side by side, until they differ."""

    __slots__ = (
        "bindings", "difference", "equal", "left", "map_free_vars", "matched", "path", "reason",
        "right", "skip_tensor_content",
    )  # fmt: skip

    def __init__(self, map_free_vars: bool, skip_tensor_content: bool = False) -> None:
        self.map_free_vars = map_free_vars
        self.skip_tensor_content = skip_tensor_content
        self.left: dict[Any, Any] = {}
        """Variable or type parameter of the left side -> the one of the right that it equals."""
        self.right: dict[Any, Any] = {}
        self.matched: list[tuple[Any, Any]] = []
        """The pairs, in order of their definition."""
        self.equal: set[tuple[int, int, bool]] = set()
        """Ids of nodes found equal, with `define`; valid while the pairs in `matched` are."""
        self.path: list[str] = []
        """Path to the difference, innermost step first; filled while returning from it."""
        self.difference: tuple[Any, Any] | None = None
        self.reason = ""
        self.bindings: tuple[Any, Any] | None = None
        """The pair of bindings that contains the difference."""

    def same(self, a: Any, b: Any, define: bool) -> bool:
        """Whether two values are equal; `define` is true if variables in them are definitions."""
        cls = type(a)
        if cls is not type(b) and not _are_comparable(a, b):
            return self.differ(a, b)
        compare = _COMPARE.get(cls)
        if compare is None:
            kind = _kind_of(a)
            compare = _COMPARE[cls] = _COMPARE.get(kind) or _comparison(kind)
        return compare(self, a, b, define)

    def differ(self, a: Any, b: Any, reason: str = "") -> bool:
        self.difference = a, b
        self.reason = reason
        return False

    # Comparisons by class

    def fields(self, a: Any, b: Any, define: bool) -> bool:
        """Any node."""
        pair = id(a), id(b), define
        if pair in self.equal:
            return True
        for field, defines in _layout(KINDS[type(a)]):
            if not self.same(getattr(a, field), getattr(b, field), define or defines):
                self.path.append(f".{field}")
                return False
        self.equal.add(pair)
        return True

    def scoped(self, a: Any, b: Any, define: bool) -> bool:
        """A node that is a scope: the variables that it defines end with it."""
        start = len(self.matched)
        if not self.fields(a, b, define):
            return False
        if len(self.matched) > start:
            for x, y in self.matched[start:]:
                del self.left[x], self.right[y]
            del self.matched[start:]
            self.equal.clear()
        return True

    def binding(self, a: Any, b: Any, define: bool) -> bool:
        checkpoint()
        # A local function may call itself: its variable is in scope in its own body.
        if isinstance(a.value, Function) and not self.same(a.var, b.var, True):
            self.path.append(".var")
        elif self.fields(a, b, define):
            return True
        if self.bindings is None:
            self.bindings = a, b
        return False

    def operation(self, a: Any, b: Any, define: bool) -> bool:
        """A scalar operation; the left operands form long chains."""
        pairs: list[tuple[int, int, bool]] = []
        while isinstance(a, BinaryOpExpr) and type(a) is type(b):
            pair = id(a), id(b), define
            if pair in self.equal:
                break
            if not self.same(a.b, b.b, define):
                self.path += [".b"] + [".a"] * len(pairs)
                return False
            pairs.append(pair)
            a, b = a.a, b.a
        else:
            if not self.same(a, b, define):
                self.path += [".a"] * len(pairs)
                return False
        self.equal.update(pairs)
        return True

    def var(self, a: Any, b: Any, define: bool) -> bool:
        return self.matching(a, b, define, "variables")

    def type_var(self, a: Any, b: Any, define: bool) -> bool:
        return self.matching(a, b, define, "type parameters")

    def matching(self, a: Any, b: Any, define: bool, what: str) -> bool:
        """Compare what a node may define: with what it was matched with, if it was."""
        expected = self.left.get(a)
        if expected is not None:
            return expected is b or self.differ(a, b, f"{a.name} stands for {expected.name}")
        if b in self.right:
            return self.differ(a, b, f"{b.name} stands for {self.right[b].name}")
        if define or self.map_free_vars:
            if isinstance(a, Var) and not self.same(a.ty, b.ty, define):
                self.path.append(".ty")
                return False
            self.left[a] = b
            self.right[b] = a
            self.matched.append((a, b))
            return True
        return a is b or self.differ(a, b, f"free {what} are equal to themselves only")

    def type_data(self, a: Any, b: Any, define: bool) -> bool:
        """Constructors are compared with their fields here, and by name where they are used."""
        start = len(self.matched)
        left, right = (
            (d.header, *[(c.name_hint, c.inputs) for c in d.constructors]) for d in (a, b)
        )
        if not self.same(a.type_vars, b.type_vars, True) or not self.same(left, right, False):
            return False
        for x, y in self.matched[start:]:
            del self.left[x], self.right[y]
        del self.matched[start:]
        self.equal.clear()
        return True

    def constructor(self, a: Any, b: Any, define: bool) -> bool:
        same = a.name_hint == b.name_hint and a.belong_to.name_hint == b.belong_to.name_hint
        return same or self.differ(a, b)

    def global_type_var(self, a: Any, b: Any, define: bool) -> bool:
        return bool(a.name_hint == b.name_hint) or self.differ(a, b)

    def constant(self, a: Any, b: Any, define: bool) -> bool:
        if not self._same_array(a.data, b.data):
            self.path.append(".data")
            return self.differ(a, b)
        if a.ty is not b.ty and not self.same(a.ty, b.ty, define):
            self.path.append(".ty")
            return False
        return True

    def integer(self, a: Any, b: Any, define: bool) -> bool:
        return self.number(a, b, a.value == b.value)

    def real(self, a: Any, b: Any, define: bool) -> bool:
        return self.number(a, b, _bits(a.value) == _bits(b.value))

    def number(self, a: Any, b: Any, is_same: bool) -> bool:
        """Two immediates, given whether their values are equal."""
        if is_same and a.ty.dtype == b.ty.dtype:
            return True
        if not is_same:
            self.path.append(".value")
        return self.differ(a, b)

    def module(self, a: IRModule, b: IRModule, define: bool) -> bool:
        left = {var.name_hint: func for var, func in a.items()}
        right = {var.name_hint: func for var, func in b.items()}
        types = [{h.name_hint: data for h, data in m.type_definitions.items()} for m in (a, b)]
        fields: tuple[tuple[str, Any, Any], ...] = (
            ("type_definitions", types[0], types[1]),
            ("functions", left, right),
            ("attrs", a.attrs, b.attrs),
            ("global_infos", a.global_infos, b.global_infos),
        )
        for field, x, y in fields:
            if not self.mapping(x, y, define):
                self.path.append(f".{field}")
                return False
        return True

    def mapping(self, a: Mapping[Any, Any], b: Mapping[Any, Any], define: bool) -> bool:
        if any(isinstance(key, Node) for key in a):
            return self.pairs(a, b, define)
        if a.keys() != b.keys():
            only = [sorted(map(str, x.keys() - y.keys())) for x, y in ((a, b), (b, a))]
            sides = [
                f"only {side} has {', '.join(map(repr, keys))}"
                for side, keys in zip(("left", "right"), only, strict=True)
                if keys
            ]
            return self.differ(sorted(map(str, a)), sorted(map(str, b)), "; ".join(sides))
        for key, value in a.items():
            if not self.same(value, b[key], define):
                self.path.append(f'["{key}"]')
                return False
        return True

    def pairs(self, a: Mapping[Any, Any], b: Mapping[Any, Any], define: bool) -> bool:
        """A mapping whose keys are nodes, in order, such as the buffer map of a PrimFunc."""
        if len(a) != len(b):
            return self.differ(list(a), list(b), f"{len(a)} entries against {len(b)}")
        for (x, value), (y, other) in zip(a.items(), b.items(), strict=True):
            if not (self.same(x, y, define) and self.same(value, other, define)):
                self.path.append(f"[{_shown(x)}]")
                return False
        return True

    def sequence(self, a: Sequence[Any], b: Sequence[Any], define: bool) -> bool:
        same = self.same
        index = 0
        for x, y in zip(a, b, strict=False):
            if not same(x, y, define):
                self.path.append(f"[{index}]")
                return False
            index += 1
        if len(a) != len(b):
            longer = a if len(a) > len(b) else b
            self.path.append(f"[{index}]")
            reason = f"{len(a)} elements against {len(b)}"
            if longer is a:
                return self.differ(a[index], _NOTHING, reason)
            return self.differ(_NOTHING, b[index], reason)
        return True

    def value(self, a: Any, b: Any, define: bool) -> bool:
        """Any value that is not a node."""
        return bool(a == b) or self.differ(a, b)

    def float(self, a: float, b: float, define: bool) -> bool:
        return _bits(a) == _bits(b) or self.differ(a, b)

    def array(self, a: Any, b: Any, define: bool) -> bool:
        return self._same_array(a, b) or self.differ(a, b)

    def _same_array(self, a: Any, b: Any) -> bool:
        if self.skip_tensor_content:
            return bool(a.dtype == b.dtype and a.shape == b.shape)
        return _same_array(a, b)

    # Description of the difference

    def description(self) -> str:
        """Where and how the two sides differ."""
        assert self.difference is not None
        place = "".join(reversed(self.path))
        reason = f" ({self.reason})" if self.reason else ""
        lines = [f"not structurally equal at <root>{place}{reason}"]
        left, right = map(_shown, self.difference)
        if left == right:
            left, right = (
                f"{text}  [{type(x).__name__}]"
                for text, x in zip((left, right), self.difference, strict=True)
            )
        lines += [f"  left:  {_indented(left)}", f"  right: {_indented(right)}"]
        if self.bindings is not None and self.bindings[0] is not self.difference[0]:
            left, right = map(_shown, self.bindings)
            lines += ["in the bindings", f"  left:  {_indented(left)}"]
            lines += [f"  right: {_indented(right)}"]
        return "\n".join(lines)


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


_NOTHING: Final = _Nothing()


def _shown(value: Any) -> str:
    """A value as text; its class if it is too broken to be printed."""
    try:
        text = str(value) if isinstance(value, Node) else repr(value)
    except Exception as error:
        return f"<{type(value).__name__}, which cannot be printed: {type(error).__name__}>"
    text = text.strip()
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + " ..."


def _indented(text: str) -> str:
    return text.replace("\n", "\n         ")


def _bits(value: float) -> bytes:
    return struct.pack("d", value)


def _same_array(a: Any, b: Any) -> bool:
    return a is b or (
        dtype_name(a.dtype) == dtype_name(b.dtype)
        and a.shape == b.shape
        and _array_bytes(a) == _array_bytes(b)
    )


def _array_bytes(array: Any) -> bytes:
    """The elements in C order, in the byte order of this machine."""
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    found: bytes = native.tobytes()
    return found


_Compare = Callable[[_Comparer, Any, Any, bool], bool]

_COMPARE: Final[dict[type, _Compare]] = {
    Var: _Comparer.var,
    DataflowVar: _Comparer.var,
    IntImm: _Comparer.integer,
    FloatImm: _Comparer.real,
    Constant: _Comparer.constant,
    IRModule: _Comparer.module,
    FuncType: _Comparer.scoped,
    TypeData: _Comparer.type_data,
    Constructor: _Comparer.constructor,
    TypeVar: _Comparer.type_var,
    GlobalTypeVar: _Comparer.global_type_var,
    Let: _Comparer.scoped,
    tuple: _Comparer.sequence,
    list: _Comparer.sequence,
    float: _Comparer.float,
    str: _Comparer.value,
    bool: _Comparer.value,
    int: _Comparer.value,
    type(None): _Comparer.value,
}


def _comparison(kind: type) -> _Compare:
    """The method that compares values of a class."""
    for base, compare in (
        (Var, _Comparer.var),
        (BinaryOpExpr, _Comparer.operation),
        (BaseFunc, _Comparer.scoped),
        (Binding, _Comparer.binding),
        (Node, _Comparer.fields),
        (Mapping, _Comparer.mapping),
        ((tuple, list), _Comparer.sequence),
        (np.ndarray, _Comparer.array),
        (float, _Comparer.float),
    ):
        if issubclass(kind, base):
            return compare
    return _Comparer.value


# Hashing


class _Hasher:
    """Writes a node as a list of tokens; a variable is the number of its definition."""

    __slots__ = (
        "defined", "digests", "map_free_vars", "numbers", "skip_tensor_content", "tokens",
    )  # fmt: skip

    def __init__(self, map_free_vars: bool, skip_tensor_content: bool = False) -> None:
        self.map_free_vars = map_free_vars
        self.skip_tensor_content = skip_tensor_content
        self.numbers: dict[Any, int] = {}
        self.defined: list[Any] = []
        self.tokens: list[Any] = []
        self.digests: dict[tuple[int, bool], str] = {}
        """Digests of nodes, by id and `define`; valid while all variables in `defined` are."""

    def value(self) -> int:
        return int(self.digest(0), 16)

    def digest(self, start: int) -> str:
        """A digest of the tokens from index `start` on."""
        text = "\0".join(map(str, self.tokens[start:])).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, digest_size=8).hexdigest()

    def add(self, x: Any, define: bool) -> None:
        """Append the tokens of a value."""
        cls = type(x)
        put = _HASH.get(cls)
        if put is None:
            kind = _kind_of(x)
            put = _HASH[cls] = _HASH.get(kind) or _hashing(kind)
        put(self, x, define)

    def fields(self, x: Any, define: bool) -> None:
        self.tokens.append(KINDS[type(x)].__name__)
        for field, defines in _layout(KINDS[type(x)]):
            self.add(getattr(x, field), define or defines)

    def binding(self, x: Any, define: bool) -> None:
        checkpoint()
        if isinstance(x.value, Function):
            self.add(x.var, True)
        self.fields(x, define)

    def scoped(self, x: Any, define: bool) -> None:
        start = len(self.defined)
        self.fields(x, define)
        if len(self.defined) > start:
            for var in self.defined[start:]:
                del self.numbers[var]
            del self.defined[start:]
            self.digests.clear()

    def operation(self, x: Any, define: bool) -> None:
        while isinstance(x, BinaryOpExpr):
            self.tokens.append(KINDS[type(x)].__name__)
            self.add(x.b, define)
            x = x.a
        self.add(x, define)

    def var(self, x: Var, define: bool) -> None:
        number = self.numbers.get(x)
        if number is None and (define or self.map_free_vars):
            self.add(x.ty, define)
            number = self.numbers[x] = len(self.defined)
            self.defined.append(x)
        self.tokens += (KINDS[type(x)].__name__, f"free {id(x)}" if number is None else number)

    def type_data(self, x: TypeData, define: bool) -> None:
        start = len(self.defined)
        self.tokens.append("TypeData")
        self.add(x.header, False)
        self.add(x.type_vars, True)
        for constructor in x.constructors:
            self.constructor(constructor, False)
            self.add(constructor.inputs, False)
        for var in self.defined[start:]:
            del self.numbers[var]
        del self.defined[start:]
        self.digests.clear()

    def constructor(self, x: Constructor, define: bool) -> None:
        self.tokens += ("Constructor", x.belong_to.name_hint, x.name_hint)

    def type_var(self, x: TypeVar, define: bool) -> None:
        number = self.numbers.get(x)
        if number is None and (define or self.map_free_vars):
            number = self.numbers[x] = len(self.defined)
            self.defined.append(x)
        self.tokens += ("TypeVar", f"free {id(x)}" if number is None else number)

    def constant(self, x: Constant, define: bool) -> None:
        self.array(x.data, define)
        self.add(x.ty, define)

    def immediate(self, x: Any, define: bool) -> None:
        self.tokens += (KINDS[type(x)].__name__, x.ty.dtype)
        self.add(x.value, define)

    def module(self, x: IRModule, define: bool) -> None:
        self.tokens.append("IRModule")
        if x.type_definitions:
            self.mapping({h.name_hint: d for h, d in x.type_definitions.items()}, define)
        self.mapping({var.name_hint: func for var, func in x.items()}, define)
        self.mapping(x.attrs, define)
        self.mapping(x.global_infos, define)

    def mapping(self, x: Mapping[Any, Any], define: bool) -> None:
        self.tokens += ("{", len(x))
        items = x.items()
        if not any(isinstance(key, Node) for key in x):
            items = sorted(items, key=lambda item: str(item[0]))  # type: ignore[assignment]
        for key, value in items:
            self.add(key, define)
            self.add(value, define)

    def sequence(self, x: Sequence[Any], define: bool) -> None:
        self.tokens += ("(", len(x))
        for item in x:
            self.add(item, define)

    def number(self, x: float, define: bool) -> None:
        self.tokens.append(_bits(x).hex())

    def text(self, x: Any, define: bool) -> None:
        self.tokens += (_kind_of(x).__name__, x)

    def array(self, x: Any, define: bool) -> None:
        self.tokens += ("array", dtype_name(x.dtype), x.shape)
        if not self.skip_tensor_content:
            self.tokens.append(hashlib.blake2b(_array_bytes(x), digest_size=8).hexdigest())

    def other(self, x: Any, define: bool) -> None:
        self.tokens += (_kind_of(x).__name__, hash(x))


_Hash = Callable[[_Hasher, Any, bool], None]

_HASH: Final[dict[type, _Hash]] = {
    IntImm: _Hasher.immediate,
    FloatImm: _Hasher.immediate,
    Constant: _Hasher.constant,
    IRModule: _Hasher.module,
    FuncType: _Hasher.scoped,
    TypeData: _Hasher.type_data,
    Constructor: _Hasher.constructor,
    TypeVar: _Hasher.type_var,
    Let: _Hasher.scoped,
    **dict.fromkeys((str, bool, int, type(None), bytes), _Hasher.text),
}


def _walked_once(put: _Hash) -> _Hash:
    """Wrap a method that hashes nodes that may be shared: a node is walked once and a digest
    replaces its tokens, except that the tokens of a node that defines variables are kept."""

    def add(hasher: _Hasher, x: Any, define: bool) -> None:
        key = id(x), define
        digest = hasher.digests.get(key)
        if digest is None:
            start, defined = len(hasher.tokens), len(hasher.defined)
            put(hasher, x, define)
            if len(hasher.defined) > defined:
                return
            digest = hasher.digests[key] = hasher.digest(start)
            del hasher.tokens[start:]
        hasher.tokens.append(digest)

    return add


_SHARED: Final = (Call, Tuple, TupleGetItem, If, Match, SeqExpr, TupleType, TypeCall)


def _hashing(kind: type) -> _Hash:
    """The method that hashes values of a class."""
    for base, put in (
        (Var, _Hasher.var),
        (BinaryOpExpr, _walked_once(_Hasher.operation)),
        (BaseFunc, _Hasher.scoped),
        (Binding, _Hasher.binding),
        (_SHARED, _walked_once(_Hasher.fields)),
        (Node, _Hasher.fields),
        (Mapping, _Hasher.mapping),
        ((tuple, list), _Hasher.sequence),
        (np.ndarray, _Hasher.array),
        (float, _Hasher.number),
        ((str, int), _Hasher.text),
    ):
        if issubclass(kind, base):
            return put
    return _Hasher.other
