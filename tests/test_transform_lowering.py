"""The lowering passes: edge cases, errors, and programs that they do not change.  docs/passes.md
shows their effect on plain programs; test_tvm_passes.py compares them with TVM's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import op, transform
from relaxvm.ir import (
    ANY,
    BindingBlock,
    Call,
    ExternFunc,
    Function,
    FuncType,
    IRModule,
    SeqExpr,
    TensorType,
    Tuple,
    TupleType,
    Var,
    VarBinding,
    assert_structural_equal,
)
from relaxvm.transform.pipelines import LOWERING

from .passes import apply, check, module, run, unchanged

X = np.array([1, 2, 3, 4], np.float32)

PLAIN = """
@R.function(pure=False)
def main(x: R.Tensor((4,), "float32")):
    y = R.call_packed("f", x, ty_args=R.Tensor((4,), "float32"))
    return y
"""


@pytest.mark.parametrize("make", [
    make for make, _ in LOWERING if make().name not in ("KillAfterLastUse", "VMShapeLower")
], ids=lambda make: make().name)  # fmt: skip
def test_functions_with_nothing_to_lower_are_returned_unchanged(make: Any) -> None:
    unchanged(make(), PLAIN)


@pytest.mark.parametrize("name", [
    "LambdaLift", "ToNonDataflow", "RemovePurityChecking", "CallTIRRewrite", "LowerAllocTensor",
    "LowerRuntimeBuiltin", "ComputePrimValue", "ReuseShapes", "AttachGlobalSymbol",
])  # fmt: skip
def test_a_second_run_changes_nothing(name: str) -> None:
    mod = module("""
@R.function
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    @R.function
    def inner(a: R.Tensor(("k",), "float32")):
        b = R.call_pure_packed("f", a, n * 2, ty_args=R.Tensor(ndim=1, dtype="float32"))
        return b
    with R.dataflow():
        y = R.call_dps_packed("g", (x,), out_ty=R.Tensor((n + 1,), "float32"))
        R.output(y)
    z = inner(y)
    return z
""")
    for make, _ in LOWERING:
        step = make()
        mod = step(mod)
        if step.name == name:
            assert_structural_equal(step(mod), mod)
            return
    raise AssertionError(f"{name} is not in the pipeline")


# LambdaLift


def test_a_function_that_is_a_result() -> None:
    mod = module("""
@R.function
def main(x: R.Tensor((4,), "float32")):
    @R.function
    def inner(a: R.Tensor((4,), "float32")):
        b = R.add(a, x)
        return b
    return inner
""")
    lifted = apply(transform.LambdaLift(), mod)
    assert type(lifted["main"].ret_ty) is FuncType
    machine = relaxvm.VirtualMachine(relaxvm.build(mod))
    closure = machine["main"](X)
    assert (machine.invoke_closure(closure, X) == X + X).all()


def test_a_closure_that_captures_a_closure() -> None:
    mod = module("""
