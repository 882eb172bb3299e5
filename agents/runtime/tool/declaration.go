// Package tool is everything about tools but the tools: what a declaration may say, which tools a model sees and under
// which names, how a call is prepared from what the model wrote and what the caller knows, how it is executed and its
// result brought into one form, what may be recorded of it, and who must approve it (agent runtime contract, section 4).
//
// It contains no loop, no provider, no concrete tool and no durable storage. It decides nothing about a person: whom
// to believe is asked through ActionOptions.Permits.
//
// Values are those of encoding/json with UseNumber: map[string]any, []any, json.Number, string, bool and nil. Functions
// do not change the values that they are given.
package tool

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"inbox/agents/runtime/value"
)

// What a declaration may say about who runs a tool (executor) and how long it is offered (scope).
const (
	ExecutorClient = "client" // the caller's side runs the tool; the loop waits for its answer
	ExecutorHost   = "host"   // this server runs it
	ScopeRun       = "run"    // the only scope
)

// Codes of a DeclarationError (agent runtime contract, section 4.1).
const (
	CodeClient  = "invalid_runtime_tool_declaration"
	CodeServer  = "invalid_server_tool_declaration"
	CodeRequest = "invalid_conversation_tool_declaration"
)

// DeclarationError says which fields of a declaration are wrong, in the order of the contract, each once.
type DeclarationError struct {
	Code   string
	Fields []string
}

// Error is the code and the fields: "invalid_server_tool_declaration: name, source".
func (e *DeclarationError) Error() string { return e.Code + ": " + strings.Join(e.Fields, ", ") }

// ErrorCode returns the machine-readable code.
func (e *DeclarationError) ErrorCode() string { return e.Code }

// Declaration is a tool whose declaration was checked and brought into its one form. It does not change. A nil
// Declaration is a tool that is not declared; all methods work on it.
type Declaration struct {
	fields    map[string]any
	bindings  []binding
	defaults  map[string]any
	required  []string
	sensitive *pathNode
}

// NormalizeClient checks and normalizes the declaration of a tool that the caller's side runs. The error is a
// *DeclarationError (agent runtime contract, section 4.1).
func NormalizeClient(given any) (*Declaration, error) {
	declared := value.Members(given)
	if fields := ValidateClient(declared); len(fields) > 0 {
		return nil, &DeclarationError{CodeClient, fields}
	}
	name := value.Text(declared["name"])
	return newDeclaration(declared, canonicalFields(declared, clientSource(name, declared["source"]), ExecutorClient)), nil
}

// NormalizeServer checks and normalizes the declaration of a tool that this server runs. The error is a
// *DeclarationError (agent runtime contract, section 4.1).
func NormalizeServer(given any) (*Declaration, error) {
	declared := withServerDefaults(value.Members(given))
	if fields := ValidateServer(declared); len(fields) > 0 {
		return nil, &DeclarationError{CodeServer, fields}
	}

	fields := canonicalFields(declared, value.Trim(value.Text(declared["source"])), ExecutorHost)
	delete(fields, "required_capability")

	if capability, ok := value.NonBlank(declared["required_capability"]); ok {
		fields["required_capability"] = capability
	}
	return newDeclaration(declared, fields), nil
}

// NormalizeRequest checks and normalizes a declaration that came with a conversation: client rules, with lenient
// defaults, for executor client or namespace client, else server rules. The error is a *DeclarationError (agent runtime
// contract, section 4.1).
func NormalizeRequest(given any) (*Declaration, error) {
	declared := value.Members(given)
	if declared["executor"] == ExecutorClient || namespace(value.Text(declared["name"])) == ExecutorClient {
		declaration, err := NormalizeClient(withClientDefaults(declared))
		if err != nil {
			return nil, err
		}
		return newDeclaration(declared, declaration.fields), nil
	}

	declaration, err := NormalizeServer(declared)
	if wrong, ok := err.(*DeclarationError); ok { //nolint:errorlint // NormalizeServer returns it unwrapped
		return nil, &DeclarationError{CodeRequest, wrong.Fields}
	}

	return declaration, err
}

// canonicalFields expects a declaration that passed its checks.
func canonicalFields(declared map[string]any, source, executor string) map[string]any {
	name := value.Text(declared["name"])
	fields := extensions(declared)
	if _, chosen := fields["provider_safe_name"]; !chosen && ProviderSafeName(name) != name {
		fields["provider_safe_name"] = ProviderSafeName(name)
	}

	fields["name"] = name
	fields["source"] = source
	fields["description"] = value.Trim(value.Text(declared["description"]))
	fields["parameters"] = map[string]any{}

	if parameters := declared["parameters"]; parameters != nil {
		fields["parameters"] = value.Clone(value.Plain(parameters))
	}

	fields["executor"] = executor
	fields["scope"] = ScopeRun

	if runtime := RuntimeMetadata(declared["runtime"]); len(runtime) > 0 {
		fields["runtime"] = runtime
	}
	if bindings, _ := parseBindings(declared); len(bindings) > 0 {
		fields["parameter_bindings"] = bindingsObject(bindings)
	}
	if defaults, _ := parseDefaults(declared); len(defaults) > 0 {
		fields["parameter_defaults"] = defaults
	}

	return fields
}

