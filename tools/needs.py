"""What a benchmark needs of the machine, said before it starts."""

from __future__ import annotations

import argparse

from gradkern.system.providers import unavailable

__all__ = ["require_gpu"]


def require_gpu(parser: argparse.ArgumentParser, otherwise: str = "") -> None:
    """End with the parser's error where there is no GPU that gradkern and PyTorch can use.

    otherwise   what can be asked for without one
    """
    reason = unavailable("cuda") or _unavailable_to_pytorch()
    if reason:
        parser.error(f"this measures a GPU: {reason}" + (f"; {otherwise}" if otherwise else ""))


def _unavailable_to_pytorch() -> str:
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        return "PyTorch is not installed"
    return "" if torch.cuda.is_available() else f"PyTorch {torch.__version__} cannot use it"
