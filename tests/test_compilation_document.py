"""The programs of the design document "Relax Compilation MVP Design", as they are written today,
and what its own notation is answered with.

The document is a sketch: its programs mix ``x`` and ``a``, indent by tabs, and do not declare their
symbolic variables.  Each test names the differences.
"""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import transform
from relaxvm.errors import DiagnosticError
from relaxvm.script import from_source

HEADER = "from relaxvm.script import ir as I, relax as R, tir as T\n"

PROGRAM = (
    HEADER
    + """
@I.ir_module
class MyIRModule:
    @T.prim_func
    def tirexp(a: T.handle, b: T.handle):  # ty.handle in the document
        n1, m1 = T.var("n1"), T.var("m1")
        X = T.match_buffer(a, (n1, m1))    # of x and y there, which are not its parameters
        Y = T.match_buffer(b, (n1, m1))
        for i, j in T.grid(n1, m1):        # with T.block(n1, m1) as i, j
            with T.sblock("exp"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = T.exp(X[vi, vj])

    @R.function
    def myfunc(x: R.Tensor(("n", "m"), "float32")):  # Tensor[(n, m)]
        n, m = T.var("n"), T.var("m")
        with R.dataflow():
            # R.call_tir((n, m), tirexp, [x])
            lv0: R.Tensor((n, m), "float32") = R.call_tir(
                MyIRModule.tirexp, [x], R.Tensor((n, m), "float32")
            )
            # R.call_tir((m*n,), "flatten", [lv0]), of a packed function
            gv0: R.Tensor((m * n,), "float32") = R.call_dps_packed(
                "flatten", [lv0], R.Tensor((m * n,), "float32")
            )
            R.outputs(gv0)

        return gv0
"""
)

LOWERED = (
    HEADER
    + """
@R.function(pure=False)                                     # it has side effects
def myfunc(x: R.Tensor(("n", "m"), "float32")):
    n, m = T.int64(), T.int64()                             # n, m = R.match_shape(x.shape)
    storage0 = R.memory.alloc_storage(R.shape([n * m * 4]), 0, "global", "float32")
    tensor0 = R.memory.alloc_tensor(storage0, 0, R.shape([n, m]), "float32")
    _ = R.call_packed("tirexp", x, tensor0, ty_args=R.Tuple())
    storage1 = R.memory.alloc_storage(R.shape([n * m * 4]), 0, "global", "float32")
    tensor1 = R.memory.alloc_tensor(storage1, 0, R.shape([m * n]), "float32")
    _1 = R.call_packed("flatten", tensor0, tensor1, ty_args=R.Tuple())
    _2 = R.memory.kill_tensor(tensor0)                      # free_tensor
    _3 = R.memory.kill_storage(storage0)                    # free_storage
    return tensor1
"""
)


def flatten(source: np.ndarray, target: np.ndarray) -> None:
    target[...] = source.reshape(-1)


def exp(source: np.ndarray, target: np.ndarray) -> None:
    np.exp(source, out=target)


X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_the_program(exec_mode: str) -> None:
    executable = relaxvm.build(from_source(PROGRAM), exec_mode=exec_mode)
    vm = relaxvm.VirtualMachine(executable, functions={"flatten": flatten})
    np.testing.assert_allclose(vm["myfunc"](X), np.exp(X).reshape(-1), rtol=1e-6)


def test_every_stage_is_a_module_that_can_be_built() -> None:
    stages = [transform.LegalizeOps(), transform.ToNonDataflow(), transform.RemovePurityChecking(),
              transform.CallTIRRewrite(), transform.LowerAllocTensor()]  # fmt: skip
    mod = from_source(PROGRAM)
    for stage in stages:
        mod = stage(mod)
        vm = relaxvm.VirtualMachine(relaxvm.build(mod), functions={"flatten": flatten})
        np.testing.assert_allclose(vm["myfunc"](X), np.exp(X).reshape(-1), rtol=1e-6)


def test_explicit_memory() -> None:
    vm = relaxvm.VirtualMachine(
        relaxvm.build(from_source(LOWERED)), functions={"tirexp": exp, "flatten": flatten}
    )
    np.testing.assert_allclose(vm["myfunc"](X), np.exp(X).reshape(-1), rtol=1e-6)


def test_shape_lowering() -> None:
    """The heap of the document is what VMShapeLower makes: alloc_shape_heap, match_shape (there,
    store_shape) and make_shape (load_shape), and a function for the product."""
    mod = from_source(PROGRAM)
    for stage in (transform.LegalizeOps(), transform.ToNonDataflow(),
                  transform.RemovePurityChecking(), transform.CallTIRRewrite(),
                  transform.LowerAllocTensor(), transform.ComputePrimValue(),
                  transform.VMShapeLower()):  # fmt: skip
        mod = stage(mod)
    text = mod["myfunc"].script()
    for builtin in ("alloc_shape_heap", "match_shape", "make_shape"):
        assert f"vm.builtin.{builtin}" in text
    assert "shape_func" in text


def body(line: str) -> str:
    return (
        HEADER
        + f"""
@R.function
def main(x: R.Tensor(("n", "m"), "float32")):
    n, m = T.int64(), T.int64()
    {line}
    return x
"""
    )


EARLIER = [
    (body("n1 = R.match_shape(x.shape)"), 'today it is R.match_cast(x, R.Tensor((n, m), "float32"'),
    (body("s = x.shape"), "its type has, as in x.ty.shape"),
    (body("y: Tensor[(n, m)] = R.exp(x)"), 'today it is R.Tensor(("n", "m"), "float32")'),
    (body('y: R.Tensor[("n", "m")] = R.exp(x)'),
     'R.Tensor has no elements; today it is R.Tensor(("n", "m"), "float32")'),
    (body("y = R.call_tir((n, m), x, [x])"), "today it is R.call_tir(f, (x,), R.Tensor((n, m),"),
    (body('y = R.call_tir("flatten", [x], R.Tensor((n, m)))'), "R.call_dps_packed calls a packed"),
    (body("s = R.vm.builtin.alloc_storage(size=[n])"), "today it is R.memory.alloc_storage, R.m"),
    (body("R.vm.builtin.store_shape(x.shape, 0, 1)"), "VMShapeLower makes heaps of shapes"),
    (PROGRAM.replace("a: T.handle", "a: ty.handle"), "today it is T.handle"),
    (PROGRAM.replace('with T.sblock("exp"):', "with T.block(n1, m1) as i, j:"), "in T.grid(n, "),
]


@pytest.mark.parametrize(("text", "answer"), EARLIER, ids=[
    "match_shape", "shape", "Tensor", "R.Tensor", "shape first", "packed", "alloc_storage",
    "store_shape", "handle", "block"
])  # fmt: skip
def test_earlier_notation_is_answered_with_todays(text: str, answer: str) -> None:
    with pytest.raises(DiagnosticError) as error:
        from_source(text)
    assert answer in str(error.value)


def test_earlier_names_are_answered_with_todays() -> None:
    import relaxvm.vm

    with pytest.raises(AttributeError, match=r"'build'; today it is relaxvm\.build"):
        relaxvm.vm.build  # type: ignore[attr-defined] # noqa: B018
    with pytest.raises(AttributeError, match="'VMMemoryLower'; today it is CallTIRRewrite, then"):
        transform.VMMemoryLower  # noqa: B018
