"""Calls by keyword and by position mean what they mean in TVM.

The signatures of all public callables that TVM and relaxvm both have are compared: names, order,
which parameters are required, and defaults.  `REASONS` says where relaxvm's are other ones, and
why; a difference that it does not name fails, and so does a row that nothing needs any more.
"""

from __future__ import annotations

import fnmatch
import json
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

from . import children

Signature = list[tuple[str, str, Any]]

_SPAN = "places in the source are set by the parser, not by hand"
_MADE = "programs do not make it by hand; TVM prints its fields, or hides the parameters"
_MEMORY = "a buffer is compact or has strides; its memory is its own or that of a parameter"
_TUNED = "schedules of TVM's tuner; relaxvm's kernels are tuned when it is built"
_GPU = "only a GPU needs it"
_LISTS = "it is Python's own tuple or list"
_PRINTED = (
    "ir_prefix module_alias int_dtype float_dtype verbose_expr indent_spaces print_line_numbers "
    "num_context_lines syntax_sugar show_object_address path_to_underline path_to_annotate "
    "obj_to_underline obj_to_annotate"
)
_REDUCE = "several values are reduced by `te.comm_reducer` over a tuple"

REASONS: Final = [
    ("*", "no span", _SPAN),
    ("*.script", "no name", "the text always reads back; its form has no options"),
    *(
        ("*.script", f"no {name}", "the text always reads back; its form has no options")
        for name in _PRINTED.split()
    ),
    ("*.script", "show_meta=True, not False", "the text reads back, constants and all"),
    ("tvm.build", "no pipeline", "TVM's lowering of loops; relaxvm writes C"),
    ("*.List.index", "stop=*", _LISTS),
    ("tvm_ffi.List", "no input_list", _LISTS),
    ("tvm_ffi.List.*", "no value*", _LISTS),
    ("*.Expr", "no ty", _MADE),
    ("*.BaseFunc", "no attrs", _MADE),
    ("*.BaseFunc", "no ty", _MADE),
    ("*.Binding", "no var", _MADE),
    ("*.Constant", "span is*", _MADE),
    ("*.Constant", "data is required", _MADE),
    ("*.SeqExpr", "* is required", _MADE),
    ("*.EnvFunc", "no func", "the function is found by its name"),
    ("tvm.ir.FuncType", "no arg_types", "one class stands for TVM's two: relax.FuncType's names"),
    ("tvm.ir.FuncType", "no ret_type", "one class stands for TVM's two: relax.FuncType's names"),
    ("tvm.ir.GenericConst", "no value", "one class stands for it and relax.Constant, whose name "
     "for the array it has"),
    ("*.Op", "* is required", "operators are made by `register_op_attr`, and found by `Op.get`"),
    ("*.*Pass", "no pass_info", "passes are made by decorators"),
    ("*.BlockBuilder.end_scope", "result is required", "a body has a value"),
    ("*.Span", "no source_name", "places are of files of Python, and may be of one character"),
    ("*.Span", "end_line is*", "places are of files of Python, and may be of one character"),
    ("*.Span", "column is*", "places are of files of Python, and may be of one character"),
    ("*.VDevice", "target='llvm', not None", "programs run on the CPU"),
    ("*.VMExecutable", "no mod", "executables are made by `build` and `ExecBuilder`, or loaded"),
    ("*.Executable", "no mod", "executables are made by `build` and `ExecBuilder`, or loaded"),
    *(
        (f"*.{method}", f"no {name}", "no compiler of the user's is called; "
         "`relaxvm.Toolchain` chooses one")
        for method in ("export_library", "jit")
        for name in ("fcompile", "addons", "force_recompile")
        if (method, name) != ("export_library", "force_recompile")
    ),
    ("*.DispatchSortScan", "no index_bits", _GPU),
    ("*.from_onnx", "dtype_dict=None, not 'float32'", "the model says the data types"),
    ("*.attention_bias", "bias is required", "without a bias it is `attention`"),
    ("tvm.runtime.Module.time_evaluator", "no *", "timers of TVM's kernels for GPUs have them"),
    ("tvm.runtime.Module.time_evaluator", "* is*", "as `VirtualMachine.time_evaluator`"),
    ("tvm.script.*.macro", "no [*]args", "the decorator is used with or without parentheses"),
    ("tvm.script.tirx.*", "no layout", _MEMORY),
    ("tvm.tirx.decl_buffer", "no layout", _MEMORY),
    ("tvm.tirx.BufferType", "no layout", _MEMORY),
    ("tvm.tirx.BufferType", "no allocated_addr", _MEMORY),
    ("tvm.tirx.BufferType", "* is*", "the order of `decl_buffer`; TVM prints its fields"),
    ("tvm.tirx.Buffer", "no name_hint", "made by `decl_buffer`"),
    ("tvm.tirx.Buffer", "* is required", "made by `decl_buffer`"),
    ("tvm.script.tirx.*", "no allocated_addr", _MEMORY),
    ("tvm.script.tirx.alloc_buffer", "annotations is*", _MEMORY),
    ("tvm.script.tirx.attr", "* is required", "a dict of attributes is several `T.attr`"),
    ("tvm.script.tirx.bind", "no type_annotation", "the target of the assignment has both"),
    ("tvm.script.tirx.bind", "no var", "the target of the assignment has both"),
    ("tvm.script.tirx.handle", "no dtype", "a handle is what `T.match_buffer` gives a type"),
    ("tvm.script.tirx.handle", "no storage_scope", "there is one kind of memory"),
    ("tvm.script.tirx.prim_func", "no persistent", _GPU),
    ("tvm.script.tirx.sblock", "no exec_scope", _GPU),
    ("tvm.script.tirx.serial", "no unroll", "the C compiler unrolls; `T.unroll` asks for it"),
    ("tvm.script.tirx.var", "* is*", 'the documents write ``n = T.var("n")``'),
    ("tvm.support.cc.create_shared", "no ccache_env", "ccache works as a compiler: `cc=`"),
    ("tvm.tirx.convert", "no expr", "one function with `tvm.runtime.convert`"),
    ("tvm.target.TargetKind", "no default_*", _MADE),
    ("tvm.te.ComputeOp", "no *", _MADE),
    ("tvm.te.ExternOp", "no *", _MADE),
    ("tvm.te.PlaceholderOp", "no *", _MADE),
    ("*.Reduce", "*", "reductions are made by `te.comm_reducer`"),
    ("tvm.te.Tensor", "no *", "tensors are made by `te.compute` and `te.placeholder`"),
    ("tvm.t*.const", "dtype=None, not 'int32'", "a float is float32, not an integer"),
    ("tvm.te.create_prim_func", "no index_dtype_override", "indices have the data type of the "
     "dimensions"),
    ("tvm.t*.max", "no [*]args", _REDUCE),
    ("tvm.t*.min", "no [*]args", _REDUCE),
    ("tvm.t*.sum", "no [*]args", _REDUCE),
    ("tvm.te.reduce_axis", "no thread_tag", _GPU),
    ("tvm.topi.nn.*", "no auto_scheduler_rewritten_layout", _TUNED),
    ("tvm.topi.nn.*", "no meta_schedule_origin*_shape", _TUNED),
]
"""Pattern of a name, pattern of a difference, why relaxvm differs."""

