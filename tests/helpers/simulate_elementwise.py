"""Any call whose kernels are of the element-wise or the row block, from its check to its results, simulated."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from typing import Any
from unittest.mock import patch

import numpy as np

from gradkern.arrays.host import NUMPY
from gradkern.arrays.kind import View
from gradkern.contract.check import check
from gradkern.contract.host import scalars_of
from gradkern.contract.request import Views, request_of
from gradkern.cuda import launches_plan
from gradkern.cuda.device import Device
from gradkern.kernels.elementwise import plan as elementwise
from gradkern.kernels.rows import plan as rows
from gradkern.ops.gather.cuda import plan as gathers
from gradkern.ops.scaling.cuda import plan as scaling
from gradkern.policy import Policy
from helpers.guarded import Guarded
from helpers.held import Held, hold
from helpers.simulate_losses import Launch, kernel_of

__all__ = ["simulate"]


def simulate(
    operator: str,
    arrays: Mapping[str, np.ndarray | Held],
    in_place: Mapping[str, str] | None = None,
    into: Mapping[str, Held] | None = None,
    **named: Any,
) -> dict[str, np.ndarray]:
    """The outputs, by name; nothing else was written. in_place: outputs, by the inputs that they are written over.
    into: arrays of outputs. named: attributes, numbers, and `outputs`.
    """
    in_place, into = in_place or {}, into or {}
    held = {name: each if isinstance(each, Held) else hold(each) for name, each in arrays.items()}
    given = {name: View(each.tensor, None, "cuda:0", NUMPY) for name, each in held.items()}
    wanted = named.pop("outputs", None)
    request = request_of(operator, (), {name: each.tensor for name, each in held.items()} | named, wanted)
    out = {target: given[source] for source, target in in_place.items()}
    out |= {name: View(each.tensor, None, "cuda:0", NUMPY) for name, each in into.items()}
    call = check(request, Views(given, out, frozenset(in_place.items())), Policy(), None)
    results = {target: held[source] for source, target in in_place.items()} | {**into}
    results |= {n: Held(each.shape, each.dtype) for n, each in call.outputs.items() if n not in results}
    before = {name: each.array.tobytes() for name, each in held.items() if name not in in_place}
    contract = request.binder.operator
    module = import_module(f"gradkern.ops.{contract.family}.{contract.providers['cuda'][0]}")
    device, small = Device(0, (9, 0), 132, 232448), elementwise.configs
    with ExitStack() as stack:
        for block in (elementwise, rows, gathers, scaling):
            for name, stand_in in (("kernel_of", kernel_of), ("Launch", Launch), ("device_of", lambda _: device)):
                stack.enter_context(patch.object(block, name, stand_in))
        few = lambda *how: (replace(each, threads=32) for each in small(*how))  # noqa: E731  simulated threads are slow
        for block in (elementwise, scaling):
            stack.enter_context(patch.object(block, "configs", few))
        stack.enter_context(patch.object(elementwise, "_THREADS", 64))
        memory = Guarded((1 << 14,), np.uint8)
        stack.enter_context(patch.object(launches_plan, "scratch", lambda *_: (0, memory.address)))
        stack.enter_context(patch.object(scaling, "_THREADS", 64))
        inputs = (*(held[name].address for name in call.inputs), *scalars_of(request.host))
        stack.enter_context(patch.object(gathers, "_THREADS", 32))
        module.plan(call)(inputs, tuple(results[name].address for name in call.outputs), 0)
        memory.check()
    for each in (*held.values(), *results.values()):
        each.memory.check()
    assert before == {name: held[name].array.tobytes() for name in before}
    return {name: np.array(results[name].array) for name in call.outputs}
