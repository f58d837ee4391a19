"""Builds, runs the suites two at a time, plants faults, and prints the minutes of each step. See tests/run."""

import argparse
import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import plants
from plants import SUITES, header

REPORTS = Path("reports")
BUDGET_MINUTES = 25
# The committed minutes of each step are a table there.
BENCHMARKS = Path("docs/BENCHMARKS.md")
AT_A_TIME = 2
# A build from nothing takes 4 GB, and the planted copies 2 more; a run on top of a build takes little.
FREE_GB = {True: 8, False: 2}
# After TERM, until a step is killed: timeout kills a suite 30 s after TERM.
ENDS_WITHIN_S = 40
COMMAND_LIMIT_S = 3600
# A step that grew by less has not grown.
NOISE_MINUTES = 0.2
INSTALL_S = int(os.environ.get("INSTALL_SECONDS", 0))
# The descriptor of the lock that tests/run holds.
LOCK = 9
PR_SET_CHILD_SUBREAPER = 36


def fail(text):
    sys.exit(f"tests/run: {text}")


def say(text):
    print(text, file=sys.stderr, flush=True)


def free_gb():
    return shutil.disk_usage(".").free / 1e9


def orphans():
    """Processes that a step started and left: they have become children of this process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            if rest.split()[0] != "Z" and int(rest.split()[1]) == os.getpid():
                found.append((int(stat.parent.name), name))
    return found


def disk_is_full():
    return "; the disk is full" if free_gb() < 0.2 else ""


# What a suite writes that checked nothing.
NOTHING = {"passed": 0, "failed": 0, "failures": []}


class Step:
    """One row of the table: a command or a suite that runs, and what came of it."""

    def __init__(self, name, command, limit=COMMAND_LIMIT_S, environment=None, output=None):
        self.name, self.began, self.ok = name, time.monotonic(), True
        self.report = {"suite": name}
        self.output = output or REPORTS / f"{name}.log"
        with self.output.open("wb") as out:
            # setpriv ends the step when this process ends, however it ends; timeout passes signals on to the group. The
            # step keeps the lock until all of it has ended.
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", "timeout", "--kill-after=30", str(limit), *command],
                env=os.environ | (environment or {}), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                pass_fds=[LOCK],
            )  # fmt: skip

    def has_ended(self):
        """Whether the process and its group ended; reads its usage, which includes that of the children it waited for."""
        if self.process.returncode is None:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid == 0:
                return False
            self.process.returncode = os.waitstatus_to_exitcode(status)
            self.seconds, self.cpu = time.monotonic() - self.began, usage.ru_utime + usage.ru_stime
            self.killed_at = time.monotonic() + ENDS_WITHIN_S
        # At its time limit a shell ends at once, and what it ran, now a child of this process, has time to end after it.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-self.process.pid, os.WNOHANG)[0]:
                pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL if time.monotonic() > self.killed_at else 0)
        except ProcessLookupError:
            return True
        return False

    def wait(self):
        while not self.has_ended():
            time.sleep(0.05)
        return self

    def finish(self, result):
        self.report |= {"ok": self.ok, "seconds": round(self.seconds), "cpu_seconds": round(self.cpu)} | result
        (REPORTS / f"{self.name}.json").write_text(json.dumps(self.report, indent=1))
        for failure in self.report.get("failures", [])[:8]:
            say(f"   {self.name} failed: {failure[:400]}")
        for note in self.report.get("notes", []):
            say(f"   note: {note}")

    def tail(self, lines=30):
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-lines:])


class Run:
    def __init__(self, full):
        self.full, self.steps, self.running = full, [], []
        self.minutes = committed_minutes()
        self.began = time.monotonic() - INSTALL_S

    def start(self, step):
        self.running.append(step)
        return step

    def done(self, step):
        self.running.remove(step)
        self.steps.append(step)

    def stop(self):
        """Ends what runs: each step has time to end what it started. Another signal must not interrupt that."""
        for sent in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sent, signal.SIG_IGN)
        for step in self.running:
            if step.process.returncode is None:
                os.kill(step.process.pid, signal.SIGTERM)
        end = time.monotonic() + ENDS_WITHIN_S
        for step in self.running:
            while not step.has_ended():
                if time.monotonic() > end:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(step.process.pid, signal.SIGKILL)
                time.sleep(0.05)
        self.end_orphans()

    def end_orphans(self):
        """Ends processes that steps left behind, and then the children of those; returns their names."""
        names = {}
        # One that can't be ended, such as another account's, is tried once.
        while left := {pid: name for pid, name in orphans() if pid not in names}:
            names |= left
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
        return list(names.values())

    def command(self, name, *command):
        """Runs a command to its end; returns whether it passed."""
        say(f"── {name}: {' '.join(command)}")
        step = self.start(Step(name, command)).wait()
        step.ok = step.process.returncode == 0
        ended = "was stopped at its time limit" if step.process.returncode == 124 else f"ended with {step.process.returncode}"
        failures = [] if step.ok else [f"{' '.join(command)} {ended}{disk_is_full()}"]
        if not step.ok:
            say(step.tail())
        self.tell(step)
        step.finish({"failures": failures})
        self.done(step)
        return step.ok

    def tell(self, step):
        ended = "passed" if step.ok else f"FAILED (see {step.output})"
        say(f"── {step.name}: {ended} in {step.seconds / 60:.1f} min")

    def suite(self, name, report, environment):
        """Starts a suite under its time limit."""
        folder = REPORTS.absolute() / report
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        file = SUITES / name
        say(f"── {report}: {header(file, 'what')[0]}")
        environment = {"SUITE_DIR": str(folder), "SUITE_RESULT": str(folder / "result.json")} | environment
        return self.start(Step(report, [str(file)], header(file, "limit")[0], environment, folder / "output"))

    def read(self, step):
        """The result of a suite that ended; sets whether it passed."""
        status, file, broken = step.process.returncode, REPORTS / step.name / "result.json", None
        try:
            result = NOTHING | json.loads(file.read_text())
        except (OSError, ValueError):
            result = dict(NOTHING)
            broken = f"it ended with status {status} before it wrote a result: {step.tail(3)}{disk_is_full()}"
        if status == 124:
            broken = "it was stopped at its time limit"
        elif status == 137:
            broken = "it was killed: at its time limit, or for memory"
        if broken:
            result["broken"] = broken
        if "broken" in result:
            result["failures"] = [*result["failures"], result["broken"]]
            result["failed"] = len(result["failures"])
        # A suite that checked nothing has not passed, unless it says what it lacked.
        checked = result["passed"] > 0 or result.get("notes")
        step.ok = status == 0 and result["failed"] == 0 and bool(checked)
        return result

    def suites(self, names):
        """Runs suites two at a time, the longest first."""
        waiting = sorted(names, key=lambda name: -self.minutes.get(name, 0))
        while waiting or self.running:
            while waiting and len(self.running) < AT_A_TIME:
                name = waiting.pop(0)
                self.suite(name, name, {"FULL": "yes" if self.full else "no"})
            for step in [step for step in self.running if step.has_ended()]:
                result = self.read(step)
                if not step.ok:
                    say(step.tail(60))
                self.tell(step)
                step.finish(result)
                self.done(step)
            time.sleep(0.05)

    def plant(self, name):
        """Passes when the suite detects its planted fault, by the checks that the plant names."""
        patterns = plants.expected(name)
        with plants.planted(name) as environment:
            try:
                step = self.suite(name, f"{name}-planted", environment | {"FULL": "no"}).wait()
            except KeyboardInterrupt:
                # Before its copy of the tree is removed.
                self.stop()
                raise
            result = self.read(step)
        # Without the shared folder some suites check less, and say so.
        if result.get("notes") and not os.environ["POOLWRIGHT_SHARED"]:
            unproven = None
        else:
            unproven = plants.judge(result, patterns, step.process.returncode)
            say(f"   {unproven}\n{step.tail(60)}" if unproven else "   detected, as it must be")
        step.ok = unproven is None
        # The failures of the suite are what was expected.
        result["planted_failures"] = result.pop("failures")
        step.finish(result | {"failures": [unproven] if unproven else []})
        self.done(step)
        return step.ok

    def summary(self):
        """Prints the table; returns whether all passed."""
        say(f"\n{'step':<22} {'ok':<6} {'minutes':>8} {'CPU':>8} {'passed':>8} {'failed':>8}")
        for step in self.steps:
            counts = [step.report.get(key, "") for key in ("passed", "failed")]
            row = f"{step.name:<22} {'ok' if step.ok else 'FAILED':<6} {step.seconds / 60:8.1f} {step.cpu / 60:8.1f}"
            say(f"{row} {counts[0]:>8} {counts[1]:>8}")
        total = (time.monotonic() - self.began) / 60
        budget = "" if self.full else f"; the budget is {BUDGET_MINUTES}"
        say(f"{'total':<22} {'':<6} {total:8.1f}, with {INSTALL_S / 60:.1f} of installing{budget}")
        # The committed minutes are those of a run that is not full.
        for step in [] if self.full else self.steps:
            usual = self.minutes.get(step.name)
            if usual and step.seconds / 60 > max(usual * 4 / 3, usual + NOISE_MINUTES):
                say(f"warning: {step.name} took {step.seconds / 60:.1f} minutes; {usual} are usual ({BENCHMARKS})")
        failed = [step for step in self.steps if not step.ok]
        for step in failed:
            for failure in step.report.get("failures", [])[:8] or ["it did not end well"]:
                say(f"FAILED   {step.name}: {failure[:600]}")
        return not failed


def committed_minutes():
    """The minutes of each step, from the table of the documentation."""
    section = BENCHMARKS.read_text().partition("## `.ci/run`")[2].partition("\n## ")[0]
    return {name: float(minutes) for name, minutes in re.findall(r"^\| ([\w-]+) \| ([\d.]+) \|", section, re.MULTILINE)}


def arguments():
    parser = argparse.ArgumentParser(prog="tests/run", add_help=False)
    for option in ("full", "lints", "plant"):
        parser.add_argument(f"--{option}", action="store_true")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    there = sorted(file.name for file in SUITES.iterdir() if file.is_file())
    for name in there:
        if not os.access(SUITES / name, os.X_OK):
            fail(f"{SUITES / name} is not executable: chmod +x it")
        if not header(SUITES / name, "what") or not header(SUITES / name, "limit"):
            fail(f"{SUITES / name} lacks a line '# what:' or '# limit:'")
    given.all = not given.names
    if given.all:
        given.names = [name for name in there if given.full or given.plant or header(SUITES / name, "tier") != ["full"]]
    return given


def room_on_disk(given):
    # --full also builds for release.
    builds = given.full or not Path(os.environ["POOLWRIGHT"]).exists()
    needed = FREE_GB[builds]
    if free_gb() < needed:
        fail(f"{needed} GB must be free on the disk of {Path.cwd()}, and {free_gb():.1f} GB are: remove target/, or make room")


def run(run, given):
    """Every step; a failed build ends it early."""
    # Earlier results of these suites no longer hold, even if this run ends before it reaches them.
    for name in given.names:
        (REPORTS / f"{name}{'-planted' if given.plant else ''}.json").unlink(missing_ok=True)
    # A plant that no longer fits the code is found before anything is built.
    if given.all or given.plant:
        plants.check(given.names)
    if given.lints:
        run.command("formatting", "cargo", "fmt", "--all", "--check")
        # Without the feature that only the tests use, as the programs are built.
        run.command("lints", "cargo", "clippy", "--workspace", "--all-targets", "--no-default-features", "--", "-D", "warnings")
    if not run.command("build", "cargo", "test", "--workspace", "--no-run"):
        return
    # For the commands of the README.
    if given.full and "docs" in given.names and not run.command("release-build", "cargo", "build", "--release", "--bins"):
        return
    if not given.plant:
        run.suites(given.names)
    to_plant = []
    if given.plant or (given.full and given.all):
        to_plant = given.names
    elif given.all:
        to_plant = plants.changed(given.names)
    if not all(step.ok for step in run.steps):
        if to_plant:
            say(f"a step failed, so no fault was planted for {' '.join(to_plant)}")
        return
    detected = [run.plant(name) for name in to_plant]
    if all(detected) and given.all and (given.plant or given.full):
        say(plants.record_passed())


def stopped(*_):
    raise KeyboardInterrupt


def main():
    given = arguments()
    signal.signal(signal.SIGTERM, stopped)
    # Orphans become children of this process, so that it sees and ends them.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    room_on_disk(given)
    this = Run(given.full)
    try:
        run(this, given)
    except KeyboardInterrupt:
        say("tests/run: stopped; ends what it started")
        this.stop()
        sys.exit(130)
    except (RuntimeError, OSError) as error:
        this.stop()
        fail(f"{error}{disk_is_full()}")
    left = this.end_orphans()
    passed = this.summary()
    if left:
        say(f"FAILED   processes were left behind, and were ended: {', '.join(left)}")
    sys.exit(0 if passed and not left else 1)


main()
