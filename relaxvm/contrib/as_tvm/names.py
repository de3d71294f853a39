"""The one table of TVM's names: which modules of relaxvm stand behind which module of TVM.

The order of `MODULES` says where a name is looked up first.  An entry is the name of a module, for
all of its public names, or ``module:name`` for one name of it, or ``module:theirs=ours`` if it has
another name there.  Modules of TVM that are not in the table, such as ``tvm.relax.op.nn``, are
found as attributes of the ones that are.
"""

from __future__ import annotations

import fnmatch
from typing import Final

from ...script.earlier import today

__all__ = [
    "DECLINED", "FUNCTIONS", "MODULES", "RENAMED", "ROOTS", "VERSION", "reason_of", "why_missing",
]  # fmt: skip

VERSION: Final = "0.27.0"
"""The version of TVM whose names these are."""

ROOTS: Final = ("tvm", "tvm_ffi")

_HERE: Final = "relaxvm.contrib.as_tvm"
_RUNTIME: Final = f"{_HERE}.runtime"
_TARGET: Final = f"{_HERE}.target"
_TESTING: Final = f"{_HERE}.testing"
_SUPPORT: Final = f"{_HERE}.support"
_FFI: Final = f"{_HERE}.ffi"
_SCRIPT: Final = f"{_HERE}.script"


def _only(module: str, names: str) -> tuple[str, ...]:
    return tuple(f"{module}:{name}" for name in names.split())


_DETECTION: Final = (
    "all_class_non_max_suppression get_valid_counts multibox_transform_loc non_max_suppression "
    "roi_align roi_pool"
)

