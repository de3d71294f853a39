"""Cases of builtins: one table with results and errors of every registered builtin.

A line is ``arguments | result``, ``arguments | result | condition`` or
``arguments | Error: words``, as Python expressions over the names of `names`.  A condition may use
`a`, the arguments afterwards, `got`, the result, and `printed`, the standard output.  The result
"any" is checked only by the condition.

**To add a builtin**, add an entry: its name, a line for its result, and a line for each error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxvm import Adt, ExecBuilder, Ref, Shape, VirtualMachine, get_func, list_funcs
from relaxvm.kernels import PREFIX as KERNEL_PREFIX
from relaxvm.registry import GLOBAL, RESULT_PREFIX

__all__ = ["CASES", "names", "own_builtins"]


def own_builtins() -> set[str]:
    """Return the names of relaxvm's own builtins, not of those that other tests register, and not
    of kernels: the result forms of kernels call them, so what is tested of those holds for them."""
    ours = {name for name in list_funcs() if GLOBAL.get(name).__module__.startswith("relaxvm.")}
    return {name for name in ours if not name.startswith((KERNEL_PREFIX, RESULT_PREFIX))}


CASES: dict[str, str] = {
    # Relay's instruction set
    "relaxvm.builtin.fatal": """
("Fatal at pc 3",) | MatchError: Fatal at pc 3
(3,) | TypeError: fatal: message
""",
    "relaxvm.builtin.int_from": """
(7,) | 7
(np.array(-3),) | -3
(np.array(True),) | 1
(zeros(1),) | TypeError: int_from: expected an int, or an integer or bool tensor of rank 0
""",
    "relaxvm.builtin.scalar_equal": """
(np.array(2), 2) | True
(2, np.array(3, np.int8)) | False
("a", 2) | TypeError: scalar_equal: x
(2, None) | TypeError: scalar_equal: y
""",
    "relaxvm.builtin.shape_from": """
(np.array([2, 3]),) | Shape([2, 3])
(np.array(16),) | Shape([16])
(Shape([4]),) | Shape([4])
(np.array([2, -3]),) | ValueError: shape_from: expected dimensions >= 0, got -3
(zeros(1),) | TypeError: shape_from: expected an integer tensor of rank 1
""",
    # Numbers out of tensors
    "relaxvm.builtin.number_from": """
(f32(1.5),) | 1.5
(np.array(3),) | 3
(f32(1, 2),) | TypeError: number_from: expected a tensor of numbers with one element
(3,) | TypeError: number_from
""",
    "relaxvm.builtin.int_within": """
(i64(-2), -3, 2, "axis") | -2
(i64(3), -3, 2, "axis") | ValueError: axis: expected a number from -3 to 2, got 3
(f32(1), 0, 2, "k") | TypeError: k: expected an integer tensor with one element
""",
    "relaxvm.builtin.within": """
(3, 1, 3, "x: axis 0") | None
(4, 1, 3, "x: axis 0") | ValueError: x: axis 0: expected 1 to 3, got 4
(0, 1, (1 << 63) - 1, "n") | ValueError: n: expected at least 1, got 0
(f32(1), 0, 2, "k") | TypeError: k
""",
    "relaxvm.builtin.indices_within": """
(i64(0, 2), 0, 3, "index") | i64(0, 2)
(i64(0, -1), 0, 3, "index") | IndexError: index: expected numbers from 0 to 2, got -1
(i64(3), 0, 3, "index") | IndexError: index: expected numbers from 0 to 2, got 3
(i64(-1, 7), 0, (1 << 63) - 1, "x") | IndexError: x: expected at least 0, got -1
(f32(1), 0, 2, "index") | TypeError: index: expected an integer tensor
(i64(1), 0, 2, 3) | TypeError: indices_within: name
""",
    "relaxvm.builtin.nonzero_divisor": """
(i64(1, -2), "div") | i64(1, -2)
(i64(1, 0), "div") | ZeroDivisionError: div: division of integers by zero
(f32(1), "div") | TypeError: div: expected an integer tensor
""",
    # State
    "relaxvm.builtin.state_read": """
(vm, "count", f32(1)) | f32(1)
(3, "count", f32(1)) | TypeError: state_read: ctx: expected the VM state
(vm, 3, f32(1)) | TypeError: state_read: name
(vm, "count", 3) | TypeError: state_read: initial
""",
    "relaxvm.builtin.state_write": """
(vm, "count", f32(1)) | None | a[0].state["count"] is not a[2]
(3, "count", f32(1)) | TypeError: state_write: ctx: expected the VM state
(vm, "count", 3) | TypeError: state_write: value
""",
    "relaxvm.builtin.state_open": """
(vm, "sum", f32(1)) | f32(1) | got is a[0].state["sum"] and got is not a[2]
(3, "count", f32(1)) | TypeError: state_open: ctx: expected the VM state
(vm, "count", 3) | TypeError: state_open: initial
""",
    "relaxvm.builtin.cache_open": """
(vm, "k", f32(1), 0) | f32(1) | got is a[0].state["k"] and got is not a[2]
(3, "k", f32(1), 0) | TypeError: cache_open: ctx: expected the VM state
(vm, "k", 3, 0) | TypeError: cache_open: initial
(vm, "k", f32(1), 1) | ValueError: cache_open: axis: expected one of
""",
    "relaxvm.builtin.cache_extend": """
(vm, "k", f32(1), 0) | f32(1) | got is a[0].state["k"] and got is not a[2]
(3, "k", f32(1), 0) | TypeError: cache_extend: ctx: expected the VM state
(vm, "k", 3, 0) | TypeError: cache_extend: new
(vm, "k", f32(1), -2) | ValueError: cache_extend: axis: expected one of
""",
    "relaxvm.builtin.put": """
(f32(1, 2, 3), f32(7), (0, 1, 3, 1), ()) | f32(1, 7, 7) | got is a[0]
(zeros(2, 2), ones(2), (1, -1, 0, 0), ()) | any | got.tolist() == [[0, 1], [0, 1]]
(zeros(2, 3), ones(2, 1), (), (0, i64(2))) | any | got.tolist() == [[0, 0, 1], [0, 0, 1]]
(fixed(zeros(2)), f32(1), (), ()) | ValueError: put: x: expected a tensor to write to
(zeros(2), f32(1, 2, 3), (), ()) | ValueError: put: value
(zeros(2), f32(1), (1, 0, 1, 1), ()) | ValueError: put: parts: expected an axis
(zeros(2), f32(1), (0, 5, 0, 0), ()) | IndexError: index 5
(zeros(2), f32(1), (0, 5), ()) | ValueError: put: parts: expected four numbers
(zeros(2), f32(1), (), (i64(2),)) | IndexError: index 2
(3, f32(1), (), ()) | TypeError: put: x
""",
    "relaxvm.builtin.unshared": """
(f32(1), (f32(2),)) | f32(1) | got is a[0]
(f32(1), 3) | TypeError: unshared: others
(3, ()) | TypeError: unshared: x
""",
    "relaxvm.builtin.complex_from": """
(ones(3, 2),) | any | got.tolist() == [1 + 1j] * 3 and got.dtype == "complex64"
(np.ones((1, 2)),) | any | got.dtype == "complex128"
(ones(3),) | ValueError: complex_from: x: expected float32[..., 2]
(3,) | TypeError: complex_from
""",
    "relaxvm.builtin.assign": """
(f32(1, 2), f32(3, 4), "x") | None | a[0].tolist() == [3, 4]
(f32(1), f32(3, 4), "x") | ValueError: x: expected float32[1], got float32[2]
(f32(1), i64(3), "x") | ValueError: x: expected float32[1], got int64[1]
(np.broadcast_to(f32(1), (2,)), f32(3, 4), "x") | ValueError: x: the program changes this tensor
(3, f32(1), "x") | TypeError: x
""",
    # Structures
    "relaxvm.builtin.tree_leaves": """
