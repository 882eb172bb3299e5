package exchange

import "time"

// Kinds of what an operator is told. Events are counted and told in the digest; a burst of failures, and what lasts, is told at once.
const (
	NoticeTurn        = "turn"        // turns that failed for good, by agent
	NoticeDelivery    = "delivery"    // deliveries that were given up, by agent
	NoticeJob         = "job"         // other durable work that was given up, by kind of job
	NoticeHeld        = "held"        // messages that wait for the operator, by agent
	NoticeApproval    = "approval"    // approvals that were asked for, by agent
	NoticeReport      = "report"      // reports of other servers, by agent
	NoticeMail        = "mail"        // mails for the operator that came, by mailbox; those with a report of a program are not counted
	NoticeBounce      = "bounce"      // mails that came back and complaints, by agent
	NoticeDestination = "destination" // hosts to which nothing is sent any more, by channel
	NoticeBackEnd     = "back_end"    // lasts: the breaker of an agent's back end is open
	NoticeCertificate = "certificate" // lasts: a certificate ends soon, or none is obtained
	NoticeDisk        = "disk"        // lasts: the disk is low or full
	NoticeProbe       = "probe"       // lasts: a node does not answer itself
	NoticeDatabase    = "database"    // lasts: the database is damaged, or refuses messages
)

// NoticeKinds are all kinds, in the order in which a digest has them.
func NoticeKinds() []string {
	return []string{
		NoticeTurn, NoticeDelivery, NoticeJob, NoticeHeld, NoticeApproval, NoticeReport, NoticeMail, NoticeBounce, NoticeDestination,
		NoticeBackEnd, NoticeCertificate, NoticeDisk, NoticeProbe, NoticeDatabase,
	}
}

// Phases of a notice.
const (
	NoticeBegan  = "began"  // what lasts has begun
	NoticeEnded  = "ended"  // and is over
	NoticeDigest = "digest" // what happened in a day
	NoticeTest   = "test"
)

// States of the way of a notice to one address. A mail or a post has the state of its delivery from then on when it is one.
const (
	NoticePending = "pending"
	NoticeSent    = "sent"
	NoticeFailed  = "failed"
)

// Notice is one message to the operator.
type Notice struct {
	ID        string      `json:"id"`
	Kind      string      `json:"kind,omitempty"` // empty for a digest and a test
	Subject   string      `json:"subject,omitempty"`
	Phase     string      `json:"phase"`
	Title     string      `json:"title"`
	Text      string      `json:"text"`
	Body      string      `json:"-"` // what webhooks get
	CreatedAt time.Time   `json:"created_at"`
	Ways      []NoticeWay `json:"ways"`
}

// NoticeWay is a notice on its way to one address.
type NoticeWay struct {
	ID       string `json:"id"`
	NoticeID string `json:"-"`
	Address  string `json:"address"` // a webhook's without its path, which may be secret
	// State is pending until the notice left as a delivery or reached a webhook: then that of the delivery, or sent; failed = given up.
	State     string    `json:"state"`
	Reason    string    `json:"reason,omitempty"`
	TurnID    string    `json:"turn_id,omitempty"` // of the mail or post
	UpdatedAt time.Time `json:"updated_at"`
}

// NoticeExample is one of many events.
type NoticeExample struct {
	ID   string    `json:"id"`
	At   time.Time `json:"at"`
	Note string    `json:"note,omitempty"`
}

// NoticeTally counts the events of one kind and subject.
type NoticeTally struct {
	Kind     string          `json:"kind"`
	Subject  string          `json:"subject"`
	Count    int64           `json:"count"` // since the last digest
	Total    int64           `json:"total"` // ever
	LastAt   time.Time       `json:"last_at"`
	Examples []NoticeExample `json:"examples"` // the newest since the last digest, at most three

	WindowFrom   time.Time `json:"-"`
	WindowCount  int64     `json:"-"`
	WindowBefore int64     `json:"-"` // of the window before
}

// NoticeWindow is in which events count as one burst.
const NoticeWindow = 10 * time.Minute

// States of a condition.
const (
	ConditionOpen   = "open"   // it lasts
	ConditionEnded  = "ended"  // it is over, which was not told yet
	ConditionClosed = "closed" // all of it was told, or counted
)

// NoticeCondition is the newest episode of something that lasts.
type NoticeCondition struct {
	Kind     string    `json:"kind"`
	Subject  string    `json:"subject"`
	State    string    `json:"state"`
	Reason   string    `json:"reason,omitempty"`
	Since    time.Time `json:"since"`
	SeenAt   time.Time `json:"-"`
	EndedAt  time.Time `json:"ended_at,omitzero"`
	ToldAt   time.Time `json:"told_at,omitzero"` // zero = this episode was not told
	LastTold time.Time `json:"-"`
	Base     int64     `json:"-"` // of a burst: how many events there were before it
}
