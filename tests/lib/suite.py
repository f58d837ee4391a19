"""What the Python suites share: checks that are counted, programs that are started and stopped."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TREE = Path(os.environ.get("TREE", ROOT))
SUITE_DIR = Path(os.environ.get("SUITE_DIR") or tempfile.mkdtemp(prefix="suite-"))
SHARED = Path(os.environ["POOLWRIGHT_SHARED"]) if os.environ.get("POOLWRIGHT_SHARED") else None
PLANTED, FULL = os.environ.get("PLANTED") == "yes", os.environ.get("FULL") == "yes"
POOLWRIGHT = os.environ.get("POOLWRIGHT", str(ROOT / "target/debug/poolwright"))
POOLWRIGHT_AGENT = os.environ.get("POOLWRIGHT_AGENT", str(ROOT / "target/debug/poolwright-agent"))
SERVE_TREE = os.environ.get("SERVE_TREE", str(ROOT / "target/debug/serve-tree"))
TORTURE = os.environ.get("TORTURE", str(ROOT / "target/debug/torture"))
POWER_CUTS = os.environ.get("POWER_CUTS", str(ROOT / "target/debug/power-cuts"))
SERVE_HOSTILE = os.environ.get("SERVE_HOSTILE", str(ROOT / "target/debug/serve-hostile"))


class Stopped(BaseException):
    """The time limit of the suite was reached: what it started is ended on the way out."""


def _stop(*_):
    # timeout sends it twice, and the way out must not be interrupted.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stopped


signal.signal(signal.SIGTERM, _stop)


class Suite:
    """Counts checks; use as `with Suite() as suite`. Ends the process with status 1 if one failed."""

    def __init__(self):
        self.passed, self.failures, self.notes, self.evidence = 0, [], [], {}
        self.broken = None  # why it could not judge

    def check(self, ok, what, why=""):
        """One claim. `why` is shown when it is wrong. Returns whether it held."""
        if ok:
            self.passed += 1
        else:
            self.failures.append(f"{what}: {why}"[:1500] if why != "" else what)
        return bool(ok)

    def equal(self, found, expected, what):
        return self.check(found == expected, what, f"{found!r}, expected {expected!r}")

    def note(self, text):
        self.notes.append(text)

    @contextlib.contextmanager
    def case(self, name):
        """A case that breaks is a failure of its own, and the next one still runs."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            with (SUITE_DIR / "tracebacks").open("a") as file:
                traceback.print_exc(file=file)
            self.failures.append(f"{name}: {type(error).__name__}: {error}"[:1500])

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is not None:
            traceback.print_exception(kind, error, trace)
            self.broken = f"the suite broke: {error!r}"
        result = {
            "passed": self.passed,
            "failed": len(self.failures),
            "failures": self.failures,
            "notes": self.notes,
            "evidence": self.evidence,
        } | ({"broken": self.broken} if self.broken else {})
        text = json.dumps(result, indent=1)
        if path := os.environ.get("SUITE_RESULT"):
            Path(path).write_text(text)
        else:
            print(text)
        sys.exit(1 if self.failures or self.broken else 0)


class Finished:
    """A program that ended: its status, what it printed, and what it used."""

    def __init__(self, arguments, code, out, err, seconds, usage):
        self.arguments, self.code, self.out, self.err, self.seconds = arguments, code, out, err, seconds
        self.cpu_seconds = usage.ru_utime + usage.ru_stime
        self.peak_bytes = usage.ru_maxrss * 1024  # Linux counts it in KiB

    def json(self):
        return json.loads(self.out)

    def __str__(self):
        command = " ".join(map(str, self.arguments))
        # What went wrong comes first: a report may show no more than the beginning.
        return f"ended with {self.code}; stderr: {self.err[-600:]}; stdout: {self.out[-300:]}; it was `{command}`"


