"""The same work by other libraries, for the benchmark: each function binds arrays and returns a call.

A peer gets gradkern's own inputs and computes the same outputs. None where the library has no such operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from elementwise_peers import ELEMENTWISE
from window_peers import WINDOWS

Peer = Callable[[], Any]

_BATCH_NORM_INPUTS = ("dY", "X", "Scale", "saved_mean", "saved_inv_std")


def torch_peer(
    operator: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]
) -> Peer | None:
    """PyTorch's own operator for the same work, on tensors that share the arrays' memory."""
    import torch  # pyright: ignore[reportMissingImports]

    tensors = {name: _as_tensor(torch, array) for name, array in inputs.items()}
    if operator in _BY_AUTOGRAD:
        return _by_autograd(torch, operator, tensors, attributes, outputs, lambda function: function)
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
    if operator in _BY_AUTOGRAD:
        tensors = {name: _as_tensor(torch, array) for name, array in inputs.items()}
        compiled = partial(torch.compile, dynamic=False)
        functorch: Any = import_module("torch._functorch.config")
        with functorch.patch(donated_buffer=False):  # else a graph gives its gradients once
            return _by_autograd(torch, operator, tensors, attributes, outputs, compiled)
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
    if operator in ("CrossEntropy", "LinearCrossEntropy"):
        return _liger_loss(torch, operator, inputs, attributes, outputs)
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


def _liger_loss(
    torch: Any, operator: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]
) -> Peer | None:
    """It computes gradients in the forward pass and writes those of the logits over them, so it gets a copy."""
    from liger_kernel.ops.cross_entropy import (  # pyright: ignore[reportMissingImports]
        LigerCrossEntropyFunction,
    )
    from liger_kernel.ops.fused_linear_cross_entropy import (  # pyright: ignore[reportMissingImports]
        LigerFusedLinearCrossEntropyFunction,
    )

    t = {name: _as_tensor(torch, array) for name, array in inputs.items()}
    if t["labels"].ndim > 1 or "dY" in t or "probabilities" in t:
        return None
    given: list[Any] = [attributes.get(name, default) for name, default in _LIGER_LOSS.items()]
    given[-1] = given[-1] or None
    leaves = {name: t[name].clone().requires_grad_() for name in ("X", "W", "B") if f"d{name}" in outputs}
    t |= leaves

    def step() -> Any:
        if operator == "CrossEntropy":
            loss = LigerCrossEntropyFunction.apply(t["X"], t["labels"], t.get("weight"), *given)[0]
        else:
            data = (t["X"], t["W"], t["labels"], t.get("B"), t.get("weight"))
            loss = LigerFusedLinearCrossEntropyFunction.apply(*data, *given)[0]
        return loss, *torch.autograd.grad(loss, list(leaves.values()), torch.ones_like(loss))

    return step


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


def _by_autograd(
    torch: Any,
    operator: str,
    t: Mapping[str, Any],
    attributes: Mapping[str, Any],
    outputs: tuple[str, ...],
    compiled: Callable[[Any], Any],
) -> Peer | None:
    """Gradients that a training step gets by autograd, of a forward pass that `compiled` may have compiled. The
    forward pass is timed where gradkern's operator computes it, too.
    """
    forward, gradient, wanted = _BY_AUTOGRAD[operator]
    leaves = {name: t[name].detach().requires_grad_() for output, name in wanted.items() if output in outputs}
    function = forward(torch.nn.functional, attributes)
    if function is None:
        return None
    function = compiled(function)
    given = {**t, **leaves}
    if gradient is None:

        def step() -> Any:
            loss = function(given)
            dY = t.get("dY", torch.ones_like(loss))
            return loss.detach(), *torch.autograd.grad(loss, list(leaves.values()), dY)

        return step
    Y = function(given)
    return lambda: torch.autograd.grad(Y, list(leaves.values()), t[gradient], retain_graph=True)


def _group_norm(F: Any, attributes: Mapping[str, Any]) -> Any:
    activation = {"none": lambda y: y, "silu": F.silu, "relu": F.relu, "gelu": F.gelu}[
        attributes.get("activation", "none")
    ]
    last = attributes.get("channels_last", 0)

    def function(t: Mapping[str, Any]) -> Any:
        X = t["X"].movedim(-1, 1) if last else t["X"]
        gamma, beta = (None if each is None else each.to(X.dtype) for each in (t.get("gamma"), t.get("beta")))
        Y = activation(F.group_norm(X, attributes["groups"], gamma, beta))
        return Y.movedim(1, -1) if last else Y

    return function


def _group_norm_forward(
    aten: Any, t: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]
) -> Peer:
    import torch  # pyright: ignore[reportMissingImports]

    of_grad = {"groups": attributes["num_groups"], "activation": attributes.get("activation", "none")}
    function = _group_norm(torch.nn.functional, of_grad)
    given = {"X": t["X"], "gamma": t.get("scale"), "beta": t.get("bias")}
    return lambda: function(given)


def _cross_entropy(F: Any, attributes: Mapping[str, Any]) -> Any:
    if any(attributes.get(name) for name in ("z_loss", "softcap")):
        return None
    given = {name: value for name, value in attributes.items() if name in ("reduction", "ignore_index")}
    smoothing = attributes.get("label_smoothing", 0.0)

    def function(t: Mapping[str, Any]) -> Any:
        X = F.linear(t["X"], t["W"], t.get("B")) if "W" in t else t["X"]
        X = X if X.itemsize > 4 else X.float()
        weight = None if "weight" not in t else t["weight"].to(X.dtype)
        return F.cross_entropy(X, t["labels"].long(), weight, label_smoothing=smoothing, **given)

    return function


def _cross_entropy_of_log_prob(
    aten: Any, t: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]
) -> Peer:
    """ONNX's loss, from logits or, where log_prob is given, its gradient."""
    reduction = ("none", "mean", "sum").index(attributes.get("reduction", "mean"))
    ignored = attributes.get("ignore_index", -100)
    backward = "log_prob" in t
    label, weight = (t["label"], t.get("weight")) if backward else (t["labels"], t.get("weights"))
    label = label.long()
    nll = aten.nll_loss2d if label.ndim > 1 else aten.nll_loss  # which take N, C, H, W and N, C
    if label.ndim > 1:
        label = label.reshape(label.shape[0], 1, -1)

    def flat(each: Any) -> Any:
        return each.reshape(*each.shape[:2], 1, -1) if each.ndim > 2 else each

    if not backward:

        def loss() -> Any:
            log_prob = aten._log_softmax(t["scores"], 1, False)
            return nll(flat(log_prob), label, weight, reduction, ignored), log_prob

        return loss
    log_prob, dY = flat(t["log_prob"]), t["dY"]
    dY = dY.reshape(label.shape) if dY.ndim else dY
    form = "nll_loss2d" if label.ndim > 1 else "nll_loss"
    _, total = getattr(aten, f"{form}_forward")(log_prob, label, weight, reduction, ignored)
    gradient = getattr(aten, f"{form}_backward")

    def call() -> Any:
        of_log_prob = gradient(dY, log_prob, label, weight, reduction, ignored, total)
        return aten._log_softmax_backward_data(of_log_prob, log_prob, 1, log_prob.dtype).reshape(t["log_prob"].shape)

    return call


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
    aten: Any,
    t: Mapping[str, Any],
    attributes: Mapping[str, Any],
    outputs: tuple[str, ...],
    transposed: bool = False,
) -> Peer | None:
    sizes = _conv_sizes(t, attributes, transposed)
    return None if sizes is None else lambda: aten.convolution(t["X"], t["W"], t.get("B"), *sizes)


