"""SIGTERM and SIGHUP end a command with a summary and status 2, and nobody is left running."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from poolproof.contract.profile import Profile
from poolproof.harness.isolation.process_tree import FINDS_ALL, descendants_of

pytestmark = pytest.mark.usefixtures("heeded_signals")

POOL = """
import time
from poolproof.impl.block_pool import BlockPool

class Slow(BlockPool):
    def allocate(self, count):
        open("driven", "a").close()
        time.sleep(0.01)
        return super().allocate(count)
"""


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition):
    for _ in range(3000):
        if condition():
            return True
        time.sleep(0.01)
    return False


def end(folder, number, *arguments):
    """Run a command, send it a signal once the target is driven; the command, ended."""
    (folder / "pool.py").write_text(POOL)
    command = [sys.executable, "-m", "poolproof", *arguments]
    with subprocess.Popen(
        command,
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert wait_until(lambda: (folder / "driven").exists() or process.poll() is not None)
        time.sleep(0.5)
        below = descendants_of(process.pid) if FINDS_ALL else []
        process.send_signal(number)
        try:
            output, error = process.communicate(timeout=120)
        finally:
            process.kill()
    assert wait_until(lambda: not any(map(is_alive, below)))
    return process.returncode, output, error


@pytest.mark.some(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_certify_shows_and_writes_what_it_found_until_then(folder, number):
    status, output, error = end(
        folder, number, "certify", "pool.py:Slow", "--json", "c.json", "--workers", "1"
    )
    assert status == 2, error
    by = "" if number == signal.SIGINT else f" by {number.name}"
    assert f"INCONCLUSIVE: interrupted{by}, 0 findings until then" in " ".join(output.split())
    certificate = json.loads((folder / "c.json").read_text())
    assert certificate["verdict"] == "inconclusive"
    assert certificate["stages"][-1]["stage"] == "the rest"
    assert certificate["canaries_caught"]
    assert "Traceback" not in error


@pytest.mark.some(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", ["explore", "replay"])
def test_other_commands_say_that_they_were_interrupted(folder, samples, number, command):
    subject = "pool.py:Slow"
    if command != "explore":
        subject = "t.jsonl"
        trace = samples.trace(target="pool.py:Slow", num_blocks=1000, profile=Profile())
        many = trace.commands[:1] * 400
        lines = samples.replace(trace, commands=many, violation=None).lines()
        (folder / subject).write_text("\n".join(lines))
    status, output, error = end(folder, number, command, subject)
    assert status == 2, error
    assert "interrupted" in output + error
    assert "Traceback" not in error
