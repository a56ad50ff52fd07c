"""Which kinds of report there are. Each of them can be written in each `Form`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from poolproof.certification.certificate import Certificate
from poolproof.certification.kernel_certificate import KernelCertificate
from poolproof.certification.repair import RepairReport
from poolproof.kill_matrix.matrix import Matrix
from poolproof.kill_matrix.matrix_document import MATRIX
from poolproof.power.power_document import MEASURED_CERTIFICATE, POWER
from poolproof.power.power_report import MeasuredCertificate, PowerReport
from poolproof.report.campaign_document import CAMPAIGN
from poolproof.report.campaign_record import CampaignRecord
from poolproof.report.certificate_document import CERTIFICATE
from poolproof.report.forms import ReportKind
from poolproof.report.kernel_document import KERNEL_CERTIFICATE
from poolproof.report.repair_document import REPAIR

__all__ = ["REPORT_KINDS"]

REPORT_KINDS: Mapping[type, ReportKind[Any]] = {
    Certificate: CERTIFICATE,
    KernelCertificate: KERNEL_CERTIFICATE,
    CampaignRecord: CAMPAIGN,
    Matrix: MATRIX,
    PowerReport: POWER,
    MeasuredCertificate: MEASURED_CERTIFICATE,
    RepairReport: REPAIR,
}
"""By the type of what they report."""
