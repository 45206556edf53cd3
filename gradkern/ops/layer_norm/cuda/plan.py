"""The layer-norm gradients on a GPU: from a call to launches of the kernel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from gradkern.call import Call, Refusal
from gradkern.cuda.device_code.columns import round_up
from gradkern.cuda.launch import Launch
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.rows import EmptyPlan
from gradkern.ops.layer_norm.cuda.column_blocks_tiling import with_column_blocks
from gradkern.ops.layer_norm.cuda.config import ARGUMENTS, LayerNormConfig
from gradkern.ops.layer_norm.cuda.row_plan import NormProblem, problem_of, unfit, with_aligned_vectors
from gradkern.ops.layer_norm.cuda.tiling import choose

__all__ = ["plan"]

_NAMES = {  # contract name -> the kernel's
    "Y_grad": "Y_grad",
    "X": "X",
    "Y": "X",
    "scale": "scale",
    "bias": "bias_or_X_grad_sum",
    "mean": "mean",
    "inv_std_dev": "inv_std",
    "inv_std_var": "inv_std",
    "residual_grad": "residual",
    "X_grad": "X_grad",
    "scale_grad": "scale_grad",
    "bias_grad": "bias_grad",
    "X_grad_sum": "bias_or_X_grad_sum",
    "branch_grad": "branch_grad",
}
_MATRICES = ("Y_grad", "X", "residual", "X_grad", "branch_grad")
_LEAST_ALIGNED = 385  # columns: in narrower rows a warp has too few vectors


def plan(call: Call) -> LaunchesPlan | EmptyPlan:
    """The plan of one of the three layer-norm gradients on `call.device`."""
    problem = problem_of(call, _NAMES, _MATRICES)
    if isinstance(problem, EmptyPlan):
        return problem
    branch = call.outputs.get("branch_grad")
    config = LayerNormConfig(
        **problem.fields("Y_grad", "X_grad", ("inv_std",)),
        outputs=frozenset(call.outputs),
        residual="residual" in problem.tensors and bool({"X_grad", "X_grad_sum", "branch_grad"} & call.outputs.keys()),
        branch=branch.dtype.name if branch else "",
    )
    for better in _better(problem, config):
        with suppress(Refusal):  # the device has too few multiprocessors
            return _plan(problem, better)
    return _plan(problem, _chosen(problem, config))


def _chosen(
    problem: NormProblem, config: LayerNormConfig, aligned_config: LayerNormConfig | None = None
) -> LayerNormConfig:
    device = problem.device
    return choose(
        config, problem.columns, problem.rows, device.processors, device.shared_bytes, aligned_config,
        device.max_cluster_size,
    )  # fmt: skip


def _better(problem: NormProblem, config: LayerNormConfig) -> Iterator[LayerNormConfig]:
    """Faster configs that some calls or devices cannot use, best first."""
    # Separate column-reduction blocks read X and Y_grad while other blocks write X_grad, so X_grad must not overlap
    # these. X_grad_sum needs blocks with rows.
    if config.makes_X_grad and config.sums and "X_grad_sum" not in config.outputs and not problem.call.in_place:
        apart = with_column_blocks(config, problem.columns, problem.rows, problem.device.processors)
        if apart:
            yield apart
    # Vectors aligned in memory (see RowConfig), where other vectors have one element: rows of an even number of columns
    # were faster in vectors of two.
    if config.width == 1 and problem.may_align_vectors(config, _LEAST_ALIGNED):
        yield _chosen(problem, config, with_aligned_vectors(config))


def _plan(problem: NormProblem, config: LayerNormConfig) -> LaunchesPlan:
    rows, columns = problem.rows, problem.columns
    if config.shared_bytes > problem.device.shared_bytes:
        # the two launches of very wide rows of the invertible norm do not fit compute capability 7.5
        raise Refusal(
            f"rows of {columns} columns need {config.shared_bytes} bytes of shared memory; "
            f"the device has {problem.device.shared_bytes}"
        )
    in_two = config.phase == "apply"
    phases = config.phases if config.makes_X_grad else (config,)
    memory = ["partial", "row_sums", "counter"] if in_two or config.waits_for_grid else []
    arguments = problem.arguments(config, ARGUMENTS, memory, minus_mean=-1 / columns)
    launches = tuple(_launch(problem, phase, arguments) for phase in phases)
    writers = max(launch.grid // config.blocks_per_row for launch in launches) if config.waits_for_grid else 0
    partial = writers * config.column_sums.partial_bytes(columns)
    sums = rows * config.blocks_per_row * 2 * config.itemsize if in_two else 0
    name = f"layer_norm_{config.plan_name}" + "_column_blocks" * config.separate_reduction
    offsets = (0, partial) if partial + sums else ()
    return LaunchesPlan(name, partial + sums, launches, (), offsets, problem.device, counted=True)


def _launch(problem: NormProblem, config: LayerNormConfig, arguments: tuple[list[int], list[int]]) -> Launch:
    columns, cluster, together = problem.columns, config.launch_cluster, config.blocks_together(problem.columns)
    kernel, resident = problem.kernel("gradkern.ops.layer_norm.cuda.kernel:build", config, arguments[0])
    most = problem.device.processors * config.blocks_per_processor // together * together
    resident = min(resident, max(most, config.blocks_per_row))  # more blocks would write more partial sums
    if config.single_block:
        resident = config.blocks_per_row
    elif not config.waits_for_grid:
        wanted = problem.wanted_blocks(config)
        if config.separate_reduction:  # no block waits for another: they may run in any order
            wanted = round_up(round_up(config.column_blocks(columns), config.blocks_per_row) + wanted, cluster)
            resident = wanted if resident else 0
        resident = min(max(resident, config.blocks_per_row if cluster == 1 else 0), wanted)
    if not resident:
        raise unfit(config)
    return Launch(kernel, resident, config.threads, *arguments, cluster, cooperative=config.waits_for_grid)
