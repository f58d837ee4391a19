#!/usr/bin/env python3
"""Measures memory on an NVIDIA GPU, as rows of the table that `size --batch` and `size calibrate` read.

    pip install -r requirements.txt
    ./measure.py > measured.csv
    poolwright size --batch measured.csv
    poolwright size calibrate measured.csv

Each case of steps.py runs in a process of its own with random weights: two training steps, or `generate` twice. A case
gives three rows: the peak of tensors (`allocated`), of what PyTorch's allocator reserved (`reserved`), and of the process
(`device`: how much more of the GPU is in use than before, as nvidia-smi shows it, so nothing else may run there). A case
that the GPU has no room for is left out and named. All of it ends within ten minutes; `--list` prints the rows without
figures, and needs no GPU.
"""
import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import time

from steps import MODELS, columns, measured_cases

MOST_S = 570
MOST_OF_ONE_S = 120
GIB = 2**30
METRICS = ("allocated", "reserved", "device")
# Of a case that found no room.
NO_ROOM = 3


def build(case, device):
    import torch
    import transformers

    kind, dims = MODELS[case.model]
    named = f"{kind}TextConfig" if kind in ("Gemma3", "Qwen3_5") else f"{kind}Config"
    config = getattr(transformers, named)(use_cache=case.task == "infer", **dims)
    config._attn_implementation = "sdpa"
    if "num_experts_per_tok" in dims:
        config._experts_implementation = "grouped_mm"
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = getattr(transformers, f"{kind}ForCausalLM")(config)
    torch.set_default_dtype(torch.float32)
    return model


def train(case, model, ids):
    import torch

    model.train()
    if case.recompute == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = {
        "adamw": lambda p: torch.optim.AdamW(p, lr=1e-4, fused=True),
        "adamw_foreach": lambda p: torch.optim.AdamW(p, lr=1e-4, foreach=True),
        "sgd": lambda p: torch.optim.SGD(p, lr=1e-4, fused=True),
    }[case.optimizer](model.parameters())
    for _ in range(2):
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def generate(case, model, ids):
    import torch

    model.eval()
    with torch.no_grad():
        for _ in range(2):
            model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=case.gen_tokens,
                           min_new_tokens=case.gen_tokens, do_sample=False, pad_token_id=0)


def in_use(gpu):
    """GiB of a GPU that are in use."""
    query = ["nvidia-smi", f"--id={gpu}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return float(subprocess.run(query, check=True, capture_output=True, text=True).stdout) / 1024


def run(case):
    """In a process of its own: what was found, as JSON."""
    # The first GPU of this process, numbered as nvidia-smi does.
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
    os.environ |= {"CUDA_VISIBLE_DEVICES": gpu, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    before = in_use(gpu)
    import torch

    try:
        model = build(case, "cuda")
        ids = torch.randint(0, model.config.vocab_size, (case.micro_batch, case.seq_len), device="cuda")
        (generate if case.task == "infer" else train)(case, model, ids)
        torch.cuda.synchronize()
    except torch.cuda.OutOfMemoryError as error:
        print(error, file=sys.stderr)
        sys.exit(NO_ROOM)
    peaks = torch.cuda.max_memory_allocated() / GIB, torch.cuda.max_memory_reserved() / GIB, in_use(gpu) - before
    print(json.dumps(dict(zip(METRICS, peaks))))


def rows(number, case, peaks):
    import torch
    import transformers

    # Tied embeddings are one parameter.
    params = sum(p.numel() for p in build(case, "meta").parameters())
    version = torch.__version__.split("+")[0]
    of_task = f"transformers {transformers.__version__} + torch {version}", f"torch {version} eager"
    for metric, peak in peaks.items():
        yield {
            "id": f"m{number:02}{metric[0]}",
            **columns(case, params, "" if case.task == "infer" else params),
            "framework": of_task[case.task != "infer"],
            "metric": metric,
            "peak_gib": "" if peak is None else f"{peak:.4f}",
        }


def measured(number):
    """Peaks of a case in a process of its own; None where there are none."""
    command = [sys.executable, __file__, "--case", str(number)]
    try:
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=MOST_OF_ONE_S)
    except subprocess.TimeoutExpired:
        return None
    if ended.returncode not in (0, NO_ROOM):
        sys.exit(f"case {number} failed with exit code {ended.returncode}; its error is above")
    return json.loads(ended.stdout.splitlines()[-1]) if ended.returncode == 0 else None


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--list", action="store_true", help="rows without figures")
    arguments.add_argument("--case", type=int, help="one case, in this process")
    given = arguments.parse_args()
    cases = measured_cases()
    if given.case is not None:
        return run(cases[given.case])
    if not given.list and shutil.which("nvidia-smi") is None:
        sys.exit("there is no nvidia-smi here: run it on a machine with an NVIDIA GPU and its driver, or with --list")
    out, end = None, time.monotonic() + MOST_S
    for number, case in enumerate(cases):
        label = f"{case.task} {case.model}, {case.micro_batch} x {case.seq_len} tokens"
        if given.list:
            peaks = dict.fromkeys(METRICS)
        elif time.monotonic() + MOST_OF_ONE_S > end:
            peaks = None
        else:
            peaks = measured(number)
        if peaks is None:
            print(f"left out: {label}: no room, or no time", file=sys.stderr)
            continue
        for line in rows(number, case, peaks):
            if out is None:
                out = csv.DictWriter(sys.stdout, line.keys(), lineterminator="\n")
                out.writeheader()
            out.writerow(line)
        sys.stdout.flush()
        if not given.list:
            print(f"measured: {label}", file=sys.stderr)


if __name__ == "__main__":
    main()
