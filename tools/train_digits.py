#!/usr/bin/env python3
"""Train a small convolutional network on handwritten digits; every gradient comes from gradkern.run.

The data are the UCI handwritten digits that scikit-learn ships: 1797 images of 8x8 pixels, a quarter of them held out.
Writes run.json and curves.png. The exit code is 0 when the network reaches the target accuracy on held-out digits, 1
when it does not, 2 when it could not run. The network is in digits_layers.py.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import platform
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from digits_layers import Adam, Array, Layer, cross_entropy, digits_network

import gradkern

BATCH = 64
RATE = 6e-3
DECAY = 0.02


@dataclass(frozen=True)
class Settings:
    epochs: int = 25
    seed: int = 0
    invertible: bool = False
    dml: bool = False
    provider: str | None = None
    target: float = 0.97


@dataclass(frozen=True)
class Epoch:
    """Loss and accuracy after an epoch, except train_loss: the mean over its batches, of shifted images."""

    epoch: int
    train_loss: float
    train_accuracy: float
    test_loss: float
    test_accuracy: float
    seconds: float


@dataclass(frozen=True)
class Digits:
    """Images (images, 8, 8, 1) in [0, 1] and labels. The split is the same whatever the seed of a run."""

    train_images: Array
    train_labels: Array
    test_images: Array
    test_labels: Array


def load_digits(dtype: str = "float32") -> Digits:
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    pixels, labels = datasets.load_digits(return_X_y=True)
    images = (pixels / 16).astype(dtype).reshape(-1, 8, 8, 1)
    train, test = train_test_split(np.arange(len(labels)), test_size=0.25, stratify=labels, random_state=0)
    return Digits(images[train], labels[train], images[test], labels[test])


@dataclass
class Stopwatch:
    """gradkern.run, and how long each operator's calls took."""

    provider: str | None = None
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def run(self, operator: Any, *inputs: Any, **named: Any) -> Any:
        start = perf_counter()
        gradients = gradkern.run(operator, *inputs, provider=self.provider, **named)
        self.seconds[operator].append(perf_counter() - start)
        return gradients

    def summary(self) -> list[dict[str, Any]]:
        """Slowest operator first. The mean leaves out the first call, which loads or compiles the kernels."""
        return [
            {
                "operator": operator,
                "calls": len(times),
                "total_ms": 1e3 * sum(times),
                "first_ms": 1e3 * times[0],
                "mean_us": 1e6 * float(np.mean(times[1:] or times)),
            }
            for operator, times in sorted(self.seconds.items(), key=lambda item: -sum(item[1]))
        ]


def train(settings: Settings, digits: Digits, watch: Stopwatch) -> Iterator[Epoch]:
    """Adam on batches of shifted images, its rate falling from RATE to 0 along a cosine."""
    random = np.random.default_rng([settings.seed, 1])
    network = digits_network(settings.seed, digits.train_images.dtype, invertible=settings.invertible, dml=settings.dml)
    adam = Adam(network, decay=DECAY)
    batches = len(digits.train_images) // BATCH
    for epoch in range(settings.epochs):
        # These matrices are too small for a second BLAS thread, and on a busy machine waiting for it takes far longer
        # than working alone: 45 ms against 2 for a ConvGrad. One thread also means one order of every sum.
        with threadpool_limits(1, user_api="blas"):
            start, losses = perf_counter(), []
            order = random.permutation(len(digits.train_images))[: batches * BATCH]
            for batch, chosen in enumerate(order.reshape(batches, BATCH)):
                images = shifted(digits.train_images[chosen], random)
                loss, dlogits = loss_and_gradient(network, images, digits.train_labels[chosen], training=True)
                network.backward(dlogits, watch.run)
                progress = (epoch * batches + batch) / (settings.epochs * batches)
                adam.step(RATE * 0.5 * (1 + np.cos(np.pi * progress)))
                losses.append(loss)
            train_accuracy = evaluate(network, digits.train_images, digits.train_labels)[1]
            test_loss, test_accuracy = evaluate(network, digits.test_images, digits.test_labels)
            seconds = perf_counter() - start
        yield Epoch(epoch + 1, float(np.mean(losses)), train_accuracy, test_loss, test_accuracy, seconds)


