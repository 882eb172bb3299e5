package agenttest

import (
	"testing"

	"inbox/agents"
)

// Registry makes a registry whose table does not change, as a server has it between two reloads.
func Registry(t testing.TB, entries ...agents.Entry) *agents.Registry {
	t.Helper()
	table, err := agents.NewTable(entries...)
	if err != nil {
		t.Fatal(err)
	}

	table.Hold()
	t.Cleanup(table.Release)
	return agents.RegistryOf(func() *agents.Table { return table })
}
