package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"inbox/internal/children"
)

// systemctlShim stands for systemctl on a machine whose first process is no systemd. It hands what it is told to the test, which starts
// ExecStart of the unit as its user, with the one capability that the unit leaves it, and waits for READY=1 where the unit says
// Type=notify. The walls of the unit are not built: TestUnits looks at them by systemd-analyze.
const systemctlShim = `#!/bin/sh
exec 9<>%[1]s/units.answers
flock 9
printf '%%s\n' "$*" >%[1]s/units.requests
read -r problem <&9
[ "$problem" = done ] || { echo "$problem" >&2; exit 1; }
`

// units is what a service manager does on a machine: it starts and stops what its units say.
type units struct {
	m       *machine
	running map[string]*exec.Cmd
	ended   map[string]chan struct{}
}

// manageUnits gives the machine a systemctl.
func (m *machine) manageUnits() {
	m.w.t.Helper()
	for _, name := range []string{"units.requests", "units.answers"} {
		if err := syscall.Mkfifo(filepath.Join(m.directory, name), 0o600); err != nil {
			m.w.t.Fatal(err)
		}
	}
	shims := filepath.Join(m.directory, "shims")
	err := os.Mkdir(shims, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(shims, "systemctl"), fmt.Appendf(nil, systemctlShim, m.directory), 0o755)
	}
	if err != nil {
		m.w.t.Fatal(err)
	}
	m.variables = append(m.variables, "PATH="+shims+":"+m.path())

	requests, err := os.OpenFile(filepath.Join(m.directory, "units.requests"), os.O_RDWR, 0) // both ends, so that it has no end
	if err != nil {
		m.w.t.Fatal(err)
	}
	answers, err := os.OpenFile(filepath.Join(m.directory, "units.answers"), os.O_RDWR, 0)
	if err != nil {
		m.w.t.Fatal(err)
	}
	u := &units{m: m, running: map[string]*exec.Cmd{}, ended: map[string]chan struct{}{}}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		lines := bufio.NewScanner(requests)
		for lines.Scan() && lines.Text() != "end" {
			answer := "done"
			if err := u.obey(strings.Fields(lines.Text())); err != nil {
				answer = strings.ReplaceAll(err.Error(), "\n", " ")
			}
			_, _ = fmt.Fprintln(answers, answer)
		}
	}()
	m.w.t.Cleanup(func() {
		_, _ = fmt.Fprintln(requests, "end")
		<-finished
		for name := range u.running {
			if err := u.stop(name); err != nil {
				m.w.t.Error(err)
			}
			if log, err := os.ReadFile(u.log(name)); m.w.t.Failed() {
				m.w.t.Logf("log of the unit %s (%v):\n%s", name, err, tail(string(log), 16<<10))
			}
		}
		_, _ = requests.Close(), answers.Close()
	})
}

func (m *machine) path() (value string) {
	for _, variable := range m.variables {
		if text, is := strings.CutPrefix(variable, "PATH="); is {
			value = text
		}
	}
	return value
}

func (u *units) log(name string) string { return filepath.Join(u.m.directory, name+".log") }

