"""Every gradient in every type against central differences of its forward pass, on the registry's examples.

The forward pass runs in float64 on the very values the operator gets. A gradient G of a parameter P is right when, for
any direction V, <G, V> is the rate at which the loss <upstream, forward(P)> changes along V.
"""

import numpy as np
import pytest
from helpers.calls import run_any
from helpers.examples import GRADIENTS, attributes_of, cases, every_output, sample
from helpers.forward_passes import FORWARD_PASSES
from helpers.reference import directional_difference
from helpers.tolerance import norm_of

from gradkern.contract.schema import Example, Operator


def test_every_gradient_has_a_forward_pass() -> None:
    assert set(FORWARD_PASSES) == set(GRADIENTS)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "operator", "row", "example"), list(cases(names=GRADIENTS)))
def test_gradients_agree_with_differences_of_the_forward_pass(
    name: str, operator: Operator, row: dict, example: Example
) -> None:
    random = np.random.default_rng(1)
    inputs = sample(operator, row, example)
    forward = FORWARD_PASSES[name](inputs, **example.attributes)
    result = run_any(name, **inputs, outputs=every_output(operator), **attributes_of(operator, row, example))
    assert set(forward.gradients.values()) == set(every_output(operator)) - {"Y"}
    for parameter, output in forward.gradients.items():
        gradient = getattr(result, output).astype(np.float64)
        # Partly along the gradient: at right angles to it any multiple of it has the same rate.
        along = gradient * (np.sqrt(gradient.size) / 2 / (np.linalg.norm(gradient) or 1.0))
        direction = random.standard_normal(gradient.shape) + along
        loss = lambda value, key=parameter: float(  # noqa: E731
            (forward.upstream * forward.run({**forward.parameters, key: value})).sum()
        )
        difference = directional_difference(loss, forward.parameters[parameter], direction)
        rate = float((gradient * direction).sum())
        # The statistics and Y are rounded to their own types, which moves the result as much as rounding it does.
        types = [
            getattr(result, output).dtype,
            *(array.dtype for array in inputs.values() if array.dtype.kind not in "iub"),
        ]
        bound = max(norm_of(name, each) for each in types) * 4 + 1e-9
        scale = np.linalg.norm(gradient) * np.linalg.norm(direction)
        assert abs(rate - difference) <= bound * scale + 1e-9, f"{name}.{output}: {rate} against {difference}"
