"""The calls that a pack has kernels for: sizes of known models, and the registry's benchmarks of all operators without
such, in the form of `gradkern warmup --calls`.

It lists calls and no kernels: only the planner decides the kernels of a call on a GPU. What is not here is compiled
when it is first needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from gradkern.contract import registry
from gradkern.contract.schema import Operator

WIDTHS = (
    # heads (of query and key norms), and the stages of vision models
    *(32, 40, 48, 64, 72, 80, 96, 112, 128, 160, 192, 224, 240, 256, 288, 320, 352, 384, 432, 448, 480, 512),
    # transformers of language and vision
    *(576, 640, 704, 768, 864, 896, 960, 1024, 1152, 1280, 1344, 1408, 1440, 1536, 1600, 1664, 1728, 1792, 1920),
    *(2048, 2240, 2304, 2560, 2688, 2816, 2880, 3072, 3200, 3328, 3584, 3840, 4096, 4544, 4608, 5120, 5376, 5632),
    *(6144, 6656, 7168, 7680, 8192, 9216, 10240, 12288, 14336, 16384),
)
"""Columns of layer norms."""
HIDDEN = (
    *(384, 512, 768, 1024, 1152, 1536, 2048, 2304, 2560, 3072, 3584, 4096, 4304, 4608, 5120, 6144, 6656, 7168, 8192),
    *(10240, 12288, 14336, 16384),
)
"""Columns of GELU: what follows the first linear layer of a transformer's block."""
KEYS = (49, 64, 128, 196, 197, 256, 384, 512, 577, 768, 1000, 1024, 1500, 2048, 4096)
"""Columns of softmax: keys that a query attends to, and classes."""
FEW, MANY = 64, 8192
"""Rows: few, as of pooled features, and many. Kernels differ where a GPU has more multiprocessors than rows."""

IMAGES = (
    # ResNet-18, ResNet-50: channels and height; the stem's first
    *((64, 112), (64, 56), (256, 56), (128, 56), (128, 28), (512, 28), (256, 28), (256, 14), (1024, 14), (512, 14)),
    *((512, 7), (2048, 7)),
    # EfficientNet-B0, MobileNetV2
    *((32, 112), (16, 112), (96, 112), (96, 56), (24, 56), (144, 56), (144, 28), (40, 28), (240, 28), (240, 14)),
    *((80, 14), (480, 14), (112, 14), (672, 14), (672, 7), (192, 7), (1152, 7), (320, 7), (1280, 7), (192, 28)),
    *((32, 28), (64, 14), (384, 14), (96, 14), (576, 14), (576, 7), (160, 7), (960, 7)),
)
"""Of batch norms, whose kernels the batch hardly changes."""
DEPTHWISE = (  # channels, height, kernel, stride
    # ConvNeXt-T, -S, -B, -L
    *((channels, height, 7, 1) for channels, height in ((96, 56), (192, 28), (384, 14), (768, 7), (192, 56))),
    *((channels, height, 7, 1) for channels, height in ((128, 56), (256, 28), (512, 14), (1024, 7), (1536, 7))),
    # EfficientNet-B0
    *((32, 112, 3, 1), (96, 112, 3, 2), (144, 56, 3, 1), (144, 56, 5, 2), (240, 28, 5, 1), (240, 28, 3, 2)),
    *((480, 14, 3, 1), (480, 14, 5, 1), (672, 14, 5, 1), (672, 14, 5, 2), (1152, 7, 5, 1), (1152, 7, 3, 1)),
)
DENSE = (  # channels, height, filters, kernel, stride, pads
    # ResNet-18, ResNet-50: the stem, both kernels, with and without a stride
    *((3, 224, 64, 7, 2, 3), (64, 56, 64, 3, 1, 1), (64, 56, 256, 1, 1, 0), (256, 56, 64, 1, 1, 0)),
    *((128, 56, 128, 3, 2, 1), (256, 56, 512, 1, 2, 0), (512, 7, 512, 3, 1, 1), (2048, 7, 512, 1, 1, 0)),
    # ConvNeXt-T, ViT: patches
    *((3, 224, 96, 4, 4, 0), (96, 56, 192, 2, 2, 0), (3, 224, 768, 16, 16, 0)),
)
"""Convolutions whose candidates are cuDNN's, and matrix products with kernels of gradkern's own around them. Few others
of such models need those.
"""
BIASES = ((96, 56), (192, 28), (384, 14), (768, 7), (128, 56), (256, 28), (512, 14), (1024, 7))
"""Channels and height of ConvNeXt's convolutions. They have a bias."""
DIFFUSION = ((128, 64), (256, 32), (512, 16), (320, 64), (640, 32), (1280, 16), (1280, 8))
"""Channels and height of group norms in diffusion models."""
_DIFFUSION_BATCH = 32
BATCH = 64
_POOLED = 2048  # columns of pooled features, at most
HALF = ("bfloat16", "float16")
DATA = ("float32", *HALF)

Call = dict[str, Any]


