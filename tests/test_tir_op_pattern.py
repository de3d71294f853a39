"""The kinds of PrimFuncs that fusion distinguishes, which AnnotateTIROpPattern writes down."""

from __future__ import annotations

import pytest

from relaxvm.tir.op_pattern import OpPatternKind
from relaxvm.transform import AnnotateTIROpPattern

from .passes import apply, module, unchanged

CASES = {
    "a function of elements": (
        "A: T.Buffer((4, 8)), B: T.Buffer((4, 8))",
        "SS", "B[i, j] = T.exp(A[i, j])", OpPatternKind.kElemWise,
    ),
    "a constant": (
        "B: T.Buffer((4, 8))", "SS", "B[i, j] = T.float32(1)", OpPatternKind.kElemWise,
    ),
    "a row is added: elementwise, since one operand is": (
        "A: T.Buffer((4, 8)), R: T.Buffer((8,)), B: T.Buffer((4, 8))",
        "SS", "B[i, j] = A[i, j] + R[j]", OpPatternKind.kElemWise,
    ),
    "a row is repeated": (
        "R: T.Buffer((8,)), B: T.Buffer((4, 8))", "SS", "B[i, j] = R[j]", OpPatternKind.kBroadcast,
    ),
    "a dimension of 1 is repeated": (
        "A: T.Buffer((1, 8)), B: T.Buffer((4, 8))",
        "SS", "B[i, j] = A[0, j]", OpPatternKind.kBroadcast,
    ),
    "the other order of dimensions": (
        "A: T.Buffer((8, 4)), B: T.Buffer((4, 8))",
        "SS", "B[i, j] = A[j, i]", OpPatternKind.kInjective,
    ),
    "a place that is computed": (
        "A: T.Buffer((32,)), B: T.Buffer((4, 8))",
        "SS", "B[i, j] = A[i * 8 + j]", OpPatternKind.kInjective,
    ),
    "a place that a tensor holds": (
        'A: T.Buffer((8, 8)), N: T.Buffer((4,), "int32"), B: T.Buffer((4, 8))',
        "SS", "B[i, j] = A[N[i], j]", OpPatternKind.kOpaque,
    ),
    "a place of the result that is computed": (
        'A: T.Buffer((4, 8)), N: T.Buffer((4,), "int32"), B: T.Buffer((4, 8))',
        "SS", "B[N[i], j] = A[i, j]", OpPatternKind.kOpaque,
    ),
    "a sum": (
        "A: T.Buffer((4, 8)), B: T.Buffer((4,))",
        "SR", "B[i] = B[i] + A[i, j]", OpPatternKind.kCommReduce,
    ),
    "a sum of products that are used once": (
        "A: T.Buffer((4, 8)), C: T.Buffer((4, 8)), B: T.Buffer((4,))",
        "SR", "B[i] = B[i] + A[i, j] * C[i, j]", OpPatternKind.kCommReduce,
    ),
    "a product of a matrix and a vector: only the vector is used again": (
        "A: T.Buffer((4, 8)), C: T.Buffer((8,)), B: T.Buffer((4,))",
        "SR", "B[i] = B[i] + A[i, j] * C[j]", OpPatternKind.kCommReduce,
    ),
    "a pool": (
        "A: T.Buffer((12,)), B: T.Buffer((4,))",
        "SR", "B[i] = T.max(B[i], A[i + j])", OpPatternKind.kOutEWiseFusable,
    ),
    "two results at one place": (
        "A: T.Buffer((4, 8)), B: T.Buffer((4,)), C: T.Buffer((4,))",
        "SR", "B[i] = B[i] + A[i, j]\n                C[i] = C[i] + A[i, j] * A[i, j]",
        OpPatternKind.kCommReduce,
    ),
    "two results at different places": (
        "A: T.Buffer((4, 4)), B: T.Buffer((4, 8)), C: T.Buffer((8, 4))",
        "SS", "B[i, j] = A[i, i]\n                C[j, i] = A[i, i]", OpPatternKind.kOpaque,
    ),
    "a block that stores nothing": (
        "A: T.Buffer((4, 8))", "SS", "T.evaluate(0)", OpPatternKind.kOpaque,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_kinds(case: str) -> None:
    params, axes, stores, kind = CASES[case]
    mod = apply(AnnotateTIROpPattern(), f"""
        @T.prim_func(private=True)
        def f({params}):
            for a, b in T.grid(4, 8):
                with T.sblock("block"):
                    i, j = T.axis.remap("{axes}", [a, b])
                    {stores.replace("                C", "                    C").strip()}
    """)  # fmt: skip
    assert OpPatternKind(mod["f"].attrs["op_pattern"]) is kind


PRODUCT = """
@T.prim_func(private=True)
def f(A: T.Buffer((4, 8), "float16"), B: T.Buffer((8, 4), "float16"), C: T.Buffer((4, 4))):
    for a, b, c in T.grid(4, 4, 8):
        with T.sblock("product"):
            i, j, k = T.axis.remap("SSR", [a, b, c])
            with T.init():
                C[i, j] = T.float32(0)
            C[i, j] = C[i, j] + T.cast(A[i, k], "float32") * T.cast(B[k, j], "float32")
"""


def kind_of(text: str) -> OpPatternKind:
    return OpPatternKind(AnnotateTIROpPattern()(module(text))["f"].attrs["op_pattern"])


def test_a_product_of_matrices_takes_elementwise_functions() -> None:
    assert kind_of(PRODUCT) is OpPatternKind.kOutEWiseFusable


REDUCTION_THEN = """
@T.prim_func(private=True)
def f(A: T.Buffer((4, 8)), B: T.Buffer((4,))):
    S = T.sblock_alloc_buffer((4,))
    for a, b in T.grid(4, 8):
        with T.sblock("sum"):
            i, k = T.axis.remap("SR", [a, b])
            with T.init():
                S[i] = T.float32(0)
            S[i] = S[i] + A[i, k]
    for a in range(4):
        with T.sblock("{name}"):
            i = T.axis.remap("S", [a])
            {target}[i] = S[i] * T.float32(2)
"""


def test_a_function_of_a_sum_is_the_result() -> None:
    text = REDUCTION_THEN.format(name="scaled", target="B")
    assert kind_of(text) is OpPatternKind.kOutEWiseFusable


def test_a_kind_that_is_given_stays_unless_it_is_0() -> None:
    unchanged(AnnotateTIROpPattern(), """
        @T.prim_func(private=True)
        def f(A: T.Buffer((4, 8)), B: T.Buffer((8, 4))):
            T.func_attr({"op_pattern": 8})
            for a, b in T.grid(8, 4):
                with T.sblock("block"):
                    i, j = T.axis.remap("SS", [a, b])
                    B[i, j] = A[j, i]
    """)  # fmt: skip
    given = PRODUCT.replace("    for", '    T.func_attr({"op_pattern": 0})\n    for', 1)
    assert kind_of(given) is OpPatternKind.kOutEWiseFusable
