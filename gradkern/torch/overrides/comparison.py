"""Whether gradkern's kernels pay: both they and PyTorch's are timed on random data, on the device and on the host. On a
CPU, both at once, all time counts as the device's.

A step is as slow as the slower of device and host. So a call is left to PyTorch unless it gains more on the device than
it costs on the host; and so is a whole operator where what its calls of a step gain is less than what the way through
Python costs those that are left to PyTorch, or are too small. Whole steps can show the slower of both:
step_comparison.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.overrides.kernel import Kernel
from gradkern.torch.overrides.signatures import Signature

_CALLS, _ROUNDS = 8, 3
_AHEAD = 4_000_000
"""Cycles that the device sleeps, so that the host has issued a round of calls before the first of them runs."""


@dataclass(frozen=True)
class Cost:
    """Microseconds of a call: of its kernels on the device, and of the host to enqueue them."""

    device: float
    host: float


@dataclass(frozen=True)
class Comparison:
    ours: Cost
    theirs: Cost

    @property
    def on_device(self) -> float:
        """Microseconds that a call gains on the device."""
        return self.theirs.device - self.ours.device

    @property
    def gain(self) -> float:
        """Microseconds that a call gains on the device beyond what it costs on the host."""
        return self.on_device - max(0.0, self.ours.host - self.theirs.host)

    def __str__(self) -> str:
        ours, theirs = self.ours, self.theirs
        on_host, by_pytorch = (
            (f" and {ours.host:.1f} of the host's", f" and {theirs.host:.1f}") if ours.host else ("", "")
        )
        return (
            f"no gain: gradkern's kernels take {ours.device:.1f} us{on_host}, PyTorch's {theirs.device:.1f}{by_pytorch}"
        )


@dataclass(frozen=True)
class Short:
    """In place of a Comparison: calls that take PyTorch so little time that gradkern's kernels were not looked for."""

    theirs: Cost
    on_device = gain = 0.0

    def __str__(self) -> str:
        return (
            f"no gain expected: PyTorch's kernels take {self.theirs.device:.1f} us, and of such calls none has gained "
            "what it costs the host"
        )


def leave_short(kernels: Iterable[Kernel]) -> None:
    """Leave calls to PyTorch that cannot be expected to gain, before kernels are compiled and searched for them: about
    a second for each signature.
    """
    for kernel in kernels:
        if kernel.enabled:
            gainless = kernel.translation.gainless
            limits = {each: gainless(each.description) for each in kernel.signatures() if each.waits}
            timed = _by_pytorch(kernel, [each for each, most in limits.items() if most and each.args])
            for each, cost in timed.items():
                if cost.device <= limits[each]:
                    each.comparison = Short(cost)
                    each.decline(str(each.comparison))


def compare(kernels: Iterable[Kernel], calls: Mapping[Signature, int], small: Mapping[Kernel, int]) -> None:
    """Leave to PyTorch what does not gain. calls: how often each signature came in a step; small: and how many calls of
    each operator were too small to have one.
    """
    for kernel in kernels:
        if kernel.enabled:
            _time(kernel, [each for each in kernel.signatures() if each.run and each.args and not each.comparison])
            came = {each: calls[each] for each in kernel.signatures() if calls.get(each)}
            _judge(kernel, came, small.get(kernel, 0))


@dataclass(frozen=True)
class Verdicts:
    """Why calls are PyTorch's: by the operator's name and the signature's text, and why whole operators are."""

    declined: Mapping[tuple[str, str], str] = field(default_factory=dict)
    inactive: Mapping[str, str] = field(default_factory=dict)


def verdicts(kernels: Iterable[Kernel]) -> Verdicts:
    """What `compare` has found."""
    known = [each for each in kernels if each.enabled]
    found = [(kernel, each) for kernel in known for each in kernel.signatures() if each.comparison and not each.run]
    declined = {(kernel.translation.name, each.text): each.reason for kernel, each in found}
    return Verdicts(declined, {kernel.translation.name: kernel.inactive for kernel in known if kernel.inactive})


def follow(kernels: Iterable[Kernel], found: Verdicts) -> None:
    """Do as another process has found, so that all run the same kernels."""
    for kernel in kernels:
        if kernel.enabled:
            for each in kernel.signatures():
                reason = found.declined.get((kernel.translation.name, each.text))
                if reason is not None and not each.reason:
                    each.decline(reason)
            if kernel.translation.name in found.inactive:
                kernel.deactivate(found.inactive[kernel.translation.name])


