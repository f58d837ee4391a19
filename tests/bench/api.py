"""Measures the Redfish service; started by tests/bench/api, which says what it prints."""

import argparse
import asyncio
import base64
import contextlib
import re
import ssl
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import bench
from manager import Manager
from rack import USER, rack_file
from suite import POOLWRIGHT, free_port, run, started, wait_until

BLOCKS = "/redfish/v1/CompositionService/ResourceBlocks"
SYSTEMS = "/redfish/v1/Systems"
EVENTS = "/redfish/v1/EventService/SSE"
# What is aimed at: a share of nginx's requests a second; milliseconds; MiB.
SHARE, LIST_MS, LAG_MS, MEMORY_MIB = 0.5, 150, 1000, 512
# An address of its own has so many of the streams: one client may not have them all.
STREAMS_OF_ONE = 200

NGINX = """
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.err;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    default_type application/json;
    keepalive_requests 100000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_certificate {certificate};
        ssl_certificate_key {certificate};
        root {folder}/files;
    }}
}}
"""


@contextlib.contextmanager
def pool(rack, folder):
    """A rack, and a manager that has all of it, in a process each."""
    data, own = Path(folder) / "rack", Path(folder) / "manager"
    emulate = [POOLWRIGHT, "emulate", "--rack", rack_file(rack), "--listen", "127.0.0.1:0", "--data-dir", data]
    serve = [POOLWRIGHT, "serve", "--data-dir", own, "--listen", "127.0.0.1:0"]
    with (
        started(*emulate, ready="ready", timeout=120, log="rack.log"),
        started(*serve, ready=r"ready (https://\S+)", timeout=120, log="manager.log") as ready,
    ):
        manager = Manager(ready.group(1), own)
        wait_until((data / "endpoints.json").is_file, 10, "endpoints.json to be written")
        added = manager.poolwright("endpoint", "add", "--adopt", "--from", data / "endpoints.json", timeout=600)
        if added.code:
            raise SystemExit(f"the rack could not be added: {added}")
        yield manager


@contextlib.contextmanager
def nginx(folder, certificate, files):
    """nginx, with files by path; yields its address."""
    # Its worker is nobody.
    Path(folder).chmod(0o755)
    for path, body in files.items():
        file = Path(folder) / "files" / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)
    port = free_port()
    settings = Path(folder) / "nginx.conf"
    settings.write_text(NGINX.format(folder=folder, port=port, certificate=certificate))
    address = f"https://127.0.0.1:{port}"
    with started("nginx", "-e", f"{folder}/nginx.err", "-c", settings, ready="", log="nginx.log"):
        wait_until(lambda: run("curl", "-ks", "-o", "/dev/null", address).code == 0, 10, "nginx to answer")
        yield address


@contextlib.contextmanager
def python(folder, certificate):
    """A server in Python, as DMTF's mockup server is one, with the files of nginx; yields its address."""
    port = free_port()
    server = [sys.executable, Path(__file__).with_name("static_server.py"), Path(folder) / "files", certificate, str(port)]
    with started(*server, ready="ready", timeout=10, log="python.log"):
        yield f"https://127.0.0.1:{port}"


def load(url, seconds, connections, headers=()):
    """Requests a second, and the 50th and 99th percentile in ms."""
    said = [part for header in headers for part in ("-H", header)]
    done = run("wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", *said, url, timeout=seconds + 60)
    if done.code or "Non-2xx" in done.out:
        raise SystemExit(f"wrk: {done}")
    units = {"us": 0.001, "ms": 1.0, "s": 1000.0}
    spread = {percent: float(value) * units[unit] for percent, value, unit in re.findall(r"(50|99)%\s+([\d.]+)(us|ms|s)", done.out)}
    return {"per_s": float(re.search(r"Requests/sec:\s+([\d.]+)", done.out)[1]), "p50_ms": spread["50"], "p99_ms": spread["99"]}


