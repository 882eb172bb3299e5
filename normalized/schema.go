package normalized

import (
	"encoding/json"
	"maps"
	"slices"

	"inbox/identity"
	"inbox/policypart"
)

//go:generate go run schema_generate.go

// schema is one JSON Schema (draft 2020-12).
type schema map[string]any

const schemaDialect = "https://json-schema.org/draft/2020-12/schema"

// Patterns are written in the part of the regular expression language that every validator knows. Lengths count
// characters there and bytes in Validate, so a schema may accept a little more than the server, never less.
const (
	patternMachine = `^[^\x00-\x1f\x7f-\x9f]+$`
	patternProse   = `\S`
	patternAddress = `^@[^@<>"(),:;\\\[\]\x00-\x20\x7f-\x9f]+@[a-z0-9.:\[\]-]+$`
	patternAgent   = `^@[A-Za-z0-9_-]([A-Za-z0-9._-]{0,62}[A-Za-z0-9_-])?@[a-z0-9.:\[\]-]+$`
	patternTime    = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$`
	patternHTTPS   = `^https://[^@/?#\x00-\x20]+([/?#].*)?$`
	patternWeb     = `^[hH][tT][tT][pP][sS]?://`
	patternScheme  = `^[A-Za-z][A-Za-z0-9+.-]*:`
	patternDigest  = `^[0-9a-f]{64}$`
	patternRef     = `^sha256:[0-9a-f]{64}$`
	patternBase64  = `^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$`
	patternMedia   = `^[^/\s]+/[^/\s]+`
	patternText    = `^\s*[Tt][Ee][Xx][Tt]/([Pp][Ll][Aa][Ii][Nn]|[Mm][Aa][Rr][Kk][Dd][Oo][Ww][Nn]|[Hh][Tt][Mm][Ll])\s*(;.*)?$`
	patternReverse = `^[^.]+(\.[^.]+)+$`
)

// Schemas returns the JSON Schemas of the contract by file name, as docs/schema holds them. They describe what the
// encoder writes under the default limits; readers ignore keys that are not listed.
func Schemas() map[string][]byte {
	files := map[string]schema{
		"message.json":     messageSchema(),
		"response.json":    responseSchema(),
		"delta.json":       deltaSchema(),
		"part.json":        partSchema(),
		"policy-part.json": policySchema(),
		"evidence.json":    evidenceSchema(),
	}

	written := make(map[string][]byte, len(files))
	for name, s := range files {
		s["$schema"] = schemaDialect
		body, err := json.MarshalIndent(s, "", "  ")
		if err != nil {
			panic("normalized: schema " + name + ": " + err.Error()) // literals of this package
		}
		written[name] = append(body, '\n')
	}

	return written
}

// record is an object with some required fields; all other keys are allowed and ignored.
func record(required []string, properties schema, rules ...schema) schema {
	s := schema{"type": "object", "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	if len(rules) > 0 {
		s["allOf"] = rules
	}
	return s
}

func titled(title string, s schema) schema {
	s = maps.Clone(s)
	s["title"] = title
	return s
}

func ref(target string) schema { return schema{"$ref": target} }

func machineText(longest int) schema {
	return schema{"type": "string", "maxLength": longest, "pattern": patternMachine}
}

// prose is text for people; it may be empty.
func prose(longest int) schema { return schema{"type": "string", "maxLength": longest} }

func requiredProse(longest int) schema {
	return schema{"type": "string", "maxLength": longest, "pattern": patternProse}
}

func matching(pattern string, longest int) schema {
	return schema{"type": "string", "maxLength": longest, "pattern": pattern}
}

func addressSchema() schema { return matching(patternAddress, DefaultLimits().Address) }

func instantSchema() schema {
	return schema{"type": "string", "format": "date-time", "pattern": patternTime}
}

func constant(value any) schema { return schema{"const": value} }

func among(values ...string) schema { return schema{"enum": values} }

