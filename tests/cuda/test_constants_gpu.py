"""Arrays of one value on a GPU."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(1000,), (1, 7, 1), (0,)])
def test_it_has_the_value_everywhere_and_is_made_once(dtype: type, shape: tuple[int, ...]) -> None:
    from gradkern.cuda.constants import filled
    from gradkern.cuda.device import activate, check, driver, get_device

    kind, device = np.dtype(dtype), get_device(0)
    address = filled(device, 1.5, shape, kind)
    found = np.zeros(shape, kind)
    if found.nbytes:
        with activate(device):
            check(driver.cuMemcpyDtoH(found.ctypes.data, address, found.nbytes), "fetching")
    assert (found == np.array(1.5, kind)).all()
    assert filled(device, 1.5, shape, kind) == address
