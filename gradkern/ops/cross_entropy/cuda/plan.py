"""Cross entropy on a GPU: rows of the row block, and sums over rows where a mean or a sum is wanted.

The loss and its gradient take one reading of the logits and one writing. A mean divides by a sum of weights, so a small
kernel adds these up before; another adds up the losses of the rows behind. Nothing is read on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from gradkern.call import Call, Refusal
from gradkern.cuda.device import Device, activate, check, in_turn
from gradkern.cuda.device_code.columns import round_up
from gradkern.cuda.launch import Launch, kernel_of, named
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat
from gradkern.cuda.scratch import scratch
from gradkern.kernels.rows.config import configs
from gradkern.kernels.rows.plan import launch_of
from gradkern.kernels.rows.problem import RowsTypes, problem_of
from gradkern.ops.cross_entropy.cuda.config import ARGUMENTS, BLOCK, EXACT_LABELS, MOST_BLOCKS, LossConfig
from gradkern.ops.cross_entropy.roles import Roles, roles_of

driver: Any = import_module("cuda.bindings.driver")  # it has no types

__all__ = ["plan"]

_FACTORS = 64  # bytes: of the gradient and of the loss, the sum of the weights of all classes
_PARTIALS = 16 * MOST_BLOCKS
_ROWS_OF_A_BLOCK = 8 * BLOCK  # of sums


@dataclass(frozen=True, slots=True)
class LossPlan:
    """Launches in turn, each with the places of its arguments among inputs, numbers, outputs and scratch memory."""

    kernel: str
    scratch: int
    launches: tuple[Launch, ...]
    places: tuple[tuple[int, ...], ...]
    device: Device
    copied: tuple[int, int, int] | None  # places of an output and of its copy, and bytes

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        counter, buffer = scratch(self.device, stream, self.scratch) if self.scratch else (0, 0)
        partials = buffer + _FACTORS
        own = (buffer, buffer + 16, partials, partials + _PARTIALS, counter)
        values = (*inputs, *outputs, *own)
        with in_turn:
            for launch, places in zip(self.launches, self.places, strict=True):
                launch([values[place] for place in places], stream)
        if self.copied is not None:
            source, target, size = self.copied
            with activate(self.device):
                check(driver.cuMemcpyDtoDAsync(values[target], values[source], size, stream), "copying losses")


def plan(call: Call) -> LossPlan | EmptyPlan:
    roles, device = roles_of(call), device_of(call)
    data = call.inputs[roles.data]
    if 0 in data.shape:
        return EmptyPlan("empty", 0, device, tuple(each.nbytes for each in call.outputs.values()))
    tensors = {**call.inputs, **call.outputs}
    columns = data.shape[roles.axis]
    if columns >= EXACT_LABELS:
        raise Refusal(f"{columns} classes are more than the {EXACT_LABELS} of its kernels")
    large = [each for each in (roles.data, roles.probabilities, roles.bias, roles.log_prob, roles.gradient) if each]
    for name, tensor in tensors.items():
        if name not in large:
            require_flat(name, tensor)
    strides = [step for n, step in enumerate(data.strides) if n != roles.axis and data.shape[n] > 1]
    if strides != sorted(strides, reverse=True):
        raise Refusal(f"{roles.data}: its rows are in another order in memory than the labels; pass contiguous copies")
    loss = _config(call, roles)
    return _Steps(call, roles, loss, device, large).plan()


def _config(call: Call, roles: Roles) -> LossConfig:
    attributes = call.attributes
    weight = roles.class_weight or roles.row_weight
    upstream = call.inputs[roles.upstream] if roles.upstream else None
    smoothing = attributes.get("label_smoothing", 0.0)
    dense = roles.labels is None
    if roles.entropy and (smoothing or dense):
        raise Refusal("entropy is for labels without label_smoothing")
    return LossConfig(
        labels="" if roles.labels is None else call.inputs[roles.labels].dtype.name,
        weight="" if weight is None or dense else call.inputs[weight].dtype.name,
        by_rows=roles.row_weight is not None,
        upstream="" if upstream is None else upstream.dtype.name,
        each=upstream is not None and bool(upstream.shape),
        mean=attributes["reduction"] == "mean",
        ignores="ignore_index" in call.scalars or attributes.get("ignore_index") is not None,
        smoothing=smoothing,
        z_loss=attributes.get("z_loss", 0.0),
        softcap=attributes.get("softcap", 0.0),
        weighted=roles.class_weight is not None and roles.forward and (dense or smoothing > 0),
        gradient=roles.gradient is not None,
        entropy=roles.entropy is not None,
        biased=roles.bias is not None,
    )


class _Steps:
    def __init__(self, call: Call, roles: Roles, loss: LossConfig, device: Device, large: Sequence[str]) -> None:
        self._call, self._roles, self._loss, self._device, self._large = call, roles, loss, device, large
        self._names = [
            *call.inputs,
            *call.scalars,
            *call.outputs,
            "factors",
            "of classes",
            "partials",
            "losses",
            "counter",
        ]
        data = call.inputs[roles.data]
        self._columns = data.shape[roles.axis]
        self._rows = data.size // self._columns
        self._compute = "float64" if data.dtype.name == "float64" else "float32"
        self._launches: list[Launch] = []
        self._places: list[tuple[int, ...]] = []

    def plan(self) -> LossPlan:
        call, roles, loss = self._call, self._roles, self._loss
        nan = call.attributes.get("empty") == "nan"
        total = roles.loss if call.attributes["reduction"] != "none" else None
        if loss.mean and (total or roles.gradient):
            self._sums(nan, {})
        if loss.weighted and loss.labels:
            of_classes = {"losses": roles.class_weight, "loss": "of classes"}
            self._sums(nan, of_classes, call.inputs[str(roles.class_weight)].dtype.name, "float64", self._columns)
        losses = roles.row_loss or ("losses" if total or not roles.loss else roles.loss)
        name = self._main(losses)
        if total:
            made = self._compute if losses == "losses" else call.outputs[losses].dtype.name
            self._sums(nan, {"losses": losses, "loss": total}, made, call.outputs[total].dtype.name)
        copied = None
        if roles.row_loss and roles.loss and not total:
            source, target = self._places_of([roles.row_loss, roles.loss])
            copied = source, target, call.outputs[roles.loss].nbytes
        kept = losses == "losses" and roles.forward
        size = _FACTORS + _PARTIALS + kept * round_up(self._rows * 8, 256)
        return LossPlan(name, size, tuple(self._launches), tuple(self._places), self._device, copied)

    def _places_of(self, names: Sequence[str]) -> tuple[int, ...]:
        return tuple(self._names.index(name) for name in names)

    def _add(self, launch: Launch, names: Sequence[str]) -> None:
        self._launches.append(launch)
        self._places.append(self._places_of(names))

    def _arguments(self, **also: str | None) -> dict[str, str]:
        """A kernel's names and the call's of the labels and all that comes with them."""
        roles = self._roles
        given = {"labels": roles.labels, "weight": roles.class_weight or roles.row_weight, **also}
        if "ignore_index" in self._call.scalars:
            given["ignore_index"] = "ignore_index"
        return {key: name for key, name in given.items() if name}

    def _sums(
        self, nan: bool, others: dict[str, Any], losses: str = "", result: str = "", rows: int | None = None
    ) -> None:
        rows = self._rows if rows is None else rows
        of_losses = rows == self._rows and bool(losses) and self._loss.mean
        loss = LossConfig(
            self._loss.labels, self._loss.weight, self._loss.by_rows, "", False, of_losses, self._loss.ignores
        )
        kernel = kernel_of(
            self._device, "gradkern.ops.cross_entropy.cuda.labels:build", loss, losses, result, nan,
            name="cross_entropy_sums", arguments=len(ARGUMENTS), threads=BLOCK, shared_bytes=BLOCK // 2 + 16,
        )  # fmt: skip
        numbers = {"rows": rows, "columns": self._columns, "ignore_index": self._ignored}
        given = self._arguments(factors="factors", partials="partials", counter="counter", **others)
        grid = min(MOST_BLOCKS, -(-rows // _ROWS_OF_A_BLOCK))
        self._add(Launch(kernel, grid, BLOCK, *named(ARGUMENTS, numbers, list(given))), list(given.values()))

    @property
    def _ignored(self) -> int:
        return self._call.attributes.get("ignore_index") or 0

    def _main(self, losses: str) -> str:
        call, roles, loss = self._call, self._roles, self._loss
        tensors = {**call.inputs, **call.outputs}
        inputs = [name for name in (roles.data, roles.probabilities, roles.bias) if name]
        outputs = [name for name in (roles.gradient, roles.log_prob if roles.forward else None) if name]
        parameters = [str(roles.class_weight)] if loss.weighted else []
        results = []
        if roles.loss or roles.row_loss or roles.entropy:
            results = [losses, *([roles.entropy] if roles.entropy else [])]

        def types_of(names: Sequence[str]) -> tuple[str, ...]:
            return tuple(tensors[name].dtype.name if name in tensors else self._compute for name in names)

        types = RowsTypes(
            call.operator,
            types_of(inputs),
            types_of(outputs),
            types_of(parameters),
            ("int64",),
            types_of(results),
            all(tensors[name].alignment == 16 for name in parameters),
            reductions=2 if roles.forward else 0,
            pairs=True,
            native_bfloat16=self._device.capability >= (8, 0),
        )
        problem = problem_of(types, {name: tensors[name] for name in (*inputs, *outputs)}, roles.axis, roles.axis + 1)
        plain = not (loss.smoothing or loss.softcap or loss.entropy or roles.probabilities)
        double = self._compute == "float64"
        registers = 64 + 32 * (not plain) + 56 * (problem.inner > 0) + 16 * double  # as the assembler reports them
        problem = replace(problem, types=replace(types, registers=registers))
        config = next(configs(problem, self._device.capability))
        given = {f"input_{n}": name for n, name in enumerate(inputs)}
        given |= {f"output_{n}": name for n, name in enumerate(outputs)}
        given |= {f"parameter_{n}": name for n, name in enumerate(parameters)}
        given |= {f"result_{n}": name for n, name in enumerate(results)}
        places = {"labels": 0, "weight": 1, "upstream": 2, "factors": 3, "ignore_index": 4}
        numbers = self._arguments(upstream=roles.upstream, factors="factors")
        given |= {f"scalar_{places[key]}": name for key, name in numbers.items()}
        builder = "gradkern.ops.cross_entropy.cuda.kernel:build"
        launch = launch_of(
            problem, config, builder, list(given), self._device, loss, numbers={"scalar_4": self._ignored}
        )  # fmt: skip
        self._add(launch, list(given.values()))
        return f"cross_entropy_{config.name}"
