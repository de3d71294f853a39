"""Build the Cython extensions; all other settings are in pyproject.toml.

``RELAXVM_DEBUG_BUILD=1`` builds them with bounds checks, line tracing, C debug information and
annotated HTML (under ``build/cython``) instead of optimization.

``RELAXVM_SANITIZE=address,undefined`` or ``=thread`` adds sanitizers of the C compiler, whose
runtime must then be preloaded: ``scripts/sanitize.py`` makes such a build and runs tests in it.

``RELAXVM_BUILD_JOBS`` is the number of extensions to translate and compile in parallel. The
default is the number of cores that this process may use.

``CFLAGS`` with ``-O0`` turns optimization off, for a quick build.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

DEBUG = os.environ.get("RELAXVM_DEBUG_BUILD", "0") not in ("", "0")

SANITIZE = os.environ.get("RELAXVM_SANITIZE", "")

MACROS = [
    ("NPY_NO_DEPRECATED_API", "NPY_1_26_API_VERSION"),
    ("NPY_TARGET_VERSION", "NPY_1_22_API_VERSION"),  # for array fields that _header_impl.h reads
    # Without memory for the arguments of a new object, what Cython 3.3.1 does by default releases
    # references that it does not hold.
    ("CYTHON_VECTORCALL_TPNEW", "0"),
]
DEBUG_MACROS = [("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1"), ("RELAXVM_DEBUG", "1")]

CHECKED = {"boundscheck": True, "linetrace": True}
# The verifier has checked every index that the core uses.
UNCHECKED = {
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "nonecheck": False,
    "cdivision": True,
}

# -g0: extensions inherit -g from the flags Python was built with; it makes them ten times larger.
FLAGS = {
    ("unix", False): ["-O3", "-g0", "-fvisibility=hidden"],
    ("unix", True): ["-O0", "-g"],
    ("msvc", False): ["/O2"],
    ("msvc", True): ["/Od", "/Zi"],
}

# -O1 and frame pointers, for stack traces that are fast and complete.
SANITIZER_FLAGS = [
    f"-fsanitize={SANITIZE}", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer",
    "-O1", "-g", "-fvisibility=hidden",
]  # fmt: skip

# The fields of a buffer are stored one by one. A vector load of several fields right after that
# cannot be forwarded from the stores and waits for all of them.
KERNEL_FLAGS = {"unix": ["-fno-tree-slp-vectorize"], "msvc": []}

# Code that ends alike would be shared by operations of the dispatch loop, at the cost of a jump.
# Fields of frames and runs would be put together in vector registers, which takes longer than two
# stores.
LOOP_FLAGS = {"unix": ["-fno-crossjumping", "-fno-tree-slp-vectorize"], "msvc": []}

# The C files of kernels/c/sets are compiled once for each set of instructions of the architecture,
# and the best one that the processor has is chosen when the package is imported. Rounding is what
# the source says: no contraction of products and sums.
SET_ROUNDING = ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
SET_FLAGS = ["-O3", "-g0", *SET_ROUNDING]
# Where variables are takes the compiler minutes to write down; stack traces need lines alone.
SET_SANITIZER_FLAGS = [*SANITIZER_FLAGS, "-g1", *SET_ROUNDING]
AVX2 = ["-mavx2", "-mfma", "-mf16c", "-mbmi2"]
AVX512 = ["-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mprefer-vector-width=512"]
SETS = {
    "x86_64": {"sse2": [], "avx2": AVX2, "avx512": [*AVX2, *AVX512]},
    "aarch64": {"neon": []},
}
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def sets() -> dict[str, list[str]]:
    """Return the sets of instructions that kernels are compiled for, with the compiler's flags.

    They need the vector extensions of GCC and Clang: with another compiler there are none, and all
    kernels run in numpy.
    """
    machine = platform.machine().lower()
    return SETS.get(MACHINES.get(machine, machine), {})


def build_jobs() -> int:
    """Return the number of extensions to build in parallel."""
    wanted = os.environ.get("RELAXVM_BUILD_JOBS", "")
    if wanted:
        if not wanted.isdecimal() or int(wanted) < 1:
            raise SystemExit(f"RELAXVM_BUILD_JOBS: expected a number from 1, got {wanted!r}")
        return int(wanted)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class BuildExt(build_ext):
    """Builds extensions in parallel, with the flags of the compiler that setuptools found."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if self.parallel is None:  # no --parallel on the command line
            self.parallel = build_jobs()

    def build_extensions(self) -> None:
        # Start with the largest, so that no core waits for it at the end.
        self.extensions.sort(key=lambda ext: -sum(os.path.getsize(p) for p in ext.sources))
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        kind = "msvc" if self.compiler.compiler_type == "msvc" else "unix"
        flags = SANITIZER_FLAGS if SANITIZE else FLAGS[kind, DEBUG]
        if "-O0" in os.environ.get("CFLAGS", "").split():
            flags = [flag for flag in flags if flag != "-O3"]
        ext.extra_compile_args = [*ext.extra_compile_args, *flags]
        if ext.name == "relaxvm.kernels._table":
            ext.extra_compile_args += KERNEL_FLAGS[kind]
            if kind == "unix":
                self.add_sets(ext)
        elif ext.name == "relaxvm._core" and not DEBUG:
            ext.extra_compile_args += LOOP_FLAGS[kind]
        if SANITIZE:
            ext.extra_link_args = [*ext.extra_link_args, f"-fsanitize={SANITIZE}"]
        super().build_extension(ext)

    def add_sets(self, ext: Extension) -> None:
        """Compile the kernels for each set of instructions, and link them to the extension."""
        folder = Path("relaxvm/kernels/c/sets")
        sources = sorted(path.as_posix() for path in folder.glob("*.c"))
        for name, flags in sets().items():
            ext.define_macros = [*ext.define_macros, (f"RVM_WITH_{name.upper()}", "1")]
            ext.extra_objects += self.compiler.compile(
                sources,
                output_dir=str(Path(self.build_temp) / "sets" / name),
                macros=[("RVM_SET", name)],
                include_dirs=ext.include_dirs,
                extra_postargs=[*(SET_SANITIZER_FLAGS if SANITIZE else SET_FLAGS), *flags,
                                "-fvisibility=hidden"],
                depends=ext.depends,
            )  # fmt: skip


