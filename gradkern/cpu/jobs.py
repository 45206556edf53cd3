"""One kernel on several threads: the code of `take` in kernels, and of helper threads.

A kernel's queue, an array of integers, is new for each call. It also represents the call for helpers: at its first
`take` a kernel stores its arguments there, and a function that calls it with them. It puts the queue's address into the
mailboxes of its helpers and takes tasks like them. At its last `take` it withdraws the queue from helpers that have not
begun, and waits for those that have.

A helper that is awake polls its mailbox, like OpenMP's threads: it begins a microsecond after the caller. Waking a
thread costs tens of microseconds, and Python's lock would delay both at either end.

A mailbox is one integer: the address of a queue, or one of _EMPTY and _AT_WORK.
"""

from __future__ import annotations

from typing import Any

import numba
from numba import types

from gradkern.cpu.compile import INLINE, emitted, instruction, ir, make_array, target

QUEUE = types.Array(types.int64, 1, "C")
NEXT, TASKS, _MAILBOXES, _HELPERS, BEGUN, FINISHED, FAILED, FUNCTION, ARGUMENTS = range(9)
"""What a queue holds: the next task and the number of tasks; and one with helpers the address of their mailboxes and
their number, how many began and how many of them finished, whether one failed, the function and its arguments."""
QUEUE_SIZE, _HELPERS_SIZE = 256, 255
"""Integers of a queue with helpers for its caller, and for the helpers; one without helpers is shorter."""

MAILBOX = 16
"""Integers of a mailbox: a core fetches two lines of 64 bytes at a time, so each mailbox has its own."""
_EMPTY, _AT_WORK = 0, 1

_VOID, _I32, _I64 = ir.VoidType(), ir.IntType(32), ir.IntType(64)
_WORK, _PLAIN = ir.FunctionType(_VOID, [_I64]).as_pointer(), ir.FunctionType(_VOID, [])


