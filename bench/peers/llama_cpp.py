#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decode and prefill of trivet against llama.cpp on one GGUF file, the same threads, rounds of both in turn.

Needs the Python packages llama-cpp-python and numpy, and installs nothing. Both programs pick the largest logit of every
step; neither tokenizes. Example:

    bench/peers/llama_cpp.py model.gguf --threads 2 --contexts 128,2048 --prefill 512
"""
import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class LlamaCpp:
    """A loaded model, driven through the C interface so that no sampling in Python is timed."""

    def __init__(self, model: Path, threads: int, context: int):
        sys.path[:] = [path for path in sys.path if Path(path).resolve() != HERE]  # where this file has the package's name
        try:
            import llama_cpp
            import numpy
        except ImportError as error:
            sys.exit(f"llama_cpp.py: expected the package {error.name}, found none; pip install llama-cpp-python numpy")
        self.api, self.numpy = llama_cpp, numpy
        self.model = llama_cpp.Llama(str(model), n_ctx=context, n_batch=512, n_ubatch=512, n_threads=threads,
                                     n_threads_batch=threads, verbose=False)
        self.vocab = self.model.n_vocab()

    def _step(self, tokens):
        """Computes a batch of one sequence; returns the token with the largest last logit."""
        array = (self.api.llama_token * len(tokens))(*tokens)
        if self.api.llama_decode(self.model.ctx, self.api.llama_batch_get_one(array, len(tokens))) != 0:
            sys.exit("llama_cpp.py: llama_decode failed")
        logits = self.api.llama_get_logits_ith(self.model.ctx, -1)
        return int(self.numpy.argmax(self.numpy.ctypeslib.as_array(logits, (self.vocab,))))

    def measure(self, prompt_tokens: int, tokens: int):
        """Seconds of the prompt, and of one decode step."""
        self.model._ctx.kv_cache_clear()
        prompt = [(t * 7919 + 13) % self.vocab for t in range(prompt_tokens)]
        begin = time.perf_counter()
        for at in range(0, prompt_tokens, 512):
            token = self._step(prompt[at:at + 512])
        middle = time.perf_counter()
        for _ in range(tokens - 1):
            token = self._step([token])
        return middle - begin, (time.perf_counter() - middle) / max(1, tokens - 1)


def measure_trivet(program: Path, model: Path, threads: int, prompt_tokens: int, tokens: int):
    """As LlamaCpp.measure, by one round of `trivet bench` after its warm-up."""
    command = [program, "bench", model, "--quiet", "--json", "--alone", "--rounds", "1", "--threads", threads,
               "--prompt-tokens", prompt_tokens, "--tokens", tokens]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"llama_cpp.py: {' '.join(map(str, command))} failed:\n{done.stderr}")
    line = json.loads(done.stdout.splitlines()[0])
    return prompt_tokens / line["prefill_tokens_per_s"], line["decode_step_us"] * 1e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--trivet", type=Path, default=ROOT / "build" / "trivet")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--contexts", default="128,2048", help="where decode is measured, in tokens")
    parser.add_argument("--prefill", type=int, default=512, help="prompt whose prefill is measured")
    parser.add_argument("--tokens", type=int, default=32, help="tokens to decode")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    cases = [("decode", int(context)) for context in args.contexts.split(",")] + [("prefill", args.prefill)]
    peer = LlamaCpp(args.model, args.threads, max(prompt for _, prompt in cases) + args.tokens)
    rates = {case: ([], []) for case in cases}
    for round_number in range(args.rounds + 1):
        for case in cases:
            kind, prompt = case
            tokens = args.tokens if kind == "decode" else 2

            def ours():
                return measure_trivet(args.trivet, args.model, args.threads, prompt, tokens)

            def theirs():
                peer.measure(min(prompt, 64), 2)  # as warm as the other program after its warm-up
                return peer.measure(prompt, tokens)

            # Who goes first changes from round to round.
            seconds = [ours(), theirs()] if round_number % 2 else [theirs(), ours()][::-1]
            if round_number == 0:
                continue
            for rate, (prefill_s, step_s) in zip(rates[case], seconds):
                rate.append(1 / step_s if kind == "decode" else prompt / prefill_s)
    print(f"{args.model.name}, {args.threads} threads, {args.rounds} interleaved rounds, medians, tokens/s")
    print(f"{'':22}{'trivet':>10}{'llama.cpp':>12}{'ratio':>8}")
    for (kind, prompt), (ours, theirs) in rates.items():
        ratio = statistics.median(a / b for a, b in zip(ours, theirs))
        what = f"decode at {prompt}" if kind == "decode" else f"prefill of {prompt}"
        print(f"{what:22}{statistics.median(ours):10.1f}{statistics.median(theirs):12.1f}{ratio:8.2f}")


if __name__ == "__main__":
    main()
