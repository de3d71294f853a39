"""ONNX models: the reader of files, the importer, and the standard's test-suite."""

from __future__ import annotations

import functools
import itertools
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxvm
import relaxvm.contrib.onnxruntime
from relaxvm import Limits, VirtualMachine, backend, build
from relaxvm.cli import main
from relaxvm.cli.exits import Exit
from relaxvm.errors import FormatError, LimitError, RelaxVMError
from relaxvm.frontend.onnx import OPERATORS, from_onnx
from relaxvm.frontend.onnx.messages import Attribute, Model
from relaxvm.frontend.onnx.wire import Message, read

from . import onnx_suite

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
RIGHT_AT_LEAST = 2_013
"""The floor of the test-suite; see docs/onnx.md."""


def model_of(
    nodes: list[Any],
    inputs: dict[str, tuple[int, Any]],
    outputs: list[str],
    constants: dict[str, Any] | None = None,
    opset: int = 21,
    **more: Any,
) -> Any:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, *ty) for name, ty in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], **more)


def run(model: Any, *args: Any, **options: Any) -> Any:
    return VirtualMachine(build(from_onnx(model, **options)))["main"](*args)


def node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(op_type, inputs.split(), outputs.split(), **attributes)


# The test-suite of the standard


def test_the_suite_of_the_standard() -> None:
    outcomes = [onnx_suite.run(case) for case in onnx_suite.cases()]
    counts = Counter(outcome.verdict for outcome in outcomes)
    wrong = {outcome.name: outcome.message for outcome in outcomes if outcome.verdict == "wrong"}
    assert not wrong
    assert counts["right"] >= RIGHT_AT_LEAST
    if f"of onnx {onnx.__version__}," in onnx_suite.PAGE.read_text():
        assert onnx_suite.page(outcomes) == onnx_suite.PAGE.read_text()


NOT_THERE = {"ImageDecoder", "Gradient"}
"""Operators that relaxvm does not have."""


@pytest.mark.parametrize("known", ["ranks", "nothing"])
def test_the_suite_where_only_the_run_knows_the_shapes(known: str) -> None:
    """The first two cases of each operator."""
    seen: Counter[str] = Counter()
    not_right = {}
    for case in onnx_suite.cases("^(?!.*_expanded)"):
        if case.model is None:
            continue
        operators = {node.op_type for node in case.model.graph.node}
        if operators & NOT_THERE or all(seen[each] >= 2 for each in operators):
            continue
        seen.update(operators)
        outcome = onnx_suite.run(case, known)
        if outcome.verdict != "right":
            not_right[outcome.name] = outcome.message
    assert not not_right
    assert len(seen) > 180


# The reader


def same_message(got: Message, want: Any, path: str) -> None:
    """Compare a message with protobuf's."""
    fields = {field.number: field.name for field in want.DESCRIPTOR.fields}
    for number, field in type(got).FIELDS.items():
        ours, theirs = getattr(got, field.name), getattr(want, fields[number])
        where = f"{path}.{field.name}"
        if field.is_repeated:
            assert len(ours) == len(theirs), where
            for a, b in zip(ours, theirs, strict=True):
                same_value(a, b, where)
        elif isinstance(ours, Message) or ours is None:
            assert want.HasField(fields[number]) == (ours is not None), where
            if ours is not None:
                same_message(ours, theirs, where)
        else:
            same_value(ours, theirs, where)


def same_value(ours: Any, theirs: Any, where: str) -> None:
    if isinstance(ours, Message):
        same_message(ours, theirs, where)
    elif isinstance(ours, (bytes, memoryview)):
        assert bytes(ours) == (theirs.encode() if isinstance(theirs, str) else theirs), where
    else:
        assert ours == theirs or ours != ours, where


def test_messages_are_those_of_protobuf() -> None:
    """On every tenth model of the suite."""
    for i, case in enumerate(onnx_suite.cases()):
        if i % 10 == 0:
            model = onnx_suite.model_of(case)
            same_message(read(Model, model.SerializeToString(), case.name), model, case.name)


def small_model() -> bytes:
    branch = helper.make_graph([node("Relu", "x", "r")], "then", [], [
        helper.make_tensor_value_info("r", FLOAT, None)])  # fmt: skip
    other = helper.make_graph([node("Neg", "x", "r")], "else", [], [
        helper.make_tensor_value_info("r", FLOAT, None)])  # fmt: skip
    nodes = [
        node("If", "c", "y", then_branch=branch, else_branch=other),
        node("Reshape", "y shape", "z"),
        node("Add", "z w", "o"),
    ]
    inputs = {"c": (TensorProto.BOOL, []), "x": (FLOAT, ["n", 4])}
    constants = {"shape": np.array([-1, 2]), "w": np.array([1, 2], "float32")}
    data: bytes = model_of(nodes, inputs, ["o"], constants).SerializeToString()
    return data


