"""LayerNormalization, SimplifiedLayerNormalization (RMSNorm), and their gradients: from the input and from the output.

The first `axis` dimensions are rows, the others columns. Each row X has its mean, and r, its inverse standard deviation
(an inverse standard deviation also where the argument is called inv_std_var); xh is the normalised input:

    LayerNormalization            xh = (X - mean) r,  r = 1 / sqrt(mean of (X - mean)^2 + epsilon),  Y = xh Scale + B
    SimplifiedLayerNormalization  xh = X r,           r = 1 / sqrt(mean of X^2 + epsilon),           Y = xh scale

    SkipLayerNormalization, SkipSimplifiedLayerNormalization: the same of X = input + skip + bias, with gamma for the
    scale and beta for B. X is rounded to the type of skip first: the gradients take the rounded value. It is also an
    output, input_skip_bias_sum, the residual of the following layers. Beside a residual of float32, input and output
    may have 16 bits, as autocast makes them.

    LayerNormalizationGrad            xh = (X - mean) r
    SimplifiedLayerNormalizationGrad  xh = X r
    InvertibleLayerNormalizationGrad  xh = (Y - bias) / scale, from the output Y: the forward pass need not keep X

InvertibleLayerNormalizationGrad is also a gradient of LayerNormalization and takes its Y and InvStdDev. ONNX Runtime
Training has no forward operator for it: it replaces LayerNormalizationGrad to save memory. The forward operators return
statistics in ONNX's shape, `axis` dimensions followed by ones; the gradients accept it.

Of the gradients, with the upstream gradient D:

    s1 = sum over columns of D scale,  s2 = sum over columns of D scale xh
    X_grad = r/columns (columns D scale - s1 - xh s2)    no s1 without a mean (Simplified)
    scale_grad = sum over rows of D xh
    bias_grad = sum over rows of D

residual_grad, the gradient of X that bypasses the norm, is added to X_grad if it is given. branch_grad is X_grad in
the type of a skip form's input, where that is not the sum's: one pass writes both. X_grad_sum, the sum of
X_grad over rows, is the gradient of a vector that was added to every row of X: the bias of a skip form, or of a linear
layer whose output is part of X.

X, Y and their gradients are rows x columns; scale, bias and theirs have columns elements; mean and r have rows.
Types: T of X and X_grad, U of the statistics, V of the parameters, G of Y and Y_grad: T or V, or 16 bits beside
float32; S of a skip form's input and of branch_grad: T, or 16 bits beside float32. Arithmetic is
float32 (float64 for float64) and rounds once, at the store. Sums over rows are in float64 or compensated. The variance
is computed from differences to a mean, so that no digits cancel.

Sources: ONNX, LayerNormalization 17 (only stash_type 1, float32, is accepted, but float64 data have float64
statistics); ONNX Runtime, SimplifiedLayerNormalization 1 (Y has type V, as here) and the skip forms, com.microsoft 1;
ONNX Runtime Training, com.microsoft 1, the CUDA kernels named as the gradients. Extensions: every output is optional; Y
may be written over X, and X_grad over X or Y_grad; one column is allowed; parameters may have another type than the
data (the skip forms too, of any rank); bfloat16 with float32 parameters, and for the invertible form; 2^31 elements and
more. Results are deterministic, bit for bit. No input can be
recomputed from a zero in the invertible form's scale: it is an error on the CPU and NaN in its column on a GPU.
"""

NAMES = {  # of a norm's arrays: contract name -> the kernels'
    "X": "X",
    "input": "X",
    "skip": "skip",
    "gamma": "scale",
    "beta": "bias",
    "bias": "shift",
    "Scale": "scale",
    "scale": "scale",
    "B": "bias",
    "Y": "Y",
    "output": "Y",
    "Mean": "mean",
    "mean": "mean",
    "InvStdDev": "inv_std",
    "inv_std_var": "inv_std",
    "input_skip_bias_sum": "sum",
}
