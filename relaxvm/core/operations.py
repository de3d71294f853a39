"""The operations of the dispatch loop: one table from which all that names them is derived.

The translator (``_translate.pyx``) turns the instructions of an executable into *operations*,
which the loop (``_core.pyx``) runs.  An operation is a run of signed 64-bit words: its code, its
operands in the order of the table, and for a variadic one a count and that many items.  The
opcodes, the names of operand positions, the functions that emit an operation, the reference page
and the listing that ``relaxvm dis --translated`` prints all come from `OPERATIONS`;
``scripts/gen_operations.py`` writes the generated files.

A *fallback* is code that does the same work by a call of the builtin's Python reference.  An
operation takes it where its operands are not of the expected kind.  The fallback gives the result
or raises the error, so an operation that has one never raises.  Fallbacks stand after the main
part of a function's code, and each ends with a jump back to the end of the operation.

`REWRITINGS` names what the translator does beyond one call for each instruction.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from .rewritings import REWRITINGS, Optimize, Rewriting, enabled_rewritings

__all__ = [
    "BUILTINS",
    "BY_CODE",
    "BY_NAME",
    "OPERATIONS",
    "REWRITINGS",
    "Operand",
    "OperandKind",
    "Operation",
    "Optimize",
    "Rewriting",
    "enabled_rewritings",
]


class OperandKind(Enum):
    """What an operand is."""

    FALLBACK = "distance in words from the start of the operation to its fallback"
    DISTANCE = "distance in words from the start of the operation to the next one"
    DST = "register that is written"
    REGISTER = "register that is read and cleared"
    SOURCE = "register that is read"
    VALUE = "register if not negative, else a position before the end of the pool of constants"
    CONSTANT = "position before the end of the pool of constants"
    OFFSET = "offset in words from the first register of the frame"
    NUMBER = "number"
    COUNT = "number of items that follow"
    OBJECT = "pointer to an object, or 0"
    FUNCTION = "pointer to a translated function"
    SITE = "pointer to what this place in the code remembers from its last run"
    UFUNC = "pointer to a numpy ufunc, and its inner loop for the data types of the last run"
    MATCH = "code of match_shape and its number"
    MAKE = "code of make_shape and its number"
    CONSTRUCTOR = "position of a constructor's name among the constants, and its number of fields"
    STEP = "word of a shape program"


class Operand(NamedTuple):
    """An operand of an operation.

    Attributes:
        name: unique in the operation.
        kind: what it is.
    """

    name: str
    kind: OperandKind

    @property
    def words(self) -> int:
        """Words it takes."""
        return _WORDS.get(self.kind, 1)


_WORDS: Final = {OperandKind.UFUNC: 8, OperandKind.MATCH: 2, OperandKind.MAKE: 2,
                 OperandKind.CONSTRUCTOR: 2}


class Operation(NamedTuple):
    """A row of the table.

    Attributes:
        name: mnemonic.
        operands: the fixed operands, in order.  A fallback comes first.
        tail: the repeated operand after the count, or None.
        meaning: pseudo-code; ``R`` is the register file, and operands stand for their values.
        fallback: when the operation takes its fallback; empty if it has none.
        builtin: the builtin of which a call becomes this operation, if there is one.
    """

    name: str
    operands: tuple[Operand, ...]
    tail: Operand | None
    meaning: str
    fallback: str = ""
    builtin: str = ""

    def __repr__(self) -> str:
        return f"<Operation {self.name}>"

    @property
    def code(self) -> int:
        """The first word."""
        return _CODES[self.name]

    @property
    def fixed_words(self) -> int:
        """Words without the items of the tail; its count is included."""
        return 1 + sum(operand.words for operand in self.fixed)

    @property
    def fixed(self) -> tuple[Operand, ...]:
        """The operands without the tail, but with its count."""
        if self.tail is None:
            return self.operands
        return (*self.operands, Operand("count", OperandKind.COUNT))

    @property
    def has_dst(self) -> bool:
        """Whether it has a result."""
        return any(operand.kind is OperandKind.DST for operand in self.operands)

    def positions(self) -> dict[str, int]:
        """Position of each operand, count and tail included, in words from the start."""
        found, at = {}, 1
        for operand in self.fixed:
            found[operand.name] = at
            at += operand.words
        if self.tail is not None:
            found[self.tail.name] = at
        return found


def _operand(text: str) -> Operand:
    """``name`` or ``name:kind``; the kind is that of the name if it is not given."""
    name, _, kind = text.partition(":")
    return Operand(name, OperandKind[(kind or name).upper()])


def _operation(
    name: str, operands: str, meaning: str, *, fallback: str = "", builtin: str = ""
) -> Operation:
    """A row, with operands as words of a text; ``*`` marks the tail."""
    words = operands.split()
    tail = None
    if words and words[-1].startswith("*"):
        tail = _operand(words.pop()[1:])
    first = (Operand("fallback", OperandKind.FALLBACK),) if fallback else ()
    return Operation(name, (*first, *map(_operand, words)), tail, meaning, fallback, builtin)


OPERATIONS: Final = (
    _operation("ret", "result:source registers:number",
               "return R[result]; the first of the registers, so many, are released"),
    _operation("goto", "distance", "continue at distance"),
    _operation("goto_back", "distance", "poll now and then; continue at distance"),
    _operation("if", "cond:value otherwise:distance", "if not cond: continue at otherwise"),
    _operation("call", "dst callee:constant area:offset *args:value",
               "R[dst] = as_value(callee(*args)), with args laid out in area"),
    _operation("call_void", "callee:constant area:offset *args:value",
               "callee(*args), with args laid out in area"),
    _operation("call_native", "dst callee:constant *args:value",
               "R[dst] = as_value(callee(*args)) of a NativeFunction"),
    _operation("call_vm", "dst callee:function frame:offset *args:value",
               "push a frame at frame; R[dst] = callee(*args) when it returns"),
    _operation("tail_call_vm", "callee:function area:offset *args:value",
               "the frame becomes that of callee(*args), with args laid out in area",
               fallback="the chunk of memory that the frame is in has no room for that of callee"),
    _operation("copy", "dst value", "R[dst] = value", builtin="vm.builtin.copy"),
    _operation("null", "dst", "R[dst] = None", builtin="vm.builtin.null_value"),
    _operation("make_tuple", "dst *items:value", "R[dst] = items",
               builtin="vm.builtin.make_tuple"),
    _operation("tuple_getitem", "dst tuple:source index:number", "R[dst] = tuple[index]",
               fallback="tuple is not a tuple of more than index items",
               builtin="vm.builtin.tuple_getitem"),
    _operation("make_adt", "dst constructor:constant tag:number *fields:value",
               "R[dst] = Adt(constructor, tag, fields)", builtin="relaxvm.builtin.make_adt"),
    _operation("adt_tag", "dst x:source", "R[dst] = x.tag", fallback="x is not an Adt",
               builtin="relaxvm.builtin.adt_tag"),
    _operation("match_tag", "dst x:source *constructors:constructor",
               "R[dst] = x.tag, the position of its constructor among constructors",
               fallback="x is not an Adt of the constructor that stands at the position of its tag",
               builtin="relaxvm.builtin.match_tag"),
    _operation("adt_field", "dst x:source index:number", "R[dst] = x.fields[index]",
               fallback="x is not an Adt of more than index fields",
               builtin="relaxvm.builtin.adt_field"),
    _operation("tag_is", "dst tag:source number", "R[dst] = tag == number",
               fallback="tag is not an int, or larger than 30 bits",
               builtin="relaxvm.builtin.tag_is"),
    _operation("if_tag", "dst tag:source number otherwise:distance",
               "R[dst] = tag == number; if not R[dst]: continue at otherwise",
               fallback="tag_is would take its fallback"),
    _operation("shape_of", "dst tensor:source site", "R[dst] = Shape(tensor.shape)",
               fallback="tensor is not an array of at most 8 dimensions",
               builtin="vm.builtin.shape_of"),
    _operation("make_shape", "dst heap:value last_slot:number site *dims:make",
               "R[dst] = Shape of dims, which are numbers or slots of heap; last_slot is -1 where "
               "none is a slot, and -2 where heap is known to have them",
               fallback="heap is not an int64 array of more than last_slot slots",
               builtin="vm.builtin.make_shape"),
    _operation("match_shape", "x:source heap:value last_slot:number *dims:match",
               "compare the shape of x with dims, and store dimensions in heap",
               fallback="the shape does not match, x has none, or heap is not an int64 array of "
               "more than last_slot slots",
               builtin="vm.builtin.match_shape"),
    _operation("check_tensor", "x:source ndim:number dtype:object",
               "check that x is an array of ndim dimensions (-1: any) and dtype (0: any)",
               fallback="the check fails", builtin="vm.builtin.check_tensor_info"),
    _operation("check_match",
               "x:source ndim:number dtype:object heap:value last_slot:number *dims:match",
               "check_tensor(x, ndim, dtype), then match_shape(x, heap, dims)",
               fallback="one of them would take its fallback"),
    _operation("check_shape", "x:source ndim:number",
               "check that x is a Shape of ndim dimensions (-1: any)",
               fallback="the check fails", builtin="vm.builtin.check_shape_info"),
    _operation("check_tuple", "x:source size:number", "check that x is a tuple of size items",
               fallback="the check fails", builtin="vm.builtin.check_tuple_info"),
    _operation("check_func", "x:source", "check that x is a closure or a VM function",
               fallback="the check fails; other callables pass it there",
               builtin="vm.builtin.check_func_info"),
    _operation("check_prim", "x:source floats:number",
               "check that x is an int or a bool, or a float if floats",
               fallback="the check fails", builtin="vm.builtin.check_prim_value_info"),
    _operation("match_prim", "x:source heap:value code:number value:number",
               "compare the int x with value or a slot of heap, or store it there, as code says",
               fallback="it differs, x is not an int of 64 bits, or heap is not an int64 array "
               "with the slot", builtin="vm.builtin.match_prim_value"),
    _operation("make_prim", "dst heap:value code:number value:number",
               "R[dst] = value, or heap[value], as code says",
               fallback="heap is not an int64 array with the slot",
               builtin="vm.builtin.make_prim_value"),
    _operation("read_cond", "dst x:source", "R[dst] = bool(x)",
               fallback="x is not a bool, an int or an integer array with a first element",
               builtin="vm.builtin.read_if_cond"),
    _operation("read_if", "dst x:source otherwise:distance",
               "R[dst] = bool(x); if not R[dst]: continue at otherwise",
               fallback="read_cond would take its fallback"),
    _operation("compute_shape", "heap:value last_slot:number *steps:step",
               "run steps, a shape program, over heap",
               fallback="heap is not an int64 array of more than last_slot slots, a result does "
               "not fit 64 bits, or a divisor is 0",
               builtin="relaxvm.builtin.compute_shape"),
    _operation("alloc_heap", "dst slots:number site", "R[dst] = zeroed int64[slots]",
               builtin="vm.builtin.alloc_shape_heap"),
    _operation("alloc_storage", "dst allocator:object nbytes:number",
               "R[dst] = allocator.alloc(nbytes)",
               fallback="there is no memory, or none is left under the limit",
               builtin="vm.builtin.alloc_storage"),
    _operation("alloc_storage_dyn", "dst allocator:object shape:value itemsize:number",
               "R[dst] = allocator.alloc(product of shape * itemsize)",
               fallback="shape is not a Shape of at most 8 dimensions, one is negative, their "
               "product does not fit, or there is no memory",
               builtin="vm.builtin.alloc_storage"),
    _operation("alloc_tensor", "dst storage:value offset:number shape:value dtype:object",
               "R[dst] = array of shape and dtype over storage, from byte offset on",
               fallback="storage is not a Storage with room for it, or shape is not a Shape of at "
               "most 8 dimensions", builtin="vm.builtin.alloc_tensor"),
    _operation("alloc_tensor_of",
               "dst storage:value offset:number end:number dtype:object *dims:number",
               "R[dst] = array of dims and dtype over the bytes of storage from offset to end",
               fallback="storage is not a Storage of end bytes",
               builtin="vm.builtin.alloc_tensor"),
    _operation("alloc_static",
               "dst storage:register allocator:object nbytes:number offset:number dtype:object "
               "site *dims:number",
               "R[storage] = None; R[dst] = array of dims and dtype from byte offset on over a "
               "storage of nbytes from allocator, or the site's last one if nobody holds it",
               fallback="there is no memory, or none is left under the limit"),
    _operation("reshape", "dst tensor:value shape:value", "R[dst] = tensor.reshape(shape)",
               fallback="tensor is not a contiguous array with elements, or shape is not a Shape "
               "of as many", builtin="vm.builtin.reshape"),
    _operation("load_function", "dst function:function",
               "R[dst] = a new VMFunction for function, which keeps the machine alive"),
    _operation("make_closure_of", "dst function:function *captured:value",
               "R[dst] = Closure(function, captured), which keeps the machine alive",
               builtin="vm.builtin.make_closure"),
    _operation("make_closure", "dst function:value *captured:value",
               "R[dst] = Closure(function, captured)",
               fallback="function is not a VM function", builtin="vm.builtin.make_closure"),
    _operation("invoke_closure", "dst closure:source frame:offset *args:value",
               "push a frame at frame; R[dst] = closure(*args) when it returns",
               fallback="closure is not a function or closure of this machine for so many "
               "arguments", builtin="vm.builtin.invoke_closure"),
    _operation("tail_invoke_closure", "closure:source area:offset *args:value",
               "the frame becomes that of closure(*args), with args laid out in area",
               fallback="invoke_closure would take its fallback, or the chunk has no room"),
    _operation("ufunc_1", "ufunc x:value out:value", "ufunc(x, out=out) by its inner loop",
               fallback="x and out are not contiguous arrays of one shape, there is no loop for "
               "their data types, or they overlap"),
    _operation("ufunc_2", "ufunc a:value b:value out:value",
               "ufunc(a, b, out=out) by its inner loop",
               fallback="a and b are not contiguous arrays of the shape of out or single elements, "
               "there is no loop for their data types, or they overlap"),
    _operation("fuel", "instructions:number bytes:number",
               "take instructions from the fuel; add bytes to those of objects, and count these "
               "and look at the clock now and then"),
    _operation("deadline", "", "look at the clock"),
    _operation("enter", "site", "continue in the native code that belongs to the site, if there is "
               "some; it ends at an operation, where the loop continues"),
    _operation("step", "pc:number",
               "pause before the instruction at pc, if the run was asked to"),
    _operation("defer", "after:distance callee:constant outs:number site *args:value",
               "add callee(*args), which writes to its last outs arguments, to the batch of the "
               "run, and continue at after; else go on with the call, which follows"),
    _operation("join", "", "run the batch, if there is one"),
    _operation("hook_before", "dst after:distance callee:value pc:constant *args:value",
               "if hook(pc, True, callee, name, None, args): R[dst] = None; continue at after"),
    _operation("hook_after", "dst result:register callee:value pc:constant *args:value",
               "hook(pc, False, callee, name, R[result], args); R[dst] = R[result]"),
)  # fmt: skip
"""Every operation of the loop."""

_CODES: Final = {operation.name: 1 + i for i, operation in enumerate(OPERATIONS)}

BY_CODE: Final = {operation.code: operation for operation in OPERATIONS}
BY_NAME: Final = {operation.name: operation for operation in OPERATIONS}

BUILTINS: Final = tuple(dict.fromkeys(op.builtin for op in OPERATIONS if op.builtin))
"""Builtins that the loop runs by itself, each once, in the order of the table."""
