"""Measures the manager's operations; started by tests/bench/operations, which says what it prints."""

import argparse
import base64
import concurrent.futures
import contextlib
import json
import os
import secrets
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import bench
from suite import POOLWRIGHT, ROOT, run, started, wait_until

BENCH = Path(POOLWRIGHT).with_name("bench-operations")
# What is aimed at.
OVERHEAD_MS, ATTACHES_PER_S, IN_FLIGHT, RESTART_S, FAILOVER_S = 50, 200, 1000, 5, 15

# As many as the pod of 4,096 GPUs has, without its delays but for a bind, so that operations are in flight.
POD = """
name = "pod-at-once"
style = "zones"

[latency]
bind = "3s"

[[box]]
count = 128
switches = 4
gpus = [{ kind = "h100-pcie-80gb", count = 32 }]

[[host]]
count = 1024
slots = 8
"""
HELD, UNDER_WAY, GPUS_A_DEMAND = 16, 16, 8

SMALL = """
name = "small-at-once"
style = "zones"

[[box]]
gpus = [{ kind = "h100-pcie-80gb", count = 32 }]

[[host]]
count = 4
slots = 8
"""


def aim(what, found, aimed, at_least=False):
    """Prints an aim beside what came of it."""
    reached = found >= aimed if at_least else found <= aimed
    print(f"{what}: {found:.2f}; aim: at {'least' if at_least else 'most'} {aimed}: {'reached' if reached else 'MISSED'}")


class Manager:
    """`poolwright serve`, and a client of its API."""

    def __init__(self, folder, *options, listen="127.0.0.1:0"):
        self.folder, self.listen = Path(folder), listen
        self.options = [POOLWRIGHT, "serve", "--data-dir", folder, "--listen", listen, *options]
        self.url = self.process = None

    def start(self):
        """Starts it, and returns seconds until the API answered, and until it was ready."""
        # A folder's first start makes the authority that a client must know.
        log = self.folder.with_suffix(".log")
        began = time.monotonic()
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [str(option) for option in self.options], stdout=out, stderr=subprocess.STDOUT, cwd=ROOT
            )
        answered = None
        if self.url:
            wait_until(lambda: self.answers("/livez"), 120, "the API to answer", self.process, log)
            answered = time.monotonic() - began
        ready = wait_until(lambda: ready_line(log), 300, "the manager to be ready", self.process, log)
        self.url = ready
        wait_until(lambda: self.answers("/readyz"), 300, "readyz", self.process, log)
        return answered, time.monotonic() - began

    def kill(self):
        self.process.kill()
        self.process.wait()

    def request(self, method, path, body=None, timeout=30):
        context = ssl.create_default_context(cafile=self.folder / "tls/ca.pem")
        request = urllib.request.Request(self.url + path, method=method)
        password = self.password_file().read_text().strip()
        request.add_header("Authorization", "Basic " + base64.b64encode(f"admin:{password}".encode()).decode())
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=timeout, context=context) as answer:
            return answer.read()

    def answers(self, path):
        try:
            return bool(self.request("GET", path, timeout=5))
        except (OSError, urllib.error.URLError):
            return False

    def password_file(self):
        return self.folder / "initial-admin-password"

    def cli(self, *arguments, timeout=300):
        environment = os.environ | {
            "POOLWRIGHT_SERVER": self.url,
            "POOLWRIGHT_CA": str(self.folder / "tls/ca.pem"),
            "POOLWRIGHT_PASSWORD_FILE": str(self.password_file()),
        }
        done = run(POOLWRIGHT, *arguments, timeout=timeout, env=environment)
        if done.code:
            raise RuntimeError(str(done))
        return done

    def compose(self, name, gpus, *more):
        return self.cli("compose", "--gpus", gpus, "--kind", "h100-pcie-80gb", "--name", name, *more)


class Beside(Manager):
    """Another manager of the same cluster: accounts, authority and the passwords of endpoints are shared."""

    def __init__(self, first, folder, *options):
        super().__init__(folder, *options)
        self.first = first

    def password_file(self):
        return self.first.password_file()


def ready_line(log):
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("ready https://"):
            return line.removeprefix("ready ")
    return None


