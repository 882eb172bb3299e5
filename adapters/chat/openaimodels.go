package chat

import (
	"net/http"
	"strings"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// Model is an agent as a model.
type Model struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // model
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// ModelList is what GET /v1/models answers.
type ModelList struct {
	Object string  `json:"object"` // list
	Data   []Model `json:"data"`
}

func (a *Adapter) model(agent exchange.AgentProfile) Model {
	return Model{agent.Name, "model", agent.CreatedAt.Unix(), a.options.Domain}
}

// serveModels lists the agents that the caller may write to. Who may write to none for want of a good key hears that.
func (a *Adapter) serveModels(w http.ResponseWriter, r *http.Request) error {
	who, err := a.identify(r)
	if err != nil {
		return err
	}
	list := ModelList{"list", []Model{}}
	var refused error
	for _, agent := range a.options.Directory.Agents() {
		if _, err := a.modelFor(who, agent.Name); err == nil {
			list.Data = append(list.Data, a.model(agent))
		} else if fault.Is(err, fault.Unauthenticated) {
			refused = err
		}
	}
	if len(list.Data) == 0 && refused != nil {
		return refused
	}
	httpserver.WriteJSON(w, http.StatusOK, list)
	return nil
}

func (a *Adapter) serveModel(w http.ResponseWriter, r *http.Request) error {
	who, err := a.identify(r)
	if err != nil {
		return err
	}
	agent, err := a.modelFor(who, httpserver.Param(r, "model"))
	if err != nil {
		return err
	}
	httpserver.WriteJSON(w, http.StatusOK, a.model(agent))
	return nil
}

// modelFor finds the agent of a model, which may be written as its address. A guest at a closed agent lacks a key.
func (a *Adapter) modelFor(who caller, name string) (exchange.AgentProfile, error) {
	if name == "" {
		return exchange.AgentProfile{}, fault.InField("model", "is needed: the name of an agent")
	}
	local, domain, _ := strings.Cut(strings.TrimPrefix(name, "@"), "@")
	agent, known := a.agent(local)
	if !known || domain != "" && !strings.EqualFold(domain, a.options.Domain) {
		return exchange.AgentProfile{}, fault.Newf(fault.NotFound, "The model %q does not exist or you do not have access to it.", name)
	}
	err := a.admit(who, agent)
	if who.guest() && fault.Is(err, fault.Forbidden) {
		return agent, fault.New(fault.Unauthenticated, fault.Of(err).Public)
	}
	return agent, err
}
