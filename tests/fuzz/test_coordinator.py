"""Reports that come together are kept together, and what came before an error is kept as well."""

import pytest

from poolproof.fuzz.coordinator import Campaign, CampaignBudget
from poolproof.fuzz.folder import CampaignFolder, read_status
from poolproof.fuzz.merge import CampaignState, News, name_of
from poolproof.fuzz.messages import CorpusTape, MessageError, WorkerReport
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.state_numbers import pack
from poolproof.fuzz.status import CampaignStatus
from poolproof.fuzz.workers import Arrival

SETTINGS = CampaignSettings("impl", "pool", 4)
STEPS = 50


class Together:
    """Workers whose reports come at once, each with a state of its own, two rounds long."""

    def __init__(self, num_workers, versions=()):
        self.num_workers = num_workers
        self.versions = versions
        self.num_states = 0
        self.working = []

    def idle(self):
        return [worker for worker in range(self.num_workers) if worker not in self.working]

    def is_fresh(self, worker):
        return False

    def give(self, worker, order):
        self.working.append(worker)

    def wait(self, timeout_s):
        if self.num_states == 2 * self.num_workers:
            raise KeyboardInterrupt
        working, self.working = self.working, []
        return [Arrival(worker, self.report(worker)) for worker in working]

    def report(self, worker):
        self.num_states += 1
        more = {"version": self.versions[worker]} if self.versions else {}
        state = pack([self.num_states])
        return WorkerReport(f"0/0/{worker}", STEPS, 1, 0.1, state, b"\0", **more)


class Counting(CampaignFolder):
    """Counts its transactions, and notes how many reports each was about."""

    def record(self, reports, state, status, pending=()):
        reports = list(reports)
        self.together = [*getattr(self, "together", ()), len(reports)]
        super().record(reports, state, status, pending)


def campaign(workers, folder):
    return Campaign(
        SETTINGS, workers, folder, None, budget=CampaignBudget(), scope="test",
        num_possible=None, show=lambda _: None, say=lambda _: None,
    )  # fmt: skip


def test_reports_that_come_together_take_one_transaction(tmp_path):
    with Counting(tmp_path, SETTINGS) as folder:
        status = campaign(Together(3), folder).run()
        assert [number for number in folder.together if number] == [3, 3]
        assert folder.load().states == set(range(1, 7))
    assert status.num_steps == read_status(tmp_path)[1].num_steps == 6 * STEPS


def test_what_came_before_a_report_that_cannot_be_read_is_kept(tmp_path):
    with CampaignFolder(tmp_path, SETTINGS) as folder:
        with pytest.raises(MessageError):
            campaign(Together(3, versions=(1, 99, 1)), folder).run()
        assert folder.load().states == {1}


def test_a_tape_that_a_later_report_of_the_same_transaction_drops_is_gone(tmp_path):
    first, second = (CorpusTape(tape, pack([1]), 3, "fresh") for tape in (b"long", b"short"))
    reports = [News(tapes=(first,)), News(tapes=(second,), dropped=(name_of(first.tape),))]
    status = CampaignStatus(target="impl", level="pool", scope="test", activity="running")
    with CampaignFolder(tmp_path, SETTINGS) as folder:
        folder.record(reports, CampaignState(), status)
        assert [*folder.load().corpus] == [name_of(second.tape)]
