"""Models over batches: columns to inputs, outputs to columns."""

from __future__ import annotations

import pickle
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import relaxvm
from relaxvm import ExecBuilder, Limits, VMExecutable
from relaxvm.contrib.batches import BatchError, Predictor, run_to_end
from relaxvm.contrib.batches.long_runs import checkpoint_name
from relaxvm.contrib.batches.predictor import _converted
from relaxvm.errors import LimitError, MissingExtraError
from relaxvm.script import ir as I
from relaxvm.script import relax as R

from ..serving import programs
from .programs import counting, functions_of_counting, ticks


@I.ir_module
class _Fixed:
    """Takes three rows at a time."""

    @R.function
    def main(x: R.Tensor((3, 2), "float32")) -> R.Tensor((3, 2), "float32"):
        with R.dataflow():
            y = R.multiply(x, R.const(10.0, "float32"))
            R.output(y)
        return y


@I.ir_module
class _Threshold:
    """One output says whether the other is large; the threshold is for all rows."""

    @R.function
    def main(
        x: R.Tensor(("n", 1), "int32"), limit: R.Tensor((), "int32")
    ) -> R.Tuple(R.Tensor(("n", 1), "int32"), R.Tensor(("n",), "bool")):
        with R.dataflow():
            y = R.add(x, x)
            large = R.squeeze(R.greater(y, limit), axis=[1])
            z = (y, large)
            R.output(z)
        return z


@pytest.fixture(scope="module")
def fixed() -> VMExecutable:
    return relaxvm.compile(_Fixed)


@pytest.fixture(scope="module")
def threshold() -> VMExecutable:
    return relaxvm.compile(_Threshold)


NUMBERS = {name: np.arange(5, dtype=np.float32) + i for i, name in enumerate("abcd")}
ONES = np.ones((5, 4), np.float32)
SUM = 2 * (np.stack([*NUMBERS.values()], axis=1) + ONES)


def table() -> dict[str, np.ndarray]:
    return {"id": np.array(list("vwxyz"), object), **NUMBERS, "y": ONES}


# Columns


def test_columns_are_put_side_by_side_and_others_stay() -> None:
    predict = Predictor(programs.double(), inputs={"x": list("abcd")})
    got = predict(table())
    assert list(got) == ["id", "output_0"]
    assert got["id"].tolist() == list("vwxyz")
    np.testing.assert_array_equal(got["output_0"], SUM)


def test_outputs_get_names_and_are_spread() -> None:
    predict = Predictor(
        programs.double(), inputs={"x": "y"}, outputs={"output_0": list("pqrs")}, keep=["b", "a"]
    )
    got = predict({**table(), "y": ONES})
    assert list(got) == ["b", "a", "p", "q", "r", "s"]
    np.testing.assert_array_equal(got["r"], 4 * np.ones(5))


def test_a_frame_of_pandas() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({**NUMBERS, "y": list(ONES)}, index=[7, 8, 9, 3, 1])
    frame["a"] = frame["a"].astype("Int16")  # one that can have missing values
    got = Predictor(programs.double(), inputs={"x": list("abcd")})(frame)
    assert got.index.tolist() == [7, 8, 9, 3, 1]
    np.testing.assert_array_equal(np.stack(got["output_0"]), SUM)
    empty = Predictor(programs.double(), inputs={"x": list("abcd")})(frame[:0])
    assert list(empty) == ["output_0"]
    assert len(empty) == 0
    frame.loc[8, "a"] = pd.NA
    with pytest.raises(BatchError, match=r"column a: 1 of 5 values are missing; fill them"):
        Predictor(programs.double(), inputs={"x": list("abcd")})(frame)


