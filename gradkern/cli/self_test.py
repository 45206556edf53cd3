"""`gradkern doctor --self-test`: every operator's kernels on the GPU at hand against the CPU provider, in a minute.

It finds kernels that are wrong on this GPU, not the last digits of right ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np

from gradkern.cli.checks import Check, fine, problem
from gradkern.cli.sizes import Wanted, combinations
from gradkern.contract import registry
from gradkern.contract.samples import inputs_of
from gradkern.dispatch.planner import compile_ahead
from gradkern.dispatch.run import run
from gradkern.errors import GradkernError
from gradkern.system import notice, providers

SECONDS = 60.0
_MOST = {"float64": 1e-12, "float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""||one - other|| / ||other||: ten times what the tests allow each from exact results."""
_POLICY = {"search": "default", "allow_tf32": False}  # no search, and no search's kernels to compile
_TYPES = ("float32", "bfloat16", "float16")


def check_kernels(
    provider: str = "cuda", reference: str = "cpu", seconds: float = SECONDS, pool: Executor | None = None
) -> Iterator[Check]:
    """Compare providers on small calls of all operators that both have: one of each in float32 first, then other types,
    then other sizes, until the time is over. The reference is computed by the pool, by default by several processes:
    most of its time is compilation.
    """
    end = time.perf_counter() + seconds
    tried, refused, left, ended = 0, 0, 0, False
    operators: set[str] = set()
    rounds = [*_rounds(provider, reference)]
    pool = pool or ProcessPoolExecutor(min(16, os.cpu_count() or 1), get_context("spawn"))
    try:
        expected = [
            [pool.submit(_results, each.name, _arguments(each), reference) for each in calls] for calls in rounds
        ]
        for calls, coming in zip(rounds, expected, strict=True):
            if time.perf_counter() < end:
                device = providers.PROVIDERS[provider].first_device
                compile_ahead((provider, device, partial(each.dry_plan, provider)) for each in calls)
            for each, other in zip(calls, coming, strict=True):
                try:
                    fault = _fault(each, provider, other.result(max(0.0, end - time.perf_counter())))
                except TimeoutError:
                    left += 1
                    continue
                except BrokenExecutor as error:  # one of its processes ended, and with it all
                    if not ended:
                        yield problem("self-test", f"a process of the {reference} provider ended: {error}")
                    ended, left = True, left + 1
                    continue
                except GradkernError:  # there is nothing to compare with
                    refused += 1
                    continue
                except Exception as error:  # whatever happens is a finding here, too
                    fault = f"on {reference}, {type(error).__name__}: {error}"
                tried, operators = tried + 1, operators | {each.name}
                if fault is not None:
                    yield problem("self-test", f"{each.name} {each.size}: {fault}")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    text = f"{tried} calls of {len(operators)} operators compared with the {reference} provider"
    text += f", {refused} that this one does not take" if refused else ""
    text += f", {left} left out after {seconds:.0f} s" if left else ""
    yield fine("self-test", text, calls=tried, refused=refused, left_out=left)


def _rounds(provider: str, reference: str) -> Iterator[list[Wanted]]:
    """Calls, the most telling first."""
    both = [
        (name, each) for name, each in registry.operators().items() if {provider, reference} <= each.providers.keys()
    ]
    for size in range(max((len(each.examples) for _, each in both), default=0)):
        for data in _TYPES:
            yield [
                Wanted(name, each, each.examples[size], types, policy=_POLICY)
                for name, each in both
                if size < len(each.examples)
                for types in combinations(each, data)[:1]
            ]


def _arguments(wanted: Wanted) -> dict[str, Any]:
    """Random inputs, the same for all providers, and attributes."""
    made: Any = inputs_of(wanted.operator, wanted.types, wanted.example, np.random.default_rng(0))
    return {**made, **wanted.attributes}


def _results(name: str, arguments: Mapping[str, Any], provider: str) -> Any:
    with notice.quiet():
        return run(name, **arguments, provider=provider, policy=_POLICY)


def _fault(wanted: Wanted, provider: str, expected: Any) -> str | None:
    """Which output differs from what is expected, and by how much; None where all agree."""
    try:
        results = _results(wanted.name, _arguments(wanted), provider)
    except Exception as error:  # whatever happens is the finding
        return f"{type(error).__name__}: {error}"
    for name, one, other in zip(results._fields, results, expected, strict=True):
        if one is not None and (fault := _difference(one, other)):
            return f"{name} {fault}"
    return None


def _difference(result: Any, expected: Any) -> str | None:
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return f"is {result.dtype}{result.shape}, expected {expected.dtype}{expected.shape}"
    if result.dtype.kind in "biu":
        return None if (result == expected).all() else "differs"
    one, other = (each.astype(np.float64) for each in (result, expected))
    if not np.array_equal(np.isfinite(one), np.isfinite(other)):
        return "is not finite where the other is, or the other way round"
    finite = np.isfinite(one)
    away, scale = np.linalg.norm((one - other)[finite]), np.linalg.norm(other[finite])
    relative, most = float(away / max(scale, 1e-3)), _MOST[result.dtype.name]
    return None if relative <= most else f"is {relative:.1e} away, at most {most:.0e}"
