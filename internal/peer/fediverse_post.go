package peer

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"html"
	"net/http"
	"strings"
	"time"
)

// longAgo is the age of a request with FaultExpired.
const longAgo = 72 * time.Hour

// Post mentions an account in a public note and does not wait for the answer. publicURL is where the WebFinger of the account's domain
// is reached. An error says that the message could not be offered; what the server says against it is in Sent.
func (f *Fediverse) Post(ctx context.Context, publicURL string, message Message) (Sent, error) {
	if err := checkFault(message.Fault, FediverseFaults()); err != nil {
		return Sent{}, err
	}
	target, err := f.find(ctx, publicURL, message.To)
	if err != nil {
		return Sent{}, fmt.Errorf("find %s: %w", message.To, err)
	}

	create := f.mention(target, message)
	note := create["object"].(object)
	sent := Sent{ID: create["id"].(string), Object: note["id"].(string), Thread: note["conversation"].(string)}
	body, err := faultyActivity(create, message)
	if err != nil {
		return Sent{}, err
	}

	sent.arrival, sent.forget = f.waiting.expect(sent.Object)
	status, answered, err := f.offer(ctx, target.Inbox, body, message.Fault)
	if err != nil {
		sent.Close()
		return Sent{}, fmt.Errorf("deliver the mention to %s: %w", target.Inbox, err)
	}

	sent.Taken, sent.Said = status/100 == 2, said(fmt.Sprintf("HTTP %d %s", status, http.StatusText(status)), answered)
	return sent, nil
}

// mention is note with files, a language and the conversation that it continues.
func (f *Fediverse) mention(target actorDocument, message Message) object {
	create := f.note(target, message.To, message.Text, message.Follows)
	note := create["object"].(object)

	f.mu.Lock()
	defer f.mu.Unlock()
	note["content"] = strings.ReplaceAll(note["content"].(string), "\n", "<br>")
	if message.Thread != "" {
		note["conversation"] = message.Thread
	}
	if message.Language != "" {
		note["contentMap"] = object{message.Language: note["content"]}
	}

	var attached []object
	for _, file := range message.Files {
		path := "/files/" + newID()
		f.files[path] = file
		attached = append(attached, object{"type": "Document", "mediaType": file.MIME, "url": f.base + path, "name": file.Name})
	}
	if attached != nil {
		note["attachment"] = attached
	}

	if message.Fault == FaultKeyMismatch { // the key stays the account's own
		somebody := f.base + "/users/somebody-else"
		create["actor"], note["attributedTo"] = somebody, somebody
	}
	return create
}

// faultyActivity is the body of a request.
func faultyActivity(create object, message Message) ([]byte, error) {
	if message.Fault == FaultOversize {
		note := create["object"].(object)
		note["content"] = note["content"].(string) + "<p>" + html.EscapeString(string(padding(message.Bytes))) + "</p>"
	}

	body, err := encode(create)
	if message.Fault == FaultMalformed {
		body = body[:len(body)/2]
	}
	return body, err
}

// offer posts an activity, signed or with one of the faults of signatures, and returns what the server says.
func (f *Fediverse) offer(ctx context.Context, inbox string, body []byte, fault string) (status int, answered []byte, err error) {
	signed := body
	if fault == FaultWrongDigest {
		signed = append(bytes.Clone(body), '\n')
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, inbox, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", activityJSON)
	request.Header.Set("User-Agent", f.userAgent())

	at := time.Now()
	if fault == FaultExpired {
		at = at.Add(-longAgo)
	}
	if err := f.key.signAt(request, signed, at); err != nil {
		return 0, nil, err
	}
	switch fault {
	case FaultUnsigned:
		request.Header.Del("Signature")
	case FaultBadSignature:
		other := base64.StdEncoding.EncodeToString(make([]byte, f.key.private.Size()))
		request.Header.Set("Signature", fmt.Sprintf(`keyId="%s",algorithm="rsa-sha256",headers="(request-target) host date digest",signature="%s"`, f.key.id, other))
	}

	response, err := f.client.Do(request)
	if fault == FaultOversize && cutOff(err) {
		return http.StatusRequestEntityTooLarge, []byte(cutWords), nil
	}
	if err != nil {
		return 0, nil, err
	}
	answered, err = readBody(response)
	return response.StatusCode, answered, err
}

func (f *Fediverse) serveFile(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	file, exists := f.files[r.URL.Path]
	f.mu.Unlock()
	if !exists {
		http.NotFound(w, r)
		return
	}

	w.Header().Set("Content-Type", file.MIME)
	w.Header().Set("Content-Disposition", "attachment")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(file.Content)
}
