"""Memory planning: StaticPlanBlockMemory, WriteInPlace, PlanMemory, and the memory report."""

# ruff: noqa: E501  (long lines in programs)

from __future__ import annotations

import random
import re
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import relaxvm
from relaxvm import VirtualMachine, analysis, ir, transform
from relaxvm.ir import assert_structural_equal
from relaxvm.kernels import PREFIX, record_of, ufunc_of
from relaxvm.registry import GLOBAL
from relaxvm.script import from_source
from relaxvm.transform._packing import Block, greatest_live, pack
from relaxvm.transform.pipelines import LOWERING

from .counting import python_calls
from .relax_evaluator import Evaluator


def module(functions: str) -> ir.IRModule:
    lines = ["@I.ir_module", "class Module:", *("    " + line for line in functions.split("\n"))]
    return from_source("\n".join(lines))


def main(signature: str, body: str, *, attrs: str = "", more: str = "") -> ir.IRModule:
    """A module with a function main, where "F x -> shape" is a call of a packed function and
    "VIEW x -> shape" a reshape that does not copy."""
    lines = [*more.split("\n"), "@R.function(pure=False)", f"def main({signature}):"]
    if attrs:
        lines.append(f"    R.func_attr({attrs})")
    lines += ["    n = T.int64()"] if '"n"' in signature else []
    lines += ["    " + _expanded(line) for line in body.strip("\n").split("\n")]
    return module("\n".join(lines))


def _expanded(line: str) -> str:
    view = re.fullmatch(r"( *\w+) = VIEW (\w+) -> \((.*)\)", line)
    if view is not None:
        name, tensor, shape = view.groups()
        ty = f'R.Tensor(({shape}), "float32")'
        packed = f'"vm.builtin.reshape", {tensor}, R.shape([{shape}]), ty_args={ty}'
        return f"{name} = R.call_packed({packed})"
    call = re.fullmatch(r"( *\w+) = F (.*) -> (\([^)]*\))(?: (\w+))?", line)
    if call is None:
        return line
    dtype = call[4] or "float32"
    return (
        f'{call[1]} = R.call_dps_packed("f", ({call[2]},), out_ty=R.Tensor({call[3]}, "{dtype}"))'
    )


BEFORE_PLAN: tuple[Callable[[], Any], ...] = (
    transform.LegalizeOps,
    transform.RewriteDataflowReshape,
    transform.ToNonDataflow,
    transform.RemovePurityChecking,
    transform.CallTIRRewrite,
)


def allocated(mod: ir.IRModule) -> ir.IRModule:
    """Lower calls to explicit allocations."""
    for make in BEFORE_PLAN:
        mod = make()(mod)
    return mod


def planned(mod: ir.IRModule, *, small: int = 0) -> ir.IRModule:
    return transform.PlanMemory(small=small)(allocated(mod))


def storages(mod: ir.IRModule, function: str = "main") -> list[str]:
    """Return the sizes of the storages that a plan allocates, as text, in order."""
    return re.findall(r"memory.alloc_storage\(R.shape\(\[(.*?)\]\), 0", str(mod[function]))


def places(mod: ir.IRModule) -> list[tuple[str, int]]:
    """Return storage and offset of each tensor of main that is in a storage, in order."""
    found = re.findall(r"memory.alloc_tensor\((\w+), (\d+),", str(mod["main"]))
    return [(storage, int(offset)) for storage, offset in found]


# StaticPlanBlockMemory

X = 'x: R.Tensor((8, 8), "float32")'
N = 'x: R.Tensor(("n", 8), "float32")'


