"""The baseline: a certificate of an earlier commit whose findings do not fail this one.

It accepts only what it shows: a finding that agrees in name and kind, of the same target, judged
under the same promises. A kernel's certificate can be a baseline as well; the name of a finding
about a kernel says what it needs, so its promises are not compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from poolproof.certification.certificate import Certificate, CertificateError, Finding
from poolproof.certification.finding import Identity
from poolproof.certification.kernel_certificate import FORMAT as KERNEL_FORMAT
from poolproof.contract.errors import PoolproofError
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.harness.fingerprint import fingerprint_of
from poolproof.kernels.findings import KernelFinding

__all__ = [
    "Baseline",
    "BaselineError",
    "baseline_of",
    "promises_of",
    "read_baseline",
    "read_certificate",
    "read_kernel_baseline",
]

_NAMES_TELL_KINDS = 2
"""The first version of certificates whose fingerprints tell all kinds of failures apart."""


class BaselineError(PoolproofError, ValueError):
    """A baseline that cannot be used; the message names the file and the cause."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What an earlier certificate shows: of which target, and each form under which promises."""

    target: str | None = None
    forms: Mapping[Identity, frozenset[Profile | None]] = field(default_factory=dict)

    def accepts(self, target: str, identity: Identity, promises: Profile | None = None) -> bool:
        """Whether `target` had this form of a finding before."""
        return target == self.target and any(
            known.covers(identity) and promises in under for known, under in self.forms.items()
        )

    def notes(self, target: str) -> tuple[str, ...]:
        """What to say if the baseline does not fit the run."""
        if self.target in (None, target):
            return ()
        return (f"the baseline is of {self.target}, so nothing in it counts for {target}",)


def read_certificate(path: Path) -> Certificate:
    """The certificate in a file that `--json` wrote. Raises BaselineError."""
    return _certificate(path, _read_json(path))


def _certificate(path: Path, value: Any) -> Certificate:
    try:
        return Certificate.from_json(value)
    except CertificateError as error:
        raise BaselineError(f"{path}: {error}") from error


def read_baseline(path: Path) -> Baseline:
    """The baseline in a file that `--json` wrote. Raises BaselineError."""
    value = _read_json(path)
    certificate = _certificate(path, value)
    return baseline_of(certificate, renamed=value["version"] < _NAMES_TELL_KINDS)


def read_kernel_baseline(path: Path) -> Baseline:
    """The same from what `poolproof kernels --json` wrote. Raises BaselineError."""
    value = _read_json(path)
    if not isinstance(value, dict) or value.get("format") != KERNEL_FORMAT:
        raise BaselineError(
            f'{path} is no report on a kernel: it lacks "format": "{KERNEL_FORMAT}"'
        )
    try:
        findings = [KernelFinding.from_json(item) for item in value["findings"]]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BaselineError(f"{path}: a finding cannot be read ({error})") from error
    identities = (Identity(finding.fingerprint, finding.kind) for finding in findings)
    return Baseline(str(value.get("target")), dict.fromkeys(identities, frozenset({None})))


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BaselineError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BaselineError(f"{path} is not JSON: byte {error.start} is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise BaselineError(
            f"{path} line {error.lineno} is not JSON ({error.msg}); "
            "the file is damaged or cut short"
        ) from error
    except (ValueError, RecursionError) as error:
        raise BaselineError(f"{path} cannot be read as JSON: {error}") from error


def baseline_of(certificate: Certificate, *, renamed: bool = False) -> Baseline:
    """The baseline that the certificate gives; `renamed` gives each form its present name.

    If an older certificate does not give the kind of misuse, that misuse agrees with nothing.
    """
    forms: dict[Identity, frozenset[Profile | None]] = {}
    for finding in certificate.findings:
        for form in finding.each_form:
            identity = form.identity
            if renamed:
                identity = replace(identity, fingerprint=fingerprint_of(form.whole_trace()))
            forms[identity] = forms.get(identity, frozenset()) | {promises_of(form)}
    return Baseline(certificate.target, forms)


def promises_of(finding: Finding) -> Profile:
    """The profile that the finding was judged under; assumed rows count as declared.

    What an index is judged by is no promise: one finding is the same under both values.
    """
    profile = replace(finding.trace.profile, assumed=())
    return replace(profile, index="exact") if isinstance(profile, ManagerProfile) else profile
