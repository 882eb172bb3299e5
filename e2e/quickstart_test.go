package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/internal/await"
	"inbox/internal/peer"
)

const (
	newDomain       = "agents.example"
	quickstartBound = 2 * time.Minute // from the empty directory to the last answer
)

// TestQuickstart goes the way of an operator from an empty directory to the first answers.
func TestQuickstart(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { onInternet(t, "", func(w *internet) { w.quickstart() }) })
	t.Run("postgres", func(t *testing.T) {
		database := ""
		if os.Getenv(insideInternet) == "" {
			database = emptyPostgres(t)
		}
		onInternet(t, database, func(w *internet) { w.quickstart() })
	})
}

func (w *internet) quickstart() {
	began := time.Now()
	life := time.Hour
	if w.database != "" {
		life = certificateLife
	}
	w.openAuthority(life)
	w.openSocial()
	w.openMail()

	m := w.newMachine("45.80.0.10")
	m.manageUnits()
	m.installTools()
	w.t.Logf("the world is ready after %s", time.Since(began))

	printed := m.followQuickstart(func(step, said string) {
		switch step {
		case "sudo inbox init": // what the operator does elsewhere: the records
			w.publishTable(said)
			w.publish("10.0.80.45.in-addr.arpa. 60 IN PTR %s.", newDomain, "%s. 60 IN MX 10 mx.sender.example.", "gmail.com") // whose port 25 the doctor tries
		case "sudo useradd --system": // the doctor only warns of a certificate that is missing, so that the page would be another one
			m.shows(newDomain)
			m.shows("mta-sts." + newDomain)
		}
	})
	if w.database == "" {
		checkQuickstart(w.t, printed)
	}
	m.shows(newDomain) // again, after the restart that was the last command
	w.t.Logf("all commands ran after %s", time.Since(began))

	w.mention()
	w.mail("helper@" + newDomain)
	w.task(lastLine(m.sh("sudo -u inbox inbox tokens create --config /etc/inbox/inbox.toml --agent helper world"))) //nolint:dupword // user and program
	if took := time.Since(began); took > quickstartBound {
		w.t.Errorf("all answered after %s, want less than %s", took, quickstartBound)
	} else {
		w.t.Logf("all answered after %s", took)
	}
	if w.database != "" {
		w.secondNode(m)
	}
}

// secondNode is what an operator does who wants another node: it has the files of the first one, and thereby its certificates.
func (w *internet) secondNode(first *machine) {
	w.t.Helper()
	second := w.newMachine("45.80.0.11")
	second.sh("cp -r /etc/inbox /etc/second && sed -i s:/etc/inbox:/etc/second: /etc/second/inbox.toml && rm -r /etc/second/data")
	second.background("exec /usr/local/bin/inbox serve --config /etc/second/inbox.toml")
	before := second.shows(newDomain)
	await.Until(w.t, "both nodes show the same renewed certificate", func() bool {
		now := first.shows(newDomain)
		return now != before && now == second.shows(newDomain)
	})
}

// publishTable writes the records of a table that inbox init printed.
func (w *internet) publishTable(said string) {
	w.t.Helper()
	rows := tableRow.FindAllStringSubmatch(said, -1)
	if len(rows) < 5 {
		w.t.Fatalf("%d records are in\n%s", len(rows), said)
	}
	for _, row := range rows {
		if name := row[1] + "."; row[2] == "TXT" {
			w.names.SetTXT(name, row[3])
		} else {
			w.publish("%s", name+" 60 IN "+row[2]+" "+row[3])
		}
	}
}

var tableRow = regexp.MustCompile(`(?m)^(\S+) +(A|MX|TXT|CNAME) +(.*\S) *$`)

// What a machine of the guide has and the machine of the test has not: sudo without a question, and a compiler that has compiled the
// program already, from the same sources.
const (
	sudoShim = `#!/bin/sh
if [ "$1" = -u ]; then user=$2; shift 2; exec setpriv --reuid="$user" --regid="$user" --init-groups -- "$@"; fi
exec "$@"
`
	compilerShim = `#!/bin/sh
[ "$*" = "build -o bin/inbox ./cmd/inbox" ] || { echo "the test has no compiler for: $*" >&2; exit 1; }
mkdir -p bin && cp -f %[1]s/inbox bin/inbox
`
)

// installTools makes the machine one of the guide: its directory is a copy of the sources, and inbox is not installed.
func (m *machine) installTools() {
	m.w.t.Helper()
	root, err := instance.Root()
	if err != nil {
		m.w.t.Fatal(err)
	}
	m.sh("for file in " + root + "/*; do [ ${file##*/} = bin ] || ln -s $file; done")
	shims := filepath.Join(m.directory, "shims")
	for name, text := range map[string]string{"sudo": sudoShim, "go": fmt.Sprintf(compilerShim, m.w.directory)} {
		if err := os.WriteFile(filepath.Join(shims, name), []byte(text), 0o755); err != nil {
			m.w.t.Fatal(err)
		}
	}
	m.variables = append(m.variables, "PATH="+shims+":"+os.Getenv("PATH")+":/usr/local/bin:/usr/sbin:/sbin")
}

