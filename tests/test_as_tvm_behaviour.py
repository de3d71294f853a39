"""What programs for TVM rely on: program, what TVM does, what relaxvm does."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import analysis, op, transform
from relaxvm.errors import DiagnosticError, DimensionError
from relaxvm.ir import (
    ANY,
    BlockBuilder,
    Call,
    DataflowBlock,
    DataflowVar,
    EnvFunc,
    ExternFunc,
    Function,
    FuncType,
    GlobalVar,
    If,
    IntImm,
    IRModule,
    PrimType,
    SeqExpr,
    ShapeExpr,
    ShapeType,
    TensorType,
    Tuple,
    TupleType,
    Var,
    VarBinding,
    const,
    prim_value,
    structural_equal,
)
from relaxvm.ir.json import load_json, save_json
from relaxvm.script import from_source

HEADER = "from relaxvm.script import ir as I, relax as R, tir as T\n"


def parse(text: str, **options: bool) -> object:
    return from_source(HEADER + text, **options)  # type: ignore[arg-type]


def test_types_compare_by_structure() -> None:
    n = Var("n", "int64")

    def types(size: int) -> list[object]:
        tensor = TensorType((n, size), "float32")
        return [tensor, ShapeType((n, size)), PrimType(f"int{size}"), TupleType([tensor]),
                FuncType([tensor], tensor)]  # fmt: skip

    for one, same, other in zip(types(8), types(8), types(16), strict=True):
        assert one == same
        assert hash(one) == hash(same)
        assert one != other
    assert TensorType((n,)) != TensorType((Var("n", "int64"),))
    assert TensorType((2,)) != "R.Tensor((2,))"
    assert len({*types(8), *types(8)}) == 5


def test_spellings_of_unknown() -> None:
    assert TensorType((2,), "") == TensorType((2,)) == TensorType((2,), None)
    assert FuncType.opaque_func().derive_func is None
    with pytest.raises(TypeError, match="PrimType: expected the name of a data type, got"):
        PrimType([1])  # type: ignore[arg-type]


def test_a_rank_is_for_unknown_shapes() -> None:
    for make in (ShapeType, TensorType):
        assert make((1, 2)).ndim == make(ndim=2).ndim == 2
        with pytest.raises(ValueError, match="not known, got ndim=2 beside"):
            make((1, 2), ndim=2)
    with pytest.raises(ValueError, match="not known, got ndim=3 beside the shape s"):
        TensorType(Var("s", ShapeType(ndim=2)), "float32", ndim=3)
    assert TensorType.of(None, "int8", ndim=2) == TensorType(None, "int8", ndim=2)
    assert TensorType.of((1, 2), "int8", ndim=2) == TensorType((1, 2), "int8")


@pytest.mark.parametrize("dtype", ["int32", "uint64", "float32", "bool"])
def test_dimensions_are_int64(dtype: str) -> None:
    n = Var("n", dtype)
    for make in (ShapeType, ShapeExpr, TensorType):
        with pytest.raises(DimensionError, match=rf"got n of type R.Prim\(\"{dtype}\"\).*int64"):
            make((n, 4))
    assert issubclass(DimensionError, TypeError)
    assert issubclass(DimensionError, RuntimeError)  # TVM's class
    assert ShapeExpr((n.astype("int64"), 4)).values[0].dtype == "int64"
    assert ShapeExpr((IntImm("int32", 3),)).values[0].dtype == "int64"


def test_prim_funcs_have_int32_dimensions() -> None:
    text = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def twice(a: T.handle, b: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n, 4), "float32")
        B = T.match_buffer(b, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            B[i, j] = A[i, j] * T.float32(2)

    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        n = T.int64()
        return R.call_tir(Module.twice, (x,), R.Tensor((n, 4), "float32"))
"""
    mod = parse(text)
    assert str(mod["twice"].ty.params[0].shape[0]) == 'T.Cast("int64", n)'  # as in TVM
    x = np.arange(12, dtype="float32").reshape(3, 4)
    vm = relaxvm.VirtualMachine(relaxvm.build(mod))
    assert np.array_equal(vm["main"](x), 2 * x)
    wrong = text.replace('(x,), R.Tensor((n, 4)', '(x,), R.Tensor((n + 1, 4)')
    fixed = text.replace('x: R.Tensor(("n", 4)', 'x: R.Tensor((3, 4)').replace(
        '(x,), R.Tensor((n, 4)', '(x,), R.Tensor((5, 4)')
    for other in (wrong, fixed):
        if other is fixed:
            with pytest.raises(RuntimeError, match="parameter 1 of the PrimFunc is the buffer B"):
                parse(other)
        else:
            parse(other)  # what cannot be told of variables of two types is checked when it runs


