"""A campaign's workers on the machines of a Ray cluster.

From the coordinator outwards: `ray_workers.py` is what it holds, `ray_link.py` a process beside it
that alone imports Ray, `relay.py` an actor for each worker, `host.py` a process beside the actor
that runs the target. Findings are minimised where the coordinator is.
"""
