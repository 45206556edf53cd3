"""torch.ops.gradkern.*: the differentiable operators of rewritten graphs, each over the registry's."""
