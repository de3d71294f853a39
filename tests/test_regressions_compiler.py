"""Regression tests of the compiler, each with the program that showed the bug."""

from __future__ import annotations

import linecache
import re
import runpy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import VirtualMachine, op
from relaxvm.analysis import memory_report, well_formed
from relaxvm.compiler.build import EXEC_MODES
from relaxvm.errors import DiagnosticError, LimitError
from relaxvm.ir import (
    BlockBuilder,
    Function,
    IRModule,
    PrimType,
    TensorType,
    Var,
    assert_structural_equal,
    convert_to_expr,
    int_imm,
    load_json,
    prim,
    save_json,
    simplify,
    structural_equal,
)
from relaxvm.script import from_source
from relaxvm.transform import (
    BindParams,
    CanonicalizeBindings,
    EliminateCommonSubexpr,
    InlinePrivateFunctions,
    KillAfterLastUse,
    LambdaLift,
    Pass,
    PassContext,
    PassInstrument,
    Sequential,
)
from relaxvm.transform.pipelines import LOWERING, LOWERING_FOR_TVM, get_pipeline
from relaxvm.values import Shape

from .counting import python_calls

MODES = pytest.mark.parametrize("exec_mode", EXEC_MODES)


def run(text: str, *args: Any, exec_mode: str = "bytecode") -> Any:
    """Return the result of `main` of a script."""
    executable = relaxvm.build(from_source(text), exec_mode=exec_mode)
    return VirtualMachine(executable)["main"](*args)


@MODES
def test_many_shapes_in_a_function(exec_mode: str) -> None:
    """The shape program that computes them is longer than a shape constant may be."""
    count = 600
    shapes = ", ".join(f"R.shape([n * {i + 2}])" for i in range(count))
    text = f"""
@R.function
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    return ({shapes})
"""
    found = run(text, np.zeros(3, np.float32), exec_mode=exec_mode)
    assert found == tuple(Shape((3 * (i + 2),)) for i in range(count))


def refused(text: str) -> str:
    """Return the error message of a wrong script."""
    with pytest.raises(DiagnosticError) as caught:
        from_source(text)
    return str(caught.value).splitlines()[0]


@pytest.mark.parametrize("dtype", ["flaot32", "object", "complex64", "datetime64", "U5", "f,i"])
def test_tensors_hold_bools_integers_and_floats(dtype: str) -> None:
    said = refused(f'@R.function\ndef main(x: R.Tensor((3,), "{dtype}")):\n    return x\n')
    assert said.startswith(
        (
            "<script>:2:13: dtype: expected bool, an integer or a float, got '",
            "<script>:2:13: dtype: 'flaot32' is not a data type",
        )
    )


def test_other_names_of_a_data_type_are_the_same() -> None:
    assert TensorType((3,), "f4").dtype == "float32"


@pytest.mark.parametrize(("body", "message"), [
    ('return R.match_cast(x, R.Tensor((3,), "float32"))',
     "4:5: assign the result of R.match_cast to a variable"),
    ("return R.shape([1.5])", "4:12: expected an integer, got float 1.5"),
    ("return R.const(2**70)", "4:12: const: 1180591620717411303424 does not fit int64"),
    ("""with R.dataflow():
        if R.const(True):
            y = x
        else:
            y = x
        R.output(y)
    return y""", "5:9: an if cannot be in a dataflow block"),
])  # fmt: skip
def test_messages_of_mistakes(body: str, message: str) -> None:
    text = f"\n@R.function\ndef main(x: R.Tensor(ndim=1)):\n    {body}\n"
    assert refused(text).startswith(f"<script>:{message}")


@pytest.mark.parametrize(("signature", "message"), [
    ("x: R.Tensor, x: R.Shape", "parameter 'x' is given twice"),
    ('x: R.Tensor(("n", 1.5))', "expected an integer, got float 1.5"),
    ("x: R.Tensor(ndim=-5)", "ndim: expected a rank, or -1 if unknown, got -5"),
    ('x: R.Prim("int65")', "'int65' is not a data type"),
])  # fmt: skip
def test_messages_of_mistakes_in_signatures(signature: str, message: str) -> None:
    assert message in refused(f"@R.function\ndef main({signature}):\n    return x\n")


def test_a_module_holds_functions() -> None:
    with pytest.raises(TypeError, match="IRModule: f: expected a function, got int 3"):
        IRModule()["f"] = 3  # type: ignore[assignment]


def test_a_context_that_cannot_be_entered_is_not_active() -> None:
    class Broken(PassInstrument):
        def enter_pass_ctx(self) -> None:
            raise OSError("no")

    before = PassContext.current().instruments
    with pytest.raises(OSError, match="no"), PassContext(instruments=[Broken()]):
        pass
    assert PassContext.current().instruments == before == ()


def test_objects_that_are_not_passes() -> None:
    with pytest.raises(TypeError, match="sequential: expected passes, got int"):
        Sequential([3])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="relax_pipeline: expected the name of a pipeline, a pass"):
        relaxvm.build(IRModule(), relax_pipeline=3)  # type: ignore[arg-type]


