"""The infrastructure of passes: decorators, contexts, instruments, dumps, errors."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest

import relaxvm
from relaxvm import transform
from relaxvm.analysis import IllFormedError
from relaxvm.errors import InternalError
from relaxvm.ir import (
    Call,
    DataflowBlock,
    DataflowVar,
    ExprMutator,
    Function,
    IRModule,
    MatchCast,
    SeqExpr,
    TensorType,
    Var,
    VarBinding,
    assert_structural_equal,
)
from relaxvm.script import from_source
from relaxvm.transform import PassContext, Sequential
from relaxvm.transform.config import WITHOUT_EFFECT
from relaxvm.transform.pipelines import get_pipeline, register_pipeline

from .passes import module

PROGRAM = """
@R.function
def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    with R.dataflow():
        a = R.exp(x)
        b = R.abs(a)
        R.output(b)
    return b
"""


@transform.module_pass(name="Nothing")
def nothing(mod: IRModule, ctx: PassContext) -> IRModule:
    return mod


@transform.module_pass(opt_level=3, name="Eager")
def eager(mod: IRModule, ctx: PassContext) -> IRModule:
    return mod.with_attr("eager", True)


# Decorators


def test_a_decorated_function_is_a_pass() -> None:
    assert (nothing.name, nothing.opt_level, repr(nothing)) == ("Nothing", 0, "<pass Nothing>")
    assert nothing.info is nothing
    mod = module(PROGRAM)
    assert nothing(mod) is mod


def test_a_decorator_without_arguments_takes_the_name_of_the_function() -> None:
    @transform.function_pass
    def renamed(func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return func.with_attr("seen", ctx.opt_level)

    assert renamed.name == "renamed"
    with PassContext(opt_level=1):
        assert renamed(module(PROGRAM))["main"].attrs["seen"] == 1


def test_a_decorated_class_makes_passes() -> None:
    @transform.function_pass(opt_level=1)
    class SetAttr:
        """Sets an attribute."""

        def __init__(self, value: int) -> None:
            self.value = value

        def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
            return func.with_attr("value", self.value)

    made = SetAttr(7)
    assert (made.name, made.opt_level) == ("SetAttr", 1)
    assert SetAttr.__doc__ == "Sets an attribute."
    assert made(module(PROGRAM))["main"].attrs["value"] == 7


def test_a_function_pass_sees_relax_functions_only() -> None:
    seen = []

    @transform.function_pass(name="See")
    def see(func: Function, mod: IRModule, ctx: PassContext) -> Function:
        seen.append(func.attrs["global_symbol"])
        return func

    mod = module(PROGRAM, """
@T.prim_func(s_tir=True)
def kernel(x: T.Buffer((4,), "float32")):
    T.evaluate(0)
""")  # fmt: skip
    assert see(mod) is mod
    assert seen == ["main"]


@pytest.mark.parametrize(("decorate", "kind"), [
    (transform.module_pass, "an IRModule"), (transform.function_pass, "a Function"),
])  # fmt: skip
def test_results_of_passes_are_checked(decorate: Any, kind: str) -> None:
    broken = decorate(lambda *args: 1, name="Broken")
    with pytest.raises(TypeError, match=f"pass Broken returned int, not {kind}"):
        broken(module(PROGRAM))


def test_a_pass_takes_modules() -> None:
    with pytest.raises(TypeError, match="Nothing: expected an IRModule, got Function"):
        nothing(module(PROGRAM)["main"])


# Passes of dataflow blocks


def replacing(change: Any) -> transform.Pass:
    @transform.dataflowblock_pass(name="Replace")
    def replace(block: DataflowBlock, mod: IRModule, ctx: PassContext) -> Any:
        return change(block)

    return replace


def test_a_pass_of_dataflow_blocks() -> None:
    def without_abs(block: DataflowBlock) -> DataflowBlock:
        first, last = block.bindings
        return DataflowBlock([VarBinding(last.var, first.value)])

    result = replacing(without_abs)(module(PROGRAM))
    expected = PROGRAM.replace("        a = R.exp(x)\n", "").replace("R.abs(a)", "R.exp(x)")
    assert_structural_equal(result, module(expected))


def test_an_output_cannot_be_removed() -> None:
    with pytest.raises(InternalError, match="a global-scope Var was removed: b"):
        replacing(lambda block: DataflowBlock(block.bindings[:1]))(module(PROGRAM))


def test_an_output_cannot_be_added() -> None:
    def added(block: DataflowBlock) -> DataflowBlock:
        extra = VarBinding(Var("extra", block.bindings[0].var.ty), block.bindings[0].value)
        return DataflowBlock([*block.bindings, extra])

    with pytest.raises(InternalError, match="a global-scope Var was added: extra"):
        replacing(added)(module(PROGRAM))


CAST = """
@R.function
def main(x: R.Tensor("float32", ndim=1)):
    with R.dataflow():
        n = T.int64()
        a = R.match_cast(x, R.Tensor((n,), "float32"))
        b = R.abs(a)
        R.output(b)
    return b
