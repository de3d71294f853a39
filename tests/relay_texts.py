"""Relay programs for the tests."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np

from relaxvm.executable.formats.stored_tensors import tensor_bytes
from relaxvm.frontend import relay

__all__ = ["HEAD", "NETWORKS", "PRELUDE", "PROGRAMS", "XS"]

STD = Path(relay.__file__).parent / "std"
PRELUDE = "".join(
    (STD / name).read_text(encoding="utf-8").replace('#[version = "0.0.5"]', "")
    for name in ("prelude.rly", "nat.rly")
).replace('import "prelude.rly"', "")
"""All that `HEAD` imports."""
HEAD = '#[version = "0.0.5"]\nimport "nat.rly"\n'

XS = "let %xs = Cons(3, Cons(1, Cons(4, Cons(1, Cons(5, Nil)))));"

PROGRAMS: dict[str, str] = {
    "map": (
        "def @main(%n: int32) { XS; @map(fn (%x) { %x * %n }, %xs) }"
    ),
    "folds": (
        "def @main(%n: int32) { XS; let %f = fn (%a, %b) { %a * 2 - %b }; (@foldl(%f, %n, %xs), "
        "@foldr(%f, %n, %xs), @foldr1(%f, %xs), @sum(%xs)) }"
    ),
    "zip": (
        "def @main(%n: int32) { XS; @zip(%xs, Cons(1f, Cons(2f, Nil))) }"
    ),
    "filter": (
        "def @main(%n: int32) { XS; @filter(fn (%x) { %x > %n }, %xs) }"
    ),
    "flatten": (
        "def @main(%n: int32) { XS; @foldr(@concat, Nil, @map(fn (%x) { Cons(%x, Cons(%x + %n, "
        "Nil)) }, %xs)) }"
    ),
    "positions": (
        "def @main(%n: int32) { XS; (@length(%xs), @hd(%xs), @tl(%xs), @nth(%xs, %n), "
        "@update(%xs, %n, 7)) }"
    ),
    "rev": (
        "def @main(%n: int32) { XS; (@rev(%xs), @rev(@rev(%xs))) }"
    ),
    "accumulate": (
        "def @main(%n: int32) { XS; let %f = fn (%a, %x) { (%a + %x, %a * %n) }; (@map_accumr(%f, "
        "0, %xs), @map_accuml(%f, 0, %xs)) }"
    ),
    "unfold": (
        "def @main(%n: int32) { let %f = fn (%s) { if (%s == 0) { None } else { Some((%s - 1, %s "
        "* %s)) } }; (@unfoldr(%f, %n), @unfoldl(%f, %n)) }"
    ),
    "option": (
        "def @half(%x: int32) -> Option[int32] { if (mod(%x, 2) == 0) { Some(%x / 2) } else { "
        "None } } def @then[A, B](%o: Option[A], %f: fn (A) -> Option[B]) -> Option[B] { match "
        "(%o) { Some(%v) => %f(%v), None => None } } def @main(%n: int32) { (@then(@half(%n), "
        "@half), @then(@half(%n * 2), @half)) }"
    ),
    "tree": (
        "def @fold[A, B](%f: fn (A, List[B]) -> B, %t: Tree[A]) -> B { match (%t) { Rose(%v, %ts) "
        "=> %f(%v, @map(fn (%c) { @fold(%f, %c) }, %ts)) } } def @main(%n: int32) { let %t = "
        "Rose(1, Cons(Rose(%n, Nil), Cons(Rose(3, Cons(Rose(4, Nil), Nil)), Nil))); (@fold(fn "
        "(%v, %rs) { %v + @sum(%rs) }, %t), @size(%t), @tmap(fn (%v) { %v * 2 }, %t)) }"
    ),
    "numbers": (
        "def @nat(%n: int32) -> nat { if (%n == 0) { zero } else { succ(@nat(%n - 1)) } } def "
        "@int(%n: nat) -> int32 { match %n { zero => 0, succ(%m) => 1 + @int(%m) } } def "
        "@main(%n: int32) { XS; let %m = @nat(%n); (@int(@nat_add(@nat_double(%m), %m)), "
        "@nat_nth(%xs, %m), @nat_update(%xs, %m, 9), @nat_iterate(fn (%x) { %x * 3 }, %m)(1)) }"
    ),
    "even and odd": (
        "def @even(%n: nat) -> bool { match (%n) { zero => True, succ(%m) => @odd(%m) } } def "
        "@odd(%n: nat) -> bool { match (%n) { zero => False, succ(%m) => @even(%m) } } def "
        "@main(%n: int32) { let %m = succ(succ(succ(zero))); (@even(%m), @odd(%m)) }"
    ),
    "functions": (
        "def @main(%n: int32) { (@compose(negative, fn (%x) { %x + %n })(3), @flip(subtract)(%n, "
        "5), @iterate(fn (%x) { %x * %n }, 3)(2), @id(@id)(%n)) }"
    ),
    "functions in data": (
        "def @main(%n: int32) { XS; let %fs = @map(fn (%x) { fn (%y) { %x * %y + %n } }, %xs); "
        "@map(fn (%f) { %f(10) }, %fs) }"
    ),
    "several types": (
        "def @pair[A](%x: A) -> (A, List[A]) { (%x, Cons(%x, Nil)) } def @main(%n: int32) { let "
        "%id = fn [A](%x: A) -> A { %x }; (@pair(%n), @pair(2f), @pair((%n, True)), "
        "@pair(Cons(%n, Nil)), %id(1), %id(2f)) }"
    ),
    "nested patterns": (
        "def @f(%a: List[int32], %b: Option[(int32, List[int32])]) -> int32 { match (%a, %b) "
        "{(Cons(%x, Cons(%y, Nil)), None) => %x - %y,(Cons(%x, _), Some((%y, Cons(%z, _)))) => %x "
        "* %y * %z,(_, Some((%y, Nil))) => %y,(Nil, _) => 100,_ => 200 } } def @main(%n: int32) { "
        "let %l = Cons(%n, Nil); (@f(Cons(7, %l), None), @f(%l, Some((2, %l))), @f(Nil, Some((5, "
        "Nil))), @f(Nil, None), @f(%l, None), @f(Nil, Some((1, %l)))) }"
    ),
    "mutual types": (
        "type Even { Zero, AfterOdd(Odd) } type Odd { AfterEven(Even) } def @even(%e: Even) -> "
        "int32 { match (%e) { Zero => 0, AfterOdd(%o) => 1 + @odd(%o) } } def @odd(%o: Odd) -> "
        "int32 { match (%o) { AfterEven(%e) => 1 + @even(%e) } } def @main(%n: int32) { "
        "@even(AfterOdd(AfterEven(AfterOdd(AfterEven(Zero))))) * %n }"
    ),
    "references": (
        "def @main(%n: int32) { let %r = ref(Nil); let %push = fn (%x) { ref_write(%r, Cons(%x, "
        "ref_read(%r))) }; %push(%n); %push(2); (ref_read(%r), @length(ref_read(%r))) }"
    ),
    "effects in order": (
        "def @main(%n: int32) { let %r = ref(%n); let %next = fn () { ref_write(%r, ref_read(%r) "
        "* 2); ref_read(%r) };let %a = %next(); let %b = %next(); (%a, %b, %next() - %a) }"
    ),
    "graph bindings in clauses": (
        "def @main(%n: int32) { XS; match (%xs) { Cons(%x, _) => { %0 = %x + %n; %1 = %0 * %0; %1 "
        "- %0 }, Nil => %n } }"
    ),
}
"""``XS;`` stands for a list."""

_TENSOR = base64.b64encode(tensor_bytes(np.array([1, 2, 3]))).decode()

NETWORKS: dict[str, str] = {
    "dense": """
