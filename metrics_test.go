package inbox_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inbox/inboxtest"
	"inbox/internal/await"
	"inbox/internal/httpserver"
)

var updateMetrics = flag.Bool("update-metrics", false, "write docs/metrics.md anew")

//go:generate go test -run ^TestMetricsAreListed$ . -update-metrics

// metric is one declaration in the code.
type metric struct {
	name, kind, help, room string

	labels []string
}

// declaredMetrics reads the declarations of all rooms: a registry knows neither the type of a metric without values nor its room.
func declaredMetrics(t *testing.T) (found []metric) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == "node_modules" || strings.HasPrefix(entry.Name(), ".") && path != ".") {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(source, []byte("promauto.")) && !bytes.Contains(source, []byte("telemetry.New")) {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			call, is := node.(*ast.CallExpr)
			if !is {
				return true
			}
			selector, is := call.Fun.(*ast.SelectorExpr)
			base, named := selectorBase(selector, is)
			combined := named && base == "telemetry" && slices.Contains([]string{"NewSum", "NewLargest", "NewLeast"}, selector.Sel.Name)
			if !named || base != "promauto" && !combined {
				return true
			}
			found = append(found, declared(t, path, selector.Sel.Name, call))
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(found, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return found
}

func selectorBase(selector *ast.SelectorExpr, is bool) (string, bool) {
	if !is {
		return "", false
	}
	base, is := selector.X.(*ast.Ident)
	if !is {
		return "", false
	}
	return base.Name, true
}

// declared reads one call such as promauto.NewCounterVec(prometheus.CounterOpts{…}, []string{…}).
func declared(t *testing.T, path, constructor string, call *ast.CallExpr) metric {
	t.Helper()
	one := metric{
		room: filepath.ToSlash(filepath.Dir(path)),
		kind: strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(constructor, "New"), "Vec")),
	}
	options, is := call.Args[0].(*ast.CompositeLit)
	if !is {
		t.Fatalf("%s: the options of %s are no literal", path, constructor)
	}
	for _, element := range options.Elts {
		pair, is := element.(*ast.KeyValueExpr)
		if !is {
			continue
		}
		switch pair.Key.(*ast.Ident).Name {
		case "Name":
			one.name = literal(t, path, pair.Value)
		case "Help":
			one.help = literal(t, path, pair.Value)
		}
	}
	if slices.Contains([]string{"sum", "largest", "least"}, one.kind) { // of telemetry.Combined
		one.kind = "gauge"
		for _, label := range call.Args[1:] {
			one.labels = append(one.labels, literal(t, path, label))
		}
	} else if len(call.Args) > 1 {
		for _, label := range call.Args[1].(*ast.CompositeLit).Elts {
			one.labels = append(one.labels, literal(t, path, label))
		}
	}
	return one
}

func literal(t *testing.T, path string, value ast.Expr) string {
	t.Helper()
	switch value := value.(type) {
	case *ast.BasicLit:
		if said, err := strconv.Unquote(value.Value); err == nil {
			return said
		}
	case *ast.BinaryExpr:
		return literal(t, path, value.X) + literal(t, path, value.Y)
	}
	t.Fatalf("%s: name, help and labels of a metric are written as texts", path)
	return ""
}

