#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs llama.cpp (the xllamacpp wheel) and rift_bench_model in turn on the same file and threads, and
prints the ratios: prefill, decoding at depth, both with f16 KV.

    pip install xllamacpp
    bench/peers/llamacpp.py -m MODEL.gguf [--depths 0,2048,8192] [--prefill 512,2048] [--rounds 2]

Ratios above 1: rift is faster. Figures are the better of the rounds, which alternate, so that a machine
that changes its speed meets both. Exit code 0 without a comparison, and the reason, where the wheel
is not installed.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

DECODED = 32


def ids(count, seed):
    """Token ids that no cache has seen: any do, the work is the same."""
    return [100 + (i * 7919 + seed * 104729) % 30000 for i in range(count)]


def llama_server(xllamacpp, args, longest):
    params = xllamacpp.CommonParams()
    params.model.path = args.model
    params.n_ctx = longest + DECODED + 64
    params.n_parallel = 1
    params.cpuparams.n_threads = args.threads
    params.cpuparams_batch.n_threads = args.threads
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    params.n_gpu_layers = 0
    return xllamacpp.Server(params)


def llama_timings(server, depth, seed, predict):
    answer = server.handle_completions(
        {"prompt": ids(max(depth, 1), seed), "n_predict": predict, "temperature": 0, "ignore_eos": True,
         "cache_prompt": False})
    return answer["timings"]


def llama_rates(xllamacpp, args, seed):
    server = llama_server(xllamacpp, args, max(args.prefill + args.depths))
    rates = {}
    for count in args.prefill:
        rates["prefill", count] = llama_timings(server, count, seed, 1)["prompt_per_second"]
    for depth in args.depths:
        rates["decode", depth] = llama_timings(server, depth, seed, DECODED)["predicted_per_second"]
    return rates


def rift_rates(args):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run(
            [args.rift, "-m", args.model, "-t", str(args.threads), "--test", "prefill,decode",
             "--prefill", ",".join(map(str, args.prefill)), "--depth", ",".join(map(str, args.depths)),
             "--seconds", "1", "--json", out.name],
            check=True, stdout=subprocess.DEVNULL)
        rows = json.load(open(out.name, encoding="utf-8"))["rows"]
    return {(row["test"], row["tokens"] if row["test"] == "prefill" else row["depth"]):
            row["tokens_per_second"] for row in rows}


def main():
    numbers = lambda text: [int(part) for part in text.split(",")]
    here = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--depths", type=numbers, default=[0, 2048, 8192])
    parser.add_argument("--prefill", type=numbers, default=[512, 2048])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rift", default=str(here / "build/ci/bin/rift_bench_model"))
    args = parser.parse_args()
    try:
        import xllamacpp
    except ImportError as error:
        print(f"llamacpp: no comparison: {error} (pip install xllamacpp)")
        return 0
    print(f"xllamacpp {xllamacpp.__version__}: {xllamacpp.get_system_info()}", flush=True)
    best = {"llama.cpp": {}, "rift": {}}
    for turn in range(args.rounds):
        for name, rates in (("llama.cpp", llama_rates(xllamacpp, args, turn)), ("rift", rift_rates(args))):
            for key, rate in rates.items():
                best[name][key] = max(rate, best[name].get(key, 0.0))
    print(f"{'test':<8} {'tokens':>7} {'llama.cpp':>10} {'rift':>8} {'ratio':>6}   tok/s")
    for key, peer in best["llama.cpp"].items():
        own = best["rift"][key]
        print(f"{key[0]:<8} {key[1]:>7} {peer:>10.2f} {own:>8.2f} {own / peer:>6.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