def run(*arguments, timeout=120, **options):
    """Runs a program to its end. A program that does not end in time is killed, and that is an error."""
    arguments = [str(argument) for argument in arguments]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.monotonic()
        program = subprocess.Popen(
            arguments, stdout=out, stderr=err, stdin=subprocess.DEVNULL, cwd=ROOT, start_new_session=True, **options
        )
        # wait4 is the only call that tells one child's usage; it knows no time-out, so a timer ends the child.
        timer = threading.Timer(timeout, lambda: os.killpg(program.pid, signal.SIGKILL))
        timer.daemon = True
        timer.start()
        try:
            _, status, usage = os.wait4(program.pid, 0)
        except Stopped:
            os.killpg(program.pid, signal.SIGKILL)
            raise
        seconds = time.monotonic() - start
        timed_out = not timer.is_alive()
        timer.cancel()
        program.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    done = Finished(arguments, program.returncode, *texts, seconds, usage)
    if timed_out:
        raise RuntimeError(f"not ended after {timeout} s: {done}")
    return done


@contextlib.contextmanager
def started(*arguments, ready, timeout=60, log=None, **options):
    """Starts a program, waits for its line that matches `ready` on either stream, and stops it at the end.

    Yields the match. `log` names the file in the suite's folder that keeps what it prints; it is whole once
    the program has been stopped.
    """
    log = SUITE_DIR / (log or f"{Path(str(arguments[0])).name}.log")
    with log.open("wb") as out:
        program = subprocess.Popen(
            [str(argument) for argument in arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            start_new_session=True,
            **options,
        )
    try:
        pattern = re.compile(ready, re.MULTILINE)
        yield wait_until(
            lambda: pattern.search(log.read_text(errors="replace")),
            timeout,
            f"{program.args[0]} to be ready",
            program,
            log,
        )
    finally:
        stop(program)


def wait_until(condition, timeout, what, program=None, log=None):
    """Polls until the condition gives something true, and returns that. Gives up when the program ends."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        ended = program is not None and program.poll() is not None
        if ended or time.monotonic() > deadline:
            said = log.read_text(errors="replace")[-800:] if log else ""
            why = f"it ended with {program.returncode}" if ended else f"not in {timeout} s"
            raise RuntimeError(f"waited for {what}: {why}; {said}")
        time.sleep(0.02)
    return found


def stop(program):
    """Ends a program and everything it started; kills what does not go."""
    for signal_number, patience in [(signal.SIGTERM, 10), (signal.SIGKILL, 5)]:
        try:
            os.killpg(program.pid, signal_number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            program.poll()
            try:
                os.killpg(program.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.02)


def serve_tree(tree, *options, **more):
    """A recorded tree behind our own static server; yields a match whose group 1 is the URL."""
    return started(SERVE_TREE, "--tree", tree, *options, ready=r"ready (http\S+)", **more)


def discover(url, *options, **more):
    return run(POOLWRIGHT, "discover", "--endpoint", url, "-o", "json", *options, **more)


def secret_file(folder, name, secret):
    """A file with one secret, readable by its owner alone."""
    path = Path(folder) / name
    path.touch(mode=0o600)
    path.write_text(secret + "\n")
    return path


def unpack_shared(archive, folder):
    """Unpacks an archive of the shared folder."""
    shutil.unpack_archive(SHARED / archive, folder, **({"filter": "data"} if sys.version_info >= (3, 12) else {}))


def free_port():
    """A loopback port that was free a moment ago, for servers that cannot be told to pick one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def count(value):
    """How many: a snapshot may carry the things themselves or their number."""
    return value if isinstance(value, int) else len(value)


def small_tree(folder):
    """A service root and an empty collection: enough for a client that gets that far."""
    root = Path(folder) / "redfish/v1"
    (root / "Systems").mkdir(parents=True)
    (root / "index.json").write_text(
        '{"@odata.id": "/redfish/v1", "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot", "Id": "RootService",'
        ' "Name": "Root", "RedfishVersion": "1.15.0", "Systems": {"@odata.id": "/redfish/v1/Systems"}}'
    )
    (root / "Systems/index.json").write_text(
        '{"@odata.id": "/redfish/v1/Systems", "Name": "Systems", "Members@odata.count": 0, "Members": [],'
        ' "@odata.type": "#ComputerSystemCollection.ComputerSystemCollection"}'
    )
    return folder
