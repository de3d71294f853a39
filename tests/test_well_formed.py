"""relaxvm.analysis.well_formed: for each rule, a program that breaks this rule and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxvm import op, tir
from relaxvm.analysis import RULES, IllFormedError, check_well_formed, violations, well_formed
from relaxvm.executable.debug_info import Span
from relaxvm.ir import (
    BindingBlock,
    Call,
    Clause,
    Constant,
    Constructor,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExternFunc,
    Function,
    FuncType,
    GlobalTypeVar,
    GlobalVar,
    If,
    IRModule,
    Match,
    MatchCast,
    Op,
    PatternConstructor,
    PatternVar,
    PatternWildcard,
    SeqExpr,
    ShapeExpr,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    TypeCall,
    TypeData,
    TypeVar,
    Var,
    VarBinding,
    int_imm,
    prim,
)
from relaxvm.ir.expr import ANY

F32 = "float32"
VECTOR = TensorType((4,), F32)
BOOL = TensorType((), "bool")


def tensor(name: str = "x", *dims: Any, kind: type[Var] = Var) -> Any:
    return kind(name, TensorType(dims or (4,), F32))


def pure(x: Expr, ty: Any = VECTOR) -> Call:
    return op.call_pure_packed("f", x, ty_args=ty)


def impure(x: Expr) -> Call:
    return op.call_packed("f", x, ty_args=VECTOR)


def untyped(x: Expr) -> Call:
    return Call(ExternFunc("f"), [x], ty_args=[VECTOR])


def bind(value: Expr, name: str = "y", ty: Any = None, kind: type[Var] = Var) -> VarBinding:
    return VarBinding(kind(name, value.ty if ty is None else ty), value)


def function(params: Any, *blocks: Any, body: Any = None, **options: Any) -> Function:
    """A function of blocks, or of bindings that become one block."""
    if blocks and not isinstance(blocks[0], BindingBlock):
        blocks = (BindingBlock(blocks),)
    return Function(params, SeqExpr(blocks, params[0] if body is None else body), **options)


def module(*functions: Function, **named: Any) -> IRModule:
    return IRModule({**dict(zip(["main", "other"], functions, strict=False)), **named})


def kernel(*dims: int, dtype: str = F32) -> tir.PrimFunc:
    buffers = [tir.decl_buffer(dims, dtype, name) for name in "xy"]
    return tir.PrimFunc(buffers, tir.Evaluate(int_imm(0)))


# A program for every rule; the key is the rule and words of its message


def symbol_is_name() -> Any:
    return module(function([tensor()], attrs={"global_symbol": "f"}))


def symbol_is_unique() -> Any:
    same = {"global_symbol": "main"}
    return module(function([tensor()], attrs=same), k=kernel(4).with_attrs(same))


def function_has_type() -> Any:
    mod = module(function([tensor()]))
    mod["main"] = function([tensor(), tensor()])
    return mod


def result_has_type() -> Any:
    return module(function([tensor()], ret_ty=TensorType((5,), F32)))


def forced_purity() -> Any:
    return module(function([tensor()], is_pure=False, attrs={"relax.force_pure": True}))


def parameter_is_var() -> Any:
    return [function([tensor(kind=DataflowVar)], body=int_imm(0)), "dataflow_var_in_dataflow"]


def parameter_has_type() -> Any:
    f = function([tensor()], body=int_imm(0))
    f.params[0].ty = None
    return module(f)


def defined_once() -> Any:
    x, y = tensor(), tensor("y")
    return module(function([x], VarBinding(y, pure(x)), VarBinding(y, pure(x))))


def defined_once_in_a_module() -> Any:
    x = tensor()
    return module(function([x]), function([x]))


def dataflow_var_in_dataflow() -> Any:
    x = tensor()
    return module(function([x], bind(pure(x), kind=DataflowVar)))


def defined_before_use() -> Any:
    x, y = tensor(), tensor("y")
    return module(function([x], bind(pure(y)), VarBinding(y, pure(x))))


def dataflow_var_is_local() -> Any:
    x = tensor()
    binding = bind(pure(x), kind=DataflowVar)
    return module(function([x], DataflowBlock([binding]), body=binding.var))


def branch_is_local() -> Any:
    x, c = tensor(), Var("c", BOOL)
    inner = bind(pure(x))
    branch = SeqExpr([BindingBlock([inner])], inner.var)
    choice = VarBinding(Var("z", VECTOR), If(c, branch, SeqExpr([], x), ty=VECTOR))
    return module(function([x, c], choice, body=inner.var))


def function_is_closed() -> Any:
    x = tensor()
    return module(function([x]), function([tensor()], body=x))


def symbol_defined_before_use() -> Any:
    return module(function([tensor("x", Var("n", "int64") + 1)]))


def symbol_in_value() -> Any:
    x, n = tensor(), Var("n", "int64")
    return module(function([x], bind(ShapeExpr([n * 2]), ty=ANY)))


def symbol_of_one_function() -> Any:
    n = Var("n", "int64")
    return module(function([tensor("x", n)]), function([tensor("y", n)]))


def administrative_normal_form() -> Any:
    x = tensor()
    return module(function([x], bind(pure(pure(x)))))


def normal_form_of_tuples() -> Any:
    x = tensor()
    return module(function([x], bind(Tuple([Tuple([x, pure(x)])]))))


def normal_form_of_results() -> Any:
    x = tensor()
    return module(function([x], body=pure(x)))


def normal_form_of_elements() -> Any:
    x = tensor()
    return module(function([x], bind(TupleGetItem(pure(x, ANY), 0))))


def value_is_not_sequence() -> Any:
    x = tensor()
    return module(function([x], bind(SeqExpr([], x))))


def value_has_type() -> Any:
    x = tensor()
    f = function([x], bind(untyped(x), ty=VECTOR), is_pure=False)
    return module(f)


def variable_has_type() -> Any:
    x = tensor()
    return module(function([x], bind(pure(x, ANY), ty=VECTOR)))


def variable_without_type() -> Any:
    x = tensor()
    binding = bind(pure(x))
    binding.var.ty = None
    return module(function([x], binding))


def cast_of_another_type() -> Any:
    x = tensor()
    return module(function([x], MatchCast(Var("y", ANY), x, VECTOR)))


def cast_is_possible() -> Any:
    x = tensor()
    ty = TensorType((4,), "int8")
    return module(function([x], MatchCast(Var("y", ty), x, ty)))


def no_control_flow_in_dataflow() -> Any:
    x, c = tensor(), Var("c", BOOL)
    choice = VarBinding(Var("z", VECTOR), If(c, x, x, ty=VECTOR))
    return module(function([x, c], DataflowBlock([choice])))


def no_impure_call_in_dataflow() -> Any:
    x = tensor()
    return module(function([x], DataflowBlock([bind(impure(x))]), is_pure=False))


def branches_are_sequences() -> Any:
    x, c = tensor(), Var("c", BOOL)
    choice = If(c, x, x, ty=VECTOR)
    choice.true_branch = x
    return module(function([x, c], VarBinding(Var("z", VECTOR), choice)))


def condition_is_bool() -> Any:
    x = tensor()
    return module(function([x], VarBinding(Var("z", VECTOR), If(x, x, x, ty=VECTOR))))


def branch_types_match() -> Any:
    x, y, c = tensor(), tensor("y", 5), Var("c", BOOL)
    return module(function([x, y, c], VarBinding(Var("z", VECTOR), If(c, x, y, ty=VECTOR))))


def callee_is_known() -> Any:
    x, f = tensor(), tensor("f")
    return [function([x, f], bind(Call(f, [x], ret_ty=ANY)), is_pure=False), "call_is_well_typed"]


def pure_function_has_no_effect() -> Any:
    x = tensor()
    return module(function([x], bind(impure(x))))


def pure_function_prints() -> Any:
    x = tensor()
    return module(function([x], bind(op.print(x))))


def pure_function_calls_impure_function() -> Any:
    x = tensor()
    callee = function([tensor()], is_pure=False)
    var = GlobalVar("other", callee.ty)
    call = Call(var, [x], ret_ty=VECTOR)
    return IRModule({"main": function([x], bind(call)), var: callee})


def call_has_attributes() -> Any:
    x = tensor()
    call = op.sum(x, axis=0)
    bare = Call(call.op, call.args, ret_ty=call.ty)
    return [function([x], bind(bare)), "call_is_well_typed"]


def call_is_well_typed() -> Any:
    x = tensor()
    callee = function([tensor("p", 5)])
    var = GlobalVar("other", callee.ty)
    return IRModule({"main": function([x], bind(Call(var, [x], ret_ty=VECTOR))), var: callee})


def call_of_another_type() -> Any:
    x = tensor()
    call = pure(x)
    call.ty = TensorType((4,), "int8")
    return module(function([x], bind(call)))


def prim_func_arguments_match() -> Any:
    return call_of_kernel(kernel(4, 4))


def prim_func_of_another_dtype() -> Any:
    return call_of_kernel(kernel(4, dtype="int8"))


def prim_func_of_other_arity() -> Any:
    x, y = tensor(), tensor("y")
    return call_of_kernel(kernel(4), [x, y])


def prim_func_writes_another_shape() -> Any:
    x, func = tensor(), tir.PrimFunc([tir.decl_buffer((4,), F32, "p")], tir.Evaluate(int_imm(0)))
    var = GlobalVar("k", func.ty)
    call = op.call_tir_inplace(var, (x,), 0, TensorType((5,), F32))
    return IRModule({"main": function([x], bind(call), is_pure=False), var: func})


def prim_func_is_none() -> Any:
    return call_of_kernel(function([tensor("p")]))


def call_has_own_form() -> Any:
    args = Var("args", TupleType([VECTOR]))
    name = GlobalVar("k")
    call = Call(Op.get("relax.call_tir"), [name, args], ty_args=[VECTOR])
    call.ty = VECTOR
    y = bind(call)
    mod = IRModule({"main": function([args], y, body=y.var)})
    mod[name] = kernel(4)
    return mod


def argument_without_type() -> Any:
    x = tensor()
    fields = Tuple([x, x])
    mod = module(function([x], bind(pure(fields))))
    fields.ty = None
    return mod


def call_of_a_size_beyond_int64() -> Any:
    x = tensor()
    call = Call(Op.get("relax.reshape"), [x, ShapeExpr([1 << 62, 1 << 62])])
    call.ty = TensorType((1 << 62, 1 << 62), F32)
    return module(function([x], bind(call)))


def operator_as_argument() -> Any:
    x = tensor()
    call = Call(Op.get("relax.add"), [x, Op.get("relax.add")])
    call.ty = VECTOR
    return module(function([x], bind(call)))


def operator_as_field() -> Any:
    x = tensor()
    fields = Tuple([x, Op.get("relax.add")])
    fields.ty = TupleType([VECTOR, VECTOR])
    return module(function([x], bind(fields)))


def prim_func_has_type() -> Any:
    func = kernel(4)
    func.ty = FuncType([VECTOR], TupleType(()))
    return call_of_kernel(func)


def prim_func_is_no_function() -> Any:
    func = kernel(4)
    func.ty = VECTOR
    return IRModule({"k": func})


def call_of_kernel(func: Any, args: Any = None) -> IRModule:
    args = args or [tensor()]
    var = GlobalVar("k", func.ty)
    call = op.call_tir(var, args, VECTOR)
    return IRModule({"main": function(args, bind(call)), var: func})


def constant_has_its_type() -> Any:
    wrong = Constant(np.zeros(3, F32), VECTOR)
    return module(function([tensor()], bind(wrong)))


def function_is_in_module() -> Any:
    x = tensor()
    call = Call(GlobalVar("gone", FuncType([VECTOR], VECTOR)), [x], ret_ty=VECTOR)
    return module(function([x], bind(call)))


def another_global_var() -> Any:
    x = tensor()
    call = Call(GlobalVar("other", FuncType([VECTOR], VECTOR)), [x], ret_ty=VECTOR)
    return module(function([x], bind(call)), function([tensor("p")]))


def list_type() -> TypeData:
    header, element = GlobalTypeVar("List"), TypeVar("A")
    rest = TypeCall(header, [element])
    constructors = [Constructor("Nil", [], header), Constructor("Cons", [element, rest], header)]
    return TypeData(header, [element], constructors)


def matching(make: Callable[[TypeData, Var], Match], param: Type | None = None) -> IRModule:
    """A module of one function that matches its parameter, a list unless the type is given."""
    data = list_type()
    x = Var("x", param or TypeCall(data.header, [VECTOR]))
    found = make(data, x)
    found.ty = VECTOR
    result = Var("result", VECTOR)
    block = BindingBlock([VarBinding(result, found)])
    func = Function([x], SeqExpr([block], result), VECTOR, attrs={"global_symbol": "main"})
    return IRModule({"main": func}, type_definitions={data.header: data})


def head(data: TypeData, guard: bool = False, ty: Any = VECTOR) -> Clause:
    h = Var("h", ty)
    pattern = PatternConstructor(data["Cons"], [PatternVar(h), PatternWildcard()])
    return Clause(pattern, h, h if guard else None)


def anything(ty: Any = VECTOR) -> Clause:
    size = int(ty.shape[0])
    return Clause(PatternWildcard(), Constant(np.zeros(size, F32)))


def match_is_exhaustive() -> Any:
    return matching(lambda data, x: Match(x, [head(data)]))


def patterns_fit() -> Any:
    return matching(lambda data, x: Match(x, [head(data), anything()]), VECTOR)


def pattern_variable_without_type() -> Any:
    def make(data: TypeData, x: Var) -> Match:
        pattern = PatternConstructor(data["Cons"], [PatternVar(Var("h")), PatternWildcard()])
        return Match(x, [Clause(pattern, anything().rhs), anything()])

    return matching(make)


def clause_types_match() -> Any:
    return matching(lambda data, x: Match(x, [anything(TensorType((5,), F32))]))


def guard_is_bool() -> Any:
    return matching(lambda data, x: Match(x, [head(data, guard=True), anything()]))


def data_type_is_defined() -> Any:
    mod = matching(lambda data, x: Match(x, [anything()]))
    mod.type_definitions.clear()
    return mod


def another_data_type() -> Any:
    mod = matching(lambda data, x: Match(x, [anything()]))
    mod.type_definitions.clear()
    mod.add_type(list_type())
    return mod


def type_parameter_is_declared() -> Any:
    x = Var("x", TypeVar("A"))
    return Function([x], x)


BROKEN: dict[Callable[[], Any], tuple[str, str]] = {
    symbol_is_name: ("symbol_is_name", "main: its global_symbol is 'f'"),
    symbol_is_unique: ("symbol_is_unique", "k: main also has the global_symbol 'main'"),
    function_has_type: ("function_has_type", "its GlobalVar has the type R.Callable("),
    result_has_type: ("result_has_type", 'the return type is R.Tensor((5,), dtype="float32"), but'),
    forced_purity: ("forced_purity", "relax.force_pure is set"),
    parameter_is_var: ("parameter_is_var", "parameter x is a DataflowVar"),
    parameter_has_type: ("parameter_has_type", "parameter x has no type"),
    defined_once: ("defined_once", "y is defined twice; make a new Var"),
    defined_once_in_a_module: ("defined_once", "other: x is defined twice, first in main"),
    dataflow_var_in_dataflow: ("dataflow_var_in_dataflow", "y is defined outside of a dataflow"),
    defined_before_use: ("defined_before_use", "y is not defined"),
    dataflow_var_is_local: ("defined_before_use", "the DataflowVar y is used outside of its"),
    branch_is_local: ("defined_before_use", "y is not in scope here; it is defined in another"),
    function_is_closed: ("defined_before_use", "x is defined in another function, main"),
    symbol_defined_before_use: ("symbol_defined_before_use", "variable n is not defined here"),
    symbol_in_value: ("symbol_defined_before_use", "variable n is not defined here"),
    symbol_of_one_function: ("symbol_defined_before_use", "n is of another function, main"),
    administrative_normal_form: ("administrative_normal_form", "is a Call; bind it to a variable"),
    normal_form_of_tuples: ("administrative_normal_form", "is a Call; bind it to a variable"),
    normal_form_of_results: ("administrative_normal_form", "is a Call; bind it to a variable"),
    normal_form_of_elements: ("administrative_normal_form", "is a Call; bind it to a variable"),
    value_is_not_sequence: ("value_is_not_sequence", "the value is a SeqExpr"),
    value_has_type: ("value_has_type", "has no type; infer_type or BlockBuilder.normalize"),
    variable_has_type: ("variable_has_type", "but its value is of type R.Any"),
    variable_without_type: ("variable_has_type", "y has no type"),
    cast_of_another_type: ("variable_has_type", "y is of type R.Any, but is cast to R.Tensor("),
    cast_is_possible: ("cast_is_possible", 'can never be R.Tensor((4,), dtype="int8")'),
    no_control_flow_in_dataflow: ("no_control_flow_in_dataflow", "there is an If in a dataflow"),
    no_impure_call_in_dataflow: ("no_impure_call_in_dataflow", "there is an impure call of"),
    branches_are_sequences: ("branches_are_sequences", "a branch is a Var"),
    condition_is_bool: ("condition_is_bool", "the condition x is of type R.Tensor((4,)"),
    branch_types_match: ("branch_types_match", "a branch is of type R.Tensor((5,), "),
    callee_is_known: ("callee_is_known", "f is called, but is of type R.Tensor("),
    pure_function_has_no_effect: ("pure_function_has_no_effect", "a pure function makes the imp"),
    pure_function_prints: ("pure_function_has_no_effect", "a pure function makes the impure call"),
    pure_function_calls_impure_function: ("pure_function_has_no_effect", "a pure function makes"),
    call_has_attributes: ("call_has_attributes", "is called without axis, keepdims"),
    call_is_well_typed: ("call_is_well_typed", "ill-typed: other: argument 0 is x of type R.Ten"),
    call_of_another_type: ("call_is_well_typed", "but the inferred type is R.Tensor("),
    call_has_own_form: ("call_has_own_form", "relaxvm.transform.Normalize converts it"),
    argument_without_type: ("call_is_well_typed", "has no type; infer_type or BlockBuilder"),
    call_of_a_size_beyond_int64: ("call_is_well_typed", "does not fit int64"),
    operator_as_argument: ("operator_is_called", "the operator relax.add is used as a value"),
    operator_as_field: ("operator_is_called", "wrap it into a function"),
    prim_func_has_type: ("prim_func_has_type", "but the types of its parameters are R.Tensor("),
    prim_func_is_no_function: ("prim_func_has_type", "its type is R.Tensor((4,)"),
    prim_func_arguments_match: ("prim_func_arguments_match", "buffer x of shape [4, 4] and dtype"),
    prim_func_of_another_dtype: ("prim_func_arguments_match", "of shape [4] and dtype int8"),
    prim_func_of_other_arity: ("prim_func_arguments_match", "takes 2 arguments, got 3"),
    prim_func_writes_another_shape: ("prim_func_arguments_match", "cannot be written into"),
    prim_func_is_none: ("prim_func_arguments_match", "call_tir calls k, which is not a PrimFunc"),
    constant_has_its_type: ("constant_has_its_type", "a constant of shape [3] is of type"),
    function_is_in_module: ("function_is_in_module", "the module has no function gone"),
    match_is_exhaustive: ("match_is_exhaustive", "it has no clause for List.Nil()"),
    patterns_fit: ("patterns_fit", "List.Cons never makes a value of type R.Tensor("),
    pattern_variable_without_type: ("patterns_fit", "the pattern variable h has no type"),
    clause_types_match: ("clause_types_match", "a clause is of type R.Tensor((5,), "),
    guard_is_bool: ("clause_types_match", "the guard h is of type R.Tensor((4,), "),
    data_type_is_defined: ("data_type_is_defined", "the module has no data type List"),
    another_data_type: ("data_type_is_defined", "List is not the data type that the module has"),
    type_parameter_is_declared: ("type_parameter_is_declared", "parameter A is not declared"),
    another_global_var: ("function_is_in_module", "other is not the GlobalVar that the module has"),
}


@pytest.mark.parametrize("program", BROKEN, ids=lambda program: program.__name__)
def test_a_broken_rule(program: Callable[[], Any]) -> None:
    built = program()
    # Breaking one of these rules also breaks another one.
    mod, others = (module(built[0]), set(built[1:])) if isinstance(built, list) else (built, set())
    expected, message = BROKEN[program]
    found = violations(mod)
    assert {violation.rule for violation in found} - others == {expected}, "\n".join(
        map(str, found)
    )
    with pytest.raises(IllFormedError) as error:
        well_formed(mod)
    assert message in str(error.value)
    assert error.value.violations == tuple(found)
    assert not check_well_formed(mod)


def test_every_rule_has_a_program() -> None:
    assert {r.name for r in RULES} == {rule for rule, _ in BROKEN.values()}
    assert all(r.text.endswith(".") for r in RULES)


# Well-formed programs


def chain(length: int = 3) -> Function:
    n, m = Var("n", "int64"), Var("m", "int64")
    ty = TensorType((n, 4), F32)
    x = value = Var("x", ty)
    bindings: list[Any] = []
    for i in range(length):
        call = op.call_dps_packed("f", (value, x), ty)
        bindings.append(VarBinding(DataflowVar(f"lv{i}", ty), call))
        value = bindings[-1].var
    out = bind(value, "out")
    cast = MatchCast(Var("z", TensorType((m, n), F32)), out.var, TensorType((m, n), F32))
    shape = bind(ShapeExpr([n * m, prim.maximum(m, 1)]), "s")
    scalar = bind(n + 1, "k")
    blocks = [DataflowBlock([*bindings, out]), BindingBlock([cast, shape, scalar])]
    return Function([x], SeqExpr(blocks, out.var), ty)


def test_chain() -> None:
    assert well_formed(IRModule({"main": chain()})) is True
    assert well_formed(chain())
    assert check_well_formed(chain())


def test_scalar_parameters_are_dimensions() -> None:
    n = Var("n", "int64")
    assert well_formed(module(function([tensor("x", n * 2), n])))
    assert well_formed(module(function([n, tensor("x", n)])))
    m = Var("m", "int64")
    assert well_formed(module(function([tensor("x", m + 1), tensor("y", m)])))


def test_branches_and_impure_functions() -> None:
    x, c = tensor(), Var("c", BOOL)
    branches = []
    for _ in range(2):
        inner = bind(impure(x))
        branches.append(SeqExpr([BindingBlock([inner])], inner.var))
    choice = VarBinding(Var("z", VECTOR), If(c, *branches, ty=VECTOR))
    assert well_formed(module(function([x, c], choice, body=choice.var, is_pure=False)))


def test_local_functions() -> None:
    x, n = tensor(), Var("n", "int64")
    ty = FuncType([TensorType((n,), F32)], VECTOR)
    loop = Var("loop", ty)
    p = tensor("p", n)
    call = Call(loop, [p], ret_ty=VECTOR)
    inner = function([p], bind(call), body=x, ret_ty=VECTOR)
    assert well_formed(module(function([x], VarBinding(loop, inner))))


def test_recursion_and_kernels() -> None:
    x = tensor()
    var = GlobalVar("main", FuncType([VECTOR], VECTOR))
    k = kernel(4)
    used = GlobalVar("k", k.ty)
    call = bind(op.call_tir(used, (x,), VECTOR))
    mod = IRModule({var: function([x], call, bind(Call(var, [call.var], ret_ty=VECTOR))), used: k})
    assert well_formed(mod)


def test_functions_by_themselves_may_mention_others() -> None:
    assert well_formed(function_is_in_module()["main"])


def test_types_may_be_left_out() -> None:
    for program in (value_has_type, variable_has_type):
        assert well_formed(program(), check_ty=False)
    for program in (defined_once, symbol_defined_before_use):
        assert not check_well_formed(program(), check_ty=False)
    assert well_formed(symbol_defined_before_use(), check_ty=False, check_effects=False)


def test_shape_heaps_hold_the_dimensions() -> None:
    x = tensor("x", Var("n", "int64"))
    y = tensor("y", Var("k", "int64"))
    heap = op.call_builtin_with_ctx(
        "vm.builtin.alloc_shape_heap", [int_imm(2)], ty_args=TensorType((2,), "int64")
    )
    plain = function([x], VarBinding(y, x), is_pure=False)
    assert not check_well_formed(module(plain))
    lowered = function([x], bind(heap, "shape_heap"), VarBinding(y, x), is_pure=False)
    assert well_formed(module(lowered))


# Reports


def test_all_violations_are_reported_with_their_location() -> None:
    x, y = tensor(), tensor("y")
    first = VarBinding(y, pure(Var("a", VECTOR)), Span("model.py", 12, 5))
    second = bind(pure(Var("b", VECTOR)), "z")
    with pytest.raises(IllFormedError) as error:
        well_formed(module(function([x], first, second)))
    assert [(v.function, v.rule, str(v.span)) for v in error.value.violations] == [
        ("main", "defined_before_use", "model.py:12:5"),
        ("main", "defined_before_use", "None"),
    ]
    text = str(error.value)
    assert text.startswith("the program breaks rules at 2 places:\nmain (model.py:12:5): a is not")
    assert '    in: z = R.call_pure_packed("f", b' in text
    assert isinstance(error.value, ValueError)


def test_many_violations_are_counted() -> None:
    x = tensor()
    bindings = [bind(pure(Var("a", VECTOR)), f"v{i}") for i in range(60)]
    with pytest.raises(IllFormedError, match=r"and 10 more$") as error:
        well_formed(module(function([x], *bindings)))
    assert len(error.value.violations) == 60


def test_long_functions_do_not_recurse() -> None:
    assert well_formed(chain(10_000))
