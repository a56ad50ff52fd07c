"""Runs the steps of a GitHub Actions workflow here, as far as that goes without the service.

`run:` steps are run by bash as a runner does it; the few actions that the recipes use are played:
caches and artifacts are folders, with the service's rules (a key is written once, a prefix finds
the newest, hidden files are not uploaded unless asked for). Whatever is not known is an error, so
that a recipe cannot use what nobody has tried. One job, no matrix, no containers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

__all__ = ["Outcome", "Service", "run_workflow"]


@dataclass
class Service:
    """What outlives a run: caches, newest last."""

    folder: Path
    cache_keys: list[str] = field(default_factory=list)

    def save(self, key: str, source: Path) -> None:
        """Keep a file or folder. A key that exists stays as it is, which is worth an error here."""
        assert key not in self.cache_keys, f"cache key {key} is written twice"
        assert source.exists(), f"nothing to cache at {source}"
        self.cache_keys.append(key)
        _copy(source, self.folder / key / source.name)

    def restore(self, key: str, prefixes: list[str], place: Path) -> None:
        """Bring back the entry of this key, or the newest of the first prefix that has one."""
        exact = [known for known in self.cache_keys if known == key]
        by_prefix = [[k for k in self.cache_keys if k.startswith(prefix)] for prefix in prefixes]
        for found in (exact, *by_prefix):
            if found:
                _copy(self.folder / found[-1] / place.name, place)
                return


@dataclass
class Outcome:
    """How a run of the workflow ended."""

    failed_steps: list[str] = field(default_factory=list)
    skipped_steps: list[str] = field(default_factory=list)
    artifacts: dict[str, list[str]] = field(default_factory=dict)
    summary: str = ""
    log: str = ""


class _Run:
    def __init__(
        self, workflow: Any, checkout: Path, service: Service, context: dict[str, str]
    ) -> None:
        (self.job,) = workflow["jobs"].values()
        self.checkout = checkout
        self.service = service
        self.context = context
        self.outcome = Outcome()
        self.environment: dict[str, str] = {}

    def go(self, environment: dict[str, str]) -> Outcome:
        self.environment = environment
        for number, step in enumerate(self.job["steps"]):
            name = step.get("name") or step["uses"]
            if not self._is_due(step.get("if", "")):
                self.outcome.skipped_steps.append(name)
            elif "run" in step:
                if self._bash(step["run"], number) != 0:
                    self.outcome.failed_steps.append(name)
            else:
                self._action(step["uses"], step.get("with", {}))
        return self.outcome

    def _is_due(self, condition: str) -> bool:
        """Terms joined by &&; without always() a step waits for the success of all before it."""
        terms = [term.strip() for term in condition.split("&&") if term.strip()]
        if "always()" in terms:
            terms.remove("always()")
        elif self.outcome.failed_steps:
            return False
        return all(self._holds(term) for term in terms)

    def _holds(self, term: str) -> bool:
        parts = re.fullmatch(r"(\S+) (==|!=) '([^']*)'", term)
        assert parts is not None, f"what does {term!r} mean?"
        return (self._value(parts[1]) == parts[3]) == (parts[2] == "==")

    def _value(self, expression: str) -> str:
        hashed = re.fullmatch(r"hashFiles\('([^']+)'\)", expression)
        if hashed is not None:
            return "0123" if any(path.is_file() for path in self.checkout.glob(hashed[1])) else ""
        scope, _, name = expression.partition(".")
        return self.environment[name] if scope == "env" else self.context[expression]

    def _filled(self, text: str) -> str:
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda found: self._value(found[1]), text)

    def _bash(self, script: str, number: int) -> int:
        path = self.service.folder / f"step-{number}.sh"
        path.write_text(self._filled(script))
        summary = self.service.folder / "summary.md"
        summary.write_text("")
        done = subprocess.run(  # noqa: S603 - the recipes are ours
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", path],  # noqa: S607 - as a runner finds it
            check=False,
            cwd=self.checkout,
            env={**os.environ, **self.environment, "GITHUB_STEP_SUMMARY": str(summary),
                 "GITHUB_EVENT_NAME": self.context["github.event_name"], "CI": "true"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip
        self.outcome.log += done.stdout
        self.outcome.summary += summary.read_text()
        return done.returncode

    def _action(self, uses: str, inputs: dict[str, str]) -> None:
        given = {name: self._filled(value) for name, value in inputs.items()}
        match uses.partition("@")[0]:
            case "actions/checkout" | "actions/setup-python":
                return
            case "actions/cache/restore":
                prefixes = given.get("restore-keys", "").split()
                self.service.restore(given["key"], prefixes, self.checkout / given["path"])
            case "actions/cache/save":
                self.service.save(given["key"], self.checkout / given["path"])
            case "actions/upload-artifact":
                hidden = given.get("include-hidden-files") == "true"
                self.outcome.artifacts[given["name"]] = self._uploaded(given["path"], hidden)
            case _:
                raise AssertionError(f"nobody has tried {uses}")

    def _uploaded(self, paths: str, hidden: bool) -> list[str]:
        found = []
        for place in (self.checkout / line for line in paths.split()):
            files = [place] if place.is_file() else [p for p in place.rglob("*") if p.is_file()]
            found += [file.relative_to(self.checkout).as_posix() for file in files]
        return [name for name in found if hidden or not re.search(r"(^|/)\.", name)]


def run_workflow(
    path: Path,
    checkout: Path,
    service: Service,
    context: dict[str, str],
    environment: dict[str, str],
) -> Outcome:
    """Run a workflow in a checkout; `environment` replaces what stands in its `env`."""
    # Everything is a text, as the service hands it on; `on` stays the word that it is.
    workflow = yaml.load(path.read_text(), Loader=yaml.BaseLoader)  # noqa: S506 - the loader that makes texts and nothing else
    unknown = environment.keys() - workflow["env"].keys()
    assert not unknown, f"{path.name} has no {', '.join(unknown)}"
    return _Run(workflow, checkout, service, context).go({**workflow["env"], **environment})


def _copy(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, place, dirs_exist_ok=True)
    else:
        shutil.copyfile(source, place)