def test_the_plan_in_full() -> None:
    before = main(
        X, "a = F x -> (8, 8)\nb = F a -> (8, 8)\nc = F b -> (8, 7)\nd = F c -> (2,)\nreturn d"
    )
    after = module(
        """
@R.function(pure=False)
def main(x: R.Tensor((8, 8), "float32")) -> R.Tensor((2,), "float32"):
    storage: R.Any = R.memory.alloc_storage(R.shape([256]), 0, "global", "float32")
    alloc: R.Tensor((8, 8), "float32") = R.memory.alloc_tensor(storage, 0, R.shape([8, 8]), "float32")
    _ = R.call_packed("f", x, alloc)
    a: R.Tensor((8, 8), "float32") = alloc
    storage1: R.Any = R.memory.alloc_storage(R.shape([256]), 0, "global", "float32")
    alloc1: R.Tensor((8, 8), "float32") = R.memory.alloc_tensor(storage1, 0, R.shape([8, 8]), "float32")
    _1 = R.call_packed("f", a, alloc1)
    b: R.Tensor((8, 8), "float32") = alloc1
    alloc2: R.Tensor((8, 7), "float32") = R.memory.alloc_tensor(storage, 0, R.shape([8, 7]), "float32")
    _2 = R.call_packed("f", b, alloc2)
    c: R.Tensor((8, 7), "float32") = alloc2
    alloc3: R.Tensor((2,), "float32") = R.builtin.alloc_tensor(R.shape([2]), "float32", 0, "global", ty_args=R.Tensor((2,), "float32"))
    _3 = R.call_packed("f", c, alloc3)
    d: R.Tensor((2,), "float32") = alloc3
    return d
"""
    )
    assert_structural_equal(transform.StaticPlanBlockMemory()(allocated(before)), after)


def test_possible_results_of_packed_functions_are_not_overwritten() -> None:
    """TVM's planner reuses `a` here, although `b`, which may alias `a`, is alive."""
    body = (
        'a = F x -> (8, 8)\nb = R.call_packed("same", a, ty_args=R.Tensor((8, 8), "float32"))\n'
        "c = F x -> (8, 8)\nd = F c, b -> (8, 8)\nreturn d"
    )
    for plan in (transform.StaticPlanBlockMemory(), transform.PlanMemory(small=0)):
        first = plan(allocated(main(X, body)))["main"].body.blocks[0].bindings[0]
        assert first.value.op.name == "relax.builtin.alloc_tensor", plan.name


def test_a_storage_of_a_branch_is_not_used_outside() -> None:
    """TVM's planner does use it, and the resulting program reads an undefined storage."""
    body = """
a = F x -> (8, 8)
if q:
    b = F x -> (8, 8)
    c = F b -> (8, 8)
    d = F c, b -> (8, 8)
    y = F d -> (8, 8)
else:
    y = F x -> (8, 8)
e = F y -> (8, 8)
g = F e, y -> (8, 8)
h = F g -> (8, 8)
return h"""
    mod = transform.StaticPlanBlockMemory()(allocated(main(f'{X}, q: R.Prim("bool")', body)))
    analysis.check_well_formed(mod)
    assert storages(mod) == ["256"] * 4


@pytest.mark.parametrize(
    ("attrs", "shapes", "expected"),
    [
        ("", ["(n, 8)", "(8, n)", "(n * 8,)"], ["32 * n", "32 * n"]),
        ("", ["(n, n)", "(n, n)", "(n,)"], ["4 * (n * n)", "4 * (n * n)"]),
        ('{"tir_var_upper_bound": {"n": 20}}', ["(n, 8)", "(n + 1,)", "(n,)"], ["640", "84"]),
        ('{"tir_var_lower_bound": {"n": 20}}', ["(n,)", "(n,)"], ["4 * n"]),
        ('{"relax.memory_plan_dynamic_func_output": True}', ["(n,)", "(n,)"], ["4 * n", "n * 4"]),
    ],
)
def test_symbolic_sizes_and_bounds(attrs: str, shapes: Sequence[str], expected: list[str]) -> None:
    lines = [f"v{i} = F {f'v{i - 1}' if i else 'x'} -> {shape}" for i, shape in enumerate(shapes)]
    before = main(N, "\n".join([*lines, f"return v{len(shapes) - 1}"]), attrs=attrs)
    after = transform.StaticPlanBlockMemory()(allocated(before))
    assert storages(after) == expected
    assert "relax.memory_plan_dynamic_func_output" not in after["main"].attrs


