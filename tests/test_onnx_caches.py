"""Caches of ONNX decoders as state of the VM, and some of the outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import relaxvm
import relaxvm.contrib.onnxruntime as ours
from relaxvm.errors import RelaxVMError
from relaxvm.frontend.onnx import from_onnx

from .test_onnx import model_of, node

FLOAT = TensorProto.FLOAT


def decoder(axis: int = 1, past: str = "past") -> Any:
    """y = sum of all that was ever put into the cache, times 2."""
    shape = ["b", past, 3] if axis == 1 else ["b", 3, past]
    new = ["b", "n", 3] if axis == 1 else ["b", 3, "n"]
    nodes = [
        node("Concat", "keys x", "new_keys", axis=axis),
        node("ReduceSum", "new_keys", "sum", keepdims=0),
        node("Mul", "sum sum", "y"),
    ]
    return model_of(nodes, {"x": (FLOAT, new), "keys": (FLOAT, shape)}, ["y", "new_keys"])


def machine(**options: Any) -> relaxvm.VirtualMachine:
    return relaxvm.VirtualMachine(
        relaxvm.compile(decoder(**options), caches={"keys": "new_keys"}, cache=False)
    )


@pytest.mark.parametrize("axis", [1, -1])
def test_what_is_new_is_put_behind_what_is_there(axis: int) -> None:
    vm = machine(axis=axis)
    rng = np.random.default_rng(0)
    parts = []
    for count in (4, 1, 1, 3, 0, 40, 1):
        shape = (2, count, 3) if axis == 1 else (2, 3, count)
        parts.append(rng.standard_normal(shape).astype("f4"))
        got = vm.main(parts[-1])
        whole = np.concatenate(parts, axis)
        np.testing.assert_array_equal(vm.state["keys"], whole)
        np.testing.assert_allclose(got, whole.sum() ** 2, rtol=1e-4)


def test_nothing_is_copied_while_there_is_room() -> None:
    vm = machine()
    vm.main(np.ones((1, 4, 3), "f4"))
    places = set()
    for _ in range(100):
        vm.main(np.ones((1, 1, 3), "f4"))
        places.add(vm.state["keys"].ctypes.data)
    assert vm.state["keys"].shape == (1, 104, 3)
    assert len(places) <= 4


def test_earlier_states_keep_their_elements() -> None:
    """Branching and going back, as searches do."""
    vm = machine()
    one, two, three = (np.full((1, 1, 3), each, "f4") for each in (1, 2, 3))
    vm.main(one)
    before = vm.state["keys"]
    vm.main(two)
    first = vm.state["keys"]
    vm.state["keys"] = before
    vm.main(three)
    np.testing.assert_array_equal(first[0, :, 0], [1, 2])
    np.testing.assert_array_equal(vm.state["keys"][0, :, 0], [1, 3])
    big = np.zeros((1, 50, 3), "f4")
    vm.state["keys"] = big[:, :2]
    vm.main(one)
    assert not big.any()
    vm.state.clear()
    assert vm.main(two) == 36


def test_a_state_that_does_not_fit() -> None:
    vm = machine()
    vm.main(np.ones((2, 1, 3), "f4"))
    with pytest.raises((TypeError, ValueError), match="keys"):
        vm.main(np.ones((1, 1, 3), "f4"))
    vm.state["keys"] = np.ones((2, 1, 3), "f8")
    with pytest.raises(TypeError, match=r"vm\.state\['keys'\]: expected an array like"):
        vm.main(np.ones((2, 1, 3), "f4"))


@pytest.mark.parametrize(
    ("caches", "message"),
    [
        ({"nope": "new_keys"}, "expected the name of an input"),
        ({"keys": "nope"}, "expected the name of an output"),
        ({"keys": "y"}, "to be a Concat of 'keys' and of something new, it is made by Mul"),
        ({"x": "new_keys"}, "to be a Concat of 'x'"),
    ],
)
def test_what_is_no_cache(caches: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_onnx(decoder(), caches=caches)


@pytest.mark.parametrize("caches", ["keys", ["keys"], [("keys", "new_keys")], 5])
def test_caches_are_a_mapping(caches: Any) -> None:
    message = "caches: expected a mapping from names of inputs to names of outputs"
    with pytest.raises(TypeError, match=message):
        from_onnx(decoder(), caches=caches)


def test_concat_cannot_be_an_operator_of_the_user() -> None:
    with pytest.raises((ValueError, RelaxVMError), match="Concat cannot be an operator"):
        from_onnx(
            decoder(), caches={"keys": "new_keys"}, operators={("", "Concat"): lambda g, *xs: xs[0]}
        )


# Some of the outputs


def two_outputs() -> Any:
    """One of them fails where x has no element that is not 0."""
    nodes = [
        node("Abs", "x", "a"),
        node("NonZero", "x", "places"),
        node("Gather", "x one", "second"),
        node("If", "flag", "b", then_branch=branch("a"), else_branch=branch("x")),
    ]
    return model_of(
        nodes, {"x": (FLOAT, ["n"]), "flag": (TensorProto.BOOL, [])}, ["a", "second", "b"],
        {"one": np.array([1])},
    )  # fmt: skip


def branch(name: str) -> Any:
    out = helper.make_tensor_value_info("r", FLOAT, None)
    return helper.make_graph([node("Neg", name, "r")], "branch", [], [out])


def test_only_what_is_asked_for_is_computed(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(two_outputs().SerializeToString())
    session = ours.InferenceSession(str(path))
    feed = {"x": np.array([-1], "f4"), "flag": np.array(True)}
    (a,) = session.run(["a"], feed)
    np.testing.assert_array_equal(a, [1])
    b, a = session.run(["b", "a"], feed)
    np.testing.assert_array_equal(b, [-1])
    np.testing.assert_array_equal(a, [1])
    with pytest.raises(Exception, match="1"):
        session.run(None, feed)  # x has no second element
    binding = session.io_binding()
    binding.bind_cpu_input("x", feed["x"])
    binding.bind_cpu_input("flag", feed["flag"])
    binding.bind_output("b")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], [-1])


def test_outputs_of_the_importer() -> None:
    module = from_onnx(two_outputs(), outputs=["b", "a"])
    vm = relaxvm.VirtualMachine(relaxvm.build(module))
    b, a = vm.main(np.array([-2], "f4"), np.array(False))
    assert (b, a) == (2, 2)
    for wrong, message in ((["nope"], "expected names of outputs"), ([], "at least one"),
                           (["a", "a"], "each once")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            from_onnx(two_outputs(), outputs=wrong)


def test_caches_and_outputs_together() -> None:
    vm = relaxvm.VirtualMachine(
        relaxvm.compile(decoder(), caches={"keys": "new_keys"}, outputs=["y"], cache=False)
    )
    vm.main(np.ones((1, 2, 3), "f4"))
    assert vm.main(np.ones((1, 2, 3), "f4")) == 144
