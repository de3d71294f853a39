# Generated from relaxvm/isa.py by scripts/gen_isa.py - do not edit.

from libc.stdint cimport int64_t


cdef extern from "relaxvm/isa.h" nogil:
    # Opcode words.
    enum:
        OP_CALL "RELAXVM_OP_CALL"
        OP_RET "RELAXVM_OP_RET"
        OP_GOTO "RELAXVM_OP_GOTO"
        OP_IF "RELAXVM_OP_IF"

    # Kinds of an argument word.
    enum:
        ARG_REGISTER "RELAXVM_ARG_REGISTER"
        ARG_IMMEDIATE "RELAXVM_ARG_IMMEDIATE"
        ARG_CONSTANT "RELAXVM_ARG_CONSTANT"
        ARG_FUNCTION "RELAXVM_ARG_FUNCTION"

    # Kinds of an entry of the function table.
    enum:
        FUNC_PACKED "RELAXVM_FUNC_PACKED"
        FUNC_BYTECODE "RELAXVM_FUNC_BYTECODE"
        FUNC_COMPILED "RELAXVM_FUNC_COMPILED"

    # Position of each word, from the start of its instruction.
    enum:
        CALL_DST "RELAXVM_CALL_DST"
        CALL_FUNC_IDX "RELAXVM_CALL_FUNC_IDX"
        CALL_ARGS_COUNT "RELAXVM_CALL_ARGS_COUNT"
        CALL_ARGS "RELAXVM_CALL_ARGS"
        RET_RESULT "RELAXVM_RET_RESULT"
        GOTO_PC_OFFSET "RELAXVM_GOTO_PC_OFFSET"
        IF_COND "RELAXVM_IF_COND"
        IF_FALSE_OFFSET "RELAXVM_IF_FALSE_OFFSET"
        KIND_SHIFT "RELAXVM_KIND_SHIFT"

    const int64_t VALUE_MAX "RELAXVM_VALUE_MAX"
    const int64_t VALUE_MIN "RELAXVM_VALUE_MIN"
    const int64_t VALUE_MASK "RELAXVM_VALUE_MASK"
    const int64_t VOID_REGISTER "RELAXVM_VOID_REGISTER"
    const int64_t VM_REGISTER "RELAXVM_VM_REGISTER"
    const int64_t NO_ARITY "RELAXVM_NO_ARITY"

    int64_t ARG_WORD "RELAXVM_ARG_WORD" (int kind, int64_t value)
    int ARG_KIND "RELAXVM_ARG_KIND" (int64_t word)
    int64_t ARG_VALUE "RELAXVM_ARG_VALUE" (int64_t word)
