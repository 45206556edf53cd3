"""A line on a terminal for what takes long, and nothing anywhere else."""

import io
import sys
import time

import pytest

from gradkern.system import notice
from gradkern.system.notice import hide, quiet
from gradkern.system.notice import notice as shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch, after: float = 0.05) -> Terminal:
    """Not a fixture: pytest takes standard error back when a test begins."""
    terminal = Terminal()
    monkeypatch.setattr(notice, "_AFTER", after)
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def test_what_takes_long_is_named_and_the_line_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with shown("compiling"), shown("a block within"):
        time.sleep(0.3)
    assert terminal.getvalue() == "\r\x1b[2Kcompiling\r\x1b[2K"


def test_what_is_fast_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch, after=5)
    with shown("compiling"):
        pass
    assert terminal.getvalue() == ""


def test_other_lines_take_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with shown("compiling"):
        time.sleep(0.3)
        hide()
        before = terminal.getvalue()
        time.sleep(0.1)
    assert terminal.getvalue() == before == "\r\x1b[2Kcompiling\r\x1b[2K"
    with quiet(), shown("compiling"):
        time.sleep(0.1)
    assert terminal.getvalue() == before


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_nothing_is_shown_where_there_is_no_terminal(stream: io.StringIO | None, monkeypatch) -> None:
    monkeypatch.setattr(notice, "_AFTER", 0.01)
    monkeypatch.setattr(sys, "stderr", stream)
    with shown("compiling"):
        time.sleep(0.1)
    assert stream is None or stream.getvalue() == ""
