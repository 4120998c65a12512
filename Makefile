# The front door. `make help` lists the targets; everything is built by CMake in build*/.
JOBS := $(shell nproc)
PREFIX ?= /usr/local
CMAKE_FLAGS := -DLS_WERROR=ON -DCMAKE_INSTALL_PREFIX=$(PREFIX)

MAKEFLAGS += --no-print-directory

# $(call build,FOLDER,FLAGS,TARGETS)
build = cmake -S . -B $(1) $(CMAKE_FLAGS) $(2) > /dev/null && cmake --build $(1) -j$(JOBS) $(addprefix --target ,$(3))

.PHONY: build deps test train check-asan check-tsan check-arm64 check-large check-mpi-abi fuzz soak bench bench-peers format lint shape symbols install clean help

build: ## only builds (no root), after saying what is missing and what it would bring
	@scripts/deps.sh --check build
	@$(call build,build)

deps: ## installs every package that Lockstep can use
	@scripts/deps.sh build train test cluster fuzz lint

test: ## installs what is missing, builds, runs every test
	@scripts/deps.sh build test
	@$(call build,build)
	@scripts/test.sh build

train: ## installs what is missing, builds, trains LeNet on Fashion-MNIST on two processes
	@scripts/deps.sh build train
	@$(call build,build)
	@scripts/train.sh

check-asan: ## every test under AddressSanitizer and UndefinedBehaviorSanitizer
	@scripts/deps.sh build test
	@$(call build,build-asan,-DLS_SANITIZE=address)
	@scripts/test.sh build-asan

check-tsan: ## every test under ThreadSanitizer
	@scripts/deps.sh build test
	@$(call build,build-tsan,-DLS_SANITIZE=thread)
	@scripts/test.sh build-tsan

check-arm64: ## a cross build for arm64, its tests under an emulator of that processor
	@scripts/deps.sh build arm64
	@scripts/arm64-sysroot.sh build-arm64/sysroot
	@$(call build,build-arm64,--toolchain scripts/arm64.cmake -DLS_SYSROOT=$(CURDIR)/build-arm64/sysroot)
	@scripts/check-arm64.sh build-arm64

check-large: ## more than 2^31 elements through every backend, each checked: 9 GiB of memory, some minutes
	@scripts/deps.sh build test
	@$(call build,build)
	@scripts/check-large.sh build

# An MPI with the standard ABI, which Debian has not; its library is asked for by the name it has at run time.
ABI_MPI := $(CURDIR)/build-abi/mpich
check-mpi-abi: ## every test of groups over MPI through the standard ABI of MPI 5: MPICH 5, from PyPI (25 MB)
	@scripts/deps.sh build test
	@scripts/unpack-wheels.sh build-abi/wheels $(ABI_MPI) mpich==5.0.2
	@$(call build,build-abi,-DMPI_ABI_INCLUDE=$(ABI_MPI)/include -DMPI_ABI_LIBRARY=$(ABI_MPI)/lib/libmpi_abi.so.1 \
		-DMPI_ABI_LAUNCHER=$(ABI_MPI)/bin/mpiexec)
	@scripts/test.sh build-abi -R '^mpi[.]'

FUZZ_SECONDS ?= 60
fuzz: ## each fuzzer for FUZZ_SECONDS (60), the coverage it reached, and proofs that planted faults are found
	@scripts/deps.sh build fuzz
	@CC=clang $(call build,build-fuzz,-DLS_FUZZ=ON,fuzzers)
	@scripts/fuzz.sh build-fuzz $(FUZZ_SECONDS)
	@scripts/fuzz-proof.sh build-fuzz

SOAK_SECONDS ?= 600
soak: ## random programs of groups under random faults for SOAK_SECONDS (600); SOAK_SEED=... runs one round again
	@scripts/deps.sh build test
	@$(call build,build)
	@build/tests/worker_soak_rounds $(SOAK_SECONDS) $(SOAK_SEED)

bench: ## the benchmarks, without assertions, side by side with what else is installed
	@scripts/deps.sh build test
	@$(call build,build-release,-DCMAKE_BUILD_TYPE=Release)
	@scripts/bench-peers.sh --installed build-peers
	@build-release/bin/lockstep bench all-reduce --ranks 2

bench-peers: ## installs what `lockstep bench all-reduce` is measured beside into build-peers (from PyPI: some GB)
	@scripts/deps.sh build test
	@scripts/bench-peers.sh build-peers

SOURCES = $(shell find include src tests examples bench -name '*.[ch]' 2>/dev/null)
format: ## formats all sources in place
	@scripts/deps.sh lint
	@clang-format -i $(SOURCES)

lint: ## formatting and static checks, all clean
	@scripts/deps.sh build test lint
	@$(call build,build)
	@scripts/lint.sh build

shape: ## sizes of files and functions, share of comments, and what is past the aims
	@scripts/deps.sh lint
	@scripts/shape.sh

symbols: ## rewrites the tested list of the shared library's exported symbols
	@$(call build,build)
	@sh tests/structure/test_symbols.sh . build --refresh

install: ## builds without assertions and installs under PREFIX (/usr/local), into DESTDIR if given
	@scripts/deps.sh --check build
	@$(call build,build-release,-DCMAKE_BUILD_TYPE=Release,installed)
	@cmake --install build-release
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" -ne 0 ] || ldconfig

clean: ## removes everything that was built
	@rm -rf build build-asan build-tsan build-arm64 build-abi build-fuzz build-release

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile
