package normalized

import (
	"encoding/json"
	"strings"
	"time"

	"pgregory.net/rapid"

	"inbox/identity"
	"inbox/policypart"
)

// Generators of values that keep every rule, so that a property fails because of the code and not because of its input.

var (
	anyText  = rapid.StringOfN(rapid.Rune(), 0, 40, -1)
	wordText = rapid.StringMatching(`[a-zA-Z0-9]{1,12}`)
	nameText = rapid.StringMatching(`[a-zA-Z0-9äß "\\<>&😀-]{1,20}`)
	idText   = rapid.StringMatching(`[a-z]{1,8}:[!-~]{1,40}`)
	domain   = rapid.StringMatching(`[a-z]{1,8}\.(test|example\.org|xn--bcher-kva\.ch)(:8080)?`)
)

func drawAddress(t *rapid.T) string {
	return "@" + rapid.StringMatching(`[a-zA-Z0-9_.+äø-]{1,12}`).Draw(t, "local") + "@" + domain.Draw(t, "domain")
}

func drawTime(t *rapid.T) identity.Time {
	return identity.At(time.UnixMilli(rapid.Int64Range(0, 4102444800000).Draw(t, "ms")))
}

func maybe[T any](t *rapid.T, draw func(*rapid.T) T) (value T) {
	if rapid.Bool().Draw(t, "present") {
		value = draw(t)
	}
	return value
}

func pointer[T any](draw func(*rapid.T) T) func(*rapid.T) *T {
	return func(t *rapid.T) *T { value := draw(t); return &value }
}

func of[T any](g *rapid.Generator[T]) func(*rapid.T) T {
	return func(t *rapid.T) T { return g.Draw(t, "value") }
}

func several[T any](t *rapid.T, least, most int, draw func(*rapid.T) T) (list []T) {
	for range rapid.IntRange(least, most).Draw(t, "count") {
		list = append(list, draw(t))
	}
	return list
}

func drawJSON(t *rapid.T) json.RawMessage {
	return json.RawMessage(rapid.SampledFrom([]string{
		`{}`, `[]`, `1.5e3`, `"text \u00e4"`, `true`, `{"a":{"b":[1,2,{"c":null}]},"d":"<&>"}`, `[ 1, 2 ]`,
	}).Draw(t, "json"))
}

func drawObject(t *rapid.T) json.RawMessage {
	return json.RawMessage(rapid.SampledFrom([]string{`{}`, `{"team_id":"T1"}`, `{"n":{"m":[1]}}`}).Draw(t, "object"))
}

func drawPart(t *rapid.T) Part {
	switch rapid.SampledFrom([]string{PartText, PartFile, PartLink, PartArtifact, PartToolCall}).Draw(t, "kind") {
	case PartFile:
		return drawFile(t, PartFile)
	case PartLink:
		return Part{
			Kind: PartLink, URL: "https://" + domain.Draw(t, "host") + "/x", Title: maybe(t, of(anyText)), Description: maybe(t, of(anyText)),
			Citation: maybe(t, drawCitation),
		}
	case PartArtifact:
		p := drawFile(t, PartArtifact)
		p.ArtifactType, p.ID, p.Description = maybe(t, of(wordText)), maybe(t, of(idText)), maybe(t, of(anyText))
		return p
	case PartToolCall:
		p := drawCall(t)
		if rapid.Bool().Draw(t, "failed") {
			p.Result, p.Error = nil, &ToolError{Message: nameText.Draw(t, "message") + "."}
		}
		return p
	}
	return drawText(t)
}

func drawText(t *rapid.T) Part {
	return Part{
		Kind: PartText, MIME: rapid.SampledFrom([]string{MIMEPlain, MIMEMarkdown, MIMEHTML}).Draw(t, "mime"),
		Content: "x" + anyText.Draw(t, "content"), New: maybe(t, of(anyText)), Citation: maybe(t, drawCitation),
	}
}

func drawCitation(t *rapid.T) *Citation {
	c, ok := CitationOf(map[string]any{
		"source": wordText.Draw(t, "source"), "source_title": anyText.Draw(t, "title"), "source_url": "https://" + domain.Draw(t, "host") + "/y",
		"excerpt": anyText.Draw(t, "excerpt"), "score": rapid.Float64Range(0, 1).Draw(t, "score"), "token": "s3cret",
		"access_status": rapid.SampledFrom([]any{AccessAllowed, AccessDenied, AccessPartial, AccessSourceRestricted, "?", nil}).Draw(t, "access"),
		"principal":     map[string]any{"acting_user_id": float64(7), "owner_key": "s3cret"},
	})
	if !ok {
		return nil
	}
	return &c
}

