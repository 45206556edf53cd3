"""Handles, packs and executions, on a cuDNN that does nothing and remembers what it was asked."""

from __future__ import annotations

import gc
import itertools
import threading
from typing import Any

import pytest
from helpers.library_handles import none_yet

from gradkern.cudnn import descriptor, device, library, plan
from gradkern.cudnn.api import KINDS
from gradkern.cudnn.descriptor import Descriptor
from gradkern.cudnn.library import CudnnError
from gradkern.cudnn.plan import Plan

WORKSPACE = 4096


class FakeCudnn:
    """Descriptors are numbers, with the kind of each; attributes are what they were set to."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.kinds: dict[int, int] = {}
        self.attributes: dict[int, dict[int, list[Any]]] = {}
        self.destroyed: list[int] = []
        self.streams: list[tuple[int, int]] = []
        self.runs: list[tuple[int, int, list[Any], list[Any]]] = []
        self.status = 0
        self.refused: int | None = None  # a kind of descriptor

    def cudnnBackendCreateDescriptor(self, kind: int, made: Any) -> int:
        made._obj.value = next(self._numbers)
        self.kinds[made._obj.value] = kind
        self.attributes[made._obj.value] = {}
        return 0

    def cudnnBackendDestroyDescriptor(self, pointer: int) -> int:
        self.destroyed.append(pointer)
        return 0

    def cudnnBackendSetAttribute(self, pointer: int, name: int, kind: int, count: int, values: Any) -> int:
        self.attributes[pointer][name] = list(values[:count])
        return 0

    def cudnnBackendGetAttribute(self, pointer: int, name: int, kind: int, most: int, count: Any, values: Any) -> int:
        assert (name, most) == (402, 1)
        values[0], count._obj.value = WORKSPACE, 1
        return 0

    def cudnnBackendFinalize(self, pointer: int) -> int:
        return 5000 if self.kinds[pointer] == self.refused else 0

    def cudnnCreate(self, made: Any) -> int:
        made._obj.value = next(self._numbers)
        return 0

    def cudnnSetStream(self, handle: int, stream: int) -> int:
        self.streams.append((handle, stream))
        return 0

    def cudnnBackendExecute(self, handle: int, plan: int, pack: int) -> int:
        attributes = self.attributes[pack]
        self.runs.append((handle, pack, attributes[1001], attributes[1003]))
        return self.status

    def cudnnGetErrorString(self, status: int) -> bytes:
        return b"CUDNN_STATUS_EXECUTION_FAILED"

    def cudnnGetLastErrorString(self, words: Any, size: int) -> None:
        words.value = b"no such kernel"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCudnn:
    made = FakeCudnn()
    for module in (descriptor, device, library, plan):
        monkeypatch.setattr(module, "library", lambda: made)
    none_yet(monkeypatch, device.handle)
    return made


def finished(index: int = 0) -> Plan:
    return Plan(Descriptor("engine_config"), Descriptor("device", index=index), index, (1, 2, 3))


def packs(fake: FakeCudnn) -> list[int]:
    return [pointer for pointer, kind in fake.kinds.items() if kind == KINDS["variant_pack"].number]


def test_a_plan_tells_its_workspace_and_runs_on_addresses(fake: FakeCudnn) -> None:
    ready = finished()
    assert ready.workspace == WORKSPACE
    ready((256, 512, 768), 1024, 0)
    assert [run[2:] for run in fake.runs] == [([256, 512, 768], [1024])]
    assert [fake.attributes[pack][1000] for pack in packs(fake)] == [[1, 2, 3]]


def test_calls_on_the_same_addresses_share_a_pack_and_packs_are_bounded(fake: FakeCudnn) -> None:
    ready = finished()
    for _ in range(3):
        ready((256, 512, 768), 1024, 0)
    assert len(packs(fake)) == 1
    ready((256, 512, 768), 2048, 0)
    assert len(packs(fake)) == 2
    for address in range(1, 1000):
        ready((address, 512, 768), 1024, 0)
        assert fake.runs[-1][2] == [address, 512, 768]
    assert len(packs(fake)) - len(fake.destroyed) <= 256
    del ready
    assert set(packs(fake)) <= set(fake.destroyed)


def test_a_stream_is_set_only_where_it_changes(fake: FakeCudnn) -> None:
    ready = finished()
    for stream in (0, 7, 7, 0, 7):
        ready((1, 2, 3), 0, stream)
    assert [stream for _, stream in fake.streams] == [7, 0, 7]


def test_threads_and_devices_have_handles_of_their_own_and_inherit_those_of_threads_that_ended(
    fake: FakeCudnn,
) -> None:
    first, second = finished(0), finished(1)

    def run(*plans: Plan) -> None:
        thread = threading.Thread(target=lambda: [each((1, 2, 3), 0, 0) for each in plans])
        thread.start()
        thread.join()

    first((1, 2, 3), 0, 0)
    run(first, second)
    run(first)
    run(second)
    here, there, other, again, other_again = (handle for handle, *_ in fake.runs)
    assert len({here, there, other}) == 3
    assert (again, other_again) == (there, other)


def test_a_failed_execution_says_why(fake: FakeCudnn) -> None:
    fake.status = 5000
    text = r"cuDNN: executing a plan failed: no such kernel \(CUDNN_STATUS_EXECUTION_FAILED\)"
    with pytest.raises(CudnnError, match=text):
        finished()((1, 2, 3), 0, 0)


def test_a_pack_that_is_refused_is_freed_and_says_why(fake: FakeCudnn) -> None:
    ready = finished()
    fake.refused = KINDS["variant_pack"].number
    with pytest.raises(CudnnError, match="cuDNN: making a pack of addresses failed: no such kernel"):
        ready((1, 2, 3), 0, 0)
    gc.collect()
    assert len(packs(fake)) == 1
    assert packs(fake) == [each for each in fake.destroyed if each in packs(fake)]
    fake.refused = None
    ready((1, 2, 3), 0, 0)
    assert len(fake.runs) == 1


def test_an_attribute_of_no_table_is_a_mistake_and_frees_what_was_made(fake: FakeCudnn) -> None:
    with pytest.raises(KeyError):
        Descriptor("tensor", colour=3)
    assert sorted(fake.kinds) == sorted(fake.destroyed)
