"""Measures sizing beside ftuneai; started by tests/bench/sizing, which says what it prints."""

import argparse
import csv
import platform
import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from ftuneai.core.memory import MemoryEstimator
from ftuneai.core.models import (
    FineTuneMethod,
    LoRATarget,
    ModelSpec,
    OptimizerType,
    Quantization,
    ShardingStrategy,
    TrainingConfig,
)
from ftuneai.loader import load_gpus

import bench
from suite import POOLWRIGHT, SHARED, run

BENCH = Path(POOLWRIGHT).parent / "examples/bench-sizing"
# What is aimed at.
SEARCH_MS, CASES_PER_S = 10, 10_000
# Cases that the peer is given in one go.
PEER_CASES = 2_000

METHODS = {"full": FineTuneMethod.FULL, "lora": FineTuneMethod.LORA, "qlora": FineTuneMethod.QLORA}
TARGETS = {"q,v": LoRATarget.ATTENTION, "qv": LoRATarget.ATTENTION, "all": LoRATarget.ALL_LINEAR}
GIB_A_GB = 1e9 / 2**30


def aim(what, found, aimed, at_least=False):
    """Prints an aim beside what came of it."""
    reached = found >= aimed if at_least else found <= aimed
    print(f"{what}: {found:,.2f}; aim: at {'least' if at_least else 'most'} {aimed:,}: {'reached' if reached else 'MISSED'}")


def peers_case(row):
    """A row in the peer's terms."""
    ranks = int(row["shard_ranks"] or 1)
    model = ModelSpec(
        name=row["model"],
        parameters=int(row["params"]),
        hidden_size=int(row["hidden"]),
        num_layers=int(row["layers"]),
        num_attention_heads=int(row["heads"]),
        num_kv_heads=int(row["kv_heads"]),
        intermediate_size=int(row["ffn"]),
        vocab_size=int(row["vocab"]),
        max_seq_length=1 << 20,
    )
    config = TrainingConfig(
        method=METHODS[row["task"]],
        quantization=Quantization.INT4 if row["task"] == "qlora" else Quantization.NONE,
        batch_size=int(row["micro_batch"]),
        seq_length=int(row["seq_len"]),
        gradient_checkpointing=row["recompute"] != "none",
        optimizer=OptimizerType.ADAMW,
        lora_target=TARGETS.get(row["lora_targets"], LoRATarget.ATTENTION_ALL),
        flash_attention=row["attention"] != "eager",
        sharding=ShardingStrategy.FSDP if ranks > 1 else ShardingStrategy.NONE,
        num_gpus=ranks,
    )
    return MemoryEstimator(model, config)


def peer(rows):
    """Cases a second of CPU time, what it predicts in GiB, and milliseconds to check one job against its GPUs."""
    many = (rows * (PEER_CASES // len(rows) + 1))[:PEER_CASES]
    start = time.process_time()
    predicted = [peers_case(row).estimate().total_gb for row in many]
    seconds = time.process_time() - start
    gpus = list(load_gpus().values())
    checks = []
    for _ in range(21):
        start = time.process_time()
        peers_case(rows[0]).check_gpu_fit(gpus)
        checks.append((time.process_time() - start) * 1e3)
    return {
        "cases_per_cpu_s": len(many) / seconds,
        "predicted_gib": [gb * GIB_A_GB for gb in predicted[: len(rows)]],
        "check_ms": statistics.median(checks),
        "kinds": len(gpus),
    }


def ours(rows, header):
    """The same of the binary's library, over the same rows."""
    with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="") as file:
        writer = csv.DictWriter(file, header)
        writer.writeheader()
        writer.writerows(rows)
        file.flush()
        done = run(BENCH, file.name, timeout=300)
        if done.code:
            sys.exit(f"the benchmark failed: {done}")
        return done.json()


def off(predicted, rows):
    """Mean error in per cent."""
    errors = [abs(gib / float(row["peak_gib"]) - 1) for gib, row in zip(predicted, rows)]
    return 100 * statistics.mean(errors)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--repetitions", type=int, default=3)
    arguments = arguments.parse_args()
    if SHARED is None:
        sys.exit("the table of cases is not present: put it in ../shared/sizing or set POOLWRIGHT_SHARED")
    with bench.report("sizing") as found:
        found.update(compared(arguments.repetitions))


def compared(repetitions):
    with (SHARED / "sizing/cases.csv").open(newline="") as file:
        reader = csv.DictReader(file)
        every, header = list(reader), reader.fieldnames
    # The peer knows no serving, and no adapters but low-rank ones.
    trained = [row for row in every if row["task"] in METHODS]

    runs = [(ours(trained, header), peer(trained)) for _ in range(repetitions)]
    whole = ours(every, header)
    # Of the searches the quickest run counts: the others had the machine to share.
    searches = min((mine["searches"] for mine, _ in runs), key=lambda all_: max(one["cpu_ms"] for one in all_))
    print(f"{'model':18}{'task':>8}{'micro-batches':>15}{'kinds':>7}{'sets':>6}{'CPU ms':>9}{'median ms':>11}{'worst ms':>10}")
    for one in searches:
        print(
            f"{one['model']:18}{one['task']:>8}{one['accumulation']:>15}{one['kinds']:>7}{one['sets']:>6}"
            f"{one['cpu_ms']:>9.2f}{one['median_ms']:>11.2f}{one['worst_ms']:>10.2f}"
        )
    slowest = max(one["cpu_ms"] for one in searches)
    rates = [(mine["batch"]["cases_per_cpu_s"], theirs["cases_per_cpu_s"]) for mine, theirs in runs]
    ratio = statistics.median(mine / theirs for mine, theirs in rates)
    theirs = runs[-1][1]
    print(f"\ncases a second of CPU time: {max(m for m, _ in rates):,.0f}; ftuneai {max(t for _, t in rates):,.0f}")
    print(f"ratio: {ratio:.2f} times ftuneai's, on the same {len(trained)} training rows; ours reads them from CSV, too")
    print(
        f"a search of layouts over {searches[0]['kinds']} kinds: {slowest:.2f} ms of CPU time at most; ftuneai compares one figure"
        f" with the memory of {theirs['kinds']} kinds in {theirs['check_ms']:.3f} ms"
    )
    mine = runs[-1][0]["batch"].pop("predicted_gib")
    sized = [(gib, row) for gib, row in zip(mine, trained) if gib is not None]
    errors = {
        "poolwright": off(*zip(*sized)),
        "ftuneai": off(theirs["predicted_gib"], trained),
    }
    print("mean error on those rows: " + ", ".join(f"{name} {error:.1f} %" for name, error in errors.items()))
    aim("slowest search, ms of CPU time", slowest, SEARCH_MS)
    aim("cases a second of CPU time, all rows", whole["batch"]["cases_per_cpu_s"], CASES_PER_S, at_least=True)
    return {
        "peers": {"ftuneai": version("ftuneai"), "python": platform.python_version()},
        "searches": searches,
        "batch": {key: value for key, value in whole["batch"].items() if key != "predicted_gib"},
        "cases_per_cpu_s": rates,
        "ratio": ratio,
        "mean_error_per_cent": errors,
    }


main()
