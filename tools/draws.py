"""Sizes, types and layouts drawn at random, for tools/sweep.py: the same for the same seed and number.

Numbers are equally likely on a logarithmic scale. Widths and channels are multiples of 64, of 8, or of nothing, with
equal chances: networks have the first, and a kernel's worst cases are among the last. Types of the data are equally
likely; every second time all arrays have the first registered types for them, else any.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import gradkern
from gradkern.contract.schema import Example, Operator

__all__ = ["KINDS", "Draw", "drawn"]

ITEMSIZE = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
MOST_MULTIPLICATIONS = 2e12  # of one gradient of a convolution: PyTorch takes up to 0.1 s in float64


@dataclass(frozen=True, slots=True)
class Draw:
    """What is to be measured; `kind` is one of KINDS."""

    kind: str
    operator: Any
    types: Mapping[str, str]
    example: Example
    outputs: tuple[str, ...]
    order: str = "C"


def drawn(kind: str, seed: int, number: int, least: float, most: float) -> Draw:
    """The draw of this number: a problem whose data, read and written, have between `least` and `most` bytes."""
    random = Random(f"{kind} {seed} {number} {least:g} {most:g}")
    while True:
        operator = random.choice(KINDS[kind].operators)
        types = _types(random, gradkern.operators()[operator])
        made = KINDS[kind].draw(random, kind, operator, types, _between(random, least, most))
        if made is not None:
            return made


def _types(random: Random, contract: Operator) -> Mapping[str, str]:
    data = random.choice(contract.data_types)
    rows = [row for row in contract.combinations if row[contract.data.type] == data]
    return random.choice((rows[0], random.choice(rows)))


def _rows(random: Random, kind: str, operator: str, types: Mapping[str, str], wanted: float) -> Draw | None:
    """A matrix, and what is made of its rows: the layer norms, GELU and softmax."""
    contract = gradkern.operators()[operator]
    columns = _width(random, 64, 65536)
    rows = round(wanted / (columns * _bytes_of_data(contract, types)))
    if rows < 1:
        return None
    outputs = tuple(each.name for each in contract.outputs if not each.appended and (kind != "gelu" or each.default))
    bound = {name: each.binds for name, each in contract.attributes.items() if each.binds is not None}
    attributes: dict[str, Any] = {name: types[variable] for name, variable in bound.items()}
    width = columns if not contract.axes["columns"].group else (columns,)
    example = Example(axes={"rows": (rows,), "columns": width}, attributes=attributes)
    return Draw(kind, operator, types, example, outputs)


def _across(random: Random, kind: str, operator: str, types: Mapping[str, str], wanted: float) -> Draw | None:
    """Rows across memory: softmax over an axis that is not the last."""
    columns, inner = _width(random, 4, 4096), _width(random, 8, 65536)
    rows = round(wanted / (columns * inner * _bytes_of_data(gradkern.operators()[operator], types)))
    if rows < 1:
        return None
    attributes: dict[str, Any] = {"axis": 1, "dX_type": types["T"]}
    return Draw(
        kind,
        operator,
        types,
        Example(axes={"rows": (rows,), "columns": (columns, inner)}, attributes=attributes),
        ("dX",),
    )


def _channels(random: Random, kind: str, operator: str, types: Mapping[str, str], wanted: float) -> Draw | None:
    """Images, or a matrix, with statistics of their channels: the batch norms."""
    contract = gradkern.operators()[operator]
    channels = _width(random, 4, 4096)
    rank = random.choice((0, 1, 2, 2, 2, 3))
    spatial = (round(_between(random, 4, {0: 4, 1: 4096, 2: 256, 3: 64}[rank])),) * rank
    batch = round(wanted / (channels * math.prod(spatial) * _bytes_of_data(contract, types)))
    if batch < 1 or batch * math.prod(spatial) < 2:
        return None
    order = random.choice(("C", "channels_last")) if spatial else "C"
    outputs = tuple(each.name for each in contract.outputs if not each.appended)
    if "sizes" in contract.axes:
        axes: dict[str, Any] = {"sizes": (batch, channels, *spatial), "statistics": (1, channels, *[1] * rank)}
        return Draw(kind, operator, types, Example(axes=axes, attributes={"Epsilon": 1e-5}), outputs, order)
    axes = {"N": batch, "C": channels, "spatial": spatial}
    return Draw(kind, operator, types, Example(axes=axes), outputs, order)


def _convolution(random: Random, kind: str, operator: str, types: Mapping[str, str], wanted: float) -> Draw | None:
    """A layer of a network with a kernel of equal sides, padded to keep the size where the stride is 1."""
    (dtype,) = types.values()
    rank = random.choice((1, 2, 2, 2, 3))
    kernel, stride = random.choice((1, 1, 3, 3, 3, 5, 7)), random.choice((1, 1, 1, 2))
    channels = _width(random, 8, 1024)
    spread = random.choice(("dense", "dense", "dense", "groups", "depthwise"))
    if spread == "depthwise":
        group, filters = channels, channels
    else:
        group = (
            random.choice([each for each in (2, 4, 8, 32) if channels % each == 0] or [1]) if spread != "dense" else 1
        )
        filters = group * max(1, round(channels * random.choice((0.25, 0.5, 1, 1, 2, 4)) / group))
    spatial = (round(_between(random, 7, {1: 16000, 2: 224, 3: 64}[rank])),) * rank
    pad = (kernel - 1) // 2
    out = tuple((size + 2 * pad - kernel) // stride + 1 for size in spatial)
    one = (2 * channels * math.prod(spatial) + filters * math.prod(out)) * ITEMSIZE[dtype]  # X, dX and dY
    batch = round(wanted / one)
    weights = filters * (channels // group) * kernel**rank
    if batch < 1 or batch * math.prod(out) * weights > MOST_MULTIPLICATIONS or 4 * weights * ITEMSIZE[dtype] > wanted:
        return None
    axes = {"N": batch, "C": channels, "M": filters, "C_per_group": channels // group, "spatial": spatial}
    axes |= {"kernel": (kernel,) * rank, "out": out}
    attributes = {"pads": (pad,) * 2 * rank, "strides": (stride,) * rank, "group": group}
    outputs = random.choice((("dX",), ("dW",), ("dX", "dW", "dB")))
    order = "channels_last" if ITEMSIZE[dtype] == 2 and rank > 1 else "C"
    return Draw(kind, operator, types, Example(axes=axes, attributes=attributes), outputs, order)


def _bytes_of_data(contract: Operator, types: Mapping[str, str]) -> int:
    """Of one element: what its inputs and outputs of the data's size take together."""
    data = contract.inputs[0].shape
    sizes = {each.name: ITEMSIZE[types[each.type]] for each in contract.inputs if each.shape == data}
    return sum(sizes.values()) + sum(ITEMSIZE[types[each.type]] for each in contract.outputs if each.like in sizes)


