"""Scripts of which several processes run, which meet by torch.distributed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any

import torch


def results(script: str, size: int, folder: Path, *more: str) -> list[dict[str, Any]]:
    """What each of `size` processes has left: `python SCRIPT SIZE FOLDER` saves FOLDER/RANK.pt of each."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GLOO_SOCKET_IFNAME": "lo"}
    environment["PYTHONFAULTHANDLER"] = "1"  # a process that a signal ends says where
    command = [sys.executable, script, str(size), str(folder), *more]
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"{rank}.pt") for rank in range(size)]


def run(work: Callable[..., None], size: int, *arguments: Any) -> None:
    """work(rank, size, *arguments) in `size` processes, which share this one's imports where there is no GPU: CUDA
    survives no fork, and torch.compile saves a GPU's random state whatever it compiles. Exits with 1 as soon as one of
    them fails.
    """
    context: Any = get_context("spawn" if torch.cuda.is_available() else "fork")
    every = [context.Process(target=work, args=(rank, size, *arguments)) for rank in range(size)]
    for process in every:
        process.start()
    left = list(every)
    while left:
        connection.wait([process.sentinel for process in left])
        left = [process for process in left if process.is_alive()]
        if codes := {rank: each.exitcode for rank, each in enumerate(every) if each.exitcode}:
            print(f"exit codes of processes: {codes}", file=sys.stderr)
            for process in left:
                process.kill()
            sys.exit(1)
