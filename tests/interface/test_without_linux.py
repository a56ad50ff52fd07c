"""What only Linux has is done without elsewhere, and the certificate says so."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Imported first: what the standard library and others decide by the system is decided already.
ELSEWHERE = """
import asyncio, concurrent.futures.process, ctypes, multiprocessing, os, pathlib, platform, resource
import selectors, shutil, socket, subprocess, sys, tempfile, urllib.request, uuid
import click, hypothesis, rich.console
sys.platform = "darwin"
vars(os).pop("sched_getaffinity", None)
exists, read_text = pathlib.Path.exists, pathlib.Path.read_text

def absent(path):
    return str(path).startswith("/proc")

def read(path, *arguments, **named):
    if absent(path):
        raise FileNotFoundError(str(path))
    return read_text(path, *arguments, **named)

pathlib.Path.exists = lambda path, **named: not absent(path) and exists(path, **named)
pathlib.Path.read_text = read
from poolproof.cli.command_line import main
main()
"""


@pytest.mark.deep
def test_a_pool_is_refused_without_proc_and_prctl(tmp_path: Path) -> None:
    target = f"{ROOT / 'examples' / 'stale_index.py'}:Pool"
    command = [sys.executable, "-c", ELSEWHERE, "certify", target, "--depth", "quick"]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "f-6d5f7fee  IDX" in done.stdout
    said = " ".join(done.stdout.split())
    assert "memory without a limit here" in said
    assert "processes that leave their session are not found here" in said
