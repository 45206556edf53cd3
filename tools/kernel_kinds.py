"""Kernels of a training step by what they do, from their names in torch.profiler."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["KINDS", "by_kind", "kind_of"]

_PATTERNS = {
    "optimizer": r"multi_tensor|adam",
    "attention": r"flash|fmha|attention|_sdpa|compute_dot_do_o|convert_dq|softmax_warp|safe_softmax|_softmax_backward",
    "loss": r"nll_loss|log_softmax|cross_entropy|cunn_softmax|mse_loss|ctc_loss|logsumexp",
    "convolutions": r"conv(?!ert)|dgrad|wgrad|fprop|implicit_gemm|winograd",
    "matrix products": r"gemm|nvjet|gemv|splitk|cutlass|cublas|bmm|addmm",
    "norms": r"norm|bn_fw|bn_bw|rsqrt|pow_sum|welford|rowwisemoments|gammabeta|gradkern_channels",
    "copies": r"memcpy|memset|nchwto|nhwcto|transpose|catarray|copy|fillfunctor",
}
KINDS = (*_PATTERNS, "rest")
_TRITON = re.compile(r"triton_\w+?_fused_")


def kind_of(name: str) -> str:
    """The kind of a kernel. Inductor's are named after the operators that they join: convolutions and matrix products
    among those are what they stand beside, and a copy is one where there is nothing else.
    """
    low = name.lower()
    if _TRITON.match(low):
        joined = re.sub(r"convolution(_backward)?|native_dropout(_backward)?|addmm|bmm|mm", "", low)
        for kind in ("loss", "attention", "norms"):
            if re.search(_PATTERNS[kind], joined):
                return kind
        only = re.sub(r"triton_\w+?_fused_|_?\d+$|_unsafe_view|view|_to_copy|clone|transpose|permute|t|cat|_", "", low)
        return "rest" if only else "copies"
    return next((kind for kind, pattern in _PATTERNS.items() if re.search(pattern, low)), "rest")


def by_kind(kernels: Iterable[tuple[str, float, float]]) -> dict[str, float]:
    """Milliseconds by kind, of kernels with their name, number and microseconds."""
    sums = dict.fromkeys(KINDS, 0.0)
    for name, _, us in kernels:
        sums[kind_of(name)] += us / 1e3
    return {kind: ms for kind, ms in sums.items() if ms}
