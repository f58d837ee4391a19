"""The result of a suite from nextest's JUnit report: junit.py REPORT STATUS LOG. Used by tests/lib/cargo.sh."""

import json
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

report, status, log = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
# Nextest ends with 100 where tests failed.
result = {"passed": 0, "failed": 0, "failures": [], "evidence": {"slowest": []}}
if report.exists():
    cases = list(xml.parse(report).getroot().iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    slowest = sorted(cases, key=lambda case: -float(case.get("time", 0)))[:20]
    result["failures"] = [case.get("name") for case in failed]
    result["failed"], result["passed"] = len(failed), len(cases) - len(failed)
    result["evidence"]["slowest"] = [[case.get("name"), float(case.get("time", 0))] for case in slowest]
if status != 0 and not result["failures"]:
    errors = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("error")]
    result["broken"] = f"cargo nextest ended with {status}: {'; '.join(errors[:3]) or 'see its log'}"
print(json.dumps(result, indent=1))
