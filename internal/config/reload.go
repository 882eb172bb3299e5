package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// changeable are the keys that a running server takes over from its file, with all keys below them, and unchangeable those that it
// reads at its start only. Every key is in exactly one of them by its longest entry.
var (
	changeable = []string{
		"a2a.default_agent", "a2a.issuers", "admin.oidc.admins", "admin.oidc.readers", "admin.oidc.workers", "admin.session_idle", "agents", "chat.hold_guests", "connectors", "limits", "log.level",
		"mail.answer_lists", "mail.reply_all", "mail.reply_to", "operator.notify", "operator.notify_digest", "operator.notify_kinds", "operator.notify_secret",
		"operator.notify_secret_file", "operator.notify_zone", "peers", "retention", "targets", "trust",
	}
	unchangeable = []string{
		"a2a", "acme", "admin", "apex", "blob", "blob_url", "bridges", "chat", "data_dir", "database", "database_password_file", "database_url", "dns", "domain", "domains", "drain", "federation", "http",
		"limits.backlog", "limits.free_disk", "limits.guest_free_disk", "limits.http", "limits.mail_pace", "limits.mail_sender",
		"limits.mail_thread", "limits.same_messages", "limits.upload_bytes", "log", "logins", "mail", "operator", "payments", "public_url", "queue", "secret_key_file",
		"shutdown_grace", "smtp", "telemetry",
	}
)

// Difference says in which keys two configurations differ, sorted. Tables of a list have their name in brackets, such as
// agents[helper].webhook.url; a table that only one of them has is one key.
type Difference struct {
	Changed               []string // what a running server takes over
	UnchangedUntilRestart []string // what it keeps as it was at its start
}

// Changeable reports whether a running server takes a key over, such as "agents.access"; known is false when no list has the key.
func Changeable(key string) (is, known bool) {
	longest := func(list []string) int {
		most := 0
		for _, one := range list {
			if key == one || strings.HasPrefix(key, one+".") || strings.HasPrefix(key, one+"[") {
				most = max(most, len(one))
			}
		}
		return most
	}
	yes, no := longest(changeable), longest(unchangeable)
	return yes > no, yes != no
}

// ReloadKeys lists the changeable keys and those that need a restart, each standing for all keys below it that the other list does
// not name; for the documentation.
func ReloadKeys() (changes, needsRestart []string) {
	return slices.Clone(changeable), slices.Clone(unchangeable)
}

// Reload reads the file and the variables of c again and returns the settings with which a server goes on that runs with c: the
// changeable keys of what was read, and the rest of c. It does not change c. The error joins one *Problem for everything that is wrong
// with the file, or with the mixture: what it says may need a key that does not hold before a restart.
func (c *Config) Reload() (*Config, Difference, error) {
	if c.File == "" && !c.Development && c.Environment == nil {
		return nil, Difference{}, errors.New("the settings of this server come from a program and not from a file: there is nothing to read again")
	}

	read, found, err := loadWith(c.File, c.Environment)
	if err != nil {
		return nil, Difference{}, err
	}

	difference := Compare(c, read)
	if read.Federation.AllowPrivate != c.Federation.AllowPrivate && !reflect.DeepEqual(read.Limits, c.Limits) {
		// Limits that no one wrote follow from that key. Those of a closed network must not count before the key does.
		read.Limits = c.Limits
		difference = Compare(c, read)
		difference.UnchangedUntilRestart = append(difference.UnchangedUntilRestart, "limits")
	}
	mixed := c.with(read)
	for _, running := range c.Hosted {
		one := running
		if again, there := read.WithDomain(running.Domain); there {
			again.Limits = read.Limits
			one = running.with(again)
		}
		mixed.Hosted = append(mixed.Hosted, one)
	}

	for _, one := range append([]*Config{mixed}, mixed.Hosted...) {
		own := found.under(one)
		one.validate(own)
		found.take(own)
	}
	if err := found.err(); err != nil {
		needed := strings.Join(difference.UnchangedUntilRestart, ", ")
		return nil, Difference{}, fmt.Errorf("%w\nthe file is good for a restart: these keys of it need one: %s", err, needed)
	}
	return mixed, difference, nil
}

// with is c with the changeable keys of what was read, of the domain alone.
func (c *Config) with(read *Config) *Config {
	mixed := *c
	mixed.Hosted = nil
	takeOver(reflect.ValueOf(&mixed).Elem(), reflect.ValueOf(read).Elem(), "")
	return &mixed
}

