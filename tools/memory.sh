#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The draft node's memory for prompts of 500 and 16,000 tokens: three processes over UCX, the published
# draft model, which is its own target here (the target's size does not matter, its prefill takes
# long). Prints the arena's bytes and the process's peak resident memory for both; exit code 3 when
# the arena differs, or the peak by more than 16 copies of the token ids. Needs `make programs` and the
# models; takes minutes.
#
# SHORT and LONG are the prompt lengths; arguments go to `rift run`.
set -euo pipefail
cd "$(dirname "$0")/.."

rift=${RIFT:-build/ci/bin/rift}
models=${RIFT_MODELS:-$HOME/.cache/rift/models}
model=$models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
for file in "$rift" "$model"; do
  [[ -e $file ]] || { echo "memory: $file is missing; run: make fetch" >&2; exit 1; }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - >"$work/text" <<'END'
import importlib.util, pathlib
for module in ("queue", "sched", "contextlib", "textwrap", "argparse", "calendar", "tarfile"):
    print(pathlib.Path(importlib.util.find_spec(module).origin).read_text(encoding="utf-8"))
END
"$rift" tokenize -m "$model" -f "$work/text" >"$work/ids"

for length in "${SHORT:-500}" "${LONG:-16000}"; do
  python3 -c 'import json, sys
ids = json.load(open(sys.argv[1]))
count = int(sys.argv[2])
assert len(ids) >= count, f"{len(ids)} tokens of text, {count} wanted"
json.dump(ids[:count], sys.stdout)' "$work/ids" "$length" >"$work/prompt"
  echo "memory: a prompt of $length tokens ..." >&2
  "$rift" run -m "$model" -md "$model" --tokens "$work/prompt" -n 48 --ignore-eos --draft-len 6 \
    --delta 16 --node-log-level info --json "$work/$length.json" "$@" >/dev/null 2>"$work/$length.log"
done

python3 - "$work" "${SHORT:-500}" "${LONG:-16000}" <<'END'
import json, re, sys
work, short, long = sys.argv[1], *map(int, sys.argv[2:])
arenas, peaks = [], []
for length in (short, long):
    arena = json.load(open(f"{work}/{length}.json"))["memory_bytes"]
    history = arena.pop("score_history")
    peak = int(re.search(r"peak resident memory (\d+) bytes", open(f"{work}/{length}.log").read())[1])
    print(f"{length:>6} tokens: draft node's arena {arena}, peak resident memory {peak:,}; score history {history:,}")
    arenas.append(arena)
    peaks.append(peak)
allowed = 16 * 4 * long
print(f"arena equal: {arenas[0] == arenas[1]}; peak differs by {peaks[1] - peaks[0]:,} bytes (allowed: {allowed:,})")
sys.exit(0 if arenas[0] == arenas[1] and peaks[1] - peaks[0] <= allowed else 3)
END
