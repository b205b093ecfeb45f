#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks and times the CUDA backend on a machine that has GPUs, in one go:
#   tools/device_check.sh [--ranks N[,N...]] [PROGRAM [LAYOUTS [RESULTS]]]
# PROGRAM is trivet (build/trivet), also as `cmake --install` puts it elsewhere; LAYOUTS cuda_layouts_test
# (build/tests/cuda_layouts_test); RESULTS a folder for logs (build/device).
# For every model and several rank counts (2,3,5,7) on the GPUs there are, which ranks share where they are fewer: under the
# portable contract logits are compared by bytes with the processor's; under the exact one, whose products matrix units
# make, by bytes with those of one rank, which in turn are near the processor's. What needs a program of its own, ranks
# as processes, texts and records, is tried with the demo.
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
program=$(realpath "${1:-build/trivet}") layouts=$(realpath "${2:-build/tests/cuda_layouts_test}")
results=$(realpath -m "${3:-build/device}")
mkdir -p "$results"
failed=0
few=${rank_counts[0]}  # what is tried in more ways
for n in "${rank_counts[@]}"; do [ "$n" = 3 ] && few=3; done

# try WHAT COMMAND...: runs it with its output in a log of that name, and counts a failure.
try() {
  local log=$results/$1.log
  shift
  "$@" >"$log" 2>&1 && return
  echo "FAILED $*: $(tail -n 1 "$log")"
  failed=$((failed + 1))
  return 1
}

# same WHAT A B: whether two files are the same bytes.
same() {
  cmp -s "$results/$2" "$results/$3" && echo "$1: equal, $(stat -c %s "$results/$3") bytes" && return
  echo "DIFFERS $1: $(cmp "$results/$2" "$results/$3" 2>&1 | head -n 1)"
  failed=$((failed + 1))
}

# processes CONTRACT: logits of ranks that are processes, with both transports, against those of one rank.
processes() {
  local transport
  score() { try score "$program" score models/demo --tokens "$results/tokens.json" --numerics "$1" -q --out "$results/$2" "${@:3}"; }
  score "$1" one.safetensors --backend "$2" --ranks 1 || return
  for transport in auto host; do
    score "$1" found.safetensors --backend cuda --ranks "$few" --launch processes --transport "$transport" &&
      same "demo, $1, $few processes, --transport $transport, and one rank ($2)" one.safetensors found.safetensors
  done
}

# texts RANKS...: 400 tokens of the demo on the processor and on GPUs, by recorded steps.
texts() {
  local n
  write() {
    "$program" generate models/demo --numerics portable --raw --prompt "Tom has 12 apples" --max-tokens 400 --ignore-eos \
      --seed 7 --json -q "${@:2}" >"$results/$1" 2>"$results/write.log" && return
    echo "FAILED generate ${*:2}: $(tail -n 1 "$results/write.log")"
    failed=$((failed + 1))
    return 1
  }
  write cpu.json --backend cpu || return
  for n in "$@"; do
    write cuda.json --backend cuda --ranks "$n" && same "demo, text of 400 tokens, $n ranks and the processor" cpu.json cuda.json
  done
}

# records: whether `verify` finds one sealed run on a GPU equal to one of more ranks, steps chunked.
records() {
  local n
  for n in 1 "$few"; do
    rm -rf "$results/run$n"
    try generate "$program" generate models/demo --backend cuda --ranks "$n" --raw --prompt "Tom has 12 apples" \
      --max-tokens 60 --ignore-eos --prefill-chunk "$((n + 2))" --proof digest --out "$results/run$n" -q || return
  done
  try verify "$program" verify "$results/run1" "$results/run$few"
  echo "demo, records of 1 and $few ranks: $(tail -n 1 "$results/verify.log")"
}

"$program" doctor --backend cuda || exit 1
# What passes between ranks: links, sums by size, and very many sums one by one and in graphs.
"$program" bench p2p --backend cuda || failed=$((failed + 1))
"$program" bench allreduce --backend cuda || failed=$((failed + 1))
"$program" bench allreduce --backend cuda --norm 5120 || failed=$((failed + 1))
for n in "${rank_counts[@]}"; do "$program" bench allreduce --backend cuda --ranks "$n" --soak 10000 || failed=$((failed + 1)); done
# Shares by weight, of which rank 0 has none; and equal ones in chunks.
for n in "${rank_counts[@]}"; do
  "$program" bench allreduce --backend cuda --ranks "$n" --algorithm weighted --weights "$(seq -s, 0 $((n - 1)))" --soak 3000 || failed=$((failed + 1))
done
"$program" bench allreduce --backend cuda --algorithm weighted || failed=$((failed + 1))
"$program" bench allreduce --backend cuda --ranks "$few" --launch processes --transport peer --soak 300 || failed=$((failed + 1))
models=(models/demo)
for model in tests/golden/cases/*; do
  [ -f "$model/config.json" ] && models+=("$model")
done
list=$(IFS=, && echo "${rank_counts[*]}")
"$layouts" --ranks "$list" "${models[@]}" || failed=$((failed + 1))
python3 -c "import json; print(json.dumps([[(i * i * 37 + i * 11) % 4096 for i in range(333)]]))" >"$results/tokens.json"
processes portable cpu
processes exact cuda
texts 1 "${rank_counts[@]}"
records
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
