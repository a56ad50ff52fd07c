"""A folder that is put on PYTHONPATH while a target's own tests run on a mutant.

Nothing here imports Poolproof: the interpreter of the tests may be another one.
"""
