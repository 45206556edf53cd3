"""Run by the tests in a process of its own: candidates of batch norms from standard input, for a described H200.

As `cudnn_conv_plans` for convolutions; but its plans compile code, so that only the first of the graph API is finished,
and only where this is asked for. The older functions make no plans.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

import gradkern.ops.batch_norm.cuda.cudnn as cudnn
from gradkern.cuda.device import Device
from gradkern.cudnn.descriptor import Descriptor
from gradkern.ops.batch_norm.cuda import cudnn_calls
from gradkern.search.candidate import Unfit
from helpers import stub_driver
from helpers.cudnn_batch_norm import NormCase

PROPERTIES = Path(__file__).parent / "h200_device_properties.json"
H200 = Device(0, (9, 0), 132, 232448)


def main() -> None:
    stub_driver.load(Path(sys.argv[1]), stub_driver.NAMES + stub_driver.COMPILING)
    described = Descriptor("device", json=PROPERTIES.read_bytes())
    cudnn.description = cudnn_calls.description = lambda device: described
    answers = [_answer(NormCase.of(each["case"]), each["finish"]) for each in json.load(sys.stdin)]
    cudnn_calls.norm_backward.cache_clear()
    gc.collect()
    json.dump(answers, sys.stdout)


def _answer(case: NormCase, finish: bool) -> dict[str, Any]:
    problem = case.problem()
    try:
        found = list(cudnn.candidates(problem, H200))
    except Unfit as unfit:
        return {"unfit": str(unfit)}
    again = [cudnn.rebuild(problem, H200, json.loads(json.dumps(each.recipe))) for each in found]
    answer: dict[str, Any] = {
        "candidates": [_facts(each) for each in found],
        "rebuilt": [_facts(each) for each in again],
    }
    if finish:
        candidate = next(each for each in found if each.recipe["route"] == "graph")
        candidate.prepare()
        answer["workspaces"] = [candidate.route.workspace, candidate.workspace]
    return answer


def _facts(candidate: cudnn.CudnnCandidate) -> dict[str, Any]:
    facts = {name: getattr(candidate, name) for name in ("name", "origin", "recipe")}
    return {**facts, "notes": sorted(candidate.notes)}


if __name__ == "__main__":
    main()