MODULES: Final[dict[str, tuple[str, ...]]] = {
    "tvm": (
        f"{_HERE}.names:__version__=VERSION",
        *_only(_RUNTIME, "DataType cpu cuda device device_from_target get_global_func metal"),
        *_only(_RUNTIME, "opencl register_global_func rocm vulkan"),
        f"{_RUNTIME}:register_func=register_global_func",  # an earlier name
        *_only(_TARGET, "build compile"),
        "relaxvm.ir.module:IRModule",
        "relaxvm.ir.node:Object=Node",
    ),
    "tvm.arith": ("relaxvm.ir.arith",),
    "tvm.error": ("relaxvm.errors",),
    "tvm.ir": (
        f"{_FFI}:Array",
        f"{_FFI}:Map",
        f"{_HERE}.ir",
        "relaxvm.ir",
    ),
    "tvm.ir.attrs": ("relaxvm.ir.node",),
    "tvm.ir.base": (f"{_HERE}.ir", "relaxvm.ir"),
    "tvm.ir.expr": (f"{_HERE}.ir", "relaxvm.ir"),
    "tvm.ir.function": (f"{_HERE}.ir", "relaxvm.ir"),
    "tvm.ir.global_info": ("relaxvm.ir.module",),
    "tvm.ir.instrument": ("relaxvm.transform.instruments", "relaxvm.transform"),
    "tvm.ir.module": ("relaxvm.ir.module",),
    "tvm.ir.op": (f"{_HERE}.ir", "relaxvm.ir.op"),
    "tvm.ir.prim": (f"{_HERE}.ir", "relaxvm.ir.prim"),
    "tvm.ir.transform": ("relaxvm.transform",),
    "tvm.ir.type": ("relaxvm.ir",),
    "tvm.instrument": ("relaxvm.transform.instruments", "relaxvm.transform"),
    "tvm.nd": (
        *_only(_RUNTIME, "cpu cuda device empty from_dlpack metal opencl rocm vulkan"),
        f"{_RUNTIME}:NDArray=Tensor",
        f"{_RUNTIME}:array=tensor",
    ),
    "tvm.relax": (
        *_only(_RUNTIME, "VirtualMachine VMInstrumentReturnKind"),
        *_only(_TARGET, "build"),
        f"{_HERE}.relax",
        "relaxvm.transform:DataflowBlockRewrite",
        "relaxvm.ir.expr_functor:ExprFunctor",
        "relaxvm.ir",
        *_only("relaxvm", "ExecBuilder VMExecutable call_dps_packed call_pure_packed call_tir"),
        *_only("relaxvm", "call_tir_inplace get_pipeline register_pipeline"),
        *_only("relaxvm", "Span"),
    ),
    "tvm.relax.analysis": ("relaxvm.analysis",),
    "tvm.relax.analysis.analysis": ("relaxvm.analysis",),
    "tvm.relax.backend": (
        *_only(f"{_HERE}.passes", "DispatchSampling DispatchSortScan"),
        *_only("relaxvm.transform", "get_pattern get_patterns_with_prefix"),
    ),
    "tvm.relax.backend.dispatch_sampling": (f"{_HERE}.passes:DispatchSampling",),
    "tvm.relax.backend.dispatch_sort_scan": (f"{_HERE}.passes:DispatchSortScan",),
    "tvm.relax.backend.contrib": (),
    "tvm.relax.backend.contrib.example_npu": (f"{_HERE}.backends:NPU",),
    "tvm.relax.backend.contrib.tensorrt": (f"{_HERE}.backends:partition_for_tensorrt",),
    "tvm.relax.backend.cuda": (),
    "tvm.relax.backend.cuda.cublas": (f"{_HERE}.gpu:partition_for_cublas",),
    "tvm.relax.backend.cuda.cudnn": (f"{_HERE}.gpu:partition_for_cudnn",),
    "tvm.relax.backend.cuda.cutlass": (f"{_HERE}.gpu:partition_for_cutlass",),
    "tvm.relax.backend.pattern_registry": _only(
        "relaxvm.transform", "get_pattern get_patterns_with_prefix register_patterns"
    ),
    "tvm.relax.binding_rewrite": ("relaxvm.transform:DataflowBlockRewrite", "relaxvm.ir"),
    "tvm.relax.block_builder": ("relaxvm.ir.block_builder",),
    "tvm.relax.dpl": ("relaxvm.dpl",),
    "tvm.relax.dpl.context": ("relaxvm.dpl.context",),
    "tvm.relax.dpl.pattern": ("relaxvm.dpl.pattern",),
    "tvm.relax.dpl.rewrite": ("relaxvm.dpl.rewrite",),
    "tvm.relax.exec_builder": ("relaxvm.executable.exec_builder",),
    "tvm.relax.expr": (
        f"{_HERE}.relax:_update_type=update_type",
        f"{_HERE}.relax",
        "relaxvm.ir",
    ),
    "tvm.relax.expr_functor": (f"{_HERE}.relax", "relaxvm.ir.expr_functor", "relaxvm.ir.visitor"),
    "tvm.relax.frontend": (f"{_HERE}.relax:detach_params",),
    "tvm.relax.frontend.common": (f"{_HERE}.relax:detach_params",),
    "tvm.relax.frontend.onnx": ("relaxvm.frontend.onnx:from_onnx",),
    "tvm.relax.frontend.onnx.onnx_frontend": ("relaxvm.frontend.onnx:from_onnx",),
    "tvm.relax.frontend.torch": (f"{_HERE}.torch",),
    "tvm.relax.frontend.torch.exported_program_translator": (f"{_HERE}.torch",),
    "tvm.relax.frontend.nn": ("relaxvm.frontend.nn",),
    "tvm.relax.frontend.nn.core": ("relaxvm.frontend.nn.core",),
    "tvm.relax.frontend.nn.exporter": ("relaxvm.frontend.nn.exporter",),
    "tvm.relax.frontend.nn.extern": ("relaxvm.frontend.nn.extern",),
    "tvm.relax.frontend.nn.modules": ("relaxvm.frontend.nn.modules",),
    "tvm.relax.frontend.nn.op": ("relaxvm.frontend.nn.op",),
    "tvm.relax.frontend.nn.spec": ("relaxvm.frontend.nn.spec",),
    "tvm.relax.frontend.nn.visitor": ("relaxvm.frontend.nn.visitor",),
    "tvm.relax.global_info": ("relaxvm.ir.module",),
    "tvm.relax.op": (f"{_HERE}.operators", *_only(f"{_HERE}.operators", _DETECTION)),
    "tvm.relax.op.base": ("relaxvm.op.base",),
    "tvm.relax.pipeline": (
        f"{_HERE}.relax:get_default_pipeline",
        "relaxvm.transform.pipelines",
    ),
    "tvm.relax.script": (f"{_SCRIPT}:function", "relaxvm.script.relax"),
    "tvm.relax.testing": (_TESTING, f"{_HERE}.comparing:LibCompareVMInstrument"),
    "tvm.relax.testing.lib_comparator": (f"{_HERE}.comparing",),
    "tvm.relax.testing.nn": (f"{_HERE}.layers",),
    "tvm.relax.testing.runtime_builtin": ("relaxvm.executable.shape_codes",),
    "tvm.relax.testing.transform": (_TESTING,),
    "tvm.relax.testing.vm": (_TESTING,),
    "tvm.relax.transform": (
        "relaxvm.contrib.tvm.legalize:LegalizeOps",
        *_only(f"{_HERE}.passes", "AttachExternModules FoldConstant"),
        "relaxvm.transform",
    ),
    "tvm.relax.transform.legalize_ops": ("relaxvm.transform.legalize_ops",),
    "tvm.relax.transform.legalize_ops.common": ("relaxvm.transform",),
    "tvm.relax.transform.transform": ("relaxvm.transform",),
    "tvm.relax.ty": (f"{_HERE}.relax:TensorType", "relaxvm.ir"),
    "tvm.relax.type": (f"{_HERE}.relax:TensorType", "relaxvm.ir"),
    "tvm.relax.utils": (f"{_HERE}.relax", "relaxvm.ir"),
    "tvm.relax.vm": (f"{_TARGET}:build", _RUNTIME),
    "tvm.relax.vm_build": (
        *_only(_TARGET, "build"),
        f"{_TARGET}:_vmcodegen=codegen",
        f"{_TARGET}:_vmlink=link",
        "relaxvm.compiler.build:_filter_tir=filter_tir",
        *_only("relaxvm", "VMExecutable"),
    ),
    "tvm.rpc": (),  # its names are declined, one by one
    "tvm.runtime": (
        _RUNTIME,
        f"{_HERE}.params",
        f"{_FFI}:ObjectConvertible",
        "relaxvm.tir:const",
        "relaxvm.ir.node:Scriptable=Node",
        "relaxvm:Executable=VMExecutable",
        f"{_RUNTIME}:NDArray=Tensor",
        "relaxvm.ir.node:Object=Node",
        *_only("relaxvm", "VMExecutable"),
    ),
    "tvm.runtime.vm": (_RUNTIME,),
    "tvm.script": (*_only(_SCRIPT, "from_source ir_module"), "relaxvm.script"),
    "tvm.script.ir": (f"{_SCRIPT}:ir_module", "relaxvm.script.ir"),
    "tvm.script.ir_builder": ("relaxvm.script.ir_builder:IRBuilder",),
    "tvm.script.ir_builder.base": ("relaxvm.script.ir_builder:IRBuilder",),
    "tvm.script.ir_builder.ir": (
        *_only("relaxvm.script.ir_builder", "decl_function def_function ir_module module_attrs"),
        "relaxvm.script.ir_builder:module_global_infos",
        "relaxvm.script.ir",
    ),
    "tvm.script.ir_builder.relax": ("relaxvm.script.ir_builder", "relaxvm.script.relax"),
    "tvm.script.parser": (
        *_only(_SCRIPT, "from_source ir_module"),
        *_only("relaxvm.script", "ir relax"),
        "relaxvm.script:tirx=tir",
        "relaxvm.script:tir",
        f"{_SCRIPT}:parse=from_source",
    ),
    "tvm.script.parser.ir": (f"{_SCRIPT}:ir_module", "relaxvm.script.ir"),
    "tvm.script.parser.relax": (f"{_SCRIPT}:function", "relaxvm.script.relax"),
    "tvm.script.parser.tirx": ("relaxvm.script.tir",),
    "tvm.script.relax": (
        f"{_SCRIPT}:function",
        *_only("relaxvm.op.builtin", "stop_lift_params"),
        "relaxvm.ir:SeqExpr",
        "relaxvm.script.relax",
    ),
    "tvm.script.tir": ("relaxvm.script.tir",),
    "tvm.script.tirx": ("relaxvm.script.tir",),
    "tvm.support": (),
    "tvm.support.cc": (_SUPPORT,),
    "tvm.support.popen_pool": (),
    "tvm.support.utils": (_SUPPORT,),
    "tvm.contrib": (),
    "tvm.contrib.cc": (_SUPPORT,),
    "tvm.contrib.utils": (_SUPPORT,),
    "tvm.target": (_TARGET,),
    "tvm.te": ("relaxvm.te", "relaxvm.tir", f"{_HERE}.ir:logaddexp"),
    "tvm.te.tag": ("relaxvm.te.operation",),
    "tvm.te.operation": ("relaxvm.te",),
    "tvm.te.tensor": ("relaxvm.te",),
    "tvm.testing": (_TESTING,),
    "tvm.testing.utils": (_TESTING,),
    "tvm.tir": ("relaxvm.tir",),
    "tvm.tirx": (
        f"{_HERE}.ir",
        f"{_HERE}.params:convert",
        *_only("relaxvm.te", "Reduce comm_reducer max min sum"),
        "relaxvm.tir",
    ),
    "tvm.tirx.op": (
        f"{_HERE}.ir",
        *_only("relaxvm.te", "comm_reducer max min sum"),
        "relaxvm.tir",
    ),
    "tvm.tirx.expr": ("relaxvm.tir",),
    "tvm.topi": ("relaxvm.te.topi",),
    "tvm.topi.testing": (f"{_TESTING}:strided_slice_python",),
    "tvm.transform": ("relaxvm.transform",),
    "tvm_ffi": (
        _FFI,
        *_only(_RUNTIME, "Device Function Module Shape Tensor device from_dlpack get_global_func"),
        *_only(_RUNTIME, "load_module register_global_func remove_global_func system_lib"),
        f"{_RUNTIME}:dtype=DataType",
        "relaxvm.ir.node:Object=Node",
        *_only("relaxvm.ir", "structural_equal structural_hash"),
    ),
}
"""Module of TVM -> the modules of relaxvm with its names."""

