"""Gradients of LayerNormalization, SimplifiedLayerNormalization (RMSNorm) and LayerNormalization from its output.

The first `axis` dimensions are rows, the others columns. Upstream gradient D, normalised input xh, inverse standard
deviation r of each row (an inverse standard deviation also where the argument is called inv_std_var):

    LayerNormalizationGrad            xh = (X - mean) r
    SimplifiedLayerNormalizationGrad  xh = X r
    InvertibleLayerNormalizationGrad  xh = (Y - bias) / scale, from the output Y: the forward pass need not keep X

    s1 = sum over columns of D scale,  s2 = sum over columns of D scale xh
    X_grad = r/columns (columns D scale - s1 - xh s2)    without s1 in the simplified form, which has no mean
    scale_grad = sum over rows of D xh
    bias_grad = sum over rows of D

Y_grad, X and X_grad are rows x columns; scale, bias and their gradients have columns elements; mean and r have rows.
Types: T of X and X_grad, U of the statistics, V of the parameters, G of Y_grad, which is T or V. Arithmetic is float32
(float64 for float64) and rounds once, at the store; sums over rows are added up in float64 or compensated.

Source: ONNX Runtime Training, com.microsoft 1, CUDA kernels of the same names. Beyond them: every output is optional,
X_grad may be written over X or Y_grad, one column is allowed, so are bfloat16 with float32 parameters, bfloat16 for the
invertible form, and 2^31 elements and more. Results are the same bits every time. A zero in the invertible form's
scale, from which no input can be rebuilt, is an error on the CPU and NaN in its column on a GPU.
"""
