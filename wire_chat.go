package inbox

import (
	"net/http"

	"inbox/adapters/a2a"
	"inbox/adapters/chat"
	"inbox/agents"
	"inbox/exchange"
	"inbox/identity"
)

func (s *Server) openChat() (module exchange.Module, err error) {
	s.chat, err = chat.New(chat.Options{
		Domain: s.config.Domain, PublicURL: s.config.PublicURL, Issued: issuedTokens{s.a2a}, Receiver: chatReceiver{s.pipeline, s.store, s.logger}, Directory: s.registry, Turns: s.store, Runs: s.pipeline,
		Tokens: s.store, Blobs: s.blobs, Guests: s.takesGuests, ShowsTools: s.showsTools, Present: s.demands.Present, FileURL: s.activitypub.MediaURL,
		ToolKind: clientToolKinds(s.config.Agents), Tools: chatTools{s.store, s.pipeline}, Memory: s.store,
		Origins: s.config.Chat.AllowedOrigins, WaitLimit: s.config.Chat.Wait, Logger: s.logger,
	})
	if err != nil {
		return module, err
	}
	return s.chat.Module(), nil
}

// issuedTokens lets the holders of signed tokens into the chat as A2A does.
type issuedTokens struct{ *a2a.Adapter }

// Credential checks the token of a request to an agent.
func (i issuedTokens) Credential(r *http.Request, agent exchange.AgentProfile, address string, audiences ...string) (chat.Credential, error) {
	found, err := i.Adapter.Credential(r, agent, address, audiences...)
	return chat.Credential{Sender: found.Sender, May: found.May}, err
}

// takesGuests reports whether an agent takes messages of somebody who proves nothing: it answers them, or they wait for the
// operator who wants that.
func (s *Server) takesGuests(name string) bool {
	entry, known := s.registry.Lookup(name)
	held := s.config.Chat.HoldGuests && entry.Settings.Unverified == agents.UnverifiedHold
	if !known || entry.Settings.Unverified != agents.UnverifiedAnswer && !held {
		return false
	}
	guest := identity.Address{Local: "guest", Domain: s.config.Domain}
	return entry.Settings.Access.Decide(identity.PurposeMessage, guest.String(), nil).Allowed
}

func (s *Server) showsTools(name string) bool {
	entry, known := s.registry.Lookup(name)
	return known && entry.Settings.ExposeTools
}
