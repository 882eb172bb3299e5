package normalized

import (
	"maps"
	"slices"

	"inbox/policypart"
)

func partSchema() schema {
	known := []schema{ref("#/$defs/text"), ref("#/$defs/file"), ref("#/$defs/link"), ref("#/$defs/artifact"), ref("#/$defs/tool_call")}
	withPolicy := slices.Concat(known, []schema{ref("#/$defs/policy")})
	unknown := []schema{ref("#/$defs/unknown")}
	return schema{
		"title": "Part of a message or response",
		"oneOf": withPolicy,
		"$defs": schema{
			"inbound":   titled("Part of a message: no policy", schema{"oneOf": known}),
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
		},
	}
}

// stated are the limits that the schemas state.
var stated = DefaultLimits()

func textSchema() schema {
	return record([]string{"kind", "mime", "content"}, schema{
		"kind": constant(PartText), "mime": among(MIMEPlain, MIMEMarkdown, MIMEHTML), "content": prose(stated.TextPart),
		"text_new": prose(stated.TextPart),
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
		"title": prose(stated.TextPart), "description": prose(stated.TextPart),
	})
}

func toolCallSchema() schema {
	call := record([]string{"kind", "id", "name"}, schema{
		"kind": constant(PartToolCall), "id": machineText(stated.ID), "name": machineText(stated.Name),
		"args": schema{"title": "any JSON"}, "result": schema{"title": "any JSON"},
		"error": record([]string{"message"}, schema{"message": requiredProse(stated.ToolJSON)}),
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
			"kind": constant(BytesContentAddressed), "algo": algo, "digest": digest, "url": address,
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
		"receipt": prose(stated.ID),
		"data":    schema{"type": "object"},
	})
}
