"""cuBLAS: the library and its matrix products."""
