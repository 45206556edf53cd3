"""The table of numbers and functions against the header that cuDNN's wheel brings."""

from __future__ import annotations

import ctypes
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from gradkern.cudnn import api

KINDS = {  # of descriptors, by the part of their C name between CUDNN_BACKEND_ and _DESCRIPTOR
    "pointwise": "POINTWISE",
    "convolution": "CONVOLUTION",
    "engine": "ENGINE",
    "engine_config": "ENGINECFG",
    "heuristics": "ENGINEHEUR",
    "plan": "EXECUTION_PLAN",
    "knob_choice": "KNOB_CHOICE",
    "knob_info": "KNOB_INFO",
    "convolution_forward": "OPERATION_CONVOLUTION_FORWARD",
    "convolution_backward_filter": "OPERATION_CONVOLUTION_BACKWARD_FILTER",
    "convolution_backward_data": "OPERATION_CONVOLUTION_BACKWARD_DATA",
    "pointwise_operation": "OPERATION_POINTWISE",
    "operation_graph": "OPERATIONGRAPH",
    "variant_pack": "VARIANT_PACK",
    "tensor": "TENSOR",
    "device": "DEVICEPROP",
}
PREFIXES = {  # of the attributes, where it is not CUDNN_ATTR_ and the kind's
    "convolution_backward_filter": "OPERATION_CONVOLUTION_BWD_FILTER",
    "convolution_backward_data": "OPERATION_CONVOLUTION_BWD_DATA",
}
CONVOLUTIONS = ("convolution_forward", "convolution_backward_filter", "convolution_backward_data")
ATTRIBUTES = {  # where the C name is not the prefix and ours in capitals
    "convolution.compute_type": "COMP_TYPE",
    "convolution.mode": "CONV_MODE",
    "convolution.strides": "FILTER_STRIDES",
    "convolution.pads_end": "POST_PADDINGS",
    "convolution.pads_begin": "PRE_PADDINGS",
    "convolution.spatial_axes": "SPATIAL_DIMS",
    "engine.index": "GLOBAL_INDEX",
    "engine.knob_infos": "KNOB_INFO",
    "engine.numerical_notes": "NUMERICAL_NOTE",
    "engine.behavior_notes": "BEHAVIOR_NOTE",
    "engine.device": "DEVICEPROP",
    "heuristics.device": "DEVICEPROP",
    "plan.device": "DEVICEPROP",
    "plan.json": "JSON_REPRESENTATION",
    "knob_choice.type": "KNOB_TYPE",
    "knob_choice.value": "KNOB_VALUE",
    "knob_info.maximum": "MAXIMUM_VALUE",
    "knob_info.minimum": "MINIMUM_VALUE",
    "operation_graph.operations": "OPS",
    "operation_graph.engine_count": "ENGINE_GLOBAL_COUNT",
    "variant_pack.ids": "UNIQUE_IDS",
    "variant_pack.pointers": "DATA_POINTERS",
    "tensor.alignment": "BYTE_ALIGNMENT",
    "tensor.sizes": "DIMENSIONS",
    "tensor.id": "UNIQUE_ID",
    "tensor.virtual": "IS_VIRTUAL",
    "pointwise.compute_type": "MATH_PREC",
    "pointwise_operation.pointwise": "PW_DESCRIPTOR",
    **{f"pointwise_operation.{name}": f"{name}DESC" for name in ("X", "B", "Y")},
    "device.index": "DEVICE_ID",
    "device.json": "JSON_REPRESENTATION",
    **{f"{kind}.{name}64": name.upper() for kind in CONVOLUTIONS for name in ("alpha", "beta")},
    **{f"{kind}.convolution": "CONV_DESC" for kind in CONVOLUTIONS},
    **{f"{kind}.{name}": name.upper() for kind in CONVOLUTIONS for name in ("dX", "dW", "dY")},
}
TYPES = {  # cudnnBackendAttributeType_t
    "HANDLE": "HANDLE",
    "DATA_TYPE": "DATA_TYPE",
    "BOOLEAN": "BOOLEAN",
    "INT64": "INT64",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "POINTER": "VOID_PTR",
    "CONVOLUTION_MODE": "CONVOLUTION_MODE",
    "HEURISTIC_MODE": "HEUR_MODE",
    "KNOB_TYPE": "KNOB_TYPE",
    "NUMERICAL_NOTE": "NUMERICAL_NOTE",
    "POINTWISE_MODE": "POINTWISE_MODE",
    "DESCRIPTOR": "BACKEND_DESCRIPTOR",
    "BEHAVIOR_NOTE": "BEHAVIOR_NOTE",
    "INT32": "INT32",
    "CHAR": "CHAR",
}
DATA_TYPES = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "HALF", "bfloat16": "BFLOAT16"}


