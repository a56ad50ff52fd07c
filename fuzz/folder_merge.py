"""Merges another campaign's folder into this one: its states, tapes, findings and failing runs.

Nothing is taken twice, so that merging the same folder again changes nothing. Steps and seconds
stay those of the campaign at hand: the other one spent its own. The other folder is only read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from poolproof.fuzz.findings import CampaignFinding, alike
from poolproof.fuzz.folder import CampaignFolder, FolderError, read_everything, read_forms
from poolproof.fuzz.folder_tables import Damage
from poolproof.fuzz.merge import News, name_of
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.state_numbers import pack
from poolproof.fuzz.status import CampaignStatus

__all__ = ["Merged", "merge_folder"]


@dataclass(frozen=True, slots=True)
class Merged:
    """How much of the other folder was new, and what of it could not be read."""

    num_states: int
    num_tapes: int
    num_findings: int
    damage: Damage


def merge_folder(
    own: CampaignFolder, settings: CampaignSettings, status: CampaignStatus, path: Path
) -> Merged:
    """Take everything from the folder at `path`. Raises FolderError."""
    damage = Damage(of_file=True)
    theirs, other, findings, pending = read_everything(path, damage)
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
    num_findings = _merge_findings(own, findings, read_forms(path, damage))
    own.record(News(pack(sorted(states)), tapes), state, status, pending)
    return Merged(len(states), len(tapes), num_findings, damage)


def _merge_findings(
    own: CampaignFolder, findings: list[CampaignFinding], forms: dict[str, list[CampaignFinding]]
) -> int:
    """Take in findings with their forms; how many findings show what nothing here did."""
    number = 0
    known = own.findings()
    for finding in findings:
        here = alike(finding, known, own.forms())
        if own.add_finding(finding, here):
            known.append(finding)
            number += 1
        for form in forms.get(finding.fingerprint, ()):
            own.add_finding(form, here or finding)
    return number
