# Two commands first: `make demo`, `make test`. Each sets up what it needs on a fresh Debian 12.
.PHONY: build demo test check bench fuzz clean system-packages
SHELL := /bin/bash
JOBS ?= $(shell nproc)
CMAKE_FLAGS := -G Ninja $(shell command -v ccache >/dev/null && echo -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)

system-packages:
	@tools/system-packages

build: system-packages
	cmake -S . -B build $(CMAKE_FLAGS) -DSHARDWRIGHT_TESTS=OFF
	cmake --build build -j $(JOBS)

clean:
	rm -rf build build-*
