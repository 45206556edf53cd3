#!/usr/bin/env python3
"""Measure configs that a cost model chooses between on the GPU at hand, and fit its coefficients to their times.

    tools/fit.py channels_last              the persistent kernel of channels-last arrays, or the streaming kernel
    tools/fit.py single_pass --write        the persistent or the streaming kernel for constant statistics; keep the
                                            coefficients in gradkern/kernels/channels/times.json

A fifth of the problems is left out of the fit. For these the tool reports how far predicted times are off, and how much
longer the predicted best config takes than the best measured one: with the old coefficients and with the new ones.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from needs import require_gpu

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.compile_ahead import compile_ahead
from gradkern.cuda.device import Device, get_device
from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.kernels.channels import channels_last_config as last
from gradkern.kernels.channels import persistent_config as persistent
from gradkern.kernels.channels import persistent_plan
from gradkern.kernels.channels import streaming_plan as streaming
from gradkern.kernels.channels.times import DATA, ChannelsLastTimes, SinglePassTimes, times
from gradkern.policy import Policy
from gradkern.strides import c_strides

INPUTS, OUTPUTS = ("D", "X", "scale", "mean", "deviation"), ("dX", "scale_sum", "bias_sum")
DATA_OF = frozenset({"D", "X", "dX"})
TYPES = ("bfloat16", "bfloat16", "float32", "float64")
EPSILON = 1e-5
CONFIGS = 4  # of a problem that are measured
HELD_OUT = 5  # every fifth problem is not fitted
Plan = Callable[[tuple[int, ...], tuple[int, ...], int], None]


@dataclass
class Sample:
    """A config of a problem: its plan, the prediction from coefficients, and once it was measured its microseconds."""

    plan: Plan
    predict: Callable[[Any], float]
    measured: float = 0.0


@dataclass(frozen=True)
class Problem:
    """N x C or N x C x L elements in C order; parameters have another type for data of 16 bits in a batch norm."""

    shape: tuple[int, ...]
    dtype: str
    parameter: str

    @property
    def tensors(self) -> dict[str, tuple[str, Tensor]]:
        data, channels = self._tensor(self.shape, self.dtype), self._tensor(self.shape[1:2], self.parameter)
        return {name: (name, data if name in DATA_OF else channels) for name in (*INPUTS, *OUTPUTS)}

    def _tensor(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        kind = np.dtype(dtype)
        return Tensor(kind, shape, c_strides(shape, kind.itemsize), 16)

    def streamed(self, elements: int | None, epsilon: float | None) -> Plan:
        """The streaming kernel's plan."""
        tensors = {name: tensor for name, (_, tensor) in self.tensors.items()}
        inputs, outputs = ({name: tensors[name] for name in names} for names in (INPUTS, OUTPUTS))
        call = Call("fit", inputs, outputs, {}, {}, frozenset(), "cuda:0", Policy())
        is_channel_axis = [axis == 1 for axis in range(len(self.shape))]
        return streaming.plan(call, {name: name for name in tensors}, is_channel_axis, epsilon, elements)


def channels_last(random: Random, device: Device) -> tuple[Problem, list[Sample]]:
    """A problem of 1 to 260 MB; every fifth has any number of channels."""
    dtype = random.choice(TYPES)
    channels = round(2 ** random.uniform(6, 11.5) / 8) * 8 + random.choice((0, 0, 0, 0, 1))
    rows = max(2, round(2 ** random.uniform(20, 28) / (3 * channels * np.dtype(dtype).itemsize)))
    problem = Problem((rows, channels), dtype, "float64" if dtype == "float64" else "float32")
    found = persistent_plan.fitting_partitions(problem.tensors, device)
    others = random.sample(found[1:12], min(CONFIGS - 1, len(found[1:12])))
    samples = [
        Sample(
            persistent_plan.channels_last_plan(each, device, list(problem.tensors)), partial(last.persistent_time, each)
        )
        for each in (found[0], *others)
    ]
    streamed = Sample(problem.streamed(rows, None), partial(last.streaming_time, found[0]))
    return problem, [*samples, streamed]


def single_pass(random: Random, device: Device) -> tuple[Problem, list[Sample]]:
    """A problem of 2 to 500 MB."""
    dtype, length = random.choice(TYPES), round(2 ** random.uniform(6, 14))
    channels = max(4, round(2 ** random.uniform(3, 11) / 4) * 4)
    images = max(1, round(2 ** random.uniform(21, 29) / (3 * channels * length * np.dtype(dtype).itemsize)))
    problem, sizes = Problem((images, channels, length), dtype, dtype), (images, channels, length)
    tensors, of = problem.tensors, times(SinglePassTimes, device.capability[0])
    types = persistent_plan.types_of(tensors)
    config = persistent.PersistentConfig(*types, EPSILON, False, device.shared_bytes)
    found = persistent.single_pass_configs(config, sizes, persistent_plan.max_cluster_size(device))
    found.sort(key=lambda each: persistent.single_pass_time(*each, device.processors, of))
    samples = [
        Sample(
            persistent_plan.persistent_plan(*each, device, list(tensors)),
            partial(persistent.single_pass_time, *each, device.processors),
        )
        for each in found[:CONFIGS]
    ]
    streamed = Sample(problem.streamed(None, EPSILON), partial(persistent.streaming_time, config, sizes))
    return problem, [*samples, streamed]


