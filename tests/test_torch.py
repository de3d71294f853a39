"""Programs of torch.export through the public doors, and what is refused."""

from __future__ import annotations

import inspect
import io
import json
import os
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.errors import LimitError, RelaxVMError
from relaxvm.frontend.common.emitter import Problem
from relaxvm.frontend.torch import from_exported_program
from relaxvm.frontend.torch.operators import complex_numbers

from . import children
from .torch_fixtures import load


def archive(name: str = "writing") -> bytes:
    return load(name).archive


def edited(data: bytes, change: Callable[[dict[str, Any]], None], **others: bytes) -> bytes:
    """An archive whose program is changed, and other members replaced by the end of their names."""
    found = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(found, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if "/models/" in name:
                program = json.loads(content)
                change(program)
                content = json.dumps(program).encode()
            member = zipfile.ZipInfo(name)  # without the time of day
            new.writestr(member, others.get(name.rpartition("/")[2], content))
    return found.getvalue()


def same(program: dict[str, Any]) -> None:
    """No change."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "model.pt2"
    found.write_bytes(archive())
    return found


# Doors


def test_a_vm_takes_the_path(path: Path) -> None:
    call = load("writing").calls[0]
    got, _ = relaxvm.VirtualMachine(str(path)).main(call.args[0])
    np.testing.assert_allclose(got, call.result[0], rtol=1e-5)


def test_compile_takes_the_path_and_the_bytes(path: Path) -> None:
    call = load("writing").calls[0]
    for source in (path, archive()):
        vm = relaxvm.VirtualMachine(relaxvm.compile(source))
        np.testing.assert_allclose(vm.main(call.args[0])[0], call.result[0], rtol=1e-5)


def test_programs_are_compiled_as_models() -> None:
    """Passes for models find attention; the program says which torch has written it."""
    executable = relaxvm.compile(archive("shared_heads"), cache=False)
    assert "nn.attention" in executable.as_text()
    assert executable.model is not None
    assert executable.model.producer == "pytorch"
    assert executable.model.producer_version.startswith("2.")


def test_compile_takes_options() -> None:
    call = load("counting").calls[0]
    vm = relaxvm.VirtualMachine(relaxvm.compile(archive("counting"), functional=True))
    (_, _), (count, x) = vm.main(*call.args, np.zeros(2, "f4"))
    np.testing.assert_array_equal(count, [1, 1])
    np.testing.assert_array_equal(x, call.after[0])
    assert vm.state == {}


def test_weights_are_mapped_into_memory(path: Path) -> None:
    module = from_exported_program(path)
    from relaxvm.ir import Constant
    from relaxvm.ir.visitor import post_order_visit

    arrays = []
    post_order_visit(
        module["main"].body, lambda e: arrays.append(e.data) if isinstance(e, Constant) else None
    )
    weight = next(array for array in arrays if array.shape == (3,))
    assert not weight.flags.owndata
    assert not weight.flags.writeable


def test_the_state_is_that_of_a_vm() -> None:
    executable = relaxvm.compile(archive("counting"))
    one, other = relaxvm.VirtualMachine(executable), relaxvm.VirtualMachine(executable)
    x = np.ones((2, 2), "f4")
    one.main(x.copy(), 3)
    one.main(x.copy(), 3)
    other.main(x.copy(), 3)
    assert (one.state["count"][0], other.state["count"][0]) == (2, 1)
    one.state["count"] = np.full(2, 7, "f4")
    _, count = one.main(x.copy(), 3)
    np.testing.assert_array_equal(count, [8, 8])
    one.state.clear()
    np.testing.assert_array_equal(one.main(x.copy(), 3)[1], [1, 1])
    one.state["count"] = np.full(3, 7, "f4")
    with pytest.raises(TypeError, match=r"vm.state\['count'\]: expected float32\[2\], got float32"):
        one.main(x.copy(), 3)


def test_rows_of_buffers_are_written_in_place() -> None:
    fixture = load("attending")
    vm = relaxvm.VirtualMachine(relaxvm.compile(fixture.archive))
    assert "relaxvm.builtin.put" in {each.name for each in vm.executable.functions}
    vm.main(*fixture.calls[0].args)
    rows = vm.state["rows"]
    for call in fixture.calls[1:]:
        vm.main(*call.args)
        assert vm.state["rows"] is rows


def test_results_are_not_memory_of_buffers() -> None:
    fixture = load("copying")
    vm = relaxvm.VirtualMachine(relaxvm.compile(fixture.archive))
    results = [vm.main(*call.args) for call in fixture.calls]
    for _, rows, first, _ in results:
        assert not np.shares_memory(rows, vm.state["rows"])
        assert not np.shares_memory(first, vm.state["rows"])
    with pytest.raises(TypeError, match=r"vm.state\['rows'\]: the program writes to it"):
        vm.state["rows"] = np.zeros((2, 6, 3), "float32")
        vm.state["rows"].flags.writeable = False
        vm.main(*fixture.calls[0].args)


def test_operators_that_complex_numbers_do_not_have_are_listed() -> None:
    def change(program: dict[str, Any]) -> None:
        for node in program["graph_module"]["graph"]["nodes"]:
            node["target"] = node["target"].replace("aten.mul.Tensor", "aten.fmod.Tensor")

    with pytest.raises(RelaxVMError, match=r"1 node has an operator .* supported:\n  aten::fmod"):
        from_exported_program(edited(archive("rotary"), change))


def test_an_einsum_of_complex_numbers_needs_one() -> None:
    """As in a malformed program."""
    with pytest.raises(Problem, match="expected a complex operand, got none"):
        complex_numbers.einsum(None, "->", [])


def test_an_input_that_is_changed_has_to_be_writable() -> None:
    vm = relaxvm.VirtualMachine(relaxvm.compile(archive("counting")))
    x = np.ones((2, 2), "f4")
    x.flags.writeable = False
    with pytest.raises(ValueError, match="x: the program changes this tensor, but it is read-only"):
        vm.main(x, 3)


def test_lengths_are_checked_at_the_entry() -> None:
    vm = relaxvm.VirtualMachine(relaxvm.compile(archive("writing")))
    with pytest.raises(ValueError, match="x: axis 0: expected at most 64, got 65"):
        vm.main(np.ones((65, 4), "f4"))


def test_what_the_program_was_specialized_for_is_checked_at_the_entry() -> None:
    vm = relaxvm.VirtualMachine(relaxvm.compile(archive("specialized")))
    given = {"k": np.ones(3, "f4")}
    assert vm.main(np.ones((6, 4), "f4"), given).shape == (3, 2, 4)
    with pytest.raises(AssertionError, match=r"exported for .*\['x'\].size\(\)\[1\] > \['given'\]"):
        vm.main(np.ones((6, 3), "f4"), given)
    with pytest.raises(AssertionError, match=r"the program was exported for"):
        vm.main(np.ones((7, 4), "f4"), given)


def test_an_input_that_is_a_number_has_its_name() -> None:
    vm = relaxvm.VirtualMachine(relaxvm.compile(archive("derived_dimensions")))
    x, y = np.ones(8, "f4"), np.ones(4, "f4")
    assert vm.main(x, y, n=7)[2:] == (56, 8)
    with pytest.raises(ValueError, match="x: axis 0: s17: expected 3 to 50, got 2"):
        vm.main(x[:4], y[:2], n=7)


def test_structures_are_checked_at_the_entry() -> None:
    vm = relaxvm.VirtualMachine(relaxvm.compile(archive("structured")))
    x = np.ones(3, "f4")
    with pytest.raises(TypeError, match=r"given\['a'\]: expected a list of 1, got tuple of 2"):
        vm.main(x, {"a": [x, x], "b": x}, x, flag=None, z=x)
    with pytest.raises(TypeError, match="flag: the program was exported for None, got int 3"):
        vm.main(x, {"a": [x], "b": x}, x, flag=3, z=x)


def test_parameters_may_be_kept_as_inputs() -> None:
    module = from_exported_program(archive(), keep_params_as_input=True)
    names = [param.name for param in module["main"].params]
    assert names == ["x", "p_layer_weight", "p_layer_bias"]
    assert len(module["main"].attrs["params"]) == 2


def test_a_flat_program_has_the_tensors_of_the_graph() -> None:
    module = from_exported_program(archive("structured"), flat=True)
    names = [param.name for param in module["main"].params]
    assert names[:3] == ["x", "given_a_0", "given_b"]


def test_own_operators_replace_others() -> None:
    def relu(g: Any, self: Any) -> Any:
        return g.op("multiply", self, np.float32(0))

    module = from_exported_program(archive(), operators={"aten::relu": relu})
    y, _ = relaxvm.VirtualMachine(relaxvm.compile(module)).main(np.ones((2, 4), "f4"))
    np.testing.assert_array_equal(y, [[0, 3, 2], [0, 3, 2]])


def run(*args: str) -> children.CompletedProcess[str]:
    return children.run([sys.executable, "-m", "relaxvm", *args], capture_output=True, text=True)


def test_the_command_line_takes_programs(path: Path) -> None:
    done = run("check", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "a program of torch.export, 9 nodes, schema 8, aten 10, written by torch 2." in (
        done.stdout
    )
    done = run("run", str(path), "--shape", "x=2,4")
    assert done.returncode == 0, done.stderr


# What is refused


def refused(data: bytes, **options: Any) -> str:
    with pytest.raises(RelaxVMError) as caught:
        from_exported_program(data, **options)
    return str(caught.value)


def test_unknown_operators_are_listed_with_the_users_lines() -> None:
    def rename(program: dict[str, Any]) -> None:
        for node in program["graph_module"]["graph"]["nodes"]:
            if "relu_" in node["target"]:
                node["target"] = "torch.ops.my.thing.default"
            if "linear" in node["target"]:
                node["target"] = "torch.ops.aten.no_such.Tensor"

    text = refused(edited(archive(), rename))
    assert "2 nodes have operators that are not supported" in text
    assert "aten::no_such.Tensor, first_steps.py:22 in forward: y = self.layer(x).relu_()" in text
    assert "my::thing.default, first_steps.py:22 in forward" in text


def test_programs_with_vmap_are_refused_with_what_helps() -> None:
    def rename(program: dict[str, Any]) -> None:
        for node in program["graph_module"]["graph"]["nodes"]:
            if "linear" in node["target"]:
                node["target"] = "torch._functorch.predispatch._add_batch_dim"

    text = refused(edited(archive(), rename))
    assert "python::torch._functorch.predispatch._add_batch_dim, first_steps.py:22" in text
    assert "torch.export.save(program.run_decompositions({}), path)" in text


@pytest.mark.parametrize(
    ("member", "content", "message"),
    [
        ("archive_format", b"onnx", "archive_format: expected 'pt2', got 'onnx'"),
        ("archive_version", b"1", "archive_version: expected '0', got '1'"),
        ("byteorder", b"middle", "byteorder: expected 'little' or 'big', got 'middle'"),
        ("weight_0", b"123", "tensor 'layer.weight': its last element is 11, the payload has 3"),
        ("model_weights_config.json", b"{", "model_weights_config.json: expected JSON"),
        ("model_weights_config.json", b"[" * 100_000, "it is nested too deeply"),
        ("model_weights_config.json", b"{}", "expected a field 'config' of PayloadConfig"),
    ],
)
def test_members_are_checked(member: str, content: bytes, message: str) -> None:
    assert message in refused(edited(archive(), same, **{member: content}))


def weights(change: Callable[[dict[str, Any]], None]) -> bytes:
    """An archive whose index of weights is changed at its first entry."""
    name = "model_weights_config.json"
    with zipfile.ZipFile(io.BytesIO(archive())) as old:
        (full,) = [each for each in old.namelist() if each.endswith(name)]
        config = json.loads(old.read(full))
    change(config["config"]["layer.weight"])
    return edited(archive(), same, **{name: json.dumps(config).encode()})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e.update(use_pickle=True), "it is pickled, which is never read"),
        (lambda e: e.update(path_name="custom_obj_0"), "is an object of a class that only torch"),
        (lambda e: e.update(path_name="../x"), "the archive has no data/weights/../x"),
        (lambda e: e["tensor_meta"].update(dtype=99), "there is no data type 99"),
        (lambda e: e["tensor_meta"].update(dtype=True), "expected an integer, got bool True"),
        (lambda e: e["tensor_meta"].update(layout=1), "expected a dense tensor, got layout 1"),
        (lambda e: e["tensor_meta"].update(sizes=[{"as_int": -1}] * 2), "expected numbers >= 0"),
        (lambda e: e["tensor_meta"].update(sizes=[{"as_int": 2**40}] * 2), "its last element is"),
        (lambda e: e["tensor_meta"].update(sizes=[{"as_int": 2**70}] * 2), "integer of 64 bits"),
        (lambda e: e["tensor_meta"].update(sizes=[{"as_int": 2**40}] * 2,
                                           strides=[{"as_int": 0}] * 2), "it would be"),
        (lambda e: e["tensor_meta"].update(sizes=[{"as_int": 3}]), "as many strides as sizes"),
        (lambda e: e["tensor_meta"].update(storage_offset={"as_int": 9}), "its last element is"),
        (lambda e: e["tensor_meta"].update(sizes=[{"as_int": 0}, {"as_int": 2**62}]),
         "sizes of [0, 4611686018427387904] are not supported"),
    ],
)  # fmt: skip
def test_payloads_are_checked(change: Callable[[dict[str, Any]], None], message: str) -> None:
    assert message in refused(weights(change))


def test_the_stride_of_an_axis_of_one_element_may_be_any_number() -> None:
    def change(entry: dict[str, Any]) -> None:
        entry["tensor_meta"].update(sizes=[{"as_int": 1}, {"as_int": 4}],
                                    strides=[{"as_int": 2**62}, {"as_int": 1}])  # fmt: skip

    text = "tensor 'layer.weight': the graph states float32[3, 4], got float32[1, 4]"
    assert text in refused(weights(change))


def at(program: dict[str, Any], *keys: Any) -> Any:
    found: Any = program
    for key in keys:
        found = found[key]
    return found


GRAPH = ("graph_module", "graph")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p["schema_version"].update(major=9), "expected version 8 of the schema, got 9"),
        (lambda p: p["schema_version"].update(major=7), "got 7, as torch 2.13.0+cpu writes it;"),
        (lambda p: p["schema_version"].update(major=True), "it has no version"),
        (lambda p: p.update(news=[1]), "unknown field 'news' of ExportedProgram"),
        (lambda p: at(p, *GRAPH).pop("nodes"), "expected a field 'nodes' of Graph"),
        (lambda p: at(p, *GRAPH, "nodes", 0).update(target=3), "graph.nodes[0].target"),
        (lambda p: at(p, *GRAPH, "nodes", 0, "inputs", 0).update(arg={"as_x": 1}),
         "unknown kind 'as_x' of Argument at graph_module.graph.nodes[0].inputs[0].arg"),
        (lambda p: at(p, *GRAPH, "nodes", 0, "inputs", 0).update(arg={}), "with one field"),
        (lambda p: at(p, *GRAPH, "nodes", 1, "inputs", 0).update(
            arg={"as_tensor": {"name": "nothing"}}), "there is no value 'nothing'"),
        (lambda p: at(p, *GRAPH, "tensor_values", "x", "sizes", 0).update(
            as_expr={"expr_str": "__import__('os')", "hint": None}), "the function __import__ is"),
        (lambda p: at(p, *GRAPH, "tensor_values", "x", "sizes", 0).update(
            as_expr={"expr_str": "(" * 90 + "1" + ")" * 90, "hint": None}), "nested deeper than"),
        (lambda p: at(p, *GRAPH, "tensor_values", "linear").update(dtype=8),
         "result 'linear': expected float64, got float32"),
        # A number with 2**26 digits in 43 characters.
        (lambda p: at(p, *GRAPH, "tensor_values", "x", "sizes", 0).update(
            as_expr={"expr_str": "(" * 7 + "9" + ")**16" * 7, "hint": None}),
         "expected integers of at most 128 bits"),
        (lambda p: at(p, "graph_module", "module_call_graph").clear(), "how it is called"),
        (lambda p: at(p, "graph_module", "module_call_graph", 0, "signature").update(in_spec="[2]"),
         "inputs: expected a structure of version 1"),
        (lambda p: at(p, "graph_module", "module_call_graph", 0, "signature").update(in_spec="{"),
         "inputs: expected JSON"),
    ],
)  # fmt: skip
def test_the_program_is_checked(change: Callable[[dict[str, Any]], None], message: str) -> None:
    assert message in refused(edited(archive(), change))


_FROM_0_TO_3 = r"index: expected numbers from 0 to 3, got"
_TO_2 = r"index: expected numbers from 0 to 2, got"


@pytest.mark.parametrize(
    ("name", "parameter", "wrong", "error", "message"),
    [
        ("indices", "of_gather", -1, IndexError, f"gather: {_FROM_0_TO_3} -1"),
        ("indices", "of_gather", 4, IndexError, f"gather: {_FROM_0_TO_3} 4"),
        ("indices", "of_scatter", -1, IndexError, f"scatter: {_FROM_0_TO_3} -1"),
        ("indices", "of_scatter_add", -4, IndexError, f"scatter_add: {_FROM_0_TO_3} -4"),
        ("indices", "of_scatter_reduce", -1, IndexError, f"scatter_reduce: {_FROM_0_TO_3} -1"),
        ("indices", "of_index_add", -1, IndexError, f"index_add: {_TO_2} -1"),
        ("indices", "of_index_copy", -1, IndexError, f"index_copy: {_TO_2} -1"),
        ("indices", "of_index_reduce", 3, IndexError, f"index_reduce: {_TO_2} 3"),
        ("indices", "of_index_select", -1, IndexError, r"expected 0 <= index < 3, got -1"),
        ("indices", "of_kept", -1, IndexError, f"index_copy: {_TO_2} -1"),
        ("indices", "of_take", -1, IndexError, r"expected 0 <= index < 12, got -1"),
        ("indices", "from_end", -4, IndexError, r"expected -3 <= index < 3, got -4"),
        ("indices", "places", -5, IndexError, r"expected -4 <= index < 4, got -5"),
        ("classes", "of_nll_loss", -1, IndexError, r"target: expected numbers from 0 to 3, got -1"),
        ("classes", "of_cross_entropy", -100, IndexError, r"target: .* 0 to 3, got -100"),
        ("classes", "of_margin", 4, IndexError, r"target: expected numbers from 0 to 3, got 4"),
        ("classes", "of_one_hot", 4, IndexError, r"one_hot: class: .* 0 to 3, got 4"),
        ("classes", "of_one_hot", -1, IndexError, r"one_hot: class: .* 0 to 3, got -1"),
        ("classes", "of_bincount", -2, IndexError, r"bincount: expected at least 0, got -2"),
        ("classes", "of_repeats", -1, IndexError, r"repeat_interleave: .* at least 0, got -1"),
        ("classes", "of_places", 8, IndexError, r"max_unpool2d: .* from 0 to 7, got 8"),
        ("classes", "mask", True, IndexError, r"expected 0 <= index < 2, got"),
        *[("divisors", f"of_{each}", 0, ZeroDivisionError,
           f"{'div' if each == 'trunc' else each}: division of integers by zero")
          for each in ("floor_divide", "div", "trunc", "remainder", "fmod")],
        ("divisors", "of_number", 0, ZeroDivisionError, "division of integers by zero"),
    ],
)  # fmt: skip
def test_elements_that_torch_refuses(
    name: str, parameter: str, wrong: Any, error: type[Exception], message: str
) -> None:
    fixture = load(f"refused_{name}")
    vm = relaxvm.VirtualMachine(relaxvm.compile(fixture.archive))
    parameters = [each.name for each in inspect.signature(vm.main).parameters.values()]
    args = [np.array(each) for each in fixture.calls[0].args]
    args[parameters.index(parameter)].flat[-3:] = wrong
    with pytest.raises(error, match=message) as raised:
        vm.main(*args)
    assert "refused.py" in str(raised.value.__notes__)


@pytest.mark.parametrize(
    ("guard", "fits"),
    [
        ("torch.sym_max(L['x'].size()[0], 5) < 9", [3, 7]),
        ("torch.sym_min(L['x'].size()[0], 9) > 4", [7, 12]),
        ("math.trunc(L['x'].size()[0] / 3) == 2", [7]),
        ("L['x'].size()[0] % 4 != 3 or not L['x'].size()[1] == 4", [12]),
    ],
)
def test_guards_are_checked(guard: str, fits: list[int]) -> None:
    data = edited(archive("writing"), lambda program: program.update(guards_code=[guard]))
    vm = relaxvm.VirtualMachine(relaxvm.compile(data))
    text = re.escape(guard.replace("L[", "["))
    for length in (3, 7, 12):
        x = np.ones((length, 4), "f4")
        if length in fits:
            vm.main(x)
        else:
            with pytest.raises(AssertionError, match=f"the program was exported for {text}"):
                vm.main(x)


@pytest.mark.parametrize(
    ("guard", "message"),
    [
        ("L['y'].size()[0] > 3", "there is no input L['y']"),
        ("nothing > 3", "nothing is not known"),
        ("L['x'].size()[0]", "expected a condition"),
        ("L['x'].size()[9] > 3", "there is no axis L['x'].size()[9]"),
        ("open(1) > 3", "the function open is not supported"),
        ("L['x'].size()[0] >", "expected an expression of dimensions"),
    ],
)
def test_guards_that_are_not_understood_are_named(guard: str, message: str) -> None:
    data = edited(archive(), lambda program: program.update(guards_code=[guard]))
    with pytest.warns(UserWarning, match="a guard of the program is not checked") as found:
        from_exported_program(data)
    assert message in str(found[0].message)


def stored(**members: bytes) -> bytes:
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as new:
        for name, content in members.items():
            new.writestr(zipfile.ZipInfo(name.replace("__", "/")), content)
    return found.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected a zip file, found no end of its directory"),
        (b"PK\3\4" + bytes(100), "expected a zip file"),
        (archive()[:-5], "expected a zip file"),
        (archive() + b"x", "bytes follow the end of the zip file"),
        (stored(x=b""), "expected an archive of PyTorch, with one folder in it"),
        (stored(a__x=b"", b__x=b""), "with one folder in it"),
        (stored(a__x=b""), "it has no archive_format"),
        (stored(a__archive_format=b"pt2", a__archive_version=b"0"), "the archive has no program"),
        (stored(a__archive_format=b"pt2", a__archive_version=b"0",
                **{"a__data__aotinductor__model__x.so": b""}), "machine code of AOTInductor"),
        (stored(**{"a__data.pkl": b""}), "a pickle of torch.save or a program of TorchScript"),
        (stored(**{"serialized_exported_program.json": b""}), "as torch 2.7 and earlier wrote"),
    ],
)  # fmt: skip
def test_other_files_are_refused(data: bytes, message: str) -> None:
    assert message in refused(data)


def test_compressed_members_are_refused() -> None:
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as new:
        new.writestr("a/archive_format", b"pt2" * 100)
    assert "a/archive_format: expected a stored member" in refused(found.getvalue())


def test_members_that_overlap_or_have_one_name_are_refused() -> None:
    data = bytearray(stored(a__x=b"1234", a__y=b"1234"))
    first, second = data.index(b"PK\1\2"), data.rindex(b"PK\1\2")
    twice = bytes(data[:second]) + bytes(data[first : first + 42]) + bytes(data[second:])
    one_offset = bytearray(data)
    one_offset[second + 42 : second + 46] = one_offset[first + 42 : first + 46]
    assert "a/x and a/y overlap" in refused(bytes(one_offset))
    far = bytearray(data)
    far[second + 42 : second + 46] = (1 << 31).to_bytes(4, "little")
    assert "a/y: expected a member at byte 2147483648" in refused(bytes(far))
    large = bytearray(data)
    large[second + 20 : second + 28] = (1 << 20).to_bytes(4, "little") * 2
    assert "a/y: 1048576 bytes at" in refused(bytes(large))
    assert refused(twice)
    same_name = bytes(data).replace(b"a/y", b"a/x")
    assert "a/x: there are two members of this name" in refused(same_name)
    for name in (b"../", b"a//", b"/ax", b"a\\x"):
        assert "is no name of a member" in refused(bytes(data).replace(b"a/y", name))


def test_damaged_programs_are_refused() -> None:
    data = archive()
    place = data.index(b'"aten"')
    assert "the file is damaged" in refused(data[:place] + b"'" + data[place + 1 :])


def test_a_file_of_unknown_origin_is_not_mapped(path: Path) -> None:
    """A process that reads a mapped file which became shorter ends with a signal."""
    module = from_exported_program(path, limits=relaxvm.Limits.untrusted())
    os.truncate(path, 0)
    call = load("writing").calls[0]
    relaxvm.VirtualMachine(relaxvm.build(module))["main"](*call.args, **call.kwargs)
    path.write_bytes(archive())
    with pytest.raises(LimitError, match="file_bytes=100"):
        from_exported_program(path, limits=relaxvm.Limits(file_bytes=100))


def test_limits_hold() -> None:
    with pytest.raises(LimitError, match="file_bytes"):
        from_exported_program(archive(), limits=relaxvm.Limits(file_bytes=100))
    with pytest.raises(LimitError, match="live_bytes"):
        from_exported_program(archive(), limits=relaxvm.Limits(live_bytes=10_000))
    from_exported_program(archive(), limits=relaxvm.Limits.untrusted())


def test_other_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="expected a path, bytes or a torch"):
        from_exported_program(3)
    with pytest.raises(TypeError, match="run_ep_decomposition: expected a live"):
        from_exported_program(archive(), run_ep_decomposition=True)
    assert "it has 'model'" in refused(archive(), model="other")


def test_a_live_program_is_taken() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    x = torch.randn(2, 4)
    program = torch.export.export(model, (x,))
    for options in ({}, {"run_ep_decomposition": True}):
        vm = relaxvm.VirtualMachine(relaxvm.compile(program, **options))
        np.testing.assert_allclose(vm.main(x), model(x).detach().numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (("serialized_exported_program.json", "serialized_state_dict.pt", "version"),
         "pickled tensors, as torch 2.7 and earlier wrote them; save it again with torch 2.9"),
        (("model/data.pkl", "model/version"), "a pickle of torch.save or a program of TorchScript"),
    ],
)  # fmt: skip
def test_bytes_of_other_files_of_torch(members: tuple[str, ...], message: str) -> None:
    """What they are is said of bytes, too, which have no name that ends with .pt2."""
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as file:
        for name in members:
            file.writestr(name, b"x")
    with pytest.raises(RelaxVMError, match=message):
        relaxvm.compile(found.getvalue())


@pytest.mark.parametrize(("shape", "message"), [
    ((2, 1, 6, 6), r"dimension 2 of float32\[2, 1, 6, 6\]: expected 5, got 6"),
    ((2, 1, 5, 12), r"dimension 3 of float32\[2, 1, 5, 12\]: expected 6, got 12"),
    ((2, 1, 5), "expected a tensor of ndim 4, got ndim 3"),
])  # fmt: skip
def test_images_of_another_size_than_the_sample_are_refused(
    shape: tuple[int, ...], message: str
) -> None:
    """The places of the nearest elements are computed for one size."""
    vm = relaxvm.VirtualMachine(relaxvm.compile(load("nearest").archive))
    with pytest.raises((RuntimeError, ValueError, TypeError), match=message):
        vm.main(np.zeros(shape, "float32"))
