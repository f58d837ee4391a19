"""A manager, started for a suite on an emulated rack: its address, its authority, its first password."""

import contextlib
import tempfile
from pathlib import Path

from rack import USER, Endpoint, rack_file
from suite import POOLWRIGHT, run, started


class Manager(Endpoint):
    """The Redfish service of a manager; `poolwright` runs the CLI against it."""

    def __init__(self, url, folder):
        self.authority_file, self.password_file = folder / "tls/ca.pem", folder / "initial-admin-password"
        super().__init__("manager", "manager", url, self.authority_file, self.password_file.read_text().strip())

    def poolwright(self, *arguments, **options):
        account = ("--server", self.url, "--ca", self.authority_file)
        account += ("--username", USER, "--password-file", self.password_file)
        return run(POOLWRIGHT, *arguments, *account, **options)


@contextlib.contextmanager
def served(rack, timeout=60):
    """Runs `poolwright serve --rack` on a rack of hw-profiles; yields the `Manager`."""
    with tempfile.TemporaryDirectory() as folder:
        command = [POOLWRIGHT, "serve", "--rack", rack_file(rack), "--listen", "127.0.0.1:0", "--data-dir", folder]
        with started(*command, ready=r"ready (https://\S+)", timeout=timeout, log=f"serve-{rack}.log") as ready:
            yield Manager(ready.group(1), Path(folder))
