"""Wrong scripts: each is rejected with a message that says where, what, and what to do."""

from __future__ import annotations

import re
from textwrap import dedent, indent
from typing import NamedTuple

import pytest

from relaxvm.errors import DiagnosticError
from relaxvm.script import from_source


class Mistake(NamedTuple):
    """A body of a function f(x: float32[n, 4], c: bool, k: int64), or a whole text; the text that
    the carets underline; and the message."""

    text: str
    marked: str
    message: str


HEAD = """@R.function
def f(x: R.Tensor(("n", 4), "float32"), c: R.Tensor((), "bool"), k: T.int64):
"""

BODIES = [
    Mistake("return y", "y", "undefined variable 'y'"),
    Mistake("return R.ad(x, x)", "R.ad", "there is no operator 'ad'; did you mean 'add'"),
    Mistake("return R.nn.sofmax(x)", "R.nn.sofmax", "'nn.sofmax'; did you mean 'nn.softmax'"),
    Mistake("lenght = x\nreturn length", "length", "'length'; did you mean 'lenght'"),
    Mistake("return R.add(x)", "R.add(x)", "relax.add: argument 'x2' is missing"),
    Mistake("return R.add(x, x, x)", "R.add(x, x, x)", "expected at most 2 arguments, got 3"),
    Mistake("return R.add(x, R.const([1, 2, 3], 'float32'))",
            "R.add(x, R.const([1, 2, 3], 'float32'))", "relax.add:"),
    Mistake("return x[0]", "x[0]", "only tuples can"),
    Mistake("t = (x, c)\nreturn t[2]", "t[2]", "tuple t has 2 elements, index is 2"),
    Mistake("t = (x, c)\nreturn t[c]", "t[c]", "index of tuple t: expected an int"),
    Mistake("t = (x, c)\nreturn t['0']", "t['0']", "expected an int, got '0'"),
    Mistake("t = (x, c)\nreturn t[0.5]", "t[0.5]", "expected an int, got 0.5"),
    Mistake("a, b = x\nreturn a", "x", "cannot unpack a value of type R.Tensor"),
    Mistake("a, b, d = (x, c)\nreturn a", "a, b, d", "3 variables for 2 values"),
    Mistake("a, *b = (x, c)\nreturn a", "*b", "a starred variable is not supported"),
    Mistake("a = b = x\nreturn a", "a = b = x", "assign to one variable at a time"),
    Mistake("x.y = x\nreturn x", "x.y", "only variables can be assigned to"),
    Mistake("R.add(x, x)\nreturn x", "R.add(x, x)", "is not used; assign it to a variable, or"),
    Mistake("x.ty\nreturn x", "x.ty", "the value of the statement, TensorType, has no effect"),
    Mistake("y = x", "y = x", "function 'f' does not end with a return"),
    Mistake("return None", "return None", "expected a value after return; an empty tuple is R.tu"),
    Mistake("return", "return", "expected a value after return; an empty tuple is R.tuple()"),
    Mistake("return x\ny = x", "return x", "return must be the last statement of a function"),
    Mistake("y: R.Tensor((3, 3), 'float32') = R.add(x, x)\nreturn y", "R.Tensor((3, 3), 'float32')",
            "which is never R.Tensor((3, 3)"),
    Mistake("y: R.Tensor((n, n), 'float32') = R.add(x, x)\nreturn y", "R.Tensor((n, n), 'float32')",
            'write R.match_cast(value, R.Tensor((n, n), dtype="float32")) to check it at run'),
    Mistake("y: 3 = x\nreturn y", "3",
            "expected a type such as R.Tensor((2, 3), \"float32\"), got"),
    Mistake("y: R.Tensor(('m',), 'float32') = x\nreturn y", "R.Tensor(('m',), 'float32')",
            "dimension 'm': 'm' is not defined"),
    Mistake("a, b: R.Tensor = (x, x)\nreturn a", "a, b: R.Tensor = (x, x)",
            "only single target (not tuple) can be annotated"),
    Mistake("y: R.Any\nreturn x", "y: R.Any", "'y' has a type but no value; that is allowed only"),
    Mistake("y: R.Any\nif c:\n    z = x\nelse:\n    z = x\nreturn z", "y: R.Any",
            "'y' has a type but no value"),
    Mistake("y = R.match_cast(x, R.Tensor((2,), 'float32'))\nreturn y",
            "R.match_cast(x, R.Tensor((2,), 'float32'))", "is never R.Tensor((2,)"),
    Mistake("R.match_cast(x, R.Tensor)\nreturn x", "R.match_cast(x, R.Tensor)",
            "assign the result of R.match_cast to a variable"),
    Mistake("y: R.Any = R.match_cast(x, R.Tensor(ndim=2))\nreturn y", "R.Any",
            "the match_cast returns R.Tensor(ndim=2), not R.Any"),
    Mistake("y = R.match_cast(x, 3)\nreturn y", "R.match_cast(x, 3)", "expected a type such as"),
    Mistake("if c:\n    y = x\nreturn y", "if c:", "an if needs an else"),
    Mistake("if c:\n    y = x\nelse:\n    z = x\nreturn y", "z = x",
            "the same variable; the first defines 'y', this one 'z'"),
    Mistake("if x:\n    y = x\nelse:\n    y = x\nreturn y", "x",
            "of an If is of type R.Tensor((n, 4)"),
    Mistake("if c:\n    a = x\n    y = a\nelse:\n    a = x\n    y = a\nreturn a", "a",
            "it was defined in a branch of the if at line 3, which defines 'y' alone"),
    Mistake("if c:\n    return x\nelse:\n    return x", "return x",
            "assign it to one variable in both branches and return that after the if"),
    Mistake("if c:\n    pass\nelse:\n    y = x\nreturn y", "pass",
            "a branch must end with an assignment to the variable used after the if"),
    Mistake("if c:\n    R.add(x, x)\nelse:\n    R.print(x)\nreturn x", "R.add(x, x)",
            "is not used; assign it"),
    Mistake("if c:\n    for i in x:\n        pass\nelse:\n    y = x\nreturn y", "for i in x:",
            "write a function that calls itself"),
    Mistake("for i in range(3):\n    y = x\nreturn y", "for i in range(3):",
            "a loop is not part of the language; write a function that calls itself"),
    Mistake("while c:\n    pass\nreturn x", "while c:", "a loop is not part of the language"),
    Mistake("assert c\nreturn x", "assert c", "write R.assert_op(condition, format=message)"),
    Mistake("import os\nreturn x", "import os", "import outside of the script"),
    Mistake("del x\nreturn c", "del x", "memory is freed after the last use"),
    Mistake("try:\n    y = x\nfinally:\n    pass\nreturn x", "try:", "errors cannot be caught"),
    Mistake("global y\nreturn x", "global y", "statement Global is not part of the language"),
    Mistake("with x:\n    pass\nreturn x", "x", "expected: with R.dataflow():"),
    Mistake("with R.dataflow() as d:\n    pass\nreturn x", "R.dataflow()",
            "expected: with R.dataflow():"),
    Mistake("with R.dataflow():\n    a = R.add(x, x)\nreturn a", "a",
            "in the dataflow block at line 3, which does not output it"),
    Mistake("with R.dataflow():\n    a = R.add(x, x)\n    R.output(b)\nreturn a", "R.output(b)",
            "R.output: 'b' is not defined in this block"),
    Mistake("with R.dataflow():\n    R.output(x)\nreturn x", "R.output(x)",
            "R.output: 'x' is not defined in this block"),
    Mistake("with R.dataflow():\n    a = x\n    R.output(a)\n    b = a\nreturn a", "R.output(a)",
            "R.output must be the last statement of a dataflow block"),
    Mistake("with R.dataflow():\n    a = x\n    R.output(R.add(a, a))\nreturn x", "R.add(a, a)",
            "R.output: expected variables of the dataflow block"),
    Mistake("with R.dataflow():\n    if c:\n        a = x\n    else:\n        a = x\nreturn x",
            "if c:", "an if cannot be in a dataflow block"),
    Mistake("with R.dataflow():\n    with R.dataflow():\n        a = x\nreturn x",
            "with R.dataflow():", "a dataflow block cannot be inside of another"),
    Mistake("if c:\n    return x\nelse:\n    y = x\nreturn x", "return x",
            "return must be the last statement"),
    Mistake("x = T.int64()\nreturn x", "x", "a symbolic variable needs another name"),
    Mistake("n = T.int64()\nif c:\n    n = T.int32()\n    y = x\nelse:\n    y = x\nreturn y", "n",
            'is of type R.Prim("int64"); it cannot also be'),
    Mistake("y = k if c else k\nreturn y", "c", "cannot be a condition here; write an if"),
    Mistake("return x == x", "x == x", "== and != compare scalars; write R.equal for tensors"),
    Mistake("return x @ x", "x @ x", "write R.matmul"),
    Mistake("return R.zeros(x.shape, 'float32')", "x.shape",
            "has no attribute 'shape'; its type has, as in x.ty.shape"),
    Mistake("y = [await x]\nreturn x", "await x", "'await' outside function"),
    Mistake("return R.add(**x)", "x", "x cannot be iterated over"),
    Mistake("y = {[1]: x}\nreturn x", "[1]", "unhashable type: 'list'"),
    Mistake("y = 1 if R.const([1, 2]).data else 2\nreturn x", "R.const([1, 2]).data",
            "truth value of an array"),
    Mistake("return k / k", "k / k", "division of integers"),
    Mistake("return not k", "not k", "expected a bool scalar"),
    Mistake("return f(x, c)", "f(x, c)", "f"),
    Mistake("@R.function\ndef g(y: R.Tensor):\n    return y\nreturn g(x, x)", "g(x, x)",
            "g: expected 1 argument, got 2"),
    Mistake("@R.function\ndef g(y: R.Tensor((3,))):\n    return y\nreturn g(x)", "g(x)",
            'of type R.Tensor((n, 4), dtype="float32"), expected R.Tensor((3,))'),
    Mistake("@R.function\ndef g(y: R.Tensor):\n    return y\nreturn g(y=x)", "g(y=x)",
            "expected arguments by position, got y="),
    Mistake("def g(y: R.Tensor):\n    return y\nreturn x", "def g(y: R.Tensor):",
            "function 'g': expected the decorator @R.function or @T.prim_func"),
    Mistake("@T.prim_func\ndef g(y: T.handle):\n    T.evaluate(0)\nreturn x", "def g(y: T.handle):",
            "a PrimFunc cannot be inside of a function"),
    Mistake("return R.call_tir(x, (x,), out_ty=5)", "R.call_tir(x, (x,), out_ty=5)",
            "expected a type such as"),
    Mistake("return R.call_dps_packed('f', (x,), R.Tensor(ndim=2))",
            "R.call_dps_packed('f', (x,), R.Tensor(ndim=2))", "a tensor type with shape"),
    Mistake("return R.call_tir('f', (x,), R.Tensor((2,)))", "R.call_tir('f', (x,), R.Tensor((2,)))",
            "expected a PrimFunc of the module, got str 'f'; R.call_dps_packed calls a packed"),
    Mistake("return R.call_pure_packed(x, ty_args=R.Any)", "R.call_pure_packed(x, ty_args=R.Any)",
            "expected a packed function or its name, got x of type R.Tensor((n, 4)"),
    Mistake("return R.shape([x])", "R.shape([x])", "a dimension is an integer scalar"),
    Mistake("return R.const('a')", "R.const('a')", "const: expected numbers"),
    Mistake("y = [1 // 0 for i in range(2)]\nreturn x", "[1 // 0 for i in range(2)]",
            "ZeroDivisionError: integer division or modulo by zero"),
    Mistake("return R.to_vdevice(x, 'llvm:3')", "R.to_vdevice(x, 'llvm:3')",
            "vdevice 'llvm:3': the module has 0 of target 'llvm'"),
    Mistake("return R.print", "return R.print", "expected an expression, a number, a string"),
    Mistake("y = R.call_packed('f', x)\nreturn x", "y = R.call_packed('f', x)", "pure"),
]  # fmt: skip

