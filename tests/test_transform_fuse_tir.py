"""FuseOps and FuseTIR over calls of PrimFuncs: which are put together, and what they become."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import te
from relaxvm.ir import (
    BlockBuilder,
    Call,
    IRModule,
    ShapeType,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    const,
)
from relaxvm.te import topi
from relaxvm.tir import PrimFunc
from relaxvm.transform import AnnotateTIROpPattern, FuseOps, FuseTIR, PassContext, Sequential

from .passes import apply, check, module, run, unchanged

GROUP = Sequential([AnnotateTIROpPattern(), FuseOps()])
FUSE = Sequential([AnnotateTIROpPattern(), FuseOps(), FuseTIR()])
ONE = const(1.0, "float32")


def program(build: Any, *params: Var) -> IRModule:
    """A function "main" of one dataflow block; `build` emits it and returns its result."""
    builder = BlockBuilder()
    with builder.function("main", list(params)):
        with builder.dataflow():
            out = builder.emit_output(build(builder, *params))
        builder.emit_func_output(out)
    return builder.get()


def tensor(name: str, *shape: Any, dtype: str = "float32") -> Var:
    return Var(name, TensorType(shape, dtype))


def names(mod: IRModule) -> set[str]:
    return {var.name_hint for var in mod.functions}


def functions(*texts: str) -> str:
    return "\n\n".join(dedent(text).strip("\n") for text in texts)


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def same_results(mod: IRModule, *args: Any) -> IRModule:
    """Check that fusion changes no result, and return the fused program."""
    fused = apply(FUSE, mod)
    grouped = apply(GROUP, mod)
    expected = run(mod, *args)
    np.testing.assert_array_equal(run(grouped, *args), expected)
    np.testing.assert_array_equal(run(fused, *args), expected)
    return fused


def test_a_chain_of_elementwise_functions_becomes_one() -> None:
    def build(b: BlockBuilder, x: Var) -> Any:
        y = b.emit_te(topi.add, x, ONE)
        return b.call_te(topi.tanh, b.emit_te(topi.exp, y))

    fused = same_results(program(build, tensor("x", 3, 5)), numbers(3, 5))
    assert names(fused) == {"main", "fused_add_exp_tanh"}
    func = fused["fused_add_exp_tanh"]
    assert isinstance(func, PrimFunc)
    assert [p.name for p in func.params] == ["x", "param_0", "compute_intermediate_1"]
    assert [b.name for b in func.body.block.alloc_buffers] == [
        "T_add_intermediate", "compute_intermediate",
    ]  # fmt: skip


def test_equal_groups_are_one_function() -> None:
    def build(b: BlockBuilder, x: Var, w: Var) -> Any:
        for _ in range(3):
            x = b.emit_te(topi.exp, b.emit_te(topi.matmul, x, w))
        return b.call_te(topi.identity, x)

    fused = same_results(program(build, tensor("x", 4, 4), tensor("w", 4, 4)),
                         numbers(4, 4) / 8, numbers(4, 4, seed=1) / 8)  # fmt: skip
    assert names(fused) == {"main", "fused_matmul_exp", "fused_matmul_exp_identity"}


def test_a_product_takes_the_whole_diamond_that_follows() -> None:
    def build(b: BlockBuilder, x: Var, w: Var) -> Any:
        product = b.emit_te(topi.matmul, x, w)
        left, right = b.emit_te(topi.exp, product), b.emit_te(topi.tanh, product)
        return b.call_te(topi.add, left, right)

    fused = same_results(program(build, tensor("x", 4, 6), tensor("w", 6, 5)),
                         numbers(4, 6), numbers(6, 5))  # fmt: skip
    assert names(fused) == {"main", "fused_matmul_exp_tanh_add"}


def test_two_products_stay_apart() -> None:
    def build(b: BlockBuilder, x: Var, w: Var) -> Any:
        first = b.emit_te(topi.matmul, x, w)
        second = b.emit_te(topi.matmul, w, x)
        return b.call_te(topi.add, first, second)

    fused = same_results(program(build, tensor("x", 4, 4), tensor("w", 4, 4)),
                         numbers(4, 4), numbers(4, 4, seed=1))  # fmt: skip
    assert names(fused) == {"main", "matmul", "fused_matmul_add"}


def test_a_result_that_is_returned_as_well_stays_apart() -> None:
    builder = BlockBuilder()
    x = tensor("x", 4)
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(builder.call_te(topi.exp, x))
            z = builder.emit_output(builder.call_te(topi.tanh, y))
        builder.emit_func_output(Tuple([y, z]))
    assert names(apply(FUSE, builder.get())) == {"main", "exp", "tanh"}


def test_a_reduction_takes_what_comes_before_and_not_what_follows() -> None:
    def build(b: BlockBuilder, x: Var) -> Any:
        total = b.emit_te(topi.sum, b.emit_te(topi.exp, x), axis=1)
        return b.call_te(topi.tanh, total)

    fused = same_results(program(build, tensor("x", 4, 6)), numbers(4, 6))
    assert names(fused) == {"main", "fused_exp_sum", "tanh"}


def test_a_softmax_takes_what_follows() -> None:
    def build(b: BlockBuilder, x: Var) -> Any:
        return b.call_te(topi.exp, b.emit_te(topi.nn.softmax, x))

    fused = same_results(program(build, tensor("x", 4, 6)), numbers(4, 6))
    assert names(fused) == {"main", "fused_softmax_exp"}
    assert len(fused["fused_softmax_exp"].body.block.alloc_buffers) == 4


def test_one_tensor_for_two_parameters() -> None:
    def build(b: BlockBuilder, x: Var) -> Any:
        return b.call_te(topi.exp, b.emit_te(topi.multiply, x, x))

    fused = same_results(program(build, tensor("x", 3)), numbers(3))
    func = fused["fused_multiply_exp"]
    assert [p.name for p in func.params] == ["x", "compute_intermediate"]
    first = func.body.block.body.seq[0].body.block
    assert len(first.reads) == 1


def test_symbolic_dimensions() -> None:
    n = Var("n", "int64")

    def build(b: BlockBuilder, x: Var) -> Any:
        return b.call_te(topi.exp, b.emit_te(topi.add, x, ONE))

    fused = same_results(program(build, tensor("x", n, 3)), numbers(5, 3))
    assert len(fused["fused_add_exp"].params) == 3


def test_a_dimension_that_no_tensor_has_becomes_a_scalar_parameter() -> None:
    n = Var("n", "int64")

    def build(b: BlockBuilder, s: Var) -> Any:
        return b.call_te(topi.exp, b.emit_te(topi.full, [n, n], "float32", 2.0))

    mod = program(build, Var("s", ShapeType([n])))
    fused = apply(FUSE, mod)
    assert [p.name for p in fused["fused_full_exp"].params] == ["n", "compute_intermediate"]
    expected = np.exp(np.full((2, 2), 2.0, "float32"))
    np.testing.assert_allclose(run(fused, relaxvm.Shape([2])), expected, rtol=1e-6)


def test_the_elements_of_a_tuple_that_are_used_are_parameters() -> None:
    fields = [TensorType([4], "float32")] * 3

    def build(b: BlockBuilder, t: Var) -> Any:
        y = b.emit_te(topi.add, b.emit(TupleGetItem(t, 2)), b.emit(TupleGetItem(t, 0)))
        return b.call_te(topi.exp, y)

    mod = program(build, Var("t", TupleType(fields)))
    fused = apply(FUSE, mod)
    assert [p.name for p in fused["fused_add_exp"].params] == ["t_2", "t_0", "compute_intermediate"]
    x = [numbers(4, seed=i) for i in range(3)]
    np.testing.assert_allclose(run(fused, tuple(x)), np.exp(x[2] + x[0]), rtol=1e-6)


def test_the_elements_of_a_tuple_of_weights_are_taken_outside() -> None:
    mod = """
    @T.prim_func(private=True)
    def exp(A: T.Buffer((4,)), B: T.Buffer((4,))):
        T.func_attr({"op_pattern": 0})
        for i in range(4):
            with T.sblock("exp"):
                vi = T.axis.remap("S", [i])
                B[vi] = T.exp(A[vi])

    @R.function
    def main(x: R.Tensor((4,)), packed: R.Tuple(R.Tensor((4,)))):
        R.func_attr({"num_input": 1})
        cls = Module
        with R.dataflow():
            w = packed[0]
            y = R.call_tir(cls.exp, (w,), out_ty=R.Tensor((4,), "float32"))
            R.output(y)
        return y
    """
    unchanged(FuseOps(), mod)


LOOP = """
@T.prim_func(private=True)
def {name}({params}):
    T.func_attr({{"op_pattern": 0}})
    for i in range(4):
        with T.sblock("{name}"):
            vi = T.axis.remap("S", [i])
            {store}
