"""From a call to the launches of a number that all elements of its arrays add to."""

from __future__ import annotations

from typing import Any

from gradkern.call import Call, Refusal
from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words
from gradkern.cuda.launch import Launch, kernel_of, named
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.rows import device_of
from gradkern.kernels.elementwise.config import SUM_ARGUMENTS, TotalsConfig, widest_vector
from gradkern.kernels.elementwise.several import ARRAYS, arguments_of, numbers_of
from gradkern.strides import is_dense, memory_order

_BLOCKS = 8  # of a multiprocessor, at most
_THREADS = 256


def totals_plan(call: Call, parts_builder: str, sum_builder: str, *more: Any) -> LaunchesPlan:
    """The plan of a call with arrays of one type and one number. Every array has blocks of its own, as its share of all
    elements is; a launch is of up to 32 arrays.

    parts_builder, sum_builder: "module:function" of (TotalsConfig, the arrays of a launch, *more) and of (threads, the
    output's type, *more, whether the device converts to bfloat16)
    """
    device, (output,) = device_of(call), call.outputs.values()
    for name, tensor in call.inputs.items():
        if not is_dense(tensor, memory_order(tensor)):
            raise Refusal(f"{name}: its elements are not adjacent in memory")
    tensors = list(call.inputs.values())
    dtype, alignment, words = tensors[0].dtype, min(each.alignment for each in tensors), operator_words(call.operator)
    width = min(widest_vector([(dtype.name, alignment, 0)]), 16 // dtype.itemsize)
    config = TotalsConfig(dtype.name, width, threads=_THREADS)
    span, most = width * config.vectors * _THREADS, _BLOCKS * device.processors
    total = sum(each.size for each in tensors)
    blocks = {
        place: min(-(-each.size // span), max(1, most * each.size // total))
        for place, each in enumerate(tensors)
        if each.size
    }
    arrays = 1 if len(tensors) == 1 else ARRAYS
    names = arguments_of("parts", arrays)
    steps, firsts, done = list[tuple[Launch, tuple[int, ...]]](), list[int](), 0  # firsts: parts before each launch's
    output_at, parts_at = len(tensors), len(tensors) + 1  # places among the addresses
    for first in range(0, len(blocks), arrays):
        places = tuple(blocks)[first : first + arrays]
        kernel = kernel_of(
            device, parts_builder, config, arrays, *more,
            name=kernel_name(words, dtype.name, config.name, f"of_{arrays}"), arguments=len(names), threads=_THREADS,
        )  # fmt: skip
        own = [blocks[place] for place in places]
        numbers = numbers_of([tensors[place].size for place in places], own, arrays)
        given = ("parts", *(f"input_{n}" for n in range(len(places))))
        launch = Launch(kernel, sum(own), _THREADS, *named(names, numbers, given))
        steps.append((launch, (parts_at + len(firsts), *places)))
        firsts.append(done)
        done += sum(own)
    kernel = kernel_of(
        device, sum_builder, _THREADS, output.dtype.name, *more, device.capability >= (8, 0),
        name=kernel_name(words, output.dtype.name, "sum"), arguments=len(SUM_ARGUMENTS), threads=_THREADS,
    )  # fmt: skip
    added = Launch(kernel, 1, _THREADS, *named(SUM_ARGUMENTS, {"count": done}, ("parts", "output")))
    launches, places = zip(*steps, (added, (parts_at, output_at)), strict=True)
    offsets = tuple(8 * first for first in firsts or [0])
    return LaunchesPlan(f"{words}_{config.name}", 8 * max(1, done), launches, places, offsets, device)
