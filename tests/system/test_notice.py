"""A line on a terminal for what takes long, and nothing anywhere else."""

import io
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
from helpers.checkout import ROOT

from gradkern.system import notice
from gradkern.system.notice import hide, quiet, warn
from gradkern.system.notice import notice as shown
from gradkern.system.progress import bar


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


class Silent:
    """As loggers put in the place of standard error."""

    def write(self, text: str) -> int:
        return len(text)


class Broken(io.StringIO):
    """As of a terminal that has gone away."""

    def isatty(self) -> bool:
        raise OSError(5, "Input/output error")

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


class Leaving(Terminal):
    """A terminal until something is written."""

    def write(self, text: str) -> int:
        raise ValueError("I/O operation on closed file")


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


STREAMS = {
    "no terminal": io.StringIO,
    "none": lambda: None,
    "without isatty": Silent,
    "closed": closed,
    "broken": Broken,
    "anything": object,
}


@pytest.mark.parametrize("kind", STREAMS)
def test_nothing_is_shown_where_there_is_no_terminal(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = STREAMS[kind]()
    monkeypatch.setattr(notice, "_AFTER", 0.01)
    monkeypatch.setattr(sys, "stderr", stream)
    done = []
    with shown("compiling"):
        time.sleep(0.1)
        done.append("computed")
    assert list(bar("a title", range(3), str)) == [0, 1, 2]
    assert done == ["computed"]
    assert not isinstance(stream, io.StringIO) or stream.closed or stream.getvalue() == ""


def test_a_terminal_that_goes_away_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notice, "_AFTER", 0.01)
    monkeypatch.setattr(sys, "stderr", Leaving())
    failed: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    with shown("compiling"):
        time.sleep(0.1)
    assert failed == []


FIRST_CALL = """
import io, sys, warnings
import numpy as np
sys.path[:0] = {path!r},
{before}
import gradkern
x = np.ones((4, 6), np.float32)
print(gradkern.run("BiasGeluGrad_dX", x, x, np.zeros(6, np.float32)).dX[0, 0])
"""
BEFORE = {
    "without isatty": "class Silent:\n    write = flush = lambda *_: 0\nsys.stderr = Silent()",
    "closed": "sys.stderr.close()",
    "none": "sys.stderr = None",
    "closed by its number": "import os; os.close(2)",
}


@pytest.mark.thorough
@pytest.mark.parametrize("cache", ["a cache", "/dev/null"])
@pytest.mark.parametrize("kind", BEFORE)
def test_a_first_call_computes_whatever_standard_error_is(kind: str, cache: str, tmp_path: Path) -> None:
    """Where it has something to warn of, too."""
    environment = {**os.environ, "GRADKERN_CACHE_DIR": str(tmp_path / cache)}
    text = FIRST_CALL.format(path=str(ROOT), before=BEFORE[kind])
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, env=environment, check=False)
    assert done.stdout.startswith("1.08331"), done.stderr
    assert done.returncode == 0


def test_a_warning_that_cannot_be_shown_ends_nothing() -> None:
    """Python lets out what a closed standard error raises."""
    tried: list[object] = []

    def show(*arguments: object, **_: object) -> None:
        tried.append(arguments[0])
        raise ValueError("I/O operation on closed file")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        warn("a text")
    assert len(tried) == 1


def test_a_warning_names_the_line_that_it_is_about() -> None:
    with pytest.warns(RuntimeWarning, match="a text") as caught:
        warn("a text")
    assert caught[0].filename == __file__


def test_a_filter_still_makes_an_error_of_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="a text"):
            warn("a text")
