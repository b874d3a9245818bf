#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs llama.cpp and rift in turn on the same files, threads, prompts and depths, and prints ratios.

    pip install --no-binary llama-cpp-python llama-cpp-python   # with CMAKE_ARGS=-DGGML_NATIVE=ON
    pip install xllamacpp
    bench/peers/llamacpp.py -m TARGET.gguf [-md DRAFT.gguf] [--python OTHER_VENV/bin/python] ...

Peers: llama-cpp-python, built for the CPU at hand, for prefill, decoding and verification (new tokens
evaluated in one batch after a prompt); the xllamacpp wheel for plain and speculative generation, and
for prefill and decoding where the other is missing. Each is looked for in this interpreter and in
those that --python names; what is used, and what is skipped and why, is printed. f16 KV, flash
attention. Both sides' caches are filled with tokens that mean nothing (rift's with random keys and
values): time does not depend on them. llama.cpp has to compute its; --states FOLDER keeps them for
the next run. Figures are medians over the rounds; ratios above 1: rift is faster.

-md adds generation: RIFT-dyn with --draft-len auto and plain decoding against the wheel's plain and
speculative modes, greedy, from the same prompt (--prompt FILE of ids, or the first --generate-depth
tokens of this machine's Python library).
"""
import argparse
import collections
import ctypes
import hashlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

DECODED = 16
SPARE = 64


# ---- in the peer's interpreter: one JSON request a line in, one answer a line out ----

class Native:
    """llama-cpp-python's C interface: batches of any width after any depth."""

    def __init__(self, request):
        import llama_cpp
        self.lib = llama_cpp
        self.request = request
        llama_cpp.llama_backend_init()
        self.log = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self.log, None)
        model_params = llama_cpp.llama_model_default_params()
        model_params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(request["model"].encode(), model_params)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = request["positions"] + SPARE
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = request["threads"]
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("llama.cpp made no context")
        self.batch = llama_cpp.llama_batch_init(512, 0, 1)
        self.depth = 0

    @staticmethod
    def about():
        import llama_cpp
        return f"llama-cpp-python {llama_cpp.__version__}: {llama_cpp.llama_print_system_info().decode()}"

    def evaluate(self, count, all_logits):
        """One batch after self.depth, seconds; what was there before stays."""
        for i in range(count):
            at = self.depth + i
            self.batch.token[i] = 100 + at * 7919 % 30000
            self.batch.pos[i] = at
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = 0
            self.batch.logits[i] = all_logits or i == count - 1
        self.batch.n_tokens = count
        begin = time.perf_counter()
        if self.lib.llama_decode(self.context, self.batch) != 0:
            raise RuntimeError(f"llama_decode of {count} tokens after {self.depth} failed")
        self.lib.llama_synchronize(self.context)
        return time.perf_counter() - begin

    def cut(self, depth):
        memory = self.lib.llama_get_memory(self.context)
        self.lib.llama_memory_seq_rm(memory, 0, depth, -1)
        self.depth = depth

    def go_to(self, depth):
        """Cached tokens [0, depth), from a kept state where there is one."""
        if depth <= self.depth:
            return self.cut(depth)
        path = None
        if self.request["states"]:
            name = f"{self.request['model']} {self.lib.__version__} {depth}"
            path = pathlib.Path(self.request["states"]) / hashlib.sha256(name.encode()).hexdigest()[:16]
            if path.exists():
                tokens = (self.lib.llama_token * 1)()
                found = ctypes.byref(ctypes.c_size_t(0))
                if self.lib.llama_state_load_file(self.context, str(path).encode(), tokens, 0, found):
                    self.depth = depth
                    return None
        while self.depth < depth:
            count = min(512, depth - self.depth)
            self.evaluate(count, False)
            self.depth += count
        if path:
            tokens = (self.lib.llama_token * 1)()
            self.lib.llama_state_save_file(self.context, str(path).encode(), tokens, 0)
        return None

    def prefill(self, count):
        self.cut(0)
        begin = time.perf_counter()
        while self.depth < count:
            self.depth += 512 if self.evaluate(min(512, count - self.depth), False) else 0
        self.depth = count
        return time.perf_counter() - begin

    def decode(self, depth):
        return self.verify(depth, 1, DECODED)

    def verify(self, depth, width, repetitions=3):
        """Median seconds of a batch of `width` after `depth`."""
        self.go_to(depth)
        times = []
        for _ in range(repetitions + 1):
            times.append(self.evaluate(width, True))
            self.cut(depth)
        return statistics.median(times[1:])


