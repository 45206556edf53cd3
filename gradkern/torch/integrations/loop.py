"""What a callback does in a training loop: enable, tune when the first steps have been made, report at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gradkern.torch.overrides.switch import RecordedStep, enable, is_enabled, report

_WARM_UP = 1
"""Steps before the one whose calls are planned: a first step has calls that no other has."""


class Loop:
    """One training: `begin`, then for each step `begin_step` and `end_step`, then `end`.

    options  those of `gradkern.torch.enable`
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._steps, self._recorded = 0, None

    def begin(self) -> None:
        """Enable gradkern with the options, if there are any or it is not."""
        if self._options or not is_enabled():
            enable(**self._options)
        self._steps, self._recorded = 0, None

    def begin_step(self) -> None:
        if self._steps == _WARM_UP:
            self._recorded = RecordedStep()

    def end_step(self) -> None:
        """Tune if this was the step whose calls are planned. Each rank has to come here after as many steps."""
        self._steps += 1
        if self._recorded is not None:
            self._recorded.plan()
            self._recorded = None

    def end(self, show: Callable[[str], Any] | None) -> None:
        """Show the report."""
        if show is not None:
            show(str(report()))
