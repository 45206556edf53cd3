"""The layer norms and their gradients on a GPU: from a call to launches of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from gradkern.call import Call, Refusal
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.rows import EmptyPlan
from gradkern.ops.layer_norm import NAMES
from gradkern.ops.layer_norm.cuda import tiling
from gradkern.ops.layer_norm.cuda.column_blocks_tiling import with_column_blocks
from gradkern.ops.layer_norm.cuda.config import LayerNormConfig
from gradkern.ops.layer_norm.cuda.forward import tiling as forward_tiling
from gradkern.ops.layer_norm.cuda.forward.config import NormForwardConfig
from gradkern.ops.layer_norm.cuda.row_config import RowConfig
from gradkern.ops.layer_norm.cuda.row_plan import NormProblem, problem_of, with_aligned_vectors

Config = TypeVar("Config", bound=RowConfig)

GRADIENT_NAMES = {  # contract name -> the kernel's
    "Y_grad": "upstream",
    "X": "X",
    "Y": "X",
    "scale": "scale",
    "bias": "bias",
    "mean": "mean",
    "inv_std_dev": "inv_std",
    "inv_std_var": "inv_std",
    "residual_grad": "added",
    "X_grad": "result",
    "scale_grad": "scale_grad",
    "bias_grad": "bias_grad",
    "X_grad_sum": "X_grad_sum",
    "branch_grad": "second_result",
}
_ROLES = {"skip": "upstream", "Y": "result", "sum": "second_result"}
NORM_NAMES = {name: _ROLES.get(each, each) for name, each in NAMES.items()}
_MATRICES = ("X", "upstream", "added", "result", "second_result")
# Columns. In narrower rows a warp has too few vectors. Of a norm, at 470 single elements were faster by 16 % than
# aligned vectors, at 621 slower by 18 %. Gradients of 391 to 1591 columns took 0.92 to 1.00 of the time by single ones
_LEAST_ALIGNED, _LEAST_ALIGNED_FORWARD = 1700, 600


def plan(call: Call) -> LaunchesPlan | EmptyPlan:
    """The plan of one of the layer norms, or of one of their gradients, on `call.device`."""
    is_gradient = call.operator.endswith("Grad")
    problem = problem_of(call, GRADIENT_NAMES if is_gradient else NORM_NAMES, _MATRICES)
    if isinstance(problem, EmptyPlan):
        return problem
    refused: Refusal | None = None
    for config in _gradients(problem) if is_gradient else _norms(problem):
        try:
            return _plan(problem, config)
        except Refusal as refusal:
            refused = refusal
    raise refused or Refusal("it has no config")


def _plan(problem: NormProblem, config: NormForwardConfig | LayerNormConfig) -> LaunchesPlan:
    direction = "forward_" if isinstance(config, NormForwardConfig) else ""
    reduction = "_column_blocks" * config.separate_reduction
    return problem.plan(f"layer_norm_{direction}{config.plan_name}{reduction}", config)


def _norms(problem: NormProblem) -> Iterator[NormForwardConfig]:
    """The configs to try, best first: the last in case that the device supports no clusters of so many blocks."""
    config = NormForwardConfig(
        **problem.fields(),
        outputs=frozenset(NAMES[name] for name in problem.call.outputs),
        biased="bias" in problem.tensors and "result" in problem.tensors,
        shifted="shift" in problem.tensors,
    )
    narrow = config.width * config.data_itemsize < 8  # wider vectors are faster than aligned vectors with masks
    aligned = narrow and problem.may_align_vectors(config, _LEAST_ALIGNED_FORWARD)
    chosen = partial(_chosen, forward_tiling.choose, problem, config, with_aligned_vectors(config) if aligned else None)
    yield chosen()
    yield chosen(most_blocks_per_row=1)


def _gradients(problem: NormProblem) -> Iterator[LayerNormConfig]:
    """The same; there are faster configs that some calls or devices cannot use."""
    branch, outputs = problem.tensors.get("second_result"), problem.call.outputs.keys()
    config = LayerNormConfig(
        **problem.fields(),
        outputs=frozenset(outputs),
        residual="added" in problem.tensors and bool({"X_grad", "X_grad_sum", "branch_grad"} & outputs),
        branch=branch.dtype.name if branch else "",
    )
    # Separate column-reduction blocks read X and Y_grad while other blocks write X_grad, so X_grad must not overlap
    # these. X_grad_sum needs blocks with rows.
    if config.has_second_pass and config.sums and "X_grad_sum" not in outputs and not problem.call.in_place:
        apart = with_column_blocks(config, problem.columns, problem.rows, problem.device.processors)
        if apart:
            yield apart
    # Vectors aligned in memory (see RowConfig), where other vectors have one element: rows of an even number of columns
    # were faster in vectors of two.
    if config.width == 1 and problem.may_align_vectors(config, _LEAST_ALIGNED):
        yield _chosen(tiling.choose, problem, config, with_aligned_vectors(config))
    yield _chosen(tiling.choose, problem, config)


def _chosen(
    choose: Callable[..., Config],
    problem: NormProblem,
    config: Config,
    aligned_config: Config | None = None,
    **limits: int,
) -> Config:
    device = problem.device
    sizes = problem.columns, problem.rows, device.processors, device.shared_bytes
    return choose(config, *sizes, aligned_config, max_cluster_size=device.max_cluster_size, **limits)