TVM_CASES = {
    "data types": (X, "a = F x -> (8, 8)\nb = F a -> (8, 8) int32\nc = F b -> (8, 8)\n"
                      "d = F c -> (16, 8) int32\ne = F d -> (8, 8) bool\ng = F e, c -> (8, 8)\nreturn g"),
    "views": (X, "a = F x -> (8, 8)\nb = VIEW a -> (64,)\nc = F b -> (8, 8)\n"
                 "d = F c -> (8, 8)\ne = VIEW d -> (64,)\nreturn e"),
    "tuples": (X, "a = F x -> (8, 8)\nb = F a -> (8, 8)\nt = (a, (b, a))\nc = F t[1][0] -> (8, 8)\n"
                  "d = F c, a -> (8, 8)\ne = F d -> (8, 8)\nreturn e"),
    "growth": (X, "a = F x -> (2,)\nb = F a -> (4,)\nc = F b -> (10,)\nd = F c -> (6,)\n"
                  "e = F d -> (100,)\ng = F e -> (3,)\nh = F g -> (2000,)\ni = F h, e -> (7,)\n"
                  "j = F i -> (7,)\nreturn j"),
    "ties": (X, "a = F x -> (3,)\nb = F a -> (8,)\nc = F b -> (8,)\nd = F c, b -> (8,)\n"
                "e = F d -> (20,)\ng = F e, c -> (7,)\nh = F g -> (50,)\nreturn h"),
    "symbolic": (N, "a = F x -> (n, 8)\nb = F a -> (n, n)\nc = F b -> (8, n)\nd = F c -> (n, n)\n"
                    "e = F d -> (n,)\nreturn e"),
    "nested branches": (f'{X}, q: R.Prim("bool")', """a = F x -> (8, 8)
if q:
    b = F x -> (8, 8)
    c = F b -> (8, 8)
    if q:
        d = F c -> (8, 8)
        y = d
    else:
        y = x
    e = F c, y -> (8, 8)
    z = e
else:
    z = x
return z"""),
    "no use": (X, "a = F x -> (8, 8)\nb = F x -> (8, 8)\nc = F b -> (8, 8)\nreturn c"),
}  # fmt: skip


@pytest.mark.parametrize("name", TVM_CASES)
def test_the_plan_is_that_of_tvm(name: str) -> None:
    pytest.importorskip("tvm")
    from tvm.relax import transform as passes
    from tvm.script import from_source as parse

    mod = main(*TVM_CASES[name])
    theirs = parse(mod.script().partition("\n")[2])
    for make in ("ToNonDataflow", "RemovePurityChecking", "CallTIRRewrite"):
        theirs = getattr(passes, make)()(theirs)
    theirs = passes.StaticPlanBlockMemory()(theirs)
    ours = transform.StaticPlanBlockMemory()(allocated(mod))
    assert_structural_equal(ours, from_source(theirs.script()))


# WriteInPlace


def test_a_chain_needs_one_tensor() -> None:
    mod = allocated(main(N, "a = R.exp(x)\nb = R.add(a, x)\nc = R.nn.relu(b)\nreturn c"))
    after = transform.WriteInPlace()(mod)
    assert analysis.memory_report(mod)["main"].tensors == 3
    assert analysis.memory_report(after)["main"].tensors == 1
    text = str(after["main"].body)
    assert 'R.call_packed("relaxvm.kernel.exp", x, a)' in text
    assert 'R.call_packed("relaxvm.kernel.add", a_1, x, a_1)' in text
    assert 'R.call_packed("relaxvm.kernel.nn.relu", b, b)' in text


@pytest.mark.parametrize(
    ("why", "signature", "body", "tensors"),
    [
        ("a parameter", X, "a = R.exp(x)\nreturn a", 1),
        ("used later", X, "a = R.exp(x)\nb = R.exp(a)\nc = R.add(a, b)\nreturn c", 2),
        ("a result", X, "a = R.exp(x)\nb = R.exp(a)\nreturn (a, b)", 2),
        ("in a tuple", X, "a = R.exp(x)\nt = (a, x)\nb = R.exp(a)\nc = R.exp(t[0])\nreturn c", 2),
        ("another shape", X, "a = R.sum(x, axis=[0])\nb = R.add(a, x)\nreturn b", 2),
        ("another data type", X, 'a = R.exp(x)\nb = R.astype(a, dtype="float64")\nreturn b', 2),
        ("a view of it lives", X,
         "a = R.exp(x)\nv = VIEW a -> (64,)\nb = R.exp(a)\nc = R.exp(v)\nreturn (b, c)", 2),
        ("the view is the last", X, "a = R.exp(x)\nv = VIEW a -> (64,)\nc = R.exp(v)\nreturn c", 1),
        ("not elementwise", X, "a = R.exp(x)\nb = R.matmul(a, a)\nreturn b", 2),
        ("used in a branch", f'{X}, q: R.Prim("bool")',
         "a = R.exp(x)\nif q:\n    b = R.exp(a)\nelse:\n    b = R.matmul(a, x)\nreturn b", 3),
        ("kept by a function", X,
         'a = R.exp(x)\nk = R.call_packed("keep", a, ty_args=R.Any)\nb = R.exp(a)\n'
         'm = R.call_packed("keep", k, ty_args=R.Any)\nreturn b', 2),
    ],
)  # fmt: skip
def test_live_tensors_are_not_overwritten(
    why: str, signature: str, body: str, tensors: int
) -> None:
    after = transform.WriteInPlace()(allocated(main(signature, body)))
    assert analysis.memory_report(after)["main"].tensors == tensors, why


