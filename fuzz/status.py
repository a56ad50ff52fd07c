"""The state of a campaign: one value that displays and reports draw, and that its folder keeps.

Its curve stays short: of many points, those that give it its shape. A week of campaign discovers
most in its first minutes, so points are not thinned out evenly: the one that the straight line
between its neighbours replaces best is what goes, as Visvalingam and Whyatt simplify lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

__all__ = ["CampaignStatus", "CurvePoint", "FindingLine", "WaitingLine", "with_point"]


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """How many states were known after so many steps and seconds of campaign."""

    steps: int
    seconds: float
    states: int


@dataclass(frozen=True, slots=True)
class FindingLine:
    """A finding in one line.

    `steps` and `seconds` are those of the whole campaign when it was found; `runs_seen` counts the
    failing runs of its kind so far. `forms` are the fingerprints of other minimal traces with the
    same symptom, the shortest first. `leads_to` says which wrong data a manager's finding makes
    somebody read, or that none was seen; it is empty where nobody looked.
    """

    fingerprint: str
    invariant: str
    severity: str
    sentence: str
    num_commands: int
    steps: int
    seconds: float
    runs_seen: int
    forms: tuple[str, ...] = ()
    leads_to: str = ""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> FindingLine:
        """What `asdict` wrote, also before there were forms. Raises TypeError."""
        return cls(**{**value, "forms": tuple(value.get("forms", ()))})


@dataclass(frozen=True, slots=True)
class WaitingLine:
    """A failing run that waits to be minimised, in one line.

    `num_commands` are those of the shortest trace so far; steps and seconds as in `FindingLine`.
    """

    name: str
    invariant: str
    severity: str
    sentence: str
    num_commands: int
    steps: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignStatus:
    """A campaign at one moment.

    Totals are over all sessions of the campaign, `steps_per_second` is over the last seconds.
    `num_possible` is the known number of states, None where there is none. `curve` is thinned out
    so that it stays short. `stability` is the share of repeated tapes that visited the same
    states, None before any was repeated. `steps_since_new` counts from the last new state or
    finding. `activity` says in a word what is being done. `num_failing_runs` counts all of them,
    also those that are not kept, since there are enough of their kind.
    """

    target: str
    level: str
    scope: str
    activity: str
    seconds: float = 0.0
    num_steps: int = 0
    num_runs: int = 0
    steps_per_second: float = 0.0
    num_states: int = 0
    num_possible: int | None = None
    curve: tuple[CurvePoint, ...] = ()
    findings: tuple[FindingLine, ...] = ()
    num_pending: int = 0
    num_failing_runs: int = 0
    waiting: tuple[WaitingLine, ...] = ()
    num_workers: int = 0
    num_workers_lost: int = 0
    corpus_size: int = 0
    stability: float | None = None
    steps_since_new: int = 0
    num_states_by_depth: Mapping[int, int] = field(default_factory=dict)
    runs_of_strategy: Mapping[str, int] = field(default_factory=dict)
    facts_missing: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ()

    @property
    def share(self) -> float | None:
        """States reached of those that there are, from 0 to 1."""
        return self.num_states / self.num_possible if self.num_possible else None

    @property
    def is_broken(self) -> bool:
        """Whether anything failed, minimised or not."""
        return bool(self.findings or self.num_pending or self.num_failing_runs)

    @property
    def is_concluded(self) -> bool:
        """Whether it ended by its budget and reached what a run must reach to mean anything."""
        return self.activity == "done" and not self.facts_missing

    @property
    def exit_status(self) -> int:
        """0 nothing was broken, 1 something was, 2 nothing can be concluded."""
        return 1 if self.is_broken else 0 if self.is_concluded else 2

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CampaignStatus:
        """What `to_json` wrote, also after a way through text. Raises TypeError, KeyError."""
        depths = {int(depth): number for depth, number in value["num_states_by_depth"].items()}
        return cls(
            **{
                **value,
                "curve": tuple(CurvePoint(**point) for point in value["curve"]),
                "findings": tuple(map(FindingLine.from_json, value["findings"])),
                "waiting": tuple(WaitingLine(**line) for line in value.get("waiting", ())),
                "num_states_by_depth": depths,
                "facts_missing": tuple(value["facts_missing"]),
                "seeds": tuple(value["seeds"]),
            }
        )


MOST_POINTS = 400


def with_point(
    curve: tuple[CurvePoint, ...], point: CurvePoint, most_points: int = MOST_POINTS
) -> tuple[CurvePoint, ...]:
    """The curve with one more point at its end, and one less inside where there are too many."""
    longer = (*curve, point)
    if len(longer) <= max(2, most_points):
        return longer
    pairs = list(pairwise(longer))
    areas = [_doubled_area(left, middle, right) for (left, middle), (_, right) in pairwise(pairs)]
    least = 1 + areas.index(min(areas))
    return (*longer[:least], *longer[least + 1 :])


def _doubled_area(left: CurvePoint, middle: CurvePoint, right: CurvePoint) -> float:
    """Twice the area between the curve and the line that would take the place of the middle."""
    return abs(
        (middle.seconds - left.seconds) * (right.states - left.states)
        - (right.seconds - left.seconds) * (middle.states - left.states)
    )
