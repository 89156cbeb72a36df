# Two commands first: `make demo`, `make test`. Each sets up what it needs on a fresh Debian 12.
.PHONY: build python demo test test-kill test-asan test-tsan test-tsan-manager test-python kill bench fuzz check check-quick format install clean \
        system-packages system-packages-test python-build python-demo python-test
.DEFAULT_GOAL := build
SHELL := /bin/bash
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
# Looked for when a recipe runs, after system-packages has had its turn. For ccache, see HACKING.md.
CONFIGURE = cmake -S . -G Ninja $(shell command -v mold >/dev/null && echo -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=mold) --log-level=WARNING
BUILD = cmake --build
# The optimised tree has the program and the tests that need it whole (processes killed in the middle of a commit); unit tests are built
# once, sanitized: compiling them is most of what `make test` costs.
RELEASE = -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" -DSHARDWRIGHT_TEST_LAYERS=store
# Sanitized trees: at -O0, since compiling is most of what they cost; by clang, which takes two thirds of the time that g++ 12 does.
SANITIZED = -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O0 -g1" -DSHARDWRIGHT_CLI=OFF
# libhdf5 1.10 loses 64 bytes of its own when a hostile file makes it give up.
LEAKS = LSAN_OPTIONS=suppressions=$(CURDIR)/tools/leaks.supp:print_suppressions=0
PYTHON_MODULE = -DSHARDWRIGHT_PYTHON=ON -DPython_EXECUTABLE=$(CURDIR)/.venv/bin/python
# ThreadSanitizer of g++ 12 cannot live with more than 28 bits of address randomisation.
NO_RANDOM = $(shell [ "$$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28)" -gt 28 ] && echo setarch -R)

build: system-packages
	@$(CONFIGURE) -B build $(RELEASE)
	@$(BUILD) build -j $(JOBS) --target shardwright_program shardwright_manual

# The package into .venv. pip builds in the program's tree, so that the library is compiled once for both.
python: system-packages python-build
	@$(CONFIGURE) -B build $(RELEASE) $(PYTHON_MODULE)
	@$(BUILD) build -j $(JOBS) --target shardwright_python_stub
	@.venv/bin/python -m pip --disable-pip-version-check install -q --no-build-isolation --no-deps --no-index --force-reinstall \
	  --no-compile --config-settings=build-dir=build .
	@.venv/bin/python -c 'import shardwright; print("python: shardwright", shardwright.__version__, "is in .venv")'

demo: build python-demo
	@SHARDWRIGHT_BIN=build/shardwright .venv/bin/python tools/demo.py

# The stages in order of what they cost; each ends with its runner's own closing lines.
test: test-kill test-asan test-tsan test-python

test-kill: system-packages-test
	@$(CONFIGURE) -B build $(RELEASE)
	@$(BUILD) build -j $(JOBS)
	ctest --test-dir build -j $(JOBS) --output-on-failure

# Unit tests, and every file of the fuzz corpora, under AddressSanitizer and UndefinedBehaviorSanitizer.
test-asan: system-packages-test
	@$(CONFIGURE) -B build-asan $(SANITIZED) -DSHARDWRIGHT_SANITIZE=address,undefined -DSHARDWRIGHT_FUZZ_REPLAY=ON
	@$(BUILD) build-asan -j $(JOBS)
	$(LEAKS) ctest --test-dir build-asan -j $(JOBS) --output-on-failure

# What has threads: the engine and what it stands on.
test-tsan: system-packages-test
	@$(CONFIGURE) -B build-tsan $(SANITIZED) -DSHARDWRIGHT_SANITIZE=thread -DSHARDWRIGHT_TEST_LAYERS="base;store;engine"
	@$(BUILD) build-tsan -j $(JOBS)
	$(NO_RANDOM) ctest --test-dir build-tsan -j $(JOBS) --output-on-failure

# The manager and the ranks too. Not in `make test`: every format is compiled once more for it.
test-tsan-manager: system-packages-test
	@$(CONFIGURE) -B build-tsan $(SANITIZED) -DSHARDWRIGHT_SANITIZE=thread \
	  -DSHARDWRIGHT_TEST_LAYERS="base;store;engine;comm;format;manager"
	@$(BUILD) build-tsan -j $(JOBS) --target test_comm test_manager
	TSAN_OPTIONS=die_after_fork=0 $(NO_RANDOM) ctest --test-dir build-tsan -R '^(comm|manager)$$' -j $(JOBS) --output-on-failure

# Tests that measure the clock are marked `alone` and run one by one, after the others; those that need gigabytes of memory are one group.
test-python: build system-packages-test python-test python
	SHARDWRIGHT_BIN=$(CURDIR)/build/shardwright .venv/bin/python -m pytest tests -q -m "not alone" -n $(JOBS) --dist loadgroup
	SHARDWRIGHT_BIN=$(CURDIR)/build/shardwright .venv/bin/python -m pytest tests -q -m alone

# A training run killed 200 times; `make test` does it 20 times.
kill: system-packages-test python-test python
	KILLS=$(or $(KILLS),200) .venv/bin/python -m pytest tests/kill/test_training.py -q -s

bench: system-packages python-test python
	@$(CONFIGURE) -B build $(RELEASE) -DSHARDWRIGHT_BENCH=ON
	@$(BUILD) build -j $(JOBS) --target shardwright_program bench_load bench_touch
	SHARDWRIGHT_BIN=$(CURDIR)/build/shardwright .venv/bin/python bench/run.py

# Every target for a minute from its corpus; FUZZ_SECONDS=600 for longer, FUZZ_TARGETS="fuzz_zip" for some.
fuzz: system-packages-test
	@$(CONFIGURE) -B build-fuzz -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g1" \
	  -DSHARDWRIGHT_TESTS=OFF -DSHARDWRIGHT_CLI=OFF -DSHARDWRIGHT_FUZZ=ON
	@$(BUILD) build-fuzz -j $(JOBS)
	@tools/fuzz build-fuzz

# Seconds: layout of the code and of the folders.
check-quick: python-test
	@tools/check_layers.py
	@tools/format --check

check: system-packages-test check-quick
	@$(CONFIGURE) -B build-tidy $(RELEASE) -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON
	@tools/check_tidy.py build-tidy

format: python-test
	@tools/format

install: build
	cmake --install build --prefix $(PREFIX)

clean:
	rm -rf build build-asan build-tsan build-fuzz build-tidy .cache demo-output

system-packages:
	@tools/system-packages
system-packages-test:
	@tools/system-packages test
python-build: system-packages
	@tools/python-env build
python-demo: system-packages
	@tools/python-env demo
python-test: system-packages
	@tools/python-env test