RESHAPES = {
    "-1": ('x: R.Tensor(("n",), "float32")', "(-1, 4)", ()),
    "symbolic": ('x: R.Tensor(("n",), "float32"), s: R.Shape(["m"])', "(4, m)", (2,)),
    "rank": ('x: R.Tensor(ndim=1, dtype="float32")', "(2, 4)", ()),
    "shape": ('x: R.Tensor(("n",), "float32"), s: R.Shape(ndim=2)', "s", (4, 2)),
}


@MODES
@pytest.mark.parametrize("in_dataflow", [False, True])
@pytest.mark.parametrize("case", RESHAPES)
def test_a_reshape_keeps_all_elements(case: str, in_dataflow: bool, exec_mode: str) -> None:
    """A reshape to fewer elements must not be a view of the first ones."""
    signature, shape, dims = RESHAPES[case]
    lines = ["a = R.add(x, x)", f"b = R.reshape(a, {shape})", "c = R.add(b, b)"]
    if in_dataflow:
        lines = ["with R.dataflow():", *(f"    {line}" for line in [*lines, "R.output(c)"])]
    body = "".join(f"    {line}\n" for line in [*lines, "return c"])
    text = f"@R.function\ndef main({signature}):\n{body}"
    rest = (Shape(dims),) if dims else ()
    found = run(text, np.ones(8, np.float32), *rest, exec_mode=exec_mode)
    assert found.size == 8
    assert (found == 4).all()
    with pytest.raises(ValueError, match="reshape: out: expected 9 elements, got float32"):
        run(text, np.ones(9, np.float32), *rest, exec_mode=exec_mode)


@pytest.mark.parametrize(
    ("dtype", "value", "message"),
    [
        ("banana", "A[0]", "<script>:2:10: dtype: 'banana' is not a data type"),
        (",", "A[0]", "<script>:2:10: dtype: ',' is not a data type"),
        ("object", "A[0]", "<script>:2:10: dtype: expected bool, an integer or a float, got 'obj"),
        ("float32", "A[0] ** 2", "<script>:3:12: unsupported operand type(s) for **"),
    ],
)
def test_messages_of_mistakes_in_prim_funcs(dtype: str, value: str, message: str) -> None:
    text = f'@T.prim_func\ndef k(A: T.Buffer((4,), "{dtype}")):\n    A[1] = {value}\n'
    assert refused(text).startswith(message)


def test_constants_keep_the_values_they_were_made_of() -> None:
    """Writes to an array after it became a constant do not change the program."""
    weights = np.ones(3, np.float32)
    x = Var("x", TensorType((3,), "float32"))
    bb = BlockBuilder()
    with bb.function("main", [x]):
        value = bb.emit(op.add(x, weights))
        weights[:] = 2
        bb.emit_func_output(bb.emit(op.multiply(value, weights)))
    bound = BindParams("main", {"x": weights})(bb.get())
    weights[:] = 3
    assert VirtualMachine(relaxvm.build(bound))["main"]().tolist() == [6, 6, 6]


def test_a_sealed_array_is_not_copied() -> None:
    weights = np.ones(3, np.float32)
    weights.flags.writeable = False
    assert np.shares_memory(convert_to_expr(weights).data, weights)


def test_a_parameter_that_cannot_be_bound_is_named() -> None:
    x = Var("x", TensorType((3,), "float32"))
    module = IRModule({"main": Function([x], x, x.ty)})
    with pytest.raises(ValueError, match="BindParams: parameter 'x': could not convert string"):
        BindParams("main", {"x": "text"})(module)


@MODES
def test_an_operand_of_unknown_rank(exec_mode: str) -> None:
    text = '@R.function\ndef main(x: R.Tensor(dtype="float32")):\n    return R.add(x, x)\n'
    for shape in ((), (3,), (2, 0, 4)):
        x = np.ones(shape, "float32")
        np.testing.assert_array_equal(run(text, x, exec_mode=exec_mode), x + x)
    text = """
@R.function
def main(x: R.Tensor(dtype="float32"), y: R.Tensor((3,), "float32")):
    return R.nn.batch_norm(x, y, y, y, y, axis=1)
"""
    message = "operator relax.nn.batch_norm cannot be called by the VM: .*; no pass has lowered it"
    with pytest.raises(TypeError, match=message):
        run(text, exec_mode=exec_mode)


@MODES
def test_a_closure_that_another_one_captures_keeps_its_dimensions(exec_mode: str) -> None:
    """The type of its result has dimensions of the function around both."""
    text = """
@R.function
def main(x: R.Tensor(("n", "T.min(n, m)"), "float32"), y: R.Tensor(("m",), "float32")):
    n = T.int64()
    m = T.int64()
    total = R.sum(y)

    @R.function
    def inner(z: R.Tensor((), "float32")) -> R.Tensor((n, T.min(n, m)), "float32"):
        return R.add(x, z)

    @R.function
    def outer() -> R.Tensor((n, T.min(n, m)), "float32"):
        a: R.Tensor((n, T.min(n, m)), "float32") = inner(total)
        return R.add(a, R.ones((n, T.min(n, m)), "float32"))

    return outer()
"""
    lifted = LambdaLift()(IRModule.from_expr(from_source(text)))
    assert_structural_equal(from_source(lifted.script()), lifted)
    found = run(text, np.ones((3, 2), np.float32), np.ones(2, np.float32), exec_mode=exec_mode)
    np.testing.assert_array_equal(found, np.full((3, 2), 4, np.float32))


