"""What ONNX Runtime 1.19.2 registers for CUDA for training, and what answers each operator here: a table of a page."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from markdown_table import table

import gradkern
from gradkern.contract.schema import Operator

__all__ = ["onnx_operators", "rows"]

ROOT = Path(__file__).resolve().parents[1]
SHORT = {"float16": "h", "float32": "f", "float64": "d", "bfloat16": "b"}

REGISTERED = """
SoftmaxCrossEntropyLoss f h b; SoftmaxCrossEntropyLossGrad f h b; SoftmaxCrossEntropyLossInternal f h b
SoftmaxCrossEntropyLossInternalGrad f h b; SoftmaxCrossEntropy f; SoftmaxCrossEntropyGrad f
SparseSoftmaxCrossEntropy f; SparseSoftmaxCrossEntropyGrad f
SoftmaxGrad f d h b; SoftmaxGrad_13 f d h b; LogSoftmaxGrad f d h; LogSoftmaxGrad_13 f d h
BiasSoftmaxDropout f h d; SoftmaxDropoutGrad f h d
GeluGrad h f d; FastGeluGrad h f d; QuickGeluGrad h f d b; ReluGrad h f d; SigmoidGrad h f d; TanhGrad h f d
LeakyReluGrad h f d; BiasGeluGrad_dX h f d b; BiasFastGeluGrad_dX h f d b
DropoutGrad h f d b; BitmaskDropoutGrad h f d b
LayerNormalizationGrad h f d b; SimplifiedLayerNormalizationGrad h f d b; InvertibleLayerNormalizationGrad h f d b
BatchNormalizationGrad h f d; BatchNormInternal h f d
ConvGrad h f d; ConvTransposeGrad h f d
GatherGrad h f b; GatherElementsGrad h f d b; GatherNDGrad h f d b; SliceGrad every type
DivGrad h f d; Scale h f d b; ScaledSum h f d; BatchScale h f d; ResizeGrad h f d; FakeQuant f; FakeQuantGrad f
PadAndUnflatten h f d b; FlattenAndUnpad h f d b
ReduceSumTraining h f d; ReduceAllL2 h f b; All bool; IsFinite h f d; IsAllFinite h f d
AdamWOptimizer f; SGDOptimizerV2 f; InplaceClipGradNorm f; AdamOptimizer f h b; LambOptimizer f h d b; SGDOptimizer f
InPlaceAccumulator f h b; InPlaceAccumulatorV2 f h; ZeroGradient f h; MixedPrecisionScale f h b
View every type; Group every type; PassThrough every type; SplitTraining every type; ConcatTraining every type
YieldOp every type; RecordEvent every type; WaitEvent every type; TritonOp every type; PythonOp every type
PythonOpGrad every type; Send every type; Recv every type; NcclAllReduce h f d b; NcclAllGather h f d b
NcclReduceScatter h f d b; MegatronF h f d b; MegatronG h f d b; AdasumAllReduce h f d
GistBinarizeEncoder f; GistBinarizeDecoder f; GistPack1Encoder f; GistPack1Decoder f; GistPack8Encoder f h
GistPack8Decoder f h; GistPack16Encoder f; GistPack16Decoder f; GistPackMsfp15Encoder f; GistPackMsfp15Decoder f
MaxPoolGrad CPU only: f; AveragePoolGrad CPU only: f; LSTMGrad CPU only: f; GRUGrad CPU only: f
"""
"""Operators and types: orttraining/orttraining/training_ops/cuda/cuda_training_kernels.cc, and at the end those of
training_ops/cpu/cpu_training_kernels.cc that have no CUDA kernel.
"""

COMMUNICATION = "communication between processes; torch.distributed does it around a graph"
COMPRESSION = "compresses activations by a graph transformation that was off by default"
PROCESS = "calls back into the process that ORTModule runs in"
OLD = "of the older trainer; `artifacts` writes AdamWOptimizer and SGDOptimizerV2"
RECURRENT = "PyTorch has the gradients of cuDNN's recurrent layers"
REASONS = {
    **dict.fromkeys(("Send", "Recv", "NcclAllReduce", "NcclAllGather", "NcclReduceScatter"), COMMUNICATION),
    **dict.fromkeys(("MegatronF", "MegatronG", "AdasumAllReduce"), COMMUNICATION),
    **dict.fromkeys(("YieldOp", "TritonOp", "PythonOp", "PythonOpGrad"), PROCESS),
    **dict.fromkeys(("RecordEvent", "WaitEvent"), "orders the stages of a pipeline over several GPUs"),
    **dict.fromkeys(("AdamOptimizer", "LambOptimizer", "SGDOptimizer"), OLD),
    **dict.fromkeys(("LSTMGrad", "GRUGrad"), RECURRENT),
}
"""Why nothing answers; of Gist's operators, COMPRESSION."""


def rows() -> Iterator[tuple[str, str, str]]:
    """Of each operator its name, the types that ONNX Runtime has for it, and what answers it."""
    table_of_onnx = _functions()
    for entry in REGISTERED.replace(";", "\n").split("\n"):
        name, _, types = entry.strip().partition(" ")
        if name:
            yield name, types, _answer(name, table_of_onnx)


def _answer(name: str, functions: frozenset[str]) -> str:
    operators: Mapping[str, Operator] = dict(gradkern.operators())
    operator = operators.get(name)
    if operator is None:
        if name in functions:
            return "`gradkern.onnx`, by NumPy or PyTorch"
        return f"none: {COMPRESSION if name.startswith('Gist') else REASONS[name]}"
    types = " ".join(SHORT.get(each, each) for each in operator.data_types)
    return f"[{name}](operators.md), version {operator.since_version}, {types}{_elsewhere(name, operator, functions)}"


def _elsewhere(name: str, operator: Operator, functions: frozenset[str]) -> str:
    if "cuda" in operator.providers:
        return ""
    return f"; on the CPU, on a GPU {'`gradkern.onnx`' if name in functions else 'nothing yet'}"


def _functions() -> frozenset[str]:
    """The operators of gradkern.onnx.training_ops, without the packages that importing it needs."""
    tree = ast.parse((ROOT / "gradkern" / "onnx" / "training_ops.py").read_text(encoding="utf-8"))
    return frozenset(each.name for each in tree.body if isinstance(each, ast.FunctionDef) and each.decorator_list)


def onnx_operators() -> str:
    """The table, and the names of what gradkern.onnx has beside it."""
    every = list(rows())
    others = sorted(_functions() - {name for name, _, _ in every})
    here = table(("operator", "types on CUDA in ONNX Runtime", "here"), [(f"`{row[0]}`", *row[1:]) for row in every])
    also = ", ".join(f"`{name}`" for name in others)
    return f"{here}\n\n{textwrap.fill(f'Operators for inference that its training graphs hold, too: {also}.', 120)}"
