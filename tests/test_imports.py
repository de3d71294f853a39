"""Modules import only modules of lower layers."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "relaxvm"

BASE = (
    "aliases collecting dependences errors hooks nested",
    "parameters",
    "disk_cache",
    "dtypes elementwise isa limits logs registry support values",
    "messages field_types",
    "adt",
    "executable",
)
"""Used by the runtime and by the compiler."""

RUNTIME = (
    "core._build core._isa core._vectorcall",
    "versions",
    "core",
    "pieces",
    "deep",
    "_core",
    "builtins kernels",
    "verify",
    "vm",
    "relay_isa",
    "native",
    "observe",
)
"""Runs executables; the lowest layer first."""

COMPILER = (
    "ir",
    "op",
    "frontend",
    "tir",
    "te",
    "script",
    "analysis",
    "dpl",
    "transform",
    "dpl.rewrite",
    "compiler",
)
"""Makes executables; the lowest layer first."""

INTERFACES = (
    "backend testing",
    "contrib",
    "serve",
    "contrib.batches",
    "contrib.dask contrib.ray",
    "cli",
    "__main__",
)
"""Use the runtime and the compiler."""

LAYERS: tuple[frozenset[str], ...] = tuple(
    frozenset(units.split()) for units in (*BASE, *RUNTIME, *COMPILER, *INTERFACES)
)
"""Units, that is modules and folders of relaxvm.  A unit may import those of the layers before its
own; modules of one unit may import each other, as long as there is no cycle."""

UPWARD = {
    # Methods of data that lead to what is done with it.
    ("executable", "verify"),
    ("executable", "native"),
    ("executable", "contrib"),
    # Values of data types are objects of the core.
    ("values", "_core"),
    # A file may be a shared library of TVM.
    ("native", "contrib"),
    # The set of instructions, for bug reports.
    ("versions", "kernels"),
    # TVM's module interface, which a VM and an executable offer.
    ("vm", "contrib"),
    # Both register their functions when they are imported, which looking one up brings about.
    ("registry", "builtins"),
    ("registry", "kernels"),
    # Both register their operators when they are imported, which looking one up brings about.
    ("ir", "op"),
    ("ir", "tir"),
    # A node prints itself, and the builder of programs offers tensor expressions.
    ("ir", "script"),
    ("ir", "te"),
    # The record of an operator finds its formula for loops.
    ("op", "te"),
    # A function offers what passes do with the functions of a module.
    ("ir", "transform"),
    # A script that is not well-formed is refused.
    ("script", "analysis"),
    # A class of a script may be a rewriter.
    ("script", "dpl.rewrite"),
    # The package of the patterns offers rewriting, which ends with passes.
    ("dpl", "dpl.rewrite"),
}
"""(importing, imported) where a function may import against the order.  This list only shrinks."""

THIRD_PARTY = {"numpy"}
OPTIONAL = {"dask", "ml_dtypes", "onnx", "onnxruntime", "pandas", "pyarrow", "pytest", "ray",
            "rich", "shtab", "torch", "tvm"}  # fmt: skip
"""Of third-party packages: imported by anyone, and inside of functions only."""
FOR_SERVERS = {"prometheus_client", "starlette", "uvicorn"}
"""What modules of relaxvm.serve import at their top; the package imports these modules lazily."""
FOR_TESTS = {"hypothesis", "pytest"}
"""What modules of relaxvm.testing import at their top, which nothing else imports."""


@dataclass(frozen=True)
class Import:
    """An import statement: of what (a module of relaxvm has a leading dot), and where."""

    source: str
    target: str
    line: int
    lazy: bool

    def __str__(self) -> str:
        return f"relaxvm/{self.source.replace('.', '/')}, line {self.line}: imports {self.target}"


def modules() -> dict[str, Path]:
    """Dotted name below relaxvm -> file.  The package itself, which imports lazily, is left out."""
    found = {}
    for path in sorted(p for suffix in ("py", "pyx") for p in PACKAGE.rglob(f"*.{suffix}")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            found[name] = path
    return found


MODULES = modules()


def resolve(source: str, level: int, module: str | None, names: list[str]) -> Iterator[str]:
    """Modules named by ``from <level dots><module> import <names>`` in module `source`."""
    is_package = MODULES[source].stem == "__init__"
    package = ["relaxvm", *source.split(".")][: None if is_package else -1]
    base = package[: len(package) - (level - 1)] + (module.split(".") if module else [])
    for name in names:
        inner = ".".join([*base[1:], name])
        yield "." + (inner if inner in MODULES else ".".join(base[1:]))


def imports_of_python(source: str, path: Path) -> Iterator[Import]:
    def visit(node: ast.AST, lazy: bool) -> Iterator[Import]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            children: list[ast.AST] = list(node.orelse)
        else:
            children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(source, alias.name.partition(".")[0], node.lineno, lazy)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module is not None
            yield Import(source, node.module.partition(".")[0], node.lineno, lazy)
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            for target in sorted(set(resolve(source, node.level, node.module, names))):
                yield Import(source, target, node.lineno, lazy)
        lazy = lazy or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in children:
            yield from visit(child, lazy)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")), False)


CYTHON_IMPORT = re.compile(
    r"^(?P<indent> *)(?:from +(?P<dots>\.*)(?P<module>[\w.]*) +c?import +(?P<names>\(|[\w, ]+)"
    r"|c?import +(?P<plain>\w+))"
)


def imports_of_cython(source: str, path: Path) -> Iterator[Import]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = CYTHON_IMPORT.match(line)
        if match is None:
            continue
        lazy = bool(match["indent"])
        if not match["dots"]:
            yield Import(source, match["plain"] or match["module"].partition(".")[0], number, lazy)
            continue
        names = [] if match["names"] == "(" else re.split(r"[, ]+", match["names"].strip())
        for target in set(resolve(source, len(match["dots"]), match["module"], names or [""])):
            yield Import(source, target, number, lazy)


def all_imports() -> list[Import]:
    found: list[Import] = []
    for name, path in MODULES.items():
        read = imports_of_python if path.suffix == ".py" else imports_of_cython
        found += read(name, path)
    return found


IMPORTS = all_imports()
INTERNAL = [i for i in IMPORTS if i.target.startswith(".")]


UNITS = frozenset().union(*LAYERS)


def unit(module: str) -> str:
    """The unit of a module: the longest part of its name that is one."""
    name = module.lstrip(".")
    while name and name not in UNITS:
        name = name.rpartition(".")[0]
    return name


def layer(module: str) -> int:
    (found,) = (i for i, units in enumerate(LAYERS) if unit(module) in units)
    return found


def goes_up(i: Import) -> bool:
    """Whether an import is against the order of the layers; ``from . import x`` of a name of the
    package itself is not."""
    inner = unit(i.target) in ("", unit(i.source))
    return not inner and layer(i.target) >= layer(i.source)


def is_in(module: str, layers: Iterable[str]) -> bool:
    return any(unit(module) in units.split() for units in layers)


def test_the_walk_sees_imports() -> None:
    edges = {(i.source, i.target) for i in INTERNAL}
    assert ("executable.exec_builder", ".executable.executable") in edges
    assert ("executable.executable", ".executable.formats.text") in edges
    assert ("_core", ".core._storage") in edges
    assert ("core._translate", ".isa") in edges


def test_every_unit_has_a_layer() -> None:
    without = [name for name in MODULES if not unit(name)]
    assert without == [], "add the module to a layer"


def test_imports_of_modules_go_down() -> None:
    wrong = [str(i) for i in INTERNAL if not i.lazy and goes_up(i)]
    assert not wrong, "\n".join(wrong)


def test_the_runtime_never_imports_the_compiler() -> None:
    """Not inside of functions, either: a program that runs executables needs no compiler."""
    wrong = [
        str(i)
        for i in INTERNAL
        if is_in(i.source, (*BASE, *RUNTIME)) and is_in(i.target, COMPILER)
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_inside_of_functions_go_down_or_are_known() -> None:
    upward = [i for i in INTERNAL if i.lazy and goes_up(i)]
    wrong = [str(i) for i in upward if (unit(i.source), unit(i.target)) not in UPWARD]
    assert not wrong, "\n".join(wrong)
    assert {(unit(i.source), unit(i.target)) for i in upward} == UPWARD, (
        "an exception is not needed"
    )


def outside_of_annotations(tree: ast.AST) -> Iterator[ast.Name]:
    """Where a module uses the name ``relaxvm`` otherwise than in an annotation."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.Name) and child.id == "relaxvm":
                yield child
            elif isinstance(child, ast.AST):
                yield from outside_of_annotations(child)