def _between(random: Random, least: float, most: float) -> float:
    return math.exp(random.uniform(math.log(least), math.log(most)))


def _width(random: Random, least: int, most: int) -> int:
    multiple = random.choice((1, 8, 64))
    number = max(1, round(_between(random, least, most) / multiple)) * multiple
    return min(max(number, least), most)


@dataclass(frozen=True, slots=True)
class Kind:
    """Operators that are drawn alike and judged together."""

    operators: tuple[str, ...]
    draw: Callable[[Random, str, str, Mapping[str, str], float], Draw | None]
    floor: float = 1.0
    """The share of the limit that the bytes which must be moved allow: reading inputs twice costs 5 moves for 3."""


_FORWARD = tuple(f"{kind}LayerNormalization" for kind in ("", "Simplified", "Skip", "SkipSimplified"))
_NORMS = ("LayerNormalizationGrad", "SimplifiedLayerNormalizationGrad", "InvertibleLayerNormalizationGrad")
_GELU = ("BiasGeluGrad_dX", "BiasFastGeluGrad_dX")
_SOFTMAX = ("SoftmaxGrad_13", "LogSoftmaxGrad_13")
KINDS: Mapping[str, Kind] = {
    "norm": Kind(_NORMS, _rows),
    "norm-forward": Kind(_FORWARD, _rows),
    "gelu": Kind(_GELU, _rows),
    "gelu-bias": Kind(_GELU, _rows),
    "softmax": Kind(_SOFTMAX, _rows),
    "softmax-inner": Kind(_SOFTMAX, _across),
    "batch-norm": Kind(("BatchNormalizationGrad",), _channels, floor=0.6),
    "dml-batch-norm": Kind(("DmlBatchNormalizationGrad",), _channels),
    "conv": Kind(("ConvGrad",), _convolution),
}
