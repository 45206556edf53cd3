"""Loads kernels, from the cache or compiled, and launches them through cuLaunchKernelEx. Constant arguments are
prepared once.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, cast

from gradkern.cuda import cache, packs
from gradkern.cuda.compile import Compiled
from gradkern.cuda.device import Device, activate, check, driver, is_current
from gradkern.cuda.dry_run import DryRunDevice, UnloadedKernel
from gradkern.cuda.recording import Recording
from gradkern.cuda.spec import KernelSpec
from gradkern.system import locks
from gradkern.system.driver import ask
from gradkern.system.own_thread import turn

_lock = locks.reentrant_lock()
_loaded: dict[tuple[str, Device], Kernel] = {}


class Kernel:
    """A kernel loaded on a device. The number of its resident blocks also depends on the device's margin."""

    def __init__(self, compiled: Compiled, device: Device, shared_bytes: int, cluster: int = 1) -> None:
        self.device = device
        self.name, self.registers, self.spilled = compiled.name, compiled.registers, compiled.spilled
        self.shared_bytes = shared_bytes
        with activate(device):
            self._module = check(driver.cuModuleLoadData(compiled.cubin), "loading a kernel")
            self.function = check(driver.cuModuleGetFunction(self._module, self.name.encode()), "finding a kernel")
            attributes = driver.CUfunction_attribute
            if shared_bytes > 48 * 1024:
                what = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                check(driver.cuFuncSetAttribute(self.function, what, shared_bytes), "asking for shared memory")
            if cluster > 8:  # before the occupancy query, else the driver refuses
                what = attributes.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
                check(driver.cuFuncSetAttribute(self.function, what, 1), "asking for a large cluster")

    def resident_blocks(self, threads: int, cluster: int = 1) -> int:
        """The number of blocks that are resident on the device at a time, outside of its margin."""
        with activate(self.device):
            if cluster == 1:
                each = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(self.function, threads, self.shared_bytes)
                return int(check(each, "asking for the occupancy")) * self.device.processors
            config = _launch_config(
                self.device.processors // cluster * cluster, threads, self.shared_bytes, cluster, False
            )
            count = driver.cuOccupancyMaxActiveClusters(self.function, config)
            # of the whole device: a margin reduces it proportionally, or more where other kernels' blocks are scattered
            clusters = int(check(count, "asking for the clusters"))
            return clusters * self.device.processors // (self.device.processors + self.device.margin) * cluster


_PROBE = b".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry probe()\n{\n ret;\n}\n\0"


@functools.cache
def resident_clusters(device: Device, cluster: int, threads: int) -> int:
    """The number of resident clusters of this size on a device of compute capability 9.0 or newer, if a block takes all
    shared memory of a multiprocessor. A cluster's multiprocessors must be neighbours, so that some may stay idle.
    """
    if isinstance(device, DryRunDevice):
        return device.processors // cluster
    probe = Kernel(Compiled(_PROBE, 0, 0, "probe"), device, device.shared_bytes, cluster)
    return probe.resident_blocks(threads, cluster) // cluster


class KernelConfig(Protocol):
    """A kernel's compile-time constants, with its name in a profiler and the resources of a block."""

    @property
    def name(self) -> str: ...

    @property
    def threads(self) -> int: ...

    @property
    def blocks_per_processor(self) -> int: ...

    @property
    def shared_bytes(self) -> int: ...


def kernel_of_config(
    device: Device, builder: str, config: KernelConfig, *more: Any, arguments: int, cluster: int = 1
) -> Kernel:
    """`kernel_of` with the constants `config` and `more`, and the name, threads and shared memory of the config."""
    return kernel_of(
        device,
        builder,
        config,
        *more,
        name=config.name,
        arguments=arguments,
        threads=config.threads,
        blocks_per_processor=config.blocks_per_processor,
        shared_bytes=config.shared_bytes,
        cluster=cluster,
    )


def kernel_of(
    device: Device,
    builder: str,
    *constants: Any,
    name: str,
    arguments: int,
    threads: int,
    blocks_per_processor: int = 1,
    shared_bytes: int = 0,
    cluster: int = 1,
) -> Kernel:
    """The builder's kernel for these constants, loaded on the device: once in a process for each SM margin. It is
    compiled only if neither a pack nor the cache on disk has it. A pack comes first, so that the same machine code runs
    whether the cache is empty or not.

    builder, constants: as in KernelSpec. The machine code depends on these and on the module's sources only; `name`,
    `shared_bytes` and `cluster` follow from them.
    """

    spec = KernelSpec(builder, constants, name, arguments, threads, blocks_per_processor, device.capability)
    if isinstance(device, DryRunDevice):
        device.specs[spec] = None
        return cast(Kernel, UnloadedKernel(spec, device, shared_bytes))
    key = cache.key_of(spec.module, spec.description, spec.capability)

    def compiled() -> Compiled:
        with activate(device):  # a linker may need the context, in any thread
            return spec.compile()

    with turn(_lock):
        kernel = _loaded.get((key, device))
        if kernel is None:
            made = packs.find(spec) or cache.fetch(key, compiled)
            kernel = _loaded[key, device] = Kernel(made, device, shared_bytes, cluster)
        return kernel