func drawCall(t *rapid.T) Part {
	return Part{Kind: PartToolCall, ID: idText.Draw(t, "id"), Name: wordText.Draw(t, "name"), Args: maybe(t, drawJSON), Result: drawJSON(t), Metadata: maybe(t, drawObject)}
}

func drawFile(t *rapid.T, kind string) Part {
	return Part{
		Kind: kind, MIME: rapid.SampledFrom([]string{"image/png", "application/pdf", "text/plain; charset=utf-8"}).Draw(t, "mime"),
		BytesRef: drawRef(t), Name: maybe(t, of(nameText)), Size: maybe(t, of(rapid.Int64Range(0, 1<<40))), Alt: maybe(t, of(anyText)),
		ContentID: maybe(t, of(idText)),
	}
}

func drawRef(t *rapid.T) *BytesRef {
	content := []byte(anyText.Draw(t, "bytes"))
	switch rapid.IntRange(0, 3).Draw(t, "ref") {
	case 0:
		return Inline(content)
	case 1:
		b := Inline(content)
		b.Algo, b.Digest = AlgoSHA256, Digest(content)
		return b
	case 2:
		b := At("https://" + domain.Draw(t, "host") + "/file")
		b.ExpiresAt = maybe(t, pointer(drawTime))
		return b
	}
	b := Stored(Digest(content))
	b.URL = maybe(t, func(t *rapid.T) string { return "https://" + domain.Draw(t, "host") + "/file" })
	return b
}

func drawPolicy(t *rapid.T) Part {
	p := policypart.Part{
		Kind: rapid.SampledFrom([]string{
			policypart.ConsentRequired, policypart.Unauthorized, policypart.PaymentRequired, policypart.Forbidden,
			policypart.TooManyRequests, policypart.UnavailableForLegalReasons, policypart.ServiceUnavailable, "captcha_required",
		}).Draw(t, "policy"),
		Message: "m" + anyText.Draw(t, "message"), Title: maybe(t, of(anyText)), Code: maybe(t, of(idText)),
		URL: maybe(t, of(rapid.Just("https://agents.test/policy/x"))), ActionLabel: maybe(t, of(anyText)),
		Scopes: several(t, 0, 2, of(wordText)), ExpiresAt: maybe(t, pointer(drawTime)),
	}
	switch p.Kind {
	case policypart.Unauthorized:
		p.AuthChallenges = []policypart.Challenge{{Scheme: "Bearer", Params: map[string]string{"realm": anyText.Draw(t, "realm")}}}
	case policypart.PaymentRequired:
		p.ExpiresAt = pointer(drawTime)(t)
		p.Accepts = []json.RawMessage{json.RawMessage(`{"scheme":"exact"}`)}
	case policypart.TooManyRequests:
		p.RetryAfterSeconds = pointer(of(rapid.Int64Range(0, 9000)))(t)
	}
	if rapid.Bool().Draw(t, "translated") {
		p.MessageTranslations = map[string]policypart.Translation{"de": {Message: "Nein", Title: "T"}}
		p.Data = map[string]json.RawMessage{"org.example.x": json.RawMessage(`{"a":1}`)}
		p.Extra = map[string]json.RawMessage{"x_new": json.RawMessage(`[1]`)}
	}
	return Part{Kind: PartPolicy, Policy: &p}
}

func drawEvidence(t *rapid.T) identity.Evidence {
	e := identity.Transport(identity.TransportProof{
		Addressed: identity.AddressedRequest,
		Domain:    "here.test", Subject: idText.Draw(t, "subject"), Method: identity.MethodEmailDMARC,
		Assurance: identity.AssuranceDomain, Recipient: "@echo@here.test", KeyID: maybe(t, of(idText)), IssuedAt: drawTime(t).Add(time.Millisecond),
	})
	e.Claims = maybe(t, drawObject)
	e.OnBehalfOf = several(t, 0, 2, of(idText))
	if rapid.Bool().Draw(t, "attested") {
		expires := identity.At(e.IssuedAt.Add(time.Minute))
		e.ID, e.ExpiresAt = idText.Draw(t, "jti"), &expires
		e.NotBefore = maybe(t, pointer(of(rapid.Just(e.IssuedAt))))
		e.Audience = append(e.Audience, several(t, 0, 2, of(idText))...)
		e.Source = &identity.Source{Transport: wordText.Draw(t, "transport"), Channel: maybe(t, of(wordText))}
		e.Proof = identity.Proof{Type: identity.ProofSignedAttestation, Alg: "EdDSA", Kid: idText.Draw(t, "kid"), Value: wordText.Draw(t, "value")}
		e.Extra = maybe(t, func(*rapid.T) map[string]json.RawMessage {
			return map[string]json.RawMessage{"x_more": json.RawMessage(`{"a": 1}`)}
		})
	}
	return e
}

