# Everything a person or a machine does here, by name. `make test` is the gate.

SHELL := /bin/bash
CARGO ?= cargo

.DEFAULT_GOAL := build
.PHONY: build library mpi install install-system deb package-test demo test ready lint fmt tidy unit built peers older bench conformance kill-matrix outages mutants fuzz reference doc clean

build: ## The one binary, target/release/godwit.
	$(CARGO) build --release --locked --package godwit

BUILT = $(or $(CARGO_TARGET_DIR),target)/release
library: ## The C library, target/release/libgodwit.so, and what `godwit run --via preload` has programs load.
	$(CARGO) build --release --locked --package godwit-capi
	ln --symbolic --force libgodwit.so $(BUILT)/libgodwit.so.0
	$(CC) -std=gnu11 -shared -fPIC -O2 -Wall -Wextra -I crates/capi/include -o $(BUILT)/libgodwit_preload.so \
		crates/capi/preload/preload.c -L $(BUILT) -lgodwit -Wl,-rpath,'$$ORIGIN'

# One source, compiled for the ABI of each MPI that is here.
# The archives are for programs in which the MPI is linked statically.
mpi: library ## What `godwit mpi` has programs load: target/release/libgodwit_mpi_mpich.so and libgodwit_mpi_openmpi.so.
	@for mpi in mpich openmpi; do \
		command -v mpicc.$$mpi >/dev/null || { echo "make: no mpicc.$$mpi here (apt-get install lib$$mpi-dev)"; continue; }; \
		mpicc.$$mpi -std=gnu11 -D_GNU_SOURCE -shared -fPIC -fvisibility=hidden -O2 -Wall -Wextra -I crates/capi/include \
			-o $(BUILT)/libgodwit_mpi_$$mpi.so mpi/*.c -L $(BUILT) -lgodwit -Wl,-rpath,'$$ORIGIN' || exit; \
		objects=$(BUILT)/mpi_$$mpi; rm -rf $$objects $(BUILT)/libgodwit_mpi_$$mpi.a; mkdir $$objects; \
		for part in $(filter-out mpi/posix.c,$(wildcard mpi/*.c)); do \
			mpicc.$$mpi -std=gnu11 -D_GNU_SOURCE -DGODWIT_MPI_STATIC -O2 -Wall -Wextra -I crates/capi/include \
				-c -o $$objects/$$(basename $$part .c).o $$part || exit; done; \
		ar rcs $(BUILT)/libgodwit_mpi_$$mpi.a $$objects/*.o || exit; done

# With BUILT=DIR on the command line nothing is built: the files of that directory are installed or packed.
NEEDED = $(if $(findstring command,$(origin BUILT)),,build mpi)
PREFIX ?= /usr/local
BELOW = $(DESTDIR)$(PREFIX)
# Users of a prefix of their own have their units in share/, where systemd looks for them as well.
USER_UNITS ?= $(PREFIX)/share/systemd/user
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# The binary writes the units; it names itself and the configuration by the paths that it sees here.
UNIT = $(BUILT)/godwit node install --print
INSTALLED = sed 's|^ExecStart="[^"]*"|ExecStart="$(PREFIX)/bin/godwit"|; s|--config "[^"]*"|--config "/etc/godwit/server.toml"|'
install: $(NEEDED) ## The binary, the C library, manual pages, completions and units below PREFIX (and DESTDIR).
	install -D --mode 755 $(BUILT)/godwit $(BELOW)/bin/godwit
	install -D --mode 644 $(BUILT)/libgodwit.so $(BELOW)/lib/libgodwit.so.$(VERSION)
	install -D --mode 644 $(BUILT)/libgodwit_preload.so $(BELOW)/lib/libgodwit_preload.so
	for mpi in $(BUILT)/libgodwit_mpi_*.so $(BUILT)/libgodwit_mpi_*.a; do [ ! -e $$mpi ] || install --mode 644 $$mpi $(BELOW)/lib/ || exit; done
	ln --symbolic --force libgodwit.so.$(VERSION) $(BELOW)/lib/libgodwit.so.0
	ln --symbolic --force libgodwit.so.0 $(BELOW)/lib/libgodwit.so
	install -D --mode 644 --target-directory $(BELOW)/include crates/capi/include/*.h
	install --directory $(BELOW)/lib/pkgconfig
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' crates/capi/godwit.pc.in >$(BELOW)/lib/pkgconfig/godwit.pc
	$(BUILT)/godwit --quiet man $(BELOW)/share/man/man1
	install --directory $(BELOW)/share/bash-completion/completions $(BELOW)/share/zsh/site-functions $(BELOW)/share/fish/vendor_completions.d
	$(BUILT)/godwit completions bash >$(BELOW)/share/bash-completion/completions/godwit
	$(BUILT)/godwit completions zsh >$(BELOW)/share/zsh/site-functions/_godwit
	$(BUILT)/godwit completions fish >$(BELOW)/share/fish/vendor_completions.d/godwit.fish
	install --directory $(DESTDIR)$(USER_UNITS)
	$(UNIT) | $(INSTALLED) >$(DESTDIR)$(USER_UNITS)/godwit.service
	$(if $(filter /usr /usr/local,$(PREFIX)),$(MAKE) --no-print-directory install-system BUILT=$(BUILT))

# The server of a machine, which only root can have. A configuration that is there stays as it is.
install-system:
	install --directory $(BELOW)/lib/systemd/system $(DESTDIR)/etc/godwit
	GODWIT_CONFIG=packaging/server.toml $(UNIT) --server --account godwit | $(INSTALLED) >$(BELOW)/lib/systemd/system/godwit-server.service
	[ -e $(DESTDIR)/etc/godwit/server.toml ] || install --mode 644 packaging/server.toml $(DESTDIR)/etc/godwit/server.toml

deb: $(NEEDED) ## A Debian package, target/godwit_VERSION-1_ARCH.deb (BUILT=DIR: of what is built there).
	packaging/deb $(BUILT)

package-test: deb ## Installs the package in a bare Debian, runs it there and removes it; needs root and debootstrap.
	tests/package

demo: ## Two nodes, a data set between them, a broken transfer, a corrupted byte, a server that is away, one name at two sites, a farm.
	demo/run

# Each step says what it does; the first that fails ends it with its status.
test: ready lint peers built older unit ## All that must hold before a change goes in.
	@sort -u $(GODWIT_SKIPPED) 2>/dev/null | sed 's/^SKIPPED [^:]*: //' | sort | uniq -c | \
		awk '{ n += $$1; $$1 = $$1 " x"; why = why "; " $$0 } END { print "make test: all passed; skipped here: " (n ? n " (" substr(why, 3) ")" : "none") }'

ready: ## What this machine lacks is installed, sudo asked for.
	@tests/ready

lint: ## Format, clippy with warnings as errors, rules of the house.
	@echo "make: format, clippy, tidy"
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --quiet --workspace --all-targets --locked -- --deny warnings
	@$(CARGO) xtask tidy
	@tests/mutants/run --check

# Tests that cannot run on this machine write down why.
export GODWIT_SKIPPED ?= $(or $(abspath $(CARGO_TARGET_DIR)),$(CURDIR)/target)/skipped
# Most of them wait most of the time: for a deadline, for a peer, for what was killed to come back. So two programs run at once.
TEST_THREADS ?= $(shell echo $$(($$(nproc) * 3 / 2)))
TESTS = RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test --quiet --workspace --locked
unit: ## Every test of every crate, against real peers where there are any.
	@echo "make: running the tests"
	@rm -f $(GODWIT_SKIPPED)
	@$(TESTS) --test '[i-z]*' >$(GODWIT_SKIPPED).second 2>&1 & second=$$!; status=0; \
		$(TESTS) --lib --bins --examples --test '[!i-z]*' || status=$$?; \
		wait $$second || status=$$?; cat $(GODWIT_SKIPPED).second; rm $(GODWIT_SKIPPED).second; exit $$status
	@$(CARGO) test --quiet --workspace --locked --doc

built: ## The tests, not run. An older godwit takes from there what it depends on.
	@echo "make: building the tests"
	@$(CARGO) test --quiet --workspace --locked --no-run

peers: ## The programs of others that tests talk to (Debian packages).
	@echo "make: programs of others"
	@tests/peers/install || { status=$$?; [ $$status -eq 77 ] || exit $$status; \
		echo "make: some peers are missing; the tests that need them say so and are skipped" >&2; }

older: ## The godwit of an older commit, which that of today must get on with.
	@echo "make: building an older godwit"
	@tests/older/build >/dev/null || { status=$$?; [ $$status -eq 77 ] || exit $$status; \
		echo "make: the tests with an older godwit say so and are skipped" >&2; }

fmt: ## Writes the format.
	$(CARGO) fmt --all

bench: build ## Answers the questions of docs/evidence/performance.md on this machine.
	bench/run

conformance: build ## Our node and client against those of others; see docs/evidence/conformance.md.
	tests/conformance/run

ONLY ?=
KILL_SEEDS ?= 1000
kill-matrix: build ## kill -9 of either side at many points; every file whole after it. ONLY=depot: of programs, nodes and disks around a depot.
	$(CARGO) build --locked --package godwit
	[ "$(ONLY)" != "" -a "$(ONLY)" != depot ] || GODWIT_ORDERS=1..1001 $(CARGO) test --locked --package godwit-depot --test orders
	[ "$(ONLY)" = depot ] || tests/kill-matrix/run --only "$(ONLY)"
	[ "$(ONLY)" != "" -a "$(ONLY)" != depot ] || { tests/power/prove --itself || [ $$? -eq 77 ]; }
	[ "$(ONLY)" != "" -a "$(ONLY)" != depot ] || tests/kill-matrix/run --only depot --itself --seeds 8 --seconds 3
	[ "$(ONLY)" != "" -a "$(ONLY)" != depot ] || tests/kill-matrix/run --only depot --seeds $(KILL_SEEDS)

OUTAGE_SECONDS ?= 180
outages: ## The network is down for OUTAGE_SECONDS in mid-transfer; needs root for namespaces.
	GODWIT_OUTAGE_SECONDS=$(OUTAGE_SECONDS) $(CARGO) test --locked --package godwit --test outages -- --nocapture network

mutants: ## Breaks the code on purpose; each breach must turn a test red.
	tests/mutants/run

FUZZ_SECONDS ?= 60
fuzz: ## Feeds every parser of what peers send, FUZZ_SECONDS each (nightly toolchain, cargo-fuzz).
	fuzz/run $(FUZZ_SECONDS)

reference: ## Writes the pages of docs/reference from the tables of the program.
	GODWIT_REFERENCE=write $(CARGO) test --quiet --locked --package godwit --bin godwit reference
	GODWIT_REFERENCE=write $(CARGO) test --quiet --locked --package godwit-node --lib reference

doc: ## The crates' documentation, with warnings as errors.
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --workspace --no-deps --locked

clean:
	$(CARGO) clean
