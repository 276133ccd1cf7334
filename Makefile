# All modules of the repository: the root module and the nested ones.
MODULES := $(patsubst %/go.mod,%,$(shell git ls-files --cached --others --exclude-standard 'go.mod' '*/go.mod' 2>/dev/null || echo go.mod))
MODULES := $(patsubst go.mod,.,$(MODULES))

# Many tests wait for a disk, a server or a browser. So test twice as many packages in parallel as there are
# cores.
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
GOTEST := go test -p $(shell expr 2 \* $(CORES))

.PHONY: help test test-full race lint cover bench bench-report fuzz release

# The first target is the default target.
help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo "  make fuzz FUZZTIME=10s CHECKS=1000 is a shorter run of it"

# go test does not list skipped tests. So print which tests are skipped because a server or a browser is missing.
INITDB := $(firstword $(shell command -v initdb 2>/dev/null) $(wildcard /usr/lib/postgresql/*/bin/initdb))
PGBOUNCER := $(firstword $(shell command -v pgbouncer 2>/dev/null) $(wildcard /usr/sbin/pgbouncer))
NO_SERVER := @$(if $(INITDB),$(if $(PGBOUNCER),:,echo "SKIPPED: the tests of store/pg behind a pooler, since there is no PgBouncer (apt-get install pgbouncer)"),echo "SKIPPED: the tests on PostgreSQL, since no PostgreSQL server is installed (apt-get install postgresql pgbouncer, or put initdb and postgres in PATH)")
CHROMIUM := $(shell command -v "$${PATCHLOG_CHROMIUM:-chromium}" || test -n "$$PATCHLOG_CHROMIUM" || command -v chromium-browser || command -v google-chrome)
NO_BROWSER := @$(if $(CHROMIUM),:,echo "SKIPPED: the tests of the inspector in a browser, since no Chromium is found (apt-get install chromium, or name one in PATCHLOG_CHROMIUM)")

# In module adk, the coverage of a package includes the tests of all packages of the module.
test: ## every module's tests, each with few draws, and their coverage; says which it skipped
	@for m in $(MODULES); do (cd $$m && $(GOTEST) -short -timeout 30m -coverprofile=coverage.out $$(test $$m != adk || echo -coverpkg=./...) ./...) || exit 1; done
	$(NO_SERVER)
	$(NO_BROWSER)

test-full: ## the tests with all draws and seeds; with BASE=COMMIT of packages that differ from it and their dependents
	@for m in $(MODULES); do packages=$$(if test -n "$(BASE)"; then .ci/changed $$m; else echo ./...; fi) || exit 1; \
	  test -z "$$packages" || (cd $$m && go test -timeout 1h $$packages) || exit 1; done
	$(NO_SERVER)
	$(NO_BROWSER)

# bench/peers is excluded because the libraries that it measures compile slowly with the race detector.
# internal/fuzz/hostile is excluded because it measures memory, and the race detector needs additional memory.
race: ## the tests with few draws and the race detector (needs a C compiler)
	@for m in $(filter-out bench/%,$(MODULES)); do (cd $$m && CGO_ENABLED=1 $(GOTEST) -race -short -timeout 30m $$(go list ./... | grep -v /internal/fuzz/hostile$$)) || exit 1; done
	$(NO_SERVER)
	$(NO_BROWSER)

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

lint: ## gofmt, go vet, staticcheck, a build for 32 bits
	@files=$$(gofmt -l .); test -z "$$files" || { echo "not gofmt-ed:"; echo "$$files"; exit 1; }
	@for m in $(MODULES); do (cd $$m && go vet ./... && go run $(STATICCHECK) ./...) || exit 1; done
	@for a in 386 arm; do CGO_ENABLED=0 GOOS=linux GOARCH=$$a go build ./... || exit 1; done

cover: ## statement coverage of the last make test, and whether it is enough
	@.ci/coverage

bench: ## benchmarks, each with its baseline beside it
	@for m in . $(filter bench/%,$(MODULES)); do (cd $$m && go test -run '^$$' -bench . -benchmem $$(go list ./... | grep /bench)) || exit 1; done

bench-report: ## docs/BENCHMARKS.md with its plots, from one run (needs PostgreSQL and npm)
	go run ./bench/report

# Go's cache keeps the inputs that a fuzz target has found. The next run starts with these inputs.
FUZZTIME ?= 1m
FUZZFLAGS ?=
CHECKS ?= 20000
SCENARIOS ?= 500

fuzz: ## a long run: every native fuzz target, and the properties with many draws
	@for m in $(filter-out bench/%,$(MODULES)); do (cd $$m && for p in $$(go list ./...); do \
	  for f in $$(go test -list '^Fuzz' $$p | grep '^Fuzz'); do \
	    echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $(FUZZFLAGS) $$p || exit 1; done; done) || exit 1; done
	go test -run Property ./... -rapid.checks=$(CHECKS)
	cd adk && go test -run TestScenarios -rapid.checks=$(SCENARIOS)

# Static binaries of the commands. The version of a binary is the tag of the commit that is checked out.
PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

release: ## the command for each platform, with checksums, in dist/
	@rm -rf dist && mkdir dist
	@for p in $(PLATFORMS); do \
	  os=$${p%/*} arch=$${p#*/}; for c in patchlog patchlog-sqlite; do \
	    out=dist/$$c-$$os-$$arch$$(test $$os != windows || echo .exe); echo $$out; \
	    CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch go build -trimpath -buildvcs=true -ldflags='-s -w' -o $$out ./cmd/$$c || exit 1; \
	  done; done
	@cp LICENSE NOTICE dist/
	@cd dist && sha256sum * >SHA256SUMS
