"""DMTF's Redfish Service Validator against one endpoint."""

import json
import re
import shutil
from pathlib import Path

from rack import USER
from suite import ROOT, run, secret_file

SECONDS = 600
CODEGEN = ROOT / "fabric/redfish-model/codegen/Cargo.toml"
SCHEMA_CRATE = "nv-redfish-schema"
# Later ones win where a file is in two: Redfish's own schemas over Swordfish's copies.
SCHEMA_FOLDERS = ("oem", "swordfish-csdl", "redfish-csdl")


def schema_directory(folder):
    """Puts the CSDL of the crate that our types come from into one flat folder, as the validator wants it."""
    metadata = json.loads(run("cargo", "metadata", "--locked", "--format-version", "1", "--manifest-path", CODEGEN).out)
    manifest = next(p["manifest_path"] for p in metadata["packages"] if p["name"] == SCHEMA_CRATE)
    folder = Path(folder)
    folder.mkdir()
    for source in SCHEMA_FOLDERS:
        for file in sorted((Path(manifest).parent / source).rglob("*.xml")):
            shutil.copyfile(file, folder / file.name)
    return folder


def add_own(manager, folder):
    """Adds the schemas of the manager's own that its metadata document leads to; returns how many they are."""
    places = re.findall(r'Uri="(/redfish/v1/[^"]+)"', manager.request("GET", "/redfish/v1/$metadata").text)
    for place in places:
        (Path(folder) / place.rpartition("/")[2]).write_text(manager.request("GET", place).text)
    return len(places)


def validate(endpoint, schemas, work):
    """Runs the validator; returns {"PASS": …, "WARN": …, "FAIL": …, "NOT TESTED": …} and its FAIL lines.

    The validator does not verify certificates and has no option for it; that the endpoint's is good is
    tested by our own clients.
    """
    name = f"{endpoint.name}".replace("/", "-")
    logs = Path(work) / f"validator-{name}"
    # By file, so that the password is not in the list of processes.
    settings = secret_file(work, f"{name}.ini", f"[Authentication]\nuser = {USER}\npassword = {endpoint.password}")
    done = run(
        ROOT / ".venv/bin/rf_service_validator",
        *("--config", settings, "--rhost", endpoint.url, "--authtype", "Basic"),
        *("--schema_directory", schemas, "--skipschema", "--logdir", logs),
        timeout=SECONDS,
    )
    settings.unlink()
    table = re.search(r"\|\s*PASS\s*\|.*\n\+.*\n\|\s*(\d+)\s*\|\s*(\d+)\s*\|\s*(\d+)\s*\|\s*(\d+)\s*\|", done.out)
    if not table:
        raise RuntimeError(f"the validator gave no result: {done}")
    counts = dict(zip(("PASS", "WARN", "FAIL", "NOT TESTED"), map(int, table.groups())))
    return counts, failures(logs)


def failures(logs):
    """The FAIL lines of the validator's log, each with the resource that it is about."""
    return lines(logs, " - ERROR - FAIL")


def without_schema(work):
    """What the validator found no schema for, of all that it has looked at there."""
    return [line for line in lines(Path(work), " - WARNING - WARN") if "Unable to locate the schema" in line]


def lines(logs, kind):
    found, resource = [], ""
    for log in logs.rglob("*.log"):
        for line in log.read_text(errors="replace").splitlines():
            if "Validating /" in line:
                resource = line.rpartition("Validating ")[2].rstrip(".")
            elif kind in line:
                found.append(f"{resource}: {line.partition(kind)[2].removeprefix(' - ')}")
    return found
