#!/usr/bin/env python3
"""The operators gradkern has: `gradkern ops`, run from a checkout. See --help."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gradkern.cli import main

if __name__ == "__main__":
    sys.exit(main(["ops", *sys.argv[1:]]))
