package envelope

// Types are the nine types, for the generators of tests.
var Types = types