def test_a_table_of_arrow_is_not_copied() -> None:
    pa = pytest.importorskip("pyarrow")
    numbers = pa.array(np.arange(8, dtype=np.float32))
    rows = pa.FixedSizeListArray.from_arrays(numbers, 4)
    batch = pa.table({"x": rows, "y": rows, "id": pa.array([1, 2])})
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1, param_names=["x"]):
        eb.emit_call("tests.address", args=[eb.r(0)], dst=eb.r(1))
        eb.emit_ret(eb.r(1))

    def address(x):
        return np.full(len(x), x.__array_interface__["data"][0])

    predict = Predictor(eb.get(), functions={"tests.address": address}, keep=["id"])
    got = predict(batch)
    assert got.schema.names == ["id", "output_0"]
    assert set(got["output_0"].to_pylist()) == {numbers.buffers()[1].address}

    double = Predictor(programs.double())(batch)
    assert pa.types.is_fixed_size_list(double.schema.field("output_0").type)
    assert double["output_0"].to_pylist() == [[0, 4, 8, 12], [16, 20, 24, 28]]
    assert Predictor(programs.double())(batch[:0]).schema == double.schema
    assert Predictor(programs.double())(batch.to_batches()[0]).schema == double.schema


@pytest.mark.parametrize("kind", ["list", "large_list", "tensor", "slice", "chunks"])
def test_tensors_of_arrow(kind: str) -> None:
    pa = pytest.importorskip("pyarrow")
    lists = ONES.tolist()
    column = {
        "list": lambda: pa.array(lists, pa.list_(pa.float32())),
        "large_list": lambda: pa.array(lists, pa.large_list(pa.float32())),
        "tensor": lambda: pa.FixedShapeTensorArray.from_numpy_ndarray(ONES),
        "slice": lambda: pa.array([[9.0] * 4, *lists, [8.0] * 4], pa.list_(pa.float32(), 4))[1:-1],
        "chunks": lambda: pa.chunked_array([pa.array(lists[:2]), pa.array(lists[2:])]),
    }[kind]()
    got = Predictor(programs.double())(pa.table({"x": column, "y": column}))
    np.testing.assert_array_equal(np.array(got["output_0"].to_pylist()), 4 * ONES)


def test_arrow_columns_that_do_not_fit() -> None:
    pa = pytest.importorskip("pyarrow")
    predict = Predictor(programs.double())
    ragged = pa.array([[1.0, 2.0], [3.0]])
    with pytest.raises(BatchError, match=r"column x: expected rows of one length, got 1 to 2"):
        predict(pa.table({"x": ragged, "y": ragged}))
    holes = pa.array([1.0, None])
    with pytest.raises(BatchError, match=r"column x: 1 of 2 values are missing"):
        predict(pa.table({"x": holes, "y": holes}))


# Data types and shapes


def test_numbers_keep_their_values(threshold: VMExecutable) -> None:
    predict = Predictor(threshold, constants={"limit": np.array(5, np.int32)})
    got = predict({"x": np.array([1, 2, 3], np.int64)})  # of one dimension less, and wider
    assert got["output_0"].tolist() == [[2], [4], [6]]
    assert got["output_1"].tolist() == [False, False, True]
    with pytest.raises(BatchError, match=r"input x: expected int32, got int64 with 4294967296"):
        predict({"x": np.array([1, 2**32])})
    with pytest.raises(BatchError, match=r"input x: expected int32, got float64; convert"):
        predict({"x": np.array([1.0])})
    with pytest.raises(BatchError, match=r"input x: expected the shape \[n, 1\], got \[1, 1, 1\]"):
        predict({"x": np.ones((1, 1, 1), np.int32)})


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float64"])
def test_integers_are_not_wrapped_around(dtype: str) -> None:
    """Values that come back from the other type as they were are not always the same."""
    fits = np.array([0, 1], "uint64" if dtype == "float64" else "int8")
    assert _converted(fits, np.dtype(dtype), "it").tolist() == [0, 1]
    if dtype == "float64":
        wrong = np.array([np.iinfo("uint64").max, np.iinfo("uint64").max - 1024], "uint64")
    elif dtype == "uint8":
        wrong = np.array([-1], "int8")
    else:
        wrong = np.array([2**31], "uint32")
    with pytest.raises(BatchError, match=rf"it: expected {dtype}, got .* which {dtype} does not"):
        _converted(wrong, np.dtype(dtype), "it")