def _time(kernel: Kernel, signatures: list[Signature]) -> None:
    """Find what calls of these signatures cost, with gradkern in front of PyTorch's kernel and without."""
    if not signatures:
        return
    ours: dict[Signature, Cost] = {}
    for each in signatures:
        natively, before, cost = each.natively.value, each.taken.value, _cost_of(kernel, each)
        extra = each.taken.value - before
        each.taken.less(extra)
        each.natively.less(each.natively.value - natively)
        if cost is not None and extra:
            ours[each] = cost
    for each, cost in _by_pytorch(kernel, ours).items():
        each.comparison = Comparison(ours[each], cost)


def _by_pytorch(kernel: Kernel, signatures: Collection[Signature]) -> dict[Signature, Cost]:
    """The cost of calls without gradkern in front of PyTorch's kernel, for those that can be made."""
    if not signatures or not kernel.override.remove():  # another has come on top of it, who may call it
        return {}
    try:
        costs = {each: _cost_of(kernel, each) for each in signatures}
    finally:
        kernel.override.install()
    return {each: cost for each, cost in costs.items() if cost is not None}


def _judge(kernel: Kernel, calls: Mapping[Signature, int], small: int) -> None:
    """Decline what does not gain; deactivate the kernel where the operator as a whole does not."""
    for each in calls:
        if each.comparison is not None and each.run is not None and each.comparison.gain <= 0:
            each.decline(str(each.comparison))
    taken = {each: count for each, count in calls.items() if each.run is not None}
    left = {each: count for each, count in calls.items() if each.run is None}
    others = sum(left.values()) + small
    if not others:
        return
    if not taken:
        kernel.deactivate("no gain: gradkern would answer none of a step's calls")
        return
    if any(each.comparison is None for each in taken):
        return  # what could not be timed may gain
    gained = sum(count * each.comparison.gain for each, count in taken.items())
    lost = _detour(kernel, left, taken) * others
    if gained <= lost:
        kernel.deactivate(f"no gain: of a step's calls some gain {gained:.0f} us, the others lose {lost:.0f}")


def _detour(kernel: Kernel, left: Iterable[Signature], taken: Iterable[Signature]) -> float:
    """The host's extra microseconds for a call that gradkern passes on to PyTorch's kernel."""
    for each in left:
        if each.comparison is not None:
            before, cost = each.declined.value, _cost_of(kernel, each)
            each.declined.less(each.declined.value - before)
            if cost is not None:
                return max(0.0, cost.host - each.comparison.theirs.host)
    for each in taken:
        with kernel.handing_on():
            cost = _cost_of(kernel, each)
        if cost is not None:
            return max(0.0, cost.host - each.comparison.theirs.host)
    return 0.0


def _cost_of(kernel: Kernel, signature: Signature) -> Cost | None:
    """None where the call cannot be made on random data, as without memory for it."""
    op = getattr(torch.ops.aten, kernel.translation.name).default
    try:
        with torch.no_grad():
            args = [each() if callable(each) else each for each in signature.args or ()]
            return _cost(lambda: op(*args), kernel.key)
    except RuntimeError:  # as torch.OutOfMemoryError is
        return None


def _cost(call: Callable[[], Any], key: str) -> Cost:
    """The least of some rounds."""
    call()
    rounds = [_on_gpu(call) if key == "CUDA" else _on_cpu(call) for _ in range(_ROUNDS)]
    return Cost(min(each.device for each in rounds), min(each.host for each in rounds))


def _on_gpu(call: Callable[[], Any]) -> Cost:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    torch.cuda._sleep(_AHEAD)
    start.record()
    begin = perf_counter()
    for _ in range(_CALLS):
        call()
    host = (perf_counter() - begin) / _CALLS * 1e6
    end.record()
    end.synchronize()
    return Cost(start.elapsed_time(end) / _CALLS * 1e3, host)


def _on_cpu(call: Callable[[], Any]) -> Cost:
    begin = perf_counter()
    call()
    return Cost((perf_counter() - begin) * 1e6, 0.0)
