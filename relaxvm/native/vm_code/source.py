"""Native code of a program: the C source of all of its functions."""

from __future__ import annotations

import functools
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ...core._code import Image
from ...core.operations import BY_NAME
from ...executable.shape_codes import MatchShapeCode
from ...versions import get_include
from .code import FunctionCode
from .function import FunctionWriter
from .registers import Signature
from .states import MEMORY, Scalar

__all__ = ["source_of"]

MAX_NUMBERS: Final = 16
"""Of a function, as ``RVM_MAX_NUMBERS`` in the header."""
_RESETS_ITEMS: Final = "vm.builtin.tuple_reset_item"

_COUNTED: Final = """
static inline void rvm_up(const RvmServices *s, RvmRef value) {
    (void)s;
    %s
}
static inline void rvm_down(const RvmServices *s, RvmRef value) {
    %s
}
"""

_HELPERS: Final = """
#define RARE(x) __builtin_expect(!!(x), 0)

static inline RvmRef rvm_ref(const RvmServices *s, RvmRef value) {
    return value != 0 ? value : s->none;
}
static inline RvmRef rvm_new(const RvmServices *s, RvmRef value) {
    if (value != 0) rvm_up(s, value);
    return value;
}
static inline void rvm_clear(const RvmServices *s, RvmRef *cell) {
    const RvmRef old = *cell;
    if (old != 0) {
        *cell = 0;
        rvm_down(s, old);
    }
}
static inline void rvm_store(const RvmServices *s, RvmRef *cell, RvmRef value) {
    const RvmRef old = *cell;
    *cell = value;
    if (old != 0) rvm_down(s, old);
}
static inline RvmRef rvm_bool(const RvmServices *s, int value) {
    return rvm_new(s, value ? s->true_ : s->false_);
}
/* A new reference to a scalar; NULL only without memory. */
static inline RvmRef rvm_box(const RvmServices *s, const RvmScalar *scalar) {
    return scalar->type == RVM_SCALAR_NONE ? rvm_new(s, s->none) : s->from_scalar(scalar);
}
static int rvm_missing(const RvmServices *s, RvmRef *items, const int8_t *made, int64_t count) {
    int missing = 0;
    for (int64_t i = 0; i < count; i++) missing |= made[i] && items[i] == 0;
    if (missing)
        for (int64_t i = 0; i < count; i++) rvm_clear(s, &items[i]);
    return missing;
}
/* A tuple of new references, which are taken over. */
static RvmRef rvm_tuple(const RvmServices *s, RvmRef *items, const int8_t *made, int64_t count) {
    if (rvm_missing(s, items, made, count)) return 0;
    RvmRef tuple = s->tuple_of(items, count);
    for (int64_t i = 0; i < count; i++) rvm_clear(s, &items[i]);
    return tuple;
}
static RvmRef rvm_closure(RvmActivation *a, int64_t function, RvmRef *items, const int8_t *made,
                          int64_t count) {
    const RvmServices *s = a->services;
    if (rvm_missing(s, items, made, count)) return 0;
    RvmRef closure = s->closure_of(a, function, items, count);
    for (int64_t i = 0; i < count; i++) rvm_clear(s, &items[i]);
    return closure;
}
/* Complete the frame of a function that was called and has not returned; it knows its function. */
static inline void rvm_header(RvmRef *fp, const int64_t *ip, RvmRef *caller, int64_t dst) {
    fp[-4] = (RvmRef)ip;
    fp[-3] = (RvmRef)caller;
    fp[-1] = (RvmRef)dst;
}
static inline int rvm_apart(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes) {
    return (uintptr_t)a + a_bytes <= (uintptr_t)b || (uintptr_t)b + b_bytes <= (uintptr_t)a;
}
/* All that is computed for memory is computed here, before the floating-point status is read. */
#define KEEP(memory) __asm__ volatile("" : : "r"(memory) : "memory")
static inline int64_t rvm_floordiv(int64_t a, int64_t b) {
    const int64_t quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t rvm_floormod(int64_t a, int64_t b) {
    const int64_t rest = b == -1 ? 0 : a % b;
    return rest + (rest != 0 && (rest < 0) != (b < 0) ? b : 0);
}
"""


def source_of(image: Image, codes: Mapping[int, FunctionCode]) -> str:
    """The C source of functions of a translated program.

    Args:
        image: made with `enter` operations.
        codes: the functions by their index in the function table.
    """
    table = image.executable.functions
    signatures = {index: Signature(code, _numbers(code)) for index, code in codes.items()}
    groups = all(info.name != _RESETS_ITEMS for info in table)

    writers = [
        FunctionWriter(code, signatures, image.function_at, groups=groups)
        for code in codes.values()
    ]
    _find_results(writers)
    declared = [
        f"static int f{w.code.index}(RvmActivation *, RvmRef *, const int64_t *, int64_t"
        f"{', int64_t' * len(w.signature.numbers)});\n"
        f"static int rvm_tail_{w.code.index}(RvmActivation *, RvmRef *, int64_t);"
        for w in writers
    ]
    head = [_header(), f"enum {{ RVM_OP_RET = {BY_NAME['ret'].code} }};", _counting(), _HELPERS]
    return "\n".join([*head, *declared, "", *(writer.write() for writer in writers)])


def _find_results(writers: Sequence[FunctionWriter]) -> None:
    """Find the places of registers, and the functions of which all results are ints.

    That is assumed of all functions at first.  Where it is wrong the callers are looked at again.
    """
    changed = True
    while changed:
        changed = False
        for writer in writers:
            writer.states()
            if writer.signature.result is Scalar.INT and MEMORY in writer.results:
                writer.signature.result = MEMORY
                changed = True
            if writer.signature.result is MEMORY:  # what it calls in its last place returns for it
                for index in writer.successors:
                    signature = writer.signatures[index]
                    changed = changed or signature.result is not MEMORY
                    signature.result = MEMORY


def _numbers(code: FunctionCode) -> tuple[int, ...]:
    """The parameters that the function compares or stores as ints first of all."""
    found = set()
    for op in code.ops:
        if op.name == "match_prim" and 0 <= op["x"] < code.num_params:
            if op["code"] != MatchShapeCode.NO_OP:
                found.add(op["x"])
        elif op.name not in _AT_THE_BEGINNING:
            break
    return tuple(sorted(found))[:MAX_NUMBERS]


_AT_THE_BEGINNING: Final = frozenset(
    ("enter", "fuel", "alloc_heap", "check_prim", "match_prim", "check_tensor", "check_match",
     "match_shape", "check_shape", "check_tuple", "check_func")
)  # fmt: skip
"""Operations that write no register but that of a shape heap."""


@functools.cache
def _header() -> str:
    path = Path(get_include()) / "relaxvm" / "compiled.h"
    return path.read_text(encoding="utf-8")


def _counting() -> str:
    """How references are counted, as this version of Python has it."""
    simple = not (hasattr(sys, "gettotalrefcount") or sysconfig.get_config_var("Py_GIL_DISABLED"))
    if simple and sys.version_info < (3, 12):
        up = "++*(int64_t *)value;"
        down = "if (--*(int64_t *)value == 0) s->dealloc(value);"
    elif simple and sys.version_info < (3, 14):  # some objects live forever
        up = "if (*(int32_t *)value >= 0) ++*(int64_t *)value;"
        down = "if (*(int32_t *)value >= 0 && --*(int64_t *)value == 0) s->dealloc(value);"
        if sys.byteorder != "little":
            up, down = "s->incref(value);", "s->decref(value);"
    else:
        up, down = "s->incref(value);", "s->decref(value);"
    return _COUNTED % (up, down)
