"""`certify --power`: from the certified target to the report of its mutants.

The unmutated target is certified before; what is wrong with it even so (accepted findings) is
surveyed here once more, run by run, so that a mutant is refused only where the original passes.
Then mutants are sampled, certified, and given to the target's own tests, and the files are
written. Exit status: 0 when the power run was carried out, whatever it found, for it measures the
checks and not the target; the certificate's own status where the unmutated target does not hold.

An interrupted run goes on from the file of its verdicts. One of another run, or of other code, is
begun anew. Verdicts of own tests count for the command that gave them; that the tests themselves
have changed is not seen. A mutant that cost its worker is judged again.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from poolproof.certification.certify import certify
from poolproof.certification.driving import kinds_of, value_of
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import StageProgress, progress_to
from poolproof.certification.verdict import Rules, judge
from poolproof.contract.target import TargetError
from poolproof.harness.isolation import Failed, Finished, ImporterError, Isolation, raise_if_ours
from poolproof.power.modules import Prepared, prepare
from poolproof.power.mutation import Mutation, Source
from poolproof.power.own_tests import OwnTests, OwnVerdict
from poolproof.power.planting import Place, candidates, compiled, functions_of, sample
from poolproof.power.power_document import (
    MEASURED_CERTIFICATE,
    NOT_MEASURED,
    POWER,
    power_document,
)
from poolproof.power.power_jobs import Judged, StageSurvey, Task, judge_mutant, look, survey
from poolproof.power.power_options import PowerOptions
from poolproof.power.power_report import (
    MeasuredCertificate,
    Mutant,
    MutatedModule,
    OwnRun,
    PowerReport,
)
from poolproof.power.stages import Stage, stages_beside, stages_of
from poolproof.report.certificate_document import certificate_document
from poolproof.report.certificate_outputs import Outputs
from poolproof.report.lines_file import SEARCHING, LinesFile, digest_of
from poolproof.report.output_files import OutputError, check_file
from poolproof.report.report_files import ReportFiles, form_names
from poolproof.report.text_form import show
from poolproof.stateful_tests.warm_up import warmed_up
from poolproof.targets.load import load_target
from poolproof.targets.target import Target

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["POWER_FILES", "VerdictsFile", "certify_with_power", "power_run", "refuse_programs"]


POWER_FILES = form_names("power", junit="power.xml")
"""The files of a power run in the folder of --report, beside those of the certificate."""

_FORMAT = "poolproof-power-verdicts"
_Edit = tuple[str, int, int, str]


def digest_of_code() -> str:
    """Twelve hexadecimal digits of all source that a verdict can depend on."""
    return digest_of(*SEARCHING, "bugs", "power")


class VerdictsFile:
    """The verdicts of one run, known by `facts` about it; a context manager that takes more.

    `note` says in a line what was found in the file. Raises OutputError for a file that cannot be
    used. Without a path nothing is kept.
    """

    def __init__(self, path: Path | None, facts: Mapping[str, Any]) -> None:
        self._path = path
        text = json.dumps({**facts, "code": digest_of_code()}, sort_keys=True)
        run = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._file = LinesFile(path, _FORMAT, {"run": run}, self._not_ours)
        self._judged: dict[_Edit, Judged] = {}
        self._own: dict[tuple[_Edit, str], OwnVerdict] = {}
        self.note = ""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            file = stack.enter_context(self._file)
            for number, record in file.records:
                self._take(number, record)
            stack.pop_all()
        if file.older is not None:
            self.note = f"{self._path} is of another run or of other code: all is judged anew"
        elif file.records:
            self.note = f"{len(file.records):,} verdicts are taken from {self._path}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.__exit__(kind, error, trace)

    def judged(self, mutation: Mutation) -> Judged | None:
        """What the stages said of a mutant, if that is known."""
        return self._judged.get(_edit(mutation))

    def own(self, mutation: Mutation, command: str) -> OwnVerdict | None:
        """What the own tests said of a mutant, if that is known."""
        return self._own.get((_edit(mutation), command))

    def keep_judged(self, mutation: Mutation, judged: Judged) -> None:
        """Keep a verdict, on disk before the next one falls."""
        self._file.append({"edit": _edit(mutation), "judged": asdict(judged)})

    def keep_own(self, mutation: Mutation, command: str, verdict: OwnVerdict) -> None:
        """The same for a verdict of the own tests."""
        self._file.append({"edit": _edit(mutation), "command": command, "own": asdict(verdict)})

    def _take(self, number: int, record: Any) -> None:
        try:
            module, start, end, text = record["edit"]
            edit = (module, start, end, text)
            if "judged" in record:
                stages_run = tuple(record["judged"].pop("stages_run"))
                self._judged[edit] = Judged(**record["judged"], stages_run=stages_run)
            else:
                self._own[edit, record["command"]] = OwnVerdict(**record["own"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._not_ours(f"line {number} is no verdict") from error

    def _not_ours(self, why: str) -> OutputError:
        return OutputError(
            f"{self._path} does not hold verdicts of `certify --power`: {why}; delete it or name "
            "another file with --power-results"
        )


def _edit(mutation: Mutation) -> _Edit:
    return mutation.module, mutation.start, mutation.end, mutation.text


@contextmanager
def power_run(
    load: Callable[[], Target],
    options: CertifyOptions,
    power: PowerOptions,
    progress: StageProgress,
) -> Iterator[PowerRun]:
    """A power run on the target that `load` loads, in child processes.

    Raises TargetError where it cannot be carried out, before anything long is done.
    """
    if not Isolation.is_available:
        raise TargetError("--power needs fork(), which this system does not have")
    also = [partial(load_target, name) for name in power.also]
    isolation = Isolation(
        warmed_up(partial(prepare, load, power.modules, also)),
        options.limits,
        workers=options.workers,
    )
    try:
        with isolation:
            yield PowerRun(isolation, options, power, progress)
    except ImporterError as error:
        raise error.as_known() from error


class PowerRun:
    """One power run: the constructor looks at source and own tests, `measure` does the work."""

    def __init__(
        self,
        isolation: Isolation[Prepared],
        options: CertifyOptions,
        power: PowerOptions,
        progress: StageProgress,
    ) -> None:
        self._isolation = isolation
        self._options = options
        self._power = power
        self._progress = progress
        progress.begin("looking at the target's source")
        seen = value_of(isolation, look, None)
        self._about = seen.about
        self._sources = [Source(*source) for source in seen.sources]
        self._tests = self._own_tests()
        progress.end()

    def measure(self, progress: StageProgress) -> PowerReport:
        """Survey, mutants, own tests.

        Raises TargetError where no run enters the source or another judge does not hold, and
        OutputError for a file of verdicts that cannot be used.
        """
        self._progress = progress
        began = time.monotonic()
        about, options, tests = self._about[0], self._options, self._tests
        surveys = self._survey()
        modules, found = _candidates(self._sources, surveys, of_size=self._power.of_size)
        if not found:
            raise TargetError(
                f"{about.name}: no run enters a function of "
                f"{', '.join(module.name for module in modules)}; name others with --power-modules"
            )
        drawn = sample(self._sources, found, self._power.most_mutants, options.seed)
        with VerdictsFile(self._power.results, self._facts()) as known:
            if known.note:
                progress.say(known.note)
            mutants = self._judged(drawn.mutations, surveys, known)
            if tests is not None:
                few = mutants[: self._power.own_mutants]
                mutants = [*self._judged_by_own(tests, few, known), *mutants[len(few) :]]
        progress.end()
        order = {source.module: place for place, source in enumerate(self._sources)}
        mutants.sort(key=lambda m: (order[m.mutation.module], m.mutation.start, m.mutation.end))
        return PowerReport(
            target=about.name,
            target_version=about.version,
            depth=options.depth,
            seed=options.seed,
            also=self._power.also,
            modules=tuple(modules),
            num_candidates=drawn.num_candidates,
            num_equivalent=drawn.num_equivalent,
            mutants=tuple(mutants),
            stages=tuple(known.stage.name for known in surveys),
            own=OwnRun(tests.command, tests.seconds, tests.never_loaded) if tests else None,
            seconds=time.monotonic() - began,
        )

    def _own_tests(self) -> OwnTests | None:
        """The own tests, run once: the longest work comes last, its errors come first."""
        command = self._power.own_tests
        if command is None:
            return None
        self._progress.begin("the target's own tests, unmutated")
        return OwnTests(command, self._sources, self._options.workers)

    def _facts(self) -> dict[str, Any]:
        """What a verdict depends on, the code of the checks apart."""
        return {
            "targets": [(about.name, about.version) for about in self._about],
            "sources": [(s.module, sha256(s.text).hexdigest()) for s in self._sources],
            "stages": [(each.name, each.seed, each.first, each.count) for each in self._stages()],
        }

    def _stages(self) -> list[Stage]:
        """Those of the target, then those of the targets that judge as well."""
        options = self._options
        stages = stages_of(kinds_of(self._about[0], options), options.depth, options.seed)
        for place, about in enumerate(self._about[1:], start=1):
            kinds = kinds_of(about, options)
            stages += stages_beside(kinds, options.depth, options.seed, place, about.name)
        return stages

    def _survey(self) -> list[StageSurvey]:
        """What the unmutated target executes and breaks in each stage."""
        stages = self._stages()
        self._progress.begin("stages, traced on the unmutated target", len(stages), "stages")
        surveys = []
        jobs = [(self._about[stage.target], stage) for stage in stages]
        for (_, stage), ended in zip(jobs, self._isolation.map(survey, jobs), strict=True):
            outcome = raise_if_ours(ended)
            self._progress.advance(1)
            if isinstance(outcome, Finished):
                surveys.append(outcome.value)
            else:
                # It is lost unmutated as well (an accepted finding), and shows nothing of mutants.
                surveys.append(StageSurvey(stage, failing=frozenset([-1])))
        for known in surveys:
            if known.stage.beside and known.failing:
                raise TargetError(
                    f"--power-also {known.stage.beside}: it does not hold unmutated; certify it "
                    "alone to see why, or leave it out"
                )
        return surveys

    def _judged(
        self, mutations: Sequence[Mutation], surveys: Sequence[StageSurvey], known: VerdictsFile
    ) -> list[Mutant]:
        """Each mutant certified by the stages that execute one of its lines."""
        tasks = [Task(each, self._about, _reaching(each, surveys)) for each in mutations]
        found = {each: judged for each in mutations if (judged := known.judged(each)) is not None}
        reached = [task for task in tasks if task.stages and task.mutation not in found]
        self._progress.begin("mutants", len(reached), "mutants")
        for place, outcome in self._isolation.as_completed(judge_mutant, reached):
            self._progress.advance(1)
            mutation = reached[place].mutation
            if isinstance(outcome, Finished):
                found[mutation] = outcome.value
                known.keep_judged(mutation, outcome.value)
            elif isinstance(outcome, Failed):
                # The checks themselves stumbled, where `certify` stops and says so.
                what = f"the checks raised {outcome.exception_type}: {outcome.message}"
                found[mutation] = Judged("", "CANNOT RUN", what)
            else:
                # Not kept: a machine that is busy, or a tighter limit, may have had its part in it.
                found[mutation] = Judged("", "CRASH", outcome.sentence("a command"))
        return [
            Mutant(task.mutation, bool(task.stages), found.get(task.mutation, Judged()))
            for task in tasks
        ]

    def _judged_by_own(
        self, tests: OwnTests, mutants: Sequence[Mutant], known: VerdictsFile
    ) -> list[Mutant]:
        """The same mutants, with the verdicts of the target's own tests."""
        found = {each.mutation: known.own(each.mutation, tests.command) for each in mutants}
        new = [mutation for mutation, verdict in found.items() if verdict is None]
        self._progress.begin("the target's own tests, mutants", len(new), "mutants")
        for mutation, verdict in zip(new, tests.judge(new), strict=True):
            self._progress.advance(1)
            known.keep_own(mutation, tests.command, verdict)
            found[mutation] = verdict
        return [replace(mutant, own=found[mutant.mutation]) for mutant in mutants]


