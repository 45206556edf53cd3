"""gradkern in Lightning's Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Unpack

    from lightning.pytorch import Callback  # pyright: ignore[reportMissingImports]
    from lightning.pytorch.utilities import rank_zero_info  # pyright: ignore[reportMissingImports]

    from gradkern.torch.overrides.options import AllOptions
else:
    try:
        from lightning.pytorch import Callback
        from lightning.pytorch.utilities import rank_zero_info
    except ImportError:  # its other name on PyPI
        from pytorch_lightning import Callback
        from pytorch_lightning.utilities import rank_zero_info

from gradkern.torch.integrations.loop import Loop


class GradkernCallback(Callback):
    """Enables gradkern when training begins, tunes it for the second batch, and logs the report.

    A module is compiled by trainer.fit(torch.compile(module, backend="gradkern")), its training_step with it.

    report    log gradkern.torch.report() when training ends, on the first process
    options   those of `gradkern.torch.enable`

    Raises ArgumentError for an option that does not fit.
    """

    def __init__(self, report: bool = True, **options: Unpack[AllOptions]) -> None:
        self._loop, self._report = Loop(options), report

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self._loop.begin()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._loop.begin_step()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._loop.end_step()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        self._loop.end(rank_zero_info if self._report else None)
