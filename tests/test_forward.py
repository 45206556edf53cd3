"""Forward operators feed their gradients: what they save is what the gradients take, and together they are right.

The gradient that comes out is compared with central differences of the forward formula in float64; PyTorch's forward
pass in the operator's own types is another witness of the formula.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from helpers.calls import run_any
from helpers.examples import FORWARD, OPERATORS, rows, sample
from helpers.reference import FORMULAS, directional_difference, reference
from helpers.tolerance import assert_close, norm_of

import gradkern
from gradkern.contract.schema import Example

EPSILON = 0.1  # large, so that no row of few columns bends within the step of a difference
LAYER = {"scale": "Scale", "inv_std_dev": "InvStdDev", "mean": "Mean", "X": "X"}
INVERTIBLE = {"scale": "Scale", "bias": "B", "inv_std_var": "InvStdDev", "Y": "Y"}
SIMPLIFIED = {"scale": "scale", "inv_std_var": "inv_std_var", "X": "X"}
OF_LAYER = {"X": "X_grad", "Scale": "scale_grad", "B": "bias_grad"}
GELU = {"X": "A", "B": "B"}
OF_GELU = {"A": "dX", "B": "dB"}
SKIP = {"scale": "gamma", "inv_std_dev": "inv_std_var", "mean": "mean", "X": "input_skip_bias_sum"}
SKIP_SIMPLIFIED = {"scale": "gamma", "inv_std_var": "inv_std_var", "X": "input_skip_bias_sum"}
OF_SKIP = {"input": "branch_grad", "skip": "X_grad", "gamma": "scale_grad", "beta": "bias_grad"}
GROUP = {name: name for name in ("X", "mean", "inv_std", "gamma", "beta")}
ONNX_GROUP = {**GROUP, "gamma": "scale", "beta": "bias"}
INSTANCE = {**GROUP, "X": "input", "gamma": "scale", "beta": "B"}
OF_GROUP = {"X": "dX", "gamma": "dgamma", "beta": "dbeta"}
BATCH = {name: name for name in ("X", "saved_mean", "saved_inv_std")} | {"Scale": "scale"}
CONV = ({"X": "X", "W": "W"}, {"X": "dX", "W": "dW", "B": "dB"})
LOSS = {"log_prob": "log_prob", "label": "labels", "weight": "weights"}
ROW_LOSS = {"log_prob": "log_prob", "label": "label", "weight": "weight"}
DENSE_LOSS = {"log_prob": "log_prob", "label": "label"}
ROTARY = {name: name for name in ("cos_cache", "sin_cache", "position_ids")}
CONSTANT = {"input_mean", "input_var", "labels", "label", "weights", "weight", *ROTARY}
PARTNERS: dict[tuple[Any, Any], tuple[dict[str, str], dict[str, str]]] = {
    ("LayerNormalization", "LayerNormalizationGrad"): (LAYER, OF_LAYER),
    ("LayerNormalization", "InvertibleLayerNormalizationGrad"): (INVERTIBLE, OF_LAYER),
    ("SimplifiedLayerNormalization", "SimplifiedLayerNormalizationGrad"): (
        SIMPLIFIED,
        {"X": "X_grad", "scale": "scale_grad"},
    ),
    ("BatchNormalization", "BatchNormalizationGrad"): (BATCH, {"X": "dX", "scale": "dScale", "B": "dBias"}),
    ("Conv", "ConvGrad"): CONV,
    ("ConvTranspose", "ConvTransposeGrad"): CONV,
    ("SoftmaxCrossEntropyLoss", "SoftmaxCrossEntropyLossGrad"): (LOSS, {"scores": "d_logits"}),
    ("SoftmaxCrossEntropyLossInternal", "SoftmaxCrossEntropyLossInternalGrad"): (LOSS, {"scores": "d_logits"}),
    ("SparseSoftmaxCrossEntropy", "SparseSoftmaxCrossEntropyGrad"): (ROW_LOSS, {"logits": "d_logits"}),
    ("SoftmaxCrossEntropy", "SoftmaxCrossEntropyGrad"): (DENSE_LOSS, {"logits": "d_logits"}),
    ("BiasGelu", "BiasGeluGrad_dX"): (GELU, OF_GELU),
    ("BiasFastGelu", "BiasFastGeluGrad_dX"): (GELU, OF_GELU),
    ("SkipLayerNormalization", "LayerNormalizationGrad"): (SKIP, OF_SKIP),
    ("SkipSimplifiedLayerNormalization", "SimplifiedLayerNormalizationGrad"): (
        SKIP_SIMPLIFIED,
        {"input": "branch_grad", "skip": "X_grad", "gamma": "scale_grad"},
    ),
    ("MaxPool", "MaxPoolGrad"): ({"Indices": "Indices"}, {"X": "dX"}),
    ("RotaryEmbedding", "RotaryEmbeddingGrad"): (ROTARY, {"X": "dX"}),
    ("SwiGLU", "SwiGLUGrad"): ({"A": "A", "B": "B"}, {"A": "dA", "B": "dB"}),
    ("GeGLU", "GeGLUGrad"): ({"A": "A", "B": "B"}, {"A": "dA", "B": "dB"}),
    ("GroupNorm", "GroupNormGrad"): (GROUP, OF_GROUP),
    ("SkipGroupNorm", "GroupNormGrad"): ({**GROUP, "X": "S"}, {**OF_GROUP, "skip": "dX"}),
    ("GroupNormalization", "GroupNormGrad"): (ONNX_GROUP, {"X": "dX", "scale": "dgamma", "bias": "dbeta"}),
    ("InstanceNormalization", "GroupNormGrad"): (INSTANCE, {"input": "dX", "scale": "dgamma", "B": "dbeta"}),
}
"""Of a forward operator and its gradient: what of the first each input of the second is, but the upstream gradient; and
the gradient's output of every input of the first.
"""


def gradient_attributes(forward: str, gradient: str, example: Example) -> dict[str, Any]:
    """Those of the gradient that belong to a forward operator's."""
    given: dict[str, Any] = dict(example.attributes)
    if gradient == "GroupNormGrad":
        given["groups"] = given.get("groups", given.get("num_groups", example.axes["C"]))
        given["channels_last"] = given.get("channels_last", int("com" in OPERATORS[forward].domain))
        if isinstance(given.get("activation"), int):
            given["activation"] = ("none", "silu")[given["activation"]]
    if gradient == "MaxPoolGrad":
        given["input_size"] = example.axes["spatial"]
    taken = {*OPERATORS[gradient].attributes, *(each.name for each in OPERATORS[gradient].inputs)}
    return {key: value for key, value in given.items() if key in taken}


