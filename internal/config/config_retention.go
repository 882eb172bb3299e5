package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Retention is how long messages and what was made of them are kept; [operating.md](operating.md#what-is-kept-and-how-long)
// explains how they are removed. Times begin with the last change of a message; `"0s"` = forever. A message that has not ended,
// or whose answer is still being delivered, loses nothing. `limits.held_for` and `limits.silent_for` are for messages that are
// held or never answered.
type Retention struct {
	// Questions and answers with their files, native forms, notes of agents, and calls of tools and of agents. The rows stay
	// without words, so that a repeat is recognised.
	Messages time.Duration `toml:"messages"`
	// Messages as they arrived: the mail, the activity, the request.
	Originals time.Duration `toml:"originals"`
	// Files in questions and answers; a line with the name stays.
	Files time.Duration `toml:"files"`
	// Timelines, streamed pieces of answers, and results of runs; those stay for `results_ceiling` at most.
	Steps time.Duration `toml:"steps"`
	// Demands that ended, with their receipts; `demands_ceiling` at most.
	Demands time.Duration `toml:"demands"`
	// Calls of other agents that ended; `dispatches_ceiling` at most.
	Dispatches time.Duration `toml:"dispatches"`
	// Calls of tools that programs outside executed, and runs of tasks; calls stay for `tools_ceiling` at most after they ended.
	Tools time.Duration `toml:"tools"`
	// Decisions about trust; `audit_ceiling` at most, and the newest 100,000.
	Audit time.Duration `toml:"audit"`
	// Conversations of chat and of bridges without a message for so long, with all their content.
	Sessions time.Duration `toml:"sessions"`
	// Rows of messages that lost their words: ids, senders, times and the outcome of deliveries. At least `messages` and at
	// least 30 days: a later repeat is a new message.
	Records time.Duration `toml:"records"`

	// Results of runs at most, whatever the agent's `steps` is. Only `[retention]` has the ceilings.
	ResultsCeiling time.Duration `toml:"results_ceiling"`
	// Demands that ended, with their receipts, at most, whatever the agent's `demands` is.
	DemandsCeiling time.Duration `toml:"demands_ceiling"`
	// Calls of other agents that ended at most, whatever the agent's `dispatches` is.
	DispatchesCeiling time.Duration `toml:"dispatches_ceiling"`
	// Calls of tools outside that ended at most, whatever the agent's `tools` is. Runs of tasks have no ceiling.
	ToolsCeiling time.Duration `toml:"tools_ceiling"`
	// Decisions about trust at most, whatever the agent's `audit` is.
	AuditCeiling time.Duration `toml:"audit_ceiling"`
	// Mail to `postmaster` and other role addresses, reports among it, after it came.
	OperatorMail time.Duration `toml:"operator_mail"`
	// Answers that were captured instead of sent (`mail.mode`), after they were made.
	CapturedMail time.Duration `toml:"captured_mail"`
	// Lines of reports about DMARC and TLS, after they arrived.
	MailReports time.Duration `toml:"mail_reports"`
}

// defaultRetention keeps messages for ever, and what ended of them until its ceiling.
func defaultRetention() Retention {
	const day = 24 * time.Hour
	return Retention{
		ResultsCeiling: 90 * day, DemandsCeiling: 400 * day, DispatchesCeiling: 180 * day, ToolsCeiling: 30 * day, AuditCeiling: 90 * day,
		OperatorMail: 90 * day, CapturedMail: 30 * day, MailReports: 400 * day,
	}
}

// Agents are the periods of agents that have none of their own.
func (r Retention) Agents() AgentRetention {
	return AgentRetention{
		Messages: r.Messages, Originals: r.Originals, Files: r.Files, Steps: r.Steps, Demands: r.Demands, Dispatches: r.Dispatches,
		Tools: r.Tools, Audit: r.Audit, Sessions: r.Sessions, Records: r.Records,
	}
}

// AgentRetention is `[retention]` for one agent, where it differs.
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
	own, common := reflect.ValueOf(a).Elem(), reflect.ValueOf(from.Agents())
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
	validatePeriods(p, path, reflect.ValueOf(r))
	r.Agents().validateRecords(p, path)
}

func (a AgentRetention) validate(p *problems, path string) {
	validatePeriods(p, path, reflect.ValueOf(a))
	a.validateRecords(p, path)
}

func validatePeriods(p *problems, path string, periods reflect.Value) {
	for key, field := range fieldsOf(periods) {
		if period := time.Duration(field.Int()); period != 0 && (period < minRetention || period > maxRetention) {
			p.add(join(path, key), fmt.Sprintf("%q is out of range", shortDuration(period)), `write "0s" for no limit, or "1m" to "36600d"`)
		}
	}
}

func (a AgentRetention) validateRecords(p *problems, path string) {
	if a.Records == 0 {
		return
	}
	if a.Messages == 0 || a.Records < max(a.Messages, minRecords) {
		p.add(join(path, "records"), fmt.Sprintf("%q is shorter than messages or than 30 days", shortDuration(a.Records)),
			fmt.Sprintf("write at least %q, and a time for %s", shortDuration(max(a.Messages, minRecords)), strings.TrimSuffix(join(path, "messages"), ".")))
	}
}
