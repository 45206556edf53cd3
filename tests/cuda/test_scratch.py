"""What tells that a captured graph is destroyed, as far as that can be seen without a GPU."""

import ctypes

from gradkern.cuda.scratch import _Flag


def test_a_flag_is_raised_by_a_function_of_the_c_library_and_lowered_by_the_look_at_it() -> None:
    one, other = _Flag(), _Flag()
    assert not one.lowered()
    assert one.raising is not None
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(one.raising)(one.address)
    assert not other.lowered()
    assert one.lowered()
    assert not one.lowered()
