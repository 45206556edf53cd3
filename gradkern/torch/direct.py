"""Operators of the registry for autograd functions: in eager called at once, as PyTorch's dispatcher, which a call of
torch.ops.gradkern passes three times, costs the host more than all else that the call does.
"""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.arrays.torch_guards import of_tensors
from gradkern.contract.binder import AttributeKey, attribute_key
from gradkern.contract.request import Request, binder_of
from gradkern.dispatch.run import run, run_known
from gradkern.torch.flags import flags, policy_of
from gradkern.torch.operators import IN_FORCE, define

__all__ = ["Direct", "is_eager"]

Tensors = tuple[torch.Tensor | None, ...]
Attributes = tuple[tuple[str, Any], ...]
define()
_is_compiling = torch.compiler.is_compiling
_count_modes = torch._C._len_torch_dispatch_stack


def is_eager() -> bool:
    """Whether operators run when they are called, and nobody else sees them: nothing traces, and no dispatch mode."""
    return not (_is_compiling() or _count_modes())


class Direct:
    """An operator of the registry, of whose outputs are computed those that are needed.

    What is traced or seen by a dispatch mode goes to torch.ops.gradkern, and so do tensors that only stand for others,
    such as subclasses and those of function transforms.

    outputs   the contract's, from the first on
    searched  whether its kernels are chosen by a search, which heeds PyTorch's flags beside the policy in force
    """

    def __init__(self, name: str, outputs: tuple[str, ...], searched: bool = False) -> None:
        self._name, self._outputs, self._searched = name, outputs, searched
        self._binder = binder_of(name)
        self._padding = {n: (None,) * (len(self._binder.inputs) - n) for n in range(1, len(self._binder.inputs) + 1)}
        self._count = len(outputs)
        self._asked: dict[Any, tuple[tuple[str, ...], dict[str, Any], AttributeKey]] = {}

    def __call__(
        self,
        needs: tuple[bool, ...],
        tensors: Tensors,
        attributes: Attributes = (),
        out: dict[str, torch.Tensor] | None = None,
    ) -> tuple[Any, ...]:
        """The outputs, None for one that is not needed, of the first inputs of the contract, None for one that is not
        given. With `out`, tensors to write outputs into, it is called at once whoever looks.
        """
        if not out and not is_eager():
            return self._dispatched(needs, tensors, attributes)
        asked = self._asked.get((needs, attributes))
        if asked is None:
            asked = self._asked[needs, attributes] = self._ask(needs, attributes)
        wanted, named, key = asked
        policy = policy_of(flags()) if self._searched else None
        arrays = tensors + self._padding[len(tensors)]
        found = run_known(Request(self._binder, arrays, named, key, wanted, out, None, policy))
        if found is None:
            if not out and of_tensors(tuple([each for each in tensors if each is not None])) is None:
                return self._dispatched(needs, tensors, attributes)
            inputs: Any = tensors
            found = run(self._name, *inputs, outputs=wanted, out=out, policy=policy, **named)
        found = found[: self._count]
        return found + (None,) * (self._count - len(found))  # an appended output is there where it is asked for

    def _ask(self, needs: tuple[bool, ...], attributes: Attributes) -> tuple[tuple[str, ...], dict[str, Any], Any]:
        wanted = tuple([name for name, need in zip(self._outputs, needs, strict=True) if need])
        return wanted, dict(attributes), attribute_key(dict(attributes))

    def _dispatched(self, needs: tuple[bool, ...], tensors: Tensors, attributes: Attributes) -> tuple[Any, ...]:
        operator: Any = getattr(torch.ops.gradkern, self._name)
        wanted = ",".join([name for name, need in zip(self._outputs, needs, strict=True) if need])
        policy: dict[str, Any] = {"search": IN_FORCE} if self._searched else {}
        found = operator(*tensors, outputs=wanted, **policy, **dict(attributes))
        found = (found,) if isinstance(found, torch.Tensor) else found
        return tuple([each if need else None for each, need in zip(found, needs, strict=False)])  # it may have more
