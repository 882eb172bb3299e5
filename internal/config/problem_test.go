package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func reflectOf(settings *Config) reflect.Value { return reflect.ValueOf(settings).Elem() }

// TestProblems has one case for each rule; every message names place, key and remedy.
func TestProblems(t *testing.T) {
	tests := map[string]struct {
		document string
		environ  []string
		want     string
	}{
		"unknown key": {
			minimal + "[http]\nlistn = \"127.0.0.1:1\"\n", nil,
			`inbox.toml:3: http.listn: unknown key; did you mean http.listen?`,
		},
		"unknown key of an agent": {
			minimal + "[[agents]]\nname = \"a\"\nkind = \"echo\"\n\n[[agents]]\nname = \"b\"\nkind = \"echo\"\nsummry = \"\"\n", nil,
			`inbox.toml:9: agents[1].summry: unknown key; did you mean agents[1].summary?`,
		},
		"key of an earlier version": {
			minimal + "[[agents]]\nname = \"a\"\nkind = \"echo\"\nexpose_tools = true\n", nil,
			`inbox.toml:5: agents[0].expose_tools: is not a key any more; write show_tools = "full" in place of true, and remove the line in place of false`,
		},
		"unknown word for tools": {
			minimal + "[[agents]]\nname = \"a\"\nkind = \"echo\"\nshow_tools = \"name\"\n", nil,
			`inbox.toml:5: agents[0].show_tools: "name" is unknown; did you mean "names"?`,
		},
		"key in the wrong table": {
			minimal + "smarthost = \"smtp://x\"\n", nil,
			`inbox.toml:2: smarthost: unknown key; it belongs to [mail]`,
		},
		"unknown table": {
			minimal + "[htpp]\nlisten = \"x\"\n", nil,
			`inbox.toml:2: htpp: unknown key; did you mean http?`,
		},
		"nothing near": {
			minimal + "[dns]\ncompletely_different = 1\n", nil,
			`inbox.toml:3: dns.completely_different: unknown key; known in [dns] are resolver`,
		},
		"broken TOML": {
			minimal + "[http]\nlisten = = 1\n", nil,
			"inbox.toml:3: expected value but found '=' instead",
		},
		"key twice": {
			minimal + minimal, nil, "inbox.toml:2: Key 'public_url' has already been defined.",
		},
		"wrong type": {
			minimal + "[smtp]\nlisten = 25\n", nil,
			`inbox.toml:3: smtp.listen: wrong kind of value; write a text in quotes`,
		},
		"duration as a number": {
			minimal + "[queue]\nlease = 15\n", nil,
			`inbox.toml:3: queue.lease: wrong kind of value; write a time such as "15s", "10m", "24h" or "30d"`,
		},
		"negative duration": {
			minimal + "[federation]\nretry = [\n\"1s\",\n\"-1s\"]\n", nil,
			`inbox.toml:3: federation.retry: wrong kind of value; item 2: write a time such as "15s", "10m", "24h" or "30d"`,
		},
		"size": {
			minimal + "[http]\nmax_body_bytes = \"lots\"\n", nil,
			`inbox.toml:3: http.max_body_bytes: wrong kind of value; write a number of bytes, or a size such as "25MiB"`,
		},
		"bool as a text": {
			minimal + "[federation]\nallow_private = \"yes\"\n", nil,
			`inbox.toml:3: federation.allow_private: wrong kind of value; write true or false`,
		},
		"table as a value": {
			minimal + "http = 1\n", nil, `inbox.toml:2: http: is a table; write [http] and its keys below`,
		},
		"list of tables as a table": {
			minimal + "[agents]\nname = \"a\"\n", nil, `inbox.toml:2: agents: is a list of tables; write [[agents]] before each`,
		},
		"unknown variable": {
			minimal, []string{"INBOX_HTTP_LISTN=x"},
			`INBOX_HTTP_LISTN: unknown setting; did you mean INBOX_HTTP_LISTEN?`,
		},
		"wrong variable": {
			minimal, []string{"INBOX_QUEUE_LEASE=soon"},
			`INBOX_QUEUE_LEASE: queue.lease: wrong kind of value; write a time such as 15s, 10m, 24h or 30d`,
		},
		"agents with a gap": {
			minimal, []string{"INBOX_AGENTS_1_NAME=x"},
			`INBOX_AGENTS_1_NAME: tables are numbered from 0 without gaps: number 0 is missing`,
		},
		"variable out of range": {
			minimal, []string{"INBOX_QUEUE_LEASE=1ms"}, `INBOX_QUEUE_LEASE: queue.lease: "1ms" is out of range; write "1s" to "10m"`,
		},
		"no address": {
			"data_dir = \"x\"\n", nil,
			`public_url: "http://localhost:8080" cannot be reached by other servers, which want https; write "https://your.domain", or federation.allow_private = true for a closed network`,
		},
		"path in public_url": {
			"public_url = \"https://example.com/inbox\"\n", nil,
			`inbox.toml:1: public_url: has the path /inbox, and other servers ask for /.well-known/webfinger at the root of a host, where this server has to answer them; give it a host of its own, such as "https://agents.example.com", and let the proxy pass that host on whole`,
		},
		"query in public_url": {
			"public_url = \"https://example.com?a=b\"\n", nil,
			`inbox.toml:1: public_url: has more than scheme, host and port; write "https://example.com"`,
		},
		"socket with TLS": {
			minimal + "[http]\nlisten = \"unix:/run/inbox/http.sock\"\ntls = \"files\"\ncert_file = \"a\"\nkey_file = \"b\"\n", nil,
			`inbox.toml:3: http.listen: is a socket of this machine, and TLS ends at the proxy in front of it; write http.tls = "off"`,
		},
		"socket with a relative path": {
			minimal + "[http]\nlisten = \"unix:http.sock\"\n", nil,
			`inbox.toml:3: http.listen: "unix:http.sock" is not a socket; write an absolute path of at most 100 bytes such as "unix:/run/inbox/http.sock"`,
		},
		"domain with a port": {
			minimal + "domain = \"example.com:8443\"\n", nil,
			`inbox.toml:2: domain: "example.com:8443" has a port; write the domain alone, or federation.allow_private = true for a closed network`,
		},
		"domain of one label": {
			minimal + "domain = \"intranet\"\n", nil,
			`inbox.toml:2: domain: "intranet" is not a public domain; write a full domain, or federation.allow_private = true for a closed network`,
		},
		"domain is an address": {
			minimal + "domain = \"192.0.2.1\"\n", nil,
			`inbox.toml:2: domain: "192.0.2.1" is not a public domain; write a full domain, or federation.allow_private = true for a closed network`,
		},
		"database": {
			minimal + "database_url = \"mysql://x\"\n", nil,
			`inbox.toml:2: database_url: is neither sqlite nor a PostgreSQL address; write "sqlite" or "postgres://user:password@host/database"`,
		},
		"clash": {
			minimal + "[smtp]\nlisten = \"127.0.0.1:8080\"\n", nil,
			`inbox.toml:3: smtp.listen: 127.0.0.1:8080 is the address of http.listen, too; write another port`,
		},
		"listener": {
			minimal + "[http]\nlisten = \"8080\"\n", nil, `inbox.toml:3: http.listen: "8080" is not host:port; write one such as "127.0.0.1:8080"`,
		},
		"tls without files": {
			minimal + "[http]\ntls = \"files\"\n", nil, `inbox.toml:3: http.tls: files need both http.cert_file and http.key_file; write both paths`,
		},
		"files without tls": {
			minimal + "[http]\ncert_file = \"x\"\n", nil,
			`inbox.toml:3: http.cert_file: is not used, because http.tls is off; write http.tls = "files" or remove the files`,
		},
		"enumeration": {
			minimal + "[mail]\nmode = \"smarthos\"\n", nil, `inbox.toml:3: mail.mode: "smarthos" is unknown; did you mean "smarthost"?`,
		},
		"enumeration, nothing near": {
			minimal + "[log]\nformat = \"protobuf\"\n", nil, `inbox.toml:3: log.format: "protobuf" is unknown; write text, json`,
		},
		"smarthost is missing": {
			minimal + "[mail]\nmode = \"smarthost\"\n", nil,
			`inbox.toml:2: mail.smarthost: is not the address of a mail relay; write "smtp://user:password@host:587" or "smtps://user:password@host:465"`,
		},
		"receiver of traces without a scheme": {
			minimal + "[telemetry]\notlp_endpoint = \"traces.example\"\n", nil, `inbox.toml:3: telemetry.otlp_endpoint: is not the address of an OTLP/HTTP receiver; write one such as "http://localhost:4318"`,
		},
		"empty schedule": {
			minimal + "[mail]\nretry = []\n", nil, `inbox.toml:3: mail.retry: has 0 waiting times; write 1 to 100`,
		},
		"agent without a name": {
			minimal + "[[agents]]\nkind = \"echo\"\n", nil,
			`inbox.toml:2: agents[0].name: "" cannot be the part of an address before the @; write 1 to 64 letters, digits, dots, hyphens or underscores, no dot at either end`,
		},
		"agent twice": {
			minimal + "[[agents]]\nname = \"Echo\"\nkind = \"echo\"\n[[agents]]\nname = \"echo\"\nkind = \"echo\"\n", nil,
			`inbox.toml:6: agents[1].name: "echo" is the name of another agent (agents[0]); write another name; case does not count`,
		},
		"agent kind": {
			minimal + "[[agents]]\nname = \"a\"\nkind = \"web-hook\"\n", nil, `inbox.toml:4: agents[0].kind: "web-hook" is unknown; did you mean "webhook"?`,
		},
		"webhook without url and secret": {
			minimal + "[[agents]]\nname = \"a\"\nkind = \"webhook\"\n", nil,
			"inbox.toml:2: agents[0].webhook.url: \"\" is not a web address; write one such as \"http://127.0.0.1:9000/\"\n" +
				"inbox.toml:2: agents[0].webhook.secret: is missing, so the service could not tell our requests from forged ones; write a long random text, or its file as secret_file",
		},
		"webhook with one secret twice": {
			minimal + "[[agents]]\nname = \"a\"\nkind = \"webhook\"\nwebhook = { url = \"http://x/\", secret = \"s\", previous_secret = \"s\" }\n", nil,
			"inbox.toml:5: agents[0].webhook.previous_secret: is the same as secret; write the key of before, or remove it",
		},
		"webhook table of an echo": {
			minimal + "[[agents]]\nname = \"a\"\nkind = \"echo\"\n[agents.webhook]\nurl = \"http://x\"\n", nil,
			`inbox.toml:5: agents[0].webhook: is not used, because the kind is echo; write kind = "webhook" or remove it`,
		},
		"history": {
			minimal + "[[agents]]\nname = \"a\"\nkind = \"echo\"\nhistory = { window = 5, slide = 6 }\n", nil,
			`inbox.toml:5: agents[0].history.slide: 6 is out of range; write 1 to 5`,
		},
		"several at once": {
			"public_url = \"https://example.com\"\nlog = { levl = \"x\", format = \"xml\" }\n[queue]\nlease = 1\n", nil,
			"inbox.toml:2: log.levl: unknown key; did you mean log.level?\n" +
				"inbox.toml:4: queue.lease: wrong kind of value; write a time such as \"15s\", \"10m\", \"24h\" or \"30d\"\n" +
				"inbox.toml:2: log.format: \"xml\" is unknown; write text, json",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Load(write(t, test.document), test.environ)
			if err == nil {
				t.Fatal("it was taken")
			}
			if diff := cmp.Diff(test.want, err.Error()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDevelopmentStaysLocal(t *testing.T) {
	for _, variable := range []string{
		"INBOX_HTTP_LISTEN=0.0.0.0:8080", "INBOX_HTTP_LISTEN=:8080", "INBOX_SMTP_LISTEN=192.0.2.1:25",
		"INBOX_PUBLIC_URL=https://example.com", "INBOX_DOMAIN=example.com",
	} {
		_, err := Load("", []string{variable})
		name, _, _ := strings.Cut(variable, "=")
		if err == nil || !strings.HasPrefix(err.Error(), name+": ") || !strings.Contains(err.Error(), "INBOX_FEDERATION_ALLOW_PRIVATE=false") {
			t.Errorf("%s: %v", variable, err)
		}
		if _, err := Load("", []string{variable, "INBOX_FEDERATION_ALLOW_PRIVATE=true"}); err != nil {
			t.Errorf("%s with private addresses allowed in writing: %v", variable, err)
		}
	}
}

func TestMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nowhere.toml")
	if _, err := Load(path, nil); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

func TestSecretFileProblems(t *testing.T) {
	document := minimal + "[[agents]]\nname = \"a\"\nkind = \"webhook\"\nwebhook = { url = \"http://x/\", secret_file = \"/nowhere/secret\" }\n"
	_, err := Load(write(t, document), nil)
	if want := "inbox.toml:5: agents[0].webhook.secret_file: stat /nowhere/secret: no such file or directory; create the file, readable for the server, or correct the path"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestLinesOfKeys(t *testing.T) {
	document := `# comment
a = 1
"b.c" = 2 # = x
[t] # [u]
x.y = """
[not.a.table]
z = 1
"""
list = [
  "[[no]]", # ]
  "b",
]
after = '#'
[[many]]
k = { l = 1 }
[many.inner]
k = '''
'''
[[many]]
k = 1
[[many.deep]]
[[many.deep]]
k = 1
`
	want := map[string]int{
		"a": 2, "b.c": 3, "t": 4, "t.x": 5, "t.x.y": 5, "t.list": 9, "t.after": 13,
		"many": 14, "many[0]": 14, "many[0].k": 15, "many[0].inner": 16, "many[0].inner.k": 17,
		"many[1]": 19, "many[1].k": 20, "many[1].deep": 21, "many[1].deep[0]": 21, "many[1].deep[1]": 22, "many[1].deep[1].k": 23,
	}
	if diff := cmp.Diff(want, keyLines(document)); diff != "" {
		t.Error(diff)
	}
}

func TestSizeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := Size(rapid.Int64Range(0, 1<<62).Draw(t, "size"))
		if got, err := ParseSize(size.String()); err != nil || got != size {
			t.Fatalf("%d → %s → %d, %v", size, size, got, err)
		}
	})
	for text, want := range map[string]Size{"25MiB": 25 << 20, "1 kb": 1000, "0": 0, "7B": 7, "64KiB": 64 << 10} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q = %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "1.5MiB", "MiB", "9999999TiB", "1XB"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q was taken as %d", text, got)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(minimal + "[[agents]]\nname = \"a\"\n[agents.webhook]\nurl = \"x\"\n")
	f.Add("a = [[1], [2]]\n\"\\\"\" = '''\n")
	f.Add("[a.'b.c']\nd = {e = {f = [1, {g = 2}]}}\n")
	directory := f.TempDir()
	f.Fuzz(func(t *testing.T, document string) {
		path := filepath.Join(directory, "inbox.toml")
		if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
		settings, err := Load(path, nil)
		if (settings == nil) == (err == nil) {
			t.Errorf("settings %v with error %v", settings, err)
		}
	})
}
