package activitypub

import (
	"inbox/adapters/activitypub/document"
	"inbox/internal/fault"
)

// withoutID are the activities that small servers send without an id; actor, type and object name them well enough. Any
// other activity of a type that we act on needs one, or it could be taken twice.
var withoutID = map[string]bool{
	"Follow": true, "Like": true, "EmojiReact": true, "Dislike": true, "Undo": true, "Block": true, "Accept": true, "Reject": true,
}

// checkObject applies the checks for all types of section 5.1 of the ActivityPub reference: what an actor makes, changes or
// deletes is on the actor's own server and by that actor.
func (b *inbox) checkObject(in *incoming) error {
	if in.id == "" && countedTypes[in.kind] && !withoutID[in.kind] {
		return fault.InField("id", "an activity of type "+in.kind+" needs an id")
	}
	switch in.kind {
	case "Create", "Update", "Delete":
	default:
		return nil
	}
	id := document.Reference(in.activity["object"])
	switch {
	case id == "":
		return fault.InField("object.id", "the object needs an id")
	case b.isOurs(id):
		return fault.InField("object.id", "an object of this server cannot come from outside")
	case !document.SameOrigin(id, in.actor) && in.kind == "Create":
		return nil // what it embeds is not read: only that object's own server can speak for it
	case !document.SameOrigin(id, in.actor):
		return fault.InField("object.id", "object and actor are on different servers")
	}
	if author := document.Reference(document.Embedded(in.activity["object"])["attributedTo"]); author != "" && author != in.actor {
		return fault.InField("object.attributedTo", "the object is by another actor")
	}
	return nil
}
