/* Generated from relaxvm/isa.py by scripts/gen_isa.py - do not edit. */
#ifndef RELAXVM_ISA_H_
#define RELAXVM_ISA_H_

#include <stdint.h>

/* Opcode words. */
enum {
  RELAXVM_OP_CALL = 1,
  RELAXVM_OP_RET = 2,
  RELAXVM_OP_GOTO = 3,
  RELAXVM_OP_IF = 4,
};

/* Kinds of an argument word. */
enum {
  RELAXVM_ARG_REGISTER = 0,
  RELAXVM_ARG_IMMEDIATE = 1,
  RELAXVM_ARG_CONSTANT = 2,
  RELAXVM_ARG_FUNCTION = 3,
};

/* Kinds of an entry of the function table. */
enum {
  RELAXVM_FUNC_PACKED = 0,
  RELAXVM_FUNC_BYTECODE = 1,
  RELAXVM_FUNC_COMPILED = 2,
};

/* Position of each word, from the start of its instruction. */
enum {
  RELAXVM_CALL_DST = 1, /* register written, or the void register */
  RELAXVM_CALL_FUNC_IDX = 2, /* index into the function table */
  RELAXVM_CALL_ARGS_COUNT = 3, /* number of args */
  RELAXVM_CALL_ARGS = 4, /* first of args; each: argument word: kind and value */
  RELAXVM_RET_RESULT = 1, /* register read */
  RELAXVM_GOTO_PC_OFFSET = 1, /* distance in instructions, relative to this one */
  RELAXVM_IF_COND = 1, /* register read */
  RELAXVM_IF_FALSE_OFFSET = 2, /* distance in instructions, relative to this one */
};

/* Largest value of an argument word. */
#define RELAXVM_VALUE_MAX INT64_C(36028797018963967)
/* Smallest immediate. */
#define RELAXVM_VALUE_MIN (-INT64_C(36028797018963967))
/* Bits of the value in an argument word. */
#define RELAXVM_VALUE_MASK INT64_C(72057594037927935)
/* Register number for "no value" and "discard". */
#define RELAXVM_VOID_REGISTER INT64_C(18014398509481984)
/* Register number of the virtual machine. */
#define RELAXVM_VM_REGISTER INT64_C(18014398509481985)
/* num_args of a function whose arity is unknown. */
#define RELAXVM_NO_ARITY (-INT64_C(2))

/* An argument word: kind in the upper 8 bits, sign-extended value in the lower 56. */
#define RELAXVM_KIND_SHIFT 56
#define RELAXVM_ARG_WORD(kind, value)                        \
  ((int64_t)(((uint64_t)(kind) << RELAXVM_KIND_SHIFT) |      \
             ((uint64_t)(value) & (uint64_t)RELAXVM_VALUE_MASK)))
#define RELAXVM_ARG_KIND(word) ((int)((uint64_t)(word) >> RELAXVM_KIND_SHIFT))
/* (x ^ sign) - sign extends the sign bit without a shift of a negative number. */
#define RELAXVM_ARG_VALUE(word)                                                  \
  ((int64_t)(((uint64_t)(word) & (uint64_t)RELAXVM_VALUE_MASK) ^                 \
             (uint64_t)(RELAXVM_VALUE_MAX + 1)) - (RELAXVM_VALUE_MAX + 1))

/* First word of a file. */
#define RELAXVM_FILE_MAGIC UINT64_C(0xD225DE2F4214151E)
/* First word of older files, which have no section of memory scopes. */
#define RELAXVM_FILE_MAGIC_WITHOUT_SCOPES UINT64_C(0xD225DE2F4214151D)

#endif /* RELAXVM_ISA_H_ */
