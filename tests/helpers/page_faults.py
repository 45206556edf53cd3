"""How often calls map memory anew, by the depth of CPython's data stack that they begin at."""

import resource
from collections.abc import Callable


def page_faults(function: Callable[[], object]) -> int:
    """The least of three runs: other threads may be at work, too."""

    def once() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        function()
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    return min(once() for _ in range(3))


def at_depths(function: Callable[[], object], apart: int = 64) -> list[int]:
    """The page faults of its calls from depths so many bytes apart, over more than a chunk of 16 KB."""

    def deeper(slots: int) -> int:
        def call() -> int:
            return page_faults(function)

        call.__code__ = call.__code__.replace(co_stacksize=slots)
        return call()

    return [deeper(slots) for slots in range(8, 2304, apart // 8)]