def test_mutants_do_no_harm() -> None:
    good = small_model()
    draw = random.Random(7)
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(data))
            kind = draw.randrange(4)
            if kind == 0:
                data[at] = draw.randrange(256)
            elif kind == 1:
                data[at] ^= 1 << draw.randrange(8)
            elif kind == 2:
                del data[at : at + draw.randint(1, 9)]
            else:
                data[at:at] = draw.randbytes(draw.randint(1, 5))
        try:
            from_onnx(bytes(data))
        except (RelaxVMError, ValueError):
            continue


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected an ONNX model"),
        (b"\x00\x01", "Model: there is a field with number 0"),
        (b"\x08", "Model: a number is truncated"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "Model: a number is too long"),
        (b"\x3a\x7f", "Model: field 7 has 127 bytes, but 0 are left"),
        (b"\x3b\x01", "Model: field 7 has the unknown wire type 3"),
        (b"\x12\x01\xff", "Model: producer_name: the text is not UTF-8"),
        (b"\x38\x01", "Model: field graph has the wrong wire type 0"),
        (b"\x3a\x04\x0a\x02\x0a\x05", r"Model: graph: node\[0\]: field 1 has 5 bytes, but 0"),
    ],
)
def test_malformed_files(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        from_onnx(data)


@pytest.mark.parametrize("count", [1, 2, 300, 5000])
def test_numbers_that_are_not_packed(count: int) -> None:
    """As older files have them, each behind a key: read at once, whatever follows them."""
    rng = np.random.default_rng(count)
    ints = [int(i) for i in rng.integers(-(1 << 40), 1 << 62, count) >> rng.integers(0, 60, count)]
    floats = [float(np.float32(f)) for f in rng.standard_normal(count)]
    strings = [b"BRANCH_LEQ"[: i % 11] * (i % 7) * (i % 5) for i in range(count)]
    want = onnx.AttributeProto(name="a", ints=ints, floats=floats, strings=strings, i=7)
    data = want.SerializeToString()
    got = read(Attribute, data, "m")
    assert (got.name, got.i, got.ints.tolist()) == ("a", 7, ints)
    assert got.floats.tolist() == floats
    assert [bytes(each) for each in got.strings] == strings
    from google.protobuf.message import DecodeError  # onnx brings it

    for cut in {1, 5, 9, len(data) // 2, len(data) // 3}:
        part = data[: len(data) - cut]
        try:
            wanted = onnx.AttributeProto.FromString(part)
        except DecodeError:
            with pytest.raises(FormatError):
                read(Attribute, part, "m")
        else:
            assert read(Attribute, part, "m").ints.tolist() == list(wanted.ints)


def test_messages_nested_too_deeply() -> None:
    data = b""
    for _ in range(200):  # a graph in an attribute of a node of a graph
        attribute = b"\x32" + _length(data) + data
        inner = b"\x2a" + _length(attribute) + attribute
        data = b"\x0a" + _length(inner) + inner
    with pytest.raises(FormatError, match="nested deeper than 100"):
        from_onnx(b"\x3a" + _length(data) + data)


def _length(data: bytes) -> bytes:
    number, found = len(data), b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


# Constants


def test_constants_in_other_files(tmp_path: Path) -> None:
    weights = np.arange(6, dtype="float32").reshape(2, 3)
    model = model_of([node("MatMul", "x w", "y")], {"x": (FLOAT, ["n", 2])}, ["y"],
                     {"w": weights})  # fmt: skip
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    x = np.ones((3, 2), "float32")
    np.testing.assert_array_equal(run(path, x), x @ weights)
    with pytest.raises(FormatError, match="the model was given as bytes"):
        from_onnx(path.read_bytes())
    (tmp_path / "w.bin").write_bytes(b"\x00" * 8)
    with pytest.raises(FormatError, match=r"expected 24 bytes from 0 on, but 'w\.bin' has 8"):
        from_onnx(path)


@pytest.mark.parametrize(
    "location", ["../w.bin", "/etc/passwd", "a/../w.bin", "", "a\\b", "c:w", "a\0b"]
)
def test_other_files_are_in_the_folder(tmp_path: Path, location: str) -> None:
    tensor = TensorProto(name="w", dims=[1], data_type=FLOAT, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    model = model_of([node("Identity", "w", "y")], {}, ["y"])
    model.graph.initializer.append(tensor)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(FormatError, match="expected a file in the folder of the model"):
        from_onnx(path)


@pytest.mark.skipif(os.name == "nt", reason="links of POSIX")
def test_other_files_are_no_links(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"1234")
    tensor = TensorProto(name="w", dims=[1], data_type=FLOAT, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    model = model_of([node("Identity", "w", "y")], {}, ["y"])
    model.graph.initializer.append(tensor)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "w.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(FormatError, match="is a symbolic link"):
        from_onnx(tmp_path / "model.onnx")
    (tmp_path / "w.bin").unlink()
    os.link(tmp_path / "secret", tmp_path / "w.bin")
    with pytest.raises(FormatError, match="several hard links"):
        from_onnx(tmp_path / "model.onnx")


def external(path: Path, **entries: Any) -> None:
    """Write a model whose only constant, of one float, is in other files."""
    model = model_of([node("Identity", "w", "y")], {}, ["y"])
    tensor = TensorProto(name="w", dims=[1], data_type=FLOAT, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    model.graph.initializer.append(tensor)
    path.write_bytes(model.SerializeToString())


def test_a_missing_file_and_its_constant(tmp_path: Path) -> None:
    external(tmp_path / "model.onnx", location="w.bin")
    with pytest.raises(FileNotFoundError, match=r"w\.bin") as caught:
        from_onnx(tmp_path / "model.onnx")
    assert "constant 'w': its elements are in that file" in "".join(caught.value.__notes__)


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
def test_other_files_are_no_pipes(tmp_path: Path) -> None:
    external(tmp_path / "model.onnx", location="w.bin")
    os.mkfifo(tmp_path / "w.bin")  # nobody writes to it
    with pytest.raises(FormatError, match="expected a regular file"):
        from_onnx(tmp_path / "model.onnx")
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(FormatError, match="expected a regular file"):
        from_onnx(tmp_path / "pipe.onnx")


def test_files_of_unknown_origin_are_not_mapped(tmp_path: Path) -> None:
    """A process that reads a mapped file which became shorter ends with a signal."""
    path, other = tmp_path / "model.onnx", tmp_path / "w.bin"
    external(path, location="w.bin", offset=4096)
    other.write_bytes(b"\0" * 4096 + np.float32(7).tobytes())
    module = from_onnx(path, limits=Limits.untrusted())
    os.truncate(other, 0)
    os.truncate(path, 0)
    assert VirtualMachine(build(module))["main"]() == 7
    external(path, location="w.bin")
    other.write_bytes(b"\0" * 5000)
    with pytest.raises(LimitError, match="file_bytes=4000"):
        from_onnx(path, limits=Limits(file_bytes=4000))


def test_a_constant_of_the_wrong_size() -> None:
    tensor = TensorProto(name="w", dims=[3], data_type=FLOAT, raw_data=b"\0" * 8)
    model = model_of([node("Identity", "w", "y")], {}, ["y"])
    model.graph.initializer.append(tensor)
    with pytest.raises(FormatError, match="constant 'w': expected 12 bytes for 3 float32, got 8"):
        from_onnx(model)


# Programs


def test_named_dimensions_are_shared_and_checked() -> None:
    inputs = {"a": (FLOAT, ["batch", 3]), "b": (FLOAT, ["batch", 3]), "c": (FLOAT, ["?", 3])}
    model = model_of([node("Add", "a b", "s"), node("Concat", "s c", "y", axis=0)], inputs, ["y"])
    vm = VirtualMachine(build(from_onnx(model)))
    a, c = np.ones((2, 3), "float32"), np.zeros((5, 3), "float32")
    assert vm["main"](a, a, c).shape == (7, 3)
    with pytest.raises(RuntimeError, match=r"annotation=R.Tensor\(\(batch, 3\)"):
        vm["main"](a, c, c)


def test_shape_arithmetic_is_folded() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Unsqueeze", "n axes", "n1"),
        node("Mul", "n1 two", "n2"),
        node("Concat", "n2 rest", "t", axis=0),
        node("Reshape", "x t", "y"),
    ]
    constants = {"zero": np.array(0), "axes": np.array([0]), "two": np.array([2]),
                 "rest": np.array([-1])}  # fmt: skip
    model = model_of(nodes, {"x": (FLOAT, ["n", 4])}, ["y"], constants)
    mod = from_onnx(model)
    text = mod.script()
    assert "R.take" not in text
    assert "R.concat" not in text
    x = np.arange(12, dtype="float32").reshape(3, 4)
    np.testing.assert_array_equal(run(model, x), x.reshape(6, 2))


def test_an_image_smaller_than_a_window() -> None:
    model = model_of([node("MaxPool", "x", "y", kernel_shape=[3, 3])],
                     {"x": (FLOAT, ["n", 16, "h", "w"])}, ["y"])  # fmt: skip
    with pytest.raises(relaxvm.errors.InternalError, match="an input may be too small") as caught:
        run(model, np.ones((1, 16, 1, 9), "float32"))
    assert "h = 1 (axis 2 of x)" in str(caught.value.__notes__)


def test_a_batch_that_stays_is_not_resized() -> None:
    """The lengths of x, of which two are replaced, as PyTorch exports interpolate."""
    nodes = [
        node("Shape", "x", "s", start=0, end=2),
        node("Concat", "s size", "t", axis=0),
        node("Resize", "x none none t", "y", mode="linear"),
    ]
    nodes[-1].input[1] = nodes[-1].input[2] = ""
    model = model_of(nodes, {"x": (FLOAT, ["n", 3, 4, 5])}, ["y"], {"size": np.array([8, 10])})
    assert "(2, 3)" in from_onnx(model).script()
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype("float32")
    want = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(run(model, x), want, atol=1e-6)


def shapes_as_int32() -> Any:
    """As converters of TensorFlow compute shapes: x[n, 4] -> x[n, 2, 2], and n as an int32."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Cast", "shape", "narrow", to=TensorProto.INT32),
        node("Slice", "narrow first last first", "rows"),
        node("Concat", "rows rest", "dims", axis=0),
        node("Cast", "dims", "wide", to=TensorProto.INT64),
        node("Reshape", "x wide", "y"),
        node("Add", "rows rows", "twice"),
        node("Sub", "rows rows", "none"),
    ]
    constants = {
        "first": np.array([0], "i4"), "last": np.array([1], "i4"), "rest": np.array([2, 2], "i4"),
    }  # fmt: skip
    inputs = {"x": (TensorProto.FLOAT, ["n", 4])}
    return model_of(nodes, inputs, ["y", "twice", "none", "wide"], constants)


def test_shapes_as_int32_are_folded() -> None:
    model = shapes_as_int32()
    calls = [call.op.name for call in _calls(from_onnx(model)) if hasattr(call.op, "name")]
    assert "relax.tensor_to_shape" not in calls
    assert "relax.strided_slice" not in calls
    vm = VirtualMachine(relaxvm.compile(model))
    for n in (0, 1, 5):
        x = np.arange(4.0 * n, dtype="f4").reshape(n, 4)
        y, twice, none, wide = vm.main(x)
        np.testing.assert_array_equal(y, x.reshape(n, 2, 2))
        assert (wide.dtype, wide.tolist()) == ("int64", [n, 2, 2])
        assert (twice.dtype, twice.tolist()) == ("int32", [2 * n])
        assert (none.dtype, none.tolist()) == ("int32", [0])


@pytest.mark.parametrize("end", [2, 3, 10**6, 10**9, 2**31 - 1])
@pytest.mark.parametrize("rows", [3, "n"])
def test_slices_of_everything_are_left_out(rows: Any, end: int) -> None:
    """A tensor of 10**9 times 512 KiB is longer than memory; one of 10**6 is not."""
    dims = (rows, 512, 256)
    is_whole = end >= (10**9 if rows == "n" else 3)
    nodes = [node("Slice", "x first last", "y")]
    bounds = {"first": np.array([0]), "last": np.array([end])}
    model = model_of(nodes, {"x": (TensorProto.FLOAT, dims)}, ["y"], bounds)
    calls = [call.op.name for call in _calls(from_onnx(model)) if hasattr(call.op, "name")]
    assert ("relax.strided_slice" not in calls) == is_whole
    x = np.random.default_rng(0).normal(size=(3, 512, 256)).astype("f4")
    np.testing.assert_array_equal(run(model, x), x[:end])


@pytest.mark.parametrize("less", [0, 1])
def test_slices_from_the_end_of_as_many_elements_as_there_are(less: int) -> None:
    """As models with relative positions take the last rows of a table, of which all are wanted."""
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s axis", "n", axis=0), node("Sub", "n less", "k"),
        node("Neg", "k", "first"), node("Slice", "x first last axis", "y"),
    ]  # fmt: skip
    constants = {"axis": np.array([1]), "less": np.array([less]), "last": np.array([2**62])}
    model = model_of(nodes, {"x": (FLOAT, [2, "n", 3])}, ["y"], constants)
    calls = {call.op.name for call in _calls(from_onnx(model)) if hasattr(call.op, "name")}
    assert ("relax.strided_slice" not in calls) == (not less)
    assert "relax.negative" not in calls
    for length in (0, 1, 2, 5):
        x = np.random.default_rng(0).normal(size=(2, length, 3)).astype("f4")
        k = length - less
        if k < 0:
            continue  # from the front
        np.testing.assert_array_equal(run(model, x), x[:, length - k :] if k else x)


def test_operators_of_known_numbers_are_evaluated() -> None:
    """Also by operators that have no rule for symbolic dimensions."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s one", "n", axis=0),
        node("Mod", "n two", "rest"),
        node("Pow", "rest two", "square"),
        node("Concat", "square ten", "to", axis=0),
        node("CumSum", "to zero", "sums"),
        node("Reshape", "x sums", "y"),
    ]
    constants = {"one": np.array([1]), "two": np.array([2]), "ten": np.array([26]),
                 "zero": np.array(0)}  # fmt: skip
    mod = from_onnx(model_of(nodes, {"x": (FLOAT, [1, 9, 3])}, ["y"], constants))
    names = {call.op.name for call in _calls(mod)}
    assert names == {"relax.reshape"}
    assert VirtualMachine(build(mod))["main"](np.zeros((1, 9, 3), "f")).shape == (1, 27)


def test_slices_of_slices_stay_short() -> None:
    """Lengths are written once in the length of a slice."""
    names = ["x", *[f"y{i}" for i in range(12)]]
    nodes = [node("Slice", f"{a} one last axis", b) for a, b in itertools.pairwise(names)]
    constants = {"one": np.array([1]), "last": np.array([-1]), "axis": np.array([0])}
    mod = from_onnx(model_of(nodes, {"x": (FLOAT, ["n", 1])}, ["y11"], constants))
    assert "R.Tensor((T.max(n - 24, 0), 1)" in mod.script()
    vm = VirtualMachine(build(mod))
    for length, left in ((3, 0), (24, 0), (30, 6)):
        x = np.arange(length, dtype="f").reshape(-1, 1)
        np.testing.assert_array_equal(vm["main"](x), x[12 : 12 + left])


def test_long_dimensions_have_names() -> None:
    """What is computed from a length of a length, and so on, is checked when the program runs."""
    nodes, last = [], "x"
    for i in range(5):
        nodes += [node("Shape", last, f"s{i}"), node("Gather", f"s{i} zero", f"n{i}"),
                  node("Sub", f"n{i} one", f"e{i}"),
                  node("Slice", f"{last} one e{i} zero", f"y{i}")]  # fmt: skip
        last = f"y{i}"
    constants = {"one": np.array([1]), "zero": np.array([0])}
    mod = from_onnx(model_of(nodes, {"x": (FLOAT, ["n", 1])}, ["y4"], constants))
    assert "R.match_cast(" in mod.script()
    assert len(mod.script()) < 4000
    vm = VirtualMachine(build(mod))
    for length in (2, 10, 16):
        x = np.arange(length, dtype="f").reshape(-1, 1)
        np.testing.assert_array_equal(vm["main"](x), x[5 : length - 5])


def _calls(mod: Any) -> list[Any]:
    return [binding.value for block in mod["main"].body.blocks for binding in block.bindings]


def test_shapes_that_only_the_run_knows() -> None:
    nodes = [node("Reshape", "x s", "y"), node("ReduceSum", "y a", "z", keepdims=0)]
    inputs = {"x": (FLOAT, None), "s": (INT64, ["k"]), "a": (INT64, ["j"])}
    model = model_of(nodes, inputs, ["z"])
    x = np.arange(12, dtype="float32")
    vm = VirtualMachine(build(from_onnx(model)))
    for shape, axes in (([3, 4], [0]), ([2, 3, 2], [0, 2]), ([12, 1], [])):
        y = x.reshape(shape)
        want = y.sum(tuple(axes)) if axes else y.sum()
        got = vm["main"](x, np.array(shape, "int64"), np.array(axes, "int64"))
        np.testing.assert_array_equal(got, want)


def test_names_of_any_characters() -> None:
    model = model_of([helper.make_node("Relu", ["in:put/0.ä b"], ["out-1"])],
                     {"in:put/0.ä b": (FLOAT, [2])}, ["out-1"])  # fmt: skip
    mod = from_onnx(model)
    main = mod["main"]
    assert main.attrs["input_names"] == ["in:put/0.ä b"]
    assert main.attrs["output_names"] == ["out-1"]
    assert run(model, np.array([-1, 2], "float32")).tolist() == [0, 2]
    assert relaxvm.script.from_source(mod.script()) is not None


def test_a_branch_that_the_model_decides() -> None:
    model = onnx.load_from_string(small_model())
    x = np.array([[-1, 2, -3, 4]], "float32")
    for condition, want in ((True, np.maximum(x, 0)), (False, -x)):
        got = run(model, np.array(condition), x)
        np.testing.assert_array_equal(got, want.reshape(2, 2) + np.array([1, 2], "float32"))


def test_functions_of_the_model() -> None:
    function = helper.make_function(
        "own", "Twice", ["x"], ["y"],
        [helper.make_node("Mul", ["x", "two"], ["y"]),
         ], [helper.make_opsetid("", 21)], ["factor"])  # fmt: skip
    constant = helper.make_node("Constant", [], ["two"])
    constant.attribute.add(name="value_float", ref_attr_name="factor", type=1)
    function.node.insert(0, constant)
    nodes = [helper.make_node("Twice", ["x"], ["y"], domain="own", factor=3.0)]
    model = model_of(nodes, {"x": (FLOAT, [2])}, ["y"], functions=[function])
    model.opset_import.append(helper.make_opsetid("own", 1))
    assert run(model, np.array([1, 2], "float32")).tolist() == [3, 6]


def test_a_function_that_calls_itself() -> None:
    function = helper.make_function(
        "own", "F", ["x"], ["y"], [helper.make_node("F", ["x"], ["y"], domain="own")],
        [helper.make_opsetid("own", 1)])  # fmt: skip
    nodes = [helper.make_node("F", ["x"], ["y"], domain="own")]
    model = model_of(nodes, {"x": (FLOAT, [2])}, ["y"], functions=[function])
    with pytest.raises(RelaxVMError, match=r"cannot call themselves: own\.F -> own\.F$") as caught:
        from_onnx(model)
    assert str(caught.value).count("node (own.F)") == 2


def test_functions_that_call_each_other() -> None:
    branch = helper.make_graph([helper.make_node("G", ["x"], ["b"], domain="own")], "b", [],
                               [helper.make_tensor_value_info("b", FLOAT, [2])])  # fmt: skip
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function("own", "F", ["x"], ["y"], [
            helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True))),
            helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
        ], versions),
        helper.make_function("own", "G", ["x"], ["y"], [
            helper.make_node("F", ["x"], ["y"], domain="own")], versions),
    ]  # fmt: skip
    nodes = [helper.make_node("F", ["x"], ["y"], domain="own")]
    model = model_of(nodes, {"x": (FLOAT, [2])}, ["y"], functions=functions)
    with pytest.raises(RelaxVMError, match=r"cannot call themselves: own\.F -> own\.G -> own\.F$"):
        from_onnx(model)


