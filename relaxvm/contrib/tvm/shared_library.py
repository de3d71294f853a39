"""Executables as shared libraries, which TVM can load and run, and relaxvm can read back.

A library has the kernels as functions ``__tvm_ffi_NAME``, compiled from the C sources of the
executable, and the bytecode as data, under the symbol that TVM looks up::

    u64 size, then in that many bytes
    u64 3, u64 0, 1, 1              where the imports of module i start and end
    u64 1, u64 1                    module 0 imports module 1
    string "relax.VMExecutable", u64 size, and relaxvm's binary form with all its sections
    string "_lib"                   the library itself

TVM stops reading the binary form at the start of relaxvm's sections; the symbol `CONTAINER` is the
whole binary form.  So the library has only one copy of the program and its constants.

Source: ``ProcessLibraryBin`` of TVM's FFI.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import IO, Final

from ...errors import LinkError, NoCompilerError
from ...executable import VMExecutable
from ...isa import FuncKind
from ...messages import readable
from ...native.c_support import c_string, symbol_of
from ...native.functions import PREFIX
from ...native.kernel_library import LibraryState
from ...native.machine_code import objects_of
from ...native.toolchain import link_objects
from .library.image import CONTAINER, EXECUTABLE, LIBRARY_BIN, LIBRARY_CTX, THE_LIBRARY

__all__ = ["SUFFIXES", "check_for_tvm", "is_shared_library", "write_library"]

SUFFIXES: Final = () if sys.platform in ("darwin", "win32", "cygwin") else (".so",)
"""Suffixes of paths to which shared libraries are written.  Libraries are ELF files, so there are
no suffixes on other systems."""

_RESERVED: Final = tuple(name.removeprefix(PREFIX) for name in (LIBRARY_BIN, LIBRARY_CTX))
"""Symbols with TVM's prefix that are not functions."""

_LARGE: Final = 1 << 30
"""The size in bytes from which data is placed in a section away from the code."""

BUILTINS: Final = frozenset(
    {
        "alloc_shape_heap", "alloc_storage", "alloc_tensor",
        "apply_presence_and_frequency_penalty", "apply_repetition_penalty",
        "apply_softmax_with_temperature", "attention_kv_cache_append",
        "attention_kv_cache_append_mla_kv", "attention_kv_cache_array_clear",
        "attention_kv_cache_array_popn", "attention_kv_cache_attention_with_fused_qkv",
        "attention_kv_cache_attention_with_shared_kv",
        "attention_kv_cache_commit_accepted_token_tree_nodes", "attention_kv_cache_create",
        "attention_kv_cache_cross_attention", "attention_kv_cache_debug_get_kv",
        "attention_kv_cache_debug_get_kv_mla", "attention_kv_cache_empty",
        "attention_kv_cache_enable_sliding_window_for_seq",
        "attention_kv_cache_export_page_group", "attention_kv_cache_finish_import",
        "attention_kv_cache_get_checkpoint_metadata", "attention_kv_cache_get_layout_hash",
        "attention_kv_cache_get_num_available_pages", "attention_kv_cache_get_query_positions",
        "attention_kv_cache_get_sequence_length",
        "attention_kv_cache_get_total_sequence_length", "attention_kv_cache_import_page_group",
        "attention_kv_cache_merge_attn_output_inplace", "attention_kv_cache_prepare_import",
        "attention_kv_cache_self_attention", "attention_kv_cache_update",
        "attention_kv_cache_view", "attention_kv_cache_window_override",
        "attention_kv_cache_window_override_with_sinks", "call_py_func", "call_tir_dyn",
        "check_func_info", "check_prim_value_info", "check_shape_info", "check_string_info",
        "check_tensor_info", "check_tuple_info", "clear_py_func_registry", "copy",
        "debug_print", "ensure_zero_offset", "get_py_func", "invoke_closure",
        "invoke_debug_func", "kv_cache_disagg_mark_send", "kv_cache_disagg_prepare_recv",
        "kv_state_add_sequence", "kv_state_begin_forward", "kv_state_clear",
        "kv_state_end_forward", "kv_state_fork_sequence", "kv_state_popn",
        "kv_state_remove_sequence", "make_closure", "make_prim_value", "make_shape",
        "make_tuple", "match_prim_value", "match_shape", "memory_manager.clear",
        "multinomial_from_uniform", "null_value", "paged_attention_kv_cache_create",
        "param_array_from_cache", "param_array_from_cache_by_name",
        "param_array_from_cache_by_name_unpacked", "param_module_from_cache",
        "param_module_from_cache_by_name", "read_if_cond", "register_py_func", "reshape",
        "rnn_state_create", "rnn_state_debug_get", "rnn_state_get", "rnn_state_set",
        "sample_top_p_from_logits", "sample_top_p_from_prob", "shape_of", "tensor_cache.clear",
        "tensor_cache.get", "tensor_cache.load", "tensor_cache.remove", "tensor_cache.update",
        "tensor_to_shape", "to_device", "tuple_getitem", "tuple_reset_item",
    }
)  # fmt: skip
"""TVM's functions with the prefix ``vm.builtin.``."""

