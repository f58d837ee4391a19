"""Problems over time of shapes that recorded ones seldom have, for the benchmark of the planner: demands that are no powers
of two, hosts of unequal size, many types, pools that are tight or ample, and costs of other proportions. The same seed gives
the same problem.

    shapes.py FOLDER [SEED]

writes one file in the schema cps-1 for each shape."""

import json
import random
import sys
from pathlib import Path

TYPES = [("T16", 16, 70, 15), ("T24", 24, 150, 25), ("T40", 40, 300, 50), ("T48", 48, 280, 45), ("T80", 80, 400, 60), ("T141", 141, 700, 80)]
COSTS = {"unmet_per_gpu_slot": 500, "attach": 60, "detach": 20, "host_fire_up": 100, "hop_per_gpu_slot": 2, "energy_per_kwh": 100}
# What differs from this in each shape.
USUAL = {
    "hosts": [8, 8, 8, 8],
    "slots": 24,
    "demands": 24,
    "sizes": [1, 2, 4, 8],
    "types": ["T24", "T40", "T80"],
    "switches": 2,
    "pool": 0.9,
    "longest": 0.6,
    "attached": 0.5,
    "costs": {},
}
SHAPES = {
    "odd": {"sizes": [1, 2, 3, 5, 6, 7], "hosts": [5, 7, 9, 12]},
    "thirds": {"sizes": [3, 5], "hosts": [8, 8, 8, 8, 8], "pool": 1.0},
    "unequal": {"hosts": [2, 3, 4, 6, 10, 16], "sizes": [1, 2, 3, 4, 6, 10], "demands": 32},
    "wide": {"sizes": [6, 7, 8], "demands": 16, "longest": 0.4},
    "types": {"types": [name for name, *_ in TYPES], "switches": 3, "hosts": [12] * 4, "demands": 36},
    "tight": {"pool": 0.6, "demands": 30},
    "ample": {"pool": 1.6, "demands": 30, "hosts": [12] * 5},
    "short": {"slots": 72, "longest": 0.08, "demands": 60},
    "moving": {"costs": {"attach": 600, "detach": 300}, "attached": 0.9},
    "cheap": {"costs": {"unmet_per_gpu_slot": 40}, "demands": 30},
    "hops": {"costs": {"hop_per_gpu_slot": 60}, "switches": 4, "hosts": [10] * 4},
    "fires": {"costs": {"host_fire_up": 3000}, "hosts": [8] * 8, "longest": 0.3},
    "large": {"hosts": [6, 8, 10, 12] * 5, "demands": 160, "slots": 36, "sizes": [1, 2, 3, 4, 6], "switches": 4},
}


def shaped(name, seed):
    """The problem of a shape."""
    shape, dice = USUAL | SHAPES[name], random.Random(f"{name}-{seed}")
    kinds = [kind for kind in TYPES if kind[0] in shape["types"]]
    switches, slots = shape["switches"], shape["slots"]
    hosts = [
        {"id": f"h{index}", "slots": room, "switch": f"s{index % switches}", "host_on_w": 350, "host_idle_w": 150}
        for index, room in enumerate(shape["hosts"])
    ]
    demands = [demand(index, shape, kinds, dice) for index in range(shape["demands"])]
    gpus, room = [], {host["id"]: host["slots"] for host in hosts}
    for kind, memory, active, idle in kinds:
        smaller = max([other for _, other, *_ in kinds if other < memory], default=0)
        of_kind = [one for one in demands if smaller < one["min_mem_gb"] <= memory]
        peak = max(sum(one["gpus"] for one in of_kind if one["start"] <= slot < one["end"]) for slot in range(slots))
        for index in range(max(1, round(peak * shape["pool"]))):
            at = dice.choice(hosts)["id"] if dice.random() < shape["attached"] else None
            at = at if at and room[at] > 0 else None
            if at:
                room[at] -= 1
            gpus.append(
                {"id": f"{kind}-{index}", "type": kind, "mem_gb": memory, "switch": f"s{dice.randrange(switches)}"}
                | {"active_w": active, "idle_w": idle, "attached_to": at}
            )
    return {"schema": "cps-1", "horizon_slots": slots, "slot_s": 3600, "hosts": hosts, "gpus": gpus, "demands": demands} | {
        "costs": COSTS | shape["costs"]
    }


def demand(index, shape, kinds, dice):
    slots = shape["slots"]
    length = max(1, round(slots * shape["longest"] * dice.random() ** 2))
    start = dice.randrange(slots - length + 1)
    return {
        "id": f"d{index}",
        "tenant": f"t{index % 4}",
        "start": start,
        "end": start + length,
        "gpus": dice.choice(shape["sizes"]),
        "min_mem_gb": dice.choice(kinds)[1],
        "weight": dice.choice([1, 1, 2, 4]),
    }


def main():
    folder, seed = Path(sys.argv[1]), int((sys.argv + ["1"])[2])
    folder.mkdir(parents=True, exist_ok=True)
    for name in SHAPES:
        (folder / f"{name}-{seed}.json").write_text(json.dumps(shaped(name, seed)))


if __name__ == "__main__":
    main()
