// Package chat is the contract between chat surfaces and agents: the input of one turn and its output with all error
// codes, who handles a turn, the claim of its run, and the JSON-RPC wire form with its order of checks, parts, paired
// client tools, tasks and streamed frames (agent runtime contract, sections 6.1 and 6.5). It serves no HTTP and calls no
// model. The payloads of run control are in agents/task.
package chat
