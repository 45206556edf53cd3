"""The gradients of softmax and of its logarithm, from the forward pass's output.

    SoftmaxGrad, SoftmaxGrad_13        dX = Y (dY - sum dY Y),     Y = softmax(input)
    LogSoftmaxGrad, LogSoftmaxGrad_13  dX = dY - exp(X) sum dY,    X = log softmax(input), named X in that contract
    SoftmaxDropoutGrad                 dX = Y (D - sum D Y),       D = dY / (1 - ratio) where the mask is true, else 0

The sums are over one row. Of SoftmaxDropoutGrad and of the operators of ONNX before 13 a row has all dimensions from
`axis` on; of those with _13 it has dimension `axis` alone.

dY and the forward pass's output have one type G and one shape; dX has that shape and the type T. T is G, unless the
forward pass has widened its input: float32 from float16 or bfloat16. Arithmetic is float32 (float64 for float64)
and rounds once, at the store. NaN and infinity go through as in PyTorch: a NaN reaches all of its row, and so does 0
times an infinity. An output of minus infinity is a probability of 0.

Source: ONNX Runtime Training, com.microsoft 1, CUDA kernels of these names. Beyond them: bfloat16 for the logarithm, T
other than G, dX over either input, and rows along any axis without transposed copies.
"""
