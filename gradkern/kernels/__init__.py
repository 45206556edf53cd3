"""Blocks: loops over memory that an operator gives its arithmetic to, as device functions. No block names an operator.

Which block to take

    rows                totals over each row of an array, and what needs them: softmax, layer norms, cross entropy
    elementwise         up to three outputs of up to three arrays of one shape: activations, dropout, gated units;
                        its totals: one number of all elements
    segments            sums of rows with equal keys, in one order: gradients of gathers and embeddings
    separable           gradients of maps along each spatial axis, by the outputs that an element is a term of: average
                        pools, resizing. `AxisMap`s have these, with their weights
    channels            statistics of channels, over batch and positions: batch norm, instance norm
                        (its tiles_kernel: element by element, with numbers of columns and sums over rows: GELU)

A block has a frozen config, `configs(problem)`, best first, and a plan from a Call to launches. An operator has a
module whose `build(types, config)` gives its arithmetic to the block's kernel, and one that names its arrays:

    # ops/rms/cuda/kernel.py: y = x w / sqrt(mean of x^2 + epsilon), and the row's inverse root

    @device_function
    def square(x, p, r, totals, column):      # of one element, what is added up over its row
        return x[0] * x[0], x[0]

    @device_function
    def inverse(totals, r, columns):          # once a row: what its results and elements take of the totals
        totals[0] = 1 / math.sqrt(totals[0] / columns + EPSILON)

    @device_function
    def scaled(y, x, p, r, totals, column):   # of one element, the outputs
        y[0] = x[0] * p[0] * totals[0]

    def build(types, config):
        arithmetic = RowArithmetic((Reduction(square),), scaled, inverse)
        return (inner_kernel if config.inner else rows_kernel)(types, config, arithmetic)

    # ops/rms/cuda/plan.py

    ARRAYS = RowArrays(inputs=("X",), outputs=("Y",), parameters=("scale",), results=("inv_std",))

    def plan(call):
        return rows_plan(call, "gradkern.ops.rms.cuda.kernel:build", ARRAYS, first=call.attributes["axis"],
                         last=len(call.inputs["X"].shape))

tests/kernels/rows/simulated_rows.py runs this one, and others with all that a row may have.

What these would pass

    softmax's gradient          rows: inputs dY, Y; terms dY Y; map Y (dY - total). The last axis or an inner one:
                                `plan` names the axes, the block finds the layout
    cross entropy               rows: inputs logits; `scalars` reads a row's label and weight, of any type, and what the
                                loss is divided by; two reductions, the maximum and the sum of exponentials; outputs
                                the gradient, in place of the logits or not; results the loss (ops/cross_entropy)
    a map with numbers of rows  rows: no reductions. The gradient of cross entropy from log probabilities
    layer norm and its gradient rows: parameters scale and bias; scalars mean and inverse deviation, or results; two
                                reductions forward, a pair backward. Their sums over rows are a later step of this block
    a residual of two types     rows: inputs X (T) and residual (another type), outputs the sum and the norm, each of
                                its own type
    group norm, N C H W         rows: a group is one row of memory; its parameters belong to column // (H W). A kernel
                                with `parameter_run` elements to each is a later step
    group norm, channels last   channels: a group is part of each line, as channels are of a batch norm
"""
