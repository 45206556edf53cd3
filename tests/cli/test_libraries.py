"""`gradkern doctor` on cuDNN and NVVM: whole, loadable, of the CUDA in use, and one of them only."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from helpers.installed import FakeCudnn, cudnn, install, only

from gradkern.cli.checks import absent, check_cudnn, check_nvvm, fine, problem

CUDNN = {12: "nvidia-cudnn-cu12>=9.10,<10", 13: "nvidia-cudnn-cu13>=9.10,<10"}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder that packages and libraries are looked for in."""
    return only(tmp_path, monkeypatch)


# --- cuDNN -----------------------------------------------------------------------------------------------------------


def test_cudnn_is_loaded_and_tells_its_version(site: Path) -> None:
    install(site, "nvidia-cudnn-cu13", "9.19.0.56", cudnn("thirteen"))
    path = str(site / "nvidia/cudnn/lib/libcudnn.so.9")

    def load(name: str) -> Any:
        assert name == path
        return FakeCudnn(91900, 13000)

    expected = fine("cuDNN", f"9.19.0 for CUDA 13, {path}", path=path, version="9.19.0", cuda=13)
    assert check_cudnn(13, True, load) == expected


def test_both_wheels_of_cudnn_overwrite_each_other(site: Path) -> None:
    install(site, "nvidia-cudnn-cu13", "9.19.0.56", cudnn("thirteen"))
    install(site, "nvidia-cudnn-cu12", "9.19.0.56", cudnn("twelve"))
    for needed in (True, False):
        assert check_cudnn(13, needed) == problem(
            "cuDNN",
            "nvidia-cudnn-cu12 and nvidia-cudnn-cu13 are both installed, and hold the same files; "
            "nvidia-cudnn-cu12 has overwritten 2 libraries of nvidia-cudnn-cu13",
            f"pip uninstall -y nvidia-cudnn-cu12 nvidia-cudnn-cu13 && pip install '{CUDNN[13]}'",
            overwritten={
                "nvidia-cudnn-cu12": [],
                "nvidia-cudnn-cu13": ["libcudnn.so.9", "libcudnn_ops.so.9"],
            },
        )


def test_both_wheels_with_equal_or_mixed_files_are_a_problem_too(site: Path) -> None:
    install(site, "nvidia-cudnn-cu13", "9.19.0.56", cudnn("same"))
    install(site, "nvidia-cudnn-cu12", "9.19.0.56", cudnn("same"))
    start = "nvidia-cudnn-cu12 and nvidia-cudnn-cu13 are both installed, and hold the same files; "
    assert check_cudnn(12, True).text == f"{start}to remove one would break the other"
    (site / "nvidia/cudnn/lib/libcudnn.so.9").write_bytes(b"neither")
    found = check_cudnn(12, True)
    assert found.text == f"{start}each has overwritten some of the other's"
    assert found.remedy == f"pip uninstall -y nvidia-cudnn-cu12 nvidia-cudnn-cu13 && pip install '{CUDNN[12]}'"


def test_a_wheel_whose_files_went_with_the_other_wheel(site: Path) -> None:
    install(site, "nvidia-cudnn-cu12", "9.10.2.21", cudnn("twelve"))
    (site / "nvidia/cudnn/lib/libcudnn.so.9").unlink()
    assert check_cudnn(12, True) == problem(
        "cuDNN",
        "nvidia-cudnn-cu12: libcudnn.so.9 missing or replaced by another package",
        "pip install --force-reinstall --no-deps nvidia-cudnn-cu12==9.10.2.21",
    )


def test_cudnn_for_another_cuda_is_replaced(site: Path) -> None:
    install(site, "nvidia-cudnn-cu12", "9.10.2.21", cudnn("twelve"))
    assert check_cudnn(13, True) == problem(
        "cuDNN",
        "nvidia-cudnn-cu12 is installed, but the other packages are for CUDA 13",
        f"pip uninstall -y nvidia-cudnn-cu12 && pip install '{CUDNN[13]}'",
    )
    assert check_cudnn(13, False, lambda path: FakeCudnn(91002, 12080)).status == "fine"


def test_a_library_built_for_another_cuda_is_a_problem(monkeypatch: pytest.MonkeyPatch, site: Path) -> None:
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", pathfinder("/usr/lib/libcudnn.so.9"))
    found = check_cudnn(13, True, lambda path: FakeCudnn(91002, 12080))
    text = "9.10.2, /usr/lib/libcudnn.so.9, is built for CUDA 12, but the other packages are for CUDA 13"
    assert (found.text, found.remedy) == (text, f"pip install '{CUDNN[13]}'")


def test_cudnn_that_is_not_there_is_a_problem_only_with_a_gpu(site: Path) -> None:
    assert check_cudnn(12, False) == absent("cuDNN", "not installed; only a GPU needs it")
    assert check_cudnn(12, True) == problem("cuDNN", "not found", f"pip install '{CUDNN[12]}'")


def test_cudnn_that_cannot_be_loaded_says_what_the_system_says(site: Path) -> None:
    install(site, "nvidia-cudnn-cu13", "9.19.0.56", cudnn("no library at all"))
    found = check_cudnn(13, True)
    path = site / "nvidia/cudnn/lib/libcudnn.so.9"
    assert found.text.startswith(f"{path} cannot be loaded: ")
    assert (found.status, found.remedy) == ("problem", f"pip install '{CUDNN[13]}'")


def pathfinder(path: str) -> ModuleType:
    module: Any = ModuleType("cuda.pathfinder")
    module.load_nvidia_dynamic_lib = lambda name: SimpleNamespace(abs_path=path)
    return module


# --- NVVM ------------------------------------------------------------------------------------------------------------


def test_nvvm_is_found_by_pathfinder_first_and_then_in_a_wheel(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "nvidia-cuda-nvcc-cu12", "12.9.86", {"nvidia/cuda_nvcc/nvvm/lib64/libnvvm.so": b"compiler"})
    path = str(site / "nvidia/cuda_nvcc/nvvm/lib64/libnvvm.so")
    assert check_nvvm(12, True) == fine("NVVM", path, path=path)
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", pathfinder("/opt/cuda/libnvvm.so"))
    assert check_nvvm(12, True).text == "/opt/cuda/libnvvm.so"


def test_nvvm_that_is_not_there_is_a_problem_only_with_a_gpu(site: Path) -> None:
    assert check_nvvm(13, False) == absent("NVVM", "not installed; only a GPU needs it")
    assert check_nvvm(13, True) == problem(
        "NVVM", "not found: no kernel can be compiled", "pip install 'numba-cuda[cu13]>=0.30,<0.31'"
    )
