"""Times training steps and prints the result as one JSON object."""
import argparse
import json
import os
import statistics
import sys
import time

import torch


def options(doc):
    args = argparse.ArgumentParser(usage=doc.split("usage: ")[1])
    args.add_argument("--repeats", type=int, default=9)
    args.add_argument("--threads", type=int, default=1)
    args.add_argument("--compile", action="store_true")
    args.add_argument("--denormals", action="store_true")
    args = args.parse_args()
    torch.set_num_threads(args.threads)
    # Where a gradient stays zero, Adam's first moment fades to denormal numbers within some 700 steps, and arithmetic
    # with them is slow. Flushing is off by default in PyTorch; the peer is measured at its best.
    torch.set_flush_denormal(not args.denormals)
    return args


def busy_seconds():
    """Processor time that the whole machine has spent, and that this process has."""
    with open("/proc/stat") as stat:
        user, nice, system, _, _, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    own = os.times()
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK"), own.user + own.system


def train(args, bench, case, model, optimizer, loss_of, batches, steps):
    """Trains over `batches`, which are in memory and cycled: a warm-up, then `repeats` times `steps` steps.
    other_cpu is how many processors everything else kept busy meanwhile: near 0 is a quiet machine."""
    if args.compile:
        model, case = torch.compile(model, dynamic=False), case + " compile"
    if args.denormals:
        case += " denormals"
    if args.threads > 1:
        case += " threads=%d" % args.threads
    done = 0

    def run(count):
        nonlocal done
        for _ in range(count):
            *inputs, label = batches[done % len(batches)]
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(model(*inputs), label)
            loss.backward()
            optimizer.step()
            done += 1
        return float(loss.detach())

    try:
        run(max(3, steps // 2))
    except Exception as error:
        if not args.compile:
            raise
        print("torch: %s skipped, %s" % (case, " ".join(str(error).split("\n")[:2])), file=sys.stderr)
        return
    rates = []
    all_0, own_0 = busy_seconds()
    began = time.perf_counter()
    for _ in range(args.repeats):
        start = time.perf_counter()
        loss = run(steps)
        rates.append(steps / (time.perf_counter() - start))
    wall = time.perf_counter() - began
    all_1, own_1 = busy_seconds()
    rows = len(batches[0][-1])
    print(json.dumps({
        "bench": bench, "case": case, "peer": "torch-" + torch.__version__.split("+")[0],
        "value": round(statistics.median(rates) * rows), "unit": "examples/s", "repeats": args.repeats,
        "min": round(min(rates) * rows), "max": round(max(rates) * rows),
        "steps_per_second": round(statistics.median(rates), 2), "loss": round(loss, 4),
        "other_cpu": round(max(0.0, (all_1 - all_0 - own_1 + own_0) / wall), 2)}), flush=True)
