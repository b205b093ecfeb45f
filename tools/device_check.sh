#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks and times the CUDA backend on a machine that has GPUs, in one go:
#   tools/device_check.sh [PROGRAM [RESULTS]]
# PROGRAM is trivet (build/trivet), also as `cmake --install` puts it elsewhere; RESULTS a folder for logs (build/device).
# Logits of every model are compared by bytes with the processor's, for several rank counts on the GPUs there are. Ranks
# share GPUs where there are fewer.
set -u
cd "$(dirname "$0")/.." || exit 1
program=$(realpath "${1:-build/trivet}") results=$(realpath -m "${2:-build/device}")
mkdir -p "$results"
failed=0 compared=0 texts=0

# tokens CONFIG COUNT...: lists of token ids that are the model's, one for each count.
tokens() {
  python3 - "$@" <<'PYTHON'
import json, sys
config = json.load(open(sys.argv[1]))
vocab = config.get("vocab_size") or config["text_config"]["vocab_size"]
print(json.dumps([[(i * i * 37 + i * 11 + n) % vocab for i in range(n)] for n in map(int, sys.argv[2:])]))
PYTHON
}

# same NAME MODEL TOKENS FLAGS...: whether the GPU's logits are the processor's, kept in cpu.safetensors, by bytes.
same() {
  local name=$1 model=$2 tokens=$3 log=$results/score.log
  shift 3
  if ! "$program" score "$model" --tokens "$tokens" --backend cuda "$@" --out "$results/cuda.safetensors" -q 2>"$log"; then
    echo "FAILED $name $*: $(tail -n 1 "$log")" && failed=$((failed + 1)) && return
  fi
  if cmp -s "$results/cpu.safetensors" "$results/cuda.safetensors"; then
    compared=$((compared + $(stat -c %s "$results/cuda.safetensors") / 4))
  else
    echo "DIFFERS $name $*: $(cmp "$results/cpu.safetensors" "$results/cuda.safetensors" 2>&1 | head -n 1)"
    failed=$((failed + 1))
  fi
}

# same_text NAME MODEL: whether both backends write the same 150 tokens. Decode steps on a GPU are recorded graphs, which
# cross two borders of pages here. A model without a tokenizer borrows the demo's, of which one token is enough.
same_text() {
  local name=$1 folder=$results/$1 backend
  mkdir -p "$folder"
  ln -sf "$PWD"/models/demo/tokenizer*.json "$PWD/$2"/* "$folder/"
  for backend in cpu cuda; do
    if ! "$program" generate "$folder" --backend "$backend" --raw --prompt "#" --max-tokens 150 --ignore-eos --seed 7 --json \
      -q >"$results/$backend.json" 2>"$results/generate.log"; then
      echo "FAILED $name: generate: $(tail -n 1 "$results/generate.log")" && failed=$((failed + 1)) && return
    fi
  done
  if cmp -s "$results/cpu.json" "$results/cuda.json"; then
    texts=$((texts + 1))
  else
    echo "DIFFERS $name: generate" && failed=$((failed + 1))
  fi
}

"$program" doctor --backend cuda || exit 1
for model in models/demo tests/golden/cases/*; do
  [ -f "$model/config.json" ] || continue
  name=$(basename "$model")
  counts=(70 1 33) ranks=(1 2 3 5 7)
  if [ "$name" = demo ]; then counts=(2000); fi
  tokens "$model/config.json" "${counts[@]}" >"$results/tokens.json" || exit 1
  if ! "$program" score "$model" --tokens "$results/tokens.json" --out "$results/cpu.safetensors" -q 2>"$results/cpu.log"; then
    # A family that is refused on a processor is refused everywhere.
    grep -q "not supported yet" "$results/cpu.log" && echo "$name: $(cat "$results/cpu.log")" && continue
    cat "$results/cpu.log" && exit 1
  fi
  for n in "${ranks[@]}"; do same "$name" "$model" "$results/tokens.json" --ranks "$n"; done
  same "$name" "$model" "$results/tokens.json" --ranks 3 --launch processes
  same "$name" "$model" "$results/tokens.json" --ranks 2 --prefill-chunk 7
  same_text "$name" "$model"
  echo "$name: done"
done
echo "$compared words of logits and tokens and $texts texts equal the processor's, $failed comparisons failed"
for sequences in 1 8 16; do
  "$program" bench models/demo --backend cuda --alone --rounds 3 -q --sequences $sequences || failed=$((failed + 1))
done
# Geometries of real models with made-up weights.
for geometry in "qwen3.8-27b mxfp4" "qwen3.8-27b fp8" "qwen3-30b-a3b bf16"; do
  read -r name format <<<"$geometry"
  for sequences in 1 8; do
    echo "$geometry, $sequences sequences:"
    "$program" bench "bench/geometries/$name" --dummy-weights "$format" --backend cuda --alone --rounds 1 -q \
      --sequences $sequences --prompt-tokens 64 --tokens 33 || failed=$((failed + 1))
  done
done
[ "$failed" = 0 ]
