"""Folders of models: found, loaded, shared, unloaded."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from relaxvm import ExecBuilder
from relaxvm.serve import ModelError, ModelOptions, Repository, Scheduler, UnknownModelError
from relaxvm.serve.interface import Interface, NotServableError

from . import programs


@pytest.fixture
def scheduler():
    with Scheduler(threads=1) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return programs.folder_of_models(tmp_path)


def test_a_file_is_a_repository_of_one_model(folder: Path, scheduler: Scheduler) -> None:
    (folder / "double.toml").write_text("batch = 4\n")
    (model,) = Repository([folder / "double.vmexec"], scheduler)
    assert (model.name, model.version, model.options.batch) == ("double", "1", 4)


def test_models_are_found_and_loaded_when_they_are_used(
    folder: Path, scheduler: Scheduler
) -> None:
    repository = Repository([folder], scheduler)
    names = {(model.name, model.version) for model in repository}
    assert names == {("broken", "1"), ("counter", "1"), ("double", "1"), ("endless", "1"),
                     ("shapes", "1"), ("versions", "1"), ("versions", "2"),
                     ("versions", "10")}  # fmt: skip
    assert not any(model.is_loaded for model in repository)
    with repository.use("double") as model:
        a = np.ones((1, 4), np.float32)
        assert model.vm["main"](a, a).tolist() == [[4] * 4]
        assert [field.name for field in model.interface.inputs] == ["x", "y"]
    assert repository.find("double").is_loaded
    assert [each.version for each in repository.versions("versions")] == ["1", "2", "10"]
    assert repository.find("versions").version == "10"
    with pytest.raises(UnknownModelError, match="unknown model doubel; did you mean 'double'"):
        repository.find("doubel")
    with pytest.raises(UnknownModelError, match="has no version 3, it has 1, 2, 10"):
        repository.find("versions", "3")


def test_one_that_cannot_be_loaded_says_why(folder: Path, scheduler: Scheduler) -> None:
    repository = Repository([folder], scheduler)
    with pytest.raises(ModelError, match=r"broken cannot be loaded: FormatError: .*bad executable"):
        repository.acquire("broken")
    assert "FormatError" in repository.find("broken").reason
    programs.double().save(folder / "broken.vmexec")
    repository.load("broken")
    assert repository.find("broken").is_loaded
    assert not repository.find("broken").reason


def test_files_that_are_one_file_share_their_weights(
    folder: Path, scheduler: Scheduler
) -> None:
    for i in range(20):
        (folder / f"copy{i}.vmexec").hardlink_to(folder / "double.vmexec")
    repository = Repository([folder], scheduler)
    models = [repository.acquire(f"copy{i}") for i in range(20)]
    assert len({id(model.vm.executable) for model in models}) == 1
    assert len({id(model.vm) for model in models}) == 20
    assert repository.nbytes == models[0].nbytes


def test_what_was_not_used_for_long_is_unloaded(folder: Path, scheduler: Scheduler) -> None:
    changes: list[int] = []
    repository = Repository(
        [folder], scheduler, memory=200_000, on_change=lambda: changes.append(1)
    )
    names = ["double", "shapes", "counter"]  # 64 KiB and some bytes each
    for name in names:
        with repository.use(name):
            pass
    with repository.use("shapes"), repository.use("endless"):
        loaded = {model.name for model in repository if model.is_loaded}
        assert "shapes" in loaded
        assert "double" not in loaded
        assert repository.nbytes <= 200_000
        held = [repository.acquire(name) for name in ("double", "counter")]
        assert repository.nbytes > 200_000  # all of them are in use
    for model in held:
        repository.release(model)
    assert repository.nbytes <= 200_000
    assert changes


def test_unloaded_by_name(folder: Path, scheduler: Scheduler) -> None:
    repository = Repository([folder], scheduler)
    model = repository.acquire("double")
    repository.unload("double")
    assert model.is_loaded  # it is in use
    assert not repository.find("double").is_wanted
    repository.release(model)
    assert not model.is_loaded
    with pytest.raises(ModelError, match="double was unloaded"):
        repository.acquire("double")
    repository.load("double")
    with repository.use("double"):
        pass


def test_a_file_that_has_changed_is_loaded_anew(folder: Path, scheduler: Scheduler) -> None:
    repository = Repository([folder], scheduler)
    old = repository.acquire("double")
    (folder / "new").write_bytes(programs.total().to_bytes())
    (folder / "new").rename(folder / "double.vmexec")
    repository.load("double")
    with repository.use("double") as new:
        assert len(new.interface.inputs) == 1
    assert len(old.interface.inputs) == 2
    repository.release(old)


def test_many_threads_load_a_model_once(folder: Path, scheduler: Scheduler) -> None:
    repository = Repository([folder], scheduler)
    barrier = threading.Barrier(6)

    def work(_: int) -> int:
        barrier.wait()
        with repository.use("double") as model:
            return id(model.vm)

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(work, range(6)))) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wieght = 2", "unknown option wieght; did you mean 'weight'"),
        ('weight = "2"', "weight: expected int or float, got '2'"),
        ("trusted = 1", "trusted: expected bool"),
        ("slots = true", "slots: expected int"),
        ("slots = 0", "slots: expected at least 1, got 0"),
        ("weight = nan", "weight: expected at least 0.001, got nan"),
        ("limits = {fule = 3}", "limits: "),
        ("limits = {fuel = -3}", "limits: Limits.fuel: expected a number >= 0"),
        ("slots", "double.toml"),
        ("priority = 1001", "priority: expected a number from -1000 to 1000, got 1001"),
    ],
)
def test_wrong_options(
    folder: Path, scheduler: Scheduler, text: str, message: str
) -> None:
    (folder / "double.toml").write_text(text)
    with pytest.raises(ModelError, match=message):
        Repository([folder], scheduler)


def test_options(folder: Path, scheduler: Scheduler) -> None:
    (folder / "double.toml").write_text("weight = 2\nlimits = {fuel = 1}\ntimeout = 3\n")
    (folder / "versions" / "relaxvm.toml").write_text("slots = 2\nqueue = 0\n")
    base = ModelOptions(priority=7)
    repository = Repository([folder], scheduler, options=base)
    double = repository.find("double").options
    assert (double.weight, double.timeout, double.priority) == (2, 3, 7)
    assert double.run_limits().fuel == 1
    assert repository.find("versions", "1").share.slots == 2


def test_models_have_no_functions_but_builtins_unless_they_are_trusted(
    tmp_path: Path, scheduler: Scheduler
) -> None:
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1):
        eb.emit_call("os.system", args=[eb.r(0)], dst=eb.r(1))
        eb.emit_ret(eb.r(1))
    eb.get().save(tmp_path / "evil.vmexec")
    with pytest.raises(ModelError, match="LinkError"):
        Repository([tmp_path], scheduler).acquire("evil")


def test_shared_libraries_need_trust(tmp_path: Path, scheduler: Scheduler) -> None:
    (tmp_path / "lib.vmexec").write_bytes(b"\x7fELF" + bytes(200))
    with pytest.raises(ModelError, match="shared library, whose code runs"):
        Repository([tmp_path], scheduler).acquire("lib")


def test_two_models_of_one_name(tmp_path: Path, scheduler: Scheduler) -> None:
    programs.double().save(tmp_path / "a.vmexec")
    (tmp_path / "a.onnx").write_bytes(b"")
    with pytest.raises(ModelError, match="two models have the name a"):
        Repository([tmp_path], scheduler)


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        ("..", {"1/model.onnx": b""}, "no name for a model"),
        ("a/b", {"1/model.onnx": b""}, "no name for a model"),
        ("a", {"../1/model.onnx": b""}, "expected VERSION/NAME"),
        ("a", {"1/../model.onnx": b""}, "expected VERSION/NAME"),
        ("a", {"1/model.py": b""}, "expected VERSION/NAME"),
        ("a", {"relaxvm.toml": b""}, "expected VERSION/NAME"),
        ("a", {}, "expected files"),
        ("double", {"1/model.onnx": b""}, "double is .*double.vmexec already"),
        ("double.toml", {"1/model.onnx": b""}, "no name for a model"),
        ("versions", {"1/model.onnx": b""}, "versions is there already, and was not sent"),
    ],
)
def test_uploads_that_are_refused(
    folder: Path, scheduler: Scheduler, name: str, files: dict[str, bytes], message: str
) -> None:
    before = sorted(folder.rglob("*"))
    repository = Repository([folder], scheduler)
    with pytest.raises(ModelError, match=message):
        repository.upload(name, files)
    assert sorted(folder.rglob("*")) == before


def test_uploads(folder: Path, scheduler: Scheduler) -> None:
    repository = Repository([folder], scheduler)
    for program, count in ((programs.double(), 2), (programs.total(), 1)):
        repository.upload("sent", {"1/model.vmexec": program.to_bytes()})
        repository.load("sent")
        with repository.use("sent") as model:
            assert len(model.interface.inputs) == count
    assert not list(folder.glob(".upload*"))


def test_uploads_are_never_trusted(tmp_path: Path, scheduler: Scheduler) -> None:
    repository = Repository([tmp_path], scheduler, options=ModelOptions(trusted=True))
    repository.upload("sent", {"1/model.vmexec": b"\x7fELF"})
    with pytest.raises(ModelError, match="needs the option trusted"):
        repository.load("sent")


def test_an_upload_that_fails_leaves_what_was_there(
    folder: Path, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository([folder], scheduler)
    repository.upload("sent", {"1/model.vmexec": programs.total().to_bytes()})
    rename = os.rename

    def fail(source: Path, target: Path) -> None:
        if source.name == "new":
            raise OSError("full")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="full"):
        repository.upload("sent", {"1/model.vmexec": programs.double().to_bytes()})
    repository.load("sent")
    with repository.use("sent") as model:
        assert len(model.interface.inputs) == 1


# Folders that change


def test_one_with_wrong_options_does_not_keep_others_from_loading(
    folder: Path, scheduler: Scheduler
) -> None:
    repository = Repository([folder], scheduler)
    (folder / "double.toml").write_text("nothing = 1")
    (folder / "shapes.toml").mkdir()
    with repository.use("double"):  # stays as it was
        pass
    repository.load("counter")
    for name, message in (("double", "unknown option nothing"), ("shapes", "shapes.toml")):
        with pytest.raises(ModelError, match=message):
            repository.load(name)
        with pytest.raises(ModelError, match=r"(double|shapes)\.toml"):
            Repository([folder], scheduler)
    (folder / "double.toml").unlink()
    repository.load("double")


def test_a_folder_that_disappears(folder: Path, scheduler: Scheduler) -> None:
    repository = Repository([folder], scheduler)
    repository.load("double")
    moved = folder.rename(folder.with_name("moved"))
    with pytest.raises(ModelError, match="cannot be looked for"):
        repository.scan()
    with repository.use("double"):
        pass
    moved.rename(folder)
    (folder / "double.vmexec").unlink()
    (folder / "link.vmexec").symlink_to(folder / "double.vmexec")  # goes nowhere
    repository.scan()
    for name in ("double", "link"):
        with pytest.raises(UnknownModelError):
            repository.find(name)


def test_files_that_change_often_do_not_pile_up(tmp_path: Path, scheduler: Scheduler) -> None:
    repository = Repository([tmp_path], scheduler)
    for program in (programs.double(), programs.total(), programs.shapes(), programs.counter()):
        (tmp_path / "new").write_bytes(program.to_bytes())
        (tmp_path / "new").rename(tmp_path / "model.vmexec")
        repository.load("model")
    assert len(repository._executables) == 1


def test_one_that_is_unloaded_takes_no_further_requests(
    folder: Path, scheduler: Scheduler
) -> None:
    repository = Repository([folder], scheduler)
    with repository.use("double") as model:
        repository.unload("double")
        with pytest.raises(ModelError, match="was unloaded"):
            repository.acquire("double")
        os.utime(folder / "double.vmexec", ns=(0, 0))
        repository.scan()
        with pytest.raises(ModelError, match="was unloaded"):
            repository.acquire("double")
        assert model.is_loaded
    assert not model.is_loaded


def test_interfaces() -> None:
    double = Interface.of(programs.double(), "main")
    double.check_joinable()
    assert [field.described() for field in double.inputs] == [
        {"name": "x", "datatype": "FP32", "shape": [-1, 4]},
        {"name": "y", "datatype": "FP32", "shape": [-1, 4]},
    ]
    with pytest.raises(NotServableError, match=r"calls cannot be joined: .*arg0: unknown"):
        Interface.of(programs.shapes(), "main").check_joinable()
    with pytest.raises(NotServableError, match=r"there is no function mian; did you mean 'main'\?"):
        Interface.of(programs.shapes(), "mian")


def test_results_that_share_parts_are_refused_in_time() -> None:
    value: object = ()
    for _ in range(6):
        value = (value,) * 1000
    with pytest.raises(NotServableError, match="more than 4096 parts"):
        Interface.of(programs.shapes(), "main").named(value)
    with pytest.raises(NotServableError, match=r"output_0 is .*neither tensor"):
        Interface.of(programs.shapes(), "main").named((object(),))


def test_equal_weights_of_different_files_are_in_memory_once(
    tmp_path: Path, scheduler: Scheduler
) -> None:
    weights = np.random.default_rng(0).random((100, 200))
    other = weights.copy()
    other[50, 50] += 1

    def save(name: str, *arrays: np.ndarray) -> None:
        eb = ExecBuilder()
        with eb.function("main", num_inputs=1):
            for number, array in enumerate(arrays):
                constant = eb.convert_constant(array)
                eb.emit_call("vm.builtin.copy", args=[constant], dst=eb.r(1 + number))
            args = [eb.r(1 + number) for number in range(len(arrays))]
            eb.emit_call("vm.builtin.make_tuple", args=args, dst=eb.r(10))
            eb.emit_ret(eb.r(10))
        eb.get().save(tmp_path / f"{name}.vmexec")

    save("a", weights)
    save("b", weights, other)
    save("c", weights)
    repository = Repository([tmp_path], scheduler)
    with repository.use("a") as a, repository.use("b") as b, repository.use("c") as c:
        arrays = [
            [each for each in model.vm.executable.constants if isinstance(each, np.ndarray)]
            for model in (a, b, c)
        ]
        assert arrays[0][0] is arrays[1][0] is arrays[2][0]
        np.testing.assert_array_equal(arrays[1][1], other)
        assert repository.nbytes < 2 * weights.nbytes + 3 * (64 << 10) + 1000
        one = np.zeros(1)
        np.testing.assert_array_equal(b.vm["main"](one)[0], weights)
    for name in ("a", "c"):
        repository.unload(name)
    with repository.use("b") as b:
        np.testing.assert_array_equal(b.vm["main"](one)[0], weights)
    repository.unload("b")
    assert repository.nbytes == 0
    assert not repository._weights._known or all(
        ref() is not None for refs in repository._weights._known.values() for ref in refs
    )
