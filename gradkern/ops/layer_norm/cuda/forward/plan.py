"""The layer norms on a GPU: from a call to launches of the kernel."""

from __future__ import annotations

from functools import partial

from gradkern.call import Call, Refusal
from gradkern.cuda.launch import Launch
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.rows import EmptyPlan
from gradkern.ops.layer_norm import NAMES
from gradkern.ops.layer_norm.cuda.forward.config import ARGUMENTS, NormForwardConfig
from gradkern.ops.layer_norm.cuda.forward.tiling import choose
from gradkern.ops.layer_norm.cuda.row_plan import NormProblem, problem_of, unfit, with_aligned_vectors

__all__ = ["plan"]

_MATRICES = ("X", "skip", "Y", "sum")
_LEAST_ALIGNED = 600  # columns: at 470 single elements were faster by 16 %, at 621 aligned vectors by 18 %


def plan(call: Call) -> LaunchesPlan | EmptyPlan:
    """The plan of one of the layer norms on `call.device`."""
    problem = problem_of(call, NAMES, _MATRICES)
    if isinstance(problem, EmptyPlan):
        return problem
    config = NormForwardConfig(
        **problem.fields("skip", "Y", ("mean", "inv_std")),
        outputs=frozenset(NAMES[name] for name in call.outputs),
        biased="bias" in problem.tensors and "Y" in problem.tensors,
        shifted="shift" in problem.tensors,
    )
    narrow = config.width * config.data_itemsize < 8  # wider vectors are faster than aligned vectors with masks
    aligned = narrow and problem.may_align_vectors(config, _LEAST_ALIGNED)
    device = problem.device
    chosen = partial(
        choose,
        config,
        problem.columns,
        problem.rows,
        device.processors,
        device.shared_bytes,
        with_aligned_vectors(config) if aligned else None,
        max_cluster_size=device.max_cluster_size,
    )
    try:
        return _plan(problem, chosen())
    except Refusal:  # the device may not support clusters of this many blocks
        return _plan(problem, chosen(most_blocks_per_row=1))


def _plan(problem: NormProblem, config: NormForwardConfig) -> LaunchesPlan:
    two = len(config.phases) > 1
    over_columns, epsilon = 1 / problem.columns, problem.call.attributes["epsilon"]
    arguments = problem.arguments(
        config, ARGUMENTS, ["row_sums"] * two, over_columns=over_columns, epsilon=epsilon
    )  # fmt: skip
    launches = tuple(_launch(problem, phase, arguments) for phase in config.phases)
    sums = problem.rows * config.blocks_per_row * 2 * config.itemsize if two else 0
    return LaunchesPlan(f"layer_norm_forward_{config.plan_name}", sums, launches, (), (0,) * two, problem.device)


def _launch(problem: NormProblem, config: NormForwardConfig, arguments: tuple[list[int], list[int]]) -> Launch:
    kernel, resident = problem.kernel(
        "gradkern.ops.layer_norm.cuda.forward.kernel:build", config, arguments[0]
    )  # fmt: skip
    if config.launch_cluster == 1:
        resident = max(resident, config.blocks_per_row)  # independent blocks need not be resident together
    if not resident:
        raise unfit(config)
    wanted = problem.wanted_blocks(config)
    grid = wanted if config.non_persistent else min(resident, wanted)
    return Launch(kernel, grid, config.threads, *arguments, config.launch_cluster)
