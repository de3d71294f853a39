"""``inspect`` and ``dis``: show the content of a file, without running its code."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from ..adt import DataType
from ..contrib.tvm.library.image import LibraryImage, compiled_functions, problems
from ..core.translated import Row
from ..errors import LinkError, did_you_mean
from ..executable import FunctionInfo, StoredKernels, VMExecutable
from ..executable.debug_info import DebugInfo
from ..executable.formats import binary
from ..executable.formats.places import place_lines
from ..executable.formats.sections import SECTIONS, SectionPlace
from ..executable.formats.text import format_instruction, name_text
from ..field_types import DataField, parts_of, quoted_name
from ..isa import NO_ARITY, FuncKind, Opcode
from ..messages import describe
from ..registry import COMPILED_PREFIX, GLOBAL, Registry, list_funcs
from ..verify import Report, verify
from ..vm.allocators import format_bytes
from ..vm.entry_checks import params_of
from .console import Console
from .exits import Exit, UsageError, write_error
from .files import (
    OpenedFile,
    add_file_argument,
    add_kernels_argument,
    import_kernels,
    limits_of,
    open_executable,
)

__all__ = ["add_commands"]

_MAGICS: Final = {
    binary.MAGIC: "current",
    binary.MAGIC_WITHOUT_SCOPES: "older, without memory scopes",
}
_SHOWN: Final = 40
"""The most entries of a list in the text form of `inspect`; --all shows all."""


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    inspect = commands.add_parser(
        "inspect", parents=[common], help="what a file contains and what it needs",
        description="Print header, functions, constants and needed functions. Does not run any "
        "code of the file.",
    )  # fmt: skip
    add_file_argument(inspect)
    add_kernels_argument(inspect)
    inspect.add_argument("--all", action="store_true",
                         help=f"show all entries of a list, not the first {_SHOWN}")  # fmt: skip
    inspect.set_defaults(command=_inspect)

    dis = commands.add_parser(
        "dis", parents=[common], help="print the code of a file",
        description="Print the listing. Does not run any code of the file.",
    )  # fmt: skip
    add_file_argument(dis)
    form = dis.add_mutually_exclusive_group()
    form.add_argument("--function", metavar="NAME", help="only this function, with pc numbers")
    form.add_argument("--complete", action="store_true",
                      help="with constants and headers, for `relaxvm asm`")  # fmt: skip
    form.add_argument("--python", action="store_true",
                      help="a Python program that rebuilds the executable")  # fmt: skip
    dis.add_argument("--translated", action="store_true",
                     help="the operations that the core runs for the code, see docs/operations.md")
    add_kernels_argument(dis)
    dis.add_argument("--source", action="store_true",
                     help="with the source lines of the code, and pc numbers")
    dis.add_argument("--npz", metavar="PATH",
                     help="with --python: file to write large constants to")  # fmt: skip
    dis.set_defaults(command=_dis)


# inspect


def _inspect(args: argparse.Namespace, console: Console) -> int:
    limits = limits_of(args)
    import_kernels(args.kernels)
    list_funcs()  # registers the builtins
    with console.progress(f"reading {args.file}"):
        opened = open_executable(args.file, limits, mapped=True)
        report = verify(opened.executable, limits=limits)
    data = {
        "file": _header(opened),
        "library": None if opened.library is None else _library(opened.library, opened.executable),
        "verified": report.ok,
        "debug": _debug(opened.executable),
        "sections": [_section(place) for place in opened.sections],
        "data_types": [_data_type(data) for data in opened.executable.data_types.values()],
        "functions": _functions(opened.executable, report),
        "constants": _constants(opened.executable),
        "needs": _needs(opened.executable),
    }
    console.result(data)
    if not console.as_json:
        console.text(_inspect_text(data, report, None if args.all else _SHOWN))
    return Exit.OK


def _header(opened: OpenedFile) -> dict[str, Any]:
    executable = opened.executable
    return {
        "name": opened.name,
        "bytes": opened.size,
        "form": opened.form,
        **({"compiled_from": opened.kind.what} if opened.kind is not None else {}),
        **(_magic(opened.head) if opened.form == "binary" else {}),
        "functions": len(executable.functions),
        "constants": len(executable.constants),
        "instructions": len(executable),
        "words": len(executable.instr_data),
        "memory_scopes": {str(k): v for k, v in sorted(executable.memory_scopes.items())},
    }


def _library(image: LibraryImage, executable: VMExecutable) -> dict[str, Any]:
    """Return the contents and requirements of the shared library around an executable."""
    kinds = [module.kind for module in image.modules]
    compiled = [] if image.has_container else compiled_functions(executable)
    return {
        "machine": image.elf.machine,
        "modules": kinds,
        "kernels": sorted(image.kernels),
        "libraries": list(image.elf.needed),
        "needs": sorted(image.system_symbols),
        "needs_of_tvm": sorted({*image.host_symbols, *(name[2:] for name in image.slots)}),
        "refused": problems(image, compiled, kinds),
    }


def _debug(executable: VMExecutable) -> dict[str, Any] | None:
    debug = executable.debug
    if debug is None:
        return None
    return {
        "locations": len(debug),
        "spans": len(debug.spans),
        "files": list(debug.files),
        "variables": len(debug.variables),
        "lines": len(debug.line_texts),
        "summary": debug.summary(),
    }


def _section(place: SectionPlace) -> dict[str, Any]:
    """Return a row about a section behind the stream of the binary form."""
    return {**place._asdict(), "about": SECTIONS[place.name].about}


def _magic(head: bytes) -> dict[str, str]:
    """Return magic number and version of the binary form."""
    magic = int.from_bytes(head[:8], "little")
    length = int.from_bytes(head[8:16], "little")
    return {
        "magic": f"0x{magic:016X}",
        "magic_kind": _MAGICS[magic],
        "version": head[16 : 16 + length].decode(),
    }


def _functions(executable: VMExecutable, report: Report) -> list[dict[str, Any]]:
    """Return the functions that the executable defines, without packed functions."""
    rows = []
    for info in executable.functions:
        if info.kind == FuncKind.PACKED:
            continue
        row: dict[str, Any] = {
            "name": info.name,
            "kind": info.kind.name.lower(),
            "num_args": None if info.num_args == NO_ARITY else info.num_args,
            "instructions": info.end_instr - info.start_instr,
            "registers": info.register_file_size,
        }
        # Only after verification a range of instructions can be trusted.
        if report.ok and info.kind == FuncKind.BYTECODE:
            types = _param_types(executable, info)
            row["parameters"] = [
                {"name": spec.name, "type": types.get(i, str(spec))}
                for i, spec in enumerate(params_of(executable, info))
            ]
        rows.append(row)
    return rows


def _param_types(executable: VMExecutable, info: FunctionInfo) -> dict[int, str]:
    """Return the types of the parameters that mention data types, by position."""
    signature = executable.signatures.get(info.name)
    if signature is None:
        return {}
    return {
        i: str(ty)
        for i, ty in enumerate(signature.params or ())
        if any(isinstance(part, DataField) for part in parts_of(ty))
    }


def _data_type(data: DataType) -> dict[str, Any]:
    constructors = [
        {"name": name, "tag": constructor.tag, "fields": [*map(str, constructor.fields)]}
        for name, constructor in data.constructors.items()
    ]
    return {
        "name": data.name,
        "parameters": [*data.params],
        "constructors": constructors,
    }


def _constants(executable: VMExecutable) -> list[dict[str, Any]]:
    rows = []
    for index, value in enumerate(executable.constants):
        nbytes = value.nbytes if isinstance(value, np.ndarray) else 0
        row: dict[str, Any] = {"index": index, "value": describe(value), "bytes": nbytes}
        if index in executable.memory_scopes:
            row["memory_scope"] = executable.memory_scopes[index]
        rows.append(row)
    return rows


def _needs(executable: VMExecutable) -> list[dict[str, Any]]:
    """Return the packed functions, how often each is called, and whether it is registered."""
    calls = _calls(executable)
    kernels = executable.kernels
    stored = kernels.names if isinstance(kernels, StoredKernels) else frozenset()
    saved = executable.prim_funcs
    return [
        {
            "name": info.name,
            "calls": calls[index],
            "available": info.kind == FuncKind.PACKED and info.name in GLOBAL,
            "in_file": info.name in stored or info.name in saved,
            "prim_func": info.name in saved,
            "code": info.name in stored,
        }
        for index, info in enumerate(executable.functions)
        if info.kind == FuncKind.PACKED
    ]


def _calls(executable: VMExecutable) -> Counter[int]:
    """Count the call instructions of each entry of the function table."""
    data, offset = executable.instr_data, executable.instr_offset
    inside = offset[(offset >= 0) & (offset + 2 < len(data))]
    callees = data[inside[data[inside] == Opcode.CALL] + 2]
    indices, counts = np.unique(callees, return_counts=True)
    return Counter(dict(zip(indices.tolist(), counts.tolist(), strict=True)))


def _inspect_text(data: dict[str, Any], report: Report, limit: int | None) -> str:
    file = data["file"]
    own, constants, needs = data["functions"], data["constants"], data["needs"]
    nbytes = sum(row["bytes"] for row in constants)
    missing = [row for row in needs if not row["available"] and not row["in_file"]]
    errors = report.count("error")
    state = "ok" if report.ok else f"{errors} error{'s' * (errors != 1)}, see relaxvm verify"
    lines = [
        f"{file['name']}: {file['bytes']} bytes, {_form_text(data)}",
        f"{file['instructions']} instructions in {file['words']} words; verification: {state}",
        f"debug information: {data['debug']['summary'] if data['debug'] else 'none'}",
        *(_library_lines(data["library"], limit) if data["library"] else ()),
        *(_section_lines(data["sections"]) if data["sections"] else ()),
        "",
        f"functions ({len(own)}):",
        *_cut(map(_function_line, own), limit),
        *(_data_type_lines(data["data_types"], limit) if data["data_types"] else ()),
        "",
        f"constants ({len(constants)}, tensors of {format_bytes(nbytes)}):",
        *_cut(map(_constant_line, constants), limit),
        "",
        f"needs ({len(needs)}, {len(missing)} missing):",
        *_cut(map(_need_line, sorted(needs, key=lambda row: row["available"])), limit),
    ]
    return "\n".join(lines)


def _section_lines(sections: Sequence[dict[str, Any]]) -> list[str]:
    return ["", f"sections ({len(sections)}):", *map(_section_line, sections)]


def _data_type_lines(types: Sequence[dict[str, Any]], limit: int | None) -> list[str]:
    return ["", f"data types ({len(types)}):", *_cut(map(_data_type_line, types), limit)]


def _data_type_line(row: dict[str, Any]) -> str:
    params = ", ".join(map(quoted_name, row["parameters"]))
    constructors = row["constructors"]
    shown = [
        f"{quoted_name(c['name'])}({', '.join(c['fields'])})" for c in constructors[:_SHOWN]
    ]
    if len(constructors) > _SHOWN:
        shown.append(f"... {len(constructors) - _SHOWN} more")
    head = quoted_name(row["name"]) + (f"[{params}]" if params else "")
    return f"  {head} = {' | '.join(shown) or 'no constructors'}"


def _section_line(row: dict[str, Any]) -> str:
    kind = "required" if row["required"] else "optional"
    return (f"  {row['name']}  version {row['version']}, {kind}, {format_bytes(row['nbytes'])} at "
            f"byte {row['offset']}: {row['about']}")


def _library_lines(library: dict[str, Any], limit: int | None) -> list[str]:
    """Return the lines about a shared library: titles with lists, leaving out empty ones."""
    titles = {
        "kernels": "kernels, for --native",
        "libraries": "libraries that it loads",
        "needs": "functions of the system that it calls",
        "needs_of_tvm": "functions of TVM's runtime that it calls",
        "refused": "WHY IT CANNOT RUN HERE",
    }
    lines = []
    for key, title in titles.items():
        if library[key]:
            shown = _cut((f"  {name_text(name)}" if key != "refused" else f"  {name}"
                          for name in library[key]), limit)  # fmt: skip
            lines += ["", f"{title} ({len(library[key])}):", *shown]
    return lines


def _form_text(data: dict[str, Any]) -> str:
    file = data["file"]
    if file["form"] == "text":
        return "a listing"
    if file["form"] == "library":
        modules = ", ".join(map(name_text, data["library"]["modules"])) or "none"
        return f"a shared library for {data['library']['machine']}, modules {modules}"
    if file["form"] == "model":
        return f"compiled from {data['file']['compiled_from']}"
    return f"magic {file['magic']} ({file['magic_kind']}), version {file['version']}"


def _function_line(row: dict[str, Any]) -> str:
    if "parameters" in row:
        params = ", ".join(
            f"{name_text(p['name'])}: {p['type']}" for p in row["parameters"][:_SHOWN]
        )
        if len(row["parameters"]) > _SHOWN:
            params += f", ... {len(row['parameters']) - _SHOWN} more"
    else:
        params = "?" if row["num_args"] is None else f"{row['num_args']} parameters"
    kind = "" if row["kind"] == "bytecode" else f" {row['kind']}"
    return (f"  {name_text(row['name'])}({params}){kind}  {row['instructions']} instructions, "
            f"{row['registers']} registers")


def _constant_line(row: dict[str, Any]) -> str:
    scope = f"  scope {name_text(row['memory_scope'])}" if "memory_scope" in row else ""
    size = f"  {format_bytes(row['bytes'])}" if row["bytes"] else ""
    return f"  c[{row['index']}]  {row['value']}{size}{scope}"


def _need_line(row: dict[str, Any]) -> str:
    in_file = "  in this file, for --native" if row["in_file"] else "  MISSING"
    if row["prim_func"]:
        in_file = f"  in this file, a PrimFunc{', and code for --native' * row['code']}"
    state = "" if row["available"] else in_file
    return f"  {name_text(row['name'])}  {row['calls']} call{'s' * (row['calls'] != 1)}{state}"


def _cut(lines: Iterable[str], limit: int | None) -> list[str]:
    """Return the first lines, and a line with the number of further ones."""
    shown = list(lines)
    if limit is None or len(shown) <= limit:
        return shown or ["  none"]
    return [*shown[:limit], f"  ... {len(shown) - limit} more, shown with --all"]


# dis


def _dis(args: argparse.Namespace, console: Console) -> int:
    if args.npz is not None and not args.python:
        raise UsageError("--npz: goes with --python")
    if args.source and (args.complete or args.python):
        raise UsageError("--source: not allowed with --complete or --python, which have it")
    if args.translated and (args.complete or args.python or args.source):
        raise UsageError("--translated: not allowed with --complete, --python or --source")
    if args.kernels and not args.translated:
        raise UsageError("--kernels: goes with --translated")
    limits = limits_of(args)
    with console.progress(f"reading {args.file}"):
        opened = open_executable(args.file, limits, mapped=True)
        report = verify(opened.executable, limits=limits)
    executable = opened.executable
    if args.complete or args.python or args.translated:
        # These forms need a whole executable; a broken file does not have one.
        report.check()
    elif not report.ok:
        console.note(f"{opened.name}: {report.count('error')} errors, see relaxvm verify; "
                     f"this is the code as far as it can be read")
    functions = executable.functions
    if args.function is not None:
        functions = (_find(executable, args.function),)
    if args.python:
        source = _python(executable, args.npz)
        console.text(source)
        console.result({"python": source})
    elif args.complete:
        listing = executable.as_text(complete=True)
        console.text(listing)
        console.result({"text": listing})
    elif args.translated:
        _dis_translated(executable, functions, args, console)
    elif console.as_json:
        _dis_json(executable, functions, console)
    elif args.function is None and report.ok and not args.source:
        console.text(executable.as_text())
    else:
        if args.source and executable.debug is None:
            console.note(f"{opened.name}: has no debug information")
        for info in functions:
            console.text(_function_text(executable, info, with_source=args.source))
    return Exit.OK


def _dis_translated(
    executable: VMExecutable,
    functions: Sequence[FunctionInfo],
    args: argparse.Namespace,
    console: Console,
) -> None:
    from ..vm.machine import VirtualMachine  # here, since the other commands do without

    import_kernels(args.kernels)
    known = Registry(parent=GLOBAL)
    limits = limits_of(args)
    try:
        vm = VirtualMachine(executable, limits=limits, functions=known)
    except LinkError as error:
        # Listing a call does not need what it calls.
        for name in error.missing:
            compiled = executable.has_function(name)
            known.register(COMPILED_PREFIX + name if compiled else name, _missing_function)
        vm = VirtualMachine(executable, limits=limits, functions=known)
    own = [info.name for info in functions if info.kind != FuncKind.PACKED]
    listings = [vm.functions[name].translated for name in own]
    if not listings and args.function is not None:
        raise UsageError(f"--function {args.function}: it is a packed function, and has no code")
    console.text("\n".join(map(str, listings)))
    rows = (_operation(listing.name, row) for listing in listings for row in listing)
    console.long_result({"functions": [listing.name for listing in listings]}, "operations", rows)


def _missing_function(*args: Any) -> Any:
    raise LinkError("a listing runs nothing")


def _operation(function: str, row: Row) -> dict[str, Any]:
    return {
        "function": function,
        "position": row.position,
        "pc": row.pc,
        "part": "fallback" if row.is_fallback else "main",
        "op": row.operation.name,
        "operands": row.operands(),
    }


def _python(executable: VMExecutable, npz: str | None) -> str:
    try:
        return executable.as_python(npz=npz)
    except OSError as error:
        raise write_error(str(npz), error) from error


def _find(executable: VMExecutable, name: str) -> FunctionInfo:
    for info in executable.functions:
        if info.name == name:
            return info
    raise UsageError(f"--function {name}: the executable has no such function"
                     f"{did_you_mean(name, (info.name for info in executable.functions))}")


def _pcs(executable: VMExecutable, info: FunctionInfo) -> range:
    """Return the instructions of a function; for a malformed one, those that exist."""
    count = len(executable) if info.kind == FuncKind.BYTECODE else 0
    return range(min(max(info.start_instr, 0), count), min(max(info.end_instr, 0), count))


def _dis_json(
    executable: VMExecutable, functions: Sequence[FunctionInfo], console: Console
) -> None:
    rows = [
        {"name": info.name, "kind": info.kind.name.lower(),
         "start_instr": info.start_instr, "end_instr": info.end_instr}
        for info in functions
    ]  # fmt: skip
    pcs = (pc for info in functions for pc in _pcs(executable, info))
    instructions = (_instruction(executable, pc) for pc in pcs)
    console.long_result({"functions": rows}, "instructions", instructions)


def _instruction(executable: VMExecutable, pc: int) -> dict[str, Any]:
    row: dict[str, Any] = {"pc": pc, "text": format_instruction(executable, pc)}
    try:
        instruction = executable.instruction(pc)
    except ValueError:
        return row  # malformed; the text says how
    if executable.debug is not None:
        row |= _place(executable.debug, pc)
    row["op"] = instruction.op.name
    for field, value in zip(instruction.op.fields, instruction.fields, strict=True):
        row[field.name] = value
    if instruction.op.tail is not None:
        row[instruction.op.tail.name] = [
            {"kind": arg.kind.name.lower(), "value": arg.value} for arg in instruction.args
        ]
    return row


def _place(debug: DebugInfo, pc: int) -> dict[str, Any]:
    _, span, variable, _ = debug.location(pc)
    names = ("file", "line", "column", "end_line", "end_column")
    source = None if span is None else {name: getattr(span, name) for name in names}
    return {"source": source, "variable": variable}


def _function_text(
    executable: VMExecutable, info: FunctionInfo, *, with_source: bool = False
) -> str:
    """Return the listing of a function with the pc before each instruction."""
    if info.kind != FuncKind.BYTECODE:
        return f"@{name_text(info.name)} {info.kind.name.lower()}\n"
    pcs = _pcs(executable, info)
    width = len(str(pcs.stop))
    debug = executable.debug if with_source else None
    places = {} if debug is None else {p.pc: p for p in debug.within(pcs.start, pcs.stop)}
    code: list[str] = []
    for pc in pcs:
        if debug is not None and pc in places:
            code += place_lines(debug, places[pc])
        code.append(f"{pc:>{width}}  {format_instruction(executable, pc)}")
    return "\n".join([f"@{name_text(info.name)}:", *code, ""])