def elementwise_kernels() -> list[str]:
    records = {name: record_of(name) for name in GLOBAL.names() if name.startswith(PREFIX)}
    return sorted(name for name, record in records.items() if record and record.in_place)


@pytest.mark.parametrize("name", elementwise_kernels())
def test_elementwise_kernels_work_in_place(name: str) -> None:
    """Equal results in place, without temporary memory of the operands' size."""
    run = GLOBAL.get(name)
    ufunc = ufunc_of(name)
    count = ufunc.nin if ufunc is not None else 1
    dtype = next((d for d in "fl?" if _answers(run, count, d, name)), None)
    if dtype is None:
        pytest.skip("its result is of another data type than its inputs")
    extra = (0.25, 0.75) if name.endswith(".clip") else ()
    for position in range(count):
        inputs = [_operand(dtype, seed, 200_000) for seed in range(count)]
        expected = np.empty_like(inputs[0])
        with np.errstate(all="ignore"):
            run(*inputs, *extra, expected)
            tracemalloc.start()
            run(*inputs, *extra, inputs[position])
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        np.testing.assert_array_equal(inputs[position], expected)
        assert peak < inputs[position].nbytes


def _operand(dtype: str, seed: int, size: int) -> Any:
    values = np.random.default_rng(seed).integers(1, 9, size)
    return (values / 10).astype("f") if dtype == "f" else values.astype(dtype)


def _answers(run: Any, count: int, dtype: str, name: str) -> bool:
    inputs = [_operand(dtype, seed, 4) for seed in range(count)]
    extra = (0.25, 0.75) if name.endswith(".clip") else ()
    try:
        with np.errstate(all="ignore"):
            run(*inputs, *extra, np.empty_like(inputs[0]))
    except (TypeError, ValueError):
        return False
    return True


# Packing

BLOCKS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 8), st.integers(0, 40)), max_size=24
).map(lambda rows: sorted(Block(first, first + length, size) for first, length, size in rows))


@settings(derandomize=True, max_examples=200, deadline=None)
@given(BLOCKS, st.sampled_from((1, 4, 64)))
def test_blocks_that_live_at_once_do_not_overlap(blocks: list[Block], alignment: int) -> None:
    layout = pack(blocks, alignment)
    assert layout.nbytes >= greatest_live(blocks)
    spots = list(zip(layout.offsets, blocks, strict=True))
    for index, (offset, block) in enumerate(spots):
        assert offset % alignment == 0
        assert offset + block.nbytes <= layout.nbytes
        for other_offset, other in spots[:index]:
            if block.start <= other.end and other.start <= block.end:
                apart = (
                    offset + block.nbytes <= other_offset
                    or other_offset + other.nbytes <= offset
                    or not block.nbytes
                    or not other.nbytes
                )
                assert apart, (block, other)


@pytest.mark.parametrize("sizes", [(5, 7, 7, 5, 8, 7, 7, 5), (1, 2, 3, 4, 5, 4, 3, 2, 1)])
def test_a_chain_is_packed_optimally(sizes: tuple[int, ...]) -> None:
    blocks = [Block(i, i + 1, size) for i, size in enumerate(sizes)]
    assert pack(blocks, 1).nbytes == greatest_live(blocks)


# PlanMemory


def test_data_types_share_an_arena() -> None:
    body = (
        "a = F x -> (8, 8)\nr = F x, a -> (8, 8)\nb = F a -> (8, 8) int32\nc = F b -> (8, 8) bool\n"
        'd = F c, b -> (8, 8) bool\n_ = R.call_packed("relaxvm.kernel.fill", 1.0, d)\nreturn r'
    )
    after = planned(main(X, body))
    assert storages(after) == ["512"]
    assert places(after) == [("storage", 0), ("storage", 256), ("storage", 0), ("storage", 64)]


def test_small_tensors_are_left_alone() -> None:
    mod = main(X, "a = F x -> (8, 8)\nb = F a -> (8, 8)\nc = F b -> (8, 8)\nreturn c")
    assert storages(planned(mod, small=256)) == []
    assert storages(planned(mod, small=255)) != []
    assert storages(transform.PlanMemory()(allocated(mod))) == []


