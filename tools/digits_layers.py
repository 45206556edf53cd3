"""The layers of train_digits.py: convolutions, norms, GELU and every gradient from gradkern.

Activations are channels-last, (images, height, width, channels). Operators that want (N, C, height, width) get a
transposed view of the same memory. A layer keeps what its backward pass needs and works in the type of its parameters.
`run` is gradkern.run, or something that calls it; forward passes are always computed on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

import gradkern

__all__ = [
    "Adam",
    "Array",
    "BatchNorm",
    "BiasFastGelu",
    "BiasGelu",
    "Convolution",
    "DmlBatchNorm",
    "InvertibleLayerNorm",
    "Layer",
    "LayerNorm",
    "RMSNorm",
    "Residual",
    "Run",
    "Sequence",
    "cross_entropy",
    "digits_network",
]

Array = NDArray[Any]
Run = Callable[..., Any]
EPSILON = 1e-5


class Layer:
    """Parameters by name, and after `backward` their gradients by the same names."""

    def __init__(self, **parameters: Array) -> None:
        self.parameters = parameters
        self.gradients: dict[str, Array] = {}

    def forward(self, x: Array, training: bool) -> Array:
        raise NotImplementedError

    def backward(self, dy: Array, run: Run) -> Array:
        """Set `gradients`; return the gradient of the input."""
        raise NotImplementedError

    def leaves(self) -> Iterator[Layer]:
        """The layers that hold the parameters."""
        yield self


class Convolution(Layer):
    """A square kernel, with bias or without."""

    def __init__(self, weight: Array, bias: Array | None = None, *, stride: int = 1, pad: int = 0) -> None:
        super().__init__(W=weight, **({} if bias is None else {"B": bias}))
        self.geometry: Any = {"pads": [pad] * 4, "strides": [stride] * 2}

    def forward(self, x: Array, training: bool) -> Array:
        self.x, parameters = x, self.parameters
        Y = gradkern.run("Conv", _nchw(x), parameters["W"], parameters.get("B"), **self.geometry).Y
        return np.ascontiguousarray(_nhwc(Y))

    def backward(self, dy: Array, run: Run) -> Array:
        wanted = ["d" + name for name in ("X", *self.parameters)]
        dX, dW, dB = run("ConvGrad", _nchw(dy), _nchw(self.x), self.parameters["W"], outputs=wanted, **self.geometry)
        self.gradients = {"W": dW, "B": dB}
        return _nhwc(dX)


class BiasGelu(Layer):
    """z Phi(z) with z = x + B: the bias of the convolution before it, and GELU."""

    def forward(self, x: Array, training: bool) -> Array:
        self.x = x
        return gradkern.run("BiasGelu", x, self.parameters["B"]).C

    def backward(self, dy: Array, run: Run) -> Array:
        dX, self.gradients["B"] = run("BiasGeluGrad_dX", dy, self.x, self.parameters["B"], outputs=["dX", "dB"])
        return dX


class BiasFastGelu(Layer):
    """The same with the hyperbolic tangent in place of the normal distribution."""

    def forward(self, x: Array, training: bool) -> Array:
        self.x = x
        return gradkern.run("BiasFastGelu", x, self.parameters["B"]).C

    def backward(self, dy: Array, run: Run) -> Array:
        dX, self.gradients["B"] = run("BiasFastGeluGrad_dX", dy, self.x, self.parameters["B"], outputs=["dX", "dB"])
        return dX


class LayerNorm(Layer):
    """Each pixel's channels, normalized to mean 0 and variance 1."""

    def forward(self, x: Array, training: bool) -> Array:
        self.x = x
        scale, bias = self.parameters["scale"], self.parameters["bias"]
        self.y, self.mean, self.inv_std = gradkern.run("LayerNormalization", x, scale, bias, epsilon=EPSILON)
        return self.y

    def backward(self, dy: Array, run: Run) -> Array:
        scale = self.parameters["scale"]
        dx, dscale, dbias = run("LayerNormalizationGrad", dy, self.x, scale, self.mean, self.inv_std)
        self.gradients = {"scale": dscale, "bias": dbias}
        return dx


class InvertibleLayerNorm(LayerNorm):
    """The same function; its gradient starts from the output, so the input need not be kept."""

    def backward(self, dy: Array, run: Run) -> Array:
        scale, bias = self.parameters["scale"], self.parameters["bias"]
        dx, dscale, dbias = run("InvertibleLayerNormalizationGrad", dy, self.y, scale, bias, self.inv_std)
        self.gradients = {"scale": dscale, "bias": dbias}
        return dx


class RMSNorm(Layer):
    """Each pixel's channels, divided by their root mean square."""

    def forward(self, x: Array, training: bool) -> Array:
        self.x = x
        y, self.inv_std = gradkern.run("SimplifiedLayerNormalization", x, self.parameters["scale"], epsilon=EPSILON)
        return y

    def backward(self, dy: Array, run: Run) -> Array:
        scale = self.parameters["scale"]
        dx, self.gradients["scale"] = run("SimplifiedLayerNormalizationGrad", dy, self.x, scale, self.inv_std)
        return dx


