#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what building and testing need on Debian 12. Safe to repeat: when all is present it only looks.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: tools/install_deps.sh [--dev] [--fuzz] [--python] [--clients] [--check]
  (nothing)  compiler, build tools and libraries
  --dev      also clang-format and clang-tidy
  --fuzz     also clang and its fuzzing run-time library
  --python   also .venv/ with the packages of tools/requirements.txt, which some tests use as oracles
  --clients  also chromium, which the dashboard's test looks through
  --check    only say by the exit status whether all packages are present
USAGE
}

packages=(g++ cmake ninja-build pkg-config git ccache python3 python3-venv
  libhwy-dev nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev libpcre2-dev libutf8proc-dev libxxhash-dev
  libcpp-httplib-dev prometheus-cpp-dev libgtest-dev libgmock-dev libbenchmark-dev)
with_python=false
check_only=false
for argument in "$@"; do
  case "$argument" in
    --dev) packages+=(clang-format-14 clang-tidy-14) ;;
    --fuzz) packages+=(clang-14 libclang-rt-14-dev) ;;
    --python) with_python=true ;;
    --clients) packages+=(chromium) ;;
    --check) check_only=true ;;
    -h | --help) usage && exit 0 ;;
    *) echo "install_deps: unknown option $argument" >&2 && usage >&2 && exit 2 ;;
  esac
done

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

fail() {
  echo "install_deps: $*" >&2
  exit 1
}

# Names of the packages that are not installed, one a line, from one query.
missing_packages() {
  local present
  present=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null |
    sed -n 's/ installed$//p') || true  # the query fails when it does not know a name
  printf '%s\n' "${packages[@]}" | grep -vxF -e "${present:-none}" || true
}

# Runs a command up to three times, with a pause in between.
retry() {
  local attempt
  for attempt in 1 2 3; do
    "$@" && return 0
    [ "$attempt" = 3 ] || { echo "attempt $attempt failed; trying again" && sleep $((attempt * 5)); }
  done
  return 1
}

install_packages() {
  local as_root=() apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y)
  apt+=(-o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
  command -v apt-get >/dev/null || fail "expected Debian 12 with apt-get, found none; install these yourself: $*"
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null ||
      fail "packages are missing, and this is neither root nor a user with sudo; as root, run: apt-get install $*"
    sudo -n true 2>/dev/null || [ -r /dev/tty ] ||
      fail "packages are missing, and sudo needs a password but there is no terminal; as root, run: apt-get install $*"
    as_root=(sudo)
  fi
  # Old lists may name versions that are gone, so they are renewed first; one broken source need not stop the rest.
  retry "${as_root[@]}" "${apt[@]}" update || echo "the package lists could not be renewed; using those present"
  retry "${as_root[@]}" "${apt[@]}" install --no-install-recommends "$@" ||
    fail "apt-get could not install: $*; see its messages above, and check the network and the package sources"
}

install_python() {
  local stamp=$root/.venv/requirements.sha256 wanted
  wanted="$(sha256sum <"$root/tools/requirements.txt") $(readlink -f "$(command -v python3)")"
  if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && [ -x "$root/.venv/bin/python" ]; then
    echo "python packages: present"
    return
  fi
  echo "python packages: installing into .venv/"
  python3 -m venv --clear "$root/.venv" || fail ".venv: python3 could not make the environment; see the message above"
  retry "$root/.venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps --retries 5 \
    --requirement "$root/tools/requirements.txt" ||
    fail "pip could not install tools/requirements.txt; see its messages above, and check the network"
  echo "$wanted" >"$stamp"
  echo "python packages: installed"
}

command -v dpkg-query >/dev/null || fail "expected Debian 12, found no dpkg; install these yourself: ${packages[*]}"
mapfile -t missing < <(missing_packages)
if $check_only; then exit $((${#missing[@]} > 0)); fi
if [ "${#missing[@]}" = 0 ]; then
  echo "packages: present"
else
  echo "packages: installing ${missing[*]}"
  install_packages "${missing[@]}"
  mapfile -t missing < <(missing_packages)
  [ "${#missing[@]}" = 0 ] || fail "apt-get succeeded, yet these are not installed: ${missing[*]}"
  echo "packages: installed"
fi
if $with_python; then install_python; fi