OTHERS: Final = frozenset({"runtime.TVMTensorCreateView"})


def is_shared_library(path: str | os.PathLike[str]) -> bool:
    """Return whether an export to a path makes a shared library."""
    return os.fsdecode(path).endswith(SUFFIXES)


# What TVM has


def check_for_tvm(
    executable: VMExecutable, state: LibraryState | None, registered: Collection[str]
) -> None:
    """Refuse an executable that TVM's VM cannot run.

    Args:
        state: the state of its kernels.
        registered: functions that the process with TVM registers in addition to TVM's own.

    Raises:
        LinkError: TVM would lack functions; the message has each name with the reason.
    """
    compiled = set(_compiled(state))
    known = {f"vm.builtin.{name}" for name in BUILTINS} | OTHERS | compiled | set(registered)
    lacking = {
        info.name: _why(info.name, info.kind, state)
        for info in executable.functions
        if info.kind is FuncKind.COMPILED
        or (info.kind is FuncKind.PACKED and info.name not in known)
    }
    lacking |= {
        name: "its name cannot be a symbol" for name in sorted(compiled) if not _can_be_symbol(name)
    }
    if lacking:
        listed = "".join(f"\n  {readable(name)}: {why}" for name, why in lacking.items())
        raise LinkError(
            f"TVM would lack {len(lacking)} function{'s' if len(lacking) > 1 else ''} of the "
            f"program:{listed}",
            tuple(lacking),
        )


def _why(name: str, kind: FuncKind, state: LibraryState | None) -> str:
    if kind is FuncKind.COMPILED:
        return "is of relaxvm's compiled mode; build with exec_mode='bytecode'"
    if state is not None and name in state["functions"]:
        return "it has no C source and runs as Python; build with a C compiler"
    if name.startswith("relaxvm.kernel."):
        return ("a kernel of relaxvm; build with relax_pipeline='tvm', and write operators that it "
                "has no loops for as PrimFuncs")
    if name.startswith("relaxvm."):
        return "a builtin of relaxvm; build with relax_pipeline='tvm'"
    if name.startswith("vm.builtin."):
        return "a builtin that TVM's VM does not have"
    return "a packed function; if TVM's process registers it, say so: for_tvm=[name, ...]"


def _compiled(state: LibraryState | None) -> list[str]:
    """Return the names of the kernels that have C source."""
    return [] if state is None else [n for source in state["sources"] for n in source["names"]]


# The library


