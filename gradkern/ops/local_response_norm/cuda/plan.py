"""The gradient of local response normalization on a GPU: two launches, with the windows' terms in scratch memory."""

from __future__ import annotations

from gradkern.call import Call, Refusal
from gradkern.cuda.device_code.columns import ITEMSIZE, bits_of
from gradkern.cuda.device_code.kernel_name import kernel_name
from gradkern.cuda.launch import Launch, kernel_of, named
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.ops.local_response_norm.windows import Windows
from gradkern.strides import is_dense

ARGUMENTS = (  # of both kernels
    "X", "D", "own", "others", "dX", "size", "w0", "w1", "w2", "inner", "before", "behind", "alpha", "beta", "bias"
)  # fmt: skip
_THREADS, _ALIGNED = 256, 256


def plan(call: Call) -> LaunchesPlan | EmptyPlan:
    device, X, given = device_of(call), call.inputs["Input"], call.attributes
    if X.size == 0:
        return EmptyPlan("empty", 0, device, (0,))
    windows = Windows.of(X, given)
    if not all(is_dense(each, windows.order) for each in (X, call.inputs["InputGradient"], *call.outputs.values())):
        raise Refusal("Input, InputGradient, OutputGradient: not adjacent in one order, channels first or last")
    dtype, compute = X.dtype.name, "float64" if X.dtype.name == "float64" else "float32"
    long, grid = X.size + _THREADS >= 1 << 31, -(-X.size // _THREADS)
    if grid >= 1 << 31:
        raise Refusal(f"{X.size} elements are more than a launch can have")
    alpha = given["Alpha"] / given["LocalSize"]
    sizes = dict(zip(("w0", "w1", "w2"), windows.sizes, strict=True)) | {"size": X.size, "inner": windows.inner}
    # an element is in the windows of others on the other side
    around = {"before": windows.before, "behind": windows.behind}
    turned = {"before": windows.behind, "behind": windows.before}
    numbers = {name: bits_of(each, compute) for name, each in (("beta", given["Beta"]), ("bias", given["Bias"]))}
    terms = {**sizes, **around, **numbers, "alpha": bits_of(alpha, compute)}
    gradient = {**sizes, **turned, "alpha": bits_of(2 * alpha * given["Beta"], compute)}
    launches: list[Launch] = []
    for name, values, changing in (
        ("terms", terms, ("X", "D", "own", "others")),
        ("gradient", gradient, ("X", "own", "others", "dX")),
    ):
        kernel = kernel_of(
            device,
            "gradkern.ops.local_response_norm.cuda.kernel:build",
            dtype,
            name == "terms",
            long,
            device.capability >= (8, 0),
            name=kernel_name("local_response_norm", name, dtype),
            arguments=len(ARGUMENTS),
            threads=_THREADS,
        )
        launches.append(Launch(kernel, grid, _THREADS, *named(ARGUMENTS, values, changing)))
    each = -(-X.size * ITEMSIZE[compute] // _ALIGNED) * _ALIGNED
    data, upstream, result, own, others = range(5)
    places = (data, upstream, own, others), (data, own, others, result)
    return LaunchesPlan("windows", 2 * each, tuple(launches), places, (0, each), device)
