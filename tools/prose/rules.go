package main

import (
	"fmt"
	"regexp"
	"strings"
)

// rule refuses a construction. Reasons and replacements are for the author who meets it.
type rule struct {
	pattern string // regular expression, in either case
	reason  string
	write   string // what to write instead

	refuses, takes string // an example of each; the tests hold the pattern to them

	// only is the kind of texts for which the rule was made; "" is all of them but comments.
	only string
	// comments are held to it, too.
	comments bool
}

const documentsOnly = "documents"

// What the reasons have in common.
const (
	translated = "it reads as translated"
	padded     = "the words add nothing"
	private    = "it is a word of this project alone; readers know the field's term"
	vague      = "it does not name the actor"
)

// rules are the constructions that were found in texts of this project and rewritten, and those that tend to come next. Add one with its
// two examples when a review finds another.
var rules = []rule{
	// Who acts.
	{pattern: `\bwho(?:m)?ever\b`, reason: vague, write: "the sender, the caller, the person who …", refuses: "Whoever asks is told so.", takes: "The sender is told so.", comments: true},
	{pattern: `\b(?:some|no|any)body\b`, reason: vague, write: "the actor (the peer, the sender, you), or someone, no one, anyone", refuses: "Nobody waits behind somebody else.", takes: "No sender waits behind another sender.", comments: true},
	{pattern: `\bwho of (?:several|them|these|those|the)\b`, reason: translated, write: "which of the …", refuses: "Who of several recipients has it is left out.", takes: "The next attempt omits recipients who have it."},
	{pattern: `\bone's\b`, reason: vague, write: "your", refuses: "Follow it from one's own server.", takes: "Follow it from your own server."},
	{pattern: `\b(?:an? )?\w+ of (?:yours|ours|theirs)\b`, reason: translated, write: "your …, our …, their …", refuses: "A program of yours can be the agent.", takes: "Your program can be the agent."},
	{pattern: `\b(?:peer|sender|client|caller|asker|program)s? (?:hears?|heard)\b`, reason: translated, write: "gets, receives, is told", refuses: "The peer hears 202.", takes: "The peer gets 202.", only: documentsOnly},

	// Translated constructions.
	{pattern: `\bbelongs? into\b`, reason: translated, write: "belongs in", refuses: "It belongs into your backup.", takes: "It belongs in your backup.", comments: true},
	{pattern: `\bthe begin\b`, reason: translated, write: "the beginning, the start", refuses: "Pieces towards the begin of the thread.", takes: "Pieces near the start of the thread.", comments: true},
	{pattern: `\bg(?:ive|ives|ave|iving|iven) back\b`, reason: translated, write: "return", refuses: "It gives back the lease.", takes: "It returns the lease."},
	{pattern: `\bas of now\b`, reason: translated, write: "now, currently", refuses: "As of now there is one.", takes: "There is one now."},
	{pattern: `\buntil further\b`, reason: translated, write: "until …, and name the event", refuses: "It rests until further notice.", takes: "It rests until you resume it."},
	{pattern: `\bby then\b`, reason: translated, write: "name the time", refuses: "What is not there by then is dropped.", takes: "What is late is dropped."},
	{pattern: `\bthe same holds\b`, reason: translated, write: "this also applies to", refuses: "The same holds for mail.", takes: "This also applies to mail."},
	{pattern: `\bsays? whether\b`, reason: translated, write: "reports whether, shows whether", refuses: "It says whether it works.", takes: "It reports whether it works."},
	{pattern: `\blook(?:s|ed|ing)? (?:whether|if)\b`, reason: translated, write: "checks whether", refuses: "The doctor looks whether it answers.", takes: "The doctor checks whether it answers."},
	{pattern: `\bis there twice\b`, reason: translated, write: "is a duplicate", refuses: "The message is there twice.", takes: "The message is a duplicate."},
	{pattern: `\bholds? (?:[\w-]+ ){1,4}against\b`, reason: translated, write: "checks … against", refuses: "A test holds the table against the code.", takes: "A test checks the table against the code."},
	{pattern: `\ball the same\b`, reason: translated, write: "still, anyway", refuses: "It is 200 all the same.", takes: "It is still 200."},
	{pattern: `\banew\b`, reason: translated, write: "again", refuses: "The turn begins anew.", takes: "The turn begins again."},
	{pattern: `\b(?:is|are) at hand\b`, reason: translated, write: "is available", refuses: "The receipt is at hand.", takes: "The receipt is available."},
	{pattern: `\bmend(?:s|ed|ing)?\b`, reason: translated, write: "fix, correct", refuses: "After mending the cause, retry.", takes: "After you fix the cause, retry."},
	{pattern: `\bwith success\b`, reason: translated, write: "successfully", refuses: "It looked with success.", takes: "It looked successfully."},
	{pattern: `\b(?:is|are) to be (?:found|seen)\b`, reason: translated, write: "is in …, see …", refuses: "The table is to be found below.", takes: "The table is below."},
	{pattern: `\ban other\b`, reason: translated, write: "another", refuses: "Send it to an other node.", takes: "Send it to another node."},
	{pattern: `\bin the place of\b`, reason: translated, write: "instead of", refuses: "A hash in the place of the name.", takes: "A hash instead of the name."},
	{pattern: `\bdepend(?:s|ing)? of\b`, reason: translated, write: "depends on", refuses: "It depends of the peer.", takes: "It depends on the peer."},
	{pattern: `\b(?:informations|softwares|advices|evidences|feedbacks)\b`, reason: translated, write: "the singular", refuses: "Further informations follow.", takes: "Further information follows."},
	{pattern: `\ballows? to\b`, reason: translated, write: "lets you, allows … to", refuses: "The flag allows to skip it.", takes: "The flag lets you skip it."},
	{pattern: `\b(?:how|as) it (?:looks|look) like\b`, reason: translated, write: "what it looks like", refuses: "See how it looks like.", takes: "See what it looks like."},
	{pattern: `\bsince (?:\d+|two|three|some|many|several) (?:seconds|minutes|hours|days|weeks|months|years)\b`, reason: translated, write: "for … hours", refuses: "It is down since two hours.", takes: "It has been down for two hours."},
	{pattern: `\b(?:in|out)side of\b`, reason: translated, write: "inside, outside", refuses: "It waits outside of the server.", takes: "It waits outside the server."},
	{pattern: `\b(?:is|are|was|were|be|been) taken back\b|\btak(?:e|es|ing) (?:it|them|one|an? \w+|the \w+) back\b`, reason: translated, write: "withdraw", refuses: "The answer is taken back.", takes: "The answer is withdrawn."},
	{pattern: `\bwhat (?:became|becomes) of\b`, reason: translated, write: "the result of, how it ended", refuses: "See what became of the message.", takes: "See how the message ended."},
	{pattern: `\bstands (?:in|on|at|below|above|beside|behind|before|here|there|twice)\b`, reason: translated, write: "is in, is below", refuses: "The key stands in the file.", takes: "The key is in the file."},
	{pattern: `\bshall\b`, reason: "it is a word of specifications", write: "must, will", refuses: "The server shall answer.", takes: "The server must answer."},

	// Padding.
	{pattern: `\bin order (?:to|that)\b`, reason: padded, write: "to", refuses: "In order to see it, run this.", takes: "To see it, run this."},
	{pattern: `\bthis is because\b`, reason: padded, write: "join the two sentences with because", refuses: "It fails. This is because the key is old.", takes: "It fails because the key is old."},
	{pattern: `\bdue to the fact that\b`, reason: padded, write: "because", refuses: "It waits due to the fact that it is full.", takes: "It waits because it is full."},
	{pattern: `\b(?:please|it should be|it must be) not(?:e|ed)\b`, reason: padded, write: "the fact alone", refuses: "Please note that it restarts.", takes: "It restarts."},
	{pattern: `\bprior to\b`, reason: padded, write: "before", refuses: "Stop it prior to the move.", takes: "Stop it before the move."},
	{pattern: `\butili[sz]e[sd]?\b`, reason: padded, write: "use", refuses: "It utilizes a pool.", takes: "It uses a pool."},
	{pattern: `\b(?:thereof|therein|hereby|whereby|whereof|wherein|aforementioned)\b`, reason: "it is a word of contracts between lawyers", write: "plain words", refuses: "The key and the hash thereof.", takes: "The key and its hash."},

	// Words of this project alone (docs/glossary.md has the terms).
	{pattern: `\bat the door\b`, reason: private, write: "at admission", refuses: "It is refused at the door.", takes: "It is refused at admission."},
	{pattern: `\bbrakes?\b`, reason: private, write: "limiter, limit", refuses: "The brake of a thread.", takes: "The limiter of a thread."},
	{pattern: `\b(?:seats?|bells?|lanes?)\b`, reason: private, write: "reservation, notifier, queue", refuses: "A lane for each agent.", takes: "A queue for each agent.", only: documentsOnly},
	{pattern: `\bha(?:s|ve|d) the last word\b`, reason: private, write: "decides", refuses: "The first rule has the last word.", takes: "The first rule decides."},
	{pattern: `\b(?:parting|last) words?\b`, reason: private, write: "final notice", refuses: "A last word to those who wait.", takes: "A final notice to those who wait."},
	{pattern: `\b(?:is|are|was|were|be|not) believed\b`, reason: private, write: "is accepted as evidence, is verified", refuses: "The header is believed.", takes: "The header is accepted as evidence."},
	{pattern: `\bhouses?\b|\brooms? (?:of|for|with) (?:the|an?) (?:engine|adapter|store)\b`, reason: private, write: "server, package", refuses: "The rules of the house.", takes: "The rules of the project."},
}

