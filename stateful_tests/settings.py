"""How long and how reproducibly Hypothesis runs the machines: for `certify` and for pytest.

`certify` takes its settings by depth and leaves Hypothesis's profiles alone, since they belong to
the project that it runs in; pytest's are registered by this folder's conftest.
"""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, Verbosity, settings

from poolproof.contract.depth import Depth

__all__ = ["DEFAULT_PROFILE", "machine_settings", "register_profiles"]

DEFAULT_PROFILE = "ci"

# Examples and steps of one machine.  Hypothesis takes most of a machine's time, and the plain
# driver finds each planted bug earlier (the kill matrix, docs/bugs.md): it gets the larger part.
EXAMPLES = {Depth.QUICK: 200, Depth.STANDARD: 500, Depth.DEEP: 5000}
_STEPS = {Depth.QUICK: 40, Depth.STANDARD: 60, Depth.DEEP: 100}

# Long examples and slow targets are what is wanted here, and a machine never rejects an example.
_NO_HEALTH_CHECKS = tuple(HealthCheck)

# Without Phase.shrink: on planted bugs it took 1 to 18 s and stopped at 1 to 23 commands, where the
# harness's own minimiser needed 20 ms at most, from the unshrunk trace, and stopped at 1 to 4.
# Without Phase.explain, which would trace every line; without Phase.reuse, for want of a database.
_PHASES = (Phase.generate,)


def machine_settings(depth: Depth, *, share: int = 1) -> settings:
    """The settings of one machine at a depth of `certify`; the same verdict at every run.

    A machine gets one of `share` shares of the depth's examples.
    """
    examples = EXAMPLES[depth] // share
    return settings(_base(), max_examples=examples, stateful_step_count=_STEPS[depth])


def register_profiles() -> None:
    """Register `ci` (the default), `nightly` and `deep` with Hypothesis.

    `ci` runs the same examples every time; `nightly` and `deep` draw new ones, and a failure is
    reproduced from the trace in the message.
    """
    settings.register_profile(
        "ci", _base(), max_examples=25, stateful_step_count=40, print_blob=True
    )
    settings.register_profile(
        "nightly", _base(), derandomize=False, max_examples=1000, stateful_step_count=60
    )
    settings.register_profile(
        "deep", _base(), derandomize=False, max_examples=5000, stateful_step_count=100
    )


def _base() -> settings:
    """Every setting that matters is stated, so that nothing comes from the current profile."""
    return settings(
        derandomize=True,
        database=None,
        deadline=None,
        verbosity=Verbosity.quiet,
        phases=_PHASES,
        suppress_health_check=_NO_HEALTH_CHECKS,
        report_multiple_bugs=False,
        print_blob=False,
        backend="hypothesis",
    )
