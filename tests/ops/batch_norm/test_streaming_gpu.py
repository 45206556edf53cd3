"""Batch norm's own kernel on a GPU: every type, layout and edge, in one launch and in two, in guarded memory."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from helpers.batch_norm import OUTPUTS, Case, case
from helpers.batch_norm_on_gpu import check, check_a_replay, check_the_bits_repeat, results

from gradkern.call import Tensor

pytestmark = pytest.mark.gpu

b, h, f, d = "bfloat16", "float16", "float32", "float64"
TYPES = [(f, f, f), (d, d, d), (h, h, h), (h, h, f), (h, f, f), (b, f, f), (b, b, f), (b, b, b)]
SHAPES = [
    (64, 32, 56, 56),
    (16, 48, 28, 28),
    (33, 100, 7, 7),
    (3, 5, 301, 303),
    (2, 2, 512, 1024),
    (4, 8, 5, 16, 16),
    (2, 3, 4, 5, 6, 7),
    (1000, 1024),
    (777, 1001),
    (5000, 3),
    (100, 70_000),
    (1_000_003, 1),
    (1, 457),
    (1, 1, 1),
]
SOME = [(20, 64, 28, 28), (9, 30, 7, 5), (500, 1024)]
LAST = pytest.mark.parametrize("last", [False, True], ids=["channels_first", "channels_last"])


@LAST
@pytest.mark.parametrize("types", TYPES, ids=" ".join)
@pytest.mark.parametrize("sizes", SOME, ids=str)
def test_every_combination_of_types(sizes: tuple[int, ...], types: tuple[str, str, str], last: bool) -> None:
    check(case(sizes, *types), last=last)


@LAST
@pytest.mark.parametrize("sizes", SHAPES, ids=str)
def test_every_shape_in_both_orders(sizes: tuple[int, ...], last: bool) -> None:
    check(case(sizes, b, b, f), last=last)


@LAST
@pytest.mark.parametrize(("types", "offset"), [((b, b, f), 1), ((b, b, f), 4), ((f, f, f), 2)], ids=str)
@pytest.mark.parametrize("sizes", SOME, ids=str)
def test_arrays_that_start_anywhere(
    sizes: tuple[int, ...], types: tuple[str, str, str], offset: int, last: bool
) -> None:
    check(case(sizes, *types), offset=offset, last=last)


@pytest.mark.parametrize(
    "outputs", [OUTPUTS[:1], OUTPUTS[1:2], OUTPUTS[2:], OUTPUTS[1:], OUTPUTS[::2], OUTPUTS[:2]], ids=" ".join
)
@pytest.mark.parametrize("sizes", SOME, ids=str)
def test_only_the_wanted_outputs_are_written(sizes: tuple[int, ...], outputs: tuple[str, ...]) -> None:
    check(case(sizes, h, f, f), outputs=outputs)


@pytest.mark.parametrize("sizes", SOME, ids=str)
def test_what_an_output_does_not_need_is_not_read(sizes: tuple[int, ...]) -> None:
    operands = case(sizes, h, f, f)
    check(operands, without=("Scale",), outputs=("dScale",))
    check(operands, without=("X", "Scale", "saved_mean", "saved_inv_std"), outputs=("dBias",))


@LAST
@pytest.mark.parametrize("source", ["dY", "X"])
@pytest.mark.parametrize("sizes", [(64, 64, 56, 56), *SOME], ids=str)
def test_dX_may_be_written_over_what_it_is_made_from(sizes: tuple[int, ...], source: str, last: bool) -> None:
    check(case(sizes, b, f, f), in_place=source, last=last)


@LAST
@pytest.mark.parametrize("types", [(b, b, f), (d, d, d)], ids=" ".join)
@pytest.mark.parametrize("sizes", SOME, ids=str)
def test_a_batch_in_two_parts_has_the_gradient_of_the_whole(
    sizes: tuple[int, ...], types: tuple[str, str, str], last: bool
) -> None:
    whole = case(sizes, *types)
    cut, statistic = sizes[0] // 3, np.dtype(types[2])
    halves = [{name: whole.inputs[name][each] for name in ("dY", "X")} for each in (slice(cut), slice(cut, None))]
    parts = [Case({**whole.inputs, **half}) for half in halves]
    wide = [Case({**part.inputs, "Scale": part.inputs["Scale"].astype(statistic)}) for part in parts]  # sums are T2
    sums = [results(part, outputs=OUTPUTS[1:], last=last) for part in wide]
    dScale, dBias = (sums[0][name] + sums[1][name] for name in OUTPUTS[1:])
    share = dScale, dBias, prod(sizes) // sizes[1]
    dX = np.concatenate([results(part, outputs=OUTPUTS[:1], last=last, share=share)["dX"] for part in parts])
    whole.check({"dX": dX})
    assert dScale.dtype == dBias.dtype == statistic
    Case({**whole.inputs, "Scale": whole.inputs["Scale"].astype(statistic)}).check({"dScale": dScale, "dBias": dBias})


@LAST
@pytest.mark.parametrize("sizes", SOME, ids=str)
def test_a_mean_far_from_zero_costs_no_digits(sizes: tuple[int, ...], last: bool) -> None:
    check(case(sizes, f, far=3000), last=last)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("sizes", SOME[:2], ids=str)
def test_what_is_not_finite_reaches_exactly_what_depends_on_it(value: float, sizes: tuple[int, ...]) -> None:
    operands = case(sizes, f)
    operands.inputs["dY"][7, 11, 3, 2] = value
    operands.inputs["X"][8, 12, 4, 1] = value
    check(operands)


@LAST
@pytest.mark.parametrize("sizes", [(33, 100, 7, 7), (5000, 128), (64, 64, 56, 56)], ids=str)
def test_a_hundred_runs_give_the_same_bits(sizes: tuple[int, ...], last: bool) -> None:
    check_the_bits_repeat(case(sizes, b, f, f), last=last)


def test_arrays_with_gaps_are_refused() -> None:
    from gradkern.call import Refusal
    from gradkern.cuda.device import get_device
    from gradkern.ops.batch_norm.cuda import streaming
    from gradkern.ops.batch_norm.cuda.problem import Problem
    from gradkern.search.implementation import candidates_of

    parameter = Tensor(np.dtype(f), (6,), (4,), 16)
    data = Tensor(np.dtype(f), (5, 6, 4), (192, 32, 8), 16)
    problem = Problem(data, data, parameter, parameter, parameter, data)
    (candidate,) = candidates_of(streaming, problem, get_device(0))
    with pytest.raises(Refusal):
        candidate.prepare()


def test_a_capture_replays() -> None:
    check_a_replay(case((20, 64, 28, 28), b, f, f))


@LAST
def test_more_than_two_to_the_31_elements(last: bool) -> None:
    """All elements are equal, so that every result is known; the first and the last are looked at."""
    from helpers.driver import driver

    from gradkern.cuda.device import activate, check, get_device
    from gradkern.cuda.scratch import scratch
    from gradkern.ops.batch_norm.cuda.problem import Problem
    from gradkern.ops.batch_norm.cuda.streaming import build

    images, channels, length = 131_073, 4, 4096
    count, m = images * channels * length, images * length
    strides = (channels * length * 2, 2, channels * 2) if last else (channels * length * 2, length * 2, 2)
    data = Tensor(np.dtype(h), (images, channels, length), strides, 16)
    parameter, device = Tensor(np.dtype(f), (channels,), (4,), 16), get_device(0)
    with activate(device):
        free, _ = check(driver.cuMemGetInfo(), "asking for memory")
        if free < 7 * count:
            pytest.skip("the GPU has too little memory")

        def filled(elements: int, value: float, bits: int = 16) -> int:
            address = int(check(driver.cuMemAlloc(bits // 8 * elements), "allocating"))
            word = int(np.array(value, f"float{bits}").view(f"uint{bits}"))
            write = driver.cuMemsetD16 if bits == 16 else driver.cuMemsetD32
            check(write(address, word, elements), "filling")
            return address

        each = 1 / 65536
        # Scale, mean, 1/deviation: so that xh is 2, and dX = 4*0.5*(each - each - 2*(2*each)) = -8*each
        read = (filled(count, each), filled(count, 5.0), *(filled(channels, v, 32) for v in (4.0, 1.0, 0.5)))
        write = (filled(count, np.nan), filled(channels, np.nan, 32), filled(channels, np.nan, 32))
        made = build(
            Problem(data, data, parameter, parameter, parameter, data, parameter, parameter),
            device,
            {},
        )
        made.prepare()
        made(read, write, scratch(device, 0, made.workspace)[1], 0)
        check(driver.cuCtxSynchronize(), "waiting")
        sums = [np.empty(channels, np.float32) for _ in range(2)]
        some = np.empty(1 << 20, np.float16)
        for host, address in zip(sums, write[1:], strict=True):
            check(driver.cuMemcpyDtoH(host.ctypes.data, address, host.nbytes), "copying")
        for at in (0, (1 << 32) - some.nbytes, 2 * count - some.nbytes):
            check(driver.cuMemcpyDtoH(some.ctypes.data, write[0] + at, some.nbytes), "copying")
            assert (some == np.float16(-8 * each)).all()
        for address in (*read, *write):
            driver.cuMemFree(address)
    for result, factor in zip(sums, (2, 1), strict=True):
        np.testing.assert_allclose(result, factor * m * each, rtol=1e-6)