def test_columns_of_other_kinds(fixed: VMExecutable) -> None:
    predict = Predictor(fixed)
    with pytest.raises(BatchError, match=r"column x: 1 of 2 values are missing"):
        predict({"x": np.ma.masked_array([[1.0, 2.0]], mask=[[False, True]])})
    for value in ({1, 2}, {0: 1.0}, "ab", 1.0, np.array(1.0), None, iter(())):
        with pytest.raises(BatchError, match=r"column x: expected an array or a list with a value"):
            predict({"x": value})


def test_columns_of_a_dict_may_be_of_pandas_and_arrow() -> None:
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    predict = Predictor(programs.double(), inputs={"x": list("abcd"), "y": list("abcd")})
    given = {"a": pd.Series([1, 2], index=[7, 8]), "b": pa.array([1, 2]), "c": [1, 2],
             "d": pa.chunked_array([[1], [2]])}  # fmt: skip
    assert predict(given)["output_0"].tolist() == [[4.0] * 4, [8.0] * 4]
    with pytest.raises(BatchError, match=r"column b: 1 of 2 values are missing"):
        predict({**given, "b": pa.array([1, None])})
    with pytest.raises(BatchError, match=r"column a: 1 of 2 values are missing"):
        predict({**given, "a": pd.Series([1, pd.NA], dtype=object)})


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    """As converters of scikit-learn make them: a column for each input, and maps of
    probabilities."""
    onnx = pytest.importorskip("onnx")
    make, types = onnx.helper, onnx.TensorProto
    ml = "ai.onnx.ml"
    nodes = [
        make.make_node("LabelEncoder", ["city"], ["code"], domain=ml,
                       keys_strings=["oslo", "rome"], values_floats=[1.0, 2.0]),
        make.make_node("Cast", ["age"], ["number"], to=types.FLOAT),
        make.make_node("Concat", ["code", "number"], ["both"], axis=1),
        make.make_node("LinearClassifier", ["both"], ["label", "scores"], domain=ml,
                       coefficients=[1.0, 0.0, 0.0, 1.0], intercepts=[0.0, 0.0],
                       classlabels_strings=["no", "yes"], post_transform="NONE"),
        make.make_node("ZipMap", ["scores"], ["probabilities"], domain=ml,
                       classlabels_strings=["no", "yes"]),
    ]  # fmt: skip
    maps = onnx.ValueInfoProto(name="probabilities")
    of_maps = maps.type.sequence_type.elem_type.map_type
    of_maps.key_type = types.STRING
    of_maps.value_type.tensor_type.elem_type = types.FLOAT
    graph = make.make_graph(
        nodes, "classifier",
        [make.make_tensor_value_info("city", types.STRING, [None, 1]),
         make.make_tensor_value_info("age", types.INT64, [None, 1])],
        [make.make_tensor_value_info("label", types.STRING, [None]), maps],
    )  # fmt: skip
    opsets = [make.make_opsetid("", 18), make.make_opsetid(ml, 3)]
    onnx.save(make.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "it.onnx")
    return tmp_path / "it.onnx"


def test_columns_of_text_and_maps_of_probabilities(classifier: Path) -> None:
    predict = Predictor(classifier, outputs={"label": "label", "probabilities": ["no", "yes"]})
    table = {"city": ["oslo", "rome"], "age": [0, 5]}
    got = predict(table)
    assert {name: value.tolist() for name, value in got.items()} == {
        "label": ["no", "yes"], "no": [1.0, 2.0], "yes": [0.0, 5.0],
    }  # fmt: skip
    assert got["no"].dtype == np.float32
    assert predict({"city": [], "age": []})["yes"].shape == (0,)
    for city, shown in (([b"oslo", b"rome"], "bytes"), ([1, 2], "int64")):
        with pytest.raises(BatchError, match=rf"input city: expected text, got {shown}"):
            predict({**table, "city": city})
    with pytest.raises(BatchError, match=r"column city: expected text in all rows, got int 5"):
        predict({**table, "city": ["oslo", 5]})
    with pytest.raises(BatchError, match=r"column city: 1 of 2 values are missing"):
        predict({**table, "city": ["oslo", float("nan")]})