def test_branches_use_the_storage_around_them() -> None:
    body = """
a = F x -> (8, 8)
b = F a -> (8, 8)
if q:
    c = F b -> (8, 8)
    y = F c -> ()
else:
    d = F b -> (4, 8)
    y = F d -> ()
e = F y -> (8, 8)
g = F e, b -> (8, 8)
h = F g, e, b -> ()
return h"""
    after = planned(main(f'{X}, q: R.Prim("bool")', body))
    inside = next(
        b.value for b in after["main"].body.blocks[0].bindings if isinstance(b.value, ir.If)
    )
    assert "alloc_tensor(storage, 0" in str(inside)
    assert "alloc_storage" not in str(inside)


def test_a_branch_does_not_raise_the_peak_of_the_other() -> None:
    body = """
a = F x -> (8, 8)
b = F a -> ()
if q:
    c = F b -> (80, 80)
    d = F c -> (80, 80)
    y = F d -> ()
else:
    y = F b -> ()
return y"""
    before = main(f'{X}, q: R.Prim("bool")', body)
    for flag in (False, True):
        assert peak(before, [transform.PlanMemory(small=0)], flag) <= peak(before, [], flag)


def peak(mod: ir.IRModule, plan: Sequence[Any], *args: Any) -> int:
    """Return the maximum of live bytes while main runs."""
    mod = allocated(mod)
    for each in plan:
        mod = each(mod)
    return run_lowered(mod, [np.ones((8, 8), "float32"), *args])[1]


def run_lowered(mod: ir.IRModule, args: list[Any]) -> tuple[Any, int]:
    """Run main with planned or unplanned allocations; return the result and the peak."""
    names = [make().name for make, _ in LOWERING]
    for make, _ in LOWERING[names.index("PlanMemory") + 1 :]:
        mod = make()(mod)
    vm = VirtualMachine(
        relaxvm.build(mod, relax_pipeline=None),
        memory_cfg="naive",
        functions=FUNCTIONS,
        optimize=False,
    )
    return vm["main"](*args), vm.memory_stats().peak_bytes


def _fill(*args: Any) -> None:
    total = sum(float(np.sum(np.asarray(arg, "float64"))) for arg in args[:-1])
    args[-1][...] = np.asarray(total % 7 + 1).astype(args[-1].dtype)


FUNCTIONS = {"f": _fill, "same": lambda x: x, "keep": lambda x: x}


def test_nothing_is_held_across_a_call() -> None:
    """`g` allocates memory too, so there are separate storages before and after its call."""
    more = """
@R.function
def g(y: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 8), "float32"):
    return y
"""
    body = """
a = F x -> (8, 8)
b = F a -> (8, 8)
c = F b -> (8, 8)
d = F c -> ()
cls = Module
e = cls.g(x)
h = F e -> (8, 8)
i = F h -> (8, 8)
k = F i -> (8, 8)
j = F k, d -> ()
return j"""
    before, _, behind = str(planned(main(X, body, more=more))["main"]).partition("e: R.Tensor")
    ahead, later = (set(re.findall(r"alloc_tensor\((\w+),", text)) for text in (before, behind))
    assert ahead
    assert later
    assert not ahead & later


def test_symbolic_sizes_are_related() -> None:
    body = (
        "a = F x -> (n, 8)\nb = F a -> (n, 8)\nc = F b -> (n + 1, 8)\nd = F c -> (n, 8)\n"
        "e = F d -> (n,)\ng = F e -> ()\nreturn g"
    )
    assert storages(planned(main(N, body))) == ["32 * (n + 1)", "32 * n"]


@pytest.mark.parametrize("size", ["n + {},", "n * n + {} * n, {}", "n * {}, 8"])
def test_planning_of_sizes_that_all_differ_takes_few_steps(size: str) -> None:
    """Measured in calls of Python functions; a storage grows with each of the tensors."""
    count = 200
    lines = [f"v0 = F x -> ({size.format(1, 1)})"]
    lines += [f"v{i} = F v{i - 1} -> ({size.format(i + 1, i + 1)})" for i in range(1, count)]
    mod = allocated(main(N, "\n".join([*lines, f"return v{count - 1}"])))
    plan = transform.PlanMemory()
    after: list[Any] = []
    assert python_calls(lambda: after.append(plan(mod))) < 500 * count
    assert 2 <= len(storages(after[0])) < 10


