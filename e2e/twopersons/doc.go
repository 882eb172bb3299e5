// Package twopersons lets two people write to the agents of one whole server, over every pair of channels, and proves that neither reads
// a word of the other nor causes one of the other's decisions. There is no code to import here.
//
// The files, in the order to read them: person_test.go (who takes part), ledger_test.go (who may read which word, and what breaks the
// rules), moves_test.go (what people do at random), directed_test.go (the same as fixed sequences), fuzz_test.go (the tests). The others
// are the world: the server with its agents, and one file for each network.
package twopersons
