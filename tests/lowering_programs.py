"""Programs as script for comparing the lowering passes, and what the VM gives, with apache-tvm.

This module imports neither relaxvm nor TVM's packages, so that either side can read it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


def _grid(*shape: int, dtype: str = "float32") -> Array:
    count = int(np.prod(shape))
    return (np.arange(count) % 7 + 1).astype(dtype).reshape(shape)


class Program(NamedTuple):
    """A module.

    Attributes:
        body: the statements of the class, unindented.
        calls: (function, arguments) to run; a list is a shape, a tuple a tuple.  None: the program
            is for the passes only.
        skip: passes that are not compared, with the reason.
    """

    body: str
    calls: tuple[tuple[Any, ...], ...] | None = None
    skip: dict[str, str] = {}  # noqa: RUF012  (a NamedTuple's default, never changed)

    @property
    def text(self) -> str:
        lines = "\n".join("    " + line if line else line for line in self.body.strip().split("\n"))
        return f"@I.ir_module(s_tir=True)\nclass Module:\n{lines}\n"


# Functions that the programs call: inputs, then what is written.


def twice(x: Array, out: Array) -> None:
    np.add(x, x, out=out)


def plus(x: Array, y: Array, out: Array) -> None:
    np.add(x, y, out=out)


def scale(x: Array, factor: float, out: Array) -> None:
    out[...] = x * np.asarray(factor, x.dtype)


def split(x: Array, low: Array, high: Array) -> None:
    half = len(low)
    low[...], high[...] = x[:half], x[half:]


def widen(x: Array, out: Array) -> None:
    out[...] = np.resize(x, out.shape)


def increment(x: Array) -> None:
    x += 1


def positive(x: Array) -> Array:
    return np.array((x > 0).any())


def halved(x: Array) -> Array:
    return np.ascontiguousarray(x[: len(x) // 2])


def total(*numbers: int) -> int:
    return sum(int(number) for number in numbers)


def dims(shape: Any) -> Array:
    return np.array(list(shape), "int64")


def same(x: Any, *_: Any) -> Any:
    return x


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"lowering.{f.__name__}": f
    for f in (twice, plus, scale, split, widen, increment, positive, halved, total, dims, same)
}

PROGRAMS: dict[str, Program] = {}


def _add(name: str, body: str, *calls: tuple[Any, ...], passes_only: bool = False,
         **skip: str) -> None:  # fmt: skip
    assert name not in PROGRAMS
    PROGRAMS[name] = Program(body, None if passes_only else calls, skip)


# Calls in destination-passing style

_add("dps_one", '''
@R.function
def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    with R.dataflow():
        y = R.call_dps_packed("lowering.twice", (x,), out_ty=R.Tensor((4,), "float32"))
        z = R.call_dps_packed("lowering.plus", (y, x), out_ty=R.Tensor((4,), "float32"))
        R.output(z)
    return z
''', ("main", _grid(4)))

_add("dps_two_outputs", '''
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        t = R.call_dps_packed("lowering.split", (x,),
            out_ty=[R.Tensor((1,), "float32"), R.Tensor((3,), "float32")])
        a = t[0]
        b = t[1]
        c = R.call_dps_packed("lowering.twice", (b,), out_ty=R.Tensor((3,), "float32"))
        R.output(a, c)
    return (c, a)
''', ("main", _grid(4)))

_add("dps_scalar_arguments", '''
@R.function
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    with R.dataflow():
        y = R.call_dps_packed("lowering.scale", (x, R.prim_value(3)), out_ty=R.Tensor((n,), "float32"))
        z = R.call_dps_packed("lowering.scale", (y, R.prim_value(n)), out_ty=R.Tensor((n,), "float32"))
        R.output(z)
    return z
''', ("main", _grid(5)))

_add("dps_dynamic_chain", '''
@R.function
def main(x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n * m",), "float32"):
    n = T.int64()
    m = T.int64()
    with R.dataflow():
        a = R.call_dps_packed("lowering.twice", (x,), out_ty=R.Tensor((n, m), "float32"))
        b = R.call_dps_packed("lowering.widen", (a,), out_ty=R.Tensor((n * 2, m), "float32"))
        c = R.call_dps_packed("lowering.widen", (b,), out_ty=R.Tensor((n * m,), "float32"))
        R.output(c)
    return c
''', ("main", _grid(2, 3)), ("main", _grid(1, 4)))

_TWICE_TIR = '''
@T.prim_func(s_tir=True, private=True)
def kernel(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("y"):
            vi = T.axis.spatial(4, i)
            y[vi] = x[vi] + x[vi]

'''

_add("tir_static", _TWICE_TIR + '''
@R.function
def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    cls = Module
    with R.dataflow():
        y = R.call_tir(cls.kernel, (x,), out_ty=R.Tensor((4,), "float32"))
        z = R.call_tir(cls.kernel, (y,), out_ty=R.Tensor((4,), "float32"))
        R.output(z)
    return z
''', ("main", _grid(4)))

_add("tir_dynamic", '''
@T.prim_func(s_tir=True)
def kernel(var_x: T.handle, var_y: T.handle):
    n = T.int64()
    x = T.match_buffer(var_x, (n,), "float32")
    y = T.match_buffer(var_y, (n,), "float32")
    for i in range(n):
        with T.sblock("y"):
            vi = T.axis.spatial(n, i)
            y[vi] = x[vi] + T.float32(1)

@R.function
def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
    n = T.int64()
    cls = Module
    y = R.call_tir(cls.kernel, (x,), out_ty=R.Tensor((n,), "float32"))
    return y
''', ("main", _grid(5)))

_add("tir_variables", '''
@T.prim_func(s_tir=True)
def fill(n: T.int64, var_y: T.handle):
    y = T.match_buffer(var_y, (n * 2,), "float32")
    for i in range(n * 2):
        with T.sblock("y"):
            vi = T.axis.spatial(n * 2, i)
            y[vi] = T.float32(3)

@R.function
def main(s: R.Shape(["n"])) -> R.Tensor(("n * 2",), "float32"):
    n = T.int64()
    cls = Module
    y = R.call_tir(cls.fill, (R.prim_value(n),), out_ty=R.Tensor((n * 2,), "float32"))
    return y
''', ("main", [3]))

_add("tir_inplace", '''
@T.prim_func(s_tir=True, private=True)
def bump(x: T.Buffer((3,), "float32"), y: T.Buffer((3,), "float32")):
    for i in range(3):
        with T.sblock("x"):
            vi = T.axis.spatial(3, i)
            x[vi] = x[vi] + y[vi]

@R.function(pure=False)
def main(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
    cls = Module
    a = R.call_dps_packed("lowering.twice", (x,), out_ty=R.Tensor((3,), "float32"))
    b = R.call_tir_inplace(cls.bump, (a, y), inplace_indices=[0], out_ty=[R.Tensor((3,), "float32")])
    return b
''', ("main", _grid(3), _grid(3)))

_add("tir_inplace_mixed", '''
@T.prim_func(s_tir=True, private=True)
def both(x: T.Buffer((3,), "float32"), y: T.Buffer((3,), "float32"), z: T.Buffer((3,), "float32")):
    for i in range(3):
        with T.sblock("x"):
            vi = T.axis.spatial(3, i)
            z[vi] = x[vi] + y[vi]
            y[vi] = T.float32(0)

@R.function(pure=False)
def main(x: R.Tensor((3,), "float32")):
    cls = Module
    a = R.call_dps_packed("lowering.twice", (x,), out_ty=R.Tensor((3,), "float32"))
    t = R.call_tir_inplace(cls.both, (x, a), inplace_indices=[-1, 1],
        out_ty=[R.Tensor((3,), "float32"), R.Tensor((3,), "float32")])
    return t
''', ("main", _grid(3)))

# Branches

_add("if_on_tensor", '''
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
    if c:
        w = R.call_dps_packed("lowering.twice", (x,), out_ty=R.Tensor((3,), "float32"))
        y = R.call_dps_packed("lowering.plus", (w, x), out_ty=R.Tensor((3,), "float32"))
    else:
        y = x
    return y
''', ("main", np.array(True), _grid(3)), ("main", np.array(False), _grid(3)))

_add("if_on_scalar", '''
@R.function
def main(c: R.Prim("bool"), x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
    if c:
        y = R.call_dps_packed("lowering.twice", (x,), out_ty=R.Tensor((3,), "float32"))
    else:
        y = R.call_dps_packed("lowering.plus", (x, x), out_ty=R.Tensor((3,), "float32"))
    return y
''', ("main", True, _grid(3)), ("main", False, _grid(3)))

_add("if_nested", '''
@R.function
def main(a: R.Tensor((), "bool"), b: R.Tensor((), "bool"), x: R.Tensor((3,), "float32")):
    if a:
        if b:
            r = R.call_dps_packed("lowering.twice", (x,), out_ty=R.Tensor((3,), "float32"))
        else:
            r = x
        s = R.call_dps_packed("lowering.twice", (r,), out_ty=R.Tensor((3,), "float32"))
    else:
        s = R.call_dps_packed("lowering.plus", (x, x), out_ty=R.Tensor((3,), "float32"))
    t = R.call_dps_packed("lowering.plus", (s, x), out_ty=R.Tensor((3,), "float32"))
    return (t, s)
''', *[("main", np.array(a), np.array(b), _grid(3)) for a in (True, False) for b in (True, False)])

_add("if_of_shapes", '''
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")):
    n = T.int64()
    m = T.int64()
    if c:
        r = R.call_dps_packed("lowering.twice", (x,), out_ty=R.Tensor((n,), "float32"))
    else:
        r = R.call_dps_packed("lowering.widen", (y,), out_ty=R.Tensor((m + 1,), "float32"))
    return r
''', ("main", np.array(True), _grid(2), _grid(3)), ("main", np.array(False), _grid(2), _grid(3)))

_add("if_of_tuples", '''
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
    z = (x, y)
    if c:
        r = (y, x)
    else:
        r = z
    a = r[0]
    return (a, r)
''', ("main", np.array(True), _grid(3), -_grid(3)), ("main", np.array(False), _grid(3), -_grid(3)))

_add("if_on_computed", '''
@R.function(pure=False)
def main(x: R.Tensor((3,), "float32")):
    c = R.call_packed("lowering.positive", x, ty_args=R.Tensor((), "bool"))
    if c:
        r = R.call_dps_packed("lowering.twice", (x,), out_ty=R.Tensor((3,), "float32"))
    else:
        r = x
    return r
''', ("main", _grid(3)), ("main", -_grid(3)))

_add("if_with_match_cast", '''
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor(dtype="float32", ndim=1)):
    if c:
        k = T.int64()
        y = R.match_cast(x, R.Tensor((k,), "float32"))
        r = R.call_dps_packed("lowering.widen", (y,), out_ty=R.Tensor((k + k,), "float32"))
    else:
        r = x
    return r
''', ("main", np.array(True), _grid(3)), ("main", np.array(False), _grid(3)))

# Functions and closures

_add("recursion", '''
@R.function(pure=False)
def main(n: R.Prim("int64"), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    cls = Module
    c = R.call_packed("lowering.positive", x, ty_args=R.Tensor((), "bool"))
    if c:
        y = R.call_dps_packed("lowering.scale", (x, R.prim_value(0)), out_ty=R.Tensor((2,), "float32"))
        r = cls.main(n, y)
    else:
        r = x
    return r
''', ("main", 3, _grid(2)))

_add("mutual_recursion", '''
@R.function(pure=False)
def even(x: R.Tensor(("n",), "float32")) -> R.Tensor(dtype="float32", ndim=1):
    cls = Module
    c = R.call_packed("lowering.positive", x, ty_args=R.Tensor((), "bool"))
    if c:
        y = R.call_packed("lowering.halved", x, ty_args=R.Tensor(dtype="float32", ndim=1))
        r = cls.odd(y)
    else:
        r = x
    return r

@R.function(pure=False)
def odd(x: R.Tensor(("n",), "float32")) -> R.Tensor(dtype="float32", ndim=1):
    n = T.int64()
    cls = Module
    y = R.call_dps_packed("lowering.widen", (x,), out_ty=R.Tensor((n,), "float32"))
    r = cls.even(y)
    return r
''', ("even", _grid(8)), ("odd", _grid(3)))

_add("calls_with_shapes", '''
@R.function(private=True)
def inner(x: R.Tensor(("a", "b"), "float32")) -> R.Tensor(("a * b",), "float32"):
    a = T.int64()
    b = T.int64()
    y = R.call_dps_packed("lowering.widen", (x,), out_ty=R.Tensor((a * b,), "float32"))
    return y

@R.function
def main(x: R.Tensor(("n", 3), "float32")):
    n = T.int64()
    cls = Module
    y = cls.inner(x)
    z = R.call_dps_packed("lowering.twice", (y,), out_ty=R.Tensor((n * 3,), "float32"))
    return z
''', ("main", _grid(2, 3)))

_add("explicit_closure", '''
@R.function(pure=False)
def add(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    z = R.call_dps_packed("lowering.plus", (x, y), out_ty=R.Tensor((2,), "float32"))
    return z

@R.function(pure=False)
def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
    cls = Module
    c = R.make_closure(cls.add, (y,))
    r = R.invoke_closure(c, (x,), ty_args=R.Tensor((2,), "float32"))
    return r
''', ("main", _grid(2), _grid(2)))

_add("pure_closure", '''
@R.function
def add(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    z = R.call_dps_packed("lowering.plus", (x, y), out_ty=R.Tensor((2,), "float32"))
    return z

@R.function
def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
    cls = Module
    c = R.make_closure(cls.add, (y,))
    r = R.invoke_pure_closure(c, (x,), ty_args=R.Tensor((2,), "float32"))
    return r
''', ("main", _grid(2), _grid(2)))

_add("lift_plain", '''
@R.function
def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
    @R.function
    def inner(a: R.Tensor((2,), "float32"), b: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        s = R.call_dps_packed("lowering.plus", (a, b), out_ty=R.Tensor((2,), "float32"))
        return s
    r = inner(x, y)
    return r
''', ("main", _grid(2), _grid(2)))

_add("lift_capture", '''
@R.function
def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
    @R.function
    def inner(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        s = R.call_dps_packed("lowering.plus", (a, y), out_ty=R.Tensor((2,), "float32"))
        return s
    r = inner(x)
    q = inner(r)
    return q
''', ("main", _grid(2), _grid(2)))

_add("lift_two", '''
@R.function
def main(x: R.Tensor((2,), "float32")):
    @R.function
    def inner(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        s = R.call_dps_packed("lowering.twice", (a,), out_ty=R.Tensor((2,), "float32"))
        return s
    @R.function
    def second(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        s = R.call_dps_packed("lowering.plus", (a, x), out_ty=R.Tensor((2,), "float32"))
        return s
    p = inner(x)
    q = second(p)
    return q
''', ("main", _grid(2)))

_add("lift_recursive", '''
@R.function(pure=False)
def main(x: R.Tensor((2,), "float32")):
    @R.function(pure=False)
    def loop(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        c = R.call_packed("lowering.positive", a, ty_args=R.Tensor((), "bool"))
        if c:
            b = R.call_dps_packed("lowering.scale", (a, R.prim_value(0)), out_ty=R.Tensor((2,), "float32"))
            r = loop(b)
        else:
            r = a
        return r
    q = loop(x)
    return q
''', ("main", _grid(2)))

_add("lift_recursive_capture", '''
@R.function(pure=False)
def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
    @R.function(pure=False)
    def loop(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        c = R.call_packed("lowering.positive", a, ty_args=R.Tensor((), "bool"))
        if c:
            b = R.call_dps_packed("lowering.plus", (a, y), out_ty=R.Tensor((2,), "float32"))
            r = loop(b)
        else:
            r = a
        return r
    q = loop(x)
    return q
''', ("main", _grid(2), -_grid(2)))

_add("lift_nested", '''
@R.function
def main(x: R.Tensor((2,), "float32")):
    @R.function
    def outer(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        @R.function
        def inner(b: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            s = R.call_dps_packed("lowering.twice", (b,), out_ty=R.Tensor((2,), "float32"))
            return s
        t = inner(a)
        return t
    r = outer(x)
    return r
''', ("main", _grid(2)))

_add("lift_nested_capture", '''
@R.function
def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
    @R.function
    def outer(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        @R.function
        def inner(b: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            s = R.call_dps_packed("lowering.plus", (b, y), out_ty=R.Tensor((2,), "float32"))
            return s
        t = inner(a)
        return t
    r = outer(x)
    return r
''', ("main", _grid(2), _grid(2)))

_add("lift_returned", '''
@R.function
def make(y: R.Tensor((2,), "float32")) -> R.Callable((R.Tensor((2,), "float32"),), R.Tensor((2,), "float32"), True):
    @R.function
    def inner(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        s = R.call_dps_packed("lowering.plus", (a, y), out_ty=R.Tensor((2,), "float32"))
        return s
    return inner

@R.function
def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    cls = Module
    f = cls.make(y)
    r = f(x)
    return r
''', ("main", _grid(2), _grid(2)))

_add("lift_symbolic", '''
@R.function
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    @R.function
    def inner(a: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
        s = R.call_dps_packed("lowering.twice", (a,), out_ty=R.Tensor((n,), "float32"))
        return s
    r = inner(x)
    return r
''', ("main", _grid(3)))

_add("lift_symbolic_capture", '''
@R.function
def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n + 1",), "float32")):
    n = T.int64()
    @R.function
    def inner(a: R.Tensor((n + 1,), "float32")) -> R.Tensor((n,), "float32"):
        s = R.call_dps_packed("lowering.widen", (a,), out_ty=R.Tensor((n,), "float32"))
        return s
    r = inner(y)
    return r
''', passes_only=True)

_add("lift_argument", '''
@R.function
def apply(f: R.Callable((R.Tensor((2,), "float32"),), R.Tensor((2,), "float32"), True), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    y = f(x)
    z = f(y)
    return z

@R.function
def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    cls = Module
    @R.function
    def inner(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        s = R.call_dps_packed("lowering.twice", (a,), out_ty=R.Tensor((2,), "float32"))
        return s
    r = cls.apply(inner, x)
    return r
''', ("main", _grid(2)))

_add("lift_name_clash", '''
@R.function(private=True)
def main_inner(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    return a

@R.function
def main(x: R.Tensor((2,), "float32")):
    cls = Module
    @R.function
    def inner(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        s = R.call_dps_packed("lowering.twice", (a,), out_ty=R.Tensor((2,), "float32"))
        return s
    y = cls.main_inner(x)
    r = inner(y)
    return r
''', ("main", _grid(2)))

# Views

_add("views", '''
@R.function
def main(x: R.Tensor((4, 2), "float32")):
    with R.dataflow():
        a = R.call_dps_packed("lowering.twice", (x,), out_ty=R.Tensor((4, 2), "float32"))
        b = R.reshape(a, R.shape([8]))
        c = R.reshape(b, R.shape([2, 4]))
        d = R.call_dps_packed("lowering.twice", (c,), out_ty=R.Tensor((2, 4), "float32"))
        e = R.call_dps_packed("lowering.plus", (d, c), out_ty=R.Tensor((2, 4), "float32"))
        R.output(e)
    return e
''', ("main", _grid(4, 2)))

_add("views_dynamic", '''
@R.function
def main(x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("m * n",), "float32"):
    n = T.int64()
    m = T.int64()
    with R.dataflow():
        a = R.call_dps_packed("lowering.twice", (x,), out_ty=R.Tensor((n, m), "float32"))
        b = R.reshape(a, R.shape([n * m]))
        c = R.call_dps_packed("lowering.twice", (b,), out_ty=R.Tensor((n * m,), "float32"))
        R.output(c)
    return c
''', ("main", _grid(4, 2)))

_add("view_of_a_parameter", '''
@R.function
def main(x: R.Tensor(("n", 2), "float32")):
    n = T.int64()
    b = R.reshape(x, R.shape([n * 2]))
    c = R.call_dps_packed("lowering.twice", (b,), out_ty=R.Tensor((n * 2,), "float32"))
    return (b, c)
''', ("main", _grid(4, 2)))

_add("shapes_as_values", '''
@R.function(pure=False)
def main(x: R.Tensor(("n", 2), "float32")):
    n = T.int64()
    s = R.shape_of(x)
    d = R.call_packed("lowering.dims", s, ty_args=R.Tensor((2,), "int64"))
    t = R.tensor_to_shape(d)
    e = R.call_packed("lowering.dims", R.shape([n, 3, n + 1]), ty_args=R.Tensor((3,), "int64"))
    return (d, t, e, R.shape([n * 2, 7]))
''', ("main", _grid(4, 2)))

_add("view_ops", '''
@R.function(pure=False)
def main(x: R.Tensor((4, 2), "float32")):
    a = R.call_dps_packed("lowering.twice", (x,), out_ty=R.Tensor((4, 2), "float32"))
    b = R.memory.view(a, R.shape([8]), R.dtype("float32"), R.prim_value(0))
    c = R.memory.ensure_zero_offset(b)
    return c
''', passes_only=True)

# Kills

_add("kills", '''
@R.function(pure=False)
def main(x: R.Tensor((2,), "float32")):
    a = R.call_dps_packed("lowering.twice", (x,), out_ty=R.Tensor((2,), "float32"))
    b = R.call_packed("lowering.same", a, ty_args=R.Tensor((2,), "float32"))
    c = R.call_packed("lowering.same", b, a, ty_args=R.Any)
    d = R.call_packed("lowering.same", c, ty_args=R.Tensor((2,), "float32"))
    e = R.call_dps_packed("lowering.plus", (d, x), out_ty=R.Tensor((2,), "float32"))
    return e
''', ("main", _grid(2)))

_add("kills_of_tuples", '''
@R.function(pure=False)
def main(x: R.Tensor((2,), "float32")):
    a = R.call_dps_packed("lowering.twice", (x,), out_ty=R.Tensor((2,), "float32"))
    t = (a, x)
    u = R.call_packed("lowering.same", t, ty_args=R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32")))
    p = u[0]
    q = u[1]
    r = R.call_dps_packed("lowering.plus", (p, q), out_ty=R.Tensor((2,), "float32"))
    return r
''', ("main", _grid(2)))

_add("kills_of_unused", '''
@R.function(pure=False)
def main(x: R.Tensor((2,), "float32")):
    a = R.call_dps_packed("lowering.twice", (x,), out_ty=R.Tensor((2,), "float32"))
    b = R.call_packed("lowering.same", x, ty_args=R.Any)
    c = R.call_packed("lowering.same", x, ty_args=R.Tensor((2,), "float32"))
    return x
''', ("main", _grid(2)))

_add("kills_of_match_cast", '''
@R.function(pure=False)
def main(x: R.Tensor((2,), "float32")):
    a = R.call_packed("lowering.same", x, ty_args=R.Any)
    b = R.match_cast(a, R.Tensor((2,), "float32"))
    c = R.call_dps_packed("lowering.twice", (b,), out_ty=R.Tensor((2,), "float32"))
    return c
''', ("main", _grid(2)))

_add("renamings", '''
@R.function(pure=False)
def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
    a = x
    b = a
    t = (b, y)
    c = t[0]
    d = t[1]
    e = R.call_dps_packed("lowering.plus", (c, d), out_ty=R.Tensor((2,), "float32"))
    f = e
    return (f, f)
''', ("main", _grid(2), _grid(2)))

# Purity

_add("impure", '''
@R.function(pure=False)
def main(x: R.Tensor((2,), "float32")):
    a = R.call_packed("lowering.same", x, ty_args=R.Tensor((2,), "float32"))
    b = R.call_pure_packed("lowering.same", a, ty_args=R.Tensor((2,), "float32"))
    return b
''', ("main", _grid(2)))

_add("pure_packed", '''
@R.function
def main(x: R.Tensor((2,), "float32")):
    with R.dataflow():
        a = R.call_pure_packed("lowering.same", x, 1, R.str("s"), R.dtype("float32"), ty_args=R.Tensor((2,), "float32"))
        b = R.call_pure_packed("lowering.same", a, ty_args=R.Tensor((2,), "float32"))
        R.output(b)
    return b
''', ("main", _grid(2)))

_add("pure_local", '''
@R.function
def main(x: R.Tensor((2,), "float32")):
    @R.function
    def inner(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        a = R.call_pure_packed("lowering.same", y, ty_args=R.Tensor((2,), "float32"))
        return a
    b = inner(x)
    return b
''', ("main", _grid(2)))

_add("forced_pure", '''
@R.function
def main(x: R.Tensor((2,), "float32")):
    R.func_attr({"relax.force_pure": True})
    a = R.call_packed("lowering.same", x, ty_args=R.Tensor((2,), "float32"))
    return a
''', ("main", _grid(2)))

_add("inplace_packed", '''
@R.function
def main(x: R.Tensor((2,), "float32")):
    a = R.call_dps_packed("lowering.twice", (x,), out_ty=R.Tensor((2,), "float32"))
    b = R.call_inplace_packed("lowering.same", a, inplace_indices=[0], ty_args=R.Tensor((2,), "float32"))
    return b
''', ("main", _grid(2)))

# Shapes

_add("shape_repeated", '''
@R.function
def main(x: R.Tensor(("n", "n"), "float32"), y: R.Tensor(("n",), "float32")):
    n = T.int64()
    z = R.call_dps_packed("lowering.twice", (y,), out_ty=R.Tensor((n,), "float32"))
    return z
''', ("main", _grid(3, 3), _grid(3)))

_add("shape_computed_first", '''
@R.function
def main(x: R.Tensor(("n * 2", "n + m"), "float32"), y: R.Tensor(("m", 3), "float32"), z: R.Tensor(("n",), "float32")):
    n = T.int64()
    m = T.int64()
    w = R.call_dps_packed("lowering.widen", (x,), out_ty=R.Tensor((n * 2, m), "float32"))
    return w
''', ("main", _grid(4, 7), _grid(5, 3), _grid(2)))

_add("shape_in_tuples", '''
@R.function
def main(t: R.Tuple(R.Tensor(("n",), "float32"), R.Tuple(R.Tensor(("n", "m"), "float32"), R.Shape(["m"]))), s: R.Shape(["k", 2])):
    n = T.int64()
    m = T.int64()
    k = T.int64()
    a = t[0]
    b = R.call_dps_packed("lowering.widen", (a,), out_ty=R.Tensor((n + m, k), "float32"))
    return b
''', ("main", (_grid(2), (_grid(2, 3), [3])), [4, 2]))

_add("prim_parameters", '''
@R.function(pure=False)
def main(n: R.Prim("int64"), f: R.Prim("float32"), b: R.Prim("bool"), x: R.Tensor(("m",), "float32")):
    m = T.int64()
    r = R.call_packed("lowering.total", n, m, 5, ty_args=R.Any)
    return (r, b)
''', ("main", 3, 0.5, True, _grid(2)))

_add("prim_parameter_as_dimension", '''
@R.function
def main(n: R.Prim("int64"), x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
    n = T.int64()
    y = R.call_dps_packed("lowering.twice", (x,), out_ty=R.Tensor((n,), "float32"))
    return y
''', passes_only=True)

_add("match_casts", '''
@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(dtype="float32", ndim=2), o: R.Any) -> R.Tensor(("n",), "float32"):
    n = T.int64()
    m = T.int64()
    k = T.int64()
    y1 = R.match_cast(y, R.Tensor((m, k), "float32"))
    y2 = R.match_cast(y, R.Tensor((m, k * 1 + 0), "float32"))
    o1 = R.match_cast(o, R.Tuple(R.Tensor((n,), "float32"), R.Shape([m, 2])))
    s = R.shape_of(x)
    u = R.call_packed("lowering.same", x, y1, y2, o1, s, R.shape([n, 3]), n, ty_args=R.Tensor((n,), "float32"))
    v = R.call_packed("lowering.same", u, ty_args=R.Tensor)
    return v
''', ("main", _grid(3), _grid(4, 5), (_grid(3), [4, 2])))

_add("match_cast_computed", '''
@R.function
def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(dtype="float32", ndim=1)):
    n = T.int64()
    m = T.int64()
    a = R.match_cast(y, R.Tensor((n * 2,), "float32"))
    b = R.call_dps_packed("lowering.twice", (a,), out_ty=R.Tensor((n * 2,), "float32"))
    return b
''', ("main", _grid(3), _grid(6)))

_add("match_cast_of_shape", '''
@R.function(pure=False)
def main(x: R.Tensor(dtype="float32", ndim=2)):
    n = T.int64()
    m = T.int64()
    s = R.shape_of(x)
    t = R.match_cast(s, R.Shape([n, m]))
    y = R.call_dps_packed("lowering.widen", (x,), out_ty=R.Tensor((m, n), "float32"))
    return (y, t)
''', ("main", _grid(2, 3)))

_add("match_cast_in_dataflow", '''
@R.function
def main(x: R.Tensor(dtype="float32", ndim=1)):
    n = T.int64()
    with R.dataflow():
        a = R.match_cast(x, R.Tensor((n,), "float32"))
        b = R.call_dps_packed("lowering.widen", (a,), out_ty=R.Tensor((n + 2,), "float32"))
        R.output(b)
    with R.dataflow():
        c = R.call_dps_packed("lowering.widen", (b,), out_ty=R.Tensor((n + 1,), "float32"))
        R.output(c)
    return c
''', ("main", _grid(3)))

_add("return_checked", '''
@R.function(pure=False)
def main(x: R.Tensor(("n", 3), "float32")) -> R.Tuple(R.Tensor(("n", 3), "float32"), R.Tuple(R.Tensor((2,), "float32"), R.Any)):
    r = R.call_packed("lowering.same", (x, (x, x)), ty_args=R.Tuple(R.Tensor, R.Tuple(R.Tensor(dtype="float32", ndim=1), R.Any)))
    return r
''', passes_only=True)

_add("return_checked_any", '''
@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
    r = R.call_packed("lowering.same", x, ty_args=R.Any)
    return r
''', ("main", _grid(3)))

_add("return_shape", '''
@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32")) -> R.Shape(["n", "n * 2"]):
    n = T.int64()
    r = R.call_packed("lowering.same", R.shape([n, n * 2]), ty_args=R.Shape(ndim=2))
    return r
''', ("main", _grid(3)))

_add("weights", '''
@R.function
def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, "m"), "float32"), b: R.Tensor((4,), "float32"), t: R.Tuple(R.Tensor((2, 2), "float32"), R.Tensor(("m",), "float32"))):
    R.func_attr({"num_input": 1})
    n = T.int64()
    m = T.int64()
    y = R.call_dps_packed("lowering.widen", (w,), out_ty=R.Tensor((n, m), "float32"))
    return y
''', ("main", _grid(2, 4), _grid(4, 3), _grid(4), (_grid(2, 2), _grid(3))))

_add("unknown_types", '''
@R.function
def main(x: R.Tensor, y: R.Tensor(ndim=2), z: R.Tensor(dtype="float32"), o: R.Any, s: R.Shape, r: R.Shape(ndim=2), q: R.Tensor((2, 2))):
    return (x, y, z, o, s, r, q)
''', ("main", _grid(2), _grid(2, 2), _grid(1), 5, [2], [3, 4], _grid(2, 2)))

_add("function_parameter", '''
@R.function(pure=False)
def main(f: R.Callable((R.Tensor((2,), "float32"),), R.Tensor((2,), "float32"), False), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    y = f(x)
    return y
''', passes_only=True)

_add("shape_arithmetic", '''
@R.function
def main(x: R.Tensor(("n", "m"), "float32")):
    n = T.int64()
    m = T.int64()
    with R.dataflow():
        a = R.call_dps_packed("lowering.widen", (x,), out_ty=R.Tensor((n // 2, m % 3 + 1), "float32"))
        b = R.call_dps_packed("lowering.widen", (a,), out_ty=R.Tensor((T.max(n, m), T.min(n, 2)), "float32"))
        c = R.call_dps_packed("lowering.widen", (b,), out_ty=R.Tensor(((n + m) * 2 - 1,), "float32"))
        R.output(c)
    return c
''', ("main", _grid(5, 4)))

_add("several_functions_with_shapes", '''
@R.function
def first(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    y = R.call_dps_packed("lowering.widen", (x,), out_ty=R.Tensor((n + 1,), "float32"))
    return y

@R.function
def second(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    y = R.call_dps_packed("lowering.widen", (x,), out_ty=R.Tensor((n + 2, n), "float32"))
    return y
''', ("first", _grid(2)), ("second", _grid(2)))

_add("heap_unused", '''
@R.function
def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2, 3), "int32")):
    return (y, x)
''', ("main", _grid(2), _grid(2, 3, dtype="int32")))

# Scalars

_add("scalar_arguments", '''
@R.function(pure=False)
def main(x: R.Tensor(("n", "m"), "float32")):
    n = T.int64()
    m = T.int64()
    r = R.call_packed("lowering.total", n * 2, n + m, n, ty_args=R.Any)
    return r
''', ("main", _grid(3, 4)))

_add("scalar_condition", '''
@R.function
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    if n > 2:
        y = R.call_dps_packed("lowering.twice", (x,), out_ty=R.Tensor((n,), "float32"))
    else:
        y = x
    return y
''', ("main", _grid(3)), ("main", _grid(2)))

_add("scalar_result", '''
@R.function
def main(x: R.Tensor(("n",), "float32")) -> R.Prim("int64"):
    n = T.int64()
    return R.prim_value(n * 3)
''', ("main", _grid(3)))

_add("scalar_binding", '''
@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    m = R.prim_value(n * 3)
    r = R.call_packed("lowering.total", m, ty_args=R.Any)
    return r
''', ("main", _grid(3)))

# The rest

_add("symbols", '''
@R.function(private=True)
def hidden(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    return x

@T.prim_func(s_tir=True, private=True)
def kernel(x: T.Buffer((2,), "float32"), y: T.Buffer((2,), "float32")):
    T.evaluate(0)

@R.function
def main(x: R.Tensor((2,), "float32")):
    cls = Module
    y = cls.hidden(x)
    return y
''', ("main", _grid(2)))

_add("constants", '''
@R.function(pure=False)
def main(x: R.Tensor((2,), "float32")):
    y = R.call_packed("lowering.same", R.const(3, "int32"), ty_args=R.Tensor((), "int32"))
    z = R.call_dps_packed("lowering.plus", (x, R.const([1.0, 2.0], "float32")), out_ty=R.Tensor((2,), "float32"))
    s = R.call_packed("lowering.same", R.shape([2, 3]), R.str("text"), R.dtype("int8"), 7, ty_args=R.Shape(ndim=2))
    return (z, y, s)
''', ("main", _grid(2)))

_add("builtin_with_context", '''
@R.function(pure=False)
def main(x: R.Tensor((2,), "float32")):
    s = R.call_builtin_with_ctx("vm.builtin.alloc_shape_heap", (R.prim_value(4),), ty_args=[R.Tensor(dtype="int64", ndim=1)])
    return x
''', ("main", _grid(2)))

_add("allocations_by_hand", '''
@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    a = R.builtin.alloc_tensor(R.shape([n, 2]), R.dtype("float16"), R.prim_value(0))
    b = R.builtin.alloc_tensor(R.shape([n]), R.dtype("float32"), R.prim_value(0))
    c = R.call_packed("lowering.twice", x, b, ty_args=R.Tuple)
    s = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("float32"))
    d = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([4]), R.dtype("float32"))
    e = R.call_packed("lowering.widen", x, d, ty_args=R.Tuple)
    return (b, d)
''', ("main", _grid(2)))

_add("devices", '''
I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

@R.function
def main(x: R.Tensor((2,), "float32")):
    with R.dataflow():
        y = R.to_vdevice(x, "llvm:1")
        z = R.to_vdevice(y, "llvm:0")
        R.output(z)
    return z
''', passes_only=True)
