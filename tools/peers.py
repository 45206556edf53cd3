"""The same work by other libraries, for the benchmark: each function binds arrays and returns a call.

A peer gets gradkern's own inputs and computes the same outputs. None where the library has no such operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

Peer = Callable[[], Any]

_BATCH_NORM_INPUTS = ("dY", "X", "Scale", "saved_mean", "saved_inv_std")


def torch_peer(
    operator: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]
) -> Peer | None:
    """PyTorch's own operator for the same work, on tensors that share the arrays' memory."""
    import torch  # pyright: ignore[reportMissingImports]

    tensors = {name: _as_tensor(torch, array) for name, array in inputs.items()}
    make = _TORCH.get(operator)
    return make(torch.ops.aten, tensors, attributes, outputs) if make else None


def compile_peer(
    operator: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]
) -> Peer | None:
    """The same under torch.compile, which takes PyTorch's operators apart and fuses them anew."""
    import torch  # pyright: ignore[reportMissingImports]

    torch._dynamo.reset()  # after eight sizes of one function it would compile no more and run it as it is
    if operator == "SimplifiedLayerNormalizationGrad":
        return _compiled_rms_norm(torch, inputs, attributes, outputs)
    call = torch_peer(operator, inputs, attributes, outputs)
    return None if call is None else torch.compile(call, dynamic=False)


def _compiled_rms_norm(
    torch: Any, inputs: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]
) -> Peer:
    """Autograd is not compiled, so the formula is."""
    D, X, scale, r = (_as_tensor(torch, inputs[name]) for name in ("Y_grad", "X", "scale", "inv_std_var"))
    axis = attributes.get("axis", -1) % X.ndim
    columns = tuple(range(axis, X.ndim))
    rows = tuple(range(axis))
    r = r.reshape(*X.shape[:axis], *([1] * len(columns)))

    @torch.compile(dynamic=False)
    def gradients() -> Any:
        D32, xh = D.float(), X.float() * r
        g = D32 * scale.float()
        X_grad = r * (g - xh * (g * xh).mean(columns, keepdim=True))
        return X_grad.to(X.dtype), (D32 * xh).sum(rows).to(scale.dtype) if "scale_grad" in outputs else None

    return gradients


def cudnn_peer(
    operator: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]
) -> Peer | None:
    """PyTorch's batch norm through cuDNN, which always computes all gradients; "torch" is the one without."""
    import torch  # pyright: ignore[reportMissingImports]

    if operator != "BatchNormalizationGrad":
        return None
    dY, X, scale, mean, inv_std = (_as_tensor(torch, inputs[name]) for name in _BATCH_NORM_INPUTS)
    epsilon = attributes.get("epsilon", 1e-5)
    try:  # the forward pass fills the reserve space
        *_, reserve = torch.ops.aten.cudnn_batch_norm(X, scale, torch.zeros_like(scale), None, None, True, 0.1, epsilon)
        call = partial(
            torch.ops.aten.cudnn_batch_norm_backward, X, dY, scale, None, None, mean, inv_std, epsilon, reserve
        )
        call()
    except RuntimeError:  # types and sizes that cuDNN does not take
        return None
    return call


def liger_peer(
    operator: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]
) -> Peer | None:
    """Liger's Triton kernels; their backward passes through autograd, with every gradient."""
    import torch  # pyright: ignore[reportMissingImports]
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction  # pyright: ignore[reportMissingImports]
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction  # pyright: ignore[reportMissingImports]

    if operator in ("LayerNormalization", "SimplifiedLayerNormalization"):
        return _liger_forward(operator, inputs, attributes, LigerLayerNormFunction, LigerRMSNormFunction)
    if operator not in ("LayerNormalizationGrad", "SimplifiedLayerNormalizationGrad"):
        return None
    tensors = {name: _as_tensor(torch, array) for name, array in inputs.items()}
    X, scale = (tensors[name].detach().requires_grad_() for name in ("X", "scale"))
    if attributes.get("axis", -1) % X.ndim != X.ndim - 1 or X.dtype != scale.dtype:
        return None
    try:
        if operator == "LayerNormalizationGrad":
            bias = torch.zeros_like(scale).requires_grad_()
            Y, wanted = LigerLayerNormFunction.apply(X, scale, bias, 1e-5), [X, scale, bias]
        else:
            Y, wanted = LigerRMSNormFunction.apply(X, scale, 1e-5, 0.0, "llama", False), [X, scale]
        torch.autograd.grad(Y, wanted, tensors["Y_grad"], retain_graph=True)
    except Exception:  # some sizes it refuses, each in its own way
        return None
    return lambda: torch.autograd.grad(Y, wanted, tensors["Y_grad"], retain_graph=True)


