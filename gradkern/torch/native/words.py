"""The layout of what Python writes and machine code reads: places in words of 64 bits.

BLOCK_*    of an operator's block: one for an operator and a device, never freed. BLOCK_WAY is BY_*: who answers
SITE_*     of a place in compiled code
RECORD_*   of a record: how calls that are alike are computed. Behind its fields is its key
OUTPUT_*   of an array that a call makes: results, and memory that is only used within
LAUNCH_*   of a launch, or of the execution of one of cuDNN's plans
CUDNN_*    of cuDNN on a device, as executions need it; PLAN_* of one of its plans
STREAM_*   of a stream whose scratch memory is known
SHIM       names of the C functions, in the order of their addresses; "context" is PyTorch's object that has its flags,
           the three behind it read one each, "policies" is how many blocks of gradkern.policy are in force, "raised" is
           where the exception of a signal's handler is put, by PyErr_Fetch. Those of CPython begin with Py
"""

from __future__ import annotations

from typing import Any

ARGUMENTS = {"tensor": 0, "tensor?": 1, "word": 2, "word?": 3, "list": 4, "list?": 5, "string": 6}
"""Kinds of arguments, by how PyTorch hands them over: odd numbers are those of optional ones."""

SHIM: list[str] = []


def _shim(name: str) -> int:
    """The place of a C function's address."""
    SHIM.append(name)
    return len(SHIM) - 1


IS_DEFINED = _shim("aoti_torch_is_defined")
GET_DTYPE = _shim("aoti_torch_get_dtype")
ELEMENT_SIZE = _shim("aoti_torch_dtype_element_size")
GET_DIM = _shim("aoti_torch_get_dim")
GET_NUMEL = _shim("aoti_torch_get_numel")
GET_DEVICE_TYPE = _shim("aoti_torch_get_device_type")
GET_DEVICE_INDEX = _shim("aoti_torch_get_device_index")
GET_SIZES = _shim("aoti_torch_get_sizes")
GET_STRIDES = _shim("aoti_torch_get_strides")
GET_DATA_PTR = _shim("aoti_torch_get_data_ptr")
DELETE_TENSOR = _shim("aoti_torch_delete_tensor_object")
NEW_UNDEFINED = _shim("aoti_torch_new_uninitialized_tensor")
EMPTY_STRIDED = _shim("aoti_torch_empty_strided")
LIST_SIZE = _shim("torch_list_size")
LIST_GET_ITEM = _shim("torch_list_get_item")
DELETE_LIST = _shim("torch_delete_list")
STRING_LENGTH = _shim("torch_string_length")
STRING_TEXT = _shim("torch_string_c_str")
DELETE_STRING = _shim("torch_delete_string")
FREE = _shim("free")
CALL_DISPATCHER = _shim("torch_call_dispatcher")
CHECK = _shim("aoti_torch_check")
RAISE = _shim("raise")
CURRENT_STREAM = _shim("aoti_torch_get_current_cuda_stream")
IS_CAPTURING = _shim("cuStreamIsCapturing")
LAUNCH_KERNEL = _shim("cuLaunchKernelEx")
CURRENT_DEVICE = _shim("cuCtxGetDevice")
CONTEXT = _shim("context")
DETERMINISTIC = _shim("deterministic")
DETERMINISTIC_CUDNN = _shim("deterministic cuDNN")
CUDNN = _shim("cuDNN")
POLICIES = _shim("policies")
PROCESS = _shim("getpid")
THREAD = _shim("gettid")
TAKE_GIL = _shim("PyGILState_Ensure")
LEAVE_GIL = _shim("PyGILState_Release")
HANDLE_SIGNALS = _shim("PyErr_CheckSignals")
FETCH = _shim("PyErr_Fetch")
RAISED = _shim("raised")
SAVE_THREAD = _shim("PyEval_SaveThread")
RESTORE_THREAD = _shim("PyEval_RestoreThread")
NEW_REFERENCE = _shim("Py_IncRef")
NEW_TUPLE = _shim("PyTuple_New")
SET_ITEM = _shim("PyTuple_SetItem")
CALL_PYTHON = _shim("PyObject_Vectorcall")

MOST_ARGUMENTS, MOST_OUTPUTS, MOST_KEY, MOST_ADDRESSES = 16, 8, 256, 32
"""Arguments and outputs of a call, words of a key, addresses: a call's tensors, outputs and scratch memory."""
COUNTER, BUFFER, ITSELF = MOST_ARGUMENTS + MOST_OUTPUTS, MOST_ARGUMENTS + MOST_OUTPUTS + 1, MOST_ADDRESSES - 1
"""Places among the addresses: a stream's counter and its buffer; a queue of the CPU provider. The call's tensors come
first, by their places among its arguments, and outputs from MOST_ARGUMENTS on.
"""

