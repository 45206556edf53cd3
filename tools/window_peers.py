"""PyTorch's operators for gradkern's pools, resizing and rotary embeddings: see peers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod
from typing import Any

__all__ = ["WINDOWS"]

Tensors = Mapping[str, Any]
Attributes = Mapping[str, Any]


def _windows(attributes: Attributes, rank: int) -> tuple[list[int], ...] | None:
    """kernel_shape, strides, pads, dilations, with two axes where there is one; None where PyTorch has no such pads."""
    pads = list(attributes.get("pads", [0] * (2 * rank)))
    if pads[:rank] != pads[rank:] or attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    found = attributes["kernel_shape"], attributes.get("strides", [1] * rank), pads[:rank]
    found = (*found, attributes.get("dilations", [1] * rank))
    first = [1, 1, 0, 1] if rank == 1 else []
    return tuple([*first[at : at + 1], *each] for at, each in enumerate(found))


def _planes(array: Any) -> Any:
    """With two spatial axes where it has one: PyTorch's pools of one axis are those of two."""
    return array.unsqueeze(2) if array.ndim == 3 else array


def _max_pool(aten: Any, t: Tensors, attributes: Attributes, outputs: tuple[str, ...]) -> Any:
    X = t["X"]
    windows, ceil = _windows(attributes, X.ndim - 2), bool(attributes.get("ceil_mode"))
    if windows is None:
        return None
    kernel, strides, pads, dilations = windows
    pool = aten.max_pool3d_with_indices if X.ndim == 5 else aten.max_pool2d_with_indices
    planes = _planes(X)
    return lambda: pool(planes, kernel, strides, pads, dilations, ceil)[0]


def _max_pool_gradient(aten: Any, t: Tensors, attributes: Attributes, outputs: tuple[str, ...]) -> Any:
    dY, indices = t["dY"], t["Indices"]
    size = [*dY.shape[:2], *attributes["input_size"]]
    windows, ceil = _windows(attributes, dY.ndim - 2), bool(attributes.get("ceil_mode"))
    if windows is None or indices.element_size() != 8:
        return None
    kernel, strides, pads, dilations = windows
    if attributes.get("index_base", "tensor") == "tensor":
        indices = indices % prod(size[2:])
    X = _planes(dY.new_empty(size))  # for its shape and order
    if dY.ndim > 3 and dY.stride(1) == 1:
        X = X.contiguous(memory_format=_channels_last(dY.ndim))
    gradient = getattr(aten, f"max_pool{X.ndim - 2}d_with_indices_backward")
    dY, indices = _planes(dY), _planes(indices)
    return lambda: gradient(dY, X, kernel, strides, pads, dilations, ceil, indices)


def _channels_last(ndim: int) -> Any:
    import torch  # pyright: ignore[reportMissingImports]

    return torch.channels_last_3d if ndim == 5 else torch.channels_last


def _average_pool_gradient(aten: Any, t: Tensors, attributes: Attributes, outputs: tuple[str, ...]) -> Any:
    dY = t["dY"]
    windows = _windows(attributes, dY.ndim - 2)
    if windows is None or set(windows[3]) != {1}:
        return None
    include, divisor = bool(attributes.get("count_include_pad")), attributes.get("divisor_override")
    X, dY = _planes(dY.new_empty([*dY.shape[:2], *attributes["input_size"]])), _planes(dY)
    gradient = aten.avg_pool3d_backward if X.ndim == 5 else aten.avg_pool2d_backward
    return lambda: gradient(dY, X, *windows[:3], bool(attributes.get("ceil_mode")), include, divisor)


def _global_pool_gradient(aten: Any, t: Tensors, attributes: Attributes, outputs: tuple[str, ...]) -> Any:
    dY, size = t["dY"], list(attributes["input_size"])
    return lambda: (dY.expand(*dY.shape[:2], *size) / prod(size)).contiguous()


def _adaptive_pool_gradient(aten: Any, t: Tensors, attributes: Attributes, outputs: tuple[str, ...]) -> Any:
    dY = t["dY"]
    X, dY = _planes(dY.new_empty([*dY.shape[:2], *attributes["input_size"]])), _planes(dY)
    gradient = aten._adaptive_avg_pool3d_backward if X.ndim == 5 else aten._adaptive_avg_pool2d_backward
    return lambda: gradient(dY, X)


def _resize_gradient(aten: Any, t: Tensors, attributes: Attributes, outputs: tuple[str, ...]) -> Any:
    dY, input_size = t["dY"], attributes.get("input_size")
    mode, way = (
        attributes.get("mode", "nearest"),
        attributes.get("coordinate_transformation_mode", "half_pixel"),
    )
    rank = dY.ndim - 2
    if input_size is None or attributes.get("exclude_outside") or attributes.get("antialias"):  # PyTorch's: of both
        return None
    size, ratios = [*dY.shape[:2], *input_size], [None] * rank
    if mode == "nearest":
        whole = all(out % size == 0 for out, size in zip(dY.shape[2:], input_size, strict=True))
        if (way, attributes.get("nearest_mode")) == ("asymmetric", "floor"):
            gradient = getattr(aten, f"upsample_nearest{rank}d_backward")
        elif (way, attributes.get("nearest_mode", "round_prefer_floor")) == (
            "half_pixel",
            "round_prefer_floor",
        ) and whole:
            gradient = getattr(aten, f"_upsample_nearest_exact{rank}d_backward")  # which differs in ties alone
        else:
            return None
        return lambda: gradient(dY, list(dY.shape[2:]), size, *ratios)
    name = {"linear1": "linear1d", "linear2": "bilinear2d", "linear3": "trilinear3d", "cubic2": "bicubic2d"}
    form = name.get(f"{mode}{rank}")
    if form is None or way not in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        return None
    gradient = getattr(aten, f"upsample_{form}_backward")
    return lambda: gradient(dY, list(dY.shape[2:]), size, way == "align_corners", *ratios)


def _rotary(backward: bool, aten: Any, t: Tensors, attributes: Attributes, outputs: tuple[str, ...]) -> Any:
    x, cos, sin = t["dY" if backward else "X"], t["cos_cache"], t["sin_cache"]
    if x.ndim != 4 or attributes.get("rotary_embedding_dim"):
        return None
    if "position_ids" in t:
        cos, sin = cos[t["position_ids"].long()], sin[t["position_ids"].long()]
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1) * (-1 if backward else 1)

    def call() -> Any:
        half = cos.shape[-1]
        turned, rest = x[..., : 2 * half], x[..., 2 * half :]
        if attributes.get("interleaved"):
            a, b = turned[..., ::2], turned[..., 1::2]
            return aten.cat([aten.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2), rest], -1)
        a, b = turned[..., :half], turned[..., half:]
        return aten.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)

    return call


WINDOWS: dict[str, Any] = {
    "MaxPool": _max_pool,
    "MaxPoolGrad": _max_pool_gradient,
    "AveragePoolGrad": _average_pool_gradient,
    "GlobalAveragePoolGrad": _global_pool_gradient,
    "AdaptiveAveragePoolGrad": _adaptive_pool_gradient,
    "ResizeGrad": _resize_gradient,
    "RotaryEmbedding": partial(_rotary, False),
    "RotaryEmbeddingGrad": partial(_rotary, True),
}
