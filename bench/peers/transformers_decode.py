#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decode of trivet against transformers on one GPU: the same geometry in BF16, the same batches, rounds of both in turn.

Needs PyTorch with CUDA and the package transformers, and installs nothing. MODEL is a folder with config.json; without
weights in it both programs make some up. transformers runs as it comes (eager), and with its layers compiled. Example:

    bench/peers/transformers_decode.py bench/geometries/qwen3.8-27b --layers 8 --batches 1,8,64
"""
import argparse
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def geometry(model: Path, layers: int, folder: str) -> Path:
    """A folder with the model's configuration, cut to its first layers; the model itself for 0 layers."""
    if layers == 0:
        return model
    config = json.loads((model / "config.json").read_text())
    text = config.get("text_config", config)
    text["num_hidden_layers"] = layers
    if "layer_types" in text:
        text["layer_types"] = text["layer_types"][:layers]
    (Path(folder) / "config.json").write_text(json.dumps(config))
    return Path(folder)


class Transformers:
    """The model on the first GPU."""

    def __init__(self, model: Path):
        try:
            import torch
            import transformers
        except ImportError as error:
            sys.exit(f"transformers_decode.py: expected the package {error.name}, found none; install it")
        self.torch = torch
        transformers.logging.set_verbosity_error()
        auto = transformers.AutoModelForCausalLM
        if list(model.glob("*.safetensors")):
            self.model = auto.from_pretrained(str(model), dtype=torch.bfloat16).cuda()
        else:
            config = transformers.AutoConfig.from_pretrained(str(model))
            config = getattr(config, "text_config", config)
            with torch.device("cuda"):
                self.model = auto.from_config(config, dtype=torch.bfloat16)
        self.model.eval()

    def compile_layers(self):
        """Compiles every layer by itself, so that caches may grow outside of compiled code."""
        for layer in self.model.model.layers:
            layer.compile(dynamic=True)

    def step_s(self, batch: int, prompt_tokens: int, tokens: int) -> float:
        """Seconds of one greedy decode step, the prompt not counted."""
        torch, model = self.torch, self.model
        ids = (torch.arange(batch * prompt_tokens, device="cuda").view(batch, -1) * 7919 + 13) % model.config.vocab_size
        with torch.inference_mode():
            out = model(ids, use_cache=True, logits_to_keep=1)
            for step in range(tokens):
                if step == 1:
                    torch.cuda.synchronize()
                    begin = time.perf_counter()
                out = model(out.logits[:, -1:].argmax(-1), past_key_values=out.past_key_values, use_cache=True)
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) / (tokens - 1)


def trivet_step_s(args, model: Path, batch: int) -> float:
    """The same by one round of `trivet bench` after its warm-up."""
    command = [args.trivet, "bench", model, "--backend", "cuda", "--quiet", "--json", "--alone", "--rounds", "1",
               "--numerics", args.numerics, "--sequences", batch, "--prompt-tokens", args.prompt_tokens, "--tokens",
               args.tokens]
    if not list(model.glob("*.safetensors")):
        command += ["--dummy-weights", "bf16"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"transformers_decode.py: {' '.join(map(str, command))} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[0])["decode_step_us"] * 1e-6


def main() -> None:
    """Prints one line of JSON for each batch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--trivet", type=Path, default=ROOT / "build" / "trivet")
    parser.add_argument("--layers", type=int, default=0, help="use the first so many layers only; 0: all")
    parser.add_argument("--batches", default="1,8,64")
    parser.add_argument("--numerics", default="exact", help="of trivet")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=33, help="tokens to decode")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if args.tokens < 2:
        parser.error("--tokens: expected at least 2")
    with tempfile.TemporaryDirectory() as folder:
        model = geometry(args.model, args.layers, folder)
        peer = Transformers(model)
        for way in ("eager", "compiled"):
            if way == "compiled":
                peer.compile_layers()
            for batch in map(int, args.batches.split(",")):
                steps = ([], [])
                for round_number in range(args.rounds + 1):
                    theirs = peer.step_s(batch, args.prompt_tokens, args.tokens)
                    if round_number == 0:
                        continue  # warms up, and compiles
                    steps[0].append(trivet_step_s(args, model, batch))
                    steps[1].append(theirs)
                    gc.collect()
                    peer.torch.cuda.empty_cache()
                ours, theirs = (statistics.median(times) for times in steps)
                ratio = statistics.median(b / a for a, b in zip(*steps))
                print(json.dumps({"batch": batch, "transformers": way, "trivet_tokens_per_s": round(batch / ours, 1),
                                  "transformers_tokens_per_s": round(batch / theirs, 1), "ratio": round(ratio, 2)}),
                      flush=True)


if __name__ == "__main__":
    main()
