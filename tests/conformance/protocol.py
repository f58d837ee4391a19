"""DMTF's Redfish Protocol Validator against a manager."""

import csv
from pathlib import Path

from rack import USER
from suite import ROOT, run

SECONDS = 300
RESULTS = ("PASS", "WARN", "FAIL", "NOT_TESTED")


def validate(manager, work):
    """Runs the validator; returns how many results there are of each kind, what failed, and what was not tested.

    It takes a password as an argument only: the manager's is of this run and ends with it.
    """
    reports = Path(work) / "protocol-validator"
    reports.mkdir(exist_ok=True)
    done = run(
        ROOT / ".venv/bin/rf_protocol_validator",
        *("-r", manager.url, "-u", USER, "-p", manager.password),
        *("--ca-bundle", manager.authority_file, "--report-dir", reports),
        timeout=SECONDS,
    )
    report = max(reports.glob("*.tsv"), default=None)
    if not report:
        raise RuntimeError(f"the validator gave no result: {done}")
    with report.open(newline="") as rows:
        found = [row for row in csv.reader(rows, delimiter="\t") if len(row) > 5]
    counts = {result: sum(row[4] == result for row in found) for result in RESULTS}
    failures = [" ".join(row[:6]) for row in found if row[4] == "FAIL"]
    return counts, failures, [row[0] for row in found if row[4] == "NOT_TESTED"]