func listOf(items schema, most int) schema {
	return schema{"type": "array", "items": items, "maxItems": most}
}

func natural() schema { return schema{"type": "integer", "minimum": 0} }

func boolean() schema { return schema{"type": "boolean"} }

// having matches objects whose field has the value.
func having(field string, value any) schema {
	return schema{"required": []string{field}, "properties": schema{field: constant(value)}}
}

// when adds a rule to objects that match a condition.
func when(condition, rule schema) schema { return schema{"if": condition, "then": rule} }

func unless(condition, rule schema) schema { return schema{"if": condition, "else": rule} }

func needs(fields ...string) schema { return schema{"required": fields} }

func not(s schema) schema { return schema{"not": s} }

func messageSchema() schema {
	s := record([]string{"id", "thread_id", "sender", "recipient", "parts", "recipient_capabilities", "received_via", "received_at", "raw"}, schema{
		"id":                     machineText(stated.ID),
		"thread_id":              machineText(stated.ID),
		"in_reply_to":            machineText(stated.ID),
		"sender":                 ref("#/$defs/sender"),
		"recipient":              matching(patternAgent, stated.Address),
		"parts":                  partList("part.json#/$defs/inbound"),
		"history":                listOf(ref("#/$defs/turn"), stated.History),
		"recipient_capabilities": ref("#/$defs/recipient_capabilities"),
		"received_via":           among(ViaActivityPub, ViaA2A, ViaEmail),
		"received_at":            instantSchema(),
		"raw": record([]string{"ref", "media_type"}, schema{
			"ref": schema{"type": "string", "pattern": patternRef}, "media_type": machineText(stated.Name),
			"url": matching(patternWeb, stated.ID), // of this server, which a developer runs without TLS
		}),
		"policy_resolution": ref("policy-part.json#/$defs/resolution"),
		"received_trace":    ref("response.json#/$defs/trace"),
		"surface":           ref("#/$defs/surface"),
	})

	s["title"] = "Message to one agent"
	s["$defs"] = schema{
		"sender":                 senderSchema(ref("evidence.json")),
		"speaker":                titled("Sender of an earlier turn: of its evidence only who said what", senderSchema(ref("evidence.json#/$defs/reference"))),
		"profile":                profileSchema(),
		"turn":                   turnSchema(),
		"segment":                segmentSchema(),
		"recipient_capabilities": capabilitiesSchema(),
		"surface":                surfaceSchema(),
	}

	return s
}

// partList is a list with at least one part that is not blank text.
func partList(part string) schema {
	list := listOf(ref(part), stated.Parts)
	list["minItems"] = 1
	list["contains"] = schema{"anyOf": []schema{
		not(having("kind", PartText)),
		{"properties": schema{"content": schema{"pattern": patternProse}}},
	}}
	return list
}

func senderSchema(evidence schema) schema {
	return record([]string{"address", "auth_method", "verified"}, schema{
		"address":      addressSchema(),
		"display_name": schema{"type": "string"},
		"profile":      ref("#/$defs/profile"),
		"auth_method": among(AuthActivityPubSignature, AuthActivityPubProof, AuthA2AJWT, AuthA2AOAuth, AuthEmailDKIM,
			AuthEmailDMARC, AuthNone),
		"verified":   boolean(),
		"key_id":     machineText(stated.ID),
		"identities": listOf(evidence, stated.Identities),
		"carried_by": addressSchema(),
	}, when(having("auth_method", AuthNone), schema{"properties": schema{"verified": constant(false)}}))
}

func profileSchema() schema {
	text := schema{"type": "string"}
	return titled("Context about the sender, never authorization", record(nil, schema{
		"display_name": text, "username": text, "url": matching(patternWeb, stated.ID),
		"avatar": record([]string{"url"}, schema{
			"url": matching(patternWeb, stated.ID), "mime_type": text, "width": natural(), "height": natural(),
		}),
		"locale": text, "timezone": text, "provider": text, "provider_subject": text, "fetched_at": instantSchema(),
		"extensions": schema{"type": "object", "maxProperties": maxUnknownKeys, "additionalProperties": schema{"type": "object"}},
	}))
}

