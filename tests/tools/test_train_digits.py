"""tools/train_digits.py: it trains, it writes what it says, and the network needs every operator's gradient."""

from __future__ import annotations

import copy
import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from digits_layers import Sequence, digits_network
from helpers.calls import run_any
from helpers.checkout import ROOT
from helpers.forward import Array
from helpers.reference import directional_difference
from train_digits import (
    BATCH,
    Epoch,
    Settings,
    Stopwatch,
    compile_layers,
    compiling_beside,
    load_digits,
    loss_and_gradient,
    main,
    replace_file,
    shifted,
    train,
)

import gradkern

pytestmark = pytest.mark.thorough

SCRIPT = ROOT / "tools" / "train_digits.py"
VARIANTS = [{"invertible": False, "dml": False}, {"invertible": True, "dml": True}]
FAMILIES = {"batch_norm", "bias_gelu", "conv", "dml_batch_norm", "layer_norm"}  # of the network's layers
SIBLINGS = {"InvertibleLayerNormalizationGrad", "DmlBatchNormalizationGrad"}
STEPS = {"BatchNormalizationGradSums", "BatchNormalizationGradFromSums"}  # of a batch over several devices
OTHERS = {"ConvTransposeGrad", "DmlBatchNormalizationTrainingGrad"}  # of these families, and of no layer of the network
SIBLING_OF = {"LayerNormalizationGrad", "BatchNormalizationGrad"}
AGREEMENT = 1e-9
"""|directional derivative - finite difference| / |gradient|, in float64. The difference errs by up to 1.4e-11."""


class Slopes:
    """A network in float64 away from its initial values, and its loss's slope along a random direction per array."""

    def __init__(self, variant: dict[str, bool]) -> None:
        random = np.random.default_rng(7)
        digits = load_digits("float64")
        self.images, self.labels = digits.train_images[:12], digits.train_labels[:12]
        self.network = digits_network(3, np.float64, **variant)
        self.gradients_of(self.network, gradkern.run)  # moves the running statistics: the constants of the DML variant
        for leaf in self.network.leaves():
            for value in leaf.parameters.values():
                value += 0.2 * random.standard_normal(value.shape)
        self.directions = {name: _unit(random, value.shape) for name, value in self.arrays(self.network).items()}
        self.slopes = {name: self.slope(name, direction) for name, direction in self.directions.items()}

    def arrays(self, network: Sequence) -> dict[str, Array]:
        """All that has a gradient: the images, and each layer's parameters."""
        return {"images": self.images} | {
            f"{place} {type(leaf).__name__} {name}": value
            for place, leaf in enumerate(network.leaves())
            for name, value in leaf.parameters.items()
        }

    def slope(self, name: str, direction: Array) -> float:
        array = self.arrays(self.network)[name]
        kept = array.copy()

        def loss(value: Array) -> float:
            array[...] = value
            return loss_and_gradient(self.network, self.images, self.labels, training=True)[0]

        try:
            return directional_difference(loss, kept, direction, step=3e-4)
        finally:
            array[...] = kept

    def gradients_of(self, network: Sequence, run: Callable[..., Any]) -> dict[str, Array]:
        _, dlogits = loss_and_gradient(network, self.images, self.labels, training=True)
        dimages = network.backward(dlogits, run)
        gradients = [leaf.gradients[name] for leaf in network.leaves() for name in leaf.parameters]
        return dict(zip(self.arrays(network), [dimages, *gradients], strict=True))

    def disagreement(self, run: Callable[..., Any]) -> dict[str, float]:
        """By array: how far the gradient that `run` gives is from the slope that differences gave."""
        gradients = self.gradients_of(copy.deepcopy(self.network), run)
        return {
            name: abs(float((gradient * self.directions[name]).sum()) - self.slopes[name])
            / float(np.linalg.norm(gradient))
            for name, gradient in gradients.items()
        }


def _unit(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    direction = random.standard_normal(shape)
    return direction / np.linalg.norm(direction)


@pytest.mark.parametrize("variant", VARIANTS, ids=["plain", "siblings"])
def test_the_second_process_compiles_what_the_first_step_needs(
    variant: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, digits, run = Settings(1, 0, variant["invertible"], variant["dml"]), load_digits(), gradkern.run
    kinds: set[tuple[Any, ...]] = set()

    def note(operator: Any, *inputs: Any, provider: str | None = None, **named: Any) -> Any:
        layouts = tuple((each.dtype, each.shape, each.strides) for each in inputs if each is not None)
        kinds.add((operator, layouts, str(named)))
        return run(operator, *inputs, provider=provider, **named)

    monkeypatch.setattr(gradkern, "run", note)
    compile_layers(settings, digits)
    beside, kinds = kinds, set()
    images = digits.train_images[:BATCH]
    network = digits_network(settings.seed, images.dtype, **variant)
    network.backward(loss_and_gradient(network, images, digits.train_labels[:BATCH], training=True)[1], note)
    names = {each[0] for each in kinds}
    assert {each[0] for each in beside} == names
    assert len(names) > 6
    different = kinds - beside  # the residual's sum, whose gradient has the strides of its summands
    assert len(different) <= 2, different


def test_a_first_epoch_that_takes_long_is_explained_and_the_second_process_ends_with_it() -> None:
    said: list[str] = []
    with compiling_beside(Settings(), load_digits(), said.append, after=0.0) as stop:
        for _ in range(100):
            if multiprocessing.active_children():
                break
            time.sleep(0.05)
        assert multiprocessing.active_children()
        stop()
        assert not multiprocessing.active_children()
    assert said[0].startswith("The first epoch compiles the kernels ")
    with compiling_beside(Settings(), load_digits(), said.append):
        pass
    assert len(said) == 1


@pytest.fixture(scope="module", params=VARIANTS, ids=["plain", "siblings"])
def slopes(request: pytest.FixtureRequest) -> Slopes:
    return Slopes(request.param)


def test_gradients_of_the_whole_network_agree_with_finite_differences(slopes: Slopes) -> None:
    disagreement = slopes.disagreement(gradkern.run)
    assert len(disagreement) == 15
    assert max(disagreement.values()) < AGREEMENT, disagreement


def test_a_wrong_output_of_any_operator_shows_in_the_network(slopes: Slopes) -> None:
    computed: set[tuple[str, str]] = set()

    def note(called: str, *inputs: Any, **named: Any) -> Any:
        gradients = run_any(called, *inputs, **named)
        computed.update((called, name) for name, each in gradients._asdict().items() if each is not None)
        return gradients

    slopes.disagreement(note)
    assert len(computed) > 10
    for operator, output in sorted(computed):

        def run(called: str, *inputs: Any, operator: str = operator, output: str = output, **named: Any) -> Any:
            gradients = run_any(called, *inputs, **named)
            right = getattr(gradients, output) if called == operator else None
            return gradients if right is None else gradients._replace(**{output: 1.01 * right})

        assert max(slopes.disagreement(run).values()) > 1e4 * AGREEMENT, (operator, output)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param([], id="plain"),
        pytest.param(["--invertible", "--dml"], id="siblings", marks=pytest.mark.every_kernel),
    ],
)
def quick(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], str, Path]:
    """Options, what was printed, and the folder written, of the quick form in a process of its own."""
    folder = tmp_path_factory.mktemp("digits") / "new" / "folder"
    command = [sys.executable, str(SCRIPT), "--quick", "--output", str(folder), *request.param]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return request.param, done.stdout, folder


