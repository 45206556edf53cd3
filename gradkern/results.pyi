# Made by tools/stubs.py from registry.yaml.
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias

from typing_extensions import TypeVar

class _Dlpack(Protocol):
    def __dlpack__(self, *, stream: Any = None) -> Any: ...

class _ArrayInterface(Protocol):
    @property
    def __array_interface__(self) -> Any: ...

class _CudaArrayInterface(Protocol):
    @property
    def __cuda_array_interface__(self) -> Any: ...

Array: TypeAlias = _Dlpack | _ArrayInterface | _CudaArrayInterface
"""What is taken as an array: NumPy's, PyTorch's, CuPy's, JAX's and whatever else has one of these."""

_G = TypeVar("_G", bound=Array, default=Any)
_M = TypeVar("_M", bound=Array, default=Any)
_R = TypeVar("_R", bound=Array, default=Any)
_S = TypeVar("_S", bound=Array, default=Any)
_SrcT = TypeVar("_SrcT", bound=Array, default=Any)
_T = TypeVar("_T", bound=Array, default=Any)
_T1 = TypeVar("_T1", bound=Array, default=Any)
_T2 = TypeVar("_T2", bound=Array, default=Any)
_T3 = TypeVar("_T3", bound=Array, default=Any)
_TB = TypeVar("_TB", bound=Array, default=Any)
_TIn = TypeVar("_TIn", bound=Array, default=Any)
_TOut = TypeVar("_TOut", bound=Array, default=Any)
_U = TypeVar("_U", bound=Array, default=Any)
_V = TypeVar("_V", bound=Array, default=Any)

def result_type(operator: str, outputs: tuple[str, ...]) -> Any: ...

class AdaptiveAveragePoolGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of the input"""

class AveragePoolGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of the input"""

