package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/BurntSushi/toml"

	"inbox/e2e/instance"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/await"
	"inbox/internal/children"
)

// guide is what the commands of a document need. One that is not in the table runs on the usual server, as do the command lines in its
// running text.
//
// A new document needs nothing here as long as its commands work on the usual server. Else give it a server of its own (own), with the
// blocks that it shows as configuration, and say where the values come from that a reader has and the text cannot know.
type guide struct {
	own      bool              // a server for this document alone
	toml     []int             // with own: which toml blocks of the document are its inbox.toml, counted from 0
	settings string            // further lines of inbox.toml, after those
	files    map[string]string // by path; a relative one lies where the commands are run
	before   string            // commands of the shell before the first one of the document, once the server runs
	first    string            // the same before it starts; with walked a program that runs elsewhere
	without  bool              // no server is started: the document does it, or needs none
	linked   bool              // ana@example.org has linked two addresses
	once     bool              // a command that its blocks have several times is run once: they look, and change nothing
	local    bool              // the server of a closed network at http://localhost:8080, instead of https://agents.example
	walked   bool              // a task of docs/guides/README.md: TestTasks follows it in an empty directory
	runs     bool              // with walked: the guide is about a server that runs, so that one was started there

	// Commands that go on until they are ended: they run beside the others, and must be alive at the end.
	background []string
}

const (
	guideDomain  = "agents.example"
	guideAddress = "45.80.0.10"
	guideModel   = "45.80.0.30"
	readersModel = "http://127.0.0.1:11434/v1" // the reader's own model in the documents; guideModel stands in for it
	usual        = "README.md"
	serving      = "inbox serve"
)

// The usual agents: helper is that of the README, a program behind a webhook.
const usualAgents = `
[[agents]]
name = "echo"
kind = "echo"
access = "public"
unverified = "answer"

[[agents]]
name = "shop"
kind = "echo"
access = "public"
approve_replies = "always"

[[agents]]
name = "broken"
unverified = "answer"
kind = "command"
access = "public"
[agents.command]
program = "/bin/false"

[[agents]]
name = "shelf"
kind = "llm"
access = "public"
[[agents.rules]]
effect = "allow"
purposes = ["tool:client/look_up"]
[agents.llm]
base_url = "http://45.80.0.30/v1"
model = "scripted"
[[agents.client_tools]]
name = "look_up"
description = "Says how many of an item are on the shelf."
parameters = '{"type":"object","properties":{"item":{"type":"string"}},"required":["item"]}'
`

var guides = map[string]guide{
	usual: {
		own: true, toml: []int{0}, settings: usualAgents,
		files: map[string]string{
			"webhook.secret":    "a long random text of the webhook\n",
			"domain_blocks.csv": "#domain,#severity,#reject_media,#reject_reports,#public_comment,#obfuscate\nbad.example,suspend,false,false,,false\n",
			"answer.md":         "Another answer.\n",
		},
		first: `export INBOX_SECRET="$(cat webhook.secret)"`, background: []string{"python3 docs/examples/pythonagent/agent.py"},
	},
	"docs/bridges.md":             {before: `SESSION=$(session)`},
	"docs/connectors.md":          {own: true, toml: []int{0}, files: map[string]string{"/etc/inbox/slack.secret": "a long random text\n"}, before: `SECRET="a long random text"; RUN=$(connector_run)`},
	"docs/domains.md":             {own: true, toml: []int{0}},
	"docs/ops/container.md":       {own: true, without: true, first: "cp docs/ops/compose.toml ."},
	"docs/tasks.md":               {own: true, toml: []int{0}, files: map[string]string{"scene.json": `{"scene": 1}`}},
	"docs/trust.md":               {own: true, linked: true, toml: []int{0, 1}, first: `export INBOX_SECRET="a long random text"`, background: []string{"python3 docs/examples/pythonagent/agent.py"}},
	"docs/troubleshooting.md":     {once: true},
	"docs/agents/client-tools.md": {own: true, local: true, toml: []int{0}, background: []string{"python3 docs/examples/clienttool/client.py"}},
	"docs/agents/pull.md":         {own: true, local: true, toml: []int{0}, background: []string{"python3 docs/examples/pullagent/agent.py"}},
	"docs/agents/webhook.md":      {own: true, local: true, toml: []int{0}, background: []string{"python3 docs/examples/pythonagent/agent.py"}},
	"docs/guides/first-answer.md": {walked: true, background: []string{serving}},
	"docs/guides/by-mention.md":   {walked: true, background: []string{serving}},
	"docs/guides/by-mail.md":      {walked: true, background: []string{serving}},
	"docs/guides/by-a2a.md":       {walked: true, background: []string{serving}},
	"docs/guides/python.md":       {walked: true, background: []string{serving, `env INBOX_SECRET="$(cat webhook.secret)" python3 agent.py`}},
	"docs/guides/typescript.md":   {walked: true, background: []string{serving, `env INBOX_SECRET="$(cat webhook.secret)" node agent.js`}},
	"docs/guides/go.md":           {walked: true, background: []string{serving, `env INBOX_SECRET="$(cat webhook.secret)" ./agent`}},
	"docs/guides/model.md":        {walked: true, background: []string{serving}},
	"docs/guides/a2a-agent.md":    {walked: true, background: []string{serving}, first: agentElsewhere},
	"docs/guides/approve.md":      {walked: true, background: []string{serving}},
	"docs/guides/postgresql.md": {walked: true, background: []string{serving}, runs: true, before: "inbox agents test echo hello",
		files: map[string]string{"inbox.toml": "[federation]\nallow_private = true\n\n[[agents]]\nname = \"echo\"\nkind = \"echo\"\n"}},
	"docs/ops/systemd.md": {own: true, without: true, settings: "public_url = \"https://agents.example\"\n", first: "ln -s \"$(command -v inbox)\" docs/ops/inbox.service ."},
}

