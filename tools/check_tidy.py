#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy over the sources of the product and remembers what was clean.

    check_tidy.py BUILD_DIR          the quick list on the core folders (ctest lint.tidy)
    check_tidy.py --all BUILD_DIR    everything in .clang-tidy on every folder (make tidy)

clang-tidy 14 matches every check against every system header: the whole list takes about 9 s of CPU
a file, so CI runs those checks that find most for little time, and `make tidy` runs the rest. A clean
result is kept in BUILD_DIR/tidy under a hash of all that decides it, so a repetition is free.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("common", "kernels", "model", "policy", "transport", "draft_node", "score_node",
           "target_node", "eval", "cli", "bench")
# Of the quick list: no Asio, Cap'n Proto or CLI11, which take clang-tidy most of its time.
QUICK_FOLDERS = ("common", "kernels", "model", "policy", "draft_node/core", "score_node/core",
                 "target_node/core", "eval")
QUICK = ",".join((
    "-*", "bugprone-use-after-move", "bugprone-dangling-handle", "bugprone-infinite-loop",
    "cppcoreguidelines-slicing", "cppcoreguidelines-special-member-functions",
    "cppcoreguidelines-virtual-class-destructor", "google-explicit-constructor",
    "misc-definitions-in-headers", "modernize-use-override", "performance-unnecessary-value-param",
    "performance-for-range-copy", "readability-identifier-naming", "readability-function-size",
    "readability-braces-around-statements"))
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def inputs(source, build):
    """The source and every project header that it includes, directly or not."""
    found, todo = {}, [source]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found[path] = path.read_bytes()
        for name in INCLUDE.findall(found[path].decode("utf-8", "replace")):
            todo += [base / name for base in (ROOT, build) if (base / name).is_file()]
    return [found[path] for path in sorted(found)]


def commands(build, folders):
    """(source, compile command) of each source of `folders` in the compilation database."""
    database = build / "compile_commands.json"
    if not database.is_file():
        sys.exit(f"check_tidy: {database} does not exist; configure first (cmake --preset ci)")
    for entry in json.loads(database.read_text(encoding="utf-8")):
        source = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if any(source.is_relative_to(ROOT / folder) for folder in folders):
            yield source, entry.get("command", "")


def key_of(source, command, build, salt):
    digest = hashlib.sha256(salt)
    digest.update(command.encode())
    for content in inputs(source, build):
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


def check(source, build, checks):
    """Returns (findings, seconds); findings is empty for a clean file."""
    start = time.monotonic()
    result = subprocess.run(
        ["clang-tidy", "-p", str(build), "--quiet", "--extra-arg=-Wno-unknown-warning-option",
         *checks, str(source)], capture_output=True, text=True, check=False)
    text = result.stdout.strip()
    if result.returncode != 0 and not text:
        text = result.stderr.strip()
    return (text if result.returncode != 0 else ""), time.monotonic() - start


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--all", action="store_true", help="every check of .clang-tidy")
    parser.add_argument("-j", type=int, default=os.cpu_count() or 1, help="files at a time")
    return parser.parse_args()


def main():
    options = parse()
    build = options.build.resolve()
    checks = [] if options.all else [f"--checks={QUICK}"]
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    salt = version + (ROOT / ".clang-tidy").read_bytes() + "".join(checks).encode()
    clean = build / "tidy"
    clean.mkdir(exist_ok=True)
    keys = {source: key_of(source, command, build, salt)
            for source, command in commands(build, FOLDERS if options.all else QUICK_FOLDERS)}
    todo = [source for source, key in keys.items() if not (clean / key).exists()]
    print(f"check_tidy: {len(keys)} files, {len(todo)} to check", flush=True)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        futures = {pool.submit(check, source, build, checks): source for source in todo}
        for future in concurrent.futures.as_completed(futures):
            source, (findings, seconds) = futures[future], future.result()
            print(f"{source.relative_to(ROOT)}: {seconds:.1f} s", flush=True)
            if findings:
                failed += 1
                print(findings, flush=True)
            else:
                (clean / keys[source]).touch()
    if not keys:
        sys.exit("check_tidy: no product source in the compilation database")
    if failed:
        sys.exit(f"check_tidy: {failed} files have findings")


if __name__ == "__main__":
    main()