def write_library(
    write: Callable[[IO[bytes]], None],
    state: LibraryState | None,
    target: IO[bytes],
) -> None:
    """Write a shared library.

    Args:
        write: writes relaxvm's binary form to a file.
        state: the state of the kernels.
        target: the file to write the library to.

    Raises:
        NoCompilerError: there is no C compiler.
        CompilerError: the compiler fails.
        ValueError: two kernels would have one symbol.
    """
    aliases = _aliases(state)
    with tempfile.TemporaryDirectory(prefix="relaxvm-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        try:
            objects = [] if state is None else objects_of(state["sources"])
        except NoCompilerError as error:
            raise _no_compiler(error) from None
        with open(folder / "container", "wb") as file:
            write(file)
            size = file.tell()
        head, tail = _modules(size)
        (folder / "head").write_bytes(head)
        (folder / "tail").write_bytes(tail)
        (folder / "modules.c").write_text(_text(aliases, size), encoding="utf-8")
        try:
            link_objects([*objects, folder / "modules.c"], folder / "library.so")
        except NoCompilerError as error:
            raise _no_compiler(error) from None
        with open(folder / "library.so", "rb") as library:
            shutil.copyfileobj(library, target, 1 << 20)


def _no_compiler(error: NoCompilerError) -> NoCompilerError:
    return NoCompilerError(
        f"export_library: {error}; or export to another suffix than "
        f"{' and '.join(SUFFIXES)}, or with native=False: that needs no compiler"
    )


def _modules(size: int) -> tuple[bytes, bytes]:
    """Return the bytes before and after `size` bytes of the binary form."""
    numbers = struct.pack("<6Q", 3, 0, 1, 1, 1, 1)
    head = numbers + _string(EXECUTABLE) + struct.pack("<Q", size)
    tail = _string(THE_LIBRARY)
    return struct.pack("<Q", len(head) + size + len(tail)) + head, tail


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _aliases(state: LibraryState | None) -> Mapping[str, str]:
    """Return the C symbols of names that are not valid in C, by name.

    Raises:
        ValueError: two kernels would have one symbol.
    """
    names = _compiled(state)
    symbols = {symbol_of(name): name for name in names}
    for name in names:
        other = symbols.get(name, name)
        if other != name or name in _RESERVED:
            raise ValueError(
                f"export_library: kernel {name!r}: a shared library has something else under this "
                f"name{'' if other == name else f', for kernel {other!r}'}; rename it"
            )
    return {
        name: symbol
        for symbol, name in symbols.items()
        if symbol != name and _can_be_symbol(name)
    }


def _can_be_symbol(name: str) -> bool:
    """Return whether assemblers accept the name: it must not have characters that end names or are
    used for versions."""
    return bool(name) and re.search(r'[\x00-\x1f\x7f"\\@]', name) is None


def _text(aliases: Mapping[str, str], size: int) -> str:
    """Return C source for the modules, and for functions with names that C does not allow."""
    section = ".rodata" if size < _LARGE else ".lrodata"
    flags = "a" if size < _LARGE else "al"  # l: may be far away, of x86-64 alone
    lines = [
        "#include <relaxvm/kernel.h>",
        "#ifdef __clang__",
        "#define NAMED(name) __asm__(name)",
        "#else",
        '#define NAMED(name) __asm__("\\"" name "\\"")',
        "#endif",
        *_alias_lines(aliases),
        "#if defined(__x86_64__)" if section == ".lrodata" else "#if 1",
        f'#define SECTION "{section},\\"{flags}\\""',
        "#else",
        '#define SECTION ".rodata,\\"a\\""',
        "#endif",
        '__asm__(".pushsection " SECTION ", %progbits\\n"',
        '        ".balign 64\\n"',
    ]
    bin_ = LIBRARY_BIN
    lines += [
        f'        "{line}\\n"'
        for line in (
            f".globl {bin_}", f".type {bin_}, %object", f"{bin_}:",
            '.incbin \\"head\\"',
            f".globl {CONTAINER}", f".type {CONTAINER}, %object", f"{CONTAINER}:",
            '.incbin \\"container\\"',
            f".size {CONTAINER}, . - {CONTAINER}",
            '.incbin \\"tail\\"',
            f".size {bin_}, . - {bin_}",
            ".popsection",
        )
    ]  # fmt: skip
    return "\n".join([*lines, ");", ""])


def _alias_lines(aliases: Mapping[str, str]) -> Iterable[str]:
    parameters = "void *self, const RvmAny *args, int32_t num_args, RvmAny *ret"
    for i, (name, symbol) in enumerate(aliases.items()):
        target = f"{PREFIX}{symbol}"
        yield f"int {target}({parameters});"
        yield f"RVM_EXPORT int alias{i}({parameters}) NAMED({c_string(PREFIX + name)});"
        yield f"int alias{i}({parameters}) {{ return {target}(self, args, num_args, ret); }}"
