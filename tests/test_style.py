"""The checks a reviewer would run by hand: those of .pre-commit-config.yaml, and links in the pages."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.checkout import ROOT
from ruamel.yaml import YAML

CONFIGURED = YAML(typ="safe", pure=True).load(ROOT / ".pre-commit-config.yaml")
CHECKS = {hook["id"]: hook for repo in CONFIGURED["repos"] for hook in repo["hooks"]}
PAGES = ["README.md", "CHANGELOG.md", ".github/CONTRIBUTING.md"]
PAGES += sorted(
    str(page.relative_to(ROOT)) for page in [*ROOT.glob("tools/docs/*.md"), *ROOT.glob("tools/results/*.md")]
)


def test_every_linter_is_among_the_checks() -> None:
    assert {"ruff-check", "ruff-format", "pyright", "import-linter", "readme", "stubs"} <= CHECKS.keys()


MARKS = {  # gradkern.torch has types only where PyTorch is
    "pyright": [pytest.mark.thorough, pytest.mark.torch, pytest.mark.longest]
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in CHECKS])
def test_the_code_is_clean(name: str) -> None:
    """The command of the pre-commit hook, with the programs of the environment that runs the tests."""
    hook = CHECKS[name]
    words = [*shlex.split(hook["entry"]), *hook.get("args", ())]
    done = subprocess.run([here(word) for word in words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def here(word: str) -> str:
    """A program of .venv, as it is in the environment that runs the tests."""
    if not word.startswith(".venv/bin/"):
        return word
    name = word.removeprefix(".venv/bin/")
    beside = Path(sys.executable).with_name(name)
    program = str(beside) if beside.exists() else shutil.which(name)
    assert program is not None, f"{name} is not installed: pip install gradkern[test]"
    return program


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    """To a file and a heading that are there; where the text of a link is code, to the file that defines it."""
    links = re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", (ROOT / page).read_text(encoding="utf-8"))
    assert links
    for text, target in links:
        file, _, heading = target.partition("#")
        path = (ROOT / page).parent / file if file else ROOT / page
        if "://" not in target:
            assert path.exists(), f"{page}: {target} is not there"
            assert not heading or heading in headings(path), f"{page}: {target} has no such heading"
            name = text.strip("`").rpartition(".")[2]
            if path.suffix == ".py" and text.startswith("`") and name != "py":
                defined = re.search(rf"^ *(def|class) {name}\b", path.read_text(encoding="utf-8"), re.MULTILINE)
                assert defined, f"{page}: {target} does not define {text}"


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_no_page_names_a_commit(page: str) -> None:
    """The JSON files of the results do."""
    commit = re.compile(r"\b(?=\w*[a-f])(?=\w*\d)[0-9a-f]{7,40}\b")
    assert not commit.findall((ROOT / page).read_text(encoding="utf-8"))
