package llm

import (
	"fmt"
	"strconv"

	"inbox/agents/runtime/value"
)

// of gives the cost of all calls; without prices what the provider said.
func (p Price) of(usage map[string]any) float64 {
	count := func(name string) float64 {
		number, _ := value.Integer(usage[name])
		return float64(number)
	}
	if p.Input == 0 && p.Output == 0 {
		said, _ := strconv.ParseFloat(fmt.Sprint(usage["cost"]), 64) // absent is no number
		return said
	}
	read, write := count("cache_read_tokens"), count("cache_write_tokens")
	fresh := max(0, count("prompt_tokens")-read-write)
	cost := fresh*p.Input + count("completion_tokens")*p.Output + read*orElse(p.CacheRead, p.Input) + write*orElse(p.CacheWrite, p.Input)
	return cost / 1e6
}

func orElse(price, otherwise float64) float64 {
	if price > 0 {
		return price
	}
	return otherwise
}
