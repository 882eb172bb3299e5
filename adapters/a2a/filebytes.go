package a2a

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	pb0 "github.com/a2aproject/a2a-go/a2apb"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// The SDKs of 0.3 read `bytes file_with_bytes` of its .proto file in two ways, by gRPC and by HTTP+JSON: those in Go, Java
// and Python put the base64 text of a file into it, which ProtoJSON then encodes once more, and decode it as text, the one in
// JavaScript puts the file itself, as the type says. The SDK that we use knows the first kind only. Which kind a client is
// nothing in a request says, so that its program decides: JavaScript by its own HTTP client, which is that of browsers,
// Node, Deno and Bun, or by the gRPC client of Node.

// plainFiles reports whether a client of 0.3 is of the second kind.
func plainFiles(header http.Header) bool {
	program := header.Get("User-Agent")
	for _, begins := range []string{"node", "undici", "Mozilla/", "Deno/", "Bun/"} {
		if strings.HasPrefix(program, begins) {
			return true
		}
	}
	return strings.Contains(program, "grpc-node") || header.Get("Sec-Fetch-Mode") != "" // only the fetch of browsers sends that
}

// asBase64 returns the content of the field as the SDK wants it. Of a client that is not known to be plain, a file whose own
// bytes happen to be base64 is taken for the first kind.
func asBase64(content []byte, plain bool) []byte {
	if _, err := base64.StdEncoding.Strict().DecodeString(string(content)); err == nil && !plain {
		return content
	}
	return base64.StdEncoding.AppendEncode(nil, content)
}

// encodeFiles does that for a gRPC request.
func encodeFiles(request any, plain bool) {
	if send, is := request.(*pb0.SendMessageRequest); is {
		eachFile(send.ProtoReflect(), func(content []byte) []byte { return asBase64(content, plain) })
	}
}

// decodeFiles puts the files themselves into an answer by gRPC.
func decodeFiles(answer any) {
	if message, is := answer.(protoreflect.ProtoMessage); is {
		eachFile(message.ProtoReflect(), func(content []byte) []byte {
			if file, err := base64.StdEncoding.AppendDecode(nil, content); err == nil {
				return file
			}
			return content
		})
	}
}

// eachFile changes the bytes of all files in a message of 0.3.
func eachFile(message protoreflect.Message, change func(content []byte) []byte) {
	if file, is := message.Interface().(*pb0.FilePart); is {
		if holder, has := file.GetFile().(*pb0.FilePart_FileWithBytes); has {
			holder.FileWithBytes = change(holder.FileWithBytes)
		}
		return
	}
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := range value.List().Len() {
				eachFile(value.List().Get(i).Message(), change)
			}
		default:
			eachFile(value.Message(), change)
		}
		return true
	})
}

// encodeFilesJSON does what encodeFiles does for an HTTP+JSON body.
func encodeFilesJSON(body []byte, plain bool) []byte {
	return rewriteFiles(body, func(content []byte) []byte { return asBase64(content, plain) })
}

// decodeFilesJSON does what decodeFiles does for an HTTP+JSON answer, or for one line of its stream.
func decodeFilesJSON(answer []byte) []byte {
	begin := max(bytes.IndexByte(answer, '{'), 0)
	changed := rewriteFiles(answer[begin:], func(content []byte) []byte {
		if file, err := base64.StdEncoding.AppendDecode(nil, content); err == nil {
			return file
		}
		return content
	})
	return append(bytes.Clone(answer[:begin]), changed...)
}

func rewriteFiles(document []byte, change func(content []byte) []byte) []byte {
	if !bytes.Contains(document, []byte("fileWithBytes")) && !bytes.Contains(document, []byte("file_with_bytes")) {
		return document
	}
	return rewrite(document, nil, func(name, text []byte) []byte {
		if string(name) != "fileWithBytes" && string(name) != "file_with_bytes" {
			return text
		}
		content, ok := anyBase64(text)
		if !ok {
			return text
		}
		return base64.StdEncoding.AppendEncode(nil, change(content))
	})
}

// anyBase64 reads a text, as it stands between its quotes, in each form of base64 that ProtoJSON knows: both alphabets, with
// padding and without.
func anyBase64(text []byte) (content []byte, ok bool) {
	if bytes.IndexByte(text, '\\') >= 0 {
		var plain string
		if json.Unmarshal(append(append([]byte{'"'}, text...), '"'), &plain) != nil {
			return nil, false
		}
		text = []byte(plain)
	}
	standard := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(string(text), "="))
	content, err := base64.RawStdEncoding.DecodeString(standard)
	return content, err == nil
}

// standardBase64 writes a text of any form in the one that the SDK reads; what is none stays.
func standardBase64(text []byte) []byte {
	if len(text)%4 == 0 && !bytes.ContainsAny(text, `-_\`) {
		return text
	}
	if content, ok := anyBase64(text); ok {
		return base64.StdEncoding.AppendEncode(nil, content)
	}
	return text
}

// filesOf03 does that for a JSON-RPC request of 0.3, whose binding would take what is no base64 for the file itself.
func filesOf03(body []byte) ([]byte, *problem) {
	if !bytes.Contains(body, []byte(`"bytes"`)) {
		return body, nil
	}
	var p *problem
	changed := rewrite(body, nil, func(name, text []byte) []byte {
		if string(name) != "bytes" {
			return text
		}
		if _, ok := anyBase64(text); !ok {
			p = inField("message.parts", "file.bytes must be base64")
		}
		return standardBase64(text)
	})
	return changed, p
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
