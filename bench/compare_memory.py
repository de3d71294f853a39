"""Memory of whole programs: the memory plans of relaxvm and of TVM, on the same VM.

    python bench/compare_memory.py

relaxvm legalizes each program to kernels.  TVM then plans its memory in another process
(ToNonDataflow, RemovePurityChecking, CallTIRRewrite, StaticPlanBlockMemory), relaxvm parses the
result, and the rest of its pipeline runs on both.  So both plans are for the same calls, and the
same allocator counts:

- peak: the maximum of live bytes during a call, on a VM whose allocator does not cache;
- cached: the bytes that a VM with default settings holds after three calls;
- storages: the number of storages that a call allocates.

The results are compared first.  The script fails if a peak, or the sum of all peaks, is above
TVM's.  Needs the extra ``tvm``.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import clean
import numpy as np

FLOAT = "float32"


class Program(NamedTuple):
    """A program to plan.

    Attributes:
        name: its name in the table.
        text: the functions of its module.
        args: shapes of float32 arguments, or values.
    """

    name: str
    text: str
    args: tuple[Any, ...]


PROGRAMS = (
    Program(
        "chain of kernels of one shape",
        """
@R.function
def main(x: R.Tensor((256, 256), "float32"), w: R.Tensor((256, 256), "float32")):
    with R.dataflow():
        a = R.matmul(x, w)
        b = R.matmul(a, w)
        c = R.matmul(b, w)
        d = R.matmul(c, w)
        e = R.matmul(d, w)
        R.output(e)
    return e
""",
        ((256, 256), (256, 256)),
    ),
    Program(
        "multilayer perceptron",
        """
@R.function
def main(
    x: R.Tensor((64, 256), "float32"), w1: R.Tensor((256, 512), "float32"),
    b1: R.Tensor((512,), "float32"), w2: R.Tensor((512, 128), "float32"),
    b2: R.Tensor((128,), "float32"), w3: R.Tensor((128, 10), "float32"),
):
    with R.dataflow():
        h1 = R.matmul(x, w1)
        h2 = R.add(h1, b1)
        h3 = R.nn.relu(h2)
        h4 = R.matmul(h3, w2)
        h5 = R.add(h4, b2)
        h6 = R.nn.relu(h5)
        h7 = R.matmul(h6, w3)
        h8 = R.nn.softmax(h7, axis=-1)
        R.output(h8)
    return h8
""",
        ((64, 256), (256, 512), (512,), (512, 128), (128,), (128, 10)),
    ),
    Program(
        "the same, batch size symbolic",
        """
@R.function
def main(
    x: R.Tensor(("n", 256), "float32"), w1: R.Tensor((256, 512), "float32"),
    b1: R.Tensor((512,), "float32"), w2: R.Tensor((512, 128), "float32"),
    b2: R.Tensor((128,), "float32"), w3: R.Tensor((128, 10), "float32"),
):
    with R.dataflow():
        h1 = R.matmul(x, w1)
        h2 = R.add(h1, b1)
        h3 = R.nn.relu(h2)
        h4 = R.matmul(h3, w2)
        h5 = R.add(h4, b2)
        h6 = R.nn.relu(h5)
        h7 = R.matmul(h6, w3)
        h8 = R.nn.softmax(h7, axis=-1)
        R.output(h8)
    return h8
""",
        ((48, 256), (256, 512), (512,), (512, 128), (128,), (128, 10)),
    ),
    Program(
        "attention block, symbolic",
        """
@R.function
def main(
    x: R.Tensor(("t", 128), "float32"), wq: R.Tensor((128, 128), "float32"),
    wk: R.Tensor((128, 128), "float32"), wv: R.Tensor((128, 128), "float32"),
    w1: R.Tensor((128, 512), "float32"), w2: R.Tensor((512, 128), "float32"),
):
    with R.dataflow():
        q = R.matmul(x, wq)
        k = R.matmul(x, wk)
        kt = R.permute_dims(k)
        s = R.matmul(q, kt)
        p = R.nn.softmax(s, axis=-1)
        v = R.matmul(x, wv)
        o = R.matmul(p, v)
        r = R.add(o, x)
        f = R.matmul(r, w1)
        g = R.nn.gelu(f)
        h = R.matmul(g, w2)
        y = R.add(h, r)
        R.output(y)
    return y
