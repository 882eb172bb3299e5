package activitypub

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/adapters/activitypub/signature"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

const activityMediaType = "application/activity+json"

// route is what we must remember of a question to answer it without asking anyone.
type route struct {
	Visibility   string `json:"visibility"`
	Actor        string `json:"actor"`
	Address      string `json:"address"`           // confirmed, or made from the actor's id
	Mention      string `json:"mention,omitempty"` // while Address is unchecked: how mentions of the actor read; names no one
	Profile      string `json:"profile"`           // page of the asker, for the visible mention
	Inbox        string `json:"inbox"`
	SharedInbox  string `json:"shared_inbox,omitempty"`
	Note         string `json:"note"`
	Context      string `json:"context,omitempty"`
	Conversation string `json:"conversation,omitempty"`
	Warning      string `json:"warning,omitempty"`
	Sensitive    bool   `json:"sensitive,omitempty"`
	Quiet        bool   `json:"quiet,omitempty"`    // no acknowledgement: the asker wants nothing unasked
	Unlisted     bool   `json:"unlisted,omitempty"` // nothing about the asker is to be on public timelines
	Language     string `json:"language,omitempty"`
	Late         bool   `json:"late,omitempty"` // it answers a note that never came here
	Chat         bool   `json:"chat,omitempty"` // it is a ChatMessage, whose server shows no Note among its chats
}

// evidenceClaims are context for operators. Only account decides about anything: identity.Evidence.Vouches reads it.
type evidenceClaims struct {
	Actor   string `json:"actor"`
	Type    string `json:"type"`
	Scheme  string `json:"scheme"`
	Address string `json:"address"` // confirmed, unchecked, failed

	// Account is the address that names the actor by WebFinger, @user@domain; only with address confirmed.
	Account string `json:"account,omitempty"`
	// Proof returns why the activity's own proof is wrong where the signature of the request is right.
	Proof string `json:"object_proof,omitempty"`

	// Relay brought the activity of the actor: it was proven by the activity's own proof, or, with scheme origin-fetch, by
	// asking the actor's server.
	Relay string `json:"relay,omitempty"`
	// MovedFrom is the account from which the actor moved here, as both said.
	MovedFrom string `json:"moved_from,omitempty"`
}

// normalize makes the message to one agent. nil without an error means that the
// note says nothing to the agent, or was not meant for it.
func (n *notes) normalize(ctx context.Context, in *incoming, q *inboundNote, agent exchange.AgentProfile) (*exchange.Inbound, error) {
	addressed := n.addressedBy(q, agent)
	if addressed == "" {
		return nil, nil
	}

	parts := n.parts(q, agent)
	if len(parts) == 0 {
		if n.options.EmptyMention != EmptyGreet {
			return nil, nil
		}
		parts = []normalized.Part{normalized.Text(agent.Address)}
	}

	thread, late, err := n.thread(ctx, agent.Name, q)
	if err != nil {
		return nil, err
	}

	checked, err := n.actors.provenAddress(ctx, in.by.actor, agent.Name)
	if err != nil {
		return nil, err
	}
	sender, err := n.sender(in.by, checked, agent, addressed, cmp.Or(q.language(), in.by.actor.Language))
	if err != nil {
		return nil, err
	}
	if err := q.addFacts(sender.Profile); err != nil {
		return nil, err
	}

	notes, err := json.Marshal(q.route(in.by.actor, checked, late))
	if err != nil {
		return nil, fmt.Errorf("encode route: %w", err)
	}

	noReply, err := n.noReply(ctx, in.by.actor, agent)
	if err != nil {
		return nil, unavailable(err)
	}

	return &exchange.Inbound{
		Message: normalized.Message{
			ID: q.activity, ThreadID: thread, InReplyTo: q.inReplyTo, Sender: sender,
			Recipient: agent.Address, Parts: parts, RecipientCapabilities: capabilities(),
			ReceivedVia: normalized.ViaActivityPub, ReceivedAt: identity.At(n.now()), Surface: n.surface(q, agent),
			Raw: normalized.Raw{MediaType: activityMediaType},
		},
		Audience:  q.readers(),
		Original:  in.body,
		Channel:   ChannelName,
		Route:     notes,
		NoReply:   noReply,
		Quiet:     in.by.actor.NoBot,
		Opens:     q.inReplyTo == "",
		FromAgent: in.by.actor.Automated(),
	}, nil
}

