"""embedding_dense_backward."""

from __future__ import annotations

from typing import Any

from gradkern.torch.aten.request import AtenRequest, Declined, Translation, two_tensors


def _embedding(grad: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool) -> AtenRequest:
    """A negative padding_idx is none, as in PyTorch's kernels."""
    if scale_grad_by_freq:
        raise Declined("scale_grad_by_freq divides by how often each index is there")
    if grad.shape[:-1] != indices.shape:
        raise Declined("the gradient has another shape than the output")
    attributes = {"shape": (num_weights, grad.shape[-1])}
    padding = {"padding_idx": padding_idx} if padding_idx >= 0 else {}
    return AtenRequest("GatherGrad", {"indices": indices, "dY": grad}, ("dX",), {**attributes, **padding})


TRANSLATIONS = (Translation("embedding_dense_backward", "embedding", two_tensors, _embedding, measured=0, below=2),)
