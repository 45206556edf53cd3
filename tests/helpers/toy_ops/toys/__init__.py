"""What the toy operators ask of their attributes beyond the registry's rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gradkern.errors import ShapeError


def resolve(axes: Mapping[str, Any], attributes: Mapping[str, Any], names: Collection[str] = ()) -> Mapping[str, Any]:
    """The attributes; raises ShapeError for a slice or a window's output of another shape than in the forward pass."""
    if "starts" in attributes:
        steps = attributes.get("steps") or (1,) * len(attributes["starts"])
        cuts = zip(axes["data"], attributes["starts"], attributes["ends"], steps, strict=False)
        expected = tuple(len(range(start, end, step)) for _, start, end, step in cuts)
        expected += axes["data"][len(expected) :]
        if axes["sliced"] != expected:
            raise ShapeError(f"input dY has shape {axes['sliced']}; the slice has {expected}")
    scales = attributes.get("scales")
    if isinstance(scales, tuple) and "X" in names:
        expected = tuple(int(size * scale) for size, scale in zip(axes["spatial"], scales[2:], strict=True))
        if axes["out"] != expected:
            raise ShapeError(f"input dY has spatial shape {axes['out']}; the forward pass gives {expected}")
    if "kernel_shape" in attributes and "spatial" in axes:
        windows = zip(axes["spatial"], attributes["kernel_shape"], attributes["strides"], strict=True)
        expected = tuple((size - kernel) // stride + 1 for size, kernel, stride in windows)
        if axes["out"] != expected:
            raise ShapeError(f"input dY has spatial shape {axes['out']}; the forward pass gives {expected}")
    return attributes
