package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/protobuf/proto"
)

// The kit uses one message id for many messages of a run and expects a task for each. To the server the second copy is
// a repeat of the first, which it recognises on purpose; so the proxy makes every id of the kit unique.

// renamer numbers messages. The number goes to the end, because the kit's prefix tells the agent what to do.
type renamer struct{ last atomic.Int64 }

func (n *renamer) name(id string) string { return id + "-" + strconv.FormatInt(n.last.Add(1), 10) }

// rename changes the message ids in a request; what it cannot read passes as it is.
func (n *renamer) rename(r *http.Request) {
	if r.Method != http.MethodPost || r.Body == nil {
		return
	}

	body, err := io.ReadAll(r.Body)
	if err != nil {
		r.Body = io.NopCloser(errorReader{err})
		return
	}

	if r.Header.Get("Content-Type") == "application/grpc" {
		if strings.HasSuffix(r.URL.Path, "Message") {
			body = n.frame(body)
		}
	} else {
		body = n.document(body)
	}

	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}

type errorReader struct{ err error }

func (e errorReader) Read([]byte) (int, error) { return 0, e.err }

// frame changes the one length-prefixed message of a gRPC request.
func (n *renamer) frame(body []byte) []byte {
	var request a2apb.SendMessageRequest
	if len(body) < 5 || body[0] != 0 || proto.Unmarshal(body[5:], &request) != nil || request.GetMessage().GetMessageId() == "" {
		return body
	}

	request.Message.MessageId = n.name(request.Message.MessageId)
	changed, err := proto.Marshal(&request)
	if err != nil {
		return body
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(changed))), changed...)
}

// document changes a JSON-RPC or HTTP+JSON request.
func (n *renamer) document(body []byte) []byte {
	var document map[string]any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()

	if decoder.Decode(&document) != nil || !errors.Is(decoder.Decode(new(any)), io.EOF) {
		return body
	}

	holder := document
	if params, is := document["params"].(map[string]any); is {
		holder = params
	}

	message, _ := holder["message"].(map[string]any)
	changed := false
	for _, member := range []string{"messageId", "message_id"} {
		if id, is := message[member].(string); is && id != "" {
			message[member], changed = n.name(id), true
		}
	}

	if !changed {
		return body
	}
	if encoded, err := json.Marshal(document); err == nil {
		return encoded
	}

	return body
}
