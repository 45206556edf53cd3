"""The convolutions of known networks, for tools/conv_bench.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["LAYERS", "NETWORKS", "Layer"]


@dataclass(frozen=True, slots=True)
class Layer:
    """One convolution: sizes without the batch's, one number where all axes have the same."""

    network: str
    batch: int
    channels: int
    spatial: tuple[int, ...]
    filters: int
    kernel: int
    stride: int = 1
    group: int = 1
    dilation: int = 1
    padding: int | None = None

    @property
    def name(self) -> str:
        size = "x".join(map(str, self.spatial))
        taps = "x".join([str(self.kernel)] * len(self.spatial))
        extra = [f"/{self.stride}"] * (self.stride > 1) + [f" dilated {self.dilation}"] * (self.dilation > 1)
        groups = " depthwise" if self.depthwise else f" in {self.group} groups"
        return f"{self.channels}x{size} -> {self.filters}, {taps}{''.join(extra)}{groups if self.group > 1 else ''}"

    @property
    def depthwise(self) -> bool:
        return self.group == self.channels > 1

    @property
    def pad(self) -> int:
        """By default what keeps the size, where the stride is 1 and the kernel odd."""
        if self.padding is not None:
            return self.padding
        return (self.kernel - 1) * self.dilation // 2

    @property
    def out(self) -> tuple[int, ...]:
        covered = (self.kernel - 1) * self.dilation + 1
        return tuple((size + 2 * self.pad - covered) // self.stride + 1 for size in self.spatial)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {
            "dY": (self.batch, self.filters, *self.out),
            "X": (self.batch, self.channels, *self.spatial),
            "W": (self.filters, self.channels // self.group, *[self.kernel] * len(self.spatial)),
        }

    @property
    def attributes(self) -> Mapping[str, int | tuple[int, ...]]:
        rank = len(self.spatial)
        return {
            "pads": (self.pad,) * 2 * rank,
            "strides": (self.stride,) * rank,
            "dilations": (self.dilation,) * rank,
            "group": self.group,
        }


def _resnet50() -> list[Layer]:
    """Every convolution of ResNet-50 once; the stride is on the 3x3, as in PyTorch."""
    layers = [Layer("ResNet-50", 128, 3, (224, 224), 64, 7, 2)]
    before, size = 64, 56
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        after, smaller = 4 * width, size // stride
        of = [
            (before, size, width, 1, 1),  # into the first block
            (width, size, width, 3, stride),
            (width, smaller, after, 1, 1),
            (before, size, after, 1, stride),  # beside it
            (after, smaller, width, 1, 1),  # into the others
            (width, smaller, width, 3, 1),
        ]
        layers += [Layer("ResNet-50", 128, c, (s, s), m, k, step) for c, s, m, k, step in of]
        before, size = after, smaller
    return list(dict.fromkeys(layers))


def _depthwise(network: str, kernel: int, sizes: list[tuple[int, int, int]]) -> list[Layer]:
    return [Layer(network, 64, c, (s, s), c, kernel, stride, c) for c, s, stride in sizes]


def _resnext50() -> list[Layer]:
    """The 3x3 convolutions in 32 groups of ResNeXt-50 32x4d."""
    sizes = [(128, 56, 1), (256, 56, 2), (256, 28, 1), (512, 28, 2), (512, 14, 1), (1024, 14, 2), (1024, 7, 1)]
    return [Layer("ResNeXt-50", 64, c, (s, s), c, 3, stride, 32) for c, s, stride in sizes]


def _unet() -> list[Layer]:
    """A block of a 3-D U-Net on the way down: two 3x3x3, then one on half the size, and the 1x1x1 at the end."""
    return [
        Layer("3-D U-Net", 1, 64, (16, 56, 56), 64, 3),
        Layer("3-D U-Net", 2, 32, (32, 64, 64), 64, 3),
        Layer("3-D U-Net", 2, 64, (32, 64, 64), 128, 3, 2),
        Layer("3-D U-Net", 2, 64, (32, 64, 64), 16, 1),
    ]


def _wavenet() -> list[Layer]:
    """A stack of dilated convolutions on audio, and the layer of performance comparisons on 1-D convolution."""
    dilated = [Layer("WaveNet", 8, 128, (16000,), 256, 3, dilation=dilation) for dilation in (1, 16, 256)]
    return [*dilated, Layer("WaveNet", 8, 128, (16000,), 128, 1), Layer("WaveNet", 32, 512, (3000,), 512, 3)]


LAYERS: tuple[Layer, ...] = (
    *_resnet50(),
    *_depthwise("ConvNeXt-T", 7, [(96, 56, 1), (192, 28, 1), (384, 14, 1), (768, 7, 1)]),
    *_depthwise("EfficientNet-B0", 5, [(144, 56, 2), (240, 28, 1), (480, 14, 1), (672, 14, 1), (1152, 7, 1)]),
    *_depthwise("MobileNetV2", 3, [(96, 112, 2), (144, 56, 1), (192, 28, 1), (384, 14, 1), (576, 14, 1), (960, 7, 1)]),
    *_unet(),
    *_wavenet(),
    *_resnext50(),
)
NETWORKS = tuple(dict.fromkeys(layer.network for layer in LAYERS))
