"""For kernels' own instructions: LLVM's IR through llvmlite, and the parts of Numba's arrays.

Neither library has types; these two names replace them.
"""

from __future__ import annotations

from typing import Any, cast

from llvmlite import ir as _ir  # pyright: ignore[reportMissingTypeStubs]
from numba.np.arrayobj import make_array as _make_array  # pyright: ignore[reportUnknownVariableType]

ir: Any = _ir
make_array = cast(Any, _make_array)
