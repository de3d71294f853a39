"""Libraries exported by TVM: bytecode and compiled kernels in one shared library.

=============  =====================================================================
``elf``        the shared library as data
``image``      its content: modules, bytecode, kernels, reasons why it cannot be run
``copy``       the private copy that is loaded
``process``    its code in this process, and the host functions that it needs
``packed``     functions of TVM's runtime that kernels call
``vectors``    the alignment of tensors that its code requires
``compiled``   functions of the program in machine code
``loaded``     its kernels as `NativeFunction`
=============  =====================================================================

Neither TVM nor its libraries are needed.  ``relaxvm.load`` reads such a file as data;
``relaxvm.load(path, native=True)`` also loads its code.
"""