// TestMetricsAreListed: docs/metrics.md has every metric of the code, and what is registered is what was read.
func TestMetricsAreListed(t *testing.T) {
	t.Parallel()
	var page bytes.Buffer
	page.WriteString("# Metrics\n\nWritten by `go generate .`; do not edit it. `/metrics` serves these, and those of the Go runtime and the process (`go_…`, `process_…`).\n" +
		"A series with labels is there from its first value on. [ops/grafana.json](ops/grafana.json) is a board of them, [ops/alerts.yml](ops/alerts.yml) are alerts.\n\n" +
		"| metric | type | labels | meaning | room |\n|---|---|---|---|---|\n")
	found := declaredMetrics(t)
	for i, one := range found {
		if one.help == "" || !strings.HasPrefix(one.name, "inbox_") || i > 0 && found[i-1].name == one.name {
			t.Errorf("metric %+v: it needs a help, a name that begins with inbox_ and is not taken", one)
		}
		labels := "–"
		if len(one.labels) > 0 {
			labels = "`" + strings.Join(one.labels, "`, `") + "`"
		}
		fmt.Fprintf(&page, "| `%s` | %s | %s | %s | `%s` |\n", one.name, one.kind, labels, strings.ReplaceAll(one.help, "|", "\\|"), one.room)
	}

	registered := map[string]bool{}
	descriptions := make(chan *prometheus.Desc, 1<<12)
	prometheus.DefaultRegisterer.(*prometheus.Registry).Describe(descriptions)
	close(descriptions)
	for description := range descriptions {
		registered[description.String()] = true
	}
	for description := range registered {
		if !strings.Contains(description, `fqName: "inbox_`) {
			continue
		}
		if !slices.ContainsFunc(found, func(one metric) bool {
			return strings.Contains(description, `fqName: "`+one.name+`"`) && strings.Contains(description, "variableLabels: {"+strings.Join(one.labels, ",")+"}")
		}) {
			t.Errorf("%s is registered and not read from the code with these labels", description)
		}
	}

	const path = "docs/metrics.md"
	if *updateMetrics {
		if err := os.WriteFile(path, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if committed, err := os.ReadFile(path); err != nil || !bytes.Equal(committed, page.Bytes()) {
		t.Errorf("%s is not that of the code (%v); run: go generate .", path, err)
	}
}

// query is an expression of the board or of an alert.
type query struct{ of, text string }

// queries reads the expressions of both files.
func queries(t *testing.T) (all []query) {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	body, err := os.ReadFile("docs/ops/grafana.json")
	if err == nil {
		err = json.Unmarshal(body, &board)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			all = append(all, query{"panel " + panel.Title, target.Expr})
		}
	}

	rules, err := os.ReadFile("docs/ops/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	name := ""
	for line := range strings.Lines(string(rules)) {
		line = strings.TrimSpace(line)
		if rest, is := strings.CutPrefix(line, "- alert: "); is {
			name = rest
		}
		if rest, is := strings.CutPrefix(line, "expr: "); is {
			all = append(all, query{"alert " + name, rest})
		}
	}
	return all
}

var (
	selectorForm = regexp.MustCompile(`\b((?:inbox|go|process)_[a-z0-9_]+|up)(\{[^}]*\})?`)
	matcherForm  = regexp.MustCompile(`([a-z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	groupingForm = regexp.MustCompile(`\b(?:by|without)\s*\(([^)]*)\)`)
	sampleForm   = regexp.MustCompile(`(?m)^([a-z0-9_]+)(?:\{(.*)\})? (\S+)$`)
	labelForm    = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)
)

// series is one line of /metrics.
type series struct {
	name   string
	labels map[string]string
	value  float64
}

func scraped(page string) (all []series) {
	for _, match := range sampleForm.FindAllStringSubmatch(page, -1) {
		one := series{name: match[1], labels: map[string]string{}}
		for _, label := range labelForm.FindAllStringSubmatch(match[2], -1) {
			one.labels[label[1]] = label[2]
		}
		one.value, _ = strconv.ParseFloat(match[3], 64)
		all = append(all, one)
	}
	return all
}

// unmet returns why an expression would have no data in these series; empty = it has some.
func unmet(all []series, expression string) string {
	selectors := selectorForm.FindAllStringSubmatch(expression, -1)
	if len(selectors) == 0 {
		return "it has no metric"
	}
	for _, selector := range selectors {
		if selector[1] == "up" { // Prometheus makes it
			continue
		}
		matching := slices.DeleteFunc(slices.Clone(all), func(one series) bool {
			return one.name != selector[1] || !matches(one, selector[2])
		})
		if len(matching) == 0 {
			return "no series is " + selector[0]
		}
		for _, grouping := range groupingForm.FindAllStringSubmatch(expression, -1) {
			for label := range strings.SplitSeq(grouping[1], ",") {
				label = strings.TrimSpace(label)
				if _, has := matching[0].labels[label]; !has && label != "instance" && label != "job" {
					return selector[1] + " has no label " + label
				}
			}
		}
	}
	return ""
}

func matches(one series, matchers string) bool {
	for _, matcher := range matcherForm.FindAllStringSubmatch(matchers, -1) {
		value, has := one.labels[matcher[1]]
		whole := regexp.MustCompile("^(?:" + matcher[3] + ")$")
		switch {
		case !has && matcher[1] != "instance" && matcher[1] != "job",
			matcher[2] == "=" && value != matcher[3], matcher[2] == "!=" && value == matcher[3],
			matcher[2] == "=~" && !whole.MatchString(value), matcher[2] == "!~" && whole.MatchString(value):
			return false
		}
	}
	return true
}

// TestBoardAndAlertsHaveData: each selector of each expression names series that a server with some traffic has, and each label by
// which it groups is one of theirs. The functions around them are not run.
func TestBoardAndAlertsHaveData(t *testing.T) {
	t.Parallel()
	server := inboxtest.Start(t)
	status, _, body := server.Read(http.MethodPost, "/a2a/echo", server.Token("ann"),
		`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	loadCertificate(t)

	asked := queries(t)
	if len(asked) < 20 {
		t.Fatalf("%d expressions were found", len(asked))
	}
	var missing []string
	defer func() {
		for _, one := range missing {
			t.Error(one)
		}
	}()
	await.Until(t, "data for each expression", func() bool {
		_, _, page := server.Read(http.MethodGet, "/metrics", "", "")
		all := scraped(page)
		missing = nil
		for _, one := range asked {
			if why := unmet(all, one.text); why != "" {
				missing = append(missing, one.of+": "+why+" in "+one.text)
			}
		}
		for _, one := range all {
			if one.name == "inbox_jobs_oldest_ready_seconds" && one.value > 3600 {
				t.Fatalf("a job waits for %g s: %v", one.value, one.labels)
			}
		}
		return len(missing) == 0
	})

	status, _, body = server.Read(http.MethodGet, "/readyz", "", "")
	for _, check := range []string{"database", "queue", "disk", "listeners", "back ends", "certificate"} {
		if status != http.StatusOK || !strings.Contains(body, `{"name":"`+check+`","ok":true`) {
			t.Errorf("/readyz: %d, no %s in %s", status, check, body)
		}
	}
}

// TestWrongExpressionsAreFound: the check of the board finds what it is for.
func TestWrongExpressionsAreFound(t *testing.T) {
	t.Parallel()
	all := scraped("inbox_a_total{channel=\"a2a\",state=\"failed\"} 3\ninbox_b 1\n")
	for expression, found := range map[string]bool{
		`rate(inbox_a_total[5m])`: false, `sum by (channel) (rate(inbox_a_total{state="failed"}[5m])) > 0`: false, `inbox_b == 1`: false,
		`inbox_a_total{state=~"dead|failed"}`: false, `rate(inbox_c_total[5m])`: true, `inbox_a_total{state="dead"}`: true, `sum by (agent) (inbox_a_total)`: true,
		`inbox_a_total{kind="x"}`: true, `inbox_a_total{state!="failed"}`: true, `1`: true, `inbox_b / inbox_d`: true,
	} {
		if why := unmet(all, expression); (why != "") != found {
			t.Errorf("%s: %q", expression, why)
		}
	}
}

// loadCertificate reads a certificate as a listener does, so that its end is among the metrics.
func loadCertificate(t *testing.T) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"agents.example"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, keyFile := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for file, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := httpserver.TLSConfig(certificate, keyFile, slog.Default()); err != nil {
		t.Fatal(err)
	}
}
