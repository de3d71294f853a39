# cython: auto_pickle=False
"""Runs of functions in machine code that TVM made of Relax functions (its compiled mode).

``__vmtir__NAME(machine, registers, constants, functions)`` gets four addresses.  The last three are of
lists; the code takes a value out of a list only to pass it to a function, and puts results into the
registers.  Parameters are in the first registers, the result goes to the one after them.

=================  ================================================================
a value of the VM  in a list
=================  ================================================================
array              a tensor object over its memory, or over a copy
None, numbers      themselves
any other          an object that only this module knows
=================  ================================================================

Builtins that every function calls have a form in C, in `_vm_tir_builtins_impl.h`, which is tried first.

Tensors are contiguous and aligned.  Arrays that are not are copied when they enter the code, as are
read-only ones; when the run ends, what it has written to copies is written back.
"""

cimport cython
cimport numpy as cnp
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int32_t, int64_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc

from ._deadlines cimport look
from ._storage cimport Storage, storage_array, take_storage
from ._native cimport (
    RVM_BOOL, RVM_INT, RVM_NONE, RVM_OBJECT, RVM_POINTER, RVM_REAL, RVM_TENSOR_OBJECT,
    RvmAny, RvmDtype, RvmObject,
    NativeFunction, call_with, dl_dtype, enter_recursion, leave_recursion, report_copy, retain,
    set_raised, value_of,
)

import numpy as np

from ._native import copy_aligned, is_contiguous
from ..errors import LimitError, LinkError
from ..messages import readable
from ..values import Shape, to_value

cnp.import_array()

MAX_DEPTH = 1000
"""How deeply calls in machine code may be nested: a level takes 1 to 2 KiB of the stack."""

cdef frozenset _VALUES = frozenset((np.ndarray, Shape, type(None), bool, int, float))
"""Classes of values that `to_value` returns as they are."""

cdef extern from "_vm_tir_impl.h":
    enum:
        RVM_PYTHON_OBJECT

    ctypedef struct rvm_list:
        RvmAny* items
        int64_t size
        PyObject* run

    int (*rvm_make_item)(PyObject* run, int64_t index) noexcept
    void (*rvm_wrong_index)(int64_t index, int64_t size) noexcept
    RvmObject* rvm_pending
    PyObject* rvm_current_run
    RvmObject* rvm_hold_value(PyObject*) noexcept
    object rvm_own_value(PyObject*)
    RvmObject* rvm_hold_array(cnp.ndarray, RvmDtype) noexcept
    PyObject* rvm_held(const RvmObject*) noexcept
    void rvm_clear_list(rvm_list*) noexcept
    void rvm_drop_pending() noexcept
    void* rvm_list_function(const char*) noexcept


cdef extern from "_vm_tir_builtins_impl.h":
    enum:
        RVM_FORM_FAILED, RVM_FORM_LEFT, RVM_FORM_DONE, RVM_FORM_VALUE, RVM_FORM_ARRAY
        RVM_NUM_FORMS

    ctypedef struct rvm_form_context:
        PyObject* allocators
        PyObject* shape_type
        PyTypeObject* storage_type
        uintptr_t misaligned

    ctypedef int (*rvm_form)(const rvm_form_context*, const RvmAny*, int32_t, RvmAny*) except? -1

    ctypedef struct _NamedForm:
        const char* name
        rvm_form form

    ctypedef struct _Storages:
        PyObject* (*take)(PyObject*, int64_t) noexcept
        PyObject* (*array)(PyObject*, int64_t, int, const cnp.npy_intp*, cnp.PyArray_Descr*) noexcept
        int64_t (*nbytes)(PyObject*) noexcept
        uintptr_t (*data)(PyObject*) noexcept

    const _NamedForm* rvm_forms
    _Storages rvm_storages


cdef int64_t _storage_nbytes(PyObject* storage) noexcept:
    return (<Storage>storage).nbytes


cdef uintptr_t _storage_data(PyObject* storage) noexcept:
    return <uintptr_t>(<Storage>storage).data


rvm_storages.take = take_storage
rvm_storages.array = storage_array
rvm_storages.nbytes = _storage_nbytes
rvm_storages.data = _storage_data

FORMS = tuple([rvm_forms[i].name.decode() for i in range(RVM_NUM_FORMS)])
"""Builtins that have a form in C."""


cdef void* vm_tir_function(const char* name) noexcept:
    """The function for a library to call, NULL if there is none of this name."""
    return rvm_list_function(name)


cdef int _new_items(rvm_list* items, int64_t size) except -1:
    items.items = <RvmAny*>calloc(<size_t>size + 1, sizeof(RvmAny))  # all of them None
    if items.items is NULL:
        raise MemoryError
    items.size = size
    return 0


