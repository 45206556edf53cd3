"""The SM margin: what is asked for, what NCCL takes, and that every kernel leaves it free."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gradkern.cli.catalogue import calls
from gradkern.cli.sizes import wanted_of
from gradkern.cuda import device as devices
from gradkern.cuda import launch, margin
from gradkern.cuda.device import Device, described, get_device
from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.errors import GradkernError

WHOLE = Device(0, (9, 0), 132, 232448, 1)
PROCESSES = {"is_available": True, "is_initialized": True, "get_world_size": 8, "get_backend_config": "cuda:nccl"}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """An H200, in a process that asks for nothing and has no others beside it."""
    monkeypatch.setattr(devices, "_opened", lambda index: replace(WHOLE, index=index))
    for name in (margin.VARIABLE, "NCCL_MAX_CTAS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)


def processes(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """In place of torch.distributed, one that answers so."""
    answers = {name: (lambda value=value: value) for name, value in {**PROCESSES, **changes}.items()}
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace(**answers))


@pytest.mark.parametrize(("text", "left"), [("16", 116), ("0", 132), ("", 132), ("131", 1)])
def test_the_variable_is_read_when_a_device_is_asked_for(monkeypatch: pytest.MonkeyPatch, text: str, left: int) -> None:
    assert get_device(0) == WHOLE
    monkeypatch.setenv(margin.VARIABLE, text)
    found = get_device(0)
    assert (found.processors, found.margin) == (left, 132 - left)
    assert replace(found, processors=132, margin=0) == WHOLE
    assert get_device(0) is found or left == 132
    assert get_device(1).index == 1


@pytest.mark.parametrize("text", ["many", "-1", "1.5", "16 ", "\N{SUPERSCRIPT TWO}"])
def test_what_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(margin.VARIABLE, text)
    with pytest.raises(GradkernError) as raised:
        get_device(0)
    assert str(raised.value) == f"GRADKERN_SM_MARGIN is {text!r}; it takes a number of multiprocessors, such as 16"


def test_a_margin_that_leaves_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(margin.VARIABLE, "132")
    with pytest.raises(GradkernError, match="is 132, but the device has 132 multiprocessors in all"):
        get_device(0)


@pytest.mark.parametrize(
    ("changes", "most", "expected"),
    [
        ({}, "", 24),
        ({"get_backend_config": "cpu:gloo,cuda:nccl"}, "", 24),
        ({"get_backend_config": "cpu:gloo,cuda:gloo"}, "", 0),
        ({"get_world_size": 1}, "", 0),
        ({"is_initialized": False}, "", 0),
        ({"is_available": False}, "", 0),
        ({}, "8", 8),
        ({}, "64", 24),  # it is a bound: NCCL takes no more for it
        ({}, "few", 24),
    ],
)
def test_what_nccl_takes_is_left_where_processes_use_it(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], most: str, expected: int
) -> None:
    processes(monkeypatch, **changes)
    monkeypatch.setenv("NCCL_MAX_CTAS", most)
    assert get_device(0).margin == expected


def test_the_variable_comes_first_and_small_devices_leave_a_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    processes(monkeypatch)
    assert margin.sm_margin(40) == 10
    monkeypatch.setenv(margin.VARIABLE, "0")
    assert get_device(0) == WHOLE
    monkeypatch.setenv(margin.VARIABLE, "32")
    assert margin.sm_margin(40) == 32


def test_a_described_device_is_given_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(margin.VARIABLE, "16")
    with described(WHOLE):
        assert get_device(0) is WHOLE
    with dry_run(get_device(0)) as dry:
        assert (dry.processors, dry.margin, dry.there) == (116, 16, True)
        assert get_device(0) is dry


def planned(monkeypatch: pytest.MonkeyPatch, device: Device) -> list[Any]:
    """Every launch of a call of every operator and type: kernel, its blocks on a multiprocessor, grid and the rest."""
    launches: list[Any] = []
    real = launch.Launch.__init__

    def noted(
        self: Any, kernel: Any, grid: int, threads: int, arguments: Any, changing: Any, cluster: int = 1, **more: Any
    ) -> None:
        real(self, kernel, grid, threads, arguments, changing, cluster, **more)
        each = kernel.resident_blocks(threads) // kernel.device.processors
        launches.append((kernel.name, each, grid, threads, cluster, more.get("cooperative", False), tuple(arguments)))

    first = {(each["op"], str(each["types"]), str(each.get("outputs"))): each for each in calls()}
    dry = replace(DryRunDevice.of(device), there=False)  # no search was made on it
    with monkeypatch.context() as patch, dry_run(dry):
        patch.setattr(launch.Launch, "__init__", noted)
        for each in first.values():
            wanted_of(each).dry_plan("cuda")
    return launches


def test_kernels_of_all_families_leave_the_margin_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(margin.VARIABLE, "24")
    found = planned(monkeypatch, get_device(0))
    assert found == planned(monkeypatch, replace(WHOLE, processors=108))
    for name, each, grid, _, _, cooperative, _ in found:
        if cooperative:
            assert grid <= 108 * each, name
    together = {name for name, _, _, _, _, cooperative, _ in found if cooperative}
    for family in ("layer_norm_grad", "bias_gelu_grad", "channels_streaming", "depthwise_dW", "depthwise_mma"):
        assert any(family in name for name in together)


def test_without_a_margin_kernels_fill_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    found = planned(monkeypatch, get_device(0))
    assert found == planned(monkeypatch, WHOLE)
    assert any(grid == 132 * each for _, each, grid, _, _, cooperative, _ in found if cooperative)
