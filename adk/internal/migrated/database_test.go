package migrated

import (
	"flag"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/store/migrate"
)

// What ADK's own services have written into a database is what package adk gives of the
// store that it was migrated to. Migrating again adds nothing.
func TestDatabases(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			quickly(t, e.checks)
			rapid.Check(t, func(rt *rapid.T) {
				l := e.fresh(t)
				theirs := l.service(t)
				apps := (&drawer{t: rt}).fill(theirs)
				target := memory(t)
				report, results := run(t, target, source(t, l, e.dialect), migrate.Options{})
				for key, r := range results {
					if r.Status != migrate.Created {
						rt.Fatalf("%s: %s: %v", key, r.Status, r.Err)
					}
				}
				if report.SharedErr != nil || len(report.Shared.Different) > 0 {
					rt.Fatalf("shared: %+v, %v", report.Shared, report.SharedErr)
				}
				equalServices(t, theirs, asADK(t, target), apps...)

				report, results = run(t, target, source(t, l, e.dialect), migrate.Options{})
				for key, r := range results {
					if r.Status != migrate.Unchanged {
						rt.Fatalf("again: %s: %s: %v", key, r.Status, r.Err)
					}
				}
				if report.Added > 0 || report.Shared.Added > 0 || len(report.Shared.Different) > 0 {
					rt.Fatalf("again: %+v", report)
				}
			})
		})
	}
}

// quickly lets rapid draw the same few cases each time, unless it is told how many.
func quickly(t *testing.T, checks string) {
	t.Helper()
	if f := flag.Lookup("rapid.checks"); f.Value.String() != f.DefValue {
		return
	}
	for name, value := range map[string]string{"rapid.checks": checks, "rapid.seed": "1", "rapid.nofailfile": "true"} {
		f := flag.Lookup(name)
		no(t, f.Value.Set(value))
		t.Cleanup(func() { _ = f.Value.Set(f.DefValue) })
	}
}
