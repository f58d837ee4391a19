"""Measures planning over time; started by tests/bench/planner, which says what it prints."""

import argparse
import json
import statistics
import sys
from importlib.metadata import version
from pathlib import Path

import bench
import pools
from suite import POOLWRIGHT, SHARED, SUITE_DIR, run

BENCH = Path(POOLWRIGHT).parent / "examples/bench-planner"
CPSAT = Path(__file__).with_name("cpsat.py")
# What is aimed at.
FIRST_S, SHORT_S, LONG_S, ABOVE, AGAIN_S = 1, 5, 60, 0.05, 0.2
GPUS = 4096
GROWTH = (64, 512, 4096, 16384, 65536)
# The checker looks at every group at every host in every slot: more than so many take it longer than all else here.
CELLS = 20_000_000
# When cost and bound are compared with the peer's.
MOMENTS = (0.1, 0.5, 2, 10)


def aim(what, found, aimed):
    """Prints an aim beside what came of it."""
    print(f"{what}: {found:.3f}; aim: at most {aimed}: {'reached' if found <= aimed else 'MISSED'}")


def planned(file, seconds, *more):
    """A plan of ours, judged; the report and the solution's file."""
    solution = SUITE_DIR / f"{file.stem}-{seconds}.solution.json"
    done = run(BENCH, file, "--seconds", seconds, "--save", solution, *more, timeout=60 + 20 * seconds)
    if done.code:
        sys.exit(f"the benchmark failed: {done}")
    found = done.json()
    judged(file, solution, found["cost"])
    return found, solution


def judged(file, solution, cost, exact=True):
    """Ends the run if the checker finds another cost than is said; or a higher one, where nobody adds up `exact`ly."""
    if SHARED is None or beyond_checker(file):
        return
    checked = run(sys.executable, SHARED / "planning/check.py", file, solution, timeout=300)
    more = 0 if checked.code else checked.json()["objective"] - cost
    if checked.code or more > 0.01 or (exact and more < -0.01):
        sys.exit(f"{file.name} at {cost}: the checker says otherwise: {checked}")


def beyond_checker(file):
    """Whether a problem is left to the planner's own check, which every plan passes before it is measured; says so."""
    problem = json.loads(file.read_text())
    groups = len({(gpu["type"], gpu["switch"]) for gpu in problem["gpus"]})
    cells = len(problem["hosts"]) * groups * problem["horizon_slots"]
    if cells > CELLS:
        print(f"{file.stem}: not judged by the instances' checker ({cells / 1e6:,.0f} million cells), only by the planner's own")
    return cells > CELLS


def written(problem, name):
    file = SUITE_DIR / f"{name}.json"
    file.write_text(json.dumps(problem))
    return file


def reached(steps, moment, best=min):
    """What was reached by then, of (when, what)."""
    return best((what for when, what in steps if when <= moment), default=None)


def pool(_):
    """The large pool."""
    problem = pools.pool(GPUS)
    file = written(problem, "pool")
    short, solution = planned(file, SHORT_S)
    long, _ = planned(file, LONG_S)
    anew = {}
    after = written(pools.with_one_change(problem), "pool-after-a-change")
    for what, seconds in {"first": 0, "searched": AGAIN_S}.items():
        found, again = planned(after, seconds, "--previous", solution)
        anew[what] = {"seconds": found["solve_s"], "cost": found["cost"], "moved": moved(solution, again)}
    above = short["cost"] / long["cost"] - 1
    print(f"\n{GPUS} GPUs, {short['hosts']} hosts, {problem['horizon_slots']} slots, {short['demands']} demands")
    print(f"first plan: {short['better'][0][1]:,.0f}; after {SHORT_S} s {short['cost']:,.0f}, after {LONG_S} s {long['cost']:,.0f}")
    print(f"at least {long['bound']:,.0f} is needed: gap {100 * short['gap']:.1f} % after {SHORT_S} s, {100 * long['gap']:.1f} % after {LONG_S} s")
    aim("seconds to a first plan", short["better"][0][0], FIRST_S)
    aim(f"cost after {SHORT_S} s above that after {LONG_S} s, as a share", above, ABOVE)
    print(f"after one change: placed in {anew['first']['seconds']:.3f} s, {anew['first']['moved']} of the others moved; "
          f"with {AGAIN_S} s {anew['searched']['moved']} moved, to save {anew['first']['cost'] - anew['searched']['cost']:,.0f}")
    aim("seconds to a plan after one change", anew["first"]["seconds"], AGAIN_S)
    return {"short": short, "long": long, "above": above, "anew": anew}


