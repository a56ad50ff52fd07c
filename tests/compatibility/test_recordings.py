"""A recording of version 1 is read by every later version; the file is never written anew."""

from pathlib import Path

import poolproof

RECORDING = Path(__file__).resolve().parent / "0.2.0" / "steps.gz"


def test_a_recording_of_version_1_is_audited():
    audit = poolproof.audit(RECORDING)
    (finding,) = audit.findings
    assert (finding.step, finding.reader, finding.writer) == (2, "victim", "writer")
    assert (audit.num_steps, audit.engine, audit.notes) == (2, "toy 1.0", ())
