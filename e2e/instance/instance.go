package instance

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"inbox/internal/children"
)

// Instance is one configured server. It can be started, stopped or killed and started again.
type Instance struct {
	Settings  Settings
	Directory string // holds the configuration, the data and the log
	Binary    string
	Processor string // list of processors for taskset; empty = all

	mu      sync.Mutex
	process *process
}

// process is one run of the server.
type process struct {
	command *exec.Cmd
	ended   chan struct{} // closed when the process is gone
}

// New writes the configuration into the directory.
func New(binary, directory string, settings Settings) (*Instance, error) {
	if err := settings.fill(); err != nil {
		return nil, err
	}
	instance := &Instance{Settings: settings, Directory: directory, Binary: binary}
	return instance, instance.Configure()
}

// Configure writes the configuration file again, after a change of Settings.
func (i *Instance) Configure() error {
	text := i.Settings.file(filepath.Join(i.Directory, Data))
	if err := os.WriteFile(i.ConfigFile(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	if err := os.WriteFile(filepath.Join(i.Directory, secretKeyFile), []byte(secretKey), 0o600); err != nil {
		return fmt.Errorf("write secret key: %w", err)
	}
	return nil
}

// Data is the directory of the server's data in Directory.
const Data = "data"

// ConfigFile is the path of inbox.toml.
func (i *Instance) ConfigFile() string { return filepath.Join(i.Directory, "inbox.toml") }

// URL is the public URL.
func (i *Instance) URL() string { return i.Settings.scheme() + "://" + i.Settings.public() }

// Actor is the IRI of an agent's actor.
func (i *Instance) Actor(agent string) string { return i.URL() + "/agents/" + agent }

// Start starts the server and waits until it says that it is ready.
func (i *Instance) Start(ctx context.Context) error {
	log, err := os.OpenFile(i.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = log.Close() }()

	command := i.command("serve")
	command.Stdout, command.Stderr = log, log

	if err := children.Start(command); err != nil {
		return fmt.Errorf("start server: %w", err)
	}

	started := &process{command: command, ended: make(chan struct{})}
	go func() {
		_ = command.Wait()
		close(started.ended)
	}()

	i.mu.Lock()
	i.process = started
	i.mu.Unlock()
	return i.awaitReady(ctx, started)
}

func (i *Instance) command(arguments ...string) *exec.Cmd {
	arguments = append([]string{i.Binary, "--config", i.ConfigFile()}, arguments...)
	if i.Processor != "" {
		arguments = append([]string{"taskset", "-c", i.Processor}, arguments...)
	}
	command := exec.Command(arguments[0], arguments[1:]...)
	command.Dir, command.Env = i.Directory, i.Settings.environment()
	return command
}

// readyPause is the time between two questions while the server starts.
const readyPause = 2 * time.Millisecond

// unchecked is for a certificate that names a host where the question goes to an address.
var unchecked = &tls.Config{InsecureSkipVerify: true} // asks only whether our own child process is ready

func (i *Instance) awaitReady(ctx context.Context, started *process) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: unchecked}, Timeout: 5 * time.Second}
	ticker := time.NewTicker(readyPause)
	defer ticker.Stop()
	for {
		response, err := client.Get(i.Settings.scheme() + "://" + i.Settings.HTTP + "/readyz") // itself, not what stands before it
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK || i.Settings.Unready {
				return nil
			}
		}

		select {
		case <-started.ended:
			return fmt.Errorf("the server ended before it was ready (%s); its log:\n%s", started.command.ProcessState, i.Log())
		case <-ctx.Done():
			return fmt.Errorf("the server was not ready in time: %w; its log:\n%s", ctx.Err(), i.Log())
		case <-ticker.C:
		}
	}
}

func (i *Instance) running() *process {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.process
}

// ErrNotRunning is returned where a running server is needed.
var ErrNotRunning = errors.New("the server does not run")

// Stop asks the server to end (SIGTERM), waits for it and returns its exit code.
func (i *Instance) Stop(ctx context.Context) (int, error) {
	return i.end(ctx, syscall.SIGTERM)
}

// Signal sends a signal and waits for nothing.
func (i *Instance) Signal(signal syscall.Signal) error {
	process := i.running()
	if process == nil {
		return ErrNotRunning
	}
	return process.command.Process.Signal(signal)
}

