"""Measures `poolwright discover`; started by tests/bench/discover, which says what it prints."""

import argparse
import contextlib
import platform
import statistics
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from rack import emulated
import bench
from suite import POOLWRIGHT, ROOT, SERVE_TREE, SHARED, free_port, run, serve_tree, small_tree, started

CONCURRENCY = 32
DELAY_MS = 20
TREE = "libredfish-nvidia_viking"
# Schemas and registries describe, they are no hardware: neither side reads them.
EXCLUDED = ("/redfish/v1/JsonSchemas", "/redfish/v1/Registries")
POD = "pod-4096"
# With so long an answer and so many at once nothing counts but the longest chain of answers.
CHAIN_DELAY_MS, CHAIN_CONCURRENCY = 100, 256
# What is aimed at.
CPU_RATIO, WALL_OVER_LEAST, POD_SECONDS, POD_MIB = 3.0, 1.3, 30, 512

NGINX = """
daemon off;
master_process off;
worker_processes 1;
pid {work}/nginx.pid;
error_log stderr notice;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    default_type application/json;
    keepalive_requests 1000000;
    client_body_temp_path {work}/body;
    proxy_temp_path {work}/proxy;
    fastcgi_temp_path {work}/fastcgi;
    scgi_temp_path {work}/scgi;
    uwsgi_temp_path {work}/uwsgi;
    server {{
        listen 127.0.0.1:{port};
        root {tree};
        # The tree has one index.json a resource; without this a folder would answer with a redirect.
        location / {{ try_files $uri/index.json $uri =404; }}
    }}
}}
"""


@contextlib.contextmanager
def nginx(tree, log):
    """The tree behind one nginx worker; yields its URL."""
    with tempfile.TemporaryDirectory() as work:
        port = free_port()
        file = Path(work) / "nginx.conf"
        file.write_text(NGINX.format(work=work, port=port, tree=tree))
        with started("nginx", "-p", work, "-c", file, ready="start worker process|using the", log=log):
            yield f"http://127.0.0.1:{port}"


class Run:
    """One discovery by one client: the whole process, from start to exit."""

    def __init__(self, done, requests, found):
        self.requests, self.found = requests, found
        self.wall_s, self.cpu_s, self.peak_bytes = done.seconds, done.cpu_seconds, done.peak_bytes


def poolwright(url, concurrency=CONCURRENCY):
    """With the snapshot assembled and printed."""
    done = run(
        *(POOLWRIGHT, "discover", "--endpoint", url, "-o", "json", "--concurrency", concurrency), timeout=300
    )
    if done.code:
        sys.exit(f"discovery failed: {done}")
    snapshot = done.json()
    return Run(done, snapshot["requests"], {"gpus": len(snapshot["gpus"]), "faults": len(snapshot["faults"])})


def walker(url):
    """Every resource read and parsed, nothing made of it."""
    done = run(ROOT / ".venv/bin/python", ROOT / "tests/bench/walker.py", url, CONCURRENCY, *EXCLUDED, timeout=300)
    if done.code:
        sys.exit(f"the walker failed: {done}")
    said = done.json()
    return Run(done, said["requests"], {"statuses": said["statuses"]})


CLIENTS = {"poolwright": poolwright, "aiohttp": walker}


def measure(url, bare_url, repetitions):
    """Both clients in turn, so that a change of the machine's load meets both.

    Each also reads a tree of two resources (`bare_url`): what that costs is the start of the process, and is
    taken off before CPU is divided by requests.
    """
    runs, starts = ({name: [] for name in CLIENTS} for _ in range(2))
    for _ in range(repetitions):
        for name, client in CLIENTS.items():
            runs[name].append(client(url))
            starts[name].append(client(bare_url))
    return {name: summary(runs[name], starts[name]) for name in CLIENTS}


def summary(runs, starts):
    """Medians of one client's runs."""

    def median(of, results=runs):
        return statistics.median(getattr(one, of) for one in results)

    requests, few = runs[-1].requests, starts[-1].requests
    cpu, start = median("cpu_s"), median("cpu_s", starts)
    return {
        "requests": requests,
        "requests_per_s": requests / median("wall_s"),
        "cpu_us_per_request": (cpu - start) / (requests - few) * 1e6,
        "cpu_ms": cpu * 1e3,
        "cpu_ms_start": start * 1e3,
        "wall_s": median("wall_s"),
        "wall_s_best": min(one.wall_s for one in runs),
        "peak_mib": max(one.peak_bytes for one in runs) / 2**20,
        "runs": len(runs),
        "found": runs[-1].found,
    }


def compare(title, clients, delay_ms):
    """Prints one table, and returns the figures with their ratios."""
    print(f"\n{title} (medians)")
    print(f"{'':12}{'requests':>10}{'req/s':>8}{'wall s':>8}{'CPU ms':>8}{'of it start':>12}{'CPU µs/req':>12}{'peak MiB':>10}")
    for name, figures in clients.items():
        print(
            f"{name:12}{figures['requests']:>10}{figures['requests_per_s']:>8.0f}{figures['wall_s']:>8.2f}"
            f"{figures['cpu_ms']:>8.0f}{figures['cpu_ms_start']:>12.0f}{figures['cpu_us_per_request']:>12.1f}"
            f"{figures['peak_mib']:>10.1f}"
        )
    ours, theirs = clients["poolwright"], clients["aiohttp"]
    ratios = {key: theirs[key] / ours[key] for key in ("cpu_us_per_request", "cpu_ms", "wall_s")}
    print(
        f"ratio: {ratios['cpu_us_per_request']:.2f} times less CPU a request without the start,"
        f" {ratios['cpu_ms']:.1f} times less for the whole discovery, {ratios['wall_s']:.1f} times faster"
    )
    if not delay_ms:
        aim("CPU a request, times less than aiohttp's", ratios["cpu_us_per_request"], CPU_RATIO, at_least=True)
    for name, figures in clients.items() if delay_ms else ():
        least = figures["requests"] * delay_ms / 1000 / CONCURRENCY
        ratios[f"{name}_wall_over_least"] = figures["wall_s"] / least
        print(f"{name}: {ratios[f'{name}_wall_over_least']:.2f} × (requests × delay / concurrency = {least:.3f} s)")
    return {"clients": clients, "ratios": ratios, "delay_ms": delay_ms, "concurrency": CONCURRENCY}


