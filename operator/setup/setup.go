// Package setup writes the files of a server: those of a first start, and the tables of its agents in the settings later.
package setup

import (
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"inbox/identity"
	"inbox/internal/config"
	"inbox/internal/disk"
	"inbox/internal/fault"
	"inbox/internal/sealing"
)

// Ways in which mail leaves, for Setup.Mail.
const (
	MailDirect    = "mx"        // to the servers of the recipients
	MailSmarthost = "smarthost" // to a relay
	MailNone      = "none"      // no e-mail at all
)

// Who serves HTTP at the domain itself, for Setup.Apex.
const (
	ApexHere      = config.ApexHere
	ApexElsewhere = config.ApexElsewhere
)

// AgentTable is what is written into a new table [[agents]].
type AgentTable = config.AgentTable

// KindNamed returns what a table of a kind of agent needs; an empty one when there is none of that name.
func KindNamed(name string) config.Kind { return config.KindNamed(name) }

// KindNames are the names of the kinds of agents.
func KindNames() (names []string) {
	for _, kind := range config.Kinds {
		names = append(names, kind.Name)
	}
	return names
}

// Setup is what a first start needs to know. Directory, Domain, Agent and Mail are required.
type Setup struct {
	Directory string // where the files go; data lies below it
	Domain    string
	Hostname  string // public name of the machine; empty = Domain
	Apex      string // who serves HTTP at Domain: config.ApexHere or config.ApexElsewhere; empty = here
	Email     string // for the certificate authority; empty = none
	Agent     AgentTable
	Mail      string // MailDirect, MailSmarthost or MailNone
	Smarthost string // address of the relay, with MailSmarthost
	Program   string // path of this program, for the unit
	User      string // who runs the server, for the unit
	Force     bool   // replace the configuration and the unit; keys are never replaced
}

// File is a file of a first start.
type File struct {
	Path string `json:"path"`
	Mode string `json:"mode"`
	Kept bool   `json:"kept,omitempty"` // it was there, and is what it was
}

//go:embed inbox.service
var unitText string

// plannedFile is a file before it is written.
type plannedFile struct {
	path, content string
	mode          fs.FileMode
	keep          bool // one that is there already is the right one
}

// ConfigPath is where the configuration goes.
func (s Setup) ConfigPath() string { return filepath.Join(s.Directory, "inbox.toml") }

func (s Setup) dataDir() string   { return filepath.Join(s.Directory, "data") }
func (s Setup) keyPath() string   { return filepath.Join(s.Directory, "secret.key") }
func (s Setup) unitPath() string  { return filepath.Join(s.Directory, "inbox.service") }
func (s Setup) tokenPath() string { return filepath.Join(s.Directory, s.Agent.Name+".secret") }

// complete fills in what follows from other answers.
func (s Setup) complete() (Setup, error) {
	directory, err := filepath.Abs(s.Directory)
	if err != nil {
		return s, err
	}
	s.Directory = directory
	if !identity.ValidAgentName(s.Agent.Name) {
		return s, wrongName(s.Agent.Name)
	}
	if s.Hostname == "" {
		s.Hostname = s.Domain
	}
	if s.Agent.Access == "" {
		s.Agent.Access = "public"
	}
	if config.KindNamed(s.Agent.Kind).NeedsSecret && s.Agent.SecretFile == "" {
		s.Agent.SecretFile = s.tokenPath()
	}
	return s, nil
}

func wrongName(name string) error {
	return fault.Newf(fault.Malformed, "%q cannot be the part of an address before the @: write 1 to 64 letters, digits, dots, hyphens or underscores", name)
}

// NewSecret is a secret that a server and the back end of an agent share, as the content of a file.
func NewSecret() string {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails (crypto/rand)
	return base64.RawURLEncoding.EncodeToString(secret[:]) + "\n"
}