def types_of(forward: str, row: Mapping[str, str]) -> Mapping[str, str] | None:
    """The types of a forward operator that belong to these of its gradient, if any do."""
    named = {**row, "U": row["T2"]} if forward == "BatchNormalization" else row
    if forward.endswith("Internal"):
        named = {**row, "T": row["TOut"], "TOut": row["T"]}
    free = {"T2"} if forward == "BatchNormalization" else set[str]()  # of running statistics
    known = OPERATORS[forward].combinations
    return next((each for each in known if all(each[key] == named[key] for key in each.keys() - free)), None)


def pairs() -> Iterator[Any]:
    for forward, gradient in PARTNERS:
        for row, marks in rows(OPERATORS[gradient]):
            narrow = row.get("S") != row.get("T") and "branch_grad" not in PARTNERS[forward, gradient][1].values()
            converted = "G" not in OPERATORS[forward].types and row.get("G", row["T"]) != row["T"]
            if types_of(forward, row) is None or ("S" in row and narrow) or ("Skip" in forward and converted):
                continue
            for number, example in enumerate(OPERATORS[forward].examples):
                label = f"{forward}-{gradient}-{'-'.join(row.values())}-{number}"
                yield pytest.param(forward, gradient, row, example, id=label, marks=marks)


def test_every_forward_operator_has_its_gradient() -> None:
    assert {forward for forward, _ in PARTNERS} == set(FORWARD)


