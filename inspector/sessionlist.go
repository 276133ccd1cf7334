package inspector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

// listing is what the page of all sessions keeps: the list, about 300 bytes a session, and figures
// of sessions whose logs were read, as many as [Options.CacheBytes] has room for.
type listing struct {
	reading turn // the list
	list    *sessionList

	measuring turn // a session
	mu        sync.Mutex
	figures   map[store.Key]*measured
	bytes     int64 // of the figures
	limit     int64
}

func newListing(limit int64) listing {
	return listing{reading: make(turn, 1), measuring: make(turn, 1), figures: map[store.Key]*measured{}, limit: max(limit, 0)}
}

// turn is what one has at a time.
type turn chan struct{}

func (t turn) take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) give() { <-t }

// sessionList is the sessions that there were at a time, in the order of their keys. It is not
// changed.
type sessionList struct {
	sessions []listed
	read     time.Time
	until    time.Time // so long it is shown
}

// listed is a session in the list.
type listed struct {
	store.Info
	problem string // what is wrong, if it is damaged: then the key alone is known, or not even that
}

// A list is shown for a second, or, if reading it takes long, for so many times as long: so
// reading it over and over takes a twentieth of the time of whoever does.
const (
	listAge      = time.Second
	listAgeTimes = 20
)

// sessions returns the list, and reads it if the one at hand is old. One request at a time reads;
// others wait for what it finds.
func (i *Inspector) sessions(ctx context.Context) (*sessionList, error) {
	l := &i.listing
	if err := l.reading.take(ctx); err != nil {
		return nil, err
	}
	defer l.reading.give()
	begun := time.Now()
	list := &sessionList{read: begun}
	if old := l.list; old != nil {
		if begun.Before(old.until) {
			return old, nil
		}
		list.sessions = make([]listed, 0, len(old.sessions)+len(old.sessions)/16)
	}
	for info, err := range i.store.List(ctx, store.ListOptions{}) {
		switch {
		case errors.Is(err, store.ErrCorrupt): // the others are still worth a listing
			list.sessions = append(list.sessions, listed{info, problemText(info.Key, err)})
		case err != nil:
			return nil, err
		default:
			list.sessions = append(list.sessions, listed{Info: info})
		}
	}
	list.until = time.Now().Add(max(listAge, listAgeTimes*time.Since(begun)))
	if l.limit > 0 {
		l.list = list
		l.keepOnly(list)
	}
	return list, nil
}

// problemText says what is wrong with a session, beside its name.
func problemText(key store.Key, err error) string {
	text := err.Error()
	if corrupt := (*store.CorruptError)(nil); errors.As(err, &corrupt) {
		text = fmt.Sprintf("record %d: %v", corrupt.Seq, corrupt.Err)
	}
	return present.PrintableUpTo(strings.TrimPrefix(text, fmt.Sprintf("session %s: ", key)), 300)
}

// known returns the figures of a session at its last record, as the list has it, or nil.
func (l *listing) known(s *listed) *measured {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.figures[s.Key]
	if m == nil || m.creation != s.Creation || m.seq != s.Seq {
		return nil
	}
	return m
}

// earlier returns the newest figures of a session that are kept, or nil.
func (l *listing) earlier(key store.Key) *measured {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.figures[key]
}

// keep keeps figures, in place of any others if there is no room.
func (l *listing) keep(key store.Key, m *measured) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(key)
	for other := range l.figures {
		if l.bytes+m.footprint(key) <= l.limit {
			break
		}
		l.drop(other)
	}
	if size := m.footprint(key); l.bytes+size <= l.limit {
		l.figures[key] = m
		l.bytes += size
	}
}

func (l *listing) drop(key store.Key) {
	if m, ok := l.figures[key]; ok {
		l.bytes -= m.footprint(key)
		delete(l.figures, key)
	}
}

// full reports whether keeping more figures would cost others.
func (l *listing) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes+largestFootprint > l.limit
}

// keepOnly lets go of figures of sessions that are not there any more, when room gets scarce.
func (l *listing) keepOnly(list *sessionList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes <= l.limit/2 {
		return
	}
	there := map[store.Key]*measured{}
	l.bytes = 0
	for n := range list.sessions {
		key := list.sessions[n].Key
		if m := l.figures[key]; m != nil {
			there[key] = m
			l.bytes += m.footprint(key)
		}
	}
	l.figures = there
}
