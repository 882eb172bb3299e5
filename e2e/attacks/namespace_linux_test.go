package attacks

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"inbox/internal/children"
)

// databaseVariable is where the tests find a PostgreSQL.
const databaseVariable = "INBOX_TEST_DATABASE_URL"

// network makes every address that the tests use one of the machine: packets to them never leave the namespace.
const network = `ip link set lo up && ip route add local 0.0.0.0/1 dev lo && ip route add local 128.0.0.0/2 dev lo &&
ip route add local 192.0.0.0/3 dev lo && exec "$0" "$@"`

// inOwnNetwork runs this program again in a network namespace that holds the whole Internet, and returns its exit code. PostgreSQL
// stays outside: it is reached through a socket in the directory.
func inOwnNetwork(directory string, variables ...string) (int, error) {
	database, closeRelay, err := relayPostgres(directory)
	if err != nil {
		return 0, err
	}
	defer closeRelay()
	attributes := []*syscall.SysProcAttr{
		{Cloneflags: syscall.CLONE_NEWNET}, // as root
		{
			Cloneflags:  syscall.CLONE_NEWNET | syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		},
	}
	var problems []error
	for _, one := range attributes {
		command := exec.Command("sh", append([]string{"-c", network, os.Args[0]}, os.Args[1:]...)...)
		command.Env = append(os.Environ(), variables...)
		if database != "" {
			command.Env = append(command.Env, databaseVariable+"="+database)
		}
		command.Stdout, command.Stderr, command.SysProcAttr = os.Stdout, os.Stderr, one
		if err := children.Start(command); err != nil {
			problems = append(problems, err)
			continue
		}
		err := command.Wait()
		if ended, is := errors.AsType[*exec.ExitError](err); is {
			return ended.ExitCode(), nil
		}
		return 0, err
	}
	return 0, fmt.Errorf("a network of its own is not allowed here (run as root, or allow unprivileged user namespaces: "+
		"sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns): %w", errors.Join(problems...))
}

// relayPostgres listens on a socket as PostgreSQL does and passes connections on to the one of the environment. It returns the URL of
// the socket; empty = there is none.
func relayPostgres(directory string) (database string, closeRelay func(), err error) {
	parsed, err := url.Parse(os.Getenv(databaseVariable))
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", databaseVariable, err)
	}
	if parsed.Host == "" {
		return "", func() {}, nil
	}
	listener, err := net.Listen("unix", filepath.Join(directory, ".s.PGSQL."+parsed.Port()))
	if err != nil {
		return "", nil, err
	}
	target := parsed.Host
	go func() {
		for {
			inner, err := listener.Accept()
			if err != nil {
				return
			}
			go relay(inner, target)
		}
	}()
	query := parsed.Query()
	query.Set("host", directory)
	query.Set("port", parsed.Port())
	query.Set("sslmode", "disable")
	parsed.Host, parsed.RawQuery = "", query.Encode()
	return parsed.String(), func() { _ = listener.Close() }, nil
}

func relay(inner net.Conn, target string) {
	defer func() { _ = inner.Close() }()
	outer, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = outer.Close() }()
	go func() {
		_, _ = io.Copy(outer, inner)
		_ = outer.Close()
	}()
	_, _ = io.Copy(inner, outer)
}
