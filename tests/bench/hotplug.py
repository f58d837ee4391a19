"""Measures attach, detach and move in guests; started by tests/bench/hotplug, which says what it prints."""

import argparse
import contextlib
import json
import math
import sqlite3
import struct
import subprocess
import time
from datetime import datetime

import bench
import managed
import with_agents
from gpu import Gpu
from guest import initramfs
from suite import POOLWRIGHT_AGENT, ROOT, SUITE_DIR, Suite

# What is aimed at: the manager's share beside its commits.
ACPI_MS, NATIVE_SHARE = 20, 0.05
IDLE_SECONDS, IDLE_SHARE, IDLE_MIB = 60, 0.002, 15
MODES = {"ACPI": ("one", "other"), "native": ("native", "second")}
WAL_HEADER, FRAME_HEADER = 32, 24
ENDED = ("done", "skipped", "not-possible")


def percentiles(seconds):
    ordered = sorted(seconds)
    at = {share: ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.95)}
    return {"p50_ms": round(at[0.5] * 1000, 1), "p95_ms": round(at[0.95] * 1000, 1), "times": len(ordered)}


def commits(folder):
    """How many transactions the store's log (SQLite's WAL) holds, and what the log is known by: it begins anew at times."""
    log = (folder / "poolwright.db-wal").read_bytes()
    page, salt = struct.unpack_from(">I", log, 8)[0], log[16:24]
    count = 0
    for at in range(WAL_HEADER, len(log) - FRAME_HEADER, FRAME_HEADER + page):
        if log[at + 8 : at + 16] != salt:
            break
        count += log[at + 4 : at + 8] != bytes(4)
    return salt, count


def steps(folder, operation):
    """The steps of an operation by its journal: each with the seconds from its intent to its outcome, in their order. One that
    only looks has no intent there: it counts from the line before."""
    with contextlib.closing(sqlite3.connect(f"file:{folder}/poolwright.db?mode=ro", uri=True)) as store:
        asked = "SELECT line FROM journal WHERE operation = ? ORDER BY seq"
        lines = [json.loads(line) for (line,) in store.execute(asked, [operation["id"]])]
    begun, last, found = {}, lines[0]["at"], []
    for line in lines:
        if line["line"] == "step":
            index = line["index"]
            if line["state"] == "running":
                begun[index] = line["at"]
            elif line["state"] in ENDED:
                since = begun.get(index, last)
                found.append((operation["steps"][index]["verb"], (moment(line["at"]) - moment(since)).total_seconds()))
        last = line["at"]
    return found


def moment(text):
    return datetime.fromisoformat(text[:26].rstrip("Z"))


class Times:
    def __init__(self, lab):
        self.lab, self.seconds, self.commits, self.steps = lab, {}, {}, {}

    def took(self, what, seconds):
        self.seconds.setdefault(what, []).append(seconds)

    def operation(self, what, ask):
        """Of the operation itself, as the manager kept it; the command line takes its own time."""
        salt, before = commits(self.lab.manager.folder)
        asked = ask()
        if asked.code != 0:
            raise RuntimeError(str(asked))
        salt_after, after = commits(self.lab.manager.folder)
        latest = max(self.lab.manager.get("operations"), key=lambda one: one["created"])
        self.took(what, (moment(latest["ended"]) - moment(latest["created"])).total_seconds())
        for step, seconds in steps(self.lab.manager.folder, latest):
            self.steps.setdefault(what, {}).setdefault(step, []).append(seconds)
        if salt == salt_after:
            self.commits.setdefault(what, []).append(after - before)


def floor(lab, times, mode, repetitions):
    """In and out by QMP alone, asked as often as the driver asks."""
    gpu, guest = Gpu(), lab.guests[MODES[mode][0]]
    for _ in range(repetitions):
        began = time.monotonic()
        guest.plug_gpu(gpu, "floor", "slot1")
        times.took(f"{mode}: in, QMP alone", time.monotonic() - began)
        seen = "/sys/bus/pci/devices/0000:01:00.0"
        lab.manager.until("it is seen", lambda: guest.sh(f"test -e {seen}")[0] == 0, 30)
        began = time.monotonic()
        guest.qmp("device_del", id="floor")
        while guest.has("floor"):
            time.sleep(0.001)
        times.took(f"{mode}: out, QMP alone", time.monotonic() - began)


