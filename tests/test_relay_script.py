"""The same programs from Relay text and from script, with equal results."""

from __future__ import annotations

from typing import Any

import pytest

import relaxvm
from relaxvm import Adt, VirtualMachine
from relaxvm.errors import MatchError
from relaxvm.frontend.relay import from_text, to_text
from relaxvm.script import from_source

from .test_adt_networks import NETWORK, SCRIPT
from .test_adt_programs import LISTS, OPTIONS, i32, ints, items, nat, rose, to_list
from .test_relay_programs import CELL

RELAY = """
#[version = "0.0.5"]
type List[A] { Nil, Cons(A, List[A]) }
type Option[A] { None_, Some(A) }
type Nat { Z, S(Nat) }
type Tree[A] { Rose(A, List[Tree[A]]) }
type Box { Apply(fn (int32) -> int32), Keep }

def @map[A, B](%f: fn (A) -> B, %xs: List[A]) -> List[B] {
  match (%xs) { Nil => Nil, Cons(%x, %rest) => Cons(%f(%x), @map(%f, %rest)) }
}
def @foldl[A, B](%f: fn (B, A) -> B, %z: B, %xs: List[A]) -> B {
  match (%xs) { Nil => %z, Cons(%x, %rest) => @foldl(%f, %f(%z, %x), %rest) }
}
def @foldr[A, B](%f: fn (A, B) -> B, %z: B, %xs: List[A]) -> B {
  match (%xs) { Nil => %z, Cons(%x, %rest) => %f(%x, @foldr(%f, %z, %rest)) }
}
def @reverse[A](%xs: List[A], %onto: List[A]) -> List[A] {
  match (%xs) { Nil => %onto, Cons(%x, %rest) => @reverse(%rest, Cons(%x, %onto)) }
}
def @zip[A, B](%xs: List[A], %ys: List[B]) -> List[(A, B)] {
  match (%xs, %ys) {
    (Cons(%x, %more), Cons(%y, %rest)) => Cons((%x, %y), @zip(%more, %rest)),
    _ => Nil,
  }
}
def @filter[A](%keep: fn (A) -> bool, %xs: List[A]) -> List[A] {
  match (%xs) {
    Cons(%x, %rest) => {
      %0 = @filter(%keep, %rest);
      if (%keep(%x)) { Cons(%x, %0) } else { %0 }
    },
    Nil => Nil,
  }
}
def @append[A](%xs: List[A], %ys: List[A]) -> List[A] { @foldr(Cons, %ys, %xs) }
def @flatten[A](%xs: List[List[A]]) -> List[A] {
  match (%xs) { Nil => Nil, Cons(%x, %rest) => @append(%x, @flatten(%rest)) }
}
def @head[A](%xs: List[A]) -> Option[A] { match (%xs) { Cons(%x, _) => Some(%x), _ => None_ } }
def @doubled(%xs: List[int32]) { @map(fn (%x) { %x + %x }, %xs) }
def @total(%xs: List[int32]) { @foldl(add, 0, %xs) }
def @evens(%xs: List[int32]) { @filter(fn (%x: int32) { mod(%x, 2) == 0 }, %xs) }
def @sum_of_head(%xs: List[int32], %y: int32) {
  match (@head(%xs)) { Some(%x) => %x + %y, None_ => %y }
}
def @tree_sum(%tree: Tree[int32]) -> int32 {
  match (%tree) { Rose(%x, %children) => @foldl(add, %x, @map(@tree_sum, %children)) }
}
def @plus(%a: Nat, %b: Nat) -> Nat { match (%a) { Z => %b, S(%m) => @plus(%m, S(%b)) } }
def @even(%n: Nat) -> bool { match (%n) { Z => True, S(%m) => @odd(%m) } }
def @odd(%n: Nat) -> bool { match (%n) { Z => False, S(%m) => @even(%m) } }
def @boxed(%y: int32) { Apply(fn (%x) { %x + %y }) }
def @unbox(%box: Box, %x: int32) { match (%box) { Apply(%f) => %f(%x), Keep => %x } }
def @third[A](%xs: List[A]) -> A { match? (%xs) { Cons(_, Cons(_, Cons(%x, _))) => %x } }
def @overlap(%a: Nat, %b: Nat) {
  match (%a, %b) {
    (Z, Z) => 0, (S(_), Z) => 1, (Z, S(_)) => 2, (S(S(_)), _) => 3, (_, S(S(_))) => 4, _ => 5,
  }
}
def @counted(%n: Nat, %cell: ref(int32)) -> int32 {
  match (%n) {
    Z => ref_read(%cell),
    S(%m) => { ref_write(%cell, ref_read(%cell) + 1); @counted(%m, %cell) },
  }
}
def @count(%n: Nat) { @counted(%n, ref(0)) }
"""