def test_text_has_one_type_with_rows_and_without(classifier: Path) -> None:
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    predict = Predictor(classifier, outputs=["label"])
    table = {"city": ["oslo", "rome"], "age": [0, 5]}
    for made in (pd.DataFrame(table), pa.table(table)):
        full, empty = predict(made), predict(made[:0])
        if isinstance(made, pd.DataFrame):
            assert full.dtypes.to_dict() == empty.dtypes.to_dict()
        else:
            assert full.schema == empty.schema


def test_a_fixed_number_of_rows(fixed: VMExecutable) -> None:
    for count in (0, 1, 2, 3, 4, 7):
        x = np.arange(2.0 * count).reshape(count, 2)
        np.testing.assert_array_equal(Predictor(fixed)({"x": x})["output_0"], 10 * x)


def test_no_rows_have_the_types_of_outputs(threshold: VMExecutable) -> None:
    predict = Predictor(threshold, constants={"limit": np.array(5, np.int32)})
    got = predict({"x": np.zeros(0, np.int64)})
    assert got["output_0"].shape == (0, 1)
    assert got["output_1"].dtype == bool


def test_a_single_input_takes_the_only_column(fixed: VMExecutable) -> None:
    x = np.ones((3, 2), np.float32)
    assert list(Predictor(fixed)({"data": x})) == ["output_0"]


# Mistakes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": None}, r"input y: the batch has no column of that name; it has id, a, b, c, d"),
        ({"a": None}, r"unknown column a; the batch has id, b, c, d, y"),
        ({"a": np.ones(4)}, r"columns: expected one length"),
        ({"a": np.ones((5, 1, 1))}, r"column a: expected a number or a list of numbers"),
        ({"a": np.array(list("vwxyz"), object)}, r"column a: expected numbers, since several"),
        ({"a": [None, 1, 2, 3, 4]}, r"column a: 1 of 5 values are missing"),
        ({"y": [[1], [1, 2], [1], [1], [1]]}, r"column y: expected rows of one shape, got"),
        ({"y": [[[1], [1, 2]]] * 5}, r"column y: a row is a nested list whose parts differ"),
        ({"y": [object()] * 5}, r"column y: expected numbers, arrays of numbers, or text, got"),
        ({"output_0": np.ones(5)}, r"output output_0: there is a column output_0 already"),
    ],
)
def test_batches_that_do_not_fit(change: dict, message: str) -> None:
    batch = {name: value for name, value in {**table(), **change}.items() if value is not None}
    with pytest.raises(BatchError, match=message):
        Predictor(programs.double(), inputs={"x": list("abcd")})(batch)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": {"z": "a"}}, r"unknown input z; the model has x, limit"),
        ({"constants": {"limits": 1}}, r"unknown input limits; did you mean 'limit'\?"),
        ({}, r"input limit is a number, the same for all rows: it needs a value in constants="),
        ({"function": "mian"}, r"there is no function mian; did you mean 'main'\?"),
    ],
)
def test_options_that_do_not_fit(threshold: VMExecutable, options: dict, message: str) -> None:
    with pytest.raises(BatchError, match=message):
        Predictor(threshold, **options)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"inputs": "x"}, TypeError, r"inputs: expected a dict, got str 'x'"),
        ({"inputs": {"x": 5}}, TypeError, r"inputs: x: expected names, got int 5"),
        ({"inputs": {"x": []}}, BatchError, r"inputs: x: expected the names of columns, got none"),
        ({"keep": 5}, TypeError, r"keep: expected names, got int 5"),
        ({"keep": ["a", "a"]}, BatchError, r"keep: the name a is there twice"),
        ({"outputs": {"output_0": 5}}, TypeError, r"outputs: output_0: expected names, got int 5"),
        ({"outputs": ["a", "a"]}, BatchError, r"outputs: the name a is there twice"),
        ({"constants": 5}, TypeError, r"constants: expected a dict, got int 5"),
        ({"constants": {"limit": 0.5}}, BatchError, r"constants: limit: expected int32, got float"),
        ({"constants": {"limit": [1]}}, BatchError, r"constants: limit: expected the shape \[\]"),
        ({"constants": {"x": 1}, "inputs": {"x": "a"}}, BatchError, r"x is in inputs= and in con"),
    ],
)
def test_options_of_other_kinds(
    threshold: VMExecutable, options: dict, error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        Predictor(threshold, **{"constants": {"limit": 5}, **options})


def test_one_name_is_a_list_of_its_own(threshold: VMExecutable) -> None:
    predict = Predictor(threshold, constants={"limit": 5}, keep="id")
    got = predict({"x": [1], "id": [3], "i": [1], "d": [2]})
    assert list(got) == ["id", "output_0", "output_1"]


def test_arrays_that_do_not_fit(threshold: VMExecutable) -> None:
    predict = Predictor(threshold, constants={"limit": 5})
    with pytest.raises(BatchError, match=r"unknown input y; expected x"):
        predict.predict({"x": np.ones(1, int), "y": np.ones(1)})
    with pytest.raises(TypeError, match=r"input x: expected an array, got tuple of 1"):
        predict.predict({"x": [1]})


def test_outputs_that_do_not_fit() -> None:
    batch = {"x": ONES, "y": ONES}
    with pytest.raises(BatchError, match=r"unknown output z; the model has output_0"):
        Predictor(programs.double(), outputs=["z"])(batch)
    with pytest.raises(BatchError, match=r"output_0: expected 2 numbers in a row, one for each"):
        Predictor(programs.double(), outputs={"output_0": ["p", "q"]})(batch)
    with pytest.raises(BatchError, match=r"keep: unknown column idd"):
        Predictor(programs.double(), keep=["idd"])(batch)
    with pytest.raises(BatchError, match=r"output output_0: expected a row for each of the 5 rows"):
        Predictor(programs.total())({"x": np.ones((5, 2), np.float32)})


def test_a_model_with_state_is_refused() -> None:
    with pytest.raises(BatchError, match=r"keeps state from call to call, so results would depend"):
        Predictor(programs.counter())


@pytest.mark.parametrize("batch", [None, 5, [1, 2], np.ones(3), "x"])
def test_other_things_are_no_batches(batch: object) -> None:
    with pytest.raises(TypeError, match=r"batch: expected a dict of arrays, a pandas DataFrame"):
        Predictor(programs.double())(batch)


def test_errors_of_the_model_name_the_batch() -> None:
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1, param_names=["x"]):
        eb.emit_call("tests.fail", args=[eb.r(0)], dst=eb.r(1))
        eb.emit_ret(eb.r(1))

    def fail(x):
        raise ZeroDivisionError("in the model")

    predict = Predictor(eb.get(), functions={"tests.fail": fail})
    with pytest.raises(ZeroDivisionError, match="in the model") as caught:
        predict({"x": np.ones((5, 2))})
    assert caught.value.__notes__[-1] == "in a batch of 5 rows: x: float64[5, 2]"


