"""The compiled parts below the dispatch loop, and the Python next to them.

=================  =================================================================
``operations``     the tables of the loop's operations and of rewritings
``translated``     listings of translated code
``_code``          translated code: what the translator writes and the loop runs
``_translate``     from the words of an executable to translated code
``_storage``       storages and the allocators that pool them
``_native``        calls of native functions
``_host``          what machine code of TVM asks of the process that runs it
``_threads``       the threads that kernels share
``_fused``         chains of elementwise kernels, block by block
``_build``         how the extensions were built
``conversion``     results of packed functions as values
``ffi``            values and functions of TVM's FFI
``floating``       reports of floating-point errors
``live_machines``  the virtual machines that are alive
``processors``     how many processors a control group leaves to the process
=================  =================================================================

The loop itself is `relaxvm._core`.
"""