CALLS: dict[str, list[tuple[Any, ...]]] = {
    "reverse": [(ints(1, 2, 3), ints()), (ints(), ints(4))],
    "zip": [(ints(1, 2, 3), ints(4, 5)), (ints(), ints(4))],
    "append": [(ints(1), ints(2, 3)), (ints(), ints())],
    "flatten": [(to_list([ints(1), ints(), ints(2, 3)]),), (to_list([]),)],
    "head": [(ints(),), (ints(7, 8),)],
    "doubled": [(ints(1, 2, 3),), (ints(),)],
    "total": [(ints(*range(100)),)],
    "evens": [(ints(1, 2, 3, 4, 6),)],
    "sum_of_head": [(ints(3, 9), i32(4)), (ints(), i32(4))],
    "tree_sum": [(rose(1, rose(2), rose(3, rose(4))),)],
    "plus": [(nat(3), nat(4)), (nat(0), nat(0))],
    "even": [(nat(10),), (nat(7),)],
    "odd": [(nat(10),), (nat(7),)],
    "unbox": [(Adt("Box.Keep", 1), i32(4))],
    "third": [(ints(1, 2, 3, 4),)],
    "overlap": [(nat(a), nat(b)) for a in range(4) for b in range(4)],
    "count": [(nat(20),)],
}


@pytest.fixture(scope="module")
def executables() -> list[Any]:
    module = from_text(RELAY)
    return [relaxvm.build(m) for m in (from_source(LISTS), module, from_text(to_text(module)))]


@pytest.mark.parametrize("option", OPTIONS)
def test_equal_results(executables: list[Any], option: str) -> None:
    machines = [VirtualMachine(each, optimize=OPTIONS[option]) for each in executables]
    for name, calls in CALLS.items():
        for args in calls:
            script, *texts = [machine[name](*args) for machine in machines]
            for text in texts:
                assert relaxvm.equal(script, text), (name, args)
    assert [m["unbox"](m["boxed"](i32(3)), i32(4)) == 7 for m in machines] == [True] * 3


def test_equal_errors(executables: list[Any]) -> None:
    messages = []
    for each in executables[:2]:
        with pytest.raises(MatchError) as caught:
            VirtualMachine(each)["third"](ints(1, 2))
        assert caught.value.missing is not None
        messages.append(str(caught.value).partition("\n")[0].partition(" at ")[0])
    assert messages[0].split(", got")[0] == messages[1].split(", got")[0]


NETWORKS = (
    RELAY.partition("def @map")[0]
    + CELL
    + """
def @foldl[A, B](%f: fn (B, A) -> B, %z: B, %xs: List[A]) -> B {
  match (%xs) { Nil => %z, Cons(%x, %rest) => @foldl(%f, %f(%z, %x), %rest) }
}
def @lstm(%xs: List[Tensor[(1, 4), float32]], %w: Tensor[(12, 4), float32],
          %u: Tensor[(12, 3), float32], %b: Tensor[(12,), float32]) {
  let %zero = zeros(shape=[1, 3], dtype="float32");
  let %step = fn (%s, %x) { @cell(%x, %s.0, %s.1, %w, %u, %b) };
  @foldl(%step, (%zero, %zero), %xs)
}
def @grow(%n: Nat, %table: Tensor[(?, 2), float32], %row: Tensor[(1, 2), float32])
    -> Tensor[(?, 2), float32] {
  match (%n) {
    Z => %table,
    S(%m) => @grow(%m, concatenate((%table, multiply(%row, 2f))), add(%row, %row)),
  }
}
def @join(%xs: List[Tensor[(?, 2), float32]]) -> Tensor[(?, 2), float32] {
  match? (%xs) { Cons(%x, Nil) => %x, Cons(%x, %rest) => concatenate((%x, @join(%rest))) }
}
def @ack(%m: Nat, %n: Nat) -> Nat {
  match ((%m, %n)) {
    (Z, _) => S(%n),
    (S(%p), Z) => @ack(%p, S(Z)),
    (S(%p), S(%q)) => @ack(%p, @ack(%m, %q)),
  }
}
def @range(%n: Nat, %onto: List[Nat]) -> List[Nat] {
  match (%n) { Z => %onto, S(%m) => @range(%m, Cons(%m, %onto)) }
}
def @last[A](%xs: List[A]) -> Option[A] {
  match (%xs) { Cons(%x, Nil) => Some(%x), Cons(_, %rest) => @last(%rest), Nil => None_ }
}
"""
)


@pytest.fixture(scope="module")
def networks() -> list[Any]:
    return [relaxvm.build(module) for module in (from_source(SCRIPT), from_text(NETWORKS))]


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", ["lstm", "grow", "join", "ack", "range", "last"])
def test_equal_networks(networks: list[Any], name: str, option: str) -> None:
    machines = [VirtualMachine(each, optimize=OPTIONS[option]) for each in networks]
    script, text = [machine[name](*NETWORK[name]) for machine in machines]
    assert relaxvm.equal(script, text)


@pytest.mark.parametrize("option", ["all", "none"])
def test_equal_lists_of_a_million(networks: list[Any], option: str) -> None:
    machines = [VirtualMachine(each, optimize=OPTIONS[option]) for each in networks]
    found = [machine["range"](nat(1_000_000), to_list([])) for machine in machines]
    assert relaxvm.equal(*found)
    assert sum(1 for _ in items(found[1])) == 1_000_000
    assert relaxvm.equal(*[m["last"](xs) for m, xs in zip(machines, found, strict=True)])
