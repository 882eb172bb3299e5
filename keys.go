package inbox

import (
	"inbox/agents/files"
	"inbox/engine/demand"
	"inbox/internal/redact"
)

// newKeys makes what hides the addresses of this server that work for everyone who has them: those of all its domains, because a person
// writes to agents of several. It is called with the first message, when all channels and domains are there.
func (e *engine) newKeys() *redact.Redactor {
	keys := append(demand.Keys(), files.Keys()...)
	for module := range e.channels.All() {
		keys = append(keys, module.Keys...)
	}

	first := e
	if e.top != nil {
		first = e.top
	}

	var hosts []string
	for _, one := range append([]*engine{first}, first.further...) {
		hosts = append(hosts, one.config.PublicAuthority(), one.config.Domain, one.config.SMTP.Hostname)
	}
	return redact.New(hosts, keys...)
}
