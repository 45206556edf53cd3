"""python -m gradkern"""

import sys

from gradkern.cli import main

sys.exit(main())
