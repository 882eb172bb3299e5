package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Retention is how long is kept what came in and what was made of it ([operating.md](operating.md#what-is-kept-and-how-long)).
// Times begin with the last change of a message; `"0s"` = for ever. A message that has not ended, or whose answer is still
// on its way, loses nothing. What is held and what is never answered have `limits.held_for` and `limits.silent_for`.
type Retention struct {
	// Questions and answers with everything that was made of them. The rows stay without words, so that a repeat is recognised.
	Messages time.Duration `toml:"messages"`
	// Messages as they came on the wire: the mail, the activity, the request.
	Originals time.Duration `toml:"originals"`
	// Files in questions and answers; a line says that there was one.
	Files time.Duration `toml:"files"`
	// Timelines with the streamed pieces of answers, and the results of runs, which stay for 90 days at most.
	Steps time.Duration `toml:"steps"`
	// Demands that ended, with their receipts; 400 days at most.
	Demands time.Duration `toml:"demands"`
	// Calls of other agents that ended; 180 days at most.
	Dispatches time.Duration `toml:"dispatches"`
	// Calls of tools that programs outside executed, and runs of tasks; calls stay for 30 days at most after they ended.
	Tools time.Duration `toml:"tools"`
	// Decisions about trust; 90 days at most, and the newest 100,000.
	Audit time.Duration `toml:"audit"`
	// Conversations of chat and of bridges in which nothing was said for so long, with everything that was said in them.
	Sessions time.Duration `toml:"sessions"`
	// Rows of messages that lost their words: ids, senders, times and what became of the deliveries. Not less than
	// `messages`, and at least 30 days: a repeat that comes later is a new message.
	Records time.Duration `toml:"records"`
}

// AgentRetention is the same for one agent, where it is another than in `[retention]`.
type AgentRetention struct {
	// Questions and answers.
	Messages time.Duration `toml:"messages" default:"retention.messages"`
	// Messages as they came on the wire.
	Originals time.Duration `toml:"originals" default:"retention.originals"`
	// Files in questions and answers.
	Files time.Duration `toml:"files" default:"retention.files"`
	// Timelines and results of runs.
	Steps time.Duration `toml:"steps" default:"retention.steps"`
	// Demands that ended.
	Demands time.Duration `toml:"demands" default:"retention.demands"`
	// Calls of other agents that ended.
	Dispatches time.Duration `toml:"dispatches" default:"retention.dispatches"`
	// Calls of tools outside, and runs of tasks.
	Tools time.Duration `toml:"tools" default:"retention.tools"`
	// Decisions about trust.
	Audit time.Duration `toml:"audit" default:"retention.audit"`
	// Conversations of chat and of bridges.
	Sessions time.Duration `toml:"sessions" default:"retention.sessions"`
	// Rows of messages that lost their words.
	Records time.Duration `toml:"records" default:"retention.records"`
}

// inherited are periods that follow from [retention].
func inherited() AgentRetention {
	return AgentRetention{unset, unset, unset, unset, unset, unset, unset, unset, unset, unset}
}

// inherit fills in what the table of an agent does not say.
func (a *AgentRetention) inherit(from Retention) {
	own, common := reflect.ValueOf(a).Elem(), reflect.ValueOf(from)
	for i := range own.NumField() {
		if own.Field(i).Int() == unset {
			own.Field(i).SetInt(common.Field(i).Int())
		}
	}
}

// minRecords is how long the rows of messages are kept at least: longer than any peer repeats a message. Mail is repeated for
// five days, an activity for about a week.
const (
	minRecords   = 30 * 24 * time.Hour
	minRetention = time.Minute
	maxRetention = 100 * 366 * 24 * time.Hour
)

func (r Retention) validate(p *problems, path string) {
	for key, field := range fieldsOf(reflect.ValueOf(r)) {
		if period := time.Duration(field.Int()); period != 0 && (period < minRetention || period > maxRetention) {
			p.add(join(path, key), fmt.Sprintf("%q is out of range", shortDuration(period)), `write "0s" for ever, or "1m" to "36600d"`)
		}
	}

	if r.Records == 0 {
		return
	}
	if r.Messages == 0 || r.Records < max(r.Messages, minRecords) {
		p.add(join(path, "records"), fmt.Sprintf("%q is shorter than messages or than 30 days", shortDuration(r.Records)),
			fmt.Sprintf("write at least %q, and a time for %s", shortDuration(max(r.Messages, minRecords)), strings.TrimSuffix(join(path, "messages"), ".")))
	}
}
