"""What is planned for any sizes, types and GPU can be launched there: a property of every kernel, whatever is tuned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

import gradkern
from gradkern.cli.sizes import wanted_of
from gradkern.contract.schema import Operator
from gradkern.cuda import launch
from gradkern.cuda.device import Device
from gradkern.cuda.dry_run import GPUS, device_named, dry_run
from gradkern.cuda.spec import KernelSpec
from gradkern.errors import ProviderError

OPERATORS = gradkern.operators()
BY_ROWS = [
    name for name, each in OPERATORS.items() if "cuda" in each.providers and {"rows", "columns"} == set(each.axes)
]
BY_CHANNELS = [
    name for name, each in OPERATORS.items() if "cuda" in each.providers and {"N", "C", "spatial"} == set(each.axes)
]
MOST_THREADS = {(7, 5): 1024, (8, 6): 1536, (8, 9): 1536, (12, 0): 1536}
"""Of a multiprocessor, where it is not 2048: CUDA C++ Programming Guide, technical specifications by capability."""
RESERVED = 1024  # bytes of shared memory that a block takes besides its own, from 8.0 on
Launched = tuple[int, int, int, int, bool]  # grid, threads, bytes of shared memory, blocks of a cluster, cooperative


@contextmanager
def recorded() -> Iterator[list[Launched]]:
    """The launches that are prepared within the block."""
    found: list[Launched] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "_launch_config", lambda *numbers, **_: found.append(numbers))
        yield found


sizes = st.one_of(st.integers(1, 40), st.integers(1, 1 << 17), st.sampled_from([1 << n for n in range(18)]))


def attributes_of(operator: Operator, axes: dict[str, Any]) -> dict[str, Any]:
    """Those that a call cannot do without."""
    known: dict[str, Any] = {**operator.examples[0].attributes, "input_size": axes.get("spatial"), "axis": 1}
    return {key: known[key] for key, each in operator.attributes.items() if each.required or key == "input_size"}


@st.composite
def problems(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """A call of up to 2^31 elements, and a GPU."""
    name = draw(st.sampled_from(BY_ROWS + BY_CHANNELS))
    operator = OPERATORS[name]
    first, second = draw(sizes), draw(sizes)
    if name in BY_ROWS:
        columns: Any = [second] if operator.axes["columns"].group else second
        axes: dict[str, Any] = {"rows": [min(first, (1 << 31) // second)], "columns": columns}
    else:
        images = [[], [1], [7, 7], [56, 56], [3, 5, 7], [1025]]
        image = draw(st.sampled_from([each for each in images if len(each) >= operator.axes["spatial"].least]))
        axes = {"N": min(first, 1 << 10), "C": min(second, 1 << 12), "spatial": image}
    types = draw(st.sampled_from(operator.combinations))
    problem = {"op": name, "axes": axes, "types": dict(types), "policy": {"search": "default"}}
    problem["attributes"] = attributes_of(operator, axes)
    return problem, draw(st.sampled_from([*GPUS]))


def require_fit(launched: Launched, device: Device) -> None:
    """A launch that the device has the threads, shared memory and clusters for."""
    grid, threads, shared_bytes, cluster, _ = launched
    newest = device.capability >= (9, 0) and device.capability[0] < 12
    assert 1 <= grid < 1 << 31
    assert grid % cluster == 0
    assert 1 <= threads <= 1024  # kernels of depthwise convolutions take any number
    assert 0 <= shared_bytes <= device.shared_bytes
    assert 1 <= cluster <= (1 if device.capability < (9, 0) else 16 if newest else 8)


WIDE: dict[str, Any] = {
    "op": "InvertibleLayerNormalizationGrad",
    "axes": {"rows": [1], "columns": [40961]},
    "types": dict.fromkeys("GTUV", "float64"),
    "policy": {"search": "default"},
}


@example((WIDE, "T4"))
@example((WIDE | {"axes": {"rows": [62], "columns": [8192]}}, "GeForce RTX 5090"))
@settings(max_examples=5 * settings().max_examples)
@given(problems())
def test_every_launch_fits_its_device(problem: tuple[dict[str, Any], str]) -> None:
    wanted, gpu = problem
    device = device_named(gpu)
    refused = ""
    with dry_run(device) as dry, recorded() as launches:
        try:
            wanted_of(wanted).dry_plan("cuda")
        except ProviderError as error:
            refused = str(error)
    if refused:
        assert f"; the device has {device.shared_bytes}" in refused
        return
    assert dry.specs
    assert launches
    for launched in launches:
        require_fit(launched, device)
        assert launched[1] % 32 == 0
    most = MOST_THREADS.get(device.capability, 2048)
    for spec in dry.specs:
        assert spec.capability == device.capability
        assert spec.threads * spec.blocks_per_processor <= most
    for cooperative_grid in (grid for grid, *_, cooperative in launches if cooperative):
        assert cooperative_grid <= device.processors * max(spec.blocks_per_processor for spec in dry.specs)


@pytest.mark.parametrize("name", [name for name, each in OPERATORS.items() if "cuda" in each.providers])
def test_sizes_of_the_registry_fit_every_device(name: str) -> None:
    operator, types = OPERATORS[name], cycle(OPERATORS[name].combinations)
    for size, gpu in product((*operator.examples, *operator.benchmarks), GPUS):
        wanted = {"op": name, "axes": size.axes, "attributes": size.attributes, "types": dict(next(types))}
        device = device_named(gpu)
        with dry_run(device), recorded() as launches:
            wanted_of(wanted | {"policy": {"search": "default"}}).dry_plan("cuda")
        for launched in launches:
            require_fit(launched, device)


@pytest.mark.parametrize("name", BY_ROWS)
def test_few_kernels_serve_all_widths(name: str) -> None:
    """Columns are a number of a launch: a kernel for every width would take seconds to compile for each."""
    operator = OPERATORS[name]
    widths = [*range(64, 16385, 128), *range(65, 16385, 130)]
    types = next(row for row in operator.combinations if "bfloat16" in row.values())
    specs: set[KernelSpec] = set()
    for columns in widths:
        axes = {"rows": [8192], "columns": [columns] if operator.axes["columns"].group else columns}
        with dry_run(device_named("H100, H200")) as dry:
            wanted = {"op": name, "axes": axes, "types": dict(types), "attributes": attributes_of(operator, axes)}
            wanted_of({**wanted, "policy": {"search": "default"}}).dry_plan("cuda")
        specs |= dry.specs.keys()
    assert len(specs) <= len(widths) // 3
