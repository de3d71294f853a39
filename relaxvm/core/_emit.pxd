# Generated from relaxvm/core/operations.py by scripts/gen_operations.py - do not edit.
"""Emitters: append an operation to the code.

The distance to a fallback is 0 until the fallback is there.  The caller appends the
items of a variadic operation, as many as `count` says.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from ._code cimport rvm_func, rvm_site
from ._operations cimport *
from ._words cimport Words, extend


cdef inline int emit_ret(Words* words, int64_t result, int64_t registers) except -1:
    cdef int64_t* at = extend(words, RET_WORDS)
    at[OPCODE] = OP_RET
    at[RET_RESULT] = result
    at[RET_REGISTERS] = registers
    return 0


cdef inline int emit_goto(Words* words, int64_t distance) except -1:
    cdef int64_t* at = extend(words, GOTO_WORDS)
    at[OPCODE] = OP_GOTO
    at[GOTO_DISTANCE] = distance
    return 0


cdef inline int emit_goto_back(Words* words, int64_t distance) except -1:
    cdef int64_t* at = extend(words, GOTO_BACK_WORDS)
    at[OPCODE] = OP_GOTO_BACK
    at[GOTO_BACK_DISTANCE] = distance
    return 0


cdef inline int emit_if(Words* words, int64_t cond, int64_t otherwise) except -1:
    cdef int64_t* at = extend(words, IF_WORDS)
    at[OPCODE] = OP_IF
    at[IF_COND] = cond
    at[IF_OTHERWISE] = otherwise
    return 0


cdef inline int emit_call(Words* words, int64_t dst, int64_t callee, int64_t area,
                          int64_t count) except -1:
    cdef int64_t* at = extend(words, CALL_ARGS)
    at[OPCODE] = OP_CALL
    at[CALL_DST] = dst
    at[CALL_CALLEE] = callee
    at[CALL_AREA] = area
    at[CALL_COUNT] = count
    return 0


cdef inline int emit_call_void(Words* words, int64_t callee, int64_t area, int64_t count) except -1:
    cdef int64_t* at = extend(words, CALL_VOID_ARGS)
    at[OPCODE] = OP_CALL_VOID
    at[CALL_VOID_CALLEE] = callee
    at[CALL_VOID_AREA] = area
    at[CALL_VOID_COUNT] = count
    return 0


cdef inline int emit_call_native(Words* words, int64_t dst, int64_t callee,
                                 int64_t count) except -1:
    cdef int64_t* at = extend(words, CALL_NATIVE_ARGS)
    at[OPCODE] = OP_CALL_NATIVE
    at[CALL_NATIVE_DST] = dst
    at[CALL_NATIVE_CALLEE] = callee
    at[CALL_NATIVE_COUNT] = count
    return 0


cdef inline int emit_call_vm(Words* words, int64_t dst, rvm_func* callee, int64_t frame,
                             int64_t count) except -1:
    cdef int64_t* at = extend(words, CALL_VM_ARGS)
    at[OPCODE] = OP_CALL_VM
    at[CALL_VM_DST] = dst
    at[CALL_VM_CALLEE] = <int64_t>callee
    at[CALL_VM_FRAME] = frame
    at[CALL_VM_COUNT] = count
    return 0


cdef inline int emit_tail_call_vm(Words* words, rvm_func* callee, int64_t area,
                                  int64_t count) except -1:
    cdef int64_t* at = extend(words, TAIL_CALL_VM_ARGS)
    at[OPCODE] = OP_TAIL_CALL_VM
    at[FALLBACK] = 0
    at[TAIL_CALL_VM_CALLEE] = <int64_t>callee
    at[TAIL_CALL_VM_AREA] = area
    at[TAIL_CALL_VM_COUNT] = count
    return 0


cdef inline int emit_copy(Words* words, int64_t dst, int64_t value) except -1:
    cdef int64_t* at = extend(words, COPY_WORDS)
    at[OPCODE] = OP_COPY
    at[COPY_DST] = dst
    at[COPY_VALUE] = value
    return 0


cdef inline int emit_null(Words* words, int64_t dst) except -1:
    cdef int64_t* at = extend(words, NULL_WORDS)
    at[OPCODE] = OP_NULL
    at[NULL_DST] = dst
    return 0


cdef inline int emit_make_tuple(Words* words, int64_t dst, int64_t count) except -1:
    cdef int64_t* at = extend(words, MAKE_TUPLE_ITEMS)
    at[OPCODE] = OP_MAKE_TUPLE
    at[MAKE_TUPLE_DST] = dst
    at[MAKE_TUPLE_COUNT] = count
    return 0


cdef inline int emit_tuple_getitem(Words* words, int64_t dst, int64_t tuple,
                                   int64_t index) except -1:
    cdef int64_t* at = extend(words, TUPLE_GETITEM_WORDS)
    at[OPCODE] = OP_TUPLE_GETITEM
    at[FALLBACK] = 0
    at[TUPLE_GETITEM_DST] = dst
    at[TUPLE_GETITEM_TUPLE] = tuple
    at[TUPLE_GETITEM_INDEX] = index
    return 0


cdef inline int emit_make_adt(Words* words, int64_t dst, int64_t constructor, int64_t tag,
                              int64_t count) except -1:
    cdef int64_t* at = extend(words, MAKE_ADT_FIELDS)
    at[OPCODE] = OP_MAKE_ADT
    at[MAKE_ADT_DST] = dst
    at[MAKE_ADT_CONSTRUCTOR] = constructor
    at[MAKE_ADT_TAG] = tag
    at[MAKE_ADT_COUNT] = count
    return 0


cdef inline int emit_adt_tag(Words* words, int64_t dst, int64_t x) except -1:
    cdef int64_t* at = extend(words, ADT_TAG_WORDS)
    at[OPCODE] = OP_ADT_TAG
    at[FALLBACK] = 0
    at[ADT_TAG_DST] = dst
    at[ADT_TAG_X] = x
    return 0


cdef inline int emit_match_tag(Words* words, int64_t dst, int64_t x, int64_t count) except -1:
    cdef int64_t* at = extend(words, MATCH_TAG_CONSTRUCTORS)
    at[OPCODE] = OP_MATCH_TAG
    at[FALLBACK] = 0
    at[MATCH_TAG_DST] = dst
    at[MATCH_TAG_X] = x
    at[MATCH_TAG_COUNT] = count
    return 0


cdef inline int emit_adt_field(Words* words, int64_t dst, int64_t x, int64_t index) except -1:
    cdef int64_t* at = extend(words, ADT_FIELD_WORDS)
    at[OPCODE] = OP_ADT_FIELD
    at[FALLBACK] = 0
    at[ADT_FIELD_DST] = dst
    at[ADT_FIELD_X] = x
    at[ADT_FIELD_INDEX] = index
    return 0


cdef inline int emit_tag_is(Words* words, int64_t dst, int64_t tag, int64_t number) except -1:
    cdef int64_t* at = extend(words, TAG_IS_WORDS)
    at[OPCODE] = OP_TAG_IS
    at[FALLBACK] = 0
    at[TAG_IS_DST] = dst
    at[TAG_IS_TAG] = tag
    at[TAG_IS_NUMBER] = number
    return 0


cdef inline int emit_if_tag(Words* words, int64_t dst, int64_t tag, int64_t number,
                            int64_t otherwise) except -1:
    cdef int64_t* at = extend(words, IF_TAG_WORDS)
    at[OPCODE] = OP_IF_TAG
    at[FALLBACK] = 0
    at[IF_TAG_DST] = dst
    at[IF_TAG_TAG] = tag
    at[IF_TAG_NUMBER] = number
    at[IF_TAG_OTHERWISE] = otherwise
    return 0


cdef inline int emit_shape_of(Words* words, int64_t dst, int64_t tensor, rvm_site* site) except -1:
    cdef int64_t* at = extend(words, SHAPE_OF_WORDS)
    at[OPCODE] = OP_SHAPE_OF
    at[FALLBACK] = 0
    at[SHAPE_OF_DST] = dst
    at[SHAPE_OF_TENSOR] = tensor
    at[SHAPE_OF_SITE] = <int64_t>site
    return 0


cdef inline int emit_make_shape(Words* words, int64_t dst, int64_t heap, int64_t last_slot,
                                rvm_site* site, int64_t count) except -1:
    cdef int64_t* at = extend(words, MAKE_SHAPE_DIMS)
    at[OPCODE] = OP_MAKE_SHAPE
    at[FALLBACK] = 0
    at[MAKE_SHAPE_DST] = dst
    at[MAKE_SHAPE_HEAP] = heap
    at[MAKE_SHAPE_LAST_SLOT] = last_slot
    at[MAKE_SHAPE_SITE] = <int64_t>site
    at[MAKE_SHAPE_COUNT] = count
    return 0


cdef inline int emit_match_shape(Words* words, int64_t x, int64_t heap, int64_t last_slot,
                                 int64_t count) except -1:
    cdef int64_t* at = extend(words, MATCH_SHAPE_DIMS)
    at[OPCODE] = OP_MATCH_SHAPE
    at[FALLBACK] = 0
    at[MATCH_SHAPE_X] = x
    at[MATCH_SHAPE_HEAP] = heap
    at[MATCH_SHAPE_LAST_SLOT] = last_slot
    at[MATCH_SHAPE_COUNT] = count
    return 0


cdef inline int emit_check_tensor(Words* words, int64_t x, int64_t ndim, PyObject* dtype) except -1:
    cdef int64_t* at = extend(words, CHECK_TENSOR_WORDS)
    at[OPCODE] = OP_CHECK_TENSOR
    at[FALLBACK] = 0
    at[CHECK_TENSOR_X] = x
    at[CHECK_TENSOR_NDIM] = ndim
    at[CHECK_TENSOR_DTYPE] = <int64_t>dtype
    return 0


cdef inline int emit_check_match(Words* words, int64_t x, int64_t ndim, PyObject* dtype,
                                 int64_t heap, int64_t last_slot, int64_t count) except -1:
    cdef int64_t* at = extend(words, CHECK_MATCH_DIMS)
    at[OPCODE] = OP_CHECK_MATCH
    at[FALLBACK] = 0
    at[CHECK_MATCH_X] = x
    at[CHECK_MATCH_NDIM] = ndim
    at[CHECK_MATCH_DTYPE] = <int64_t>dtype
    at[CHECK_MATCH_HEAP] = heap
    at[CHECK_MATCH_LAST_SLOT] = last_slot
    at[CHECK_MATCH_COUNT] = count
    return 0


cdef inline int emit_check_shape(Words* words, int64_t x, int64_t ndim) except -1:
    cdef int64_t* at = extend(words, CHECK_SHAPE_WORDS)
    at[OPCODE] = OP_CHECK_SHAPE
    at[FALLBACK] = 0
    at[CHECK_SHAPE_X] = x
    at[CHECK_SHAPE_NDIM] = ndim
    return 0


cdef inline int emit_check_tuple(Words* words, int64_t x, int64_t size) except -1:
    cdef int64_t* at = extend(words, CHECK_TUPLE_WORDS)
    at[OPCODE] = OP_CHECK_TUPLE
    at[FALLBACK] = 0
    at[CHECK_TUPLE_X] = x
    at[CHECK_TUPLE_SIZE] = size
    return 0


cdef inline int emit_check_func(Words* words, int64_t x) except -1:
    cdef int64_t* at = extend(words, CHECK_FUNC_WORDS)
    at[OPCODE] = OP_CHECK_FUNC
    at[FALLBACK] = 0
    at[CHECK_FUNC_X] = x
    return 0


cdef inline int emit_check_prim(Words* words, int64_t x, int64_t floats) except -1:
    cdef int64_t* at = extend(words, CHECK_PRIM_WORDS)
    at[OPCODE] = OP_CHECK_PRIM
    at[FALLBACK] = 0
    at[CHECK_PRIM_X] = x
    at[CHECK_PRIM_FLOATS] = floats
    return 0


cdef inline int emit_match_prim(Words* words, int64_t x, int64_t heap, int64_t code,
                                int64_t value) except -1:
    cdef int64_t* at = extend(words, MATCH_PRIM_WORDS)
    at[OPCODE] = OP_MATCH_PRIM
    at[FALLBACK] = 0
    at[MATCH_PRIM_X] = x
    at[MATCH_PRIM_HEAP] = heap
    at[MATCH_PRIM_CODE] = code
    at[MATCH_PRIM_VALUE] = value
    return 0


cdef inline int emit_make_prim(Words* words, int64_t dst, int64_t heap, int64_t code,
                               int64_t value) except -1:
    cdef int64_t* at = extend(words, MAKE_PRIM_WORDS)
    at[OPCODE] = OP_MAKE_PRIM
    at[FALLBACK] = 0
    at[MAKE_PRIM_DST] = dst
    at[MAKE_PRIM_HEAP] = heap
    at[MAKE_PRIM_CODE] = code
    at[MAKE_PRIM_VALUE] = value
    return 0


cdef inline int emit_read_cond(Words* words, int64_t dst, int64_t x) except -1:
    cdef int64_t* at = extend(words, READ_COND_WORDS)
    at[OPCODE] = OP_READ_COND
    at[FALLBACK] = 0
    at[READ_COND_DST] = dst
    at[READ_COND_X] = x
    return 0


cdef inline int emit_read_if(Words* words, int64_t dst, int64_t x, int64_t otherwise) except -1:
    cdef int64_t* at = extend(words, READ_IF_WORDS)
    at[OPCODE] = OP_READ_IF
    at[FALLBACK] = 0
    at[READ_IF_DST] = dst
    at[READ_IF_X] = x
    at[READ_IF_OTHERWISE] = otherwise
    return 0


cdef inline int emit_compute_shape(Words* words, int64_t heap, int64_t last_slot,
                                   int64_t count) except -1:
    cdef int64_t* at = extend(words, COMPUTE_SHAPE_STEPS)
    at[OPCODE] = OP_COMPUTE_SHAPE
    at[FALLBACK] = 0
    at[COMPUTE_SHAPE_HEAP] = heap
    at[COMPUTE_SHAPE_LAST_SLOT] = last_slot
    at[COMPUTE_SHAPE_COUNT] = count
    return 0


cdef inline int emit_alloc_heap(Words* words, int64_t dst, int64_t slots, rvm_site* site) except -1:
    cdef int64_t* at = extend(words, ALLOC_HEAP_WORDS)
    at[OPCODE] = OP_ALLOC_HEAP
    at[ALLOC_HEAP_DST] = dst
    at[ALLOC_HEAP_SLOTS] = slots
    at[ALLOC_HEAP_SITE] = <int64_t>site
    return 0


cdef inline int emit_alloc_storage(Words* words, int64_t dst, PyObject* allocator,
                                   int64_t nbytes) except -1:
    cdef int64_t* at = extend(words, ALLOC_STORAGE_WORDS)
    at[OPCODE] = OP_ALLOC_STORAGE
    at[FALLBACK] = 0
    at[ALLOC_STORAGE_DST] = dst
    at[ALLOC_STORAGE_ALLOCATOR] = <int64_t>allocator
    at[ALLOC_STORAGE_NBYTES] = nbytes
    return 0


cdef inline int emit_alloc_storage_dyn(Words* words, int64_t dst, PyObject* allocator,
                                       int64_t shape, int64_t itemsize) except -1:
    cdef int64_t* at = extend(words, ALLOC_STORAGE_DYN_WORDS)
    at[OPCODE] = OP_ALLOC_STORAGE_DYN
    at[FALLBACK] = 0
    at[ALLOC_STORAGE_DYN_DST] = dst
    at[ALLOC_STORAGE_DYN_ALLOCATOR] = <int64_t>allocator
    at[ALLOC_STORAGE_DYN_SHAPE] = shape
    at[ALLOC_STORAGE_DYN_ITEMSIZE] = itemsize
    return 0


cdef inline int emit_alloc_tensor(Words* words, int64_t dst, int64_t storage, int64_t offset,
                                  int64_t shape, PyObject* dtype) except -1:
    cdef int64_t* at = extend(words, ALLOC_TENSOR_WORDS)
    at[OPCODE] = OP_ALLOC_TENSOR
    at[FALLBACK] = 0
    at[ALLOC_TENSOR_DST] = dst
    at[ALLOC_TENSOR_STORAGE] = storage
    at[ALLOC_TENSOR_OFFSET] = offset
    at[ALLOC_TENSOR_SHAPE] = shape
    at[ALLOC_TENSOR_DTYPE] = <int64_t>dtype
    return 0


cdef inline int emit_alloc_tensor_of(Words* words, int64_t dst, int64_t storage, int64_t offset,
                                     int64_t end, PyObject* dtype, int64_t count) except -1:
    cdef int64_t* at = extend(words, ALLOC_TENSOR_OF_DIMS)
    at[OPCODE] = OP_ALLOC_TENSOR_OF
    at[FALLBACK] = 0
    at[ALLOC_TENSOR_OF_DST] = dst
    at[ALLOC_TENSOR_OF_STORAGE] = storage
    at[ALLOC_TENSOR_OF_OFFSET] = offset
    at[ALLOC_TENSOR_OF_END] = end
    at[ALLOC_TENSOR_OF_DTYPE] = <int64_t>dtype
    at[ALLOC_TENSOR_OF_COUNT] = count
    return 0


cdef inline int emit_alloc_static(Words* words, int64_t dst, int64_t storage, PyObject* allocator,
                                  int64_t nbytes, int64_t offset, PyObject* dtype, rvm_site* site,
                                  int64_t count) except -1:
    cdef int64_t* at = extend(words, ALLOC_STATIC_DIMS)
    at[OPCODE] = OP_ALLOC_STATIC
    at[FALLBACK] = 0
    at[ALLOC_STATIC_DST] = dst
    at[ALLOC_STATIC_STORAGE] = storage
    at[ALLOC_STATIC_ALLOCATOR] = <int64_t>allocator
    at[ALLOC_STATIC_NBYTES] = nbytes
    at[ALLOC_STATIC_OFFSET] = offset
    at[ALLOC_STATIC_DTYPE] = <int64_t>dtype
    at[ALLOC_STATIC_SITE] = <int64_t>site
    at[ALLOC_STATIC_COUNT] = count
    return 0


cdef inline int emit_reshape(Words* words, int64_t dst, int64_t tensor, int64_t shape) except -1:
    cdef int64_t* at = extend(words, RESHAPE_WORDS)
    at[OPCODE] = OP_RESHAPE
    at[FALLBACK] = 0
    at[RESHAPE_DST] = dst
    at[RESHAPE_TENSOR] = tensor
    at[RESHAPE_SHAPE] = shape
    return 0


cdef inline int emit_load_function(Words* words, int64_t dst, rvm_func* function) except -1:
    cdef int64_t* at = extend(words, LOAD_FUNCTION_WORDS)
    at[OPCODE] = OP_LOAD_FUNCTION
    at[LOAD_FUNCTION_DST] = dst
    at[LOAD_FUNCTION_FUNCTION] = <int64_t>function
    return 0


cdef inline int emit_make_closure_of(Words* words, int64_t dst, rvm_func* function,
                                     int64_t count) except -1:
    cdef int64_t* at = extend(words, MAKE_CLOSURE_OF_CAPTURED)
    at[OPCODE] = OP_MAKE_CLOSURE_OF
    at[MAKE_CLOSURE_OF_DST] = dst
    at[MAKE_CLOSURE_OF_FUNCTION] = <int64_t>function
    at[MAKE_CLOSURE_OF_COUNT] = count
    return 0


cdef inline int emit_make_closure(Words* words, int64_t dst, int64_t function,
                                  int64_t count) except -1:
    cdef int64_t* at = extend(words, MAKE_CLOSURE_CAPTURED)
    at[OPCODE] = OP_MAKE_CLOSURE
    at[FALLBACK] = 0
    at[MAKE_CLOSURE_DST] = dst
    at[MAKE_CLOSURE_FUNCTION] = function
    at[MAKE_CLOSURE_COUNT] = count
    return 0


cdef inline int emit_invoke_closure(Words* words, int64_t dst, int64_t closure, int64_t frame,
                                    int64_t count) except -1:
    cdef int64_t* at = extend(words, INVOKE_CLOSURE_ARGS)
    at[OPCODE] = OP_INVOKE_CLOSURE
    at[FALLBACK] = 0
    at[INVOKE_CLOSURE_DST] = dst
    at[INVOKE_CLOSURE_CLOSURE] = closure
    at[INVOKE_CLOSURE_FRAME] = frame
    at[INVOKE_CLOSURE_COUNT] = count
    return 0


cdef inline int emit_tail_invoke_closure(Words* words, int64_t closure, int64_t area,
                                         int64_t count) except -1:
    cdef int64_t* at = extend(words, TAIL_INVOKE_CLOSURE_ARGS)
    at[OPCODE] = OP_TAIL_INVOKE_CLOSURE
    at[FALLBACK] = 0
    at[TAIL_INVOKE_CLOSURE_CLOSURE] = closure
    at[TAIL_INVOKE_CLOSURE_AREA] = area
    at[TAIL_INVOKE_CLOSURE_COUNT] = count
    return 0


cdef inline int emit_ufunc_1(Words* words, PyObject* ufunc, int64_t x, int64_t out) except -1:
    cdef int64_t* at = extend(words, UFUNC_1_WORDS)
    at[OPCODE] = OP_UFUNC_1
    at[FALLBACK] = 0
    at[UFUNC_1_UFUNC] = <int64_t>ufunc
    at[UFUNC_1_UFUNC + 1] = 0
    at[UFUNC_1_UFUNC + 2] = 0
    at[UFUNC_1_UFUNC + 3] = 0
    at[UFUNC_1_UFUNC + 4] = 0
    at[UFUNC_1_UFUNC + 5] = 0
    at[UFUNC_1_UFUNC + 6] = 0
    at[UFUNC_1_UFUNC + 7] = 0
    at[UFUNC_1_X] = x
    at[UFUNC_1_OUT] = out
    return 0


cdef inline int emit_ufunc_2(Words* words, PyObject* ufunc, int64_t a, int64_t b,
                             int64_t out) except -1:
    cdef int64_t* at = extend(words, UFUNC_2_WORDS)
    at[OPCODE] = OP_UFUNC_2
    at[FALLBACK] = 0
    at[UFUNC_2_UFUNC] = <int64_t>ufunc
    at[UFUNC_2_UFUNC + 1] = 0
    at[UFUNC_2_UFUNC + 2] = 0
    at[UFUNC_2_UFUNC + 3] = 0
    at[UFUNC_2_UFUNC + 4] = 0
    at[UFUNC_2_UFUNC + 5] = 0
    at[UFUNC_2_UFUNC + 6] = 0
    at[UFUNC_2_UFUNC + 7] = 0
    at[UFUNC_2_A] = a
    at[UFUNC_2_B] = b
    at[UFUNC_2_OUT] = out
    return 0


cdef inline int emit_fuel(Words* words, int64_t instructions, int64_t bytes) except -1:
    cdef int64_t* at = extend(words, FUEL_WORDS)
    at[OPCODE] = OP_FUEL
    at[FUEL_INSTRUCTIONS] = instructions
    at[FUEL_BYTES] = bytes
    return 0


cdef inline int emit_deadline(Words* words) except -1:
    cdef int64_t* at = extend(words, DEADLINE_WORDS)
    at[OPCODE] = OP_DEADLINE
    return 0


cdef inline int emit_enter(Words* words, rvm_site* site) except -1:
    cdef int64_t* at = extend(words, ENTER_WORDS)
    at[OPCODE] = OP_ENTER
    at[ENTER_SITE] = <int64_t>site
    return 0


cdef inline int emit_step(Words* words, int64_t pc) except -1:
    cdef int64_t* at = extend(words, STEP_WORDS)
    at[OPCODE] = OP_STEP
    at[STEP_PC] = pc
    return 0


cdef inline int emit_defer(Words* words, int64_t after, int64_t callee, int64_t outs,
                           rvm_site* site, int64_t count) except -1:
    cdef int64_t* at = extend(words, DEFER_ARGS)
    at[OPCODE] = OP_DEFER
    at[DEFER_AFTER] = after
    at[DEFER_CALLEE] = callee
    at[DEFER_OUTS] = outs
    at[DEFER_SITE] = <int64_t>site
    at[DEFER_COUNT] = count
    return 0


cdef inline int emit_join(Words* words) except -1:
    cdef int64_t* at = extend(words, JOIN_WORDS)
    at[OPCODE] = OP_JOIN
    return 0


cdef inline int emit_hook_before(Words* words, int64_t dst, int64_t after, int64_t callee,
                                 int64_t pc, int64_t count) except -1:
    cdef int64_t* at = extend(words, HOOK_BEFORE_ARGS)
    at[OPCODE] = OP_HOOK_BEFORE
    at[HOOK_BEFORE_DST] = dst
    at[HOOK_BEFORE_AFTER] = after
    at[HOOK_BEFORE_CALLEE] = callee
    at[HOOK_BEFORE_PC] = pc
    at[HOOK_BEFORE_COUNT] = count
    return 0


cdef inline int emit_hook_after(Words* words, int64_t dst, int64_t result, int64_t callee,
                                int64_t pc, int64_t count) except -1:
    cdef int64_t* at = extend(words, HOOK_AFTER_ARGS)
    at[OPCODE] = OP_HOOK_AFTER
    at[HOOK_AFTER_DST] = dst
    at[HOOK_AFTER_RESULT] = result
    at[HOOK_AFTER_CALLEE] = callee
    at[HOOK_AFTER_PC] = pc
    at[HOOK_AFTER_COUNT] = count
    return 0
