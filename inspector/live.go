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
	// liveInterval is the minimum time between two messages to a page. It bounds the cost that open pages add
	// to writers.
	liveInterval = 100 * time.Millisecond

	// keepAliveInterval is the interval of keep-alive messages. They keep proxies from closing the connection, and
	// reveal a dead connection.
	keepAliveInterval = 20 * time.Second
)

// live sends server-sent events to a page while the session's log grows. An event "records" has the last seq as
// data and as id. After a reconnect the browser sends the last id. If the session is deleted or created again,
// live sends "gone" and returns.
func (i *Inspector) live(w http.ResponseWriter, r *http.Request) error {
	key, err := i.authorizedKey(r, Read)
	if err != nil {
		return err
	}
	after, _, err := formNumber(r, "after")
	if err != nil {
		return err
	}
	if seen, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 63); err == nil {
		after = seen
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Time{}) // the server's read limit is for pages, not for streams
	send := func(format string, args ...any) error {
		control.SetWriteDeadline(time.Now().Add(pageTimeout))
		if _, err := fmt.Fprintf(w, format, args...); err != nil {
			return err
		}
		return control.Flush()
	}
	for ctx := r.Context(); ctx.Err() == nil; {
		info, err := i.store.Info(ctx, key)
		switch {
		case errors.Is(err, store.ErrNotFound), err == nil && info.Creation != r.FormValue("creation"):
			_ = send("event: gone\nid: 0\ndata: 0\n\n")
			return nil
		case err != nil:
			if ctx.Err() == nil && !errors.Is(err, store.ErrClosed) {
				i.opts.Logger.Error("inspector: live updates failed", "key", key.String(), "err", err)
			}
			return nil
		case !i.isAllowed(r, key, Read):
			return nil
		case info.Seq > after:
			after = info.Seq
			err = send("event: records\nid: %d\ndata: %[1]d\n\n", after)
		default:
			err = send(":\n\n") // a comment, which shows that the connection works
		}
		if err != nil {
			return nil // the client has disconnected
		}
		select {
		case <-time.After(liveInterval):
		case <-ctx.Done():
		}
		wait, cancel := context.WithTimeout(ctx, keepAliveInterval)
		for range i.store.Watch(wait, key, after+1) {
			break // a record, or an error that Info will return too
		}
		cancel()
	}
	return nil
}