def _reaching(mutation: Mutation, surveys: Sequence[StageSurvey]) -> tuple[StageSurvey, ...]:
    """The stages that execute a line of the mutation; in all others nothing can differ."""
    first, last = mutation.lines
    changed = {(mutation.module, line) for line in range(first, last + 1)}
    found = [known for known in surveys if -1 not in known.failing and changed & known.lines]
    # What a task carries travels to its worker; the lines are not needed there.
    return tuple(StageSurvey(known.stage, failing=known.failing) for known in found)


def _candidates(
    sources: Sequence[Source], surveys: Sequence[StageSurvey], *, of_size: bool
) -> tuple[list[MutatedModule], list[Mutation]]:
    """The mutated modules, and every edit of the functions that some stage of the target enters.

    What targets that judge as well enter beyond that stays as it is: they add judges, no mutants.
    """
    entered = {place for known in surveys if not known.stage.beside for place in known.functions}
    modules, found = [], []
    for source in sources:
        places: set[Place] = {
            (name, line) for module, name, line in entered if module == source.module
        }
        never = [
            name
            for name, code in functions_of(compiled(source.text, source.path))
            if (code.co_name, code.co_firstlineno) not in places
        ]
        edits = candidates(source, places, of_size=of_size)
        num_functions = len(functions_of(compiled(source.text, source.path))) - len(never)
        modules.append(
            MutatedModule(
                source.module, _shown(source.path), num_functions, tuple(never), len(edits)
            )
        )
        found += edits
    return modules, found