// word stands in a document for what a reader puts in its place.
type word struct {
	in    string // prefix of the commands
	word  string
	value string // commands of the shell that print the value

	walked bool // it is in a guide that TestTasks walks
}

// theEcho prints the name of the usual agent.
const theEcho = "printf 'echo\\n'"

// The first that fits counts. The functions are those of guideFunctions.
var words = []word{
	{"inbox show --result", "ID", "with_result", false},
	{"inbox show", "ID", "answered", false},
	{"inbox show", "TURN", "answered", false},
	{"inbox readers", "ID", "answered", false},
	{"inbox mail", "ID", "mail_for_the_operator", false},
	{"inbox edit", "ID", "posted", false},
	{"inbox delete", "ID", "posted", false},
	{"inbox retry", "ID", "failed", false},
	{"inbox retry", "A", "echo broken", false},
	{"inbox deliveries list", "ID", "answered", false},
	{"inbox deliveries retry", "ID", "dead", false},
	{"inbox held restore", "ID", "dropped", false},
	{"inbox held", "019a…", "held", false},
	{"inbox approvals", "7k3mq2", "approval", false},
	{"inbox tasks cancel", "task_run_5c…", "waiting_task", false},
	{"inbox tool-requests", "ID", "tool_request", false},
	{"inbox tool-requests", "RESULT", `echo '{"success":true,"result":{"in_stock":3}}'`, false},
	{"inbox tool-requests", "T", "echo client/look_up", false},
	{"inbox suppressions remove", "ADDRESS", "suppressed", false},
	{"inbox agents", "KIND", theEcho, false},
	{"inbox agents why", "ADDRESS", "echo ann@example.org", false},
	{"inbox agents remove", "NAME", "added_agent", false},
	{"inbox agents test", "NAME", theEcho, false},
	{"inbox agents add", "NAME", "echo third", false},
	{"inbox agents", "NAME", theEcho, false},
	{"inbox keys", "NAME", theEcho, false},
	{"inbox tokens create --agent NAME", "NAME", theEcho, false},
	{"inbox tokens create", "NAME", "echo partner", false},
	{"inbox explain", "NAME", "echo not_found", false},
	{"inbox approvals approve", "CODE", "inbox approvals list --json | text code", true},
	{"SOURCES=", "$HOME/inbox", `printf '%s\n' "$CHECKOUT"`, true},
	{"MODEL_URL=", readersModel, "echo http://" + guideModel + "/v1", true},
	{"CARD=", "https://agent.example.org/.well-known/agent-card.json", "echo http://localhost:8090/a2a/echo/.well-known/agent-card.json", true},
	{"echo 'postgres", "postgres://inbox:a%20long%20random%20text@db.example/inbox", `printf '%s\n' "$DATABASE"`, true},
	{"inbox", "A", theEcho, false},
	{"curl", "bridge_…", "queued", false},
}

