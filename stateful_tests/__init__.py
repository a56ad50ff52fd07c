"""The Hypothesis state machines, and the pytest files that run them."""
