"""A call without a plan is refused while its stream is being captured, by what the driver says of the stream."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-python is not installed")

from helpers.driver import driver

from gradkern.arrays import device as arrays
from gradkern.arrays.device import refuse_capture
from gradkern.cuda import device as devices
from gradkern.errors import ProviderError

DONE, IMPLICIT = driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
NONE, ACTIVE = (
    getattr(driver.CUstreamCaptureStatus, f"CU_STREAM_CAPTURE_STATUS_{name}") for name in ("NONE", "ACTIVE")
)
KIND: Any = SimpleNamespace(stream=lambda: 5, device="cuda:0")


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        ((DONE, NONE), False),
        ((DONE, ACTIVE), True),
        ((IMPLICIT, NONE), True),  # the default stream while another is captured
        ((driver.CUresult.CUDA_ERROR_INVALID_CONTEXT, NONE), False),  # nothing has run yet
    ],
)
@pytest.mark.parametrize(("stream", "asked"), [(None, 5), (7, 7)])
def test_a_stream_that_is_captured_is_refused(
    monkeypatch: pytest.MonkeyPatch, answer: Any, refused: bool, stream: int | None, asked: int
) -> None:
    streams: list[int] = []

    def is_capturing(handle: Any) -> Any:
        streams.append(int(handle))
        return answer

    monkeypatch.setattr(driver, "cuStreamIsCapturing", is_capturing)
    if refused:
        with pytest.raises(ProviderError, match="ConvGrad: the first call of a kind cannot be captured in a graph"):
            refuse_capture("ConvGrad", KIND, stream)
    else:
        refuse_capture("ConvGrad", KIND, stream)
    assert streams == [asked]


@pytest.mark.parametrize(("stream", "awaited"), [(None, []), (1, []), (2, [2]), (4096, [4096])])
def test_an_array_that_names_a_stream_is_read_when_that_is_done(
    monkeypatch: pytest.MonkeyPatch, stream: int | None, awaited: list[int]
) -> None:
    waited: list[int] = []
    monkeypatch.setattr(arrays, "unavailable", lambda provider: None)
    monkeypatch.setattr(arrays, "device_of", lambda address: 0)
    monkeypatch.setattr(devices, "get_device", lambda index: index)
    monkeypatch.setattr(devices, "activate", nullcontext)
    monkeypatch.setattr(driver, "cuStreamSynchronize", lambda handle: (waited.append(handle), (DONE,))[1])
    interface = {"shape": (2, 3), "typestr": "<f4", "data": (4096, False), "version": 3, "stream": stream}
    seen = arrays.of_cuda_interface(SimpleNamespace(__cuda_array_interface__=interface), "ConvGrad: input X")
    assert (seen.buffer, seen.tensor.shape, waited) == (4096, (2, 3), awaited)
