"""What is said to the user: a line on the terminal, or in a notebook, while something takes its time, and only there;
and warnings.

Standard error may be closed, or an object that somebody has put there: what cannot be shown never ends a computation.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any

_AFTER = 0.5  # seconds: what is faster needs no words


class Output:
    """An output of a notebook's cell that changes in place: what a line on the terminal is elsewhere. It is shown when
    it is first written to.
    """

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


class _Line:
    """A line that comes after a while, unless it is hidden before."""

    def __init__(self, text: str, write: Callable[[str], None]) -> None:
        self._text, self._write, self._shown = text, write, False
        self._lock = threading.Lock()
        self._timer = threading.Timer(_AFTER, self._show)
        self._timer.daemon = True
        self._timer.start()

    def _show(self) -> None:
        with self._lock:
            if not self._timer.finished.is_set():
                self._shown = True
                self._write(self._text)

    def hide(self) -> None:
        with self._lock:
            self._timer.cancel()
            if self._shown:
                self._write("")
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
    if _quiet.get():
        return False
    try:
        return bool(sys.stderr.isatty())
    except Exception:  # none, closed, or another's object that does not know
        return False


def in_notebook() -> Output | None:
    """An output of the cell that is running, unless something else draws there; None outside of a notebook."""
    if _quiet.get():
        return None
    ipython: Any = sys.modules.get("IPython")
    if ipython is None or getattr(ipython.get_ipython(), "kernel", None) is None:
        return None
    return Output(ipython.display.display)


def warn(text: str, stacklevel: int = 1) -> None:
    """warnings.warn of a RuntimeWarning. stacklevel counts from who calls this."""
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=stacklevel + 1)
    except RuntimeWarning:  # a filter makes errors of warnings
        raise
    except Exception:  # a closed standard error raises
        return


@contextmanager
def notice(text: str) -> Generator[None]:
    """Show a line once the block has taken half a second, and take it away at its end."""
    output = None if _line.get() is not None or on_terminal() else in_notebook()
    if _line.get() is not None or (output is None and not on_terminal()):
        yield
        return
    line = _Line(text, _write if output is None else output.write)
    token = _line.set(line)
    try:
        yield
    finally:
        _line.reset(token)
        line.hide()


def hide() -> None:
    """Erase the current line, if there is one, for something that draws its own."""
    line = _line.get()
    if line is not None:
        line.hide()


def _write(text: str) -> None:
    """Replace the current line."""
    with contextlib.suppress(Exception):
        sys.stderr.write(f"\r\x1b[2K{text}")
        sys.stderr.flush()
