package inspector

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/patchlog-dev/patchlog/store"
)

// list answers with one line of JSON per session that the request may read. A line has the session's key and
// counts. The command with --db http://… uses list and [Inspector.export] to read a store that another process
// has open.
func (i *Inspector) list(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "application/jsonl")
	lines := json.NewEncoder(w)
	for info, err := range i.store.List(r.Context(), store.ListOptions{}) {
		if errors.Is(err, store.ErrCorrupt) {
			continue // skip damaged sessions
		}
		if err != nil {
			return err
		}
		if !i.isAllowed(r, info.Key, Read) {
			continue
		}
		if lines.Encode(info) != nil {
			return nil // the client has disconnected
		}
	}
	return nil
}
