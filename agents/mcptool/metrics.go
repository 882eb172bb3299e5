package mcptool

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/telemetry"
)

var (
	// outcome: ok, tool_error, tool_timeout, tool_server_unavailable, tool_outcome_unknown, tool_answer_invalid,
	// tool_call_refused, tool_not_found, cancelled
	calls = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_mcp_calls_total", Help: "Calls of tools at MCP servers by server and outcome.",
	}, []string{"server", "outcome"})
	callSeconds = promauto.NewHistogram(prometheus.HistogramOpts{
		Name: "inbox_mcp_call_seconds", Help: "Time of one call of a tool at an MCP server.",
		Buckets: telemetry.NetworkSeconds,
	})
	// outcome: connected, failed, lost
	connections = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_mcp_connections_total", Help: "Connections to MCP servers by server and outcome.",
	}, []string{"server", "outcome"})
)
