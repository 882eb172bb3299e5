package exchange

import (
	"testing"

	"inbox/normalized"
)

// TestOthersRead: a message whose one listed recipient is not its agent came to the agent besides, as in Bcc, so that the listed one reads it.
func TestOthersRead(t *testing.T) {
	to := func(addresses ...string) *normalized.Surface {
		surface := &normalized.Surface{}
		for _, address := range addresses {
			surface.AddRecipients(&surface.To, normalized.SurfaceRecipient{Address: address})
		}
		return surface
	}
	for name, row := range map[string]struct {
		turn TurnRecord
		want bool
	}{
		"nothing listed":    {},
		"the agent":         {turn: TurnRecord{Message: normalized.Message{Surface: to("@a@agents.test")}}},
		"with a tag":        {turn: TurnRecord{Message: normalized.Message{Surface: to("@A+order-7@agents.test")}}},
		"somebody else":     {turn: TurnRecord{Message: normalized.Message{Surface: to("@bob@x.test")}}, want: true},
		"another agent":     {turn: TurnRecord{Message: normalized.Message{Surface: to("@ab@agents.test")}}, want: true},
		"the agent and bob": {turn: TurnRecord{Message: normalized.Message{Surface: to("@a@agents.test", "@bob@x.test")}}, want: true},
		"one that is not named": {turn: TurnRecord{Message: normalized.Message{Surface: &normalized.Surface{
			Channel: normalized.ViaActivityPub, Visibility: normalized.VisibilityDirect, Omitted: 1,
		}}}},
		"followers": {turn: TurnRecord{Message: normalized.Message{Surface: &normalized.Surface{Visibility: normalized.VisibilityFollowers}}}, want: true},
		"a room":    {turn: TurnRecord{Audience: Audience{Open: true}}, want: true},
	} {
		row.turn.Message.Recipient = "@a@agents.test"
		if got := row.turn.OthersRead(); got != row.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
