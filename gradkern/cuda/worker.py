"""A process that compiles kernels for another process, without a GPU: started by `workers`, connected through pipes.

A message is its length in 8 bytes and that many bytes. The worker first sends `HELLO`. Then it receives one pickled
KernelSpec at a time, and replies with `DONE` and the kernel, or with `FAILED` and the reason. It ends when its standard
input is closed (the other process has ended), or after some time without messages.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import struct
import threading
from typing import BinaryIO

__all__ = ["DONE", "FAILED", "HELLO", "LENGTH", "main"]

HELLO, DONE, FAILED = b"gradkern worker 1", b"+", b"-"
LENGTH = struct.Struct("<Q")
_IDLE = 60.0  # seconds


def main() -> None:
    """Serve until the other process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process decides
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not be read as a reply
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(os.fdopen(os.dup(0), "rb"), requests), daemon=True).start()
    _send(replies, HELLO)
    while True:
        try:
            request = requests.get(timeout=_IDLE)
        except queue.Empty:
            return
        try:
            answer = DONE + pickle.loads(request).compile().packed()
        except Exception as error:  # the other process then compiles it itself and gets the error
            answer = FAILED + f"{type(error).__name__}: {error}".encode()
        _send(replies, answer)


def _listen(source: BinaryIO, requests: queue.SimpleQueue[bytes]) -> None:
    while True:
        start = source.read(LENGTH.size)
        data = source.read(LENGTH.unpack(start)[0]) if len(start) == LENGTH.size else b""
        if not data:
            os._exit(0)  # even during a compilation: nobody waits for it
        requests.put(data)


def _send(target: BinaryIO, data: bytes) -> None:
    target.write(LENGTH.pack(len(data)) + data)
    target.flush()
