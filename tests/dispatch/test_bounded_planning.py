"""What planning costs does not grow with the sizes that a call only describes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from typing import Any

import pytest
from helpers.calls import OPERATORS, message

from gradkern import ProviderError, ShapeError
from gradkern.arrays.kind import dtype_of
from gradkern.contract.schema import shape_of
from gradkern.dispatch.recording import usual
from gradkern.dispatch.run import plan_for

CONV, BATCH = "ConvGrad", "BatchNormalizationGrad"


def plan(name: str, **axes: Any) -> Any:
    operator = OPERATORS[name]
    types: Mapping[str, str] = operator.combinations[0]
    tensors = {
        each.name: usual(dtype_of(types[each.type]), shape_of(each.shape, axes), "cpu")
        for each in operator.inputs_of(axes)
    }
    return plan_for(name, tensors, outputs=[each.name for each in operator.outputs])


def conv(images: int) -> Any:
    return plan(CONV, N=images, C=1, M=1, C_per_group=1, spatial=(1,), kernel=(1,), out=(1,))


def test_a_convolution_of_a_million_million_images_is_planned_like_one_of_four() -> None:
    conv(4)  # which compiles
    tracemalloc.start()
    try:
        large = conv(1 << 40)
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()
    assert large.scratch < 1 << 28
    assert large.bytes == 3 * 4 * (1 << 40) + 12


def test_a_batch_norm_whose_tables_would_fill_the_memory_is_refused() -> None:
    text = message(ProviderError, plan, BATCH, N=1 << 36, C=3, spatial=(5, 7))
    assert "needs tables of 549755813912 bytes, more than a quarter of this machine's memory" in text


@pytest.mark.parametrize("name", [CONV, BATCH])
def test_arrays_that_cannot_be_addressed_are_refused_by_every_operator(name: str) -> None:
    axes: dict[str, Any] = {"N": 1 << 60, "C": 4, "spatial": (5, 7)}
    if name == CONV:
        axes |= {"M": 4, "C_per_group": 4, "kernel": (1, 1), "out": (5, 7)}
    text = message(ShapeError, plan, name, **axes)
    assert text == f"{name}: input dY has shape ({1 << 60}, 4, 5, 7), which is more bytes than can be addressed"


def test_a_kernel_of_too_many_elements_is_refused() -> None:
    axes: dict[str, Any] = {"N": 1, "C": 1, "M": 1, "C_per_group": 1}
    text = message(ProviderError, plan, CONV, **axes, spatial=(1 << 30,), kernel=(1 << 29,), out=((1 << 29) + 1,))
    assert "has no kernel for windows of more than 262144 elements; this one has 536870912" in text
