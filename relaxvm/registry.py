"""Packed functions by name: the global registry, scoped registries, and signatures.

A *signature* describes the parameters of a packed function, in a small language like Python's::

    "ctx: vm, size: int"
    "x: tensor|shape, heap: tensor|none, n: int, *codes: int, err: str"
    "storage: storage, offset: int, shape: shape, dtype: dtype, scope: str = ..."

``*name`` accepts any number of arguments (other parameters may follow), ``= ...`` marks an optional
parameter.  The kinds are those of `relaxvm.values.kind_of` and ``vm``, ``storage``, ``closure`` and
``any``.  The verifier checks calls against signatures before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, overload

from .errors import RelaxVMError, did_you_mean

if TYPE_CHECKING:
    from .core._deferred import Deferred

__all__ = [
    "COMPILED_PREFIX",
    "GLOBAL",
    "KERNEL_PREFIX",
    "RESULT_PREFIX",
    "PackedFunc",
    "Param",
    "Registry",
    "Signature",
    "get_func",
    "list_funcs",
    "register_func",
]

F = TypeVar("F", bound=Callable[..., Any])

ANY: Final = frozenset({"any"})

KERNEL_PREFIX: Final = "relaxvm.kernel."
"""Prefix of the names of relaxvm's own kernels."""

RESULT_PREFIX: Final = "relaxvm.result."
"""Prefix of the names of kernels that return their results."""

COMPILED_PREFIX: Final = "__vmtir__"
"""Prefix of the packed function with the code of a compiled function."""


class Param(NamedTuple):
    """A parameter of a packed function: its name and the kinds it accepts."""

    name: str
    kinds: frozenset[str]
    optional: bool = False

    def accepts(self, kind: str) -> bool:
        """Return whether a value of `kind` is accepted; a bool is an int, a shape is a tuple."""
        kinds = self.kinds
        return (
            "any" in kinds
            or kind == "any"
            or kind in kinds
            or (kind == "bool" and "int" in kinds)
            or (kind == "shape" and "tuple" in kinds)
            or (kind == "closure" and "func" in kinds)
        )

    def __str__(self) -> str:
        text = f"{self.name}: {'|'.join(sorted(self.kinds))}"
        return text + " = ..." if self.optional else text


# An argument of a call as far as the code determines it: its kind, and its value if constant.
StaticArg = tuple[str, Any]
StaticCheck = Callable[[Sequence[StaticArg]], Iterable[str]]


class Signature(NamedTuple):
    """Parameters and result kind of a packed function.

    Attributes:
        params: parameters before the variadic one (all of them if there is none).
        variadic: the parameter that repeats, or None.
        last: parameters after the variadic one.
        result: kind of the result.
        check: further load-time check.  Called with ``(kind, value)`` per argument, where the value
            is the constant or immediate, or None if it is only known at run time (kind ``"any"``).
            Yields messages.
    """

    params: tuple[Param, ...] = ()
    variadic: Param | None = None
    last: tuple[Param, ...] = ()
    result: str = "any"
    check: StaticCheck | None = None

    @classmethod
    def parse(cls, text: str, result: str = "any", check: StaticCheck | None = None) -> Signature:
        """Parse the language described in the module's docstring."""
        first: list[Param] = []
        last: list[Param] = []
        variadic: Param | None = None
        for item in filter(None, map(str.strip, text.split(","))):
            spec, eq, _ = item.partition("=")
            name, colon, kinds = spec.partition(":")
            name = name.strip()
            kindset = frozenset(k.strip() for k in kinds.split("|")) if colon else ANY
            param = Param(name.lstrip("*"), kindset, bool(eq))
            if name.startswith("*"):
                if variadic is not None:
                    raise ValueError(f"signature {text!r}: two variadic parameters")
                variadic = param
            else:
                (first if variadic is None else last).append(param)
        return cls(tuple(first), variadic, tuple(last), result, check)

    @property
    def min_args(self) -> int:
        return sum(not p.optional for p in self.params + self.last)

    @property
    def max_args(self) -> int | None:
        """The maximal number of arguments of a call, None for any number."""
        return None if self.variadic is not None else len(self.params)

    def bind(self, count: int) -> list[Param] | None:
        """Return the parameter of each of `count` arguments, or None if the count is wrong."""
        if count < self.min_args or (self.max_args is not None and count > self.max_args):
            return None
        if self.variadic is None:
            return list(self.params[:count])
        middle = count - len(self.params) - len(self.last)
        return [*self.params, *([self.variadic] * middle), *self.last]

    def arity(self) -> str:
        """Return the number of arguments as text: ``3``, ``3 or 4``, ``3 to 5``, ``at least 2``."""
        low, high = self.min_args, self.max_args
        if high is None:
            return f"at least {low}"
        return str(low) if low == high else f"{low} {'or' if high == low + 1 else 'to'} {high}"

    def __str__(self) -> str:
        parts = list(map(str, self.params))
        if self.variadic is not None:
            parts.append(f"*{self.variadic}")
        parts.extend(map(str, self.last))
        return f"({', '.join(parts)}) -> {self.result}"