func drawSender(t *rapid.T) Sender {
	s := Sender{Address: identity.Stated(drawAddress(t)), DisplayName: maybe(t, of(nameText)), AuthMethod: AuthNone}
	if rapid.Bool().Draw(t, "verified") {
		s.AuthMethod, s.Verified = AuthEmailDMARC, true
		s.KeyID = maybe(t, of(idText))
		s.Identities = several(t, 1, 3, drawEvidence)
		s.CarriedBy = identity.Stated(maybe(t, drawAddress))
	}
	s.Profile = maybe(t, pointer(drawProfile))
	return s
}

func drawProfile(t *rapid.T) SenderProfile {
	p := SenderProfile{
		DisplayName: maybe(t, of(anyText)), Username: maybe(t, of(wordText)), URL: maybe(t, of(rapid.Just("https://a.test/@a"))),
		Locale: maybe(t, of(rapid.Just("de-AT"))), Timezone: maybe(t, of(rapid.Just("Europe/Vienna"))),
		Provider: maybe(t, of(wordText)), ProviderSubject: maybe(t, of(wordText)), FetchedAt: maybe(t, pointer(drawTime)),
	}
	if rapid.Bool().Draw(t, "more") {
		p.Avatar = &Image{URL: "https://a.test/a.png", MIMEType: "image/png", Width: rapid.IntRange(0, 999).Draw(t, "width")}
		p.Extensions = map[string]json.RawMessage{"slack": drawObject(t), "org.example": drawObject(t)}
	}
	return p
}

func drawCapabilities(t *rapid.T) RecipientCapabilities {
	c := RecipientCapabilities{
		MentionRelay: rapid.SampledFrom([]MentionRelay{
			{Kind: RelayInline}, {Kind: RelayNone}, {Kind: RelayRecipientField, Fields: []string{"to", "cc"}},
			{Kind: RelayAddressing, EnvelopeFields: []string{"to", "cc"}, AlsoInline: true},
		}).Draw(t, "relay"),
		MaxTextBytes: maybe(t, of(rapid.IntRange(0, 9000))), TextMIMEs: several(t, 0, 2, of(rapid.Just(MIMEMarkdown))),
		Threads: maybe(t, pointer(of(rapid.Bool()))), Edits: maybe(t, pointer(of(rapid.Bool()))),
	}
	if rapid.Bool().Draw(t, "chain") {
		hop := rapid.IntRange(1, 4).Draw(t, "hop")
		c.AgentChain = &AgentChain{Hop: hop, MaxHops: 4, IsFinal: hop == 4}
		c.Attachments = &AttachmentsCapability{MaxCount: 4, MaxBytes: 1 << 20, MIMEs: several(t, 0, 2, of(rapid.Just("image/png")))}
	}
	return c
}

func drawUnknown(t *rapid.T) (list members) {
	for _, name := range []string{"x_one", "x \"two\"", "x_three"} {
		if rapid.Bool().Draw(t, "unknown") {
			list = append(list, member{key: name, value: drawJSON(t)})
		}
	}
	return list
}

func drawHistory(t *rapid.T) HistoricalMessage {
	segments := several(t, 1, 3, drawSegment)
	last := segments[len(segments)-1]
	h := HistoricalMessage{
		ID: last.ID, Role: rapid.SampledFrom([]string{RoleUser, RoleAssistant}).Draw(t, "role"), Sender: last.Sender, Timestamp: last.Timestamp,
	}
	for _, one := range segments {
		h.Parts = append(h.Parts, one.Parts...)
	}
	if len(segments) > 1 {
		h.Segments = segments
	}
	return h
}

func drawSegment(t *rapid.T) Segment {
	s := drawSender(t)
	for i, e := range s.Identities {
		s.Identities[i] = identity.Evidence{Subject: e.Subject, Issuer: e.Issuer, Method: e.Method}
	}
	parts := several(t, 1, 3, drawPart)
	parts = append(parts, maybe(t, func(*rapid.T) []Part { return []Part{unknownPart()} })...)
	return Segment{ID: maybe(t, of(idText)), Sender: s, Parts: parts, Timestamp: drawTime(t)}
}

func unknownPart() Part {
	var p Part
	if err := p.UnmarshalJSON([]byte(`{ "kind" : "hologram" , "depth":3, "text":"\u00e4" }`)); err != nil {
		panic(err)
	}
	return p
}

