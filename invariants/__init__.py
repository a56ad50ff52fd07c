"""What must hold of an allocator: each invariant in a file, its predicates with their sentences.

Read `catalogue.py` first: all invariants by code, what each says, and in which order a broken state
is diagnosed. Then `free_iff_unheld.py` (I1) for how a predicate reads: it takes what was seen
of a target and what is known about it from outside (`contract/observation.py`), and returns a
`Violation` or None. The others follow the same pattern, in the order of the catalogue:

===========  =====================
I1           `free_iff_unheld.py`
I2           `stable_ids.py`
I3           `full_blocks.py`
I4           `cached_usable.py`
OWN          `ownership.py`
LINK         `queue_links.py`
IDX          `index_answers.py`
DATA         `kv_reads.py`
ORD          `reuse_order.py`
ADM          `admission.py`
ATOM         `refusals.py`
LEAK         `free_at_end.py`
EVT          `events.py`
PLAN         `engine_plans.py`
OUT          `engine_outputs.py`
LIVE         `progress.py`
MISUSE       `misuse.py`
CRASH        `legal_calls.py`
===========  =====================

A predicate over a state takes an observation and a ledger, one over an answer takes what was
answered and what is known. `wording.py` says how
sentences name blocks, owners and keys; leave it for later.

The predicates are called from `harness/`; nothing here reads a target, and nothing here is fast:
`harness/pool_check.py` has the fast form of the predicates over states.
"""
