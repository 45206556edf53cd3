"""registry.yaml: what it holds, that code and list agree, and where it is found."""

import ast
import pickle
import shutil
import subprocess
import sys
import zipfile
from dataclasses import FrozenInstanceError
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from helpers.calls import FakeProvider, prepare_any
from helpers.checkout import ROOT
from helpers.toys import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gradkern
from gradkern.contract import checked, reading, registry
from gradkern.contract.samples import inputs_of
from gradkern.contract.schema import shape_of

OPERATORS = gradkern.operators()


def test_the_registry_has_these_operators() -> None:
    assert list(OPERATORS) == [
        "AdaptiveAveragePoolGrad",
        "AveragePoolGrad",
        "BatchNormalization",
        "BatchNormalizationFromStatistics",
        "BatchNormalizationGrad",
        "BatchNormalizationGradFromSums",
        "BatchNormalizationGradSums",
        "BatchNormalizationMergeStatistics",
        "BatchNormalizationStatistics",
        "BatchScale",
        "BiasFastGelu",
        "BiasFastGeluGrad_dX",
        "BiasGelu",
        "BiasGeluGrad_dX",
        "BitmaskDropoutGrad",
        "Conv",
        "ConvGrad",
        "ConvTranspose",
        "ConvTransposeGrad",
        "CrossEntropy",
        "DivGrad",
        "DmlActivationReluGrad",
        "DmlAveragePoolingGrad",
        "DmlBatchNormalizationGrad",
        "DmlBatchNormalizationTrainingGrad",
        "DmlElementWiseClipGrad",
        "DmlElementWiseClipGrad1",
        "DmlLocalResponseNormalizationGrad",
        "DmlMaxPoolingGrad",
        "DmlResampleGrad",
        "DmlResampleGrad1",
        "DmlRoiAlignGrad",
        "DmlSliceGrad",
        "DropoutGrad",
        "FakeQuantGrad",
        "FastGeluGrad",
        "FlattenAndUnpad",
        "GatherElementsGrad",
        "GatherGrad",
        "GatherNDGrad",
        "GeGLU",
        "GeGLUGrad",
        "GeluGrad",
        "GlobalAveragePoolGrad",
        "GroupNorm",
        "GroupNormGrad",
        "GroupNormalization",
        "InstanceNormalization",
        "InvertibleLayerNormalizationGrad",
        "IsAllFinite",
        "IsFinite",
        "LayerNormalization",
        "LayerNormalizationGrad",
        "LeakyReluGrad",
        "LinearCrossEntropy",
        "LogSoftmaxGrad",
        "LogSoftmaxGrad_13",
        "MaxPool",
        "MaxPoolGrad",
        "MixedPrecisionScale",
        "PadAndUnflatten",
        "QuickGeluGrad",
        "ReduceAllL2",
        "ReluGrad",
        "ResizeGrad",
        "RotaryEmbedding",
        "RotaryEmbeddingGrad",
        "Scale",
        "ScaledSum",
        "SigmoidGrad",
        "SimplifiedLayerNormalization",
        "SimplifiedLayerNormalizationGrad",
        "SkipGroupNorm",
        "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
        "SliceGrad",
        "SoftmaxCrossEntropy",
        "SoftmaxCrossEntropyGrad",
        "SoftmaxCrossEntropyLoss",
        "SoftmaxCrossEntropyLossGrad",
        "SoftmaxCrossEntropyLossInternal",
        "SoftmaxCrossEntropyLossInternalGrad",
        "SoftmaxDropoutGrad",
        "SoftmaxGrad",
        "SoftmaxGrad_13",
        "SparseSoftmaxCrossEntropy",
        "SparseSoftmaxCrossEntropyGrad",
        "SwiGLU",
        "SwiGLUGrad",
        "TanhGrad",
    ]


def test_contracts_are_read_only_all_the_way_down() -> None:
    conv = OPERATORS["ConvGrad"]
    assert isinstance(OPERATORS, MappingProxyType)
    operators: Any = OPERATORS
    with pytest.raises(TypeError, match="does not support item assignment"):
        operators["ConvGrad"] = conv
    for each, name in ((conv, "domain"), (conv.inputs[0], "name")):
        with pytest.raises(FrozenInstanceError):
            setattr(each, name, "x")
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


def test_contracts_can_be_pickled() -> None:
    for operator in OPERATORS.values():
        assert pickle.loads(pickle.dumps(operator)) == operator
        assert isinstance(pickle.loads(pickle.dumps(operator)).axes, MappingProxyType)