def test_elements_of_tuples_and_shapes() -> None:
    x, y = Var("x"), Var("y")
    pair = Tuple((x, y))
    assert pair[0] is x
    assert pair[-1] is y
    for index in (2, -3):
        with pytest.raises(IndexError, match=rf"Tuple index out of range: {index}, of 2"):
            pair[index]
        with pytest.raises(IndexError, match=rf"ShapeExpr index out of range: {index}, of 2"):
            ShapeExpr((1, 2))[index]
    with pytest.raises(TypeError, match="Cannot convert x of type None to a scalar"):
        prim_value(x)
    with pytest.raises(ValueError, match="expected a defined operator or function, got None"):
        Call(None)  # type: ignore[arg-type]


def test_a_prim_func_takes_tensors_by_bare_handles() -> None:
    mod = parse("""
@I.ir_module
class Module:
    @T.prim_func
    def nothing(a: T.handle, b: T.handle):
        T.evaluate(0)

    @R.function
    def main(x: R.Tensor((2,), "float32")):
        with R.dataflow():
            _: R.Tuple() = Module.nothing(x, x)  # pure, since it does nothing
            y = R.add(x, x)
            R.output(y)
        return y
""")
    assert analysis.well_formed(mod)  # type: ignore[arg-type]


CALL = """
@I.ir_module
class Module:
    @T.prim_func
    def flat(a: T.handle, s: T.float32, b: T.handle):
        n, m = T.int64(), T.int64()
        A = T.match_buffer(a, (n, m))
        B = T.match_buffer(b, (n * m,))
        for i in range(n * m):
            B[i] = A[i // m, i % m] * s

    @R.function
    def main(x: R.Tensor((8, 4), "float32"), s: R.Prim("float32")):
        y = R.call_tir(Module.flat, (x, s), R.Tensor((32,), "float32"))
        return y
"""


def test_shapes_of_call_tir_are_checked() -> None:
    assert parse(CALL)
    for old, new in (("(32,)", "(64,)"), ("s: R.Prim(\"float32\")", "s: R.Prim(\"int64\")")):
        with pytest.raises(DiagnosticError, match=r"parameter \d of the PrimFunc is"):
            parse(CALL.replace(old, new))


def test_control_flow_and_effects_in_dataflow_blocks() -> None:
    x, y = Var("x", TensorType((), "int32")), Var("y", TensorType((), "int32"))
    block = DataflowBlock([VarBinding(y, If(const(True, "bool"), x, x))])
    func = Function([x], SeqExpr([block], y), x.ty, attrs={"global_symbol": "foo"})
    mod = transform.Normalize()(relaxvm.IRModule.from_expr(func))
    with pytest.raises(analysis.IllFormedError, match="there is an If in a dataflow block"):
        analysis.well_formed(mod)
    shown = DataflowBlock([VarBinding(DataflowVar("_", TupleType(())), op.print(x, format="{}"))])
    attrs = {"global_symbol": "foo", "relax.force_pure": True}
    func = Function([x], SeqExpr([shown], x), x.ty, attrs=attrs)
    assert not analysis.check_well_formed(relaxvm.IRModule.from_expr(func))


def test_a_builder_still_refuses_control_flow_in_a_dataflow_block() -> None:
    builder = BlockBuilder()
    x = Var("x", TensorType((), "int32"))
    with (
        pytest.raises(TypeError, match="an If cannot be in a dataflow block"),
        builder.function("main", [x]),
        builder.dataflow(),
    ):
        builder.emit(If(const(True, "bool"), x, x))


ANNOTATED = """
@R.function
def main(x: R.Tensor(("n",), "float32")):
    y: R.Tensor((8,), "float32") = R.exp(x)
    return y
"""


def test_annotations_are_trusted_where_nothing_is_checked() -> None:
    with pytest.raises(DiagnosticError, match=r"write R\.match_cast"):
        parse(ANNOTATED)
    trusted = parse(ANNOTATED, check_well_formed=False)
    assert str(trusted.ret_ty) == 'R.Tensor((8,), dtype="float32")'  # type: ignore[attr-defined]
    wrong = parse(ANNOTATED.replace("float32\") = ", "int8\") = "), check_well_formed=False)
    assert not analysis.check_well_formed(wrong)  # type: ignore[arg-type]


