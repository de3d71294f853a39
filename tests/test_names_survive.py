"""Names and places of a program live through every pass into the executable."""

from __future__ import annotations

import warnings
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import ExecBuilder, op
from relaxvm.cli import main
from relaxvm.executable import VMExecutable
from relaxvm.ir import BlockBuilder, TensorType, Var
from relaxvm.isa import Opcode
from relaxvm.observe import profile
from relaxvm.op.registry import CONSTRUCTORS
from relaxvm.registry import GLOBAL
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

from . import torch_fixtures
from .test_onnx import FLOAT, model_of, node


@I.ir_module
class Script:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")):
        with R.dataflow():
            hidden = R.matmul(x, w)
            doubled = R.add(hidden, hidden)
            active = R.nn.relu(doubled)
            parts = R.split(active, 2, axis=1)
            first = parts[0]
            out = R.exp(first)
            R.output(out)
        return out


def kernels(executable: VMExecutable) -> dict[str, str | None]:
    """The variable of each call of a kernel, by the end of the kernel's name."""
    found = {}
    assert executable.debug is not None
    for pc, instruction in executable.instructions("main"):
        if instruction.op.code == Opcode.CALL:
            name = executable.functions[instruction["func_idx"]].name
            if name.startswith("relaxvm.kernel."):
                found[name.rpartition(".")[2]] = executable.debug.variable(pc)
    return found


EXPECTED = {"matmul": "hidden", "add": "doubled", "relu": "active", "split": "parts", "exp": "out"}


@pytest.mark.parametrize("pipeline", ["default", "zero then default"])
def test_kernels_have_the_names_of_the_script(pipeline: str) -> None:
    mod = Script if pipeline == "default" else relaxvm.get_pipeline("zero")(Script)
    executable = relaxvm.build(mod)
    found = kernels(executable)
    for kernel, name in found.items():
        # A fused kernel has the name of its result, and those of its other operators as parts.
        assert name == EXPECTED.get(kernel, "active")
    if "fused" in found:
        (fused,) = [place for place in executable.debug or () if place.parts]
        assert fused.variable == "active"
        ((span, variable),) = fused.parts
        assert variable == "doubled"
        assert span is not None
        assert fused.span is not None
        assert span.line == fused.span.line - 1
    assert {"matmul", "exp"} <= set(found)
    again = relaxvm.loads(executable.to_bytes())
    assert kernels(again) == found


