"""Rotary position embeddings of queries and keys, one pass each way, in their own order of memory."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.errors import ShapeError
from gradkern.torch.counter import count_call
from gradkern.torch.direct import Direct, is_eager, needs_pytorch
from gradkern.torch.functional.arguments import require_floats
from gradkern.torch.operators import registered

Tensor = torch.Tensor
_FORWARD_PASS = Direct("RotaryEmbedding", ("Y",))
_BACKWARD_PASS = Direct("RotaryEmbeddingGrad", ("dX",))


def rotary_embedding(input: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:  # noqa: A002
    """Turn pairs of elements of queries or keys by the angles of their positions, as Llama's and GPT-J's layers do.

    input        (batch, heads, sequence, D), of any strides; the result has its order of memory
    cos, sin     (batch, sequence, R/2), (1, sequence, R/2) or (sequence, R/2): of each pair's angle, in the input's
                 type or float32. Of a table with two equal halves, as transformers makes it, pass cos[..., : R // 2]
    interleaved  pairs are (x[2k], x[2k + 1]); else (x[k], x[k + R/2]). Elements from R on stay as they are

    The backward pass turns the gradient back. Cosines and sines get gradients, too, where they need them: by PyTorch.

    Source: ONNX, RotaryEmbedding 23. Raises ArgumentError, DTypeError and ShapeError for what does not fit.

    >>> x = torch.randn(2, 4, 16, 8)
    >>> angles = torch.arange(16.0)[:, None] / 10000 ** (torch.arange(4) / 4)
    >>> gradkern.torch.rotary_embedding(x, angles.cos(), angles.sin()).shape
    torch.Size([2, 4, 16, 8])
    """
    require_floats("rotary_embedding", input=input, cos=cos, sin=sin)
    if input.dim() != 4:
        raise ShapeError(
            f"rotary_embedding: input has shape {tuple(input.shape)}; expected (batch, heads, sequence, elements)"
        )
    lines = (input.shape[0], input.shape[2])
    half = cos.shape[-1] if cos.dim() else 0
    for name, each in (("cos", cos), ("sin", sin)):
        shapes = ((*lines, half), (1, lines[1], half), (lines[1], half))
        if each.shape not in shapes or 2 * half > input.shape[-1]:
            raise ShapeError(
                f"rotary_embedding: {name} has shape {tuple(each.shape)}; expected {shapes[0]}, {shapes[1]} or "
                f"{shapes[2]}, with at most {input.shape[-1] // 2} angles"
            )
    if not is_eager() or needs_pytorch(input, cos, sin) or not _fits(input, cos, sin):
        return _spelled_out(input, cos, sin, interleaved)
    count_call("rotary_embedding", input)
    cos, sin = (each.expand(*lines, half) for each in (cos, sin))
    return _Rotary.apply(input, cos, sin, interleaved)  # pyright: ignore[reportReturnType]


def _fits(x: Tensor, cos: Tensor, sin: Tensor) -> bool:
    constant = not (cos.requires_grad or sin.requires_grad)
    known = registered("RotaryEmbedding", x.device.type, T=x.dtype, C=cos.dtype)
    return constant and known and cos.dtype is sin.dtype


def _spelled_out(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """In PyTorch's functions, in the widest of the types and rounded to the input's."""
    half = cos.shape[-1]
    cos, sin = (each if each.dim() == 2 else each[:, None] for each in (cos, sin))
    turned, rest = x[..., : 2 * half], x[..., 2 * half :]
    x1, x2 = (turned[..., ::2], turned[..., 1::2]) if interleaved else turned.tensor_split(2, -1)
    y1, y2 = x1 * cos - x2 * sin, x2 * cos + x1 * sin
    y = torch.stack((y1, y2), -1).flatten(-2) if interleaved else torch.cat((y1, y2), -1)
    return torch.cat((y.to(x.dtype), rest), -1)


class _Rotary(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(cos, sin)
        ctx.interleaved = interleaved
        return _FORWARD_PASS((True,), (x, cos, sin), (("interleaved", int(interleaved)),))[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        cos, sin = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            return rotary_embedding(grad, cos, -sin, ctx.interleaved), None, None, None
        return _BACKWARD_PASS((True,), (grad, cos, sin), (("interleaved", int(ctx.interleaved)),))[0], None, None, None
