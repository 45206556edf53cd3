"""The gradients of ROI align on a GPU."""

from __future__ import annotations

from gradkern.call import Call, Refusal
from gradkern.cuda.device_code.columns import bits_of
from gradkern.cuda.device_code.kernel_name import kernel_name
from gradkern.cuda.launch import Launch, kernel_of, named
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat
from gradkern.ops.roi_align.cuda.config import ARGUMENTS, FIRST, LAST, RoiConfig
from gradkern.strides import channels_last, is_aligned

_BUILDERS = {
    "best": "gradkern.ops.roi_align.cuda.kernel:build_best",
    "images": "gradkern.ops.roi_align.cuda.kernel:build_images",
    "regions": "gradkern.ops.roi_align.cuda.kernel:build_regions",
}


def plan(call: Call) -> LaunchesPlan | EmptyPlan:
    device, axes, given = device_of(call), call.axes, call.attributes
    N, C, (H, W), R, (rows, columns) = (axes[name] for name in ("N", "C", "spatial", "regions", "out"))
    D, arrays, outputs = call.inputs["InputGradient"], call.inputs, call.outputs
    if 0 in (N * C * H * W, R, D.size):
        return EmptyPlan("empty", 0, device, tuple(each.nbytes for each in outputs.values()))
    for name, each in {**arrays, **outputs}.items():
        if name in ("ROI", "BatchIndices", "OutputROIGradient"):
            require_flat(name, each)
        elif not is_aligned(each):
            raise Refusal(f"{name}: an element's address is no multiple of its size; pass a contiguous copy")
    dtype, maximum = D.dtype.name, given["ReductionFunction"] == "MAX"
    compute = "float64" if dtype == "float64" else "float32"
    image = outputs.get("OutputGradient") or arrays["Input"]
    config = RoiConfig(
        dtype, arrays["ROI"].dtype.name, arrays["BatchIndices"].dtype.itemsize, maximum,
        given["InterpolationMode"] == "NEAREST_NEIGHBOR", bool(given["AlignRegionsToCorners"]),
        **(LAST if channels_last(image) else FIRST), native_bfloat16=device.capability >= (8, 0),
    )  # fmt: skip
    threads = config.tile[0] * config.tile[1] * config.lanes
    tiles = -(-H // config.tile[0]) * -(-W // config.tile[1]) * -(-C // (config.lanes * config.channels)) * N
    grids = {"best": -(-D.size // threads), "images": tiles, "regions": R}
    if max(grids.values()) >= 1 << 31:
        raise Refusal("more regions or elements than a launch can have")
    most = ((1 << 31) - 1) // max(rows, columns)  # samples of an axis have numbers of 31 bits
    if given["MinimumSamplesPerOutput"] > most:
        raise Refusal(f"MinimumSamplesPerOutput {given['MinimumSamplesPerOutput']} makes 2^31 samples along an axis")
    numbers = {"N": N, "C": C, "H": H, "W": W, "R": R, "rows": rows, "columns": columns}
    numbers |= dict(zip(("d_r", "d_c", "d_y", "d_x"), D.strides, strict=True))
    numbers |= {"least": given["MinimumSamplesPerOutput"], "most": min(given["MaximumSamplesPerOutput"], most)}
    for name, of in (
        ("scale_x", "SpatialScaleX"), ("scale_y", "SpatialScaleY"),
        ("in_offset", "InputPixelOffset"), ("out_offset", "OutputPixelOffset"),
    ):  # fmt: skip
        numbers[name] = bits_of(given[of], compute)
    held = [*arrays, *outputs]
    place = {"D": "InputGradient", "rois": "ROI", "images": "BatchIndices", "X": "Input"}
    wanted = [("best", ("X", "D", "rois", "images", "best"), arrays.get("Input"))] if maximum else []
    more = ("best",) * maximum
    if "OutputGradient" in outputs:
        wanted.append(("images", ("D", "rois", "images", *more, "result"), outputs["OutputGradient"]))
    if "OutputROIGradient" in outputs:
        wanted.append(("regions", ("X", "D", "rois", "images", *more, "result"), arrays["Input"]))
    launches: list[Launch] = []
    places: list[tuple[int, ...]] = []
    for name, changing, image in wanted:
        assert image is not None
        kernel = kernel_of(
            device, _BUILDERS[name], config,
            name=kernel_name("roi_align_grad", name, dtype), arguments=len(ARGUMENTS), threads=threads,
        )  # fmt: skip
        values = numbers | dict(zip(("x_n", "x_c", "x_y", "x_x"), image.strides, strict=True))
        launches.append(Launch(kernel, grids[name], threads, *named(ARGUMENTS, values, changing)))
        result = {"images": "OutputGradient", "regions": "OutputROIGradient"}.get(name, "")
        places.append(tuple(len(held) if each == "best" else held.index(place.get(each, result)) for each in changing))
    return LaunchesPlan("regions", 8 * D.size * maximum, tuple(launches), tuple(places), (0,) * maximum, device)
