"""`relaxvm.capture(vm, names)`: the values that a program computes on the way.

    with relaxvm.capture(vm, ["conv*", "logits"]) as c:
        vm.main(x)
    c["logits"]
    c.save("values.npz")
"""

from __future__ import annotations

import os
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from .._core import Machine
from ..errors import NotFiniteError, RelaxVMError, did_you_mean
from ..executable.formats.places import place_text
from ..executable.variables import written_register
from ..messages import describe, readable
from ..values import Shape
from .computed import Computed
from .copies import copied
from .recorder import RUN
from .summaries import value_line

if TYPE_CHECKING:
    from ..vm import VirtualMachine

__all__ = ["Capture", "capture"]

_DEFAULT_BYTES: Final = 1 << 30
_OWN: Final = ("vm.builtin.", "relaxvm.builtin.")

Names = str | Iterable[str] | Callable[[Computed], object] | None


class Capture(Mapping[str, Any]):
    """Values captured from the runs of a VM while it is active, by the names of their variables.

    A mapping from name to the last value of that name; `times` has all of them.  The VM calls every
    builtin separately meanwhile, as for a profile.

    Args:
        vm: the VM to observe, on all threads.
        names: see `capture`.
        max_bytes: of the arrays that are kept.
        nan_stop: whether to look for values that are not finite.
    """

    def __init__(self, vm: Any, names: Names, max_bytes: int, nan_stop: bool) -> None:
        machine = vm if isinstance(vm, Machine) else getattr(vm, "vm", vm)
        if not isinstance(machine, Machine):
            raise TypeError(f"capture: expected a VirtualMachine, got {describe(vm)}")
        self._vm = cast("VirtualMachine", machine)
        self._executable = self._vm.executable
        if self._executable.debug is None and not callable(names) and names is not None:
            raise ValueError("capture: the program has no names of variables; it was built or "
                             "saved without debug information; a function of the value can choose")
        self._wanted = self._filter(names)
        self._left = max_bytes
        self._nan_stop = nan_stop
        self._active = self._hook  # the VM finds it by identity
        self._values: dict[str, list[Computed]] = {}
        self._before = threading.local()
        """Of the call that a thread is in: what is not finite in its inputs, and a copy of the one
        that it overwrites."""
        self.dropped = 0
        """Values that did not fit into `max_bytes`."""

    def _filter(self, names: Names) -> Callable[[Computed], object]:
        if callable(names):
            return names
        if names is None:
            return lambda item: False
        patterns = [names] if isinstance(names, str) else list(names)
        debug = self._executable.debug
        known = () if debug is None else debug.variables
        for pattern in patterns:
            if not isinstance(pattern, str):
                raise TypeError(f"capture: expected names, got {describe(pattern)}")
            if not any(fnmatchcase(name, pattern) for name in known):
                raise ValueError(f"capture: no variable of the program is {readable(pattern)!r}"
                                 f"{did_you_mean(pattern, known)}")
        chosen = {name for name in known if any(fnmatchcase(name, p) for p in patterns)}
        return lambda item: item.name in chosen

    # The hook

    def __enter__(self) -> Capture:
        self._vm._add_hook(self._active)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._vm._remove_hook(self._active)

    def _hook(
        self, pc: int, before: bool, func: Any, name: str, ret: Any, args: tuple[Any, ...]
    ) -> bool:
        if pc < 0:
            if pc == RUN and before and self._nan_stop:
                self._check_arguments(name, args)
            return False
        if pc >= len(self._executable):
            return False
        if before:
            if self._nan_stop:
                self._remember_inputs(pc, args, name)
            return False
        value = self._result(pc, ret, args, name)
        if value is None:
            return False
        if self._nan_stop:
            self._check(pc, name, value, args)
        debug = self._executable.debug
        variable = None if debug is None else debug.variable(pc)
        item = Computed(variable or f"pc {pc}", value, 0, name, pc)
        if self._wanted(item):
            self._keep(item)
        return False

    def _result(self, pc: int, ret: Any, args: tuple[Any, ...], name: str) -> Any:
        """What the call at `pc` has computed; None if it is nothing, or memory for something."""
        if name in ("vm.builtin.alloc_tensor", "vm.builtin.alloc_storage", "vm.builtin.null_value"):
            return None
        if ret is not None:
            return ret
        register = written_register(self._executable, self._executable.instruction(pc))
        return args[-1] if register is not None and args else None

    def _keep(self, item: Computed) -> None:
        size = _bytes_of(item.value)
        if size > self._left:
            self.dropped += 1
            return
        self._left -= size
        known = self._values.setdefault(item.name, [])
        known.append(item._replace(value=copied(item.value), time=len(known)))

    # Values that are not finite

    def _check_arguments(self, function: str, args: tuple[Any, ...]) -> None:
        info = self._executable.function(function)
        names = info.param_names or [f"arg{i}" for i in range(len(args))]
        for param, value in zip(names, args, strict=False):
            found = _not_finite(value)
            if found:
                raise NotFiniteError(f"{readable(function)}: the argument {readable(param)} has "
                                     f"{found}: {value_line(value)}", readable(param))

    def _remember_inputs(self, pc: int, args: tuple[Any, ...], name: str) -> None:
        inputs = args
        if args and not name.startswith(_OWN):
            instruction = self._executable.instruction(pc)
            written = written_register(self._executable, instruction)
            words = [arg.word for arg in instruction.args]
            # A result is written into an argument, which holds anything before.
            if written is not None and words.count(words[-1]) == 1 and len(words) == len(args):
                inputs = args[:-1] if written == instruction.args[-1].value else args
        self._before.flags = _flags(inputs)
        overwritten = args[-1] if inputs is args and args else None
        self._before.kept = overwritten.copy() if isinstance(overwritten, np.ndarray) else None

    def _check(self, pc: int, name: str, value: Any, args: tuple[Any, ...]) -> None:
        nan_in, inf_in = getattr(self._before, "flags", (False, False))
        nan, inf = _flags((value,))
        if (nan and not nan_in) or (inf and not (inf_in or nan_in)):
            debug = self._executable.debug
            variable = None if debug is None else debug.variable(pc)
            place = "" if debug is None else place_text(debug.location(pc))
            kept = getattr(self._before, "kept", None)
            given = [kept if arg is value and kept is not None else arg for arg in args]
            given = [arg for arg in given if arg is not value]
            inputs = "".join(f"\n  input {i}: {value_line(arg)}" for i, arg in enumerate(given[:8]))
            what = f" computes {readable(variable)}" if variable else ""
            raise NotFiniteError(
                f"{readable(name)}{what}, with {_not_finite(value)}: {value_line(value)}"
                f"{f' ({place})' if place else ''}{inputs}", variable, copied(tuple(given)),
            )  # fmt: skip

    # What was captured

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            raise KeyError(f"{name}: not captured; there are: {', '.join(self._values) or 'none'}")
        return self._values[name][-1].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def times(self, name: str) -> list[Any]:
        """All values of a variable, in order: several runs, or recursion, compute it again."""
        self[name]
        return [item.value for item in self._values[name]]

    @property
    def items_in_order(self) -> list[Computed]:
        """The values with where each comes from, grouped by name."""
        return [item for items in self._values.values() for item in items]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the arrays to an ``.npz``: ``name``, then ``name#2``, ``name#3`` for later values,
        and ``name.0`` for an element of a tuple.

        Raises:
            RelaxVMError: nothing was captured.
        """
        if not self._values:
            raise RelaxVMError("capture: nothing was captured")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as file:
            for item in self.items_in_order:
                name = item.name if item.time == 0 else f"{item.name}#{item.time + 1}"
                for key, array in _arrays(name, item.value):
                    with file.open(f"{key.replace('/', '_')}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, array, allow_pickle=False)

    def __repr__(self) -> str:
        lines = [f"{readable(str(item), 40)}  {value_line(item.value)}"
                 for item in self.items_in_order[:50]]  # fmt: skip
        if self.dropped:
            lines.append(f"({self.dropped} values did not fit)")
        return "\n".join(lines) or "<Capture of nothing>"


def capture(
    vm: Any, names: Names = None, *, max_bytes: int = _DEFAULT_BYTES, nan_stop: bool = False
) -> Capture:
    """Keep values that a program computes on the way, or stop where one is not finite::

        with relaxvm.capture(vm, "conv*") as c:
            vm.main(x)
        c["conv1"]

        with relaxvm.capture(vm, nan_stop=True):
            vm.main(x)      # NotFiniteError names the first operation that makes a NaN or Inf

    Args:
        vm: the VM to observe, on all threads; or a `relaxvm.contrib.tvm.VirtualMachine`.
        names: of variables, with ``*`` and ``?``; or a function that is asked for each
            `relaxvm.observe.computed.Computed` whether to keep it; None for nothing.
        max_bytes: of the arrays that are kept; further values are counted in ``dropped``.
        nan_stop: raise `NotFiniteError` at the first operation whose inputs are finite, and whose
            result has a NaN or an infinity: one that passes on what it was given is not it.

    Raises:
        TypeError: `vm` or `names` is none.
        ValueError: no variable has one of the names.
    """
    return Capture(vm, names, max_bytes, nan_stop)


def _arrays(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, tuple) and not isinstance(value, Shape):
        for i, item in enumerate(value):
            yield from _arrays(f"{name}.{i}", item)
    elif isinstance(value, (np.ndarray, Shape, bool, int, float)):
        array = np.asarray(value)
        # numpy's format has no bfloat16 and float8: as integers, as `relaxvm run --output` does.
        if array.dtype.type.__module__ != "numpy":
            yield f"{name}@{array.dtype.name}", array.view(f"u{array.dtype.itemsize}")
        else:
            yield name, array


def _bytes_of(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, tuple):
        return sum(map(_bytes_of, value))
    return 0


def _flags(values: Iterable[Any]) -> tuple[bool, bool]:
    """Whether there is a NaN, and an infinity, among values and elements of tuples."""
    nan = inf = False
    for value in values:
        if isinstance(value, tuple) and not isinstance(value, Shape):
            more = _flags(value)
            nan, inf = nan or more[0], inf or more[1]
        elif _is_floating(value):
            nan = nan or bool(np.isnan(value).any())
            inf = inf or bool(np.isinf(value).any())
    return nan, inf


def _is_floating(value: Any) -> bool:
    if isinstance(value, float):
        return True
    return isinstance(value, np.ndarray) and (
        value.dtype.kind in "fc" or value.dtype.type.__module__ == "ml_dtypes")


def _not_finite(value: Any) -> str:
    """What is not finite in a value, for people; empty if nothing is."""
    if isinstance(value, tuple) and not isinstance(value, Shape):
        return next((text for text in map(_not_finite, value) if text), "")
    if not _is_floating(value):
        return ""
    bad = np.isnan(value), np.isinf(value)
    parts = [f"{int(np.count_nonzero(flags))} {name}" for flags, name in zip(bad, ("NaN", "Inf"),
             strict=True) if np.any(flags)]  # fmt: skip
    if not parts:
        return ""
    at = np.argwhere(np.atleast_1d(bad[0] | bad[1]))[0].tolist()
    return f"{' and '.join(parts)}, the first at {at}"
