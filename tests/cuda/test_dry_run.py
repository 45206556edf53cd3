"""Dry runs: the kernels that calls need are those that real plans ask for, on a device that is not there."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

import gradkern
from gradkern.call import Call, Refusal, Tensor
from gradkern.cli import catalogue
from gradkern.cli.catalogue import calls
from gradkern.cli.sizes import wanted_of
from gradkern.cublas.library import bindings
from gradkern.cuda import cache, packs
from gradkern.cuda import device as devices
from gradkern.cuda.compile import Compiled
from gradkern.cuda.device import Device, described, get_device
from gradkern.cuda.dry_run import GPUS, DryRunDevice, device_named, dry_run
from gradkern.cuda.spec import KernelSpec
from gradkern.dispatch.run import dry_plan_for
from gradkern.errors import GradkernError
from gradkern.ops.batch_norm.cuda import plan as batch_norm
from gradkern.ops.batch_norm.cuda.problem import Problem
from gradkern.search import store, tuner
from gradkern.search.dry_run import specs_of
from gradkern.search.implementation import Implementation, Task
from gradkern.search.store import Measurement, SearchResult
from gradkern.strides import end_to_end

HOPPER = "H100, H200"
NORM = {"op": "LayerNormalizationGrad", "axes": {"rows": [8192], "columns": [4096]}, "types": "bfloat16"}
BATCH_NORM = {"op": "BatchNormalizationGrad", "axes": {"N": 32, "C": 64, "spatial": [56, 56]}, "types": "bfloat16"}
POINTWISE = {
    "op": "ConvGrad",
    "axes": {"N": 2, "C": 8, "M": 8, "C_per_group": 1, "spatial": [9, 9], "kernel": [3, 3], "out": [7, 7]},
    "types": "float32",
    "attributes": {"group": 8},
}


def specs(*wanted: dict[str, Any], gpu: str = HOPPER) -> list[KernelSpec]:
    with dry_run(device_named(gpu)) as dry:
        for each in wanted:
            wanted_of(each).dry_plan("cuda")
    return list(dry.specs)


def builders(*wanted: dict[str, Any], gpu: str = HOPPER) -> set[str]:
    return {each.builder for each in specs(*wanted, gpu=gpu)}


def test_a_norm_asks_for_one_kernel_of_its_device() -> None:
    (spec,) = specs(NORM)
    assert (spec.builder, spec.capability) == ("gradkern.ops.layer_norm.cuda.kernel:build", (9, 0))
    (older,) = specs(NORM, gpu="A100")
    assert older.capability == (8, 0)
    assert older.constants != spec.constants  # no bulk copies there


def test_the_kernel_is_that_which_a_call_on_such_a_device_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the driver is real: what would be compiled, and loaded, is written down."""
    from gradkern.cuda import launch

    compiled: list[KernelSpec] = []

    class Loaded:
        def __init__(self, made: Compiled, device: Device, shared_bytes: int, cluster: int = 1) -> None:
            self.device, self.shared_bytes = device, shared_bytes

        def resident_blocks(self, threads: int, cluster: int = 1) -> int:
            return self.device.processors

    def build(spec: KernelSpec) -> Compiled:
        compiled.append(spec)
        return Compiled(b"", 1, 0)

    monkeypatch.setattr(KernelSpec, "compile", build)
    monkeypatch.setattr(cache, "fetch", lambda _, compile_now: compile_now())
    monkeypatch.setattr(packs, "find", lambda _: None)
    monkeypatch.setattr(launch, "activate", nullcontext)
    monkeypatch.setattr(launch, "Kernel", Loaded)
    monkeypatch.setattr(launch, "_loaded", {})
    device = Device(0, (9, 0), 132, 232448, 1)
    with described(device):
        wanted_of(NORM).dry_plan("cuda")
    assert compiled == specs(NORM)


def test_where_a_search_would_be_made_all_of_gradkerns_own_candidates_are_asked_for() -> None:
    found = builders(BATCH_NORM)
    own = {"streaming", "persistent"}
    assert {f"gradkern.kernels.channels.{each}_kernel:build" for each in own} < found
    assert {"gradkern.search.kernels:fill", "gradkern.search.kernels:compare"} < found
    assert {"gradkern.ops.conv.cuda.depthwise.kernel:build"} < builders(POINTWISE)


