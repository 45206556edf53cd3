"""From a call to a launch of the row block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import bits_of
from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words
from gradkern.cuda.launch import Launch, LaunchPlan, kernel_of, named
from gradkern.cuda.numbers_plan import Numbers, NumbersPlan
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat
from gradkern.kernels.rows.config import RowsConfig, configs
from gradkern.kernels.rows.problem import ARGUMENTS, RowsProblem, RowsTypes, problem_of


@dataclass(frozen=True, slots=True)
class RowArrays:
    """The contract's names of what an operator's kernel reads and writes, each in the order of its arithmetic; for the
    rest, and for how many there may be, see RowsTypes.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    reductions: int = 1
    pairs: bool = False
    registers: int = 64

    def argument(self, name: str) -> str:
        """The kernel's name of the array with this contract name."""
        kinds = {
            "input": self.inputs,
            "output": self.outputs,
            "parameter": self.parameters,
            "result": self.results,
        }
        return next(f"{kind}_{names.index(name)}" for kind, names in kinds.items() if name in names)


def rows_plan(
    call: Call, builder: str, arrays: RowArrays, first: int, last: int, numbers: Numbers | None = None
) -> LaunchPlan | NumbersPlan | EmptyPlan:
    """The plan of a call whose rows have the axes from `first` to before `last`.

    builder  "module:function" of (RowsTypes, RowsConfig) that calls rows_kernel or inner_kernel
    numbers  what the kernel takes in place of scalars, at most five: the operator's own function gets their bits
    """
    device = device_of(call)
    if 0 in call.outputs[arrays.outputs[0]].shape:
        return EmptyPlan("empty", 0, device, tuple(each.nbytes for each in call.outputs.values()))
    constant = numbers(call.attributes) if numbers and not call.scalars else ()
    tensors = {**call.inputs, **call.outputs}
    for name in (*arrays.parameters, *arrays.results):
        if name in tensors:
            require_flat(name, tensors[name])
    problem = rows_problem(
        call.operator, arrays, tensors, first, last, device, max(len(constant), len(call.scalars) > 0)
    )  # fmt: skip
    config = next(configs(problem, device.capability))
    compute = problem.types.compute
    given = [*map(arrays.argument, call.inputs), *["scalar_0"] * bool(call.scalars)]
    given += map(arrays.argument, call.outputs)
    bits = {f"scalar_{n}": bits_of(each, compute) for n, each in enumerate(constant)}
    launch = launch_of(problem, config, builder, given, device, numbers=bits)
    name = f"{operator_words(call.operator)}_{config.name}"
    if numbers and call.scalars:
        return NumbersPlan(name, launch, tuple(call.scalars), call.attributes, numbers, compute)
    return LaunchPlan(name, launch)


def launch_of(
    problem: RowsProblem,
    config: RowsConfig,
    builder: str,
    given: Sequence[str],
    device: Device,
    *more: Any,
    numbers: Mapping[str, int] | None = None,
    overlaps: bool = False,
) -> Launch:
    """The launch of a config. given: the kernel's names of the addresses that it takes, in their order. more: constants
    that the builder takes besides; numbers: arguments that are no addresses; overlaps: as in Launch.
    """
    types = problem.types
    kernel = kernel_of(
        device,
        builder,
        types,
        config,
        *more,
        name=kernel_name(operator_words(types.operator), *types.inputs[:1], config.name),
        arguments=len(ARGUMENTS),
        threads=config.threads,
        blocks_per_processor=config.blocks_per_processor,
        shared_bytes=config.shared_bytes(types),
        cluster=config.cluster,
    )
    grid, sizes = sizes_of(problem, config)
    arguments = named(ARGUMENTS, {**sizes, **(numbers or {})}, given)
    return Launch(kernel, grid, config.threads, *arguments, cluster=config.cluster, overlaps=overlaps)


def sizes_of(problem: RowsProblem, config: RowsConfig) -> tuple[int, dict[str, int]]:
    """The blocks of a launch, and its arguments but for the addresses."""
    grid, slices = -(-problem.rows // config.teams) * config.cluster, 1
    if problem.inner:
        slices = -(-problem.inner // (config.lanes * config.width))
        grid = problem.rows * slices * config.cluster
    if grid >= 1 << 31:
        raise Refusal(f"{grid} blocks are more than a launch can have")
    numbers = {"rows": problem.rows, "columns": problem.columns, "inner": problem.inner, "slices": slices}
    types = problem.types
    places = [*(f"input_{n}" for n in range(len(types.inputs))), *(f"output_{n}" for n in range(len(types.outputs)))]
    numbers |= {f"{place}_stride": each for place, each in zip(places, problem.strides, strict=True)}
    numbers |= {f"{place}_step": each for place, each in zip(places, problem.steps, strict=True)}
    return grid, numbers


def rows_problem(
    operator: str,
    arrays: RowArrays,
    tensors: Mapping[str, Tensor],
    first: int,
    last: int,
    device: Device,
    numbers: int = 0,
) -> RowsProblem:
    """The problem of these arrays, those of `arrays` that are there, with so many numbers in place of scalars."""

    def types_of(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(tensors[name].dtype.name for name in names if name in tensors)

    types = RowsTypes(
        operator,
        types_of(arrays.inputs),
        types_of(arrays.outputs),
        types_of(arrays.parameters),
        ("int64",) * numbers,
        types_of(arrays.results),
        all(tensors[name].alignment == 16 for name in arrays.parameters if name in tensors),
        arrays.reductions,
        arrays.pairs,
        arrays.registers,
        native_bfloat16=device.capability >= (8, 0),
    )
    return problem_of(types, {name: tensors[name] for name in (*arrays.inputs, *arrays.outputs)}, first, last)