_POSITIONAL = ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD")
_NAMED = ("POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY")


def differences(theirs: Signature, ours: Signature) -> Iterator[str]:
    """Yield what a call that TVM takes could meet here."""
    kinds = [kind for _, kind, _ in theirs]
    if "VAR_KEYWORD" in kinds and "VAR_POSITIONAL" in kinds:
        return  # a wrapper, whose parameters are not known
    theirs, ours = ([p for p in each if p[0] not in ("self", "cls")] for each in (theirs, ours))
    here = {name: default for name, _, default in ours}
    our_kinds = [kind for _, kind, _ in ours]
    our_order = [name for name, kind, _ in ours if kind in _POSITIONAL]
    lost = []
    if "VAR_KEYWORD" not in our_kinds:
        lost = [n for n, kind, _ in theirs if kind in _NAMED and n not in here]
        yield from (f"no {name}" for name in lost)
    if "VAR_POSITIONAL" not in our_kinds:
        if "VAR_POSITIONAL" in kinds:
            yield "no *args"
        order = [name for name, kind, _ in theirs if kind in _POSITIONAL]
        for place, name in enumerate(order):
            if name not in lost and our_order[place : place + 1] != [name]:
                yield f"{name} is not parameter {place + 1}"
    there = {name: default for name, _, default in theirs}
    for name, kind, given in ours:
        needed = kind in (*_NAMED, "POSITIONAL_ONLY") and not given
        if needed and (there.get(name) or (name not in there and not lost)):
            yield f"{name} is required"
    for name, given in there.items():
        plain = given and given[0] and here.get(name) and here[name][0]
        if plain and _plain(given[1]) != _plain(here[name][1]):
            yield f"{name}={here[name][1]!r}, not {given[1]!r}"


