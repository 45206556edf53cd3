"""Run a tool, `run_tool.py TOOL ARGUMENT...`, where torchvision's wheel stands beside another PyTorch than its own."""

import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers.models import torchvision

if __name__ == "__main__":
    torchvision()
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
