# Everything here works on a fresh Debian machine with Go installed. `make` alone prints what there is.

export CGO_ENABLED := 0
GO ?= go
BENCH_SECONDS ?= 3
PREFIX ?= /usr/local
DESTDIR ?=
CONFIG_DIR ?= /etc/inbox
ATTACK_SECONDS ?= 20
FUZZ_TIME ?= 60s
OUT ?= out

.DEFAULT_GOAL := help
.PHONY: release guides trials interop help build install run demo check test test-race e2e explore attacks tck corpora lint release-check fuzz-short bench bench-compare bench-lists bench-pages generate screenshots test-dependencies

help: ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build the program into bin/inbox
	$(GO) build -o bin/inbox ./cmd/inbox

install: build ## install program, unit and completions (PREFIX=/usr/local, DESTDIR=, CONFIG_DIR=/etc/inbox); starts nothing
	install -D -m 755 bin/inbox $(DESTDIR)$(PREFIX)/bin/inbox
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	sed -e 's|/usr/local/bin/inbox|$(PREFIX)/bin/inbox|' -e 's|/etc/inbox|$(CONFIG_DIR)|g' docs/ops/inbox.service \
		> $(DESTDIR)$(PREFIX)/lib/systemd/system/inbox.service
	bin/inbox completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/inbox
	bin/inbox completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_inbox
	bin/inbox completion fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/inbox.fish

release: ## build archives, images, lists of modules and checksums into out/ (VERSION=0.1.0, OUT=out); needs Go and no Docker
	scripts/release $(or $(VERSION),$(shell git describe --tags --always --dirty)) $(OUT)

run: build ## build and serve on defaults: loopback only, agent "echo", mail captured
	bin/inbox serve

demo: build ## build and show the conversations against a throw-away server
	bin/inbox demo

check: ## run the tests beside the code on both databases: no outside peer, seconds where little changed
	scripts/test unit

test: test-dependencies ## run every test on both databases, end-to-end tests included (installs what they need); PKG=./engine/store/... runs those alone
	$(if $(PKG),scripts/test package $(PKG),scripts/test all)

test-race: test-dependencies ## run the tests beside the code with the race detector (needs gcc)
	scripts/test race

e2e: test-dependencies ## run the end-to-end and crash tests only
	scripts/test e2e

explore: test-dependencies ## run pairs of operations on PostgreSQL in every order of their statements (hours; make test runs a part)
	INBOX_TEST_DATABASE_URL=$${INBOX_TEST_DATABASE_URL:-$$(scripts/test-postgres start)} \
		$(GO) test ./e2e/explore -count=1 -run '^TestPairs$$' -v -timeout 24h -args -whole

trials: test-dependencies ## run two nodes against each other: the previous release beside this one, cancelling next to settling, acts across nodes
	scripts/test trials

guides: test-dependencies ## run every command of the README and of the guides as it is written there, and nothing else
	scripts/test guides

interop: test-dependencies ## run the tests with software of others, and write versions, dates and results into docs/interop.md
	scripts/test interop

attacks: test-dependencies ## attack the built program on both databases and judge what honest peers see (ATTACK_SECONDS=20 an attack)
	ATTACK_SECONDS=$(ATTACK_SECONDS) scripts/test attacks

tck: ## run the A2A conformance kit from a checkout: A2A_TCK_DIR, A2A_TCK_PROTOS (see e2e/a2a-tck/README.md)
	e2e/a2a-tck/run

corpora: ## read the public mails that other parsers are tested with (fetches them from package registries once: scripts/mail-corpora.txt)
	mails=$$(scripts/mail-corpora) && INBOX_TEST_MAIL_CORPORA=$$mails $(GO) test -tags corpora ./adapters/email ./adapters/email/text -count=1 -run Public

lint: ## run gofmt, golangci-lint (which has all of go vet) and the check of prose (the first run builds the linter)
	scripts/lint

release-check: ## make a release for each platform twice, from nothing, and compare the bytes (minutes)
	scripts/check-reproducible

fuzz-short: ## run each fuzz target for a minute (FUZZ_TIME=60s), one after the other; scripts/fuzz-short --list names them
	scripts/fuzz-short $(FUZZ_TIME)

bench-compare: ## measure a commit and this program in turn, and fail when this one is slower than nine tenths of it (BASE=<commit>, LEAST=0.9)
	scripts/bench-compare $(BASE)

bench-lists: test-dependencies ## measure lists and searches over a million stored messages, on both databases
	INBOX_TEST_DATABASE_URL=$${INBOX_TEST_DATABASE_URL:-$$(scripts/test-postgres start --durable)} INBOX_BENCH_ARRIVALS=$${INBOX_BENCH_ARRIVALS:-1000000} \
		$(GO) test -run '^$$' -bench Arrivals -benchtime 1x -timeout 90m ./engine/store

bench-pages: test-dependencies ## measure each page of the console, and open ones, over a million stored messages, on both databases
	INBOX_TEST_DATABASE_URL=$${INBOX_TEST_DATABASE_URL:-$$(scripts/test-postgres start --durable)} INBOX_BENCH_ARRIVALS=$${INBOX_BENCH_ARRIVALS:-1000000} \
		$(GO) test -run '^$$' -bench Pages -benchtime 1x -timeout 90m .

bench: test-dependencies ## measure on both databases and write docs/benchmarks.md (BENCH_SECONDS=3 a scenario)
	BENCH_SECONDS=$(BENCH_SECONDS) scripts/bench

generate: ## write the generated files again: documentation of the settings, JSON Schema
	$(GO) generate ./...

screenshots: test-dependencies ## take the pictures of docs/img again, of a server that the browser tests fill
	$(GO) test ./e2e -run '^TestConsole$$' -count=1 -args -screenshots $(CURDIR)/docs/img

test-dependencies: ## install what tests need: PostgreSQL, Postfix, OpenDKIM, swaks, dkimpy, proxies, crun, umoci, Prometheus, Node and its packages
	scripts/install-test-dependencies
