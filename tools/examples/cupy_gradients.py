"""CuPy: gradients of arrays on the GPU where they are, on CuPy's current stream, into arrays of the caller's.

python tools/examples/cupy_gradients.py     # pip install cupy-cuda12x, or cupy-cuda13x
"""

import cupy

import gradkern

random = cupy.random.default_rng(0)
X, dY = random.standard_normal((2, 8, 64, 56, 56), dtype=cupy.float32)
W = random.standard_normal((64, 64, 3, 3), dtype=cupy.float32)

grads = gradkern.run("ConvGrad", dY, X, W, pads=[1, 1, 1, 1])
print("dX", type(grads.dX).__name__, grads.dX.shape, "dW", grads.dW.shape, "dB", grads.dB.shape)

with cupy.cuda.Stream(non_blocking=True) as stream:  # gradkern launches on it, too
    out = {"dW": cupy.empty_like(W)}
    gradkern.run("ConvGrad", dY, X, W, pads=[1, 1, 1, 1], outputs=["dW"], out=out)
stream.synchronize()
print("the same:", bool(cupy.allclose(out["dW"], grads.dW, rtol=1e-2, atol=1e-1)))
