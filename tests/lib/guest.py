"""A Linux host in QEMU whose PCIe slots are real to its kernel: what is plugged in and out is done by QMP, and what the
host sees of it is asked over a serial line. It needs no rights and no KVM; it ends with the test, and by itself after
its limit."""

import base64
import json
import os
import shutil
import socket
import subprocess
import time
import uuid
from pathlib import Path

LIMIT_S = 900
DIES_WITH_ITS_PARENT = ("setpriv", "--pdeathsig", "KILL")
TESTS = Path(__file__).resolve().parents[1]


def kernel():
    """Debian's kernel, as tests/lib/install.sh unpacked it."""
    found = sorted((TESTS.parent / "target/guests/boot").glob("vmlinuz-*"))
    if not found:
        raise RuntimeError("target/guests/boot holds no kernel: tests/run hotplug unpacks one there")
    return found[-1]


# What drives a guest's network, in the order in which they need each other.
MODULES = (
    "drivers/virtio/virtio_ring", "drivers/virtio/virtio", "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci_modern_dev", "drivers/virtio/virtio_pci", "net/core/failover",
    "drivers/net/net_failover", "drivers/net/virtio_net",
)  # fmt: skip
# What makes errors on a link (tests/hotplug/failing.py).
MAKES_ERRORS = "drivers/pci/pcie/aer_inject"


def initramfs(folder, binary, libraries=()):
    """The file system of a guest: busybox, a program with its libraries, others where programs look for them, and modules
    of the kernel in /modules."""
    root = folder / "root"
    for name in ("bin", "proc", "sys", "dev", "usr/lib/x86_64-linux-gnu"):
        (root / name).mkdir(parents=True, exist_ok=True)
    shutil.copy(shutil.which("busybox"), root / "bin/busybox")
    shutil.copy(TESTS / "guests/init", root / "init")
    (root / "init").chmod(0o755)
    # Without debug information: with it, the program alone can fill the guest's memory.
    subprocess.run(["strip", "-o", root / "bin" / Path(binary).name, binary], check=True)
    (root / "modules").mkdir(exist_ok=True)
    kernels = next((TESTS.parent / "target/guests/lib/modules").iterdir())
    for module in (*MODULES, MAKES_ERRORS):
        shutil.copy(kernels / "kernel" / f"{module}.ko", root / "modules")
    for library in libraries:
        shutil.copy(library, root / "usr/lib/x86_64-linux-gnu")
    # Linked dynamically: NVML is loaded while the program runs.
    for line in subprocess.run(["ldd", binary], capture_output=True, text=True, check=True).stdout.splitlines():
        library = next((Path(word) for word in line.split() if word.startswith("/")), None)
        if library:
            place = root / library.relative_to("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, place)
    image = folder / "initrd"
    names = subprocess.run(["find", "."], cwd=root, capture_output=True, check=True).stdout
    with image.open("wb") as out:
        subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=names, stdout=out, check=True)
    return image


def network(port):
    """Arguments for QEMU: what comes to this port of loopback goes to 8444 of the guest."""
    return [
        "-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{port}-:8444",
        "-device", "virtio-net-pci,netdev=net,bus=pcie.0,addr=10.0",
    ]  # fmt: skip


