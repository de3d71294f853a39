"""Several programs in one executable."""

from __future__ import annotations

import json

import numpy as np
import pytest

import relaxvm
from relaxvm import ExecBuilder, VirtualMachine, VMExecutable, cli
from relaxvm.builtins._homes import BUILTINS
from relaxvm.cli.exits import Exit
from relaxvm.errors import LinkError
from relaxvm.executable.combining import STATE_NAMES, link
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

from .corpus import CORPUS
from .serving import programs

X = np.arange(8, dtype=np.float32).reshape(2, 4)


@I.ir_module
class _PrimFuncs:
    """Kernels of its own, with names that others may have."""

    @T.prim_func
    def scale(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("b"):
                v = T.axis.spatial(4, i)
                y[v] = x[v] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = _PrimFuncs
        with R.dataflow():
            y = R.call_tir(cls.scale, (x,), out_ty=R.Tensor((4,), "float32"))
            R.output(y)
        return y


@I.ir_module
class _OtherPrimFuncs:
    @T.prim_func
    def scale(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("b"):
                v = T.axis.spatial(4, i)
                y[v] = x[v] * T.float32(3)

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = _OtherPrimFuncs
        with R.dataflow():
            y = R.call_tir(cls.scale, (x,), out_ty=R.Tensor((4,), "float32"))
            R.output(y)
        return y


def weighted(weights: np.ndarray) -> VMExecutable:
    """Adds weights to its argument."""
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1, param_names=["x"]):
        args = [eb.r(0), eb.convert_constant(weights), eb.void_arg(),
                eb.convert_constant("float64")]  # fmt: skip
        eb.emit_call("relaxvm.result.add", args=args, dst=eb.r(1))
        eb.emit_ret(eb.r(1))
    return eb.get()


def test_functions_get_prefixes_and_do_what_they_did() -> None:
    linked = link({"double": programs.double(), "add": programs.add(), "": programs.shapes()})
    vm = VirtualMachine(linked)
    np.testing.assert_array_equal(vm["double.main"](X, X), 4 * X)
    assert vm["add.main"](np.arange(3), np.array(40)).tolist() == [40, 41, 42]
    assert vm["main"](X)[0] == (2, 4)
    names = [info.name for info in linked]
    assert len(names) == len(set(names))


def test_all_programs_of_the_corpus_can_be_linked() -> None:
    """Twice each, so that all numbers of functions and constants move."""
    executables = {name: entry.executable for name, entry in CORPUS.items()}
    twice = {
        f"{copy}{name}": each for copy in "ab" for name, each in executables.items()
        if all(info.kind != relaxvm.FuncKind.COMPILED for info in each)
    }  # fmt: skip
    linked = link(twice)
    assert relaxvm.verify(linked).ok
    assert relaxvm.parse_text(linked.as_text(complete=True)) == linked
    for prefix, executable in twice.items():
        for info in executable:
            if info.kind == relaxvm.FuncKind.PACKED:
                continue
            mine = linked.function(f"{prefix}.{info.name}")
            assert mine.param_names == info.param_names
            both = zip(linked.instructions(mine), executable.instructions(info), strict=True)
            for (_, new), (_, old) in both:
                assert new.op == old.op
                assert [arg.kind for arg in new.args] == [arg.kind for arg in old.args]


def test_equal_constants_are_there_once() -> None:
    weights = np.random.default_rng(0).random(100)
    linked = link({"a": weighted(weights), "b": weighted(weights.copy()),
                   "c": weighted(weights + 1)})  # fmt: skip
    arrays = [each for each in linked.constants if isinstance(each, np.ndarray)]
    assert len(arrays) == 2
    vm = VirtualMachine(linked)
    x = np.ones(100)
    np.testing.assert_array_equal(vm["b.main"](x), weights + 1)
    np.testing.assert_array_equal(vm["c.main"](x), weights + 2)


def test_each_program_has_its_own_state() -> None:
    vm = VirtualMachine(link({"a": programs.counter(), "b": programs.counter()}))
    one = np.ones(1, np.float32)
    assert [vm["a.main"](one)[0], vm["a.main"](one)[0], vm["b.main"](one)[0]] == [1, 2, 1]
    assert set(vm.state) == {"a.count", "b.count"}


def test_all_builtins_with_names_of_state_are_known() -> None:
    """Those of the module of state that take the machine and a name."""
    found = {}
    for name in BUILTINS["state"]:
        signature = relaxvm.registry.GLOBAL.lookup(name).signature
        kinds = [(param.name, param.kinds) for param in signature.params]
        if ("ctx", {"vm"}) in kinds and ("name", {"str"}) in kinds:
            found[name] = kinds.index(("name", {"str"}))
    assert found == STATE_NAMES


def test_prim_funcs_of_one_name() -> None:
    first, second = relaxvm.build(_PrimFuncs), relaxvm.build(_OtherPrimFuncs)
    linked = link({"a": first, "b": second, "c": first})
    assert sorted(linked.prim_funcs) == ["b.scale", "scale"]
    x = np.arange(4, dtype=np.float32)
    for vm in (VirtualMachine(linked), VirtualMachine(relaxvm.loads(linked.to_bytes()))):
        np.testing.assert_array_equal(vm["a.main"](x), 2 * x)
        np.testing.assert_array_equal(vm["b.main"](x), 3 * x)
        np.testing.assert_array_equal(vm["c.main"](x), 2 * x)


def test_errors_name_the_lines_of_each_program() -> None:
    linked = link({"a": programs.double(), "b": programs.total()})
    vm = VirtualMachine(linked)
    with pytest.raises(Exception, match="expected") as caught:
        vm["b.main"](np.ones((2, 3), np.float32))
    assert any("b.main" in note for note in getattr(caught.value, "__notes__", [str(caught.value)]))
    lines = [linked.debug.span(pc) for pc in range(len(linked))]
    own = [programs.total().debug.span(pc) for pc in range(len(programs.total()))]
    assert lines[-len(own):] == own  # fmt: skip
    assert any(own)


def test_texts_of_one_file_name_are_kept_apart() -> None:
    def made(text: str) -> VMExecutable:
        debug = relaxvm.DebugInfo.of(
            [(0, relaxvm.Span("<script>", 1, 1, 1, 3), "x")], {"<script>": text}
        )
        return weighted(np.ones(2)).with_debug(debug)

    linked = link({"a": made("first"), "b": made("second"), "c": made("first")})
    found = []
    for name in "abc":
        pc = linked.function(f"{name}.main").start_instr
        span = linked.debug.span(pc)
        found.append((span.file, linked.debug.line(span.file, 1)))
    assert found == [("<script>", "first"), ("b:<script>", "second"), ("<script>", "first")]


@pytest.mark.parametrize(
    ("executables", "error", "message"),
    [
        ({}, ValueError, r"link: expected executables, got none"),
        ({1: None}, TypeError, r"link: expected a prefix as text, got int 1"),
        ({"a": b"x"}, TypeError, r"link: a: expected a VMExecutable, got bytes"),
    ],
)
def test_other_arguments_are_refused(executables: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        link(executables)


def test_functions_of_one_name_are_refused() -> None:
    eb = ExecBuilder()
    with eb.function("b.main", num_inputs=1):
        eb.emit_ret(eb.r(0))
    with pytest.raises(ValueError, match=r"a\.b and a both have a function a\.b\.main"):
        link({"a": eb.get(), "a.b": programs.double()})


def calling(packed: str, *args: str) -> VMExecutable:
    """Passes its argument to a packed function."""
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1):
        given = [eb.r(0), *(eb.convert_constant(each) for each in args)]
        eb.emit_call(packed, args=given, dst=eb.r(1))
        eb.emit_ret(eb.r(1))
    return eb.get()


@pytest.mark.parametrize("prefixes", ["ab", "ba"])
def test_a_packed_function_is_not_one_of_the_programs(prefixes: str) -> None:
    """One that the caller gives, under the name that a function of another program gets."""
    executables = {"a": programs.double(), "b": calling("a.main")}
    with pytest.raises(ValueError, match=r"link: [ab]: a\.main would be a function"):
        link({prefix: executables[prefix] for prefix in prefixes})


@pytest.mark.parametrize("prefixes", ["ab", "ba"])
def test_a_packed_function_is_not_a_prim_func_of_another_program(prefixes: str) -> None:
    executables = {"a": relaxvm.build(_PrimFuncs), "b": calling("scale")}
    linked = link({prefix: executables[prefix] for prefix in prefixes})
    x = np.arange(4, dtype=np.float32)
    with pytest.raises(LinkError, match=r"'scale', used by b\.main"):
        VirtualMachine(linked)
    vm = VirtualMachine(linked, functions={"scale": lambda x: 100 * x})
    np.testing.assert_array_equal(vm["a.main"](x), 2 * x)
    np.testing.assert_array_equal(vm["b.main"](x), 100 * x)


def keeping(name: str) -> VMExecutable:
    """Writes its argument to ``vm.state``."""
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1):
        args = [eb.vm_state(), eb.convert_constant(name), eb.r(0)]
        eb.emit_call("relaxvm.builtin.state_write", args=args)
        eb.emit_ret(eb.r(0))
    return eb.get()


