"""GELU(X + B) and its gradients, in the exact form and in the fast (tanh) form.

B is one bias for each column, the last dimension of X. The forward pass calls X A. Upstream gradient D = dY,
z = X + B:

    BiasGelu             C = z Phi(z)
    BiasFastGelu         C = z (1 + t)/2
    BiasGeluGrad_dX      dX = D (Phi(z) + z phi(z)),  Phi the normal distribution function, phi its density
    BiasFastGeluGrad_dX  dX = D ((1 + t)/2 + z/2 c (1 - t^2) (1 + 3 a z^2)),
                         t = tanh(c (z + a z^3)), c = sqrt(2/pi), a = 0.044715
    dB = sum over rows of dX before rounding, in the same pass; computed only if requested

dY, X and dX have one type T and one shape of rank 1 or more; B and dB have the type TB and one dimension. z may have
any size: large z gives D or 0, never NaN. NaN stays NaN. Arithmetic is float32 (float64 for float64).

Sources: ONNX Runtime, com.microsoft 1, BiasGelu, and FastGelu with its bias (its names X, bias and Y are replaced by
those of BiasGelu); ONNX Runtime Training, com.microsoft 1, CUDA kernels named as the gradients: they compute the exact
form in T, give NaN for large finite z, and have no dB. Extensions: B of another type than X; dX may be written over dY
or X, and C over A.
"""
