"""torch.compile(model, backend="gradkern"): Inductor, with gradkern's operators where they save passes over memory.

>>> import gradkern.torch
>>> model = torch.compile(model, backend="gradkern")
>>> gradkern.torch.tune(lambda: step(batch))
>>> print(gradkern.torch.report())

Stage 1, dynamo_graph: what is rewritten in the graph that Dynamo has traced.
    batch norm in training, an addition and an activation behind it                  batch_norm.py
    an addition of two tensors, of two types too, and layer norm or RMSNorm of it    add_norm.py
    self-attention of nn.MultiheadAttention(batch_first=True)                        batch_first_attention.py
    residual streams that begin with what a convolution gives, made contiguous       contiguous_rows.py
    a linear layer, transformers' Conv1D too, and GELU, however it is spelled        linear_gelu.py
    norms there, however a model spells them: found by what they compute             norms.py
    convolutions of single channels, and in groups that cuDNN is slow with           depthwise_conv.py
    the order in memory between 3-D convolutions of 16 bits                          channels_last_3d.py
    instance norm there, and an activation behind it; elsewhere on request           instance_norm.py
    cross entropy of labels, and a conversion of its logits to float32               cross_entropy.py
    pools, upsampling and embeddings, for their gradients, the same in every run     windows.py
    the counters of batches of all batch norms, in one kernel                        batch_norm.py
The norms, GELU and convolutions become operators (defined there, by operators.py) that are differentiable and call
gradkern both ways, so that no pattern need be found in a backward pass.

Stages 2 and 3, inductor_graphs: around those operators, sums of two gradients (stage 2, joint_graph.py), the sums of a
norm's gradient that are gradients of biases (stage 2) and copies of running statistics (stage 3, each_graph.py) become
part of them, and what Inductor computes for a batch norm's gradient has the strides of its input (stage 3). gradkern
computes the gradient of the filters of a network's first convolution, with its few channels, where 16 bits make
PyTorch's slow (stage 3). Beside them, small tables of costly functions, such as the cosines of rotary embeddings, are
computed once (stage 3); Inductor would compute them for every element that reads them. Parameters that an operator's
backward pass reads and eager's does not are copied in the forward pass (stage 2). Where Inductor's own kernels of the
backward pass read the output of a GELU or a batch norm, it is recomputed from its input (stage 2, recomputed.py).

Inductor's code calls the operators without PyTorch's dispatcher (call_sites.py). All else is Inductor's, and so is what
gates.py holds to be too small.

mode and options are torch.compile's: mode="reduce-overhead" captures CUDA graphs. One option is added, "gradkern": True
for every fusion whatever its size, the least number of bytes for one, or by the names in gates.py such a number, True
or False; options={"gradkern": {"linear + gelu": False}}.

Left alone, with the reason in `gradkern.torch.report()`: batch norms that are in evaluation, whose momentum is None or
that have no parameters or running statistics; additions of other shapes, or into a tensor that others see; norms of
types that the registry does not have together; what needs no gradient; and calls where dynamo_graph/proof.py cannot
prove that one operator does the same: for writes, other grad modes or unknown functions between them, for tensors that
the operator saves and a later call writes, for strides. A compiled model has no second derivatives, as with every
backend. A graph that PyTorch takes from its caches on disk is the rewritten one.
"""
