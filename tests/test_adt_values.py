"""Values of data types and references: `Adt`, `Ref`, `relaxvm.equal`, `relaxvm.show`."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from array import array
from typing import Any

import numpy as np
import pytest

import relaxvm
import relaxvm.deep
from relaxvm import Adt, Closure, Ref, Shape, equal, show
from relaxvm.values import kind_of

NIL = Adt("List.Nil", 0)
DEEP = 1_000_000
HALF_DEEP = 50_000
"""Where every level takes a step of Python."""


def cons(head: Any, tail: Adt) -> Adt:
    return Adt("List.Cons", 1, (head, tail))


def deep(count: int = DEEP) -> Adt:
    value = NIL
    for number in range(count):
        value = cons(number, value)
    return value


def deep_tuple(count: int = DEEP) -> tuple[Any, ...]:
    value: tuple[Any, ...] = ()
    for _ in range(count):
        value = (value,)
    return value


def test_parts() -> None:
    value = cons(np.arange(2), NIL)
    assert (value.constructor, value.tag, len(value.fields)) == ("List.Cons", 1, 2)
    assert value.fields[1] is NIL
    assert NIL.fields == ()
    assert kind_of(value) == "adt"
    assert not isinstance(value, (tuple, Shape))
    with pytest.raises(AttributeError):
        value.tag = 2  # type: ignore[misc]
    with pytest.raises(TypeError):

        class Sub(Adt):  # type: ignore[misc]
            pass


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="expected a number from 0 to 2147483647, got -1"):
        Adt("A", -1)
    with pytest.raises(TypeError):
        Adt(1, 2)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Adt("A", 0, 3)  # type: ignore[arg-type]


def test_fields_become_values_of_their_own() -> None:
    given = ([1, 2], (3, [4]))
    value = Adt("A", 0, given)
    assert value.fields == ((1, 2), (3, (4,)))
    inner = (1, np.zeros(2))
    assert Adt("A", 0, (inner,)).fields[0] is not inner  # a program may change its tuples


def test_equality() -> None:
    a, b = cons(np.arange(3), cons(1, NIL)), cons(np.arange(3), cons(1, NIL))
    assert a == b
    assert (a != b) is False
    assert a != cons(np.arange(4), cons(1, NIL))
    assert a != cons(np.arange(3.0), cons(1, NIL))
    assert Adt("A", 0, (1,)) != Adt("A", 1, (1,))
    assert Adt("A", 0, (1,)) != Adt("B", 0, (1,))
    assert Adt("A", 0, (1,)) != Adt("A", 0, (1, 1))
    assert Adt("A", 0, (1,)) != (1,)
    assert Adt("A", 0, ((1,),)) != Adt("A", 0, (Shape((1,)),))
    nan = Adt("A", 0, (np.array([np.nan]),))
    assert nan == nan


def test_hash() -> None:
    assert hash(cons(1, NIL)) == hash(cons(1, NIL))
    assert len({cons(1, NIL), cons(1, NIL), cons((1, 2), NIL)}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(cons(np.zeros(2), NIL))


def test_text() -> None:
    value = Adt("A", 0, (1, (np.zeros((2, 3), "float32"),), NIL, np.float32(1.5)))
    assert repr(value) == "A(1, (float32[2, 3],), List.Nil(), 1.5)"
    assert show((1, [2, 3])) == "(1, [2, 3])"
    assert show(Ref(NIL)) == "Ref(List.Nil())"
    assert show(np.array(3, "int32")) == "int32(3)"
    assert len(show(tuple(range(10**6)))) < 500
    assert show(deep(100), 30).endswith("...")


def test_nested_a_million_times() -> None:
    a, b = deep(), deep()
    assert a == b
    assert repr(a).startswith("List.Cons(999999, List.Cons(999998, ")
    assert echo()["main"](a) is a
    del a, b  # freed without recursion


def test_hash_and_pickle_of_nested_values() -> None:
    a, b = deep(HALF_DEEP), deep(HALF_DEEP)
    assert hash(a) == hash(b)
    again = pickle.loads(pickle.dumps(a))
    assert again == a
    assert copy.copy(a) == a


def test_closures_nested_in_values_are_pickled() -> None:
    vm = echo_without_functions()
    closure: Any = Closure(vm["main"])
    for number in range(HALF_DEEP):
        closure = Closure(closure, (cons(number, NIL), (closure,)))
    again, other = pickle.loads(pickle.dumps((closure, vm)))
    for number in reversed(range(HALF_DEEP)):
        first, (same,) = again.captured
        assert first == cons(number, NIL)
        assert same is again.func
        again = again.func
    assert again.func == other["main"]
    assert again(7) == 7


def test_nested_tuples() -> None:
    a, b = deep_tuple(), deep_tuple()
    assert equal(a, b)
    assert show(a).startswith("((((")
    a, b = deep_tuple(HALF_DEEP), deep_tuple(HALF_DEEP)
    assert not equal(a, (b,))
    assert Adt("A", 0, (a,)) == Adt("A", 0, (b,))


def test_shared_parts_are_looked_at_once() -> None:
    a: Any = 1
    b: Any = 1
    for _ in range(200):
        a, b = Adt("P", 0, (a, a)), Adt("P", 0, (b, b))
    assert a == b
    assert hash(a) == hash(b)
    again = pickle.loads(pickle.dumps(a))
    assert again == a
    assert again.fields[0] is again.fields[1]


def test_parts_that_are_shared_in_other_ways() -> None:
    a, b, c = (Adt("P", 0, (1, 1)) for _ in range(3))
    for _ in range(200):
        a, b, c = Adt("P", 0, (a, a)), Adt("P", 0, (b, c)), Adt("P", 0, (b, c))
    assert a == b
    assert Adt("P", 0, (a, a)) != Adt("P", 0, (b, Adt("P", 0, (c, c))))


def test_a_pickled_form_that_was_not_made_by_pickling() -> None:
    codes = array("q", [0, 0, 0, -2]).tobytes()
    with pytest.raises(ValueError, match="expected -2 parts, got 0"):
        relaxvm.deep.rebuild(Adt, codes, [("A", 0)], [])


def test_all_kinds_of_nesting_are_freed() -> None:
    value: Any = None
    for _ in range(HALF_DEEP):
        value = Closure(len, (Adt("A", 0, (Ref((value,)),)),))
    del value


def test_references_change() -> None:
    ref = Ref([1, 2])
    assert ref.value == (1, 2)
    ref.value = 3
    assert ref.value == 3
    assert ref != Ref(3)
    for refuse in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="a Ref is a place in this process"):
            refuse(ref)


def test_a_cycle_through_a_reference_is_collected() -> None:
    class Marker:
        pass

    marker = Marker()
    alive = weakref.ref(marker)
    ref = Ref(None)
    ref.value = Adt("A", 0, (ref, marker))
    assert show(ref).startswith("Ref(A(Ref(A(")
    del ref, marker
    gc.collect()
    assert alive() is None


def test_lists_that_contain_themselves() -> None:
    items: list[Any] = []
    items.append(items)
    with pytest.raises(ValueError, match="contains itself"):
        Adt("A", 0, (items,))


def echo_without_functions() -> relaxvm.VirtualMachine:
    builder = relaxvm.ExecBuilder()
    with builder.function("main", num_inputs=1):
        builder.emit_ret(builder.r(0))
    return relaxvm.VirtualMachine(builder.get())


def echo() -> relaxvm.VirtualMachine:
    builder = relaxvm.ExecBuilder()
    with builder.function("main", num_inputs=1):
        builder.emit_ret(builder.r(0))
    with builder.function("apply", num_inputs=1):
        builder.emit_call("test_adt.echo", [builder.r(0)], builder.r(1))
        builder.emit_ret(builder.r(1))
    functions = {"test_adt.echo": lambda x: x}
    return relaxvm.VirtualMachine(builder.get(), functions=functions)


def test_entry_and_exit_of_deep_values() -> None:
    vm = echo()
    value = deep(HALF_DEEP)
    assert vm["apply"](value) is value
    nested = deep_tuple(HALF_DEEP)
    for name in ("main", "apply"):
        assert equal(vm[name](nested), nested)
    vm.set_input("main", nested)
    vm.invoke_stateful("main")
    assert equal(vm.get_outputs("main"), nested)
    vm.save_function("main", "saved", nested)
    assert equal(vm["saved"](), nested)
    vm.set_input("main", value)
    vm.invoke_stateful("main")
    assert vm.get_outputs("main") is value
    vm.save_function("main", "saved_value", value)
    assert vm["saved_value"]() is value


def test_a_machine_with_deep_saved_values_is_pickled() -> None:
    vm = echo_without_functions()
    closure: Any = vm["main"]
    for _ in range(HALF_DEEP):
        closure = Closure(len, (closure,))
    vm.save_function("main", "saved", (deep_tuple(HALF_DEEP), deep(HALF_DEEP), closure))
    for copied in (pickle.loads(pickle.dumps(vm)), copy.deepcopy(vm)):
        nested, value, closure = copied["saved"]()
        assert equal(nested, deep_tuple(HALF_DEEP))
        assert value == deep(HALF_DEEP)
        while type(closure) is Closure:
            (closure,) = closure.captured
        assert closure == copied["main"] != vm["main"]


def test_a_reference_is_an_input() -> None:
    vm, ref = echo(), Ref(1)
    vm.set_input("main", (ref,))
    vm.invoke_stateful("main")
    assert vm.get_outputs("main")[0] is ref
