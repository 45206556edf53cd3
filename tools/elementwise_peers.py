"""PyTorch's operators for those of gradkern's element-wise block: see peers. Formulas where it has no operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["ELEMENTWISE"]

Tensors = Mapping[str, Any]
Formula = Callable[[Any, Tensors, Mapping[str, Any]], Any]


def _quick_gelu(aten: Any, t: Tensors, attributes: Mapping[str, Any]) -> Any:
    z = attributes.get("alpha", 1.702) * t["X"]
    s = z.sigmoid()
    return t["dY"] * (s * (1 + z * (1 - s)))


def _dropout(aten: Any, t: Tensors, attributes: Mapping[str, Any]) -> Any:
    return aten.native_dropout_backward(t["dy"], t["mask"], 1 / (1 - attributes.get("ratio", 0.5)))


def _softmax_dropout(aten: Any, t: Tensors, attributes: Mapping[str, Any]) -> Any:
    y, axis = t["softmax_y"], attributes["axis"]
    dy = _dropout(aten, t, attributes).flatten(axis)
    return aten._softmax_backward_data(dy, y.flatten(axis), axis, y.dtype).reshape(y.shape)


def _division(aten: Any, t: Tensors, attributes: Mapping[str, Any]) -> Any:
    A, B, q = t["A"], t["B"], t["dY"] / t["B"]
    return q.sum_to_size(A.shape), (-q * (A / B)).sum_to_size(B.shape)


def _scaled_sum(aten: Any, t: Tensors, attributes: Mapping[str, Any]) -> Any:
    return aten.add(t["input_0"] * attributes["scale_0"], t["input_1"], alpha=attributes["scale_1"])


def _scale(aten: Any, t: Tensors, attributes: Mapping[str, Any]) -> Any:
    return t["input"] / t["scale"] if attributes.get("scale_down") else t["input"] * t["scale"]


def _swiglu_gradient(aten: Any, t: Tensors, attributes: Mapping[str, Any]) -> Any:
    return aten.silu_backward(t["dY"] * t["B"], t["A"]), t["dY"] * aten.silu(t["A"])


def _geglu_gradient(aten: Any, t: Tensors, attributes: Mapping[str, Any]) -> Any:
    return aten.gelu_backward(t["dY"] * t["B"], t["A"], **attributes), t["dY"] * aten.gelu(t["A"], **attributes)


def _pad(aten: Any, t: Tensors, attributes: Mapping[str, Any]) -> Any:
    first, second = attributes["unflatten_dims"]
    rows = t["input"].new_zeros((first * second, *t["input"].shape[1:]))
    return rows.index_add_(0, t["indices"], t["input"]).unflatten(0, (first, second))


_FORMULAS: dict[str, Formula] = {
    "GeluGrad": lambda aten, t, _: aten.gelu_backward(t["dY"], t["X"]),
    "FastGeluGrad": lambda aten, t, _: aten.gelu_backward(t["dY"], t["X"], approximate="tanh"),
    "QuickGeluGrad": _quick_gelu,
    "ReluGrad": lambda aten, t, _: aten.threshold_backward(t["dY"], t["X"], 0),
    "LeakyReluGrad": lambda aten, t, each: aten.leaky_relu_backward(t["dY"], t["Y"], each.get("alpha", 0.01), True),
    "SigmoidGrad": lambda aten, t, _: aten.sigmoid_backward(t["dY"], t["Y"]),
    "TanhGrad": lambda aten, t, _: aten.tanh_backward(t["dY"], t["Y"]),
    "DropoutGrad": _dropout,
    "SoftmaxDropoutGrad": _softmax_dropout,
    "FakeQuantGrad": lambda aten, t, _: t["dY"] * t["gradient_mask"],
    "DivGrad": _division,
    "ScaledSum": _scaled_sum,
    "Scale": _scale,
    "MixedPrecisionScale": lambda aten, t, _: t["X"] * t["S"],
    "SwiGLU": lambda aten, t, _: aten.silu(t["A"]) * t["B"],
    "SwiGLUGrad": _swiglu_gradient,
    "GeGLU": lambda aten, t, each: aten.gelu(t["A"], **each) * t["B"],
    "GeGLUGrad": _geglu_gradient,
    "IsFinite": lambda aten, t, _: aten.isfinite(t["X"]),
    "IsAllFinite": lambda aten, t, _: aten.isfinite(t["input"]).all(),
    "ReduceAllL2": lambda aten, t, _: aten.linalg_vector_norm(t["X"]),
    "PadAndUnflatten": _pad,
    "FlattenAndUnpad": lambda aten, t, _: t["input"].flatten(0, 1).index_select(0, t["indices"]),
}


def _peer(formula: Formula) -> Callable[..., Callable[[], Any]]:
    return lambda aten, t, attributes, outputs: lambda: formula(aten, t, attributes)


def _batch_scale(aten: Any, t: Tensors, attributes: Mapping[str, Any], outputs: Sequence[str]) -> Callable[[], Any]:
    scales = [attributes[name.replace("output", "scale")] for name in outputs]
    return lambda: [t["input"] * scale for scale in scales]


ELEMENTWISE = {"BatchScale": _batch_scale, **{name: _peer(formula) for name, formula in _FORMULAS.items()}}
