"""What the translator does beyond one call for each instruction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ..errors import did_you_mean

__all__ = ["REWRITINGS", "Optimize", "Rewriting", "enabled_rewritings"]


class Rewriting(NamedTuple):
    """Something that the translator does beyond one call for each instruction.

    Attributes:
        name: as ``VirtualMachine(optimize={...})`` takes it.
        meaning: what it does.
    """

    name: str
    meaning: str


REWRITINGS: Final = (
    Rewriting("quicken", "A call of a builtin that has an operation becomes that operation.  One "
              "of `invoke_closure` always does: `call_depth` bounds recursion through closures."),
    Rewriting("ufuncs", "A call of a kernel that is a numpy ufunc becomes `ufunc_1` or `ufunc_2`."),
    Rewriting("kernels", "A call of a kernel that has implementations in C becomes a call of its "
              "reference if it is known that the result is too large for them, or of a data type "
              "that they do not write: `alloc_tensor` of a constant shape makes it in the "
              "instructions before, which no jump leads into."),
    Rewriting("read_if", "`read_if_cond` and an `if` on its result become `read_if`."),
    Rewriting("if_tag", "`tag_is` and an `if` on its result become `if_tag`."),
    Rewriting("tail_calls", "A call of another function or of a closure, before a `ret` of its "
              "result, becomes a jump that takes over the frame: such calls run in constant "
              "space.  Without it, every call has a frame, which errors and the debugger show."),
    Rewriting("check_match", "`check_tensor_info` and `match_shape` of the same value become "
              "`check_match`."),
    Rewriting("own_heaps", "The shape heap that a function makes when it begins is not checked by "
              "operations on shapes, if nothing else reads or writes its register."),
    Rewriting("alloc_static", "`alloc_storage` and `alloc_tensor` of constant size, before "
              "`null_value` of the storage, become `alloc_static`; not under limits of memory, "
              "fuel or time."),
    Rewriting("kills", "`null_value` of a register that the operation before it has cleared is "
              "dropped, which `alloc_static` does."),
    Rewriting("registers", "Registers of the source whose values are never needed at the same time "
              "share a register of the frame; see below."),
    Rewriting("thread_jumps", "A jump to a `goto` leads to where that leads, and a `goto` to the "
              "next instruction is dropped; not under limits of fuel or time."),
)  # fmt: skip
"""What can be switched off.  No rewriting changes results.  Each works without the others, except
`kills`, which works with `alloc_static`, and `own_heaps`, which works with `quicken`."""

Optimize = bool | Iterable[str]
"""All rewritings, none, or the names of those that are on."""


def enabled_rewritings(optimize: Optimize) -> frozenset[str]:
    """The names of the rewritings that are on.

    Raises:
        TypeError: `optimize` is neither a bool nor a collection of strings.
        ValueError: no rewriting has one of the names.
    """
    known = [rewriting.name for rewriting in REWRITINGS]
    if isinstance(optimize, bool):
        return frozenset(known if optimize else ())
    if isinstance(optimize, (str, bytes, Mapping)) or not isinstance(optimize, Iterable):
        raise TypeError(f"optimize: expected a bool or a set of names of rewritings, "
                        f"got {type(optimize).__name__}")
    names = list(optimize)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"optimize: expected names of rewritings, got {type(name).__name__}")
    unknown = sorted(set(names).difference(known))
    if unknown:
        shown = unknown[0] if len(unknown[0]) <= 40 else unknown[0][:37] + "..."
        raise ValueError(f"optimize: there is no rewriting {shown!r}{did_you_mean(shown, known)}; "
                         f"expected names out of {', '.join(known)}")
    return frozenset(names)
