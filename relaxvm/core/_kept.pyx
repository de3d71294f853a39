"""Copies of a few rows into tensors that a VM keeps, as a decoder makes them for each token.

The functions here do the usual case, without numpy's indexing, and leave all others to their callers, which
have the rules and the messages.  A decoder calls them for each layer, between products that fill the caches of the
processor, so that each line of Python would cost more than the copy.
"""

from libc.stdint cimport int64_t
from libc.string cimport memcpy, memmove

cimport numpy as cnp

cnp.import_array()

cdef extern from *:
    """
    /* Whether the elements of an array are numbers without references, one after the other. */
    static int rvm_kept_is_plain(PyArrayObject *x) {
        return PyArray_TYPE(x) < NPY_OBJECT && PyArray_ISBEHAVED_RO(x) && PyArray_IS_C_CONTIGUOUS(x);
    }

    /* A writable view of the first elements along the axes of `base`. */
    static PyObject *rvm_kept_view(PyArrayObject *base, npy_intp *dims) {
        PyArray_Descr *descr = PyArray_DESCR(base);
        Py_INCREF(descr); /* stolen */
        PyObject *made = PyArray_NewFromDescr(&PyArray_Type, descr, PyArray_NDIM(base), dims, PyArray_STRIDES(base),
                                              PyArray_DATA(base), NPY_ARRAY_WRITEABLE | NPY_ARRAY_ALIGNED, NULL);
        if (made == NULL) return NULL;
        Py_INCREF(base); /* stolen, also on failure */
        if (PyArray_SetBaseObject((PyArrayObject *)made, (PyObject *)base) < 0) {
            Py_DECREF(made);
            return NULL;
        }
        return made;
    }
    """
    bint rvm_kept_is_plain(cnp.ndarray x) noexcept
    cnp.ndarray rvm_kept_view(cnp.ndarray base, cnp.npy_intp* dims)

cdef enum:
    MOST_DIMS = 32
    MOST_BYTES = 1 << 16
    MOST_PLACES = 64


def opened(dict state, name, initial, axis):
    """Do `cache_open` where something is kept under a name that goes with `initial`.

    Args:
        state: what the VM keeps.
        name: of the state.
        initial: what would be kept if there were nothing.
        axis: whose length may be another one.

    Returns:
        What is kept; or None, where the caller looks again.
    """
    if type(name) is not str or type(initial) is not cnp.ndarray or type(axis) is not int:
        return None
    kept = state.get(name)
    if type(kept) is not cnp.ndarray:
        return None
    cdef cnp.ndarray found = kept, like = initial
    cdef Py_ssize_t i, place = axis if 0 <= axis < MOST_DIMS else -1, nd = found.ndim
    if like.ndim != nd or not 0 <= place < nd or found.dtype is not like.dtype:
        return None
    for i in range(nd):
        if i != place and found.shape[i] != like.shape[i]:
            return None
    return found


def extended(dict state, dict rooms, name, added, axis):
    """Do `cache_extend` where what is kept under a name is what it returned last, and there is room
    behind it for a few plain elements.

    Args:
        state: what the VM keeps.
        rooms: the `Room` of each name.
        name: of the state.
        added: the tensor to put behind what is kept.
        axis: along which axis.

    Returns:
        Both together; or None, and nothing is changed.
    """
    if type(name) is not str or type(added) is not cnp.ndarray or type(axis) is not int:
        return None
    if not 0 <= axis < MOST_DIMS:
        return None
    room, kept = rooms.get(name), state.get(name)
    if room is None or type(kept) is not cnp.ndarray or room.last is not kept:
        return None
    buffer = room.buffer
    if type(buffer) is not cnp.ndarray:
        return None
    cdef cnp.ndarray into = buffer, old = kept, new = added
    cdef Py_ssize_t place = axis, i, nd = into.ndim, outer = 1, inner = into.itemsize, start, end
    if not place < nd <= MOST_DIMS or old.ndim != nd or new.ndim != nd or cnp.PyArray_NBYTES(new) > MOST_BYTES:
        return None
    if not rvm_kept_is_plain(into) or not rvm_kept_is_plain(new) or not cnp.PyArray_ISWRITEABLE(into):
        return None
    if old.dtype is not into.dtype or new.dtype is not into.dtype:
        return None
    cdef cnp.npy_intp[MOST_DIMS] dims
    for i in range(nd):
        dims[i] = into.shape[i]
        if i != place and (old.shape[i] != dims[i] or new.shape[i] != dims[i]):
            return None
        if i < place:
            outer *= dims[i]
        elif i > place:
            inner *= dims[i]
    start, end = old.shape[place], old.shape[place] + new.shape[place]
    if end > dims[place] or room.used != start:
        return None
    cdef char* target = cnp.PyArray_BYTES(into) + start * inner
    cdef char* source = cnp.PyArray_BYTES(new)
    cdef Py_ssize_t row = (end - start) * inner, step = dims[place] * inner
    dims[place] = end
    found = rvm_kept_view(into, dims)
    for i in range(outer):
        memmove(target + i * step, source + i * row, row)
    room.used = end
    state[name] = room.last = found
    return found


def is_put(x, value, indices):
    """Do `put` where a few plain elements go to places along one axis: ``x[:, ..., places] = value``.

    Args:
        x: the tensor that is written to.
        value: as large as the places.
        indices: 0 for each of the axes before, and a vector of int64.

    Returns:
        Whether it is done; if not, nothing is changed.
    """
    if type(x) is not cnp.ndarray or type(value) is not cnp.ndarray or type(indices) is not tuple:
        return False
    cdef Py_ssize_t axis = len(<tuple>indices) - 1, i, j
    if axis < 0 or type((<tuple>indices)[axis]) is not cnp.ndarray:
        return False
    cdef cnp.ndarray into = x, new = value, places = (<tuple>indices)[axis]
    cdef Py_ssize_t nd = into.ndim, lead = nd - new.ndim
    if axis >= nd or lead < 0 or not 0 < cnp.PyArray_NBYTES(new) <= MOST_BYTES or places.ndim != 1:
        return False
    if cnp.PyArray_TYPE(places) != cnp.NPY_INT64 or not rvm_kept_is_plain(places):
        return False
    if into.dtype is not new.dtype or not rvm_kept_is_plain(into) or not rvm_kept_is_plain(new):
        return False
    if not cnp.PyArray_ISWRITEABLE(into):
        return False
    for i in range(axis):
        if type((<tuple>indices)[i]) is not int:
            return False
    cdef Py_ssize_t outer = 1, inner = into.itemsize, length, count = places.shape[0]
    for i in range(nd):
        length = count if i == axis else into.shape[i]
        if length != (new.shape[i - lead] if i >= lead else 1):
            return False
        if i < axis:
            outer *= length
        elif i > axis:
            inner *= length
    length = into.shape[axis]
    if count > MOST_PLACES:
        return False
    # Each is read once: a kernel that another thread runs without the lock may write to them.
    cdef int64_t[MOST_PLACES] at
    memcpy(at, cnp.PyArray_DATA(places), count * sizeof(int64_t))
    for j in range(count):
        if not 0 <= at[j] < length:
            return False
    cdef char* target = cnp.PyArray_BYTES(into)
    cdef char* source = cnp.PyArray_BYTES(new)
    if target < source + cnp.PyArray_NBYTES(new) and source < target + cnp.PyArray_NBYTES(into):
        return False
    for i in range(outer):
        for j in range(count):
            memcpy(target + (i * length + at[j]) * inner, source, inner)
            source += inner
    return True
