# Everything that people and CI run on this repository. `make` alone shows the list.

GO       ?= go
BIN      := bin
LINT_VER := v2.15.0
LINT     := $(BIN)/golangci-lint-$(LINT_VER)
VULN_VER := v1.9.0
RUN_DIR  := .run
LISTEN   ?= 127.0.0.1:7332
DURATION ?= 5m

.DEFAULT_GOAL := help
.PHONY: help build run test race quick chaos crash planted sim fuzz names cycles bench lint fmt vuln cross npm clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/bridgectl
	$(GO) build -o $(BIN)/bridgectl ./cmd/bridgectl

run: build ## build and start the demo bridge (LISTEN=127.0.0.1:0 for any port)
	@mkdir -p $(RUN_DIR)
	$(BIN)/bridgectl supervise --demo --listen $(LISTEN) --state-dir $(RUN_DIR)

test: npm lint cross race ## everything that CI runs

race: ## vet and all tests under the race detector
	$(GO) vet ./...
	$(GO) test -race -timeout 15m ./...
	$(GO) test -race -tags planted -run TestActorPanics -timeout 10m ./supervisor

quick: ## the tests without the long ones and without the race detector
	$(GO) vet ./...
	$(GO) test -short ./...

chaos: ## a storm over the real daemon (DURATION=5m), ending in a report
	MCPBRIDGE_CHAOS=$(DURATION) $(GO) test -race -count=1 -v -run TestDaemonStorm -timeout 60m ./test/chaos

crash: ## the daemon dies, or its disk fails, at every operation of its journal
	@cd test/crash && MCPBRIDGE_CRASH=1 $(GO) test -count=1 -run 'TestEveryOperation|TestNextStart' -timeout 60m

planted: ## break the bridge on purpose, bug by bug: each must be caught (BUG=name for one)
	MCPBRIDGE_SQUALLS=$(or $(BUG),all) $(GO) test -count=1 -v -run 'TestPlantedSqualls|TestNothingIsLeft' -timeout 40m ./test/planted
	$(GO) test -tags planted -count=1 -run TestActorPanics -timeout 10m ./supervisor

SEEDS ?= 2000

sim: ## the router's simulation (SEEDS=n; a failing seed is printed and can be replayed)
	$(GO) test -count=1 -run 'TestSim$$' -timeout 60m ./actors/internal/dispatch -sim.seeds $(SEEDS)

FUZZTIME ?= 30s
FUZZ     := ./actors/upstream:FuzzFraming ./actors/upstream:FuzzSSE ./config:FuzzLoad ./actors/internal/policy:FuzzSchemaScreen \
            ./actors/internal/catalogue:FuzzNames ./supervisor/gateway:FuzzEndpoint ./supervisor/gateway:FuzzScanner \
            ./cmd/bridgectl:FuzzSanitise ./supervisor/journal:FuzzReplay

fuzz: ## everything that reads foreign bytes, each for FUZZTIME=30s; what is found stays in testdata/fuzz
	@for f in $(FUZZ); do echo "$${f#*:}"; $(GO) test -run '^$$' -fuzz "^$${f#*:}\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $${f%:*} || exit 1; done

PAIRS ?= 1000000

names: ## no two tools get one name, over PAIRS random pairs
	$(GO) test -count=1 -v -run TestNamesAreInjective -timeout 60m ./actors/internal/catalogue -names.pairs $(PAIRS)

CYCLES ?= 1000

cycles: ## a server dies and comes back CYCLES=1000 times, and the bridge holds what it held before
	MCPBRIDGE_CYCLES=$(CYCLES) $(GO) test -count=1 -v -run 'TestKillAndRestart$$' -timeout 30m ./test/own

bench: ## the benchmarks against a plain SDK client and proxy, and of a neighbour under faults
	@cd test/bench && MCPBRIDGE_BENCH=1 $(GO) test -count=1 -run '^TestBench' -timeout 20m

lint: $(LINT) ## gofmt and golangci-lint, pinned
	$(LINT) run --allow-parallel-runners ./...

$(LINT):
	@mkdir -p $(BIN)
	@echo "building golangci-lint $(LINT_VER), once (two to three minutes)"
	GOBIN=$(abspath $(BIN)) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VER)
	mv $(BIN)/golangci-lint $(LINT)

fmt: $(LINT) ## format the code
	$(LINT) fmt ./...

vuln: ## look the dependencies up in the vulnerability database
	$(GO) run golang.org/x/vuln/cmd/govulncheck@$(VULN_VER) ./...

cross: ## build for macOS and Windows
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 $(GO) build ./...
	GOOS=windows GOARCH=amd64 CGO_ENABLED=0 $(GO) build ./...

# Real MCP servers for the tests, pinned by test/npm/package-lock.json.
NPM_MARK := test/npm/node_modules/.package-lock.json

npm: $(NPM_MARK) ## install the real MCP servers that the tests run against

$(NPM_MARK): test/npm/package.json test/npm/package-lock.json
	@if command -v npm >/dev/null 2>&1; then \
	  cd test/npm && npm ci --no-audit --no-fund && touch node_modules/.package-lock.json; \
	elif [ "$$CI" = true ]; then \
	  echo "npm is missing, and CI must test against real MCP servers: install Node 20" >&2; exit 1; \
	else \
	  printf '\n*** npm is missing: every test against real MCP servers will be SKIPPED. Install Node 20. ***\n\n' >&2; \
	fi

clean: ## remove what was built (keeps downloads)
	rm -rf $(BIN) $(RUN_DIR) test/npm/node_modules
