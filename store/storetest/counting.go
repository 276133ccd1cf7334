package storetest

import (
	"context"
	"fmt"
	"sync"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Cost is the cost of the calls to a backend. A head, a meta record, a record, a snapshot and a shared value each
// count as one row.
type Cost struct {
	Calls                 int
	RowsRead, BytesRead   int
	RowsWritten, BytesPut int
	byCall                map[string]int
}

func (c Cost) String() string {
	return fmt.Sprintf("%d calls %v, read %d rows of %d bytes, wrote %d rows of %d bytes", c.Calls, c.byCall, c.RowsRead, c.BytesRead, c.RowsWritten, c.BytesPut)
}

// Counting is a backend that counts the calls to it and the rows that they read and write.
type Counting struct {
	backend.Backend

	mu   sync.Mutex
	cost Cost
}

// Take returns the cost since the previous Take.
func (c *Counting) Take() Cost {
	c.mu.Lock()
	defer c.mu.Unlock()
	cost := c.cost
	c.cost = Cost{}
	return cost
}

func (c *Counting) count(name string, read, wrote [][]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cost.byCall == nil {
		c.cost.byCall = map[string]int{}
	}
	c.cost.Calls++
	c.cost.byCall[name]++
	for _, data := range read {
		c.cost.RowsRead, c.cost.BytesRead = c.cost.RowsRead+1, c.cost.BytesRead+len(data)
	}
	for _, data := range wrote {
		c.cost.RowsWritten, c.cost.BytesPut = c.cost.RowsWritten+1, c.cost.BytesPut+len(data)
	}
}

func headRows(h backend.Head) [][]byte {
	rows := [][]byte{h.Counts}
	if h.Meta != nil {
		rows = append(rows, h.Meta)
	}
	return rows
}

func recordRows(records []backend.Record) (rows [][]byte) {
	for _, r := range records {
		rows = append(rows, r.Data)
	}
	return rows
}

func valueRows(values []backend.Value) (rows [][]byte) {
	for _, v := range values {
		rows = append(rows, v.Data)
	}
	return rows
}

// Fetch implements [backend.Backend].
func (c *Counting) Fetch(ctx context.Context, q backend.Query) (backend.Fetched, error) {
	fetched, err := c.Backend.Fetch(ctx, q)
	rows := append(headRows(fetched.Head), recordRows(fetched.Records)...)
	if fetched.Snapshot.Data != nil {
		rows = append(rows, fetched.Snapshot.Data)
	}
	for _, values := range fetched.Shared {
		rows = append(rows, valueRows(values)...)
	}
	c.count("Fetch", rows, nil)
	return fetched, err
}

// Append implements [backend.Backend].
func (c *Counting) Append(ctx context.Context, session string, b backend.Batch) error {
	c.count("Append", nil, append(append([][]byte{b.Counts, b.Meta}, recordRows(b.Records)...), valueRows(b.Shared)...))
	return c.Backend.Append(ctx, session, b)
}

// Read implements [backend.Backend].
func (c *Counting) Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	records, err := c.Backend.Read(ctx, session, creation, seqs, maxBytes)
	c.count("Read", recordRows(records), nil)
	return records, err
}

// Lookup implements [backend.Backend].
func (c *Counting) Lookup(ctx context.Context, session, creation string, ids []string) ([]uint64, error) {
	c.count("Lookup", make([][]byte, len(ids)), nil)
	return c.Backend.Lookup(ctx, session, creation, ids)
}

// PutShared implements [backend.Backend].
func (c *Counting) PutShared(ctx context.Context, changes []backend.SharedChange) error {
	var rows [][]byte
	for _, change := range changes {
		rows = append(rows, change.Data)
	}
	c.count("PutShared", nil, rows)
	return c.Backend.PutShared(ctx, changes)
}

// List implements [backend.Backend].
func (c *Counting) List(ctx context.Context, prefix, after string, limit int) ([]backend.Listed, error) {
	found, err := c.Backend.List(ctx, prefix, after, limit)
	var rows [][]byte
	for _, l := range found {
		rows = append(rows, headRows(l.Head)...)
	}
	c.count("List", rows, nil)
	return found, err
}

// Fence implements [backend.Backend].
func (c *Counting) Fence(ctx context.Context, session, creation string, seen, next backend.Token) (bool, error) {
	c.count("Fence", nil, nil)
	return c.Backend.Fence(ctx, session, creation, seen, next)
}

// PutSnapshot implements [backend.Backend].
func (c *Counting) PutSnapshot(ctx context.Context, session, creation string, snap backend.Snapshot) error {
	c.count("PutSnapshot", nil, [][]byte{snap.Data})
	return c.Backend.PutSnapshot(ctx, session, creation, snap)
}

// Delete implements [backend.Backend].
func (c *Counting) Delete(ctx context.Context, session, creation string, seen *backend.Head) error {
	c.count("Delete", nil, nil)
	return c.Backend.Delete(ctx, session, creation, seen)
}
