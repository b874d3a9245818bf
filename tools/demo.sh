#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A 1.5B model answers a question about 4,000 tokens of source code, verified from the drafts of a 0.5B
# model that keeps 1,024 positions; three processes on loopback. Needs `make build` and the models.
set -euo pipefail
cd "$(dirname "$0")/.."

rift=${RIFT:-build/ci/bin/rift}
models=${RIFT_MODELS:-$HOME/.cache/rift/models}
target=$models/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf
draft=$models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
for file in "$rift" "$target" "$draft"; do
  [[ -e $file ]] || { echo "demo: $file is missing; run: make demo" >&2; exit 1; }
done

prompt=$(mktemp --suffix=.txt)
trap 'rm -f "$prompt"' EXIT
tools/demo_prompt.py "$prompt" 4000 "$rift" tokenize -m "$target" -f
"$rift" run -m "$target" -md "$draft" -f "$prompt" --policy rift-dyn --budget 1024 --block 16 \
  --rho 0.5 --delta 32 -n 256 "$@"