"""


def test_a_symbolic_variable_cannot_be_removed() -> None:
    def without_cast(block: DataflowBlock) -> DataflowBlock:
        cast, last = block.bindings
        return DataflowBlock([VarBinding(cast.var, cast.value), last])

    with pytest.raises(InternalError, match="symbolic Var declared by a MatchCast was removed: n"):
        replacing(without_cast)(module(CAST))


def test_a_symbolic_variable_can_be_added() -> None:
    def with_cast(block: DataflowBlock) -> DataflowBlock:
        m = Var("m", "int64")
        extra = DataflowVar("again", TensorType((m,), "float32"))
        cast = MatchCast(extra, block.bindings[0].value, extra.ty)
        return DataflowBlock([cast, *block.bindings])

    result = replacing(with_cast)(module(CAST))
    assert len(result["main"].body.blocks[0].bindings) == 3


def test_a_dataflow_block_stays_one() -> None:
    with pytest.raises(InternalError, match="Replace returned BindingBlock, not a DataflowBlock"):
        replacing(lambda block: type(block).__base__(block.bindings))(module(PROGRAM))


# Contexts


def test_passes_of_a_higher_level_are_left_out() -> None:
    both = Sequential([nothing, eager])
    assert "eager" not in both(module(PROGRAM)).attrs
    with PassContext(opt_level=3):
        assert both(module(PROGRAM)).attrs["eager"]
    with PassContext(opt_level=3, disabled_pass=["Eager"]):
        assert "eager" not in both(module(PROGRAM)).attrs
    with PassContext(opt_level=0, required_pass=["Eager"]):
        assert both(module(PROGRAM)).attrs["eager"]


def test_keys_of_a_config_are_known() -> None:
    assert PassContext(config={"tirx.noalias": True}).config == {"tirx.noalias": True}
    with pytest.raises(AttributeError, match=r"'tirx.noalis'; did you mean 'tirx.noa"):
        PassContext(config={"tirx.noalis": True})
    for key in ("tirx.add_lower_pass", 5):
        with pytest.raises(AttributeError, match=f"PassContext: config: unknown key {key!r}; "):
            PassContext(config={key: 1})
    with pytest.raises(AttributeError, match="'zz'; register_config_option makes one known"):
        PassContext(config={"zz": 1})
    with pytest.raises(TypeError, match="register_config_option: key: expected a string, got int"):
        transform.register_config_option(5)
    with pytest.raises(ValueError, match=r"'tirx.noalias' is a key of TVM; choose another one"):
        transform.register_config_option("tirx.noalias")


def test_keys_of_tvm_are_known() -> None:
    tvm = pytest.importorskip("tvm")
    assert set(tvm.transform.PassContext.list_configs()) - WITHOUT_EFFECT == {
        "relax.FuseOps.max_depth",
        "relax.lift_transform_params.consume_params",
        "tirx.add_lower_pass",
    }


def test_contexts_nest() -> None:
    transform.register_config_option("key")
    outer, inner = PassContext(opt_level=1), PassContext(opt_level=2, config={"key": 1})
    with outer:
        with inner:
            assert PassContext.current() is inner
            assert PassContext.current().config == {"key": 1}
        assert PassContext.current() is outer
        with outer:
            assert PassContext.current() is outer
        assert PassContext.current() is outer
    assert PassContext.current() not in (outer, inner)


def test_a_pass_that_is_called_runs_whatever_its_level() -> None:
    assert eager(module(PROGRAM)).attrs["eager"]


# Instruments


def test_instruments_are_called_around_each_pass() -> None:
    calls: list[Any] = []

    @transform.pass_instrument
    class Record:
        def enter_pass_ctx(self) -> None:
            calls.append("enter")

        def exit_pass_ctx(self) -> None:
            calls.append("exit")

        def should_run(self, mod: IRModule, info: Any) -> bool:
            return bool(info.name != "LambdaLift")

        def run_before_pass(self, mod: IRModule, info: Any) -> None:
            calls.append(("before", info.name))

        def run_after_pass(self, mod: IRModule, info: Any) -> None:
            calls.append(("after", info.name))

    with PassContext(instruments=[Record()]):
        Sequential([transform.LambdaLift(), nothing], name="both")(module(PROGRAM))
    assert calls == ["enter", ("before", "both"), ("before", "Nothing"), ("after", "Nothing"),
                     ("after", "both"), "exit"]  # fmt: skip


def test_timing() -> None:
    timing = transform.PassTimingInstrument()
    with PassContext(instruments=[timing]):
        Sequential([nothing, transform.ToNonDataflow()], name="both")(module(PROGRAM))
    assert [name for name, _ in timing.times] == ["both", "Nothing", "ToNonDataflow"]
    assert all(seconds > 0 for _, seconds in timing.times)
    first, *inner = timing.render().split("\n")
    assert re.fullmatch(r" +\d+\.\d{3} ms 100\.0%  both", first)
    assert [line.split("%")[1] for line in inner] == ["    Nothing", "    ToNonDataflow"]


def test_printing() -> None:
    out = io.StringIO()
    instruments = [transform.PrintBeforeAll(out), transform.PrintAfterAll(out)]
    with PassContext(instruments=instruments):
        transform.ToNonDataflow()(module(PROGRAM))
    before, after = out.getvalue().split("# after ToNonDataflow\n")
    assert before.startswith("# before ToNonDataflow\n")
    assert_structural_equal(from_source(before), module(PROGRAM))
    assert "R.dataflow" in before
    assert "R.dataflow" not in after


def test_printing_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with PassContext(instruments=[transform.PrintAfterAll()]):
        nothing(module(PROGRAM))
    assert capsys.readouterr().err.startswith("# after Nothing\n")


def test_the_pass_that_breaks_a_rule_is_named() -> None:
    @transform.function_pass(name="Break")
    def break_it(func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return func.replace(body=SeqExpr([], Var("unknown", func.ret_ty)))

    with (
        PassContext(instruments=[transform.WellFormedInstrument()]),
        pytest.raises(IllFormedError) as raised,
    ):
        Sequential([nothing, break_it])(module(PROGRAM))
    assert "after pass Break" in raised.value.__notes__


# Dumps


def test_every_pass_is_dumped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "ir"
    monkeypatch.setenv("RELAXVM_DUMP_IR", str(folder))
    pipeline = get_pipeline("default")
    pipeline(module(PROGRAM))
    names = sorted(path.name for path in folder.iterdir())
    assert names[0] == "00-LowerDataTypes.py"
    assert names[-1].endswith("-default_build.py")
    assert len(names) == len(pipeline.passes) + 1  # type: ignore[attr-defined]
    assert_structural_equal(from_source((folder / names[0]).read_text()), module(PROGRAM))


def test_a_dump_by_itself(tmp_path: Path) -> None:
    with PassContext(instruments=[transform.DumpIR(tmp_path)]):
        transform.ToNonDataflow()(module(PROGRAM))
    (path,) = tmp_path.iterdir()
    assert path.name == "00-ToNonDataflow.py"
    assert_structural_equal(
        from_source(path.read_text()), transform.ToNonDataflow()(module(PROGRAM))
    )


# Errors


class _Fail(ExprMutator):
    def visit_call(self, call: Call) -> Any:
        if call.op.name == "relax.abs":
            raise ValueError("no abs")
        return super().visit_call(call)


def test_an_error_names_pass_function_binding_and_line(tmp_path: Path) -> None:
    @transform.function_pass(name="Fail")
    def fail(func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return _Fail().visit(func)  # type: ignore[no-any-return]

    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    func = from_source(PROGRAM, path=str(path))
    with pytest.raises(ValueError, match="no abs") as raised:
        Sequential([fail], name="all")(IRModule.from_expr(func))
    assert raised.value.__notes__ == [
        f"in the binding of 'b', {path}:6:9\n    b = R.abs(a)",
        "in function 'main'",
        "in pass Fail",
        "in pass all",
    ]


def test_the_innermost_binding_is_named() -> None:
    mod = module("""
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
    if c:
        y = R.abs(x)
        z = R.exp(y)
    else:
        z = x
    return z
