package damage

import (
	"context"
	"math"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// truncatingBackend is a backend with a planted flaw. If a log is damaged, it returns only the records before the
// damage, without an error.
type truncatingBackend struct{ backend.Backend }

func (b truncatingBackend) Fetch(ctx context.Context, q backend.Query) (backend.Fetched, error) {
	fetched, err := b.Backend.Fetch(ctx, q)
	if err == nil && q.Session != "" {
		fetched.Head = b.truncatedHead(ctx, q.Session, fetched.Head)
	}
	return fetched, err
}

func (b truncatingBackend) truncatedHead(ctx context.Context, session string, h backend.Head) backend.Head {
	records, _ := b.Backend.Read(ctx, session, h.Creation, backend.Range(1, 1<<16), math.MaxInt)
	h.Last, h.Chain = 0, backend.Chain{}
	for _, r := range records {
		if _, err := patch.DecodeRecord(r.Data); err != nil {
			break
		}
		h.Last, h.Chain = r.Seq, h.Chain.Add(recordform.Checksum(r.Data))
	}
	return h
}
