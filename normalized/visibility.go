package normalized

// visibilities from the widest to the narrowest.
var visibilities = []string{VisibilityPublic, VisibilityUnlisted, VisibilityFollowers, VisibilityDirect}

// Narrower gives the visibility of an answer: what the agent asked for, but never wider than the question's (message
// contract, section 5). An empty answer takes the question's; a value that nobody knows counts as direct.
func Narrower(question, answer string) string {
	if answer == "" {
		answer = question
	}
	return visibilities[max(narrowness(question), narrowness(answer))]
}

func narrowness(visibility string) int {
	for i, known := range visibilities {
		if known == visibility {
			return i
		}
	}
	return len(visibilities) - 1
}
