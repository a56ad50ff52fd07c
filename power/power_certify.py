"""`certify --power`: the certificate of the unmutated target, then the power run, then the files.

Exit status: 0 when the power run was carried out, whatever it found, for it measures the checks
and not the target; the certificate's own status where the unmutated target does not hold.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from poolproof.certification.certify import certify
from poolproof.certification.progress import progress_to
from poolproof.certification.verdict import Rules, judge
from poolproof.contract.target import TargetError
from poolproof.power.power_run import power_run
from poolproof.power.power_text import power_text
from poolproof.report.output_files import check_file, write_file
from poolproof.report.terminal import show
from poolproof.report.text_certificate import text_certificate

if TYPE_CHECKING:
    from poolproof.certification.options import CertifyOptions
    from poolproof.power.power_options import PowerOptions
    from poolproof.targets.target import Target

__all__ = ["certify_with_power", "refuse_programs"]


def certify_with_power(
    load: Callable[[], Target],
    options: CertifyOptions,
    power: PowerOptions,
    rules: Rules,
    json_file: Path | None,
) -> int:
    """The exit status. Raises TargetError and OutputError."""
    for name in power.also:
        refuse_programs(name)
    for file in (json_file, power.results):
        if file is not None:
            check_file(file)
    with ExitStack() as stack:
        with progress_to(sys.stderr) as progress:
            run = stack.enter_context(power_run(load, options, power, progress))
            certificate = judge(certify(load, options, progress), rules)
        show(text_certificate(certificate))
        assert certificate.verdict is not None
        if certificate.verdict.exit_status:
            print(
                "poolproof: the power of the checks was not measured: the unmutated target has to "
                "hold first; accept its findings with --known, or repair it",
                file=sys.stderr,
            )
            return certificate.verdict.exit_status
        with progress_to(sys.stderr) as progress:
            report = run.measure(progress)
    if json_file is not None:
        both = {"certificate": certificate.to_json(), "power": report.to_json()}
        write_file(json_file, json.dumps(both, indent=1) + "\n")
    show(power_text(report))
    return 0


def refuse_programs(target: str) -> None:
    """A program behind `cmd:` has no Python source. Raises TargetError."""
    if target.startswith("cmd:"):
        raise TargetError(
            f"{target!r} is a program, whose source cannot be read; --power changes the Python "
            "source of a class, path/to/file.py:Class or package.module:Class"
        )
