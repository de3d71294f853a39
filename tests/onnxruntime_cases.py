"""Calls of onnxruntime's interface, and what onnxruntime answers.

    python -m tests.onnxruntime_cases

writes ``tests/golden/onnxruntime.json``: the models and the answers, with the packages onnx and
onnxruntime.  `tests.test_onnxruntime` makes the same calls of `relaxvm.contrib.onnxruntime`, and
needs neither.
"""

from __future__ import annotations

import base64
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np

__all__ = ["CASES", "CLASS_ONLY", "GOLDEN", "answer", "models_of"]

GOLDEN: Final = Path(__file__).parent / "golden" / "onnxruntime.json"

F32: Final = np.float32


class Calls:
    """What a case may use.

    Attributes:
        ort: the module onnxruntime, or relaxvm's.
        models: name -> bytes.
        folder: a folder with the same models as files.
    """

    def __init__(self, ort: ModuleType, models: dict[str, bytes], folder: Path) -> None:
        self.ort = ort
        self.models = models
        self.folder = folder
        for name, data in models.items():
            (folder / f"{name}.onnx").write_bytes(data)
        (folder / "bad.onnx").write_bytes(b"hello, this is no model")
        (folder / "empty.onnx").write_bytes(b"")

    def session(self, model: str, *args: Any, **kwargs: Any) -> Any:
        return self.ort.InferenceSession(self.models[model], *args, **kwargs)

    def file(self, name: str, data: bytes) -> str:
        (self.folder / name).write_bytes(data)
        return str(self.folder / name)

    def path(self, name: str) -> str:
        return str(self.folder / f"{name}.onnx")


Case = Callable[[Calls], Any]


def ones(*shape: int, dtype: Any = F32) -> np.ndarray[Any, Any]:
    return np.ones(shape, dtype)


def run(model: str, feed: dict[Any, Any], names: Any = None, *options: Any) -> Case:
    return lambda c: c.session(model).run(names, feed, *options)


def args_of(kind: str, model: str) -> Case:
    return lambda c: [[a.name, a.shape, a.type, str(a)]
                      for a in getattr(c.session(model), f"get_{kind}")()]  # fmt: skip


def metadata(c: Calls, model: str) -> Any:
    meta = c.session(model).get_modelmeta()
    names = ("custom_metadata_map", "description", "domain", "graph_description", "graph_name",
             "producer_name", "version")  # fmt: skip
    return {name: getattr(meta, name) for name in names}


def with_options(model: str, feed: dict[str, Any], **options: Any) -> Case:
    def case(c: Calls) -> Any:
        made = c.ort.SessionOptions()
        for name, value in options.items():
            setattr(made, name, value)
        return c.session(model, made).run(None, feed)

    return case


def bound(*steps: Callable[[Calls, Any, Any], Any]) -> Case:
    """Steps with a session of "affine" and its binding; the results are those of all steps."""

    def case(c: Calls) -> Any:
        session = c.session("affine")
        binding = session.io_binding()
        return [step(c, session, binding) for step in steps]

    return case


def in_order(c: Calls, model: str, names: Any, feed: Any) -> Any:
    done: list[Any] = []
    c.session(model).run_async(names, feed, lambda *got: done.append(got), "mine")
    end = time.monotonic() + 60
    while not done and time.monotonic() < end:
        time.sleep(0.01)
    return done


def override(c: Calls) -> Any:
    options = c.ort.SessionOptions()
    options.add_free_dimension_override_by_name("N", 2)
    session = c.session("affine", options)
    return [[a.shape for a in session.get_inputs()],
            session.run(None, {"x": ones(2, 3), "m": ones(3, 2)})]  # fmt: skip


def changed(c: Calls, name: str, new: Any) -> Any:
    options = c.ort.SessionOptions()
    setattr(options, name, new)
    found = getattr(options, name)
    return [type(found).__name__, found]


def ended(c: Calls) -> Any:
    options = c.ort.RunOptions()
    options.terminate = True
    return options


def terminated(c: Calls) -> Any:
    return c.session("affine").run(None, GOOD, ended(c))


