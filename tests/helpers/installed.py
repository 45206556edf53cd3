"""Folders of fake installed packages: what importlib.metadata reads, and the libraries they hold."""

from __future__ import annotations

import base64
import hashlib
import importlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def only(site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let packages and libraries be looked for in this folder alone."""
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    importlib.invalidate_caches()
    return site


def install(site: Path, name: str, version: str, files: Mapping[str, bytes] | None = None) -> None:
    """Put a package into a folder as pip does: its files, over what is there, and RECORD with their hashes."""
    record = []
    for path, content in (files or {}).items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(content)}")
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "RECORD").write_text("\n".join([*record, f"{folder.name}/RECORD,,"]) + "\n")


def cudnn(text: str) -> dict[str, bytes]:
    """The libraries of one build of cuDNN; both wheels have them at the same place."""
    return {
        "nvidia/cudnn/lib/libcudnn.so.9": f"{text} front".encode(),
        "nvidia/cudnn/lib/libcudnn_ops.so.9": f"{text} operators, which are longer".encode(),
        "nvidia/cudnn/include/cudnn.h": b"the same in both",
    }


def satisfy(site: Path, *requirements: str) -> None:
    """Install a version that fits each requirement: the least one it takes."""
    for text in requirements:
        name = re.match(r"[\w.-]+", text)
        least = re.search(r">=([\d.]+)", text)
        assert name is not None
        assert least is not None
        install(site, name.group(), least.group(1))


class FakeCudnn:
    """The library as ctypes has it, of this version and for this CUDA runtime."""

    def __init__(self, version: int, runtime: int) -> None:
        self.cudnnGetVersion = _Answer(version)
        self.cudnnGetCudartVersion = _Answer(runtime)


class _Answer:
    def __init__(self, answer: int) -> None:
        self.answer, self.restype = answer, None

    def __call__(self) -> int:
        assert self.restype is not None, "a size would be cut to an int"
        return self.answer