// guideFunctions make what a reader has: each prints the id of something new.
const guideFunctions = `
text() { sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p" | head -1; }
until_some() { # until a command prints something; the test has a bound
	while true; do found=$("$@"); if [ -n "$found" ]; then echo "$found"; return; fi; done
}
turn_of() { inbox agents test "$1" "$2" --json 2>/dev/null | sed -n 's/^    "id": "\(.*\)",$/\1/p' | head -1; }
answered() { turn_of echo hello; }
failed() { mail somebody@sender.example broken; until_some failed_mail; }
failed_mail() { inbox retry --agent broken --failed --since 1h --dry-run | sed -n 's/^\([0-9a-f-]*\)  broken.*/\1/p' | head -1; }
posted() { inbox show --json "$(head -1 posted)" | text id; sed -i 1d posted; }
with_result() { turn_of shelf hello; }
mail() { sent="$(openssl rand -hex 8)@sender.example"; swaks --silent 2 --server 127.0.0.1 --from "$1" --to "$2@agents.example" --header "Message-Id: <$sent>" >&2; }
newest_held() { inbox held list --json | text id; }
held() { mail "$(openssl rand -hex 4)@sender.example" helper; until_some newest_held; }
dropped() { dropping="$(held)"; inbox held drop "$dropping" >&2; echo "$dropping"; }
newest_dead() { inbox deliveries list --state dead --json | text id; }
dead() { inbox held release "$(held)" >&2; until_some newest_dead; }
mail_for_the_operator() { mail "$(openssl rand -hex 4)@sender.example" postmaster; inbox mail list --mailbox postmaster --json | text id; }
suppressed() { dead >&2; inbox suppressions list --json | text address; }
approval() { inbox agents test shop hello >/dev/null 2>&1 || true; inbox approvals list --json | text code; }
tool_request() { inbox agents test --wait 100ms shelf "is there milk" >/dev/null 2>&1 || true; until_some newest_tool_request; }
newest_tool_request() { inbox tool-requests list --json | text request_id; }
added_agent() { inbox agents add "${1:-fourth}" --kind echo >&2; echo "${1:-fourth}"; }
waiting_task() { inbox tasks run --require gpu --json "Wait." | text run_id; }
session() { curl -s -H "Authorization: Bearer $(inbox tokens create --bridge relay | tail -1)" "$INBOX_SERVER/v1/sessions" -d '{"agent": "echo"}' | text session_id; }
queued() { curl -s -H "Authorization: Bearer $TOKEN" "$INBOX_SERVER/v1/bridge/pending?wait=30s" | text queue_id; }
connector_run() {
	body='{"text":"hello","external_message_id":"m1","external_conversation_id":"C1","sender_id":"U1"}'
	signature=$(printf '%s' "$body" | openssl dgst -sha256 -hmac "a long random text" | sed 's/.* //')
	curl -s -H "X-Inbox-Signature: sha256=$signature" "$INBOX_SERVER/v1/connectors/slack/messages" -d "$body" | text run_id
}
`

// beside are commands before which something has to be under way or there.
var beside = map[string]string{
	`inbox tasks run --require gpu --input @scene.json --wait`: `worker() { TOKEN=$(inbox tokens create --agent workers --pull laptop | tail -1);  taken=$(curl -s -X POST -H "Authorization: Bearer $TOKEN" "$INBOX_SERVER/v1/pull/workers/take?wait=30s&labels=gpu,linux"); ` +
		`curl -s -H "Authorization: Bearer $TOKEN" "$INBOX_SERVER/v1/pull/workers/$(echo "$taken" | sed 's/.*"turn":{"id":"\([^"]*\)".*/\1/')/answer?lease=$(echo "$taken" | sed 's/.*"lease":{"id":"\([^"]*\)".*/\1/')" -d '{"parts":[{"kind":"text","mime":"text/plain","content":"done"}]}'; }; worker >/dev/null 2>&1 &`,
	"curl -X POST -H \"Authorization: Bearer $TOKEN\" 'https://agents.example/v1/pull/workers/take": "waiting_task >/dev/null",
	"inbox init":          `cd "$(mktemp -d)"; program=$(type -P inbox); inbox() { printf 'agents.example\n\n\n\n\n\n\n\n\n' | script -qec "$program $*" /dev/null; }`, // at a terminal
	"inbox resume --all":  "inbox pause --all",
	"inbox agents resume": "inbox agents pause echo",
	`curl -H "Authorization: Bearer $TOKEN" --data-binary @conversations.json`: `echo '{"agent":"echo","session_id":"elsewhere","messages":[{"role":"user","content":"hello"},{"role":"assistant","content":"hello"}]}' >conversations.json`, // that of another server
}

// afterwards undoes what would be in the way of the commands that follow.
var afterwards = map[string]string{
	"inbox agents pause": "inbox agents resume echo",
	"inbox pause --all":  "inbox resume --all",
}

