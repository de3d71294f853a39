"""Native code of one function: elementwise kernels, and chains of them as one loop.

The loop of a chain is a C function of its own.  It returns whether numpy's loops are to do the work
instead: where one would report a floating-point status, or a result is not a number, of which the
bits depend on the order of operands.  Nothing that the chain reads has been changed then, so the
chain leaves by an exit at its first operation.
"""

from __future__ import annotations

from collections.abc import Sequence

from .chains import C_TYPES, ArrayType, Chain, Input
from .code import Op
from .registers import RegisterWriter, array
from .states import MEMORY, State

__all__ = ["ElementwiseWriter"]


class ElementwiseWriter(RegisterWriter):
    """Writes elementwise kernels."""

    def _op_ufunc_1(self, op: Op, state: State) -> None:
        self._ufunc(op, state, ("x", "out"))

    def _op_ufunc_2(self, op: Op, state: State) -> None:
        self._ufunc(op, state, ("a", "b", "out"))

    def _ufunc(self, op: Op, state: State, names: Sequence[str]) -> None:
        refs = ", ".join(self._ref(op, state, op[name]) for name in names)
        answer = self._local("answer", "int")
        self._emit(f"{answer} = s->{op.name}(a, code + {op.at('ufunc')}, {refs});")
        self._emit(f"if (RARE({answer} == 0)) {self._leave(op, 'X', state)}")
        self._emit(f"if (RARE({answer} < 0)) {self._leave(op, 'E', state)}")
        self._poll(op, state)

    def _can_merge(self, chain: Chain, state: State) -> bool:
        return all(state[register] is MEMORY for register in chain.entering)

    def _merged(self, chain: Chain, op: Op, state: State) -> Op:
        """Write a chain; returns its last operation."""
        self.merged[chain.start] = _loop(f"m{self.code.index}_{chain.start}", chain)
        leave = self._leave(op, "X", state)
        emit = self._emit
        emit("{")
        inputs = {i.word: number for number, i in enumerate(chain.inputs)}
        changed = {a.register for a in chain.stored if a.register is not None}
        for number, source in enumerate(chain.inputs):
            if source.word not in changed:
                emit(f"void *const x{number} = {self._data(op, state, source)};")
                emit(f"if (RARE(x{number} == 0)) {leave}")
        outputs = []
        for number, stored in enumerate(chain.stored):
            if stored.register is None:
                continue
            source = Input(stored.register, stored.type, is_single=False)
            emit(f"void *const y{number} = {self._data(op, state, source, is_changed=True)};")
            emit(f"if (RARE(y{number} == 0)) {leave}")
            if stored.input is not None:
                emit(f"void *const x{inputs[stored.register]} = y{number};")
            outputs.append((number, stored))
        # Arrays of different registers may share memory.
        for number, stored in outputs:
            others = [(f"x{i}", _nbytes(source)) for source, i in
                      ((i, inputs[i.word]) for i in chain.inputs) if source.word != stored.register]
            others += [(f"y{i}", s.type.nbytes) for i, s in outputs if i < number]
            for other, nbytes in dict(others).items():
                emit(f"if (RARE(!rvm_apart(y{number}, {stored.type.nbytes}, {other}, {nbytes}))) "
                     f"{leave}")  # fmt: skip
        made = sorted(chain.arrays.items())
        for register, result in made:
            name = self._local(f"w{register}", "RvmRef")
            emit(f"{name} = s->alloc_static(code + {result.allocation});")
        failed = " || ".join(f"w{register} == 0" for register, _ in made)
        drop = " ".join(f"rvm_clear(s, &w{register});" for register, _ in made)
        if failed:
            emit(f"if (RARE({failed})) {{ s->clear_error(); {drop} {leave} }}")
        allocated = {result.allocation: register for register, result in made}
        args = [f"x{number}" for number in range(len(chain.inputs))]
        args += [f"y{number}" if stored.register is not None
                 else f"s->data(w{allocated[stored.allocation]})"
                 for number, stored in enumerate(chain.stored)]  # fmt: skip
        emit(f"if (RARE(m{self.code.index}_{chain.start}({', '.join(['s', *args])}))) "
             f"{{ {drop} {leave} }}")  # fmt: skip
        emit("}")
        last = self.ops[chain.last]
        for register in chain.released:
            self._empty(last, state, register)
        for register, _ in made:
            self._set_ref(last, state, register, f"w{register}")
            emit(f"w{register} = 0;")
        emit(f"a->ticks -= {len(chain.steps)};")
        self._poll(last, state)
        if chain.has_deadline:
            emit(f"if (RARE(s->check_deadline(a) < 0)) {self._leave(last, 'E', state)}")
        return last

    def _data(self, op: Op, state: State, source: Input, *, is_changed: bool = False) -> str:
        """The address of the elements of an array, NULL if it is not as expected."""
        ref, dims = self._ref(op, state, source.word), source.type.dims
        dtype = f"code[{source.type.word}]"
        if source.is_single:
            return f"s->single({ref}, {dtype}, {len(dims)})"
        shape = array("const int64_t", [str(dim) for dim in dims])
        return f"s->elements({ref}, {dtype}, {len(dims)}, {shape}, {int(is_changed)})"


