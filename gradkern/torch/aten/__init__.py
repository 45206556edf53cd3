"""aten's backward operators in the registry's words: a module for each family."""

from __future__ import annotations

from collections.abc import Iterator

from gradkern.torch.aten.batch_norm import (
    consolidated_batch_norm,
    cudnn_batch_norm,
    native_batch_norm,
    split_consolidated_batch_norm,
    split_cudnn_batch_norm,
    split_native_batch_norm,
)
from gradkern.torch.aten.conv import conv, gainless_conv, split_conv
from gradkern.torch.aten.embedding import embedding, split_embedding
from gradkern.torch.aten.gelu import gelu, split_gelu
from gradkern.torch.aten.group_norm import group_norm, split_group_norm
from gradkern.torch.aten.layer_norm import layer_norm, rms_norm, split_layer_norm, split_rms_norm
from gradkern.torch.aten.pooling import (
    adaptive_pool,
    average_pool,
    like_input,
    max_pool,
    split_adaptive,
    split_average,
    split_max,
)
from gradkern.torch.aten.request import Translation
from gradkern.torch.aten.resize import like_gradient, nearest, smooth, split_resize
from gradkern.torch.aten.softmax import log_softmax, softmax, split_softmax
from gradkern.torch.aten.sync_batch_norm import (
    batch_norm_from_sums,
    batch_norm_sums,
    split_batch_norm_from_sums,
    split_batch_norm_sums,
)

__all__ = ["TRANSLATIONS"]

_BY_PYTHON = "PyTorch's kernel may raise as it is not deterministic, and machine code would hand small calls on to it"


def _pools() -> Iterator[Translation]:
    for rank in (2, 3):
        kinds = (
            (f"max_pool{rank}d_with_indices_backward", split_max, max_pool),
            (f"avg_pool{rank}d_backward", split_average, average_pool),
            (f"_adaptive_avg_pool{rank}d_backward", split_adaptive, adaptive_pool),
        )
        for name, split, request in kinds:
            yield Translation(name, "pooling", split, request(rank), by_python=_BY_PYTHON, result=like_input)


def _resizing() -> Iterator[Translation]:
    requests = {
        "upsample_linear1d": smooth("linear"),
        "upsample_bilinear2d": smooth("linear"),
        "upsample_trilinear3d": smooth("linear"),
        "upsample_bicubic2d": smooth("cubic"),
        **{f"upsample_nearest{rank}d": nearest(exact=False) for rank in (1, 2, 3)},
        **{f"_upsample_nearest_exact{rank}d": nearest(exact=True) for rank in (1, 2, 3)},
    }
    for name, request in requests.items():
        named = f"{name}_backward", "resize", split_resize, request
        yield Translation(*named, by_python=_BY_PYTHON, measured=0, result=like_gradient)


TRANSLATIONS = (
    Translation("native_layer_norm_backward", "layer_norm", split_layer_norm, layer_norm),
    Translation("_fused_rms_norm_backward", "rms_norm", split_rms_norm, rms_norm),
    Translation("native_batch_norm_backward", "batch_norm", split_native_batch_norm, native_batch_norm, True),
    Translation("cudnn_batch_norm_backward", "batch_norm", split_cudnn_batch_norm, cudnn_batch_norm, True),
    Translation("batch_norm_backward", "batch_norm", split_consolidated_batch_norm, consolidated_batch_norm, True),
    Translation("batch_norm_backward_reduce", "batch_norm", split_batch_norm_sums, batch_norm_sums),
    Translation("batch_norm_backward_elemt", "batch_norm", split_batch_norm_from_sums, batch_norm_from_sums),
    Translation("native_group_norm_backward", "group_norm", split_group_norm, group_norm),
    Translation(
        "convolution_backward",
        "conv",
        split_conv,
        conv,
        True,
        gainless_conv,
        by_python="whether PyTorch allows TF32, which decides how it is computed, has no C function",
    ),
    Translation("gelu_backward", "gelu", split_gelu, gelu),
    Translation("embedding_dense_backward", "embedding", split_embedding, embedding, measured=0, below=2),
    Translation("_softmax_backward_data", "softmax", split_softmax, softmax),
    Translation("_log_softmax_backward_data", "softmax", split_softmax, log_softmax),
    *_pools(),
    *_resizing(),
)
"""Every operator that can be taken over. Only backward kernels: never a composite, nor one of autograd's."""
