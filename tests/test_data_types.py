"""Data types in programs: definitions, types, matches, in script, JSON and the builder."""

from __future__ import annotations

from typing import Any

import pytest

import relaxvm
from relaxvm import op
from relaxvm.errors import DiagnosticError, ExprSizeError, UnreachableClauseWarning
from relaxvm.ir import (
    NEVER,
    BlockBuilder,
    Call,
    Clause,
    Constructor,
    FuncType,
    GlobalTypeVar,
    GlobalVar,
    IRModule,
    Match,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    RefType,
    TensorType,
    TypeCall,
    TypeData,
    TypeVar,
    Var,
    assert_structural_equal,
    base_check,
    infer_type,
    is_base_of,
    load_json,
    missing_patterns,
    pattern_text,
    save_json,
    structural_equal,
    structural_hash,
    type_lca,
    unreachable_clauses,
)
from relaxvm.script import from_source

F3 = TensorType((3,), "float32")
F4 = TensorType((4,), "float32")
F_ = TensorType(None, "float32", ndim=1)
ANYTHING = PatternWildcard()


def list_type(name: str = "List") -> TypeData:
    header, element = GlobalTypeVar(name), TypeVar("A")
    rest = TypeCall(header, [element])
    constructors = [Constructor("Nil", [], header), Constructor("Cons", [element, rest], header)]
    return TypeData(header, [element], constructors)


LIST = list_type()
NIL, CONS = LIST.constructors


def of(ty: Any) -> TypeCall:
    return LIST.header(ty)


def cons(head: Any = ANYTHING, tail: Any = ANYTHING) -> PatternConstructor:
    return PatternConstructor(CONS, [head, tail])


def nil() -> PatternConstructor:
    return PatternConstructor(NIL)


def color_type(count: int = 4) -> TypeData:
    header = GlobalTypeVar("Color")
    return TypeData(header, [], [Constructor(f"C{i}", [], header) for i in range(count)])


COLOR = color_type()


def color(tag: int, data: TypeData = COLOR) -> PatternConstructor:
    return PatternConstructor(data.constructors[tag])


def neighbours(count: int) -> list[Any]:
    """Patterns of tuples in which two elements that follow each other are C0 and C1."""
    found = []
    for place in range(0, count, 2):
        parts: list[Any] = [ANYTHING] * count
        parts[place : place + 2] = color(0), color(1)
        found.append(PatternTuple(parts))
    return found


def clause(pattern: Any, guard: Any = None) -> Clause:
    return Clause(pattern, Var("r", F3), guard)


# Definitions


def test_a_definition_gives_its_constructors_tags_and_types() -> None:
    assert [c.tag for c in LIST.constructors] == [0, 1]
    assert CONS.ty.type_params == LIST.type_vars
    assert CONS.qualified_name == "List.Cons"
    assert LIST["Cons"] is CONS
    with pytest.raises(KeyError, match="no constructor 'Cone'; it has: Nil, Cons"):
        LIST["Cone"]


def test_definitions_that_are_refused() -> None:
    header = GlobalTypeVar("T")
    one = Constructor("One", [], header)
    with pytest.raises(ValueError, match="two constructors are named 'One'"):
        TypeData(header, [], [one, Constructor("One", [], header)])
    with pytest.raises(TypeError, match="constructor 'Nil' belongs to"):
        TypeData(header, [], [NIL])
    TypeData(header, [], [one])
    with pytest.raises(ValueError, match="'T' is defined twice"):
        TypeData(header, [], [one])
    with pytest.raises(TypeError, match="'U' has no definition"):
        GlobalTypeVar("U").definition  # noqa: B018
    with pytest.raises(TypeError, match="expected 2 patterns, one for each field, got 1"):
        PatternConstructor(CONS, [ANYTHING])


def test_a_module_has_one_data_type_of_a_name() -> None:
    mod = IRModule()
    mod[LIST.header] = LIST
    mod.add_type(LIST)
    assert mod.get_type("List") == (LIST.header, NIL, CONS)
    with pytest.raises(ValueError, match="another data type 'List'"):
        mod.add_type(list_type())
    with pytest.raises(ValueError, match="no data type 'Lists'; did you mean 'List'"):
        mod.get_global_type_var("Lists")
    assert mod.copy().type_definitions == mod.type_definitions


