"""DirectML's batch norm gradient on a GPU: every type, pattern of axes, layout and edge, in guarded memory."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from helpers.capture import Capture
from helpers.dml_batch_norm import DML, EPSILON, OUTPUTS, TRAINING, Case, case
from helpers.guarded import Guarded, OnDevice, described

from gradkern.call import Call, Refusal, Tensor
from gradkern.policy import Policy

pytestmark = pytest.mark.gpu

b, h, f, d = "bfloat16", "float16", "float32", "float64"
SHAPES = [  # sizes, statistics
    ((64, 32, 56, 56), (1, 32, 1, 1)),
    ((16, 48, 28, 28), (1, 48, 1, 1)),
    ((33, 100, 7, 7), (1, 100, 1, 1)),
    ((33, 203, 7, 7), (1, 203, 1, 1)),
    ((9, 45, 30, 30), (1, 45, 1, 1)),
    ((3, 67, 59, 61), (1, 67, 1, 1)),
    ((1, 1001, 63, 63), (1, 1001, 1, 1)),
    ((3, 5, 301, 303), (1, 5, 1, 1)),
    ((2, 2, 512, 1024), (1, 2, 1, 1)),
    ((1000, 1024), (1, 1024)),
    ((777, 1001), (1, 1001)),
    ((5000, 3), (1, 3)),
    ((100, 70_000), (1, 70_000)),
    ((300, 1000), (300, 1)),
    ((7, 500_001), (7, 1)),
    ((1_000_003,), (1,)),
    ((5, 6, 7), (1, 1, 1)),
    ((123, 457), (123, 457)),
    ((6, 50, 70), (6, 1, 70)),
    ((6, 50, 7, 64), (6, 1, 7, 1)),
    ((3, 4, 5, 6, 7, 4, 3, 8), (1, 4, 1, 6, 1, 4, 1, 8)),
    ((3, 4, 5, 6, 7, 4, 3, 8), (3, 1, 5, 1, 7, 1, 3, 1)),
    ((1, 1, 1), (1, 1, 1)),
    ((2, 1, 3), (1, 1, 3)),
]


class Prepared:
    """A case on the device: guarded arrays in the memory order `order`, `offset` elements off alignment."""

    def __init__(
        self,
        operands: Case,
        outputs: tuple[str, ...] = OUTPUTS,
        order: tuple[int, ...] | None = None,
        offset: int = 0,
        in_place: str = "",
    ) -> None:
        from gradkern.cuda.device import activate, get_device
        from gradkern.ops.dml_batch_norm.cuda.plan import plan

        X, statistics = operands.inputs["Input"], operands.inputs["Mean"].shape
        self.order = order or tuple(range(X.ndim))
        shapes = {name: X.shape if name == "OutputGradient" else statistics for name in outputs}
        self.host = {name: self.hold(array.shape, X.dtype, offset) for name, array in operands.inputs.items()}
        for name, array in operands.inputs.items():
            self.host[name].array[...] = array.transpose(self.order).ravel()
            if name != in_place:
                self.host[name].freeze()
        self.out = {name: self.hold(shape, X.dtype, offset) for name, shape in shapes.items()}
        if in_place:
            self.out["OutputGradient"] = self.host[in_place]
        self.shapes = shapes
        call = Call(
            operator=operands.operator,
            inputs={name: described(each, operands.inputs[name].shape, self.order) for name, each in self.host.items()},
            outputs={name: described(each, shapes[name], self.order) for name, each in self.out.items()},
            attributes={"Epsilon": EPSILON},
            axes={"sizes": X.shape, "statistics": statistics},
            in_place=frozenset({(in_place, "OutputGradient")} if in_place else ()),
            device="cuda:0",
            policy=Policy(),
        )
        with activate(get_device(0)):
            self.plan = plan(call)
            self.there = {name: OnDevice(each) for name, each in self.host.items()}
            self.results = {
                name: self.there[in_place] if in_place and name == "OutputGradient" else OnDevice(each)
                for name, each in self.out.items()
            }

    def hold(self, shape: tuple[int, ...], dtype: np.dtype, offset: int) -> Guarded:
        return Guarded((prod(shape),), dtype, offset * dtype.itemsize)

    def run(self, without: tuple[str, ...] = (), stream: int = 0) -> None:
        inputs = tuple(0 if name in without else each.address for name, each in self.there.items())
        self.plan(inputs, tuple(each.address for each in self.results.values()), stream)

    def poison(self, stream: int = 0) -> None:
        """So that what a run before wrote is there no more, on the stream; not for results written over inputs."""
        from gradkern.cuda.device import activate, get_device

        with activate(get_device(0)):
            for each in self.results.values():
                each.poison(stream)

    def fetch(self) -> dict[str, np.ndarray]:
        """The results, after a look at every guard."""
        from gradkern.cuda.device import activate, get_device

        back = np.argsort(self.order)
        with activate(get_device(0)):
            for each in self.there.values():
                each.fetch()
            flat = {name: np.array(each.fetch()) for name, each in self.results.items()}
        return {
            name: each.reshape([self.shapes[name][axis] for axis in self.order]).transpose(back)
            for name, each in flat.items()
        }

    def free(self) -> None:
        from gradkern.cuda.device import activate, get_device

        with activate(get_device(0)):
            for each in {*self.there.values(), *self.results.values()}:
                each.free()


def check(operands: Case, without: tuple[str, ...] = (), **how: Any) -> str:
    """Run and compare; the name of the kernel."""
    prepared = Prepared(operands, **how)
    prepared.run(without)
    operands.check(prepared.fetch())
    prepared.free()
    return prepared.plan.kernel


@pytest.mark.parametrize("dtype", [b, h, f, d])
@pytest.mark.parametrize(("sizes", "statistics"), SHAPES, ids=str)
def test_every_type_and_pattern_of_axes(sizes: tuple[int, ...], statistics: tuple[int, ...], dtype: str) -> None:
    check(case(sizes, statistics, dtype))


@pytest.mark.parametrize("dtype", [b, h, f, d])
@pytest.mark.parametrize(("sizes", "statistics"), SHAPES, ids=str)
def test_in_training(sizes: tuple[int, ...], statistics: tuple[int, ...], dtype: str) -> None:
    operands = case(sizes, statistics, dtype)
    operands.operator = TRAINING
    check(operands)
    check(operands, outputs=OUTPUTS[:1], in_place="Input")


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (1, 0, 2, 3), (3, 2, 1, 0)], ids=str)
@pytest.mark.parametrize("sizes", [(20, 64, 28, 28), (9, 30, 7, 5)], ids=str)
def test_other_memory_orders_are_taken_as_they_are(order: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    check(case(sizes, (1, sizes[1], 1, 1), b), order=order)
    check(case(sizes, (1, sizes[1], sizes[2], 1), b), order=order)


@pytest.mark.parametrize("dtype", [b, h, f, d])
@pytest.mark.parametrize(
    "sizes",
    [
        *((62, 426), (12, 448, 10), (1, 896, 23, 23), (700, 192), (120, 909), (54, 24833), (9, 20001), (5, 8)),
        *((60_000, 33), (40_000, 58), (300_000, 5), (9000, 64), (3000, 1001), (20, 2053, 14, 14), (4, 100, 70, 70)),
    ],
    ids=str,
)
def test_rows_of_one_element_of_each_channel_go_by_tiles(sizes: tuple[int, ...], dtype: str) -> None:
    last = (0, *range(2, len(sizes)), 1)
    statistics = (1, sizes[1], *(1 for _ in sizes[2:]))
    ways: list[dict[str, Any]] = [{}, {"in_place": "Input"}, {"outputs": OUTPUTS[:2]}]
    for how in ways:
        kernel = check(case(sizes, statistics, dtype), order=last, **how)
        assert kernel.startswith(("columns_tiles", "columns_single_block"))


@pytest.mark.parametrize("offset", [1, 2, 4])
@pytest.mark.parametrize(("sizes", "statistics"), [((9, 40, 28, 28), (1, 40, 1, 1)), ((99, 1000), (1, 1000))], ids=str)
@pytest.mark.parametrize("dtype", [b, f])
def test_arrays_that_start_anywhere(
    dtype: str, sizes: tuple[int, ...], statistics: tuple[int, ...], offset: int
) -> None:
    check(case(sizes, statistics, dtype), offset=offset)


@pytest.mark.parametrize("outputs", [OUTPUTS[1:2], OUTPUTS[2:], OUTPUTS[1:], OUTPUTS[::2]], ids=" ".join)
@pytest.mark.parametrize("sizes", [(20, 64, 28, 28), (9, 30, 7, 5), (5, 21, 33, 35), (500, 1024)], ids=str)
def test_only_the_wanted_outputs_are_written(outputs: tuple[str, ...], sizes: tuple[int, ...]) -> None:
    check(case(sizes, (1, sizes[1], *(1 for _ in sizes[2:])), b), outputs=outputs)


@pytest.mark.parametrize("sizes", [(20, 64, 28, 28), (9, 30, 7, 5), (5, 21, 33, 35), (500, 1024)], ids=str)
def test_what_an_output_does_not_need_is_not_read(sizes: tuple[int, ...]) -> None:
    operands = case(sizes, (1, sizes[1], *(1 for _ in sizes[2:])), b)
    check(operands, without=("Input", "Mean"), outputs=("OutputGradient",))
    check(operands, without=("Input", "Mean", "Scale", "Variance"), outputs=("OutputBiasGradient",))


@pytest.mark.parametrize("source", ["Input", "InputGradient"])
@pytest.mark.parametrize("sizes", [(20, 64, 28, 28), (9, 30, 7, 5), (5, 21, 33, 35), (500, 1024)], ids=str)
def test_the_gradient_may_be_written_over_what_it_is_made_from(source: str, sizes: tuple[int, ...]) -> None:
    check(case(sizes, (1, sizes[1], *(1 for _ in sizes[2:])), b), in_place=source)


@pytest.mark.parametrize(("sizes", "statistics"), [((0, 5), (1, 5)), ((5, 0), (1, 0)), ((4, 3, 0), (1, 3, 1))])
def test_sums_over_nothing_are_zero(sizes: tuple[int, ...], statistics: tuple[int, ...]) -> None:
    prepared = Prepared(case(sizes, statistics, f))
    prepared.run()
    for name, result in prepared.fetch().items():
        assert result.shape == prepared.shapes[name]
        assert not result.any()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("sizes", [(20, 64, 28, 28), (9, 30, 7, 5), (12, 31, 13, 15)], ids=str)
def test_what_is_not_finite_reaches_exactly_what_depends_on_it(value: float, sizes: tuple[int, ...]) -> None:
    operands = case(sizes, (1, sizes[1], 1, 1), f)
    operands.inputs["InputGradient"][7, 11, 3, 2] = value
    operands.inputs["Input"][8, 12, 4, 1] = value
    check(operands)


@pytest.mark.parametrize("sizes", [(20, 64, 28, 28), (33, 100, 7, 7), (3, 67, 59, 61), (5000, 128)], ids=str)
def test_a_hundred_runs_give_the_same_bits(sizes: tuple[int, ...]) -> None:
    prepared = Prepared(case(sizes, (1, sizes[1], *(1 for _ in sizes[2:])), b))
    prepared.run()
    first = {name: result.tobytes() for name, result in prepared.fetch().items()}
    for _ in range(100):
        prepared.poison()
        prepared.run()
        assert {name: result.tobytes() for name, result in prepared.fetch().items()} == first


def test_strided_arrays_are_refused_and_copied_by_the_dispatcher() -> None:
    from gradkern.cuda.contiguous import Gathered
    from gradkern.cuda.device import activate, get_device
    from gradkern.dispatch.run import plan_for

    operands = case((6, 10, 8), (1, 10, 1), f)
    inputs = dict(operands.inputs)
    host = {name: Guarded((array.size,), array.dtype) for name, array in inputs.items() if name != "Input"}
    for name, each in host.items():
        each.array[...] = inputs[name].ravel()
    host["Input"] = Guarded((6, 100), np.float32)  # its first axis has gaps
    host["Input"].array[:, :80] = inputs["Input"].reshape(6, 80)
    for each in host.values():
        each.freeze()
    tensors = {name: Tensor(np.dtype(np.float32), array.shape, array.strides, 16) for name, array in inputs.items()}
    tensors["Input"] = Tensor(np.dtype(np.float32), (6, 10, 8), (400, 32, 4), 16)
    with activate(get_device(0)):
        prepared = plan_for(DML, tensors, device="cuda:0", Epsilon=EPSILON)
        assert isinstance(prepared.plan, Gathered)
        out = {name: Guarded((each.size,), np.float32) for name, each in prepared.call.outputs.items()}
        there = {name: OnDevice(host[name]) for name in inputs}
        results = {name: OnDevice(each) for name, each in out.items()}
        prepared.plan(
            tuple(each.address for each in there.values()), tuple(each.address for each in results.values()), 0
        )
        shapes = {name: each.shape for name, each in prepared.call.outputs.items()}
        operands.check({name: np.array(each.fetch()).reshape(shapes[name]) for name, each in results.items()})
        for each in there.values():
            each.fetch()


def test_a_channel_order_that_is_not_the_parameters_is_refused() -> None:
    from gradkern.ops.dml_batch_norm.cuda.plan import plan

    like = Tensor(np.dtype(np.float32), (4, 5, 6), (120, 4, 20), 16)
    parameter = Tensor(np.dtype(np.float32), (1, 5, 6), (120, 24, 4), 16)
    inputs = {"Input": like, "InputGradient": like, "Mean": parameter, "Variance": parameter, "Scale": parameter}
    axes = {"sizes": (4, 5, 6), "statistics": (1, 5, 6)}
    call = Call(DML, inputs, {"OutputGradient": like}, {"Epsilon": 0.0}, axes, frozenset(), "cuda:0", Policy())
    with pytest.raises(Refusal, match="Mean"):
        plan(call)


def test_a_capture_replays() -> None:
    from gradkern.cuda.device import activate, get_device

    operands = case((20, 64, 28, 28), (1, 64, 1, 1), b)
    prepared = Prepared(operands)
    with activate(get_device(0)):
        with Capture(mode="THREAD_LOCAL") as capture:
            prepared.run(stream=capture.stream)
        capture.replay(times=3, before=prepared.poison)
    operands.check(prepared.fetch())


@pytest.mark.parametrize(
    ("images", "statistics"),
    [(131_073, (1, 4, 1)), (131_073, (1, 1, 4096)), (65_535, (1, 4, 1))],  # the last is the most of the planes kernel
    ids=str,
)
def test_as_many_elements_as_their_numbers_have_bits_for_and_more(images: int, statistics: tuple[int, ...]) -> None:
    """All elements are equal, so that sums are known; the last ones are looked at."""
    from helpers.driver import driver

    from gradkern.cuda.device import activate, check, get_device
    from gradkern.ops.dml_batch_norm.cuda.plan import plan

    sizes = (images, 4, 4096)
    count, channels = prod(sizes), prod(statistics)
    data = Tensor(np.dtype(np.float16), sizes, (4 * 4096 * 2, 4096 * 2, 2), 16)
    strides = tuple(2 * prod(statistics[axis + 1 :]) for axis in range(3))
    parameter = Tensor(np.dtype(np.float16), statistics, strides, 16)
    inputs = {"Input": data, "InputGradient": data, "Mean": parameter, "Variance": parameter, "Scale": parameter}
    outputs = {"OutputGradient": data, "OutputScaleGradient": parameter, "OutputBiasGradient": parameter}
    axes = {"sizes": sizes, "statistics": statistics}
    with activate(get_device(0)):
        free, _ = check(driver.cuMemGetInfo(), "asking for memory")
        if free < 7 * count:
            pytest.skip("the GPU has too little memory")

        def filled(elements: int, value: float) -> int:
            address = int(check(driver.cuMemAlloc(2 * elements), "allocating"))
            check(driver.cuMemsetD16(address, int(np.float16(value).view(np.uint16)), elements), "filling")
            return address

        each = 1 / 65536  # so that the sums are float16 numbers
        read = [filled(count, 3.0), filled(count, each), *(filled(channels, value) for value in (1.0, 4.0, 6.0))]
        write = [filled(size, np.nan) for size in (count, channels, channels)]
        plan(Call(DML, inputs, outputs, {"Epsilon": 0.0}, axes, frozenset(), "cuda:0", Policy()))(
            tuple(read), tuple(write), 0
        )
        check(driver.cuCtxSynchronize(), "waiting")
        sums = [np.empty(channels, np.float16) for _ in range(2)]
        last = np.empty(1 << 20, np.float16)
        for host, address in zip(sums, write[1:], strict=True):
            check(driver.cuMemcpyDtoH(host.ctypes.data, address, host.nbytes), "copying")
        for at in (0, min(1 << 32, 2 * count) - last.nbytes, 2 * count - last.nbytes):
            check(driver.cuMemcpyDtoH(last.ctypes.data, write[0] + at, last.nbytes), "copying")
            assert (last == np.float16(each * 3)).all()
        for address in (*read, *write):
            driver.cuMemFree(address)
    for result in sums:  # (3 - 1) / sqrt(4) is 1
        np.testing.assert_array_equal(result, np.float16(count // channels * each))