def test_a_function_without_a_value_for_its_output() -> None:
    function = helper.make_function(
        "own", "F", ["x"], ["z"], [helper.make_node("Neg", ["x"], ["y"])],
        [helper.make_opsetid("", 21)])  # fmt: skip
    nodes = [helper.make_node("F", ["x"], ["y"], domain="own")]
    model = model_of(nodes, {"x": (FLOAT, [2])}, ["y"], functions=[function])
    with pytest.raises(RelaxVMError, match=r"node \(own\.F\): the function has no value 'z'"):
        from_onnx(model)


def test_operators_of_the_user() -> None:
    def shout(g: Any, x: Any, *, factor: float = 2.0) -> Any:
        return g.op("multiply", x, np.array(factor, "float32"))

    nodes = [helper.make_node("Shout", ["x"], ["y"], domain="own", factor=5.0)]
    model = model_of(nodes, {"x": (FLOAT, [2])}, ["y"])
    assert run(model, np.array([1, 2], "float32"),
               operators={("own", "Shout"): shout}).tolist() == [5, 10]  # fmt: skip
    with pytest.raises(RelaxVMError, match=r"'y': own\.Shout, version 1: there is no such"):
        from_onnx(model)


def test_operators_of_the_user_replace_those_of_the_standard() -> None:
    def combined(name: str, g: Any, a: Any, b: Any) -> Any:
        return g.op(name, a, b)

    model = model_of([node("Add", "x w", "y")], {"x": (FLOAT, [2])}, ["y"],
                     {"w": np.float32([3, 4])})  # fmt: skip
    for domain in ("", "ai.onnx"):
        own = {(domain, "Add"): functools.partial(combined, "multiply")}
        assert run(model, np.float32([1, 2]), operators=own).tolist() == [3, 8]


