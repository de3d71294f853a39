"""`relaxvm.contrib.onnxruntime` gives onnxruntime's answers, its mistakes included."""

from __future__ import annotations

import json
import pickle
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
import relaxvm.contrib.onnxruntime as ours
from relaxvm.core.blas import get_blas_threads

from . import children
from .onnxruntime_cases import CASES, CLASS_ONLY, GOLDEN, Calls, answer, models_of

RECORDED: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Calls:
    return Calls(ours, models_of(RECORDED), tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("name", CASES)
def test_answers(name: str, calls: Calls) -> None:
    expected = RECORDED["answers"][name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        got = json.loads(json.dumps(answer(CASES[name], calls)))
    if name in CLASS_ONLY:
        expected, got = expected.get("raises", expected), got.get("raises", got)
    assert got == expected


def test_every_case_is_recorded() -> None:
    assert RECORDED["answers"].keys() == CASES.keys()
    assert RECORDED["onnxruntime"] == ours.__version__


MODELS = models_of(RECORDED)
FEED = {"x": np.ones((2, 3), "f4"), "m": np.ones((3, 2), "f4")}


def test_dimensions_without_a_name_may_differ_in_one_program() -> None:
    named, unnamed = MODELS["pair"], MODELS["pair"].replace(b"\x12\x01N", b"\x12\x01?")
    feed = {"a": np.ones((1, 2), "f4"), "b": np.ones((3, 2), "f4")}
    for model, programs in ((named, 2), (unnamed, 1)):
        session = ours.InferenceSession(model)
        (found,) = session.run(None, feed)[:1]
        assert len(session._programs._machines) == programs
        (expected,) = ours.InferenceSession(named).run(None, feed)[:1]
        np.testing.assert_array_equal(found, expected)
    assert [each.shape for each in session.get_inputs()] == [["?", 2], ["?", 2]]


def test_numbers_without_a_result_give_no_warning() -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Log", ["x"], ["y"]), helper.make_node("Div", ["x", "x"], ["z"])]
    graph = helper.make_graph(
        nodes, "g", [value("x", 1, ["n"])], [value("y", 1, ["n"]), value("z", 1, ["n"])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    session = ours.InferenceSession(model.SerializeToString())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y, z = session.run(None, {"x": np.array([0, -1], np.float32)})
    np.testing.assert_array_equal(y, [-np.inf, np.nan])
    np.testing.assert_array_equal(z, [np.nan, 1])


def test_threads_of_a_session_are_those_of_blas() -> None:
    if get_blas_threads() is None:
        pytest.skip("numpy's BLAS has no functions for it")
    before = get_blas_threads()
    for count in (1, 2, 1):
        options = ours.SessionOptions()
        options.intra_op_num_threads = count
        ours.InferenceSession(MODELS["affine"], options).run(None, FEED)
        assert get_blas_threads() == count
    ours.InferenceSession(MODELS["affine"]).run(None, FEED)
    assert get_blas_threads() == before


def test_threads_share_a_session() -> None:
    session = ours.InferenceSession(MODELS["affine"])
    wrong: list[Any] = []

    def work(number: int) -> None:
        for i in range(40):
            n = (number + i) % 5
            feed = {"x": np.full((n, 3), number, "f4"), "m": np.ones((3, 2), "f4")}
            (y,) = session.run(["y"], feed)
            if y.shape != (n, 2) or not (y == 3 * number + 6).all():
                wrong.append(y)
            if i % 10 == 0:  # a program of its own
                (y,) = session.run(["y"], {**feed, "w": np.full(3, number, "f4")})
                wrong.extend([] if (y == 6 * number).all() else [y])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_terminate_ends_a_run_and_no_other() -> None:
    session = ours.InferenceSession(MODELS["affine"])
    options, others = ours.RunOptions(), ours.RunOptions()
    feed = {"x": np.ones((100_000, 3), "f4"), "m": np.ones((3, 2), "f4")}
    ended: list[str] = []
    stop = threading.Event()

    def endless() -> None:
        try:
            while not stop.is_set():
                session.run(None, feed, options)
        except ours.capi.onnxruntime_pybind11_state.Fail as error:
            ended.append(str(error))

    thread = threading.Thread(target=endless)
    thread.start()
    for turn in range(20):
        if turn == 10:
            options.terminate = True
        session.run(None, feed, others)
        session.run(None, feed)
    thread.join(timeout=60)
    stop.set()
    assert ended == ["[ONNXRuntimeError] : 1 : FAIL : Exiting due to terminate flag being set to "
                     "true."]  # fmt: skip
    options.terminate = False
    session.run(None, feed, options)


def test_a_profile_is_a_trace(tmp_path: Path) -> None:
    options = ours.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    session = ours.InferenceSession(MODELS["affine"], options)
    session.run(None, FEED)
    name = session.end_profiling()
    assert name.startswith(options.profile_file_prefix)
    assert json.loads(Path(name).read_text(encoding="utf-8"))["traceEvents"]
    assert session.end_profiling() == ""


def test_threads_of_sessions() -> None:
    before = relaxvm.get_num_threads()
    options = ours.SessionOptions()
    options.intra_op_num_threads = before + 1
    ours.InferenceSession(MODELS["affine"], options).run(None, FEED)
    assert relaxvm.get_num_threads() == before + 1
    options.intra_op_num_threads = -4
    ours.InferenceSession(MODELS["affine"], options).run(None, FEED)
    assert relaxvm.get_num_threads() == before


def test_executables_are_models_too(tmp_path: Path) -> None:
    path = tmp_path / "m.rvm"
    relaxvm.compile(MODELS["affine"]).save(path)
    session = ours.InferenceSession(path)
    np.testing.assert_array_equal(session.run(["y"], FEED)[0], np.full((2, 2), 9))
    with pytest.raises(Exception, match=r"NOT_IMPLEMENTED .*constants_as_inputs: this file is co"):
        session.run(["y"], {**FEED, "w": np.ones(3, "f4")})
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(Exception, match=r"INVALID_GRAPH : Load model from .*checksum|truncated"):
        ours.InferenceSession(path)


@pytest.mark.parametrize(
    ("what", "match"),
    [
        (lambda: ours.InferenceSession(b"\x20\0\0\0ORTM" + bytes(40)),
         "NOT_IMPLEMENTED.*ORT format"),
        (lambda: ours.SessionOptions().register_custom_ops_library("x.so"),
         "NOT_IMPLEMENTED.*register_custom_ops_library is not supported"),
        (lambda: ours.InferenceSession(MODELS["affine"]).set_ep_dynamic_options({}),
         "NOT_IMPLEMENTED.*set_ep_dynamic_options is not supported by relaxvm: there is one prov"),
        (lambda: ours.quantize, "no attribute 'quantize': relaxvm has the names"),
        (lambda: ours.InferenceSession(
            MODELS["affine"], _with(optimized_model_filepath="no folder/x.onnx")),
         "FAIL.*optimized_model_filepath: no folder/x.onnx: No such file"),
        (lambda: ours.InferenceSession(MODELS["affine"], _free(-5)), "INVALID_GRAPH"),
    ],
)  # fmt: skip
def test_what_is_refused_by_name(what: Any, match: str) -> None:
    with pytest.raises(Exception, match=match):
        what()


def _with(**values: Any) -> ours.SessionOptions:
    options = ours.SessionOptions()
    for name, value in values.items():
        setattr(options, name, value)
    return options


def _free(size: int) -> ours.SessionOptions:
    options = ours.SessionOptions()
    options.add_free_dimension_override_by_name("N", size)
    return options


def test_other_providers_are_named_in_a_warning() -> None:
    with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not in available provider"):
        ours.InferenceSession(MODELS["affine"], providers=["CUDAExecutionProvider"])


def test_exceptions_can_be_pickled() -> None:
    state = ours.capi.onnxruntime_pybind11_state
    error = pickle.loads(pickle.dumps(state.InvalidArgument("a text")))
    assert type(error) is state.InvalidArgument
    assert str(error) == "a text"


PROGRAM = """
import sys
import onnxruntime
import onnxruntime.capi._pybind_state as state
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
import numpy as np
assert state.InvalidArgument is InvalidArgument
assert onnxruntime.capi._pybind_state is state
session = onnxruntime.InferenceSession(sys.argv[1])
try:
    session.run(None, {"x": np.ones((2, 4), "f4"), "m": np.ones((3, 2), "f4")})
except InvalidArgument as error:
    print(type(error).__module__, sys.argv[2:], __name__)
try:
    import onnxruntime.training
except ModuleNotFoundError as error:
    print(error)
"""


@pytest.mark.parametrize("how", ["file", "module", "code"])
def test_a_program_unchanged(how: str, tmp_path: Path) -> None:
    (tmp_path / "a_program.py").write_text(PROGRAM)
    (tmp_path / "m.onnx").write_bytes(MODELS["affine"])
    what = {"file": ["a_program.py"], "module": ["-m", "a_program"], "code": ["-c", PROGRAM]}[how]
    done = children.run(
        [sys.executable, "-m", "relaxvm.contrib.onnxruntime", *what, "m.onnx", "one", "--two"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "onnxruntime.capi.onnxruntime_pybind11_state ['one', '--two'] __main__",
        "relaxvm has no module 'onnxruntime.training': it runs models, as onnxruntime's "
        "InferenceSession does",
    ]


def test_programs_that_ask_for_the_version() -> None:
    code = (
        "from importlib.metadata import PackageNotFoundError, metadata, version\n"
        "print(version('onnxruntime'), metadata('OnnxRuntime')['Name'])\n"
        "try:\n"
        "    version('onnxruntime-gpu')\n"
        "except PackageNotFoundError as error:\n"
        "    print(error)"
    )
    done = children.run(
        [sys.executable, "-m", "relaxvm.contrib.onnxruntime", "-c", code],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "1.32.0 onnxruntime", "No package metadata was found for onnxruntime-gpu",
    ], done.stderr  # fmt: skip


def test_install_after_the_real_one() -> None:
    code = (
        "import sys, types\n"
        "sys.modules['onnxruntime'] = types.ModuleType('onnxruntime')\n"
        "from relaxvm.contrib.onnxruntime import install\n"
        "install()"
    )
    done = children.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ImportError: relaxvm.contrib.onnxruntime: the package onnxruntime is imported" in (
        done.stderr
    )
