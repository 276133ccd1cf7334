package memory

import (
	"sync"
	"time"
)

// leases are leases as [backend.Leaser] has them. The zero value has none. It is safe for use by any number of
// goroutines.
type leases struct {
	mu   sync.Mutex
	held map[string]lease
}

type lease struct {
	owner string
	until time.Time
}

// take is Lease of a [backend.Leaser].
func (l *leases) take(name, owner string, ttl time.Duration) (held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if other, ok := l.held[name]; ok && other.owner != owner && now.Before(other.until) {
		return false
	}
	switch {
	case ttl < 0:
		return true
	case ttl == 0:
		delete(l.held, name)
		return false
	}
	if l.held == nil {
		l.held = map[string]lease{}
	}
	l.held[name] = lease{owner, now.Add(ttl)}
	for name, other := range l.held { // what has passed is not kept
		if !now.Before(other.until) {
			delete(l.held, name)
		}
	}
	return true
}
