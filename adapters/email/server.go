package email

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/google/uuid"

	"inbox/adapters/email/authentication"
	"inbox/adapters/email/message"
	"inbox/identity"
	"inbox/internal/admission"
)

// smtpServer is what peers connect to.
type smtpServer struct {
	*site
	recipients *recipients
	inbox      *inbox
	buffered   *admission.Bytes

	mu       sync.Mutex
	listener *limitedListener
	library  *smtp.Server
	hostedBy *smtpServer            // whose listener it shares; nil = it has its own
	domains  map[string]*smtpServer // that share the listener, by domain; nil = no other does
}

// Listen opens smtp.listen. Run calls it when it was not called before.
func (s *smtpServer) Listen() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.listener != nil || s.options.Listen == "" {
		return nil
	}

	inner, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", s.options.Listen)
	if err != nil {
		return fmt.Errorf("smtp.listen: cannot listen on %s: %w (choose another address or stop the program that uses it)", s.options.Listen, rootCause(err))
	}

	s.listener = newLimitedListener(inner, s.domain, s.options)
	s.library = s.newServer()
	return nil
}

// use serves on a listener that another program has opened.
func (s *smtpServer) use(listener net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener = newLimitedListener(listener, s.domain, s.options)
	s.library = s.newServer()
}

func rootCause(err error) error {
	var operation *net.OpError
	if errors.As(err, &operation) && operation.Err != nil {
		return operation.Err
	}
	return err
}

// Addr returns the listening address, that of the host for a server that shares its listener; nil before Listen or without a server.
func (s *smtpServer) Addr() net.Addr {
	if s.hostedBy != nil {
		return s.hostedBy.Addr()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Run serves until ctx ends, then accepts nothing new and lets open transactions finish within ShutdownTimeout.
// It may be called once.
func (s *smtpServer) Run(ctx context.Context) error {
	if err := s.Listen(); err != nil {
		return err
	}

	if s.library == nil {
		<-ctx.Done()
		return nil
	}

	served := make(chan error, 1)
	go func() { served <- s.library.Serve(s.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve smtp: %w", err)
	case <-ctx.Done():
	}

	return s.shutdown(served)
}

func (s *smtpServer) shutdown(served <-chan error) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.options.ShutdownTimeout)
	defer cancel()
	// The library closes only listeners that Serve has seen, and ctx may have ended before that.
	_ = s.listener.Close()
	s.listener.drain()
	if err := s.library.Shutdown(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
		s.log.Warn("smtp connections were cut at shutdown; their senders will repeat", "error", err)
		s.listener.cut()
	}

	if err := <-served; err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serve smtp: %w", err)
	}

	return nil
}

// Limits of one session.
const (
	maxRecipients = 50
	maxRefused    = 5 // refused recipients before the connection is closed

	maxSenderLocal = 255 // bytes: servers write whole addresses into the envelope sender, and longer ones than RFC 5321 promises room for

	maxMailsPerConnection = 1000 // also of proven mails
	maxLineBytes          = 4000 // RFC 5321 demands 1000; a longer line is refused, not cut
	acceptTimeout         = 2 * time.Minute
	writeTimeout          = time.Minute
	readChunk             = 16 << 10 // taken for a mail first; it doubles
)

func (s *smtpServer) newServer() *smtp.Server {
	server := smtp.NewServer(smtp.BackendFunc(s.newSession))
	server.Domain = s.options.Hostname
	server.MaxRecipients = maxRecipients
	// One byte more, because the library refuses a mail of exactly the limit; Data refuses the extra byte, and what is
	// announced is made right in answerLine.
	server.MaxMessageBytes = s.options.MaxMessageBytes + 1
	server.MaxLineLength = maxLineBytes
	server.EnableSMTPUTF8 = true // RFC 6531
	server.ReadTimeout = idleTimeout
	server.WriteTimeout = writeTimeout
	server.ErrorLog = slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)
	return server
}

