"""One line on the terminal while something takes its time, and only there."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["hide", "notice", "on_terminal", "quiet"]

_AFTER = 0.5  # seconds: what is faster needs no words


class _Line:
    """A line that comes after a while, unless it is hidden before."""

    def __init__(self, text: str) -> None:
        self._text, self._shown = text, False
        self._lock = threading.Lock()
        self._timer = threading.Timer(_AFTER, self._show)
        self._timer.daemon = True
        self._timer.start()

    def _show(self) -> None:
        with self._lock:
            if not self._timer.finished.is_set():
                self._shown = True
                _write(self._text)

    def hide(self) -> None:
        with self._lock:
            self._timer.cancel()
            if self._shown:
                _write("")
            self._shown = False


_quiet: ContextVar[bool] = ContextVar("gradkern_quiet", default=False)
_line: ContextVar[_Line | None] = ContextVar("gradkern_line", default=None)


@contextmanager
def quiet() -> Generator[None]:
    """No lines within: something else is drawing on the terminal."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def on_terminal() -> bool:
    """Whether standard error is a terminal, and nothing else draws on it."""
    return not _quiet.get() and sys.stderr is not None and sys.stderr.isatty()  # pyright: ignore[reportUnnecessaryComparison]


@contextmanager
def notice(text: str) -> Generator[None]:
    """Show a line once the block has taken half a second, and take it away at its end."""
    if _line.get() is not None or not on_terminal():
        yield
        return
    line = _Line(text)
    token = _line.set(line)
    try:
        yield
    finally:
        _line.reset(token)
        line.hide()


def hide() -> None:
    """Take away the line that is there, if one is, for something that draws its own."""
    line = _line.get()
    if line is not None:
        line.hide()


def _write(text: str) -> None:
    """Put a line in the place of the one that is there."""
    sys.stderr.write(f"\r\x1b[2K{text}")
    sys.stderr.flush()