""",
        ((60, 128), (128, 128), (128, 128), (128, 128), (128, 512), (512, 128)),
    ),
    Program(
        "sizes that differ, upper bounds",
        """
@R.function
def main(x: R.Tensor(("n", "m"), "float32")):
    R.func_attr({"tir_var_upper_bound": {"n": 64, "m": 48}})
    with R.dataflow():
        a = R.permute_dims(x)
        b = R.matmul(x, a)
        c = R.nn.softmax(b, axis=-1)
        d = R.matmul(c, x)
        e = R.concat((d, x), axis=0)
        f = R.sum(e, axis=[0])
        g = R.add(e, f)
        h = R.sum(g, axis=[1])
        R.output(h)
    return h
""",
        ((60, 40),),
    ),
    Program(
        "several data types",
        """
@R.function
def main(x: R.Tensor((128, 128), "float32")):
    with R.dataflow():
        a = R.exp(x)
        b = R.astype(a, dtype="float64")
        c = R.multiply(b, b)
        d = R.sum(c, axis=[1], keepdims=True)
        e = R.divide(c, d)
        f = R.astype(e, dtype="float32")
        g = R.greater(f, x)
        h = R.where(g, f, x)
        i = R.argmax(h, axis=1)
        j = R.astype(i, dtype="int32")
        k = R.take(f, j, axis=0)
        R.output(k)
    return k
""",
        ((128, 128),),
    ),
    Program(
        "branches",
        """
@R.function
def main(
    x: R.Tensor((128, 256), "float32"), w: R.Tensor((256, 256), "float32"), q: R.Prim("bool")
):
    a = R.matmul(x, w)
    b = R.exp(a)
    c = R.matmul(b, w)
    if q:
        d = R.matmul(c, w)
        e = R.tanh(d)
        f = R.matmul(e, w)
        y = R.add(f, c)
    else:
        g = R.concat((c, c), axis=0)
        h = R.sum(g, axis=[0])
        y = R.multiply(c, h)
    z = R.matmul(y, w)
    return z
""",
        ((128, 256), (256, 256), True),
    ),
    Program(
        "tuples",
        """
@R.function
def main(x: R.Tensor((96, 384), "float32")):
    with R.dataflow():
        s = R.split(x, 3, axis=1)
        a = s[0]
        b = s[1]
        c = s[2]
        t = R.matmul(a, R.permute_dims(b))
        u = R.nn.softmax(t, axis=-1)
        v = R.matmul(u, c)
        p = (v, t)
        w = R.exp(p[0])
        y = R.matmul(p[1], w)
        z = R.concat((y, w), axis=1)
        R.output(z)
    return z
""",
        ((96, 384),),
    ),
    Program(
        "views",
        """
@R.function
def main(x: R.Tensor((32, 16, 64), "float32"), w: R.Tensor((64, 64), "float32")):
    with R.dataflow():
        a = R.reshape(x, R.shape([512, 64]))
        b = R.matmul(a, w)
        c = R.reshape(b, R.shape([32, 16, 64]))
        d = R.permute_dims(c, axes=[1, 0, 2])
        e = R.reshape(d, R.shape([512, 64]))
        f = R.matmul(e, w)
        g = R.nn.relu(f)
        h = R.reshape(g, R.shape([16, 2048]))
        i = R.sum(h, axis=[1])
        R.output(i)
    return i
""",
        ((32, 16, 64), (64, 64)),
    ),
    Program(
        "residual network of convolutions",
        """