def moved(before, after):
    """Demands that are in both solutions, and have other GPUs or another host in the second."""
    was, now = ({one["demand"]: one for one in json.loads(file.read_text())["assignment"]["demands"]} for file in (before, after))
    return sum(1 for name, one in was.items() if one["host"] and name in now and now[name] != one)


def growth(options):
    """From a small pool to a large one."""
    print(f"\n{'GPUs':>8}{'demands':>9}{'groups':>8}{'first s':>9}{'gap %':>8}{'gap % after ' + str(options.seconds) + ' s':>19}{'check s':>9}{'rounds':>9}")
    figures = []
    for gpus in GROWTH:
        found, _ = planned(written(pools.pool(gpus), f"pool-of-{gpus}"), options.seconds)
        first = found["better"][0]
        print(f"{gpus:>8}{found['demands']:>9}{found['groups']:>8}{first[0]:>9.3f}{100 * (1 - found['bound'] / first[1]):>8.1f}"
              f"{100 * found['gap']:>19.1f}{found['check_s']:>9.3f}{found['rounds']:>9}")
        figures.append(found)
    per_demand = [one["better"][0][0] / one["demands"] * 1e6 for one in figures[-3:]]
    print(f"microseconds a demand to a first plan, the largest three: {', '.join(f'{one:.0f}' for one in per_demand)}")
    return figures


def peer(options):
    """Cost and bound over time beside CP-SAT, on the same instances."""
    folder = options.instances or (SHARED and SHARED / "planning/instances")
    files = sorted(folder.glob("*[0-9].json")) if folder else []
    if not files:
        print("\npeer: left out, for there are no instances (put them in ../shared/planning)")
        return None
    print(f"\nBeside OR-tools CP-SAT {version('ortools')}, one thread each: cost (gap to the better bound of both, %) after so many seconds")
    heads = "".join(f"{f'{who} {moment} s':>20}" for moment in MOMENTS for who in ("ours", "peer"))
    print(f"{'':10}{heads}{'bounds, ours/peer':>26}")
    return {file.stem: beside(file) for file in files}


def beside(file):
    last = MOMENTS[-1]
    ours = {moment: planned(file, moment)[0] for moment in MOMENTS}
    solution = SUITE_DIR / f"{file.stem}-peer.solution.json"
    done = run(sys.executable, CPSAT, file, last, solution, timeout=120 + 20 * last)
    if done.code:
        sys.exit(f"the peer failed: {done}")
    theirs = done.json()
    if theirs["cost"] is not None:
        # Before it is optimal, a plan of the model may pay for what it need not do.
        judged(file, solution, theirs["cost"], exact=False)
    bound = max(theirs["bound"], *(one["bound"] for one in ours.values()))
    row, figures = "", {"ours": ours, "peer": theirs, "ratio": {}}
    for moment in MOMENTS:
        mine, other = ours[moment]["cost"], reached(theirs["better"], moment)
        figures["ratio"][moment] = mine / other if other else None
        for cost in (mine, other):
            row += f"{f'{cost:,.1f} ({100 * (1 - bound / cost):.1f})' if cost else 'none':>20}"
    bounds = f"{ours[last]['bound']:,.1f}/{theirs['bound']:,.1f}"
    print(f"{file.stem:10}{row}{bounds:>26}", flush=True)
    lowest = min([theirs["cost"] or float("inf"), *(one["cost"] for one in ours.values())])
    if bound > lowest + 0.01:
        sys.exit(f"{file.name}: a bound of {bound} is above a cost of {lowest}")
    return figures


def summary(figures):
    for moment in MOMENTS:
        ratios = [one["ratio"][moment] for one in figures.values()]
        found = [ratio for ratio in ratios if ratio]
        if found:
            print(f"cost beside the peer's after {moment} s: median {statistics.median(found):.3f}, from {min(found):.3f} to {max(found):.3f}; "
                  f"on {len(ratios) - len(found)} of {len(ratios)} the peer had none")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", choices=["pool", "growth", "peer"])
    arguments.add_argument("--seconds", type=float, default=5, help="for each size of growth")
    arguments.add_argument("--instances", type=Path)
    options = arguments.parse_args()
    with bench.report("planner") as found:
        for part in (pool, growth, peer):
            if options.only in (None, part.__name__):
                found[part.__name__] = part(options)
        if found.get("peer"):
            summary(found["peer"])


main()
