package llm

import (
	"math"

	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/value"
	"inbox/internal/fault"
)

// Budgets are ceilings for one message, over all its runs (agent runtime contract, section 3.5). Zero is no ceiling. A ceiling of N
// allows N units. A run that one of them stops says which.
type Budgets struct {
	Turns  int            // of the model; takes the place of Options.MaxTurns. Then it is asked once more to answer
	Tools  map[string]int // calls of one tool, by its name; then the model is asked once more to answer
	Tokens int            // of the model, read and written, those of the cache among them. Then it is not asked any more
	Cost   float64        // in the currency of Options.Price. Then it is not asked any more
}

func (b Budgets) validate() error {
	if b.Turns < 0 || b.Tokens < 0 || !(b.Cost >= 0) || math.IsInf(b.Cost, 0) {
		return fault.InField("budgets", "must not be negative")
	}
	for name, calls := range b.Tools {
		if calls < 1 {
			return fault.InField("budgets.tools."+name, "must be at least 1")
		}
	}
	return nil
}

// costUnits is how many units of the budget of costs are one unit of the currency.
const costUnits = 1e6

// budgets makes those of one run, with what earlier runs of the message took.
func (j *job) budgets() []*loop.Budget {
	limits := &j.agent.options
	list := []*loop.Budget{loop.NewBudget(loop.BudgetToolCalls, limits.ToolCalls, j.note.calls())}
	if seconds := int(limits.WallClock.Seconds()); seconds > 0 {
		list = append(list, loop.NewBudget(loop.BudgetWallClock, seconds, 0))
	}
	if limits.Budgets.Turns > 0 && j.tools.Len() > 0 { // a model without tools answers in its first turn
		list = append(list, loop.NewBudget(loop.BudgetTurns, limits.Budgets.Turns, j.earlier))
	}

	for name, calls := range limits.Budgets.Tools {
		if declaration, has := j.tools.Get(name); has {
			list = append(list, loop.NewBudget(loop.BudgetToolCalls+"_"+declaration.SafeName(), calls, j.note.Called[name]))
		}
	}

	if limits.Budgets.Tokens > 0 {
		j.tokens = loop.NewBudget(loop.BudgetTokens, limits.Budgets.Tokens, 0)
		list = append(list, j.tokens)
	}
	if limits.Budgets.Cost > 0 {
		j.cost = loop.NewBudget(loop.BudgetCost, int(math.Ceil(limits.Budgets.Cost*costUnits)), 0)
		list = append(list, j.cost)
	}

	j.measure()
	return list
}

// measure brings the budgets up to date that count what the model took.
func (j *job) measure() {
	if j.tokens != nil {
		total, _ := value.Integer(j.note.Usage["total_tokens"])
		j.tokens.SetCurrent(int(total))
	}
	if j.cost != nil {
		j.cost.SetCurrent(int(math.Ceil(j.agent.options.Price.of(j.note.Usage) * costUnits)))
	}
}

// exceededBy returns the name of the budget that the run exceeds with more of the model's usage than is counted; empty = none.
func (j *job) exceededBy(more Usage) string {
	total, _ := value.Integer(j.note.Usage["total_tokens"])
	switch {
	case j.tokens != nil && total+more.Input+more.Output >= int64(j.tokens.Ceiling()):
		return loop.BudgetTokens
	case j.cost != nil && int(math.Ceil((j.agent.options.Price.of(j.note.Usage)+j.agent.options.Price.of(more.tokens()))*costUnits)) >= j.cost.Ceiling():
		return loop.BudgetCost
	}
	return ""
}

// spentOut reports whether a budget ran out that one more call of the model would exceed further.
func spentOut(budget string) bool {
	return budget == loop.BudgetWallClock || budget == loop.BudgetTokens || budget == loop.BudgetCost
}

// sayStopped is what the sender reads when a budget ended the run without an answer.
func sayStopped(budget string) string {
	switch budget {
	case loop.BudgetWallClock:
		return "The agent needed more time than it may take and has no answer."
	case loop.BudgetTokens, loop.BudgetCost:
		return "The agent would have to spend more on this message than it may and has no answer."
	}
	return sayTooLong
}
