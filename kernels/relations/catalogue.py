"""All relations, in the order of the report."""

from __future__ import annotations

from poolproof.kernels.relations.batching import BATCH_RELATIONS
from poolproof.kernels.relations.placement import PLACEMENT_RELATIONS
from poolproof.kernels.relations.poison import POISON_RELATIONS
from poolproof.kernels.relations.relation import Relation

__all__ = ["RELATIONS"]

RELATIONS: dict[str, Relation] = {
    relation.name: relation
    for relation in (*PLACEMENT_RELATIONS, *POISON_RELATIONS, *BATCH_RELATIONS)
}
