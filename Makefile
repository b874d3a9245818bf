# SPDX-License-Identifier: Apache-2.0
# Short names over the CMake presets; `make test` and `make demo` start from a bare Debian 12.
SHELL := /bin/bash
JOBS ?= 2
RIFT := build/ci/bin/rift
QUICK := -L 'unit|contract|golden|integration|fault' -LE slow

.PHONY: setup build test demo fmt tidy asan tsan fuzz lossless bench clean

setup:
	tools/setup.sh

build: setup
	cmake --preset ci
	cmake --build build/ci -j $(JOBS)

test: build
	ctest --test-dir build/ci --output-on-failure -j $(JOBS)

demo: build
	tools/demo.sh

fmt: setup
	tools/lint.sh fmt

tidy: build
	tools/check_tidy.py --all build/ci

asan tsan: setup
	cmake --preset $@
	cmake --build build/$@ -j $(JOBS)
	ctest --test-dir build/$@ --output-on-failure -j $(JOBS) $(QUICK)

fuzz: build
	ctest --test-dir build/ci --output-on-failure -j $(JOBS) -L fuzz

clean:
	rm -rf build
