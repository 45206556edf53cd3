"""aten's backward operators in the registry's words: a module for each family."""

from __future__ import annotations

from gradkern.torch.aten import (
    batch_norm,
    conv,
    embedding,
    gelu,
    group_norm,
    layer_norm,
    pooling,
    resize,
    softmax,
    sync_batch_norm,
)

__all__ = ["TRANSLATIONS"]

_FAMILIES = (
    *(layer_norm, batch_norm, sync_batch_norm, group_norm, conv),
    *(gelu, embedding, softmax, pooling, resize),
)
TRANSLATIONS = tuple(each for family in _FAMILIES for each in family.TRANSLATIONS)
"""Every operator that can be taken over. Only backward kernels: never a composite, nor one of autograd's."""