# Types


def test_subtypes() -> None:
    assert is_base_of(of(F_), of(F3))
    assert not is_base_of(of(F3), of(F_))
    assert is_base_of(of(F3), of(NEVER))
    assert is_base_of(of(F3), list_type().header(F3))
    assert not is_base_of(of(F3), list_type("Other").header(F3))
    assert is_base_of(RefType(F3), RefType(F3))
    assert not is_base_of(RefType(F_), RefType(F3))  # it could be written


def test_common_ancestors() -> None:
    assert structural_equal(type_lca(of(F3), of(F4)), of(F_))
    assert structural_equal(type_lca(of(NEVER), of(F4)), of(F4))


def test_a_parameter_of_a_function_in_a_field_is_not_covariant() -> None:
    header, element = GlobalTypeVar("Sink"), TypeVar("A")
    TypeData(header, [element], [Constructor("Sink", [FuncType([element], F3)], header)])
    assert not is_base_of(header(F_), header(F3))
    assert base_check(header(F3), header(F3)) == 3


FOLDR_A, FOLDR_B = TypeVar("A"), TypeVar("B")
FOLDR = GlobalVar(
    "foldr",
    FuncType(
        [FuncType([FOLDR_A, FOLDR_B], FOLDR_B), FOLDR_B, of(FOLDR_A)],
        FOLDR_B,
        type_params=[FOLDR_A, FOLDR_B],
    ),
)


def test_type_parameters_are_found_at_calls() -> None:
    x, xs = Var("x", F3), Var("xs", of(F4))
    assert structural_equal(infer_type(NIL()).ty, of(NEVER))
    assert structural_equal(infer_type(CONS(x, infer_type(NIL()))).ty, of(F3))
    assert structural_equal(infer_type(CONS(x, xs)).ty, of(F_))
    # A polymorphic function as an argument.
    call = infer_type(Call(FOLDR, [CONS, infer_type(NIL()), xs]))
    assert structural_equal(call.ty, of(F4))
    given = infer_type(Call(NIL, [], ty_args=[F3]))
    assert structural_equal(given.ty, of(F3))


def test_a_wrong_argument_of_a_polymorphic_function() -> None:
    x = Var("x", F3)
    with pytest.raises(TypeError, match=r"Cons: argument 1 is x of type R.Tensor"):
        infer_type(CONS(x, x))
    with pytest.raises(TypeError, match="expected 1 type arguments, got 2"):
        infer_type(Call(NIL, [], ty_args=[F3, F3]))


def test_a_constructor_outside_of_the_definition() -> None:
    other = Constructor("Other", [], list_type().header)
    pattern = PatternConstructor(other)
    match = Match(Var("xs", other.belong_to(F3)), [clause(pattern)])
    with pytest.raises(TypeError, match=r"constructor List\.Other is not part of a TypeData"):
        infer_type(match)


# Coverage


@pytest.mark.parametrize(
    ("patterns", "missing"),
    [
        ([nil(), cons()], []),
        ([ANYTHING], []),
        ([nil()], ["List.Cons(_, _)"]),
        ([], ["_"]),
        ([cons(tail=nil()), nil()], ["List.Cons(_, List.Cons(_, _))"]),
        (
            [PatternTuple([nil(), nil()]), PatternTuple([cons(), cons()])],
            ["(List.Nil(), List.Cons(_, _))", "(List.Cons(_, _), List.Nil())"],
        ),
        ([cons(cons(), ANYTHING)], ["List.Nil()", "List.Cons(List.Nil(), _)"]),
        (
            [PatternTuple([nil(), ANYTHING]), PatternTuple([ANYTHING, nil()])],
            ["(List.Cons(_, _), List.Cons(_, _))"],
        ),
        ([color(0), color(2)], ["Color.C1()", "Color.C3()"]),
        (
            [PatternTuple([color(1), color(1)]), PatternTuple([ANYTHING, color(0)])],
            [
                "(Color.C0(), Color.C1())",
                "(Color.C0(), Color.C2())",
                "(Color.C0(), Color.C3())",
                "(Color.C1(), Color.C2())",
                "(Color.C1(), Color.C3())",
                "(Color.C2(), Color.C1())",
                "(Color.C2(), Color.C2())",
                "(Color.C2(), Color.C3())",
            ],
        ),
    ],
)
def test_missing_patterns(patterns: list[Any], missing: list[str]) -> None:
    clauses = [clause(pattern) for pattern in patterns]
    assert list(map(pattern_text, missing_patterns(clauses))) == missing