# --- made before -----------------------------------------------------------------------------------------------------


def test_the_contracts_that_were_made_before_are_those_of_registry_yaml() -> None:
    data = registry.path().read_bytes()
    assert registry.digest(data) == checked.DIGEST
    assert dict(reading.read(data.decode())) == checked.OPERATORS == dict(OPERATORS)


@pytest.mark.parametrize("code", ["gradkern.operators()", "from gradkern import cli; cli.main(['ops', 'ConvGrad'])"])
def test_the_registry_is_neither_parsed_nor_checked_again(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", loaded_by(code)], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []


def test_a_call_parses_and_checks_no_registry() -> None:
    code = (
        "import numpy; x = numpy.ones((2, 3), 'f4');"
        "gradkern.run('SimplifiedLayerNormalizationGrad', x, x, x[0], x[:, 0])"
    )
    done = subprocess.run([sys.executable, "-c", loaded_by(code)], capture_output=True, text=True, check=True)
    assert done.stderr.split() == ["numpy"]


def loaded_by(code: str) -> str:
    found = "sorted({'pydantic', 'ruamel.yaml', 'numpy'} & {*sys.modules})"
    return f"import sys, gradkern; {code}; print(*{found}, file=sys.stderr)"


def test_a_changed_registry_is_read_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = registry.path().read_text()
    (tmp_path / "registry.yaml").write_text(f"{text}# a remark\n")
    monkeypatch.setattr(registry, "path", lambda: tmp_path / "registry.yaml")
    found = registry.operators.__wrapped__()
    assert found["ConvGrad"] is not OPERATORS["ConvGrad"]
    assert dict(found) == dict(OPERATORS)
    (tmp_path / "registry.yaml").write_text(text.replace("family: conv", "familie: conv"))
    with pytest.raises(gradkern.RegistryError, match=r"operators\.Conv\.familie: unknown key"):
        registry.operators.__wrapped__()
    (tmp_path / "registry.yaml").write_bytes(b"schema: 1\n# \xff\n")
    with pytest.raises(gradkern.RegistryError, match=r"^registry\.yaml:2: registry: is no UTF-8: invalid start byte$"):
        registry.operators.__wrapped__()


@pytest.mark.parametrize("name", list(OPERATORS))
def test_every_example_and_benchmark_fits_its_own_contract(name: str, provider: FakeProvider) -> None:
    operator = OPERATORS[name]
    for example in (*operator.examples, *operator.benchmarks):
        arrays = {
            each.name: np.broadcast_to(
                np.ones((), operator.combinations[0][each.type]), shape_of(each.shape, example.axes)
            )
            for each in operator.inputs_of(example.axes, example.attributes)
        }
        plan = prepare_any(name, **arrays, **example.attributes)
        assert {axis: plan.call.axes[axis] for axis in example.axes} == dict(example.axes)


SIZED_ALONE = [
    name
    for name, each in OPERATORS.items()
    if each.family not in ("conv", "batch_norm", "gather", "pooling", "resize", "rotary_embedding")
]
"""Operators whose families ask no more of sizes than the registry says."""


@pytest.mark.thorough
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_arrays_of_any_sizes_that_agree_are_taken(provider: FakeProvider, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(SIZED_ALONE))
    operator = OPERATORS[name]
    example = data.draw(examples(operator))
    row = data.draw(st.sampled_from(operator.combinations))
    arrays = inputs_of(operator, row, example, np.random.default_rng(0))
    types = {key: row[each.binds] for key, each in operator.attributes.items() if each.binds}
    plan = prepare_any(name, **arrays, **types, **example.attributes)
    assert {axis: plan.call.axes[axis] for axis in example.axes} == dict(example.axes)


def test_an_axis_that_equals_a_group_of_no_dimensions_has_one_element(provider: FakeProvider) -> None:
    one = np.ones((), np.float32)
    assert prepare_any("MixedPrecisionScale", S=one, X=one).call.axes["elements"] == 1


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
    inside = registry.path().read_text().replace("  ConvGrad:", "  AGrad:")
    (tmp_path / "gradkern" / "registry.yaml").write_text(inside)
    (tmp_path / "registry.yaml").write_text("not this one")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import gradkern; print(*gradkern.operators())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split()[0] == "AGrad"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("hatchling") is None, reason="hatchling, which builds the wheel, is not installed")
def test_the_wheel_holds_the_registry(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("gradkern/registry.yaml") == (ROOT / "registry.yaml").read_bytes()
        assert not [name for name in archive.namelist() if name.startswith(("tests/", "tools/"))]
