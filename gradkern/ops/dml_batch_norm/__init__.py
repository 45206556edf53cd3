"""Gradient of batch normalization with constant statistics, DirectML's BATCH_NORMALIZATION_GRAD.

Upstream gradient D = InputGradient, xh = (Input - Mean)/sqrt(Variance + Epsilon):

    OutputGradient = D Scale/sqrt(Variance + Epsilon)    no centring terms: the statistics do not depend on Input
    OutputScaleGradient = sum of D xh
    OutputBiasGradient = sum of D,  both over every dimension where Mean has size 1

All have one type T. Input, InputGradient and OutputGradient have one shape of rank 1 to 8; Mean, Variance, Scale and
their gradients have another of the same rank, each dimension 1 or Input's. Arithmetic is float32 (float64 for float64).

If mean and variance are those of the batch, as in training, they depend on Input: see BatchNormalizationGrad.

Source: DirectML, DML_BATCH_NORMALIZATION_GRAD_OPERATOR_DESC. Extensions: bfloat16, float64, every output optional,
OutputGradient over InputGradient or Input.
"""
