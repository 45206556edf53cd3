"""A batch norm and its gradient with activation and residual compile for every architecture without a spill."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np
import pytest
from helpers.compiled import HOPPER, OTHERS, SHARED_MEMORY, made_of, parameters

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.call import Call, Tensor
from gradkern.cuda.device import Device
from gradkern.cuda.dry_run import dry_run
from gradkern.kernels.channels.activation_alpha import with_alpha, without_alpha
from gradkern.ops.batch_norm.cuda import forward, streaming
from gradkern.ops.batch_norm.cuda.problem import Problem
from gradkern.policy import Policy
from gradkern.search.implementation import candidates_of
from gradkern.strides import c_strides

pytestmark = pytest.mark.thorough

b, h, f, d = "bfloat16", "float16", "float32", "float64"
SHAPE = (64, 256, 28, 28)
LEAKY_RELU = with_alpha({"activation": "leaky_relu", "activation_alpha": 0.01})


@dataclass(frozen=True)
class Kind:
    """Z, Y and dY2 are there if they are named in `more`; B where nothing else tells the activation's input."""

    data: str
    parameter: str
    last: bool
    activation: str
    more: tuple[str, ...] = ()
    backward: bool = False
    shape: tuple[int, ...] = SHAPE

    @property
    def name(self) -> str:
        way = "backward" if self.backward else "forward"
        order = "last" if self.last else "first"
        return "-".join([way, self.data, self.activation, *self.more, order, "x".join(map(str, self.shape))])


KINDS = [
    Kind(b, f, True, "relu", ("Y", "dY2"), True),
    Kind(b, f, True, "relu", ("Z",)),
    Kind(b, f, True, "relu", (), True),
    Kind(b, f, True, "none"),
    Kind(b, f, True, "silu", (), True),
    Kind(b, f, True, "silu", ("Z",)),
    *(Kind(b, f, True, each, (), True) for each in ("relu6", "hardswish", "elu 1.0", "gelu")),
    *(Kind(each, each if each != b else f, way, "gelu", (), way) for each in (b, f, d) for way in (False, True)),
    Kind(b, f, True, "none", ("dY2",), True),
    Kind(b, f, True, LEAKY_RELU, ("Y", "dY2"), True),
    Kind(b, f, True, LEAKY_RELU, ("Z",)),
    *(Kind(each, each, True, "relu", ("Y",), True) for each in (h, f, d)),
    *(Kind(each, each, True, "silu", ("Z",)) for each in (h, f, d)),
    *(Kind(each, f if each != d else d, False, "relu", ("Y", "dY2"), True) for each in (b, f, d)),
    *(Kind(each, f if each != d else d, False, "silu", (), True) for each in (b, d)),
    *(Kind(each, f if each != d else d, False, "relu", ("Z",)) for each in (b, d)),
    Kind(f, f, False, LEAKY_RELU, (), True),
    *(Kind(each, f if each != d else d, False, LEAKY_RELU) for each in (h, f)),
    *(Kind(h, f, False, "relu", (), way, (64, 2048, 7, 7)) for way in (False, True)),
    *(Kind(b, f, True, "relu", (), way, (64, 60, 7, 7)) for way in (False, True)),
    *(Kind(h, f, False, "relu", (), way, (9, 5, 7)) for way in (False, True)),
]


def described(shape: tuple[int, ...], dtype: str, last: bool = False) -> Tensor:
    kind = np.dtype(dtype)
    strides = c_strides(shape, kind.itemsize)
    if last:
        stored = c_strides((shape[0], *shape[2:], shape[1]), kind.itemsize)
        strides = (stored[0], stored[-1], *stored[1:-1])
    return Tensor(kind, shape, strides, 16)


def plan(kind: Kind, device: Device) -> None:
    X, vector = described(kind.shape, kind.data, kind.last), described(kind.shape[1:2], kind.parameter)
    saved = described(kind.shape[1:2], d if kind.data == d else f)
    more = dict.fromkeys(kind.more, X)
    if not kind.backward:
        given: dict[str, Tensor] = {
            "X": X,
            "scale": vector,
            "B": vector,
            "input_mean": saved,
            "input_var": saved,
            **more,
        }
        wanted = {"Y": X, **dict.fromkeys(("running_mean", "running_var", "saved_mean", "saved_inv_std"), saved)}
        activation, alpha = without_alpha(kind.activation)
        attributes = {"epsilon": 1e-5, "momentum": 0.9, "unbiased": 0}
        attributes |= {"activation": activation, "activation_alpha": alpha}
        forward.plan(Call("BatchNormalization", given, wanted, attributes, {}, frozenset(), "cuda:0", Policy()))
        return
    if kind.activation != "none" and "Y" not in more:
        more["B"] = vector
    if "Y" in more:
        more["dZ"] = X
    tensors: dict[str, Any] = {"dX": X, "dScale": vector, "dBias": vector, **more}
    backward = Problem(X, X, vector, saved, saved, **tensors, activation=kind.activation)
    for candidate in candidates_of(streaming, backward, device):
        candidate.prepare()


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters([(KINDS[0], HOPPER[0])], [*product(KINDS, HOPPER), *product(KINDS[::4], OTHERS)]),
)
def test_no_register_is_spilled(kind: Kind, capability: tuple[int, int]) -> None:
    with dry_run(Device(0, capability, 132, SHARED_MEMORY[capability])) as dry:
        plan(kind, dry)
    assert dry.specs
    for spec in dry.specs:
        made = made_of(spec)
        assert made.spilled == 0, spec.description
        assert "ld.local" not in made.ptx