MODELS: dict[str, tuple[Any, Callable[[Random, Device], tuple[Problem, list[Sample]]]]] = {
    "channels_last": (ChannelsLastTimes, channels_last),
    "single_pass": (SinglePassTimes, single_pass),
}


def problems(name: str, count: int, device: Device) -> Iterator[tuple[Problem, list[Sample]]]:
    """The same ones for the same device; those that a kernel does not take are left out."""
    for number in range(count):
        with suppress(Refusal):
            yield MODELS[name][1](Random(f"{name} {number}"), device)


def measure(problem: Problem, samples: Sequence[Sample], seconds: float) -> None:
    """Times with a cold L2 cache, in turns."""
    import torch  # pyright: ignore[reportMissingImports]
    from gpu_timing import device_times

    tensors = [tensor for _, tensor in problem.tensors.values()]
    random = (torch.rand(each.shape, device="cuda") + 0.5 for each in tensors)
    arrays = [values.to(getattr(torch, each.dtype.name)) for values, each in zip(random, tensors, strict=True)]
    addresses = tuple(each.data_ptr() for each in arrays)
    inputs, outputs = addresses[: len(INPUTS)], addresses[len(INPUTS) :]
    stream = torch.cuda.current_stream().cuda_stream
    calls = {str(n): partial(each.plan, inputs, outputs, stream) for n, each in enumerate(samples)}
    for n, found in device_times(calls, seconds).items():
        samples[int(n)].measured = statistics.median(found) * 1e6


def errors(groups: Sequence[Sequence[Sample]], of: Any) -> list[float]:
    """How far predictions are off, as logarithms."""
    return [math.log(each.predict(of) / each.measured) for samples in groups for each in samples]


def regrets(groups: Sequence[Sequence[Sample]], of: Any) -> list[float]:
    """Time of the predicted best over that of the best, for every problem."""
    chosen = [min(samples, key=lambda each: each.predict(of)) for samples in groups]
    return [one.measured / min(each.measured for each in samples) for one, samples in zip(chosen, groups, strict=True)]


def fitted(groups: Sequence[Sequence[Sample]], of: Any, seconds: float) -> Any:
    """Coordinate descent on the mean square of the errors: each coefficient goes up or down while it helps.

    A coefficient that no measured time depends on stays.
    """

    def loss(of: Any) -> float:
        found = errors(groups, of)
        return sum(each * each for each in found) / len(found)

    best, step, end = loss(of), 0.3, time.monotonic() + seconds
    while step > 0.004 and time.monotonic() < end:
        before = best
        for name in asdict(of):
            for factor in (1 + step, 1 / (1 + step)):
                changed = replace(of, **{name: getattr(of, name) * factor})
                while (now := loss(changed)) < best * (1 - 1e-6):
                    of, best = changed, now
                    changed = replace(of, **{name: getattr(of, name) * factor})
        if best > before * 0.999:
            step /= 2
    return of


def summary(groups: Sequence[Sequence[Sample]], of: Any) -> str:
    off, longer = sorted(map(abs, errors(groups, of))), regrets(groups, of)
    median = math.expm1(statistics.median(off))
    return (
        f"predictions {median:.1%} off in the median; the choice takes {statistics.mean(longer) - 1:.2%} longer than"
        f" the best in the mean, {max(longer) - 1:.1%} at most"
    )


def main() -> int:
    """Measure, fit, report, and write if that is wanted and the choice is not worse."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--problems", type=int, default=60, help="random sizes to measure (%(default)s)")
    parser.add_argument("--seconds", type=float, default=0.1, help="for the configs of a problem (%(default)s)")
    parser.add_argument("--json", type=Path, help="keep what was measured and fitted here")
    parser.add_argument("--write", action="store_true", help=f"write the coefficients to {DATA.name}")
    options = parser.parse_args()
    require_gpu(parser)
    from gpu_timing import machine

    device, kind = get_device(0), MODELS[options.model][0]
    with dry_run(DryRunDevice.of(device)) as dry:
        list(problems(options.model, options.problems, dry))
    compile_ahead(dry.specs)
    groups: list[list[Sample]] = []
    for problem, samples in problems(options.model, options.problems, device):
        measure(problem, samples, options.seconds)
        groups.append(samples)
    held_out, given = groups[::HELD_OUT], [each for n, each in enumerate(groups) if n % HELD_OUT]
    old = times(kind, device.capability[0])
    new = fitted(given, old, 30)
    print(f"{len(groups)} problems, {sum(map(len, groups))} configs on {machine()['gpu']}")
    for title, chosen in (("fitted", given), ("left out", held_out)):
        print(f"{title}, before: {summary(chosen, old)}")
        print(f"{title}, after:  {summary(chosen, new)}")
    print(json.dumps(asdict(new), indent=1))
    if options.json:
        rows = [[[each.measured, each.predict(old), each.predict(new)] for each in samples] for samples in groups]
        options.json.write_text(json.dumps({"machine": machine(), "coefficients": asdict(new), "rows": rows}))
    if options.write:
        if statistics.mean(regrets(held_out, new)) > statistics.mean(regrets(held_out, old)):
            print("not written: the choice would be worse", file=sys.stderr)
            return 1
        kept = json.loads(DATA.read_text())
        measured = f"{machine()['gpu']}: {len(groups)} random problems, by tools/fit.py"
        kept[options.model][str(device.capability[0])] = {"measured": measured, "coefficients": asdict(new)}
        DATA.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
