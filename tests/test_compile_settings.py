"""`precise` and `memory` of compile and build, and of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.frontend.onnx import from_onnx
from relaxvm.kernels.cpu import SETS

from .test_integers import FLOAT, model, node

pytestmark = pytest.mark.skipif(not SETS, reason="no kernels for this processor")

rng = np.random.default_rng(3)


def network() -> Any:
    """A convolution that suits Winograd's method, and a function."""
    weight = rng.standard_normal((32, 32, 3, 3)).astype(np.float32)
    nodes = [node("Conv", "x w", "a", pads=[1, 1, 1, 1]), node("Sigmoid", "a", "b"),
             node("Mul", "a b", "y")]  # fmt: skip
    return model(nodes, {"w": weight}, [1, 32, 12, 12], FLOAT)


def names_of(executable: Any) -> set[str]:
    return {info.name.removeprefix("relaxvm.kernel.") for info in executable.functions}


def test_what_settings_leave_out() -> None:
    program = network()
    default = names_of(relaxvm.compile(program, cache=False))
    low = names_of(relaxvm.compile(program, cache=False, memory="low"))
    precise = names_of(relaxvm.compile(program, cache=False, precise=True))
    assert "nn.conv2d_winograd_blocks" in default
    assert "nn.conv2d_winograd_blocks" not in low | precise
    assert "nn.conv2d_blocks" in low & precise
    assert "fused" in precise
    assert "fused" not in low, "the function is part of the convolution"


def test_precise_results_are_those_of_numpy() -> None:
    """But for the order of sums, of which there is one here for each element."""
    program = network()
    x = rng.integers(-3, 4, (1, 32, 12, 12)).astype(np.float32)
    plain = relaxvm.build(from_onnx(program), relax_pipeline="default_build")
    want = relaxvm.VirtualMachine(plain)["main"](x)
    got = relaxvm.VirtualMachine(relaxvm.compile(program, cache=False, precise=True))["main"](x)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def drawn(*shape: int) -> np.ndarray:
    return np.asarray(rng.standard_normal(shape), np.float32)


FLOAT16 = 10  # of TensorProto
HALVES = [node("Cast", "x", "h", to=FLOAT16), node("Mul", "h h", "a"), node("Exp", "a", "b"),
          node("Add", "a b", "c"), node("Cast", "c", "y", to=FLOAT)]  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "weights", "shape"),
    [
        *(pytest.param([node(kind, "x", "y")], {}, [64, 256], id=kind)
          for kind in ("Tanh", "Sigmoid", "Erf", "HardSwish", "Mish", "Softmax")),
        pytest.param([node("Sigmoid", "x", "a"), node("Mul", "x a", "y")], {}, [64, 256],
                     id="silu"),
        pytest.param([node("LayerNormalization", "x s", "y")], {"s": drawn(256)}, [64, 256],
                     id="layer norm"),
        pytest.param([node("LSTM", "x w r", "y", hidden_size=32)],
                     {"w": drawn(1, 128, 16), "r": drawn(1, 128, 32) / 4}, [10, 2, 16], id="lstm"),
        pytest.param([node("LRN", "x", "y", size=5)], {}, [1, 64, 14, 14], id="lrn"),
        pytest.param(HALVES, {}, [64, 256], id="float16"),
    ],
)  # fmt: skip
def test_precise_gives_the_bits_of_numpys_kernels(
    nodes: list[Any], weights: dict[str, Any], shape: list[int]
) -> None:
    """All that has no sums of products in blocks."""
    program, x = model(nodes, weights, shape, FLOAT), drawn(*shape)
    plain = relaxvm.build(from_onnx(program), relax_pipeline="default_build")
    precise, default = (
        relaxvm.compile(program, cache=False, precise=each) for each in (True, False)
    )
    want, got = (relaxvm.VirtualMachine(each)["main"](x) for each in (plain, precise))
    for one, other in zip(*([each] if hasattr(each, "shape") else each for each in (got, want)),
                          strict=True):  # fmt: skip
        np.testing.assert_array_equal(one, other, strict=True)
    assert default.as_text() != precise.as_text(), "the setting leaves nothing out here"


def test_settings_are_part_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program is kept once for each."""
    import onnx

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "model.onnx"
    onnx.save(network(), path)
    found = [names_of(relaxvm.compile(path, memory=memory))
             for memory in ("default", "low", "default", "low")]  # fmt: skip
    assert found[0] == found[2] != found[1] == found[3]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"memory": "small"}, ValueError, "memory: expected one of default, low, got 'small'"),
        ({"precise": 1}, TypeError, "precise: expected a bool, got int"),
        ({"precise": True, "relax_pipeline": "zero"}, ValueError,
         "precise, memory and precision are for the pipelines default and dataflow, got 'zero'"),
        ({"memory": "low", "relax_pipeline": None}, ValueError, "for others: relaxvm.get_pipeline"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit(settings: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        relaxvm.compile(network(), cache=False, **settings)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An executable that it writes is the one of `relaxvm.compile`."""
    import onnx

    from relaxvm.cli import main

    onnx.save(network(), tmp_path / "model.onnx")
    for options, settings in (
        ([], {}),
        (["--memory", "low"], {"memory": "low"}),
        (["--precise"], {"precise": True}),
    ):
        file = str(tmp_path / "model.rvm")
        assert main(["compile", str(tmp_path / "model.onnx"), "-o", file, *options]) == 0
        wanted = relaxvm.compile(tmp_path / "model.onnx", cache=False, **settings)
        assert names_of(relaxvm.load(file)) == names_of(wanted)
    code = main(["compile", str(tmp_path / "model.onnx"), "-o", file, "--precise", "--pipeline",
                 "zero"])  # fmt: skip
    assert code != 0
    assert "for the pipelines default and dataflow" in capsys.readouterr().err