def test_sizes_that_may_be_negative_are_not_related() -> None:
    """k is not a dimension of a tensor, so it may be negative, and n + k less than n."""
    body = "k = T.int64()\na = F x -> (n + k,)\nb = F a -> (8,)\nc = F b -> (n,)\nd = F c -> (8,)\nreturn d"
    assert "(n + k)" not in "".join(storages(planned(main(f'{N}, s: R.Shape(["k"])', body))))


def test_a_result_may_be_last_in_a_storage_of_its_size() -> None:
    mod = main(N, "a = F x -> (n, 8)\nb = F a -> (n,)\nc = F b -> (8, n)\nreturn c")
    after = planned(mod)
    assert storages(after) == ["32 * n"]
    assert len(places(after)) == 2
    different = main(N, "a = F x -> (n, 9)\nb = F a -> (n,)\nc = F b -> (8, n)\nreturn c")
    assert storages(planned(different)) == []


@pytest.mark.parametrize(
    ("why", "body"),
    [
        ("captured by a closure", 'k = R.make_closure(cls.g, (a,))\nb = F x -> (8, 8)\nc = F b -> (8, 8)\n'
                                  'd = R.invoke_closure(k, (c,), ty_args=R.Tensor((8, 8), "float32"))'),
        ("handed to a function", "k = cls.g(a, x)\nb = F x -> (8, 8)\nc = F b -> (8, 8)\nd = F c, k -> (8, 8)"),
        ("kept by a packed function", 'k = R.call_packed("keep", a, ty_args=R.Any)\nb = F x -> (8, 8)\n'
                                      "c = F b -> (8, 8)\nd = F c, k -> (8, 8)"),
        ("logged without a result", '_ = R.call_packed("log", a, ty_args=R.Tuple)\nb = F x -> (8, 8)\n'
                                    "c = F b -> (8, 8)\nd = F c -> (8, 8)"),
    ],
)  # fmt: skip
def test_tensors_that_may_escape_are_not_planned(why: str, body: str) -> None:
    more = """
@R.function
def g(y: R.Tensor((8, 8), "float32"), z: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 8), "float32"):
    return y
"""
    mod = main(X, f"cls = Module\na = F x -> (8, 8)\n{body}\nreturn d", more=more)
    first = planned(mod)["main"].body.blocks[0].bindings[0].value
    assert first.op.name == "relax.builtin.alloc_tensor", why


# Random programs


def random_program(seed: int) -> tuple[ir.IRModule, list[Any]]:
    """Float tensors of shape (n, n), n symbolic or 6: operators, views, tuples, branches, calls."""
    rng = random.Random(seed)
    dim = rng.choice(("n", "6"))
    ty = f'R.Tensor(({dim}, {dim}), "float32")'
    lines: list[str] = []
    count = 0

    def new(value: str, indent: str) -> str:
        nonlocal count
        count += 1
        lines.append(f"{indent}v{count} = {value}")
        return f"v{count}"

    def view(tensor: str, shape: str) -> str:
        return _expanded(f"v = VIEW {tensor} -> ({shape})").removeprefix("v = ")

    def block(names: list[str], length: int, depth: int) -> list[str]:
        nonlocal count
        indent = "    " * (depth + 1)
        names = list(names)
        for _ in range(length):
            a, b = rng.choice(names[-4:]), rng.choice(names)
            kind = rng.randrange(12)
            if kind < 3:
                names.append(new(f"R.{rng.choice(('tanh', 'negative', 'nn.relu'))}({a})", indent))
            elif kind < 5:
                names.append(
                    new(f"R.{rng.choice(('add', 'maximum', 'subtract'))}({a}, {b})", indent)
                )
            elif kind < 7:
                names.append(new(f'R.call_dps_packed("f", ({a}, {b}), out_ty={ty})', indent))
            elif kind == 7:
                flat = new(view(a, f"{dim} * {dim},"), indent)
                flat = new(f"R.tanh({flat})", indent)
                names.append(new(view(flat, f"{dim}, {dim}"), indent))
            elif kind == 8:
                pair = new(f"({a}, ({b}, {a}))", indent)
                names.append(new(f"{pair}[1][{rng.randrange(2)}]", indent))
            elif kind == 9:
                wide = new(f'R.astype({a}, dtype="float64")', indent)
                wide = new(f"R.concat(({wide}, {wide}), axis=0)", indent)
                part = new(f"R.sum({wide}, axis=[0])", indent)
                part = new(f'R.astype({part}, dtype="float32")', indent)
                names.append(new(f"R.add({b}, {part})", indent))
            elif kind == 10:
                names.append(new(f'R.call_packed("same", {a}, ty_args={ty})', indent))
            elif depth < 2:
                count += 1
                result = f"v{count}"
                lines.append(f"{indent}if q:")
                inner = block(names, rng.randint(1, 4), depth + 1)
                lines.append(f"{indent}    {result} = R.negative({inner[-1]})")
                lines.append(f"{indent}else:")
                inner = block(names, rng.randint(0, 3), depth + 1)
                lines.append(f"{indent}    {result} = {rng.choice(inner)}")
                names.append(result)
        return names

    names = block(["x"], rng.randint(3, 14), 0)
    results = ", ".join(rng.sample(names, min(len(names), rng.randint(1, 3))))
    sides = '"n", "n"' if dim == "n" else "6, 6"
    header = [
        "@R.function(pure=False)",
        f'def main(x: R.Tensor(({sides}), "float32"), q: R.Prim("bool")):',
        *(["    n = T.int64()"] if dim == "n" else []),
    ]
    x = np.random.default_rng(seed).standard_normal((6, 6)).astype("float32")
    return module("\n".join([*header, *lines, f"    return ({results},)"])), [x, rng.random() < 0.5]