('null', f32(1), "x") | (f32(1),)
('["tuple", [null, ["constant", 3]]]', (f32(1), 3), "x") | (f32(1),)
('["tuple", [null, ["constant", 3]]]', [f32(1), 3], "x") | (f32(1),)
('["dict", ["b", "a"], [null, ["int"]]]', {"a": 4, "b": f32(1)}, "x") | (f32(1), Shape([4]))
('["named", "P", ["real"], [null]]', 3.5, "x") | (3.5,)
('["record", "P", ["p", "q"], [null, ["constant", null]]]', {"p": f32(1)}, "x") | (f32(1),)
('["record", "P", ["p"], [null]]', (f32(1),), "x") | (f32(1),)
('["tuple", [null]]', f32(1), "x") | TypeError: x: expected a tuple of 1, got float32[1]
('["dict", ["a"], [["list", [null]]]]', {"a": ()}, "x") | TypeError: x['a']: expected a list of 1
('["dict", ["a"], [null]]', {"b": 3}, "x") | TypeError: x: expected a dict with the keys 'a'
('["dict", ["a"], [null]]', {}, "x") | TypeError: x: expected a dict with the keys 'a', got an empty
('["record", "P", ["p"], [null]]', 3, "x") | TypeError: x: expected P with a field 'p', got int 3
('["constant", true]', 1, "x") | TypeError: x: the program was exported for bool True, got int 1
('["constant"]', 1, "x") | ValueError: tree: str 'constant' is no kind of structure
('["constant", []]', 1, "x") | ValueError: tree: tuple of 0 is no constant
('["dict", ["a", "a"], [null, null]]', 1, "x") | ValueError: tree: expected a part for each name
('["dict", [[]], [null]]', 1, "x") | ValueError: tree: expected keys that are texts or numbers
('["named", "P", ["_p"], [null]]', 1, "x") | ValueError: tree: expected the names of fields
('["tuple", [' * 70 + ']]' * 70, 1, "x") | ValueError: tree: it is nested deeper than 64
('{', 1, "x") | ValueError: tree: expected JSON
("[" * 100000, 1, "x") | ValueError: tree: it is nested too deeply
("[" * 2000000, 1, "x") | ValueError: tree_leaves: a tree of 2000000 characters is too long
(3, 1, "x") | TypeError: tree_leaves: tree
""",
    "relaxvm.builtin.tree_from": """
('["list", [null, ["constant", "a"]]]', f32(1)) | any | got == [a[1], "a"]
('["dict", ["b", 3], [null, ["int"]]]', f32(1), 4) | any | got == {"b": a[1], 3: 4}
('["named", "m.P", ["p"], [null]]', 2) | any | (got.p, got[0], type(got).__name__) == (2, 2, "P")
('["record", "m.P", ["p"], [null]]', 2) | any | (got.p, got["p"], got[0]) == (2, 2, 2)
('["record", "m.P", ["p"], [null]]', 2) | any | repr(got) == "m.P(p=2)" and not hasattr(got, "q")
('["tuple", [null, null]]', 2) | ValueError: tree_from: the tree does not have 1 leaves
('null', 2, 3) | ValueError: tree_from: the tree does not have 2 leaves
(3,) | TypeError: tree_from: tree
""",
    # Strings
    "relaxvm.builtin.strings_from": """
("abcde", Shape([2, 0, 3])) | text("ab", "", "cde")
("abc", Shape([2])) | ValueError: strings_from: lengths: expected those of parts of 3 characters
(3, Shape([])) | TypeError: strings_from: text
""",
    "relaxvm.builtin.strings_indexed": """
(text("a", "b").reshape(2, 1),) | (text("a", "b"), np.array([[0], [1]]))
(np.array(["x"]),) | (text("x"), i64(0))
(f32(1),) | TypeError: strings_indexed: expected a tensor of strings
(np.array([None, 3]),) | TypeError: strings_indexed: expected strings, got None
""",
    "relaxvm.builtin.strings_take": """
(text("a", "b"), np.array([[1], [0], [1]])) | text("b", "a", "b").reshape(3, 1)
(text("a"), i64(1)) | IndexError: out of bounds
(text("a"), f32(1)) | TypeError: strings_take: expected a vector and a tensor of integers
""",
    "relaxvm.builtin.strings_merged": """
(text("a"), i64(0, 0), text("b", "c"), np.array(1)) | (text("a", "b", "c"), i64(0, 0), np.array(2))
(text("a"),) | ValueError: strings_merged: expected indices for each table
(text("a"), text("b")) | TypeError: strings_merged: expected a vector and a tensor of integers
""",
    "relaxvm.builtin.string_concat": """
(text("a", "b"), text("x")) | text("ax", "bx")
(text("a", "b"), text("x", "y", "z")) | ValueError: broadcast
(text("a"), f32(1)) | TypeError: string_concat: b
""",
    "relaxvm.builtin.string_equal": """
(text("a", "b"), text("b")) | np.array([False, True])
(text("a"), f32(1)) | TypeError: string_equal: b
""",
    "relaxvm.builtin.string_normalize": """
(text("The", "Cat"), "UPPER", 0, text("the")) | text("CAT")
(text("The", "Cat"), "LOWER", 1, text("the")) | text("the", "cat")
(text("a").reshape(1, 1), "NONE", 1, text("a")) | text("").reshape(1, 1)
(text("a"), "TITLE", 1, text()) | ValueError: string_normalize: case: expected LOWER, UPPER or NONE
(text("a", "b").reshape(2, 1), "NONE", 1, text()) | ValueError: a vector or a matrix of one row
""",
    "relaxvm.builtin.string_split": """
(text("a b", "c"), None, -1) | (text("a", "b", "c", "").reshape(2, 2), i64(2, 1))
(text("a,b,c"), ",", 1) | (text("a", "b,c").reshape(1, 2), i64(2))
(f32(1), None, -1) | TypeError: string_split: x
""",
    "relaxvm.builtin.regex_full_match": """
(text("ab", "abb", "b"), "ab+") | np.array([True, True, False])
(text("a"), "(") | ValueError: regular expression
(text("a"), "(?=a)a") | ValueError: regular expression: ASSERT is not supported
(f32(1), "a") | TypeError: regex_full_match: x
""",
    "relaxvm.builtin.number_to_string": """
(f32(1.5, np.nan, -np.inf),) | text("1.5", "NaN", "-INF")
(np.array([True]),) | text("1")
(text("a"),) | TypeError: number_to_string: expected numbers
""",
    "relaxvm.builtin.string_to_number": """
(text("1e3", "-INF", "nan"), "float32") | any | str(got.tolist()) == "[1000.0, -inf, nan]"
(text("-12"), "int8") | np.array([-12], "i1")
(text("300"), "int8") | ValueError: string_to_number: expected a int8, got
(text("1_0"), "int64") | ValueError: string_to_number: expected a int64
(text("1"), "object") | TypeError: string_to_number: dtype
""",
    "relaxvm.builtin.tf_idf": """
(i64(1, 2, 1), i64(1, 2, 1, 2), Shape([0, 2]), Shape([0, 1, 2]), 1, 2, 0, "TF", None) | f32(2, 1, 1)
(i64(1, 2, 1), i64(1, 2), Shape([0]), Shape([0, 1]), 1, 1 << 62, 0, "TF", None) | f32(2, 1)
(text("a", "b"), text("b"), Shape([0]), Shape([1]), 1, 1, 0, "TFIDF", f32(3)) | f32(0, 3)
(i64(1, 5, 2), i64(1, 2), Shape([0, 0]), Shape([0]), 2, 2, 1, "IDF", f32(4)) | f32(4)
(i64(1), i64(1, 2, 3), Shape([0, 0]), Shape([0]), 1, 2, 0, "TF", None) | ValueError: n-grams of 2
(i64(1), i64(1), Shape([0]), Shape([0, 1]), 1, 1, 0, "TF", None) | ValueError: expected 1 columns
(i64(1), i64(1), Shape([2]), Shape([0]), 1, 1, 0, "TF", None) | ValueError: tf_idf: starts
(i64(1), i64(1), Shape([0]), Shape([0]), 2, 1, 0, "TF", None) | ValueError: 1 <= least <= most
(f32(1), i64(1), Shape([0]), Shape([0]), 1, 1, 0, "TF", None) | TypeError: tf_idf: x
""",
    "relaxvm.builtin.tokenize": """
(text("ab c", "d"), text(" "), 1, 1, "#", 0) | any | got.tolist() == [["ab", "c"], ["d", "#"]]
(text("a1b"), text("[a-z]"), 0, 1, "", 1) | any | got.tolist() == [["\\x02", "a", "b", "\\x03"]]
(text("ab"), text()[:0], 1, 1, "", 0) | any | got.tolist() == [["a", "b"]]
(text("ab"), text("("), 1, 1, "", 0) | ValueError: regular expression: missing
(f32(1), text("a"), 1, 1, "", 0) | TypeError: tokenize: x
""",
    # Maps and classes
    "relaxvm.builtin.maps_from": """
