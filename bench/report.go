package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"text/template"
	"time"
)

const reportText = `# Benchmarks

<!-- Written by make bench; do not edit by hand. -->

Measured on {{.Date}} by ` + "`make bench BENCH_SECONDS={{.Seconds}}`" + `, {{.Seconds}} s a scenario, each on a fresh server with an empty database.

- Machine: {{.Processor}}, {{.Processors}} processors, {{.Memory}}, Linux {{.Kernel}}, data on {{.Filesystem}}.
- Program: {{.Go}}, CGO off{{if .Commit}}, commit {{.Commit}}{{end}}. Load average when the run began: {{.Load}}. PostgreSQL: {{.PostgreSQL}}, fsync on, on the same machine.
- {{if .Apart}}The server runs on processor 0, the load generator on processor 1. PostgreSQL's own processes use both.{{else}}Server, load generator and PostgreSQL share all processors.{{end}}
- Every acknowledgement is a committed, synced transaction (SQLite: WAL, synchronous FULL; PostgreSQL: synchronous_commit on).
- Messages are signed before the measurement. Percentiles are by nearest rank over all successes; more than 1 % of failures would have stopped the run.
- "The agent is busy": messages for an agent that does not answer meanwhile, so that accepting is measured alone. In the *reply* and *echo* rows everything happens at once.

| scenario | database | per second | p50 ms | p95 ms | p99 ms | memory MB |
|---|---|---:|---:|---:|---:|---:|
{{range .Results}}{{if not .Rival}}| {{.Scenario}} | {{.Engine}} | {{rate .PerSecond}} | {{time .P50}} | {{time .P95}} | {{time .P99}} | {{printf "%.0f" .RSS}} |
{{end}}{{end}}
Beside other programs, measured by the same generator with the same messages right after ours on SQLite:

| scenario | program | per second | p50 ms | p99 ms | memory MB | ours in relation |
|---|---|---:|---:|---:|---:|---:|
{{range .Results}}{{if .Missing}}| {{.Scenario}} | {{.Engine}} | not measured: {{.Missing}} | – | – | – | – |
{{else if .Rival}}| {{.Scenario}} | {{.Engine}} | {{rate .PerSecond}} | {{time .P50}} | {{time .P99}} | {{rate .RSS}} | {{relation .}} |
{{end}}{{end}}
{{range .Rivals}}- ` + "`{{.Name}}`" + `: {{.About}}
{{end}}
What the scenarios are:

{{range .Scenarios}}- ` + "`{{.Name}}`" + `: {{.About}}
{{end}}`

type described struct{ Name, About string }

type page struct {
	Date, Processor, Memory, Kernel, Filesystem, Go, Commit, PostgreSQL, Load string
	Seconds, Processors                                                       int
	Apart                                                                     bool
	Results                                                                   []Result
	Scenarios, Rivals                                                         []described
}

func writeReport(file, directory string, chosen options, results []Result) error {
	p := page{
		Date: time.Now().UTC().Format("2006-01-02"), Processor: field("/proc/cpuinfo", "model name"), Memory: memory(),
		Kernel: output("uname", "-r"), Filesystem: filesystem(directory), Go: runtime.Version(),
		Commit: output("git", "rev-parse", "--short", "HEAD"), PostgreSQL: or(output("psql", "--version"), "not measured"),
		Load:    chosen.load,
		Seconds: int(chosen.duration / time.Second), Processors: runtime.NumCPU(), Apart: chosen.apart, Results: results,
	}

	for _, s := range scenarios() {
		p.Scenarios = append(p.Scenarios, described{s.name, s.about})
	}

	for _, other := range rivals() {
		if one := (described{other.name, other.about}); !slices.Contains(p.Rivals, one) {
			p.Rivals = append(p.Rivals, one)
		}
	}

	number := func(format string) func(float64) string {
		return func(value float64) string {
			if value == 0 {
				return "–"
			}
			return fmt.Sprintf(format, value)
		}
	}

	parsed, err := template.New("report").Funcs(template.FuncMap{"rate": number("%.0f"), "time": number("%.1f"), "relation": relation(results)}).Parse(reportText)
	if err != nil {
		return fmt.Errorf("parse report: %w", err)
	}

	var text bytes.Buffer
	if err := parsed.Execute(&text, p); err != nil {
		return fmt.Errorf("write report: %w", err)
	}

	return os.WriteFile(file, text.Bytes(), 0o644)
}

// relation says how many times as fast as another program we were in its scenario.
func relation(results []Result) func(Result) string {
	return func(other Result) string {
		for _, ours := range results {
			if ours.Scenario == other.Scenario && ours.Engine == "sqlite" && other.PerSecond > 0 {
				return fmt.Sprintf("%.2f×", ours.PerSecond/other.PerSecond)
			}
		}
		return "–"
	}
}

// field returns the first value of a "name : value" line of a file.
func field(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}

	for line := range strings.Lines(string(text)) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func memory() string {
	var kibibytes int64
	if _, err := fmt.Sscanf(field("/proc/meminfo", "MemTotal"), "%d kB", &kibibytes); err != nil {
		return "unknown memory"
	}
	return fmt.Sprintf("%d GiB memory", (kibibytes+1<<19)>>20)
}

// loadAverage is what else the machine was doing in the last minute: a busy machine makes a worthless report.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

func filesystem(directory string) string {
	return or(output("stat", "-f", "-c", "%T", directory), "unknown")
}

func output(program string, arguments ...string) string {
	text, err := exec.Command(program, arguments...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
