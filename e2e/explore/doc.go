// Package explore runs two operations on one database at the same time, statement by statement, in every order, and checks what must hold
// afterwards. On SQLite, which runs one transaction at a time, it lets each change fail instead. There is no code to import here.
//
// The files, in the order to read them: scene_test.go (two nodes and the rows that an operation needs), operations_test.go (the operations and
// what must hold), explore_test.go (the pairs), schedule_test.go (which order comes next), wire_test.go (how a statement is held back),
// fault_test.go (SQLite).
package explore
