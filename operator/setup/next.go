package setup

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"

	"inbox/internal/config"
)

// ServiceUser runs the server where an administrator sets it up.
const ServiceUser = "inbox"

// Instruction is something that the operator does after a first start's files are written.
type Instruction struct {
	Text     string   `json:"text"`
	Commands []string `json:"commands,omitempty"`
}

// Next says what to do after Write, in order.
func (s Setup) Next(c *config.Config, files []File, addresses []netip.Addr) []Instruction {
	s, err := s.complete()
	if err != nil {
		return nil // Write has said so
	}

	publish := Instruction{Text: "Publish the DNS records above"}
	if s.Mail == MailDirect {
		names := make([]string, 0, len(addresses))
		for _, address := range addresses {
			names = append(names, address.String())
		}
		publish.Text += ", and let your provider set reverse DNS of " + cmp.Or(strings.Join(names, " and "), "the public address") + " to " + c.SMTP.Hostname +
			"; most providers open port 25 outwards only when you ask"
	}
	steps := []Instruction{publish}
	if s.Apex == config.ApexElsewhere {
		steps = append(steps, Instruction{Text: "Let the web server of " + c.Domain + " redirect the paths above to " + c.PublicURL + "; change no record of " + c.Domain + " itself"})
	}

	if manual := config.KindNamed(s.Agent.Kind).SecretManual; manual != "" {
		steps = append(steps, Instruction{Text: "Let the service at " + s.Agent.Backend + " check requests with the secret in " + s.Agent.SecretFile + " (" + manual + ")"})
	}
	asUser := ""
	if s.User == ServiceUser {
		steps = append(steps, Instruction{Text: "Create a user that runs the server", Commands: []string{
			"sudo useradd --system --home-dir " + shellWord(s.Directory) + " --shell /usr/sbin/nologin " + ServiceUser,
			"sudo chown -R " + ServiceUser + ": " + shellWord(s.Directory),
		}})
		asUser = "sudo -u " + ServiceUser + " "
	}

	const tool = "inbox "
	given := " --config " + shellWord(s.ConfigPath())
	return append(steps,
		Instruction{Text: "Check the settings, and start", Commands: []string{
			asUser + tool + "config check" + given,
			"sudo cp " + shellWord(s.unitPath()) + " /etc/systemd/system/ && sudo systemctl daemon-reload && sudo systemctl enable --now inbox",
		}},
		Instruction{Text: "Wait until everything works; each line that fails says what to do", Commands: []string{asUser + tool + "doctor --wait 30m" + given}},
		Instruction{Text: "Write to the agent from here, then mention @" + s.Agent.Name + "@" + c.Domain + " from anywhere", Commands: []string{
			asUser + tool + "agents test" + given + " " + s.Agent.Name + " hello",
		}},
	)
}

// shellWord quotes a path for a shell, where it needs quotes.
func shellWord(path string) string {
	if strings.ContainsFunc(path, func(r rune) bool {
		return !strings.ContainsRune("/._-+,:@", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		return strings.ReplaceAll("'"+strings.ReplaceAll(path, "'", `'\''`)+"'", "\n", strconv.Quote("\n"))
	}
	return path
}