// compiled are the patterns, in the order of rules.
var compiled = func() (all []*regexp.Regexp) {
	for _, one := range rules {
		all = append(all, regexp.MustCompile(`(?i)`+one.pattern))
	}
	return all
}()

// finding is a construction that a text has.
type finding struct {
	file   string
	line   int
	quoted string
	rule   rule
}

// String is a line for the author: where, what, why, and what to write instead.
func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %q: %s; write: %s", f.file, f.line, f.quoted, f.rule.reason, f.rule.write)
}

// doubled is the rule about a word that stands twice; no regular expression finds it.
var doubled = rule{reason: "the word stands twice", write: "it once"}

// exempt are texts that no rule reads, and why.
func exempt(one text) bool {
	switch {
	case one.kind == kindDecision: // dated records: they are read as they were decided, and are not rewritten
		return true
	case one.file == "docs/benchmarks.md": // a program writes it
		return true
	}
	return false
}

// check returns what is to be rewritten, in the order of the texts.
func check(texts []text) (found []finding) {
	for _, one := range texts {
		if exempt(one) {
			continue
		}
		for _, p := range one.passages {
			for _, hit := range constructions(p.text, one.kind) {
				found = append(found, finding{one.file, p.line, hit.quoted, hit.rule})
			}
		}
	}
	return found
}

// constructions finds what the rules refuse in one passage.
func constructions(passageText, kind string) (found []finding) {
	for i, one := range rules {
		if kind == kindComments && !one.comments {
			continue
		}
		if one.only == documentsOnly && (kind == kindHelp || kind == kindPages || kind == kindProgram) {
			continue
		}
		for _, quoted := range compiled[i].FindAllString(passageText, -1) {
			found = append(found, finding{quoted: quoted, rule: one})
		}
	}
	if kind == kindProgram || kind == kindComments { // lists of names, SQL and templates repeat words
		return found
	}

	words := strings.Fields(passageText)
	for i := 1; i < len(words); i++ {
		word := strings.ToLower(words[i])
		if word == strings.ToLower(words[i-1]) && wordForm.FindString(word) == word && word != "that" && word != "had" && strings.ContainsAny(word, "aeiouy") {
			found = append(found, finding{quoted: words[i-1] + " " + words[i], rule: doubled})
		}
	}
	return found
}
