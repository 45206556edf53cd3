"""A convolution and its gradients as matrix products: the kernels and products, their memory and order.

    pointwise   1x1 convolutions on the arrays as they are:  Y = W X    dX = W^T dY    dW = sum over images of dY X^T
    columns     im2col, a slice of the positions at a time:
                dW[m, r] += sum over p of  dY[m, p] * columns of X[p, r]                    r counts (channel, tap)
                Y[m, p] = sum over r of  W[m, r] * columns of X[r, p]                       r counts (channel, tap)
                dX[c, p] = sum over k of  packed W[c, k] * columns of dY[k, p]              k counts (filter, tap);
                dX for strides of 1
    taps        col2im, for any convolution: products[(c, t), p] = sum over m of  W[m, c, t] * dY[m, p], then
                dX[c, x] = sum over t of  products[(c, t), the p that meets x through t]

Slices are much larger than the L2 cache: on an H200 short products lose more than the memory traffic of columns costs
(3x3, 64 channels of 56x56, float64: 32 MB 275 microseconds, 256 MB 187).

Sums of dW may be divided into shares (split-K), the products of one batch, where a single product would leave most
of the GPU idle; the shares are added in a fixed order. Sums are in float32 (float64) until the final rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gradkern.call import Refusal
from gradkern.cublas.product import Matrix, Product
from gradkern.cuda.device import Device
from gradkern.ops.conv.cuda.gemm.im2col import Address, Im2colStep, MatrixLayout
from gradkern.ops.conv.cuda.gemm.layout import Operand, Slice
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.ops.conv.geometry import Geometry

DY, OTHER, OUTPUT, SCRATCH, BIAS = range(5)  # operands: the two inputs, the output, scratch memory, the forward's bias
X = DY  # the first input of the forward pass; the other is W
SHORTEST = 256  # positions of a slice
ALIGNED = 256  # bytes: alignment of a matrix

ScratchMatrix = tuple[MatrixLayout, Matrix, int]  # see matrix_in_scratch


@dataclass(frozen=True, slots=True)
class GemmProgram:
    """Steps in order, and the bytes of their shared scratch memory."""

    steps: tuple[Im2colStep | Product, ...]
    scratch: int


class GemmProblem:
    """A problem with three spatial axes: its geometry, its tensors as operands, and what its products share."""

    def __init__(self, problem: Problem, device: Device, tf32: bool) -> None:
        if 0 in (*problem.dY.shape, *problem.X.shape, *problem.W.shape):
            raise Refusal("there is nothing to multiply")
        self.geometry = problem.geometry.lifted(3)
        numbers = {"dX": (DY, OUTPUT, OTHER), "dW": (DY, OTHER, OUTPUT), "Y": (OUTPUT, X, OTHER)}[problem.gradient]
        self.dY = Operand.of(problem.dY, numbers[0])  # or Y
        self.X = Operand.of(problem.X, numbers[1])
        self.W = Operand.of(problem.W, numbers[2])
        self.B = problem.B
        self.device, self.tf32, self.dtype = device, tf32, problem.dtype
        self.sum_dtype = "float64" if self.dtype == "float64" else "float32"
        self.item, self.sum_item = self.dY.item, 8 if self.dtype == "float64" else 4

    def product(self, rows: int, columns: int, inner: int, left: Matrix, right: Matrix, result: Matrix) -> Product:
        dtype = self.sum_dtype if self.W.number == OUTPUT else self.dtype
        return Product(rows, columns, inner, left, right, result, self.dtype, dtype, tf32=self.tf32)


def pointwise(problem: GemmProblem) -> tuple[Geometry, Operand, Operand, Operand]:
    if not problem.geometry.pointwise:
        raise Refusal("it is no 1x1 convolution with strides of 1 and without padding")
    if problem.dY.distance is None or problem.X.distance is None:
        raise Refusal("an image is not a matrix: its positions are not equidistant")
    return problem.geometry, problem.dY, problem.X, problem.W


def matrix_in_scratch(
    channels: int, taps: int, groups: int, piece: Slice, lead: int, item: int,
    start: int = 0, by_image: bool = False, taps_outside: bool = False,
) -> ScratchMatrix:  # fmt: skip
    """The matrix of a slice in scratch memory: its layout for kernels, as [row, position] for products, and
    the elements from one group to the next.

    A row, `lead` apart, for every (group, channel, tap), or (group, tap, channel) with taps_outside; all rows of an
    image, then all of the next one, with by_image.
    """
    tap, channel = (channels, 1) if taps_outside else (1, taps)
    group = channels * taps * lead
    image = groups * group if by_image else piece.count
    bytes_ = [each * item for each in (image, 1, group, channel * lead, tap * lead)]
    layout = MatrixLayout(Address(SCRATCH, start), *bytes_, group_channels=channels)
    return layout, Matrix(SCRATCH, start, lead, 1), group


def slices(images: int, positions: int, room: int) -> Iterator[tuple[int, int]]:
    """(first, count): runs of whole images that fit, of equal sizes; else single images."""
    most = min(images, max(room // positions, 1))
    return _runs(images, -(-images // most))


def cut(positions: int, room: int) -> Iterator[tuple[int, int]]:
    """(first, count): runs of the positions of an image that fit."""
    return _runs(positions, -(-positions // min(positions, max(room, SHORTEST))))


def _runs(total: int, count: int) -> Iterator[tuple[int, int]]:
    each = -(-total // count)
    for first in range(0, total, each):
        yield first, min(each, total - first)