// surface is what the note says beside its text: its warning, title, time, language and audience, and whom its tags mention.
// Actors without a written address are counted, and those whose tag names an address of another host: anyone can write it. Counted as
// well are readers that stand elsewhere than in to and cc of the note.
func (n *notes) surface(q *inboundNote, agent exchange.AgentProfile) *normalized.Surface {
	surface := &normalized.Surface{
		Channel: ChannelName, Subject: cmp.Or(q.warning(), document.Text(q.object, "name")), Language: q.language(), Visibility: q.visibility,
	}
	if at, is := document.Time(q.object["published"]); is && at.Year() >= 1970 {
		published := identity.At(at)
		surface.Date = &published
	}

	written := map[string]string{}
	for _, mention := range q.mentions {
		address, err := identity.ParseAddress(mention.Name)
		if err == nil && strings.Count(mention.Name, "@") == 2 && address.Domain == document.HostOf(mention.Href) {
			written[mention.Href] = address.String()
		}
	}

	add := func(list *[]normalized.SurfaceRecipient, audience any) {
		for _, iri := range document.References(audience) {
			switch address := written[iri]; {
			case address != "":
				surface.AddRecipients(list, normalized.SurfaceRecipient{Address: address})
			case iri != document.Public:
				surface.Omitted++
			}
		}
	}
	add(&surface.To, q.object["to"])
	add(&surface.Cc, q.object["cc"])
	surface.Omitted += n.unlisted(q, agent)
	return surface
}

// unlisted counts the readers of a note whom its to and cc do not name: of its other fields, and of its activity. The agent is one of them if
// it stands nowhere in to and cc, and others read the note.
func (n *notes) unlisted(q *inboundNote, agent exchange.AgentProfile) (count int) {
	isAgent := func(iri string) bool {
		named, found := n.agentOf(iri)
		return found && named.Name == agent.Name
	}
	listed := slices.Concat(document.References(q.object["to"]), document.References(q.object["cc"]))
	everyone := slices.Concat(listed, q.audience.All())
	if q.sent != nil {
		everyone = append(everyone, q.sent.All()...)
	}

	others := map[string]bool{}
	for _, iri := range everyone {
		if iri == q.actor || document.IsPublic(iri) || isAgent(iri) {
			continue
		}
		if others[iri] = true; !slices.Contains(listed, iri) {
			count++
			listed = append(listed, iri)
		}
	}
	if len(others) > 0 && !slices.ContainsFunc(listed, isAgent) {
		count++
	}
	return count
}

// noReply returns why a note is not answered; empty = it is. It keeps two programs from answering each other for hours, the
// commonest complaint about bots. Someone who blocked the agent could not see an answer, so that none is made.
func (n *notes) noReply(ctx context.Context, actor *remoteActor, agent exchange.AgentProfile) (string, error) {
	if actor.Automated() && (n.options.AnswersAgents == nil || !n.options.AnswersAgents(agent.Name)) {
		return "the sender is an automated account (" + actor.Type + ") and this agent does not answer those", nil
	}
	blocked, err := n.follows.mayBlock(ctx, agent.Name, actor.ID)
	switch {
	case err != nil:
		return "", err
	case blocked:
		return "the sender has blocked this agent", nil
	}

	return n.follows.onlyFollowers(ctx, actor, agent)
}

func (q *inboundNote) route(actor *remoteActor, checked checkedAddress, late bool) route {
	profile := actor.URL
	if profile == "" {
		profile = actor.ID
	}

	mention := ""
	if own := ownAddress(actor); checked.Status == addressUnchecked && own != checked.Address {
		mention = own
	}

	sensitive, _ := q.object["sensitive"].(bool)
	return route{
		Quiet: actor.NoBot, Unlisted: actor.unlisted(), Visibility: q.visibility, Actor: actor.ID, Address: checked.Address, Mention: mention, Profile: profile, Inbox: actor.Inbox,
		SharedInbox: actor.SharedInbox, Note: q.note, Context: cmp.Or(q.context, q.inherited), Conversation: q.conversation,
		Warning: q.warning(), Sensitive: sensitive, Language: q.language(), Late: late,
		Chat: document.IsA(q.object, chatMessage),
	}
}

