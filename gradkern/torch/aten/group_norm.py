"""native_group_norm_backward; with a group for each channel it is instance norm's, too."""

from __future__ import annotations

from typing import Any

from gradkern.torch.aten.request import AtenRequest, Declined, Split, Translation, masked, require_weight

__all__ = ["TRANSLATIONS"]

_MOST_RANK = 5


def _split(grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, *rest: Any) -> Split:
    *_, group, mask = rest
    if weight is None:
        return (grad, x, mean, rstd), (group, *mask, None)
    return (grad, x, mean, rstd, weight), (group, *mask)


def _group_norm(grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, *rest: Any) -> AtenRequest:
    *_, group, mask = rest
    require_weight(weight, *mask[1:])
    if not 2 <= x.dim() <= _MOST_RANK:
        raise Declined(f"a tensor of {x.dim()} dimensions; {_MOST_RANK} are the most")
    inputs = {"dY": grad, "X": x, "mean": mean, "inv_std": rstd} | ({} if weight is None else {"gamma": weight})
    return AtenRequest("GroupNormGrad", inputs, masked(("dX", "dgamma", "dbeta"), mask), {"groups": group})


TRANSLATIONS = (Translation("native_group_norm_backward", "group_norm", _split, _group_norm),)