def aim(what, found, aimed, at_least=False):
    """Prints an aim beside what came of it."""
    reached = found >= aimed if at_least else found <= aimed
    print(f"{what}: {found:.2f}; aim: at {'least' if at_least else 'most'} {aimed}: {'reached' if reached else 'MISSED'}")


def chain(tree):
    """How many answers the longest chain has, each of which is asked for only when the one before it is there."""
    with serve_tree(tree, "--delay-ms", CHAIN_DELAY_MS, log="chain.log") as server:
        quickest = min(poolwright(server[1], CHAIN_CONCURRENCY).wall_s for _ in range(3))
    return int(quickest * 1000 / CHAIN_DELAY_MS)


def bounds(compared, links):
    """What the delay alone costs, however quick the client is, beside what was measured.

    No order of the requests is quicker than the longest chain, nor than all of them evenly spread. Any order that
    leaves no place empty while something could be asked is done within the chain and the rest evenly spread (Graham,
    Bounds for certain multiprocessing anomalies, 1966).
    """
    ours, delay = compared["clients"]["poolwright"], DELAY_MS / 1000
    spread = ours["requests"] * delay / CONCURRENCY
    lower = max(links * delay, spread)
    upper = links * delay + (ours["requests"] - links) * delay / CONCURRENCY
    compared["bounds"] = {"chain": links, "lower_s": lower, "upper_s": upper, "spread_s": spread}
    print(f"longest chain: {links} answers = {links * delay:.3f} s; all requests evenly spread: {spread:.3f} s")
    print(f"chain + rest / concurrency: {upper:.3f} s; measured: {ours['wall_s']:.3f} s, at best {ours['wall_s_best']:.3f} s")
    aim("wall over requests × delay / concurrency", ours["wall_s"] / spread, WALL_OVER_LEAST)


def dgx(repetitions):
    if SHARED is None:
        sys.exit("the recorded trees are not present: put them in ../shared or set POOLWRIGHT_SHARED")
    tree = run(SERVE_TREE, "--tree", TREE, "--unpack").out.strip()
    with tempfile.TemporaryDirectory() as bare:
        small_tree(bare)
        with nginx(tree, "nginx.log") as url, nginx(bare, "nginx-bare.log") as bare_url:
            at_once = compare(f"{TREE} behind nginx, no delay", measure(url, bare_url, repetitions), 0)
        slow = ("--delay-ms", DELAY_MS)
        with serve_tree(tree, *slow) as server, serve_tree(bare, *slow, log="bare.log") as bare_server:
            few = max(3, repetitions // 2)
            delayed = measure(server[1], bare_server[1], few)
            delayed = compare(f"{TREE}, {DELAY_MS} ms an answer", delayed, DELAY_MS)
        bounds(delayed, chain(tree))
    return {"no_delay": at_once, "delayed": delayed}


def pod(repetitions):
    """The whole pod in one discovery: all its endpoints, over TLS, with a password."""
    results = []
    with emulated(POD, timeout=120) as rack:
        endpoints = len(rack.endpoints())
        for _ in range(max(1, repetitions // 3)):
            done = run(
                *(POOLWRIGHT, "discover", "--endpoints", rack.listing, "-o", "json"),
                *("--username", "admin", "--password-file", rack.password_file, "--ca", rack.authority),
                timeout=300,
            )
            if done.code:
                sys.exit(f"discovery of the pod failed: {done}")
            results.append(done)
        snapshot = results[-1].json()
    figures = {
        "endpoints": endpoints,
        "gpus": len(snapshot["gpus"]),
        "hosts": len(snapshot["hosts"]),
        "faults": len(snapshot["faults"]),
        "requests": snapshot["requests"],
        "wall_s": [round(done.seconds, 2) for done in results],
        "cpu_s": [round(done.cpu_seconds, 2) for done in results],
        "peak_mib": max(done.peak_bytes for done in results) / 2**20,
    }
    print(f"\n{POD}: {endpoints} endpoints")
    for name, value in figures.items():
        print(f"  {name:10} {value}")
    aim("seconds for the pod", statistics.median(figures["wall_s"]), POD_SECONDS)
    aim("MiB at its peak", figures["peak_mib"], POD_MIB)
    return figures


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--repetitions", type=int, default=7)
    arguments.add_argument("--only", choices=["dgx", "pod"])
    arguments = arguments.parse_args()
    with bench.report("discover") as found:
        found["peers"] = {
            "aiohttp": version("aiohttp"),
            "python": platform.python_version(),
            "nginx": run("nginx", "-v").err.strip(),
        }
        if arguments.only != "pod":
            found["dgx"] = dgx(arguments.repetitions)
        if arguments.only != "dgx":
            found["pod"] = pod(arguments.repetitions)


main()
