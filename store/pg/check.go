package pg

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// checks are the queries of Check. Each row of a result describes one inconsistency.
var checks = []string{
	`SELECT format('session %s has %s records from %s to %s, and says that the last is %s',
			encode(s.name, 'escape'), count(r.seq), coalesce(min(r.seq), 0), coalesce(max(r.seq), 0), s.last)
		FROM patchlog.sessions s LEFT JOIN patchlog.records r ON r.num = s.num
		WHERE s.state = 0
		GROUP BY s.num
		HAVING count(r.seq) <> s.last OR coalesce(max(r.seq), 0) <> s.last OR coalesce(min(r.seq), 1) <> 1`,
	`SELECT format('%s ids of session %s point to no record', count(*), encode(s.name, 'escape'))
		FROM patchlog.sessions s JOIN patchlog.ids d ON d.num = s.num
		WHERE s.state = 0 AND NOT EXISTS (SELECT FROM patchlog.records r WHERE r.num = d.num AND r.seq = d.seq)
		GROUP BY s.num`,
	`SELECT format('session %s ends at %s, and its snapshot is of %s', encode(s.name, 'escape'), s.last, p.seq)
		FROM patchlog.sessions s JOIN patchlog.snapshots p ON p.num = s.num
		WHERE s.state = 0 AND p.seq > s.last`,
	`SELECT format('session %s has no meta record', encode(s.name, 'escape'))
		FROM patchlog.sessions s
		WHERE s.state = 0 AND NOT EXISTS (SELECT FROM patchlog.metas m WHERE m.num = s.num)`,
	`SELECT format('session %s is not found by its name or its creation id', num)
		FROM patchlog.sessions
		WHERE birth <> sha256(creation) OR (state = 0) <> (hash IS NOT NULL) OR (state = 0) <> (name IS NOT NULL) OR hash <> sha256(name)`,
	`SELECT format('shared value %s is not found by its name', encode(name, 'escape')) FROM patchlog.shared WHERE hash <> sha256(name)`,
	`SELECT format('%s rows of %s are of no session, numbered %s', count(*), kind, num) FROM (
			SELECT num, 'records' AS kind FROM patchlog.records UNION ALL SELECT num, 'ids' FROM patchlog.ids
			UNION ALL SELECT num, 'snapshots' FROM patchlog.snapshots UNION ALL SELECT num, 'metas' FROM patchlog.metas
		) owned
		WHERE NOT EXISTS (SELECT FROM patchlog.sessions s WHERE s.num = owned.num) GROUP BY num, kind`,
}

// maxFindings limits the number of inconsistencies that each query of Check returns.
const maxFindings = 20

// Check implements [backend.Checker]. It reads all rows, but not the content of records. StatementTimeout does not
// apply to Check, and other calls can write while Check runs.
func (b *Backend) Check(ctx context.Context) error {
	if err := b.enter(ctx); err != nil {
		return err
	}
	defer b.calls.Done()
	c, err := b.pool.Acquire(ctx)
	if err != nil {
		return why(ctx, false, err)
	}
	defer c.Release()
	var all []error
	for _, text := range checks {
		rows, err := c.Query(ctx, b.sql(text+` LIMIT $1`), maxFindings)
		var found []string
		if err == nil {
			found, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			return why(ctx, false, err)
		}
		for _, f := range found {
			all = append(all, fmt.Errorf("%w: %s", backend.ErrDamaged, f))
		}
	}
	return errors.Join(all...)
}
