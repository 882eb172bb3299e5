package llm

import (
	"context"
	"testing"

	"inbox/agents"
	"inbox/agents/agenttest"
)

func TestConformance(t *testing.T) {
	agenttest.Suite{
		New: func(t *testing.T) agents.Agent {
			return newAgent(t, Options{Provider: scripted(says("Hello ", "you"))})
		},
		NewStuck: func(t *testing.T) agents.Agent {
			return newAgent(t, Options{Provider: modelFunc(func(ctx context.Context, _ Request, _ func(Delta) bool) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})})
		},
	}.Run(t)
}

func TestConformanceOverHTTP(t *testing.T) {
	for api, body := range map[string]string{APIOpenAI: openAIHello, APIAnthropic: anthropicHello} {
		t.Run(api, func(t *testing.T) {
			agenttest.Suite{
				New: func(t *testing.T) agents.Agent {
					return newAgent(t, Options{Provider: newScript(t, recorded{body: body}).connectRetrying(t, api)})
				},
				NewStuck: func(t *testing.T) agents.Agent {
					return newAgent(t, Options{Provider: newScript(t, recorded{body: body[:len(body)/2], stall: true}).connectRetrying(t, api)})
				},
			}.Run(t)
		})
	}
}