// session is what a peer says from its first greeting on.
type session struct {
	server *smtpServer
	conn   *smtp.Conn
	peer   *peerConn

	mu   sync.Mutex // BDAT runs Data beside the command loop
	env  envelope
	helo string // at the last MAIL
}

func (s *session) transaction() envelope {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.env
}

func (s *session) begin(env envelope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.env = env
}

func (s *smtpServer) newSession(conn *smtp.Conn) (smtp.Session, error) {
	peer, ours := conn.Conn().(*peerConn)
	if !ours {
		return nil, errors.New("the connection is not from our listener")
	}
	return &session{server: s, conn: conn, peer: peer}, nil
}

// Mail begins a transaction.
func (s *session) Mail(from string, options *smtp.MailOptions) error {
	if s.server.listener.isDraining() {
		return s.hangUp(smtp.EnhancedCode{4, 3, 2}, "This server is restarting, please try again")
	}

	s.noteHello()
	if s.peer.mustGreet() {
		return s.refuse(503, smtp.EnhancedCode{5, 5, 1}, "Please say EHLO again, under TLS")
	}

	if s.transaction().id != "" {
		// The library would keep the recipients of the open transaction for its own count (RFC 5321, section 4.1.4).
		return s.refuse(503, smtp.EnhancedCode{5, 5, 1}, "There is a mail open already; end it or say RSET")
	}

	if refusal := s.tooMany(); refusal != nil {
		return refusal
	}

	if options != nil && options.Size > s.server.options.MaxMessageBytes {
		return smtp.ErrDataTooLarge
	}

	if from != "" {
		box, err := message.ParseMailboxUpTo(from, maxSenderLocal)
		switch {
		case !message.IsASCII(from) && (options == nil || !options.UTF8):
			return s.refuse(553, smtp.EnhancedCode{5, 6, 7}, "An internationalized address needs the parameter SMTPUTF8")
		case err != nil:
			return s.refuse(553, smtp.EnhancedCode{5, 1, 7}, "The sender address is not understood")
		}
		from = box.Address()
	}

	env := s.newEnvelope(from)
	env.utf8 = options != nil && options.UTF8
	s.begin(env)
	s.peer.beginMail()
	return nil
}

// noteHello keeps the name of the peer, because only the command loop may ask the library for it.
func (s *session) noteHello() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.helo = s.conn.Hostname()
}

// tooMany refuses who sends too many mails on one connection or in a minute.
func (s *session) tooMany() error {
	if !s.peer.counted {
		return nil
	}

	if s.peer.nextMail(s.server.options.MailsPerConnection) {
		return s.hangUp(smtp.EnhancedCode{4, 7, 0}, "Too many mails on one connection, please come again")
	}

	if !s.server.listener.mails.allow(s.peer.peer) {
		return s.refuse(452, smtp.EnhancedCode{4, 7, 0}, "Too many mails in a minute, please try again later")
	}

	return nil
}

func (s *session) newEnvelope(from string) envelope {
	host, _, err := net.SplitHostPort(s.peer.RemoteAddr().String())
	if err != nil {
		host = ""
	}

	id, err := uuid.NewV7()
	if err != nil {
		id = uuid.New()
	}

	return envelope{
		id: id.String(), ip: strings.TrimPrefix(strings.SplitN(host, "%", 2)[0], "::ffff:"), helo: s.conn.Hostname(),
		tls: s.peer.tlsVersion(), from: from,
	}
}

