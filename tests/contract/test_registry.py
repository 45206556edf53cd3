"""registry.yaml: what it holds, that code and list agree, and where it is found."""

import ast
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from helpers.calls import FakeProvider, prepare_any
from helpers.checkout import ROOT

import gradkern
from gradkern.contract import registry
from gradkern.contract.axes import shape_of

OPERATORS = gradkern.operators()


def test_the_registry_has_these_operators() -> None:
    assert list(OPERATORS) == [
        "BatchNormalization",
        "BatchNormalizationFromStatistics",
        "BatchNormalizationGrad",
        "BatchNormalizationGradFromSums",
        "BatchNormalizationGradSums",
        "BatchNormalizationMergeStatistics",
        "BatchNormalizationStatistics",
        "BiasFastGelu",
        "BiasFastGeluGrad_dX",
        "BiasGelu",
        "BiasGeluGrad_dX",
        "Conv",
        "ConvGrad",
        "DmlBatchNormalizationGrad",
        "InvertibleLayerNormalizationGrad",
        "LayerNormalization",
        "LayerNormalizationGrad",
        "SimplifiedLayerNormalization",
        "SimplifiedLayerNormalizationGrad",
        "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
    ]


def test_contracts_are_read_only_all_the_way_down() -> None:
    conv = OPERATORS["ConvGrad"]
    assert isinstance(OPERATORS, MappingProxyType)
    operators: Any = OPERATORS
    with pytest.raises(TypeError, match="does not support item assignment"):
        operators["ConvGrad"] = conv
    with pytest.raises(ValueError, match="frozen"):
        conv.domain = "x"
    with pytest.raises(ValueError, match="frozen"):
        conv.inputs[0].name = "x"
    for mapping in (
        conv.types,
        conv.axes,
        conv.attributes,
        conv.providers,
        conv.combinations[0],
        conv.examples[0].axes,
    ):
        assert isinstance(mapping, MappingProxyType)
    for each in (conv.inputs, conv.outputs, conv.combinations, conv.in_place, conv.examples, conv.inputs[0].shape):
        assert isinstance(each, tuple)


def test_the_registry_is_read_once() -> None:
    assert gradkern.operators() is gradkern.operators()


@pytest.mark.parametrize("name", list(OPERATORS))
def test_every_example_and_benchmark_fits_its_own_contract(name: str, provider: FakeProvider) -> None:
    operator = OPERATORS[name]
    for example in (*operator.examples, *operator.benchmarks):
        shapes = {each.name: shape_of(each.shape, example.axes) for each in operator.inputs_of(example.axes)}
        arrays = {key: np.broadcast_to(np.float32(1), shape) for key, shape in shapes.items()}
        plan = prepare_any(name, **arrays, **example.attributes)
        assert {axis: plan.call.axes[axis] for axis in example.axes} == dict(example.axes)


# --- the registry and the code ---------------------------------------------------------------------------------------

FOLDERS = sorted(path.parent for path in (ROOT / "gradkern" / "ops").glob("*/__init__.py"))


def functions_of(module: Path) -> set[str]:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", list(OPERATORS))
def test_every_entry_has_its_code(name: str) -> None:
    operator = OPERATORS[name]
    folder = ROOT / "gradkern" / "ops" / operator.family
    assert (folder / "__init__.py").exists()
    for modules in operator.providers.values():
        for module in modules:
            assert "plan" in functions_of(folder / f"{module.replace('.', '/')}.py"), f"{module} has no function plan"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_provider_module_has_its_entry(folder: Path) -> None:
    entries = [operator for operator in OPERATORS.values() if operator.family == folder.name]
    assert entries, f"no operator is of family {folder.name}"
    listed = {module for operator in entries for modules in operator.providers.values() for module in modules}
    modules = {".".join(path.relative_to(folder).with_suffix("").parts): path for path in folder.rglob("*.py")}
    providing = {name for name, path in modules.items() if "plan" in functions_of(path)}
    assert providing == listed


def test_nothing_else_is_among_the_operators_folders() -> None:
    strays = [
        path.name
        for path in (ROOT / "gradkern" / "ops").iterdir()
        if path.name not in {"__init__.py", "__pycache__"} and path not in FOLDERS
    ]
    assert not strays


# --- where it is -----------------------------------------------------------------------------------------------------


def test_a_checkout_reads_the_registry_at_its_top() -> None:
    assert registry.path() == ROOT / "registry.yaml"


def test_an_installed_package_reads_the_registry_inside_it(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "gradkern", tmp_path / "gradkern", ignore=shutil.ignore_patterns("__pycache__"))
    inside = registry.path().read_text().replace("  ConvGrad:", "  AnotherGrad:")
    (tmp_path / "gradkern" / "registry.yaml").write_text(inside)
    (tmp_path / "registry.yaml").write_text("not this one")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import gradkern; print(*gradkern.operators())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split()[0] == "AnotherGrad"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("hatchling") is None, reason="hatchling, which builds the wheel, is not installed")
def test_the_wheel_holds_the_registry(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("gradkern/registry.yaml") == (ROOT / "registry.yaml").read_bytes()
        assert not [name for name in archive.namelist() if name.startswith(("tests/", "tools/"))]
