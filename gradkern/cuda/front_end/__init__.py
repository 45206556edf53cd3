"""A reduced version of Numba's front end for gradkern's kernels: a third to a fifth of the time to compile one.

    compiler  in place of numba.cuda.compiler and numba.cuda.dispatcher: device functions are typed once for each set of
              argument types and inlined by NVVM, where Numba's inlining copies their statements to every call and types
              all copies; passes for constructs that kernels do not have (closures made in them, generators, array
              expressions, overloads) are skipped
    lowering  in place of numba.cuda.lowering and the contexts of numba.cuda.target: no look-up is repeated
    folding   before both: constants and branches are decided in the source. It uses no part of Numba, and Numba's own
              front end gets the folded source, too

Numba is not patched, but the names that `compiler` and `lowering` import are undocumented. They are used with the
releases of numba-cuda that `gradkern.cuda.compile.TESTED` names. With any other, or where an import fails,
`gradkern.cuda.compile` falls back to `numba.cuda.compile`: the same kernels, more slowly.

Seconds of a core for kernels of four operators, with numba-cuda 0.30:

                     streaming  persistent  GELU   softmax
    this front end   1.08       0.45        0.21   0.29
    without folding  1.29       0.49        0.25   0.34
    Numba's own      5.91       1.41        0.64   0.60
"""
