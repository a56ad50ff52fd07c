"""The pytest plugin: silent until a test asks for it, and cheap to load.

A test that calls `poolproof.assert_holds` or `assert_fixed` needs nothing of this; the plugin then
prints the finding's table where pytest would print a traceback. The marker `poolproof` turns one
test into an item for each level, layout and invariant of a target:

    @pytest.mark.poolproof("path/to/file.py:Pool", depth="quick")
    def test_pool(poolproof_check):
        poolproof_check()

Everything else is in `host_tests.py`, which is imported when a test has the marker. Nothing of
pytest's own internals is used; 7.0 is the first release that has all that is.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from poolproof.host_tests import TargetCheck

__all__ = ["poolproof_check"]

_OLDEST = (7, 0)
_FIXTURE = "poolproof_check"
_MARKER = "poolproof"
_ASSERTIONS = (
    ("poolproof.api", "assert_holds"),
    ("poolproof.api", "assert_fixed"),
    ("poolproof.host_tests", "__call__"),
)
"""The functions of ours that assert something, by module and name."""


class _AsWritten:
    """Finds our modules before pytest does, which would rewrite each of their asserts.

    pytest rewrites every module of a package that brings a plugin, whether it has to do with tests
    or not. That would cost the first run seconds and every step of a certification some time.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith("poolproof."):
            return None
        return PathFinder.find_spec(name, path, target)


# As soon as this is loaded, which is before any conftest.py: one of those may import our modules.
sys.meta_path.insert(0, _AsWritten())


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "poolproof(target, *, depth='quick', hypothesis=False, **options): certify an allocator, "
        "with an item for each level, layout and invariant; the test takes the fixture "
        "poolproof_check and calls it.",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item for each level, layout and invariant of the marked test's target."""
    marker = metafunc.definition.get_closest_marker(_MARKER)
    asks = _FIXTURE in metafunc.fixturenames
    if marker is None and not asks:
        return
    name = metafunc.function.__name__
    if not asks:
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid} has the marker poolproof and does not use it; write: "
            f"def {name}({_FIXTURE}): {_FIXTURE}()"
        )
    if marker is None:
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid} takes {_FIXTURE} and has no target; write above it: "
            '@pytest.mark.poolproof("path/to/file.py:Class")'
        )
    _refuse_old_pytest()
    from poolproof.host_tests import checks_of

    test = metafunc.definition.path.parent
    checks = checks_of(metafunc.definition.nodeid, marker, metafunc.config, test)
    metafunc.parametrize(_FIXTURE, checks, ids=[check.name for check in checks], indirect=True)


@pytest.fixture
def poolproof_check(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> TargetCheck:
    """What an item checks: call it; `level`, `layout`, `invariant` and `certificate` tell more."""
    check: TargetCheck = request.param
    is_one_of_many = hasattr(request.config, "workerinput")  # a worker of pytest-xdist
    if is_one_of_many:
        check.share_in(tmp_path_factory.getbasetemp().parent)
    return check


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """The finding's table, or the sentence that names what to do, where a traceback would stand."""
    outcome: Any = yield
    report: pytest.TestReport = outcome.get_result()
    if call.excinfo is None or report.outcome != "failed":
        return
    place = _place_of_assertion(call.excinfo)
    if place is not None:
        file, line = place
        report.longrepr = _Table(str(call.excinfo.value), item, file, line)  # type: ignore[assignment]  # whatever has toterminal()


class _Table:
    """What pytest prints for a failed item: our text, and where the test stands."""

    def __init__(self, text: str, item: pytest.Item, file: str, line: int) -> None:
        folder = item.config.rootpath
        path = Path(file)
        shown = path.relative_to(folder) if path.is_relative_to(folder) else path
        self.text = f"{text}\n\n{shown}:{line}: {item.name}"
        # From here pytest takes the line of its summary.
        self.reprcrash = SimpleNamespace(
            path=str(path), lineno=line, message=text.partition("\n")[0]
        )

    def __str__(self) -> str:
        return self.text

    def toterminal(self, tw: Any) -> None:
        """Write it as pytest writes its own reports."""
        headline, _, rest = self.text.partition("\n")
        tw.line(headline, red=True, bold=True)
        tw.line(rest)


def _place_of_assertion(excinfo: pytest.ExceptionInfo[BaseException]) -> tuple[str, int] | None:
    """File and line where a test asserted something of ours that failed with one of our errors.

    None for any other failure, also for an error of ours that a test met by itself.
    """
    errors = sys.modules.get("poolproof.contract.errors")
    if errors is None or not isinstance(excinfo.value, errors.PoolproofError):
        return None
    place = None
    for frame, line in traceback.walk_tb(excinfo.tb):
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) in _ASSERTIONS:
            return place
        place = (frame.f_code.co_filename, line)
    return None


def _refuse_old_pytest() -> None:
    """Raises UsageError where pytest lacks what the marker needs."""
    numbers = tuple(int(part) for part in pytest.__version__.split(".")[:2] if part.isdigit())
    if numbers < _OLDEST:
        raise pytest.UsageError(
            f"the marker poolproof needs pytest {'.'.join(map(str, _OLDEST))} or newer, and this "
            f"is {pytest.__version__}: pip install --upgrade pytest, or call "
            "poolproof.assert_holds in a plain test"
        )
