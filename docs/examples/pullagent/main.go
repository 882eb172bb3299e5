// Command pullagent is an agent behind NAT in few lines: it takes turns from the inbox server and streams its answers.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"time"
)

// answer is your agent: each line is a piece of what it says, an empty one a sign of life while it thinks.
func answer(sender string, to io.Writer) error {
	fmt.Fprintln(to, `{"kind": "part_begin", "part": {"kind": "text", "mime": "text/markdown", "content": "Hello *"}}`)
	return json.NewEncoder(to).Encode(map[string]string{"kind": "text", "text": sender + "* from Go!"})
}

func post(path string, body io.Reader, into any) error {
	request, err := http.NewRequest(http.MethodPost, os.Getenv("INBOX_URL")+"/v1/pull/"+os.Getenv("INBOX_AGENT")+path, body)
	if err != nil {
		return err
	}

	request.Header.Set("Authorization", "Bearer "+os.Getenv("INBOX_TOKEN"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()

	if response.StatusCode != http.StatusOK { // 204: no turn in time; 409: the lease is over
		return fmt.Errorf("%s", response.Status)
	}

	return json.NewDecoder(response.Body).Decode(into)
}

func main() {
	for {
		var t struct {
			Turn, Lease struct{ ID string }
			Message     struct{ Sender struct{ Address string } }
		}

		err := post("/take?wait=30s", nil, &t)
		if err == nil {
			work, lease := "/"+url.PathEscape(t.Turn.ID), "?lease="+t.Lease.ID
			deltas, writer := io.Pipe()
			go func() { _ = writer.CloseWithError(answer(t.Message.Sender.Address, writer)) }()
			if err = post(work+"/deltas"+lease, deltas, &t); err == nil {
				err = post(work+"/answer"+lease, nil, &t)
			}
		}
		if err != nil {
			log.Print(err)
			time.Sleep(time.Second)
		}
	}
}