def compile_layers(settings: Settings, digits: Digits) -> None:
    """Have gradkern compile the kernels of the network's layers, from the first layer on. Training needs the gradients
    of the last one first, so that a process which does this meanwhile has half of them ready.
    """
    images = digits.train_images[:BATCH]
    network = digits_network(settings.seed, images.dtype, invertible=settings.invertible, dml=settings.dml)
    with suppress(gradkern.GradkernError):  # training meets the same error, and says it
        for layer in network.leaves():
            images = layer.forward(images, training=True)
            layer.backward(images, partial(gradkern.run, provider=settings.provider))


@contextmanager
def compiling_beside(
    settings: Settings, digits: Digits, say: Callable[[str], None], after: float = 1.0
) -> Iterator[Callable[[], None]]:
    """Where the first epoch takes longer than `after` seconds, say why, and compile in a second process, too. Gives a
    function to call when the epoch is over.
    """
    process = multiprocessing.get_context("spawn").Process(target=compile_layers, args=(settings, digits), daemon=True)

    def begin() -> None:
        say(
            "The first epoch compiles the kernels that gradkern's cache does not have yet, in two processes."
            " That takes up to half a minute, and happens once."
        )
        with suppress(OSError):  # no second process: this one compiles alone
            process.start()

    timer = threading.Timer(after, begin)

    def stop() -> None:
        timer.cancel()
        timer.join()
        if process.is_alive():
            process.terminate()
            process.join()

    timer.start()
    try:
        yield stop
    finally:
        stop()


def loss_and_gradient(network: Layer, images: Array, labels: Array, *, training: bool) -> tuple[float, Array]:
    """The loss, and its gradient with respect to the network's output."""
    output = network.forward(images, training)
    loss, gradient = cross_entropy(output.reshape(len(images), -1), labels)
    return loss, gradient.reshape(output.shape)


def evaluate(network: Layer, images: Array, labels: Array) -> tuple[float, float]:
    """Loss and accuracy."""
    logits = network.forward(images, training=False).reshape(len(images), -1)
    return cross_entropy(logits, labels)[0], float((logits.argmax(1) == labels).mean())


def shifted(images: Array, random: np.random.Generator) -> Array:
    """Each image moved by up to one pixel each way; what moves in is empty."""
    count, size = images.shape[:2]
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    rows, columns = random.integers(0, 3, (2, count, 1)) + np.arange(size)
    return padded[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]


@contextmanager
def reporting(console: Console, epochs: int) -> Iterator[tuple[Callable[[Epoch], None], Callable[[str], None]]]:
    """Functions to call after each epoch and with a remark: a progress bar on a terminal, plain lines elsewhere."""

    def line(epoch: Epoch) -> str:
        return f"loss {epoch.train_loss:.4f}  train {epoch.train_accuracy:.2%}  held out {epoch.test_accuracy:.2%}"

    if not console.is_terminal:
        tell = partial(print, flush=True)
        yield lambda epoch: tell(f"epoch {epoch.epoch:3d}/{epochs}  {line(epoch)}  {epoch.seconds:.2f} s"), tell
        return
    columns = (
        TextColumn("epoch"),
        MofNCompleteColumn(),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=epochs)
        yield lambda epoch: progress.update(task, advance=1, description=line(epoch)), progress.console.print


def operator_table(summary: list[dict[str, Any]]) -> Table:
    table = Table("gradient operator", box=None)
    for title in ("calls", "total ms", "first ms", "then mean us"):
        table.add_column(title, justify="right")
    for time in summary:
        table.add_row(
            time["operator"], str(time["calls"]), *(f"{time[key]:.1f}" for key in ("total_ms", "first_ms", "mean_us"))
        )
    return table


