"""All specimens of the engine level, by id."""

from __future__ import annotations

from poolproof.bugs.engine_progress_bugs import ENGINE_PROGRESS_BUGS
from poolproof.bugs.engine_specimen import EngineSpecimen
from poolproof.bugs.engine_step_bugs import ENGINE_STEP_BUGS
from poolproof.bugs.engine_transfer_bugs import ENGINE_TRANSFER_BUGS
from poolproof.bugs.engine_worker_bugs import ENGINE_WORKER_BUGS

__all__ = ["ENGINE_SPECIMENS"]

ENGINE_SPECIMENS: dict[str, EngineSpecimen] = {
    **ENGINE_STEP_BUGS,
    **ENGINE_TRANSFER_BUGS,
    **ENGINE_PROGRESS_BUGS,
    **ENGINE_WORKER_BUGS,
}
