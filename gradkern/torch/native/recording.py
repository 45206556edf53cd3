"""How a plan computes calls that are alike, as words for machine code: outputs, launches, where addresses go."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.call import Delegating, Plan, Repeatable, Tensor, execution
from gradkern.torch.native import words as w
from gradkern.torch.native.shim import address_of, dtype_code


class Unrepeatable(Exception):  # noqa: N818  not an error: Python answers such calls
    """Why machine code cannot repeat a plan."""


@dataclass(frozen=True)
class Output:
    """An array that a call makes. place: among the results; -1 for memory that is only used within."""

    place: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def like(cls, place: int, tensor: Tensor, device: torch.device) -> Output:
        strides = tuple([step // tensor.dtype.itemsize for step in tensor.strides])
        return cls(place, tensor.shape, strides, getattr(torch, tensor.dtype.name), device)

    def words(self, held: list[Any]) -> list[int]:
        sizes, strides = words_of(self.shape), words_of(self.strides)
        held += [sizes, strides]
        kind = 0 if self.device.type == "cpu" else 1
        addresses = ctypes.addressof(sizes), ctypes.addressof(strides)
        return [self.place, len(self.shape), *addresses, dtype_code(self.dtype), kind, self.device.index or 0]


@dataclass
class Steps:
    """The launches of a plan, and the arrays that it makes; what their words point to is held."""

    outputs: list[Output]
    launches: list[list[int]] = field(default_factory=list)
    scratch: int = -1  # bytes; -1 where no scratch memory of the stream is needed
    held: list[Any] = field(default_factory=list)

    def add(
        self,
        function: int,
        template: Sequence[int],
        patches: Sequence[tuple[int, int, int]],
        config: Any = None,
        cudnn: int = 0,
    ) -> None:
        """A launch: its arguments, and (place of a word, place of an address, bytes) for those of each call."""
        if len(template) > 256 or (config is not None and len(template) > 128):
            raise Unrepeatable(f"a launch has {len(template)} arguments")
        arguments, places = words_of(template), words_of([each for patch in patches for each in patch])
        configuration = words_of(config or ())
        self.held += [arguments, places, configuration]
        where = ctypes.addressof(arguments), len(template), ctypes.addressof(places), len(patches)
        self.launches.append([function, *where, ctypes.addressof(configuration), cudnn])

    def with_memory(self, nbytes: int, device: torch.device) -> int:
        """The place of the address of new memory that only a call itself uses."""
        self.outputs.append(Output(-1, (nbytes,), (1,), torch.uint8, device))
        if len(self.outputs) > w.MOST_OUTPUTS:
            raise Unrepeatable("it needs more arrays of its own")
        return w.MOST_ARGUMENTS + len(self.outputs) - 1


def words_of(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * max(len(values), 1))(*values)


def of_cuda(
    plan: Plan,
    inputs: Sequence[int | tuple[int]],
    outputs: list[Output],
    device: torch.device,
    written: Sequence[int] | None = None,
) -> Steps:
    """The launches of a plan for a GPU.

    inputs   the place of each one's address, or its address in a tuple
    written  the places of what it writes, by default the outputs
    """
    from gradkern.cuda.recording import BUFFER, COUNTER, Place, Recording  # needs the packages for a GPU

    _required(plan)
    cudnn = partial(_cudnn, device.index or 0)
    recording, steps = Recording(cudnn), Steps(outputs, held=[plan])
    read: Any = tuple([each[0] if isinstance(each, tuple) else Place(each) for each in inputs])
    places_written = range(w.MOST_ARGUMENTS, w.MOST_ARGUMENTS + len(outputs)) if written is None else written
    execution(plan)(read, tuple([Place(each) for each in places_written]), recording)  # type: ignore
    places: dict[Any, int] = {COUNTER: w.COUNTER, BUFFER: w.BUFFER}
    if recording.scratch is not None:
        steps.scratch = recording.scratch
        if len(recording.launches) > 1 or recording.cudnn:  # threads may share a stream: each call has its own memory
            places[BUFFER] = steps.with_memory(max(recording.scratch, 1), device)
            steps.scratch = 0
    for launch, values in recording.launches:
        template, changing, config = launch.block
        patches = []
        for place, value in zip(changing, values, strict=True):
            if isinstance(value, Place):
                patches.append((place, places.get(value.of, value.of), value.offset))
            else:
                template[place] = value
        steps.held.append(launch)
        steps.add(launch.function, template, patches, config, cudnn().address if launch in recording.cudnn else 0)
    return steps


class Cudnn:
    """What executions of cuDNN's plans on a device need, at `address`; never freed. Within it this thread is the only
    one that executes any: neither a handle nor the plans of all engines are safe in two.
    """

    def __init__(self, words: Mapping[int, int]) -> None:
        threads = ctypes.CDLL(None)
        self._words = words_of([words.get(place, 0) for place in range(w.CUDNN_SIZE)])
        self.address = ctypes.addressof(self._words)
        self._mutex = ctypes.c_void_p(self.address + 8 * w.CUDNN_MUTEX)
        self._lock, self._unlock = threads.pthread_mutex_lock, threads.pthread_mutex_unlock
        self._words[w.CUDNN_TRY_LOCK] = address_of(threads, "pthread_mutex_trylock")
        self._words[w.CUDNN_UNLOCK] = address_of(threads, "pthread_mutex_unlock")
        threads.pthread_mutex_init(self._mutex, None)

    def __enter__(self) -> None:
        self._lock(self._mutex)

    def __exit__(self, *_: object) -> None:
        self._unlock(self._mutex)


@cache
def _cudnn(index: int) -> Cudnn:
    """Of the device with this index."""
    from gradkern.cuda.device import activate, get_device, relaxed_capture  # needs the packages for a GPU
    from gradkern.cudnn.device import Handle
    from gradkern.cudnn.library import library

    functions = {
        w.CUDNN_CREATE: "cudnnBackendCreateDescriptor",
        w.CUDNN_SET: "cudnnBackendSetAttribute",
        w.CUDNN_FINALIZE: "cudnnBackendFinalize",
        w.CUDNN_DESTROY: "cudnnBackendDestroyDescriptor",
        w.CUDNN_SET_STREAM: "cudnnSetStream",
        w.CUDNN_EXECUTE: "cudnnBackendExecute",
    }
    words = {place: address_of(library(), name) for place, name in functions.items()}
    with activate(get_device(index)), relaxed_capture():
        return Cudnn({**words, w.CUDNN_DEVICE: index, w.CUDNN_HANDLE: Handle().address})


def of_cpu(
    plan: Plan, read: Sequence[Any], written: Sequence[Any], inputs: Sequence[int], outputs: list[Output]
) -> Steps:
    """The launches of a plan for the CPU; it is executed. inputs: the place of the address of each of `read`; -1 for
    one that is the same in every call.
    """
    from gradkern.cpu import jobs, threads

    inner = _required(plan)
    recording = threads.Recording()
    threads.state.recording = recording
    try:
        plan(tuple(read), tuple(written), None)
    finally:
        threads.state.recording = None
    if recording.parallel:
        raise Unrepeatable("several threads compute it")
    steps, cpu = Steps(outputs), torch.device("cpu")
    fixed = [array for array, place in zip(read, inputs, strict=True) if place < 0]
    steps.held += [plan, *fixed]
    fixed += inner.constants
    where = {_address(array): place for array, place in zip(read, inputs, strict=True) if place >= 0}
    where |= {_address(array): w.MOST_ARGUMENTS + n for n, array in enumerate(written)}
    where |= {_address(each): steps.with_memory(each.nbytes, cpu) for each in recording.memory}
    known = {_address(array) for array in fixed}
    for queue, arguments in recording.queues:
        template, patches, at = queue.tolist(), [], jobs.ARGUMENTS
        for each in (queue, *arguments):
            if hasattr(each, "__array_interface__"):  # owner, parent, elements, bytes of one, address, shape, strides
                address = template[at + 4]
                if address != _address(each):
                    raise Unrepeatable("a kernel takes its arguments in another way")
                template[at] = template[at + 1] = 0
                if each is queue:
                    patches.append((at + 4, w.ITSELF, 0))
                elif address in where:
                    patches.append((at + 4, where[address], 0))
                elif address not in known:
                    raise Unrepeatable("a kernel has an array that is none of the call's")
                at += 7
            else:
                at += 1
        for place in (jobs.NEXT, jobs.BEGUN, jobs.FINISHED, jobs.FAILED):
            template[place] = 0
        steps.add(template[jobs.FUNCTION], template[:at], patches)
    return steps


def _required(plan: Plan) -> Any:
    """The plan that is executed. Raises Unrepeatable."""
    reason = unrepeatable(plan)
    if reason:
        raise Unrepeatable(reason)
    return plan.within if isinstance(plan, Delegating) else plan


def unrepeatable(plan: Plan) -> str:
    """Why machine code cannot repeat a plan, as far as it is known before a call; "" where it can."""
    plan = plan.within if isinstance(plan, Delegating) else plan
    if isinstance(plan, Repeatable) and plan.REPEATABLE:
        return ""
    return f"{plan.kernel} is not only launches of gradkern's own kernels"


def _address(array: Any) -> int:
    return array.__array_interface__["data"][0]
