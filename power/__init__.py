"""The power of a check: how many faults planted into a target's own source it refuses.

`certify --power` changes one place of the target's source at a time, in memory, and certifies each
mutant; with `--own-tests` the target's own tests run on the same mutants. A mutant that nothing
refuses is either equivalent to the original or a hole in the checks, and only a person can tell.

`power_run.py` is the way in. What is mutated: bodies of functions that some run enters. What is
not: signatures, module-level code, class bodies, assertions, messages, compiled code.
"""
