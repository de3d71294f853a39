"""Mutated files do no harm, and the fuzzer detects harm when there is some."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import zlib
from dataclasses import replace

import pytest

from relaxvm.executable.formats import binary
from relaxvm.kernels import PREFIX
from relaxvm.native import toolchain

from . import children
from .corpus import CORPUS

pytest.importorskip("resource")  # Windows has neither this nor fork

from .builtin_cases import own_builtins
from .fuzz import calls
from .fuzz.campaign import Summary, main
from .fuzz.kinds import KINDS
from .fuzz.mutate import bases, mutant, older_form
from .fuzz.outcomes import Outcome
from .fuzz.workers import Budget, Result, run_batch
from .time_attacks import kernels

MEMORY = os.environ.get("RELAXVM_FUZZ_MEMORY", "6")
"""GiB of address space of a worker; 0 for none, which sanitizers need."""
COUNT = int(os.environ.get("RELAXVM_FUZZ_COUNT", "8000"))
"""Mutants of executables to run; of each other kind an eighth as many.  Set the variable to
something smaller while you work."""


LOADED = {
    "vmexec": {"RESULT", "RELAXVM_ERROR", "KERNEL_ERROR"},
    "listing": {"RESULT", "KERNEL_ERROR"},
    "json": {"RESULT", "KERNEL_ERROR"},
    "kernels": {"RESULT"},
    "sections": {"RESULT"},
    "prim_funcs": {"RESULT", "KERNEL_ERROR"},
    "parameters": {"RESULT"},
    "library": {"RESULT"},
    "relay": {"RESULT"},
    "relay_vm": {"RESULT", "KERNEL_ERROR"},
    "run": {"RESULT"},
    "calls": {"RESULT", "KERNEL_ERROR", "RELAXVM_ERROR"},
    "onnx": {"RESULT", "KERNEL_ERROR"},
    "pt2": {"RESULT", "KERNEL_ERROR"},
}
"""Outcomes of mutants that are read."""


@pytest.mark.parametrize("kind", KINDS)
def test_mutants_do_no_harm(kind):
    """No signal, exit or hang, and only exceptions of relaxvm and of the kernels."""
    count = COUNT if kind == "vmexec" else COUNT // 8
    command = [sys.executable, "-m", "tests.fuzz", "--kind", kind, "--count", str(count),
               "--memory", MEMORY, "--json"]  # fmt: skip
    done = children.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)[kind]
    assert found["bad"] == []
    assert done.returncode == 0
    assert found["mutants"] == count
    # If all mutants were rejected, the test would be useless.
    if count >= 1000 and (kind != "library" or toolchain.compiler()):
        assert LOADED[kind] <= set(found["outcomes"]) <= {*LOADED["vmexec"], "REFUSED"}
        assert found["outcomes"]["REFUSED"] < 0.95 * count


def test_every_builtin_and_kernel_is_called():
    called = {base.partition(" ")[0] for base in calls.bases()}
    assert called >= (own_builtins() - set(calls.WITHOUT)) | {PREFIX + name for name in kernels()}
    assert called.isdisjoint(calls.WITHOUT)


def fingerprint() -> int:
    return zlib.crc32(b"".join(mutant(i).data for i in range(50)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_mutant_depends_on_seed_and_index_only(kind):
    make = KINDS[kind].make
    first = [make(i, 0) for i in range(50)]
    assert [make(i, 0) for i in reversed(range(50))] == first[::-1]
    assert [make(i, 1) for i in range(50)] != first


def test_a_mutant_does_not_depend_on_the_process():
    script = "import tests.test_fuzz as t; print(t.fingerprint())"
    for hash_seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", script]
        done = children.run(command, env=env, capture_output=True, check=True)
        assert int(done.stdout) == fingerprint()


def test_bases_are_many_and_of_both_forms():
    assert len(CORPUS) >= 50
    for form in ("older", "debug"):
        assert sum(name.endswith(f" ({form})") for name in bases()) >= 10


def test_the_older_form_reads_back_equal():
    case = next(c for c in CORPUS.values() if c.savable and not c.executable.memory_scopes)
    data = older_form(case.executable)
    assert data != binary.dumps(case.executable)
    assert binary.loads(data) == case.executable


# Workers


def _job(index: int) -> str:
    if index == 3:
        os.kill(os.getpid(), signal.SIGSEGV)
    if index == 5:
        os._exit(42)
    if index == 6:
        while True:
            pass
    if index == 8:
        raise ValueError("not caught")
    return f"fine {index}"


@pytest.mark.parametrize("isolate", [False, True])
def test_the_end_of_a_worker_is_attributed_to_its_mutant(isolate):
    budget = Budget(cpu=0.5)
    results = list(run_batch(_job, range(10), budget, isolate=isolate))
    assert [r.index for r in results] == list(range(10))
    ends = {r.index: r.line for r in results if r.died}
    assert ends == {3: "signal 11", 5: "exit 42", 6: "hang", 8: "exit 99"}
    assert all(r.alone for r in results if r.died)
    assert [r.line for r in results if not r.died] == [f"fine {i}" for i in (0, 1, 2, 4, 7, 9)]


def test_failures_that_do_not_happen_alone_are_marked():
    """An earlier mutant broke the process: the later one, run alone, does nothing wrong."""
    broken = []

    def job(index: int) -> str:
        broken.append(index)
        if len(broken) > 2:
            os._exit(1)
        return "fine"

    results = list(run_batch(job, range(5), Budget()))
    assert [r.died for r in results] == [False, False, True, False, False]
    assert results[2] == Result(2, "exit 1", died=True, alone=False)


def test_a_silent_worker_is_killed():
    def job(index: int) -> str:
        time.sleep(60)
        return "late"

    (result,) = run_batch(job, range(1), Budget(silence=0.3), isolate=True)
    assert (result.line, result.died) == ("hang", True)


def test_the_summary_counts_and_keeps_bad_results():
    summary = Summary()
    for i, line in enumerate(["REFUSED FormatError", "RESULT", "STRAY_ERROR KeyError: 'x'"]):
        summary.add(Result(i, line))
    assert not summary.clean
    summary.add(Result(3, "signal 11", died=True))
    assert [r.index for r in summary.bad] == [2, 3]
    assert summary.to_dict()["outcomes"] == {
        "REFUSED": 1,
        "RESULT": 1,
        "STRAY_ERROR": 1,
        "signal": 1,
    }
    assert summary.to_dict()["errors"] == {
        "REFUSED FormatError": 1, "STRAY_ERROR KeyError": 1, "signal 11": 1
    }  # fmt: skip
    assert "signal 11 (not when it runs alone): mutants 3" in str(summary)


def test_unknown_kinds_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--kind", "json,pickle"])
    assert (
        "unknown kind 'pickle', expected some of vmexec, listing, json" in capsys.readouterr().err
    )


def test_bad_mutants_are_saved(tmp_path, monkeypatch, capsys):
    """A file, or a folder, is written for each mutant that found something."""
    bad = replace(KINDS["parameters"], run=lambda mutant, index: (Outcome.STRAY_ERROR, "found"))
    monkeypatch.setitem(KINDS, "parameters", bad)
    options = ["--kind", "parameters", "--count", "12", "--jobs", "1", "--save", str(tmp_path)]
    assert main(options) == 1
    assert "STRAY_ERROR found: mutants 0, 1, 2, 3, 4" in capsys.readouterr().out
    saved = sorted(tmp_path.iterdir())
    assert len(saved) == 12
    for path in saved:
        made = bad.make(int(path.name.split("-")[2]), 0)
        if made.folder:
            written = {p.name: p.read_bytes() if p.is_file() else None for p in path.iterdir()}
            assert written == dict(made.folder)
        else:
            assert path.read_bytes() == made.data
