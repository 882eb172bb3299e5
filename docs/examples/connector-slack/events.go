package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// slackEvent is a request of Slack's Events API, as far as this program reads it.
type slackEvent struct {
	Type      string `json:"type"`
	Challenge string `json:"challenge"` // of url_verification
	TeamID    string `json:"team_id"`
	Event     struct {
		Type        string `json:"type"`
		Subtype     string `json:"subtype"` // edits, joins, posts of bots and so on; a person's message has none
		ChannelType string `json:"channel_type"`
		Channel     string `json:"channel"`
		User        string `json:"user"`
		BotID       string `json:"bot_id"`
		Text        string `json:"text"`
		TS          string `json:"ts"`        // names the message in its channel
		ThreadTS    string `json:"thread_ts"` // the message that the thread hangs on
	} `json:"event"`
}

// slackAge is how old a request may be: an older one is someone's recording.
const slackAge = 5 * time.Minute

// verifiesSlack checks X-Slack-Signature: v0= and the HMAC-SHA256 of "v0:<timestamp>:<body>" under the signing secret.
func verifiesSlack(secret string, header http.Header, body []byte, now time.Time) bool {
	stamp := header.Get("X-Slack-Request-Timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || secret == "" || now.Sub(time.Unix(seconds, 0)).Abs() > slackAge {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("v0:" + stamp + ":"))
	mac.Write(body)
	return hmac.Equal([]byte(header.Get("X-Slack-Signature")), []byte("v0="+hex.EncodeToString(mac.Sum(nil))))
}

// events takes what Slack tells an app. It answers at once and repeats are welcome (X-Slack-Retry-Num): the server recognises
// a message that it has.
func (c *connector) events(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "the body is too large", http.StatusRequestEntityTooLarge)
		return
	}
	if !verifiesSlack(c.signing, r.Header, body, time.Now()) {
		http.Error(w, "the signature is wrong", http.StatusUnauthorized)
		return
	}

	var said slackEvent
	switch err := json.Unmarshal(body, &said); {
	case err != nil:
		http.Error(w, "this is no event", http.StatusBadRequest)
	case said.Type == "url_verification":
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte(said.Challenge))
	case !said.asks():
	default:
		if err := c.handIn(r, said.message()); err != nil {
			log.Print("hand in: ", err)
			http.Error(w, "the agents cannot be reached", http.StatusBadGateway) // Slack comes again
		}
	}
}

// asks reports whether a person addressed the app: by a mention, or in a conversation with it alone. What bots post, itself
// among them, gets no answer.
func (e slackEvent) asks() bool {
	direct := e.Event.Type == "message" && e.Event.ChannelType == "im"
	return e.Type == "event_callback" && (direct || e.Event.Type == "app_mention") && e.Event.Subtype == "" && e.Event.BotID == "" && e.Event.User != ""
}

var (
	firstMention = regexp.MustCompile(`^\s*<@[A-Z0-9]+(\|[^>]*)?>[,:]?\s*`)
	unescape     = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&")
)

// message makes one conversation of each thread, and of each direct conversation.
func (e slackEvent) message() external {
	said := e.Event
	conversation, room, thread := e.TeamID+"/"+said.Channel, "channel", said.ThreadTS
	if said.ChannelType == "im" {
		room = "dm"
	} else if thread == "" {
		thread = said.TS // the answer begins one
	}

	if thread != "" {
		conversation += "/" + thread
	}

	return external{
		Text: unescape.Replace(strings.TrimSpace(firstMention.ReplaceAllString(said.Text, ""))), Provider: "slack", ConversationID: conversation,
		MessageID: e.TeamID + "/" + said.Channel + "/" + said.TS, SenderID: e.TeamID + "/" + said.User, RoomKind: room,
	}
}
