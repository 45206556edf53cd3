"""Gated linear units and their gradients, element by element.

    SwiGLU  Y = A s B,        dA = dY B s (1 + A (1 - s)),  dB = dY A s,       s = 1/(1 + exp(-A))
    GeGLU   Y = gelu(A) B,    dA = dY B gelu'(A),           dB = dY gelu(A);   approximate: as PyTorch's

A is the gate. All arrays have one shape and one type T; they may be halves of one array, or of several. The gradients
also give out Y, where it is wanted, so that nobody has to keep it. Arithmetic is float32 (float64 for float64) and
rounds once, at the store.

Source: Shazeer, "GLU Variants Improve Transformer" (2020).
"""
