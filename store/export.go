package store

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
	"github.com/patchlog-dev/patchlog/store/internal/receipt"
)

// ExportOptions selects what to export. The zero value selects the whole log.
type ExportOptions struct {
	// Visible exports only the visible events, and receipts for the erased events among them. The file has no
	// header and no seqs.
	Visible bool

	// Redact, if not nil, replaces secrets with placeholders in all texts, including patches and the initial
	// state. The file then always has a header, which says that the file is redacted. An import of the file
	// creates a log with the same ids and the same order, but with placeholders.
	Redact *redact.Redactor
}

// Export writes the session to a writer in the text form: one JSON object on each line (see docs/FORMAT.md).
// [Store.Import] of a whole log that is not redacted gives an equal view. The session may be written to during the
// call. The export ends at the last record at the beginning of the call. If Export fails, the writer may have
// received a part of the session.
//
// Export fails with [ErrNotFound] if the session does not exist. The error matches [ErrConflict] if a database
// failover loses records of the log during the call, and [ErrCorrupt] if stored data is damaged. If the writer
// fails, Export returns the error of the writer.
func (s *Store) Export(ctx context.Context, key Key, out io.Writer, opts ExportOptions) error {
	if out == nil {
		return fmt.Errorf("%w: the writer is nil", ErrInvalid)
	}
	buf := bufio.NewWriterSize(out, 64<<10)
	record := func(r patch.Record) error {
		r, err := opts.Redact.Record(r)
		if err != nil {
			return fmt.Errorf("session %s: redact record %d: %w", key, r.Seq, err)
		}
		return patch.WriteRecord(buf, r)
	}
	if opts.Visible {
		session, err := s.Get(ctx, key)
		if err != nil {
			return err
		}
		if opts.Redact != nil {
			if err := patch.WriteHeader(buf, nil, opts.Redact.Names()...); err != nil {
				return err
			}
		}
		erased := map[string]patch.Erasure{} // key: the id of the receipt
		for i, e := range session.View.Events() {
			if err := record(patch.Record{Event: e}); err != nil {
				return err
			}
			addErased(erased, uint64(i)+1, e)
		}
		if err := s.exportReceipts(ctx, key, record, erased); err != nil {
			return err
		}
		return buf.Flush()
	}
	head, m, err := s.headAndMeta(ctx, key)
	if err != nil {
		return err
	}
	initial, err := opts.Redact.State(m.initial)
	if err != nil {
		return fmt.Errorf("session %s: redact the initial state: %w", key, err)
	}
	if err := patch.WriteHeader(buf, initial, opts.Redact.Names()...); err != nil {
		return err
	}
	for r, err := range s.records(ctx, key, head, 1, endOfLog) {
		if err == nil {
			err = record(r)
		}
		if err != nil {
			return err
		}
	}
	return buf.Flush()
}

// addErased adds an erased event to the receipt that the event names. In the file, the event has the given seq.
func addErased(by map[string]patch.Erasure, seq uint64, e *patch.Event) {
	if id, ok := e.ErasedBy(); ok {
		of := by[id]
		of.Seqs, of.ClosedAt = append(of.Seqs, patch.Span{From: seq, To: seq}), seq
		by[id] = of
	}
}

// exportReceipts writes the receipts in erased. Each receipt covers only the events that were written.
func (s *Store) exportReceipts(ctx context.Context, key Key, write func(patch.Record) error, erased map[string]patch.Erasure) error {
	if len(erased) == 0 {
		return nil
	}
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return err
		}
		is, there := erased[r.ID()]
		if !there || !receipt.IsReceipt(r) {
			continue
		}
		was, _ := r.Patch.Erasure()
		was.Seqs, was.EventIndices, was.Initial, was.ClosedAt = is.Seqs, nil, nil, is.ClosedAt
		p := patch.NewErase(was).WithID(r.ID()).WithAuthor(r.Patch.Author()).WithTimestamp(r.Patch.Timestamp())
		if err := write(patch.Record{Patch: p}); err != nil {
			return err
		}
	}
	return nil
}