def _nbytes(source: Input) -> int:
    kind: ArrayType = source.type
    return kind.nbytes // kind.size if source.is_single else kind.nbytes


def _loop(name: str, chain: Chain) -> str:
    """The C function that computes the elements of a chain."""
    params = ["const RvmServices *const s"]
    head: list[str] = []
    body: list[str] = []
    tail: list[str] = []
    size = chain.stored[0].type.size
    for number, source in enumerate(chain.inputs):
        kind = C_TYPES[source.type.dtype]
        params.append(f"const void *const x{number}")
        if source.is_single:
            head.append(f"const {kind} c{number} = *(const {kind} *)x{number};")
        else:
            head.append(f"const {kind} *const e{number} = x{number};")
    loaded: dict[int, str] = {}

    def operand(arg: int) -> str:
        if arg >= 0:
            return f"v{arg}"
        number = -1 - arg
        source = chain.inputs[number]
        if source.is_single:
            return f"c{number}"
        if number not in loaded:
            loaded[number] = f"l{number}"
            body.append(f"const {C_TYPES[source.type.dtype]} l{number} = e{number}[i];")
        return loaded[number]

    for number, step in enumerate(chain.steps):
        kind = C_TYPES[step.dtype]
        text = step.text.format(*map(operand, step.args))
        body.append(f"const {kind} v{number} = ({kind})({text});")
    checks_floats = False
    for number, stored in enumerate(chain.stored):
        kind = C_TYPES[stored.type.dtype]
        params.append(f"void *const {'out' if stored.input is not None else 'y'}{number}")
        if stored.input is not None:  # kept until it is known that nobody needs the old elements
            head.append(f"{kind} y{number}[{size}];")
            tail.append(f"for (int i = 0; i < {size}; i++) "
                        f"(({kind} *)out{number})[i] = y{number}[i];")
            body.append(f"y{number}[i] = v{stored.value};")
        else:
            head.append(f"{kind} *const restrict t{number} = y{number};")
            body.append(f"t{number}[i] = v{stored.value};")
        if stored.type.is_float:
            checks_floats = True
            body.append(f"nan |= v{stored.value} != v{stored.value};")
    kept = [f"KEEP(y{number});" for number in range(len(chain.stored))]
    for number in chain.unused:
        head.append(f"{C_TYPES[chain.steps[number].dtype]} u{number}[{size}];")
        body.append(f"u{number}[i] = v{number};")
        kept.append(f"KEEP(u{number});")
    is_exact = not any(i.type.is_float for i in chain.inputs)
    return "\n".join([
        f"static __attribute__((noinline)) int {name}({', '.join(params)}) {{",
        "    int nan = 0;",
        *(f"    {line}" for line in head),
        f"    for (int i = 0; i < {size}; i++) {{",
        *(f"        {line}" for line in body),
        "    }",
        *(f"    {line}" for line in kept),
        *([] if is_exact else ["    if (RARE(s->float_status())) return 1;"]),
        *(["    if (RARE(nan)) return 1;"] if checks_floats else []),
        *(f"    {line}" for line in tail),
        "    return 0;",
        "}",
    ])  # fmt: skip
