"""Gradient of batch normalization in training, where mean and variance are those of the batch.

Channels are the second axis. Upstream gradient D = dY, xh = (X - saved_mean) saved_inv_std, m elements in each channel:

    dBias = sum of D,  dScale = sum of D xh,  both over all but the channels
    dX = Scale saved_inv_std/m (m D - dBias - xh dScale)

dY, X and dX (N, C, spatial...) have the type T; Scale, dScale and dBias (C) the type T1; the statistics (C) T2.
Arithmetic is float32 (float64 for float64). The statistics may be any values, not only those of X. epsilon is accepted
for compatibility: saved_inv_std already has it. mode pins cuDNN's mode and has no effect elsewhere.

Source: ONNX Runtime Training, com.microsoft 1, which calls cuDNN. Beyond it: bfloat16, any rank from 2 on,
channels-last arrays by their strides and without a copy, empty arrays, every output optional, dX over dY or X.
"""
