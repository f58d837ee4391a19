"""Schemathesis against `/api/v1`, by the OpenAPI document that the manager serves: requests that the document allows and
requests that it does not. None may be answered with a 5xx, or in a way that the document does not have."""

import base64
import json
import os
from collections import Counter
from urllib.parse import urlsplit

from suite import FULL, ROOT, run, secret_file

SECONDS = 180 if FULL else 60
# On a slow machine it takes longer until enough was asked; no longer than this.
LONGEST = 600
# Where a 503 is the truth: nobody answers at an endpoint that was made up, if that could be anybody's address (read() looks
# for those that could not); nothing was noted to forecast from.
TRUTHFUL = (("/endpoints", "POST"), ("/forecast", "GET"))

# A body may fit its schema and still ask for what can't be: refusing that is no breach, so that check is off.
SETTINGS = """
[auth.openapi.basic]
username = "admin"
password = "${CONTRACT_PASSWORD}"
[checks]
positive_data_acceptance.enabled = false
# Enrolment alone needs no account. Whoever asks there by a method that is none, and shows none, is told to log in first.
[[operations]]
include-path = "/agents"
include-method = "POST"
checks.unsupported_method.enabled = false
"""


def settings():
    of = '[[operations]]\ninclude-path = "{}"\ninclude-method = "{}"\nchecks.not_a_server_error.enabled = false\n'
    return SETTINGS + "".join(of.format(path, method) for path, method in TRUTHFUL)


def judge(suite, manager, folder):
    """Each operation with the cases of the coverage phase, until they are done or the time is over, and enough was asked."""
    document = folder / "openapi.json"
    document.write_bytes(manager.request("GET", "/api/v1/openapi.json").content)
    file, seconds, spent = secret_file(folder, "schemathesis.toml", settings()), SECONDS, 0
    asked, breaches = Counter(), []
    while not enough(asked) and spent + seconds <= LONGEST:
        done, found = ask(manager, document, file, folder / f"contract-{seconds}.ndjson", seconds)
        asked += found[0]
        breaches += found[1]
        suite.check(not breaches and done.code == 0, f"contract: {len(breaches)} breaches", breaches[:20] or done)
        # It begins with the first operation again.
        seconds, spent = 2 * seconds, spent + seconds
    suite.evidence["contract"] = {"operations": len(asked), "requests": asked.total()}
    suite.check(enough(asked), "contract: it was looked at", suite.evidence["contract"])


def enough(asked):
    return len(asked) > 60 and asked.total() > 1000


def ask(manager, document, file, report, seconds):
    """Asks for so many seconds; gives how that ended, and what read() finds in its report."""
    done = run(
        *(ROOT / ".venv/bin/schemathesis", "--config-file", file, "run", document, "--url", f"{manager.url}/api/v1"),
        *("--tls-verify", manager.authority_file, "--phases", "coverage", "--max-time", str(seconds), "--seed", "7"),
        *("--generation-database", "none", "--no-shrink", "--continue-on-failure", "--no-color"),
        *("--report", "ndjson", "--report-ndjson-path", report),
        timeout=seconds + 120,
        env={name: value for name, value in os.environ.items() if name not in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")}
        | {"CONTRACT_PASSWORD": manager.password},
    )
    return done, read(report)


def read(report):
    """How often each operation was asked, and what was wrong with answers."""
    asked, breaches = Counter(), []
    for line in report.read_text().splitlines():
        finished = json.loads(line).get("ScenarioFinished")
        if not finished:
            continue
        # An empty map is left out: the time can end before an operation's first request.
        recorder = {"interactions": {}, "checks": {}} | finished["recorder"]
        label = recorder["label"]
        asked += Counter({label: len(recorder["interactions"])})
        checks = [check for checks in recorder["checks"].values() for check in checks]
        failures = [check["failure_info"]["failure"] if "failure_info" in check else check for check in checks if check["status"] == "failure"]
        breaches += [json.dumps(failure)[:600] for failure in failures]
        if label == "POST /endpoints":
            breaches += [f"{label}: {said}" for said in recorder["interactions"].values() if is_no_excuse(said)]
    return asked, breaches


def is_no_excuse(interaction):
    """Whether an endpoint is answered with a 5xx although it can't be reached by its URL whoever answers there."""
    body, answer = (interaction["request"] or {}).get("body"), interaction["response"] or {}
    if not body or answer.get("status_code", 0) < 500:
        return False
    try:
        parts = urlsplit(json.loads(base64.b64decode(body["$base64"]))["url"])
        account, path = "@" in parts.netloc, parts.path.rstrip("/")
        is_address = parts.scheme in ("http", "https") and parts.hostname and not account and not parts.query
        return not is_address or path not in ("", "/redfish", "/redfish/v1")
    except (ValueError, KeyError, TypeError):
        return True
