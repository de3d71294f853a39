"""Native code of VM functions, for ``exec_mode="compiled"`` and ``VirtualMachine(..., jit=True)``.

It is made from translated code, so a program needs no other form than bytecode.
``docs/compiled-mode.md`` describes how.
"""

from .program import NativeProgram, compile_program

__all__ = ["NativeProgram", "compile_program"]
