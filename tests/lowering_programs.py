"""Programs in script for comparing the lowering passes and the results of the VM with apache-tvm.

This module imports neither relaxvm nor TVM, so that both sides can import it.
"""

from __future__ import annotations

import re
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
        body: the statements of the class, unindented; ``f32[n, 2]`` is
            ``R.Tensor((n, 2), "float32")``.
        calls: (function, arguments) to run; a list is a shape, a tuple a tuple.  None: the program
            is for the passes only.
    """

    body: str
    calls: tuple[tuple[Any, ...], ...] | None = None

    @property
    def text(self) -> str:
        body = re.sub(r"f32\[([^]]*)\]", _tensor_type, self.body.strip())
        lines = "\n".join("    " + line if line else line for line in body.split("\n"))
        return f"@I.ir_module(s_tir=True)\nclass Module:\n{lines}\n"


def _tensor_type(dims: re.Match[str]) -> str:
    return f'R.Tensor(({dims[1]}{"," if dims[1] else ""}), "float32")'


# Functions that the programs call: inputs, then outputs.


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


def _add(name: str, body: str, *calls: tuple[Any, ...], passes_only: bool = False) -> None:
    assert name not in PROGRAMS
    PROGRAMS[name] = Program(body, None if passes_only else calls)


# Calls in destination-passing style

_add(
    "dps_one",
    """
@R.function
def main(x: f32[4]) -> f32[4]:
    with R.dataflow():
        y = R.call_dps_packed("lowering.twice", (x,), out_ty=f32[4])
        z = R.call_dps_packed("lowering.plus", (y, x), out_ty=f32[4])
        R.output(z)
    return z
""",
    ("main", _grid(4)),
)

_add(
    "dps_two_outputs",
    """
@R.function
def main(x: f32[4]):
    with R.dataflow():
        t = R.call_dps_packed("lowering.split", (x,),
            out_ty=[f32[1], f32[3]])
        a = t[0]
        b = t[1]
        c = R.call_dps_packed("lowering.twice", (b,), out_ty=f32[3])
        R.output(a, c)
    return (c, a)
""",
    ("main", _grid(4)),
)

_add(
    "dps_scalar_arguments",
    """
@R.function
def main(x: f32["n"]):
    n = T.int64()
    with R.dataflow():
        y = R.call_dps_packed("lowering.scale", (x, R.prim_value(3)), out_ty=f32[n])
        z = R.call_dps_packed("lowering.scale", (y, R.prim_value(n)), out_ty=f32[n])
        R.output(z)
    return z
""",
    ("main", _grid(5)),
)

_add(
    "dps_dynamic_chain",
    """
@R.function
def main(x: f32["n", "m"]) -> f32["n * m"]:
    n = T.int64()
    m = T.int64()
    with R.dataflow():
        a = R.call_dps_packed("lowering.twice", (x,), out_ty=f32[n, m])
        b = R.call_dps_packed("lowering.widen", (a,), out_ty=f32[n * 2, m])
        c = R.call_dps_packed("lowering.widen", (b,), out_ty=f32[n * m])
        R.output(c)
    return c