def test_limits_hold() -> None:
    predict = Predictor(programs.endless(), limits=Limits(fuel=1000))
    with pytest.raises(LimitError, match="fuel"):
        predict({"arg0": np.ones(3)})


def test_many_threads_use_one_predictor() -> None:
    predict = Predictor(programs.double(), inputs={"x": list("abcd")})
    wrong = []

    def work() -> None:
        for _ in range(50):
            if not np.array_equal(predict(table())["output_0"], SUM):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_a_missing_engine_is_named(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] in (engine, "distributed")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, engine, None)
    calls = {
        "dask": lambda: relaxvm.contrib.dask.map_partitions(None, programs.double()),
        "ray": lambda: relaxvm.contrib.ray.map_batches(None, programs.double()),
    }
    with pytest.raises(MissingExtraError, match=rf"needs the package {engine}; install relaxvm\["):
        calls[engine]()


# Other processes


def test_a_predictor_of_an_executable_is_pickled() -> None:
    predict = Predictor(programs.double(), inputs={"x": list("abcd")})
    for protocol in (2, 4, 5):
        again = pickle.loads(pickle.dumps(predict, protocol))
        np.testing.assert_array_equal(again(table())["output_0"], SUM)


def test_a_predictor_of_a_path_is_pickled_as_the_path(tmp_path: Path) -> None:
    path = tmp_path / "it.vmexec"
    programs.double().save(path)
    pickled = pickle.dumps(Predictor(path, inputs={"x": list("abcd")}))
    assert len(pickled) < 1000
    np.testing.assert_array_equal(pickle.loads(pickled)(table())["output_0"], SUM)
    programs.total().save(path)
    with pytest.raises(BatchError, match=r"is another file on this machine: it has \d+ bytes, and"):
        pickle.loads(pickled)