@contextlib.contextmanager
def rack(text, folder):
    """A rack in a process of its own; yields its folder."""
    file, data = Path(folder) / "rack.toml", Path(folder) / "rack"
    file.write_text(text)
    command = [POOLWRIGHT, "emulate", "--rack", file, "--listen", "127.0.0.1:0", "--data-dir", data]
    with started(*command, ready="ready", timeout=120, log="rack.log"):
        wait_until((data / "endpoints.json").is_file, 10, "endpoints.json to be written")
        yield data


def attach(options):
    """One attach, many, and a thousand in flight, in one process."""
    command = [BENCH, *(["--dir", tempfile.mkdtemp(dir=options.dir)] if options.dir else [])]
    done = run(*command, timeout=1200)
    if done.code:
        sys.exit(f"bench-operations failed: {done}")
    figures = json.loads(done.out.splitlines()[-1])
    floor, single, many, flight = (figures[key] for key in ("floor", "single", "sustained", "in_flight"))
    print(f"\nAttaches through the manager, {single['gpus']} GPUs, SQLite (ms)")
    print(f"{'':34}{'p50':>9}{'p99':>9}{'longest':>9}")
    for name, spread in {
        "floor: one commit of the store alone": floor["commit"],
        "one commit within an attach": single["commit"],
        "one attach": single["total"],
        "  of it the manager, without commits": single["overhead"],
        f"one attach of {many['clients']} at a time": many["attach"],
        "beginning one of 1,000 in flight": flight["begin"],
    }.items():
        print(f"{name:36}{spread['p50_ms']:>7.1f}{spread['p99_ms']:>9.1f}{spread['max_ms']:>9.1f}")
    commits = single["commits_per_attach"]
    print(f"commits of one attach: {commits:.1f}; floor of one attach: {commits * floor['commit']['p50_ms']:.1f} ms")
    aim("overhead of one attach beside its commits, p99 in ms", single["overhead"]["p99_ms"], OVERHEAD_MS)
    possible = floor["commits_per_s"] / many["commits_per_attach"]
    print(f"floor: {floor['commits_per_s']:.0f} commits/s by {floor['callers']} callers = {possible:.0f} attaches/s")
    print(f"ratio: {many['attaches_per_s'] / possible:.2f} of what the store alone could do")
    aim("attaches a second", many["attaches_per_s"], ATTACHES_PER_S, at_least=True)
    aim("operations in flight at once", flight["in_flight"], IN_FLIGHT, at_least=True)
    print(f"all begun after {flight['begun_ms'] / 1000:.1f} s, all done {flight['done_ms'] / 1000:.1f} s after the first was asked")
    print(f"peak memory, manager and rack: {figures['peak_mib']:.0f} MiB")
    return figures


def compose_many(manager, name, count):
    """Begins so many demands."""
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda nth: manager.compose(f"{name}-{nth}", GPUS_A_DEMAND, "--no-wait"), range(count)))


def restart(options):
    """From kill -9 to a manager that serves, with operations in flight."""
    with tempfile.TemporaryDirectory(dir=options.dir) as folder, rack(POD, folder) as data:
        access = ("--username", "admin", "--password-file", data / "password", "--ca", data / "ca.pem")
        listing = data / "endpoints.json"
        print("the pod is being looked at, added and composed", file=sys.stderr)
        look = run(POOLWRIGHT, "discover", "--endpoints", listing, *access, "-o", "json", timeout=300)
        manager = Manager(Path(folder) / "manager")
        _, empty = manager.start()
        manager.cli("endpoint", "add", "--adopt", "--from", listing, timeout=600)
        settled = lambda: not manager.cli("ops", "list", "--unfinished", "-o", "json").json()  # noqa: E731
        compose_many(manager, "held", HELD)
        wait_until(settled, 300, "all operations to end")
        runs = []
        # Where clients know it: the port of the first start.
        manager.options[manager.options.index("--listen") + 1] = manager.url.removeprefix("https://")
        for repetition in range(options.repetitions):
            compose_many(manager, f"run-{repetition}", UNDER_WAY)
            open_before = len(manager.cli("ops", "list", "--unfinished", "-o", "json").json())
            manager.kill()
            answered, ready = manager.start()
            runs.append({"in_flight": open_before, "answers_s": answered, "ready_s": ready})
            wait_until(settled, 300, "all operations to end")
        gpus = len(manager.cli("get", "gpus", "-o", "json").json())
        manager.kill()
    figures = {"gpus": gpus, "floor_look_s": look.seconds, "floor_empty_s": empty, "runs": runs}
    ready = statistics.median(one["ready_s"] for one in runs)
    answers = statistics.median(one["answers_s"] for one in runs)
    print(f"\nRestart after kill -9, {gpus} GPUs at 1,152 endpoints, {[one['in_flight'] for one in runs]} operations in flight")
    print(f"floor: {empty:.2f} s to start with nothing kept; {look.seconds:.2f} s to look at all endpoints once (discover)")
    print(f"the API answers after {answers:.2f} s; ready after {ready:.2f} s, ratio to the look alone {ready / look.seconds:.2f}")
    aim("seconds from the start to readyz", ready, RESTART_S)
    return figures


