"""native_group_norm_backward; with a group for each channel it is instance norm's, too."""

from __future__ import annotations

from typing import Any

from gradkern.torch.aten.request import AtenRequest, Declined, masked

__all__ = ["group_norm", "split_group_norm"]

_MOST_RANK = 5


def split_group_norm(
    grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, N: Any, C: Any, HxW: Any, group: int, mask: Any
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The tensors that are read, and all else that decides what is computed."""
    if weight is None:
        return (grad, x, mean, rstd), (group, *mask, None)
    return (grad, x, mean, rstd, weight), (group, *mask)


def group_norm(
    grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, N: Any, C: Any, HxW: Any, group: int, mask: Any
) -> AtenRequest:
    if weight is None and (mask[1] or mask[2]):
        raise Declined("the gradient of a weight is wanted, but there is no weight")
    if not 2 <= x.dim() <= _MOST_RANK:
        raise Declined(f"a tensor of {x.dim()} dimensions; {_MOST_RANK} are the most")
    inputs = {"dY": grad, "X": x, "mean": mean, "inv_std": rstd} | ({} if weight is None else {"gamma": weight})
    return AtenRequest("GroupNormGrad", inputs, masked(("dX", "dgamma", "dbeta"), mask), {"groups": group})
