"""IRModule: functions by name, and the global infos that they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import relaxvm

from ..errors import did_you_mean
from ..messages import describe
from . import expr
from .adt import Constructor, GlobalTypeVar, TypeData
from .expr import BaseFunc, ExternFunc, GlobalVar
from .node import Attrs, Node

__all__ = ["DummyGlobalInfo", "GlobalInfo", "IRModule", "VDevice"]


class GlobalInfo(Node):
    """Base of what functions of a module share in addition to functions."""

    __slots__ = ()


class DummyGlobalInfo(GlobalInfo):
    """An empty global info, for tests."""

    __slots__ = ()

    def __init__(self) -> None:
        self.span = None


class VDevice(GlobalInfo):
    """A device that tensors are placed on: a target such as "llvm", an index, a memory scope."""

    __slots__ = ("memory_scope", "target", "vdevice_id")
    FIELDS = ("target", "vdevice_id", "memory_scope")

    target: str
    vdevice_id: int
    memory_scope: str

    def __init__(
        self, target: str = "llvm", vdevice_id: int = 0, memory_scope: str = "global"
    ) -> None:
        if isinstance(target, Mapping):
            target = str(target["kind"])
        self.target = target
        self.vdevice_id = vdevice_id
        self.memory_scope = memory_scope
        self.span = None


class IRModule(Node):
    """A program: functions by `GlobalVar`, data types by `GlobalTypeVar`, attributes, and global
    infos by kind.

    A module is the only mutable node (`module[name] = function`); passes modify a `copy`.
    Functions are kept in the order in which they were added.
    """

    __slots__ = ("_by_name", "attrs", "functions", "global_infos", "sources", "type_definitions")
    FIELDS = ("type_definitions", "functions", "attrs", "global_infos")
    DEFAULTS = MappingProxyType({"type_definitions": {}})

    type_definitions: dict[GlobalTypeVar, TypeData]
    functions: dict[GlobalVar, BaseFunc | ExternFunc]
    attrs: Attrs
    global_infos: dict[str, list[GlobalInfo]]
    sources: dict[str, str]
    """Source text of the files that spans refer to, where known.  Not compared."""

    def __init__(
        self,
        functions: Mapping[Any, BaseFunc] | None = None,
        attrs: Mapping[str, Any] | None = None,
        global_infos: Mapping[str, Any] | None = None,
        type_definitions: Mapping[GlobalTypeVar, TypeData] | None = None,
    ) -> None:
        self.type_definitions = {}
        for data in (type_definitions or {}).values():
            self.add_type(data)
        self.functions = {}
        self._by_name: dict[str, GlobalVar] = {}
        self.attrs = Attrs(attrs or {})
        self.global_infos = {name: list(infos) for name, infos in (global_infos or {}).items()}
        self.sources = {}
        self.span = None
        for key, func in (functions or {}).items():
            self[key] = func

    @classmethod
    def from_expr(cls, expr: BaseFunc, functions: Mapping[Any, BaseFunc] | None = None) -> IRModule:
        """Return a module of one function, named by its attribute "global_symbol" or else "main".
        """
        module = cls(functions)
        module[expr.attrs.get("global_symbol", "main")] = expr
        return module

    def copy(self) -> IRModule:
        """Return a new module with the same functions, which may be modified."""
        new = IRModule.__new__(IRModule)
        new.type_definitions = dict(self.type_definitions)
        new.functions = dict(self.functions)
        new._by_name = dict(self._by_name)
        new.attrs = self.attrs
        new.global_infos = {name: list(infos) for name, infos in self.global_infos.items()}
        new.sources = self.sources
        new.span = self.span
        return new

    clone = copy

    def get_global_var(self, name: str) -> GlobalVar:
        """Return the variable of a function.

        Raises:
            ValueError: there is no such function.
        """
        try:
            return self._by_name[name]
        except KeyError:
            hint = did_you_mean(name, self._by_name, "its functions are")
            raise ValueError(f"the module has no function {name!r}{hint}") from None

    def get_global_vars(self) -> list[GlobalVar]:
        """Return the variables of all functions, in order."""
        return list(self.functions)

    def __getitem__(self, var: GlobalVar | str) -> Any:
        return self.functions[self.get_global_var(var if isinstance(var, str) else var.name_hint)]

    # Data types

    @property
    def data_types(self) -> dict[str, relaxvm.adt.DataType]:
        """The data types by name, with their constructors as functions for Python."""
        from .field_types import data_types_of

        return {data.name: data for data in data_types_of(self.type_definitions)}

    def add_type(self, data: TypeData) -> None:
        """Add the definition of a data type.

        Raises:
            ValueError: the module has another data type of this name.
        """
        for header, known in self.type_definitions.items():
            if header.name_hint == data.header.name_hint and known is not data:
                raise ValueError(f"the module has another data type {data.header.name_hint!r}")
        self.type_definitions[data.header] = data

    def get_global_type_var(self, name: str) -> GlobalTypeVar:
        """Return the name of a data type.

        Raises:
            ValueError: there is no such data type.
        """
        known = {header.name_hint: header for header in self.type_definitions}
        if name not in known:
            raise ValueError(f"the module has no data type {name!r}{did_you_mean(name, known)}")
        return known[name]

    def get_type(self, name: str) -> tuple[GlobalTypeVar | Constructor, ...]:
        """Return the name of a data type and its constructors, as Relay's method does."""
        header = self.get_global_type_var(name)
        return (header, *self.type_definitions[header].constructors)

    def __setitem__(self, key: GlobalVar | GlobalTypeVar | str, func: Any) -> None:
        if isinstance(key, GlobalTypeVar):
            if not isinstance(func, TypeData) or func.header is not key:
                raise TypeError(
                    f"IRModule: data type {key.name_hint!r}: expected its TypeData, got "
                    f"{describe(func)}"
                )
            self.add_type(func)
            return
        name = key if isinstance(key, str) else key.name_hint
        if not isinstance(func, (BaseFunc, ExternFunc)):
            raise TypeError(f"IRModule: {name}: expected a function, got {describe(func)}")
        if not name:
            raise ValueError("IRModule: expected the name of a function, got an empty string")
        var = self._by_name.get(name)
        if var is None:
            var = self._by_name[name] = GlobalVar(name) if isinstance(key, str) else key
        elif not isinstance(key, str) and key is not var:
            raise ValueError(f"the module has another GlobalVar named {name!r}")
        if var.ty is None:
            var.ty = func.ty
        self.functions[var] = func

    def __delitem__(self, key: GlobalVar | str) -> None:
        var = self.get_global_var(key if isinstance(key, str) else key.name_hint)
        del self._by_name[var.name_hint]
        del self.functions[var]

    def __contains__(self, key: object) -> bool:
        return (key.name_hint if isinstance(key, GlobalVar) else key) in self._by_name

    def __len__(self) -> int:
        return len(self.functions)

    def __iter__(self) -> Iterator[GlobalVar]:
        return iter(self.functions)

    def items(self) -> Any:
        """Pairs of variable and function, in order."""
        return self.functions.items()

    def functions_items(self) -> list[tuple[GlobalVar, BaseFunc | ExternFunc]]:
        """Pairs of variable and function, by name, as TVM's method of this name returns them."""
        return sorted(self.functions.items(), key=lambda item: item[0].name_hint)

    def update_func(self, var: GlobalVar, func: BaseFunc) -> None:
        """Replace or add a function."""
        self[var] = func

    def update_global_info(self, name: str, global_info: Any) -> None:
        """Set the global infos of a kind."""
        self.global_infos[name] = list(global_info)

    def update(self, other: IRModule | Mapping[GlobalVar, BaseFunc]) -> None:
        """Add all functions of another module, replacing those of the same variable, and its data
        types."""
        if isinstance(other, IRModule):
            for data in other.type_definitions.values():
                self.add_type(data)
        for var, func in other.items():
            self[var.name_hint] = func

    def unique_name(self, name: str) -> str:
        """Return `name`, with the least number appended that makes it unique if it is taken."""
        if name not in self._by_name:
            return name
        number = 1
        while f"{name}{number}" in self._by_name:
            number += 1
        return f"{name}{number}"

    def with_attr(self, attr_key: str, attr_value: Any) -> IRModule:
        """Return the module with an attribute set."""
        new = self.copy()
        new.attrs = Attrs({**self.attrs, attr_key: attr_value})
        return new

    def with_attrs(self, attr_map: Mapping[str, Any]) -> IRModule:
        """Return the module with these attributes and no others."""
        new = self.copy()
        new.attrs = Attrs(attr_map)
        return new

    def get_attr(self, attr_key: str) -> Any:
        """Return an attribute, or None."""
        return self.attrs.get(attr_key)

    def without_attr(self, attr_key: str) -> IRModule:
        """Return the module without an attribute."""
        return self.with_attrs({k: v for k, v in self.attrs.items() if k != attr_key})


# `typing.get_type_hints` looks up the annotations of a class in its own module, which is before
# this one.
vars(expr)["VDevice"] = VDevice