class Wheel:
    """xllamacpp's server: prompts and generation, plain or with a draft model."""

    def __init__(self, request):
        import xllamacpp
        params = xllamacpp.CommonParams()
        params.model.path = request["model"]
        params.n_ctx = request["positions"] + SPARE
        params.n_parallel = 1
        params.n_gpu_layers = 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = request["threads"]
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
        if request.get("draft"):
            params.speculative.types = [
                xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
            draft = params.speculative.draft
            draft.mparams.path = request["draft"]
            draft.n_max = request["draft_len"]
            draft.n_gpu_layers = 0
            draft.cpuparams.n_threads = draft.cpuparams_batch.n_threads = request["threads"]
        self.server = xllamacpp.Server(params)

    @staticmethod
    def about():
        import xllamacpp
        return f"xllamacpp {xllamacpp.__version__}: {xllamacpp.get_system_info()}"

    def complete(self, tokens, predict, keep):
        answer = self.server.handle_completions(
            {"prompt": tokens, "n_predict": predict, "temperature": 0, "ignore_eos": True,
             "cache_prompt": keep})
        return answer["timings"]

    def prefill(self, count):
        tokens = [100 + i * 7919 % 30000 for i in range(count)]
        return self.complete(tokens, 1, False)["prompt_ms"] / 1e3

    def decode(self, depth):
        tokens = [100 + i * 7919 % 30000 for i in range(max(depth, 1))]
        return self.complete(tokens, DECODED, True)["predicted_per_token_ms"] / 1e3

    def generate(self, tokens, predict):
        return self.complete(tokens, predict, True)


def serve(kind):
    """The loop of a peer process."""
    peer = None
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the library prints is not an answer
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["op"] == "about":
                result = kind.about()
            elif request["op"] == "open":
                peer = kind(request)
                result = None
            else:
                result = getattr(peer, request["op"])(*request["arguments"])
            reply = {"result": result}
        except Exception as error:  # pylint: disable=broad-exception-caught
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=answers, flush=True)


# ---- in the caller's interpreter ----

