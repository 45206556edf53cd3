"""The models of train_bench.py, as torchvision, timm, transformers, diffusers and monai make them; weights are random.

A `Model` is a record: which class of which package, its options, the batch of a step, and the loss. `MODELS` has them
in sizes that people train, `TINY` the same families in sizes for a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

__all__ = ["MODELS", "TINY", "Batch", "Model", "dropouts"]

Tensor = torch.Tensor
Batch = dict[str, Tensor]
Loss = Callable[[Callable[..., Any], Batch], Tensor]


# --- batches and losses -----------------------------------------------------------------------------------------------


def images(count: int, *size: int, classes: int = 1000) -> Callable[[], Batch]:
    """Images, or volumes with their channels first in `size`, each of one class."""
    shape = (count, 3, size[0], size[0]) if len(size) == 1 else (count, *size)
    return lambda: {"x": torch.randn(shape), "target": torch.randint(classes, (count,))}


def labelled_images(count: int, *size: int, channels: int = 3, classes: int = 21) -> Callable[[], Batch]:
    """Images or volumes with a class for every pixel."""
    return lambda: {"x": torch.randn(count, channels, *size), "target": torch.randint(classes, (count, *size))}


def tokens(count: int, length: int, vocabulary: int) -> Callable[[], Batch]:
    """Packed text: every position has a token, and the tokens are the labels."""

    def make() -> Batch:
        ids = torch.randint(vocabulary, (count, length))
        return {"input_ids": ids, "labels": ids}

    return make


def masked_tokens(count: int, length: int, vocabulary: int) -> Callable[[], Batch]:
    """Packed text as transformers' collator for masked language models makes it: 15 % of the tokens have labels."""

    def make() -> Batch:
        ids = torch.randint(vocabulary, (count, length))
        labels = ids.masked_fill(torch.rand(count, length) > 0.15, -100)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}

    return make


def sequence_pairs(count: int, length: int, target: int, vocabulary: int) -> Callable[[], Batch]:
    def make() -> Batch:
        ids, labels = (torch.randint(vocabulary, (count, each)) for each in (length, target))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}

    return make


def speech(count: int, samples: int, target: int, vocabulary: int) -> Callable[[], Batch]:
    return lambda: {
        "input_values": torch.randn(count, samples),
        "labels": torch.randint(1, vocabulary, (count, target)),
    }


def spectrograms(count: int, bands: int, frames: int, target: int, vocabulary: int) -> Callable[[], Batch]:
    return lambda: {
        "input_features": torch.randn(count, bands, frames),
        "labels": torch.randint(vocabulary, (count, target)),
    }


def scenes(count: int, size: int, classes: int) -> Callable[[], Batch]:
    """Images with a class for every pixel, for transformers."""
    return lambda: {
        "pixel_values": torch.randn(count, 3, size, size),
        "labels": torch.randint(classes, (count, size, size)),
    }


def noised(count: int, channels: int, size: int, context: tuple[int, int] | None = None) -> Callable[[], Batch]:
    """Noised images at random times, and with `context` as many vectors of that length of a text."""

    def make() -> Batch:
        sample, noise = torch.randn(2, count, channels, size, size).unbind()
        batch = {"sample": sample, "timestep": torch.randint(1000, (count,)), "noise": noise}
        return batch | ({} if context is None else {"encoder_hidden_states": torch.randn(count, *context)})

    return make


def class_loss(model: Callable[..., Any], batch: Batch) -> Tensor:
    y = model(batch["x"])
    return functional.cross_entropy(getattr(y, "logits", y), batch["target"])


def pixel_loss(model: Callable[..., Any], batch: Batch) -> Tensor:
    return functional.cross_entropy(model(batch["x"])["out"], batch["target"])


def dice_loss(model: Callable[..., Any], batch: Batch) -> Tensor:
    """nnU-Net's: Dice and cross entropy."""
    loss = import_module("monai.losses").DiceCELoss(to_onehot_y=True, softmax=True)
    return loss(model(batch["x"]), batch["target"][:, None])


def noise_loss(model: Callable[..., Any], batch: Batch) -> Tensor:
    inputs = {name: each for name, each in batch.items() if name != "noise"}
    return functional.mse_loss(model(**inputs).sample, batch["noise"])