// unrun are the commands that no test here runs, and why. One that begins with an entry is passed over; an entry that no command begins
// with is an error.
var unrun = map[string]string{
	"inbox serve":                  "goes on until it is ended; every server here is started so",
	"inbox list --follow":          "goes on until it is ended; TestFollowArrivals",
	"inbox simulate":               "needs mail that is captured; TestSimulateRecordReplay",
	"inbox record":                 "waits for messages to come; TestSimulateRecordReplay",
	"inbox replay":                 "needs recordings; TestSimulateRecordReplay",
	"inbox reply":                  "needs a conversation of its own; TestTakeoverSurvivesKills",
	"inbox takeover":               "needs a conversation of its own; TestTakeoverSurvivesKills",
	"inbox sessions end":           "needs a browser that is signed in; TestSessionsOutliveTheirNode",
	"make bench-lists":             "stores a million messages",
	"make bench-pages":             "stores a million messages",
	"inbox move":                   "needs an account elsewhere that names the agent; TestCommandsAskTheRunningServer",
	"inbox block remove --stop":    "needs somebody who said stop; TestStopWordOutlivesRestarts",
	"inbox follows accept":         "needs somebody who asks to follow; TestOperatorChoosesFollowers",
	"inbox export":                 "needs somebody who wrote; TestPersonIsErased",
	"inbox domains remove":         "needs data of a domain that is no longer configured; TestOrphanedDomains",
	"inbox mail send-test":         "needs a server that accepts the mail; TestRelayIsTriedAndTested",
	"inbox erase":                  "takes away what others need here; TestPersonIsErased",
	"inbox reload --server":        "names another node; TestReload",
	"inbox notices test":           "needs addresses that answer; TestOperatorIsToldWhateverDies",
	"inbox migrate --to":           "takes the server of the documents away; TestServerIsMovedUnderLoad",
	"make run":                     "goes on until it is ended; builds and serves, as TestQuickstart and every other test here do",
	"make build":                   "run by TestQuickstart",
	"make test":                    "is what runs this test",
	"make check":                   "runs all tests beside the code",
	"make lint":                    "builds the linter; CI runs it",
	"make generate":                "CI runs it and compares (scripts/check-generated)",
	"go test -count=1 -v -run Te":  "is among the tests beside the code",
	"UPDATE=1 go test":             "writes a page; TestQuickstart",
	"export INBOX_TEST_DATABASE":   "begins the database of the next command",
	"go test ./e2e/twopersons":     "searches for hours; e2e/twopersons runs a few sequences of each pair",
	"go test ./e2e/explore":        "searches for hours; e2e/explore runs a part of it",
	"make release":                 "builds for all platforms; tools/release tests it",
	"scripts/release":              "builds for all platforms; tools/release tests it",
	"scripts/image":                "builds for all platforms; TestImage runs what it writes",
	"PLATFORMS=linux/amd64 script": "the same for one platform",
	"podman load":                  "needs Podman; TestImage takes the image apart and runs it with crun",
	"skopeo copy":                  "needs a registry; TestImage reads the image by umoci",
	"docker ":                      "needs Docker; TestImage runs the image as the page and compose.yaml say, with crun",
	"scripts/check-reproducible":   "builds all of it twice",
}

// TestGuides runs every command of the README and of the guides as it is written there, on servers that have what the documents show.
func TestGuides(t *testing.T) {
	onInternet(t, "", func(w *internet) {
		w.openShelf()
		w.openRecords()
		documents := map[string]manual{}
		houses := map[string][]string{} // the documents of each server
		for _, name := range guidesOfTheRepository(t) {
			if name == quickstartPage { // TestQuickstart
				continue
			}
			documents[name] = readManual(t, name)
			if guides[name].walked { // TestTasks
				continue
			}
			place := usual
			if guides[name].own {
				place = name
			}
			houses[place] = append(houses[place], name)
		}
		for name := range guides {
			if _, there := documents[name]; !there {
				t.Errorf("the table has %s, which is not there", name)
			}
		}

		ran := &record{}
		number := 0
		for _, place := range slices.Sorted(maps.Keys(houses)) {
			number++
			address := fmt.Sprintf("45.80.0.%d", 100+number)
			if place == usual { // whom the others in this world find by name
				address = guideAddress
			}
			t.Run(place, func(t *testing.T) {
				t.Parallel()
				here := *w
				here.t = t
				h := here.newHouse(place, address, documents[place])
				for _, name := range houses[place] {
					began := time.Now()
					if commands := h.follow(documents[name], ran); commands > 0 {
						ran.followed(name, commands, time.Since(began))
					}
				}
				if place == usual {
					h.followText(documents, ran)
					h.checkSettings(documents)
				}
				h.end()
			})
		}
		t.Cleanup(func() {
			ran.complete(t, false)
			ran.write(t)
		})
	})
}

// openShelf starts the provider of the model, which asks the shelf.
func (w *internet) openShelf() {
	w.t.Helper()
	w.run("ip", "address", "add", guideModel+internetNetwork, "dev", "world")
	listener, err := net.Listen("tcp", net.JoinHostPort(guideModel, "80"))
	if err != nil {
		w.t.Fatal(err)
	}
	server := &http.Server{Handler: &model{answer: looksUp}, ReadHeaderTimeout: patience}
	w.t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
}

// openRecords tells everybody the names of the documents. Every server is at the same address, on a machine of its own.
func (w *internet) openRecords() {
	w.t.Helper()
	w.trust()
	for _, name := range []string{"", "mta-sts."} {
		w.publish("%s. 60 IN A "+guideAddress, name+guideDomain)
	}
	w.publish("10.0.80.45.in-addr.arpa. 60 IN PTR %s.", guideDomain, "%s. 60 IN MX 10 mx.sender.example.", mailDomain)
	w.openSocial()
	w.refuseMail()
}

