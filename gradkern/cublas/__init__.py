"""Matrix products on a GPU through cuBLAS: the library's bindings come from nvmath-python, on first use."""
