"""Rewriting modules: replacing layers and parameters before they are exported."""

from __future__ import annotations

from typing import Any

from .core import (
    Effect,
    Module,
    ModuleDict,
    ModuleList,
    Parameter,
    ParameterDict,
    ParameterList,
)

__all__ = ["Mutator"]


class Mutator:
    """Visits a module and all that it contains, and replaces each by what the method returns.

    Override ``visit_module`` and the others; each gets the full name, such as "layers.0.weight",
    and the node.  Call the method of the base class to visit what the node contains.
    """

    def visit(self, name: str, node: Any) -> Any:
        """Visit the children of a node, in place, and return it."""
        prefix = f"{name}." if name else ""
        for key, child in list(node.children()):
            method = self._method_of(child)
            if method is None:
                continue
            new = method(prefix + key, child)
            if isinstance(node, (ModuleList, ParameterList)):
                node[int(key)] = new
            elif isinstance(node, (ModuleDict, ParameterDict)):
                node[key] = new
            else:
                setattr(node, key, new)
        return node

    def _method_of(self, child: Any) -> Any:
        for kind, method in (
            (ParameterDict, self.visit_parameterdict),
            (ParameterList, self.visit_parameterlist),
            (ModuleDict, self.visit_moduledict),
            (ModuleList, self.visit_modulelist),
            (Module, self.visit_module),
            (Effect, self.visit_effect),
            (Parameter, self.visit_param),
        ):
            if isinstance(child, kind):
                return method
        return None

    def visit_module(self, name: str, node: Module) -> Any:
        """A module of no other kind."""
        return self.visit(name, node)

    def visit_effect(self, name: str, node: Effect) -> Any:
        """An effect."""
        return node

    def visit_param(self, name: str, node: Parameter) -> Any:
        """A parameter."""
        return node

    def visit_moduledict(self, name: str, node: ModuleDict) -> Any:
        """A dict of modules."""
        return self.visit(name, node)

    def visit_modulelist(self, name: str, node: ModuleList) -> Any:
        """A list of modules."""
        return self.visit(name, node)

    def visit_parameterdict(self, name: str, node: ParameterDict) -> Any:
        """A dict of parameters."""
        return self.visit(name, node)

    def visit_parameterlist(self, name: str, node: ParameterList) -> Any:
        """A list of parameters."""
        return self.visit(name, node)