// refuseMail opens a mail server that knows no one: what goes there is given up.
func (w *internet) refuseMail() {
	w.t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(internetMail, "25"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = client.Close() }()
				_, _ = fmt.Fprint(client, "220 mx.sender.example\r\n")
				for lines := bufio.NewScanner(client); lines.Scan(); {
					answer := "250 ok"
					switch verb, _, _ := strings.Cut(strings.ToUpper(lines.Text()), " "); verb {
					case "RCPT":
						answer = "550 5.1.1 nobody has this name"
					case "QUIT":
						answer = "221 bye"
					}
					_, _ = fmt.Fprint(client, answer+"\r\n")
				}
			}()
		}
	}()
}

// house is a server as a document describes it, and the place where its commands are run.
type house struct {
	*machine
	guide
	t       *testing.T
	beside  string // where its own files are, which are none of the reader's; empty = where the commands are run
	server  *launched
	running map[string]*launched
}

func (w *internet) newHouse(place, address string, d manual) *house {
	t := w.t
	t.Helper()
	h := &house{machine: w.newMachine(address), guide: guides[place], t: t, running: map[string]*launched{}}
	h.sh("echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore; ip address add " + guideAddress + "/32 dev lo") // others have the address, too
	root, err := instance.Root()
	if err != nil {
		t.Fatal(err)
	}
	h.write("functions.sh", guideFunctions)
	h.write(".curlrc", "silent\nshow-error\nfail-with-body\nwrite-out = \"%{stderr}status %{http_code}\\n\"\n")
	for _, name := range []string{"docs", "e2e/peers/node_modules"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(h.directory, filepath.Base(name))); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range h.files {
		h.write(name, content)
	}

	var settings strings.Builder
	for _, text := range h.configuration(d) {
		settings.WriteString(text)
	}
	h.write("inbox.toml", settings.String())
	h.variables = append(h.variables, "CURL_HOME="+h.directory, "NODE_EXTRA_CA_CERTS="+w.bundle, "INBOX_DRAIN=0s")
	if h.local {
		h.variables = append(h.variables, "INBOX_FEDERATION_ALLOW_PRIVATE=true", "INBOX_SERVER=http://localhost:8080")
	} else {
		certificate, key := issue(t, w.trusted, guideDomain, "mta-sts."+guideDomain)
		h.variables = append(h.variables, "INBOX_PUBLIC_URL=https://"+guideDomain, "INBOX_SERVER=https://"+guideDomain, "INBOX_HTTP_LISTEN=:443", "INBOX_HTTP_TLS=files",
			"INBOX_HTTP_CERT_FILE="+certificate, "INBOX_HTTP_KEY_FILE="+key, "INBOX_SMTP_LISTEN=:25", "INBOX_MAIL_MODE=mx")
	}
	h.manageUnits()
	if h.first != "" {
		h.shell(h.first)
	}
	if h.without {
		return h
	}

	h.storeKeys(settings.String())
	commands := d.commands(t)
	for _, program := range h.guide.background {
		if !slices.ContainsFunc(commands, func(c command) bool { return c.runs(program) }) {
			h.running[program] = h.machine.background(h.script("exec " + program))
		}
	}
	h.server = h.machine.background("exec inbox serve")
	var said, posts string
	defer func() {
		if t.Failed() {
			t.Logf("the server of %s said %s", place, said)
		}
	}()
	await.Until(t, "the server of "+place, func() bool {
		if !h.server.alive() {
			t.Fatalf("the server of %s ended", place)
		}
		output, err := h.command(t.Context(), `curl "$INBOX_SERVER/readyz"`).CombinedOutput()
		said = string(output)
		return err == nil
	})
	if place == usual {
		w.publishPrinted(h.sh("inbox dns --json"))
		for range 2 {
			conversation, err := w.social.Ask(t.Context(), "", "@helper@"+guideDomain, "hello")
			if err != nil {
				t.Fatal(err)
			}
			posts += conversation.MessageID + "\n"
		}
		h.write("posted", posts)
	}
	if h.before != "" {
		h.shell(h.before)
	}
	return h
}

// configuration is what the document shows, and what was added.
func (h *house) configuration(d manual) (texts []string) {
	var shown []string
	for _, block := range d.blocks {
		if block.language == "toml" {
			shown = append(shown, block.text())
		}
	}
	for i, number := range h.toml {
		text := shown[number]
		if i > 0 { // blocks that are whole files begin alike
			text = publicURL.ReplaceAllString(text, "")
		}
		texts = append(texts, strings.ReplaceAll(text, readersModel, "http://"+guideModel+"/v1"))
	}
	return append(texts, h.settings)
}

var publicURL = regexp.MustCompile(`(?m)^public_url *=.*\n`)