"""
EXP = LOOP.format(name="exp", params="A: T.Buffer((4,)), B: T.Buffer((4,))",
                  store="B[vi] = T.exp(A[vi])")  # fmt: skip
DOUBLE = LOOP.format(name="double", params="A: T.Buffer((4,))",
                     store="A[vi] = A[vi] * T.float32(2)")  # fmt: skip
TENSOR = 'R.Tensor((4,), "float32")'


def test_calls_in_place_write_to_the_tensor_between() -> None:
    mod = module(functions(EXP, DOUBLE, f"""
    @R.function
    def main(x: {TENSOR}):
        cls = Module
        with R.dataflow():
            y = R.call_tir(cls.exp, (x,), out_ty={TENSOR})
            z = R.call_tir_inplace(cls.double, (y,), inplace_indices=[0], out_ty={TENSOR})
            R.output(z)
        return z
    """))  # fmt: skip
    fused = apply(Sequential([FuseOps(), FuseTIR()]), mod)
    func = fused["fused_exp_double"]
    assert [p.name for p in func.params] == ["x", "B_intermediate"]
    x = numbers(4)
    np.testing.assert_allclose(run(fused, x), np.exp(x) * 2, rtol=1e-6)


def test_a_group_that_writes_to_its_input_works_in_place() -> None:
    mod = module(functions(DOUBLE, f"""
    @R.function
    def main(x: {TENSOR}):
        cls = Module
        with R.dataflow():
            y = R.call_tir_inplace(cls.double, (x,), inplace_indices=[0], out_ty={TENSOR})
            z = R.call_tir_inplace(cls.double, (y,), inplace_indices=[0], out_ty={TENSOR})
            R.output(z)
        return z
    """))  # fmt: skip
    fused = apply(Sequential([FuseOps(), FuseTIR()]), mod)
    assert [p.name for p in fused["fused_double_double"].params] == ["x"]
    call = fused["main"].body.blocks[0].bindings[0].value
    assert isinstance(call, Call)
    assert call.attrs["inplace_indices"] == (0,)
    x = numbers(4)
    expected = x * 4
    np.testing.assert_array_equal(run(fused, x), expected)
    np.testing.assert_array_equal(x, expected)


def test_what_is_computed_for_nothing_is_dropped() -> None:
    check(FuseOps(), EXP + f"""