def autoencoder_loss(model: Callable[..., Any], batch: Batch) -> Tensor:
    """That of diffusers' train_autoencoderkl.py without its discriminator and perceptual loss."""
    image, divergence = model(batch["x"])
    return (image - batch["x"]).square().sum() / len(image) + 1e-6 * divergence.mean()


def own_loss(model: Callable[..., Any], batch: Batch) -> Tensor:
    """The loss that a model of transformers computes itself."""
    return model(**batch).loss


# --- models -----------------------------------------------------------------------------------------------------------


class SampledAutoencoder(nn.Module):
    """A variational autoencoder of diffusers as it is trained: an image from a drawn latent, and the divergence from a
    standard normal distribution. Its own `forward` does not return the latter.
    """

    def __init__(self, autoencoder: Any) -> None:
        super().__init__()
        self.autoencoder = autoencoder

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        latent = self.autoencoder.encode(x).latent_dist
        return self.autoencoder.decode(latent.sample()).sample, latent.kl()


@dataclass(frozen=True)
class Model:
    """A model and how it is trained.

    package   what makes it
    kind      the class or function in the package
    options   what it is called with; of transformers, the options of its configuration
    batch     makes the batch of a step
    loss      of the model, or of what computes the same, and a batch
    language  a language model: also trained with parameters in bfloat16, and by a compiled function of its loss
    last      in channels-last
    around    makes the module that is trained of the package's model
    """

    package: str
    kind: str
    options: Mapping[str, Any]
    batch: Callable[[], Batch]
    loss: Loss = own_loss
    language: bool = False
    last: bool = False
    around: Callable[[Any], Any] | None = None

    def make(self) -> nn.Module:
        """The model in training, its weights by torch's generator, on the CPU."""
        made = attrgetter(self.kind)(import_module(self.package))
        model = made(**self.options) if self.package != "transformers" else made(made.config_class(**self.options))
        if hasattr(getattr(model, "config", None), "use_cache"):
            model.config.use_cache = False  # as transformers' Trainer sets it
        model = self.around(model) if self.around is not None else model
        model = model.to(memory_format=torch.channels_last) if self.last else model
        return model.train()

    def make_batch(self) -> Batch:
        batch = self.batch()
        if self.last:
            images_last = torch.channels_last
            batch = {k: v.to(memory_format=images_last) if v.dim() == 4 else v for k, v in batch.items()}
        return batch


def dropouts(model: nn.Module, value: float | None = None) -> dict[str, float]:
    """The probabilities of dropout, stochastic depth and layer drop in a model that are not 0, by class and attribute.

    value   put in the place of all of them
    """
    found: dict[str, float] = {}
    configurations = {id(each.config): each.config for each in model.modules() if hasattr(each, "config")}
    for owner in (*model.modules(), *configurations.values()):
        kind = type(owner).__name__
        for name, each in vars(owner).items():
            drops = "drop" in name or (name == "p" and "Drop" in kind) or (name == "p" and kind == "StochasticDepth")
            if drops and isinstance(each, float) and each:
                found[f"{kind}.{name}"] = max(each, found.get(f"{kind}.{name}", 0.0))
                if value is not None:
                    setattr(owner, name, value)
    return found


def _vision(kind: str, batch: Callable[[], Batch], loss: Loss = class_loss, last: bool = True, **options: Any) -> Model:
    return Model("torchvision", f"models.{kind}", options, batch, loss, last=last)


def _timm(name: str, batch: Callable[[], Batch], last: bool = True, **options: Any) -> Model:
    return Model("timm", "create_model", {"model_name": name, **options}, batch, class_loss, last=last)


def _text(kind: str, batch: Callable[[], Batch], **options: Any) -> Model:
    return Model("transformers", kind, options, batch, language=True)


def _transformer(kind: str, batch: Callable[[], Batch], **options: Any) -> Model:
    return Model("transformers", kind, options, batch)


def _unet(kind: str, batch: Callable[[], Batch], **options: Any) -> Model:
    return Model("diffusers", kind, options, batch, noise_loss, last=True)


