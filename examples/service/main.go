// Command service serves sessions over HTTP. The path /app/user/session names a session.
//
//	POST /{app}/{user}/{session}/events          append the event in the body
//	GET  /{app}/{user}/{session}                 return the visible log as JSON lines
//	POST /{app}/{user}/{session}/patches         log the patch in the body
//	POST /{app}/{user}/{session}/revert/{patch}  revert a patch
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

const maxBody = 1 << 20

// newHandler returns a handler for the sessions of a store. It does not authenticate clients, so add your own
// authentication.
func newHandler(db *store.Store) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /{app}/{user}/{session}/events", handleWrite(func(ctx context.Context, key store.Key, r *http.Request) (store.Committed, error) {
		e, err := parseBody(r, patch.ParseEvent)
		if err != nil {
			return store.Committed{}, err
		}
		if _, err := db.Create(ctx, key, nil, store.CreateOptions{}); err != nil && !errors.Is(err, store.ErrExists) {
			return store.Committed{}, err
		}
		return db.AppendEvents(ctx, key, []*patch.Event{e}, store.AppendOptions{})
	}))
	mux.Handle("POST /{app}/{user}/{session}/patches", handleWrite(func(ctx context.Context, key store.Key, r *http.Request) (store.Committed, error) {
		record, err := parseBody(r, patch.ParseRecord)
		if err != nil {
			return store.Committed{}, err
		}
		return db.ApplyPatch(ctx, key, []*patch.PatchEvent{record.Patch}, store.PatchOptions{}) // ApplyPatch rejects a nil patch
	}))
	mux.Handle("POST /{app}/{user}/{session}/revert/{patch}", handleWrite(func(ctx context.Context, key store.Key, r *http.Request) (store.Committed, error) {
		return db.Revert(ctx, key, r.PathValue("patch"), store.UndoOptions{})
	}))
	mux.HandleFunc("GET /{app}/{user}/{session}", func(w http.ResponseWriter, r *http.Request) {
		v, err := db.View(r.Context(), keyOf(r))
		if err != nil {
			writeError(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/jsonl")
		for _, e := range v.Events() {
			fmt.Fprintln(w, e)
		}
	})
	return mux
}

func keyOf(r *http.Request) store.Key {
	return store.Key{App: r.PathValue("app"), User: r.PathValue("user"), Session: r.PathValue("session")}
}

func parseBody[T any](r *http.Request, parse func([]byte) (T, error)) (T, error) {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err == nil && len(text) > maxBody {
		err = store.ErrTooLarge
	}
	if err != nil {
		var none T
		return none, err
	}
	return parse(text)
}

// writeResult is the response to a write.
type writeResult struct {
	Seq      uint64 `json:"seq"`
	ID       string `json:"id"`
	Visible  int    `json:"visible"`
	PatchSeq uint64 `json:"patchSeq"` // base for the next patch
}

// handleWrite returns a handler that performs a write and responds with its result.
func handleWrite(write func(ctx context.Context, key store.Key, r *http.Request) (store.Committed, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		done, err := write(r.Context(), keyOf(r), r)
		if err != nil {
			writeError(w, err)
			return
		}
		a := writeResult{Seq: done.View.Seq(), Visible: done.View.Len(), PatchSeq: done.View.PatchSeq()}
		if len(done.Records) > 0 {
			a.Seq, a.ID = done.Records[0].Seq, done.Records[0].ID()
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(a)
	})
}

func writeError(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	for _, known := range []struct {
		err    error
		status int
	}{
		{store.ErrNotFound, http.StatusNotFound},
		{store.ErrConflict, http.StatusConflict},
		{store.ErrDuplicateID, http.StatusConflict},
		{fold.ErrOrphanedCall, http.StatusUnprocessableEntity},
		{fold.ErrPinned, http.StatusUnprocessableEntity},
		{fold.ErrBlocked, http.StatusUnprocessableEntity},
		{store.ErrTooLarge, http.StatusRequestEntityTooLarge},
		{store.ErrInvalid, http.StatusBadRequest},
	} {
		if errors.Is(err, known.err) {
			status = known.status
			break
		}
	}
	http.Error(w, err.Error(), status)
}

func main() {
	db, err := store.Open("sessions.db", store.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	log.Print(http.ListenAndServe("localhost:8080", newHandler(db)))
}