def curves(epochs: list[Epoch], target: float) -> bytes:
    """Loss and accuracy by epoch, as a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    loss, accuracy = figure.subplots(1, 2)
    numbers = [each.epoch for each in epochs]
    for axes, what in ((loss, "loss"), (accuracy, "accuracy")):
        axes.plot(numbers, [getattr(each, f"train_{what}") for each in epochs], ".-", label="training")
        axes.plot(numbers, [getattr(each, f"test_{what}") for each in epochs], ".-", label="held out")
        axes.set(xlabel="epoch", ylabel=what)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    loss.set_yscale("log")
    accuracy.axhline(target, color="grey", linestyle="--", label=f"target {target:g}")
    loss.legend(loc="upper right")
    accuracy.legend(loc="lower right")
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=120)
    return image.getvalue()


def replace_file(path: Path, content: bytes) -> None:
    """Readers see the old file or the new one, never a part."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("numpy", "numba", "scikit-learn")}
    return {"gradkern": gradkern.__version__, "python": platform.python_version(), **packages}


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="train_digits.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, help="passes over the training digits (25; with --quick 4)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, order and shifts; same seed, same run (0)")
    parser.add_argument("--target", type=float, help="held-out accuracy to reach (0.97; with --quick 0.90)")
    parser.add_argument("--quick", action="store_true", help="a short run, for tests")
    parser.add_argument(
        "--invertible",
        action="store_true",
        help="InvertibleLayerNormalizationGrad instead of LayerNormalizationGrad: the same gradient, found from the "
        "layer's output, (y - bias) / scale, instead of from its input",
    )
    parser.add_argument(
        "--dml",
        action="store_true",
        help="DmlBatchNormalizationGrad instead of BatchNormalizationGrad: mean and variance are constants to it, "
        "no gradient goes through them; so the layer normalizes by running statistics in training, too",
    )
    parser.add_argument("--provider", help="gradkern's provider; by default the one of the arrays' device")
    parser.add_argument(
        "--output", type=Path, default=Path("results/digits"), metavar="FOLDER", help="made if need be (%(default)s)"
    )
    parser.add_argument("--no-plot", action="store_true", help="write no curves.png")
    args = parser.parse_args(argv)
    args.epochs = args.epochs if args.epochs is not None else 4 if args.quick else Settings.epochs
    args.target = args.target if args.target is not None else 0.9 if args.quick else Settings.target
    if args.epochs < 1 or args.seed < 0 or not 0 <= args.target <= 1:
        parser.error("--epochs is 1 or more, --seed 0 or more, --target from 0 to 1")
    providers = sorted({name for each in gradkern.operators().values() for name in each.providers})
    if args.provider not in (None, *providers):
        parser.error(f"--provider is {args.provider!r}; expected {' or '.join(providers)}")
    return args


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    settings = Settings(args.epochs, args.seed, args.invertible, args.dml, args.provider, args.target)
    watch, epochs = Stopwatch(args.provider), []
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 100)
    say = partial(console.print, soft_wrap=True)
    start = perf_counter()
    try:
        args.output.mkdir(parents=True, exist_ok=True)
        digits = load_digits()
        with reporting(console, settings.epochs) as (report, tell), compiling_beside(settings, digits, tell) as stop:
            for epoch in train(settings, digits, watch):
                stop()
                epochs.append(epoch)
                report(epoch)
        accuracy, seconds = epochs[-1].test_accuracy, perf_counter() - start
        run = {
            "schema": 1,
            "config": asdict(settings),
            "accuracy": accuracy,
            "reached_target": accuracy >= settings.target,
            "seconds": seconds,
            "epochs": [asdict(epoch) for epoch in epochs],
            "operators": watch.summary(),
            "versions": versions(),
        }
        replace_file(args.output / "run.json", (json.dumps(run, indent=2) + "\n").encode())
        if not args.no_plot:
            replace_file(args.output / "curves.png", curves(epochs, settings.target))
    except (gradkern.GradkernError, OSError) as error:
        print(f"train_digits.py: {error}", file=sys.stderr)
        return 2
    console.print(operator_table(run["operators"]))
    say(f"run.json{'' if args.no_plot else ' and curves.png'} in {args.output}")
    reached = "reached" if run["reached_target"] else "missed"
    say(f"held-out accuracy {accuracy:.2%} in {seconds:.1f} s; target {settings.target:.2%} {reached}")
    return 0 if run["reached_target"] else 1


if __name__ == "__main__":
    sys.exit(main())