(np.array([[1.5, 2]]), i64(7, 8)) | any | got == ({7: 1.5, 8: 2.0},)
(np.array([1, 2]), text("a", "b")) | any | got == ({"a": 1, "b": 2},)
(np.zeros((2, 3)), i64(1)) | ValueError: maps_from: expected a key for each of 3 columns, got 1
(np.zeros((1, 1, 1)), i64(1)) | TypeError: maps_from: x: expected a matrix of numbers
(np.zeros((1, 1)), f32(1)) | TypeError: maps_from: keys: expected a vector of integers or strings
""",
    "relaxvm.builtin.map_to_tensor": """
({2: 5, 1: 3.5}, "float32", -1) | np.array([[3.5, 5]], "f4")
({2: 5}, "int64", 4) | np.array([[0, 0, 5, 0]])
({2: 5}, "int64", 2) | ValueError: map_to_tensor: key 2: there are 2 columns
({2: 5}, "1" * 5000, 3) | TypeError: a name of 5000 characters is not a data type
({"a": 5}, "int64", 2) | TypeError: map_to_tensor: expected ints as keys
({2: "x"}, "float32", -1) | ValueError: map_to_tensor: str 'x' is no float32
({2: "x"}, "bfloat16", -1) | ValueError: map_to_tensor: str 'x' is no bfloat16
({0: "x"}, "int4", 1) | ValueError: map_to_tensor: str 'x' is no int4
(3, "int64", 2) | TypeError: map_to_tensor: expected a map
""",
    "relaxvm.builtin.map_vectorize": """
({"a": 5, "c": 6.5}, text("c", "b"), "float32") | np.array([[6.5, 0]], "f4")
({1: "x"}, i64(1, 2), "str") | any | got.tolist() == [["x", ""]]
({1: "x"}, i64(1), "int64") | ValueError: map_vectorize: str 'x' is no int64
([], i64(1), "int64") | TypeError: map_vectorize: expected a map
""",
    "relaxvm.builtin.pairwise_probabilities": """
(np.array([[[0, 0.75], [0.25, 0]]]),) | any | np.allclose(got, [[0.75, 0.25]], atol=1e-2)
(np.zeros((0, 3, 3)),) | np.zeros((0, 3))
(np.zeros((1, 2, 3)),) | TypeError: pairwise_probabilities: x: expected floats
(np.zeros((1, 2, 2), "i8"),) | TypeError: pairwise_probabilities: x: expected floats
""",
    # Sequences, chains and optional values
    "relaxvm.builtin.sequence_length": """
((1, 2, 3),) | np.array(3)
((),) | np.array(0)
(Shape([1]),) | TypeError: sequence_length
""",
    "relaxvm.builtin.sequence_at": """
(("a", "b"), 1) | "b"
(("a", "b"), np.array([-2])) | "a"
(("a",), 1) | IndexError: sequence_at: position 1: the sequence has 1 elements
(("a",), np.array([0, 0])) | TypeError: sequence_at: position: expected an integer tensor of one
(3, 0) | TypeError: sequence_at
""",
    "relaxvm.builtin.sequence_insert": """
((1, 2), 3, None) | (1, 2, 3)
((1, 2), 3, np.array(-2)) | (3, 1, 2)
((1, 2), 3, 2) | (1, 2, 3)
((1, 2), 3, 3) | IndexError: sequence_insert: position 3: the sequence has 2 elements
((1, 2), 3, 1.0) | TypeError: sequence_insert: position
""",
    "relaxvm.builtin.sequence_erase": """
((1, 2, 3), None) | (1, 2)
((1, 2, 3), -3) | (2, 3)
((), None) | IndexError: sequence_erase: position -1: the sequence has 0 elements
""",
    "relaxvm.builtin.sequence_concat": """
((f32(1), f32(2, 3)), 0, 0) | f32(1, 2, 3)
((f32(1, 2), f32(3, 4)), -1, 1) | np.array([[1, 3], [2, 4]], "f4")
((np.zeros((2, 0)), np.ones((2, 1))), 1, 0) | np.ones((2, 1))
((), 0, 0) | ValueError: sequence_concat: expected one or more elements, got none
((f32(1), f32(2, 3)), 0, 1) | ValueError: element 1: expected the data type and dimensions
((f32(1), i64(2)), 0, 0) | ValueError: element 1: expected the data type and dimensions
((f32(1), zeros(1, 1)), 0, 0) | ValueError: element 1: expected the data type and dimensions
((f32(1),), 1, 0) | IndexError: sequence_concat: axis 1: expected one of 1 axes
((f32(1), 3), 0, 0) | TypeError: sequence_concat: element 1
""",
    "relaxvm.builtin.sequence_split": """
(f32(1, 2, 3), None, 0, 1) | (f32(1), f32(2), f32(3))
(f32(1, 2), None, 0, 0) | (np.array(1, "f4"), np.array(2, "f4"))
(f32(1, 2, 3), np.array(2), -1, 0) | (f32(1, 2), f32(3))
(f32(1, 2, 3), i64(0, 3), 0, 0) | (f32(), f32(1, 2, 3))
(f32(1, 2, 3), i64(1, 3), 0, 0) | ValueError: expected lengths of parts of axis 0, of length 3
(f32(1, 2, 3), np.array(0), 0, 0) | ValueError: expected a length of 1 or more, got 0
(f32(1), f32(1), 0, 0) | TypeError: sequence_split: parts
(f32(1), None, 1, 0) | IndexError: sequence_split: axis 1: expected one of 1 axes
""",
    "relaxvm.builtin.chain_to_tuple": """
(None,) | ()
(((None, 1), 2),) | (1, 2)
((1,),) | TypeError: chain_to_tuple: expected None or a pair
""",
    "relaxvm.builtin.chain_to_tensor": """
(((None, f32(1)), f32(2)), 0, 0, "float32", Shape([1])) | np.array([[1], [2]], "f4")
(((None, f32(1)), f32(2)), 1, 1, "float32", Shape([1])) | np.array([[2, 1]], "f4")
(None, 1, 0, "int64", Shape([2, 3])) | np.zeros((2, 0, 3), "i8")
(None, 2, 0, "int64", Shape([2])) | IndexError: chain_to_tensor: axis 2: expected one of 2 axes
((None, 1), 0, 0, "int64", Shape([])) | TypeError: chain_to_tensor: value 0
(((None, f32(1)), f32(2, 3)), 0, 0, "float32", Shape([1])) | ValueError: chain_to_tensor: element 1
""",
    # Random numbers
    "relaxvm.builtin.random_generator": """
(3,) | any | repr(got) == "<RandomGenerator>"
() | any | repr(got) == "<RandomGenerator>"
("a",) | TypeError: random_generator: seed: expected a number
(float("inf"),) | ValueError: random_generator: seed: expected a finite number, got inf
""",
    "relaxvm.builtin.random_uniform": """
(generator(1), Shape([2]), 0, 1, "float64") | np.array([0.417022004702574, 0.7203244934421581])
(generator(1), (1, 0), -1.5, 1.0, "float32") | np.zeros((1, 0), "f4")
(generator(1), Shape([-2]), 0, 1, "float32") | ValueError: random_uniform: shape: expected
(generator(1), Shape([2]), 0, 1, "int32") | ValueError: random_uniform: dtype: expected floats
(3, Shape([2]), 0, 1, "float32") | TypeError: random_uniform: expected a generator, got int
(generator(1), Shape([2]), None, 1, "float32") | TypeError: random_uniform: low
""",
    "relaxvm.builtin.random_normal": """
(generator(1), Shape([2]), 0, 1, "float64") | np.array([1.6243453636632417, -0.6117564136500754])
(generator(1), Shape([-2]), 0, 1, "float32") | ValueError: random_normal: shape
(generator(1), Shape([2]), 0, 1, "bool") | ValueError: random_normal: dtype: expected floats
(None, Shape([2]), 0, 1, "float32") | TypeError: random_normal: expected a generator
(generator(1), Shape([2]), 0, "a", "float32") | TypeError: random_normal: scale
""",
    "relaxvm.builtin.random_multinomial": """