// storeKeys leaves a database with keys, which take long to make.
func (h *house) storeKeys(settings string) {
	h.t.Helper()
	var file struct{ Agents []struct{ Name string } }
	if _, err := toml.Decode(settings, &file); err != nil {
		h.t.Fatal(err)
	}
	data := filepath.Join(h.directory, "inbox-data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		h.t.Fatal(err)
	}
	opened, err := store.Open(h.t.Context(), store.Options{URL: "sqlite", DataDir: data})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, agent := range file.Agents {
		inboxtest.StoreKeys(h.t, opened, agent.Name)
	}
	if h.linked {
		ana := exchange.PersonLink{Agent: file.Agents[0].Name, Digest: "shown", LinkedAt: time.Now().UTC(), Sides: [2]exchange.LinkSide{
			{Principal: guideDomain + " mailto:ana@example.org", Issuer: guideDomain, Subject: "mailto:ana@example.org", Method: "urn:mentionable:auth:email-dmarc:v0.1", Address: "@ana@example.org"},
			{Principal: guideDomain + " https://social.example/users/ana", Issuer: guideDomain, Subject: "https://social.example/users/ana", Method: "urn:mentionable:auth:ap-http-signature:v0.1", Address: "@ana@social.example"},
		}}
		if err := opened.InTx(h.t.Context(), func(tx *store.Tx) error { return tx.PutLink(h.t.Context(), ana) }); err != nil {
			h.t.Fatal(err)
		}
	}
	if err := opened.Close(); err != nil {
		h.t.Fatal(err)
	}
}

// write puts a file where the commands are run, or at an absolute path of the covered directories.
func (h *house) write(name, content string) {
	h.t.Helper()
	if !filepath.IsAbs(name) {
		name = filepath.Join(h.directory, name)
	}
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil {
		err = os.WriteFile(name, []byte(content), 0o600)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// script is a command in the shell of the document: it has the variables and the directory that those before it left.
func (h *house) script(text string) string {
	place := cmp.Or(h.beside, h.directory)
	return fmt.Sprintf("set -a; . %s/functions.sh; if [ -f %[1]s/.variables ]; then . %[1]s/.variables; fi\n", place) + text
}

// shell runs commands, and keeps what they left.
func (h *house) shell(text string) (output, problems string) {
	h.t.Helper()
	output, problems, err := h.try("set +o pipefail\n" + text)
	if err != nil {
		h.t.Fatalf("%s\n%v\n%s%s", text, err, output, problems)
	}
	return output, problems
}

func (h *house) try(text string) (output, problems string, err error) {
	ctx, cancel := context.WithTimeout(h.t.Context(), 2*patience) // Node needs 20 s to begin where others compile
	defer cancel()
	var out, bad bytes.Buffer
	run := h.command(ctx, h.script(`set -o pipefail; trap 'code=$?; export -p >"`+cmp.Or(h.beside, h.directory)+`/.variables"; exit $code' EXIT`+"\n"+text))
	run.Stdout, run.Stderr = &out, &bad
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	run.Cancel = func() error { return syscall.Kill(-run.Process.Pid, syscall.SIGKILL) } // with what it has started
	run.WaitDelay = time.Second
	if err = children.Start(run); err == nil {
		err = run.Wait()
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("it did not end within %s: %w", 2*patience, err)
	}
	return out.String(), bad.String(), err
}

// runs reports whether the command is the program, without the words of a comment.
func (c command) runs(program string) bool {
	written, _, _ := strings.Cut(c.text, " #")
	return strings.TrimSpace(written) == program
}

// record is which entries of the tables were of use.
type record struct {
	mu    sync.Mutex
	used  map[string]bool
	times []string
}

// followed notes how long the commands of a document took.
func (r *record) followed(name string, commands int, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times = append(r.times, fmt.Sprintf("%-54s %3d commands  %6.1f s", name, commands, took.Seconds()))
}

// write keeps the times in the file that GUIDE_TIMES names, for make guides.
func (r *record) write(t *testing.T) {
	file := os.Getenv("GUIDE_TIMES")
	if file == "" {
		return
	}
	slices.Sort(r.times)
	out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(out, strings.Join(r.times, "\n"))
		err = errors.Join(err, out.Close())
	}
	if err != nil {
		t.Error(err)
	}
}

func (r *record) use(entry string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used == nil {
		r.used = map[string]bool{}
	}
	r.used[entry] = true
}

// complete names the entries of the tables that nothing needs any more: those of the tasks that are walked, or those of the other documents.
func (r *record) complete(t *testing.T, walked bool) {
	for entry := range unrun {
		if !walked && !r.used[entry] {
			t.Errorf("no command begins with %q any more; take it out of the table", entry)
		}
	}
	for entry := range beside {
		if !walked && !r.used[entry] {
			t.Errorf("no command begins with %q any more; take it out of the table", entry)
		}
	}
	for _, w := range words {
		if w.walked == walked && !r.used[w.in+" "+w.word] {
			t.Errorf("no command %q has %s; take it out of the table", w.in, w.word)
		}
	}
}

// passedOver is the reason why a command is not run; empty = it is.
func passedOver(text string, ran *record) string {
	for entry, reason := range unrun {
		if strings.HasPrefix(text, entry) {
			ran.use(entry)
			return reason
		}
	}
	return ""
}

// follow runs the commands of the blocks and returns how many.
func (h *house) follow(d manual, ran *record) (followed int) {
	h.t.Helper()
	own := guides[d.name]
	if own.before != "" && !own.own {
		h.shell(own.before)
	}
	done := map[string]bool{}
	for _, c := range d.commands(h.t) {
		program := slices.IndexFunc(own.background, c.runs)
		if program < 0 && !own.walked && passedOver(c.text, ran) != "" || own.once && done[c.text] {
			continue
		}
		followed++
		done[c.text] = true
		at := fmt.Sprintf("%s:%d", d.name, c.line)
		if program >= 0 {
			h.start(own.background[program])
			continue
		}
		output, problems, err := h.perform(c.text, ran)
		if err != nil {
			h.t.Errorf("%s: %s\n%v\n%s%s", at, c.text, err, output, problems)
			continue
		}
		if own.walked && !shows(output, c.shown) {
			h.t.Errorf("%s: %s\nprints\n%s%s\nand the guide shows\n%s", at, c.text, output, problems, strings.Join(c.shown, "\n"))
		}
		for _, said := range c.answers {
			if why := differs(said, output, problems); why != "" {
				h.t.Errorf("%s: %s\nsays %s, but %s:\n%s%s", at, c.text, said, why, problems, output)
			}
		}
	}
	return followed
}

// start runs a program beside the other commands. A server is waited for, as its reader does.
func (h *house) start(program string) {
	h.t.Helper()
	started := h.machine.background(h.script("exec " + program))
	h.running[program] = started
	if program != serving {
		return
	}
	await.Until(h.t, "the server", func() bool {
		if !started.alive() {
			h.t.Fatalf("the server ended:\n%s", started.log())
		}
		_, _, err := h.try("inbox ready")
		return err == nil
	})
}

// shows reports whether the lines are in what was printed, in this order. … stands for any text.
func shows(printed string, lines []string) bool {
	for _, line := range lines {
		form := regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(line)), "…", ".*"))
		place := form.FindStringIndex(printed)
		if place == nil {
			return false
		}
		printed = printed[place[1]:]
	}
	return true
}