@pytest.mark.parametrize("executables", [{"a": "b.x", "a.b": "x"}, {"": "b.x", "b": "x"}])
def test_state_of_one_name_is_refused(executables: dict[str, str]) -> None:
    """Two programs would change each other's state."""
    with pytest.raises(ValueError, match=r"link: a?\.?b and .* both keep (a\.)?b\.x; choose"):
        link({prefix: keeping(name) for prefix, name in executables.items()})


def test_native_code_is_refused(tmp_path) -> None:
    path = tmp_path / "it.vmexec"
    relaxvm.build(_PrimFuncs).export_library(path, native=False)
    stored = relaxvm.executable.formats.binary.load(path)
    with pytest.raises(ValueError, match=r"link: a: the file has native code of kernels"):
        link({"a": stored})


def test_the_command(tmp_path, capsys) -> None:
    for name, executable in (("double", programs.double()), ("shapes", programs.shapes())):
        executable.save(tmp_path / f"{name}.vmexec")
    output = tmp_path / "both.vmexec"
    files = [f"d={tmp_path / 'double.vmexec'}", f"s={tmp_path / 'shapes.vmexec'}"]
    assert cli.main(["link", *files, "-o", str(output), "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["functions"] == ["d.main", "s.main"]
    np.testing.assert_array_equal(VirtualMachine(output)["d.main"](X, X), 4 * X)


def test_a_file_is_not_overwritten_by_what_is_made_of_it(tmp_path, capsys) -> None:
    path = tmp_path / "it.vmexec"
    programs.double().save(path)
    before = path.read_bytes()
    assert cli.main(["link", f"a={path}", f"b={path}", "-o", str(path)]) == Exit.USAGE
    assert "would be overwritten; choose another --output" in capsys.readouterr().err
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["file"], "file: expected PREFIX=FILE"),
        (["a={0}", "a={0}"], "two files have the prefix a"),
        (["a={0}", "b=no.file"], "no.file"),
    ],
)
def test_wrong_files(tmp_path, capsys, files: list[str], message: str) -> None:
    path = tmp_path / "it.vmexec"
    programs.double().save(path)
    given = [each.format(path) for each in files]
    assert cli.main(["link", *given, "-o", str(tmp_path / "out")]) != Exit.OK
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
