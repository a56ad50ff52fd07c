"""The items into which the marker `poolproof` turns a test, and the one run behind them.

Which items there are follows from one look at the target in a child process: its levels, its
layouts, and the invariants that a level states. So their names are the same in each run and in each
worker of pytest-xdist, whatever is found. All items of a test share one certification, which the
first of them runs; the workers of pytest-xdist share it through a file.

Paths and targets are those from the folder of pytest's configuration, wherever it is started.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from poolproof.api import Asked, NotHeldError, certify, require_held
from poolproof.certification.certificate import Certificate, Verdict
from poolproof.certification.description import Description
from poolproof.certification.driving import described, kinds_of
from poolproof.certification.finding import Finding
from poolproof.certification.verdict import failing
from poolproof.contract.errors import OptionError, PoolproofError
from poolproof.contract.level import Level
from poolproof.contract.outside import shown, unknown_name
from poolproof.contract.trace import write_atomically
from poolproof.contract.violation import Severity
from poolproof.fuzz.example_database import tape_test
from poolproof.fuzz.settings import CampaignSettings
from poolproof.harness.isolation import ImporterError, InProcess, Isolation
from poolproof.harness.single_invariant import STATED_AT
from poolproof.project_options import project_options
from poolproof.report.failed_assertion import unconcluded
from poolproof.targets.load import load_target
from poolproof.targets.target import Target
from poolproof.trace_places import in_folder

__all__ = ["TargetCheck", "checks_of"]

_OPTIONS = {
    "depth": "quick",
    "profile": None,
    "layouts": (),
    "api": None,
    "fail_on": tuple(Severity),
    "known": None,
    "baseline": None,
    "keep_going": False,
    "hardening": False,
    "seed": 0,
    "workers": None,
    "in_process": False,
    "call_timeout_s": 10.0,
    "memory_mib": 2048,
}
"""What the marker takes besides the target, with the defaults."""

_TAPE_BLOCKS = 4
"""Usable blocks of the instances that Hypothesis drives; as a campaign's by default."""

CONCLUSIVE = "conclusive"
HYPOTHESIS = "hypothesis"


@dataclass(slots=True)
class _Run:
    """One marked test: what it asks for, and the certificate when there is one."""

    nodeid: str
    target: Any
    options: dict[str, Any]
    folder: Path
    certificate: Certificate | None = None
    error: PoolproofError | None = None
    shared: Path | None = None

    def look(self) -> Description:
        """What there is to drive. Raises what `certify` raises."""
        with in_folder(self.folder):
            asked = Asked.of(self.target, **self.options)
            options = asked.options
            executor: Isolation[Target] | InProcess[Target]
            alone = options.in_process or not Isolation.is_available
            executor = InProcess(asked.load) if alone else Isolation(asked.load, options.limits)
            try:
                with executor:
                    about = described(executor)
            except ImporterError as error:
                raise error.as_known() from error
            kinds_of(about, options)  # a layout that there is not is said here
            return about

    def judged(self) -> Certificate:
        """The certificate, made by whoever asks first. Raises what `certify` raises."""
        if self.error is not None:
            raise self.error
        if self.certificate is None:
            with _one_at_a_time(self.shared), in_folder(self.folder):
                self.certificate = self._kept() or self._made()
        return self.certificate

    def _made(self) -> Certificate:
        try:
            certificate = certify(self.target, **self.options)
        except PoolproofError as error:
            self.error = error
            raise
        if self.shared is not None:
            write_atomically(self.shared, json.dumps(certificate.to_json()))
        return certificate

    def _kept(self) -> Certificate | None:
        """What another worker of this run has made."""
        if self.shared is None or not self.shared.is_file():
            return None
        return Certificate.from_json(json.loads(self.shared.read_text(encoding="utf-8")))


