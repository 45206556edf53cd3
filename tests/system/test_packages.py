"""What is installed, against what pyproject.toml asks for."""

import re
import tomllib
from pathlib import Path

import pytest
from helpers.checkout import ROOT
from helpers.installed import cudnn, install, only

from gradkern.system import packages
from gradkern.system.packages import Requirement, damaged, installed, libraries, of_extra, pip, requirements

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder that packages are looked for in."""
    return only(tmp_path, monkeypatch)


def test_requirements_are_those_of_pyproject() -> None:
    assert [each.text for each in requirements() if not each.extra] == PROJECT["dependencies"]
    assert {each.extra for each in requirements()} == {"", *PROJECT["optional-dependencies"]}


def test_every_requirement_can_be_read_whole() -> None:
    for each in requirements():
        version = r"(<=|>=|==|!=|<|>)[\d.]+"
        assert re.fullmatch(rf"[\w.-]+(\[[\w,-]+\])?({version}(,{version})*)?", each.text), each.text


@pytest.mark.parametrize("extra", packages.EXTRAS.values())
def test_an_extra_is_resolved_to_packages_that_are_not_gradkern(extra: str) -> None:
    names = [each.name for each in of_extra(extra)]
    assert {"numba-cuda", "cuda-core", f"nvidia-cudnn-{extra}"} <= set(names)
    assert "gradkern" not in names


def test_without_a_checkout_the_installed_package_says_what_it_needs(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "gradkern", "0.1.0")
    (site / "gradkern-0.1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: gradkern\nVersion: 0.1.0\n"
        "Requires-Dist: numpy<2.5,>=2\n"
        "Requires-Dist: numba-cuda[cu13]<0.31,>=0.30; extra == 'cu13'\n"
    )
    monkeypatch.setattr(packages, "_PROJECT", site / "pyproject.toml")
    assert requirements() == (
        Requirement("numpy<2.5,>=2"),
        Requirement("numba-cuda[cu13]<0.31,>=0.30", "cu13"),
    )


@pytest.mark.parametrize(
    ("text", "version", "fits"),
    [
        ("numpy>=2,<2.5", "2.4.6", True),
        ("numpy>=2,<2.5", "2.5.0", False),
        ("numpy>=2,<2.5", "2", True),
        ("numpy>=2,<2.5", "2.0.0rc1", True),
        ("numpy>=2,<2.5", "1.26.4", False),
        ("numba-cuda[cu13]>=0.30,<0.31", "0.30.4", True),
        ("numba-cuda[cu13]>=0.30,<0.31", "0.31.0", False),
        ("torch==2.13.0", "2.13", True),
        ("torch==2.13.0", "2.13.1+cpu", False),
        ("torch!=2.13.0", "2.13.0+cpu", False),
        ("cuda-core>1,<=2", "1.0", False),
        ("cuda-core>1,<=2", "2.0.0", True),
        ("pyright[nodejs]", "1", True),
    ],
)
def test_a_version_fits_or_does_not(text: str, version: str, fits: bool) -> None:
    assert Requirement(text).takes(version) is fits


def test_names_are_compared_as_indexes_do() -> None:
    assert Requirement("ml_dtypes>=0.5").name == "ml-dtypes"


def test_an_installed_version_is_found(site: Path) -> None:
    install(site, "cuda-bindings", "13.0.1")
    assert (installed("cuda-bindings"), installed("cuda-core")) == ("13.0.1", None)


def test_a_command_of_pip_can_be_pasted_into_a_shell() -> None:
    assert pip("install", "numpy>=2,<2.5", "rich") == "pip install 'numpy>=2,<2.5' rich"


def test_libraries_are_found_by_name_and_smallest_first(site: Path) -> None:
    install(site, "nvidia-cudnn-cu13", "9.19.0.56", cudnn("thirteen"))
    assert [each.name for each in libraries("nvidia-cudnn-cu13")] == ["libcudnn.so.9", "libcudnn_ops.so.9"]
    assert [each.name for each in libraries("nvidia-cudnn-cu13", "cudnn")] == ["libcudnn.so.9"]
    assert libraries("nvidia-cudnn-cu12") == []


def test_a_whole_package_has_no_damage(site: Path) -> None:
    install(site, "nvidia-cudnn-cu13", "9.19.0.56", cudnn("thirteen"))
    assert damaged("nvidia-cudnn-cu13") == []


def test_a_missing_and_a_replaced_library_are_damage(site: Path) -> None:
    install(site, "nvidia-cudnn-cu13", "9.19.0.56", cudnn("thirteen"))
    library = site / "nvidia/cudnn/lib"
    (library / "libcudnn_ops.so.9").unlink()
    assert damaged("nvidia-cudnn-cu13") == ["libcudnn_ops.so.9"]
    (library / "libcudnn_ops.so.9").write_bytes(b"of another size")
    assert damaged("nvidia-cudnn-cu13") == ["libcudnn_ops.so.9"]


def test_the_smallest_library_is_compared_by_content(site: Path) -> None:
    install(site, "nvidia-cudnn-cu13", "9.19.0.56", cudnn("thirteen"))
    front = site / "nvidia/cudnn/lib/libcudnn.so.9"
    front.write_bytes(b"x" * front.stat().st_size)
    assert damaged("nvidia-cudnn-cu13") == ["libcudnn.so.9"]
