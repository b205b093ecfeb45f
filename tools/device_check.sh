#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks and times the CUDA backend on a machine that has GPUs, in one go:
#   tools/device_check.sh [--ranks N[,N...]] [PROGRAM [RESULTS]]
# PROGRAM is trivet (build/trivet), also as `cmake --install` puts it elsewhere; RESULTS a folder for logs (build/device).
# For every model and several rank counts (2,3,5,7) on the GPUs there are, which ranks share where they are fewer: under the
# portable contract logits and texts are compared by bytes with the processor's; under the exact one, whose products
# matrix units make, by bytes with those of one rank, which in turn are near the processor's.
set -u
cd "$(dirname "$0")/.." || exit 1
rank_counts=(2 3 5 7)
if [ "${1:-}" = --ranks ]; then
  IFS=, read -ra rank_counts <<<"${2:-}"
  for n in "${rank_counts[@]:-none}"; do
    [[ $n =~ ^([2-9]|1[0-6])$ ]] && continue
    echo "device_check.sh: --ranks: expected counts of 2 to 16 with commas between them, found \"${2:-}\"; give such a list" >&2
    exit 2
  done
  shift 2
fi
program=$(realpath "${1:-build/trivet}") all_results=$(realpath -m "${2:-build/device}")
mkdir -p "$all_results"
failed=0
few=${rank_counts[0]}  # what is tried in more ways
for n in "${rank_counts[@]}"; do [ "$n" = 3 ] && few=3; done

# tokens CONFIG COUNT...: lists of token ids that are the model's, one for each count.
tokens() {
  python3 - "$@" <<'PYTHON'
import json, sys
config = json.load(open(sys.argv[1]))
vocab = config.get("vocab_size") or config["text_config"]["vocab_size"]
print(json.dumps([[(i * i * 37 + i * 11 + n) % vocab for i in range(n)] for n in map(int, sys.argv[2:])]))
PYTHON
}

# score OUT NAME MODEL TOKENS FLAGS...: the GPU's logits.
score() {
  local out=$1 name=$2 model=$3 tokens=$4 log=$results/score.log
  shift 4
  "$program" score "$model" --tokens "$tokens" --backend cuda "$@" --out "$results/$out.safetensors" -q 2>"$log" && return
  echo "FAILED $name $*: $(tail -n 1 "$log")"
  failed=$((failed + 1))
  return 1
}

# same EXPECTED NAME MODEL TOKENS FLAGS...: whether the GPU's logits are those kept in EXPECTED.safetensors, by bytes.
same() {
  local expected=$results/$1.safetensors found=$results/cuda.safetensors name=$2
  shift
  score cuda "$@" || return
  if cmp -s "$expected" "$found"; then
    compared=$((compared + $(stat -c %s "$found") / 4))
  else
    shift 3
    echo "DIFFERS $name $*: $(cmp "$expected" "$found" 2>&1 | head -n 1)"
    failed=$((failed + 1))
  fi
}

# same_everywhere EXPECTED NAME MODEL TOKENS FLAGS...: the same for several rank counts, launches, transports and chunks.
same_everywhere() {
  local n
  same "$@" --ranks 1
  for n in "${rank_counts[@]}"; do same "$@" --ranks "$n"; done
  same "$@" --ranks "$few" --launch processes
  same "$@" --ranks "$few" --transport host
  same "$@" --ranks "$few" --prefill-chunk 7
  # Steps of one token are recorded graphs.
  for n in "${graphs[@]}"; do same "$@" --ranks "$n" --prefill-chunk 1; done
}

# distance A B: the largest difference of the float32 logits in two files.
distance() {
  python3 - "$@" <<'PYTHON'
import array, json, sys
def logits(path):
    data = open(path, "rb").read()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    values = array.array("f")
    for name in sorted(header):
        if name.startswith("logits"):
            begin, end = header[name]["data_offsets"]
            values.frombytes(data[8 + size + begin:8 + size + end])
    return values
a, b = logits(sys.argv[1]), logits(sys.argv[2])
assert len(a) == len(b) > 0
print(max(abs(x - y) for x, y in zip(a, b)))
PYTHON
}

