"""Functions beside attention, as targets of their own: cache writes, copies and swaps of blocks."""
