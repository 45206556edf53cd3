"""`gradkern doctor` on the libraries of CUDA that gradkern loads: cuDNN, and NVVM, Numba's compiler."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib import import_module, metadata
from typing import Any

from gradkern.cli.checks import Check, absent, fine, problem
from gradkern.cli.packages import EXTRAS, damaged, installed, libraries, of_extra, pip

__all__ = ["check_cudnn", "check_nvvm"]

Load = Callable[[str], Any]


def check_cudnn(major: int, needed: bool, load: Load = ctypes.CDLL) -> Check:
    """cuDNN: whole, and where a GPU needs it, of the CUDA in use (`major`) and loadable."""
    wheels = {each: f"nvidia-cudnn-{extra}" for each, extra in EXTRAS.items()}
    versions = {each: version for each, name in wheels.items() if (version := installed(name)) is not None}
    if len(versions) > 1:
        return _both(wheels, major)
    for each in versions:
        bad = damaged(wheels[each])
        if bad:
            again = pip("install", "--force-reinstall", "--no-deps", f"{wheels[each]}=={versions[each]}")
            return problem("cuDNN", f"{wheels[each]}: {', '.join(bad)} missing or replaced by another package", again)
    if needed and versions and major not in versions:
        (other,) = (wheels[each] for each in versions)
        mend = f"{pip('uninstall', '-y', other)} && {_install(major)}"
        return problem("cuDNN", f"{other} is installed, but the other packages are for CUDA {major}", mend)
    return _load_cudnn(major, needed, [wheels[each] for each in versions], load)


def _both(wheels: dict[int, str], major: int) -> Check:
    """Both wheels hold the same paths: the one installed last has replaced the files of the other."""
    bad = {name: damaged(name) for name in wheels.values()}
    whole = [name for name, files in bad.items() if not files]
    text = f"{' and '.join(wheels.values())} are both installed, and hold the same files; "
    if len(whole) == 1:
        (replaced,) = (name for name in bad if name not in whole)
        text += f"{whole[0]} has overwritten {len(bad[replaced])} libraries of {replaced}"
    elif whole:
        text += "to remove one would break the other"
    else:
        text += "each has overwritten some of the other's"
    mend = f"{pip('uninstall', '-y', *wheels.values())} && {_install(major)}"
    return problem("cuDNN", text, mend, overwritten=bad)


def _load_cudnn(major: int, needed: bool, wheels: list[str], load: Load) -> Check:
    path = _find("cudnn", wheels)
    if path is None:
        if not needed:
            return absent("cuDNN", "not installed; only a GPU needs it")
        return problem("cuDNN", "not found", _install(major))
    try:
        library = load(path)
        library.cudnnGetVersion.restype = library.cudnnGetCudartVersion.restype = ctypes.c_size_t
        number, runtime = library.cudnnGetVersion(), library.cudnnGetCudartVersion()
    except (OSError, AttributeError) as error:
        return problem("cuDNN", f"{path} cannot be loaded: {error}", _install(major), path=path)
    version = f"{number // 10000}.{number % 10000 // 100}.{number % 100}"
    facts = {"path": path, "version": version, "cuda": runtime // 1000}
    if needed and runtime // 1000 != major:
        text = f"{version}, {path}, is built for CUDA {runtime // 1000}, but the other packages are for CUDA {major}"
        return problem("cuDNN", text, _install(major), **facts)
    return fine("cuDNN", f"{version} for CUDA {runtime // 1000}, {path}", **facts)


def _install(major: int) -> str:
    """The command that installs cuDNN for this CUDA, in the versions that gradkern asks for."""
    name = f"nvidia-cudnn-{EXTRAS[major]}"
    return pip("install", *([each.text for each in of_extra(EXTRAS[major]) if each.name == name] or [name]))


def check_nvvm(major: int, needed: bool) -> Check:
    """NVVM, which compiles Numba's kernels."""
    path = _find("nvvm", [each.name for each in metadata.distributions() if (each.name or "").startswith("nvidia-")])
    if path is not None:
        return fine("NVVM", path, path=path)
    if not needed:
        return absent("NVVM", "not installed; only a GPU needs it")
    numba = [each.text for each in of_extra(EXTRAS[major]) if each.name == "numba-cuda"]
    return problem(
        "NVVM", "not found: no kernel can be compiled", pip("install", *(numba or [f"numba-cuda[{EXTRAS[major]}]"]))
    )


def _find(stem: str, wheels: list[str]) -> str | None:
    """Where a library is: as cuda.pathfinder says, which knows more places than the wheels, or else in a wheel."""
    try:
        return import_module("cuda.pathfinder").load_nvidia_dynamic_lib(stem).abs_path
    except Exception:  # not installed, does not know this library, or does not find it: it has an error for each
        found = [each.locate() for wheel in wheels for each in libraries(wheel, stem)]
    return str(found[0]) if found else None
