// Command bench measures the built program on both databases and writes docs/benchmarks.md. It is started by `make
// bench`. Server and load generator share all processors; with -apart each gets one of its own, which holds the figures
// steadier and the server to one. It prints one JSON line per scenario. It is no test: it fails only when something
// could not be measured.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"inbox/bench/a2asdk"
	"inbox/bench/bare"
	"inbox/e2e/instance"
)

// Result is the report of one scenario.
type Result struct {
	Scenario  string  `json:"scenario"`
	Engine    string  `json:"engine"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_ms"`
	P95       float64 `json:"p95_ms"`
	P99       float64 `json:"p99_ms"`
	RSS       float64 `json:"rss_mb"`
	Processor float64 `json:"processor_us,omitempty"` // of the server, a message
	Rival     bool    `json:"rival,omitempty"`        // Engine is the name of another program
	Missing   string  `json:"missing,omitempty"`      // why the other program was not measured
}

type options struct {
	duration time.Duration
	postgres string // URL of a database beside which new ones are made; empty = SQLite only
	only     *regexp.Regexp
	report   string // file; empty = none
	load     string // load average when the run began
	apart    bool   // server and generator on a processor each

	base   string  // commit to compare with; empty = none
	rounds int     // of a comparison
	least  float64 // what a scenario must do of what it did at that commit

	bare, bareDirectory string // be bench/bare at this address instead
	a2asdk              string // or bench/a2asdk
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse() (options, error) {
	seconds, err := strconv.Atoi(or(os.Getenv("BENCH_SECONDS"), "3"))
	if err != nil || seconds < 1 || seconds > 60 {
		return options{}, fmt.Errorf("BENCH_SECONDS is %q; want a number from 1 to 60", os.Getenv("BENCH_SECONDS"))
	}

	only := flag.String("only", "", "run only the scenarios whose name matches this regular expression")
	report := flag.String("report", "", "write the table into this file")
	apart := flag.Bool("apart", false, "give server and load generator one processor each")
	base := flag.String("compare", "", "measure in turn with the program of this commit, and fail when this one is slower than -least of it")
	rounds := flag.Int("rounds", 3, "rounds of -compare")
	least := flag.Float64("least", 0.9, "the least share of the other program's rate with which -compare is content")
	bareAddress := flag.String("bare", "", "be the yardstick bench/bare at this address, for the benchmark itself")
	bareDirectory := flag.String("bare-directory", "", "directory for the data of -bare")
	sdkAddress := flag.String("a2asdk", "", "be the yardstick bench/a2asdk at this address, for the benchmark itself")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return options{}, fmt.Errorf("-only: %w", err)
	}

	return options{
		duration: time.Duration(seconds) * time.Second, postgres: os.Getenv("INBOX_TEST_DATABASE_URL"),
		only: pattern, report: *report, apart: *apart && runtime.NumCPU() > 1,
		base: *base, rounds: *rounds, least: *least,
		bare: *bareAddress, bareDirectory: *bareDirectory, a2asdk: *sdkAddress, load: or(os.Getenv("BENCH_LOAD"), loadAverage()),
	}, nil
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	chosen, err := parse()
	if err != nil {
		return err
	}
	if chosen.bare != "" {
		return bare.Serve(ctx, chosen.bare, chosen.bareDirectory)
	}
	if chosen.a2asdk != "" {
		return a2asdk.Serve(ctx, chosen.a2asdk)
	}

	root, err := instance.Root()
	if err != nil {
		return err
	}

	// Not in the directory for temporary files: that may be memory, where a durable write costs nothing.
	results := filepath.Join(root, "bench", "results")
	if err := os.MkdirAll(results, 0o755); err != nil {
		return err
	}

	directory, err := os.MkdirTemp(results, "run-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(directory) }()

	binary, err := instance.Build(ctx, directory)
	if err != nil {
		return err
	}

	w, err := newWorld(binary, directory, chosen)
	if err != nil {
		return err
	}
	defer w.close()

	if chosen.base != "" {
		return w.compare(ctx, root)
	}
	measured, err := w.measure(ctx, os.Stdout)
	if err != nil || chosen.report == "" {
		return err
	}

	return writeReport(filepath.Join(root, chosen.report), directory, chosen, measured)
}

// measure runs every scenario on every engine.
func (w *world) measure(ctx context.Context, out io.Writer) ([]Result, error) {
	scenarios := w.chosen()
	if err := w.prepare(scenarios); err != nil {
		return nil, err
	}
	if err := w.pin(); err != nil {
		return nil, err
	}

	var results []Result
	for _, engine := range w.engines() {
		for _, scenario := range scenarios {
			if scenario.prepare != nil && engine != "sqlite" {
				continue // a file is copied
			}
			fmt.Fprintf(os.Stderr, "%s on %s …\n", scenario.name, engine)
			result, err := w.runScenario(ctx, scenario, engine)
			if err != nil {
				return nil, fmt.Errorf("%s on %s: %w", scenario.name, engine, err)
			}
			if err := json.NewEncoder(out).Encode(result); err != nil {
				return nil, err
			}

			results = append(results, result)
			if engine != "sqlite" {
				continue
			}

			others, err := w.runRivals(ctx, scenario.name)
			if err != nil {
				return nil, err
			}

			for _, other := range others {
				if err := json.NewEncoder(out).Encode(other); err != nil {
					return nil, err
				}
			}

			results = append(results, others...)
		}
	}

	return results, nil
}

// Processors of server and generator.
const (
	serverProcessor    = "0"
	generatorProcessor = "1"
)

// pin moves this process to a processor of its own, after it has used all of them to prepare.
func (w *world) pin() error {
	if !w.apart {
		return nil
	}
	output, err := exec.Command("taskset", "-a", "-p", "-c", generatorProcessor, strconv.Itoa(os.Getpid())).CombinedOutput()
	if err != nil {
		return fmt.Errorf("taskset (Debian package util-linux): %w: %s", err, output)
	}
	return nil
}
