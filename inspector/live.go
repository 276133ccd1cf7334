package inspector

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/patchlog-dev/patchlog/store"
)

const (
	// So often at most a page is told that the log has grown, whatever is logged: reading costs
	// the writers next to nothing then.
	liveInterval = 250 * time.Millisecond

	// So often a page is told that nothing has happened, so that what stands between does not
	// close the connection, and one that is dead shows.
	liveBeat = 20 * time.Second
)

// live tells a page, as server-sent events, up to which record the session's log has grown: events
// "records", whose data and id are a seq. A page that lost the connection says with the id where it
// was. When the session is deleted, or its log is another one, "gone" comes, and nothing more.
func (i *Inspector) live(w http.ResponseWriter, r *http.Request) error {
	key, err := i.key(r, Read)
	if err != nil {
		return err
	}
	after, _, err := number(r, "after")
	if err != nil {
		return err
	}
	if seen, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 63); err == nil {
		after = seen
	}
	info, err := i.store.Info(r.Context(), key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	s := stream{w: w, control: http.NewResponseController(w)}
	s.control.SetWriteDeadline(time.Time{}) // a server's limit is for pages; this one ends when its reader leaves
	if err != nil || info.Creation != r.FormValue("creation") {
		s.event("gone", 0)
		return nil
	}
	if s.beat() == nil { // so that the page knows that it is connected
		s.follow(r.Context(), i, r, key, after)
	}
	return nil
}

// stream writes server-sent events. An error of it means that the reader has left.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (s stream) event(name string, seq uint64) error {
	if _, err := fmt.Fprintf(s.w, "event: %s\nid: %d\ndata: %d\n\n", name, seq, seq); err != nil {
		return err
	}
	return s.control.Flush()
}

func (s stream) beat() error {
	if _, err := fmt.Fprint(s.w, ":\n\n"); err != nil {
		return err
	}
	return s.control.Flush()
}

// follow tells of each record after one, until the reader leaves or the session is gone. Records
// that come while it pauses are told of as one.
func (s stream) follow(ctx context.Context, i *Inspector, r *http.Request, key store.Key, after uint64) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	grown := make(chan uint64)
	failed := make(chan error, 1)
	go func() {
		told := after
		for record, err := range i.store.Watch(ctx, key, after+1) {
			if err != nil {
				if passing(err) && ctx.Err() == nil {
					continue // Watch tries again
				}
				failed <- err
				return
			}
			if record.Seq <= told {
				continue
			}
			// All that is there by now is told of at once, and skipped when it comes.
			if info, err := i.store.Info(ctx, key); err == nil {
				record.Seq = max(record.Seq, info.Seq)
			}
			told = record.Seq
			select {
			case grown <- told:
			case <-ctx.Done():
			}
			select {
			case <-time.After(liveInterval):
			case <-ctx.Done():
			}
		}
		failed <- ctx.Err()
	}()
	beat := time.NewTicker(liveBeat)
	defer beat.Stop()
	for {
		var err error
		select {
		case seq := <-grown:
			if !i.may(r, key, Read) {
				return
			}
			err = s.event("records", seq)
		case <-beat.C:
			err = s.beat()
		case err = <-failed:
			if errors.Is(err, store.ErrNotFound) {
				s.event("gone", 0)
			} else if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrClosed) {
				i.opts.Logger.Error("inspector: following a session", "key", key.String(), "err", err)
			}
			return
		}
		if err != nil {
			return
		}
	}
}

// passing reports whether a failure to watch a session may pass.
func passing(err error) bool {
	for _, lasting := range []error{store.ErrNotFound, store.ErrCorrupt, store.ErrClosed, store.ErrInvalid, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, lasting) {
			return false
		}
	}
	return true
}