// Write writes the files of a first start: the configuration, the key that seals secrets, the secret of the agent and a unit for
// systemd. Nothing is written unless the server would read the configuration, and without Force none of what is there is replaced
// (fs.ErrExist). Each file appears whole or not at all. The environ is that in which the configuration is checked.
func (s Setup) Write(environ []string) ([]File, error) {
	s, err := s.complete()
	if err != nil {
		return nil, err
	}

	files := s.plan()
	for _, file := range files {
		if _, err := os.Lstat(file.path); err == nil && !file.keep && !s.Force {
			return nil, fmt.Errorf("%s %w: --force replaces it (keys stay), --dir names another directory", file.path, fs.ErrExist)
		}
	}
	if err := os.MkdirAll(s.dataDir(), 0o700); err != nil {
		return nil, err
	}

	// Secrets come first: the configuration names their files, and its check reads them.
	slices.SortStableFunc(files, func(a, b plannedFile) int { return btoi(b.keep) - btoi(a.keep) })
	written := make([]File, 0, len(files))
	for _, file := range files {
		if file.path == s.ConfigPath() {
			if _, err := config.LoadText(file.path, file.content, environ); err != nil {
				return nil, s.undo(written, err)
			}
		}
		kept, err := file.write(s.Force)
		if err != nil {
			return nil, s.undo(written, err)
		}
		written = append(written, File{file.path, fmt.Sprintf("%04o", file.mode), kept})
	}
	return written, nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// undo removes what a first start that failed has made. With Force the former files are gone, and the new ones stay.
func (s Setup) undo(written []File, err error) error {
	if s.Force {
		return err
	}
	for _, file := range written {
		if !file.Kept {
			err = errors.Join(err, os.Remove(file.Path))
		}
	}
	_ = os.Remove(s.dataDir()) // where it is empty
	_ = os.Remove(s.Directory) // likewise
	return err
}

// write puts a file in its place. Link fails where a file is, which a rename would replace.
func (f plannedFile) write(force bool) (kept bool, err error) {
	written, err := disk.WriteBeside(f.path, f.content)
	if err != nil {
		return false, err
	}
	if err := os.Chmod(written, f.mode); err != nil {
		return false, errors.Join(err, os.Remove(written))
	}
	if force && !f.keep {
		if err := os.Rename(written, f.path); err != nil {
			return false, errors.Join(err, os.Remove(written))
		}
		return false, nil
	}

	err = os.Link(written, f.path)
	if errors.Is(err, fs.ErrExist) && f.keep {
		kept, err = true, nil
	}
	return kept, errors.Join(err, os.Remove(written))
}

func (s Setup) plan() []plannedFile {
	files := []plannedFile{
		{s.keyPath(), base64.StdEncoding.EncodeToString(sealing.NewKey()) + "\n", 0o600, true},
		{s.ConfigPath(), s.configuration(), 0o600, false},
		{s.unitPath(), s.unit(), 0o644, false},
	}
	if s.Agent.SecretFile == s.tokenPath() {
		files = append(files, plannedFile{s.tokenPath(), NewSecret(), 0o600, true})
	}
	return files
}

// unit is the text of inbox.service. Homes are hidden from the server unless the program or its files lie in one. A program of an agent
// may compile while it runs, such as Node, which a memory that is never both written and executed forbids.
func (s Setup) unit() string {
	homes, compiling := "yes", ""
	for _, path := range []string{s.Program, s.Directory} {
		for _, home := range []string{"/home/", "/root/", "/run/user/"} {
			if strings.HasPrefix(path+"/", home) {
				homes = "read-only"
			}
		}
	}
	if s.Agent.Kind == "command" {
		compiling = "#"
	}
	return strings.NewReplacer(
		"{{Program}}", unitWord(s.Program), "{{ConfigPath}}", unitWord(s.ConfigPath()), "{{Directory}}", unitWord(s.Directory),
		"{{DataDir}}", unitWord(s.dataDir()), "{{User}}", s.User, "{{Homes}}", homes, "{{Compiling}}", compiling,
	).Replace(unitText)
}

// unitWord writes a path as a word of a unit (systemd.syntax(7)).
func unitWord(path string) string {
	path = strings.ReplaceAll(path, "%", "%%")
	if strings.ContainsAny(path, " \t\"'\\$;") {
		return strconv.Quote(path)
	}
	return path
}

// configuration is the text of inbox.toml.
func (s Setup) configuration() string {
	var text strings.Builder
	line := func(format string, values ...any) { fmt.Fprintf(&text, format+"\n", values...) }

	line("# Settings of the inbox server of %s. Every key: docs/configuration.md. Check them: inbox config check", strings.Join(strings.Fields(s.Domain), " "))
	line("")
	line("# Agents have the address @name@domain; the domain cannot change later: the agents would be other accounts.")
	line("domain = %s", config.Quote(s.Domain))
	line("# Where the server is reached from outside.")
	line("public_url = %s", config.Quote("https://"+s.Hostname))
	if s.Apex == config.ApexElsewhere {
		line("# Another web server has the domain itself, and redirects WebFinger to public_url: inbox dns prints how.")
		line("apex = %s", config.Quote(s.Apex))
	}
	line("# Database, files and the operator's token. It belongs to every backup, together with the key below.")
	line("data_dir = %s", config.Quote(s.dataDir()))
	line("# Seals private keys and credentials in the database. Without it they are lost.")
	line("secret_key_file = %s", config.Quote(s.keyPath()))
	line("")
	line("[http]")
	line("listen = \":443\"")
	line("# Certificates come from the authority of [acme] and are renewed by themselves; port 80 answers it.")
	line("tls = \"acme\"")
	if s.Email != "" {
		line("")
		line("[acme]")
		line("# The authority writes here when a certificate cannot be renewed. Using it means to accept its terms.")
		line("email = %s", config.Quote(s.Email))
	}

	line("")
	line("[smtp]")
	if s.Mail == MailNone {
		line("# No e-mail. To have it: a listener, [mail], and the records of: inbox dns")
		line("listen = \"off\"")
	} else {
		line("# Other mail servers connect here; STARTTLS has the certificate of hostname.")
		line("listen = \":25\"")
		line("hostname = %s", config.Quote(s.Hostname))
		line("")
		line("[mail]")
		line("# mx: directly to the servers of the recipients. smarthost: by your provider's relay. capture: kept here, nothing leaves.")
		line("mode = %s", config.Quote(s.Mail))
		if s.Mail == MailSmarthost {
			line("smarthost = %s", config.Quote(s.Smarthost))
		}
	}

	line("")
	line("# The first agent. Further ones: inbox agents add NAME --kind …")
	text.WriteString(s.Agent.Text())
	return text.String()
}
