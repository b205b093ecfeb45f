#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decode steps of one model on several rank counts and by several cuts, in turn, beside what the plan predicts.

A step on one rank is the time that its bytes take at the read rate of the machine, and a rest. On more ranks the plan
says how many bytes each one reads and which sums there are; a sum is timed by itself. So the prediction is

    bytes of the busiest device / read rate + the rest of one rank + sums of the plan, each at its own time

Rank r is on device r modulo --devices. Ranks on a processor have its memory in common, which is one device; where they
have cores or multiprocessors in common, too, the rest is longer than is predicted.

Example, of a geometry without weights on four GPUs:

    bench/scaling.py bench/geometries/qwen3.8-27b --dummy-weights mxfp4 --backend cuda --ranks 1,2,3,4
"""
import argparse
import bisect
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CUTS = {"cheapest": None, "padded": "pad", "overlapped": "overlap", "uneven": "uneven"}


class Trivet:
    """The program, as it is asked here."""

    def __init__(self, args):
        self.args = args
        self.weights = ["--dummy-weights", args.dummy_weights] if args.dummy_weights else []

    def run(self, *command):
        """Lines of JSON of a command."""
        done = subprocess.run([str(self.args.trivet), *map(str, command)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"scaling.py: trivet {' '.join(map(str, command))} failed:\n{done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def plan(self, ranks, cut):
        """The plan's cost and the cuts that it has; None where a cut cannot be made."""
        done = subprocess.run([str(self.args.trivet), "plan", str(self.args.model), "--ranks", str(ranks), "--json",
                               "--memory", "1000G", *self.weights, *self.cut(cut)], capture_output=True, text=True,
                              check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def cut(self, cut):
        """Flags for a cut of heads, which alone have more than one."""
        if CUTS[cut] is None:
            return []
        axes = [axis for axis in ("attn", "gdn") if axis in self.args.axes]
        return ["--cut", ",".join(f"{axis}={CUTS[cut]}" for axis in axes)]

    def bench(self, ranks, cut):
        """One round of decoding."""
        args = self.args
        return self.run("bench", args.model, "--ranks", ranks, "--backend", args.backend, "--numerics", args.numerics,
                        "--sequences", args.sequences, "--prompt-tokens", args.prompt_tokens, "--tokens", args.tokens,
                        "--alone", "--rounds", 1, "--json", "-q", *self.weights, *self.cut(cut))[0]

    def sums(self, ranks):
        """Microseconds of a sum by its bytes, ascending: in a graph where there are graphs."""
        kind = "float" if self.args.numerics == "fast" else "int64"
        lines = self.run("bench", "allreduce", "--ranks", ranks, "--backend", self.args.backend, "--type", kind,
                         "--json")
        return sorted((line["bytes"], line.get("graph_us", line["eager_us"])) for line in lines)


def sum_us(sums, size):
    """A sum's time by those of the sizes around it."""
    at = bisect.bisect_left(sums, (size, 0))
    if at == 0 or at == len(sums):
        return sums[min(at, len(sums) - 1)][1]
    (low, low_us), (high, high_us) = sums[at - 1], sums[at]
    return low_us + (high_us - low_us) * (size - low) / (high - low)


def predicted_us(one, ranks, cost, sums, args):
    """The step that the plan predicts from `one`, the measured step on one rank."""
    rate = one["peak_read_bytes_per_s"] * 1e-6
    rest = one["decode_step_us"] - one["step_bytes"] / rate
    if ranks == 1:
        return one["decode_step_us"]
    key = "bytes_fast" if args.numerics == "fast" else "bytes_exact"
    added = sum(part["count"] * sum_us(sums, part[key] // part["count"] * args.sequences)
                for part in cost["collectives"] if part["site"] != "logits")
    return busiest_bytes(cost, args.devices) / rate + rest + added


def busiest_bytes(cost, devices):
    """Bytes that the device with the most reads in a step."""
    read = [0] * devices
    for rank, of_rank in enumerate(cost["ranks"]):
        read[rank % devices] += of_rank["step_bytes"]
    return max(read)


def layouts(trivet):
    """Every rank count with every cut that can be made there and differs from those before it: [(ranks, cut, plan)]."""
    found = []
    for ranks in trivet.args.rank_counts:
        seen = []
        for cut in CUTS if ranks > 1 else ["cheapest"]:
            plan = trivet.plan(ranks, cut)
            if plan is None:
                continue
            axes = [(axis["axis"], axis["per_rank"], axis["factor"]) for axis in plan["layout"]["axes"]]
            if axes not in seen:
                seen.append(axes)
                found.append((ranks, cut, plan))
    return found


def main() -> None:
    """Prints one line of JSON for each layout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--trivet", type=Path, default=ROOT / "build" / "trivet")
    parser.add_argument("--ranks", default="1,2,3,4", help="rank counts, 1 among them")
    parser.add_argument("--backend", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--devices", type=int, default=0, help="0: one for a processor, one of every rank for GPUs")
    parser.add_argument("--dummy-weights", default="", help="bf16, fp8 or mxfp4: make weights up")
    parser.add_argument("--numerics", default="exact", choices=["exact", "portable", "fast"])
    parser.add_argument("--sequences", type=int, default=1)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=33, help="tokens to decode")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    try:
        args.rank_counts = sorted({int(count) for count in args.ranks.split(",")})
    except ValueError:
        args.rank_counts = []
    if not args.rank_counts or args.rank_counts[0] != 1 or args.rank_counts[-1] > 16:
        parser.error(f'--ranks: expected counts of 1 to 16, 1 among them, found "{args.ranks}"')
    if args.devices < 0:
        parser.error(f"--devices: expected at least 0, found {args.devices}")
    args.devices = args.devices or (1 if args.backend == "cpu" else args.rank_counts[-1])
    trivet = Trivet(args)
    args.axes = []
    whole = trivet.plan(1, "cheapest")
    if whole is None:
        trivet.run("plan", args.model, "--memory", "1000G", *trivet.weights)  # says why, and ends
    args.axes = [axis["axis"] for axis in whole["layout"]["axes"]]
    cases = layouts(trivet)
    steps = {case[:2]: [] for case in cases}
    ones = []
    for _ in range(args.rounds):
        for ranks, cut, _plan in cases:
            measured = trivet.bench(ranks, cut)
            steps[ranks, cut].append(measured["decode_step_us"])
            if ranks == 1:
                ones.append(measured)
    one = sorted(ones, key=lambda line: line["decode_step_us"])[len(ones) // 2]
    sums = {ranks: trivet.sums(ranks) for ranks in args.rank_counts if ranks > 1}
    for ranks, cut, plan in cases:
        measured = statistics.median(steps[ranks, cut])
        predicted = predicted_us(one, ranks, plan["cost"], sums.get(ranks), args)
        print(json.dumps({
            "ranks": ranks, "cut": cut,
            "axes": {axis["axis"]: axis["cut"] for axis in plan["layout"]["axes"]},
            "step_us": round(measured, 1), "predicted_us": round(predicted, 1),
            "measured_over_predicted": round(measured / predicted, 3),
            "speedup": round(statistics.median(steps[1, "cheapest"]) / measured, 3),
            "ideal_speedup": round(one["step_bytes"] / busiest_bytes(plan["cost"], args.devices), 3)}), flush=True)


if __name__ == "__main__":
    main()
