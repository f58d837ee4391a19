"""An emulated rack, started for a suite: its endpoints, its authority, its password."""

import contextlib
import json
import tempfile
from pathlib import Path

import requests
from suite import POOLWRIGHT, ROOT, started, wait_until

USER = "admin"


class Endpoint:
    """One Redfish service of the rack, and a client for it that trusts the rack's authority alone."""

    def __init__(self, name, kind, url, authority, password):
        self.name, self.kind, self.url = name, kind, url.rstrip("/")
        self.authority, self.password = authority, password
        self.client = requests.Session()
        self.client.trust_env = False  # no proxy, no authority of the environment
        self.client.verify = str(authority) if authority else False
        self.client.auth = (USER, password)

    def request(self, method, uri, **options):
        return self.client.request(method, self.url + uri, timeout=30, allow_redirects=False, **options)

    def at(self, url):
        """The same service behind another address, such as that of a proxy."""
        return Endpoint(self.name, self.kind, url, None, self.password)

    def resources(self):
        """Every resource that links lead to from the service root: URI → document."""
        found, queue = {}, ["/redfish/v1"]
        while queue:
            uri = queue.pop()
            if uri in found:
                continue
            answer = self.request("GET", uri)
            if answer.status_code != 200:
                continue
            found[uri] = answer.json()
            queue += [link for link in links(found[uri]) if link not in found]
        return found


def links(value):
    """Every `@odata.id` in a document that leads to another resource, without a fragment."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in ("@odata.id", "Members@odata.nextLink") and isinstance(inner, str):
                if inner.startswith("/redfish/v1") and "#" not in inner:
                    yield inner.rstrip("/")
            else:
                yield from links(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from links(inner)


def rack_file(name):
    return ROOT / f"hw-profiles/racks/{name}.toml"


class Rack:
    """What `poolwright emulate` wrote into its data directory."""

    def __init__(self, folder):
        self.listing = folder / "endpoints.json"
        self.authority = folder / "ca.pem"
        self.password_file = folder / "password"

    def endpoints(self):
        password = self.password_file.read_text().strip()
        return [
            Endpoint(entry["name"], entry["kind"], entry["url"], self.authority, password)
            for entry in json.loads(self.listing.read_text())["endpoints"]
        ]


@contextlib.contextmanager
def emulated(name, timeout=60):
    """Runs `poolwright emulate` on a rack of hw-profiles; yields the `Rack`."""
    with tempfile.TemporaryDirectory() as folder:
        rack = Rack(Path(folder))
        command = [POOLWRIGHT, "emulate", "--rack", rack_file(name)]
        command += ["--listen", "127.0.0.1:0", "--data-dir", folder]
        with started(*command, ready="ready", timeout=timeout, log=f"emulate-{name}.log"):
            wait_until(rack.listing.is_file, 10, f"{rack.listing} to be written")
            yield rack