def has_branches(mod: ir.IRModule) -> bool:
    """With branches, the register of a branch's result may keep a dead tensor."""
    return "if q" in str(mod)


PLANS = (
    (transform.StaticPlanBlockMemory(),),
    (transform.PlanMemory(small=0),),
    (transform.WriteInPlace(),),
    (transform.WriteInPlace(), transform.PlanMemory(small=0)),
)


@pytest.mark.parametrize("seed", range(60))
def test_plans_change_no_result_and_raise_no_peak(seed: int) -> None:
    mod, args = random_program(seed)
    bare = allocated(mod)
    expected, least = run_lowered(bare, args)
    for plan in PLANS:
        after = bare
        for each in plan:
            after = each(after)
        analysis.check_well_formed(after)
        result, highest = run_lowered(after, args)
        for one, other in zip(expected, result, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=f"seed {seed}, {plan}")
        if plan != PLANS[0] and not has_branches(mod):
            assert highest <= least, f"seed {seed}, {plan}"


@pytest.mark.parametrize("seed", range(60, 100))
def test_no_tensor_is_overwritten_while_it_is_read(seed: int) -> None:
    """The evaluator overwrites memory where a tensor is placed, and forgets killed tensors."""
    mod, args = random_program(seed)
    bare = allocated(mod)
    expected = Evaluator(bare, FUNCTIONS)("main", *args)
    for plan in PLANS:
        after = bare
        for each in (*plan, transform.LowerAllocTensor(), transform.KillAfterLastUse()):
            after = each(after)
        result = Evaluator(after, FUNCTIONS)("main", *args)
        for one, other in zip(expected, result, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=f"seed {seed}, {plan}")
        assert not list(clobbered(after["main"].body, {"n": 6})), f"seed {seed}, {plan}"


class _Marks:
    """For `clobbered`: variable -> (storage, range of bytes, time), storage -> writes."""

    def __init__(self) -> None:
        self.of: dict[Any, list[tuple[Any, int, int, int]]] = {}
        self.placed: list[tuple[Any, int, int, int]] = []


def clobbered(seq: Any, dims: dict[str, int], marks: _Marks | None = None) -> Iterator[str]:
    """Return variables that are read after a later tensor was placed on some of their bytes.

    This is independent of the planner: it walks the lowered program, and both branches of each If
    from the same state.
    """
    marks = _Marks() if marks is None else marks
    for block in seq.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, ir.If):
                before = len(marks.placed)
                for branch in (value.true_branch, value.false_branch):
                    kept = marks.placed[:before]
                    inner = _Marks()
                    inner.of, inner.placed = dict(marks.of), kept
                    yield from clobbered(branch, dims, inner)
                    marks.placed += [entry for entry in inner.placed if entry not in marks.placed]
                    result = (
                        inner.of.get(branch.body, []) if isinstance(branch.body, ir.Var) else []
                    )
                    marks.of[binding.var] = marks.of.get(binding.var, []) + result
                continue
            name = getattr(getattr(value, "op", None), "name", "")
            if name == "relax.memory.alloc_tensor":
                storage, offset, shape, dtype = value.args[:4]
                size = int(np.prod([_number(d, dims) for d in shape.values], dtype=int))
                first = int(offset)
                entry = (storage, first, first + size * np.dtype(dtype.value).itemsize, id(binding))
                marks.placed.append(entry)
                marks.of[binding.var] = [entry]
                continue
            held = [entry for var in _vars(value) for entry in marks.of.get(var, ())]
            if "kill" not in name:
                for entry in held:
                    later = marks.placed[marks.placed.index(entry) + 1 :]
                    for other in later:
                        if other[0] is entry[0] and other[1] < entry[2] and entry[1] < other[2]:
                            yield f"{binding.var} reads what {other} overwrote"
            marks.of[binding.var] = held
    for var in _vars(seq.body):
        for entry in marks.of.get(var, ()):
            for other in marks.placed[marks.placed.index(entry) + 1 :]:
                if other[0] is entry[0] and other[1] < entry[2] and entry[1] < other[2]:
                    yield f"the result reads what {other} overwrote"