func capabilities() normalized.RecipientCapabilities {
	yes, no := true, false
	return normalized.RecipientCapabilities{
		MentionRelay: normalized.MentionRelay{Kind: normalized.RelayAddressing, EnvelopeFields: []string{"to", "cc"}, AlsoInline: true},
		TextMIMEs:    []string{normalized.MIMEMarkdown, normalized.MIMEPlain, normalized.MIMEHTML},
		Attachments:  &normalized.AttachmentsCapability{MaxCount: maxReplyFiles},
		Threads:      &yes,
		Edits:        &no,
	}
}

// parts makes one text part and one part for each file and link.
func (n *notes) parts(q *inboundNote, agent exchange.AgentProfile) []normalized.Part {
	var parts []normalized.Part
	if text, mime := n.text(q, agent); text != "" {
		parts = append(parts, normalized.Part{Kind: normalized.PartText, MIME: mime, Content: text})
	}
	parts = append(parts, notetext.Attachments(q.object)...)
	return append(parts, notetext.LinkedPosts(q.object)...)
}

// text is warning, title, body and options of a poll, in that order.
func (n *notes) text(q *inboundNote, agent exchange.AgentProfile) (text, mime string) {
	as := notetext.Reader{
		Address: agent.Address, Mentions: q.mentions,
		IsUs: func(href string) bool {
			named, found := n.agentOf(href)
			return found && named.Name == agent.Name
		},
	}
	var pieces []string
	if warning := q.warning(); warning != "" {
		pieces = append(pieces, "[CW: "+warning+"]")
	}

	if title := notetext.Visible(document.Translated(q.object, "name"), 1024); title != "" {
		pieces = append(pieces, title)
	}
	pieces = append(pieces, notetext.Occasion(q.object))
	if q.isArticle() {
		pieces = append(pieces, notetext.Plain(document.Translated(q.object, "summary"), as))
	}

	body, mime := q.body(as)
	pieces = append(pieces, body, notetext.Poll(q.object, n.now()))
	pieces = slices.DeleteFunc(pieces, func(piece string) bool { return piece == "" })
	return strings.Join(pieces, "\n\n"), mime
}

// body is the content as text, without the agent's own address at its head. PeerTube sends the markdown that its readers wrote.
func (q *inboundNote) body(as notetext.Reader) (text, mime string) {
	switch media, _ := normalized.TextMIME(document.Text(q.object, "mediaType")); media {
	case normalized.MIMEMarkdown, normalized.MIMEPlain:
		return as.Literal(q.content()), normalized.MIMEPlain
	}
	text, mime = notetext.Note(q.content(), as)
	return notetext.WithoutQuoteLine(as.WithoutAddress(text), notetext.LinkedPosts(q.object)), mime
}

// warning is the content warning. The summary of an article is an abstract and not a warning.
func (q *inboundNote) warning() string {
	if q.isArticle() {
		return ""
	}
	return notetext.Visible(document.Translated(q.object, "summary"), 500)
}

func (q *inboundNote) isArticle() bool { return document.IsA(q.object, "Article", "Page", "Event") }

// content is the HTML that people saw. source may differ from it and is never taken instead.
func (q *inboundNote) content() string { return document.Translated(q.object, "content") }

// language is the key of contentMap under which the content stands, or its only key.
func (q *inboundNote) language() string {
	translations, _ := q.object["contentMap"].(document.Object)
	content := q.content()
	for _, language := range slices.Sorted(maps.Keys(translations)) {
		if len(translations) == 1 || document.Text(translations, language) == content {
			return document.LanguageTag(language)
		}
	}
	return ""
}

