"""Adapters, initializers, sparse tensors and devices of `relaxvm.contrib.onnxruntime`, and what
decoders copy."""

from __future__ import annotations

import base64
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxvm.contrib.onnxruntime as ours
from relaxvm.cli import main as command

FLOAT = TensorProto.FLOAT
X = np.ones((2, 4), "f4")
WRITTEN = base64.b64decode(
    "DAAAAFRPUlQAAAAAHP///wEAAAADAAAABwAAAAQAAAAEAAAA2AAAAHwAAABAAAAABAAAAET///8sAAAAGAAAAAoAAA"
    "AEAAAABgAAAAA8ADwAPAAAAQAAAAMAAAAAAAAAAAAAAAEAAABoAAAAfP///ygAAAAQAAAAAQAAAAQAAAAAAAAAAgAA"
    "AAAAAAAAAAAAAwAAAAAAAAAFAAAAZW1wdHkAAAC0////QAAAADAAAAAHAAAABAAAACAAAAAAAAAAAAAAAAEAAAAAAA"
    "AAAgAAAAAAAAADAAAAAAAAAAEAAAAEAAAAAAAAAAIAAABiYgAADAAUAAQACAAMABAADAAAAEAAAAAoAAAAAQAAAAQA"
    "AAAYAAAAAAAAAAAAgD8AAABAAABAQAAAgEAAAKBAAgAAAAIAAAAAAAAAAwAAAAAAAAABAAAAYQAAAA=="
)
"""A file that onnxruntime 1.32 has written."""


def info(name: str, shape: list[Any]) -> Any:
    return helper.make_tensor_value_info(name, FLOAT, shape)


def value(array: Any) -> ours.OrtValue:
    return ours.OrtValue.ortvalue_from_numpy(np.asarray(array))


