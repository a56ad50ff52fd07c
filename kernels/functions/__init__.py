"""Functions beside attention, as targets of their own: cache writes, copies of blocks, merges."""
