package files

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

// Upload is what a program hears of a file that it handed in: a part of an answer that refers to it.
type Upload struct {
	Kind     string               `json:"kind"` // file
	BytesRef *normalized.BytesRef `json:"bytes_ref"`
	Size     int64                `json:"size"`
	MIME     string               `json:"mime"`
	Name     string               `json:"name,omitempty"`
}

// dropWait bounds how long the end of an upload that failed waits for the database. A reservation that stays goes in a day.
const dropWait = 5 * time.Second

// upload takes a file for an answer of the caller's agent. It goes to the disk piece by piece as it arrives.
func (s *Service) upload(w http.ResponseWriter, r *http.Request) error {
	agent, err := s.agentOf(r)
	if err != nil {
		return err
	}

	stated, err := readUpload(r)
	if err != nil {
		return err
	}
	if r.ContentLength < 0 {
		return fault.New(fault.Malformed, "Content-Length is needed: the size of the file in bytes")
	}
	if r.ContentLength > s.options.MaxUpload {
		return fault.Newf(fault.TooLarge, "a file has at most %d bytes", s.options.MaxUpload)
	}

	reserved := exchange.Upload{ID: uuid.Must(uuid.NewV7()).String(), Agent: agent, Size: r.ContentLength}
	fits, err := s.options.Uploads.ReserveUpload(r.Context(), reserved, s.options.MaxUnused)
	if err != nil {
		return err
	}
	if !fits {
		return &fault.Fault{
			Kind: fault.RateLimited, Public: "the agent handed in too many bytes that no answer has: they are forgotten a day after they came", RetryAfter: time.Hour,
			Quota: fault.Quota{Name: "uploads", Amount: s.options.MaxUnused, Unit: "content-bytes"},
		}
	}

	digest, err := s.keep(r, reserved, stated.digest)
	if err != nil {
		s.drop(r.Context(), reserved)
		return err
	}

	httpserver.WriteJSON(w, http.StatusCreated, Upload{
		Kind: normalized.PartFile, BytesRef: normalized.Stored(digest), Size: reserved.Size, MIME: stated.mediaType, Name: stated.name,
	})
	return nil
}

// keep writes the body to the store and notes that it is there.
func (s *Service) keep(r *http.Request, reserved exchange.Upload, stated string) (digest string, err error) {
	httpserver.Proven(r)
	httpserver.LargerBody(r, s.options.MaxUpload)
	httpserver.PassBody(r)

	body := io.Reader(http.NoBody)
	if r.Body != nil {
		body = r.Body
	}

	digest, size, err := s.options.Blobs.Put(r.Context(), body)
	switch {
	case err != nil && r.Context().Err() == nil && !fault.Is(err, fault.TooLarge):
		return "", fault.Wrap(fault.Of(err).Kind, "the file could not be kept: send it again", err)
	case err != nil:
		return "", err
	case size != reserved.Size:
		return "", fault.Newf(fault.Malformed, "the file ended after %d of %d bytes", size, reserved.Size)
	case stated != "" && digest != stated:
		return "", fault.InField("Content-Digest", "is not the digest of the bytes that arrived")
	}

	return digest, s.options.Uploads.FinishUpload(r.Context(), reserved.ID, digest)
}

// drop releases a reservation, also when the client is gone.
func (s *Service) drop(ctx context.Context, reserved exchange.Upload) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropWait)
	defer cancel()
	_ = s.options.Uploads.DropUpload(ctx, reserved.ID) // else it is swept
}

// uploadHead is what the head of a request says about its file.
type uploadHead struct {
	mediaType, name string
	digest          string // empty = not stated
}

func readUpload(r *http.Request) (uploadHead, error) {
	head := uploadHead{mediaType: r.Header.Get("Content-Type"), name: agents.FileName(r.URL.Query().Get("name"))}
	if head.mediaType == "" {
		head.mediaType = "application/octet-stream"
	}
	if _, _, err := mime.ParseMediaType(head.mediaType); err != nil {
		return head, fault.InField("Content-Type", "must be the media type of the file")
	}

	stated, is := strings.CutPrefix(r.Header.Get("Content-Digest"), "sha-256=:")
	if !is && r.Header.Get("Content-Digest") == "" {
		return head, nil
	}

	sum, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(stated, ":"))
	if !is || err != nil || len(sum) != sha256.Size {
		return head, fault.InField("Content-Digest", fmt.Sprintf("must be sha-256=:base64 of %d bytes: (RFC 9530)", sha256.Size))
	}
	head.digest = hex.EncodeToString(sum)
	return head, nil
}
