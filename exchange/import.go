package exchange

// BadLine is a line of an import that was left out.
type BadLine struct {
	Line int    `json:"line"`
	Text string `json:"text"` // its beginning
	Why  string `json:"why"`
}

// ImportResult is what an import of a list did, or would do.
type ImportResult struct {
	Read      int       `json:"read"`      // lines that name somebody
	Added     int       `json:"added"`     // entries that were not there, or not so
	Unchanged int       `json:"unchanged"` // entries that were there already
	Bad       []BadLine `json:"bad"`       // at most MaxBadLines of them
	BadLines  int       `json:"bad_lines"`
	Cancelled int       `json:"cancelled"` // accepted messages of senders who are blocked now
	DryRun    bool      `json:"dry_run"`
}

// MaxBadLines bounds ImportResult.Bad.
const MaxBadLines = 100
