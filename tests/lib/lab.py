"""A lab (docs/LAB.md): guests of QEMU as hosts, devices that come and go between them, and a manager that binds them."""

import subprocess
import time

from manager import Manager
from suite import POOLWRIGHT, ROOT, stop, wait_until


def lab_file(folder, guests, devices):
    """Writes the file; guests by their names, each with its ports in the order of their slots."""
    lines = []
    for name, guest in guests.items():
        ports = [f'{{ id = "{port}", slot = "{slot}" }}' for slot, port in enumerate(guest.ports, 1)]
        lines += ["[[host]]", f'id = "{name}"', f'uuid = "{guest.uuid}"', f'qmp = "{guest.folder}/fabric"']
        lines += [f"port = [{', '.join(ports)}]", ""]
    for name, settings in devices.items():
        lines += ["[[gpu]]", f'id = "{name}"', *(f"{key} = {value}" for key, value in settings.items()), ""]
    file = folder / "lab.toml"
    file.write_text("\n".join(lines))
    return file


class LabManager:
    """A manager that can be killed and started again on what it kept."""

    def __init__(self, folder, log, options=()):
        """options: what else it is started with."""
        self.folder, self.log, self.options, self.process, self.api = folder, log, options, None, None

    def start(self, confirm="20s"):
        """confirm: for so long a host may take until it sees what was bound to it."""
        command = [POOLWRIGHT, "serve", "--listen", "127.0.0.1:0", "--data-dir", self.folder, "--request-deadline", "20s"]
        # The lab's file lies beside the manager's own folder.
        command += ["--confirm-deadline", confirm, "--endpoint-files", self.folder.parent, *self.options]
        # As guests know this machine.
        command += ["--name", "10.0.2.2"]
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [str(word) for word in command], stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=ROOT,
                start_new_session=True,
            )  # fmt: skip

        def address():
            said = self.log.read_bytes()[before:].decode(errors="replace")
            lines = [line for line in said.splitlines() if line.startswith("ready https://")]
            return lines and lines[0].split()[1]

        self.api = Manager(wait_until(address, 60, "the manager", self.process, self.log), self.folder)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process is not None:
            stop(self.process)

    def poolwright(self, *arguments, **options):
        return self.api.poolwright(*arguments, **options)

    def get(self, what):
        return self.poolwright("get", what, "-o", "json").json()

    def gpu(self, serial):
        return next(gpu for gpu in self.get("gpus") if gpu["serial"] == serial)

    def host(self, uuid):
        return next(host for host in self.get("hosts") if host["uuid"] == uuid)

    def until(self, what, is_so, limit=90):
        """Waits until something is so, and gives it."""
        end = time.monotonic() + limit
        while not (found := is_so()):
            if time.monotonic() > end:
                latest = max(self.get("operations"), key=lambda one: one["created"], default=None)
                told = {key: latest[key] for key in ("kind", "state", "stop", "waiting_for")} if latest else None
                raise RuntimeError(f"waited {limit} s for this: {what}; the last operation: {told}")
            time.sleep(0.1)
        return found
