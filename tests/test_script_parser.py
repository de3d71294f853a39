"""The script parser: the meaning of every form, Python around scripts, locations, TVM's text."""

from __future__ import annotations

import gc
import sys
from enum import IntEnum
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from relaxvm import op
from relaxvm.errors import DiagnosticError
from relaxvm.executable.debug_info import Span
from relaxvm.ir import (
    BindingBlock,
    BlockBuilder,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Function,
    FuncType,
    If,
    IRModule,
    MatchCast,
    PrimType,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
    VDevice,
    assert_structural_equal,
    structural_equal,
)
from relaxvm.script import from_source, ir_module
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

from .threads import run_in_threads


def source(text: str, **names: Any) -> Any:
    return from_source(dedent(text), names)


def same(a: str, b: str) -> None:
    assert_structural_equal(source(a), source(b))


def bindings(func: Function) -> list[Any]:
    return [binding for block in func.body.blocks for binding in block.bindings]


# The parser and the builder make the same programs


def test_a_function_is_what_a_builder_builds() -> None:
    n = Var("n", "int64")
    x = Var("x", TensorType((n, 4), "float32"))
    bb = BlockBuilder()
    with bb.function("main", [x], {"num_input": 1}):
        with bb.dataflow():
            y = bb.emit(op.add(x, x))
            z = bb.emit_output(op.multiply(y, y))
        w = bb.emit(op.call_pure_packed("f", z, n, ty_args=TensorType((n * 2,), "float32")))
        bb.emit_func_output((w, z))

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tuple(R.Tensor, R.Tensor):
            n = T.int64()
            R.func_attr({"num_input": 1})
            with R.dataflow():
                y = R.add(x, x)
                z = R.multiply(y, y)
                R.output(z)
            w = R.call_pure_packed("f", z, n, ty_args=R.Tensor((n * 2,), "float32"))
            return w, z

    assert_structural_equal(bb.get(), Module)


def test_the_name_of_the_class_is_the_module() -> None:
    @ir_module(s_tir=True)
    class Expected:
        I.module_attrs({"a": 1})

        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            cls = Expected
            y = cls.twice(x)
            return Expected.twice(y)

        @R.function(private=True)
        def twice(x: R.Tensor((2,), "float32")):
            return R.add(x, x)

    assert [var.name_hint for var in Expected.get_global_vars()] == ["main", "twice"]
    assert Expected.attrs == {"a": 1}
    assert Expected["main"].attrs == {"global_symbol": "main"}
    assert "global_symbol" not in Expected["twice"].attrs
    calls = bindings(Expected["main"])
    assert all(call.value.op is Expected.get_global_var("twice") for call in calls)
    assert str(calls[0].var.ty) == 'R.Tensor((2,), dtype="float32")'


def test_results_that_are_not_written_are_inferred_whatever_the_order() -> None:
    module = source("""
        @I.ir_module
        class Module:
            @R.function
            def a(x: R.Tensor(("n",), "float32")):
                return Module.b(x)

            @R.function
            def b(x: R.Tensor(("m",), "float32")):
                y = Module.c(x)
                return y, y

            @R.function
            def c(x: R.Tensor(("k",), "float32")):
                return R.add(x, x)
    """)
    text = 'R.Tuple(R.Tensor((n,), dtype="float32"), R.Tensor((n,), dtype="float32"))'
    assert str(module["a"].ret_ty) == text
    assert list(map(str, module.get_global_vars())) == [f'I.GlobalVar("{name}")' for name in "abc"]


def test_recursion() -> None:
    module = source("""
        @I.ir_module
        class Module:
            @R.function(pure=False)
            def even(n: R.Tensor((), "int64")) -> R.Tensor((), "bool"):
                zero = R.call_packed("is_zero", n, ty_args=R.Tensor((), "bool"))
                if zero:
                    result = R.const(True)
                else:
                    result = Module.odd(R.subtract(n, R.const(1, "int64")))
                return result

            @R.function(pure=False)
            def odd(n: R.Tensor((), "int64")):
                zero = R.call_packed("is_zero", n, ty_args=R.Tensor((), "bool"))
                if zero:
                    result = R.const(False)
                else:
                    result = Module.even(R.subtract(n, R.const(1, "int64")))
                return result
    """)
    assert str(module["odd"].ret_ty) == 'R.Tensor((), dtype="bool")'
    alone = source("""
        @I.ir_module
        class Module:
            @R.function(pure=False)
            def forever(x: R.Tensor):
                return Module.forever(x)
    """)
    assert str(alone["forever"].ret_ty) == "R.Any"