@MODES
def test_a_shape_that_is_the_shape_of_a_type(exec_mode: str) -> None:
    text = """
@R.function
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    s = R.shape([n])
    y: R.Tensor(s, "float32") = R.reshape(x, s)
    return R.add(y, y)
"""
    lowered = get_pipeline("default_build")(IRModule.from_expr(from_source(text)))
    assert_structural_equal(load_json(save_json(lowered)), lowered)
    found = run(text, np.ones(3, np.float32), exec_mode=exec_mode)
    np.testing.assert_array_equal(found, np.full(3, 2, np.float32))


def test_inlining_keeps_the_type_of_the_call() -> None:
    """Later code needs the type, here a kernel that works in place."""
    text = """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def double(x: T.Buffer(("d0", "d1"), "int64")):
        d0 = T.int64()
        d1 = T.int64()
        for i, j in T.grid(d0, d1):
            x[i, j] = x[i, j] * T.int64(2)

    @R.function(private=True)
    def same(
        x: R.Tensor(("n // 2", "m"), "int64"), y: R.Tensor(("m // 2", "n"), "float32")
    ) -> R.Tensor(("n // 2", "m"), "int64"):
        n = T.int64()
        m = T.int64()
        return R.add(x, x)

    @R.function
    def main(x: R.Tensor((1, "k"), "int64"), y: R.Tensor(("k // 2", 3), "float32")):
        k = T.int64()
        a: R.Tensor((1, k), "int64") = Module.same(x, y)
        return R.call_tir_inplace(
            Module.double, (a,), inplace_indices=[0], out_ty=R.Tensor((1, k), "int64")
        )
"""
    inlined = InlinePrivateFunctions()(from_source(text))
    assert len(inlined.functions) == 2
    x, y = np.ones((1, 4), np.int64), np.zeros((2, 3), np.float32)
    found = VirtualMachine(relaxvm.build(inlined))["main"](x, y)
    np.testing.assert_array_equal(found, np.full((1, 4), 4))


@MODES
def test_bools_of_a_program_can_be_saved(exec_mode: str, tmp_path: Path) -> None:
    text = """
@R.function(pure=False)
def main(x: R.Tensor((3,), "float32")):
    a = R.call_packed("test.pair", x, True, ty_args=R.Any)
    if R.prim_value(False):
        b = R.prim_value(True)
    else:
        b = R.prim_value(False)
    return (a, b, R.prim_value(True))
"""
    executable = relaxvm.build(from_source(text), exec_mode=exec_mode)
    executable.export_library(tmp_path / "it")
    loaded = relaxvm.load(tmp_path / "it", native=True)
    vm = VirtualMachine(loaded, functions={"test.pair": lambda x, flag: (flag, flag is True)})
    assert vm["main"](np.zeros(3, np.float32)) == ((True, True), False, True)
    assert [type(x) for x in vm["main"](np.zeros(3, np.float32))[1:]] == [bool, bool]


@MODES
@pytest.mark.parametrize("name", ["relaxvm.kernel.add", "vm.builtin.copy", "relaxvm.builtin.x"])
def test_reserved_names_of_builtins_and_kernels(name: str, exec_mode: str) -> None:
    """A function with such a name would replace the shipped function."""
    text = f"""
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def add(x: T.Buffer((3,), "float32"), y: T.Buffer((3,), "float32")):
        T.func_attr({{"global_symbol": "{name}"}})
        for i in range(3):
            y[i] = x[i] * T.float32(7)

    @R.function
    def main(x: R.Tensor((3,), "float32")):
        return R.call_tir(Module.add, (x,), R.Tensor((3,), "float32"))
"""
    bb = BlockBuilder()
    x = Var("x", TensorType((3,), "float32"))
    with bb.function(name, [x]):
        bb.emit_func_output(x)
    for mod in (from_source(text), bb.get()):
        with pytest.raises(ValueError, match=f"function '{name}': names that begin with"):
            relaxvm.build(mod, exec_mode=exec_mode)


@MODES
def test_parameters_that_are_not_used_are_allowed(exec_mode: str) -> None:
    text = "@R.function\ndef main(x: R.Any, f: R.Callable, y: R.Tensor((2,))):\n    return y\n"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(text, 1, len, np.zeros(2), exec_mode=exec_mode)


@MODES
def test_more_operands_than_a_call_may_have(exec_mode: str) -> None:
    x = Var("x", TensorType((1,), "float32"))
    bb = BlockBuilder()
    with bb.function("main", [x], pure=False):
        call = op.call_packed("test.count", *[x] * 70_000, ty_args=PrimType("int64"))
        bb.emit_func_output(bb.emit(call, "many"))
    with pytest.raises(LimitError, match=r"70000 operands .* limit call_args=65535") as caught:
        relaxvm.build(bb.get(), exec_mode=exec_mode)
    assert caught.value.__notes__ == [
        "in the binding of 'many'", "in the code generator, function 'main'"
    ]  # fmt: skip