@R.function
def main(x: {TENSOR}):
    cls = Module
    with R.dataflow():
        a = R.call_tir(cls.exp, (x,), out_ty={TENSOR})
        b = R.call_tir(cls.exp, (a,), out_ty={TENSOR})
        c = R.call_tir(cls.exp, (x,), out_ty={TENSOR})
        R.output(c)
    return c
""", EXP + f"""
@R.function
def main(x: {TENSOR}):
    cls = Module
    with R.dataflow():
        c = R.call_tir(cls.exp, (x,), out_ty={TENSOR})
        R.output(c)
    return c
""")  # fmt: skip


def long_chain(count: int) -> IRModule:
    def build(b: BlockBuilder, x: Var) -> Any:
        for _ in range(count - 1):
            x = b.emit_te(topi.sin, x)
        return b.call_te(topi.sin, x)

    return program(build, tensor("x", 2))


def calls(mod: IRModule) -> list[int]:
    """The number of calls in each group."""
    return [
        len(func.body.blocks[0].bindings)
        for func in mod.functions.values()
        if "Primitive" in func.attrs
    ]


def test_the_number_of_calls_in_a_group_is_bounded() -> None:
    assert calls(GROUP(long_chain(12))) == [12]
    with PassContext(config={"relax.FuseOps.max_depth": 5}):
        grouped = GROUP(long_chain(12))
    assert max(calls(grouped)) == 5
    assert max(calls(GROUP(long_chain(600)))) == 256


def test_level_0_does_not_fuse() -> None:
    mod = AnnotateTIROpPattern()(long_chain(3))
    assert FuseOps(0)(mod) is mod
    with PassContext(opt_level=0):
        assert FuseOps()(mod) is mod


def test_functions_that_are_groups_already_stay() -> None:
    mod = GROUP(long_chain(3))
    assert FuseOps()(mod) is mod


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        (f"y = R.match_cast(x, {TENSOR})", "the match_cast that defines 'y' is not a call"),
        ("y = R.exp(x)", "got a call of relax.exp"),
        (f'y = R.call_dps_packed("f", (x,), out_ty={TENSOR})', "got a call of relax.call_dps_"),
        ("y = R.const(1.0)", "got R.const"),
    ],
)
def test_what_a_group_may_not_contain(binding: str, message: str) -> None:
    mod = module(f"""
    @R.function(private=True)
    def group(x: {TENSOR}):
        R.func_attr({{"Primitive": True}})
        with R.dataflow():
            {binding}
            R.output(y)
        return y

    @R.function
    def main(x: {TENSOR}):
        cls = Module
        return cls.group(x)
    """)
    with pytest.raises(ValueError, match=f"FuseTIR: function 'group' has .* {message}"):
        FuseTIR()(mod)


def test_a_group_needs_shapes() -> None:
    mod = module(functions(EXP, """
    @R.function(private=True)
    def group(x: R.Tensor(ndim=1, dtype="float32")):
        R.func_attr({"Primitive": True})
        return x

    @R.function
    def main(x: R.Tensor(ndim=1, dtype="float32")):
        cls = Module
        return cls.group(x)
    """))  # fmt: skip
    with pytest.raises(ValueError, match=r"'x' is of type .*, expected a tensor of known shape"):
        FuseTIR()(mod)


def test_variables_of_a_function_that_is_called_twice_are_apart() -> None:
    def build(b: BlockBuilder, x: Var) -> Any:
        return b.call_te(topi.exp, b.emit_te(topi.exp, x))

    fused = same_results(program(build, tensor("x", 3)), numbers(3))
    first, second = fused["fused_exp_exp"].body.block.body.seq
    assert first.loop_var is not second.loop_var
    assert first.body.block.iter_vars[0].var is not second.body.block.iter_vars[0].var


def test_results_do_not_depend_on_fusion() -> None:
    """Random programs of elementwise functions, transposes, sums and products."""
    rng = np.random.default_rng(7)
    for seed in range(5):
        def build(b: BlockBuilder, x: Var, w: Var) -> Any:
            made: list[Any] = [x, w]
            for _ in range(9):
                a, c = (made[int(rng.integers(len(made)))] for _ in range(2))
                kind = int(rng.integers(5))
                if kind == 0:
                    new = b.emit_te(topi.add, a, c)
                elif kind == 1:
                    new = b.emit_te(topi.tanh, a)
                elif kind == 2:
                    new = b.emit_te(topi.transpose, a)
                elif kind == 3:
                    new = b.emit_te(topi.matmul, a, c)
                else:
                    total = b.emit_te(topi.sum, a, axis=0, keepdims=True)
                    new = b.emit_te(topi.add, total, c)
                made.append(new)
            result = made[2]
            for other in made[3:]:
                result = b.emit_te(topi.maximum, result, other)
            return b.call_te(topi.tanh, result)

        args = numbers(4, 4, seed=seed) / 4, numbers(4, 4, seed=seed + 100) / 4
        same_results(program(build, tensor("x", 4, 4), tensor("w", 4, 4)), *args)


def test_te_functions_of_ones_own() -> None:
    def scaled(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda i: x[i] * 3.0, "scaled")

    def build(b: BlockBuilder, x: Var) -> Any:
        return b.call_te(scaled, b.emit_te(scaled, x))

    fused = same_results(program(build, tensor("x", 3)), numbers(3))
    assert names(fused) == {"main", "fused_scaled_scaled"}
