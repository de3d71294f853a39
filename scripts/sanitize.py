"""Build the extensions with sanitizers of the C compiler, and run tests in that build.

    python scripts/sanitize.py address            # memory errors and undefined behaviour
    python scripts/sanitize.py undefined          # undefined behaviour alone, in less time
    python scripts/sanitize.py thread             # data races
    python scripts/sanitize.py address -k matmul  # more arguments are for pytest

Files among the arguments, such as ``tests/test_vm.py``, replace the lists below.

The build is in ``build/sanitize-address`` and so on: a copy of the files that
git knows or does not ignore, with extensions of its own, which later builds update.  The extensions
of the checkout do not change.  This needs Linux and gcc: the runtime of the sanitizers is
preloaded, since Python itself is built without them.

A report of a sanitizer fails the run, whichever process it comes from.  Python, numpy and BLAS are
not instrumented, and reports come from relaxvm's own code.  The only suppression is of what glibc
does when a thread has ended, under a lock that ThreadSanitizer does not see.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]

NATIVE: Final = (
    "test_adt_programs", "test_adt_values", "test_arrays", "test_bfloat16", "test_binary",
    "test_block_convolutions", "test_builtins",
    "test_builtins_tvm", "test_chains_in_tiles",
    "test_compiled", "test_compiled_calls", "test_compiled_chains",
    "test_compiled_entries", "test_compiled_limits", "test_contrib_tvm", "test_core",
    "test_core_codegen", "test_data_types",
    "test_ffi_functions", "test_freeing", "test_fused", "test_fuzz", "test_hostile_kernels",
    "test_ir_json", "test_kernel_implementations", "test_kernel_methods", "test_kernel_sets",
    "test_kernel_threads",
    "test_kernels", "test_kernels_elementwise",
    "test_kernels_images", "test_kernels_movement", "test_kernels_nn", "test_kernels_products",
    "test_kernels_reductions", "test_limits", "test_linking", "test_loading",
    "test_loop_arrays", "test_memory", "test_memory_limits", "test_memory_of_others",
    "test_module", "test_native", "test_onnx_quantized", "test_oracle", "test_pack_linear",
    "test_placed_weights", "test_profile", "test_programs",
    "test_registers", "test_relay_attacks", "test_relay_isa", "test_relay_programs",
    "test_result_conversion", "test_robustness", "test_sections", "test_shape_program",
    "test_shared_tuples", "test_tail_calls", "test_tensor_cache", "test_text", "test_torch",
    "test_tvm_compiled", "test_tvm_files", "test_tvm_library", "test_tvm_models",
    "test_ufunc_loops", "test_values", "test_verify", "test_vm", "test_vm_tvm",
)  # fmt: skip
"""Tests of native code and of what hands it memory.  Not test_no_memory, which takes an hour here:
``scripts/sanitize.py address tests/test_no_memory.py`` runs it alone."""

THREADS: Final = (
    "test_adt_values", "test_cache_attacks", "test_compiled", "test_compiled_entries",
    "test_compiled_limits", "test_contrib_tvm", "test_dataflow", "test_fused",
    "test_kernel_threads", "test_loop_arrays", "test_memory_limits", "test_module", "test_native",
    "test_profile", "test_threads", "test_toolchain", "test_tvm_library", "test_ufunc_loops",
    "test_vm",
)  # fmt: skip
"""Tests that run several threads.  Not test_races, whose threads write elements on purpose."""


@dataclass(frozen=True)
class Sanitizer:
    """A kind of build.

    Attributes:
        flags: the value of ``-fsanitize``.
        libraries: what is preloaded, in order.
        tests: the test files without suffix.
        options: environment variables; ``{reports}`` is the beginning of the paths of reports, and
            ``{suppressions}`` the path of a file with `suppressions`.
        prefix: a command that the tests are run by.
        unfit: tests that fail for reasons of the sanitizer.
        suppressions: reports that are not relaxvm's, in the form of the sanitizer.
        canary: C code of a function ``canary`` that the sanitizer must report when threads call it.
    """

    flags: str
    libraries: tuple[str, ...]
    tests: tuple[str, ...]
    options: dict[str, str]
    canary: str
    prefix: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()
    suppressions: str = ""


SANITIZERS: Final = {
    "address": Sanitizer(
        "address,undefined",
        ("libasan.so", "libubsan.so"),
        NATIVE,
        {
            # Python does not free everything at its end; huge allocations fail as they do without.
            # Signals of a crash are left to faulthandler, whose tests rely on it.
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:handle_segv=0:"
                            "log_path={reports}",
            "UBSAN_OPTIONS": "print_stacktrace=1:log_path={reports}",
            "PYTHONMALLOC": "malloc",  # so that each object has its own memory
            # Sanitizers reserve address space, so workers have no limit of it.
            "RELAXVM_FUZZ_MEMORY": "0",
            "RELAXVM_FUZZ_COUNT": "2000",
            # Kernels and native code that tests compile report their mistakes, too.
            "RELAXVM_CFLAGS": "-fsanitize=address,undefined",
        },
        # A read beyond the end, and a copy of nothing from nowhere.
        canary="#include <stdlib.h>\n#include <string.h>\n"
               "static void copy(void *to, void *from, size_t n) { memcpy(to, from, n); }\n"
               "int canary(int n) { char *p = malloc(8); copy(p, n ? p : NULL, 0);"
               " int last = p[8 + n]; free(p); return last; }\n",
        unfit=(
            # They measure the memory of the process, which keeps freed memory to find uses of it.
            "test_memory.py::test_ten_thousand_random_shapes_leave_memory_flat",
            "test_robustness.py::test_errors_leave_memory_flat",
            "test_robustness.py::test_loading_and_dropping_leaves_memory_flat",
            "test_robustness.py::test_random_shapes_leave_memory_flat",
            "test_tvm_library.py::test_loading_again_and_again",
            # The dynamic linker keeps a library that is compiled with sanitizers.
            "test_tvm_library.py::test_a_copy_in_a_folder",
            "test_tvm_library.py::test_code_in_cycles_that_the_collector_finds",
            "test_tvm_library.py::test_code_stays_as_long_as_its_tensors",
            "test_tvm_library.py::test_code_stays_while_it_is_used",
            "test_tvm_library.py::test_code_that_runs_stays",
        ),
    ),
    "undefined": Sanitizer(
        "undefined",
        ("libubsan.so",),
        NATIVE,
        {
            "UBSAN_OPTIONS": "print_stacktrace=1:log_path={reports}",
            "RELAXVM_FUZZ_COUNT": "2000",
            "RELAXVM_CFLAGS": "-fsanitize=undefined",
        },
        # A copy of nothing from nowhere, and a sum beyond the range.
        canary="#include <string.h>\n"
               "static void copy(void *to, void *from, size_t n) { memcpy(to, from, n); }\n"
               "int canary(int n) { char c = 0; copy(&c, n ? &c : NULL, 0);"
               " return n + c + 2147483647 + 1 - !n; }\n",
    ),
    "thread": Sanitizer(
        "thread",
        ("libtsan.so",),
        THREADS,
        {
            "TSAN_OPTIONS": "log_path={reports}:exitcode=0:suppressions={suppressions}:"
                            "die_after_fork=0:report_signal_unsafe=0:"
                            "allocator_may_return_null=1",
            # A process that hangs is found before half an hour is over.
            "RELAXVM_TEST_DEADLINE": "600",
        },
        # Two threads that write a variable: they wait for each other without being ordered by it.
        canary="static int here, sum;\n"
               "int canary(int n) { __atomic_add_fetch(&here, 1, __ATOMIC_RELAXED);\n"
               "  while (__atomic_load_n(&here, __ATOMIC_RELAXED) < 2);\n"
               "  for (int i = 0; i < 1000; i++) sum += n;\n"
               "  return sum; }\n",
        unfit=(
            # They write compilers in shell; bash and dash crash with the runtime preloaded.
            "test_cache_attacks.py::test_interrupted_compilations",
            "test_cache_attacks.py::test_many_processes_of_which_some_are_killed",
            "test_cache_attacks.py::test_mutated_entries_are_made_again",
            "test_cache_attacks.py::test_the_clock_may_be_wrong",
            "test_toolchain.py::test_a_cache_that_cannot_be_written_to",
            "test_toolchain.py::test_a_compiler_that_crashes",
            "test_toolchain.py::test_a_compiler_that_does_not_work",
            "test_toolchain.py::test_a_compiler_that_hangs",
            "test_toolchain.py::test_a_long_error_is_cut",
            "test_toolchain.py::test_ctrl_c",
            "test_toolchain.py::test_files_of_killed_processes_are_removed",
            "test_toolchain.py::test_the_compiler_is_that_of_cc",
            "test_toolchain.py::test_the_key_depends_on_all_inputs",
            "test_toolchain.py::test_the_key_of_a_piece_depends_on_all_inputs",
            # The runtime itself writes a file in every process, beyond the limit on its size.
            "test_cache_attacks.py::test_a_full_disk",
            # It delivers signals when a thread makes a system call that blocks.  Loops that only
            # look whether there was a signal never see one.
            "test_compiled.py::TestEndlessLoops::test_a_signal",
            "test_compiled_limits.py::test_ctrl_c",
            "test_native.py::test_ctrl_c",
            # The runtime writes to memory of its own for all that is allocated, here 14 GB that are
            # never used.
            "test_dataflow.py::test_a_run_is_cancelled",
            "test_dataflow.py::test_ctrl_c_ends_a_batch",
            # It measures the memory of the process, in which the runtime has its own.
            "test_tvm_library.py::test_loading_again_and_again",
            # They measure times, and kernels take many times longer here.
            "test_kernel_threads.py::test_long_kernels_end_soon",
        ),
        suppressions="race:_dl_deallocate_tls\n",
        # Its runtime needs memory at fixed addresses, which randomization may give to others.
        prefix=("setarch", platform.machine(), "-R"),
    ),
}  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Run the command line; return 0 if all tests passed without a report."""
    if not argv or argv[0] not in SANITIZERS:
        print(__doc__, file=sys.stderr)
        return 2
    if sys.platform != "linux":
        print(f"sanitize: expected Linux, this is {sys.platform}", file=sys.stderr)
        return 2
    name, arguments = argv[0], list(argv[1:])
    sanitizer = SANITIZERS[name]
    tree = ROOT / "build" / f"sanitize-{name}"
    copy_checkout(tree)
    build(tree, sanitizer)
    reports = tree / "build" / "reports"
    if not notices_canary(tree, sanitizer, reports):
        print(f"sanitize {name}: a wrong function was not reported: it does not work here")
        return 1
    unfit = [f"--deselect=tests/{test}" for test in sanitizer.unfit]
    # Of undefined behaviour there may be a report on the standard error stream alone.
    shown = ["-q", "--capture=sys"]
    command = [sys.executable, "-m", "pytest", *shown, *_BOUND, *unfit, *arguments]
    if not any(argument.startswith("tests/") for argument in arguments):
        command += [f"tests/{test}.py" for test in sanitizer.tests]
    status, found = run(command, tree, sanitizer, reports)
    for path in found:
        print(f"\n== {path.name}\n{path.read_text(errors='replace')}")
    print(f"sanitize {name}: {len(found)} reports, tests ended with status {status}")
    return 1 if found or status else 0