def calls() -> Iterator[Call]:
    """All of them. Calls that share a kernel cost nothing more: it is compiled once."""
    listed: set[str] = set()
    for call in _of_models():
        listed.add(call["op"])
        yield call
    for name, operator in registry.operators().items():
        if "cuda" in operator.providers and name not in listed:
            yield from _of_registry(name, operator)


def _of_registry(name: str, operator: Operator) -> Iterator[Call]:
    """The benchmarks of an operator that has no sizes here."""
    for example in operator.benchmarks:
        sizes, attributes = (
            {key: list(value) if isinstance(value, tuple) else value for key, value in each.items()}
            for each in (example.axes, example.attributes)
        )
        for data in operator.data_types:
            if data in DATA:
                yield {"op": name, "axes": sizes, "types": data, "attributes": attributes}


def _of_models() -> Iterator[Call]:
    yield from _layer_norms()
    yield from _gelus()
    yield from _softmaxes()
    yield from _batch_norms()
    yield from _group_norms()
    yield from _convolutions()


def _layer_norms() -> Iterator[Call]:
    """As PyTorch has them: of one type, or of 16 bits with float32 parameters; the statistics in float32."""
    most = [("bfloat16", "bfloat16"), ("float32", "float32")]
    every = [*most, ("float16", "float16"), ("bfloat16", "float32")]
    for name, kinds, rows in (
        ("LayerNormalization", every, MANY),
        ("LayerNormalization", most, FEW),
        ("SimplifiedLayerNormalization", every, MANY),
        ("LayerNormalizationGrad", every, MANY),
        ("LayerNormalizationGrad", most, FEW),
        ("SimplifiedLayerNormalizationGrad", every, MANY),
        ("InvertibleLayerNormalizationGrad", most, MANY),
        ("SkipLayerNormalization", every, MANY),
        ("SkipSimplifiedLayerNormalization", every, MANY),
    ):
        skips = name.startswith("Skip")
        for data, parameter in kinds:
            types = {"G": data, "T": data, "V": parameter, "U": "float32"}
            if skips or name in ("LayerNormalizationGrad", "SimplifiedLayerNormalizationGrad"):
                types["S"] = data
            for columns in WIDTHS:
                if rows == MANY or columns <= _POOLED:
                    axes = {"rows": [rows], "columns": columns if skips else [columns]}
                    yield {"op": name, "axes": axes, "types": types}


def _gelus() -> Iterator[Call]:
    gradient: tuple[list[str], ...] = (["dX"], ["dX", "dB"])
    for name, outputs in (
        *(("BiasGeluGrad_dX", gradient), ("BiasFastGeluGrad_dX", gradient)),
        *(("BiasGelu", (["C"],)), ("BiasFastGelu", (["C"],))),
    ):
        for data, columns, wanted in product(DATA, HIDDEN, outputs):
            axes = {"rows": [MANY], "columns": columns}
            yield {"op": name, "axes": axes, "types": {"T": data, "TB": data}, "outputs": wanted}


def _softmaxes() -> Iterator[Call]:
    """Of the last axis: attention's rows and the classes of small heads."""
    names = ("SoftmaxGrad", "SoftmaxGrad_13", "LogSoftmaxGrad", "LogSoftmaxGrad_13")
    for name, data, columns in product(names, DATA, KEYS):
        yield {"op": name, "axes": {"rows": [MANY], "columns": [columns]}, "types": {"G": data, "T": data}}


def _batch_norms() -> Iterator[Call]:
    """In both orders of memory; of 16 bits with float32 parameters, as PyTorch's autocast has them."""
    for (channels, height), data in product(IMAGES, DATA):
        shape = (BATCH, channels, height, height)
        axes = {"N": BATCH, "C": channels, "spatial": [height, height]}
        types = {"T": data, "T1": "float32", "T2": "float32"}
        yield from _orders({"op": "BatchNormalizationGrad", "axes": axes, "types": types}, ("dY", "X"), shape)
        if data in HALF:
            yield from _activated_batch_norms(axes, {**types, "U": "float32"}, shape)
        dml = {"sizes": [*shape], "statistics": [1, channels, 1, 1]}
        call = {"op": "DmlBatchNormalizationGrad", "axes": dml, "types": data, "attributes": {"Epsilon": 1e-5}}
        yield from _orders(call, ("Input", "InputGradient"), shape)


def _activated_batch_norms(axes: Mapping[str, Any], types: Mapping[str, str], shape: tuple[int, ...]) -> Iterator[Call]:
    """Channels last, as of 16 bits they are fast: a batch norm by itself, and with ReLU also after a residual."""
    results = ["Y", "running_mean", "running_var", "saved_mean", "saved_inv_std"]
    for activation, residual in (("none", []), ("relu", []), ("relu", ["Z"])):
        call = {"op": "BatchNormalization", "axes": axes, "types": types, "outputs": results}
        yield call | {
            "inputs": ["X", "scale", "B", "input_mean", "input_var", *residual],
            "attributes": {"activation": activation, "unbiased": 1},
            "strides": _last(dict.fromkeys(["X", *residual], shape), types["T"]),
        }
    types = {name: each for name, each in types.items() if name != "U"}
    for more, outputs in ((["B"], []), (["Y"], ["dZ"]), (["Y", "dY2"], ["dZ"])):
        data = ["dY", "X", *(name for name in more if name != "B")]
        call = {"op": "BatchNormalizationGrad", "axes": axes, "types": types, "attributes": {"activation": "relu"}}
        yield call | {
            "inputs": ["dY", "X", "Scale", "saved_mean", "saved_inv_std", *more],
            "outputs": ["dX", "dScale", "dBias", *outputs],
            "strides": _last(dict.fromkeys(data, shape), types["T"]),
        }


