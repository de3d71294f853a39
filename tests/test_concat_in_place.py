"""ConcatInPlace: random programs give the same bits with the pass and without it."""

from __future__ import annotations

from typing import Any

import numpy as np

import relaxvm
from relaxvm import transform
from relaxvm.ir import Call, ExternFunc, IRModule, TensorType, Tuple, Var, post_order_visit
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.transform.pipelines import LOWERING

NAMES = [make().name for make, _ in LOWERING]


def lowered(mod: IRModule, *, without: str = "", until: str = "") -> IRModule:
    for make, _ in LOWERING:
        pass_ = make()
        if pass_.name != without:
            mod = pass_(mod)
        if pass_.name == until:
            break
    return mod


def run(mod: IRModule, *args: Any, without: str = "") -> list[np.ndarray]:
    passes = [make() for make, _ in LOWERING if make().name != without]
    pipeline = transform.Sequential(passes)
    vm = relaxvm.VirtualMachine(relaxvm.build(mod, relax_pipeline=pipeline))
    found = vm["main"](*args)
    again = vm["main"](*args)
    results = found if isinstance(found, tuple) else (found,)
    for one, other in zip(results, again if isinstance(again, tuple) else (again,), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    return [np.array(each) for each in results]


def copies(mod: IRModule) -> int:
    """The concatenations that are left."""
    count = 0

    def visit(expr: Any) -> None:
        nonlocal count
        if isinstance(expr, Call) and isinstance(expr.op, ExternFunc):
            count += expr.op.global_symbol == "relaxvm.kernel.concat"

    post_order_visit(lowered(mod, until="ConcatInPlace")["main"], visit)
    return count


def network(seed: int) -> tuple[IRModule, np.ndarray]:
    """A random program with many concatenations, of tensors that are used elsewhere, too."""
    rng = np.random.default_rng(seed)
    bb = relaxvm.BlockBuilder()
    leading = (1, 1, 1, 2)[seed % 4]
    x = Var("x", TensorType([leading, 30, 40], "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            values = [x]
            for _ in range(12):
                one, other = (values[-int(i)] for i in rng.integers(1, min(4, len(values)) + 1, 2))
                kind = rng.choice(
                    ["concat", "concat", "twice", "again", "exp", "relu", "reshape", "add"]
                )
                if kind == "concat":
                    new = R.concat([one, other], axis=1)
                elif kind == "again":
                    both = bb.emit(R.concat([one, other], axis=1))
                    new = R.concat([one, other, bb.emit(R.nn.relu(both))], axis=1)
                elif kind == "twice":
                    new = R.concat([one, other, one], axis=1)
                elif kind == "exp":
                    new = R.tanh(one)
                elif kind == "reshape":
                    rows = int(one.ty.dims[1].value)
                    flat = bb.emit(R.reshape(one, [leading, rows // 2, 80]))
                    new = R.reshape(R.nn.relu(flat), [leading, rows, 40])
                else:
                    new = R.add(R.nn.relu(one), one)
                if int(one.ty.dims[1].value) > 300 and "R.concat" in str(new):
                    new = R.nn.relu(x)
                values.append(bb.emit(new))
            results = [bb.emit_output(v) for v in (values[-1], values[-4])]
        bb.emit_func_output(Tuple(results))
    return bb.get(), rng.standard_normal((leading, 30, 40)).astype(np.float32)


def test_random_programs() -> None:
    before = after = 0
    for seed in range(60):
        mod, x = network(seed)
        for got, want in zip(run(mod, x), run(mod, x, without="ConcatInPlace"), strict=True):
            np.testing.assert_array_equal(got, want, err_msg=str(seed))
        after += copies(mod)
        before += str(mod).count("R.concat")
    assert after <= before - 40


@I.ir_module
class Dense:
    @R.function
    def main(x: R.Tensor((1, 40, 40), "float32")) -> R.Tensor((1, 120, 40), "float32"):
        with R.dataflow():
            a = R.tanh(x)
            b = R.nn.relu(a)
            c = R.concat([a, b], axis=1)
            d = R.nn.relu(R.strided_slice(c, axes=[1], begin=[0], end=[40]))
            e = R.concat([c, d], axis=1)
            g = R.permute_dims(e, [0, 2, 1])
            h = R.permute_dims(g, [0, 2, 1])
            f = R.exp(h)
            R.output(f)
        return f


def test_parts_of_parts() -> None:
    assert copies(Dense) == 0
    text = str(lowered(Dense, until="PlanMemory"))
    assert "memory.alloc_storage" in text
    assert "memory.view" not in text  # a tensor in the storage is made faster
    x = np.random.default_rng(0).standard_normal((1, 40, 40)).astype(np.float32)
    want = run(Dense, x, without="ConcatInPlace")[0]
    np.testing.assert_array_equal(run(Dense, x)[0], want)


@I.ir_module
class Growing:
    """Concatenations of all that was computed so far, as DenseNet of torchvision has them."""

    @R.function
    def main(x: R.Tensor((1, 40, 40), "float32")):
        with R.dataflow():
            a = R.tanh(x)
            b = R.nn.relu(a)
            ab = R.concat([a, b], axis=1)
            c = R.exp(R.strided_slice(ab, axes=[1], begin=[20], end=[60]))
            abc = R.concat([a, b, c], axis=1)
            d = R.exp(R.strided_slice(abc, axes=[1], begin=[60], end=[100]))
            abcd = R.concat([a, b, c, d], axis=1)
            ba = R.concat([b, a], axis=1)
            f = R.nn.relu(abcd)
            g = R.tanh(ba)
            R.output(f, g)
        return (f, g)


def test_the_same_first_parts() -> None:
    assert copies(Growing) == 1  # parts in another order
    x = np.random.default_rng(0).standard_normal((1, 40, 40)).astype(np.float32)
    for got, want in zip(run(Growing, x), run(Growing, x, without="ConcatInPlace"), strict=True):
        np.testing.assert_array_equal(got, want)


@I.ir_module
class Others:
    @R.function
    def main(x: R.Tensor((2, 40, 40), "float32"), n: R.Tensor(("n", 40), "float32")):
        with R.dataflow():
            a = R.tanh(x)
            b = R.nn.relu(a)
            inner = R.concat([a, b], axis=1)
            same = R.concat([a, a], axis=0)
            argument = R.concat([x, b], axis=0)
            m = R.tanh(n)
            symbolic = R.concat([m, R.nn.relu(m)], axis=0)
            R.output(inner, same, argument, symbolic)
        return (inner, same, argument, symbolic)


def test_what_needs_a_copy() -> None:
    """Parts that are not in one piece, one part twice, arguments, sizes that are not known."""
    assert copies(Others) == 4
    x = np.random.default_rng(0).standard_normal((2, 40, 40)).astype(np.float32)
    for got, want in zip(run(Others, x, x[0]), run(Others, x, x[0], without="ConcatInPlace"),
                         strict=True):  # fmt: skip
        np.testing.assert_array_equal(got, want)


@I.ir_module
class Results:
    @R.function
    def main(x: R.Tensor((40, 40), "float32")):
        with R.dataflow():
            a = R.tanh(x)
            b = R.nn.relu(a)
            c = R.concat([a, b], axis=0)
            R.output(a, c)
        return (a, c)


def test_a_result_of_the_function_stays_apart() -> None:
    """It would hold the memory of the whole."""
    assert copies(Results) == 1
