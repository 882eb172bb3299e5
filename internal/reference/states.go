package reference

const statesIntro = "The states of what the server keeps, as commands, the API and the console show them. [architecture.md](../architecture.md#states) has the transitions of a turn."

// states has every state, by what is in it.
var states = []Group{
	{Name: "turn", Title: "Turns", Intro: "A turn is one message to one agent, with its answer: `inbox list --state`, `inbox show ID`.", Entries: []Entry{
		{"accepted", "The message is stored and waits for a run.", "Nothing. For long: `inbox waiting` and `inbox breakers list` show whether the program behind the agent is down, `inbox agents list` whether the agent is paused."},
		{"running", "The agent works on it.", "Nothing. After a crash another run begins by itself."},
		{"waiting", "The turn waits for consent, a login, a payment, an approval, a tool, another agent or an operator; the reason says which.", "`inbox approvals list`, `inbox demands list`, `inbox tool-requests list`, `inbox takeover list`."},
		{"held", "Nothing proves the sender. The message waits for you.", "`inbox held release ID` or `inbox held drop ID`."},
		{"answered", "The agent answered. Its deliveries have states of their own.", "Where nothing arrived: `inbox deliveries list --turn ID`."},
		{"refused", "A rule refused the message, or a demand was denied or expired.", "The reason has the [code](errors.md); `inbox agents why NAME ADDRESS` names the rule."},
		{"silent", "The message gets no answer: automatic mail, a list, another bot, a sender who said stop.", "`inbox reply ID` still answers."},
		{"failed", "The agent gave no answer for good. The sender read one sentence.", "Fix the cause, then `inbox retry ID`."},
		{"cancelled", "The sender or the operator withdrew the message before an answer.", ""},
	}},
	{Name: "delivery", Title: "Deliveries", Intro: "A delivery is one answer to one destination: `inbox deliveries list`.", Entries: []Entry{
		{"pending", "It waits for its first attempt.", ""},
		{"sending", "An attempt is under way.", ""},
		{"retry", "An attempt failed. The row has the reason and the time of the next one.", "Nothing, or `inbox deliveries retry ID` for an attempt now."},
		{"delivered", "The peer took it.", ""},
		{"dead", "Nothing is tried any more. The row has the reason.", "Fix the cause, then `inbox deliveries retry ID`."},
		{"cancelled", "It is not needed or not allowed any more.", "After a restore with `--hold-uncertain`: `inbox deliveries retry ID`."},
	}},
	{Name: "demand", Title: "Demands", Intro: "A demand is what an agent asks back: `inbox demands list`.", Entries: []Entry{
		{"issued", "It was asked and waits for an answer.", ""},
		{"claimed", "Someone answers it at this moment.", ""},
		{"resolved", "It was met. The agent goes on.", ""},
		{"denied", "It was refused.", ""},
		{"expired", "No one answered in time.", ""},
		{"dropped", "No turn waits for it any more.", ""},
	}},
	{Name: "approval", Title: "Approvals", Intro: "An approval is a demand that another person decides: `inbox approvals list`.", Entries: []Entry{
		{"open", "It waits for a decision.", "`inbox approvals approve CODE` or `inbox approvals deny CODE`."},
		{"approved", "An approver agreed.", ""},
		{"denied", "An approver refused.", ""},
		{"expired", "No one decided in time.", ""},
		{"dropped", "No turn waits for it any more.", ""},
	}},
	{Name: "task", Title: "Task runs", Intro: "`inbox tasks list`; [tasks.md](../tasks.md).", Entries: []Entry{
		{"queued", "It waits for its turn, for a program, or for your release.", "`inbox tasks targets` shows whether one is there."},
		{"running", "The agent works on it, or waits for a person or a program: `metadata.waiting_for` says for what.", ""},
		{"cancelling", "Its owner cancelled it, and the program has not ended.", ""},
		{"cancelled", "A request ended it. A later answer is discarded.", ""},
		{"succeeded", "The agent answered, or chose to say nothing.", ""},
		{"failed", "The agent could not answer: `diagnostics` has `error_code` and `error_message`. An agent that asks back has failed with `input_required`.", "Begin it again with a new key."},
	}},
	{Name: "run", Title: "Runs of models", Intro: "How a run of an agent of the kind `llm` ended: `inbox show --result ID`.", Entries: []Entry{
		{"completed", "It has an answer.", ""},
		{"failed", "The provider, a tool or the loop failed.", "The result has the error."},
		{"runtime_tool_pending", "It waits for a program that executes a tool.", "`inbox tool-requests list`."},
		{"approval_required", "It waits for a person.", "`inbox approvals list`."},
		{"budget_exceeded", "A budget of `agents.llm.budgets` is used up.", "Raise it, or leave it so."},
		{"stalled", "The model repeated the same call.", "Look at the result of that tool."},
		{"cancelled", "The message was withdrawn.", ""},
		{"interrupted", "The run had to stop: it was cancelled, an operator has taken the conversation over, or its time was over.", "Raise `agents.timeout` if its time was over."},
		{"incomplete", "It stopped at the most turns of the model.", "Raise `agents.llm.max_turns`."},
	}},
	{Name: "tool", Title: "Requests of tools", Intro: "`inbox tool-requests list`.", Entries: []Entry{
		{"runtime_tool_pending", "It waits for the program that executes it.", ""},
		{"runtime_tool_completed", "It has a result.", ""},
		{"runtime_tool_timeout", "No program gave a result in time.", "Start the program, or raise the timeout of the tool."},
		{"runtime_tool_submitted", "The answer to a program whose result was taken.", ""},
	}},
	{Name: "item", Title: "Items of bridges", Intro: "What came of the last attempt of a bridge to deliver an item ([bridges.md](../bridges.md)).", Entries: []Entry{
		{"pending", "It waits for the bridge.", ""},
		{"delivered", "The bridge delivered it and has not acknowledged it yet.", ""},
		{"failed", "The bridge could not deliver it. It stays until it is acknowledged.", ""},
	}},
}