""",
    ("main", _grid(2, 3)),
    ("main", _grid(1, 4)),
)

_TWICE_TIR = """
@T.prim_func(s_tir=True, private=True)
def kernel(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("y"):
            vi = T.axis.spatial(4, i)
            y[vi] = x[vi] + x[vi]

"""

_add(
    "tir_static",
    _TWICE_TIR
    + """
@R.function
def main(x: f32[4]) -> f32[4]:
    cls = Module
    with R.dataflow():
        y = R.call_tir(cls.kernel, (x,), out_ty=f32[4])
        z = R.call_tir(cls.kernel, (y,), out_ty=f32[4])
        R.output(z)
    return z
""",
    ("main", _grid(4)),
)

_add(
    "tir_dynamic",
    """
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
def main(x: f32["n"]) -> f32["n"]:
    n = T.int64()
    cls = Module
    y = R.call_tir(cls.kernel, (x,), out_ty=f32[n])
    return y
""",
    ("main", _grid(5)),
)

_add(
    "tir_variables",
    """
@T.prim_func(s_tir=True)
def fill(n: T.int64, var_y: T.handle):
    y = T.match_buffer(var_y, (n * 2,), "float32")
    for i in range(n * 2):
        with T.sblock("y"):
            vi = T.axis.spatial(n * 2, i)
            y[vi] = T.float32(3)

@R.function
def main(s: R.Shape(["n"])) -> f32["n * 2"]:
    n = T.int64()
    cls = Module
    y = R.call_tir(cls.fill, (R.prim_value(n),), out_ty=f32[n * 2])
    return y
""",
    ("main", [3]),
)

_add(
    "tir_inplace",
    """
@T.prim_func(s_tir=True, private=True)
def bump(x: T.Buffer((3,), "float32"), y: T.Buffer((3,), "float32")):
    for i in range(3):
        with T.sblock("x"):
            vi = T.axis.spatial(3, i)
            x[vi] = x[vi] + y[vi]

@R.function(pure=False)
def main(x: f32[3], y: f32[3]):
    cls = Module
    a = R.call_dps_packed("lowering.twice", (x,), out_ty=f32[3])
    b = R.call_tir_inplace(cls.bump, (a, y), inplace_indices=[0], out_ty=[f32[3]])
    return b
""",
    ("main", _grid(3), _grid(3)),
)

_add(
    "tir_inplace_mixed",
    """
@T.prim_func(s_tir=True, private=True)
def both(x: T.Buffer((3,), "float32"), y: T.Buffer((3,), "float32"), z: T.Buffer((3,), "float32")):
    for i in range(3):
        with T.sblock("x"):
            vi = T.axis.spatial(3, i)
            z[vi] = x[vi] + y[vi]
            y[vi] = T.float32(0)

@R.function(pure=False)
def main(x: f32[3]):
    cls = Module
    a = R.call_dps_packed("lowering.twice", (x,), out_ty=f32[3])
    t = R.call_tir_inplace(cls.both, (x, a), inplace_indices=[-1, 1],
        out_ty=[f32[3], f32[3]])
    return t
""",
    ("main", _grid(3)),
)

# Branches

_add(
    "if_on_tensor",
    """
@R.function
def main(c: R.Tensor((), "bool"), x: f32[3]) -> f32[3]:
    if c:
        w = R.call_dps_packed("lowering.twice", (x,), out_ty=f32[3])
        y = R.call_dps_packed("lowering.plus", (w, x), out_ty=f32[3])
    else:
        y = x
    return y
""",
    ("main", np.array(True), _grid(3)),
    ("main", np.array(False), _grid(3)),
)

_add(
    "if_on_scalar",
    """
@R.function
def main(c: R.Prim("bool"), x: f32[3]) -> f32[3]:
    if c:
        y = R.call_dps_packed("lowering.twice", (x,), out_ty=f32[3])
    else:
        y = R.call_dps_packed("lowering.plus", (x, x), out_ty=f32[3])
    return y
""",
    ("main", True, _grid(3)),
    ("main", False, _grid(3)),
)

_add(
    "if_nested",
    """
@R.function
def main(a: R.Tensor((), "bool"), b: R.Tensor((), "bool"), x: f32[3]):
    if a:
        if b:
            r = R.call_dps_packed("lowering.twice", (x,), out_ty=f32[3])
        else:
            r = x
        s = R.call_dps_packed("lowering.twice", (r,), out_ty=f32[3])
    else:
        s = R.call_dps_packed("lowering.plus", (x, x), out_ty=f32[3])
    t = R.call_dps_packed("lowering.plus", (s, x), out_ty=f32[3])
    return (t, s)
""",
    *[("main", np.array(a), np.array(b), _grid(3)) for a in (True, False) for b in (True, False)],
)

_add(
    "if_of_shapes",
    """
@R.function
def main(c: R.Tensor((), "bool"), x: f32["n"], y: f32["m"]):
    n = T.int64()
    m = T.int64()
    if c:
        r = R.call_dps_packed("lowering.twice", (x,), out_ty=f32[n])
    else:
        r = R.call_dps_packed("lowering.widen", (y,), out_ty=f32[m + 1])
    return r
""",
    ("main", np.array(True), _grid(2), _grid(3)),
    ("main", np.array(False), _grid(2), _grid(3)),
)

_add(
    "if_of_tuples",
    """
@R.function
def main(c: R.Tensor((), "bool"), x: f32[3], y: f32[3]):
    z = (x, y)
    if c:
        r = (y, x)
    else:
        r = z
    a = r[0]
    return (a, r)
""",
    ("main", np.array(True), _grid(3), -_grid(3)),
    ("main", np.array(False), _grid(3), -_grid(3)),
)

_add(
    "if_on_computed",
    """
@R.function(pure=False)
def main(x: f32[3]):
    c = R.call_packed("lowering.positive", x, ty_args=R.Tensor((), "bool"))
    if c:
        r = R.call_dps_packed("lowering.twice", (x,), out_ty=f32[3])
    else:
        r = x
    return r
""",
    ("main", _grid(3)),
    ("main", -_grid(3)),
)

_add(
    "if_with_match_cast",
    """
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor(dtype="float32", ndim=1)):
    if c:
        k = T.int64()
        y = R.match_cast(x, f32[k])
        r = R.call_dps_packed("lowering.widen", (y,), out_ty=f32[k + k])
    else:
        r = x
    return r
""",
    ("main", np.array(True), _grid(3)),
    ("main", np.array(False), _grid(3)),
)

# Functions and closures

_add(
    "recursion",
    """
