package document

import (
	"errors"

	"inbox/identity"
)

// ReadResource reads a JSON resource descriptor.
func ReadResource(body []byte) (subject identity.Address, self string, err error) {
	doc, err := Parse(body)
	if err != nil {
		return subject, "", err
	}

	subject, err = identity.ParseAddress(Text(doc, "subject"))
	if err != nil {
		return subject, "", err
	}

	for _, entry := range List(doc["links"]) {
		link, _ := entry.(Object)
		if Text(link, "rel") == "self" && IsActivityType(Text(link, "type"), true) {
			return subject, Text(link, "href"), nil
		}
	}
	return subject, "", errors.New("webfinger has no link to an actor")
}
