"""Random Relax programs: the evaluator, every pass, and the VM agree.

``python -m tests.differential --count 10000`` is the same for more programs; a seed that fails here
fails there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxvm import ir, op
from relaxvm.compiler.reduce import shrink
from relaxvm.values import Shape

from . import differential, tir_examples
from .differential import Difference, check_program, difference_of, report
from .relax_evaluator import (
    EvaluationError,
    Evaluator,
    KindError,
    MismatchError,
    RankError,
    UnsoundType,
)
from .relax_generator import Program, generate, packed_functions
from .tir_evaluator import run_prim_func

pytestmark = pytest.mark.filterwarnings("ignore::relaxvm.errors.RelaxVMWarning")

COUNT = 250
CHUNK = 25


@pytest.mark.parametrize("first", range(0, COUNT, CHUNK))
def test_random_programs(first: int) -> None:
    for seed in range(first, first + CHUNK):
        program = generate(seed)
        difference = check_program(program)
        assert difference is None, report(program, difference)


def test_a_seed_gives_one_program() -> None:
    ir.assert_structural_equal(generate(7).module, generate(7).module)


def test_random_programs_use_all_features() -> None:
    """Each of these occurs in several of 150 programs: otherwise it would not be tested."""
    texts = [generate(seed).module.script() for seed in range(150)]
    for part in ("if ", "R.dataflow()", "R.match_cast", "R.call_tir(", "R.call_tir_inplace",
                 "R.call_dps_packed", "R.call_pure_packed", 'R.call_packed("test.log"',
                 "R.shape_of", "R.tensor_to_shape", "        @R.function", "R.Callable", "R.Prim",
                 "recursive", "R.concat", "R.reshape", "R.where", "R.Tuple", "loop(", "tir_vars",
                 "R.split"):  # fmt: skip
        assert sum(part in text for text in texts) >= 3, part


def test_the_log_holds_copies() -> None:
    log: list[Any] = []
    x, y = np.zeros(2, np.int64), np.zeros(2, np.int64)
    packed_functions(log)["test.log"](x, (1, (y,)))
    x[:], y[:] = 1, 1
    assert not log[0][0].any()
    assert not log[0][1][1][0].any()


def test_a_product_with_a_transposed_operand() -> None:
    x = ir.Var("x", ir.TensorType((2, 3), "float32"))
    bb = ir.BlockBuilder()
    with bb.function("main", [x]):
        product = bb.emit(op.matmul(x, bb.emit(op.permute_dims(x))))
        bb.emit_func_output(bb.emit(op.add(product, product)))
    assert difference_of(bb.get(), [[np.arange(6, dtype=np.float32).reshape(2, 3)]]) is None


# The evaluator


def function(params: list[ir.Var], build: object, **options: object) -> ir.IRModule:
    """A module of one function, "main", whose result `build(bb)` gives."""
    bb = ir.BlockBuilder()
    with bb.function("main", params, **options):  # type: ignore[arg-type]
        bb.emit_func_output(build(bb))  # type: ignore[operator]
    return bb.get()


def vector(name: str, dim: object, dtype: str = "float32") -> ir.Var:
    return ir.Var(name, ir.TensorType([dim], dtype))


def test_evaluator_binds_and_compares_dimensions() -> None:
    n = ir.Var("n", "int64")
    x, y = vector("x", n), vector("y", n * 2)
    mod = function([x, y], lambda bb: bb.emit(op.concat([x, y])))
    evaluate = Evaluator(mod)
    assert evaluate("main", np.ones(2, "float32"), np.ones(4, "float32")).shape == (6,)
    with pytest.raises(MismatchError, match="a dimension is 5"):
        evaluate("main", np.ones(2, "float32"), np.ones(5, "float32"))
    with pytest.raises(RankError, match="expected rank 1, got 2"):
        evaluate("main", np.ones((2, 2), "float32"), np.ones(4, "float32"))
    with pytest.raises(RankError, match="expected float32, got float64"):
        evaluate("main", np.ones(2), np.ones(4, "float32"))
    with pytest.raises(KindError, match="expected a tensor"):
        evaluate("main", Shape((2,)), np.ones(4, "float32"))


def test_evaluator_detects_a_wrong_type() -> None:
    x = vector("x", 3)
    call = ir.Call(ir.extern("test.flipped"), [x], None, [ir.TensorType((4,), "float32")])
    mod = function([x], lambda bb: bb.emit(call), pure=False)
    with pytest.raises(UnsoundType, match="a dimension is 3, not 4"):
        Evaluator(mod, packed_functions([]))("main", np.ones(3, "float32"))


def test_evaluator_detects_reads_of_killed_values() -> None:
    x = vector("x", 3)

    def body(bb: ir.BlockBuilder) -> ir.Var:
        y = bb.emit(op.add(x, x))
        bb.emit(op.vm.kill_object(y))
        return bb.emit(op.add(y, x))

    with pytest.raises(EvaluationError, match="used after it was killed"):
        Evaluator(function([x], body, pure=False))("main", np.ones(3, "float32"))


def test_tensors_in_one_storage_overwrite_each_other() -> None:
    x = vector("x", 2)

    def body(bb: ir.BlockBuilder) -> ir.Var:
        storage = bb.emit(op.memory.alloc_storage((8,), 0, "global", "float32"))
        first = bb.emit(op.memory.alloc_tensor(storage, 0, (2,), "float32"))
        bb.emit(op.call_packed("test.scale_into", x, 2, first, ty_args=ir.TupleType([])))
        second = bb.emit(op.memory.alloc_tensor(storage, 0, (2,), "float32"))
        bb.emit(op.call_packed("test.scale_into", x, 3, second, ty_args=ir.TupleType([])))
        return bb.emit(ir.Tuple([first, second]))

    mod = function([x], body, pure=False)
    first, second = Evaluator(mod, packed_functions([]))("main", np.ones(2, "float32"))
    assert second.tolist() == [3, 3]
    assert first.tolist() == [3, 3]  # not 2, the value of a tensor that was not overwritten


def test_prim_funcs_are_run_statement_by_statement() -> None:
    x = np.arange(6, dtype="float32").reshape(2, 3)
    sums = np.full(2, np.nan, "float32")
    run_prim_func(tir_examples.row_sums("float32"), [x, sums])
    assert sums.tolist() == [3, 12]
    more, less = np.empty_like(x), np.empty_like(x)
    run_prim_func(tir_examples.two_results("float32", 2), [x, more, less])
    np.testing.assert_array_equal(more, x + 1)
    np.testing.assert_array_equal(less, x - 1)


# The harness finds bugs and shrinks programs


def test_a_wrong_pass_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    class SwapsSubtractions(ir.ExprMutator):
        def visit_call(self, call: ir.Call) -> ir.Expr:
            if isinstance(call.op, ir.Op) and call.op.name == "relax.subtract":
                return op.subtract(call.args[1], call.args[0])  # type: ignore[no-any-return]
            return super().visit_call(call)

    def wrong() -> object:
        @differential.transform.function_pass(name="Wrong")
        def run(func: ir.Function, mod: ir.IRModule, ctx: object) -> object:
            return SwapsSubtractions().visit(func)

        return run

    monkeypatch.setattr(differential, "OPTIMIZING", (wrong,))
    x, y = vector("x", 3), vector("y", 3)

    def body(bb: ir.BlockBuilder) -> ir.Var:
        total = bb.emit(op.add(x, y))
        unused = bb.emit(op.multiply(total, y))
        bb.emit(op.abs(unused))
        return bb.emit(op.multiply(bb.emit(op.subtract(total, y)), y))

    args = [np.arange(3, dtype="float32"), np.array([1, 5, 2], "float32")]
    program = Program(0, function([x, y], body), [args])
    difference = check_program(program)
    assert difference is not None
    assert difference.stage == "after Wrong"
    text = report(program, difference)
    assert "R.subtract" in text
    assert "R.multiply" not in text
    assert "R.abs" not in text


def test_a_pass_that_changes_its_input_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong() -> object:
        @differential.transform.module_pass(name="Careless")
        def run(mod: ir.IRModule, ctx: object) -> ir.IRModule:
            mod.update_func(mod.get_global_var("main"), mod["main"].with_attr("seen", 1))
            return mod

        return run

    monkeypatch.setattr(differential, "OPTIMIZING", (wrong,))
    x = vector("x", 2)
    mod = function([x], lambda bb: bb.emit(op.add(x, x)))
    found = difference_of(mod, [[np.ones(2, "float32")]])
    said = "the module that was given to the pass has changed"
    assert found == Difference("after Careless", said)


def test_shrinking_keeps_the_property() -> None:
    program = generate(3)
    mod, args = shrink(program.module, program.inputs[0], lambda mod, args: "main" in mod)
    assert len(mod) == 1
    assert len(args) == len(mod["main"].params)
    assert sum(len(block.bindings) for block in mod["main"].body.blocks) <= 1
