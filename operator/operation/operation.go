// Package operation declares what an operator may look at and do: from one value come the route of the API, the role that it needs, its record on the
// audit trail and its description.
package operation

import (
	"context"
	"net/http"
	"reflect"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/openapi"
)

// Caller is who acts.
type Caller struct {
	By    string                // principal, for the other operators and the record
	Owner exchange.SessionOwner // whose marks of what was read count
}

// Operation is one thing that operators may look at or do in the subject S. Declare makes it.
type Operation[S any] struct {
	Method  string
	Path    string // with {names} of its parameters
	Summary string

	Role       exchange.Role // zero = RoleRead for a GET, RoleAdmin for everything else
	Unrecorded bool          // it changes only what the caller has read: a program that reads on would push everything else off the audit trail
	Example    any           // of the body
	MaxBody    int64         // in bytes; zero = 4 KiB
	Hint       string        // what to send, for a body that cannot be read
	Errors     []int         // statuses of errors beside those that every operation of its kind can have

	input  []field
	output any
	do     func(ctx context.Context, subject S, caller Caller, input reader) (any, error)
}

// None is the answer of an operation that has nothing to say: 204.
type None struct{}

// Declare ties an operation to what it does. The fields of In are tagged with the place of the parameter that they are read from, and with its meaning:
//
//	Thread string `path:"thread"`
//	Agent  string `query:"agent" doc:"only those of this agent"`
//	Status string `query:"status" one:"open all"`
//	Limit  int    `query:"limit" default:"50" from:"1" to:"500"`
//	Key    string `header:"Idempotency-Key"`
//	Body   T      `body:"required"`
//
// Strings, booleans, integers and embedded structs of them are read; Body is any JSON object. It panics on a field that it cannot read.
func Declare[S, In, Out any](o Operation[S], do func(ctx context.Context, subject S, caller Caller, in In) (Out, error)) Operation[S] {
	o.input = fieldsOf(reflect.TypeFor[In](), nil)
	if answer := any(*new(Out)); answer != any(None{}) {
		o.output = answer
	}
	o.do = func(ctx context.Context, subject S, caller Caller, input reader) (any, error) {
		var in In
		if err := input.read(o.input, reflect.ValueOf(&in).Elem()); err != nil {
			return nil, err
		}
		answer, err := do(ctx, subject, caller, in)
		if err != nil || any(answer) == any(None{}) {
			return nil, err
		}
		return answer, nil
	}
	return o
}

// NeededRole is the role that the operation needs.
func (o Operation[S]) NeededRole() exchange.Role {
	switch {
	case o.Role != exchange.RoleNone:
		return o.Role
	case o.Method == http.MethodGet:
		return exchange.RoleRead
	}
	return exchange.RoleAdmin
}

// Changes reports whether a record of the operation belongs on the audit trail.
func (o Operation[S]) Changes() bool { return o.Method != http.MethodGet && !o.Unrecorded }

// Serve reads the input of a request, does the operation and returns its answer; nil for None.
func (o Operation[S]) Serve(w http.ResponseWriter, r *http.Request, subject S, caller Caller) (any, error) {
	limit := o.MaxBody
	if limit == 0 {
		limit = defaultMaxBody
	}
	return o.do(r.Context(), subject, caller, reader{w, r, limit, o.Hint})
}

const defaultMaxBody = 4 << 10

// Describe is the operation for the document of the API.
func (o Operation[S]) Describe() openapi.Operation {
	described := openapi.Operation{Method: o.Method, Path: o.Path, Tag: "operator", Security: "operator:" + o.NeededRole().String(), Summary: o.Summary, Response: o.output, Errors: o.Errors, About: map[string]openapi.Parameter{}}
	for _, one := range o.input {
		name := one.name
		switch one.kind {
		case reflect.Bool:
			name += ":boolean"
		case reflect.Int:
			name += ":integer"
		}
		switch one.place {
		case "query":
			described.Query = append(described.Query, name)
		case "header":
			described.Headers = append(described.Headers, name)
		case "body":
			described.Request, described.Partial = o.Example, !one.required
			if o.Example == nil {
				described.Request = reflect.Zero(one.of).Interface()
			}
		}
		described.About[one.name] = openapi.Parameter{Meaning: one.meaning, Schema: one.schema()}
	}
	return described
}

// Reason says why an operator does something.
type Reason struct {
	Reason string `json:"reason,omitempty"`
}

// WithReason is the input of an operation that takes an optional Reason.
type WithReason struct {
	Body Reason `body:"optional"`
}

// maxReason bounds a Reason, in bytes.
const maxReason = 500

// Why returns the reason; fault.Malformed for one that is too long.
func (w WithReason) Why() (string, error) {
	if len(w.Body.Reason) > maxReason {
		return "", fault.InField("reason", "must be at most 500 bytes of text")
	}
	return w.Body.Reason, nil
}

// Page is which part of a long list is wanted.
type Page struct {
	Limit  int    `query:"limit" default:"50" from:"1" to:"500"`
	Before string `query:"before"`
}

// Cut reads one row more than the page has, and returns the page with the cursor of the following one.
func Cut[T any](page Page, cursor func(T) string, read func(limit int) ([]T, error)) (exchange.List[T], error) {
	found, err := read(page.Limit + 1)
	return exchange.CutList(found, page.Limit, cursor), err
}
