package config

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, document string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "inbox.toml")
	if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, document string, environ ...string) *Config {
	t.Helper()
	settings, err := Load(write(t, document), environ)
	if err != nil {
		t.Fatal(err)
	}
	return settings
}

const minimal = "public_url = \"https://example.com\"\n"

func TestDevelopmentMode(t *testing.T) {
	got, err := Load("", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Development, want.Federation.AllowPrivate = true, true
	want.PublicURL, want.Domain, want.SMTP.Hostname = "http://localhost:8080", "localhost:8080", "localhost"
	want.Federation.HostConcurrency, want.Federation.HostRate = want.Queue.DeliveryConcurrency, 0
	want.Mail.DomainRate, want.Drain = 0, 0
	want.HTTP.Inside = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	echo := defaultAgent(true)
	echo.Retention.inherit(Default().Retention)
	want.Agents = []Agent{echo}
	if diff := cmp.Diff(want, got, comparePrefixes); diff != "" {
		t.Error(diff)
	}
	if echo.Unverified != "answer" || echo.Kind != "echo" {
		t.Errorf("agent %+v", echo)
	}
}

var comparePrefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func TestAFileIsNotDevelopment(t *testing.T) {
	got := load(t, minimal)
	if got.Development || got.Federation.AllowPrivate || got.Domain != "example.com" || got.SMTP.Hostname != "example.com" {
		t.Errorf("%+v", got)
	}
	if len(got.Agents) != 1 || got.Agents[0].Name != "echo" || got.Agents[0].Unverified != "hold" {
		t.Errorf("agents %+v", got.Agents)
	}
}

func TestAllKinds(t *testing.T) {
	got := load(t, `
domain = "Bücher.example"
public_url = "https://inbox.example.com:443/"
shutdown_grace = "1m"
[http]
trusted_proxies = ["10.1.2.3/8", "::1"]
max_body_bytes = 1048576
[smtp]
listen = "off"
max_message_bytes = "30 MB"
[mail]
retry = ["1s", "2s"]
mx_port = 2525
[[agents]]
name = "One"
kind = "echo"
answer_agents = true
[[agents]]
name = "two"
kind = "webhook"
timeout = "90s"
webhook = { url = "http://127.0.0.1:9000/hook", secret = "s3cret", previous_secret = "0lder" }
[agents.history]
window = 7
slide = 3
max_age = "720h"
`)
	if got.Domain != "xn--bcher-kva.example" || got.PublicURL != "https://inbox.example.com:443" || got.SMTP.Listen != "" {
		t.Errorf("%s %s %s", got.Domain, got.PublicURL, got.SMTP.Listen)
	}
	want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	if diff := cmp.Diff(want, got.HTTP.TrustedProxies, comparePrefixes); diff != "" {
		t.Error(diff)
	}
	if got.HTTP.MaxBodyBytes != 1<<20 || got.SMTP.MaxMessageBytes != 30e6 || got.Mail.MXPort != 2525 || got.ShutdownGrace != time.Minute {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff([]time.Duration{time.Second, 2 * time.Second}, got.Mail.Retry); diff != "" {
		t.Error(diff)
	}
	one, two := got.Agents[0], got.Agents[1]
	if one.DisplayName != "One" || !one.AnswerAgents || one.History.Window != 20 || one.Timeout != 2*time.Minute {
		t.Errorf("%+v", one)
	}
	if two.Webhook.Secret.Reveal() != "s3cret" || two.Webhook.PreviousSecret.Reveal() != "0lder" || two.History.Window != 7 || two.History.KeepHead != 2 || two.History.MaxAge != 720*time.Hour {
		t.Errorf("%+v", two)
	}
}

func TestEnvironment(t *testing.T) {
	secretFile := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secretFile, []byte("from a file\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := load(t, minimal+"[http]\nlisten = \"127.0.0.1:1\"\n[[agents]]\nname = \"a\"\nkind = \"echo\"\n",
		"INBOX_HTTP_LISTEN=127.0.0.1:9090", "INBOX_HTTP_TRUSTED_PROXIES=10.0.0.0/8, 192.0.2.1", "INBOX_DATA_DIR=/data",
		"INBOX_MAIL_RETRY=1s,2m", "INBOX_QUEUE_TURN_CONCURRENCY=5", "INBOX_SMTP_MAX_MESSAGE_BYTES=10MiB", "INBOX_LOG_LEVEL=",
		"INBOX_AGENTS_1_KIND=webhook", "INBOX_AGENTS_1_NAME=b", "INBOX_AGENTS_1_WEBHOOK_URL=https://hook.example/",
		"INBOX_AGENTS_1_WEBHOOK_SECRET_FILE="+secretFile, "INBOX_AGENTS_0_ANSWER_AGENTS=true", "INBOX_AGENTS_1_HISTORY_WINDOW=30",
		"INBOX_PORT_8080_TCP=tcp://10.0.0.1:8080", "INBOX_SERVICE_HOST=10.0.0.1", "INBOX_SERVICE_PORT_HTTP=80",
		"INBOX_TEST_DATABASE_URL=x", "INBOX_CONFIG=inbox.toml", "INBOX_SERVER=http://a.example", "INBOX_TOKEN=x", "INBOX_SECRET=x", "INBOX_URL=x", "HOME=/", "broken")
	if got.HTTP.Listen != "127.0.0.1:9090" || got.DataDir != "/data" || got.Queue.TurnConcurrency != 5 || got.Log.Level != "info" {
		t.Errorf("%+v", got)
	}
	if len(got.HTTP.TrustedProxies) != 2 || len(got.Mail.Retry) != 2 || got.SMTP.MaxMessageBytes != 10<<20 {
		t.Errorf("%+v", got)
	}
	if len(got.Agents) != 2 || !got.Agents[0].AnswerAgents || got.Agents[1].Webhook.Secret.Reveal() != "from a file" || got.Agents[1].History.Window != 30 {
		t.Errorf("%+v", got.Agents)
	}
}

func TestEveryKeyHasAVariable(t *testing.T) {
	name := regexp.MustCompile(`^INBOX_[A-Z0-9_]+$`)
	for _, entry := range Entries() {
		settings := Default()
		target := find(reflectOf(settings), "", strings.TrimPrefix(entry.Variable, prefix))
		want := strings.ReplaceAll(entry.Key, "[]", "[0]")
		if !name.MatchString(entry.Variable) || !target.field.IsValid() || target.key != want {
			t.Errorf("%s: %q finds %q, want %q", entry.Variable, entry.Key, target.key, want)
		}
	}
}

func TestEnvironmentAlone(t *testing.T) {
	got, err := Load("", []string{
		"INBOX_FEDERATION_ALLOW_PRIVATE=false", "INBOX_PUBLIC_URL=https://example.com", "INBOX_HTTP_LISTEN=0.0.0.0:80", "INBOX_SMTP_LISTEN=off",
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Development || got.Federation.AllowPrivate || got.Agents[0].Unverified != "hold" {
		t.Errorf("%+v", got)
	}
}

func TestDevelopmentOnAnotherPort(t *testing.T) {
	got, err := Load("", []string{"INBOX_HTTP_LISTEN=127.0.0.1:9999"})
	if err != nil {
		t.Fatal(err)
	}
	if got.PublicURL != "http://localhost:9999" || got.Domain != "localhost:9999" {
		t.Errorf("%s %s", got.PublicURL, got.Domain)
	}
}

func TestSecretsDoNotShow(t *testing.T) {
	got := load(t, minimal+`database_url = "postgres://inbox:hunter2@db/inbox?password=hunter2&sslkey=hunter2"
[mail]
mode = "smarthost"
smarthost = "smtp://user:hunter2@relay.example:587"
[[agents]]
name = "w"
kind = "webhook"
webhook = { url = "http://localhost/", secret = "hunter2" }
`)
	for _, text := range []string{
		fmt.Sprint(got), fmt.Sprintf("%+v %#v %s", *got, *got, got.Mail.Smarthost),
		fmt.Sprint(got.DatabaseURL.LogValue(), got.Agents[0].Webhook.Secret.LogValue(), got.Mail.Smarthost.LogValue()),
	} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("a secret shows in %s", text)
		}
	}
	if got.Mail.Smarthost.Reveal() != "smtp://user:hunter2@relay.example:587" {
		t.Errorf("revealed %q", got.Mail.Smarthost.Reveal())
	}
}

func TestMailScheduleEndsAfterFiveDays(t *testing.T) {
	total := time.Duration(0)
	for _, wait := range Default().Mail.Retry {
		total += wait
	}
	if total <= 5*24*time.Hour-4*time.Hour || total > 5*24*time.Hour {
		t.Errorf("the schedule lasts %s", total)
	}
}

func TestExampleInTheDocumentationLoads(t *testing.T) {
	head, err := os.ReadFile("testdata/configuration.head.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(head), "```toml\n")
	example, _, _ := strings.Cut(rest, "```")
	if got := load(t, example); got.Agents[0].Name != "helper" {
		t.Errorf("%+v", got.Agents)
	}
}

// TestEdgeDefaults: what follows from where the server is reached. Behind a proxy that no one declared all clients are on
// loopback, so that loopback is not inside there.
func TestEdgeDefaults(t *testing.T) {
	for name, c := range map[string]struct {
		settings []string
		inside   int
		drain    time.Duration
		unknown  bool
	}{
		"local":            {[]string{"INBOX_PUBLIC_URL=http://localhost:8080", "INBOX_FEDERATION_ALLOW_PRIVATE=true"}, 2, 0, false},
		"behind a proxy":   {[]string{"INBOX_PUBLIC_URL=https://example.com", "INBOX_FEDERATION_ALLOW_PRIVATE=false"}, 0, 5 * time.Second, true},
		"a declared proxy": {[]string{"INBOX_PUBLIC_URL=https://example.com", "INBOX_FEDERATION_ALLOW_PRIVATE=false", "INBOX_HTTP_TRUSTED_PROXIES=127.0.0.1"}, 0, 5 * time.Second, false},
		"private listener": {[]string{"INBOX_PUBLIC_URL=https://example.com", "INBOX_FEDERATION_ALLOW_PRIVATE=false", "INBOX_HTTP_LISTEN=10.0.0.2:8080"}, 0, 5 * time.Second, true},
		"public listener":  {[]string{"INBOX_PUBLIC_URL=https://example.com", "INBOX_FEDERATION_ALLOW_PRIVATE=false", "INBOX_HTTP_LISTEN=0.0.0.0:8080"}, 0, 5 * time.Second, false},
		"written":          {[]string{"INBOX_PUBLIC_URL=https://example.com", "INBOX_FEDERATION_ALLOW_PRIVATE=false", "INBOX_HTTP_INSIDE=127.0.0.1,10.0.0.0/8", "INBOX_DRAIN=0s"}, 2, 0, true},
	} {
		got, err := Load("", c.settings)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(got.HTTP.Inside) != c.inside || got.Drain != c.drain || got.BehindUnknownProxy() != c.unknown {
			t.Errorf("%s: inside %v, drain %v, unknown proxy %v", name, got.HTTP.Inside, got.Drain, got.BehindUnknownProxy())
		}
	}
}

// TestSeveralHostsOfADatabase: PostgreSQL's own form for a failover is an address, and shows no password.
func TestSeveralHostsOfADatabase(t *testing.T) {
	got := load(t, minimal+`database_url = "postgres://inbox:hunter2@db1:5432,db2:5433/inbox?sslmode=require"`)
	if shown := got.DatabaseURL.String(); shown != "postgres://inbox:xxxxx@db1:5432,db2:5433/inbox?sslmode=require" {
		t.Errorf("shown as %s", shown)
	}
}

// TestLastOfTwoVariablesWins: whoever starts a server appends to the environment of its own.
func TestLastOfTwoVariablesWins(t *testing.T) {
	environ := []string{"INBOX_DRAIN=1s"}
	for i := range 40 {
		environ = append(environ, fmt.Sprintf("OTHER_%d=x", i), fmt.Sprintf("INBOX_DRAIN=%ds", i+2), "INBOX_SHUTDOWN_GRACE=5s")
	}
	config, err := Load("", environ)
	if err != nil || config.Drain != 41*time.Second {
		t.Errorf("drain is %v, %v", config.Drain, err)
	}
}
