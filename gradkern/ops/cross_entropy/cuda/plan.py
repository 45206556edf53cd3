"""Cross entropy on a GPU: rows of the row block, and sums over rows where a mean or a sum is wanted.

The loss and its gradient take one reading of the logits and one writing. A mean divides by a sum of weights, so a small
kernel adds these up before; another adds up the losses of the rows behind. Nothing is read on the host.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.launch import Launch, kernel_of, named
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat
from gradkern.kernels.rows.config import RowsConfig, configs
from gradkern.kernels.rows.plan import RowArrays, launch_of, rows_problem
from gradkern.kernels.rows.problem import VECTOR, RowsProblem
from gradkern.ops.cross_entropy.cuda.config import ARGUMENTS, BLOCK, EXACT_LABELS, LINE, MOST_BLOCKS, LossConfig
from gradkern.ops.cross_entropy.roles import Roles, empty_is_nan, roles_of

LOSSES = "losses of rows"
OWN = "factors", "of classes", "partials", LOSSES, "counter"
"""Names of what is in scratch memory: the factors of the gradient and of the loss, and the sum of all classes' weights;
the parts of a sum; in the type of the arithmetic, losses of rows; and the stream's counter.
"""
_FACTORS, _PARTIALS = 64, 16 * MOST_BLOCKS
OWN_BYTES = _FACTORS + _PARTIALS
OWN_OFFSETS = 0, 16, _FACTORS, OWN_BYTES
_ROWS_OF_A_BLOCK = 8 * BLOCK  # of sums
_THREADS, _TEAMS, _VECTORS = 128, 16, 12  # at most, of classes along an inner axis
_PIXELS, _CLASSES = 2, 24  # at most, of a thread that has all classes of its pixels


Step = tuple[Launch, list[str]]
"""A launch, and the names of its arguments in the call, or among OWN."""


def plan(call: Call) -> LaunchesPlan | EmptyPlan:
    roles, device = roles_of(call), device_of(call)
    data = call.inputs[roles.data]
    if 0 in data.shape:
        return empty_plan(call, device, roles.loss)
    tensors = {**call.inputs, **call.outputs}
    columns = data.shape[roles.axis]
    if columns >= EXACT_LABELS:
        raise Refusal(f"{columns} classes: its kernels take fewer than {EXACT_LABELS}")
    large = [each for each in (roles.data, roles.probabilities, roles.bias, roles.log_prob, roles.gradient) if each]
    for name, tensor in tensors.items():
        if name not in large:
            require_flat(name, tensor)
    strides = [step for n, step in enumerate(data.strides) if n != roles.axis and data.shape[n] > 1]
    if strides != sorted(strides, reverse=True):
        raise Refusal(f"{roles.data}: its rows are in another order in memory than the labels; pass contiguous copies")
    steps = Steps(call, device, overlaps=device.capability >= (9, 0))
    total = roles.loss if call.attributes["reduction"] != "none" else None
    losses = roles.row_loss or (LOSSES if total or not roles.loss else roles.loss)
    name, rows = steps.rows(losses)
    made = [*steps.before(), rows, *steps.after(losses, total)]
    names = [*call.inputs, *call.scalars, *call.outputs, *OWN]
    copied = None
    if roles.row_loss and roles.loss and not total:
        copied = names.index(roles.row_loss), names.index(roles.loss), call.outputs[roles.loss].nbytes
    kept = losses == LOSSES and roles.forward
    return LaunchesPlan(
        name,
        OWN_BYTES + kept * data.size // columns * 8,
        tuple(launch for launch, _ in made),
        tuple(tuple(names.index(each) for each in arguments) for _, arguments in made),
        OWN_OFFSETS,
        device,
        counted=True,
        copied=copied,
        alike=not call.scalars,
    )


def empty_plan(call: Call, device: Device, loss: str | None) -> EmptyPlan:
    fills = tuple(0xFF * (name == loss and empty_is_nan(call)) for name in call.outputs)  # all bits set are NaN
    return EmptyPlan("empty", 0, device, tuple(each.nbytes for each in call.outputs.values()), fills)


def _config_of(call: Call, roles: Roles) -> LossConfig:
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
        capped=bool(attributes.get("capped")),
        weighted=roles.class_weight is not None and roles.forward and (dense or smoothing > 0),
        gradient=roles.gradient is not None,
        entropy=roles.entropy is not None,
        biased=roles.bias is not None,
        logit_bias=roles.logit_bias is not None,
    )


class Steps:
    """The launches of a call: before those over rows, these, and behind them."""

    def __init__(self, call: Call, device: Device, overlaps: bool = False) -> None:
        self._call, self._device, self._roles = call, device, roles_of(call)
        self._loss = replace(_config_of(call, self._roles), overlaps=overlaps)
        data = call.inputs[self._roles.data]
        self._columns = data.shape[self._roles.axis]
        self._rows = data.size // self._columns
        self._compute = "float64" if data.dtype.name == "float64" else "float32"

    def before(self) -> list[Step]:
        """What the rows need of all labels, and of all classes."""
        loss, made = self._loss, list[Step]()
        if loss.mean:
            made.append(self._sum(self._rows))
        if loss.weighted and loss.labels:
            weight = str(self._roles.class_weight)
            kinds = self._call.inputs[weight].dtype.name, "float64"
            made.append(self._sum(self._columns, *kinds, losses=weight, loss="of classes"))
        return made

    def after(self, losses: str, total: str | None) -> list[Step]:
        """The loss of all rows, if it is wanted."""
        if total is None:
            return []
        made = self._call.outputs[losses].dtype.name if losses in self._call.outputs else self._compute
        kinds = made, self._call.outputs[total].dtype.name
        own = self._loss.overlaps
        return [self._sum(self._rows, *kinds, mean=self._loss.mean, overlaps=own, losses=losses, loss=total)]

    def _sum(
        self, rows: int, kind: str = "", result: str = "", mean: bool = False, overlaps: bool = False, **others: str
    ) -> Step:
        given = self._loss
        loss = LossConfig(
            given.labels, given.weight, given.by_rows, "", False, mean, given.ignores, overlaps=given.overlaps
        )
        nan = self._call.attributes.get("empty") == "nan"
        kernel = kernel_of(
            self._device, "gradkern.ops.cross_entropy.cuda.labels:build", loss, kind, result, nan,
            name="cross_entropy_sums", arguments=len(ARGUMENTS), threads=BLOCK, shared_bytes=BLOCK // 2 + 16,
        )  # fmt: skip
        numbers = {"rows": rows, "columns": self._columns, "ignore_index": self._ignored}
        names = self._arguments(factors="factors", partials="partials", counter="counter", **others)
        grid = min(MOST_BLOCKS, -(-rows // _ROWS_OF_A_BLOCK))
        arguments = named(ARGUMENTS, numbers, list(names))
        return Launch(kernel, grid, BLOCK, *arguments, overlaps=overlaps), list(names.values())

    def _arguments(self, **also: str | None) -> dict[str, str]:
        """A kernel's names and the call's of the labels and all that comes with them."""
        roles = self._roles
        given = {"labels": roles.labels, "weight": roles.class_weight or roles.row_weight, **also}
        if "ignore_index" in self._call.scalars:
            given["ignore_index"] = "ignore_index"
        return {key: name for key, name in given.items() if name}

    @property
    def _ignored(self) -> int:
        return self._call.attributes.get("ignore_index") or 0

    def rows(self, losses: str) -> tuple[str, Step]:
        """The config's name, and the launch. losses: the name of what the rows' losses are written to."""
        call, roles, loss = self._call, self._roles, self._loss
        made = Tensor(np.dtype(self._compute), (self._rows,), (), 16)
        tensors = {LOSSES: made, **call.inputs, **call.outputs}
        results = (losses, roles.entropy) if roles.loss or roles.row_loss or roles.entropy else ()
        arrays = RowArrays(
            _given(roles.data, roles.probabilities, roles.bias),
            _given(roles.gradient, roles.log_prob if roles.forward else None),
            _given(roles.class_weight if loss.weighted else None, roles.logit_bias),
            results=_given(*results),
            reductions=2 if roles.forward else 0,
            pairs=True,
        )
        plain = not (loss.smoothing or loss.caps or roles.probabilities or arrays.parameters)
        problem = rows_problem(call.operator, arrays, tensors, roles.axis, roles.axis + 1, self._device, numbers=1)
        few = plain and roles.forward and problem.width == 8 and not (problem.inner or problem.shifted)
        few = few and problem.vectors > 128
        registers = 64 + 32 * (not plain) + 56 * (problem.inner > 0) + 16 * (self._compute == "float64") - 16 * few
        problem = replace(problem, types=replace(problem.types, registers=registers))  # as the assembler reports them
        # NVIDIA's compiler does not unroll loops that are too long, and their arrays get local memory: with options on
        # any device, and from compute capability 10.0 on with sums of 8 elements at once.
        long = problem.width > 4 and roles.forward and self._device.capability >= (10, 0)
        if problem.inner and (not plain or long):
            problem = replace(problem, width=max(1, problem.width // 2))
        config, builder = self._config(problem, plain)
        names = (*arrays.inputs, *arrays.outputs, *arrays.parameters, *arrays.results)
        given = {arrays.argument(name): name for name in names}
        places = {"labels": 0, "weight": 1, "upstream": 2, "factors": 3, "ignore_index": 4}
        numbers = self._arguments(upstream=roles.upstream, factors="factors")
        given |= {f"scalar_{places[key]}": name for key, name in numbers.items()}
        launch = launch_of(
            problem, config, builder, list(given), self._device, loss, numbers={"scalar_4": self._ignored},
            overlaps=loss.overlaps and len(self.before()) > 0,
        )  # fmt: skip
        return f"cross_entropy_{config.name}", (launch, list(given.values()))

    def _config(self, problem: RowsProblem, plain: bool) -> tuple[RowsConfig, str]:
        """The config, and the builder of the kernel. Beside the row block, on an H200 in bfloat16 and in place: 98.6 to
        71.7 us at 8x21x512x512, 1077 to 1015 at 8192x128256, 657 to 605 at 4096x151936.
        """
        types, capability = problem.types, self._device.capability
        own = plain and self._loss.labels != "" and self._loss.gradient and capability >= (8, 0)
        own = own and types.inputs == types.outputs and types.inputs[0] in ("bfloat16", "float16")
        pixels = problem.inner >= _PIXELS * _THREADS and problem.width >= _PIXELS and max(problem.steps) < 1 << 31
        if own and pixels and problem.columns <= _CLASSES and not self._loss.softcap:
            config = RowsConfig(_PIXELS, _THREADS, 1, problem.columns, inner=True, blocks_per_processor=6)
            return config, "gradkern.ops.cross_entropy.cuda.few_classes_kernel:build"
        config = _of_few_classes(problem, capability) or next(configs(problem, capability))
        if own and config.staged:
            vectors = problem.vectors + (LINE // VECTOR - 1) * problem.shifted
            config = replace(config, vectors=-(-vectors // (config.lanes * config.cluster)))
            return config, "gradkern.ops.cross_entropy.cuda.wide_kernel:build"
        return config, "gradkern.ops.cross_entropy.cuda.kernel:build"


def _of_few_classes(problem: RowsProblem, capability: tuple[int, int]) -> RowsConfig | None:
    """Along a long inner axis: vectors of 8 bytes, and as few threads to a row as hold it. Each computes the last step
    of its rows, and takes as long as the sums over 21 classes: 193 us with 8 threads to a row, 110 with 2.
    """
    types, columns = problem.types, problem.columns
    width = min(problem.width, 8 // ITEMSIZE[types.inputs[0]])
    teams = 1 << (-(-columns // _VECTORS) - 1).bit_length()
    lanes = _THREADS // teams
    if types.reductions == 0 or len(types.inputs) > 1 or types.compute == "float64" or teams > _TEAMS:
        return None
    if problem.inner < 2 * lanes * width:
        return None
    few = types.registers <= 120 and width == 4 and len(types.results) < 2 and capability[0] == 9
    blocks = 5 if few and teams == 2 else 4  # 108 and 116 us at 21 classes; else registers are spilled
    return RowsConfig(width, lanes, teams, -(-columns // teams), inner=True, blocks_per_processor=blocks)


def _given(*names: str | None) -> tuple[str, ...]:
    return tuple(name for name in names if name)