@pytest.mark.parametrize(("forward", "gradient", "row", "example"), list(pairs()))
def test_a_gradient_of_what_was_saved_agrees_with_differences_of_the_forward_formula(
    forward: Any, gradient: Any, row: dict[str, str], example: Example
) -> None:
    saved, gradients = PARTNERS[forward, gradient]
    types = types_of(forward, row)
    assert types is not None
    inputs = sample(OPERATORS[forward], types, example)
    if "scale" in saved:  # away from 0 where the gradient divides by it
        inputs[saved["scale"]] = sample(OPERATORS[gradient], row, example)["scale"]
    if forward == "MaxPool":  # no two within the step of a difference
        X = inputs["X"]
        inputs["X"] = np.random.default_rng(2).permutation(X.size).reshape(X.shape).astype(X.dtype)
    epsilon = {"epsilon": EPSILON} if "epsilon" in OPERATORS[forward].attributes else {}
    attributes: dict[str, Any] = {**example.attributes, **epsilon}
    outputs = [each.name for each in OPERATORS[forward].outputs if not each.name.startswith("running")]
    output_type = {key: types[str(each.binds)] for key, each in OPERATORS[forward].attributes.items() if each.binds}
    if "Y_type" in output_type:
        output_type["Y_type"] = row["V" if "Y" in saved else "G"]
    if forward == "SoftmaxCrossEntropy":  # whose gradient is of labels that add up to 1
        label = inputs["label"]
        inputs["label"] = np.equal(label, label.max(-1, keepdims=True)).astype(label.dtype)
    result = run_any(forward, **inputs, **attributes, **output_type, outputs=outputs)
    known = {**inputs, **result._asdict()}
    upstream = OPERATORS[gradient].inputs[0]
    random = np.random.default_rng(1)
    output = OPERATORS[forward].outputs[0].name
    D = random.standard_normal(known[output].shape).astype(row[upstream.type])
    binding: dict[str, Any] = {
        key: row[each.binds] for key, each in OPERATORS[gradient].attributes.items() if each.binds
    }
    binding |= gradient_attributes(forward, gradient, example)
    saved_arrays = {to: known[of] for to, of in saved.items() if of in known}
    if "Internal" in gradient:  # whose weights have the type of log_prob, not of the scores
        saved_arrays["weight"] = saved_arrays["weight"].astype(row["T"])
    wanted_outputs = [*dict.fromkeys(gradients.values())]
    found = gradkern.run(gradient, **{upstream.name: D}, **saved_arrays, outputs=wanted_outputs, **binding)
    wide = {name: each.astype(np.float64) for name, each in inputs.items()}
    arrays = (*inputs.values(), D, *(getattr(found, each) for each in wanted_outputs))
    bound = max(norm_of(gradient, each.dtype) for each in arrays if each.dtype.kind != "i") * 4 + 1e-9
    if "log_prob" in saved:  # an error of it is a relative one of the probability
        bound *= max(1.0, np.abs(known["log_prob"]).max())
    assert set(gradients) == inputs.keys() - CONSTANT
    formula = FORMULAS[forward]  # without the roundings on the way, which no difference could see through
    if "Skip" in forward:  # at the sum as its type has it, which is what the gradient is of
        first, total = OPERATORS[forward].inputs[0].name, saved["X"]
        wide[first] += known[total] - formula(**wide, **attributes)[total]
    for name, wanted in gradients.items():
        got = getattr(found, wanted).astype(np.float64)
        # partly along the gradient: at right angles to it any multiple of it has the same rate
        direction = random.standard_normal(got.shape) + got * (np.sqrt(got.size) / 2 / (np.linalg.norm(got) or 1.0))
        difference = directional_difference(
            lambda value, name=name: float((D * formula(**{**wide, name: value}, **attributes)[output]).sum()),
            wide[name],
            direction,
        )
        scale = np.linalg.norm(got) * np.linalg.norm(direction)
        assert abs(float((got * direction).sum()) - difference) <= bound * scale + 1e-9, wanted


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("biased", [True, False])
def test_layer_norms_agree_with_pytorch_in_its_own_types(dtype: str, biased: bool) -> None:
    import torch

    random = np.random.default_rng(0)
    kind = getattr(torch, dtype)
    X = torch.from_numpy(3 + random.standard_normal((5, 6, 33))).to(kind)
    scale, bias = (torch.from_numpy(random.standard_normal((6, 33))).to(kind) for _ in range(2))
    ours = gradkern.run("LayerNormalization", X, scale, bias if biased else None, axis=1, epsilon=1e-3)
    theirs = torch.native_layer_norm(X, (6, 33), scale, bias if biased else None, 1e-3)
    assert [each.shape for each in ours] == [each.shape for each in theirs]
    assert ours.Y.dtype == theirs[0].dtype
    close: dict[str, Any] = (
        {"rtol": 1.6e-2, "atol": 1e-2} if dtype in ("bfloat16", "float16") else {"rtol": 1e-5, "atol": 1e-5}
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other.to(one.dtype), **close)
    ours = gradkern.run("SimplifiedLayerNormalization", X, scale, axis=1, epsilon=1e-3).Y
    torch.testing.assert_close(ours, torch.nn.functional.rms_norm(X, (6, 33), scale, 1e-3), **close)


