"""The documentation site builds without a warning, which a broken link is, and has all that it should."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest
from helpers.checkout import ROOT

import gradkern
from gradkern import errors

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", "tools/site/mkdocs.yml"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run([*command, "-d", str(folder)], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_every_operator_has_a_page_with_its_contract_and_its_mathematics(site: Path) -> None:
    for name, operator in gradkern.operators().items():
        page = (site / "operators" / name / "index.html").read_text(encoding="utf-8")
        assert all(f"<code>{each.name}:{each.type}</code>" in page for each in (*operator.inputs, *operator.outputs))
        assert "Mathematics and sources" in page


def test_every_example_has_a_page_with_its_code(site: Path) -> None:
    examples = [each for each in (ROOT / "tools" / "examples").iterdir() if each.suffix in (".py", ".ipynb")]
    assert len(examples) >= 14
    for path in examples:
        page = (site / "examples" / path.stem / "index.html").read_text(encoding="utf-8")
        source = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            source = "".join(
                [each for each in json.loads(source)["cells"] if each["cell_type"] == "code"][-1]["source"]
            )
        assert source.strip().splitlines()[-1] in unescape(re.sub("<[^>]*>", "", page)), path.name


def test_every_error_has_a_cure(site: Path) -> None:
    page = (site / "troubleshooting" / "index.html").read_text(encoding="utf-8")
    assert [name for name in errors.__all__ if f"<code>{name}</code>" not in page and name != "GradkernError"] == []


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    page = (site / "api" / "gradkern" / "index.html").read_text(encoding="utf-8")
    missing = [name for name in gradkern.__all__ if f">{name}<" not in page.replace("&nbsp;", "")]
    assert [name for name in missing if not name.startswith("_")] == []


@pytest.mark.torch
def test_every_public_name_of_gradkern_torch_is_in_the_reference(site: Path) -> None:
    import gradkern.torch

    page = (site / "api" / "gradkern.torch" / "index.html").read_text(encoding="utf-8")
    assert "<td><code>only_faster</code></td>" in page  # what a parameter means is a row of a table
    assert [name for name in gradkern.torch.__all__ if f">{name}<" not in page] == []


def test_every_link_within_the_site_has_its_target(site: Path) -> None:
    broken: list[str] = []
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for link in re.findall(r'(?:href|src)="([^"]+)"', text):
            target, _, anchor = link.partition("#")
            if ":" in target or page.name == "404.html":
                continue
            there = (page.parent / unquote(target)).resolve() if target else page
            there = there / "index.html" if there.is_dir() else there
            found = there.exists() and (not anchor or f'id="{anchor}"' in there.read_text(encoding="utf-8"))
            broken += [] if found else [f"{page.relative_to(site)}: {link}"]
    assert broken == []
