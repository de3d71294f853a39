/* Conversions between data types, of elements that follow each other, in the form of a ufunc's loop. */
#ifndef RELAXVM_KERNELS_CAST_H
#define RELAXVM_KERNELS_CAST_H

#include "kernel_call.h"

typedef uint8_t rvm_bool; /* memory that is seen as bools may hold other bytes than 0 and 1 */

#define RVM_DEFINE_CAST(name, from, to, value)                                                  \
    static void name(char **args, const intptr_t *count, const intptr_t *steps, void *data) {   \
        const from *in = (const from *)args[0];                                                 \
        to *out = (to *)args[1];                                                                \
        const intptr_t length = *count; /* which might be part of the result, for all that compilers know */ \
        (void)steps;                                                                            \
        (void)data;                                                                             \
        for (intptr_t i = 0; i < length; i++) out[i] = (to)(value);                            \
    }
#define RVM_CAST(from, to) RVM_DEFINE_CAST(rvm_cast_##from##_##to, from, to, in[i])
#define RVM_CAST_BOOL(from, to) RVM_DEFINE_CAST(rvm_cast_##from##_##to, from, to, in[i] != 0)
#define RVM_TRUTH(from) RVM_DEFINE_CAST(rvm_truth_##from, from, rvm_bool, in[i] != 0)
/* Whether any bit is set but the sign of a float: compilers make vectors of that. */
#define RVM_TRUTH_OF_WORD(from, bits) RVM_DEFINE_CAST(rvm_truth_##from, uint32_t, rvm_bool, (in[i] & (bits)) != 0)
#define RVM_TRUTH_OF_TWO(from, bits) \
    RVM_DEFINE_CAST(rvm_truth_##from, uint64_t, rvm_bool, (((uint32_t)in[i]) | ((uint32_t)(in[i] >> 32) & (bits))) != 0)

#define RVM_INT_TYPES(X, from) X(from, int8_t) X(from, uint8_t) X(from, int16_t) X(from, uint16_t) \
    X(from, int32_t) X(from, uint32_t) X(from, int64_t) X(from, uint64_t)
#define RVM_REAL_TYPES(X, from) X(from, float) X(from, double)
#define RVM_CASTS_OF_INT(from) RVM_INT_TYPES(RVM_CAST, from) RVM_REAL_TYPES(RVM_CAST, from)

RVM_CASTS_OF_INT(int8_t)
RVM_CASTS_OF_INT(uint8_t)
RVM_CASTS_OF_INT(int16_t)
RVM_CASTS_OF_INT(uint16_t)
RVM_CASTS_OF_INT(int32_t)
RVM_CASTS_OF_INT(uint32_t)
RVM_CASTS_OF_INT(int64_t)
RVM_CASTS_OF_INT(uint64_t)
RVM_TRUTH(int8_t)
RVM_TRUTH(uint8_t)
RVM_TRUTH(int16_t)
RVM_TRUTH(uint16_t)
RVM_TRUTH(int32_t)
RVM_TRUTH(uint32_t)
RVM_TRUTH_OF_TWO(int64_t, 0xffffffffu)
RVM_TRUTH_OF_TWO(uint64_t, 0xffffffffu)
RVM_REAL_TYPES(RVM_CAST, float)
RVM_REAL_TYPES(RVM_CAST, double)
RVM_TRUTH_OF_WORD(float, 0x7fffffffu)
RVM_TRUTH_OF_TWO(double, 0x7fffffffu)
RVM_INT_TYPES(RVM_CAST_BOOL, rvm_bool)
RVM_REAL_TYPES(RVM_CAST_BOOL, rvm_bool)

enum {
    RVM_DTYPE_OF_int8_t = RVM_DTYPE_I8,
    RVM_DTYPE_OF_int16_t = RVM_DTYPE_I16,
    RVM_DTYPE_OF_int32_t = RVM_DTYPE_I32,
    RVM_DTYPE_OF_int64_t = RVM_DTYPE_I64,
    RVM_DTYPE_OF_uint8_t = RVM_DTYPE_U8,
    RVM_DTYPE_OF_uint16_t = RVM_DTYPE_U16,
    RVM_DTYPE_OF_uint32_t = RVM_DTYPE_U32,
    RVM_DTYPE_OF_uint64_t = RVM_DTYPE_U64,
    RVM_DTYPE_OF_float = RVM_DTYPE_F32,
    RVM_DTYPE_OF_double = RVM_DTYPE_F64
};
#define RVM_PICK(from, to) case RVM_DTYPE_OF_##to: return rvm_cast_##from##_##to;
#define RVM_PICK_FROM_INT(from)                                     \
    case RVM_DTYPE_OF_##from:                                       \
        if (to == RVM_DTYPE_BOOL) return rvm_truth_##from;          \
        switch (to) { RVM_INT_TYPES(RVM_PICK, from) RVM_REAL_TYPES(RVM_PICK, from) } \
        return NULL;
#define RVM_PICK_FROM_REAL(from)                                    \
    case RVM_DTYPE_OF_##from:                                       \
        if (to == RVM_DTYPE_BOOL) return rvm_truth_##from;          \
        switch (to) { RVM_REAL_TYPES(RVM_PICK, from) }              \
        return NULL;

/* The conversion between two data types; NULL where it is left to numpy: what C makes of a float that
 * does not fit an integer type is undefined. */
static RvmLoopCall rvm_cast_loop(int from, int to) {
    switch (from) {
        case RVM_DTYPE_BOOL:
            if (to == RVM_DTYPE_BOOL) return rvm_cast_uint8_t_uint8_t; /* as in numpy, bytes stay */
            switch (to) {
                RVM_INT_TYPES(RVM_PICK, rvm_bool)
                RVM_REAL_TYPES(RVM_PICK, rvm_bool)
            }
            return NULL;
        RVM_PICK_FROM_INT(int8_t)
        RVM_PICK_FROM_INT(uint8_t)
        RVM_PICK_FROM_INT(int16_t)
        RVM_PICK_FROM_INT(uint16_t)
        RVM_PICK_FROM_INT(int32_t)
        RVM_PICK_FROM_INT(uint32_t)
        RVM_PICK_FROM_INT(int64_t)
        RVM_PICK_FROM_INT(uint64_t)
        RVM_PICK_FROM_REAL(float)
        RVM_PICK_FROM_REAL(double)
        default: return NULL;
    }
}

#endif
