# Made by tools/stubs.py from registry.yaml.
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, overload

from typing_extensions import TypeVar

from gradkern import jax as jax
from gradkern import onnx as onnx
from gradkern import results as _results
from gradkern import results as results
from gradkern import torch as torch
from gradkern.contract.schema import Operator
from gradkern.dispatch.plan_cache import plan_cache
from gradkern.dispatch.prepared import Prepared
from gradkern.dispatch.recording import recorded
from gradkern.dispatch.tuning import tune
from gradkern.errors import (
    ArgumentError,
    AttributeValueError,
    DataError,
    DeviceError,
    DTypeError,
    GradkernError,
    GraphError,
    OutputError,
    PolicyError,
    ProviderError,
    RegistryError,
    ShapeError,
    UnknownOperatorError,
)
from gradkern.policy import Policy, policy
from gradkern.policy import PolicyFields as _PolicyFields
from gradkern.results import Array as _Array
from gradkern.version import __version__ as __version__

__all__ = [
    "ArgumentError",
    "AttributeValueError",
    "DTypeError",
    "DataError",
    "DeviceError",
    "GradkernError",
    "GraphError",
    "Operator",
    "OutputError",
    "Policy",
    "PolicyError",
    "Prepared",
    "ProviderError",
    "RegistryError",
    "ShapeError",
    "UnknownOperatorError",
    "operators",
    "plan_cache",
    "policy",
    "prepare",
    "recorded",
    "run",
    "tune",
]
_Provider: TypeAlias = Literal["cpu", "cuda"]
_G = TypeVar("_G", bound=_Array)
_M = TypeVar("_M", bound=_Array)
_R = TypeVar("_R", bound=_Array)
_S = TypeVar("_S", bound=_Array)
_SrcT = TypeVar("_SrcT", bound=_Array)
_T = TypeVar("_T", bound=_Array)
_T1 = TypeVar("_T1", bound=_Array)
_T2 = TypeVar("_T2", bound=_Array)
_T3 = TypeVar("_T3", bound=_Array)
_TB = TypeVar("_TB", bound=_Array)
_TIn = TypeVar("_TIn", bound=_Array)
_TOut = TypeVar("_TOut", bound=_Array)
_U = TypeVar("_U", bound=_Array)
_V = TypeVar("_V", bound=_Array)
_AdaptiveAveragePoolGradOutput: TypeAlias = Literal["dX"]
_AveragePoolGradOutput: TypeAlias = Literal["dX"]
_BatchNormalizationOutput: TypeAlias = Literal["Y", "running_mean", "running_var", "saved_mean", "saved_inv_std"]
_BatchNormalizationFromStatisticsOutput: TypeAlias = Literal["Y"]
_BatchNormalizationGradOutput: TypeAlias = Literal["dX", "dScale", "dBias", "dZ"]
_BatchNormalizationGradFromSumsOutput: TypeAlias = Literal["dX"]
_BatchNormalizationGradSumsOutput: TypeAlias = Literal["dScale", "dBias", "sums"]
_BatchNormalizationMergeStatisticsOutput: TypeAlias = Literal[
    "statistics", "sample_statistics", "running_mean", "running_var"
]
_BatchNormalizationStatisticsOutput: TypeAlias = Literal["part_statistics"]
_BatchScaleOutput: TypeAlias = Literal["output_0", "output_1", "output_2"]
_BiasFastGeluOutput: TypeAlias = Literal["C"]
_BiasFastGeluGrad_dXOutput: TypeAlias = Literal["dX", "dB"]
_BiasGeluOutput: TypeAlias = Literal["C"]
_BiasGeluGrad_dXOutput: TypeAlias = Literal["dX", "dB"]
_BitmaskDropoutGradOutput: TypeAlias = Literal["dx"]
_ConvOutput: TypeAlias = Literal["Y"]
_ConvGradOutput: TypeAlias = Literal["dX", "dW", "dB"]
_ConvTransposeOutput: TypeAlias = Literal["Y"]
_ConvTransposeGradOutput: TypeAlias = Literal["dX", "dW", "dB"]
_CrossEntropyOutput: TypeAlias = Literal["loss", "dX", "row_loss", "entropy"]
_DivGradOutput: TypeAlias = Literal["dA", "dB"]
_DmlActivationReluGradOutput: TypeAlias = Literal["OutputGradient"]
_DmlAveragePoolingGradOutput: TypeAlias = Literal["OutputGradient"]
_DmlBatchNormalizationGradOutput: TypeAlias = Literal["OutputGradient", "OutputScaleGradient", "OutputBiasGradient"]
_DmlBatchNormalizationTrainingGradOutput: TypeAlias = Literal[
    "OutputGradient", "OutputScaleGradient", "OutputBiasGradient"
]
_DmlElementWiseClipGradOutput: TypeAlias = Literal["OutputGradient"]
_DmlElementWiseClipGrad1Output: TypeAlias = Literal["OutputGradient"]
_DmlLocalResponseNormalizationGradOutput: TypeAlias = Literal["OutputGradient"]
_DmlMaxPoolingGradOutput: TypeAlias = Literal["OutputGradient"]
_DmlResampleGradOutput: TypeAlias = Literal["OutputGradient"]
_DmlResampleGrad1Output: TypeAlias = Literal["OutputGradient"]
_DmlRoiAlignGradOutput: TypeAlias = Literal["OutputGradient", "OutputROIGradient"]
_DmlSliceGradOutput: TypeAlias = Literal["OutputGradient"]
_DropoutGradOutput: TypeAlias = Literal["dx"]
_FakeQuantGradOutput: TypeAlias = Literal["dX"]
_FastGeluGradOutput: TypeAlias = Literal["dX"]
_FlattenAndUnpadOutput: TypeAlias = Literal["output"]
_GatherElementsGradOutput: TypeAlias = Literal["dX"]
_GatherGradOutput: TypeAlias = Literal["dX"]
_GatherNDGradOutput: TypeAlias = Literal["output"]
_GeGLUOutput: TypeAlias = Literal["Y"]
_GeGLUGradOutput: TypeAlias = Literal["dA", "dB", "Y"]
_GeluGradOutput: TypeAlias = Literal["dX"]
_GlobalAveragePoolGradOutput: TypeAlias = Literal["dX"]
_GroupNormOutput: TypeAlias = Literal["Y", "mean", "inv_std"]
_GroupNormGradOutput: TypeAlias = Literal["dX", "dgamma", "dbeta", "sample_scale_grad", "sample_shift_grad"]
_GroupNormalizationOutput: TypeAlias = Literal["Y", "mean", "inv_std"]
_InstanceNormalizationOutput: TypeAlias = Literal["output", "mean", "inv_std"]
_InvertibleLayerNormalizationGradOutput: TypeAlias = Literal["X_grad", "scale_grad", "bias_grad"]
_IsAllFiniteOutput: TypeAlias = Literal["output"]
_IsFiniteOutput: TypeAlias = Literal["Y"]
_LayerNormalizationOutput: TypeAlias = Literal["Y", "Mean", "InvStdDev"]
_LayerNormalizationGradOutput: TypeAlias = Literal["X_grad", "scale_grad", "bias_grad", "X_grad_sum", "branch_grad"]
_LeakyReluGradOutput: TypeAlias = Literal["dX"]
_LinearCrossEntropyOutput: TypeAlias = Literal["loss", "dX", "dW", "dB"]
_LogSoftmaxGradOutput: TypeAlias = Literal["dX"]
_LogSoftmaxGrad_13Output: TypeAlias = Literal["dX"]
_MaxPoolOutput: TypeAlias = Literal["Y", "Indices"]
_MaxPoolGradOutput: TypeAlias = Literal["dX"]
_MixedPrecisionScaleOutput: TypeAlias = str
_PadAndUnflattenOutput: TypeAlias = Literal["output"]
_QuickGeluGradOutput: TypeAlias = Literal["dX"]
_ReduceAllL2Output: TypeAlias = Literal["Y"]
_ReluGradOutput: TypeAlias = Literal["dX"]
_ResizeGradOutput: TypeAlias = Literal["dX"]
_RotaryEmbeddingOutput: TypeAlias = Literal["Y"]
_RotaryEmbeddingGradOutput: TypeAlias = Literal["dX"]
_ScaleOutput: TypeAlias = Literal["output"]
_ScaledSumOutput: TypeAlias = Literal["output"]
_SigmoidGradOutput: TypeAlias = Literal["dX"]
_SimplifiedLayerNormalizationOutput: TypeAlias = Literal["Y", "inv_std_var"]
_SimplifiedLayerNormalizationGradOutput: TypeAlias = Literal["X_grad", "scale_grad", "X_grad_sum", "branch_grad"]
_SkipGroupNormOutput: TypeAlias = Literal["Y", "S", "mean", "inv_std"]
_SkipLayerNormalizationOutput: TypeAlias = Literal["output", "mean", "inv_std_var", "input_skip_bias_sum"]
_SkipSimplifiedLayerNormalizationOutput: TypeAlias = Literal["output", "inv_std_var", "input_skip_bias_sum"]
_SliceGradOutput: TypeAlias = Literal["dX"]
_SoftmaxCrossEntropyOutput: TypeAlias = Literal["Y", "log_prob"]
_SoftmaxCrossEntropyGradOutput: TypeAlias = Literal["d_logits"]
_SoftmaxCrossEntropyLossOutput: TypeAlias = Literal["output", "log_prob"]
_SoftmaxCrossEntropyLossGradOutput: TypeAlias = Literal["d_logits"]
_SoftmaxCrossEntropyLossInternalOutput: TypeAlias = Literal["output", "log_prob"]
_SoftmaxCrossEntropyLossInternalGradOutput: TypeAlias = Literal["d_logits"]
_SoftmaxDropoutGradOutput: TypeAlias = Literal["dx"]
_SoftmaxGradOutput: TypeAlias = Literal["dX"]
_SoftmaxGrad_13Output: TypeAlias = Literal["dX"]
_SparseSoftmaxCrossEntropyOutput: TypeAlias = Literal["Y", "log_prob"]
_SparseSoftmaxCrossEntropyGradOutput: TypeAlias = Literal["d_logits"]
_SwiGLUOutput: TypeAlias = Literal["Y"]
_SwiGLUGradOutput: TypeAlias = Literal["dA", "dB", "Y"]
_TanhGradOutput: TypeAlias = Literal["dX"]

class _Name(str):
    """The name of an operator, when it is not written out: to type checkers, what `operators()` gives."""

class _ArgumentsDoNotFitTheOperator:
    """Stands in an error about a call that fits no operator."""

class _Operators(Mapping[_Name, Operator]):
    def __getitem__(self, name: str, /) -> Operator: ...
    def __iter__(self) -> Iterator[_Name]: ...
    def __len__(self) -> int: ...

def operators() -> _Operators:
    """The contract of every operator by name: a read-only mapping, sorted by name."""