def named(names: Sequence[str], numbers: Mapping[str, int], given: Sequence[str]) -> tuple[list[int], list[int]]:
    """`arguments` and `changing` of a launch, for a kernel with these argument names: numbers by name, 0 for others,
    and the places of the arguments that a call provides.
    """
    return [numbers.get(name, 0) for name in names], [names.index(name) for name in given]


class Launch:
    """One launch of a kernel of int64 arguments. A call provides the arguments at `changing`, in that order; others are
    fixed.

    Calls cost the host as little as Python allows: fixed arguments are stored in the driver's format, and changing
    arguments are contiguous in memory, whatever their order in the kernel, and written in one operation.
    """

    def __init__(
        self,
        kernel: Kernel,
        grid: int,
        threads: int,
        arguments: Sequence[int],
        changing: Sequence[int],
        cluster: int = 1,
        cooperative: bool = False,
        overlaps: bool = False,
    ) -> None:
        """overlaps: its blocks may begin while the launch before it in the stream runs, see
        intrinsics.wait_for_launch_before.
        """
        self.kernel, self.grid, self.threads, self.cluster = kernel, grid, threads, cluster
        how = grid, threads, kernel.shared_bytes, cluster, cooperative
        self._launch_config = _launch_config(*how, overlaps=overlaps and _graphs_overlap())
        order = [*changing, *(index for index in range(len(arguments)) if index not in changing)]
        self._write = struct.Struct(f"{len(changing)}q").pack_into
        self._values = (ctypes.c_int64 * len(arguments))(*(arguments[index] for index in order))
        first = ctypes.addressof(self._values)
        places = (first + 8 * order.index(index) for index in range(len(arguments)))
        self._pointers = (ctypes.c_void_p * len(arguments))(*places)
        self._address = ctypes.addressof(self._pointers)
        self._stream: int | None = None
        self.changing = len(changing)
        self._lock = locks.lock()

    def __call__(self, values: Sequence[int], stream: int) -> None:
        """Launch with these values of the changing arguments, in the device's context, whichever is current."""
        with self._lock:  # the argument block is this object's own
            if stream != self._stream:
                if isinstance(stream, Recording):
                    stream.add(self, values)
                    return
                self._launch_config.hStream = driver.CUstream(stream)
                self._stream = stream
            self._write(self._values, 0, *values)
            status = driver.cuLaunchKernelEx(self._launch_config, self.kernel.function, self._address, 0)
        if status[0]:
            self._retry(status, values, stream)

    @property
    def function(self) -> int:
        return int(self.kernel.function)

    @property
    def block(self) -> tuple[list[int], list[int], list[int]]:
        """For who launches without this object: the arguments, the places of those that change, in the order of the
        values, and the words of CUlaunchConfig, without its stream. All of it lives as long as this object.
        """
        first = ctypes.addressof(self._values)
        order = [(pointer - first) // 8 for pointer in self._pointers]  # of the argument at each place
        values = [self._values[index] for index in order]
        config = (ctypes.c_int64 * 7).from_address(int(self._launch_config.getPtr()))
        return values, [order.index(index) for index in range(self.changing)], list(config)

    def _retry(self, status: tuple[Any, ...], values: Sequence[int], stream: int) -> None:
        """Launch in the kernel's context after the driver refused the launch in another current context: cheaper than
        querying the context before every launch.
        """
        if is_current(self.kernel.device):
            check(status, "a launch")
        with activate(self.kernel.device):
            self(values, stream)


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """A plan of one launch without scratch memory. It can be called in any thread and any context."""

    REPEATABLE: ClassVar[bool] = True  # see gradkern.call.Repeatable
    kernel: str
    launch: Launch
    scratch: int = 0

    @property
    def launches(self) -> tuple[Launch, ...]:
        return (self.launch,)

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        self.launch((*inputs, *outputs), stream)


@functools.cache
def _graphs_overlap() -> bool:
    """Whether launches that overlap can be captured: a graph has had them since CUDA 12.3."""
    found = ask()
    return found is not None and found.version >= (12, 3)


def _launch_config(
    grid: int, threads: int, shared_bytes: int, cluster: int, cooperative: bool, *, overlaps: bool = False
) -> Any:
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.sharedMemBytes = shared_bytes
    attributes: list[Any] = []
    if cooperative:
        each = driver.CUlaunchAttribute()
        each.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        each.value.cooperative = 1
        attributes.append(each)
    if overlaps:
        each = driver.CUlaunchAttribute()
        each.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        each.value.programmaticStreamSerializationAllowed = 1
        attributes.append(each)
    if cluster > 1:
        each = driver.CUlaunchAttribute()
        each.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        each.value.clusterDim.x, each.value.clusterDim.y, each.value.clusterDim.z = cluster, 1, 1
        attributes.append(each)
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config
