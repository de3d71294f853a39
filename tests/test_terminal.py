"""Colours, progress bars, completion and logs of the command line."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from pathlib import Path

import pytest

import relaxvm
from relaxvm import logs
from relaxvm.cli import main
from relaxvm.cli.terminal import terminal
from relaxvm.script import from_source

from . import children

pty = pytest.importorskip("pty", reason="needs a terminal of POSIX")

RELAXVM = ("-P", "-m", "relaxvm")

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

PROGRAM = """
from relaxvm.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = R.add(x, x)
        return y
"""


@pytest.fixture
def executable(tmp_path: Path) -> str:
    path = tmp_path / "main.vmexec"
    relaxvm.build(from_source(PROGRAM)).save(path)
    return str(path)


def on_terminal(*args: str, **variables: str) -> str:
    """What Python writes to a terminal, run with arguments; lines end with a newline alone."""
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **variables}
    if "NO_COLOR" not in variables:
        env.pop("NO_COLOR", None)
    ours, theirs = pty.openpty()
    parts = []
    try:
        with children.start([sys.executable, *args], stdin=theirs, stdout=theirs, stderr=theirs,
                            env=env):  # fmt: skip
            os.close(theirs)
            # Linux raises EIO when the process has ended, others return nothing.
            with contextlib.suppress(OSError):
                while part := os.read(ours, 65536):
                    parts.append(part)
    finally:
        os.close(ours)
    return b"".join(parts).decode().replace("\r\n", "\n")


def piped(*args: str) -> str:
    return children.run([sys.executable, *RELAXVM, *args], capture_output=True, text=True).stdout


def test_a_terminal_shows_colours_and_the_same_text(executable: str) -> None:
    pytest.importorskip("rich")
    shown = on_terminal(*RELAXVM, "dis", executable)
    assert "\x1b[" in shown
    assert ESCAPES.sub("", shown) == piped("dis", executable)


def test_no_color_and_pipes_are_plain(executable: str) -> None:
    assert on_terminal(*RELAXVM, "dis", executable, NO_COLOR="1") == piped("dis", executable)
    assert "\x1b" not in piped("dis", executable)


def test_errors_are_marked(tmp_path: Path) -> None:
    pytest.importorskip("rich")
    shown = on_terminal(*RELAXVM, "run", str(tmp_path / "missing.vmexec"))
    assert re.match(r"\x1b\[1;31mrelaxvm: error:\x1b\[0m .*missing.vmexec", shown)


def test_names_in_files_cannot_colour_a_terminal(tmp_path: Path) -> None:
    ib = relaxvm.ExecBuilder()
    with ib.function("a\x1b[31mb [red]c[/red] :smile:", 1):
        ib.emit_ret(ib.r(0))
    path = tmp_path / "names.vmexec"
    ib.get().save(path)
    shown = ESCAPES.sub("", on_terminal(*RELAXVM, "dis", str(path)))
    assert r"\x1b[31mb [red]c[/red] :smile:" in shown


def test_lines_longer_than_the_terminal_are_not_wrapped(tmp_path: Path) -> None:
    ib = relaxvm.ExecBuilder()
    with ib.function("main", 40):
        ib.emit_call("f" * 60, [ib.r(i) for i in range(40)], dst=ib.r(40))
        ib.emit_ret(ib.r(40))
    path = tmp_path / "long.vmexec"
    ib.get().save(path)
    shown = ESCAPES.sub("", on_terminal(*RELAXVM, "dis", str(path), COLUMNS="40"))
    assert max(map(len, shown.splitlines())) > 200


def test_a_bar_shows_progress_and_goes_away() -> None:
    pytest.importorskip("rich")
    code = ("import sys, time\n"
            "from relaxvm.cli.console import Console\n"
            "console = Console(as_json=False, debug=False, progress=False)\n"
            "with console.progress('counting [1]', 3) as progress:\n"
            "    progress.step(); time.sleep(2.5); progress.step(2)\n"
            "console.text('done')\n")  # fmt: skip
    shown = on_terminal("-P", "-c", code)
    plain = ESCAPES.sub("", shown)
    assert "relaxvm: counting [1]" in plain
    assert "1/3" in plain
    assert plain.rstrip().endswith("done")
    assert "\x1b[?25h" in shown  # the cursor is back


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh", "powershell"])
def test_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(word in script for word in ("decompile", "profile"))


def test_bash_completes_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", "bash"]) == 0
    path = tmp_path / "relaxvm.bash"
    path.write_text(capsys.readouterr().out)
    code = (f"source {path}; COMP_WORDS=(relaxvm deco); COMP_CWORD=1; "
            "_shtab_relaxvm relaxvm deco relaxvm; printf '%s\\n' ${COMPREPLY[@]}")  # fmt: skip
    done = children.run(["bash", "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["decompile"]


def test_completion_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 4
    assert "pip install 'relaxvm[cli]'" in capsys.readouterr().err


def test_without_rich_a_terminal_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    ours, theirs = pty.openpty()
    with open(theirs, "w") as stream:
        assert stream.isatty()
        assert terminal(stream) is None
    os.close(ours)


# Logs


def test_verbose_shows_cache_compiler_and_passes(tmp_path: Path) -> None:
    module = tmp_path / "main.json"
    from relaxvm.ir import save_json

    module.write_text(save_json(from_source(PROGRAM)))
    env = {**os.environ, "RELAXVM_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, *RELAXVM, "run", str(module), "--random"]
    first = children.run([*command, "-vv"], capture_output=True, text=True, env=env)
    assert first.returncode == 0, first.stderr
    assert f"relaxvm.cache: {module}: compiled in " in first.stderr
    assert re.search(r"relaxvm.passes: \w+: [\d.]+ ms", first.stderr)
    again = children.run([*command, "-v"], capture_output=True, text=True, env=env)
    assert f"relaxvm.cache: {module}: found, compiled before" in again.stderr
    assert "relaxvm.passes" not in again.stderr
    quiet = children.run(command, capture_output=True, text=True, env=env)
    assert quiet.stderr == ""


def test_passes_log_their_time(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "relaxvm"):
        relaxvm.build(from_source(PROGRAM))
    passes = [r for r in caplog.records if r.name == "relaxvm.passes"]
    assert {"VMShapeLower", "LegalizeOps"} <= {r.getMessage().split(":")[0] for r in passes}
    assert passes[0].filename == "pass_infra.py"


def test_nothing_listens_without_logging() -> None:
    code = ("import sys, relaxvm.logs as logs\n"
            "sys.modules.pop('logging', None)\n"
            "assert not logs.is_on('cache', logs.INFO)\n"
            "logs.log('cache', logs.INFO, 'nobody %s', 1)\n")  # fmt: skip
    children.run([sys.executable, "-P", "-c", code], check=True, capture_output=True)
    assert not logs.is_on("cache", logs.DEBUG)