BY_PYTHON, BY_RECORDS, BY_PYTORCH = range(3)
"""Who answers: Python; records where there are some, and Python; PyTorch's kernel, without a look at the call."""

BLOCK_WAY, BLOCK_TABLE, BLOCK_LEAST, BLOCK_ACTIVE, BLOCK_STREAMS, BLOCK_SMALL = range(6)
BLOCK_SHIM, BLOCK_NAME, BLOCK_ORIGINAL, BLOCK_OVERLOAD, BLOCK_VERSION, BLOCK_RAISER, BLOCK_MESSAGE = range(6, 13)
BLOCK_INPUTS, BLOCK_RESULTS, BLOCK_FLAGS, BLOCK_MEASURED, BLOCK_MAY_RAISE, BLOCK_FUNCTION, BLOCK_BOOLS = range(13, 20)
BLOCK_ARGUMENTS = 20
BLOCK_SIZE = BLOCK_ARGUMENTS + MOST_ARGUMENTS
"""BLOCK_FUNCTION: the C function that is PyTorch's kernel, 0 where there is none. BLOCK_BOOLS: a bit for each argument
that is a list of bools.
"""
MOST_C_ARGUMENTS, MOST_NUMBERS = 24, 8
"""Of such a function: a list is two arguments, and has so many numbers."""

SITE_BLOCK, SITE_NUMBER, SITE_INPUTS, SITE_RESULTS, SITE_HANDLE, SITE_PYTHON = range(6)
"""SITE_NUMBER distinguishes its records from those of others. SITE_HANDLE: where a tensor has its handle, in bytes from
its object in Python on; SITE_PYTHON: what answers the calls that no record does.
"""

RECORD_HASH, RECORD_KEY_SIZE, RECORD_BYTES, RECORD_COUNT, RECORD_LEFT, RECORD_ON_GPU, RECORD_DEVICE = range(7)
RECORD_OUTPUTS, RECORD_OUTPUT_COUNT, RECORD_LAUNCHES, RECORD_LAUNCH_COUNT, RECORD_SCRATCH, RECORD_KEY = range(7, 13)
"""RECORD_COUNT: of its calls; RECORD_LEFT: whether these are left to PyTorch's kernel."""

OUTPUT_RESULT, OUTPUT_DIM, OUTPUT_SIZES, OUTPUT_STRIDES, OUTPUT_DTYPE, OUTPUT_DEVICE_TYPE, OUTPUT_DEVICE = range(7)
OUTPUT_SIZE = 7
"""OUTPUT_RESULT: its place among the results; -1 for memory that is only used within."""

LAUNCH_FUNCTION, LAUNCH_TEMPLATE, LAUNCH_COUNT, LAUNCH_PATCHES, LAUNCH_PATCH_COUNT = range(5)
LAUNCH_CONFIG, LAUNCH_CUDNN = 5, 6
LAUNCH_SIZE = 7
"""LAUNCH_TEMPLATE: the arguments, of a kernel of the CPU provider its queue; LAUNCH_PATCHES: (place of a word, place of
an address, bytes to add to it) for each that a call has of its own.
LAUNCH_CUDNN: the address of CUDNN_* where a plan of cuDNN's is executed, 0 for a kernel. LAUNCH_FUNCTION is that plan
then, LAUNCH_CONFIG has PLAN_*, and the arguments are the addresses of its tensors and of its workspace.
"""

CUDNN_DEVICE, CUDNN_HANDLE, CUDNN_CREATE, CUDNN_SET, CUDNN_FINALIZE, CUDNN_DESTROY = range(6)
CUDNN_SET_STREAM, CUDNN_EXECUTE, CUDNN_TRY_LOCK, CUDNN_UNLOCK, CUDNN_MUTEX = range(6, 11)
CUDNN_SIZE = CUDNN_MUTEX + 16
"""CUDNN_MUTEX: a pthread_mutex_t, for the handle: only one thread at a time may use it."""
PLAN_KIND, PLAN_IDS, PLAN_ID_TYPE, PLAN_POINTERS, PLAN_WORKSPACE, PLAN_POINTER_TYPE, PLAN_NUMBERS = range(7)
"""The numbers of cudnn_graph.h for a pack of addresses, and from PLAN_NUMBERS on those of the plan's tensors."""

STREAM_HANDLE, STREAM_DEVICE, STREAM_COUNTER, STREAM_BUFFER, STREAM_BYTES = range(5)
STREAM_SIZE = 5

_MIX, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


def hashed(words: Any) -> int:
    """The hash of a key, as machine code computes it: words that are unsigned."""
    value = 0
    for word in words:
        value = ((value ^ word) * _MIX) & _MASK
        value ^= value >> 32
    return value
