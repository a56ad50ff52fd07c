"""What the caller can mend keeps its class and its words from one process to another."""

import pytest

from poolproof.contract.profile import ProfileError
from poolproof.contract.target import TargetError
from poolproof.contract.trace import TraceError
from poolproof.harness.isolation import ImporterError, Isolation

pytestmark = pytest.mark.skipif(not Isolation.is_available, reason="needs fork()")


class SomebodysError(TargetError):
    """A class that our process cannot import by its name."""


def raises(_context, error, _beacon):
    raise error


def prepare_nothing():
    return None


@pytest.mark.parametrize("error", [TargetError("no pool"), TraceError("line 3"), ProfileError("x")])
def test_an_error_of_a_job_is_raised_again(error):
    with Isolation(prepare_nothing) as isolation:
        (outcome,) = isolation.map(raises, [error])
    with pytest.raises(type(error), match=f"^{error}$"):
        outcome.raise_if_known()


def test_an_error_of_a_class_of_somebody_else_is_the_nearest_of_ours():
    with Isolation(prepare_nothing) as isolation:
        (outcome,) = isolation.map(raises, [SomebodysError("odd")])
    assert outcome.known_as is TargetError


def test_any_other_error_is_no_matter_of_the_caller():
    with Isolation(prepare_nothing) as isolation:
        (outcome,) = isolation.map(raises, [KeyError(3)])
    outcome.raise_if_known()
    assert outcome.known_as is None


def test_an_error_of_the_import_is_known_again():
    def prepare():
        raise ProfileError("no such row")

    with pytest.raises(ImporterError) as raised, Isolation(prepare):
        pass
    known = raised.value.as_known()
    assert (type(known), str(known)) == (ProfileError, "no such row")