def test_local_functions() -> None:
    func = source("""
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            k = R.add(x, x)

            @R.function
            def inner(y: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n", "m"), "float32"):
                n = T.int64()
                z: R.Tensor((n, m), "float32") = R.add(y, y)
                return z

            @R.function(pure=False)
            def forever(y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
                _ = R.print(k)
                return forever(y)

            return inner(k)
    """)
    _, inner, forever, call = bindings(func)
    assert "global_symbol" not in inner.value.attrs
    assert inner.value.params[0].ty.dims[0] is not forever.value.params[0].ty.dims[0]
    assert str(call.var.ty) == 'R.Tensor((2, 3), dtype="float32")'
    recursive = bindings(forever.value)[-1]
    assert recursive.value.op is forever.var
    assert (forever.var.ty.purity, inner.var.ty.purity) == (False, True)
    assert structural_equal(from_source(func.script()), func)


# Statements


def test_values_are_brought_to_normal_form() -> None:
    func = source("""
        @R.function
        def main(x: R.Tensor((2,), "float32"), t: R.Tuple(R.Tensor, R.Tuple(R.Tensor))):
            y = R.add(R.multiply(x, x), R.add(x, x))
            a, (b,) = t
            c = (t[0], y)
            return c, (y, x)
    """)
    assert [type(b.value) for b in bindings(func)] == [
        Call, Call, Call, TupleGetItem, TupleGetItem, TupleGetItem, TupleGetItem, Tuple
    ]  # fmt: skip
    assert [b.var.name for b in bindings(func)][2:4] == ["y", "a"]
    assert isinstance(func.body.body, Tuple)


def test_unpacking_a_call_calls_once() -> None:
    func = source("""
        @R.function
        def main(x: R.Tensor):
            a, b = R.call_pure_packed("f", x, ty_args=[R.Tensor, R.Tensor])
            return a, b
    """)
    assert [type(b.value) for b in bindings(func)] == [Call, TupleGetItem, TupleGetItem]


def test_names_may_be_bound_again() -> None:
    func = source("""
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            y = x
            y = R.add(y, x)
            y += y
            with R.dataflow():
                z = R.add(y, y)
                z = R.add(z, y)
                R.output(z)
            return z
    """)
    assert [b.var.name for b in bindings(func)] == ["y", "y", "y", "z", "z"]
    assert [type(b.var) for b in bindings(func)] == [Var, Var, Var, DataflowVar, Var]


def test_annotations() -> None:
    func = source("""
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            wide: R.Tensor(ndim=1) = R.add(x, x)
            any: R.Any = x
            same: R.Tensor((2,), "float32") = x
            number: R.Prim("int32") = 3
            tensor = 3
            other: R.Tensor((), "float32") = 3.5
            return wide
    """)
    types = [str(b.var.ty) for b in bindings(func)]
    assert types == ["R.Tensor(ndim=1)", "R.Any", 'R.Tensor((2,), dtype="float32")',
                     'R.Prim("int32")', 'R.Tensor((), dtype="int32")',
                     'R.Tensor((), dtype="float32")']  # fmt: skip


def test_dataflow_blocks() -> None:
    func = source("""
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            a = R.add(x, x)
            with R.dataflow():
                b = R.add(a, a)
                c, d = (b, b)
                n = T.int64()
                e = R.match_cast(c, R.Tensor((n,), "float32"))
                R.output(d, e)
            f = R.add(d, e)
            with R.dataflow():
                R.output()
            s = R.shape([n])
            return f, s
    """)
    kinds = [type(block) for block in func.body.blocks]
    assert kinds == [BindingBlock, DataflowBlock, BindingBlock]
    outputs = [b.var.name for b in func.body.blocks[1].bindings if type(b.var) is Var]
    assert outputs == ["d", "e"]


