package tool

import (
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

// ErrorCode gives the machine-readable code.
func (e *DeclarationError) ErrorCode() string { return e.Code }

// ErrorFields gives the wrong fields in order.
func (e *DeclarationError) ErrorFields() []string { return e.Fields }

// Declaration is a tool whose declaration was checked and brought into its one form. It does not change. A nil
// Declaration is a tool that nobody declared; all methods work on it.
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

// Object is the normalized declaration as JSON. It must not be changed. A nil Declaration gives nil.
func (d *Declaration) Object() map[string]any {
	if d == nil {
		return nil
	}
	return d.fields
}

// Field gives a member of the normalized declaration, nil if it has none.
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

// Description is what the model reads about the tool.
func (d *Declaration) Description() string { return value.Text(d.Field("description")) }

// Source says who contributed the tool.
func (d *Declaration) Source() string { return value.Text(d.Field("source")) }

// Executor is ExecutorClient or ExecutorHost.
func (d *Declaration) Executor() string { return value.Text(d.Field("executor")) }

// Runtime is the runtime metadata, empty if none was declared. It must not be changed.
func (d *Declaration) Runtime() map[string]any { return value.Assoc(d.Field("runtime")) }

// Required lists the parameters without which the tool is not called.
func (d *Declaration) Required() []string {
	if d == nil {
		return nil
	}
	return slices.Clone(d.required)
}
