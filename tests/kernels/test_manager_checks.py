"""The checks `managers` and `recorded runs`: right kernels hold, a faulty one is named as such."""

from dataclasses import replace

from poolproof.cli.served_managers import served_managers
from poolproof.kernels.case import Case
from poolproof.kernels.checks.catalogue import CHECKS
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.serving.manager_engine import ServedManager
from poolproof.kernels.target import gather_target

TARGET = replace(gather_target("cpu"), managers=served_managers())
CASE = Case(sequences=((1, 1), (1, 1)), num_kv_heads=1, queries_per_kv_head=2, block_size=8)


def outcomes(name, target=TARGET, seeds=range(8)):
    return [CHECKS[name].run(target, replace(CASE, seed=seed)) for seed in seeds]


def test_the_reference_serves_every_manager_and_every_recorded_run():
    for name in ("managers", "recorded runs"):
        found = outcomes(name)
        assert [outcome.wrong for outcome in found] == [None] * len(found)
        assert sum(outcome.compared for outcome in found) > 50


def test_a_kernel_that_is_wrong_is_named_with_the_manager():
    def doubled(*arguments, **options):
        return TARGET.attend(*arguments, **{**options, "scale": 2 * options["scale"]})

    faulty = replace(TARGET, attend=doubled)
    for name in ("managers", "recorded runs"):
        wrong = " ".join(outcome.wrong or "" for outcome in outcomes(name, faulty))
        assert "the kernel is wrong" in wrong
        assert "impl-manager" in wrong


def test_a_relation_that_breaks_on_a_recorded_table_is_named():
    def reading_tails(query, key_cache, value_cache, *rest, **options):
        # Finite, so that no output changes until somebody puts NaN behind the last token.
        spoilt = 0 * value_cache.sum()
        return TARGET.attend(query, key_cache, value_cache, *rest, **options) + spoilt

    faulty = replace(TARGET, attend=reading_tails)
    wrong = " ".join(outcome.wrong or "" for outcome in outcomes("recorded runs", faulty))
    assert "recorded: null block: with NaN" in wrong or "recorded: unowned blocks" in wrong


def test_only_managers_that_fit_the_declaration_are_served():
    def served(declared: Declaration) -> set[str]:
        fitting: list[ServedManager] = [m for m in TARGET.managers if m.fits(declared)]
        return {manager.name for manager in fitting}

    assert len(served(Declaration())) == len(TARGET.managers)
    assert served(Declaration(block_sizes=(16,), features=())) == {"reference-manager full"}
    without_windows = served(Declaration(features=()))
    assert "impl-manager sliding" not in without_windows
    assert "impl-vllm-v0 full" in without_windows
    assert not CHECKS["managers"].applies(gather_target("cpu"))
