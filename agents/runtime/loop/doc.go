// Package loop runs a conversation between a model and tools to its end: turn by turn it calls a runner, executes the
// tool calls that come back, watches budgets, stalls, interrupts and completion, and gives one conversation result
// (agent runtime contract, sections 3 and 9). Run reads like section 3.2.
//
// It dispatches no model, stores nothing and knows no protocol: the model, the tools, the store of transcripts, the lock
// and run control are small interfaces that the caller fills. Messages and results are JSON values of agents/envelope.
package loop