def loaded_as(c: Calls, name: str) -> Any:
    """The inputs of a model in a file of another name."""
    session = c.ort.InferenceSession(c.file(name, c.models["identity"]))
    return [each.name for each in session.get_inputs()]


def value(c: Calls, array: Any, *args: Any) -> Any:
    return c.ort.OrtValue.ortvalue_from_numpy(array, *args)


def typed(c: Calls, array: np.ndarray[Any, Any], kind: int) -> Any:
    made = c.ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, kind)
    return [made.shape(), made.data_type(), made.element_type()]


def sparse(c: Calls) -> Any:
    return c.ort.SparseTensor.sparse_coo_from_numpy(
        np.array([3, 3], np.int64), np.array([1, 2], F32), np.array([0, 4], np.int64),
        c.ort.OrtDevice.make("cpu", 0))  # fmt: skip


def facts(v: Any) -> list[Any]:
    return [v.shape(), v.data_type(), v.element_type(), v.device_name(), v.is_tensor(),
            v.is_sparse_tensor(), v.is_tensor_sequence(), v.has_value(), v.numpy(),
            v.tensor_size_in_bytes()]  # fmt: skip


def updated(c: Calls, new: Any) -> Any:
    array = np.arange(6, dtype=F32).reshape(2, 3)
    made = value(c, array)
    made.update_inplace(new)
    return made.numpy(), array


def into_memory(c: Calls, target: np.ndarray[Any, Any]) -> Any:
    session = c.session("affine")
    binding = session.io_binding()
    binding.bind_cpu_input("x", ones(2, 3))
    binding.bind_cpu_input("m", ones(3, 2))
    binding.bind_output("y", "cpu", 0, target.dtype.type, list(target.shape), target.ctypes.data)
    session.run_with_iobinding(binding)
    return target


def unchanged(c: Calls, model: str) -> Any:
    """Results are the caller's: changing them changes no input and no later result."""
    session = c.session(model)
    x = np.arange(6, dtype=F32).reshape(2, 3)
    first = session.run(None, {"x": x})
    for result in first:
        result[...] = 99
    return x, session.run(None, {"x": x})


SIX: Final = np.arange(6, dtype=F32)
GOOD: Final = {"x": ones(2, 3), "m": ones(3, 2)}