def _autoencoder(count: int, size: int, channels: tuple[int, ...], **options: Any) -> Model:
    """A Kullback-Leibler autoencoder with a level for each number of channels."""
    levels = {"down_block_types": ("DownEncoderBlock2D",), "up_block_types": ("UpDecoderBlock2D",)}
    options |= {name: each * len(channels) for name, each in levels.items()}
    options |= {"block_out_channels": channels, "sample_size": size}
    batch = images(count, size)
    return Model("diffusers", "AutoencoderKL", options, batch, autoencoder_loss, last=True, around=SampledAutoencoder)


def _seg_res_net(batch: Callable[[], Batch], **options: Any) -> Model:
    return Model("monai", "networks.nets.SegResNet", {"dropout_prob": 0.2, **options}, batch, dice_loss)


def _dyn_unet(batch: Callable[[], Batch], filters: tuple[int, ...]) -> Model:
    levels = len(filters)
    strides = (1,) + (2,) * (levels - 1)
    options = {"spatial_dims": 3, "in_channels": 1, "out_channels": 3, "kernel_size": (3,) * levels}
    options |= {"strides": strides, "upsample_kernel_size": strides[1:], "filters": filters}
    return Model("monai", "networks.nets.DynUNet", options, batch, dice_loss)


_LLAMA = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 2048}
_QWEN3 = {
    "hidden_size": 1024,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
_GEMMA2 = {
    "hidden_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 4096,
    "vocab_size": 256000,
}
_T5 = {
    "d_model": 768,
    "d_kv": 64,
    "d_ff": 3072,
    "num_layers": 12,
    "num_heads": 12,
    "decoder_start_token_id": 0,
}
_WHISPER = {
    "d_model": 768,
    "encoder_layers": 12,
    "decoder_layers": 12,
    "encoder_attention_heads": 12,
    "decoder_attention_heads": 12,
    "encoder_ffn_dim": 3072,
    "decoder_ffn_dim": 3072,
}
_WAV2VEC = {"vocab_size": 32, "ctc_loss_reduction": "mean", "layerdrop": 0.0, "attention_dropout": 0.0}
_WAV2VEC |= {"hidden_dropout": 0.0, "feat_proj_dropout": 0.0, "activation_dropout": 0.0}  # as the example fine-tunes it
_SEGFORMER_B2 = {"depths": (3, 4, 6, 3), "hidden_sizes": (64, 128, 320, 512), "decoder_hidden_size": 768}
_DINOV2 = {"image_size": 224, "patch_size": 14, "num_labels": 1000}
_UNET2D = {
    "sample_size": 64,
    "in_channels": 3,
    "out_channels": 3,
    "layers_per_block": 2,
    "block_out_channels": (128, 128, 256, 256, 512, 512),
    "down_block_types": ("DownBlock2D",) * 4 + ("AttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "AttnUpBlock2D") + ("UpBlock2D",) * 4,
}  # that of diffusers' tutorial on training

MODELS: dict[str, Model] = {
    "ResNeXt-50": _vision("resnext50_32x4d", images(96, 224)),
    "Llama 12x768": _text("LlamaForCausalLM", tokens(8, 1024, 32000), **_LLAMA),
    "BERT-base": _text("BertForMaskedLM", masked_tokens(32, 512, 30522)),
    "GPT-2": _text("GPT2LMHeadModel", tokens(8, 1024, 50257)),
    "Qwen3 12x1024": _text("Qwen3ForCausalLM", tokens(4, 1024, 151936), **_QWEN3),
    "UNet2D": _unet("UNet2DModel", noised(32, 3, 64), **_UNET2D),
    "Swin-T": _vision("swin_t", images(64, 224), last=False),
    "wav2vec 2.0": _transformer("Wav2Vec2ForCTC", speech(8, 80000, 60, 32), **_WAV2VEC),
    "ResNet-50": _vision("resnet50", images(128, 224)),
    "ConvNeXtV2-T": _timm("convnextv2_tiny", images(64, 224)),
    "ViT-B/16": _vision("vit_b_16", images(64, 224), last=False),
    "ModernBERT": _text("ModernBertForMaskedLM", masked_tokens(16, 1024, 50368)),
    "DynUNet": _dyn_unet(labelled_images(2, 128, 128, 128, channels=1, classes=3), (32, 64, 128, 256, 320, 320)),
    "EfficientNetV2-S": _vision("efficientnet_v2_s", images(64, 300)),
    "MobileNetV3-L": _vision("mobilenet_v3_large", images(128, 224)),
    "RepViT-M1.1": _timm("repvit_m1_1", images(128, 224)),
    "DeepLabV3-R50": _vision(
        "segmentation.deeplabv3_resnet50", labelled_images(8, 512, 512), pixel_loss, weights_backbone=None
    ),
    "Gemma 2 8x1024": _text("Gemma2ForCausalLM", tokens(4, 1024, 256000), **_GEMMA2),
    "T5-base": _transformer("T5ForConditionalGeneration", sequence_pairs(16, 512, 128, 32128), **_T5),
    "Whisper-small": _transformer(
        "WhisperForConditionalGeneration", spectrograms(16, 80, 3000, 128, 51865), **_WHISPER
    ),
    "UNet2DCondition": _unet("UNet2DConditionModel", noised(8, 4, 64, (77, 768)), cross_attention_dim=768),
    "AutoencoderKL": _autoencoder(8, 256, (128, 256, 512, 512), layers_per_block=2),
    "SegResNet": _seg_res_net(
        labelled_images(1, 224, 224, 144, channels=4, classes=4), init_filters=16, in_channels=4, out_channels=4
    ),
    "DINOv2-B": Model("transformers", "Dinov2ForImageClassification", _DINOV2, images(64, 224), class_loss),
    "SigLIP-B": _timm("vit_base_patch16_siglip_224", images(64, 224), last=False, num_classes=1000),
    "SegFormer-B2": _transformer(
        "SegformerForSemanticSegmentation", scenes(8, 512, 150), num_labels=150, **_SEGFORMER_B2
    ),
    "RegNetY-3.2GF": _vision("regnet_y_3_2gf", images(96, 224)),
    "DenseNet-121": _vision("densenet121", images(64, 224)),
    "R(2+1)D-18": _vision("video.r2plus1d_18", images(16, 3, 16, 112, 112, classes=400), last=False),
}
"""In the order of their importance, which is that in which they are measured."""

_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
_FEW = {**_SMALL, "vocab_size": 64}
_NARROW = {"layers_per_block": 1, "block_out_channels": (8, 16), "norm_num_groups": 4, "sample_size": 16}
TINY: dict[str, Model] = {
    "Llama 12x768": _text("LlamaForCausalLM", tokens(2, 16, 64), **_FEW),
    "BERT-base": _text("BertForMaskedLM", masked_tokens(2, 16, 64), **_FEW),
    "GPT-2": _text("GPT2LMHeadModel", tokens(2, 16, 64), n_embd=32, n_layer=2, n_head=2, vocab_size=64),
    "UNet2D": _unet(
        "UNet2DModel",
        noised(2, 3, 16),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        **_NARROW,
    ),
    "wav2vec 2.0": _transformer(
        "Wav2Vec2ForCTC",
        speech(2, 8000, 5, 32),
        conv_dim=(16, 16),
        conv_stride=(10, 8),
        conv_kernel=(20, 8),
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        **_WAV2VEC,
        **_SMALL,
    ),
    "ResNet-50": _vision("resnet18", images(2, 64, classes=10), num_classes=10),
    "ConvNeXtV2-T": _timm("convnextv2_atto", images(2, 64, classes=10), num_classes=10),
    "DynUNet": _dyn_unet(labelled_images(1, 8, 8, 8, channels=1, classes=3), (4, 8, 8)),
    "AutoencoderKL": _autoencoder(2, 16, (8, 16), norm_num_groups=4),
    "SegResNet": _seg_res_net(
        labelled_images(1, 16, 16, 8, channels=1, classes=3), out_channels=3, blocks_down=(1, 2), blocks_up=(1,)
    ),
    "MobileNetV3-L": _vision("mobilenet_v3_small", images(2, 64, classes=10), num_classes=10),
    "T5-base": _transformer(
        "T5ForConditionalGeneration",
        sequence_pairs(2, 16, 8, 64),
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_layers=2,
        num_heads=2,
        vocab_size=64,
        decoder_start_token_id=0,
    ),
}
"""A model of each family, by the name of the one whose place it takes."""
