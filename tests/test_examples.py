"""The examples, run as a user runs them: as scripts, in a separate folder."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import relaxvm
from relaxvm.isa import FuncKind

from . import children

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py"))
NEEDS_SCIKIT_LEARN = pytest.mark.skipif(
    importlib.util.find_spec("sklearn") is None, reason="scikit-learn is not installed"
)


def run(folder: Path, *command: object, stdin: str = "", **variables: object) -> str:
    """Return the output of a Python command in a folder; it imports the relaxvm under test."""
    package = str(Path(relaxvm.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": package, **{k: str(v) for k, v in variables.items()}}
    done = children.run(
        [sys.executable, *map(str, command)],
        input=stdin, cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("script", SCRIPTS)
def test_script(script: str, tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    output = run(tmp_path, "-W", "error", EXAMPLES / script)
    golden(f"examples/{script.removesuffix('.py')}.txt", output)
    assert list(tmp_path.iterdir()) == []


def test_every_example_is_listed() -> None:
    listed = re.findall(r"^\| \[([\w.]+)\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    folders = ["charmodel", "decoder", "digits", "models", "native_kernel"]
    assert sorted(listed) == sorted([*SCRIPTS, *folders])


# Pages whose blocks continue each other

SHOWN = re.compile(r"^```python\n(.*?)^```\n(?:^```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
"""A block of Python, and of what it prints if there is one right below."""

RUN_BLOCKS = """
import contextlib, io, json, linecache, sys
scope = {"__name__": "__main__"}
printed = []
for i, block in enumerate(json.load(sys.stdin)):
    file = f"<block {i}>"  # scripts are read from their source
    linecache.cache[file] = len(block), None, block.splitlines(True), file
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(block, file, "exec"), scope)
    printed.append(out.getvalue())
json.dump(printed, sys.stdout)
"""


@pytest.mark.parametrize("name", ["tour.md", "data-types.md"])
def test_a_page_prints_what_it_says(name: str, tmp_path: Path) -> None:
    page = (EXAMPLES.parent / "docs" / name).read_text(encoding="utf-8")
    blocks = SHOWN.findall(page)
    assert len(blocks) == page.count("```python\n")
    assert sum(bool(expected) for _, expected in blocks) == page.count("```text\n")
    output = run(tmp_path, "-c", RUN_BLOCKS, stdin=json.dumps([code for code, _ in blocks]))
    for (code, expected), printed in zip(blocks, json.loads(output), strict=True):
        assert printed.strip("\n") == expected.strip("\n"), code


# Digits


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with the files that training wrote, and its output."""
    folder = tmp_path_factory.mktemp("digits")
    return folder, run(folder, EXAMPLES / "digits" / "train.py")


@NEEDS_SCIKIT_LEARN
def test_digits_are_learned(digits: tuple[Path, str]) -> None:
    _, output = digits
    losses = [float(loss) for loss in re.findall(r"^epoch .*: loss (\S+)$", output, re.MULTILINE)]
    assert len(losses) == 30
    assert losses[-1] < losses[0] / 10
    accuracy = re.search(r"^accuracy on 360 held-out images: (\S+)$", output, re.MULTILINE)
    assert accuracy is not None
    assert float(accuracy[1]) >= 0.96


