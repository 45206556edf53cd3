"""cuDNN as C has it: the functions gradkern calls, and the numbers of cudnn_graph.h, in one table.

cudnnBackendSetAttribute and GetAttribute take an attribute by number, the type of its elements by number, a count and
an address. So each kind of descriptor is listed once with its attributes and their types; everything else has names.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t

FUNCTIONS: Mapping[str, tuple[Any, tuple[Any, ...]]] = {  # name -> what it returns, what it takes
    "cudnnGetVersion": (_SIZE, ()),
    "cudnnGetCudartVersion": (_SIZE, ()),
    "cudnnGetErrorString": (ctypes.c_char_p, (ctypes.c_int,)),
    "cudnnGetLastErrorString": (None, (_POINTER, _SIZE)),
    "cudnnCreate": (ctypes.c_int, (_POINTER,)),
    "cudnnSetStream": (ctypes.c_int, (_POINTER, _POINTER)),
    "cudnnBackendCreateDescriptor": (ctypes.c_int, (ctypes.c_int, _POINTER)),
    "cudnnBackendDestroyDescriptor": (ctypes.c_int, (_POINTER,)),
    "cudnnBackendSetAttribute": (ctypes.c_int, (_POINTER, ctypes.c_int, ctypes.c_int, ctypes.c_int64, _POINTER)),
    "cudnnBackendGetAttribute": (
        ctypes.c_int,
        (_POINTER, ctypes.c_int, ctypes.c_int, ctypes.c_int64, _POINTER, _POINTER),
    ),
    "cudnnBackendFinalize": (ctypes.c_int, (_POINTER,)),
    "cudnnBackendExecute": (ctypes.c_int, (_POINTER, _POINTER, _POINTER)),
}

DATA_TYPES: Mapping[str, int] = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}  # cudnnDataType_t
CROSS_CORRELATION = 1  # of cudnnConvolutionMode_t: what everyone calls a convolution
ADDITION = 0  # of cudnnPointwiseMode_t


class HeuristicMode(IntEnum):
    """cudnnBackendHeurMode_t."""

    B = 1
    FALLBACK = 2
    A = 3


class NumericalNote(IntEnum):
    """What gradkern reads of cudnnBackendNumericalNote_t."""

    TENSOR_CORE = 0
    DOWN_CONVERT_INPUTS = 1
    REDUCED_PRECISION_REDUCTION = 2
    NONDETERMINISTIC = 4


class BehaviorNote(IntEnum):
    """What gradkern reads of cudnnBackendBehaviorNote_t."""

    RUNTIME_COMPILATION = 0


@dataclass(frozen=True, slots=True)
class ElementType:
    """What an attribute's elements are: the number of the type in cudnnBackendAttributeType_t, and as ctypes has it."""

    number: int
    ctype: Any


