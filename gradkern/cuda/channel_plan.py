"""From a call of a batch norm to a launch of the kernel in `channel_kernel`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda import cache
from gradkern.cuda.channels import ARGUMENTS, ChannelForm, Slabs, Walk, choose
from gradkern.cuda.device import Device
from gradkern.cuda.launch import Launch, load
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.cuda.scratch import scratch
from gradkern.memory import is_dense, memory_order, merged

__all__ = ["ChannelPlan", "plan"]

_HERE = Path(__file__).parent
_DATA = ("D", "X", "dX")
_PARAMETERS = ("scale", "mean", "spread")


@dataclass(frozen=True, slots=True)
class ChannelPlan:
    """One launch with its scratch memory."""

    kernel: str
    scratch: int
    launch: Launch
    device: Device

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        counter, buffer = scratch(self.device, stream, self.scratch) if self.scratch else (0, 0)
        self.launch((*inputs, *outputs, buffer, counter), stream)


def plan(
    call: Call, names: Mapping[str, str], is_kept: Sequence[bool], epsilon: float | None
) -> ChannelPlan | EmptyPlan:
    """The plan of a batch norm whose statistics are constants, or of sums of D alone: then there is no X.

    names: the kernel's argument for every tensor of the contract; is_kept: of each axis of X, whether it tells channels
    apart; epsilon: added to `spread`, which is the variance, or None where that is the inverse standard deviation.
    Every array has to lie dense in the memory order of X, the parameters in that of its kept axes.
    """
    which = device_of(call)
    tensors = {names[name]: (name, tensor) for name, tensor in {**call.inputs, **call.outputs}.items()}
    data, X = tensors["X" if "X" in tensors else "D"]
    order = memory_order(X)
    for name, tensor in tensors.values():
        if not is_dense(tensor, order if len(tensor.shape) == len(order) else None):
            raise Refusal(f"{name}: it does not lie end to end in the memory order of {data}")
    kept_axes = [axis for axis in order if is_kept[axis] and X.shape[axis] != 1]
    per_channel = tensors["scale" if "scale" in tensors else "bias_sum"][1]
    if len(per_channel.shape) != len(order) and kept_axes != sorted(kept_axes):
        raise Refusal(f"{data}: its channels lie in another order than the parameters")
    if 0 in X.shape or not call.outputs:
        return EmptyPlan("empty", 0, which, tuple(each.nbytes for each in call.outputs.values()))

    slabs = Slabs.of(merged([X.shape[axis] for axis in order], [is_kept[axis] for axis in order]))
    form = _form(
        {name: tensor for name, (_, tensor) in tensors.items()},
        frozenset(names[name] for name in call.outputs),
        slabs,
        epsilon,
        which,
    )
    form, walk = choose(form, slabs, which.processors, which.shared_bytes)
    adding = form.sums > 0 and not form.direct
    partial = walk.partial_rows * form.column_sums.partial_bytes if adding else 0
    given = [*(names[name] for name in (*call.inputs, *call.outputs)), "partial", "counter"]
    return ChannelPlan(name_of(form, walk), partial, _launch(form, walk, which, given, adding), which)


def _form(
    tensors: Mapping[str, Tensor], outputs: frozenset[str], slabs: Slabs, epsilon: float | None, which: Device
) -> ChannelForm:
    data = [tensors[name] for name in _DATA if name in tensors]
    itemsize = data[0].dtype.itemsize
    width = 16 // itemsize
    while any(each.alignment % (width * itemsize) for each in data) or (slabs.nest and slabs.count % width):
        width //= 2
    parameters = [tensors[name] for name in _PARAMETERS if name in tensors]
    plain = which.capability < (8, 0) or width * itemsize < 4
    return ChannelForm(
        data=data[0].dtype.name,
        parameter=(tensors["scale"] if "scale" in tensors else tensors["bias_sum"]).dtype.name,
        statistic=tensors["spread"].dtype.name if "spread" in tensors else data[0].dtype.name,
        outputs=outputs,
        channels=slabs.channels,
        epsilon=epsilon,
        width=width,
        source="plain" if plain else "async",
        columns=all(each.alignment % min(16, width * each.dtype.itemsize) == 0 for each in parameters),
        native_bfloat16=which.capability >= (8, 0),
    )


def _launch(form: ChannelForm, walk: Walk, which: Device, given: list[str], adding: bool) -> Launch:
    def build() -> Any:
        from gradkern.cuda.channel_kernel import build as build_kernel
        from gradkern.cuda.compile import compile_kernel

        return compile_kernel(
            build_kernel(form), len(ARGUMENTS), which.capability, form.threads, form.blocks_per_processor
        )

    description = repr(replace(form, outputs=frozenset())) + " ".join(sorted(form.outputs))
    key = cache.key_of(_HERE, description, which.capability)
    kernel = load(key, which, lambda: cache.fetch(key, build), form.shared_bytes, 1)
    resident = min(kernel.resident_blocks(form.threads), which.processors * form.blocks_per_processor)
    if not resident:
        raise Refusal(
            f"no block of {form.threads} threads and {form.shared_bytes} bytes of shared memory fits the device"
        )
    last = -(-form.sums * form.channels // (4 * form.chunk)) if adding else 0  # what the last step shares out
    grid = min(resident, max(walk.items, last))
    arguments = [walk.numbers.get(name, 0) for name in ARGUMENTS]
    changing = [ARGUMENTS.index(name) for name in given]
    return Launch(kernel, grid, form.threads, arguments, changing, cooperative=adding)


def name_of(form: ChannelForm, walk: Walk) -> str:
    """A name that tells the walk's shape: elements' source, what is kept in registers, tiles and groups."""
    kind = "elements" if form.direct else "columns" if form.split else "planes"
    return f"{kind}_{form.source}_{form.threads}x{form.vectors}x{form.width}_tiles{walk.tiles}_groups{walk.groups}"