class PackedFunc(NamedTuple):
    """A registered function.

    Attributes:
        name: its name in bytecode.
        func: the callable.  It is called with positional arguments only.
        signature: its signature, or None if unknown.
        effect: whether it has effects beyond its arguments (files, other registries).  An
            executable may call such a function only if the creator of the VM allows it by name.
        doc: one paragraph for the reference page.
        weak: whether another function may be registered under the name without ``override``.
    """

    name: str
    func: Callable[..., Any]
    signature: Signature | None = None
    effect: bool = False
    doc: str = ""
    weak: bool = False


class Registry:
    """Packed functions by name, with an optional parent for names that are not found.

    ``Registry(parent=relaxvm.registry.GLOBAL)`` makes a scope for one VM: pass it as
    ``VirtualMachine(..., functions=registry)``.
    """

    def __init__(
        self,
        functions: dict[str, Callable[..., Any]] | None = None,
        *,
        parent: Registry | None = None,
    ) -> None:
        self._own: dict[str, PackedFunc] = {}
        self.parent = parent
        for name, func in (functions or {}).items():
            self.register(name, func)

    def register(
        self,
        name: str,
        func: Callable[..., Any],
        *,
        override: bool = False,
        signature: Signature | str | None = None,
        effect: bool = False,
        doc: str | None = None,
        weak: bool = False,
    ) -> PackedFunc:
        """Add a function.

        Raises:
            TypeError: `name` is not a string or `func` is not callable.
            ValueError: the name is empty.
            RelaxVMError: the name exists in this registry, is not weak, and `override` is false.
        """
        if not isinstance(name, str):
            raise TypeError(f"register_func: expected a name, got {type(name).__name__}")
        if not name:
            raise ValueError("register_func: expected a name, got an empty string")
        if not callable(func):
            raise TypeError(f"register_func {name!r}: expected a callable, "
                            f"got {type(func).__name__}")
        old = self._own.get(name)
        if old is not None and not old.weak and not override:
            owner = getattr(old.func, "__module__", None) or "unknown module"
            raise RelaxVMError(
                f"register_func: {name!r} is already registered (by {owner}); "
                f"pass override=True to replace it"
            )
        if isinstance(signature, str):
            signature = Signature.parse(signature)
        text = doc if doc is not None else (getattr(func, "__doc__", None) or "")
        record = PackedFunc(name, func, signature, effect, text, weak)
        self._own[name] = record
        return record

    def remove(self, name: str) -> None:
        """Remove a function.

        Raises:
            KeyError: it is not in this registry.
        """
        del self._own[name]

    def lookup(self, name: str) -> PackedFunc | None:
        """Return the record of a name, in this registry or a parent, or None."""
        record = self._own.get(name)
        return record if record is not None or self.parent is None else self.parent.lookup(name)

    def callee(self, name: str) -> PackedFunc | None:
        """Return the record that a program links for a name, or None: as `lookup`, but the function
        may be one of relaxvm's that is looked for when it is first called, and then the record has
        no signature and no documentation."""
        return self.lookup(name)

    def get(self, name: str, allow_missing: bool = False) -> Any:
        """Return the callable of a name.

        Raises:
            ValueError: the name is unknown; with `allow_missing` None is returned instead.
        """
        record = self.lookup(name)
        if record is None:
            if allow_missing:
                return None
            raise ValueError(f"function {name!r} is not registered"
                             f"{did_you_mean(name, self.names())}")
        return record.func

    def names(self) -> list[str]:
        """Return all names, including those of parents, sorted."""
        found = set(self._own)
        if self.parent is not None:
            found.update(self.parent.names())
        return sorted(found)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.lookup(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def __repr__(self) -> str:
        return f"<Registry of {len(self._own)} functions{' over a parent' if self.parent else ''}>"


class _Global(Registry):
    """The global registry.  Builtins and kernels register themselves when they are imported.  Since
    most programs call few, a module with some of them is only imported when the name of one, or the
    list of all names, is requested.

    Linking a program does not request them: of the functions that it names, the core computes most.
    What is linked finds its function when it is first called."""

    def __init__(self) -> None:
        super().__init__()
        self._deferred: dict[str, tuple[PackedFunc, Deferred]] = {}
        self._replaced: set[str] = set()

    def _import_home(self, name: str) -> None:
        """Import the module of a builtin or kernel, if a name is that of one."""
        # No flag is needed: the import system knows what is loaded.  It makes other threads wait
        # during the import, but not the functions that register themselves in it.
        if name.startswith((KERNEL_PREFIX, RESULT_PREFIX)):
            from . import kernels

            kernels.import_home(name)
        else:
            from . import builtins

            builtins.import_home(name)

    def _import_all(self) -> None:
        from . import builtins, kernels

        builtins.import_all()
        kernels.import_all()

    def register(self, name: str, func: Callable[..., Any], **kwargs: Any) -> PackedFunc:
        if isinstance(name, str):
            self._import_home(name)
            self._keep_deferred(name)
        return super().register(name, func, **kwargs)

    def remove(self, name: str) -> None:
        self._import_home(name)
        self._keep_deferred(name)
        super().remove(name)

    def _keep_deferred(self, name: str) -> None:
        """Before a name loses its function: what is linked under it keeps the function, and nothing
        is linked under it later."""
        if name in self._own:
            found = self._deferred.get(name)
            if found is not None:
                found[1].function  # noqa: B018
            self._replaced.add(name)

    def callee(self, name: str) -> PackedFunc | None:
        if not isinstance(name, str) or name in self._own or name in self._replaced:
            return self.lookup(name)
        found = self._deferred.get(name)
        if found is None:
            # Each is imported only if a name may be one of its own.
            if name.startswith((KERNEL_PREFIX, RESULT_PREFIX)):
                from . import kernels

                made = kernels.deferred(name)
            else:
                from . import builtins

                made = builtins.deferred(name)
            if made is None:
                return self.lookup(name)
            func, deferred = made
            found = self._deferred.setdefault(name, (PackedFunc(name, func), deferred))
        return found[0]

    def is_deferred(self, record: PackedFunc) -> bool:
        """Whether a record comes from `callee` and is that of a function of relaxvm which is looked
        for when it is first called."""
        found = self._deferred.get(record.name)
        return found is not None and found[0] is record

    def lookup(self, name: str) -> PackedFunc | None:
        record = self._own.get(name)
        if record is None and isinstance(name, str):
            self._import_home(name)
            record = self._own.get(name)
            if record is None and name.startswith((KERNEL_PREFIX, RESULT_PREFIX)):
                from . import kernels

                kernels.import_all()  # a new kernel, which is not in the table yet
                record = self._own.get(name)
        return record

    def names(self) -> list[str]:
        self._import_all()
        return super().names()

    def __repr__(self) -> str:
        self._import_all()
        return super().__repr__()


GLOBAL: Final = _Global()
"""The registry of `register_func`, which a VM uses by default."""


@overload
def register_func(name: str, func: F, override: bool = ..., **kwargs: Any) -> F: ...
@overload
def register_func(
    name: str, func: None = ..., override: bool = ..., **kwargs: Any
) -> Callable[[F], F]: ...
@overload
def register_func(name: F, func: None = ..., override: bool = ..., **kwargs: Any) -> F: ...
def register_func(name: Any, func: Any = None, override: bool = False, **kwargs: Any) -> Any:
    """Register a packed function globally; also a decorator, with or without a name.

    Args:
        name: the name, or (bare decorator) the function, registered under its ``__name__``.
        func: the callable; without it a decorator is returned.
        override: replace an earlier function of this name.
        kwargs: ``signature``, ``effect``, ``doc`` as in `Registry.register`.

    Raises:
        RelaxVMError: the name exists and `override` is false.
        TypeError: `name` is neither a string nor callable, or `func` is not callable.
    """
    if not isinstance(name, str) and not callable(name):
        raise TypeError(f"register_func: expected a name or a function, got {type(name).__name__}")
    if callable(name):
        GLOBAL.register(name.__name__, name, override=override, **kwargs)
        return name
    if func is not None:
        GLOBAL.register(name, func, override=override, **kwargs)
        return func

    def decorate(f: F) -> F:
        GLOBAL.register(name, f, override=override, **kwargs)
        return f

    return decorate


def get_func(name: str, allow_missing: bool = False) -> Any:
    """Return the globally registered function with a name.

    Raises:
        ValueError: the name is unknown; with `allow_missing` None is returned instead.
    """
    return GLOBAL.get(name, allow_missing)


def list_funcs() -> list[str]:
    """Return the names of all globally registered functions, sorted."""
    return GLOBAL.names()