def _liger_forward(
    operator: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any], layer: Any, rms: Any
) -> Peer | None:
    import torch  # pyright: ignore[reportMissingImports]

    tensors = {name: _as_tensor(torch, array) for name, array in inputs.items()}
    X, scale = tensors["X"], tensors["Scale" if operator == "LayerNormalization" else "scale"]
    if attributes.get("axis", -1) % X.ndim != X.ndim - 1 or X.dtype != scale.dtype:
        return None
    epsilon = attributes.get("epsilon", 1e-5)
    if operator == "LayerNormalization":
        return lambda: layer.apply(X, scale, tensors["B"], epsilon)
    return lambda: rms.apply(X, scale, epsilon, 0.0, "llama", False)


def _as_tensor(torch: Any, array: Any) -> Any:
    if isinstance(array, torch.Tensor):
        return array
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _layer_norm_forward(
    aten: Any, t: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]
) -> Peer:
    shape = list(t["X"].shape[attributes.get("axis", -1) % t["X"].ndim :])
    return lambda: aten.native_layer_norm(t["X"], shape, t["Scale"], t.get("B"), attributes.get("epsilon", 1e-5))


def _skip_layer_norm(aten: Any, t: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]) -> Peer:
    import torch  # pyright: ignore[reportMissingImports]

    shape, epsilon = t["gamma"].shape, attributes.get("epsilon", 1e-12)

    def call() -> Any:
        total = t["input"] + t["skip"]
        if "beta" in t:
            return aten.native_layer_norm(total, shape, t["gamma"], t["beta"], epsilon), total
        return torch.nn.functional.rms_norm(total, shape, t["gamma"], epsilon), total

    return call


def _rms_norm_forward(aten: Any, t: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]) -> Peer:
    import torch  # pyright: ignore[reportMissingImports]

    X, epsilon = t["X"], attributes.get("epsilon", 1e-5)
    shape = X.shape[attributes.get("axis", -1) % X.ndim :]
    return lambda: torch.nn.functional.rms_norm(X, shape, t["scale"], epsilon)


def _layer_norm(aten: Any, t: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]) -> Peer:
    axis = attributes.get("axis", -1) % t["X"].ndim
    shape = list(t["X"].shape[axis:])
    stats = [*t["X"].shape[:axis], *([1] * len(shape))]
    mean, rstd = t["mean"].reshape(stats), t["inv_std_dev"].reshape(stats)
    mask = [name in outputs for name in ("X_grad", "scale_grad", "bias_grad")]
    return lambda: aten.native_layer_norm_backward(t["Y_grad"], t["X"], shape, mean, rstd, t["scale"], t["scale"], mask)


def _rms_norm(aten: Any, t: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]) -> Peer:
    """By autograd, which alone reaches the gradient on every device; the forward pass is not timed."""
    import torch  # pyright: ignore[reportMissingImports]

    X, scale = (t[name].detach().requires_grad_() for name in ("X", "scale"))
    Y = torch.nn.functional.rms_norm(X, X.shape[attributes.get("axis", -1) % X.ndim :], scale.to(X.dtype), 1e-5)
    wanted = [each for each, name in ((X, "X_grad"), (scale, "scale_grad")) if name in outputs]
    return lambda: torch.autograd.grad(Y, wanted, t["Y_grad"].to(Y.dtype), retain_graph=True)


def _bias_gelu(approximate: str) -> Any:
    def make(aten: Any, t: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]) -> Peer:
        def call() -> Any:
            gradient = aten.gelu_backward(t["dY"], t["X"] + t["B"], approximate=approximate)
            return gradient, gradient.flatten(0, -2).sum(0) if "dB" in outputs else None

        return call

    return make


def _bias_gelu_forward(approximate: str) -> Any:
    def make(aten: Any, t: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]) -> Peer:
        return lambda: aten.gelu(t["A"] + t["B"], approximate=approximate)

    return make


