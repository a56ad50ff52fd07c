"""Campaigns over a cluster of several nodes, of which some die and others join late."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from poolproof.fuzz.folder import FolderError, read_everything, read_findings, read_status

TESTS = Path(__file__).parents[2]
MANY_BUGS = f"{TESTS}/fuzz/planted.py:ManyBugs"
EXITS = f"{TESTS}/certification/hostile_targets.py:ExitsTheProcess"
PRINTED = re.compile(r"^(f-[0-9a-f]{8})  ", re.MULTILINE)
PATIENCE_S = 120.0


def run(command, cwd, *arguments, env=None):
    return subprocess.run(
        [*command, *arguments], check=False, cwd=cwd, env=env, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip


@contextmanager
def running(command, cwd, *arguments) -> Iterator[subprocess.Popen[str]]:
    """A campaign in the background; its output is in the files `printed` and `told`."""
    with (
        (cwd / "printed").open("w") as printed,
        (cwd / "told").open("w") as told,
        subprocess.Popen([*command, *arguments], cwd=cwd, stdout=printed, stderr=told) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def wait_until(holds: Callable[[], bool], cwd: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, (cwd / "told").read_text()
        time.sleep(0.2)


def status_in(folder: Path):
    try:
        return read_status(folder)[1]
    except FolderError:
        return None


def has_more_steps_than(folder: Path, steps: int) -> Callable[[], bool]:
    def has() -> bool:
        status = status_in(folder)
        return status is not None and status.num_steps > steps

    return has


def test_two_nodes_work_on_one_campaign(nodes, fuzz_command, tmp_path):
    ran = run(
        fuzz_command, tmp_path, "impl[misuse=undefined]", "--ray", nodes.address,
        "--steps", "4000", "--folder", "campaign",
    )  # fmt: skip
    assert ran.returncode in {0, 2}, ran.stdout + ran.stderr
    assert "raylet" not in ran.stdout
    status = read_status(tmp_path / "campaign")[1]
    assert status.num_steps >= 4_000
    assert status.num_states > 500
    assert status.num_workers_lost == 0


def test_a_target_that_ends_its_process_is_a_finding_and_costs_no_node(
    nodes, fuzz_command, tmp_path
):
    arguments = [EXITS, "--ray", nodes.address, "--steps", "5", "--folder", "campaign"]
    ran = run(fuzz_command, tmp_path, *arguments)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    findings = read_findings(tmp_path / "campaign")
    assert any("exit status 7" in found.trace.violation.sentence for found in findings)


@pytest.mark.usefixtures("heeded_signals")
def test_nodes_and_workers_that_die_or_join_late_lose_nothing(nodes, fuzz_command, tmp_path):
    folder = tmp_path / "campaign"
    late = nodes.add()
    known = set()
    arguments = [MANY_BUGS, "--ray", nodes.address, "--blocks", "5", "--folder", "campaign"]
    with running(fuzz_command, tmp_path, *arguments, "--time", "inf") as campaign:
        for kill in (
            lambda: nodes.kill(late),
            lambda: wait_until(nodes.kill_a_worker, tmp_path),
            nodes.add,
            lambda: wait_until(nodes.kill_a_worker, tmp_path),
        ):
            steps = status.num_steps if (status := status_in(folder)) else 0
            wait_until(has_more_steps_than(folder, steps + 1_000), tmp_path)
            kill()
            # Before the folder is read: what is printed is in it by then.
            printed = PRINTED.findall((tmp_path / "printed").read_text())
            _, state, findings, _ = read_everything(folder)
            assert known <= state.states
            known = state.states
            assert set(printed) <= {found.fingerprint for found in findings}
        before = status_in(folder)
        wait_until(lambda: status_in(folder).num_workers_lost >= 2, tmp_path)
        wait_until(has_more_steps_than(folder, before.num_steps + 1_000), tmp_path)
        campaign.send_signal(signal.SIGINT)
        assert campaign.wait(PATIENCE_S) == 1, (tmp_path / "told").read_text()
    _, state, findings, _ = read_everything(folder)
    assert known <= state.states
    names = PRINTED.findall((tmp_path / "printed").read_text())
    assert len(names) == len(set(names))
    assert set(names) == {found.fingerprint for found in findings}


def test_a_machine_that_joins_late_gets_work(nodes, fuzz_command, tmp_path):
    folder = tmp_path / "campaign"
    arguments = ["impl", "--ray", nodes.address, "--folder", "campaign", "--time", "inf"]
    with running(fuzz_command, tmp_path, *arguments):
        wait_until(has_more_steps_than(folder, 0), tmp_path)
        before = status_in(folder).num_workers
        late = nodes.add()
        wait_until(lambda: status_in(folder).num_workers > before, tmp_path)
    nodes.kill(late)


def test_a_cluster_whose_machines_lack_the_target_is_named(nodes, fuzz_command, tmp_path):
    (tmp_path / "only_here").mkdir()
    (tmp_path / "only_here" / "mine.py").write_text(
        "from poolproof.impl.block_pool import BlockPool as Pool\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "only_here")}
    arguments = ["mine:Pool", "--ray", nodes.address, "--steps", "1000"]
    ran = run(fuzz_command, tmp_path, *arguments, env=env)
    assert ran.returncode == 2, ran.stdout + ran.stderr
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("poolproof: no machine of the Ray cluster at")
    assert "mine" in last
    assert "Traceback" not in ran.stderr


def test_a_cluster_that_ends_mid_run_is_named_and_the_folder_stays(
    short_lived_nodes, fuzz_command, tmp_path
):
    folder = tmp_path / "campaign"
    arguments = ["impl", "--ray", short_lived_nodes.address, "--folder", "campaign"]
    with running(fuzz_command, tmp_path, *arguments, "--time", "inf") as campaign:
        wait_until(has_more_steps_than(folder, 1_000), tmp_path)
        short_lived_nodes.kill_head()
        assert campaign.wait(PATIENCE_S) == 2
    last = (tmp_path / "told").read_text().splitlines()[-1]
    assert last.startswith("poolproof: the Ray cluster at")
    assert "the same command goes on with it" in last
    assert status_in(folder).num_steps > 1_000
