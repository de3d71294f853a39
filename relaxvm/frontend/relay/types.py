"""Types of Relay during inference, and their unification.

A `Variable` stands for a type that is not known yet.  A dimension is a number or None, which is
``?``: it fits every number, and a type that has to be both has ``?``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from ...core.checkpoints import checkpoint
from ...errors import TypeSizeError
from .syntax import TypeDef

__all__ = [
    "BOOL",
    "UNIT",
    "DataTy",
    "FuncTy",
    "Mismatch",
    "Param",
    "RefTy",
    "TensorTy",
    "TupleTy",
    "Ty",
    "Unifier",
    "Variable",
    "parts_of",
    "resolved",
    "rewrite",
    "show",
]

_MOST_STEPS: Final = 20_000_000
"""Of all unifications of a program: types that share parts can take exponential time."""
_MOST_SHOWN: Final = 200


class Ty:
    """Base of types."""

    __slots__ = ()


class TensorTy(Ty):
    """A tensor."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: tuple[int | None, ...], dtype: str) -> None:
        self.shape = shape
        self.dtype = dtype


class TupleTy(Ty):
    """A tuple."""

    __slots__ = ("fields",)

    def __init__(self, fields: Sequence[Ty]) -> None:
        self.fields = tuple(fields)


class FuncTy(Ty):
    """A function.  `type_params` are those of a definition; each use has its own instance."""

    __slots__ = ("params", "ret", "type_params")

    def __init__(self, params: Sequence[Ty], ret: Ty, type_params: Sequence[Param] = ()) -> None:
        self.params = tuple(params)
        self.ret = ret
        self.type_params = tuple(type_params)


class RefTy(Ty):
    """A mutable cell."""

    __slots__ = ("value",)

    def __init__(self, value: Ty) -> None:
        self.value = value


class DataTy(Ty):
    """A data type with its arguments."""

    __slots__ = ("args", "definition")

    def __init__(self, definition: TypeDef, args: Sequence[Ty]) -> None:
        self.definition = definition
        self.args = tuple(args)


