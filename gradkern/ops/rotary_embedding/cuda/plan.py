"""Rotary embeddings on a GPU: from a call to a launch."""

from __future__ import annotations

from math import gcd

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.launch import Launch, LaunchPlan, kernel_of_config, named
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.ops.rotary_embedding.cuda.config import ARGUMENTS, RotaryConfig
from gradkern.strides import is_aligned

_THREADS = 256
_VECTOR = 16  # bytes


def plan(call: Call) -> LaunchPlan | EmptyPlan:
    """The plan of RotaryEmbedding or of its gradient on `call.device`."""
    device = device_of(call)
    (data, cos, sin, *_), (result,) = call.inputs, call.outputs
    X, Y, cosines, sines = call.inputs[data], call.outputs[result], call.inputs[cos], call.inputs[sin]
    positions = call.inputs.get("position_ids")
    if Y.size == 0:
        return EmptyPlan("empty", 0, device, (0,))
    for name, tensor in {**call.inputs, **call.outputs}.items():
        if not is_aligned(tensor):
            raise Refusal(f"{name}: an address is no multiple of {tensor.dtype.alignment}; pass a contiguous copy")
        if name != "position_ids" and tensor.shape[-1] > 1 and tensor.strides[-1] != tensor.dtype.itemsize:
            raise Refusal(f"{name}: its last axis does not lie end to end in memory; pass a contiguous copy")
    rows = Y.size // Y.shape[-1]
    if rows >= 1 << 31:
        raise Refusal(f"{rows} rows are more than 2^31 - 1")
    half = call.axes["half"]
    rest = Y.shape[-1] - 2 * half
    together = 2 if call.attributes["interleaved"] else 1  # vectors of one access
    aligned = min(_aligned(X), _aligned(Y)) // X.dtype.itemsize
    if aligned < together:
        raise Refusal(f"{data}, {result}: pairs begin at addresses that are no multiples of their size")
    widths = [_VECTOR // X.dtype.itemsize] if aligned * X.dtype.itemsize == _VECTOR else [aligned // together]
    # 16 bytes of angles are followed by others where these are wider than the data
    widths += [_aligned(each) // each.dtype.itemsize for each in (cosines, sines) if _aligned(each) < _VECTOR]
    width = gcd(half, rest, min(widths))
    config = RotaryConfig(
        data=X.dtype.name,
        cache=cosines.dtype.name,
        indexed=positions is not None,
        backward=call.operator.endswith("Grad"),
        interleaved=bool(call.attributes["interleaved"]),
        half=half,
        rest=rest,
        width=width,
        threads=_THREADS,
        native_bfloat16=device.capability >= (8, 0),
    )
    kernel = kernel_of_config(
        device, "gradkern.ops.rotary_embedding.cuda.kernel:build", config, arguments=len(ARGUMENTS)
    )
    order = sorted(range(3), key=lambda axis: (-Y.strides[axis], axis))  # B, N and S, slowest first
    numbers = {"rows": rows, "inner": Y.shape[order[2]], "middle": Y.shape[order[1]]}
    steps = {"x": X.strides, "y": Y.strides}
    if positions is None:
        steps |= {"cos": _of_line(cosines), "sin": _of_line(sines)}
    else:
        numbers |= {"last": cosines.shape[0] - 1, "cos_0": cosines.strides[0], "sin_0": sines.strides[0]}
        steps["place"] = _of_line(positions)
    numbers |= {f"{name}_{place}": each[axis] for name, each in steps.items() for place, axis in enumerate(order)}
    given = ["X", "cos", "sin", *(["positions"] if positions is not None else []), "Y"]
    launch = Launch(kernel, -(-rows // config.rows), config.threads, *named(ARGUMENTS, numbers, given))
    return LaunchPlan(config.name.removeprefix("gradkern_"), launch)


def _of_line(tensor: Tensor) -> tuple[int, int, int]:
    """Strides by batch, head and place of an array of batch and place."""
    return tensor.strides[0], 0, tensor.strides[1]


def _aligned(tensor: Tensor) -> int:
    """Bytes that the address of every row is a multiple of, at most those of a vector."""
    steps = (abs(stride) for size, stride in zip(tensor.shape[:-1], tensor.strides[:-1], strict=True) if size > 1)
    return gcd(_VECTOR, tensor.alignment, *steps)
