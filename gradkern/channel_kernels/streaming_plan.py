"""From a call of a batch norm to a launch of the streaming kernel (streaming_kernel.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gradkern.call import Call, Refusal, Tensor
from gradkern.channel_kernels.streaming_form import StreamingForm, second_pass, with_largest_ring
from gradkern.channel_kernels.streaming_tiling import ARGUMENTS, Slabs, Tiling, choose_tiling
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import up
from gradkern.cuda.launch import Launch, kernel_of_form
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.cuda.scratch import scratch
from gradkern.strides import is_dense, memory_order, merged_axes

__all__ = ["StreamingPlan", "plan"]

_DATA = ("D", "X", "dX")
_PER_CHANNEL = ("scale", "scale_sum", "bias_sum")  # which have the type of the sums' results, and one order
_PARAMETERS = ("scale", "mean", "deviation", "scale_total", "bias_total")


@dataclass(frozen=True, slots=True)
class StreamingPlan:
    """One launch, or one for each pass, with its scratch memory."""

    kernel: str
    scratch: int
    launch: Launch
    device: Device
    totals_at: tuple[int, ...] = ()  # where in the scratch memory each total lies, if they lie there
    then: Launch | None = None  # the second pass, if it is a launch of its own: who calls it holds device.in_turn

    @property
    def launches(self) -> tuple[Launch, ...]:
        return (self.launch,) if self.then is None else (self.launch, self.then)

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        counter, buffer = scratch(self.device, stream, self.scratch) if self.scratch else (0, 0)
        self.enqueue(inputs, outputs, buffer, counter, stream)

    def enqueue(
        self, inputs: tuple[int, ...], outputs: tuple[int, ...], buffer: int, counter: int, stream: int
    ) -> None:
        """The same in scratch memory that is given."""
        values = (*inputs, *outputs, buffer, counter)
        if self.totals_at:
            values += tuple(buffer + offset for offset in self.totals_at)
        self.launch(values, stream)
        if self.then is not None:
            self.then(values, stream)


def plan(
    call: Call,
    names: Mapping[str, str],
    is_kept: Sequence[bool],
    epsilon: float | None,
    elements: int | None = None,
    launches: int = 1,
) -> StreamingPlan | EmptyPlan:
    """The plan of a batch norm, or of sums of D alone: then there is no X.

    names     the kernel's argument for every tensor of the contract
    is_kept   of each axis of X, whether it tells channels apart, and is not reduced
    epsilon   added to `deviation`, which is the variance, or None where that is the inverse standard deviation
    elements  of which the statistics of a channel are those, or None where they are constants; where the call has
              `counts`, how many of these
    launches  1 or 2, for two passes

    Every array has to lie dense in the memory order of X, the parameters in that of its kept axes.
    """
    device = device_of(call)
    tensors = {names[name]: (name, tensor) for name, tensor in {**call.inputs, **call.outputs}.items()}
    data, X = tensors["X" if "X" in tensors else "D"]
    order = memory_order(X)
    for name, tensor in tensors.values():
        if not is_dense(tensor, order if len(tensor.shape) == len(order) else None):
            raise Refusal(f"{name}: it does not lie end to end in the memory order of {data}")
    kept_axes = [axis for axis in order if is_kept[axis] and X.shape[axis] != 1]
    per_channel = next(tensors[name][1] for name in _PER_CHANNEL if name in tensors)
    if len(per_channel.shape) != len(order) and kept_axes != sorted(kept_axes):
        raise Refusal(f"{data}: its channels lie in another order than the parameters")
    if 0 in X.shape or not call.outputs:
        return EmptyPlan("empty", 0, device, tuple(each.nbytes for each in call.outputs.values()))

    slabs = Slabs.of(merged_axes([X.shape[axis] for axis in order], [is_kept[axis] for axis in order]))
    described = {name: tensor for name, (_, tensor) in tensors.items()}
    outputs = frozenset(names[name] for name in call.outputs)
    form = _form(described, outputs, slabs, epsilon, device)
    second = None
    if "dX" in outputs and elements is not None:
        gradient = replace(form, outputs=frozenset({"dX"}), centred=True, counted="counts" in tensors)
        if "scale_total" in tensors:
            form = gradient
        else:
            form, second = replace(form, outputs=outputs - {"dX"}, totals=True), replace(gradient, backward=True)
    form, tiling = choose_tiling(form, slabs, device.processors, device.shared_bytes)
    given = [*(names[name] for name in (*call.inputs, *call.outputs)), "partial", "counter"]
    adding = form.sums > 0 and not form.direct
    partial = tiling.partial_rows * form.column_sums.partial_bytes(slabs.channels) if adding else 0
    kernel = name_of(form, tiling)
    if second is None:
        return StreamingPlan(kernel, partial, _launch(form, tiling, device, given, adding, elements), device)

    given += ["scale_total", "bias_total"]
    first_total, total = up(partial, 128), up(slabs.channels * form.itemsize, 128)
    totals_at = first_total, first_total + total
    memory = first_total + 2 * total
    if launches == 1:  # the second pass takes the first one's items
        form = with_largest_ring(form, device.shared_bytes)
        launch = _launch(form, tiling, device, given, adding, elements, second_pass(form))
        return StreamingPlan(kernel, memory, launch, device, totals_at)
    first = _launch(form, tiling, device, given, adding, elements)
    second, tiling = choose_tiling(second, slabs, device.processors, device.shared_bytes)
    after = _launch(second, tiling, device, given, False, elements)
    return StreamingPlan(f"{kernel}_then_{name_of(second, tiling)}", memory, first, device, totals_at, after)


def _form(
    tensors: Mapping[str, Tensor], outputs: frozenset[str], slabs: Slabs, epsilon: float | None, device: Device
) -> StreamingForm:
    data = [tensors[name] for name in _DATA if name in tensors]
    itemsize = data[0].dtype.itemsize
    width = 16 // itemsize
    while any(each.alignment % (width * itemsize) for each in data) or (slabs.nest and slabs.count % width):
        width //= 2
    parameters = [tensors[name] for name in _PARAMETERS if name in tensors]
    plain = device.capability < (8, 0) or width * itemsize < 4
    return StreamingForm(
        data=data[0].dtype.name,
        parameter=next(tensors[name] for name in _PER_CHANNEL if name in tensors).dtype.name,
        statistic=tensors["deviation"].dtype.name if "deviation" in tensors else data[0].dtype.name,
        outputs=outputs,
        epsilon=epsilon,
        width=width,
        source="plain" if plain else "async",
        columns=all(each.alignment % min(16, width * each.dtype.itemsize) == 0 for each in parameters),
        native_bfloat16=device.capability >= (8, 0),
    )


def _launch(
    form: StreamingForm,
    tiling: Tiling,
    device: Device,
    given: list[str],
    adding: bool,
    elements: int | None = None,
    then: StreamingForm | None = None,
) -> Launch:
    builder = "gradkern.channel_kernels.streaming_kernel:build"
    kernel = kernel_of_form(device, builder, form, then, arguments=len(ARGUMENTS))
    resident = min(kernel.resident_blocks(form.threads), device.processors * form.blocks_per_processor)
    if not resident:
        raise Refusal(
            f"no block of {form.threads} threads and {form.shared_bytes} bytes of shared memory fits the device"
        )
    last = -(-form.sums * tiling.channels // (4 * form.chunk)) if adding else 0  # what the last step shares out
    grid = min(resident, max(tiling.items, last))
    numbers = {**tiling.numbers, "elements": elements or 0}
    arguments = [numbers.get(name, 0) for name in ARGUMENTS]
    changing = [ARGUMENTS.index(name) for name in given]
    return Launch(kernel, grid, form.threads, arguments, changing, cooperative=adding)


def name_of(form: StreamingForm, tiling: Tiling) -> str:
    """A name that tells the shape: how elements reach a thread, what is in registers, tiles and groups."""
    kind = "elements" if form.direct else "columns" if form.split else "planes"
    return f"{kind}_{form.source}_{form.threads}x{form.vectors}x{form.width}_tiles{tiling.tiles}_groups{tiling.groups}"
