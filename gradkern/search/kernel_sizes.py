"""What the search's kernels and their launches agree on. Nothing here imports Numba, nothing the driver."""

THREADS = 256  # of a block
MEASURES = 4  # numbers, float64, that every block of `compare` writes
