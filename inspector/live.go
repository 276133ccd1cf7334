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
	liveInterval = 100 * time.Millisecond

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
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Time{}) // a server's limits are for pages; this one ends when its reader leaves, or reads no more
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
				i.opts.Logger.Error("inspector: following a session", "key", key.String(), "err", err)
			}
			return nil
		case !i.may(r, key, Read):
			return nil
		case info.Seq > after:
			after = info.Seq
			err = send("event: records\nid: %d\ndata: %[1]d\n\n", after)
		default:
			err = send(":\n\n") // so that the page knows that it is connected
		}
		if err != nil {
			return nil // the reader has left
		}
		select {
		case <-time.After(liveInterval):
		case <-ctx.Done():
		}
		wait, cancel := context.WithTimeout(ctx, liveBeat)
		for range i.store.Watch(wait, key, after+1) {
			break // a record, or an error, which Info tells as well
		}
		cancel()
	}
	return nil
}