cdef int _put_object(RvmAny* item, int kind, RvmObject* object) except -1:
    if object is NULL:
        raise MemoryError
    item.type = kind
    item.short_size = 0
    item.as_object = object
    return 0


cdef int _put_array(RvmAny* item, cnp.ndarray array) except -1:
    return _put_object(item, RVM_TENSOR_OBJECT, rvm_hold_array(array, dl_dtype(array.dtype)))


cdef int _put_plain(RvmAny* item, object value) except -1:
    """A value that is not an array."""
    item.short_size = 0
    kind = type(value)
    if value is None:
        item.type = RVM_NONE
        item.as_int = 0
    elif kind is bool:
        item.as_int = value
        item.type = RVM_BOOL
    elif kind is int and -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        item.as_int = value
        item.type = RVM_INT
    elif kind is float:
        item.as_float = value
        item.type = RVM_REAL
    else:
        _put_object(item, RVM_PYTHON_OBJECT, rvm_hold_value(<PyObject*>value))
    return 0


@cython.final
cdef class VMTIRCode:
    """The code of a function.

    Args:
        native: the function in machine code.
        info: table entry of the function.
    """

    cdef NativeFunction native
    cdef readonly object info
    cdef readonly Py_ssize_t num_args
    cdef readonly int64_t num_registers

    def __init__(self, NativeFunction native not None, info):
        self.native, self.info = native, info
        self.num_args, self.num_registers = info.num_args, info.register_file_size
        if self.num_registers <= self.num_args:
            raise LinkError(f"{native.name}: {self.num_registers} registers for {self.num_args} "
                            f"arguments and a result", (native.name,))


@cython.final
@cython.no_gc_clear  # what its constants are may call a function
cdef class VMTIRProgram:
    """What functions of one executable work on, in one machine.

    Args:
        constants: of the executable.
        alignment: of tensors, in bytes.  A constant that is not aligned is copied here, once.
        num_functions: how many functions the executable has.
        codes: those in machine code, by their positions.
        packed: functions that are called by name.
        invoke: that of them which calls a function with the arguments after it, if it is relaxvm's.
        function_class: of functions of a machine.
        max_depth: how many calls without `invoke` may be nested.
        allocators: of the machine, one for each device.
        ours: names of builtins that are relaxvm's, and may be called in C.
    """

    cdef rvm_list list
    cdef dict tensors      # positions of constants that are tensors, by the ``id`` of their arrays
    cdef int alignment
    cdef int64_t num_functions
    cdef dict codes
    cdef object packed
    cdef object invoke
    cdef type function_class
    cdef int64_t max_depth
    cdef tuple allocators
    cdef rvm_form_context context
    cdef uint64_t forms    # bit i: form i may be called

    def __init__(self, constants, alignment, num_functions, codes, packed, invoke, function_class,
                 max_depth, tuple allocators not None, ours):
        self.tensors = {}
        self.allocators = allocators
        self.context.allocators = <PyObject*>allocators
        self.context.shape_type = <PyObject*>Shape
        self.context.storage_type = <PyTypeObject*>Storage
        self.context.misaligned = <uintptr_t>(alignment - 1)
        for i, name in enumerate(FORMS):
            if name in ours:
                self.forms |= <uint64_t>1 << <int>i
        self.alignment = alignment
        self.num_functions = num_functions
        self.codes, self.packed, self.invoke = codes, packed, invoke
        self.function_class = function_class
        self.max_depth = min(max_depth, MAX_DEPTH)
        _new_items(&self.list, len(constants))
        for i, value in enumerate(constants):
            if isinstance(value, np.ndarray):
                if not is_contiguous(value, alignment):
                    value = copy_aligned(value, max(alignment, 64))
                _put_array(&self.list.items[i], value)
                self.tensors[id(value)] = i
            else:
                _put_plain(&self.list.items[i], value)

    def __dealloc__(self):
        rvm_clear_list(&self.list)


@cython.final
cdef class FunctionByName:
    """A function that machine code calls by its name, and every machine finds for itself.

    Args:
        name: of the function.
        elsewhere: finds it by its name for code that no machine runs; None if there is none.
    """

    cdef readonly str name
    cdef object elsewhere
    cdef int form  # the number of its form in C, or -1

    def __init__(self, name, elsewhere):
        self.name = name
        self.elsewhere = elsewhere
        self.form = FORMS.index(name) if name in FORMS else -1

    def __call__(self, *args):
        function = self.elsewhere(self.name)
        if function is None:
            raise LinkError(f"machine code calls {readable(self.name)!r}, which is not registered",
                            (self.name,))
        return function(*args)


