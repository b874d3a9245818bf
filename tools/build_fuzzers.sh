#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzz targets with clang++ in build/fuzz; only the libraries that they need.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset fuzz
cmake --build --preset fuzz
