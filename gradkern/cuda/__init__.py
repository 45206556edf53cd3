"""What gradkern's CUDA kernels share: device functions, compilation, the disk cache, launch, scratch."""
