"""Importing gradkern costs nothing until something is used."""

import ast
import importlib
import pydoc
import subprocess
import sys
from collections.abc import Iterator

import pytest
from helpers.checkout import ROOT

import gradkern
from gradkern import errors

LOADED = (  # not what was there before: the .pth files of cuda-bindings and numba-cuda load modules at every start
    "import sys; before = {{*sys.modules}}; import {module}; "
    "print(*sorted(each.partition('.')[0] for each in {{*sys.modules}} - before))"
)
HEAVY = {"numpy", "numba", "ml_dtypes", "pydantic", "ruamel", "rich", "torch", "jax", "cuda", "llvmlite", "scipy"}


def roots_after_import(module: str) -> set[str]:
    code = LOADED.format(module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_gradkern_loads_nothing_but_the_standard_library() -> None:
    assert not roots_after_import("gradkern") & HEAVY


def test_importing_the_dispatcher_loads_neither_numba_nor_a_framework() -> None:
    assert not roots_after_import("gradkern.dispatch.run") & {"numba", "llvmlite", "torch", "cuda", "rich"}


def test_importing_the_command_line_loads_no_arrays() -> None:
    assert not roots_after_import("gradkern.cli") & {"numpy", "numba", "llvmlite", "torch", "cuda"}


def modules_named_in_strings() -> Iterator[tuple[str, str]]:
    """Where a function that imports gets the name of one of gradkern's modules as it stands, and that name."""
    for path in sorted((ROOT / "gradkern").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("import_module", "load") and node.args:
                name = getattr(node.args[0], "value", None)
                if isinstance(name, str) and name.startswith("gradkern."):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", name


def test_what_is_imported_by_a_string_is_there() -> None:
    """Some of it is imported only where another package is, such as torchvision, which tests do without."""
    named = dict(modules_named_in_strings())
    assert named
    for place, name in named.items():
        path = ROOT.joinpath(*name.split("."))
        assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), f"{place}: there is no {name}"


@pytest.mark.parametrize("name", gradkern.__all__)
def test_every_public_name_can_be_imported_and_is_listed(name: str) -> None:
    assert getattr(gradkern, name) is not None
    assert name in dir(gradkern)


@pytest.mark.parametrize(
    "module", ["gradkern", pytest.param("gradkern.torch", marks=pytest.mark.torch), "gradkern.results"]
)
def test_the_names_of_a_package_are_its_public_names(module: str) -> None:
    """Also when everything has been imported and used."""
    modules = {"jax", "onnx", "results", "torch"}
    named = {"gradkern": modules, "gradkern.results": set(gradkern.operators())}.get(module, set())
    package = importlib.import_module(module)
    assert {name for name in dir(package) if not name.startswith("__")} == {*package.__all__, *named}


@pytest.mark.torch
def test_gradkern_torch_needs_no_import_of_its_own() -> None:
    code = "import gradkern; print(gradkern.torch.is_enabled(), gradkern.results.ConvGrad._fields)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False ('dX', 'dW', 'dB')\n"


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_a_module_whose_library_is_missing_says_so(name: str) -> None:
    code = f"import sys; sys.modules[{name!r}] = None; import gradkern; hasattr(gradkern, {name!r}) or gradkern.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"AttributeError: gradkern.{name} needs {name}, which is not installed" in done.stderr


def test_public_names_are_sorted_and_all_errors_are_among_them() -> None:
    assert list(gradkern.__all__) == sorted(gradkern.__all__)
    assert set(errors.__all__) <= set(gradkern.__all__)


def test_help_begins_with_a_page_of_all_public_names() -> None:
    page = pydoc.plain(pydoc.render_doc(gradkern)).partition("PACKAGE CONTENTS")[0]
    assert len(page.splitlines()) <= 45
    described = {line.split()[0] for line in page.splitlines() if line.strip()}
    classes = {"GradkernError", "Operator", "Policy", "Prepared"}  # named in the lines of others
    assert set(gradkern.__all__) - classes <= described
    assert all(name in page for name in classes)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'gradkern' has no attribute 'bake'$"):
        getattr(gradkern, "bake")  # noqa: B009  type checkers know that it is not there


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (gradkern.UnknownOperatorError, ValueError),
        (gradkern.ArgumentError, TypeError),
        (gradkern.DTypeError, TypeError),
        (gradkern.ShapeError, ValueError),
        (gradkern.AttributeValueError, ValueError),
        (gradkern.DataError, ValueError),
        (gradkern.DeviceError, ValueError),
        (gradkern.OutputError, ValueError),
        (gradkern.PolicyError, ValueError),
        (gradkern.ProviderError, RuntimeError),
        (gradkern.RegistryError, ValueError),
        (gradkern.GraphError, ValueError),
    ],
)
def test_every_error_is_also_the_one_python_programmers_expect(error: type, builtin: type) -> None:
    assert issubclass(error, gradkern.GradkernError)
    assert issubclass(error, builtin)
