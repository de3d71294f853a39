"""Libraries that TVM exports: bytecode and compiled kernels in one shared library.

=============  =====================================================================
``elf``        the shared library as data
``image``      what is in it: modules, bytecode, kernels, what cannot be run
``packed``     functions of TVM's runtime that kernels call
``loaded``     the library in this process: its kernels as `NativeFunction`
=============  =====================================================================

Neither TVM nor its libraries are needed.  ``relaxvm.load`` reads such a file as data;
``relaxvm.load(path, native=True)`` loads its code, too.
"""
