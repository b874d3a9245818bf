#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# lint.sh format|spell|shell checks the repository's files; lint.sh fmt formats them.
set -euo pipefail
cd "$(dirname "$0")/.."

# files PATTERN...: tracked and new files that git does not ignore, NUL-separated.
files() {
  git -c safe.directory='*' ls-files -z --cached --others --exclude-standard --deduplicate -- "$@" |
    while IFS= read -r -d '' path; do
      if [[ -f $path ]]; then printf '%s\0' "$path"; fi
    done
}

case "${1:-}" in
  format) files '*.h' '*.cc' | xargs -0 -P 2 -n 24 clang-format --dry-run -Werror ;;
  fmt) files '*.h' '*.cc' | xargs -0 -P 2 -n 24 clang-format -i ;;
  spell) files '*.h' '*.cc' '*.md' '*.txt' '*.cmake' '*.py' '*.sh' '*.capnp' Makefile ':!tests/fuzz/corpus' |
    xargs -0 codespell --ignore-words tests/lint/words.txt ;;
  shell) files '*.sh' .ci/run | xargs -0 shellcheck ;;
  *)
    echo "usage: lint.sh format|spell|shell|fmt" >&2
    exit 2
    ;;
esac