// sender describes the actor and carries the evidence for it. The profile is decoration; rights hang on the evidence.
func (n *notes) sender(by proven, checked checkedAddress, agent exchange.AgentProfile, addressed, locale string) (normalized.Sender, error) {
	facts := evidenceClaims{
		Actor: by.actor.ID, Type: by.actor.Type, Scheme: by.scheme, Address: checked.Status, Relay: by.relay,
		MovedFrom: checked.MovedFrom, Proof: by.proofProblem,
	}
	if checked.Status == addressConfirmed {
		facts.Account = checked.Address
	}

	claims, err := json.Marshal(facts)
	if err != nil {
		return normalized.Sender{}, fmt.Errorf("encode claims: %w", err)
	}

	name := notetext.Visible(by.actor.Name, 256)
	authMethod, method := normalized.AuthActivityPubSignature, identity.MethodActivityPubSignature
	if by.scheme == signature.ProofSuite {
		authMethod, method = normalized.AuthActivityPubProof, identity.MethodActivityPubProof
	}

	return normalized.Sender{
		Address: identity.Stated(checked.Address), DisplayName: name, Profile: profileOf(by.actor, name, locale),
		AuthMethod: authMethod, Verified: true, KeyID: by.keyID,
		Identities: []identity.Evidence{{
			Subject: by.actor.ID, Issuer: n.options.Domain, Method: method,
			Assurance: identity.AssuranceAddress, Audience: identity.Audience{agent.Address},
			IssuedAt: identity.At(n.now()), Claims: claims,
			Source: &identity.Source{Transport: normalized.ViaActivityPub},
			Proof:  identity.Proof{Type: identity.ProofTransport, VerifiedBy: n.options.Domain, Addressed: addressed, KeyID: by.keyID},
		}},
	}, nil
}

func profileOf(actor *remoteActor, name, locale string) *normalized.SenderProfile {
	profile := &normalized.SenderProfile{
		DisplayName: name, Username: notetext.Visible(actor.Username, 256), URL: actor.URL, Locale: locale,
		Provider: normalized.ViaActivityPub, ProviderSubject: actor.ID,
	}
	if actor.Icon != "" {
		profile.Avatar = &normalized.Image{URL: actor.Icon, MIMEType: document.MediaType(actor.IconType)}
	}

	if !actor.FetchedAt.IsZero() {
		fetched := identity.At(actor.FetchedAt)
		profile.FetchedAt = &fetched
	}
	return profile
}

const (
	maxFacts     = 64  // emoji, and hashtags, of one note
	maxFactBytes = 256 // of a name
)

// noteFacts are things about a note that its text does not say. They ride in the sender's profile under "activitypub":
// context, and never authorization.
type noteFacts struct {
	Type      string        `json:"type,omitempty"` // of the object, when it is no Note
	Sensitive bool          `json:"sensitive,omitempty"`
	Hashtags  []string      `json:"hashtags,omitempty"`
	Emoji     []customEmoji `json:"emoji,omitempty"` // :name: stays in the text
}

// customEmoji is a picture that people saw in place of :name:.
type customEmoji struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

func (q *inboundNote) facts() noteFacts {
	var facts noteFacts
	if kind := document.TypeAmong(q.object, spokenTypes...); kind != "Note" {
		facts.Type = notetext.Visible(kind, maxFactBytes)
	}

	facts.Sensitive, _ = q.object["sensitive"].(bool)
	for _, entry := range document.List(q.object["tag"]) {
		tag, _ := entry.(document.Object)
		name := notetext.Visible(document.Text(tag, "name"), maxFactBytes)
		switch {
		case name == "":
		case document.IsA(tag, "Hashtag") && len(facts.Hashtags) < maxFacts:
			facts.Hashtags = append(facts.Hashtags, "#"+strings.TrimPrefix(name, "#"))
		case document.IsA(tag, "Emoji") && len(facts.Emoji) < maxFacts:
			if icon := document.Embedded(tag["icon"]); icon != nil && notetext.IsAddress(document.Href(icon["url"])) {
				facts.Emoji = append(facts.Emoji, customEmoji{name, document.Href(icon["url"])})
			}
		}
	}

	return facts
}

// addFacts puts what the text does not say into the profile.
func (q *inboundNote) addFacts(profile *normalized.SenderProfile) error {
	body, err := json.Marshal(q.facts())
	if err != nil {
		return fmt.Errorf("encode facts: %w", err)
	}

	if string(body) != "{}" {
		profile.Extensions = map[string]json.RawMessage{"activitypub": body}
	}
	return nil
}

func readRoute(raw json.RawMessage) (route, error) {
	var asked route
	if err := json.Unmarshal(raw, &asked); err != nil {
		return route{}, fmt.Errorf("decode route: %w", err)
	}
	return asked, nil
}
