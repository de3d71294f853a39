"""Models as Python classes: modules with parameters and a method ``forward``.

``module.export_tvm(spec)`` calls the methods with symbolic tensors and returns the program.
`core` has tensors, parameters and modules, `op` the operations, `modules` layers, `spec` the
description of arguments, `exporter` what makes a program.

Source: ``tvm.relax.frontend.nn`` of apache-tvm 0.27, with its names.
"""

# ruff: noqa: F403
from . import core, exporter, modules, op, spec, visitor
from .core import (
    Effect,
    Module,
    ModuleDict,
    ModuleList,
    Object,
    Parameter,
    ParameterDict,
    ParameterList,
    Tensor,
    get_default_dtype,
    set_default_dtype,
)
from .exporter import add_extern
from .extern import ExternModule
from .modules import (
    GELU,
    Conv1D,
    Conv2D,
    Conv3D,
    ConvTranspose1D,
    Embedding,
    GroupNorm,
    Identity,
    IOEffect,
    KVCache,
    LayerNorm,
    Linear,
    ReLU,
    RMSNorm,
    SiLU,
)
from .op import *
from .subroutine import SubroutineMixin
from .visitor import Mutator

__all__ = [
    *op.__all__,
    "GELU",
    "Conv1D",
    "Conv2D",
    "Conv3D",
    "ConvTranspose1D",
    "Effect",
    "Embedding",
    "ExternModule",
    "GroupNorm",
    "IOEffect",
    "Identity",
    "KVCache",
    "LayerNorm",
    "Linear",
    "Module",
    "ModuleDict",
    "ModuleList",
    "Mutator",
    "Object",
    "Parameter",
    "ParameterDict",
    "ParameterList",
    "RMSNorm",
    "ReLU",
    "SiLU",
    "SubroutineMixin",
    "Tensor",
    "add_extern",
    "core",
    "exporter",
    "get_default_dtype",
    "modules",
    "op",
    "set_default_dtype",
    "spec",
    "visitor",
]
