"""What a power run found, as plain values, alone and beside the certificate of its target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from poolproof.certification.certificate import Certificate
from poolproof.power.mutation import Mutation
from poolproof.power.own_tests import OwnVerdict
from poolproof.power.power_jobs import Judged

__all__ = ["MeasuredCertificate", "Mutant", "MutatedModule", "OwnRun", "PowerReport"]


@dataclass(frozen=True, slots=True)
class MutatedModule:
    """A module: its functions that some run enters, and the names of those that none does."""

    name: str
    file: str
    num_functions: int
    never_entered: tuple[str, ...]
    num_candidates: int

    def to_json(self) -> dict[str, Any]:
        """This module as plain JSON values."""
        return {
            "module": self.name,
            "file": self.file,
            "functions": self.num_functions,
            "never_entered": list(self.never_entered),
            "candidates": self.num_candidates,
        }


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mutant and the verdicts on it.

    `executed`: some stage runs one of its lines. `own` is None where no own tests were run.
    """

    mutation: Mutation
    executed: bool
    judged: Judged
    own: OwnVerdict | None = None

    @property
    def finding(self) -> str:
        """By what it is refused, in words."""
        judged = self.judged
        if not judged.refused:
            return "never executed" if not self.executed else "nothing broke"
        return f"{judged.invariant} after {judged.num_commands} commands: {judged.sentence}"

    def to_json(self) -> dict[str, Any]:
        """This mutant as plain JSON values."""
        judged = self.judged
        value: dict[str, Any] = {
            **self.mutation.to_json(),
            "executed": self.executed,
            "refused": judged.refused,
        }
        if judged.refused:
            value |= {
                "stage": judged.stage,
                "invariant": judged.invariant,
                "sentence": judged.sentence,
                "num_commands": judged.num_commands,
            }
        if self.own is not None:
            value |= {"own_tests_refuse": self.own.refused, "own_tests_say": self.own.sentence}
        return value


@dataclass(frozen=True, slots=True)
class OwnRun:
    """The target's own tests: the command, and how long it takes on the unmutated target."""

    command: str
    seconds: float
    never_loaded: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerReport:
    """All of one power run; `num_candidates` counts the edits of which the mutants are a sample.

    `also` are the targets that judged what the target let pass.
    `num_equivalent` are candidates that were drawn and change nothing in the compiled code.
    """

    target: str
    target_version: str | None
    depth: str
    seed: int
    also: tuple[str, ...] = ()
    modules: tuple[MutatedModule, ...]
    num_candidates: int
    num_equivalent: int
    mutants: tuple[Mutant, ...]
    stages: tuple[str, ...]
    own: OwnRun | None
    seconds: float

    @property
    def num_refused(self) -> int:
        """Mutants that Poolproof refuses."""
        return sum(mutant.judged.refused for mutant in self.mutants)

    @property
    def num_never_executed(self) -> int:
        """Mutants on lines that no run executes."""
        return sum(not mutant.executed and not mutant.judged.refused for mutant in self.mutants)

    @property
    def num_judged_by_own(self) -> int:
        """Mutants that the target's own tests were run on."""
        return sum(mutant.own is not None for mutant in self.mutants)

    @property
    def num_refused_by_own(self) -> int:
        """Mutants that the target's own tests refuse."""
        return sum(mutant.own is not None and mutant.own.refused for mutant in self.mutants)

    def where(self, *, refused: bool, own: bool | None = None) -> Iterator[Mutant]:
        """The mutants with these verdicts; None where the own tests do not matter."""
        for mutant in self.mutants:
            says = None if mutant.own is None else mutant.own.refused
            if mutant.judged.refused is refused and own in (None, says):
                yield mutant

    def to_json(self) -> dict[str, Any]:
        """This report as plain JSON values."""
        value: dict[str, Any] = {
            "target": self.target,
            "target_version": self.target_version,
            "level": self.depth,
            "seed": self.seed,
            "also": list(self.also),
            "modules": [module.to_json() for module in self.modules],
            "num_candidates": self.num_candidates,
            "num_equivalent": self.num_equivalent,
            "num_mutants": len(self.mutants),
            "num_refused": self.num_refused,
            "num_never_executed": self.num_never_executed,
            "stages": list(self.stages),
            "seconds": round(self.seconds, 1),
            "mutants": [mutant.to_json() for mutant in self.mutants],
        }
        if self.own is not None:
            value["own_tests"] = {
                "command": self.own.command,
                "seconds": round(self.own.seconds, 1),
                "never_loaded": list(self.own.never_loaded),
                "num_mutants": self.num_judged_by_own,
                "num_refused": self.num_refused_by_own,
            }
        return value


@dataclass(frozen=True, slots=True)
class MeasuredCertificate:
    """A judged certificate, and the power of the checks behind it.

    `power` is None where it was not measured, because the unmutated target does not hold.
    """

    certificate: Certificate
    power: PowerReport | None

    def to_json(self) -> dict[str, Any]:
        """Both as plain JSON values."""
        power = None if self.power is None else self.power.to_json()
        return {"certificate": self.certificate.to_json(), "power": power}
