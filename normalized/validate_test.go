package normalized

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inbox/identity"
	"inbox/internal/fault"
	"inbox/policypart"
)

func goodMessage() Message {
	at := identity.At(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	proof := identity.Transport(identity.TransportProof{
		Domain: "here.test", Subject: "https://a.test/users/alice", Method: identity.MethodActivityPubSignature,
		Assurance: identity.AssuranceAddress, Recipient: "@echo@here.test", KeyID: "https://a.test/users/alice#main-key", IssuedAt: at.Time,
	})
	return Message{
		ID: "https://a.test/notes/1", ThreadID: "https://a.test/contexts/1",
		Sender: Sender{
			Address: identity.Stated("@alice@a.test"), DisplayName: "Alice", AuthMethod: AuthActivityPubSignature, Verified: true,
			KeyID: "https://a.test/users/alice#main-key", Identities: []identity.Evidence{proof},
			Profile: &SenderProfile{URL: "https://a.test/@alice", Avatar: &Image{URL: "https://a.test/a.png"}},
		},
		Recipient: "@echo@here.test",
		Parts: []Part{
			Text("hello"),
			{Kind: PartFile, MIME: "image/png", BytesRef: Stored(Digest(nil)), Name: "a.png"},
			{Kind: PartLink, URL: "https://a.test/"},
			{Kind: PartToolCall, ID: "1", Name: "search", Args: json.RawMessage(`{}`), Result: json.RawMessage(`1`)},
		},
		History: []HistoricalMessage{{
			Role: RoleUser, Sender: Sender{Address: identity.Stated("@bob@b.test"), AuthMethod: AuthNone}, Parts: []Part{Text("before")}, Timestamp: at,
		}, {
			Role: RoleUser, Sender: Sender{Address: identity.Stated("@bob@b.test"), AuthMethod: AuthNone}, Parts: []Part{Text("I ask"), Text("I approve")}, Timestamp: at,
			Segments: []Segment{
				{ID: "1", Sender: Sender{Address: identity.Stated("@ann@a.test"), AuthMethod: AuthEmailDMARC, Verified: true}, Parts: []Part{Text("I ask")}, Timestamp: at},
				{ID: "2", Sender: Sender{Address: identity.Stated("@bob@b.test"), AuthMethod: AuthNone}, Parts: []Part{Text("I approve")}, Timestamp: at},
			},
		}},
		RecipientCapabilities: RecipientCapabilities{
			MentionRelay: MentionRelay{Kind: RelayAddressing, EnvelopeFields: []string{"to", "cc"}, AlsoInline: true},
			AgentChain:   &AgentChain{Hop: 1, MaxHops: 4}, Attachments: &AttachmentsCapability{},
		},
		ReceivedVia: ViaActivityPub, ReceivedAt: at,
		Raw:              Raw{Ref: "sha256:" + Digest(nil), MediaType: "application/activity+json"},
		PolicyResolution: &policypart.Resolution{Kind: "consent_required", Outcome: policypart.OutcomeGranted, ResolvedAt: at},
		ReceivedTrace:    &Response{InReplyTo: "x", Parts: []Part{Text("answer"), unknownPart()}},
		Surface: &Surface{
			Channel: "email", Subject: "Lamps", Date: &at, Tag: "order-4711", ListID: "lamps.a.test", Language: "de", Omitted: 1,
			To: []SurfaceRecipient{{Address: "@echo+order-4711@here.test"}}, Cc: []SurfaceRecipient{{Address: "@bob@b.test", Name: "Bob"}},
		},
	}
}

// broken is one rule of the contract, broken.
type broken[T any] struct {
	change      func(*T)
	field       string
	kind        fault.Kind // Malformed when empty
	unexpressed bool       // a JSON Schema cannot say it
}

func brokenMessages() map[string]broken[Message] {
	long := strings.Repeat("x", 2049)
	return map[string]broken[Message]{
		"no id":                {change: func(m *Message) { m.ID = "" }, field: "id"},
		"long id":              {change: func(m *Message) { m.ID = long }, field: "id"},
		"newline in id":        {change: func(m *Message) { m.ID = "a\nb" }, field: "id"},
		"C1 control in id":     {change: func(m *Message) { m.ID = "a\u0085b" }, field: "id"},
		"no thread":            {change: func(m *Message) { m.ThreadID = "" }, field: "thread_id"},
		"long in_reply_to":     {change: func(m *Message) { m.InReplyTo = long }, field: "in_reply_to"},
		"no sender":            {change: func(m *Message) { m.Sender.Address = identity.Stated("") }, field: "sender.address"},
		"bare sender":          {change: func(m *Message) { m.Sender.Address = identity.Stated("alice@a.test") }, field: "sender.address"},
		"sender in capitals":   {change: func(m *Message) { m.Sender.Address = identity.Stated("@alice@A.test") }, field: "sender.address"},
		"long sender":          {change: func(m *Message) { m.Sender.Address = identity.Stated("@" + long + "@a.test") }, field: "sender.address"},
		"no auth method":       {change: func(m *Message) { m.Sender.AuthMethod = "" }, field: "sender.auth_method"},
		"unknown auth method":  {change: func(m *Message) { m.Sender.AuthMethod = "spf" }, field: "sender.auth_method"},
		"verified by none":     {change: func(m *Message) { m.Sender.AuthMethod = AuthNone }, field: "sender.verified"},
		"long key id":          {change: func(m *Message) { m.Sender.KeyID = long }, field: "sender.key_id"},
		"script in profile":    {change: func(m *Message) { m.Sender.Profile.URL = "javascript:alert(1)" }, field: "sender.profile.url"},
		"avatar off the web":   {change: func(m *Message) { m.Sender.Profile.Avatar.URL = "data:x" }, field: "sender.profile.avatar.url"},
		"negative avatar":      {change: func(m *Message) { m.Sender.Profile.Avatar.Width = -1 }, field: "sender.profile.avatar.width"},
		"extension no object":  {change: func(m *Message) { m.Sender.Profile.Extensions = map[string]json.RawMessage{"x": json.RawMessage("1")} }, field: "sender.profile.extensions.x"},
		"17 identities":        {change: func(m *Message) { m.Sender.Identities = make([]identity.Evidence, 17) }, field: "sender.identities"},
		"evidence no subject":  {change: func(m *Message) { m.Sender.Identities[0].Subject = "" }, field: "sender.identities[0].subject"},
		"evidence no audience": {change: func(m *Message) { m.Sender.Identities[0].Audience = nil }, field: "sender.identities[0].audience"},
		"evidence no proof":    {change: func(m *Message) { m.Sender.Identities[0].Proof = identity.Proof{} }, field: "sender.identities[0].proof.type"},
		"evidence too large": {change: func(m *Message) {
			m.Sender.Identities[0].Claims = json.RawMessage(`{"x":"` + strings.Repeat("x", 33<<10) + `"}`)
		}, field: "sender.identities[0]", kind: fault.TooLarge, unexpressed: true},
		"all evidence too large": {change: func(m *Message) {
			for range 3 {
				e := m.Sender.Identities[0]
				e.Claims = json.RawMessage(`{"x":"` + strings.Repeat("x", 24<<10) + `"}`)
				m.Sender.Identities = append(m.Sender.Identities, e)
			}
		}, field: "sender.identities", kind: fault.TooLarge, unexpressed: true},
		"recipient no agent":   {change: func(m *Message) { m.Recipient = "@é@here.test" }, field: "recipient"},
		"recipient with dot":   {change: func(m *Message) { m.Recipient = "@.echo@here.test" }, field: "recipient"},
		"no parts":             {change: func(m *Message) { m.Parts = nil }, field: "parts"},
		"blank parts":          {change: func(m *Message) { m.Parts = []Part{Text(" \n\t")} }, field: "parts"},
		"65 parts":             {change: func(m *Message) { m.Parts = many(65, Text("x")) }, field: "parts"},
		"text type":            {change: func(m *Message) { m.Parts[0].MIME = "text/rtf" }, field: "parts[0].mime"},
		"text too large":       {change: func(m *Message) { m.Parts[0].Content = strings.Repeat("x", 1<<20+1) }, field: "parts[0].content", kind: fault.TooLarge},
		"all text too large":   {change: func(m *Message) { m.Parts = many(5, Text(strings.Repeat("x", 1<<20))) }, field: "parts", kind: fault.TooLarge, unexpressed: true},
		"text not UTF-8":       {change: func(m *Message) { m.Parts[0].Content = "a\xff" }, field: "parts[0].content", unexpressed: true},
		"unknown kind":         {change: func(m *Message) { m.Parts[0] = unknownPart() }, field: "parts[0].kind"},
		"no kind":              {change: func(m *Message) { m.Parts[0] = Part{} }, field: "parts[0].kind"},
		"policy without terms": {change: func(m *Message) { m.Parts[0] = policyPart(policypart.PaymentRequired) }, field: "parts[0].policy.expires_at"},
		"empty policy":         {change: func(m *Message) { m.Parts[0] = Part{Kind: PartPolicy} }, field: "parts[0].policy"},
		"file type":            {change: func(m *Message) { m.Parts[1].MIME = "png" }, field: "parts[1].mime"},
		"file without bytes":   {change: func(m *Message) { m.Parts[1].BytesRef = nil }, field: "parts[1].bytes_ref"},
		"negative size":        {change: func(m *Message) { m.Parts[1].Size = -1 }, field: "parts[1].size"},
		"bytes kind":           {change: func(m *Message) { m.Parts[1].BytesRef = &BytesRef{Kind: "ftp"} }, field: "parts[1].bytes_ref.kind"},
		"bytes http":           {change: func(m *Message) { m.Parts[1].BytesRef = At("http://a.test/x") }, field: "parts[1].bytes_ref.url"},
		"bytes with user":      {change: func(m *Message) { m.Parts[1].BytesRef = At("https://u:p@a.test/x") }, field: "parts[1].bytes_ref.url"},
		"digest in capitals":   {change: func(m *Message) { m.Parts[1].BytesRef = Stored(strings.ToUpper(Digest(nil))) }, field: "parts[1].bytes_ref.digest"},
		"digest algorithm":     {change: func(m *Message) { m.Parts[1].BytesRef.Algo = "md5" }, field: "parts[1].bytes_ref.algo"},
		"no digest":            {change: func(m *Message) { m.Parts[1].BytesRef = &BytesRef{Kind: BytesContentAddressed} }, field: "parts[1].bytes_ref.digest"},
		"bad base64":           {change: func(m *Message) { m.Parts[1].BytesRef = &BytesRef{Kind: BytesInline, DataBase64: "a b="} }, field: "parts[1].bytes_ref.data_base64"},
		"digest mismatch":      {change: mismatch, field: "parts[1].bytes_ref.digest", unexpressed: true},
		"inline too large":     {change: func(m *Message) { m.Parts[1].BytesRef = Inline(make([]byte, MaxInlineBytes+3)) }, field: "parts[1].bytes_ref.data_base64", kind: fault.TooLarge},
		"link without address": {change: func(m *Message) { m.Parts[2].URL = "" }, field: "parts[2].url"},
		"relative link":        {change: func(m *Message) { m.Parts[2].URL = "/x" }, field: "parts[2].url"},
		"script link":          {change: func(m *Message) { m.Parts[2].URL = "JavaScript:alert(1)" }, field: "parts[2].url", unexpressed: true},
		"call without id":      {change: func(m *Message) { m.Parts[3].ID = "" }, field: "parts[3].id"},
		"call without name":    {change: func(m *Message) { m.Parts[3].Name = "" }, field: "parts[3].name"},
		"call with both":       {change: func(m *Message) { m.Parts[3].Error = &ToolError{Message: "x"} }, field: "parts[3].error"},
		"call error silent":    {change: func(m *Message) { m.Parts[3].Result, m.Parts[3].Error = nil, &ToolError{} }, field: "parts[3].error.message"},
		"args too large":       {change: func(m *Message) { m.Parts[3].Args = json.RawMessage(`"` + strings.Repeat("x", 64<<10) + `"`) }, field: "parts[3].args", kind: fault.TooLarge, unexpressed: true},
		"args no JSON":         {change: func(m *Message) { m.Parts[3].Args = json.RawMessage(`{`) }, field: "parts[3].args"},
		"args too deep":        {change: func(m *Message) { m.Parts[3].Args = json.RawMessage(strings.Repeat("[", 40) + strings.Repeat("]", 40)) }, field: "parts[3].args", unexpressed: true},
		"201 turns":            {change: func(m *Message) { m.History = many(201, m.History[0]) }, field: "history"},
		"role":                 {change: func(m *Message) { m.History[0].Role = "system" }, field: "history[0].role"},
		"turn without parts":   {change: func(m *Message) { m.History[0].Parts = nil }, field: "history[0].parts"},
		"turn with policy":     {change: func(m *Message) { m.History[0].Parts[0] = policyPart(policypart.Forbidden) }, field: "history[0].parts[0].kind"},
		"turn without speaker": {change: func(m *Message) { m.History[0].Sender.Address = identity.Stated("") }, field: "history[0].sender.address"},
		"one segment": {change: func(m *Message) {
			m.History[1].Segments, m.History[1].Parts = m.History[1].Segments[:1], m.History[1].Parts[:1]
		}, field: "history[1].segments"},
		"segments and parts":   {change: func(m *Message) { m.History[1].Parts = m.History[1].Parts[:1] }, field: "history[1].parts", unexpressed: true},
		"segment, no speaker":  {change: func(m *Message) { m.History[1].Segments[0].Sender.Address = identity.Stated("") }, field: "history[1].segments[0].sender.address"},
		"segment, no parts":    {change: func(m *Message) { m.History[1].Segments[1].Parts, m.History[1].Parts = nil, m.History[1].Parts[:1] }, field: "history[1].segments[1].parts"},
		"turn without time":    {change: func(m *Message) { m.History[0].Timestamp = identity.Time{} }, field: "history[0].timestamp", unexpressed: true},
		"no relay":             {change: func(m *Message) { m.RecipientCapabilities = RecipientCapabilities{} }, field: "recipient_capabilities.mention_relay.kind"},
		"relay without fields": {change: func(m *Message) { m.RecipientCapabilities.MentionRelay = MentionRelay{Kind: RelayRecipientField} }, field: "recipient_capabilities.mention_relay.fields"},
		"relay to bcc":         {change: func(m *Message) { m.RecipientCapabilities.MentionRelay.EnvelopeFields = []string{"bcc"} }, field: "recipient_capabilities.mention_relay.envelope_fields"},
		"hop zero":             {change: func(m *Message) { m.RecipientCapabilities.AgentChain.Hop = 0 }, field: "recipient_capabilities.agent_chain.hop", kind: fault.Forbidden},
		"hop over ceiling":     {change: func(m *Message) { m.RecipientCapabilities.AgentChain.Hop = 5 }, field: "recipient_capabilities.agent_chain.hop", kind: fault.Forbidden, unexpressed: true},
		"final too early":      {change: func(m *Message) { m.RecipientCapabilities.AgentChain.IsFinal = true }, field: "recipient_capabilities.agent_chain.is_final", unexpressed: true},
		"negative text size":   {change: func(m *Message) { m.RecipientCapabilities.MaxTextBytes = -1 }, field: "recipient_capabilities.max_text_bytes"},
		"text type of reply":   {change: func(m *Message) { m.RecipientCapabilities.TextMIMEs = []string{"text/rtf"} }, field: "recipient_capabilities.text_mimes[0]"},
		"negative attachments": {change: func(m *Message) { m.RecipientCapabilities.Attachments.MaxCount = -1 }, field: "recipient_capabilities.attachments.max_count"},
		"unknown transport":    {change: func(m *Message) { m.ReceivedVia = "xmpp" }, field: "received_via"},
		"no time":              {change: func(m *Message) { m.ReceivedAt = identity.Time{} }, field: "received_at", unexpressed: true},
		"raw reference":        {change: func(m *Message) { m.Raw.Ref = "sha256:ABC" }, field: "raw.ref"},
		"no media type":        {change: func(m *Message) { m.Raw.MediaType = "" }, field: "raw.media_type"},
		"resolution outcome":   {change: func(m *Message) { m.PolicyResolution.Outcome = "maybe" }, field: "policy_resolution.outcome"},
		"resolution kind":      {change: func(m *Message) { m.PolicyResolution.Kind = "" }, field: "policy_resolution.kind"},
		"trace too large":      {change: func(m *Message) { m.ReceivedTrace.Parts = many(2, Text(strings.Repeat("x", 130<<10))) }, field: "received_trace", kind: fault.TooLarge, unexpressed: true},
		"trace with bad part":  {change: func(m *Message) { m.ReceivedTrace.Parts[0].MIME = "x" }, field: "received_trace.parts[0].mime"},
		"trace that asks":      {change: func(m *Message) { ask(m.ReceivedTrace) }, field: "received_trace.dispatch"},
		"surface no channel":   {change: func(m *Message) { m.Surface.Channel = "" }, field: "surface.channel"},
		"surface tag":          {change: func(m *Message) { m.Surface.Tag = "a\nb" }, field: "surface.tag"},
		"surface bare address": {change: func(m *Message) { m.Surface.Cc[0].Address = "bob@b.test" }, field: "surface.cc[0].address"},
		"surface count":        {change: func(m *Message) { m.Surface.Omitted = -1 }, field: "surface.recipients_omitted"},
		"surface too many": {change: func(m *Message) {
			m.Surface.To = make([]SurfaceRecipient, MaxSurfaceRecipients)
			for i := range m.Surface.To {
				m.Surface.To[i].Address = "@a@b.test"
			}
		}, field: "surface", unexpressed: true},
		"surface visibility":   {change: func(m *Message) { m.Surface.Visibility = "secret" }, field: "surface.visibility"},
		"surface host context": {change: func(m *Message) { m.Surface.HostContext = json.RawMessage(`[1]`) }, field: "surface.host_context"},
		"surface too large": {change: func(m *Message) {
			m.Surface.unknown = members{{"new", json.RawMessage(`"` + strings.Repeat("x", 32<<10) + `"`)}}
		}, field: "surface", kind: fault.TooLarge, unexpressed: true},
		"trace status":          {change: func(m *Message) { m.ReceivedTrace.Status = "done" }, field: "received_trace.status"},
		"document over the max": {change: hugeHistory, field: "", kind: fault.TooLarge, unexpressed: true},
	}
}

func mismatch(m *Message) {
	ref := Inline([]byte("some bytes"))
	ref.Algo, ref.Digest = AlgoSHA256, Digest([]byte("other bytes"))
	m.Parts[1].BytesRef = ref
}

// hugeHistory keeps each limit but that of the whole document.
func hugeHistory(m *Message) {
	turn := m.History[0]
	turn.Parts = []Part{Text(strings.Repeat("x", 1<<20))}
	m.History = many(9, turn)
}

func many[T any](count int, value T) []T {
	list := make([]T, count)
	for i := range list {
		list[i] = value
	}
	return list
}

// TestPoliciesInMessagesAreData: a policy part of a stranger is one part among others, anywhere, and leads nowhere.
func TestPoliciesInMessagesAreData(t *testing.T) {
	m := goodMessage()
	demand := policyPart(policypart.ConsentRequired)
	demand.Policy.URL, demand.Policy.Code = "https://elsewhere.test/pay", "oauth:consent_required"
	m.Parts = []Part{demand, Text("what is this?"), policyPart(policypart.Forbidden)}
	m.Clean()
	if err := Validate(m, DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	if got := m.Parts[0].Policy; got.URL != "" || got.Code != "oauth:consent_required:url-removed" || demand.Policy.URL == "" {
		t.Errorf("%+v, and the one that was given: %+v", got, demand.Policy)
	}
	if text := PlainText(m.Parts); text != "no\nwhat is this?\nno" && text != "no\n\nwhat is this?\n\nno" {
		t.Errorf("%q", text)
	}
}

func policyPart(kind string) Part {
	return Part{Kind: PartPolicy, Policy: &policypart.Part{Kind: kind, Message: "no"}}
}

func TestGoodMessageIsValid(t *testing.T) {
	if found := Violations(goodMessage(), DefaultLimits()); len(found) > 0 {
		t.Fatal(found)
	}
	m := goodMessage()
	m.Raw.Ref = ""
	if err := Validate(m, DefaultLimits()); err != nil {
		t.Errorf("before acceptance: %v", err)
	}
}

func TestValidateNamesTheRule(t *testing.T) {
	for name, c := range brokenMessages() {
		m := goodMessage()
		c.change(&m)
		check(t, name, Validate(m, DefaultLimits()), c.field, c.kind)
		if found := Violations(m, DefaultLimits()); len(found) == 0 || found[0].Field != c.field {
			t.Errorf("%s: Violations gives %v", name, found)
		}
	}
}

func check(t *testing.T, name string, err error, field string, kind fault.Kind) {
	t.Helper()
	if kind == "" {
		kind = fault.Malformed
	}
	f := fault.Of(err)
	if err == nil || f.Field != field || f.Kind != kind || f.Public == "" {
		t.Errorf("%s: got %v (%s in %q), want %s in %q", name, err, f.Kind, f.Field, kind, field)
	}
}

func TestValidateAllowsPlainHTTPInDevelopment(t *testing.T) {
	m := goodMessage()
	m.Parts[1].BytesRef = At("http://localhost:3000/x")
	limits := DefaultLimits()
	limits.AllowHTTP = true
	if err := Validate(m, limits); err != nil {
		t.Error(err)
	}
}

func TestViolationsAreBounded(t *testing.T) {
	m := Message{Parts: many(64, Part{Kind: PartToolCall})}
	if found := Violations(m, DefaultLimits()); len(found) != maxViolations {
		t.Errorf("%d violations", len(found))
	}
}

func goodResponse() Response {
	return Response{
		InReplyTo: "https://a.test/notes/1", ThreadID: "https://a.test/contexts/1", Parts: []Part{Text("hi"), Markdown("*hi*")},
		To: []string{"@bob@b.test"}, Visibility: VisibilityDirect, Status: StatusCompleted, Metadata: map[string]string{"a": "b"},
	}
}

func brokenResponses() map[string]broken[Response] {
	call := Part{Kind: PartToolCall, ID: "1", Name: "n"}
	return map[string]broken[Response]{
		"no in_reply_to":         {change: func(r *Response) { r.InReplyTo = "" }, field: "in_reply_to"},
		"answer to another":      {change: func(r *Response) { r.InReplyTo = "x" }, field: "in_reply_to", unexpressed: true},
		"other thread":           {change: func(r *Response) { r.ThreadID = "x" }, field: "thread_id", unexpressed: true},
		"no parts":               {change: func(r *Response) { r.Parts = nil }, field: "parts"},
		"blank":                  {change: func(r *Response) { r.Parts = []Part{Text(" ")} }, field: "parts"},
		"silent with parts":      {change: func(r *Response) { r.Silent = true }, field: "parts"},
		"unknown kind":           {change: func(r *Response) { r.Parts[1] = unknownPart() }, field: "parts[1].kind"},
		"running call":           {change: func(r *Response) { r.Parts[0] = call }, field: "parts[0]"},
		"empty policy":           {change: func(r *Response) { r.Parts[1] = Part{Kind: PartPolicy}; r.Status = StatusFailed }, field: "parts[1].policy"},
		"policy without message": {change: func(r *Response) { answer(r, policypart.Forbidden); r.Parts[1].Policy.Message = " " }, field: "parts[1].policy.message"},
		"policy in the middle":   {change: func(r *Response) { r.Parts[0] = policyPart(policypart.Forbidden) }, field: "parts[0]", unexpressed: true},
		"two policies":           {change: func(r *Response) { answer(r, policypart.Forbidden); r.Parts[0] = r.Parts[1] }, field: "parts[0]"},
		"policy url http":        {change: func(r *Response) { answer(r, policypart.Forbidden); r.Parts[1].Policy.URL = "http://here.test/" }, field: "parts[1].policy.url"},
		"policy code":            {change: func(r *Response) { answer(r, policypart.Forbidden); r.Parts[1].Policy.Code = "a\nb" }, field: "parts[1].policy.code"},
		"policy data key": {change: func(r *Response) {
			answer(r, policypart.Forbidden)
			r.Parts[1].Policy.Data = map[string]json.RawMessage{"plain": json.RawMessage("1")}
		}, field: "parts[1].policy.data"},
		"rate without retry":      {change: func(r *Response) { answer(r, policypart.TooManyRequests) }, field: "parts[1].policy.retry_after_seconds"},
		"login without challenge": {change: func(r *Response) { answer(r, policypart.Unauthorized) }, field: "parts[1].policy.auth_challenges"},
		"payment without end":     {change: func(r *Response) { answer(r, policypart.PaymentRequired) }, field: "parts[1].policy.expires_at"},
		"policy is no success":    {change: func(r *Response) { answer(r, "captcha"); r.Status = StatusCompleted }, field: "status", unexpressed: true},
		"to no address":           {change: func(r *Response) { r.To = []string{"bob"} }, field: "to[0]"},
		"too many recipients":     {change: func(r *Response) { r.Cc = many(65, "@bob@b.test") }, field: "to"},
		"visibility":              {change: func(r *Response) { r.Visibility = "secret" }, field: "visibility"},
		"status":                  {change: func(r *Response) { r.Status = "done" }, field: "status"},
		"error without failure":   {change: func(r *Response) { r.Error = &ResponseError{Code: "a", Message: "b"} }, field: "error"},
		"error without code":      {change: func(r *Response) { r.Status, r.Error = StatusFailed, &ResponseError{Message: "b"} }, field: "error.code"},
		"error without message":   {change: func(r *Response) { r.Status, r.Error = StatusFailed, &ResponseError{Code: "b"} }, field: "error.message"},
		"metadata too large":      {change: func(r *Response) { r.Metadata = map[string]string{"a": strings.Repeat("x", 17<<10)} }, field: "metadata", kind: fault.TooLarge},
		"dispatch with parts":     {change: func(r *Response) { ask(r); r.Parts = []Part{Text("wait")} }, field: "parts"},
		"dispatch and silent":     {change: func(r *Response) { ask(r); r.Silent = true }, field: "dispatch"},
		"dispatch and failure":    {change: func(r *Response) { ask(r); r.Status = StatusFailed }, field: "dispatch"},
		"dispatch and policy":     {change: func(r *Response) { ask(r); r.Parts = []Part{policyPart("captcha")}; r.Status = StatusFailed }, field: "parts"},
		"dispatch and to":         {change: func(r *Response) { ask(r); r.To = []string{"@bob@b.test"} }, field: "dispatch"},
		"dispatch and cc":         {change: func(r *Response) { ask(r); r.Cc = []string{"@bob@b.test"} }, field: "dispatch"},
		"5 dispatches":            {change: func(r *Response) { ask(r); r.Dispatch = many(5, r.Dispatch[0]) }, field: "dispatch"},
		"dispatch to nobody":      {change: func(r *Response) { ask(r); r.Dispatch[0].To = "" }, field: "dispatch[0].to"},
		"dispatch to no address":  {change: func(r *Response) { ask(r); r.Dispatch[0].To = "b@b.test" }, field: "dispatch[0].to"},
		"dispatch to itself":      {change: func(r *Response) { ask(r); r.Dispatch[0].To = "@Echo@here.test" }, field: "dispatch[0].to", unexpressed: true},
		"dispatch of nothing":     {change: func(r *Response) { ask(r); r.Dispatch[0].Parts = nil }, field: "dispatch[0].parts"},
		"dispatch of blanks":      {change: func(r *Response) { ask(r); r.Dispatch[0].Parts = []Part{Text(" ")} }, field: "dispatch[0].parts"},
		"dispatch of 65 parts":    {change: func(r *Response) { ask(r); r.Dispatch[0].Parts = many(65, Text("x")) }, field: "dispatch[0].parts"},
		"dispatch of a policy":    {change: func(r *Response) { ask(r); r.Dispatch[0].Parts = []Part{policyPart("captcha")} }, field: "dispatch[0].parts[0].kind"},
		"dispatch of an unknown":  {change: func(r *Response) { ask(r); r.Dispatch[0].Parts = []Part{unknownPart()} }, field: "dispatch[0].parts[0].kind"},
		"dispatch of a running":   {change: func(r *Response) { ask(r); r.Dispatch[0].Parts = []Part{call} }, field: "dispatch[0].parts[0]", unexpressed: true},
		"dispatch of large text":  {change: func(r *Response) { ask(r); r.Dispatch[0].Parts = []Part{Text(strings.Repeat("x", 1<<20+1))} }, field: "dispatch[0].parts[0].content", kind: fault.TooLarge},
		"dispatches too large": {change: func(r *Response) {
			ask(r)
			r.Dispatch = many(4, Dispatch{To: "@b@b.test", Parts: many(3, Text(strings.Repeat("x", 1<<20)))})
		}, field: "", kind: fault.TooLarge, unexpressed: true},
		"metadata not UTF-8": {change: func(r *Response) { r.Metadata = map[string]string{"a": "\xff"} }, field: "metadata", unexpressed: true},
	}
}

// ask makes the response one that asks another agent first.
func ask(r *Response) {
	r.Parts, r.To = nil, nil
	r.Dispatch = []Dispatch{{To: "@weather@b.test", Parts: []Part{Text("Will it rain?")}}}
}

// answer makes the last part a policy part with the status that goes with it.
func answer(r *Response, kind string) {
	r.Parts = []Part{r.Parts[0], policyPart(kind)}
	r.Status = policypart.ResponseStatus(kind)
}

func TestValidateResponseNamesTheRule(t *testing.T) {
	if found := responseViolations(goodResponse()); len(found) > 0 {
		t.Fatal(found)
	}
	for name, c := range brokenResponses() {
		r := goodResponse()
		c.change(&r)
		check(t, name, ValidateResponse(r, goodMessage(), DefaultLimits()), c.field, c.kind)
	}
}

func TestExtraRecipientsNeedARelay(t *testing.T) {
	question := goodMessage()
	for _, relay := range []MentionRelay{{Kind: RelayInline}, {Kind: RelayRecipientField, Fields: []string{"cc"}}} {
		question.RecipientCapabilities.MentionRelay = relay
		check(t, relay.Kind, ValidateResponse(goodResponse(), question, DefaultLimits()), "to", "")
	}
}

// TestRelayNoneReachesAgents: where nothing is relayed the engine asks the agents in to and cc itself.
func TestRelayNoneReachesAgents(t *testing.T) {
	question, r := goodMessage(), goodResponse()
	question.RecipientCapabilities.MentionRelay = MentionRelay{Kind: RelayNone}
	r.Cc = []string{"@weather@b.test"}
	if err := ValidateResponse(r, question, DefaultLimits()); err != nil {
		t.Error(err)
	}
	r.Cc = []string{"@bob+news@b.test"}
	check(t, "a person", ValidateResponse(r, question, DefaultLimits()), "cc[0]", "")
}

func TestPolicyPagesAtPlainHTTPInDevelopment(t *testing.T) {
	r := goodResponse()
	answer(&r, policypart.ConsentRequired)
	r.Parts[1].Policy.URL = "http://localhost:8080/policy/x"
	limits := DefaultLimits()
	check(t, "by default", ValidateResponse(r, goodMessage(), limits), "parts[1].policy.url", "")
	limits.AllowHTTP = true
	if err := ValidateResponse(r, goodMessage(), limits); err != nil {
		t.Error(err)
	}
	r.Parts[1].Policy.URL = "http://u:p@localhost:8080/policy/x"
	check(t, "with a user", ValidateResponse(r, goodMessage(), limits), "parts[1].policy.url", "")
}

// TestReceivedTrace: another agent's answer travels whole, with its tool calls, up to 256 KiB.
func TestReceivedTrace(t *testing.T) {
	m := goodMessage()
	call := Part{Kind: PartToolCall, ID: "1", Name: "search", Args: json.RawMessage(`{"q":"rain"}`), Result: json.RawMessage(`["wet"]`)}
	failed := Part{Kind: PartToolCall, ID: "2", Name: "book", Error: &ToolError{Message: "closed"}}
	m.ReceivedTrace = &Response{
		InReplyTo: "0199", ThreadID: "dispatch-1", Status: StatusInputRequired,
		Parts: []Part{Text("It rains."), call, failed, unknownPart(), policyPart(policypart.ConsentRequired)},
	}
	body, err := m.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeMessage(body, DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(m, back); d != "" {
		t.Error(d)
	}
	if err := Validate(back, DefaultLimits()); err != nil {
		t.Error(err)
	}
	call.Result = json.RawMessage(`"` + strings.Repeat("x", 60<<10) + `"`)
	m.ReceivedTrace.Parts = many(4, call)
	if err := Validate(m, DefaultLimits()); err != nil {
		t.Errorf("below the limit: %v", err)
	}
	m.ReceivedTrace.Parts = many(5, call)
	check(t, "over the limit", Validate(m, DefaultLimits()), "received_trace", fault.TooLarge)
}

func TestAnsweringFillsWhatIsLeftOut(t *testing.T) {
	question := goodMessage()
	for name, r := range map[string]Response{
		"parts alone":   {Parts: []Part{Text("hi")}},
		"silent":        {Silent: true},
		"policy":        {Parts: []Part{policyPart(policypart.ConsentRequired)}},
		"refusal":       {Parts: []Part{policyPart("captcha")}},
		"error alone":   {Status: StatusFailed, Error: &ResponseError{Message: "The database is down."}},
		"running tools": {Status: StatusInputRequired, Parts: []Part{{Kind: PartToolCall, ID: "1", Name: "n"}}},
	} {
		if err := ValidateResponse(r.Answering(question), question, DefaultLimits()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDamagedDocumentsNeverPanic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(t)
		body := encoded(t, m.AppendJSON)
		for range 4 {
			at := rapid.IntRange(0, len(body)-1).Draw(t, "at")
			body[at] = rapid.Byte().Draw(t, "byte")
		}
		if damaged, err := DecodeMessage(body, DefaultLimits()); err == nil {
			_ = Violations(damaged, DefaultLimits())
		}
	})
}

// responseViolations returns every broken rule in the order in which ValidateResponse checks them.
func responseViolations(r Response) []*fault.Fault {
	question := goodMessage()
	c := checker{limits: DefaultLimits(), stop: maxViolations}
	c.response(&r, &question)
	return c.found
}
