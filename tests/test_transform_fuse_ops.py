"""FuseOps: which calls become chains, and that results are equal bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxvm import op
from relaxvm.ir import BlockBuilder, Expr, IRModule, TensorType, Var, const
from relaxvm.kernels.fused import MAX_STEPS
from relaxvm.transform import DeadCodeElimination, FuseOps, LegalizeOps, Sequential

from .passes import apply, module, run, unchanged

ANY_SIZE = FuseOps(min_elements=0)
FUSE = Sequential([LegalizeOps(), ANY_SIZE])


def dataflow(*lines: str, params: str = 'x: R.Tensor(("n", 4), "float32")') -> IRModule:
    """A function of one dataflow block; the last line binds `out`."""
    body = "\n".join(f"        {line}" for line in lines)
    return module(f"""
@R.function
def main({params}):
    with R.dataflow():
{body}
        R.output(out)
    return out
""")


def chains(mod: IRModule) -> list[str]:
    """Return the chains of a module."""
    fused = []
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            callee, packed = binding.value.args[:2]
            if callee.global_symbol == "relaxvm.kernel.fused":
                fused.append(packed.fields[-1].value)
    return fused


def test_a_chain() -> None:
    mod = dataflow("a = R.add(x, x)", "b = R.exp(a)", "out = R.multiply(b, R.const(2.0))")
    assert chains(apply(FUSE, mod)) == ["add($0, $0); exp(%0); multiply(%1, $1) -> %2"]


def test_a_result_that_is_used_twice_within_the_chain() -> None:
    mod = dataflow("a = R.exp(x)", "b = R.abs(a)", "out = R.add(a, b)")
    assert chains(apply(FUSE, mod)) == ["exp($0); abs(%0); add(%0, %1) -> %2"]


def test_a_result_that_is_used_elsewhere_ends_a_chain() -> None:
    mod = dataflow("a = R.exp(x)", "b = R.abs(a)", "s = R.sum(b, axis=1, keepdims=True)",
                   "c = R.add(b, s)", "out = R.abs(c)")  # fmt: skip
    assert chains(apply(FUSE, mod)) == ["exp($0); abs(%0) -> %1", "add($0, $1); abs(%0) -> %1"]


def test_inputs_may_broadcast_results_may_not() -> None:
    params = 'x: R.Tensor(("n", 4), "float32"), y: R.Tensor((4,), "float32")'
    mod = dataflow("a = R.exp(y)", "b = R.add(x, a)", "out = R.abs(b)", params=params)
    assert chains(apply(FUSE, mod)) == ["add($0, $1); abs(%0) -> %1"]


def test_conversions_and_choices() -> None:
    mod = dataflow("a = R.astype(x, 'float64')", "b = R.greater(a, R.const(0.5, 'float64'))",
                   "out = R.where(b, a, R.negative(a))")  # fmt: skip
    assert chains(apply(FUSE, mod)) == [
        "cast($0, float64); greater(%0, $1); negative(%0); where(%1, %0, %2) -> %3"
    ]


def test_outputs_of_the_block_stay() -> None:
    mod = module("""
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        a = R.exp(x)
        b = R.abs(a)
        R.output(a, b)
    return (a, b)
""")
    assert chains(apply(FUSE, mod)) == []


def test_only_dataflow_blocks() -> None:
    mod = LegalizeOps()(module("""
@R.function
def main(x: R.Tensor((4,), "float32")):
    a = R.exp(x)
    b = R.abs(a)
    return b
"""))  # fmt: skip
    assert ANY_SIZE(mod)["main"] is mod["main"]


def test_levels_and_lengths() -> None:
    mod = LegalizeOps()(dataflow("a = R.exp(x)", "out = R.abs(a)"))
    assert chains(FuseOps(0)(mod)) == []
    assert chains(FuseOps(min_length=3)(mod)) == []
    assert chains(FuseOps(2)(mod)) == ["exp($0); abs(%0) -> %1"]


def test_kernels_that_cannot_be_steps_are_left() -> None:
    unchanged(ANY_SIZE, """
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        a = R.call_dps_packed("relaxvm.kernel.nn.softmax", (x, -1),
            out_ty=R.Tensor((4,), "float32"))
        b = R.call_dps_packed("another", (a,), out_ty=R.Tensor((4,), "float32"))
        c = R.call_dps_packed("relaxvm.kernel.exp", (b,), out_ty=R.Tensor((4,), "float32"))
        R.output(c)
    return c