def test_what_surrounds_matrix_products_is_asked_for_where_cublas_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvmath.bindings.cublas", None)
    bindings.cache_clear()
    with pytest.raises(Refusal, match="cuBLAS cannot be loaded"):
        bindings()
    sizes = {"N": 2, "C": 64, "M": 64, "C_per_group": 64, "spatial": [8, 8], "kernel": [3, 3], "out": [6, 6]}
    assert "gradkern.ops.conv.cuda.gemm.im2col_kernel:build" in builders({"op": "ConvGrad", "axes": sizes})


def test_a_search_knows_what_it_will_compile_before_it_begins() -> None:
    device = Device(0, (9, 0), 132, 232448, 1)
    X = Tensor(np.dtype("float32"), (32, 64, 56, 56), (802816, 12544, 224, 4), 16)
    C = Tensor(np.dtype("float32"), (64,), (4,), 16)
    problem = Problem(X, X, C, C, C, X, C, C)
    sources = [("own", "gradkern.ops.batch_norm.cuda.streaming"), ("cudnn", "gradkern.ops.conv.cuda.cudnn")]
    task = Task(
        kind="",
        detail="",
        key="",
        inputs=problem.inputs,
        outputs=problem.outputs,
        terms=1,
        sources=tuple(Implementation(name, module, problem, device) for name, module in sources),
    )
    bench = {"gradkern.search.kernels:fill", "gradkern.search.kernels:compare"}
    found = {each.builder for each in specs_of(task, device)}
    assert found == {"gradkern.kernels.channels.streaming_kernel:build", *bench}
    assert {each.builder for each in specs_of(replace(task, sources=task.sources[1:]), device)} == bench


def test_without_a_search_it_is_the_first_candidates_kernel() -> None:
    (spec,) = specs({**BATCH_NORM, "policy": {"search": "default"}})
    assert spec.builder == "gradkern.kernels.channels.persistent_kernel:build"
    pinned = specs({**BATCH_NORM, "policy": {"kernel": "streaming"}})
    assert [each.builder for each in pinned] == ["gradkern.kernels.channels.streaming_kernel:build"]


