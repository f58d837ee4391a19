"""Stories of a manager whose hosts are guests of QEMU: GPUs come and go by its commands, and kernels plug for real.

There is no agent in the guests yet (tests/hotplug/with_agents.py): what the kernel sees is asked over their serial lines."""

import contextlib
import errno
import socket
import time

from gpu import Gpu
from guest import Guest, kernel, network
from lab import LabManager, lab_file
from suite import FULL, PLANTED, SUITE_DIR, free_port

SERIAL = "1650000000001"
DISK_SERIAL = "1650000000002"
ERRING_SERIAL = "1650000000003"
# As the stand-in for NVML names what is at 0000:01:00.0.
UUID = "GPU-00000000-0000-0000-0000-000001000000"
MOVES, NATIVE_MOVES = (56, 4) if FULL else (2, 2)
# A guest whose slots its kernel drives, and two whose firmware does.
NATIVE, ONE, OTHER = "native", "one", "other"
# One whose port has no room for a GPU.
CRAMPED = "cramped"
WITH_NATIVE_SLOTS = (NATIVE, "second")


class Managed:
    """Guests, one GPU, and a manager."""

    def __init__(self, suite, image, names=(NATIVE, ONE, OTHER, CRAMPED), options=()):
        """options: what its manager is started with."""
        # The fault to be noticed: a link that has trained down.
        self.suite, self.image, self.gpu = suite, image, Gpu(lanes=8 if PLANTED else 16)
        self.folder = SUITE_DIR / "lab"
        self.folder.mkdir(parents=True)
        self.gpu.listen(self.folder / "gpu-a.sock")
        self.guests = {name: self.guest(name) for name in names}
        device = {
            "model": '"NVIDIA H100 PCIe"', "memory": '"80GiB"', "pci": '"10de:2330"', "serial": f'"{SERIAL}"',
            "uuid": f'"{UUID}"',
            "device": '{ driver = "x-pci-proxy-dev" }', "socket": '"gpu-a.sock"',
        }  # fmt: skip
        # Whatever can be plugged in can be pooled, and one guest can mount this.
        disk = {
            "model": '"Lab disk"', "memory": '"16MiB"', "serial": f'"{DISK_SERIAL}"',
            "device": '{ driver = "nvme", drive = "pooled", serial = "pooled" }',
        }  # fmt: skip
        # Its link can err (tests/hotplug/failing.py).
        erring = {
            "model": '"Lab accelerator"', "memory": '"16MiB"', "serial": f'"{ERRING_SERIAL}"',
            "device": '{ driver = "virtio-blk-pci", class = 0x1200, aer = true, drive = "erring" }',
        }  # fmt: skip
        self.file = lab_file(self.folder, self.guests, {"gpu-a": device, "disk-a": disk, "accelerator": erring})
        self.manager = LabManager(self.folder / "manager", SUITE_DIR / "lab-manager.log", options)

    def guest(self, name):
        folder = self.folder / name
        folder.mkdir()
        window = "2M" if name == CRAMPED else "256G"
        port = f"pcie-root-port,id=slot1,bus=pcie.0,chassis=1,slot=1,addr=1.0,pref64-reserve={window}"
        agent_at = free_port()
        disks = []
        for disk in ("kept", "pooled", "erring"):
            (folder / disk).write_bytes(bytes(16 << 20))
            disks += ["-blockdev", f"driver=file,node-name={disk},filename={folder / disk}"]
        # What a host keeps when it starts again.
        disks += ["-device", "nvme,drive=kept,serial=kept,bus=pcie.0,addr=11.0"]
        devices = ["-device", port, *disks, *network(agent_at)]
        guest = Guest(folder, kernel(), self.image, devices, native=name in WITH_NATIVE_SLOTS)
        guest.ports, guest.agent_at = ["slot1"], f"127.0.0.1:{agent_at}"
        return guest

    def start(self):
        for guest in self.guests.values():
            guest.start()
        self.manager.start()
        for guest in self.guests.values():
            guest.ready()
        self.add()

    def add(self):
        """The manager is told of the lab, and what it calls everything there is kept."""
        added = self.manager.poolwright("endpoint", "add", "lab", "--url", f"qemu://{self.file}", "--adopt")
        if added.code != 0:
            raise RuntimeError(str(added))
        self.learn()

    def learn(self):
        self.name, self.disk = (self.manager.gpu(serial)["id"] for serial in (SERIAL, DISK_SERIAL))
        self.hosts = {name: self.manager.host(guest.uuid)["id"] for name, guest in self.guests.items()}

    @contextlib.contextmanager
    def managed_by(self, other):
        """Another manager has the lab for a while, which the caller starts; it is stopped here."""
        own = self.manager
        own.stop()
        self.manager = other
        try:
            yield other
        finally:
            other.stop()
            self.manager = own
            own.start()
            self.learn()

    def stop(self):
        self.manager.stop()
        for guest in self.guests.values():
            guest.stop()

    def check(self, ok, what, why=""):
        return self.suite.check(ok, f"manager: {what}", why if ok else f"{self.agents()}{why}")

    def agents(self):
        """What those that were started say, and whether they run; a kernel that ended one says so, too."""
        told = ""
        for name, guest in self.guests.items():
            if hasattr(guest, "agent") and guest.process.poll() is None:
                look = "kill -0 $(cat /tmp/agent.pid) 2>&1 && echo runs; tail -n 4 /tmp/agent.log; dmesg | tail -n 4"
                told += f"[agent of {name}: {guest.sh(look)[1]}] "
        return told

    def ask(self, verb, *arguments, of=None):
        """Of the GPU, where nothing else is named."""
        return self.manager.poolwright(verb, of or self.name, *arguments)

    def attach(self, guest, **of):
        return self.ask("attach", "--host", self.hosts[guest], **of)

    def move(self, guest):
        return self.ask("move", "--host", self.hosts[guest], "--yes")

    def detach(self, **of):
        return self.ask("detach", "--yes", **of)

    def ended_well(self, asked, what):
        return self.check(asked.code == 0, what, asked)

    def where(self):
        """The guest that the manager says it is at, and the state."""
        gpu = self.manager.gpu(SERIAL)
        names = [name for name, host in self.hosts.items() if host == gpu["host"]]
        return (names or [None])[0], gpu["state"]

    def seen_by(self):
        """The guests whose kernels see it."""
        path = "/sys/bus/pci/devices/0000:01:00.0"
        running = {name: guest for name, guest in self.guests.items() if guest.process.poll() is None}
        return [name for name, guest in running.items() if guest.sh(f"test -e {path}")[0] == 0]

    def is_on(self, guest):
        return self.manager.host(self.guests[guest].uuid)["power_state"] == "on"

    def is_at(self, guest, what):
        """The manager and the kernels say the same; a kernel may be a moment behind QEMU."""
        expected = [guest] if guest else []
        self.manager.until(f"{what}: seen by {expected}", lambda: self.seen_by() == expected)
        self.suite.equal(self.where()[0], guest, f"manager: {what}: where it is")

    def over(self, what):
        """Waits until no operation is at work any more."""
        def at_work():
            return [one for one in self.manager.get("operations") if one["ended"] is None]

        self.manager.until(what, lambda: not at_work())

    def last_step(self, verb):
        """Of the operation that was begun last."""
        latest = max(self.manager.get("operations"), key=lambda one: one["created"])
        return next(step for step in latest["steps"] if step["verb"] == verb)

    def until_it_waits_for(self, words):
        """Until an operation says that it waits for something with these words in it."""
        def waits():
            steps = [step for one in self.manager.get("operations") for step in one["steps"]]
            return [step for step in steps if words in (step["waiting_for"] or "")]

        self.manager.until(f"an operation waits for {words!r}", waits)

    def until_asked_to_let_go(self):
        """Until a detach that was begun has come to its guest."""
        def asked():
            steps = [step for one in self.manager.get("operations") for step in one["steps"]]
            return [step for step in steps if (step["verb"], step["state"]) == ("unbind", "running")]

        self.manager.until("a guest is asked to let go", asked)

    def kill_guest(self, name):
        """Until nobody listens any more where its manager asks."""
        guest = self.guests[name]
        guest.process.kill()
        guest.process.wait()

        def is_gone():
            with socket.socket(socket.AF_UNIX) as link:
                return link.connect_ex(str(guest.folder / "fabric")) == errno.ECONNREFUSED

        self.manager.until(f"{name} is dead", is_gone)

    def restart_guest(self, name):
        guest = self.guests[name]
        guest.stop()
        for name in ("qmp", "fabric", "shell"):
            (guest.folder / name).unlink(missing_ok=True)
        guest.start()
        guest.ready()


