package activitypub

import (
	"slices"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/normalized"
)

// audienceVisibility decides as Mastodon does. followers is the collection of the author.
func audienceVisibility(a document.Audience, followers string) string {
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

// isOpen reports whether everyone may read a note of this visibility.
func isOpen(visibility string) bool {
	return visibility == normalized.VisibilityPublic || visibility == normalized.VisibilityUnlisted
}

var reach = map[string]int{
	normalized.VisibilityDirect: 1, normalized.VisibilityFollowers: 2,
	normalized.VisibilityUnlisted: 3, normalized.VisibilityPublic: 4,
}

// narrower returns the one of two visibilities that fewer people have.
func narrower(a, b string) string {
	if reach[b] < reach[a] {
		return b
	}
	return a
}

// narrowedVisibility is never wider than the question's. Our followers are not the asker's, so an answer to
// followers-only is direct. A public question is answered unlisted, because programs should not fill public
// timelines, unless the operator or the agent asks for public.
func narrowedVisibility(question, wanted string, publicReplies bool) string {
	reply := question
	if question == normalized.VisibilityPublic && !publicReplies && wanted != normalized.VisibilityPublic {
		reply = normalized.VisibilityUnlisted
	}

	if narrower := reach[wanted]; narrower > 0 && narrower < reach[reply] {
		reply = wanted
	}
	if !isOpen(reply) {
		return normalized.VisibilityDirect
	}
	return reply
}

// published reports whether everyone may read the note of a reply.
func (s *site) published(reply exchange.Reply) bool {
	if !isNote(reply) {
		return false
	}
	asked, err := readRoute(reply.Route)
	return err == nil && isOpen(s.replyVisibility(reply, asked))
}

// isNote reports whether a reply is a note at all.
func isNote(reply exchange.Reply) bool {
	return reply.Message.ReceivedVia == normalized.ViaActivityPub && !reply.Response.Silent
}

// replyVisibility decides who may read the reply.
func (s *site) replyVisibility(reply exchange.Reply, asked route) string {
	if reply.Private() {
		return normalized.VisibilityDirect
	}
	visibility := narrowedVisibility(asked.Visibility, reply.Response.Visibility, s.options.PublicReplies)
	if asked.Unlisted {
		visibility = narrower(visibility, normalized.VisibilityUnlisted)
	}
	return visibility
}

// followersOf is the collection that open answers are addressed to; empty = followers get none.
func (s *site) followersOf(agent string) string {
	if !s.options.FollowersGetReplies {
		return ""
	}
	return s.actorIRI(agent) + "/followers"
}
