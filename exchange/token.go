package exchange

import (
	"slices"
	"strings"
)

// TokenBridge begins the Scope of a bridge's token, whose Name is the id of its client; BridgeScopes follow after a colon.
const TokenBridge = "bridge"

// What a bridge's token may be good for (agent runtime contract, section 6.4).
const (
	BridgeSend    = "send"    // write to agents, read its own conversations
	BridgePending = "pending" // read what waits, say where it may be called back
	BridgeAck     = "ack"     // remove what waits
)

// AllBridgeScopes lists what a bridge's token may be good for.
func AllBridgeScopes() []string { return []string{BridgeSend, BridgePending, BridgeAck} }

// BridgeScope writes the Scope of a bridge's token.
func BridgeScope(scopes []string) string { return TokenBridge + ":" + strings.Join(scopes, ",") }

// BridgeScopes reads for what a bridge's token is good; false when it is no bridge's.
func (t Token) BridgeScopes() (scopes []string, is bool) {
	name, list, _ := strings.Cut(t.Scope, ":")
	if name != TokenBridge {
		return nil, false
	}
	for scope := range strings.SplitSeq(list, ",") {
		if slices.Contains(AllBridgeScopes(), scope) {
			scopes = append(scopes, scope)
		}
	}
	return scopes, true
}