func turnSchema() schema {
	return record([]string{"role", "sender", "parts", "timestamp"}, schema{
		"id": machineText(stated.ID), "role": among(RoleUser, RoleAssistant), "sender": ref("#/$defs/speaker"),
		"parts": unboundedParts(), "timestamp": instantSchema(),
		"segments": schema{"type": "array", "items": ref("#/$defs/segment"), "minItems": 2},
	})
}

// unboundedParts are the parts of a turn. The bound of a list of parts holds for each message that was merged into it.
func unboundedParts() schema {
	list := partList("part.json#/$defs/stored")
	delete(list, "maxItems")
	return list
}

func segmentSchema() schema {
	return record([]string{"sender", "parts", "timestamp"}, schema{
		"id": machineText(stated.ID), "sender": ref("#/$defs/speaker"), "parts": partList("part.json#/$defs/stored"), "timestamp": instantSchema(),
	})
}

func capabilitiesSchema() schema {
	envelope := schema{"type": "array", "items": among("to", "cc"), "minItems": 1}
	return record([]string{"mention_relay"}, schema{
		"mention_relay": schema{"oneOf": []schema{
			record([]string{"kind"}, schema{"kind": among(RelayInline, RelayNone)}),
			record([]string{"kind", "fields"}, schema{"kind": constant(RelayRecipientField), "fields": envelope}),
			record([]string{"kind", "envelope_fields"}, schema{
				"kind": constant(RelayAddressing), "envelope_fields": envelope, "also_inline": boolean(),
			}),
		}},
		"agent_chain": record([]string{"hop", "max_hops", "is_final"}, schema{
			"hop": schema{"type": "integer", "minimum": 1}, "max_hops": schema{"type": "integer", "minimum": 1}, "is_final": boolean(),
		}),
		"max_text_bytes": natural(),
		"text_mimes":     schema{"type": "array", "items": among(MIMEPlain, MIMEMarkdown, MIMEHTML)},
		"attachments": record(nil, schema{
			"max_count": natural(), "max_bytes": natural(), "mimes": schema{"type": "array", "items": schema{"type": "string"}},
		}),
		"threads": boolean(),
		"edits":   boolean(),
	})
}

func evidenceSchema() schema {
	const name, id, proof = 256, 512, 2048
	text := machineText
	list := listOf(text(stated.ID), identity.MaxEvidence)
	audience := listOf(text(stated.ID), identity.MaxEvidence)
	audience["minItems"] = 1
	attestation := schema{"required": []string{"proof"}, "properties": schema{"proof": having("type", identity.ProofSignedAttestation)}}
	s := record([]string{"subject", "issuer", "method", "assurance", "audience", "issued_at", "proof"}, schema{
		"id": text(id), "subject": text(stated.ID), "issuer": text(stated.ID), "method": text(name), "assurance": text(name),
		"audience":  schema{"oneOf": []schema{text(stated.ID), audience}},
		"issued_at": instantSchema(), "not_before": instantSchema(), "expires_at": instantSchema(),
		"on_behalf_of": list,
		"claims":       schema{"type": "object"},
		"source": record(nil, schema{
			"transport": text(name), "transport_module": text(name), "connector": text(stated.ID), "channel": text(stated.ID),
		}),
		"proof": schema{"oneOf": []schema{
			record([]string{"type", "verified_by"}, schema{
				"type": constant(identity.ProofTransport), "verified_by": text(proof), "addressed": text(name), "key_id": text(proof),
			}),
			record([]string{"type", "alg", "kid", "value"}, schema{
				"type": constant(identity.ProofSignedAttestation), "alg": text(name), "kid": text(proof), "value": text(proof),
				"canonicalization": text(name),
			}),
			record([]string{"type", "verified_by"}, schema{
				"type": constant(identity.ProofBearerToken), "verified_by": text(proof), "addressed": text(name), "token_id": text(proof),
			}),
		}},
	}, when(attestation, needs("id", "expires_at")))

	s["title"] = "What was already verified about a sender; not a login"
	s["$defs"] = schema{"reference": record([]string{"subject", "issuer", "method"}, schema{
		"subject": text(stated.ID), "issuer": text(stated.ID), "method": text(name),
	})}

	return s
}

