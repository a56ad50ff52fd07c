"""Our own kernels in Triton: decode, prefill, cache writes, block copies."""
