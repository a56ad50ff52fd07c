"""Contracts are confirmed over all paths, wrong versions refuted; anything else is no pass."""

from __future__ import annotations

import pytest

pytest.importorskip("z3", reason="needs z3-solver (make proof)")
pytest.importorskip("crosshair", reason="needs crosshair-tool (make proof)")

from poolproof.exploration.symbolic.catalogue import CONTRACTS, WRONG, Contract
from poolproof.exploration.symbolic.symbolic_run import (
    ContractOutcome,
    SymbolicRun,
    _examine_wrong,
    examine,
    run_symbolic,
)

TIMEOUT_S = 60


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.name)
def test_contract_is_confirmed_over_all_paths(contract):
    outcome = examine(contract, TIMEOUT_S)
    assert (outcome.verdict, outcome.message) == ("confirmed", "Confirmed over all paths.")
    assert outcome.num_conditions >= 1
    assert contract.sentence


# CrossHair runs functions where no coverage is measured; a plain call is an example of each.
EXAMPLES = {
    "key_reads_back": ((b"ab", 3), (b"ab", 3)),
    "field_reads_back": ((b"ab", b"c"), (b"ab", b"c")),
    "fields_read_back": ((b"a", b"bc"), (b"a", b"bc")),
    "memory_is_used_up": ((1000, 300), 3),
    "page_counts_keys_and_values": ((4, 8), 8192),
    "blocks_cover_tokens": ((17, 16), 2),
    "growth_is_what_is_missing": ((16, 1), 1),
    "requests_are_counted_apart": ((1, 1), 2),
    "slot_names_block_and_offset": ((3, 37), (3, 5)),
    "window_keeps_what_is_read": ((4, 10, 10, 7), 7),
    "window_skips_what_is_not": ((4, 2), 0),
    "chunk_keeps_what_is_read": ((10, 12, 8), 8),
    "chunk_skips_what_is_not": ((16,), 16),
    "state_keeps_the_last_token": ((5,), 4),
    "peak_covers_a_window_anywhere": ((4, 3), 2),
    "allocating": ((True, False), True),
    "touching": ((0, True, True), True),
    "freeing": ((1, False, False, True), True),
    "caching": ((2, True, False, True), True),
    "evicting": ((0, True, True), True),
}


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.name)
def test_contract_by_example(contract):
    arguments, expected = EXAMPLES[contract.name]
    assert contract.function(*arguments) == expected


@pytest.mark.parametrize("number", range(len(WRONG)), ids=lambda number: WRONG[number].contract)
def test_wrong_version_is_refuted(number):
    outcome = _examine_wrong(number, TIMEOUT_S)
    assert outcome.verdict == "refuted", outcome


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.contract)
def test_wrong_version_by_example_gives_something_else(wrong, monkeypatch):
    contract = next(contract for contract in CONTRACTS if contract.name == wrong.contract)
    arguments, expected = EXAMPLES[wrong.contract]
    monkeypatch.setitem(contract.function.__globals__, wrong.name, wrong.version)
    assert contract.function(*arguments) != expected


def test_names_choose_contracts_and_their_wrong_versions():
    run = run_symbolic(TIMEOUT_S, ["blocks_cover_tokens"])
    assert [outcome.name for outcome in run.contracts] == ["blocks_cover_tokens"]
    assert [outcome.verdict for outcome in run.wrong] == ["refuted"]
    assert run.exit_status == 0


def without_contract(number: int) -> int:
    """Nothing is promised."""
    return number


def never_there(number: int) -> int:
    """A contract that no argument can meet.

    pre: number < 0 < number
    post: _ == 0
    """
    return number


@pytest.mark.parametrize("function", [without_contract, never_there])
def test_nothing_shown_is_not_confirmed(function):
    assert examine(Contract(function, "nothing"), 1).verdict == "not confirmed"


@pytest.mark.parametrize(
    ("verdict", "wrong", "status"),
    [("confirmed", "refuted", 0), ("refuted", "refuted", 1), ("not confirmed", "refuted", 2),
     ("confirmed", "confirmed", 2)],
)  # fmt: skip
def test_exit_status(verdict, wrong, status):
    def outcome(verdict):
        return (ContractOutcome("name", verdict, 1, "said", 0.0),)

    assert SymbolicRun(outcome(verdict), outcome(wrong)).exit_status == status
