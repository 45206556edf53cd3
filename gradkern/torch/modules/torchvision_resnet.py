"""torchvision's residual blocks, the last batch norm joined with the addition and ReLU. Imported where torchvision is.

Every batch norm in them is a gradkern.torch.BatchNorm2d with activation="relu"; their module `relu` is not called.
"""

from __future__ import annotations

import torch  # pyright: ignore[reportMissingImports]
from torchvision.models import resnet  # pyright: ignore[reportMissingImports]

__all__ = ["JoinedBasicBlock", "JoinedBottleneck"]

Tensor = torch.Tensor


class JoinedBasicBlock(resnet.BasicBlock):
    def forward(self, x: Tensor) -> Tensor:
        out = self.conv2(self.bn1(self.conv1(x)))
        return self.bn2(out, x if self.downsample is None else self.downsample(x))


class JoinedBottleneck(resnet.Bottleneck):
    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.bn1(self.conv1(x))))
        return self.bn3(self.conv3(out), x if self.downsample is None else self.downsample(x))
