package tool

import (
	"fmt"
	"maps"
	"strings"

	"inbox/agents/runtime/value"
)

// ModelCall is a tool call as the model made it.
type ModelCall struct {
	Name       string         // the name that the model used, maybe an alias
	Parameters map[string]any // what the model wrote
	ID         string         // the id of the call, as the loop gave or took it
}

// Call is what an executor gets: the real parameters, which no record shows.
type Call struct {
	Name        string         // canonical
	Parameters  map[string]any // built from defaults, bindings and what the model wrote
	ID          string
	Metadata    map[string]any // source, provider_tool_name, tool_call_id
	Declaration *Declaration
	Context     map[string]any // the context of the turn, with tool_call_id
}

// Object is the call as the mediator sees it: {tool_name, parameters, metadata, id?}.
func (c Call) Object() map[string]any {
	object := map[string]any{"tool_name": c.Name, "parameters": c.Parameters, "metadata": c.Metadata}
	if c.ID != "" {
		object["id"] = c.ID
	}
	return object
}

// Prepared is a call with everything that records may say of it. It is complete even if the preparation failed, except
// for Call.
type Prepared struct {
	ModelName        string         // the name that the model used; all records of a turn carry it
	Name             string         // canonical, the same if the tool is unknown
	Declaration      *Declaration   // nil: the tool is not declared
	Call             Call           // only if there is no Failure
	Redacted         map[string]any // what the model wrote, without secrets
	ParametersSHA256 string         // H(Redacted)
}

// Exposure is what events and messages say of the parameters: {parameters, parameters_sha256, parameters_redacted}.
func (p Prepared) Exposure() map[string]any {
	return map[string]any{
		"parameters": value.Clone(p.Redacted), "parameters_sha256": p.ParametersSHA256, "parameters_redacted": true,
	}
}

// Failure says why a call cannot be executed, as the normalized result that the model reads.
type Failure struct {
	Result map[string]any
}

// Prepare finds the tool of a call, builds its parameters from declaration, context and what the model wrote, and
// checks that all required ones are there (agent runtime contract, section 4.4). The context is not changed.
func Prepare(call ModelCall, declarations Declarations, context map[string]any) (Prepared, *Failure) {
	name := declarations.Resolve(call.Name)
	declaration, _ := declarations.Get(name)
	prepared := Prepared{ModelName: call.Name, Name: name, Declaration: declaration}
	prepared.Redacted = RedactParameters(call.Parameters, declaration)
	prepared.ParametersSHA256 = Hash(prepared.Redacted)

	if declaration == nil {
		return prepared, &Failure{ErrorResult(call.Name, fmt.Sprintf("Tool '%s' not found", call.Name),
			map[string]any{"error_type": "tool_not_found"}, nil)}
	}

	context = contextOf(call, context)
	parameters := declaration.build(call.Parameters, context)
	if missing := declaration.missing(parameters); len(missing) > 0 {
		text := fmt.Sprintf("Tool \"%s\" requires the following parameters: %s.", name, strings.Join(missing, ", "))
		return prepared, &Failure{ErrorResult(name, text,
			map[string]any{"error_type": "missing_required_parameters", "missing_parameters": value.Items(missing)}, declaration.Runtime())}
	}

	prepared.Call = Call{
		Name: name, Parameters: parameters, ID: value.Trim(call.ID), Declaration: declaration, Context: context,
		Metadata: callMetadata(call, declaration),
	}

	return prepared, nil
}

func contextOf(call ModelCall, context map[string]any) map[string]any {
	own := make(map[string]any, len(context)+1)
	maps.Copy(own, context)
	own["tool_call_id"] = call.ID
	return own
}

func callMetadata(call ModelCall, declaration *Declaration) map[string]any {
	metadata := map[string]any{"source": declaration.Source(), "provider_tool_name": call.Name}
	if id := value.Trim(call.ID); id != "" {
		metadata["tool_call_id"] = id
	}
	return metadata
}

// build makes the real parameters, in the order of the contract (section 4.3): defaults, bindings, what the model
// wrote, bindings that the model cannot override.
func (d *Declaration) build(written, context map[string]any) map[string]any {
	parameters := make(map[string]any, len(d.defaults)+len(written))
	maps.Copy(parameters, value.Clone(d.defaults))

	for _, bound := range d.bindings {
		if !bound.authoritative {
			bound.suggest(parameters, context)
		}
	}

	maps.Copy(parameters, value.Clone(written))
	for _, bound := range d.bindings {
		if bound.authoritative {
			bound.decide(parameters, context, d.defaults)
		}
	}

	return parameters
}

func (b binding) suggest(parameters, context map[string]any) {
	given, found := b.resolve(context)
	switch {
	case !found && b.hasDefault:
		parameters[b.parameter] = value.Clone(b.value)
	case found && given != nil && given != "":
		parameters[b.parameter] = value.Clone(given)
	}
}

func (b binding) decide(parameters, context, defaults map[string]any) {
	if given, found := b.resolve(context); found {
		parameters[b.parameter] = value.Clone(given)
		return
	}
	if b.hasDefault {
		parameters[b.parameter] = value.Clone(b.value)
		return
	}
	if given, has := defaults[b.parameter]; has {
		parameters[b.parameter] = value.Clone(given)
		return
	}
	delete(parameters, b.parameter)
}

func (d *Declaration) missing(parameters map[string]any) []string {
	var missing []string
	for _, name := range d.required {
		if value := parameters[name]; value == nil || value == "" {
			missing = append(missing, name)
		}
	}
	return missing
}
