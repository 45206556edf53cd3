"""JAX: functions whose gradients are gradkern's, under jax.jit and jax.grad.

python tools/examples/jax_training.py [--steps 20]
"""

import argparse

import jax
import jax.numpy as jnp

from gradkern.jax import bias_gelu, layer_norm

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=20)
steps = parser.parse_args().steps

keys = jax.random.split(jax.random.key(0), 4)
parameters = {
    "scale": jnp.ones(64), "bias": jnp.zeros(64), "up": jax.random.normal(keys[0], (64, 256)) / 8,
    "b": jnp.zeros(256), "down": jax.random.normal(keys[1], (256, 1)) / 16,
}  # fmt: skip
x, y = jax.random.normal(keys[2], (128, 64)), jax.random.normal(keys[3], (128, 1))


def loss_of(parameters: dict[str, jax.Array]) -> jax.Array:
    normed = layer_norm(x, parameters["scale"], parameters["bias"])
    hidden = bias_gelu(normed @ parameters["up"], parameters["b"])
    return jnp.mean((hidden @ parameters["down"] - y) ** 2)


@jax.jit
def step(parameters: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
    loss, gradients = jax.value_and_grad(loss_of)(parameters)
    return loss, jax.tree.map(lambda p, g: p - 0.05 * g, parameters, gradients)


for number in range(steps):
    loss, parameters = step(parameters)
    if number % 10 == 0 or number == steps - 1:
        print(f"step {number}: loss {float(loss):.4f}")
