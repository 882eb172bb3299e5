package envelope

import (
	"net/url"
	"regexp"

	"inbox/agents/runtime/value"
	"inbox/normalized"
)

// citationTexts are the members of a citation that are texts (agent runtime contract, section 4.5).
var citationTexts = []string{"source", "source_id", "item_id", "fragment_id", "source_title", "source_url", "excerpt"}

// Citations normalizes the list under metadata.citations of a tool's result: texts are trimmed, the score becomes a
// finite number, what does not fit is left out and so are empty citations. The access members are checked, and a denied
// citation loses its address and its excerpt. Other members stay, but for those that may be secret (agent runtime contract,
// section 4.5).
func Citations(given any) []any {
	kept := []any{}
	for _, item := range value.Elements(given) {
		if raw, is := value.Plain(item).(map[string]any); is {
			if one := citation(raw); len(one) > 0 {
				kept = append(kept, one)
			}
		}
	}
	return kept
}

func citation(raw map[string]any) map[string]any {
	one := withoutSecrets(value.Clone(raw))
	for _, name := range citationTexts {
		delete(one, name)
		if text := value.Trim(value.Scalar(raw[name])); text != "" {
			one[name] = text
		}
	}

	if address, err := url.Parse(value.Text(one["source_url"])); err != nil || address.User != nil {
		delete(one, "source_url") // it cannot be read, or a password stands in it
	}

	delete(one, "score")
	if score, is := value.FiniteNumber(raw["score"]); is {
		one["score"] = score
	}

	checkAccess(one, raw)
	return one
}

// checkAccess brings the access members of a citation into form.
func checkAccess(citation, raw map[string]any) {
	for _, name := range []string{"access_status", "restriction_reason", "principal"} {
		delete(citation, name)
	}

	if status := raw["access_status"]; status != nil {
		known := normalized.AccessOf(value.Scalar(status))
		if known == "" {
			known = normalized.AccessDenied // it says something that cannot be read: that is no permission
		}
		citation["access_status"] = known
	}
	if reason := value.Trim(value.Scalar(raw["restriction_reason"])); reason != "" {
		citation["restriction_reason"] = reason
	}
	if principal, is := value.Plain(raw["principal"]).(map[string]any); is {
		if safe := normalized.SafePrincipal(principal); safe != nil {
			citation["principal"] = safe
		}
	}

	if citation["access_status"] == normalized.AccessDenied {
		keepNames(citation)
	}
}

// keepNames leaves of a denied citation what names the source. An excerpt may stand under any other name.
func keepNames(citation map[string]any) {
	named := map[string]bool{
		"source": true, "source_id": true, "item_id": true, "fragment_id": true, "source_title": true, "score": true,
		"access_status": true, "restriction_reason": true, "principal": true,
	}
	for name := range citation {
		if !named[name] {
			delete(citation, name)
		}
	}
}

// secretMember finds members that belong in no citation: credentials, the names of sessions and owners, claims, lists of
// capabilities, raw requests (agent runtime contract, section 4.5).
var secretMember = regexp.MustCompile(`(?i)api[_-]?key|authorization|bearer|cookie|credential|nonce|passw|passphrase|private[_-]?key|secret|session|token|jwt|` +
	`owner[_-]?key|claim|capabilit|binding|signature|request[_-]?metadata|headers?$`)

// withoutSecrets removes secret members at every depth. It changes what it gets.
func withoutSecrets(object map[string]any) map[string]any {
	for name, member := range object {
		if secretMember.MatchString(name) {
			delete(object, name)
			continue
		}
		object[name] = cleaned(member)
	}
	return object
}

func cleaned(given any) any {
	switch plain := value.Plain(given).(type) {
	case map[string]any:
		return withoutSecrets(plain)
	case []any:
		for i := range plain {
			plain[i] = cleaned(plain[i])
		}
		return plain
	}
	return given
}
