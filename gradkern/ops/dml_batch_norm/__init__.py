"""Gradients of batch normalization, DirectML's: DmlBatchNormalizationGrad, BATCH_NORMALIZATION_GRAD, of constant
statistics, and DmlBatchNormalizationTrainingGrad, BATCH_NORMALIZATION_TRAINING_GRAD, of those of the batch.

Upstream gradient D = InputGradient, xh = (Input - Mean)/sqrt(Variance + Epsilon):

    OutputScaleGradient = sum of D xh
    OutputBiasGradient = sum of D,  both over every dimension where Mean has size 1
    OutputGradient = D Scale/sqrt(Variance + Epsilon)    of constant statistics, independent of Input

In training D is less OutputBiasGradient/m and xh OutputScaleGradient/m there, m elements in each sum.

All have one type T. Input, InputGradient and OutputGradient have one shape of rank 1 to 8; Mean, Variance, Scale and
their gradients have another of the same rank, each dimension 1 or Input's. Arithmetic is float32 (float64 for float64).

Sources: DirectML, DML_BATCH_NORMALIZATION_GRAD_OPERATOR_DESC and DML_BATCH_NORMALIZATION_TRAINING_GRAD_OPERATOR_DESC.
Extensions: bfloat16, float64, every output optional,
OutputGradient over InputGradient or Input.
"""
