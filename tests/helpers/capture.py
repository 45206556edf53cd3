"""What is enqueued on a stream, captured in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal


class Capture:
    """A graph of what is enqueued on `stream` in a `with` block of this; on a stream of its own where none is given.

    mode: which calls a capture forbids: those of all threads, or those of its own.
    """

    def __init__(self, stream: int | None = None, mode: Literal["GLOBAL", "THREAD_LOCAL"] = "GLOBAL") -> None:
        from gradkern.cuda.device import check
        from helpers.driver import driver

        self._driver, self._check = driver, check
        self._mode = getattr(driver.CUstreamCaptureMode, f"CU_STREAM_CAPTURE_MODE_{mode}")
        self.stream = int(check(driver.cuStreamCreate(1), "creating a stream")) if stream is None else stream
        self.graph: Any = None
        self._executable: Any = None

    def __enter__(self) -> Capture:
        self._check(self._driver.cuStreamBeginCapture(self.stream, self._mode), "beginning a capture")
        return self

    def __exit__(self, error: type[BaseException] | None, *_: Any) -> None:
        answer = self._driver.cuStreamEndCapture(self.stream)
        if error is None:  # else there may be no graph: the error says why
            self.graph = self._check(answer, "ending a capture")

    def replay(self, times: int = 1, before: Callable[[int], None] | None = None) -> None:
        """Launch the graph so many times, one right after the other, and wait for the last.

        before: enqueues on the stream what comes before each launch, such as poison in outputs.
        """
        if self._executable is None:
            self._executable = self._check(self._driver.cuGraphInstantiate(self.graph, 0), "making a graph ready")
        for _ in range(times):
            if before is not None:
                before(self.stream)
            self._check(self._driver.cuGraphLaunch(self._executable, self.stream), "launching a graph")
        self._check(self._driver.cuStreamSynchronize(self.stream), "waiting")
