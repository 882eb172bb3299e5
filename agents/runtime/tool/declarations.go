package tool

import (
	"iter"
	"maps"
	"slices"

	"inbox/agents/runtime/value"
)

// Entry is one tool as someone declared it, before anything is checked.
type Entry struct {
	Name  string // the key it stood under, "" in a list
	Value any
}

// Entries reads a declaration set that is a list or an object by names. The members of a map have no order, so they are
// taken in that of their names.
func Entries(given any) []Entry {
	switch set := value.Plain(given).(type) {
	case []any:
		entries := make([]Entry, len(set))
		for index, item := range set {
			entries[index] = Entry{Value: item}
		}
		return entries
	case map[string]any:
		entries := make([]Entry, 0, len(set))
		for _, name := range slices.Sorted(maps.Keys(set)) {
			entries = append(entries, Entry{Name: name, Value: set[name]})
		}
		return entries
	default:
		return nil
	}
}

// Declarations is the set of tools of one run, by canonical name and in the order of declaration. It does not change
// and can be shared between goroutines. The zero value is empty.
type Declarations struct {
	names   []string
	byName  map[string]*Declaration
	aliases map[string]string
}

// Rejection says which declaration was left out and why.
type Rejection struct {
	Name   string
	Reason string
}

// Declare checks every entry by the rules for conversations and keeps the valid ones. An entry without a name member
// takes that of its key; of two with the same name the later one counts, at the place of the first (agent runtime
// contract, section 4.2).
func Declare(entries []Entry) (Declarations, []Rejection) {
	set := Declarations{byName: map[string]*Declaration{}}
	var rejected []Rejection
	for _, entry := range entries {
		declaration, rejection := declareEntry(entry)
		if rejection != nil {
			rejected = append(rejected, *rejection)
			continue
		}
		set.put(declaration)
	}

	set.aliases = aliasesOf(set.All())
	return set, rejected
}

// NewDeclarations makes a set of declarations that were normalized before. The later of two with the same name counts.
func NewDeclarations(declarations ...*Declaration) Declarations {
	set := Declarations{byName: map[string]*Declaration{}}
	for _, declaration := range declarations {
		if declaration != nil {
			set.put(declaration)
		}
	}
	set.aliases = aliasesOf(set.All())
	return set
}

func declareEntry(entry Entry) (*Declaration, *Rejection) {
	if !value.PlainContainer(entry.Value) {
		return nil, &Rejection{entry.Name, "declaration must be an array"}
	}

	declared := value.Clone(value.Members(entry.Value))
	if entry.Name != "" && declared["name"] == nil {
		declared["name"] = entry.Name
	}

	name := entry.Name
	if name == "" {
		name = value.Text(declared["name"])
	}

	declaration, err := NormalizeRequest(declared)
	if err != nil {
		return nil, &Rejection{name, err.Error()}
	}

	return declaration, nil
}

func (s *Declarations) put(declaration *Declaration) {
	name := declaration.Name()
	if _, known := s.byName[name]; !known {
		s.names = append(s.names, name)
	}
	s.byName[name] = declaration
}

// Len is the number of tools.
func (s Declarations) Len() int { return len(s.names) }

// All walks the set in the order of declaration.
func (s Declarations) All() iter.Seq2[string, map[string]any] {
	return func(yield func(string, map[string]any) bool) {
		for _, name := range s.names {
			if !yield(name, s.byName[name].Object()) {
				return
			}
		}
	}
}

// Get returns the tool of a canonical name.
func (s Declarations) Get(name string) (*Declaration, bool) {
	declaration, found := s.byName[name]
	return declaration, found
}

// List returns the declarations in order.
func (s Declarations) List() []*Declaration {
	declarations := make([]*Declaration, len(s.names))
	for index, name := range s.names {
		declarations[index] = s.byName[name]
	}
	return declarations
}

// Resolve returns the canonical name for the one that a model used: the name itself, else that of the only tool with
// such an alias, else the name unchanged (agent runtime contract, section 4.1). An alias of several tools is an alias of none:
// to guess would run a tool that was not meant.
func (s Declarations) Resolve(name string) string {
	if _, known := s.byName[name]; known {
		return name
	}
	if canonical, known := s.aliases[name]; known {
		return canonical
	}
	return name
}

func aliasesOf(tools iter.Seq2[string, map[string]any]) map[string]string {
	aliases := map[string]string{}
	add := func(alias any, name string) {
		text, ok := alias.(string)
		if other, taken := aliases[text]; taken && other != name {
			name = text // ambiguous: it stays as it is
		}
		if ok {
			aliases[text] = name
		}
	}

	for name, tool := range tools {
		if safe := tool["provider_safe_name"]; safe != nil {
			add(safe, name)
		} else {
			add(ProviderSafeName(name), name)
		}
		more, _ := value.List(tool["provider_aliases"])
		for _, alias := range more {
			add(alias, name)
		}
	}

	return aliases
}

// RejectionReport is the payload of the event tool_declarations_rejected (agent runtime contract, section 4.2).
func RejectionReport(rejected []Rejection, accepted int) map[string]any {
	return map[string]any{
		"rejected": rejectionList(rejected), "rejected_count": len(rejected), "accepted_count": accepted,
	}
}

// DisabledReport is the payload of the event tool_mediation_disabled: an executor is there, but every declaration was
// rejected (agent runtime contract, section 4.2).
func DisabledReport(rejected []Rejection) map[string]any {
	return map[string]any{
		"reason": "all_declarations_rejected", "rejected": rejectionList(rejected), "rejected_count": len(rejected),
	}
}

func rejectionList(rejected []Rejection) []any {
	values := make([]any, len(rejected))
	for index, rejection := range rejected {
		values[index] = map[string]any{"name": rejection.Name, "reason": rejection.Reason}
	}
	return values
}
