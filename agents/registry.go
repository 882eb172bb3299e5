package agents

import (
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
}

// Registry finds agents by name. Names are compared without regard to case, because mail and the fediverse do so;
// the spelling given to Add is the one that is shown. It is safe for concurrent use.
type Registry struct {
	mu      sync.RWMutex
	byName  map[string]int // lower-case name → place in entries
	entries []Entry        // in the order of Add: the first one is the default agent of the host
}

// NewRegistry makes an empty registry.
func NewRegistry() *Registry { return &Registry{byName: make(map[string]int)} }

// Add puts an agent into the registry, with the defaults of its settings filled in. It fails with fault.Malformed on
// a bad name, address or setting and with fault.Conflict when the name is taken in any spelling.
func (r *Registry) Add(entry Entry) error {
	entry.Settings = entry.Settings.WithDefaults()
	entry.Profile.ShowsTools = entry.Settings.ShowTools != ShowToolsNone
	if err := entry.validate(); err != nil {
		return err
	}

	key := strings.ToLower(entry.Profile.Name)
	r.mu.Lock()
	defer r.mu.Unlock()

	if _, taken := r.byName[key]; taken {
		return fault.Newf(fault.Conflict, "there are two agents named %q; names that differ only in case are the same", entry.Profile.Name)
	}

	r.byName[key] = len(r.entries)
	r.entries = append(r.entries, entry)
	return nil
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

// Lookup returns the agent with the name in any spelling.
func (r *Registry) Lookup(name string) (Entry, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	place, found := r.byName[strings.ToLower(name)]
	if !found {
		return Entry{}, false
	}
	return r.entries[place], true
}

// Agent returns what adapters may say about the agent with the name in any spelling.
func (r *Registry) Agent(name string) (exchange.AgentProfile, bool) {
	entry, found := r.Lookup(name)
	return entry.Profile, found
}

// Agents returns the profiles of all agents in the order in which they were added.
func (r *Registry) Agents() []exchange.AgentProfile {
	r.mu.RLock()
	defer r.mu.RUnlock()
	profiles := make([]exchange.AgentProfile, len(r.entries))
	for i, entry := range r.entries {
		profiles[i] = entry.Profile
	}
	return profiles
}
