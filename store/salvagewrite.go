package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/salvage"
)

// write writes what was found of a session.
func (v *salvaging) write(ctx context.Context, l *salvage.Log) error {
	w := salvagedWriter{salvaging: v, out: SalvagedSession{
		EndUnknown: !l.Ended, MaybeDeleted: l.Doubt, Nameless: !l.Named,
	}}
	if l.Named {
		w.out.Key, _ = keyOf(l.Name) // it is one
	}
	if l.Entry != nil {
		w.meta = v.meta(l)
	}
	if w.out.Stateless = w.meta == nil; w.out.Stateless {
		var err error
		if w.meta, err = encodeMeta(meta{created: v.store.opts.Now().UTC()}); err != nil {
			return err
		}
	}
	switch {
	case !l.Named:
		w.out.Key = Key{"salvaged", "unknown", fmt.Sprintf("session-%d", l.Number)}
	case l.Doubt:
		w.mark = "~maybe-deleted"
	case w.out.Stateless:
		w.mark = "~without-state"
	}
	if !w.out.Stateless && !l.Doubt { // it is there, even if nothing is left in it
		if err := w.begin(ctx, 1, true, false); err != nil {
			return err
		}
	}
	next := uint64(1) // the seq that follows
	for _, r := range l.Records {
		rec, form, ok := v.Read(l, r)
		if !ok {
			continue
		}
		doubtful := l.InDoubt(r.Seq)
		goesOn := w.part != nil && r.Seq == next && doubtful == w.part.Doubtful
		log := goesOn && w.part.Log || r.Seq == 1 && !doubtful
		texts := 0
		if !log {
			place := uint64(1)
			if goesOn {
				place = w.seq + 1
			}
			if rec.Patch != nil {
				texts = 1
			}
			var err error
			if rec, form, err = withoutView(rec, place); err != nil {
				continue
			}
		}
		if r.Seq > next {
			w.out.Lost = append(w.out.Lost, patch.Span{From: next, To: r.Seq - 1})
		}
		if !goesOn {
			if err := w.end(ctx); err != nil {
				return err
			}
			if err := w.begin(ctx, r.Seq, log, doubtful); err != nil {
				return err
			}
		}
		w.part.Texts += texts
		if err := w.add(ctx, rec, form); err != nil {
			return err
		}
		next = r.Seq + 1
	}
	for _, r := range l.Spare {
		rec, _, ok := v.Read(l, r)
		if !ok {
			continue
		}
		text := rec.Patch != nil
		rec, form, err := withoutView(rec, 1)
		if err != nil {
			continue
		}
		if err := w.end(ctx); err != nil {
			return err
		}
		if err := w.begin(ctx, r.Seq, false, true); err != nil {
			return err
		}
		if text {
			w.part.Texts = 1
		}
		if err := w.add(ctx, rec, form); err != nil {
			return err
		}
	}
	if next <= l.Last && l.Last < math.MaxUint64 {
		w.out.Lost = append(w.out.Lost, patch.Span{From: next, To: l.Last})
	}
	if err := w.end(ctx); err != nil {
		return err
	}
	v.out.Records += w.out.Records
	v.out.Sessions = append(v.out.Sessions, w.out)
	return nil
}

// meta returns what is stored with a session, with null for what was erased of its initial state, or nil if that is
// lost.
func (v *salvaging) meta(l *salvage.Log) []byte {
	data, err := v.Meta(l)
	if err != nil {
		return nil
	}
	m, err := decodeMeta(data)
	if err != nil {
		return nil
	}
	erased, err := erasedMeta(m, l.Receipts)
	switch {
	case err != nil:
		return nil
	case erased != nil:
		return erased
	}
	return data
}

// salvagedWriter writes the parts of a session, one after another.
type salvagedWriter struct {
	*salvaging
	out  SalvagedSession
	mark string // of the session's key
	meta []byte // of its first part

	part   *SalvagedPart // nil before the first one
	seq    uint64        // of the part's last record
	staged staged
	batch  []backend.Record
	size   int
	groups map[string]bool
}