(generator(1), np.array([[-9e9, 0, -9e9]], "f4"), 3, "int64") | np.array([[1, 1, 1]])
(generator(1), zeros(2, 3), -1, "int64") | ValueError: random_multinomial: count: expected 0 or more
(generator(1), zeros(2, 3), 1, "int8") | ValueError: random_multinomial: dtype: expected int32 or
(generator(1), zeros(2, 0), 1, "int32") | ValueError: random_multinomial: logits: expected classes
(generator(1), zeros(3), 1, "int32") | TypeError: random_multinomial: logits: expected floats
(generator(1), np.full((1, 2), np.inf), 1, "int32") | ValueError: expected a finite number as the
(1, zeros(2, 3), 1, "int32") | TypeError: random_multinomial: expected a generator
""",
    "relaxvm.builtin.optional_has_element": """
(3,) | np.array(True)
(None,) | np.array(False)
() | TypeError: optional_has_element
""",
    "relaxvm.builtin.optional_get_element": """
(3,) | 3
(None,) | ValueError: optional_get_element: expected a value, got None
""",
    # Shapes and the heap
    "vm.builtin.alloc_heap": """
(3,) | heap(0, 0, 0)
(-1,) | InternalError: expected 0 to 2**31 - 1 slots, got -1
""",
    "vm.builtin.alloc_shape_heap": """
(2,) | heap(0, 0)
(vm, 2) | heap(0, 0)
("a",) | TypeError: alloc_shape_heap
""",
    "vm.builtin.store_shape": """
(Shape([4, 5]), heap(0, 0), 1, 0) | None | a[1].tolist() == [5, 4]
(Shape([4]), heap(0), 1) | IndexError: store_shape: heap slot 1: expected 0 to 0
""",
    "vm.builtin.load_shape": """
(heap(4, 5), 1, 0, 1) | Shape([5, 4, 5])
(heap(4), -1) | IndexError: load_shape: heap slot -1: expected 0 to 0
""",
    "vm.builtin.match_shape": """
(zeros(2, 3), heap(0, 3), 2, 1, 0, 3, 1, "ctx ") | None | a[1].tolist() == [2, 3]
(Shape([2]), None, 1, 0, 3, "ctx ") | RuntimeError: ctx match_shape: dimension 0
""",
    "vm.builtin.match_prim_value": """
(5, heap(0), 1, 0, "") | None | a[1].tolist() == [5]
(5, heap(4), 3, 0, "ctx ") | RuntimeError: expected 4 (heap slot 0), got 5
""",
    "vm.builtin.make_shape": """
(heap(2, 3), 3, 0, 7, 1, 1, 1, 0) | Shape([7, 3, 2])
(heap(2), -1) | InternalError: make_shape
""",
    "vm.builtin.make_prim_value": """
(heap(2, 3), 1, 1) | 3
(heap(2, 3), 0, 9) | 9
(heap(2), 1, 1) | IndexError: heap slot 1
""",
    "vm.builtin.shape_of": """
(zeros(2, 0, 3),) | Shape([2, 0, 3])
(5,) | TypeError: shape_of
""",
    "vm.builtin.tensor_to_shape": """
(i64(4, 5),) | Shape([4, 5])
(f32(1.0),) | InternalError: tensor_to_shape
""",
    "relaxvm.builtin.compute_shape": """
(heap(3, 4), program(("load", 0), ("load", 1), "mul", ("store", 0))) | None | a[0][0] == 12
(heap(3, 0), program(("load", 0), ("load", 1), "floordiv", ("store", 0))) | ZeroDivisionError:
""",
    "relaxvm.builtin.check_upper_bound": """
(heap(3), 0, 3, "n", None) | None
(heap(4), 0, 3, "n", None) | ValueError: 4
(heap(4), 0, 3, (1,), None) | TypeError: check_upper_bound: name
""",
    # Checks
    "vm.builtin.check_tensor_info": """
(f32(1.0), 1, np.dtype("f4"), None) | None
(f32(1.0), 2, np.dtype("f4"), "ctx ") | ValueError: ctx check_tensor_info
(f32(1.0), 1, np.dtype("i4"), "ctx ") | ValueError: ctx check_tensor_info
(5, 1, None, "ctx ") | TypeError: ctx check_tensor_info
""",
    "vm.builtin.check_shape_info": """
(Shape([1, 2]), 2, None) | None
(Shape([1, 2]), 3, "ctx ") | ValueError: ctx check_shape_info
(5, 1, "ctx ") | TypeError: ctx check_shape_info
""",
    "vm.builtin.check_tuple_info": """
((1, 2), 2, None) | None
((1, 2), 3, "ctx ") | ValueError: ctx check_tuple_info
(Shape([1]), 1, "ctx ") | TypeError: ctx check_tuple_info
""",
    "vm.builtin.check_func_info": """
(len, None) | None
(5, "ctx ") | TypeError: ctx check_func_info
""",
    "vm.builtin.check_prim_value_info": """
(5, np.dtype("i8"), None) | None
("a", np.dtype("i8"), "ctx ") | TypeError: ctx check_prim_value_info
""",
    "vm.builtin.check_string_info": """
("a", None) | None
(5, "ctx ") | TypeError: ctx check_string_info
""",
    # Values
    "vm.builtin.copy": """
(f32(1.0),) | any | got is a[0]
() | TypeError:
""",
    "vm.builtin.move": """
((1, 2),) | any | got is a[0]
() | TypeError:
""",
    "vm.move": """
((1, 2),) | any | got is a[0]
() | TypeError:
""",
    "vm.builtin.null_value": """
() | None
(1,) | TypeError:
""",
    "vm.builtin.read_if_cond": """
(np.array(True),) | True
(0,) | False
(zeros(2),) | InternalError: read_if_cond
""",
    "vm.builtin.make_tuple": """
(1, f32(1.0), None) | (1, f32(1.0), None)
() | ()
""",
    "relaxvm.builtin.make_adt": """
("List.Cons", 1, 2, (3,)) | Adt("List.Cons", 1, (2, (3,)))
(1, 1) | TypeError: make_adt: constructor
("A", "B") | TypeError: make_adt: tag
("A", -1) | ValueError: Adt: tag: expected a number from 0 to 2147483647, got -1
("A", 1 << 70) | ValueError: Adt: tag: expected a number from 0 to 2147483647
("A", -1 << 70) | ValueError: Adt: tag: expected a number from 0 to 2147483647
""",
    "relaxvm.builtin.adt_tag": """
(Adt("A", 3),) | 3
((3,),) | TypeError: adt_tag: expected a value of a data type, got tuple of 1
""",
    "relaxvm.builtin.match_tag": """
(Adt("B", 1, (3,)), "A", 0, "B", 1) | 1
(Adt("B", 0, (3,)), "A", 0, "B", 1) | TypeError: B with tag 1 and 1 fields, got B(3) with tag 0
(Adt("B", 1, ()), "A", 0, "B", 1) | TypeError: match: expected a value of A with tag 0 and 0 fields
(Adt("C", 1, (3,)), "A", 0, "B", 1) | TypeError: got C(3) with tag 1
(Adt("B", 2, (3,)), "A", 0, "B", 1) | TypeError: with tag 2
(Adt("B", 0),) | TypeError: match: expected a value of a data type without constructors, got B()
(Adt("B", 0), "B") | ValueError: match_tag: constructors: expected a number of fields
(Adt("B", 0), 1, 0) | TypeError: match_tag: name of a constructor
(3, "B", 0) | TypeError: match_tag: expected a value of a data type, got int 3
""",
    "relaxvm.builtin.adt_field": """
(Adt("A", 3, (4, 5)), 1) | 5
(Adt("A", 3, (4, 5)), 2) | IndexError: adt_field: index 2: A has 2 fields
(Adt("A", 3, (4, 5)), -1) | IndexError: adt_field: index -1
(3, 0) | TypeError: adt_field: expected a value of a data type, got int 3
""",
    "relaxvm.builtin.tag_is": """
(3, 3) | True
(3, 4) | False
("3", 3) | TypeError: tag_is
""",
    "relaxvm.builtin.match_failure": """
(Adt("A", 3, (4,)), "B(_)") | MatchError: no clause of the match is for A(4); there is none for B(_)
(1, 1) | TypeError: match_failure: missing
""",
    "relaxvm.builtin.ref": """
(3,) | any | got.value == 3
() | TypeError: missing 1 required positional argument
""",
    "relaxvm.builtin.ref_read": """
(Ref(3),) | 3
(3,) | TypeError: ref_read: expected a reference, got int 3
""",
    "relaxvm.builtin.ref_write": """
