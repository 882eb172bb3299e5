package load

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/mail"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
)

// Received is one mail that arrived in a Sink.
type Received struct {
	From   string // envelope
	To     []string
	Header mail.Header
	Raw    []byte
	At     time.Time
}

// Field returns a header field without the brackets around a message id.
func (r Received) Field(name string) string {
	value := r.Header.Get(name)
	if len(value) > 1 && value[0] == '<' && value[len(value)-1] == '>' {
		return value[1 : len(value)-1]
	}
	return value
}

// Sink is a mail server that takes everything: the smarthost of the server under test.
type Sink struct {
	server  *smtp.Server
	address string
	arrived func(Received)

	mu     sync.Mutex
	later  map[string]bool // recipients who are put off
	orders map[string]int  // RCPT commands, by recipient
}

// NewSink starts a sink on a loopback address; port 0 lets the kernel choose.
func NewSink(address string, arrived func(Received)) (*Sink, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for mail: %w", err)
	}

	sink := &Sink{address: listener.Addr().String(), arrived: arrived, later: map[string]bool{}, orders: map[string]int{}}
	sink.server = smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) {
		return &sinkSession{sink: sink}, nil
	}))

	sink.server.Domain = "sink.test"
	sink.server.ErrorLog = log.New(io.Discard, "", 0) // clients that are killed are part of the test
	sink.server.MaxMessageBytes = 32 << 20
	go func() { _ = sink.server.Serve(listener) }()
	return sink, nil
}

// URL is the value of the setting mail.smarthost.
func (s *Sink) URL() string { return "smtp://" + s.address }

// PutOff lets the sink answer 451 to a recipient, or ends that.
func (s *Sink) PutOff(recipient string, later bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.later[recipient] = later
}

// Orders returns how often a recipient was named.
func (s *Sink) Orders(recipient string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.orders[recipient]
}

// Close stops the sink.
func (s *Sink) Close() { _ = s.server.Close() }

type sinkSession struct {
	sink *Sink
	from string
	to   []string
}

func (s *sinkSession) Mail(from string, _ *smtp.MailOptions) error {
	s.from = from
	return nil
}

func (s *sinkSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.sink.mu.Lock()
	s.sink.orders[to]++
	later := s.sink.later[to]
	s.sink.mu.Unlock()
	if later {
		return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 2, 0}, Message: "come again later"}
	}
	s.to = append(s.to, to)
	return nil
}

func (s *sinkSession) Data(reader io.Reader) error {
	raw, err := io.ReadAll(reader)
	if err != nil {
		return err
	}

	message, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: err.Error()}
	}

	s.sink.arrived(Received{From: s.from, To: s.to, Header: message.Header, Raw: raw, At: time.Now()})
	return nil
}

func (s *sinkSession) Reset() { s.from, s.to = "", nil }

func (s *sinkSession) Logout() error { return nil }
