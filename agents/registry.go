package agents

import (
	"slices"
	"strings"
	"sync"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
)

// Entry is one agent of this server: who answers, what is said about it, and the operator's settings.
type Entry struct {
	Agent    Agent
	Profile  exchange.AgentProfile // Name and Address are required
	Settings Settings

	// Held ends what the agent holds, such as connections, after its last run; nil = nothing. Entries with the same Agent share it.
	Held *Held
}

// Held counts who uses an agent, so that what it holds ends once, after a table without it is in force and its last run has ended.
type Held struct {
	mu    sync.Mutex
	users int
	ended bool
	end   func()
}

// NewHeld makes a Held whose end is called once, by the goroutine that was the last user. It has no user yet.
func NewHeld(end func()) *Held { return &Held{end: end} }

// acquire adds a user; false when all has ended.
func (h *Held) acquire() bool {
	if h == nil {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return false
	}
	h.users++
	return true
}

// Discard ends what is held unless someone uses it: for agents that come into no table.
func (h *Held) Discard() {
	if h.acquire() {
		h.release()
	}
}

func (h *Held) release() {
	if h == nil {
		return
	}
	h.mu.Lock()
	h.users--
	last := h.users == 0 && !h.ended
	h.ended = h.ended || last
	h.mu.Unlock()
	if last {
		h.end()
	}
}

// Table is a list of agents that does not change. Names are compared without regard to case, because mail and the fediverse do so;
// the spelling of the entry is the one that is shown.
type Table struct {
	byName  map[string]int // lower-case name → place in entries
	entries []Entry        // the first one is the default agent of the host
}

// NewTable makes a table, with the defaults of the settings filled in. It fails with fault.Malformed on a bad name, address or setting
// and with fault.Conflict when a name is taken in any spelling.
func NewTable(entries ...Entry) (*Table, error) {
	t := &Table{byName: make(map[string]int, len(entries)), entries: make([]Entry, 0, len(entries))}
	for _, entry := range entries {
		entry.Settings = entry.Settings.WithDefaults()
		entry.Profile.ShowsTools = entry.Settings.ShowTools != ShowToolsNone
		if err := entry.validate(); err != nil {
			return nil, err
		}

		key := strings.ToLower(entry.Profile.Name)
		if _, taken := t.byName[key]; taken {
			return nil, fault.Newf(fault.Conflict, "there are two agents named %q; names that differ only in case are the same", entry.Profile.Name)
		}
		t.byName[key] = len(t.entries)
		t.entries = append(t.entries, entry)
	}
	return t, nil
}

// Lookup returns the agent with the name in any spelling.
func (t *Table) Lookup(name string) (Entry, bool) {
	place, found := t.byName[strings.ToLower(name)]
	if !found {
		return Entry{}, false
	}
	return t.entries[place], true
}

// Entries returns all agents in their order.
func (t *Table) Entries() []Entry { return slices.Clone(t.entries) }

// Hold keeps what the agents of the table hold until Release. A table is held while it is in force.
func (t *Table) Hold() {
	for _, entry := range t.entries {
		entry.Held.acquire()
	}
}

// Release ends what the agents of the table hold, of those that no other table and no run uses.
func (t *Table) Release() {
	for _, entry := range t.entries {
		entry.Held.release()
	}
}

// Registry finds agents by name in the table that is in force. It is safe for concurrent use.
type Registry struct{ current func() *Table }

// RegistryOf makes a registry that looks into the table that current returns at that moment.
func RegistryOf(current func() *Table) *Registry { return &Registry{current: current} }

// Lookup returns the agent with the name in any spelling, for its profile and settings. To run it see Acquire.
func (r *Registry) Lookup(name string) (Entry, bool) { return r.current().Lookup(name) }

// Acquire returns the agent with the name in any spelling for a run: what the agent holds stays until release is called, which must
// happen exactly once, also when nothing was found.
func (r *Registry) Acquire(name string) (entry Entry, release func(), found bool) {
	for {
		entry, found = r.Lookup(name)
		if !found {
			return Entry{}, func() {}, false
		}
		if entry.Held.acquire() {
			return entry, entry.Held.release, true
		}
		// The table was replaced between the two lines; that of now has another agent or none.
	}
}

// Agent returns what adapters may say about the agent with the name in any spelling.
func (r *Registry) Agent(name string) (exchange.AgentProfile, bool) {
	entry, found := r.Lookup(name)
	return entry.Profile, found
}

// Agents returns the profiles of all agents in the order of the table.
func (r *Registry) Agents() []exchange.AgentProfile {
	table := r.current()
	profiles := make([]exchange.AgentProfile, len(table.entries))
	for i, entry := range table.entries {
		profiles[i] = entry.Profile
	}
	return profiles
}

func (e Entry) validate() error {
	if e.Agent == nil {
		return fault.InField("agent", "is missing")
	}
	if !identity.ValidAgentName(e.Profile.Name) {
		return fault.InField("name", "must be 1 to 64 of A-Z a-z 0-9 . _ - without a dot at either end")
	}

	address, err := identity.ParseAddress(e.Profile.Address)
	if err != nil {
		return fault.InField("address", err.Error())
	}
	if address.Local != e.Profile.Name {
		return fault.InField("address", "must be @"+e.Profile.Name+"@domain, as the name says")
	}

	return e.Settings.Validate()
}