def _conv(
    aten: Any,
    t: Mapping[str, Any],
    attributes: Mapping[str, Any],
    outputs: tuple[str, ...],
    transposed: bool = False,
) -> Peer | None:
    sizes, filters = _conv_sizes(t, attributes, transposed), [t["dY"].shape[1]]
    mask = [name in outputs for name in ("dX", "dW", "dB")]
    if sizes is None:
        return None
    return lambda: aten.convolution_backward(t["dY"], t["X"], t["W"], filters, *sizes, mask)


def _conv_sizes(t: Mapping[str, Any], attributes: Mapping[str, Any], transposed: bool) -> tuple[Any, ...] | None:
    """aten's arguments; None of pads that it does not have."""
    rank = t["X"].ndim - 2
    pads = attributes.get("pads", (0,) * (2 * rank))
    if pads[:rank] != pads[rank:] or {"auto_pad", "output_shape"} & attributes.keys():
        return None
    strides, dilations = (list(attributes.get(name, (1,) * rank)) for name in ("strides", "dilations"))
    more = list(attributes.get("output_padding", (0,) * rank))
    return strides, list(pads[:rank]), dilations, transposed, more, attributes.get("group", 1)


def _gather(aten: Any, t: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]) -> Peer | None:
    """The gradient of an embedding's weight; along other axes that of index_select has the same form."""
    shape, axis = attributes["shape"], attributes.get("axis", 0)
    padding = attributes.get("padding_idx")
    if axis % len(shape) or "accumulator" in t:
        return None
    rows, indices = shape[0], t["indices"] % shape[0]
    dY = t["dY"].reshape(*indices.shape, -1)
    padding = -1 if padding is None else padding % rows
    return lambda: aten.embedding_dense_backward(dY, indices, rows, padding, False).reshape(shape)


