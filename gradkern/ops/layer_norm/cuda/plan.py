"""The layer norms and their gradients on a GPU: from a call to launches of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import bits_of, round_up
from gradkern.cuda.launch import Launch, kernel_of_config, named
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat, row_stride, size_of
from gradkern.ops.layer_norm import NAMES
from gradkern.ops.layer_norm.cuda import tiling
from gradkern.ops.layer_norm.cuda.column_blocks_tiling import with_column_blocks
from gradkern.ops.layer_norm.cuda.config import LayerNormConfig, NormForwardConfig
from gradkern.ops.layer_norm.cuda.forward import tiling as forward_tiling
from gradkern.ops.layer_norm.cuda.row_config import ARGUMENTS, RowConfig

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
_PARAMETERS = ("scale", "bias", "shift")  # inputs of one number for each column
_BUILDER = "gradkern.ops.layer_norm.cuda.kernel:build"
_MEMORY = ("partial", "row_sums", "counter")  # arguments that are no arrays of the call: scratch memory
# Columns. In narrower rows a warp has too few vectors. Of a norm, at 470 single elements were faster by 16 % than
# aligned vectors, at 621 slower by 18 %. Gradients of 391 to 1591 columns took 0.92 to 1.00 of the time by single ones
_LEAST_ALIGNED, _LEAST_ALIGNED_FORWARD = 1700, 600


def plan(call: Call) -> LaunchesPlan | EmptyPlan:
    """The plan of one of the layer norms, or of one of their gradients, on `call.device`."""
    is_gradient = call.operator.endswith("Grad")
    problem = _problem_of(call, GRADIENT_NAMES if is_gradient else NORM_NAMES)
    if isinstance(problem, EmptyPlan):
        return problem
    refused: Refusal | None = None
    for config in _gradients(problem) if is_gradient else _norms(problem):
        try:
            return problem.plan(config)
        except Refusal as refusal:
            refused = refusal
    raise refused or Refusal("it has no config")


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
    chosen = partial(
        _chosen, forward_tiling.choose, problem, config, _with_aligned_vectors(config) if aligned else None
    )
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
        yield _chosen(tiling.choose, problem, config, _with_aligned_vectors(config))
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


Config = TypeVar("Config", bound=RowConfig)


@dataclass(frozen=True, slots=True)
class NormProblem:
    """A call's sizes and arrays.

    kinds    the kernel's names of the arrays, by the contract's
    tensors  the arrays, by the kernel's names
    strides  of the arrays of rows, by the kernel's names: bytes from row to row
    """

    call: Call
    device: Device
    rows: int
    columns: int
    kinds: Mapping[str, str]
    tensors: dict[str, Tensor]
    strides: dict[str, int]

    def fields(self) -> dict[str, Any]:
        """The fields of a config that follow from the arrays, for one thread of one block. Arrays that are not there
        have X's type.
        """
        tensors, columns, native = self.tensors, self.columns, self.device.capability >= (8, 0)
        X, scale = tensors["X"], tensors["scale"]
        read = [self.kinds[name] for name in self.call.inputs if self.kinds[name] in self.strides]
        width = self._vector_width()
        starts, scale_width = min(each.alignment for each in self._parameters()), width
        while scale_width > 1 and starts % min(16, scale_width * scale.dtype.itemsize):
            scale_width //= 2
        narrowest = width * min(tensors[name].dtype.itemsize for name in read[:2])
        source = "async" if native and narrowest >= 4 else "plain"
        source = "bulk" if self.device.capability >= (9, 0) else source
        sizes = {name: columns * tensors[name].dtype.itemsize for name in self.strides}
        statistic = next((tensors[name] for name in ("mean", "inv_std") if name in tensors), None)
        return {
            "operator": self.call.operator,
            "data": X.dtype.name,
            "upstream": tensors.get("upstream", X).dtype.name,
            "result": tensors.get("result", X).dtype.name,
            "parameter": scale.dtype.name,
            "statistic": statistic.dtype.name if statistic else "float64" if X.dtype.itemsize == 8 else "float32",
            "width": width,
            "lanes": 1,
            "vectors": 1,
            "groups_per_block": 1,
            "scale_width": scale_width,
            "source": source,
            "aligned": all(
                tensors[name].alignment % 16 == 0 and self.strides[name] % 16 == 0 and sizes[name] % 16 == 0
                for name in read
            ),
            "packed": self.strides == sizes,
            "long_rows": max(self.rows, 16 * columns, *self.strides.values()) > 1 << 30,
            "native_bfloat16": native,
        }

    def _parameters(self) -> list[Tensor]:
        return [each for name, each in self.call.inputs.items() if self.kinds[name] in _PARAMETERS]

    def _vector_width(self) -> int:
        """Elements of a vector, at most 16 bytes of the widest type, such that every row is aligned to vectors and a
        whole number of them.
        """
        matrices = [(self.tensors[name], step) for name, step in self.strides.items()]
        width = 16 // max(each.dtype.itemsize for each, _ in matrices)
        while width > 1 and not all(
            self.columns % width == 0
            and each.alignment % min(16, width * each.dtype.itemsize) == 0
            and (self.rows == 1 or step % min(16, width * each.dtype.itemsize) == 0)
            for each, step in matrices
        ):
            width //= 2
        return width

    def may_align_vectors(self, config: RowConfig, least: int) -> bool:
        """Whether vectors aligned in memory (RowConfig.aligned_vectors) are possible and useful. They are not where
        rows are aligned to vectors anyway, nor for fewer columns than `least`.
        """
        size = config.data_itemsize
        matrices = [self.tensors[name] for name in self.strides]
        alike = all(each.dtype.itemsize == size and each.alignment % 16 == 0 for each in matrices)
        many = self.rows > 2 * self.device.processors and self.columns >= least
        return alike and many and config.packed and config.source == "bulk" and size <= 4 and config.width * size < 16

    def plan(self, config: RowConfig) -> LaunchesPlan:
        """The plan of a config.

        Raises Refusal where the device has not what the config needs.
        """
        columns, device = self.columns, self.device
        if config.shared_bytes > device.shared_bytes:
            # the two launches of very wide rows of the invertible norm do not fit compute capability 7.5
            raise Refusal(
                f"rows of {columns} columns need {config.shared_bytes} bytes of shared memory; "
                f"the device has {device.shared_bytes}"
            )
        sums = self.rows * config.blocks_per_row * 2 * config.itemsize if config.phase == "apply" else 0
        memory = _MEMORY if sums or config.waits_for_grid else ()
        values = {"rows": self.rows, "columns": columns, "slice_columns": config.slice_columns(columns)}
        values |= {f"{name}_stride": step for name, step in self.strides.items()}
        numbers = {"over_columns": 1 / columns, "epsilon": self.call.attributes.get("epsilon", 0.0)}
        values |= {name: bits_of(each, config.compute) for name, each in numbers.items()}
        arrays = (self.kinds[each] for each in (*self.call.inputs, *self.call.outputs))
        arguments = named(ARGUMENTS, values, [*arrays, *memory])
        launches = tuple(self._launch(phase, arguments) for phase in config.phases)
        partial = max(launch.grid // config.blocks_per_row for launch in launches) * config.partial_bytes(columns)
        direction = "forward_" * isinstance(config, NormForwardConfig)
        name = f"layer_norm_{direction}{config.plan_name}{'_column_blocks' * config.separate_reduction}"
        return LaunchesPlan(name, partial + sums, launches, (), (0, partial) if memory else (), device, bool(memory))

    def _launch(self, config: RowConfig, arguments: tuple[list[int], list[int]]) -> Launch:
        cluster, together = config.launch_cluster, config.blocks_together(self.columns)  # whole rows, of all shifts
        kernel = kernel_of_config(self.device, _BUILDER, config, arguments=len(arguments[0]), cluster=cluster)
        resident = kernel.resident_blocks(config.threads, cluster) // together * together
        # as many as give every row its own group of threads
        wanted = round_up(-(-self.rows // config.block_rows) * config.blocks_per_row, together)
        grid = config.grid(resident, wanted, self.columns, self.device.processors)
        if not grid:
            raise Refusal(
                f"no block of {config.threads} threads and {config.shared_bytes} bytes of shared memory fits the device"
            )
        return Launch(kernel, grid, config.threads, *arguments, cluster, cooperative=config.waits_for_grid)


def _problem_of(call: Call, kinds: Mapping[str, str]) -> NormProblem | EmptyPlan:
    """The problem of a call, or the plan of one without elements.

    Raises Refusal where the arrays' strides do not fit the kernels.
    """
    device, given = device_of(call), {**call.inputs, **call.outputs}
    rows, columns = size_of(call.axes["rows"]), size_of(call.axes["columns"])
    strides: dict[str, int] = {}
    for name, tensor in given.items():
        if kinds[name] in _MATRICES:
            strides[kinds[name]] = row_stride(name, tensor, len(call.axes["rows"]))
        else:
            require_flat(name, tensor)
    if rows == 0 or columns == 0 or not call.outputs:
        return EmptyPlan("empty", 0, device, tuple(each.nbytes for each in call.outputs.values()))
    return NormProblem(
        call, device, rows, columns, kinds, {kinds[name]: each for name, each in given.items()}, strides
    )  # fmt: skip


def _with_aligned_vectors(config: Config) -> Config:
    return replace(config, aligned_vectors=True, width=16 // config.data_itemsize, scale_width=1, aligned=True)
