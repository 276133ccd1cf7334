package store_test

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/store"
)

// A file that is read as of the commit before its last is opened with a warning, and
// Verify lists it; a store that reads only does both too.
func TestOlderMetaPage(t *testing.T) {
	onFile(t, func(e *env) {
		e.create(nil)
		e.append(say("a1"))
		e.append(say("a2"))
		e.no(e.store.Close())
		data := readFile(e, e.path)
		page := os.Getpagesize()
		newer := 0
		if data[page+64] > data[64] {
			newer = page
		}
		data[newer+40] ^= 1
		e.no(os.WriteFile(e.path, data, 0o600))
		for _, readOnly := range []bool{true, false} {
			var log bytes.Buffer
			e.opts.Logger, e.opts.ReadOnly = slog.New(slog.NewTextHandler(&log, nil)), readOnly
			e.store = openStore(e, e.path, e.opts)
			e.same("visible", ids(e.view()), "a1")
			if !strings.Contains(log.String(), "the last commit may be missing") {
				e.Errorf("the log says %q", &log)
			}
			var problems []string
			for p, err := range e.store.Verify(ctx, store.VerifyOptions{}) {
				e.no(err)
				problems = append(problems, p.String())
			}
			if len(problems) != 1 || !strings.Contains(problems[0], "the last commit may be missing") {
				e.Errorf("Verify lists %q", problems)
			}
			e.no(e.store.Close())
		}
	})
}