@R.function
def main(
    x: R.Tensor((1, 8, 32, 32), "float32"), w0: R.Tensor((16, 8, 3, 3), "float32"),
    w1: R.Tensor((16, 16, 3, 3), "float32"), w2: R.Tensor((16, 16, 1, 1), "float32"),
):
    with R.dataflow():
        a = R.nn.conv2d(x, w0, padding=1)
        b = R.nn.relu(a)
        c = R.nn.conv2d(b, w1, padding=1)
        d = R.add(c, b)
        e = R.nn.relu(d)
        f = R.nn.max_pool2d(e, pool_size=[2, 2], strides=[2, 2])
        g = R.nn.conv2d(f, w2)
        h = R.add(g, f)
        i = R.nn.relu(h)
        j = R.mean(i, axis=[2, 3])
        R.output(j)
    return j
""",
        ((1, 8, 32, 32), (16, 8, 3, 3), (16, 16, 3, 3), (16, 16, 1, 1)),
    ),
    Program(
        "loop by recursion",
        """
@R.function
def step(
    x: R.Tensor((64, 128), "float32"), w: R.Tensor((128, 128), "float32"), k: R.Prim("int64")
) -> R.Tensor((64, 128), "float32"):
    a = R.matmul(x, w)
    b = R.tanh(a)
    c = R.matmul(b, w)
    d = R.add(c, x)
    q: R.Prim("bool") = R.call_pure_packed("bench.positive", k, ty_args=R.Prim("bool"))
    if q:
        j: R.Prim("int64") = R.call_pure_packed("bench.minus_one", k, ty_args=R.Prim("int64"))
        cls = Module
        e = cls.step(d, w, j)
        f = R.tanh(e)
        y = R.subtract(f, e)
    else:
        y = d
    return y

@R.function
def main(
    x: R.Tensor((64, 128), "float32"), w: R.Tensor((128, 128), "float32"), k: R.Prim("int64")
):
    cls = Module
    y = cls.step(x, w, k)
    return y
""",
        ((64, 128), (128, 128), 6),
    ),
    Program(
        "wide: many tensors at once",
        """
@R.function
def main(x: R.Tensor((64, 64), "float32")):
    with R.dataflow():
        a = R.exp(x)
        b = R.matmul(a, x)
        c = R.matmul(b, x)
        d = R.concat((a, b), axis=0)
        e = R.concat((c, d), axis=0)
        f = R.sum(e, axis=[0])
        g = R.add(b, f)
        h = R.matmul(e, g)
        i = R.concat((h, e), axis=1)
        j = R.sum(i, axis=[1])
        R.output(j)
    return j
""",
        ((64, 64),),
    ),
    Program(
        "dynamic sizes that are related",
        """
@R.function
def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 64), "float32")):
    with R.dataflow():
        a = R.matmul(x, w)
        b = R.concat((a, x), axis=0)
        c = R.matmul(b, w)
        d = R.concat((c, x), axis=0)
        e = R.matmul(d, w)
        f = R.sum(e, axis=[1])
        R.output(f)
    return f
""",
        ((50, 64), (64, 64)),
    ),
)


def source(program: Program) -> str:
    lines = ["@I.ir_module", "class Module:", *("    " + line for line in program.text.split("\n"))]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def arguments(program: Program) -> list[Any]:
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal(arg).astype(FLOAT) / 4 if isinstance(arg, tuple) else arg
        for arg in program.args
    ]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "bench.positive": lambda k: k > 0,
    "bench.minus_one": lambda k: k - 1,
}


# TVM's side


def plan_with_tvm(texts: Sequence[str]) -> list[str]:
    """Return the scripts of legalized programs after TVM's planner."""
    from tvm.relax import transform
    from tvm.script import from_source

    passes = (
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
        transform.StaticPlanBlockMemory(),
    )
    planned = []
    for text in texts:
        text = text.partition("\n")[2]  # drop the import line; from_source knows its names
        text = re.sub(r"out_ty=R\.Tuple\((.*)\)\)$", r"out_ty=[\1])", text, flags=re.M)
        mod = from_source(text)
        for each in passes:
            mod = each(mod)
        planned.append(mod.script())
    return planned


