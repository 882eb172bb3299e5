package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const severalDomains = `public_url = "https://a.example"
data_dir = "data"
[smtp]
listen = "127.0.0.1:2525"
[a2a]
grpc_listen = "127.0.0.1:5000"
[[peers]]
domain = "peer.example"
token = "s3cret"
[[domains]]
name = "b.example"
[[domains]]
name = "c.example"
public_url = "https://inbox.c.example"
mail_host = "mx.c.example"
contact = "me@c.example"
dkim_key_file = "c.pem"
[[agents]]
name = "helper"
kind = "echo"
domain = "B.example"
[[agents]]
name = "helper"
kind = "echo"
[[agents]]
name = "other"
kind = "echo"
domain = "c.example"
`

func TestDomains(t *testing.T) {
	top := loaded(t, severalDomains)
	if len(top.Hosted) != 2 || len(top.Agents) != 1 || len(top.Everybody()) != 3 {
		t.Fatalf("%d further domains, %d agents of %d at the top", len(top.Hosted), len(top.Agents), len(top.Everybody()))
	}

	b, known := top.WithDomain("B.example")
	if !known {
		t.Fatal("b.example is no domain")
	}
	type facts struct {
		Domain, Public, Hostname, DataDir, Key, GRPC, HostedBy, Listen, Token, DKIM, Contact string
		Agents                                                                               int
		Shares                                                                               bool
	}
	of := func(c *Config) facts {
		return facts{
			c.Domain, c.PublicURL, c.SMTP.Hostname, c.DataDir, c.SecretKeyFile, c.A2A.GRPCListen, c.HostedBy, c.SMTP.Listen,
			c.Peers[0].Token.Reveal(), c.Mail.DKIMKeyFile, c.Operator.Contact, len(c.Agents), c.SharesMailHost,
		}
	}
	if diff := cmp.Diff(facts{
		"b.example", "https://b.example", "a.example", filepath.Join("data", "domains", "b.example"), filepath.Join("data", "secret.key"), "", "a.example",
		"127.0.0.1:2525", "s3cret", "", "", 1, true,
	}, of(b)); diff != "" {
		t.Errorf("b.example: %s", diff)
	}
	c, _ := top.WithDomain("c.example")
	if diff := cmp.Diff(facts{
		"c.example", "https://inbox.c.example", "mx.c.example", filepath.Join("data", "domains", "c.example"), filepath.Join("data", "secret.key"), "", "a.example",
		"127.0.0.1:2525", "s3cret", "c.pem", "me@c.example", 1, false,
	}, of(c)); diff != "" {
		t.Errorf("c.example: %s", diff)
	}
	if got, want := c.WebHosts(), []string{"inbox.c.example", "c.example", "mta-sts.c.example"}; !cmp.Equal(got, want) {
		t.Errorf("hosts of c.example: %v", got)
	}
	if got, want := b.CertificateNames(), []string{"b.example", "mta-sts.b.example"}; !cmp.Equal(got, want) {
		t.Errorf("certificates of b.example: %v; the mail host is that of a.example", got)
	}
}

func TestDomainsHaveStoresOfTheirOwn(t *testing.T) {
	const database = "postgres://u:p@127.0.0.1:5432,127.0.0.2:5432/inbox?sslmode=disable"
	for top, want := range map[SecretURL]SecretURL{
		"sqlite":         "sqlite",
		database:         SecretURL(database + "&search_path=" + SchemaOf("b.example")),
		"postgres://h/d": SecretURL("postgres://h/d?search_path=" + SchemaOf("b.example")),
		"postgres://h/d?search_path=mine&password=a%20b;c+d&options=-c%20x%3D1": SecretURL("postgres://h/d?password=a%20b;c+d&options=-c%20x%3D1&search_path=" +
			SchemaOf("b.example")),
	} {
		if got := databaseOf(top, "b.example"); got != want {
			t.Errorf("%s became %s, want %s", top.Reveal(), got.Reveal(), want.Reveal())
		}
	}
	for top, want := range map[SecretURL]SecretURL{
		"file":                             "file",
		"file:///srv/files":                "file:///srv/files/domains/b.example_8080",
		"s3://bucket?endpoint=http://x:1":  "s3://bucket/domains/b.example_8080?endpoint=http://x:1",
		"s3://bucket/prefix/?region=north": "s3://bucket/prefix/domains/b.example_8080?region=north",
	} {
		if got := filesOf(top, "b.example:8080"); got != want {
			t.Errorf("%s became %s, want %s", top.Reveal(), got.Reveal(), want.Reveal())
		}
	}

	seen := map[string]string{}
	for _, domain := range []string{"a-b.example", "a.b.example", "a_b.example", "x.example", strings.Repeat("long.", 40) + "example", strings.Repeat("long.", 39) + "example"} {
		schema := SchemaOf(domain)
		if len(schema) > 63 || seen[schema] != "" || strings.Trim(schema, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			t.Errorf("the schema of %s is %s, that of %q too", domain, schema, seen[schema])
		}
		seen[schema] = domain
	}
}

