#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sums over two or more GPUs by NCCL and by PyTorch's symmetric memory, inside a CUDA graph, for `trivet bench allreduce`.

Needs PyTorch with CUDA, and installs nothing. One process a GPU; microseconds of one sum, the median of several launches
of a graph that holds many. Example:

    bench/peers/torch_allreduce.py --ranks 2
"""
import argparse
import json
import os
import statistics
import sys
import time
import warnings

SIZES = [1 << 10, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 40 << 10, 1 << 16, 80 << 10, 1 << 17, 1 << 18, 320 << 10, 1 << 19,
         1 << 20, 1 << 21, 1 << 22, 1 << 23, 20 << 20, 80 << 20]
ROUNDS = 15


def measure(torch, dist, work, calls):
    """Microseconds of one of `calls` repetitions of `work` in a graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(calls):
            work()
    times = []
    for repetition in range(ROUNDS + 2):
        dist.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        if repetition >= 2:
            times.append((time.perf_counter() - begin) / calls)
    return statistics.median(times) * 1e6


def run(rank, args):
    """One rank."""
    warnings.filterwarnings("ignore")
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric

    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29517")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=args.ranks, device_id=torch.device("cuda", rank))
    group = dist.group.WORLD.group_name
    ways = [("nccl int64", torch.int64, lambda t: dist.all_reduce(t)),
            ("nccl bf16", torch.bfloat16, lambda t: dist.all_reduce(t)),
            ("one-shot bf16", torch.bfloat16, lambda t: torch.ops.symm_mem.one_shot_all_reduce(t, "sum", group)),
            ("two-shot bf16", torch.bfloat16, lambda t: torch.ops.symm_mem.two_shot_all_reduce_(t, "sum", group))]
    for size in SIZES:
        line = {"bytes": size}
        for name, dtype, sum_of in ways:
            count = size // dtype.itemsize
            if "shot" in name:
                tensor = symmetric.empty(count, dtype=dtype, device=f"cuda:{rank}").zero_()
                symmetric.rendezvous(tensor, group)
            else:
                tensor = torch.zeros(count, dtype=dtype, device=f"cuda:{rank}")
            calls = max(1, min(100, (64 << 20) // size))
            line[name] = round(measure(torch, dist, lambda: sum_of(tensor), calls), 2)
        if rank == 0:
            print(json.dumps(line), flush=True)
    dist.destroy_process_group()


def main():
    """Starts the ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2, help="one process and one GPU each")
    args = parser.parse_args()
    try:
        import torch.multiprocessing as processes
    except ImportError as error:
        sys.exit(f"torch_allreduce.py: expected the package {error.name}, found none; install PyTorch")
    processes.spawn(run, args=(args,), nprocs=args.ranks)


if __name__ == "__main__":
    main()
