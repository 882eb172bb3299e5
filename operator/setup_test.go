package operator_test

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"inbox"
	"inbox/operator"
)

// TestSetupIsReadByTheServer: for each way in which mail leaves and each kind of agent, what is written is what the server reads, to the
// address; paths with odd characters, too.
func TestSetupIsReadByTheServer(t *testing.T) {
	for name, s := range map[string]operator.Setup{
		"mx":        {Mail: operator.MailDirect, Agent: operator.AgentTable{Kind: "echo"}},
		"smarthost": {Mail: operator.MailSmarthost, Smarthost: "smtps://u:p%40@relay.example:465", Agent: operator.AgentTable{Kind: "llm", Model: "m"}},
		"none":      {Mail: operator.MailNone, Agent: operator.AgentTable{Kind: "webhook", Backend: "http://127.0.0.1:1/"}, Hostname: "www.agents.example"},
		"pull":      {Mail: operator.MailDirect, Agent: operator.AgentTable{Kind: "pull"}, Email: "me@example.org"},
	} {
		s.Domain, s.Agent.Name, s.Program, s.User = "agents.example", "helper", "/usr/bin/inbox", "me"
		s.Directory = filepath.Join(t.TempDir(), `odd "%h" \ directory`)
		files, err := s.Write(nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		config, err := inbox.LoadConfig(s.ConfigPath(), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if config.Domain != s.Domain || config.ACME.Email != s.Email || (config.SMTP.Listen == "") != (s.Mail == operator.MailNone) || config.Agents[0].Name != "helper" || config.HTTP.TLS != "acme" {
			t.Errorf("%s: %+v", name, config)
		}
		for _, file := range files {
			info, err := os.Stat(file.Path)
			if err != nil || file.Kept || file.Mode != map[bool]string{true: "0644", false: "0600"}[filepath.Ext(file.Path) == ".service"] || info.Mode().Perm()&0o077 != 0 && file.Mode == "0600" {
				t.Errorf("%s: %+v is %v %v", name, file, info.Mode(), err)
			}
		}

		left, err := os.ReadDir(s.Directory)
		if err != nil || len(left) != len(files)+1 { // data_dir
			t.Errorf("%s: %v %v", name, left, err)
		}
		if _, err := s.Write(nil); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: a second time: %v", name, err)
		}
	}
}

func TestPublicAddresses(t *testing.T) {
	var interfaces []netip.Prefix
	for _, text := range []string{
		"127.0.0.1/8", "::1/128", "10.1.2.3/8", "192.168.0.2/24", "172.20.0.1/16", "100.64.0.9/10", "169.254.1.1/16", "fe80::1/64", "fd00::5/64", "192.0.2.2/24", "198.18.0.1/15",
		"2001:db8::1/32", "224.0.0.1/4", "2a00:1450::5/64", "8.8.4.4/24", "8.8.4.4/32",
	} {
		interfaces = append(interfaces, netip.MustParsePrefix(text))
	}
	got := operator.PublicAddresses(interfaces)
	if len(got) != 2 || got[0].String() != "8.8.4.4" || got[1].String() != "2a00:1450::5" {
		t.Errorf("%v", got)
	}
}

// TestPublicRecords: the addresses of this machine stand at every name of the server, and what is not known is left to fill in.
func TestPublicRecords(t *testing.T) {
	config := &inbox.Config{Domain: "agents.example", PublicURL: "https://www.agents.example"}
	config.SMTP.Listen, config.SMTP.Hostname = ":25", "mx.agents.example"
	records := []operator.DNSRecord{
		{Name: "mx.agents.example", Type: "A", Value: "<IPv4 address>"}, {Name: "mx.agents.example", Type: "AAAA", Value: "<IPv6 address>"},
		{Name: "_dmarc.agents.example", Type: "TXT", Value: "v=DMARC1; p=reject"},
	}

	for _, c := range []struct {
		addresses []netip.Addr
		want      []string // of each of the three names
	}{
		{nil, []string{"A <IPv4 address>"}},
		{[]netip.Addr{netip.MustParseAddr("9.9.9.9"), netip.MustParseAddr("2620:fe::9")}, []string{"A 9.9.9.9", "AAAA 2620:fe::9"}},
	} {
		got := map[string][]string{}
		for _, one := range operator.PublicRecords(records, config, c.addresses) {
			got[one.Name] = append(got[one.Name], one.Type+" "+one.Value)
		}
		want := map[string][]string{"_dmarc.agents.example": {"TXT v=DMARC1; p=reject"}}
		for _, host := range []string{"agents.example", "www.agents.example", "mx.agents.example"} {
			want[host] = c.want
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("with %v: %v, want %v", c.addresses, got, want)
		}
	}
}
