package main

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/url"
	"strings"
)

// hook is an outgoing webhook. Slack and Mattermost name its members alike; the ids of messages differ.
type hook struct {
	Token       string `json:"token"`
	TeamID      string `json:"team_id"`
	ChannelID   string `json:"channel_id"`
	ChannelName string `json:"channel_name"`
	UserID      string `json:"user_id"`
	UserName    string `json:"user_name"`
	Text        string `json:"text"`
	TriggerWord string `json:"trigger_word"`
	Timestamp   string `json:"-"`       // Slack: names the message in its channel
	PostID      string `json:"post_id"` // Mattermost: names the message
	BotID       string `json:"bot_id"`
}

// readHook reads a form, as both send it, or JSON, as Mattermost does where it is told to.
func readHook(contentType string, body []byte) (said hook, err error) {
	if mediaType, _, _ := mime.ParseMediaType(contentType); mediaType == "application/json" {
		return said, json.Unmarshal(body, &said)
	}

	form, err := url.ParseQuery(string(body))
	if err != nil {
		return said, err
	}

	said = hook{
		Token: form.Get("token"), TeamID: form.Get("team_id"), ChannelID: form.Get("channel_id"), ChannelName: form.Get("channel_name"),
		UserID: form.Get("user_id"), UserName: form.Get("user_name"), Text: form.Get("text"), TriggerWord: form.Get("trigger_word"),
		Timestamp: form.Get("timestamp"), PostID: form.Get("post_id"), BotID: form.Get("bot_id"),
	}
	if said.ChannelID == "" || said.UserID == "" {
		err = fmt.Errorf("channel_id or user_id is missing")
	}

	return said, err
}

// external is the message in the form that the server takes.
type external struct {
	Text           string `json:"text"`
	Provider       string `json:"external_provider"`
	ConversationID string `json:"external_conversation_id"`
	MessageID      string `json:"external_message_id"`
	SenderID       string `json:"sender_id"`
	SenderName     string `json:"sender_name"`
	FromSelf       bool   `json:"from_self"`
	RoomKind       string `json:"room_kind"`
}

// message makes ids that are unique for the whole connector: those of the messengers are so in a team or channel only.
func (h hook) message() external {
	provider, id := "slack", h.TeamID+"/"+h.ChannelID+"/"+h.Timestamp
	if h.PostID != "" {
		provider, id = "mattermost", h.TeamID+"/"+h.PostID
	}

	return external{
		Text: strings.TrimSpace(strings.TrimPrefix(h.Text, h.TriggerWord)), Provider: provider, ConversationID: h.TeamID + "/" + h.ChannelID,
		MessageID: id, SenderID: h.TeamID + "/" + h.UserID, SenderName: h.UserName, RoomKind: "channel",
		// What incoming webhooks post comes back by the outgoing one; an agent must not answer itself.
		FromSelf: h.UserID == "USLACKBOT" || h.BotID != "",
	}
}

// answer is what the server sends to a callback.
type answer struct {
	ID       string `json:"queue_id"`
	Content  string `json:"content"`
	Metadata struct {
		ConversationID string `json:"external_conversation_id"`
		MessageID      string `json:"external_message_id"`
		Visibility     string `json:"visibility"` // direct: for the sender alone, though others read the room
		SenderID       string `json:"sender_id"`
		Demand         struct {
			URL string `json:"url"` // which the text for a room leaves out
		} `json:"demand"`
	} `json:"metadata"`
}

func (a answer) private() bool { return a.Metadata.Visibility == "direct" }

// elsewhere stands in a room for an answer that only its asker may read, where the connector can post to the room alone.
const elsewhere = "There is an answer for the sender alone, and it cannot be shown in this room. Please ask the agent in another way."

// post is the body for an incoming webhook, which both messengers take: it goes to the room.
func (a answer) post() map[string]string {
	if a.private() {
		a.Content = elsewhere
	}
	return a.body()
}

// call is the method of Slack's API that posts the answer, and its body. Slack shows an ephemeral message to one user of the channel. In a
// direct conversation, whose id begins with D, there is no one else.
func (a answer) call() (method string, body map[string]string) {
	body = a.body()
	if !a.private() || strings.HasPrefix(body["channel"], "D") {
		return "chat.postMessage", body
	}

	_, body["user"], _ = strings.Cut(a.Metadata.SenderID, "/")
	if link := a.Metadata.Demand.URL; link != "" && !strings.Contains(a.Content, link) {
		body["text"] += "\n" + link
	}
	return "chat.postEphemeral", body
}

// body goes into the thread where the question was.
func (a answer) body() map[string]string {
	_, place, _ := strings.Cut(a.Metadata.ConversationID, "/")
	channel, thread, threaded := strings.Cut(place, "/")
	body := map[string]string{"text": a.Content, "channel": channel}
	if threaded {
		body["thread_ts"] = thread
	}
	return body
}