def _group_norms() -> Iterator[Call]:
    """With SiLU, as diffusion models have them, in both orders; GroupNorm is the forward pass of graphs of ONNX."""
    for (channels, height), data in product(DIFFUSION, DATA):
        shape = (_DIFFUSION_BATCH, channels, height, height)
        sizes = {"N": _DIFFUSION_BATCH, "C": channels, "spatial": [height, height]}
        common = {"axes": sizes, "types": {"T": data, "M": "float32", "U": "float32"}}
        forward = {"op": "GroupNormalization", "attributes": {"num_groups": 32, "activation": "silu"}}
        yield from _orders({**common, **forward, "outputs": ["Y", "mean", "inv_std"]}, ("X",), shape)
        backward = {"op": "GroupNormGrad", "attributes": {"groups": 32, "activation": "silu"}}
        yield from _orders({**common, **backward}, ("dY", "X"), shape)
        yield {**common, "op": "GroupNorm", "attributes": {"groups": 32, "activation": 1}}
        yield from _orders({**common, "op": "InstanceNormalization"}, ("input",), shape)


def _convolutions() -> Iterator[Call]:
    for data in DATA:
        for channels, height, filters, kernel, stride, pad in DENSE:
            attributes = {"pads": [pad] * 4, "strides": [stride] * 2}
            backward, shapes = _convolution(data, channels, height, filters, kernel, attributes)
            call = {**backward, "outputs": ["dX", "dW"]}
            yield call
            yield {**call, "strides": _last(shapes, data)}
            forward = {**call, "op": "Conv", "inputs": ["X", "W"], "outputs": ["Y"]}
            yield forward
            yield {**forward, "strides": _last({name: shapes[name] for name in ("X", "W")}, data)}
        for channels, height, kernel, stride in DEPTHWISE:
            attributes = {"pads": [kernel // 2] * 4, "strides": [stride] * 2, "group": channels}
            backward, shapes = _convolution(data, channels, height, channels, kernel, attributes)
            last = data == "bfloat16"  # where channels last are usual
            call = {**backward, "outputs": ["dX", "dW"]}
            yield call
            if last:
                yield {**call, "strides": _last({name: shapes[name] for name in ("dY", "X")}, data)}
            forward = {**call, "op": "Conv", "inputs": ["X", "W", "B"] if kernel == 7 else ["X", "W"], "outputs": ["Y"]}
            yield forward
            if last:
                yield {**forward, "strides": _last({"X": shapes["X"]}, data)}
        for channels, height in BIASES:
            call, shapes = _convolution(data, channels, height, channels, 1, {})
            del call["attributes"]
            yield from _orders({**call, "outputs": ["dB"]}, ("dY", "X"), shapes["X"])


def _convolution(
    data: str, channels: int, height: int, filters: int, kernel: int, attributes: Mapping[str, Any]
) -> tuple[Call, dict[str, tuple[int, ...]]]:
    """ConvGrad of square images, and the shapes of dY, X and W."""
    pads, strides, group = attributes.get("pads", [0]), attributes.get("strides", [1]), attributes.get("group", 1)
    out, of_each = (height + 2 * pads[0] - kernel) // strides[0] + 1, channels // group
    sizes = {"N": BATCH, "C": channels, "M": filters, "C_per_group": of_each}
    axes = {**sizes, "spatial": [height] * 2, "kernel": [kernel] * 2, "out": [out] * 2}
    shapes = {"dY": (BATCH, filters, out, out), "X": (BATCH, channels, height, height)}
    call = {"op": "ConvGrad", "axes": axes, "types": data, "attributes": attributes}
    return call, {**shapes, "W": (filters, of_each, kernel, kernel)}


def _orders(call: Call, names: Sequence[str], shape: tuple[int, ...]) -> Iterator[Call]:
    """The call with N C H W, and with channels last."""
    data = call["types"] if isinstance(call["types"], str) else call["types"]["T"]
    yield call
    yield {**call, "strides": _last(dict.fromkeys(names, shape), data)}


def _last(shapes: Mapping[str, tuple[int, ...]], data: str) -> dict[str, list[int]]:
    """Strides in bytes of arrays with their channels last."""
    size = 4 if data == "float32" else 2
    return {
        name: [size * prod(shape[1:]), size, size * shape[1] * shape[3], size * shape[1]]
        for name, shape in shapes.items()
    }