#[version = "0.0.5"]
def @main(%x: Tensor[(?, 4), float32], %w: Tensor[(3, 4), float32], %b: Tensor[(3), float32]) {
  %0 = nn.dense(%x, %w, units=None, out_dtype="float32") /* span=model.py:3:5 */;
  %1 = nn.bias_add(%0, %b, axis=-1);
  %2 = nn.relu(%1);
  %3 = (%1, %2);
  %4 = concatenate(%3, axis=1);
  split(%4, indices_or_sections=[2, 4], axis=1)
}
""",
    "convolution": """
#[version = "0.0.5"]
def @main(%data: Tensor[(1, 2, 6, 6), float32], %weight: Tensor[(4, 2, 3, 3), float32]) {
  %0 = nn.conv2d(%data, %weight, padding=[1, 1, 1, 1], channels=4, kernel_size=[3, 3]);
  %1 = nn.max_pool2d(%0, pool_size=[2, 2], strides=[2, 2], padding=[0, 0, 0, 0]);
  %2 = nn.batch_flatten(%1);
  %3 = fn (%p: Tensor[(1, 36), float32], Primitive=1, hash="ab") -> Tensor[(1, 36), float32] {
    %4 = exp(%p);
    add(%4, 1f)
  };
  %5 = %3(%2, attrs_type_key="attrs.TestAttrs", name="f");
  strided_slice(%5, begin=[0, 1], end=[1, 9], strides=[1, 2])
}
""",
    "expressions": """
// An expression with a free variable.
free_var %n: int32;
let %f = fn [A](%x: A, %g: fn (A) -> A) -> A { %g(%g(%x)) };
let %y: (int32, Tensor[(), float32],) = (%f(%n, fn (%i) { -%i * 2 + 1 }), 1e-1f);
%y.0; if (%n < 3) { %y.0 } else { 2 * (%n - 1) }
""",
    "branches": """
#[version = "0.0.5"]
def @main(%c: int32, %x: Tensor[(2, 3), float32]) {
  %0 = %c > 1;
  %9 = if (%0) {
    %1 = sum(%x, axis=[1], keepdims=True);
    %2 = %x / %1;
    (%2, %1)
  } else {
    let %s = transpose(%x, axes=[1, 0]);
    (transpose(%s), sum(%x, axis=[1], keepdims=True) * 2f)
  };
  %9.0 - %9.1
}
""",
    "metadata": """
#[version = "0.0.5"]
def @main(%x: Tensor[(3), int64]) { add(%x, meta[relay.Constant][0]) }

#[metadata]
{"root": 1, "nodes": [{"type_key": ""},
 {"type_key": "Map", "keys": ["relay.Constant"], "data": [2]},
 {"type_key": "Array", "data": [3]},
 {"type_key": "relay.Constant", "attrs": {"_checked_type_": "0", "data": "0", "span": "0"}}],
 "b64ndarrays": ["{TENSOR}"],
 "attrs": {"tvm_version": "0.9.0"}}
""".replace("{TENSOR}", _TENSOR),
}
"""Whole texts, with the operators of networks."""
