"""Models of torchvision, timm and transformers as their packages make them, small where they can be."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch

__all__ = ["MODELS", "torchvision"]


def torchvision() -> Any:
    """The package. The wheel for CUDA lacks its own operators beside PyTorch's CPU build: classifiers use none."""
    try:
        return import_module("torchvision")
    except RuntimeError:
        for name in ("nms", "qnms"):
            _library().define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return import_module("torchvision")


@cache
def _library() -> torch.library.Library:
    return torch.library.Library("torchvision", "FRAGMENT")


def _images(size: int) -> torch.Tensor:
    return torch.randn(2, 3, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def _tokens() -> torch.Tensor:
    return torch.randint(50, (2, 6), generator=torch.Generator().manual_seed(1))


def _vision(name: str, **options: Any) -> Callable[[], Any]:
    return lambda: getattr(torchvision().models, name)(num_classes=5, **options)


def _timm(name: str, **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        torchvision()
        return import_module("timm").create_model(name, num_classes=5, **options)

    return make


def _transformer(name: str, **sizes: int) -> Callable[[], Any]:
    def make() -> Any:
        torchvision()
        transformers = import_module("transformers")
        config = getattr(transformers, f"{name}Config")(vocab_size=50, **sizes)
        kind = {"GPT2": "GPT2LMHeadModel", "Llama": "LlamaForCausalLM", "Bert": "BertForMaskedLM"}[name]
        return getattr(transformers, kind)(config)

    return make


_BERT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
# Images of 64: of smaller ones a channel has two elements in the end, where batch norm magnifies every rounding.
MODELS: dict[str, tuple[Callable[[], Any], Callable[[], torch.Tensor]]] = {
    "torchvision resnet50": (_vision("resnet50"), lambda: _images(64)),
    "torchvision convnext_tiny": (_vision("convnext_tiny"), lambda: _images(32)),
    "torchvision efficientnet_b0": (_vision("efficientnet_b0"), lambda: _images(64)),
    "torchvision vit": (
        _vision("VisionTransformer", image_size=16, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32),
        lambda: _images(16),
    ),
    "timm convnext_atto": (_timm("convnext_atto"), lambda: _images(32)),
    "timm efficientnet_b0": (_timm("efficientnet_b0"), lambda: _images(64)),
    "timm resnet18": (_timm("resnet18"), lambda: _images(32)),
    "timm vit": (
        _timm("vit_tiny_patch16_224", img_size=32, patch_size=16, embed_dim=24, depth=2, num_heads=2),
        lambda: _images(32),
    ),
    "transformers GPT2": (_transformer("GPT2", n_layer=2, n_embd=16, n_head=2, n_positions=8), _tokens),
    "transformers Llama": (_transformer("Llama", **_BERT), _tokens),
    "transformers BERT": (_transformer("Bert", **_BERT), _tokens),
}
