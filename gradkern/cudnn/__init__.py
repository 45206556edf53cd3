"""cuDNN: the library, its descriptors, operation graphs and plans."""