(Ref(3), 4) | None | a[0].value == 4
(3, 4) | TypeError: ref_write: expected a reference, got int 3
""",
    "vm.builtin.tuple_getitem": """
((1, 2), 1) | 2
((1, 2), 2) | IndexError: tuple_getitem
""",
    "vm.builtin.tuple_reset_item": """
(tuple([1, 2]), 0) | None | a[0] == (None, 2)
((1, 2), 2) | IndexError: tuple_reset_item
""",
    "vm.builtin.reshape": """
(f32(1.0, 2.0, 3.0, 4.0), Shape([2, 2])) | np.array([[1, 2], [3, 4]], "f4")
(f32(1.0), Shape([2])) | ValueError: reshape
""",
    "vm.builtin.ensure_zero_offset": """
(f32(1.0, 2.0)[1:],) | f32(2.0)
(5,) | TypeError: ensure_zero_offset
""",
    "vm.builtin.to_device": """
(f32(1.0), 1, 0) | f32(1.0)
(f32(1.0), 2, 0) | InternalError: to_device
""",
    # Memory
    "vm.builtin.alloc_storage": """
(vm, Shape([8]), 0, np.dtype("u1"), "global") | any | tensor_in(got).shape == (2,)
(vm, Shape([-8]), 0, np.dtype("u1"), "global") | InternalError: alloc_storage
""",
    "vm.builtin.alloc_tensor": """
(storage(16), 4, Shape([3]), np.dtype("f4")) | any | (got.shape, got.dtype) == ((3,), np.float32)
(storage(16), 8, Shape([3]), np.dtype("f4")) | InternalError: alloc_tensor
""",
    "vm.builtin.free_storage": """
(storage(16),) | None
(5,) | TypeError: free_storage
""",
    "vm.builtin.free_tensor": """
(f32(1.0),) | None
(5,) | TypeError: free_tensor
""",
    "vm.builtin.memory_manager.clear": """
() | None
(1,) | TypeError:
""",
    # Calls
    "vm.builtin.make_closure": """
(sub, 3) | any | get_func("vm.builtin.invoke_closure")(None, got, 10) == 7
(5, 1) | TypeError: make_closure
""",
    "vm.builtin.invoke_closure": """
(None, sub, 5, 3) | 2
(None, 5, 1) | TypeError: invoke_closure
""",
    "vm.builtin.call_tir_dyn": """
(collect, 1, Shape([2, 3])) | (1, 2, 3)
(5, Shape([3])) | TypeError: call_tir_dyn
""",
    "vm.builtin.register_py_func": """
("cases.f", sub) | None | get_func("vm.builtin.call_py_func")("cases.f", (5, 3)) == 2
(5, sub) | TypeError: register_py_func
""",
    "vm.builtin.get_py_func": """
(registered("cases.g"),) | sub
("cases.nope",) | InternalError: get_py_func
""",
    "vm.builtin.call_py_func": """
(registered("cases.h"), (7, 3)) | 4
((registered("cases.h"), (7, 3)),) | 4
("cases.nope", ()) | InternalError: call_py_func
""",
    "vm.builtin.clear_py_func_registry": """
() | None
(1,) | TypeError:
""",
    "vm.builtin.invoke_debug_func": """
(None, globally("cases.debug"), "line", 4) | None | SEEN[-1] == ("line", 4)
(None, "cases.nope", "line") | ValueError: invoke_debug_func
""",
    # Output and time
    "vm.builtin.print": """
(1, "b", Shape([2])) | None | printed.startswith("1 b ")
""",
    "vm.builtin.debug_print": """
("main:3", f32(1.0)) | None | "main:3" in printed and "1." in printed
(5, f32(1.0)) | TypeError: debug_print
""",
    "relax.run.print": """
("{}-{}", 1, 2) | None | printed == "1-2\\n"
(5, 1) | TypeError:
""",
    "relax.run.assert_op": """
(True, "x") | None
(False, "{} of {}", 1, 2) | AssertionError: 1 of 2
""",
    "time": """
() | any | type(got) is float and get_func("time")() >= got
(1,) | TypeError:
""",
    "vm.builtin.time": """
() | any | type(got) is float and get_func("vm.builtin.time")() >= got
(1,) | TypeError:
""",
    # Tensors whose shape depends on values
    "relax.run.nonzero": """
(np.array([[0, 1], [2, 0]]),) | np.array([[0, 1], [1, 0]])
(5,) | TypeError: nonzero
""",
    "relax.run.unique": """
(i64(3, 1, 3), 1, 0, 0, 0, None) | i64(1, 3)
(i64(3, 1, 3), 0, 0, 0, 0, None) | i64(3, 1)
(i64(3, 1, 3), 1, 1, 1, 1, None) | (i64(1, 3), i64(1, 0), i64(1, 0, 1), i64(1, 2))
(i64(3), 1, 0, 0, 0, 2) | ValueError: axis 2
(i64(3), 1, 0, 0, 0, 1 << 70) | ValueError: axis 1180591620717411303424
""",
    "relax.run.shape_to_tensor": """
(Shape([2, 0]),) | i64(2, 0)
(5,) | TypeError: shape_to_tensor
""",
    "relaxvm.builtin.tensor_property": """
(ones(2, 3), "ndim", 0) | 2
(ones(2, 3), "shape_i", 1) | 3
(ones(2, 3), "stride_i", 0) | 3
(ones(2, 3)[:, ::-1], "stride_i", 1) | -1
(ones(2, 3), "dtype_code", 0) | 2
(i64(1), "dtype_bits", 0) | 64
(i64(1), "dtype_lanes", 0) | 1
(i64(1), "byte_offset", 0) | 0
(i64(1), "elem_offset", 0) | 0
(ones(2, 3), "shape_i", 2) | ValueError: tensor_property: axis: expected one of the 2 axes
(ones(2, 3), "stride_i", -1) | ValueError: tensor_property: axis: expected one of the 2 axes
(ones(2, 3), "rank", 0) | ValueError: tensor_property: there is no property rank
(ones(2, 3), "dtype_", 0) | ValueError: tensor_property: there is no property dtype_
(1.5, "ndim", 0) | TypeError: tensor_property
(ones(2, 3), 1, 0) | TypeError: tensor_property: name
(ones(2, 3), "shape_i", "x") | TypeError: tensor_property: axis
""",
    "runtime.TVMTensorCreateView": """
(f32(1.0, 2.0, 3.0), Shape([2]), None, 4) | f32(2.0, 3.0)
(f32(1.0), Shape([4]), None, 4) | ValueError: expected a view within the 4 bytes
""",
    # Caches of attention
    "vm.builtin.attention_kv_cache_create": """
(zeros(2, 3), Shape([4, 3]), -1) | any | view(got).tolist() == [[0] * 3] * 2
(zeros(2, 3), Shape([4, 3]), 1) | any | view(got).shape == (1, 3)
(zeros(2, 3), Shape([4, 2]), 2) | InternalError: attention_kv_cache_create
""",
    "vm.builtin.attention_kv_cache_append": """
(cache(2), ones(1, 3)) | any | got is a[0] and view(got).tolist() == [[0] * 3] * 2 + [[1] * 3]
(cache(2), ones(1, 4)) | InternalError: attention_kv_cache_append
""",
    "vm.builtin.attention_kv_cache_update": """
(cache(2), ones(2, 3)) | any | got is a[0] and view(got).tolist() == [[1] * 3] * 2
(cache(2), ones(1, 3)) | InternalError: attention_kv_cache_update
""",
    "vm.builtin.attention_kv_cache_view": """
(cache(2),) | zeros(2, 3)
(cache(2), Shape([2, 3])) | zeros(2, 3)
(cache(2), Shape([3, 3])) | InternalError: attention_kv_cache_view
""",
    "vm.builtin.attention_kv_cache_array_popn": """
((cache(2), cache(3)), 2) | None | [len(view(c)) for c in a[0]] == [0, 1]
((cache(3), cache(1)), 2) | InternalError: attention_kv_cache_array_popn
""",
    "vm.builtin.attention_kv_cache_array_clear": """
((cache(2), cache(3)),) | None | [len(view(c)) for c in a[0]] == [0, 0]
((5,),) | TypeError: attention_kv_cache_array_clear
""",
    "vm.builtin.attention_kv_cache_window_override": """
