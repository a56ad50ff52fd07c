"""Severities are ordered, and a violation travels as an exception."""

import pytest

from poolproof.contract.violation import Severity, Violation, ViolationError, raise_for


def test_wrong_data_of_another_is_worst_and_bookkeeping_is_last():
    ranks = [severity.rank for severity in Severity]
    assert ranks == list(range(11))
    assert Severity.WRONG_DATA_OF_ANOTHER.rank == 0
    assert Severity.BOOKKEEPING.rank == 10


def test_an_error_carries_its_violation():
    violation = Violation("I1", Severity.LEAK, "block 3 is lost")
    error = ViolationError(violation)
    assert error.violation is violation
    assert str(error) == "I1: block 3 is lost"


def test_nothing_is_raised_for_no_violation():
    raise_for(None)
    with pytest.raises(ViolationError, match="I1: block 3 is lost"):
        raise_for(Violation("I1", Severity.LEAK, "block 3 is lost"))