@instruction
def take(typing: Any, queue: Any) -> Any:
    """The next task of the queue, or -1. Each task is given to one thread."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = make_array(QUEUE)(context, builder, arguments[0])
        address = builder.ptrtoint(array.data, _I64)
        is_callers = builder.icmp_signed("==", array.nitems, _I64(QUEUE_SIZE))
        with_helpers = builder.icmp_signed(">=", array.nitems, _I64(_HELPERS_SIZE))
        of_queue = types.void(types.int64)
        name = f"work.{builder.function.name}"
        if name not in builder.module.globals:  # the first in this kernel
            with builder.if_then(is_callers):
                _store_call(context, builder, address, name)
                context.compile_internal(builder, _post, of_queue, [address])
        number = builder.atomic_rmw("add", array.data, _I64(1), "monotonic")
        placed = types.int64(types.int64, types.int64, types.boolean)
        task = context.compile_internal(builder, _task, placed, [address, number, with_helpers])
        with builder.if_then(builder.and_(is_callers, builder.icmp_signed("<", task, _I64(0)))):
            context.compile_internal(builder, _finish, of_queue, [address])
        return task

    return types.int64(queue), generate


def _place(builder: Any, address: Any, index: int, kind: Any = _I64) -> Any:
    return builder.inttoptr(builder.add(address, _I64(8 * index)), kind.as_pointer())


def _store_call(context: Any, builder: Any, address: Any, name: str) -> None:
    """Store the arguments of the kernel that is being built, and the function that calls it with them."""
    kernel, arguments = builder.function, builder.function.args[2:]  # behind Numba's own two
    kernel.attributes.add("noinline")  # into the function below: one copy is enough
    kind = ir.LiteralStructType([each.type for each in arguments])
    if context.get_abi_sizeof(kind) > 8 * (QUEUE_SIZE - ARGUMENTS):
        raise ValueError(f"{kernel.name} has more arguments than a queue has room for")
    for index, each in enumerate(arguments):
        builder.store(each, builder.gep(_place(builder, address, ARGUMENTS, kind), [_I32(0), _I32(index)]))

    work = ir.Function(builder.module, _WORK.pointee, name)
    work.linkage = "internal"
    inner = ir.IRBuilder(work.append_basic_block())
    stored = _place(inner, work.args[0], ARGUMENTS, kind)
    given = [inner.load(inner.gep(stored, [_I32(0), _I32(index)])) for index in range(len(arguments))]
    # the queue comes first, flat: owner, parent, number of elements, size of one, data, shape, strides
    given[2] = given[5] = _I64(_HELPERS_SIZE)
    nothing, exception = (inner.alloca(each.type.pointee) for each in kernel.args[:2])
    status = inner.call(kernel, [nothing, exception, *given])
    failed = inner.zext(inner.icmp_signed("!=", status, status.type(0)), _I64)
    inner.atomic_rmw("or", _place(inner, work.args[0], FAILED), failed, "monotonic")
    inner.atomic_rmw("add", _place(inner, work.args[0], FINISHED), _I64(1), "release")  # then the queue may be gone
    inner.ret_void()
    builder.store(work, _place(builder, address, FUNCTION, _WORK))


@emitted(types.int64(types.int64, types.int64))
def _read(builder: Any, address: Any, index: Any) -> Any:
    """Load the integer there, with acquire order."""
    place = builder.add(address, builder.mul(index, _I64(8)))
    return builder.load_atomic(builder.inttoptr(place, _I64.as_pointer()), "acquire", 8)


@emitted(types.void(*(types.int64,) * 3))
def _add(builder: Any, address: Any, index: Any, value: Any) -> None:
    """Add to the integer there."""
    place = builder.add(address, builder.mul(index, _I64(8)))
    builder.atomic_rmw("add", builder.inttoptr(place, _I64.as_pointer()), value, "monotonic")


@emitted(types.boolean(*(types.int64,) * 3))
def _swap(builder: Any, address: Any, expected: Any, new: Any) -> Any:
    """Compare and swap: whether the integer there was the expected one and has been replaced."""
    place = builder.inttoptr(address, _I64.as_pointer())
    return builder.extract_value(builder.cmpxchg(place, expected, new, "acq_rel", "monotonic"), 1)


@emitted(types.void(types.int64))
def _work(builder: Any, queue: Any) -> None:
    """Call the kernel of the queue at this address."""
    builder.call(builder.load(_place(builder, queue, FUNCTION, _WORK)), [queue])


@emitted(types.void())
def _pause(builder: Any) -> None:
    """Wait for some tens of nanoseconds."""
    triple, *_ = target()
    if triple.startswith("x86_64"):
        builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), _PLAIN), [])
    elif triple.startswith(("aarch64", "arm64")):
        hint = builder.module.declare_intrinsic("llvm.aarch64.hint", (), ir.FunctionType(_VOID, [_I32]))
        builder.call(hint, [_I32(1)])


@emitted(types.void())
def _yield_core(builder: Any) -> None:
    """Yield this core to another thread."""
    name, module = "sched_yield", builder.module  # the C library's
    builder.call(module.globals.get(name) or ir.Function(module, ir.FunctionType(_I32, []), name), [])


def _task(queue: int, number: int, with_helpers: bool) -> int:
    """The task with this number in the order of distribution, or -1. Tasks are divided into one range for each thread,
    and taken from the ranges in turn: a thread mostly continues where it was, with warm caches, and seldom writes to a
    cache line that another writes, too.
    """
    tasks = _read(queue, TASKS)
    if number >= tasks:
        return -1
    if not with_helpers:
        return number
    ranges = _read(queue, _HELPERS) + 1
    size, longer = tasks // ranges, tasks % ranges
    part = number % ranges
    return part * size + min(part, longer) + number // ranges


def _post(queue: int) -> None:
    """Put a queue into its helpers' mailboxes, except of helpers that have another caller's queue."""
    for helper in range(_read(queue, _HELPERS)):
        if _swap(_read(queue, _MAILBOXES) + 8 * MAILBOX * helper, _EMPTY, queue):
            _add(queue, BEGUN, 1)


def _finish(queue: int) -> None:
    """Withdraw a queue from mailboxes, and wait for the helpers that have found it."""
    for helper in range(_read(queue, _HELPERS)):
        if _swap(_read(queue, _MAILBOXES) + 8 * MAILBOX * helper, queue, _EMPTY):
            _add(queue, BEGUN, -1)
    while _read(queue, FINISHED) < _read(queue, BEGUN):
        _yield_core()


@numba.njit(**INLINE)
def look(mailbox: int, times: int) -> None:
    """Serve the mailbox at this address until `looks` polls have found nothing."""
    looks = 0
    while looks < times:
        queue = _read(mailbox, 0)
        if queue > _AT_WORK and _swap(mailbox, queue, _AT_WORK):
            _work(queue)
            _swap(mailbox, _AT_WORK, _EMPTY)
            looks = 0
        else:
            looks += 1
            _pause()
