"""A power run from the target to the report: survey, sample, certify each mutant, own tests.

The unmutated target was certified before; what is wrong with it even so (accepted findings) is
surveyed here once more, run by run, so that a mutant is refused only where the original passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from poolproof.contract.target import TargetError
from poolproof.description import Description
from poolproof.driving import raise_if_ours, value_of
from poolproof.harness.isolation import Failed, Finished, ImporterError, Isolation
from poolproof.options import CertifyOptions
from poolproof.power.compiled import Place, compiled, functions_of
from poolproof.power.modules import Prepared, prepare
from poolproof.power.mutation import Mutation, Source
from poolproof.power.own_tests import OwnTests
from poolproof.power.planting import candidates, sample
from poolproof.power.power_jobs import Judged, Look, Survey, Task, judge, look, survey
from poolproof.power.power_options import PowerOptions
from poolproof.power.power_report import Mutant, MutatedModule, OwnRun, PowerReport
from poolproof.power.stages import stages_of
from poolproof.progress import Progress
from poolproof.run_plan import kinds_of
from poolproof.targets.target import Target

__all__ = ["PowerRun", "power_run"]


@contextmanager
def power_run(
    load: Callable[[], Target], options: CertifyOptions, power: PowerOptions, progress: Progress
) -> Iterator[PowerRun]:
    """A power run on the target that `load` loads, in child processes.

    Raises TargetError where it cannot be carried out, before anything long is done.
    """
    if not Isolation.is_available:
        raise TargetError("--power needs fork(), which this system does not have")
    isolation = Isolation(
        partial(prepare, load, power.modules), options.limits, workers=options.workers
    )
    try:
        with isolation:
            yield PowerRun(isolation, options, power, progress)
    except ImporterError as error:
        loading = error.outcome
        if isinstance(loading, Failed) and loading.exception_type.endswith("TargetError"):
            raise TargetError(loading.message) from error
        raise TargetError(str(error)) from error


class PowerRun:
    """One power run: the constructor looks at source and own tests, `measure` does the work."""

    def __init__(
        self,
        isolation: Isolation[Prepared],
        options: CertifyOptions,
        power: PowerOptions,
        progress: Progress,
    ) -> None:
        self._isolation = isolation
        self._options = options
        self._power = power
        self._progress = progress
        progress.begin("looking at the target's source")
        seen: Look = value_of(isolation, look, None)
        self._about = seen.about
        self._sources = [Source(*source) for source in seen.sources]
        self._tests = self._own_tests()
        progress.end()

    def measure(self, progress: Progress) -> PowerReport:
        """Survey, mutants, own tests. Raises TargetError where no run enters the source."""
        self._progress = progress
        began = time.monotonic()
        about, options, tests = self._about, self._options, self._tests
        surveys = self._survey(about)
        modules, found = _candidates(self._sources, surveys)
        if not found:
            raise TargetError(
                f"{about.name}: no run enters a function of "
                f"{', '.join(module.name for module in modules)}; name others with --power-modules"
            )
        drawn = sample(self._sources, found, self._power.most_mutants, options.seed)
        mutants = self._judged(about, drawn.mutations, surveys)
        if tests is not None:
            mutants = self._judged_by_own(tests, mutants)
        progress.end()
        return PowerReport(
            target=about.name,
            target_version=about.version,
            level=options.level,
            seed=options.seed,
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

    def _survey(self, about: Description) -> list[Survey]:
        """What the unmutated target executes and breaks in each stage."""
        stages = stages_of(kinds_of(about, self._options), self._options.level, self._options.seed)
        self._progress.begin("stages, traced on the unmutated target", len(stages))
        surveys = []
        jobs = [(about, stage) for stage in stages]
        for (_, stage), outcome in zip(jobs, self._isolation.map(survey, jobs), strict=True):
            raise_if_ours(outcome)
            self._progress.advance(1)
            if isinstance(outcome, Finished):
                surveys.append(outcome.value)
            else:
                # It is lost unmutated as well (an accepted finding), and shows nothing of mutants.
                surveys.append(Survey(stage, failing=frozenset([-1])))
        return surveys

    def _judged(
        self, about: Description, mutations: Sequence[Mutation], surveys: Sequence[Survey]
    ) -> list[Mutant]:
        """Each mutant certified by the stages that execute one of its lines."""
        tasks = [Task(mutation, about, _reaching(mutation, surveys)) for mutation in mutations]
        reached = [task for task in tasks if task.stages]
        self._progress.begin("mutants", len(reached))
        found: dict[Mutation, Judged] = {}
        for place, outcome in self._isolation.as_completed(judge, reached):
            self._progress.advance(1)
            mutation = reached[place].mutation
            if isinstance(outcome, Finished):
                found[mutation] = outcome.value
            elif isinstance(outcome, Failed):
                # The checks themselves stumbled, where `certify` stops and says so.
                what = f"the checks raised {outcome.exception_type}: {outcome.message}"
                found[mutation] = Judged("", "CANNOT RUN", what)
            else:
                found[mutation] = Judged("", "CRASH", outcome.sentence("a command"))
        return [
            Mutant(task.mutation, bool(task.stages), found.get(task.mutation, Judged()))
            for task in tasks
        ]

    def _judged_by_own(self, tests: OwnTests, mutants: Sequence[Mutant]) -> list[Mutant]:
        """The same mutants, with the verdicts of the target's own tests."""
        self._progress.begin("the target's own tests, mutants", len(mutants))
        judged = []
        verdicts = tests.judge([mutant.mutation for mutant in mutants])
        for mutant, verdict in zip(mutants, verdicts, strict=True):
            self._progress.advance(1)
            judged.append(replace(mutant, own=verdict))
        return judged


def _reaching(mutation: Mutation, surveys: Sequence[Survey]) -> tuple[Survey, ...]:
    """The stages that execute a line of the mutation; in all others nothing can differ."""
    first, last = mutation.lines
    changed = {(mutation.module, line) for line in range(first, last + 1)}
    found = [known for known in surveys if -1 not in known.failing and changed & known.lines]
    # What a task carries travels to its worker; the lines are not needed there.
    return tuple(Survey(known.stage, failing=known.failing) for known in found)


def _candidates(
    sources: Sequence[Source], surveys: Sequence[Survey]
) -> tuple[list[MutatedModule], list[Mutation]]:
    """The mutated modules, and every edit of the functions that some stage enters."""
    entered = {place for known in surveys for place in known.functions}
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
        edits = candidates(source, places)
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
