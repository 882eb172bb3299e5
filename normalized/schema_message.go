package normalized

import "inbox/identity"

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
		"parts": partList("part.json#/$defs/stored"), "timestamp": instantSchema(),
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
				"type": constant(identity.ProofTransport), "verified_by": text(proof), "key_id": text(proof),
			}),
			record([]string{"type", "alg", "kid", "value"}, schema{
				"type": constant(identity.ProofSignedAttestation), "alg": text(name), "kid": text(proof), "value": text(proof),
				"canonicalization": text(name),
			}),
			record([]string{"type", "verified_by"}, schema{
				"type": constant(identity.ProofBearerToken), "verified_by": text(proof), "token_id": text(proof),
			}),
		}},
	}, when(attestation, needs("id", "expires_at")))
	s["title"] = "What somebody already verified about a sender; not a login"
	s["$defs"] = schema{"reference": record([]string{"subject", "issuer", "method"}, schema{
		"subject": text(stated.ID), "issuer": text(stated.ID), "method": text(name),
	})}
	return s
}
