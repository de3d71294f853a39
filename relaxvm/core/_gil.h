/* The interpreter lock, for code that may be called with it and without. */
#ifndef RELAXVM_GIL_H
#define RELAXVM_GIL_H

#include <Python.h>

typedef struct {
    int held; /* whether the thread had the lock before */
    PyGILState_STATE state;
} rvm_gil;

/* Whether this thread has the lock: quicker than PyGILState_Ensure, which nearly always finds that. */
static inline int rvm_holds_gil(void) {
#if PY_VERSION_HEX >= 0x030D0000
    return PyThreadState_GetUnchecked() != NULL;
#elif PY_VERSION_HEX >= 0x030C0000
    return _PyThreadState_UncheckedGet() != NULL;
#else
    /* The state of whichever thread has the lock. */
    PyThreadState *state = _PyThreadState_UncheckedGet();
    return state != NULL && state == PyGILState_GetThisThreadState();
#endif
}

static inline rvm_gil rvm_take_gil(void) {
    rvm_gil gil = {rvm_holds_gil(), PyGILState_LOCKED};
    if (!gil.held) gil.state = PyGILState_Ensure();
    return gil;
}

static inline void rvm_leave_gil(rvm_gil gil) {
    if (!gil.held) PyGILState_Release(gil.state);
}

#endif