def test_of_a_search_that_was_made_it_is_the_winners_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On the device that is there; on a described one the results of searches here are of no account."""
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuner, "identity", lambda index: ("a GPU", "a driver"))
    asked: list[Task] = []
    monkeypatch.setattr(tuner, "stored", lambda task, *_: asked.append(task))
    real = Device(0, (9, 0), 132, 232448, 1)
    with dry_run(real) as dry:
        wanted_of(BATCH_NORM).dry_plan("cuda")
    assert len(dry.specs) > 3
    monkeypatch.undo()
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuner, "identity", lambda index: ("a GPU", "a driver"))
    conditions = tuner.conditions(asked[0], gradkern.Policy(), real)
    for source, recipe in (("streaming", {}), ("persistent", {"cluster_size": 4})):
        winner = Measurement("the winner", source, "its origin", recipe, seconds=1e-6)
        store.save(SearchResult("", conditions, (winner,), (), True, 1.0))
        with dry_run(real) as dry:
            wanted_of(BATCH_NORM).dry_plan("cuda")
        assert [each.builder for each in dry.specs] == [f"gradkern.kernels.channels.{source}_kernel:build"]
    assert len(specs(BATCH_NORM)) > 3


def test_a_call_that_does_not_fit_its_contract_is_refused_as_always() -> None:
    with pytest.raises(GradkernError, match="unknown type of G 'int8'"), dry_run(device_named(HOPPER)):
        wanted_of({**NORM, "types": "int8"})


def test_every_device_is_the_described_one_within_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Device(0, (8, 0), 108, 166912, 1)
    monkeypatch.setattr(devices, "_opened", lambda index: real)
    with dry_run(device_named("L4")) as dry:
        assert get_device(0) is get_device(3) is dry
    assert get_device(0) is real
    with dry_run(real) as dry:
        assert get_device(0) is dry
        assert (dry.there, dry.capability, dry.processors, dry.shared_bytes) == (True, (8, 0), 108, 166912)


def test_each_kernel_is_asked_for_once() -> None:
    assert len(specs(NORM, NORM, {**NORM, "axes": {"rows": [4096], "columns": [4096]}})) == 1


def test_a_kernel_of_a_dry_run_cannot_be_called() -> None:
    device = DryRunDevice(0, (9, 0), 132, 232448)
    X = Tensor(np.dtype("float32"), (32, 64, 56, 56), (802816, 12544, 224, 4), 16)
    C = Tensor(np.dtype("float32"), (64,), (4,), 16)
    with dry_run(device):
        call = wanted_of({**BATCH_NORM, "types": "float32"})
        call.dry_plan("cuda")
        tensors = {"dY": X, "X": X, "Scale": C, "saved_mean": C, "saved_inv_std": C}
        made: Any = batch_norm.plan(
            Call(
                "BatchNormalizationGrad",
                tensors,
                {"dX": X},
                {},
                {},
                frozenset(),
                "cuda:0",
                gradkern.Policy(),
            )
        )
    with pytest.raises(RuntimeError, match="a dry run cannot be called"):
        made.choices["all gradients"].candidate((), (), 0, 0)


@pytest.mark.parametrize(
    ("op", "of", "attributes"),
    [
        ("AdaptiveAveragePoolGrad", "dX", {"input_size": (8, 8)}),
        ("MaxPoolGrad", "dX", {"input_size": (8, 8), "kernel_shape": (8, 8)}),
        ("ResizeGrad", "dX", {"input_size": (8, 8), "mode": "linear"}),
        ("ConvTranspose", "Y", {}),
    ],
)
def test_outputs_have_channels_last_without_a_copy_where_maps_of_one_element_leave_that_open(
    op: str, of: str, attributes: dict[str, Any]
) -> None:
    """So PyTorch's pools have the gradient of a channels-last input, whatever strides dY has."""

    def array(*shape: int, order: tuple[int, ...] = (0, 2, 3, 1), dtype: str = "float16") -> Tensor:
        return end_to_end(Tensor(np.dtype(dtype), shape, (), 16), order)

    more = {"MaxPoolGrad": {"Indices": array(2, 16, 1, 1, dtype="int64")}, "ConvTranspose": {"W": array(16, 16, 8, 8)}}
    for order in ((), (0, 2, 3, 1)):
        given = {"X" if of == "Y" else "dY": array(2, 16, 1, 1, order=order), **more.get(op, {})}
        with dry_run(device_named(HOPPER)) as dry:
            dry_plan_for(op, given, "cuda", device="cuda:0", out={of: array(2, 16, 8, 8)}, **attributes)
        assert not any("strided_copy" in each.builder for each in dry.specs)


# --- the catalogue ---------------------------------------------------------------------------------------------------


def test_every_call_of_the_catalogue_fits_its_contract_and_every_operator_on_a_gpu_is_in_it() -> None:
    wanted = [wanted_of(each) for each in calls()]
    computed = {name for name, each in gradkern.operators().items() if "cuda" in each.providers}
    assert computed == {each.name for each in wanted}


@pytest.mark.parametrize("gpu", GPUS)
def test_calls_of_every_operator_can_be_planned_for_every_known_gpu(gpu: str) -> None:
    """The first of each operator and type, of known models: a GPU may lack what a benchmark of the registry takes."""
    first = {(each["op"], str(each["types"]), str(each.get("outputs"))): each for each in catalogue._of_models()}
    found = specs(*first.values(), gpu=gpu)
    assert {each.capability for each in found} == {GPUS[gpu][0]}
    assert len(found) > len(first) / 2


def test_most_plans_are_the_same_on_another_number_of_multiprocessors() -> None:
    """So a pack made for one board serves others of its architecture."""
    chosen = [each for each in calls() if each["op"] == "LayerNormalizationGrad"][::29]
    full, smaller = (set(specs(*chosen, gpu=gpu)) for gpu in (HOPPER, "H100 PCIe"))
    assert len(full & smaller) >= 0.9 * len(full)