func partSchema() schema {
	known := []schema{ref("#/$defs/text"), ref("#/$defs/file"), ref("#/$defs/link"), ref("#/$defs/artifact"), ref("#/$defs/tool_call")}
	withPolicy := slices.Concat(known, []schema{ref("#/$defs/policy")})
	unknown := []schema{ref("#/$defs/unknown")}
	return schema{
		"title": "Part of a message or response",
		"oneOf": withPolicy,
		"$defs": schema{
			"inbound":   titled("Part of a message: a policy part in it is data and demands nothing", schema{"oneOf": withPolicy}),
			"question":  titled("Part of a question to another agent: no policy", schema{"oneOf": known}),
			"stored":    titled("Part of the history: no policy, unknown kinds are kept", schema{"oneOf": slices.Concat(known, unknown)}),
			"forwarded": titled("Part of another agent's answer: unknown kinds are kept", schema{"oneOf": slices.Concat(withPolicy, unknown)}),
			"text":      textSchema(),
			"file":      fileSchema(PartFile, nil),
			"artifact":  fileSchema(PartArtifact, schema{"artifact_type": machineText(stated.Name), "id": machineText(stated.ID), "description": prose(stated.TextPart)}),
			"link":      linkSchema(),
			"tool_call": toolCallSchema(),
			"policy":    record([]string{"kind", "policy"}, schema{"kind": constant(PartPolicy), "policy": ref("policy-part.json")}),
			"unknown": record([]string{"kind"}, schema{
				"kind": schema{"type": "string", "not": among(PartText, PartFile, PartLink, PartArtifact, PartToolCall, PartPolicy)},
			}),
			"bytes_ref": bytesRefSchema(),
			"citation":  citationSchema(),
		},
	}
}

// stated are the limits that the schemas state.
var stated = DefaultLimits()

func textSchema() schema {
	return record([]string{"kind", "mime", "content"}, schema{
		"kind": constant(PartText), "mime": matching(patternText, maxTextMIME), "content": prose(stated.TextPart),
		"text_new": prose(stated.TextPart), "citation": ref("#/$defs/citation"),
	})
}

func fileSchema(kind string, more schema) schema {
	properties := schema{
		"kind": constant(kind), "mime": matching(patternMedia, stated.Name), "bytes_ref": ref("#/$defs/bytes_ref"),
		"name": machineText(stated.Name), "size": natural(), "alt": prose(stated.TextPart),
		"content_id": machineText(stated.ID),
	}
	maps.Copy(properties, more)
	return record([]string{"kind", "mime", "bytes_ref"}, properties)
}

func linkSchema() schema {
	return record([]string{"kind", "url"}, schema{
		"kind": constant(PartLink), "url": schema{"allOf": []schema{machineText(stated.ID), {"pattern": patternScheme}}},
		"title": prose(stated.TextPart), "description": prose(stated.TextPart), "citation": ref("#/$defs/citation"),
	})
}

func citationSchema() schema {
	text := prose(maxCitationText)
	return titled("Where something in an answer comes from; other members are dropped, and what names no source counts as absent", record(nil, schema{
		"source": text, "source_id": text, "item_id": text, "fragment_id": text, "source_title": text,
		"source_url": prose(maxCitationURL), "score": schema{"type": "number"}, "excerpt": prose(maxExcerpt),
		"access_status":      among(AccessAllowed, AccessDenied, AccessPartial, AccessSourceRestricted),
		"restriction_reason": prose(maxReason), "principal": schema{"type": "object"},
	}))
}