// perform runs a command with the words of a reader in the place of those of the document.
func (h *house) perform(text string, ran *record) (output, problems string, err error) {
	h.t.Helper()
	before := ""
	for prefix, commands := range beside {
		if strings.HasPrefix(text, prefix) {
			ran.use(prefix)
			before = commands + "\n"
		}
	}
	for prefix, commands := range afterwards {
		if strings.HasPrefix(text, prefix) {
			defer h.shell(commands) //nolint:revive // at most a few, and after the command is what they are for
		}
	}
	for _, w := range words {
		place := regexp.MustCompile(`(^|[\s"'\[])` + regexp.QuoteMeta(w.word) + `($|[\s"'\],])`)
		if !strings.HasPrefix(text, w.in) || !place.MatchString(text) {
			continue
		}
		ran.use(w.in + " " + w.word)
		began := time.Now()
		value, problems, err := h.try("set +o pipefail\n" + w.value)
		if testing.Verbose() {
			h.t.Logf("%s: %s for %s", time.Since(began).Round(time.Millisecond), w.value, text)
		}
		if value = strings.TrimSpace(value); err != nil || value == "" {
			return value, problems, fmt.Errorf("there is no value for %s: %w", w.word, err)
		}
		if strings.ContainsAny(value, " {") && !strings.Contains(text, "'"+w.word+"'") {
			value = "'" + value + "'"
		}
		text = place.ReplaceAllString(text, "${1}"+strings.ReplaceAll(value, "$", "$$")+"${2}")
	}
	began := time.Now()
	output, problems, err = h.try(before + text)
	if took := time.Since(began); testing.Verbose() {
		h.t.Logf("%s: %s\n%s", took.Round(time.Millisecond), text, tail(output+problems, 400))
	}
	return output, problems, err
}

var (
	optional = regexp.MustCompile(`\[([^\]]*)\]`)
	nameOnly = regexp.MustCompile(`^(inbox(?: [a-z][a-z-]*)+)((?: --[a-z-]+)*)$`)
)

// followText runs the command lines that stand in the running texts, each of them once. What is the name of a command alone, and needs
// more, is looked up in the help.
func (h *house) followText(documents map[string]manual, ran *record) {
	h.t.Helper()
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		for _, c := range documents[name].inline() {
			if seen[c.text] || passedOver(c.text, ran) != "" {
				continue
			}
			seen[c.text] = true
			output, problems, err := h.perform(optional.ReplaceAllString(c.text, "$1"), ran)
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.ExitCode() == 2 {
				if name := nameOnly.FindStringSubmatch(c.text); name != nil {
					output, problems, err = h.try(name[1] + " --help")
					if err == nil && !strings.Contains(output, "Usage:\n  "+name[1]+" ") {
						err = errors.New("there is no such command")
					}
					for flag := range strings.FieldsSeq(name[2]) {
						if !strings.Contains(output, " "+flag+" ") {
							err = fmt.Errorf("it has no %s", flag)
						}
					}
				}
			}
			if err != nil {
				h.t.Errorf("%s:%d: %s\n%v\n%s%s", name, c.line, c.text, err, output, problems)
			}
		}
	}
}