""")  # fmt: skip


def test_reads_of_tensors_written_in_place_do_not_move() -> None:
    unchanged(
        ANY_SIZE,
        """
@T.prim_func(s_tir=True, private=True)
def clear(x: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("x"):
            vi = T.axis.spatial(4, i)
            x[vi] = T.float32(0)

@R.function
def main(x: R.Tensor((4,), "float32")):
    cls = Module
    with R.dataflow():
        a = R.call_dps_packed("another", (x,), out_ty=R.Tensor((4,), "float32"))
        b = R.call_dps_packed("relaxvm.kernel.exp", (a,), out_ty=R.Tensor((4,), "float32"))
        c = R.call_tir_inplace(cls.clear, (a,), inplace_indices=[0],
            out_ty=R.Tensor((4,), "float32"))
        d = R.call_dps_packed("relaxvm.kernel.add", (b, c), out_ty=R.Tensor((4,), "float32"))
        R.output(d)
    return d
""",
    )


def test_small_tensors_are_not_fused() -> None:
    lines = ("a = R.exp(x)", "out = R.abs(a)")
    for shape, count in (("(4, 4)", 0), ("(128, 128)", 1), ('("n", 4)', 1)):
        mod = LegalizeOps()(dataflow(*lines, params=f'x: R.Tensor({shape}, "float32")'))
        assert len(chains(FuseOps()(mod))) == count
        assert len(chains(ANY_SIZE(mod))) == 1


def test_long_chains_are_cut() -> None:
    lines = ["a0 = R.add(x, x)", *[f"a{i} = R.abs(a{i - 1})" for i in range(1, 70)]]
    mod = apply(FUSE, dataflow(*lines, "out = R.exp(a69)"))
    lengths = [text.count(";") + 1 for text in chains(mod)]
    assert sum(lengths) == 71
    assert lengths[1:] == [MAX_STEPS, MAX_STEPS]
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    assert run(mod, x).tobytes() == run(dataflow(*lines, "out = R.exp(a69)"), x).tobytes()


UNARY = (op.abs, op.negative, op.exp, op.sqrt, op.nn.relu, op.sigmoid, op.floor)
BINARY = (op.add, op.subtract, op.multiply, op.maximum, op.divide)


@st.composite
def programs(draw: Any) -> IRModule:
    """Dataflow blocks of elementwise operators on tensors of a few shapes."""
    n = Var("n", "int64")
    params = [Var("x", TensorType((n, 4), "float32")), Var("y", TensorType((4,), "float32")),
              Var("z", TensorType((n, 4), "float32"))]  # fmt: skip
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            values: list[Expr] = [*params, const(0.75, "float32")]
            for _ in range(draw(st.integers(2, 12))):
                if draw(st.booleans()):
                    value = draw(st.sampled_from(UNARY))(draw(st.sampled_from(values[:-1])))
                else:
                    left, right = (draw(st.sampled_from(values)) for _ in range(2))
                    value = draw(st.sampled_from(BINARY))(left, right)
                values.append(builder.emit(value))
            wanted = draw(
                st.lists(st.sampled_from(values[4:]), min_size=1, max_size=3, unique=True)
            )
            outs = [builder.emit_output(value) for value in wanted]
        builder.emit_func_output(outs)
    return DeadCodeElimination()(builder.get())


@given(programs())
def test_results_are_equal_bit_for_bit(mod: IRModule) -> None:
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    y = np.array([0.5, -1, 2, 0], np.float32)
    with np.errstate(all="ignore"):
        expected, got = (run(m, x, y, x[::-1].copy()) for m in (mod, apply(FUSE, mod)))
    for a, b in zip(expected, got, strict=True):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


@pytest.mark.parametrize("size", [1, 5000])
def test_a_chain_runs_on_any_size(size: int) -> None:
    mod = dataflow("a = R.add(x, x)", "b = R.sigmoid(a)", "out = R.multiply(b, x)")
    x = np.linspace(-3, 3, 4 * size, dtype=np.float32).reshape(size, 4)
    assert run(FUSE(mod), x).tobytes() == run(mod, x).tobytes()
