package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"inbox/identity"
	"inbox/internal/config"
	"inbox/internal/disk"
	"inbox/internal/fault"
)

// AgentFile is the file of the settings, in which agents are added and removed. Comments and the order of the file stay. The file is
// replaced whole or not at all, and only by one that the server would read.
type AgentFile struct {
	Path    string
	Environ []string // in which the settings are read
	// Check refuses settings with which the server would not start; nil = only what reading them refuses.
	Check func(*config.Config) error
	// Apply lets a running server read the file once it is written. Its error puts the file back as it was; nil = no server is told.
	Apply func() error
}

// Added is what Add has written.
type Added struct {
	File       string `json:"file"`
	Agent      string `json:"agent"`
	SecretFile string `json:"secret_file,omitempty"`   // that was made for the agent
	Replaced   bool   `json:"replaced_echo,omitempty"` // the file named no agent before, so there was one called echo
}

// Add writes a table [[agents]] at the end of the file. A kind whose back end needs a secret gets a new one in a file beside it, unless
// the table names one. Errors name the line that is in the way, and what to write.
func (f AgentFile) Add(table AgentTable) (Added, error) {
	if !identity.ValidAgentName(table.Name) {
		return Added{}, wrongName(table.Name)
	}
	before, settings, path, err := f.Read()
	if err != nil {
		return Added{}, err
	}

	added := Added{File: path, Agent: table.Name, Replaced: !namesAgents(settings, before)}
	if config.KindNamed(table.Kind).NeedsSecret && table.SecretFile == "" {
		table.SecretFile = filepath.Join(filepath.Dir(path), table.Name+".secret")
	}
	if table.SecretFile != "" {
		if table.SecretFile, err = filepath.Abs(table.SecretFile); err != nil {
			return Added{}, err
		}
	}

	after, err := config.AddAgent(path, before, f.Environ, table)
	if err != nil {
		return Added{}, err
	}
	if config.KindNamed(table.Kind).NeedsSecret {
		kept, err := plannedFile{table.SecretFile, NewSecret(), 0o600, true}.write(false)
		if err != nil {
			return Added{}, fmt.Errorf("write the secret of the agent: %w", err)
		}
		if !kept {
			added.SecretFile = table.SecretFile
			if err := sameOwner(table.SecretFile, path); err != nil {
				return Added{}, errors.Join(err, os.Remove(added.SecretFile))
			}
		}
	}

	if err := f.replace(path, before, after); err != nil {
		if added.SecretFile != "" {
			err = errors.Join(err, os.Remove(added.SecretFile))
		}
		return Added{}, err
	}
	return added, nil
}

// CheckAdded reports what would be in the way of Add. It leaves no file behind.
func (f AgentFile) CheckAdded(path, before string, table AgentTable) (err error) {
	_, missing := os.Stat(table.SecretFile)
	if config.KindNamed(table.Kind).NeedsSecret && missing != nil { // Add makes it
		if table.SecretFile, err = disk.WriteBeside(filepath.Join(os.TempDir(), "inbox-secret"), NewSecret()); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.Remove(table.SecretFile)) }()
	}
	after, err := config.AddAgent(path, before, f.Environ, table)
	if err != nil {
		return err
	}
	return f.check(path, after)
}

// Removed is what Remove has taken out.
type Removed struct {
	File       string `json:"file"`
	Agent      string `json:"agent"`
	SecretFile string `json:"secret_file,omitempty"` // that the agent used, and that stays
	Last       bool   `json:"last,omitempty"`        // the file names no agent any more, so there is one called echo
}

// Remove takes the table [[agents]] of a name out, with the tables inside of it. The domain is one of [[domains]], empty for that at the top.
func (f AgentFile) Remove(name, domain string) (Removed, error) {
	before, settings, path, err := f.Read()
	if err != nil {
		return Removed{}, err
	}
	after, err := config.RemoveAgent(path, before, f.Environ, name, domain)
	if err != nil {
		return Removed{}, err
	}
	if err := f.replace(path, before, after); err != nil {
		return Removed{}, err
	}

	removed := Removed{File: path, Agent: name, Last: len(settings.Everybody()) == 1}
	home := settings
	if domain != "" {
		home, _ = settings.WithDomain(domain) // the table is there, so its domain is
	}
	for i := range home.Agents {
		if entry := &home.Agents[i]; strings.EqualFold(entry.Name, name) {
			removed.Agent, removed.SecretFile = entry.Name, entry.SecretPath()
		}
	}
	return removed, nil
}

// namesAgents reports whether the document has a table of an agent; without one there is the agent echo.
func namesAgents(settings *config.Config, document string) bool {
	return len(settings.Everybody()) != 1 || config.HasAgent(document, settings.Agents[0].Name)
}

// Read returns the file, its settings, and its path behind symbolic links.
func (f AgentFile) Read() (document string, settings *config.Config, path string, err error) {
	if f.Path == "" {
		return "", nil, "", fault.New(fault.NotFound, "there is no inbox.toml here: --config names it, inbox init writes one")
	}
	if path, err = filepath.EvalSymlinks(f.Path); err != nil {
		return "", nil, "", fmt.Errorf("configuration file: %w", err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", nil, "", fmt.Errorf("configuration file: %w", err)
	}
	settings, err = config.LoadText(path, string(content), f.Environ)
	return string(content), settings, path, err
}

// check reports what a start would refuse of a text.
func (f AgentFile) check(path, text string) error {
	settings, err := config.LoadText(path, text, f.Environ)
	if err == nil && f.Check != nil {
		err = f.Check(settings)
	}
	return err
}

// replace puts the new text in the place of the old one, if a server starts with it, and takes it back if the running server does not read it.
func (f AgentFile) replace(path, before, after string) error {
	if err := f.check(path, after); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	if err := exchangeText(path, before, after); err != nil {
		return err
	}
	if f.Apply == nil {
		return nil
	}
	if err := f.Apply(); err != nil {
		if back := exchangeText(path, after, before); back != nil {
			return errors.Join(err, fmt.Errorf("%s has the change still: %w", path, back))
		}
		return err
	}
	return nil
}

// exchangeText replaces the whole file, with the same mode and owner, if it has the text of before.
func exchangeText(path, before, after string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}

	written, err := disk.WriteBeside(path, after)
	if err != nil {
		return err
	}
	err = errors.Join(os.Chmod(written, info.Mode().Perm()), keepOwner(written, info))
	if now, reading := os.ReadFile(path); err == nil && (reading != nil || string(now) != before) {
		err = errors.Join(reading, fault.Newf(fault.Conflict, "%s was changed meanwhile; try again", path))
	}
	if err == nil {
		err = os.Rename(written, path)
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(os.Remove(written)))
	}
	return nil
}

// sameOwner gives a new file the owner of the configuration: an administrator adds agents for a server that runs as another user.
func sameOwner(name, configuration string) error {
	info, err := os.Stat(configuration)
	if err != nil {
		return err
	}
	return keepOwner(name, info)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// SetTop writes a key with a text at the top of the file, in the place of the one that is there.
func (f AgentFile) SetTop(key, value string) error {
	before, _, path, err := f.Read()
	if err != nil {
		return err
	}
	after, err := config.SetTop(path, before, key, value)
	if err != nil {
		return err
	}
	return f.replace(path, before, after)
}
