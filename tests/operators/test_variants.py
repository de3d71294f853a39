"""Types of calls of which less, more or something else is known are those of apache-tvm.

Of a call that TVM refuses since it knows too little of its operands, relaxvm has a type, and checks
the operands when the program runs.  A call whose operands have other ranks or data types may be
refused by relaxvm, and TVM have a type for it: these are mistakes that TVM's lowering finds.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest

from .table import OPERATORS, pairs
from .test_tvm import SAME, Script, is_different, read_type
from .variants import DIMENSIONS, Variant, names_of, variants

tvm = pytest.importorskip("tvm")

LITTLE_KNOWN = ("rank", "unknown", "untyped")
"""Kinds of variants in which TVM may want to know more."""

WRONG = ("more", "less", "int64", "bool", "float64")
"""Kinds of variants that relaxvm may refuse."""

CRASHES = r"nn\.pixel_shuffle\(.* symbolic|nn\.attention(_bias)?\(.* (rank|unknown)( [a-d])?"
"""What ends the process in TVM."""

DIFFERENT = {
    "a dimension that is neither 1 nor symbolic is that of the result": (
        r"(add|atan2|divide|floor_divide|floor_mod|log_add_exp|maximum|minimum|mod|multiply|power|"
        r"subtract|bitwise_\w+|left_shift|right_shift|equal|greater\w*|less\w*|not_equal|"
        r"logical_\w+|where)\(.* more [ab]",
    ),
    "the result is of this data type whatever the operands are": (
        r"(quantize|dequantize|logical_\w+)\(.* untyped.*", r"logical_not\(.* (int64|float64) a",
    ),
    "TVM takes the data type of one operand, where another has none": (
        r"meshgrid\(.* untyped [ab]",
    ),
    "TVM leaves the shape open": (
        r"meshgrid\(.* untyped", r"nn\.batch_norm\(.* more a", r"einsum\(.* unknown.*",
        r"multinomial_from_uniform\(.* (rank|unknown)( [abc])?", r"gather_elements\(.* unknown b",
        r"sum\(f\(n, m\), \[0, -1\], True\) rank",
    ),
    "TVM gives a scalar the shape (1,), and a set of a scalar one element": (
        r"\w+\(i\(n\), m\) less a", r"unique\(.* less a",
    ),
    "TVM gives the rank of the operand, where the result is a vector": (
        r"cumsum\(f\(n, m\)\) (rank|unknown)",
    ),
    "TVM gives a tuple, where there is one result": (
        r"median\(rank\(2\), keepdims=True\) unknown",
    ),
    "relaxvm takes numbers of boxes of any integer type": (
        r"vision\.non_max_suppression\(.* int64 [bc]",
    ),
    "relaxvm converts numbers of any data type, and reads scales of which there may be one each": (
        r"(de)?quantize\(.* (int64|float64|more) [abc]",
    ),
    "TVM wants to know a length that the run knows": (
        r"(scatter_nd|dynamic_strided_slice)\(.* symbolic", r"index_put\(.* less [bc]",
        r"collapse_sum_like\(f\(n, m\), f\(m\)\) more b",
    ),
}  # fmt: skip
"""Patterns of a case and the variant that differ from TVM, by the reason."""

NAMES: dict[str, Any] = {f"s{length}": value for length, value in DIMENSIONS.items()}


def differs(text: str) -> bool:
    return any(re.fullmatch(p, text) for patterns in DIFFERENT.values() for p in patterns)


def read(text: str) -> Any:
    names = {**NAMES, **{f"s{k}": 5003 + 2 * k for k in range(2, 400) if f"s{k}" not in NAMES}}
    return read_type(text, names)


def type_in(library: str, case: str, variant: Variant) -> str | None:
    """The type of a call as a text, None if the call is refused."""
    names = names_of(library, variant)
    try:
        call = eval(case, {}, names)
        if library == "tvm":
            call = tvm.relax.BlockBuilder().normalize(call)
    except (TypeError, ValueError, RuntimeError, IndexError):
        return None
    return str(call.ty)


def problem(case: str, variant: Variant) -> str:
    """What is wrong with the type of a call; nothing if it is that of TVM."""
    text = f"{case} {variant}"
    if re.fullmatch(CRASHES, text):
        return ""
    ours, theirs = type_in("relaxvm", case, variant), type_in("tvm", case, variant)
    if ours is None:
        return f"refused, TVM: {theirs}" if theirs and variant.kind not in WRONG else ""
    if theirs is None:
        return "" if variant.kind in LITTLE_KNOWN or differs(text) else f"TVM refuses it: {ours}"
    return "" if read(ours) == read(theirs) or differs(text) else f"{ours}, TVM: {theirs}"


def cases_of(name: str) -> list[str]:
    return [
        case for case, _ in pairs(OPERATORS[name].types)
        if not is_different(case) and not re.search(r"\bon\(|\bhere\b", case)
    ]  # fmt: skip


@pytest.mark.parametrize("name", [name for name in SAME if cases_of(name)])
def test_types_of_variants_are_those_of_tvm(name: str) -> None:
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases_of(name):
            for variant in variants(case):
                text = problem(case, variant)
                if text:
                    found.append(f"{case} {variant}: {text}")
    assert not found, "\n".join(found)


def test_the_differences_are_of_variants() -> None:
    texts = [f"{case} {v}" for name in SAME for case in cases_of(name) for v in variants(case)]
    assert len(texts) > 16_000
    for pattern in (p for patterns in (*DIFFERENT.values(), (CRASHES,)) for p in patterns):
        assert any(re.fullmatch(pattern, text) for text in texts), pattern


def test_a_script_type_is_read() -> None:
    assert read("T.Tuple(R.Tensor((T.int64(3), s2 * 2)), R.Tensor)") == (
        Script.Tensor((3, 6002)), Script.Tensor(),
    )  # fmt: skip