@pytest.mark.parametrize(
    ("operators", "error", "message"),
    [
        ({"Add": max}, TypeError, r"operators: expected keys \(domain, name\) .* got 'Add'"),
        ({("", "Add"): 3}, TypeError, "operators: expected functions, got 3"),
        ({("", "Add"): lambda: 3}, TypeError, "whose first parameter is the graph"),
        ({("", "Add"): lambda g, a, b: None}, RelaxVMError,
         r"node \(Add\): its function returned None for the output 'y'"),
        ({("", "Add"): lambda g, a, b: "text"}, RelaxVMError,
         r"node \(Add\): its function returned 'text', expected an expression, a Value"),
        ({("", "Add"): lambda g, a, b: [a]}, RelaxVMError,
         r"node \(Add\): its function returned \["),
        ({("", "Add"): lambda g, a, b: g.op("nothing", a)}, RelaxVMError,
         r"node \(Add\): there is no operator 'nothing'"),
        ({("", "Add"): lambda g, a: a}, RelaxVMError,
         r"node \(Add\): expected 1 to 1 inputs, got 2"),
    ],
)  # fmt: skip
def test_wrong_operators_of_the_user(
    operators: Any, error: type[Exception], message: str
) -> None:
    model = model_of([node("Add", "x x", "y")], {"x": (FLOAT, [2])}, ["y"])
    with pytest.raises(error, match=message):
        from_onnx(model, operators=operators)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"shape_dict": {"z": [2]}}, ValueError,
         r"shape_dict: expected names of inputs \(x\), got 'z'"),
        ({"dtype_dict": {"z": "float32"}}, ValueError,
         r"dtype_dict: expected names of inputs \(x\), got 'z'"),
        ({"shape_dict": [2]}, TypeError, "shape_dict: expected a mapping, got list"),
        ({"shape_dict": {"x": 3}}, TypeError, r"shape_dict\['x'\]: expected a sequence .* got 3"),
        ({"shape_dict": {"x": "ab"}}, TypeError, r"shape_dict\['x'\]: expected a sequence"),
        ({"shape_dict": {"x": [-1]}}, ValueError, r"shape_dict\['x'\]: .* of int64, got -1"),
        ({"shape_dict": {"x": [1.5]}}, ValueError, r"shape_dict\['x'\]: .* of int64, got 1\.5"),
        ({"shape_dict": {"x": [True]}}, ValueError, r"shape_dict\['x'\]: .* of int64, got True"),
        ({"shape_dict": {"x": [1 << 70]}}, ValueError, r"shape_dict\['x'\]: .* of int64, got 118"),
        ({"shape_dict": {"x": [None]}}, ValueError, r"shape_dict\['x'\]: .* of int64, got None"),
        ({"dtype_dict": {"x": "flot"}}, TypeError, r"dtype_dict\['x'\]: dtype: 'flot' is not"),
        ({"dtype_dict": "flot"}, TypeError, "dtype_dict: dtype: 'flot' is not a data type"),
        ({"opset": "17"}, TypeError, "opset: expected an int, got str"),
        ({"opset": 0}, ValueError, "opset: expected a version of at least 1, got 0"),
    ],
)
def test_wrong_settings(settings: Any, error: type[Exception], message: str) -> None:
    model = model_of([node("Neg", "x", "y")], {"x": (FLOAT, [2])}, ["y"])
    with pytest.raises(error, match=message):
        from_onnx(model, **settings)