@cython.final
@cython.no_gc_clear
cdef class _Run:
    """A call of a function, until it returns."""

    cdef rvm_list registers
    cdef rvm_list functions
    cdef VMTIRProgram program
    cdef object machine
    cdef object function    # makes the value of a function of the machine by its position
    cdef int64_t depth
    cdef dict copied        # id of an array -> its copy; this and what follows is None without any
    cdef dict originals     # id of a copy -> (the array, the bytes of the copy at first)
    cdef list kept          # copies

    def __dealloc__(self):
        rvm_clear_list(&self.registers)
        rvm_clear_list(&self.functions)

    cdef int put(self, RvmAny* item, object value) except -1:
        """Write a value of the VM to a list, or to a result."""
        cdef RvmAny* constant
        if not isinstance(value, np.ndarray):
            return _put_plain(item, value)
        position = self.program.tensors.get(id(value))
        if position is not None:
            constant = &self.program.list.items[<int64_t>position]
            retain(constant.as_object)
            item[0] = constant[0]
            return 0
        if not value.flags.writeable or not is_contiguous(value, self.program.alignment):
            value = self.copy_of(value)
        return _put_array(item, value)

    cdef object copy_of(self, object array):
        if self.kept is None:
            self.copied, self.originals, self.kept = {}, {}, []
        copy = self.copied.get(id(array))
        if copy is not None:
            return copy
        if id(array) in self.originals:  # a copy, which somebody has made read-only
            return array
        copy = copy_aligned(array, max(self.program.alignment, 64))
        self.copied[id(array)] = copy
        self.originals[id(copy)] = array, copy.tobytes()
        self.kept.append(copy)
        return copy

    cdef int write_back(self, str name) except -1:
        for copy in self.kept:
            array, before = self.originals[id(copy)]
            if copy.tobytes() != before:
                if not array.flags.writeable:
                    raise ValueError(f"{name}: the function writes to an array that is read-only")
                np.copyto(array, copy)
        return 0

    cdef object original(self, object value):
        """A result, with arrays in place of their copies."""
        if isinstance(value, np.ndarray):
            found = self.originals.get(id(value))
            return value if found is None else found[0]
        if type(value) is tuple:
            items = []
            is_same = True
            for item in value:
                found = self.original(item)
                is_same = is_same and found is item
                items.append(found)
            if not is_same:
                return tuple(items)
        return value


def run_vm_tir(VMTIRProgram program not None, VMTIRCode code not None, machine, function,
               tuple args not None):
    """Call a function in machine code.

    Args:
        program: what it works on.
        code: of the function.
        machine: what functions that take the machine are called with.
        function: makes the value of a function of a machine by its position.
        args: as many as the function has parameters.
    """
    return _call(program, code, machine, function, args, 1)


cdef object _call(VMTIRProgram program, VMTIRCode code, object machine, object function, args,
                  int64_t depth):
    global rvm_current_run, rvm_pending
    cdef _Run run = _Run.__new__(_Run)
    cdef RvmAny given[4]
    cdef void* addresses[4]
    cdef PyObject* outer_run = rvm_current_run
    cdef RvmObject* outer_pending = rvm_pending
    cdef Py_ssize_t i
    run.program, run.machine, run.function, run.depth = program, machine, function, depth
    _new_items(&run.registers, code.num_registers)
    for i in range(code.num_args):
        run.put(&run.registers.items[i], args[i])
        if run.kept is not None and id(args[i]) in run.copied:
            report_copy(code.native, i, args[i], code.info, i)
    run.functions.size = program.num_functions
    run.functions.run = <PyObject*>run
    addresses[0] = <void*>run
    addresses[1], addresses[2], addresses[3] = &run.registers, &program.list, &run.functions
    for i in range(4):
        given[i].type = RVM_POINTER
        given[i].short_size = 0
        given[i].as_pointer = addresses[i]
    rvm_current_run, rvm_pending = <PyObject*>run, NULL
    try:
        call_with(code.native, given, 4)
    finally:
        rvm_drop_pending()
        rvm_current_run, rvm_pending = outer_run, outer_pending
    result = _read(&run.registers.items[code.num_args])
    if run.kept is not None:
        run.write_back(code.native.name)
        result = run.original(result)
    return result