# same_text NAME MODEL RANKS...: whether both backends write the same 150 tokens, the GPU on each count of ranks. Decode
# steps on a GPU are recorded graphs, which cross two borders of pages here. A model without a tokenizer borrows the
# demo's, of which one token is enough.
same_text() {
  local name=$1 folder=$results/$1 n
  mkdir -p "$folder"
  ln -sf "$PWD"/models/demo/tokenizer*.json "$PWD/$2"/* "$folder/"
  shift 2
  write() { # FILE FLAGS...
    local file=$1
    shift
    "$program" generate "$folder" "$@" --numerics portable --raw --prompt "#" --max-tokens 150 --ignore-eos --seed 7 --json -q \
      >"$results/$file" 2>"$results/generate.log" && return
    echo "FAILED $name: generate $*: $(tail -n 1 "$results/generate.log")" && failed=$((failed + 1)) && return 1
  }
  write cpu.json --backend cpu || return
  for n in "$@"; do
    write cuda.json --backend cuda --ranks "$n" || continue
    if cmp -s "$results/cpu.json" "$results/cuda.json"; then
      texts=$((texts + 1))
    else
      echo "DIFFERS $name: generate --ranks $n" && failed=$((failed + 1))
    fi
  done
}

# same_proof NAME MODEL: whether `verify` finds one sealed run on the GPU equal to one of more ranks, steps chunked.
same_proof() {
  local name=$1 model=$2 n
  for n in 1 "$few"; do
    rm -rf "$results/run$n"
    "$program" generate "$model" --backend cuda --ranks "$n" --raw --prompt "Tom has 12 apples" --max-tokens 60 \
      --ignore-eos --prefill-chunk "$((n + 2))" --proof digest --out "$results/run$n" -q >/dev/null 2>"$results/proof.log" && continue
    echo "FAILED $name: generate --proof --ranks $n: $(tail -n 1 "$results/proof.log")" && failed=$((failed + 1)) && return
  done
  "$program" verify "$results/run1" "$results/run$few" >"$results/verify.json" 2>"$results/proof.log" ||
    { echo "FAILED $name: verify: $(tail -n 1 "$results/proof.log")" && failed=$((failed + 1)); }
  echo "$name: $(tail -n 1 "$results/proof.log")"
}

# check_model MODEL: every comparison of one model; counts go to its folder's `counts`.
check_model() {
  local model=$1 name between apart counts=(70 1 33)
  name=$(basename "$model")
  results=$all_results/$name graphs=("$few") failed=0 compared=0 texts=0
  mkdir -p "$results"
  if [ "$name" = demo ]; then counts=(2000) graphs=("${rank_counts[@]}"); fi
  tokens "$model/config.json" "${counts[@]}" >"$results/tokens.json" || return
  if ! "$program" score "$model" --tokens "$results/tokens.json" --out "$results/cpu.safetensors" -q 2>"$results/cpu.log"; then
    echo "$name: $(cat "$results/cpu.log")"
    # A family that is refused on a processor is refused everywhere.
    grep -q "not supported yet" "$results/cpu.log" && echo "0 0 0 0 0" >"$results/counts"
    return
  fi
  same_everywhere cpu "$name" "$model" "$results/tokens.json" --numerics portable
  same_text "$name" "$model" 1 "${graphs[@]}"
  between=$compared apart=0
  if [ "$name" = demo ]; then same_proof "$name" "$model"; fi
  if score one "$name" "$model" "$results/tokens.json"; then
    same_everywhere one "$name" "$model" "$results/tokens.json"
    apart=$(distance "$results/cpu.safetensors" "$results/one.safetensors") || return
    python3 -c "import sys; sys.exit(not $apart <= 1e-3)" || { echo "FAR $name: $apart" && failed=$((failed + 1)); }
  fi
  echo "$name: $between words portable, $((compared - between)) exact and $apart from the processor's"
  echo "$between $((compared - between)) $texts $failed $apart" >"$results/counts"
}

"$program" doctor --backend cuda || exit 1
# What passes between ranks: links, sums by size, and very many sums one by one and in graphs.
"$program" bench p2p --backend cuda || failed=$((failed + 1))
"$program" bench allreduce --backend cuda || failed=$((failed + 1))
for n in "${rank_counts[@]}"; do "$program" bench allreduce --backend cuda --ranks "$n" --soak 10000 || failed=$((failed + 1)); done
"$program" bench allreduce --backend cuda --ranks "$few" --launch processes --transport peer --soak 300 || failed=$((failed + 1))
models=(models/demo)
for model in tests/golden/cases/*; do
  [ -f "$model/config.json" ] && models+=("$model")
done
rm -f "$all_results"/*/counts
for model in "${models[@]}"; do (check_model "$model"); done
awk -v models="${#models[@]}" '
  BEGIN { worst = 0 }
  { portable += $1; exact += $2; texts += $3; failed += $4; if ($5 > worst) worst = $5 }
  END {
    failed += models - NR
    printf "%d words of logits and tokens and %d texts equal the processor\47s; %d equal one rank\47s and are at most %s from " \
      "the processor\47s; %d comparisons failed\n", portable, texts, exact, worst, failed
    exit failed > 0
  }' "$all_results"/*/counts || failed=$((failed + 1))
for sequences in 1 8 16; do
  "$program" bench models/demo --backend cuda --alone --rounds 3 -q --sequences $sequences || failed=$((failed + 1))
done
for transport in peer host; do
  echo "demo, 2 ranks, --transport $transport:"
  "$program" bench models/demo --backend cuda --alone --rounds 3 -q --ranks 2 --transport $transport ||
    failed=$((failed + 1))
done
# Geometries of real models with made-up weights, on as many ranks as there are GPUs, too.
gpus=$(nvidia-smi -L | wc -l)
runs=("1 1" "8 1")
[ "$gpus" -gt 1 ] && runs+=("1 $gpus")
for geometry in "qwen3.8-27b mxfp4" "qwen3.8-27b fp8" "qwen3-30b-a3b bf16"; do
  read -r name format <<<"$geometry"
  for run in "${runs[@]}"; do
    read -r sequences n <<<"$run"
    echo "$geometry, $sequences sequences, $n ranks:"
    "$program" bench "bench/geometries/$name" --dummy-weights "$format" --backend cuda --alone --rounds 1 -q \
      --sequences "$sequences" --ranks "$n" --prompt-tokens 64 --tokens 33 || failed=$((failed + 1))
  done
done
[ "$failed" = 0 ]