def test_all_unsupported_nodes_are_reported_at_once() -> None:
    nodes = [
        helper.make_node("Nothing", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Nobody", ["b"], ["y"], name="second", domain="com.example"),
    ]
    model = model_of(nodes, {"x": (FLOAT, [2])}, ["y"])
    with pytest.raises(RelaxVMError, match="2 nodes have operators") as caught:
        from_onnx(model)
    assert "'first': ai.onnx.Nothing, version 21" in str(caught.value)
    assert "'second': com.example.Nobody, version 1" in str(caught.value)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Relu", "nothing", "y")], r"node \(Relu\): there is no value 'nothing'"),
        ([node("Relu", "x x", "y")], "expected 1 to 1 inputs, got 2"),
        ([helper.make_node("Add", ["x", "", "x"][1:], ["y"])], r"\(Add\): input 0 is missing"),
        ([helper.make_node("Concat", ["x", "", "x"], ["y"], axis=0)], "input 1 is missing"),
        ([node("Constant", "", "y", value="text")], "attribute 'value': expected ndarray, got str"),
        ([node("Relu", "x", "y", speed=3)], "attribute 'speed' is not supported"),
        ([node("Concat", "x x", "y")], "attribute 'axis' is missing"),
        ([node("Concat", "x x", "y", axis=1.5)], "attribute 'axis': expected int, got float"),
        ([node("Relu", "x", "y z")], "expected 2 outputs, the operator has 1"),
        ([node("MatMul", "x x", "y")], r"node \(MatMul\): relax.matmul: shapes .* do not multiply"),
        ([node("Pad", "x x", "y")], "pads: expected integers, got a tensor of float32"),
        ([node("Split", "x k", "y z")], r"parts of axis 0, of length 2, got \[2, 1\]"),
        ([node("Split", "x n", "y z")], r"parts of axis 0, of length 2, got \[3, -1\]"),
        ([node("TopK", "x three", "y z", axis=0)], "k: expected a number of elements of axis 0"),
        ([node("ConstantOfShape", "n", "y")], r"expected lengths of 0 or more, got \[3, -1\]"),
        ([node("Identity", "complex", "y")], "tensors of complex64 are not supported"),
        ([node("Reshape", "x zero", "y", allowzero=1)], "expected no -1 beside 0 with allowzero"),
    ],
)
def test_nodes_that_cannot_be_imported(nodes: list[Any], message: str) -> None:
    constants = {
        "k": np.array([2, 1]), "n": np.array([3, -1]), "three": np.array([3]),
        "zero": np.array([0, -1]), "complex": np.zeros(1, "complex64"),
    }  # fmt: skip
    model = model_of(nodes, {"x": (FLOAT, [2, 3])}, ["y"], constants)
    with pytest.raises(RelaxVMError, match=message):
        from_onnx(model)


def test_shapes_and_data_types_of_the_caller() -> None:
    model = model_of([node("Add", "x x", "y")], {"x": (FLOAT, ["a", "b"])}, ["y"])
    main = from_onnx(model, shape_dict={"x": [2, "m"]}, dtype_dict={"x": "float64"})["main"]
    assert str(main.params[0].ty) == 'R.Tensor((2, m), dtype="float64")'
    assert from_onnx(model, dtype_dict="float16")["main"].params[0].ty.dtype == "float16"