FUNCTIONS: Final = frozenset({"tvm.relax.frontend.nn.extern"})
"""Modules of TVM whose name is that of a function in their package, too: as an attribute of the
package it is the function."""

_GPU: Final = "relaxvm runs on the CPU"
_TUNING: Final = "relaxvm's kernels are tuned when it is built, not per program"
_TRAINING: Final = "relaxvm does not differentiate programs"
_SCHEDULES: Final = "relaxvm does not schedule loops by hand: its kernels choose layouts themselves"
_DISTRIBUTION: Final = "relaxvm runs on one machine; Ray and Dask distribute calls"



def _all_of(module: str, names: str, reason: str) -> dict[str, str]:
    return {f"{module}.{name}": reason for name in names.split()}


DECLINED: Final[dict[str, str]] = {
    "tvm.cuda.*": _GPU,
    "tvm.relax.backend.cuda*": _GPU,
    "tvm.relax.backend.gpu_generic*": _GPU,
    "tvm.relax.backend.rocm*": _GPU,
    "tvm.relax.backend.metal*": _GPU,
    "tvm.relax.backend.adreno*": _GPU,
    "tvm.relax.distributed*": _DISTRIBUTION,
    "*.call_tir_with_grad": _TRAINING,
    "*.register_gradient": _TRAINING,
    "tvm.relax.op.distributed": _DISTRIBUTION,
    "tvm.relax.training*": _TRAINING,
    "tvm.relax.transform.Gradient": _TRAINING,
    "tvm.relax.transform.MetaSchedule*": _TUNING,
    "tvm.relax.transform.AllocateWorkspace": "external functions allocate what they need, as "
    "relaxvm's kernels do",
    "tvm.relax.transform.FastMathTransform": "relaxvm's kernels of these functions are vectorized, "
    "and exact to a few units in the last place",
    "tvm.relax.transform.RewriteCUDAGraph": _GPU,
    "tvm.relax.transform.SpecializePrimFuncBasedOnCallSite": _GPU,
    "tvm.relax.transform.SplitCallTIRByPattern": "FuseOpsByPattern finds what a library computes "
    "before operators become PrimFuncs",
    "tvm.relax.frontend.tflite*": "relaxvm imports ONNX models and programs of torch.export",
    "tvm.relax.frontend.stablehlo*": "relaxvm imports ONNX models and programs of torch.export",
    "tvm.te.thread_axis": _GPU,
    "tvm.te.[sS]can*": "TVM makes no PrimFunc of it either; topi.scanop and te.extern do that",
    "tvm.topi.gpu*": _GPU,
    "tvm.topi.nn.pool_grad": _TRAINING,
    "tvm.topi.nn.*_backward_*": _TRAINING,
    "tvm.topi.nn.*winograd*": _SCHEDULES,
    "tvm.topi.nn.*NCHWc*": _SCHEDULES,
    "tvm.topi.nn.*nchwc": _SCHEDULES,
    "tvm.topi.nn.*_preprocess": _SCHEDULES,
    "tvm.topi.nn.declaration_*": _SCHEDULES,
    "tvm.topi.nn.dense_pack": _SCHEDULES,
    "tvm.topi.nn.Workload": _SCHEDULES,
    "tvm.topi.nn.bit*": "relaxvm has no data types of single bits",
    "tvm.topi.nn.binar*": "relaxvm has no data types of single bits",
    "tvm.relax.transform.IPCAllReduceRewrite": _GPU,
    "tvm.relax.transform.ipc_allreduce_rewrite": _GPU,
    "tvm.relax.transform.LowerGPUIPCAllocStorage": _GPU,
    "tvm.relax.transform.lower_gpu_ipc_alloc_storage": _GPU,
    "tvm.relax.transform.SplitLayoutRewritePreproc": _TUNING,
    "*.grad": _TRAINING,
    "*.grad.*": _TRAINING,
    "*.ccl": _DISTRIBUTION,
    "*.dist": _DISTRIBUTION,
    "*.disco*": _DISTRIBUTION,
    "tvm.rpc*": _DISTRIBUTION,
    "tvm.support.popen_pool*": "concurrent.futures and multiprocessing of Python do this",
    "tvm.s_tir.meta_schedule*": _TUNING,
    "tvm.s_tir*": "relaxvm does not schedule loops by hand: kernels are C, and PrimFuncs are "
    "compiled as they are written",
    "*.Schedule": "relaxvm does not schedule loops by hand",
    "*.hexagon": _GPU,
    "*.ext_dev": _GPU,
    "*.vpi": _GPU,
    "*.webgpu": _GPU,
    "tvm.support.nvcc": _GPU,
    "tvm.support.rocm": _GPU,
    "tvm.tirx.cuda": _GPU,
    **_all_of(
        "tvm.tirx",
        "CallEffectKind ComposeLayout Dispatch* ExecScope Layout ScopeId* TensorMap* TileLayout "
        "TilePrimitiveCall adreno backend dp4a lang metal opencl rocm tensormap_* trn vulkan",
        _GPU,
    ),
    **_all_of(
        "tvm.tirx",
        "Broadcast Ramp Shuffle get_active_lane_mask get_vscale_expr vector* vscale",
        "loops have scalars: the C compiler makes vectors of them",
    ),
    **_all_of(
        "tvm.tirx",
        "BufferAccessKind CallFFIKernelAttr TVMBackend* call_*_lowered call_ffi_kernel "
        "call_llvm_* *_profile_intrinsic get_default_tir_pipeline get_tir_pipeline "
        "handle_add_byte_offset ignore_loop_partition lookup_param ptr_byte_offset "
        "register_intrin_lowering register_tir_pipeline trace transform",
        "it belongs to TVM's own lowering of loops; relaxvm writes C",
    ),
    "tvm.tirx.tvm_*": "it is an intrinsic of TVM's own lowering",
}
"""Pattern of names of TVM -> why relaxvm does not have them.  The first that matches counts."""

