"""relaxvm: a register-based virtual machine for tensor programs, and a compiler for it.

Write a program as script (`relaxvm.script`) or with `BlockBuilder` and compile it with `build`, or
build an executable by hand with `ExecBuilder`, or read one with `load`; run it with
`VirtualMachine`.
Every name below is imported on first use, so that ``import relaxvm`` is fast.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from .aliases import install

if TYPE_CHECKING:
    from . import (
        adt,
        analysis,
        contrib,
        errors,
        ir,
        isa,
        op,
        registry,
        script,
        te,
        testing,
        tir,
        transform,
        values,
    )
    from ._core import Adt, Closure, Ref, Storage
    from .compiler import vm_build
    from .compiler.build import build
    from .compiler.decompile import decompile
    from .compiler.pictures import graph, memory_plan
    from .contrib.tvm.drop_in import from_tvm
    from .core._threads import get_num_threads, set_num_threads
    from .deep import equal, show
    from .executable import FunctionInfo, VMExecutable
    from .executable.combining import link
    from .executable.debug_info import DebugInfo, Span
    from .executable.exec_builder import ExecBuilder
    from .executable.loading import load, load_library, loads, parse_text
    from .ir import (
        AnyType,
        BaseFunc,
        Binding,
        BindingBlock,
        BlockBuilder,
        Call,
        Constant,
        DataflowBlock,
        DataflowVar,
        DataTypeImm,
        DummyGlobalInfo,
        Expr,
        ExprMutator,
        ExprVisitor,
        ExternFunc,
        FloatImm,
        Function,
        FuncType,
        GlobalVar,
        If,
        IntImm,
        IRModule,
        MatchCast,
        ObjectType,
        PrimType,
        PrimValue,
        SeqExpr,
        ShapeExpr,
        ShapeType,
        StringImm,
        TensorType,
        Tuple,
        TupleGetItem,
        TupleType,
        Type,
        Var,
        VarBinding,
        VDevice,
        const,
        convert_to_expr,
        extern,
        get_shape_of,
        prim_value,
    )
    from .isa import FuncKind
    from .limits import Limits
    from .native.functions import NativeFunction, load_kernels, native_function
    from .observe.capture import capture
    from .observe.compare import compare
    from .observe.debugger import debug
    from .observe.profiler import profile
    from .observe.schedule import schedule
    from .observe.trace import trace
    from .op.base import call_dps_packed, call_pure_packed, call_tir, call_tir_inplace
    from .registry import Registry, get_func, list_funcs, register_func
    from .transform import pipelines as pipeline
    from .transform.pipelines import get_pipeline, register_pipeline
    from .values import Device, Shape, cpu, device
    from .verify import Report, verify
    from .versions import get_include, show_versions
    from .vm import VirtualMachine, VMInstrumentReturnKind
    from .vm.program_cache import compile  # noqa: A004  (TVM's name)
    from .vm.saved_runs.loading import load_run

__version__ = "0.1.0"

__all__ = [
    "Adt",
    "AnyType",
    "BaseFunc",
    "Binding",
    "BindingBlock",
    "BlockBuilder",
    "Call",
    "Closure",
    "Constant",
    "DataTypeImm",
    "DataflowBlock",
    "DataflowVar",
    "DebugInfo",
    "Device",
    "DummyGlobalInfo",
    "ExecBuilder",
    "Expr",
    "ExprMutator",
    "ExprVisitor",
    "ExternFunc",
    "FloatImm",
    "FuncKind",
    "FuncType",
    "Function",
    "FunctionInfo",
    "GlobalVar",
    "IRModule",
    "If",
    "IntImm",
    "Limits",
    "MatchCast",
    "NativeFunction",
    "ObjectType",
    "PrimType",
    "PrimValue",
    "Ref",
    "Registry",
    "Report",
    "SeqExpr",
    "Shape",
    "ShapeExpr",
    "ShapeType",
    "Span",
    "Storage",
    "StringImm",
    "TensorType",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "Type",
    "VDevice",
    "VMExecutable",
    "VMInstrumentReturnKind",
    "Var",
    "VarBinding",
    "VirtualMachine",
    "__version__",
    "adt",
    "analysis",
    "build",
    "call_dps_packed",
    "call_pure_packed",
    "call_tir",
    "call_tir_inplace",
    "capture",
    "compare",
    "compile",
    "const",
    "contrib",
    "convert_to_expr",
    "cpu",
    "debug",
    "decompile",
    "device",
    "equal",
    "errors",
    "extern",
    "from_tvm",
    "get_func",
    "get_include",
    "get_num_threads",
    "get_pipeline",
    "get_shape_of",
    "graph",
    "ir",
    "isa",
    "link",
    "list_funcs",
    "load",
    "load_kernels",
    "load_library",
    "load_run",
    "loads",
    "memory_plan",
    "native_function",
    "op",
    "parse_text",
    "pipeline",
    "prim_value",
    "profile",
    "register_func",
    "register_pipeline",
    "registry",
    "schedule",
    "script",
    "set_num_threads",
    "show",
    "show_versions",
    "te",
    "testing",
    "tir",
    "trace",
    "transform",
    "values",
    "verify",
    "vm_build",
]

_HOME: Final = {
    "Adt": "_core",
    "AnyType": "ir",
    "BaseFunc": "ir",
    "Binding": "ir",
    "BindingBlock": "ir",
    "BlockBuilder": "ir",
    "Call": "ir",
    "Closure": "_core",
    "Constant": "ir",
    "DataTypeImm": "ir",
    "DataflowBlock": "ir",
    "DataflowVar": "ir",
    "DebugInfo": "executable.debug_info",
    "Device": "values",
    "DummyGlobalInfo": "ir",
    "ExecBuilder": "executable.exec_builder",
    "Expr": "ir",
    "ExprMutator": "ir",
    "ExprVisitor": "ir",
    "ExternFunc": "ir",
    "FloatImm": "ir",
    "FuncKind": "isa",
    "FuncType": "ir",
    "Function": "ir",
    "FunctionInfo": "executable",
    "GlobalVar": "ir",
    "IRModule": "ir",
    "If": "ir",
    "IntImm": "ir",
    "Limits": "limits",
    "MatchCast": "ir",
    "NativeFunction": "native.functions",
    "ObjectType": "ir",
    "PrimType": "ir",
    "PrimValue": "ir",
    "Ref": "_core",
    "Registry": "registry",
    "Report": "verify",
    "SeqExpr": "ir",
    "Shape": "values",
    "ShapeExpr": "ir",
    "ShapeType": "ir",
    "Span": "executable.debug_info",
    "Storage": "_core",
    "StringImm": "ir",
    "TensorType": "ir",
    "Tuple": "ir",
    "TupleGetItem": "ir",
    "TupleType": "ir",
    "Type": "ir",
    "VDevice": "ir",
    "VMExecutable": "executable",
    "VMInstrumentReturnKind": "vm",
    "Var": "ir",
    "VarBinding": "ir",
    "VirtualMachine": "vm",
    "build": "compiler.build",
    "call_dps_packed": "op.base",
    "call_pure_packed": "op.base",
    "call_tir": "op.base",
    "call_tir_inplace": "op.base",
    "capture": "observe.capture",
    "compare": "observe.compare",
    "compile": "vm.program_cache",
    "const": "ir",
    "convert_to_expr": "ir",
    "cpu": "values",
    "debug": "observe.debugger",
    "decompile": "compiler.decompile",
    "device": "values",
    "equal": "deep",
    "extern": "ir",
    "from_tvm": "contrib.tvm",
    "get_func": "registry",
    "get_include": "versions",
    "get_num_threads": "core._threads",
    "get_pipeline": "transform.pipelines",
    "get_shape_of": "ir",
    "graph": "compiler.pictures",
    "list_funcs": "registry",
    "link": "executable.combining",
    "load": "executable.loading",
    "load_kernels": "native.functions",
    "load_library": "executable.loading",
    "load_run": "vm.saved_runs.loading",
    "loads": "executable.loading",
    "memory_plan": "compiler.pictures",
    "native_function": "native.functions",
    "parse_text": "executable.loading",
    "prim_value": "ir",
    "profile": "observe.profiler",
    "register_func": "registry",
    "register_pipeline": "transform.pipelines",
    "schedule": "observe.schedule",
    "set_num_threads": "core._threads",
    "show": "deep",
    "show_versions": "versions",
    "trace": "observe.trace",
    "verify": "verify",
}
"""Public name -> the module that defines it."""

_SUBMODULES: Final = frozenset(
    {
        "adt",
        "analysis",
        "contrib",
        "errors",
        "ir",
        "isa",
        "op",
        "pipeline",
        "registry",
        "script",
        "te",
        "testing",
        "tir",
        "transform",
        "values",
        "vm_build",
    }
)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    module = sys.modules[__name__]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=module)


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


class _Package(ModuleType):
    """Importing a submodule binds its name in the package.  If there is a public function of the
    same name (`verify`), the name stays bound to the function."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
install()
