package twopersons

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A word is a secret in one message. It is unique, so that it shows wherever anything of the message arrives.
type word struct {
	number  int
	text    string
	author  *person // nil = an agent or the operator
	readers map[*person]bool
	agents  map[string]bool // to whom its author addressed the message, provably
	forged  bool            // its author wrote under the address of somebody else
}

// ledger knows who may read which word. Everything that the server shows to anyone passes through it, and what breaks a rule becomes a
// fault.
type ledger struct {
	mu        sync.Mutex
	approver  *person // who decides about what agents do and say, and reads it therefore
	words     map[string]*word
	addresses map[string]*person // whose an address is: user@domain
	decided   map[string]bool    // turns whose demand was decided by the one whom it asked
	turns     map[*person][]turn
	answered  map[*word]turn   // by the word of the message
	given     map[*word]string // what the run of a message was given
	faults    []string
}

// turn is one run that an agent was given.
type turn struct{ id, agent string }

func newLedger() *ledger {
	return &ledger{words: map[string]*word{}, addresses: map[string]*person{}, decided: map[string]bool{}, turns: map[*person][]turn{}, answered: map[*word]turn{}, given: map[*word]string{}}
}

var wordPattern = regexp.MustCompile(`\bsecret[0-9]+z\b`)

// word makes the word of a message from its author to readers and agents.
func (l *ledger) word(author *person, readers ...*person) *word {
	l.mu.Lock()
	defer l.mu.Unlock()
	made := &word{number: len(l.words), author: author, readers: map[*person]bool{}, agents: map[string]bool{}}
	made.text = "secret" + strconv.Itoa(made.number) + "z"
	for _, reader := range append(readers, author, l.approver) {
		made.readers[reader] = true
	}
	l.words[made.text] = made
	return made
}

// in returns the known words of a text, the newest last.
func (l *ledger) in(text string) []*word {
	found := map[*word]bool{}
	for _, one := range wordPattern.FindAllString(text, -1) {
		if known := l.words[one]; known != nil {
			found[known] = true
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b *word) int { return a.number - b.number })
}

// newest returns the word of the message that a text begins with or quotes others in; nil = it has none.
func (l *ledger) newest(text string) *word {
	if all := l.in(text); len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// disclose lets readers read the words of a text: somebody who has it gave it to them.
func (l *ledger) disclose(text string, readers ...*person) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.in(text) {
		for _, reader := range readers {
			one.readers[reader] = true
		}
	}
}

// open lets a reader read all that another person may read.
func (l *ledger) open(from, to *person) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.words {
		if one.readers[from] {
			one.readers[to] = true
		}
	}
}

// reads is the first rule: a text that reaches a person has no word of messages that were not addressed to them.
func (l *ledger) reads(reader *person, where, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.check(reader, where, text)
}

func (l *ledger) check(reader *person, where, text string) {
	for _, one := range l.in(text) {
		if !one.readers[reader] {
			l.addf("%s has the word of a message by %s (%s), which was not addressed to %s", where, one.author, one.text, reader)
		}
	}
}

func (l *ledger) faultf(format string, arguments ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addf(format, arguments...)
}

// runOf returns what the run of a message was given.
func (l *ledger) runOf(own *word) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.given[own]
}

// addf is faultf for a caller that holds the lock.
func (l *ledger) addf(format string, arguments ...any) {
	l.faults = append(l.faults, fmt.Sprintf(format, arguments...))
}

// found returns the faults since the last call.
func (l *ledger) found() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	faults := l.faults
	l.faults = nil
	return strings.Join(faults, "\n")
}

// decide notes that the demand of a turn was decided by the one whom it asked.
func (l *ledger) decide(turnID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decided[turnID] = true
}

// owner returns whose an address is, in any form; nil = of nobody here.
func (l *ledger) owner(address string) *person {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addresses[plainAddress(address)]
}

func plainAddress(address string) string {
	return strings.ToLower(strings.TrimPrefix(strings.TrimPrefix(address, "mailto:"), "@"))
}