def tvm_texts(legalized: Sequence[Any]) -> list[str]:
    """Run `plan_with_tvm` in another process."""
    command = [sys.executable, __file__, "--tvm"]
    texts = json.dumps([mod.script() for mod in legalized])
    done = subprocess.run(command, input=texts, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"TVM's side failed:\n{done.stderr[-2000:]}")
    answer: list[str] = json.loads(done.stdout.splitlines()[-1])
    return answer


# Measuring


class Figures(NamedTuple):
    peak: int
    cached: int
    storages: int


def lowerings() -> tuple[list[Any], list[Any], list[Any]]:
    """Return relaxvm's passes in three groups: before, in place of, and after TVM's passes."""
    from relaxvm import transform
    from relaxvm.transform.pipelines import LOWERING

    passes = [make() for make, _ in LOWERING]
    names = [each.name for each in passes]
    first, last = names.index("ToNonDataflow"), names.index("PlanMemory")
    assert transform.WriteInPlace().name in names[first:last]
    return passes[:first], passes[first : last + 1], passes[last + 1 :]


def run_all(passes: Sequence[Any], mod: Any) -> Any:
    for each in passes:
        mod = each(mod)
    return mod


def measure(lowered: Any, args: list[Any]) -> tuple[Any, Figures]:
    """Return the result of a program and its memory use."""
    import relaxvm

    executable = relaxvm.build(lowered, relax_pipeline=None)
    bare = relaxvm.VirtualMachine(
        executable, memory_cfg="naive", functions=FUNCTIONS, optimize=False
    )
    result = np.array(bare["main"](*args))
    stats = bare.memory_stats()
    usual = relaxvm.VirtualMachine(executable, functions=FUNCTIONS)
    for _ in range(3):
        usual["main"](*args)
    kept = usual.memory_stats()
    figures = Figures(stats.peak_bytes, kept.live_bytes + kept.cached_bytes, stats.allocations)
    return result, figures


def rows() -> list[tuple[Program, Figures, Figures]]:
    """Return each program with TVM's figures, then relaxvm's."""
    from relaxvm.script import from_source

    before, ours, after = lowerings()
    legalized = [run_all(before, from_source(source(program))) for program in PROGRAMS]
    found = []
    for program, mod, text in zip(PROGRAMS, legalized, tvm_texts(legalized), strict=True):
        args = arguments(program)
        theirs, tvm = measure(run_all(after, from_source(text)), args)
        mine, relaxvm = measure(run_all(after, run_all(ours, mod)), args)
        if not np.allclose(theirs, mine, rtol=1e-5, atol=1e-6):
            raise SystemExit(f"{program.name}: the results differ")
        found.append((program, tvm, relaxvm))
    return found


def kib(nbytes: int) -> str:
    return f"{nbytes / 1024:.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tvm", action="store_true", help=argparse.SUPPRESS)
    if parser.parse_args().tvm:
        print(json.dumps(plan_with_tvm(json.load(sys.stdin))))
        return 0
    found = rows()
    line = "{:34} {:>9} {:>9} {:>6}   {:>9} {:>9}   {:>4} {:>7}"
    print(
        line.format("KiB", "peak TVM", "relaxvm", "ratio", "cached", "relaxvm", "sto.", "relaxvm")
    )
    total = [Figures(*map(sum, zip(*(row[side] for row in found), strict=True))) for side in (1, 2)]
    named = [(program.name, tvm, own) for program, tvm, own in found]
    for name, tvm, own in [*named, ("all", *total)]:
        ratio = f"{own.peak / tvm.peak:.2f}"
        print(line.format(name, kib(tvm.peak), kib(own.peak), ratio, kib(tvm.cached),
                          kib(own.cached), tvm.storages, own.storages))  # fmt: skip
    worse = [program.name for program, tvm, own in found if own.peak > tvm.peak]
    if worse or total[1].peak >= total[0].peak:
        print(f"peaks above TVM's: {', '.join(worse) or 'in total'}")
        return 1
    return 0


if __name__ == "__main__":
    clean.restart()
    sys.exit(main())