def test_loops_of_tensor_expressions_in_a_script() -> None:
    from relaxvm.te import topi

    mod = from_source(
        HEADER
        + """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        with R.dataflow():
            y = R.emit_te(topi.exp, x)
            z = R.emit_te(topi.exp, y)
            return z
""",
        {"topi": topi},
    )
    assert [var.name_hint for var in mod.get_global_vars()] == ["main", "exp"]
    x = np.ones(3, np.float32)
    vm = relaxvm.VirtualMachine(relaxvm.build(mod))
    np.testing.assert_allclose(vm["main"](x), np.exp(np.exp(x)), rtol=1e-6)
    with pytest.raises(DiagnosticError, match=r"R\.emit_te: a function alone has no place"):
        from_source(
            HEADER + "@R.function\ndef f(x: R.Tensor((2,), 'float32')):\n"
            "    y = R.emit_te(topi.exp, x)\n    return y",
            {"topi": topi},
        )


def test_global_symbols_of_private_functions_are_refused() -> None:
    with pytest.raises(DiagnosticError, match="cannot have the attribute global_symbol"):
        parse("""
@R.function(private=True)
def main(x: R.Tensor((), "int32")):
    R.func_attr({"global_symbol": "main"})
    return x
""")


def test_devices_by_their_place_in_the_module() -> None:
    mod = parse("""
@I.ir_module
class Module:
    I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("llvm", 1)]})

    @R.function
    def main(x: R.Tensor((2,), "float32", "vdevice:1")):
        return x
""")
    device = mod["main"].params[0].ty.vdevice  # type: ignore[index]
    assert device is mod.global_infos["vdevice"][1]  # type: ignore[attr-defined]


def test_the_plan_of_memory_covers_dynamic_calls() -> None:
    mod = parse("""
@I.ir_module
class Module:
    @T.prim_func
    def fill(a: T.handle, n: T.int64):
        T.evaluate(0)

    @R.function
    def main(s: R.Shape(["n"])):
        R.func_attr({"tir_var_upper_bound": {"n": 20}, "relax.force_pure": True})
        n = T.int64()
        a = R.builtin.alloc_tensor(R.shape([n]), "float32", 0)
        _: R.Tuple() = R.vm.call_tir_dyn(Module.fill, (a, R.shape([n])))
        b = R.builtin.alloc_tensor(R.shape([n]), "float32", 0)
        _1: R.Tuple() = R.vm.call_tir_dyn(Module.fill, (b, R.shape([n])))
        return n
""")
    text = transform.StaticPlanBlockMemory()(mod)["main"].script()  # type: ignore[arg-type]
    assert text.count("R.memory.alloc_storage(R.shape([80])") == 1


def test_any_is_a_type() -> None:
    assert ANY == relaxvm.AnyType()


def test_types_of_functions_in_analyses() -> None:
    n, m = Var("n", "int64"), Var("m", "int64")
    of_rows = FuncType([TensorType((n, m), "float32")], TupleType([ShapeType((n,))]))
    static = analysis.get_static_type(of_rows)
    assert static == FuncType(
        [TensorType(None, "float32", ndim=2)], TupleType([ShapeType(ndim=1)])
    )
    assert analysis.get_static_type(FuncType.opaque_func()) == FuncType.opaque_func()
    assert analysis.tir_vars_in_type(of_rows) == [n, m]
    assert ANY.is_base_of(of_rows)
    assert not of_rows.is_base_of(ANY)
    assert static.is_base_of(static)
    assert not static.is_missing()