class _AdaptiveAveragePoolGradPlan(Prepared):
    def __call__(
        self, dY: _T, *, out: Mapping[_AdaptiveAveragePoolGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.AdaptiveAveragePoolGrad[_T]: ...

class _AveragePoolGradPlan(Prepared):
    def __call__(
        self, dY: _T, *, out: Mapping[_AveragePoolGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.AveragePoolGrad[_T]: ...

class _BatchNormalizationPlan(Prepared):
    def __call__(
        self,
        X: _T,
        scale: _Array,
        B: _Array,
        input_mean: _T2 | None = None,
        input_var: _T2 | None = None,
        Z: _T | None = None,
        *,
        out: Mapping[_BatchNormalizationOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.BatchNormalization[_T, _T2]: ...

class _BatchNormalizationFromStatisticsPlan(Prepared):
    def __call__(
        self,
        X: _T,
        scale: _Array,
        B: _Array,
        saved_mean: _Array,
        saved_inv_std: _Array,
        *,
        out: Mapping[_BatchNormalizationFromStatisticsOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.BatchNormalizationFromStatistics[_T]: ...

class _BatchNormalizationGradPlan(Prepared):
    def __call__(
        self,
        dY: _T,
        X: _T,
        Scale: _T1,
        saved_mean: _Array,
        saved_inv_std: _Array,
        B: _T1 | None = None,
        Y: _T | None = None,
        dY2: _T | None = None,
        *,
        out: Mapping[_BatchNormalizationGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.BatchNormalizationGrad[_T, _T1]: ...

class _BatchNormalizationGradFromSumsPlan(Prepared):
    def __call__(
        self,
        dY: _T,
        X: _T,
        Scale: _Array,
        saved_mean: _Array,
        saved_inv_std: _Array,
        dScale: _Array,
        dBias: _Array,
        counts: _Array | None = None,
        *,
        out: Mapping[_BatchNormalizationGradFromSumsOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.BatchNormalizationGradFromSums[_T]: ...

class _BatchNormalizationGradSumsPlan(Prepared):
    def __call__(
        self,
        dY: _Array,
        X: _Array,
        saved_mean: _T2,
        saved_inv_std: _T2,
        *,
        out: Mapping[_BatchNormalizationGradSumsOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.BatchNormalizationGradSums[_T2]: ...

class _BatchNormalizationMergeStatisticsPlan(Prepared):
    def __call__(
        self,
        part_statistics: _T2,
        input_mean: _T3 | None = None,
        input_var: _T3 | None = None,
        *,
        out: Mapping[_BatchNormalizationMergeStatisticsOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.BatchNormalizationMergeStatistics[_T2, _T3]: ...

class _BatchNormalizationStatisticsPlan(Prepared):
    def __call__(
        self, X: _T, *, out: Mapping[_BatchNormalizationStatisticsOutput, _Array] | None = None, stream: Any = None
    ) -> _results.BatchNormalizationStatistics[_T]: ...

class _BatchScalePlan(Prepared):
    def __call__(
        self, input: _T, *, out: Mapping[_BatchScaleOutput, _Array] | None = None, stream: Any = None
    ) -> _results.BatchScale[_T]: ...

class _BiasFastGeluPlan(Prepared):
    def __call__(
        self, A: _T, B: _Array, *, out: Mapping[_BiasFastGeluOutput, _Array] | None = None, stream: Any = None
    ) -> _results.BiasFastGelu[_T]: ...

class _BiasFastGeluGrad_dXPlan(Prepared):
    def __call__(
        self,
        dY: _T,
        X: _T,
        B: _TB,
        *,
        out: Mapping[_BiasFastGeluGrad_dXOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.BiasFastGeluGrad_dX[_T, _TB]: ...

class _BiasGeluPlan(Prepared):
    def __call__(
        self, A: _T, B: _Array, *, out: Mapping[_BiasGeluOutput, _Array] | None = None, stream: Any = None
    ) -> _results.BiasGelu[_T]: ...

class _BiasGeluGrad_dXPlan(Prepared):
    def __call__(
        self, dY: _T, X: _T, B: _TB, *, out: Mapping[_BiasGeluGrad_dXOutput, _Array] | None = None, stream: Any = None
    ) -> _results.BiasGeluGrad_dX[_T, _TB]: ...

class _BitmaskDropoutGradPlan(Prepared):
    def __call__(
        self,
        dy: _T,
        mask: _Array,
        ratio: _Array | float | None = None,
        training_mode: _Array | bool | None = None,
        *,
        out: Mapping[_BitmaskDropoutGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.BitmaskDropoutGrad[_T]: ...

class _ConvPlan(Prepared):
    def __call__(
        self, X: _T, W: _T, B: _T | None = None, *, out: Mapping[_ConvOutput, _Array] | None = None, stream: Any = None
    ) -> _results.Conv[_T]: ...

class _ConvGradPlan(Prepared):
    def __call__(
        self, dY: _T, X: _T, W: _T, *, out: Mapping[_ConvGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.ConvGrad[_T]: ...

class _ConvTransposePlan(Prepared):
    def __call__(
        self,
        X: _T,
        W: _T,
        B: _T | None = None,
        *,
        out: Mapping[_ConvTransposeOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.ConvTranspose[_T]: ...

class _ConvTransposeGradPlan(Prepared):
    def __call__(
        self, dY: _T, X: _T, W: _T, *, out: Mapping[_ConvTransposeGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.ConvTransposeGrad[_T]: ...

class _CrossEntropyPlan(Prepared):
    def __call__(
        self,
        X: _T,
        labels: _Array | None = None,
        weight: _Array | None = None,
        probabilities: _T | None = None,
        dY: _U | None = None,
        *,
        out: Mapping[_CrossEntropyOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.CrossEntropy[_U, _T]: ...

class _DivGradPlan(Prepared):
    def __call__(
        self, dY: _T, A: _T, B: _T, *, out: Mapping[_DivGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.DivGrad[_T]: ...

class _DmlActivationReluGradPlan(Prepared):
    def __call__(
        self,
        Input: _T,
        InputGradient: _T,
        *,
        out: Mapping[_DmlActivationReluGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.DmlActivationReluGrad[_T]: ...

class _DmlAveragePoolingGradPlan(Prepared):
    def __call__(
        self, InputGradient: _T, *, out: Mapping[_DmlAveragePoolingGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.DmlAveragePoolingGrad[_T]: ...

class _DmlBatchNormalizationGradPlan(Prepared):
    def __call__(
        self,
        Input: _T,
        InputGradient: _T,
        Mean: _T,
        Variance: _T,
        Scale: _T,
        *,
        out: Mapping[_DmlBatchNormalizationGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.DmlBatchNormalizationGrad[_T]: ...

class _DmlBatchNormalizationTrainingGradPlan(Prepared):
    def __call__(
        self,
        Input: _T,
        InputGradient: _T,
        Mean: _T,
        Variance: _T,
        Scale: _T,
        *,
        out: Mapping[_DmlBatchNormalizationTrainingGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.DmlBatchNormalizationTrainingGrad[_T]: ...

class _DmlElementWiseClipGradPlan(Prepared):
    def __call__(
        self,
        Input: _T,
        InputGradient: _T,
        *,
        out: Mapping[_DmlElementWiseClipGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.DmlElementWiseClipGrad[_T]: ...

class _DmlElementWiseClipGrad1Plan(Prepared):
    def __call__(
        self,
        Input: _T,
        InputGradient: _T,
        *,
        out: Mapping[_DmlElementWiseClipGrad1Output, _Array] | None = None,
        stream: Any = None,
    ) -> _results.DmlElementWiseClipGrad1[_T]: ...

class _DmlLocalResponseNormalizationGradPlan(Prepared):
    def __call__(
        self,
        Input: _T,
        InputGradient: _T,
        *,
        out: Mapping[_DmlLocalResponseNormalizationGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.DmlLocalResponseNormalizationGrad[_T]: ...

class _DmlMaxPoolingGradPlan(Prepared):
    def __call__(
        self,
        Input: _T,
        InputGradient: _T,
        *,
        out: Mapping[_DmlMaxPoolingGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.DmlMaxPoolingGrad[_T]: ...

class _DmlResampleGradPlan(Prepared):
    def __call__(
        self, InputGradient: _T, *, out: Mapping[_DmlResampleGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.DmlResampleGrad[_T]: ...

class _DmlResampleGrad1Plan(Prepared):
    def __call__(
        self, InputGradient: _T, *, out: Mapping[_DmlResampleGrad1Output, _Array] | None = None, stream: Any = None
    ) -> _results.DmlResampleGrad1[_T]: ...

class _DmlRoiAlignGradPlan(Prepared):
    def __call__(
        self,
        InputGradient: _T,
        ROI: _R,
        BatchIndices: _Array,
        Input: _T | None = None,
        *,
        out: Mapping[_DmlRoiAlignGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.DmlRoiAlignGrad[_T, _R]: ...

class _DmlSliceGradPlan(Prepared):
    def __call__(
        self, InputGradient: _T, *, out: Mapping[_DmlSliceGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.DmlSliceGrad[_T]: ...

class _DropoutGradPlan(Prepared):
    def __call__(
        self,
        dy: _T,
        mask: _Array,
        ratio: _Array | float | None = None,
        training_mode: _Array | bool | None = None,
        *,
        out: Mapping[_DropoutGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.DropoutGrad[_T]: ...

class _FakeQuantGradPlan(Prepared):
    def __call__(
        self,
        dY: _T,
        gradient_mask: _Array,
        *,
        out: Mapping[_FakeQuantGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.FakeQuantGrad[_T]: ...

class _FastGeluGradPlan(Prepared):
    def __call__(
        self, dY: _T, X: _T, *, out: Mapping[_FastGeluGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.FastGeluGrad[_T]: ...

class _FlattenAndUnpadPlan(Prepared):
    def __call__(
        self,
        input: _T,
        indices: _Array,
        *,
        out: Mapping[_FlattenAndUnpadOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.FlattenAndUnpad[_T]: ...

class _GatherElementsGradPlan(Prepared):
    def __call__(
        self,
        dY: _T,
        shape: _Array | Sequence[int],
        indices: _Array,
        *,
        out: Mapping[_GatherElementsGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.GatherElementsGrad[_T]: ...

class _GatherGradPlan(Prepared):
    def __call__(
        self,
        shape: _Array | Sequence[int],
        indices: _Array,
        dY: _T,
        accumulator: _T | None = None,
        *,
        out: Mapping[_GatherGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.GatherGrad[_T]: ...

class _GatherNDGradPlan(Prepared):
    def __call__(
        self,
        shape: _Array | Sequence[int],
        indices: _Array,
        update: _T,
        *,
        out: Mapping[_GatherNDGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.GatherNDGrad[_T]: ...

class _GeGLUPlan(Prepared):
    def __call__(
        self, A: _T, B: _T, *, out: Mapping[_GeGLUOutput, _Array] | None = None, stream: Any = None
    ) -> _results.GeGLU[_T]: ...

class _GeGLUGradPlan(Prepared):
    def __call__(
        self, dY: _T, A: _T, B: _T, *, out: Mapping[_GeGLUGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.GeGLUGrad[_T]: ...

class _GeluGradPlan(Prepared):
    def __call__(
        self, dY: _T, X: _T, *, out: Mapping[_GeluGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.GeluGrad[_T]: ...

class _GlobalAveragePoolGradPlan(Prepared):
    def __call__(
        self, dY: _T, *, out: Mapping[_GlobalAveragePoolGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.GlobalAveragePoolGrad[_T]: ...

class _GroupNormPlan(Prepared):
    def __call__(
        self,
        X: _T,
        gamma: _Array,
        beta: _Array,
        *,
        out: Mapping[_GroupNormOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.GroupNorm[_T]: ...

class _GroupNormGradPlan(Prepared):
    def __call__(
        self,
        dY: _T,
        X: _T,
        mean: _Array,
        inv_std: _Array,
        gamma: _M | None = None,
        beta: _M | None = None,
        sample_scale: _T | None = None,
        sample_shift: _T | None = None,
        residual_grad: _T | None = None,
        *,
        out: Mapping[_GroupNormGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.GroupNormGrad[_T, _M]: ...

class _GroupNormalizationPlan(Prepared):
    def __call__(
        self,
        X: _T,
        scale: _Array | None = None,
        bias: _Array | None = None,
        sample_scale: _T | None = None,
        sample_shift: _T | None = None,
        *,
        out: Mapping[_GroupNormalizationOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.GroupNormalization[_T]: ...

class _InstanceNormalizationPlan(Prepared):
    def __call__(
        self,
        input: _T,
        scale: _Array,
        B: _Array,
        *,
        out: Mapping[_InstanceNormalizationOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.InstanceNormalization[_T]: ...

class _InvertibleLayerNormalizationGradPlan(Prepared):
    def __call__(
        self,
        Y_grad: _Array,
        Y: _V,
        scale: _V,
        bias: _V,
        inv_std_var: _Array,
        *,
        out: Mapping[_InvertibleLayerNormalizationGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.InvertibleLayerNormalizationGrad[_V]: ...

class _IsAllFinitePlan(Prepared):
    def __call__(
        self, *input: _T, out: Mapping[_IsAllFiniteOutput, _Array] | None = None, stream: Any = None
    ) -> _results.IsAllFinite[_T]: ...

class _IsFinitePlan(Prepared):
    def __call__(
        self, X: _T, *, out: Mapping[_IsFiniteOutput, _Array] | None = None, stream: Any = None
    ) -> _results.IsFinite[_T]: ...

class _LayerNormalizationPlan(Prepared):
    def __call__(
        self,
        X: _T,
        Scale: _Array,
        B: _Array | None = None,
        *,
        out: Mapping[_LayerNormalizationOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.LayerNormalization[_T]: ...

class _LayerNormalizationGradPlan(Prepared):
    def __call__(
        self,
        Y_grad: _Array,
        X: _T,
        scale: _V,
        mean: _Array,
        inv_std_dev: _Array,
        residual_grad: _T | None = None,
        *,
        out: Mapping[_LayerNormalizationGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.LayerNormalizationGrad[_T, _V]: ...

class _LeakyReluGradPlan(Prepared):
    def __call__(
        self, dY: _T, Y: _T, *, out: Mapping[_LeakyReluGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.LeakyReluGrad[_T]: ...

class _LinearCrossEntropyPlan(Prepared):
    def __call__(
        self,
        X: _T,
        W: _T,
        labels: _Array,
        B: _T | None = None,
        weight: _Array | None = None,
        dY: _U | None = None,
        *,
        out: Mapping[_LinearCrossEntropyOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.LinearCrossEntropy[_U, _T]: ...

class _LogSoftmaxGradPlan(Prepared):
    def __call__(
        self, dY: _G, X: _G, *, out: Mapping[_LogSoftmaxGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.LogSoftmaxGrad[_G]: ...

class _LogSoftmaxGrad_13Plan(Prepared):
    def __call__(
        self, dY: _G, X: _G, *, out: Mapping[_LogSoftmaxGrad_13Output, _Array] | None = None, stream: Any = None
    ) -> _results.LogSoftmaxGrad_13[_G]: ...

class _MaxPoolPlan(Prepared):
    def __call__(
        self, X: _T, *, out: Mapping[_MaxPoolOutput, _Array] | None = None, stream: Any = None
    ) -> _results.MaxPool[_T]: ...

class _MaxPoolGradPlan(Prepared):
    def __call__(
        self, dY: _T, Indices: _Array, *, out: Mapping[_MaxPoolGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.MaxPoolGrad[_T]: ...

class _MixedPrecisionScalePlan(Prepared):
    def __call__(
        self,
        S: _Array | float,
        *X: _SrcT,
        out: Mapping[_MixedPrecisionScaleOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.MixedPrecisionScale[_SrcT]: ...

class _PadAndUnflattenPlan(Prepared):
    def __call__(
        self,
        input: _T,
        indices: _Array,
        unflatten_dims: _Array | Sequence[int],
        *,
        out: Mapping[_PadAndUnflattenOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.PadAndUnflatten[_T]: ...

class _QuickGeluGradPlan(Prepared):
    def __call__(
        self, dY: _T, X: _T, *, out: Mapping[_QuickGeluGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.QuickGeluGrad[_T]: ...

class _ReduceAllL2Plan(Prepared):
    def __call__(
        self, *X: _TIn, out: Mapping[_ReduceAllL2Output, _Array] | None = None, stream: Any = None
    ) -> _results.ReduceAllL2[_TIn]: ...

class _ReluGradPlan(Prepared):
    def __call__(
        self, dY: _T, X: _T, *, out: Mapping[_ReluGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.ReluGrad[_T]: ...

class _ResizeGradPlan(Prepared):
    def __call__(
        self,
        dY: _T,
        X: _T | None = None,
        roi: _Array | Sequence[float] | None = None,
        scales: _Array | Sequence[float] | None = None,
        *,
        out: Mapping[_ResizeGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.ResizeGrad[_T]: ...

class _RotaryEmbeddingPlan(Prepared):
    def __call__(
        self,
        X: _T,
        cos_cache: _Array,
        sin_cache: _Array,
        position_ids: _Array | None = None,
        *,
        out: Mapping[_RotaryEmbeddingOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.RotaryEmbedding[_T]: ...

class _RotaryEmbeddingGradPlan(Prepared):
    def __call__(
        self,
        dY: _T,
        cos_cache: _Array,
        sin_cache: _Array,
        position_ids: _Array | None = None,
        *,
        out: Mapping[_RotaryEmbeddingGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.RotaryEmbeddingGrad[_T]: ...

class _ScalePlan(Prepared):
    def __call__(
        self, input: _T, scale: _Array | float, *, out: Mapping[_ScaleOutput, _Array] | None = None, stream: Any = None
    ) -> _results.Scale[_T]: ...

class _ScaledSumPlan(Prepared):
    def __call__(
        self,
        input_0: _T,
        input_1: _T,
        input_2: _T | None = None,
        *,
        out: Mapping[_ScaledSumOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.ScaledSum[_T]: ...

class _SigmoidGradPlan(Prepared):
    def __call__(
        self, dY: _T, Y: _T, *, out: Mapping[_SigmoidGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.SigmoidGrad[_T]: ...

class _SimplifiedLayerNormalizationPlan(Prepared):
    def __call__(
        self,
        X: _T,
        scale: _Array,
        *,
        out: Mapping[_SimplifiedLayerNormalizationOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.SimplifiedLayerNormalization[_T]: ...

class _SimplifiedLayerNormalizationGradPlan(Prepared):
    def __call__(
        self,
        Y_grad: _Array,
        X: _T,
        scale: _V,
        inv_std_var: _Array,
        residual_grad: _T | None = None,
        *,
        out: Mapping[_SimplifiedLayerNormalizationGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.SimplifiedLayerNormalizationGrad[_T, _V]: ...

class _SkipGroupNormPlan(Prepared):
    def __call__(
        self,
        X: _T,
        gamma: _Array,
        beta: _Array,
        skip: _T,
        bias: _T | None = None,
        *,
        out: Mapping[_SkipGroupNormOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.SkipGroupNorm[_T]: ...

class _SkipLayerNormalizationPlan(Prepared):
    def __call__(
        self,
        input: _S,
        skip: _T,
        gamma: _Array,
        beta: _Array | None = None,
        bias: _Array | None = None,
        *,
        out: Mapping[_SkipLayerNormalizationOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.SkipLayerNormalization[_S, _T]: ...

class _SkipSimplifiedLayerNormalizationPlan(Prepared):
    def __call__(
        self,
        input: _S,
        skip: _T,
        gamma: _Array,
        bias: _Array | None = None,
        *,
        out: Mapping[_SkipSimplifiedLayerNormalizationOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.SkipSimplifiedLayerNormalization[_S, _T]: ...

class _SliceGradPlan(Prepared):
    def __call__(
        self,
        dY: _T,
        shape: _Array | Sequence[int],
        starts: _Array | Sequence[int],
        ends: _Array | Sequence[int],
        axes: _Array | Sequence[int] | None = None,
        steps: _Array | Sequence[int] | None = None,
        *,
        out: Mapping[_SliceGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.SliceGrad[_T]: ...

class _SoftmaxCrossEntropyPlan(Prepared):
    def __call__(
        self,
        logits: _T,
        label: _T,
        *,
        out: Mapping[_SoftmaxCrossEntropyOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.SoftmaxCrossEntropy[_T]: ...

class _SoftmaxCrossEntropyGradPlan(Prepared):
    def __call__(
        self,
        dY: _T,
        log_prob: _T,
        label: _T,
        *,
        out: Mapping[_SoftmaxCrossEntropyGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.SoftmaxCrossEntropyGrad[_T]: ...

class _SoftmaxCrossEntropyLossPlan(Prepared):
    def __call__(
        self,
        scores: _T,
        labels: _Array,
        weights: _T | None = None,
        *,
        out: Mapping[_SoftmaxCrossEntropyLossOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.SoftmaxCrossEntropyLoss[_T]: ...

class _SoftmaxCrossEntropyLossGradPlan(Prepared):
    def __call__(
        self,
        dY: _T,
        log_prob: _T,
        label: _Array,
        weight: _T | None = None,
        *,
        out: Mapping[_SoftmaxCrossEntropyLossGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.SoftmaxCrossEntropyLossGrad[_T]: ...

class _SoftmaxCrossEntropyLossInternalPlan(Prepared):
    def __call__(
        self,
        scores: _T,
        labels: _Array,
        weights: _T | None = None,
        ignore_index: _Array | int | None = None,
        *,
        out: Mapping[_SoftmaxCrossEntropyLossInternalOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.SoftmaxCrossEntropyLossInternal[_T]: ...

class _SoftmaxCrossEntropyLossInternalGradPlan(Prepared):
    def __call__(
        self,
        dY: _Array,
        log_prob: _Array,
        label: _Array,
        weight: _Array | None = None,
        ignore_index: _Array | int | None = None,
        bias: _TOut | None = None,
        *,
        out: Mapping[_SoftmaxCrossEntropyLossInternalGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.SoftmaxCrossEntropyLossInternalGrad[_TOut]: ...

class _SoftmaxDropoutGradPlan(Prepared):
    def __call__(
        self,
        dy: _T,
        mask: _Array,
        softmax_y: _T,
        ratio: _Array | float | None = None,
        *,
        out: Mapping[_SoftmaxDropoutGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.SoftmaxDropoutGrad[_T]: ...

class _SoftmaxGradPlan(Prepared):
    def __call__(
        self, dY: _G, Y: _G, *, out: Mapping[_SoftmaxGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.SoftmaxGrad[_G]: ...

class _SoftmaxGrad_13Plan(Prepared):
    def __call__(
        self, dY: _G, Y: _G, *, out: Mapping[_SoftmaxGrad_13Output, _Array] | None = None, stream: Any = None
    ) -> _results.SoftmaxGrad_13[_G]: ...

class _SparseSoftmaxCrossEntropyPlan(Prepared):
    def __call__(
        self,
        logits: _T,
        label: _Array,
        weight: _T | None = None,
        *,
        out: Mapping[_SparseSoftmaxCrossEntropyOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.SparseSoftmaxCrossEntropy[_T]: ...

class _SparseSoftmaxCrossEntropyGradPlan(Prepared):
    def __call__(
        self,
        dY: _T,
        log_prob: _T,
        label: _Array,
        weight: _T | None = None,
        *,
        out: Mapping[_SparseSoftmaxCrossEntropyGradOutput, _Array] | None = None,
        stream: Any = None,
    ) -> _results.SparseSoftmaxCrossEntropyGrad[_T]: ...

class _SwiGLUPlan(Prepared):
    def __call__(
        self, A: _T, B: _T, *, out: Mapping[_SwiGLUOutput, _Array] | None = None, stream: Any = None
    ) -> _results.SwiGLU[_T]: ...

class _SwiGLUGradPlan(Prepared):
    def __call__(
        self, dY: _T, A: _T, B: _T, *, out: Mapping[_SwiGLUGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.SwiGLUGrad[_T]: ...

class _TanhGradPlan(Prepared):
    def __call__(
        self, dY: _T, Y: _T, *, out: Mapping[_TanhGradOutput, _Array] | None = None, stream: Any = None
    ) -> _results.TanhGrad[_T]: ...

class _AdaptiveAveragePoolGrad_takes_dY: ...
class _AveragePoolGrad_takes_dY: ...
class _BatchNormalization_takes_X_scale_B_and_perhaps_input_mean_input_var_Z: ...
class _BatchNormalizationFromStatistics_takes_X_scale_B_saved_mean_saved_inv_std: ...
class _BatchNormalizationGrad_takes_dY_X_Scale_saved_mean_saved_inv_std_and_perhaps_B_Y_dY2: ...
class _BatchNormalizationGradFromSums_takes_dY_X_Scale_saved_mean_saved_inv_std_dScale_dBias_and_perhaps_counts: ...
class _BatchNormalizationGradSums_takes_dY_X_saved_mean_saved_inv_std: ...
class _BatchNormalizationMergeStatistics_takes_part_statistics_and_perhaps_input_mean_input_var: ...
class _BatchNormalizationStatistics_takes_X: ...
class _BatchScale_takes_input: ...
class _BiasFastGelu_takes_A_B: ...
class _BiasFastGeluGrad_dX_takes_dY_X_B: ...
class _BiasGelu_takes_A_B: ...
class _BiasGeluGrad_dX_takes_dY_X_B: ...
class _BitmaskDropoutGrad_takes_dy_mask_and_perhaps_ratio_training_mode: ...
class _Conv_takes_X_W_and_perhaps_B: ...
class _ConvGrad_takes_dY_X_W: ...
class _ConvTranspose_takes_X_W_and_perhaps_B: ...
class _ConvTransposeGrad_takes_dY_X_W: ...
class _CrossEntropy_takes_X_and_perhaps_labels_weight_probabilities_dY: ...
class _DivGrad_takes_dY_A_B: ...
class _DmlActivationReluGrad_takes_Input_InputGradient: ...
class _DmlAveragePoolingGrad_takes_InputGradient: ...
class _DmlBatchNormalizationGrad_takes_Input_InputGradient_Mean_Variance_Scale: ...
class _DmlBatchNormalizationTrainingGrad_takes_Input_InputGradient_Mean_Variance_Scale: ...
class _DmlElementWiseClipGrad_takes_Input_InputGradient: ...
class _DmlElementWiseClipGrad1_takes_Input_InputGradient: ...
class _DmlLocalResponseNormalizationGrad_takes_Input_InputGradient: ...
class _DmlMaxPoolingGrad_takes_Input_InputGradient: ...
class _DmlResampleGrad_takes_InputGradient: ...
class _DmlResampleGrad1_takes_InputGradient: ...
class _DmlRoiAlignGrad_takes_InputGradient_ROI_BatchIndices_and_perhaps_Input: ...
class _DmlSliceGrad_takes_InputGradient: ...
class _DropoutGrad_takes_dy_mask_and_perhaps_ratio_training_mode: ...
class _FakeQuantGrad_takes_dY_gradient_mask: ...
class _FastGeluGrad_takes_dY_X: ...
class _FlattenAndUnpad_takes_input_indices: ...
class _GatherElementsGrad_takes_dY_shape_indices: ...
class _GatherGrad_takes_shape_indices_dY_and_perhaps_accumulator: ...
class _GatherNDGrad_takes_shape_indices_update: ...
class _GeGLU_takes_A_B: ...
class _GeGLUGrad_takes_dY_A_B: ...
class _GeluGrad_takes_dY_X: ...
class _GlobalAveragePoolGrad_takes_dY: ...
class _GroupNorm_takes_X_gamma_beta: ...
class _GroupNormGrad_takes_dY_X_mean_inv_std_and_perhaps_gamma_beta_sample_scale_sample_shift_residual_grad: ...
class _GroupNormalization_takes_X_and_perhaps_scale_bias_sample_scale_sample_shift: ...
class _InstanceNormalization_takes_input_scale_B: ...
class _InvertibleLayerNormalizationGrad_takes_Y_grad_Y_scale_bias_inv_std_var: ...
class _IsAllFinite_takes_input: ...
class _IsFinite_takes_X: ...
class _LayerNormalization_takes_X_Scale_and_perhaps_B: ...
class _LayerNormalizationGrad_takes_Y_grad_X_scale_mean_inv_std_dev_and_perhaps_residual_grad: ...
class _LeakyReluGrad_takes_dY_Y: ...
class _LinearCrossEntropy_takes_X_W_labels_and_perhaps_B_weight_dY: ...
class _LogSoftmaxGrad_takes_dY_X: ...
class _LogSoftmaxGrad_13_takes_dY_X: ...
class _MaxPool_takes_X: ...
class _MaxPoolGrad_takes_dY_Indices: ...
class _MixedPrecisionScale_takes_S_X: ...
class _PadAndUnflatten_takes_input_indices_unflatten_dims: ...
class _QuickGeluGrad_takes_dY_X: ...
class _ReduceAllL2_takes_X: ...
class _ReluGrad_takes_dY_X: ...
class _ResizeGrad_takes_dY_and_perhaps_X_roi_scales: ...
class _RotaryEmbedding_takes_X_cos_cache_sin_cache_and_perhaps_position_ids: ...
class _RotaryEmbeddingGrad_takes_dY_cos_cache_sin_cache_and_perhaps_position_ids: ...
class _Scale_takes_input_scale: ...
class _ScaledSum_takes_input_0_input_1_and_perhaps_input_2: ...
class _SigmoidGrad_takes_dY_Y: ...
class _SimplifiedLayerNormalization_takes_X_scale: ...
class _SimplifiedLayerNormalizationGrad_takes_Y_grad_X_scale_inv_std_var_and_perhaps_residual_grad: ...
class _SkipGroupNorm_takes_X_gamma_beta_skip_and_perhaps_bias: ...
class _SkipLayerNormalization_takes_input_skip_gamma_and_perhaps_beta_bias: ...
class _SkipSimplifiedLayerNormalization_takes_input_skip_gamma_and_perhaps_bias: ...
class _SliceGrad_takes_dY_shape_starts_ends_and_perhaps_axes_steps: ...
class _SoftmaxCrossEntropy_takes_logits_label: ...
class _SoftmaxCrossEntropyGrad_takes_dY_log_prob_label: ...
class _SoftmaxCrossEntropyLoss_takes_scores_labels_and_perhaps_weights: ...
class _SoftmaxCrossEntropyLossGrad_takes_dY_log_prob_label_and_perhaps_weight: ...
class _SoftmaxCrossEntropyLossInternal_takes_scores_labels_and_perhaps_weights_ignore_index: ...
class _SoftmaxCrossEntropyLossInternalGrad_takes_dY_log_prob_label_and_perhaps_weight_ignore_index_bias: ...
class _SoftmaxDropoutGrad_takes_dy_mask_softmax_y_and_perhaps_ratio: ...
class _SoftmaxGrad_takes_dY_Y: ...
class _SoftmaxGrad_13_takes_dY_Y: ...
class _SparseSoftmaxCrossEntropy_takes_logits_label_and_perhaps_weight: ...
class _SparseSoftmaxCrossEntropyGrad_takes_dY_log_prob_label_and_perhaps_weight: ...
class _SwiGLU_takes_A_B: ...
class _SwiGLUGrad_takes_dY_A_B: ...
class _TanhGrad_takes_dY_Y: ...

@overload
def run(
    op: Literal["AdaptiveAveragePoolGrad"],
    dY: _T,
    *,
    input_size: Sequence[int] | None = None,
    outputs: _AdaptiveAveragePoolGradOutput | Iterable[_AdaptiveAveragePoolGradOutput] | None = None,
    out: Mapping[_AdaptiveAveragePoolGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.AdaptiveAveragePoolGrad[_T]:
    """Gradient of average pooling to a given number of outputs.

      dY: gradient of the output
      input_size: spatial dimensions of the input; without it those of an `out` array

    Returns
      dX: gradient of the input
    """

@overload
def run(
    op: Literal["AveragePoolGrad"],
    dY: _T,
    *,
    input_size: Sequence[int] | None = None,
    auto_pad: Literal["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"] = "NOTSET",
    ceil_mode: Literal[0, 1] = 0,
    count_include_pad: Literal[0, 1] = 0,
    dilations: Sequence[int] | None = None,
    divisor_override: int | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    outputs: _AveragePoolGradOutput | Iterable[_AveragePoolGradOutput] | None = None,
    out: Mapping[_AveragePoolGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.AveragePoolGrad[_T]:
    """Gradient of average pooling in one to three dimensions.

      dY: gradient of the output
      input_size: spatial dimensions of the input; without it those of an `out` array
      auto_pad: how pads are found
      ceil_mode: 1: rounds the number of outputs up; each window still begins in the input or before it
      count_include_pad: 1: the divisor counts elements of the padding too
      dilations: distance between the elements of a window
      divisor_override: the divisor, not 0; without it the number of elements
      kernel_shape: elements of a window
      pads: elements before each spatial dimension then after each; 0 by default
      strides: step of the window

    Returns
      dX: gradient of the input
    """

@overload
def run(
    op: Literal["BatchNormalization"],
    X: _T,
    scale: _Array,
    B: _Array,
    input_mean: _T2 | None = None,
    input_var: _T2 | None = None,
    Z: _T | None = None,
    *,
    epsilon: float = 1e-05,
    momentum: float = 0.9,
    training_mode: Literal[1] = 1,
    activation: Literal["none", "relu", "leaky_relu", "silu", "relu6", "hardswish", "elu", "gelu"] = "none",
    activation_alpha: float = 0.01,
    unbiased: Literal[0, 1] = 0,
    outputs: _BatchNormalizationOutput | Iterable[_BatchNormalizationOutput] | None = None,
    out: Mapping[_BatchNormalizationOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.BatchNormalization[_T, _T2]:
    """Batch normalization in training, with the statistics of the batch that its gradient takes, a residual that is
    added and an activation.

      X: input
      scale: scale of each channel
      B: bias of each channel
      input_mean: running mean of each channel so far
      input_var: running variance of each channel so far
      Z: residual, added before the activation
      epsilon: added to the variance
      momentum: how much of the running statistics stays, as ONNX has it; PyTorch's momentum is 1 less that
      training_mode: statistics are those of the batch
      activation: none, relu, leaky_relu (t where t > 0, else activation_alpha * t), silu (t / (1 + exp(-t))), relu6
          (t between 0 and 6), hardswish (t relu6(t + 3) / 6), elu (t where t > 0, else activation_alpha (exp(t) -
          1)) or gelu (t Phi(t))
      activation_alpha: the slope of leaky_relu below 0, and elu's factor there; finite, and not negative, as the
          output's sign has to be the input's. With the other activations it has no effect
      unbiased: 1: running_var takes the variance over one element less, as in PyTorch: NaN for one element; 0: over
          all, as in ONNX

    Returns
      Y: (X - saved_mean) * saved_inv_std * scale + B + Z, and of that the activation
      running_mean: input_mean * momentum + mean * (1 - momentum); input_mean itself of a batch of nothing; on
          request
      running_var: input_var * momentum + variance * (1 - momentum); input_var itself of a batch of nothing; on
          request
      saved_mean: mean of each channel of the batch; 0 of nothing
      saved_inv_std: 1 / sqrt(variance + epsilon) of each channel of the batch; 0 of nothing
    """

@overload
def run(
    op: Literal["BatchNormalizationFromStatistics"],
    X: _T,
    scale: _Array,
    B: _Array,
    saved_mean: _Array,
    saved_inv_std: _Array,
    *,
    outputs: _BatchNormalizationFromStatisticsOutput | Iterable[_BatchNormalizationFromStatisticsOutput] | None = None,
    out: Mapping[_BatchNormalizationFromStatisticsOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.BatchNormalizationFromStatistics[_T]:
    """Last step of batch normalization over a batch in parts, one part on each device; Y of one part, from the
    statistics of all.

      X: input
      scale: scale of each channel
      B: bias of each channel
      saved_mean: mean of each channel
      saved_inv_std: 1 / sqrt(variance + epsilon) of each channel

    Returns
      Y: (X - saved_mean) * saved_inv_std * scale + B
    """

@overload
def run(
    op: Literal["BatchNormalizationGrad"],
    dY: _T,
    X: _T,
    Scale: _T1,
    saved_mean: _Array,
    saved_inv_std: _Array,
    B: _T1 | None = None,
    Y: _T | None = None,
    dY2: _T | None = None,
    *,
    epsilon: float = 1e-05,
    activation: Literal["none", "relu", "leaky_relu", "silu", "relu6", "hardswish", "elu", "gelu"] = "none",
    activation_alpha: float = 0.01,
    outputs: _BatchNormalizationGradOutput | Iterable[_BatchNormalizationGradOutput] | None = None,
    out: Mapping[_BatchNormalizationGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.BatchNormalizationGrad[_T, _T1]:
    """Gradient of batch normalization in training, where mean and variance are those of the batch;
    DmlBatchNormalizationGrad takes them as constants.

      dY: gradient of the output
      X: input of the forward pass
      Scale: scale of each channel
      saved_mean: mean of each channel
      saved_inv_std: 1 / sqrt(variance + epsilon) of each channel
      B: bias of each channel, to recompute the activation's input
      Y: output of the forward pass: where relu was 0, or leaky_relu negative; in place of B
      dY2: another gradient of the output, added to dY
      epsilon: accepted for compatibility; saved_inv_std already has it
      activation: none, relu, leaky_relu (t where t > 0, else activation_alpha * t), silu (t / (1 + exp(-t))), relu6
          (t between 0 and 6), hardswish (t relu6(t + 3) / 6), elu (t where t > 0, else activation_alpha (exp(t) -
          1)) or gelu (t Phi(t))
      activation_alpha: the slope of leaky_relu below 0, and elu's factor there; finite, and not negative, as the
          output's sign has to be the input's. With the other activations it has no effect

    Returns
      dX: gradient of X
      dScale: gradient of Scale
      dBias: gradient of the bias
      dZ: gradient of the residual: dY + dY2 times the activation's derivative; on request
    """

@overload
def run(
    op: Literal["BatchNormalizationGradFromSums"],
    dY: _T,
    X: _T,
    Scale: _Array,
    saved_mean: _Array,
    saved_inv_std: _Array,
    dScale: _Array,
    dBias: _Array,
    counts: _Array | None = None,
    *,
    count: int | None = None,
    outputs: _BatchNormalizationGradFromSumsOutput | Iterable[_BatchNormalizationGradFromSumsOutput] | None = None,
    out: Mapping[_BatchNormalizationGradFromSumsOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.BatchNormalizationGradFromSums[_T]:
    """Second step of BatchNormalizationGrad over a batch in parts, one part on each device; dX of one part, from the
    sums over all.

      dY: gradient of the output
      X: input of the forward pass
      Scale: scale of each channel
      saved_mean: mean of each channel
      saved_inv_std: 1 / sqrt(variance + epsilon) of each channel
      dScale: gradient of Scale over the whole batch
      dBias: gradient of the bias over the whole batch
      counts: elements of each channel in each part; the device adds them up. In place of count
      count: elements of each channel in the whole batch; in place of counts

    Returns
      dX: gradient of X
    """

@overload
def run(
    op: Literal["BatchNormalizationGradSums"],
    dY: _Array,
    X: _Array,
    saved_mean: _T2,
    saved_inv_std: _T2,
    *,
    outputs: _BatchNormalizationGradSumsOutput | Iterable[_BatchNormalizationGradSumsOutput] | None = None,
    out: Mapping[_BatchNormalizationGradSumsOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.BatchNormalizationGradSums[_T2]:
    """First step of BatchNormalizationGrad over a batch in parts, one part on each device; its sums over one part, to
    be added up over all.

      dY: gradient of the output
      X: input of the forward pass
      saved_mean: mean of each channel
      saved_inv_std: 1 / sqrt(variance + epsilon) of each channel

    Returns
      dScale: this part's share of the gradient of Scale
      dBias: this part's share of the gradient of the bias
      sums: dScale and dBias, one behind the other: one message to the other parts; on request
    """

@overload
def run(
    op: Literal["BatchNormalizationMergeStatistics"],
    part_statistics: _T2,
    input_mean: _T3 | None = None,
    input_var: _T3 | None = None,
    *,
    epsilon: float = 1e-05,
    momentum: float = 0.9,
    outputs: _BatchNormalizationMergeStatisticsOutput
    | Iterable[_BatchNormalizationMergeStatisticsOutput]
    | None = None,
    out: Mapping[_BatchNormalizationMergeStatisticsOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.BatchNormalizationMergeStatistics[_T2, _T3]:
    """Statistics of a batch in parts, one part on each device, from those of every part, and the running statistics
    that follow.

      part_statistics: means, variances and number of elements (0 or more) of each part
      input_mean: running mean of each channel so far
      input_var: running variance of each channel so far
      epsilon: added to the variance
      momentum: how much of the running statistics stays, as ONNX has it; PyTorch's momentum is 1 less that

    Returns
      statistics: of the whole batch, with 1 / sqrt(variance + epsilon) for each variance; 0 of nothing
      sample_statistics: of the whole batch, with variances that are divided by one element less, if there are two
      running_mean: input_mean * momentum + mean * (1 - momentum); on request
      running_var: input_var * momentum + variance of sample_statistics * (1 - momentum); on request
    """

@overload
def run(
    op: Literal["BatchNormalizationStatistics"],
    X: _T,
    *,
    outputs: _BatchNormalizationStatisticsOutput | Iterable[_BatchNormalizationStatisticsOutput] | None = None,
    out: Mapping[_BatchNormalizationStatisticsOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.BatchNormalizationStatistics[_T]:
    """First step of batch normalization over a batch in parts, one part on each device; the statistics of one part, to
    be merged with those of the others.

      X: input

    Returns
      part_statistics: means, variances and number of elements of this part; 0 of nothing
    """

@overload
def run(
    op: Literal["BatchScale"],
    input: _T,
    *,
    scale_0: float,
    scale_1: float,
    scale_2: float | None = None,
    outputs: _BatchScaleOutput | Iterable[_BatchScaleOutput] | None = None,
    out: Mapping[_BatchScaleOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.BatchScale[_T]:
    """Two or three products of one array with numbers; the gradient of ScaledSum.

      input: the array
      scale_0: first factor
      scale_1: second factor
      scale_2: third factor

    Returns
      output_0: scale_0 input
      output_1: scale_1 input
      output_2: scale_2 input; with scale_2; on request
    """

@overload
def run(
    op: Literal["BiasFastGelu"],
    A: _T,
    B: _Array,
    *,
    outputs: _BiasFastGeluOutput | Iterable[_BiasFastGeluOutput] | None = None,
    out: Mapping[_BiasFastGeluOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.BiasFastGelu[_T]:
    """GELU(A + B) in its approximate form, with the hyperbolic tangent.

      A: input
      B: bias

    Returns
      C: GELU of the sum
    """

@overload
def run(
    op: Literal["BiasFastGeluGrad_dX"],
    dY: _T,
    X: _T,
    B: _TB,
    *,
    outputs: _BiasFastGeluGrad_dXOutput | Iterable[_BiasFastGeluGrad_dXOutput] | None = None,
    out: Mapping[_BiasFastGeluGrad_dXOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.BiasFastGeluGrad_dX[_T, _TB]:
    """Gradient of GELU(X + B) in its approximate form, with the hyperbolic tangent.

      dY: gradient of the output
      X: input of the forward pass
      B: bias

    Returns
      dX: gradient of X
      dB: gradient of B; summed before dX is rounded; on request
    """

@overload
def run(
    op: Literal["BiasGelu"],
    A: _T,
    B: _Array,
    *,
    outputs: _BiasGeluOutput | Iterable[_BiasGeluOutput] | None = None,
    out: Mapping[_BiasGeluOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.BiasGelu[_T]:
    """GELU(A + B) in its exact form, with the normal distribution function.

      A: input
      B: bias

    Returns
      C: GELU of the sum
    """

@overload
def run(
    op: Literal["BiasGeluGrad_dX"],
    dY: _T,
    X: _T,
    B: _TB,
    *,
    outputs: _BiasGeluGrad_dXOutput | Iterable[_BiasGeluGrad_dXOutput] | None = None,
    out: Mapping[_BiasGeluGrad_dXOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.BiasGeluGrad_dX[_T, _TB]:
    """Gradient of GELU(X + B) in its exact form, with the normal distribution function.

      dY: gradient of the output
      X: input of the forward pass
      B: bias

    Returns
      dX: gradient of X
      dB: gradient of B; summed before dX is rounded; on request
    """

@overload
def run(
    op: Literal["BitmaskDropoutGrad"],
    dy: _T,
    mask: _Array,
    ratio: _Array | float | None = None,
    training_mode: _Array | bool | None = None,
    *,
    outputs: _BitmaskDropoutGradOutput | Iterable[_BitmaskDropoutGradOutput] | None = None,
    out: Mapping[_BitmaskDropoutGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.BitmaskDropoutGrad[_T]:
    """Gradient of dropout whose mask is in bits.

      dy: gradient of the output
      mask: what was kept: bit n % 32 of word n / 32, the lowest first, for element n in C order
      ratio: share that was dropped, in [0, 1)
      training_mode: false: nothing was scaled, whatever the ratio

    Returns
      dx: gradient of the input
    """

@overload
def run(
    op: Literal["Conv"],
    X: _T,
    W: _T,
    B: _T | None = None,
    *,
    auto_pad: Literal["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"] = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    outputs: _ConvOutput | Iterable[_ConvOutput] | None = None,
    out: Mapping[_ConvOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.Conv[_T]:
    """Convolution in one to three dimensions, grouped, strided, dilated and padded, with a bias.

      X: input
      W: weights
      B: bias of each output channel
      auto_pad: how pads are found
      dilations: distance between the taps of the kernel
      group: groups the channels are divided into
      kernel_shape: extent of the kernel; must agree with W, whose extent is the default
      pads: zeros before each spatial dimension then after each; 0 by default
      strides: step of the kernel

    Returns
      Y: each window of X times the weights, added up, and the bias
    """

@overload
def run(
    op: Literal["ConvGrad"],
    dY: _T,
    X: _T,
    W: _T,
    *,
    auto_pad: Literal["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"] = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    outputs: _ConvGradOutput | Iterable[_ConvGradOutput] | None = None,
    out: Mapping[_ConvGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.ConvGrad[_T]:
    """Gradient of convolution in one to three dimensions, grouped, strided, dilated and padded as ONNX Conv.

      dY: gradient of the output
      X: input of the forward pass
      W: weights
      auto_pad: how pads are found
      dilations: distance between the taps of the kernel
      group: groups the channels are divided into
      kernel_shape: extent of the kernel; must agree with W, whose extent is the default
      pads: zeros before each spatial dimension then after each; 0 by default
      strides: step of the kernel

    Returns
      dX: gradient of X
      dW: gradient of W
      dB: gradient of the bias
    """

@overload
def run(
    op: Literal["ConvTranspose"],
    X: _T,
    W: _T,
    B: _T | None = None,
    *,
    auto_pad: Literal["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"] = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    outputs: _ConvTransposeOutput | Iterable[_ConvTransposeOutput] | None = None,
    out: Mapping[_ConvTransposeOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.ConvTranspose[_T]:
    """Transposed convolution in one to three dimensions, grouped, strided, dilated and padded, with a bias.

      X: input
      W: weights
      B: bias of each output channel; on a GPU 16-bit types are rounded once before it is added
      auto_pad: how pads are found
      dilations: distance between the taps of the kernel
      group: groups the channels are divided into
      kernel_shape: extent of the kernel; must agree with W, whose extent is the default
      strides: step of the kernel
      pads: what is cut off before each spatial dimension of the output then after each; 0 by default
      output_padding: how much longer each spatial dimension of the output is at its end
      output_shape: spatial dimensions of the output; pads then follow from them

    Returns
      Y: the elements of X times the weights, added up where their windows meet, and the bias
    """

@overload
def run(
    op: Literal["ConvTransposeGrad"],
    dY: _T,
    X: _T,
    W: _T,
    *,
    auto_pad: Literal["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"] = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    outputs: _ConvTransposeGradOutput | Iterable[_ConvTransposeGradOutput] | None = None,
    out: Mapping[_ConvTransposeGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.ConvTransposeGrad[_T]:
    """Gradient of transposed convolution in one to three dimensions, grouped, strided, dilated and padded as ONNX
    ConvTranspose.

      dY: gradient of the output
      X: input of the forward pass
      W: weights
      auto_pad: how pads are found
      dilations: distance between the taps of the kernel
      group: groups the channels are divided into
      kernel_shape: extent of the kernel; must agree with W, whose extent is the default
      strides: step of the kernel
      pads: what is cut off before each spatial dimension of the output then after each; 0 by default
      output_padding: how much longer each spatial dimension of the output is at its end
      output_shape: spatial dimensions of the output; pads then follow from them

    Returns
      dX: gradient of X
      dW: gradient of W
      dB: gradient of the bias
    """

@overload
def run(
    op: Literal["CrossEntropy"],
    X: _T,
    labels: _Array | None = None,
    weight: _Array | None = None,
    probabilities: _T | None = None,
    dY: _U | None = None,
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
    capped: Literal[0, 1] = 0,
    empty: Literal["zero", "nan"] = "zero",
    outputs: _CrossEntropyOutput | Iterable[_CrossEntropyOutput] | None = None,
    out: Mapping[_CrossEntropyOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.CrossEntropy[_U, _T]:
    """Cross entropy of softmax and labels or probabilities with its gradient, from one reading of the logits.

      X: logits
      labels: class of each row
      weight: weight of each class
      probabilities: probability of each class, in place of labels
      dY: gradient of the loss; 1 if it is not given
      reduction: how the losses of all rows become one; mean divides by the sum of the weights of the labels that
          count
      ignore_index: label of rows that do not count, in [0, C) or not; probabilities all count
      label_smoothing: share of the target that all classes have alike, at most 1
      z_loss: factor of logsumexp(logits)^2, which is added to the loss of each row that counts; mean divides it as
          the rest
      softcap: the logits are softcap tanh(X / softcap); 0: they are X
      capped: 1: X are the logits, capped already; dX is still the gradient of what was capped
      empty: mean loss where no row counts: zero as in ONNX Runtime, nan as in PyTorch

    Returns
      loss: the loss; with reduction none, of each row
      dX: gradient of the logits
      row_loss: loss of each row, whatever the reduction; on request
      entropy: entropy of the probabilities of each row, in nats; on request
    """

@overload
def run(
    op: Literal["DivGrad"],
    dY: _T,
    A: _T,
    B: _T,
    *,
    outputs: _DivGradOutput | Iterable[_DivGradOutput] | None = None,
    out: Mapping[_DivGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.DivGrad[_T]:
    """Gradients of A / B, also where one of them was broadcast.

      dY: gradient of the quotient
      A: numerator
      B: denominator

    Returns
      dA: gradient of A
      dB: gradient of B
    """

@overload
def run(
    op: Literal["DmlActivationReluGrad"],
    Input: _T,
    InputGradient: _T,
    *,
    outputs: _DmlActivationReluGradOutput | Iterable[_DmlActivationReluGradOutput] | None = None,
    out: Mapping[_DmlActivationReluGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.DmlActivationReluGrad[_T]:
    """DirectML's gradient of ReLU, 0 where the input is 0.

      Input: input of the forward pass
      InputGradient: gradient of the output

    Returns
      OutputGradient: gradient of the input
    """

@overload
def run(
    op: Literal["DmlAveragePoolingGrad"],
    InputGradient: _T,
    *,
    OutputSizes: Sequence[int] | None = None,
    Strides: Sequence[int],
    WindowSize: Sequence[int],
    StartPadding: Sequence[int],
    EndPadding: Sequence[int],
    IncludePadding: Literal[0, 1] = 0,
    outputs: _DmlAveragePoolingGradOutput | Iterable[_DmlAveragePoolingGradOutput] | None = None,
    out: Mapping[_DmlAveragePoolingGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.DmlAveragePoolingGrad[_T]:
    """DirectML's gradient of average pooling.

      InputGradient: gradient of the output
      OutputSizes: spatial dimensions of the input; without it those of an `out` array
      Strides: step of the window
      WindowSize: elements of a window
      StartPadding: elements before each spatial dimension
      EndPadding: elements after each spatial dimension
      IncludePadding: 1: the divisor counts elements of the padding too

    Returns
      OutputGradient: gradient of the input
    """

@overload
def run(
    op: Literal["DmlBatchNormalizationGrad"],
    Input: _T,
    InputGradient: _T,
    Mean: _T,
    Variance: _T,
    Scale: _T,
    *,
    Epsilon: float,
    outputs: _DmlBatchNormalizationGradOutput | Iterable[_DmlBatchNormalizationGradOutput] | None = None,
    out: Mapping[_DmlBatchNormalizationGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.DmlBatchNormalizationGrad[_T]:
    """DirectML's gradient of batch normalization, where mean and variance are constants; BatchNormalizationGrad takes
    them as those of the batch.

      Input: input of the forward pass
      InputGradient: gradient of the output
      Mean: mean
      Variance: variance
      Scale: scale
      Epsilon: added to Variance

    Returns
      OutputGradient: gradient of Input
      OutputScaleGradient: gradient of Scale
      OutputBiasGradient: gradient of the bias
    """

@overload
def run(
    op: Literal["DmlBatchNormalizationTrainingGrad"],
    Input: _T,
    InputGradient: _T,
    Mean: _T,
    Variance: _T,
    Scale: _T,
    *,
    Epsilon: float,
    outputs: _DmlBatchNormalizationTrainingGradOutput
    | Iterable[_DmlBatchNormalizationTrainingGradOutput]
    | None = None,
    out: Mapping[_DmlBatchNormalizationTrainingGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.DmlBatchNormalizationTrainingGrad[_T]:
    """DirectML's gradient of batch normalization in training, where mean and variance are those of the batch, over any
    dimensions.

      Input: input of the forward pass
      InputGradient: gradient of the output
      Mean: mean
      Variance: variance
      Scale: scale
      Epsilon: added to Variance

    Returns
      OutputGradient: gradient of Input
      OutputScaleGradient: gradient of Scale
      OutputBiasGradient: gradient of the bias
    """

@overload
def run(
    op: Literal["DmlElementWiseClipGrad"],
    Input: _T,
    InputGradient: _T,
    *,
    Min: float,
    Max: float,
    outputs: _DmlElementWiseClipGradOutput | Iterable[_DmlElementWiseClipGradOutput] | None = None,
    out: Mapping[_DmlElementWiseClipGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.DmlElementWiseClipGrad[_T]:
    """DirectML's gradient of clipping, 0 where the input is at or beyond a limit.

      Input: input of the forward pass
      InputGradient: gradient of the output
      Min: the lower limit
      Max: the upper limit

    Returns
      OutputGradient: gradient of the input
    """

@overload
def run(
    op: Literal["DmlElementWiseClipGrad1"],
    Input: _T,
    InputGradient: _T,
    *,
    Min: float,
    Max: float,
    outputs: _DmlElementWiseClipGrad1Output | Iterable[_DmlElementWiseClipGrad1Output] | None = None,
    out: Mapping[_DmlElementWiseClipGrad1Output, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.DmlElementWiseClipGrad1[_T]:
    """DirectML's gradient of clipping, 0 where the input is at or beyond a limit.

      Input: input of the forward pass
      InputGradient: gradient of the output
      Min: the lower limit
      Max: the upper limit

    Returns
      OutputGradient: gradient of the input
    """

@overload
def run(
    op: Literal["DmlLocalResponseNormalizationGrad"],
    Input: _T,
    InputGradient: _T,
    *,
    CrossChannel: Literal[0, 1],
    LocalSize: int,
    Alpha: float = 0.0001,
    Beta: float = 0.75,
    Bias: float = 1.0,
    outputs: _DmlLocalResponseNormalizationGradOutput
    | Iterable[_DmlLocalResponseNormalizationGradOutput]
    | None = None,
    out: Mapping[_DmlLocalResponseNormalizationGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.DmlLocalResponseNormalizationGrad[_T]:
    """DirectML's gradient of local response normalization, over neighbouring channels or positions.

      Input: input of the forward pass
      InputGradient: gradient of the output
      CrossChannel: 1: windows of channels; 0: of positions
      LocalSize: elements of a window along each of its dimensions
      Alpha: factor of the squares
      Beta: the exponent
      Bias: added to the mean square

    Returns
      OutputGradient: gradient of the input
    """

@overload
def run(
    op: Literal["DmlMaxPoolingGrad"],
    Input: _T,
    InputGradient: _T,
    *,
    Strides: Sequence[int],
    WindowSize: Sequence[int],
    StartPadding: Sequence[int],
    EndPadding: Sequence[int],
    Dilations: Sequence[int] | None = None,
    outputs: _DmlMaxPoolingGradOutput | Iterable[_DmlMaxPoolingGradOutput] | None = None,
    out: Mapping[_DmlMaxPoolingGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.DmlMaxPoolingGrad[_T]:
    """DirectML's gradient of max pooling, from the input of the forward pass; of equal elements the first counts.

      Input: input of the forward pass
      InputGradient: gradient of the output
      Strides: step of the window
      WindowSize: elements of a window
      StartPadding: elements before each spatial dimension
      EndPadding: elements after each spatial dimension
      Dilations: distance between the elements of a window

    Returns
      OutputGradient: gradient of the input
    """

@overload
def run(
    op: Literal["DmlResampleGrad"],
    InputGradient: _T,
    *,
    OutputSizes: Sequence[int] | None = None,
    InterpolationMode: Literal["NEAREST_NEIGHBOR", "LINEAR"],
    Scales: Sequence[float],
    InputPixelOffsets: Sequence[float],
    OutputPixelOffsets: Sequence[float],
    outputs: _DmlResampleGradOutput | Iterable[_DmlResampleGradOutput] | None = None,
    out: Mapping[_DmlResampleGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.DmlResampleGrad[_T]:
    """DirectML's gradient of resampling, by nearest elements or linear.

      InputGradient: gradient of the output
      OutputSizes: shape of the input; without it that of an `out` array
      InterpolationMode: how an output is made of the elements around it
      Scales: outputs for each input along each dimension; 1 of the first two
      InputPixelOffsets: added to coordinates of the input; 0.5 for pixels' centres
      OutputPixelOffsets: added to coordinates of the output; -0.5 for pixels' centres

    Returns
      OutputGradient: gradient of the input
    """

@overload
def run(
    op: Literal["DmlResampleGrad1"],
    InputGradient: _T,
    *,
    OutputSizes: Sequence[int] | None = None,
    InterpolationMode: Literal["NEAREST_NEIGHBOR", "LINEAR"],
    RoundingDirection: Literal["INCREASING", "DECREASING"],
    Scales: Sequence[float],
    InputPixelOffsets: Sequence[float],
    OutputPixelOffsets: Sequence[float],
    outputs: _DmlResampleGrad1Output | Iterable[_DmlResampleGrad1Output] | None = None,
    out: Mapping[_DmlResampleGrad1Output, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.DmlResampleGrad1[_T]:
    """DirectML's gradient of resampling, by nearest elements, rounded up or down, or linear.

      InputGradient: gradient of the output
      OutputSizes: shape of the input; without it that of an `out` array
      InterpolationMode: how an output is made of the elements around it
      RoundingDirection: of a coordinate to its nearest element: up or down
      Scales: outputs for each input along each dimension; 1 of the first two
      InputPixelOffsets: added to coordinates of the input; 0.5 for pixels' centres
      OutputPixelOffsets: added to coordinates of the output; -0.5 for pixels' centres

    Returns
      OutputGradient: gradient of the input
    """

@overload
def run(
    op: Literal["DmlRoiAlignGrad"],
    InputGradient: _T,
    ROI: _R,
    BatchIndices: _Array,
    Input: _T | None = None,
    *,
    BatchCount: int | None = None,
    OutputSizes: Sequence[int] | None = None,
    ReductionFunction: Literal["AVERAGE", "MAX"],
    InterpolationMode: Literal["NEAREST_NEIGHBOR", "LINEAR"],
    SpatialScaleX: float = 1.0,
    SpatialScaleY: float = 1.0,
    InputPixelOffset: float = 0.5,
    OutputPixelOffset: float = -0.5,
    MinimumSamplesPerOutput: int = 1,
    MaximumSamplesPerOutput: int = 4294967295,
    AlignRegionsToCorners: Literal[0, 1] = 0,
    outputs: _DmlRoiAlignGradOutput | Iterable[_DmlRoiAlignGradOutput] | None = None,
    out: Mapping[_DmlRoiAlignGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.DmlRoiAlignGrad[_T, _R]:
    """DirectML's gradient of ROI align, of the images and of the regions.

      InputGradient: gradient of the output
      ROI: the regions, from (x1, y1) to (x2, y2), which may be less
      BatchIndices: the image of each region
      Input: input of the forward pass, which the maximum and OutputROIGradient take
      BatchCount: number of images; without it that of Input, or of an `out` array
      OutputSizes: height and width of an image; without it those of Input, or of an `out` array
      ReductionFunction: what an output is of the samples in its cell
      InterpolationMode: how a sample is made of the elements around it
      SpatialScaleX: elements of the image for each step along x of a region
      SpatialScaleY: elements of the image for each step along y of a region
      InputPixelOffset: subtracted from coordinates of the image; 0.5 for pixels' centres
      OutputPixelOffset: subtracted from the number of a sample; -0.5 for pixels' centres
      MinimumSamplesPerOutput: fewest samples of a cell along each axis
      MaximumSamplesPerOutput: most samples of a cell along each axis
      AlignRegionsToCorners: 1: the outermost samples are on the corners of the region

    Returns
      OutputGradient: gradient of the input
      OutputROIGradient: gradient of the regions; on request
    """

@overload
def run(
    op: Literal["DmlSliceGrad"],
    InputGradient: _T,
    *,
    InputWindowOffsets: Sequence[int],
    InputWindowSizes: Sequence[int],
    InputWindowStrides: Sequence[int],
    OutputSizes: Sequence[int] | None = None,
    outputs: _DmlSliceGradOutput | Iterable[_DmlSliceGradOutput] | None = None,
    out: Mapping[_DmlSliceGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.DmlSliceGrad[_T]:
    """DirectML's gradient of a slice, a window of the input that strides cross.

      InputGradient: gradient of the slice
      InputWindowOffsets: where the window begins
      InputWindowSizes: its sizes
      InputWindowStrides: steps, not 0; with negative ones a dimension is read from the window's end
      OutputSizes: shape of the data; without it that of an `out` array

    Returns
      OutputGradient: gradient of the data
    """

@overload
def run(
    op: Literal["DropoutGrad"],
    dy: _T,
    mask: _Array,
    ratio: _Array | float | None = None,
    training_mode: _Array | bool | None = None,
    *,
    outputs: _DropoutGradOutput | Iterable[_DropoutGradOutput] | None = None,
    out: Mapping[_DropoutGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.DropoutGrad[_T]:
    """Gradient of dropout.

      dy: gradient of the output
      mask: what was kept
      ratio: share that was dropped, in [0, 1)
      training_mode: false: nothing was scaled, whatever the ratio

    Returns
      dx: gradient of the input
    """

@overload
def run(
    op: Literal["FakeQuantGrad"],
    dY: _T,
    gradient_mask: _Array,
    *,
    outputs: _FakeQuantGradOutput | Iterable[_FakeQuantGradOutput] | None = None,
    out: Mapping[_FakeQuantGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.FakeQuantGrad[_T]:
    """Gradient of FakeQuant, the straight-through estimator.

      dY: gradient of the output
      gradient_mask: what was not clipped

    Returns
      dX: gradient of the input
    """

@overload
def run(
    op: Literal["FastGeluGrad"],
    dY: _T,
    X: _T,
    *,
    outputs: _FastGeluGradOutput | Iterable[_FastGeluGradOutput] | None = None,
    out: Mapping[_FastGeluGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.FastGeluGrad[_T]:
    """Gradient of GELU in its approximate form, with the hyperbolic tangent.

      dY: gradient of the output
      X: input of the forward pass

    Returns
      dX: gradient of the input
    """

@overload
def run(
    op: Literal["FlattenAndUnpad"],
    input: _T,
    indices: _Array,
    *,
    outputs: _FlattenAndUnpadOutput | Iterable[_FlattenAndUnpadOutput] | None = None,
    out: Mapping[_FlattenAndUnpadOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.FlattenAndUnpad[_T]:
    """Rows of a padded array that indices choose; the gradient of PadAndUnflatten.

      input: the padded array
      indices: the row of the padded array, with its first two dimensions as one

    Returns
      output: the rows; one whose index is out of range is 0 on a GPU
    """

@overload
def run(
    op: Literal["GatherElementsGrad"],
    dY: _T,
    shape: _Array | Sequence[int],
    indices: _Array,
    *,
    axis: int = 0,
    outputs: _GatherElementsGradOutput | Iterable[_GatherElementsGradOutput] | None = None,
    out: Mapping[_GatherElementsGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.GatherElementsGrad[_T]:
    """Gradient of GatherElements, PyTorch's gather.

      dY: gradient of the output
      shape: shape of the data
      indices: indices along `axis`, from either end
      axis: the dimension that was gathered from

    Returns
      dX: gradient of the data
    """

@overload
def run(
    op: Literal["GatherGrad"],
    shape: _Array | Sequence[int],
    indices: _Array,
    dY: _T,
    accumulator: _T | None = None,
    *,
    axis: int = 0,
    padding_idx: int | None = None,
    outputs: _GatherGradOutput | Iterable[_GatherGradOutput] | None = None,
    out: Mapping[_GatherGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.GatherGrad[_T]:
    """Gradient of Gather, and of an embedding's weight.

      shape: shape of the data
      indices: indices along `axis`, from either end
      dY: gradient of the output
      accumulator: a gradient of the same data, such as that of weights tied to an embedding: dX is added to it, in
          its memory
      axis: the dimension that was gathered from
      padding_idx: index, from either end, whose gradient is 0

    Returns
      dX: gradient of the data
    """

@overload
def run(
    op: Literal["GatherNDGrad"],
    shape: _Array | Sequence[int],
    indices: _Array,
    update: _T,
    *,
    batch_dims: int = 0,
    outputs: _GatherNDGradOutput | Iterable[_GatherNDGradOutput] | None = None,
    out: Mapping[_GatherNDGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.GatherNDGrad[_T]:
    """Gradient of GatherND.

      shape: shape of the data
      indices: indices, each along its dimension, from either end
      update: gradient of the output
      batch_dims: number of dimensions that data and indices share

    Returns
      output: gradient of the data
    """

@overload
def run(
    op: Literal["GeGLU"],
    A: _T,
    B: _T,
    *,
    approximate: Literal["none", "tanh"] = "none",
    outputs: _GeGLUOutput | Iterable[_GeGLUOutput] | None = None,
    out: Mapping[_GeGLUOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.GeGLU[_T]:
    """GELU of A, times B.

      A: the gate
      B: what it lets through
      approximate: tanh: GELU in its approximate form

    Returns
      Y: the product
    """

@overload
def run(
    op: Literal["GeGLUGrad"],
    dY: _T,
    A: _T,
    B: _T,
    *,
    approximate: Literal["none", "tanh"] = "none",
    outputs: _GeGLUGradOutput | Iterable[_GeGLUGradOutput] | None = None,
    out: Mapping[_GeGLUGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.GeGLUGrad[_T]:
    """Gradients of GeGLU, and the product again.

      dY: gradient of the product
      A: the gate
      B: what it lets through
      approximate: tanh: GELU in its approximate form

    Returns
      dA: gradient of A
      dB: gradient of B
      Y: the product; on request
    """

@overload
def run(
    op: Literal["GeluGrad"],
    dY: _T,
    X: _T,
    *,
    outputs: _GeluGradOutput | Iterable[_GeluGradOutput] | None = None,
    out: Mapping[_GeluGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.GeluGrad[_T]:
    """Gradient of GELU in its exact form, with the normal distribution function.

      dY: gradient of the output
      X: input of the forward pass

    Returns
      dX: gradient of the input
    """

@overload
def run(
    op: Literal["GlobalAveragePoolGrad"],
    dY: _T,
    *,
    input_size: Sequence[int] | None = None,
    outputs: _GlobalAveragePoolGradOutput | Iterable[_GlobalAveragePoolGradOutput] | None = None,
    out: Mapping[_GlobalAveragePoolGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.GlobalAveragePoolGrad[_T]:
    """Gradient of the mean over all spatial dimensions.

      dY: gradient of the output
      input_size: spatial dimensions of the input; without it those of an `out` array

    Returns
      dX: gradient of the input
    """

@overload
def run(
    op: Literal["GroupNorm"],
    X: _T,
    gamma: _Array,
    beta: _Array,
    *,
    groups: int,
    activation: Literal[0, 1],
    channels_last: Literal[0, 1] = 1,
    epsilon: float = 1e-05,
    outputs: _GroupNormOutput | Iterable[_GroupNormOutput] | None = None,
    out: Mapping[_GroupNormOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.GroupNorm[_T]:
    """Group normalization, and SiLU of it, with the statistics that GroupNormGrad takes; channels last unless
    `channels_last` is 0.

      X: input
      gamma: scale of each channel
      beta: bias of each channel
      groups: number of groups
      activation: 0: none, 1: silu
      channels_last: 1: the last axis has the channels; 0: the second axis
      epsilon: added to the variance

    Returns
      Y: (X - mean) * inv_std * gamma + beta, and of that the activation
      mean: mean of each group; 0 of nothing; on request
      inv_std: 1 / sqrt(variance + epsilon) of each group; 0 of nothing; on request
    """

@overload
def run(
    op: Literal["GroupNormGrad"],
    dY: _T,
    X: _T,
    mean: _Array,
    inv_std: _Array,
    gamma: _M | None = None,
    beta: _M | None = None,
    sample_scale: _T | None = None,
    sample_shift: _T | None = None,
    residual_grad: _T | None = None,
    *,
    groups: int,
    activation: Literal["none", "relu", "leaky_relu", "silu", "relu6", "hardswish", "elu", "gelu"] = "none",
    activation_alpha: float = 0.01,
    channels_last: Literal[0, 1] = 0,
    outputs: _GroupNormGradOutput | Iterable[_GroupNormGradOutput] | None = None,
    out: Mapping[_GroupNormGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.GroupNormGrad[_T, _M]:
    """Gradient of GroupNorm, SkipGroupNorm, GroupNormalization and InstanceNormalization.

      dY: gradient of the output
      X: input of the forward pass; its sum with a residual where it had one
      mean: mean of each group
      inv_std: 1 / sqrt(variance + epsilon) of each group
      gamma: scale of each channel; 1 if it is not given
      beta: bias of each channel, for the activation's derivative and for sample_scale_grad; 0 if it is not given
      sample_scale: s of each sample and channel, behind the norm: y * (1 + s) + t
      sample_shift: t of each sample and channel
      residual_grad: added to dX: the gradient that comes to X past the norm, as to the sum of SkipGroupNorm
      groups: number of groups
      activation: none, relu, leaky_relu (t where t > 0, else activation_alpha * t), silu (t / (1 + exp(-t))), relu6
          (t between 0 and 6), hardswish (t relu6(t + 3) / 6), elu (t where t > 0, else activation_alpha (exp(t) -
          1)) or gelu (t Phi(t))
      activation_alpha: the slope of leaky_relu below 0, and elu's factor there; finite, and not negative, as the
          output's sign has to be the input's. With the other activations it has no effect
      channels_last: 1: the last axis has the channels; 0: the second axis

    Returns
      dX: gradient of X
      dgamma: gradient of gamma
      dbeta: gradient of beta
      sample_scale_grad: gradient of sample_scale; on request
      sample_shift_grad: gradient of sample_shift; on request
    """

@overload
def run(
    op: Literal["GroupNormalization"],
    X: _T,
    scale: _Array | None = None,
    bias: _Array | None = None,
    sample_scale: _T | None = None,
    sample_shift: _T | None = None,
    *,
    num_groups: int,
    epsilon: float = 1e-05,
    stash_type: Literal[1] = 1,
    activation: Literal["none", "relu", "leaky_relu", "silu", "relu6", "hardswish", "elu", "gelu"] = "none",
    activation_alpha: float = 0.01,
    outputs: _GroupNormalizationOutput | Iterable[_GroupNormalizationOutput] | None = None,
    out: Mapping[_GroupNormalizationOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.GroupNormalization[_T]:
    """Group normalization, with a scale and a shift of each sample and channel behind it, an activation, and the
    statistics that GroupNormGrad takes.

      X: input
      scale: scale of each channel; 1 if it is not given
      bias: bias of each channel; 0 if it is not given
      sample_scale: s of each sample and channel, behind the norm: y * (1 + s) + t
      sample_shift: t of each sample and channel
      num_groups: number of groups
      epsilon: added to the variance
      stash_type: ONNX's number of the statistics' type; 1 is float32
      activation: none, relu, leaky_relu (t where t > 0, else activation_alpha * t), silu (t / (1 + exp(-t))), relu6
          (t between 0 and 6), hardswish (t relu6(t + 3) / 6), elu (t where t > 0, else activation_alpha (exp(t) -
          1)) or gelu (t Phi(t))
      activation_alpha: the slope of leaky_relu below 0, and elu's factor there; finite, and not negative, as the
          output's sign has to be the input's. With the other activations it has no effect

    Returns
      Y: ((X - mean) * inv_std * scale + bias) * (1 + sample_scale) + sample_shift, and of that the activation
      mean: mean of each group; 0 of nothing; on request
      inv_std: 1 / sqrt(variance + epsilon) of each group; 0 of nothing; on request
    """

@overload
def run(
    op: Literal["InstanceNormalization"],
    input: _T,
    scale: _Array,
    B: _Array,
    *,
    epsilon: float = 1e-05,
    activation: Literal["none", "relu", "leaky_relu", "silu", "relu6", "hardswish", "elu", "gelu"] = "none",
    activation_alpha: float = 0.01,
    outputs: _InstanceNormalizationOutput | Iterable[_InstanceNormalizationOutput] | None = None,
    out: Mapping[_InstanceNormalizationOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.InstanceNormalization[_T]:
    """Instance normalization, group normalization with a group for each channel, with an activation and the statistics
    that GroupNormGrad takes.

      input: input
      scale: scale of each channel
      B: bias of each channel
      epsilon: added to the variance
      activation: none, relu, leaky_relu (t where t > 0, else activation_alpha * t), silu (t / (1 + exp(-t))), relu6
          (t between 0 and 6), hardswish (t relu6(t + 3) / 6), elu (t where t > 0, else activation_alpha (exp(t) -
          1)) or gelu (t Phi(t))
      activation_alpha: the slope of leaky_relu below 0, and elu's factor there; finite, and not negative, as the
          output's sign has to be the input's. With the other activations it has no effect

    Returns
      output: (input - mean) * inv_std * scale + B, and of that the activation
      mean: mean of each channel of each sample; 0 of nothing; on request
      inv_std: 1 / sqrt(variance + epsilon) of each channel of each sample; 0 of nothing; on request
    """

@overload
def run(
    op: Literal["InvertibleLayerNormalizationGrad"],
    Y_grad: _Array,
    Y: _V,
    scale: _V,
    bias: _V,
    inv_std_var: _Array,
    *,
    axis: int = -1,
    X_grad_type: Any = None,
    outputs: _InvertibleLayerNormalizationGradOutput | Iterable[_InvertibleLayerNormalizationGradOutput] | None = None,
    out: Mapping[_InvertibleLayerNormalizationGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.InvertibleLayerNormalizationGrad[_V]:
    """Gradient of layer normalization from its output; the normalized input is rebuilt as (Y - bias) / scale.

      Y_grad: gradient of the output
      Y: output of the forward pass
      scale: scale of each column; a zero cannot be inverted
      bias: bias of each column
      inv_std_var: 1 / sqrt(variance + epsilon) of each row
      axis: first normalized dimension
      X_grad_type: type of X_grad; without it the type of an `out` array for X_grad, else that of V

    Returns
      X_grad: gradient of the input of the forward pass
      scale_grad: gradient of scale
      bias_grad: gradient of the bias
    """

@overload
def run(
    op: Literal["IsAllFinite"],
    *input: _T,
    outputs: _IsAllFiniteOutput | Iterable[_IsAllFiniteOutput] | None = None,
    out: Mapping[_IsAllFiniteOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.IsAllFinite[_T]:
    """Whether all elements of all arrays are finite.

      input: the arrays

    Returns
      output: true: no element is an infinity or NaN
    """

@overload
def run(
    op: Literal["IsFinite"],
    X: _T,
    *,
    outputs: _IsFiniteOutput | Iterable[_IsFiniteOutput] | None = None,
    out: Mapping[_IsFiniteOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.IsFinite[_T]:
    """Whether each element is finite.

      X: the array

    Returns
      Y: true: neither an infinity nor NaN
    """

@overload
def run(
    op: Literal["LayerNormalization"],
    X: _T,
    Scale: _Array,
    B: _Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-05,
    stash_type: Literal[1] = 1,
    Y_type: Any = None,
    outputs: _LayerNormalizationOutput | Iterable[_LayerNormalizationOutput] | None = None,
    out: Mapping[_LayerNormalizationOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.LayerNormalization[_T]:
    """Layer normalization over the dimensions from `axis` on, with the statistics that its gradients take,
    LayerNormalizationGrad and InvertibleLayerNormalizationGrad.

      X: input
      Scale: scale of each column
      B: bias of each column; 0 if it is not given
      axis: first normalized dimension
      epsilon: added to the variance
      stash_type: ONNX's number of the statistics' type; 1 is float32
      Y_type: type of Y; without it the type of an `out` array for Y, else that of V

    Returns
      Y: (X - Mean) * InvStdDev * Scale + B
      Mean: mean of each row; 0 of a row of nothing
      InvStdDev: 1 / sqrt(variance + epsilon) of each row; 0 of a row of nothing
    """

@overload
def run(
    op: Literal["LayerNormalizationGrad"],
    Y_grad: _Array,
    X: _T,
    scale: _V,
    mean: _Array,
    inv_std_dev: _Array,
    residual_grad: _T | None = None,
    *,
    axis: int = -1,
    branch_grad_type: Any = None,
    outputs: _LayerNormalizationGradOutput | Iterable[_LayerNormalizationGradOutput] | None = None,
    out: Mapping[_LayerNormalizationGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.LayerNormalizationGrad[_T, _V]:
    """Gradient of layer normalization over the dimensions from `axis` on.

      Y_grad: gradient of the output
      X: input of the forward pass
      scale: scale of each column
      mean: mean of each row
      inv_std_dev: 1 / sqrt(variance + epsilon) of each row
      residual_grad: added to X_grad: the gradient that comes to X past the norm, as to the sum of a skip form
      axis: first normalized dimension
      branch_grad_type: type of branch_grad; without it the type of an `out` array for branch_grad, else that of T

    Returns
      X_grad: gradient of X
      scale_grad: gradient of scale
      bias_grad: gradient of the bias
      X_grad_sum: sum of X_grad over rows, unrounded: the gradient of a bias that is added to X; on request
      branch_grad: X_grad, rounded to S: the gradient of a skip form's input; on request
    """

@overload
def run(
    op: Literal["LeakyReluGrad"],
    dY: _T,
    Y: _T,
    *,
    alpha: float = 0.01,
    outputs: _LeakyReluGradOutput | Iterable[_LeakyReluGradOutput] | None = None,
    out: Mapping[_LeakyReluGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.LeakyReluGrad[_T]:
    """Gradient of LeakyReLU.

      dY: gradient of the output
      Y: output of the forward pass
      alpha: slope below 0

    Returns
      dX: gradient of the input
    """

@overload
def run(
    op: Literal["LinearCrossEntropy"],
    X: _T,
    W: _T,
    labels: _Array,
    B: _T | None = None,
    weight: _Array | None = None,
    dY: _U | None = None,
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
    empty: Literal["zero", "nan"] = "zero",
    logits_bytes: int = 1342177280,
    outputs: _LinearCrossEntropyOutput | Iterable[_LinearCrossEntropyOutput] | None = None,
    out: Mapping[_LinearCrossEntropyOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.LinearCrossEntropy[_U, _T]:
    """CrossEntropy of X W^T + B with the gradients of X, W and B; the logits are in memory in parts.

      X: input of the linear layer
      W: its weights
      labels: class of each row
      B: its bias
      weight: weight of each class
      dY: gradient of the loss; 1 if it is not given
      reduction: how the losses of all rows become one; mean divides by the sum of the weights of the labels that
          count
      ignore_index: label of rows that do not count, in [0, C) or not
      label_smoothing: share of the target that all classes have alike, at most 1
      z_loss: factor of logsumexp(logits)^2, which is added to the loss of each row that counts; mean divides it as
          the rest
      softcap: the logits are softcap tanh(X W^T / softcap); 0: without
      empty: mean loss where no row counts: zero as in ONNX Runtime, nan as in PyTorch
      logits_bytes: bytes of logits in memory at a time, or those of 1024 rows where these are more; all, where they
          are less than sums of dW over parts besides

    Returns
      loss: the loss; with reduction none, of each row
      dX: gradient of X
      dW: gradient of W; sums are float32, float64 for float64, and rounded once
      dB: gradient of B
    """

@overload
def run(
    op: Literal["LogSoftmaxGrad"],
    dY: _G,
    X: _G,
    *,
    axis: int = 1,
    dX_type: Any = None,
    outputs: _LogSoftmaxGradOutput | Iterable[_LogSoftmaxGradOutput] | None = None,
    out: Mapping[_LogSoftmaxGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.LogSoftmaxGrad[_G]:
    """Gradient of the logarithm of softmax as ONNX had it before version 13, over all dimensions from `axis` on.

      dY: gradient of the output
      X: logarithms of the probabilities: output of the forward pass
      axis: first dimension of a row
      dX_type: type of dX; without it the type of an `out` array for dX, else that of dY

    Returns
      dX: gradient of the input
    """

@overload
def run(
    op: Literal["LogSoftmaxGrad_13"],
    dY: _G,
    X: _G,
    *,
    axis: int = -1,
    dX_type: Any = None,
    outputs: _LogSoftmaxGrad_13Output | Iterable[_LogSoftmaxGrad_13Output] | None = None,
    out: Mapping[_LogSoftmaxGrad_13Output, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.LogSoftmaxGrad_13[_G]:
    """Gradient of the logarithm of softmax over one dimension.

      dY: gradient of the output
      X: logarithms of the probabilities: output of the forward pass
      axis: the dimension
      dX_type: type of dX; without it the type of an `out` array for dX, else that of dY

    Returns
      dX: gradient of the input
    """

@overload
def run(
    op: Literal["MaxPool"],
    X: _T,
    *,
    auto_pad: Literal["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"] = "NOTSET",
    ceil_mode: Literal[0, 1] = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    storage_order: Literal[0] = 0,
    index_base: Literal["tensor", "plane"] = "tensor",
    indices_type: Any = None,
    outputs: _MaxPoolOutput | Iterable[_MaxPoolOutput] | None = None,
    out: Mapping[_MaxPoolOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.MaxPool[_T]:
    """Max pooling in one to three dimensions, with the indices that its gradient takes.

      X: input
      auto_pad: how pads are found
      ceil_mode: 1: rounds the number of outputs up; each window still begins in the input or before it
      dilations: distance between the elements of a window
      kernel_shape: elements of a window
      pads: elements before each spatial dimension then after each; 0 by default
      strides: step of the window
      storage_order: Indices count in row-major order
      index_base: what Indices of int64 count in: tensor, all of X, as ONNX has it; plane, one channel of one
          sample, as PyTorch has it. Those of uint8 count the elements of the window
      indices_type: type of Indices; without it that of an `out` array, else int64

    Returns
      Y: the largest element of each window
      Indices: where each of these was
    """

@overload
def run(
    op: Literal["MaxPoolGrad"],
    dY: _T,
    Indices: _Array,
    *,
    input_size: Sequence[int] | None = None,
    auto_pad: Literal["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"] = "NOTSET",
    ceil_mode: Literal[0, 1] = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    storage_order: Literal[0] = 0,
    index_base: Literal["tensor", "plane"] = "tensor",
    outputs: _MaxPoolGradOutput | Iterable[_MaxPoolGradOutput] | None = None,
    out: Mapping[_MaxPoolGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.MaxPoolGrad[_T]:
    """Gradient of max pooling in one to three dimensions, from the indices of its forward pass.

      dY: gradient of the output
      Indices: where the largest element of each window was
      input_size: spatial dimensions of the input; without it those of an `out` array
      auto_pad: how pads are found
      ceil_mode: 1: rounds the number of outputs up; each window still begins in the input or before it
      dilations: distance between the elements of a window
      kernel_shape: elements of a window
      pads: elements before each spatial dimension then after each; 0 by default
      strides: step of the window
      storage_order: Indices count in row-major order
      index_base: what Indices of int64 count in: tensor, all of X, as ONNX has it; plane, one channel of one
          sample, as PyTorch has it. Those of uint8 count the elements of the window

    Returns
      dX: gradient of the input
    """

@overload
def run(
    op: Literal["MixedPrecisionScale"],
    S: _Array | float,
    *X: _SrcT,
    to: Any = None,
    fuse_outputs: Literal[0, 1] = 0,
    outputs: _MixedPrecisionScaleOutput | Iterable[_MixedPrecisionScaleOutput] | None = None,
    out: Mapping[_MixedPrecisionScaleOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.MixedPrecisionScale[_SrcT]:
    """Products of a number and any number of arrays, in another type.

      S: the number
      X: the arrays
      to: type of Y; without it that of an `out` array, else that of X
      fuse_outputs: 1: the products one behind the other in a single array

    Returns
      Y: S X of each array; fused, all in one
    """

@overload
def run(
    op: Literal["PadAndUnflatten"],
    input: _T,
    indices: _Array,
    unflatten_dims: _Array | Sequence[int],
    *,
    outputs: _PadAndUnflattenOutput | Iterable[_PadAndUnflattenOutput] | None = None,
    out: Mapping[_PadAndUnflattenOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.PadAndUnflatten[_T]:
    """Rows put where indices say, between zeros; the gradient of FlattenAndUnpad.

      input: rows
      indices: the row of the padded array, with its first two dimensions as one
      unflatten_dims: the first two dimensions of the padded array

    Returns
      output: the padded array; rows with equal indices are added
    """

@overload
def run(
    op: Literal["QuickGeluGrad"],
    dY: _T,
    X: _T,
    *,
    alpha: float = 1.702,
    outputs: _QuickGeluGradOutput | Iterable[_QuickGeluGradOutput] | None = None,
    out: Mapping[_QuickGeluGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.QuickGeluGrad[_T]:
    """Gradient of X sigmoid(alpha X); with alpha = 1 that of SiLU.

      dY: gradient of the output
      X: input of the forward pass
      alpha: factor of the sigmoid's argument

    Returns
      dX: gradient of the input
    """

@overload
def run(
    op: Literal["ReduceAllL2"],
    *X: _TIn,
    Y_type: Any = None,
    outputs: _ReduceAllL2Output | Iterable[_ReduceAllL2Output] | None = None,
    out: Mapping[_ReduceAllL2Output, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.ReduceAllL2[_TIn]:
    """Euclidean norm of all elements of all arrays.

      X: the arrays
      Y_type: type of Y; without it that of an `out` array, else that of X

    Returns
      Y: the norm
    """

@overload
def run(
    op: Literal["ReluGrad"],
    dY: _T,
    X: _T,
    *,
    outputs: _ReluGradOutput | Iterable[_ReluGradOutput] | None = None,
    out: Mapping[_ReluGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.ReluGrad[_T]:
    """Gradient of ReLU.

      dY: gradient of the output
      X: input of the forward pass

    Returns
      dX: gradient of the input
    """

@overload
def run(
    op: Literal["ResizeGrad"],
    dY: _T,
    X: _T | None = None,
    roi: _Array | Sequence[float] | None = None,
    scales: _Array | Sequence[float] | None = None,
    *,
    input_size: Sequence[int] | None = None,
    antialias: Literal[0, 1] = 0,
    coordinate_transformation_mode: Literal[
        "half_pixel",
        "half_pixel_symmetric",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
        "tf_half_pixel_for_nn",
        "tf_crop_and_resize",
    ] = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: Literal[0, 1] = 0,
    extrapolation_value: float = 0.0,
    mode: Literal["nearest", "linear", "cubic", "lanczos"] = "nearest",
    nearest_mode: Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"] = "round_prefer_floor",
    source_steps: Sequence[float] | None = None,
    outputs: _ResizeGradOutput | Iterable[_ResizeGradOutput] | None = None,
    out: Mapping[_ResizeGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.ResizeGrad[_T]:
    """Gradient of resizing, by nearest elements, linear, cubic or Lanczos, in one to three dimensions.

      dY: gradient of the output
      X: input of the forward pass, for its shape alone
      roi: where the region begins along each dimension, then where it ends, in parts of the input; for
          tf_crop_and_resize
      scales: outputs for each input along each dimension; without it dY's sizes over dX's
      input_size: spatial dimensions of the input; without it those of an `out` array
      antialias: 1: linear and cubic filters are as wide in outputs as in inputs, where there are fewer outputs than
          inputs
      coordinate_transformation_mode: where in the input an output is
      cubic_coeff_a: coefficient of the cubic
      exclude_outside: 1: elements outside the input have no weight in a cubic or with antialias, and those inside
          share it
      extrapolation_value: accepted for compatibility; a constant has no gradient
      mode: how an output is made of the elements around it; lanczos with antialias alone
      nearest_mode: which element is the nearest
      source_steps: distance in the input of neighbouring outputs along each spatial dimension: multiplied by, in
          place of a division by scales

    Returns
      dX: gradient of the input
    """

@overload
def run(
    op: Literal["RotaryEmbedding"],
    X: _T,
    cos_cache: _Array,
    sin_cache: _Array,
    position_ids: _Array | None = None,
    *,
    interleaved: Literal[0, 1] = 0,
    rotary_embedding_dim: int = 0,
    outputs: _RotaryEmbeddingOutput | Iterable[_RotaryEmbeddingOutput] | None = None,
    out: Mapping[_RotaryEmbeddingOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.RotaryEmbedding[_T]:
    """Rotary position embedding of queries or keys; pairs of elements are turned by angles that follow from the
    position.

      X: queries or keys
      cos_cache: cosines
      sin_cache: sines
      position_ids: line of the cache for each place
      interleaved: 1: pairs are X[2k] and X[2k+1]; 0: X[k] and X[k + half]
      rotary_embedding_dim: elements of a row that are turned, twice half; 0: as the cache has them

    Returns
      Y: x1 cos - x2 sin and x2 cos + x1 sin of each pair; elements behind the pairs as they are
    """

@overload
def run(
    op: Literal["RotaryEmbeddingGrad"],
    dY: _T,
    cos_cache: _Array,
    sin_cache: _Array,
    position_ids: _Array | None = None,
    *,
    interleaved: Literal[0, 1] = 0,
    rotary_embedding_dim: int = 0,
    outputs: _RotaryEmbeddingGradOutput | Iterable[_RotaryEmbeddingGradOutput] | None = None,
    out: Mapping[_RotaryEmbeddingGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.RotaryEmbeddingGrad[_T]:
    """Gradient of RotaryEmbedding by X; each pair is turned back.

      dY: gradient of the output
      cos_cache: cosines
      sin_cache: sines
      position_ids: line of the cache for each place
      interleaved: 1: pairs are X[2k] and X[2k+1]; 0: X[k] and X[k + half]
      rotary_embedding_dim: elements of a row that are turned, twice half; 0: as the cache has them

    Returns
      dX: dy1 cos + dy2 sin and dy2 cos - dy1 sin of each pair; elements behind the pairs as they are
    """

@overload
def run(
    op: Literal["Scale"],
    input: _T,
    scale: _Array | float,
    *,
    scale_down: Literal[0, 1] = 0,
    outputs: _ScaleOutput | Iterable[_ScaleOutput] | None = None,
    out: Mapping[_ScaleOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.Scale[_T]:
    """Product or quotient of an array and a number.

      input: the array
      scale: the number
      scale_down: 1: divide

    Returns
      output: input scale; or input / scale
    """

@overload
def run(
    op: Literal["ScaledSum"],
    input_0: _T,
    input_1: _T,
    input_2: _T | None = None,
    *,
    scale_0: float,
    scale_1: float,
    scale_2: float | None = None,
    outputs: _ScaledSumOutput | Iterable[_ScaledSumOutput] | None = None,
    out: Mapping[_ScaledSumOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.ScaledSum[_T]:
    """Sum of two or three arrays, each times a number.

      input_0: first
      input_1: second
      input_2: third; with it scale_2
      scale_0: first factor
      scale_1: second factor
      scale_2: third factor

    Returns
      output: the sum
    """

@overload
def run(
    op: Literal["SigmoidGrad"],
    dY: _T,
    Y: _T,
    *,
    outputs: _SigmoidGradOutput | Iterable[_SigmoidGradOutput] | None = None,
    out: Mapping[_SigmoidGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.SigmoidGrad[_T]:
    """Gradient of the sigmoid.

      dY: gradient of the output
      Y: output of the forward pass

    Returns
      dX: gradient of the input
    """

@overload
def run(
    op: Literal["SimplifiedLayerNormalization"],
    X: _T,
    scale: _Array,
    *,
    axis: int = -1,
    epsilon: float = 1e-05,
    stash_type: Literal[1] = 1,
    Y_type: Any = None,
    outputs: _SimplifiedLayerNormalizationOutput | Iterable[_SimplifiedLayerNormalizationOutput] | None = None,
    out: Mapping[_SimplifiedLayerNormalizationOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.SimplifiedLayerNormalization[_T]:
    """Root-mean-square normalization (RMSNorm) over the dimensions from `axis` on, with the statistic that
    SimplifiedLayerNormalizationGrad takes.

      X: input
      scale: scale of each column
      axis: first normalized dimension
      epsilon: added to the variance
      stash_type: ONNX's number of the statistics' type; 1 is float32
      Y_type: type of Y; without it the type of an `out` array for Y, else that of V

    Returns
      Y: X * inv_std_var * scale
      inv_std_var: 1 / sqrt(mean of squares + epsilon) of each row; 0 of a row of nothing
    """

@overload
def run(
    op: Literal["SimplifiedLayerNormalizationGrad"],
    Y_grad: _Array,
    X: _T,
    scale: _V,
    inv_std_var: _Array,
    residual_grad: _T | None = None,
    *,
    axis: int = -1,
    branch_grad_type: Any = None,
    outputs: _SimplifiedLayerNormalizationGradOutput | Iterable[_SimplifiedLayerNormalizationGradOutput] | None = None,
    out: Mapping[_SimplifiedLayerNormalizationGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.SimplifiedLayerNormalizationGrad[_T, _V]:
    """Gradient of root-mean-square normalization (RMSNorm) over the dimensions from `axis` on.

      Y_grad: gradient of the output
      X: input of the forward pass
      scale: scale of each column
      inv_std_var: 1 / sqrt(mean of squares + epsilon) of each row
      residual_grad: added to X_grad: the gradient that comes to X past the norm, as to the sum of a skip form
      axis: first normalized dimension
      branch_grad_type: type of branch_grad; without it the type of an `out` array for branch_grad, else that of T

    Returns
      X_grad: gradient of X
      scale_grad: gradient of scale
      X_grad_sum: sum of X_grad over rows, unrounded: the gradient of a bias that is added to X; on request
      branch_grad: X_grad, rounded to S: the gradient of a skip form's input; on request
    """

@overload
def run(
    op: Literal["SkipGroupNorm"],
    X: _T,
    gamma: _Array,
    beta: _Array,
    skip: _T,
    bias: _T | None = None,
    *,
    groups: int,
    activation: Literal[0, 1],
    channels_last: Literal[0, 1] = 1,
    epsilon: float = 1e-05,
    outputs: _SkipGroupNormOutput | Iterable[_SkipGroupNormOutput] | None = None,
    out: Mapping[_SkipGroupNormOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.SkipGroupNorm[_T]:
    """Group normalization, and SiLU of it, of X + skip + bias, a sum that is given out, too; its gradient is
    GroupNormGrad, whose X is that sum.

      X: input
      gamma: scale of each channel
      beta: bias of each channel
      skip: what is added to X: all of it, or a number for each sample and channel (channels_last 0 takes N C or
          all)
      bias: what is added to each channel of X
      groups: number of groups
      activation: 0: none, 1: silu
      channels_last: 1: the last axis has the channels; 0: the second axis
      epsilon: added to the variance

    Returns
      Y: (S - mean) * inv_std * gamma + beta, and of that the activation
      S: X + skip + bias, rounded to T; the rest is of this rounded sum
      mean: mean of each group; 0 of nothing; on request
      inv_std: 1 / sqrt(variance + epsilon) of each group; 0 of nothing; on request
    """

@overload
def run(
    op: Literal["SkipLayerNormalization"],
    input: _S,
    skip: _T,
    gamma: _Array,
    beta: _Array | None = None,
    bias: _Array | None = None,
    *,
    epsilon: float = 1e-12,
    output_type: Any = None,
    outputs: _SkipLayerNormalizationOutput | Iterable[_SkipLayerNormalizationOutput] | None = None,
    out: Mapping[_SkipLayerNormalizationOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.SkipLayerNormalization[_S, _T]:
    """Layer normalization over the last dimension of `input` + `skip` + `bias`, a sum that is given out, too; its
    gradient is LayerNormalizationGrad, whose X is that sum.

      input: data
      skip: what is added to it: the residual
      gamma: scale of each column
      beta: bias of each column of the output; 0 if it is not given
      bias: what is added to each column of the input; 0 if it is not given
      epsilon: added to the variance
      output_type: type of output; without it the type of an `out` array for output, else that of T

    Returns
      output: (sum - mean) * inv_std_var * gamma + beta
      mean: mean of each row of the sum; 0 of a row of nothing
      inv_std_var: 1 / sqrt(variance + epsilon) of each row of the sum; 0 of a row of nothing
      input_skip_bias_sum: input + skip + bias, rounded to T; the rest is of this rounded sum
    """

@overload
def run(
    op: Literal["SkipSimplifiedLayerNormalization"],
    input: _S,
    skip: _T,
    gamma: _Array,
    bias: _Array | None = None,
    *,
    epsilon: float = 1e-12,
    output_type: Any = None,
    outputs: _SkipSimplifiedLayerNormalizationOutput | Iterable[_SkipSimplifiedLayerNormalizationOutput] | None = None,
    out: Mapping[_SkipSimplifiedLayerNormalizationOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.SkipSimplifiedLayerNormalization[_S, _T]:
    """Root-mean-square normalization (RMSNorm) over the last dimension of `input` + `skip` + `bias`, a sum that is
    given out, too; its gradient is SimplifiedLayerNormalizationGrad, whose X is that sum.

      input: data
      skip: what is added to it: the residual
      gamma: scale of each column
      bias: what is added to each column of the input; 0 if it is not given
      epsilon: added to the variance
      output_type: type of output; without it the type of an `out` array for output, else that of T

    Returns
      output: sum * inv_std_var * gamma
      inv_std_var: 1 / sqrt(mean of squares + epsilon) of each row of the sum; 0 of a row of nothing
      input_skip_bias_sum: input + skip + bias, rounded to T; the rest is of this rounded sum
    """

@overload
def run(
    op: Literal["SliceGrad"],
    dY: _T,
    shape: _Array | Sequence[int],
    starts: _Array | Sequence[int],
    ends: _Array | Sequence[int],
    axes: _Array | Sequence[int] | None = None,
    steps: _Array | Sequence[int] | None = None,
    *,
    outputs: _SliceGradOutput | Iterable[_SliceGradOutput] | None = None,
    out: Mapping[_SliceGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.SliceGrad[_T]:
    """Gradient of Slice.

      dY: gradient of the slice
      shape: shape of the data
      starts: first element along each of `axes`, from either end
      ends: end along each of `axes`, which is no part of the slice
      axes: the dimensions, from either end; without it the first ones
      steps: steps, not 0; negative ones go backwards. Without it all are 1

    Returns
      dX: gradient of the data
    """

@overload
def run(
    op: Literal["SoftmaxCrossEntropy"],
    logits: _T,
    label: _T,
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    outputs: _SoftmaxCrossEntropyOutput | Iterable[_SoftmaxCrossEntropyOutput] | None = None,
    out: Mapping[_SoftmaxCrossEntropyOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.SoftmaxCrossEntropy[_T]:
    """Cross entropy of softmax over the last dimension and probabilities, as one-hot labels are.

      logits: unscaled logarithms of probabilities
      label: probability of each class
      reduction: how the losses of all rows become one; mean divides by the number of rows

    Returns
      Y: the loss; with reduction none, of each row
      log_prob: logarithms of the probabilities
    """

@overload
def run(
    op: Literal["SoftmaxCrossEntropyGrad"],
    dY: _T,
    log_prob: _T,
    label: _T,
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    outputs: _SoftmaxCrossEntropyGradOutput | Iterable[_SoftmaxCrossEntropyGradOutput] | None = None,
    out: Mapping[_SoftmaxCrossEntropyGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.SoftmaxCrossEntropyGrad[_T]:
    """Gradient of SoftmaxCrossEntropy by the logits, for labels that add up to 1.

      dY: gradient of the loss
      log_prob: output of the forward pass
      label: probability of each class
      reduction: how the losses of all rows become one; mean divides by the number of rows

    Returns
      d_logits: gradient of the scores
    """

@overload
def run(
    op: Literal["SoftmaxCrossEntropyLoss"],
    scores: _T,
    labels: _Array,
    weights: _T | None = None,
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    ignore_index: int | None = None,
    outputs: _SoftmaxCrossEntropyLossOutput | Iterable[_SoftmaxCrossEntropyLossOutput] | None = None,
    out: Mapping[_SoftmaxCrossEntropyLossOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.SoftmaxCrossEntropyLoss[_T]:
    """Cross entropy of softmax and the labels of classes.

      scores: logits: unscaled logarithms of probabilities
      labels: class of each row
      weights: weight of each class
      reduction: how the losses of all rows become one; mean divides by the sum of the weights of the labels that
          count
      ignore_index: label of rows that do not count, in [0, C) or not

    Returns
      output: the loss; with reduction none, of each row
      log_prob: logarithms of the probabilities
    """

@overload
def run(
    op: Literal["SoftmaxCrossEntropyLossGrad"],
    dY: _T,
    log_prob: _T,
    label: _Array,
    weight: _T | None = None,
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    ignore_index: int | None = None,
    outputs: _SoftmaxCrossEntropyLossGradOutput | Iterable[_SoftmaxCrossEntropyLossGradOutput] | None = None,
    out: Mapping[_SoftmaxCrossEntropyLossGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.SoftmaxCrossEntropyLossGrad[_T]:
    """Gradient of SoftmaxCrossEntropyLoss; 0 where no label counts.

      dY: gradient of the loss
      log_prob: output of the forward pass
      label: class of each row
      weight: weight of each class
      reduction: how the losses of all rows become one; mean divides by the sum of the weights of the labels that
          count
      ignore_index: label of rows that do not count, in [0, C) or not

    Returns
      d_logits: gradient of the scores
    """

@overload
def run(
    op: Literal["SoftmaxCrossEntropyLossInternal"],
    scores: _T,
    labels: _Array,
    weights: _T | None = None,
    ignore_index: _Array | int | None = None,
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    output_type: Any = None,
    outputs: _SoftmaxCrossEntropyLossInternalOutput | Iterable[_SoftmaxCrossEntropyLossInternalOutput] | None = None,
    out: Mapping[_SoftmaxCrossEntropyLossInternalOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.SoftmaxCrossEntropyLossInternal[_T]:
    """SoftmaxCrossEntropyLoss whose outputs may have another type than its scores, and whose ignore_index is an input.

      scores: logits: unscaled logarithms of probabilities
      labels: class of each row
      weights: weight of each class
      ignore_index: label of rows that do not count, in [0, C) or not
      reduction: how the losses of all rows become one; mean divides by the sum of the weights of the labels that
          count
      output_type: type of the outputs; without it that of an `out` array, else that of the scores

    Returns
      output: the loss; with reduction none, of each row
      log_prob: logarithms of the probabilities
    """

@overload
def run(
    op: Literal["SoftmaxCrossEntropyLossInternalGrad"],
    dY: _Array,
    log_prob: _Array,
    label: _Array,
    weight: _Array | None = None,
    ignore_index: _Array | int | None = None,
    bias: _TOut | None = None,
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    output_type: Any = None,
    outputs: _SoftmaxCrossEntropyLossInternalGradOutput
    | Iterable[_SoftmaxCrossEntropyLossInternalGradOutput]
    | None = None,
    out: Mapping[_SoftmaxCrossEntropyLossInternalGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.SoftmaxCrossEntropyLossInternalGrad[_TOut]:
    """Gradient of SoftmaxCrossEntropyLossInternal; 0 where no label counts. A bias is added to it.

      dY: gradient of the loss
      log_prob: output of the forward pass
      label: class of each row
      weight: weight of each class
      ignore_index: label of rows that do not count, in [0, C) or not
      bias: added to the gradient
      reduction: how the losses of all rows become one; mean divides by the sum of the weights of the labels that
          count
      output_type: type of d_logits; without it that of the bias or of an `out` array, else that of log_prob

    Returns
      d_logits: gradient of the scores
    """

@overload
def run(
    op: Literal["SoftmaxDropoutGrad"],
    dy: _T,
    mask: _Array,
    softmax_y: _T,
    ratio: _Array | float | None = None,
    *,
    axis: int,
    outputs: _SoftmaxDropoutGradOutput | Iterable[_SoftmaxDropoutGradOutput] | None = None,
    out: Mapping[_SoftmaxDropoutGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.SoftmaxDropoutGrad[_T]:
    """Gradient of softmax over all dimensions from `axis` on with dropout behind it.

      dy: gradient of the output of dropout
      mask: what dropout kept
      softmax_y: output of softmax
      ratio: share that was dropped, in [0, 1)
      axis: first dimension of a row

    Returns
      dx: gradient of the input of softmax
    """

@overload
def run(
    op: Literal["SoftmaxGrad"],
    dY: _G,
    Y: _G,
    *,
    axis: int = 1,
    dX_type: Any = None,
    outputs: _SoftmaxGradOutput | Iterable[_SoftmaxGradOutput] | None = None,
    out: Mapping[_SoftmaxGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.SoftmaxGrad[_G]:
    """Gradient of softmax as ONNX had it before version 13, over all dimensions from `axis` on.

      dY: gradient of the output
      Y: probabilities: output of the forward pass
      axis: first dimension of a row
      dX_type: type of dX; without it the type of an `out` array for dX, else that of dY

    Returns
      dX: gradient of the input
    """

@overload
def run(
    op: Literal["SoftmaxGrad_13"],
    dY: _G,
    Y: _G,
    *,
    axis: int = -1,
    dX_type: Any = None,
    outputs: _SoftmaxGrad_13Output | Iterable[_SoftmaxGrad_13Output] | None = None,
    out: Mapping[_SoftmaxGrad_13Output, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.SoftmaxGrad_13[_G]:
    """Gradient of softmax over one dimension.

      dY: gradient of the output
      Y: probabilities: output of the forward pass
      axis: the dimension
      dX_type: type of dX; without it the type of an `out` array for dX, else that of dY

    Returns
      dX: gradient of the input
    """

@overload
def run(
    op: Literal["SparseSoftmaxCrossEntropy"],
    logits: _T,
    label: _Array,
    weight: _T | None = None,
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    outputs: _SparseSoftmaxCrossEntropyOutput | Iterable[_SparseSoftmaxCrossEntropyOutput] | None = None,
    out: Mapping[_SparseSoftmaxCrossEntropyOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.SparseSoftmaxCrossEntropy[_T]:
    """Cross entropy of softmax over the last dimension and the labels of classes, with a weight for each row.

      logits: unscaled logarithms of probabilities
      label: class of each row
      weight: weight of each row
      reduction: how the losses of all rows become one; mean divides by the sum of the weights, or the number of
          rows

    Returns
      Y: the loss; with reduction none, of each row
      log_prob: logarithms of the probabilities
    """

@overload
def run(
    op: Literal["SparseSoftmaxCrossEntropyGrad"],
    dY: _T,
    log_prob: _T,
    label: _Array,
    weight: _T | None = None,
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    outputs: _SparseSoftmaxCrossEntropyGradOutput | Iterable[_SparseSoftmaxCrossEntropyGradOutput] | None = None,
    out: Mapping[_SparseSoftmaxCrossEntropyGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.SparseSoftmaxCrossEntropyGrad[_T]:
    """Gradient of SparseSoftmaxCrossEntropy; 0 where all weights are.

      dY: gradient of the loss
      log_prob: output of the forward pass
      label: class of each row
      weight: weight of each row
      reduction: how the losses of all rows become one; mean divides by the sum of the weights, or the number of
          rows

    Returns
      d_logits: gradient of the scores
    """

@overload
def run(
    op: Literal["SwiGLU"],
    A: _T,
    B: _T,
    *,
    outputs: _SwiGLUOutput | Iterable[_SwiGLUOutput] | None = None,
    out: Mapping[_SwiGLUOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.SwiGLU[_T]:
    """SiLU of A, times B.

      A: the gate
      B: what it lets through

    Returns
      Y: the product
    """

@overload
def run(
    op: Literal["SwiGLUGrad"],
    dY: _T,
    A: _T,
    B: _T,
    *,
    outputs: _SwiGLUGradOutput | Iterable[_SwiGLUGradOutput] | None = None,
    out: Mapping[_SwiGLUGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.SwiGLUGrad[_T]:
    """Gradients of SwiGLU, and the product again.

      dY: gradient of the product
      A: the gate
      B: what it lets through

    Returns
      dA: gradient of A
      dB: gradient of B
      Y: the product; on request
    """

@overload
def run(
    op: Literal["TanhGrad"],
    dY: _T,
    Y: _T,
    *,
    outputs: _TanhGradOutput | Iterable[_TanhGradOutput] | None = None,
    out: Mapping[_TanhGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _results.TanhGrad[_T]:
    """Gradient of the hyperbolic tangent.

      dY: gradient of the output
      Y: output of the forward pass

    Returns
      dX: gradient of the input
    """

@overload
def run(
    op: _Name,
    *inputs: _Array,
    outputs: str | Iterable[str] | None = None,
    out: Mapping[str, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["AdaptiveAveragePoolGrad"], input: _AdaptiveAveragePoolGrad_takes_dY, /, *inputs: Any, **named: Any
) -> Any: ...
@overload
def run(op: Literal["AveragePoolGrad"], input: _AveragePoolGrad_takes_dY, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(
    op: Literal["BatchNormalization"],
    input: _BatchNormalization_takes_X_scale_B_and_perhaps_input_mean_input_var_Z,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["BatchNormalizationFromStatistics"],
    input: _BatchNormalizationFromStatistics_takes_X_scale_B_saved_mean_saved_inv_std,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["BatchNormalizationGrad"],
    input: _BatchNormalizationGrad_takes_dY_X_Scale_saved_mean_saved_inv_std_and_perhaps_B_Y_dY2,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["BatchNormalizationGradFromSums"],
    input: _BatchNormalizationGradFromSums_takes_dY_X_Scale_saved_mean_saved_inv_std_dScale_dBias_and_perhaps_counts,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["BatchNormalizationGradSums"],
    input: _BatchNormalizationGradSums_takes_dY_X_saved_mean_saved_inv_std,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["BatchNormalizationMergeStatistics"],
    input: _BatchNormalizationMergeStatistics_takes_part_statistics_and_perhaps_input_mean_input_var,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["BatchNormalizationStatistics"],
    input: _BatchNormalizationStatistics_takes_X,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(op: Literal["BatchScale"], input: _BatchScale_takes_input, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(op: Literal["BiasFastGelu"], input: _BiasFastGelu_takes_A_B, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(
    op: Literal["BiasFastGeluGrad_dX"], input: _BiasFastGeluGrad_dX_takes_dY_X_B, /, *inputs: Any, **named: Any
) -> Any: ...
@overload
def run(op: Literal["BiasGelu"], input: _BiasGelu_takes_A_B, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(op: Literal["BiasGeluGrad_dX"], input: _BiasGeluGrad_dX_takes_dY_X_B, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(
    op: Literal["BitmaskDropoutGrad"],
    input: _BitmaskDropoutGrad_takes_dy_mask_and_perhaps_ratio_training_mode,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(op: Literal["Conv"], input: _Conv_takes_X_W_and_perhaps_B, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(op: Literal["ConvGrad"], input: _ConvGrad_takes_dY_X_W, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(
    op: Literal["ConvTranspose"], input: _ConvTranspose_takes_X_W_and_perhaps_B, /, *inputs: Any, **named: Any
) -> Any: ...
@overload
def run(
    op: Literal["ConvTransposeGrad"], input: _ConvTransposeGrad_takes_dY_X_W, /, *inputs: Any, **named: Any
) -> Any: ...
@overload
def run(
    op: Literal["CrossEntropy"],
    input: _CrossEntropy_takes_X_and_perhaps_labels_weight_probabilities_dY,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(op: Literal["DivGrad"], input: _DivGrad_takes_dY_A_B, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(
    op: Literal["DmlActivationReluGrad"],
    input: _DmlActivationReluGrad_takes_Input_InputGradient,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["DmlAveragePoolingGrad"],
    input: _DmlAveragePoolingGrad_takes_InputGradient,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["DmlBatchNormalizationGrad"],
    input: _DmlBatchNormalizationGrad_takes_Input_InputGradient_Mean_Variance_Scale,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["DmlBatchNormalizationTrainingGrad"],
    input: _DmlBatchNormalizationTrainingGrad_takes_Input_InputGradient_Mean_Variance_Scale,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["DmlElementWiseClipGrad"],
    input: _DmlElementWiseClipGrad_takes_Input_InputGradient,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["DmlElementWiseClipGrad1"],
    input: _DmlElementWiseClipGrad1_takes_Input_InputGradient,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["DmlLocalResponseNormalizationGrad"],
    input: _DmlLocalResponseNormalizationGrad_takes_Input_InputGradient,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["DmlMaxPoolingGrad"], input: _DmlMaxPoolingGrad_takes_Input_InputGradient, /, *inputs: Any, **named: Any
) -> Any: ...
@overload
def run(
    op: Literal["DmlResampleGrad"], input: _DmlResampleGrad_takes_InputGradient, /, *inputs: Any, **named: Any
) -> Any: ...
@overload
def run(
    op: Literal["DmlResampleGrad1"], input: _DmlResampleGrad1_takes_InputGradient, /, *inputs: Any, **named: Any
) -> Any: ...
@overload
def run(
    op: Literal["DmlRoiAlignGrad"],
    input: _DmlRoiAlignGrad_takes_InputGradient_ROI_BatchIndices_and_perhaps_Input,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["DmlSliceGrad"], input: _DmlSliceGrad_takes_InputGradient, /, *inputs: Any, **named: Any
) -> Any: ...
@overload
def run(
    op: Literal["DropoutGrad"],
    input: _DropoutGrad_takes_dy_mask_and_perhaps_ratio_training_mode,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["FakeQuantGrad"], input: _FakeQuantGrad_takes_dY_gradient_mask, /, *inputs: Any, **named: Any
) -> Any: ...
@overload
def run(op: Literal["FastGeluGrad"], input: _FastGeluGrad_takes_dY_X, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(
    op: Literal["FlattenAndUnpad"], input: _FlattenAndUnpad_takes_input_indices, /, *inputs: Any, **named: Any
) -> Any: ...
@overload
def run(
    op: Literal["GatherElementsGrad"], input: _GatherElementsGrad_takes_dY_shape_indices, /, *inputs: Any, **named: Any
) -> Any: ...
@overload
def run(
    op: Literal["GatherGrad"],
    input: _GatherGrad_takes_shape_indices_dY_and_perhaps_accumulator,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["GatherNDGrad"], input: _GatherNDGrad_takes_shape_indices_update, /, *inputs: Any, **named: Any
) -> Any: ...
@overload
def run(op: Literal["GeGLU"], input: _GeGLU_takes_A_B, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(op: Literal["GeGLUGrad"], input: _GeGLUGrad_takes_dY_A_B, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(op: Literal["GeluGrad"], input: _GeluGrad_takes_dY_X, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(
    op: Literal["GlobalAveragePoolGrad"], input: _GlobalAveragePoolGrad_takes_dY, /, *inputs: Any, **named: Any
) -> Any: ...
@overload
def run(op: Literal["GroupNorm"], input: _GroupNorm_takes_X_gamma_beta, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(
    op: Literal["GroupNormGrad"],
    input: _GroupNormGrad_takes_dY_X_mean_inv_std_and_perhaps_gamma_beta_sample_scale_sample_shift_residual_grad,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["GroupNormalization"],
    input: _GroupNormalization_takes_X_and_perhaps_scale_bias_sample_scale_sample_shift,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["InstanceNormalization"],
    input: _InstanceNormalization_takes_input_scale_B,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["InvertibleLayerNormalizationGrad"],
    input: _InvertibleLayerNormalizationGrad_takes_Y_grad_Y_scale_bias_inv_std_var,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(op: Literal["IsAllFinite"], input: _IsAllFinite_takes_input, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(op: Literal["IsFinite"], input: _IsFinite_takes_X, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(
    op: Literal["LayerNormalization"],
    input: _LayerNormalization_takes_X_Scale_and_perhaps_B,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["LayerNormalizationGrad"],
    input: _LayerNormalizationGrad_takes_Y_grad_X_scale_mean_inv_std_dev_and_perhaps_residual_grad,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(op: Literal["LeakyReluGrad"], input: _LeakyReluGrad_takes_dY_Y, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(
    op: Literal["LinearCrossEntropy"],
    input: _LinearCrossEntropy_takes_X_W_labels_and_perhaps_B_weight_dY,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(op: Literal["LogSoftmaxGrad"], input: _LogSoftmaxGrad_takes_dY_X, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(
    op: Literal["LogSoftmaxGrad_13"], input: _LogSoftmaxGrad_13_takes_dY_X, /, *inputs: Any, **named: Any
) -> Any: ...
@overload
def run(op: Literal["MaxPool"], input: _MaxPool_takes_X, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(op: Literal["MaxPoolGrad"], input: _MaxPoolGrad_takes_dY_Indices, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(
    op: Literal["MixedPrecisionScale"], input: _MixedPrecisionScale_takes_S_X, /, *inputs: Any, **named: Any
) -> Any: ...
@overload
def run(
    op: Literal["PadAndUnflatten"],
    input: _PadAndUnflatten_takes_input_indices_unflatten_dims,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(op: Literal["QuickGeluGrad"], input: _QuickGeluGrad_takes_dY_X, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(op: Literal["ReduceAllL2"], input: _ReduceAllL2_takes_X, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(op: Literal["ReluGrad"], input: _ReluGrad_takes_dY_X, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(
    op: Literal["ResizeGrad"], input: _ResizeGrad_takes_dY_and_perhaps_X_roi_scales, /, *inputs: Any, **named: Any
) -> Any: ...
@overload
def run(
    op: Literal["RotaryEmbedding"],
    input: _RotaryEmbedding_takes_X_cos_cache_sin_cache_and_perhaps_position_ids,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["RotaryEmbeddingGrad"],
    input: _RotaryEmbeddingGrad_takes_dY_cos_cache_sin_cache_and_perhaps_position_ids,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(op: Literal["Scale"], input: _Scale_takes_input_scale, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(
    op: Literal["ScaledSum"], input: _ScaledSum_takes_input_0_input_1_and_perhaps_input_2, /, *inputs: Any, **named: Any
) -> Any: ...
@overload
def run(op: Literal["SigmoidGrad"], input: _SigmoidGrad_takes_dY_Y, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(
    op: Literal["SimplifiedLayerNormalization"],
    input: _SimplifiedLayerNormalization_takes_X_scale,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["SimplifiedLayerNormalizationGrad"],
    input: _SimplifiedLayerNormalizationGrad_takes_Y_grad_X_scale_inv_std_var_and_perhaps_residual_grad,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["SkipGroupNorm"],
    input: _SkipGroupNorm_takes_X_gamma_beta_skip_and_perhaps_bias,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["SkipLayerNormalization"],
    input: _SkipLayerNormalization_takes_input_skip_gamma_and_perhaps_beta_bias,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["SkipSimplifiedLayerNormalization"],
    input: _SkipSimplifiedLayerNormalization_takes_input_skip_gamma_and_perhaps_bias,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["SliceGrad"],
    input: _SliceGrad_takes_dY_shape_starts_ends_and_perhaps_axes_steps,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["SoftmaxCrossEntropy"], input: _SoftmaxCrossEntropy_takes_logits_label, /, *inputs: Any, **named: Any
) -> Any: ...
@overload
def run(
    op: Literal["SoftmaxCrossEntropyGrad"],
    input: _SoftmaxCrossEntropyGrad_takes_dY_log_prob_label,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["SoftmaxCrossEntropyLoss"],
    input: _SoftmaxCrossEntropyLoss_takes_scores_labels_and_perhaps_weights,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["SoftmaxCrossEntropyLossGrad"],
    input: _SoftmaxCrossEntropyLossGrad_takes_dY_log_prob_label_and_perhaps_weight,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["SoftmaxCrossEntropyLossInternal"],
    input: _SoftmaxCrossEntropyLossInternal_takes_scores_labels_and_perhaps_weights_ignore_index,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["SoftmaxCrossEntropyLossInternalGrad"],
    input: _SoftmaxCrossEntropyLossInternalGrad_takes_dY_log_prob_label_and_perhaps_weight_ignore_index_bias,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["SoftmaxDropoutGrad"],
    input: _SoftmaxDropoutGrad_takes_dy_mask_softmax_y_and_perhaps_ratio,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(op: Literal["SoftmaxGrad"], input: _SoftmaxGrad_takes_dY_Y, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(op: Literal["SoftmaxGrad_13"], input: _SoftmaxGrad_13_takes_dY_Y, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(
    op: Literal["SparseSoftmaxCrossEntropy"],
    input: _SparseSoftmaxCrossEntropy_takes_logits_label_and_perhaps_weight,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(
    op: Literal["SparseSoftmaxCrossEntropyGrad"],
    input: _SparseSoftmaxCrossEntropyGrad_takes_dY_log_prob_label_and_perhaps_weight,
    /,
    *inputs: Any,
    **named: Any,
) -> Any: ...
@overload
def run(op: Literal["SwiGLU"], input: _SwiGLU_takes_A_B, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(op: Literal["SwiGLUGrad"], input: _SwiGLUGrad_takes_dY_A_B, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(op: Literal["TanhGrad"], input: _TanhGrad_takes_dY_Y, /, *inputs: Any, **named: Any) -> Any: ...
@overload
def run(op: Sequence[_ArgumentsDoNotFitTheOperator], *inputs: Any, **named: Any) -> Any: ...
@overload
def prepare(
    op: Literal["AdaptiveAveragePoolGrad"],
    dY: _Array,
    *,
    input_size: Sequence[int] | None = None,
    outputs: _AdaptiveAveragePoolGradOutput | Iterable[_AdaptiveAveragePoolGradOutput] | None = None,
    out: Mapping[_AdaptiveAveragePoolGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _AdaptiveAveragePoolGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["AveragePoolGrad"],
    dY: _Array,
    *,
    input_size: Sequence[int] | None = None,
    auto_pad: Literal["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"] = "NOTSET",
    ceil_mode: Literal[0, 1] = 0,
    count_include_pad: Literal[0, 1] = 0,
    dilations: Sequence[int] | None = None,
    divisor_override: int | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    outputs: _AveragePoolGradOutput | Iterable[_AveragePoolGradOutput] | None = None,
    out: Mapping[_AveragePoolGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _AveragePoolGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["BatchNormalization"],
    X: _Array,
    scale: _Array,
    B: _Array,
    input_mean: _Array | None = None,
    input_var: _Array | None = None,
    Z: _Array | None = None,
    *,
    epsilon: float = 1e-05,
    momentum: float = 0.9,
    training_mode: Literal[1] = 1,
    activation: Literal["none", "relu", "leaky_relu", "silu", "relu6", "hardswish", "elu", "gelu"] = "none",
    activation_alpha: float = 0.01,
    unbiased: Literal[0, 1] = 0,
    outputs: _BatchNormalizationOutput | Iterable[_BatchNormalizationOutput] | None = None,
    out: Mapping[_BatchNormalizationOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _BatchNormalizationPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["BatchNormalizationFromStatistics"],
    X: _Array,
    scale: _Array,
    B: _Array,
    saved_mean: _Array,
    saved_inv_std: _Array,
    *,
    outputs: _BatchNormalizationFromStatisticsOutput | Iterable[_BatchNormalizationFromStatisticsOutput] | None = None,
    out: Mapping[_BatchNormalizationFromStatisticsOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _BatchNormalizationFromStatisticsPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["BatchNormalizationGrad"],
    dY: _Array,
    X: _Array,
    Scale: _Array,
    saved_mean: _Array,
    saved_inv_std: _Array,
    B: _Array | None = None,
    Y: _Array | None = None,
    dY2: _Array | None = None,
    *,
    epsilon: float = 1e-05,
    activation: Literal["none", "relu", "leaky_relu", "silu", "relu6", "hardswish", "elu", "gelu"] = "none",
    activation_alpha: float = 0.01,
    outputs: _BatchNormalizationGradOutput | Iterable[_BatchNormalizationGradOutput] | None = None,
    out: Mapping[_BatchNormalizationGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _BatchNormalizationGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["BatchNormalizationGradFromSums"],
    dY: _Array,
    X: _Array,
    Scale: _Array,
    saved_mean: _Array,
    saved_inv_std: _Array,
    dScale: _Array,
    dBias: _Array,
    counts: _Array | None = None,
    *,
    count: int | None = None,
    outputs: _BatchNormalizationGradFromSumsOutput | Iterable[_BatchNormalizationGradFromSumsOutput] | None = None,
    out: Mapping[_BatchNormalizationGradFromSumsOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _BatchNormalizationGradFromSumsPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["BatchNormalizationGradSums"],
    dY: _Array,
    X: _Array,
    saved_mean: _Array,
    saved_inv_std: _Array,
    *,
    outputs: _BatchNormalizationGradSumsOutput | Iterable[_BatchNormalizationGradSumsOutput] | None = None,
    out: Mapping[_BatchNormalizationGradSumsOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _BatchNormalizationGradSumsPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["BatchNormalizationMergeStatistics"],
    part_statistics: _Array,
    input_mean: _Array | None = None,
    input_var: _Array | None = None,
    *,
    epsilon: float = 1e-05,
    momentum: float = 0.9,
    outputs: _BatchNormalizationMergeStatisticsOutput
    | Iterable[_BatchNormalizationMergeStatisticsOutput]
    | None = None,
    out: Mapping[_BatchNormalizationMergeStatisticsOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _BatchNormalizationMergeStatisticsPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["BatchNormalizationStatistics"],
    X: _Array,
    *,
    outputs: _BatchNormalizationStatisticsOutput | Iterable[_BatchNormalizationStatisticsOutput] | None = None,
    out: Mapping[_BatchNormalizationStatisticsOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _BatchNormalizationStatisticsPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["BatchScale"],
    input: _Array,
    *,
    scale_0: float,
    scale_1: float,
    scale_2: float | None = None,
    outputs: _BatchScaleOutput | Iterable[_BatchScaleOutput] | None = None,
    out: Mapping[_BatchScaleOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _BatchScalePlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["BiasFastGelu"],
    A: _Array,
    B: _Array,
    *,
    outputs: _BiasFastGeluOutput | Iterable[_BiasFastGeluOutput] | None = None,
    out: Mapping[_BiasFastGeluOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _BiasFastGeluPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["BiasFastGeluGrad_dX"],
    dY: _Array,
    X: _Array,
    B: _Array,
    *,
    outputs: _BiasFastGeluGrad_dXOutput | Iterable[_BiasFastGeluGrad_dXOutput] | None = None,
    out: Mapping[_BiasFastGeluGrad_dXOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _BiasFastGeluGrad_dXPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["BiasGelu"],
    A: _Array,
    B: _Array,
    *,
    outputs: _BiasGeluOutput | Iterable[_BiasGeluOutput] | None = None,
    out: Mapping[_BiasGeluOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _BiasGeluPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["BiasGeluGrad_dX"],
    dY: _Array,
    X: _Array,
    B: _Array,
    *,
    outputs: _BiasGeluGrad_dXOutput | Iterable[_BiasGeluGrad_dXOutput] | None = None,
    out: Mapping[_BiasGeluGrad_dXOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _BiasGeluGrad_dXPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["BitmaskDropoutGrad"],
    dy: _Array,
    mask: _Array,
    ratio: _Array | float | None = None,
    training_mode: _Array | bool | None = None,
    *,
    outputs: _BitmaskDropoutGradOutput | Iterable[_BitmaskDropoutGradOutput] | None = None,
    out: Mapping[_BitmaskDropoutGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _BitmaskDropoutGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["Conv"],
    X: _Array,
    W: _Array,
    B: _Array | None = None,
    *,
    auto_pad: Literal["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"] = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    outputs: _ConvOutput | Iterable[_ConvOutput] | None = None,
    out: Mapping[_ConvOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _ConvPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["ConvGrad"],
    dY: _Array,
    X: _Array,
    W: _Array,
    *,
    auto_pad: Literal["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"] = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    outputs: _ConvGradOutput | Iterable[_ConvGradOutput] | None = None,
    out: Mapping[_ConvGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _ConvGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["ConvTranspose"],
    X: _Array,
    W: _Array,
    B: _Array | None = None,
    *,
    auto_pad: Literal["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"] = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    outputs: _ConvTransposeOutput | Iterable[_ConvTransposeOutput] | None = None,
    out: Mapping[_ConvTransposeOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _ConvTransposePlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["ConvTransposeGrad"],
    dY: _Array,
    X: _Array,
    W: _Array,
    *,
    auto_pad: Literal["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"] = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    outputs: _ConvTransposeGradOutput | Iterable[_ConvTransposeGradOutput] | None = None,
    out: Mapping[_ConvTransposeGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _ConvTransposeGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["CrossEntropy"],
    X: _Array,
    labels: _Array | None = None,
    weight: _Array | None = None,
    probabilities: _Array | None = None,
    dY: _Array | None = None,
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
    capped: Literal[0, 1] = 0,
    empty: Literal["zero", "nan"] = "zero",
    outputs: _CrossEntropyOutput | Iterable[_CrossEntropyOutput] | None = None,
    out: Mapping[_CrossEntropyOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _CrossEntropyPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["DivGrad"],
    dY: _Array,
    A: _Array,
    B: _Array,
    *,
    outputs: _DivGradOutput | Iterable[_DivGradOutput] | None = None,
    out: Mapping[_DivGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _DivGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["DmlActivationReluGrad"],
    Input: _Array,
    InputGradient: _Array,
    *,
    outputs: _DmlActivationReluGradOutput | Iterable[_DmlActivationReluGradOutput] | None = None,
    out: Mapping[_DmlActivationReluGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _DmlActivationReluGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["DmlAveragePoolingGrad"],
    InputGradient: _Array,
    *,
    OutputSizes: Sequence[int] | None = None,
    Strides: Sequence[int],
    WindowSize: Sequence[int],
    StartPadding: Sequence[int],
    EndPadding: Sequence[int],
    IncludePadding: Literal[0, 1] = 0,
    outputs: _DmlAveragePoolingGradOutput | Iterable[_DmlAveragePoolingGradOutput] | None = None,
    out: Mapping[_DmlAveragePoolingGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _DmlAveragePoolingGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["DmlBatchNormalizationGrad"],
    Input: _Array,
    InputGradient: _Array,
    Mean: _Array,
    Variance: _Array,
    Scale: _Array,
    *,
    Epsilon: float,
    outputs: _DmlBatchNormalizationGradOutput | Iterable[_DmlBatchNormalizationGradOutput] | None = None,
    out: Mapping[_DmlBatchNormalizationGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _DmlBatchNormalizationGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["DmlBatchNormalizationTrainingGrad"],
    Input: _Array,
    InputGradient: _Array,
    Mean: _Array,
    Variance: _Array,
    Scale: _Array,
    *,
    Epsilon: float,
    outputs: _DmlBatchNormalizationTrainingGradOutput
    | Iterable[_DmlBatchNormalizationTrainingGradOutput]
    | None = None,
    out: Mapping[_DmlBatchNormalizationTrainingGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _DmlBatchNormalizationTrainingGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["DmlElementWiseClipGrad"],
    Input: _Array,
    InputGradient: _Array,
    *,
    Min: float,
    Max: float,
    outputs: _DmlElementWiseClipGradOutput | Iterable[_DmlElementWiseClipGradOutput] | None = None,
    out: Mapping[_DmlElementWiseClipGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _DmlElementWiseClipGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["DmlElementWiseClipGrad1"],
    Input: _Array,
    InputGradient: _Array,
    *,
    Min: float,
    Max: float,
    outputs: _DmlElementWiseClipGrad1Output | Iterable[_DmlElementWiseClipGrad1Output] | None = None,
    out: Mapping[_DmlElementWiseClipGrad1Output, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _DmlElementWiseClipGrad1Plan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["DmlLocalResponseNormalizationGrad"],
    Input: _Array,
    InputGradient: _Array,
    *,
    CrossChannel: Literal[0, 1],
    LocalSize: int,
    Alpha: float = 0.0001,
    Beta: float = 0.75,
    Bias: float = 1.0,
    outputs: _DmlLocalResponseNormalizationGradOutput
    | Iterable[_DmlLocalResponseNormalizationGradOutput]
    | None = None,
    out: Mapping[_DmlLocalResponseNormalizationGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _DmlLocalResponseNormalizationGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["DmlMaxPoolingGrad"],
    Input: _Array,
    InputGradient: _Array,
    *,
    Strides: Sequence[int],
    WindowSize: Sequence[int],
    StartPadding: Sequence[int],
    EndPadding: Sequence[int],
    Dilations: Sequence[int] | None = None,
    outputs: _DmlMaxPoolingGradOutput | Iterable[_DmlMaxPoolingGradOutput] | None = None,
    out: Mapping[_DmlMaxPoolingGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _DmlMaxPoolingGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["DmlResampleGrad"],
    InputGradient: _Array,
    *,
    OutputSizes: Sequence[int] | None = None,
    InterpolationMode: Literal["NEAREST_NEIGHBOR", "LINEAR"],
    Scales: Sequence[float],
    InputPixelOffsets: Sequence[float],
    OutputPixelOffsets: Sequence[float],
    outputs: _DmlResampleGradOutput | Iterable[_DmlResampleGradOutput] | None = None,
    out: Mapping[_DmlResampleGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _DmlResampleGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["DmlResampleGrad1"],
    InputGradient: _Array,
    *,
    OutputSizes: Sequence[int] | None = None,
    InterpolationMode: Literal["NEAREST_NEIGHBOR", "LINEAR"],
    RoundingDirection: Literal["INCREASING", "DECREASING"],
    Scales: Sequence[float],
    InputPixelOffsets: Sequence[float],
    OutputPixelOffsets: Sequence[float],
    outputs: _DmlResampleGrad1Output | Iterable[_DmlResampleGrad1Output] | None = None,
    out: Mapping[_DmlResampleGrad1Output, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _DmlResampleGrad1Plan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["DmlRoiAlignGrad"],
    InputGradient: _Array,
    ROI: _Array,
    BatchIndices: _Array,
    Input: _Array | None = None,
    *,
    BatchCount: int | None = None,
    OutputSizes: Sequence[int] | None = None,
    ReductionFunction: Literal["AVERAGE", "MAX"],
    InterpolationMode: Literal["NEAREST_NEIGHBOR", "LINEAR"],
    SpatialScaleX: float = 1.0,
    SpatialScaleY: float = 1.0,
    InputPixelOffset: float = 0.5,
    OutputPixelOffset: float = -0.5,
    MinimumSamplesPerOutput: int = 1,
    MaximumSamplesPerOutput: int = 4294967295,
    AlignRegionsToCorners: Literal[0, 1] = 0,
    outputs: _DmlRoiAlignGradOutput | Iterable[_DmlRoiAlignGradOutput] | None = None,
    out: Mapping[_DmlRoiAlignGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _DmlRoiAlignGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["DmlSliceGrad"],
    InputGradient: _Array,
    *,
    InputWindowOffsets: Sequence[int],
    InputWindowSizes: Sequence[int],
    InputWindowStrides: Sequence[int],
    OutputSizes: Sequence[int] | None = None,
    outputs: _DmlSliceGradOutput | Iterable[_DmlSliceGradOutput] | None = None,
    out: Mapping[_DmlSliceGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _DmlSliceGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["DropoutGrad"],
    dy: _Array,
    mask: _Array,
    ratio: _Array | float | None = None,
    training_mode: _Array | bool | None = None,
    *,
    outputs: _DropoutGradOutput | Iterable[_DropoutGradOutput] | None = None,
    out: Mapping[_DropoutGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _DropoutGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["FakeQuantGrad"],
    dY: _Array,
    gradient_mask: _Array,
    *,
    outputs: _FakeQuantGradOutput | Iterable[_FakeQuantGradOutput] | None = None,
    out: Mapping[_FakeQuantGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _FakeQuantGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["FastGeluGrad"],
    dY: _Array,
    X: _Array,
    *,
    outputs: _FastGeluGradOutput | Iterable[_FastGeluGradOutput] | None = None,
    out: Mapping[_FastGeluGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _FastGeluGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["FlattenAndUnpad"],
    input: _Array,
    indices: _Array,
    *,
    outputs: _FlattenAndUnpadOutput | Iterable[_FlattenAndUnpadOutput] | None = None,
    out: Mapping[_FlattenAndUnpadOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _FlattenAndUnpadPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["GatherElementsGrad"],
    dY: _Array,
    shape: _Array | Sequence[int],
    indices: _Array,
    *,
    axis: int = 0,
    outputs: _GatherElementsGradOutput | Iterable[_GatherElementsGradOutput] | None = None,
    out: Mapping[_GatherElementsGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _GatherElementsGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["GatherGrad"],
    shape: _Array | Sequence[int],
    indices: _Array,
    dY: _Array,
    accumulator: _Array | None = None,
    *,
    axis: int = 0,
    padding_idx: int | None = None,
    outputs: _GatherGradOutput | Iterable[_GatherGradOutput] | None = None,
    out: Mapping[_GatherGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _GatherGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["GatherNDGrad"],
    shape: _Array | Sequence[int],
    indices: _Array,
    update: _Array,
    *,
    batch_dims: int = 0,
    outputs: _GatherNDGradOutput | Iterable[_GatherNDGradOutput] | None = None,
    out: Mapping[_GatherNDGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _GatherNDGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["GeGLU"],
    A: _Array,
    B: _Array,
    *,
    approximate: Literal["none", "tanh"] = "none",
    outputs: _GeGLUOutput | Iterable[_GeGLUOutput] | None = None,
    out: Mapping[_GeGLUOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _GeGLUPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["GeGLUGrad"],
    dY: _Array,
    A: _Array,
    B: _Array,
    *,
    approximate: Literal["none", "tanh"] = "none",
    outputs: _GeGLUGradOutput | Iterable[_GeGLUGradOutput] | None = None,
    out: Mapping[_GeGLUGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _GeGLUGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["GeluGrad"],
    dY: _Array,
    X: _Array,
    *,
    outputs: _GeluGradOutput | Iterable[_GeluGradOutput] | None = None,
    out: Mapping[_GeluGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _GeluGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["GlobalAveragePoolGrad"],
    dY: _Array,
    *,
    input_size: Sequence[int] | None = None,
    outputs: _GlobalAveragePoolGradOutput | Iterable[_GlobalAveragePoolGradOutput] | None = None,
    out: Mapping[_GlobalAveragePoolGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _GlobalAveragePoolGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["GroupNorm"],
    X: _Array,
    gamma: _Array,
    beta: _Array,
    *,
    groups: int,
    activation: Literal[0, 1],
    channels_last: Literal[0, 1] = 1,
    epsilon: float = 1e-05,
    outputs: _GroupNormOutput | Iterable[_GroupNormOutput] | None = None,
    out: Mapping[_GroupNormOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _GroupNormPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["GroupNormGrad"],
    dY: _Array,
    X: _Array,
    mean: _Array,
    inv_std: _Array,
    gamma: _Array | None = None,
    beta: _Array | None = None,
    sample_scale: _Array | None = None,
    sample_shift: _Array | None = None,
    residual_grad: _Array | None = None,
    *,
    groups: int,
    activation: Literal["none", "relu", "leaky_relu", "silu", "relu6", "hardswish", "elu", "gelu"] = "none",
    activation_alpha: float = 0.01,
    channels_last: Literal[0, 1] = 0,
    outputs: _GroupNormGradOutput | Iterable[_GroupNormGradOutput] | None = None,
    out: Mapping[_GroupNormGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _GroupNormGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["GroupNormalization"],
    X: _Array,
    scale: _Array | None = None,
    bias: _Array | None = None,
    sample_scale: _Array | None = None,
    sample_shift: _Array | None = None,
    *,
    num_groups: int,
    epsilon: float = 1e-05,
    stash_type: Literal[1] = 1,
    activation: Literal["none", "relu", "leaky_relu", "silu", "relu6", "hardswish", "elu", "gelu"] = "none",
    activation_alpha: float = 0.01,
    outputs: _GroupNormalizationOutput | Iterable[_GroupNormalizationOutput] | None = None,
    out: Mapping[_GroupNormalizationOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _GroupNormalizationPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["InstanceNormalization"],
    input: _Array,
    scale: _Array,
    B: _Array,
    *,
    epsilon: float = 1e-05,
    activation: Literal["none", "relu", "leaky_relu", "silu", "relu6", "hardswish", "elu", "gelu"] = "none",
    activation_alpha: float = 0.01,
    outputs: _InstanceNormalizationOutput | Iterable[_InstanceNormalizationOutput] | None = None,
    out: Mapping[_InstanceNormalizationOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _InstanceNormalizationPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["InvertibleLayerNormalizationGrad"],
    Y_grad: _Array,
    Y: _Array,
    scale: _Array,
    bias: _Array,
    inv_std_var: _Array,
    *,
    axis: int = -1,
    X_grad_type: Any = None,
    outputs: _InvertibleLayerNormalizationGradOutput | Iterable[_InvertibleLayerNormalizationGradOutput] | None = None,
    out: Mapping[_InvertibleLayerNormalizationGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _InvertibleLayerNormalizationGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["IsAllFinite"],
    *input: _Array,
    outputs: _IsAllFiniteOutput | Iterable[_IsAllFiniteOutput] | None = None,
    out: Mapping[_IsAllFiniteOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _IsAllFinitePlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["IsFinite"],
    X: _Array,
    *,
    outputs: _IsFiniteOutput | Iterable[_IsFiniteOutput] | None = None,
    out: Mapping[_IsFiniteOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _IsFinitePlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["LayerNormalization"],
    X: _Array,
    Scale: _Array,
    B: _Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-05,
    stash_type: Literal[1] = 1,
    Y_type: Any = None,
    outputs: _LayerNormalizationOutput | Iterable[_LayerNormalizationOutput] | None = None,
    out: Mapping[_LayerNormalizationOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _LayerNormalizationPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["LayerNormalizationGrad"],
    Y_grad: _Array,
    X: _Array,
    scale: _Array,
    mean: _Array,
    inv_std_dev: _Array,
    residual_grad: _Array | None = None,
    *,
    axis: int = -1,
    branch_grad_type: Any = None,
    outputs: _LayerNormalizationGradOutput | Iterable[_LayerNormalizationGradOutput] | None = None,
    out: Mapping[_LayerNormalizationGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _LayerNormalizationGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["LeakyReluGrad"],
    dY: _Array,
    Y: _Array,
    *,
    alpha: float = 0.01,
    outputs: _LeakyReluGradOutput | Iterable[_LeakyReluGradOutput] | None = None,
    out: Mapping[_LeakyReluGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _LeakyReluGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["LinearCrossEntropy"],
    X: _Array,
    W: _Array,
    labels: _Array,
    B: _Array | None = None,
    weight: _Array | None = None,
    dY: _Array | None = None,
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
    empty: Literal["zero", "nan"] = "zero",
    logits_bytes: int = 1342177280,
    outputs: _LinearCrossEntropyOutput | Iterable[_LinearCrossEntropyOutput] | None = None,
    out: Mapping[_LinearCrossEntropyOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _LinearCrossEntropyPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["LogSoftmaxGrad"],
    dY: _Array,
    X: _Array,
    *,
    axis: int = 1,
    dX_type: Any = None,
    outputs: _LogSoftmaxGradOutput | Iterable[_LogSoftmaxGradOutput] | None = None,
    out: Mapping[_LogSoftmaxGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _LogSoftmaxGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["LogSoftmaxGrad_13"],
    dY: _Array,
    X: _Array,
    *,
    axis: int = -1,
    dX_type: Any = None,
    outputs: _LogSoftmaxGrad_13Output | Iterable[_LogSoftmaxGrad_13Output] | None = None,
    out: Mapping[_LogSoftmaxGrad_13Output, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _LogSoftmaxGrad_13Plan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["MaxPool"],
    X: _Array,
    *,
    auto_pad: Literal["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"] = "NOTSET",
    ceil_mode: Literal[0, 1] = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    storage_order: Literal[0] = 0,
    index_base: Literal["tensor", "plane"] = "tensor",
    indices_type: Any = None,
    outputs: _MaxPoolOutput | Iterable[_MaxPoolOutput] | None = None,
    out: Mapping[_MaxPoolOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _MaxPoolPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["MaxPoolGrad"],
    dY: _Array,
    Indices: _Array,
    *,
    input_size: Sequence[int] | None = None,
    auto_pad: Literal["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"] = "NOTSET",
    ceil_mode: Literal[0, 1] = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    storage_order: Literal[0] = 0,
    index_base: Literal["tensor", "plane"] = "tensor",
    outputs: _MaxPoolGradOutput | Iterable[_MaxPoolGradOutput] | None = None,
    out: Mapping[_MaxPoolGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _MaxPoolGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["MixedPrecisionScale"],
    S: _Array | float,
    *X: _Array,
    to: Any = None,
    fuse_outputs: Literal[0, 1] = 0,
    outputs: _MixedPrecisionScaleOutput | Iterable[_MixedPrecisionScaleOutput] | None = None,
    out: Mapping[_MixedPrecisionScaleOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _MixedPrecisionScalePlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["PadAndUnflatten"],
    input: _Array,
    indices: _Array,
    unflatten_dims: _Array | Sequence[int],
    *,
    outputs: _PadAndUnflattenOutput | Iterable[_PadAndUnflattenOutput] | None = None,
    out: Mapping[_PadAndUnflattenOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _PadAndUnflattenPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["QuickGeluGrad"],
    dY: _Array,
    X: _Array,
    *,
    alpha: float = 1.702,
    outputs: _QuickGeluGradOutput | Iterable[_QuickGeluGradOutput] | None = None,
    out: Mapping[_QuickGeluGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _QuickGeluGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["ReduceAllL2"],
    *X: _Array,
    Y_type: Any = None,
    outputs: _ReduceAllL2Output | Iterable[_ReduceAllL2Output] | None = None,
    out: Mapping[_ReduceAllL2Output, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _ReduceAllL2Plan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["ReluGrad"],
    dY: _Array,
    X: _Array,
    *,
    outputs: _ReluGradOutput | Iterable[_ReluGradOutput] | None = None,
    out: Mapping[_ReluGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _ReluGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["ResizeGrad"],
    dY: _Array,
    X: _Array | None = None,
    roi: _Array | Sequence[float] | None = None,
    scales: _Array | Sequence[float] | None = None,
    *,
    input_size: Sequence[int] | None = None,
    antialias: Literal[0, 1] = 0,
    coordinate_transformation_mode: Literal[
        "half_pixel",
        "half_pixel_symmetric",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
        "tf_half_pixel_for_nn",
        "tf_crop_and_resize",
    ] = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: Literal[0, 1] = 0,
    extrapolation_value: float = 0.0,
    mode: Literal["nearest", "linear", "cubic", "lanczos"] = "nearest",
    nearest_mode: Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"] = "round_prefer_floor",
    source_steps: Sequence[float] | None = None,
    outputs: _ResizeGradOutput | Iterable[_ResizeGradOutput] | None = None,
    out: Mapping[_ResizeGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _ResizeGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["RotaryEmbedding"],
    X: _Array,
    cos_cache: _Array,
    sin_cache: _Array,
    position_ids: _Array | None = None,
    *,
    interleaved: Literal[0, 1] = 0,
    rotary_embedding_dim: int = 0,
    outputs: _RotaryEmbeddingOutput | Iterable[_RotaryEmbeddingOutput] | None = None,
    out: Mapping[_RotaryEmbeddingOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _RotaryEmbeddingPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["RotaryEmbeddingGrad"],
    dY: _Array,
    cos_cache: _Array,
    sin_cache: _Array,
    position_ids: _Array | None = None,
    *,
    interleaved: Literal[0, 1] = 0,
    rotary_embedding_dim: int = 0,
    outputs: _RotaryEmbeddingGradOutput | Iterable[_RotaryEmbeddingGradOutput] | None = None,
    out: Mapping[_RotaryEmbeddingGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _RotaryEmbeddingGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["Scale"],
    input: _Array,
    scale: _Array | float,
    *,
    scale_down: Literal[0, 1] = 0,
    outputs: _ScaleOutput | Iterable[_ScaleOutput] | None = None,
    out: Mapping[_ScaleOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _ScalePlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["ScaledSum"],
    input_0: _Array,
    input_1: _Array,
    input_2: _Array | None = None,
    *,
    scale_0: float,
    scale_1: float,
    scale_2: float | None = None,
    outputs: _ScaledSumOutput | Iterable[_ScaledSumOutput] | None = None,
    out: Mapping[_ScaledSumOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _ScaledSumPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["SigmoidGrad"],
    dY: _Array,
    Y: _Array,
    *,
    outputs: _SigmoidGradOutput | Iterable[_SigmoidGradOutput] | None = None,
    out: Mapping[_SigmoidGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _SigmoidGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["SimplifiedLayerNormalization"],
    X: _Array,
    scale: _Array,
    *,
    axis: int = -1,
    epsilon: float = 1e-05,
    stash_type: Literal[1] = 1,
    Y_type: Any = None,
    outputs: _SimplifiedLayerNormalizationOutput | Iterable[_SimplifiedLayerNormalizationOutput] | None = None,
    out: Mapping[_SimplifiedLayerNormalizationOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _SimplifiedLayerNormalizationPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["SimplifiedLayerNormalizationGrad"],
    Y_grad: _Array,
    X: _Array,
    scale: _Array,
    inv_std_var: _Array,
    residual_grad: _Array | None = None,
    *,
    axis: int = -1,
    branch_grad_type: Any = None,
    outputs: _SimplifiedLayerNormalizationGradOutput | Iterable[_SimplifiedLayerNormalizationGradOutput] | None = None,
    out: Mapping[_SimplifiedLayerNormalizationGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _SimplifiedLayerNormalizationGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["SkipGroupNorm"],
    X: _Array,
    gamma: _Array,
    beta: _Array,
    skip: _Array,
    bias: _Array | None = None,
    *,
    groups: int,
    activation: Literal[0, 1],
    channels_last: Literal[0, 1] = 1,
    epsilon: float = 1e-05,
    outputs: _SkipGroupNormOutput | Iterable[_SkipGroupNormOutput] | None = None,
    out: Mapping[_SkipGroupNormOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _SkipGroupNormPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["SkipLayerNormalization"],
    input: _Array,
    skip: _Array,
    gamma: _Array,
    beta: _Array | None = None,
    bias: _Array | None = None,
    *,
    epsilon: float = 1e-12,
    output_type: Any = None,
    outputs: _SkipLayerNormalizationOutput | Iterable[_SkipLayerNormalizationOutput] | None = None,
    out: Mapping[_SkipLayerNormalizationOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _SkipLayerNormalizationPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["SkipSimplifiedLayerNormalization"],
    input: _Array,
    skip: _Array,
    gamma: _Array,
    bias: _Array | None = None,
    *,
    epsilon: float = 1e-12,
    output_type: Any = None,
    outputs: _SkipSimplifiedLayerNormalizationOutput | Iterable[_SkipSimplifiedLayerNormalizationOutput] | None = None,
    out: Mapping[_SkipSimplifiedLayerNormalizationOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _SkipSimplifiedLayerNormalizationPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["SliceGrad"],
    dY: _Array,
    shape: _Array | Sequence[int],
    starts: _Array | Sequence[int],
    ends: _Array | Sequence[int],
    axes: _Array | Sequence[int] | None = None,
    steps: _Array | Sequence[int] | None = None,
    *,
    outputs: _SliceGradOutput | Iterable[_SliceGradOutput] | None = None,
    out: Mapping[_SliceGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _SliceGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["SoftmaxCrossEntropy"],
    logits: _Array,
    label: _Array,
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    outputs: _SoftmaxCrossEntropyOutput | Iterable[_SoftmaxCrossEntropyOutput] | None = None,
    out: Mapping[_SoftmaxCrossEntropyOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _SoftmaxCrossEntropyPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["SoftmaxCrossEntropyGrad"],
    dY: _Array,
    log_prob: _Array,
    label: _Array,
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    outputs: _SoftmaxCrossEntropyGradOutput | Iterable[_SoftmaxCrossEntropyGradOutput] | None = None,
    out: Mapping[_SoftmaxCrossEntropyGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _SoftmaxCrossEntropyGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["SoftmaxCrossEntropyLoss"],
    scores: _Array,
    labels: _Array,
    weights: _Array | None = None,
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    ignore_index: int | None = None,
    outputs: _SoftmaxCrossEntropyLossOutput | Iterable[_SoftmaxCrossEntropyLossOutput] | None = None,
    out: Mapping[_SoftmaxCrossEntropyLossOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _SoftmaxCrossEntropyLossPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["SoftmaxCrossEntropyLossGrad"],
    dY: _Array,
    log_prob: _Array,
    label: _Array,
    weight: _Array | None = None,
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    ignore_index: int | None = None,
    outputs: _SoftmaxCrossEntropyLossGradOutput | Iterable[_SoftmaxCrossEntropyLossGradOutput] | None = None,
    out: Mapping[_SoftmaxCrossEntropyLossGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _SoftmaxCrossEntropyLossGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["SoftmaxCrossEntropyLossInternal"],
    scores: _Array,
    labels: _Array,
    weights: _Array | None = None,
    ignore_index: _Array | int | None = None,
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    output_type: Any = None,
    outputs: _SoftmaxCrossEntropyLossInternalOutput | Iterable[_SoftmaxCrossEntropyLossInternalOutput] | None = None,
    out: Mapping[_SoftmaxCrossEntropyLossInternalOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _SoftmaxCrossEntropyLossInternalPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["SoftmaxCrossEntropyLossInternalGrad"],
    dY: _Array,
    log_prob: _Array,
    label: _Array,
    weight: _Array | None = None,
    ignore_index: _Array | int | None = None,
    bias: _Array | None = None,
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    output_type: Any = None,
    outputs: _SoftmaxCrossEntropyLossInternalGradOutput
    | Iterable[_SoftmaxCrossEntropyLossInternalGradOutput]
    | None = None,
    out: Mapping[_SoftmaxCrossEntropyLossInternalGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _SoftmaxCrossEntropyLossInternalGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["SoftmaxDropoutGrad"],
    dy: _Array,
    mask: _Array,
    softmax_y: _Array,
    ratio: _Array | float | None = None,
    *,
    axis: int,
    outputs: _SoftmaxDropoutGradOutput | Iterable[_SoftmaxDropoutGradOutput] | None = None,
    out: Mapping[_SoftmaxDropoutGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _SoftmaxDropoutGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["SoftmaxGrad"],
    dY: _Array,
    Y: _Array,
    *,
    axis: int = 1,
    dX_type: Any = None,
    outputs: _SoftmaxGradOutput | Iterable[_SoftmaxGradOutput] | None = None,
    out: Mapping[_SoftmaxGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _SoftmaxGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["SoftmaxGrad_13"],
    dY: _Array,
    Y: _Array,
    *,
    axis: int = -1,
    dX_type: Any = None,
    outputs: _SoftmaxGrad_13Output | Iterable[_SoftmaxGrad_13Output] | None = None,
    out: Mapping[_SoftmaxGrad_13Output, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _SoftmaxGrad_13Plan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["SparseSoftmaxCrossEntropy"],
    logits: _Array,
    label: _Array,
    weight: _Array | None = None,
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    outputs: _SparseSoftmaxCrossEntropyOutput | Iterable[_SparseSoftmaxCrossEntropyOutput] | None = None,
    out: Mapping[_SparseSoftmaxCrossEntropyOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _SparseSoftmaxCrossEntropyPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["SparseSoftmaxCrossEntropyGrad"],
    dY: _Array,
    log_prob: _Array,
    label: _Array,
    weight: _Array | None = None,
    *,
    reduction: Literal["none", "mean", "sum"] = "mean",
    outputs: _SparseSoftmaxCrossEntropyGradOutput | Iterable[_SparseSoftmaxCrossEntropyGradOutput] | None = None,
    out: Mapping[_SparseSoftmaxCrossEntropyGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _SparseSoftmaxCrossEntropyGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["SwiGLU"],
    A: _Array,
    B: _Array,
    *,
    outputs: _SwiGLUOutput | Iterable[_SwiGLUOutput] | None = None,
    out: Mapping[_SwiGLUOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _SwiGLUPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["SwiGLUGrad"],
    dY: _Array,
    A: _Array,
    B: _Array,
    *,
    outputs: _SwiGLUGradOutput | Iterable[_SwiGLUGradOutput] | None = None,
    out: Mapping[_SwiGLUGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _SwiGLUGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: Literal["TanhGrad"],
    dY: _Array,
    Y: _Array,
    *,
    outputs: _TanhGradOutput | Iterable[_TanhGradOutput] | None = None,
    out: Mapping[_TanhGradOutput, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> _TanhGradPlan:
    """The plan for such a call of `run`, without making it."""

@overload
def prepare(
    op: _Name,
    *inputs: _Array,
    outputs: str | Iterable[str] | None = None,
    out: Mapping[str, _Array] | None = None,
    provider: _Provider | None = None,
    stream: Any = None,
    policy: Policy | _PolicyFields | None = None,
    domain: str | None = None,
    version: int | None = None,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["AdaptiveAveragePoolGrad"], input: _AdaptiveAveragePoolGrad_takes_dY, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["AveragePoolGrad"], input: _AveragePoolGrad_takes_dY, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["BatchNormalization"],
    input: _BatchNormalization_takes_X_scale_B_and_perhaps_input_mean_input_var_Z,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["BatchNormalizationFromStatistics"],
    input: _BatchNormalizationFromStatistics_takes_X_scale_B_saved_mean_saved_inv_std,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["BatchNormalizationGrad"],
    input: _BatchNormalizationGrad_takes_dY_X_Scale_saved_mean_saved_inv_std_and_perhaps_B_Y_dY2,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["BatchNormalizationGradFromSums"],
    input: _BatchNormalizationGradFromSums_takes_dY_X_Scale_saved_mean_saved_inv_std_dScale_dBias_and_perhaps_counts,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["BatchNormalizationGradSums"],
    input: _BatchNormalizationGradSums_takes_dY_X_saved_mean_saved_inv_std,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["BatchNormalizationMergeStatistics"],
    input: _BatchNormalizationMergeStatistics_takes_part_statistics_and_perhaps_input_mean_input_var,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["BatchNormalizationStatistics"],
    input: _BatchNormalizationStatistics_takes_X,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(op: Literal["BatchScale"], input: _BatchScale_takes_input, /, *inputs: Any, **named: Any) -> Prepared: ...
@overload
def prepare(op: Literal["BiasFastGelu"], input: _BiasFastGelu_takes_A_B, /, *inputs: Any, **named: Any) -> Prepared: ...
@overload
def prepare(
    op: Literal["BiasFastGeluGrad_dX"], input: _BiasFastGeluGrad_dX_takes_dY_X_B, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(op: Literal["BiasGelu"], input: _BiasGelu_takes_A_B, /, *inputs: Any, **named: Any) -> Prepared: ...
@overload
def prepare(
    op: Literal["BiasGeluGrad_dX"], input: _BiasGeluGrad_dX_takes_dY_X_B, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["BitmaskDropoutGrad"],
    input: _BitmaskDropoutGrad_takes_dy_mask_and_perhaps_ratio_training_mode,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(op: Literal["Conv"], input: _Conv_takes_X_W_and_perhaps_B, /, *inputs: Any, **named: Any) -> Prepared: ...
@overload
def prepare(op: Literal["ConvGrad"], input: _ConvGrad_takes_dY_X_W, /, *inputs: Any, **named: Any) -> Prepared: ...
@overload
def prepare(
    op: Literal["ConvTranspose"], input: _ConvTranspose_takes_X_W_and_perhaps_B, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["ConvTransposeGrad"], input: _ConvTransposeGrad_takes_dY_X_W, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["CrossEntropy"],
    input: _CrossEntropy_takes_X_and_perhaps_labels_weight_probabilities_dY,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(op: Literal["DivGrad"], input: _DivGrad_takes_dY_A_B, /, *inputs: Any, **named: Any) -> Prepared: ...
@overload
def prepare(
    op: Literal["DmlActivationReluGrad"],
    input: _DmlActivationReluGrad_takes_Input_InputGradient,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["DmlAveragePoolingGrad"],
    input: _DmlAveragePoolingGrad_takes_InputGradient,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["DmlBatchNormalizationGrad"],
    input: _DmlBatchNormalizationGrad_takes_Input_InputGradient_Mean_Variance_Scale,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["DmlBatchNormalizationTrainingGrad"],
    input: _DmlBatchNormalizationTrainingGrad_takes_Input_InputGradient_Mean_Variance_Scale,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["DmlElementWiseClipGrad"],
    input: _DmlElementWiseClipGrad_takes_Input_InputGradient,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["DmlElementWiseClipGrad1"],
    input: _DmlElementWiseClipGrad1_takes_Input_InputGradient,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["DmlLocalResponseNormalizationGrad"],
    input: _DmlLocalResponseNormalizationGrad_takes_Input_InputGradient,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["DmlMaxPoolingGrad"], input: _DmlMaxPoolingGrad_takes_Input_InputGradient, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["DmlResampleGrad"], input: _DmlResampleGrad_takes_InputGradient, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["DmlResampleGrad1"], input: _DmlResampleGrad1_takes_InputGradient, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["DmlRoiAlignGrad"],
    input: _DmlRoiAlignGrad_takes_InputGradient_ROI_BatchIndices_and_perhaps_Input,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["DmlSliceGrad"], input: _DmlSliceGrad_takes_InputGradient, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["DropoutGrad"],
    input: _DropoutGrad_takes_dy_mask_and_perhaps_ratio_training_mode,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["FakeQuantGrad"], input: _FakeQuantGrad_takes_dY_gradient_mask, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["FastGeluGrad"], input: _FastGeluGrad_takes_dY_X, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["FlattenAndUnpad"], input: _FlattenAndUnpad_takes_input_indices, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["GatherElementsGrad"], input: _GatherElementsGrad_takes_dY_shape_indices, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["GatherGrad"],
    input: _GatherGrad_takes_shape_indices_dY_and_perhaps_accumulator,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["GatherNDGrad"], input: _GatherNDGrad_takes_shape_indices_update, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(op: Literal["GeGLU"], input: _GeGLU_takes_A_B, /, *inputs: Any, **named: Any) -> Prepared: ...
@overload
def prepare(op: Literal["GeGLUGrad"], input: _GeGLUGrad_takes_dY_A_B, /, *inputs: Any, **named: Any) -> Prepared: ...
@overload
def prepare(op: Literal["GeluGrad"], input: _GeluGrad_takes_dY_X, /, *inputs: Any, **named: Any) -> Prepared: ...
@overload
def prepare(
    op: Literal["GlobalAveragePoolGrad"], input: _GlobalAveragePoolGrad_takes_dY, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["GroupNorm"], input: _GroupNorm_takes_X_gamma_beta, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["GroupNormGrad"],
    input: _GroupNormGrad_takes_dY_X_mean_inv_std_and_perhaps_gamma_beta_sample_scale_sample_shift_residual_grad,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["GroupNormalization"],
    input: _GroupNormalization_takes_X_and_perhaps_scale_bias_sample_scale_sample_shift,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["InstanceNormalization"],
    input: _InstanceNormalization_takes_input_scale_B,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["InvertibleLayerNormalizationGrad"],
    input: _InvertibleLayerNormalizationGrad_takes_Y_grad_Y_scale_bias_inv_std_var,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(op: Literal["IsAllFinite"], input: _IsAllFinite_takes_input, /, *inputs: Any, **named: Any) -> Prepared: ...
@overload
def prepare(op: Literal["IsFinite"], input: _IsFinite_takes_X, /, *inputs: Any, **named: Any) -> Prepared: ...
@overload
def prepare(
    op: Literal["LayerNormalization"],
    input: _LayerNormalization_takes_X_Scale_and_perhaps_B,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["LayerNormalizationGrad"],
    input: _LayerNormalizationGrad_takes_Y_grad_X_scale_mean_inv_std_dev_and_perhaps_residual_grad,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["LeakyReluGrad"], input: _LeakyReluGrad_takes_dY_Y, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["LinearCrossEntropy"],
    input: _LinearCrossEntropy_takes_X_W_labels_and_perhaps_B_weight_dY,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["LogSoftmaxGrad"], input: _LogSoftmaxGrad_takes_dY_X, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["LogSoftmaxGrad_13"], input: _LogSoftmaxGrad_13_takes_dY_X, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(op: Literal["MaxPool"], input: _MaxPool_takes_X, /, *inputs: Any, **named: Any) -> Prepared: ...
@overload
def prepare(
    op: Literal["MaxPoolGrad"], input: _MaxPoolGrad_takes_dY_Indices, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["MixedPrecisionScale"], input: _MixedPrecisionScale_takes_S_X, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["PadAndUnflatten"],
    input: _PadAndUnflatten_takes_input_indices_unflatten_dims,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["QuickGeluGrad"], input: _QuickGeluGrad_takes_dY_X, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(op: Literal["ReduceAllL2"], input: _ReduceAllL2_takes_X, /, *inputs: Any, **named: Any) -> Prepared: ...
@overload
def prepare(op: Literal["ReluGrad"], input: _ReluGrad_takes_dY_X, /, *inputs: Any, **named: Any) -> Prepared: ...
@overload
def prepare(
    op: Literal["ResizeGrad"], input: _ResizeGrad_takes_dY_and_perhaps_X_roi_scales, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["RotaryEmbedding"],
    input: _RotaryEmbedding_takes_X_cos_cache_sin_cache_and_perhaps_position_ids,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["RotaryEmbeddingGrad"],
    input: _RotaryEmbeddingGrad_takes_dY_cos_cache_sin_cache_and_perhaps_position_ids,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(op: Literal["Scale"], input: _Scale_takes_input_scale, /, *inputs: Any, **named: Any) -> Prepared: ...
@overload
def prepare(
    op: Literal["ScaledSum"], input: _ScaledSum_takes_input_0_input_1_and_perhaps_input_2, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(op: Literal["SigmoidGrad"], input: _SigmoidGrad_takes_dY_Y, /, *inputs: Any, **named: Any) -> Prepared: ...
@overload
def prepare(
    op: Literal["SimplifiedLayerNormalization"],
    input: _SimplifiedLayerNormalization_takes_X_scale,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["SimplifiedLayerNormalizationGrad"],
    input: _SimplifiedLayerNormalizationGrad_takes_Y_grad_X_scale_inv_std_var_and_perhaps_residual_grad,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["SkipGroupNorm"],
    input: _SkipGroupNorm_takes_X_gamma_beta_skip_and_perhaps_bias,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["SkipLayerNormalization"],
    input: _SkipLayerNormalization_takes_input_skip_gamma_and_perhaps_beta_bias,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["SkipSimplifiedLayerNormalization"],
    input: _SkipSimplifiedLayerNormalization_takes_input_skip_gamma_and_perhaps_bias,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["SliceGrad"],
    input: _SliceGrad_takes_dY_shape_starts_ends_and_perhaps_axes_steps,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["SoftmaxCrossEntropy"], input: _SoftmaxCrossEntropy_takes_logits_label, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["SoftmaxCrossEntropyGrad"],
    input: _SoftmaxCrossEntropyGrad_takes_dY_log_prob_label,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["SoftmaxCrossEntropyLoss"],
    input: _SoftmaxCrossEntropyLoss_takes_scores_labels_and_perhaps_weights,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["SoftmaxCrossEntropyLossGrad"],
    input: _SoftmaxCrossEntropyLossGrad_takes_dY_log_prob_label_and_perhaps_weight,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["SoftmaxCrossEntropyLossInternal"],
    input: _SoftmaxCrossEntropyLossInternal_takes_scores_labels_and_perhaps_weights_ignore_index,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["SoftmaxCrossEntropyLossInternalGrad"],
    input: _SoftmaxCrossEntropyLossInternalGrad_takes_dY_log_prob_label_and_perhaps_weight_ignore_index_bias,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["SoftmaxDropoutGrad"],
    input: _SoftmaxDropoutGrad_takes_dy_mask_softmax_y_and_perhaps_ratio,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(op: Literal["SoftmaxGrad"], input: _SoftmaxGrad_takes_dY_Y, /, *inputs: Any, **named: Any) -> Prepared: ...
@overload
def prepare(
    op: Literal["SoftmaxGrad_13"], input: _SoftmaxGrad_13_takes_dY_Y, /, *inputs: Any, **named: Any
) -> Prepared: ...
@overload
def prepare(
    op: Literal["SparseSoftmaxCrossEntropy"],
    input: _SparseSoftmaxCrossEntropy_takes_logits_label_and_perhaps_weight,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(
    op: Literal["SparseSoftmaxCrossEntropyGrad"],
    input: _SparseSoftmaxCrossEntropyGrad_takes_dY_log_prob_label_and_perhaps_weight,
    /,
    *inputs: Any,
    **named: Any,
) -> Prepared: ...
@overload
def prepare(op: Literal["SwiGLU"], input: _SwiGLU_takes_A_B, /, *inputs: Any, **named: Any) -> Prepared: ...
@overload
def prepare(op: Literal["SwiGLUGrad"], input: _SwiGLUGrad_takes_dY_A_B, /, *inputs: Any, **named: Any) -> Prepared: ...
@overload
def prepare(op: Literal["TanhGrad"], input: _TanhGrad_takes_dY_Y, /, *inputs: Any, **named: Any) -> Prepared: ...
@overload
def prepare(op: Sequence[_ArgumentsDoNotFitTheOperator], *inputs: Any, **named: Any) -> Prepared: ...
