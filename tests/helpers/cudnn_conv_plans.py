"""Run by the tests in a process of its own: candidates of cases that are asked for, for an H200 that is not there.

cuDNN makes plans for a device that is described to it, and needs of the driver that its library can be loaded. An
answer has for every case its candidates, each with what became of its plan.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

import gradkern.ops.conv.cuda.cudnn as cudnn
from gradkern.call import Refusal
from gradkern.cuda.device import Device
from gradkern.cudnn.descriptor import Descriptor
from gradkern.cudnn.library import library
from gradkern.ops.conv.cuda import rearranged
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.policy import Policy
from gradkern.search.candidate import Candidate, ready
from gradkern.search.implementation import Implementation, candidates_of
from helpers import stub_driver
from helpers.cudnn_conv import Case

PROPERTIES = Path(__file__).parent / "h200_device_properties.json"
H200 = Device(0, (9, 0), 132, 232448)
POLICIES = {
    "default": Policy(),
    "no TF32": Policy(allow_tf32=False),
    "deterministic": Policy(deterministic=True),
    "strictest": Policy(allow_tf32=False, deterministic=True, workspace_limit=0),
}


def main() -> None:
    stub_driver.load(Path(sys.argv[1]))
    described = Descriptor("device", json=PROPERTIES.read_bytes())
    cudnn.description = lambda device: described
    alive = _Count()

    def answer(asked: Any) -> dict[str, Any]:
        before = alive.made
        answers = [_answer(Case.of(case), asked["variations"]) for case in asked["cases"]]
        cudnn._graph.cache_clear()
        gc.collect()
        return {"answers": answers, "alive": alive.now, "made": alive.made - before}

    stub_driver.serve(answer)


class _Count:
    """Descriptors that are made from now on, and those of them that are still there."""

    def __init__(self) -> None:
        self.made = self.now = 0
        lib = library()
        create, destroy = lib.cudnnBackendCreateDescriptor, lib.cudnnBackendDestroyDescriptor

        def count_create(*arguments: Any) -> int:
            self.made, self.now = self.made + 1, self.now + 1
            return create(*arguments)

        def count_destroy(pointer: int) -> int:
            self.now -= 1
            return destroy(pointer)

        lib.cudnnBackendCreateDescriptor, lib.cudnnBackendDestroyDescriptor = count_create, count_destroy


_OTHER_NAMES = ("implicit_gemm", "cudnn_norm_eng1", "cudnn_NCHW_eng1_k2", "cudnn_NHWC_eng1", "gemm columns")
"""Of no candidate of cuDNN's for a convolution."""


def _answer(case: Case, most_variations: int) -> dict[str, Any]:
    problem = case.problem()
    try:
        found = list(candidates_of(cudnn, problem, H200))
    except Refusal as unfit:
        return {"unfit": str(unfit), "on copies": _on_copies(problem)}
    answer: dict[str, Any] = {"candidates": [_facts(each) for each in found]}
    again = [cudnn.build(problem, H200, json.loads(json.dumps(each.recipe))) for each in (found[0], found[-1])]
    answer["rebuilt"] = [_facts(each) for each in again]
    answer["admitted"] = {
        name: [each.name for each in found if _admits(policy, each)] for name, policy in POLICIES.items()
    }
    source = Implementation("cudnn", cudnn, problem, H200)
    called = {name: source.named(name) for name in (*_OTHER_NAMES, found[0].name)}
    answer["named"] = {name: each and each.name for name, each in called.items()}
    answer["on copies"] = _on_copies(problem)
    if most_variations:
        answer["variations"] = {
            each.name: [
                _facts(other) for other, _ in zip(source.variations(each), range(most_variations), strict=False)
            ]
            for each in {each.origin: each for each in reversed(found)}.values()  # the first of each engine
        }
        names = [each["name"] for others in answer["variations"].values() for each in others]
        answer["named again"] = [_facts(each) for name in names if (each := source.named(name))]
    return answer


def _on_copies(problem: Problem) -> list[dict[str, Any]]:
    """The candidates for channels-last copies; the copies themselves need a device."""
    source = Implementation("channels_last", rearranged, problem, H200)
    try:
        found: list[Any] = list(source.candidates())
    except Refusal:
        return []
    facts = [{**_facts(each.inner), "name": each.name, "notes": sorted(each.notes)} for each in found]
    for each in (found[0], found[-1]):
        again = (source.build(each.recipe), source.named(each.name))
        assert [other and other.name for other in again] == [each.name] * 2
    assert source.named(found[0].inner.name) is None
    other = next(source.variations(found[0]), None)
    assert other is None or (other.name != found[0].name and other.origin == found[0].origin)
    return facts


def _admits(policy: Policy, candidate: cudnn.CudnnCandidate) -> bool:
    """Whether a search with this policy runs the candidate."""
    limit = 1 << 34 if policy.workspace_limit is None else policy.workspace_limit
    try:
        ready(candidate, policy, limit)
    except Refusal:
        return False
    return True


def _facts(candidate: Candidate) -> dict[str, Any]:
    refused = None
    try:
        candidate.prepare()
    except Refusal as unfit:
        refused = str(unfit)
    return {
        "name": candidate.name,
        "origin": candidate.origin,
        "notes": sorted(candidate.notes),
        "workspace": candidate.workspace,
        "recipe": candidate.recipe,
        "refused": refused,
    }


if __name__ == "__main__":
    main()