def test_public_functions_are_alive() -> None:
    mod = parse("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        return x

    @R.function
    def public(x: R.Tensor((2,), "float32")):
        return x

    @R.function(private=True)
    def entry(x: R.Tensor((2,), "float32")):
        return x

    @R.function(private=True)
    def dead(x: R.Tensor((2,), "float32")):
        return x
""")
    kept = transform.DeadCodeElimination(["entry"])(mod)
    assert [var.name_hint for var in kept] == ["main", "public", "entry"]


def test_a_function_keeps_its_name_where_loops_have_the_same() -> None:
    from relaxvm.te import topi

    x = Var("x", TensorType((2,), "float32"))
    builder = BlockBuilder()
    with builder.function("add", [x]):
        y = builder.emit_te(topi.add, x, x)
        z = builder.emit_te(topi.add, y, x)
        builder.emit_func_output(z)
    mod = builder.get()
    assert [var.name_hint for var in mod] == ["add1", "add"]
    x_value = np.ones(2, np.float32)
    vm = relaxvm.VirtualMachine(relaxvm.build(mod))
    assert (vm["add"](x_value) == 3).all()


def test_scalars_of_numpy_are_scalars_of_64_bits() -> None:
    assert prim_value(np.int32(2)).ty == PrimType("int64")
    assert prim_value(np.float32(1.5)).ty == PrimType("float64")
    assert prim_value(np.bool_(True)).ty == PrimType("bool")


def test_bounds_of_some_of_the_variables_of_a_size() -> None:
    func = parse("""
@R.function
def main(x: R.Tensor(("b", "v"), "float32")) -> R.Tensor(("b", "v"), "float32"):
    b, v = T.int64(), T.int64()
    R.func_attr({"relax.force_pure": True, "tir_var_upper_bound": {"b": 32},
                 "tir_non_negative_var": ["v"]})
    work: R.Tensor((2 * (b * v * 4) + 64,), "uint8") = R.builtin.alloc_tensor(
        R.shape([2 * (b * v * 4) + 64]), R.dtype("uint8"), R.prim_value(0))
    R.call_packed("f", x, work, ty_args=R.Tuple())
    less: R.Tensor((b * v - b,), "uint8") = R.builtin.alloc_tensor(
        R.shape([b * v - b]), R.dtype("uint8"), R.prim_value(0))
    R.call_packed("f", x, less, ty_args=R.Tuple())
    return x
""")
    mod = relaxvm.IRModule.from_expr(func)  # type: ignore[arg-type]
    text = str(transform.StaticPlanBlockMemory()(mod))
    assert "alloc_storage(R.shape([32 * v * 4 * 2 + 64])" in text
    assert "alloc_storage(R.shape([b * v - b])" in text


def test_variables_have_a_name_alone() -> None:
    for kind in (Var, DataflowVar):
        assert kind(name="x").name == kind(name_hint="x").name == "x"
        assert not hasattr(kind("x"), "name_hint")
        with pytest.raises(TypeError, match="Specify either name or name_hint, not both"):
            kind("x", name_hint="y")


def test_constants_outside_of_dataflow_blocks() -> None:
    """TVM folds within dataflow blocks alone, and so does its name here."""
    text = """
@R.function
def main(x: R.Tensor((2,), "float32")):
    with R.dataflow():
        inside = R.add(R.const([1.0, 2.0]), R.const([1.0, 2.0]))
        a = R.add(x, inside)
        R.output(a)
    outside = R.add(R.const([1.0, 2.0]), R.const([1.0, 2.0]))
    return R.add(a, outside)
"""
    func = parse(text)
    mod = IRModule({"main": func})
    assert transform.FoldConstant()(mod)["main"].script().count("R.add") == 2
    assert transform.FoldConstant(only_dataflow=True)(mod)["main"].script().count("R.add") == 3


def test_elements_are_taken_as_often_as_written() -> None:
    """Sharing them is left to EliminateCommonSubexpr, as in TVM."""
    text = """
@R.function
def main(t: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32"))):
    with R.dataflow():
        a = t[0]
        b = t[0]
        c = R.add(a, b)
        R.output(c)
    return c
"""
    mod = transform.CanonicalizeBindings()(IRModule({"main": parse(text)}))
    assert mod["main"].script().count("t[0]") == 2
    shared = transform.CanonicalizeBindings()(transform.EliminateCommonSubexpr()(mod))
    assert shared["main"].script().count("t[0]") == 1


def test_a_cast_to_a_wider_type_is_a_register_of_its_own() -> None:
    text = """
@R.function(pure=False)
def main(w: R.Tensor((2,), "float32")):
    x = R.add(w, w)
    y = R.match_cast(x, R.Tensor((2,)))
    z = R.add(y, y)
    return z
"""
    mod = transform.KillAfterLastUse()(IRModule({"main": parse(text)}))
    lines = [line.strip() for line in mod["main"].script().splitlines()]
    kills = [lines.index(line) for line in lines if "kill_tensor" in line]
    names = [lines[k].split("kill_tensor(")[1] for k in kills]
    assert names == ["x)", "y)"]
    x = np.ones(2, "float32")
    assert np.array_equal(relaxvm.VirtualMachine(relaxvm.build(mod))["main"](x), 4 * x)


def test_arguments_that_are_written_are_not_in_a_variable() -> None:
    """Other uses of the tuple would see what is written; TVM refuses it, too."""
    tensor = TensorType((2,), "float32")
    func, args = GlobalVar("f"), Var("args", TupleType([tensor, tensor]))
    with pytest.raises(TypeError, match=r"expected the arguments themselves.*the variable args"):
        op.call_tir_inplace(func, args, [0, -1], [tensor, tensor])
    assert op.call_tir_inplace(func, Tuple([args[0], args[1]]), [0, -1], [tensor, tensor])


def _first(call: Call, builder: BlockBuilder) -> object:
    assert isinstance(builder, BlockBuilder)
    return call.args[0].ty


def test_a_function_finds_the_type_of_a_call() -> None:
    relaxvm.register_func("tests.first_type", _first, override=True)
    ty = FuncType.opaque_func(derive_func="tests.first_type", purity=True)
    assert isinstance(ty.derive_func, EnvFunc)
    assert ty.derive_func.name == "tests.first_type"
    x = Var("x", TensorType((2, 3), "float32"))
    call = BlockBuilder().normalize(Call(ExternFunc("f", ty), [x]))
    assert call.ty == x.ty
    assert analysis.derive_call_ret_type(ty, call, BlockBuilder()) == x.ty
    assert analysis.type_lca(ty, FuncType.opaque_func(derive_func="tests.first_type")) == (
        FuncType.opaque_func(derive_func="tests.first_type"))  # fmt: skip
    assert analysis.type_base_check(ty, FuncType.opaque_func(purity=True)) == 1
    assert structural_equal(load_json(save_json(ty)), ty)
    with pytest.raises(ValueError, match="ret or derive_func, got both"):
        FuncType.opaque_func(ret=ANY, derive_func="tests.first_type")
    with pytest.raises(ValueError, match="with parameters has no derive_func"):
        FuncType([], ANY, derive_func=EnvFunc("tests.first_type"))
    unknown = FuncType.opaque_func(derive_func="tests.no_such_function")
    with pytest.raises(ValueError, match=r"tests\.no_such_function"):
        BlockBuilder().normalize(Call(ExternFunc("f", unknown), [x]))
    relaxvm.register_func("tests.no_type", lambda call, builder: 1, override=True)
    with pytest.raises(TypeError, match=r"tests\.no_type: expected a type for"):
        BlockBuilder().normalize(
            Call(ExternFunc("f", FuncType.opaque_func(derive_func="tests.no_type")), [x])
        )


def test_functions_that_find_types_in_scripts() -> None:
    module = parse("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((16,), "float32")):
        y = R.ExternFunc("runtime.TVMTensorCreateView", R.Callable(
            derive_func="tvm.relax.type.infer_view_ty", purity=True))(
            x, R.shape([4, 4]), R.dtype("int32"), 0)
        return y

    @R.function
    def apply(f: R.Callable(derive_func="tvm.relax.type.infer_by_ty_args", purity=True)):
        y = f(ty_args=R.Tensor((2,), "int8"))
        return y
""")
    assert isinstance(module, IRModule)
    assert module["main"].ret_ty == TensorType((4, 4), "int32")
    assert module["apply"].ret_ty == TensorType((2,), "int8")
    assert structural_equal(from_source(module.script()), module)
    result = relaxvm.VirtualMachine(relaxvm.build(module))["main"](np.zeros(16, np.float32))
    assert (result == np.zeros((4, 4), np.int32)).all()
    assert result.dtype == np.int32


def test_what_a_builder_returns_is_what_it_goes_on_with() -> None:
    builder = BlockBuilder()
    x = Var("x", TensorType((2,), "float32"))
    with builder.function("first", [x]):
        builder.emit_func_output(x)
    module = builder.get()
    module.update_global_info("vdevice", [relaxvm.ir.VDevice("llvm")])
    with builder.function("second", [x]):
        builder.emit_func_output(x)
    assert "second" not in module
    assert "second" in builder.get()
    assert builder.get().global_infos == module.global_infos
    assert builder.get() is builder.get()