def failover(options):
    """Of two managers one is killed; a client goes on with the other."""
    port = os.environ.get("POOLWRIGHT_TEST_POSTGRES_PORT")
    if not port:
        print("\nfailover: left out, for there is no PostgreSQL server (Debian: apt-get install postgresql)")
        return None
    runs = [one_failover(options, port, repetition) for repetition in range(options.repetitions)]
    figures = {key: [one[key] for one in runs] for key in runs[0]}
    print("\nFailover: of two managers on PostgreSQL the one in charge is killed (s after the kill)")
    for name, values in figures.items():
        print(f"  {name:24} {', '.join(f'{value:.2f}' for value in values)}")
    aim("seconds until a write is accepted", max(figures["write_accepted_s"]), FAILOVER_S)
    return figures


def one_failover(options, port, repetition):
    database = f"bench_{os.getpid()}_{repetition}"
    sql = ["psql", "--quiet", "--no-psqlrc", "--host", "127.0.0.1", "--port", port, "--username", "poolwright"]
    if run(*sql, "postgres", "--command", f"CREATE DATABASE {database}").code:
        sys.exit("no database could be made")
    store = ("--store", f"postgres://poolwright@127.0.0.1:{port}/{database}", "--request-deadline", "8s")
    with tempfile.TemporaryDirectory(dir=options.dir) as folder, rack(SMALL, folder) as data:
        key = Path(folder) / "cluster-key"
        key.write_text(secrets.token_hex(32))
        store = (*store, "--cluster-key-file", key)
        first = Manager(Path(folder) / "first", *store)
        first.start()
        first.cli("endpoint", "add", "--adopt", "--from", data / "endpoints.json")
        first.compose("before", 1)
        second = Beside(first, Path(folder) / "second", *store)
        second.start()
        first.kill()
        killed = time.monotonic()

        def asked(method, path, body=None):
            """By a client that knows both, and tries the one that it had first."""
            for manager in (first, second):
                try:
                    return manager.request(method, path, body)
                except (OSError, urllib.error.URLError):
                    pass
            return None

        wait_until(lambda: asked("GET", "/api/v1/compositions"), 60, "a read")
        read = time.monotonic() - killed
        demand = {"demand": {"id": "after", "kind": "h100-pcie-80gb", "gpus": 1}}
        change = json.loads(wait_until(lambda: asked("POST", "/api/v1/compose", demand), 60, "a write"))
        accepted = time.monotonic() - killed
        second.cli("ops", "wait", change["operation"]["id"], "--timeout", "120s")
        done = time.monotonic() - killed
        second.kill()
    return {"read_answered_s": read, "write_accepted_s": accepted, "write_done_s": done}


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--repetitions", type=int, default=3)
    arguments.add_argument("--only", choices=["attach", "restart", "failover"])
    arguments.add_argument("--dir", type=Path)
    options = arguments.parse_args()
    with bench.report("operations") as found:
        for part in (attach, restart, failover):
            if options.only in (None, part.__name__):
                found[part.__name__] = part(options)


main()