// Kill ends the server at once (SIGKILL).
func (i *Instance) Kill() error {
	_, err := i.end(context.Background(), syscall.SIGKILL)
	return err
}

func (i *Instance) end(ctx context.Context, signal syscall.Signal) (int, error) {
	process := i.running()
	if process == nil {
		return 0, ErrNotRunning
	}
	if err := process.command.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return 0, fmt.Errorf("signal server: %w", err)
	}

	select {
	case <-process.ended:
		return process.command.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("the server did not end in time: %w", ctx.Err())
	}
}

// Alive reports whether the server process runs.
func (i *Instance) Alive() bool {
	process := i.running()
	if process == nil {
		return false
	}
	select {
	case <-process.ended:
		return false
	default:
		return true
	}
}

// Run runs another command of the program with the same configuration and returns what it printed.
func (i *Instance) Run(ctx context.Context, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, i.Binary, append([]string{"--config", i.ConfigFile()}, arguments...)...)
	command.Dir, command.Env = i.Directory, i.Settings.environment()
	var output, problems bytes.Buffer
	command.Stdout, command.Stderr = &output, &problems
	err := children.Start(command)
	if err == nil {
		err = command.Wait()
	}
	if err != nil {
		return output.String(), fmt.Errorf("inbox %s: %w: %s", strings.Join(arguments, " "), err, problems.String())
	}
	if line := logLine.FindString(problems.String()); line != "" {
		return output.String(), fmt.Errorf("inbox %s printed a line of its log: %s", strings.Join(arguments, " "), line)
	}
	return output.String(), nil
}

// logLine finds what the log says below warnings, in each of its forms.
var logLine = regexp.MustCompile(`(?m)^(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d (INFO|DEBUG) .*|.*level=(INFO|DEBUG).*|.*"level":"(INFO|DEBUG)".*)$`)

// Token mints a bearer token for a peer.
func (i *Instance) Token(ctx context.Context, name string) (string, error) {
	output, err := i.Run(ctx, "tokens", "create", name)
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return strings.TrimSpace(lines[len(lines)-1]), nil
}

func (i *Instance) logFile() string { return filepath.Join(i.Directory, "server.log") }

// Log is everything that the server printed, over all its runs.
func (i *Instance) Log() string {
	text, err := os.ReadFile(i.logFile())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Process is the id of the running server.
func (i *Instance) Process() (int, error) {
	process := i.running()
	if process == nil {
		return 0, ErrNotRunning
	}
	return process.command.Process.Pid, nil
}

// Memory is the resident memory of the running server in bytes.
func (i *Instance) Memory() (int64, error) { return i.status("VmRSS:") }

// Anonymous is the memory of the running server without the pages of its program, which the system takes back when it needs them, in bytes.
func (i *Instance) Anonymous() (int64, error) { return i.status("RssAnon:") }

// Peak is the most memory that the running server had at one time, in bytes.
func (i *Instance) Peak() (int64, error) { return i.status("VmHWM:") }

// status reads a figure of proc(5).
func (i *Instance) status(field string) (int64, error) {
	process := i.running()
	if process == nil {
		return 0, ErrNotRunning
	}

	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process.command.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}

	for line := range strings.Lines(string(status)) {
		if value, found := strings.CutPrefix(line, field); found {
			kibibytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kibibytes << 10, err
		}
	}

	return 0, errors.New("read memory: the process has none any more")
}

// ticksPerSecond is USER_HZ, which Linux fixes at 100 for user space.
const ticksPerSecond = 100

// ProcessorTime is what the running server has used of processors since it started.
func (i *Instance) ProcessorTime() (time.Duration, error) {
	process := i.running()
	if process == nil {
		return 0, ErrNotRunning
	}

	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.command.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}

	// The name in parentheses may hold anything; after it, fields 14 and 15 of proc(5) are user and system time.
	_, after, _ := strings.Cut(string(status), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0, errors.New("read processor time: unknown form")
	}

	user, errUser := strconv.ParseInt(fields[11], 10, 64)
	system, errSystem := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / ticksPerSecond, errors.Join(errUser, errSystem)
}