@R.function
def main(x: R.Tensor((4,), "float32")):
    @R.function
    def first(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        b = R.add(a, x)
        return b
    @R.function
    def second(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        b = first(a)
        c = R.multiply(b, x)
        return c
    y = second(x)
    return y
""")
    assert (run(mod, X) == (X + X) * X).all()


def test_a_closure_as_an_argument() -> None:
    mod = module("""
@R.function(private=True)
def apply(f: R.Callable((R.Tensor((4,), "float32"),), R.Tensor((4,), "float32"), True),
          x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    y = f(x)
    return y

@R.function
def main(x: R.Tensor((4,), "float32")):
    cls = Module
    @R.function
    def inner(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        b = R.add(a, x)
        return b
    y = cls.apply(inner, x)
    return y
""")
    apply(transform.LambdaLift(), mod)
    assert (run(mod, X) == X + X).all()


def test_a_symbolic_variable_is_captured_where_it_has_to_be() -> None:
    mod = module("""
@R.function
def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n + 1",), "float32")):
    n = T.int64()
    @R.function
    def inner(a: R.Tensor((n + 1,), "float32")) -> R.Tensor(ndim=1, dtype="float32"):
        b = R.strided_slice(a, axes=[0], begin=[0], end=[n], assume_inbound=True)
        return b
    z = inner(y)
    return z
""")
    lifted = apply(transform.LambdaLift(), mod)["main_inner"]
    assert [param.name for param in lifted.params] == ["a", "n"]
    assert (run(mod, X[:3], X) == X[:3]).all()


def test_names_of_lifted_functions() -> None:
    mod = module("""
@R.function(private=True)
def main_inner(x: R.Tensor((4,), "float32")):
    return x

@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
    cls = Module
    if c:
        @R.function
        def inner(a: R.Tensor((4,), "float32")):
            return a
        y = inner(x)
    else:
        @R.function
        def inner(a: R.Tensor((4,), "float32")):
            b = R.add(a, a)
            return b
        y = inner(x)
    z = cls.main_inner(y)
    return z
""")
    names = {var.name_hint for var in apply(transform.LambdaLift(), mod).get_global_vars()}
    assert names == {"main", "main_inner", "main_inner_0", "main_inner_1"}


# Dataflow and views


def test_a_reshape_that_leaves_the_block_is_a_copy() -> None:
    unchanged(
        transform.RewriteDataflowReshape(),
        """
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        a = R.call_dps_packed("relaxvm.kernel.reshape", (x, R.shape([2, 2])),
            out_ty=R.Tensor((2, 2), "float32"))
        R.output(a)
    return a
""",
    )


@pytest.mark.parametrize("overwritten", ["x2", "view"])
def test_no_view_of_a_tensor_written_in_place(overwritten: str) -> None:
    unchanged(
        transform.RewriteDataflowReshape(),
        f"""
@T.prim_func(s_tir=True, private=True)
def bump(x: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("x"):
            vi = T.axis.spatial(4, i)
            x[vi] = x[vi] + T.float32(1)

@R.function
def main(x: R.Tensor((4,), "float32")):
    cls = Module
    with R.dataflow():
        x2 = R.call_dps_packed("relaxvm.kernel.exp", (x,), out_ty=R.Tensor((4,), "float32"))
        view = R.call_dps_packed("relaxvm.kernel.reshape", (x2, R.shape([4])),
            out_ty=R.Tensor((4,), "float32"))
        done = R.call_tir_inplace(cls.bump, ({overwritten},), inplace_indices=[0],
            out_ty=R.Tensor((4,), "float32"))
        out = R.call_dps_packed("relaxvm.kernel.add", (done, view),
            out_ty=R.Tensor((4,), "float32"))
        R.output(out)
    return out
""".replace("done, view", "done, done" if overwritten == "view" else "done, view"),
    )


# CallTIRRewrite


def test_nested_outputs() -> None:
    mod = module("""
@R.function
def main(x: R.Tensor((4,), "float32")):
    t = R.call_dps_packed("split", (x,), out_ty=R.Tuple(
        R.Tuple(R.Tensor((1,), "float32")), R.Tensor((3,), "float32")))
    return t
""")

    def split(x: Any, low: Any, high: Any) -> None:
        low[...], high[...] = x[:1], x[1:]

    (low,), high = run(mod, X, functions={"split": split})
    assert (low.tolist(), high.tolist()) == ([1], [2, 3, 4])


def test_arguments_in_a_variable() -> None:
    mod = module("""
@R.function
def main(t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))):
    y = R.call_dps_packed("relaxvm.kernel.add", t, out_ty=R.Tensor((4,), "float32"))
    return y
""")
    assert (run(mod, (X, X)) == X + X).all()


def test_dataflow_blocks_must_be_lowered_before() -> None:
    mod = module("""
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        a = R.call_dps_packed("f", (x,), out_ty=R.Tensor((4,), "float32"))
        R.output(a)
    return a
""")
    with pytest.raises(TypeError, match="there is a dataflow block; run ToNonDataflow first"):
        transform.CallTIRRewrite()(mod)


@pytest.mark.parametrize(
    "ty",
    [TensorType(None, "float32", ndim=1), TensorType((4,)), ANY],
    ids=["shape", "dtype", "any"],
)
def test_an_output_has_to_be_known(ty: Any) -> None:
    func = module("""
@R.function
def main(x: R.Tensor((4,), "float32")):
    a = R.call_dps_packed("f", (x,), out_ty=R.Tensor((4,), "float32"))
    return a
""")["main"]
    (binding,) = func.body.blocks[0].bindings
    call = Call(binding.value.op, binding.value.args, None, [ty], ret_ty=ty)
    body = SeqExpr([BindingBlock([VarBinding(Var("a", ty), call)])], func.params[0])
    with pytest.raises(TypeError, match=r"a: the output is of type R\..*expected a tensor type"):
        transform.CallTIRRewrite()(IRModule({"main": func.replace(body=body)}))


# Memory


def test_the_shape_of_an_allocation_may_be_a_variable() -> None:
    check(transform.LowerAllocTensor(), """
@R.function(pure=False)
def main(s: R.Shape(ndim=1)):
    a: R.Tensor(ndim=1, dtype="float32") = R.builtin.alloc_tensor(s, R.dtype("float32"), 0)
    return a
""", """
@R.function(pure=False)
def main(s: R.Shape(ndim=1)) -> R.Tensor(ndim=1, dtype="float32"):
    n = T.int64()
    s1 = R.match_cast(s, R.Shape([n]))
    storage: R.Any = R.memory.alloc_storage(R.shape([4 * n]), 0, "global", R.dtype("uint8"))
    a: R.Tensor((n,), "float32") = R.memory.alloc_tensor(
        storage, 0, R.shape([n]), R.dtype("float32"))
    return a
""")  # fmt: skip


def test_the_rank_of_an_allocation_has_to_be_known() -> None:
    mod = module("""
@R.function(pure=False)
def main(s: R.Shape):
    a: R.Tensor(dtype="float32") = R.builtin.alloc_tensor(s, R.dtype("float32"), 0)
    return a
""")
    with pytest.raises(TypeError, match=r"a: the shape s is of type R\.Shape; its rank must be"):
        transform.LowerAllocTensor()(mod)


def test_no_allocation_may_be_left() -> None:
    mod = module("""
@R.function(pure=False)
def main(x: R.Tensor((4,), "float32")):
    a: R.Tensor((4,), "float32") = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), 0)
    return a
""")
    with pytest.raises(RuntimeError, match="is left; run LowerAllocTensor before this pass"):
        transform.LowerRuntimeBuiltin()(mod)


def test_values_last_used_in_a_branch_are_killed_after_it() -> None:
    check(transform.KillAfterLastUse(), """
@R.function(pure=False)
def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
    a = R.call_packed("f", x, ty_args=R.Tensor((4,), "float32"))
    if c:
        b = R.call_packed("g", a, ty_args=R.Any)
        d = R.call_packed("h", b, ty_args=R.Tensor((4,), "float32"))
    else:
        d = x
    return d
""", """
@R.function(pure=False)
def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
    a = R.call_packed("f", x, ty_args=R.Tensor((4,), "float32"))
    if c:
        b = R.call_packed("g", a, ty_args=R.Any)
        d1 = R.call_packed("h", b, ty_args=R.Tensor((4,), "float32"))
        R.vm.kill_object(b)
        d = d1
    else:
        d = x
    R.memory.kill_tensor(a)
    return d
""")  # fmt: skip


def test_the_older_name_of_lower_runtime_builtin() -> None:
    with pytest.warns(DeprecationWarning, match="VMBuiltinLower is now LowerRuntimeBuiltin"):
        assert transform.VMBuiltinLower().name == "LowerRuntimeBuiltin"


# Scalars and shapes


def test_a_condition_is_computed() -> None:
    check(transform.ComputePrimValue(), """
@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    if n > 2:
        y = R.call_packed("f", x, ty_args=R.Any)
    else:
        y = R.call_packed("g", x, ty_args=R.Any)
    return y
""", """
@T.prim_func(private=True, s_tir=True)
def compute_symbolic_expr(n: T.int64) -> T.bool:
    T.func_attr({"tirx.is_host_func": True})
    return n > T.int64(2)

@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32")):
    cls = Module
    n = T.int64()
    c: R.Prim("bool") = cls.compute_symbolic_expr(n)
    if c:
        y = R.call_packed("f", x, ty_args=R.Any)
    else:
        y = R.call_packed("g", x, ty_args=R.Any)
    return y
""")  # fmt: skip


def test_local_functions_must_be_lifted_before() -> None:
    mod = module("""
@R.function(pure=False)
def main(x: R.Tensor((4,), "float32")):
    @R.function
    def inner(a: R.Tensor((4,), "float32")):
        return a
    y = inner(x)
    return y
""")
    with pytest.raises(TypeError, match="function 'main' has a local function; run LambdaLift"):
        transform.VMShapeLower()(mod)


def test_a_variable_without_a_value() -> None:
    mod = module("""
@R.function(pure=False)
def main(x: R.Tensor(("n + m",), "float32"), y: R.Tensor(("n",), "float32"),
         z: R.Tensor(("m",), "float32")):
    m = T.int64()
    s = R.call_packed("f", R.shape([m]), ty_args=R.Any)
    return s
""")  # fmt: skip
    func = mod["main"]
    without = IRModule({"main": Function(func.params[:2], func.body, func.ret_ty, False)})
    with pytest.raises(TypeError, match="symbolic variable m has no value here: it is not"):
        transform.VMShapeLower()(without)


def test_other_scalars_have_to_be_functions() -> None:
    mod = module("""
@R.function(pure=False)
def main(f: R.Prim("float32")):
    s = R.call_packed("f", f * 2.0, ty_args=R.Any)
    return s
""")
    with pytest.raises(TypeError, match=r"a computation of type .*; run ComputePrimValue first"):
        transform.VMShapeLower()(mod)


def test_a_match_cast_has_to_be_checked() -> None:
    mod = module("""
@R.function(pure=False)
def main(x: R.Tensor(ndim=1, dtype="float32")):
    n = T.int64()
    y = R.match_cast(x, R.Tensor((n,), "float32"))
    return y
""")
    with pytest.raises(TypeError, match="y is bound by a match_cast; run VMShapeLower first"):
        relaxvm.build(mod, relax_pipeline=None)


def messages(mod: IRModule) -> list[str]:
    """Return the error contexts of checks in the first function."""
    return [arg.value for block in mod["main"].body.blocks for b in block.bindings
            if type(b.value) is Call and type(b.value.op) is ExternFunc
            for arg in b.value.args[-1:] if hasattr(arg, "value")]  # fmt: skip


def test_checks_without_text() -> None:
    mod = module("""
@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32"), y: R.Any):
    n = T.int64()
    z = R.match_cast(y, R.Tensor((n,), "float32"))
    return z
""")
    silent = apply(transform.VMShapeLower(emit_err_ctx=False), mod)
    assert messages(silent) == ["", "", "", ""]
    told = messages(apply(transform.VMShapeLower(), mod))
    assert [text.split(", annotation")[0].split(", ty")[0] for text in told] == [
        "ErrorContext(fn=main, loc=param[0], param=x",
        "ErrorContext(fn=main, loc=param[0], param=x",
        "ErrorContext(match_cast",
        "ErrorContext(match_cast",
    ]


@pytest.mark.parametrize(("args", "error", "text"), [
    ((X, X[:3]), RuntimeError, r"param\[1\], param=y"),
    ((X.reshape(2, 2), X), ValueError, r"param\[0\], param=x.*ndim"),
    ((X.astype("float64"), X), ValueError, r"param\[0\], param=x.*dtype"),
    ((5, X), TypeError, r"param\[0\], param=x"),
])  # fmt: skip
def test_messages_of_failed_checks(args: Any, error: type[Exception], text: str) -> None:
    mod = module("""
@R.function
def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")):
    return (x, y)
""")
    with pytest.raises(error, match=f"(?s)ErrorContext\\(fn=main, loc={text}"):
        run(mod, *args)


def test_a_shape_is_reused_within_its_branch_only() -> None:
    mod = module("""
@R.function(pure=False)
def main(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")):
    n = T.int64()
    if c:
        a = R.call_packed("f", R.shape([n, n]), ty_args=R.Any)
        y = R.call_packed("g", a, R.shape([n, n]), ty_args=R.Any)
    else:
        y = R.call_packed("f", R.shape([n, n]), ty_args=R.Any)
    z = R.call_packed("g", y, R.shape([n, n]), ty_args=R.Any)
    return z
""")
    lowered = transform.VMShapeLower()(mod)
    assert lowered.script().count("vm.builtin.make_shape") == 4
    assert apply(transform.ReuseShapes(), lowered).script().count("vm.builtin.make_shape") == 3


def test_symbols_are_kept() -> None:
    mod = module(PLAIN)
    mod["main"] = mod["main"].with_attr("global_symbol", "another")
    assert transform.AttachGlobalSymbol()(mod)["main"].attrs["global_symbol"] == "another"


# Calls whose types nobody inferred, as files have them


def _annotated(call: Call, ty: Any, x: Var) -> IRModule:
    """A function of x that returns a call, which is said to have a type."""
    call = Call(call.op, call.args, call.attrs, call.ty_args, ret_ty=ty)
    y = Var("y", ty)
    body = SeqExpr([BindingBlock([VarBinding(y, call)])], y)
    return IRModule({"main": Function([x], body, ty)})


def test_a_call_annotated_with_less_than_is_known_is_legalized() -> None:
    x = Var("x", TensorType((4,), "float32"))
    mod = _annotated(op.expand_dims(x, 0), ANY, x)
    vm = relaxvm.VirtualMachine(relaxvm.build(mod))
    np.testing.assert_array_equal(vm["main"](X), X[None])


def test_a_call_annotated_with_another_kind_of_type_is_refused() -> None:
    x = Var("x", TensorType((4,), "float32"))
    mod = _annotated(op.expand_dims(x, 0), TupleType([x.ty]), x)
    with pytest.raises(TypeError, match=r"the call is of type R.Tuple.* inferred type is R.Tensor"):
        transform.LegalizeOps()(mod)


def test_an_argument_without_a_type_is_refused() -> None:
    x = Var("x", TensorType((4,), "float32"))
    call = op.take(x, op.astype(x, "int64"), axis=0)
    untyped = Tuple([x])
    untyped.ty = None
    mod = _annotated(Call(call.op, [x, untyped], call.attrs), TensorType((4,), "float32"), x)
    with pytest.raises(TypeError, match=r"R.take.*: the argument \(x,\) has no type"):
        transform.LegalizeOps()(mod)
