"""Libraries that TVM exports: bytecode and compiled kernels in one shared library.

=============  =====================================================================
``elf``        the shared library as data
``image``      what is in it: modules, bytecode, kernels, what cannot be run
``copy``       the private copy that is loaded
``process``    its code in this process, and what that needs from its host
``packed``     functions of TVM's runtime that kernels call
``vectors``    how far tensors have to be aligned for its code
``loaded``     its kernels as `NativeFunction`
=============  =====================================================================

Neither TVM nor its libraries are needed.  ``relaxvm.load`` reads such a file as data;
``relaxvm.load(path, native=True)`` loads its code, too.
"""
