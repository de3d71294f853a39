"""Calling a function of a VM from Python: keyword arguments, signatures, partial application.

Arguments can always be passed by position, and by keyword if the executable has parameter names.
"""

from __future__ import annotations

import inspect
import keyword
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..errors import ArityError, did_you_mean
from ..messages import describe, readable
from ..values import to_value

if TYPE_CHECKING:
    from .._core import VMFunction
    from ..executable import FunctionInfo

__all__ = ["BoundFunction", "Parameters", "signature_of"]


class Parameters:
    """The parameters of a function, and the rules that assign arguments to them.

    Args:
        function: name of the function, for messages.
        count: number of parameters.
        names: their names, or empty if the executable has none.
        aliases: other names for the same parameters, such as those of the model that the program
            was made of; a name of a parameter comes first.
    """

    __slots__ = ("_positions", "count", "function", "names")

    def __init__(
        self, function: str, count: int, names: Sequence[str], aliases: Sequence[str] = ()
    ) -> None:
        self.function = function
        self.count = count
        self.names = tuple(names) if len(names) == count else ()
        self._positions: dict[str, int] = {}
        for known in (aliases if len(aliases) == count else (), self.names):
            # Without names that several parameters have, since a keyword would be ambiguous.
            times = Counter(known)
            self._positions |= {name: i for i, name in enumerate(known) if times[name] == 1}

    @classmethod
    def of(cls, function: VMFunction | FunctionInfo) -> Parameters:
        aliases: Sequence[str] = getattr(function, "input_names", ())
        return cls(function.name, function.num_args, function.param_names, aliases)

    def has(self, name: str) -> bool:
        """Whether a parameter has a name."""
        return name in self._positions

    def order(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the arguments in the order of the parameters, by Python's rules for a call.

        Raises:
            TypeError: a keyword is unknown, or a parameter has two values.
            ArityError: there are too many or too few arguments.
        """
        return self._complete(self.slots(args, kwargs))

    def slots(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Like `order`, but with `_MISSING` for parameters without an argument."""
        if len(args) > self.count:
            raise self.wrong_count(len(args) + len(kwargs))
        slots = [*args, *([_MISSING] * (self.count - len(args)))]
        positions = self._positions
        for name, value in kwargs.items():
            index = positions[name] if name in positions else self.index(name)
            if slots[index] is not _MISSING:
                raise TypeError(f"{self.function}: two values for the parameter {name!r}")
            slots[index] = value
        return slots

    def fill(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the arguments in order; positional ones are assigned to the parameters that are
        not passed by keyword.

        This is the rule of TVM's `set_input` and `save_function`, not that of Python.

        Raises:
            TypeError: a keyword is unknown.
            ArityError: the count is wrong.
        """
        slots = [_MISSING] * self.count
        for name, value in kwargs.items():
            slots[self.index(name)] = value
        if len(args) + len(kwargs) > self.count:
            raise self.wrong_count(len(args) + len(kwargs))
        rest = iter(args)
        return self._complete(
            [next(rest, _MISSING) if value is _MISSING else value for value in slots]
        )

    def index(self, name: str) -> int:
        """Return the position of a parameter.

        Raises:
            TypeError: there is no parameter with that name.
        """
        if name in self._positions:
            return self._positions[name]
        if self.count and not self.names:
            raise TypeError(f"{self.function}: unexpected keyword {name!r}, its {self.count} "
                            f"parameters have no names; pass arguments by position")
        raise TypeError(f"{self.function}: unexpected keyword {name!r}, "
                        f"the parameters are {self}{did_you_mean(name, self.names)}")

    def wrong_count(self, given: int) -> ArityError:
        """Return the error of a call with `given` arguments."""
        noun = "argument" if self.count == 1 else "arguments"
        names = f" {self}" if self.names else ""
        return ArityError(f"{readable(self.function)}: expects {self.count} {noun}{names}, "
                          f"got {given}")

    def _complete(self, slots: Sequence[Any]) -> tuple[Any, ...]:
        absent = [i for i, value in enumerate(slots) if value is _MISSING]
        if not absent:
            return tuple(slots)
        error = self.wrong_count(len(slots) - len(absent))
        if not self.names:
            raise error
        shown = ", ".join(repr(self.names[i]) for i in absent[:8])
        more = f" and {len(absent) - 8} more" if len(absent) > 8 else ""
        raise ArityError(f"{error}; missing {shown}{more}")

    def __str__(self) -> str:
        return f"({', '.join(map(readable, self.names))})"


class _Missing:
    """The type of `_MISSING`, which marks a parameter without an argument.  It is compared by
    identity, since `==` on an array returns an array."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<missing>"


_MISSING: Final = _Missing()


def signature_of(params: Parameters, types: Sequence[str | None] = ()) -> inspect.Signature:
    """Return the signature for ``inspect`` and editors.

    If names are missing, not distinct, or not Python identifiers, parameters are positional-only.

    Args:
        params: the parameters.
        types: their types as a person reads them, which become annotations, where they are known.
    """
    distinct = params.names and len(set(params.names)) == params.count
    named = distinct and all(
        name.isidentifier() and not keyword.iskeyword(name) for name in params.names
    )
    Parameter = inspect.Parameter
    if named:
        made = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in params.names]
    else:
        made = [Parameter(f"arg{i}", Parameter.POSITIONAL_ONLY) for i in range(params.count)]
    if types:
        made = [
            each if ty is None else each.replace(annotation=ty)
            for each, ty in zip(made, types, strict=True)
        ]
    return inspect.Signature(made)


class BoundFunction:
    """A function with some of its arguments bound; a call passes the others.

    Attributes:
        function: the function that is called.
    """

    __slots__ = ("_around", "_given", "_open", "function")

    def __init__(
        self, function: VMFunction, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """
        Raises:
            TypeError: a keyword is unknown, or a parameter has two values.
            ArityError: there are too many arguments.
        """
        params = Parameters.of(function)
        self.function = function
        self._give(params, params.slots(args, kwargs))

    def _give(self, params: Parameters, slots: Sequence[Any]) -> None:
        """Set the bound arguments: a value or `_MISSING` per parameter."""
        # The function determines how a numpy scalar is converted.
        self._given = tuple(
            x if x is _MISSING or isinstance(x, np.generic) else to_value(x) for x in slots
        )
        free = [i for i, value in enumerate(self._given) if value is _MISSING]
        names = [params.names[i] for i in free] if params.names else []
        self._open = Parameters(params.function, len(free), names)
        # Unbound parameters are mostly contiguous; then a call is a concatenation.
        first, end = (free[0], free[-1] + 1) if free else (params.count, params.count)
        side_by_side = end - first == len(free)
        self._around = (self._given[:first], self._given[end:]) if side_by_side else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function; with ``out=``, as the function itself does.

        Raises:
            TypeError: a keyword is unknown, or a parameter has two values.
            ArityError: the number of the other arguments is wrong.
        """
        if "out" in kwargs and not self._open.has("out"):
            from .outputs import call_into  # here, since it is rarely needed

            out = kwargs.pop("out")
            return call_into(self._open.function, self, self._open.order(args, kwargs), out)
        if kwargs or len(args) != self._open.count:
            args = self._open.order(args, kwargs)
        if self._around is None:
            return self.function(*self._merged(args))
        before, after = self._around
        return self.function(*before, *args, *after)

    def bind(self, *args: Any, **kwargs: Any) -> BoundFunction:
        """Bind some of the other arguments."""
        bound = BoundFunction.__new__(BoundFunction)
        bound.function = self.function
        slots = self._merged(self._open.slots(args, kwargs))
        bound._give(Parameters.of(self.function), slots)
        return bound

    def _merged(self, rest: Sequence[Any]) -> tuple[Any, ...]:
        values = iter(rest)
        return tuple(next(values) if x is _MISSING else x for x in self._given)

    @property
    def signature(self) -> inspect.Signature:
        """The signature of the arguments that are not bound."""
        return signature_of(self._open)

    __signature__ = signature

    def __repr__(self) -> str:
        params = Parameters.of(self.function)
        names = params.names or tuple(f"arg{i}" for i in range(params.count))
        parts = [
            name if value is _MISSING else f"{name}={describe(value)}"
            for name, value in zip(names, self._given, strict=True)
        ]
        return f"<{self.function.name} bound: {', '.join(parts)}>"


class SavedFunction:
    """A function with saved last arguments, created by `VirtualMachine.save_function`.

    Attributes:
        function: the function that is called.
        saved: the arguments that follow those of the call.
        include_return: whether a call returns the result of the function, or None.
    """

    __slots__ = ("function", "include_return", "saved")

    def __init__(
        self, function: VMFunction, saved: Sequence[Any], include_return: bool = True
    ) -> None:
        self.function = function
        self.saved = tuple(saved)
        self.include_return = include_return

    def __call__(self, *args: Any) -> Any:
        """Call the function.

        Raises:
            ArityError: the number of arguments, including the saved ones, is wrong.
        """
        result = self.function(*args, *self.saved)
        return result if self.include_return else None

    def __repr__(self) -> str:
        return f"<SavedFunction of {self.function.name} with {len(self.saved)} saved arguments>"