// Rcpt accepts agents and the operator of our domain, and no others: this server relays for no one.
func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	env := s.transaction()
	at := s.server.ofAddress(to)
	ctx, cancel := context.WithTimeout(context.Background(), acceptTimeout)
	defer cancel()
	found, refusal := at.recipients.find(ctx, to, env.utf8)
	if refusal != nil {
		return s.countRefused(refusal)
	}
	if env.at != nil && env.at != at {
		// The mail is stored with each domain for itself, and one answer to its end cannot say what became of it in two of them. Peers send
		// it again for who is put off like this (RFC 5321, section 4.5.3.1.10).
		return s.refuse(452, smtp.EnhancedCode{4, 5, 3}, "Recipients of one domain in a mail, please; send it again for "+at.domain)
	}

	if found.bounce != nil && env.from != "" {
		return s.countRefused(answer(550, smtp.EnhancedCode{5, 7, 1}, "This address takes delivery reports only, from the null sender"))
	}

	if closed := at.recipients.closedTo(found); closed != nil {
		return s.refuse(closed.Code, closed.EnhancedCode, closed.Message)
	}

	for _, known := range env.recipients {
		if known.local == found.local {
			return nil // an agent that is named again in one mail hears it once
		}
	}

	env.recipients, env.at = append(env.recipients, found), at
	s.begin(env)
	return nil
}

// ofAddress returns the server of the domain of an address: this one where no other has it, which then refuses.
func (s *smtpServer) ofAddress(to string) *smtpServer {
	domain, err := identity.ParseDomain(to[strings.LastIndexByte(to, '@')+1:])
	if other, is := s.domains[domain]; err == nil && is {
		return other
	}
	return s
}

// host lets s take the mail of another server, which has no listener.
func (s *smtpServer) host(other *smtpServer) {
	if s.domains == nil {
		s.domains = map[string]*smtpServer{s.domain: s}
	}
	s.domains[other.domain], other.domains = other, s.domains
	other.hostedBy = s
}

// neighbour reports whether mail for another domain comes to the same listener.
func (s *smtpServer) neighbour(domain string) bool {
	_, is := s.domains[strings.ToLower(domain)]
	return is
}

// slowDown makes guessing names slow. A stop of the server does not wait for it.
func (s *session) slowDown() {
	wait := time.NewTimer(s.server.options.RefusalDelay)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-s.server.listener.stopping:
	}
}

func (s *session) countRefused(refusal *smtp.SMTPError) error {
	s.slowDown()
	if s.peer.refuseRecipient() >= maxRefused {
		return s.hangUp(smtp.EnhancedCode{4, 7, 0}, "Too many unknown recipients")
	}
	return s.refuse(refusal.Code, refusal.EnhancedCode, refusal.Message)
}

// Data takes the mail. It answers 250 only after everything is durable; every failure of ours is a 451, because the
// library would tell the peer 554 and the mail would be lost.
func (s *session) Data(r io.Reader) error {
	s.peer.beginTransfer()
	env := s.transaction()
	env.received = s.server.now()
	if len(env.recipients) == 0 {
		return s.refuse(554, smtp.EnhancedCode{5, 5, 1}, "No valid recipients")
	}

	if closed := s.stillOpen(env); closed != nil {
		return s.refuse(closed.Code, closed.EnhancedCode, closed.Message)
	}

	mail, taken, err := s.read(r, env)
	source, _ := env.source()
	defer s.server.buffered.Give(source, taken)
	if err != nil {
		return err
	}

	if s.peer.sawLoneCR() {
		return s.refuse(554, smtp.EnhancedCode{5, 6, 0}, "Malformed mail: "+errLineEnds.Error())
	}

	ctx, cancel := context.WithTimeout(context.Background(), acceptTimeout+authentication.CheckTimeout)
	defer cancel()
	proven, err := env.at.inbox.accept(ctx, env, mail)
	if err != nil {
		return s.explain(err)
	}

	if proven {
		s.peer.credit()
	}

	metricReceived.WithLabelValues("accepted").Inc()
	return nil
}

