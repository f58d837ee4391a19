"""Planted faults: proof that each suite can fail.

`tests/plants/NAME` is run in a throw-away copy of the checkout. It may change any file there, which reaches the suites that
read or build the tree; or write bin/poolwright, bin/serve-tree or bin/serve-hostile, which replace these programs for the
suite: wrappers around $REAL_POOLWRIGHT and so on that set up a wrong peer or do something forbidden. The checkout itself is
never touched. A suite without such a file plants its fault itself when PLANTED is "yes".

Each line `# fails: PATTERN` (a regular expression) of the plant, or of the suite that plants its own fault, must match one of
the failures that the suite then reports."""

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path

SUITES, PLANTS = Path("tests/suites"), Path("tests/plants")
PASSED = PLANTS / "passed"
PROGRAMS = {"POOLWRIGHT": "poolwright", "SERVE_TREE": "serve-tree", "SERVE_HOSTILE": "serve-hostile"}


def header(file, key):
    """The values of the lines `# KEY: …` of a file."""
    return re.findall(rf"^# {key}: (.*)$", file.read_text(), re.MULTILINE)


def expected(name):
    """The patterns of the failures that a suite must report."""
    patterns = header(PLANTS / name if (PLANTS / name).exists() else SUITES / name, "fails")
    if not patterns:
        raise RuntimeError(f"{name}: its plant names no check that it makes fail (a line '# fails: PATTERN')")
    return patterns


@contextlib.contextmanager
def planted(name):
    """Plants the fault of a suite; yields the environment for it."""
    environment = {"PLANTED": "yes"}
    if not (PLANTS / name).exists():
        if "PLANTED" not in (SUITES / name).read_text():
            raise RuntimeError(f"{name}: neither tests/plants/{name} nor the suite itself plants a fault")
        yield environment
        return
    copy = Path("target/planted").absolute() / name
    try:
        plant_in(copy, name)
        environment["TREE"] = str(copy)
        for variable, program in PROGRAMS.items():
            if (copy / "bin" / program).exists():
                environment[variable] = str(copy / "bin" / program)
        yield environment
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def check(names):
    """Raises an error if a plant no longer fits the code; in one copy, which is restored after each plant."""
    copy = Path("target/planted/check").absolute()
    try:
        copy_checkout(copy)
        for name in names:
            expected(name)
            if (PLANTS / name).exists():
                apply(name, copy)
                git("checkout-index", "--all", "--force", at=copy)
                git("clean", "-fdqx", at=copy)
                (copy / "bin").mkdir(exist_ok=True)
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def plant_in(copy, name):
    copy_checkout(copy)
    apply(name, copy)
    # Some suites read the files that git lists.
    git("add", "--all", at=copy)


def copy_checkout(copy):
    shutil.rmtree(copy, ignore_errors=True)
    (copy / "bin").mkdir(parents=True)
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for file in filter(None, listed):
        if os.path.lexists(file):
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            # New times, so that cargo looks at every file again.
            shutil.copyfile(file, copy / file, follow_symlinks=False)
            shutil.copymode(file, copy / file, follow_symlinks=False)
    git("init", "--quiet", at=copy)
    git("add", "--all", at=copy)


def apply(name, copy):
    """Runs a plant in a copy of the checkout."""
    real = {f"REAL_{variable}": os.environ[variable] for variable in PROGRAMS}
    plant = subprocess.run(
        ["bash", "-euo", "pipefail", PLANTS.absolute() / name], cwd=copy, env=os.environ | real, capture_output=True, text=True
    )
    if plant.returncode != 0:
        raise RuntimeError(f"{name}: tests/plants/{name} failed: {plant.stderr.strip()[-600:]}")
    for program in (copy / "bin").iterdir():
        program.chmod(0o755)
    if all(line.startswith("A ") for line in git("status", "--porcelain", at=copy).splitlines()):
        raise RuntimeError(f"{name}: tests/plants/{name} changed nothing: it no longer fits the code")


def judge(report, patterns, status):
    """What leaves a planted fault unproven, if anything does."""
    if report.get("broken"):
        return f"the suite broke: {report['broken']}"
    if status == 0:
        return "the suite did not detect it"
    unmet = [pattern for pattern in patterns if not any(re.search(pattern, failure) for failure in report["failures"])]
    return f"no failure matches {', '.join(unmet)}" if unmet else None


# What the checks of a suite are in, beside its file. What all suites share is in tests/lib.
CHECKS = {
    "hotplug": ("tests/hotplug/", "tests/guests/"),
    "redfish": ("tests/conformance/",),
    "conformance": ("tests/conformance/",),
    "badinput": ("tests/src/hostile.rs",),
    "layering": ("tests/tests/", "tests/src/faults/", ".config/"),
    "torture": ("tests/src/torture/",),
    "power": ("tests/src/power/",),
    "unit": (".config/",),
    "postgres": (".config/",),
    "highs": (".config/",),
}


def changed(suites):
    """The suites whose files or plant changed since the commit at which every planted fault was last detected."""
    commit = PASSED.read_text().strip() if PASSED.exists() else ""
    known = subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True)
    if not commit or known.returncode != 0:
        return suites
    files = git("diff", "--name-only", commit).splitlines()
    files += git("ls-files", "--others", "--exclude-standard").splitlines()

    def is_due(name):
        places = ("tests/lib/", f"{SUITES}/{name}", f"{PLANTS}/{name}", *CHECKS.get(name, ()))
        return any(file.startswith(places) for file in files)

    return [name for name in suites if is_due(name)]


def record_passed():
    """Writes the commit at which every planted fault was detected, unless the tree differs from it."""
    if git("status", "--porcelain").strip():
        return f"not recorded in {PASSED}: commit the changes in the tree first"
    PASSED.write_text(git("rev-parse", "HEAD"))
    return f"recorded in {PASSED}: commit it"


def git(*arguments, at="."):
    done = subprocess.run(["git", "-C", at, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"git {arguments[0]} failed: {done.stderr.strip()[-600:]}")
    return done.stdout
