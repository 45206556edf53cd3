"""What one check of `gradkern doctor` finds; and its checks of the libraries of CUDA that gradkern loads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Literal

from gradkern.system.libraries import cudnn_fault, cudnn_wheels, find, install_cudnn
from gradkern.system.packages import EXTRAS, of_extra, pip

Load = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. remedy is the command that mends a problem, where there is one; facts are for programs."""

    name: str
    status: Literal["fine", "absent", "problem"]
    text: str
    remedy: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])


def fine(name: str, text: str, /, **facts: Any) -> Check:
    """All is well."""
    return Check(name, "fine", text, None, facts)


def absent(name: str, text: str, /, **facts: Any) -> Check:
    """It is not there, and need not be."""
    return Check(name, "absent", text, None, facts)


def problem(name: str, text: str, remedy: str | None = None, /, **facts: Any) -> Check:
    """Something is wrong."""
    return Check(name, "problem", text, remedy, facts)


def check_cudnn(major: int, needed: bool, load: Load = ctypes.CDLL) -> Check:
    """cuDNN: whole, and where a GPU needs it, of the CUDA in use (`major`) and loadable."""
    fault = cudnn_fault(major, needed)
    if fault is not None:
        return problem("cuDNN", fault.text, fault.remedy, **fault.facts)
    path = find("cudnn", cudnn_wheels())
    if path is None:
        if not needed:
            return absent("cuDNN", "not installed; only a GPU needs it")
        return problem("cuDNN", "not found", install_cudnn(major))
    try:
        library = load(path)
        library.cudnnGetVersion.restype = library.cudnnGetCudartVersion.restype = ctypes.c_size_t
        number, runtime = library.cudnnGetVersion(), library.cudnnGetCudartVersion()
    except (OSError, AttributeError) as error:
        return problem("cuDNN", f"{path} cannot be loaded: {error}", install_cudnn(major), path=path)
    version = f"{number // 10000}.{number % 10000 // 100}.{number % 100}"
    facts = {"path": path, "version": version, "cuda": runtime // 1000}
    if needed and runtime // 1000 != major:
        text = f"{version}, {path}, is built for CUDA {runtime // 1000}, but the other packages are for CUDA {major}"
        return problem("cuDNN", text, install_cudnn(major), **facts)
    return fine("cuDNN", f"{version} for CUDA {runtime // 1000}, {path}", **facts)


def check_nvvm(major: int, needed: bool) -> Check:
    """NVVM, the compiler of Numba's kernels."""
    path = find("nvvm", [each.name for each in metadata.distributions() if (each.name or "").startswith("nvidia-")])
    if path is not None:
        return fine("NVVM", path, path=path)
    if not needed:
        return absent("NVVM", "not installed; only a GPU needs it")
    numba = [each.text for each in of_extra(EXTRAS[major]) if each.name == "numba-cuda"]
    return problem(
        "NVVM", "not found: no kernel can be compiled", pip("install", *(numba or [f"numba-cuda[{EXTRAS[major]}]"]))
    )