const (
	quickstartText = "e2e/testdata/quickstart.md" // with the commands, and empty blocks for what they print
	quickstartPage = "docs/quickstart.md"
)

// followQuickstart runs the commands as they are written, and returns the text with what they printed.
func (m *machine) followQuickstart(after func(step, said string)) string {
	m.w.t.Helper()
	root, err := instance.Root()
	if err != nil {
		m.w.t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, quickstartText))
	if err != nil {
		m.w.t.Fatal(err)
	}
	text := string(content)
	lastPrinted := ""
	var page strings.Builder
	for {
		before, rest, found := strings.Cut(text, "\n```")
		page.WriteString(before)
		if !found {
			return page.String()
		}
		language, body, _ := strings.Cut(rest, "\n")
		inner, following, _ := strings.Cut("\n"+body, "\n```")
		inner = strings.TrimPrefix(inner, "\n")
		page.WriteString("\n```" + language + "\n")
		switch language {
		case "sh":
			page.WriteString(inner)
			said := m.sh("set -a; if [ -f .variables ]; then . ./.variables; fi; trap 'export -p >\"" + m.directory + "/.variables\"' EXIT\n" + inner)
			lastPrinted = withoutVolatile(said)
			step := strings.Fields(inner)
			after(strings.Join(step[:min(3, len(step))], " "), said)
		case "text":
			page.WriteString(lastPrinted)
		default:
			page.WriteString(inner)
		}
		page.WriteString("\n```")
		text = following
	}
}

// What differs from run to run.
var volatile = []struct {
	form *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`p=MII[A-Za-z0-9+/=]+`), "p=MII…"},
	{regexp.MustCompile(`\bid([= ])[0-9a-f]{16}`), "id$1…"},
	{regexp.MustCompile(`schema \d+`), "schema …"},
	{regexp.MustCompile(`(?m)^(?:ok  |warn)  clock: .*\n(?: {6}.*\n)*`), "ok    clock: …\n"}, // whether the machine keeps time is its own matter
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "…"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?Z?)?`), "…"},
	{regexp.MustCompile(`\d\d:\d\d:\d\d(?:\.\d+)?`), "…"},
	{regexp.MustCompile(`\b[0-9.]+ ?(?:[µm]?s|[KMGT]i?B|hours?|minutes?|days?)\b`), "…"},
}

// withoutVolatile is what was printed without what differs from run to run.
func withoutVolatile(printed string) string {
	for _, v := range volatile {
		printed = v.form.ReplaceAllString(printed, v.by)
	}
	lines := strings.Split(strings.Trim(printed, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// checkQuickstart compares the page with what this run printed, or writes it with UPDATE=1 in the environment.
func checkQuickstart(t *testing.T, printed string) {
	t.Helper()
	root, err := instance.Root()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, quickstartPage)
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(printed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(committed), printed); diff != "" {
		t.Errorf("%s is not what this run printed; run: UPDATE=1 go test ./e2e -run TestQuickstart/sqlite\n%s", quickstartPage, diff)
	}
}

func (w *internet) mention() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	conversation, err := w.social.Ask(ctx, "", "@helper@"+newDomain, "hello from the fediverse")
	if err != nil || !strings.Contains(conversation.Answer, "hello from the fediverse") {
		w.t.Fatalf("the mention: %q, %v", conversation.Answer, err)
	}
}

func (w *internet) mail(to string) {
	w.t.Helper()
	bring(w.t, "127.0.0.1:587", "ann@"+mailDomain, to, load.Mail{
		MessageID: "first@" + mailDomain, From: "ann@" + mailDomain, To: to, Subject: "Hello", Body: "hello by mail",
	}.Bytes())
	var answer load.Received
	await.Until(w.t, "the answer by mail", func() bool {
		for _, letter := range w.letters() {
			if letter.Field("In-Reply-To") == "first@"+mailDomain {
				answer = letter
			}
		}
		return answer.Raw != nil
	})
	if proof := answer.Header.Get("Authentication-Results"); !strings.Contains(proof, "dkim=pass") {
		w.t.Errorf("the answer has the proof %q", proof)
	}
}

func (w *internet) task(token string) {
	w.t.Helper()
	client, err := peer.NewA2A(peer.A2AOptions{Token: token})
	if err != nil {
		w.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	conversation, err := client.Ask(ctx, "https://"+newDomain+"/a2a/helper/.well-known/agent-card.json", "hello by a task")
	if err != nil || !strings.Contains(conversation.Answer, "hello by a task") {
		w.t.Fatalf("the task: %q, %v", conversation.Answer, err)
	}
}