// obey does what systemctl was told.
func (u *units) obey(words []string) error {
	var names []string
	action, now := "", false
	for _, word := range words {
		switch {
		case word == "--now":
			now = true
		case strings.HasPrefix(word, "-"):
			return fmt.Errorf("systemctl: the test does not know %s", word)
		case action == "":
			action = word
		default:
			names = append(names, strings.TrimSuffix(word, ".service"))
		}
	}
	switch {
	case action == "daemon-reload", action == "enable" && !now:
		return nil
	case action == "enable", action == "start", action == "restart":
		for _, name := range names {
			if u.running[name] != nil {
				if action != "restart" {
					continue
				}
				if err := u.stop(name); err != nil {
					return err
				}
			}
			if err := u.start(name); err != nil {
				return err
			}
		}
		return nil
	case action == "stop":
		for _, name := range names {
			if err := u.stop(name); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("systemctl: the test does not know %q", words)
}

// settings reads the unit where systemd looks for it, first what an administrator wrote.
func (u *units) settings(name string) (map[string]string, error) {
	for _, directory := range []string{"/etc/systemd/system", "/usr/local/lib/systemd/system"} {
		text, err := os.ReadFile(filepath.Join(directory, name+".service"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found := map[string]string{}
		for line := range strings.Lines(string(text)) {
			if key, value, is := strings.Cut(strings.TrimSpace(line), "="); is && !strings.HasPrefix(key, "#") {
				found[key] = strings.TrimSpace(found[key] + " " + value)
			}
		}
		return found, nil
	}
	return nil, fmt.Errorf("there is no unit %s.service", name)
}

func (u *units) start(name string) error {
	unit, err := u.settings(name)
	if err != nil {
		return err
	}
	account := unit["User"]
	if account == "" {
		account = name
	}
	if unit["DynamicUser"] == "yes" { // made for as long as the service runs
		_ = exec.Command("useradd", "--system", "--shell", "/usr/sbin/nologin", account).Run() // it may be there from the last time
	}
	if _, err := user.Lookup(account); err != nil {
		return fmt.Errorf("the unit %s: %w", name, err)
	}
	arguments := []string{"-t", u.m.id, "-n", "setpriv", "--reuid=" + account, "--regid=" + account, "--init-groups"}
	if strings.Contains(unit["AmbientCapabilities"], "CAP_NET_BIND_SERVICE") {
		arguments = append(arguments, "--inh-caps=+net_bind_service", "--ambient-caps=+net_bind_service")
	}
	command := exec.Command("nsenter", append(append(arguments, "--"), strings.Fields(unit["ExecStart"])...)...)
	command.Dir = "/"
	command.Env = append(slices.Clone(u.m.world), strings.Fields(strings.ReplaceAll(unit["Environment"], "%S", "/var/lib"))...)
	if state := unit["StateDirectory"]; state != "" {
		directory := filepath.Join("/var/lib", state)
		if output, err := exec.Command("install", "-d", "-m", "700", "-o", account, "-g", account, directory).CombinedOutput(); err != nil {
			return fmt.Errorf("make %s: %w: %s", directory, err, output)
		}
		command.Env = append(command.Env, "STATE_DIRECTORY="+directory)
	}
	if directory := unit["WorkingDirectory"]; directory != "" {
		command.Dir = directory
	}

	log, err := os.OpenFile(u.log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	command.Stdout, command.Stderr = log, log

	var ready *net.UnixConn
	if unit["Type"] == "notify" || unit["Type"] == "notify-reload" {
		address := "/usr/local/notify-" + u.m.id + "-" + name
		_ = os.Remove(address)
		if ready, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"}); err != nil {
			return err
		}
		defer func() { _ = ready.Close() }()
		if err := os.Chmod(address, 0o777); err != nil {
			return err
		}
		command.Env = append(command.Env, "NOTIFY_SOCKET="+address)
	}
	if err := children.Start(command); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	u.running[name], u.ended[name] = command, ended
	if ready == nil {
		return nil
	}

	go func() { // a program that ends says nothing any more
		select {
		case <-ended:
			_ = ready.SetReadDeadline(time.Now())
		case <-time.After(patience):
		}
	}()
	_ = ready.SetReadDeadline(time.Now().Add(patience))
	said := make([]byte, 4096)
	for {
		n, err := ready.Read(said)
		if err != nil {
			text, _ := os.ReadFile(u.log(name))
			return fmt.Errorf("the unit %s did not say that it is ready: %w: %s", name, err, tail(string(text), 2000))
		}
		if strings.Contains(string(said[:n]), "READY=1") {
			return nil
		}
	}
}

// stop ends a unit as systemd does.
func (u *units) stop(name string) error {
	command := u.running[name]
	if command == nil {
		return nil
	}
	delete(u.running, name)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = command.Process.Signal(syscall.SIGTERM)
	select {
	case <-u.ended[name]:
		return nil
	case <-ctx.Done():
		_ = command.Process.Kill()
		return fmt.Errorf("the unit %s did not end within %s", name, patience)
	}
}