HANDLE = ElementType(0, ctypes.c_void_p)
DATA_TYPE = ElementType(1, ctypes.c_int)
BOOLEAN = ElementType(2, ctypes.c_bool)
INT64 = ElementType(3, ctypes.c_int64)
FLOAT = ElementType(4, ctypes.c_float)
DOUBLE = ElementType(5, ctypes.c_double)
POINTER = ElementType(6, ctypes.c_void_p)
CONVOLUTION_MODE = ElementType(7, ctypes.c_int)
HEURISTIC_MODE = ElementType(8, ctypes.c_int)
KNOB_TYPE = ElementType(9, ctypes.c_int)
NUMERICAL_NOTE = ElementType(11, ctypes.c_int)
POINTWISE_MODE = ElementType(14, ctypes.c_int)
DESCRIPTOR = ElementType(15, ctypes.c_void_p)
BEHAVIOR_NOTE = ElementType(19, ctypes.c_int)
INT32 = ElementType(23, ctypes.c_int32)
CHAR = ElementType(24, ctypes.c_char)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of descriptor: its number in cudnnBackendDescriptorType_t, its attributes by name with their types.

    Where an attribute may have two types, as the factors that must have that of the arithmetic (engines read as many
    bytes as it has, and the first four of a double 1.0 are a float 0.0), it is listed under two names.
    """

    number: int
    attributes: Mapping[str, tuple[int, ElementType]]


def _convolution(number: int, first: int, *tensors: str) -> Kind:
    """An operation of convolution, whose attributes have consecutive numbers."""
    factors = {"alpha": (first, FLOAT), "alpha64": (first, DOUBLE), "beta": (first + 1, FLOAT)}
    factors |= {"beta64": (first + 1, DOUBLE), "convolution": (first + 2, DESCRIPTOR)}
    return Kind(number, factors | {name: (first + 3 + place, DESCRIPTOR) for place, name in enumerate(tensors)})


KINDS: Mapping[str, Kind] = {
    "pointwise": Kind(0, {"mode": (0, POINTWISE_MODE), "compute_type": (1, DATA_TYPE)}),
    "convolution": Kind(
        1,
        {
            "compute_type": (100, DATA_TYPE),
            "mode": (101, CONVOLUTION_MODE),
            "dilations": (102, INT64),
            "strides": (103, INT64),
            "pads_end": (104, INT64),
            "pads_begin": (105, INT64),
            "spatial_axes": (106, INT64),
        },
    ),
    "engine": Kind(
        2,
        {
            "operation_graph": (1300, DESCRIPTOR),
            "index": (1301, INT64),
            "knob_infos": (1302, DESCRIPTOR),
            "numerical_notes": (1303, NUMERICAL_NOTE),
            "behavior_notes": (1305, BEHAVIOR_NOTE),
            "device": (1307, DESCRIPTOR),
        },
    ),
    "engine_config": Kind(
        3, {"engine": (300, DESCRIPTOR), "knob_choices": (302, DESCRIPTOR), "workspace_size": (303, INT64)}
    ),
    "heuristics": Kind(
        4,
        {
            "mode": (200, HEURISTIC_MODE),
            "operation_graph": (201, DESCRIPTOR),
            "results": (202, DESCRIPTOR),
            "device": (204, DESCRIPTOR),
        },
    ),
    "plan": Kind(
        5,
        {
            "handle": (400, HANDLE),
            "engine_config": (401, DESCRIPTOR),
            "workspace_size": (402, INT64),
            "json": (405, CHAR),
            "device": (407, DESCRIPTOR),
        },
    ),
    "knob_choice": Kind(7, {"type": (600, KNOB_TYPE), "value": (601, INT64)}),
    "knob_info": Kind(
        8, {"type": (1200, KNOB_TYPE), "maximum": (1201, INT64), "minimum": (1202, INT64), "stride": (1203, INT64)}
    ),
    "convolution_forward": _convolution(10, 700, "W", "X", "Y"),
    "convolution_backward_filter": _convolution(11, 712, "dW", "X", "dY"),
    "convolution_backward_data": _convolution(12, 706, "W", "dX", "dY"),
    "pointwise_operation": Kind(
        13,
        {
            "pointwise": (750, DESCRIPTOR),
            "X": (751, DESCRIPTOR),
            "B": (752, DESCRIPTOR),
            "Y": (753, DESCRIPTOR),
        },
    ),
    "operation_graph": Kind(
        15, {"handle": (800, HANDLE), "operations": (801, DESCRIPTOR), "engine_count": (802, INT64)}
    ),
    "variant_pack": Kind(16, {"ids": (1000, INT64), "pointers": (1001, POINTER), "workspace": (1003, POINTER)}),
    "tensor": Kind(
        17,
        {
            "alignment": (900, INT64),
            "data_type": (901, DATA_TYPE),
            "sizes": (902, INT64),
            "strides": (903, INT64),
            "id": (906, INT64),
            "virtual": (907, BOOLEAN),
        },
    ),
    "device": Kind(38, {"index": (2700, INT32), "handle": (2701, HANDLE), "json": (2702, CHAR)}),
}
