package a2a

import (
	"bytes"
	"encoding/base64"
	"encoding/json"

	pb0 "github.com/a2aproject/a2a-go/a2apb"
)

// The SDKs of 0.3 read `bytes file_with_bytes` of its .proto file in two ways: those in Go and Python put the base64 text
// of a file into it, which ProtoJSON then encodes once more, the one in JavaScript puts the file itself. The SDK that we
// use takes the first kind only.

// asBase64 gives the content of the field as that SDK wants it. A file whose own bytes happen to be base64 is taken for
// the first kind.
func asBase64(content []byte) []byte {
	if _, err := base64.StdEncoding.Strict().DecodeString(string(content)); err == nil {
		return content
	}
	return base64.StdEncoding.AppendEncode(nil, content)
}

// encodeFiles does that for the parts of a gRPC request.
func encodeFiles(request any) {
	send, is := request.(*pb0.SendMessageRequest)
	if !is {
		return
	}
	for _, part := range send.GetRequest().GetParts() {
		if file, has := part.GetFile().GetFile().(*pb0.FilePart_FileWithBytes); has {
			file.FileWithBytes = asBase64(file.FileWithBytes)
		}
	}
}

// encodeFilesJSON does that for the parts of an HTTP+JSON body. One that is not as expected comes back unchanged: the
// binding refuses it.
func encodeFilesJSON(body []byte) []byte {
	if !bytes.Contains(body, []byte("fileWithBytes")) {
		return body
	}
	var parts []members
	request := members{}
	message := members{}
	if request.read(body) != nil || message.read(request["message"]) != nil || json.Unmarshal(message["content"], &parts) != nil {
		return body
	}
	for _, part := range parts {
		var content []byte
		file := members{}
		if file.read(part["file"]) != nil || json.Unmarshal(file["fileWithBytes"], &content) != nil {
			continue
		}
		if file.write("fileWithBytes", asBase64(content)) != nil || part.write("file", file) != nil {
			return body
		}
	}
	if message.write("content", parts) != nil || request.write("message", message) != nil {
		return body
	}
	changed, err := json.Marshal(request)
	if err != nil {
		return body
	}
	return changed
}

// members are those of a JSON object of which only some are looked at.
type members map[string]json.RawMessage

func (m *members) read(object []byte) error { return json.Unmarshal(object, m) }

func (m members) write(name string, value any) (err error) {
	m[name], err = json.Marshal(value)
	return err
}

// wrapHook puts the body that registers a webhook into the request message where it stands alone: the annotation of the
// .proto file says that it does, the SDK that we use wants it wrapped.
func wrapHook(body []byte) []byte {
	var hook struct {
		Config                 json.RawMessage `json:"config"`
		PushNotificationConfig json.RawMessage `json:"pushNotificationConfig"`
	}
	if !bytes.Contains(body, []byte("pushNotificationConfig")) || json.Unmarshal(body, &hook) != nil ||
		hook.Config != nil || hook.PushNotificationConfig == nil {
		return body
	}
	return append(append([]byte(`{"config":`), body...), '}')
}
