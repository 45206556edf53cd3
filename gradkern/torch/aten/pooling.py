"""Backward kernels of max, average and adaptive average pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.aten.request import AtenRequest, Split, Translation, View, of_each_axis


def _split_max(grad: Any, x: Any, *rest: Any) -> Split:
    """Of x it is shape and memory order that decide."""
    *lists, ceil_mode, indices = rest
    return (grad, indices), (x.shape, x.stride(), *map(tuple, lists), ceil_mode)


def _split_average(grad: Any, x: Any, kernel_size: Any, stride: Any, padding: Any, *rest: Any) -> Split:
    return (grad,), (x.shape, x.stride(), tuple(kernel_size), tuple(stride), tuple(padding), *rest)


def _split_adaptive(grad: Any, x: Any) -> Split:
    return (grad,), (x.shape, x.stride())


def _max_pool(rank: int) -> Callable[..., AtenRequest]:
    def request(
        grad: Any, x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: Any
    ) -> AtenRequest:
        windows = _windows(rank, kernel_size, stride, padding, ceil_mode)
        attributes = {**windows, "dilations": of_each_axis(dilation, rank), "index_base": "plane"}
        return _request("MaxPoolGrad", rank, x, {"dY": grad, "Indices": indices}, attributes)

    return request


def _average_pool(rank: int) -> Callable[..., AtenRequest]:
    def request(
        grad: Any, x: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, padded: bool, divisor: Any
    ) -> AtenRequest:
        windows = _windows(rank, kernel_size, stride, padding, ceil_mode)
        attributes = {**windows, "count_include_pad": int(padded)}
        attributes |= {} if divisor is None else {"divisor_override": divisor}
        return _request("AveragePoolGrad", rank, x, {"dY": grad}, attributes)

    return request


def _adaptive_pool(rank: int) -> Callable[..., AtenRequest]:
    return lambda grad, x: _request("AdaptiveAveragePoolGrad", rank, x, {"dY": grad}, {})


def like(model: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """What a result of this shape looks like that is channels-last in memory where `model` is."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    last = formats.get(model.dim())
    order = torch.contiguous_format
    if last is not None and model.is_contiguous(memory_format=last) and not model.is_contiguous():
        order = last
    return torch.empty(tuple(shape), dtype=model.dtype, device="meta", memory_format=order)


def _like_input(grad: torch.Tensor, x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return like(x, x.shape)


def _request(operator: str, rank: int, x: Any, inputs: dict[str, Any], attributes: dict[str, Any]) -> AtenRequest:
    """A sample without a batch is a batch of one."""
    views: dict[str, View] = {}
    if x.dim() == rank + 1:
        views = dict.fromkeys((*inputs, "dX"), lambda each: each.unsqueeze(0))
    given = {"input_size": tuple(x.shape[-rank:]), **attributes}
    return AtenRequest(operator, inputs, ("dX",), given, views)


def _windows(rank: int, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool) -> dict[str, Any]:
    pads = of_each_axis(padding, rank)
    return {
        "kernel_shape": of_each_axis(kernel_size, rank),
        "strides": of_each_axis(stride or kernel_size, rank),
        "pads": (*pads, *pads),
        "ceil_mode": int(ceil_mode),
    }


_KINDS = (
    ("max_pool{}d_with_indices_backward", _split_max, _max_pool),
    ("avg_pool{}d_backward", _split_average, _average_pool),
    ("_adaptive_avg_pool{}d_backward", _split_adaptive, _adaptive_pool),
)
TRANSLATIONS = tuple(
    Translation(name.format(rank), "pooling", split, request(rank), result=_like_input)
    for rank in (2, 3)
    for name, split, request in _KINDS
)
