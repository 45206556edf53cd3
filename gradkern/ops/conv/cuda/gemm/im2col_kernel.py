"""im2col, and the other kernels between a convolution's tensors and the matrices of its products: each element is
copied once.

    gather      matrix[image, p, channel, tap] = tensor[image, channel, step*q + first + spacing*tap], 0 outside
    scatter     tensor[image, channel, x] = matrix[image, p, channel, slot], 0 where the residue of x has no results
    pack        packed[group, filter, phase, tap, channel] = W[filter, channel, the phase's tap]
    add_shares  dW[filter, channel, tap] = sum over shares of shares[share, filter, channel, tap]

p counts the positions q of a grid in row-major order; of x those are (x + before) // step, its residue is the rest.
All strides are in bytes.

A kernel's arguments are int64, in one list that `im2col` fills. Device functions take arguments of one kind, such as
the strides of the three axes, as a tuple; this does not change the machine code.

All are bound by memory. Several channels share the computations for a position (its place in the grid, whether a tap is
inside), and a thread issues its loads before its first store. Neighbouring threads have neighbouring positions if those
are adjacent in memory, else neighbouring channels, up to 16 bytes of them at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from gradkern.ops.conv.cuda.gemm import add_shares_kernel, col2im_kernel, gather_kernel, pack_kernel, scatter_kernel
from gradkern.ops.conv.cuda.gemm.im2col_config import Im2colConfig

__all__ = ["build"]


def build(config: Im2colConfig) -> Callable[..., None]:
    """The kernel of a config, as a function that Numba compiles with every argument an int64."""
    makers = {
        "gather": gather_kernel.build,
        "scatter": scatter_kernel.build,
        "pack": pack_kernel.build,
        "add_shares": add_shares_kernel.build,
        "col2im": col2im_kernel.build,
    }
    return makers[config.kernel](config)
