"""gradkern in JAX (the extra `jax`): functions whose gradients are gradkern's, in eager code and under jax.jit.

    >>> from gradkern.jax import layer_norm
    >>> dx = jax.grad(lambda x: layer_norm(x, scale, bias).sum())(x)

A backward pass is one foreign call of XLA's on the arrays where they are. What that costs: XLA fuses nothing into it,
Python answers it on XLA's thread, in a tenth of a millisecond or two, one device computes it (XLA gathers what is
sharded), and vmap calls it once for each element. The first call of a kind makes the plan: GPUs may search for
seconds. It has no second derivative. On GPUs, where it has not been tried yet, scratch memory is not of XLA's pool.
The policy is the one in force when a function is traced.
"""

from __future__ import annotations

from gradkern.jax.functions import batch_norm, bias_gelu, layer_norm, rms_norm

__all__ = ["batch_norm", "bias_gelu", "layer_norm", "rms_norm"]


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *__all__])
