"""dB on a GPU against float64, in guarded memory."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.conv_problems import bias_problem
from helpers.guarded import Guarded, OnDevice
from helpers.tolerance import assert_close

from gradkern.call import Tensor

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("last", [False, True], ids=["channels_first", "channels_last"])
@pytest.mark.parametrize("shape", [(16, 64, 28, 28), (3, 17, 5, 7), (4, 3, 1000), (2, 8, 4, 6, 6), (1, 5, 1)], ids=str)
def test_the_sums_of_every_channel(dtype: str, last: bool, shape: tuple[int, ...]) -> None:
    from gradkern.cuda.device import activate, get_device
    from gradkern.cuda.scratch import scratch
    from gradkern.ops.conv.cuda import bias
    from gradkern.search.implementation import candidates_of

    stored = (shape[0], *shape[2:], shape[1]) if last else shape
    held, out = Guarded((1, int(np.prod(stored))), dtype), Guarded((shape[1],), dtype)
    dY = np.moveaxis(held.array.reshape(stored), -1, 1) if last else held.array.reshape(stored)
    dY[...] = (1 + np.random.default_rng(0).standard_normal(shape)).astype(dtype)  # no sum near zero
    assert np.shares_memory(dY, held.array)
    held.freeze()

    tensors = [Tensor(each.dtype, each.shape, each.strides, 16) for each in (dY, out.array)]
    device = get_device(0)
    (candidate,) = candidates_of(bias, bias_problem(tensors[0], tensors[1]), device)
    with activate(device):
        there, result = OnDevice(held), OnDevice(out)
        candidate.prepare()
        _, workspace = scratch(device, 0, candidate.workspace)
        candidate((there.address,), (result.address,), workspace, 0)
        got = np.array(result.fetch())
        there.fetch()
        there.free()
        result.free()
    assert_close("ConvGrad", "dB", got, dY.astype(np.float64).sum(tuple({*range(len(shape))} - {1})))
