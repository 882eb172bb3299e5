package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// rival is another program that is measured by the same generator with the same messages, right after one of our
// scenarios on SQLite, so that both saw the same machine.
type rival struct {
	name   string // in the column of databases
	about  string // for the report
	beside string // our scenario
	// measure starts the program, measures and ends it.
	measure func(ctx context.Context, w *world, directory string) (measurement, int64, error)
}

// missingError says that a rival cannot run here. Everything else is measured all the same.
type missingError struct{ cause error }

func (e *missingError) Error() string { return e.cause.Error() }

func rivals() []rival {
	return slices.Concat(a2aRivals(), mailRivals(), []rival{
		{"bare", "the least honest program: checks digest and signature, commits two rows to SQLite with one sync for all that wait (`bench/bare`); no policy, no limits, no agents", "activitypub_accept", measureBare},
	})
}

// runRivals measures everything that stands beside a scenario.
func (w *world) runRivals(ctx context.Context, scenario string) ([]Result, error) {
	var results []Result
	for _, r := range rivals() {
		if r.beside != scenario {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s by %s …\n", scenario, r.name)
		result, err := w.runRival(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("%s by %s: %w", scenario, r.name, err)
		}
		results = append(results, result)
	}
	return results, nil
}

func (w *world) runRival(ctx context.Context, r rival) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	directory, err := os.MkdirTemp(w.directory, r.name+"-")
	if err != nil {
		return Result{}, err
	}

	m, memory, err := r.measure(ctx, w, directory)
	if missing := new(missingError); errors.As(err, &missing) {
		fmt.Fprintf(os.Stderr, "  not measured: %v\n", err)
		reason, _, _ := strings.Cut(err.Error(), "\n")
		return Result{Scenario: r.beside, Engine: r.name, Rival: true, Missing: reason}, nil
	}
	if err != nil {
		return Result{}, err
	}

	w.client.CloseIdleConnections()
	result := m.result(memory)
	result.Scenario, result.Engine, result.Rival = r.beside, r.name, true
	return result, nil
}

// measureBare runs this program as bench/bare at the server's address, which is part of what is signed.
func measureBare(ctx context.Context, w *world, directory string) (measurement, int64, error) {
	program, err := os.Executable()
	if err != nil {
		return measurement{}, 0, err
	}

	command := w.placed(ctx, program, "-bare", w.http, "-bare-directory", directory)
	command.Stderr = os.Stderr

	if err := command.Start(); err != nil {
		return measurement{}, 0, err
	}
	defer func() { _ = command.Wait() }()
	defer func() { _ = command.Process.Signal(syscall.SIGTERM) }()

	if err := w.awaitAnswer(ctx, "http://"+w.http+"/"); err != nil {
		return measurement{}, 0, err
	}

	m, err := measureNotes(ctx, w, nil)
	if err != nil {
		return m, 0, err
	}

	memory, err := residentMemory(command.Process.Pid)
	return m, memory, err
}

// placed is a command on the server's processors.
func (w *world) placed(ctx context.Context, program string, arguments ...string) *exec.Cmd {
	if w.apart {
		program, arguments = "taskset", append([]string{"-c", serverProcessor, program}, arguments...)
	}
	return exec.CommandContext(ctx, program, arguments...)
}

// awaitAnswer asks until someone answers.
func (w *world) awaitAnswer(ctx context.Context, address string) error {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return err
		}

		response, err := w.client.Do(request)
		if err == nil {
			return response.Body.Close()
		}

		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// residentMemory is VmRSS of proc(5), in bytes.
func residentMemory(process int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process))
	if err != nil {
		return 0, err
	}

	for line := range strings.Lines(string(status)) {
		if value, found := strings.CutPrefix(line, "VmRSS:"); found {
			kibibytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kibibytes << 10, err
		}
	}
	return 0, errors.New("the process is gone")
}
