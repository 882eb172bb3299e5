package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/identity"
	"inbox/operator"
)

// maxGreeted is how many agents of a domain are named with their addresses.
const maxGreeted = 5

// listeners are the addresses that a server took; empty = it does not listen there.
type listeners struct{ http, mail, admin, grpc string }

func listenersOf(server *inbox.Server) listeners {
	return listeners{server.HTTPAddr().String(), server.MailAddr(), server.AdminAddr(), server.GRPCAddr()}
}

// greet tells the one who sits at the terminal what runs where. In development mode it is told wherever the output goes, as no one but its
// developer reads it; with a configuration file to a terminal alone, so that a service's log has lines of the log and nothing else.
func greet(cmd *cobra.Command, server *inbox.Server) {
	out := cmd.OutOrStdout()
	switch config := server.Config(); {
	case config.Development:
		fmt.Fprint(out, greeting(server))
	case atTerminal(out):
		fmt.Fprint(out, banner(config, listenersOf(server)))
	}
}

// banner tells what a server with a configuration file runs, domain by domain, and where to look next.
func banner(config *inbox.Config, taken listeners) string {
	var text strings.Builder
	fmt.Fprintf(&text, "inbox %s runs with %s.\n", inbox.Version, config.File)
	for _, one := range append([]*inbox.Config{config}, config.Hosted...) {
		text.WriteString("\n")
		greetDomain(&text, one, taken)
	}

	text.WriteString("\n")
	line(&text, "listens", taken.words())
	console, admin := strings.TrimSuffix(config.PublicURL, "/"), taken.admin
	if admin != "" {
		console = "http://" + admin
		if config.HTTP.TLS != "off" && !config.Admin.IsLocal() {
			console = "https://" + admin
		}
	}
	line(&text, "console", console+"/console, sign in with the token in "+filepath.Join(config.DataDir, operator.AdminTokenFile))
	line(&text, "API", console+"/api/v1, with the same token")
	line(&text, "health", console+"/readyz")
	line(&text, "log", fmt.Sprintf("standard error, %s, from level %s", config.Log.Format, config.Log.Level))
	line(&text, "data", dataOf(config))

	fmt.Fprintf(&text, "\nLook: inbox doctor · inbox waiting · inbox chat%s\n\n", exampleAgent(config))
	return text.String()
}

func greetDomain(out io.Writer, config *inbox.Config, taken listeners) {
	base := strings.TrimSuffix(config.PublicURL, "/")
	for i := range config.Agents {
		if i == maxGreeted {
			line(out, "…", fmt.Sprintf("and %d more: inbox agents list", len(config.Agents)-maxGreeted))
			break
		}
		name := config.Agents[i].Name
		line(out, "agent", identity.Address{Local: name, Domain: config.Domain}.String())
		line(out, "  page", base+"/@"+name)
		line(out, "  chat", base+"/@"+name+"/chat")
		line(out, "  card", base+"/a2a/"+name+"/.well-known/agent-card.json")
		if taken.mail != "" {
			line(out, "  mail", name+"@"+identity.HostOf(config.Domain)+mailWays[config.Mail.Mode])
		}
	}
}

// mailWays say what becomes of mail that agents send.
var mailWays = map[string]string{
	"capture": "; answers are kept here and not sent (mail.mode)", "smarthost": "; answers leave by the smarthost", "mx": "; answers leave directly",
}

// words are the listeners that are open.
func (l listeners) words() string {
	var words []string
	for _, one := range []struct{ name, address string }{{"HTTP", l.http}, {"SMTP", l.mail}, {"gRPC", l.grpc}, {"operator", l.admin}} {
		if one.address != "" {
			words = append(words, one.name+" at "+one.address)
		}
	}
	return strings.Join(words, ", ")
}

// dataOf does not show the password of a database.
func dataOf(config *inbox.Config) string {
	if strings.HasPrefix(config.DatabaseURL.Reveal(), "postgres") {
		return config.DataDir + ", database PostgreSQL"
	}
	return config.DataDir + ", database SQLite"
}

func exampleAgent(config *inbox.Config) string {
	if len(config.Agents) < 2 {
		return ""
	}
	return " @" + config.Agents[0].Name
}

func line(out io.Writer, name, value string) { fmt.Fprintf(out, "  %-9s %s\n", name, value) }