def test_constants_as_parameters() -> None:
    weights = np.ones((2, 2), "float32")
    model = model_of([node("MatMul", "x w", "y")], {"x": (FLOAT, [1, 2])}, ["y"], {"w": weights})
    main = from_onnx(model, keep_params_in_input=True)["main"]
    assert [param.name for param in main.params] == ["x", "w"]
    assert main.attrs["num_input"] == 1
    np.testing.assert_array_equal(main.attrs["params"][0], weights)


def test_the_backend() -> None:
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA")
    model = model_of([node("Neg", "x", "y")], {"x": (FLOAT, [2])}, ["y"])
    assert backend.is_compatible(model)
    (y,) = backend.run_model(model, [np.array([1, -2], "float32")])
    assert y.tolist() == [-1, 2]
    (z,) = backend.run_node(node("Exp", "x", "y"), [np.zeros(2, "float32")])
    assert z.tolist() == [1, 1]
    with pytest.raises(ValueError, match="expected 'CPU', got 'CUDA'"):
        backend.prepare(model, "CUDA")


def test_the_commands_take_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of([node("Neg", "x", "y")], {"x": (FLOAT, ["n"])}, ["y"])
    path, made = tmp_path / "model.onnx", tmp_path / "model.rvm"
    path.write_bytes(model.SerializeToString())
    np.save(tmp_path / "x.npy", np.array([1, -2], "float32"))
    for file in (path, made):
        assert main(["run", str(file), "--input", f"x={tmp_path / 'x.npy'}"]) == 0
        assert "-1" in capsys.readouterr().out
        if file is path:
            assert main(["compile", str(path), "-o", str(made)]) == 0
    assert main(["inspect", str(path)]) == 0
    assert "main" in capsys.readouterr().out
    (tmp_path / "bad.onnx").write_bytes(b"\x08")
    assert main(["run", str(tmp_path / "bad.onnx")]) == Exit.MALFORMED
    assert "a number is truncated" in capsys.readouterr().err
    assert main(["compile", str(tmp_path / "none.onnx"), "-o", str(made)]) == Exit.MALFORMED
    other = model_of([node("Nothing", "x", "y")], {"x": (FLOAT, ["n"])}, ["y"])
    path.write_bytes(other.SerializeToString())
    for command in ("check", "run", "compile"):
        more = ["-o", str(made)] if command == "compile" else []
        assert main([command, str(path), *more]) == Exit.FAILED
    capsys.readouterr()
    assert main(["inspect", str(path)]) == Exit.FAILED
    assert "ai.onnx.Nothing, version 21" in capsys.readouterr().err


@pytest.mark.parametrize("rows", [0, 3, 5, 8])
def test_numbers_made_of_dimensions_may_be_negative(rows: int) -> None:
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "rows"),
        node("Sub", "rows six", "less"),
        node("Div", "less four", "quotient"),
        node("Equal", "less minus_one", "is_minus_one"),
        node("Range", "zero less two", "up"),
        node("Range", "zero less minus_one", "down"),
    ]
    constants = {"zero": 0, "six": 6, "four": 4, "minus_one": -1, "two": 2}
    model = model_of(
        nodes, {"x": (FLOAT, ["n", 1])}, ["quotient", "is_minus_one", "up", "down"], constants
    )
    quotient, is_minus_one, up, down = run(model, np.zeros((rows, 1), "float32"))
    less = rows - 6
    assert int(quotient) == int(less / 4)  # towards zero
    assert bool(is_minus_one) == (less == -1)
    assert np.asarray(up).tolist() == list(range(0, less, 2))
    assert np.asarray(down).tolist() == list(range(0, less, -1))


@pytest.mark.parametrize("name", ["ReduceSum", "ReduceProd", "ReduceMax"])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_reductions_of_constants_keep_the_data_type(name: str, dtype: str) -> None:
    constants = {"c": np.array([2, 3, 4], dtype)}
    model = model_of([node(name, "c", "y", keepdims=0)], {}, ["y"], constants)
    result = np.asarray(run(model))
    assert result.dtype == dtype
    assert result == {"ReduceSum": 9, "ReduceProd": 24, "ReduceMax": 4}[name]


def test_quotients_of_constants_are_rounded_towards_zero() -> None:
    a = np.array([-7, 7, -7, 7, -(2**31), -(2**31)], "int32")
    b = np.array([2, -2, -2, 2, 2, 3], "int32")
    model = model_of([node("Div", "a b", "y")], {}, ["y"], {"a": a, "b": b})
    assert np.asarray(run(model)).tolist() == [-3, -3, 3, 3, -(2**30), -715827882]


def test_a_square_with_the_rank_of_its_exponent() -> None:
    constants = {"two": np.array([[2.0]], "float32")}
    model = model_of([node("Pow", "x two", "y")], {"x": (FLOAT, [3])}, ["y"], constants)
    result = np.asarray(run(model, np.arange(3, dtype="float32")))
    np.testing.assert_array_equal(result, np.array([[0, 1, 4]], "float32"))


def test_a_range_of_small_integers() -> None:
    constants = {
        "a": np.array(-30000, "int16"), "b": np.array(30000, "int16"), "d": np.array(25000, "int16")
    }  # fmt: skip
    result = np.asarray(run(model_of([node("Range", "a b d", "y")], {}, ["y"], constants)))
    assert result.dtype == "int16"
    assert result.tolist() == [-30000, -5000, 20000]


@pytest.mark.parametrize("axes", [[], [1], [0, 2]])
@pytest.mark.parametrize("name", ["ReduceSum", "ReduceL1", "ReduceLogSumExp"])
def test_axes_of_the_run_may_be_none(name: str, axes: list[int]) -> None:
    """With noop_with_empty_axes, nothing is reduced then."""
    nodes = [node(name, "x axes", "y", noop_with_empty_axes=1, keepdims=0)]
    model = model_of(nodes, {"x": (FLOAT, ["n", 3, 4]), "axes": (INT64, ["k"])}, ["y"])
    x, where = np.arange(24, dtype="f").reshape(2, 3, 4) - 9, np.array(axes, np.int64)
    want = x
    if axes:
        functions: dict[str, Any] = {
            "ReduceSum": np.sum,
            "ReduceL1": lambda x, axis: np.abs(x).sum(axis),
            "ReduceLogSumExp": lambda x, axis: np.log(np.exp(x).sum(axis)),
        }
        want = functions[name](x, axis=tuple(axes))
    elif name == "ReduceL1":
        want = np.abs(x)
    np.testing.assert_allclose(run(model, x, where), want, 1e-6)


