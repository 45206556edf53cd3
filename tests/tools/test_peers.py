"""The peers of the benchmark compute what gradkern's operators compute: else their times say nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from peers import PEERS, TORCH_OPERATORS

import gradkern
from gradkern.contract.samples import inputs_of
from gradkern.contract.schema import Example

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", TORCH_OPERATORS)
def test_every_result_is_one_of_the_operator(name: Any) -> None:
    operator = gradkern.operators()[name]
    types = next(row for row in operator.combinations if "float64" in row.values())
    answered = 0
    for example in operator.examples:
        arrays = with_statistics(inputs_of(operator, types, example, np.random.default_rng(3)), example)
        attributes: dict[str, Any] = dict(example.attributes)
        ours = gradkern.run(name, **arrays, **attributes)
        made = {key: each for key, each in ours._asdict().items() if each is not None}
        peer = PEERS["torch"](name, arrays, example.attributes, tuple(made))
        if peer is None:
            continue
        results = list(tensors_of(peer()))
        assert results
        for result in results:
            alike = [each for each in made.values() if each.size == result.size]
            assert any(np.allclose(each.ravel(), result.ravel(), rtol=1e-4, atol=1e-5) for each in alike), example
        answered += 1
    assert answered


def with_statistics(arrays: dict[str, np.ndarray], example: Example) -> dict[str, np.ndarray]:
    """The arrays with statistics that follow from X: peers by autograd compute them from it."""
    if "inv_std" in arrays and "groups" in example.attributes:
        X = np.moveaxis(arrays["X"], -1, 1) if example.attributes.get("channels_last") else arrays["X"]
        count: Any = example.attributes["groups"]
        groups = X.reshape(len(X), count, -1)
        arrays["mean"], arrays["inv_std"] = groups.mean(-1), 1 / np.sqrt(groups.var(-1) + 1e-5)
    if "inv_std_var" in arrays:
        axis: Any = example.attributes.get("axis", -1)
        columns = tuple(range(axis % arrays["X"].ndim, arrays["X"].ndim))
        inverse = np.asarray(1 / np.sqrt((arrays["X"] ** 2).mean(columns) + 1e-5))
        arrays["inv_std_var"] = inverse.reshape(arrays["inv_std_var"].shape)
    return arrays


def tensors_of(result: Any) -> Iterator[np.ndarray]:
    if isinstance(result, (tuple, list)):
        for each in result:
            yield from tensors_of(each)
    elif result is not None and result.numel():
        yield result.detach().numpy()
