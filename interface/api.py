"""The public functions: they do what the command line does, with values instead of files.

They are imported as `poolproof.certify` and so on; `interface/__init__.py` lists what is public.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from poolproof.certification import certify as certification
from poolproof.certification.audit import Audit, audit_recording
from poolproof.certification.baseline import Baseline, read_baseline
from poolproof.certification.certificate import Certificate, Verdict
from poolproof.certification.certify import InterruptedCertification
from poolproof.certification.explore_target import TargetExploration, Workloads, explore_target
from poolproof.certification.finding import Finding
from poolproof.certification.inference import InferredProfile, infer
from poolproof.certification.isolated_trace import replay_isolated, shrink_isolated, watch_isolated
from poolproof.certification.known_findings import KnownFindings, read_known_findings
from poolproof.certification.options import CertifyOptions, usable_processors
from poolproof.certification.progress import SilentProgress, StageProgress
from poolproof.certification.repair import RepairReport, judge_repair
from poolproof.certification.verdict import Rules, failing, judge
from poolproof.contract.depth import Depth
from poolproof.contract.errors import OptionError, PoolproofError
from poolproof.contract.outside import shown, unknown_name
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity
from poolproof.exploration.scope import Scope, check_memory, usable_mib
from poolproof.harness.failure_kind import EVERY_KIND
from poolproof.harness.fingerprint import fingerprint_of
from poolproof.harness.isolation import Limits
from poolproof.harness.replay import Replay
from poolproof.report.finding_report import finding_report, trace_report
from poolproof.report.forms import Form, document_text
from poolproof.report.level_views import VIEWS
from poolproof.report.trace_files import find_trace
from poolproof.report_kinds import REPORT_KINDS
from poolproof.targets.load import load_target
from poolproof.targets.target import Target
from poolproof.targets.target_spec import TargetSpec

__all__ = [
    "Asked",
    "NotHeldError",
    "assert_fixed",
    "assert_holds",
    "audit",
    "certify",
    "explore",
    "infer_profile",
    "judge_patch",
    "render",
    "replay",
    "shrink",
]


@dataclass(frozen=True, slots=True)
class Asked:
    """What `certify` was asked for: how to load the target, how to drive it, what may pass."""

    load: Callable[[], Target]
    options: CertifyOptions
    rules: Rules

    @classmethod
    def of(
        cls,
        target: str | type | Target,
        *,
        depth: str,
        profile: Mapping[str, Any] | None,
        layouts: Sequence[str],
        api: str | None,
        fail_on: Collection[Severity | str],
        known: str | Path | None,
        baseline: str | Path | None,
        keep_going: bool,
        hardening: bool,
        seed: int,
        workers: int | None,
        in_process: bool,
        call_timeout_s: float,
        memory_mib: int,
    ) -> Asked:
        """Check the arguments of `certify`, and read its files; raises what it raises."""
        load, rows = _loading(target, profile, api)
        rules = Rules(
            fail_on=_severities(fail_on),
            known=KnownFindings() if known is None else read_known_findings(_path("known", known)),
            baseline=Baseline() if baseline is None else read_baseline(_path("baseline", baseline)),
        )
        options = CertifyOptions(
            depth=Depth.named(depth),
            seed=seed,
            workers=usable_processors() if workers is None else workers,
            in_process=in_process,
            limits=Limits(call_timeout_s=call_timeout_s, memory_mib=memory_mib),
            hardening=hardening,
            api=api,
            layouts=_names("layouts", layouts),
            profile_overrides=rows,
            accepted=EVERY_KIND if keep_going else rules.accepted_kinds,
        )
        return cls(load, options, rules)


class NotHeldError(PoolproofError, AssertionError):
    """What was asserted to hold does not; the message is the report, with a table of the steps.

    `headline` says it in a line. `certificate` is that of the run, None where a trace was replayed.
    """

    def __init__(self, headline: str, report: str, certificate: Certificate | None = None) -> None:
        super().__init__(f"{headline}\n\n{report}" if report else headline)
        self.headline = headline
        self.certificate = certificate


def certify(
    target: str | type | Target,
    *,
    depth: str = "standard",
    profile: Mapping[str, Any] | None = None,
    layouts: Sequence[str] = (),
    api: str | None = None,
    fail_on: Collection[Severity | str] = tuple(Severity),
    known: str | Path | None = None,
    baseline: str | Path | None = None,
    keep_going: bool = False,
    hardening: bool = False,
    seed: int = 0,
    workers: int | None = None,
    in_process: bool = False,
    call_timeout_s: float = 10.0,
    memory_mib: int = 2048,
    progress: StageProgress | None = None,
) -> Certificate:
    """Certify an allocator; returns the certificate with its verdict.

    Args:
        target: a built-in name, "package.module:Class", "path/to/file.py:Class",
            "cmd:./program", a class, or a loaded `Target`.
        depth: "quick" (under 30 s), "standard" (about 2 minutes) or "deep".
        profile: rows that override those the target declares.
        layouts: the layouts of a manager to run; all by default.
        api: which shape the class has, if it has several.
        fail_on: the severities that fail the run.
        known: a TOML file of accepted findings.
        baseline: an older certificate as JSON; its findings do not fail the run.
        keep_going: continue searching after a failure.
        hardening: also try misuse that the profile leaves undefined; this never fails the run.
        seed: 0 or more; the same seed gives the same findings.
        workers: processes; one per CPU by default.
        in_process: use no child process and no limits, for debuggers.
        call_timeout_s: seconds that one call of the target may take.
        memory_mib: memory of one worker, in MiB, beyond what importing the target uses.
        progress: told what is being done; silent by default.

    Raises OptionError for a value that is not allowed, TargetError for a target that cannot be run,
    KnownFileError and BaselineError for those files. An interruption raises KeyboardInterrupt,
    whose `certificate` holds what was found so far.
    """
    asked = Asked.of(
        target, depth=depth, profile=profile, layouts=layouts, api=api, fail_on=fail_on,
        known=known, baseline=baseline, keep_going=keep_going, hardening=hardening, seed=seed,
        workers=workers, in_process=in_process, call_timeout_s=call_timeout_s,
        memory_mib=memory_mib,
    )  # fmt: skip
    try:
        found = certification.certify(asked.load, asked.options, progress or SilentProgress())
    except InterruptedCertification as interrupt:
        # What was found is there, but the run as a whole says nothing.
        judged = judge(interrupt.certificate, asked.rules)
        interrupt.certificate = replace(judged, verdict=Verdict.INCONCLUSIVE)
        raise
    return judge(found, asked.rules)


def audit(recording: str | Path) -> Audit:
    """Judge what a live engine did, from a recording of what its scheduler told the workers.

    Args:
        recording: the file that POOLPROOF_RECORD named, or a `RecordingWriter` wrote.

    Raises RecordingError for a file that is none, or of a newer version.
    """
    return audit_recording(_path("recording", recording))


def assert_holds(
    target: str | type | Target, *, depth: str | None = None, **options: Any
) -> Certificate:
    """Certify an allocator in a test: returns the certificate if it holds.

    What `[tool.poolproof]` of the test's project says of the target is asked for, as by `poolproof
    certify`; an argument that is given takes its place. The traces of what was found go to
    `.poolproof/findings`, as those of `poolproof certify` do.

    Args:
        target: as for `certify`.
        depth: "quick" (under 30 s), "standard" (about 2 minutes) or "deep"; the project's by
            default, and quick where it has none.
        options: any further argument of `certify`.

    Raises NotHeldError, an AssertionError whose message shows each finding step by step, or why the
    run says too little; ProjectFileError for a `[tool.poolproof]` that cannot be used; and what
    `certify` raises.
    """
    __tracebackhide__ = True
    from poolproof.project_options import project_options
    from poolproof.trace_places import Places

    _require_options("assert_holds", options)
    if depth is not None:
        options["depth"] = depth
    test = Places.around_caller(sys._getframe(1)).folders[0]  # noqa: SLF001 - inspect.stack reads the source of every frame
    project = project_options(target, named_from=Path.cwd(), test=test)
    certificate = certify(target, **{"depth": "quick", **project, **options})
    require_held(certificate, failing(certificate))
    return certificate


def require_held(certificate: Certificate, found: Sequence[Finding]) -> None:
    """Raise NotHeldError for the findings that fail a run, or for a verdict that is no pass."""
    __tracebackhide__ = True
    from poolproof.report.failed_assertion import refusal, unconcluded

    if found:
        raise NotHeldError(*refusal(certificate, found), certificate)
    if certificate.verdict is not Verdict.HOLDS and not failing(certificate):
        raise NotHeldError(*unconcluded(certificate), certificate)


def assert_fixed(
    trace: Trace | str | Path,
    *,
    target: str | None = None,
    in_process: bool = False,
    call_timeout_s: float = 10.0,
) -> None:
    """Replay the trace of a bug that was repaired, as a regression test.

    It does not matter in which folder the tests are started: a relative path is looked for beside
    the file that calls this and in the folders above it, and so is the target of the trace.

    Args:
        trace: a trace or the path of its file.
        target: run on this target instead of the one that the trace names.
        in_process: use no child process and no limits.
        call_timeout_s: seconds that one call of the target may take.

    Raises NotHeldError if it breaks something again, or if commands of it mean nothing any more;
    TraceError if it is no trace, TargetError if its target is gone or cannot be run.
    """
    __tracebackhide__ = True
    from poolproof.report.failed_assertion import found_again
    from poolproof.trace_places import Places, in_folder

    places = Places.around_caller(sys._getframe(1))  # noqa: SLF001 - inspect.stack reads the source of every frame
    if isinstance(trace, str | Path):
        path = places.trace(trace)
        recorded, name = _trace(path), str(trace)
        places = places.and_above(path)
    else:
        recorded, name = _trace(trace), "the trace"
    with in_folder(places.folder_of(target or recorded.target, name)):
        outcome = replay(
            recorded, target=target, in_process=in_process, call_timeout_s=call_timeout_s
        )
    said = found_again(recorded, outcome, name, target)
    if said is not None:
        raise NotHeldError(*said)


def infer_profile(
    target: str | type,
    *,
    depth: str = "quick",
    profile: Mapping[str, Any] | None = None,
    layouts: Sequence[str] = (),
    api: str | None = None,
    seed: int = 0,
    workers: int | None = None,
    in_process: bool = False,
    call_timeout_s: float = 10.0,
    memory_mib: int = 2048,
    progress: StageProgress | None = None,
) -> InferredProfile:
    """Find the rows of the profile to change, as few as possible, so that the target holds.

    Each changed row comes with what it costs; the target itself is not changed.

    Args:
        target: as for `certify`.
        depth: how deep the run goes that confirms the profile.
        profile: rows that override those the target declares; the search starts from them.
        layouts: the layouts of a manager to run; all by default.
        api: which shape the class has, if it has several.
        seed: 0 or more; the same seed gives the same profile.
        workers: processes; one per CPU by default.
        in_process: use no child process and no limits, for debuggers.
        call_timeout_s: seconds that one call of the target may take.
        memory_mib: memory of one worker, in MiB, beyond what importing the target uses.
        progress: told what is being done; silent by default.

    Raises OptionError for a value that is not allowed, TargetError for a target that cannot be run.
    """
    asked = Asked.of(
        target, depth=depth, profile=profile, layouts=layouts, api=api, fail_on=tuple(Severity),
        known=None, baseline=None, keep_going=False, hardening=False, seed=seed, workers=workers,
        in_process=in_process, call_timeout_s=call_timeout_s, memory_mib=memory_mib,
    )  # fmt: skip
    spec = TargetSpec.of(target).with_rows(_rows(profile))

    def load_with(rows: Mapping[str, Any]) -> Callable[[], Target]:
        return partial(load_target, spec.with_rows(rows), api=api)

    return infer(load_with, asked.options, progress or SilentProgress())


def judge_patch(
    target: str,
    patch: str | Path,
    *,
    depth: str = "standard",
    profile: Mapping[str, Any] | None = None,
    layouts: Sequence[str] = (),
    api: str | None = None,
    seed: int = 0,
    workers: int | None = None,
    call_timeout_s: float = 10.0,
    memory_mib: int = 2048,
    progress: StageProgress | None = None,
) -> RepairReport:
    """Certify a target with a diff applied to its sources, beside the target without it.

    The report says which findings the diff repairs, which it leaves, which are new with it, and
    what it costs in hits. Nothing is written: the diff is applied while the target is imported.

    Args:
        target: "path/to/file.py:Class", "package.module:Class", or a built-in name of an engine
            that is installed, fetched or checked out. One that names a patch itself, such as
            "vllm-hybrid[patch=a.diff]", is what the other one is judged beside.
        patch: the file of a unified diff against the unpatched sources, as `git diff` writes it.
        depth: "quick", "standard" or "deep", for both.
        profile: rows that override those the target declares.
        layouts: the layouts of a manager to run; all by default.
        api: which shape the class has, if it has several.
        seed: 0 or more.
        workers: processes; one per CPU by default.
        call_timeout_s: seconds that one call of the target may take.
        memory_mib: memory of one worker, in MiB, beyond what importing the target uses.
        progress: told what is being done; silent by default.

    Raises OptionError for a value that is not allowed, and TargetError for a target that cannot be
    run or patched and for a diff that does not parse, does not apply, or changes nothing of it.
    """
    given = str(_path("patch", patch))
    if not isinstance(target, str):
        raise OptionError(f"target must be the text that names its sources, not {shown(target)}")
    unpatched = replace(TargetSpec.of(target), patch=None)
    patched = unpatched.with_rows(_rows(profile)).with_patch(given).text
    both = [
        Asked.of(
            name, depth=depth, profile=profile, layouts=layouts, api=api, fail_on=tuple(Severity),
            known=None, baseline=None, keep_going=True, hardening=False, seed=seed,
            workers=workers, in_process=False, call_timeout_s=call_timeout_s,
            memory_mib=memory_mib,
        )
        for name in (target, patched)
    ]  # fmt: skip
    load = (both[0].load, both[1].load)
    return judge_repair(given, load, both[0].options, progress or SilentProgress())


def explore(
    target: str | type,
    *,
    num_blocks: int | None = None,
    num_hashes: int = 2,
    max_references: int = 2,
    pairs: bool = False,
    symmetry: bool = True,
    max_commands: int | None = None,
    max_live: int | None = None,
    max_states: int | None = None,
    max_seconds: float | None = None,
    layouts: Sequence[str] = (),
    profile: Mapping[str, Any] | None = None,
    seed: int = 0,
    workers: int | None = None,
    in_process: bool = False,
    memory_mib: int | None = None,
    progress: StageProgress | None = None,
) -> TargetExploration:
    """Visit every state of a small pool, queue or index; try every short workload of others.

    Args:
        target: as for `certify`.
        num_blocks: blocks of the pool; 4 by default.
        num_hashes: different hashes in a state of a pool.
        max_references: references to one block of a pool.
        pairs: also try commands that name two blocks of a pool, and misuse.
        symmetry: visit one state for all that differ only in the names of blocks and hashes.
        max_commands: for a manager or an engine, the longest workload; 4 by default.
        max_live: for an engine, the most requests at once; 2 by default.
        max_states: for an engine, the most states of one set-up; 200,000 by default.
        max_seconds: for an engine, the longest that one set-up takes; no limit by default.
        layouts: for a manager or an engine, the layouts to explore; all by default.
        profile: rows that override those the target declares.
        seed: 0 or more.
        workers: processes; one per CPU by default.
        in_process: use no child process and no limits.
        memory_mib: refuse what would take more; three quarters of the free memory by default.
        progress: told what is being done; silent by default.

    Raises OptionError, TargetError, and ExplorationError for a scope that is too large.
    """
    spec = TargetSpec.of(target).with_rows(_rows(profile))
    _require_ints(
        num_blocks=num_blocks, num_hashes=num_hashes, max_references=max_references,
        max_commands=max_commands, max_live=max_live, max_states=max_states, memory_mib=memory_mib,
    )  # fmt: skip
    if max_seconds is not None and not (_is_number(max_seconds) and max_seconds > 0):
        raise OptionError(f"max_seconds must be a number above 0, not {shown(max_seconds)}")
    scope = Scope(4 if num_blocks is None else num_blocks, num_hashes, max_references)
    check_memory(scope, usable_mib() if memory_mib is None else memory_mib, symmetry=symmetry)
    options = CertifyOptions(
        seed=seed,
        workers=usable_processors() if workers is None else workers,
        in_process=in_process,
        profile_overrides=spec.rows,
        layouts=_names("layouts", layouts),
    )
    return explore_target(
        lambda: load_target(spec),
        scope,
        options,
        progress or SilentProgress(),
        pairs=pairs,
        symmetry=symmetry,
        workloads=Workloads(
            max_commands, options.layouts, num_blocks, max_live, max_states, max_seconds
        ),
    )


def replay(
    trace: Trace | str | Path,
    *,
    target: str | None = None,
    profile: Mapping[str, Any] | None = None,
    in_process: bool = False,
    call_timeout_s: float = 10.0,
) -> Replay:
    """Run a trace again: the commands that were applied, how many were left out, what broke.

    Args:
        trace: a trace, the path of its file, or the fingerprint of a finding that the last
            certification in the current folder left.
        target: run on this target instead of the one that the trace names.
        profile: rows that override those the trace was judged by; the target stays as it is.
        in_process: use no child process and no limits.
        call_timeout_s: seconds that one call of the target may take.

    Raises TraceError if it is not a trace, TargetError for a target that cannot be run, and
    ProfileError for rows that its level does not have.
    """
    limits = Limits(call_timeout_s=call_timeout_s)
    judged = _judged_by(_trace(trace), profile)
    return replay_isolated(judged, target, limits, in_process=in_process)


def shrink(
    trace: Trace | str | Path,
    *,
    target: str | None = None,
    profile: Mapping[str, Any] | None = None,
    in_process: bool = False,
    call_timeout_s: float = 2.0,
) -> Trace:
    """Find the smallest trace that breaks what `trace` breaks; no violation if it holds now.

    Takes the arguments of `replay` and raises the same errors.
    """
    limits = Limits(call_timeout_s=call_timeout_s)
    judged = _judged_by(_trace(trace), profile)
    small = shrink_isolated(judged, target, limits, in_process=in_process)
    if small.violation is None:
        return small
    small = replace(small, fingerprint=fingerprint_of(small), shown=())
    if not small.level.has_layouts:
        return small
    watched = watch_isolated(small, target, limits, in_process=in_process)
    return replace(small, shown=() if watched is None else watched.shown)


def render(subject: Certificate | RepairReport | Finding | Trace, form: str = "text") -> str:
    """Write a certificate, the report on a patch, a finding or a trace as a document.

    Args:
        subject: what to show.
        form: "text", "markdown" or "html" (a web page) for any; "json" or "junit" for a
            certificate or a report; "jsonl" (a trace file) or "pytest" (a regression test) for the
            others.

    Raises OptionError for an unknown form.
    """
    forms: dict[str, Callable[[], str]]
    kind = REPORT_KINDS.get(type(subject))
    if kind is not None:
        forms = {each.value: partial(kind.written, subject, each) for each in Form}
    elif isinstance(subject, Finding | Trace):
        trace = subject if isinstance(subject, Trace) else subject.whole_trace()
        report = trace_report(trace) if isinstance(subject, Trace) else finding_report(subject)
        forms = {
            "text": lambda: document_text(report, Form.TEXT),
            "markdown": lambda: document_text(report, Form.MARKDOWN),
            "jsonl": lambda: "\n".join(trace.lines()) + "\n",
            "html": lambda: document_text(report, Form.HTML),
            "pytest": lambda: VIEWS[trace.level].test(trace, None),
        }
    else:
        raise OptionError(
            f"subject must be a Certificate, a Finding or a Trace, not {shown(subject)}"
        )
    if form not in forms:
        raise OptionError(f"form must be one of {', '.join(forms)}, not {shown(form)}")
    return forms[form]()


def _loading(
    target: str | type | Target, profile: Mapping[str, Any] | None, api: str | None
) -> tuple[Callable[[], Target], Mapping[str, Any]]:
    """How a target is loaded, and the rows that replace its own."""
    if isinstance(target, Target):
        for name, value in (("profile", profile), ("api", api)):
            if value:
                raise OptionError(
                    f"{name} cannot be given for a Target that is loaded; give it to load_target"
                )
        return (lambda: target), {}
    spec = TargetSpec.of(target).with_rows(_rows(profile))
    return partial(load_target, spec, api=api), spec.rows


def _require_options(function: str, options: Mapping[str, Any]) -> None:
    """Raises OptionError for an argument that `certify` does not have."""
    known = [name for name in inspect.signature(certify).parameters if name != "target"]
    for name in options:
        if name not in known:
            raise OptionError(f"{function} {unknown_name('argument', name, known)}")


def _trace(trace: Trace | str | Path) -> Trace:
    if isinstance(trace, Trace):
        return trace
    if isinstance(trace, str | Path):
        return find_trace(str(trace))[1]
    raise OptionError(f"trace must be a Trace, a path or a fingerprint, not {shown(trace)}")


def _judged_by(trace: Trace, profile: Mapping[str, Any] | None) -> Trace:
    rows = _rows(profile)
    return trace.judged_by(rows) if rows else trace


def _rows(profile: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if profile is None or isinstance(profile, Mapping):
        return profile or {}
    raise OptionError(f"profile must map rows to values, not be {shown(profile)}")


def _path(argument: str, given: str | Path) -> Path:
    if isinstance(given, str | Path):
        return Path(given)
    raise OptionError(f"{argument} must be a path, not {shown(given)}")


def _require_ints(**numbers: int | None) -> None:
    for name, number in numbers.items():
        if number is not None and type(number) is not int:
            raise OptionError(f"{name} must be an int, not {shown(number)}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _names(argument: str, names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise OptionError(f"{argument} must be a list of names, not {shown(names)}")
    return tuple(names)


def _severities(fail_on: Collection[Severity | str]) -> tuple[Severity, ...]:
    known = {severity.value: severity for severity in Severity}
    given = (
        fail_on if isinstance(fail_on, Collection) and not isinstance(fail_on, str) else [fail_on]
    )
    found = [name if isinstance(name, Severity) else known.get(str(name)) for name in given]
    for name, severity in zip(given, found, strict=True):
        if severity is None:
            raise OptionError(
                f"fail_on must hold severities ({', '.join(known)}), not {shown(name)}"
            )
    if not found:
        raise OptionError(f"fail_on must name at least one of {', '.join(known)}")
    return tuple(severity for severity in found if severity is not None)
