"""Inductive proof for every size: one description of each transition relation, read in three ways.

A model (`pool_model.py`, `queue_model.py`, `content_model.py`, `admission_model.py`) is written
once, over a `Logic`. Over `Z3Logic` it becomes formulas about any number of blocks, hashes and
references; over `FiniteLogic` formulas about a few of them, which yields counterexamples;
over `ConcreteLogic` it is a step that runs, which `pool_bridge.py` and `queue_bridge.py` compare
with the specification and with the linked list of `impl/`.
"""