class Guest:
    def __init__(self, folder, kernel, initrd, devices, native, memory_mib=512, options=""):
        """devices: arguments for QEMU; native: pciehp drives the slots, else ACPI does."""
        self.folder, self.process, self.uuid = folder, None, str(uuid.uuid4())
        mode = ["-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"] if native else []
        line = f"console=ttyS0 quiet no_timer_check panic=-1 rcupdate.rcu_cpu_stall_suppress=1 {options}"
        self.command = [
            # Whoever dies takes the next one along: the test, the limit, QEMU.
            *DIES_WITH_ITS_PARENT, "timeout", "--kill-after=5", str(LIMIT_S),
            *DIES_WITH_ITS_PARENT, "qemu-system-x86_64", "-machine", "q35", "-accel", "tcg", "-cpu", "qemu64,phys-bits=46", "-m", str(memory_mib),
            # Shared, as a device in another process needs it.
            "-object", f"memory-backend-memfd,id=ram,size={memory_mib}M,share=on", "-machine", "memory-backend=ram",
            "-uuid", self.uuid, "-display", "none", "-nodefaults", "-no-user-config", "-no-reboot",
            "-kernel", str(kernel), "-initrd", str(initrd), "-append", line,
            "-qmp", f"unix:{folder}/qmp,server=on,wait=off",
            # QEMU serves one client of a socket: this one is a manager's.
            "-qmp", f"unix:{folder}/fabric,server=on,wait=off",
            "-serial", f"file:{folder}/console.log",
            "-serial", f"unix:{folder}/shell,server=on,wait=off",
            *mode, *devices,
        ]  # fmt: skip

    def start(self):
        with open(self.folder / "qemu.log", "w") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        self.link = self.connect("qmp")
        self.monitor = self.link.makefile("rw")
        json.loads(self.monitor.readline())
        self.qmp("qmp_capabilities")
        self.shell = self.connect("shell")
        self.lines = self.shell.makefile("rb")

    def connect(self, name, limit=30):
        end = time.monotonic() + limit
        while True:
            link = socket.socket(socket.AF_UNIX)
            try:
                link.connect(str(self.folder / name))
                return link
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError("QEMU: " + (self.folder / "qemu.log").read_text()[-800:]) from None
                time.sleep(0.01)

    def ready(self, limit=120):
        self.shell.settimeout(limit)
        while b"READY" not in (line := self.lines.readline()):
            if not line:
                raise RuntimeError("the guest ended: " + (self.folder / "console.log").read_text()[-800:])

    def qmp(self, command, **arguments):
        self.monitor.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.monitor.flush()
        return self.answer(command)

    def answer(self, command):
        while True:
            answer = json.loads(self.monitor.readline())
            if "event" in answer:
                continue
            if "error" in answer:
                raise RuntimeError(f"{command}: {answer['error']['desc']}")
            return answer["return"]

    def plug_gpu(self, gpu, name, port):
        """Plugs in a GPU of tests/lib/gpu.py."""
        with gpu.plug() as theirs:
            order = json.dumps({"execute": "getfd", "arguments": {"fdname": name}}) + "\n"
            socket.send_fds(self.link, [order.encode()], [theirs.fileno()])
            self.answer("getfd")
        self.qmp("device_add", driver="x-pci-proxy-dev", id=name, bus=port, fd=name)

    def has(self, device):
        """Whether a device is plugged in, for QEMU: it lets go of one some time after the guest did."""
        plugged = self.qmp("qom-list", path="/machine/peripheral")
        return any(entry["name"] == device for entry in plugged)

    def sh(self, line, limit=60):
        """Runs a line in the guest; returns its status and what it printed."""
        self.shell.settimeout(limit)
        self.shell.sendall(line.encode() + b"\n")
        said = b""
        while True:
            got = self.lines.readline()
            if not got:
                raise RuntimeError("the guest ended: " + (self.folder / "console.log").read_text()[-800:])
            if got.startswith(b"\x04"):
                return int(got[1:]), said.decode(errors="replace").strip()
            said += got

    def join_network(self):
        """A network with the test's machine alone, which is 10.0.2.2 there; for guests with `network` among their devices."""
        names = [module.rsplit("/")[-1] for module in MODULES]
        lines = [f"insmod /modules/{name}.ko" for name in names]
        lines += ["ifconfig lo up", "ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up"]
        status, said = self.sh(" && ".join(lines))
        if status != 0:
            raise RuntimeError(f"no network: {said}")

    def reset(self):
        """Its kernel starts anew, as by a push of the reset button; what is plugged in stays so."""
        self.qmp("set-action", reboot="reset")
        self.qmp("system_reset")
        # Its firmware asks for another reset.
        self.ready()
        self.qmp("set-action", reboot="shutdown")

    def put(self, path, text):
        """Writes a small file there."""
        encoded = base64.b64encode(text.encode()).decode()
        if self.sh(f"echo {encoded} | base64 -d >{path}")[0] != 0:
            raise RuntimeError(f"{path} was not written")

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