def _gather_elements(aten: Any, t: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]) -> Peer:
    shape, axis = attributes["shape"], attributes.get("axis", 0)
    indices = t["indices"].long() % shape[axis]
    return lambda: t["dY"].new_zeros(shape).scatter_add(axis, indices, t["dY"])


def _gather_nd(aten: Any, t: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]) -> Peer | None:
    if attributes.get("batch_dims", 0):
        return None
    shape, indices = attributes["shape"], t["indices"].unbind(-1)
    return lambda: t["update"].new_zeros(shape).index_put(indices, t["update"], accumulate=True)


def _slice(aten: Any, t: Mapping[str, Any], attributes: Mapping[str, Any], outputs: tuple[str, ...]) -> Peer | None:
    axes = attributes.get("axes", range(len(attributes["starts"])))
    steps = attributes.get("steps", (1,) * len(attributes["starts"]))
    if len(steps) != 1 or steps[0] < 1:
        return None
    cut = axes[0], attributes["starts"][0], attributes["ends"][0], steps[0]
    return lambda: aten.slice_backward(t["dY"], list(attributes["shape"]), *cut)


_LIGER_LOSS = {"ignore_index": -100, "z_loss": 0.0, "label_smoothing": 0.0, "reduction": "mean", "softcap": 0.0}
"""Attributes of the losses in the order of Liger's arguments, with their defaults."""
_BY_AUTOGRAD: dict[str, tuple[Callable[[Any, Mapping[str, Any]], Any], str | None, Mapping[str, str]]] = {
    "GroupNormGrad": (_group_norm, "dY", {"dX": "X", "dgamma": "gamma", "dbeta": "beta"}),
    "CrossEntropy": (_cross_entropy, None, {"dX": "X"}),
    "LinearCrossEntropy": (_cross_entropy, None, {"dX": "X", "dW": "W", "dB": "B"}),
}
"""The forward pass, the input that has the output's gradient (None: the operator computes the forward pass), and the
inputs whose gradients its outputs are."""
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
    "GroupNormalization": _group_norm_forward,
    "SoftmaxCrossEntropyLoss": _cross_entropy_of_log_prob,
    "SoftmaxCrossEntropyLossGrad": _cross_entropy_of_log_prob,
    "GatherGrad": _gather,
    "GatherElementsGrad": _gather_elements,
    "GatherNDGrad": _gather_nd,
    "SliceGrad": _slice,
    "Conv": _conv_forward,
    "ConvGrad": _conv,
    "ConvTranspose": partial(_conv_forward, transposed=True),
    "ConvTransposeGrad": partial(_conv, transposed=True),
    **ELEMENTWISE,
    **WINDOWS,
}
TORCH_OPERATORS = (*_TORCH, *_BY_AUTOGRAD)
"""Those that torch_peer answers."""
PEERS = {"torch": torch_peer, "cudnn": cudnn_peer, "compile": compile_peer, "liger": liger_peer}