@R.function(pure=False)
def main(n: R.Prim("int64"), x: f32[2]) -> f32[2]:
    cls = Module
    c = R.call_packed("lowering.positive", x, ty_args=R.Tensor((), "bool"))
    if c:
        y = R.call_dps_packed("lowering.scale", (x, R.prim_value(0)), out_ty=f32[2])
        r = cls.main(n, y)
    else:
        r = x
    return r
""",
    ("main", 3, _grid(2)),
)

_add(
    "mutual_recursion",
    """
@R.function(pure=False)
def even(x: f32["n"]) -> R.Tensor(dtype="float32", ndim=1):
    cls = Module
    c = R.call_packed("lowering.positive", x, ty_args=R.Tensor((), "bool"))
    if c:
        y = R.call_packed("lowering.halved", x, ty_args=R.Tensor(dtype="float32", ndim=1))
        r = cls.odd(y)
    else:
        r = x
    return r

@R.function(pure=False)
def odd(x: f32["n"]) -> R.Tensor(dtype="float32", ndim=1):
    n = T.int64()
    cls = Module
    y = R.call_dps_packed("lowering.widen", (x,), out_ty=f32[n])
    r = cls.even(y)
    return r
""",
    ("even", _grid(8)),
    ("odd", _grid(3)),
)

_add(
    "calls_with_shapes",
    """
@R.function(private=True)
def inner(x: f32["a", "b"]) -> f32["a * b"]:
    a = T.int64()
    b = T.int64()
    y = R.call_dps_packed("lowering.widen", (x,), out_ty=f32[a * b])
    return y

@R.function
def main(x: f32["n", 3]):
    n = T.int64()
    cls = Module
    y = cls.inner(x)
    z = R.call_dps_packed("lowering.twice", (y,), out_ty=f32[n * 3])
    return z
""",
    ("main", _grid(2, 3)),
)

_add(
    "explicit_closure",
    """
@R.function(pure=False)
def add(x: f32[2], y: f32[2]) -> f32[2]:
    z = R.call_dps_packed("lowering.plus", (x, y), out_ty=f32[2])
    return z

@R.function(pure=False)
def main(x: f32[2], y: f32[2]):
    cls = Module
    c = R.make_closure(cls.add, (y,))
    r = R.invoke_closure(c, (x,), ty_args=f32[2])
    return r
""",
    ("main", _grid(2), _grid(2)),
)

_add(
    "pure_closure",
    """
@R.function
def add(x: f32[2], y: f32[2]) -> f32[2]:
    z = R.call_dps_packed("lowering.plus", (x, y), out_ty=f32[2])
    return z

@R.function
def main(x: f32[2], y: f32[2]):
    cls = Module
    c = R.make_closure(cls.add, (y,))
    r = R.invoke_pure_closure(c, (x,), ty_args=f32[2])
    return r
""",
    ("main", _grid(2), _grid(2)),
)

_add(
    "lift_plain",
    """
@R.function
def main(x: f32[2], y: f32[2]):
    @R.function
    def inner(a: f32[2], b: f32[2]) -> f32[2]:
        s = R.call_dps_packed("lowering.plus", (a, b), out_ty=f32[2])
        return s
    r = inner(x, y)
    return r
""",
    ("main", _grid(2), _grid(2)),
)

_add(
    "lift_capture",
    """
@R.function
def main(x: f32[2], y: f32[2]):
    @R.function
    def inner(a: f32[2]) -> f32[2]:
        s = R.call_dps_packed("lowering.plus", (a, y), out_ty=f32[2])
        return s
    r = inner(x)
    q = inner(r)
    return q
""",
    ("main", _grid(2), _grid(2)),
)

_add(
    "lift_two",
    """
@R.function
def main(x: f32[2]):
    @R.function
    def inner(a: f32[2]) -> f32[2]:
        s = R.call_dps_packed("lowering.twice", (a,), out_ty=f32[2])
        return s
    @R.function
    def second(a: f32[2]) -> f32[2]:
        s = R.call_dps_packed("lowering.plus", (a, x), out_ty=f32[2])
        return s
    p = inner(x)
    q = second(p)
    return q
""",
    ("main", _grid(2)),
)

_add(
    "lift_recursive",
    """
@R.function(pure=False)
def main(x: f32[2]):
    @R.function(pure=False)
    def loop(a: f32[2]) -> f32[2]:
        c = R.call_packed("lowering.positive", a, ty_args=R.Tensor((), "bool"))
        if c:
            b = R.call_dps_packed("lowering.scale", (a, R.prim_value(0)), out_ty=f32[2])
            r = loop(b)
        else:
            r = a
        return r
    q = loop(x)
    return q
""",
    ("main", _grid(2)),
)

_add(
    "lift_recursive_capture",
    """
@R.function(pure=False)
def main(x: f32[2], y: f32[2]):
    @R.function(pure=False)
    def loop(a: f32[2]) -> f32[2]:
        c = R.call_packed("lowering.positive", a, ty_args=R.Tensor((), "bool"))
        if c:
            b = R.call_dps_packed("lowering.plus", (a, y), out_ty=f32[2])
            r = loop(b)
        else:
            r = a
        return r
    q = loop(x)
    return q
