# SPDX-License-Identifier: Apache-2.0
# Short names over the CMake presets; `make test` and `make demo` start from a bare Debian 12.
SHELL := /bin/bash
JOBS ?= 2
BIN := build/ci/bin
RIFT_MODELS ?= $(HOME)/.cache/rift/models
CTEST := ctest --output-on-failure --no-tests=error -j $(JOBS)
.PHONY: setup programs build fetch test demo fmt tidy asan tsan fuzz lossless memory bench clean

setup:
	tools/setup.sh
programs: setup
	cmake --preset ci
	cmake --build build/ci -j $(JOBS) --target rift target_node draft_node score_node
build: programs
	cmake --build build/ci -j $(JOBS)
fetch: programs
	$(BIN)/rift models fetch qwen2.5-coder smollm2
test: build fetch
	$(CTEST) --test-dir build/ci
demo: fetch
	tools/demo.sh
fmt: setup
	tools/lint.sh fmt
tidy: build
	tools/check_tidy.py --all build/ci
asan tsan: setup
	cmake --preset $@
	cmake --build build/$@ -j $(JOBS)
	ctest --preset $@ -j $(JOBS)
fuzz: build
	$(CTEST) --test-dir build/ci -L fuzz
lossless: fetch
	tools/lossless.sh
memory: fetch
	tools/memory.sh
bench: build fetch
	$(BIN)/rift bench kernels
	$(BIN)/rift bench model -m $(RIFT_MODELS)/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
	$(BIN)/rift_bench_draft_step -m $(RIFT_MODELS)/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
clean:
	rm -rf build
