"""A call without a plan is refused while its stream is being captured, by what the driver says of the stream."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-python is not installed")

from helpers.driver import driver

from gradkern.arrays.device import refuse_capture
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
