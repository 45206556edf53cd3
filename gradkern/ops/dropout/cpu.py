"""The gradients of masks on the CPU."""

from __future__ import annotations

from typing import Any

import numba

from gradkern.call import Call
from gradkern.cpu.compile import INLINE
from gradkern.cpu.elementwise import elementwise_kernel, elementwise_plan
from gradkern.cpu.flat_plan import FlatPlan
from gradkern.ops.dropout import factors


@numba.njit(**INLINE)
def _kept(d: Any, mask: Any, _: Any, r: Any, one: Any) -> Any:
    return (d * r[0] if mask > 0 else one - one), one, one


_KERNEL = elementwise_kernel(_kept)


def plan(call: Call) -> FlatPlan:
    bits = "mask" if call.operator.startswith("Bitmask") else ""
    return elementwise_plan(call, _KERNEL, tuple(call.inputs), tuple(call.outputs), factors, bits)
