"""Problems over time of any size, for the benchmark of the planner: the same seed gives the same problem.

Sizes and lengths of demands are those of recorded training clusters, roughly: four in ten want eight GPUs, a quarter want
one, and few run long. Memory classes, weights, watts and what is attached at first are made up."""

import math
import random

KINDS = {"T24": (24, 150, 25), "T40": (40, 300, 50), "T80": (80, 400, 60)}
SHARES = {"T24": 0.45, "T40": 0.35, "T80": 0.2}
COSTS = {
    "unmet_per_gpu_slot": 500,
    "attach": 60,
    "detach": 20,
    "host_fire_up": 100,
    "hop_per_gpu_slot": 2,
    "energy_per_kwh": 100,
}
SLOTS_OF_A_HOST = 8
GPUS_OF_A_SWITCH = 128


def pool(gpus, slots=96, seed=1):
    """A pool of so many GPUs, a host for every four, a demand for every other; now and then it is short of GPUs."""
    dice = random.Random(seed)
    switches = max(2, gpus // GPUS_OF_A_SWITCH)
    hosts = [
        {
            "id": f"h{index}",
            "slots": SLOTS_OF_A_HOST,
            "switch": f"s{index % switches}",
            "host_on_w": 350,
            "host_idle_w": 150,
        }
        for index in range(gpus // 4)
    ]
    demands = [demand(index, slots, dice) for index in range(gpus * 2000 // 4096)]
    kinds = shares(demands, slots, gpus)
    room = {host["id"]: SLOTS_OF_A_HOST for host in hosts}
    units = []
    for kind, count in kinds.items():
        memory, active, idle = KINDS[kind]
        for index in range(count):
            at = dice.choice(hosts)["id"] if dice.random() < 0.5 else None
            if at and room[at] == 0:
                at = None
            if at:
                room[at] -= 1
            units.append(
                {
                    "id": f"{kind}-{index}",
                    "type": kind,
                    "mem_gb": memory,
                    "switch": f"s{index % switches}",
                    "active_w": active,
                    "idle_w": idle,
                    "attached_to": at,
                }
            )
    return {
        "schema": "cps-1",
        "horizon_slots": slots,
        "slot_s": 1800,
        "hosts": hosts,
        "gpus": units,
        "demands": demands,
        "costs": COSTS,
    }


def demand(index, slots, dice):
    length = min(slots, max(1, round(slots * 0.45 * dice.lognormvariate(0, 0.8))))
    start = min(slots - 1, max(0, dice.randrange(-length + 1, slots)))
    return {
        "id": f"d{index}",
        "tenant": f"t{dice.randrange(16)}",
        "start": start,
        "end": min(slots, start + length),
        "gpus": dice.choices((1, 2, 4, 8), (0.25, 0.15, 0.2, 0.4))[0],
        "min_mem_gb": KINDS[dice.choices(list(SHARES), list(SHARES.values()))[0]][0],
        "weight": dice.choice((1, 2, 4)),
    }


def shares(demands, slots, gpus):
    """GPUs by kind: in proportion to the most that is wanted of each at a time."""
    peak = {}
    for kind, (memory, _, _) in KINDS.items():
        wanted = [0] * slots
        for one in demands:
            if one["min_mem_gb"] == memory:
                for slot in range(one["start"], one["end"]):
                    wanted[slot] += one["gpus"]
        peak[kind] = max(wanted)
    everything = sum(peak.values())
    kinds = {kind: math.floor(gpus * most / everything) for kind, most in peak.items()}
    kinds["T24"] += gpus - sum(kinds.values())
    return kinds


def with_one_change(problem):
    """The same a moment later: one demand is gone, and another has come."""
    changed = dict(problem, demands=[dict(one) for one in problem["demands"]])
    gone = changed["demands"].pop(len(changed["demands"]) // 2)
    changed["demands"].append(dict(gone, id="come", start=0, end=problem["horizon_slots"] // 2, gpus=4, weight=4))
    return changed