class Peer:
    """A process that runs one of the classes above; it waits while others are timed."""

    def __init__(self, python, kind):
        self.process = subprocess.Popen(
            [python, os.path.abspath(__file__), "--serve", kind], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def ask(self, **request):
        try:
            print(json.dumps(request), file=self.process.stdin, flush=True)
            reply = json.loads(self.process.stdout.readline() or '{"error": "the process ended"}')
        except BrokenPipeError:
            reply = {"error": "the process ended"}
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply["result"]

    def call(self, op, *arguments):
        return self.ask(op=op, arguments=arguments)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def find(kind, pythons):
    """(interpreter, what it has) of the first that can run the peer; None after saying why not."""
    reasons = []
    for python in pythons:
        peer = Peer(python, kind)
        try:
            about = peer.ask(op="about")
            print(f"uses {about}", flush=True)
            return python
        except RuntimeError as error:
            reasons.append(str(error))
        finally:
            peer.close()
    print(f"skips {kind}: {'; '.join(dict.fromkeys(reasons))}", flush=True)
    return None


def rift_rates(args, tests):
    """Seconds of every point of `rift bench model`."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run(
            [args.rift, "bench", "model", "-m", args.model, "-t", str(args.threads),
             "--test", ",".join(tests), "--prefill", ",".join(map(str, args.prefill or [1])),
             "--depth", ",".join(map(str, args.depths)), "--verify-depth", ",".join(map(str, args.depths)),
             "--widths", ",".join(map(str, args.widths)), "--rounds", "1", "--seconds", "0.3",
             "--json", out.name], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rows = json.load(open(out.name, encoding="utf-8"))["rows"]
    keys = {"prefill": lambda r: ("prefill", r["tokens"], 0), "decode": lambda r: ("decode", 1, r["depth"]),
            "verify": lambda r: ("verify", r["width"], r["depth"])}
    return {keys[row["test"]](row): row["median_seconds"] for row in rows}


def peer_rates(peer, args, tests):
    seconds = {}
    for depth in sorted(args.depths):
        if "decode" in tests:
            seconds["decode", 1, depth] = peer.call("decode", depth)
        if "verify" in tests:
            for width in args.widths:
                seconds["verify", width, depth] = peer.call("verify", depth, width)
    for count in args.prefill if "prefill" in tests else []:
        seconds["prefill", count, 0] = peer.call("prefill", count)
    return seconds


def compare_passes(args, python, kind):
    tests = (["prefill"] if args.prefill else []) + ["decode"] + (["verify"] if kind == "native" else [])
    peer = Peer(python, kind)
    peer.ask(op="open", model=args.model, threads=args.threads, states=args.states,
             positions=max(args.prefill + args.depths) + max(args.widths))
    for depth in sorted(args.depths) if kind == "native" else []:
        peer.call("go_to", depth)  # computes and keeps what is not timed
    if args.prepare:
        return peer.close()
    times = {"llama.cpp": collections.defaultdict(list), "rift": collections.defaultdict(list)}
    for _ in range(args.rounds):
        for name, rates in (("llama.cpp", peer_rates(peer, args, tests)), ("rift", rift_rates(args, tests))):
            for key, seconds in rates.items():
                times[name][key].append(seconds)
    peer.close()
    print(f"{'test':<8} {'tokens':>7} {'depth':>7} {'llama.cpp ms':>13} {'rift ms':>10} {'ratio':>6}")
    for key in times["llama.cpp"]:
        theirs, own = (statistics.median(times[name][key]) for name in ("llama.cpp", "rift"))
        print(f"{key[0]:<8} {key[1]:>7} {key[2]:>7} {theirs * 1e3:>13.1f} {own * 1e3:>10.1f} {theirs / own:>6.2f}")
    return None


def prompt_ids(args):
    if args.prompt:
        return json.load(open(args.prompt, encoding="utf-8"))
    import contextlib, queue, sched, textwrap  # pylint: disable=import-outside-toplevel,multiple-imports
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        for module in (queue, sched, contextlib, textwrap):
            text.write(pathlib.Path(module.__file__).read_text(encoding="utf-8"))
        text.flush()
        listed = subprocess.run([args.rift, "tokenize", "-m", args.model, "-f", text.name], check=True,
                                capture_output=True, text=True).stdout
    return json.loads(listed)[:args.generate_depth]


def rift_run(args, tokens, more):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as prompt, \
            tempfile.NamedTemporaryFile(suffix=".json") as out:
        json.dump(tokens, prompt)
        prompt.flush()
        subprocess.run(
            [args.rift, "run", "-m", args.model, "--tokens", prompt.name, "-n", str(args.predict),
             "--ignore-eos", "--threads", str(args.threads), "-q", "--json", out.name, *more],
            check=True, stdout=subprocess.DEVNULL)
        return json.load(open(out.name, encoding="utf-8"))


def compare_generation(args, python):
    """One answer each: prompts are read in full, which takes the time."""
    tokens = prompt_ids(args)
    rates = {}
    for name, draft in (("plain", None), ("speculative", args.draft)):
        peer = Peer(python, "wheel")
        peer.ask(op="open", model=args.model, draft=draft, draft_len=args.draft_len, threads=args.threads,
                 positions=len(tokens) + args.predict)
        timings = peer.call("generate", tokens, args.predict)
        peer.close()
        rates["llama.cpp " + name] = timings["predicted_per_second"]
        if draft:
            print(f"llama.cpp speculative, draft length {args.draft_len}: {timings.get('draft_n_accepted')} of "
                  f"{timings.get('draft_n')} drafts accepted")
    plain = rift_run(args, tokens, ["--no-draft"])
    drafted = rift_run(args, tokens, ["-md", args.draft, "--policy", "rift-dyn", "--draft-len", "auto"])
    same = plain["output_tokens"] == drafted["output_tokens"]
    rates["rift plain"] = plain["tokens_per_second"]
    rates["rift, RIFT-dyn"] = drafted["tokens_per_second"]
    print(f"generation of {args.predict} tokens after {len(tokens)}, tok/s; RIFT-dyn accepts "
          f"{drafted['accepted_length_pooled']:.2f} a verification; its tokens are plain decoding's: {same}")
    print(f"{'':<24} {'tok/s':>7} {'RIFT-dyn / it':>14}")
    for name, rate in rates.items():
        print(f"{name:<24} {rate:>7.2f} {rates['rift, RIFT-dyn'] / rate:>14.2f}")
    return 0 if same else 3


def main():
    numbers = lambda text: [int(part) for part in text.split(",") if part]
    here = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--serve", choices=("native", "wheel"), help=argparse.SUPPRESS)
    parser.add_argument("-m", "--model")
    parser.add_argument("-md", "--draft")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--python", action="append", default=[], help="interpreter that has a peer")
    parser.add_argument("--depths", type=numbers, default=[0, 2048, 8192])
    parser.add_argument("--prefill", type=numbers, default=[512, 2048], help="prompt lengths; '': none")
    parser.add_argument("--widths", type=numbers, default=[1, 2, 4, 8, 12, 16, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--states", help="folder where llama.cpp's filled caches are kept")
    parser.add_argument("--prepare", action="store_true", help="fill --states, time nothing")
    parser.add_argument("--only-generation", action="store_true")
    parser.add_argument("--prompt", help="file with a JSON array of ids, for -md")
    parser.add_argument("--generate-depth", type=int, default=2048)
    parser.add_argument("--predict", type=int, default=64)
    parser.add_argument("--draft-len", type=int, default=11, help="of llama.cpp's speculative mode")
    parser.add_argument("--rift", default=str(here / "build/ci/bin/rift"))
    args = parser.parse_args()
    if args.serve:
        return serve({"native": Native, "wheel": Wheel}[args.serve])
    if not args.model:
        parser.error("-m is needed")
    if args.states:
        pathlib.Path(args.states).mkdir(parents=True, exist_ok=True)
    pythons = [sys.executable, *args.python]
    native, wheel = find("native", pythons), find("wheel", pythons)
    if not native and not wheel:
        print("llamacpp: no comparison")
        return 0
    if not args.only_generation:
        compare_passes(args, native or wheel, "native" if native else "wheel")
    if args.draft and not args.prepare:
        if not wheel:
            print("skips generation: only the wheel has a speculative mode")
            return 0
        return compare_generation(args, wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
