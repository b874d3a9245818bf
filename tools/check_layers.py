#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the direction of includes between the layers, and what every source file must have.

The table is that of ARCHITECTURE.md section 8: arrows only downward, no node includes another,
a node's core/ has no I/O. Prints one line per finding and exits with 1 if there is any.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NODES = ("draft_node", "score_node", "target_node")
BELOW_NODES = ("common", "kernels", "model", "policy", "transport")
EVERYTHING = (*BELOW_NODES, *NODES, "eval", "cli", "bench", "tests")

# Folder -> folders whose headers it may include.
ALLOWED = {
    "common": ("common",),
    "kernels": ("kernels", "common"),
    "model": ("model", "common", "kernels"),
    "policy": ("policy", "common", "kernels"),
    "transport": ("transport", "common"),
    **{node: (node, *BELOW_NODES) for node in NODES},
    "eval": ("eval", *BELOW_NODES, *NODES),
    "cli": EVERYTHING,
    "bench": EVERYTHING,
    "tests": EVERYTHING,
}

# (where, what may not be included there, why). Both are regular expressions over repository paths.
FORBIDDEN = (
    (r"\w+_node/core/", r"boost/asio|asio|uc[pst]/|capnp/|kj/|sys/|netinet/|fstream|thread|"
     r"transport/(ucx|inproc)", "a core is a state machine without I/O"),
    (r"(?!transport/ucx/|tests/|bench/|cli/)", r"uc[pst]/", "UCX stays inside transport/ucx"),
    (r"(?!transport/|tests/|bench/)", r"capnp/|kj/", "Cap'n Proto stays inside transport"),
    (r"(common|kernels|model|policy)/", r"boost/asio", "no event loop below transport"),
    (r"(kernels|policy)/", r"boost/|spdlog/|CLI/|archive|openssl/", "kernels and policy are pure"),
)

SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
SPDX = "SPDX-License-Identifier: Apache-2.0"
MAX_LINES = 700
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def check_includes(path, lines):
    """Yields findings about the include lines of one file; path is relative to the root."""
    folder = path.split("/", 1)[0]
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quoted, target = match.group(1) == '"', match.group(2)
        top = target.split("/", 1)[0]
        where = f"{path}:{number}"
        if quoted and ("/" not in target or top not in ALLOWED):
            yield f'{where}: include "{target}": write the path from the repository root'
        elif quoted and top not in ALLOWED[folder]:
            may = ", ".join(ALLOWED[folder])
            yield f'{where}: {folder} may not include {top} ("{target}"); allowed: {may}'
        for place, what, why in FORBIDDEN:
            if re.match(place, path) and re.match(rf"(?:{what})", target):
                yield f"{where}: {target} is not allowed here: {why}"


def check_file(path, text):
    """Yields all findings about one source file."""
    lines = text.splitlines()
    if not lines or SPDX not in lines[0]:
        yield f"{path}:1: the first line must be // {SPDX}"
    if path.endswith((".h", ".cuh")) and not path.endswith(".inl.h") and "#pragma once" not in lines:
        yield f"{path}:1: no #pragma once"
    if len(lines) > MAX_LINES:
        yield f"{path}:{len(lines)}: {len(lines)} lines; split it (at most {MAX_LINES}, best 400)"
    yield from check_includes(path, lines)


def check_script(path, text):
    """Scripts and build files carry the licence tag in their first two lines."""
    if not any(SPDX in line for line in text.splitlines()[:2]):
        yield f"{path}:1: no '# {SPDX}' in the first two lines"


def repository_files(root):
    for folder in (*ALLOWED, "tools", "cmake"):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file():
                yield path


def check_tree(root):
    findings, count = [], 0
    for path in repository_files(root):
        name = path.relative_to(root).as_posix()
        if path.suffix in SUFFIXES:
            check = check_file
        elif path.suffix in {".py", ".sh", ".cmake"}:
            check = check_script
        else:
            continue
        count += 1
        findings += check(name, path.read_text(encoding="utf-8"))
    return findings, count


def self_test():
    """The rules must be able to fail: each line here has to give a finding."""
    head = f"// {SPDX}\n#pragma once\n"
    bad = {
        "kernels/a.h": head + '#include "model/config.h"',
        "model/a.h": head + '#include "policy/budget.h"',
        "policy/a.h": head + '#include "model/config.h"',
        "transport/a.h": head + '#include "model/config.h"',
        "common/a.h": head + '#include "kernels/ops.h"',
        "draft_node/a.h": head + '#include "score_node/core/score_core.h"',
        "score_node/core/a.h": head + "#include <boost/asio.hpp>",
        "target_node/core/a.h": head + '#include "transport/ucx/worker.h"',
        "draft_node/service/a.h": head + "#include <ucp/api/ucp.h>",
        "eval/a.h": head + '#include "cli/report.h"',
        "model/b.h": head + '#include "config.h"',
        "model/c.h": f"// {SPDX}\n",
        "model/d.h": "#pragma once\n",
        "model/e.cc": head + "\n" * MAX_LINES,
    }
    missed = [name for name, text in bad.items() if not list(check_file(name, text))]
    good = head + '#include "transport/messages.h"\n#include "policy/budget.h"\n#include <vector>\n'
    if missed or list(check_file("draft_node/core/a.h", good)):
        sys.exit(f"check_layers: self test failed: {missed}")


def main():
    self_test()
    findings, count = check_tree(ROOT)
    for finding in findings:
        print(finding)
    if count == 0:
        sys.exit("check_layers: no source file found")
    if findings:
        sys.exit(f"check_layers: {len(findings)} findings in {count} files")
    print(f"check_layers: {count} files are in order")


if __name__ == "__main__":
    main()
