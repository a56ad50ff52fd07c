"""Which of our errors an exception counts as."""

from poolproof.contract.errors import OptionError, PoolproofError, known_class


class OfATestError(OptionError):
    """Defined outside of the package, as a target may."""


def test_an_error_of_ours_counts_as_itself():
    assert known_class(OptionError("x")) is OptionError


def test_a_class_of_somebody_else_counts_as_the_nearest_of_ours():
    assert known_class(OfATestError("x")) is OptionError


def test_what_the_caller_cannot_mend_is_none_of_them():
    assert known_class(ValueError("x")) is None
    assert issubclass(OptionError, PoolproofError)