TEXTS = [
    Mistake("@R.function\ndef f(x):\n    return x", "x",
            "parameter 'x' has no type; expected as in x:"),
    Mistake("@R.function\ndef f(x: 5):\n    return x", "5", "expected a type such as"),
    Mistake("@R.function\ndef f(x: R.Tensor = 3):\n    return x", "3", "cannot have a default"),
    Mistake("@R.function\ndef f(*x: R.Tensor):\n    return x", "x: R.Tensor",
            "positional parameters"),
    Mistake("@R.function\ndef f(*, x: R.Tensor):\n    return x", "x: R.Tensor",
            "only positional parameters"),
    Mistake("@R.function\ndef f(x: R.Tensor(('n * m',))):\n    return x", "R.Tensor(('n * m',))",
            "'n' is not defined; declare it by a dimension of a parameter that is \"n\" alone"),
    Mistake("@R.function\ndef f(x: R.Tensor(('n', 'n +'))):\n    return x",
            "R.Tensor(('n', 'n +'))",
            "dimension 'n +' is not an expression"),
    Mistake("@R.function\ndef f(x: R.Tensor, y: R.Tensor(('x',))):\n    return x",
            "R.Tensor(('x',))",
            "dimension 'x' is of type R.Tensor"),
    Mistake("@R.function\ndef f(x: R.Tensor(5)):\n    return x", "R.Tensor(5)",
            "R.Tensor: shape: expected a tuple of dimensions, got"),
    Mistake("@R.function\ndef f(x: R.Tensor((2,), 5)):\n    return x", "R.Tensor((2,), 5)",
            "R.Tensor: dtype: expected a string"),
    Mistake("@R.function\ndef f(x: R.Prim()):\n    return x", "R.Prim()",
            "missing 1 required positional argument: 'dtype'"),
    Mistake("@R.function\ndef f(x: R.Tensor((2,), vdevice='gpu')):\n    return x",
            "R.Tensor((2,), vdevice='gpu')", "vdevice 'gpu': the module has 0 of target"),
    Mistake("@R.function\ndef f(x: R.Callable((R.Any,), derive_func='g')):\n    return x",
            "R.Callable((R.Any,), derive_func='g')", "expected derive_func, or params and ret"),
    Mistake("@R.function\ndef f(x: R.Tensor((2,))) -> R.Shape:\n    return x", "R.Shape",
            "function 'f' is declared to return R.Shape, but its body is of type R.Tensor((2,))"),
    Mistake("@R.function\ndef f(x: R.Tensor(('n',))) -> R.Tensor(('m',)):\n    return x",
            "R.Tensor(('m',))", "the symbolic variable m is not defined here"),
    Mistake("@R.function(priv=True)\ndef f(x: R.Tensor):\n    return x", "True",
            "unknown option 'priv'; did you mean 'private'?"),
    Mistake("@R.function(True)\ndef f(x: R.Tensor):\n    return x", "True",
            "expected options by keyword"),
    Mistake("def f(x: R.Tensor):\n    return x", "def f(x: R.Tensor):", "expected the decorator"),
    Mistake("@len\ndef f(x: R.Tensor):\n    return x", "len", "expected the decorator @R.function"),
    Mistake("x = 5", "x = 5", "expected one class or function, decorated as a script"),
    Mistake("import numpy", "import numpy", "pass 'numpy' in extra_vars"),
    Mistake("from relaxvm.script import nothing", "from relaxvm.script import nothing",
            "imports are not followed; pass 'nothing' in extra_vars"),
    Mistake("@R.function\ndef f(x: R.Tensor)\n    return x", "",
            "expected ':'; a script is Python"),
    Mistake("", "", "expected one class or function, got 0"),
    Mistake("@I.ir_module\nclass M:\n    x = 5", "x = 5",
            "expected a function, a data type, I.module_attrs(...)"),
    Mistake("@I.ir_module\nclass M:\n    class N: pass", "class N: pass", "expected a function"),
    Mistake(
        "@I.ir_module\nclass M:\n    @R.function\n    def f(x: R.Tensor):\n        return M.g(x)",
        "M.g", "the module has no function 'g'"),
    Mistake(
        "@I.ir_module\nclass M:\n    @R.function\n    def f(x: R.Tensor):\n        return x\n"
        "    @R.function\n    def f(x: R.Tensor):\n        return x",
        "def f(x: R.Tensor):", "the module already has a function 'f'"),
]  # fmt: skip


