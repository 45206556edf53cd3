"""What a kernel is called in its machine code, and so in a profiler. Nothing here imports Numba."""

from __future__ import annotations

import re

MOST_LETTERS = 96
_SHORT = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64"}


def kernel_name(*words: str | int) -> str:
    """gradkern_layer_norm_grad_bf16_1x256x2x8 of operator, role, types and config: letters, digits and underscores."""
    named = (_SHORT.get(str(each), str(each)) for each in words)
    return re.sub(r"\W+", "_", "_".join(["gradkern", *filter(None, named)]), flags=re.ASCII)[:MOST_LETTERS]


def operator_words(operator: str) -> str:
    """layer_norm_grad of LayerNormalizationGrad."""
    text = operator.removesuffix("_dX").replace("Normalization", "Norm")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text).lower()
