"""Read sets: each address that a kernel loads or stores in the interpreter, and its owner."""
