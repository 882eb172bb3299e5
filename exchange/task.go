package exchange

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// TokenTasks is the Scope of a token that runs tasks on the targets of this server. It sees its own runs, with what they brought
// redacted (agent runtime contract, section 6.6).
const TokenTasks = "tasks"

// TokenTaskResults is TokenTasks, and reads what its own runs brought.
const TokenTaskResults = "tasks:results"

// TaskRun is a run of a task as it was begun (agent runtime contract, section 7). What became of it is that of its turn: nothing
// here changes any more.
type TaskRun struct {
	ID        string          // as its caller chose it; taken once, for ever
	Owner     string          // who began it
	TurnID    string          // UUIDv7; filled when the run is stored
	Started   json.RawMessage // the task result of its begin: ids, executor, owner, metadata
	CreatedAt time.Time       // filled when the run is read
}

// TaskRunFilter selects runs of tasks, newest first.
type TaskRunFilter struct {
	Owner  string // empty = of all, for operators
	Before string // TurnID of the last row of the page before
	Limit  int    // 1…500
}

// RouteRequires is the member of Inbound.Route under which an adapter keeps the labels that a program must have to be given the
// turn, where programs work for the agent.
const RouteRequires = "requires"

// Requires reads RouteRequires: sorted labels, each once. Most routes have none, and are not parsed.
func Requires(route json.RawMessage) []string {
	if !bytes.Contains(route, []byte(`"`+RouteRequires+`":`)) {
		return nil
	}

	var kept struct {
		Requires []string `json:"requires"`
	}
	if json.Unmarshal(route, &kept) != nil {
		return nil
	}

	slices.Sort(kept.Requires)
	return slices.Compact(kept.Requires)
}

// groupSeparator stands between an agent and labels in a group of the queue. Neither names nor labels have it.
const groupSeparator = " "

// MaxRequires bounds the labels that one turn requires, in bytes with their separators: the queue knows a group by a short name.
const MaxRequires = 60

// TurnGroup is the group of the queue in which the turns of an agent wait that require the same labels of a program.
func TurnGroup(agent string, requires []string) string {
	return strings.Join(append([]string{agent}, requires...), groupSeparator)
}

// ReadTurnGroup is the reverse of TurnGroup.
func ReadTurnGroup(group string) (agent string, requires []string) {
	words := strings.Split(group, groupSeparator)
	return words[0], words[1:]
}
