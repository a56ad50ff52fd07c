"""Relations: changes of a batch that must not change a bit of the output, each with a name."""