CASES: Final[dict[str, Case]] = {
    # What a session says
    "inputs": args_of("inputs", "affine"),
    "outputs": args_of("outputs", "affine"),
    "initializers": args_of("overridable_initializers", "affine"),
    "inputs of kinds": args_of("inputs", "kinds"),
    "outputs of kinds": args_of("outputs", "kinds"),
    "outputs without shapes": args_of("outputs", "open"),
    "inputs of old models": args_of("inputs", "old"),
    "initializers of old models": args_of("overridable_initializers", "old"),
    "inputs of sequences": args_of("inputs", "sequence"),
    "outputs of sequences": args_of("outputs", "sequence"),
    "metadata": lambda c: metadata(c, "affine"),
    "metadata of none": lambda c: metadata(c, "open"),
    "providers": lambda c: c.session("affine").get_providers(),
    "provider options": lambda c: c.session("affine").get_provider_options(),
    "device": lambda c: c.ort.get_device(),
    "version": lambda c: c.ort.__version__,
    # Runs
    "run": run("affine", GOOD),
    "run, no names": run("affine", GOOD, []),
    "run, one name": run("affine", GOOD, ["s"]),
    "run, names in another order, twice": run("affine", GOOD, ["s", "y", "s"]),
    "run, names as a tuple": run("affine", GOOD, ("y",)),
    "run, unknown output": run("affine", GOOD, ["q"]),
    "run, names as text": run("affine", GOOD, "y"),
    "run, names that are no text": run("affine", GOOD, [1]),
    "run, default replaced": run("affine", {**GOOD, "w": np.zeros(3, F32)}),
    "run, default of another size": run("affine", {**GOOD, "w": np.zeros(4, F32)}),
    "run, default of another type": run("affine", {**GOOD, "w": np.zeros(3, np.int64)}),
    "run, input missing": run("affine", {"x": ones(2, 3)}),
    "run, inputs missing": run("affine", {}),
    "run, unknown input": run("affine", {**GOOD, "z": ones(1)}),
    "run, unknown input alone": run("affine", {"z": ones(1)}),
    "run, key is no text": run("affine", {1: ones(2, 3), "m": ones(3, 2)}),
    "run, rank too small": run("affine", {"x": ones(3), "m": ones(3, 2)}),
    "run, rank too large": run("affine", {"x": ones(1, 2, 3), "m": ones(3, 2)}),
    "run, scalar": run("affine", {"x": np.array(1, F32), "m": ones(3, 2)}),
    "run, dimension": run("affine", {"x": ones(2, 4), "m": ones(3, 2)}),
    "run, dimensions": run("affine", {"x": ones(2, 3), "m": ones(5, 7)}),
    "run, both wrong": run("affine", {"x": ones(2, 4), "m": ones(5, 5)}),
    "run, both wrong in another order": run("affine", {"m": ones(5, 5), "x": ones(2, 4)}),
    "run, float64": run("affine", {**GOOD, "x": ones(2, 3, dtype=np.float64)}),
    "run, float16": run("affine", {**GOOD, "x": ones(2, 3, dtype=np.float16)}),
    "run, int32": run("affine", {**GOOD, "x": ones(2, 3, dtype=np.int32)}),
    "run, uint8": run("affine", {**GOOD, "x": ones(2, 3, dtype=np.uint8)}),
    "run, bool": run("affine", {**GOOD, "x": ones(2, 3, dtype=np.bool_)}),
    "run, texts": run("affine", {**GOOD, "x": np.array([["a", "b", "c"]])}),
    "run, objects": run("affine", {**GOOD, "x": np.array([[1, 2, 3]], object)}),
    "run, complex": run("affine", {**GOOD, "x": ones(2, 3, dtype=np.complex64)}),
    "run, type before shape": run("affine", {**GOOD, "x": ones(7, dtype=np.int8)}),
    "run, list": run("affine", {**GOOD, "x": [[1.0, 2.0, 3.0]]}),
    "run, list of integers": run("affine", {**GOOD, "x": [[1, 2, 3]]}),
    "run, float": run("affine", {**GOOD, "x": 1.0}),
    "run, numpy scalar": run("affine", {**GOOD, "x": F32(1)}),
    "run, tuple": run("affine", {**GOOD, "x": ((1.0, 2.0, 3.0),)}),
    "run, None": run("affine", {**GOOD, "x": None}),
    "run, transposed": run("affine", {**GOOD, "x": np.arange(6, dtype=F32).reshape(3, 2).T}),
    "run, reversed": run("affine", {**GOOD, "x": np.arange(6, dtype=F32).reshape(2, 3)[::-1]}),
    "run, every other": run("affine", {**GOOD, "x": np.arange(12, dtype=F32).reshape(4, 3)[::2]}),
    "run, read-only": run("affine", {**GOOD, "x": np.broadcast_to(F32(2), (2, 3))}),
    "run, masked": run("affine", {**GOOD, "x": np.ma.array(ones(2, 3))}),
    "run, empty": run("affine", {**GOOD, "x": ones(0, 3)}),
    "run, names of a generator": lambda c: c.session("affine").run(
        (name for name in "y"), GOOD),
    "run, an inner name": run("affine", GOOD, ["t"]),
    "run, an input as an output": run("affine", GOOD, ["x"]),
    "run, unknown output and no inputs": run("affine", {}, ["q"]),
    "run, nothing for an unknown input": run("affine", {**GOOD, "z": None}),
    "run, feed is a list": lambda c: c.session("affine").run(None, [ones(2, 3)]),
    "run, feed is None": lambda c: c.session("affine").run(None, None),
    "run, options of another class": run("affine", GOOD, None, 3),
    "run, value": lambda c: c.session("affine").run(None, {**GOOD, "x": value(c, ones(2, 3))}),
    "run, terminated": terminated,
    "run, a dimension with two values": run("pair", {"a": ones(2, 2), "b": ones(3, 2)}),
    "run, a dimension with one value": run("pair", {"a": ones(2, 2), "b": ones(2, 2)}),
    "run, a scalar": run("scalar", {"x": np.array(3, F32)}),
    "run, a vector for a scalar": run("scalar", {"x": np.array([3], F32)}),
    "run, a matrix for a scalar": run("scalar", {"x": ones(2, 2)}),
    "run, kinds": run("kinds", {
        "f16": ones(2, dtype=np.float16), "u8": ones(2, dtype=np.uint8),
        "b": np.array([True, False]), "s": np.array(["a", "bc"]),
        "d": ones(2, dtype=np.float64), "i": ones(2, dtype=np.int64)}),
    "run, texts as objects": run("kinds", {
        "f16": ones(2, dtype=np.float16), "u8": ones(2, dtype=np.uint8),
        "b": np.array([True, False]), "s": np.array(["a", "ü"], object),
        "d": ones(2, dtype=np.float64), "i": ones(2, dtype=np.int64)}, ["os"]),
    "run, sequence": run("sequence", {"x": [ones(2), ones(3)]}),
    "run, sequence that is no list": run("sequence", {"x": ones(2)}),
    "run, an element of another type": run("sequence", {"x": [ones(2, dtype=np.int32)]}),
    "run, an element that is a list": run("sequence", {"x": [[1.0, 2.0]]}),
    "run, an element that is None": run("sequence", {"x": [None]}),
    "run, a sparse tensor": lambda c: c.session("identity").run(
        None, {"x": c.ort.OrtValue.ort_value_from_sparse_tensor(sparse(c))}),
    "run, an unnamed dimension": run("open", {"x": ones(2, 3)}),
    "results are the caller's": lambda c: unchanged(c, "identity"),
    # Options
    "options, levels": lambda c: [
        [int(e), e.name] for e in (c.ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
                                   c.ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
                                   c.ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
                                   c.ort.ExecutionMode.ORT_PARALLEL)],
    "options, defaults": lambda c: [
        [name, getattr(c.ort.SessionOptions(), name)] for name in (
            "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "enable_profiling",
            "inter_op_num_threads", "intra_op_num_threads", "log_severity_level",
            "log_verbosity_level", "logid", "optimized_model_filepath", "profile_file_prefix",
            "use_deterministic_compute")],
    "options of runs, defaults": lambda c: [
        [name, getattr(c.ort.RunOptions(), name)] for name in (
            "log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches",
            "terminate")],
    "options, threads": with_options("affine", GOOD, intra_op_num_threads=2,
                                     inter_op_num_threads=1, log_severity_level=3),
    "options, unknown": with_options("affine", GOOD, threads=2),
    "options, type": with_options("affine", GOOD, intra_op_num_threads="2"),
    "options, level as a number": with_options("affine", GOOD, graph_optimization_level=3),
    "options, entries": lambda c: (
        lambda o: [o.add_session_config_entry("a", "b"), o.get_session_config_entry("a")]
    )(c.ort.SessionOptions()),
    "options, no entry": lambda c: c.ort.SessionOptions().get_session_config_entry("zz"),
    "options, entries of runs": lambda c: (
        lambda o: [o.add_run_config_entry("a", "b"), o.get_run_config_entry("a")]
    )(c.ort.RunOptions()),
    "options, no key": lambda c: c.ort.SessionOptions().add_session_config_entry("", "b"),
    "options, a long key": lambda c: c.ort.RunOptions().add_run_config_entry("k" * 2000, "b"),
    "options, a truth for a number": lambda c: changed(c, "intra_op_num_threads", True),
    "options, None for a truth": lambda c: changed(c, "enable_mem_pattern", None),
    "options, dimension": override,
    "options, no options": lambda c: c.session("affine", 3),
    "options, None": lambda c: c.session("affine", None, None, None).run(None, GOOD),
    "keywords": lambda c: c.ort.InferenceSession(
        path_or_bytes=c.models["affine"], sess_options=c.ort.SessionOptions(),
        providers=[("CPUExecutionProvider", {})], provider_options=None, read_config=1,
    ).get_providers(),
    "providers, CPU": lambda c: c.session("affine", providers=["CPUExecutionProvider"]
                                          ).get_providers(),
    "providers, another": lambda c: c.session(
        "affine", providers=["CUDAExecutionProvider", "CPUExecutionProvider"]).get_providers(),
    "providers, set": lambda c: c.session("affine").set_providers(["CPUExecutionProvider"]),
    "providers, set to another": lambda c: c.session("affine").set_providers(["Nope"]),
    "providers, one twice": lambda c: c.session(
        "affine", providers=["CPUExecutionProvider"] * 2).get_providers(),
    # Loading
    "load, path": lambda c: c.ort.InferenceSession(c.path("affine")).run(None, GOOD),
    "load, Path": lambda c: c.ort.InferenceSession(Path(c.path("affine"))).run(None, GOOD),
    "load, no file": lambda c: c.ort.InferenceSession(c.path("absent")),
    "load, no model": lambda c: c.ort.InferenceSession(c.path("bad")),
    "load, empty file": lambda c: c.ort.InferenceSession(c.path("empty")),
    "load, folder": lambda c: c.ort.InferenceSession(str(c.folder)),
    "load, bytes that are no model": lambda c: c.ort.InferenceSession(b"hello, no model"),
    "load, no bytes": lambda c: c.ort.InferenceSession(b""),
    "load, truncated": lambda c: c.ort.InferenceSession(c.models["affine"][:-20]),
    "load, bytes of unknown fields": lambda c: c.ort.InferenceSession(b"xxxx"),
    "load, bytes without a graph": lambda c: c.ort.InferenceSession(b"\x08\x08\x42\x02\x10\x11"),
    "load, file without a graph": lambda c: c.ort.InferenceSession(c.file("plain.onnx", b"xxxx")),
    "load, no version of the format": lambda c: c.ort.InferenceSession(
        c.models["identity"].replace(b"\x08\x08", b"\x08\x00", 1)).get_inputs()[0].name,
    "load, a script": lambda c: c.ort.InferenceSession(c.file("run.py", b"raise SystemExit")),
    "load, a name without an end": lambda c: loaded_as(c, "model"),
    "load, a name of JSON": lambda c: loaded_as(c, "model.json"),
    "load, a name of PyTorch": lambda c: loaded_as(c, "model.pt2"),
    "load, a constant that is too small": lambda c: c.session("small"),
    "load, a constant of no type": lambda c: c.session("untyped"),
    "load, a constant in no file": lambda c: c.ort.InferenceSession(c.path("gone")),
    "load, number": lambda c: c.ort.InferenceSession(3),
    "load, None": lambda c: c.ort.InferenceSession(None),
    "load, bytearray": lambda c: c.ort.InferenceSession(bytearray(c.models["affine"])),
    # Values
    "value": lambda c: facts(value(c, np.arange(6, dtype=F32).reshape(2, 3))),
    "value, float16": lambda c: facts(value(c, np.arange(6, dtype=np.float16))),
    **{f"value, {dtype}": lambda c, dtype=dtype: facts(value(c, np.arange(3).astype(dtype)))
       for dtype in ("f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")},
    "value, scalar": lambda c: facts(value(c, np.array(3, F32))),
    "value, empty": lambda c: facts(value(c, ones(0, 3))),
    "value, bits of bfloat16": lambda c: typed(c, np.arange(3, dtype=np.uint16), 16),
    "value, bits of float8": lambda c: typed(c, np.arange(3, dtype=np.uint8), 17),
    "value, bits of another size": lambda c: typed(c, ones(3), 16),
    "value, shape and strings": lambda c: c.ort.OrtValue.ortvalue_from_shape_and_type(
        [2], np.str_),
    "value, no such type": lambda c: c.ort.OrtValue.ortvalue_from_shape_and_type([2], 77),
    "value, its array": lambda c: np.asarray(value(c, ones(2))),
    "value, by DLPack": lambda c: np.from_dlpack(value(c, ones(2))),
    "value, memory": lambda c: (lambda a: value(c, a).data_ptr() == a.ctypes.data)(ones(4)),
    "value, updated with a list": lambda c: updated(c, [[0] * 3] * 2),
    "value, sparse": lambda c: (lambda s: [
        s.data_type(), s.dense_shape(), s.values(), s.format().name, s.as_coo_view().indices()]
    )(sparse(c)),
    "value, list": lambda c: value(c, [1, 2]),
    "value, texts": lambda c: value(c, np.array(["a"])),
    "value, other device": lambda c: value(c, ones(2), "cuda", 0),
    "value, no device": lambda c: value(c, ones(2), "abc", 0),
    "value, shape and type": lambda c: c.ort.OrtValue.ortvalue_from_shape_and_type(
        [2, 3], np.int64).numpy().shape,
    "value, number of a type": lambda c: c.ort.OrtValue.ortvalue_from_shape_and_type(
        [2, 3], 11).data_type(),
    "value, updated": lambda c: updated(c, np.zeros((2, 3), F32)),
    "value, updated with another shape": lambda c: updated(c, np.zeros((3, 3), F32)),
    "value, results": lambda c: [facts(v) for v in c.session("affine").run_with_ort_values(
        None, {k: value(c, v) for k, v in GOOD.items()})],
    "value, arrays instead": lambda c: c.session("affine").run_with_ort_values(["y"], GOOD),
    # Bindings
    "bind": bound(
        lambda c, s, b: b.bind_cpu_input("x", ones(2, 3)),
        lambda c, s, b: b.bind_ortvalue_input("m", value(c, ones(3, 2))),
        lambda c, s, b: b.bind_output("s"),
        lambda c, s, b: b.bind_output("y"),
        lambda c, s, b: s.run_with_iobinding(b),
        lambda c, s, b: [v.numpy() for v in b.get_outputs()],
        lambda c, s, b: b.copy_outputs_to_cpu(),
        lambda c, s, b: b.clear_binding_outputs(),
        lambda c, s, b: b.get_outputs(),
    ),
    "bind, unknown input": bound(lambda c, s, b: b.bind_cpu_input("q", ones(2))),
    "bind, list": bound(lambda c, s, b: b.bind_cpu_input("x", [[1.0, 2.0, 3.0]])),
    "bind, unknown output": bound(lambda c, s, b: b.bind_output("q")),
    "bind, address": bound(
        lambda c, s, b: b.bind_input("x", "cpu", 0, F32, [2, 3], SIX.ctypes.data),
        lambda c, s, b: b.bind_cpu_input("m", ones(3, 2)),
        lambda c, s, b: b.bind_output("y"),
        lambda c, s, b: s.run_with_iobinding(b),
        lambda c, s, b: b.copy_outputs_to_cpu(),
    ),
    "bind, terminated": bound(
        lambda c, s, b: b.bind_cpu_input("x", ones(2, 3)),
        lambda c, s, b: b.bind_cpu_input("m", ones(3, 2)),
        lambda c, s, b: b.bind_output("y"),
        lambda c, s, b: s.run_with_iobinding(b, ended(c)),
    ),
    "bind, no output": bound(lambda c, s, b: s.run_with_iobinding(b)),
    "bind, another type": bound(
        lambda c, s, b: b.bind_cpu_input("x", ones(2, 3, dtype=np.float64)),
        lambda c, s, b: b.bind_cpu_input("m", ones(3, 2)),
        lambda c, s, b: b.bind_output("y"),
        lambda c, s, b: s.run_with_iobinding(b),
    ),
    "bind, memory": lambda c: into_memory(c, np.zeros((2, 2), F32)),
    "bind, memory of another type": lambda c: into_memory(c, np.zeros((2, 2), np.float64)),
    "bind, memory of another shape": lambda c: into_memory(c, np.zeros((3, 2), F32)),
    "bind, memory of a value": bound(
        lambda c, s, b: b.bind_cpu_input("x", ones(2, 3)),
        lambda c, s, b: b.bind_cpu_input("m", ones(3, 2)),
        lambda c, s, b: b.bind_ortvalue_output("y", value(c, np.zeros((2, 2), F32))),
        lambda c, s, b: s.run_with_iobinding(b),
        lambda c, s, b: [v.numpy() for v in b.get_outputs()],
    ),
    # Asynchronous runs
    "async": lambda c: in_order(c, "affine", None, GOOD),
    "async, another type": lambda c: in_order(
        c, "affine", None, {**GOOD, "x": ones(2, 3, dtype=np.float64)}),
    "async, input missing": lambda c: in_order(c, "affine", None, {"x": ones(2, 3)}),
    "async, names": lambda c: in_order(c, "affine", ["y"], GOOD),
    "async, unknown input": lambda c: in_order(c, "affine", None, {**GOOD, "z": ones(1)}),
    "async, rank": lambda c: in_order(c, "affine", None, {**GOOD, "x": ones(1)}),
    "no profile": lambda c: c.session("affine").end_profiling(),
    "classes": lambda c: isinstance(
        c.session("affine"), c.ort.capi.onnxruntime_inference_collection.Session),
    # Exceptions
    "exceptions": lambda c: [
        [name, issubclass(getattr(c.ort.capi.onnxruntime_pybind11_state, name), Exception),
         getattr(c.ort.capi._pybind_state, name)
         is getattr(c.ort.capi.onnxruntime_pybind11_state, name)]
        for name in ("EPFail", "EngineError", "Fail", "InvalidArgument", "InvalidGraph",
                     "InvalidProtobuf", "ModelLoaded", "NoModel", "NoSuchFile", "NotImplemented",
                     "RuntimeException")],
}  # fmt: skip
"""Calls by name."""

