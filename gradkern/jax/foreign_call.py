"""Gradkern's operators as XLA's foreign calls, on arrays where they are: nothing is copied, and jit takes them.

XLA hands a C function the addresses of a call's arrays. Here that is a function of ctypes, laid out as jaxlib's
xla/ffi/api/c_api.h has it (version 0 of that interface; fields are only ever appended). The call's text names the
operator; its plan is made in the first such call of the process, and kept.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from gradkern.arrays.kind import dtype_of
from gradkern.arrays.torch_guards import alignment
from gradkern.call import HOST, Tensor
from gradkern.contract.request import binder_of
from gradkern.dispatch.run import plan_for
from gradkern.policy import Policy, current, differences
from gradkern.strides import c_strides

jax: Any = import_module("jax")  # types are checked where it is not installed

_TARGET = "gradkern"
_DTYPES = {1: "bool", 4: "int32", 5: "int64", 6: "uint8", 8: "uint32"}
_DTYPES |= {10: "float16", 11: "float32", 12: "float64", 16: "bfloat16"}
"""XLA_FFI_DataType"""
_EXECUTE, _METADATA = 3, 1  # of XLA_FFI_ExecutionStage, of XLA_FFI_Extension_Type
_CREATE_ERROR, _GET_STREAM = 0, 4  # places of functions in XLA_FFI_Api
_INTERNAL = 13  # of XLA_FFI_Error_Code
_Pointer, _Size = ctypes.c_void_p, ctypes.c_size_t


def foreign_call(
    op: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any], *, last: tuple[str, ...] = (), **attributes: Any
) -> Any:
    """The outputs, each like the array that it is given, by the policy in force when the call is traced.

    last  names of arrays that the operator sees with their last axis as the second one
    Inputs on the host are lists and numbers, among the attributes.
    """
    _register()
    binder = binder_of(op).of((), inputs)
    inputs = {name: inputs[name] for name in binder.inputs if name in inputs}  # a plan's order; jit sorts a mapping's
    wanted = [name for name in binder.outputs if name in outputs]
    text = {"op": op, "inputs": [*inputs], "outputs": wanted, "attributes": attributes, "last": last}
    results = [jax.ShapeDtypeStruct(outputs[name].shape, outputs[name].dtype) for name in wanted]
    places = {name: place for place, name in enumerate(inputs)}
    pairs = [pair for pair in binder.aliases if pair[0] in places and pair[1] in wanted]
    aliases = {places[source]: wanted.index(name) for source, name in pairs}  # XLA copies what is still needed
    call = jax.ffi.ffi_call(_TARGET, results, vmap_method="sequential", input_output_aliases=aliases)
    found = call(*inputs.values(), call=json.dumps({**text, "policy": differences(current())}))
    return [found[wanted.index(name)] for name in outputs]


# --- what XLA gives -----------------------------------------------------------------------------------------------


def _struct(*fields: tuple[str, Any]) -> type[ctypes.Structure]:
    head = ("struct_size", _Size), ("extension", _Pointer)
    return type("Struct", (ctypes.Structure,), {"_fields_": [*head, *fields]})


_Version = _struct(("major", ctypes.c_int), ("minor", ctypes.c_int))
_List = _struct(("size", ctypes.c_int64), ("types", _Pointer), ("items", ctypes.POINTER(_Pointer)))
_Attributes = _struct(
    *(("size", ctypes.c_int64), ("types", _Pointer), ("names", _Pointer), ("items", ctypes.POINTER(_Pointer)))
)
_Buffer = _struct(
    *(("dtype", ctypes.c_int), ("data", _Pointer), ("rank", ctypes.c_int64), ("dims", ctypes.POINTER(ctypes.c_int64)))
)
_Api = _struct(("version", _Version), ("internal", _Pointer), ("functions", _Pointer * 5))
_Frame = _struct(
    *(("api", ctypes.POINTER(_Api)), ("context", _Pointer), ("stage", ctypes.c_int)),
    *(("args", _List), ("results", _List), ("attributes", _Attributes)),
)
_StreamGet = _struct(("context", _Pointer), ("stream", _Pointer))
_ErrorCreate = _struct(("message", ctypes.c_char_p), ("code", ctypes.c_int))


class _Extension(ctypes.Structure):
    _fields_ = (("struct_size", _Size), ("type", ctypes.c_int), ("next", _Pointer), ("metadata", _Pointer))


class _Metadata(ctypes.Structure):
    _fields_ = (("struct_size", _Size), ("version", _Version), ("traits", ctypes.c_uint32))


class _Text(ctypes.Structure):
    _fields_ = (("data", _Pointer), ("size", _Size))


_Handler = ctypes.CFUNCTYPE(_Pointer, ctypes.POINTER(_Frame))


def _handle(platform: str, frame: Any) -> int | None:
    """What XLA calls: an address of an error, or None."""
    frame = frame[0]
    try:
        if frame.extension:
            extension = _Extension.from_address(frame.extension)
            if extension.type == _METADATA:  # a question, not a call
                metadata, version = _Metadata.from_address(extension.metadata), frame.api[0].version
                if version.major != 0:
                    raise RuntimeError(f"gradkern knows version 0 of XLA's foreign calls; this is {version.major}")
                metadata.version.major, metadata.version.minor = version.major, version.minor
                return None
        if frame.stage == _EXECUTE:
            _execute(platform, frame)
    except BaseException as error:  # XLA is to know, and nothing passes through C
        return _error(frame, f"{type(error).__name__}: {error}")
    return None


def _execute(platform: str, frame: Any) -> None:
    text = _Text.from_address(frame.attributes.items[0])
    call = ctypes.string_at(text.data, text.size)
    arrays = [_Buffer.from_address(each.items[k]) for each in (frame.args, frame.results) for k in range(each.size)]
    described = tuple((each.dtype, *each.dims[: each.rank]) for each in arrays)
    addresses = tuple(each.data or 0 for each in arrays)
    count = frame.args.size
    if platform == "cpu":
        plan, tensors, scalars = _plan(call, described, HOST, None)
        views = tuple(map(_array, tensors, addresses))
        plan.plan(views[:count] + scalars, views[count:], None)
        return
    there = next((each for each in addresses if each), 0)
    if not there:  # all is empty
        return
    arrays_on_device: Any = import_module("gradkern.arrays.device")
    device = f"cuda:{arrays_on_device.device_of(there)}"
    plan, _, scalars = _plan(call, described, device, tuple(map(alignment, addresses)))
    query = _StreamGet(ctypes.sizeof(_StreamGet), None, frame.context, None)
    get = ctypes.CFUNCTYPE(_Pointer, ctypes.POINTER(_StreamGet))(frame.api[0].functions[_GET_STREAM])
    if get(ctypes.byref(query)):
        raise RuntimeError("XLA gives no stream")
    plan.plan(addresses[:count] + scalars, addresses[count:], query.stream or 0)


@lru_cache(maxsize=4096)
def _plan(
    call: bytes, described: Any, device: str, alignments: Any
) -> tuple[Any, tuple[Tensor, ...], tuple[bool | int | float, ...]]:
    """The plan, its arrays, and its numbers. alignments: None on the host, where nothing depends on them."""
    said = json.loads(call)
    names = [*said["inputs"], *said["outputs"]]
    tensors = []
    for place, (name, (code, *shape)) in enumerate(zip(names, described, strict=True)):
        dtype = dtype_of(_DTYPES.get(code) or f"XLA's number {code}")
        strides = c_strides(tuple(shape), dtype.itemsize)
        if name in said["last"]:
            shape, strides = (shape[0], shape[-1], *shape[1:-1]), (strides[0], strides[-1], *strides[1:-1])
        tensors.append(Tensor(dtype, tuple(shape), strides, alignments[place] if alignments else dtype.itemsize))
    named, count = [*zip(names, tensors, strict=True)], len(said["inputs"])
    inputs, outputs = dict(named[:count]), dict(named[count:])
    policy = Policy(**said["policy"])
    wanted = {"outputs": [*outputs], "out": outputs, "policy": policy, **said["attributes"]}
    made = plan_for(said["op"], inputs, device=device, **wanted)
    return made, tuple(tensors), tuple(said["attributes"][name] for name in made.call.scalars)


def _array(tensor: Tensor, address: int) -> np.ndarray:
    memory: Any = (ctypes.c_char * tensor.nbytes).from_address(address)
    return np.ndarray(tensor.shape, tensor.dtype, memory, strides=tensor.strides)


def _error(frame: Any, words: str) -> int:
    made = _ErrorCreate(ctypes.sizeof(_ErrorCreate), None, words.encode(), _INTERNAL)
    create = ctypes.CFUNCTYPE(_Pointer, ctypes.POINTER(_ErrorCreate))(frame.api[0].functions[_CREATE_ERROR])
    return create(ctypes.byref(made))


@cache
def _register() -> list[Any]:
    """Register the function with XLA, once. It is kept as long as the process runs."""
    handlers: list[Any] = []
    for platform in ("cpu", "CUDA"):
        handler = _Handler(lambda frame, platform=platform: _handle(platform, frame))
        handlers.append(handler)
        jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(handler), platform)
    return handlers
