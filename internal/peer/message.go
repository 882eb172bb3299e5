package peer

import (
	"errors"
	"net"
	"slices"
)

// Faults that a peer commits on purpose, so that it can be seen what a server says to them. Each network has those of its list.
const (
	FaultUnsigned     = "unsigned"      // nothing is signed, and nothing else proves the sender
	FaultBadSignature = "bad-signature" // the signature is not that of the request
	FaultWrongDigest  = "wrong-digest"  // the body is another one than the digest says
	FaultExpired      = "expired"       // signed days ago
	FaultKeyMismatch  = "key-mismatch"  // the key is not that of the sender
	FaultDKIMBroken   = "dkim-broken"   // the body was changed after it was signed
	FaultSPFFail      = "spf-fail"      // the domain says that it sends from elsewhere, and nothing is signed
	FaultDMARCReject  = "dmarc-reject"  // spf-fail of a domain that wants such mail refused
	FaultNoToken      = "no-token"      // a caller without a token
	FaultWrongToken   = "wrong-token"   // a token that the server never gave out
	FaultRevokedToken = "revoked-token" // a token that was taken back
	FaultOversize     = "oversize"      // more than the server takes
	FaultMalformed    = "malformed"     // well signed, and not in the form of the protocol
)

// FediverseFaults are those of Fediverse.Post.
func FediverseFaults() []string {
	return []string{FaultUnsigned, FaultBadSignature, FaultWrongDigest, FaultExpired, FaultKeyMismatch, FaultOversize, FaultMalformed}
}

// MailFaults are those of Mail.Post.
func MailFaults() []string {
	return []string{FaultUnsigned, FaultDKIMBroken, FaultKeyMismatch, FaultExpired, FaultSPFFail, FaultDMARCReject, FaultOversize, FaultMalformed}
}

// CallerFaults are those of Caller. FaultRevokedToken is one of them that its user commits: the token is no longer valid.
func CallerFaults() []string {
	return []string{FaultNoToken, FaultWrongToken, FaultRevokedToken, FaultOversize, FaultMalformed}
}

// Message is what a peer sends without waiting for the answer.
type Message struct {
	To       string // @user@domain
	Subject  string // mail only
	Text     string
	Language string // BCP 47; empty = not said
	Files    []File

	// Follows is Sent.Object of the message, or the id of the answer, that it continues; empty = it begins a conversation.
	Follows string
	// Thread is Sent.Thread of the message that began the conversation; empty with Follows.
	Thread string

	Fault string // empty = none
	Bytes int    // with FaultOversize: more than this
}

// File goes with a message.
type File struct {
	Name    string
	MIME    string
	Content []byte
}

// Sent is a message that was offered to a server, and what the server said.
type Sent struct {
	ID     string // under which the server has it when it took it: activity, Message-ID without angle brackets, messageId, run
	Object string // what an answer or a following message names: note, Message-ID, messageId, run
	Thread string // of the conversation, for a following message
	Taken  bool   // the server said that it has the message
	Said   string // by the server: the status, and the beginning of what stands behind it

	arrival <-chan answer
	forget  func()
}

// Received is an answer that came to the peer.
type Received struct {
	ID       string
	Text     string
	Evidence []string // what the peer checked about it, one sentence each
}

// Received returns the answer that came so far; false = none did. An answer that does not verify is an error.
func (s *Sent) Received() (Received, bool, error) {
	if s.arrival == nil {
		return Received{}, false, nil
	}
	select {
	case got := <-s.arrival:
		return Received{ID: got.id, Text: got.text, Evidence: got.evidence}, got.err == nil, got.err
	default:
		return Received{}, false, nil
	}
}

// Close ends the wait for answers.
func (s *Sent) Close() {
	if s.forget != nil {
		s.forget()
	}
}

func checkFault(fault string, known []string) error {
	if fault != "" && !slices.Contains(known, fault) {
		return errors.New("the peer cannot commit the fault " + fault)
	}
	return nil
}

// padding is a text of more than so many bytes.
func padding(size int) []byte {
	line := []byte("All work and no play makes a long message.\r\n")
	return slices.Repeat(line, size/len(line)+1)
}

// maxSaid bounds what is kept of what a server said, in bytes.
const maxSaid = 600

func said(status string, body []byte) string {
	if len(body) > maxSaid {
		body = append(slices.Clone(body[:maxSaid]), "…"...)
	}
	if len(body) == 0 {
		return status
	}
	return status + " " + string(body)
}

// cutWords stand for the answer of a server that ended the connection instead of reading a message that is too large.
const cutWords = "the server cut the connection while the message was under way"

// cutOff reports whether a request failed after the server had been reached.
func cutOff(err error) bool {
	failed, is := errors.AsType[*net.OpError](err)
	return is && failed.Op != "dial"
}
