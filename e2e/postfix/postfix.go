// Package postfix runs a Postfix, and an OpenDKIM beside it, that belong to one test or one benchmark: configuration,
// queue, certificates and log lie in a directory of their own, and all listeners are on loopback. Of the machine only the
// programs are used (Debian packages postfix and opendkim); a mail system that it has itself is neither read nor touched.
package postfix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Settings is what an operator writes. Lines of main.cf and master.cf stand after those that every mail system has.
type Settings struct {
	Hostname string
	// Resolver is the IP address of a name server on port 53, which the SMTP client asks; empty = that of the machine.
	Resolver string
	Main     []string // parameters, one a line
	Services []string // listeners, one a line; `-o` in the same line
	// Processor is a list of processors for taskset; empty = all.
	Processor string
}

// Postfix is one configured mail system. It can be started and stopped several times.
type Postfix struct {
	Directory string
	settings  Settings
	runs      bool
	unguard   func() // while it runs
}

// stopTime is what `postfix stop` may take: it waits for deliveries that are under way.
const stopTime = 30 * time.Second

// NewDirectory makes a directory that the users of the mail programs can reach, which is not so for the temporary
// directories of Go's tests. An empty parent is that for temporary files.
func NewDirectory(parent string) (string, error) {
	directory, err := os.MkdirTemp(parent, "postfix-")
	if err != nil {
		return "", fmt.Errorf("make directory for Postfix: %w", err)
	}
	if err := os.Chmod(directory, 0o755); err != nil {
		return "", fmt.Errorf("open directory for Postfix: %w", err)
	}
	return directory, nil
}

// New writes the configuration into a directory of NewDirectory.
func New(directory string, settings Settings) (*Postfix, error) {
	if err := ready("postfix"); err != nil {
		return nil, err
	}
	p := &Postfix{Directory: directory, settings: settings}
	if err := p.lay(); err != nil {
		return nil, fmt.Errorf("configure Postfix: %w", err)
	}
	return p, nil
}

// ready says what is missing for a mail program.
func ready(program string) error {
	if _, err := find(program); err != nil {
		return fmt.Errorf("%s is missing (Debian package %s); run scripts/install-test-dependencies", program, program)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%s changes its user and is started by root only; run this as root", program)
	}
	return nil
}

// find looks also where a plain user's PATH does not lead.
func find(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", program))
}

func (p *Postfix) config() string { return filepath.Join(p.Directory, "config") }
func (p *Postfix) queue() string  { return filepath.Join(p.Directory, "queue") }
func (p *Postfix) state() string  { return filepath.Join(p.Directory, "state") }
func (p *Postfix) log() string    { return filepath.Join(p.Directory, "mail.log") }

func (p *Postfix) lay() error {
	resolver := filepath.Join(p.queue(), "etc")
	for _, directory := range []string{p.config(), resolver, p.state()} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			return err
		}
	}

	uid, gid, err := ids("postfix")
	if err != nil {
		return err
	}
	if err := os.Chown(p.state(), uid, gid); err != nil {
		return err
	}

	files := map[string]string{
		filepath.Join(p.config(), "main.cf"):   p.main(),
		filepath.Join(p.config(), "master.cf"): p.master(),
	}

	if p.settings.Resolver != "" {
		files[filepath.Join(resolver, "resolv.conf")] = "nameserver " + p.settings.Resolver + "\n"
	}

	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}

	return nil
}

func ids(name string) (uid, gid int, err error) {
	found, err := user.Lookup(name)
	if err != nil {
		return 0, 0, err
	}
	uid, errUser := strconv.Atoi(found.Uid)
	gid, errGroup := strconv.Atoi(found.Gid)
	return uid, gid, errors.Join(errUser, errGroup)
}

// Start starts all of it and returns when the listeners are open.
func (p *Postfix) Start(ctx context.Context) error {
	program, err := find("postfix")
	if err != nil {
		return err
	}
	if p.unguard, err = guard(program, "-c", p.config(), "stop"); err != nil {
		return err
	}
	if err := p.command(ctx, "start"); err != nil {
		p.unguard()
		return err
	}

	p.runs = true
	return nil
}

// Stop ends all of it, as `postfix stop` does. Stopping what does not run is no error.
func (p *Postfix) Stop() error {
	if !p.runs {
		return nil
	}

	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()

	if err := p.command(ctx, "stop"); err != nil {
		return err
	}

	p.unguard()
	p.runs = false
	return nil
}

// Flush tries what waits in the queue again now.
func (p *Postfix) Flush(ctx context.Context) error { return p.command(ctx, "flush") }

func (p *Postfix) command(ctx context.Context, verb string) error {
	program, err := find("postfix")
	if err != nil {
		return err
	}

	arguments := []string{program, "-c", p.config(), verb}
	if p.settings.Processor != "" {
		arguments = append([]string{"taskset", "-c", p.settings.Processor}, arguments...)
	}

	command := exec.CommandContext(ctx, arguments[0], arguments[1:]...)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("postfix %s: %w\n%s\n%s", verb, err, output, p.Log())
	}
	return nil
}

// Log is what all its programs wrote.
func (p *Postfix) Log() string {
	text, err := os.ReadFile(p.log())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Version is the release of Postfix.
func Version(ctx context.Context) string {
	program, err := find("postconf")
	if err != nil {
		return "unknown"
	}
	output, err := exec.CommandContext(ctx, program, "-d", "-h", "mail_version").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(output))
}
