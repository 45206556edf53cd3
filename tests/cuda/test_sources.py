"""The sources that a kernel's key is made of are those that it imports: no fewer, or stale kernels are taken for new
ones, and no host code, or every change recompiles everything.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatchcase
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

import gradkern
from gradkern.cuda import cache as kernel_cache
from gradkern.system import sources

PACKAGE = Path(gradkern.__file__).parent
COMPILER = "gradkern.cuda.compile"
HOST = ("launch", "scratch", "device", "plan", "tiling", "candidates", "bench", "tuner", "cache", "rows", "im2col")

needs_compiler = pytest.mark.skipif(find_spec("numba_cuda") is None, reason="numba-cuda is not installed")


MODULES = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in PACKAGE.rglob("*.py")]


@cache
def builders() -> list[str]:
    """The modules of all builders that are strings in the sources, also of those whose names are put together."""
    texts = (path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    named = [text for text in texts if re.search(r"gradkern[.\w{}\[\]]+:", text)]  # parsing all takes five seconds
    nodes = [node for text in named for node in ast.walk(ast.parse(text))]
    parts = [[node] for node in nodes if isinstance(node, ast.Constant)]
    parts += [node.values for node in nodes if isinstance(node, ast.JoinedStr)]
    texts = (
        "".join(str(getattr(each, "value", "")) if isinstance(each, ast.Constant) else "*" for each in strings)
        for strings in parts
    )
    names = {text.partition(":")[0] for text in texts if re.fullmatch(r"gradkern[.\w*]+:[\w*]*", text)}
    return sorted({each for name in names for each in MODULES if fnmatchcase(each, name)})


def path_of(module: str, root: Path) -> Path:
    path = root.joinpath(*module.split("."), "__init__.py")
    return path if path.is_file() else path.parent.with_suffix(".py")


IMPORT_EACH = """
import importlib, os, sys
import gradkern, numba.cuda
before = {*sys.modules}
for module in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        importlib.import_module(module)
        print(module, *{*sys.modules} - before, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, module
"""


@pytest.fixture(scope="module")
def loaded() -> dict[str, set[str]]:
    """Modules of gradkern, packages apart, that Python has loaded when it has imported a builder's and nothing else.

    Each is imported by a fork of one process, which has imported what is slow.
    """
    command = [sys.executable, "-c", IMPORT_EACH, *builders(), COMPILER]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, set[str]] = {}
    for line in done.stdout.splitlines():
        module, *others = line.split()
        ours = {each for each in others if each.startswith("gradkern.")}
        found[module] = {each for each in ours if path_of(each, PACKAGE.parent).name != "__init__.py"}
    return found


def imported(path: Path, root: Path) -> set[str]:
    """What Python's parser says a file imports of gradkern, at its top or in a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names if each.name.partition(".")[0] == "gradkern"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "gradkern":
            for each in node.names:
                submodule = f"{node.module}.{each.name}"
                found.add(submodule if path_of(submodule, root).is_file() else str(node.module))
        assert not (isinstance(node, ast.ImportFrom) and node.level), "imports are absolute"
    return found


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, whose files a test may change for a while."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(PACKAGE, folder / "gradkern", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def other_host_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other")
    shutil.copytree(PACKAGE, folder / "gradkern", ignore=shutil.ignore_patterns("__pycache__"))
    changed = [path for path in folder.rglob("*.py") if path.stem in HOST]
    assert {path.stem for path in changed} == set(HOST)
    for path in changed:
        path.write_text(path.read_text(encoding="utf-8") + "\n# changed", encoding="utf-8")
    return folder


def digest(module: str, root: Path) -> str:
    for each in (sources.digest, sources._imports):
        each.cache_clear()
    return sources.digest(module, COMPILER, root=root)


def test_every_kernel_is_built_or_is_part_of_one_that_is() -> None:
    kernels = {each for each in MODULES if re.fullmatch(r"gradkern\.(ops\.\w+\.cuda|kernels)\.(\w+\.)*\w*kernel", each)}
    assert kernels
    assert kernels <= set(sources.closure(*builders()))


@needs_compiler
@pytest.mark.thorough
@pytest.mark.parametrize("module", builders())
def test_a_change_of_any_file_that_a_kernel_module_imports_gives_a_new_key(
    module: str, copy: Path, loaded: dict[str, set[str]]
) -> None:
    before = digest(module, copy)
    assert before == digest(module, PACKAGE.parent)  # wherever the package lies
    needed = loaded[module] | loaded[COMPILER]
    assert module in needed
    for each in needed:
        path = path_of(each, copy)
        text = path.read_text(encoding="utf-8")
        try:
            path.write_text(text + "\n# changed", encoding="utf-8")
            assert digest(module, copy) != before, each
        finally:
            path.write_text(text, encoding="utf-8")
    assert digest(module, copy) == before


@pytest.mark.parametrize("module", builders())
def test_host_code_is_in_no_key(module: str, other_host_code: Path) -> None:
    assert digest(module, other_host_code) == digest(module, PACKAGE.parent)
    for each in sources.closure(module, COMPILER):
        assert "cuda.bindings" not in path_of(each, PACKAGE.parent).read_text(encoding="utf-8"), each


def test_imports_are_found_as_the_parser_finds_them() -> None:
    root = PACKAGE.parent
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        assert set(sources._imports(module, root)) == imported(path, root), module


def test_imports_in_every_shape_are_found(tmp_path: Path) -> None:
    package = tmp_path / "gradkern" / "inner"
    package.mkdir(parents=True)
    for name in ("gradkern", "gradkern/inner"):
        (tmp_path / name / "__init__.py").write_text("name = 1\n")
    for name in "abcd":
        (package / f"{name}.py").write_text("thing = 1\n")
    text = "import gradkern.inner.a\nfrom gradkern.inner import (  # d\n    b as other,\n    name,\n)\n"
    (tmp_path / "gradkern" / "kernel.py").write_text(text + "def f():\n    from gradkern.inner.c import thing, more\n")
    found = sources.closure("gradkern.kernel", root=tmp_path)
    assert found == ["gradkern.inner", "gradkern.inner.a", "gradkern.inner.b", "gradkern.inner.c", "gradkern.kernel"]


def test_the_key_is_of_sources_constants_and_device(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "gradkern.ops.layer_norm.cuda.kernel"
    keys = {kernel_cache.key_of(module, config, capability) for config in ("a", "b") for capability in ((8, 0), (9, 0))}
    keys.add(kernel_cache.key_of("gradkern.ops.bias_gelu.cuda.kernel", "a", (8, 0)))
    monkeypatch.setattr(sources, "digest", lambda *modules: "other sources")
    keys.add(kernel_cache.key_of(module, "a", (8, 0)))
    assert len(keys) == 6


def test_a_folder_of_an_older_version_beside_a_module_is_passed_over(tmp_path: Path) -> None:
    package = tmp_path / "gradkern"
    (package / "kernel" / "__pycache__").mkdir(parents=True)
    (package / "kernel.py").write_text("from gradkern import loads\n")
    (package / "loads.py").write_text("")
    assert sources.closure("gradkern.kernel", root=tmp_path) == ["gradkern.kernel", "gradkern.loads"]