def refused(text: str) -> str:
    with pytest.raises(DiagnosticError) as caught:
        from_source(text)
    return str(caught.value)


def check(text: str, mistake: Mistake) -> None:
    message = refused(text)
    first, *rest = message.splitlines()
    place = re.match(r"<script>:(\d+):(\d+): ", first)
    assert place is not None, message
    assert mistake.message in first, message
    line = text.split("\n")[int(place[1]) - 1]
    start = int(place[2]) - 1
    assert line[start:].startswith(mistake.marked), message
    if not mistake.marked:
        return
    shown, carets = rest[:2]
    assert shown == f"{int(place[1]):5} | {line}"[: len(shown)]
    assert carets.startswith("      | ")
    indentation = len(carets) - len(carets.lstrip(" |"))
    assert carets[indentation:] == "^" * (len(carets) - indentation)
    assert shown[indentation:].startswith(mistake.marked[: len(carets) - indentation])


@pytest.mark.parametrize("mistake", BODIES, ids=[m.text.replace("\n", "; ") for m in BODIES])
def test_body(mistake: Mistake) -> None:
    check(HEAD + indent(mistake.text, "    "), mistake)


@pytest.mark.parametrize("mistake", TEXTS, ids=[m.text.replace("\n", "; ") for m in TEXTS])
def test_text(mistake: Mistake) -> None:
    check(mistake.text, mistake)