class BatchNormalization(NamedTuple, Generic[_T, _T2]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    Y: _T | Any
    """(X - saved_mean) * saved_inv_std * scale + B + Z, and of that the activation"""
    running_mean: _T2 | Any
    """input_mean * momentum + mean * (1 - momentum); input_mean itself of a batch of nothing"""
    running_var: _T2 | Any
    """input_var * momentum + variance * (1 - momentum); input_var itself of a batch of nothing"""
    saved_mean: _T | Any
    """mean of each channel of the batch; 0 of nothing"""
    saved_inv_std: _T | Any
    """1 / sqrt(variance + epsilon) of each channel of the batch; 0 of nothing"""

class BatchNormalizationFromStatistics(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    Y: _T | Any
    """(X - saved_mean) * saved_inv_std * scale + B"""

class BatchNormalizationGrad(NamedTuple, Generic[_T, _T1]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of X"""
    dScale: _T1 | Any
    """gradient of Scale"""
    dBias: _T1 | Any
    """gradient of the bias"""
    @property
    def dZ(self) -> _T | Any:
        """gradient of the residual: dY + dY2 times the activation's derivative; where it was asked for"""

class BatchNormalizationGradFromSums(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of X"""

class BatchNormalizationGradSums(NamedTuple, Generic[_T2]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dScale: _T2 | Any
    """this part's share of the gradient of Scale"""
    dBias: _T2 | Any
    """this part's share of the gradient of the bias"""
    @property
    def sums(self) -> _T2 | Any:
        """dScale and dBias, one behind the other: one message to the other parts; where it was asked for"""

class BatchNormalizationMergeStatistics(NamedTuple, Generic[_T2, _T3]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    statistics: _T2 | Any
    """of the whole batch, with 1 / sqrt(variance + epsilon) for each variance; 0 of nothing"""
    sample_statistics: _T2 | Any
    """of the whole batch, with variances that are divided by one element less, if there are two"""
    @property
    def running_mean(self) -> _T3 | Any:
        """input_mean * momentum + mean * (1 - momentum); where it was asked for"""
    @property
    def running_var(self) -> _T3 | Any:
        """input_var * momentum + variance of sample_statistics * (1 - momentum); where it was asked for"""

class BatchNormalizationStatistics(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    part_statistics: _T | Any
    """means, variances and number of elements of this part; 0 of nothing"""

class BatchScale(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    output_0: _T | Any
    """scale_0 input"""
    output_1: _T | Any
    """scale_1 input"""
    output_2: _T | Any
    """scale_2 input; with scale_2"""

class BiasFastGelu(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    C: _T | Any
    """GELU of the sum"""

class BiasFastGeluGrad_dX(NamedTuple, Generic[_T, _TB]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of X"""
    dB: _TB | Any
    """gradient of B; summed before dX is rounded"""

class BiasGelu(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    C: _T | Any
    """GELU of the sum"""

class BiasGeluGrad_dX(NamedTuple, Generic[_T, _TB]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of X"""
    dB: _TB | Any
    """gradient of B; summed before dX is rounded"""

class BitmaskDropoutGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dx: _T | Any
    """gradient of the input"""

class Conv(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    Y: _T | Any
    """each window of X times the weights, added up, and the bias"""

class ConvGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of X"""
    dW: _T | Any
    """gradient of W"""
    dB: _T | Any
    """gradient of the bias"""

class ConvTranspose(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    Y: _T | Any
    """the elements of X times the weights, added up where their windows meet, and the bias"""

class ConvTransposeGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of X"""
    dW: _T | Any
    """gradient of W"""
    dB: _T | Any
    """gradient of the bias"""

class CrossEntropy(NamedTuple, Generic[_U, _T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    loss: _U | Any
    """the loss; with reduction none, of each row"""
    dX: _T | Any
    """gradient of the logits"""
    row_loss: _U | Any
    """loss of each row, whatever the reduction"""
    entropy: _U | Any
    """entropy of the probabilities of each row, in nats"""

class DivGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dA: _T | Any
    """gradient of A"""
    dB: _T | Any
    """gradient of B"""

class DmlActivationReluGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    OutputGradient: _T | Any
    """gradient of the input"""

class DmlAveragePoolingGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    OutputGradient: _T | Any
    """gradient of the input"""

class DmlBatchNormalizationGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    OutputGradient: _T | Any
    """gradient of Input"""
    OutputScaleGradient: _T | Any
    """gradient of Scale"""
    OutputBiasGradient: _T | Any
    """gradient of the bias"""

class DmlBatchNormalizationTrainingGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    OutputGradient: _T | Any
    """gradient of Input"""
    OutputScaleGradient: _T | Any
    """gradient of Scale"""
    OutputBiasGradient: _T | Any
    """gradient of the bias"""

class DmlElementWiseClipGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    OutputGradient: _T | Any
    """gradient of the input"""

class DmlElementWiseClipGrad1(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    OutputGradient: _T | Any
    """gradient of the input"""

class DmlLocalResponseNormalizationGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    OutputGradient: _T | Any
    """gradient of the input"""

class DmlMaxPoolingGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    OutputGradient: _T | Any
    """gradient of the input"""

class DmlResampleGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    OutputGradient: _T | Any
    """gradient of the input"""

class DmlResampleGrad1(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    OutputGradient: _T | Any
    """gradient of the input"""

class DmlRoiAlignGrad(NamedTuple, Generic[_T, _R]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    OutputGradient: _T | Any
    """gradient of the input"""
    OutputROIGradient: _R | Any
    """gradient of the regions"""

class DmlSliceGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    OutputGradient: _T | Any
    """gradient of the data"""

class DropoutGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dx: _T | Any
    """gradient of the input"""

class FakeQuantGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of the input"""

class FastGeluGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of the input"""

class FlattenAndUnpad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    output: _T | Any
    """the rows; one whose index is out of range is 0 on a GPU"""

class GatherElementsGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of the data"""

class GatherGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of the data"""

class GatherNDGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    output: _T | Any
    """gradient of the data"""

class GeGLU(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    Y: _T | Any
    """the product"""

class GeGLUGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dA: _T | Any
    """gradient of A"""
    dB: _T | Any
    """gradient of B"""
    @property
    def Y(self) -> _T | Any:
        """the product; where it was asked for"""

class GeluGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of the input"""

class GlobalAveragePoolGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of the input"""

class GroupNorm(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    Y: _T | Any
    """(X - mean) * inv_std * gamma + beta, and of that the activation"""
    @property
    def mean(self) -> _T | Any:
        """mean of each group; 0 of nothing; where it was asked for"""
    @property
    def inv_std(self) -> _T | Any:
        """1 / sqrt(variance + epsilon) of each group; 0 of nothing; where it was asked for"""

class GroupNormGrad(NamedTuple, Generic[_T, _M]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of X"""
    dgamma: _M | Any
    """gradient of gamma"""
    dbeta: _M | Any
    """gradient of beta"""
    @property
    def sample_scale_grad(self) -> _T | Any:
        """gradient of sample_scale; where it was asked for"""
    @property
    def sample_shift_grad(self) -> _T | Any:
        """gradient of sample_shift; where it was asked for"""

class GroupNormalization(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    Y: _T | Any
    """((X - mean) * inv_std * scale + bias) * (1 + sample_scale) + sample_shift, and of that the activation"""
    @property
    def mean(self) -> _T | Any:
        """mean of each group; 0 of nothing; where it was asked for"""
    @property
    def inv_std(self) -> _T | Any:
        """1 / sqrt(variance + epsilon) of each group; 0 of nothing; where it was asked for"""

class InstanceNormalization(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    output: _T | Any
    """(input - mean) * inv_std * scale + B, and of that the activation"""
    @property
    def mean(self) -> _T | Any:
        """mean of each channel of each sample; 0 of nothing; where it was asked for"""
    @property
    def inv_std(self) -> _T | Any:
        """1 / sqrt(variance + epsilon) of each channel of each sample; 0 of nothing; where it was asked for"""

class InvertibleLayerNormalizationGrad(NamedTuple, Generic[_V]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    X_grad: _V | Any
    """gradient of the input of the forward pass"""
    scale_grad: _V | Any
    """gradient of scale"""
    bias_grad: _V | Any
    """gradient of the bias"""

class IsAllFinite(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    output: _T | Any
    """true: no element is an infinity or NaN"""

class IsFinite(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    Y: _T | Any
    """true: neither an infinity nor NaN"""

class LayerNormalization(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    Y: _T | Any
    """(X - Mean) * InvStdDev * Scale + B"""
    Mean: _T | Any
    """mean of each row; 0 of a row of nothing"""
    InvStdDev: _T | Any
    """1 / sqrt(variance + epsilon) of each row; 0 of a row of nothing"""

class LayerNormalizationGrad(NamedTuple, Generic[_T, _V]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    X_grad: _T | Any
    """gradient of X"""
    scale_grad: _V | Any
    """gradient of scale"""
    bias_grad: _V | Any
    """gradient of the bias"""
    @property
    def X_grad_sum(self) -> _V | Any:
        """sum of X_grad over rows, unrounded: the gradient of a bias that is added to X; where it was asked for"""
    @property
    def branch_grad(self) -> _T | Any:
        """X_grad, rounded to S: the gradient of a skip form's input; where it was asked for"""

class LeakyReluGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of the input"""

class LinearCrossEntropy(NamedTuple, Generic[_U, _T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    loss: _U | Any
    """the loss; with reduction none, of each row"""
    dX: _T | Any
    """gradient of X"""
    dW: _T | Any
    """gradient of W; sums are float32, float64 for float64, and rounded once"""
    dB: _T | Any
    """gradient of B"""

class LogSoftmaxGrad(NamedTuple, Generic[_G]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _G | Any
    """gradient of the input"""

class LogSoftmaxGrad_13(NamedTuple, Generic[_G]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _G | Any
    """gradient of the input"""

class MaxPool(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    Y: _T | Any
    """the largest element of each window"""
    Indices: _T | Any
    """where each of these was"""

class MaxPoolGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of the input"""

class MixedPrecisionScale(tuple[_SrcT | Any, ...], Generic[_SrcT]):
    """S X of each array; fused, all in one; the first by its name"""

    Y: _SrcT | Any

class PadAndUnflatten(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    output: _T | Any
    """the padded array; rows with equal indices are added"""

class QuickGeluGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of the input"""

class ReduceAllL2(NamedTuple, Generic[_TIn]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    Y: _TIn | Any
    """the norm"""

class ReluGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of the input"""

class ResizeGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of the input"""

class RotaryEmbedding(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    Y: _T | Any
    """x1 cos - x2 sin and x2 cos + x1 sin of each pair; elements behind the pairs as they are"""

class RotaryEmbeddingGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """dy1 cos + dy2 sin and dy2 cos - dy1 sin of each pair; elements behind the pairs as they are"""

class Scale(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    output: _T | Any
    """input scale; or input / scale"""

class ScaledSum(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    output: _T | Any
    """the sum"""

class SigmoidGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of the input"""

class SimplifiedLayerNormalization(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    Y: _T | Any
    """X * inv_std_var * scale"""
    inv_std_var: _T | Any
    """1 / sqrt(mean of squares + epsilon) of each row; 0 of a row of nothing"""

class SimplifiedLayerNormalizationGrad(NamedTuple, Generic[_T, _V]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    X_grad: _T | Any
    """gradient of X"""
    scale_grad: _V | Any
    """gradient of scale"""
    @property
    def X_grad_sum(self) -> _V | Any:
        """sum of X_grad over rows, unrounded: the gradient of a bias that is added to X; where it was asked for"""
    @property
    def branch_grad(self) -> _T | Any:
        """X_grad, rounded to S: the gradient of a skip form's input; where it was asked for"""

class SkipGroupNorm(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    Y: _T | Any
    """(S - mean) * inv_std * gamma + beta, and of that the activation"""
    S: _T | Any
    """X + skip + bias, rounded to T; the rest is of this rounded sum"""
    @property
    def mean(self) -> _T | Any:
        """mean of each group; 0 of nothing; where it was asked for"""
    @property
    def inv_std(self) -> _T | Any:
        """1 / sqrt(variance + epsilon) of each group; 0 of nothing; where it was asked for"""

class SkipLayerNormalization(NamedTuple, Generic[_S, _T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    output: _S | Any
    """(sum - mean) * inv_std_var * gamma + beta"""
    mean: _S | Any
    """mean of each row of the sum; 0 of a row of nothing"""
    inv_std_var: _S | Any
    """1 / sqrt(variance + epsilon) of each row of the sum; 0 of a row of nothing"""
    input_skip_bias_sum: _T | Any
    """input + skip + bias, rounded to T; the rest is of this rounded sum"""

class SkipSimplifiedLayerNormalization(NamedTuple, Generic[_S, _T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    output: _S | Any
    """sum * inv_std_var * gamma"""
    inv_std_var: _S | Any
    """1 / sqrt(mean of squares + epsilon) of each row of the sum; 0 of a row of nothing"""
    input_skip_bias_sum: _T | Any
    """input + skip + bias, rounded to T; the rest is of this rounded sum"""

class SliceGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of the data"""

class SoftmaxCrossEntropy(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    Y: _T | Any
    """the loss; with reduction none, of each row"""
    log_prob: _T | Any
    """logarithms of the probabilities"""

class SoftmaxCrossEntropyGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    d_logits: _T | Any
    """gradient of the scores"""

class SoftmaxCrossEntropyLoss(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    output: _T | Any
    """the loss; with reduction none, of each row"""
    log_prob: _T | Any
    """logarithms of the probabilities"""

class SoftmaxCrossEntropyLossGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    d_logits: _T | Any
    """gradient of the scores"""

class SoftmaxCrossEntropyLossInternal(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    output: _T | Any
    """the loss; with reduction none, of each row"""
    log_prob: _T | Any
    """logarithms of the probabilities"""

class SoftmaxCrossEntropyLossInternalGrad(NamedTuple, Generic[_TOut]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    d_logits: _TOut | Any
    """gradient of the scores"""

class SoftmaxDropoutGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dx: _T | Any
    """gradient of the input of softmax"""

class SoftmaxGrad(NamedTuple, Generic[_G]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _G | Any
    """gradient of the input"""

class SoftmaxGrad_13(NamedTuple, Generic[_G]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _G | Any
    """gradient of the input"""

class SparseSoftmaxCrossEntropy(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    Y: _T | Any
    """the loss; with reduction none, of each row"""
    log_prob: _T | Any
    """logarithms of the probabilities"""

class SparseSoftmaxCrossEntropyGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    d_logits: _T | Any
    """gradient of the scores"""

class SwiGLU(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    Y: _T | Any
    """the product"""

class SwiGLUGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dA: _T | Any
    """gradient of A"""
    dB: _T | Any
    """gradient of B"""
    @property
    def Y(self) -> _T | Any:
        """the product; where it was asked for"""

class TanhGrad(NamedTuple, Generic[_T]):
    """An output is None where it was not wanted. Type checkers take it for an array."""

    dX: _T | Any
    """gradient of the input"""
