"""What the benchmarks share: the report of one run, with the machine that it was found on."""

import contextlib
import json
import os
import platform

from suite import ROOT


@contextlib.contextmanager
def report(name):
    """What is put in becomes reports/bench-NAME.json, with the load before and after. Nothing is written of a run that fails."""
    machine = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0], "kernel": platform.release()}
    found = {"machine": machine}
    yield found
    machine["load_after"] = os.getloadavg()[0]
    print(f"\nload before {machine['load_before']:.1f}, after {machine['load_after']:.1f}")
    file = ROOT / f"reports/bench-{name}.json"
    file.write_text(json.dumps(found, indent=1))
    print(file.relative_to(ROOT))
