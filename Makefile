# Every target can be run by hand; ONCE=1 makes the demo end after the show.
GO ?= go
LINT := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GEN := $(GO) run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0
APIDIFF := $(GO) run golang.org/x/exp/cmd/apidiff@v0.0.0-20261113113407-e3970619a1a4
BASE ?= HEAD
FUZZTIME ?= 10s
SEEDS ?= 20000
# Tests of a package, and packages, at the same time: most wait for API servers rather than for a core. These take ten gigabytes.
# With a fourth package two cores have so much to do that nothing is faster, and what a test waits for may take minutes.
PARALLEL ?= 4
ATONCE ?= 3
# All packages, those with the longest tests first, so that none of these runs alone at the end.
PACKAGES := ./bind ./sync ./internal/test/pairings ./internal/test/e2e ./export ./examples/... ./...
# Programs are linked without the system's linker, which costs twice as much, as deploy/README.md builds them.
export CGO_ENABLED := 0
.PHONY: build demo kube quick test rest test-crossplane race sim mutants fleeting fuzz bench bench-tenants generate lint tidy arrows apidiff ci real-time virtual-time

build: ## backend, konnector and kubectl-bind, into bin; minutes the first time, since it compiles client-go
	$(GO) build -o bin/ ./cmd/...
demo: ## two real control planes, the whole journey, then yours to play with
	@$(GO) build -o bin/demo ./internal/test/demo && exec bin/demo $(if $(ONCE),-once)
kube: ## the servers of Kubernetes, once a machine: it says how long
	@$(GO) run ./internal/test/demo -build
quick: ## what needs no API server, in about a minute, with fewer garbage collections
	GOGC=400 $(GO) test -short -vet=off ./...
test: kube ## the end-to-end tests on real control planes included; with LONG=1 the ones that take minutes each, too; lint vets; GOGC as above
	$(if $(LONG),KLUTCH_TEST_LONG=1 )GOGC=400 $(GO) test -vet=off -ldflags=-w -shuffle=on -count=1 -p $(ATONCE) -parallel $(PARALLEL) $(if $(SKIP),-skip '$(SKIP)' )-timeout 55m $(PACKAGES)
race: export CGO_ENABLED := 1
race: kube ## the same under the race detector
	$(GO) test -race -shuffle=on -count=1 -timeout 30m $(PACKAGES)
sim: kube ## SEEDS histories of the simulator, some 55 a second on two cores
	$(GO) test ./sync -run '^TestSim$$' -count=1 -timeout 4h -seeds $(SEEDS)
mutants: kube ## every mistake that the tests have to notice, the ones that only histories do included
	$(GO) test ./sync -run '^TestMutants$$' -count=1 -timeout 60m -mutants
fleeting: kube ## 5 000 claims created and deleted within 50 ms, beside a konnector that is killed: the engine alone, then the programs
	$(GO) test ./sync -run '^TestRealFleeting$$' -count=1 -timeout 20m -fleeting 5000
	$(GO) test ./internal/test/e2e -run '^TestFleetingClaims$$' -count=1 -timeout 20m -v -fleeting 5000
fuzz: ## what reads strangers' bytes, each fuzz test for FUZZTIME
	@set -e; for p in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
	  for f in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' $$p/*_test.go); do \
	    echo "$$p $$f"; run="$(GO) test -run ^$$ -fuzz ^$$f\$$ -fuzztime $(FUZZTIME) $$p"; \
	    $$run || $$run; done; done # a fuzzer may miss its own deadline; what it found is in testdata by then, and fails again
test-crossplane: kube ## examples/crossplane with Crossplane itself, which is built first: minutes, once a machine
	KLUTCH_TEST_CROSSPLANE=1 $(GO) test ./examples/crossplane -count=1 -timeout 30m -v
rest: kube ## claims at rest beside each automation: nothing is written for 60 s, on either side
	KLUTCH_TEST_LONG=1 $(GO) test ./internal/test/e2e ./examples/catalog ./examples/servicebroker -run '^(TestOperatorExample|TestReadme)$$' -count=1 -timeout 20m -rest 60s
bench: ## speed and size beside the yardstick, same clusters, same run: a table, and bench.csv
	$(GO) run ./internal/test/bench -parts throughput,latency,namespaces,writes,noise,silence,large,refused,settled -csv bench.csv
bench-tenants: ## what a thousand tenants cost one backend
	$(GO) run ./internal/test/bench -parts tenants -idle 90s -csv bench-tenants.csv
generate: ## deep copies and CRDs
	$(GEN) object crd paths=./klutch/v1alpha1 output:crd:dir=klutch/v1alpha1/crds
arrows: ## the files of each package, who uses whom, and the budgets that are missed
	@$(GO) run ./internal/test/arrows ./...
apidiff: ## what the public API gained and lost since BASE, a revision of git
	@set -e; old=$$(mktemp -d); git worktree add -q --detach $$old/tree $(BASE); trap 'git worktree remove --force $$old/tree; rm -r $$old' EXIT; \
	for p in auth bind export klutch klutch/v1alpha1 sync; do echo "$$p"; (cd $$old/tree && $(APIDIFF) -w $$old/$$(basename $$p) ./$$p); $(APIDIFF) $$old/$$(basename $$p) ./$$p; done
lint: arrows
	$(LINT) run ./...
tidy:
	for m in . internal/test/kube; do (cd $$m && $(GO) mod tidy -diff) || exit 1; done
ci: LONG := 1
ci: SEEDS := 4000
ci: FUZZTIME := 5s
# sim and rest run these, with more histories and a longer rest.
ci: SKIP := ^(TestSim|TestReadme|TestOperatorExample)$$
ci: generate tidy lint test
	+$(MAKE) --no-print-directory -j2 -O SEEDS=$(SEEDS) real-time virtual-time
	$(MAKE) fleeting fuzz FUZZTIME=$(FUZZTIME)
	git diff --exit-code
# The ones mostly wait for API servers, the others need cores and no clock: together they take as long as the first.
real-time:
	$(MAKE) rest
	$(MAKE) test-crossplane
virtual-time:
	nice $(MAKE) sim
	nice $(MAKE) mutants