def operations(lab, times, mode, repetitions):
    here, there = MODES[mode]
    for _ in range(repetitions):
        times.operation(f"{mode}: attach", lambda: lab.attach(here))
        lab.is_at(here, "attached")
        times.operation(f"{mode}: move", lambda: lab.move(there))
        lab.is_at(there, "moved")
        times.operation(f"{mode}: detach", lab.detach)


def idle(lab):
    """An agent after an attach and a detach, while the manager asks it only for telemetry."""
    with_agents.enrol(lab, ["one"])
    guest = lab.guests["one"]
    lab.ended_well(lab.attach("one"), "attached with an agent")
    lab.ended_well(lab.detach(), "detached with an agent")

    def used():
        line = guest.sh("cat /proc/$(cat /tmp/agent.pid)/stat")[1].rsplit(")", 1)[1].split()
        return (int(line[11]) + int(line[12])) / 100

    before = used()
    time.sleep(IDLE_SECONDS)
    # Of what is resident, what is its own; the rest are pages of files, which the kernel shares and may drop.
    lines = guest.sh("grep -E '^(VmRSS|RssAnon)' /proc/$(cat /tmp/agent.pid)/status")[1].splitlines()
    memory = {line.split()[0]: round(int(line.split()[1]) / 1024, 1) for line in lines}
    return {
        "share_of_a_core": (used() - before) / IDLE_SECONDS,
        "resident_mib": memory["VmRSS:"],
        "anonymous_mib": memory["RssAnon:"],
    }


def shares(found):
    """The manager's share of each operation, and the aims."""
    for mode in MODES:
        base = {way: found[f"{mode}: {way}, QMP alone"]["p50_ms"] for way in ("in", "out")}
        floors = {"attach": base["in"], "detach": base["out"], "move": base["in"] + base["out"]}
        for what, least in floors.items():
            took = found[f"{mode}: {what}"]
            took["beside_qmp_ms"] = round(took["p50_ms"] - least, 1)
            print(f"{mode}: {what}: {took['p50_ms']} ms, QMP alone {least:.1f} ms, {took['commits']} commits")
    acpi, native = found["ACPI: move"], found["native: move"]
    print(f"an ACPI move: {acpi['beside_qmp_ms']} ms beside QMP, commits included; aim: {ACPI_MS} ms and its commits")
    share = native["beside_qmp_ms"] / native["p50_ms"]
    print(f"a native move: {share:.1%} beside QMP, commits included; aim: {NATIVE_SHARE:.0%} and its commits")


def by_step(times, found):
    """A table of all steps of all operations."""
    print(f"\n{'operation':<16}{'step':<12}{'p50':>10}{'p95':>10}")
    for what, steps in times.steps.items():
        found[what]["steps"] = {step: percentiles(seconds) for step, seconds in steps.items()}
        for step, took in found[what]["steps"].items():
            print(f"{what:<16}{step:<12}{took['p50_ms']:>7} ms{took['p95_ms']:>7} ms")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repetitions", type=int, default=20)
    repetitions = parser.parse_args().repetitions
    library = SUITE_DIR / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, ROOT / "fabric/pcie/tests/nvml.c"], check=True)
    image = initramfs(SUITE_DIR / "image", POOLWRIGHT_AGENT, [library])
    suite = Suite()
    lab = managed.Managed(suite, image, ("native", "second", "one", "other"))
    try:
        with bench.report("hotplug") as found:
            lab.start()
            times = Times(lab)
            for mode in MODES:
                few = repetitions if mode == "ACPI" else max(repetitions // 4, 3)
                floor(lab, times, mode, few)
                operations(lab, times, mode, few)
            for what, seconds in times.seconds.items():
                found[what] = percentiles(seconds)
                if what in times.commits:
                    found[what]["commits"] = sorted(times.commits[what])[len(times.commits[what]) // 2]
            shares(found)
            by_step(times, found)
            found["an idle agent"] = idle(lab)
            print(f"an idle agent: {found['an idle agent']}; aim: {IDLE_SHARE:.1%} of a core, {IDLE_MIB} MiB")
        if suite.failures:
            raise SystemExit("\n".join(suite.failures))
    finally:
        lab.stop()


main()
