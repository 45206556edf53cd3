"""Shared by the plans of a layer norm and of its gradient: the arrays of a call, and what follows from their layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import bits_of, round_up
from gradkern.cuda.launch import Launch, kernel_of_config, named
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat, row_stride, size_of
from gradkern.ops.layer_norm.cuda.row_config import ARGUMENTS, RowConfig

Config = TypeVar("Config", bound=RowConfig)

_PARAMETERS = ("scale", "bias", "shift")  # inputs of one number for each column
_BUILDER = "gradkern.ops.layer_norm.cuda.kernel:build"
_MEMORY = ("partial", "row_sums", "counter")  # arguments that are no arrays of the call: scratch memory


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

    def plan(self, name: str, config: RowConfig) -> LaunchesPlan:
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


def problem_of(call: Call, kinds: Mapping[str, str], matrices: Sequence[str]) -> NormProblem | EmptyPlan:
    """The problem of a call, or the plan of one without elements. matrices: the kernel's names of arrays of rows.

    Raises Refusal where the arrays' strides do not fit the kernels.
    """
    device, given = device_of(call), {**call.inputs, **call.outputs}
    rows, columns = size_of(call.axes["rows"]), size_of(call.axes["columns"])
    strides: dict[str, int] = {}
    for name, tensor in given.items():
        if kinds[name] in matrices:
            strides[kinds[name]] = row_stride(name, tensor, len(call.axes["rows"]))
        else:
            require_flat(name, tensor)
    if rows == 0 or columns == 0 or not call.outputs:
        return EmptyPlan("empty", 0, device, tuple(each.nbytes for each in call.outputs.values()))
    return NormProblem(
        call, device, rows, columns, kinds, {kinds[name]: each for name, each in given.items()}, strides
    )  # fmt: skip


def with_aligned_vectors(config: Config) -> Config:
    return replace(config, aligned_vectors=True, width=16 // config.data_itemsize, scale_width=1, aligned=True)
