package config

import (
	"cmp"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const prefix = "INBOX_"

// foreign are variables with our prefix that are not settings: the path of the file, what inbox bridge reads, what our own tests use, and what
// Kubernetes sets in every container beside a service that is called "inbox".
var foreign = regexp.MustCompile(`^INBOX_(CONFIG$|SERVER$|TOKEN$|TEST_|PORT$|PORT_[0-9]|SERVICE_(HOST|PORT))`)

type variable struct{ name, value string }

// readEnvironment puts INBOX_… variables into the settings. An empty variable counts as not set.
func readEnvironment(environ []string, settings *Config, found *problems) {
	for _, v := range ours(environ) {
		target := find(reflect.ValueOf(settings).Elem(), "", strings.TrimPrefix(v.name, prefix))
		switch {
		case target.problem != "":
			found.found = append(found.found, &Problem{Place: v.name, Message: target.problem})
		case !target.field.IsValid():
			found.found = append(found.found, &Problem{Place: v.name, Message: "unknown setting", Remedy: similarVariable(v.name)})
		default:
			found.origins[target.key] = v.name
			if err := setField(target.field, v.value, true); err != nil {
				found.add(target.key, "wrong kind of value", strings.ReplaceAll(err.Error(), `"`, ""))
			}
		}
	}
}

// ours returns our variables in an order in which agents are numbered upwards.
func ours(environ []string) []variable {
	var list []variable
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, prefix) && value != "" && !foreign.MatchString(name) {
			list = append(list, variable{name, value})
		}
	}
	slices.SortFunc(list, func(a, b variable) int {
		return cmp.Or(slices.Compare(numbers(a.name), numbers(b.name)), cmp.Compare(a.name, b.name))
	})
	return list
}

var digits = regexp.MustCompile(`_([0-9]{1,4})_`)

// numbers returns the numbers of the tables in a name: that of the agent, then that of its rule.
func numbers(name string) []int {
	var list []int
	for _, match := range digits.FindAllStringSubmatch(name, -1) {
		value, _ := strconv.Atoi(match[1]) // four digits at most
		list = append(list, value)
	}
	return list
}

// target is where a variable goes.
type target struct {
	field   reflect.Value
	key     string
	problem string
}

// find walks the tables along the words of a variable's name. Lists of tables are numbered from 0 and grow by one.
func find(table reflect.Value, path, name string) target {
	for key, field := range fieldsOf(table) {
		upper := strings.ToUpper(key)
		rest, inside := strings.CutPrefix(name, upper+"_")
		switch {
		case inside && isTable(field.Type()):
			if deeper := find(field, join(path, key), rest); deeper.field.IsValid() || deeper.problem != "" {
				return deeper
			}
		case inside && isTableList(field.Type()):
			return findInList(field, join(path, key), rest)
		case name == upper && (isValue(field.Type()) || isShort(field)):
			return target{field: field, key: join(path, key)}
		}
	}
	return target{}
}

var variableName = strings.NewReplacer("[", "_", "]", "", ".", "_")

func findInList(list reflect.Value, path, name string) target {
	text, rest, _ := strings.Cut(name, "_")
	index, err := strconv.Atoi(text)
	if err != nil || index < 0 {
		return target{problem: "write the number of the table after " + variableName.Replace(strings.ToUpper(path)) + "_, from 0"}
	}
	if index > list.Len() {
		return target{problem: "tables are numbered from 0 without gaps: number " + strconv.Itoa(list.Len()) + " is missing"}
	}
	if index == list.Len() {
		fresh := reflect.New(list.Type().Elem()).Elem()
		setDefaults(fresh)
		if !find(fresh, "", rest).field.IsValid() {
			return target{}
		}
		list.Set(reflect.Append(list, fresh))
	}
	return find(list.Index(index), element(path, index), rest)
}

func similarVariable(name string) string {
	var names []string
	for _, entry := range Entries() {
		names = append(names, entry.Variable)
	}
	if best := nearest(name, names); best != "" {
		return "did you mean " + best + "?"
	}
	return "docs/configuration.md lists all"
}
