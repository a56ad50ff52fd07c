"""A campaign's tapes and Hypothesis's examples, each in the form of the other.

Hypothesis stores an example as the list of values that it drew. `tape_test` makes a test that draws
one `binary()` and drives it as a tape: it replays exported tapes first, and what Hypothesis finds
and shrinks there comes back as tapes. Examples of other tests, such as the state machines of
`stateful_tests`, can be imported as well: the integers that they drew are read as answers. The
reverse is not possible, since Hypothesis alone decides how a machine asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from poolproof.contract.errors import PoolproofError
from poolproof.fuzz.level_runs import run_tape
from poolproof.fuzz.recorded_choices import MOST_ANSWERS, tape_of
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.subject import LoadedTarget

__all__ = ["ExamplesError", "export_tapes", "import_tapes", "key_of", "tape_test"]


class ExamplesError(PoolproofError):
    """Examples that cannot be read or written; the message says why and what to do."""


def key_of(settings: CampaignSettings) -> bytes:
    """The key under which the examples of a campaign are stored."""
    return f"poolproof {settings.level} {settings.layout} {settings.target}".encode()


def export_tapes(folder: Path, key: bytes, tapes: Iterable[bytes]) -> int:
    """Save tapes as examples under a key; return how many. Raises ExamplesError."""
    _, to_bytes = _serialisation()
    database = _database(folder)
    number = 0
    for tape in tapes:
        # Hypothesis passes over errors of its database, and so does a full disk in silence.
        database.save(key, to_bytes((tape,)))
        number += 1
    return number


def import_tapes(folder: Path, key: bytes) -> Iterator[bytes]:
    """The examples under a key as tapes: drawn bytes as they are, drawn integers as answers.

    Raises ExamplesError.
    """
    from_bytes, _ = _serialisation()
    for saved in sorted(_database(folder).fetch(key)):
        values = from_bytes(saved)
        if values:
            yield _tape_of_values(values)


def tape_test(target: LoadedTarget, settings: CampaignSettings) -> Callable[[], None]:
    """A Hypothesis test with the campaign's examples; it fails if a tape breaks something.

    test_my_pool = tape_test(load_target("my_pool.py:Pool"), settings)
    """
    from hypothesis import given
    from hypothesis.strategies import binary

    @given(binary(max_size=2 * MOST_ANSWERS))
    def test(tape: bytes) -> None:
        run, _ = run_tape(target, settings, tape, lambda _: None)
        violation = run.trace.violation if run.trace is not None else None
        assert violation is None, violation.sentence

    # Otherwise the key is a digest of the function's source, the same for all targets.
    test._hypothesis_internal_database_key = key_of(settings)  # type: ignore[attr-defined]  # noqa: SLF001 -- HypoFuzz's way as well
    return test


def _tape_of_values(values: Iterable[Any]) -> bytes:
    values = list(values)
    drawn = [value for value in values if isinstance(value, bytes)]
    if drawn:
        return b"".join(drawn)
    integers = [value for value in values if isinstance(value, int)]
    return tape_of([value % (1 << 16) for value in integers[:MOST_ANSWERS]])


def _database(folder: Path) -> Any:
    from hypothesis.database import DirectoryBasedExampleDatabase

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExamplesError(f"cannot make folder {folder}: {error.strerror}") from error
    return DirectoryBasedExampleDatabase(folder)


def _serialisation() -> tuple[Callable[[bytes], Any], Callable[[Any], bytes]]:
    import hypothesis
    from hypothesis import database

    try:
        return database.choices_from_bytes, database.choices_to_bytes
    except AttributeError:
        raise ExamplesError(
            f"Hypothesis {hypothesis.__version__} does not tell how it keeps examples; sharing "
            "them needs a newer one: pip install --upgrade hypothesis"
        ) from None