@pytest.mark.parametrize("name", ["Conv", "ConvTranspose"])
def test_windows_that_only_the_run_knows(name: str) -> None:
    x = np.arange(32, dtype="f").reshape(1, 2, 4, 4) / 8
    w = np.arange(24, dtype="f").reshape(2, 2, 3, 2) / 8
    results = []
    for shape in ([2, 2, "k", "l"], [2, 2, 3, 2]):
        inputs = {"x": (FLOAT, ["n", 2, "h", "w"]), "w": (FLOAT, shape)}
        model = model_of([node(name, "x w", "y", strides=[2, 1])], inputs, ["y"])
        results.append(run(model, x, w))
    np.testing.assert_allclose(*results, 1e-6)
    results = []
    for shape in ([2, 2, "k", "l"], [2, 2, 3, 2]):
        inputs["w"] = (FLOAT, shape)
        model = model_of([node(name, "x w", "y", auto_pad="SAME_UPPER", strides=[2, 1])], inputs,
                         ["y"])  # fmt: skip
        results.append(run(model, x, w))
    np.testing.assert_allclose(*results, 1e-6)


def test_indices_of_pools_where_only_the_run_knows_the_padding() -> None:
    x = np.random.default_rng(4).random((1, 3, 6, 7), np.float32)
    results = []
    for dims in ([1, 3, "h", "w"], [1, 3, 6, 7]):
        pool = node("MaxPool", "x", "y i", kernel_shape=[3, 2], strides=[2, 2],
                    auto_pad="SAME_LOWER")  # fmt: skip
        results.append(run(model_of([pool], {"x": (FLOAT, dims)}, ["y", "i"]), x))
    for got, want in zip(*results, strict=True):
        np.testing.assert_array_equal(got, want)


def test_groups_of_channels_that_only_the_run_knows() -> None:
    nodes = [node("GroupNormalization", "x scale bias", "y", num_groups=2)]
    inputs = {"x": (FLOAT, ["n", "c", "w"]), "scale": (FLOAT, [2]), "bias": (FLOAT, [2])}
    x = np.random.default_rng(0).standard_normal((2, 6, 5)).astype("f")
    scale, bias = np.array([1, 2], "f"), np.array([0, 3], "f")
    groups = x.reshape(2, 2, 15)
    normal = (groups - groups.mean(2, keepdims=True)) / groups.std(2, keepdims=True)
    want = (normal * scale[:, None] + bias[:, None]).reshape(2, 6, 5)
    vm = VirtualMachine(build(from_onnx(model_of(nodes, inputs, ["y"], opset=18))))
    np.testing.assert_allclose(vm["main"](x, scale, bias), want, 1e-4, 1e-5)
    with pytest.raises((ValueError, RuntimeError), match=r"shape|dimension"):
        vm["main"](x[:, :5], scale, bias)


def test_the_parts_of_a_split_are_the_whole() -> None:
    constants = {"sizes": np.array([2, 3])}
    nodes = [node("Split", "x sizes", "a b")]
    model = model_of(nodes, {"x": (FLOAT, ["n"])}, ["a", "b"], constants)
    a, b = run(model, np.arange(5, dtype="float32"))
    assert (np.asarray(a).tolist(), np.asarray(b).tolist()) == ([0, 1], [2, 3, 4])
    with pytest.raises(RuntimeError, match=r"dimension 0 of .*: expected 5, got 6"):
        run(model, np.zeros(6, "float32"))


def test_a_split_of_one_part() -> None:
    model = model_of([node("Split", "x", "y", num_outputs=1)], {"x": (FLOAT, ["n"])}, ["y"])
    result = run(model, np.arange(3, dtype="float32"))
    assert np.asarray(result).tolist() == [0, 1, 2]


def test_the_greatest_elements_may_be_none() -> None:
    model = model_of([node("TopK", "x k", "y i", axis=0)], {"x": (FLOAT, [3, 2])}, ["y", "i"],
                     {"k": np.array([0])})  # fmt: skip
    values, places = map(np.asarray, run(model, np.zeros((3, 2), "float32")))
    assert (values.shape, places.shape) == ((0, 2), (0, 2))
    assert (values.dtype, places.dtype) == ("float32", "int64")


@pytest.mark.parametrize(("axis", "shape"), [(0, (1, 0)), (1, (0, 3)), (2, (0, 1))])
def test_flattening_tensors_without_elements(axis: int, shape: tuple[int, ...]) -> None:
    model = model_of([node("Flatten", "x", "y", axis=axis)], {"x": (FLOAT, [0, 3])}, ["y"])
    assert np.asarray(run(model, np.zeros((0, 3), "float32"))).shape == shape


def test_dimensions_whose_product_is_too_large() -> None:
    model = model_of([node("Flatten", "x", "y", axis=0)], {"x": (FLOAT, [2**40, 2**40])}, ["y"])
    with pytest.raises(RelaxVMError, match=r"node \(Flatten\): .* does not fit"):
        from_onnx(model)


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_negative_indices_of_axes_of_unknown_length(axis: int) -> None:
    nodes = [node("Reshape", "x shape", "z"), node("Gather", "z i", "y", axis=axis)]
    inputs = {"x": (FLOAT, [6]), "shape": (INT64, ["?"]), "i": (INT64, [2])}
    x, indices = np.arange(6, dtype="float32"), np.array([-1, 0])
    result = run(model_of(nodes, inputs, ["y"]), x, np.array([2, 3]), indices)
    np.testing.assert_array_equal(np.asarray(result), x.reshape(2, 3).take(indices, axis))


@pytest.mark.parametrize(("opset", "dtype"), [(7, "float32"), (10, "bool"), (13, "bool")])
def test_the_mask_of_dropout(opset: int, dtype: str) -> None:
    model = model_of([node("Dropout", "x", "y m")], {"x": (FLOAT, [2])}, ["m"], opset=opset)
    mask = np.asarray(run(model, np.zeros(2, "float32")))
    assert mask.dtype == dtype
    assert mask.all()


def test_two_inputs_of_the_same_name() -> None:
    model = model_of([node("Relu", "x", "y")], {"x": (FLOAT, [1])}, ["y"])
    model.graph.input.append(model.graph.input[0])
    with pytest.raises(RelaxVMError, match="there are two inputs 'x'"):
        from_onnx(model)


def test_an_input_without_a_data_type() -> None:
    model = model_of([node("Relu", "x", "y")], {"x": (TensorProto.UNDEFINED, [1])}, ["y"])
    with pytest.raises(RelaxVMError, match="input 'x': expected a data type"):
        from_onnx(model)
    assert from_onnx(model, dtype_dict={"x": "float32"})["main"].params[0].ty.dtype == "float32"


