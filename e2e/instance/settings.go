package instance

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Settings is what an operator writes into the configuration file. The zero value is an echo agent on SQLite that
// captures mail, on ports of the kernel's choice.
type Settings struct {
	Database  string // empty = SQLite, or postgres://…
	Files     string // blob_url; empty = the usual directory, on PostgreSQL one that all nodes of the database share
	Domain    string // empty = the host and port of the HTTP address
	HTTP      string // host:port; empty = a free loopback port
	Public    string // host:port under which others reach HTTP, where something stands before it; empty = HTTP
	SMTP      string // host:port; empty = a free loopback port
	Hostname  string // smtp.hostname; empty = the default
	CertFile  string // PEM; HTTP has TLS and mail STARTTLS; empty = neither has
	KeyFile   string
	ACME      string   // directory of a certificate authority, from which certificates come instead of files
	ACMENames []string // further names of certificates
	PlainHTTP string   // with ACME: host:port of the listener without TLS
	Authority string   // PEM file whose certificates are believed besides no others; empty = those of the system
	STSPort   int      // port of the servers that publish MTA-STS policies; 0 = the default
	DNS       string   // host:port of the resolver; empty = the system's
	Smarthost string   // smtp://host:port; empty = mail is captured
	RelayCA   string   // mail.smarthost_roots_file; empty = the authorities of the system
	MXPort    int      // mail goes to the recipients' servers, on this port; 0 = it does not
	Lease     string   // a duration; empty = the default
	Drain     string   // a duration; empty = none
	Mode      string   // federation.mode; empty = the default
	Strict    bool     // as in production: federation.allow_private is off, and public_url is https with Domain
	Agents    string   // TOML tables; empty = one echo agent
	More      string   // further lines of TOML, written last
	Proxies   []string // http.trusted_proxies
	Inside    []string // http.inside; empty = the default
	MaxMail   string   // smtp.max_message_bytes; empty = the default

	Unready bool // /readyz says 503 from the start on, on purpose: it is enough that it answers

	UsualRetries bool   // the schedules of production between attempts, instead of short ones
	Retry        string // a list of durations in TOML, instead of both
}

// Ports of servers that are killed and started again lie below those that Linux gives to outgoing connections (from
// 32768): while the server is down, a client of the test could otherwise get its port.
const (
	firstPort = 12000
	lastPort  = 32000
)

// given are the addresses that FreeAddress returned: their servers may not listen yet.
var given sync.Map

// FreeAddress finds a loopback address on which no one listens now, and that it did not return before.
func FreeAddress() (string, error) {
	var last error
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", firstPort+rand.N(lastPort-firstPort))
		if _, before := given.LoadOrStore(address, true); before {
			continue
		}
		listener, err := net.Listen("tcp", address)
		if err == nil {
			return address, listener.Close()
		}
		last = err
	}
	return "", fmt.Errorf("find a free port: %w", last)
}

func (s *Settings) fill() error {
	for _, address := range []*string{&s.HTTP, &s.SMTP} {
		if *address != "" {
			continue
		}
		free, err := FreeAddress()
		if err != nil {
			return err
		}
		*address = free
	}

	if s.Agents == "" {
		s.Agents = "[[agents]]\nname = \"echo\"\nkind = \"echo\"\n"
	}

	return nil
}

func (s *Settings) public() string {
	if s.Public != "" {
		return s.Public
	}
	return s.HTTP
}

func (s *Settings) scheme() string {
	if s.CertFile != "" || s.ACME != "" {
		return "https"
	}
	return "http"
}

// environment is that of this process, with the authority that is believed: Go's own switch, as an operator would use it.
func (s *Settings) environment() []string {
	environment := os.Environ()
	if s.Authority != "" {
		environment = append(environment, "SSL_CERT_FILE="+s.Authority, "SSL_CERT_DIR="+os.DevNull)
	}
	return environment
}

// Short retries: what fails during a test is tried again within its patience.
const retries = `["200ms", "500ms", "1s", "1s", "2s", "2s", "5s", "5s", "5s", "5s"]`

// The key of every instance on PostgreSQL: several nodes of one database share theirs.
const (
	secretKeyFile = "shared.key"
	secretKey     = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n"
)

// quoted writes texts as TOML writes a list, without its brackets.
func quoted(texts []string) string {
	list := make([]string, 0, len(texts))
	for _, text := range texts {
		list = append(list, strconv.Quote(text))
	}
	return strings.Join(list, ", ")
}

// file writes the configuration.
func (s *Settings) file(data string) string {
	var text strings.Builder
	line := func(format string, values ...any) { fmt.Fprintf(&text, format+"\n", values...) }
	if s.Strict {
		line("public_url = %q", "https://"+s.Domain)
	} else {
		line("public_url = %q", s.scheme()+"://"+s.public())
	}

	line("data_dir = %q", data)
	line("drain = %q", cmp.Or(s.Drain, "0s"))

	if s.Domain != "" {
		line("domain = %q", s.Domain)
	}
	if s.Database != "" {
		line("database_url = %q\nsecret_key_file = %q", s.Database, filepath.Join(filepath.Dir(data), secretKeyFile))
	}
	if s.Database != "" || s.Files != "" {
		line("blob_url = %q", cmp.Or(s.Files, "file://"+filesOf(s.Database)))
	}

	line("[http]\nlisten = %q", s.HTTP)
	if s.CertFile != "" {
		line("tls = \"files\"\ncert_file = %q\nkey_file = %q", s.CertFile, s.KeyFile)
	}
	if s.ACME != "" {
		line("tls = \"acme\"")
	}
	if len(s.Proxies) > 0 {
		line("trusted_proxies = [\"%s\"]", strings.Join(s.Proxies, `", "`))
	}
	if len(s.Inside) > 0 {
		line("inside = [\"%s\"]", strings.Join(s.Inside, `", "`))
	}

	if s.ACME != "" {
		line("[acme]\ndirectory = %q\nhttp_listen = %q\nroots_file = %q\ncheck_every = \"500ms\"\nnames = [%s]",
			s.ACME, cmp.Or(s.PlainHTTP, "off"), s.Authority, quoted(s.ACMENames))
	}

	line("[smtp]\nlisten = %q", s.SMTP)
	if s.MaxMail != "" {
		line("max_message_bytes = %q", s.MaxMail)
	}
	if s.Hostname != "" {
		line("hostname = %q", s.Hostname)
	}

	line("[mail]")
	if !s.UsualRetries {
		line("retry = %s", cmp.Or(s.Retry, retries))
	}
	if s.Smarthost != "" {
		line("mode = \"smarthost\"\nsmarthost = %q", s.Smarthost)
	}
	if s.RelayCA != "" {
		line("smarthost_roots_file = %q", s.RelayCA)
	}
	if s.MXPort != 0 {
		line("mode = \"mx\"\nmx_port = %d", s.MXPort)
	}
	if s.STSPort != 0 {
		line("mta_sts_port = %d", s.STSPort)
	}
	if s.DNS != "" {
		line("[dns]\nresolver = %q", s.DNS)
	}

	line("[federation]\nallow_private = %t", !s.Strict)
	if !s.UsualRetries {
		line("retry = %s", cmp.Or(s.Retry, retries))
	}
	if s.Mode != "" {
		line("mode = %q", s.Mode)
	}
	if s.Lease != "" {
		line("[queue]\nlease = %q", s.Lease)
	}

	line("%s\n%s", s.Agents, s.More)
	return text.String()
}
