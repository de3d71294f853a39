"""Child processes end with their test, and a run fails if one does not."""

from __future__ import annotations

import ast
import os
import signal
import sys
import textwrap
import time
from pathlib import Path

import pytest

from . import children

TESTS = Path(__file__).parent

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and groups of POSIX")
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")

FAMILY = """
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
time.sleep(600)
"""


def test_tests_start_processes_by_this_module() -> None:
    wrong = []
    for path in TESTS.rglob("*.py"):
        if path.name == "children.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import(names=names) if any(n.name == "subprocess" for n in names):
                    wrong.append(f"{path.name}:{node.lineno}")
                case ast.ImportFrom(module="subprocess"):
                    wrong.append(f"{path.name}:{node.lineno}")
                case ast.Attribute(value=ast.Name(id="os"), attr="system" | "popen"):
                    wrong.append(f"{path.name}:{node.lineno}")
    assert not wrong, f"use tests/children.py instead of subprocess: {wrong}"


def test_run() -> None:
    code = "import sys; print(sys.stdin.read().upper())"
    done = children.run([sys.executable, "-c", code], input="x", capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "X\n", "")


def test_a_failure_shows_what_the_process_wrote() -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('out of luck')"]
    assert children.run(command, capture_output=True).returncode == 1
    with pytest.raises(children.CalledProcessError) as caught:
        children.run(command, capture_output=True, check=True)
    assert caught.value.__notes__ == [f"out of luck{os.linesep}"]


@posix
@needs_proc
def test_a_group_ends_with_its_test() -> None:
    command = [sys.executable, "-c", FAMILY]
    with (
        pytest.raises(ZeroDivisionError),
        children.start(command, stdout=children.PIPE) as process,
    ):
        assert process.stdout is not None
        grandchild = int(process.stdout.readline())
        1 / 0  # noqa: B018
    assert children.ends(process.pid)
    assert children.ends(grandchild)


@posix
@needs_proc
def test_a_time_out_ends_the_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    deadline = 1.0
    while not path.exists() or not path.read_text():  # on a busy machine it takes longer to start
        monkeypatch.setattr(children, "DEADLINE", deadline)
        with pytest.raises(children.TimeoutExpired), path.open("w") as file:
            children.run([sys.executable, "-c", FAMILY], stdout=file)
        deadline *= 4
    monkeypatch.undo()
    assert children.ends(int(path.read_text()))


@posix
def test_sigint_is_not_ignored_in_processes() -> None:
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    done = children.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True\n"


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit")
def test_processor_time_is_bounded() -> None:
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_CPU)[0])"
    with children.start(
        [sys.executable, "-c", f"input(); {code}"],
        stdin=children.PIPE, stdout=children.PIPE, text=True,
    ) as process:  # fmt: skip
        out, _ = process.communicate("\n", timeout=children.DEADLINE)
    assert int(out) == children.DEADLINE


# Whole runs


def pytest_run(folder: Path, source: str, *before: str) -> list[str]:
    """Return the command that runs one test file with the settings of this folder."""
    (folder / "test_it.py").write_text(textwrap.dedent(source))
    options = ["-q", "-p", "no:cacheprovider", "-p", "tests.conftest", "-c", os.devnull]
    return [*before, sys.executable, "-m", "pytest", *options, f"--rootdir={folder}", str(folder)]


@posix
def test_sigint_that_a_script_ignores(tmp_path: Path) -> None:
    """A background job of a script ignores SIGINT, and so do its children."""
    source = """
        import signal
        import sys
        from tests import children

        def test_it():
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            code = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(600)"
            done = children.run([sys.executable, "-c", code], capture_output=True)
            assert done.returncode == -signal.SIGINT
    """
    ignoring = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
    done = children.run(pytest_run(tmp_path, source, *ignoring), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@posix
@needs_proc
def test_a_process_that_is_still_running_fails_the_run(tmp_path: Path) -> None:
    source = f"""
        import subprocess
        import sys
        from pathlib import Path

        import pytest

        @pytest.fixture(autouse=True, scope="session")
        def hurry():
            from tests import children
            yield
            children.left_behind.__defaults__ = (0.1,)

        def test_first():
            command = [sys.executable, "-c", "import time; time.sleep(600)"]
            it = subprocess.Popen(command, start_new_session=True)
            Path({str(tmp_path / "pid")!r}).write_text(str(it.pid))

        def test_second():
            pass
    """
    done = children.run(pytest_run(tmp_path, source), capture_output=True, text=True)
    assert done.returncode == 1
    pid = int((tmp_path / "pid").read_text())
    assert "processes left behind, killed:" in done.stdout
    assert f"{pid}: {sys.executable} -c import time; time.sleep(600)" in done.stdout
    assert "test_it.py::test_first (call)" in done.stdout
    assert children.ends(pid)


@posix
@needs_proc
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_ends_its_processes(tmp_path: Path, number: signal.Signals) -> None:
    source = f"""
        import sys
        from pathlib import Path
        from tests import children

        def test_it():
            command = [sys.executable, "-c", "while True: pass"]
            with children.start(command) as process:
                Path({str(tmp_path / "new")!r}).write_text(str(process.pid))
                Path({str(tmp_path / "new")!r}).rename({str(tmp_path / "pid")!r})
                process.wait()
    """
    with children.start(pytest_run(tmp_path, source), stdout=children.PIPE) as run:
        while not (tmp_path / "pid").exists() and run.poll() is None:
            time.sleep(0.01)
        run.send_signal(number)
        out, _ = run.communicate(timeout=children.DEADLINE)
    assert run.returncode == pytest.ExitCode.INTERRUPTED, out.decode()
    assert children.ends(int((tmp_path / "pid").read_text()), 60.0)