def _number(dim: Any, dims: dict[str, int]) -> int:
    return int(ir.evaluate(dim, {v: dims[v.name] for v in ir.free_vars(dim)}))


def _vars(expr: Any) -> list[Any]:
    if isinstance(expr, ir.Var):
        return [expr]
    if isinstance(expr, ir.Tuple):
        return [var for field in expr.fields for var in _vars(field)]
    if isinstance(expr, ir.TupleGetItem):
        return _vars(expr.tuple_value)
    if isinstance(expr, ir.Call):
        return [var for arg in expr.args for var in _vars(arg)]
    return []


def test_the_checker_of_lives_finds_an_overlap() -> None:
    """A wrong plan, made by hand: c overlaps b, which is read later."""
    mod = module(
        """
@R.function(pure=False)
def main(x: R.Tensor((4,), "float32")):
    storage: R.Any = R.memory.alloc_storage(R.shape([32]), 0, "global", "uint8")
    b: R.Tensor((4,), "float32") = R.memory.alloc_tensor(storage, 0, R.shape([4]), "float32")
    _ = R.call_packed("f", x, b)
    c: R.Tensor((4,), "float32") = R.memory.alloc_tensor(storage, 12, R.shape([4]), "float32")
    _1 = R.call_packed("f", b, c)
    return c
"""
    )
    assert list(clobbered(mod["main"].body, {}))


# Upper bounds, and the report


BOUNDED = main(
    'x: R.Tensor(("n", "m"), "float32")',
    "m = T.int64()\na = R.exp(x)\nb = R.matmul(a, R.permute_dims(a))\nreturn b",
    attrs='{"tir_var_upper_bound": {"n": 20}}',
)


def test_a_dimension_beyond_its_bound_is_refused_at_the_entry() -> None:
    vm = VirtualMachine(relaxvm.build(BOUNDED))
    assert vm["main"](np.ones((20, 30), "float32")).shape == (20, 20)
    message = r"fn=main.*dimension n: expected at most 20, the upper bound .* declares, got 21"
    with pytest.raises(ValueError, match=message):
        vm["main"](np.ones((21, 3), "float32"))


def test_the_report_gives_the_peak_for_dimensions() -> None:
    mod = main(N, "a = F x -> (n, 8)\nb = F a -> (n, 8)\nc = F b -> (100,)\nreturn c")
    report = analysis.memory_report(planned(mod))
    assert str(report) == (
        "main: 3 tensors of n * 64 + 400 bytes in 3 storages of n * 64 + 400 bytes, "
        "at most max(n * 64 bytes, n * 32 + 400 bytes) at once"
    )
    assert report["main"].peak(n=1) == 432
    assert report["main"].peak(n=100) == 6400
    with pytest.raises(ValueError, match=r"peak: expected values of n, got \{'m': 1\}"):
        report["main"].peak(m=1)
    assert analysis.estimate_memory_usage(planned(mod)) == str(report)


def test_the_report_is_what_the_vm_measures() -> None:
    for seed in range(40):
        mod, args = random_program(seed)
        for plan in PLANS if not has_branches(mod) else ():
            after = allocated(mod)
            for each in plan:
                after = each(after)
            lowered = transform.KillAfterLastUse()(transform.LowerAllocTensor()(after))
            told = analysis.memory_report(lowered)["main"].peak(n=6)
            assert run_lowered(after, args)[1] <= told, f"seed {seed}, {plan}"