@NEEDS_SCIKIT_LEARN
def test_the_commands_on_its_page_work(digits: tuple[Path, str]) -> None:
    folder, output = digits
    page = (EXAMPLES / "digits" / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^relaxvm (.*?)(?: +#.*)?$", page, re.MULTILINE)
    assert set(re.findall(r"^  relaxvm (.*)$", output, re.MULTILINE)) < set(commands)
    printed = {
        command: run(folder, "-m", "relaxvm", *command.split()).strip() for command in commands
    }
    assert "0 errors, 0 warnings" in printed["verify digits.vmexec"]
    assert "predict(x: float32[n, 64])" in printed["inspect digits.vmexec"]
    assert "call  relaxvm.kernel.matmul" in printed["dis digits.vmexec"]
    accuracy = re.search(r"held-out images: (\S+)", output)
    assert accuracy is not None
    assert accuracy[1].rstrip("0") in printed["run digits.vmexec --input digits_test.npz"]
    with np.load(folder / "digits.npz") as predicted, np.load(folder / "digits_test.npz") as test:
        share = np.mean(predicted["out0"] == test["y"])
    assert f"{share:.6f}" == accuracy[1]


@NEEDS_SCIKIT_LEARN
def test_the_file_alone_gives_the_accuracy(digits: tuple[Path, str]) -> None:
    """Compared with the network in plain numpy, with the weights from the constants."""
    folder, _ = digits
    executable = relaxvm.load(folder / "digits.vmexec")
    weights = [c for c in executable.constants if isinstance(c, np.ndarray)]
    w1, b1, w2, b2 = weights
    test = np.load(folder / "digits_test.npz")
    scores = np.maximum(test["x"] / 16 @ w1 + b1, 0) @ w2 + b2
    expected = float(np.mean(scores.argmax(1) == test["y"]))
    assert expected >= 0.96

    command = ["digits.vmexec", "--input", "digits_test.npz", "--limits", "untrusted", "--json"]
    result = json.loads(run(folder, "-m", "relaxvm", "run", *command))
    assert result["outputs"][0]["values"] == expected

    vm = relaxvm.VirtualMachine(executable, functions=())  # only functions that ship with relaxvm
    assert vm.main(test["x"], test["y"]) == vm.accuracy(test["x"], test["y"]) == expected
    np.testing.assert_array_equal(vm.predict(test["x"][:3]), scores[:3].argmax(1))
    assert vm.predict(np.empty((0, 64), np.float32)).shape == (0,)
    with pytest.raises(ValueError, match=r"fn=predict.*R.Tensor\(\(n, 64\).*ndim"):
        vm.predict(test["x"][0])
    with pytest.raises(RuntimeError, match="param=y"):
        vm.accuracy(test["x"], test["y"][1:])
    packed = [info.name for info in executable.functions if info.kind == FuncKind.PACKED]
    assert all(name.startswith(("vm.builtin.", "relaxvm.kernel.")) for name in packed)


@NEEDS_SCIKIT_LEARN
def test_training_is_deterministic(tmp_path: Path) -> None:
    """For any hash seed."""
    train = EXAMPLES / "digits" / "train.py"
    files = []
    for seed in (1, 2):
        arguments = ["--epochs", 2, "--out", f"new/{seed}"]
        output = run(tmp_path, train, *arguments, PYTHONHASHSEED=seed, OPENBLAS_NUM_THREADS=1)
        assert output.count("epoch") == 2
        assert f"relaxvm verify {Path('new', str(seed), 'digits.vmexec')}" in output
        folder = tmp_path / "new" / str(seed)
        assert sorted(path.name for path in folder.iterdir()) == [
            "digits.vmexec",
            "digits_test.npz",
        ]
        files.append((folder / "digits.vmexec").read_bytes())
    assert files[0] == files[1]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module examples/digits/model.py."""
    monkeypatch.syspath_prepend(EXAMPLES / "digits")
    yield importlib.import_module("model")
    for name in ("model", "emitter"):
        del sys.modules[name]


def reference_loss(x: np.ndarray, y: np.ndarray, params: list[np.ndarray]) -> float:
    """Cross entropy of the network, in float64."""
    w1, b1, w2, b2 = params
    scores = np.maximum(x / 16 @ w1 + b1, 0) @ w2 + b2
    scores -= scores.max(1, keepdims=True)
    log_probabilities = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    return float(-log_probabilities[np.arange(len(y)), y].mean())


def test_a_step_goes_down_the_gradient(model: ModuleType) -> None:
    """The step is the rate times the gradient, computed here by finite differences."""
    rng = np.random.default_rng(3)
    x = rng.integers(0, 17, (6, 64)).astype(np.float32)
    y = np.array([3, 1, 4, 1, 5, 9])
    params = model.initial_parameters(rng)
    vm = relaxvm.VirtualMachine(model.training_program())
    loss, updated = vm.train_step(x, y, params, 1.0)

    exact = [param.astype(np.float64) for param in params]
    np.testing.assert_allclose(loss, reference_loss(x, y, exact), rtol=1e-5)
    for which, (before, after) in enumerate(zip(params, updated, strict=True)):
        assert after is not before
        for index in map(tuple, rng.integers(0, before.shape, (20, before.ndim))):
            slope = 0.0
            for sign in (1, -1):
                moved = [param.copy() for param in exact]
                moved[which][index] += sign * 1e-6
                slope += sign * reference_loss(x, y, moved) / 2e-6
            assert before[index] - after[index] == pytest.approx(slope, rel=1e-3, abs=1e-5)


def test_an_epoch_is_a_step_per_row(model: ModuleType) -> None:
    rng = np.random.default_rng(4)
    x = rng.integers(0, 17, (10, 64)).astype(np.float32)
    y = rng.integers(0, 10, 10)
    order = rng.permutation(9).reshape(3, 3)
    vm = relaxvm.VirtualMachine(model.training_program())
    start = model.initial_parameters(rng)

    loss, got = vm.train_epoch(x, y, order, start, 0.1)
    losses, params = [], start
    for rows in order:
        step_loss, params = vm.train_step(x[rows], y[rows], params, 0.1)
        losses.append(step_loss)
    np.testing.assert_allclose(loss, np.mean(losses), rtol=1e-6)
    for a, b in zip(got, params, strict=True):
        np.testing.assert_array_equal(a, b)

    with pytest.raises(RuntimeError, match="param=y"):
        vm.train_epoch(x, y[1:], order, start, 0.1)
    with pytest.raises(IndexError, match="take: indices: expected 0 <= index < 10"):
        vm.train_epoch(x, y, order + 5, start, 0.1)
