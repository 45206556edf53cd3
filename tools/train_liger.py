"""Liger's layers in the models of train_bench.py, as a peer."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from torch import nn  # pyright: ignore[reportMissingImports]
from train_models import GatedMlp

__all__ = ["swap"]


def swap(model: nn.Module) -> nn.Module:
    """The model with Liger's layer norms, RMSNorms and gates of SwiGLU, which its own README puts there.

    Raises RuntimeError where Liger is not installed, or has none of the model's layers.
    """
    if find_spec("liger_kernel") is None:
        raise RuntimeError("liger_kernel is not installed")
    found = [(name, each) for name, each in model.named_modules() if type(each) in (nn.LayerNorm, nn.RMSNorm, GatedMlp)]
    if not found:
        raise RuntimeError("Liger has none of this model's layers")
    for name, each in found:
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, _Gated(each) if isinstance(each, GatedMlp) else _norm(each))
    return model


def _norm(norm: Any) -> nn.Module:
    from liger_kernel.transformers import LigerLayerNorm, LigerRMSNorm  # pyright: ignore[reportMissingImports]

    kind: Any = LigerLayerNorm if isinstance(norm, nn.LayerNorm) else LigerRMSNorm
    made = kind(norm.normalized_shape[0], eps=norm.eps)
    made.weight = norm.weight
    if isinstance(norm, nn.LayerNorm):
        made.bias = norm.bias
    return made


class _Gated(nn.Module):
    def __init__(self, mlp: GatedMlp) -> None:
        super().__init__()
        self.up, self.down = mlp.up, mlp.down

    def forward(self, x: Any) -> Any:
        from liger_kernel.transformers.functional import liger_swiglu  # pyright: ignore[reportMissingImports]

        gate, value = self.up(x).chunk(2, -1)
        return self.down(liger_swiglu(gate.contiguous(), value.contiguous()))