func toolCallSchema() schema {
	call := record([]string{"kind", "id", "name"}, schema{
		"kind": constant(PartToolCall), "id": machineText(stated.ID), "name": machineText(stated.Name),
		"args": schema{"title": "any JSON"}, "result": schema{"title": "any JSON"},
		"error":    record([]string{"message"}, schema{"message": requiredProse(stated.ToolJSON)}),
		"metadata": schema{"title": "any JSON; citations of the result in its member citations"},
	})
	call["not"] = needs("result", "error")
	return call
}

func bytesRefSchema() schema {
	address := matching(patternHTTPS, stated.ID)
	algo, digest := constant(AlgoSHA256), matching(patternDigest, 64)
	return schema{"title": "Where the bytes of a file are", "oneOf": []schema{
		record([]string{"kind", "data_base64"}, schema{
			"kind": constant(BytesInline), "data_base64": matching(patternBase64, base64Size(stated.Inline)), "algo": algo, "digest": digest,
		}),
		record([]string{"kind", "url"}, schema{
			"kind": constant(BytesURL), "url": address, "expires_at": instantSchema(), "algo": algo, "digest": digest,
		}),
		record([]string{"kind", "algo", "digest"}, schema{
			"kind": constant(BytesContentAddressed), "algo": algo, "digest": digest, "url": matching(patternWeb, stated.ID), "expires_at": instantSchema(),
		}),
	}}
}

func policySchema() schema {
	const name, title, message = 256, 1 << 10, 16 << 10
	free := schema{"title": "any JSON"}
	s := record([]string{"kind", "message"}, schema{
		"kind":    machineText(name),
		"code":    machineText(name),
		"title":   prose(title),
		"message": requiredProse(message),
		"message_translations": schema{
			"type": "object", "maxProperties": 64,
			"additionalProperties": record([]string{"message"}, schema{"title": prose(title), "message": requiredProse(message)}),
		},
		"url":          matching(patternHTTPS, stated.ID),
		"action_label": prose(title),
		"data":         schema{"type": "object", "propertyNames": matching(patternReverse, name), "additionalProperties": free},
		"scopes":       listOf(machineText(name), 64),
		"expires_at":   instantSchema(),
		"auth_challenges": listOf(schema{
			"type": "object", "required": []string{"scheme"}, "additionalProperties": schema{"type": "string"},
			"properties": schema{"scheme": machineText(name)},
		}, 64),
		"same_person":         boolean(),
		"accepts":             listOf(free, 64),
		"amount":              machineText(name),
		"currency":            machineText(name),
		"retry_after_seconds": natural(),
		"blocked_by":          prose(stated.ID),
	},
		when(having("kind", policypart.Unauthorized), needs("auth_challenges")),
		when(having("kind", policypart.PaymentRequired), needs("expires_at")),
		when(having("kind", policypart.TooManyRequests), needs("retry_after_seconds")),
	)

	s["title"] = "Policy part: what an agent demands before it goes on, or why it does not go on; kind is an open string"
	s["$defs"] = schema{"resolution": resolutionSchema()}
	return s
}

func resolutionSchema() schema {
	return record([]string{"kind", "outcome", "resolved_at"}, schema{
		"kind":              machineText(256),
		"in_reply_to_state": prose(stated.ID),
		"outcome":           among(policypart.OutcomeGranted, policypart.OutcomePaid, policypart.OutcomeDenied, policypart.OutcomeExpired),
		"resolved_at":       instantSchema(),
		"resolved_by": record([]string{"issuer", "subject", "method"}, schema{
			"issuer": machineText(stated.ID), "subject": machineText(stated.ID), "method": machineText(256),
		}),
		"same_as_sender": boolean(),
		"receipt":        prose(stated.ID),
		"data":           schema{"type": "object"},
	})
}

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
			"to": addressSchema(), "parts": partList("part.json#/$defs/question"),
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