def _softmax(function: str, single: bool) -> Any:
    def make(aten: Any, t: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]) -> Peer:
        import torch  # pyright: ignore[reportMissingImports]

        dY, output = t.values()
        shape, axis = output.shape, attributes.get("axis", -1 if single else 1) % output.ndim
        if not single:
            dY, output = (each.flatten(axis) for each in (dY, output))
        dtype = getattr(torch, attributes.get("dX_type", str(output.dtype).removeprefix("torch.")))
        gradient = getattr(aten, function)
        if dtype in (output.dtype, torch.float16):
            return lambda: gradient(dY, output, axis, dtype).reshape(shape)
        return lambda: gradient(dY, output, axis, output.dtype).reshape(shape).to(dtype)

    return make


def _batch_norm(aten: Any, t: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]) -> Peer:
    mask = [name in outputs for name in ("dX", "dScale", "dBias")]
    mean, inv_std = t["saved_mean"], t["saved_inv_std"]
    return lambda: aten.native_batch_norm_backward(
        t["dY"], t["X"], t["Scale"], None, None, mean, inv_std, True, attributes.get("epsilon", 1e-5), mask
    )


def _dml_batch_norm(
    aten: Any, t: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]
) -> Peer | None:
    data = t["Input"]
    per_channel = [size if axis == 1 else 1 for axis, size in enumerate(data.shape)]
    if list(t["Mean"].shape) != per_channel:
        return None
    mean, variance, scale = (t[name].flatten() for name in ("Mean", "Variance", "Scale"))
    epsilon = attributes["Epsilon"]
    # on a GPU it asks for saved statistics though it takes the others
    saved = (mean.float(), (variance.float() + epsilon).rsqrt()) if data.is_cuda else (None, None)
    return lambda: aten.native_batch_norm_backward(
        t["InputGradient"], data, scale, mean, variance, *saved, False, epsilon, [True] * 3
    )


def _conv_forward(
    aten: Any, t: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]
) -> Peer | None:
    rank = t["X"].ndim - 2
    pads = attributes.get("pads", (0,) * (2 * rank))
    if pads[:rank] != pads[rank:] or "auto_pad" in attributes:
        return None
    strides, dilations = (list(attributes.get(name, (1,) * rank)) for name in ("strides", "dilations"))
    sizes = strides, list(pads[:rank]), dilations, False, [0] * rank, attributes.get("group", 1)
    return lambda: aten.convolution(t["X"], t["W"], t.get("B"), *sizes)


def _conv(aten: Any, t: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]) -> Peer | None:
    rank = t["X"].ndim - 2
    pads = attributes.get("pads", (0,) * (2 * rank))
    if pads[:rank] != pads[rank:] or "auto_pad" in attributes:
        return None
    strides, dilations = (list(attributes.get(name, (1,) * rank)) for name in ("strides", "dilations"))
    mask = [name in outputs for name in ("dX", "dW", "dB")]
    filters, group = [t["W"].shape[0]], attributes.get("group", 1)
    return lambda: aten.convolution_backward(
        t["dY"], t["X"], t["W"], filters, strides, list(pads[:rank]), dilations, False, [0] * rank, group, mask
    )


_TORCH: dict[str, Any] = {
    "LayerNormalization": _layer_norm_forward,
    "SimplifiedLayerNormalization": _rms_norm_forward,
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_layer_norm,
    "LayerNormalizationGrad": _layer_norm,
    "SimplifiedLayerNormalizationGrad": _rms_norm,
    "BiasGelu": _bias_gelu_forward("none"),
    "BiasFastGelu": _bias_gelu_forward("tanh"),
    "BiasGeluGrad_dX": _bias_gelu("none"),
    "BiasFastGeluGrad_dX": _bias_gelu("tanh"),
    "SoftmaxGrad": _softmax("_softmax_backward_data", single=False),
    "SoftmaxGrad_13": _softmax("_softmax_backward_data", single=True),
    "LogSoftmaxGrad": _softmax("_log_softmax_backward_data", single=False),
    "LogSoftmaxGrad_13": _softmax("_log_softmax_backward_data", single=True),
    "BatchNormalizationGrad": _batch_norm,
    "DmlBatchNormalizationGrad": _dml_batch_norm,
    "Conv": _conv_forward,
    "ConvGrad": _conv,
}
PEERS = {"torch": torch_peer, "cudnn": cudnn_peer, "compile": compile_peer, "liger": liger_peer}