@MODES
@pytest.mark.parametrize("value", [np.float32(2), np.bool_(True), np.int64(-1), np.float64(0.5)])
def test_a_scalar_of_numpy_is_a_tensor_where_one_is_expected(
    value: Any, exec_mode: str, tmp_path: Path
) -> None:
    text = f"""
@R.function
def main(
    x: R.Tensor((), "{value.dtype}"),
    t: R.Tuple(R.Tensor((), "{value.dtype}"), R.Tuple(R.Prim("float64"), R.Tensor(ndim=0))),
    p: R.Prim("{value.dtype}"),
    f: R.Any,
):
    return (x, t, p, f)
"""
    executable = relaxvm.build(from_source(text), exec_mode=exec_mode)
    executable.export_library(tmp_path / "it")
    given = (value, (value, [value, value]), value, value)
    for each in (executable, relaxvm.load(tmp_path / "it", native=True)):
        main = VirtualMachine(each)["main"]
        by_name = dict(zip("xtpf", given, strict=True))
        for result in (main(*given), main.bind(value)(*given[1:]), main(**by_name)):
            x, (first, (number, second)), p, f = result
            for array in (x, first, second):
                assert type(array) is np.ndarray
                assert (array.shape, array.dtype, array.item()) == ((), value.dtype, value.item())
            for scalar in (number, p, f):
                assert type(scalar) is type(value.item())


@MODES
def test_numpy_scalars_that_are_refused(exec_mode: str) -> None:
    text = '@R.function\ndef main(x: R.Tensor((2,), "float32")):\n    return x\n'
    with pytest.raises(ValueError, match="expected a tensor of ndim 1, got ndim 0 in float32"):
        run(text, np.float32(1), exec_mode=exec_mode)
    with pytest.raises(TypeError, match=r"expected a tensor, got float 1\.0"):
        run(text, 1.0, exec_mode=exec_mode)


@MODES
def test_executables_contain_no_paths(
    exec_mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
import relaxvm
from relaxvm.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor((3,), "float32")):
        y = R.call_packed("test.fail", x, ty_args=R.Any)
        return y

executable = relaxvm.build(Module, exec_mode=MODE)
"""

    def fail(x: Any) -> None:
        raise ValueError("no")

    x = np.ones(3, np.float32)

    def note(folder: Path) -> str:
        monkeypatch.chdir(folder)
        path = tmp_path / "folder" / "program.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        found = runpy.run_path(str(path), {"MODE": exec_mode})
        path.unlink()
        linecache.clearcache()
        with pytest.raises(ValueError, match="no") as caught:
            VirtualMachine(found["executable"], functions={"test.fail": fail})["main"](x)
        return "\n".join(caught.value.__notes__)

    (other := tmp_path / "other").mkdir()
    whole = str(tmp_path / "folder" / "program.py")
    below, behind = whole.lstrip("/")[-40:], " folder/program.py"  # a long path is cut at its start
    for folder, end in ((tmp_path, behind), (other, behind), (Path("/"), below)):
        said = note(folder)
        assert f"{end}:9:" in said
        assert 'y = R.call_packed("test.fail", x, ty_args=R.Any)' in said


def test_types_name_the_variable_that_a_common_subexpression_became() -> None:
    text = """
@R.function
def main(x: R.Tensor(("n",), "float32")):
    s = R.shape_of(x)
    t = R.shape_of(x)
    y = R.call_pure_packed("test.same", x, t, ty_args=R.Tensor(t, "float32"))
    return y
"""
    new = EliminateCommonSubexpr()(IRModule.from_expr(from_source(text)))
    assert "R.Tensor(s, " in new.script()
    assert_structural_equal(load_json(save_json(new)), new)


def test_lifted_functions_have_dimensions_of_their_own() -> None:
    """A nested function captures values whose types mention a dimension."""
    text = """
@R.function(private=False)
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()

    @R.function
    def middle(y: R.Tensor((2,), "float32")):
        a = R.add(x, x)

        @R.function
        def inner(z: R.Tensor((3,), "float32")):
            return R.sum(R.concat((a, x)))

        return inner(R.ones((3,), "float32"))

    return middle(R.ones((2,), "float32"))
"""
    module = IRModule.from_expr(from_source(text))
    well_formed(LambdaLift()(module))
    vm = VirtualMachine(relaxvm.build(module))
    assert vm["main"](np.arange(3, dtype=np.float32)) == 9


def test_building_takes_time_by_the_size_of_branches() -> None:
    """Measured in calls of Python functions, for nested branches."""

    def calls(depth: int) -> int:
        text = (
            "@R.function\ndef main(x: R.Tensor(('n',), 'float32'), c: R.Tensor((), 'bool')):\n"
            "    if c:\n        y = x\n"
            + "    elif c:\n        a = R.add(x, x)\n        y = R.exp(a)\n" * depth
            + "    else:\n        y = R.negative(x)\n    return y"
        )
        func = from_source(text)
        return python_calls(lambda: relaxvm.build(func))

    calls(10)  # work that is done once
    few, many = calls(50), calls(100)
    assert many < 2.1 * few


def test_aliases_of_results_are_found_once() -> None:
    """Each result may alias either argument, which may alias either argument of its call: 2**60
    paths."""
    tensor = 'R.Tensor((2,), "float32")'
    call = f'R.call_packed("f", y, z, ty_args={tensor})'
    text = (
        f"@R.function(pure=False)\ndef main(x: {tensor}):\n    y = R.add(x, x)\n    z = R.abs(y)\n"
        + f"    y, z = z, {call}\n" * 60
        + "    return z"
    )
    module = IRModule.from_expr(from_source(text))
    vm = VirtualMachine(relaxvm.build(module), functions={"f": lambda a, b: a})
    assert vm["main"](np.ones(2, np.float32)).tolist() == [2, 2]


def test_memory_reports_with_tuples_from_calls() -> None:
    text = """