class Operations:
    """Composes and decomposes one system after the other, until it is told to stop."""

    def __init__(self, manager):
        self.manager, self.stopped = manager, threading.Event()
        self.taken, self.failed = [], []
        self.thread = threading.Thread(target=self.work)

    def work(self):
        client = Manager(self.manager.url, self.manager.authority_file.parents[1])
        wish = {"Processors": {"Members": [{"@Redfish.RequestedCount": 1, "ProcessorType": "GPU"}]}}
        count = 0
        while not self.stopped.is_set():
            count += 1
            composed = self.timed(client, "POST", SYSTEMS, 201, json={"Name": f"bench-{count}", **wish})
            if composed is None:
                return
            self.timed(client, "DELETE", composed.headers["Location"], 204)

    def timed(self, client, method, path, expected, **options):
        began = time.monotonic()
        answer = client.request(method, path, **options)
        if answer.status_code not in (expected, 200):
            self.failed.append(f"{method} {path}: {answer.status_code}: {answer.text[:300]}")
            return None
        self.taken.append((time.monotonic() - began) * 1000)
        return answer

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join(120)


class Streams:
    """Listens to what happens (SSE), many times at once."""

    def __init__(self, manager, login, count):
        self.manager, self.login, self.count = manager, login, count
        self.heard = [None] * count

    async def listen(self, nth, open_ones):
        """Notes when the first event came after `heard` was cleared."""
        port = int(self.manager.url.rsplit(":", 1)[1])
        trusted = ssl.create_default_context(cafile=self.manager.authority_file)
        own = (f"127.0.0.{nth // STREAMS_OF_ONE + 2}", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted, local_addr=own)
        head = f"GET {EVENTS} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{self.login}\r\nAccept: text/event-stream\r\n\r\n"
        writer.write(head.encode())
        status = await reader.readline()
        if b" 200 " not in status:
            raise SystemExit(f"stream {nth}: {status!r}")
        open_ones.append(writer)
        while line := await reader.readline():
            if line.startswith(b"data:") and b"#Event.v" in line and self.heard[nth] is None:
                self.heard[nth] = time.monotonic()

    async def opened(self):
        open_ones = []
        tasks = [asyncio.create_task(self.listen(nth, open_ones)) for nth in range(self.count)]
        await self.until(lambda: len(open_ones) == self.count, 120, "all streams to be open", tasks)
        return tasks

    async def until(self, done, seconds, what, tasks):
        end = time.monotonic() + seconds
        while not done():
            for task in tasks:
                if task.done():
                    task.result()
                    raise SystemExit("a stream has ended")
            if time.monotonic() > end:
                raise SystemExit(f"waited {seconds} s for {what}")
            await asyncio.sleep(0.01)

    async def lags(self, changes):
        """For each change and each stream the ms from when it was asked for until something of it was heard."""
        tasks = await self.opened()
        lags = []
        for _ in range(changes):
            # What came before is not of this one.
            await asyncio.sleep(2)
            self.heard = [None] * self.count
            began = time.monotonic()
            change = asyncio.get_running_loop().run_in_executor(None, self.change)
            await self.until(lambda: None not in self.heard, 60, "all streams to hear of a change", tasks)
            lags += [(heard - began) * 1000 for heard in self.heard]
            await change
        for task in tasks:
            task.cancel()
        return lags

    def change(self):
        wish = {"Processors": {"Members": [{"@Redfish.RequestedCount": 1, "ProcessorType": "GPU"}]}}
        composed = self.manager.request("POST", SYSTEMS, json={"Name": "bench-heard", **wish})
        self.manager.request("DELETE", composed.headers["Location"])


def memory_mib(manager):
    """The most memory that the manager had: of the process that has its folder on its command line."""
    folder = str(manager.authority_file.parents[1]).encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"serve" in (line := (process / "cmdline").read_bytes().split(b"\0")) and folder in line:
                return int(re.search(r"VmHWM:\s+(\d+)", (process / "status").read_text())[1]) / 1024
    raise SystemExit("the manager's process is not there")