def _shown(path: Path) -> str:
    """The file with its folder: enough to find it, and nothing of this machine."""
    return f"{path.parent.name}/{path.name}"


def certify_with_power(
    load: Callable[[], Target],
    options: CertifyOptions,
    power: PowerOptions,
    rules: Rules,
    outputs: Outputs,
) -> int:
    """Certify, measure, print both and write both; the exit status.

    Raises TargetError, and OutputError for what `--power-results` names; `outputs` are checked.
    """
    for name in power.also:
        refuse_programs(name)
    if power.results is not None:
        check_file(power.results)
    with ExitStack() as stack:
        with progress_to(sys.stderr) as progress:
            run = stack.enter_context(power_run(load, options, power, progress))
            certificate = judge(certify(load, options, progress), rules)
        # Its own forms lie in the folder, whatever becomes of the mutants.
        files = Outputs(folder=outputs.folder).write(certificate)
        show(certificate_document(certificate, files))
        assert certificate.verdict is not None
        if certificate.verdict.exit_status:
            print(f"poolproof: {NOT_MEASURED}", file=sys.stderr)
            _write_both(outputs, MeasuredCertificate(certificate, None))
            return certificate.verdict.exit_status
        with progress_to(sys.stderr) as progress:
            report = run.measure(progress)
    _write_both(outputs, MeasuredCertificate(certificate, report))
    show(power_document(report))
    return 0


def _write_both(outputs: Outputs, measured: MeasuredCertificate) -> None:
    """A single file has the certificate and the power; the folder has the power on its own."""
    singles = replace(outputs, folder=None)
    singles.write_report(MEASURED_CERTIFICATE, measured, form_names("certificate"))
    if measured.power is not None:
        ReportFiles(folder=outputs.folder).write_report(POWER, measured.power, POWER_FILES)


def refuse_programs(target: str) -> None:
    """A program behind `cmd:` has no Python source. Raises TargetError."""
    if target.startswith("cmd:"):
        raise TargetError(
            f"{target!r} is a program, whose source cannot be read; --power changes the Python "
            "source of a class, path/to/file.py:Class or package.module:Class"
        )
