// Command goagent is an agent in twenty lines: it checks that a message comes from the inbox server and answers it.
package main

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
)

func main() {
	secret, listen := os.Getenv("INBOX_SECRET"), cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:9000")
	http.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(http.MaxBytesReader(w, r.Body, 32<<20))
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write(body)
		signature := []byte("sha256=" + hex.EncodeToString(mac.Sum(nil)))
		verified := slices.ContainsFunc(strings.Split(r.Header.Get("X-Inbox-Signature"), ","), func(given string) bool {
			return hmac.Equal(signature, []byte(strings.TrimSpace(given)))
		})

		var in struct {
			Message struct {
				Sender struct {
					Address string `json:"address"`
				} `json:"sender"`
			} `json:"message"`
		}
		if !verified || json.Unmarshal(body, &in) != nil {
			http.Error(w, "wrong signature", http.StatusUnauthorized)
			return
		}

		text := map[string]string{"kind": "text", "mime": "text/markdown", "content": "Hello *" + in.Message.Sender.Address + "* from Go!"}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"parts": []any{text}})
	})

	listener, err := net.Listen("tcp", listen)
	if err != nil || secret == "" {
		log.Fatal("set INBOX_SECRET, and LISTEN to a free host:port: ", err)
	}

	fmt.Println("listening on", listener.Addr())
	log.Fatal(http.Serve(listener, nil))
}
