"""The character model of the examples: trained briefly, built, saved, run, compared."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import relaxvm
from relaxvm.ir import assert_structural_equal
from relaxvm.script import from_source
from relaxvm.transform import BindParams
from relaxvm.transform.pipelines import get_pipeline

from . import children

FOLDER = Path(__file__).parent.parent / "examples" / "charmodel"
MODULES = ("model", "text", "reference", "train")


class Example(NamedTuple):
    """The modules of the example."""

    model: ModuleType
    text: ModuleType
    reference: ModuleType
    train: ModuleType


@pytest.fixture(scope="module")
def example() -> Iterator[Example]:
    sys.path.insert(0, str(FOLDER))
    try:
        yield Example(*map(importlib.import_module, MODULES))
    finally:
        sys.path.remove(str(FOLDER))
        for name in MODULES:
            del sys.modules[name]


def run(folder: Path, *command: object, **variables: object) -> str:
    package = str(Path(relaxvm.__file__).parent.parent)
    # One thread: for matrices as small as these, more threads are slower.
    environment = {**os.environ, "PYTHONPATH": package, "OPENBLAS_NUM_THREADS": "1"}
    environment.update({name: str(value) for name, value in variables.items()})
    done = children.run(
        [sys.executable, "-W", "error", *map(str, command)],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


class Trained(NamedTuple):
    folder: Path
    output: str
    weights: dict[str, np.ndarray]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, example: Example) -> Trained:
    """A folder with the files of a short training, its output, and the weights."""
    folder = tmp_path_factory.mktemp("charmodel")
    output = run(folder, FOLDER / "train.py", "--steps", 150)
    executable = relaxvm.load(folder / "charmodel.vmexec")
    arrays = [c for c in executable.constants if isinstance(c, np.ndarray) and c.ndim]
    shapes = example.model.SHAPES
    weights = dict(zip(shapes, arrays[: len(shapes)], strict=True))
    assert {name: weight.shape for name, weight in weights.items()} == shapes
    return Trained(folder, output, weights)


@pytest.fixture
def random_weights(example: Example) -> dict[str, np.ndarray]:
    weights: dict[str, np.ndarray] = example.train.initial_weights(np.random.default_rng(1))
    return weights


# Learning


def test_it_learns(trained: Trained) -> None:
    """A short training is enough to be better than counting pairs."""
    bits = dict(re.findall(r"^  (\w[\w ]*?) +(\d\.\d{3})$", trained.output, re.MULTILINE))
    assert list(bits) == ["frequencies", "pairs counted", "triples counted", "the model"]
    assert float(bits["the model"]) < float(bits["pairs counted"]) < float(bits["frequencies"])
    steps = re.findall(r"^step \d+ of 150: (\S+) bits", trained.output, re.MULTILINE)
    assert len(steps) == 10
    assert float(steps[-1]) < float(steps[0]) - 1


def test_gradients(example: Example, random_weights: dict[str, np.ndarray]) -> None:
    """Compared with finite differences, in float64; the text is longer than the window."""
    rng = np.random.default_rng(2)
    weights = {name: weight.astype(np.float64) for name, weight in random_weights.items()}
    text = rng.integers(0, example.model.CHARS, (1, example.model.WINDOW + 7))
    following = rng.permuted(text, axis=1)
    _, grads = example.train.loss_and_gradients(weights, text, following)
    assert grads.keys() == weights.keys()
    for name, weight in weights.items():
        largest = np.unravel_index(np.argmax(np.abs(grads[name])), weight.shape)
        for index in (largest, tuple(rng.integers(0, weight.shape))):
            slope = 0.0
            for sign in (1, -1):
                moved = weight.copy()
                moved[index] += sign * 1e-5
                loss, _ = example.train.loss_and_gradients(
                    {**weights, name: moved}, text, following
                )
                slope += sign * loss / 2e-5
            assert grads[name][index] == pytest.approx(slope, rel=1e-4, abs=1e-8), name


TRAIN_A_LITTLE = """
import hashlib, train
import numpy as np
text = np.random.default_rng(5).integers(0, 96, 5000)
weights = train.fit(text, 3, np.random.default_rng(6))
print(hashlib.sha256(train.program(weights).to_bytes()).hexdigest())
"""


def test_training_is_deterministic() -> None:
    """For any hash seed."""
    printed = [run(FOLDER, "-c", TRAIN_A_LITTLE, PYTHONHASHSEED=seed) for seed in (1, 2)]
    hashes = [output.splitlines()[-1] for output in printed]
    assert len(hashes[0]) == 64
    assert hashes[0] == hashes[1]


def test_counting(example: Example) -> None:
    """Compared with probabilities computed by hand: "ab" repeated, then something new."""
    bits = example.text.bits_by_counting
    learned, chars, base = example.text.encode("ab" * 50), example.model.CHARS, 0.05
    a_then_b = (50 + base) / (50 + base * chars)
    assert bits(learned, example.text.encode("ab"), 1) == pytest.approx(-np.log2(a_then_b))
    assert bits(learned, example.text.encode("aa"), 1) == pytest.approx(
        -np.log2(base / (50 + base * chars))
    )
    assert bits(learned, example.text.encode("zz"), 1) == pytest.approx(np.log2(chars))
    a_share = (50 + base) / (100 + base * chars)
    assert bits(learned, example.text.encode("a"), 0) == pytest.approx(-np.log2(a_share))


def test_the_text(example: Example) -> None:
    learned, held_out = example.text.documentation()
    assert len(learned) > 300_000
    assert len(held_out) > 30_000
    decode, encode = example.text.decode, example.text.encode
    np.testing.assert_array_equal(encode(decode(held_out)), held_out)
    assert decode(encode("tab\tand é\n~")) == "taband \n~"
    pieces = [piece for piece in decode(held_out).split("\n\n") if len(piece) > 200]
    assert len(pieces) > 10
    learned_text = decode(learned)
    assert not any(piece in learned_text for piece in pieces)


# The program


@pytest.mark.parametrize(
    ("batch", "length"), [(1, 1), (3, 2), (2, 63), (2, 64), (2, 65), (1, 200), (0, 5)]
)
def test_logits(
    example: Example, random_weights: dict[str, np.ndarray], batch: int, length: int
) -> None:
    """Equal to plain numpy for every batch and length, within the window and beyond."""
    vm = relaxvm.VirtualMachine(example.train.program(random_weights))
    text = np.random.default_rng(3).integers(0, example.model.CHARS, (batch, length))
    expected = example.reference.forward(random_weights, text)["logits"]
    got = vm.logits(text)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("temperature", [0, 0.5, 1])
@pytest.mark.parametrize(
    ("batch", "length", "more"), [(1, 1, 70), (3, 60, 10), (2, 64, 2), (1, 90, 5), (2, 3, 0)]
)
def test_generated_text(
    example: Example,
    trained: Trained,
    batch: int,
    length: int,
    more: int,
    temperature: float,
) -> None:
    """Equal to plain numpy, which caches nothing between characters."""
    rng = np.random.default_rng(4)
    prompt = rng.integers(0, example.model.CHARS, (batch, length))
    uniforms = rng.random((batch, more), np.float32)
    vm = relaxvm.VirtualMachine(relaxvm.load(trained.folder / "charmodel.vmexec"))
    got = vm.main(prompt, uniforms, np.array(temperature, np.float32))
    expected = example.reference.generate(trained.weights, prompt, uniforms, temperature)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("way", ["compiled", "optimized", "printed and read"])
def test_the_same_text_in_other_ways(
    example: Example, random_weights: dict[str, np.ndarray], way: str
) -> None:
    mod = example.model.CharModel
    if way == "printed and read":
        again = from_source(mod.script(show_meta=True))
        assert_structural_equal(again, mod)
        mod = again
    mod = BindParams("main", random_weights)(BindParams("logits", random_weights)(mod))
    if way == "optimized":
        mod = get_pipeline("zero")(mod)
    mode = "compiled" if way == "compiled" else "bytecode"
    vm = relaxvm.VirtualMachine(relaxvm.build(mod, exec_mode=mode))
    rng = np.random.default_rng(8)
    prompt = rng.integers(0, example.model.CHARS, (2, 5))
    uniforms = rng.random((2, 20), np.float32)
    got = vm.main(prompt, uniforms, np.array(0.5, np.float32))
    expected = example.reference.generate(random_weights, prompt, uniforms, 0.5)
    np.testing.assert_array_equal(got, expected)


def test_the_loop_runs_in_one_frame(trained: Trained) -> None:
    """`extend` calls itself 300 times, but at most 8 calls are nested."""
    limits = relaxvm.Limits(call_depth=8)
    executable = relaxvm.load(trained.folder / "charmodel.vmexec")
    vm = relaxvm.VirtualMachine(executable, limits=limits)
    uniforms = np.zeros((1, 300), np.float32)
    text = vm.main(np.zeros((1, 1), np.int64), uniforms, np.array(0, np.float32))
    assert text.shape == (1, 301)


def test_mistakes(example: Example, random_weights: dict[str, np.ndarray]) -> None:
    program = example.train.program
    vm = relaxvm.VirtualMachine(program(random_weights))
    prompt, temperature = np.zeros((2, 3), np.int64), np.array(1, np.float32)
    uniforms = np.zeros((2, 4), np.float32)
    with pytest.raises(RuntimeError, match=r"param=uniforms.*dimension 0.*expected 2.*got 1"):
        vm.main(prompt, uniforms[:1], temperature)
    with pytest.raises(IndexError, match=r"take: indices: .* index < 96, got 96") as info:
        vm.main(prompt + 96, uniforms, temperature)
    notes = "\n".join(info.value.__notes__)
    assert "model.py" in notes
    assert "x = R.take(weights[0], text, axis=0)" in notes
    with pytest.raises(TypeError, match=r"'up' .* is of type R.Tensor\(\(64, 256\)"):
        program({**random_weights, "up": random_weights["down"]})
    with pytest.raises(ValueError, match="no parameter 'upp'; did you mean 'up'"):
        program({**random_weights, "upp": random_weights["up"]})


# The commands


def test_generate(example: Example, trained: Trained) -> None:
    command = [FOLDER / "generate.py", "--prompt", "Return ", "--length", 60, "--seed", 7]
    output = run(trained.folder, *command)
    uniforms = np.random.default_rng(7).random((1, 60), np.float32)
    prompt = example.text.encode("\nReturn ")[None]
    expected = example.reference.generate(trained.weights, prompt, uniforms, 0.5)
    assert output == example.text.decode(expected[0, 1:]) + "\n"
    assert re.search(r"\n[\d,]+ characters per second\n$", run(trained.folder, *command, "--time"))


def test_the_commands_on_its_page_work(example: Example, trained: Trained) -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^relaxvm (.*?)(?: +#.*)?$", page, re.MULTILINE)
    assert set(re.findall(r"^  relaxvm (.*)$", trained.output, re.MULTILINE)) <= set(commands)
    printed = {
        command: run(trained.folder, "-m", "relaxvm", *command.split()) for command in commands
    }
    assert "0 errors, 0 warnings" in printed["verify charmodel.vmexec"]
    signature = "main(prompt: int64[b, n], uniforms: float32[b, more], temperature: float32[])"
    assert signature in printed["inspect charmodel.vmexec"]
    run_it = "run charmodel.vmexec --input prompt.npz"
    assert printed[run_it].startswith("out0  int64[1, 208]")
    result: dict[str, Any] = json.loads(
        run(trained.folder, "-m", "relaxvm", *run_it.split(), "--limits", "untrusted", "--json")
    )
    prompt = dict(np.load(trained.folder / "prompt.npz"))
    expected = example.reference.generate(
        trained.weights, prompt["prompt"], prompt["uniforms"], prompt["temperature"]
    )
    assert result["outputs"][0]["shape"] == [1, 208]
    with np.load(trained.folder / "text.npz") as written:
        np.testing.assert_array_equal(written["out0"], expected)
