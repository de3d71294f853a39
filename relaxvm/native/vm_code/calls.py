"""Native code of one function: calls of packed functions, kernels, and functions of the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from .code import Op
from .local_tensors import LocalTensor
from .registers import MANY_REGISTERS, Paths, RegisterWriter, Signature, borrowed, may_fail
from .states import EMPTY, MEMORY, Group, Item, ItemKind, Place, Scalar, State

__all__ = ["CallWriter"]

MAX_SCALARS: Final = 16
HEADER: Final = 4
"""Words of a frame before its registers."""


class CallWriter(RegisterWriter):
    """Writes calls."""

    def _arguments(self, op: Op, state: State, area: int) -> str:
        """Lay out the arguments of a packed function; returns where they are."""
        self._in_memory(op, state, op.items)
        for i, word in enumerate(op.items):
            self._emit(f"fp[{area + i}] = {self._ref(op, state, word)};")
        return f"fp + {area}, {len(op.items)}"

    def _op_call(self, op: Op, state: State) -> None:
        args = self._arguments(op, state, op["area"])
        callee = self._ref(op, state, op["callee"])
        made = f"s->call(a, {callee}, {args})"
        self._set_made(op, state, op["dst"], made, self._leave(op, "E", state))
        self._poll(op, state)

    def _op_call_void(self, op: Op, state: State) -> None:
        args = self._arguments(op, state, op["area"])
        callee = self._ref(op, state, op["callee"])
        self._emit(f"if (RARE(s->call_void(a, {callee}, {args}) < 0)) "
                   f"{self._leave(op, 'E', state)}")
        self._poll(op, state)

    def _op_call_native(self, op: Op, state: State) -> None:
        dst = op["dst"]
        scalars = [self._as_scalar(state, word) for word in op.items]
        if 0 < len(scalars) <= MAX_SCALARS and None not in scalars:
            self._call_scalars(op, state, [text for text in scalars if text is not None])
            return
        tensors = {
            word: place for word in op.items
            if word >= 0 and isinstance(place := state[word], LocalTensor)
        }  # fmt: skip
        self._in_memory(op, state, [word for word in op.items if word not in tensors])
        if state[dst] is not MEMORY:
            self._empty(op, state, dst)
        for register, group in state.groups():
            if group.refers_to(dst):
                self._to_memory(op, state, register)
        if tensors:
            self._call_local(op, state, tensors)
        else:
            self._emit(f"if (RARE(s->call_native(a, fp, code + {op.position}) < 0)) "
                       f"{self._leave(op, 'E', state)}")
        state[dst] = MEMORY
        self._poll(op, state)

    def _call_local(self, op: Op, state: State, tensors: Mapping[int, LocalTensor]) -> None:
        """A call of which some operands are tensors without arrays."""
        passed = [f"&{tensors[word].name}" if word in tensors else "0" for word in op.items]
        nbytes = sum(tensors[word].nbytes for word in op.items if word in tensors)
        status = self._local("answer", "int")
        self._emit(f"{{ RvmLocalTensor *const locals[] = {{{', '.join(passed)}}};")
        self._emit(f"{status} = s->call_local(a, fp, code + {op.position}, locals, {nbytes}); }}")
        self._emit(f"if (RARE({status} != 0)) {{ if ({status} > 0) {self._leave(op, 'X', state)} "
                   f"{self._leave(op, 'E', state)} }}")

    def _as_scalar(self, state: State, word: int) -> str | None:
        """An operand as the fields of an RvmScalar; None if it is not known to be one."""
        if word < 0:
            value = self.code.constant(word)
            if type(value) is int and -(1 << 63) < value < 1 << 63:
                return f"{{RVM_SCALAR_INT, 0, {{.as_int = INT64_C({value})}}}}"
            return None
        place = state[word]
        if not isinstance(place, Scalar):
            return None
        name = self._scalar(word, place)
        if place is Scalar.ANY:
            return name
        kind = "INT" if place is Scalar.INT else "BOOL"
        return f"{{RVM_SCALAR_{kind}, 0, {{.as_int = {name}}}}}"

    def _call_scalars(self, op: Op, state: State, args: Sequence[str]) -> None:
        dst, callee = op["dst"], self._ref(op, state, op["callee"])
        answer, result = self._local("answer", "int"), self._local("result", "RvmScalar")
        self._emit(f"{{ const RvmScalar args[] = {{{', '.join(args)}}};")
        self._emit(f"{answer} = s->call_scalars(a, {callee}, args, {len(args)}, &{result}); }}")
        self._emit(f"if (RARE({answer} < 0)) {self._leave(op, 'E', state)}")
        # Any other result is stored, and the loop continues after the call.
        other = State(state)
        self._emit(f"if (RARE({answer} == 0)) {{")
        self._set_ref(op, other, dst, "a->value")
        self._poll(op, other)
        self._emit(self._leave(self.ops[op.end], "X", other))
        self._emit("}")
        self._set_scalar(op, state, dst, Scalar.ANY, result)
        self._poll(op, state)

    def _room(self, op: Op, state: State, words: str) -> str:
        """Check that a frame of so many words can be pushed; returns where its registers are."""
        self._emit(f"{{ RvmRef *const callee = fp + {op['frame'] + HEADER};")
        self._emit(f"if (RARE(*a->calls_left <= 0 || {words} > a->end - callee || "
                   f"(uintptr_t)__builtin_frame_address(0) < a->stack)) "
                   f"{self._leave(op, 'X', state)}")
        self._emit("a->ticks--;")
        self._poll(op, state)
        return "callee"

    def _op_call_vm(self, op: Op, state: State) -> Paths | None:
        index = self.function_at(op["callee"])
        if index is None or index not in self.signatures:
            return self._unknown(op, state)
        self._call(op, state, index, op.items, "const int64_t function = "
                   f"code[{op.at('callee')}];")  # fmt: skip
        return None

    def _call(
        self, op: Op, state: State, index: int, args: Sequence[int | Item | Group], function: str
    ) -> None:
        """A call of a function of the program."""
        signature = self.signatures[index]
        numbers = self._passed_numbers(op, state, signature, args)
        for i, arg in enumerate(args):
            if i not in numbers and isinstance(arg, int):
                self._ref(op, state, arg)
        self._room(op, state, str(signature.code.frame_words))
        self._emit(function)
        self._emit("callee[-2] = (RvmRef)function;")
        for i, arg in enumerate(args):
            value = "0" if i in numbers else self._argument(state, arg)
            self._emit(f"callee[{i}] = {value};")
        empty = range(len(args), signature.code.num_registers)
        if len(empty) > MANY_REGISTERS:
            self._emit(f"for (int64_t i = {empty[0]}; i <= {empty[-1]}; i++) callee[i] = 0;")
        else:
            for i in empty:
                self._emit(f"callee[{i}] = 0;")
        made = [i for i, arg in enumerate(args) if i not in numbers and not isinstance(arg, int)
                and may_fail(arg)]  # fmt: skip
        for i in made:
            others = " ".join(f"rvm_clear(s, callee + {j});" for j in range(len(args)))
            leave = self._leave(op, "E", state)
            self._emit(f"if (RARE(callee[{i}] == 0)) {{ {others} {leave} }}")
        passed = "".join(f", {numbers[p]}" for p in signature.numbers)
        self._emit("--*a->calls_left;")
        self._emit(f"status = f{index}(a, callee, *(const int64_t *const *)function, 0{passed});")
        self._returned(op, state)
        self._emit("}")
        if signature.result is Scalar.INT:
            self._set_scalar(op, state, op["dst"], Scalar.INT, "a->number")
        else:
            self._set_ref(op, state, op["dst"], "a->value")

    def _returned(self, op: Op, state: State) -> None:
        """After a call: complete the frames if the callee has not returned."""
        self._emit("while (RARE(status == RVM_TAIL)) status = a->target(a, callee, 0);")
        self._emit(f"if (RARE(status != RVM_DONE)) {{ rvm_header(callee, code + {op.end}, fp, "
                   f"{op['dst']}); {self._leave(op, 'Y', state)} }}")
        self._emit("++*a->calls_left;")

    def _passed_numbers(
        self, op: Op, state: State, signature: Signature, args: Sequence[int | Item | Group]
    ) -> dict[int, str]:
        """The arguments that are passed as int64_t, as C."""
        found: dict[int, str] = {}
        for p in signature.numbers:
            arg = args[p]
            if isinstance(arg, int):
                number = self._number(op, state, arg)
            elif isinstance(arg, Item) and arg.kind is ItemKind.INT:
                number = arg.name
            else:
                number = self._number_of_item(op, state, arg)
            name = self._local(f"p{op.position}_{p}", "int64_t")
            self._emit(f"{name} = {number};")
            found[p] = name
        return found

    def _number_of_item(self, op: Op, state: State, arg: Item | Group) -> str:
        name = self._local("number", "int64_t")
        leave = self._leave(op, "X", state)
        if isinstance(arg, Item) and arg.kind in (ItemKind.REGISTER, ItemKind.OWNED,
                                                  ItemKind.CONSTANT):  # fmt: skip
            self._emit(f"if (RARE(!s->as_int({borrowed(arg)}, &{name}))) {leave}")
        elif isinstance(arg, Item) and arg.kind is ItemKind.ANY:
            self._emit(f"if (RARE({arg.name}.type != RVM_SCALAR_INT)) {leave}")
            return f"{arg.name}.as_int"
        else:
            self._emit(leave)
            self._emit(f"{name} = 0;")
        return name

    def _argument(self, state: State, arg: int | Item | Group) -> str:
        """A new reference to an argument, or NULL for None."""
        if not isinstance(arg, int):
            return self._new_item(arg)
        if arg < 0:
            return f"rvm_new(s, a->pool_end[{arg}])"
        return "0" if state[arg] is EMPTY else f"rvm_new(s, fp[{arg}])"

    def _op_invoke_closure(self, op: Op, state: State) -> Paths | None:
        word = op["closure"]
        known = self._known_closure(op, state, word, op["dst"])
        if known is not None:
            function = f"const int64_t function = s->func_address(a, {known});"
            args = [*op.items, *self._group_at(state, word).items]
            self._call(op, state, known, args, function)
            return None
        self._in_memory(op, state, (*op.items, word))
        count, closure = len(op.items), self._target(op, state, word)
        self._room(op, state, "words")
        self._emit("callee[-2] = (RvmRef)function;")
        for i, arg in enumerate(op.items):
            self._emit(f"callee[{i}] = {self._argument(state, arg)};")
        self._emit(f"for (int64_t i = {count}; i < params; i++) "
                   f"callee[i] = rvm_new(s, s->captured({closure}, i - {count}));")
        self._emit("for (int64_t i = params; i < registers; i++) callee[i] = 0;")
        self._emit("--*a->calls_left;")
        self._emit("a->ip = *(const int64_t *const *)function;")
        self._emit("status = target(a, callee, 0);")
        self._returned(op, state)
        self._emit("} }")
        self._set_ref(op, state, op["dst"], "a->value")
        return None

    def _known_closure(self, op: Op, state: State, word: int, dst: int | None) -> int | None:
        """The index of the function of a closure that needs no object for this call.

        Args:
            dst: the register that the call writes; None if the frame ends with it.
        """
        place: Place = MEMORY if word < 0 else state[word]
        if not isinstance(place, Group) or place.function not in self.signatures:
            return None
        has_groups = any(isinstance(item, Group) for item in place.items)
        if place.function is None or (
            has_groups and dst is not None and self._lives_on(op, word)
        ):
            return None
        params = self.signatures[place.function].code.num_params
        return place.function if len(op.items) + len(place.items) == params else None

    def _target(self, op: Op, state: State, word: int) -> str:
        """Begin a block that calls any closure; returns the closure.  Leaves if it has no native
        code."""
        closure = self._ref(op, state, word)
        self._emit("{ int64_t index, words, registers;")
        self._emit(f"const RvmRef closure = {closure};")
        self._emit(f"const RvmCompiled target = s->target(a, closure, {len(op.items)}, &index, "
                   "&words, &registers);")
        self._emit(f"if (RARE(target == 0)) {self._leave(op, 'X', state)}")
        self._emit("const int64_t function = s->func_address(a, index);")
        self._emit("const int64_t params = ((const int64_t *)function)[1];")
        return "closure"

    # Calls in the last place: the frame becomes that of the callee, which whoever has called this
    # function calls next, so that any number of them needs one frame, and no C stack.

    def _op_tail_call_vm(self, op: Op, state: State) -> Paths:
        index = self.function_at(op["callee"])
        if index is None or index not in self.signatures:
            return self._unknown(op, state)
        function = f"const int64_t function = code[{op.at('callee')}];"
        return self._tail_call(op, state, index, op.items, function)

    def _op_tail_invoke_closure(self, op: Op, state: State) -> Paths:
        word = op["closure"]
        known = self._known_closure(op, state, word, None)
        if known is not None:
            function = f"const int64_t function = s->func_address(a, {known});"
            args = [*op.items, *self._group_at(state, word).items]
            return self._tail_call(op, state, known, args, function)
        self.results.add(MEMORY)
        self._in_memory(op, state, (*op.items, word))
        count = len(op.items)
        self._target(op, state, word)
        self._before_tail_call(op, state, "words")
        self._emit("rvm_up(s, closure);")
        args_text = [self._argument(state, arg) for arg in op.items]
        self._emit(f"const RvmRef args[] = {{{', '.join(args_text) or '0'}}};")
        self._clear_frame(state)
        self._emit(f"for (int64_t i = 0; i < {count}; i++) fp[i] = args[i];")
        self._emit(f"for (int64_t i = {count}; i < params; i++) "
                   f"fp[i] = rvm_new(s, s->captured(closure, i - {count}));")
        self._emit("for (int64_t i = params; i < registers; i++) fp[i] = 0;")
        self._emit("rvm_down(s, closure);")
        self._emit("a->target = target;")
        self._end_tail_call()
        return []

    def _tail_call(
        self, op: Op, state: State, index: int, args: Sequence[int | Item | Group], function: str
    ) -> Paths:
        """A call of a function of the program in the last place."""
        signature = self.signatures[index]
        self.results.add(signature.result)
        self.successors.add(index)
        numbers = self._passed_numbers(op, state, signature, args)
        for i, arg in enumerate(args):
            if i not in numbers and isinstance(arg, int):
                self._ref(op, state, arg)
        self._emit("{")
        self._before_tail_call(op, state, str(signature.code.frame_words))
        self._emit(function)
        values = ["0" if i in numbers else self._argument(state, arg) for i, arg in enumerate(args)]
        self._emit(f"RvmRef args[] = {{{', '.join(values) or '0'}}};")
        for i, arg in enumerate(args):
            if i not in numbers and not isinstance(arg, int) and may_fail(arg):
                others = " ".join(f"rvm_clear(s, args + {j});" for j in range(len(args)))
                leave = self._leave(op, "E", state)
                self._emit(f"if (RARE(args[{i}] == 0)) {{ {others} {leave} }}")
        self._clear_frame(state)
        for i in range(len(args)):
            self._emit(f"fp[{i}] = args[{i}];")
        empty = range(len(args), signature.code.num_registers)
        if len(empty) > MANY_REGISTERS:
            self._emit(f"for (int64_t i = {empty[0]}; i <= {empty[-1]}; i++) fp[i] = 0;")
        else:
            for i in empty:
                self._emit(f"fp[{i}] = 0;")
        for i, p in enumerate(signature.numbers):
            self._emit(f"a->numbers[{i}] = {numbers[p]};")
        self._emit(f"a->target = rvm_tail_{index};")
        self._end_tail_call()
        return []

    def _before_tail_call(self, op: Op, state: State, words: str) -> None:
        """Check that there is room for a frame of so many words in the place of this one."""
        self._emit(f"if (RARE({words} > a->end - fp)) {self._leave(op, 'X', state)}")
        self._emit("a->ticks--;")
        self._poll(op, state)

    def _end_tail_call(self) -> None:
        self._emit("fp[-2] = (RvmRef)function;")
        self._emit("a->ip = *(const int64_t *const *)function;")
        self._emit("return RVM_TAIL; }")