""",
    ("main", _grid(2), -_grid(2)),
)

_add(
    "lift_nested",
    """
@R.function
def main(x: f32[2]):
    @R.function
    def outer(a: f32[2]) -> f32[2]:
        @R.function
        def inner(b: f32[2]) -> f32[2]:
            s = R.call_dps_packed("lowering.twice", (b,), out_ty=f32[2])
            return s
        t = inner(a)
        return t
    r = outer(x)
    return r
""",
    ("main", _grid(2)),
)

_add(
    "lift_nested_capture",
    """
@R.function
def main(x: f32[2], y: f32[2]):
    @R.function
    def outer(a: f32[2]) -> f32[2]:
        @R.function
        def inner(b: f32[2]) -> f32[2]:
            s = R.call_dps_packed("lowering.plus", (b, y), out_ty=f32[2])
            return s
        t = inner(a)
        return t
    r = outer(x)
    return r
""",
    ("main", _grid(2), _grid(2)),
)

_add(
    "lift_returned",
    """
@R.function
def make(y: f32[2]) -> R.Callable((f32[2],), f32[2], True):
    @R.function
    def inner(a: f32[2]) -> f32[2]:
        s = R.call_dps_packed("lowering.plus", (a, y), out_ty=f32[2])
        return s
    return inner

@R.function
def main(x: f32[2], y: f32[2]) -> f32[2]:
    cls = Module
    f = cls.make(y)
    r = f(x)
    return r
""",
    ("main", _grid(2), _grid(2)),
)

_add(
    "lift_symbolic",
    """
@R.function
def main(x: f32["n"]):
    n = T.int64()
    @R.function
    def inner(a: f32[n]) -> f32[n]:
        s = R.call_dps_packed("lowering.twice", (a,), out_ty=f32[n])
        return s
    r = inner(x)
    return r
""",
    ("main", _grid(3)),
)

_add(
    "lift_symbolic_capture",
    """
@R.function
def main(x: f32["n"], y: f32["n + 1"]):
    n = T.int64()
    @R.function
    def inner(a: f32[n + 1]) -> f32[n]:
        s = R.call_dps_packed("lowering.widen", (a,), out_ty=f32[n])
        return s
    r = inner(y)
    return r
""",
    passes_only=True,
)

_add(
    "lift_argument",
    """
@R.function
def apply(f: R.Callable((f32[2],), f32[2], True), x: f32[2]) -> f32[2]:
    y = f(x)
    z = f(y)
    return z

@R.function
def main(x: f32[2]) -> f32[2]:
    cls = Module
    @R.function
    def inner(a: f32[2]) -> f32[2]:
        s = R.call_dps_packed("lowering.twice", (a,), out_ty=f32[2])
        return s
    r = cls.apply(inner, x)
    return r
""",
    ("main", _grid(2)),
)

_add(
    "lift_name_clash",
    """
@R.function(private=True)
def main_inner(a: f32[2]) -> f32[2]:
    return a

@R.function
def main(x: f32[2]):
    cls = Module
    @R.function
    def inner(a: f32[2]) -> f32[2]:
        s = R.call_dps_packed("lowering.twice", (a,), out_ty=f32[2])
        return s
    y = cls.main_inner(x)
    r = inner(y)
    return r
""",
    ("main", _grid(2)),
)

# Views

_add(
    "views",
    """
@R.function
def main(x: f32[4, 2]):
    with R.dataflow():
        a = R.call_dps_packed("lowering.twice", (x,), out_ty=f32[4, 2])
        b = R.reshape(a, R.shape([8]))
        c = R.reshape(b, R.shape([2, 4]))
        d = R.call_dps_packed("lowering.twice", (c,), out_ty=f32[2, 4])
        e = R.call_dps_packed("lowering.plus", (d, c), out_ty=f32[2, 4])
        R.output(e)
    return e
""",
    ("main", _grid(4, 2)),
)

_add(
    "views_dynamic",
    """
@R.function
def main(x: f32["n", "m"]) -> f32["m * n"]:
    n = T.int64()
    m = T.int64()
    with R.dataflow():
        a = R.call_dps_packed("lowering.twice", (x,), out_ty=f32[n, m])
        b = R.reshape(a, R.shape([n * m]))
        c = R.call_dps_packed("lowering.twice", (b,), out_ty=f32[n * m])
        R.output(c)
    return c
""",
    ("main", _grid(4, 2)),
)

_add(
    "view_of_a_parameter",
    """
@R.function
def main(x: f32["n", 2]):
    n = T.int64()
    b = R.reshape(x, R.shape([n * 2]))
    c = R.call_dps_packed("lowering.twice", (b,), out_ty=f32[n * 2])
    return (b, c)
""",
    ("main", _grid(4, 2)),
)

_add(
    "shapes_as_values",
    """
