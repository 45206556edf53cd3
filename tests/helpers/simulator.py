"""Tests of kernels' own source under the CUDA simulator: every test of a file named simulated_*.py.

Numba chooses the simulator when it is imported, so these tests run in a process of their own, one for each process of
pytest. They are collected, named and selected as all others are, and each is run there when its turn comes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from helpers.checkout import ROOT

_PIPE = "GRADKERN_TESTS_SIMULATOR"
"""Set in the process that has the simulator: the file descriptor on which it hears what to run."""
_LONGEST = 1800  # seconds of a test, on a busy machine: a guard against hanging
_OPTIONS = ("--every-kernel", "--long")


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if not module_path.name.startswith("simulated_") or _PIPE in os.environ:
        return None
    return SimulatedModule.from_parent(parent, path=module_path)


class SimulatedModule(pytest.Module):
    """A file of tests that run under the simulator."""

    def collect(self) -> Iterator[pytest.Item]:  # pyright: ignore[reportIncompatibleMethodOverride]
        pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
        for each in _functions(super().collect()):
            name = each.nodeid.removeprefix(f"{self.nodeid}::")
            yield SimulatedItem.from_parent(self, name=name, function=each)


def _functions(nodes: Iterable[pytest.Item | pytest.Collector]) -> Iterator[pytest.Function]:
    """Tests of a file, those of its classes among them."""
    for each in nodes:
        if isinstance(each, pytest.Function):
            yield each
        elif isinstance(each, pytest.Collector):
            yield from _functions(each.collect())


class SimulatedItem(pytest.Item):
    """A test that is run there; its markers are those of its function."""

    def __init__(self, *, function: pytest.Function, **more: Any) -> None:
        super().__init__(**more)
        self._function = function
        self.add_marker(pytest.mark.thorough)
        for mark in function.iter_markers():
            self.add_marker(pytest.MarkDecorator(mark, _ispytest=True))

    def runtest(self) -> None:
        outcome, text = self.config.stash.setdefault(_SIMULATOR, Simulator(self.config)).run(self.nodeid)
        if outcome == "skipped":
            pytest.skip(text)
        if outcome == "failed":
            pytest.fail(text, pytrace=False)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        return self._function.reportinfo()


class Simulator:
    """The process that has it, from the first test on."""

    def __init__(self, config: pytest.Config) -> None:
        self._options = [option for option in _OPTIONS if config.getoption(option)]
        self._process: subprocess.Popen[str] | None = None

    def run(self, nodeid: str) -> tuple[str, str]:
        """What became of a test: passed, failed or skipped, and why."""
        if self._process is None:
            self._begin()
        self._connection.send(nodeid)
        try:
            if self._connection.poll(_LONGEST):
                return self._connection.recv()
            why = f"no answer in {_LONGEST} s"
        except (EOFError, ConnectionError):
            why = "it ended"
        said = self.end()
        return "failed", f"{nodeid} under the simulator: {why}\n{said}"

    def _begin(self) -> None:
        self._connection, there = Pipe()
        files = sorted(map(str, (ROOT / "tests").rglob("simulated_*.py")))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *self._options, *files]
        with there:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | {"NUMBA_ENABLE_CUDASIM": "1", _PIPE: str(there.fileno())},
                pass_fds=[there.fileno()],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def end(self) -> str:
        """End the process; what it has printed."""
        if self._process is None:
            return ""
        self._connection.close()
        self._process.kill()
        said, _ = self._process.communicate()
        self._process = None
        return said[-4000:]


_SIMULATOR = pytest.StashKey[Simulator]()


def pytest_unconfigure(config: pytest.Config) -> None:
    if _SIMULATOR in config.stash:
        config.stash[_SIMULATOR].end()


# --- in the process that has the simulator ----------------------------------------------------------------------------

if _PIPE in os.environ:  # before a test imports a kernel
    from helpers import simulated

    simulated.install()


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    if _PIPE not in os.environ:
        return None
    items = {item.nodeid: item for item in session.items}
    with Connection(int(os.environ[_PIPE])) as asker:
        while True:
            try:
                item = items[asker.recv()]
            except EOFError:
                return True
            asker.send(_outcome(item))


def _outcome(item: pytest.Item) -> tuple[str, str]:
    from _pytest.runner import runtestprotocol

    reports = runtestprotocol(item, log=False, nextitem=None)
    for report in reports:
        if not report.passed:
            return report.outcome, report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return "passed", ""