def test_a_clause_with_a_guard_covers_nothing() -> None:
    clauses = [clause(nil(), Var("c", "bool")), clause(cons())]
    assert list(map(pattern_text, missing_patterns(clauses))) == ["List.Nil()"]


def test_unreachable_clauses() -> None:
    assert unreachable_clauses([clause(nil()), clause(cons()), clause(ANYTHING)]) == [2]
    assert unreachable_clauses([clause(ANYTHING), clause(nil()), clause(cons())]) == [1, 2]
    assert unreachable_clauses([clause(nil(), Var("c", "bool")), clause(nil())]) == []
    pairs = [PatternTuple([nil(), ANYTHING]), PatternTuple([ANYTHING, nil()]),
             PatternTuple([nil(), nil()])]  # fmt: skip
    assert unreachable_clauses([clause(pattern) for pattern in pairs]) == [2]
    colors = [color(0), color(1), color(0), ANYTHING, color(3)]
    assert unreachable_clauses([clause(pattern) for pattern in colors]) == [2, 4]


def test_a_last_clause_for_everything_ends_the_search() -> None:
    clauses = [clause(pattern) for pattern in (*neighbours(60), PatternTuple([ANYTHING] * 60))]
    assert missing_patterns(clauses) == []
    assert unreachable_clauses([clauses[0], clauses[0], *clauses[1:]]) == [1]


def test_constructors_without_a_clause_are_looked_at_together() -> None:
    data = color_type(10_000)
    pairs = [PatternTuple([color(i, data), color(i, data)]) for i in range(200)]
    clauses = [clause(pattern) for pattern in (*pairs, PatternTuple([ANYTHING, ANYTHING]))]
    assert missing_patterns(clauses) == []
    last = clause(PatternTuple([color(9_999, data), ANYTHING]))
    assert unreachable_clauses([*clauses[:-1], last, last]) == [201]


# Script, JSON


PROGRAM = """
@I.ir_module
class Module:
    class List(R.Data["A"]):
        Nil = R.Constructor()
        Cons = R.Constructor("A", "List[A]")

    class Rose(R.Data["A"]):
        Rose = R.Constructor("A", "List[Rose[A]]", "R.Callable((A,), List[A])", R.Tensor)

    @R.function
    def map(f: R.Callable(("A",), "B"), xs: List["A"]) -> List["B"]:
        cls = Module
        match xs:
            case Nil():
                r = Nil()
            case Cons(x, rest):
                y = f(x)
                r = Cons(y, cls.map(f, rest))
        return r

    @R.function(type_params=("B", "A"))
    def first(a: "A", b: "B") -> "A":
        return a

    @R.function
    def apply(f: R.Callable(("A",), "A", type_params=("A",)), x: R.Tensor) -> R.Tensor:
        y = f(x)
        return y

    @R.function(pure=False)
    def cells(x: R.Tensor) -> R.Ref(R.Tensor):
        r = R.ref(x)
        R.ref_write(r, R.add(R.ref_read(r), x))
        return r

    @R.function
    def both(xs: List[R.Tensor((), "int32")], ys: List[R.Tensor((), "int32")]):
        match (xs, ys):
            case (Cons(x, _), Cons(y, Cons(_, _))) if R.less(x, y):
                r = x
            case (Cons(x, _), Cons(y, _)):
                match xs:
                    case Cons(_, Nil()) as all:
                        r = x
                    case _:
                        r = y
            case (Nil(), _):
                r = R.const(0, "int32")
            case (_, Nil()):
                r = R.const(1, "int32")
        return r

    @R.function
    def head(xs: List["A"]) -> "A":
        match R.incomplete(xs):
            case Cons(x, _):
                r = x
        return r
"""