// takeOver copies the changeable keys. Values and lists are replaced, never written into.
func takeOver(into, from reflect.Value, path string) {
	fields := fieldsOf(from)

	for key, field := range fieldsOf(into) {
		full := join(path, key)
		if field.Kind() == reflect.Struct && isTable(field.Type()) {
			takeOver(field, fields[key], full)
			continue
		}
		if is, _ := Changeable(full); is {
			field.Set(fields[key])
		}
	}
}

// Compare says in which keys two configurations differ.
func Compare(running, read *Config) Difference {
	var keys []string
	compareTables(reflect.ValueOf(running).Elem(), reflect.ValueOf(read).Elem(), "", &keys)
	for _, hosted := range running.Hosted {
		if again, there := read.WithDomain(hosted.Domain); there {
			keys = append(keys, hosted.compareAgents(again)...)
		}
	}

	var difference Difference
	for _, key := range keys {
		if is, _ := Changeable(key); is {
			difference.Changed = append(difference.Changed, key)
		} else {
			difference.UnchangedUntilRestart = append(difference.UnchangedUntilRestart, key)
		}
	}

	slices.Sort(difference.Changed)
	slices.Sort(difference.UnchangedUntilRestart)
	return difference
}

// compareAgents says in which keys the agents of a further domain differ. They have their addresses in brackets: another domain may have
// an agent of the same name.
func (c *Config) compareAgents(read *Config) (keys []string) {
	compareLists(reflect.ValueOf(c.Agents), reflect.ValueOf(read.Agents), "agents", &keys)
	for i, key := range keys {
		keys[i] = strings.Replace(key, "]", "@"+c.Domain+"]", 1)
	}
	return keys
}

func compareTables(left, right reflect.Value, path string, keys *[]string) {
	others := fieldsOf(right)

	for key, field := range fieldsOf(left) {
		other, full := others[key], join(path, key)
		switch {
		case isTable(field.Type()):
			compareTables(field, other, full, keys)
		case isTableList(field.Type()):
			compareLists(field, other, full, keys)
		case !same(field, other):
			*keys = append(*keys, full)
		}
	}
}

// compareLists compares the tables of the same name; lists whose tables have no names are one key.
func compareLists(left, right reflect.Value, path string, keys *[]string) {
	lefts, named := byName(left)
	rights, alsoNamed := byName(right)
	if !named || !alsoNamed {
		if !same(left, right) {
			*keys = append(*keys, path)
		}
		return
	}

	for name, table := range lefts {
		if other, there := rights[name]; there {
			compareTables(table, other, path+"["+name+"]", keys)
		} else {
			*keys = append(*keys, path+"["+name+"]")
		}
	}
	for name := range rights {
		if _, there := lefts[name]; !there {
			*keys = append(*keys, path+"["+name+"]")
		}
	}

	if len(lefts) == len(rights) && !slices.Equal(namesOf(left), namesOf(right)) && sameNames(lefts, rights) {
		*keys = append(*keys, path) // the same tables in another order, which counts: the first agent is the default
	}
}

// byName returns the tables of a list by what names them; false when something names none or two of them.
func byName(list reflect.Value) (map[string]reflect.Value, bool) {
	tables := make(map[string]reflect.Value, list.Len())
	for i, name := range namesOf(list) {
		if _, twice := tables[name]; name == "" || twice {
			return nil, false
		}
		tables[name] = list.Index(i)
	}
	return tables, true
}

// namesOf returns what names the tables of a list, in their order; "" = nothing does.
func namesOf(list reflect.Value) []string {
	names := make([]string, list.Len())
	for i := range names {
		for _, word := range []string{"Name", "ID"} {
			if field := list.Index(i).FieldByName(word); field.IsValid() && field.Kind() == reflect.String {
				names[i] = field.String()
				break
			}
		}
	}
	return names
}

func sameNames(left, right map[string]reflect.Value) bool {
	for name := range left {
		if _, there := right[name]; !there {
			return false
		}
	}
	return true
}

// same compares two values. An empty list is none.
func same(left, right reflect.Value) bool {
	if left.Kind() == reflect.Slice && left.Len() == 0 && right.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(left.Interface(), right.Interface())
}
