package email

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"inbox/adapters/email/message"
	"inbox/exchange"
)

const (
	capturedNamespace = "email/captured"
	operatorNamespace = "email/operator"
	maxCaptured       = 1000
	capturedLife      = 30 * 24 * time.Hour
	maxStateBytes     = 64 << 10 // larger mails go to the blob store
	trimEvery         = 50
	trimPage          = 100
)

// Captured is one mail that was kept instead of being sent, or that came in for the operator.
type Captured struct {
	ID        string    `json:"id"` // sorts by time
	From      string    `json:"from"`
	To        []string  `json:"to"`
	MessageID string    `json:"message_id,omitempty"`
	Subject   string    `json:"subject,omitempty"`
	ReplyID   string    `json:"reply_id,omitempty"`
	Agent     string    `json:"agent,omitempty"`
	At        time.Time `json:"at"`
	Size      int64     `json:"size"`
	Data      []byte    `json:"data,omitempty"`
	Blob      string    `json:"blob,omitempty"` // where Data is when it is large
}

// mailStore keeps mails in State: the newest maxCaptured, each at most capturedLife.
type mailStore struct {
	state     CaptureState
	blobs     exchange.Blobs
	namespace string
	now       func() time.Time
	puts      atomic.Int64
}

// put keeps one mail under its id; the same id again is the same mail.
func (s *mailStore) put(ctx context.Context, mail Captured) error {
	mail.Size = int64(len(mail.Data))
	if len(mail.Data) > maxStateBytes {
		digest, _, err := s.blobs.Put(ctx, bytes.NewReader(mail.Data))
		if err != nil {
			return fmt.Errorf("store mail bytes: %w", err)
		}
		mail.Blob, mail.Data = digest, nil
	}

	encoded, err := json.Marshal(mail)
	if err != nil {
		return fmt.Errorf("encode mail: %w", err)
	}

	if err := s.state.Put(ctx, s.namespace, mail.ID, encoded, s.now().Add(capturedLife)); err != nil {
		return fmt.Errorf("store mail: %w", err)
	}

	if s.puts.Add(1)%trimEvery == 1 {
		return s.trim(ctx)
	}

	return nil
}

// trim removes the oldest mails over the limit. Ids sort by time.
func (s *mailStore) trim(ctx context.Context) error {
	count, err := s.state.Count(ctx, s.namespace)
	if err != nil {
		return fmt.Errorf("count mails: %w", err)
	}

	for over := int(count) - maxCaptured; over > 0; over -= trimPage {
		keys, _, err := s.state.List(ctx, s.namespace, "", min(over, trimPage))
		if err != nil {
			return fmt.Errorf("list mails: %w", err)
		}

		for _, key := range keys {
			if err := s.state.Delete(ctx, s.namespace, key); err != nil {
				return fmt.Errorf("remove mail: %w", err)
			}
		}

		if len(keys) == 0 {
			return nil
		}
	}

	return nil
}

// list returns at most limit mails with ids above after, oldest first, with their bytes.
func (s *mailStore) list(ctx context.Context, after string, limit int) ([]Captured, error) {
	_, values, err := s.state.List(ctx, s.namespace, after, min(max(limit, 1), 500))
	if err != nil {
		return nil, fmt.Errorf("list mails: %w", err)
	}

	mails := make([]Captured, 0, len(values))
	for _, value := range values {
		var mail Captured
		if err := json.Unmarshal(value, &mail); err != nil {
			return nil, fmt.Errorf("decode mail: %w", err)
		}

		if mail.Blob != "" {
			if mail.Data, err = readBlob(ctx, s.blobs, mail.Blob, DefaultMaxBufferedBytes); err != nil {
				return nil, err
			}
		}

		mails = append(mails, mail)
	}

	return mails, nil
}

func readBlob(ctx context.Context, blobs exchange.Blobs, digest string, limit int64) ([]byte, error) {
	r, err := blobs.Open(ctx, digest)
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}

	defer func() { _ = r.Close() }()
	data, err := io.ReadAll(io.LimitReader(r, limit))
	if err != nil {
		return nil, fmt.Errorf("read blob: %w", err)
	}

	return data, nil
}

// keepForOperator stores a mail for postmaster or abuse (RFC 5321 section 4.5.1, RFC 2142): never given to an agent.
func (i *inbox) keepForOperator(ctx context.Context, mail *arrival, to recipient) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make id: %w", err)
	}
	return i.operator.put(ctx, Captured{
		ID: id.String(), From: mail.env.from, To: []string{to.envelope}, MessageID: message.ID(mail.fields),
		Subject: mail.fields.Decoded("Subject"), At: mail.env.received.UTC(), Data: i.original(mail),
	})
}
