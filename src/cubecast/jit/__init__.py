"""The only door to Numba. It compiles functions over tuples of NumPy arrays and knows nothing of what they do.

- `decorators`: `entry_point`, `linked`, `inlined`, `allocating`, and the choice of a function by the class of a state
- `sources`: which files a function is made from, and where its code is kept
- `tables`: tuples of arrays by their address
- `linking`: how `linked` functions become part of their callers
- `backend`, `self_test`: whether all this works with the Numba that is installed
- `compile_apart`: compiling many functions on all cores
- `prefetch`: a hint to the processor

docs/jit.md explains how to debug a failed compilation, step through a compiled function, and profile one.
"""
