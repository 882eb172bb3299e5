package normalized

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestSurfaceStaysWithinItsBounds: whoever fills To and Cc with what a stranger listed never makes a message that is refused.
func TestSurfaceStaysWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		surface := Surface{Channel: "email", Subject: strings.Repeat("ä", rapid.IntRange(0, 998).Draw(t, "subject"))}
		listed := 0
		for _, list := range []*[]SurfaceRecipient{&surface.To, &surface.Cc} {
			for range rapid.IntRange(0, 150).Draw(t, "recipients") {
				listed++
				surface.AddRecipients(list, SurfaceRecipient{Address: drawAddress(t), Name: strings.Repeat(`"`, rapid.IntRange(0, 128).Draw(t, "name"))})
			}
		}
		message := goodMessage()
		message.Surface = &surface
		if err := Validate(message, DefaultLimits()); err != nil {
			t.Fatal(err)
		}
		if got := len(surface.To) + len(surface.Cc) + surface.Omitted; got != listed {
			t.Fatalf("%d of %d recipients are listed or counted", got, listed)
		}
	})
	var full Surface
	full.AddRecipients(&full.To, make([]SurfaceRecipient, 130)...)
	if len(full.To) != MaxSurfaceRecipients || full.Omitted != 30 {
		t.Errorf("%d listed, %d counted", len(full.To), full.Omitted)
	}
}

// TestSurfaceKeepsMembersOfOtherChannels: a surface that another channel wrote comes back as it was.
func TestSurfaceKeepsMembersOfOtherChannels(t *testing.T) {
	const document = `{"channel":"activitypub","url":"https://a.test/@ann/1","visibility":"direct","mentions":["@bob@b.test"]}`
	r := newReader([]byte(document))
	var surface Surface
	readSurface(r, &surface)
	w := newWriter(nil)
	w.surface(&surface)
	if err := r.end(); err != nil || string(w.buf) != document {
		t.Errorf("%s, %v", w.buf, err)
	}
}