@R.function(pure=False)
def main(x: R.Tensor((4,), "float32")):
    a = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), 0, "global")
    R.call_packed("relaxvm.kernel.exp", x, a, ty_args=R.Tuple)
    b = R.call_packed("f", a, ty_args=R.Tuple(R.Any, R.Any))
    return b[1]
"""
    assert "1 tensors of 16 bytes" in str(memory_report(IRModule.from_expr(from_source(text))))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "@I.ir_modul\nclass Module:\n    pass",
            r":1:2: class 'Module': expected the decorator @I.ir",
        ),
        ("@R.functoin\ndef f():\n    return R.tuple()", r"'functoin'; did you mean 'function'"),
        (
            "@R.function\ndef f(x: R.Tensro((2,), 'float32')):\n    return x",
            "'Tensro'; did you mean 'Tensor'",
        ),
        (
            "@T.prim_func\ndef f(a: T.Buffer((2,), 'float32')):\n    a[0] = T.expp(a[1])",
            "T has no 'expp'; did you mean 'exp'",
        ),
    ],
    ids=["class", "decorator", "type", "scalar"],
)
def test_misspelt_names_get_a_hint(text: str, message: str) -> None:
    with pytest.raises(DiagnosticError, match=message):
        from_source(text)


def test_kills_need_programs_without_dataflow_blocks() -> None:
    """The pass turned variables of such blocks into ordinary bindings, which is ill-formed."""
    text = """
@R.function
def main(x: R.Tensor((2,), "float32")):
    with R.dataflow():
        y = R.exp(x)
        z = R.abs(y)
        R.output(z)
    return z
"""
    with pytest.raises(TypeError, match="dataflow block; run ToNonDataflow first"):
        KillAfterLastUse()(IRModule.from_expr(from_source(text)))


def test_types_follow_shapes_with_new_dimensions() -> None:
    """The type of a tensor may have a variable as its whole shape."""
    text = """
@R.function(private=False)
def main(x: R.Tensor(("n",), "float32"), s: R.Shape(["k"])):
    k = T.int64()

    @R.function
    def inner(y: R.Tensor((k,), "float32")):
        shape = R.shape_of(y)
        z: R.Tensor(shape, "float32") = R.call_pure_packed(
            "test.same", y, ty_args=R.Tensor(shape, "float32"))
        return z

    return inner(R.ones((k,), "float32"))
"""
    module = IRModule.from_expr(from_source(text))
    well_formed(LambdaLift()(module))
    vm = VirtualMachine(relaxvm.build(module), functions={"test.same": lambda x, *rest: x})
    assert vm["main"](np.zeros(2, np.float32), Shape((3,))).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "make", [CanonicalizeBindings, EliminateCommonSubexpr], ids=["canonicalize", "subexpressions"]
)
def test_types_and_scalars_use_the_replacement_of_a_variable(make: Any) -> None:
    text = """
@R.function
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    s = R.shape_of(x)
    t: R.Shape([n]) = s
    u = R.shape_of(x)
    k = R.call_pure_packed("test.count", s, ty_args=R.Prim("int64"))
    m = R.call_pure_packed("test.count", s, ty_args=R.Prim("int64"))
    y = R.call_pure_packed("test.same", x, ty_args=R.Tensor(t, "float32"))
    z = R.call_pure_packed("test.same", y, ty_args=R.Tensor(u, "float32"))

    @R.function
    def local(a: R.Tensor((2,), "float32")):
        return R.zeros(R.shape([2, k + m * 2]), "float32")

    return (z, local(R.ones((2,), "float32")))
"""
    module = IRModule.from_expr(from_source(text))
    new = make()(module)
    well_formed(new)
    assert_structural_equal(load_json(save_json(new)), new)
    functions = {"test.same": lambda x, *rest: x, "test.count": len}
    vm = VirtualMachine(relaxvm.build(new), functions=functions)
    z, zeros = vm["main"](np.ones(3, np.float32))
    assert (z.shape, zeros.shape) == ((3,), (2, 3))


def test_shapes_of_tensors_without_elements() -> None:
    """A 0 in the shape of a lowered reshape does not mean the operand's dimension."""
    text = """
@R.function
def main(x: R.Tensor((0, 2), "float32")):
    y = R.expand_dims(x, axis=0)
    return R.reshape(y, R.shape([2, 0, 3]))
"""
    module = IRModule.from_expr(from_source(text))
    assert from_source(module.script())["main"].ret_ty.dims[1] == 0
    vm = VirtualMachine(relaxvm.build(module))
    assert vm["main"](np.ones((0, 2), np.float32)).shape == (2, 0, 3)
    with pytest.raises(DiagnosticError, match=r"has 0 elements, one of shape .* has 9"):
        from_source(text.replace("(0, 2)", "(3, 0)").replace("R.shape([2, 0, 3])", "(0, 3, 1)")
                    .replace("R.expand_dims(x, axis=0)", "x"))


