package postfix

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// MilterSettings says what OpenDKIM does with the mail of a Postfix.
type MilterSettings struct {
	Address string // host:port on which Postfix reaches it
	// Resolver is the IP address of a name server on port 53. Nothing below .test can be asked there: the resolver inside
	// (libunbound) knows itself that there is no such domain.
	Resolver string
	// Signs is the domain for which it signs what comes by a listener with milter_macro_daemon_name=ORIGINATING; empty = it
	// only verifies. What comes by other listeners is verified.
	Signs     string
	Selector  string
	Key       *rsa.PrivateKey
	Processor string // list of processors for taskset; empty = all
}

// Milter is a running OpenDKIM.
type Milter struct {
	Address string
	command *exec.Cmd
	output  strings.Builder // to be read when it has ended
	ended   chan struct{}
}

// StartMilter starts OpenDKIM with its files in a directory of NewDirectory.
func StartMilter(ctx context.Context, directory string, settings MilterSettings) (*Milter, error) {
	if err := ready("opendkim"); err != nil {
		return nil, err
	}

	file, err := settings.write(directory)
	if err != nil {
		return nil, fmt.Errorf("configure OpenDKIM: %w", err)
	}

	program, err := find("opendkim")
	if err != nil {
		return nil, err
	}

	arguments := []string{program, "-f", "-x", file}
	if settings.Processor != "" {
		arguments = append([]string{"taskset", "-c", settings.Processor}, arguments...)
	}

	m := &Milter{Address: settings.Address, command: exec.Command(arguments[0], arguments[1:]...), ended: make(chan struct{})}
	m.command.Stdout, m.command.Stderr = &m.output, &m.output

	if err := m.command.Start(); err != nil {
		return nil, fmt.Errorf("start OpenDKIM: %w", err)
	}

	unguard, err := guard("kill", strconv.Itoa(m.command.Process.Pid))
	if err != nil {
		_ = m.command.Process.Kill()
		unguard = func() {}
	}

	go func() {
		_ = m.command.Wait()
		unguard()
		close(m.ended)
	}()

	if err != nil {
		<-m.ended
		return nil, err
	}
	if err := m.await(ctx); err != nil {
		m.Stop()
		return nil, fmt.Errorf("start OpenDKIM: %w: %s", err, m.output.String())
	}

	return m, nil
}

func (s MilterSettings) write(directory string) (string, error) {
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return "", err
	}

	lines := []string{
		"Socket inet:" + port + "@" + host, "UserID opendkim", "Syslog no", "Background no",
		"Nameservers " + s.Resolver, "Canonicalization relaxed/simple", // as Debian sets it up
		"InternalHosts 192.0.2.1", // not loopback, from where everything comes here
		"RequireSafeKeys no",      // it looks at all directories above, and /tmp is open to everybody
	}

	if s.Signs == "" {
		lines = append(lines, "Mode v")
	} else {
		key, err := s.writeKey(directory)
		if err != nil {
			return "", err
		}
		lines = append(lines, "Mode sv", "MTA ORIGINATING", "Domain "+s.Signs, "Selector "+s.Selector, "KeyFile "+key, "OversignHeaders From")
	}

	file := filepath.Join(directory, "opendkim.conf")
	return file, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

func (s MilterSettings) writeKey(directory string) (string, error) {
	file := filepath.Join(directory, "opendkim.pem")
	encoded := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(s.Key)})
	if err := os.WriteFile(file, encoded, 0o600); err != nil {
		return "", err
	}

	uid, gid, err := ids("opendkim")
	if err != nil {
		return "", err
	}
	return file, os.Chown(file, uid, gid)
}

// startPause is the time between two looks whether it listens.
const startPause = 10 * time.Millisecond

func (m *Milter) await(ctx context.Context) error {
	ticker := time.NewTicker(startPause)
	defer ticker.Stop()
	for {
		conn, err := net.Dial("tcp", m.Address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-m.ended:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// Running is nil while it runs, and otherwise says how it ended.
func (m *Milter) Running() error {
	select {
	case <-m.ended:
		return fmt.Errorf("OpenDKIM ended by itself: %s: %s", m.command.ProcessState, m.output.String())
	default:
		return nil
	}
}

// Stop ends it at once: it keeps nothing, and asked politely it takes seconds.
func (m *Milter) Stop() {
	_ = m.command.Process.Kill()
	<-m.ended
}