// read collects the mail within the room that its sender may take; taken must be given back by the caller. What is larger than a
// sender without proof may send, and cannot be proven any more, is refused as soon as that is known: six forged mails of 20 MB took
// 138 MB of memory and a second of processor time, only to be refused.
func (s *session) read(r io.Reader, env envelope) (mail []byte, taken int64, err error) {
	limit, unproven := s.server.options.MaxMessageBytes, s.server.options.MaxUnprovenBytes
	source, relay := env.source()

	for {
		if unproven > 0 && int64(len(mail)) > unproven && !onlyReports(env) {
			if !env.at.inbox.verifier.mayBeProven(context.Background(), env, mail) {
				refusal := env.at.inbox.tooLargeUnproven()
				return nil, taken, s.refuse(refusal.Code, refusal.EnhancedCode, refusal.Message)
			}
			unproven = 0 // asked once
		}

		if len(mail) == cap(mail) || taken == 0 {
			grow := min(max(readChunk, taken), limit+1-taken) // a byte more, which tells that it is too large
			if !s.server.buffered.Take(source, relay, grow) {
				return nil, taken, s.refuse(452, smtp.EnhancedCode{4, 3, 1}, "Too many mails at once, please try again later")
			}
			taken += grow
			mail = append(make([]byte, 0, taken), mail...)
		}

		n, err := r.Read(mail[len(mail):cap(mail)])
		mail = mail[:len(mail)+n]
		switch {
		case int64(len(mail)) > limit || errors.Is(err, smtp.ErrDataTooLarge):
			return nil, taken, s.refuse(552, smtp.EnhancedCode{5, 3, 4}, "The mail is larger than this server takes")
		case errors.Is(err, io.EOF) && s.cutShort(r):
			return nil, taken, s.hangUp(smtp.EnhancedCode{4, 4, 2}, "The connection broke inside the mail")
		case errors.Is(err, io.EOF):
			return mail, taken, nil
		case errors.Is(err, smtp.ErrDataReset):
			return nil, taken, s.refuse(421, smtp.EnhancedCode{4, 4, 2}, "The mail was given up by its sender")
		case errors.Is(err, smtp.ErrTooLongLine):
			return nil, taken, s.refuse(554, smtp.EnhancedCode{5, 6, 0}, "A line of the mail is longer than 4000 bytes")
		case err != nil:
			// What follows would be read as commands: end the connection.
			return nil, taken, s.hangUp(smtp.EnhancedCode{4, 4, 2}, "The connection broke inside the mail")
		}
	}
}

// cutShort reports whether a BDAT chunk ended because the connection did: the library takes the end of the connection
// for the end of the chunk, so a torn mail would look complete.
func (s *session) cutShort(r io.Reader) bool {
	_, chunked := r.(*io.PipeReader)
	return chunked && s.peer.isBroken()
}

// Reset ends a transaction: after its answer was written, or because the peer gave it up.
func (s *session) Reset() {
	s.begin(envelope{})
	s.peer.endMail()
}

// Logout ends the session.
func (s *session) Logout() error {
	s.peer.endMail()
	return nil
}

func (s *session) lastKnown() (env envelope, helo string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.env, s.helo
}

// refuse logs a refusal and returns it for the peer.
func (s *session) refuse(code int, enhanced smtp.EnhancedCode, text string) *smtp.SMTPError {
	env, helo := s.lastKnown()
	s.server.log.Info("mail refused", "session", env.id, "ip", s.peer.RemoteAddr().String(), "helo", helo,
		"from", env.from, "recipients", len(env.recipients), "code", code, "reason", text)
	metricReceived.WithLabelValues(resultOfCode(code)).Inc()
	return &smtp.SMTPError{Code: code, EnhancedCode: enhanced, Message: text}
}

// hangUp answers and closes the connection; the error that it returns can no longer reach the peer.
func (s *session) hangUp(enhanced smtp.EnhancedCode, text string) *smtp.SMTPError {
	refusal := s.refuse(421, enhanced, text)
	_ = s.peer.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, _ = io.WriteString(s.peer, replyLine(refusal))
	_ = s.conn.Close()
	return refusal
}