def test_branches() -> None:
    func = source("""
        @R.function(pure=False)
        def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")):
            if c:
                w = R.add(x, x)
                z = R.multiply(w, w)
            elif R.const(True):
                w = R.multiply(x, x)
                z = w
            else:
                with R.dataflow():
                    z = R.add(x, x)
                    R.output(z)
            if c:
                R.print(z)
            else:
                R.print(x)
            return z
    """)
    first, second = bindings(func)
    assert first.var.name == "z"
    value = first.value
    assert isinstance(value, If)
    assert [b.var.name for b in value.true_branch.blocks[0].bindings] == ["w", "z_then"]
    nested = value.false_branch.blocks[0].bindings[0].value
    assert nested.true_branch.body is nested.true_branch.blocks[0].bindings[-1].var
    assert type(nested.false_branch.blocks[0]) is DataflowBlock
    assert second.var.name == "_"
    assert structural_equal(from_source(func.script()), func)


def test_the_last_value_of_a_branch_need_not_be_a_call() -> None:
    func = source("""
        @R.function
        def main(x: R.Tensor((2,), "float32"), c: R.Prim("bool")):
            if c:
                y = R.match_cast(x, R.Tensor((2,), "float32"))
            else:
                y = x
            if c:
                t = (x, y)
            else:
                t = (y, 1)
            if c:
                k: R.Prim("int64") = 1
            else:
                k = R.prim_value(2)
            if c:
                @R.function
                def f(x: R.Tensor) -> R.Tensor:
                    return x
            else:
                @R.function
                def f(x: R.Tensor) -> R.Any:
                    return R.add(x, x)
            return y, t, k
    """)
    cast, pair, number, function = (b.value for b in bindings(func))
    assert isinstance(cast.true_branch.blocks[0].bindings[0], MatchCast)
    assert cast.false_branch.body is func.params[0]
    assert str(pair.ty) == 'R.Tuple(R.Tensor((2,), dtype="float32"), R.Any)'
    assert str(number.ty) == 'R.Prim("int64")'
    assert isinstance(function.ty, FuncType)
    assert structural_equal(from_source(func.script()), func)


# Symbolic variables


def test_dimensions() -> None:
    func = source("""
        @R.function
        def main(
            x: R.Tensor(("n", "m"), "float32"),
            y: R.Tensor(["n*m", "2 * n + 2"], "float32"),
            s: R.Shape(["k", 4]),
            z: R.Tensor(None, "float32", ndim=2),
        ):
            R.func_attr({"a": n})
            m = T.int64()
            k = R.add(x, x)
            return R.shape([n, m, "n + 1"])
    """)
    n, m = func.params[0].ty.dims
    assert str(func.params[1].ty) == 'R.Tensor((n * m, 2 * n + 2), dtype="float32")'
    assert func.params[1].ty.dims[0].a is n
    assert list(func.body.body.values[:2]) == [n, m]
    assert func.attrs["a"] is n


def test_scalar_parameters_are_dimensions() -> None:
    func = source("""
        @R.function
        def main(x: R.Tensor(("n", "m"), "float32"), n: R.Prim("int64"), m: T.int64):
            k = n + 1
            return R.shape([k, n * 2])
    """)
    assert tuple(func.params[0].ty.dims) == func.params[1:]
    (k,) = bindings(func)
    assert isinstance(k.var.ty, PrimType)
    assert func.body.body.values[0] is k.var


def test_the_body_declares_dimensions() -> None:
    text = """
        @R.function
        def main(x: R.Tensor(("n", "m", "n * m"), "float32")):
            n, m = T.int64(), T.int64()
            return R.shape([n, m])
    """
    func = source(text)
    assert [v.dtype for v in func.body.body.values] == ["int64", "int64"]
    assert structural_equal(from_source(func.script()), func)
    narrow = text.replace("T.int64(), T.int64()", "T.int64(), T.int32()")
    with pytest.raises(DiagnosticError, match=r"got m of type R.Prim\(\"int32\"\).*int64"):
        source(narrow)