def program() -> Any:
    return from_source(PROGRAM)


def test_script_round_trip() -> None:
    mod = program()
    text = mod.script()
    again = from_source(text)
    assert_structural_equal(again, mod)
    assert again.script() == text
    assert structural_hash(again) == structural_hash(mod)
    assert "case (List.Cons(x, _), List.Cons(y, List.Cons(_, _))) if R.less(x, y):" in text


def test_json_round_trip() -> None:
    mod = program()
    again = load_json(save_json(mod))
    assert_structural_equal(again, mod)
    assert again.script() == mod.script()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("case Cons(_, Nil()) as all", "case Cons(_, Cons(_, Nil())) as all"),
        ("if R.less(x, y)", "if R.greater(x, y)"),
        ("Rose[A]", "Rose[R.Any]"),
        ('type_params=("B", "A")', 'type_params=("A", "B")'),
    ],
)
def test_programs_that_differ(before: str, after: str) -> None:
    other = from_source(PROGRAM.replace(before, after))
    assert not structural_equal(program(), other)


def fails(body: str, *texts: str) -> None:
    lines = "\n".join("        " + line for line in body.splitlines())
    source = f"""
@I.ir_module
class Module:
    class List(R.Data["A"]):
        Nil = R.Constructor()
        Cons = R.Constructor("A", "List[A]")

    @R.function
    def main(xs: List[R.Tensor((3,), "float32")], x: R.Tensor((3,), "float32")):
{lines}
"""
    with pytest.raises(DiagnosticError) as error:
        from_source(source)
    for text in texts:
        assert text in str(error.value)


def test_a_match_that_is_not_exhaustive() -> None:
    fails(
        "match xs:\n    case Nil(): r = x\n    case Cons(_, Nil()): r = x\nreturn r",
        "the match is not exhaustive; it has no clause for List.Cons(_, List.Cons(_, _))",
        "match xs",
    )


def test_mistakes_in_matches() -> None:
    fails("match xs:\n    case Conz(): r = x\nreturn r", "undefined variable 'Conz'", "'Cons'")
    fails("match xs:\n    case Cons(y): r = y\nreturn r", "expected 2 patterns", "got 1")
    fails("match x:\n    case Nil(): r = x\nreturn r", "List.Nil never makes a value of type")
    fails("match xs:\n    case 'a': r = x\nreturn r", "only numbers are patterns", "in a guard")
    fails("match xs:\n    case None: r = x\nreturn r", "None is not a pattern")
    fails("match xs:\n    case Nil(): r = x\n    case _: q = x\nreturn r",
          "all cases must end with an assignment of the same variable", "'r'", "'q'")  # fmt: skip
    fails("match xs:\n    case (a, b): r = x\nreturn r", "never matches a value of type List[")
    fails("match xs:\n    case Cons(h, _) if x: r = h\n    case _: r = x\nreturn r",
          "the guard x of a clause is of type", "expected a bool")  # fmt: skip
    fails("y = List.Con(x, xs)\nreturn y", "data type 'List' has no constructor 'Con'", "'Cons'")
    fails("y: List = xs\nreturn y", "List: expected 1 type arguments", "List[R.Any]")


def test_mistakes_in_alternatives() -> None:
    fails("match xs:\n    case Nil() | Cons(h, _): r = x\nreturn r", "the same variables")
    fails("match xs:\n    case Nil() | Cons(_, Nil()): r = x\nreturn r",
          "no clause for List.Cons(_, List.Cons(_, _))")  # fmt: skip
    text = "(Nil() | Cons(_, _))"
    fails(f"match ({', '.join(['xs'] * 7)}):\n    case ({', '.join([text] * 7)}): r = x\nreturn r",
          "the alternatives of a case stand for more than 64 patterns")  # fmt: skip


