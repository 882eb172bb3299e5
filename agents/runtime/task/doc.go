// Package task runs work that is larger than one turn on executors: it normalizes task input, placement, executor
// targets and results, selects a target, runs its handler once per run id, and answers get and cancel for the owner of a
// run (agent runtime contract, section 7). It executes nothing itself, knows no protocol and keeps nothing: runs are
// kept by a Runs that passes tasktest.Runs, as the server's database does.
//
// Values are JSON objects in the types of envelope.Decode; builders may also put Go integers and floats.
package task

// Schemas of the documents (agent runtime contract, section 7).
const (
	SchemaInput      = "agents-api/task-input/v1"
	SchemaPlacement  = "agents-api/execution-placement/v1"
	SchemaTarget     = "agents-api/executor-target/v1"
	SchemaTargetList = "agents-api/execution-target-list/v1"
	SchemaResult     = "agents-api/task-result/v1"
	SchemaMetrics    = "agents-api/execution-metrics/v1"
	SchemaRunResult  = "agents-api/run-result/v1"
)
