"""aten's backward operators in the registry's words."""

from __future__ import annotations

from gradkern.torch.aten import activations, conv, norms, pooling, resize

_FAMILIES = norms, conv, activations, pooling, resize
TRANSLATIONS = tuple(each for family in _FAMILIES for each in family.TRANSLATIONS)
"""Every operator that can be taken over. Only backward kernels: never a composite, nor one of autograd's."""