@pytest.mark.parametrize(
    ("value", "dtype", "problem"),
    [
        ("300", "int8", "the value 300 is not one of data type int8"),
        ("-1", "uint8", "the value -1 is not one of data type uint8"),
        ("0.5", "int32", "the value 0.5 is not one of data type int32"),
        ("16777217", "float32", "the value 16777217 is not one of data type float32"),
        ("1e39", "float32", "is not one of data type float32"),
        (f"1{'0' * 400}", "float64", "is not one of data type float64"),
        ("True", "int32", "the value True is not one of data type int32"),
        ("1", "bool", "the value 1 is not one of data type bool"),
    ],
)
def test_values_of_another_data_type_in_patterns(value: str, dtype: str, problem: str) -> None:
    with pytest.raises(DiagnosticError, match=problem):
        from_source(f"""
@R.function
def main(x: R.Tensor((), "{dtype}")) -> R.Tensor((), "{dtype}"):
    match x:
        case {value}: r = x
        case _: r = x
    return r
""")


def test_values_are_compared_with_scalars_alone() -> None:
    fails("match x:\n    case 0: r = x\n    case _: r = x\nreturn r",
          "the value 0 is compared with one of type", "a tensor without dimensions")  # fmt: skip
    fails("match xs:\n    case 0: r = x\n    case _: r = x\nreturn r", "of type List[")
    fails("y = R.sum(x)\nmatch y:\n    case 0 if R.equal(y, y): r = x\n    case _: r = x\nreturn r",
          "a case with values in its pattern has no other guard")  # fmt: skip
    fails("y = R.sum(x)\nmatch y:\n    case 0: r = x\n    case 1: r = x\nreturn r",
          "the match is not exhaustive; it has no clause for _")  # fmt: skip


def test_an_unreachable_alternative_is_warned_about() -> None:
    source = """
@I.ir_module
class Module:
    class Bit(R.Data):
        O = R.Constructor()
        I = R.Constructor()

    @R.function
    def main(b: "Bit") -> "Bit":
        match b:
            case Bit.O(): r = Bit.I()
            case Bit.I() | Bit.O(): r = b
        return r
"""
    with pytest.warns(UnreachableClauseWarning, match=r"the case Bit.O\(\) is never reached"):
        from_source(source)


def test_an_unreachable_case_is_warned_about() -> None:
    source = """
@I.ir_module
class Module:
    class Bit(R.Data):
        O = R.Constructor()
        I = R.Constructor()

    @R.function
    def main(b: "Bit") -> "Bit":
        match b:
            case Bit.O(): r = Bit.I()
            case _: r = b
            case Bit.I(): r = Bit.O()
        return r
"""
    with pytest.warns(UnreachableClauseWarning, match=r"the case Bit.I\(\) is never reached"):
        from_source(source)


def test_a_decision_tree_that_would_be_too_large() -> None:
    names = [f"x{i}" for i in range(60)]
    cases = ""
    for place in range(0, 60, 2):
        parts = ["_"] * 60
        parts[place : place + 2] = "C0()", "C1()"
        cases += f"            case ({', '.join(parts)}): r = x0\n"
    source = f"""
@I.ir_module
class Module:
    class Color(R.Data):
        C0 = R.Constructor()
        C1 = R.Constructor()

    @R.function
    def main({", ".join(f'{name}: "Color"' for name in names)}) -> "Color":
        match ({", ".join(names)}):
{cases}            case _: r = x1
        return r
"""
    with pytest.raises(ExprSizeError, match="decision tree would have more than 50000 steps"):
        relaxvm.build(from_source(source))


def test_the_builder_normalizes_a_match() -> None:
    builder = BlockBuilder()
    x, xs, h = Var("x", F3), Var("xs", of(F3)), Var("h")
    with builder.function("main", [x, xs]):
        found = Match(
            CONS(x, xs),
            [Clause(nil(), x), Clause(cons(PatternVar(h)), op.add(h_of(h), x))],
        )
        builder.emit_func_output(builder.emit(found))
    mod = builder.get()
    mod.add_type(LIST)
    assert h.ty is F3
    assert_structural_equal(from_source(mod.script()), mod)


def h_of(var: Var) -> Var:
    var.ty = F3
    return var
