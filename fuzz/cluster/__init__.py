"""A campaign's workers on the machines of a Ray cluster.

From the coordinator outwards: it holds `ray_workers.py`; `ray_link.py` is a process next to it, the
only one that imports Ray; `relay.py` is an actor for each worker, `host.py` a process next to the
actor that runs the target. Findings are minimised where the coordinator is.
"""