(cache(3), ones(2, 3), 4) | any | view(got)[:, 0].tolist() == [1, 0, 0, 1]
(cache(3), ones(5, 3), 4) | InternalError: attention_kv_cache_window_override
""",
    "vm.builtin.attention_kv_cache_window_override_with_sinks": """
(cache(3), ones(2, 3), 4, 1) | any | view(got)[:, 0].tolist() == [0, 1, 0, 1]
(cache(3), ones(4, 3), 4, 1) | InternalError: attention_kv_cache_window_override_with_sinks
""",
    # Paged caches of attention, and recurrent states
    "vm.builtin.kv_state_clear": """
(paged(3),) | None | get_func("vm.builtin.attention_kv_cache_empty")(a[0])
(5,) | TypeError: kv_state_clear: expected the state of a language model
""",
    "vm.builtin.kv_state_add_sequence": """
(paged(0), 7) | None | length(a[0], 7) == 0
(recurrent(), 7) | None
(paged(0), 0) | InternalError: the cache has a sequence 0 already
(recurrent(), 0) | InternalError: the recurrent state has a sequence 0 already
""",
    "vm.builtin.kv_state_remove_sequence": """
(paged(3), 0) | None | get_func("vm.builtin.attention_kv_cache_empty")(a[0])
(paged(3), 1) | InternalError: the cache has no sequence 1
(recurrent(), 1) | InternalError: the recurrent state has no sequence 1
""",
    "vm.builtin.kv_state_fork_sequence": """
(paged(3), 0, 1, 2) | None | length(a[0], 1) == 2
(paged(3), 0, 1) | None | length(a[0], 1) == 3
(paged(3), 0, 1, 4) | InternalError: expected a place of -1 to 3
(paged(3), 2, 1, 0) | InternalError: the cache has no sequence 2
(paged(3), 0, 0, 0) | InternalError: the cache has a sequence 0 already
(slid(), 0, 1, 3) | InternalError: has a sliding window and can be forked within its first 1
(tree(), 0, 1, 1) | InternalError: the sequence 0 has a tree of tokens
""",
    "vm.builtin.kv_state_popn": """
(paged(3), 0, 2) | None | length(a[0], 0) == 1
(paged(3), 0, 4) | InternalError: expected 0 to 3 tokens
(recurrent(), 0, 1) | InternalError: expected 0 to 0 tokens of the sequence 0, those that can
""",
    "vm.builtin.kv_state_begin_forward": """
(paged(3), Shape([0]), Shape([2]), None) | None | length(a[0], 0) == 5
(paged(3), Shape([0]), Shape([2]), Shape([-1, -1])) | None | length(a[0], 0) == 5
(paged(3), Shape([0]), Shape([])) | InternalError: expected a count for each of 1 sequences
(paged(3), Shape([0]), Shape([0])) | InternalError: expected at least 1 token to append, got 0
(paged(3), Shape([0]), Shape([9])) | InternalError: expected at most 2 sequences and 8 tokens
(begun(8, paged(8)), Shape([0]), Shape([1])) | InternalError: the cache is full: 1 more pages
(paged(3), Shape([0, 0]), Shape([1, 1])) | InternalError: expected each sequence once
(paged(3), Shape([0]), Shape([1]), Shape([])) | InternalError: expected a node before each of 1
(paged(3), Shape([0]), Shape([1]), Shape([0])) | InternalError: expected -1 to -1, got 0
(tree(), Shape([0]), Shape([1])) | InternalError: the sequence 0 has a tree of tokens
(slid(), Shape([0]), Shape([1]), Shape([-1])) | InternalError: trees of tokens are not supported
(recurrent(), Shape([0]), Shape([2]), Shape([-1, -1])) | InternalError: takes chains of tokens
(importing(), Shape([0]), Shape([1])) | InternalError: finish the import of the checkpoint first
""",
    "vm.builtin.kv_state_end_forward": """
(paged(3),) | None
(recurrent(),) | None
(5,) | TypeError: kv_state_end_forward
""",
    "vm.builtin.paged_attention_kv_cache_create": """
(*CONFIG, *KERNELS) | any | repr(got.layout.dtype) == "dtype('float32')"
(Shape([1, 2]), *CONFIG[1:], *KERNELS) | InternalError: config: expected 5 or 6 numbers
(Shape([0, 8, 8, 4, 0]), *CONFIG[1:], *KERNELS) | InternalError: expected positive numbers
(CONFIG[0], Shape([0, 2]), *CONFIG[2:], *KERNELS) | InternalError: layers: expected two numbers
(*CONFIG[:2], 3, *CONFIG[3:], *KERNELS) | InternalError: expected heads of queries that 2 heads
(*CONFIG[:6], Shape([2]), *CONFIG[7:], *KERNELS) | InternalError: kinds: expected 0, 1 or 3
(*CONFIG[:7], 1, *CONFIG[8:], *KERNELS) | InternalError: cannot be sent to other processes
(*CONFIG[:8], 5, *CONFIG[9:], *KERNELS) | InternalError: rope: expected 0, 1 or 2, got 5
(*CONFIG[:11], ones(2), CONFIG[12], *KERNELS) | InternalError: factors: expected rope 1, got 0
(*CONFIG,) | InternalError: expected 15 or 16 kernels, got 0
(Shape([1, 8, 8, 4, 1]), *CONFIG[1:6], Shape([1]), *CONFIG[7:], *KERNELS) | InternalError: no slid
""",
    "vm.builtin.attention_kv_cache_attention_with_fused_qkv": """
(begun(2), 0, 0.5, ones(2, 8, 4), zeros(2, 4, 4)) | None | (a[4] == 1).all()
(begun(2), 1, 0.5, ones(2, 8, 4), zeros(2, 4, 4)) | InternalError: expected a layer from 0 to 0
(begun(2), 0, 0.5, ones(1, 8, 4), zeros(1, 4, 4)) | InternalError: qkv: expected at least 2 tokens
(begun(2), 0, 0.5, ones(2, 7, 4), zeros(2, 4, 4)) | InternalError: qkv: expected float32[any, 8, 4]
(begun(2), 0, 0.5, ones(2, 8, 4), fixed(zeros(2, 4, 4))) | ValueError: got a read-only one
(latent(2), 0, 0.5, ones(2, 8, 4), zeros(2, 4, 4)) | InternalError: of the kind mha or mha_sliding
""",
    "vm.builtin.attention_kv_cache_self_attention": """
