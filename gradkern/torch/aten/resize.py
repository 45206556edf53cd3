"""Backward kernels of resizing: nearest, linear and cubic, the last two also with antialiasing, as Lanczos is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.aten.pooling import like
from gradkern.torch.aten.request import AtenRequest, Split, Translation


def _split(grad: Any, output_size: Any, input_size: Any, *rest: Any) -> Split:
    return (grad,), (tuple(output_size), tuple(input_size), *rest)


def _like_gradient(grad: torch.Tensor, output_size: Any, input_size: Any, *_: Any, **__: Any) -> torch.Tensor:
    return like(grad, input_size)


def _smooth(mode: str) -> Callable[..., AtenRequest]:
    """linear or cubic"""

    def request(grad: Any, output_size: Any, input_size: Any, align_corners: bool, *scales: Any) -> AtenRequest:
        if align_corners:
            sizes = zip(input_size[2:], output_size, strict=True)
            steps = [(size - 1) / (outputs - 1) if outputs > 1 else 0.0 for size, outputs in sizes]
        else:
            steps = _copying(_steps(input_size, output_size, scales), input_size, output_size)
            if mode == "linear" and grad.device.type == "cpu":
                steps = _known(steps, input_size, output_size, {1: 1.0})
        transformation = "align_corners" if align_corners else "half_pixel"
        return _request(grad, input_size, steps, mode=mode, coordinate_transformation_mode=transformation)

    return request


def _antialiased(mode: str) -> Callable[..., AtenRequest]:
    def request(grad: Any, output_size: Any, input_size: Any, align_corners: bool, *scales: Any) -> AtenRequest:
        """By half pixels always: align_corners only changes the distance of outputs."""
        sizes = zip(input_size[2:], output_size, strict=True)
        steps = _steps(input_size, output_size, scales)
        if align_corners:
            steps = [(size - 1) / (outputs - 1) if outputs > 1 else 0.0 for size, outputs in sizes]
        if grad.device.type != "cpu":
            steps = _copying(steps, input_size, output_size)
        filtered = {"mode": mode, "antialias": 1, "exclude_outside": 1, "cubic_coeff_a": -0.5}
        return _request(grad, input_size, steps, coordinate_transformation_mode="half_pixel", **filtered)

    return request


def _nearest(exact: bool) -> Callable[..., AtenRequest]:
    def request(grad: Any, output_size: Any, input_size: Any, *scales: Any) -> AtenRequest:
        steps = _steps(input_size, output_size, scales)
        if grad.device.type != "cpu":
            steps = _copying(steps, input_size, output_size) if len(steps) == 2 else steps
        elif not exact:
            steps = _known(steps, input_size, output_size, {1: 1.0, 2: 0.5})
        transformation = "tf_half_pixel_for_nn" if exact else "asymmetric"
        return _request(
            grad,
            input_size,
            steps,
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode=transformation,
        )

    return request


def _copying(steps: list[float], input_size: Any, output_size: Any) -> list[float]:
    """1 along each axis where none changes its size, whatever scales are given: PyTorch's kernels copy then."""
    return [1.0] * len(steps) if tuple(input_size[2:]) == tuple(output_size) else steps


def _known(steps: list[float], input_size: Any, output_size: Any, known: dict[int, float]) -> list[float]:
    """The step of each axis whose size is multiplied by one of these: PyTorch's kernels look at sizes first."""
    sizes = zip(input_size[2:], output_size, steps, strict=True)
    return [next((known[by] for by in known if by * size == outputs), step) for size, outputs, step in sizes]


def _steps(input_size: Any, output_size: Any, scales: tuple[Any, ...]) -> list[float]:
    """Inputs from one output to the next, as PyTorch has them: of a scale that is given, else of the sizes."""
    given = (*scales, *[None] * (len(output_size) - len(scales)))
    return [
        1 / scale if scale is not None and scale > 0 else size / outputs
        for size, outputs, scale in zip(input_size[2:], output_size, given, strict=True)
    ]


def _request(grad: Any, input_size: Any, steps: list[float], **attributes: Any) -> AtenRequest:
    given = {"input_size": tuple(input_size[2:]), "source_steps": tuple(steps), **attributes}
    return AtenRequest("ResizeGrad", {"dY": grad}, ("dX",), given)


_REQUESTS = {
    "upsample_linear1d": _smooth("linear"),
    "upsample_bilinear2d": _smooth("linear"),
    "upsample_trilinear3d": _smooth("linear"),
    "upsample_bicubic2d": _smooth("cubic"),
    "_upsample_bilinear2d_aa": _antialiased("linear"),
    "_upsample_bicubic2d_aa": _antialiased("cubic"),
    "_upsample_lanczos2d_aa": _antialiased("lanczos"),  # of PyTorch 2.13 on, for the CPU alone
    **{f"upsample_nearest{rank}d": _nearest(exact=False) for rank in (1, 2, 3)},
    **{f"_upsample_nearest_exact{rank}d": _nearest(exact=True) for rank in (1, 2, 3)},
}
TRANSLATIONS = tuple(
    Translation(f"{name}_backward", "resize", _split, request, measured=0, result=_like_gradient)
    for name, request in _REQUESTS.items()
)
