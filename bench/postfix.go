package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/e2e/postfix"
)

// mailRivals accept the mails of email_accept.
func mailRivals() []rival {
	return []rival{
		{"Postfix + OpenDKIM", "both of Debian with their defaults: each mail is verified (DKIM alone; ours checks SPF and DMARC as well) and synced into the queue, where it stays on hold, so that nothing is delivered meanwhile; processes and keys are warm", "email_accept", measurePostfix},
		{"Postfix + OpenDKIM by smtp-source", "the same with Postfix's own generator, which sends one of the mails again and again: it shows whether our generator holds Postfix up", "email_accept", measureBySource},
	}
}

// mailSystem is a Postfix that keeps what it accepts: OpenDKIM verifies each mail, the queue file is synced as always, and
// then the mail stays on hold, so that nothing is delivered meanwhile. It runs where the server runs.
type mailSystem struct {
	address, directory string
	milter             *postfix.Milter
	stop               func()
}

// otherParent is where a queue can lie when the users of Postfix cannot reach the directory of our data.
const otherParent = "/var/tmp"

// onDiskOf finds a directory on the disk of another that every user can reach.
func onDiskOf(directory string) (string, error) {
	if passable(directory) {
		return directory, nil
	}

	ours, err := device(directory)
	if err != nil {
		return "", err
	}

	other, err := device(otherParent)
	if err != nil {
		return "", err
	}
	if ours != other || !passable(otherParent) {
		return "", fmt.Errorf("the users of Postfix cannot reach %s, and %s is on another disk: clone the repository elsewhere", directory, otherParent)
	}

	return otherParent, nil
}

func passable(directory string) bool {
	for {
		info, err := os.Stat(directory)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if directory == filepath.Dir(directory) {
			return true
		}
		directory = filepath.Dir(directory)
	}
}

func device(directory string) (uint64, error) {
	var status syscall.Stat_t
	err := syscall.Stat(directory, &status)
	return status.Dev, err
}

// startMailSystem lays the queue beside the data of our servers, on the same disk.
func (w *world) startMailSystem(ctx context.Context) (mailSystem, error) {
	var s mailSystem
	parent, err := onDiskOf(filepath.Dir(w.directory))
	if err != nil {
		return s, &missingError{err}
	}
	if s.directory, err = postfix.NewDirectory(parent); err != nil {
		return s, &missingError{err}
	}

	s.stop = func() { _ = os.RemoveAll(s.directory) }
	if err := w.startIn(ctx, &s); err != nil {
		s.stop()
		return s, &missingError{err}
	}

	return s, nil
}

func (w *world) startIn(ctx context.Context, s *mailSystem) error {
	processor := ""
	if w.apart {
		processor = serverProcessor
	}

	milterAddress, err := instance.FreeAddress()
	if err != nil {
		return err
	}
	if s.address, err = instance.FreeAddress(); err != nil {
		return err
	}

	milter, err := postfix.StartMilter(ctx, s.directory, postfix.MilterSettings{Address: milterAddress, Resolver: w.well, Processor: processor})
	if err != nil {
		return err
	}

	s.milter = milter
	system, err := postfix.New(s.directory, postfix.Settings{
		Hostname: "mx.inbox.test", Processor: processor,
		Main: []string{
			"maillog_file =", // syslog, as Debian sets it up
			"relay_domains = inbox.test",
			"smtpd_recipient_restrictions = check_recipient_access static:HOLD, permit_mynetworks, reject",
			"smtpd_milters = inet:" + milterAddress,
		},
		Services: []string{s.address + " inet n - n - - smtpd"},
	})
	if err == nil {
		err = system.Start(ctx)
	}
	if err != nil {
		milter.Stop()
		return err
	}

	remove := s.stop
	s.stop = func() {
		if err := system.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		milter.Stop()
		remove()
	}

	return nil
}

// measurePostfix sends it the same mails over as many connections, with the same generator. Its processes are started and
// its key cache is filled before.
func measurePostfix(ctx context.Context, w *world, _ string) (measurement, int64, error) {
	system, err := w.startMailSystem(ctx)
	if err != nil {
		return measurement{}, 0, err
	}
	defer system.stop()

	mails := w.pools.busyMails
	connections := make([]*load.MailSender, mailConnections)
	defer closeAll(connections)

	for i := range connections {
		if err := bring(system.address, &connections[i], mails[i]); err != nil {
			return measurement{}, 0, err
		}
	}

	var next atomic.Int64
	next.Store(mailConnections)
	m, err := saturate(ctx, w.duration, mailConnections, func(worker int) error {
		i := int(next.Add(1)) - 1
		if i >= len(mails) {
			return errUsedUp
		}
		return bring(system.address, &connections[worker], mails[i])
	})
	if err != nil {
		return m, 0, errors.Join(system.milter.Running(), err)
	}

	return m, 0, system.check(mailConnections + len(m.latencies))
}

// check demands that all mails are in the queue, and that each carries the verdict of OpenDKIM.
func (s mailSystem) check(mails int) error {
	files, err := filepath.Glob(filepath.Join(s.directory, "queue", "hold", "*"))
	if err != nil {
		return err
	}
	if len(files) < mails {
		return fmt.Errorf("Postfix acknowledged %d mails, %d are in its queue", mails, len(files))
	}

	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if !bytes.Contains(text, []byte("dkim=pass")) {
			return fmt.Errorf("a mail in the queue was not verified: %q", text[:min(len(text), 2000)])
		}
	}

	return nil
}

// probeMails are sent first, to know how many make a whole measurement.
const probeMails = 10 * mailConnections

// measureBySource lets Postfix's own generator send one of the mails again and again.
func measureBySource(ctx context.Context, w *world, directory string) (measurement, int64, error) {
	system, err := w.startMailSystem(ctx)
	if err != nil {
		return measurement{}, 0, err
	}
	defer system.stop()

	mail := w.pools.busyMails[0]
	file := filepath.Join(directory, "mail.eml")

	// It ends the lines itself.
	if err := os.WriteFile(file, bytes.ReplaceAll(mail.raw, []byte("\r\n"), []byte("\n")), 0o600); err != nil {
		return measurement{}, 0, err
	}

	host, port, err := net.SplitHostPort(system.address)
	if err != nil {
		return measurement{}, 0, err
	}

	send := func(count int) error {
		// A connection each, kept open; the file as it is.
		output, err := exec.CommandContext(ctx, "smtp-source", "-d", "-s", strconv.Itoa(mailConnections), "-m", strconv.Itoa(count),
			"-F", file, "-f", mail.from, "-t", mail.to, host+":"+port).CombinedOutput()
		if err != nil {
			return fmt.Errorf("smtp-source: %w: %s", err, output)
		}
		return nil
	}

	started := time.Now()
	if err := send(probeMails); err != nil {
		return measurement{}, 0, err
	}

	count := max(probeMails, int(probeMails*w.duration/time.Since(started)))
	started = time.Now()

	if err := send(count); err != nil {
		return measurement{}, 0, err
	}

	m := measurement{completed: count, elapsed: time.Since(started)}
	return m, 0, system.check(probeMails + count)
}
