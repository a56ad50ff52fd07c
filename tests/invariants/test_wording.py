"""How sentences name sequences."""

import pytest

from poolproof.invariants.wording import sequence_name


@pytest.mark.parametrize(
    ("number", "name"), [(0, "A"), (27, "B1"), (-1, "-1"), (10**30, f"1{'0' * 30}")]
)
def test_a_number_that_nobody_gave_is_no_name(number: int, name: str) -> None:
    assert sequence_name(number) == name