""")
    with pytest.raises(ValueError, match="no abs") as raised:
        _Fail().visit(mod["main"])
    (note,) = raised.value.__notes__
    assert note.startswith("in the binding of 'y', ")


def test_an_error_of_the_code_generator_names_function_and_binding() -> None:
    mod = module("""
@R.function
def main(x: R.Tensor((4,), "float32")):
    y = R.abs(x)
    return y
""")
    with pytest.raises(
        TypeError, match=r"operator relax\.abs cannot be called by the VM"
    ) as raised:
        relaxvm.build(mod, relax_pipeline=None)
    binding, function = raised.value.__notes__
    assert binding.startswith("in the binding of 'y', ")
    assert function == "in the code generator, function 'main'"


# Pipelines


def test_pipelines_by_name() -> None:
    assert get_pipeline("default").name == "default_build"
    assert get_pipeline("default_build").name == "default_build"
    assert get_pipeline().name == "zero"
    with pytest.raises(ValueError, match=r"unknown pipeline 'defualt'.*did you mean 'default'"):
        get_pipeline("defualt")


def test_a_custom_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    from relaxvm.transform import pipelines as pipeline

    monkeypatch.setattr(pipeline, "_PIPELINES", dict(pipeline._PIPELINES))

    @register_pipeline("mine")
    def mine(extra: bool = False) -> transform.Pass:
        return Sequential([nothing, *[eager] * extra], name="mine")

    assert len(get_pipeline("mine", extra=True).passes) == 2  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="pipeline 'mine' is already registered"):
        register_pipeline("mine")


def test_the_pipeline_zero_has_the_same_results() -> None:
    import numpy as np

    mod = module(PROGRAM.replace("(4,)", '("n",)'))
    x = np.array([-1, 0, 1, 2], np.float32)
    lowered = get_pipeline("zero")(mod)
    assert "relaxvm.kernel.fused" in lowered.script()
    results = [relaxvm.VirtualMachine(relaxvm.build(m))["main"](x) for m in (mod, lowered)]
    assert results[0].tobytes() == results[1].tobytes()