def test_in_place_results_with_equal_types_written_differently() -> None:
    """Types that are equal but written differently: the variable that replaces one allocation is
    new, also in the replacement of the next one."""
    text = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("h",), "float32")):
        h = T.int64()
        a = R.zeros(((h + 1) // 2,), "float32")
        ty = I.meta_var(R.Tensor(((h - 1) // 2 + 1,), "float32"))
        b = R.call_dps_packed("relaxvm.kernel.exp", (a,), out_ty=ty)
        c = R.call_dps_packed("relaxvm.kernel.negative", (b,), out_ty=ty)
        return R.call_dps_packed("relaxvm.kernel.exp", (c,), out_ty=ty)
"""
    np.testing.assert_allclose(run(text, np.ones(5, np.float32)), [np.exp(-1)] * 3, rtol=1e-6)


def test_an_output_with_a_wider_type_is_not_the_inner_variable() -> None:
    text = """
@R.function
def main(x: R.Tensor(("n", 4), "float32")):
    with R.dataflow():
        a = R.add(x, x)
        wide: R.Tensor(ndim=2, dtype="float32") = a
        b = R.add(a, a)
        c = b
        R.output(wide, c)
    return wide, c
"""
    module = CanonicalizeBindings()(IRModule.from_expr(from_source(text)))
    well_formed(module)
    vm = VirtualMachine(relaxvm.build(module))
    assert [y.tolist() for y in vm["main"](np.ones((1, 4), np.float32))] == [[[2] * 4], [[4] * 4]]


@pytest.mark.parametrize("call", ["R.concat((x, x))", "R.tile(x, (2,))"])
def test_tensors_without_a_size_are_named(call: str) -> None:
    lines = "\n".join(f"        x = {call}" for _ in range(60))
    text = f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
{lines}
        return x
"""
    message = r"less than 2\*\*63 bytes, got float32 of shape R.shape\(\[2305843009213693952\]\)"
    with pytest.raises(OverflowError, match=message) as caught:
        run(text, np.ones(4, np.float32))
    assert "in function 'main'" in caught.value.__notes__


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        ('x: R.Tensor((2**40, 2**40), "float32")): return R.add(x, x)', "1099511627776, 1099511"),
        ('x: R.Tensor(("n", 2**40, 2**40), "int8")): return R.add(x, x)', "n, 1099511627776, 10"),
        ('x: R.Tensor(("n",), "int8")): return R.zeros((2**62, 2), "int8")', "4611686018427387904"),
    ],
)
@pytest.mark.parametrize("planned", [False, True])
def test_results_without_a_size_are_named(function: str, shape: str, planned: bool) -> None:
    """A result, which is not planned, and a tensor before it."""
    head, value = function.split("): return ")
    lines = [f"y = {value}", "return R.add(y, y)"] if planned else [f"return {value}"]
    text = "\n        ".join([f"    @R.function\n    def main({head}):", *lines])
    message = rf"expected tensors of less than 2\*\*63 bytes, got \w+ of shape R.shape\(\[{shape}"
    with pytest.raises(OverflowError, match=message) as caught:
        relaxvm.build(from_source(f"@I.ir_module\nclass Module:\n{text}\n"))
    assert "in function 'main'" in caught.value.__notes__


@pytest.mark.parametrize(
    "dims", ["T.Mul(T.int64(2**62), T.int64(4))", "T.FloorDiv(T.int64(4), T.int64(0))"]
)
def test_a_number_without_a_value_is_not_called_a_variable(dims: str) -> None:
    text = f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        return R.zeros(({dims},), "float32")
"""
    with pytest.raises(OverflowError, match=r"function 'main': .* does not fit 64 bits, or div"):
        run(text, np.ones(1, np.float32))


@pytest.mark.parametrize("begin", [0, 1, -1, -2])
@pytest.mark.parametrize("stride", [1, 3])
def test_slices_to_the_greatest_integer_reach_the_end(begin: int, stride: int) -> None:
    text = f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 2), "float32")):
        return R.strided_slice(x, [0], [{begin}], [{2**63 - 1}], [{stride}])
"""
    vm = VirtualMachine(relaxvm.build(from_source(text)))
    for n in range(5):
        x = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
        np.testing.assert_array_equal(vm["main"](x), x[begin::stride])


def test_parts_of_symbolic_dimensions_are_as_tvm_writes_them() -> None:
    """TVM's text assumes that dimensions are not negative and that integers do not overflow."""
    text = """
@R.function
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    parts: R.Tuple(
        R.Tensor((T.min(1, n),), "float32"),
        R.Tensor((T.max(T.min(3, n) - 1, 0),), "float32"),
        R.Tensor((T.max(n - 3, 0),), "float32"),
    ) = R.split(x, [1, 3])
    rest: R.Tensor((T.min(9223372036854775807, n) - T.min(1, n),), "float32") = R.strided_slice(
        x, [0], [1], [9223372036854775807])
    return parts, rest
"""
    vm = VirtualMachine(relaxvm.build(from_source(text)))
    for n in range(5):
        x = np.arange(n, dtype=np.float32)
        parts, rest = vm["main"](x)
        for got, expected in zip((*parts, rest), (x[:1], x[1:3], x[3:], x[1:]), strict=True):
            np.testing.assert_array_equal(got, expected)


_SLICES = """
@R.function
def main(x: R.Tensor(("n", 2), "float32")):
    n = T.int64()
    last: R.Tensor(
        (T.min(9223372036854775807, n) - T.min(T.max(n - 1, 0), n), 2), "float32"
    ) = R.strided_slice(x, [0], [-1], [9223372036854775807])
    inner: R.Tensor((T.min(T.max(n - 3, 0), n) - T.min(2, n), 2), "float32") = R.strided_slice(
        x, [0], [2], [-3])
    return last, inner
"""


def test_slices_of_both_signs_are_as_tvm_writes_them() -> None:
    """The texts are equal because n, or the bound itself, is not negative."""
    func = from_source(_SLICES)
    last, inner = (binding.var.ty.dims[0] for binding in func.body.blocks[0].bindings)
    assert str(last) == "T.min(9223372036854775807, n) - T.min(T.max(n - 1, 0), n)"  # as written
    assert str(inner) == "T.max(T.min(T.max(n - 3, 0), n) - T.min(2, n), 0)"  # as inferred
    vm = VirtualMachine(relaxvm.build(func))
    for n in range(8):
        x = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
        for got, expected in zip(vm["main"](x), (x[-1:], x[2:-3]), strict=True):
            np.testing.assert_array_equal(got, expected)


_POSITIVE = "    y: R.Tensor((n,), 'float32') = R.zeros((T.max(n, -1),), 'float32')"


@pytest.mark.parametrize(
    ("signature", "before", "is_known"),
    [
        ("x: R.Tensor(('n',), 'float32')", "", True),
        ("x: R.Tuple(R.Tensor(('n',), 'float32'))", "", True),
        ("x: R.Any", "m = R.match_cast(x, R.Tensor((n,), 'float32'))", True),
        ("n: R.Prim('int64')", "", False),
        ("x: R.Shape(['n'])", "", False),
        ("x: R.Tensor(('n - 1',), 'float32'), s: R.Shape(['n'])", "", False),
        (
            "x: R.Any, s: R.Shape(['n']), b: R.Tensor((), 'bool')",
            "if b:\n        z = R.match_cast(x, R.Tensor((n,), 'float32'))\n"
            "    else:\n        z = R.zeros((1,), 'float32')",
            False,
        ),
    ],
)
def test_which_variables_are_not_negative(signature: str, before: str, is_known: bool) -> None:
    declare = "" if "n: R.Prim" in signature else "n = T.int64()"
    text = f"@R.function\ndef main({signature}):\n    {declare or 'pass'}\n    {before or 'pass'}\n"
    text += f"{_POSITIVE}\n    return y\n"
    if is_known:
        assert "R.Tensor((n,)" in str(from_source(text))
    else:
        with pytest.raises(DiagnosticError, match=r"known to be R.Tensor\(\(T.max\(n, -1\)"):
            from_source(text)


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("end", [-3, 0, 2, 2**31 - 1])
@pytest.mark.parametrize("begin", [-6, -1, 0, 5])
def test_slices_that_tvm_prints(begin: int, end: int, stride: int) -> None:
    pytest.importorskip("tvm")
    from tvm.script import from_source as read_by_tvm

    text = f"""# from tvm.script import ir as I, relax as R
@R.function
def main(x: R.Tensor(("n", 2), "float32")):
    y = R.strided_slice(x, axes=[0], begin=[{begin}], end=[{end}], strides=[{stride}])
    return y
"""
    vm = VirtualMachine(relaxvm.build(from_source(read_by_tvm(text).script())))
    for n in range(8):
        x = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
        np.testing.assert_array_equal(vm["main"](x), x[begin:end:stride])


def test_integers_beyond_all_data_types_are_not_simplified() -> None:
    n = Var("n", "int64")
    for a in (n, int_imm(4)):
        product = prim.Mul(prim.Mul(a, int_imm(2**62)), int_imm(4))
        assert structural_equal(simplify(product), product)


_MORE_IS_KNOWN = """
@I.ir_module
class Module:
    @R.function(private=True)
    def helper(n: R.Prim("int64")) -> R.Tensor(dtype="int64", ndim=1):
        y: R.Tensor((n + 1,), dtype="int64") = R.zeros(R.shape([n + 1]), "int64")
        return y

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        dims = R.shape([n])

        @R.function
        def f(a: R.Tensor((2,), "int32")) -> R.Tensor(dtype="float32", ndim=1):
            same: R.Tensor(dims, "float32") = x
            return same

        return (Module.helper(4), f)
"""


@pytest.mark.parametrize(
    ("transform", "function", "expected"),
    [
        (InlinePrivateFunctions(), "main", 'R.Tensor((5,), dtype="int64")'),
        (LambdaLift(), "main_f", 'R.Tensor((n,), dtype="float32")'),
    ],
    ids=["InlinePrivateFunctions", "LambdaLift"],
)
def test_refined_types_of_results(
    transform: Pass, function: str, expected: str
) -> None:
    """The type is the same as after printing and parsing."""
    after = transform(from_source(_MORE_IS_KNOWN))
    assert expected in str(after[function].ret_ty)
    assert_structural_equal(from_source(after.script()), after)


@pytest.mark.parametrize("lowering", [LOWERING, LOWERING_FOR_TVM], ids=["relaxvm", "tvm"])
def test_the_output_of_each_pass_can_be_parsed(lowering: Any) -> None:
    """After VMShapeLower, types have only ranks, including those of branches and calls."""
    text = """
@I.ir_module
class Module:
    @R.function
    def loop(x: R.Tensor(("n",), "float32"), more: R.Tensor((), "bool")) -> R.Tensor(
        ("n",), "float32"
    ):
        if more:
            y = Module.loop(R.exp(x), more)
        else:
            y = x
        return y

    @R.function
    def main(x: R.Tensor(("n",), "float32"), more: R.Tensor((), "bool"), k: R.Prim("int64")):
        n = T.int64()
        if more:
            y = (R.add(x, x), x)
        else:
            y = (x, Module.loop(x, more))
        z = y[0]
        s = R.shape_to_tensor(R.shape_of(z))
        return z, s, R.prim_value(k + n)
"""
    module = from_source(text)
    for make, _ in lowering:
        module = make()(module)
        assert well_formed(module)
        assert_structural_equal(from_source(module.script()), module)


def test_a_named_shape_is_not_copied() -> None:
    text = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")):
        n, m = T.int64(), T.int64()
        s = R.shape([n * m])
        return R.reshape(x, s), s
"""
    executable = relaxvm.build(from_source(text))
    assert not executable.has_function("vm.builtin.copy")
    y, shape = VirtualMachine(executable)["main"](np.ones((2, 3), np.float32))
    assert (y.shape, shape) == ((6,), Shape((6,)))


def test_equal_shapes_are_computed_once() -> None:
    text = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")):
        n, m = T.int64(), T.int64()
        s = R.shape([n * m, n + 1])
        t = R.shape([m * n, 1 + n])
        u = R.shape([n * m, n + 1])
        return s, t, u
"""
    module = from_source(text)
    bindings = EliminateCommonSubexpr()(module)["main"].body.blocks[0].bindings
    assert [b.var.name for b in bindings] == ["s", "t", "u"]
    assert bindings[2].value is bindings[0].var
    executable = relaxvm.build(module)
    listing = executable.as_text()
    assert listing.count("call  vm.builtin.make_shape") == 1
    assert re.search(r"alloc_shape_heap in: %vm, i4 ", listing)  # n, m, n * m, n + 1
    shapes = VirtualMachine(executable)["main"](np.ones((2, 3), np.float32))
    assert shapes == (Shape((6, 3)),) * 3


@MODES
def test_parameters_need_no_names(exec_mode: str) -> None:
    params = [Var(name, TensorType((2,), "float32")) for name in ("", "", "v", "a b")]
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(op.subtract(params[0], params[1])))
    vm = VirtualMachine(relaxvm.build(builder.get(), exec_mode=exec_mode))
    a, b = np.array([3, 4], np.float32), np.array([1, 1], np.float32)
    np.testing.assert_array_equal(vm["main"](a, b, a, a), a - b)
    assert vm.module["main"].param_names == ("v", "v_1", "v_2", "a b")


_DIVIDES = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32"), y: R.Tensor(("k",), "float32")):
        n = T.int64()
        k = T.int64()
        a = R.zeros((n * 3,), "float32")
        b = R.zeros((n // k,), "float32")
        return a, b
"""


@MODES
def test_arithmetic_of_shapes_that_fails_names_the_binding_and_the_expression(
    exec_mode: str,
) -> None:
    vm = VirtualMachine(relaxvm.build(from_source(_DIVIDES), exec_mode=exec_mode))
    x, y = np.ones((5, 3), np.float32), np.ones(0, np.float32)
    message = r"floordiv: 5 // 0, in h\[\d\] = (4 \* \()?h\[0\] // h\[2\]"
    with pytest.raises(ZeroDivisionError, match=message) as caught:
        vm["main"](x, y)
    notes = "\n".join(caught.value.__notes__)
    assert "at <script>:9:9" in notes
    if exec_mode == "bytecode":
        assert "n (h[0]) = 5, set by argument x axis 0 (pc" in notes
        assert "k (h[2]) = 0, set by argument y axis 0 (pc" in notes


def test_ranges_of_floats_that_only_the_run_knows() -> None:
    module = from_source("""
from relaxvm.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(start: R.Prim("float32"), end: R.Prim("float32"), step: R.Prim("float32")):
        return R.multiply(R.arange(start, end, step), R.const(2.0))
""")
    vm = relaxvm.VirtualMachine(relaxvm.build(module))
    expected = np.arange(0.5, 3.0, 0.25, dtype="float32") * 2
    np.testing.assert_array_equal(vm.main(0.5, 3.0, 0.25), expected)
    assert vm.main(1.0, 0.0, 1.0).shape == (0,)
    for bad in ((0.0, 1.0, 0.0), (0.0, float("inf"), 1.0), (0.0, float("nan"), 1.0)):
        with pytest.raises(ValueError, match=r"arange: (step|end): expected"):
            vm.main(*bad)
