package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"inbox/e2e/instance"
)

// comparison is one scenario of two programs that were measured in turn.
type comparison struct {
	scenario  string
	database  string
	base, now []Result // a round each
	bare      []Result
}

// ratios are, for each round, what this program does in a second by what the other one does: both halves of a round saw the machine
// in the same minute.
func (c comparison) ratios() (ratios []float64) {
	for i := range c.now {
		ratios = append(ratios, c.now[i].PerSecond/max(c.base[i].PerSecond, 0.1))
	}
	return ratios
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}

func medianOf(results []Result, of func(Result) float64) float64 {
	var values []float64
	for _, r := range results {
		values = append(values, of(r))
	}
	return median(values)
}

// compare builds the program of another commit and measures it in turn with this one. It fails when a scenario is slower than allowed in
// every round.
func (w *world) compare(ctx context.Context, root string) error {
	base, err := buildCommit(ctx, root, w.base, filepath.Join(w.directory, "base"))
	if err != nil {
		return err
	}
	scenarios := w.chosen()
	if err := w.prepare(scenarios); err != nil {
		return err
	}
	if err := w.pin(); err != nil {
		return err
	}

	var compared []comparison
	for _, s := range scenarios {
		for _, database := range w.engines() {
			c := comparison{scenario: s.name, database: database}
			for round := range w.rounds {
				fmt.Fprintf(os.Stderr, "%s, %s, round %d of %d …\n", s.name, database, round+1, w.rounds)
				if err := w.round(ctx, s, base, &c); err != nil {
					return fmt.Errorf("%s, %s: %w", s.name, database, err)
				}
			}
			compared = append(compared, c)
		}
	}

	return w.judge(os.Stdout, compared)
}

// round measures both programs once. The first of one round is the second of the next.
func (w *world) round(ctx context.Context, s scenario, base string, c *comparison) error {
	programs := []struct {
		binary string
		into   *[]Result
	}{{base, &c.base}, {w.binary, &c.now}}
	if len(c.now)%2 == 1 {
		slices.Reverse(programs)
	}

	ours := w.binary
	defer func() { w.binary = ours }()
	for _, p := range programs {
		w.binary = p.binary
		result, err := w.runScenario(ctx, s, c.database)
		if err != nil {
			return err
		}
		*p.into = append(*p.into, result)
	}

	for _, r := range rivals() {
		if c.database != "sqlite" || r.beside != s.name || r.name != "bare" {
			continue
		}
		result, err := w.runRival(ctx, r)
		if err != nil {
			return err
		}
		c.bare = append(c.bare, result)
	}
	return nil
}

// judge prints the table and names the scenarios that are slower than allowed.
func (w *world) judge(out io.Writer, compared []comparison) error {
	commit := output("git", "rev-parse", "--short", w.base)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "scenario\tdatabase\t%s per second\tthis one\tratio\tprocessor µs a message\tthis one\tp99 ms\tthis one\tbare per second\t\n", commit)
	var slower []string
	for _, c := range compared {
		rate := func(r Result) float64 { return r.PerSecond }
		processor := func(r Result) float64 { return r.Processor }
		p99 := func(r Result) float64 { return r.P99 }
		bare := "–"
		if len(c.bare) > 0 {
			bare = fmt.Sprintf("%.0f", medianOf(c.bare, rate))
		}
		fmt.Fprintf(table, "%s\t%s\t%.0f\t%.0f\t%.2f\t%.0f\t%.0f\t%.1f\t%.1f\t%s\t\n", c.scenario, c.database, medianOf(c.base, rate), medianOf(c.now, rate), median(c.ratios()),
			medianOf(c.base, processor), medianOf(c.now, processor), medianOf(c.base, p99), medianOf(c.now, p99), bare)
		if best := slices.Max(c.ratios()); best < w.least { // what slows a message down slows it in every round
			slower = append(slower, fmt.Sprintf("%s on %s does at most %.2f of what it did at %s", c.scenario, c.database, best, commit))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(slower) > 0 {
		return fmt.Errorf("%s; at least %.2f is asked for. Profile both commits with the benchmarks of bench_test.go, and repeat this before you believe it: make bench-compare BASE=%s",
			strings.Join(slower, ", "), w.least, commit)
	}
	return nil
}

// buildCommit compiles the program of a commit in a directory of its own; the working tree is not touched.
func buildCommit(ctx context.Context, root, commit, directory string) (binary string, err error) {
	archive := exec.CommandContext(ctx, "git", "-C", root, "archive", "--format=tar", commit)
	var files, complaint bytes.Buffer
	archive.Stdout, archive.Stderr = &files, &complaint
	if err := archive.Run(); err != nil {
		return "", fmt.Errorf("read commit %q: %w: %s", commit, err, strings.TrimSpace(complaint.String()))
	}
	source := filepath.Join(directory, "source")
	if err := unpack(&files, source); err != nil {
		return "", fmt.Errorf("unpack commit %s: %w", commit, err)
	}
	binary, err = instance.BuildIn(ctx, source, directory)
	if err != nil {
		return "", fmt.Errorf("commit %s: %w", commit, err)
	}
	return binary, os.RemoveAll(source)
}

// unpack writes the regular files of an archive of git below a directory.
func unpack(archive io.Reader, directory string) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(directory)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()

	entries := tar.NewReader(archive)
	for {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry.Typeflag != tar.TypeReg {
			continue
		}
		if err := root.MkdirAll(filepath.Dir(entry.Name), 0o755); err != nil {
			return err
		}
		content, err := io.ReadAll(entries)
		if err != nil {
			return err
		}
		if err := root.WriteFile(entry.Name, content, 0o644); err != nil {
			return err
		}
	}
}
