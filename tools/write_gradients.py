#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the record of a trainer's gradient sums that `trivet verify` reads: an example for trainers.

A trainer calls `bucket_record` where it sums a bucket, with what it knows there, and `write` at the end of the step. Run
as a program, this fills buckets the way data-parallel trainers do, from the last parameter to the first, and writes the
record of one step: `write_gradients.py OUT.json --ranks 4 --bucket-bytes 4096`.
"""

import argparse
import json
import pathlib

SCHEMA = "trivet.gradient-collectives.v1"


def bucket_record(bucket, parameters, ranks, *, configured, actual, order, payload, accumulate, round_at, op, divide_at,
                  source, fallback_reason=None, notes=""):
    """The record of one bucket. There are no defaults for what only an observer can know."""
    if len(ranks) == 1:
        configured = actual = order = "none"
    return {
        "bucket": bucket,
        "parameters": list(parameters),
        "ranks": list(ranks),
        "kind": "none" if len(ranks) == 1 else "all-reduce",
        "actual": actual,
        "order": order,
        "payload": payload,
        "accumulate": accumulate,
        "round_at": round_at,
        "op": op,
        "divide_at": divide_at,
        "configured": configured,
        "fallback_reason": fallback_reason,
        "source": source,
        "notes": notes,
    }


def write(path, records):
    """Writes the records of a step, in the order in which their buckets were summed."""
    text = json.dumps({"schema": SCHEMA, "buckets": records}, indent=1)
    pathlib.Path(path).write_text(text + "\n", encoding="utf-8")


def fill_buckets(sizes, most):
    """Lists of parameters, the last ones first, of at most `most` bytes each but for one that is larger alone."""
    buckets, held = [], 0
    for name, size in reversed(list(sizes.items())):
        if not buckets or held + size > most:
            buckets.append([])
            held = 0
        buckets[-1].append(name)
        held += size
    return buckets


def main():
    """Writes the record of one step of a small made-up model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--bucket-bytes", type=int, default=4096)
    parser.add_argument("--algorithm", default="ring")
    args = parser.parse_args()
    for name, count in (("--ranks", args.ranks), ("--bucket-bytes", args.bucket_bytes)):
        if count < 1:
            parser.error(f"{name}: expected at least 1, found {count}")
    sizes = {f"layers.{layer}.moe.router.weight": 1024 * (layer + 1) for layer in range(4)}
    records = [
        bucket_record(index, names, range(args.ranks), configured=args.algorithm, actual=args.algorithm,
                      order="around the ring", payload="f32", accumulate="f32", round_at="none", op="mean",
                      divide_at="after", source="the code that added")
        for index, names in enumerate(fill_buckets(sizes, args.bucket_bytes))
    ]
    try:
        write(args.out, records)
    except OSError as error:
        parser.error(f"{args.out}: expected a path to write to, found: {error.strerror}")


if __name__ == "__main__":
    main()
