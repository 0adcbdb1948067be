"""The only module that uses Numba. It compiles functions over tuples of NumPy arrays, whatever they compute.

- `decorators`: `entry_point`, `linked`, `inlined`, `allocating`, and the choice of a function by the class of a state
- `sources`: which files a function is compiled from, and where its code is cached
- `tables`: tuples of arrays by their address
- `linking`: how `linked` functions become part of their callers
- `backend`, `self_test`: whether all this works with the Numba that is installed
- `compile_apart`: compiling many functions on all cores
- `prefetch`: a hint to the processor

docs/jit.md explains how to debug a failed compilation, step through a compiled function, and profile one.
"""