CLASS_ONLY: Final = frozenset({
    # onnxruntime prints all signatures of the function, or names places of its sources.
    "run, names as text", "run, names that are no text", "run, options of another class",
    "run, None", "options, no options", "options, type", "options, level as a number",
    "bind, memory of another shape", "value, other device", "run, objects",
    "run, sequence that is no list", "run, an element of another type", "run, tuple",
    "run, a sparse tensor", "load, a constant that is too small", "load, a constant of no type",
    "load, a constant in no file", "value, bits of another size",
})  # fmt: skip
"""Cases of which only the class of the exception is compared."""


def answer(case: Case, calls: Calls) -> Any:
    """What a call returns or raises, as JSON has it."""
    try:
        return {"returns": _plain(case(calls))}
    except Exception as error:
        text = str(error).replace(str(calls.folder), "FOLDER")
        home = type(error).__module__
        return {"raises": f"{home}.{type(error).__name__}", "says": text}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        # longlong and int64 are the same type with two names
        return {"dtype": value.dtype.str, "shape": list(value.shape), "values": value.tolist()}
    if isinstance(value, np.generic):
        return {"scalar": value.dtype.str, "value": value.item()}
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value


def models_of(golden: dict[str, Any]) -> dict[str, bytes]:
    """The models of the file."""
    return {name: base64.b64decode(text) for name, text in golden["models"].items()}


