"""PyTorch's own samples of the functions whose gradients gradkern computes, and the operators' calls they make.

The samples are those of OpInfo, PyTorch's table of its operators for its own tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch.nn import functional

Tensor = torch.Tensor
Values = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """A function whose gradient an operator is.

    leaves      what is differentiated by, under the name of the output that is its gradient
    constants   other inputs, under their own names
    function    of leaves and constants
    derived     the inputs that are made from leaves and constants: statistics, what the forward pass would save
    """

    operator: str
    leaves: dict[str, Tensor]
    function: Callable[[Values], Tensor]
    derived: Callable[[Values], dict[str, Tensor]] = lambda _: {}
    constants: dict[str, Tensor] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)


INPUT_OF = {
    "X_grad": "X",
    "scale_grad": "scale",
    "bias_grad": "bias",
    "dX": "X",
    "dScale": "Scale",
    "dW": "W",
    "dB": "B",
    "OutputGradient": "Input",
    "OutputScaleGradient": "Scale",
}
"""The input that an output is the gradient of, where the operator has that input."""


@cache
def samples(name: str) -> list[Any]:
    """The samples of one of PyTorch's functions in float64, the same in every run. They are not to be changed."""
    from torch.testing._internal.common_methods_invocations import op_db

    info = next(each for each in op_db if each.name == name and not each.variant_test_name)
    torch.manual_seed(0)
    return list(info.sample_inputs("cpu", torch.float64, requires_grad=False))


def _arguments(sample: Any, **defaults: Any) -> Any:
    """A sample's arguments after the first, by name."""
    return {**defaults, **dict(zip(defaults, sample.args, strict=False)), **sample.kwargs}


def _given(**tensors: Tensor | None) -> dict[str, Tensor]:
    return {name: each for name, each in tensors.items() if each is not None}


# --- layer norms ------------------------------------------------------------------------------------------------------


def layer_norm(sample: Any) -> Problem:
    given = _arguments(sample, normalized_shape=None, weight=None, bias=None, eps=1e-5)
    x, shape, eps = sample.input, given["normalized_shape"], given["eps"]
    over = tuple(range(x.dim() - len(shape), x.dim()))

    def derived(values: Values) -> dict[str, Tensor]:
        x = values["X_grad"]
        saved = {} if "scale_grad" in values else {"scale": torch.ones(shape, dtype=torch.float64)}
        mean = x.mean(over, keepdim=True)
        variance = (x - mean).square().mean(over, keepdim=True)
        return {**saved, "mean": mean, "inv_std_dev": (variance + eps).rsqrt()}

    return Problem(
        "LayerNormalizationGrad",
        _given(X_grad=x, scale_grad=given["weight"], bias_grad=given["bias"]),
        lambda values: functional.layer_norm(
            values["X_grad"], shape, values.get("scale_grad"), values.get("bias_grad"), eps
        ),
        derived,
        attributes={"axis": over[0]},
    )


def invertible_layer_norm(sample: Any) -> Problem:
    """The same function; what is saved is its output."""
    problem = layer_norm(sample)

    def derived(values: Values) -> dict[str, Tensor]:
        statistics = problem.derived(values)
        shape = values["X_grad"].shape[problem.attributes["axis"] :]
        saved = {} if "bias_grad" in values else {"bias": torch.zeros(shape, dtype=torch.float64)}
        saved |= {name: each for name, each in statistics.items() if name == "scale"}
        return {"Y": problem.function(values), **saved, "inv_std_var": statistics["inv_std_dev"]}

    return replace(problem, operator="InvertibleLayerNormalizationGrad", derived=derived)


def rms_norm(sample: Any) -> Problem:
    given = _arguments(sample, normalized_shape=None, weight=None, eps=None)
    x, shape = sample.input, given["normalized_shape"]
    eps = torch.finfo(torch.float64).eps if given["eps"] is None else given["eps"]
    over = tuple(range(x.dim() - len(shape), x.dim()))

    def derived(values: Values) -> dict[str, Tensor]:
        saved = {} if "scale_grad" in values else {"scale": torch.ones(shape, dtype=torch.float64)}
        return {**saved, "inv_std_var": (values["X_grad"].square().mean(over, keepdim=True) + eps).rsqrt()}

    return Problem(
        "SimplifiedLayerNormalizationGrad",
        _given(X_grad=x, scale_grad=given["weight"]),
        lambda values: functional.rms_norm(values["X_grad"], shape, values.get("scale_grad"), eps),
        derived,
        attributes={"axis": over[0]},
    )


# --- batch norms ------------------------------------------------------------------------------------------------------


def batch_norm(sample: Any) -> Problem:
    given = _arguments(sample, running_mean=None, running_var=None, weight=None, bias=None, training=False)
    return _batch_norm(sample.input, given)


