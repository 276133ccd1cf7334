package inspector

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/patchlog-dev/patchlog/store"
)

// rendering is what the page of a session depends on, but for the values that it shares with others.
type rendering struct {
	key      store.Key
	creation string
	last     uint64 // the newest record
	edition  uint64 // what was erased before it was made shows as blank
	query    string
	write    bool
	erase    bool
}

const (
	// So long is a page good for others who ask for the same: they follow the session.
	renderedFor = time.Second

	// So many pages are kept meanwhile.
	mostRendered = 16
)

// rendered keeps the pages of the last second, and has each made once, however many ask for it.
type rendered struct {
	mu    sync.Mutex
	pages map[rendering]*renderedPage
}

type renderedPage struct {
	done  chan struct{} // closed when it is made
	until time.Time
	text  []byte
	err   error
}

// page returns a page, which it has made if nobody else does.
func (c *rendered) page(ctx context.Context, of rendering, make func() ([]byte, error)) ([]byte, error) {
	for {
		p, own := c.claim(of)
		if own {
			p.text, p.err = nil, errAbandoned // if make panics
			func() {
				defer close(p.done)
				p.text, p.err = make()
				p.until = time.Now().Add(renderedFor)
			}()
			if p.err != nil {
				c.drop(of, p)
			}
			return p.text, p.err
		}
		select {
		case <-p.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		// Whoever made it may have left before it was done.
		if p.err == nil || !errors.Is(p.err, context.Canceled) && !errors.Is(p.err, context.DeadlineExceeded) && !errors.Is(p.err, errAbandoned) {
			return p.text, p.err
		}
	}
}

var errAbandoned = errors.New("abandoned")

// claim returns the page that there is or that somebody makes, or one that the caller must make.
func (c *rendered) claim(of rendering) (p *renderedPage, own bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, p := range c.pages {
		select {
		case <-p.done:
			if p.err != nil || time.Now().After(p.until) || len(c.pages) >= mostRendered && other != of {
				delete(c.pages, other)
			}
		default:
		}
	}
	if p := c.pages[of]; p != nil {
		return p, false
	}
	if c.pages == nil {
		c.pages = map[rendering]*renderedPage{}
	}
	p = &renderedPage{done: make(chan struct{})}
	c.pages[of] = p
	return p, true
}

func (c *rendered) drop(of rendering, p *renderedPage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pages[of] == p {
		delete(c.pages, of)
	}
}