func drawMessage(t *rapid.T) Message {
	m := Message{
		ID: idText.Draw(t, "id"), ThreadID: idText.Draw(t, "thread"), InReplyTo: maybe(t, of(idText)), Sender: drawSender(t),
		Recipient: "@echo@here.test", Parts: several(t, 1, 4, drawPart), History: several(t, 0, 3, drawHistory),
		RecipientCapabilities: drawCapabilities(t),
		ReceivedVia:           rapid.SampledFrom([]string{ViaActivityPub, ViaA2A, ViaEmail}).Draw(t, "via"),
		ReceivedAt:            drawTime(t), Raw: Raw{Ref: "sha256:" + strings.Repeat("ab", 32), MediaType: "message/rfc822"},
		Surface: maybe(t, pointer(drawSurface)),
		unknown: drawUnknown(t),
	}
	m.Parts = append(m.Parts, maybe(t, func(t *rapid.T) []Part { return []Part{drawPolicy(t)} })...)
	m.Parts[0].unknown = drawUnknown(t)
	if rapid.Bool().Draw(t, "resolved") {
		m.PolicyResolution = &policypart.Resolution{
			Kind: policypart.ConsentRequired, InReplyToState: wordText.Draw(t, "state"), Outcome: policypart.OutcomeGranted,
			ResolvedAt: drawTime(t), ResolvedBy: &policypart.Resolver{Issuer: "i", Subject: "s", Method: "m"}, Receipt: maybe(t, of(wordText)),
		}
		trace := drawResponse(t, &m)
		trace.Dispatch = nil
		trace.Parts = append(trace.Parts, unknownPart())
		m.ReceivedTrace = &trace
	}
	return m
}

func drawSurface(t *rapid.T) Surface {
	recipient := func(t *rapid.T) SurfaceRecipient {
		return SurfaceRecipient{Address: drawAddress(t), Name: maybe(t, of(nameText))}
	}
	return Surface{
		Channel: wordText.Draw(t, "channel"), Subject: maybe(t, of(anyText)), Date: maybe(t, pointer(drawTime)), Tag: maybe(t, of(wordText)),
		To: several(t, 0, 3, recipient), Cc: several(t, 0, 3, recipient), Omitted: maybe(t, of(rapid.IntRange(0, 500))),
		ListID: maybe(t, of(wordText)), Language: maybe(t, of(rapid.Just("de-AT"))), unknown: drawUnknown(t),
		Visibility: maybe(t, of(rapid.SampledFrom(visibilities))), Source: maybe(t, of(wordText)), ClientName: maybe(t, of(wordText)),
		HostContext: maybe(t, drawObject),
	}
}

func drawDispatch(t *rapid.T) Dispatch {
	return Dispatch{To: "@other" + wordText.Draw(t, "name") + "@" + domain.Draw(t, "domain"), Parts: several(t, 1, 3, drawPart)}
}

// drawResponse makes a valid answer to the question.
func drawResponse(t *rapid.T, question *Message) Response {
	r := Response{
		InReplyTo: question.ID, ThreadID: question.ThreadID,
		Visibility: rapid.SampledFrom(append([]string{""}, visibilities...)).Draw(t, "visibility"), unknown: drawUnknown(t),
		Metadata: maybe(t, func(t *rapid.T) map[string]string { return map[string]string{"a": anyText.Draw(t, "a"), "b\n": "1"} }),
	}
	if relay := question.RecipientCapabilities.MentionRelay; relay.Carries("cc") {
		r.To, r.Cc = several(t, 0, 2, drawAddress), several(t, 0, 2, drawAddress)
	}
	switch rapid.IntRange(0, 5).Draw(t, "form") {
	case 5:
		r.To, r.Cc = nil, nil
		r.Dispatch = several(t, 1, MaxDispatches, drawDispatch)
		return r
	case 0:
		r.Silent = true
		return r
	case 1:
		r.Parts = append(several(t, 0, 2, drawPart), drawPolicy(t))
		r.Status = policypart.ResponseStatus(r.Policy().Kind)
	case 2:
		r.Parts, r.Status = several(t, 1, 3, drawPart), StatusFailed
		r.Error = &ResponseError{Code: wordText.Draw(t, "code"), Message: "no " + anyText.Draw(t, "why")}
	default:
		r.Parts = several(t, 1, 4, drawPart)
		r.Status = rapid.SampledFrom([]string{"", StatusCompleted, StatusInputRequired}).Draw(t, "status")
	}
	return r
}
