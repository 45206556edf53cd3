"""gradkern in Hugging Face's Trainer."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from transformers.trainer_callback import TrainerCallback  # pyright: ignore[reportMissingImports]

from gradkern.errors import ArgumentError
from gradkern.torch.integrations.loop import Loop

if TYPE_CHECKING:
    from typing import Unpack

    from gradkern.torch.overrides.options import AllOptions

_LOGGER = logging.getLogger(__name__)


class GradkernCallback(TrainerCallback):
    """Enables gradkern when training begins, tunes it for the batches of the second step, and logs the report.

    compile   True, or a dict of options for it: model.compile(backend="gradkern"). The Trainer's own option
              torch_compile_backend knows other names alone
    report    log gradkern.torch.report() when training ends, on the first process
    options   those of `gradkern.torch.enable`

    Raises ArgumentError for an option that does not fit.
    """

    def __init__(
        self,
        compile: bool | Mapping[str, Any] = False,  # noqa: A002
        report: bool = True,
        **options: Unpack[AllOptions],
    ) -> None:
        if not isinstance(compile, bool | Mapping):
            raise ArgumentError(
                f"GradkernCallback: compile is a {type(compile).__name__}; expected True, False or a dict of options"
            )
        self._loop, self._report, self._compile = Loop(options), report, compile

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self._loop.begin()
        if self._compile is not False and getattr(model, "_compiled_call_impl", None) is None:
            # in place, so that wrappers and checkpoints see the same module
            model.compile(backend="gradkern", **({} if self._compile is True else self._compile))

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._loop.begin_step()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._loop.end_step()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._loop.end(_LOGGER.warning if self._report and state.is_world_process_zero else None)
