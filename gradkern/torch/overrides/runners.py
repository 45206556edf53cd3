"""Run a plan for one call: addresses, constants, new results in PyTorch's own memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import itemgetter
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.arrays.host import TORCH, torch_as_numpy
from gradkern.arrays.kind import dtype_of
from gradkern.arrays.view import device_arrays
from gradkern.call import Plan, execution
from gradkern.torch.aten.request import Constant, View
from gradkern.torch.native.recording import Output, Steps, of_cpu, of_cuda, unrepeatable
from gradkern.torch.overrides.signatures import Description, Source, derived

Run = Callable[[tuple[torch.Tensor, ...]], Any]
"""aten's results for the tensors of a call; None where the call is not quite like the others."""


def runner(description: Description, plan: Plan, order: tuple[str, ...]) -> Run:
    """What answers the calls that ask for this. `order` is that of the plan's outputs."""
    return (_on_cpu if description.device == "cpu" else _on_cuda)(description, plan, order)


def steps(
    description: Description,
    plan: Plan,
    order: tuple[str, ...],
    tensors: tuple[torch.Tensor, ...],
    place_of: Callable[[torch.Tensor], int],
) -> Steps:
    """The same for machine code, where nothing makes that impossible. tensors: of such a call; place_of: of a tensor's
    address, to machine code. Raises Unrepeatable.
    """
    device, made = tensors[0].device, dict(description.outputs)
    outputs = [Output.like(made[name].place, made[name].tensor, device) for name in order]
    places = [place_of(tensors[each]) if isinstance(each, int) else -1 for each in description.sources]
    if device.type != "cpu":
        inputs = [
            (_address(each, description.device),) if isinstance(each, Constant) else place
            for each, place in zip(description.sources, places, strict=True)
        ]
        return of_cuda(plan, inputs, outputs, device)
    given = [_constant(each) if isinstance(each, Constant) else tensors[each] for each in description.sources]  # type: ignore[index]
    read = [_array(each, view) for each, view in zip(given, description.views, strict=True)]
    written = [TORCH.maker(made[name].tensor)(None) for name in order]
    arrays = [
        array if made[name].view is None else _array(tensor, made[name].view)
        for name, (tensor, array) in zip(order, written, strict=True)
    ]
    return of_cpu(plan, read, arrays, places, outputs)


def by_python(description: Description, plan: Plan) -> str:
    """Why Python answers such calls, as far as it is known before one comes; "" where machine code can."""
    if description.finish is not None or _derived(description.sources):
        return "PyTorch computes a part of it"
    return unrepeatable(plan)


def _on_cuda(description: Description, plan: Plan, order: tuple[str, ...]) -> Run:
    kind = device_arrays().torch_kind(int(description.device.removeprefix("cuda:")))
    made = dict(description.outputs)
    allocate = kind.allocator([made[name].tensor for name in order])
    # aten's results, by their places among the arrays that are made; the place behind them is None, for all else
    places = {made[name].place: index for index, name in enumerate(order)}
    results_of = itemgetter(*[places.get(place, len(order)) for place in range(description.results)])
    stream, execute, address = kind.stream, execution(plan), torch.Tensor.data_ptr
    fixed = tuple([_address(each, description.device) for each in description.sources if isinstance(each, Constant)])
    first, *others = _picks(description.sources)
    inputs_of = itemgetter(first, *others) if others else itemgetter(slice(first, first + 1 or None))  # a tuple of one
    before = _derived(description.sources)

    def run(tensors: tuple[torch.Tensor, ...]) -> Any:
        if before:
            tensors = (*tensors, *[derived(each, tensors) for each in before])
        addresses = tuple(map(address, tensors))
        for each in addresses:
            if each & 15 or not each:
                return None
        results = allocate()
        execute(inputs_of(addresses + fixed), tuple(map(address, results)), stream())
        results.append(None)
        return results_of(results)

    return run


def _on_cpu(description: Description, plan: Plan, order: tuple[str, ...]) -> Run:
    made = [dict(description.outputs)[name] for name in order]
    makers = [(each.place, TORCH.maker(each.tensor), each.view) for each in made]
    count = description.results
    constants = [_constant(each) for each in description.sources if isinstance(each, Constant)]
    picks = list(zip(_picks(description.sources), description.views, strict=True))
    before = _derived(description.sources)

    def run(tensors: tuple[torch.Tensor, ...]) -> Any:
        every = [*tensors, *[derived(each, tensors) for each in before], *constants]
        read = tuple([_array(every[place], view) for place, view in picks])
        results: list[Any] = [None] * count
        written = []
        for place, new, view in makers:
            results[place], array = new(None)
            written.append(array if view is None else _array(results[place], view))
        plan(read, tuple(written), None)
        return tuple(results) if count > 1 else results[0]

    return run


def _array(tensor: torch.Tensor, view: View | None) -> Any:
    plain = tensor.detach()
    return torch_as_numpy(plain if view is None else view(plain))


def _derived(sources: tuple[Source, ...]) -> list[Source]:
    """What is computed of the call's tensors before, in that order."""
    return [each for each in sources if isinstance(each, tuple)]


def _picks(sources: tuple[Source, ...]) -> list[int]:
    """Where each input of the plan is among the call's tensors with the derived ones behind them, and the constants
    behind those: counted from the end.
    """
    behind = -sum(not isinstance(each, int) for each in sources)
    places: dict[int, int] = {}
    for kind in (tuple, Constant):
        for place, each in enumerate(sources):
            if isinstance(each, kind):
                places[place] = behind
                behind += 1
    return [each if isinstance(each, int) else places[place] for place, each in enumerate(sources)]


@cache
def _constant(constant: Constant) -> torch.Tensor:
    return torch.full(constant.shape, constant.value, dtype=constant.dtype, device="cpu")


def _address(constant: Constant, device: str) -> int:
    """Where the constant is on a GPU."""
    from gradkern.cuda.constants import filled  # needs the packages for a GPU, as what comes here does
    from gradkern.cuda.device import get_device

    dtype = dtype_of(str(constant.dtype).removeprefix("torch."))
    return filled(get_device(int(device.removeprefix("cuda:"))), constant.value, constant.shape, dtype)
