package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/internal/await"
)

const (
	splitDomain = "people.example" // has a web site and mail
	splitHost   = "agents.people.example"
	splitSite   = "45.80.0.30" // where the web site is
)

// TestSplitDomain goes the way of an operator whose domain has a web site and mail elsewhere. Its records stay as they are: the web server redirects what
// others ask the domain for.
func TestSplitDomain(t *testing.T) {
	for _, server := range []string{"nginx", "Caddy", "Apache"} {
		t.Run(server, func(t *testing.T) { onInternet(t, "", func(w *internet) { w.splitDomain(server) }) })
	}
}

func (w *internet) splitDomain(server string) {
	w.openAuthority(30 * 24 * time.Hour) // so that none is due
	w.openSocial()
	apex := []string{splitDomain + ". 60 IN A " + splitSite, splitDomain + ". 60 IN MX 10 mx." + mailDomain + ".", splitDomain + `. 60 IN TXT "v=spf1 mx -all"`}
	for _, record := range apex {
		w.publish("%s", record)
	}
	site := w.openSite(server)
	site.serve("")

	m := w.newMachine("45.80.0.10")
	m.variables = append(m.variables, "INBOX_DNS_RESOLVER="+net.JoinHostPort(internetNames, "53"))
	var written struct {
		Config    string
		Records   []struct{ Name, Type, Value string }
		Redirects []struct{ Server, Text string }
		Warnings  []string
	}
	const initialize = "inbox init --yes --dir /etc/inbox --domain " + splitDomain + " --hostname " + splitHost + " --email - --agent helper --kind echo"
	m.fails(initialize+" --mail mx", "mail of "+splitDomain+" arrives at mx."+mailDomain)
	if err := json.Unmarshal([]byte(m.sh(initialize+" --json")), &written); err != nil {
		w.t.Fatal(err)
	}
	for _, record := range written.Records {
		if name := strings.TrimSuffix(record.Name, "."); name != splitHost {
			w.t.Errorf("init wants a record at %s: %s %s", name, record.Type, record.Value)
		}
		w.publish("%s", record.Name+". 60 IN "+record.Type+" "+record.Value)
	}
	if !strings.Contains(strings.Join(written.Warnings, "\n"), "stays at mx."+mailDomain) {
		w.t.Errorf("init does not say what becomes of mail: %q", written.Warnings)
	}

	running := m.background("exec inbox serve --config " + written.Config)
	m.shows(splitHost)
	await.Until(w.t, "the node is ready, with its certificate", func() bool {
		return strings.Contains(m.sh("curl -s https://"+splitHost+"/readyz"), `"certificate":"ok"`)
	})
	m.fails("inbox dns check --config "+written.Config, "inbox dns prints how")

	snippet := ""
	for _, redirect := range written.Redirects {
		if redirect.Server == server {
			snippet = redirect.Text
		}
	}
	if printed := m.sh("inbox dns --config " + written.Config); !strings.Contains(strings.Join(strings.Fields(printed), " "), strings.Join(strings.Fields(snippet), " ")) || snippet == "" {
		w.t.Fatalf("inbox dns does not print the redirects for %s:\n%s", server, printed)
	}
	site.serve(snippet)

	said := m.sh("inbox doctor --config " + written.Config)
	for line := range strings.SplitSeq(said, "\n") {
		if strings.HasPrefix(line, "fail") || strings.HasPrefix(line, "warn") && !strings.Contains(line, "clock") && !strings.Contains(line, "proxies") {
			w.t.Errorf("the doctor says %s", line)
		}
	}
	if !strings.Contains(said, "ok    https://"+splitDomain+"/.well-known/webfinger: is redirected to https://"+splitHost) {
		w.t.Errorf("the doctor does not follow the redirect:\n%s", said)
	}

	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	conversation, err := w.social.Ask(ctx, "", "@helper@"+splitDomain, "hello from the fediverse")
	if err != nil || !strings.Contains(conversation.Answer, "hello from the fediverse") {
		w.t.Fatalf("the mention: %q, %v", conversation.Answer, err)
	}
	if page := site.read("/"); page != "our web site" {
		w.t.Errorf("the web site says %q", page)
	}
	if log, err := os.ReadFile(running.file); err != nil || strings.Contains(string(log), `name=`+splitDomain) {
		w.t.Errorf("a certificate was ordered for %s: %v\n%s", splitDomain, err, log)
	}
}

// site is the web server of a domain that was there before.
type site struct {
	w       *internet
	m       *machine
	server  string
	running *launched
}

func (w *internet) openSite(server string) *site {
	w.t.Helper()
	return &site{w: w, m: w.newMachine(splitSite), server: server}
}

// serve starts the web server, or starts it again with settings in its block.
func (s *site) serve(settings string) {
	s.w.t.Helper()
	if s.running != nil {
		s.running.stop(s.w.t)
	}
	chain, key := issue(s.w.t, s.w.trusted, splitDomain)
	directory := s.w.t.TempDir()
	page := filepath.Join(directory, "index.html")
	config := filepath.Join(directory, "config")
	indented := strings.ReplaceAll(settings, "\n", "\n    ")
	text, command := fmt.Sprintf("{\n\tadmin off\n\tauto_https off\n}\nhttps://%s:443 {\n\ttls %s %s\n\t%s\n\troot * %s\n\tfile_server\n}\n", splitDomain, chain, key, indented, directory),
		"exec caddy run --adapter caddyfile --config "+config
	if s.server == "nginx" {
		temporary := ""
		for _, one := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
			temporary += fmt.Sprintf("%s_temp_path %s/%[1]s;\n", one, directory)
		}
		text = fmt.Sprintf("daemon off;\nmaster_process off;\npid %s/pid;\nevents {}\nhttp {\n%saccess_log off;\nserver {\n    listen 443 ssl;\n    server_name %s;\n    ssl_certificate %s;\n    ssl_certificate_key %s;\n    root %[1]s;\n    %[6]s\n}\n}\n",
			directory, temporary, splitDomain, chain, key, indented)
		command = "exec nginx -p " + directory + " -e stderr -c " + config
	}
	if s.server == "Apache" {
		modules := ""
		for _, one := range []string{"mpm_event", "authz_core", "dir", "alias", "rewrite", "ssl"} {
			modules += fmt.Sprintf("LoadModule %s_module /usr/lib/apache2/modules/mod_%[1]s.so\n", one)
		}
		text = fmt.Sprintf("%sServerRoot %s\nServerName %s\nPidFile %[2]s/pid\nDefaultRuntimeDir %[2]s\nErrorLog /dev/stderr\nListen 443\n<VirtualHost *:443>\n    ServerName %[3]s\n    SSLEngine on\n    SSLCertificateFile %[4]s\n    SSLCertificateKeyFile %[5]s\n    DocumentRoot %[2]s\n    <Directory %[2]s>\n        Require all granted\n    </Directory>\n    %[6]s\n</VirtualHost>\n",
			modules, directory, splitDomain, chain, key, indented)
		command = "exec apache2 -D FOREGROUND -f " + config
	}
	for file, content := range map[string]string{page: "our web site", config: text} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			s.w.t.Fatal(err)
		}
	}
	s.running = s.m.background(command)
	await.Until(s.w.t, "the web site is there", func() bool { return s.read("/") == "our web site" })
}

// read asks the web site for a page; "" = it did not answer.
func (s *site) read(path string) string {
	response, err := http.Get("https://" + splitDomain + path)
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}
