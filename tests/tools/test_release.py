"""tools/release: a wheel with packs that is installed into a fresh environment and computes there; what it refuses; the
version, the changelog and the page of the package index.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import build_release
import pytest
from build_metadata import with_absolute_links
from helpers.checkout import ROOT
from packaging.version import Version

import gradkern

REPOSITORY = "https://github.com/someone/gradkern"
CALL = {"op": "BiasGeluGrad_dX", "axes": {"rows": [8], "columns": 64}, "types": "float32", "outputs": ["dX"]}
COMPUTES = """
import numpy as np, gradkern
random = np.random.default_rng(0)
dY, X, B = (random.standard_normal(shape).astype(np.float32) for shape in ((8, 64), (8, 64), (64,)))
wide = gradkern.run("BiasGeluGrad_dX", *(each.astype(np.float64) for each in (dY, X, B)))
print(gradkern.__file__, abs(gradkern.run("BiasGeluGrad_dX", dY, X, B).dX - wide.dX).max() < 1e-5)
"""


@pytest.mark.thorough
@pytest.mark.longest
def test_a_release_installs_into_a_fresh_environment_and_computes(tmp_path: Path) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    for package in ("build", "twine", "uv"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    from uv import find_uv_bin

    calls = tmp_path / "calls.jsonl"
    calls.write_text(json.dumps(CALL))
    command = [sys.executable, ROOT / "tools" / "build_release.py", "--no-isolation", "--arch", "sm_90"]
    command += ["--calls", calls, "--output", tmp_path / "dist"]
    environment = {**os.environ, "GRADKERN_REPOSITORY": REPOSITORY}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    source, wheel = sorted((tmp_path / "dist").iterdir(), key=lambda each: each.suffix)
    assert (source.suffix, wheel.name) == (".gz", f"gradkern-{gradkern.__version__}-py3-none-any.whl")

    fresh = tmp_path / "fresh"
    uv = [find_uv_bin(), "--quiet"]
    subprocess.run([*uv, "venv", "--python", sys.executable, fresh], check=True)
    interpreter = fresh / "bin" / "python"
    install = [*uv, "pip", "install", "--python", interpreter, wheel]
    installed = subprocess.run(install, capture_output=True, text=True, check=False)
    if installed.returncode and "No solution found" not in installed.stderr:
        pytest.skip(f"the package index cannot be read: {installed.stderr.splitlines()[:1]}")
    assert installed.returncode == 0, installed.stderr
    outside = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    outside["GRADKERN_CACHE_DIR"] = str(tmp_path / "cache")

    def ran(*words: str | Path) -> str:
        done = subprocess.run(words, cwd=tmp_path, env=outside, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    where, right = ran(interpreter, "-c", COMPUTES).split()
    assert (Path(where).is_relative_to(fresh), right) == (True, "True")
    assert ran(fresh / "bin" / "gradkern", "--version") == f"gradkern {gradkern.__version__}\n"
    assert ran(fresh / "bin" / "gradkern", "doctor").endswith("all is well\n")
    (pack,) = json.loads(ran(fresh / "bin" / "gradkern", "pack", "info", "--json"))["packs"]
    assert (Path(pack["path"]).name, pack["fault"], pack["about"]["kernels"]) == ("sm_90.pack", None, 1)


def packages(folder: Path, page: str, size: int = 0) -> tuple[Path, Path]:
    """A source distribution, and a wheel with this page and a pack of so many bytes."""
    source, wheel = folder / "gradkern-1.0.0.tar.gz", folder / "gradkern-1.0.0-py3-none-any.whl"
    source.write_bytes(b"")
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("gradkern-1.0.0.dist-info/METADATA", f"Metadata-Version: 2.4\nName: gradkern\n\n{page}")
        archive.writestr("gradkern/packs/sm_90.pack", bytes(size))
    return source, wheel


def test_what_must_not_be_published_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.CompletedProcess([], 0, "", "")
    monkeypatch.setattr(build_release.subprocess, "run", lambda *_, **__: done)
    assert not [*build_release.faults(*packages(tmp_path, "[a](https://b)"), "sm_90")]
    wrong = packages(tmp_path, "[text](tools/docs/install.md)", build_release.LARGEST + 1)
    links, size, pack = "a link to tools/docs/install.md", "60.0 MB; at most 60", "has no pack for sm_80"
    found = [*build_release.faults(*wrong, "sm_80,sm_90")]
    assert len(found) == 3
    assert all(any(each in text for text in found) for each in (links, size, pack))
    done.returncode, done.stdout = 1, "no long_description"
    assert "twine check: no long_description" in [*build_release.faults(*packages(tmp_path, ""), "sm_90")]


def test_every_link_of_the_page_leads_to_a_file_at_the_tag() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    page = with_absolute_links(text, REPOSITORY, "v1.2.3")
    assert not build_release._LINK.findall(page)
    targets = [each.partition("/v1.2.3/")[2] for each in page.replace(")", " ").split() if "/v1.2.3/" in each]
    assert len(targets) == len(build_release._LINK.findall(text)) > 20
    assert all((ROOT / each.partition("#")[0]).exists() for each in targets)


def test_a_release_has_kernels_of_common_calls_only() -> None:
    chosen = [*build_release.common_calls()]
    assert 500 < len(chosen) < 1500
    assert {"LayerNormalizationGrad", "BatchNormalizationGrad", "GroupNormGrad"} <= {each["op"] for each in chosen}
    assert not any("float16" in str(each["types"]).replace("bfloat16", "") for each in chosen)


def test_preparing_a_version_names_it_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHANGELOG.md", "gradkern/version.py", ".github/CITATION.cff"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    old = (tmp_path / "CHANGELOG.md").read_text().split("## Unreleased\n")[1].partition("\n## ")[2]
    new = "# Changelog\n\n## Unreleased\n\n### Added\n\n- a thing\n\n### Changed\n\n### Fixed\n\n## " + old
    (tmp_path / "CHANGELOG.md").write_text(new)
    monkeypatch.setattr(build_release, "ROOT", tmp_path)
    build_release.prepare("7.0.0")
    text = (tmp_path / "CHANGELOG.md").read_text()
    assert text.endswith("\n## " + old)
    assert text.startswith("# Changelog\n\n## Unreleased\n\n### Added\n\n### Changed\n\n### Fixed\n\n## 7.0.0 - ")
    assert "\n\n### Added\n\n- a thing\n\n## " in text
    assert '"7.0.0"' in (tmp_path / "gradkern" / "version.py").read_text()
    citation = (tmp_path / ".github" / "CITATION.cff").read_text()
    assert "\ncff-version: 1.2.0\n" in citation
    assert "\nversion: 7.0.0\ndate-released: 2" in citation
    for version, message in (
        ("7.0.1", "nothing under Unreleased"),
        ("0.1.0", f"later version than {gradkern.__version__}"),
    ):
        with pytest.raises(SystemExit, match=message):
            build_release.prepare(version)
    with pytest.raises(SystemExit, match=r"has 7\.0\.0 already"):
        build_release.prepare("7.0.0")
    with pytest.raises(SystemExit, match="'8' is no version"):
        build_release.prepare("8")


def test_the_version_is_in_the_changelog_and_the_citation() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    dated = [line.split()[1] for line in changelog.splitlines() if line.startswith("## ") and "Unreleased" not in line]
    assert dated[0] == gradkern.__version__
    assert dated == sorted(dated, key=Version, reverse=True)
    assert f"version: {gradkern.__version__}\n" in (ROOT / ".github" / "CITATION.cff").read_text(encoding="utf-8")
