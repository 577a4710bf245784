# Every target is a short call of cargo or of a script in scripts/; `make help` lists the targets.

PREFIX  ?= /usr/local
DESTDIR ?=
BUDGET  ?= 30m
CONFLICTS ?= --reasons --json conflicts.json
CARGO   ?= cargo
TARGET  := $(or $(CARGO_TARGET_DIR),target)

.DEFAULT_GOAL := help
.PHONY: help build check test lint suites demo verify bench conflicts dist install uninstall

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  variables: BUDGET=$(BUDGET) (verify), EACH=SECONDS (bench; else 1 or 2), CONFLICTS=\"$(CONFLICTS)\" (conflicts),"
	@echo "             PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) (install)"

build: ## the release binary
	$(CARGO) build --release --locked -p lanefs-cli

check: lint ## the inner loop, 4 minutes: formatting, clippy, unit tests
	$(CARGO) test --workspace --lib --locked
	$(CARGO) test --locked -p lanefs-lanes --test floors --test facade

test: ## everything, a fixed sample of each kind, in about an hour; ends with a verdict
	@scripts/test

lint: ## formatting and clippy, warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

suites: build ## fsx, pjdfstest and the kill test on a real mount (root, /dev/fuse)
	@scripts/tools
	LANEFS_TOOLS=$(abspath $(TARGET))/tools/bin $(CARGO) test --profile stress --locked -p lanefs-cli \
	    --test mount --test namespaces -- --include-ignored --test-threads=1 --show-output

demo: build ## a source tree on a Lanefs mount, judged by e2fsck and the kernel
	@scripts/demo "$(abspath $(TARGET))/release/lanefs"

verify: ## the long tests with new seeds until BUDGET is spent
	@scripts/verify "$(BUDGET)"

bench: ## the figures; EACH=0.1: short slices, to see that all of it runs
	@scripts/bench

conflicts: ## which operations share cache lines: the matrix of pairs, the table of threads, rows of arrays
	$(CARGO) run --profile stress --locked -p lanefs-trace --bin lanefs-conflicts -- $(CONFLICTS)
	$(CARGO) test --profile stress --locked -p lanefs-trace --test rows -- --ignored --show-output

dist: ## what a release has: static tar, Debian packages, bill of materials
	@scripts/dist

install: build ## the command, man pages, completions, and the links for mount(8), mkfs(8), fsck(8)
	@DESTDIR="$(DESTDIR)" scripts/stage "$(TARGET)/release/lanefs" "$(PREFIX)" /sbin

uninstall: ## what install put there
	@DESTDIR="$(DESTDIR)" scripts/stage --remove "$(PREFIX)" /sbin
