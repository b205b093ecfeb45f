# SPDX-License-Identifier: Apache-2.0
# For ./demo and ./check: numbered steps with quiet logs, elapsed seconds, and the end of the log when one fails.
# The caller sets `root` and `steps_total`, and may set `logs` (a folder, build/ when unset).

logs=${logs:-$root/build}
mkdir -p "$logs"
step_number=0
step_note=      # what the finished step says about itself; a step sets it
step_seconds=0  # how long the last step took
watcher=

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
  bold=$'\e[1m' green=$'\e[32m' red=$'\e[31m' dim=$'\e[2m' plain=$'\e[0m' to_line_start=$'\r\e[K'
else
  bold='' green='' red='' dim='' plain='' to_line_start=''
fi

# Seconds since `$1` (a value of EPOCHREALTIME), with one decimal.
elapsed() {
  local now=${EPOCHREALTIME//[.,]/} then=${1//[.,]/}
  local tenths=$(((now - then + 50000) / 100000))
  echo "$((tenths / 10)).$((tenths % 10))"
}

# Shows that a long step is alive: its last log line on a terminal, a line each half minute elsewhere.
watch_log() {
  local title=$1 log=$2 begun=$SECONDS last width
  width=$(tput cols 2>/dev/null || echo 80)
  while :; do
    # sleep outlives a killed watcher, so it must not keep the output open.
    sleep "$([ -n "$to_line_start" ] && echo 0.3 || echo 30)" >/dev/null
    last=$(tail -n 1 "$log" | tr -cd '[:print:]')
    if [ -n "$to_line_start" ]; then
      printf '%s%s%s%s%s' "$to_line_start" "$title" "$dim" "${last:0:$((width > 60 ? width - 50 : 10))}" "$plain"
    else
      printf '\n    %d s: %s ... ' $((SECONDS - begun)) "${last:0:90}"
    fi
  done
}

stop_watcher() {
  [ -n "$watcher" ] || return 0
  kill "$watcher" 2>/dev/null || true
  wait "$watcher" 2>/dev/null || true
  watcher=
}
trap stop_watcher EXIT

# step NAME COMMAND...: runs the command with its output in $logs/NAME.log, shows the log's end if it fails, and returns
# the command's status.
step() {
  local name=$1 log begun title status=0
  shift
  step_number=$((step_number + 1))
  log=$logs/${name// /_}.log
  title="[$step_number/$steps_total] $bold$name$plain: "
  begun=$EPOCHREALTIME
  step_note=done
  : >"$log"
  printf '%s' "$title"
  watch_log "$title" "$log" </dev/null 2>/dev/null &
  watcher=$!
  "$@" >>"$log" 2>&1 </dev/null || status=$?
  stop_watcher
  step_seconds=$(elapsed "$begun")
  [ -z "$to_line_start" ] || printf '%s%s' "$to_line_start" "$title"
  if [ "$status" = 0 ]; then
    echo "$step_note ($step_seconds s)"
  else
    echo "${red}FAILED$plain ($step_seconds s); the end of ${log#"$root"/}:"
    tail -n "${failure_lines:-30}" "$log" | sed 's/^/    /'
  fi
  return "$status"
}

packages_step() {
  "$root/tools/install_deps.sh" "$@" || return 1
  step_note=$(if grep -q installing "$log"; then echo installed; else echo present; fi)
}

# Asks for the password before output is redirected, when packages are missing and sudo needs it.
ask_password() {
  if [ "$(id -u)" != 0 ] && [ -t 0 ] && command -v sudo >/dev/null; then
    "$root/tools/install_deps.sh" --check "$@" || sudo -v
  fi
}

# configure FOLDER CMAKE-ARGUMENT...: configures once, and again when the tree has moved or the arguments changed.
configure() {
  local folder=$1 wanted
  shift
  wanted="$root $*"
  [ ! -f "$folder/build.ninja" ] || [ "$(cat "$folder/configured" 2>/dev/null)" != "$wanted" ] || return 0
  local launcher=()
  ! command -v ccache >/dev/null || launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  cmake --fresh -S "$root" -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo "${launcher[@]}" "$@" || return 1
  echo "$wanted" >"$folder/configured"
}

# build FOLDER TARGET...: builds, and notes whether there was anything to do.
build() {
  local folder=$1
  shift
  ninja -C "$folder" "$@" || return 1
  step_note=$(if tail -n 1 "$log" | grep -q 'no work to do'; then echo "up to date"; else echo built; fi)
}