class Param(Ty):
    """A type parameter inside of what it is a parameter of: equal only to itself."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Variable(Ty):
    """A type that is not known yet.

    Attributes:
        link: the type, once it is known.
        waiting: functions to call then.
    """

    __slots__ = ("link", "waiting")

    def __init__(self) -> None:
        self.link: Ty | None = None
        self.waiting: list[Callable[[], None]] = []


UNIT: Final = TupleTy(())
BOOL: Final = TensorTy((), "bool")


class Mismatch(Exception):
    """Two types are not equal; the arguments are the parts that differ."""


def resolved(ty: Ty) -> Ty:
    """Return the type that a variable stands for; other types, and unknown ones, as they are."""
    while type(ty) is Variable and ty.link is not None:
        ty = ty.link
    return ty


def parts_of(ty: Ty) -> tuple[Ty, ...]:
    """Return the types that a type is made of."""
    kind = type(ty)
    if kind is TupleTy:
        return ty.fields  # type: ignore[attr-defined, no-any-return]
    if kind is FuncTy:
        return (*ty.params, ty.ret)  # type: ignore[attr-defined]
    if kind is DataTy:
        return ty.args  # type: ignore[attr-defined, no-any-return]
    return (ty.value,) if isinstance(ty, RefTy) else ()


def rewrite(
    ty: Ty, leaf: Callable[[Ty], Ty], done: dict[int, tuple[Ty, Ty]], step: Callable[[], None]
) -> Ty:
    """Return a type with its tensors, parameters and unknown variables replaced; each part once.

    Args:
        done: what is replaced already.
        step: is called for each part.
    """
    step()
    ty = resolved(ty)
    found = done.get(id(ty))
    if found is not None:
        return found[1]
    kind = type(ty)
    new: Ty
    if kind is TupleTy:
        new = TupleTy([rewrite(f, leaf, done, step) for f in ty.fields])  # type: ignore[attr-defined]
    elif isinstance(ty, FuncTy):
        params = [rewrite(p, leaf, done, step) for p in ty.params]
        new = FuncTy(params, rewrite(ty.ret, leaf, done, step), ty.type_params)
    elif isinstance(ty, DataTy):
        new = DataTy(ty.definition, [rewrite(a, leaf, done, step) for a in ty.args])
    elif isinstance(ty, RefTy):
        new = RefTy(rewrite(ty.value, leaf, done, step))
    else:
        new = leaf(ty)
    done[id(ty)] = ty, new
    return new


class Unifier:
    """Makes types equal."""

    def __init__(self) -> None:
        self._steps = 0
        self._ready: list[Callable[[], None]] = []
        self._running = False

    def unify(self, a: Ty, b: Ty) -> Ty:
        """Make two types equal and return the type that both have: of dimensions that differ
        where one is ``?``, that has ``?``.

        Raises:
            Mismatch: they cannot be equal.
            TypeSizeError: they are too large.
        """
        self.step()
        x, y = resolved(a), resolved(b)
        if x is y:
            return x
        if type(x) is Variable:
            self._set(x, y)
            return y
        if type(y) is Variable:
            self._set(y, x)
            return x
        merged = self._merge(x, y)
        for side in (a, b):
            if type(side) is Variable and merged is not resolved(side):
                while type(side.link) is Variable:
                    side = side.link
                side.link = merged
        return merged

    def instantiate(self, ty: Ty, values: Mapping[Param, Ty]) -> Ty:
        """Return a type with parameters replaced."""
        if not values:
            return ty

        def leaf(part: Ty) -> Ty:
            return values.get(part, part) if type(part) is Param else part

        self.step(len(values))
        return rewrite(ty, leaf, {}, self.step)

    def step(self, count: int = 1) -> None:
        """Count work on types.

        Raises:
            TypeSizeError: it is too much.
        """
        self._steps += count
        if self._steps % 4096 < count:
            checkpoint()
        if self._steps > _MOST_STEPS:
            raise TypeSizeError(
                f"type inference: the types of the program took {_MOST_STEPS} steps; types that "
                "double with every line have to be kept apart"
            )

    def _merge(self, x: Ty, y: Ty) -> Ty:
        if isinstance(x, TensorTy) and isinstance(y, TensorTy):
            return _merge_tensors(x, y)
        if type(x) is not type(y):
            raise Mismatch(x, y)
        if isinstance(x, TupleTy) and isinstance(y, TupleTy) and len(x.fields) == len(y.fields):
            fields = [self.unify(i, j) for i, j in zip(x.fields, y.fields, strict=True)]
            return x if _same(fields, x.fields) else TupleTy(fields)
        if isinstance(x, FuncTy) and isinstance(y, FuncTy) and len(x.params) == len(y.params):
            params = [self.unify(i, j) for i, j in zip(x.params, y.params, strict=True)]
            ret = self.unify(x.ret, y.ret)
            return x if _same([*params, ret], (*x.params, x.ret)) else FuncTy(params, ret)
        if isinstance(x, DataTy) and isinstance(y, DataTy) and x.definition is y.definition:
            args = [self.unify(i, j) for i, j in zip(x.args, y.args, strict=True)]
            return x if _same(args, x.args) else DataTy(x.definition, args)
        if isinstance(x, RefTy) and isinstance(y, RefTy):
            value = self.unify(x.value, y.value)
            return x if value is resolved(x.value) else RefTy(value)
        raise Mismatch(x, y)

    def _set(self, var: Variable, ty: Ty) -> None:
        if type(ty) is Variable:
            var.link = ty
            ty.waiting += var.waiting
            var.waiting = []
            return
        if self._occurs(var, ty):
            raise Mismatch(var, ty)
        var.link = ty
        self._ready += var.waiting
        var.waiting = []

    def _occurs(self, var: Variable, ty: Ty) -> bool:
        work, seen = [ty], set()
        while work:
            part = resolved(work.pop())
            if part is var:
                return True
            if id(part) not in seen:
                seen.add(id(part))
                inner = parts_of(part)
                if inner:
                    self.step(len(inner))
                    work += inner
        return False

    def unknown(self, ty: Ty) -> Variable | None:
        """Return a variable in a type that is not known yet, or None."""
        return next(self.all_unknown(ty), None)

    def all_unknown(self, ty: Ty) -> Iterator[Variable]:
        """Yield the variables in a type that are not known yet, in order.  They may become known
        meanwhile."""
        work, seen = [ty], set()
        while work:
            part = resolved(work.pop())
            if type(part) is Variable:
                yield part
                continue
            inner = parts_of(part)
            if inner and id(part) not in seen:
                self.step(len(inner))
                seen.add(id(part))
                work += reversed(inner)

    def later(self, work: Callable[[], None]) -> None:
        """Call a function now, or after the one that runs now."""
        self._ready.append(work)
        self.run()

    def run(self) -> None:
        """Call the functions whose variables have become known."""
        if self._running:
            return
        self._running = True
        try:
            while self._ready:
                self._ready.pop()()
        finally:
            self._running = False


def _merge_tensors(x: TensorTy, y: TensorTy) -> TensorTy:
    if x.dtype != y.dtype or len(x.shape) != len(y.shape):
        raise Mismatch(x, y)
    if x.shape == y.shape:
        return x
    if any(i != j and None not in (i, j) for i, j in zip(x.shape, y.shape, strict=True)):
        raise Mismatch(x, y)
    shape = tuple(i if i == j else None for i, j in zip(x.shape, y.shape, strict=True))
    return x if shape == x.shape else y if shape == y.shape else TensorTy(shape, x.dtype)


def _same(new: Sequence[Ty], old: Sequence[Ty]) -> bool:
    return all(a is resolved(b) for a, b in zip(new, old, strict=True))


def show(ty: Any) -> str:
    """Return a type as Relay text, shortened if it is long; ``_`` is what is not known."""
    pieces: list[str] = []
    work: list[Any] = [ty]
    length = 0
    while work:
        part = work.pop()
        if isinstance(part, Ty):
            work += reversed(_pieces(resolved(part)))
            continue
        pieces.append(part)
        length += len(part)
        if length > _MOST_SHOWN:
            pieces.append("...")
            break
    return "".join(pieces)


def _pieces(ty: Ty) -> list[Any]:
    if isinstance(ty, TensorTy):
        if not ty.shape:
            return [ty.dtype]
        dims = ", ".join("?" if d is None else str(d) for d in ty.shape)
        return [f"Tensor[({dims}{',' if len(ty.shape) == 1 else ''}), {ty.dtype}]"]
    if isinstance(ty, TupleTy):
        return ["(", *_listed(ty.fields), ",)" if len(ty.fields) == 1 else ")"]
    if isinstance(ty, FuncTy):
        return ["fn (", *_listed(ty.params), ") -> ", ty.ret]
    if isinstance(ty, DataTy):
        return [ty.definition.name, *(["[", *_listed(ty.args), "]"] if ty.args else [])]
    if isinstance(ty, RefTy):
        return ["ref(", ty.value, ")"]
    return [ty.name if isinstance(ty, Param) else "_"]


def _listed(types: Sequence[Ty]) -> list[Any]:
    found: list[Any] = []
    for ty in types:
        found += [", ", ty]
    return found[1:]
