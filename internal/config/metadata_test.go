package config

import (
	"strings"
	"testing"
)

func TestBackEndsAtMetadataServices(t *testing.T) {
	const agent = "[[agents]]\nname = \"a\"\nkind = \"webhook\"\n[agents.webhook]\nsecret = \"0123456789abcdef0123456789abcdef\"\nurl = "
	for settings, want := range map[string]string{
		agent + `"http://169.254.169.254/latest"`:            "agents[0].webhook.url",
		agent + `"http://[::ffff:169.254.169.254]:8080/"`:    "agents[0].webhook.url",
		agent + `"http://[fd00:ec2::254]/"`:                  "agents[0].webhook.url",
		agent + `"http://2852039166/"`:                       "agents[0].webhook.url",
		agent + `"http://0xa9.0xfe.0xa9.0xfe/"`:              "agents[0].webhook.url",
		agent + `"http://metadata.google.internal./"`:        "agents[0].webhook.url",
		agent + `"http://10.0.0.1/"`:                         "",
		agent + `"http://metadata.example/"`:                 "",
		"[operator]\nnotify = [\"http://169.254.169.254/\"]": "operator.notify",

		"[federation]\nmetadata_addresses = [\"169.254.10.1\"]\n" + agent + `"http://169.254.10.1:9000/"`:          "",
		"[federation]\nmetadata_addresses = [\"169.254.10.1\"]\n" + agent + `"http://[::ffff:169.254.10.1]:9000/"`: "",
		"[federation]\nmetadata_addresses = [\"169.254.10.1\"]\n" + agent + `"http://169.254.169.254/"`:            "agents[0].webhook.url",
		"[federation]\nmetadata_addresses = [\"169.254.0.0/16\"]\n" + agent + `"http://10.0.0.1/"`:                 "federation.metadata_addresses[0]",
	} {
		_, err := Load(write(t, "domain = \"agents.example\"\npublic_url = \"https://agents.example\"\n"+settings+"\n"), nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", settings, err, want)
		}
	}
}