@R.function(pure=False)
def main(x: f32["n", 2]):
    n = T.int64()
    s = R.shape_of(x)
    d = R.call_packed("lowering.dims", s, ty_args=R.Tensor((2,), "int64"))
    t = R.tensor_to_shape(d)
    e = R.call_packed("lowering.dims", R.shape([n, 3, n + 1]), ty_args=R.Tensor((3,), "int64"))
    return (d, t, e, R.shape([n * 2, 7]))
""",
    ("main", _grid(4, 2)),
)

_add(
    "view_ops",
    """
@R.function(pure=False)
def main(x: f32[4, 2]):
    a = R.call_dps_packed("lowering.twice", (x,), out_ty=f32[4, 2])
    b = R.memory.view(a, R.shape([8]), R.dtype("float32"), R.prim_value(0))
    c = R.memory.ensure_zero_offset(b)
    return c
""",
    passes_only=True,
)

# Kills

_add(
    "kills",
    """
@R.function(pure=False)
def main(x: f32[2]):
    a = R.call_dps_packed("lowering.twice", (x,), out_ty=f32[2])
    b = R.call_packed("lowering.same", a, ty_args=f32[2])
    c = R.call_packed("lowering.same", b, a, ty_args=R.Any)
    d = R.call_packed("lowering.same", c, ty_args=f32[2])
    e = R.call_dps_packed("lowering.plus", (d, x), out_ty=f32[2])
    return e
""",
    ("main", _grid(2)),
)

_add(
    "kills_of_tuples",
    """
@R.function(pure=False)
def main(x: f32[2]):
    a = R.call_dps_packed("lowering.twice", (x,), out_ty=f32[2])
    t = (a, x)
    u = R.call_packed("lowering.same", t, ty_args=R.Tuple(f32[2], f32[2]))
    p = u[0]
    q = u[1]
    r = R.call_dps_packed("lowering.plus", (p, q), out_ty=f32[2])
    return r
""",
    ("main", _grid(2)),
)

_add(
    "kills_of_unused",
    """
@R.function(pure=False)
def main(x: f32[2]):
    a = R.call_dps_packed("lowering.twice", (x,), out_ty=f32[2])
    b = R.call_packed("lowering.same", x, ty_args=R.Any)
    c = R.call_packed("lowering.same", x, ty_args=f32[2])
    return x
""",
    ("main", _grid(2)),
)

_add(
    "kills_of_match_cast",
    """
@R.function(pure=False)
def main(x: f32[2]):
    a = R.call_packed("lowering.same", x, ty_args=R.Any)
    b = R.match_cast(a, f32[2])
    c = R.call_dps_packed("lowering.twice", (b,), out_ty=f32[2])
    return c
""",
    ("main", _grid(2)),
)

_add(
    "renamings",
    """
@R.function(pure=False)
def main(x: f32[2], y: f32[2]):
    a = x
    b = a
    t = (b, y)
    c = t[0]
    d = t[1]
    e = R.call_dps_packed("lowering.plus", (c, d), out_ty=f32[2])
    f = e
    return (f, f)
""",
    ("main", _grid(2), _grid(2)),
)

# Purity

_add(
    "impure",
    """
@R.function(pure=False)
def main(x: f32[2]):
    a = R.call_packed("lowering.same", x, ty_args=f32[2])
    b = R.call_pure_packed("lowering.same", a, ty_args=f32[2])
    return b
""",
    ("main", _grid(2)),
)

_add(
    "pure_packed",
    """
@R.function
def main(x: f32[2]):
    with R.dataflow():
        a = R.call_pure_packed("lowering.same", x, 1, R.str("s"), R.dtype("float32"),
            ty_args=f32[2])
        b = R.call_pure_packed("lowering.same", a, ty_args=f32[2])
        R.output(b)
    return b
""",
    ("main", _grid(2)),
)

_add(
    "pure_local",
    """
@R.function
def main(x: f32[2]):
    @R.function
    def inner(y: f32[2]) -> f32[2]:
        a = R.call_pure_packed("lowering.same", y, ty_args=f32[2])
        return a
    b = inner(x)
    return b
""",
    ("main", _grid(2)),
)

_add(
    "forced_pure",
    """
@R.function
def main(x: f32[2]):
    R.func_attr({"relax.force_pure": True})
    a = R.call_packed("lowering.same", x, ty_args=f32[2])
    return a
""",
    ("main", _grid(2)),
)

_add(
    "inplace_packed",
    """
@R.function
def main(x: f32[2]):
    a = R.call_dps_packed("lowering.twice", (x,), out_ty=f32[2])
    b = R.call_inplace_packed("lowering.same", a, inplace_indices=[0], ty_args=f32[2])
    return b
""",
    ("main", _grid(2)),
)

# Shapes

_add(
    "shape_repeated",
    """
@R.function
def main(x: f32["n", "n"], y: f32["n"]):
    n = T.int64()
    z = R.call_dps_packed("lowering.twice", (y,), out_ty=f32[n])
    return z