def percentile(values, percent):
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def aim(what, found, aimed, at_least=False):
    reached = found >= aimed if at_least else found <= aimed
    print(f"  {what}: {found:.2f}; aim: at {'least' if at_least else 'most'} {aimed}: {'reached' if reached else 'MISSED'}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=int, default=5)
    arguments.add_argument("--rack", default="pod-4096")
    arguments.add_argument("--streams", type=int, default=1000)
    options = arguments.parse_args()
    with bench.report("api") as found, tempfile.TemporaryDirectory() as folder, pool(options.rack, folder) as manager:
        basic = base64.b64encode(f"{USER}:{manager.password}".encode()).decode()
        login = (f"Authorization: Basic {basic}",)
        one = manager.request("GET", SYSTEMS).json()["Members"][0]["@odata.id"]
        expanded = f"{BLOCKS}?$expand=."
        bodies = {one: manager.request("GET", one).content, "/expanded": manager.request("GET", expanded).content}
        certificate = manager.authority_file.with_name("server.pem")
        with nginx(folder, certificate, bodies) as peer, Operations(manager) as operations:
            rounds = [
                (load(peer + one, options.seconds, 16), load(manager.url + one, options.seconds, 16, login))
                for _ in range(3)
            ]
            collection = load(manager.url + expanded, options.seconds, 1, login)
            peer_collection = load(f"{peer}/expanded", options.seconds, 1)
            with python(folder, certificate) as mockup:
                in_python = load(mockup + one, options.seconds, 1)
                python_collection = load(f"{mockup}/expanded", options.seconds, 1)
        if operations.failed:
            raise SystemExit(f"an operation failed: {operations.failed[0]}")
        lags = asyncio.run(Streams(manager, login[0], options.streams).lags(3))
        theirs, ours = ([part["per_s"] for part in side] for side in zip(*rounds, strict=True))
        share = statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))
        memory = memory_mib(manager)
        found |= {
            "one": {"bytes": len(bodies[one]), "nginx": [n for n, _ in rounds], "poolwright": [p for _, p in rounds], "share": share, "python": in_python},
            "expanded": {"bytes": len(bodies["/expanded"]), "nginx": peer_collection, "poolwright": collection, "python": python_collection},
            "writes_ms": operations.taken,
            "lags_ms": {percent: percentile(lags, percent) for percent in (50, 99, 100)},
            "memory_mib": memory,
        }
        print(f"\nRack {options.rack}, 16 connections, while systems are composed and decomposed")
        print(f"GET of one resource, {len(bodies[one])} bytes: {statistics.median(ours):.0f}/s; nginx {statistics.median(theirs):.0f}/s; in Python, as DMTF's mockup server, {in_python['per_s']:.0f}/s")
        aim("share of nginx's", share, SHARE, at_least=True)
        print(f"GET of {BLOCKS} with $expand, {len(bodies['/expanded']) / 1e6:.1f} MB: p50 {collection['p50_ms']:.0f} ms; nginx {peer_collection['p50_ms']:.0f} ms; in Python {python_collection['p50_ms']:.0f} ms")
        aim("p99 in ms", collection["p99_ms"], LIST_MS)
        print(f"{len(operations.taken)} writes, each a whole compose or decompose on the rack: p50 {percentile(operations.taken, 50):.0f} ms, p99 {percentile(operations.taken, 99):.0f} ms")
        print(f"{options.streams} streams of events: p50 {percentile(lags, 50):.0f} ms after a change was asked for, p99 {percentile(lags, 99):.0f} ms")
        aim("the last of all, ms", max(lags), LAG_MS)
        print(f"most memory of the manager: {memory:.0f} MiB")
        aim("MiB", memory, MEMORY_MIB)


if __name__ == "__main__":
    main()