def test_modules_import_the_package_for_annotations_alone() -> None:
    """``import relaxvm`` makes types of any layer available to `typing.get_type_hints`, which
    `relaxvm.__getattr__` imports when they are asked for.  Nothing else may reach them that way."""
    importing = {i.source for i in IMPORTS if i.target == "relaxvm"}
    assert {i.source for i in IMPORTS if i.target == "relaxvm" and i.lazy} == set()
    wrong = []
    for name in importing:
        tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
        assert any(
            isinstance(node, ast.ImportFrom) and node.module == "__future__"
            and node.names[0].name == "annotations" for node in tree.body
        ), f"{name} evaluates its annotations when it is imported"  # fmt: skip
        wrong += [f"relaxvm/{name.replace('.', '/')}, line {node.lineno}: uses relaxvm outside of "
                  "an annotation" for node in outside_of_annotations(tree)]  # fmt: skip
    assert not wrong, "\n".join(wrong)
    assert importing, "the test sees no import of the package"


def test_no_cycles() -> None:
    graph: dict[str, set[str]] = {}
    for i in INTERNAL:
        if not i.lazy and i.target != f".{i.source}":  # a package's __init__ names its own contents
            graph.setdefault(i.source, set()).add(i.target.lstrip("."))
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_third_party_imports() -> None:
    allowed = THIRD_PARTY | {"cython", "cpython", "libc", "relaxvm"} | set(sys.stdlib_module_names)
    wrong = [
        str(i)
        for i in IMPORTS
        if not i.target.startswith(".")
        and i.target not in allowed
        and not (i.lazy and i.target in OPTIONAL)
        and not (i.source.startswith("testing.") and i.target in FOR_TESTS)
        and not (i.source.startswith("serve.") and i.target in FOR_SERVERS)
    ]
    assert not wrong, "\n".join(wrong)
