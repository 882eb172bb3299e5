package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"inbox/e2e/instance"
	"inbox/internal/await"
	"inbox/internal/children"
)

// TestBoardAndAlerts runs every query of the board, and every side of every alert, in a Prometheus that scrapes a server which has had
// messages on all three networks, failures among them. Each has to have data.
func TestBoardAndAlerts(t *testing.T) {
	t.Parallel()
	busy, traffic := busyServer(t)
	traffic("before")
	p := startPrometheus(t, busy, securedServer(t))
	await.Until(t, "series of both servers", func() bool { return p.hasData(t, `count(up{job="inbox"} == 1) == 2`) })
	traffic("while it is looked at") // a rate needs a change
	missing := map[string]string{}
	maps.Copy(missing, boardQueries(t))
	if len(missing) < 15 {
		t.Fatalf("%d queries were found on the board", len(missing))
	}
	for name, sides := range p.alerts(t) {
		for i, side := range sides {
			missing[fmt.Sprintf("alert %s, side %d", name, i+1)] = side
		}
	}

	defer func() {
		for of, query := range missing {
			t.Errorf("%s has no data: %s", of, query)
		}
	}()
	await.Until(t, "data for every query", func() bool {
		for of, query := range missing {
			if p.hasData(t, query) {
				delete(missing, of)
			}
		}
		return len(missing) == 0
	})
	if p.hasData(t, `inbox_turn_steps_total{state="no such state"}`) {
		t.Error("a query without series has data")
	}
}

// TestAlertsFire: promtool judges each alert by made-up series, when it fires and when it does not, and what it says.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	output, err := exec.CommandContext(t.Context(), promtool(t), "test", "rules", "testdata/alerts.test.yml").CombinedOutput()
	if err != nil {
		t.Fatalf("promtool test rules: %v\n%s", err, output)
	}
	rules, err := os.ReadFile("../docs/ops/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	cases, err := os.ReadFile("testdata/alerts.test.yml")
	if err != nil {
		t.Fatal(err)
	}
	alerts := regexp.MustCompile(`(?m)- alert: (\w+)`).FindAllStringSubmatch(string(rules), -1)
	if len(alerts) == 0 {
		t.Fatal("there are no alerts")
	}
	for _, alert := range alerts {
		fires := regexp.MustCompile(`alertname: ` + alert[1] + `\s*\n\s*exp_alerts:\s*\n\s*- exp_labels`)
		if !fires.Match(cases) {
			t.Errorf("no case lets %s fire", alert[1])
		}
	}
}

func promtool(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatalf("%v (Debian package prometheus); run scripts/install-test-dependencies", err)
	}
	return program
}

// busyServer is a server, and the traffic that it answers or fails, by A2A, by mail and in the fediverse.
func busyServer(t *testing.T) (s *server, traffic func(when string)) {
	t.Helper()
	const agents = `[[agents]]
name = "memory"
kind = "echo"
access = "public"
unverified = "answer"
[[agents]]
name = "broken"
kind = "command"
access = "public"
unverified = "answer"
[agents.command]
program = "/bin/false"
[[agents]]
name = "down"
kind = "webhook"
access = "public"
unverified = "answer"
[agents.webhook]
url = %q
secret = "a long random text"
`
	p := startPostWith(t, "", fmt.Sprintf(agents, "http://"+freeAddress(t)+"/"))
	community := startFediverse(t, 1)
	return p.server, func(when string) {
		id := strings.ReplaceAll(when, " ", "-") + "@sender.test"
		community.ask(p.server, "memory", 0, "hello from the fediverse")
		community.ask(p.server, "broken", 0, "fail, please")
		p.ask("first-"+id, "hello by mail")
		p.sendAs("broken", "second-"+id, "fail, please")
		p.sendAs("down", "third-"+id, "nobody is there")
		answered(t, p.a2aPeer("memory", "ann"), "hello by a task")
	}
}

