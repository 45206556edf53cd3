"""The gradients of activations, element by element: dX = dY times the slope.

    GeluGrad       Phi(X) + X phi(X),                            Phi and phi of the normal distribution
    FastGeluGrad   w + 2 X w (1 - w) c (1 + 3 a X^2),            w = 1/(1 + exp(-2 c (X + a X^3))),
                                                                 c = sqrt(2/pi), a = 0.044715
    QuickGeluGrad  s (1 + alpha X (1 - s)),                      s = 1/(1 + exp(-alpha X)); with alpha = 1 that of SiLU
    ReluGrad       1 for X > 0, else 0 (also for NaN)
    LeakyReluGrad  1 for Y > 0, else alpha                       Y, the output, whose sign is the input's
    SigmoidGrad    Y (1 - Y)                                     Y, the output
    TanhGrad       1 - Y^2                                       Y, the output
    DmlActivationReluGrad                            1 for X > 0, else 0 (also for NaN)
    DmlElementWiseClipGrad, DmlElementWiseClipGrad1  0 for X <= Min and for X >= Max, else 1 (also for NaN)

dY, X or Y, and dX have one shape and one type T, in any order of memory that they share. Arithmetic is float32 (float64
for float64) and rounds once, at the store. dX of ReluGrad, and of DirectML's, is 0 where the slope is, whatever dY is
there. DirectML's names of X, dY and dX are Input, InputGradient and OutputGradient.

Sources: ONNX Runtime Training, com.microsoft 1, CUDA kernels of these names; DirectML, the operators
ACTIVATION_RELU_GRAD, ELEMENT_WISE_CLIP_GRAD and ELEMENT_WISE_CLIP_GRAD1. Beyond ONNX Runtime: bfloat16 and float64 in
all, arithmetic in float32 where it rounds each step to T, dX over either input. A negative alpha of LeakyReluGrad is
refused, since the sign of the output does not tell that of the input then.
"""
