"""Native code: functions in shared libraries, the system's C compiler, and libraries of kernels."""
