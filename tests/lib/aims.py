"""What replays with our policy are held to, beside static servers with EASY backfill and beside HAS on the same pool."""

OURS, EASY, HAS = "poolwright", "static-shared-easy", "has"
# A change smaller than this is noise.
NOISE = 0.02
ENERGY = 0.12


def change(after, before):
    return after / before - 1 if before else 0.0


def row(ours, easy, has, pool_slots):
    widest = [outcome["by_width"][-1]["jct_mean_s"] for outcome in (ours, easy)]
    # The fabric's watts counted for each slot of the hosts, and not for each GPU slot of the boxes.
    more = 12 * ours["gpus"] * (pool_slots - 1) * ours["makespan_s"] / 3.6e6
    return {
        "jct_mean": change(ours["jct_mean_s"], easy["jct_mean_s"]),
        "jct_p95": change(ours["jct_p95_s"], easy["jct_p95_s"]),
        "wait_mean": change(ours["wait_mean_s"], easy["wait_mean_s"]),
        "wait_p95": change(ours["wait_p95_s"], easy["wait_p95_s"]),
        "p99_has": change(ours["jct_p99_s"], has["jct_p99_s"]),
        "widest": change(*widest),
        "energy": change(ours["energy_kwh"], easy["energy_kwh"]),
        "energy_by_host_slot": change(ours["energy_kwh"] + more, easy["energy_kwh"]),
    }


def missed(load, easy, figures):
    """What was aimed at and not reached; noise is no miss where nothing waits."""
    waits = load >= 0.6 and easy["wait_p95_s"] > 60
    aims = ["jct_mean", "jct_p95", "wait_mean", "wait_p95", "p99_has"]
    found = [aim for aim in aims if figures[aim] >= (0 if waits else NOISE)]
    found += ["widest"] if figures["widest"] > NOISE else []
    return found + (["energy"] if figures["energy"] > -ENERGY else [])


def judged(answer):
    """For each way to know run times and each load of what `poolwright simulate -o json` printed: what our policy changes,
    and what of the aims that misses."""
    pool = answer["scenario"]["pool"]
    slots = pool["slots_per_host"] / pool["gpus_per_host"]
    cells = {(one["policy"], one["runtimes"], one["load"]): one for one in answer["policies"]}
    for policy, runtimes, load in cells:
        if policy == OURS:
            easy = cells[EASY, runtimes, load]
            figures = row(cells[policy, runtimes, load], easy, cells[HAS, runtimes, load], slots)
            yield runtimes, load, figures, missed(load, easy, figures)
