"""PyTorch's flags as gradkern's policy, read at every call: they are no arguments of aten's kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.policy import DEFAULT, Policy, current

Flags = tuple[Policy | None, bool, bool, bool]
"""gradkern's policy in force (None: the usual one); whether PyTorch asks for the same bits every time, allows TF32 in
convolutions, and allows cuDNN.
"""

_cudnn_deterministic: Callable[[], bool] = torch._C._get_cudnn_deterministic
_all_deterministic: Callable[[], bool] = torch._C._get_deterministic_algorithms
_cudnn_enabled: Callable[[], bool] = torch._C._get_cudnn_enabled
_precision: Callable[[str, str], str] = torch._C._get_fp32_precision_getter


def in_force() -> Policy | None:
    """gradkern's policy, None for the usual one: its hash is worked out in Python."""
    policy = current()
    return None if policy is DEFAULT else policy


def flags() -> Flags:
    """What a search may choose from in a call that is made now."""
    return (
        in_force(),
        _cudnn_deterministic() or _all_deterministic(),
        _precision("cuda", "conv") == "tf32",
        _cudnn_enabled(),
    )


def is_autocast(kind: str) -> bool:
    """Whether autocast is on for this kind of device. It never is for "meta": PyTorch raises an error for that."""
    return kind != "meta" and torch.is_autocast_enabled(kind)


def autocast(kind: str, *tensors: torch.Tensor | None) -> Sequence[Any]:
    """The tensors as operators get them that autocast runs in fewer bits, if it is on. float64 is not converted."""
    if not is_autocast(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return [each if each is None or each.dtype is torch.float64 else each.to(dtype) for each in tensors]


@lru_cache(maxsize=256)
def policy_of(seen: Flags) -> Policy:
    """gradkern's policy, and PyTorch's flags where they are stricter."""
    policy, deterministic, tf32, _ = seen
    base = policy or DEFAULT
    return replace(base, deterministic=base.deterministic or deterministic, allow_tf32=base.allow_tf32 and tf32)