// securedServer has a certificate.
func securedServer(t *testing.T) *server {
	t.Helper()
	trusted := newAuthority(t, "Authority of the board")
	certificate, key := issue(t, trusted, "127.0.0.1", "localhost")
	return start(t, instance.Settings{CertFile: certificate, KeyFile: key})
}

// prometheus is a running Prometheus.
type prometheus struct{ url string }

func startPrometheus(t *testing.T, busy, secured *server) prometheus {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatalf("%v (Debian package prometheus); run scripts/install-test-dependencies", err)
	}
	rules, err := filepath.Abs("../docs/ops/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	directory, address := t.TempDir(), freeAddress(t)
	settings := fmt.Sprintf(`global: {scrape_interval: 200ms, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: inbox
    tls_config: {insecure_skip_verify: true} # only the figures are of interest
    static_configs: [{targets: [%q]}]
    relabel_configs:
      - {source_labels: [__address__], regex: %q, target_label: __scheme__, replacement: https}
`, rules, busy.Settings.HTTP+`", "`+secured.Settings.HTTP, regexp.QuoteMeta(secured.Settings.HTTP))
	settings = strings.ReplaceAll(settings, `\", \"`, `", "`)
	file := filepath.Join(directory, "prometheus.yml")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	ranWith(t, "Prometheus", debianPackage("prometheus"))
	command := exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(directory, "series"), "--web.listen-address="+address)
	command.Stdout, command.Stderr = &log, &log
	if err := children.Start(command); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			t.Logf("log of Prometheus:\n%s", tail(log.String(), 2<<10))
		}
	})
	p := prometheus{url: "http://" + address}
	await.Until(t, "Prometheus", func() bool {
		answer, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return p
}

// get reads an answer of the API.
func (p prometheus) get(t *testing.T, path string, into any) {
	t.Helper()
	answer, err := http.Get(p.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	var document struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(answer.Body).Decode(&document); err != nil || document.Status != "success" {
		t.Fatalf("%s: %v %s", path, err, document.Error)
	}
	if err := json.Unmarshal(document.Data, into); err != nil {
		t.Fatal(err)
	}
}

// hasData reports whether a query returns a series whose value is a number.
func (p prometheus) hasData(t *testing.T, query string) bool {
	t.Helper()
	var data struct {
		Type   string            `json:"resultType"`
		Result []json.RawMessage `json:"result"`
	}
	p.get(t, "/api/v1/query?query="+url.QueryEscape(query), &data)
	return data.Type == "vector" && slices.ContainsFunc(data.Result, func(one json.RawMessage) bool { return !bytes.Contains(one, []byte(`"NaN"`)) })
}

// boardQueries are those of the panels, with the variables that Grafana replaces.
func boardQueries(t *testing.T) map[string]string {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	body, err := os.ReadFile("../docs/ops/grafana.json")
	if err == nil {
		err = json.Unmarshal(body, &board)
	}
	if err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$__rate_interval", "1m", "$__interval", "15s", "$__range", "1h")
	queries := map[string]string{}
	for _, panel := range board.Panels {
		for i, target := range panel.Targets {
			queries[fmt.Sprintf("panel %s, query %d", panel.Title, i+1)] = variables.Replace(target.Expr)
		}
	}
	return queries
}

var comparison = regexp.MustCompile(` (?:==|!=|>=|<=|>|<) `)

// alerts are the rules as Prometheus has read them: of each comparison the sides that have a metric.
func (p prometheus) alerts(t *testing.T) map[string][]string {
	t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Query string }
		}
	}
	p.get(t, "/api/v1/rules", &data)
	all := map[string][]string{}
	for _, group := range data.Groups {
		for _, rule := range group.Rules {
			for _, side := range comparison.Split(rule.Query, -1) {
				if strings.ContainsAny(side, "{(") || strings.Contains(side, "inbox_") {
					all[rule.Name] = append(all[rule.Name], side)
				}
			}
			if all[rule.Name] == nil {
				t.Errorf("alert %s has no metric: %s", rule.Name, rule.Query)
			}
		}
	}
	if len(all) < 5 {
		t.Fatalf("Prometheus has %d alerts", len(all))
	}
	return all
}
