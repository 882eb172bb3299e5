package llm

import (
	"cmp"
	"errors"
	"fmt"

	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/value"
	"inbox/exchange"
)

// Formats implements agents.Formatting: the model's provider holds answers to a form.
func (a *Agent) Formats(kind string) bool {
	formatter, is := a.options.Provider.(Formatter)
	return is && formatter.Formats(kind)
}

// formatWords ask for JSON in words: providers refuse to give an object that no message asks for.
func formatWords(format *exchange.Format) string {
	if format == nil {
		return ""
	}
	return "\n\nAnswer with one JSON document and nothing else."
}

// deformed returns what is wrong with an answer that has to have a form. Some servers ignore the form, and say nothing. An answer that is cut
// says so itself.
func (j *job) deformed(text string) error {
	format := j.turn.Format
	if format == nil || text == "" || j.stop == StopLength {
		return nil
	}

	schema, err := value.Decode(format.Schema, value.Limits{Bytes: exchange.MaxFormat})
	if err != nil && len(format.Schema) > 0 {
		return fmt.Errorf("read the schema of the answer: %w", err)
	}
	wanted := loop.StructuredOutput{Schema: value.Assoc(schema), Strict: format.Strict}
	if format.Kind == exchange.FormatObject {
		wanted = loop.StructuredOutput{Schema: map[string]any{"type": "object"}, Strict: true}
	}

	read := wanted.Read(text)
	if read["failure"] == nil {
		return nil
	}
	told := value.Assoc(value.Assoc(read["provider_diagnostics"])["structured_output"])
	return errors.New("the answer does not have the form " + format.Kind + ", which its sender asks for: " + cmp.Or(value.Text(told["code"]), value.Text(told["status"])))
}

// formatName is that of the schema; providers demand one.
func formatName(format *exchange.Format) string { return cmp.Or(format.Name, "answer") }
