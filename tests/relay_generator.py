"""Random Relay programs that are well typed and end.

A type is a text: ``int32``, ``bool``, ``float32``, ``(A, B)``, ``List[A]``, ``Option[A]`` or
``fn (A) -> B``.
"""

from __future__ import annotations

import random

__all__ = ["random_program"]

_SCALARS = ("int32", "int32", "bool", "float32")


class _Generator:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._count = 0
        self._graph = 0
        self._functions: list[tuple[str, str, str]] = []

    def program(self) -> str:
        """A program; `main` takes an int32."""
        texts = []
        for i in range(self._rng.randrange(3)):
            param, result = self._type(2), self._type(2)
            body = self._block(result, {"x": param}, 3)
            note = f" -> {result}" if self._rng.random() < 0.6 else ""
            texts.append(f"def @f{i}(%x: {param}){note} {{\n{body}\n}}")
            self._functions.append((f"@f{i}", param, result))
        body = self._block(self._type(2), {"n": "int32"}, 4)
        texts.append(f"def @main(%n: int32) {{\n{body}\n}}")
        self._rng.shuffle(texts)
        return "\n".join(texts)

    def _type(self, depth: int) -> str:
        kind = self._rng.randrange(8)
        if not depth or kind < 4:
            return self._rng.choice(_SCALARS)
        if kind < 6:
            return f"({self._type(max(depth - 1, 0))}, {self._type(max(depth - 1, 0))})"
        return f"{self._rng.choice(('List', 'Option'))}[{self._type(max(depth - 1, 0))}]"

    def _name(self) -> str:
        # Names are used again, so that they hide others.
        self._count += 1
        return f"v{self._count % 7}"

    # Blocks

    def _block(self, ty: str, scope: dict[str, str], depth: int) -> str:
        """Statements and a result; `scope` has variables and graph variables with their types."""
        scope, lines = dict(scope), []
        for _ in range(self._rng.randrange(3) if depth else 0):
            kind = self._rng.random()
            value_ty = self._type(2)
            if kind < 0.5:
                value = self._expr(value_ty, scope, max(depth - 1, 0))
                name = self._name()
                note = f": {value_ty}" if self._rng.random() < 0.5 else ""
                lines.append(f"let %{name}{note} = {value};")
                scope[name] = value_ty
            elif kind < 0.8:
                value = self._expr(value_ty, scope, max(depth - 1, 0))
                self._graph += 1
                lines.append(f"%{self._graph} = {value};")
                scope[str(self._graph)] = value_ty
            else:
                param, result = self._type(1), self._type(1)
                self._count += 1
                name, inner = f"f{self._count}", self._name()  # it may call itself by its name
                body = self._block(result, {**scope, inner: param}, max(depth - 1, 0))
                lines.append(f"let %{name} = fn (%{inner}: {param}) {{ {body} }};")
                scope[name] = f"fn {param} -> {result}"
        lines.append(self._expr(ty, scope, depth))
        return "\n".join(lines)

    # Expressions

    def _expr(self, ty: str, scope: dict[str, str], depth: int) -> str:
        known = [f"%{name}" for name, found in scope.items() if found == ty]
        if known and self._rng.random() < (0.4 if depth else 0.9):
            return self._rng.choice(known)
        if depth and self._rng.random() < 0.5:
            return self._compound(ty, scope, max(depth - 1, 0))
        return self._made(ty, scope, depth)

    def _compound(self, ty: str, scope: dict[str, str], depth: int) -> str:
        kind = self._rng.randrange(5)
        if kind == 0:
            then, orelse = (self._block(ty, scope, depth) for _ in range(2))
            return f"if ({self._expr('bool', scope, depth)}) {{ {then} }} else {{ {orelse} }}"
        if kind == 1:
            return self._match(ty, scope, depth)
        calls = [f for f in self._functions if f[2] == ty]
        calls += [(f"%{n}", *t.removeprefix("fn ").split(" -> ")) for n, t in scope.items()
                  if t.startswith("fn ") and t.endswith(f" -> {ty}")]  # fmt: skip
        if kind == 2 and calls:
            name, param, _ = self._rng.choice(calls)
            return f"{name}({self._expr(param, scope, depth)})"
        if kind == 3:
            other, first = self._type(1), self._rng.random() < 0.5
            pair = [ty, other] if first else [other, ty]
            fields = ", ".join(self._expr(each, scope, depth) for each in pair)
            return f"({fields}).{0 if first else 1}"
        return f"{{ {self._block(ty, scope, depth)} }}"

    def _match(self, ty: str, scope: dict[str, str], depth: int) -> str:
        element = self._type(1)
        name, rest = self._name(), self._name()
        while rest == name:
            rest = self._name()
        if self._rng.random() < 0.5:
            value = self._annotated(f"List[{element}]", scope, depth)
            inner = {**scope, name: element, rest: f"List[{element}]"}
            clauses = [f"Cons(%{name}, %{rest}) => {{ {self._block(ty, inner, depth)} }}"]
            if self._rng.random() < 0.3:
                one = f"Cons(%{name}, Nil) => {{ {self._block(ty, {**scope, name: element}, 0)} }}"
                clauses.insert(0, one)
            clauses.append(f"Nil => {{ {self._block(ty, scope, depth)} }}")
        else:
            value = self._annotated(f"Option[{element}]", scope, depth)
            inner = {**scope, name: element}
            clauses = [f"Some(%{name}) => {{ {self._block(ty, inner, depth)} }}",
                       f"_ => {{ {self._block(ty, scope, depth)} }}"]  # fmt: skip
        return f"match ({value}) {{ {', '.join(clauses)} }}"

    def _annotated(self, ty: str, scope: dict[str, str], depth: int) -> str:
        """An expression whose type is known, even if it is Nil or None."""
        return f"{{ let %value: {ty} = {self._expr(ty, scope, depth)}; %value }}"

    def _made(self, ty: str, scope: dict[str, str], depth: int) -> str:
        """A value of a type, from parts."""
        rng, less = self._rng, max(depth - 1, 0)
        if ty in _SCALARS and depth and rng.random() < 0.7:
            return self._operation(ty, scope, max(depth - 1, 0))
        if ty == "int32":
            return str(rng.randrange(-3, 9))
        if ty == "float32":
            return f"{rng.randrange(9)}.5f"
        if ty == "bool":
            return rng.choice(("True", "False"))
        if ty.startswith("("):
            a, b = _pair(ty)
            return f"({self._expr(a, scope, less)}, {self._expr(b, scope, less)})"
        element = ty[ty.index("[") + 1 : -1]
        if ty.startswith("Option"):
            if rng.random() < 0.7:
                return f"Some({self._expr(element, scope, less)})"
            return "None"
        if not depth or rng.random() < 0.3:
            return "Nil"
        return f"Cons({self._expr(element, scope, less)}, {self._expr(ty, scope, less)})"

    def _operation(self, ty: str, scope: dict[str, str], depth: int) -> str:
        rng = self._rng
        if ty == "bool":
            a, b = (self._expr("int32", scope, depth) for _ in range(2))
            return f"({a} {rng.choice(('<', '<=', '==', '!=', '>', '>='))} {b})"
        a, b = (self._expr(ty, scope, depth) for _ in range(2))
        if rng.random() < 0.2:
            return f"maximum({a}, {b})"
        if rng.random() < 0.2:
            return f"negative({a})"
        return f"({a} {rng.choice('+-*')} {b})"


def _pair(ty: str) -> tuple[str, str]:
    """The two parts of ``(A, B)``."""
    depth = 0
    for i, char in enumerate(ty):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 1:
            return ty[1:i], ty[i + 2 : -1]
    raise AssertionError(ty)


def random_program(rng: random.Random) -> str:
    """Return a program of definitions; ``@main`` takes an int32.  It needs Relay's prelude."""
    return _Generator(rng).program()
