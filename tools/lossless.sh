#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Greedy tokens with and without drafts, on the real pair, over UCX: every policy, budget, block size
# and draft length, prompts of 30, 1,500 and 6,000 tokens cut from this machine's Python library; then
# the law of sampled answers. One line per run; figures in build/lossless.json, written after every
# run. Needs `make build` and the models. Exit code 3 when a check does not hold.
#
# PROMPTS, POLICIES, BUDGETS, BLOCKS, DRAFT_LENS and LAW_SAMPLES choose a part, JSON another file for
# the figures; arguments go to `rift verify`.
set -euo pipefail
cd "$(dirname "$0")/.."

rift=${RIFT:-build/ci/bin/rift}
models=${RIFT_MODELS:-$HOME/.cache/rift/models}
target=$models/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf
draft=$models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
for file in "$rift" "$target" "$draft"; do
  [[ -e $file ]] || { echo "lossless: $file is missing; run: make lossless" >&2; exit 1; }
done

text=$(mktemp --suffix=.txt)
trap 'rm -f "$text"' EXIT
python3 - >"$text" <<'END'
import importlib.util, pathlib
for module in ("queue", "sched", "reprlib", "heapq", "contextlib", "textwrap"):
    print(pathlib.Path(importlib.util.find_spec(module).origin).read_text(encoding="utf-8"))
END
# A refresh every 8 tokens: the answers are short, and refreshes are what could go wrong.
"$rift" verify -m "$target" -md "$draft" -f "$text" -n 24 --delta 8 --json "${JSON:-build/lossless.json}" \
  --prompt-tokens "${PROMPTS:-30,1500,6000}" --policy "${POLICIES:-full,swa,snapkv,rift-stat,rift-dyn}" \
  --budget "${BUDGETS:-1,64,256,1024}" --block "${BLOCKS:-1,16,128}" \
  --draft-len "${DRAFT_LENS:-1,4,11}" --law-samples "${LAW_SAMPLES:-300}" "$@"