def test_a_row_far_from_zero_keeps_its_digits() -> None:
    """Squares of deviations from the mean: as differences of squares they would have none left."""
    X = 4096 + np.random.default_rng(0).standard_normal((8, 1000)).astype(np.float32)
    ones = np.ones(1000, np.float32)
    found, exact = gradkern.run("LayerNormalization", X, ones), reference("LayerNormalization", {"X": X, "Scale": ones})
    np.testing.assert_allclose(found.InvStdDev, exact["InvStdDev"], rtol=1e-6)
    np.testing.assert_allclose(found.Y, exact["Y"], atol=4096 * float(np.finfo(np.float32).eps))


@pytest.mark.parametrize("data", ["float32", "bfloat16"])
def test_the_bias_of_a_skip_form_is_added_to_every_row(data: str) -> None:
    random = np.random.default_rng(0)
    given = {name: random.standard_normal((7, 40)).astype(data) for name in ("input", "skip")}
    parameters = {name: random.standard_normal(40).astype(np.float32) for name in ("gamma", "beta", "bias")}
    for operator in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"):
        names = [each.name for each in OPERATORS[operator].inputs]
        inputs = {name: each for name, each in {**given, **parameters}.items() if name in names}
        expected = reference(operator, inputs)
        for name, each in run_any(operator, **inputs)._asdict().items():
            assert_close(operator, name, each, expected[name])


def rows_with_residuals() -> Iterator[Any]:
    """One kernel for each: those of float32 and of one type of 16 bits in every run, the others with --every-kernel."""
    for operator in ("LayerNormalizationGrad", "SimplifiedLayerNormalizationGrad"):
        for row in OPERATORS[operator].combinations:
            always = set(row.values()) in ({"float32"}, {"bfloat16", "float32"}) and row["T"] == row["G"] == row["V"]
            marks = () if always else (pytest.mark.thorough, pytest.mark.every_kernel)
            yield pytest.param(operator, row, id=f"{operator}-{'-'.join(row.values())}", marks=marks)


@pytest.mark.parametrize(("operator", "row"), list(rows_with_residuals()))
def test_a_residuals_gradient_is_added_to_X_grad_before_it_is_rounded(operator: Any, row: dict[str, str]) -> None:
    for example in OPERATORS[operator].examples:
        inputs = sample(OPERATORS[operator], row, example)
        added = np.random.default_rng(3).standard_normal(inputs["X"].shape).astype(row["T"])
        expected = reference(operator, {**inputs, "residual_grad": added}, example.attributes)
        own, in_place = added, {"X_grad": added.copy()}
        for residual, out in ((own, None), (in_place["X_grad"], in_place)):
            found = run_any(operator, **inputs, residual_grad=residual, **example.attributes, out=out)
            for name, each in found._asdict().items():
                assert_close(operator, name, each, expected[name])


def test_the_residual_of_a_skip_form_goes_back_with_the_norms_gradient() -> None:
    """Of a loss that has the output and the sum, by differences of the formula."""
    random = np.random.default_rng(0)
    inputs = {name: random.standard_normal((6, 40)) for name in ("input", "skip")}
    inputs |= {name: random.standard_normal(40) for name in ("gamma", "beta")}
    D, S, direction = (random.standard_normal((6, 40)) for _ in range(3))
    found = run_any("SkipLayerNormalization", **inputs, epsilon=EPSILON)
    dX = gradkern.run(
        "LayerNormalizationGrad", D, found.input_skip_bias_sum, inputs["gamma"], found.mean, found.inv_std_var, S
    ).X_grad

    def loss(value: np.ndarray) -> float:
        made = FORMULAS["SkipLayerNormalization"](**{**inputs, "skip": value}, epsilon=EPSILON)
        return float((D * made["output"] + S * made["input_skip_bias_sum"]).sum())

    assert abs(float((dX * direction).sum()) - directional_difference(loss, inputs["skip"], direction)) <= 1e-8