def test_the_quick_form_reaches_its_target_with_every_operator(quick: tuple[list[str], str, Path]) -> None:
    options, _, folder = quick
    run = json.loads((folder / "run.json").read_text())

    assert run["accuracy"] == run["epochs"][-1]["test_accuracy"] >= run["config"]["target"] == 0.9
    assert run["reached_target"] is True
    assert [epoch["epoch"] for epoch in run["epochs"]] == [1, 2, 3, 4]
    assert run["epochs"][-1]["train_loss"] < run["epochs"][0]["train_loss"] / 2
    operators = {time["operator"]: time for time in run["operators"]}
    gradients = {name for name, each in gradkern.operators().items() if "Grad" in name and each.family in FAMILIES}
    assert set(operators) == gradients - STEPS - OTHERS - (SIBLING_OF if options else SIBLINGS)
    steps = 4 * (1347 // 64)
    calls = {operator: time["calls"] / steps for operator, time in operators.items()}
    assert calls.pop("ConvGrad") == 5
    assert calls.pop("BiasGeluGrad_dX") == 2
    assert set(calls.values()) == {1}
    assert all(time["total_ms"] >= time["first_ms"] > 0 < time["mean_us"] for time in run["operators"])
    assert run["versions"]["gradkern"] == gradkern.__version__


def test_the_quick_form_prints_plain_lines_when_piped(quick: tuple[list[str], str, Path]) -> None:
    _, printed, folder = quick
    run = json.loads((folder / "run.json").read_text())
    lines = printed.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("epoch")] == ["1/4", "2/4", "3/4", "4/4"]
    assert all(time["operator"] in printed for time in run["operators"])
    assert f"held-out accuracy {run['accuracy']:.2%}" in lines[-1]
    assert "\x1b" not in printed


def test_the_quick_form_writes_a_png_and_leaves_nothing_else(quick: tuple[list[str], str, Path]) -> None:
    folder = quick[2]
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert sorted(path.name for path in folder.iterdir()) == ["curves.png", "run.json"]


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--invertible", "--dml"]], ids=["plain", "siblings"])
def test_the_full_form_reaches_97_percent_in_a_minute(tmp_path: Path, options: list[str]) -> None:
    assert main(["--output", str(tmp_path), *options]) == 0
    run = json.loads((tmp_path / "run.json").read_text())
    assert run["accuracy"] >= 0.97
    assert run["seconds"] < 60


def test_a_missed_target_is_exit_code_1(tmp_path: Path) -> None:
    assert main(["--epochs", "1", "--target", "1", "--no-plot", "--output", str(tmp_path)]) == 1
    assert json.loads((tmp_path / "run.json").read_text())["reached_target"] is False
    assert not (tmp_path / "curves.png").exists()


def test_a_provider_that_is_not_there_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--quick", "--provider", "abacus", "--output", str(tmp_path)])
    assert caught.value.code == 2
    assert "--provider is 'abacus'; expected cpu or cuda" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_same_seed_gives_the_same_run() -> None:
    digits = load_digits()

    def run(seed: int) -> list[Epoch]:
        return [replace(epoch, seconds=0.0) for epoch in train(Settings(epochs=1, seed=seed), digits, Stopwatch())]

    assert run(0) == run(0) != run(1)


def test_images_are_shifted_by_up_to_one_pixel_and_filled_with_zeros() -> None:
    images = np.arange(1.0, 65.0).reshape(1, 8, 8, 1).repeat(200, axis=0)
    padded = np.pad(images[0], ((1, 1), (1, 1), (0, 0)))
    shifts = {padded[row : row + 8, column : column + 8].tobytes() for row in range(3) for column in range(3)}
    assert {image.tobytes() for image in shifted(images, np.random.default_rng(0))} == shifts


def test_a_failed_write_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    replace_file(path, b"old")

    def fail(part: Path, content: bytes) -> int:
        with part.open("wb") as file:
            file.write(content[:1])
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="disk full"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