def test_scopes_of_symbolic_variables() -> None:
    func = source("""
        @R.function
        def main(x: R.Tensor, c: R.Tensor((), "bool")):
            if c:
                n = T.int64()
                y = R.match_cast(x, R.Tensor((n,), "float32"))
            else:
                n = T.int64()
                y = R.match_cast(x, R.Tensor((n,), "float32"))
            return y
    """)
    then, orelse = bindings(func)[0].value.true_branch, bindings(func)[0].value.false_branch
    assert then.blocks[0].bindings[0].ty.dims[0] is not orelse.blocks[0].bindings[0].ty.dims[0]
    assert str(bindings(func)[0].var.ty) == 'R.Tensor(dtype="float32", ndim=1)'


# The Python around a script


class Code(IntEnum):
    STORE = 1


def test_names_of_python() -> None:
    shapes = {"n": 3}
    weights = np.arange(3, dtype="float32")
    options = {"pure": False}
    unused = object()

    def make(value: int) -> Constant:
        return R.const([value] * 3, "float32")

    @R.function(pure=options["pure"])
    def main(x: R.Tensor((shapes["n"],), "float32")):
        y = R.call_packed("f", x, Code.STORE, shapes["n"], 2 * 2, [1, 2], *[x, x])
        z = R.add(x, make(7))
        w = R.add(z, weights)
        axes = [i // 1 for i in range(2)]
        a = R.call_packed("g", *axes, f"{shapes['n']}!", 1 if Code.STORE == 1 else 2)
        k = I.meta_var(5)
        b = R.call_packed("h", k, -k, key=not k)
        return y, w, a, b

    del unused
    assert isinstance(main, Function)
    assert not main.is_pure
    texts = [str(b.value) for b in bindings(main)]
    assert texts[0] == 'R.call_packed("f", x, 1, 3, 4, (1, 2), x, x)'
    assert texts[1] == 'R.add(x, R.const([7.0, 7.0, 7.0], "float32"))'
    assert texts[3:] == ['R.call_packed("g", 0, 1, "3!", 1)',
                         'R.call_packed("h", 5, -5, key=False)']  # fmt: skip


def test_types_of_python() -> None:
    ty = TensorType((2,), "float32")
    name = "n"

    @R.function
    def main(x: ty, y: R.Tensor((name, 4), "float32")) -> ty:
        z = R.call_pure_packed("f", y, ty_args=ty)
        return z

    assert main.params[0].ty is ty
    assert str(main.params[1].ty) == 'R.Tensor((n, 4), dtype="float32")'


def test_functions_are_added_to_a_module() -> None:
    @R.function
    def add(x: R.Tensor((2,), "float32")):
        return R.add(x, x)

    function = add

    @I.ir_module
    class Module:
        add = function

        @R.function
        def main(x: R.Tensor((2,), "float32")):
            return Module.add(x)

    assert Module["add"] is add
    assert IRModule.from_expr(add)["add"] is add


def test_classes_of_one_name_differ() -> None:
    found = []
    for _ in range(2):

        @I.ir_module
        class Module:
            @R.function
            def first(x: R.Tensor):
                return x

        found.append(Module)

        @I.ir_module(check_well_formed=True)
        class Module:
            @R.function
            def second(x: R.Tensor):
                return x

        found.append(Module)
    assert [m.get_global_vars()[0].name_hint for m in found] == ["first", "second"] * 2


def test_classes_and_functions_that_are_not_decorated() -> None:
    class Module:
        @R.function
        def main(x: R.Tensor):
            return x

    assert isinstance(from_source(Module)["main"], Function)


def test_code_without_a_text_is_refused() -> None:
    names: dict[str, Any] = {"R": R}
    with pytest.raises(OSError, match=r"there is no source text; pass the text to from_source"):
        exec(compile("@R.function\ndef f(x: R.Tensor):\n    return x", "<nowhere>", "exec"), names)


def test_annotations_that_python_has_evaluated() -> None:
    """Python evaluates the annotations of a decorated function long before the parser."""
    text = """
from relaxvm.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("llvm", 1)]})
    @R.function
    def main(x: R.Tensor(("n", 4), "float32", "llvm:1"), s: R.Shape(["n"]),
             t: R.Tuple([R.Tensor, R.Tensor(("m",))]), f: R.Callable([R.Tensor(("n",))], R.Any),
             g: R.Callable, o: R.Object, k: T.int64) -> R.Tensor(("n", 4), "float32", "llvm:1"):
        return x
"""
    import linecache

    linecache.cache["<cell>"] = (len(text), None, text.splitlines(True), "<cell>")
    names: dict[str, Any] = {}
    exec(compile(text, "<cell>", "exec"), names)
    module = names["Module"]
    assert_structural_equal(module, from_source(text))
    assert module["main"].params[0].ty.vdevice is module.global_infos["vdevice"][1]
    assert module.global_infos["vdevice"][1].vdevice_id == 1


def test_devices() -> None:
    module = source("""
        @I.ir_module
        class Module:
            I.module_global_infos({"vdevice": [I.vdevice("llvm", 3), I.vdevice({"kind": "cuda"})]})

            @R.function
            def main(x: R.Tensor((2,), "float32", "llvm")):
                y = R.to_vdevice(x, "cuda")
                z = R.hint_on_device(y, R.cpu(1))
                w: R.Tensor((2,), "float32", "cuda:0") = y
                return z
    """)
    llvm, cuda = module.global_infos["vdevice"]
    assert isinstance(cuda, VDevice)
    assert module["main"].params[0].ty.vdevice is llvm
    assert bindings(module["main"])[0].var.ty.vdevice is cuda
    assert structural_equal(from_source(module.script()), module)


# Operators and calls


CALLS = [
    "R.call_tir_inplace(cls.kernel, (x, x), inplace_indices=(-1, 0), "
    'out_ty=R.Tuple(R.Tensor((2,), dtype="float32"), R.Tensor((2,), dtype="float32")))',
    'R.call_tir(cls.kernel, (x, 3), out_ty=R.Tensor((2,), dtype="float32"), tir_vars=R.shape([4]))',
    'R.call_dps_packed("f", (x, 1, "s", R.dtype("int8"), (x,)), '
    'out_ty=R.Tensor((2,), dtype="float32"))',
    'R.call_packed("f", R.ExternFunc("g"), cls.kernel, a=1, b=(2, "c"), ty_args=(R.Any, R.Tensor))',
    'R.call_inplace_packed("f", x, inplace_indices=(0,), ty_args=R.Tensor((2,), dtype="float32"))',
    'R.call_builtin_with_ctx("f", ("a", x), ty_args=R.Any)',
    'R.call_py_func("f", (x,), out_ty=R.Tensor((2,), dtype="float32"))',
    "R.make_closure(cls.helper, (x,))",
    "R.invoke_closure(c, (x, 1), ty_args=R.Any)",
    "R.invoke_pure_closure(c, (), ty_args=(R.Any, R.Any))",
    'R.print(x, 1, "s", format="{}")',
    'R.assert_op(R.const(True, "bool"), [x, 2], format="{}")',
    'R.assert_op(R.prim_value(True), format="no")',
    'R.add(R.const([1, 2], "int64"), R.prim_value(2))',
    'R.add(x, R.const(2.0, "float32"))',
    "R.shape_of(x)",
    "R.shape_to_tensor(R.shape([1, 2]))",
    'R.hint_on_device(x, "cpu:2")',
    "R.memory.view(x, R.shape([1, 2]), R.tuple(), R.tuple())",
    'R.vm.alloc_tensor(x, 0, R.shape([2]), R.dtype("int8"), 0)',
    'R.builtin.alloc_tensor(R.shape([2]), R.dtype("float32"), 0, "global")',
    "R.nn.softmax(x, axis=0)",
    "R.permute_dims(x)",
    "R.concat((x, x), axis=-1)",
    'R.emit_with_ty("relax.add", (x, x))',
    "helper(x, ty_args=R.Tensor)",
]


@pytest.mark.parametrize("call", CALLS)
def test_calls_are_printed_as_they_are_written(call: str) -> None:
    text = dedent(f"""
        @I.ir_module
        class Module:
            @R.function(private=True, pure=False)
            def main(x: R.Tensor((2,), "float32"), c: R.Any, helper: R.Callable):
                cls = Module
                y = {call}
                return x

            @R.function(private=True)
            def helper(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                return x

            @T.prim_func(private=True)
            def kernel(x: T.Buffer((2,), "float32")):
                T.evaluate(0)
    """)
    module = from_source(text, check_well_formed=False)
    value = bindings(module["main"])[-1].value
    shown = module.script()
    expected = "R.add(x, x)" if "emit_with_ty" in call else call
    assert f" = {expected}\n" in shown or f" {expected}\n" in shown
    assert isinstance(value, Call)
    assert_structural_equal(from_source(shown, check_well_formed=False), module)


def test_every_operator_can_be_written() -> None:
    """R has the operators of `relaxvm.op`."""
    for name in op.CONSTRUCTORS:
        found: Any = R
        for part in name.split("."):
            found = getattr(found, part)
        assert callable(found), name
    with pytest.raises(AttributeError, match="there is no operator 'sofmax'"):
        R.sofmax  # noqa: B018


# Locations


def test_bindings_and_values_have_locations() -> None:
    text = dedent("""
        @R.function
        def main(x: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")):
            y = R.add(R.multiply(x, x),
                      x)
            if c:
                z = y
            else:
                z = R.add(y, y)
            return z
    """)
    func = from_source(text, path="model.py")
    product, y, z = bindings(func)
    assert product.span == Span("model.py", 4, 15, 4, 31)
    assert y.span == Span("model.py", 4, 5, 5, 17)
    assert y.value.span == Span("model.py", 4, 9, 5, 17)
    assert y.var.span == Span("model.py", 4, 5, 4, 6)
    assert z.span == Span("model.py", 6, 5, 9, 24)
    assert z.value.false_branch.blocks[0].bindings[0].span == Span("model.py", 9, 9, 9, 24)
    assert func.params[0].span == Span("model.py", 3, 10, 3, 38)
    assert func.span.line == 3


def test_locations_of_decorated_code_are_those_of_the_file() -> None:
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        y = R.add(x, x)  # the expected line
        return y

    (y,) = bindings(main)
    assert y.span.file == __file__
    with open(__file__) as file:
        assert "# the expected line" in file.read().split("\n")[y.span.line - 1]
    assert y.span.column == 9


def test_messages_of_decorated_code_name_the_file() -> None:
    with pytest.raises(DiagnosticError, match=r"parser.py:\d+:20: undefined variable 'z'"):

        @R.function
        def main(x: R.Tensor((2,), "float32")):
            return z  # noqa: F821


# Robustness


def test_the_garbage_collector_is_enabled_after_a_mistake() -> None:
    assert gc.isenabled()
    with pytest.raises(DiagnosticError):
        from_source("@R.function\ndef f(x: R.Tensor):\n    return y")
    assert gc.isenabled()


def test_threads_do_not_disturb_each_other() -> None:
    texts = [
        f'@I.ir_module\nclass Module:\n    I.module_global_infos({{"vdevice": '
        f'[I.vdevice("t{i}")]}})\n    @R.function\n    def main(x: R.Tensor(("n",), "float32", '
        f'"t{i}")):\n' + "        x = R.add(x, x)\n" * 50 + "        return x"
        for i in range(4)
    ]
    results: dict[int, list[str]] = {i: [] for i in range(4)}

    def work(i: int) -> None:
        for _ in range(5):
            results[i].append(str(from_source(texts[i])["main"].ret_ty))

    run_in_threads(work, 4)
    for i in range(4):
        assert len(results[i]) == 5
        assert all(f'I.vdevice("t{i}", 0)' in text for text in results[i])


def test_a_file_that_changes_is_read_again(tmp_path: Any) -> None:
    import importlib.util

    path = tmp_path / "program.py"
    for number in (1, 22):
        path.write_text(
            "from relaxvm.script import relax as R\n" + "\n" * number
            + f"@R.function\ndef main(x: R.Tensor(({number},), 'float32')):\n    return x\n"
        )  # fmt: skip
        spec = importlib.util.spec_from_file_location("program", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert module.main.params[0].ty.dims[0].value == number


# TVM's text


PROGRAMS = [
    """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32"), c: R.Tensor((), "bool")):
        n = T.int64()
        m = T.int64()
        if c:
            w = R.add(x, x)
            z = R.multiply(w, w)
        else:
            w = R.multiply(x, x)
            z = w
        return z
""",
    """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, "n"), "float32"), s: R.Shape(["n", 4]), k: R.Prim("int64")):
        n = T.int64()
        y: R.Tensor(ndim=2) = R.add(x, R.const(1.5, "float32"))
        t = (x, y)
        return t[0], R.shape([n + 1, n * 2, k]), t
""",
    """
@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor((2, 3), "float32"), f: R.Callable([R.Tensor], R.Tensor)):
        n = T.int64()
        m = T.int64()
        R.print(x, format="{}")
        y = R.call_packed("f", x, 2, R.dtype("float32"), "s", ty_args=R.Any)
        z = R.match_cast(y, R.Tensor((n, m), "float32"))
        w = Module.helper(z)
        return f(w)

    @R.function(private=True)
    def helper(x: R.Tensor(("a", "b"), "float32")) -> R.Tensor(("a", "b"), "float32"):
        with R.dataflow():
            lv = R.add(x, x)
            gv = R.multiply(lv, x)
            R.output(gv)
        return gv
""",
    """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        R.func_attr({"num_input": 1, "other": [1, "two"]})
        @R.function
        def inner(y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            z = R.add(y, y)
            return z
        gv = inner(x)
        return gv
""",
    """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")):
        a = R.call_dps_packed("f", (x,), out_ty=R.Tensor((2, 4), "float32"))
        b = R.call_pure_packed("g", a, R.shape([2]), ty_args=R.Tensor((2, 4), "float32"))
        c = R.call_builtin_with_ctx("h", (b,), ty_args=R.Tensor((2, 4), "float32"))
        return c
""".replace("@R.function\n", "@R.function(pure=False)\n"),
    """
@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor((2, 4), "float32")):
        s = R.memory.alloc_storage(R.shape([32]), 0, "global", "float32")
        t = R.memory.alloc_tensor(s, 0, R.shape([2, 4]), "float32")
        a = R.builtin.alloc_tensor(R.shape([2, 4]), "float32", 0, "global")
        R.memory.kill_tensor(t)
        R.memory.kill_storage(s)
        R.vm.kill_object(a)
        n = R.null_value()
        return x
""",
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_tvms_text_is_parsed(program: str) -> None:
    """TVM's parser and printer make a text of the same program."""
    pytest.importorskip("tvm")
    from tvm.script import from_source as from_source_of_tvm

    printed = from_source_of_tvm(program).script()
    assert_structural_equal(from_source(printed), from_source(program))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters are of Python 3.12")
def test_type_parameters() -> None:
    """TVM 0.27 prints them where Python has them."""
    same(
        """
        @R.function
        def main[m, n](x: R.Tensor((n, m)), y: R.Shape([n + 1])) -> R.Tensor((m,)):
            @R.function
            def inner[n](z: R.Tensor((n,), "int64")) -> R.Tensor((n,), "int64"):
                return z
            return R.zeros((m,), "float32")
        """,
        """
        @R.function
        def main(x: R.Tensor(("n", "m")), y: R.Shape(["n + 1"])) -> R.Tensor(("m",)):
            n, m = T.int64(), T.int64()
            @R.function
            def inner(z: R.Tensor(("n",), "int64")) -> R.Tensor(("n",), "int64"):
                return z
            return R.zeros((m,), "float32")
        """,
    )
    with pytest.raises(DiagnosticError, match="expected the name of a symbolic variable alone"):
        from_source("@R.function\ndef f[n: int](x: R.Tensor((n,))): return x\n")


def test_type_variables() -> None:
    """TVM 0.27 prints type variables outside of signatures; each function has its own."""
    same(
        """
        # from tvm.script import ir as I
        from tvm.script import relax as R
        n = TypeVar("n")
        @R.function
        def main(x: R.Tensor((n, n + 1), dtype="float32"), y: R.Shape([n])) -> R.Shape([n]):
            return R.shape([n])
        """,
        """
        @R.function
        def main(x: R.Tensor(("n", "n + 1"), "float32"), y: R.Shape(["n"])):
            n = T.int64()
            return R.shape([n])
        """,
    )


def test_types_of_strings() -> None:
    """TVM 0.27 writes a type that its own parser does not read."""
    same(
        """
        @R.function
        def main() -> R.Tuple(I.StringType(), R.Any):
            return R.str("a"), R.dtype("float16")
        """,
        """
        @R.function
        def main():
            return R.str("a"), R.dtype("float16")
        """,
    )