def extensions() -> list[Extension]:
    """One extension per .pyx file, with the C files of the folder `c` next to it."""
    headers = [*Path("relaxvm").rglob("*.h"), *Path("include").rglob("*.h")]
    of_sets = [*Path("relaxvm").glob("*/c/sets/*.c")]  # compiled apart from the sources
    return [
        Extension(
            ".".join(path.with_suffix("").parts),
            [path.as_posix(), *sorted(p.as_posix() for p in (path.parent / "c").glob("*.c"))],
            include_dirs=[numpy.get_include(), "include", "relaxvm/core", "relaxvm"],
            depends=[file.as_posix() for file in headers + of_sets],
            define_macros=MACROS + DEBUG_MACROS * DEBUG,
        )
        for path in sorted(Path("relaxvm").rglob("*.pyx"))
    ]


# Where multiprocessing does not fork, its worker processes import this file.
if __name__ == "__main__":
    setup(
        packages=[*find_packages(include=["relaxvm", "relaxvm.*"]), "relaxvm.include"],
        package_dir={"relaxvm.include": "include"},
        package_data={
            "relaxvm": ["py.typed", "*.pyi", "core/*.pyi", "core/*.pxd", "executable/*.pyi",
                        "frontend/relay/std/*.rly", "kernels/*.pyi",
                        "script/_operators/*.pyi"],
            "relaxvm.include": ["relaxvm/*.h"],
        },
        ext_modules=cythonize(
            extensions(),
            build_dir="build/cython",
            nthreads=build_jobs() if build_jobs() > 1 else 0,
            annotate=DEBUG,
            force=DEBUG,
            compiler_directives={
                "language_level": 3,
                **(CHECKED if DEBUG else UNCHECKED),
            },
        ),
        cmdclass={"build_ext": BuildExt},
    )
