package operator

import (
	"cmp"

	"inbox/internal/config"
)

// Connectors tells what the settings say about the connectors of the server.
type Connectors struct{ config func() *config.Config }

// Connector describes one connector for people and for pages that list services (agent runtime contract, section 6.2). It holds
// no secret.
type Connector struct {
	ID          string `json:"connector_id"`
	DisplayName string `json:"display_name"`
	Description string `json:"description,omitempty"`
	Logo        string `json:"logo,omitempty"` // address of a picture
	Type        string `json:"type"`           // agent_channel, agent_bridge or messaging_provider

	Agents  []string `json:"agents"`
	Answers string   `json:"answers"` // how they leave: callback, bridge, or wait = in the response alone
	Issuer  string   `json:"issuer,omitempty"`

	Credentials []ConnectorCredential `json:"credentials"`
}

// ConnectorCredential names a setting by which a connector proves its messages, and where its value comes from.
type ConnectorCredential struct {
	Setting string `json:"setting"` // secret, previous_secret or issuer
	Source  string `json:"source"`  // settings, file, or evidence = each message is signed by the issuer
}

// List returns all connectors in the order of the settings.
func (c Connectors) List() []Connector {
	configured := c.config().Connectors
	list := make([]Connector, 0, len(configured))
	for _, entry := range configured {
		one := Connector{
			ID: entry.Name, DisplayName: cmp.Or(entry.DisplayName, entry.Name), Description: entry.Description, Logo: entry.Logo,
			Type: entry.Type, Agents: entry.Agents, Answers: "wait", Issuer: entry.Issuer, Credentials: credentials(entry),
		}

		switch {
		case entry.CallbackURL != "":
			one.Answers = "callback"
		case entry.Bridge != "":
			one.Answers = "bridge"
		}

		list = append(list, one)
	}

	return list
}

func credentials(entry config.Connector) (list []ConnectorCredential) {
	switch {
	case entry.SecretFile != "":
		list = append(list, ConnectorCredential{Setting: "secret", Source: "file"})
	case entry.Secret != "":
		list = append(list, ConnectorCredential{Setting: "secret", Source: "settings"})
	}
	if entry.PreviousSecret != "" {
		list = append(list, ConnectorCredential{Setting: "previous_secret", Source: "settings"})
	}
	if entry.Issuer != "" {
		list = append(list, ConnectorCredential{Setting: "issuer", Source: "evidence"})
	}
	return list
}