""",
    ("main", _grid(3, 3), _grid(3)),
)

_add(
    "shape_computed_first",
    """
@R.function
def main(x: f32["n * 2", "n + m"], y: f32["m", 3], z: f32["n"]):
    n = T.int64()
    m = T.int64()
    w = R.call_dps_packed("lowering.widen", (x,), out_ty=f32[n * 2, m])
    return w
""",
    ("main", _grid(4, 7), _grid(5, 3), _grid(2)),
)

_add(
    "shape_in_tuples",
    """
@R.function
def main(t: R.Tuple(f32["n"], R.Tuple(f32["n", "m"], R.Shape(["m"]))), s: R.Shape(["k", 2])):
    n = T.int64()
    m = T.int64()
    k = T.int64()
    a = t[0]
    b = R.call_dps_packed("lowering.widen", (a,), out_ty=f32[n + m, k])
    return b
""",
    ("main", (_grid(2), (_grid(2, 3), [3])), [4, 2]),
)

_add(
    "prim_parameters",
    """
@R.function(pure=False)
def main(n: R.Prim("int64"), f: R.Prim("float32"), b: R.Prim("bool"), x: f32["m"]):
    m = T.int64()
    r = R.call_packed("lowering.total", n, m, 5, ty_args=R.Any)
    return (r, b)
""",
    ("main", 3, 0.5, True, _grid(2)),
)

_add(
    "prim_parameter_as_dimension",
    """
@R.function
def main(n: R.Prim("int64"), x: f32["n"]) -> f32["n"]:
    n = T.int64()
    y = R.call_dps_packed("lowering.twice", (x,), out_ty=f32[n])
    return y
""",
    passes_only=True,
)

_add(
    "match_casts",
    """
@R.function(pure=False)
def main(x: f32["n"], y: R.Tensor(dtype="float32", ndim=2), o: R.Any) -> f32["n"]:
    n = T.int64()
    m = T.int64()
    k = T.int64()
    y1 = R.match_cast(y, f32[m, k])
    y2 = R.match_cast(y, f32[m, k * 1 + 0])
    o1 = R.match_cast(o, R.Tuple(f32[n], R.Shape([m, 2])))
    s = R.shape_of(x)
    u = R.call_packed("lowering.same", x, y1, y2, o1, s, R.shape([n, 3]), n, ty_args=f32[n])
    v = R.call_packed("lowering.same", u, ty_args=R.Tensor)
    return v
""",
    ("main", _grid(3), _grid(4, 5), (_grid(3), [4, 2])),
)

_add(
    "match_cast_computed",
    """
@R.function
def main(x: f32["n"], y: R.Tensor(dtype="float32", ndim=1)):
    n = T.int64()
    m = T.int64()
    a = R.match_cast(y, f32[n * 2])
    b = R.call_dps_packed("lowering.twice", (a,), out_ty=f32[n * 2])
    return b
""",
    ("main", _grid(3), _grid(6)),
)

_add(
    "match_cast_of_shape",
    """
@R.function(pure=False)
def main(x: R.Tensor(dtype="float32", ndim=2)):
    n = T.int64()
    m = T.int64()
    s = R.shape_of(x)
    t = R.match_cast(s, R.Shape([n, m]))
    y = R.call_dps_packed("lowering.widen", (x,), out_ty=f32[m, n])
    return (y, t)
""",
    ("main", _grid(2, 3)),
)

_add(
    "match_cast_in_dataflow",
    """
@R.function
def main(x: R.Tensor(dtype="float32", ndim=1)):
    n = T.int64()
    with R.dataflow():
        a = R.match_cast(x, f32[n])
        b = R.call_dps_packed("lowering.widen", (a,), out_ty=f32[n + 2])
        R.output(b)
    with R.dataflow():
        c = R.call_dps_packed("lowering.widen", (b,), out_ty=f32[n + 1])
        R.output(c)
    return c
""",
    ("main", _grid(3)),
)

_add(
    "return_checked",
    """
@R.function(pure=False)
def main(x: f32["n", 3]) -> R.Tuple(f32["n", 3], R.Tuple(f32[2], R.Any)):
    r = R.call_packed("lowering.same", (x, (x, x)),
        ty_args=R.Tuple(R.Tensor, R.Tuple(R.Tensor(dtype="float32", ndim=1), R.Any)))
    return r
""",
    passes_only=True,
)

_add(
    "return_checked_any",
    """
@R.function(pure=False)
def main(x: f32["n"]) -> f32["n"]:
    r = R.call_packed("lowering.same", x, ty_args=R.Any)
    return r
""",
    ("main", _grid(3)),
)

_add(
    "return_shape",
    """
@R.function(pure=False)
def main(x: f32["n"]) -> R.Shape(["n", "n * 2"]):
    n = T.int64()
    r = R.call_packed("lowering.same", R.shape([n, n * 2]), ty_args=R.Shape(ndim=2))
    return r
