"""The models that are proved, in the order in which one uses the other."""

from __future__ import annotations

from poolproof.exploration.proof.admission_model import ADMISSION
from poolproof.exploration.proof.append_n_loop import APPEND_N
from poolproof.exploration.proof.content_model import CONTENT
from poolproof.exploration.proof.model import Model
from poolproof.exploration.proof.pool_model import POOL
from poolproof.exploration.proof.popleft_n_loop import POPLEFT_N
from poolproof.exploration.proof.prepend_n_loop import PREPEND_N
from poolproof.exploration.proof.queue_model import QUEUE

__all__ = ["MODELS"]

MODELS: dict[str, Model] = {
    model.name: model for model in (POOL, QUEUE, POPLEFT_N, APPEND_N, PREPEND_N, CONTENT, ADMISSION)
}
