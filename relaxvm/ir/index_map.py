"""Maps of the indices of a tensor in one layout to those in another.

Most maps are sums of digits: ``(n, c // 4, h, w, c % 4)`` splits c into a digit for blocks and one
for the places of a block.  A map is a bijection if every index of the result is a number written
with some digits, and every index of the source is made of all of its own, once each.

Source: ``tvm.tirx.IndexMap`` of apache-tvm 0.27.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from .arith import prove_equal, simplify, substitute
from .expr import Expr, IntImm, Var
from .node import Node
from .parts import count_parts
from .prim import Add, FloorDiv, FloorMod, Mul, Sub, as_scalar, logical_or

__all__ = ["IndexMap", "is_affine"]


class _Digit(NamedTuple):
    """``(var // lower) % extent * scale``"""

    var: Var
    lower: int
    extent: Any
    """An int, or a scalar that is not known."""
    scale: int


class IndexMap(Node):
    """A map of indices.

    Attributes:
        initial_indices: variables for the indices of the source.
        final_indices: expressions of them, the indices of the result.
        inverse_index_map: the map back, if it was given.
    """

    __slots__ = ("_parts", "final_indices", "initial_indices", "inverse_index_map")
    FIELDS = ("initial_indices", "final_indices", "inverse_index_map")
    DEFS = frozenset({"initial_indices"})

    initial_indices: tuple[Var, ...]
    final_indices: tuple[Expr, ...]
    inverse_index_map: IndexMap | None

    def __init__(
        self,
        initial_indices: Sequence[Var],
        final_indices: Sequence[Any],
        inverse_index_map: IndexMap | Callable[..., Any] | None = None,
    ) -> None:
        self.initial_indices = tuple(initial_indices)
        self.final_indices = tuple([_as_index(e, self.initial_indices) for e in final_indices])
        if inverse_index_map is not None and not isinstance(inverse_index_map, IndexMap):
            inverse_index_map = IndexMap.from_func(inverse_index_map)
        self.inverse_index_map = inverse_index_map
        self.span = None
        count_parts(self)

    @staticmethod
    def from_func(
        mapping_function: Callable[..., Any],
        ndim: int | None = None,
        inverse_index_map: IndexMap | Callable[..., Any] | None = None,
        *,
        index_dtype: str = "int64",
    ) -> IndexMap:
        """Make a map of a function from indices to an index or several.

        Args:
            ndim: the number of indices, if the function takes ``*indices``.
            index_dtype: data type of the variables.

        Raises:
            ValueError: the function takes ``**indices``, or ``*indices`` without `ndim`.
            TypeError: it returns something other than scalars.
        """
        variables: list[Var] = []
        keywords: dict[str, Var] = {}
        rest: str | None = None
        for name, param in inspect.signature(mapping_function).parameters.items():
            if param.kind is param.VAR_POSITIONAL:
                rest = name
            elif param.kind is param.KEYWORD_ONLY:
                keywords[name] = Var(name, index_dtype)
            elif param.kind is param.VAR_KEYWORD:
                raise ValueError(f"IndexMap.from_func: the function takes **{name}")
            else:
                variables.append(Var(name, index_dtype))
        if rest is not None:
            if ndim is None:
                raise ValueError(f"IndexMap.from_func: the function takes *{rest}: ndim is needed")
            count = ndim - len(variables) - len(keywords)
            variables += [Var(f"{rest}_{k}", index_dtype) for k in range(count)]
        made = mapping_function(*variables, **keywords)
        finals = list(made) if isinstance(made, (list, tuple)) else [made]
        for each in finals:
            if not isinstance(each, (Expr, int)):
                raise TypeError(
                    "IndexMap.from_func: expected scalars from the function, got "
                    f"{type(each).__name__}"
                )
        return IndexMap([*variables, *keywords.values()], finals, inverse_index_map)

    def __repr__(self) -> str:
        names = ", ".join(var.name for var in self.initial_indices)
        return f"IndexMap(lambda {names}: ({', '.join(map(str, self.final_indices))}))"

    __str__ = __repr__

    # What the map does

    def map_indices(self, indices: Sequence[Any], analyzer: Any = None) -> list[Expr]:
        """The indices that others are mapped to.

        Raises:
            ValueError: their number is another one.
        """
        values = self._values(indices, "indices")
        simple = simplify if analyzer is None else analyzer.simplify
        return [simple(substitute(e, values)) for e in self.final_indices]

    def map_shape(self, shape: Sequence[Any], analyzer: Any = None) -> list[Expr]:
        """A shape that has room for all indices that those of a shape are mapped to.

        Raises:
            ValueError: the number of dimensions is another one, or the expressions are none of
                sums, products, quotients and remainders.
        """
        dims = self._values(shape, "dimensions")
        simple = simplify if analyzer is None else analyzer.simplify
        tiles = [_tile(e) for e in self.final_indices]
        if None in tiles:
            return [simple(_greatest(e, dims) + 1) for e in self.final_indices]
        known = [tile for tile in tiles if tile is not None]
        padded = {tile.var: _in_whole_tiles(tile.var, known, dims[tile.var]) for tile in known}
        return [_extent_of(tile, padded[tile.var]) for tile in known]

    def map_tensor(self, arr_src: Any) -> Any:
        """An array in the new layout; places that nothing is mapped to hold zeros."""
        array = np.asarray(arr_src)
        shape = [int(dim) for dim in self.map_shape(array.shape)]  # type: ignore[call-overload]
        result = np.zeros(shape, array.dtype)
        result[tuple(self.map_arrays(np.indices(array.shape)))] = array
        return result

    def map_arrays(self, indices: Any) -> list[Any]:
        """The indices that arrays of indices, one for each dimension, are mapped to.

        Raises:
            ValueError: the expressions are none of sums, products, quotients and remainders.
        """
        values = dict(zip(self.initial_indices, indices, strict=True))
        return [np.broadcast_to(_evaluate(e, values), indices[0].shape)
                for e in self.final_indices]  # fmt: skip

    def is_equivalent_to(self, other_map: IndexMap, analyzer: Any = None) -> bool:
        """Whether both map all indices to the same ones, as far as can be proved."""
        if len(self.initial_indices) != len(other_map.initial_indices):
            return False
        if len(self.final_indices) != len(other_map.final_indices):
            return False
        others = other_map.map_indices(self.initial_indices)
        equal = prove_equal if analyzer is None else analyzer.prove_equal
        return all(map(equal, self.final_indices, others))

    def inverse(self, shape: Sequence[Any], analyzer: Any = None) -> IndexMap:
        """The map back.

        Raises:
            ValueError: the map is not known to be a bijection from the indices of this shape.
        """
        if self.inverse_index_map is not None:
            return self.inverse_index_map
        numbers = self._numbers([_extent(dim) for dim in shape])
        if numbers is None:
            dims = ", ".join(str(getattr(d, "value", d)) for d in map(_extent, shape))
            raise ValueError(f"{self} is no bijection from the indices of shape ({dims})")
        variables = [Var(f"i{k}", self.initial_indices[0].ty) for k in range(len(numbers))]
        parts: dict[Var, Any] = {}
        for var, digits in zip(variables, numbers, strict=True):
            for digit in digits:
                value: Any = var // digit.scale if digit.scale > 1 else var
                if digit is not digits[-1]:
                    value = value % digit.extent
                value = value * digit.lower if digit.lower > 1 else value
                parts[digit.var] = parts[digit.var] + value if digit.var in parts else value
        finals = [parts.get(var, as_scalar(0, var.ty.dtype)) for var in self.initial_indices]
        return IndexMap(variables, finals, self)

    def non_surjective_inverse(
        self, shape: Sequence[Any], analyzer: Any = None
    ) -> tuple[IndexMap, Expr]:
        """The map back from all places of the result, and a condition on these (the indices of the
        map back): whether nothing is mapped to a place.

        Raises:
            ValueError: the map is not known to be one to one.
        """
        dims = [_extent(dim) for dim in shape]
        if self.inverse_index_map is not None or self.is_bijective(dims):
            return self.inverse(dims), as_scalar(False)
        pairs = zip(self.initial_indices, dims, strict=True)
        wide = [_padded(var, dim, self.final_indices) for var, dim in pairs]
        inverse = self.inverse(wide)
        outside: Expr = as_scalar(False)
        for place, dim, padded in zip(inverse.final_indices, dims, wide, strict=True):
            if padded is not dim:
                outside = logical_or(outside, place >= dim)
        return inverse, outside

    def is_bijective(self, shape: Sequence[Any]) -> bool:
        """Whether the map is known to be a bijection from the indices of a shape to those of
        `map_shape`."""
        return self._numbers([_extent(dim) for dim in shape]) is not None

    def _values(self, given: Sequence[Any], what: str) -> dict[Var, Any]:
        if len(given) != len(self.initial_indices):
            raise ValueError(
                f"{self}: expected {len(self.initial_indices)} {what}, got {len(given)}"
            )
        return {
            var: _as_index(value, [var])
            for var, value in zip(self.initial_indices, given, strict=True)
        }

    def _numbers(self, shape: Sequence[Any]) -> list[list[_Digit]] | None:
        """The digits of each index of the result, the lowest first, if the map is a bijection."""
        dims = {
            var: getattr(dim, "value", dim)
            for var, dim in zip(self.initial_indices, shape, strict=True)
        }
        numbers: list[list[_Digit]] = []
        for e in self.final_indices:
            digits = _digits(e, dims)
            if digits is None or (digits and digits[0].scale != 1):
                return None
            numbers.append(digits)
        for var, dim in dims.items():
            own = sorted((d for n in numbers for d in n if d.var is var), key=lambda d: d.lower)
            covered: Any = 1
            for digit in own:
                if digit.lower != covered:
                    return None
                covered = digit.extent if covered == 1 else covered * digit.extent
            if covered is not dim and covered != dim:
                return None
        return numbers


def _as_index(value: Any, like: Sequence[Var]) -> Expr:
    if isinstance(value, Expr):
        return value
    index: Expr = as_scalar(value, like[0].ty.dtype if like else "int64")
    return index


def _extent(dim: Any) -> Any:
    return getattr(dim, "extent", dim)  # of a range


def _padded(var: Var, dim: Any, finals: Sequence[Expr]) -> Any:
    """A dimension as the next multiple of what its index is divided by."""
    by = 1
    work = list(finals)
    while work:
        e = work.pop()
        if isinstance(e, (FloorDiv, FloorMod)) and e.a is var and isinstance(e.b, IntImm):
            by = math.lcm(by, e.b.value)
        elif isinstance(e, (Add, Sub, Mul, FloorDiv, FloorMod)):
            work += (e.a, e.b)
    number = getattr(dim, "value", dim)
    if by == 1 or (isinstance(number, int) and number % by == 0):
        return dim
    return simplify((dim + (by - 1)) // by * by)


def _tile(e: Expr) -> _Digit | None:
    """The digit of one variable that an expression is; its extent is None where it is the rest of
    the variable.  None for other expressions."""
    if isinstance(e, Var):
        return _Digit(e, 1, None, 1)
    if not isinstance(e, (Mul, FloorDiv, FloorMod)) or not isinstance(e.b, IntImm):
        return None
    inner, number = _tile(e.a), e.b.value
    if inner is None or number < 1:
        return None
    if isinstance(e, Mul):
        return inner._replace(scale=inner.scale * number)
    if inner.scale != 1 or (inner.extent is not None and inner.extent % number):
        return None
    if isinstance(e, FloorMod):
        return inner._replace(extent=number)
    extent = None if inner.extent is None else inner.extent // number
    return inner._replace(lower=inner.lower * number, extent=extent)


def _in_whole_tiles(var: Var, tiles: Sequence[_Digit], dim: Any) -> Any:
    """A dimension, or the next multiple of the tile that an index is cut into, as TVM writes it."""
    size = math.lcm(*[tile.lower * (tile.extent or 1) for tile in tiles if tile.var is var])
    rest = simplify(dim % size)
    if isinstance(rest, IntImm) and rest.value == 0:
        return dim
    padded = dim - dim % -size
    return simplify(padded) if isinstance(dim, IntImm) else padded


def _extent_of(tile: _Digit, padded: Any) -> Any:
    """The number of values of a digit, given the dimension of its variable in whole tiles."""
    if tile.extent is not None:
        return as_scalar(tile.extent * tile.scale, padded.ty.dtype)
    extent = padded
    if tile.lower > 1:
        whole = isinstance(padded, Sub)
        extent = padded // tile.lower if whole else simplify(padded // tile.lower)
    return extent if tile.scale == 1 else simplify(extent * tile.scale)


def _greatest(e: Expr, dims: Mapping[Var, Any]) -> Any:
    """The greatest value of an index, given the dimensions of its variables."""
    if isinstance(e, Var):
        return dims[e] - 1
    if isinstance(e, IntImm):
        return e
    if isinstance(e, Add):
        return _greatest(e.a, dims) + _greatest(e.b, dims)
    if isinstance(e, Mul):
        return _greatest(e.a, dims) * _greatest(e.b, dims)
    if isinstance(e, FloorDiv) and isinstance(e.b, IntImm):
        return _greatest(e.a, dims) // e.b
    if isinstance(e, FloorMod) and isinstance(e.b, IntImm):
        most = simplify(_greatest(e.a, dims))
        is_less = isinstance(most, IntImm) and most.value < e.b.value
        return most if is_less else e.b - 1
    raise ValueError(f"IndexMap.map_shape: the greatest value of {e} is not known")


def _evaluate(e: Expr, values: Mapping[Var, Any]) -> Any:
    if isinstance(e, Var):
        return values[e]
    if isinstance(e, IntImm):
        return e.value
    for kind, function in (
        (Add, np.add),
        (Mul, np.multiply),
        (FloorDiv, np.floor_divide),
        (FloorMod, np.mod),
    ):
        if isinstance(e, kind):
            return function(_evaluate(e.a, values), _evaluate(e.b, values))
    raise ValueError(f"IndexMap.map_tensor: {e} is none of sums, products, quotients, remainders")


# Digits


def _digits(e: Expr, dims: Mapping[Var, Any]) -> list[_Digit] | None:
    """The digits of an expression, by their scale, if it is a number that is written with them."""
    if isinstance(e, Var):
        if e not in dims:
            return None
        return [] if dims[e] == 1 else [_Digit(e, 1, dims[e], 1)]
    if isinstance(e, IntImm):
        return [] if e.value == 0 else None
    if isinstance(e, Add):
        a, b = _digits(e.a, dims), _digits(e.b, dims)
        return None if a is None or b is None else _written([*a, *b])
    if not isinstance(e, (Mul, FloorDiv, FloorMod)):
        return None
    a = _digits(e.a, dims)
    if a is None or not isinstance(e.b, IntImm) or e.b.value < 1:
        return None
    number = e.b.value
    if isinstance(e, Mul):
        return [digit._replace(scale=digit.scale * number) for digit in a]
    parts = _split(a, number)
    return None if parts is None else parts[isinstance(e, FloorDiv)]


def _written(digits: Sequence[_Digit]) -> list[_Digit] | None:
    """The digits by their scale, if each begins where the one before ends."""
    ordered = sorted(digits, key=lambda digit: digit.scale)
    for low, high in pairwise(ordered):
        if not isinstance(low.extent, int) or high.scale != low.scale * low.extent:
            return None
    return ordered


def _split(digits: Sequence[_Digit], number: int) -> tuple[list[_Digit], list[_Digit]] | None:
    """The remainder of a number by another, and the quotient, if they have digits."""
    if digits and digits[0].scale != 1:
        return None
    low: list[_Digit] = []
    high: list[_Digit] = []
    for digit in digits:
        if digit.scale >= number:
            if digit.scale % number:
                return None
            high.append(digit._replace(scale=digit.scale // number))
        elif isinstance(digit.extent, int) and digit.scale * digit.extent <= number:
            low.append(digit)
        else:
            # Part of the digit is below the number, and part above it.
            within, rest = divmod(number, digit.scale)
            if rest or not isinstance(digit.extent, int) or digit.extent % within:
                return None
            low.append(digit._replace(extent=within))
            above = _Digit(digit.var, digit.lower * within, digit.extent // within, 1)
            high.append(above)
    return low, high


def is_affine(e: Expr) -> bool:
    """Whether an expression is a sum of variables times numbers, and of quotients and remainders of
    such sums by numbers."""
    if isinstance(e, (Var, IntImm)):
        return True
    if isinstance(e, (Add, Sub)):
        return is_affine(e.a) and is_affine(e.b)
    if isinstance(e, (Mul, FloorDiv, FloorMod)):
        return is_affine(e.a) and isinstance(e.b, IntImm)
    return False