""",
    ("main", _grid(3)),
)

_add(
    "weights",
    """
@R.function
def main(x: f32["n", 4], w: f32[4, "m"], b: f32[4], t: R.Tuple(f32[2, 2], f32["m"])):
    R.func_attr({"num_input": 1})
    n = T.int64()
    m = T.int64()
    y = R.call_dps_packed("lowering.widen", (w,), out_ty=f32[n, m])
    return y
""",
    ("main", _grid(2, 4), _grid(4, 3), _grid(4), (_grid(2, 2), _grid(3))),
)

_add(
    "unknown_types",
    """
@R.function
def main(
    x: R.Tensor, y: R.Tensor(ndim=2), z: R.Tensor(dtype="float32"),
    o: R.Any, s: R.Shape, r: R.Shape(ndim=2), q: R.Tensor((2, 2)),
):
    return (x, y, z, o, s, r, q)
""",
    ("main", _grid(2), _grid(2, 2), _grid(1), 5, [2], [3, 4], _grid(2, 2)),
)

_add(
    "function_parameter",
    """
@R.function(pure=False)
def main(f: R.Callable((f32[2],), f32[2], False), x: f32[2]) -> f32[2]:
    y = f(x)
    return y
""",
    passes_only=True,
)

_add(
    "shape_arithmetic",
    """
@R.function
def main(x: f32["n", "m"]):
    n = T.int64()
    m = T.int64()
    with R.dataflow():
        a = R.call_dps_packed("lowering.widen", (x,), out_ty=f32[n // 2, m % 3 + 1])
        b = R.call_dps_packed("lowering.widen", (a,), out_ty=f32[T.max(n, m), T.min(n, 2)])
        c = R.call_dps_packed("lowering.widen", (b,), out_ty=f32[(n + m) * 2 - 1])
        R.output(c)
    return c
""",
    ("main", _grid(5, 4)),
)

_add(
    "several_functions_with_shapes",
    """
@R.function
def first(x: f32["n"]):
    n = T.int64()
    y = R.call_dps_packed("lowering.widen", (x,), out_ty=f32[n + 1])
    return y

@R.function
def second(x: f32["n"]):
    n = T.int64()
    y = R.call_dps_packed("lowering.widen", (x,), out_ty=f32[n + 2, n])
    return y
""",
    ("first", _grid(2)),
    ("second", _grid(2)),
)

_add(
    "heap_unused",
    """
@R.function
def main(x: f32[2], y: R.Tensor((2, 3), "int32")):
    return (y, x)
""",
    ("main", _grid(2), _grid(2, 3, dtype="int32")),
)

# Scalars

_add(
    "scalar_arguments",
    """
@R.function(pure=False)
def main(x: f32["n", "m"]):
    n = T.int64()
    m = T.int64()
    r = R.call_packed("lowering.total", n * 2, n + m, n, ty_args=R.Any)
    return r
""",
    ("main", _grid(3, 4)),
)

_add(
    "scalar_condition",
    """
@R.function
def main(x: f32["n"]):
    n = T.int64()
    if n > 2:
        y = R.call_dps_packed("lowering.twice", (x,), out_ty=f32[n])
    else:
        y = x
    return y
""",
    ("main", _grid(3)),
    ("main", _grid(2)),
)

_add(
    "scalar_result",
    """
@R.function
def main(x: f32["n"]) -> R.Prim("int64"):
    n = T.int64()
    return R.prim_value(n * 3)
""",
    ("main", _grid(3)),
)

_add(
    "scalar_binding",
    """
@R.function(pure=False)
def main(x: f32["n"]):
    n = T.int64()
    m = R.prim_value(n * 3)
    r = R.call_packed("lowering.total", m, ty_args=R.Any)
    return r
""",
    ("main", _grid(3)),
)

# The rest

_add(
    "symbols",
    """
@R.function(private=True)
def hidden(x: f32[2]) -> f32[2]:
    return x

@T.prim_func(s_tir=True, private=True)
def kernel(x: T.Buffer((2,), "float32"), y: T.Buffer((2,), "float32")):
    T.evaluate(0)

@R.function
def main(x: f32[2]):
    cls = Module
    y = cls.hidden(x)
    return y
""",
    ("main", _grid(2)),
)

_add(
    "constants",
    """
@R.function(pure=False)
def main(x: f32[2]):
    y = R.call_packed("lowering.same", R.const(3, "int32"), ty_args=R.Tensor((), "int32"))
    z = R.call_dps_packed("lowering.plus", (x, R.const([1.0, 2.0], "float32")), out_ty=f32[2])
    s = R.call_packed("lowering.same", R.shape([2, 3]), R.str("text"), R.dtype("int8"), 7,
        ty_args=R.Shape(ndim=2))
    return (z, y, s)
""",
    ("main", _grid(2)),
)

_add(
    "builtin_with_context",
    """
@R.function(pure=False)
def main(x: f32[2]):
    s = R.call_builtin_with_ctx("vm.builtin.alloc_shape_heap", (R.prim_value(4),),
        ty_args=[R.Tensor(dtype="int64", ndim=1)])
    return x
""",
    ("main", _grid(2)),
)

_add(
    "allocations_by_hand",
    """
@R.function(pure=False)
def main(x: f32["n"]):
    n = T.int64()
    a = R.builtin.alloc_tensor(R.shape([n, 2]), R.dtype("float16"), R.prim_value(0))
    b = R.builtin.alloc_tensor(R.shape([n]), R.dtype("float32"), R.prim_value(0))
    c = R.call_packed("lowering.twice", x, b, ty_args=R.Tuple)
    s = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("float32"))
    d = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([4]), R.dtype("float32"))
    e = R.call_packed("lowering.widen", x, d, ty_args=R.Tuple)
    return (b, d)