// begin begins a part, with the record that had a seq.
func (w *salvagedWriter) begin(ctx context.Context, seq uint64, log, doubtful bool) error {
	mark := w.mark
	if !log {
		mark += fmt.Sprintf("~from-%d", seq)
	}
	key, err := w.free(ctx, w.out.Key, mark)
	if err != nil {
		return err
	}
	w.part = &SalvagedPart{Key: key, Span: patch.Span{From: seq, To: seq - 1}, Log: log, Doubtful: doubtful}
	w.seq, w.groups = 0, map[string]bool{}
	w.staged = staged{store: w.store, key: w.part.Key, creation: uuid.NewString()}
	return nil
}

// add adds a record to the part.
func (w *salvagedWriter) add(ctx context.Context, rec patch.Record, form []byte) error {
	w.seq++
	raw := backend.Record{Seq: w.seq, Sum: recordform.Checksum(form), Data: form}
	for id := range rec.IDs() {
		raw.IDs = append(raw.IDs, id)
	}
	if id := groupOf(rec); id != "" && !w.groups[id] {
		w.groups[id] = true
		raw.IDs = append(raw.IDs, id)
	}
	w.batch, w.size = append(w.batch, raw), w.size+len(form)
	w.part.To++
	w.out.Records++
	if len(w.batch) < pageRecords && w.size < pageBytes {
		return nil
	}
	return w.stage(ctx)
}

func (w *salvagedWriter) stage(ctx context.Context) error {
	if err := w.staged.add(ctx, w.batch); err != nil {
		return err
	}
	w.batch, w.size = nil, 0
	return nil
}

// end has the part be there.
func (w *salvagedWriter) end(ctx context.Context) (err error) {
	if w.part == nil {
		return nil
	}
	defer w.staged.drop(ctx) // after the commit it does nothing
	if w.staged.last > 0 && len(w.batch) > 0 {
		// An id that is there twice is refused at the end of a log, and not within.
		if err := w.stage(ctx); err != nil {
			return err
		}
	}
	data := w.meta
	if !w.part.Log {
		created := w.store.opts.Now()
		if m, err := decodeMeta(w.meta); err == nil {
			created = m.created
		}
		if data, err = encodeMeta(meta{created: created.UTC()}); err != nil {
			return err
		}
	}
	compress(w.batch)
	batch := w.staged.batch()
	batch.Meta, batch.Next, batch.Records = data, newToken(), w.batch
	err = w.store.backend.Append(ctx, w.part.Key.name(), batch)
	if errors.Is(err, backend.ErrUnknown) {
		err = w.store.findOut(ctx, w.part.Key, batch, err)
	}
	if err != nil {
		return fromBackend(w.part.Key, err)
	}
	w.out.Parts = append(w.out.Parts, *w.part)
	w.part, w.batch, w.size = nil, nil, 0
	return nil
}

// withoutView returns the record as it is kept at a place of a log of which the beginning is
// not known: a patch as an event that does nothing and has the patch's text.
func withoutView(rec patch.Record, place uint64) (patch.Record, []byte, error) {
	if rec.Patch != nil {
		e, err := salvagedPatch(rec, false)
		if err != nil { // it is nested too deeply to be put into something
			e, err = salvagedPatch(rec, true)
		}
		if err != nil {
			return rec, nil, err
		}
		rec = patch.Record{Event: e}
	}
	rec.Seq = place
	form, err := patch.AppendRecord(nil, rec)
	return rec, form, err
}

func salvagedPatch(rec patch.Record, quoted bool) (*patch.Event, error) {
	text, err := rec.MarshalJSON()
	if err != nil {
		return nil, err
	}
	type salvaged struct {
		Seq   uint64          `json:"seq"`
		Patch json.RawMessage `json:"patch,omitempty"`
		Text  string          `json:"text,omitempty"`
	}
	own := salvaged{Seq: rec.Seq, Patch: text}
	if quoted {
		own.Patch, own.Text = nil, string(text)
	}
	var event struct {
		ID        string    `json:"id"`
		Author    string    `json:"author,omitempty"`
		Timestamp time.Time `json:"timestamp,omitzero"`
		Metadata  struct {
			Patchlog struct {
				Salvaged salvaged `json:"salvaged"`
			} `json:"patchlog"`
		} `json:"customMetadata"`
	}
	event.ID, event.Author, event.Timestamp = rec.Patch.ID(), rec.Patch.Author(), rec.Patch.Timestamp()
	event.Metadata.Patchlog.Salvaged = own
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(event); err != nil {
		return nil, err
	}
	return patch.ParseEvent(bytes.TrimSpace(line.Bytes()))
}
