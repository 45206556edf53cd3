"""LayerNormalization, SimplifiedLayerNormalization (RMSNorm), and their gradients: from the input and from the output.

The first `axis` dimensions are rows, the others columns. Each row X has its mean, and r, its inverse standard deviation
(an inverse standard deviation also where the argument is called inv_std_var); xh is the normalised input:

    LayerNormalization            xh = (X - mean) r,  r = 1 / sqrt(mean of (X - mean)^2 + epsilon),  Y = xh Scale + B
    SimplifiedLayerNormalization  xh = X r,           r = 1 / sqrt(mean of X^2 + epsilon),           Y = xh scale

    SkipLayerNormalization, SkipSimplifiedLayerNormalization: the same of X = input + skip + bias, with gamma for the
    scale and beta for B. X, input_skip_bias_sum, is rounded to its type first, so that it is what the gradients take;
    and is an output, as the residual of the layers that follow.

    LayerNormalizationGrad            xh = (X - mean) r
    SimplifiedLayerNormalizationGrad  xh = X r
    InvertibleLayerNormalizationGrad  xh = (Y - bias) / scale, from the output Y: the forward pass need not keep X

The last is the gradient of LayerNormalization, too, whose Y and InvStdDev it takes: ONNX Runtime's training has no
forward operator of its own for it, but puts it in the place of LayerNormalizationGrad to save memory. The forward
passes give statistics in the shape that ONNX has, `axis` dimensions and a 1 for every other; the gradients take it.

Of the gradients, with the upstream gradient D:

    s1 = sum over columns of D scale,  s2 = sum over columns of D scale xh
    X_grad = r/columns (columns D scale - s1 - xh s2)    without s1 in the simplified config, which has no mean
    scale_grad = sum over rows of D xh
    bias_grad = sum over rows of D

X_grad has residual_grad added to it, where it is given: the gradient that comes to X past the norm. Its sum over rows,
X_grad_sum, is the gradient of what was added to every row of X: the bias of a skip form, or of a linear layer whose
output went into the residual.

X, Y and their gradients are rows x columns; scale, bias and theirs have columns elements; mean and r have rows.
Types: T of X and X_grad, U of the statistics, V of the parameters, G of Y and Y_grad, which is T or V. Arithmetic is
float32 (float64 for float64) and rounds once, at the store; sums over rows are added up in float64 or compensated. A
row's squares are those of differences from a mean, so that no digits cancel.

Sources: ONNX, LayerNormalization 17, where stash_type 1, float32, is all that is taken, but statistics of float64 are
float64; ONNX Runtime, SimplifiedLayerNormalization 1, whose type of Y is V as here, and the skip forms, com.microsoft
1, where types of parameters other than the data's, and any rank, are added; ONNX Runtime Training, com.microsoft 1, the
CUDA kernels of the gradients' names. Beyond them: every output is optional, Y may be written over
X, X_grad over X or Y_grad, one column is allowed, so are bfloat16 with float32 parameters, bfloat16 for the invertible
config, and 2^31 elements and more. Results are the same bits every time. A zero in the invertible form's
scale, from which no input can be rebuilt, is an error on the CPU and NaN in its column on a GPU.
"""
