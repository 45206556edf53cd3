"""Whether elements are finite, and the Euclidean norm of all.

    IsFinite     Y = X is neither an infinity nor NaN, element by element
    IsAllFinite  output = all elements of input are finite; true of nothing
    ReduceAllL2  Y = sqrt(sum of X^2); 0 of nothing

Sums are float64, in an order that the size alone determines: squares neither overflow nor vanish where Y does not, and
the same call gives the same bits every time. Y is rounded once.

Source: ONNX Runtime Training, com.microsoft 1, CUDA kernels of these names, of a single array: the norm of several is
that of their norms. Beyond them: bfloat16 and float64, any number of elements. There sums of 16 bits overflow where the
square of the norm is beyond 65504, and atomics add in any order.
"""
