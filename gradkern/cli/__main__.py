"""python -m gradkern.cli"""

import sys

from gradkern.cli import main

sys.exit(main())
