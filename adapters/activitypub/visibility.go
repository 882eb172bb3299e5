package activitypub

import (
	"slices"

	"inbox/normalized"
)

const (
	activityStreams = "https://www.w3.org/ns/activitystreams"
	public          = activityStreams + "#Public"
)

// isPublic knows the three spellings in use; Fedify's raw JSON-LD form writes as:Public.
func isPublic(iri string) bool { return iri == public || iri == "as:Public" || iri == "Public" }

// audience is to whom a note is addressed. Hidden holds bto, bcc and audience: read for delivery to us, never echoed.
type audience struct {
	To, Cc, Hidden []string
}

// audienceOf reads the addressing of the object, or of its activity where the object has none.
func audienceOf(activity, note object) audience {
	from := note
	if note["to"] == nil && note["cc"] == nil {
		from = activity
	}
	addressed := audience{To: references(from["to"]), Cc: references(from["cc"])}
	for _, doc := range []object{activity, note} {
		for _, name := range []string{"bto", "bcc", "audience"} {
			addressed.Hidden = append(addressed.Hidden, references(doc[name])...)
		}
	}
	return addressed
}

// names says whether an actor is among the recipients.
func (a audience) names(actor string) bool {
	return slices.Contains(a.To, actor) || slices.Contains(a.Cc, actor) || slices.Contains(a.Hidden, actor)
}

// visibility decides as Mastodon does (ActivityPub reference, section 5.3).
func (a audience) visibility(followers string) string {
	switch {
	case slices.ContainsFunc(a.To, isPublic):
		return normalized.VisibilityPublic
	case slices.ContainsFunc(a.Cc, isPublic):
		return normalized.VisibilityUnlisted
	case followers != "" && (slices.Contains(a.To, followers) || slices.Contains(a.Cc, followers)):
		return normalized.VisibilityFollowers
	}
	return normalized.VisibilityDirect
}

// openly says that everybody may read a note of this visibility.
func openly(visibility string) bool {
	return visibility == normalized.VisibilityPublic || visibility == normalized.VisibilityUnlisted
}

var width = map[string]int{
	normalized.VisibilityDirect: 1, normalized.VisibilityFollowers: 2,
	normalized.VisibilityUnlisted: 3, normalized.VisibilityPublic: 4,
}

// replyVisibility is never wider than the question's. Our followers are not the asker's, so an answer to
// followers-only is direct. A public question is answered unlisted, because programs should not fill public
// timelines, unless the operator or the agent asks for public.
func replyVisibility(question, wanted string, publicReplies bool) string {
	reply := question
	if question == normalized.VisibilityPublic && !publicReplies && wanted != normalized.VisibilityPublic {
		reply = normalized.VisibilityUnlisted
	}
	if narrower := width[wanted]; narrower > 0 && narrower < width[reply] {
		reply = wanted
	}
	if !openly(reply) {
		return normalized.VisibilityDirect
	}
	return reply
}
