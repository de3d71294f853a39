"""Fixtures and settings shared by all tests."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import relaxvm
from relaxvm import get_func
from relaxvm.registry import GLOBAL

from . import children

GOLDEN = Path(__file__).parent / "golden"

# The same examples in every run; a failure prints the blob that reproduces it alone.  Times are not
# judged: the machine may be busy.
settings.register_profile(
    "relaxvm",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "explore",
    settings.get_profile("relaxvm"),
    derandomize=False,
    max_examples=int(os.environ.get("RELAXVM_EXAMPLES", "10000")),
)
# RELAXVM_HYPOTHESIS=explore looks at other examples in every run, and at more of them.
settings.load_profile(os.environ.get("RELAXVM_HYPOTHESIS", "relaxvm"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bless", action="store_true", help="write the actual results to tests/golden"
    )


def pytest_configure() -> None:
    children.take_signals()


def pytest_collection_finish() -> None:
    """Take what collection has made, modules and thousands of tests, out of every later garbage
    collection: tests collect often, and each would walk all of it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def no_process_left_behind() -> Iterator[None]:
    """Fail the run if a process that a test started is still alive at its end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(children.MARK, str(os.getpid()))
        yield
    left = children.left_behind()
    lines = [f"  {pid}: {what}" for pid, what in left.items()]
    assert not left, "\n".join(["processes left behind, killed:", *lines])


@pytest.fixture(autouse=True, scope="session")
def outside_of_the_checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make child interpreters import the relaxvm under test, which may be an installed one, rather
    than one in the working directory, and `tests` from this checkout."""
    package, checkout = (str(Path(file).parent.parent) for file in (relaxvm.__file__, __file__))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([package, checkout]))
        patch.setattr(sys, "path", [*sys.path, checkout])
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        yield


@pytest.fixture(autouse=True, scope="session")
def outside_of_the_users_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep kernels that the tests compile in a cache of this run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RELAXVM_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a cache of compiled kernels that only this test uses."""
    path = tmp_path / "cache"
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(path))
    monkeypatch.delenv("RELAXVM_CFLAGS", raising=False)
    return path


@pytest.fixture
def no_builtin_state() -> Iterator[None]:
    """Remove what the cases of builtins leave in the process."""
    yield
    get_func("vm.builtin.tensor_cache.clear")()
    get_func("vm.builtin.clear_py_func_registry")()
    if GLOBAL.lookup("cases.debug") is not None:
        GLOBAL.remove("cases.debug")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str | bytes], None]:
    """``golden(name, got)``: compare with ``tests/golden/name`` or, with --bless, write it."""
    bless = request.config.getoption("--bless")

    def check(name: str, got: str | bytes) -> None:
        path = GOLDEN / name
        data = got.encode() if isinstance(got, str) else got
        if bless:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            return
        hint = f"tests/golden/{name}: check the difference; if it is intended, run pytest --bless"
        assert path.exists(), hint
        want = path.read_bytes()
        if isinstance(got, str):
            assert got == want.decode(), hint
        else:
            assert got == want, hint

    return check