(begun(1), 0, 0.5, *new(1), zeros(1, 4, 4), zeros(1, 4)) | None | (a[6] == 1).all()
(begun(2), 0, 0.5, *new(1), zeros(1, 4, 4), zeros(1, 4)) | InternalError: q: expected float32[2,
(begun(1), 0, 0.5, ones(1, 3, 4), *new(1)[1:], zeros(1, 3, 4), zeros(1, 3)) | InternalError: q: expe
""",
    "vm.builtin.attention_kv_cache_cross_attention": """
(begun(1), 0, 0.5, new(1)[0], ones(1, 4, 4), ones(1, 4)) | None | not a[4].any()
(begun(2), 0, 0.5, new(2)[0], ones(2, 4, 4), ones(2, 4)) | None | (a[5] == -5e4).all()
(latent(2), 0, 0.5, new(2)[0], ones(2, 4, 4), ones(2, 4)) | None | (a[5] == -5e4).all()
(begun(1), 0, 0.5, new(1)[0], ones(1, 4, 4), ones(1, 3)) | InternalError: lse: expected float32[1
""",
    "vm.builtin.attention_kv_cache_attention_with_shared_kv": """
(begun(2), 0, 0.5, *new(2), zeros(2, 4, 4)) | None | (a[6] == 1).all()
(begun(2), 0, 0.5, *new(1), zeros(1, 4, 4)) | InternalError: q: expected float32[2, 4, 4]
""",
    "vm.builtin.attention_kv_cache_append_mla_kv": """
(latent(2), 0, ones(2, 4)) | any | got is a[0] and got.pages[0].sum() == 8
(begun(2), 0, ones(2, 4)) | InternalError: expected a layer of the kind mla, got mha
(latent(2), 0, ones(2, 3)) | InternalError: kv: expected float32[2, 4]
""",
    "vm.builtin.attention_kv_cache_merge_attn_output_inplace": """
(paged(0), ones(1, 1, 1), zeros(1, 1), 3 * ones(1, 1, 1), zeros(1, 1)) | any | a[1] == 2 == 2 * a[2]
(paged(0), ones(1, 1, 1), zeros(1, 1), ones(1, 1, 2), zeros(1, 1)) | InternalError: other: expected
""",
    "vm.builtin.attention_kv_cache_enable_sliding_window_for_seq": """
(slides(), 0, 4, 1) | None | a[0].table[0].window == 4
(paged(0), 0, 4, 1) | InternalError: the cache was created without sliding windows
(slid(), 0, 4, 1) | InternalError: the sequence 0 has a sliding window already
(slides(), 0, 4, 4) | InternalError: expected a window of at least 1 token and from 0 to 3 sinks
""",
    "vm.builtin.attention_kv_cache_commit_accepted_token_tree_nodes": """
(tree(), Shape([0]), Shape([1])) | None | length(a[0], 0) == 2
(tree(), Shape([0]), Shape([2])) | InternalError: expected -1 to 1, a node of the sequence 0, got 2
(tree(), Shape([0]), Shape([])) | InternalError: expected a node for each of 1 different sequences
""",
    "vm.builtin.attention_kv_cache_empty": """
(paged(0),) | False
(5,) | TypeError: attention_kv_cache_empty: expected a paged cache of attention
""",
    "vm.builtin.attention_kv_cache_get_num_available_pages": """
(paged(5),) | 2
(cache(2),) | TypeError: expected a paged cache of attention
""",
    "vm.builtin.attention_kv_cache_get_total_sequence_length": """
(paged(5),) | 5
(5,) | TypeError: attention_kv_cache_get_total_sequence_length
""",
    "vm.builtin.attention_kv_cache_get_sequence_length": """
(paged(5), 0) | 5
(paged(5), 1) | InternalError: the cache has no sequence 1
(importing(), 0) | InternalError: not known until checkpoint import is finished
""",
    "vm.builtin.attention_kv_cache_get_query_positions": """
(tree(),) | i32(1, 1)
(5,) | TypeError: attention_kv_cache_get_query_positions
""",
    "vm.builtin.attention_kv_cache_debug_get_kv": """
(paged(3), 0, 1, 3, ones(1, 2, 2, 4), ones(1, 2, 2, 4)) | None | not a[4].any() and not a[5].any()
(paged(3), 0, 1, 4, ones(1, 3, 2, 4), ones(1, 3, 2, 4)) | InternalError: expected two places of 0
(latent(1), 0, 0, 1, ones(1, 1, 2, 4), ones(1, 1, 2, 4)) | InternalError: of the kind mha
""",
    "vm.builtin.attention_kv_cache_debug_get_kv_mla": """
(latent(2), 0, 0, 2, ones(1, 2, 4)) | None | not a[4].any()
(paged(3), 0, 0, 2, ones(1, 2, 4)) | InternalError: expected a layer of the kind mla, got mha
""",
    "vm.builtin.kv_cache_disagg_prepare_recv": """
(paged(3), 0, 2) | Shape([1, 3, 2])
(paged(3), 1, 2) | InternalError: the cache has no sequence 1
""",
    "vm.builtin.kv_cache_disagg_mark_send": """
(paged(3), 0, 0, Shape([1, 0, 3]), 1) | InternalError: created without transfers
(5, 0, 0, Shape([1, 0, 3]), 1) | TypeError: kv_cache_disagg_mark_send
""",
    "vm.builtin.attention_kv_cache_get_layout_hash": """
(paged(3),) | any | len(got) == 16
(latent(1),) | InternalError: checkpointing only supports full-context MHA/GQA layers
(slides(),) | InternalError: checkpointing does not support sliding-window cache layouts
""",
    "vm.builtin.attention_kv_cache_get_checkpoint_metadata": """
(paged(3), 0) | any | '"seq_length":3' in got
(paged(3), 1) | InternalError: checkpointing only supports sequence id 0, got 1
(tree(), 0) | InternalError: checkpointing requires committed token-chain state
(importing(), 0) | InternalError: checkpoint import must be finished first
""",
    "vm.builtin.attention_kv_cache_export_page_group": """
(paged(3), 0, 0, ones(1, 1, 2, 2, 4, 4)) | None | not a[3].any()
(paged(3), 0, 1, ones(1, 1, 2, 2, 4, 4)) | InternalError: group id: expected 0 to 0, got 1
(paged(3), 0, 0, ones(1, 2, 2, 2, 4, 4)) | InternalError: ExportPageGroup expects a tensor
(paged(3), 0, 0, np.ones((1, 1, 2, 2, 4, 4))) | InternalError: The dtype mismatches
(paged(3), 0, 0, fixed(ones(1, 1, 2, 2, 4, 4))) | ValueError: got a read-only one
""",
    "vm.builtin.attention_kv_cache_prepare_import": """
(paged(0), 0, checkpoint()) | None
(paged(0), 1, checkpoint()) | InternalError: only supports sequence id 0, got 1
(paged(0), 0, "x") | InternalError: metadata: Expecting value
(paged(0), 0, "[]") | InternalError: metadata: expected a JSON object
(paged(0), 0, checkpoint().replace("float32", "float16")) | InternalError: metadata: dtype: expected
(paged(0), 0, checkpoint().replace('hash":"', 'hash":"x')) | InternalError: layout hash mismatch
(paged(0), 0, checkpoint().replace('length":3', 'length":-3')) | InternalError: seq_length: expected
(paged(0), 0, checkpoint().replace('seq_length":3', 'seq_length":9')) | InternalError: do not cover
(paged(0), 0, checkpoint().replace('"nbytes":', '"nbytes":1')) | InternalError: metadata: nbytes
(paged(0), 0, checkpoint().replace('"groups":[', '"groups":[1,')) | InternalError: groups: expected
""",
    "vm.builtin.attention_kv_cache_import_page_group": """
(importing(), 0, 0, ones(1, 1, 2, 2, 4, 4)) | None | a[0].pages[0].sum() == 3 * 16
(paged(0), 0, 0, ones(1, 1, 2, 2, 4, 4)) | InternalError: checkpoint import has not been prepared
(importing(True), 0, 0, ones(1, 1, 2, 2, 4, 4)) | InternalError: the group 0 is imported already
""",
    "vm.builtin.attention_kv_cache_finish_import": """
(importing(True), 0) | None | length(a[0], 0) == 3
(importing(), 0) | InternalError: the import is missing group 0
(paged(0), 0) | InternalError: checkpoint import has not been prepared
""",
    "vm.builtin.rnn_state_create": """
(1, 2, 3, (None,), (None,), (f32(1.0),)) | any | got.storages[0][0].shape == (2, 3, 1)
(0, 2, 3, (None,), (None,), (f32(1.0),)) | InternalError: expected at least 1 layer
(1, 2, 3, (), (None,), (f32(1.0),)) | InternalError: expected a getter and a setter for each
""",
    "vm.builtin.rnn_state_get": """
(recurrent(), 0, 0, f32(0.0).reshape(1, 1)) | None | a[3] == 1
(recurrent(), 1, 0, f32(0.0).reshape(1, 1)) | InternalError: expected a layer below 1
(recurrent(), 0, 0, f32(0.0)) | InternalError: expected float32[1, 1]
(recurrent(False), 0, 0, f32(0.0).reshape(1, 1)) | InternalError: call kv_state_begin_forward
""",
    "vm.builtin.rnn_state_set": """
(recurrent(), 0, 0, f32(5.0).reshape(1, 1)) | any | got is a[0] and got.storages[0][0][0, 1] == 5
(recurrent(), 0, 1, f32(5.0).reshape(1, 1)) | InternalError: expected a layer below 1 and a state
""",
    "vm.builtin.rnn_state_debug_get": """
(recurrent(), 0, 0, 0) | f32(1.0)
(recurrent(), 0, 0, 1) | InternalError: the recurrent state has no sequence 1
""",
    # Sampling
    "vm.builtin.multinomial_from_uniform": """
(np.array([[0.25, 0.5, 0.25]], "f4"), np.array([[0.3]], "f4")) | np.array([[1]])
(np.array([[1.0]], "f4"), 5) | TypeError: multinomial_from_uniform
""",
    "vm.builtin.sample_top_p_from_logits": """
(np.array([[1, 50, 3]], "f4"), 1.0, 0.9, 0.5) | 1
(5, 1.0, 1.0, 0.5) | TypeError: sample_top_p_from_logits
""",
    "vm.builtin.sample_top_p_from_prob": """
(np.array([[0.2, 0.5, 0.3]], "f4"), 0.4, 0.9) | 1
(np.array([[0.2, 0.5, 0.3]], "f4"), 1.0, 0.7) | 2
(5, 1.0, 0.5) | TypeError: sample_top_p_from_prob
""",
    "vm.builtin.apply_repetition_penalty": """
(np.array([[1, -2, 4]], "f4"), i32(0, 1), 2.0) | None | a[0].tolist() == [[0.5, -4, 4]]
(np.array([[1, -2]], "f4"), i32(2), 2.0) | IndexError: apply_repetition_penalty
""",
    "vm.builtin.apply_presence_and_frequency_penalty": """
(np.array([[1, -2, 4]], "f4"), i32(0, 2), i32(1, 2), 0.5, 0.25) | None | a[0][0, 2] == 3
(np.array([[1.0]], "f4"), i32(0), i32(1, 1), 0.5, 0.25) | InternalError: apply_presence_and_freq
""",
    "vm.builtin.apply_softmax_with_temperature": """
(np.array([[0, 0]], "f4"), 2.0) | None | a[0].tolist() == [[0.5, 0.5]]
(5, 1.0) | TypeError: apply_softmax_with_temperature
""",
    # The cache of tensors
    "vm.builtin.tensor_cache.update": """
("cases.0", f32(1.0), True) | None | get_func("vm.builtin.tensor_cache.get")("cases.0") is a[1]
(5, f32(1.0)) | TypeError: tensor_cache.update
""",
    "vm.builtin.tensor_cache.get": """
(cached("cases.1"),) | f32(7.0)
("cases.nope",) | None
(5,) | TypeError: tensor_cache.get
""",
    "vm.builtin.tensor_cache.remove": """
(cached("cases.2"),) | None | get_func("vm.builtin.tensor_cache.get")("cases.2") is None
(5,) | TypeError: tensor_cache.remove
""",
    "vm.builtin.tensor_cache.clear": """
() | None | get_func("vm.builtin.tensor_cache.get")("cases.0") is None
(1,) | TypeError:
""",
    "vm.builtin.tensor_cache.load": """
("/nowhere", 1, 0) | InternalError: cannot open /nowhere
(5, 1, 0) | TypeError: tensor_cache.load
""",
    "vm.builtin.param_array_from_cache": """
(cached("cases_0").removesuffix("_0"), 1) | (f32(7.0),)
("cases.nope", 1) | InternalError: param_array_from_cache
""",
    "vm.builtin.param_array_from_cache_by_name": """
((cached("cases.3"),),) | (f32(7.0),)
(("cases.nope",),) | ValueError: param_array_from_cache_by_name
""",
    "vm.builtin.param_array_from_cache_by_name_unpacked": """
(cached("cases.4"), cached("cases.4")) | (f32(7.0), f32(7.0))
("cases.nope",) | ValueError: param_array_from_cache_by_name_unpacked
""",
    "vm.builtin.param_module_from_cache": """
(cached("cases_0").removesuffix("_0"), 1) | any | got["get_params"]()[0].tolist() == [7]
("cases.nope", 1) | InternalError: param_module_from_cache
""",
    "vm.builtin.param_module_from_cache_by_name": """
((cached("cases.5"),),) | any | got["get_params"]()[0].tolist() == [7]
(("cases.nope",),) | ValueError: param_module_from_cache_by_name
""",
}  # fmt: skip

SEEN: list[Any] = []
"""What the function of `invoke_debug_func` was called with."""


def builtin(name: str, *args: Any) -> Any:
    return get_func(f"vm.builtin.{name}")(*args)


def machine() -> VirtualMachine:
    builder = ExecBuilder()
    with builder.function("main", num_inputs=1):
        builder.emit_ret(builder.r(0))
    return VirtualMachine(builder.get())


def sub(a: int, b: int) -> int:
    return a - b


def globally(name: str) -> str:
    """Register a function that records its arguments, and return its name."""
    if GLOBAL.lookup(name) is None:
        GLOBAL.register(name, lambda *args: SEEN.append(args))
    return name


_CONFIG = (
    Shape([2, 12, 8, 4, 0]), Shape([0, 1]), 4, 2, 4, 4, Shape([0]), 0, 0, 1.0, 10000.0, None,
    np.zeros((), "f4"),
)  # fmt: skip
"""Arguments of a small paged cache, without its kernels."""


def names() -> dict[str, Any]:
    """Return the names that the lines may use, with new objects."""
    from relaxvm.executable import shape_program

    vm = machine()

    def registered(name: str) -> str:
        builtin("register_py_func", name, sub)
        return name

    def cached(name: str) -> str:
        builtin("tensor_cache.update", name, np.array([7.0], "f4"), True)
        return name

    def cache(rows: int) -> Any:
        return builtin("attention_kv_cache_create", np.zeros((rows, 3), "f4"), Shape([4, 3]), -1)

    def paged(count: int, kind: int = 0, slides: int = 0) -> Any:
        sizes = Shape([2, 12 - 8 * slides, 8, 4, slides])
        config = (sizes, *_CONFIG[1:6], Shape([kind]), *_CONFIG[7:])
        found = builtin("paged_attention_kv_cache_create", *config, *[None] * 15)
        builtin("kv_state_add_sequence", found, 0)
        return begun(count, found) if count else found

    def begun(count: int, found: Any = None) -> Any:
        found = found or paged(0)
        builtin("kv_state_begin_forward", found, Shape([0]), Shape([count]))
        return found

    def slid() -> Any:
        found = paged(3, slides=1)
        builtin("attention_kv_cache_enable_sliding_window_for_seq", found, 0, 4, 1)
        return found

    def tree() -> Any:
        found = paged(1)
        builtin("kv_state_begin_forward", found, Shape([0]), Shape([2]), Shape([-1, -1]))
        return found

    def checkpoint() -> str:
        found: str = builtin("attention_kv_cache_get_checkpoint_metadata", paged(3), 0)
        return found

    def importing(is_whole: bool = False) -> Any:
        found = paged(0)
        builtin("attention_kv_cache_prepare_import", found, 0, checkpoint())
        if is_whole:
            group = np.ones((1, 1, 2, 2, 4, 4), "f4")
            builtin("attention_kv_cache_import_page_group", found, 0, 0, group)
        return found

    def recurrent(has_begun: bool = True) -> Any:
        found = builtin("rnn_state_create", 1, 2, 3, (None,), (None,), (np.ones(1, "f4"),))
        builtin("kv_state_add_sequence", found, 0)
        if has_begun:
            builtin("kv_state_begin_forward", found, Shape([0]), Shape([1]))
        return found

    def fixed(array: Any) -> Any:
        array.flags.writeable = False
        return array

    def numbers(dtype: str) -> Any:
        return lambda *values: np.array(values, dtype)

    def text(*strings: str) -> Any:
        found = np.empty(len(strings), object)
        found[:] = strings
        return found

    return {
        "CONFIG": _CONFIG, "KERNELS": [None] * 15, "paged": paged, "begun": begun, "slid": slid,
        "tree": tree, "checkpoint": checkpoint, "importing": importing, "recurrent": recurrent,
        "fixed": fixed, "slides": lambda: paged(0, slides=1), "latent": lambda n: paged(n, kind=1),
        "length": lambda cache, n: cache.table[n].length,
        "new": lambda n: [np.ones((n, heads, 4), "f4") for heads in (4, 2, 2)],
        "Adt": Adt, "Ref": Ref, "Shape": Shape, "SEEN": SEEN, "cache": cache, "cached": cached,
        "collect": lambda *args: args, "f32": numbers("f4"), "get_func": get_func,
        "generator": get_func("relaxvm.builtin.random_generator"),
        "globally": globally, "heap": numbers("i8"), "i32": numbers("i4"), "i64": numbers("i8"),
        "np": np, "ones": lambda *shape: np.ones(shape, "f4"), "registered": registered,
        "program": lambda *steps: shape_program.encode(steps),
        "storage": lambda nbytes: builtin("alloc_storage", vm, Shape([nbytes]), 0, "u1"),
        "tensor_in": lambda storage: builtin("alloc_tensor", storage, 0, Shape([2]), "f4"),
        "text": text, "sub": sub, "view": lambda c: builtin("attention_kv_cache_view", c), "vm": vm,
        "zeros": lambda *shape: np.zeros(shape, "f4"),
    }  # fmt: skip
