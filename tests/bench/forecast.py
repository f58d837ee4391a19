"""Measures forecasts of GPUs wanted; started by tests/bench/forecast, which says what it prints."""

import argparse
import statistics
from pathlib import Path

import bench
from suite import POOLWRIGHT, SHARED, run

FILES = ("helios_earth_demand_10min.csv.gz", "philly_sep_oct.csv.gz", "muri_vc12.csv.gz", "alibaba_dlrm2025.csv.gz")
AHEAD = (1, 6, 24)
# What is aimed at: p90 suffices so often, with less too many than the peer.
COVERAGE = 0.88
# Series below so many GPUs in the mean say little: one job is all of them. Nor do those that hardly change: what the peer
# is off by, as a share of what is wanted.
LEAST, CHANGES = 4, 0.005


def measured(file):
    """What is measured of each tenant and horizon."""
    done = run(POOLWRIGHT, "forecast", "--from", file, "--ahead", ",".join(map(str, AHEAD)), "-o", "json", timeout=600)
    if done.code:
        raise SystemExit(f"the forecast failed: {done}")
    for tenant in done.json()["tenants"]:
        if tenant["mean"] < LEAST:
            continue
        for horizon in tenant["horizons"]:
            if horizon["measured"]:
                yield {"file": file.name.split(".")[0], "tenant": tenant["tenant"], "ahead": horizon["ahead"], **horizon["measured"]}


def ratio(one, what):
    ours, peer = one["ours"][what], one["last_value"][what]
    return ours / peer if peer else None


def shown(one):
    ours, peer = one["ours"], one["last_value"]
    figures = "".join(f"{ours[what]:>9.3f}{peer[what]:>9.3f}" for what in ("coverage", "over", "wape", "pinball90"))
    print(f"{one['file'][:16]:17}{one['tenant'][:12]:13}{one['ahead']:>4} h{figures}")


def summary(found):
    """By horizon: in how many series the bar is reached, and the medians of the ratios."""
    for ahead in AHEAD:
        rows = [one for one in found if one["ahead"] == ahead and one["last_value"]["wape"] >= CHANGES]
        covers = [one for one in rows if one["ours"]["coverage"] >= COVERAGE]
        peers = sum(one["last_value"]["coverage"] >= COVERAGE for one in rows)
        bar = sum(one["ours"]["over"] < one["last_value"]["over"] for one in covers)
        ratios = {what: [r for one in rows if (r := ratio(one, what)) is not None] for what in ("over", "wape", "pinball90")}
        medians = ", ".join(f"{what} {statistics.median(values):.3f} (to {max(values):.3f})" for what, values in ratios.items() if values)
        print(f"{ahead} h: coverage at least {COVERAGE} in {len(covers)} of {len(rows)} series (the peer: {peers}), "
              f"in {bar} of them with less too many than the peer; median (worst) ratio to the peer: {medians}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("files", nargs="*", type=Path)
    options = arguments.parse_args()
    files = options.files or ([SHARED / "traces" / name for name in FILES] if SHARED else [])
    if not files:
        raise SystemExit("no recorded demand: name files, or put them in ../shared/traces")
    with bench.report("forecast") as report:
        found = [one for file in files for one in measured(file)]
        print(f"\n{'':36}" + "".join(f"{head:>18}" for head in ("coverage", "too many", "WAPE", "pinball 0.9")))
        print(f"{'':36}" + f"{'ours':>9}{'peer':>9}" * 4)
        for one in found:
            shown(one)
        print(f"\nOf the series of which the last value is off by {CHANGES:.1%} or more:")
        summary(found)
        report["series"] = found


main()
