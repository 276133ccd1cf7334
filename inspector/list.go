package inspector

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/patchlog-dev/patchlog/store"
)

// list answers with the sessions that the request may read, one JSON object a line: their keys and counts. With [Inspector.export] it
// lets a program read sessions that another one has open, as the command does with --db http://….
func (i *Inspector) list(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "application/jsonl")
	lines := json.NewEncoder(w)
	for info, err := range i.store.List(r.Context(), store.ListOptions{}) {
		if errors.Is(err, store.ErrCorrupt) {
			continue // a damaged session keeps no other from being read
		}
		if err != nil {
			return err
		}
		if !i.may(r, info.Key, Read) {
			continue
		}
		if lines.Encode(info) != nil {
			return nil // the client has disconnected
		}
	}
	return nil
}
