"""Generates the body of a kernel in C from a function in normal form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, Final

from ..core.checkpoints import checkpoint
from ..ir import prim
from ..ir.expr import Call, Expr, FloatImm, IntImm, Var
from ..ir.prim import is_float
from ..native.c_support import FEW_ITERATIONS, c_string
from .buffer import Buffer, BufferLoad
from .c_prelude import (
    HALVES,
    STORED,
    VALUES,
    Helpers,
    bits_of,
    float_text,
    int_text,
    scalar_type,
)
from .c_tiles import guards_of, write_tiles
from .facts import Facts
from .flat import is_flat
from .intrinsics import CLZ, IF_THEN_ELSE, INTRINSICS, LIKELY, POPCOUNT, REINTERPRET, RET
from .normalize import Kernel, interchange, is_parallel, loads_of, nest_of, same_indices
from .products import Product
from .stmt import (
    AssertStmt,
    Bind,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    SeqStmt,
    Stmt,
    While,
)
from .trip_counts import has_loops, is_short, trip_count_guards, trip_counts, weight
from .visitor import Visitor

__all__ = ["Names", "Writer"]

_KEYWORDS: Final = frozenset(
    [
        "auto",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "register",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "typedef",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
        "self",
        "args",
        "num_args",
        "ret",
        "fault",
        "iterations",
        "asm",
        "typeof",
        "linux",
        "unix",
        "RELAXVM_KERNEL_H_",
    ]
)


class Names:
    """Unique C identifiers for variables."""

    def __init__(self) -> None:
        self._by_var: dict[int, str] = {}
        self._keep: list[Var] = []
        self._taken: set[str] = set(_KEYWORDS)

    def of(self, var: Var) -> str:
        found = self._by_var.get(id(var))
        if found is None:
            base = re.sub(r"[^0-9A-Za-z_]", "_", var.name) or "v"
            base = f"v{base}" if base[0].isdigit() or base[0] == "_" else base
            # Names with upper case or digits at the end are for variables of the program; those of
            # the generated code are short lower-case words.
            found, number = f"{base}_", 1
            while found in self._taken:
                found, number = f"{base}_{number}", number + 1
            self._taken.add(found)
            self._by_var[id(var)] = found
            self._keep.append(var)
        return found


class Writer:
    """Writes the statements of one body."""

    def __init__(
        self,
        kernel: Kernel,
        symbol: str,
        names: Names,
        helpers: Helpers,
        sites: list[tuple[str, bool]],
        products: dict[For, Product],
    ) -> None:
        self._name = kernel.name
        self._symbol = symbol
        self.names = names
        self._helpers = helpers
        self.facts = Facts()
        for dim in kernel.dims:
            self.facts.bind_dim(dim)
        self.sites = sites
        self._products = products
        """Loops to be written in tiles."""
        self.lines: list[str] = []
        self.faults = 0
        """The number of checks written inside expressions so far."""
        self._exits = 0
        """The number of returns written so far."""
        self.has_loops = False
        self.checks_interrupt = False
        """Whether the body counts iterations and checks for Ctrl-C."""
        self._in_short_loop = False
        self._reads_once = False
        self._loop_depth = 0
        self._depth = 0

    # Statements

    def line(self, text: str) -> None:
        """Append a line."""
        self.lines.append("  " * self._depth + text)

    def indent(self, by: int) -> None:
        """Indent the next lines by more steps than those before."""
        self._depth += by

    def _checked(self, since: int) -> None:
        """After expressions: write a return if one of their checks failed."""
        if self.faults > since:
            self._exits += 1
            self.line(f"if (UNLIKELY(fault.site)) return fail(&fault, {self._symbol}_sites);")

    def statement(self, stmt: Stmt) -> None:
        """Write a statement."""
        checkpoint()
        _STATEMENTS[type(stmt)](self, stmt)

    def _seq(self, stmt: SeqStmt) -> None:
        for part in stmt.seq:
            self.statement(part)

    def _for(self, loop: For) -> None:
        product = self._products.pop(loop, None)
        if product is not None:
            self._product(loop, product)
            return
        flat = self._flat(loop)
        if flat is not None:
            self.has_loops = True
            self.lines += flat
            return
        since = self.faults
        var = self.names.of(loop.loop_var)
        least = self._once(loop.min)
        extent = self._once(loop.extent)
        end = extent
        self.line("{")
        self._depth += 1
        if not (isinstance(loop.extent, (IntImm, Var)) and least in ("0", "0LL")):
            # The bounds and the step are evaluated once, before the loop.
            self.line(f"const int64_t {var}from = {least}, {var}to = {var}from + {extent};")
            least, end = f"{var}from", f"{var}to"
        advance = f"{var}++"
        if loop.step is not None:
            self.line(f"const int64_t {var}by = {self._once(loop.step)};")
            advance = f"{var} += {var}by"
            last = [self.facts.interval(e)[1] for e in (loop.min, loop.extent, loop.step)]
            if sum(last) >= 2**63:  # the last increment may overflow
                advance = (f"{var} = (uint64_t){var}by < (uint64_t){end} - (uint64_t){var} ? "
                           f"{var} + {var}by : {end}")  # fmt: skip
        self._checked(since)
        if loop.step is not None and type(loop.step) is not IntImm:
            step = f"{var}by"
            place = f"{self._name}: loop {loop.loop_var.name}"
            self.line(f"if (UNLIKELY({step} <= 0))")
            self.line("  return refuse(\"ValueError\", \"%s: the step is %lld\", "
                       f"{c_string(place)}, (long long){step});")  # fmt: skip
        with self.facts.loop(loop.loop_var, loop.min, loop.extent):
            self._iterations(loop, loop, var, least, end, advance)
        self._depth -= 1
        self.line("}")
        self.has_loops = True

    def _product(self, loop: For, product: Product) -> None:
        """Write a product in tiles, and as loops for sizes for which these are faster."""
        tiles = self._proved(lambda: write_tiles(self, product))
        loops = interchange(loop, always=False)
        if tiles is None:
            self.statement(loops)
            return
        self.has_loops = True
        guards = guards_of(self, product)
        self.line(f"if ({' && '.join(guards)}) {{" if guards else "{")
        self._depth += 1
        if product.init is not None:
            self.statement(product.init)
        self.lines += tiles
        self._depth -= 1
        if guards:
            self.line("} else {")
            self._depth += 1
            self.statement(loops)
            self._depth -= 1
        self.line("}")

    def _flat(self, loop: For) -> list[str] | None:
        """The lines of a nest of loops as one loop, None if it is not one or has checks."""
        nest, body = nest_of(loop)
        if not is_flat(nest, body):
            return None

        def write() -> bool:
            *outer, inner = nest
            var = self.names.of(inner.loop_var)
            self.line("{")
            self._depth += 1
            for each in outer:  # the innermost variable counts the iterations of all
                self.line(f"const int64_t {self.names.of(each.loop_var)} UNUSED = 0;")
            total = " * ".join(f"(int64_t)({self.expression(each.extent)})" for each in nest)
            self.line(f"const int64_t {var}to = {total};")
            with ExitStack() as facts:
                for each in nest:
                    facts.enter_context(self.facts.loop(each.loop_var, each.min, each.extent))
                self._iterations(inner, loop, var, "0", f"{var}to", f"{var}++")
            self._depth -= 1
            self.line("}")
            return True

        return self._proved(write)

    def _proved(self, write: Callable[[], bool]) -> list[str] | None:
        """The lines that a function writes, None if it returns False or if there are checks of
        indices or divisors among them.  The function writes one step to the right."""
        lines, faults, exits, sites = len(self.lines), self.faults, self._exits, len(self.sites)
        checks_interrupt = self.checks_interrupt
        self._depth += 1
        is_proved = write() and (self.faults, self._exits) == (faults, exits)
        self._depth -= 1
        written = self.lines[lines:]
        del self.lines[lines:]
        if is_proved:
            return written
        del self.sites[sites:]
        self.faults, self._exits, self.checks_interrupt = faults, exits, checks_interrupt
        return None

    def _iterations(
        self, loop: For, nest: For, var: str, least: str, end: str, advance: str
    ) -> None:
        """Write a loop after its bounds.  A short loop (see `is_short`) and the loops inside it
        have no check for Ctrl-C; the loops around it, and loops that may be long, do.

        Args:
            loop: the loop.
            nest: the outermost of the loops that it is instead of; the loop itself if it is one.
            var: its variable in C.
            least, end: the bounds in C.
            advance: the expression for the next value of `var`.
        """
        head = f"for (int64_t {var} = {least}; {var} < {end}; {advance}) {{"
        if self._in_short_loop or is_short(nest):
            outermost, self._in_short_loop = not self._in_short_loop, True
            guards = [self.expression(e) for e in trip_count_guards(loop)] if outermost else []
            if guards:
                head = f"if ({' && '.join(f'{text} > 0' for text in guards)}) {head}"
            self._block(head, loop.body, hint=not guards and _is_vectorized(loop))
            self._in_short_loop = not outermost
            if outermost and self._loop_depth and trip_counts(nest) is None:
                self.line(f"iterations += (uint64_t){end} - (uint64_t)({least});")
            return
        if has_loops(loop.body) or loop.step is not None:
            self._block(head, loop.body, self._iteration_weight(loop.body))
            return
        # Split into runs of iterations without a check, which the compiler may vectorize.
        at, stop = f"{var}at", f"{var}stop"
        each = weight(loop.body)
        run = "ITERATIONS_PER_CHECK" if each == 1 else str(max(1, FEW_ITERATIONS // each))
        times = "" if each == 1 else f" * {each}"
        self.line(f"for (int64_t {at} = {least}, {stop}; {at} < {end}; {at} = {stop}) {{")
        self._depth += 1
        self.line(f"{stop} = (uint64_t){end} - (uint64_t){at} > {run} ? "
                   f"{at} + {run} : {end};")  # fmt: skip
        self._block(f"for (int64_t {var} = {at}; {var} < {stop}; {advance}) {{", loop.body,
                    hint=_is_vectorized(loop))  # fmt: skip
        self.check_interrupt(f"((uint64_t){stop} - (uint64_t){at}){times}")
        self._depth -= 1
        self.line("}")

    def _block(self, head: str, body: Stmt, weight: str = "", *, hint: bool = False) -> None:
        """Write a loop with the given head; checks for Ctrl-C if there is a `weight`, the C
        expression for what one iteration adds to the count.  With `hint` the compiler is told that
        its iterations are independent, if none of them returns."""
        at, exits = len(self.lines), self._exits
        self.line(head)
        self._depth += 1
        self._loop_depth += 1
        if not isinstance(body, BufferStore) and _moves_values(body):
            self.line("ONE_BY_ONE;")
        self.statement(body)
        self._loop_depth -= 1
        if weight:
            self.check_interrupt(weight)
        self._depth -= 1
        self.line("}")
        if hint and self._exits == exits:
            self.lines.insert(at, "  " * self._depth + "VECTORIZED")

    def check_interrupt(self, weight: str) -> None:
        self.checks_interrupt = True
        self.line(f"CHECK_INTERRUPT({weight});")

    def _iteration_weight(self, body: Stmt) -> str:
        """The count of one iteration: its weight, plus the iterations of the loops in its body that
        do not count themselves."""
        numbers = [str(weight(body))]
        for part in body.seq if isinstance(body, SeqStmt) else (body,):
            if isinstance(part, For) and is_short(part):
                numbers += [
                    " * ".join(f"(uint64_t)({self.expression(e)})" for e in product)
                    for product in trip_counts(part) or ()
                ]
        return " + ".join(numbers)

    def _while(self, stmt: While) -> None:
        self.line("for (;;) {")
        self._depth += 1
        self.check_interrupt(str(weight(stmt)))
        since = self.faults
        self.line(f"const int go = {self.expression(stmt.condition)};")
        self._checked(since)
        self.line("if (!go) break;")
        self._loop_depth += 1
        self.statement(stmt.body)
        self._loop_depth -= 1
        self._depth -= 1
        self.line("}")

    def _if(self, stmt: IfThenElse) -> None:
        since = self.faults
        condition = self.expression(stmt.condition)
        self.line("{")
        self._depth += 1
        if self.faults > since:
            self.line(f"const int holds = {condition};")
            self._checked(since)
            condition = "holds"
        self.line(f"if ({condition}) {{")
        self._branch(stmt.then_case, stmt.condition, True)
        if stmt.else_case is not None:
            self.line("} else {")
            self._branch(stmt.else_case, stmt.condition, False)
        self.line("}")
        self._depth -= 1
        self.line("}")

    def _branch(self, stmt: Stmt, condition: Expr, holds: bool) -> None:
        self._depth += 1
        with self.facts.given(condition, holds):
            self.statement(stmt)
        self._depth -= 1

    def _bind(self, stmt: Bind) -> None:
        since = self.faults
        dtype = stmt.var.ty.dtype
        value = (self.expression if is_float(dtype) else self._once)(stmt.value)
        self.facts.forget(stmt.var)
        self.line(f"const {scalar_type(dtype)} {self.names.of(stmt.var)} = {value};")
        self._checked(since)

    def _assert(self, stmt: AssertStmt) -> None:
        since = self.faults
        condition = self.expression(stmt.condition)
        message = "".join(part.value for part in stmt.message_parts)
        self.line("{")
        self.line(f"  const int holds = {condition};")
        self._checked(since)
        self.line(f"  if (UNLIKELY(!holds)) return refuse({c_string(stmt.kind.value)}, \"%s\", "
                   f"{c_string(f'{self._name}: {message}')});")  # fmt: skip
        self.line("}")

    def _evaluate(self, stmt: Evaluate) -> None:
        value = stmt.value
        if not (isinstance(value, Call) and value.op is RET):
            return
        since = self.faults
        dtype = value.args[0].dtype
        result = self.expression(value.args[0])
        tag = "RVM_REAL" if is_float(dtype) else "RVM_BOOL" if dtype == "bool" else "RVM_INT"
        field = "float" if is_float(dtype) else "int"
        self.line("{")
        self.line(f"  const {scalar_type(dtype)} result = {result};")
        self._checked(since)
        self.line(f"  *ret = (RvmAny){{.type = {tag}, .as_{field} = result}};")
        self.line("  return RVM_OK;")
        self.line("}")

    def _store(self, stmt: BufferStore) -> None:
        since = self.faults
        buffer, dtype = stmt.buffer, stmt.buffer.ty.dtype
        value = self.expression(stmt.value)
        texts = [self._once(i) for i in stmt.indices]
        unproven = [d for d, (i, n) in enumerate(zip(stmt.indices, buffer.ty.shape, strict=True))
                    if not self.facts.in_bounds(i, n)]  # fmt: skip
        stored = self._to_memory(value, dtype)
        if self.faults == since and not unproven:
            self.line(f"{self.element(buffer, texts)} = {stored};")
            return
        self.line("{")
        self._depth += 1
        self.line(f"const {VALUES[dtype]} value = {value};")
        for d, text in enumerate(texts):
            self.line(f"const int64_t i{d} = {text};")
        names = [f"i{d}" for d in range(len(texts))]
        self._checked(since)
        self._exits += len(unproven)
        for d in unproven:
            site = self._site(buffer, d)
            length = self.expression(buffer.ty.shape[d])
            self.line(f"if (UNLIKELY((uint64_t)i{d} >= (uint64_t)({length})))")
            self.line(f"  return fail(&(Fault){{{site}, i{d}, {length}}}, {self._symbol}_sites);")
        self.line(f"{self.element(buffer, names)} = {self._to_memory('value', dtype)};")
        self._depth -= 1
        self.line("}")

    # Memory

    def _site(self, buffer: Buffer, dimension: int) -> int:
        text = f"{self._name}: buffer {buffer.name}, dimension {dimension}"
        return self._add_site(text, True)

    def _add_site(self, text: str, is_index: bool) -> int:
        sites = self.sites
        if (text, is_index) not in sites:
            sites.append((text, is_index))
        return sites.index((text, is_index)) + 1

    def element(self, buffer: Buffer, indices: Sequence[str]) -> str:
        """An element, given indices that are within bounds, so that the offset cannot overflow."""
        offset = ""
        for index, dim in zip(indices, buffer.ty.shape, strict=True):
            if not offset:
                offset = index
            else:
                length = self.expression(dim)
                offset = f"({offset}) * (int64_t)({length}) + {index}"
        name = self.names.of(buffer)
        return f"{name}[{offset or '0'}]"

    def _to_memory(self, value: str, dtype: str) -> str:
        return f"{self._helpers.half(dtype, False)}({value})" if dtype in HALVES else value

    def _from_memory(self, element: str, dtype: str) -> str:
        if self._reads_once:
            element = f"(*(const volatile {STORED[dtype]} *)&{element})"
        if dtype in HALVES:
            return f"{self._helpers.half(dtype, True)}({element})"
        return f"({element} != 0)" if dtype == "bool" else element

    def _load(self, load: BufferLoad) -> str:
        buffer, dtype = load.buffer, load.buffer.ty.dtype
        texts = [self._once(i) for i in load.indices]
        unproven = [d for d, (i, n) in enumerate(zip(load.indices, buffer.ty.shape, strict=True))
                    if not self.facts.in_bounds(i, n)]  # fmt: skip
        if not unproven:
            return self._from_memory(self.element(buffer, texts), dtype)
        self.faults += 1
        # The names in each statement expression are unique, since these may nest.  `Names` never
        # generates such names.
        number = self.faults
        names = [f"x{number}at{d}" for d in range(len(texts))]
        binds = " ".join(f"const int64_t {n} = {t};" for n, t in zip(names, texts, strict=True))
        element = self._from_memory(self.element(buffer, names), dtype)
        for d in reversed(unproven):
            length = self.expression(buffer.ty.shape[d])
            element = (
                f"LIKELY((uint64_t){names[d]} < (uint64_t)({length})) ? {element} : "
                f"({VALUES[dtype]})record(&fault, {self._site(buffer, d)}, {names[d]}, {length})"
            )
        return f"({{ {binds} {element}; }})"

    # Expressions

    def _once(self, e: Expr) -> str:
        """An expression whose value is checked or bounded before it is used: `expression`, but
        elements are loaded exactly once.  Otherwise the C compiler may load an element again for
        the use, when another thread has written something else there."""
        outer, self._reads_once = self._reads_once, True
        text = self.expression(e)
        self._reads_once = outer
        return text

    def expression(self, e: Expr) -> str:
        """An expression as text that needs no parentheses around it."""
        kind = type(e)
        if isinstance(e, Buffer):
            raise NotImplementedError(f"{self._name}: buffer {e.name} is used as a value")
        if isinstance(e, Var):
            return self.names.of(e)
        if kind is IntImm:
            return int_text(e.value, e.dtype)  # type: ignore[attr-defined]
        if kind is FloatImm:
            return self._rounded(float_text(e.value, e.dtype), e.dtype)  # type: ignore[attr-defined]
        if kind is BufferLoad:
            return self._load(e)  # type: ignore[arg-type]
        if kind is Call:
            return self._call(e)  # type: ignore[arg-type]
        method = _EXPRESSIONS.get(kind)
        if method is None:
            raise NotImplementedError(
                f"{self._name}: expressions of class {kind.__name__} cannot be lowered"
            )
        return method(self, e)

    def _rounded(self, text: str, dtype: str) -> str:
        """Round the result of an operation on floats to its data type."""
        return f"{self._helpers.round_half(dtype)}({text})" if dtype in HALVES else text

    def _wrapped(self, text: str, e: Expr) -> str:
        """Wrap the result of an operation on integers to its data type."""
        if e.dtype in ("int64", "uint64") or self.facts.fits(e):
            return f"({text})"
        if e.dtype == "bool":
            return f"(({text}) != 0)"
        return f"(({VALUES[e.dtype]})({text}))"

    def _arithmetic(self, e: Any) -> str:
        text = f"{self.expression(e.a)} {e.SYMBOL} {self.expression(e.b)}"
        if is_float(e.dtype):
            return self._rounded(f"({text})", e.dtype)
        if e.dtype == "uint64":
            text = f"(uint64_t){self.expression(e.a)} {e.SYMBOL} (uint64_t){self.expression(e.b)}"
        return self._wrapped(text, e)

    def _divide(self, e: Any) -> str:
        """`Div` and `Mod` truncate, `FloorDiv` and `FloorMod` round down."""
        dtype = e.dtype
        a, b = self.expression(e.a), (self.expression if is_float(dtype) else self._once)(e.b)
        kind = {prim.Div: "truncdiv", prim.Mod: "truncmod", prim.FloorDiv: "floordiv",
                prim.FloorMod: "floormod"}[type(e)]  # fmt: skip
        if is_float(dtype):
            suffix = "" if dtype == "float64" else "f"
            if kind == "truncdiv":
                return self._rounded(f"({a} / {b})", dtype)
            if kind == "truncmod":
                return self._rounded(f"__builtin_fmod{suffix}({a}, {b})", dtype)
            quotient = self._rounded(f"({a} / {b})", dtype)
            whole = f"__builtin_floor{suffix}({quotient})"
            if kind == "floordiv":
                return whole
            product = self._rounded(f"({whole} * {b})", dtype)
            return self._rounded(f"({a} - {product})", dtype)
        facts = self.facts
        if facts.interval(e.a)[0] >= 0 and facts.interval(e.b)[0] > 0:
            sign = "/" if kind.endswith("div") else "%"
            return f"({a} {sign} {b})"
        name = self._helpers.divide(kind, dtype)
        if facts.is_nonzero(e.b):
            return f"{name}({a}, {b})"
        self.faults += 1
        x, y = f"x{self.faults}", f"y{self.faults}"
        t = VALUES[dtype]
        site = self._add_site(f"{self._name}: integer division by zero", False)
        return (f"({{ const {t} {x} = {a}, {y} = {b}; LIKELY({y} != 0) ? {name}({x}, {y}) : "
                f"({t})record(&fault, {site}, 0, 0); }})")  # fmt: skip

    def _extreme(self, e: Any) -> str:
        kind = "max" if type(e) is prim.Max else "min"
        name = self._helpers.extreme(kind, e.dtype)
        return f"{name}({self.expression(e.a)}, {self.expression(e.b)})"

    def _bitwise(self, e: Any) -> str:
        return f"(({VALUES[e.dtype]})({self.expression(e.a)} {e.SYMBOL} {self.expression(e.b)}))"

    def _shift(self, e: Any) -> str:
        kind = "shl" if type(e) is prim.LShift else "shr"
        return (
            f"{self._helpers.shift(kind, e.dtype)}({self.expression(e.a)}, {self.expression(e.b)})"
        )

    def _compare(self, e: Any) -> str:
        a, b = self.expression(e.a), self.expression(e.b)
        if e.a.dtype == "uint64":
            a, b = f"(uint64_t){a}", f"(uint64_t){b}"
        return f"({a} {e.SYMBOL} {b})"

    def _logic(self, e: Any) -> str:
        is_and = type(e) is prim.And
        a = self.expression(e.a)
        with self.facts.given(e.a, is_and):
            b = self.expression(e.b)
        return f"({a} {'&&' if is_and else '||'} {b})"

    def _not(self, e: Any) -> str:
        return f"(!{self.expression(e.a)})"

    def _invert(self, e: Any) -> str:
        if e.dtype == "bool":
            return self._not(e)
        return f"(({VALUES[e.dtype]})~{self.expression(e.a)})"

    def _choose(self, condition: Expr, true_value: Expr, false_value: Expr) -> str:
        test = self.expression(condition)
        with self.facts.given(condition, True):
            yes = self.expression(true_value)
        with self.facts.given(condition, False):
            no = self.expression(false_value)
        return f"({test} ? {yes} : {no})"

    def _select(self, e: Any) -> str:
        return self._choose(e.condition, e.true_value, e.false_value)

    def _let(self, e: Any) -> str:
        value = (self.expression if is_float(e.var.dtype) else self._once)(e.value)
        self.facts.forget(e.var)
        name = self.names.of(e.var)
        return (
            f"({{ const {scalar_type(e.var.dtype)} {name} = {value}; {self.expression(e.body)}; }})"
        )

    def _cast(self, e: Any) -> str:
        source, dtype, text = e.value.dtype, e.dtype, self.expression(e.value)
        if dtype not in VALUES or source not in VALUES:
            raise NotImplementedError(
                f"{self._name}: C cannot express a cast of {source} to {dtype}"
            )
        if dtype == "bool":
            return f"({text} != 0)"
        if is_float(dtype):
            if dtype == "float16":
                exact = text if is_float(source) else f"(float){text}"
                return f"{self._helpers.round_half(dtype)}({exact})"
            value = f"(({VALUES[dtype]}){text})"
            return (
                value
                if source == "float16" and dtype != "bfloat16"
                else self._rounded(value, dtype)
            )
        if is_float(source):
            return f"{self._helpers.to_int(source, dtype)}({text})"
        low, high = prim._range(dtype)
        interval = self.facts.interval(e.value)
        if dtype != "uint64" and low <= interval[0] and interval[1] <= high:
            # An index stays wide; elsewhere a wider type is what the cast asks for.  Arithmetic in
            # C is signed if its operands are.
            if source.startswith("uint") or dtype == "uint32":
                return f"(({VALUES[dtype]}){text})"
            return f"((int64_t){text})" if dtype == "int64" else text
        return f"(({VALUES[dtype]}){text})"

    def _call(self, call: Call) -> str:
        op, args = call.op, call.args
        if op is IF_THEN_ELSE:
            return self._choose(args[0], args[1], args[2])
        if op is LIKELY:
            return f"LIKELY({self.expression(args[0])})"
        row = INTRINSICS.get(getattr(op, "name", ""))
        if row is not None:
            dtype = args[0].dtype
            name = self._helpers.function(row, dtype)
            result = f"{name}({', '.join(self.expression(a) for a in args)})"
            return result if row.result else self._rounded(result, dtype)
        if op is POPCOUNT or op is CLZ:
            dtype = args[0].dtype
            bits = bits_of(dtype)
            text = f"(uint64_t)(uint{bits}_t){self.expression(args[0])}"
            if op is POPCOUNT:
                return f"__builtin_popcountll({text})"
            name = self._helpers.use(
                f"clz{bits}",
                f"int clz{bits}(uint64_t x) {{\n"
                f"  return x ? __builtin_clzll(x) - {64 - bits} : {bits};\n}}",
            )
            return f"{name}({text})"
        if op is REINTERPRET:
            return self._reinterpret(args[0], call.dtype)
        raise NotImplementedError(f"{self._name}: {getattr(op, 'name', op)} cannot be lowered")

    def _reinterpret(self, value: Expr, dtype: str) -> str:
        source = value.dtype
        stored = self._to_memory(self.expression(value), source)
        name = self._helpers.use(
            f"{source}_as_{dtype}",
            f"{STORED[dtype]} {source}_as_{dtype}({STORED[source]} x) {{\n"
            f"  union {{ {STORED[source]} from; {STORED[dtype]} to; }} u = {{x}};\n"
            "  return u.to;\n}",
        )
        return self._from_memory(f"{name}({stored})", dtype)


def _moves_values(body: Stmt) -> bool:
    """Whether the body of a loop reads elements of a buffer at other indices than it writes, so
    that an iteration may need what an earlier one has written."""
    places: dict[Buffer, Sequence[Expr]] = {}
    moved: set[Buffer] = set()

    class Stores(Visitor):
        def visit_BufferStore(self, store: BufferStore) -> None:
            place = places.setdefault(store.buffer, store.indices)
            if not same_indices(place, store.indices):
                moved.add(store.buffer)

    Stores().visit(body)
    return any(
        load.buffer in moved or not same_indices(places[load.buffer], load.indices)
        for load in loads_of(body)
        if load.buffer in places
    )


def _is_vectorized(loop: For) -> bool:
    """Whether a loop is declared to run in vectors and has independent iterations."""
    return loop.kind == ForKind.VECTORIZED and is_parallel(loop)


_STATEMENTS: Final[dict[type, Callable[[Writer, Any], None]]] = {
    SeqStmt: Writer._seq,
    For: Writer._for,
    While: Writer._while,
    IfThenElse: Writer._if,
    Bind: Writer._bind,
    AssertStmt: Writer._assert,
    Evaluate: Writer._evaluate,
    BufferStore: Writer._store,
}


def _each(kinds: Iterable[type], method: Callable[[Writer, Any], str]) -> dict[type, Any]:
    return dict.fromkeys(kinds, method)


_EXPRESSIONS: Final[dict[type, Callable[[Writer, Any], str]]] = {
    **_each((prim.Add, prim.Sub, prim.Mul), Writer._arithmetic),
    **_each((prim.Div, prim.Mod, prim.FloorDiv, prim.FloorMod), Writer._divide),
    **_each((prim.Max, prim.Min), Writer._extreme),
    **_each((prim.BitwiseAnd, prim.BitwiseOr, prim.BitwiseXor), Writer._bitwise),
    **_each((prim.LShift, prim.RShift), Writer._shift),
    **_each((prim.EQ, prim.NE, prim.LT, prim.LE, prim.GT, prim.GE), Writer._compare),
    **_each((prim.And, prim.Or), Writer._logic),
    prim.Not: Writer._not,
    prim.BitwiseNot: Writer._invert,
    prim.Select: Writer._select,
    prim.Let: Writer._let,
    prim.Cast: Writer._cast,
}