""",
    ("main", _grid(2)),
)

_add(
    "devices",
    """
I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

@R.function
def main(x: f32[2]):
    with R.dataflow():
        y = R.to_vdevice(x, "llvm:1")
        z = R.to_vdevice(y, "llvm:0")
        R.output(z)
    return z
""",
    passes_only=True,
)


# Where the passes differ from TVM's on purpose

KEPT_ALIVE = "TVM does not kill conditions, nor anything that is last used behind an If"
UNUSED_TUPLE = "TVM leaves tuples that nothing uses; we drop them"
MERGED = "TVM binds what an If gives by a match_cast, we by its variable"
WIDENED = "TVM forgets the dimensions of what an If on a scalar gives"
TYPED = "TVM forgets the type of what a closure gives"
IN_REGISTERS = "TVM loads scalars from the heap where they are used; we use their register"
RESULT = "TVM compares the shape of a result with what it has just been allocated with"
UNREADABLE = "TVM prints arrays as references to metadata that is not part of the text"

EVERY_STAGE = "every stage"

SKIPPED: dict[str, dict[str, str]] = {
    "dps_two_outputs": {"KillAfterLastUse": UNUSED_TUPLE},
    "renamings": {"KillAfterLastUse": UNUSED_TUPLE},
    "if_nested": {"KillAfterLastUse": KEPT_ALIVE},
    "if_of_shapes": {"KillAfterLastUse": MERGED},
    "if_of_tuples": {"KillAfterLastUse": UNUSED_TUPLE},
    "if_on_computed": {"KillAfterLastUse": KEPT_ALIVE},
    "if_with_match_cast": {"KillAfterLastUse": MERGED},
    "recursion": {"KillAfterLastUse": KEPT_ALIVE, "VMShapeLower": IN_REGISTERS},
    "mutual_recursion": {"KillAfterLastUse": KEPT_ALIVE},
    "lift_recursive": {"KillAfterLastUse": KEPT_ALIVE},
    "lift_recursive_capture": {
        "LambdaLift": "TVM calls an impure closure as a pure one",
        "KillAfterLastUse": KEPT_ALIVE,
        "LowerRuntimeBuiltin": TYPED,
    },
    "lift_symbolic_capture": {
        EVERY_STAGE: "TVM leaves a variable without a definition and fails later; we capture it"
    },
    "calls_with_shapes": {
        "VMShapeLower": "TVM computes the dimensions in the types of variables, used or not"
    },
    "scalar_condition": {
        "RemovePurityChecking": WIDENED,
        "CallTIRRewrite": WIDENED,
        "VMShapeLower": WIDENED,
    },
    "constants": {EVERY_STAGE: UNREADABLE},
    "prim_parameter_as_dimension": {
        EVERY_STAGE: "TVM prints a parameter in the type of another by its bare name"
    },
    "view_ops": {
        EVERY_STAGE: "TVM prints a packed call without the type that it has; ours is R.memory.view"
    },
    "devices": {"LowerRuntimeBuiltin": "TVM leaves the operator's attributes on the packed call"},
}
"""Program -> pass -> why it is not compared."""

for _name in ("explicit_closure", "pure_closure", "lift_capture", "lift_two", "lift_nested_capture",
              "lift_returned"):  # fmt: skip
    SKIPPED[_name] = {"LowerRuntimeBuiltin": TYPED}
for _name in ("prim_parameters", "scalar_arguments", "scalar_result", "scalar_binding"):
    SKIPPED[_name] = {"VMShapeLower": IN_REGISTERS}

RESULTS_UNCHECKED = frozenset({
    "allocations_by_hand", "calls_with_shapes", "dps_dynamic_chain", "dps_scalar_arguments",
    "lift_symbolic", "match_cast_computed", "several_functions_with_shapes", "shape_arithmetic",
    "shape_computed_first", "shape_in_tuples", "shape_repeated", "shapes_as_values", "tir_dynamic",
    "tir_variables", "view_of_a_parameter", "views_dynamic", "weights",
})  # fmt: skip
"""Programs of which the checks of results are not compared: see RESULT."""