def _plain(value: Any) -> Any:
    """Nothing is nothing, and one number for all axes is that number for each."""
    if isinstance(value, list) and value and all(each == value[0] for each in value):
        value = value[0]
    return None if value in (None, "", []) else (isinstance(value, bool), value)


def signatures(whose: str) -> dict[str, Signature | None]:
    script = Path(__file__).with_name("signatures.py")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(["", *sys.path])[1:]}
    done = children.run(
        [sys.executable, str(script), whose], capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Signature | None] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.skipif(find_spec("tvm") is None, reason="TVM is not installed")
def test_signatures_are_those_of_tvm() -> None:
    theirs, ours = signatures("tvm"), signatures("relaxvm")
    both = [name for name in theirs if name in ours]
    assert len(both) > 3000
    needed: set[tuple[str, str, str]] = set()
    unexplained = []
    for name in both:
        there, here = theirs[name], ours[name]
        if there is None or here is None:
            continue
        for difference in differences(there, here):
            row = next(
                (r for r in REASONS
                 if fnmatch.fnmatchcase(name, r[0]) and fnmatch.fnmatchcase(difference, r[1])),
                None,
            )  # fmt: skip
            if row is None:
                unexplained.append(f"{name}: {difference}")
            else:
                needed.add(row)
    assert not unexplained, "\n".join(unexplained)
    assert [row for row in REASONS if row not in needed] == []


@pytest.mark.parametrize(
    ("theirs", "ours", "found"),
    [
        ("lambda a, b=1: 0", "lambda a, b=1, *, c=2: 0", []),
        ("lambda a, b=1: 0", "lambda x, b=1: 0", ["no a"]),
        ("lambda a, b=1: 0", "lambda b=1, a=2: 0",
         ["a is not parameter 1", "b is not parameter 2"]),
        ("lambda a, b=1: 0", "lambda a, b: 0", ["b is required"]),
        ("lambda a, b=1: 0", "lambda a, b=1, *, c: 0", ["c is required"]),
        ("lambda a, b=1: 0", "lambda a, b=2: 0", ["b=2, not 1"]),
        ("lambda a=[1, 1]: 0", "lambda a=1: 0", []),
        ("lambda a=None: 0", "lambda a=(): 0", []),
        ("lambda a=None: 0", "lambda a=False: 0", ["a=False, not None"]),
        ("lambda a, *args: 0", "lambda a: 0", ["no *args"]),
        ("lambda *args, **kwargs: 0", "lambda a: 0", []),
        ("lambda a: 0", "lambda **kwargs: 0", ["a is not parameter 1"]),
    ],
)  # fmt: skip
def test_what_counts_as_a_difference(theirs: str, ours: str, found: list[str]) -> None:
    from .signatures import signature

    there, here = (signature(eval(each)) for each in (theirs, ours))
    assert there is not None
    assert here is not None
    assert list(differences(there, here)) == found
