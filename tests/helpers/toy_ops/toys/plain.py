"""The toy operators in NumPy, each as its formula says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradkern.call import Call

Values = dict[str, Any]


@dataclass
class ToyPlan:
    call: Call
    kernel: str = "plain"
    scratch: int = 0

    def __call__(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...], stream: Any) -> None:
        names = [*self.call.inputs, *self.call.scalars]
        given = {**self.call.attributes, **dict(zip(names, inputs, strict=True))}
        results = FORMULAS[self.call.operator](self.call, given)
        for name, output in zip(self.call.outputs, outputs, strict=True):
            output[...] = results[name]


def plan(call: Call) -> ToyPlan:
    return ToyPlan(call)


def _loss(call: Call, given: Values) -> Values:
    scores, labels = np.moveaxis(given["scores"].astype(np.float64), 1, -1), given["labels"]
    counted = labels != given["ignore_index"]
    log_prob = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    weights = given.get("weights", np.ones(scores.shape[-1]))
    index = np.where(counted, labels, 0)
    share = weights.astype(np.float64)[index] * counted
    losses = -np.take_along_axis(log_prob, index[..., None], -1)[..., 0] * share
    whole = {"none": losses, "sum": losses.sum(), "mean": losses.sum() / share.sum()}[given["reduction"]]
    return {"output": whole, "log_prob": np.moveaxis(log_prob, -1, 1)}


def _loss_grad(call: Call, given: Values) -> Values:
    prob = np.exp(np.moveaxis(given["log_prob"], 1, -1))
    hit = np.arange(prob.shape[-1]) == given["label"][..., None]
    dY = np.asarray(given["dY"]) / (given["label"].size if given["reduction"] == "mean" else 1)
    return {"d_logits": np.moveaxis(dY[..., None] * (prob - hit), -1, 1)}


def _dropout_softmax(call: Call, given: Values) -> Values:
    kept = given["mask"] if given.get("training_mode", True) else True
    ratio = given["ratio"] if given.get("training_mode", True) else 0
    g, y = np.where(kept, given["dy"], 0) / (1 - ratio), given["softmax_y"]
    over = tuple(range(given["axis"], y.ndim))
    return {"dx": y * (g - (g * y).sum(over, keepdims=True))}


def _softmax(call: Call, given: Values) -> Values:
    dY, Y = given["dY"], given["Y"]
    return {"dX": Y * (dY - (dY * Y).sum(given["axis"], keepdims=True))}


def _group_norm(call: Call, given: Values) -> Values:
    X = np.moveaxis(given["X"], -1, 1) if given["channels_last"] else given["X"]
    N, C, groups = X.shape[0], X.shape[1], given["groups"]
    apart = X.reshape(N, groups, -1)
    mean = apart.mean(-1)
    xh = ((apart - mean[..., None]) / np.sqrt(apart.var(-1) + given["epsilon"])[..., None]).reshape(X.shape)
    along = (C, *[1] * (X.ndim - 2))
    Y = xh * given["gamma"].reshape(along) + given["beta"].reshape(along)
    return {"Y": np.moveaxis(Y, 1, -1) if given["channels_last"] else Y, "mean": mean}


def _rotary(call: Call, given: Values) -> Values:
    cos, sin = (given[name][given["position_ids"]][:, :, None] for name in ("cos_cache", "sin_cache"))
    one, two = np.split(given["X"], 2, -1)
    return {"Y": np.concatenate([one * cos - two * sin, two * cos + one * sin], -1)}


def _bitmask(call: Call, given: Values) -> Values:
    bits = np.unpackbits(given["mask"].view(np.uint8), bitorder="little")[: given["dy"].size]
    return {"dx": np.where(bits.reshape(given["dy"].shape), given["dy"], 0)}


def _swiglu(call: Call, given: Values) -> Values:
    a, b = np.split(given["X"], 2, -1)
    s, D = 1 / (1 + np.exp(-a)), given["dY"]
    return {"dX": np.concatenate([D * b * s * (1 + a * (1 - s)), D * a * s], -1)}


def _gather(call: Call, given: Values) -> Values:
    axis, before = given["axis"], call.axes["before"]
    dX = np.array(given["tied"]) if "tied" in given else np.zeros(given["shape"], given["dY"].dtype)
    flat = given["dY"].reshape(*before, -1, *call.axes["after"])
    np.add.at(np.moveaxis(dX, axis, 0), given["indices"].ravel(), np.moveaxis(flat, axis, 0))
    return {"dX": dX}


def _gather_nd(call: Call, given: Values) -> Values:
    output = np.zeros(given["shape"], given["update"].dtype)
    batch = call.axes["batch"]
    for place in np.ndindex(*batch, *call.axes["gathered"]):
        output[(*place[: len(batch)], *given["indices"][place])] += given["update"][place]
    return {"output": output}


def _slice(call: Call, given: Values) -> Values:
    dX = np.zeros(given["shape"], given["dY"].dtype)
    steps = given.get("steps") or (1,) * len(given["starts"])
    dX[tuple(map(slice, given["starts"], given["ends"], steps))] = given["dY"]
    return {"dX": dX}


def _max_pool(call: Call, given: Values) -> Values:
    dX = np.zeros((call.axes["N"], call.axes["C"], *call.axes["spatial"]), given["dY"].dtype)
    np.add.at(dX.reshape(-1), given["Indices"].ravel(), given["dY"].ravel())
    return {"dX": dX}


def _resize(call: Call, given: Values) -> Values:
    parts = [
        part for pair in zip(given["X"].shape, given["dY"].shape, strict=True) for part in (pair[0], pair[1] // pair[0])
    ]
    return {"dX": given["dY"].reshape(parts).sum(tuple(range(1, len(parts), 2)))}


def _scaled_sum(call: Call, given: Values) -> Values:
    arrays = [given[name] for name in call.inputs]
    scales = given["scales"] if isinstance(given["scales"], tuple) else (given["scales"],) * len(arrays)
    return {"output": sum(scale * each for scale, each in zip(scales, arrays, strict=False))}


def _batch_scale(call: Call, given: Values) -> Values:
    return {f"output_{n}": given["input"] * given[f"scale_{n}"] for n in range(3) if given[f"scale_{n}"] is not None}


def _div(call: Call, given: Values) -> Values:
    dA = given["dY"] / given["B"]
    lead = dA.ndim - given["A"].ndim
    over = tuple(n for n in range(lead, dA.ndim) if given["A"].shape[n - lead] == 1)
    return {"dA": dA.sum(over, keepdims=True).sum(tuple(range(lead)))}


FORMULAS: dict[str, Callable[[Call, Values], Values]] = {
    "BatchScale": _batch_scale,
    "BitmaskDropoutGrad": _bitmask,
    "DivGrad": _div,
    "GatherGrad": _gather,
    "GatherNDGrad": _gather_nd,
    "GroupNorm": _group_norm,
    "InPlaceAccumulator": lambda call, given: {"new_sum": given["old_sum"] + given["value"]},
    "MaxPoolGrad": _max_pool,
    "ResizeGrad": _resize,
    "RotaryEmbedding": _rotary,
    "Scale": lambda call, given: {"Y": given["X"] * given["scale"]},
    "ScaledSum": _scaled_sum,
    "SliceGrad": _slice,
    "SoftmaxCrossEntropyLoss": _loss,
    "SoftmaxCrossEntropyLossGrad": _loss_grad,
    "SoftmaxDropoutGrad": _dropout_softmax,
    "SoftmaxGrad_13": _softmax,
    "SwiGLUGrad": _swiglu,
}