func TestProblemsOfDomains(t *testing.T) {
	for name, test := range map[string]struct{ from, to, want string }{
		"no agents":         {`domain = "c.example"`, `domain = "b.example"`, `inbox.toml:13: domains[1].name: no agent lives at c.example; write domain = "c.example" in a table [[agents]]`},
		"unknown domain":    {`domain = "c.example"`, `domain = "d.example"`, `agents[2].domain: "d.example" is no domain of this server; write the name of one of [[domains]], or add a table for it`},
		"twice":             {`name = "c.example"`, `name = "b.example"`, `domains[1].name: "b.example" is not a domain, or is there already; write another domain, one for each table`},
		"that at the top":   {`name = "c.example"`, `name = "a.example"`, `domains[1].name: "a.example" is not a domain, or is there already; write another domain, one for each table`},
		"same host":         {`https://inbox.c.example`, `https://b.example`, `inbox.toml:14: domains[1].public_url: b.example is a host of b.example too; write another host: the server tells its domains apart by it`},
		"no web address":    {`https://inbox.c.example`, `inbox.c.example`, `inbox.toml:14: domains[1].public_url: "inbox.c.example" is not a web address; write one such as "https://example.com"`},
		"key of its agent":  {"domain = \"c.example\"\n", "domain = \"c.example\"\naccess = \"x\"\n", `inbox.toml:29: agents[2].access: "x" is unknown; write public, verified, rules`},
		"mail host":         {`mx.c.example`, `mx c`, `inbox.toml:15: domains[1].mail_host: "mx c" is not a host name; write one such as "mail.example.com"`},
		"common key, once":  {`listen = "127.0.0.1:2525"`, `listen = "x"`, `inbox.toml:4: smtp.listen: "x" is not host:port; write one such as "127.0.0.1:8080"`},
		"unknown key":       {`mail_host =`, `mailhost =`, `inbox.toml:15: domains[1].mailhost: unknown key; did you mean domains[1].mail_host?`},
		"certificate alone": {`mail_host = "mx.c.example"`, `cert_file = "c.pem"`, `domains[1].cert_file: is not used, because http.tls is off; write http.tls = "files" or remove the files`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(severalDomains, test.from, test.to, 1)
			_, err := LoadText("inbox.toml", text, nil)
			if err == nil || !strings.Contains("\n"+err.Error()+"\n", test.want+"\n") || strings.Count(err.Error(), test.want) != 1 {
				t.Errorf("got:\n%v\nwant:\n%s", err, test.want)
			}
		})
	}

	_, err := LoadText("inbox.toml", strings.Replace(minimal, "\n", "\n[[agents]]\nname = \"a\"\nkind = \"echo\"\ndomain = \"b.example\"\n", 1), nil)
	if err == nil || !strings.Contains(err.Error(), `agents[0].domain: "b.example" is no domain of this server`) {
		t.Errorf("without further domains: %v", err)
	}
}

func TestReloadOfDomains(t *testing.T) {
	for name, change := range map[string]struct {
		from, to      string
		changed, kept []string
	}{
		"agent of a further domain": {
			"domain = \"B.example\"\n", "domain = \"b.example\"\naccess = \"verified\"\n",
			[]string{"agents[helper@b.example].access", "agents[helper@b.example].domain"}, nil,
		},
		"an agent more":       {"[[agents]]\n", "[[agents]]\nname = \"new\"\nkind = \"echo\"\ndomain = \"c.example\"\n[[agents]]\n", []string{"agents[new@c.example]"}, nil},
		"limits of everybody": {"[smtp]", "[limits]\nbot_turns = 3\n[smtp]", []string{"limits.bot_turns"}, nil},
		"of a domain itself":  {"mx.c.example", "mail.c.example", nil, []string{"domains[c.example].mail_host"}},
	} {
		t.Run(name, func(t *testing.T) {
			running := loaded(t, severalDomains)
			if err := os.WriteFile(running.File, []byte(strings.Replace(severalDomains, change.from, change.to, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			mixed, got, err := running.Reload()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Difference{Changed: change.changed, UnchangedUntilRestart: change.kept}, got); diff != "" {
				t.Error(diff)
			}
			c, _ := mixed.WithDomain("c.example")
			if c.SMTP.Hostname != "mx.c.example" || name == "limits of everybody" && c.Limits.BotTurns != 3 {
				t.Errorf("c.example runs as %s with %d turns of bots", c.SMTP.Hostname, c.Limits.BotTurns)
			}
			if name == "an agent more" && len(c.Agents) != 2 {
				t.Errorf("c.example has %d agents", len(c.Agents))
			}
			if again, none, err := mixed.Reload(); err != nil || len(none.Changed) != 0 || len(again.Hosted) != 2 {
				t.Errorf("read once more: %+v, %v", none, err)
			}
		})
	}
}

func TestDomainsAreShown(t *testing.T) {
	document, err := loaded(t, severalDomains).Document(false)
	if err != nil {
		t.Fatal(err)
	}
	again, err := LoadText("inbox.toml", strings.ReplaceAll(string(document), "[redacted]", "s3cret"), nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, document)
	}
	if len(again.Hosted) != 2 || len(again.Everybody()) != 3 {
		t.Errorf("shown as:\n%s", document)
	}
}

func TestEditAgentsOfDomains(t *testing.T) {
	added, err := AddAgent("inbox.toml", severalDomains, nil, AgentTable{Name: "helper", Domain: "c.example", Kind: "echo"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := AddAgent("inbox.toml", added, nil, AgentTable{Name: "helper", Domain: "c.example", Kind: "echo"}); err == nil {
		t.Error("the same agent twice at one domain")
	}
	removed, err := RemoveAgent("inbox.toml", added, nil, "helper", "c.example")
	if err != nil || removed != severalDomains {
		t.Errorf("%v\n%s", err, cmp.Diff(severalDomains, removed))
	}
	if _, err := RemoveAgent("inbox.toml", severalDomains, nil, "other", ""); err == nil {
		t.Error("an agent of c.example was taken for one of the domain at the top")
	}
}