class BatchNorm(Layer):
    """Each channel, normalized by the batch's statistics in training and by the running ones afterwards."""

    def __init__(self, scale: Array, bias: Array) -> None:
        super().__init__(scale=scale, bias=bias)
        self.running_mean, self.running_variance = np.zeros_like(scale), np.ones_like(scale)

    def forward(self, x: Array, training: bool) -> Array:
        self.x = x
        if not training:
            return self.with_running_statistics()
        scale, bias = self.parameters["scale"], self.parameters["bias"]
        y, _, _, *self.statistics = gradkern.run("BatchNormalization", _nchw(x), scale, bias, epsilon=EPSILON)
        return _nhwc(y)

    def with_running_statistics(self) -> Array:
        scale = self.parameters["scale"] / np.sqrt(self.running_variance + EPSILON)
        return (self.x - self.running_mean) * scale + self.parameters["bias"]

    def backward(self, dy: Array, run: Run) -> Array:
        scale = self.parameters["scale"]
        dx, dscale, dbias = run("BatchNormalizationGrad", _nchw(dy), _nchw(self.x), scale, *self.statistics)
        self.gradients = {"scale": dscale, "bias": dbias}
        self.track()
        return _nhwc(dx)

    def track(self) -> None:
        """Move the running statistics towards the batch's. After the gradient, so that `forward` stays a function."""
        mean, variance = _moments(self.x, (0, 1, 2))
        self.running_mean += 0.1 * (mean.ravel() - self.running_mean)
        self.running_variance += 0.1 * (variance.ravel() - self.running_variance)


class DmlBatchNorm(BatchNorm):
    """The same layer with DirectML's gradient. To it statistics are constants, so training, too, uses running ones."""

    def forward(self, x: Array, training: bool) -> Array:
        self.x, self.mean, self.variance = x, self.running_mean.copy(), self.running_variance.copy()
        return self.with_running_statistics()

    def backward(self, dy: Array, run: Run) -> Array:
        constants = (each.reshape(1, 1, 1, -1) for each in (self.mean, self.variance, self.parameters["scale"]))
        dx, dscale, dbias = run("DmlBatchNormalizationGrad", self.x, dy, *constants, Epsilon=EPSILON)
        self.gradients = {"scale": dscale.ravel(), "bias": dbias.ravel()}
        self.track()
        return dx


class Sequence(Layer):
    """One layer after the other."""

    def __init__(self, *layers: Layer) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Array, training: bool) -> Array:
        for layer in self.layers:
            x = layer.forward(x, training)
        return x

    def backward(self, dy: Array, run: Run) -> Array:
        for layer in reversed(self.layers):
            dy = layer.backward(dy, run)
        return dy

    def leaves(self) -> Iterator[Layer]:
        for layer in self.layers:
            yield from layer.leaves()


class Residual(Sequence):
    """x + f(x)."""

    def forward(self, x: Array, training: bool) -> Array:
        return x + super().forward(x, training)

    def backward(self, dy: Array, run: Run) -> Array:
        return dy + super().backward(dy, run)


def cross_entropy(logits: Array, labels: Array) -> tuple[float, Array]:
    """Mean of -log softmax(logits)[label], and its gradient (softmax - one-hot) / n."""
    logits = logits - logits.max(1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    n = np.arange(len(labels))
    gradient = np.exp(log_p)
    gradient[n, labels] -= 1
    return -float(log_p[n, labels].mean()), gradient / len(labels)


class Adam:
    """Kingma and Ba, 2015, with decoupled weight decay for the convolutions' weights (Loshchilov and Hutter, 2019)."""

    def __init__(self, network: Layer, *, decay: float) -> None:
        self.slots = [
            (leaf, name, np.zeros_like(value), np.zeros_like(value))
            for leaf in network.leaves()
            for name, value in leaf.parameters.items()
        ]
        self.decay, self.steps = decay, 0

    def step(self, rate: float, beta1: float = 0.9, beta2: float = 0.99) -> None:
        self.steps += 1
        unbias1, unbias2 = 1 - beta1**self.steps, 1 - beta2**self.steps
        for leaf, name, first, second in self.slots:
            gradient, value = leaf.gradients[name], leaf.parameters[name]
            first += (1 - beta1) * (gradient - first)
            second += (1 - beta2) * (gradient * gradient - second)
            if name == "W":
                value *= 1 - rate * self.decay
            value -= rate * (first / unbias1) / (np.sqrt(second / unbias2) + 1e-8)


def digits_network(seed: int, dtype: DTypeLike, *, invertible: bool = False, dml: bool = False) -> Sequence:
    """(images, 8, 8, 1) -> (images, 1, 1, 10). A dense layer is a convolution: 1x1, or as large as its input."""
    random = np.random.default_rng(seed)

    def weight(outputs: int, inputs: int, kernel: int) -> Array:
        deviation = 1 / math.sqrt(inputs * kernel * kernel)
        return random.normal(0, deviation, (outputs, inputs, kernel, kernel)).astype(dtype)

    def ones(channels: int) -> Array:
        return np.ones(channels, dtype)

    def zeros(channels: int) -> Array:
        return np.zeros(channels, dtype)

    batch_norm = DmlBatchNorm if dml else BatchNorm
    layer_norm = InvertibleLayerNorm if invertible else LayerNorm
    return Sequence(
        Convolution(weight(16, 1, 3), pad=1),
        BiasGelu(B=zeros(16)),
        batch_norm(scale=ones(16), bias=zeros(16)),
        Convolution(weight(32, 16, 3), stride=2, pad=1),
        BiasGelu(B=zeros(32)),
        layer_norm(scale=ones(32), bias=zeros(32)),
        Residual(
            RMSNorm(scale=ones(32)),
            Convolution(weight(64, 32, 1)),
            BiasFastGelu(B=zeros(64)),
            Convolution(weight(32, 64, 1)),
        ),
        Convolution(weight(10, 32, 4), bias=zeros(10)),
    )


def _moments(x: Array, axes: int | tuple[int, ...]) -> tuple[Array, Array]:
    return x.mean(axes, keepdims=True), x.var(axes, keepdims=True)


def _nchw(x: Array) -> Array:
    return x.transpose(0, 3, 1, 2)


def _nhwc(x: Array) -> Array:
    return x.transpose(0, 2, 3, 1)