@pytest.fixture(scope="module")
def header() -> str:
    for wheel in ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13"):
        try:
            files = metadata.files(wheel) or []
        except metadata.PackageNotFoundError:
            continue
        names = ("cudnn_graph.h", "cudnn_ops.h")
        paths = [Path(str(each.locate())) for each in files if each.name in names]
        if len(paths) == len(names) and all(path.exists() for path in paths):
            return "\n".join(path.read_text() for path in paths)
    pytest.skip("no wheel of cuDNN is installed, which has the headers")


@pytest.fixture(scope="module")
def numbers(header: str) -> dict[str, int]:
    """Every enumerator of the headers that is given as a number."""
    found = re.findall(r"\b(CUDNN_\w+)(?:\s+CUDNN_DEPRECATED_ENUM)?\s*=\s*(-?\d+)\s*[,/ }]", header)
    return {name: int(number) for name, number in found}


def test_kinds_and_attributes_have_the_headers_numbers(numbers: dict[str, int]) -> None:
    assert KINDS.keys() == api.KINDS.keys()
    for name, kind in api.KINDS.items():
        assert kind.number == numbers[f"CUDNN_BACKEND_{KINDS[name]}_DESCRIPTOR"], name
        for attribute, (number, _) in kind.attributes.items():
            suffix = ATTRIBUTES.get(f"{name}.{attribute}", attribute.upper())
            assert number == numbers[f"CUDNN_ATTR_{PREFIXES.get(name, KINDS[name])}_{suffix}"], f"{name}.{attribute}"


def test_types_and_choices_have_the_headers_numbers(numbers: dict[str, int]) -> None:
    ours = {name: each for name, each in vars(api).items() if isinstance(each, api.ElementType)}
    assert {name: each.number for name, each in ours.items()} == {
        name: numbers[f"CUDNN_TYPE_{c_name}"] for name, c_name in TYPES.items()
    }
    assert {name: numbers[f"CUDNN_DATA_{c_name}"] for name, c_name in DATA_TYPES.items()} == api.DATA_TYPES
    assert numbers["CUDNN_CROSS_CORRELATION"] == api.CROSS_CORRELATION
    assert numbers["CUDNN_POINTWISE_ADD"] == api.ADDITION
    for enum, prefix in (
        (api.HeuristicMode, "HEUR_MODE"),
        (api.NumericalNote, "NUMERICAL_NOTE"),
        (api.BehaviorNote, "BEHAVIOR_NOTE"),
    ):
        theirs = {name.upper(): number for name, number in numbers.items()}
        members = enum.__members__  # with those that have another's number
        assert {name: each.value for name, each in members.items()} == {
            name: theirs[f"CUDNN_{prefix}_{name}"] for name in members
        }


def test_every_function_has_the_headers_arguments(header: str) -> None:
    plain = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    for name, (_, arguments) in api.FUNCTIONS.items():
        declared = re.search(rf"\b{name}\(([^)]*)\);", plain)
        assert declared is not None, name
        texts = [" ".join(each.split()) for each in declared.group(1).split(",")]
        assert [_ctype(each) for each in texts if each != "void"] == list(arguments), name


_OPAQUE = ("cudnnHandle_t", "cudaStream_t", "cudnnBackendDescriptor_t")


def _ctype(argument: str) -> Any:
    """What an argument as C has it is in ctypes: an enumerator is an int, all that is opaque is an address."""
    kind = argument.replace("const ", "").rsplit(" ", 1)[0]
    if "*" in argument or "[" in argument or kind in _OPAQUE:
        return ctypes.c_void_p
    return {"size_t": ctypes.c_size_t, "int64_t": ctypes.c_int64}.get(kind, ctypes.c_int)
