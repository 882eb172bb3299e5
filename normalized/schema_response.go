package normalized

func responseSchema() schema {
	running := schema{"properties": schema{"kind": constant(PartToolCall)}, "not": schema{"anyOf": []schema{needs("result"), needs("error")}}}
	dispatching := schema{"required": []string{"dispatch"}, "properties": schema{"dispatch": schema{"minItems": 1}}}
	without := schema{"anyOf": []schema{having("silent", true), dispatching}}
	empty := schema{"maxItems": 0}
	s := record([]string{"in_reply_to"}, responseFields("part.json"),
		unless(without, schema{"required": []string{"parts"}, "properties": schema{"parts": partList("part.json")}}),
		when(without, schema{"properties": schema{"parts": empty}}),
		when(dispatching, schema{"properties": schema{
			"silent": constant(false), "status": constant(StatusCompleted), "to": empty, "cc": empty,
		}}),
		unless(having("status", StatusInputRequired), schema{"properties": schema{"parts": schema{"items": not(running)}}}),
		when(needs("error"), having("status", StatusFailed)),
		schema{"properties": schema{"parts": schema{"contains": having("kind", PartPolicy), "minContains": 0, "maxContains": 1}}},
	)
	s["title"] = "Answer of an agent"
	s["$defs"] = schema{
		"growing": titled("Answer inside a delta: nothing is required yet", record(nil, responseFields("part.json"))),
		"trace":   titled("Another agent's answer, carried for display", record(nil, traceFields())),
	}
	return s
}

// traceFields are those of another agent's answer: what that agent asked of others on the way is not part of it.
func traceFields() schema {
	fields := responseFields("part.json#/$defs/forwarded")
	fields["dispatch"] = schema{"maxItems": 0}
	return fields
}

func responseFields(part string) schema {
	recipients := listOf(addressSchema(), stated.Recipients)
	return schema{
		"in_reply_to": machineText(stated.ID),
		"thread_id":   machineText(stated.ID),
		"parts":       listOf(ref(part), stated.Parts),
		"silent":      boolean(),
		"to":          recipients,
		"cc":          recipients,
		"visibility":  among(visibilities...),
		"status":      among(StatusCompleted, StatusInputRequired, StatusFailed),
		"error": record([]string{"code", "message"}, schema{
			"code": machineText(stated.Name), "message": requiredProse(stated.TextPart),
		}),
		"metadata": schema{"type": "object", "additionalProperties": prose(stated.Metadata)},
		"dispatch": titled("Other agents to ask first; the turn runs again with their answers", listOf(record([]string{"to", "parts"}, schema{
			"to": addressSchema(), "parts": partList("part.json#/$defs/inbound"),
		}), MaxDispatches)),
	}
}

func deltaSchema() schema {
	outcome := schema{"properties": schema{"part": schema{
		"properties": schema{"kind": constant(PartToolCall)}, "anyOf": []schema{needs("result"), needs("error")},
	}}}
	bare := schema{"properties": schema{"part": schema{
		"properties": schema{"kind": constant(PartToolCall)}, "not": schema{"anyOf": []schema{needs("result"), needs("error")}},
	}}}
	begun := schema{"properties": schema{"part": not(having("kind", PartToolCall))}}
	return titled("One step of a growing answer", record([]string{"kind"}, schema{
		"kind":     among(DeltaPartBegin, DeltaText, DeltaPartEnd, DeltaToolCallStart, DeltaToolCallEnd, DeltaStatus, DeltaResponse),
		"text":     prose(stated.TextPart),
		"part":     ref("part.json"),
		"response": ref("response.json#/$defs/growing"),
	},
		when(having("kind", DeltaPartBegin), schema{"allOf": []schema{needs("part"), begun}}),
		when(having("kind", DeltaToolCallStart), schema{"allOf": []schema{needs("part"), bare}}),
		when(having("kind", DeltaToolCallEnd), schema{"allOf": []schema{needs("part"), outcome}}),
		when(having("kind", DeltaStatus), needs("response")),
		when(having("kind", DeltaResponse), needs("response")),
	))
}
