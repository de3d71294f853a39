"""TVM's names for the last steps of compilation; see `relaxvm.compiler.build`."""

from .build import build, filter_tir, vmcodegen, vmlink

__all__ = ["build", "filter_tir", "vmcodegen", "vmlink"]