def test_a_tensor_of_too_many_dimensions() -> None:
    model = model_of([node("ConstantOfShape", "x", "y")], {"x": (INT64, [1 << 40])}, ["y"])
    with pytest.raises(RelaxVMError, match="at most 1024 dimensions, got 1099511627776"):
        from_onnx(model)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (node("Slice", "x n n", "y"), "expected a number for each axis, got a vector of 10995116"),
        (node("Split", "x", "y", num_outputs=1 << 40), r"1099511627776 outputs, the node has 1"),
    ],
)
def test_counts_that_are_too_large(found: Any, message: str) -> None:
    inputs = {"x": (FLOAT, [2]), "n": (INT64, [1 << 40])}
    with pytest.raises(RelaxVMError, match=message):
        from_onnx(model_of([found], inputs, ["y"]))


def test_limits_of_the_import() -> None:
    nodes = [node("Relu", f"v{i}", f"v{i + 1}") for i in range(20_000)]
    data = model_of(nodes, {"v0": (FLOAT, [1])}, ["v20000"]).SerializeToString()
    with pytest.raises(LimitError, match="wall_time"):
        from_onnx(data, limits=Limits(wall_time=0.05))
    with pytest.raises(LimitError, match="live_bytes"):
        from_onnx(data, limits=Limits(live_bytes=1 << 20))
    with pytest.raises(LimitError, match="file_bytes"):
        from_onnx(data, limits=Limits(file_bytes=1000))


def test_names_of_parameters_differ() -> None:
    inputs = {name: (FLOAT, [1]) for name in ("a:b", "a/b", "a_b_1")}
    nodes = [helper.make_node("Sub", ["a:b", "a/b"], ["d"]), node("Sub", "d a_b_1", "y")]
    model = model_of(nodes, inputs, ["y"])
    main = from_onnx(model)["main"]
    assert [param.name for param in main.params] == ["a_b", "a_b_1", "a_b_1_1"]
    values = [np.array([number], "float32") for number in (9, 5, 1)]
    assert np.asarray(run(model, *values)).tolist() == [3]


def test_every_operator_has_a_sentence() -> None:
    for key, versions in OPERATORS.items():
        for version in versions:
            assert version.doc.endswith("."), f"{key}: {version.doc!r}"


def test_nodes_in_any_order() -> None:
    """The standard wants nodes after those whose results they use; there are models without."""
    x = np.arange(3, dtype="f4")
    inner = helper.make_graph(
        [node("Add", "late x", "sum"), node("Mul", "sum sum", "then")], "then", [],
        [helper.make_empty_tensor_value_info("then")],
    )  # fmt: skip
    other = helper.make_graph(
        [node("Identity", "x", "else")], "else", [], [helper.make_empty_tensor_value_info("else")]
    )
    nodes = [
        node("Neg", "chosen", "y"),
        node("If", "c", "chosen", then_branch=inner, else_branch=other),
        node("Sub", "twice x", "late"),
        node("Add", "x x", "twice"),
    ]
    for given in (nodes, nodes[::-1], [nodes[2], nodes[0], nodes[3], nodes[1]]):
        model = model_of(given, {"x": (FLOAT, [3]), "c": (TensorProto.BOOL, [])}, ["y"])
        np.testing.assert_array_equal(run(model, x, np.array(True)), -((2 * x) ** 2))


def test_nodes_in_a_circle() -> None:
    model = model_of(
        [node("Add", "x b", "a"), node("Neg", "a", "b")], {"x": (FLOAT, [3])}, ["b"]
    )
    with pytest.raises(RelaxVMError, match=r"node \(Add\): there is no value 'b'"):
        from_onnx(model)


def test_random_sequences_optionals_maps_and_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensor = helper.make_tensor_type_proto
    types = {
        "s": helper.make_sequence_type_proto(tensor(FLOAT, ["n", 3])),
        "o": helper.make_optional_type_proto(tensor(FLOAT, ["n", None])),
        "t": helper.make_sequence_type_proto(tensor(TensorProto.STRING, [2])),
        "m": onnx.TypeProto(
            map_type=onnx.TypeProto.Map(key_type=TensorProto.INT64, value_type=tensor(FLOAT, []))
        ),
    }
    graph = helper.make_graph(
        [
            node("ConcatFromSequence", "s", "joined", axis=0),
            node("OptionalHasElement", "o", "has"),
            node("ConcatFromSequence", "t", "texts", axis=0),
            node("CastMap", "m", "row", domain="ai.onnx.ml", cast_to="TO_FLOAT",
                 map_form="SPARSE", max_map=4),
        ],
        "g",
        [helper.make_value_info(name, ty) for name, ty in types.items()],
        [helper.make_tensor_value_info("joined", FLOAT, ["k", 3]),
         helper.make_tensor_value_info("has", TensorProto.BOOL, []),
         helper.make_tensor_value_info("texts", TensorProto.STRING, [4]),
         helper.make_tensor_value_info("row", FLOAT, [1, 4])],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    path = tmp_path / "model.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    )

    def shown(*options: str) -> str:
        assert main(["run", str(path), "--random", *options]) == 0
        return capsys.readouterr().out

    width = ("--shape", "o=5,2")
    found = shown("--dim", "n=4", *width)
    assert "joined  float32[8, 3]" in found
    assert "True" in found
    assert "texts  object[4]" in found
    assert "row  float32[1, 4]" in found
    assert "False" in shown("--dim", "n=4", "--arg", "o=null")
    compared = tmp_path / "compared.onnx"  # the reference evaluator has no CastMap
    part = helper.make_graph(graph.node[:2], "g", graph.input[:2], graph.output[:2])
    compared.write_bytes(
        helper.make_model(part, opset_imports=opsets, ir_version=9).SerializeToString()
    )
    options = ("--with", "reference", "--random", "--dim", "n=4", *width)
    assert main(["compare", str(compared), *options]) == 0
    assert "2 values are equal" in capsys.readouterr().out
    three = [f"--shape=s.{i}={rows},3" for i, rows in enumerate((2, 3, 5))]
    assert "joined  float32[10, 3]" in shown(*three, *width)
    for options, message in (
        (width, "s.0 (float32[n, 3]) has the symbolic dimension n; set it with --dim n=8"),
        (("--dim", "n=4"), "all dimensions of o (float32[n, ?]); set them with --shape o=DIMS"),
        (("--dim", "k=4"), "--dim k: not a symbolic dimension of the function, expected one of n"),
    ):
        assert main(["run", str(path), "--random", *options]) == Exit.USAGE
        assert message in capsys.readouterr().err
    machine = relaxvm.contrib.onnxruntime.InferenceSession(str(path))
    assert [each.shape for each in machine.get_inputs()] == [[], [], [], []]
