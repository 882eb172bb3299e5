package a2a

import (
	"testing"

	pb0 "github.com/a2aproject/a2a-go/a2apb"
	"github.com/google/go-cmp/cmp"
)

func TestFilesOf03InBothEncodings(t *testing.T) {
	for content, want := range map[string]string{
		"hello":    "aGVsbG8=", // the file itself, as the JavaScript SDK sends it
		"aGVsbG8=": "aGVsbG8=", // its base64 text, as those in Go and Python send it
		"":         "",
	} {
		if got := string(asBase64([]byte(content))); got != want {
			t.Errorf("%q became %q; want %q", content, got, want)
		}
		part := &pb0.FilePart_FileWithBytes{FileWithBytes: []byte(content)}
		encodeFiles(&pb0.SendMessageRequest{Request: &pb0.Message{Parts: []*pb0.Part{
			{Part: &pb0.Part_Text{Text: "hi"}}, {Part: &pb0.Part_File{File: &pb0.FilePart{File: part}}},
		}}})
		if got := string(part.FileWithBytes); got != want {
			t.Errorf("%q became %q by gRPC; want %q", content, got, want)
		}
	}
	for body, want := range map[string]string{
		`{"message":{"content":[{"text":"x"},{"file":{"fileWithBytes":"aGVsbG8="}}],"role":"r"}}`: `{"message":{"content":[{"text":"x"},{"file":{"fileWithBytes":"YUdWc2JHOD0="}}],"role":"r"}}`,
		`{"message":{"content":[{"file":{"fileWithBytes":"YUdWc2JHOD0="}}]}}`:                     `{"message":{"content":[{"file":{"fileWithBytes":"YUdWc2JHOD0="}}]}}`,
		`{"message":{"content":[{"file":{"fileWithBytes":"no base64!"}}]}}`:                       `{"message":{"content":[{"file":{"fileWithBytes":"no base64!"}}]}}`,
		`{"message":{"content":[{"text":"fileWithBytes"}]}}`:                                      `{"message":{"content":[{"text":"fileWithBytes"}]}}`,
		`{"fileWithBytes":`: `{"fileWithBytes":`,
	} {
		if diff := cmp.Diff(want, string(encodeFilesJSON([]byte(body)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
}

func TestWebhookOf03Wrapped(t *testing.T) {
	for body, want := range map[string]string{
		`{"name":"n","pushNotificationConfig":{"url":"u"}}`:                 `{"config":{"name":"n","pushNotificationConfig":{"url":"u"}}}`,
		`{"parent":"p","config":{"pushNotificationConfig":{"url":"u"}}}`:    `{"parent":"p","config":{"pushNotificationConfig":{"url":"u"}}}`,
		`{"message":{},"configuration":{"pushNotificationConfig":{}}}`:      `{"message":{},"configuration":{"pushNotificationConfig":{}}}`,
		`{"message":{"content":[{"text":"\"pushNotificationConfig\":1"}]}}`: `{"message":{"content":[{"text":"\"pushNotificationConfig\":1"}]}}`,
		`["pushNotificationConfig"]`:                                        `["pushNotificationConfig"]`,
	} {
		if diff := cmp.Diff(want, string(wrapHook([]byte(body)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
}
