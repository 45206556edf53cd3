"""NumPy alone: a layer norm's gradients by its contract, in place and by a plan.

python tools/examples/numpy_gradients.py
"""

import numpy as np

import gradkern

random = np.random.default_rng(0)
X, dY = random.standard_normal((2, 64, 512), dtype=np.float32)
scale = np.ones(512, np.float32)
mean, inv_std = X.mean(1), 1 / np.sqrt(X.var(1) + 1e-5)

grads = gradkern.run("LayerNormalizationGrad", dY, X, scale, mean, inv_std)
print("X_grad", grads.X_grad.shape, "scale_grad", grads.scale_grad.shape, "bias_grad", grads.bias_grad.shape)

plan = gradkern.prepare("LayerNormalizationGrad", dY, X, scale, mean, inv_std)
again = plan(dY, X, scale, mean, inv_std)  # no look-up: a plan is called on arrays like those
print("the same bits:", np.array_equal(again.X_grad, grads.X_grad))

gradkern.run("LayerNormalizationGrad", dY, X, scale, mean, inv_std, out={"X_grad": dY})  # over dY, as permitted
print("in place:", np.array_equal(dY, grads.X_grad))
