"""Two GPUs in one process: an operator runs where its arrays are, whichever GPU is the current one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers.calls import prepare_any, run_any
from helpers.examples import OPERATORS, sample
from helpers.reference import reference
from helpers.tolerance import assert_close

import gradkern

pytestmark = [
    pytest.mark.torch,
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]


def call(name: str, device: str, seed: int = 0) -> tuple[dict[str, Any], dict[str, Any], dict[str, np.ndarray]]:
    """An operator's tensors on a device, its attributes and inputs on the host, and what it gives."""
    operator = OPERATORS[name]
    example = operator.examples[0]
    inputs = sample(operator, operator.combinations[0], example, seed)
    tensors = {key: torch.from_numpy(each).to(device) for key, each in inputs.items()}
    attributes = dict(example.attributes) | (
        {"policy": {"search": "exhaustive", "allow_tf32": False}} if name == "ConvGrad" else {}
    )
    return tensors, attributes, reference(name, inputs, example.attributes)


def check(name: str, results: Any, expected: dict[str, np.ndarray], device: str) -> None:
    for key, each in results._asdict().items():
        if each is not None:
            assert each.device == torch.device(device)
            assert_close(name, key, each.cpu().numpy(), expected[key])


@pytest.mark.parametrize("name", OPERATORS)
def test_the_current_device_may_be_another_and_may_change_between_calls(name: str) -> None:
    current = torch.cuda.current_device()
    for device in ("cuda:1", "cuda:0", "cuda:1"):
        for other in (0, 1):
            tensors, attributes, expected = call(name, device, other)
            with torch.cuda.device(other):
                check(name, run_any(name, **tensors, **attributes), expected, device)
                assert torch.cuda.current_device() == other
    assert torch.cuda.current_device() == current


@pytest.mark.parametrize("name", OPERATORS)
def test_a_prepared_plan_stays_on_its_device(name: str) -> None:
    tensors, attributes, expected = call(name, "cuda:1")
    plan = prepare_any(name, **tensors, **attributes)
    named = [each.name for each in OPERATORS[name].inputs if each.is_list]
    lists = {each: attributes[each] for each in named if each in attributes}
    for other in (0, 1):
        with torch.cuda.device(other):
            check(name, plan(**tensors, **lists), expected, "cuda:1")
    there, _, _ = call(name, "cuda:0")
    with pytest.raises(gradkern.ArgumentError, match="the arrays are on cuda:0; the plan was prepared for cuda:1"):
        plan(**there, **lists)


TWO_ARRAYS = [name for name, each in OPERATORS.items() if len(sample(each, each.combinations[0], each.examples[0])) > 1]


@pytest.mark.parametrize("name", TWO_ARRAYS)
def test_arrays_of_two_devices_are_refused(name: str) -> None:
    tensors, attributes, _ = call(name, "cuda:0")
    first, second, *_ = tensors
    tensors[second] = tensors[second].to("cuda:1")
    with pytest.raises(gradkern.DeviceError) as caught:
        run_any(name, **tensors, **attributes)
    assert f"{name}: the arrays are on different devices: input {first} on cuda:0, input {second} on cuda:1" in str(
        caught.value
    )


def test_a_result_may_not_be_written_to_another_device() -> None:
    name = "BiasGeluGrad_dX"
    tensors, attributes, _ = call(name, "cuda:0")
    with pytest.raises(gradkern.DeviceError, match=f"{name}: out dX is on cuda:1, but input dY on cuda:0"):
        gradkern.run(name, **tensors, **attributes, out={"dX": torch.empty_like(tensors["X"], device="cuda:1")})


def test_streams_of_both_devices_at_once() -> None:
    """Each call waits for what its own device's current stream has to do first."""
    name = "BiasGeluGrad_dX"
    for _ in range(5):
        results = []
        for device in ("cuda:0", "cuda:1"):
            tensors, attributes, expected = call(name, device)
            stream = torch.cuda.Stream(device)
            with torch.cuda.stream(stream):
                torch.cuda._sleep(1_000_000)
                late = {key: each.clone() for key, each in tensors.items()}
                results.append((gradkern.run(name, **late, **attributes), expected, device, stream))
        for result, expected, device, stream in results:
            stream.synchronize()
            check(name, result, expected, device)
