"""Build of the Cython extensions; everything else is in pyproject.toml.

``RELAXVM_DEBUG_BUILD=1`` builds them with bounds checks, line tracing, C debug information and
annotated HTML (under ``build/cython``) in place of optimization.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

DEBUG = os.environ.get("RELAXVM_DEBUG_BUILD", "0") not in ("", "0")

MACROS = [
    ("NPY_NO_DEPRECATED_API", "NPY_1_26_API_VERSION"),
    ("NPY_TARGET_VERSION", "NPY_1_22_API_VERSION"),  # fields of arrays that _header_impl.h looks at
]
DEBUG_MACROS = [("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1"), ("RELAXVM_DEBUG", "1")]

CHECKED = {"boundscheck": True, "linetrace": True}
# What the core indexes has been checked by the verifier.
UNCHECKED = {
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "nonecheck": False,
    "cdivision": True,
}

# -g0: extensions inherit -g from how Python was built, which makes them ten times larger.
FLAGS = {
    ("unix", False): ["-O3", "-g0", "-fvisibility=hidden"],
    ("unix", True): ["-O0", "-g"],
    ("msvc", False): ["/O2"],
    ("msvc", True): ["/Od", "/Zi"],
}


class BuildExt(build_ext):
    """Chooses the flags of the compiler that setuptools has found."""

    def build_extension(self, ext: Extension) -> None:
        kind = "msvc" if self.compiler.compiler_type == "msvc" else "unix"
        ext.extra_compile_args = [*ext.extra_compile_args, *FLAGS[kind, DEBUG]]
        super().build_extension(ext)


def extensions() -> list[Extension]:
    """One extension per .pyx of the package."""
    return [
        Extension(
            f"relaxvm.{path.stem}",
            [path.as_posix()],
            include_dirs=[numpy.get_include(), "include", "relaxvm"],
            depends=[
                p.as_posix() for p in (*Path("relaxvm").glob("*.h"), *Path("include").rglob("*.h"))
            ],
            define_macros=MACROS + DEBUG_MACROS * DEBUG,
        )
        for path in sorted(Path("relaxvm").glob("*.pyx"))
    ]


setup(
    packages=[*find_packages(include=["relaxvm", "relaxvm.*"]), "relaxvm.include"],
    package_dir={"relaxvm.include": "include"},
    package_data={
        "relaxvm": ["py.typed", "*.pyi", "*.pxd"],
        "relaxvm.include": ["relaxvm/*.h"],
    },
    ext_modules=cythonize(
        extensions(),
        build_dir="build/cython",
        annotate=DEBUG,
        force=DEBUG,
        compiler_directives={
            "language_level": 3,
            **(CHECKED if DEBUG else UNCHECKED),
        },
    ),
    cmdclass={"build_ext": BuildExt},
)
