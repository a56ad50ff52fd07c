# What is public, for type checkers; tests/interface/test_api.py holds it against __all__.
from poolproof.api import certify as certify
from poolproof.api import explore as explore
from poolproof.api import render as render
from poolproof.api import replay as replay
from poolproof.api import shrink as shrink
from poolproof.certification.baseline import BaselineError as BaselineError
from poolproof.certification.certificate import Certificate as Certificate
from poolproof.certification.certificate import CertificateError as CertificateError
from poolproof.certification.certificate import StageOutcome as StageOutcome
from poolproof.certification.certificate import StageResult as StageResult
from poolproof.certification.certificate import Verdict as Verdict
from poolproof.certification.explore_target import TargetExploration as TargetExploration
from poolproof.certification.finding import Finding as Finding
from poolproof.certification.finding import FindingStatus as FindingStatus
from poolproof.certification.known_findings import KnownFileError as KnownFileError
from poolproof.contract.content import TokenChain as TokenChain
from poolproof.contract.errors import OptionError as OptionError
from poolproof.contract.errors import PoolproofError as PoolproofError
from poolproof.contract.manager_profile import CacheGroup as CacheGroup
from poolproof.contract.manager_profile import ManagerProfile as ManagerProfile
from poolproof.contract.manager_target import ManagerTarget as ManagerTarget
from poolproof.contract.profile import Profile as Profile
from poolproof.contract.profile import ProfileError as ProfileError
from poolproof.contract.target import IndexTarget as IndexTarget
from poolproof.contract.target import PoolTarget as PoolTarget
from poolproof.contract.target import QueueTarget as QueueTarget
from poolproof.contract.target import TargetError as TargetError
from poolproof.contract.trace import Trace as Trace
from poolproof.contract.trace import TraceError as TraceError
from poolproof.contract.violation import Severity as Severity
from poolproof.contract.violation import Violation as Violation
from poolproof.exploration.scope import ExplorationError as ExplorationError
from poolproof.harness.replay import Replay as Replay
from poolproof.targets.load import load_target as load_target
from poolproof.targets.target import Target as Target

__version__: str
