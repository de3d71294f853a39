"""What names refer to, and where graph bindings are evaluated.

``%0 = value`` names a node of the program's graph, not a step: the node is evaluated where it is
used.  So a binding moves to the innermost block that contains all its uses, in front of the first
statement there with a use; in a branch, it is evaluated only if the branch is taken.  Relay prints
a node where it is first used, so one that is defined in a branch may be used after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from ...core.checkpoints import checkpoint
from ...errors import FormatError, NestingError, did_you_mean
from . import syntax
from .metadata import StoredObject
from .operators import IGNORED, OPERATORS
from .source import MOST_LEVELS, Place

__all__ = ["Definitions", "resolve"]


class Definitions:
    """The global names of a program, of all its texts.

    Attributes:
        types: data types by name; constructors and functions likewise.
    """

    def __init__(self) -> None:
        self.types: dict[str, syntax.TypeDef] = {}
        self.constructors: dict[str, syntax.ConstructorDef] = {}
        self.functions: dict[str, syntax.FunctionDef] = {}

    def add(self, module: syntax.Module) -> None:
        """Add the definitions of a text.

        Raises:
            ParseError: a name is defined already.
        """
        for ty in module.types:
            _define(self.types, ty.name, ty, f"type {ty.name}", ty.place)
            for each in ty.constructors:
                _define(self.constructors, each.name, each, f"constructor {each.name}", each.place)
        for func in module.functions:
            _define(self.functions, func.name, func, f"function @{func.name}", func.place)


def _define(names: dict, name: str, made: object, what: str, place: Place) -> None:  # type: ignore[type-arg]
    old = names.setdefault(name, made)
    if old is not made:
        place.fail(f"{what} is defined twice, first at {old.place.source.span(old.place.start, 0)}")


class _Level:
    """A block, for the search of places.

    Attributes:
        outer: the block around it, or the graph binding in whose value it is.
        position: of its statement in the outer block.
        is_open: whether the names in it are being resolved.
    """

    __slots__ = ("block", "depth", "is_open", "moved", "outer", "position")

    def __init__(self, block: syntax.Block, outer: _Level | _Moved | None, position: int) -> None:
        self.block = block
        self.outer = outer
        self.position = position
        self.depth = -1
        self.is_open = True
        self.moved: list[_Moved] = []


class _Moved:
    """A graph binding.

    Attributes:
        order: of bindings in one place; after those that its value uses.
        home: the block where it stands.
        uses: the blocks and statements that use it directly, or the binding that does.
        level, position: its place, once known.
    """

    __slots__ = ("bind", "home", "level", "order", "position", "uses")

    def __init__(self, bind: syntax.Bind, home: _Level) -> None:
        self.bind = bind
        self.order = 0
        self.home = home
        self.uses: list[tuple[_Level | _Moved, int]] = []
        self.level: _Level | None = None
        self.position = 0


def _around(level: _Level) -> tuple[_Level, int] | None:
    """The block around a block, and the statement there; through graph bindings at their places."""
    outer, position = level.outer, level.position
    if isinstance(outer, _Moved):
        assert outer.level is not None
        return outer.level, outer.position
    return None if outer is None else (outer, position)


def _depth(level: _Level) -> int:
    chain: list[_Level] = []
    at: _Level | None = level
    while at is not None and at.depth < 0:
        chain.append(at)
        around = _around(at)
        at = None if around is None else around[0]
    depth = -1 if at is None else at.depth
    for each in reversed(chain):
        depth += 1
        each.depth = depth
    return level.depth


def _place(moved: _Moved) -> bool:
    """Find the place of a graph binding whose later ones have theirs; False if it has no uses."""
    common: tuple[_Level, int] | None = None
    for user, position in moved.uses:
        if isinstance(user, _Moved):
            if user.level is None:
                continue  # it is not used itself
            use = user.level, user.position
        else:
            root = _unused(user)
            if root:
                continue
            use = user, position
        common = use if common is None else _meet(common, use)
    if common is None:
        return False
    moved.level, moved.position = common
    if _depth(moved.level) > MOST_LEVELS:
        place = moved.bind.place
        place.source.fail(place.start, place.end, f"%{moved.bind.number} is in a function in a "
                          f"function and so on: expected at most {MOST_LEVELS} levels",
                          NestingError)  # fmt: skip
    moved.level.moved.append(moved)
    return True


def _unused(level: _Level) -> bool:
    """Whether a block is in a graph binding that is not used."""
    at = level
    while True:
        if isinstance(at.outer, _Moved):
            if at.outer.level is None:
                return True
            at = at.outer.level
        elif at.outer is None:
            return False
        else:
            at = at.outer


def _meet(a: tuple[_Level, int], b: tuple[_Level, int]) -> tuple[_Level, int]:
    (x, i), (y, j) = a, b
    while x is not y:
        if _depth(x) >= _depth(y):
            around = _around(x)
            assert around is not None
            x, i = around
        else:
            around = _around(y)
            assert around is not None
            y, j = around
    return x, min(i, j)


def resolve(
    function: syntax.Function,
    definitions: Definitions,
    constants: Mapping[str, Sequence[StoredObject]],
) -> None:
    """Set the targets of all names in a function, and move its graph bindings to their places.

    Args:
        constants: the metadata section of the function's text.

    Raises:
        ParseError: a name is not defined here, or defined twice.
    """
    _Resolver(definitions, constants).function(function, None, 0)


class _Resolver:
    def __init__(
        self, definitions: Definitions, constants: Mapping[str, Sequence[StoredObject]]
    ) -> None:
        self._definitions = definitions
        self._constants = constants
        self._locals: dict[str, syntax.Binder] = {}
        self._graph: dict[int, _Moved] = {}
        self._all: list[_Moved] = []
        self._levels: list[_Level] = []
        self._sites: dict[syntax.Binder, tuple[_Level, int]] = {}
        """Where a variable can be used: in a block, from a statement on."""
        self._params: list[syntax.Binder] = []
        """Variables of the block that is entered next: parameters, or those of a pattern."""
        self._is_outside = False
        """Whether a graph binding is used outside of the block where it stands."""

    @contextmanager
    def _scope(self) -> Iterator[tuple[dict[str, syntax.Binder | None], dict[int, _Moved | None]]]:
        """Names that are defined inside are undone at the end: what they were, by name.  A graph
        variable keeps its meaning if it had none before."""
        names: dict[str, syntax.Binder | None] = {}
        graph: dict[int, _Moved | None] = {}
        yield names, graph
        _undo(self._locals, names)
        _undo(self._graph, {number: old for number, old in graph.items() if old is not None})

    def _bind(self, var: syntax.Binder, names: dict[str, syntax.Binder | None]) -> None:
        names.setdefault(var.name, self._locals.get(var.name))
        self._locals[var.name] = var

    def _bind_for_next(self, var: syntax.Binder, names: dict[str, syntax.Binder | None]) -> None:
        """Define a variable of the block that is entered next."""
        self._bind(var, names)
        self._params.append(var)

    def function(
        self, func: syntax.Function, outer: _Level | _Moved | None, position: int
    ) -> None:
        with self._scope() as (names, _):
            seen: set[str] = set()
            for param in func.params:
                if param.name in seen and param.name != "_":
                    param.place.fail(f"parameter %{param.name} is defined twice")
                seen.add(param.name)
                self._bind_for_next(param, names)
            self._block(func.body, outer, position)
        if outer is None:
            self._move()

    def _block(self, block: syntax.Block, outer: _Level | _Moved | None, position: int) -> None:
        level = _Level(block, outer, position)
        self._levels.append(level)
        params, self._params = self._params, []
        for var in params:
            self._sites[var] = level, 0
        with self._scope() as (names, graph):
            for var in block.free_vars:  # those of an expression have become parameters
                var.place.fail(f"free_var %{var.name}: expected in an expression without "
                               "definitions, outside of its blocks; it has no value here"
                               )  # fmt: skip
            for i, statement in enumerate(block.statements):
                checkpoint()
                if isinstance(statement, syntax.Bind):
                    if statement.number in graph:
                        statement.place.fail(f"%{statement.number} is defined twice in a block")
                    moved = _Moved(statement, level)
                    self._expr(statement.value, moved, i)
                    moved.order = len(self._all)
                    self._all.append(moved)
                    graph[statement.number] = self._graph.get(statement.number)
                    self._graph[statement.number] = moved
                elif isinstance(statement, syntax.Let):
                    if isinstance(statement.value, syntax.Function):  # may call itself
                        self._bind(statement.var, names)
                        self._expr(statement.value, level, i)
                    else:
                        self._expr(statement.value, level, i)
                        self._bind(statement.var, names)
                    self._sites[statement.var] = level, i + 1
                else:
                    self._expr(statement.value, level, i)
            self._expr(block.result, level, len(block.statements))
        level.is_open = False

    def _expr(self, expr: syntax.Expr, user: _Level | _Moved, at: int) -> None:
        if isinstance(expr, syntax.LocalName):
            expr.target = self._locals.get(expr.name)
            if expr.target is None:
                expr.place.fail(f"unknown variable %{expr.name}"
                                f"{did_you_mean(expr.name, self._locals)}")  # fmt: skip
        elif isinstance(expr, syntax.GraphName):
            moved = self._graph.get(expr.number)
            if moved is None:
                expr.place.fail(f"unknown graph variable %{expr.number}: it is not defined before")
            expr.target = moved.bind
            moved.uses.append((user, at))
            self._is_outside = self._is_outside or not moved.home.is_open
        elif isinstance(expr, syntax.GlobalName):
            functions = self._definitions.functions
            expr.target = functions.get(expr.name)
            if expr.target is None:
                hint = did_you_mean(expr.name, functions)
                expr.place.fail(f"unknown function @{expr.name}{hint}")
        elif isinstance(expr, syntax.MetaRef):
            expr.data = self._tensor(expr)
        elif isinstance(expr, syntax.Name):
            expr.target = self._definitions.constructors.get(expr.name)
        elif isinstance(expr, syntax.Function):
            self.function(expr, user, at)
        elif isinstance(expr, syntax.Block):
            self._block(expr, user, at)
        elif isinstance(expr, syntax.If):
            self._expr(expr.cond, user, at)
            self._block(expr.then, user, at)
            self._block(expr.orelse, user, at)
        elif isinstance(expr, syntax.Match):
            self._expr(expr.value, user, at)
            for clause in expr.clauses:
                with self._scope() as (names, _):
                    self._pattern(clause.pattern, names, set())
                    self._block(clause.body, user, at)
        elif isinstance(expr, syntax.Call):
            self._expr(expr.callee, user, at)
            self._attributes(expr)
            for arg in expr.args:
                self._expr(arg, user, at)
        elif isinstance(expr, syntax.Tuple):
            for each in expr.fields:
                self._expr(each, user, at)
        elif isinstance(expr, syntax.Project):
            self._expr(expr.value, user, at)
        elif isinstance(expr, syntax.RefOp):
            for arg in expr.args:
                self._expr(arg, user, at)

    def _attributes(self, call: syntax.Call) -> None:
        """Replace references to the metadata section in the attributes of an operator's call."""
        name = call.callee
        found = isinstance(name, syntax.Name) and name.target is None and OPERATORS.get(name.name)
        if not found:
            return
        if call.meta is not None:
            stored = self._object(call.meta)
            try:
                call.attrs = stored.attributes(found.plain)
            except FormatError as error:
                call.meta.place.fail(f"meta[{call.meta.kind}][{call.meta.index}]: {error}")
        elif any(isinstance(value, syntax.MetaRef) for value in call.attrs.values()):
            call.attrs = {key: self._value(key, value) for key, value in call.attrs.items()}

    def _value(self, key: str, value: Any) -> Any:
        if not isinstance(value, syntax.MetaRef) or key in IGNORED or "device" in key:
            return value
        try:
            return self._object(value).value()
        except FormatError as error:
            value.place.fail(f"attribute {key!r}: {error}")

    def _object(self, ref: syntax.MetaRef) -> StoredObject:
        known = self._constants.get(ref.kind, ())
        if not known:
            kinds = ", ".join(self._constants) or "none"
            ref.place.fail(f"meta[{ref.kind}][{ref.index}]: the metadata section has no objects of "
                           f"this kind; its kinds are: {kinds}")  # fmt: skip
        if ref.index >= len(known):
            ref.place.fail(f"meta[{ref.kind}][{ref.index}]: expected an index below {len(known)}")
        return known[ref.index]

    def _tensor(self, ref: syntax.MetaRef) -> NDArray[Any]:
        found = self._object(ref).tensor
        if found is None:
            ref.place.fail(f"meta[{ref.kind}][{ref.index}]: expected a tensor, relay.Constant")
        return found

    def _pattern(
        self,
        pattern: syntax.Pattern,
        names: dict[str, syntax.Binder | None],
        seen: set[str],
    ) -> None:
        if isinstance(pattern, syntax.VarPattern):
            if pattern.var.name in seen and pattern.var.name != "_":
                pattern.place.fail(f"%{pattern.var.name} is defined twice in a pattern")
            seen.add(pattern.var.name)
            self._bind_for_next(pattern.var, names)
        elif isinstance(pattern, syntax.TuplePattern):
            for each in pattern.fields:
                self._pattern(each, names, seen)
        elif isinstance(pattern, syntax.ConstructorPattern):
            known = self._definitions.constructors
            pattern.target = known.get(pattern.name)
            if pattern.target is None:
                pattern.place.fail(f"unknown constructor {pattern.name}"
                                   f"{did_you_mean(pattern.name, known)}; a variable is "
                                   f"%{pattern.name}")  # fmt: skip
            wanted = len(pattern.target.fields)
            if len(pattern.fields) != wanted:
                pattern.place.fail(f"constructor {pattern.name} has {wanted} "
                                   f"field{'s' * (wanted != 1)}, got {len(pattern.fields)} "
                                   "patterns")  # fmt: skip
            for each in pattern.fields:
                self._pattern(each, names, seen)

    def _move(self) -> None:
        # From the last one on: a place depends on those of later bindings, and of that whose value
        # a binding is in.
        for moved in reversed(self._all):
            checkpoint()
            _place(moved)
        if self._is_outside:
            for moved in self._all:
                self._check_names(moved)
        for level in self._levels:
            statements = level.block.statements
            if not level.moved and not any(isinstance(s, syntax.Bind) for s in statements):
                continue
            here: dict[int, list[_Moved]] = {}
            for moved in sorted(level.moved, key=lambda m: m.order):
                here.setdefault(moved.position, []).append(moved)
            new: list[syntax.Statement] = []
            for i in range(len(statements) + 1):
                new += [moved.bind for moved in here.get(i, ())]
                if i < len(statements) and not isinstance(statements[i], syntax.Bind):
                    new.append(statements[i])
            level.block.statements = new

    def _check_names(self, moved: _Moved) -> None:
        """Check that the variables in a graph binding can be used at its place."""
        if moved.level is None:
            return
        work: list[Any] = [moved.bind.value]
        while work:
            node = work.pop()
            if isinstance(node, syntax.LocalName) and node.target in self._sites:
                site, first = self._sites[node.target]
                if not _is_inside(site, moved) and not _is_known(site, first, moved):
                    moved.bind.place.fail(
                        f"%{moved.bind.number} is used where %{node.name}, which is in its value, "
                        "is not defined"
                    )
            elif isinstance(node, syntax.Block):  # its graph bindings are checked for themselves
                work += [s.value for s in node.statements if not isinstance(s, syntax.Bind)]
                work.append(node.result)
            else:
                work += syntax.parts_of(node)


def _is_inside(level: _Level, moved: _Moved) -> bool:
    """Whether a block is in the value of a graph binding."""
    at: _Level | None = level
    while at is not None:
        if at.outer is moved:
            return True
        at = at.outer.level if isinstance(at.outer, _Moved) else at.outer
    return False


def _is_known(site: _Level, first: int, moved: _Moved) -> bool:
    """Whether a variable that is defined in a block can be used at the place of a binding."""
    at: tuple[_Level, int] | None = (moved.level, moved.position) if moved.level else None
    while at is not None:
        level, position = at
        if level is site:
            return position >= first
        at = _around(level)
    return False


def _undo(names: dict, old: Mapping) -> None:  # type: ignore[type-arg]
    for name, value in old.items():
        if value is None:
            del names[name]
        else:
            names[name] = value
