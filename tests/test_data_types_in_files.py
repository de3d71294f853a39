"""Data types in files: definitions and signatures, in all forms and in other processes."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import ExecBuilder, Limits, VirtualMachine, VMExecutable, build
from relaxvm.adt import Constructor, DataType, DataTypes, data_types
from relaxvm.compiler.decompile import decompile
from relaxvm.errors import (
    FormatError,
    InternalError,
    LimitError,
    ParseError,
    VerifyError,
)
from relaxvm.executable.formats import pysource
from relaxvm.field_types import (
    ANY,
    MOST_DEPTH,
    NEVER,
    DataField,
    FunctionField,
    PrimField,
    RefField,
    ShapeField,
    TensorField,
    TupleField,
    parse,
)
from relaxvm.ir import (
    BlockBuilder,
    GlobalTypeVar,
    IRModule,
    TensorType,
    TupleType,
    TypeData,
    TypeVar,
    Var,
)
from relaxvm.ir import Constructor as ConstructorNode
from relaxvm.script import from_source

from .children import run_script

LISTS = """
@I.ir_module
class Module:
    class List(R.Data["A"]):
        Nil = R.Constructor()
        Cons = R.Constructor("A", "List[A]")

    class Tree(R.Data):
        Leaf = R.Constructor(R.Tensor((3,), dtype="float32"), R.Prim("int64"), R.Shape(ndim=2))
        Node = R.Constructor("List[Tree]", "R.Callable((Tree,), R.Any, True)", "R.Ref(Tree)")

    @R.function
    def last(z: "A", xs: List["A"]) -> "A":
        match xs:
            case Nil():
                found = z
            case Cons(x, rest):
                found = Module.last(x, rest)
        return found

    @R.function
    def second(xs: List["A"], x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        return x

    @R.function
    def plain(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        return R.add(x, x)
"""


@pytest.fixture(scope="module")
def module() -> IRModule:
    found: IRModule = from_source(LISTS)
    return found


@pytest.fixture(scope="module")
def executable(module: IRModule) -> VMExecutable:
    return build(module)


# Types


TYPES = [
    ("R.Any", ANY),
    ("R.Never", NEVER),
    ("R.Tensor", TensorField()),
    ("R.Tensor(())", TensorField(())),
    ('R.Tensor((3,), dtype="float32")', TensorField((3,), "float32")),
    ("R.Tensor((3, 4))", TensorField((3, 4))),
    ('R.Tensor(dtype="int8", ndim=2)', TensorField(None, "int8", 2)),
    ("R.Tensor(ndim=0)", TensorField(None, None, 0)),
    ("R.Shape", ShapeField()),
    ("R.Shape([])", ShapeField(())),
    ("R.Shape([2, 3])", ShapeField((2, 3))),
    ("R.Shape(ndim=3)", ShapeField(None, 3)),
    ('R.Prim("bool")', PrimField("bool")),
    ("R.Tuple", TupleField()),
    ("R.Tuple(A)", TupleField((DataField("A"),))),
    ("R.Ref(R.Any)", RefField(ANY)),
    ("R.Callable", FunctionField()),
    ("R.Callable(ret=A, purity=True)", FunctionField(None, DataField("A"), True)),
    ("R.Callable((), R.Any, False)", FunctionField((), ANY, False)),
    (
        'R.Callable((A, B), A, True, type_params=("A", "B"))',
        FunctionField((DataField("A"), DataField("B")), DataField("A"), True, ("A", "B")),
    ),
    ("Pair[A, List[R.Any]]", DataField("Pair", (DataField("A"), DataField("List", (ANY,))))),
    ('"odd name"[A]', DataField("odd name", (DataField("A"),))),
    (r'"\"\\\U0000000a"', DataField('"\\\n')),
]


@pytest.mark.parametrize(("text", "ty"), TYPES, ids=[text for text, _ in TYPES])
def test_the_text_of_a_type(text: str, ty: Any) -> None:
    assert str(ty) == text
    assert parse(text) == ty
    assert pickle.loads(pickle.dumps(ty)) == ty


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a name at character 0, got the end"),
        ("R.Tenser", "expected one of Any, Never, Tensor, .* at character 2, got 'Tenser'"),
        ("R.Any ", "expected the end at character 5, got ' '"),
        ("R.Tensor()", "expected 'ndim=' at character 9"),
        ("R.Tensor((3))", r"expected its printed form 'R.Tensor\(\(3,\)\)'"),
        ("R.Tensor((-3,))", "expected dimensions of at least 0"),
        ("R.Shape(ndim=-2)", "expected dimensions of at least 0"),
        ("R.Tensor((99999999999999999999,))", "expected an integer at character 10"),
        ("R.Tensor((9999999999999999999,))", "expected an integer of 64 bits before it"),
        ('R.Prim("float 32")', "expected '\"' at character"),
        ("R.Callable((A), A, True)", r"expected its printed form 'R.Callable\(\(A,\), A, True\)'"),
        ("R.Callable((A,), A, Yes)", "expected 'False'"),
        ("List[]", "expected its printed form 'List'"),
        ("List[A,B]", "expected ' '"),
        ('"List"', "expected its printed form 'List'"),
        (r'"\U00110000"', "is beyond U\\+10FFFF"),
        ("R.Ref(" * 70 + "A" + ")" * 70, f"nested more than {MOST_DEPTH} deep"),
    ],
)
def test_texts_that_are_no_types(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse(text)


def test_definitions_by_hand() -> None:
    data = DataType("List", ["A"], {"Nil": [], "Cons": ["A", DataField("List", (ANY,))]})
    assert data.Cons.fields == (DataField("A"), DataField("List", (ANY,)))
    assert data == pickle.loads(pickle.dumps(data))
    assert hash(data) == hash(copy.deepcopy(data))
    assert data != DataType("List", ["B"], {"Nil": [], "Cons": ["A", "List[R.Any]"]})
    assert data.constructor_of(data.Nil()) == data.Nil
    assert data.constructor_of(relaxvm.Adt("List.Nil", 1)) is None
    assert data.constructor_of((1,)) is None
    with pytest.raises(AttributeError, match="immutable"):
        data.name = "other"
    with pytest.raises(AttributeError, match="immutable"):
        data.Nil.tag = 2
    with pytest.raises(TypeError, match=r"List.Cons: expected 2 fields, got 1"):
        data.Cons(1)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1,), TypeError, "data type: expected a name, got int 1"),
        (("",), FormatError, "expected a name without NUL"),
        (("T", ["A", "A"]), FormatError, "'T': two type parameters have the same name"),
        (("T", [], {"C": ["R.Foo"]}), FormatError, "'T', constructor 'C': type 'R.Foo': expected"),
        (("T", [], {"C": [1]}), TypeError, "expected a type or its text, got int 1"),
    ],
)
def test_definitions_that_are_refused(
    arguments: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        DataType(*arguments)


def test_a_type_that_is_too_deep() -> None:
    ty: Any = ANY
    for _ in range(100_000):
        ty = RefField(ty)
    with pytest.raises(FormatError, match="nested more than 64 deep"):
        DataType("T", [], {"C": [ty]})


# From the compiler


def test_an_executable_has_the_types_of_its_module(
    module: IRModule, executable: VMExecutable
) -> None:
    assert executable.data_types == module.data_types == data_types(executable)
    assert [*executable.data_types] == ["List", "Tree"]
    assert executable.data_types["Tree"].Node.fields == (
        DataField("List", (DataField("Tree"),)),
        FunctionField((DataField("Tree"),), ANY, True),
        RefField(DataField("Tree")),
    )
    assert VirtualMachine(executable).data_types == module.data_types
    with pytest.raises(TypeError, match="expected an IRModule, VMExecutable or VirtualMachine"):
        data_types(3)


def test_signatures_are_those_of_the_program(executable: VMExecutable) -> None:
    shown = {name: str(ty) for name, ty in executable.signatures.items()}
    own = 'type_params=("A",))'
    assert shown == {
        "last": f"R.Callable((A, List[A]), A, True, {own}",
        "second": 'R.Callable((List[A], R.Tensor((3,), dtype="float32")), '
        f'R.Tensor((3,), dtype="float32"), True, {own}',
    }


def test_a_parameter_that_is_bound_takes_the_signature_with_it(module: IRModule) -> None:
    text = LISTS.replace("def second(xs: List[\"A\"], x:", "def main(xs: List[\"A\"], x:")
    bound = build(from_source(text), params={"x": np.zeros(3, np.float32)})
    assert str(bound.signatures["main"]).startswith("R.Callable((List[A],), R.Tensor(")


def test_what_only_the_compiler_knows_is_left_out() -> None:
    n, header, element = Var("n", "int64"), GlobalTypeVar("T"), TypeVar("T")
    deep: Any = TensorType((1,), "float32")
    for _ in range(100):
        deep = TupleType([deep])
    data = TypeData(header, [element], [ConstructorNode("C", [TensorType((n, 3)), deep], header)])
    found = IRModule(type_definitions={header: data}).data_types["T"]
    assert found.params == ("T_1",)  # not the name of a data type
    tensor, nested = found.C.fields
    assert tensor == TensorField(None, None, 2)
    assert str(nested).count("R.Tuple(") == MOST_DEPTH - 1
    assert "R.Any" in str(nested)


def test_programs_without_data_types_have_no_section() -> None:
    builder = BlockBuilder()
    x = Var("x", TensorType((3,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(x)
    assert build(builder.get()).sections == {}


# Forms


def forms(executable: VMExecutable, tmp_path: Path) -> list[VMExecutable]:
    path = tmp_path / "it"
    executable.save(path)
    by_python: dict[str, Any] = {}
    exec(executable.as_python(), by_python)
    return [
        relaxvm.load(path),
        relaxvm.load(path, mmap=True),
        relaxvm.loads(executable.to_bytes()),
        relaxvm.parse_text(executable.as_text(complete=True)),
        by_python["ex"],
        pickle.loads(pickle.dumps(executable)),
    ]


def test_all_forms_carry_data_types(executable: VMExecutable, tmp_path: Path) -> None:
    for other in forms(executable, tmp_path):
        assert other == executable
        assert other.data_types == executable.data_types
        assert other.signatures == executable.signatures
        assert other.to_bytes() == executable.to_bytes()
        assert other.as_text(complete=True) == executable.as_text(complete=True)
        assert other.as_python() == executable.as_python()


def test_the_python_form_with_words(
    executable: VMExecutable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pysource, "_builder_lines", lambda *args: None)
    names: dict[str, Any] = {}
    exec(executable.as_python(), names)
    assert names["ex"] == executable


def test_they_are_content(executable: VMExecutable) -> None:
    without = executable.with_section("data_types", None)
    assert without != executable
    assert without.data_types == without.signatures == {}


USE = """
import sys
import relaxvm
ex = relaxvm.load(sys.argv[1], limits=relaxvm.Limits.untrusted())
vm = relaxvm.VirtualMachine(ex, limits=relaxvm.Limits.untrusted())
xs = vm.data_types["List"].from_list(range(5))
print(vm["last"](7, xs), ex.data_types["List"].Cons)
print([name for name in sys.modules if name.startswith(("relaxvm.ir", "relaxvm.script"))])
"""


def test_another_process_makes_values(executable: VMExecutable, tmp_path: Path) -> None:
    executable.save(tmp_path / "it")
    out = run_script(USE, tmp_path / "it")
    assert out == "4 <Constructor List.Cons of 2 fields>\n[]\n"


LINES = """\
type List[A]
  constructor Nil()
  constructor Cons(A, List[A])
type Tree
  constructor Leaf(R.Tensor((3,), dtype="float32"), R.Prim("int64"), R.Shape(ndim=2))
  constructor Node(List[Tree], R.Callable((Tree,), R.Any, True), R.Ref(Tree))
"""


def test_the_lines_of_the_complete_text(executable: VMExecutable) -> None:
    text = executable.as_text(complete=True)
    assert LINES in text
    assert 'signature last = R.Callable((A, List[A]), A, True, type_params=("A",))' in text
    commented = text.replace("constructor Nil()", "constructor   Nil()   # the empty list")
    assert relaxvm.parse_text(commented) == executable


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("type Tree\n", "type List\n", r"<text>:\d+:6: data type 'List' is defined twice"),
        ("constructor Cons", "constructor Nil", r"constructor 'Nil' is defined twice"),
        ("type List[A]\n", "", r":15: a constructor before the first data type"),
        ("type List[A]\n", "type List[A\n", r"expected ',' at character 6, got the end"),
        ("List[Tree]", "List[Tree", r"expected ' ' at character|expected ','"),
        ("R.Ref(Tree)", "R.Foo(Tree)", r"expected one of Any, .*got 'Foo"),
        ("signature second", "signature last", r"the signature of 'last' is given twice"),
        ("signature second", "signature (", r"."),
        ("type List[A]\n", "type List[A, A]\n", r"two type parameters have the same name"),
    ],
)
def test_wrong_lines(executable: VMExecutable, old: str, new: str, message: str) -> None:
    text = executable.as_text(complete=True)
    assert old in text
    with pytest.raises((ParseError, VerifyError), match=message):
        relaxvm.parse_text(text.replace(old, new, 1))


def test_readable_forms(executable: VMExecutable) -> None:
    script = decompile(executable)
    definition = "\n".join(executable.data_types["Tree"].definition())
    assert definition.startswith("class Tree(R.Data):\n    Leaf = R.Constructor(R.Tensor((3,)")
    assert "\n".join(f"    {line}" for line in definition.split("\n")) in script
    assert 'def last(z: "A", xs: "List[A]") -> "A":' in script
    page = executable._repr_html_()
    assert "class List(R.Data[&quot;A&quot;]):" in page


def test_calls_of_constructors_are_shown_as_such(module: IRModule) -> None:
    text = LISTS + """
    @R.function
    def one(x: R.Any) -> List[R.Any]:
        return Cons(x, Nil())
"""
    assert "List.Cons(x, " in decompile(build(from_source(text)), "one")


# What is refused


def main_of(*types: DataType, **signatures: str) -> VMExecutable:
    builder = ExecBuilder()
    with builder.function("main", 1, ["x"]):
        builder.emit_ret(builder.r(0))
    return builder.get().with_section("data_types", DataTypes(types, signatures))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: main_of(DataType("T", [], {"C": ["U"]})),
         "T.C: 'U' is neither a data type nor a type parameter"),
        (lambda: main_of(DataType("T", ["A"], {"C": ["A[R.Any]"]})), "'A' is neither"),
        (lambda: main_of(DataType("T", ["A"], {"C": ["T"]})),
         "T: expected 1 type arguments, got 0"),
        (lambda: main_of(DataType("T"), main='R.Callable((A,), T, True, type_params=("B",))'),
         "signature of 'main': 'A' is neither"),
        (lambda: main_of(DataType("T"), main="R.Callable((T, T), T, True)"),
         "signature of 'main': expected 1 parameters, got 2"),
        (lambda: main_of().with_section("data_types", [1]), "expected a DataTypes, got list"),
    ],
)  # fmt: skip
def test_types_that_do_not_fit_the_program(make: Any, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        VirtualMachine(make())


def test_a_signature_that_is_no_function() -> None:
    for text in ("R.Any", "R.Callable"):
        with pytest.raises(FormatError, match="expected the type of a function"):
            DataTypes([], {"main": text})
    with pytest.raises(FormatError, match="there are two data types 'T'"):
        DataTypes([DataType("T"), DataType("T")])


def test_the_builder_takes_data_types() -> None:
    builder = ExecBuilder()
    data = DataType("T", [], {"C": []})
    builder.add_data_type(data)
    builder.add_data_type(DataType("T", [], {"C": []}))
    with pytest.raises(InternalError, match="'T': there is another one of this name"):
        builder.add_data_type(DataType("T"))
    with pytest.raises(TypeError, match="expected a DataType, got str 'T'"):
        builder.add_data_type("T")  # type: ignore[arg-type]
    builder.add_signature("main", "R.Callable((), T, True)")
    with pytest.raises(InternalError, match="signature of 'main': there is no such function"):
        builder.get()
    with builder.function("main"):
        builder.emit_ret(builder.void_arg())
    assert builder.get().signatures == {"main": FunctionField((), DataField("T"), True)}


def test_limits_hold_for_programs_in_memory() -> None:
    program = main_of(DataType("a long name", [], {"C": ["R.Tuple(R.Any, R.Any)"]}))
    for limit, bound in (("data_parts", 4), ("name_bytes", 10)):
        with pytest.raises(LimitError, match="above the limit") as caught:
            VirtualMachine(program, limits=Limits().but(**{limit: bound}))
        assert caught.value.limit == limit


def test_many_types_in_a_small_file_are_refused_before_they_are_made() -> None:
    wide = f"R.Tuple({', '.join(['A'] * 200_000)})"
    data = main_of(DataType("T", ["A"], {"C": [wide]})).to_bytes()
    assert relaxvm.loads(data).data_types["T"].C.num_fields == 1
    with pytest.raises(LimitError, match="parts of data types"):
        relaxvm.loads(data, limits=Limits.untrusted())


# TVM


def test_tvm_says_what_it_lacks(executable: VMExecutable, tmp_path: Path) -> None:
    tvm = pytest.importorskip("tvm")
    pytest.importorskip("tvm.relax")
    read = tvm.get_global_func("ffi.Module.load_from_bytes.relax.VMExecutable")
    found = read(executable.to_bytes())
    with pytest.raises(Exception, match=r"relaxvm\.builtin\.\w+"):
        tvm.relax.VirtualMachine(tvm.relax.VMExecutable(found), tvm.cpu())


def test_constructors_are_values() -> None:
    one, other = (Constructor("T.C", 0, [ANY]) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != Constructor("T.C", 1, [ANY])
    assert pickle.loads(pickle.dumps(one)) == one


# Constants


def list_of(*items: Any) -> Any:
    value = relaxvm.Adt("List.Nil", 0)
    for item in reversed(items):
        value = relaxvm.Adt("List.Cons", 1, (item, value))
    return value


LEAVES = (
    None, True, 1, 1.0, -0.0, float("nan"), -(2**63), "text", "", np.dtype("float16"),
    relaxvm.Shape(()), relaxvm.Shape((2, 3)), (), (1,), (1, ("a", (None,))),
    np.arange(3, dtype=np.float32), np.array(True), np.zeros((0, 2), np.int8),
)  # fmt: skip


def constants(*values: Any, types: tuple[DataType, ...] = ()) -> VMExecutable:
    """A program whose functions return the constants."""
    builder = ExecBuilder()
    for data in types:
        builder.add_data_type(data)
    for i, value in enumerate(values):
        with builder.function(f"f{i}"):
            builder.emit_call("vm.builtin.copy", [builder.convert_constant(value)], builder.r(0))
            builder.emit_ret(builder.r(0))
    return builder.get()


def same_value(a: Any, b: Any) -> bool:
    """Equality of kinds and bits."""
    from relaxvm.executable import constant_key

    return constant_key(a) == constant_key(b)


def test_constants_of_data_types_in_all_forms(tmp_path: Path) -> None:
    nested = list_of(list_of(*LEAVES), list_of(), relaxvm.Adt("Pair", 7, (1, 1)))
    program = constants(list_of(*LEAVES), nested, "text", list_of(*LEAVES))
    assert len(program.constants) == 3  # equal ones are one constant
    for other in (program, *forms(program, tmp_path)):
        assert other == program
        assert other.to_bytes() == program.to_bytes()
        assert other.as_text(complete=True) == program.as_text(complete=True)
        assert other.as_python() == program.as_python()
        vm = VirtualMachine(other)
        assert same_value(vm["f0"](), list_of(*LEAVES))
        assert same_value(vm["f1"](), nested)
        assert vm["f2"]() == "text"


def test_the_python_form_of_constants_with_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pysource, "_builder_lines", lambda *args: None)
    names: dict[str, Any] = {}
    program = constants(list_of(*LEAVES))
    exec(program.as_python(), names)
    assert names["ex"] == program


def test_large_tensors_of_constants_are_in_the_archive(tmp_path: Path) -> None:
    program = constants(list_of(np.arange(100.0)))
    names: dict[str, Any] = {}
    exec(program.as_python(npz=tmp_path / "weights.npz"), names)
    assert names["ex"] == program
    assert (tmp_path / "weights.npz").exists()


def test_deep_and_shared_constants() -> None:
    """Nothing recurses, and a part is written once."""
    long = list_of(*range(20_000))
    wide: Any = (1, "x")
    for _ in range(100):
        wide = (wide, wide)
    program = constants(long, relaxvm.Adt("Box", 0, (wide,)))
    data = program.to_bytes()
    assert len(data) < 1_500_000
    again = relaxvm.loads(data)
    assert again == program
    assert again.to_bytes() == data
    assert relaxvm.equal(VirtualMachine(again)["f0"](), long)
    assert relaxvm.parse_text(again.as_text(complete=True)) == program
    assert "Box" in decompile(again)
    assert "Box" in again.stats()


def test_the_pool_owns_what_is_in_its_constants() -> None:
    array = np.zeros(3, np.float32)
    program = constants(list_of(array))
    array[:] = 7
    inner = VirtualMachine(program)["f0"]().fields[0]
    assert inner.tolist() == [0, 0, 0]
    assert not inner.flags.writeable
    by_hand = program.but(constants=[list_of(np.zeros(3, np.float32))])
    assert by_hand == program
    assert not by_hand.constants[0].fields[0].flags.writeable


def test_tensors_in_constants_of_a_mapped_file_are_aligned(tmp_path: Path) -> None:
    program = constants("odd", list_of("x", np.arange(5, dtype=np.float64)))
    program.save(tmp_path / "it")
    loaded = relaxvm.load(tmp_path / "it", mmap=True)
    assert loaded == program
    array = loaded.constants[1].fields[1].fields[0]
    assert array.ctypes.data % 64 == 0


@pytest.mark.parametrize(
    "item", [relaxvm.Ref(1), object(), 2**70, np.array([object()]), print, {"a": 1}]
)
def test_what_a_constant_cannot_contain(item: Any) -> None:
    with pytest.raises(TypeError, match=r"constant: List.Cons contains .*; expected arrays"):
        constants(list_of(1, item))
    program = constants("x", list_of(2))
    program = program.but(constants=["x", list_of(item)])
    with pytest.raises(FormatError):
        program.to_bytes()
    if not isinstance(item, int):
        with pytest.raises(FormatError):
            program.as_text(complete=True)
    if not isinstance(item, (int, np.ndarray)):  # which may be constants in memory
        with pytest.raises(VerifyError, match="constant 1: expected an array, Shape, str"):
            VirtualMachine(program)


LIST = DataType("List", ["A"], {"Nil": [], "Cons": ["A", "List[A]"]})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (relaxvm.Adt("List.Cone", 1, (1,)), "List has no constructor List.Cone"),
        (relaxvm.Adt("List.Cons", 0, (1, 2)), "expected tag 1 and 2 fields, got tag 0 and 2"),
        (list_of(relaxvm.Adt("List.Nil", 0, (1,))), "expected tag 0 and 0 fields, got tag 0 and 1"),
    ],
)
def test_constants_fit_the_definitions(value: Any, message: str) -> None:
    assert VirtualMachine(constants(value))["f0"]() == value
    with pytest.raises(VerifyError, match=f"constant 0: .*{message}"):
        VirtualMachine(constants(value, types=(LIST,)))


def test_a_program_with_constants_names_a_builtin() -> None:
    program = constants(list_of(1))
    code = ExecBuilder()
    with code.function("f0"):
        code.emit_ret(code.void_arg())
    without = code.get().but(constants=program.constants)
    with pytest.raises(VerifyError, match=r"the packed function relaxvm\.builtin\.make_adt"):
        VirtualMachine(without)


def test_tvm_refuses_programs_with_constants() -> None:
    tvm = pytest.importorskip("tvm")
    pytest.importorskip("tvm.relax")
    read = tvm.get_global_func("ffi.Module.load_from_bytes.relax.VMExecutable")
    found = read(constants(list_of(1)).to_bytes())
    with pytest.raises(Exception, match=r"relaxvm\.builtin\.make_adt"):
        tvm.relax.VirtualMachine(tvm.relax.VMExecutable(found), tvm.cpu())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("v[0] =", "v[1] =", r"expected v\[0\], got v\[1\]"),
        ("[v[0], v[1]]", "[v[0], v[2]]", r"v\[2\] is not defined before this line"),
        ("c[0] = v[2]", "c[0] = v[0]", r"expected a value of a data type, got int 1"),
        ('"List.Cons" 1', '"List.Cons" -1', "tag"),
        ('data "List.Nil" 0 []', 'dato "List.Nil" 0 []', "unknown kind of constant 'dato'"),
        ("c[0] = v[2]", "c[0] = v[9]", r"v\[9\] is not defined"),
    ],
)
def test_wrong_lines_of_constants(old: str, new: str, message: str) -> None:
    text = constants(list_of(1)).as_text(complete=True)
    assert old in text
    with pytest.raises(ParseError, match=message):
        relaxvm.parse_text(text.replace(old, new, 1))


CONSTANTS = """
@I.ir_module
class Module:
    class List(R.Data["A"]):
        Nil = R.Constructor()
        Cons = R.Constructor("A", "List[A]")

    @R.function
    def main(x: R.Tensor((2,), "float32")):
        one = List.Cons(R.const([1.0, 2.0], "float32"), List.Nil())
        two = List.Cons(R.const([3.0, 4.0], "float32"), one)
        return (List.Cons(x, two), one)
"""


def test_values_that_are_made_of_constants_are_constants(tmp_path: Path) -> None:
    program = build(from_source(CONSTANTS))
    made = [value for value in program.constants if isinstance(value, relaxvm.Adt)]
    assert len(made) == 2
    assert program.as_text().count("call  relaxvm.builtin.make_adt") == 1
    x, one, two = (np.array(v, np.float32) for v in ([0, 0], [1, 2], [3, 4]))
    for other in (program, *forms(program, tmp_path)):
        assert other == program
        whole, end = VirtualMachine(other)["main"](x)
        assert relaxvm.equal(whole, list_of(x, two, one))
        assert relaxvm.equal(end, list_of(one))


def test_large_values_are_made_by_the_program() -> None:
    lines = ["v0 = List.Nil()"]
    lines += [f"v{i + 1} = List.Cons(R.const({i}.0, 'float32'), v{i})" for i in range(600)]
    head, body = CONSTANTS.split("        one = ")[0], "\n".join(f"        {x}" for x in lines)
    program = build(from_source(f"{head}{body}\n        return v600\n"))
    assert program.as_text().count("call  relaxvm.builtin.make_adt") > 100
    found = VirtualMachine(program)["main"](np.zeros(2, np.float32))
    assert program.data_types["List"].to_list(found) == [*map(np.float32, range(599, -1, -1))]


def test_a_value_of_a_data_type_is_not_bound(module: IRModule) -> None:
    text = LISTS.replace("def last(z", "def main(z")
    text = text.replace("Module.last", "Module.main")
    with pytest.raises(TypeError, match="'xs': a value of a data type cannot be bound"):
        build(from_source(text), params={"xs": list_of(1)})
