"""Toy operators on tensors of a GPU: where inputs on the host go, aliases, and how calls like these are found again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers.calls import message, prepare_any, run_any
from helpers.torch_on_gpu import no_synchronization
from helpers.toys import toys

torch = pytest.importorskip("torch")

import gradkern  # noqa: E402
from gradkern import DeviceError  # noqa: E402
from gradkern.torch.direct import Direct  # noqa: E402

__all__ = ["toys"]

pytestmark = [pytest.mark.gpu, pytest.mark.torch, pytest.mark.usefixtures("toys")]


@pytest.fixture
def executed(toys: Any) -> Iterator[list[Any]]:
    """What plans were executed with; meanwhile nothing may wait for the device."""
    run_any("Scale", torch.ones(3, device="cuda"), 2.0)  # loads the module, and all that a first call waits for
    from gradkern.ops.toys import recorded  # pyright: ignore[reportMissingImports]

    recorded.EXECUTED.clear()
    torch.cuda.synchronize()
    with no_synchronization():
        yield recorded.EXECUTED
    recorded.EXECUTED.clear()


def dropout() -> tuple[Any, Any, Any]:
    dy = torch.ones(4, 64, device="cuda")
    return dy, torch.ones(4, 64, dtype=torch.bool, device="cuda"), torch.ones(4, 64, device="cuda")


@pytest.mark.parametrize(
    "kind", [np.array, lambda value: torch.tensor(value, dtype=torch.float64)], ids=["numpy", "torch"]
)
def test_a_number_on_the_host_stands_behind_the_addresses(executed: list[Any], kind: Any) -> None:
    tensors = dropout()
    for ratio in (0.5, 0.25, 0.125):  # from the second on, the call is found without its signature
        dx = run_any("SoftmaxDropoutGrad", *tensors, ratio=kind(ratio), axis=1).dx
        assert executed[-1] == ((*[each.data_ptr() for each in tensors], ratio), (dx.data_ptr(),))
    statistics = gradkern.plan_cache.statistics()
    assert (statistics.hits, statistics.misses) == (2, 2)  # the other is the fixture's
    plan = prepare_any("SoftmaxDropoutGrad", *tensors, ratio=kind(0.5), axis=1)
    for ratio in (0.75, 0.375):
        plan(*tensors, ratio=kind(ratio))
        assert executed[-1][0][3:] == (ratio,)


def test_a_number_on_the_device_is_an_address_where_the_contract_takes_it(executed: list[Any]) -> None:
    X, scale = torch.ones(3, 4, device="cuda"), torch.ones((), device="cuda")
    for _ in range(3):
        run_any("Scale", X, scale)
        assert executed[-1][0] == (X.data_ptr(), scale.data_ptr())
        run_any("Scale", X, 3.0)
        assert executed[-1][0] == (X.data_ptr(), 3.0)
    dy, mask, y = dropout()
    assert message(DeviceError, run_any, "SoftmaxDropoutGrad", dy, mask, y, ratio=scale, axis=1) == (
        "SoftmaxDropoutGrad: input ratio is on cuda:0; expected it in the host's memory, as nothing waits for it"
    )


def test_a_shape_on_the_host_is_part_of_the_plan(executed: list[Any]) -> None:
    indices, dY = torch.zeros(4, dtype=torch.int64, device="cuda"), torch.ones(4, 8, device="cuda")
    for shape in ((5, 8), (7, 8), torch.tensor([9, 8]), (5, 8)):
        dX = run_any("GatherGrad", shape, indices, dY).dX
        assert dX.is_cuda
        assert tuple(dX.shape) == tuple(shape)
        assert executed[-1] == ((indices.data_ptr(), dY.data_ptr()), (dX.data_ptr(),))
    on_device = torch.ones(2, dtype=torch.int64, device="cuda")
    assert message(DeviceError, run_any, "GatherGrad", on_device, indices, dY) == (
        "GatherGrad: input shape is on cuda:0; expected it in the host's memory, as its values are read"
    )


def test_an_alias_is_the_inputs_tensor(executed: list[Any]) -> None:
    total, value = torch.ones(3, 4, device="cuda"), torch.ones(3, 4, device="cuda")
    plan = prepare_any("InPlaceAccumulator", total, value)
    for call in (run_any, lambda _, *tensors: plan(*tensors)):
        for _ in range(3):
            assert call("InPlaceAccumulator", total, value).new_sum is total
            assert executed[-1] == ((total.data_ptr(), value.data_ptr()), (total.data_ptr(),))


def test_an_alias_of_a_host_array_is_one_array_on_the_device(executed: list[Any]) -> None:
    torch.cuda.set_sync_debug_mode("default")  # the array is copied to the device and back
    total = np.ones((3, 4), np.float32)
    assert run_any("InPlaceAccumulator", total, total.copy(), provider="cuda").new_sum is total
    (old_sum, _), (new_sum,) = executed[-1]
    assert old_sum == new_sum


def test_an_alias_with_gaps_is_the_inputs_tensor(executed: list[Any]) -> None:
    total = torch.ones(3, 8, device="cuda")[:, ::2]
    assert run_any("InPlaceAccumulator", total, torch.ones(3, 4, device="cuda")).new_sum is total
    (old_sum, _), (new_sum,) = executed[-1]
    assert old_sum == new_sum == total.data_ptr()  # the recorded plan takes any strides


def test_what_is_called_at_once_finds_its_plan_with_other_numbers(executed: list[Any]) -> None:
    tensors = dropout()
    direct = Direct("SoftmaxDropoutGrad", ("dx",))
    for mode in (True, False, True, False, True):
        direct((True,), tensors, (("axis", 1), ("training_mode", mode)))
        assert executed[-1][0] == (*[each.data_ptr() for each in tensors], mode)
    add = Direct("InPlaceAccumulator", ("new_sum",))
    total = torch.ones(3, 4, device="cuda")
    for _ in range(4):
        assert add((True,), (total, tensors[0][:3, :4].contiguous()))[0] is total
        assert executed[-1][1] == (total.data_ptr(),)