def test_there_are_many_mistakes() -> None:
    assert len(BODIES) + len(TEXTS) >= 90


def test_a_message_in_full() -> None:
    text = """
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        y = R.add(x, x)
        return R.multiply(y, z)
    """
    assert refused(dedent(text)).splitlines() == [
        "<script>:5:26: undefined variable 'z'",
        "    5 |     return R.multiply(y, z)",
        "      |                          ^",
    ]


def test_columns_are_characters() -> None:
    text = '@R.function\ndef f(x: R.Tensor):\n    é, y = "ü", z\n    return x'
    assert refused(text).startswith("<script>:3:17: undefined variable 'z'")


def test_the_cause_is_kept() -> None:
    with pytest.raises(DiagnosticError) as caught:
        from_source("@R.function\ndef f(x: R.Tensor):\n    return R.add(x, fail())",
                    {"fail": lambda: {}["key"]})  # fmt: skip
    assert "KeyError: 'key'" in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)


def test_all_that_is_not_well_formed_is_named() -> None:
    text = """
    @R.function
    def f(x: R.Tensor):
        y = R.call_packed("f", x)
        z = R.call_packed("g", x)
        return y, z
    """
    message = refused(dedent(text))
    assert message.startswith("<script>:4:5: ")
    assert "check_well_formed=False lets it pass" in message
    assert message.count("pure_function_has_no_effect") == 2
    assert from_source(dedent(text), check_well_formed=False) is not None