RENAMED: Final[dict[str, str]] = {
    "tvm.relax.transform.DataflowUseInplaceCalls": "relaxvm.transform.WriteInPlace, which every "
    "build runs",
    "tvm.runtime.TensorCache": "relaxvm.builtins.tensor_cache",
    "tvm.relax.BasePyModule": "a class with relaxvm.VirtualMachine; see docs/coming-from-tvm.md",
    "tvm.register_object": "relaxvm.ir.node.Node, whose subclasses register themselves",
    "tvm.relax.PackedFuncType": "relaxvm.ir.FuncType.opaque_func(), the type of an ExternFunc",
    "tvm.relax.dpl.register_df_node": "a subclass of relaxvm.dpl.DFPattern, which needs no "
    "registration",
    "tvm.relax.frontend.torch.from_fx": "from_exported_program: relaxvm imports what torch.export "
    "makes of a model",
    "tvm.relax.frontend.torch.relax_dynamo": "from_exported_program with torch.export.export",
    "tvm.relax.frontend.torch.dynamo_capture_subgraphs": "from_exported_program with "
    "torch.export.export",
    "tvm.script.relax.builder": "relaxvm.script.ir_builder",
    "tvm.script.relax.parser": "relaxvm.script",
    "tvm.runtime.load_static_library": "load_module of a shared library",
    "tvm.relax.testing.ast_printer": "tvm.ir.save_json, whose text has every field of a node",
    "tvm.relax.testing.dump_ast": "tvm.ir.save_json, whose text has every field of a node",
    "tvm.relax.frontend.nn.llm": "vm.builtin.paged_attention_kv_cache_create, from a module by "
    "nn.extern; see docs/builtins.md",
    "tvm.relax.frontend.nn.llm.kv_cache": "vm.builtin.paged_attention_kv_cache_create, from a "
    "module by nn.extern; see docs/builtins.md",
}
"""Name of TVM -> what to use instead."""


def reason_of(name: str) -> str | None:
    """Return why relaxvm declines a name of TVM, None if it does not."""
    for pattern, reason in DECLINED.items():
        if fnmatch.fnmatchcase(name, pattern):
            return reason
    return None


_EARLIER: Final = {"tvm.script.relax": "R", "tvm.relax": "R"}
"""Module of TVM -> its name in `relaxvm.script.earlier`, where that is not the last part."""


def why_missing(module: str, name: str) -> str:
    """Return the message for a name of a module that is not there."""
    full = f"{module}.{name}"
    start = f"module {module!r} has no attribute {name!r}"
    if full in RENAMED:
        return f"{start} here: use {RENAMED[full]}"
    reason = reason_of(full)
    if reason is not None:
        return f"{start}: it is declined, since {reason}"
    form = today(_EARLIER.get(module, module.rpartition(".")[2]), name)
    if form:
        return f"{start}{form}"
    return f"{start}: relaxvm lacks it, or TVM {VERSION} does not have it either"