cdef object _invoke(_Run run, list values):
    """`invoke`, without it if the function is one in machine code of the same machine."""
    cdef VMTIRProgram program = run.program
    cdef VMTIRCode code = None
    if len(values) >= 2 and type(values[1]) is program.function_class:
        if values[1].machine is run.machine:
            code = program.codes.get(values[1].index)
    if code is None or code.num_args != len(values) - 2:
        return program.invoke(*values)
    if run.depth >= program.max_depth:
        raise LimitError(f"{readable(code.native.name)}: calls in machine code are nested deeper than "
                         f"{program.max_depth}", "call_depth")
    enter_recursion(b" in machine code")
    try:
        return _call(program, code, run.machine, run.function, values[2:], run.depth + 1)
    finally:
        leave_recursion()


cdef object _read(const RvmAny* item):
    """The value that `_Run.put` has written."""
    if item.type < RVM_OBJECT:
        return value_of(item, "machine code")
    return <object>rvm_held(item.as_object)


cdef bint in_vm_tir() noexcept:
    """Whether this thread is in the machine code of a run."""
    return rvm_current_run is not NULL


cdef int call_from_vm_tir(object function, const RvmAny* args, int32_t count, RvmAny* result,
                          object (*value)(const RvmAny*)) except -1:
    """Call a function for machine code of a run.  `value` converts arguments that are not from lists:
    those of a kernel that the machine code has called."""
    global rvm_current_run, rvm_pending
    cdef PyObject* current = rvm_current_run
    cdef _Run run = <_Run>current
    cdef int32_t i
    cdef list values
    look()
    if type(function) is FunctionByName and _try_form(run, <FunctionByName>function, args, count,
                                                      result):
        return 0
    values = []
    for i in range(count):
        if args[i].type == RVM_POINTER:
            if args[i].as_pointer is not NULL and args[i].as_pointer != <void*>current:
                raise TypeError("machine code passes an address to a function of Python")
            values.append(None if args[i].as_pointer is NULL else run.machine)
        elif args[i].type >= RVM_OBJECT and rvm_held(args[i].as_object) is not NULL:
            values.append(_read(&args[i]))
        else:
            values.append(value(&args[i]))
    if type(function) is FunctionByName:
        function = run.program.packed[(<FunctionByName>function).name]
    rvm_current_run = NULL  # what it calls is not called by this machine code
    try:
        if function is run.program.invoke:
            made = _invoke(run, values)
        else:
            made = function(*values)
            if type(made) not in _VALUES:
                made = to_value(made)
    finally:
        rvm_current_run = current
    run.put(result, made)
    _set_pending(result)
    return 0


cdef void _set_pending(RvmAny* result) noexcept:
    """Keep a result until machine code takes it, and let go of the one before."""
    global rvm_pending
    rvm_drop_pending()
    if result.type >= RVM_OBJECT:
        rvm_pending = result.as_object


cdef bint _try_form(_Run run, FunctionByName function, const RvmAny* args, int32_t count,
                    RvmAny* result) except -1:
    """Call a builtin of relaxvm in C; false if it is to be called itself."""
    cdef RvmAny made
    cdef int done
    if function.form < 0 or not run.program.forms >> function.form & 1:
        return False
    done = rvm_forms[function.form].form(&run.program.context, args, count, &made)
    if done == RVM_FORM_LEFT:
        return False
    if done != RVM_FORM_DONE:
        value = rvm_own_value(<PyObject*>made.as_pointer)
        if done == RVM_FORM_VALUE:
            run.put(&made, value)
        else:
            _put_array(&made, value)
    result[0] = made
    _set_pending(result)
    return True


ctypedef int (*_maker)(PyObject*, int64_t) noexcept
ctypedef int (*_refuser)(int64_t, int64_t) noexcept
cdef _maker _try_item = <_maker>_new_item
cdef _refuser _try_refusal = <_refuser>_refuse_index
# As functions without exceptions: what they raise stays set, for `set_raised`.


cdef int _new_item(PyObject* run, int64_t index) except -1:
    cdef _Run self = <_Run>run
    if self.functions.items is NULL:
        _new_items(&self.functions, self.functions.size)
    self.put(&self.functions.items[index], self.function(self.machine, index))
    return 0


cdef int _refuse_index(int64_t index, int64_t size) except -1:
    raise LinkError(f"machine code asks for item {index} of a list of {size}; its library is not for "
                    f"this program")


cdef int _make_item(PyObject* run, int64_t index) noexcept:
    """Make the value of a function.  A failure is found at the next call, and the run ends with it after
    the machine code has noticed."""
    if _try_item(run, index) < 0:
        set_raised()
        return -1
    return 0


cdef void _wrong_index(int64_t index, int64_t size) noexcept:
    _try_refusal(index, size)
    set_raised()


rvm_make_item = _make_item
rvm_wrong_index = _wrong_index
