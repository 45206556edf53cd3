"""The gradients that the backward pass of a known network asks for.

Matrix products of linear layers are no operator of gradkern, so they are left out; the gradient of the first
convolution's input is nobody's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from conv_layers import LAYERS, Layer

import gradkern
from gradkern.contract.schema import Example

__all__ = ["NETWORKS", "Gradient", "gradients_of"]


@dataclass(frozen=True, slots=True)
class Gradient:
    """A call: an operator, the size of its problem, the outputs that are wanted and the order of its arrays."""

    operator: Any
    example: Example
    outputs: tuple[str, ...]
    order: str = "C"


def convolution(layer: Layer, first: bool = False, bias: bool = False) -> Gradient:
    """ConvGrad of a layer; of a network's first one without dX."""
    axes = {
        "N": layer.batch,
        "C": layer.channels,
        "M": layer.filters,
        "C_per_group": layer.channels // layer.group,
        "spatial": layer.spatial,
        "kernel": (layer.kernel,) * len(layer.spatial),
        "out": layer.out,
    }
    example = Example(axes=axes, attributes=dict(layer.attributes))
    outputs = [*(["dX"] if not first else []), "dW", *(["dB"] if bias else [])]
    return Gradient("ConvGrad", example, tuple(outputs), "channels_last")


def batch_norm(batch: int, channels: int, size: int) -> Gradient:
    example = Example(axes={"N": batch, "C": channels, "spatial": (size, size)})
    return Gradient("BatchNormalizationGrad", example, ("dX", "dScale", "dBias"), "channels_last")


def layer_norm(rows: Sequence[int], columns: int) -> Gradient:
    example = Example(axes={"rows": tuple(rows), "columns": (columns,)})
    return Gradient("LayerNormalizationGrad", example, ("X_grad", "scale_grad", "bias_grad"))


def gelu(rows: Sequence[int], columns: int) -> Gradient:
    example = Example(axes={"rows": tuple(rows), "columns": columns})
    return Gradient("BiasGeluGrad_dX", example, ("dX", "dB"))


def resnet50(batch: int) -> list[Gradient]:
    """ResNet-50 on images of 224 x 224; the stride is on the 3x3, as in PyTorch."""
    layers = [layer for layer in LAYERS if layer.network == "ResNet-50"]
    calls: list[Gradient] = []
    for layer in layers:
        calls.append(convolution(replace(layer, batch=batch), first=layer.channels == 3))
        calls.append(batch_norm(batch, layer.filters, layer.out[0]))
    return calls


def convnext_tiny(batch: int) -> list[Gradient]:
    """ConvNeXt-T on images of 224 x 224; its layer norms and GELU run over channels-last activations."""
    stages = [(96, 56), (192, 28), (384, 14), (768, 7)]
    stem = Layer("ConvNeXt-T", batch, 3, (224, 224), 96, 4, 4, padding=0)
    calls = [convolution(stem, first=True, bias=True)]
    before, larger = 0, 0
    for channels, size in stages:
        if before:
            smaller = Layer("ConvNeXt-T", batch, before, (larger, larger), channels, 2, 2, padding=0)
            calls.append(convolution(smaller, bias=True))
        depthwise = Layer("ConvNeXt-T", batch, channels, (size, size), channels, 7, group=channels)
        calls.append(convolution(depthwise, bias=True))
        calls.append(layer_norm((batch, size, size), channels))
        calls.append(gelu((batch, size, size), 4 * channels))
        before, larger = channels, size
    return [*calls, layer_norm((batch,), 768)]


NETWORKS: Mapping[str, tuple[Callable[[int], list[Gradient]], int]] = {
    "ResNet-50": (resnet50, 128),
    "ConvNeXt-T": (convnext_tiny, 64),
}
"""Of each network its gradients, by the batch, and the usual batch."""


def gradients_of(work: str, batch: int | None = None) -> list[Gradient]:
    """Of a network each signature once, in the order of a backward pass, the last layer first; of an operator the first
    of the registry's benchmark sizes.
    """
    if work in NETWORKS:
        made, usual = NETWORKS[work]
        calls = made(batch or usual)
        return [call for number, call in reversed(list(enumerate(calls))) if call not in calls[:number]]
    operator = gradkern.operators()[work]
    return [Gradient(work, operator.benchmarks[0], tuple(each.name for each in operator.outputs if not each.appended))]