def _models() -> dict[str, bytes]:
    from onnx import TensorProto as T
    from onnx import helper as h

    def model(
        nodes: list[Any],
        inputs: list[Any],
        outputs: list[Any],
        constants: list[Any] | None = None,
        *,
        ir: int = 8,
        **about: Any,
    ) -> bytes:
        metadata = about.pop("metadata", {})
        doc = about.pop("graph_doc", "")
        graph = h.make_graph(nodes, about.pop("graph", "g"), inputs, outputs, constants or [], doc)
        opset = [h.make_opsetid("", 17)]
        made = h.make_model(graph, opset_imports=opset, ir_version=ir, **about)
        h.set_model_props(made, metadata)
        data: bytes = made.SerializeToString()
        return data

    tensor, node = h.make_tensor_value_info, h.make_node
    affine = (
        [node("Add", ["x", "w"], ["t"]), node("MatMul", ["t", "m"], ["y"]),
         node("Shape", ["y"], ["s"])],
        [tensor("x", T.FLOAT, ["N", 3]), tensor("m", T.FLOAT, [3, 2]), tensor("w", T.FLOAT, [3])],
        [tensor("y", T.FLOAT, ["N", 2]), tensor("s", T.INT64, [2])],
        [h.make_tensor("w", T.FLOAT, [3], [1, 2, 3])],
    )  # fmt: skip
    kinds = {"f16": T.FLOAT16, "u8": T.UINT8, "b": T.BOOL, "s": T.STRING, "d": T.DOUBLE,
             "i": T.INT64}  # fmt: skip
    floats = h.make_tensor_sequence_value_info("x", T.FLOAT, None)
    bad = {
        "small": T(name="w", data_type=T.FLOAT, dims=[3], raw_data=bytes(8)),
        "untyped": T(name="w", data_type=77, dims=[3], float_data=[1, 2, 3]),
        "gone": T(name="w", data_type=T.FLOAT, dims=[3], data_location=T.EXTERNAL),
    }
    bad["gone"].external_data.add(key="location", value="gone.bin")
    return {
        "affine": model(
            *affine, producer_name="tests", producer_version="7", domain="a.b", model_version=5,
            doc_string="about\nit", graph="the graph", graph_doc="its text",
            metadata={"names": "{0: 'cat'}", "empty": ""},
        ),
        "old": model(*affine, ir=3),
        "kinds": model(
            [node("Identity", [name], [f"o{name}"]) for name in kinds],
            [tensor(name, kind, [2]) for name, kind in kinds.items()],
            [tensor(f"o{n}", kind, [2 if n == "s" else None]) for n, kind in kinds.items()],
        ),
        "open": model(
            [node("Relu", ["x"], ["y"]), node("Concat", ["x", "y"], ["z"], axis=0)],
            [tensor("x", T.FLOAT, [None, "width"])],
            [tensor("y", T.FLOAT, None), tensor("z", T.FLOAT, None)],
        ),
        "pair": model(
            [node("Concat", ["a", "b"], ["z"], axis=0)],
            [tensor("a", T.FLOAT, ["N", 2]), tensor("b", T.FLOAT, ["N", 2])],
            [tensor("z", T.FLOAT, ["M", 2])],
        ),
        "scalar": model(
            [node("Add", ["x", "x"], ["y"])], [tensor("x", T.FLOAT, [])],
            [tensor("y", T.FLOAT, [])],
        ),
        "identity": model(
            [node("Identity", ["x"], ["y"]), node("Constant", [], ["c"], value=h.make_tensor(
                "c", T.FLOAT, [2], [1, 2]))],
            [tensor("x", T.FLOAT, [2, 3])],
            [tensor("y", T.FLOAT, [2, 3]), tensor("c", T.FLOAT, [2])],
        ),
        **{
            name: model(
                [node("Add", ["x", "w"], ["y"])], [tensor("x", T.FLOAT, [2, 3])],
                [tensor("y", T.FLOAT, None)], [constant],
            )
            for name, constant in bad.items()
        },
        "sequence": model(
            [node("ConcatFromSequence", ["x"], ["y"], axis=0), node("Identity", ["x"], ["z"])],
            [floats],
            [tensor("y", T.FLOAT, [None]), h.make_tensor_sequence_value_info("z", T.FLOAT, None)],
        ),
    }  # fmt: skip


def main() -> None:
    """Write the file."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    models = _models()
    with tempfile.TemporaryDirectory() as folder:
        calls = Calls(onnxruntime, models, Path(folder))
        answers = {name: answer(case, calls) for name, case in CASES.items()}
    golden = {
        "onnxruntime": onnxruntime.__version__,
        "models": {name: base64.b64encode(data).decode() for name, data in models.items()},
        "answers": answers,
    }
    GOLDEN.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
