package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// migrating is an import of ADK's sessions.
type migrating struct {
	*tally
	opts migrate.Options
	done int // sessions
}

// migrateFrom imports all sessions of ADK's.
func (r *importing) migrateFrom(ctx context.Context, src *importSource) (err error) {
	m := migrating{tally: newTally(r.app, *r.dryRun), opts: r.adk}
	m.opts.DryRun, m.opts.KeepCompactions = *r.dryRun, r.compactions == "keep"
	if sameFile(src.name, r.db) {
		return usagef("SOURCE is the database to write")
	}
	from, err := openSource(ctx, src, r.ignored)
	if err != nil {
		return fmt.Errorf("SOURCE: %w", err)
	}
	defer func() { err = errors.Join(err, from.close()) }()
	target, err := m.openTarget(ctx, r.db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	m.bar = m.progress("import")
	defer m.bar.end()
	if !m.json {
		if err := m.line(func() error { return m.out.linef("from %s", from) }); err != nil {
			return err
		}
	}
	m.opts.Progress = func(done, total int) {
		if from.count != nil {
			m.bar.update(from.count.n, from.size, present.Counted(done, "session"))
			return
		}
		m.at(done, total)
	}
	m.opts.Session = m.report
	report, err := migrate.Run(ctx, target, from, m.opts)
	m.bar.end()
	if err != nil {
		return err
	}
	return m.end(from, report)
}

// report says what became of a session.
func (m *migrating) report(r migrate.Result) error {
	m.done++
	doc := struct {
		sessionDocument
		*adoption
		Differences []migrate.Difference `json:"differences"`
	}{
		newSessionDocument(r.Key, string(r.Status), r.Added, r.Present, r.Seq, r.Err),
		adoptionOf(r.Adopted, r.Left),
		append([]migrate.Difference{}, r.Differences...),
	}
	if err := m.session(doc.sessionDocument, doc, r.Err); err != nil || m.json {
		return err
	}
	if r.Status == migrate.Unchanged && len(r.Differences) > 0 {
		if err := m.line(func() error { return m.out.linef("%s: %s", r.Key, r.Status) }); err != nil {
			return err
		}
	}
	if n := len(r.Adopted) + len(r.Left); n > 0 {
		if err := m.line(func() error { return m.showAdoption(doc.adoption) }); err != nil {
			return err
		}
	}
	return m.differences(r.Differences)
}

func (m *migrating) differences(all []migrate.Difference) error {
	for _, d := range all {
		if err := m.line(func() error { return m.out.linef("  %s", present.Printable(d.String())) }); err != nil {
			return err
		}
	}
	return nil
}

// end says what the run came to.
func (m *migrating) end(from *source, r migrate.Report) error {
	if r.SharedErr != nil {
		if err := m.noShared(r.SharedErr); err != nil {
			return err
		}
	}
	if !m.opts.OverwriteShared {
		if err := m.different(r.Shared.Different); err != nil {
			return err
		}
	} else if !m.json {
		for _, name := range r.Shared.Different {
			if err := m.out.linef("shared value %s: %s in place of another", name, map[bool]string{true: "would be written", false: "written"}[m.dryRun]); err != nil {
				return err
			}
		}
	}
	if !m.json {
		if err := m.differences(r.Source); err != nil {
			return err
		}
	}
	return m.sum(m.done, r.Shared, "imported", &sourceDocument{from.String(), append([]migrate.Difference{}, r.Source...)})
}