def chain() -> relaxvm.IRModule:
    """A chain of elementwise operators without places."""
    builder = BlockBuilder()
    x = Var("x", TensorType((200, 200), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            logarithm = builder.emit(CONSTRUCTORS["log"](x), "logarithm")
            doubled = builder.emit(CONSTRUCTORS["add"](logarithm, logarithm), "doubled")
            out = builder.emit_output(CONSTRUCTORS["exp"](doubled), "out")
        builder.emit_func_output(out)
    return builder.get()


def test_names_of_fused_operators_without_places() -> None:
    executable = relaxvm.build(chain(), relax_pipeline="model")
    assert executable.debug is not None
    (fused,) = [place for place in executable.debug if place.parts]
    assert fused[1:] == (None, "out", ((None, "logarithm"), (None, "doubled")))
    assert "#   with logarithm, doubled" in executable._repr_html_()
    for again in (
        relaxvm.loads(executable.to_bytes()),
        relaxvm.parse_text(executable.as_text(complete=True)),
    ):
        assert again.debug == executable.debug
    names: dict[str, Any] = {}
    exec(executable.as_python(), names)
    assert names["ex"].debug == executable.debug
    vm = relaxvm.VirtualMachine(executable)
    with np.errstate(all="raise"), pytest.raises(FloatingPointError) as caught:
        vm.main(np.zeros((200, 200), "f4"))
    assert "binding out\n  which also computes logarithm, doubled" in caught.value.__notes__[0]


def test_recognized_and_packed_operators_have_all_names() -> None:
    """What a pass makes of several operators of a network, in C kernels where there are some."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(64, 3, 3, 3)).astype("f4")
    matrix = rng.normal(size=(64, 64)).astype("f4")
    builder = BlockBuilder()
    x = Var("x", TensorType((1, 3, 16, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            conv = builder.emit(R.nn.conv2d(x, R.const(weight), padding=1), "conv")
            bias = R.const(np.ones((1, 64, 1, 1), "f4"))
            biased = builder.emit(R.add(conv, bias), "biased")
            active = builder.emit(R.nn.relu(biased), "active")
            pooled = builder.emit(R.mean(active, [2, 3]), "pooled")
            product = builder.emit(R.matmul(pooled, R.const(matrix)), "product")
            total = builder.emit(R.add(product, R.const(np.ones(64, "f4"))), "total")
            gate = builder.emit(R.sigmoid(total), "gate")
            swish = builder.emit_output(R.multiply(total, gate), "swish")
        builder.emit_func_output(swish)
    mod = builder.get()
    executable = relaxvm.build(mod, relax_pipeline="model")
    assert executable.debug is not None
    found = {place.variable for place in executable.debug}
    found |= {name for place in executable.debug for _, name in place.parts}
    assert {"conv", "biased", "active", "pooled", "product", "total", "gate", "swish"} <= found


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
@pytest.mark.parametrize("pipeline", [None, "model"])
def test_floating_point_warnings_name_the_variable(exec_mode: Any, pipeline: Any) -> None:
    options = {} if pipeline is None else {"relax_pipeline": pipeline}
    vm = relaxvm.VirtualMachine(relaxvm.build(chain(), exec_mode=exec_mode, **options))
    variable = "logarithm" if pipeline is None else "out"
    message = rf"divide by zero encountered in log \(main, pc \d+: {variable}\)"
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match=message) as caught:
            vm.main(np.zeros((200, 200), "f4"))
        assert len(caught) == 1
        assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vm.main(np.ones((200, 200), "f4"))
        with pytest.raises(RuntimeWarning, match=message) as raised:
            vm.main(np.zeros((200, 200), "f4"))
    assert any(note.startswith("in main") for note in raised.value.__notes__)


def loud() -> tuple[dict[str, Any], list[np.ndarray]]:
    """Calls that kernels in numpy compute, which overflow or divide integers by zero."""
    x, n = Var("x", TensorType((2, 2), "float32")), Var("n", TensorType((2, 2), "int32"))
    calls = {
        "cumprod": R.cumprod(x, axis=0),
        "einsum": R.einsum((x, x), "ij,kj->ki"),
        "cast": R.astype(x, "float16"),
        "divide": R.divide(n, R.const(np.zeros((2, 2), "int32"))),
    }
    return {name: ([x, n], call) for name, call in calls.items()}, [
        np.full((2, 2), 3e38, "f4"),
        np.ones((2, 2), "i4"),
    ]


@pytest.mark.parametrize("name", ["cumprod", "einsum", "cast", "divide"])
def test_warnings_of_kernels_in_numpy_name_the_variable(name: str) -> None:
    calls, arguments = loud()
    parameters, call = calls[name]
    builder = BlockBuilder()
    with builder.function("main", parameters):
        with builder.dataflow():
            result = builder.emit_output(call, "result")
        builder.emit_func_output(result)
    vm = relaxvm.VirtualMachine(relaxvm.build(builder.get()))
    message = rf"(overflow|divide by zero) encountered in {name} \(main, pc \d+: result\)"
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match=message) as caught:
            vm.main(*arguments)
        assert len(caught) == 1
        assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with np.errstate(all="ignore"):
            vm.main(*arguments)
        with np.errstate(all="raise"), pytest.raises(FloatingPointError) as raised:
            vm.main(*arguments)
        assert any(note.startswith("in main") for note in raised.value.__notes__)
        heard: list[str] = []
        with np.errstate(all="call", call=lambda words, status: heard.append(words)):
            vm.main(*arguments)
        assert heard
        assert set(heard) <= {"overflow", "divide by zero"}
    some = np.errstate(divide="warn", over="warn", under="ignore", invalid="ignore")
    with some, pytest.warns(RuntimeWarning, match=message):
        vm.main(*arguments)
    assert np.geterr()["over"] == "warn"
    assert np.geterrcall() is None


def test_warnings_of_instrumented_runs_name_the_variable() -> None:
    """While an instrument is set, ufuncs are called by Python."""
    vm = relaxvm.VirtualMachine(relaxvm.build(chain()))
    seen: list[str] = []
    vm.set_instrument(lambda func, name, before, ret, *args: seen.append(name))
    message = r"divide by zero encountered in log \(main, pc \d+: logarithm\)"
    with pytest.warns(RuntimeWarning, match=message) as caught:
        vm.main(np.zeros((200, 200), "f4"))
    assert [each.filename for each in caught] == [__file__]
    assert "relaxvm.kernel.log" in seen


def test_warnings_of_kernels_in_numpy_outside_of_a_run() -> None:
    kernel = GLOBAL.get("relaxvm.kernel.cumprod")
    with pytest.warns(RuntimeWarning, match="overflow encountered in cumprod$") as caught:
        kernel(np.full(4, 3e38, "f4"), None, False, np.empty(4, "f4"))
    assert caught[0].filename == __file__


def test_warnings_of_kernels_that_are_called_inside_of_others() -> None:
    """A function of Python that a program calls, and which runs another program."""
    inner = relaxvm.VirtualMachine(relaxvm.build(chain()))
    builder = ExecBuilder()
    with builder.function("outer", num_inputs=1):
        builder.emit_call("work", [builder.r(0)], dst=builder.r(1))
        builder.emit_ret(builder.r(1))
    vm = relaxvm.VirtualMachine(builder.get(), functions={"work": lambda x: inner.main(x)})
    with pytest.warns(RuntimeWarning, match=r"in log \(main, pc \d+: logarithm\)") as caught:
        vm["outer"](np.zeros((200, 200), "f4"))
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_warnings_in_threads_name_their_own_programs() -> None:
    vm = relaxvm.VirtualMachine(relaxvm.build(chain()))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        threads = [Thread(target=vm.main, args=(np.zeros((200, 200), "f4"),)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(caught) == 8
    assert all("(main, pc " in str(each.message) for each in caught)


def test_names_of_a_block_builder() -> None:
    builder = BlockBuilder()
    x = Var("x", TensorType((2, 2), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            squared = builder.emit(CONSTRUCTORS["matmul"](x, x), "squared")
            result = builder.emit_output(CONSTRUCTORS["exp"](squared), "result")
        builder.emit_func_output(result)
    assert kernels(relaxvm.build(builder.get())) == {"matmul": "squared", "exp": "result"}


def test_decompiled_code_and_listings_have_the_names() -> None:
    executable = relaxvm.build(Script)
    text = relaxvm.decompile(executable, "main")
    assert 'R.call_packed("relaxvm.kernel.matmul", x, w, hidden)' in text
    assert "alloc =" not in text


def test_an_in_place_result_keeps_its_own_name() -> None:
    executable = relaxvm.build(Script)
    calls = [i for _, i in executable.instructions("main") if i.op.code == Opcode.CALL]
    add = next(i for i in calls
               if executable.functions[i["func_idx"]].name == "relaxvm.kernel.add")  # fmt: skip
    assert add.args[0] == add.args[-1], "the sum is written into its input"
    assert kernels(executable)["add"] == "doubled"


# Models


@pytest.fixture
def path(tmp_path: Path) -> Path:
    nodes = [
        node("MatMul", "x w", "hidden"),
        node("Add", "hidden b", "layer/biased:0", name="add 1"),
        node("Relu", "layer/biased:0", "out"),
    ]
    inputs = {"x": (FLOAT, ["batch", 2]), "w": (FLOAT, [2, 2]), "b": (FLOAT, ["wide"])}
    file = tmp_path / "net.onnx"
    file.write_bytes(model_of(nodes, inputs, ["out"]).SerializeToString())
    return file


def test_kernels_have_the_names_of_the_nodes(path: Path) -> None:
    executable = relaxvm.compile(path)
    names = set(kernels(executable).values())
    assert {"hidden", "out"} <= names
    assert executable.debug is not None
    places = [executable.debug.span(pc) for pc in range(len(executable))]
    own = {place.file for place in places if place is not None}
    assert {Path(file).name for file in own} == {"net.onnx"}


def test_errors_show_the_node(path: Path) -> None:
    vm = relaxvm.VirtualMachine(path)
    x = np.ones((3, 2), "float32")
    with pytest.raises(ValueError, match="expected shapes that broadcast") as caught:
        vm.main(x, x[:2], np.ones(3, "float32"))
    notes = "\n".join(caught.value.__notes__)
    assert "net.onnx:2" in notes
    assert "Relu: layer/biased:0 -> out" in notes
    assert "which also computes layer_biased_0 at" in notes
    assert "Add 'add 1': hidden, b -> layer/biased:0" in notes


def test_profiles_by_node(path: Path, capsys: Any) -> None:
    vm = relaxvm.VirtualMachine(path)
    x = np.ones((3, 2), "float32")
    with profile(vm) as seen:
        vm.main(x, x[:2], x[0])
        vm.main(x, x[:2], x[0])
    lines = {row.text: row for row in seen.lines}
    row = lines["MatMul: x, w -> hidden"]
    assert row.count % 2 == 0
    assert row.self_ns > 0
    assert row.source.endswith("net.onnx:1")
    total = sum(each.self_ns for each in seen.lines)
    assert total <= seen.results.wall_ns
    add = "Add 'add 1': hidden, b -> layer/biased:0"
    assert lines["Relu: layer/biased:0 -> out"].parts == (add,), "one kernel for both"
    assert row.parts == ()
    assert f"  with {add}\n" in seen.table(by="line")
    assert seen.to_csv(by="line").startswith("source,text,count")
    assert {each["text"] for each in seen.to_dict()["lines"]} == set(lines)
    options = ["--random", "--dim", "batch=4", "--dim", "wide=2", "--profile"]
    assert main(["run", str(path), *options]) == 0
    assert "MatMul: x, w -> hidden" in capsys.readouterr().out


def test_errors_name_symbolic_dimensions() -> None:
    @I.ir_module
    class Two:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32"), y: R.Tensor(("n", 8), "float32")):
            return R.add(x, y)

    vm = relaxvm.VirtualMachine(relaxvm.build(Two))
    x = np.ones((3, 8), "float32")
    expected = r"dimension 0 of float32\[2, 8\]: expected 3 \(n\), got 2"
    with pytest.raises(RuntimeError, match=expected) as caught:
        vm.main(x, x[:2])
    assert "n = 3, set by argument x axis 0 (pc 3)" in "\n".join(caught.value.__notes__)


# Dimensions in errors of kernels


@I.ir_module
class Product:
    """A product whose inner dimensions only the kernel compares."""

    @R.function
    def main(x: R.Tensor(("n", "k"), "float32"), w: R.Tensor(("m", "p"), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.relu(y)
            R.output(z)
        return z


def product_of_block_builder() -> Any:
    n, k, m, p = (relaxvm.tir.Var(name, "int64") for name in "nkmp")
    x, w = Var("x", TensorType([n, k], "float32")), Var("w", TensorType([m, p], "float32"))
    bb = BlockBuilder()
    with bb.function("main", [x, w]):
        with bb.dataflow():
            out = bb.emit_output(bb.emit(op.matmul(x, w)))
        bb.emit_func_output(out)
    return bb.finalize()


def product_of_onnx() -> Any:
    return model_of(
        [node("MatMul", "x w", "y")],
        {"x": (FLOAT, ["n", "k"]), "w": (FLOAT, ["m", "p"])},
        ["y"],
    )


def kernel_note(vm: Any, *args: Any) -> str:
    with pytest.raises((ValueError, IndexError)) as caught:
        vm.main(*args)
    (note,) = caught.value.__notes__
    return note


TALL, WIDE = np.ones((3, 4), "float32"), np.ones((5, 6), "float32")
WHERE = (
    "\n  where n = 3 (axis 0 of x), k = 4 (axis 1 of x), m = 5 (axis 0 of w), p = 6 (axis 1 of w)"
)


@pytest.mark.parametrize(
    "program", [lambda: Product, product_of_block_builder, product_of_onnx],
    ids=["script", "block builder", "onnx"],
)  # fmt: skip
@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_errors_of_kernels_name_dimensions(program: Any, exec_mode: str) -> None:
    vm = relaxvm.VirtualMachine(relaxvm.compile(program(), exec_mode=exec_mode))
    note = kernel_note(vm, TALL, WIDE)
    assert "call relaxvm.kernel.matmul" in note
    assert WHERE in note
    assert vm.main(TALL, WIDE[:4]).shape == (3, 6)


@pytest.mark.parametrize(
    "options",
    [
        {"limits": relaxvm.Limits(fuel=1000, wall_time=10)},
        {"optimize": False},
        {"executor": "dataflow", "threads": 2},
    ],
    ids=["limits", "unoptimized", "dataflow"],
)
def test_errors_of_kernels_name_dimensions_on_every_machine(options: dict[str, Any]) -> None:
    vm = relaxvm.VirtualMachine(relaxvm.build(Product), **options)
    assert WHERE in kernel_note(vm, TALL, WIDE)


def test_errors_of_kernels_name_dimensions_under_hooks_and_in_runs() -> None:
    vm = relaxvm.VirtualMachine(relaxvm.build(Product))
    run = vm["main"].start(TALL, WIDE)
    with pytest.raises(ValueError, match="dimension") as caught:
        run.finish()
    assert WHERE in caught.value.__notes__[0]
    vm.set_instrument(lambda *args: None)
    assert WHERE in kernel_note(vm, TALL, WIDE)


def test_errors_of_kernels_name_dimensions_of_exported_programs() -> None:
    fixture = torch_fixtures.load("attending")
    x, positions = fixture.calls[0].args
    vm = relaxvm.VirtualMachine(relaxvm.compile(fixture.archive))
    note = kernel_note(vm, x, positions + 1_000)
    assert "\n  where s27 = 3 (axis 1 of x)" in note


def test_each_frame_names_its_own_dimensions() -> None:
    @I.ir_module
    class Nested:
        @R.function
        def inner(a: R.Tensor(("r", 4), "float32"), b: R.Tensor(("q", 2), "float32")):
            return R.matmul(a, b)

        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor(("m", 2), "float32")):
            both = R.concat([x, x], axis=0)
            got = Nested.inner(both, w)
            return R.add(got, got)

    vm = relaxvm.VirtualMachine(relaxvm.build(Nested))
    with pytest.raises(ValueError, match="matmul") as caught:
        vm.main(TALL, np.ones((5, 2), "float32"))
    inner, outer = caught.value.__notes__
    assert "\n  where r = 6 (axis 0 of a), q = 5 (axis 0 of b)" in inner
    assert "\n  where n = 3 (axis 0 of x), m = 5 (axis 0 of w)" in outer


def test_only_dimensions_of_the_branch_that_ran_are_named() -> None:
    @I.ir_module
    class Branches:
        @R.function
        def main(c: R.Prim("bool"), x: R.Tensor(ndim=2, dtype="float32"),
                 w: R.Tensor(ndim=2, dtype="float32")):  # fmt: skip
            first, k, second, j = T.int64(), T.int64(), T.int64(), T.int64()
            if c:
                left = R.match_cast(x, R.Tensor((first, k), "float32"))
                got: R.Tensor(ndim=2, dtype="float32") = R.matmul(left, w)
            else:
                right = R.match_cast(x, R.Tensor((second, j), "float32"))
                got: R.Tensor(ndim=2, dtype="float32") = R.matmul(right, w)
            return R.matmul(got, w)

    vm = relaxvm.VirtualMachine(relaxvm.build(Branches))
    assert "\n  where first = 3 (axis 0 of x), k = 4 (axis 1 of x), w_0 = 5" in kernel_note(
        vm, True, TALL, WIDE
    )
    assert "\n  where second = 3 (axis 0 of x), j = 4 (axis 1 of x), w_0 = 5" in kernel_note(
        vm, False, TALL, WIDE
    )
    # What a branch has learned is not told of what comes after.
    note = kernel_note(vm, True, TALL, np.ones((4, 6), "float32"))
    assert "\n  where got_0 = 3 (axis 0 of got), got_1 = 6 (axis 1 of got), w_0 = 4" in note
    assert "first" not in note


def test_of_many_dimensions_those_of_the_arguments_are_named() -> None:
    names = ["".join(pair) for pair in zip("abcdefghij", "abcdefghij", strict=True)]
    model = model_of(
        [node("Relu", "big", "r"), node("MatMul", "x w", "y")],
        {"big": (FLOAT, names), "x": (FLOAT, ["n", "k"]), "w": (FLOAT, ["m", "p"])},
        ["r", "y"],
    )
    vm = relaxvm.VirtualMachine(relaxvm.compile(model))
    note = kernel_note(vm, np.ones((2,) * 10, "float32"), TALL, WIDE)
    where = next(line for line in note.splitlines() if "where" in line)
    assert where == WHERE.removeprefix("\n") + ", ... 10 more"


def test_computed_dimensions_have_their_formula() -> None:
    @I.ir_module
    class Twice:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n * 2", "m"), "float32")):
            return R.matmul(x, y)

    vm = relaxvm.VirtualMachine(relaxvm.build(Twice))
    note = kernel_note(vm, TALL, np.ones((6, 1), "float32"))
    assert "n = 3 (axis 0 of x)" in note
    assert "m = 1 (axis 1 of y)" in note


def test_a_heap_of_another_kind_is_left_out() -> None:
    """A program of a file may put anything where its shape heap was."""
    b = ExecBuilder()
    with b.function("main", num_inputs=2, param_names=["x", "y"]):
        b.emit_call("vm.builtin.alloc_shape_heap", [b.vm_state(), b.imm(2)], dst=b.r(2))
        b.emit_call("vm.builtin.match_shape", [
            b.r(0), b.r(2), b.imm(1), b.imm(1), b.imm(0),
            b.convert_constant("ErrorContext(param=x, annotation=R.Tensor((n,)))"),
        ])
        b.emit_call("vm.builtin.copy", [b.r(1)], dst=b.r(2))
        b.emit_call("t.fail", [b.r(0)], dst=b.r(3))
        b.emit_ret(b.r(3))

    def fail(x: Any) -> Any:
        raise ValueError("no")

    vm = relaxvm.VirtualMachine(b.get(), functions={"t.fail": fail})
    x = np.ones(3)
    assert "where" not in kernel_note(vm, x, "a")
    assert "where" not in kernel_note(vm, x, np.zeros((2, 2)))
    assert "where" not in kernel_note(vm, x, np.zeros(0, np.int64))
