#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the demo's prompt: source files of this machine's Python, then a task about the first.

    demo_prompt.py OUT TOKENS COMMAND...

Quotes whole modules of the standard library in a fixed order, the last one cut at the end of a line,
so that the prompt has at most TOKENS tokens (and is within one line of it). COMMAND... FILE must print
FILE's token ids as a JSON array (rift tokenize). Nothing quoted here is part of this repository.
"""

import importlib.util
import json
import pathlib
import subprocess
import sys

MODULES = ("queue", "sched", "reprlib", "heapq", "contextlib")
TASK = ("Rewrite the whole class Queue from queue.py with type hints on the parameters and the return "
        "value of every method. Keep all docstrings, comments and method bodies. Answer with one "
        "Python code block.\n")


def source_lines():
    """(file name, line) of every line that may be quoted, in order."""
    for module in MODULES:
        spec = importlib.util.find_spec(module)
        if spec is None or not spec.origin:
            sys.exit(f"demo_prompt: this Python has no {module}.py; install python3 (not -minimal)")
        path = pathlib.Path(spec.origin)
        for line in path.read_text(encoding="utf-8").splitlines():
            yield path.name, line


def prompt(lines):
    parts, current = ["Here are source files of a Python project.\n"], None
    for name, line in lines:
        if name != current:
            parts += ["```\n"] if current else []
            parts += [f"### {name}\n```python"]
            current = name
        parts.append(line)
    return "\n".join([*parts, "```\n", TASK])


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    out, limit, command = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    lines = list(source_lines())

    def tokens(count):
        out.write_text(prompt(lines[:count]), encoding="utf-8")
        ids = subprocess.run([*command, str(out)], stdout=subprocess.PIPE, check=True).stdout
        return len(json.loads(ids))

    low, high = 1, len(lines)  # The largest count of lines that fits lies in [low, high].
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if tokens(middle) <= limit else (low, middle - 1)
    names = list(dict.fromkeys(name for name, _ in lines[:low]))
    print(f"demo: prompt of {tokens(low)} tokens, {low} lines of {', '.join(names)}")


if __name__ == "__main__":
    main()