@dataclass(slots=True)
class TargetCheck:
    """One item: call it, and it passes or raises an AssertionError with the finding's table.

    `invariant` is the code of one, such as "IDX", or "conclusive": whether the run as a whole says
    enough to be a pass, with whatever belongs to no other item. `layout` is None where the level
    has none.
    """

    name: str
    level: Level | None
    layout: str | None
    invariant: str
    run: _Run = field(repr=False)
    others: frozenset[tuple[str, str | None, str]] = field(default=frozenset(), repr=False)
    """What the other items of the test answer for."""
    error: PoolproofError | None = field(default=None, repr=False)

    def __call__(self) -> None:
        """Raises NotHeldError, and where the target cannot be run what `certify` raises."""
        __tracebackhide__ = True
        if self.error is not None:
            raise self.error
        if self.invariant == HYPOTHESIS:
            with in_folder(self.run.folder):
                self._drive_tapes()
            return
        certificate = self.run.judged()
        with in_folder(self.run.folder):
            if self.invariant == CONCLUSIVE:
                self._require_conclusive(certificate)
            else:
                own = (str(self.level), self.layout, self.invariant)
                found = [form for form in _forms(certificate) if _place_of(form) == own]
                if found:
                    require_held(certificate, found)

    @property
    def certificate(self) -> Certificate:
        """The certificate of the run that all items of the test share."""
        return self.run.judged()

    def share_in(self, folder: Path) -> None:
        """Share the run with the other workers that have this folder."""
        digest = hashlib.sha256(self.run.nodeid.encode()).hexdigest()[:16]
        self.run.shared = folder / f"poolproof-{digest}.json"

    def _require_conclusive(self, certificate: Certificate) -> None:
        __tracebackhide__ = True
        found = [form for form in _forms(certificate) if _place_of(form) not in self.others]
        if found:
            require_held(certificate, found)
        if certificate.verdict is Verdict.INCONCLUSIVE or certificate.fixed_known:
            raise NotHeldError(*unconcluded(certificate), certificate)

    def _drive_tapes(self) -> None:
        """A Hypothesis test of this process, with the host's profile and its example database."""
        __tracebackhide__ = True
        options = self.run.options
        target = self.run.target
        if not isinstance(target, Target):
            target = load_target(target, api=options["api"])
        settings = CampaignSettings(
            target=target.name,
            level=self.level,
            num_blocks=_TAPE_BLOCKS,
            seed=options["seed"],
            layout=self.layout or "",
        )
        try:
            tape_test(target, settings)()
        except AssertionError as error:
            sentence, _, notes = str(error).partition("\n")
            headline = f"{target.name} does not hold (a tape of Hypothesis): {sentence}"
            raise NotHeldError(headline, notes) from None


def checks_of(
    nodeid: str, marker: pytest.Mark, config: pytest.Config, test: Path
) -> list[TargetCheck]:
    """The items of a marked test; one that fails with a sentence where there can be no others.

    `test` is the test's folder, from which upward its project is looked for.
    """
    try:
        run, with_hypothesis = _run_of(nodeid, marker, config.rootpath, test)
        about = run.look()
    except PoolproofError as error:
        failed = _Run(nodeid, None, {}, config.rootpath)
        return [TargetCheck(CONCLUSIVE, None, None, CONCLUSIVE, failed, error=error)]
    return _items(run, about, with_hypothesis=with_hypothesis)


def _run_of(nodeid: str, marker: pytest.Mark, folder: Path, test: Path) -> tuple[_Run, bool]:
    """What a marker and the project's table ask for. Raises OptionError, ProjectFileError."""
    if len(marker.args) != 1:
        raise OptionError(
            f"the marker of {nodeid} takes one target, such as "
            f'@pytest.mark.poolproof("pool.py:Pool"), not {len(marker.args)}'
        )
    options = dict(marker.kwargs)
    with_hypothesis = options.pop("hypothesis", False)
    if not isinstance(with_hypothesis, bool):
        raise OptionError(f"hypothesis must be True or False, not {shown(with_hypothesis)}")
    for name in options:
        if name not in _OPTIONS:
            known = ("hypothesis", *_OPTIONS)
            raise OptionError(f"the marker of {nodeid} {unknown_name('option', name, known)}")
    project = project_options(marker.args[0], named_from=folder, test=test)
    run = _Run(nodeid, marker.args[0], {**_OPTIONS, **project, **options}, folder)
    return run, with_hypothesis


def _items(run: _Run, about: Description, *, with_hypothesis: bool) -> list[TargetCheck]:
    groups = _groups(run, about)
    places = [
        (level, layout, invariant) for level, layout in groups for invariant in STATED_AT[level]
    ]
    checks = [
        TargetCheck(_name(level, layout, invariant), level, layout, invariant, run)
        for level, layout, invariant in places
    ]
    if with_hypothesis:
        checks += [
            TargetCheck(_name(level, layout, HYPOTHESIS), level, layout, HYPOTHESIS, run)
            for level, layout in groups
        ]
    others = frozenset((str(level), layout, invariant) for level, layout, invariant in places)
    checks.append(TargetCheck(CONCLUSIVE, None, None, CONCLUSIVE, run, others))
    return checks


def _groups(run: _Run, about: Description) -> list[tuple[Level, str | None]]:
    """The levels and layouts that are driven, in that order, each once."""
    if about.unbuilt is not None:
        return [(about.level, None)]
    options = Asked.of(run.target, **{**run.options, "known": None, "baseline": None}).options
    return list(dict.fromkeys((kind.level, kind.layout) for kind in kinds_of(about, options)))


def _name(level: Level, layout: str | None, invariant: str) -> str:
    return "-".join(filter(None, (str(level), layout, invariant)))


def _forms(certificate: Certificate) -> Iterator[Finding]:
    """Each form of the findings that fail a run, whose severity fails it."""
    for finding in failing(certificate):
        for form in finding.each_form:
            if form.severity in certificate.fail_on:
                yield form


def _place_of(form: Finding) -> tuple[str, str | None, str]:
    """The item that answers for it."""
    layout = form.trace.options.get("layout")
    return str(form.trace.level), None if layout is None else str(layout), form.violation.invariant


@contextmanager
def _one_at_a_time(shared: Path | None) -> Iterator[None]:
    """Only one process is in here for a shared file; the others wait for it."""
    if shared is None:
        yield
        return
    import fcntl

    with shared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