def copy_checkout(tree: Path) -> None:
    """Bring a copy of the checkout up to date; files keep their times, for incremental builds."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    wanted = {Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file()}
    for path in wanted:
        source, target = ROOT / path, tree / path
        if not target.exists() or target.stat().st_mtime_ns != source.stat().st_mtime_ns:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    for folder in ("relaxvm", "tests", "include"):
        for path in sorted((tree / folder).rglob("*")):
            inside = path.relative_to(tree)
            made = path.suffix in (".so", ".pyc") or path.is_dir()
            if not made and inside not in wanted:
                path.unlink()


def build(tree: Path, sanitizer: Sanitizer) -> None:
    environment = {**os.environ, "RELAXVM_SANITIZE": sanitizer.flags, "PYTHONPATH": str(tree)}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(command, cwd=tree, check=True, env=environment)


def run(
    command: Sequence[str],
    tree: Path,
    sanitizer: Sanitizer,
    reports: Path,
    stderr: int | None = None,
) -> tuple[int, list[Path]]:
    """Run a command with the sanitizer's runtime; return its exit status and the reports."""
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    paths = {"reports": reports / "report", "suppressions": reports.with_name("suppressions")}
    paths["suppressions"].write_text(sanitizer.suppressions)
    environment = {
        **os.environ,
        **{key: value.format(**paths) for key, value in sanitizer.options.items()},
        "LD_PRELOAD": " ".join(map(runtime, sanitizer.libraries)),
        "PYTHONPATH": str(tree),
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [*sanitizer.prefix, *command]
    done = subprocess.run(command, cwd=tree, check=False, env=environment, stderr=stderr)
    return done.returncode, sorted(filter(is_report, reports.iterdir()))


def is_report(path: Path) -> bool:
    """Return whether a file of a sanitizer says more than that an allocation has failed: tests ask
    for too much memory on purpose."""
    lines = path.read_text(errors="replace").splitlines()
    return any(line and _FAILED_ALLOCATION.search(line) is None for line in lines)


_BOUND: Final = ("-o", "faulthandler_timeout=1200", "-o", "faulthandler_exit_on_timeout=true")
"""A test that hangs ends the run, and shows where all threads are."""

_FAILED_ALLOCATION: Final = re.compile(r"WARNING: \w+Sanitizer failed to allocate")


def notices_canary(tree: Path, sanitizer: Sanitizer, reports: Path) -> bool:
    """Check that a function that is wrong is reported, so that no reports mean that all is well."""
    library = tree / "build" / "canary.so"
    source = library.with_suffix(".c")
    source.write_text(sanitizer.canary)
    flags = [f"-fsanitize={sanitizer.flags}", "-shared", "-fPIC", "-g"]
    subprocess.run([*compiler(), *flags, str(source), "-o", str(library)], check=True)
    call = (
        f"import ctypes, threading; f = ctypes.CDLL({str(library)!r}).canary; "
        "threads = [threading.Thread(target=f, args=(0,)) for _ in range(2)]; "
        "[t.start() for t in threads]; [t.join() for t in threads]"
    )
    command = [sys.executable, "-c", call]
    _, found = run(command, tree, sanitizer, reports, subprocess.DEVNULL)
    return bool(found)


def compiler() -> list[str]:
    return os.environ.get("CC", "gcc").split()


def runtime(library: str) -> str:
    """Return the path of a runtime of the C compiler."""
    command = [*compiler(), f"-print-file-name={library}"]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(found):
        raise SystemExit(f"sanitize: {command[-2]} has no {library}")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
