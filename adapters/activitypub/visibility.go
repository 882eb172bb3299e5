package activitypub

import (
	"slices"

	"inbox/adapters/activitypub/document"
	"inbox/normalized"
)

// visibilityOf decides as Mastodon does (ActivityPub reference, section 5.3). followers is the collection of the author.
func visibilityOf(a document.Audience, followers string) string {
	switch {
	case slices.ContainsFunc(a.To, document.IsPublic):
		return normalized.VisibilityPublic
	case slices.ContainsFunc(a.Cc, document.IsPublic):
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
