"""An output of a notebook's cell that changes in place: what a line on the terminal is elsewhere."""

from __future__ import annotations

import contextlib
import sys
from contextvars import copy_context
from typing import Any


class Output:
    """Shown when it is first written to. What cannot be shown ends no computation."""

    def __init__(self, display: Any) -> None:
        self._display, self._handle = display, None
        self._context = copy_context()  # of the cell: a thread that writes has another

    def write(self, text: str, html: str = "") -> None:
        """Replace what is shown; html is for where there is a browser."""
        content = {"text/plain": text, **({"text/html": html} if html else {})}
        with contextlib.suppress(Exception):
            if self._handle is None:
                self._handle = self._context.copy().run(self._display, content, raw=True, display_id=True)
            else:
                self._context.copy().run(self._handle.update, content, raw=True)


def output() -> Output | None:
    """An output of the cell that is running; None outside of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    if ipython is None or getattr(ipython.get_ipython(), "kernel", None) is None:
        return None
    return Output(ipython.display.display)