def test_weights_in_a_buffer_out_of_band_are_not_copied() -> None:
    weights = np.random.default_rng(0).random(10_000)
    eb = ExecBuilder()
    with eb.function("main", num_inputs=0):
        eb.emit_call("vm.builtin.copy", args=[eb.convert_constant(weights)], dst=eb.r(0))
        eb.emit_ret(eb.r(0))
    buffers: list[pickle.PickleBuffer] = []
    stream = pickle.dumps(eb.get(), 5, buffer_callback=buffers.append)
    assert len(stream) < 1000
    (buffer,) = buffers
    raw = buffer.raw()
    memory = np.zeros(raw.nbytes + 128, np.uint8)
    start = -memory.__array_interface__["data"][0] % 64
    shared = memory[start : start + raw.nbytes]
    shared[:] = np.frombuffer(raw, np.uint8)
    shared.flags.writeable = False
    again = pickle.loads(stream, buffers=[shared])
    assert again == eb.get()
    (constant,) = again.constants
    assert np.shares_memory(constant, shared)
    # Tensors that would not be aligned are copied.
    shared = memory[start - 8 :][: raw.nbytes] if start >= 8 else memory[start + 8 :][: raw.nbytes]
    shared[:] = np.frombuffer(raw, np.uint8)
    (constant,) = pickle.loads(stream, buffers=[shared]).constants
    assert not np.shares_memory(constant, shared)
    np.testing.assert_array_equal(constant, weights)


# Long runs


def test_a_run_goes_on_where_it_was_saved(tmp_path: Path) -> None:
    log, folder = tmp_path / "log", tmp_path / "checkpoints"
    functions = functions_of_counting(log, 0.0)
    tick = functions["tests.tick"]

    def breaks(n):
        saved = list(folder.iterdir())
        if int(n) == 3:
            for path in saved:
                path.unlink()
        elif int(n) > 4 and saved:  # after the third
            raise OSError("the node goes away")
        time.sleep(0.001)
        return tick(n)

    program, x = counting(5000), np.array([1.0, 2.0])
    with pytest.raises(OSError, match="goes away"):
        run_to_end(program, x, checkpoints=folder, every=1e-6,
                   functions={**functions, "tests.tick": breaks})  # fmt: skip
    (saved,) = folder.iterdir()
    assert saved.suffix == ".ckpt"
    before = len(ticks(log))
    got = run_to_end(program, x, checkpoints=folder, functions=functions)
    assert got.tolist() == [5001.0, 5002.0]
    numbers = [number for number, _ in ticks(log)]
    assert numbers[before] > 2
    assert numbers[before:] == list(range(numbers[before], 5000))
    assert not list(folder.iterdir())


def test_runs_of_other_arguments_are_other_runs(tmp_path: Path) -> None:
    functions = functions_of_counting(tmp_path / "log", 0.0)
    program = counting(3)
    arguments = [np.array([1.0]), np.array([2.0]), np.array([1.0], np.float32), (1, 2), (1, (2,)),
                 "1", 1, True, None]  # fmt: skip
    names = {checkpoint_name(program, "main", [each]) for each in arguments}
    assert len(names) == len(arguments)
    assert checkpoint_name(counting(4), "main", arguments[:1]) not in names
    assert checkpoint_name(program, "main", [np.array([1.0])]) in names
    x = np.array([2.0])
    run = relaxvm.VirtualMachine(program, functions=functions)["main"].start(np.array([7.0]))
    run.save(tmp_path / checkpoint_name(program, "main", [np.array([7.0])]))
    got = run_to_end(program, x, checkpoints=tmp_path, functions=functions)
    assert got.tolist() == [5.0]


def test_arguments_without_a_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"run_to_end: expected arrays, numbers, text, or tuples"):
        run_to_end(counting(3), object(), checkpoints=tmp_path,
                   functions=functions_of_counting(tmp_path / "log", 0.0))  # fmt: skip
