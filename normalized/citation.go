package normalized

import (
	"encoding/json"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Citation says where something in an answer comes from (agent runtime contract, section 4.5). It stands in a text or a
// link of the answer, and in the metadata of a tool's result. It explains; it authorizes nothing. Reading takes the members
// of the contract alone, each with its type: whatever else a tool wrote there is no one's to see.
type Citation struct {
	Source      string   `json:"source,omitempty"`
	SourceID    string   `json:"source_id,omitempty"`
	ItemID      string   `json:"item_id,omitempty"`
	FragmentID  string   `json:"fragment_id,omitempty"`
	SourceTitle string   `json:"source_title,omitempty"`
	SourceURL   string   `json:"source_url,omitempty"` // http or https
	Score       *float64 `json:"score,omitempty"`
	Excerpt     string   `json:"excerpt,omitempty"`

	AccessStatus      string         `json:"access_status,omitempty"` // see the Access constants; empty = nothing is said
	RestrictionReason string         `json:"restriction_reason,omitempty"`
	Principal         map[string]any `json:"principal,omitempty"` // SafePrincipal of whom the source was asked for

	// Note is the description of the link that states the citation (see Cited). Documents do not have it.
	Note string `json:"-"`
}

// Values of Citation.AccessStatus. A reader of an unknown one takes it for AccessDenied.
const (
	AccessAllowed          = "allowed"
	AccessDenied           = "denied" // neither address nor excerpt are shown
	AccessPartial          = "partial"
	AccessSourceRestricted = "source_restricted"
)

// Limits of a citation, in bytes, and of an answer.
const (
	MaxCitations     = 20
	maxCitationText  = 512
	maxCitationURL   = 2048
	maxExcerpt       = 2 << 10
	maxReason        = 64
	maxPrincipalText = 256
)

// safePrincipal are the members of an execution principal that may stand in a citation: none of them is a credential, a
// claim or the name of a session (agent runtime contract, section 4.5).
var safePrincipal = []string{
	"schema_version", "effective_agent_id", "auth_source", "request_context", "acting_user_id", "workspace_id", "client_id", "audience_id",
	"owner_type", "has_conversation_owner", "has_capability_ceiling", "has_caller_context",
}

// SafePrincipal returns the members of a principal that may be shown: plain values of the known names. nil when none is left.
func SafePrincipal(given map[string]any) map[string]any {
	var safe map[string]any
	for _, name := range safePrincipal {
		plain := given[name]
		switch known := plain.(type) {
		case string:
			plain = cutBytes(cleanName(known), maxPrincipalText)
		case bool, int, int64, float64, json.Number:
		default:
			continue
		}
		if safe == nil {
			safe = map[string]any{}
		}
		safe[name] = plain
	}
	return safe
}

// AccessOf returns a known access status: none for none, and AccessDenied for one that the contract does not have.
func AccessOf(status string) string {
	switch status = strings.ToLower(strings.TrimSpace(status)); status {
	case "", AccessAllowed, AccessDenied, AccessPartial, AccessSourceRestricted:
		return status
	}
	return AccessDenied
}

// CitationOf reads a citation that someone wrote as an object. It is not ok when nothing in it says where something comes from.
func CitationOf(given map[string]any) (read Citation, ok bool) {
	text := func(name string, limit int) string { return cutBytes(cleanName(scalar(given[name])), limit) }
	read = Citation{
		Source: text("source", maxCitationText), SourceID: text("source_id", maxCitationText), ItemID: text("item_id", maxCitationText),
		FragmentID: text("fragment_id", maxCitationText), SourceTitle: text("source_title", maxCitationText),
		Excerpt:           cutBytes(strings.TrimSpace(cleanText(scalar(given["excerpt"]))), maxExcerpt),
		RestrictionReason: text("restriction_reason", maxReason),
	}

	if status, said := given["access_status"]; said && status != nil {
		if read.AccessStatus = AccessOf(scalar(status)); read.AccessStatus == "" {
			read.AccessStatus = AccessDenied // a status that is no text says nothing that can be relied on
		}
	}

	if principal, is := given["principal"].(map[string]any); is {
		read.Principal = SafePrincipal(principal)
	}
	if score, is := number(given["score"]); is {
		read.Score = &score
	}
	if address := strings.TrimSpace(scalar(given["source_url"])); address != "" && len(address) <= maxCitationURL && isWebURL(address) && isShown(address) {
		read.SourceURL = address
	}
	if read.AccessStatus == AccessDenied {
		read.SourceURL, read.Excerpt = "", ""
	}

	return read, read.named()
}

// isShown refuses addresses with a password in them.
func isShown(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.User == nil && utf8.ValidString(address)
}

// named reports whether the citation says where something comes from.
func (c *Citation) named() bool {
	return c.Source != "" || c.SourceID != "" || c.ItemID != "" || c.SourceTitle != "" || c.SourceURL != "" || c.Excerpt != ""
}

func scalar(given any) string {
	switch typed := given.(type) {
	case string:
		return typed
	case json.Number:
		return typed.String()
	case float64:
		return strconv.FormatFloat(typed, 'f', -1, 64)
	case int:
		return strconv.Itoa(typed)
	case int64:
		return strconv.FormatInt(typed, 10)
	}
	return ""
}

func number(given any) (read float64, ok bool) {
	switch typed := given.(type) {
	case float64:
		read, ok = typed, true
	case int:
		read, ok = float64(typed), true
	case int64:
		read, ok = float64(typed), true
	case json.Number:
		parsed, err := typed.Float64()
		read, ok = parsed, err == nil
	}
	return read, ok && !math.IsNaN(read) && !math.IsInf(read, 0)
}

// UnmarshalJSON reads the members of the contract as CitationOf does. What is no object, or names no source, reads as the zero
// value: an answer does not fail for what it cites.
func (c *Citation) UnmarshalJSON(data []byte) error {
	*c = Citation{}
	var given any
	if err := json.Unmarshal(data, &given); err != nil {
		return err
	}
	if object, is := given.(map[string]any); is {
		if read, ok := CitationOf(object); ok {
			*c = read
		}
	}
	return nil
}

// Label names the source in one line: its title or what there is, and what stands in the way of reading it.
func (c *Citation) Label() string {
	label := c.SourceTitle
	for _, other := range []string{c.Source, c.SourceURL, c.SourceID, c.ItemID} {
		label = orElse(label, other)
	}

	why := map[string]string{AccessDenied: "no access", AccessPartial: "in part", AccessSourceRestricted: "restricted"}[c.AccessStatus]
	switch {
	case why == "":
		return orElse(label, "A source without a name")
	case c.RestrictionReason != "":
		why += ": " + c.RestrictionReason
	}
	return orElse(label, "A source without a name") + " (" + why + ")"
}

// Part is the part of an answer that shows the citation: a link where it has an address, else a text.
func (c Citation) Part() Part {
	if c.SourceURL != "" {
		return Part{Kind: PartLink, URL: c.SourceURL, Title: c.Label(), Citation: &c}
	}
	part := Text(c.Label())
	part.Citation = &c
	return part
}

// Same reports whether two citations name the same place of the same source.
func (c *Citation) Same(other *Citation) bool {
	return c.SourceURL == other.SourceURL && c.FragmentID == other.FragmentID && c.ItemID == other.ItemID && c.SourceID == other.SourceID &&
		c.Source == other.Source && c.SourceTitle == other.SourceTitle && c.AccessStatus == other.AccessStatus
}

func (c *Citation) size() int {
	if c == nil {
		return 0
	}
	total := len(c.Source) + len(c.SourceID) + len(c.ItemID) + len(c.FragmentID) + len(c.SourceTitle) + len(c.SourceURL) + len(c.Excerpt) + len(c.RestrictionReason)
	for name, plain := range c.Principal {
		total += len(name) + len(scalar(plain))
	}
	return total
}

// asMap is the citation as CitationOf reads it.
func (c *Citation) asMap() map[string]any {
	given := map[string]any{
		"source": c.Source, "source_id": c.SourceID, "item_id": c.ItemID, "fragment_id": c.FragmentID, "source_title": c.SourceTitle,
		"source_url": c.SourceURL, "excerpt": c.Excerpt, "restriction_reason": c.RestrictionReason, "principal": maps.Clone(c.Principal),
	}
	if c.Score != nil {
		given["score"] = *c.Score
	}
	if c.AccessStatus != "" {
		given["access_status"] = c.AccessStatus
	}
	return given
}

// cite brings the citation of a part into form. A part that cites what its reader may not see says no more than that.
func (p *Part) cite() {
	if p.Citation == nil {
		return
	}

	read, ok := CitationOf(p.Citation.asMap())
	switch {
	case !ok || p.Kind != PartText && p.Kind != PartLink:
		p.Citation = nil
	case read.AccessStatus == AccessDenied:
		*p = read.Part()
	default:
		p.Citation = &read
	}
}

// Cites returns the citation of the part as its readers see it: with the title, address and description of the link that states
// it. Those of the link precede those of the citation. It is not ok if the part has no citation.
func (p *Part) Cites() (shown Citation, ok bool) {
	if p.Citation == nil {
		return Citation{}, false
	}

	shown = *p.Citation
	if p.Kind != PartLink || shown.AccessStatus == AccessDenied {
		return shown, true
	}
	if title := cleanName(p.Title); title != "" && title != shown.Label() {
		shown.SourceTitle = title
	}
	if p.URL != "" {
		shown.SourceURL = p.URL
	}
	if note := cleanName(p.Description); note != shown.SourceTitle {
		shown.Note = note
	}
	return shown, true
}

// Said returns the part without its citation, and whether it then says anything: a text that only names its source does not.
func (p *Part) Said() (said Part, ok bool) {
	said = *p
	if said.Citation = nil; p.Citation == nil {
		return said, true
	}
	if p.Kind != PartText || p.Citation.AccessStatus == AccessDenied {
		return said, false
	}
	content := cleanName(p.Content)
	names := []string{"", p.Citation.Label(), p.Citation.SourceTitle, p.Citation.Source, p.Citation.SourceURL}
	return said, !slices.Contains(names, content)
}

// Cited splits parts into what an answer says and the citations that stand in it, in their order. A text that says more than the name
// of its source is in both.
func Cited(parts []Part) (said []Part, citations []Citation) {
	if !slices.ContainsFunc(parts, func(p Part) bool { return p.Citation != nil }) {
		return parts, nil
	}
	for i := range parts {
		if citation, ok := parts[i].Cites(); ok {
			citations = append(citations, citation)
		}
		if part, ok := parts[i].Said(); ok {
			said = append(said, part)
		}
	}
	return said, citations
}

// SourcesTitle stands above the list of citations in texts.
const SourcesTitle = "Sources:"

// Sources writes citations as numbered lines for a reader of plain text.
func Sources(citations []Citation) string {
	if len(citations) == 0 {
		return ""
	}

	written := []string{SourcesTitle}
	for i := range citations {
		line := "[" + strconv.Itoa(i+1) + "] " + citations[i].Label()
		if address := citations[i].SourceURL; address != "" && !strings.HasPrefix(citations[i].Label(), address) {
			line += ": " + address
		}
		if citations[i].Note != "" {
			line += " – " + citations[i].Note
		}
		written = append(written, line)
	}
	return strings.Join(written, "\n")
}

// MarkdownSources writes citations as lines of links in markdown.
func MarkdownSources(citations []Citation) string {
	written := []string{SourcesTitle}
	for i := range citations {
		line := EscapeMarkdown(citations[i].Label())
		if citations[i].SourceURL != "" {
			line = markdownLink("", citations[i].Label(), citations[i].SourceURL)
		}
		if citations[i].Note != "" {
			line += " – " + EscapeMarkdown(citations[i].Note)
		}
		written = append(written, `\[`+strconv.Itoa(i+1)+`\] `+line)
	}
	return strings.Join(written, "  \n")
}
