"""What the CUDA driver is asked, on a fake of it."""

from typing import Any

import pytest

from gradkern.system import driver
from gradkern.system.driver import Driver, Gpu

ATTRIBUTES = {36: 3_201_000, 37: 6144, 75: 9, 76: 0}  # an H200's, as its driver says


class FakeLibrary:
    """libcuda with one H200, or with a status that a call returns."""

    def __init__(self, **status: int) -> None:
        self.status = status

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = 13010
        return 0

    def cuInit(self, flags: int) -> int:
        return self.status.get("cuInit", 0)

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 1
        return self.status.get("cuDeviceGetCount", 0)

    def cuDeviceGet(self, handle: Any, index: int) -> int:
        handle._obj.value = index
        return 0

    def cuDeviceGetName(self, name: Any, length: int, handle: Any) -> int:
        assert length == 256
        name.value = b"NVIDIA H200"
        return 0

    def cuDeviceTotalMem_v2(self, memory: Any, handle: Any) -> int:
        memory._obj.value = 150_109_880_320
        return 0

    def cuDeviceGetAttribute(self, value: Any, device: int, handle: Any) -> int:
        value._obj.value = ATTRIBUTES[device]
        return self.status.get("cuDeviceGetAttribute", 0)

    def cuGetErrorString(self, status: int, text: Any) -> int:
        if status != 999:
            return 1
        text._obj.value = b"unknown trouble"
        return 0


def test_a_driver_tells_its_version_and_its_gpus() -> None:
    gpu = Gpu(0, "NVIDIA H200", (9, 0), 150_109_880_320, 2 * 3_201_000e3 * 6144 / 8)
    assert driver.ask(lambda name: FakeLibrary()) == Driver((13, 1), (gpu,))
    assert gpu.bandwidth == pytest.approx(4.917e12, rel=1e-3)


def test_no_driver_is_none() -> None:
    def load(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    assert driver.ask(load) is None


def test_a_driver_without_a_gpu_is_no_fault() -> None:
    assert driver.ask(lambda name: FakeLibrary(cuInit=100)) == Driver((13, 1), ())


@pytest.mark.parametrize("call", ["cuInit", "cuDeviceGetCount", "cuDeviceGetAttribute"])
@pytest.mark.parametrize(("status", "text"), [(999, "unknown trouble"), (803, "unknown error")])
def test_a_fault_is_told_in_the_drivers_own_words(call: str, status: int, text: str) -> None:
    found = driver.ask(lambda name: FakeLibrary(**{call: status}))
    assert found == Driver((13, 1), (), f"{text} (CUresult {status})")


def test_the_real_driver_where_there_is_one_answers_as_described() -> None:
    found = driver.ask()
    if found is not None:
        assert found.version >= (11, 0)
        assert all(gpu.capability >= (3, 0) and gpu.memory > 0 and gpu.name for gpu in found.gpus)
