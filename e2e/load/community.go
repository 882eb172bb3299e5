package load

import (
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Arrival is one activity that was posted to an inbox of a Community.
type Arrival struct {
	Path      string // of the inbox
	Type      string // of the activity
	ID        string // of the object when it is embedded, otherwise of the activity
	InReplyTo string
	At        time.Time
	Header    http.Header
	Body      []byte
}

// Community is a fediverse server with many persons. It tells everything that arrives to a function and believes all
// of it: signatures of replies are checked by software that we did not write.
type Community struct {
	Origin  string // http://127.0.0.1:port
	Persons []Person

	arrived  func(Arrival)
	byPath   map[string][]byte
	server   *http.Server
	mu       sync.Mutex
	requests map[string]int

	connections atomic.Int64
	away        atomic.Bool
}

// distinctKeys bounds the time that a community needs to start. Every person has a key IRI of its own, so caches of
// keys behave as if every key were different.
const distinctKeys = 4

// NewCommunity starts a community on a loopback port of the kernel's choice, or on the port given in address.
func NewCommunity(address string, persons int, arrived func(Arrival)) (*Community, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for activities: %w", err)
	}

	community := &Community{
		Origin:   "http://" + listener.Addr().String(),
		arrived:  arrived,
		byPath:   map[string][]byte{},
		requests: map[string]int{},
	}

	if err := community.populate(persons); err != nil {
		return nil, err
	}

	community.server = &http.Server{Handler: community, ReadHeaderTimeout: 10 * time.Second, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			community.connections.Add(1)
		}
	}}

	go func() { _ = community.server.Serve(listener) }()
	return community, nil
}

func (c *Community) populate(persons int) error {
	var keys []*rsa.PrivateKey
	for range min(persons, distinctKeys) {
		key, err := NewKey()
		if err != nil {
			return err
		}
		keys = append(keys, key)
	}

	for i := range persons {
		name := fmt.Sprintf("person%d", i)
		person := Person{Name: name, ID: c.Origin + "/users/" + name, Key: keys[i%len(keys)]}
		document, err := json.Marshal(person.Document())
		if err != nil {
			return fmt.Errorf("write actor: %w", err)
		}
		c.byPath["/users/"+name] = document
		c.Persons = append(c.Persons, person)
	}

	return nil
}

// ServeHTTP answers actor, WebFinger and inbox requests.
func (c *Community) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	c.count(request)
	switch {
	case request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/inbox"):
		c.receive(writer, request)
	case request.URL.Path == "/.well-known/webfinger":
		c.webfinger(writer, request)
	default:
		c.actor(writer, request)
	}
}

func (c *Community) count(request *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[request.Method+" "+request.URL.Path]++
}

// Present shows a person with further members, or with others in place of its own.
func (c *Community) Present(person Person, members map[string]any) error {
	shown := person.Document()
	maps.Copy(shown, members)
	document, err := json.Marshal(shown)
	if err != nil {
		return fmt.Errorf("write actor: %w", err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.byPath["/users/"+person.Name] = document
	return nil
}

// Publish shows a document, such as a note, under its address.
func (c *Community) Publish(address string, document []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byPath[strings.TrimPrefix(address, c.Origin)] = document
}

// Stranger returns a person whom the community knows besides Persons: there is one for every number.
func (c *Community) Stranger(number int) Person {
	name := fmt.Sprintf("stranger%d", number)
	return Person{Name: name, ID: c.Origin + "/users/" + name, Key: c.Persons[number%len(c.Persons)].Key}
}

// strangerOf finds the stranger with a name.
func (c *Community) strangerOf(name string) (Person, bool) {
	number, err := strconv.Atoi(strings.TrimPrefix(name, "stranger"))
	if err != nil || !strings.HasPrefix(name, "stranger") || number < 0 {
		return Person{}, false
	}
	return c.Stranger(number), true
}

// Requests says how often a method and path, written "GET /users/person0", was asked for.
func (c *Community) Requests(methodAndPath string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests[methodAndPath]
}

// Connections says how often anyone connected.
func (c *Community) Connections() int64 { return c.connections.Load() }

// Host is the community's host and port.
func (c *Community) Host() string { return strings.TrimPrefix(c.Origin, "http://") }

// Away lets the community answer 503 to all that is sent to it, or ends that.
func (c *Community) Away(away bool) { c.away.Store(away) }

func (c *Community) receive(writer http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(io.LimitReader(request.Body, 1<<20))
	if err != nil {
		http.Error(writer, "unreadable", http.StatusBadRequest)
		return
	}

	if c.away.Load() {
		http.Error(writer, "away", http.StatusServiceUnavailable)
		return
	}

	arrival, err := parseArrival(body)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}

	arrival.Path, arrival.Header = request.URL.Path, request.Header
	c.arrived(arrival)
	writer.WriteHeader(http.StatusAccepted)
}

func parseArrival(body []byte) (Arrival, error) {
	var activity struct {
		ID     string          `json:"id"`
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}

	if err := json.Unmarshal(body, &activity); err != nil {
		return Arrival{}, fmt.Errorf("parse activity: %w", err)
	}

	arrival := Arrival{Type: activity.Type, ID: activity.ID, At: time.Now(), Body: body}
	var object struct {
		ID        string `json:"id"`
		InReplyTo string `json:"inReplyTo"`
	}
	if json.Unmarshal(activity.Object, &object) == nil && object.ID != "" {
		arrival.ID, arrival.InReplyTo = object.ID, object.InReplyTo
	}

	return arrival, nil
}

func (c *Community) actor(writer http.ResponseWriter, request *http.Request) {
	c.mu.Lock()
	document, found := c.byPath[request.URL.Path]
	c.mu.Unlock()
	if stranger, known := c.strangerOf(strings.TrimPrefix(request.URL.Path, "/users/")); known {
		document, _ = json.Marshal(stranger.Document()) // strings can always be written
		found = true
	}
	if !found {
		http.NotFound(writer, request)
		return
	}

	writer.Header().Set("Content-Type", "application/activity+json")
	_, _ = writer.Write(document)
}

func (c *Community) webfinger(writer http.ResponseWriter, request *http.Request) {
	resource := request.URL.Query().Get("resource")
	name, _, _ := strings.Cut(strings.TrimPrefix(resource, "acct:"), "@")
	if strings.HasPrefix(resource, c.Origin) {
		name = strings.TrimPrefix(resource, c.Origin+"/users/")
	}

	_, stranger := c.strangerOf(name)
	if _, found := c.byPath["/users/"+name]; !found && !stranger {
		http.NotFound(writer, request)
		return
	}

	writer.Header().Set("Content-Type", "application/jrd+json")
	_ = json.NewEncoder(writer).Encode(map[string]any{
		"subject": "acct:" + name + "@" + strings.TrimPrefix(c.Origin, "http://"),
		"links":   []map[string]string{{"rel": "self", "type": "application/activity+json", "href": c.Origin + "/users/" + name}},
	})
}

// Close stops the community.
func (c *Community) Close() { _ = c.server.Close() }
