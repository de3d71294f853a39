"""ONNX models with random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from relaxvm import Limits, VirtualMachine, build, get_func
from relaxvm.errors import LimitError, RelaxVMError
from relaxvm.frontend.onnx import from_onnx

from .test_onnx import model_of, node, run
from .test_onnx_control import COUNTING, SCALAR, graph_of, i64

FLOAT, FLOAT16, DOUBLE, BOOL = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE,
                                TensorProto.BOOL)  # fmt: skip


def of_seed(seed: int) -> np.random.RandomState:
    return np.random.RandomState(seed)


def machine(model: Any) -> Any:
    return VirtualMachine(build(from_onnx(model)))["main"]


def test_numbers_of_a_seed_are_those_of_numpy() -> None:
    nodes = [
        node("RandomUniform", "", "a", shape=[3, 4], low=-1.0, high=2.0, seed=7.0),
        node("RandomNormal", "", "b", shape=[5], mean=3.0, scale=2.0, seed=8.0, dtype=DOUBLE),
        node("RandomUniformLike", "x", "c", seed=9.0, dtype=FLOAT16),
        node("RandomNormalLike", "x", "d", seed=9.0),
    ]
    for each in nodes[:2]:
        del each.input[:]
    x = np.zeros((2, 3), np.float32)
    a, b, c, d = run(model_of(nodes, {"x": (FLOAT, ["n", 3])}, ["a", "b", "c", "d"]), x)
    np.testing.assert_array_equal(a, of_seed(7).uniform(-1, 2, (3, 4)).astype(np.float32))
    np.testing.assert_allclose(b, of_seed(8).normal(3, 2, 5), rtol=1e-15)
    np.testing.assert_array_equal(c, of_seed(9).uniform(size=(2, 3)).astype(np.float16))
    np.testing.assert_array_equal(d, of_seed(9).normal(size=(2, 3)).astype(np.float32))


def test_equal_nodes_without_a_seed_differ() -> None:
    nodes = [node("RandomNormalLike", "x", "a"), node("RandomNormalLike", "x", "b"),
             node("RandomNormalLike", "x", "unused")]  # fmt: skip
    main = machine(model_of(nodes, {"x": (FLOAT, ["n"])}, ["a", "b"]))
    x = np.zeros(8, np.float32)
    numbers = [tuple(each.tolist()) for _ in range(2) for each in main(x)]
    assert len(set(numbers)) == 4


def test_equal_nodes_with_equal_seeds_agree_and_so_do_runs() -> None:
    nodes = [node("RandomUniformLike", "x", "a", seed=1.0),
             node("RandomUniformLike", "x", "b", seed=1.0)]  # fmt: skip
    main = machine(model_of(nodes, {"x": (FLOAT, ["n"])}, ["a", "b"]))
    x = np.zeros(8, np.float32)
    a, b = main(x)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(a, main(x)[0])


@pytest.mark.parametrize("seed", [{}, {"seed": 3.0}])
def test_steps_of_a_loop_differ(seed: dict[str, float]) -> None:
    body = graph_of(
        [node("RandomUniformLike", "x", "r", **seed), node("Identity", "c", "more"),
         node("Add", "s r", "t")],
        {**COUNTING, "s": (FLOAT, [4])}, "more t r",
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["sum", "all"], body=body)]
    model = model_of(nodes, {"x": (FLOAT, [4]), "trips": SCALAR}, ["sum", "all"])
    total, each = run(model, np.zeros(4, np.float32), i64(3))
    np.testing.assert_allclose(total, each.sum(axis=0), rtol=1e-6)
    assert len(set(each.reshape(-1).tolist())) == 12
    if seed:
        wanted = of_seed(3).uniform(size=(3, 4)).astype(np.float32)
        np.testing.assert_array_equal(each, wanted)


def test_a_scan_and_a_branch() -> None:
    body = graph_of([node("RandomNormalLike", "e", "r", seed=5.0)], {"e": (FLOAT, [2])}, "r")
    then = graph_of([helper.make_node("Scan", ["x"], ["y"], body=body, num_scan_inputs=1)], {}, "y")
    other = graph_of([node("Identity", "x", "z")], {}, "z")
    nodes = [helper.make_node("If", ["c"], ["out"], then_branch=then, else_branch=other)]
    model = model_of(nodes, {"x": (FLOAT, ["n", 2]), "c": (BOOL, [])}, ["out"])
    x = np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(
        run(model, x, np.array(True)), of_seed(5).normal(size=(3, 2)).astype(np.float32)
    )
    np.testing.assert_array_equal(run(model, x, np.array(False)), x)


@pytest.mark.parametrize("dtype", [None, BOOL, TensorProto.INT32, DOUBLE])
def test_bernoulli(dtype: int | None) -> None:
    attrs = {} if dtype is None else {"dtype": dtype}
    model = model_of([node("Bernoulli", "p", "y", seed=2.0, **attrs)], {"p": (FLOAT, ["n"])}, ["y"])
    p = np.repeat(np.array([0, 0.25, 1], np.float32), 4000)
    got = run(model, p)
    assert got.dtype == helper.tensor_dtype_to_np_dtype(dtype or FLOAT)
    mean = got.astype(np.float64).reshape(3, -1).mean(axis=1)
    assert mean[[0, 2]].tolist() == [0, 1]
    assert 0.22 < mean[1] < 0.28
    np.testing.assert_array_equal(got, (of_seed(2).uniform(size=p.size) < p).astype(got.dtype))


@pytest.mark.parametrize("rank", [2, None])
def test_multinomial(rank: int | None) -> None:
    x = np.log(np.array([[0.2, 0, 0.8], [5, 5, 0]]) + 1e-300)
    dims = None if rank is None else ["n", "m"]
    nodes = [node("Multinomial", "x", "y", sample_size=4000, seed=1.0, dtype=TensorProto.INT64)]
    model = model_of(nodes, {"x": (DOUBLE, dims)}, ["y"])
    if rank is None:
        with pytest.raises(RelaxVMError, match="input: expected a matrix"):
            from_onnx(model)
        return
    got = run(model, x)
    assert got.shape == (2, 4000)
    assert got.dtype == np.int64
    counts = np.stack([np.bincount(row, minlength=3) for row in got]) / 4000
    np.testing.assert_allclose(counts, [[0.2, 0, 0.8], [0.5, 0.5, 0]], atol=0.03)
    assert counts[[0, 1], [1, 2]].tolist() == [0, 0]


def test_multinomial_of_nothing() -> None:
    nodes = [node("Multinomial", "x", "y", sample_size=3)]
    main = machine(model_of(nodes, {"x": (FLOAT, ["n", 2])}, ["y"]))
    assert main(np.zeros((0, 2), np.float32)).shape == (0, 3)
    with pytest.raises(ValueError, match="a finite number as the greatest of each row, got -inf"):
        main(np.full((1, 2), -np.inf, np.float32))
    with pytest.raises(ValueError, match="a finite number as the greatest of each row, got nan"):
        main(np.full((1, 2), np.nan, np.float32))


DROPOUT = {"x": (FLOAT, ["n", 5]), "ratio": (FLOAT, []), "training": (BOOL, [])}


def test_dropout_whose_mode_is_an_input() -> None:
    nodes = [node("Dropout", "x ratio training", "y mask", seed=4)]
    main = machine(model_of(nodes, DROPOUT, ["y", "mask"], opset=13))
    x = np.arange(1, 11, dtype=np.float32).reshape(2, 5)
    y, mask = main(x, np.float32(0.4), np.array(True))
    want = of_seed(4).uniform(size=x.shape) >= np.float32(0.4)
    np.testing.assert_array_equal(mask, want)
    np.testing.assert_allclose(y, want * x / np.float32(0.6), rtol=1e-6)
    y, mask = main(x, np.float32(0.4), np.array(False))
    np.testing.assert_array_equal(y, x)
    assert mask.all()


@pytest.mark.parametrize("element", [FLOAT16, DOUBLE])
def test_dropout_of_other_types(element: int) -> None:
    constants = {"ratio": np.array(0.5, np.float32), "training": np.array(True)}
    nodes = [node("Dropout", "x ratio training", "y", seed=4)]
    model = model_of(nodes, {"x": (element, [40])}, ["y"], constants, opset=13)
    dtype = helper.tensor_dtype_to_np_dtype(element)
    got = run(model, np.ones(40, dtype))
    assert got.dtype == dtype
    assert set(got.tolist()) == {0.0, 2.0}


def test_random_numbers_within_a_function_of_the_model() -> None:
    function = helper.make_function(
        "own", "noisy", ["x"], ["y"],
        [helper.make_node("RandomNormalLike", ["x"], ["r"], seed=6.0), node("Add", "x r", "y")],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    calls = [helper.make_node("noisy", [a], [b], domain="own") for a, b in ("xy", "yz")]
    model = model_of(calls, {"x": (FLOAT, [4])}, ["z"], functions=[function])
    numbers = of_seed(6).normal(size=(2, 4)).astype(np.float32)
    np.testing.assert_allclose(run(model, np.zeros(4, np.float32)), numbers.sum(axis=0), rtol=1e-6)


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"shape": [-1]}, "shape: expected lengths of 0 or more"),
        ({"shape": [1], "dtype": TensorProto.INT32}, "dtype: expected floats, got int32"),
    ],
)
def test_wrong_attributes(attrs: dict[str, Any], message: str) -> None:
    each = helper.make_node("RandomNormal", [], ["y"], **attrs)
    with pytest.raises(RelaxVMError, match=message):
        from_onnx(model_of([each], {}, ["y"]))


def test_limits_hold() -> None:
    each = helper.make_node("RandomNormal", [], ["y"], shape=[1 << 14, 1 << 14])
    executable = build(from_onnx(model_of([each], {}, ["y"])))
    main = VirtualMachine(executable, limits=Limits(alloc_bytes=1 << 24))["main"]
    with pytest.raises(LimitError):
        main()


def test_a_file_keeps_random_numbers(tmp_path: Any) -> None:
    from relaxvm import load

    model = model_of([node("RandomNormalLike", "x", "y", seed=6.0)], {"x": (FLOAT, [4])}, ["y"])
    build(from_onnx(model)).save(tmp_path / "random.rvm")
    got = VirtualMachine(load(tmp_path / "random.rvm"))["main"](np.zeros(4, np.float32))
    np.testing.assert_array_equal(got, of_seed(6).normal(size=4).astype(np.float32))


def functions(*names: str) -> list[Any]:
    return [get_func(f"relaxvm.builtin.random_{name}") for name in names]


def test_seeds() -> None:
    make, take = functions("generator", "uniform")

    def numbers(*seed: Any) -> Any:
        return take(make(*seed), (4,), 0, 1, "float64").tolist()

    assert numbers(3) == of_seed(3).uniform(size=4).tolist()
    assert numbers(3) == numbers(3.9) == numbers(3 + (1 << 32))
    assert numbers(-1) == of_seed((1 << 32) - 1).uniform(size=4).tolist()
    assert numbers() != numbers()
    assert numbers(float("nan")) != numbers(float("nan"))
    assert repr(make(1)) == "<RandomGenerator>"


def test_many_numbers_are_those_of_one_call_of_numpy() -> None:
    make, normal = functions("generator", "normal")
    count = (1 << 20) + 3
    got = normal(make(1), (count,), 0, 1, "float64")
    np.testing.assert_array_equal(got, of_seed(1).standard_normal(count))


def test_multinomial_of_many_classes() -> None:
    make, draw = functions("generator", "multinomial")
    x = np.full((1, (1 << 20) + 5), -1000.0, np.float32)
    x[0, -3] = 0
    assert set(draw(make(1), x, 50, "int32").reshape(-1).tolist()) == {(1 << 20) + 2}