def coming_and_going(lab):
    """Attached and detached at each guest; the kernel there says that it is usable."""
    for name in (NATIVE, ONE, OTHER):
        lab.ended_well(lab.attach(name), f"{name}: attached")
        lab.is_at(name, f"{name}: attached")
        status, said = lab.guests[name].sh("poolwright-agent verify 0000:01:00.0 --ids 10de:2330 --bars 3 --link 16x16")
        lab.check(status == 0, f"{name}: its kernel can use it", said)
        again = lab.attach(name)
        lab.check(again.code != 0, f"{name}: what is attached is not attached again", again)
        lab.ended_well(lab.detach(), f"{name}: detached")
        lab.is_at(None, f"{name}: detached")


def moving(lab):
    """Moves in a row, most between two guests whose firmware drives the slots: sixty with --full."""
    lab.ended_well(lab.attach(ONE), "attached before the moves")
    targets = [(OTHER, ONE)[number % 2] for number in range(MOVES)]
    targets += [(NATIVE, ONE)[number % 2] for number in range(NATIVE_MOVES)]
    times = {True: [], False: []}
    at = ONE
    for number, target in enumerate(targets, 1):
        began = time.monotonic()
        moved = lab.move(target)
        times[NATIVE in (at, target)].append(time.monotonic() - began)
        if not lab.ended_well(moved, f"move {number} to {target}"):
            break
        at = target
    lab.is_at(ONE, "after all moves")
    for native, seconds in times.items():
        mode = "with a native slot" if native else "ACPI"
        lab.suite.evidence[f"manager: median seconds of a move, {mode}"] = round(sorted(seconds)[len(seconds) // 2], 3)
    lab.ended_well(lab.detach(), "detached after the moves")


def guest_killed(lab):
    """A guest that hangs and then dies, while it should let go of a GPU."""
    lab.ended_well(lab.attach(OTHER), "attached to a guest that will die")
    guest = lab.guests[OTHER]
    guest.qmp("stop")
    asked = lab.ask("detach", "--yes", "--no-wait")
    lab.check(asked.code == 0, "a detach goes on without whoever asked", asked)
    lab.until_asked_to_let_go()
    lab.kill_guest(OTHER)
    lab.over("the detach ends with the guest")
    lab.suite.equal(lab.where(), (None, "free"), "manager: the GPU of a dead guest")
    faults = lab.manager.poolwright("endpoint", "test", "lab", "-o", "json").json()
    lab.check(faults["faults"] >= 1, "a guest that does not run is told", faults)
    refused = lab.attach(OTHER)
    # Before or after the manager has looked again: it knows, or it is told by the fabric and undoes it.
    why = [words for words in ("not powered on", "guest other") if words in refused.err]
    lab.check(refused.code != 0 and why, "nothing comes to a guest that is dead", refused)
    lab.restart_guest(OTHER)
    # After each operation the manager looks at the lab again; by the clock it does so every five minutes.
    lab.ended_well(lab.attach(ONE), "the GPU goes to another guest")
    lab.is_at(ONE, "after a guest died")
    lab.ended_well(lab.detach(), "and comes back")
    lab.manager.until("the manager has seen that the guest is back", lambda: lab.is_on(OTHER))
    lab.ended_well(lab.attach(OTHER), "a guest that is back takes it")
    lab.is_at(OTHER, "with the guest that is back")
    lab.ended_well(lab.detach(), "and gives it back")


def manager_killed(lab):
    """A manager that dies while a guest is asked to let go; what it began is finished by the next."""
    lab.ended_well(lab.attach(ONE), "attached before the manager dies")
    guest = lab.guests[ONE]
    guest.qmp("stop")
    lab.ask("detach", "--yes", "--no-wait")
    lab.until_asked_to_let_go()
    lab.manager.kill()
    guest.qmp("cont")
    lab.manager.start()
    lab.over("the next manager ends what was begun")
    lab.suite.equal(lab.where(), (None, "free"), "manager: the GPU after the manager was killed")
    lab.is_at(None, "after the manager was killed")
    lab.ended_well(lab.attach(OTHER), "the next manager attaches it")
    lab.is_at(OTHER, "with the next manager")
    lab.ended_well(lab.detach(), "and detaches it")


STORIES = (coming_and_going,) if PLANTED else (coming_and_going, moving)
WITH_KILLS = (guest_killed, manager_killed)
