"""Whether elements are finite, and the Euclidean norm of all.

    IsFinite     Y = X is neither an infinity nor NaN, element by element
    IsAllFinite  output = all elements of all inputs are finite; true of nothing
    ReduceAllL2  Y = sqrt(sum of X^2 over all inputs); 0 of nothing

The last two take any number of arrays of one type. Sums are float64, in an order that the sizes alone determine:
squares neither overflow nor vanish where Y does not, and the same call gives the same bits every time. Y is rounded
once.

Source: ONNX Runtime Training, com.microsoft 1, CUDA kernels of these names, without the attributes that look for
infinities or NaN alone. Beyond them: bfloat16 and float64, any number of elements. There sums of 16 bits overflow where
the square of the norm is beyond 65504, and atomics add in any order.
"""
