"""Cases of DirectML's batch norm: random operands of a shape, and its gradients in float64; and calls to be planned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np

from gradkern.call import Call, Tensor
from gradkern.policy import Policy
from gradkern.strides import c_strides
from helpers.reference import reference
from helpers.tolerance import assert_close, assert_elements_close

if TYPE_CHECKING:
    from gradkern.cuda.spec import KernelSpec

DML, TRAINING = "DmlBatchNormalizationGrad", "DmlBatchNormalizationTrainingGrad"
EPSILON = 1e-3
OUTPUTS = ("OutputGradient", "OutputScaleGradient", "OutputBiasGradient")


@dataclass
class Case:
    """Operands by contract name, in C order."""

    inputs: dict[str, np.ndarray]
    operator: str = DML

    def check(self, results: dict[str, np.ndarray]) -> None:
        """Every result is as near to float64 mathematics as its type allows."""
        expected = reference(self.operator, self.inputs, {"Epsilon": EPSILON})
        for name, out in results.items():
            terms = None if name == "OutputGradient" else self.terms(name)
            if not np.isfinite(expected[name]).all():
                np.testing.assert_array_equal(np.isfinite(out), np.isfinite(expected[name]), err_msg=name)
            elif name == "OutputGradient" and self.operator == DML:
                assert_elements_close(DML, name, out, expected[name])
            with np.errstate(invalid="ignore"):  # infinities
                assert_close(DML, name, out, expected[name], terms)

    def terms(self, name: str) -> np.ndarray:
        """The root of the sum of squares of what each sum adds: rounding is relative to it where terms cancel."""
        wide = {key: array.astype(np.float64) for key, array in self.inputs.items()}
        with np.errstate(all="ignore"):
            each = wide["InputGradient"]
            if name == "OutputScaleGradient":
                each = each * (wide["Input"] - wide["Mean"]) / np.sqrt(wide["Variance"] + EPSILON)
            each = np.where(np.isfinite(each), each, 0)
        summed = tuple(axis for axis, size in enumerate(wide["Mean"].shape) if size == 1)
        return np.sqrt((each**2).sum(summed))


def case(sizes: tuple[int, ...], statistics: tuple[int, ...], dtype: str, seed: int = 0) -> Case:
    random = np.random.default_rng(seed)
    Mean = random.standard_normal(statistics).astype(dtype)
    inputs = {
        "Input": (1.5 * random.standard_normal(sizes, np.float32) + Mean.astype(np.float32)).astype(dtype),
        "InputGradient": random.standard_normal(sizes, np.float32).astype(dtype),
        "Mean": Mean,
        "Variance": random.uniform(0.5, 2, statistics).astype(dtype),
        "Scale": (random.uniform(0.5, 1.5, statistics) * random.choice([-1, 1], statistics)).astype(dtype),
    }
    return Case(inputs)


def call_of(
    sizes: tuple[int, ...],
    dtype: str,
    statistics: tuple[int, ...] = (),
    outputs: tuple[str, ...] = OUTPUTS,
    alignment: int = 256,
) -> Call:
    """A call on a GPU with arrays in C order; by default statistics are those of the second axis."""
    kind = np.dtype(dtype)

    def tensor(shape: tuple[int, ...]) -> Tensor:
        return Tensor(kind, shape, c_strides(shape, kind.itemsize), alignment)

    data, each = tensor(sizes), tensor(statistics or (1, sizes[1], *(1 for _ in sizes[2:])))
    inputs = {"Input": data, "InputGradient": data, "Mean": each, "Variance": each, "Scale": each}
    made = {name: data if name == "OutputGradient" else each for name in outputs}
    return Call(DML, inputs, made, {"Epsilon": 1e-5}, {}, frozenset(), "cuda:0", Policy())


def planned(call: Call, capability: tuple[int, int] = (9, 0)) -> tuple[str, KernelSpec]:
    """The plan's name for its kernel, and that, on a device that is not there."""
    from gradkern.cuda.dry_run import DryRunDevice, dry_run
    from gradkern.ops.dml_batch_norm.cuda.plan import plan

    with dry_run(DryRunDevice(0, capability, 132, 232448)) as device:
        kernel: Any = plan(call).kernel
    (spec,) = device.specs
    return kernel, spec
