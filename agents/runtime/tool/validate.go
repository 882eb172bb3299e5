package tool

import (
	"maps"
	"slices"

	"inbox/agents/runtime/value"
)

// ValidateClient lists the wrong fields of a client declaration, in the order of the contract, each once; none means
// that it is valid (agent runtime contract, section 4.1).
func ValidateClient(given any) []string {
	declared := value.Members(given)
	name := value.Text(declared["name"])
	source := clientSource(name, declared["source"])
	var wrong findings
	wrong.unless(namePattern.MatchString(name), "name")
	wrong.unless(source == ExecutorClient, "source")
	wrong.unless(declared["source"] == nil || declared["source"] == source, "source")
	wrong.shape(declared, ExecutorClient)
	return wrong
}

// ValidateServer lists the wrong fields of a server declaration that has its defaults, in the order of the contract,
// each once (agent runtime contract, section 4.1).
func ValidateServer(given any) []string {
	declared := value.Members(given)
	name := value.Text(declared["name"])
	var wrong findings
	wrong.unless(namePattern.MatchString(name), "name")
	wrong.unless(namespace(name) != ExecutorClient, "source")
	wrong.unless(slugPattern.MatchString(value.Text(declared["source"])), "source")
	wrong.shape(declared, ExecutorHost)
	return wrong
}

type findings []string

func (f *findings) unless(fine bool, field string) {
	if !fine && !slices.Contains(*f, field) {
		*f = append(*f, field)
	}
}

// shape checks what clients and servers declare alike.
func (f *findings) shape(declared map[string]any, executor string) {
	_, described := value.NonBlank(declared["description"])
	f.unless(described, "description")
	f.unless(declared["parameters"] == nil || value.PlainContainer(declared["parameters"]), "parameters")
	f.unless(declared["executor"] == executor, "executor")
	f.unless(declared["scope"] == ScopeRun, "scope")
	f.unless(declared["runtime"] == nil || value.PlainContainer(declared["runtime"]), "runtime")
	if _, ok := parseBindings(declared); !ok {
		field := "client_context_bindings"
		if _, has := declared["parameter_bindings"]; has {
			field = "parameter_bindings"
		}
		f.unless(false, field)
	}
	_, ok := parseDefaults(declared)
	f.unless(ok, "parameter_defaults")
}

// clientSource is the namespace, else the declared source, else "client".
func clientSource(name string, declared any) string {
	if source := namespace(name); source != "" {
		return source
	}
	if source, ok := value.NonBlank(declared); ok {
		return source
	}
	return ExecutorClient
}

// withServerDefaults fills what a server declaration may leave out. Executors of other names are ours, too.
func withServerDefaults(declared map[string]any) map[string]any {
	filled := maps.Clone(declared)
	if value.Text(filled["source"]) == "" {
		filled["source"] = "host"
		if source := namespace(value.Text(filled["name"])); source != "" {
			filled["source"] = source
		}
	}
	if filled["executor"] != ExecutorClient {
		filled["executor"] = ExecutorHost
	}
	fill(filled, "scope", ScopeRun)
	return filled
}

// withClientDefaults fills what the place of a client declaration already says.
func withClientDefaults(declared map[string]any) map[string]any {
	filled := maps.Clone(declared)
	fill(filled, "source", ExecutorClient)
	fill(filled, "executor", ExecutorClient)
	fill(filled, "scope", ScopeRun)
	if _, described := value.NonBlank(filled["description"]); !described {
		filled["description"] = value.Text(filled["name"])
	}
	return filled
}

func fill(object map[string]any, name string, value any) {
	if object[name] == nil {
		object[name] = value
	}
}
