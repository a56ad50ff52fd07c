"""Takes another campaign's folder into one's own: its states, tapes, findings and failing runs.

Nothing is taken twice, so that merging the same folder again changes nothing. Steps and seconds
stay those of the campaign at hand: the other one spent its own. The other folder is only read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from poolproof.fuzz.folder import CampaignFolder, FolderError, read_everything
from poolproof.fuzz.merge import News, name_of
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.state_numbers import pack
from poolproof.fuzz.status import CampaignStatus

__all__ = ["Merged", "merge_folder"]


@dataclass(frozen=True, slots=True)
class Merged:
    """How much of the other folder was new."""

    num_states: int
    num_tapes: int
    num_findings: int


def merge_folder(
    own: CampaignFolder, settings: CampaignSettings, status: CampaignStatus, path: Path
) -> Merged:
    """Take everything from the folder at `path`. Raises FolderError."""
    theirs, other, findings, pending = read_everything(path)
    differs = settings.differs_from(theirs)
    if differs is not None:
        raise FolderError(f"{path} cannot be merged: {differs}")
    state = own.load()
    states = other.states - state.states
    tapes = tuple(tape for name, tape in other.corpus.items() if name not in state.corpus)
    state.states |= states
    state.corpus.update({name_of(tape.tape): tape for tape in tapes})
    state.facts |= other.facts
    state.facts_required |= other.facts_required
    num_findings = sum(own.add_finding(finding) for finding in findings)
    own.record(News(pack(sorted(states)), tapes), state, status, pending)
    return Merged(len(states), len(tapes), num_findings)
