package loop

import (
	"strings"
	"time"

	"inbox/agents/runtime/value"
)

// Names of budgets that mean something to the loop; "tool_calls_" plus the name that the model used counts one tool.
const (
	BudgetTurns     = "turns"
	BudgetToolCalls = "tool_calls"
	BudgetWallClock = "wall_clock_seconds"
	BudgetTokens    = "tokens" // of the model, read and written; the runner sets it
	BudgetCost      = "cost"   // in millionths of a currency; the runner sets it
)

// Budget counts units against a ceiling: a ceiling of N allows N units and is exceeded on the N-th (agent runtime
// contract, section 3.5). It belongs to one run and is not safe for concurrent use.
type Budget struct {
	name    string
	ceiling int
	current int
}

// NewBudget makes a budget; a ceiling below 1 becomes 1, a negative current becomes 0.
func NewBudget(name string, ceiling, current int) *Budget {
	return &Budget{name: name, ceiling: max(1, ceiling), current: max(0, current)}
}

// Name returns the name, Ceiling the limit and Current what is used up.
func (b *Budget) Name() string { return b.name }

// Ceiling returns the limit, at least 1.
func (b *Budget) Ceiling() int { return b.ceiling }

// Current returns what is used up; it may be above the ceiling.
func (b *Budget) Current() int { return b.current }

// Increment counts one unit.
func (b *Budget) Increment() { b.current++ }

// SetCurrent replaces what is used up; a negative value becomes 0.
func (b *Budget) SetCurrent(current int) { b.current = max(0, current) }

// Exceeded reports whether the ceiling is reached.
func (b *Budget) Exceeded() bool { return b.current >= b.ceiling }

// dimension names what a budget measures in budget_exceeded events.
func (b *Budget) dimension() string {
	switch {
	case b.name == BudgetWallClock:
		return "wall_clock"
	case strings.HasPrefix(b.name, BudgetToolCalls):
		return BudgetToolCalls
	}
	return b.name
}

func (b *Budget) payload() map[string]any {
	return map[string]any{"budget": b.name, "dimension": b.dimension(), "current": b.current, "ceiling": b.ceiling}
}

// budgets are those of one run by name. The budget of turns always exists; it stops in silence unless the caller gave
// it.
type budgets struct {
	byName        map[string]*Budget
	explicitTurns bool
	started       time.Time
	wallClock     int // what the wall clock budget had used up before the run
}

func newBudgets(given []*Budget, maxTurns int, now time.Time) *budgets {
	all := &budgets{byName: make(map[string]*Budget, len(given)+1), started: now}
	for _, budget := range given {
		if budget != nil {
			all.byName[budget.name] = budget
		}
	}

	if all.byName[BudgetTurns] != nil {
		all.explicitTurns = true
	} else {
		all.byName[BudgetTurns] = NewBudget(BudgetTurns, maxTurns, 0)
	}

	if clock := all.byName[BudgetWallClock]; clock != nil {
		all.wallClock = clock.current
	}

	return all
}

// count adds one unit to a budget if there is one of that name, and reports whether that exceeded it.
func (b *budgets) count(name string) (*Budget, bool) {
	budget := b.byName[name]
	if budget == nil {
		return nil, false
	}
	budget.Increment()
	return budget, budget.Exceeded()
}

// clock brings the wall clock budget up to date.
func (b *budgets) clock(now time.Time) (*Budget, bool) {
	budget := b.byName[BudgetWallClock]
	if budget == nil {
		return nil, false
	}
	budget.SetCurrent(b.wallClock + max(0, int(now.Sub(b.started)/time.Second)))
	return budget, budget.Exceeded()
}

// measured returns a budget that the runner counts itself, if it is exceeded.
func (b *budgets) measured() (*Budget, bool) {
	for _, name := range []string{BudgetTokens, BudgetCost} {
		if budget := b.byName[name]; budget != nil && budget.Exceeded() {
			return budget, true
		}
	}
	return nil, false
}

// limits writes all budgets as {name: {current, limit}} for a provider.
func (b *budgets) limits() map[string]any {
	limits := make(map[string]any, len(b.byName))
	for name, budget := range b.byName {
		limits[name] = map[string]any{"current": budget.current, "limit": budget.ceiling}
	}
	return limits
}

// newUsage is what a run starts with (agent runtime contract, section 3.2).
func newUsage() map[string]any {
	return map[string]any{"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
}

// addUsage adds the usage of one turn: numbers are summed, other values replace what was there. Integers stay integers
// as long as their sum is exact.
func addUsage(total, turn map[string]any) {
	for name, given := range turn {
		if !value.Number(given) {
			total[name] = given
			continue
		}
		total[name] = sum(total[name], given)
	}
}

func sum(left, right any) any {
	a, leftExact := value.Integer(left)
	b, rightExact := value.Integer(right)

	if left == nil {
		a, leftExact = 0, true
	}
	if leftExact && rightExact {
		if total := a + b; (total > a) == (b > 0) {
			return total
		}
	}
	return value.Finite(value.Float(left) + value.Float(right))
}
