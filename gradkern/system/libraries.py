"""Where NVIDIA's libraries are, the copies that this process has loaded, and faults of an installation of cuDNN."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from gradkern.system.packages import EXTRAS, damaged, installed, libraries, of_extra, pip


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, the command that mends it, and facts for programs."""

    text: str
    remedy: str
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])


def cuda_major(default: int) -> int:
    """The CUDA that the installed packages are for, one of EXTRAS; `default` where none is installed."""
    bindings = installed("cuda-bindings")
    major = int(bindings.partition(".")[0]) if bindings else default
    return min(max(major, min(EXTRAS)), max(EXTRAS))


def cudnn_wheels() -> dict[str, int]:
    """The installed wheels of cuDNN, each with the CUDA it is for."""
    wheels = {f"nvidia-cudnn-{extra}": major for major, extra in EXTRAS.items()}
    return {wheel: major for wheel, major in wheels.items() if installed(wheel) is not None}


def cudnn_fault(major: int, needed: bool = True) -> Fault | None:
    """What is wrong with the wheels of cuDNN: two over each other, damaged, or, where it is needed, not for this CUDA.

    Where cuDNN comes from elsewhere there are no wheels and no fault.
    """
    wheels = cudnn_wheels()
    if len(wheels) > 1:
        return _both(wheels, major)
    for wheel, built_for in wheels.items():
        bad = damaged(wheel)
        if bad:
            again = pip("install", "--force-reinstall", "--no-deps", f"{wheel}=={installed(wheel)}")
            return Fault(f"{wheel}: {', '.join(bad)} missing or replaced by another package", again)
        if needed and built_for != major:
            mend = f"{pip('uninstall', '-y', wheel)} && {install_cudnn(major)}"
            return Fault(f"{wheel} is installed, but the other packages are for CUDA {major}", mend)
    return None


def _both(wheels: Iterable[str], major: int) -> Fault:
    """Both wheels hold the same paths: the one installed last has replaced the files of the other."""
    bad = {name: damaged(name) for name in wheels}
    whole = [name for name, files in bad.items() if not files]
    text = f"{' and '.join(bad)} are both installed, and hold the same files; "
    if len(whole) == 1:
        (replaced,) = (name for name in bad if name not in whole)
        text += f"{whole[0]} has overwritten {len(bad[replaced])} libraries of {replaced}"
    elif whole:
        text += "to remove one would break the other"
    else:
        text += "each has overwritten some of the other's"
    return Fault(text, f"{pip('uninstall', '-y', *bad)} && {install_cudnn(major)}", {"overwritten": bad})


def install_cudnn(major: int) -> str:
    """The command that installs cuDNN for this CUDA, in the versions that gradkern asks for."""
    name = f"nvidia-cudnn-{EXTRAS[major]}"
    return pip("install", *([each.text for each in of_extra(EXTRAS[major]) if each.name == name] or [name]))


def find(stem: str, wheels: Iterable[str]) -> str | None:
    """Where a library is: cuda.pathfinder's answer, as it knows more places than the wheels; or else in a wheel."""
    try:
        return import_module("cuda.pathfinder").load_nvidia_dynamic_lib(stem).abs_path
    except Exception:  # not installed, does not know this library, or does not find it: it has an error for each
        found = [each.locate() for wheel in wheels for each in libraries(wheel, stem)]
    return str(found[0]) if found else None


def loaded(stem: str, maps: Path = Path("/proc/self/maps")) -> list[str]:
    """The copies of a library that this process has, whoever loaded them; none where the system does not tell."""
    try:
        lines = maps.read_text().splitlines()
    except OSError:
        return []
    files = {os.path.realpath(path) for line in lines if (path := line.partition("/")[1] + line.partition("/")[2])}
    return sorted(path for path in files if re.fullmatch(rf"lib{stem}\.so[.\d]*", os.path.basename(path)))