// What a block of settings may stand in where it is no whole file.
var surroundings = []struct{ before, after string }{
	{},
	{after: "[agents.llm]\nmodel = \"some\"\n"},
	{before: "[[agents]]\nname = \"helper\"\nkind = \"llm\"\n"},
	{before: "[[agents]]\nname = \"helper\"\nkind = \"llm\"\n", after: "model = \"some\"\n"},
	{before: "[[agents]]\nname = \"helper\"\nkind = \"llm\"\n", after: "[agents.llm]\nmodel = \"some\"\n"},
	{before: "[[agents]]\nname = \"helper\"\nkind = \"llm\"\n[agents.llm]\nmodel = \"some\"\n"},
	{before: "[[agents]]\nname = \"helper\"\nkind = \"llm\"\n[agents.llm]\nmodel = \"some\"\n[[agents.client_tools]]\nname = \"look_up\"\ndescription = \"Looks up.\"\n"},
}

// checkSettings: every block of settings is one that inbox config check finds right, as it stands or where it belongs.
func (h *house) checkSettings(documents map[string]manual) {
	h.t.Helper()
	for _, name := range []string{"slack.secret", "bucket.key", "tsig", "model.key", "helper.md", "hooks.key", "tickets.token", "database.password", "dns.token"} {
		h.write("/etc/inbox/"+name, "a-long-random-text\n")
	}
	h.write("/opt/helper/agent.py", "#!/usr/bin/env python3\n") // the check refuses a program that is not there, as a start does
	if _, problems, err := h.try("chmod 755 /opt/helper/agent.py"); err != nil {
		h.t.Fatal(err, problems)
	}
	h.write("/etc/inbox/secret.key", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n")
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		for _, block := range documents[name].blocks {
			if block.language != "toml" {
				continue
			}
			var refusals []string
			for _, around := range surroundings {
				h.write("checked.toml", around.before+block.text()+around.after)
				_, problems, err := h.try("inbox config check --config checked.toml")
				if err == nil {
					refusals = nil
					break
				}
				refusals = append(refusals, problems)
			}
			if refusals != nil {
				h.t.Errorf("%s:%d: inbox config check refuses it:\n%s%s", name, block.line, block.text(), strings.Join(refusals, ""))
			}
		}
	}
}

// end demands that everything still runs that goes on until it is ended.
func (h *house) end() {
	h.t.Helper()
	for _, program := range h.guide.background {
		switch running := h.running[program]; {
		case running == nil:
			h.t.Errorf("%s was not started", program)
		case !running.alive():
			h.t.Errorf("%s ended:\n%s", program, running.log())
		}
	}
	if h.server != nil && !h.server.alive() {
		h.t.Error("the server ended")
	}
}

// differs compares what a document says that a request answers: the status, and every member that it shows.
func differs(said, output, problems string) string {
	if status, rest, is := strings.Cut(said, " "); is && len(status) == 3 && !strings.HasPrefix(status, "{") {
		if !strings.Contains(problems, "status "+status) {
			return "the status is another one"
		}
		said = rest
	}
	said = regexp.MustCompile(`,\s*…\s*([}\]])`).ReplaceAllString(said, "$1")
	var shown, got any
	if err := json.Unmarshal([]byte(said), &shown); err != nil {
		return "that is not JSON: " + err.Error()
	}
	if err := json.Unmarshal([]byte(output), &got); err != nil {
		return "what came is not JSON: " + err.Error()
	}
	return lacks("", shown, got)
}

// lacks names a member that is shown and did not come, or with another value. … stands for any text.
func lacks(at string, shown, got any) string {
	switch shown := shown.(type) {
	case map[string]any:
		members, is := got.(map[string]any)
		if !is {
			return at + " is no object"
		}
		for name, value := range shown {
			if why := lacks(at+"."+name, value, members[name]); why != "" {
				return why
			}
		}
		return ""
	case []any:
		items, is := got.([]any)
		if !is || len(items) < len(shown) {
			return at + " has too few items"
		}
		for i, value := range shown {
			if why := lacks(fmt.Sprintf("%s[%d]", at, i), value, items[i]); why != "" {
				return why
			}
		}
		return ""
	case string:
		if before, _, open := strings.Cut(shown, "…"); open {
			if text, is := got.(string); !is || !strings.HasPrefix(text, before) {
				return fmt.Sprintf("%s is %v", at, got)
			}
			return ""
		}
	}
	if shown != got {
		return fmt.Sprintf("%s is %v", at, got)
	}
	return ""
}
