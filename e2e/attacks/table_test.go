package attacks

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

var rows struct {
	mu  sync.Mutex
	all []row
}

func record(r row) {
	rows.mu.Lock()
	defer rows.mu.Unlock()
	rows.all = append(rows.all, r)
}

var columns = []string{
	"attack", "p50 alone", "p50 attacked", "p99 alone", "p99 attacked", "honest messages", "refused", "CPU of the server", "CPU a request", "memory", "disk", "the attacker heard",
}

func (r row) cells() []string {
	return []string{
		r.point + " " + r.name, milliseconds(r.before.quantile(.5)), milliseconds(r.during.quantile(.5)), milliseconds(r.before.quantile(.99)),
		milliseconds(r.during.quantile(.99)), strconv.Itoa(r.during.sent), strconv.Itoa(len(r.during.refused) + len(r.during.unanswered)),
		fmt.Sprintf("%.2f s in %.1f s", r.processor.Seconds(), r.lasted.Seconds()), milliseconds(r.each()), mebibytes(r.memory), mebibytes(r.disk), r.answers.String(),
	}
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func (r row) String() string {
	var text strings.Builder
	for i, cell := range r.cells() {
		if i > 0 {
			text.WriteString(columns[i] + " ")
		}
		text.WriteString(cell + "; ")
	}
	return strings.TrimSuffix(text.String(), "; ")
}

// printTable prints what was measured, and writes it into the file that ATTACK_REPORT names.
func printTable() {
	rows.mu.Lock()
	defer rows.mu.Unlock()
	if len(rows.all) == 0 {
		return
	}
	var text strings.Builder
	line := func(cells []string) { text.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(columns)
	text.WriteString(strings.Repeat("|---", len(columns)) + "|\n")
	for _, one := range rows.all {
		line(one.cells())
	}
	fmt.Print("\n" + text.String() + "\n")
	if file := os.Getenv("ATTACK_REPORT"); file != "" {
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			fmt.Println(err)
		}
	}
}