def model_with_adapters() -> bytes:
    """y = x w + x a b, where a and b have no columns and no rows unless an adapter gives them."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["base"]),
        helper.make_node("MatMul", ["x", "a"], ["xa"]),
        helper.make_node("MatMul", ["xa", "b"], ["xab"]),
        helper.make_node("Add", ["base", "xab"], ["y"]),
    ]
    constants = {"w": np.arange(12, dtype="f4").reshape(4, 3), "a": np.zeros((4, 0), "f4"),
                 "b": np.zeros((0, 3), "f4")}  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [info("x", ["n", 4]), info("a", [4, "r"]), info("b", ["r", 3])],
        [info("y", ["n", 3])],
        [numpy_helper.from_array(each, name) for name, each in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17)]
    data: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return data


# Adapters


def written(path: Path, **arrays: Any) -> str:
    adapter = ours.AdapterFormat()
    adapter.set_adapter_version(3)
    adapter.set_model_version(7)
    adapter.set_parameters({name: value(array) for name, array in arrays.items()})
    adapter.export_adapter(path)
    return str(path)


def test_a_file_of_onnxruntime_is_read(tmp_path: Path) -> None:
    path = tmp_path / "adapter"
    path.write_bytes(WRITTEN)
    adapter = ours.AdapterFormat.read_adapter(path)
    assert adapter.get_adapter_version() == 3
    assert adapter.get_model_version() == 7
    assert adapter.get_format_version() == 1
    found = {name: each.numpy() for name, each in adapter.get_parameters().items()}
    np.testing.assert_array_equal(found["a"], np.arange(6, dtype="f4").reshape(2, 3))
    np.testing.assert_array_equal(found["bb"], np.arange(4))
    assert found["empty"].shape == (0, 3)
    assert found["h"].dtype == np.float16
    assert len(found) == 4


def test_what_is_written_is_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {"w" * n: rng.standard_normal((n, 3)).astype("f4") for n in range(1, 9)}
    arrays["bits"] = np.array([[True], [False]])
    arrays["one"] = np.array(2.5)
    path = written(tmp_path / "adapter", **arrays)
    adapter = ours.AdapterFormat.read_adapter(path)
    assert (adapter.get_adapter_version(), adapter.get_model_version()) == (3, 7)
    found = adapter.get_parameters()
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name].numpy(), array)
        assert found[name].numpy().dtype == array.dtype


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "adapter"
    rng = np.random.default_rng(0)
    refused = 0
    for i in range(600):
        data = bytearray(WRITTEN[: rng.integers(len(WRITTEN))] if i % 4 == 0 else WRITTEN)
        for _ in range(3 * (i % 4 > 0)):
            data[rng.integers(len(data))] = rng.integers(256)
        path.write_bytes(data)
        try:
            ours.AdapterFormat.read_adapter(path)
        except RuntimeError as error:
            assert "valid lora parameter format" in str(error)  # noqa: PT017
            refused += 1
    assert refused > 200


def test_runs_take_the_values_of_adapters(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((4, 2)).astype("f4"), rng.standard_normal((2, 3)).astype("f4")
    adapter = ours.LoraAdapter()
    adapter.Load(written(tmp_path / "adapter", a=a, b=b))
    session = ours.InferenceSession(model_with_adapters())
    (plain,) = session.run(None, {"x": X})
    np.testing.assert_array_equal(plain[0], [18, 22, 26])
    options = ours.RunOptions()
    options.add_active_adapter(adapter)
    (adapted,) = session.run(None, {"x": X}, options)
    np.testing.assert_allclose(adapted, plain + X @ a @ b, rtol=1e-5)
    # What the caller gives is not taken, as by onnxruntime; a second one with the names is not.
    options.add_active_adapter(adapter)
    again = session.run(None, {"x": X, "a": np.zeros((4, 2), "f4")}, options)
    np.testing.assert_array_equal(again[0], adapted)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], plain)


def test_wrong_adapters(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="No such file"):
        ours.LoraAdapter().Load(str(tmp_path / "none"))
    with pytest.raises(TypeError, match="expected a path, got 3"):
        ours.LoraAdapter().Load(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a LoraAdapter, got 3"):
        ours.RunOptions().add_active_adapter(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="w: expected an OrtValue"):
        ours.AdapterFormat().set_parameters({"w": X})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="expected an int32"):
        ours.AdapterFormat().set_model_version(1 << 40)
    adapter = ours.LoraAdapter()
    adapter.Load(written(tmp_path / "adapter", other=X))
    options = ours.RunOptions()
    options.add_active_adapter(adapter)
    session = ours.InferenceSession(model_with_adapters())
    with pytest.raises(Exception, match="Invalid input name: other"):
        session.run(None, {"x": X}, options)


# Initializers


def test_constants_of_the_session_replace_those_of_the_model() -> None:
    options = ours.SessionOptions()
    weight = np.ones((4, 3), "f4")
    options.add_initializer("w", value(weight))
    options.add_initializer("not there", value(weight))
    session = ours.InferenceSession(model_with_adapters(), options)
    weight[:] = 9
    for outputs in (None, ["y"]):
        np.testing.assert_array_equal(session.run(outputs, {"x": X})[0], np.full((2, 3), 4.0))
    others = ours.InferenceSession(model_with_adapters())
    np.testing.assert_array_equal(others.run(None, {"x": X})[0][0], [18, 22, 26])


@pytest.mark.parametrize("wrong", [np.ones((4, 2), "f4"), np.ones((4, 3), "f8")])
def test_constants_that_do_not_fit(wrong: Any) -> None:
    options = ours.SessionOptions()
    options.add_initializer("w", value(wrong))
    with pytest.raises(Exception, match=r"constants: 'w': expected float32\[4, 3\], got float"):
        ours.InferenceSession(model_with_adapters(), options)


def external_model() -> bytes:
    """y = x w, where w is in a file."""
    weight = TensorProto(name="w", data_type=FLOAT, dims=[4, 3], data_location=1)
    for key, text in (("location", "weights.bin"), ("offset", "8"), ("length", "48")):
        weight.external_data.add(key=key, value=text)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [info("x", ["n", 4])], [info("y", ["n", 3])], [weight])
    opsets = [helper.make_opsetid("", 17)]
    data: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return data


def test_files_of_constants_may_be_in_memory() -> None:
    weight = np.arange(12, dtype="f4").reshape(4, 3)
    content = bytes(8) + weight.tobytes()
    from_files = ours.SessionOptions()
    from_files.add_external_initializers_from_files_in_memory(
        ["weights.bin"], [bytearray(content + b"more")], [len(content)]
    )
    from_values = ours.SessionOptions()
    from_values.add_external_initializers(["w"], [value(weight)])
    for options in (from_files, from_values):
        session = ours.InferenceSession(external_model(), options)
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X @ weight)
    with pytest.raises(Exception, match=r"the elements are in 'weights\.bin', but the"):
        ours.InferenceSession(external_model())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda o: o.add_initializer("w", X), "expected an OrtValue"),
        (lambda o: o.add_external_initializers(["w"], []), "equal length"),
        (lambda o: o.add_external_initializers_from_files_in_memory(["w"], [b""], []), "equal len"),
        (lambda o: o.add_external_initializers_from_files_in_memory(["w"], [b"ab"], [3]),
         "w: expected 3 bytes, got 2"),
    ],
)  # fmt: skip
def test_wrong_constants(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        call(ours.SessionOptions())


def test_the_optimized_model_is_the_model(tmp_path: Path) -> None:
    """A program that keeps it finds one that any runtime reads."""
    options = ours.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    (expected,) = ours.InferenceSession(model_with_adapters(), options).run(None, {"x": X})
    kept = ours.InferenceSession(options.optimized_model_filepath)
    np.testing.assert_array_equal(kept.run(None, {"x": X})[0], expected)
    (tmp_path / "weights.bin").write_bytes(bytes(56))
    (tmp_path / "external.onnx").write_bytes(external_model())
    with pytest.raises(Exception, match=r"for models with constants in other files \(weights.bin"):
        ours.InferenceSession(tmp_path / "external.onnx", options)


def test_making_a_session_can_be_cancelled() -> None:
    options = ours.SessionOptions()
    options.set_load_cancellation_flag(True)
    with pytest.raises(Exception, match="canceled by the user"):
        ours.InferenceSession(model_with_adapters(), options)


# Sparse tensors


def test_sparse_tensors_by_places_and_by_rows() -> None:
    device = ours.OrtDevice.make("cpu", 0)
    elements = np.array([1, 2], "f4")
    coo = ours.SparseTensor.sparse_coo_from_numpy([3, 3], elements, np.array([1, 5]), device)
    assert coo.format() == ours.OrtSparseFormat.ORT_SPARSE_COO
    assert coo.data_type() == "sparse_tensor(float)"
    assert coo.as_coo_view().indices().tolist() == [1, 5]
    rows = ours.SparseTensor.sparse_csr_from_numpy(
        [3, 3], elements, np.array([1, 2]), np.array([0, 1, 2, 2]), device
    )
    assert rows.format() == ours.OrtSparseFormat.ORT_SPARSE_CSRC
    assert rows.as_csrc_view().outer().tolist() == [0, 1, 2, 2]
    kept = ours.OrtValue.ort_value_from_sparse_tensor(coo)
    assert kept.is_sparse_tensor()
    assert not kept.is_tensor()
    assert (kept.shape(), kept.element_type()) == ([3, 3], 1)
    np.testing.assert_array_equal(kept.as_sparse_tensor().values(), elements)
    for call, message in (
        (kept.numpy, "that are Tensors"),
        (coo.as_csrc_view, "does not contain CSR"),
        (rows.as_coo_view, "does not contain COO"),
        (value(X).as_sparse_tensor, "does not contain a sparse tensor"),
    ):
        with pytest.raises(RuntimeError, match=message):
            call()
    session = ours.InferenceSession(model_with_adapters())
    refused = ours.capi.onnxruntime_pybind11_state.InvalidArgument
    with pytest.raises(refused, match="but received a sparse tensor"):
        session.run_with_ort_values(None, {"x": kept})


@pytest.mark.parametrize(
    ("shape", "places", "message"),
    [
        ([3, 3], [1], "Index size: 1 must be equal to or twice the values size: 2"),
        ([3, 3], [1, 9], "out of bounds"),
        ([3, 3], [[0, 0], [0, 3]], "out of bounds"),
        ([3, -1], [0, 1], "dense_shape: expected lengths"),
    ],
)
def test_wrong_places_of_sparse_tensors(shape: Any, places: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        ours.SparseTensor.sparse_coo_from_numpy(
            shape, np.ones(2, "f4"), np.array(places), ours.OrtDevice.make("cpu", 0)
        )


@pytest.mark.parametrize(
    ("inner", "outer", "message"),
    [
        ([1, 2], [0, 1], "a start for each row and the end"),
        ([1, 2], [0, 3, 2, 2], "growing numbers up to 2"),
        ([1, 3], [0, 1, 2, 2], "columns below 3"),
    ],
)
def test_wrong_rows_of_sparse_tensors(inner: Any, outer: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        ours.SparseTensor.sparse_csr_from_numpy(
            [3, 3], np.ones(2, "f4"), np.array(inner), np.array(outer),
            ours.OrtDevice.make("cpu", 0),
        )  # fmt: skip


# Devices and memory


def test_the_device_is_the_processor() -> None:
    (device,) = ours.get_ep_devices()
    assert device.ep_name == "CPUExecutionProvider"
    assert device.device.type == ours.OrtHardwareDeviceType.CPU
    assert device.memory_info().name == "Cpu"
    options = ours.SessionOptions()
    options.add_provider_for_devices([device], {})
    options.set_provider_selection_policy(ours.OrtExecutionProviderDevicePolicy.PREFER_CPU)
    session = ours.InferenceSession(model_with_adapters(), options)
    assert [each.name for each in session.get_input_memory_infos()] == ["Cpu"]
    assert [each.ep_name for each in session.get_input_epdevices()] == ["CPUExecutionProvider"]
    assert session.get_tuning_results() == []


def test_memory() -> None:
    memory = ours.OrtMemoryInfo(
        "Cpu", ours.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ours.OrtMemType.DEFAULT
    )
    assert memory.allocator_type == ours.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    ours.create_and_register_allocator(memory, ours.OrtArenaCfg({"max_mem": 100}))
    with pytest.raises(RuntimeError, match="expected the device 'cpu', got 'Cuda'"):
        ours.OrtMemoryInfo(
            "Cuda", ours.OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, ours.OrtMemType.DEFAULT
        )
    with pytest.raises(RuntimeError, match="Invalid OrtArenaCfg option: size"):
        ours.OrtArenaCfg({"size": 1})
    target = value(np.zeros((2, 4), "f4"))
    ours.copy_tensors([value(X)], [target])
    np.testing.assert_array_equal(target.numpy(), X)
    with pytest.raises(RuntimeError, match="of one type and shape"):
        ours.copy_tensors([value(X)], [value(np.zeros(3, "f4"))])


def test_vectors_of_values() -> None:
    session = ours.InferenceSession(model_with_adapters())
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    found = binding.get_outputs_as_ortvaluevector()
    assert found.element_type_at(0) == FLOAT
    found.push_back(X)
    assert [each.shape() for each in found] == [[2, 3], [2, 4]]
    (first, _) = found.to_dlpacks(lambda capsule: capsule is not None)
    assert first
    results: list[Any] = []
    session.run_with_ortvaluevector(None, ["x"], [value(X)], ["y"], results)
    np.testing.assert_array_equal(results[0].numpy(), found[0].numpy())


@pytest.mark.parametrize("name", sorted(ours._REFUSED))
def test_names_that_are_refused_say_why(name: str) -> None:
    message = re.escape(f"no attribute {name!r}: {ours._REFUSED[name]}")
    with pytest.raises(AttributeError, match=message):
        getattr(ours, name)


# What a decoder copies

WIDTH = 4096
BEFORE = 200


def cached() -> ours.InferenceSession:
    """present = past with x behind, and y, its sum."""
    nodes = [helper.make_node("Concat", ["past", "x"], ["present"], axis=1),
             helper.make_node("ReduceSum", ["present"], ["y"], keepdims=0)]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [info("x", [1, "n", WIDTH]), info("past", [1, "p", WIDTH])],
        [info("y", []), info("present", [1, "m", WIDTH])],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return ours.InferenceSession(model.SerializeToString())


def by_run(session: Any, x: Any, past: Any) -> Any:
    given = past.numpy() if isinstance(past, ours.OrtValue) else past
    return session.run(None, {"x": x, "past": given})[1]


def by_values(session: Any, x: Any, past: Any) -> Any:
    given = past if isinstance(past, ours.OrtValue) else value(past)
    return session.run_with_ort_values(None, {"x": value(x), "past": given})[1]


def by_binding(session: Any, x: Any, past: Any) -> Any:
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    given = past if isinstance(past, ours.OrtValue) else value(past)
    binding.bind_ortvalue_input("past", given)
    binding.bind_output("y", "cpu")
    binding.bind_output("present", "cpu")
    session.run_with_iobinding(binding)
    return binding.get_outputs()[1]


@pytest.mark.parametrize("step", [by_run, by_values, by_binding])
def test_a_step_of_a_decoder_writes_the_cache_once(step: Callable[..., Any]) -> None:
    """The present one, as onnxruntime: the past is neither copied, nor the result."""
    session = cached()
    past = np.zeros((1, BEFORE, WIDTH), "f4")
    x = np.ones((1, 1, WIDTH), "f4")
    kept = [past, step(session, x, past)]
    tracemalloc.start()
    try:
        for i in range(3):
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            kept.append(step(session, x, kept[-1]))
            peak = tracemalloc.get_traced_memory()[1] - before
            whole = (BEFORE + 2 + i) * WIDTH * 4
            assert whole <= peak < 1.5 * whole
    finally:
        tracemalloc.stop()
    places = {(each.numpy() if isinstance(each, ours.OrtValue) else each).ctypes.data
              for each in kept}  # fmt: skip
    assert len(places) == len(kept)


def test_bound_memory_gets_the_result() -> None:
    session = cached()
    past, x = np.zeros((1, BEFORE, WIDTH), "f4"), np.ones((1, 1, WIDTH), "f4")
    target = value(np.empty((1, BEFORE + 1, WIDTH), "f4"))
    address = target.data_ptr()
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_cpu_input("past", past)
    binding.bind_output("y")
    binding.bind_ortvalue_output("present", target)
    session.run_with_iobinding(binding)
    assert binding.get_outputs()[1].data_ptr() == address
    np.testing.assert_array_equal(target.numpy()[0, -1], x[0, 0])


# Maps


def model_of_map(op_type: str, key: int, **attributes: Any) -> bytes:
    kind = onnx.TypeProto()
    kind.map_type.key_type = key
    kind.map_type.value_type.CopyFrom(helper.make_tensor_type_proto(FLOAT, []))
    node = helper.make_node(op_type, ["m"], ["y"], domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph(
        [node], "g", [helper.make_value_info("m", kind)], [info("y", [1, None])]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    data: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return data


def test_maps_are_inputs() -> None:
    """The expected arrays are those of onnxruntime 1.32."""
    names = ours.InferenceSession(
        model_of_map("DictVectorizer", TensorProto.STRING, string_vocabulary=["a", "b", "c"])
    )
    assert names.get_inputs()[0].type == "map(string,tensor(float))"
    (y,) = names.run(None, {"m": {"a": 1.0, "c": np.float32(3)}})
    np.testing.assert_array_equal(y, np.array([[1, 0, 3]], "f4"))
    places = ours.InferenceSession(
        model_of_map("CastMap", TensorProto.INT64, cast_to="TO_FLOAT")
    )
    (y,) = places.run(None, {"m": {0: 1.0, np.int64(2): 3}})
    np.testing.assert_array_equal(y, np.array([[1, 3]], "f4"))
    for session, wrong in ((names, {1: 1.0}), (names, {"a": "b"}), (places, {"a": 1.0})):
        with pytest.raises(RuntimeError, match=r"Unexpected (key|value) type .* of map input m"):
            session.run(None, {"m": wrong})


def test_maps_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "map.onnx"
    path.write_bytes(model_of_map("CastMap", TensorProto.INT64, cast_to="TO_FLOAT"))
    assert command(["run", str(path), "--arg", 'm={"0": 1.5, "2": 2}']) == 0
    assert "[[1.5, 2]]" in capsys.readouterr().out
    assert command(["run", str(path), "--random"]) == 0
    assert "float32[1, 3]" in capsys.readouterr().out
    assert command(["run", str(path), "--arg", 'm={"a": 1.5}']) != 0
    assert "expected integers as keys, got ['a']" in capsys.readouterr().err


def test_maps_are_results_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = helper.make_node("ZipMap", ["x"], ["z"], domain="ai.onnx.ml", classlabels_int64s=[3, 9])
    graph = helper.make_graph([node], "g", [info("x", ["n", 2])],
                              [helper.make_empty_tensor_value_info("z")])  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    path, out = tmp_path / "zip.onnx", tmp_path / "z.npz"
    path.write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    )
    np.savez(tmp_path / "x.npz", x=np.array([[0.25, 0.75]], "f4"))
    options = ["--input", str(tmp_path / "x.npz"), "--output", str(out)]
    assert command(["run", str(path), *options]) == 0
    assert "z.0  dict  {3: 0.25, 9: 0.75}" in capsys.readouterr().out
    with np.load(out) as found:
        assert found["z.0.keys"].tolist() == [3, 9]
        assert found["z.0.values"].tolist() == [0.25, 0.75]


def test_a_value_is_an_array_for_numpy() -> None:
    value = ours.OrtValue.ortvalue_from_numpy(np.ones((2, 4), np.float32))
    array = np.asarray(value)
    assert (array.shape, array.dtype) == ((2, 4), np.float32)
    assert np.shares_memory(array, value.numpy())
    assert np.asarray(value, np.float64).dtype == np.float64
    assert not np.shares_memory(np.array(value), value.numpy())


def test_enumerations_print_as_names() -> None:
    level = ours.GraphOptimizationLevel.ORT_ENABLE_ALL
    assert str(level) == f"{level}" == "GraphOptimizationLevel.ORT_ENABLE_ALL"
    assert repr(level) == "<GraphOptimizationLevel.ORT_ENABLE_ALL: 99>"
    assert level == int(level) == 99