def native_batch_norm(sample: Any) -> Problem:
    names = ["weight", "bias", "running_mean", "running_var", "training", "momentum", "eps"]
    if len(sample.args) == 5:  # the overload without running statistics
        del names[2:4]
    return _batch_norm(sample.input, {"running_mean": None, **dict(zip(names, sample.args, strict=True))})


def _batch_norm(x: Tensor, given: dict[str, Any]) -> Problem:
    eps, over = given.get("eps", 1e-5), (0, *range(2, x.dim()))
    channels = (1, -1, *[1] * (x.dim() - 2))
    weight = given["weight"]
    if given["training"]:

        def derived(values: Values) -> dict[str, Tensor]:
            x = values["dX"]
            saved = {} if weight is not None else {"Scale": torch.ones(x.shape[1], dtype=torch.float64)}
            mean = x.mean(over)
            variance = (x - mean.reshape(channels)).square().mean(over)
            return {**saved, "saved_mean": mean, "saved_inv_std": (variance + eps).rsqrt()}

        return Problem(
            "BatchNormalizationGrad",
            _given(dX=x, dScale=weight, dBias=given["bias"]),
            lambda values: functional.batch_norm(
                values["dX"], None, None, values.get("dScale"), values.get("dBias"), True, eps=eps
            ),
            derived,
        )
    if x.dim() > 1:
        mean, variance = (given[name].reshape(channels) for name in ("running_mean", "running_var"))
    else:
        mean, variance = given["running_mean"], given["running_var"]
    constants = {"Mean": mean, "Variance": variance}
    if weight is None:
        constants["Scale"] = torch.ones_like(mean)
    leaves = _given(OutputGradient=x, OutputScaleGradient=weight, OutputBiasGradient=given["bias"])
    return Problem(
        "DmlBatchNormalizationGrad",
        {name: each if name == "OutputGradient" else each.reshape(channels) for name, each in leaves.items()},
        lambda values: functional.batch_norm(
            values["OutputGradient"],
            values["Mean"].flatten(),
            values["Variance"].flatten(),
            _flat(values, "OutputScaleGradient"),
            _flat(values, "OutputBiasGradient"),
            False,
            eps=eps,
        ),
        constants=constants,
        attributes={"Epsilon": eps},
    )


def _flat(values: dict[str, Tensor], name: str) -> Tensor | None:
    return values[name].flatten() if name in values else None


# --- GELU and convolution ---------------------------------------------------------------------------------------------


def gelu(sample: Any) -> Problem:
    """The bias is the sample's first row: its sum with the sample is what GELU is taken of."""
    approximate = sample.kwargs["approximate"]
    return Problem(
        "BiasGeluGrad_dX" if approximate == "none" else "BiasFastGeluGrad_dX",
        {"dX": sample.input, "dB": sample.input[0].clone()},
        lambda values: functional.gelu(values["dX"] + values["dB"], approximate=approximate),
    )


def conv(sample: Any) -> Problem:
    """An unbatched sample is a batch of one."""
    given = _arguments(sample, weight=None, bias=None, stride=1, padding=0, dilation=1, groups=1)
    weight = given["weight"]
    spatial = weight.dim() - 2
    x = sample.input if sample.input.dim() == weight.dim() else sample.input.unsqueeze(0)
    stride, padding, dilation = (
        size if isinstance(size, str) else [size] * spatial if isinstance(size, int) else list(size)
        for size in (given["stride"], given["padding"], given["dilation"])
    )
    attributes: dict[str, Any] = {"strides": stride, "dilations": dilation, "group": given["groups"]}
    if isinstance(padding, str):
        attributes["auto_pad"] = {"same": "SAME_UPPER", "valid": "VALID"}[padding]
    else:
        attributes["pads"] = [*padding, *padding]
    function: Any = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}[spatial]
    return Problem(
        "ConvGrad",
        _given(dX=x, dW=weight, dB=given["bias"]),
        lambda values: function(
            values["dX"], values["dW"], values.get("dB"), stride, padding, dilation, given["groups"]
        ),
        attributes=attributes,
    )


# --- where tensors lie ------------------------------------------------------------------------------------------------


def _with_a_step(tensor: Tensor) -> Tensor:
    """Every second element of every axis of a larger tensor."""
    wide = torch.full([2 * size for size in tensor.shape], torch.nan, dtype=tensor.dtype, device=tensor.device)
    view = wide[(slice(None, None, 2),) * tensor.dim()]
    return view.copy_(tensor)


def _transposed(tensor: Tensor) -> Tensor:
    back = tuple(reversed(range(tensor.dim())))
    return tensor.permute(back).contiguous().permute(back)


def _expanded(tensor: Tensor) -> Tensor:
    """What is first along the first axis in the place of all: other values, with a stride of 0."""
    return tensor[:1].expand(tensor.shape) if tensor.shape[0] > 1 else tensor.contiguous()


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "dense": lambda tensor: tensor.contiguous(),
    "with a step": _with_a_step,
    "transposed": _transposed,
    "expanded": _expanded,
}
