"""Modules as Relay text."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from numpy.typing import NDArray

from ...dtypes import dtype_name
from ...executable.formats.stored_tensors import tensor_bytes
from ...ir import (
    AnyType,
    Call,
    Constant,
    Constructor,
    Expr,
    Function,
    FuncType,
    GlobalVar,
    If,
    IntImm,
    IRModule,
    Match,
    MatchCast,
    NeverType,
    Op,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    RefType,
    SeqExpr,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    TypeCall,
    TypeVar,
    Var,
)
from ...ir.nesting import headroom
from ...op.registry import PREFIX
from .metadata import CONSTANT
from .written import WRITTEN, CannotSay

__all__ = ["to_text"]

_INDENT: Final = "  "
_WORDS: Final = re.compile(r"\w+")
_SUFFIXES: Final = {
    "int32": "", "float32": "f", "int8": "i8", "int16": "i16", "int64": "i64", "uint8": "u8",
    "uint16": "u16", "uint32": "u32", "uint64": "u64", "float16": "f16", "float64": "f64",
}  # fmt: skip
_REFS: Final = {"ref", "ref_read", "ref_write"}
_MOST_LISTED: Final = 20


def to_text(mod: IRModule) -> str:
    """Return a module as Relay text, version 0.0.5.

    Variables and operations keep their order; every operation is a ``let``.  Symbolic dimensions
    become ``?``.  Else a module that `from_text` has made is read back to an equal one, in which
    all functions can be called from outside; but `argmax` and `argmin` get casts, since their
    results are int64 here and int32 in Relay.

    Raises:
        ValueError: the module has parts that Relay cannot say; the message lists them.
        NestingError: it is nested too deeply.
    """
    with headroom("to_text", mod):
        return _Printer(mod).text()


class _Printer:
    def __init__(self, mod: IRModule) -> None:
        self._mod = mod
        self._problems: dict[str, None] = {}
        self._constants: list[NDArray[Any]] = []
        self._names: dict[Var, str] = {}
        self._taken: set[str] = set()
        self._type_vars: dict[TypeVar, str] = {}
        self._where = ""

    def text(self) -> str:
        parts = ['#[version = "0.0.5"]\n']
        for data in self._mod.type_definitions.values():
            parts.append(self._type_def(data))
        for var, func in self._mod.functions.items():
            self._where = f"function {var.name_hint!r}"
            if isinstance(func, Function):
                self._names, self._taken = {}, set()
                parts.append(f"def @{var.name_hint}{self._function(func, '')}\n")
            else:
                self._cannot(f"it is a {type(func).__name__}")
        if self._problems:
            listed = list(self._problems)
            more = len(listed) - _MOST_LISTED
            shown = [*listed[:_MOST_LISTED], *([f"and {more} more"] if more > 0 else [])]
            raise ValueError(f"to_text: Relay cannot say {len(listed)} parts of the module: "
                             f"{'; '.join(shown)}")  # fmt: skip
        if self._constants:
            parts.append(f"#[metadata]\n{self._metadata()}\n")
        return "\n".join(parts)

    def _cannot(self, reason: str) -> str:
        self._problems[f"{self._where}: {reason}"] = None
        return "_"

    # Types

    def _type_def(self, data: Any) -> str:
        self._where = f"type {data.name!r}"
        params = self._type_params(data.type_vars)
        if not data.constructors:
            return f"extern type {data.name}{params}\n"
        lines = []
        for each in data.constructors:
            fields = f"({', '.join(map(self._type, each.inputs))})" if each.inputs else ""
            lines.append(f"{_INDENT}{each.name_hint}{fields},\n")
        return f"type {data.name}{params} {{\n{''.join(lines)}}}\n"

    def _type_params(self, type_vars: Sequence[TypeVar]) -> str:
        taken: set[str] = set()
        for var in type_vars:
            name, number = var.name_hint, 1
            while name in taken:
                name, number = f"{var.name_hint}_{number}", number + 1
            taken.add(name)
            self._type_vars[var] = name
        return f"[{', '.join(self._type_vars[v] for v in type_vars)}]" if type_vars else ""

    def _type(self, ty: Any) -> str:
        if isinstance(ty, TensorType):
            return self._tensor_type(ty)
        if isinstance(ty, TupleType):
            return f"({_listed(map(self._type, ty.fields))})"
        if isinstance(ty, FuncType) and ty.params is not None and not ty.type_params:
            return f"fn ({', '.join(map(self._type, ty.params))}) -> {self._type(ty.ret)}"
        if isinstance(ty, TypeCall):
            args = f"[{', '.join(map(self._type, ty.args))}]" if ty.args else ""
            return f"{ty.func.name_hint}{args}"
        if isinstance(ty, RefType):
            return f"ref({self._type(ty.value)})"
        if isinstance(ty, TypeVar):
            return self._type_vars.get(ty, ty.name_hint)
        if isinstance(ty, (AnyType, NeverType)):
            return "_"
        return self._cannot(f"the type {ty}")

    def _tensor_type(self, ty: TensorType) -> str:
        if ty.ndim < 0 or ty.dtype is None:
            return self._cannot(f"the type {ty}")
        if not ty.ndim:
            return ty.dtype
        dims = [None] * ty.ndim if ty.dims is None else ty.dims
        shown = [str(d.value) if isinstance(d, IntImm) else "?" for d in dims]
        return f"Tensor[({_listed(shown)}), {ty.dtype}]"

    # Functions

    def _define(self, var: Var) -> str:
        name, number = var.name, 1
        while name in self._taken:
            name, number = f"{var.name}_{number}", number + 1
        self._taken.add(name)
        self._names[var] = name
        return name

    def _function(self, func: Function, indent: str) -> str:
        type_params = self._type_params(func.type_params)
        params = [f"%{self._define(p)}: {self._type(p.ty)}" for p in func.params]
        ret = self._type(func.ret_ty)
        shown = f" -> {ret}" if _is_known(ret) else ""
        return f"{type_params}({', '.join(params)}){shown} {self._body(func.body, indent)}"

    def _body(self, body: Expr, indent: str) -> str:
        """A block in braces."""
        inner = indent + _INDENT
        lines = []
        if isinstance(body, SeqExpr):
            for block in body.blocks:
                for binding in block.bindings:
                    lines.append(f"{inner}{self._binding(binding, inner)}")
            body = body.body
        lines.append(f"{inner}{self._expr(body, inner)}")
        return "{\n" + "\n".join(lines) + f"\n{indent}}}"

    def _binding(self, binding: Any, indent: str) -> str:
        value = binding.value
        if isinstance(value, Function):  # may call itself
            name = self._define(binding.var)
            return f"let %{name} = fn {self._function(value, indent)};"
        text = self._expr(value, indent)
        annotation = f": {self._type(binding.ty)}" if isinstance(binding, MatchCast) else ""
        return f"let %{self._define(binding.var)}{annotation} = {text};"

    # Expressions

    def _expr(self, expr: Any, indent: str) -> str:
        if isinstance(expr, Var):
            return f"%{self._names[expr]}" if expr in self._names else self._cannot(
                f"the variable {expr.name}")  # fmt: skip
        if isinstance(expr, Constant):
            return self._constant(expr.data)
        if isinstance(expr, GlobalVar):
            return f"@{expr.name_hint}"
        if isinstance(expr, Constructor):
            return expr.name_hint
        if isinstance(expr, Tuple):
            return f"({_listed(self._expr(field, indent) for field in expr.fields)})"
        if isinstance(expr, TupleGetItem):
            return f"{self._expr(expr.tuple_value, indent)}.{expr.index}"
        if isinstance(expr, Call):
            return self._call(expr, indent)
        if isinstance(expr, If):
            then, orelse = (self._body(b, indent) for b in (expr.true_branch, expr.false_branch))
            return f"if ({self._expr(expr.cond, indent)}) {then} else {orelse}"
        if isinstance(expr, Match):
            return self._match(expr, indent)
        if isinstance(expr, Function):
            return f"fn {self._function(expr, indent)}"
        return self._cannot(f"{type(expr).__name__} {expr}")

    def _match(self, expr: Match, indent: str) -> str:
        inner = indent + _INDENT
        lines = []
        for clause in expr.clauses:
            if clause.guard is not None:
                self._cannot("a clause with a guard")
            pattern = self._pattern(clause.lhs)
            lines.append(f"{inner}{pattern} => {self._body(clause.rhs, inner)},\n")
        word = "match" if expr.complete else "match?"
        return f"{word} ({self._expr(expr.data, indent)}) {{\n{''.join(lines)}{indent}}}"

    def _pattern(self, pattern: Pattern) -> str:
        if isinstance(pattern, PatternVar):
            name, ty = self._define(pattern.var), self._type(pattern.var.ty)
            return f"%{name}: {ty}" if _is_known(ty) else f"%{name}"
        if isinstance(pattern, PatternConstructor):
            name = pattern.constructor.name_hint
            fields = ", ".join(map(self._pattern, pattern.patterns))
            return f"{name}({fields})" if fields else name
        if isinstance(pattern, PatternTuple):
            return f"({_listed(map(self._pattern, pattern.patterns))})"
        return "_"

    def _call(self, call: Call, indent: str) -> str:
        if not isinstance(call.op, Op):
            callee = self._expr(call.op, indent)
            if isinstance(call.op, Constructor) and not call.args:
                return callee
            return f"{callee}({', '.join(self._expr(arg, indent) for arg in call.args)})"
        name = call.op.name.removeprefix(PREFIX)
        if name in _REFS:
            return f"{name}({', '.join(self._expr(arg, indent) for arg in call.args)})"
        write = WRITTEN.get(name)
        if write is None:
            return self._cannot(f"the operator {name}")
        try:
            written = write(call)
        except CannotSay as error:
            return self._cannot(f"the operator {name}: {error}")
        parts = [self._expr(arg, indent) for arg in written.args]
        parts += [f"{key}={self._attr(value)}" for key, value in written.attrs.items()]
        text = f"{written.name}({', '.join(parts)})"
        return text if written.dtype is None else f'cast({text}, dtype="{written.dtype}")'

    def _attr(self, value: Any) -> str:
        if isinstance(value, str):
            text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            return f'"{text}"'
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(self._attr, value))}]"
        if isinstance(value, float):
            return f"{value!r}f"
        if value is None or isinstance(value, (bool, int)):
            return str(value)
        return self._cannot(f"an attribute that is a {type(value).__name__}")

    # Constants

    def _constant(self, array: NDArray[Any]) -> str:
        dtype = dtype_name(array.dtype)
        if array.ndim or (dtype not in _SUFFIXES and dtype != "bool"):
            self._constants.append(array)
            return f"meta[{CONSTANT}][{len(self._constants) - 1}]"
        if dtype == "bool":
            return str(bool(array))
        return f"{array[()]!s}{_SUFFIXES[dtype]}"

    def _metadata(self) -> str:
        count = len(self._constants)
        nodes: list[dict[str, Any]] = [
            {"type_key": ""},
            {"type_key": "Map", "keys": [CONSTANT], "data": [2]},
            {"type_key": "Array", "data": list(range(3, 3 + count))},
        ]
        for i in range(count):
            attrs = {"_checked_type_": "0", "data": str(i), "span": "0"}
            nodes.append({"type_key": CONSTANT, "attrs": attrs})
        blobs = [base64.b64encode(tensor_bytes(array)).decode() for array in self._constants]
        return json.dumps({"root": 1, "nodes": nodes, "b64ndarrays": blobs,
                           "attrs": {"tvm_version": "0.9.0"}}, indent=2)  # fmt: skip


def _is_known(ty: str) -> bool:
    """Whether a type as text has no part that is to be inferred."""
    return "_" not in _WORDS.findall(ty)


def _listed(items: Iterable[str]) -> str:
    """Items with commas; a single one has a comma, too."""
    found = list(items)
    return f"{found[0]}," if len(found) == 1 else ", ".join(found)