// newDeclaration reads what calls need from a normalized declaration, once.
func newDeclaration(declared, fields map[string]any) *Declaration {
	bindings, _ := parseBindings(declared)
	defaults, _ := parseDefaults(declared)
	declaration := &Declaration{fields: fields, bindings: bindings, defaults: defaults}
	declaration.required = requiredNames(fields["parameters"])
	declaration.sensitive = sensitivePaths(fields, bindings)
	return declaration
}

// Object is the normalized declaration as JSON. It must not be changed. A nil Declaration returns nil.
func (d *Declaration) Object() map[string]any {
	if d == nil {
		return nil
	}
	return d.fields
}

// Field returns a member of the normalized declaration, nil if it has none.
func (d *Declaration) Field(name string) any { return d.Object()[name] }

// Name is the canonical name: "slug" or "namespace/slug".
func (d *Declaration) Name() string { return value.Text(d.Field("name")) }

// SafeName is the name under which a model provider sees the tool.
func (d *Declaration) SafeName() string {
	if safe := value.Text(d.Field("provider_safe_name")); safe != "" {
		return safe
	}
	return d.Name()
}

// Offered returns the declaration with another name for model providers. Source: provider_safe_name of the agent runtime contract,
// section 4.1.
func (d *Declaration) Offered(name string) *Declaration {
	offered := *d
	offered.fields = maps.Clone(d.fields)
	offered.fields["provider_safe_name"] = name
	return &offered
}

// Description is what the model reads about the tool.
func (d *Declaration) Description() string { return value.Text(d.Field("description")) }

// Source says who contributed the tool.
func (d *Declaration) Source() string { return value.Text(d.Field("source")) }

// Runtime is the runtime metadata, empty if none was declared. It must not be changed.
func (d *Declaration) Runtime() map[string]any { return value.Assoc(d.Field("runtime")) }

var (
	slugPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)
	namePattern = regexp.MustCompile(`^[a-z][a-z0-9_-]*(/[a-z][a-z0-9_-]*)?$`)
	unsafeRuns  = regexp.MustCompile(`[^A-Za-z0-9_]+`)
)

// namespace is the part of a name before the slash, "" for a bare name.
func namespace(name string) string {
	before, _, found := strings.Cut(name, "/")
	if !found {
		return ""
	}
	return before
}

// ProviderSafeName writes a tool name with the letters that every model provider accepts: A-Z, a-z, 0-9 and "_", a
// letter first (agent runtime contract, section 4.1). Different tools can get the same one, so it identifies none: compare Declaration.Name.
func ProviderSafeName(name string) string {
	safe := strings.Trim(unsafeRuns.ReplaceAllString(value.Trim(name), "__"), "_")
	if safe == "" {
		return "tool"
	}
	if first := safe[0] | 0x20; first < 'a' || first > 'z' {
		return "tool_" + safe
	}
	return safe
}

// canonicalMembers are the members that normalization writes itself; all others of a declaration are extensions.
var canonicalMembers = map[string]bool{
	"name": true, "source": true, "description": true, "parameters": true, "executor": true, "scope": true,
	"runtime": true, "parameter_bindings": true, "parameter_defaults": true,
}

// extensions copies the members that the contract does not name. Sensitive names are kept: a declaration is no place
// for secrets.
func extensions(declared map[string]any) map[string]any {
	fields := make(map[string]any, len(declared)+4)
	for name, value := range declared {
		if canonicalMembers[name] {
			continue
		}
		if kept := withoutNulls(value); kept != nil {
			fields[name] = kept
		}
	}
	return fields
}

// RuntimeMetadata normalizes the runtime member of a declaration or a result: members of sensitive name at the top
// become "[redacted]", nulls are left out at every level. What is no object becomes an empty one (agent runtime contract,
// section 4.1).
func RuntimeMetadata(given any) map[string]any {
	runtime := map[string]any{}
	for name, item := range value.Members(given) {
		if name == "" {
			continue
		}
		if SensitiveName(name) {
			runtime[name] = Redacted
			continue
		}
		if kept := withoutNulls(item); kept != nil {
			runtime[name] = kept
		}
	}

	return runtime
}

func withoutNulls(given any) any {
	switch value := value.Plain(given).(type) {
	case map[string]any:
		kept := make(map[string]any, len(value))
		for name, item := range value {
			if item := withoutNulls(item); item != nil {
				kept[name] = item
			}
		}
		return kept
	case []any:
		kept := make([]any, 0, len(value))
		for _, item := range value {
			if item := withoutNulls(item); item != nil {
				kept = append(kept, item)
			}
		}
		return kept
	default:
		return value
	}
}

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
