/* numpy's data types and those of the C kernels. */
#ifndef RELAXVM_KERNELS_NUMPY_DTYPES_H
#define RELAXVM_KERNELS_NUMPY_DTYPES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <numpy/arrayobject.h>
#include "_code.h"
#include "kernels/c/dtypes.h"

/* numpy's number of a data type -> ours. */
static const uint8_t rvm_dtypes[NPY_HALF + 1] = {
    [NPY_BOOL] = RVM_DTYPE_BOOL,
    [NPY_BYTE] = RVM_DTYPE_I8,
    [NPY_SHORT] = RVM_DTYPE_I16,
    [NPY_INT] = RVM_DTYPE_I32,
    [NPY_LONG] = sizeof(npy_long) == 8 ? RVM_DTYPE_I64 : RVM_DTYPE_I32,
    [NPY_LONGLONG] = RVM_DTYPE_I64,
    [NPY_UBYTE] = RVM_DTYPE_U8,
    [NPY_USHORT] = RVM_DTYPE_U16,
    [NPY_UINT] = RVM_DTYPE_U32,
    [NPY_ULONG] = sizeof(npy_ulong) == 8 ? RVM_DTYPE_U64 : RVM_DTYPE_U32,
    [NPY_ULONGLONG] = RVM_DTYPE_U64,
    [NPY_HALF] = RVM_DTYPE_F16,
    [NPY_FLOAT] = RVM_DTYPE_F32,
    [NPY_DOUBLE] = RVM_DTYPE_F64,
    [NPY_LONGDOUBLE] = RVM_DTYPE_LONG_DOUBLE,
    [NPY_CFLOAT] = RVM_DTYPE_C64,
    [NPY_CDOUBLE] = RVM_DTYPE_C128,
    [NPY_CLONGDOUBLE] = RVM_DTYPE_LONG_COMPLEX,
};

/* Our data type -> numpy's number of it. */
static const uint8_t rvm_numpy_types[RVM_NUM_DTYPES] = {
    [RVM_DTYPE_BOOL] = NPY_BOOL,
    [RVM_DTYPE_I8] = NPY_INT8,
    [RVM_DTYPE_I16] = NPY_INT16,
    [RVM_DTYPE_I32] = NPY_INT32,
    [RVM_DTYPE_I64] = NPY_INT64,
    [RVM_DTYPE_U8] = NPY_UINT8,
    [RVM_DTYPE_U16] = NPY_UINT16,
    [RVM_DTYPE_U32] = NPY_UINT32,
    [RVM_DTYPE_U64] = NPY_UINT64,
    [RVM_DTYPE_F16] = NPY_HALF,
    [RVM_DTYPE_F32] = NPY_FLOAT,
    [RVM_DTYPE_F64] = NPY_DOUBLE,
    [RVM_DTYPE_LONG_DOUBLE] = NPY_LONGDOUBLE,
    [RVM_DTYPE_C64] = NPY_CFLOAT,
    [RVM_DTYPE_C128] = NPY_CDOUBLE,
    [RVM_DTYPE_LONG_COMPLEX] = NPY_CLONGDOUBLE,
};

static const uint8_t rvm_item_sizes[RVM_NUM_DTYPES] = {
    [RVM_DTYPE_BOOL] = 1,
    [RVM_DTYPE_I8] = 1,
    [RVM_DTYPE_I16] = 2,
    [RVM_DTYPE_I32] = 4,
    [RVM_DTYPE_I64] = 8,
    [RVM_DTYPE_U8] = 1,
    [RVM_DTYPE_U16] = 2,
    [RVM_DTYPE_U32] = 4,
    [RVM_DTYPE_U64] = 8,
    [RVM_DTYPE_F16] = 2,
    [RVM_DTYPE_F32] = 4,
    [RVM_DTYPE_F64] = 8,
    [RVM_DTYPE_LONG_DOUBLE] = sizeof(npy_longdouble),
    [RVM_DTYPE_C64] = 8,
    [RVM_DTYPE_C128] = 16,
    [RVM_DTYPE_LONG_COMPLEX] = 2 * sizeof(npy_longdouble),
};

/* Our data type of the number that numpy gives a type of its own. */
static inline int rvm_builtin_dtype(int type) {
    return type >= 0 && type <= NPY_HALF ? rvm_dtypes[type] : RVM_DTYPE_NONE;
}

/* The data type of an array's elements, whatever their byte order. */
static inline int rvm_dtype_of(const PyArray_Descr *descr) {
    int type = descr->type_num;
    if (RVM_LIKELY(type < NPY_USERDEF)) return rvm_builtin_dtype(type);
    if (type - NPY_USERDEF > 255 - RVM_DTYPE_OTHER || PyDataType_REFCHK(descr)) return RVM_DTYPE_NONE;
    return RVM_DTYPE_OTHER + type - NPY_USERDEF;
}

#endif
